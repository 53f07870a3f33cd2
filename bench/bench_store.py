"""The store's speed: a durable decision, a durable record, recall's search; each beside a bare reference of the same run.

`python bench/bench_store.py [--json] [--large]`; --large adds 100,000 records, which takes minutes to fill. Vectors are made
beforehand, so embedding is measured on its own line.
"""

import argparse
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import wordllama
from numpy.typing import NDArray

from mulligan.embeddings import StaticEmbedder
from mulligan.records import Attempt, Check, Decision, Episode, Gain, Proposal, Provenance, Record, Signal, Task, Usage, Verdict
from mulligan.store import Store, body

TIMES, DIM, TOP = 300, 256, 50
VOCABULARY = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "lo", "ma", "tre", "vik")]
WEIGHTS = [1 / (n + 3) for n in range(len(VOCABULARY))]  # a few words are in most texts, as in a language


@dataclass(frozen=True)
class Figure:
    """One measurement beside its reference: medians of TIMES runs, in milliseconds."""

    what: str
    p50_ms: float
    p95_ms: float
    reference: str
    reference_p50_ms: float
    bar_ms: float | None = None

    def row(self) -> dict[str, object]:
        """The figure with its ratio, for people and for programs."""
        ratio = round(self.p50_ms / self.reference_p50_ms, 2)
        return {**vars(self), "ratio": ratio, "met": self.bar_ms is None or self.p50_ms <= self.bar_ms}


def timed(ours: Callable[[int], object], theirs: Callable[[int], object], times: int = TIMES) -> tuple[list[float], list[float]]:
    """Milliseconds of each call of both, sorted; taken in turns, so that a busy machine slows both."""
    taken: tuple[list[float], list[float]] = ([], [])
    for n in range(times):
        for act, into in zip((ours, theirs), taken, strict=True):
            start = time.perf_counter()
            act(n)
            into.append(1000 * (time.perf_counter() - start))
    return sorted(taken[0]), sorted(taken[1])


def figure(what: str, reference: str, taken: tuple[list[float], list[float]], bar_ms: float | None = None) -> Figure:
    """Medians rounded to microseconds."""
    ours, theirs = taken
    p95 = round(ours[len(ours) * 95 // 100], 3)
    return Figure(what, round(statistics.median(ours), 3), p95, reference, round(statistics.median(theirs), 3), bar_ms)


def sentence(chance: random.Random) -> str:
    """Some thirty words."""
    return " ".join(chance.choices(VOCABULARY, WEIGHTS, k=30))


def record(n: int, chance: random.Random) -> Record:
    """A correction of the usual size."""
    origin = Provenance(
        task=f"t{n}",
        group=f"g{n % 50}",
        benchmark="b",
        split="source",
        episode="e",
        attempt=0,
        agent="a",
        model="m",
        proposer="p",
        evaluator="v",
    )
    return Record(
        kind="correction",
        domain="sql",
        situation=sentence(chance),
        original=sentence(chance),
        corrected=sentence(chance),
        diff=sentence(chance),
        gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True),
        provenance=origin,
    )


def unit_rows(count: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Random unit vectors."""
    rows = generator.standard_normal((count, DIM), np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def bare(path: Path) -> Callable[[list[str]], None]:
    """SQLite with the same promises and nothing else: texts in one table, in one transaction."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, body TEXT)")

    def write(texts: list[str]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for text in texts:
            connection.execute("INSERT INTO texts (body) VALUES (?)", (text,))
        connection.execute("COMMIT")

    return write


def durable_decisions(folder: Path) -> Figure:
    """One decision with proposal, both verdicts and signals, committed and on disk."""
    chance = random.Random(0)
    signals = tuple(Signal(kind="error", what=sentence(chance), where="1:8") for _ in range(2))
    failed = Verdict(completed=True, utility=Fraction(0), solved=False, feedback=sentence(chance), signals=signals, evaluator="sql/1")
    right = Verdict(completed=True, utility=Fraction(1), solved=True, feedback="", evaluator="sql/1")
    tried = Attempt(index=0, observation=sentence(chance), action=sentence(chance), verdict=failed, usage=Usage())
    write = bare(folder / "bare.db")
    with Store(folder / "decisions.db") as store:
        keys, made = [], []
        for n in range(TIMES):
            task = Task(id=f"t{n}", domain="sql", benchmark="b", group="g", split="source", prompt=sentence(chance), payload={})
            keys.append(store.add_episode(Episode(task=task, agent="a", model="m", attempts=(tried,))))
            proposal = Proposal(action=sentence(chance), edit="x", proposer="op:literal")
            check = Check(proposal=proposal, original=failed, changed=right, replayed=True, state_before="s", state_after="s")
            made.append(Decision(proposal=proposal, reason="admitted", rule="r/1", check=check, record=f"rec_{n}"))
        texts = [body(part) for part in (made[0].proposal, made[0].check, made[0])]
        taken = timed(lambda n: store.add_decisions(keys[n], 0, [made[n]]), lambda n: write(texts))
    return figure("durable write of one decision with its evidence", "bare SQLite, such texts", taken, 3.0)


def searches(folder: Path, size: int, bar_ms: float) -> list[Figure]:
    """Search with its records, and a durable record more, in a store of `size` records."""
    chance, generator = random.Random(1), np.random.default_rng(1)
    vectors = unit_rows(size + 2 * TIMES, generator)
    with Store(folder / f"{size}.db") as store:
        for start in range(0, size, 5_000):
            with store.transaction():
                for n in range(start, min(size, start + 5_000)):
                    store.add_record(record(n, chance), vectors[n], embedder="bench")
        queries = [" ".join(sentence(chance).split()[:14]) for _ in range(TIMES)]

        def recall(n: int) -> None:
            hits = store.search(queries[n], vectors[size + n], domain="sql", limit=TOP, exclude_groups={"g7"}, exclude_tasks={"t3"})
            for hit in hits:
                store.record(hit.record_id)

        def exact(n: int) -> None:
            scores = np.vecdot(vectors[:size], vectors[size + n])
            best = np.argpartition(-scores, min(TOP, size - 1))[:TOP]
            best[np.argsort(-scores[best])]

        (start_ms,), _ = timed(recall, exact, 1)
        print(f"first search at {size:,} records, which fills the shelf: {start_ms:.1f} ms", file=sys.stderr)
        found = figure(f"search and records, {size:,} records", "numpy exact search alone", timed(recall, exact), bar_ms)
        write, new = bare(folder / f"bare{size}.db"), [record(size + n, chance) for n in range(TIMES)]
        texts = [body(new[0])]
        taken = timed(lambda n: store.add_record(new[n], vectors[size + TIMES + n], embedder="bench"), lambda n: write(texts))
    return [found, figure(f"durable write of one record, {size:,} records", "bare SQLite, such a text", taken)]


def embedding() -> Figure:
    """One question with the default embedder."""
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    embedder, chance = StaticEmbedder(), random.Random(2)
    texts = [" ".join(sentence(chance).split()[:14]) for _ in range(TIMES)]
    embedder.embed(texts[:1])
    taken = timed(lambda n: embedder.embed([texts[n]]), lambda n: model.embed([texts[n]], norm=True))
    return figure("embedding of one question", "WordLlama's own embed", taken)


def measure(large: bool = False) -> list[dict[str, object]]:
    """All figures as rows; `large` adds 100,000 records."""
    with tempfile.TemporaryDirectory(prefix="mulligan-bench-") as name:
        folder = Path(name)
        sizes = [(200, 1.0), (2_000, 2.0), *([(100_000, 15.0)] if large else [])]
        found = [durable_decisions(folder), embedding(), *(f for size, bar in sizes for f in searches(folder, size, bar))]
    return [f.row() for f in found]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="JSON instead of lines")
    parser.add_argument("--large", action="store_true", help="with 100,000 records")
    options = parser.parse_args()
    rows = measure(options.large)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print("{what}: {p50_ms} ms (p95 {p95_ms}), {ratio} x {reference} ({reference_p50_ms} ms); bar {bar_ms}".format(**row))


if __name__ == "__main__":
    main()
