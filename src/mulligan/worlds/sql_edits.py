"""Operator proposals for a failed query, best first: small changes of its text that agree with the evidence.

In: the failed query, the signals of its verdict, the question, the database. Out: Proposals, each one small change of the text (two where
no single one agrees with the signals) with its reason and the condition it rests on. The drafts of the operators are run on the database,
as anybody could, and ordered by how far what they return agrees with the signals (numbers of columns and rows, the missing and unwanted
rows quoted there), then by their prior. Of drafts that return the same here and on the changed copies only the first stays: checking
another would show nothing new. The gold query is not known here. Not promised: the same order on a machine so slow that drafts run out of
their time.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import sqlglot
from sqlglot.errors import ErrorLevel, SqlglotError

from mulligan.nouns import Json
from mulligan.records import Condition, Proposal, Signal
from mulligan.worlds.sql_clauses import CLAUSES
from mulligan.worlds.sql_copies import changed_copies
from mulligan.worlds.sql_engine import Failure, Limits, Result, Row, run
from mulligan.worlds.sql_evidence import is_blank, read_rows
from mulligan.worlds.sql_operators import OPERATORS, Case, Clause, Draft
from mulligan.worlds.sql_query import Query, Splicer, parse
from mulligan.worlds.sql_schema import catalogue
from mulligan.worlds.sql_values import values

LARGEST = 1_000  # nodes of a query that is changed
EACH = 150  # drafts of one operator
FIRST = 400  # drafts that are run
SEEDS = 8  # drafts that are changed once more
SECOND = 80  # second changes of one of them
WEIGHTS = (2.0, 2.0, 3.0, 2.0, 3.0)  # columns, rows, missing rows, unwanted rows, the same rows
SECONDS = 0.25  # for one draft
SLOW = 6  # drafts that may run out of their time before the rest is left
OFFERED = 24
CUTS = 8  # shorter texts tried of one that does not parse
DIALECTS = ("mysql", "postgres", "tsql")
SAID = 3  # clauses of a condition
TEXT = 240
WORDS = {
    "values": "names a value of",
    "mentions": "speaks of",
    "asks": "asks for",
    "columns": "is about a database with",
    "dialect": "is in",
}

Made = tuple[Draft, str]  # a draft and the text that it makes


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the signals say of the wanted result. None or nothing: that is not known, so it is not compared."""

    columns: int | None
    rows: int | None
    missing: tuple[Row, ...]
    extra: tuple[Row, ...]
    before: Counter[Row]  # the rows of the failed query
    kept: bool  # they are the right ones: the order is wrong, or another database
    ordered: bool

    @property
    def best(self) -> float:
        """The agreement of a result that agrees with everything; 0 where nothing is known."""
        known = (self.columns is not None, self.rows is not None, bool(self.missing), bool(self.extra), self.kept)
        return sum(weight for weight, told in zip(WEIGHTS, known, strict=True) if told)

    def agreement(self, result: Result) -> float:
        """How many of the things that are known this result shows. Where none is, an empty result counts against it."""
        rows, before = Counter(result.rows), self.before
        here = sum(rows[row] > before[row] or 0 < rows[row] == before[row] for row in self.missing)
        gone = sum(rows[row] < before[row] for row in self.extra)
        shares = (
            len(result.columns) == self.columns,
            len(result.rows) == self.rows,
            here / len(self.missing) if self.missing else 0,
            gone / len(self.extra) if self.extra else 0,
            self.kept and rows == before,
        )
        return sum(weight * share for weight, share in zip(WEIGHTS, shares, strict=True)) - (self.rows is None and is_blank(result.rows))


@dataclass(frozen=True, slots=True)
class Screened:
    """A draft that runs, and how far what it returns agrees."""

    draft: Draft
    action: str
    agreement: float


def proposals(
    sql: str, signals: Sequence[Signal], facts: Mapping[str, Json], question: str, held: Path, limits: Limits
) -> Iterator[Proposal]:
    """Proposals for `sql`, best first. Empty when nothing of it can be parsed."""
    search = _Search(question, facts, held, replace(limits, time_limit_s=min(SECONDS, limits.time_limit_s)))
    for one in search.best(sql, signals):
        draft = one.draft
        yield Proposal(
            action=one.action, edit=draft.edit, why=draft.why, condition=condition(draft.about, facts), proposer=f"op:{draft.operator}"
        )


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for proposals on one question."""

    question: str
    facts: Mapping[str, Json]
    held: Path
    limits: Limits

    def best(self, sql: str, signals: Sequence[Signal]) -> Iterator[Screened]:
        text, repairs = _readable(sql, self.held)
        before = run(self.held, sql, self.limits)
        evidence = _evidence(signals, before)
        good, failed = self.screen([*((draft, text) for draft in repairs), *self.drafts(text, FIRST)], evidence)
        if evidence.best > max((one.agreement for one in good), default=0.0):
            good += self.second_changes(good, failed, evidence)
        if isinstance(before, Result) and evidence.best and not evidence.kept:
            floor = evidence.agreement(before)  # what agrees no better than the failure is not worth a check
            good = [one for one in good if one.agreement > floor]
        good.sort(key=lambda one: (-one.agreement, -one.draft.prior))
        return islice(self.different(good, before, evidence.ordered), OFFERED)

    def drafts(self, text: str, limit: int) -> list[Made]:
        """The likeliest drafts for a text with the texts that they make, each text once."""
        query = parse(text, catalogue(self.held))
        if query is None or len(query.nodes) > LARGEST:
            return []
        asks, mentions = (frozenset(self.facts.get(name, ())) for name in ("asks", "mentions"))
        case = Case(query, self.question, values(self.held), asks, mentions)
        drafts = [draft for operator in (*OPERATORS, *CLAUSES) for draft in islice(operator(case), EACH)]
        splice = Splicer(text, query.tree)
        made: dict[str, Draft] = {}
        for draft in sorted(drafts, key=lambda draft: -draft.prior)[:limit]:
            made.setdefault(splice(draft.change()), draft)
        return [(draft, action) for action, draft in made.items() if action != text]

    def screen(self, drafts: Iterable[Made], evidence: Evidence) -> tuple[list[Screened], list[Made]]:
        """Run the drafts; those that fail come second. Where several are too slow, so will the rest be."""
        good: list[Screened] = []
        failed: list[Made] = []
        slow = 0
        for draft, action in drafts:
            result = run(self.held, action, self.limits)
            if isinstance(result, Result):
                good.append(Screened(draft, action, evidence.agreement(result)))
                continue
            failed.append((draft, action))
            slow += not result.completed
            if slow == SLOW:
                break
        return good, failed

    def second_changes(self, good: Sequence[Screened], failed: Sequence[Made], evidence: Evidence) -> list[Screened]:
        """Pairs of changes that agree with all that is known, where no single change does."""
        likely = sorted(good, key=lambda one: -one.agreement - one.draft.prior)[:SEEDS]
        found: list[Screened] = []
        for first, text in [*failed[: SEEDS // 2], *((one.draft, one.action) for one in likely)]:
            pairs = [(_both(first, second), action) for second, action in self.drafts(text, SECOND)]
            found += [one for one in self.screen(pairs, evidence)[0] if one.agreement >= evidence.best]
        return found

    def different(self, good: Iterable[Screened], before: Result | Failure, ordered: bool) -> Iterator[Screened]:
        """The first of all that return the same on the source and on every changed copy; none that does what the failed query does."""
        databases = [self.held, *changed_copies(self.held)]

        def effect(sql: str) -> bytes:
            results = [run(database, sql, self.limits) for database in databases]
            rows = [list(map(repr, r.rows)) if isinstance(r, Result) else [r.code] for r in results]
            shown = rows if ordered else [sorted(one) for one in rows]
            return hashlib.sha256(repr(shown).encode("utf-8", "replace")).digest()

        seen = {effect(before.sql)} if isinstance(before, Result) else set()
        for one in good:
            made = effect(one.action)
            if made not in seen:
                seen.add(made)
                yield one


def _both(first: Draft, second: Draft) -> Draft:
    """Two changes as one, the first of each one's conditions in front."""
    about = (*first.about[:1], *second.about[:1], *first.about[1:], *second.about[1:])
    why = "; ".join(filter(None, (first.why, second.why)))
    name, edit = f"{first.operator}+{second.operator}", f"{first.edit}; {second.edit}"
    return Draft(name, edit, second.change, first.prior * second.prior, why, about)


def _readable(sql: str, held: Path) -> tuple[str, list[Draft]]:
    """The query itself if it parses, else the nearest text that does, with the draft that says so."""
    known = catalogue(held)
    if parse(sql, known):
        return sql, []
    lines = sql.splitlines()
    shorter = ["\n".join(lines[:end]).strip().rstrip(";") for end in range(len(lines) - 1, 0, -1)]
    for text in [sql.split(";")[0].strip(), *shorter[:CUTS]]:
        if text != sql and (query := parse(text, known)):
            return text, [_repair(query, "keep the first statement, drop what follows it")]
    for dialect in DIALECTS if sql[:6].upper().startswith(("SELECT", "WITH")) else ():
        try:
            text = sqlglot.transpile(sql, read=dialect, write="sqlite", unsupported_level=ErrorLevel.IGNORE)[0]
        except (SqlglotError, RecursionError, ValueError, IndexError):
            continue
        if query := parse(text, known):
            return text, [_repair(query, f"{dialect} → SQLite")]
    return sql, []


def _repair(query: Query, edit: str) -> Draft:
    return Draft("syntax", edit, lambda: query.tree, 1.0, "it does not parse", (("dialect", "sqlite"),))


def _evidence(signals: Sequence[Signal], before: Result | Failure) -> Evidence:
    told = {str(signal.kind): signal.what for signal in signals}
    judged = told.keys() & {"column_count", "row_count", "missing_rows", "extra_rows", "order", "coincidence"}
    columns, rows = (len(before.columns), before.rows) if isinstance(before, Result) else (None, ())

    def count(kind: str, otherwise: int | None) -> int | None:
        found = re.match(r"\d+", told.get(kind, ""))
        return int(found[0]) if found else otherwise if judged else None

    return Evidence(
        columns=count("column_count", columns),
        rows=count("row_count", None if columns is None else len(rows)),
        missing=tuple(read_rows(told.get("missing_rows", ""))),
        extra=tuple(read_rows(told.get("extra_rows", ""))),
        before=Counter(rows),
        kept=bool(told.keys() & {"order", "coincidence"}),
        ordered="order" in told,
    )


def condition(about: Iterable[Clause], facts: Mapping[str, Json]) -> Condition:
    """The first clauses that are true of the present facts, as a predicate; none where nothing can be said."""
    true = [(fact, value) for fact, value in about if value in _listed(facts.get(fact))]
    chosen = list(dict.fromkeys([clause for clause in true if clause[0] != "columns"] or true))[:SAID]
    if not chosen:
        return Condition()
    text = "the question " + " and ".join(f"{WORDS[fact]} {value}" for fact, value in chosen)
    parts = [f"{json.dumps(value, ensure_ascii=False)} in {fact}" for fact, value in chosen]
    return Condition(kind="predicate", text=text[:TEXT], predicate=" and ".join(parts))


def _listed(fact: Json) -> list[str]:
    return fact if isinstance(fact, list) else [] if fact is None else [fact]
