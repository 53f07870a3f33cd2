"""Find what failed: from an episode to the failures worth a second shot.

In: a finished episode. Out: its failed attempts, each with the evidence that the world gave by code, in order, without those
that only repeat an earlier failed action. Text that this package itself put into the agent's context is taken out first, so
that a lesson is never learnt from a lesson. Nothing here asks a model why the action failed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mulligan.records import Attempt, Episode, Failure


def failures(episode: Episode, *, tokens: Callable[[str], Sequence[str]], clean: Callable[[str], str]) -> list[Failure]:
    """The failures of `episode`.

    `tokens` cuts an action into its parts (two actions with equal parts are one). `clean` removes injected guidance from text.
    """
    attempts = [_cleaned(a, clean) for a in episode.attempts]
    seen: set[tuple[str, ...]] = set()
    found = []
    for place, attempt in enumerate(attempts):
        parts = tuple(tokens(attempt.action))
        if parts and parts not in seen and is_failure(attempt):
            seen.add(parts)
            found.append(failure_at(attempts, place))
    return found


def is_failure(attempt: Attempt) -> bool:
    """The world reached a verdict, it is not solved, and there is evidence against it."""
    return attempt.verdict.completed and not attempt.verdict.solved and bool(attempt.verdict.signals)


def failure_at(attempts: Sequence[Attempt], place: int) -> Failure:
    """The attempt at `place` with what came before it in its trial and what was tried later in its state."""
    attempt = attempts[place]
    return Failure(
        attempt=attempt,
        before=tuple(a for a in attempts[:place] if a.trial == attempt.trial),
        later=tuple(a for a in attempts[place + 1 :] if a.state == attempt.state),
    )


def _cleaned(attempt: Attempt, clean: Callable[[str], str]) -> Attempt:
    told = attempt.verdict
    signals = tuple(replace(signal, what=clean(signal.what)) for signal in told.signals)
    return replace(
        attempt,
        observation=clean(attempt.observation),
        thought=clean(attempt.thought),
        action=clean(attempt.action).strip(),
        verdict=replace(told, feedback=clean(told.feedback), signals=signals),
    )
