"""Check alternatives: every one from the same snapshot as the failed action, none of them in the live state.

In: a failure and its proposals. Out: the replay of the failed action and one `Check` a proposal. The replay comes first: when
its verdict differs from the recorded one, the copy of the state is not faithful and no alternative is tried (SPEC A3.1, replay
gate). A worker that dies is a check that did not complete.
"""

from collections.abc import Sequence
from fractions import Fraction

from mulligan.pool import Pool, WorkerDied
from mulligan.protocols import Snapshot, State, World
from mulligan.records import Check, Proposal, Verdict


def try_action(work: tuple[World, Snapshot, str]) -> Verdict:
    """Restore, act once, throw the copy away. Runs in a worker process."""
    world, snapshot, action = work
    with world.restore(snapshot) as copy:
        return world.act(copy, action)


def check(world: World, state: State, recorded: tuple[str, Verdict], proposals: Sequence[Proposal], pool: Pool) -> list[Check]:
    """Check `proposals` against the failed action `recorded` = (action, its verdict) from a snapshot of `state`.

    One check a proposal, in order. When the replay gate fails, each check has `replayed=False` and carries the replayed verdict
    on both sides, since nothing was tried.
    """
    action, verdict = recorded
    snapshot, before = world.save(state), state.digest
    (original,) = _try_all(world, snapshot, [action], pool)
    replayed = original.agrees(verdict)
    changed = _try_all(world, snapshot, [p.action for p in proposals], pool) if replayed else [original] * len(proposals)
    return [
        Check(proposal=p, original=original, changed=c, replayed=replayed, state_before=before, state_after=state.digest)
        for p, c in zip(proposals, changed, strict=True)
    ]


def _try_all(world: World, snapshot: Snapshot, actions: Sequence[str], pool: Pool) -> list[Verdict]:
    results = pool.run(try_action, [(world, snapshot, a) for a in actions])
    return [_died(world) if isinstance(r, WorkerDied) else r for r in results]


def _died(world: World) -> Verdict:
    return Verdict(
        completed=False,
        utility=Fraction(0),
        solved=False,
        feedback="the evaluator's process died",
        evaluator=f"{world.name}/{world.version}",
    )
