"""Planted truth: a simulated domain in which the value of every record, condition and set is known.

In: a seed. Out: records of known kinds with their vectors and statistics, and tasks with their candidates; for every task and set of
records the chance to solve it. What learners see are the same nouns as anywhere else; what they reach is compared with the best policy,
which knows.

Kinds: a `helper` lifts the chance on its topic, and so does its `twin`, but both together no more than one; `left` and `right` do nothing
alone and a lot together; a `lookalike` reads most like the task and harms; `popular` is shown everywhere and does nothing; `filler` is
about the topic and distracts a little, as any record does on another topic. Any record harms where the agent hardly needs one. Some
topics have nothing that helps: there the best is to skip.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mulligan.protocols import Selector
from mulligan.records import (
    Attempt,
    Candidate,
    Condition,
    Gain,
    Provenance,
    Receipt,
    Record,
    Selection,
    Signal,
    Situation,
    Statistics,
    Task,
    Usage,
    Verdict,
)
from mulligan.train.rows import GAMMA, Penalties, Point

Kind = Literal["helper", "twin", "left", "right", "lookalike", "popular", "filler"]
TOPICS, BARREN = 6, 2  # topics, of which the last so many have nothing that helps
DIM = 32
ATTEMPTS = 3
HELP, PAIR, HARM, DISTRACTION, EASY, AGAIN = 0.4, 0.55, -0.35, -0.12, -0.5, 0.6  # what the kinds do to the chance
NEEDLESS = 0.9  # chance at which any record does EASY instead of what it would
SIMILARITY: dict[Kind, float] = {
    "helper": 0.85,
    "twin": 0.83,
    "left": 0.75,
    "right": 0.75,
    "lookalike": 0.92,
    "popular": 0.8,
    "filler": 0.7,
}
USES = 40
_FRUITFUL: tuple[Kind, ...] = ("helper", "twin", "left", "right")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A record, and what is true of it."""

    record: Record
    statistics: Statistics
    vector: NDArray[np.float32]
    kind: Kind
    topic: int  # -1 for all topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Posed:
    """A task with its candidates, best first, and what is true of it."""

    task: Task
    topic: int
    chance: float  # to solve it at the first attempt without memory
    vector: NDArray[np.float32]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Domain:
    """The simulated domain of a seed. `slots` candidates a task."""

    seed: int = 0
    slots: int = 3

    @cached_property
    def planted(self) -> dict[str, Planted]:
        """All records by id."""
        rng = np.random.default_rng([self.seed, 1])
        kinds: list[tuple[Kind, int]] = [("popular", -1), ("popular", -1)]
        about: tuple[Kind, ...] = ("lookalike", "filler", "filler", "filler")
        for topic in range(TOPICS):
            kinds += [(kind, topic) for kind in about]
            if topic < TOPICS - BARREN:
                kinds += [(kind, topic) for kind in _FRUITFUL]
        return {p.record.id: p for p in (self._plant(rng, n, *kind) for n, kind in enumerate(kinds))}

    @cached_property
    def _directions(self) -> dict[str, NDArray[np.float32]]:
        rng = np.random.default_rng([self.seed, 0])
        drawn = rng.normal(size=(TOPICS + len(SIMILARITY), DIM)).astype(np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        return dict(zip([*map(str, range(TOPICS)), *SIMILARITY], drawn, strict=True))

    def _plant(self, rng: np.random.Generator, number: int, kind: Kind, topic: int) -> Planted:
        solo = {"helper": HELP, "twin": HELP, "lookalike": HARM}.get(kind, 0.0)
        uses = USES * (4 if kind == "popular" else 1)
        helped, hurt = (int(rng.binomial(uses, max(0.02, side * solo))) for side in (1, -1))
        statistics = Statistics(
            retrieved=uses,
            selected=uses,
            helped=helped,
            hurt=min(hurt, uses - helped),
            neutral=max(0, uses - helped - hurt),
            ema=0.5 + solo / 2,
        )
        vector = self._directions[str(topic)] + 0.7 * self._directions[kind] if topic >= 0 else self._directions[kind]
        vector = (vector / np.linalg.norm(vector) + 0.05 * rng.normal(size=DIM)).astype(np.float32)
        changed = Fraction({"filler": 1, "left": 3, "right": 3}.get(kind, 4), 4)
        record = Record(
            kind="correction",
            domain="planted",
            situation=f"{kind} {number} of topic {topic}",
            original="a",
            corrected="b",
            diff="a → b",
            condition=Condition(kind="predicate", text="", predicate=f"topic == {topic}") if topic >= 0 else Condition(),
            gain=Gain(original=Fraction(0), changed=changed, solved=True),
            provenance=Provenance(
                task=f"source {number}",
                group=f"source {number}",
                benchmark="planted",
                split="source",
                episode="",
                attempt=0,
                agent="",
                model="",
                proposer="",
                evaluator="",
            ),
        )
        return Planted(record=record, statistics=statistics, vector=vector / np.linalg.norm(vector), kind=kind, topic=topic)

    def tasks(self, many: int, stream: int = 0) -> list[Posed]:
        """So many tasks; `stream` tells training from held-out ones."""
        rng = np.random.default_rng([self.seed, 2, stream])
        return [self._pose(rng, f"{stream}/{n}") for n in range(many)]

    def _pose(self, rng: np.random.Generator, name: str) -> Posed:
        topic, chance = int(rng.integers(TOPICS)), float(rng.choice([0.05, 0.25, 0.5, 0.9], p=[0.3, 0.3, 0.3, 0.1]))
        found = []
        for p in self.planted.values():
            here = p.topic in (topic, -1)
            if rng.random() < (0.6 if p.kind == "popular" else 0.25):  # not every record is in reach of every task
                continue
            mean = SIMILARITY[p.kind] if here else 0.35
            similarity = float(np.clip(mean + 0.05 * rng.normal(), 0, 1))
            candidate = Candidate(record=p.record, statistics=p.statistics, similarity=similarity, overlap=0.0, score=similarity, tokens=80)
            found.append(candidate)
        found.sort(key=lambda c: (-c.score, c.record.id))
        vector = (self._directions[str(topic)] + 0.05 * rng.normal(size=DIM)).astype(np.float32)
        task = Task(id=f"task {name}", domain="planted", benchmark="planted", group=name, split="train", prompt=name, payload={})
        return Posed(task=task, topic=topic, chance=chance, vector=vector / np.linalg.norm(vector), candidates=tuple(found[: self.slots]))

    def chance(self, posed: Posed, shown: Sequence[str], attempt: int = 0) -> float:
        """The true chance that an attempt with the records `shown` solves the task."""
        planted = [self.planted[key] for key in dict.fromkeys(shown)]
        here = {p.kind for p in planted if p.topic in (posed.topic, -1)}
        lift = HELP if here & {"helper", "twin"} else 0.0
        lift += PAIR if {"left", "right"} <= here else 0.0
        lift += HARM if "lookalike" in here else 0.0
        lift += DISTRACTION * sum(p.topic not in (posed.topic, -1) or p.kind == "filler" for p in planted)
        lift = EASY if planted and not attempt and posed.chance >= NEEDLESS else lift
        lift -= 0.01 * max(0, len(planted) - 1)  # what is read beside the first costs a little
        return float(np.clip(posed.chance * AGAIN**attempt + lift, 0.02, 0.98))

    def harms(self, posed: Posed) -> bool:
        """Whether every candidate, shown alone, does worse than none."""
        alone = self.chance(posed, ())
        return all(self.chance(posed, [c.record.id]) < alone for c in posed.candidates)


class Uniform:
    """Any choice with the same probability, drawn anew: what learners are trained on here."""

    name = "uniform"

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        """Each candidate or none."""
        place = int(self._rng.integers(len(candidates) + 1))
        return Selection(chosen=place - 1 if place else None, propensity=1 / (len(candidates) + 1), policy=self.name)


def attempted(number: int, *, solved: bool, shown: int) -> Attempt:
    """What came of an attempt in the simulated domain, with the cost of what was shown."""
    verdict = Verdict(
        completed=True,
        utility=Fraction(int(solved)),
        solved=solved,
        feedback="",
        signals=() if solved else (Signal(kind="missing_rows", what="1"),),
        done=solved,
        evaluator="planted/1",
    )
    usage = Usage(prompt_tokens=400 + 80 * shown, completion_tokens=50, model_calls=1, evaluator_calls=1)
    return Attempt(index=number, observation="", action=f"try {number}", verdict=verdict, usage=usage)


def situation(posed: Posed, history: Sequence[Attempt]) -> Situation:
    """The decision point after `history`."""
    need = 1.0 if history else 1.0 - posed.chance
    return Situation(task=posed.task, facts={}, history=tuple(history), need=need, max_attempts=ATTEMPTS)


def play(domain: Domain, posed: Posed, selector: Selector, rng: np.random.Generator) -> list[Point]:
    """One episode, up to `ATTEMPTS` attempts, with outcomes drawn from the true chances."""
    points: list[Point] = []
    history: list[Attempt] = []
    for number in range(ATTEMPTS):
        here = situation(posed, history)
        selection = selector.select(here, posed.candidates)
        shown = tuple(posed.candidates[place].record.id for place in selection.places)
        attempt = attempted(number, solved=bool(rng.random() < domain.chance(posed, shown, number)), shown=len(shown))
        points.append(Point(situation=here, candidates=posed.candidates, receipt=_receipt(here, posed, shown, selection), attempt=attempt))
        history.append(attempt)
        if attempt.verdict.solved:
            break
    return points


def value(domain: Domain, posed: Posed, selector: Selector | None, penalties: Penalties) -> float:
    """The expected discounted return of a policy on a task, exactly; None is the best policy that shows one record or none."""

    def to_go(history: tuple[Attempt, ...]) -> float:
        number = len(history)
        if number == ATTEMPTS:
            return 0.0
        if selector is None:
            return max(after(history, shown) for shown in [(), *((c.record.id,) for c in posed.candidates)])
        selection = selector.select(situation(posed, history), posed.candidates)
        return after(history, tuple(posed.candidates[place].record.id for place in selection.places))

    def after(history: tuple[Attempt, ...], shown: tuple[str, ...]) -> float:
        number = len(history)
        p = domain.chance(posed, shown, number)
        won, lost = (attempted(number, solved=solved, shown=len(shown)) for solved in (True, False))
        gained = p * (1.0 - penalties.cost(won)) - (1 - p) * penalties.cost(lost)
        return gained + GAMMA * (1 - p) * to_go((*history, lost))

    return to_go(())


def _receipt(here: Situation, posed: Posed, shown: tuple[str, ...], selection: Selection) -> Receipt:
    return Receipt(
        task=here.task.id,
        attempt=len(here.history),
        candidates=tuple(c.record.id for c in posed.candidates),
        similarities=tuple(c.similarity for c in posed.candidates),
        shown=shown,
        selection=selection,
        need=here.need,
    )


def shuffled(points: Sequence[Sequence[Point]], seed: int) -> list[list[Point]]:
    """The same decisions with the outcomes of episodes dealt out anew: nothing can be learnt from them."""
    order = np.random.default_rng(seed).permutation(len(points))
    dealt = []
    for place, own in enumerate(points):
        verdicts = [p.attempt.verdict for p in points[order[place]]]
        dealt.append([replace(p, attempt=replace(p.attempt, verdict=verdicts[min(n, len(verdicts) - 1)])) for n, p in enumerate(own)])
    return dealt
