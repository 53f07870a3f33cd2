"""What a lesson in words names that a database does not have, and SQL in it that does not parse.

In: a situation, a text, a held copy. Out: misfits. Quoted queries are parsed, and their names and values looked up as SQLite would; quoted
pieces of SQL, names and values are looked up word by word. A name that the task shows is known, and so is a value that some row
holds. Not promised: that a table is found which prose names in plain words, unless it says "table" or "column" beside.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path

from sqlglot import exp

from mulligan.naming import TOLD, fold, misfit, names, numbers, parts, stands_in, too_long, vocabulary
from mulligan.records import Misfit, Situation
from mulligan.worlds.sql_evidence import unknown
from mulligan.worlds.sql_query import SQLITE, Query, clean, parse
from mulligan.worlds.sql_schema import catalogue, connect
from mulligan.worlds.sql_values import values

MOST = 12  # literals that are looked up in the database
MORE_WORDS = vocabulary("cast nocase binary rtrim rowid")  # that SQLite has, and sqlglot's list of keywords does not
STATEMENT = re.compile(
    r"\(*\s*(?:(?:SELECT|WITH|VALUES)\b|(?:ALTER|ATTACH|CREATE|DELETE|DROP|INSERT|PRAGMA|REPLACE|UPDATE|VACUUM)\s+\w)", re.IGNORECASE
)
BARE = re.compile(r"\b(?:SELECT\b[^\n]*?\bFROM|WITH\s+\w+\s+AS)\b[^\n]*")  # a query in prose, in capitals
_TEXT = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"")
_ALIAS = re.compile(r"\bAS\s+([^\W\d]\w*)", re.IGNORECASE)
_PAIR = re.compile(r"(?<![\w.])([^\W\d]\w*)\.([^\W\d]\w*)")
_WORD = re.compile(r"(?<![\w.])[^\W\d]\w+(?!\w*\.)")
_CALLED = re.compile(r"([^\W\d]\w*)\s*\(")
_BESIDE = re.compile(r"\bthe\s+(\w+)\s+(?:table|column)\b|\b(?:table|column)\s+(?:named|called)\s+(\w+)", re.IGNORECASE)
_ANY = vocabulary(  # what may stand before "table" or "column" and is no name
    "right wrong correct other same another given first second last next main joined joining join relevant appropriate "
    "corresponding present current new old whole single only matching needed required specified following numeric text date key "
    "primary foreign target source lookup linking outer inner derived temporary original referenced related base result output "
    "proper actual"
)


def misfits(situation: Situation, text: str, held: Path) -> Sequence[Misfit]:
    """All that `text` names and quotes that does not fit the database in `held`."""
    if long := too_long(text):
        return long
    shown = replace(situation, history=()).sight  # answers say again what a wrong query named
    known, found = _Known(held, shown), parts(text)
    bare, rest = BARE.findall(found.spoken), parts(BARE.sub(" … ", found.spoken))
    code = [*(c.text for c in found.code), *(query.rstrip(" .:,;") for query in bare), *rest.said]
    all_of = [misfit for quotation in code for misfit in _quotation(quotation, known)]
    all_of += [misfit(name) for name in names(rest.prose) if not known.names(name)]
    beside = (one or other for one, other in _BESIDE.findall(rest.prose))
    all_of += [misfit(name) for name in beside if name.lower() not in _ANY and not known.speaks_of(name)]
    return list(dict.fromkeys(all_of))


class _Known:
    """What a database and what the agent has been shown have."""

    def __init__(self, held: Path, sight: str) -> None:
        self.catalogue, self.values = catalogue(held), values(held)
        self.words = _language(held) | {name.lower() for t in self.catalogue.tables for name in (t.name, *(c.name for c in t.columns))}
        self._sight, self._looked = fold(sight), 0

    def names(self, name: str) -> bool:
        """Whether it is a word of SQL, a table, a column, `table.column`, or has been shown."""
        table, dot, column = name.rpartition(".")
        if dot and self.catalogue.table(table):
            return self.catalogue.column(table, column) is not None
        return name.lower() in self.words or stands_in(name, self._sight)

    def speaks_of(self, word: str) -> bool:
        """Whether prose may call a table or column so: by its name, in singular or plural, or by a part of it."""
        word = word.lower()
        return any(self.names(one) or one in self._parts for one in (word, word.removesuffix("s"), f"{word}s"))

    @cached_property
    def _parts(self) -> frozenset[str]:
        return frozenset(part for word in self.words for part in word.split("_"))

    def holds(self, value: str) -> bool:
        """Whether some row holds it, whatever its case, or it has been shown. Only the first `MOST` that are in no index are looked up."""
        if stands_in(value, self._sight) or self.values.holders(value):
            return True
        self._looked += 1
        return self._looked <= MOST and any(self.values.holds(column, value) for column in self.catalogue.columns())


@lru_cache(maxsize=8)
def _language(held: Path) -> frozenset[str]:
    """The keywords and functions of SQLite."""
    with closing(connect(held)) as connection:
        functions = {name.lower() for (name,) in connection.execute("SELECT DISTINCT name FROM pragma_function_list")}
    keywords = {word for key in SQLITE.tokenizer_class.KEYWORDS for word in key.lower().split() if word.isidentifier()}
    return frozenset(functions | keywords | MORE_WORDS)


def _quotation(code: str, known: _Known) -> Iterator[Misfit]:
    sql = clean(code)
    if not STATEMENT.match(sql):
        return _piece(sql, known)
    query = parse(sql, known.catalogue)
    return iter([Misfit(kind="unparseable", what=sql[:TOLD])]) if query is None else _query(query, known)


def _query(query: Query, known: _Known) -> Iterator[Misfit]:
    """Names and values of a query that are not there. Names of its own (aliases, common table expressions) are."""
    inner = {node.alias.lower() for node in query.nodes if isinstance(node, exp.CTE | exp.Subquery)}
    own = inner | {node.alias.lower() for node in query.nodes if isinstance(node, exp.Alias)}
    tables = {node.name.lower() for node in query.nodes if isinstance(node, exp.Table)} - own
    absent = [name for name in tables if not known.catalogue.table(name)]
    functions = [name for name in _CALLED.findall(_TEXT.sub(" ", query.text)) if name.lower() not in known.words | own]
    yield from map(misfit, (*sorted(absent), *functions))
    for node in query.nodes:
        if isinstance(node, exp.Literal) and not node.is_string:
            yield from (misfit(number) for number in numbers(node.name) if not known.holds(number))
    for column in query.columns():
        elsewhere = known.catalogue.holders(column.name) and (absent or (inner and (not column.table or column.table.lower() in inner)))
        if not query.resolve(column) and column.name.lower() not in own and not elsewhere:
            yield misfit(f"{column.table}.{column.name}" if column.table else column.name)
    yield from (misfit(compared.value) for compared, _ in unknown(query, known.values))


def _piece(text: str, known: _Known) -> Iterator[Misfit]:
    """What of a name, a value or a piece of SQL is not there."""
    if known.names(text) or known.holds(text):
        return
    for one, other in _TEXT.findall(text):
        value = one or other
        if any(map(str.isalnum, value)) and not known.holds(value) and not (other and known.names(other)):
            yield misfit(value)
    bare = _TEXT.sub(" ", text)
    own = {alias.lower() for alias in _ALIAS.findall(bare)}
    for table, column in _PAIR.findall(bare):
        there = known.names(f"{table}.{column}") if known.catalogue.table(table) or len(table) > 2 else known.catalogue.holders(column)
        if not there:
            yield misfit(f"{table}.{column}")
    yield from (misfit(word) for word in _WORD.findall(bare) if word.lower() not in own and not known.names(word) and not known.holds(word))
    yield from (misfit(number) for number in numbers(bare) if not known.holds(number))
