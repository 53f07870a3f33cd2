"""Causal credit: the coin, the effect with its interval, and logs in which a lesson looks good and harms."""

import json
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, episode, record
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import UsageError
from mulligan.memory import Memory, Settings
from mulligan.read.credit import LEAST, Effect, effects, is_withheld
from mulligan.records import Receipt, Selection
from mulligan.store import Store
from test_cli import Call, call  # noqa: F401  # a fixture
from test_store import add
from toy import ToyWorld, toy_tasks

EMBEDDER = HashingEmbedder(16)  # that of the stores in test_store


def receipt(number: int, key: str, *, withheld: bool = False, propensity: float = 1.0) -> Receipt:
    return Receipt(
        task=f"t{number}",
        attempt=0,
        candidates=(key,),
        shown=() if withheld else (key,),
        withheld=(key,) if withheld else (),
        selection=Selection(chosen=0, policy="test", propensity=propensity),
    )


# ---- the coin ----


def test_the_coin_is_fair_and_always_the_same() -> None:
    tossed = [is_withheld("s", f"t{n}", 0, Fraction(1, 20)) for n in range(4_000)]
    assert 150 < sum(tossed) < 250 and tossed == [is_withheld("s", f"t{n}", 0, Fraction(1, 20)) for n in range(4_000)]
    assert not any(is_withheld("s", f"t{n}", 0, Fraction(0)) for n in range(99))
    assert all(is_withheld("s", f"t{n}", 0, Fraction(1)) for n in range(99))
    assert [is_withheld("s", "t", n, Fraction(1, 2)) for n in range(40)] != [is_withheld("r", "t", n, Fraction(1, 2)) for n in range(40)]


def recalled(share: Fraction, store: Store) -> list[Receipt]:
    memory = Memory(store, ToyWorld(), embedder=EMBEDDER, settings=Settings(withheld=share, conditions=False, min_score=-1.0))
    found = []
    for n in range(60):
        guidance = memory.recall(replace(toy_tasks(1)[0], id=f"x{n}", group=f"x{n}", split="heldout"))
        assert bool(guidance.text) == bool(guidance.receipt.shown) == bool(guidance.records)
        found.append(guidance.receipt)
    return found


def test_recall_withholds_a_share_with_its_propensity_and_writes_nothing() -> None:
    with Store(":memory:") as store:
        key = add(store, record(situation=toy_tasks(1)[0].prompt, domain="toy"))
        before = store.digest()
        receipts = recalled(Fraction(1, 4), store)
        assert store.digest() == before
        aside = [r for r in receipts if r.withheld]
        assert 5 < len(aside) < 27 and all(r.withheld == (key,) and r.shown == () for r in aside)
        assert (
            {r.selection.propensity for r in receipts}
            == {0.25, 0.75}
            == {r.selection.propensity for r in receipts if bool(r.withheld) or r.shown}
        )
        assert all((r.selection.propensity == 0.25) == bool(r.withheld) for r in receipts)
        assert {r.selection.propensity for r in recalled(Fraction(0), store)} == {1.0}


# ---- effects ----


def test_an_effect_is_the_difference_of_the_means() -> None:
    results = [(receipt(n, "a"), 1.0) for n in range(6)] + [(receipt(n, "a", withheld=True), 0.5) for n in range(6, 10)]
    [found] = effects(results)
    assert (found.shown, found.withheld, found.with_record, found.without, found.effect) == (6, 4, 1.0, 0.5, 0.5)
    assert found.low is not None and found.high is not None and found.low < 0.5 < 1 and found.high - found.low > 0.5  # few: wide
    assert not found.harms
    assert effects([(receipt(1, "b"), 0.0)])[0] == Effect(
        record="b", shown=1, withheld=0, with_record=0.0, without=None, effect=None, low=None, high=None
    )
    assert effects([]) == []


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=40), st.randoms())
def test_effects_do_not_depend_on_the_order_and_never_harm_on_few(pairs: list[tuple[bool, float]], draw: random.Random) -> None:
    results = [(receipt(n, "a", withheld=aside, propensity=0.05 if aside else 0.95), u) for n, (aside, u) in enumerate(pairs)]
    [found] = effects(results)
    mixed = list(results)
    draw.shuffle(mixed)
    [other] = effects(mixed)
    assert found.effect == pytest.approx(other.effect) and found.low == pytest.approx(other.low)
    if found.effect is not None and found.low is not None and found.high is not None:
        assert -1 <= found.effect <= 1 and found.low <= found.high
    assert not found.harms or min(found.shown, found.withheld) >= LEAST


# ---- simulated logs ----


def simulated(seed: int, *, harm: float, size: int = 3_000, share: float = 0.05) -> tuple[list[tuple[Receipt, float]], float]:
    """A lesson that is chosen on easy tasks alone: its log, and how much better its attempts look than all others."""
    draw, results, others = random.Random(seed), [], []
    for n in range(size):
        easy = draw.random() < 0.5
        base = 0.9 if easy else 0.3
        if not easy:
            others.append(float(draw.random() < base))
            continue
        aside = draw.random() < share
        solved = draw.random() < (base if aside else base - harm)
        results.append((receipt(n, "lesson", withheld=aside, propensity=share if aside else 1 - share), float(solved)))
    seen = [u for r, u in results if r.shown]
    return results, sum(seen) / len(seen) - sum(others) / len(others)


def test_a_lesson_that_looks_good_and_harms_ends_quarantined() -> None:
    caught = 0
    for seed in range(20):
        results, looks = simulated(seed, harm=0.35)
        assert looks > 0.15  # in observation it is the better one
        caught += effects(results)[0].harms
    assert caught == 20


def test_a_harmless_popular_lesson_is_left_alone() -> None:
    wrong = sum(effects(simulated(seed, harm=0.0)[0])[0].harms for seed in range(200))
    assert wrong <= 10  # one in twenty at most; the figure that was found is in docs/freshness.md


def test_quarantine_takes_it_out_of_recall_with_the_reason(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        bad, good = add(store, record("bad")), add(store, record("good"))
        memory = Memory(store, ToyWorld(), embedder=EMBEDDER)
        for n in range(40):
            memory.settle(receipt(n, bad, withheld=n % 2 == 0, propensity=0.5), utility=float(n % 2 == 0))
            memory.settle(receipt(100 + n, good, withheld=n % 2 == 0, propensity=0.5), utility=1.0)
        assert [e.record for e in memory.quarantine()] == [bad]
        assert store.record(bad).status == "stale" and store.record(good).status == "active"
        assert store.record(bad).reason.startswith("quarantined: -1.00 (") and "rule interval<0" in store.record(bad).reason
        assert memory.quarantine() == []
        with pytest.raises(UsageError, match="between 0 and 1"):
            memory.settle(receipt(1, bad), utility=1.5)


def test_learning_reports_how_attempts_went() -> None:
    with Store(":memory:") as store, ToyWorld().start(toy_tasks(1)[0]) as state:
        key = add(store, record(domain="toy"))
        memory = Memory(store, ToyWorld(), embedder=EMBEDDER)
        source = toy_tasks(1)[0]
        shown = replace(receipt(0, key), task=source.id)
        failed = attempt("one two red", verdict=ToyWorld().act(state, "one two red"), state=state.digest, receipt=shown.id)
        memory.learn(episode(failed, task=source, receipts=(shown,)))
        assert [(r.receipt, round(r.utility, 3)) for r in store.results()] == [(shown, 0.333)]


def test_the_command(call: Call, tmp_path: Path) -> None:  # noqa: F811
    with Store(tmp_path / "mulligan.db") as store:
        bad = add(store, record("bad"))
        memory = Memory(store, ToyWorld(), embedder=EMBEDDER)
        for n in range(40):
            memory.settle(receipt(n, bad, withheld=n % 2 == 0, propensity=0.5), utility=float(n % 2 == 0))
    status, out, _ = call("credit")
    assert status == 0 and "harms" in out and "--apply" in out and max(map(len, out.splitlines())) <= 80
    found = json.loads(call("credit", "--apply", "--json")[1])
    assert found["harmful"] == [bad] and found["effects"][0]["effect"] == -1.0
    with Store(tmp_path / "mulligan.db") as store:
        assert store.record(bad).status == "stale"
