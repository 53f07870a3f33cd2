"""Freshness: whether what a record says still holds, by running its stored check again in the present world.

In: a store, and the world of a domain. Out: what came of each record, kept in the store. The failed action must still fail, and the
correction still gain and, where it solved its task, solve it. A record that no longer holds, or whose task is gone or cannot be opened,
becomes stale and is not served; the reason is in its history. One that holds under another version of the evaluator is taken over into a
record that says so, and goes stale itself. A check that reaches no verdict says nothing: the record stays as it is.

Not promised: the outcome of records that rest on a rollout; here actions are judged alone.
"""

from dataclasses import replace

from mulligan.care import Freshness
from mulligan.errors import StoreError, UsageError
from mulligan.nouns import noun
from mulligan.pool import Pool
from mulligan.protocols import World
from mulligan.records import Attempt, Check, Decision, Episode, Failure, Gain, Record
from mulligan.store import Store, StoredRecord
from mulligan.write import checks, signals
from mulligan.write.admission import THRESHOLD


@noun
class Checked:
    """What came of one record. `successor` is the record that took its place, where the evaluator changed and it still holds."""

    record: str
    outcome: Freshness
    reason: str
    successor: str = ""


def order(store: Store, *, scope: str | None = None) -> list[StoredRecord]:
    """Active records with a check, those that are used most first, then those whose check is oldest."""
    found = [s for s in store.records(scope=scope) if s.record.gain.verified and s.record.kind == "correction"]  # notes rest on plays
    return sorted(found, key=lambda s: (-s.statistics.selected, store.checked_at(s.record.id), s.sequence))


def recheck(store: Store, stored: StoredRecord, world: World, pool: Pool | None = None) -> Checked:
    """Run the check of one record again, and keep what came of it."""
    record = stored.record
    evidence = _evidence(store, record.id)
    if evidence is None:
        return _kept(store, Checked(record=record.id, outcome="stale", reason="its evidence is gone"), world)
    episode, attempt, decision = evidence
    try:
        check = _again(world, episode, attempt, decision, pool or Pool())
    except (UsageError, OSError) as error:  # a payload that names what is no longer there
        return _kept(store, Checked(record=record.id, outcome="stale", reason=f"its task cannot be opened: {error}"[:300]), world)
    outcome, reason = judged(record, check)
    found = Checked(record=record.id, outcome=outcome, reason=reason)
    if outcome == "holds" and check.changed.evaluator != record.provenance.evaluator:
        found = replace(
            found, outcome="stale", reason=f"the evaluator is {check.changed.evaluator} now", successor=_taken_over(store, record, check)
        )
    return _kept(store, found, world)


def judged(record: Record, check: Check) -> tuple[Freshness, str]:
    """What a check that was run again says of its record."""
    if not (check.original.completed and check.changed.completed):
        return "unknown", "the check reached no verdict"
    if check.original.solved:
        return "stale", "what failed is right now"
    if check.gain <= THRESHOLD:
        return "stale", f"it gains {float(check.gain):.2f} now, not {float(record.gain.value):.2f}"
    if record.gain.solved and not check.changed.solved:
        return "stale", "it does not solve its task any more"
    return "holds", f"it gains {float(check.gain):.2f}"


def _evidence(store: Store, key: str) -> tuple[Episode, Attempt, Decision] | None:
    """The play that a record comes from; of a record that took another's place, the play of the first in its line."""
    for line in (key, *store.predecessors(key)):
        for row in store.decisions(record=line):
            if row.decision.record == line and row.decision.check is not None:
                try:
                    episode = store.episode(row.episode_id)
                except StoreError:
                    return None
                attempt = next((a for a in episode.attempts if a.index == row.attempt_index), None)
                return (episode, attempt, row.decision) if attempt else None
    return None


def _again(world: World, episode: Episode, attempt: Attempt, decision: Decision, pool: Pool) -> Check:
    """Both actions in the state that the attempt was made in. The failed one is not held against its old verdict: that is what is asked."""
    place = next(n for n, a in enumerate(episode.attempts) if a.index == attempt.index)
    failure = signals.failure_at(episode.attempts, place)
    with world.start(episode.task) as state:
        if state.digest != attempt.state:
            for earlier in failure.before:
                world.act(state, earlier.action)
        with world.restore(world.save(state)) as copy:
            present = world.act(copy, attempt.action)
        anew = Failure(attempt=replace(attempt, verdict=present), before=failure.before, later=())
        [check], _ = checks.check(world, state, anew, [decision.proposal], pool)
    return check


def _taken_over(store: Store, record: Record, check: Check) -> str:
    """The same record under the present evaluator. The store knows which one it took the place of."""
    changed = replace(
        record,
        gain=Gain(original=check.original.utility, changed=check.changed.utility, solved=check.changed.solved, tried=record.gain.tried),
        provenance=replace(record.provenance, evaluator=check.changed.evaluator),
    )
    embedder = store.embedder
    assert embedder is not None  # a stored record has a vector
    store.add_record(changed, store.vectors([record.id])[0], embedder=embedder[0])
    return changed.id


def _kept(store: Store, found: Checked, world: World) -> Checked:
    with store.transaction():
        store.add_recheck(found.record, found.outcome, found.reason, f"{world.name}/{world.version}")
        if found.outcome == "stale":
            store.set_status(found.record, "stale", found.reason)
        if found.successor:
            store.add_successor(found.record, found.successor)
            store.add_recheck(found.successor, "holds", f"taken over from {found.record}", f"{world.name}/{world.version}")
    return found
