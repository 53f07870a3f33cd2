"""One pool for parallel work: checks in processes, tasks of an experiment in threads.

`run` yields results in the order of the items. `workers=0` works in the calling thread, which tests and single queries use. A
worker process that dies (a candidate crashed it) costs its own item, given back as `WorkerDied`; the others are run again in a
fresh pool. A cluster's executor needs the same two methods.
"""

import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Literal, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerDied:
    """Stands for the result of an item whose worker process was killed or crashed."""


class Pool:
    """A pool of `workers` processes or threads, started on first use."""

    def __init__(self, workers: int = 0, kind: Literal["process", "thread"] = "process") -> None:
        self.workers = workers
        self._kind = kind
        self._executor: Executor | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result | WorkerDied]:
        """`function` of each item, in order. Exceptions of `function` are raised when their item's turn comes."""
        if self.workers == 0:
            yield from map(function, items)
            return
        work = list(items)
        futures = [self._start().submit(function, item) for item in work]
        try:
            for item, future in zip(work, futures, strict=True):
                try:
                    yield future.result()
                except BrokenProcessPool:
                    yield self._alone(function, item)
        finally:
            for future in futures:
                future.cancel()

    def _alone(self, function: Callable[[Item], Result], item: Item) -> Result | WorkerDied:
        self.close()
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            try:
                return fresh.submit(function, item).result()
            except BrokenProcessPool:
                return WorkerDied()

    def _start(self) -> Executor:
        with self._lock:
            if self._executor is None:
                if self._kind == "thread":
                    self._executor = ThreadPoolExecutor(self.workers, thread_name_prefix="mulligan")
                else:  # spawn: forking a process that has threads can deadlock
                    self._executor = ProcessPoolExecutor(self.workers, mp_context=multiprocessing.get_context("spawn"))
            return self._executor

    def close(self) -> None:
        """Stop the workers; the pool can be used again afterwards."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
