"""Find what failed: from an episode to the failures worth a second shot.

In: a finished episode. Out: its failed attempts, each with the evidence that the world gave by code, in order, without those
that only repeat an earlier failed action. Text that this package itself put into the agent's context is taken out first, so
that a lesson is never learnt from a lesson. Nothing here asks a model why the action failed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mulligan.records import Attempt, Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed attempt, the actions that led to its state, and what was tried there later in the same episode."""

    attempt: Attempt
    prefix: tuple[str, ...]
    later: tuple[Attempt, ...]


def failures(episode: Episode, *, tokens: Callable[[str], Sequence[str]], clean: Callable[[str], str]) -> list[Failure]:
    """The failures of `episode`.

    `tokens` cuts an action into its parts (two actions with equal parts are one). `clean` removes injected guidance from text. An
    attempt counts as failed when the world reached a verdict, it is not solved, and there is evidence against it.
    """
    attempts = [_cleaned(a, clean) for a in episode.attempts]
    seen: set[tuple[str, ...]] = set()
    found = []
    for place, attempt in enumerate(attempts):
        parts = tuple(tokens(attempt.action))
        verdict = attempt.verdict
        if not parts or parts in seen or not verdict.completed or verdict.solved or not verdict.signals:
            continue
        seen.add(parts)
        found.append(
            Failure(
                attempt=attempt,
                prefix=tuple(a.action for a in attempts[:place] if a.trial == attempt.trial),
                later=tuple(a for a in attempts[place + 1 :] if a.state == attempt.state),
            )
        )
    return found


def _cleaned(attempt: Attempt, clean: Callable[[str], str]) -> Attempt:
    return replace(attempt, observation=clean(attempt.observation), thought=clean(attempt.thought), action=clean(attempt.action).strip())
