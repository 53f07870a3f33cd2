"""One pool for parallel work: checks in processes, tasks of an experiment in threads.

`run` yields results in the order of the items. `workers=0` works in the calling thread, which tests and single queries use. A
worker process that dies (a candidate crashed it) costs its own item, given back as `WorkerDied`; the others are run again in a
fresh pool. A cluster's executor needs the same two methods.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Literal, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerDied:
    """Stands for the result of an item whose worker process was killed or crashed."""


class Pool:
    """A pool of `workers` processes or threads, started on first use. Many threads may use one pool at once."""

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
        futures = [self._submit(function, item) for item in work]
        try:
            for item, future in zip(work, futures, strict=True):
                try:
                    yield future.result()
                except BrokenProcessPool:  # by this item or by another one that was under way: tried again by itself
                    yield _alone(function, item)
        finally:
            for future in futures:
                future.cancel()

    def _submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        with self._lock:
            try:
                return self._started().submit(function, item)
            except BrokenProcessPool:
                self._executor = None
                return self._started().submit(function, item)

    def _started(self) -> Executor:
        if self._executor is None:
            self._executor = _processes(self.workers) if self._kind == "process" else ThreadPoolExecutor(self.workers)
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


def _alone(function: Callable[[Item], Result], item: Item) -> Result | WorkerDied:
    with _processes(1) as fresh:
        try:
            return fresh.submit(function, item).result()
        except BrokenProcessPool:
            return WorkerDied()


def _processes(workers: int) -> ProcessPoolExecutor:
    # spawn: forking a process that has threads can deadlock
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """In a worker: leave Ctrl-C to the parent, and end with it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent := multiprocessing.parent_process():

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()
