"""Decision points as selectors saw them, rebuilt from a store: what off-policy evaluation reads, and training can.

In: a store. Out: a `Point` for every receipt whose attempt's utility is known, in order, and why others are left out. The task and the
attempts before the decision come from the stored episode that the receipt belongs to; where none is stored, they are unknown and the task
is a stub.

Not promised: facts that only a world computes, and what a record's statistics were at the time: those of now count. Scores are rebuilt
without overlap, then held to the logged order.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mulligan.errors import StoreError
from mulligan.meter import estimate_tokens
from mulligan.nouns import number_of
from mulligan.read import reconstruction
from mulligan.records import Attempt, Candidate, Episode, Receipt, Record, Selection, Situation, Task
from mulligan.store import Store, StoredRecord

Action = tuple[int, ...]  # places of the candidates that are shown, in order of place; () is to show none


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One decision point: what a selector saw there, what was done, and the utility in [0, 1] of the attempt that came of it."""

    situation: Situation
    candidates: tuple[Candidate, ...]
    receipt: Receipt
    utility: float

    @property
    def chosen(self) -> Action:
        """What the selector chose, before anything was withheld."""
        return action_of(self.receipt.selection)

    @property
    def done(self) -> Action:
        """What the agent saw."""
        return tuple(sorted(self.receipt.candidates.index(key) for key in self.receipt.shown))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The points of a store, and how many receipts are left out, by reason."""

    points: tuple[Point, ...]
    left_out: Mapping[str, int]


def action_of(selection: Selection) -> Action:
    """What a selection shows, in order of place."""
    return tuple(sorted(selection.places))


def fold_of(group: str, folds: int) -> int:
    """The fold of a group of tasks, always the same: models are fitted to some folds and asked about the others."""
    return (number_of(group) >> 32) % folds


def tokens_of(record: Record) -> int:
    """What showing a record alone costs under the default settings."""
    return estimate_tokens(reconstruction.render([record], count=estimate_tokens)[0])


def seen(
    receipt: Receipt, stored: Sequence[StoredRecord], task: Task, history: Sequence[Attempt], tokens: Callable[[Record], int] = tokens_of
) -> tuple[Situation, tuple[Candidate, ...]]:
    """What the selector saw: the situation, and the candidates in the order in which they were logged, which was that of their scores."""
    rebuilt = [0.7 * near + 0.1 * one.statistics.ema for near, one in zip(receipt.similarities, stored, strict=True)]
    candidates = tuple(
        Candidate(record=one.record, statistics=one.statistics, similarity=near, overlap=0.0, score=score, tokens=tokens(one.record))
        for near, one, score in zip(receipt.similarities, stored, accumulate(rebuilt, min), strict=True)
    )
    return Situation(task=task, facts=task.facts, history=tuple(history), need=receipt.need), candidates


def rebuild(store: Store, scope: str | None = None) -> Rebuilt:
    """The decision points of exactly that scope, or of all. Reads the whole log; writes nothing."""
    results = [result for result in store.results() if scope in (None, result.receipt.scope)]
    told, known = _told(store, {result.receipt.id for result in results}), Known(store)
    points: list[Point] = []
    left_out: Counter[str] = Counter()
    for result in results:
        receipt = result.receipt
        stored = known.records(receipt.candidates)
        if stored is None:
            left_out["a candidate is no longer stored"] += 1
        elif not _is_whole(receipt):
            left_out["the receipt does not say what was seen"] += 1
        else:
            task, history = told.get(receipt.id) or (_stub(receipt, stored), ())
            situation, candidates = seen(receipt, stored, task, history, known.tokens)
            points.append(Point(situation=situation, candidates=candidates, receipt=receipt, utility=result.utility))
    return Rebuilt(points=tuple(points), left_out=dict(left_out))


class Known:
    """Records by id, read once; a deleted one is remembered as missing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, StoredRecord | None] = {}
        self._tokens: dict[str, int] = {}

    def tokens(self, record: Record) -> int:
        """What showing a record costs, counted once a record."""
        if record.id not in self._tokens:
            self._tokens[record.id] = tokens_of(record)
        return self._tokens[record.id]

    def records(self, keys: Sequence[str]) -> list[StoredRecord] | None:
        """The records of those ids, or None if one is missing."""
        for key in keys:
            if key not in self._read:
                try:
                    self._read[key] = self._store.record(key)
                except StoreError:
                    self._read[key] = None
        found = [self._read[key] for key in keys]
        whole = [stored for stored in found if stored is not None]
        return whole if len(whole) == len(found) else None


def _told(store: Store, wanted: set[str]) -> dict[str, tuple[Task, tuple[Attempt, ...]]]:
    """For each of those receipts that belongs to a stored episode, its task and the attempts before it."""
    return {
        receipt.id: (episode.task, tuple(a for a in episode.attempts if a.index < receipt.attempt))
        for episode, receipt in _receipts(store.episodes())
        if receipt.id in wanted
    }


def _receipts(episodes: list[Episode]) -> Iterator[tuple[Episode, Receipt]]:
    for episode in episodes:
        for receipt in episode.receipts:
            yield episode, receipt


def _is_whole(receipt: Receipt) -> bool:
    """Whether what it says fits together: receipts of older versions lack similarities, those of strangers may say anything."""
    places = range(len(receipt.candidates))
    fits = len(receipt.similarities) == len(places) and all(place in places for place in action_of(receipt.selection))
    return fits and set(receipt.candidates) >= {*receipt.shown, *receipt.withheld}


def _stub(receipt: Receipt, stored: list[StoredRecord]) -> Task:
    """What is known of a task of which no episode is stored; it is a group of its own."""
    domain = stored[0].record.domain if stored else ""
    return Task(
        id=receipt.task, domain=domain, benchmark="", group=receipt.task, split="source", prompt="", payload={}, scope=receipt.scope
    )
