"""The pool keeps the order, raises where it should, and outlives a worker that dies."""

import os
import time

import pytest

from mulligan.pool import Pool, WorkerDied


def late_square(n: int) -> int:
    time.sleep(0.02 * (3 - n % 3))
    return n * n


def fatal(n: int) -> int:
    if n == 1:
        os._exit(3)
    return n


@pytest.mark.parametrize(("workers", "kind"), [(0, "process"), (3, "thread")])
def test_results_come_in_order(workers: int, kind: str) -> None:
    with Pool(workers, kind) as pool:  # type: ignore[arg-type]
        assert list(pool.run(late_square, range(6))) == [n * n for n in range(6)]


@pytest.mark.timeout(60)
def test_a_dead_worker_costs_its_own_item_alone() -> None:
    with Pool(1) as pool:
        first, second, third = pool.run(fatal, [0, 1, 2])
        assert (first, third) == (0, 2)
        assert isinstance(second, WorkerDied)
        assert list(pool.run(fatal, [5])) == [5]


def test_an_error_is_raised_at_its_turn() -> None:
    with Pool(2, "thread") as pool, pytest.raises(ZeroDivisionError):
        list(pool.run(lambda n: 1 / n, [1, 0]))


@pytest.mark.timeout(60)
def test_many_threads_share_a_pool_that_breaks() -> None:
    def ask(n: int) -> list[object]:
        return list(pool.run(fatal, [n, 1, n]))

    with Pool(2) as pool, Pool(4, "thread") as callers:
        for n, results in zip(range(2, 8), callers.run(ask, range(2, 8)), strict=True):
            assert isinstance(results, list)
            assert (results[0], results[2]) == (n, n)
            assert isinstance(results[1], WorkerDied)
