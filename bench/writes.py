"""What is written: a decision with its evidence, a record, and the whole admission of an examined failure, in growing stores.

All of it is on the disk when the call returns. The reference is SQLite with the same promises and nothing else: such texts inserted
into one table, in one transaction, with synchronous = FULL.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench.figures import Figure, Scale, clocked, figure, in_turns
from bench.library import build, decision, failed, fill, heldout_tasks, lesson, source_tasks
from bench.recall import growth
from mulligan.embeddings import StaticEmbedder
from mulligan.memory import Examined, Memory, Settings
from mulligan.nouns import to_json
from mulligan.records import Episode, Usage
from mulligan.search import record_text
from mulligan.store import Store
from mulligan.worlds.sql import SqlWorld

BAR = 3.0  # milliseconds of a decision with its evidence
CONSTANT = 0.1  # exponent up to which a cost counts as constant: a hundred times the records may cost 1.6 times as much
CAPACITY = 200
WORLD = SqlWorld()


class Bare:
    """SQLite with the same promises and nothing else."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, body TEXT)")

    def write(self, texts: list[str]) -> None:
        """Insert, commit, and wait for the disk."""
        self._connection.execute("BEGIN IMMEDIATE")
        for text in texts:
            self._connection.execute("INSERT INTO texts (body) VALUES (?)", (text,))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def writes(scale: Scale, folder: Path) -> Iterator[Figure]:
    """A decision with its evidence, and a record with its vector, each durable."""
    database, embedder = build(folder / "library.sqlite"), StaticEmbedder()
    made = source_tasks(scale.times, database)
    with Store(folder / "writes.db") as store, closing(Bare(folder / "bare.db")) as bare:
        keys = [store.add_episode(Episode(task=asked, agent="react", model="m", attempts=(failed(q),))) for q, asked in made]
        decisions = [decision(question, f"rec_{n}") for n, (question, _) in enumerate(made)]
        parts = [[to_json(part) for part in (one.proposal, one.check, one.reason)] for one in decisions]
        taken, least = in_turns(
            len(made), clocked(lambda n: store.add_decisions(keys[n], 0, [decisions[n]])), clocked(lambda n: bare.write(parts[n]))
        )
        yield figure("durable write of a decision with its evidence", taken, "bare SQLite, such texts", least, bar=BAR)
        lessons = [lesson(question, asked, WORLD) for question, asked in made]
        texts = [to_json(one) for one in lessons]
        vectors = embedder.embed([record_text(one) for one in lessons])
        taken, least = in_turns(
            len(made),
            clocked(lambda n: store.add_record(lessons[n], vectors[n], embedder=embedder.id)),
            clocked(lambda n: bare.write([texts[n]])),
        )
        yield figure("durable write of a record with its vector", taken, "bare SQLite, such a text", least)


def learn(scale: Scale, folder: Path) -> Iterator[Figure]:
    """`Memory.admit` of one examined failure, at capacity and below it, in stores of growing size; then how that grew.

    Growth is that of processor time: waiting for the disk takes longer than all the rest, and as long in any store.
    """
    database = build(folder / "library.sqlite")
    for where, capacity in (("below capacity", 10**9), ("at capacity", CAPACITY)):
        grown: list[Figure] = []
        for size in scale.grown:
            path = folder / f"learn-{capacity}-{size}.db"
            admitted, least, recalled, worked = _admissions(path, database, size, capacity, max(3, scale.times // 3))
            yield figure(f"learn from a failure, {where},", admitted, "bare SQLite, such texts", least, size=size)
            grown.append(figure("its processor time", worked, size=size))
            yield grown[-1]
            yield figure(f"first recall after learning, {where},", recalled, size=size)
        yield growth(f"growth of learning, {where},", grown[0], grown[-1], bar=CONSTANT)


def _admissions(path: Path, database: Path, size: int, capacity: int, times: int) -> list[list[float]]:
    """Milliseconds of admissions, of their reference, of the first recall after each, and of the processor's work for admissions."""
    embedder, active, worked = StaticEmbedder(), min(size, capacity), list[float]()
    known, new = source_tasks(size, database), source_tasks(times + 1, database, seed=7)
    asked = heldout_tasks(times + 1, database, seed=8)
    with Store(path) as store, closing(Bare(path.with_suffix(".bare"))) as bare:
        fill(store, WORLD, embedder, known[active:], retired=True)
        fill(store, WORLD, embedder, known[:active])
        memory = Memory(store, WORLD, embedder=embedder, settings=Settings(capacity=capacity))
        episodes = [Episode(task=each, agent="react", model="m", attempts=(failed(question),)) for question, each in new]
        lessons = [lesson(question, each, WORLD) for question, each in new]
        examined = [
            Examined(attempt=failed(question), decisions=(decision(question, one.id),), record=one, usage=Usage())
            for (question, _), one in zip(new, lessons, strict=True)
        ]
        texts = [[to_json(part) for part in (e, one)] for e, one in zip(episodes, lessons, strict=True)]

        def admit(n: int) -> None:
            start = time.thread_time_ns()
            memory.admit(episodes[n], examined[n])
            worked.append((time.thread_time_ns() - start) / 1e6)

        clocks = (clocked(admit), clocked(lambda n: bare.write(texts[n])), clocked(lambda n: memory.recall(asked[n][1])))
        for clock in clocks:
            clock(times)
        return [*in_turns(times, *clocks), sorted(worked[1:])]
