"""The Spider and BIRD layout: keys of both, databases by name, groups, and one's own split and group."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import InvalidData, UsageError
from mulligan.tasks.spider import load_spider
from mulligan.tasks.splits import check_splits

ASK: Mapping[str, Any] = {"db_id": "singers", "question": "How many singers are there?", "query": "SELECT COUNT(*) FROM singer"}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    for name in ("singers", "choirs"):
        (tmp_path / "database" / name).mkdir(parents=True)
        with closing(sqlite3.connect(tmp_path / "database" / name / f"{name}.sqlite")) as connection:
            connection.executescript("CREATE TABLE singer (name TEXT, age INT); INSERT INTO singer VALUES ('Ann', 30), ('Bo', NULL);")

    def loaded(*entries: Any, **options: Any) -> Any:
        (tmp_path / "dev.json").write_text(json.dumps(entries), "utf-8")
        return load_spider(tmp_path / "dev.json", tmp_path / "database", **options)

    return loaded


def test_a_spider_entry_becomes_a_task(load: Callable[..., Any], tmp_path: Path) -> None:
    (task,), report = load(ASK | {"query_toks": ["select"], "sql": {}}, split="source", benchmark="spider-dev")
    assert task.payload == {"database": str(tmp_path / "database" / "singers" / "singers.sqlite"), "gold": ASK["query"]}
    assert (task.prompt, task.group, task.split, task.benchmark) == (ASK["question"], "singers", "source", "spider-dev")
    assert task.id.startswith("spider-dev/q0001-")
    assert "'Ann'" in task.context
    assert report.kept == 1


def test_a_bird_entry_shows_its_evidence(load: Callable[..., Any]) -> None:
    bird = {"question_id": 1, "db_id": "singers", "question": "Who is old?", "evidence": "old: age > 29", "SQL": "SELECT name FROM singer"}
    tasks, _ = load(bird, ASK | {"evidence": ""})
    assert [task.prompt for task in tasks] == ["Who is old?\nHint: old: age > 29", ASK["question"]]
    assert tasks[0].payload["gold"] == "SELECT name FROM singer"


def test_own_questions_name_split_and_group(load: Callable[..., Any]) -> None:
    tasks, _ = load(ASK, {**ASK, "question": "How many?", "split": "source", "group": "counts"})
    assert [(task.split, task.group) for task in tasks] == [("heldout", "singers"), ("source", "counts")]
    check_splits(tasks)


def test_a_database_stays_in_one_split(load: Callable[..., Any]) -> None:
    tasks, report = load(ASK | {"split": "train"}, ASK | {"db_id": "choirs"}, {**ASK, "question": "And how many?"})
    assert [(task.group, task.split) for task in tasks] == [("choirs", "heldout"), ("singers", "heldout")]
    assert report.left_out == {"crosses_splits": 1}


def test_the_same_words_about_another_database_are_another_question(load: Callable[..., Any]) -> None:
    tasks, report = load(ASK, ASK | {"db_id": "choirs"}, ASK)
    assert [task.group for task in tasks] == ["singers", "choirs"]
    assert len({task.id for task in tasks}) == 2
    assert report.left_out == {"duplicate": 1}


def test_a_missing_database_says_where_to_put_it(load: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(ASK | {"db_id": "world_1"})
    place = tmp_path / "database" / "world_1" / "world_1.sqlite"
    assert str(caught.value).endswith(f"dev.json: [0].db_id: there is no database 'world_1': put it at {place}")


@pytest.mark.parametrize("name", ["../singers", "/etc/passwd", "..", "a/b", "a\\b", "a\0b", " a", "x" * 300, "é" * 61, "\n"])
def test_a_database_name_leads_nowhere_else(load: Callable[..., Any], name: str) -> None:
    with pytest.raises(InvalidData, match=r"\[0\]\.db_id must be"):
        load(ASK | {"db_id": name})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, "[0].question must be text"),
        ({"query": 3}, "[0].query must be text"),
        ({"evidence": ["x"]}, "[0].evidence must be text"),
        ({"split": "dev"}, "[0].split must be one of source, train, heldout"),
        ({"group": ""}, "[0].group must be text"),
        ({"query": "SELECT nothing"}, "no question that can be used among 1 (1 gold_fails)"),
    ],
)
def test_a_wrong_entry_is_named(load: Callable[..., Any], change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidData) as caught:
        load(ASK | change)
    assert "dev.json: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["db_id", "question", "query"])
def test_a_missing_key_is_named(load: Callable[..., Any], key: str) -> None:
    with pytest.raises(InvalidData, match=rf"dev\.json: \[0\] has no '{key}'"):
        load({name: value for name, value in ASK.items() if name != key})


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is no SQLite database"), (b"SQLite format 3\0" + b"\xff" * 4000, "is a damaged SQLite database")],
)
def test_a_file_that_is_no_database_is_named(load: Callable[..., Any], tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "database" / "singers" / "singers.sqlite").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load(ASK)


def test_a_database_without_tables_is_named(load: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "database" / "empty").mkdir()
    with closing(sqlite3.connect(tmp_path / "database" / "empty" / "empty.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(InvalidData, match=r"empty\.sqlite is a SQLite database without tables"):
        load({"db_id": "empty", "question": "What?", "query": "SELECT 1"})


def test_a_replaced_database_is_read_again(load: Callable[..., Any], tmp_path: Path) -> None:
    assert "city" not in load(ASK)[0][0].context
    with closing(sqlite3.connect(tmp_path / "database" / "singers" / "singers.sqlite")) as connection:
        connection.executescript("ALTER TABLE singer ADD COLUMN city TEXT;")
    assert "city" in load(ASK)[0][0].context
