"""The values that a database holds: who holds a text, which stored text is nearest to it, what a question names.

In: a held copy. Out: a Values index, cached by path since held copies never change. Long texts and the many values of a large column are
left out of the index, so `holders` may miss some; `holds` asks the database and is exact.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from mulligan.worlds.sql_schema import Catalogue, Column, catalogue, connect, quoted

LONGEST = 60  # characters of an indexed value
PER_COLUMN = 5_000  # distinct values indexed of one column
IN_ALL = 200_000
CLOSE = 0.75  # difflib ratio from which a stored text is near
WORD = re.compile(r"\w+")
UNSPACED = re.compile(r"[぀-ヿ㐀-鿿豈-﫿가-힯฀-๿]+")  # scripts that do not put spaces between words
NUMBER = re.compile(r"-?\d+(\.\d+)?")
LONG_TEXT = 500  # words of a question that are looked at
PHRASE = 5  # words of a value that is looked for in a question


def fold(text: str) -> str:
    """A text as it is compared: case and white space do not count."""
    return " ".join(text.casefold().split())


class Values:
    """The distinct short texts of one database."""

    def __init__(self, held: Path) -> None:
        self.held = held
        self.catalogue: Catalogue = catalogue(held)
        self.stored: dict[str, list[str]] = {}
        self._places: dict[str, list[tuple[Column, str]]] = defaultdict(list)
        with closing(connect(held)) as connection:
            left = IN_ALL
            for column in self.catalogue.columns():
                name, table = quoted(column.name), quoted(column.table)
                asked = f"SELECT DISTINCT {name} FROM {table} WHERE typeof({name}) = 'text' AND length({name}) <= {LONGEST} LIMIT ?"
                try:
                    found = [value for (value,) in connection.execute(asked, (min(left, PER_COLUMN),))]
                except connection.Error:  # a view or a virtual table that cannot be read here
                    found = []
                left -= len(found)
                self.stored[column.full] = found
                for value in found:
                    for spelling in dict.fromkeys((fold(value), turned(value))):
                        self._places[spelling].append((column, value))

    def holders(self, text: str) -> list[tuple[Column, str]]:
        """The columns that hold `text`, whatever its case, with the stored spelling."""
        return list(self._places.get(fold(text), ()))

    def holds(self, column: Column, text: str, *, like: bool = False) -> bool:
        """Whether some row of `column` equals `text` (or is LIKE it), as SQLite compares."""
        test = "LIKE" if like else "="
        with closing(connect(self.held)) as connection:
            asked = f"SELECT 1 FROM {quoted(column.table)} WHERE {quoted(column.name)} {test} ? LIMIT 1"
            try:
                return connection.execute(asked, (text,)).fetchone() is not None
            except (connection.Error, UnicodeEncodeError):
                return False

    def nearest(self, column: Column, text: str, count: int = 2) -> list[str]:
        """Stored texts of `column` nearest to `text`: the same but for case, then one within the other, then by spelling."""
        wanted = fold(text.strip("%"))
        stored = self.stored.get(column.full, [])
        same = [value for value in stored if wanted in (fold(value), turned(value))]
        within = [value for value in stored if wanted and _within(fold(value), wanted)]
        folded = {fold(value): value for value in stored}
        spelled = [folded[name] for name in difflib.get_close_matches(wanted, folded, n=count, cutoff=CLOSE)]
        within.sort(key=lambda value: (abs(len(value) - len(wanted)), value))
        return list(dict.fromkeys([*same, *within, *spelled]))[:count]

    def named(self, text: str) -> list[tuple[Column, str]]:
        """The columns that hold a value which occurs in `text`, longest values first; each column's words count once."""
        words = WORD.findall(fold(text))[:LONG_TEXT]
        taken: dict[Column, list[tuple[int, int]]] = defaultdict(list)
        found: list[tuple[Column, str]] = []
        for size in range(min(PHRASE, len(words)), 0, -1):
            for i in range(len(words) - size + 1):
                phrase = " ".join(words[i : i + size])
                for column, value in self._places.get(phrase, ()) if len(phrase) > 1 else ():
                    if not any(a <= i and i + size <= b for a, b in taken[column]):
                        taken[column].append((i, i + size))
                        found.append((column, value))
        for run in UNSPACED.findall(fold(text)[: LONG_TEXT * 10]):
            parts = {run[i : i + size] for size in range(2, 9) for i in range(len(run) - size + 1)}
            found += [place for part in sorted(parts, key=lambda part: (-len(part), part)) for place in self._places.get(part, ())]
        return list(dict.fromkeys(found))

    def numeric(self, column: Column) -> bool:
        """Whether a column holds numbers: by its type, or because all its texts look like some."""
        stored = self.stored.get(column.full, [])
        return column.numeric or (bool(stored) and all(NUMBER.fullmatch(text) for text in stored))

    def shared(self, one: Column, other: Column) -> float:
        """The share of the values of `one` that `other` holds too: near 1 where they can be joined."""
        mine = self.stored.get(one.full, [])
        return len(set(mine) & set(self.stored.get(other.full, []))) / len(mine) if mine else 0.0


def turned(value: str) -> str:
    """A name that is stored as "Surname, Given" as it is said: "given surname". Anything else folded."""
    last, comma, first = fold(value).partition(", ")
    return f"{first} {last}" if comma and first and "," not in first else fold(value)


def _within(stored: str, wanted: str) -> bool:
    short, long = sorted((stored, wanted), key=len)
    return len(short) > 2 and re.search(rf"(?<!\w){re.escape(short)}(?!\w)", long) is not None


@lru_cache(maxsize=8)
def values(held: Path) -> Values:
    """The index of a held copy."""
    return Values(held)


def near_names(name: str, names: Iterable[str], count: int = 2) -> list[str]:
    """The names most like `name`, at most `count`."""
    spelled = {known.lower(): known for known in names}
    return [spelled[found] for found in difflib.get_close_matches(name.lower(), spelled, n=count, cutoff=0.5)]
