"""Off-policy evaluation: simulated logs of known value, what a log cannot tell, points rebuilt from a store, the command."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, candidate, episode, record, situation, task
from mulligan.audit.offpolicy import Evaluation, evaluate
from mulligan.errors import UsageError
from mulligan.experiment.statistics import cluster_draws
from mulligan.memory import Memory, Settings
from mulligan.points import Point, rebuild
from mulligan.read.selection import Never, Threshold, Top1
from mulligan.records import Candidate, Receipt, Selection, Situation, Statistics, Task
from mulligan.store import Store
from test_cli import Call, call  # noqa: F401  # a fixture
from test_store import EMBEDDER, add
from toy import ToyWorld, toy_tasks

GOOD, BAD = (record(situation=name, domain="toy") for name in ("good", "bad"))
EFFECT = {GOOD.id: 0.3, BAD.id: -0.3}
NOTHING_LEFT = 1e-9


@dataclass(frozen=True)
class Picks:
    """Shows the record of that id wherever it is a candidate and near enough."""

    key: str
    least: float = 0.0
    name: str = "picks"

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        places = [n for n, c in enumerate(candidates) if c.record.id == self.key and c.similarity >= self.least]
        return Selection(chosen=places[0] if places else None, policy=self.name)


def met(draw: random.Random) -> tuple[Candidate, ...]:
    """Both records in some order, with statistics that tell which is which, at some distance."""
    known = (GOOD, Statistics(helped=8, hurt=1, ema=0.9)), (BAD, Statistics(helped=1, hurt=8, ema=0.1))
    made = [replace(candidate(draw.random()), record=r, statistics=s) for r, s in known]
    draw.shuffle(made)
    return tuple(made)


def chance(candidates: Sequence[Candidate], place: int | None) -> float:
    """How likely it is that the attempt solves its task: what memory does depends on how near it is."""
    if place is None:
        return 0.5
    return 0.5 + EFFECT[candidates[place].record.id] * (0.4 + 0.6 * candidates[place].similarity)


def point(n: int, candidates: Sequence[Candidate], chosen: int | None, p: float, utility: float, *, aside: bool = False) -> Point:
    keys = tuple(c.record.id for c in candidates)
    taken = () if chosen is None else (keys[chosen],)
    made = Receipt(
        task=f"t{n}",
        attempt=0,
        candidates=keys,
        similarities=tuple(c.similarity for c in candidates),
        shown=() if aside else taken,
        withheld=taken if aside else (),
        selection=Selection(chosen=chosen, propensity=p, policy="log"),
    )
    posed = situation(task=task(id=f"t{n}", group=f"g{n}"))
    return Point(situation=posed, candidates=tuple(candidates), receipt=made, utility=utility)


def uniform(size: int, seed: int) -> list[Point]:
    """A log of a policy that shows each of two records and none equally often."""
    draw, made = random.Random(seed), []
    for n in range(size):
        seen, shown = met(draw), draw.choice([None, 0, 1])
        made.append(point(n, seen, shown, 1 / 3, float(draw.random() < chance(seen, shown))))
    return made


def coin(size: int, seed: int, share: float = 0.2) -> list[Point]:
    """A log of a policy that always shows the first record, unless a coin withholds it."""
    draw, made = random.Random(seed), []
    for n in range(size):
        seen, aside = met(draw), draw.random() < share
        utility = float(draw.random() < chance(seen, None if aside else 0))
        made.append(point(n, seen, 0, share if aside else 1 - share, utility, aside=aside))
    return made


def truth(points: Sequence[Point], selector: Never | Top1 | Picks | Threshold) -> float:
    return float(np.mean([chance(p.candidates, selector.select(p.situation, p.candidates).chosen) for p in points]))


def values(found: Evaluation) -> dict[str, float]:
    named = {"ips": found.ips, "snips": found.snips, "robust": found.doubly_robust}
    return {name: estimate.value for name, estimate in named.items() if estimate.value is not None}


TARGETS = [Never(), Top1(), Picks(GOOD.id), Picks(BAD.id, 0.5)]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("log", [uniform, lambda size, seed: coin(size, seed, 0.4)], ids=["uniform", "coin"])
def test_estimates_are_unbiased_where_the_log_can_tell(log: Callable[[int, int], list[Point]], target: Never) -> None:
    errors: dict[str, list[float]] = {}
    for seed in range(60):
        points = log(200, seed)
        if log is not uniform and isinstance(target, Picks):
            points = [p for p in points if target.select(p.situation, p.candidates).chosen in (None, 0)]
        for name, value in values(evaluate(points, target, draws=10)).items():
            errors.setdefault(name, []).append(value - truth(points, target))
    assert set(errors) == {"ips", "snips", "robust"}
    for name, listed in errors.items():
        assert abs(np.mean(listed)) < 4 * np.std(listed) / np.sqrt(len(listed)), name


def test_the_model_makes_doubly_robust_more_certain_than_weights_alone() -> None:
    errors: dict[str, list[float]] = {}
    for seed in range(40):
        points = uniform(200, seed)
        for name, value in values(evaluate(points, Picks(GOOD.id), draws=10)).items():
            errors.setdefault(name, []).append((value - truth(points, Picks(GOOD.id))) ** 2)
    assert np.mean(errors["robust"]) < 0.6 * np.mean(errors["ips"])
    assert np.mean(errors["robust"]) < 1.1 * np.mean(errors["snips"])


def test_intervals_hold_the_truth() -> None:
    inside = {"ips": 0, "snips": 0, "doubly_robust": 0}
    for seed in range(100):
        points = uniform(150, seed)
        found = evaluate(points, Picks(GOOD.id), draws=400)
        for name in inside:
            ends = getattr(found, name)
            inside[name] += ends.low <= truth(points, Picks(GOOD.id)) <= ends.high
    assert all(held >= 85 for held in inside.values()), inside


@given(st.lists(st.floats(0, 1), min_size=40, max_size=60))
def test_the_policy_of_a_deterministic_log_is_valued_exactly(utilities: list[float]) -> None:
    draw = random.Random(1)
    points = [point(n, met(draw), 0, 1.0, utility) for n, utility in enumerate(utilities)]
    found = evaluate(points, Top1(), draws=50)
    mean = pytest.approx(np.mean(utilities), abs=1e-6)
    assert values(found) == {"ips": mean, "snips": mean, "robust": mean} and found.logged.value == mean
    assert found.difference.value == pytest.approx(0, abs=1e-6) and found.unknown == 0 and found.effective == len(points)
    assert not found.warnings


@given(st.data())
def test_what_holds_for_any_log(data: st.DataObject) -> None:
    draw, points = random.Random(data.draw(st.integers(0, 999))), []
    for n in range(data.draw(st.integers(0, 60))):
        shown, p = draw.choice([None, 0, 1]), data.draw(st.sampled_from([1.0, 0.95, 0.5, 0.05, 1e-6, 1e-11]))
        points.append(point(n, met(draw), shown, p, data.draw(st.floats(0, 1))))
    target, clip = data.draw(st.sampled_from(TARGETS)), data.draw(st.sampled_from([1.0, 10.0]))
    found = evaluate(points, target, clip=clip, draws=20)
    assert found == evaluate(points, target, clip=clip, draws=20)
    assert found.effective <= found.agree + NOTHING_LEFT and found.agree + found.unknown <= found.points == len(points)
    for estimate in (found.ips, found.snips, found.doubly_robust):
        assert estimate.low is None or estimate.high is None or estimate.low <= estimate.high
    if found.snips.value is not None:
        assert 0 <= found.snips.value <= 1
        mixed = evaluate(draw.sample(points, len(points)), target, clip=clip, draws=20)
        assert values(mixed) == pytest.approx(values(found), abs=1e-6)
    assert found.warnings or (found.effective >= 30 and not found.unknown)


# ---- what a log cannot tell ----


def test_nothing_is_claimed_where_nothing_was_left_to_chance() -> None:
    draw = random.Random(2)
    points = [point(n, met(draw), 0, 1.0, 1.0) for n in range(200)]
    found = evaluate(points, Never())
    assert found.unknown == 200 and values(found) == {} and found.ips.low is None
    assert "nothing in this log was left to chance" in found.warnings[0] and "too few" in " ".join(found.warnings)
    half = evaluate(points, Threshold(least=0.5))
    assert 0 < half.unknown < 200 and values(half) == {}
    assert half.snips.low is not None and half.snips.high is not None
    assert half.snips.high - half.snips.low == pytest.approx(half.unknown / 200, abs=0.15)  # any outcome is allowed for there


def test_a_coin_tells_of_skipping_and_of_no_other_record() -> None:
    points = coin(600, 3)
    skipping, other = evaluate(points, Never()), evaluate(points, Top1(place=1))
    assert skipping.unknown == 0 and skipping.snips.value == pytest.approx(0.5, abs=0.1)
    assert other.unknown == 600 and values(other) == {}
    assert not any("left to chance" in warning for warning in skipping.warnings)


def test_cut_weights_are_said() -> None:
    points = coin(600, 4, share=0.05)
    found, whole = evaluate(points, Never(), clip=10), evaluate(points, Never())
    assert found.clipped == found.agree > 0 and "cut" in " ".join(found.warnings)
    assert whole.clipped == 0 and "cut" not in " ".join(whole.warnings)
    assert found.ips.value is not None and whole.ips.value is not None and found.ips.value == pytest.approx(whole.ips.value / 2, abs=1e-5)


def test_wrong_propensities_are_noticed() -> None:
    wrong = [replace(p, receipt=replace(p.receipt, selection=replace(p.receipt.selection, propensity=0.9))) for p in uniform(300, 5)]
    assert "mean of" in " ".join(evaluate(wrong, Never()).warnings)
    assert "mean of" not in " ".join(evaluate(uniform(300, 5), Never()).warnings)


def test_a_policy_that_draws_and_a_coin_do_not_count_skipping_twice() -> None:
    draw, points = random.Random(6), []
    for n in range(2_000):
        seen, chosen = met(draw), draw.choice([None, 0, 1])
        aside = chosen is not None and draw.random() < 0.5
        utility = float(draw.random() < chance(seen, None if aside else chosen))
        points.append(point(n, seen, chosen, 1 / 3 if chosen is None else 1 / 6, utility, aside=aside))
    found = evaluate(points, Never())
    assert found.ips.value == pytest.approx(0.5, abs=0.07) and not found.unknown


def test_points_that_say_nothing_are_counted() -> None:
    draw = random.Random(7)
    none, odd, unfit = (point(n, met(draw), 0, 1.0, 1.0) for n in range(3))
    none = replace(none, candidates=(), receipt=replace(none.receipt, candidates=(), shown=()))
    odd = replace(odd, receipt=replace(odd.receipt, selection=replace(odd.receipt.selection, propensity=5e-324)))
    unfit = replace(unfit, receipt=replace(unfit.receipt, shown=()))
    found = evaluate([none, odd, unfit], Top1())
    assert (found.points, sum(found.left_out.values()), len(found.left_out)) == (0, 3, 3)
    assert found.logged.value is None and "nothing to estimate" in found.warnings[0]


def test_a_selector_that_chooses_what_is_not_there_is_named() -> None:
    class Odd(Top1):
        def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
            return Selection(chosen=len(candidates), policy="odd")

    with pytest.raises(UsageError, match="top1"):
        evaluate(uniform(3, 0), Odd())


def test_draws_come_in_blocks_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = np.arange(60.0).reshape(30, 2)
    whole = cluster_draws(columns, range(30), 500)
    monkeypatch.setattr("mulligan.experiment.statistics.BLOCK", 70)
    assert np.array_equal(cluster_draws(columns, range(30), 500), whole)


# ---- points from a store ----


def logged(store: Store, asked: Task, settings: Settings, utility: float | None) -> Receipt:
    memory = Memory(store, ToyWorld(), embedder=EMBEDDER, settings=settings)
    receipt = memory.recall(asked).receipt
    memory.settle(receipt, utility=utility)
    return receipt


ALL = Settings(conditions=False, min_score=-1.0, withheld=Fraction(0))


def test_points_are_rebuilt_as_selectors_saw_them() -> None:
    with Store(":memory:") as store:
        for name in ("one", "two"):
            add(store, record(situation=f"say three words {name}", domain="toy"))
        told = replace(toy_tasks(1)[0], id="x", group="x")
        first = attempt("one two red", state="s")
        receipt = replace(logged(store, told, ALL, None), attempt=1)
        store.add_episode(episode(first, attempt("one two three", 1), task=told, receipts=(receipt,)))
        store.add_receipt(receipt)
        store.add_utility(receipt.id, 1.0)
        logged(store, replace(told, id="y", group="y"), ALL, 0.5)
        before = store.digest()
        found = rebuild(store)
        assert store.digest() == before and found.left_out == {}
        [known, alone] = found.points
        assert known.situation.task == told and [a.action for a in known.situation.history] == ["one two red"]
        assert tuple(c.record.id for c in known.candidates) == receipt.candidates and known.done == known.chosen == (0,)
        assert [c.similarity for c in known.candidates] == list(receipt.similarities)
        assert [c.score for c in known.candidates] == sorted((c.score for c in known.candidates), reverse=True)
        assert alone.situation.task.id == "y" and alone.situation.task.prompt == "" and alone.utility == 0.5
        assert evaluate(found.points, Top1()).agree == 2
        assert rebuild(store, "elsewhere").points == ()


def test_receipts_that_do_not_say_what_was_seen_are_left_out() -> None:
    with Store(":memory:") as store:
        key, gone = (add(store, record(situation=name, domain="toy")) for name in ("here", "gone"))
        whole = Receipt(
            task="t", attempt=0, candidates=(key,), similarities=(0.9,), shown=(key,), selection=Selection(chosen=0, policy="top1")
        )
        odd = [
            replace(whole, similarities=()),
            replace(whole, selection=replace(whole.selection, chosen=7)),
            replace(whole, selection=replace(whole.selection, chosen=-1)),
            replace(whole, shown=("rec_nobody",)),
            replace(whole, candidates=(key, gone), similarities=(0.9, 0.8)),
        ]
        for receipt in (whole, *odd):
            store.add_receipt(receipt)
            store.add_utility(receipt.id, 1.0)
        store.remove_record(gone)
        found = rebuild(store)
        assert [p.receipt for p in found.points] == [whole]
        assert found.left_out == {"the receipt does not say what was seen": 4, "a candidate is no longer stored": 1}


# ---- the command ----


class Trained:
    """A selector that wants weights."""

    name = "trained"

    def __init__(self, weights: Path) -> None:
        self._least = float(weights.read_text())

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        return Threshold(least=self._least).select(situation, candidates)


def test_the_command(call: Call, tmp_path: Path) -> None:  # noqa: F811
    with Store(tmp_path / "mulligan.db") as store:
        add(store, record(situation=toy_tasks(1)[0].prompt, domain="toy"))
        for n in range(120):
            asked = replace(toy_tasks(1)[0], id=f"x{n}", group=f"x{n}", split="heldout")
            logged(store, asked, replace(ALL, withheld=Fraction(1, 2)), float(n % 3 == 0))
    status, out, err = call("offpolicy", "--selector", "never")
    assert status == 0 and "doubly robust" in out and "120 logged" in " ".join(out.split())
    assert max(map(len, (out + err).splitlines())) <= 80
    told = json.loads(call("offpolicy", "--selector", "never", "--json")[1])
    assert told["evaluation"]["unknown"] == 0 and 0.1 < told["evaluation"]["doubly_robust"]["value"] < 0.6
    assert "fitted" in call("offpolicy", "--selector", "utility")[2]
    (tmp_path / "weights").write_text("2.0")
    trained = json.loads(call("offpolicy", "--selector", "test_offpolicy:Trained", "--weights", tmp_path / "weights", "--json")[1])
    assert trained["evaluation"]["doubly_robust"] == told["evaluation"]["doubly_robust"]
    assert call("offpolicy", "--selector", "nonsense")[0] == 2
    assert call("offpolicy", "--selector", "never", "--store", "missing.db")[0] != 0
