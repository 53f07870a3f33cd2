"""The SQL world: verdicts, containment, splits, and that a query changes nothing."""

import hashlib
import multiprocessing
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from islands import ask, build, make
from mulligan.errors import UsageError
from mulligan.nouns import to_json
from mulligan.records import Task, Verdict
from mulligan.worlds import sql_engine
from mulligan.worlds.sql import SqlWorld
from mulligan.worlds.sql_engine import Limits, hold

WORLD = SqlWorld(Limits(time_limit_s=0.5))


@pytest.fixture(scope="module")
def islands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("islands"))


def judge(task: Task, action: str, world: SqlWorld = WORLD) -> Verdict:
    with world.start(task) as state:
        return world.act(state, action)


def kinds(verdict: Verdict) -> list[str]:
    return [signal.kind for signal in verdict.signals]


SOUTH = "SELECT name FROM island WHERE chain = 'south'"
JUDGED = [
    (SOUTH, 1, []),
    ("```sql\nSELECT name FROM island WHERE chain = 'south';\n```", 1, []),
    ("WITH s AS (SELECT * FROM island WHERE chain LIKE 'south') SELECT name FROM s -- the southern ones", 1, []),
    ('select "name" from island where chain = "south" order by area', 1, []),
    ("SELECT name FROM island WHERE chain = 'South'", 0, ["unknown_value", "empty_result", "row_count", "missing_rows"]),
    ("SELECT name FROM island", Fraction(3, 13), ["row_count", "extra_rows"]),
    ("SELECT name, area FROM island WHERE chain = 'south'", 0, ["column_count", "missing_rows", "extra_rows"]),
    ("SELECT title FROM island", 0, ["unknown_column", "column_count", "row_count", "missing_rows"]),
    ("SELECT name FROM islands", 0, ["unknown_table", "column_count", "row_count", "missing_rows"]),
    ("SELECT name FROM island WHERE", 0, ["syntax", "column_count", "row_count", "missing_rows"]),
    ("SELECT name FROM island; SELECT 1", 0, ["syntax", "column_count", "row_count", "missing_rows"]),
    ("SELECT name FROM island WHERE COUNT(*) > 1", 0, ["error", "column_count", "row_count", "missing_rows"]),
    ("SELECT name, random() FROM island", 0, ["error", "column_count", "row_count", "missing_rows"]),
    ("", 0, ["not_a_query", "column_count", "row_count", "missing_rows"]),
    ("EXPLAIN " + SOUTH, 0, ["not_a_query", "column_count", "row_count", "missing_rows"]),
    ("x" * 1_000_000, 0, ["error", "column_count", "row_count", "missing_rows"]),
]


@pytest.mark.parametrize(("action", "utility", "signals"), JUDGED, ids=[case[0][:40] for case in JUDGED])
def test_a_query_is_judged(islands: Path, action: str, utility: Fraction | int, signals: list[str]) -> None:
    verdict = judge(ask(islands, SOUTH), action)
    assert (verdict.completed, verdict.utility, verdict.solved) == (True, utility, utility == 1)
    assert kinds(verdict) == signals
    assert verdict.done == verdict.solved
    assert verdict.evaluator == f"sql/{WORLD.version}"
    assert to_json(verdict).encode()


FORBIDDEN = [
    "DROP TABLE island",
    "DELETE FROM island",
    "DELETE FROM island WHERE name = 'nowhere'",
    "UPDATE island SET area = 0",
    "INSERT INTO island VALUES ('x', 1, 1, 'x', 'x')",
    "WITH gone AS (SELECT 1) DELETE FROM island",
    "CREATE TEMP TABLE t AS SELECT 1",
    "ATTACH DATABASE 'other.sqlite' AS other",
    "PRAGMA writable_schema = 1",
    "VACUUM INTO 'other.sqlite'",
    "REINDEX",
    "ANALYZE",
    "BEGIN",
    "SELECT load_extension('x')",
    "SELECT * FROM pragma_table_info('island')",
]


@pytest.mark.parametrize("action", FORBIDDEN)
def test_what_writes_is_refused_and_changes_nothing(islands: Path, action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = hashlib.sha256(islands.read_bytes()).hexdigest()
    with WORLD.start(ask(islands, "SELECT name FROM island WHERE name = 'nowhere'")) as state:
        digest, held = state.digest, state.held.read_bytes()
        verdict = WORLD.act(state, action)
        assert (verdict.completed, verdict.utility) == (True, 0)
        assert kinds(verdict)[0] == ("error" if "load_extension" in action else "not_a_query")
        assert (state.digest, state.held.read_bytes()) == (digest, held)
    assert hashlib.sha256(islands.read_bytes()).hexdigest() == before
    assert list(tmp_path.iterdir()) == []


STUCK = {
    "recursion": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 60000000) SELECT COUNT(*) FROM t",
    "cross join": "SELECT COUNT(*) FROM port a, port b, port c, port d, port e, port f WHERE a.people * f.people = -1",
    "one long step": "SELECT LENGTH(printf('%.*c', 1000000000, 'x')) FROM island",
    "long search": "SELECT instr(printf('%.*c', 990000, 'a'), printf('%.*c', 490000, 'a') || 'b')",
    "doubling at compile time": "WITH "
    + ", ".join(f"a{i} AS (SELECT * FROM a{i - 1} UNION ALL SELECT * FROM a{i - 1})" if i else "a0 AS (SELECT 1)" for i in range(60))
    + " SELECT COUNT(*) FROM a59",
}
LARGE = {
    "rows": "SELECT a.name FROM port a, port b, port c, port d",
    "blob": "SELECT zeroblob(1000000000)",
    "replace": "SELECT replace(hex(zeroblob(400000)), '0', 'aaaaaaaaaa')",
    "group_concat": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 600000) SELECT group_concat(n) FROM t",
    "many long cells": "SELECT zeroblob(900000) FROM port",
}
REFUSED = {
    "deep nesting": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "long sum": "SELECT 1" + " + 1" * 4000,
    "pattern": "SELECT name FROM island WHERE name LIKE '" + "%a" * 5000 + "'",
    "many columns": "SELECT " + ", ".join(["1"] * 3000),
}


@pytest.mark.parametrize("name", STUCK)
def test_a_stuck_query_ends_soon_without_a_verdict(islands: Path, name: str) -> None:
    began = time.monotonic()
    verdict = judge(ask(islands, SOUTH), STUCK[name])
    assert time.monotonic() - began < 0.5 + 0.5 + 0.5  # the limit, the grace, a slow machine
    assert (verdict.completed, verdict.utility, verdict.solved) == (False, 0, False)
    assert kinds(verdict)[0] in ("timeout", "too_large")
    assert judge(ask(islands, SOUTH), SOUTH).solved  # and the next one runs


@pytest.mark.parametrize("name", LARGE)
def test_a_large_result_is_no_verdict(islands: Path, name: str) -> None:
    verdict = judge(ask(islands, SOUTH), LARGE[name].replace("a.name", "a.port_name"))
    assert (verdict.completed, kinds(verdict)) == (False, ["too_large"])


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_refuses_is_wrong(islands: Path, name: str) -> None:
    verdict = judge(ask(islands, SOUTH), REFUSED[name])
    assert (verdict.completed, verdict.utility) == (True, 0)
    assert kinds(verdict)[0] in ("error", "syntax")


def test_a_worker_that_is_killed_costs_one_answer(islands: Path) -> None:
    task = ask(islands, SOUTH)
    sql_engine.close_idle()  # other tests leave workers of their own
    assert judge(task, SOUTH).solved
    (engine,) = sql_engine._IDLE
    os.kill(engine._process.pid, signal.SIGKILL)
    engine._process.wait()
    with WORLD.start(task) as state:
        assert not WORLD.act(state, "SELECT name FROM island").completed
        assert WORLD.act(state, SOUTH).solved


LUCKY = [
    ("SELECT name FROM island WHERE area > 200", "SELECT name FROM island WHERE area > 200 LIMIT 6"),
    ("SELECT COUNT(*) FROM island", "SELECT 10"),
    ("SELECT COUNT(*) FROM island", "SELECT 10 FROM island LIMIT 1"),
    ("SELECT name FROM island WHERE area = (SELECT MAX(area) FROM island)", "SELECT name FROM island WHERE name = 'corrin'"),
    ("SELECT name FROM island WHERE area > 600", "SELECT name FROM island WHERE people > 8000 AND chain = 'south' AND name <> 'harrow'"),
    ("SELECT chief_port FROM island WHERE name = 'fell'", "SELECT chief_port FROM island ORDER BY area LIMIT 1"),
    ("SELECT island FROM port WHERE port_name = 'port a0'", "SELECT island FROM port LIMIT 1"),
    ("SELECT chief_port FROM island WHERE area < 0", "SELECT chief_port FROM island WHERE name = 'Fell'"),
]


@pytest.mark.parametrize(("gold", "action"), LUCKY, ids=[case[1] for case in LUCKY])
def test_a_coincidence_is_not_solved(islands: Path, gold: str, action: str) -> None:
    verdict = judge(ask(islands, gold), action)
    assert (verdict.completed, verdict.utility, verdict.solved) == (True, Fraction(1, 2), False)
    assert "coincidence" in kinds(verdict)
    assert not verdict.done


SAME = [
    ("SELECT name FROM island WHERE area = (SELECT MAX(area) FROM island)", "SELECT name FROM island ORDER BY area DESC LIMIT 1"),
    ("SELECT COUNT(name) FROM island", "SELECT COUNT(*) FROM island"),
    ("SELECT other FROM bridge WHERE island = 'isk'", "SELECT island FROM bridge WHERE other = 'isk'"),
    ("SELECT port_name FROM port WHERE island = 'isk'", "SELECT port_name FROM port JOIN island ON name = island WHERE name = 'isk'"),
    ("SELECT DISTINCT stream_name FROM stream WHERE length > 30", "SELECT stream_name FROM stream WHERE length > 30 GROUP BY stream_name"),
]


@pytest.mark.parametrize(("gold", "action"), SAME, ids=[case[1] for case in SAME])
def test_another_way_to_say_it_is_solved(islands: Path, gold: str, action: str) -> None:
    assert judge(ask(islands, gold), action).solved


def test_order_counts_where_the_gold_query_fixes_it(islands: Path) -> None:
    task = ask(islands, "SELECT name FROM island ORDER BY area DESC")
    verdict = judge(task, "SELECT name FROM island ORDER BY area")
    assert (verdict.utility, kinds(verdict)) == (Fraction(1, 2), ["order"])
    assert judge(task, "SELECT name FROM island ORDER BY area DESC, name").solved
    inner = ask(islands, "SELECT name FROM island WHERE name IN (SELECT name FROM island ORDER BY area LIMIT 3)")
    assert judge(inner, "SELECT name FROM (SELECT name FROM island ORDER BY area LIMIT 3) ORDER BY name DESC").solved


def test_what_the_task_says_of_the_comparison(islands: Path) -> None:
    gold, action = "SELECT DISTINCT chain FROM island", "SELECT chain FROM island"
    assert not judge(ask(islands, gold), action).solved
    assert judge(ask(islands, gold, distinct=True), action).solved
    turned = "SELECT area, name FROM island"
    assert not judge(ask(islands, "SELECT name, area FROM island"), turned).solved
    assert judge(ask(islands, "SELECT name, area FROM island", columns_any_order=True), turned).solved


@pytest.mark.parametrize("gold", ["SELECT nothing FROM nowhere", STUCK["recursion"], "DROP TABLE island", LARGE["blob"]])
def test_a_broken_gold_query_is_the_tasks_fault(islands: Path, gold: str) -> None:
    verdict = judge(ask(islands, gold), SOUTH)
    assert (verdict.completed, verdict.utility, verdict.solved) == (False, 0, False)
    assert "task is broken" in verdict.feedback
    hidden = judge(ask(islands, gold, split="heldout"), SOUTH)
    assert not hidden.completed
    assert "broken" not in hidden.feedback


@pytest.mark.parametrize("action", [case[0] for case in JUDGED[:12]] + [case[1] for case in LUCKY])
def test_on_held_out_tasks_the_gold_query_cannot_be_seen(islands: Path, action: str) -> None:
    golds = [SOUTH, "SELECT COUNT(*) FROM island", "SELECT nothing", "SELECT name FROM island WHERE area < 0"]
    shown = {(v.feedback, v.signals, v.done) for v in (judge(ask(islands, gold, split="heldout"), action) for gold in golds)}
    assert len(shown) == 1
    ((_, signals, done),) = shown
    assert done == (not signals)
    assert judge(ask(islands, SOUTH, split="heldout"), SOUTH).solved  # the experimenter is still told


def test_a_snapshot_goes_to_another_process(islands: Path) -> None:
    with WORLD.start(ask(islands, SOUTH)) as state:
        snapshot = WORLD.save(state)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            there = pool.apply(_act_there, (pickle.dumps((WORLD, snapshot)), "SELECT name FROM island"))
        here = WORLD.act(state, "SELECT name FROM island")
    assert replace(there, seconds=0) == replace(here, seconds=0)


def _act_there(sent: bytes, action: str) -> Verdict:
    world, snapshot = pickle.loads(sent)
    with world.restore(snapshot) as state:
        return world.act(state, action)


def test_a_snapshot_of_a_database_that_changed_is_refused(tmp_path: Path) -> None:
    database = build(tmp_path)
    with WORLD.start(ask(database, SOUTH)) as state:
        snapshot = WORLD.save(state)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM island WHERE name = 'arn'")
    assert WORLD.restore(snapshot).digest == snapshot.digest  # the copy that was held is still there
    with pytest.raises(UsageError, match="changed since"):
        WORLD.restore(replace(snapshot, held=tmp_path / "gone.sqlite"))


def test_the_version_follows_the_limits() -> None:
    assert SqlWorld().version == SqlWorld(Limits()).version != SqlWorld(Limits(row_cap=10)).version


def _log(folder: Path) -> Path:
    database = build(folder)
    Path(f"{database}-wal").write_bytes(b"x")
    return database


UNFIT = {
    "missing": (lambda folder: folder / "none.sqlite", "cannot read"),
    "a folder": (lambda folder: folder, "cannot read"),
    "no database": (lambda folder: Path(__file__), "no SQLite database"),
    "unfinished log": (_log, "write-ahead log"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_database_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    make_it, message = UNFIT[name]
    with pytest.raises(UsageError, match=message):
        WORLD.start(ask(make_it(tmp_path), SOUTH))


@pytest.mark.parametrize("payload", [{}, {"gold": "SELECT 1"}, {"database": "x.sqlite"}, {"database": 5, "gold": "SELECT 1"}])
def test_a_task_without_its_payload_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="payload"):
        WORLD.start(replace(ask(Path("x"), ""), payload=payload))


def test_a_damaged_database_is_no_verdict_on_the_query(tmp_path: Path) -> None:
    raw = bytearray(build(tmp_path).read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    (tmp_path / "damaged.sqlite").write_bytes(raw)
    verdict = judge(ask(tmp_path / "damaged.sqlite", "SELECT 1"), SOUTH)
    assert (verdict.completed, verdict.utility) == (False, 0)


def test_equal_files_share_one_copy(tmp_path: Path) -> None:
    one = build(tmp_path)
    other = tmp_path / "same database, other name \N{SNOWMAN}?#.sqlite"
    other.write_bytes(one.read_bytes())
    assert hold(str(one)) == hold(str(other))
    assert judge(ask(other, SOUTH), SOUTH).solved


CHILD = """
import subprocess, sys
from mulligan.worlds.sql_engine import hold, home
print(home(), hold(sys.argv[1]).exists())
if len(sys.argv) == 2:
    subprocess.run([sys.executable, "-c", sys.stdin.read(), sys.argv[1], "child"], check=True)
"""


def test_copies_belong_to_the_first_process_and_go_with_it(islands: Path) -> None:
    run = [sys.executable, "-c", CHILD, str(islands)]
    done = subprocess.run(run, input=CHILD, capture_output=True, text=True, check=True)
    own, child = done.stdout.splitlines()
    assert sorted([own, child]) == [own, own]
    assert own.endswith(" True")
    assert not Path(own.removesuffix(" True")).exists()


@settings(max_examples=60)
@given(st.one_of(st.text(max_size=60), st.text(alphabet="SELECT*(),'\"FROMislandname=1;- \n", max_size=80)))
def test_any_text_gets_a_verdict(action: str) -> None:
    verdict = judge(ask(ANY, SOUTH), action)
    assert 0 <= verdict.utility <= 1
    assert verdict.signals or verdict.solved
    assert to_json(verdict).encode()
    assert isinstance(WORLD.tokens(action), list)


ANY = Path("islands.sqlite")


@pytest.fixture(autouse=True, scope="module")
def _any(islands: Path) -> None:
    global ANY  # hypothesis runs its examples without fixtures of the function's scope
    ANY = islands


ODD = '''
CREATE TABLE "order by" ("select" INTEGER PRIMARY KEY, "naïve ""name""" TEXT, twice INTEGER AS ("select" * 2), b BLOB);
INSERT INTO "order by" VALUES (1, 'x', x'00ff'), (2, NULL, NULL);
CREATE VIEW v AS SELECT twice FROM "order by";
CREATE VIEW gone AS SELECT * FROM nowhere;
CREATE TABLE empty (a, b);
CREATE TABLE w (k TEXT PRIMARY KEY) WITHOUT ROWID;
'''


def test_strange_schemas_are_read(tmp_path: Path) -> None:
    odd = make(tmp_path, ODD)
    assert judge(ask(odd, 'SELECT "select" FROM "order by"'), 'SELECT "select" FROM "order by" ORDER BY twice').solved
    assert judge(ask(odd, "SELECT twice FROM v"), 'SELECT 2 * "select" FROM "order by"').solved
    assert kinds(judge(ask(odd, "SELECT twice FROM v"), "SELECT naive FROM empty"))[0] == "unknown_column"
    assert judge(ask(odd, 'SELECT b FROM "order by"'), 'SELECT b FROM "order by"').solved


def test_rows_are_shown_in_one_order_unless_the_query_asks_for_another(tmp_path: Path) -> None:
    """Feedback is part of the requests that recordings are keyed by, so it may not hang on a query plan."""
    built = make(tmp_path, "CREATE TABLE t (n, s); INSERT INTO t VALUES (2, 'b'), (NULL, 'c'), (10, 'a'), ('x', 'd');")
    held_out = replace(ask(built, "SELECT n FROM t"), split="heldout")
    shown = judge(held_out, "SELECT n FROM t").feedback
    assert "[null] [2] [10] …" in shown
    assert judge(held_out, "SELECT n FROM t ORDER BY s").feedback.endswith("[10] [2] [null] …")
