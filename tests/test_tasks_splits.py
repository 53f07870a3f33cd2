"""Splits: whole groups, met shares, nothing that depends on order; and fair subsets."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Split, Task
from mulligan.tasks.splits import assign_splits, check_splits, sample_tasks


def task(number: int, group: str, split: Split = "source") -> Task:
    return Task(id=f"t{number}", domain="sql", benchmark="b", group=group, split=split, prompt="?", payload={})


sets = st.lists(st.integers(0, 12), max_size=60).map(lambda groups: [task(i, f"g{g}") for i, g in enumerate(groups)])
weights = st.tuples(*3 * [st.integers(0, 100)]).filter(any)


@given(tasks=sets, shares=weights, seed=st.integers())
def test_groups_stay_whole_and_shares_are_met_up_to_one_group(tasks: list[Task], shares: tuple[int, int, int], seed: int) -> None:
    dealt = assign_splits(tasks, shares=shares, seed=seed)
    check_splits(dealt)
    assert [t.id for t in dealt] == [t.id for t in tasks]
    counts, largest = Counter(t.split for t in dealt), max(Counter(t.group for t in tasks).values(), default=0)
    for split, share in zip(("source", "train", "heldout"), shares, strict=True):
        assert counts[split] <= len(tasks) * share / sum(shares) + largest
        assert share or not counts[split]


@given(tasks=sets, seed=st.integers(), random=st.randoms(use_true_random=False))
def test_the_order_of_the_tasks_does_not_matter(tasks: list[Task], seed: int, random: object) -> None:
    shuffled = list(tasks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random
    assert {t.id: t.split for t in assign_splits(tasks, seed=seed)} == {t.id: t.split for t in assign_splits(shuffled, seed=seed)}
    assert {t.id for t in sample_tasks(tasks, 7, seed=seed)} == {t.id for t in sample_tasks(shuffled, 7, seed=seed)}


def test_splits_are_the_same_on_every_machine_and_differ_by_seed() -> None:
    tasks = [task(i, f"g{i % 10}") for i in range(100)]
    first = [t.split[0] for t in assign_splits(tasks)[:10]]
    assert "".join(first) == "hststsshsh"
    assert first != [t.split[0] for t in assign_splits(tasks, seed=1)[:10]]
    assert Counter(t.split for t in assign_splits(tasks)) == {"source": 50, "train": 20, "heldout": 30}


@pytest.mark.parametrize("shares", [(1, 1), (0, 0, 0), (1, -1, 1), (float("nan"), 1, 1), (float("inf"), 1, 1)])
def test_shares_that_mean_nothing_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="three weights"):
        assign_splits([task(1, "g")], shares=shares)


def test_a_group_that_crosses_is_named() -> None:
    check_splits([task(1, "a"), task(2, "a"), task(3, "b", "heldout")])
    with pytest.raises(InvalidData, match="group 'a' is in source and in heldout"):
        check_splits([task(1, "a"), task(2, "b"), task(3, "a", "heldout")])


def test_an_id_that_comes_twice_is_named() -> None:
    with pytest.raises(InvalidData, match="two tasks have the id 't1'"):
        check_splits([task(1, "a"), task(1, "a")])


@given(tasks=sets, n=st.integers(0, 70), seed=st.integers())
def test_a_sample_has_the_size_and_as_many_groups_as_it_can(tasks: list[Task], n: int, seed: int) -> None:
    drawn = sample_tasks(tasks, n, seed=seed)
    assert len(drawn) == min(n, len(tasks))
    assert [t for t in tasks if t in drawn] == drawn
    assert len({t.group for t in drawn}) == min(n, len({t.group for t in tasks}))


@given(tasks=sets, n=st.integers(0, 70), seed=st.integers())
def test_a_larger_sample_holds_the_smaller_one(tasks: list[Task], n: int, seed: int) -> None:
    assert {t.id for t in sample_tasks(tasks, n, seed=seed)} <= {t.id for t in sample_tasks(tasks, n + 1, seed=seed)}


def test_samples_differ_by_seed_and_refuse_less_than_nothing() -> None:
    tasks = [task(i, "g") for i in range(100)]
    assert sample_tasks(tasks, 10) != sample_tasks(tasks, 10, seed=1)
    with pytest.raises(UsageError, match="cannot draw -1"):
        sample_tasks(tasks, -1)
