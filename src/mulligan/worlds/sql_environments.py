"""Copies of a database under other names, and queries and questions carried over to them.

In: a held copy, and a folder. Out: a database's file and what became of names: tables and columns renamed (`renamed`), every stored name
replaced and all numbers changed (`refilled`), one column renamed that nothing uses (`touched`). The same content gives the same copy, made
once. Names inside derived tables and CTEs are carried over where they are columns of one meaning; where they are not, the query breaks,
which its check shows. Not promised: triggers, and views that SQLite cannot follow.
"""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sqlglot import exp

from mulligan.worlds.sql_copies import KINDS, ROUNDS, changed_copies
from mulligan.worlds.sql_engine import place
from mulligan.worlds.sql_query import parse
from mulligan.worlds.sql_schema import Catalogue, Column, catalogue, quoted
from mulligan.worlds.sql_values import values
from mulligan.worlds.sql_variants import parts, plural, put, revalued_text, said, singular

WORLDS = ROUNDS  # that a database can be refilled with
NAMINGS = 2
VOWELS, CONSONANTS = "aeiou", "bdfglmnprstvz"


@dataclass(frozen=True, slots=True)
class Renaming:
    """Old names → new ones: of tables, and of columns by "table.column" of the old names. All old names in small letters."""

    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def column(self, column: Column) -> str:
        return self.columns.get(column.full.casefold(), column.name)


# ---- another schema ----


def renaming(known: Catalogue, turn: int = 0) -> Renaming:
    """Other names that say the same, of one of `NAMINGS`: `state` and its `state_name` and `area` become `states` with `name_state` and
    `state_area`, or `tblState` with `stateName` and `areaValue`.
    """
    tables: dict[str, str] = {}
    columns: dict[str, str] = {}
    taken = {table.name.casefold() for table in known.tables}
    for table in (table for table in known.tables if not table.view):
        one = singular(table.name)
        tables[table.name.casefold()] = _unused(_camel(["tbl", *parts(one)]) if turn else one if one != table.name else plural(one), taken)
        used = {column.name.casefold() for column in table.columns}
        for column in table.columns:
            first, *rest = parts(column.name) or [column.name]
            other = _camel([first, *(rest or ["value"])]) if turn else "_".join([*rest, first] if rest else [one.casefold(), first])
            columns[column.full.casefold()] = _unused(other, used)
    return Renaming(tables, columns)


def _camel(words: Sequence[str]) -> str:
    return words[0] + "".join(word.capitalize() for word in words[1:])


def _unused(name: str, taken: set[str]) -> str:
    """`name`, or with the first number that makes it new; it counts as taken from then on."""
    found = next(new for new in (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))) if new.casefold() not in taken)
    taken.add(found.casefold())
    return found


def renamed(held: Path, names: Renaming, folder: Path) -> Path | None:
    """A copy under other names, in `folder`; None where SQLite cannot follow."""

    def change(connection: sqlite3.Connection) -> None:
        for table in catalogue(held).tables:
            for column in table.columns:
                if (new := names.column(column)) != column.name and not table.view:
                    connection.execute(f"ALTER TABLE {quoted(table.name)} RENAME COLUMN {quoted(column.name)} TO {quoted(new)}")
        for table in catalogue(held).tables:
            if new_table := names.tables.get(table.name.casefold()):
                connection.execute(f"ALTER TABLE {quoted(table.name)} RENAME TO {quoted(new_table)}")

    return _copied(held, folder, f"names {sorted(names.tables.items())} {sorted(names.columns.items())}", change)


def carried(sql: str, names: Renaming, held: Path) -> str:
    """A query of `held` under the other names; text without a tree stays as it is."""
    known = catalogue(held)
    query = parse(sql.strip("; \t\r\n"), known)
    if query is None:
        return sql
    places: dict[int, exp.Expr] = {}
    for at, node in enumerate(query.nodes):
        if isinstance(node, exp.Table) and (new := names.tables.get(node.name.casefold())) and known.table(node.name):
            changed = node.copy()
            changed.set("this", exp.to_identifier(new))
            places[at] = changed
        elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) and not query.is_text(node):
            meant = query.resolve(node) or known.holders(node.name)
            told = {names.column(column) for column in meant}
            table = names.tables.get(node.table.casefold(), node.table) if known.table(node.table) and meant else node.table
            if len(told) == 1:
                places[at] = exp.column(told.pop(), table=table or None)
    return put(query, places)


# ---- other content ----


def refilled(held: Path, folder: Path, turn: int = 0) -> tuple[Path, Mapping[str, str]] | None:
    """A copy with the same schema about another world: rows exchanged, numbers changed, every name an invented one; and the new names.

    A name that stands in several columns gets the same new name in all of them, so that references hold. `turn` chooses one of `WORLDS`.
    None where SQLite cannot.
    """
    names = _invented(held, turn)
    source = changed_copies(held)[KINDS.index("exchanged") + turn * len(KINDS)]

    def change(connection: sqlite3.Connection) -> None:
        connection.create_function("renamed", 1, lambda text: names.get(text, text), deterministic=True)
        for table in catalogue(held).tables:
            for column in table.columns if not table.view else ():
                name = quoted(column.name)
                connection.execute(f"UPDATE OR IGNORE {quoted(table.name)} SET {name} = renamed({name}) WHERE typeof({name}) = 'text'")

    path = _copied(source, folder, f"content {turn}", change)
    return (path, names) if path else None


def about_others(question: str, names: Mapping[str, str], held: Path, first: Iterable[str]) -> str:
    """A question with the names that the database holds replaced by the new ones: the `first`, then the others, the longest first."""
    found = sorted({value for _, value in values(held).named(question)}, key=lambda value: (-len(value), value))
    for value in dict.fromkeys([*first, *found]):
        question = said(question, value, names.get(value, value)) or question
    return question


def with_others(sql: str, names: Mapping[str, str], held: Path) -> str:
    """A query with the names replaced likewise."""
    return revalued_text(sql, names, catalogue(held))


@lru_cache(maxsize=8)
def _invented(held: Path, turn: int) -> Mapping[str, str]:
    """Stored text → invented text, word by word; numbers, dates and codes with digits stay."""
    words: dict[str, str] = {}
    found = {value for stored in values(held).stored.values() for value in stored if not re.search(r"\d", value)}

    def word(match: re.Match[str]) -> str:
        old = match[0]
        if old.casefold() not in words:
            words[old.casefold()] = next(new for new in _sounds(old.casefold(), turn) if new not in words.values())
        new = words[old.casefold()]
        return new.upper() if old.isupper() else new.capitalize() if old[:1].isupper() else new

    return {value: re.sub(r"[^\W\d_]+", word, value) for value in sorted(found)}


def _sounds(word: str, world: int) -> Iterator[str]:
    """Invented words of about the same length, always the same ones for a word in a world."""
    for turn in range(10_000):
        digest = hashlib.sha256(f"{world} {turn} {word}".encode("utf-8", "surrogatepass")).digest()
        size = min(4, max(1, (len(word) + 1) // 2)) + turn // 50
        pairs = zip(digest[::2], digest[1::2], strict=True)
        syllables = [CONSONANTS[a % len(CONSONANTS)] + VOWELS[b % len(VOWELS)] for a, b in pairs]
        yield "".join(syllables[:size])


# ---- a column that nothing uses ----


def touched(held: Path, folder: Path, used: frozenset[str], turn: int) -> tuple[Path, str, str] | None:
    """A copy in which one column outside `used` ("table.column" in small letters) has another name, and the two names.

    Keys and what is referred to are left alone, and names that stand in several tables, since they say how to join. `turn` chooses.
    """
    known = catalogue(held)
    tied = {f"{table}.{column}".casefold() for t in known.tables for own, other, theirs in t.foreign for table, columns in
            ((t.name, own), (other, theirs)) for column in columns}  # fmt: skip
    free = [
        column
        for table in known.tables
        for column in table.columns
        if not (table.view or column.key or column.full.casefold() in used | tied or len(known.holders(column.name)) > 1)
    ]
    if not free:
        return None
    column = free[turn % len(free)]
    new = f"{column.name}_noted"
    path = renamed(held, Renaming(columns={column.full.casefold(): new}), folder)
    return (path, column.full, new) if path else None


def used_columns(sqls: tuple[str, ...], held: Path) -> frozenset[str] | None:
    """The columns that queries may mean, as "table.column" in small letters; None where one has no tree or takes all with a star."""
    known, found = catalogue(held), set[str]()
    for sql in sqls:
        query = parse(sql.strip("; \t\r\n"), known)
        if query is None or any(isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count) for node in query.nodes):
            return None
        found |= {column.full.casefold() for node in query.columns() for column in query.resolve(node) or known.holders(node.name)}
    return frozenset(found)


def _copied(source: Path, folder: Path, what: str, change: Callable[[sqlite3.Connection], None]) -> Path | None:
    """A changed copy of `source` in `folder`, under a name that says what it was made from; made once."""
    mark = hashlib.sha256(f"{source.stem} {what}".encode()).hexdigest()[:16]
    target = folder.resolve() / f"{mark}.sqlite"

    def write(path: Path) -> None:
        path.write_bytes(source.read_bytes())
        with closing(sqlite3.connect(path)) as connection, connection:
            change(connection)

    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            place(target, write)
        except sqlite3.Error:
            return None
    return target
