"""Check alternatives: every one from the same snapshot as the failed action, none of them in the live state.

In: a failure and its proposals. Out: the replay of the failed action and one `Check` a proposal, and the cost. The replay comes first:
when its verdict differs from the recorded one, the copy of the state is not faithful and no alternative is tried (SPEC A3.1, replay
gate). With a `Rollout` a policy goes on from where each action has led, from the failed one too, so that outcomes are compared and
not first steps. A worker that dies is a check that did not complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from mulligan.pool import Pool, WorkerDied
from mulligan.protocols import Snapshot, State, World
from mulligan.records import Attempt, Check, Failure, Proposal, Usage, Verdict


class Policy(Protocol):
    """Who goes on after an action that is tried: the agent itself, or a plan."""

    @property
    def portable(self) -> bool:
        """It can be sent to the pool's processes; what asks a model stays in the calling one."""

    def go_on(self, world: World, state: State, attempts: Sequence[Attempt], steps: int) -> Sequence[Attempt]:
        """At most `steps` attempts more in `state`, which the last of `attempts` led to; none where there is nothing left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """How an action that is tried is followed to an outcome."""

    policy: Policy
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One action to try in a copy, and how to go on."""

    world: World
    snapshot: Snapshot
    before: tuple[Attempt, ...]  # what led to the snapshot
    action: str
    rollout: Rollout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a trial: at once, and in the end."""

    first: Verdict
    outcome: Verdict
    usage: Usage


def try_action(work: Trial) -> Tried:
    """Restore, act, go on if that is wanted, throw the copy away. Runs in a worker process unless the policy must stay here."""
    world, before = work.world, work.before
    with world.restore(work.snapshot) as copy:
        observation, state = world.observe(copy), copy.digest
        first = world.act(copy, work.action)
        spent = Usage(evaluator_calls=first.calls)
        if work.rollout is None or first.done or not first.completed:
            return Tried(first=first, outcome=first, usage=spent)
        index, trial = (before[-1].index + 1, before[-1].trial) if before else (0, 0)
        tried = Attempt(index=index, trial=trial, observation=observation, action=work.action, verdict=first, usage=spent, state=state)
        more = work.rollout.policy.go_on(world, copy, (*before, tried), work.rollout.steps)
    return Tried(first=first, outcome=more[-1].verdict if more else first, usage=sum((a.usage for a in more), spent))


def check(
    world: World, state: State, failure: Failure, proposals: Sequence[Proposal], pool: Pool, rollout: Rollout | None = None
) -> tuple[list[Check], Usage]:
    """Check `proposals` against the failed action from a snapshot of `state`.

    One check a proposal, in order. When the replay gate fails, each check has `replayed=False` and carries the replayed verdict
    on both sides, since nothing was tried.
    """
    snapshot, before = world.save(state), state.digest

    def trials(actions: Sequence[str], how: Rollout | None) -> list[Tried]:
        work = [Trial(world=world, snapshot=snapshot, before=failure.before, action=action, rollout=how) for action in actions]
        results = (pool if how is None or how.policy.portable else Pool()).run(try_action, work)
        return [_died(world) if isinstance(r, WorkerDied) else r for r in results]

    (original,) = trials([failure.attempt.action], rollout)
    replayed = original.first.agrees(failure.attempt.verdict)
    changed = trials([p.action for p in proposals], rollout) if replayed else []
    outcomes = [tried.outcome for tried in changed] or [original.first] * len(proposals)
    kept = original.outcome if replayed else original.first
    checks = [
        Check(proposal=p, original=kept, changed=outcome, replayed=replayed, state_before=before, state_after=state.digest)
        for p, outcome in zip(proposals, outcomes, strict=True)
    ]
    return checks, sum((tried.usage for tried in changed), original.usage)


def _died(world: World) -> Tried:
    verdict = Verdict(
        completed=False,
        utility=Fraction(0),
        solved=False,
        feedback="the evaluator's process died",
        evaluator=f"{world.name}/{world.version}",
    )
    return Tried(first=verdict, outcome=verdict, usage=Usage(evaluator_calls=verdict.calls))
