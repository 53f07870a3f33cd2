"""Many processes write at once; writers are killed at random moments: what was acknowledged is there.

The file is its own harness. Run as a script it is one quiet process without threads that forks its writers, since a fork costs
a millisecond and an interpreter half a second.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builders import attempt, check, episode, proposal, record, task
from mulligan.embeddings import HashingEmbedder
from mulligan.records import Decision
from mulligan.store import Store

EMBEDDER = HashingEmbedder(16)
WRITERS, EACH, KILLS = 8, 500, 100


def forked(work: Callable[[], None]) -> int:
    """The process that does `work` and ends."""
    process = os.fork()
    if process:
        return process
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def decision(n: int) -> Decision:
    return Decision(proposal=proposal(f"b{n}"), reason="admitted", rule="r/1", check=check(1, f"b{n}"), record=f"rec_{n}")


def write_many(path: Path, writer: int) -> None:
    with Store(path) as store:
        key = store.add_episode(episode(*(attempt(f"a{n}") for n in range(EACH)), task=task(id=f"t{writer}")))
        for n in range(EACH):
            store.add_decisions(key, n, [decision(n)])


def write_until_killed(path: Path, turn: int, acknowledge: int) -> None:
    """Records, episodes, decisions and moves, each acknowledged after its commit."""
    with Store(path) as store:
        for n in range(1_000_000):
            given = record(f"river {turn} {n}")
            (vector,) = EMBEDDER.embed([given.situation])
            store.add_record(given, vector, embedder=EMBEDDER.id)
            os.write(acknowledge, f"record {given.id} active\n".encode())
            with store.transaction():
                key = store.add_episode(episode(attempt(), task=task(id=f"t{turn}/{n}")))
                store.add_decisions(key, 0, [replace(decision(0), record=given.id)])
            os.write(acknowledge, f"episode {key} -\n".encode())
            if n % 2:
                store.set_status(given.id, "stale", "tried")
                os.write(acknowledge, f"record {given.id} stale\n".encode())


def kill_one(path: Path, turn: int) -> dict[str, dict[str, str]]:
    """What one killed writer had acknowledged: ids by kind, with the last known status."""
    reading, writing = os.pipe()
    process = forked(lambda: write_until_killed(path, turn, writing))
    os.close(writing)
    begun = os.read(reading, 1) if turn % 2 else b""  # every second one is well under way, however busy the machine
    time.sleep(random.uniform(0.0, 0.06))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    with os.fdopen(reading, "rb") as stream:
        lines = (begun + stream.read()).decode().splitlines()
    told: dict[str, dict[str, str]] = {"record": {}, "episode": {}}
    for kind, key, status in (line.split() for line in lines):
        told[kind][key] = status
    return told


def kill_many(path: Path) -> dict[str, int]:
    """Kill writers of one file one after another; after each, open it and look for all that was ever acknowledged."""
    told: dict[str, dict[str, str]] = {"record": {}, "episode": {}}
    problems = 0
    for turn in range(KILLS):
        for kind, found in kill_one(path, turn).items():
            told[kind] |= found
        with Store(path) as store:
            problems += len(store.problems()) if turn % 20 == 0 or turn == KILLS - 1 else 0
            held = {row["id"]: row["status"] for row in store.dump("records")}
            # a move that was committed but not yet acknowledged shows as the newer status
            lost = [key for key, status in told["record"].items() if held.get(key) not in (status, "stale")]
            missing = set(told["episode"]) - {d.episode_id for d in store.decisions()} if turn % 20 == 19 else set()
            assert not lost and not missing, f"turn {turn}: lost {lost} {missing}"
    with Store(path) as store:
        stale = sum(status == "stale" for status in told["record"].values())
        assert len(store.records(status="stale")) >= stale
        return {"problems": problems, **{kind: len(keys) for kind, keys in told.items()}, **store.counts()}


def write_at_once(path: Path) -> dict[str, int]:
    """Several writers at once; their exit statuses, and what the file holds then."""
    with Store(path) as parent:  # open while it forks: children must not use its connection
        processes = [forked(lambda n=n: write_many(path, n)) for n in range(WRITERS)]  # type: ignore[misc]
        statuses = [os.waitpid(process, 0)[1] for process in processes]
        found = parent.decisions()
        places = {(row.episode_id, row.attempt_index) for row in found}
        return {"failed": sum(map(bool, statuses)), "places": len(places), "problems": len(parent.problems()), **parent.counts()}


def run(mode: str, path: Path) -> dict[str, int]:
    command = [sys.executable, "-W", "error", __file__, mode, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.mark.timeout(120)
def test_eight_processes_lose_none_of_their_decisions(tmp_path: Path) -> None:
    counts = run("write", tmp_path / "s.db")
    assert (counts["failed"], counts["problems"]) == (0, 0)
    assert counts["decisions"] == counts["checks"] == counts["proposals"] == counts["places"] == counts["attempts"] == WRITERS * EACH


@pytest.mark.timeout(120)
def test_a_killed_writer_leaves_every_acknowledged_row(tmp_path: Path) -> None:
    counts = run("kill", tmp_path / "s.db")
    assert counts["problems"] == 0
    assert counts["record"] >= KILLS // 2 and counts["episode"] > 0
    assert counts["record"] <= counts["records"] <= counts["record"] + KILLS  # at most one more a kill: committed, not yet said


if __name__ == "__main__":
    print(json.dumps({"write": write_at_once, "kill": kill_many}[sys.argv[1]](Path(sys.argv[2]))))
