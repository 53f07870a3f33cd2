"""Small nouns for tests: each builder gives a valid one, and takes what a test wants different."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from mulligan.records import (
    Attempt,
    Candidate,
    Check,
    Condition,
    Episode,
    Gain,
    Proposal,
    Provenance,
    Record,
    Signal,
    Situation,
    Statistics,
    Task,
    Usage,
    Verdict,
)


def task(**changes: Any) -> Task:
    given = Task(id="t1", domain="sql", benchmark="b", group="g1", split="source", prompt="How many rivers are there?", payload={})
    return replace(given, **changes)


def verdict(utility: Fraction | int = 0, **changes: Any) -> Verdict:
    given = Verdict(
        completed=True,
        utility=Fraction(utility),
        solved=utility == 1,
        feedback="wrong" if utility != 1 else "right",
        signals=() if utility == 1 else (Signal(kind="missing_rows", what="1 row missing"),),
        done=utility == 1,
        evaluator="w/1",
    )
    return replace(given, **changes)


def attempt(action: str = "a", utility: Fraction | int = 0, **changes: Any) -> Attempt:
    given = Attempt(index=0, observation="", action=action, verdict=verdict(utility), usage=Usage(), state="s")
    return replace(given, **changes)


def episode(*attempts: Attempt, **changes: Any) -> Episode:
    numbered = tuple(replace(a, index=i) for i, a in enumerate(attempts))
    return replace(Episode(task=task(), agent="react", model="m", attempts=numbered), **changes)


def proposal(action: str = "b", **changes: Any) -> Proposal:
    return replace(Proposal(action=action, edit="a → b", proposer="op:x"), **changes)


def check(gain: Fraction | int, action: str = "b", **changes: Any) -> Check:
    given = Check(proposal=proposal(action), original=verdict(0), changed=verdict(gain), replayed=True, state_before="s", state_after="s")
    return replace(given, **changes)


def record(situation: str = "How many rivers are there?", **changes: Any) -> Record:
    given = Record(
        kind="correction",
        domain="sql",
        situation=situation,
        original="SELECT 1",
        corrected="SELECT 2",
        diff="1 → 2",
        gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True),
        provenance=Provenance(
            task="t1",
            group="g1",
            benchmark="b",
            split="source",
            episode="source",
            attempt=0,
            agent="react",
            model="m",
            proposer="op:x",
            evaluator="w/1",
        ),
    )
    return replace(given, **changes)


def candidate(similarity: float = 0.9, **changes: Any) -> Candidate:
    statistics = changes.pop("statistics", Statistics())
    return Candidate(record=record(**changes), statistics=statistics, similarity=similarity, overlap=0.0, score=similarity)


def situation(**changes: Any) -> Situation:
    return replace(Situation(task=task(), facts={}), **changes)


def learnt(source: Task, corrected: str, predicate: str = "", **changes: Any) -> tuple[Record, Task]:
    """A record with a correction of `source`."""
    condition = Condition(kind="predicate", text=predicate, predicate=predicate) if predicate else Condition()
    given = record(source.prompt, domain=source.domain, corrected=corrected, condition=condition, **changes)
    return replace(given, provenance=replace(given.provenance, task=source.id, group=source.group)), source
