"""Retrieve: from a situation to at most three records that apply, best first, or to none.

Hard filters come first: scope, domain, another task and group than the record's own, condition. Then score = 0.7 similarity +
0.2 overlap + 0.1 ema (SPEC A3.5). Similarity is the calibrated cosine of the situations; after a failure the mean of that and
of how alike the failed action and the record's failed action are. Overlap is the share of traits (and, after a failure, of
kinds of evidence) that the record's source has in common with the situation. What scores below `min_score` is not returned: an
empty recall is an answer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice, takewhile

from mulligan.conditions import holds
from mulligan.prompts import prompt
from mulligan.protocols import Model
from mulligan.records import Candidate, Completion, Condition, Message, Record, Situation, Statistics

LIMIT = 3
MIN_SCORE = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A search hit with all that scoring needs. `similarity` is calibrated to [0, 1]."""

    record: Record
    statistics: Statistics
    similarity: float


def candidates(
    situation: Situation,
    found: Iterable[Found],
    *,
    traits: Sequence[str],
    applies: Callable[[Record], bool],
    alike: Callable[[str, str], float],
    bound: Callable[[str, str], float] = lambda one, other: 1.0,
    limit: int = LIMIT,
    min_score: float = MIN_SCORE,
) -> list[Candidate]:
    """The best `limit` of `found` that score at least `min_score` and whose condition `applies`, best first.

    `alike` compares two actions, in [0, 1]; `bound` says cheaply how alike they are at most. Conditions are asked in the order of the
    scores and only until `limit` records have passed, since a judged one costs a model call.
    """
    good = takewhile(lambda c: c.score >= min_score, _best_first(situation, found, frozenset(traits), alike, bound))
    return list(islice((candidate for candidate in good if applies(candidate.record)), limit))


def _best_first(
    situation: Situation,
    found: Iterable[Found],
    traits: frozenset[str],
    alike: Callable[[str, str], float],
    bound: Callable[[str, str], float],
) -> Iterator[Candidate]:
    """All of `found`, best first, ties by id. Comparing actions is slow, so it is done only for what could still come next."""
    failed = situation.failed.action if situation.failed else None
    hopes = []
    for one in found:
        most = 1.0 if failed is None else bound(failed, one.record.original)
        hopes.append((_candidate(situation, one, traits, most), one))
    hopes.sort(key=lambda hope: -hope[0].score)
    ready: list[tuple[float, str, Candidate]] = []
    for hope, one in hopes:
        while ready and ready[0][0] < -hope.score:
            yield heappop(ready)[2]
        exact = hope if failed is None else _candidate(situation, one, traits, alike(failed, one.record.original))
        heappush(ready, (-exact.score, exact.record.id, exact))
    while ready:
        yield heappop(ready)[2]


def _candidate(situation: Situation, found: Found, traits: frozenset[str], likeness: float) -> Candidate:
    """The candidate if, after a failure, the failed action is so like the record's own."""
    overlap = _overlap(situation, found.record, traits)
    alone = situation.failed is None or found.record.kind != "correction"  # a note corrects no action
    similarity = found.similarity if alone else (found.similarity + likeness) / 2
    return Candidate(
        record=found.record,
        statistics=found.statistics,
        similarity=similarity,
        overlap=overlap,
        score=0.7 * similarity + 0.2 * overlap + 0.1 * found.statistics.ema,
    )


def _overlap(situation: Situation, record: Record, traits: frozenset[str]) -> float:
    shared = _jaccard(traits, frozenset(record.traits))
    if situation.failed is None:
        return shared
    kinds = frozenset(s.kind for s in situation.failed.verdict.signals)
    return (shared + _jaccard(kinds, frozenset(s.kind for s in record.signals))) / 2


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 0.0


def condition_holds(condition: Condition, situation: Situation, judge: Callable[[Condition, Situation], bool]) -> bool:
    """Whether `condition` lets its record through: none always, a predicate by its facts, a judged one by `judge`."""
    match condition.kind:
        case "none":
            return True
        case "predicate":
            return holds(condition.predicate, situation.facts)
        case "judged":
            return judge(condition, situation)


def judge(condition: Condition, situation: Situation, model: Model) -> tuple[bool, Completion]:
    """Ask `model` whether a judged condition holds of the task's text; anything but a clear yes is no (SPEC A3.4)."""
    completion = model.complete(
        [
            Message(role="system", content=prompt("judge").text),
            Message(role="user", content=f"Task: {situation.task.prompt}\n\nCondition: {condition.text}\n\nDoes the condition hold?"),
        ],
        max_tokens=4,
        temperature=0.0,
        seed=0,
    )
    return completion.text.strip().lower().startswith("yes"), completion
