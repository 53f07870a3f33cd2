"""Recall without model calls: embed, filter, search, select, render, and the facts that the SQL world computes first.

Every call asks a question that was not asked before. The reference is the least that could be done: the same embedding, an exact
search in numpy, and a SELECT of the three nearest records' texts, which are not even parsed. Beside mem0 both sides embed with the
same vectors; see mem0_search.py.
"""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from bench.figures import Clock, Figure, Scale, clocked, figure, in_turns
from bench.library import Question, build, failed, fill, heldout_tasks, source_tasks
from bench.mem0_search import Mem0
from mulligan.embeddings import StaticEmbedder
from mulligan.memory import Memory
from mulligan.protocols import Embedder
from mulligan.records import Task
from mulligan.store import Store
from mulligan.worlds.sql import SqlWorld

BARS = {200: 1.0, 2_000: 2.0, 100_000: 15.0}  # records → milliseconds
MEM0_BAR = {2_000: 0.1}  # records → share of mem0's time
LEAST = "embed, exact search, SELECT"
OPENINGS = 5
TURN = 11  # searches of one process before the other's turn
WORLD = SqlWorld()


class Bare:
    """The least that a recall could do on the same file."""

    def __init__(self, path: Path, embedder: Embedder) -> None:
        self._embedder = embedder
        self._connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        rows = self._connection.execute("SELECT record, vector FROM vectors").fetchall()
        self._ids = [key for key, _ in rows]
        self._matrix = np.frombuffer(b"".join(vector for _, vector in rows), "<f4").reshape(len(rows), -1)

    def nearest(self, text: str) -> list[str]:
        """The texts of the three nearest records."""
        (vector,) = self._embedder.embed([text])
        scores = np.vecdot(self._matrix, vector)
        best = np.argpartition(-scores, 2)[:3]
        sql = "SELECT body FROM records WHERE id = ?"
        return [self._connection.execute(sql, (self._ids[row],)).fetchone()[0] for row in best[np.argsort(-scores[best])]]

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def recall(scale: Scale, folder: Path, mem0: Mem0 | None = None) -> Iterator[Figure]:
    """Recalls at every size, then how they grew, then those beside mem0."""
    database, embedder = build(folder / "library.sqlite"), StaticEmbedder()
    warm: list[Figure] = []
    for size in scale.sizes:
        path = folder / f"recall{size}.db"
        learnt, (asked, retried) = source_tasks(size, database), (heldout_tasks(scale.times * 4 // 3, database, seed) for seed in (2, 4))
        with Store(path) as store:
            fill(store, WORLD, embedder, learnt)
        yield _openings(path, embedder, heldout_tasks(2 * OPENINGS, database, seed=3))
        with Store(path, frozen=True) as store, closing(Bare(path, embedder)) as bare:
            memory = Memory(store, WORLD, embedder=embedder)
            found = list(_recalls(memory, bare, asked, retried, size))
            warm.append(found[0])
            yield from found
            if mem0 and size <= mem0.most:
                yield _beside_mem0(memory, mem0, learnt, heldout_tasks(min(scale.times, 100), database, seed=5), size)
    yield from _growth(warm)


def _openings(path: Path, embedder: Embedder, asked: list[tuple[Question, Task]]) -> Figure:
    """The first recall after the store is opened: reads all vectors, looks words up, measures the embedder."""

    def ours(n: int) -> None:
        with Store(path, frozen=True) as store:
            Memory(store, WORLD, embedder=embedder).recall(asked[n][1])
            opened.append(store.counts()["records"])

    def theirs(n: int) -> None:
        with closing(Bare(path, embedder)) as bare:
            bare.nearest(asked[OPENINGS + n][1].prompt)

    opened: list[int] = []
    cold, least = in_turns(OPENINGS, clocked(ours), clocked(theirs))
    return figure("open and recall once", cold, "read all vectors, search", least, size=opened[0])


def _recalls(
    memory: Memory, bare: Bare, asked: list[tuple[Question, Task]], retried: list[tuple[Question, Task]], size: int
) -> Iterator[Figure]:
    """Warm recalls: the last quarter of the questions is asked beforehand."""
    times = len(asked) * 3 // 4
    shown: list[bool] = []

    def first(n: int) -> None:
        shown.append(bool(memory.recall(asked[n][1])))

    def again(n: int) -> None:
        memory.recall(retried[n][1], [failed(retried[n][0])], max_attempts=3)

    clocks: list[Clock] = [
        clocked(first),
        clocked(again),
        clocked(lambda n: WORLD.facts(asked[n][1])),
        clocked(lambda n: bare.nearest(asked[n][1].prompt)),
    ]
    for n in range(times, len(asked)):
        first(n)
        again(n)
    warm, after, facts, least = in_turns(times, *clocks)
    bar = BARS.get(size)
    yield figure("recall", warm, LEAST, least, size=size, bar=bar)
    yield figure("recall after a failed attempt", after, LEAST, least, size=size, bar=bar)
    yield figure("the question's facts, a part of recall", facts, "recall", warm, size=size)
    yield Figure(name="recalls that showed a lesson", size=size, unit="share", p50=sum(shown) / len(shown), n=len(shown))


def _beside_mem0(memory: Memory, mem0: Mem0, learnt: list[tuple[Question, Task]], asked: list[tuple[Question, Task]], size: int) -> Figure:
    for _, known in learnt[mem0.held :]:
        mem0.add(known.prompt)
    mem0.search(asked[-1][1].prompt)
    ours, theirs = in_turns(
        len(asked) - 1, clocked(lambda n: memory.recall(asked[n][1])), lambda n: mem0.search(asked[n][1].prompt), block=TURN
    )
    return figure("recall beside mem0", ours, "mem0 search, same vectors", theirs, size=size, bar=MEM0_BAR.get(size), bar_on="ratio")


def _growth(warm: list[Figure]) -> Iterator[Figure]:
    """Between the two largest stores: 1 is linear, 0 constant."""
    for small, large in zip(warm[-2:], warm[-1:], strict=False):
        yield growth("growth of recall", small, large, bar=1.0)


def growth(name: str, small: Figure, large: Figure, bar: float) -> Figure:
    """The exponent of the time in the number of records, from two medians."""
    power = math.log(large.p50 / small.p50) / math.log(large.size / small.size)
    return Figure(name=f"{name} from {small.size:,}", size=large.size, unit="exponent", p50=power, n=large.n, bar=bar)
