"""ReAct: thought and action, observation, again; no memory across tasks unless one is given (Yao et al. 2023; SPEC E)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.agents.acting import GREEDY, Play, Sampling
from mulligan.protocols import Model, World
from mulligan.records import Episode, Task

if TYPE_CHECKING:
    from mulligan.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ReAct:
    """Acts until the world shows nothing wrong any more, at most `max_attempts` times, in one conversation."""

    name: str = "react"
    max_attempts: int = 3
    sampling: Sampling = GREEDY

    def play(self, task: Task, world: World, model: Model, memory: "Memory | None" = None) -> Episode:
        """Play `task`. Memory, when given, is asked before the first action and after each failed one."""
        with world.start(task) as state:
            play = Play(task, world, model, state, self.sampling)
            while not play.done and len(play.attempts) < self.max_attempts:
                play.act(*play.ask(play.messages(play.recall(memory, self.max_attempts))))
            return play.episode(self.name)
