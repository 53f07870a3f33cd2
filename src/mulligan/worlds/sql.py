"""The SQL world: a question answered by one query, judged by what it returns, also on changed copies of the database.

In: tasks with payload {"database": path, "gold": SQL, optional "distinct", "columns_any_order"}. Out: verdicts with utility as in
SPEC A3.1: 1 when the result equals the gold query's on all test databases, else half the F1 of rows on the source, 0 on an error. Queries
run in a worker process on read-only copies, within limits. On held-out tasks feedback, signals and `done` come from execution alone.
A gold query that fails or takes too long makes the verdict incomplete: the task is broken, nothing is learned from it.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlglot import exp

from mulligan.errors import UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Misfit, Proposal, Signal, Situation, Task, Verdict
from mulligan.worlds import sql_copies, sql_evidence
from mulligan.worlds.sql_compare import Comparison, compare, tie_groups
from mulligan.worlds.sql_engine import Cell, Failure, Limits, Result, Row, content_hash, hold, run, run_each, sqlite_version
from mulligan.worlds.sql_evidence import BLOCKING, execution_signals, feedback, is_blank, judged_signals
from mulligan.worlds.sql_query import Query, clean, parse, tokens
from mulligan.worlds.sql_schema import catalogue
from mulligan.worlds.sql_values import values

MANUAL = "An action is one SQLite SELECT query that answers the question. Reply with the query alone, in a ```sql block."
RULES = "1"  # changes whenever a verdict could change for reasons that are not in the limits or the libraries


@dataclass(frozen=True)
class SqlSnapshot:
    """A saved state: queries change nothing, so the task and the content of its database are all of it."""

    task: Task
    held: Path
    digest: str


@dataclass(frozen=True)
class SqlState:
    """A task with the held copy of its database."""

    task: Task
    held: Path

    @property
    def digest(self) -> str:
        payload = {key: value for key, value in self.task.payload.items() if key != "database"}
        return content_id("sql", [self.task.id, self.task.split, self.task.prompt, payload, content_hash(self.held)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to release: copies belong to the process, workers to the query that runs."""


@dataclass(frozen=True)
class _Judgement:
    """What the gold query says of a result."""

    completed: bool
    utility: Fraction = Fraction(0)
    signals: tuple[Signal, ...] = ()
    broken: str = ""  # why the task cannot be judged


class _Broken(Exception):
    """The gold query does not run on this database."""


@dataclass(frozen=True)
class SqlWorld:
    """Settings only, so that it can be sent to other processes."""

    limits: Limits = field(default_factory=Limits)
    name: str = "sql"
    manual: str = MANUAL

    @cached_property
    def version(self) -> str:
        parts = [RULES, sql_copies.RULES, repr(self.limits), sqlite_version, version("sqlglot")]
        return f"{RULES}-{content_id('v', parts)[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **sql_evidence.facts(task.prompt, hold(_database(task)))}

    def start(self, task: Task) -> SqlState:
        """Raises UsageError when the payload names no readable SQLite database or no gold query."""
        if not isinstance(task.payload.get("gold"), str):
            raise UsageError(f"task {task.id} has no gold query; put SQL under payload['gold']")
        return SqlState(task, hold(_database(task)))

    def observe(self, state: SqlState) -> str:
        """Nothing: queries change nothing, and the surroundings are in the task's context."""
        return ""

    def save(self, state: SqlState) -> SqlSnapshot:
        return SqlSnapshot(state.task, state.held, state.digest)

    def restore(self, snapshot: SqlSnapshot) -> SqlState:
        state = SqlState(snapshot.task, snapshot.held if snapshot.held.exists() else hold(_database(snapshot.task)))
        if state.digest != snapshot.digest:
            raise UsageError(f"the database of task {snapshot.task.id} changed since its state was saved; start the task again")
        return state

    def tokens(self, action: str) -> Sequence[str]:
        return tokens(clean(action))

    def act(self, state: SqlState, action: str) -> Verdict:
        began = time.perf_counter()
        sql = clean(action)
        query = parse(sql, catalogue(state.held))
        outcome = _settled(self._execute(state.held, sql), query)
        seen = execution_signals(sql, query, outcome, state.held)
        judged = self._judge(state, outcome, query, seen)
        signals, solved = seen + judged.signals, judged.completed and judged.utility == 1
        if state.task.split == "heldout":
            signals, told = seen, feedback(outcome, seen)
            done = not any(signal.kind in BLOCKING for signal in seen)
        else:
            told = judged.broken or feedback(outcome, signals, solved=solved)
            done = solved
        return Verdict(
            completed=judged.completed,
            utility=judged.utility,
            solved=solved,
            feedback=told,
            signals=signals,
            done=done,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def edits(self, state: SqlState, action: str, verdict: Verdict) -> Iterable[Proposal]:
        from mulligan.worlds.sql_edits import proposals  # the operators are needed only after a failure

        return proposals(clean(action), verdict.signals, self.facts(state.task), state.task.prompt, state.held, self.limits)

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        from mulligan.worlds.sql_naming import misfits  # lessons in words are not everybody's

        return misfits(situation, text, hold(_database(situation.task)))

    def _execute(self, held: Path, sql: str) -> Result | Failure:
        if not sql:
            return Failure(code="not_a_query", message="the action holds no SQL")
        if len(sql) > self.limits.action_cap:
            return Failure(code="error", message=f"the query has {len(sql)} characters; at most {self.limits.action_cap} are read")
        if sql[:7].upper() == "EXPLAIN":
            return Failure(code="not_a_query", message="EXPLAIN shows a plan, not an answer")
        return run(held, sql, self.limits)

    def _judge(self, state: SqlState, outcome: Result | Failure, query: Query | None, seen: tuple[Signal, ...]) -> _Judgement:
        gold, options = state.task.payload["gold"], self._options(state.task)
        try:
            wanted, groups = _gold(state.held, gold, self.limits)
        except _Broken as broken:
            return _Judgement(completed=False, broken=f"the task is broken, not the answer: its gold query fails here ({broken})")
        if isinstance(outcome, Failure):
            signals = judged_signals(wanted, None, None) if outcome.completed else ()
            return _Judgement(completed=outcome.completed, signals=signals)
        compared = _compared(wanted, groups, outcome, options)
        if not compared.equal:
            return _Judgement(completed=True, utility=compared.f1 / 2, signals=judged_signals(wanted, outcome, compared))
        if luck := _plain_luck(outcome, wanted, query, gold, state.held):
            return _coincidence(luck)
        return self._on_copies(state, outcome, wanted, seen)

    def _on_copies(self, state: SqlState, outcome: Result, wanted: Result, seen: tuple[Signal, ...]) -> _Judgement:
        """The judgement of a result that is right on the source: is it right elsewhere, and for a reason?"""
        gold, options = state.task.payload["gold"], self._options(state.task)
        blank, luck = is_blank(wanted.rows), ""
        wants = []
        for copy, kind in zip(sql_copies.changed_copies(state.held), cycle(sql_copies.KINDS)):
            with suppress(_Broken):
                wants.append((copy, kind, *_gold(copy, gold, self.limits)))
        results = run_each([copy for copy, *_ in wants], outcome.sql, self.limits) if wants else []
        for (_, kind, there, groups), result in zip(wants, results, strict=False):
            if isinstance(result, Failure) and not result.completed:
                what = f"on the copy with {kind} rows: {result.message}"
                return _Judgement(
                    completed=False, signals=(Signal(kind="too_large" if result.code == "too_large" else "timeout", what=what),)
                )
            if isinstance(result, Failure) or not _same(there, groups, result, options):
                luck = f"it is wrong on a changed copy of the database ({kind} rows)"
            blank = blank and is_blank(there.rows)
            if luck:
                break
        if blank and any(signal.kind == "unknown_value" for signal in seen) and not _has_unknown(gold, state.held):
            luck = "nothing is wanted here, and it returns nothing because of a value that no row holds"
        return _coincidence(luck) if luck else _Judgement(completed=True, utility=Fraction(1))

    @staticmethod
    def _options(task: Task) -> dict[str, bool]:
        return {name: bool(task.payload.get(name, False)) for name in ("distinct", "columns_any_order")}


def _database(task: Task) -> str:
    path = task.payload.get("database")
    if not isinstance(path, str):
        raise UsageError(f"task {task.id} names no database; put the path of a SQLite file under payload['database']")
    return path


def _coincidence(luck: str) -> _Judgement:
    told = Signal(kind="coincidence", what=f"the result is right on this database by coincidence: {luck}")
    return _Judgement(completed=True, utility=Fraction(1, 2), signals=(told,))


@lru_cache(maxsize=512)
def _gold(held: Path, gold: str, limits: Limits) -> tuple[Result, tuple[int, ...] | None]:
    """The wanted result and its groups of ties. Raises _Broken, which is not remembered."""
    result = _settled(run(held, gold, limits), parse(clean(gold), catalogue(held)))
    if isinstance(result, Failure):
        raise _Broken(result.message)

    def rows(sql: str) -> Sequence[Row] | None:
        longer = run(held, sql, limits)
        return longer.rows if isinstance(longer, Result) else None

    return result, tie_groups(gold, result.rows, rows)


def _settled(outcome: Result | Failure, query: Query | None) -> Result | Failure:
    """Rows in a fixed order where the query asks for none: the database's own order is another one in each of its versions."""
    if isinstance(outcome, Failure) or query is None or query.tree.args.get("order") is not None:
        return outcome
    return replace(outcome, rows=tuple(sorted(outcome.rows, key=lambda row: [_rank(cell) for cell in row])))


def _rank(cell: Cell) -> tuple[int, Cell]:
    """Sort key of a cell: NULL, numbers, text, bytes."""
    kind = 0 if cell is None else 1 if isinstance(cell, int | float) else 2 if isinstance(cell, str) else 3
    return kind, 0 if cell is None else cell


def _compared(wanted: Result, groups: tuple[int, ...] | None, got: Result, options: Mapping[str, bool]) -> Comparison:
    return compare(wanted.rows, got.rows, widths=(len(wanted.columns), len(got.columns)), groups=groups, **options)


def _same(wanted: Result, groups: tuple[int, ...] | None, got: Result, options: Mapping[str, bool]) -> bool:
    """Whether a copy shows no difference. An aggregate over nothing gives one row of NULLs: there that is as good as no row."""
    nothing = is_blank(wanted.rows) and is_blank(got.rows) and len(wanted.columns) == len(got.columns)
    return nothing or _compared(wanted, groups, got, options).equal


def _plain_luck(outcome: Result, wanted: Result, query: Query | None, gold: str, held: Path) -> str:
    """Why a right result says nothing of the query, where its text alone shows that; "" if it does not."""
    if wanted.tables and not outcome.tables:
        return "it reads no table"
    if query is None:
        return ""
    shown = [node for item in query.tree.selects for node in item.find_all(exp.Column, exp.Star, exp.Subquery, exp.AggFunc)]
    if wanted.tables and all(query.is_text(node) for node in shown):
        return "it returns a constant"
    limit = query.tree.args.get("limit")
    if limit and limit.expression.name == str(len(outcome.rows)) != "1":
        asked = parse(clean(gold), catalogue(held))
        if asked is not None and not asked.tree.find(exp.Limit):
            return f"its LIMIT {limit.expression.name} is the number of rows that are wanted here"
    return ""


def _has_unknown(gold: str, held: Path) -> bool:
    query = parse(clean(gold), catalogue(held))
    return query is not None and bool(sql_evidence.unknown(query, values(held)))
