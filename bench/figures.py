"""What a benchmark gives: a figure beside its reference; how both are taken; and which machine they are of."""

import os
import platform
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

ROOT = Path(__file__).resolve().parents[1]

Clock = Callable[[int], float]  # does the n-th piece of work and says how many milliseconds it took


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is measured."""

    sizes: tuple[int, ...] = (200, 2_000, 100_000)  # records in the store of a recall
    grown: tuple[int, ...] = (200, 2_000, 20_000)  # records in the store of a learner
    times: int = 300  # repetitions of what takes milliseconds
    starts: int = 15  # of what takes a fraction of a second
    decisions: int = 20_000  # that a learner is trained on


QUICK = Scale(sizes=(200, 2_000), grown=(200, 2_000), times=60, starts=5, decisions=2_000)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measurement. p50 and p95 are of `n` repetitions, in `unit`; `bar` is on p50, or on the ratio where `bar_on` says so."""

    name: str
    size: int = 0  # records in the store, where that matters
    unit: str = "ms"
    p50: float
    p95: float | None = None
    n: int
    bar: float | None = None
    bar_on: str = "p50"
    reference: str = ""
    reference_p50: float | None = None

    @property
    def ratio(self) -> float | None:
        """This to its reference: below 1 is faster."""
        return self.p50 / self.reference_p50 if self.reference_p50 else None

    @property
    def within_bar(self) -> bool | None:
        held = self.ratio if self.bar_on == "ratio" else self.p50
        return None if self.bar is None or held is None else held <= self.bar

    def row(self) -> dict[str, Any]:
        """The figure as JSON values."""
        found = {**asdict(self), "ratio": self.ratio, "within_bar": self.within_bar}
        return {key: _significant(value) if isinstance(value, float) else value for key, value in found.items()}


def _significant(value: float) -> float:
    return float(f"{value:.4g}")


def clocked(act: Callable[[int], object]) -> Clock:
    """A clock around `act`."""

    def clock(n: int) -> float:
        start = time.perf_counter_ns()
        act(n)
        return (time.perf_counter_ns() - start) / 1e6

    return clock


def in_turns(times: int, *clocks: Clock, block: int = 1) -> list[list[float]]:
    """What each clock said `times` times, sorted; taken in turns of `block`, so that a busy machine slows all of them alike.

    Where the clocks are of different processes, turns of one would measure how each finds the processor's caches after the other.
    """
    taken: list[list[float]] = [[] for _ in clocks]
    for start in range(0, times, block):
        for clock, into in zip(clocks, taken, strict=True):
            into += [clock(n) for n in range(start, min(times, start + block))]
    return [sorted(values) for values in taken]


def figure(name: str, taken: list[float], reference: str = "", theirs: list[float] | None = None, **rest: Any) -> Figure:
    """The figure of sorted times, in milliseconds."""
    return Figure(
        name=name,
        p50=statistics.median(taken),
        p95=taken[len(taken) * 95 // 100],
        n=len(taken),
        reference=reference,
        reference_p50=statistics.median(theirs) if theirs else None,
        **rest,
    )


def machine() -> dict[str, Any]:
    """Where and on what was measured. `load` is the one-minute load average at the start: beyond `cores`, others worked too."""
    return {
        "cores": cores(),
        "cpu": _cpu(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "numpy": numpy.__version__,
    }


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str:
    """The commit that is checked out, with a plus where files were changed since; "" where there is none."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
