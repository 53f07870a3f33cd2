"""The benchmarks run and say what they must; never how fast anything is."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mulligan.embeddings import StaticEmbedder
from mulligan.memory import Memory
from mulligan.store import Store
from mulligan.worlds.sql import SqlWorld

ROOT = Path(__file__).resolve().parents[1]
ROW = {"name", "size", "unit", "p50", "p95", "n", "bar", "bar_on", "within_bar", "reference", "reference_p50", "ratio"}
NAMES = {
    "start": ["import mulligan", "mulligan --help", "import numpy", "a new process recalls once"],
    "select": ["selector never", "selector top1", "selector threshold", "selector utility"],
    "learned": ["selector dqn", "selector paired", "selector thompson", "selector of sets, 32 of 50 records"],
    "write": ["durable write of a decision with its evidence", "durable write of a record with its vector"],
    "learn": ["learn from a failure, below capacity,", "growth of learning, at capacity, from 20"],
    "recall": ["open and recall once", "recall", "recall after a failed attempt", "growth of recall from 20"],
    "check": ["one check in the sandbox"],
    "verdict": [
        "verdict on a query, nine databases",
        "verdict on an assignment",
        "verdict on UNSAT",
        "verdict on a model",
        "verdict on a number",
    ],
}


@pytest.fixture(autouse=True)
def bench_on_the_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`python -m bench` finds it in the current folder; and no test leaves it imported."""
    monkeypatch.syspath_prepend(ROOT)
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] == "bench"]:
        del sys.modules[name]


@pytest.mark.timeout(120)  # the group of verdicts runs whole test suites
@pytest.mark.parametrize("group", NAMES)
def test_every_group_gives_rows_with_their_references(group: str, request: pytest.FixtureRequest) -> None:
    from bench.__main__ import GROUPS, measure
    from bench.figures import Scale

    if group == "check":
        request.getfixturevalue("walled")

    tiny = Scale(sizes=(20, 40), grown=(20, 40), times=4, starts=1, decisions=100)
    rows: list[dict[str, Any]] = [one.row() for one in measure(tiny, {group: GROUPS[group]})]
    assert [name for name in NAMES[group] if name not in {row["name"] for row in rows}] == []
    for row in rows:
        assert set(row) == ROW
        assert row["n"] > 0 and (row["unit"] == "exponent" or row["p50"] >= 0)
        assert (row["bar"] is None) == (row["within_bar"] is None)
        assert (row["reference"] == "") == (row["ratio"] is None)
        assert json.loads(json.dumps(row)) == row


def test_the_command_prints_one_json_value_with_commit_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.__main__ import GROUPS, main

    assert list(GROUPS) == list(NAMES)
    main(["--only", "select", "--quick", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"commit", "machine", "rows"} and {"cores", "cpu", "load", "python", "sqlite"} <= set(told["machine"])
    assert [row["name"] for row in told["rows"]] == NAMES["select"]


def test_lines_for_people_say_whether_a_bar_is_kept() -> None:
    from bench.__main__ import line
    from bench.figures import Figure

    slow = Figure(name="recall", size=2_000, p50=3.0, p95=4.0, n=9, bar=2.0, reference="least", reference_p50=1.5)
    assert " ".join(line(slow).split()) == "recall at 2,000 3 ms (p95 4) 2 × least (1.5 ms) bar 2: MISSED"
    near = Figure(name="recall", p50=3.0, n=9, bar=0.1, bar_on="ratio", reference="other", reference_p50=60.0)
    assert near.within_bar and line(near).endswith("bar 0.1 × it: kept")


def test_questions_differ_and_records_are_found_again(tmp_path: Path) -> None:
    from bench.library import build, fill, heldout_tasks, source_tasks

    database = build(tmp_path / "library.sqlite")
    learnt, asked = source_tasks(60, database), heldout_tasks(20, database, seed=2)
    assert len({question.text for question, _ in learnt}) == 60
    assert not {question.text for question, _ in learnt} & {question.text for question, _ in asked}
    with Store(tmp_path / "x.db") as store:
        fill(store, SqlWorld(), StaticEmbedder(), learnt)
        assert store.counts()["records"] == 60
        memory = Memory(store, SqlWorld())
        assert any(memory.recall(each) for _, each in asked)
