"""Evidence by code: errors with nearby names, values that nothing holds, wanted and returned rows, facts, schema text."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from islands import ask, build, make
from mulligan.records import Signal
from mulligan.worlds.sql import SqlWorld
from mulligan.worlds.sql_engine import Limits, hold
from mulligan.worlds.sql_evidence import facts, read_rows, shown_rows
from mulligan.worlds.sql_schema import catalogue, describe_schema
from mulligan.worlds.sql_values import values

WORLD = SqlWorld(Limits(time_limit_s=1.0))


@pytest.fixture(scope="module")
def islands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("islands"))


def signals(database: Path, action: str, gold: str = "SELECT 1", **changes: Any) -> list[Signal]:
    with WORLD.start(ask(database, gold, **changes)) as state:
        return list(WORLD.act(state, action).signals)


SEEN = [
    ("SELECT name FROM ilands", "unknown_table", "no such table: ilands; nearest: island", "character 18"),
    (
        "SELECT name FROM xyzzy",
        "unknown_table",
        "no such table: xyzzy; there are: island, port, stream, bridge",
        "character 18",
    ),
    (
        "SELECT stream_nam FROM stream",
        "unknown_column",
        "no such column: stream_nam; nearest: stream_name; stream has stream_name, length, crosses",
        "character 8",
    ),
    (
        "SELECT s.area FROM stream AS s",
        "unknown_column",
        "no such column: s.area; stream has stream_name, length, crosses; area is a column of island",
        "character 8",
    ),
    (
        "SELECT name FROM island WHERE name IN (SELECT crosses FROM stream WHERE chain2 = 'x')",
        "unknown_column",
        "no such column: chain2; stream has stream_name, length, crosses",
        "character 73",
    ),
    ("SELECT name FROM island WHERE = 3", "syntax", 'near "=": syntax error', "character 31"),
    ("SELECT name = = 3, '=' FROM island", "syntax", 'near "=": syntax error', "character 15"),
    ("SELECT name FROM", "syntax", "incomplete input", "character 16"),
    ("SELECT 'abc", "syntax", 'unrecognized token: "\'abc"', ""),
    ("SELECT SUM(area, 2) FROM island", "error", "wrong number of arguments to function SUM()", ""),
    ("DROP TABLE island", "not_a_query", "only reading is allowed here, not DROP", ""),
    ("WITH x AS (SELECT 1) DELETE FROM island", "not_a_query", "only reading is allowed here, not DELETE island", ""),
    ("SELECT name FROM island WHERE 0", "empty_result", "the query returned no row", ""),
    ("SELECT MAX(area) FROM island WHERE 0", "empty_result", "the query returned NULL alone", ""),
    (
        "SELECT area FROM island WHERE name = 'Corrin'",
        "unknown_value",
        "no row of island.name holds 'Corrin'; nearest there: 'corrin'; it is a value of island.name, port.island",
        "name = 'Corrin'",
    ),
    (
        "SELECT area FROM island WHERE name = 'skerry'",
        "unknown_value",
        "no row of island.name holds 'skerry'; nearest there: 'great skerry'",
        "name = 'skerry'",
    ),
    (
        "SELECT area FROM island WHERE chain = 'isk'",
        "unknown_value",
        "no row of island.chain holds 'isk'; it is a value of island.name, port.island",
        "chain = 'isk'",
    ),
    (
        'SELECT area FROM island WHERE "name" IN ("isk", "dunmor")',
        "unknown_value",
        "no row of island.name holds 'dunmor'; nearest there: 'dunmore'",
        '"name" IN ("isk", "dunmor")',
    ),
    (
        "SELECT area FROM island WHERE name LIKE '%corrinn%'",
        "unknown_value",
        "no row of island.name holds '%corrinn%'; nearest there: 'corrin'",
        "name LIKE '%corrinn%'",
    ),
]


@pytest.mark.parametrize(("action", "kind", "what", "where"), SEEN, ids=[case[0] for case in SEEN])
def test_what_running_a_query_shows(islands: Path, action: str, kind: str, what: str, where: str) -> None:
    found = next(s for s in signals(islands, action, split="heldout") if s.kind == kind)
    assert (found.what, found.where) == (what, where)


FINE = [
    "SELECT area FROM island WHERE name = 'corrin'",
    "SELECT area FROM island WHERE name LIKE 'COR%'",
    "SELECT area FROM island WHERE lower(name) = 'Corrin' OR 1",
    "SELECT area FROM island WHERE name <> 'nowhere'",
    "SELECT area FROM island WHERE name NOT IN ('nowhere')",
    "SELECT a FROM (SELECT area AS a, 'x' AS b FROM island) WHERE b = 'x'",
]


@pytest.mark.parametrize("action", FINE)
def test_what_is_no_evidence(islands: Path, action: str) -> None:
    assert signals(islands, action, split="heldout") == []


WANTED = [
    ("SELECT name FROM island WHERE area > 600", "column_count", "1 column wanted, 2 returned"),
    ("SELECT name FROM island WHERE area > 600", "row_count", "2 rows wanted, 10 returned"),
    ("SELECT area, name FROM island WHERE area > 600", "missing_rows", '2 of 2 wanted rows missing: [655, "eddary"] [980, "corrin"]'),
    ("SELECT name, area FROM island WHERE chain = 'x'", "extra_rows", '10 of 10 returned rows unwanted: ["arn", 410] ["bessel", 130]'),
]


@pytest.mark.parametrize(("gold", "kind", "what"), WANTED, ids=[case[1] for case in WANTED])
def test_what_a_failing_assertion_says(islands: Path, gold: str, kind: str, what: str) -> None:
    found = next(s for s in signals(islands, "SELECT name, area FROM island", gold) if s.kind == kind)
    assert found.what.startswith(what)
    assert signals(islands, "SELECT name, area FROM island", gold, split="heldout") == []


def test_quoted_rows_are_short_and_can_be_read_back() -> None:
    rows = [("a", 1), (None, 2.5), ("é" * 500, 3), ("never shown", 4)]
    text = shown_rows(rows)
    assert text.endswith("… …")
    assert text.startswith('["a", 1] [null, 2.5] ["ééé')
    assert len(text) < 230
    assert read_rows(f"4 of 4 wanted rows missing: {text}") == rows[:2]
    assert read_rows("") == read_rows("2 rows wanted, 1 returned") == []
    assert json.loads(shown_rows([(b"\x00\xff",)])) == ["X'00FF'"]


def test_feedback_tells_what_came_back(islands: Path) -> None:
    with WORLD.start(ask(islands, "SELECT 1", split="heldout")) as state:
        assert WORLD.act(state, "SELECT name, area FROM island").feedback == (
            'The query returned 10 rows × 2 columns: ["arn", 410] ["bessel", 130] ["corrin", 980] …'
        )
        assert WORLD.act(state, "SELECT name FROM island WHERE 0").feedback == (
            "The query returned 0 rows × 1 column.\nempty_result: the query returned no row"
        )


ASKED = [
    ("How many ports are on the island of Corrin?", ["island", "port", "port.island", "bridge.island"], ["count"]),
    ("Which stream is the longest?", ["stream"], ["superlative"]),
    (
        "What is the average area of islands that are not in the north chain?",
        ["island", "island.area", "island.chain"],
        ["average", "negation"],
    ),
    ("Wo liegt Corrin?", [], []),
    ("What is the length of the red water?", ["stream.length"], []),
    ("", [], []),
    ("\x00\ud800 ' \" %", [], []),
]


@pytest.mark.parametrize(("question", "mentions", "asks"), ASKED, ids=[repr(case[0]) for case in ASKED])
def test_facts_come_from_what_the_agent_sees(islands: Path, question: str, mentions: list[str], asks: list[str]) -> None:
    found = facts(question, hold(str(islands)))
    assert set(mentions) <= set(found["mentions"])
    assert found["asks"] == asks
    assert found["tables"] == ["island", "port", "stream", "bridge"]
    assert "stream.crosses" in found["columns"]
    assert json.loads(json.dumps(found)) == found


def test_facts_name_the_columns_that_hold_a_value_of_the_question(islands: Path) -> None:
    named = facts("Which ports has Great  Skerry, and how long is the red water? 3 or 4.5?", hold(str(islands)))
    assert named["values"] == ["island.name", "port.island", "stream.stream_name"]
    assert named["numbers"] == 2
    assert facts("isk", hold(str(islands)))["values"] == ["island.name", "port.island", "stream.crosses", "bridge.island", "bridge.other"]


def test_values_are_found_where_words_have_no_spaces(tmp_path: Path) -> None:
    path = make(tmp_path, "CREATE TABLE 城市 (名称 TEXT, 人口 INTEGER); INSERT INTO 城市 VALUES ('北京', 1), ('上海', 2)")
    assert facts("北京的人口是多少", hold(str(path)))["values"] == ["城市.名称"]
    assert "'北京', '上海'" in describe_schema(path)


def test_facts_are_quick(islands: Path) -> None:
    held, question = hold(str(islands)), "How many ports are on the island of Corrin, and which stream is the longest? " * 20
    facts(question, held)
    began = time.perf_counter()
    facts(question, held)
    assert time.perf_counter() - began < 0.05


def test_the_gold_query_is_in_no_fact(islands: Path) -> None:
    one, other = (ask(islands, gold, prompt="How large is isk?") for gold in ("SELECT 1", "SELECT area FROM island"))
    assert WORLD.facts(one) == WORLD.facts(other)


SCHEMA = """CREATE TABLE t (
  id INTEGER PRIMARY KEY, -- 1, 2
  name TEXT, -- 'it''s', 'two lines'
  size REAL, -- 1.5, 0.333333
  raw BLOB, -- X'00FF'
  none TEXT,
  other INTEGER, -- 1
  FOREIGN KEY (other) REFERENCES t(id)
);
CREATE VIEW v (
  name TEXT -- 'it''s', 'two lines'
);"""
SCRIPT = """
CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, size REAL, raw BLOB, none TEXT, other INTEGER REFERENCES t);
INSERT INTO t VALUES (1, 'it''s', 1.5, x'00ff', NULL, 1), (2, 'two' || char(10) || 'lines', 1.0 / 3, NULL, NULL, NULL);
CREATE VIEW v AS SELECT name FROM t;
"""


def test_schema_text(tmp_path: Path) -> None:
    path = make(tmp_path, SCRIPT)
    assert describe_schema(path) == SCHEMA
    assert "--" not in describe_schema(path, samples=0)
    assert describe_schema(path) == describe_schema(str(path))


def test_schema_text_has_a_size(tmp_path: Path) -> None:
    tables = "".join(f"CREATE TABLE table{i} (a TEXT, b TEXT); INSERT INTO table{i} VALUES ('{'é' * 90}', 'y');" for i in range(50))
    path = make(tmp_path, tables)
    whole = describe_schema(path, limit=100_000)
    assert whole.count("CREATE TABLE") == 50
    assert "é" * 40 + "…" in whole
    for limit in (5000, 3000, 1000, 200):
        text = describe_schema(path, limit=limit)
        assert len(text) <= limit
        assert text.count("CREATE TABLE") == 50 or "more tables: table" in text
    assert len(catalogue(hold(str(path))).tables) == 50


def test_the_index_leaves_long_values_out_and_holds_is_exact(tmp_path: Path) -> None:
    path = make(tmp_path, f"CREATE TABLE t (a TEXT, n INTEGER); INSERT INTO t VALUES ('{'x' * 100}', 5), ('Short', 6)")
    known = values(hold(str(path)))
    a, n = catalogue(hold(str(path))).columns()
    assert known.stored["t.a"] == ["Short"]
    assert known.holds(a, "x" * 100)
    assert not known.holds(a, "short")
    assert known.holds(n, "5")
    assert not known.holds(n, "\ud800")
    assert [stored for _, stored in known.holders(" SHORT ")] == ["Short"]
