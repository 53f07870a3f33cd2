"""Changed copies keep the rules that a database shows, and change everything else."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from islands import build, make
from mulligan.worlds import sql_copies
from mulligan.worlds.sql_copies import CROWD, KINDS, ROUNDS, changed_copies
from mulligan.worlds.sql_engine import Row, hold

RULED = """
CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT UNIQUE, country TEXT, capital TEXT, score REAL, note TEXT, boss INTEGER,
  FOREIGN KEY (boss) REFERENCES person(id));
CREATE TABLE visit (person INTEGER REFERENCES person(id), place TEXT, stars INTEGER);
CREATE TABLE friend (one TEXT, other TEXT);
CREATE TABLE log (word TEXT);
CREATE INDEX by_country ON person (country);
CREATE VIEW strangers AS SELECT name FROM person WHERE note IS NULL;
"""
COUNTRIES = [("no", "oslo"), ("se", "stockholm"), ("fi", "helsinki"), ("dk", "copenhagen")]
PEOPLE = [(i, f"p{i}", *COUNTRIES[i % 4], 10.5 + i * 1.7, None if i % 3 else "n", None if i == 1 else 1 + i // 3) for i in range(1, 41)]


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make(tmp_path_factory.mktemp("ruled"), RULED)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO person VALUES (?, ?, ?, ?, ?, ?, ?)", PEOPLE)
        connection.executemany("INSERT INTO visit VALUES (?, ?, ?)", [(1 + i % 40, f"place {i % 9}", i % 5) for i in range(120)])
        pairs = [(f"p{i}", f"p{j}") for i in range(1, 20) for j in (i + 1, i + 7)]
        connection.executemany("INSERT INTO friend VALUES (?, ?)", [p for a, b in pairs for p in ((a, b), (b, a))])
        connection.executemany("INSERT INTO log VALUES (?)", [("a",), ("a",), ("b",)] * 5)
    return path


def rows(path: Path, sql: str) -> list[Row]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


RULES = {
    "keys stay unique": "SELECT name FROM person GROUP BY name HAVING COUNT(*) > 1",
    "a country has one capital": "SELECT country FROM person GROUP BY country HAVING COUNT(DISTINCT capital) > 1",
    "no NULL where there was none": "SELECT * FROM person WHERE name IS NULL OR country IS NULL OR score IS NULL",
    "visits are of people": "SELECT * FROM visit WHERE person NOT IN (SELECT id FROM person)",
    "bosses are people": "SELECT * FROM person WHERE boss NOT IN (SELECT id FROM person)",
    "friends are people": "SELECT * FROM friend WHERE one NOT IN (SELECT name FROM person)",
    "friends are mutual": "SELECT * FROM friend f WHERE NOT EXISTS (SELECT * FROM friend WHERE one = f.other AND other = f.one)",
    "no row twice where there was none": "SELECT person FROM visit GROUP BY person, place, stars HAVING COUNT(*) > 1",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_the_source_holds_in_the_copies(ruled: Path, rule: str) -> None:
    for copy in [ruled, *changed_copies(hold(str(ruled)))]:
        assert rows(copy, RULES[rule]) == [], copy.name


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_everything_else_changes(ruled: Path, turn: int) -> None:
    held = hold(str(ruled))
    fewer, exchanged, more, crowded = changed_copies(held)[turn * len(KINDS) :][: len(KINDS)]
    for table in ("person", "visit", "friend", "log"):
        counts = [rows(path, f"SELECT COUNT(*) FROM {table}")[0][0] for path in (fewer, exchanged, held, more)]
        assert counts[0] < counts[1] <= counts[2] < counts[3], table
    assert set(rows(exchanged, "SELECT name, country FROM person")) != set(rows(held, "SELECT name, country FROM person"))
    assert not set(rows(exchanged, "SELECT score FROM person")) & set(rows(held, "SELECT score FROM person"))
    assert rows(exchanged, "SELECT country FROM person ORDER BY 1") == rows(held, "SELECT country FROM person ORDER BY 1")
    for copy in (fewer, exchanged, more, crowded):
        assert rows(copy, "SELECT COUNT(*) FROM strangers") != [(0,)]
        assert rows(copy, "SELECT name FROM sqlite_master WHERE name = 'by_country'")
        assert rows(copy, "SELECT word FROM log GROUP BY word HAVING COUNT(*) > 1")  # rows were repeated, and are


def test_sums_stop_following_counts_and_measures_do_not_tie(tmp_path: Path) -> None:
    path = make(tmp_path, "CREATE TABLE town (place TEXT, people INTEGER)")
    with closing(sqlite3.connect(path)) as connection, connection:
        many = [(f"c{i % 12}" if i % 3 else "c0", 1_000 + i // 2) for i in range(60)]
        connection.executemany("INSERT INTO town VALUES (?, ?)", many)
    largest = "SELECT place FROM town GROUP BY place ORDER BY {} DESC LIMIT 1"
    assert rows(path, largest.format("COUNT(*)")) == rows(path, largest.format("SUM(people)"))
    copies = changed_copies(hold(str(path)))
    assert any(rows(copy, largest.format("COUNT(*)")) != rows(copy, largest.format("SUM(people)")) for copy in copies)
    exchanged = copies[KINDS.index("exchanged")]
    assert rows(exchanged, "SELECT COUNT(DISTINCT people) FROM town") == rows(exchanged, "SELECT COUNT(*) FROM town")


def test_the_least_of_two_names_is_not_the_shortest_of_many(tmp_path: Path) -> None:
    path = make(tmp_path, "CREATE TABLE river (name TEXT, miles INTEGER, state TEXT)")
    with closing(sqlite3.connect(path)) as connection, connection:
        miles = [100 + i // 2 * 7 % 31 for i in range(48)]
        many = [(f"river {mile}", mile, f"state {i % 20:02}") for i, mile in enumerate(miles)]
        connection.executemany("INSERT INTO river VALUES (?, ?, ?)", many)
    crowded = [path for path in changed_copies(hold(str(path))) if "crowded" in path.name]
    found_out = 0
    for state in range(20):
        asked = f"WHERE state = 'state {state:02}'"
        shortest, least = f"SELECT name FROM river {asked} ORDER BY miles LIMIT 1", f"SELECT MIN(name) FROM river {asked}"
        assert rows(path, shortest) == rows(path, least)
        assert all(rows(copy, f"SELECT COUNT(*) FROM river {asked}") >= [(CROWD,)] for copy in crowded)
        found_out += any(rows(copy, shortest) != rows(copy, least) for copy in crowded)
    assert found_out >= 18  # one of `CROWD` names is the least by chance


def test_a_greatest_value_stays_one_row_where_it_was_one(tmp_path: Path) -> None:
    """Two right ways to ask for a maximum differ where values tie and where a row stands there twice."""
    path = make(tmp_path, "CREATE TABLE river (name TEXT, miles INTEGER, state TEXT, height TEXT)")
    with closing(sqlite3.connect(path)) as connection, connection:
        many = [(f"r{i % 30}", 100 + (i % 30) * 10 // 14, f"s{i % 7}", str(i)) for i in range(60)]
        connection.executemany("INSERT INTO river VALUES (?, ?, ?, ?)", [*many, many[0]])
    for copy in changed_copies(hold(str(path))):
        for column in ("miles", "height"):
            for state in ("s1", "s2", "s3"):
                here = f"WHERE state = '{state}'"
                compared = f"SELECT name FROM river {here} AND {column} = (SELECT MAX({column}) FROM river {here})"
                assert len(rows(copy, compared)) <= 1, (copy.name, column, state)


def test_numbers_at_the_ends_of_what_sqlite_holds_are_copied(tmp_path: Path) -> None:
    path = make(tmp_path, "CREATE TABLE t (big INTEGER, wide REAL)")
    with closing(sqlite3.connect(path)) as connection, connection:
        large = [2**63 - 1 - n // 2 for n in range(20)] + [-(2**63) + n for n in range(4)]
        wide = [float("inf"), float("inf"), float("-inf"), 1.7e308, 1.7e308, -1e300, 0.0, 0.0] + [1e20 + 1e5 * n for n in range(16)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", list(zip(large, wide, strict=True)))
    for copy in changed_copies(hold(str(path))):
        assert rows(copy, "SELECT COUNT(*) FROM t") != [(0,)]


def test_copies_are_the_same_each_time(tmp_path: Path) -> None:
    database = build(tmp_path)
    held = hold(str(database))
    once = [hashlib.sha256(path.read_bytes()).hexdigest() for path in changed_copies(held)]
    for path in changed_copies(held):
        path.unlink()
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in changed_copies(held)] == once
    assert len(set(once)) == len(KINDS) * ROUNDS
    assert all(path.stat().st_mode & 0o777 == 0o400 for path in changed_copies(held))


MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500) INSERT INTO t SELECT i FROM n"


def test_long_tables_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_copies, "ROWS", 50)
    path = make(tmp_path, f"CREATE TABLE t (a INTEGER); {MANY}")
    assert all(rows(copy, "SELECT COUNT(*) FROM t")[0][0] <= 100 for copy in changed_copies(hold(str(path))))


STRANGE = [
    "",
    "CREATE TABLE t (a)",
    "CREATE TABLE t (a INTEGER PRIMARY KEY, b AS (a + 1)); INSERT INTO t VALUES (1), (2)",
    "CREATE TABLE t (a TEXT PRIMARY KEY) WITHOUT ROWID; INSERT INTO t VALUES ('x'), ('y')",
    "CREATE TABLE t (a INTEGER) STRICT; INSERT INTO t VALUES (1), (2), (3)",
    "CREATE TABLE t (a INTEGER CHECK (a < 3)); INSERT INTO t VALUES (1), (2)",
    "CREATE VIRTUAL TABLE t USING fts5(a); INSERT INTO t VALUES ('x')",
    "CREATE TABLE t (a BLOB); INSERT INTO t VALUES (x'00ff'), (x'01'), (NULL), (1e308), (-9223372036854775808), ('\N{SNOWMAN}')",
    "CREATE TABLE t (a TEXT); INSERT INTO t VALUES (CAST(x'ff' AS TEXT)), ('b')",
    'CREATE TABLE "a ""b""" ("c d" TEXT); INSERT INTO "a ""b""" VALUES (\'x\'); CREATE VIEW v AS SELECT * FROM "a ""b"""',
    "CREATE TABLE t (a REFERENCES gone (b)); INSERT INTO t VALUES (1)",
    "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (3, 3)",
]


@pytest.mark.parametrize("script", STRANGE)
def test_strange_schemas_have_copies(tmp_path: Path, script: str) -> None:
    path = make(tmp_path, f"PRAGMA user_version = 1; {script}")
    for copy in changed_copies(hold(str(path))):
        assert rows(copy, "PRAGMA integrity_check") == [("ok",)]


small = st.one_of(st.none(), st.integers(-3, 3), st.floats(allow_nan=False, width=16), st.text("ab", max_size=2), st.binary(max_size=1))


@settings(max_examples=25)
@given(st.lists(st.tuples(small, small, small), max_size=12))
def test_any_table_has_copies_with_its_columns(table: list[Row]) -> None:
    source = sql_copies.Source({}, {}, "seed")
    columns = tuple(sql_copies.Column(table="t", name=name) for name in "abc")
    sheet = sql_copies.Sheet(columns, [list(row) for row in table], "")
    sql_copies._learn(sheet)
    source.tables["t"] = sheet
    sheet.key = min(sheet.unique, default=None)
    before = [list(row) for row in sheet.rows]
    for change in (sql_copies._fewer, sql_copies._exchanged, sql_copies._more):
        made = change(source, "t", sheet, sql_copies.random.Random(1))
        assert all(len(row) == 3 for row in made)
        for p in sheet.unique:
            assert len({row[p] for row in made}) == len(made)
        assert sheet.rows == before
