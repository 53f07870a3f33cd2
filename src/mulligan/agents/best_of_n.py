"""Best-of-N: N independent samples of the present task, nothing kept (SPEC E).

`plain` picks by self-consistency: the action whose visible answer is the most frequent, the first of equals. `guided` stops at
the first action with which the world shows nothing wrong, so that it uses at most as many evaluator calls as an agent with as
many attempts.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from mulligan.agents.acting import VARIED, Play, Sampling
from mulligan.protocols import Model, World
from mulligan.records import Attempt, Episode, Task, Usage

if TYPE_CHECKING:
    from mulligan.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfN:
    """`n` samples at `sampling.temperature`, with seeds that follow on `sampling.seed`."""

    name: str = "best_of_n"
    n: int = 4
    choice: Literal["plain", "guided"] = "plain"
    sampling: Sampling = VARIED

    def play(self, task: Task, world: World, model: Model, memory: "Memory | None" = None) -> Episode:
        """Play `task`; each sample starts afresh. The chosen action is the last attempt, without another evaluation."""
        with world.start(task) as first:
            play = Play(task, world, model, first, self.sampling)
            play.act(*play.ask(play.messages(play.recall(memory, self.n))))
        for sample in range(1, self.n):
            if self.choice == "guided" and play.done:
                break
            with world.start(task) as state:
                play.state, play.trial = state, sample
                play.act(*play.ask(play.messages(play.recall(memory, self.n)), seed=self.sampling.seed + sample))
        chosen = self._choose(play.attempts)
        if chosen is not play.attempts[-1]:
            play.note(replace(chosen, index=len(play.attempts), trial=self.n, usage=Usage()))
        return play.episode(f"{self.name}-{self.choice}")

    def _choose(self, attempts: list[Attempt]) -> Attempt:
        if self.choice == "guided":
            return next((a for a in attempts if a.verdict.done), attempts[-1])
        votes = Counter(a.verdict.feedback for a in attempts if not a.verdict.signals)
        return max(attempts, key=lambda a: (votes[a.verdict.feedback], not a.verdict.signals, -a.index))
