"""What can be said of a query without judging it, and what a judgement adds: signals, facts, feedback.

In: a query, what it returned, the database; for `judged_signals` also the wanted rows. Out: Signals whose `what` is verbatim evidence
(names, stored values, rows as JSON), facts for conditions, feedback. `execution_signals` and `facts` know nothing of the wanted answer:
they are what an agent on a held-out task sees. Every text is cut to a size, never inside a character.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlglot import exp

from mulligan.nouns import Json
from mulligan.records import Signal, SignalKind
from mulligan.worlds.sql_compare import Comparison
from mulligan.worlds.sql_engine import Failure, Limits, Result, Row, run
from mulligan.worlds.sql_query import Compared, Query, render
from mulligan.worlds.sql_schema import Catalogue, Column, catalogue, literal
from mulligan.worlds.sql_values import Values, near_names, turned, values

ROWS = 3  # rows quoted
CHARS = 200  # characters of one quoted row
NAMES = 12  # names listed
LONGEST = 1000  # characters of one signal
BLOCKING = frozenset(
    {"syntax", "error", "unknown_table", "unknown_column", "unknown_value", "not_a_query", "empty_result", "timeout", "too_large"}
)
ASKS: Mapping[str, str] = {
    "count": r"how many|how much|number of|count",
    "superlative": r"most|least|(?!(?:west|test|rest|request|interest|forest|guest)\b)\w{3,}est|top|maximum|minimum|max|min|first|last",
    "average": r"average|mean|avg",
    "sum": r"total|sum|combined|altogether",
    "where": r"where",
    "negation": r"not|no|without|never|except|excluding|neither|nor|\w+n't|cannot",
    "each": r"each|every|per",
    "comparison": r"more than|less than|fewer than|greater|above|below|over|under|at least|at most|than|between|before|after",
    "unit": r"euros?|dollars?|pounds?|kilomet(?:er|re)s?|km|met(?:er|re)s?|miles?|hours?|minutes?|seconds?|kilograms?|kg|tonnes?",
    "order": r"sort|sorted|order|ordered|alphabetical|alphabetically|ascending|descending|rank|ranked",
    "distinct": r"different|distinct|unique",
}
_ASKED = {facet: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for facet, words in ASKS.items()}
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+|\d+")


def execution_signals(sql: str, query: Query | None, outcome: Result | Failure, held: Path) -> tuple[Signal, ...]:
    """What running the query shows: its error with nearby names, texts that no row holds, an empty result."""
    found: list[Signal] = []
    if isinstance(outcome, Failure):
        found.append(_failure_signal(sql, query, outcome, held))
    if query is not None:
        found += [_signal("unknown_value", what, where) for what, where in _unknown_values(query, values(held))]
    if isinstance(outcome, Result) and is_blank(outcome.rows):
        found.append(_signal("empty_result", "the query returned NULL alone" if outcome.rows else "the query returned no row"))
    return tuple(found)


def _signal(kind: SignalKind, what: str, where: str = "") -> Signal:
    return Signal(kind=kind, what=what[:LONGEST], where=where[:CHARS])


def is_blank(rows: Sequence[Row]) -> bool:
    """No row, or one row of nothing but NULL."""
    return not rows or (len(rows) == 1 and all(cell is None for cell in rows[0]))


def _failure_signal(sql: str, query: Query | None, failure: Failure, held: Path) -> Signal:
    message, schema = failure.message[:CHARS], catalogue(held)
    if failure.code != "error":
        kinds: dict[str, SignalKind] = {"not_a_query": "not_a_query", "timeout": "timeout", "too_large": "too_large"}
        return _signal(kinds.get(failure.code, "error"), message or "the action holds no SQL")
    if found := re.fullmatch(r"no such table: (?:main\.)?(.+)", message):
        names = [table.name for table in schema.tables]
        near = near_names(found[1], names)
        listed = f"nearest: {', '.join(near)}" if near else f"there are: {_listed(names)}"
        return _signal("unknown_table", f"{message}; {listed}", _place(sql, found[1]))
    if found := re.match(r"no such column: \"?([^\"]+)\"?", message):
        name = found[1].split(" - ")[0].strip()
        return _signal("unknown_column", f"no such column: {name}{_hints(name, query, schema)}", _place(sql, name))
    syntax = re.search(r"syntax error|incomplete input|unrecognized token|one statement at a time|null character", message)
    return _signal("syntax", message, _error_place(sql, failure.message, held)) if syntax else _signal("error", message)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")


def _place(sql: str, name: str) -> str:
    at = sql.lower().find(name.lower())
    return f"character {at + 1}" if at >= 0 else ""


def _error_place(sql: str, message: str, held: Path) -> str:
    """Where the parser stopped: the first prefix that ends with the named token and already gives the same message."""
    found = re.match(r'near "(.*)": syntax error', message, re.DOTALL)
    if not found or not found[1]:
        return f"character {len(sql)}" if "incomplete" in message else ""
    for match in list(re.finditer(re.escape(found[1]), sql))[:ROWS]:
        told = run(held, f"EXPLAIN {sql[: match.end()]}", Limits())
        if isinstance(told, Failure) and told.message == message:
            return f"character {match.start() + 1}"
    return ""


def _hints(name: str, query: Query | None, schema: Catalogue) -> str:
    """The columns of the tables in use that are nearest, and where a column of that name really is."""
    table, _, column = name.rpartition(".")
    used = _used(query, table, column)
    owned = [c.name for c in schema.columns(used)] if used else [c.name for c in schema.columns()]
    near = near_names(column, dict.fromkeys(owned))
    parts = [f"nearest: {', '.join(near)}"] if near else []
    parts += [f"{one} has {_listed([c.name for c in schema.columns([one])])}" for one in used[:2]]
    held_by = [c.table for c in schema.holders(column)]
    parts += [f"{column} is a column of {_listed(held_by)}"] if held_by else []
    return "".join(f"; {part}" for part in parts)


def _used(query: Query | None, table: str, column: str) -> list[str]:
    """The tables in which SQLite looks for a column: the one behind an alias, or those of the SELECT that names it."""
    if query is None:
        return []
    for node in query.columns():
        if node.name.lower() == column.lower() and node.table.lower() == table.lower() and not query.resolve(node):
            sources = query.sources(node.find_ancestor(exp.Select))
            return [name for alias, name in sources.items() if name and (not table or alias.lower() == table.lower())]
    return []


def unknown(query: Query, known: Values) -> list[tuple[Compared, list[Column]]]:
    """Comparisons that ask for equality with a text that no row of the compared column holds."""
    found = []
    for compared in query.comparisons():
        if not isinstance(compared.node, exp.EQ | exp.In | exp.Like) or isinstance(compared.node.parent, exp.Not):
            continue
        columns, like = query.resolve(compared.column), isinstance(compared.node, exp.Like)
        bare = compared.node.this is compared.column or compared.node.expression is compared.column  # not LOWER(column)
        if columns and bare and not any(known.holds(column, compared.value, like=like) for column in columns):
            found.append((compared, columns))
    return found


def _unknown_values(query: Query, known: Values) -> list[tuple[str, str]]:
    signals = []
    for compared, columns in unknown(query, known)[:ROWS]:
        near = [value for column in columns for value in known.nearest(column, compared.value)][:2]
        here = {table for table in query.sources(compared.node.find_ancestor(exp.Select)).values() if table}
        holders = sorted((column for column, _ in known.holders(compared.value)), key=lambda column: column.table not in here)
        elsewhere = list(dict.fromkeys(column.full for column in holders))[:2]
        what = f"no row of {columns[0].full} holds {literal(compared.value)}"
        what += f"; nearest there: {', '.join(map(literal, near))}" if near else ""
        what += f"; it is a value of {', '.join(elsewhere)}" if elsewhere else ""
        signals.append((what, render(compared.node)))
    return signals


def judged_signals(wanted: Result, result: Result | None, compared: Comparison | None) -> tuple[Signal, ...]:
    """What the wanted result adds, like a failing assertion: numbers of columns and rows, a few missing and unwanted rows."""
    found: list[Signal] = []
    columns, rows = (len(result.columns), len(result.rows)) if result else (None, None)
    if columns != len(wanted.columns):
        found.append(_signal("column_count", f"{_counted(len(wanted.columns), 'column')} wanted, {columns or 'none'} returned"))
    if rows != len(wanted.rows):
        found.append(_signal("row_count", f"{_counted(len(wanted.rows), 'row')} wanted, {'none' if rows is None else rows} returned"))
    missing, extra = (compared.missing, compared.extra) if compared else (wanted.rows, ())
    if missing:
        found.append(_signal("missing_rows", f"{len(missing)} of {len(wanted.rows)} wanted rows missing: {shown_rows(missing)}"))
    if extra:
        found.append(_signal("extra_rows", f"{len(extra)} of {rows} returned rows unwanted: {shown_rows(extra)}"))
    if compared and not compared.ordered:
        found.append(_signal("order", f"the right rows in another order; wanted first: {shown_rows(wanted.rows)}"))
    return tuple(found)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shown_rows(rows: Sequence[Row], count: int = ROWS) -> str:
    """The first rows as JSON lists, each cut after `CHARS` characters."""
    shown = []
    for row in rows[:count]:
        text = json.dumps([literal(c) if isinstance(c, bytes) else c for c in row], ensure_ascii=False)
        shown.append(text if len(text) <= CHARS else text[: CHARS - 1] + "…")
    return " ".join(shown) + (" …" if len(rows) > count else "")


def read_rows(what: str) -> list[Row]:
    """The rows quoted in a signal; those that were cut are left out."""
    decoder, rows, at = json.JSONDecoder(), [], what.find(": [") + 2
    while at >= 2 and (at := what.find("[", at)) >= 0:
        try:
            row, at = decoder.raw_decode(what, at)
        except ValueError:
            break
        rows.append(tuple(row))
    return rows


def feedback(outcome: Result | Failure, signals: Sequence[Signal], *, solved: bool | None = None) -> str:
    """What the agent reads: what came back, then one line a signal. `solved` is told on tasks that show it."""
    lines = []
    if isinstance(outcome, Result):
        size = f"{_counted(len(outcome.rows), 'row')} × {_counted(len(outcome.columns), 'column')}"
        lines.append(f"The query returned {size}" + (f": {shown_rows(outcome.rows)}" if outcome.rows else "."))
    if solved:
        lines.append("The result is right.")
    lines += [f"{s.kind}: {s.what}" + (f" (at {s.where})" if s.where else "") for s in signals]
    return "\n".join(lines)


def facts(question: str, held: Path) -> dict[str, Json]:
    """What conditions may test of a question and its database. Word lists are English; other languages give no `asks`."""
    schema = catalogue(held)
    words = {_singular(word) for word in re.findall(r"\w+", question.casefold())}
    tables = [table.name for table in schema.tables if _named(table.name, words)]
    columns = [column.full for column in schema.columns() if _named(column.name, words)]
    named = values(held).named(question)
    return {
        "dialect": "sqlite",
        "tables": [table.name for table in schema.tables],
        "columns": [column.full for column in schema.columns()],
        "mentions": tables + columns,
        "values": list(dict.fromkeys(column.full for column, _ in named)),
        "asks": [facet for facet, pattern in _ASKED.items() if pattern.search(question)],
        "numbers": len(re.findall(r"(?<!\w)\d[\d.,]*", question)),
        "gist": _gist(question, named),
    }


def _gist(question: str, named: Sequence[tuple[Column, str]]) -> str:
    """`question` with the values that the database holds replaced by what they are: "population of texas" is "population of state"."""
    labels: dict[str, list[Column]] = {}
    for column, value in named:
        for spelling in dict.fromkeys((value.casefold(), turned(value))):
            labels.setdefault(" ".join(re.findall(r"\w+", spelling)), []).append(column)
    longest_first = sorted(filter(None, labels), key=lambda words: (-len(words), words))
    if not longest_first:
        return question
    phrases = "|".join(words.replace(" ", r"\W+") for words in longest_first)  # words hold nothing that a pattern reads otherwise
    pattern = re.compile(rf"(?<!\w)(?:{phrases})(?!\w)", re.IGNORECASE)
    return pattern.sub(lambda found: _label(labels[" ".join(re.findall(r"\w+", found.group().casefold()))]), question)


def _label(columns: Sequence[Column]) -> str:
    """What a value is: the tables that are named for it (state.state_name, port.name), or else its first column's name."""
    own = []
    for column in columns:
        name, table = set(_PART.findall(column.name.casefold())), set(_PART.findall(column.table.casefold()))
        if name & _NAMING and name <= table | _NAMING:
            own.append(column.table)
    return " or ".join(dict.fromkeys(own[:2])) if own else " ".join(_PART.findall(columns[0].name))


_NAMING = frozenset({"name", "full", "title", "code", "label"})


def _named(name: str, words: set[str]) -> bool:
    parts = [_singular(part.casefold()) for part in _PART.findall(name)]
    return bool(parts) and all(part in words for part in parts)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
