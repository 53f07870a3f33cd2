"""What worlds of one answer share: the answer changes nothing, so a task is its own state and its own snapshot.

In: a task. Out: its state. A world of this kind judges an action by the task alone; its workers and interpreters belong to the process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from mulligan.naming import lacking
from mulligan.nouns import content_id
from mulligan.records import Misfit, Signal, Situation, Task


@dataclass(frozen=True)
class Asked:
    """A task in the world of that name."""

    world: str
    task: Task

    @property
    def digest(self) -> str:
        return content_id(self.world, [self.task.id, self.task.split, self.task.prompt, dict(self.task.payload)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to release."""


class Answering:
    """The part of such a world that says so. `vocabulary` are the words of its language, which a lesson may use anywhere."""

    vocabulary: ClassVar[frozenset[str]] = frozenset()

    def observe(self, state: Asked) -> str:
        """Nothing: what the agent is shown is in the task."""
        return ""

    def save(self, state: Asked) -> Asked:
        return state

    def restore(self, snapshot: Asked) -> Asked:
        return snapshot

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        return lacking(situation, text, self.vocabulary)


def told(signal: Signal) -> str:
    """A signal as agents are told it."""
    return f"{signal.kind}{f' ({signal.where})' if signal.where else ''}: {signal.what}"
