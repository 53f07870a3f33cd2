"""The words of a shop's texts: cut, folded, and told apart into what is wanted and what is only said around it.

In: titles, options, instructions. Out: words, the names in a title, colours, the price limit that an instruction states, its facts.
English word lists; what is in another language is all content. Nothing here knows a goal.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from fractions import Fraction

from mulligan.nouns import Json

_COLOURS = (
    "amber aqua beige black blue bronze brown burgundy charcoal coral crimson cyan fuchsia gold graphite gray green grey indigo ivory "
    "khaki lavender lilac lime magenta maroon mauve mint multicolor mustard navy olive orange peach pink plum purple red rose rust salmon "
    "scarlet silver tan taupe teal turquoise violet white wine yellow"
)
_FILLER = (
    "a about all also am an and any are as at be both but by can color colored colour could dollar find for from get give go has have help "
    "him her i if in is it its just like look looking made make me more my need of on one or our please price prices pick priced product "
    "search searching should show size sized so some something than that the their them then there these they this those to too under "
    "want was we what where which while who will with would you your less lower ll m s re ve item want buy buying purchase choose "
    "interested wish"
)
COLOURS, FILLER = tuple(_COLOURS.split()), frozenset(_FILLER.split())
_SIZES = (
    r"\d*x+-?(?:small|large)|small|medium|large|king|queen|twin|full|one size|"
    r"\d+(?:\.\d+)?\s?(?:x\s?\d+(?:\.\d+)?\s?)?(?:\"|inch(?:es)?|ft|feet|foot|cm|mm|m|oz|fl oz|ounces?|pounds?|lbs?|gb|tb|ml|count|pack)"
)
SIZE = re.compile(rf"(?<![\w.])(?:{_SIZES})(?!\w)", re.IGNORECASE)
PACK = re.compile(r"\bpack of \w+|\b(?:\w+|\d+)[ -]pack\b|\bset of \w+", re.IGNORECASE)
LIMIT = re.compile(
    r",?\s*(?:and\s+)?\bprice[sd]?\b[^\d.,;]{0,30}?\b(?:lower|less|below|under)(?: than)?\s*"
    r"\$?(\d[\d,]{0,8}(?:\.\d{1,4})?)(?:\s*dollars?)?",
    re.IGNORECASE,
)
_COLOUR = re.compile(rf"(?<!\w)(?:{'|'.join(COLOURS)})(?!\w)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAME = re.compile(r"[^\W\d_]\w*")


def words(text: str) -> list[str]:
    """The words of `text`, folded, plurals in s without it: what search and overlap compare."""
    found = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold())
    return [word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "siu" else word for word in found]


_FOLDED_FILLER = FILLER | {folded for word in FILLER for folded in words(word)}


def content(text: str) -> list[str]:
    """The words of an instruction that say what is wanted, each once: no filler, no price."""
    return [word for word in dict.fromkeys(words(LIMIT.sub(" ", text))) if word not in _FOLDED_FILLER]


def names(title: str) -> list[str]:
    """The words of a title that can be names of things, as they stand, also twice: no numbers, no function words."""
    return [word for word in (found.casefold() for found in _NAME.findall(title)) if word not in FILLER]


def colour(text: str) -> str:
    """The first colour that `text` names, or all of it where there is none: options are compared by it."""
    found = _COLOUR.search(text)
    return found.group().casefold() if found else text


def values(text: str) -> list[str]:
    """The colours, sizes and packs that `text` names, each once."""
    return list(dict.fromkeys(found.group() for pattern in (PACK, SIZE, _COLOUR) for found in pattern.finditer(text)))


def limit(instruction: str) -> Fraction | None:
    """The price that `instruction` wants to stay below, in dollars; None where it states none."""
    found = LIMIT.search(instruction)
    return Fraction(found.group(1).replace(",", "")) if found else None


def searches(instruction: str) -> Iterator[str]:
    """Queries that the words of `instruction` make: all of them, those that are no colour, size or number, and the last few of these."""
    yield " ".join(content(instruction))
    bare = LIMIT.sub(" ", instruction)
    for pattern in (PACK, SIZE, _COLOUR, _NUMBER):
        bare = pattern.sub(" ", bare)
    yield " ".join(content(bare))
    head = re.split(r",|\bthat\b|\bwhich\b|\bwith\b|\bin\b", bare)[0]
    yield " ".join(content(head)[-4:])


def facts(instruction: str) -> dict[str, Json]:
    """What the instruction itself says: what it asks for, its words, colours, number of words and limit, and its gist without values."""
    text, bound = LIMIT.sub(" ", instruction), limit(instruction)
    kinds: Mapping[str, re.Pattern[str]] = {"colour": _COLOUR, "size": SIZE, "pack": PACK}
    asks = [name for name, pattern in kinds.items() if pattern.search(text)] + ["price"] * (bound is not None)
    gist = text
    for name, pattern in (("pack", PACK), ("size", SIZE), ("colour", _COLOUR), ("number", _NUMBER)):
        gist = re.sub(rf"\b{name}(?:\s+{name}\b)+", name, pattern.sub(f" {name} ", gist))
    said: dict[str, Json] = {
        "asks": asks,
        "words": content(text)[:30],
        "colours": list(dict.fromkeys(match.casefold() for match in _COLOUR.findall(text))),
        "length": len(content(text)),
        "gist": " ".join(gist.split())[:600],
    }
    return {**said, "limit": float(bound)} if bound is not None else said
