"""What a lesson in words names and quotes, and what of that a situation lacks.

In: a lesson in words, in any language, and a situation. Out: its parts, or misfits: what it names that stands nowhere in what the agent
has been shown. `lacking` is the whole check for worlds that have no language of their own, and the first part of it for others. Time is
linear in the text. Not promised: that a thing is found which is named in plain words without quotation marks; worlds know their things.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mulligan.records import Misfit, Situation

LONGEST = 8_000  # characters of a lesson that are read
TOLD = 80  # characters of what does not fit


def vocabulary(words: str) -> frozenset[str]:
    """The words of a list with blanks between."""
    return frozenset(words.split())


EVERYDAY = vocabulary("10 12 24 30 31 52 60 90 100 180 360 365 366 1000")  # numbers that need no source
_FENCED = re.compile(r"(?<!`)`{3,}+[ \t]*+[\w+-]*+[^\n`]*+\n(.*?)(?:`{3,}+|\Z)", re.DOTALL)
_INLINE = re.compile(r"(?<!`)(`++)([^\n]+?)(?<!`)\1(?!`)")
_SAID = re.compile(
    r"(?<!\w)'([^'\n]{1,80})'(?!\w)|(?<!\w)\"([^\"\n]{1,80})\"(?!\w)|‘([^’\n]{1,80})’(?!\w)|[“„«「『]([^“”»」』\n]{1,80})[“”»」』]"
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w|\.\d)")
_WORD = re.compile(r"[^\W\d_]\w+|_\w+")
_DOTTED = re.compile(r"(?<![\w./-])[A-Za-z_]\w*(?:[./]\w+)*(?=(\()?)")
_LIKE_A_NAME = re.compile(r"_|[a-z][A-Z]|[A-Za-z]\d|\w{2}[./][a-z_]\w|\w/\w+\.\w")
_UNSPACED = re.compile(r"[぀-ヿ㐀-鿿豈-﫿가-힯฀-๿]")  # scripts that do not put spaces between words


@dataclass(frozen=True, slots=True)
class Code:
    """A quotation of code: what stands in a fence, or between backticks in a line."""

    text: str
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """A text apart, with a gap for what was taken out: its code, all but the code, what is quoted in that, and the prose alone."""

    code: tuple[Code, ...]
    spoken: str
    said: tuple[str, ...]
    prose: str


def parts(text: str) -> Parts:
    """`text` taken apart, from the first `LONGEST` characters."""
    text = text[:LONGEST]
    fenced = [Code(found[1].strip("\n"), fenced=True) for found in _FENCED.finditer(text)]
    text = _FENCED.sub(" … ", text)
    inline = [Code(found[2].strip()) for found in _INLINE.finditer(text)]
    text = _INLINE.sub(" … ", text)
    return Parts((*fenced, *inline), text, tuple(quoted(text)), _SAID.sub(" … ", text))


def quoted(text: str) -> Iterator[str]:
    """What stands in quotation marks, of any style, without them."""
    for found in _SAID.finditer(text):
        if inner := next(filter(None, found.groups()), "").strip():
            yield inner


def numbers(text: str) -> list[str]:
    """The numbers of at least two digits that stand by themselves, without the everyday ones."""
    found = (number.rstrip(",") for number in _NUMBER.findall(text))
    return [n for n in found if sum(c.isdigit() for c in n) > 1 and n.replace(",", "") not in EVERYDAY]


def names(prose: str) -> list[str]:
    """The words of prose that are written like names of code: with underscores, digits, inner capitals, dots, or a bracket behind."""
    return [found[0] for found in _DOTTED.finditer(prose) if found[1] or _LIKE_A_NAME.search(found[0])]


def literals(text: str) -> list[str]:
    """The values in a text: what is quoted and has at least two letters or digits, and its numbers."""
    phrases = [phrase for phrase in quoted(text) if sum(map(str.isalnum, phrase)) > 1]
    return list(dict.fromkeys([*phrases, *numbers(text)]))


def fold(text: str) -> str:
    """A text as it is compared: case and white space do not count."""
    return " ".join(text.casefold().split())


def stands_in(phrase: str, folded: str) -> bool:
    """Whether `phrase` stands as whole words in a folded text; in scripts without spaces anywhere in it."""
    wanted = fold(phrase)
    if not wanted:
        return False
    before, after = (
        "" if _UNSPACED.match(end) or not end.isalnum() else side for end, side in ((wanted[0], r"(?<!\w)"), (wanted[-1], r"(?!\w)"))
    )
    return re.search(before + re.escape(wanted) + after, folded) is not None


def misfit(what: str) -> Misfit:
    """A name or a value that is not there."""
    return Misfit(kind="unknown_name", what=what[:TOLD])


def too_long(text: str) -> Sequence[Misfit]:
    """What worlds say of a text that is too long to be read; nothing for others."""
    return (Misfit(kind="unparseable", what=f"{len(text)} characters, at most {LONGEST} are read"),) if len(text) > LONGEST else ()


def lacking(situation: Situation, text: str, language: Collection[str] = ()) -> list[Misfit]:
    """What `text` names in quotation marks, as code or like a name, that stands nowhere in what the agent has been shown.

    `language` are folded words that the world's own language has. A quotation is there as a whole, or word by word.
    """
    if long := too_long(text):
        return list(long)
    found, sight = parts(text), fold(situation.sight)

    def missing(words: Iterable[str]) -> Iterator[str]:
        return (word for word in words if fold(word) not in language and not stands_in(word, sight))

    unknown = [word for phrase in missing([c.text for c in found.code]) for word in missing([*_WORD.findall(phrase), *numbers(phrase)])]
    unknown += [phrase for phrase in missing(found.said) if any(missing(_WORD.findall(phrase))) or not _WORD.search(phrase)]
    return [misfit(word) for word in dict.fromkeys([*unknown, *missing(names(found.prose))])]
