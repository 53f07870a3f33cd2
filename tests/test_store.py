"""The store: nouns in and out, once each; moves that are allowed; many threads; clocks; what is deleted is gone."""

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, check, episode, proposal, record, task
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import EmbeddingMismatch, InvalidData, MulliganError, StoreError, StoreFrozen
from mulligan.records import Completion, Condition, Decision, Receipt, Record, Selection, Usage
from mulligan.search import record_text
from mulligan.store import MEMORY, Store

EMBEDDER = HashingEmbedder(16)
# Any character but a surrogate pair given as two: NUL, lone surrogates, noncharacters, all scripts.
ANYTHING = st.text(st.characters(exclude_categories=())).filter(lambda t: not re.search("[\ud800-\udbff][\udc00-\udfff]", t))
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db") as opened:
        yield opened


def add(store: Store, given: Record) -> str:
    (vector,) = EMBEDDER.embed([record_text(given)])
    return store.add_record(given, vector, embedder=EMBEDDER.id)


def refused(action: str = "b", **changes: object) -> Decision:
    made = Decision(proposal=proposal(action), reason="no_gain", rule="r/1", check=check(0, action))
    return replace(made, **changes)  # type: ignore[arg-type]


def receipt(*shown: str, candidates: tuple[str, ...] = (), **changes: object) -> Receipt:
    made = Receipt(task="t9", attempt=0, candidates=candidates or shown, shown=shown, selection=Selection(chosen=0, policy="top1"))
    return replace(made, **changes)  # type: ignore[arg-type]


def fill(store: Store, scope: str = "default") -> str:
    """One of everything; returns the record's id."""
    origin = record().provenance
    key = add(store, record(f"rivers of {scope}", scope=scope, provenance=replace(origin, task=f"t {scope}")))
    told = episode(attempt("a"), attempt("c", 1), task=task(scope=scope))
    made = store.add_episode(told)
    store.add_decisions(made, 0, [refused("b"), Decision(proposal=proposal("d"), reason="not_local", rule="r/1")])
    store.settle(store.add_receipt(receipt(key, scope=scope)), "helped")
    store.add_usage(f"{scope}/run", stage="run", usage=Usage(prompt_tokens=3))
    store.cache(f"{scope}/key", Completion(text="b", model="m", usage=Usage(prompt_tokens=2)), "{}")
    return key


# Nouns in, nouns out.


@given(st.data())
def test_an_episode_comes_back_as_it_went_in(data: st.DataObject) -> None:
    def text() -> str:
        return data.draw(ANYTHING)

    payload = data.draw(st.dictionaries(ANYTHING, st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.lists(ANYTHING)))
    tried = [attempt(text(), Fraction(n, 7), observation=text(), thought=text()) for n in data.draw(st.lists(st.integers(0, 6)))]
    given_task = task(id=data.draw(NAMES), scope=data.draw(NAMES), prompt=text(), context=text(), payload=payload)
    played = episode(*tried, task=given_task, reflections=(text(),), label=data.draw(NAMES))
    with Store(":memory:") as store:
        key = store.add_episode(played)
        assert store.episode(key) == played == store.episode_for(given_task.id, played.label)
        before = store.digest()
        assert store.add_episode(played) == key
        assert store.digest() == before


@given(situation=ANYTHING, original=ANYTHING, principle=ANYTHING)
def test_any_text_in_a_record_is_stored_found_and_counted_once(situation: str, original: str, principle: str) -> None:
    given_record = record(situation, original=original, principle=principle)
    with Store(":memory:") as store:
        key = add(store, given_record)
        before = store.digest()
        assert add(store, given_record) == key == given_record.id
        assert store.digest() == before
        assert store.record(key).record == given_record
        (vector,) = EMBEDDER.embed([situation])
        assert [h.record_id for h in store.search(situation, vector)] == ([key] if vector.any() else [])
        assert store.problems() == []


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["helped", "hurt", "neutral"])), max_size=12))
def test_whatever_is_written_twice_is_written_once(events: list[tuple[int, str]]) -> None:
    def play(store: Store, times: int) -> str:
        keys = [add(store, record(f"situation {n}")) for _ in range(times) for n in range(4)][:4]
        for n, outcome in events:
            for _ in range(times):
                key = store.add_receipt(receipt(keys[n], label=str(n)))
                store.settle(key, outcome)  # type: ignore[arg-type]
                store.add_usage(f"u{n}", stage="s", usage=Usage(seconds=n))
        return store.digest(("statistics", "vectors"))

    with Store(":memory:") as once, Store(":memory:") as twice:
        assert play(once, 1) == play(twice, 2)
        assert once.counts() == twice.counts()


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda s: s.add_task(task(id="a\0b")), "without NUL"),
        (lambda s: s.add_task(task(scope="\ud800")), "without NUL"),
        (lambda s: s.add_episode(episode(label="a\0")), "without NUL"),
        (lambda s: add(s, record(domain="\0")), "without NUL"),
        (lambda s: s.add_receipt(receipt(scope="\0")), "without NUL"),
        (lambda s: s.add_task(task(prompt="\ud83d\ude00")), "two surrogates"),
        (lambda s: s.add_task(task(payload={"x": float("nan")})), "cannot be stored"),
        (lambda s: s.add_task(task(payload={"x": b"bytes"})), "cannot be stored"),
        (lambda s: s.add_task(task(payload={"x": nested(10_000)})), "cannot be stored"),
        (lambda s: s.add_usage("\udc80", stage="s", usage=Usage()), "cannot hold"),
        (lambda s: s.add_episode(replace(episode(), attempts=(attempt(), attempt()))), "not in order"),
        (lambda s: add(s, record("word " * 58_000)), "too_large"),
        (lambda s: add(s, record("word " * 3_000)), "repetitive"),
        (lambda s: add(s, record(original="x" * 19_000)), "repetitive"),
        (lambda s: add(s, record("\u6cb3" * 15_000)), "repetitive"),
        (lambda s: add(s, record(condition=Condition(kind="predicate", predicate="f(x)"))), "may not contain"),
        (lambda s: s.add_record(record(), np.full(4, np.nan, np.float32), embedder="e"), "infinite or undefined"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_reason(store: Store, write: Callable[[Store], object], why: str) -> None:
    kept = add(store, record("kept"))
    before = store.digest()
    with pytest.raises(InvalidData, match=why):
        write(store)
    assert store.digest() == before
    assert store.record(kept).record == record("kept")


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_long_but_meaningful_records_are_stored(store: Store) -> None:
    code = "\n".join(f"    if x == {n}:\n        return table[{n * 7919 % 1000}]" for n in range(400))
    assert store.record(add(store, record(original=code))).record.original == code
    with pytest.raises(InvalidData, match="too_large: more than 65536 bytes"):
        add(store, record(**dict.fromkeys(("situation", "original", "corrected", "diff"), code[:19000])))


def test_episodes_come_in_order_and_by_label_and_split(store: Store) -> None:
    played = [
        episode(attempt(), task=task(id=f"t{n}", split=s), label=lb) for n, (s, lb) in enumerate([("train", "x"), ("source", "y")] * 3)
    ]
    for e in played:
        store.add_episode(e)
    assert store.episodes() == played
    assert store.episodes(label="y") == played[1::2] == store.episodes(split="source")
    assert store.episodes(label="y", split="train") == []
    assert store.has_episode("t0", "x") and not store.has_episode("t0", "y")
    assert store.episode_for("t0", "y") is None


def test_a_task_stays_in_its_split(store: Store) -> None:
    store.add_task(task(id="t", split="source"))
    with pytest.raises(InvalidData, match="stored in split source"):
        store.add_task(task(id="t", split="heldout"))
    store.add_task(task(id="t", split="heldout", scope="other"))
    assert store.counts()["tasks"] == 2


# Decisions and their lifecycle.


def test_decisions_keep_their_evidence_and_order(store: Store) -> None:
    key = store.add_episode(episode(attempt("a"), attempt("a2")))
    admitted = Decision(proposal=proposal("c"), reason="admitted", rule="r/1", check=check(1, "c"), record="rec_x")
    given = [refused("b"), admitted, refused("b"), Decision(proposal=proposal("e"), reason="unparseable", rule="r/1")]
    assert not store.examined(key, 0)
    for _ in range(2):
        store.add_decisions(key, 0, given)
    assert [d.decision for d in store.decisions(key)] == given == [d.decision for d in store.decisions()]
    assert {(d.episode_id, d.attempt_index) for d in store.decisions()} == {(key, 0)}
    other = Decision(proposal=proposal("f"), reason="admitted", rule="r/1", check=check(1, "f"), record="rec_y")
    store.add_decisions(key, 1, [other])
    of = [[d.decision for d in store.decisions(record=r)] for r in ("rec_x", "rec_y", "rec_z", "")]
    assert of == [given, [other], [], []]
    assert store.examined(key, 0) and store.examined(key, 1) and not store.examined(key, 2)


@pytest.mark.parametrize(
    "second",
    [
        refused("b", reason="beaten"),
        refused("b", reason="admitted"),
        refused("b", rule="r/2"),
    ],
)
def test_what_is_decided_stays_decided(store: Store, second: Decision) -> None:
    key = store.add_episode(episode(attempt()))
    store.add_decisions(key, 0, [refused("b")])
    with pytest.raises(InvalidData, match="is refused and cannot become"):
        store.add_decisions(key, 0, [second])


def test_nothing_is_admitted_without_a_check_unless_the_reason_says_so(store: Store) -> None:
    key = store.add_episode(episode(attempt()))
    with pytest.raises(InvalidData, match="is proposed and cannot become admitted"):
        store.add_decisions(key, 0, [refused(reason="admitted", check=None)])
    with pytest.raises(InvalidData, match="another proposal"):
        store.add_decisions(key, 0, [refused(check=check(1, "z"))])
    assert not store.examined(key, 0)
    store.add_decisions(key, 0, [refused(reason="admitted_unverified", check=None)])
    with pytest.raises(StoreError, match="no attempt 5"):
        store.add_decisions(key, 5, [])


# Records, statistics, clocks.


def test_status_moves_along_the_lifecycle_with_a_history(store: Store) -> None:
    key = add(store, record())
    moves = [("stale", "old"), ("active", "checked again"), ("retired", "evicted"), ("active", "back")]
    for status, reason in moves:
        store.set_status(key, status, reason)  # type: ignore[arg-type]
        assert (store.record(key).status, store.record(key).reason) == (status, reason)
        assert store.problems() == []
    store.set_status(key, "retired", "x")
    with pytest.raises(InvalidData, match="is retired and cannot become stale"):
        store.set_status(key, "stale", "y")
    assert [(row["new"], row["reason"]) for row in store.dump("history")] == [*moves, ("retired", "x")]
    assert add(store, record()) == key and store.records() == []  # adding again does not revive
    assert [s.status for s in store.records(status=None)] == ["retired"]


def test_a_clock_that_goes_backwards_keeps_the_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = count(9, -1)
    monkeypatch.setattr("mulligan.store.now", lambda: f"2026-01-01T0{next(times)}:00:00+00:00")
    keys = [add(store, record(f"s{n}")) for n in range(4)]
    stored = store.records()
    assert [s.record.id for s in stored] == keys
    assert [s.sequence for s in stored] == sorted(s.sequence for s in stored)
    assert [s.created_at for s in stored] == sorted((s.created_at for s in stored), reverse=True)


def test_records_by_place_and_ids_by_prefix(store: Store) -> None:
    keys = {(scope, domain): add(store, record(scope=scope, domain=domain)) for scope in ("default", "acme") for domain in ("sql", "code")}
    assert {s.record.id for s in store.records()} == {keys["default", "sql"], keys["default", "code"]}
    assert [s.record.id for s in store.records(scope="acme", domain="code")] == [keys["acme", "code"]]
    assert len(store.records(scope=None)) == 4
    every = store.records(scope=None)
    least = sorted(keys.values())
    assert all(store.records(scope=None, limit=n) == [s for s in every if s.record.id in least[:n]] for n in (9, 4, 3, 1))
    key = keys["acme", "sql"]
    assert store.find(key) == store.find(key[:12]) == store.find(key[4:12]) == [key]
    assert store.find("rec_%") == store.find("\0") == [] and len(store.find("")) == 4


def test_several_records_at_once_and_whether_there_are_more_than_so_many(store: Store) -> None:
    keys = [add(store, record(f"s{n}")) for n in range(4)]
    backwards = [*keys[::-1], keys[0]]
    assert [s.record.id for s in store.several(backwards)] == backwards
    with pytest.raises(StoreError, match="no record rec_gone"):
        store.several([keys[0], "rec_gone"])
    for gone in (0, 1):
        assert [store.holds_more(n, scope="default", domain="sql") for n in (0, 3 - gone, 4 - gone, 9)] == [True, True, False, False]
        store.set_status(keys[0], "retired", "evicted")
    assert not store.holds_more(0, scope="default", domain="other") and not store.holds_more(0, scope="acme", domain="sql")


def test_receipts_count_once_and_settle_once(store: Store) -> None:
    one, two = add(store, record("one")), add(store, record("two"))
    given = receipt(one, candidates=(one, two, "rec_gone"))
    for _ in range(2):
        key = store.add_receipt(given)
    assert store.receipts() == [(given, None)]
    assert [store.settle(key, "helped"), store.settle(key, "hurt")] == [True, False]
    assert store.receipts("") == [(given, "helped")] and store.receipts("other") == []
    shown, other = store.record(one).statistics, store.record(two).statistics
    assert (shown.retrieved, shown.selected, shown.helped, shown.hurt, shown.neutral) == (1, 1, 1, 0, 0)
    assert shown.ema == pytest.approx(0.6) and (other.retrieved, other.selected, other.ema) == (1, 0, 0.5)
    for label, outcome, ema in [("a", "hurt", 0.48), ("b", "neutral", 0.484)]:
        store.settle(store.add_receipt(receipt(one, label=label)), outcome)  # type: ignore[arg-type]
        assert store.record(one).statistics.ema == pytest.approx(ema)
    with pytest.raises(InvalidData, match="helped, hurt, neutral"):
        store.settle(key, "great")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="no receipt"):
        store.settle("rcp_0", "helped")


def test_costs_are_booked_once_and_replies_kept_as_they_were(store: Store) -> None:
    spent = Usage(prompt_tokens=5, seconds=0.25)
    for usage in (spent, Usage()):
        store.add_usage("k", stage="construct", arm="checked", task="t1", usage=usage, paid=False)
    (booked,) = store.ledger()
    assert (booked.key, booked.stage, booked.arm, booked.task, booked.usage, booked.paid) == (
        "k",
        "construct",
        "checked",
        "t1",
        spent,
        False,
    )
    reply = Completion(text="a\ud800\0", model="m", usage=spent)
    assert store.cached("q") is None
    store.cache("q", reply, '{"prompt":"\ud800"}')
    store.cache("q", replace(reply, text="other"), "{}")
    store.cache("free", replace(reply, paid=False), "{}")
    assert store.cached("q") == reply
    assert store.cache_usage() == spent


# Embedders.


def test_vectors_of_another_embedder_are_refused_until_all_are_made_anew(store: Store) -> None:
    keys = [add(store, record(f"rivers {n}")) for n in range(5)]
    store.set_status(keys[1], "stale", "x")
    assert store.embedder == ("hash:16", 16)
    other = HashingEmbedder(32)
    (vector,) = other.embed(["rivers"])
    for act in (
        lambda: store.add_record(record("x"), vector, embedder=other.id),
        lambda: store.add_record(record("x"), vector[:16], embedder="lookalike"),
        lambda: store.search("rivers", vector),
        lambda: store.check_embedder(other.id, other.dim),
    ):
        with pytest.raises(EmbeddingMismatch, match="mulligan reembed"):
            act()
    assert store.reembed(other, batch=2) == 5
    assert store.embedder == ("hash:32", 32)
    assert {h.record_id for h in store.search("rivers", vector)} == {*keys} - {keys[1]}
    assert np.allclose(store.vectors(keys), other.embed([f"rivers {n}" for n in range(5)]))


def test_reembedding_changes_all_or_nothing(store: Store) -> None:
    class Failing(HashingEmbedder):
        def embed(self, texts):  # type: ignore[no-untyped-def]
            if texts[0].endswith("4"):
                raise StoreError("the endpoint went away")
            return super().embed(texts)

    for n in range(5):
        add(store, record(f"rivers {n}"))
    before = store.digest()
    with pytest.raises(StoreError, match="went away"):
        store.reembed(Failing(32), batch=2)
    assert store.digest() == before


# Deleting.


def test_deleting_a_scope_is_exact(store: Store) -> None:
    scopes = ["acme", "acme/sql", "acme/sql/x", "acmex", "acme0", "acme-", "Acme", "default"]
    keys = {scope: fill(store, scope) for scope in scopes}
    before = store.digest()
    for unknown in ("acme/s", "", "/", "acme%", "nobody", "*"):
        assert store.remove_scope(unknown) == {}
    assert store.digest() == before
    removed = store.remove_scope("acme")
    assert removed == dict.fromkeys(("tasks", "episodes", "records", "statistics", "vectors", "receipts", "checks"), 3) | {
        "attempts": 6,
        "proposals": 6,
        "decisions": 6,
    }
    assert {s.record.scope for s in store.records(scope=None)} == {*scopes} - {"acme", "acme/sql", "acme/sql/x"}
    (vector,) = EMBEDDER.embed(["rivers of acme"])
    assert store.search("rivers of acme", vector, scope="acme") == []
    assert [h.record_id for h in store.search("rivers of acme", vector, scope="acmex")] == [keys["acmex"]]
    assert store.problems() == []
    assert len(store.ledger()) == len(scopes)  # what was spent stays on the bill


def test_what_is_deleted_is_in_no_byte_of_the_files(tmp_path: Path) -> None:
    secret = "zanzibarsecret"
    with Store(tmp_path / "s.db") as store:
        fill(store)
        add(store, record(f"{secret} rivers", scope=secret))
        store.add_episode(episode(attempt(f"SELECT {secret}"), task=task(scope=secret)))
        store.remove_scope(secret)
        assert [path.name for path in tmp_path.iterdir() if secret.encode() in path.read_bytes()] == []


def test_a_deleted_record_is_not_recalled(store: Store) -> None:
    gone, kept = add(store, record("rivers a")), add(store, record("rivers b"))
    (vector,) = EMBEDDER.embed(["rivers a"])
    assert len(store.search("rivers a", vector)) == 2
    assert [store.remove_record(gone), store.remove_record(gone)] == [True, False]
    assert [h.record_id for h in store.search("rivers a", vector)] == [kept]
    with pytest.raises(StoreError, match="no record"):
        store.record(gone)
    assert store.problems() == []


# Transactions, threads, freezing.


def test_a_failed_transaction_leaves_nothing_and_an_inner_one_undoes_itself(store: Store) -> None:
    kept = add(store, record("kept"))
    (vector,) = EMBEDDER.embed(["x"])
    before = store.digest()
    with pytest.raises(ZeroDivisionError), store.transaction():
        gone = add(store, record("gone"))
        assert {h.record_id for h in store.search("x", vector)} == {kept, gone}
        store.set_status(kept, "stale", "")
        1 / 0  # noqa: B018
    assert store.digest() == before
    assert [h.record_id for h in store.search("x", vector)] == [kept]
    with store.transaction():
        outer = add(store, record("outer"))
        with pytest.raises(ZeroDivisionError), store.transaction():
            add(store, record("inner"))
            1 / 0  # noqa: B018
    assert {s.record.id for s in store.records()} == {kept, outer}


def test_threads_share_one_store(store: Store) -> None:
    def work(n: int) -> None:
        for i in range(25):
            key = add(store, record(f"thread {n} record {i}"))
            (vector,) = EMBEDDER.embed([f"thread {n}"])
            assert store.search(f"thread {n}", vector)
            store.settle(store.add_receipt(receipt(key)), "helped")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.counts()["records"] == 100
    assert {s.statistics.helped for s in store.records()} == {1}


WRITES: list[Callable[[Store], object]] = [
    lambda s: s.add_task(task(id="new")),
    lambda s: s.add_episode(episode(label="new")),
    lambda s: s.add_decisions("epi_0", 0, []),
    lambda s: add(s, record("new")),
    lambda s: s.set_status("rec_0", "stale", ""),
    lambda s: s.add_receipt(receipt(label="new")),
    lambda s: s.settle("rcp_0", "helped"),
    lambda s: s.add_usage("new", stage="s", usage=Usage()),
    lambda s: s.cache("new", Completion(text="", model="", usage=Usage()), ""),
    lambda s: s.reembed(EMBEDDER),
    lambda s: s.remove_record("rec_0"),
    lambda s: s.remove_scope("default"),
]


def test_a_frozen_store_answers_and_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        key = fill(store)
        digest, memory = store.digest(), store.digest(MEMORY)
    before = path.read_bytes()
    with Store(path, frozen=True) as store:
        for write in WRITES:
            with pytest.raises(StoreFrozen, match="frozen"):
                write(store)
        (vector,) = EMBEDDER.embed(["rivers"])
        assert [h.record_id for h in store.search("rivers", vector)] == [key]
        assert (store.digest(), store.digest(MEMORY)) == (digest, memory)
    assert path.read_bytes() == before
    with Store(path) as store:
        store.add_usage("another", stage="s", usage=Usage())
        assert store.digest(MEMORY) == memory and store.digest() != digest


def test_another_writer_is_seen(tmp_path: Path) -> None:
    (vector,) = EMBEDDER.embed(["rivers"])
    with Store(tmp_path / "s.db") as ours, Store(tmp_path / "s.db") as theirs:
        one = add(ours, record("rivers one"))
        assert [h.record_id for h in theirs.search("rivers", vector)] == [one]
        two = add(theirs, record("rivers two"))
        assert {h.record_id for h in ours.search("rivers", vector)} == {one, two}
        ours.settle(ours.add_receipt(receipt(one)), "helped")
        assert theirs.record(one).statistics.helped == 1
        theirs.set_status(one, "retired", "x")
        assert [h.record_id for h in ours.search("rivers", vector)] == [two]
        assert ours.record(one).status == "retired"


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    for act in (store.counts, store.episodes, lambda: store.add_task(task()), lambda: store.search("x", np.zeros(16, np.float32))):
        with pytest.raises(MulliganError, match="is closed"):
            act()  # type: ignore[operator]


def test_signals_can_be_queried(store: Store) -> None:
    store.add_decisions(store.add_episode(episode(attempt("a"))), 0, [refused("b")])
    assert [row[0] for row in store._rows("SELECT kind FROM signals ORDER BY proposal")] == ["missing_rows", "missing_rows"]
