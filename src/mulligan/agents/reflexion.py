"""Reflexion: the same task again, with what the agent wrote about its last failures (Shinn et al. 2023; SPEC E)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mulligan.agents.acting import GREEDY, Play, Sampling
from mulligan.protocols import Model, World
from mulligan.records import Episode, Task

if TYPE_CHECKING:
    from mulligan.memory import Memory

WINDOW = 3  # reflections in the context: the last three, as in the public code


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflexion:
    """At most `trials` starts of `steps` actions; a trial ends when the world shows nothing wrong, or repeats an action."""

    name: str = "reflexion"
    trials: int = 3
    steps: int = 1
    sampling: Sampling = GREEDY

    def play(self, task: Task, world: World, model: Model, memory: "Memory | None" = None) -> Episode:
        """Play `task`. Memory, when given, is asked at every action; reflections stay within the task."""
        with world.start(task) as first:
            play = Play(task, world, model, first, self.sampling)
            self._trial(play, memory)
        for trial in range(1, self.trials):
            if play.done:
                break
            play.reflect()
            with world.start(task) as state:
                play.state, play.trial = state, trial
                self._trial(play, memory)
        return play.episode(self.name)

    def _trial(self, play: Play, memory: "Memory | None") -> None:
        notes = [f"Note on an earlier attempt: {text}" for text in play.reflections[-WINDOW:]]
        while not play.done and len(play.history) < self.steps:
            guidance = play.recall(memory, self.trials * self.steps)
            play.act(*play.ask(play.messages(guidance, notes)))
            if len(play.history) > 1 and play.history[-1].action == play.history[-2].action:
                break
