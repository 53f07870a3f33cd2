"""Freshness: stored checks run again, what becomes of those that no longer hold, and care of records by hand."""

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, check, episode, record, verdict
from mulligan.audit import freshness
from mulligan.audit.freshness import Checked, judged, order, recheck
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData, StoreError, UsageError
from mulligan.exchange import export_store, import_store
from mulligan.memory import Memory
from mulligan.records import Gain, Situation, Verdict
from mulligan.store import Store
from test_cli import Call, call  # noqa: F401  # a fixture
from test_store import add
from toy import ToyState, ToyWorld, toy_tasks

EMBEDDER = HashingEmbedder(16)  # that of the stores in test_store


@dataclass(frozen=True)
class Other(ToyWorld):
    """The toy world of another day: other right words, another version of its evaluator, or no verdict at all."""

    gold: str = ""
    evaluator: str = "toy/1"
    completed: bool = True
    gone: bool = False

    def start(self, task):  # type: ignore[no-untyped-def]
        if self.gone:
            raise UsageError("there is no file toys.db")
        return ToyState(replace(task, payload={"gold": self.gold or task.payload["gold"]}))

    def act(self, state: ToyState, action: str) -> Verdict:
        return replace(super().act(state, action), evaluator=self.evaluator, completed=self.completed)


def learnt(path: Path) -> tuple[Store, str]:
    """A store with one checked record: of `one two red`, `one two three`."""
    store, world, source = Store(path), ToyWorld(), toy_tasks(1)[0]
    with world.start(source) as state:
        failed = attempt("one two red", verdict=world.act(state, "one two red"), state=state.digest)
        Memory(store, world, embedder=EMBEDDER).learn(episode(failed, task=source))
    [stored] = store.records()
    return store, stored.record.id


CASES: list[tuple[ToyWorld, str, str]] = [
    (ToyWorld(), "holds", "it gains 0.67"),
    (Other(gold="one two red"), "stale", "what failed is right now"),
    (Other(gold="one blue four"), "stale", "it gains 0.00 now, not 0.67"),
    (Other(gold="one two three four five six"), "stale", "it does not solve its task any more"),
    (Other(gone=True), "stale", "its task cannot be opened: there is no file toys.db"),
    (Other(completed=False), "unknown", "the check reached no verdict"),
]


@pytest.mark.parametrize(("world", "outcome", "reason"), CASES, ids=[reason for *_, reason in CASES])
def test_a_check_is_run_again(tmp_path: Path, world: ToyWorld, outcome: str, reason: str) -> None:
    store, key = learnt(tmp_path / "s.db")
    with store:
        before = store.record(key)
        assert recheck(store, before, world) == Checked(record=key, outcome=outcome, reason=reason)
        after = store.record(key)
        assert after.status == ("stale" if outcome == "stale" else "active") and after.record == before.record
        assert [(r.outcome, r.reason) for r in store.rechecks(key)] == [(outcome, reason)]
        assert [(h["new"], h["reason"]) for h in store.history(key)] == ([("stale", reason)] if outcome == "stale" else [])
        assert (store.checked_at(key) > before.created_at) == (outcome != "unknown")
        task, memory = replace(toy_tasks(1)[0], id="new", group="new"), Memory(store, ToyWorld(), embedder=EMBEDDER)
        found, _ = memory.retrieve(Situation(task=task, facts=memory.facts(task)))
        assert bool(found) == (outcome != "stale")


def test_a_record_that_holds_under_another_evaluator_is_taken_over(tmp_path: Path) -> None:
    store, key = learnt(tmp_path / "s.db")
    with store:
        found = recheck(store, store.record(key), Other(evaluator="toy/2"))
        assert (found.outcome, found.reason) == ("stale", "the evaluator is toy/2 now") and found.successor
        new = store.record(found.successor)
        assert (
            new.status == "active"
            and new.record.provenance.evaluator == "toy/2"
            and new.record.corrected == store.record(key).record.corrected
        )
        assert store.predecessors(new.record.id) == [key] and store.successors(key) == [new.record.id]
        again = recheck(store, new, Other(evaluator="toy/2"))  # its evidence is that of the record before it
        assert again.outcome == "holds" and len(store.rechecks(new.record.id)) == 2
        assert recheck(store, new, Other(evaluator="toy/2", gold="x")).outcome == "stale"


def test_what_became_of_records_travels_with_an_export(tmp_path: Path) -> None:
    store, key = learnt(tmp_path / "s.db")
    with store, Store(tmp_path / "t.db") as other:
        recheck(store, store.record(key), Other(evaluator="toy/2"))
        out = StringIO()
        export_store(store, out)
        import_store(other, StringIO(out.getvalue()))
        assert other.digest() == store.digest() and other.successors(key) == store.successors(key) != []
        assert other.checked_at(key) == store.checked_at(key)


def test_evidence_that_is_gone_makes_a_record_stale(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        key = add(store, record())
        assert recheck(store, store.record(key), ToyWorld()).reason == "its evidence is gone"
        assert store.record(key).status == "stale"


def test_order_is_most_used_then_oldest_and_leaves_out_what_has_no_check(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        keys = [add(store, record(f"situation {n}")) for n in range(4)]
        add(store, record("unchecked", gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True, verified=False)))
        store._count("selected = selected + 2", [keys[2]])
        store.add_recheck(keys[0], "holds", "", "w/1")
        store.add_recheck(keys[1], "unknown", "", "w/1")  # no verdict: as old as before
        assert [s.record.id for s in order(store)] == [keys[2], keys[1], keys[3], keys[0]]


def test_reading_and_recalling_never_make_a_record_younger(tmp_path: Path) -> None:
    store, key = learnt(tmp_path / "s.db")
    with store:
        age, digest = store.checked_at(key), store.digest(("records", "rechecks", "history"))
        memory = Memory(store, ToyWorld(), embedder=EMBEDDER)
        for n in range(20):
            guidance = memory.recall(replace(toy_tasks(1)[0], id=f"x{n}", group=f"x{n}", split="heldout"))
            for read in (store.record, store.rechecks, store.history, store.successors, store.find):
                read(key)
            memory.settle(guidance.receipt, "helped", utility=1.0)
        assert store.checked_at(key) == age and store.digest(("records", "rechecks", "history")) == digest


@given(
    st.sampled_from([Fraction(n, 20) for n in range(21)]),
    st.sampled_from([Fraction(n, 20) for n in range(21)]),
    st.booleans(),
    st.booleans(),
)
def test_only_complete_checks_with_a_gain_hold(original: Fraction, changed: Fraction, complete: bool, solving: bool) -> None:
    made = replace(check(0), original=verdict(original, completed=complete), changed=verdict(changed, solved=changed == 1))
    stored = record(gain=Gain(original=Fraction(0), changed=Fraction(1), solved=solving))
    outcome, _ = judged(stored, made)
    assert (outcome == "unknown") == (not complete)
    if outcome == "holds":
        assert changed - original > Fraction(1, 20) and (not solving or changed == 1)


# ---- by hand ----


def test_lineage_is_a_line(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        a, b, c = (add(store, record(name)) for name in ("a", "b", "c"))
        store.add_successor(a, b)
        store.add_successor(b, c)
        store.add_successor(a, b)  # again is nothing new
        assert (store.successors(a), store.predecessors(c)) == ([b, c], [b, a])
        for old, new in ((c, a), (a, a), (b, a), (a, c)):
            with pytest.raises(InvalidData):
                store.add_successor(old, new)


def run(call: Call, *arguments: object) -> dict[str, object]:  # noqa: F811
    status, out, error = call(*arguments, "--json")
    assert status == 0, error
    found: dict[str, object] = json.loads(out)
    return found


def test_a_record_is_corrected_superseded_retired_and_restored_by_hand(call: Call, tmp_path: Path) -> None:  # noqa: F811
    store, key = learnt(tmp_path / "mulligan.db")
    store.close()
    made = run(call, "correct", key, "--principle", "three comes last", "--predicate", '"three" in mentions', "--reason", "too wide")
    new = str(made["id"])
    assert made == {"id": new, "replaces": key, "checked": True}
    wrong = run(call, "correct", new, "--action", "one two four")
    assert wrong["checked"] is False
    shown = run(call, "show", str(wrong["id"]))
    assert shown["replaces"] == [new, key] and shown["status"] == "active"
    assert [a["action"] for a in shown["attempts"]] == ["one two red"]  # type: ignore[attr-defined]
    old = run(call, "show", key)
    assert old["replaced_by"] == [new, wrong["id"]] and old["status"] == "retired"
    assert old["history"][-1]["reason"] == f"superseded by {new}: too wide"  # type: ignore[index]
    assert run(call, "restore", key, "--reason", "it was right")["status"] == "active"
    for arguments in (("correct", key), ("supersede", key, "zzz"), ("correct", key, "--predicate", "import os"), ("supersede", new, key)):
        status, _, error = call(*arguments)
        assert status in (1, 2) and error.count("\n") == 1


def test_the_command_checks_again(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    store, key = learnt(tmp_path / "mulligan.db")
    add(store, record("unchecked", gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True, verified=False)))
    store.close()
    world: list[ToyWorld] = [ToyWorld()]
    monkeypatch.setattr("mulligan.building.world", lambda name, sandbox="": world[0])
    found = run(call, "recheck", "--budget", 5)
    assert (found["holds"], found["stale"], found["unknown"], found["unchecked"]) == (1, 0, 0, 1)
    world[0] = Other(gold="one two red")
    status, out, error = call("recheck")
    assert status == 0 and "0 hold, 1 are stale" in out and "what failed is right now" in out and "nothing to run again" in error
    status, out, _ = call("show", key)
    assert "run again" in out and "The play that failed" in out and "one two red" in out and max(map(len, out.splitlines())) <= 80
    assert run(call, "recheck")["records"] == []


def test_a_world_that_is_not_there_says_nothing_of_its_records(call: Call, tmp_path: Path) -> None:  # noqa: F811
    learnt(tmp_path / "mulligan.db")[0].close()
    found = run(call, "recheck")  # the toy world has no name that the command line knows
    assert (found["unknown"], found["stale"]) == (1, 0)
    with Store(tmp_path / "mulligan.db") as store, pytest.raises(StoreError):
        store.record("rec_none")
    assert Fraction(1, 20) == freshness.THRESHOLD
