"""Strict readers of model replies: the one JSON value, or the one code action; ambiguity is refused, nothing is invented.

In: a reply as the model wrote it, with fences, prose around, trailing commas, `//` comments, raw line breaks in strings, or cut
short by a token limit. Out: a validated noun (`read_reply`), plain JSON (`read_object`) or code (`read_code`).

    read_reply(Lessons, '{"lessons":[{"text":"first"},{"text":"sec').value   →   only the first lesson, truncated=True

Refused with InvalidData: two values that differ, a key twice, a damaged value, NaN and numbers beyond floats, half surrogate pairs,
more than MAX_CHARS characters or MAX_DEPTH levels. Time is linear in the text whatever it holds. Not promised: that single quotes,
curly quotes, missing commas or missing quotes are mended; they are not. Nothing is ever executed.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mulligan.errors import InvalidData
from mulligan.nouns import Json, from_plain, to_json

MAX_CHARS = 1_000_000
MAX_DEPTH = 64
MAX_DIGITS = 400  # longer numbers are no data, and Python's own limit would make them a ValueError

T = TypeVar("T")

_SPACE = re.compile(r"(?:[ \t\r\n]++|//[^\n]*+)*+")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NUMERIC = re.compile(r"[-+.0-9eE]++")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"\w++")
_OPENING = re.compile(r"[\[{]")
_LITERALS: dict[str, Json] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """What a reply holds. `truncated`: it was cut short, and only the complete items of its list are here."""

    value: T
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class CodeReply:
    """A reply's code action. `prose` is the rest of the reply; `cut`: the code's fence was never closed, so it may be incomplete."""

    code: str
    prose: str
    cut: bool = False


def read_reply(kind: type[T], text: str, *, what: str = "reply") -> Reply[T]:
    """The one JSON value in `text` as a `kind`: a noun, or a list of nouns such as `list[Proposal]`.

    Raises InvalidData, beginning with `what`, for whatever `read_object` refuses and for a value that is no `kind`.
    """
    found = read_object(text, what=what)
    return Reply(from_plain(kind, found.value, what=what), found.truncated)


def read_object(text: str, *, what: str = "reply") -> Reply[Json]:
    """The one JSON object or list in `text`; the same value several times counts as one.

    Of a list that is cut short the complete items are kept (at least one), also when it is a member of an object; the cut item is
    dropped whole, and a cut string or number is never completed. Raises InvalidData with the reason for everything else.
    """
    if len(text) > MAX_CHARS:
        raise InvalidData(f"{what} has {len(text)} characters, more than the {MAX_CHARS} that are read")
    values = _scan(_answer(text), what)
    if len({to_json(found.value) for found in values}) > 1:
        raise InvalidData(f"{what} is ambiguous: it holds {len(values)} JSON values that differ")
    return values[0]


class _Wrong(Exception):
    """The text is no JSON from here on."""


class _Cut(Exception):
    """The text ended inside a value; `kept` is what of it is complete, None when nothing is."""

    def __init__(self, kept: Json = None):
        self.kept = kept


def _scan(text: str, what: str) -> list[Reply[Json]]:
    """All top-level JSON values of `text`, at least one.

    A bracket that turns out to open no JSON is prose, and the search goes on where reading stopped, never before: so no part of a
    damaged value is ever taken for the whole, and every character is read once.
    """
    values: list[Reply[Json]] = []
    trouble = "holds no JSON object or list"
    at = 0
    while opening := _OPENING.search(text, at):
        reader = _Reader(text, opening.start())
        try:
            values.append(Reply(reader.value(1)))
        except _Cut as cut:
            if values and (reader.certain or cut.kept is not None):
                raise InvalidData(f"{what} is ambiguous: behind one JSON value begins another that is cut short") from None
            if cut.kept is not None:
                values.append(Reply(cut.kept, truncated=True))
            trouble = "is cut short before its first complete item"
        except _Wrong as wrong:
            trouble = f"holds no valid JSON (read up to character {reader.at}: {wrong})"
            if reader.certain:
                raise InvalidData(f"{what} {trouble}") from None
        at = max(reader.at, opening.end())
    if not values:
        raise InvalidData(f"{what} {trouble}")
    return values


class _Reader:
    """Reads one JSON value of `text` from `at`. `certain` once a comma or colon shows that this is JSON and not prose in brackets."""

    def __init__(self, text: str, at: int):
        self.text = text
        self.at = at
        self.certain = False

    def peek(self) -> str:
        """The next character that is neither space nor comment."""
        self.at = self._end(_SPACE)
        if self.at == len(self.text):
            raise _Cut
        return self.text[self.at]

    def value(self, depth: int) -> Json:
        first = self.peek()
        if first in "[{":
            if depth > MAX_DEPTH:
                self.certain = True
                raise _Wrong(f"nesting deeper than {MAX_DEPTH} levels")
            return self._list(depth) if first == "[" else self._object(depth)
        if first == '"':
            return self._string()
        return self._number() if first in "-0123456789" else self._literal()

    def _list(self, depth: int) -> list[Json]:
        items: list[Json] = []
        self.at += 1
        try:
            while self.peek() != "]":
                items.append(self.value(depth + 1))
                self._separate("]")
        except _Cut:
            raise _Cut(items or None) from None
        self.at += 1
        return items

    def _object(self, depth: int) -> dict[str, Json]:
        members: dict[str, Json] = {}
        self.at += 1
        while self.peek() != "}":
            if self.text[self.at] != '"':
                raise _Wrong("expected a key in double quotes")
            key = self._string()
            if self.peek() != ":":
                raise _Wrong("expected ':'")
            self.at += 1
            self.certain = True
            if key in members:
                raise _Wrong(f"key {key[:40]!r} appears twice")
            try:
                members[key] = self.value(depth + 1)
                self._separate("}")
            except _Cut as cut:
                raise _Cut(_shortened(members, key, cut.kept)) from None
        self.at += 1
        return members

    def _separate(self, closing: str) -> None:
        if self.peek() == ",":
            self.at += 1
            self.certain = True
        elif self.text[self.at] != closing:
            raise _Wrong(f"expected ',' or '{closing}'")

    def _string(self) -> str:
        start, self.at = self.at, self._end(_STRING)
        if self.at == start:
            self.at = len(self.text)
            raise _Cut
        try:
            text: str = json.loads(self.text[start : self.at], strict=False)
            text.encode()
        except json.JSONDecodeError:
            raise _Wrong("an escape that JSON does not have in a string") from None
        except UnicodeEncodeError:
            raise _Wrong("half a surrogate pair in a string") from None
        return text

    def _number(self) -> int | float:
        start, self.at = self.at, self._end(_NUMERIC)
        token = self.text[start : self.at]
        if self.at == len(self.text):
            raise _Cut  # more digits may have been coming
        match = _NUMBER.fullmatch(token)
        if not match or len(token) > MAX_DIGITS:
            raise _Wrong(f"{token[:20]!r} is no number that is read")
        if not any(match.groups()):
            return int(token)
        if math.isinf(number := float(token)):
            raise _Wrong(f"number {token[:20]} is too large")
        return number

    def _literal(self) -> Json:
        start, self.at = self.at, self._end(_WORD)
        word = self.text[start : self.at]
        if word in _LITERALS:
            return _LITERALS[word]
        if self.at == len(self.text) and any(literal.startswith(word) for literal in _LITERALS):
            raise _Cut
        raise _Wrong(f"{word[:20]!r} is no JSON value" if word else "expected a value")

    def _end(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        return match.end() if match else self.at


def _shortened(members: dict[str, Json], key: str, kept: Json) -> Json:
    """What of a cut object is complete: something only if the cut fell into, or directly behind, a list; members may be missing then."""
    if kept is not None:
        return {**members, key: kept}
    return members if isinstance(members.get(key), list) else None


def _answer(text: str) -> str:
    """`text` without the thinking that some models write before their answer."""
    if not text.lstrip().startswith("<think>"):
        return text
    return text.partition("</think>")[2]


# ---- code --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    language: str  # "" when the fence names none
    code: str
    start: int
    end: int
    cut: bool = False


_FENCE = re.compile(r"`{3,}")
_LABEL = re.compile(r"^[ \t*#]*+(?:Final )?(?:Action|ACTION|Answer|ANSWER|SQL)[ \t*]*+:[ \t*]*+(?=\S)", re.MULTILINE)
_INVENTED = re.compile(r"^[ \t*]*+Observation[ \t*]*+:", re.MULTILINE)
_BLANK_LINES = re.compile(r"(?:[ \t\r]*+\n)+")


def read_code(text: str, languages: Sequence[str]) -> CodeReply:
    """The code action in a reply, for a world whose language goes by one of the names `languages`; with none, by any name.

    The last fenced block in one of the languages wins, since models reason first and answer last; then the last block without a
    language, then the last of any. Without a fence it is what follows the last `Action:`, `Answer:` or `SQL:` at the start of a
    line, else the whole reply. What a model writes behind `Observation:` is its guess at the world's answer, and is left out. Code
    may be empty; it is never mended. Take code that is `cut` only when the completion's finish is "stop".
    """
    text = _answer(text)
    invented = _INVENTED.search(text)
    if invented and text[: invented.start()].strip():
        text = text[: invented.start()]
    wanted = {language.lower() for language in languages}
    if blocks := _blocks(text, wanted):
        full = [block for block in blocks if block.code] or blocks
        named = [block for block in full if block.language in wanted or (block.language and not wanted)]
        unnamed = [block for block in full if not block.language]
        chosen = (named or unnamed or full)[-1]
        return CodeReply(chosen.code, (text[: chosen.start] + text[chosen.end :]).strip(), chosen.cut)
    if labels := list(_LABEL.finditer(text)):
        return CodeReply(_unquoted(text[labels[-1].end() :]), text[: labels[-1].start()].strip())
    return CodeReply(_unquoted(text), "")


def _blocks(text: str, languages: set[str]) -> list[_Block]:
    """The fenced blocks of `text`. A fence closes in the line that opened it, or at the start or the end of a later line."""
    blocks: list[_Block] = []
    at = line_end = 0
    while opening := _FENCE.search(text, at):
        start, body, fence = opening.start(), opening.end(), opening.group()
        if line_end <= start:
            line_end = text.find("\n", start) % (len(text) + 1)  # -1, no further line, becomes the end of the text
        if (end := text.find(fence, body, line_end)) >= 0:
            at = end + len(fence)
            language, code = _header(text[body:end], languages)
            blocks.append(_Block(language if code else "", (code or text[body:end]).strip(), start, at))
            continue
        language, code = _header(text[body:line_end], languages)
        run = f"`{{{len(fence)},}}+"  # possessive, and tried at its start only: a long row of backticks takes linear time
        closing = re.compile(rf"^[ \t]*+{run}(?!\w)|(?<!`){run}[ \t\r]*+$", re.MULTILINE).search(text, line_end)
        end, at = closing.span() if closing else (len(text), len(text))
        code += _dedented(text[line_end:end], text[max(0, start - 40) : start].rpartition("\n")[2])
        blocks.append(_Block(language, _trimmed(code), start, at, cut=closing is None))
    return blocks


def _header(header: str, languages: set[str]) -> tuple[str, str]:
    """The language that a fence's line names, and the code that begins in that line already."""
    first, _, rest = header.strip().partition(" ")
    named = first.lower() in languages or (first.islower() and not languages)
    return (first.lower(), rest) if named or not rest else ("", header)


def _dedented(code: str, indent: str) -> str:
    """`code` without the indentation of its fence, which is part of a list item, not of the code."""
    return code.replace("\n" + indent, "\n") if indent.isspace() else code


def _trimmed(code: str) -> str:
    """Without blank lines around; the first line keeps its indentation, which may carry meaning, unless it is the only line."""
    blank = _BLANK_LINES.match(code)
    code = code[blank.end() if blank else 0 :].rstrip()
    return code if "\n" in code else code.strip()


def _unquoted(code: str) -> str:
    code = code.strip()
    if code.count("`") == 2 and code[0] == code[-1] == "`":
        return code[1:-1].strip()
    return code
