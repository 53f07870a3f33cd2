"""Reflexion: the same task again, with what the agent wrote about its last failures (Shinn et al. 2023; SPEC E)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mulligan.agents.acting import GREEDY, Play, Sampling
from mulligan.audit.repetition import is_frozen
from mulligan.protocols import Model, World
from mulligan.records import Episode, Review, Task

if TYPE_CHECKING:
    from mulligan.memory import Memory

WINDOW = 3  # reflections in the context: the last three, as in the public code
FROZEN = "Your notes on earlier attempts repeat themselves and have been set aside. Try something else than what you did so far."

Mode = Literal["self", "evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflexion:
    """At most `trials` starts of `steps` actions; a trial ends when the world shows nothing wrong, or repeats an action.

    `mode` says what a reflection rests on: the model's own diagnosis, as published, or evidence read by code. With `guard` an agent whose
    notes have frozen is told so, and makes the next attempt without them and without memory; never two in a row.
    """

    name: str = "reflexion"
    trials: int = 3
    steps: int = 1
    mode: Mode = "self"
    guard: bool = False
    sampling: Sampling = GREEDY

    def play(self, task: Task, world: World, model: Model, memory: "Memory | None" = None) -> Episode:
        """Play `task`. Memory, when given, is asked at every action; reflections stay within the task."""
        with world.start(task) as first:
            play = Play(task, world, model, first, self.sampling)
            self._trial(play, memory, [])
        aside = False
        for trial in range(1, self.trials):
            if play.done:
                break
            if self.mode == "evidence":
                play.reflect_on_evidence()
            else:
                play.reflect()
            aside = self.guard and not aside and is_frozen(play.reflections)
            if aside:
                play.reviews.append(Review(trial=play.trial, kept="set_aside"))
            with world.start(task) as state:
                play.state, play.trial = state, trial
                notes = [f"Note on an earlier attempt: {text}" for text in play.reflections[-WINDOW:]]
                self._trial(play, None if aside else memory, [FROZEN] if aside else notes)
        return play.episode(self.name)

    def _trial(self, play: Play, memory: "Memory | None", notes: list[str]) -> None:
        while not play.done and len(play.history) < self.steps:
            guidance = play.recall(memory, self.trials * self.steps)
            play.act(*play.ask(play.messages(guidance, notes)))
            if len(play.history) > 1 and play.history[-1].action == play.history[-2].action:
                break
