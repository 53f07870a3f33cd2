"""The bundled sample: it is built anywhere, its questions have answers worth asking for, and its pitfalls bite in every split."""

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp, parse_one

from mulligan.errors import UsageError
from mulligan.records import Task
from mulligan.tasks.sample import DATA, build_sample, load_sample
from mulligan.tasks.splits import check_splits

ENTRIES: list[dict[str, Any]] = json.loads((DATA / "questions.json").read_text("utf-8"))

# Pitfall → what someone who does not know of it would write instead.
NAIVE: dict[str, Callable[[str], str]] = {
    "cents": lambda sql: re.sub(r" / 100\.0|(?<=\d)00\b", "", sql),
    "metres": lambda sql: re.sub(r" / 1000\.0|(?<=\d)000\b", "", sql),
    "ratio": lambda sql: sql.replace("100.0 * ", "100 * "),
    "distinct": lambda sql: sql.replace("DISTINCT ", "").replace(" WHERE vehicle IS NOT NULL", ""),
    "null-not-in": lambda sql: re.sub(r" WHERE \w+ IS NOT NULL\)", ")", sql),
    "passengers": lambda sql: re.sub(r"SUM\((b\.)?seats\)", "COUNT(*)", sql),
    "tie": lambda sql: re.sub(r" = \(SELECT (MAX|MIN)\((\w+)\).*\)$", r" IS NOT NULL ORDER BY \2 LIMIT 1", sql),
    "open": lambda sql: re.sub(r"( WHERE| AND) (c\.)?\w+_on IS (NOT )?NULL", "", sql),
    "timestamp": lambda sql: re.sub(r"departs LIKE '([\d-]+)%'", r"departs = '\1'", sql),
    "name-order": lambda sql: re.sub(r"'(\w+), (\w+)'", r"'\2 \1'", sql),
    "case": lambda sql: re.sub(r"name = '([^']+)'", lambda m: f"name = '{m[1].title()}'", sql),
    "zone": lambda sql: re.sub(r"zone = 'T", "zone = '", sql).replace("area = ", "zone = ").replace("SELECT area", "SELECT zone"),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(build_sample(tmp_path_factory.mktemp("sample")))) as connection:
        yield connection


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    return load_sample(tmp_path_factory.mktemp("tasks"))


def test_every_question_becomes_a_task(tasks: list[Task]) -> None:
    assert len(tasks) == len(ENTRIES) >= 150
    check_splits(tasks)
    counts = Counter(task.split for task in tasks)
    assert counts["source"] >= 60
    assert counts["train"] >= 30
    assert counts["heldout"] >= 80
    assert len({task.group for task in tasks}) >= 100
    assert {(task.domain, task.benchmark, task.scope) for task in tasks} == {("sql", "ferries", "default")}
    assert all(Path(task.payload["database"]).is_file() for task in tasks)
    assert "'HALCYON'" in tasks[0].context


def test_the_database_is_realistic_and_small(database: sqlite3.Connection) -> None:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = {name: database.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables}
    assert rows == {
        "port": 16, "vessel": 14, "crew": 36, "route": 22, "sailing": 340, "customer": 72, "booking": 440, "incident": 46,
    }  # fmt: skip
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert sum((DATA / name).stat().st_size for name in ("ferries.sql", "questions.json")) < 300_000


@pytest.mark.parametrize(
    "rule",
    [
        "SELECT * FROM booking JOIN customer USING (customer_id) WHERE ended_on < booked_on",
        "SELECT * FROM booking JOIN sailing USING (sailing_id) WHERE booked_on > departs",
        "SELECT * FROM sailing JOIN vessel USING (vessel_id) WHERE retired_on < departs",
        "SELECT * FROM sailing JOIN crew ON crew_id = captain_id WHERE rank <> 'CAPT' OR left_on < date(departs) OR hired_on > departs",
        "SELECT * FROM sailing JOIN route USING (route_id) WHERE route.status = 'X'",
        "SELECT * FROM sailing WHERE (status = 'C') <> (delay_min IS NULL) OR (status = 'L') <> (COALESCE(delay_min, 0) > 0)",
        "SELECT * FROM incident WHERE closed_on < reported_on",
        "SELECT name FROM vessel WHERE name <> UPPER(name) UNION SELECT name FROM port WHERE name <> LOWER(name)",
    ],
)
def test_the_season_makes_sense(database: sqlite3.Connection, rule: str) -> None:
    assert database.execute(rule).fetchall() == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["question"][:40])
def test_gold_answers_are_neither_trivial_nor_ambiguous(database: sqlite3.Connection, entry: dict[str, Any]) -> None:
    rows = database.execute(entry["query"]).fetchall()
    assert 1 <= len(rows) <= 40
    assert all(cell not in (None, 0, "") for row in rows for cell in row)
    tree = parse_one(entry["query"], read="sqlite")
    if limit := tree.args.get("limit"):  # no tie decides who is in
        taken = int(limit.expression.this)
        tree.set("expressions", [ordered.this.copy() for ordered in tree.args["order"].expressions])
        limit.set("expression", exp.Literal.number(taken + 1))
        keys = database.execute(tree.sql("sqlite")).fetchall()
        assert keys[taken - 1] != keys[taken]


def test_questions_are_told_apart_and_templates_stay_in_one_split() -> None:
    assert len({entry["question"].casefold() for entry in ENTRIES}) == len(ENTRIES)
    splits = defaultdict(set)
    for entry in ENTRIES:
        splits[entry["group"]].add(entry["split"])
    assert [group for group, found in splits.items() if len(found) > 1] == []


@pytest.mark.parametrize("pitfall", NAIVE)
def test_a_pitfall_bites_in_source_and_in_heldout(database: sqlite3.Connection, pitfall: str) -> None:
    """The naive query gives another result, so that a lesson from the source split is worth something in the held-out one."""
    bitten: Counter[str] = Counter()
    for entry in ENTRIES:
        if pitfall not in entry["pitfalls"]:
            continue
        naive = NAIVE[pitfall](entry["query"])
        bitten[entry["split"]] += sorted(database.execute(naive).fetchall(), key=repr) != sorted(
            database.execute(entry["query"]).fetchall(), key=repr
        )
    total = Counter(entry["split"] for entry in ENTRIES if pitfall in entry["pitfalls"])
    assert bitten["source"] >= 1
    assert bitten["heldout"] >= 2 or (pitfall == "ratio" and bitten["heldout"])
    assert bitten.total() >= 0.7 * total.total(), (bitten, total)


def test_shapes_are_many() -> None:
    shapes = {
        "join": exp.Join, "group": exp.Group, "having": exp.Having, "distinct": exp.Distinct, "subquery": exp.Subquery,
        "limit": exp.Limit, "intersect": exp.Intersect, "except": exp.Except, "count": exp.Count, "sum": exp.Sum, "avg": exp.Avg,
        "max": exp.Max, "min": exp.Min, "like": exp.Like, "null": exp.Is, "not": exp.Not, "round": exp.Round, "in": exp.In,
    }  # fmt: skip
    trees = [parse_one(entry["query"], read="sqlite") for entry in ENTRIES]
    assert [name for name, shape in shapes.items() if not any(tree.find(shape) for tree in trees)] == []


def test_building_again_gives_the_same_bytes_and_mends(tmp_path: Path) -> None:
    path = build_sample(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(build_sample, [tmp_path] * 8)) == {path}
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write the sample database below .*file"):
        build_sample(tmp_path / "file")
