"""Metrics and paired statistics, against values worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, episode, task
from mulligan.experiment.metrics import arm_metrics, outcome
from mulligan.experiment.statistics import cluster_interval, mcnemar
from mulligan.records import Episode, Receipt, Selection


@pytest.mark.parametrize(
    ("rescued", "broken", "p"),
    [(17, 11, 0.3449), (0, 0, 1.0), (5, 0, 0.0625), (6, 2, 0.2891), (1, 1, 1.0), (25, 0, 2 / 2**25)],
)
def test_mcnemar(rescued: int, broken: int, p: float) -> None:
    assert mcnemar(rescued, broken) == pytest.approx(p, abs=5e-5)
    assert mcnemar(broken, rescued) == mcnemar(rescued, broken)


def interval(values: Sequence[float], clusters: Sequence[int]) -> tuple[float, float]:
    found = cluster_interval(values, clusters)
    assert found is not None
    return found


def test_cluster_interval_of_independent_values_is_the_binomial_one() -> None:
    low, high = interval([1.0] * 50 + [0.0] * 50, range(100))
    assert low == pytest.approx(0.40, abs=0.015) and high == pytest.approx(0.60, abs=0.015)


def test_clusters_widen_the_interval() -> None:
    values = [1.0] * 50 + [0.0] * 50
    low, high = interval(values, [i // 25 for i in range(100)])
    assert (low, high) == (0.0, 1.0)


def test_no_values_no_interval() -> None:
    assert cluster_interval([], []) is None


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_interval_holds_within_the_range_of_the_values(values: list[float]) -> None:
    low, high = interval(values, range(len(values)))
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


@pytest.mark.parametrize(
    ("now", "then", "expected"),
    [
        (1, 0, "helped"),
        (0, 1, "hurt"),
        (1, 1, "neutral"),
        (Fraction(11, 20), Fraction(1, 2), "neutral"),
        (Fraction(12, 20), Fraction(1, 2), "helped"),
    ],
)
def test_outcome(now: Fraction, then: Fraction, expected: str) -> None:
    assert outcome(Fraction(now), Fraction(then)) == expected


def receipt(task_id: str, place: int, *, candidates: int, shown: bool) -> Receipt:
    ids = tuple(f"r{n}" for n in range(candidates))
    return Receipt(
        task=task_id, attempt=place, candidates=ids, shown=ids[:1] if shown else (), selection=Selection(chosen=None, policy="p")
    )


def played(name: str, *actions: tuple[str, int], receipts: tuple[Receipt, ...] = ()) -> Episode:
    attempts = [
        attempt(action, utility, receipt=r.id if r else "") for (action, utility), r in zip(actions, receipts or [None] * 9, strict=False)
    ]
    return replace(episode(*attempts), task=task(id=name, group=name), receipts=receipts)


def test_an_arm_by_hand() -> None:
    none = {
        "a": played("a", ("x", 0), ("x2", 0)),
        "b": played("b", ("y", 1)),
        "c": played("c", ("z", 0)),
        "d": played("d", ("w", 0), ("v", 1)),
    }
    use = {name: receipt(name, 0, candidates=2, shown=True) for name in "abc"}
    late = receipt("d", 1, candidates=1, shown=True)
    arm = {
        "a": played("a", ("better", 1), receipts=(use["a"],)),  # rescued
        "b": played("b", ("worse", 0), receipts=(use["b"],)),  # broken, harmful
        "c": played("c", ("z", 0), receipts=(use["c"],)),  # shown, unchanged
        "d": played("d", ("other", 0), ("v", 1), receipts=(receipt("d", 0, candidates=0, shown=False), late)),  # another history
    }
    m = arm_metrics("top1", arm, none)
    assert (m.rescued, m.broken, m.net, m.p) == (1, 1, 0, 1.0)
    assert str(m.solved) == "2/4"
    assert str(m.coverage) == "4/5"
    assert str(m.used) == "4/5"
    assert str(m.harmful) == "1/3" and str(m.changed) == "2/3" and m.unpaired == 1
    assert m.failed_attempts == 3
    assert m.score == pytest.approx(50)
    assert m.difference == 0


def test_an_arm_without_anything_has_no_rates() -> None:
    m = arm_metrics("none", {"a": played("a", ("x", 0))}, {"a": played("a", ("x", 0))})
    assert m.harmful.value is None and m.per_solved(10) is None


def test_hidden_tests_count_of_last_actions_alone() -> None:
    def judged(name: str, *hidden: str) -> Episode:
        made = played(name, *((f"x{n}", 1) for n in range(len(hidden))))
        verdicts = [replace(a.verdict, hidden=Fraction(h), solved=h == "1") for a, h in zip(made.attempts, hidden, strict=True)]
        return replace(made, attempts=tuple(replace(a, verdict=v) for a, v in zip(made.attempts, verdicts, strict=True)))

    plays = {"a": judged("a", "0", "1"), "b": judged("b", "1/2"), "c": played("c", ("y", 1))}
    m = arm_metrics("none", plays, plays)
    assert (str(m.visible), m.hidden, str(m.solved)) == ("2/2", Fraction(3, 4), "2/3")
