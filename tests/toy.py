"""A world for tests: an action is a few words, judged against wanted words. Fast, picklable, with every seam in it.

Payload: "gold" (the wanted words). On held-out tasks an agent learns only that an action had no words (`blocked`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from builders import task
from mulligan.naming import lacking
from mulligan.nouns import Json
from mulligan.records import Condition, Misfit, Proposal, Signal, Situation, Task, Verdict


@dataclass(frozen=True)
class ToyState:
    task: Task

    @property
    def digest(self) -> str:
        return f"toy:{self.task.id}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


@dataclass(frozen=True)
class ToyWorld:
    name: str = "toy"
    version: str = "1"
    manual: str = "An action is the right words."

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {"mentions": sorted(set(task.prompt.split()))}

    def start(self, task: Task) -> ToyState:
        return ToyState(task)

    def observe(self, state: ToyState) -> str:
        return ""

    def act(self, state: ToyState, action: str) -> Verdict:
        gold, said = str(state.task.payload["gold"]).split(), action.split()
        right = sum(a == b for a, b in zip(gold, said, strict=False))
        solved = gold == said
        signals = [] if said else [Signal(kind="blocked", what="no words")]
        if state.task.split != "heldout" and not solved:
            signals += [Signal(kind="missing_rows", what=w, where=str(i)) for i, w in enumerate(gold) if i >= len(said) or said[i] != w]
        seen = "; ".join(f"{s.kind} {s.what}" for s in signals) or f"you said {' '.join(said)}"
        return Verdict(
            completed=True,
            utility=Fraction(1) if solved else Fraction(right, 2 * max(len(gold), len(said), 1)),
            solved=solved,
            feedback=seen,
            signals=tuple(signals),
            done=not signals,
            evaluator="toy/1",
        )

    def save(self, state: ToyState) -> ToyState:
        return state

    def restore(self, snapshot: ToyState) -> ToyState:
        return snapshot

    def edits(self, state: ToyState, action: str, verdict: Verdict) -> Iterable[Proposal]:
        said = action.split()
        for signal in verdict.signals:
            if signal.where and int(signal.where) < len(said):
                place = int(signal.where)
                yield Proposal(
                    action=" ".join([*said[:place], signal.what, *said[place + 1 :]]),
                    edit=f"{said[place]} → {signal.what}",
                    why=signal.what,
                    condition=Condition(kind="predicate", text=f"about {signal.what}", predicate=f'"{signal.what}" in mentions'),
                    proposer="op:word",
                )

    def tokens(self, action: str) -> Sequence[str]:
        return action.split()

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        return lacking(situation, text)


def toy_tasks(n: int, split: str = "source", words: str = "one two three") -> list[Task]:
    """Tasks `split0` … that want `words`; prompts share a start, so that they are similar."""
    return [
        task(
            id=f"{split}{i}", domain="toy", group=f"{split}{i}", split=split, prompt=f"say three words number {i}", payload={"gold": words}
        )
        for i in range(n)
    ]
