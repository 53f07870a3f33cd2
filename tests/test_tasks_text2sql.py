"""The text2sql-data format: variables, splits, what is left out, and GeoQuery itself where it is at hand."""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Task
from mulligan.tasks.loading import LeftOut
from mulligan.tasks.splits import check_splits
from mulligan.tasks.text2sql import load_text2sql

GEOQUERY = Path(__file__).parents[2] / "shared" / "data" / "text2sql"
RIVERS = "SELECT name FROM river WHERE state = 'state0' ;"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "rivers.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("""
            CREATE TABLE river (name TEXT, state TEXT, length INT);
            INSERT INTO river VALUES ('red', 'texas', 1360), ('pecos', 'texas', 926), ('gila', 'new "mex"ico', 649), ('o''hara', NULL, 5);
        """)
    return path


@pytest.fixture
def load(tmp_path: Path, database: Path) -> Callable[..., Any]:
    def loaded(*entries: Mapping[str, Any], **options: Any) -> Any:
        path = tmp_path / "rivers.json"
        path.write_text(json.dumps(entries), "utf-8")
        return load_text2sql(path, database, **options)

    return loaded


def entry(sql: str, *sentences: Mapping[str, Any], split: Any = "train", **variables: str) -> dict[str, Any]:
    listed = [{"name": name, "example": example, "location": "both", "type": "x"} for name, example in variables.items()]
    return {"query-split": split, "sentences": list(sentences), "sql": [sql, "SELECT 'another'"], "variables": listed}


def sentence(text: str, split: Any = "train", **variables: str) -> dict[str, Any]:
    return {"question-split": split, "text": text, "variables": variables}


def golds(tasks: list[Task]) -> list[str]:
    return [task.payload["gold"] for task in tasks]


def test_a_task_holds_what_the_sql_world_reads(load: Callable[..., Any], database: Path) -> None:
    (task,), report = load(entry(RIVERS, sentence("rivers of state0 ?", state0="texas"), state0="utah"))
    assert task.prompt == "rivers of texas ?"
    assert task.payload == {"database": str(database.resolve()), "gold": "SELECT name FROM river WHERE state = 'texas' ;"}
    assert (task.domain, task.benchmark, task.split, task.scope, task.facts) == ("sql", "rivers", "source", "default", {})
    assert "'pecos'" in task.context
    assert "river" in task.context
    assert (report.read, report.kept, report.left_out) == (1, 1, {})


def test_ids_are_readable_and_depend_on_content(load: Callable[..., Any]) -> None:
    ask = [entry(RIVERS, sentence("rivers of state0", state0="texas"), sentence("any in state0", state0="texas"), state0="")]
    first, second = load(*ask)[0]
    assert first.id.startswith("rivers/q0001-")
    assert second.id.startswith("rivers/q0002-")
    assert [first.id, second.id] == [task.id for task in load(*ask)[0]]
    changed = entry(RIVERS, sentence("rivers in state0", state0="texas"), state0="")
    assert load(changed)[0][0].id != first.id


@pytest.mark.parametrize(
    ("sql", "values", "gold"),
    [
        ("SELECT 'a0' || 'a01'", {"a0": "x", "a01": "y"}, "SELECT 'x' || 'y'"),  # one name is the start of another
        ("SELECT 'a0' || 'b0'", {"a0": "b0", "b0": "y"}, "SELECT 'b0' || 'y'"),  # a value that reads like a name stays
        ("SELECT a0, 'a0'", {"a0": "1"}, "SELECT 1, '1'"),
        ("SELECT 'a0'", {"a0": "o'hara"}, "SELECT 'o''hara'"),
        ('SELECT "a0"', {"a0": 'new "mex"ico'}, 'SELECT "new ""mex""ico"'),
        ("SELECT \"a0\" || 'it is'", {"a0": "o'hara"}, "SELECT \"o'hara\" || 'it is'"),
        ("SELECT 'a0' || 'c0'", {"a0": "x"}, "SELECT 'x' || 'only'"),  # a variable of the query alone has only its example
        ("SELECT 'a0' || 'c0'", {"a0": "x", "c0": ""}, "SELECT 'x' || 'only'"),
    ],
)
def test_variables_are_filled_in(load: Callable[..., Any], sql: str, values: dict[str, str], gold: str) -> None:
    tasks, _ = load(entry(sql, sentence("what", **values), c0="only", **dict.fromkeys(values.keys() - {"c0"}, "")))
    assert golds(tasks) == [gold]


@pytest.mark.parametrize(
    ("name", "split"),
    [("train", "source"), ("dev", "train"), ("test", "heldout"), ("0", "source"), (4, "source"), ("5", "train"), (7, "heldout")],
)
def test_both_splits_of_the_file_can_be_taken(load: Callable[..., Any], name: Any, split: str) -> None:
    assert [t.split for t in load(entry(RIVERS, sentence("q state0", name, state0="texas"), state0=""))[0]] == [split]
    asked = entry(RIVERS, sentence("q state0", "train", state0="texas"), split=name, state0="")
    assert [t.split for t in load(asked, split_by="query")[0]] == [split]


def test_groups_are_questions_or_query_templates(load: Callable[..., Any]) -> None:
    asked = entry(RIVERS, sentence("rivers of state0", state0="texas"), sentence("any in state0", state0="texas"), state0="")
    assert len({task.group for task in load(asked)[0]}) == 2
    assert len({task.group for task in load(asked, split_by="query")[0]}) == 1


@pytest.mark.parametrize(
    ("sentences", "kept", "left_out"),
    [
        # what is measured stays, what could have taught it goes
        ([sentence("How long?", "train"), sentence("how  long", "test")], ["how  long"], {"crosses_splits": 1}),
        ([sentence("How long?", "test"), sentence("how long", "dev"), sentence("x")], ["How long?", "x"], {"crosses_splits": 1}),
        ([sentence("how long"), sentence("how long?")], ["how long"], {"duplicate": 1}),
        ([sentence("how long", "exclude"), sentence("how wide")], ["how wide"], {"excluded": 1}),
        ([sentence("ＨＯＷ long", "dev"), sentence("how long", "train")], ["ＨＯＷ long"], {"crosses_splits": 1}),
        ([sentence("how long"), sentence("how wide", "test")], ["how long", "how wide"], {}),
        ([sentence("length > 5"), sentence("length < 5", "test")], ["length > 5", "length < 5"], {}),
    ],
)
def test_no_question_is_in_two_splits(load: Callable[..., Any], sentences: list[Any], kept: list[str], left_out: dict[str, int]) -> None:
    tasks, report = load(entry("SELECT length FROM river", *sentences))
    assert [task.prompt for task in tasks] == kept
    assert report.left_out == left_out
    check_splits(tasks)


def test_a_question_with_two_gold_queries_keeps_the_first(load: Callable[..., Any]) -> None:
    tasks, report = load(entry("SELECT 1", sentence("how many")), entry("SELECT 2", sentence("how many")))
    assert golds(tasks) == ["SELECT 1"]
    assert report.left_out == {"ambiguous": 1}


def test_a_query_template_is_in_one_split(load: Callable[..., Any]) -> None:
    tasks, report = load(entry("SELECT 1", sentence("a"), split="train"), entry("SELECT 1", sentence("b"), split="test"), split_by="query")
    assert [task.prompt for task in tasks] == ["b"]
    assert report.left_out == {"crosses_splits": 1}


def test_gold_queries_that_cannot_judge_are_left_out(load: Callable[..., Any]) -> None:
    asked = [
        entry("SELECT name FROM lake", sentence("no such table")),
        entry("DELETE FROM river", sentence("changes")),
        entry("SELECT name FROM river WHERE length > 9999", sentence("no row")),
        entry("SELECT MAX(length) FROM river WHERE state = 'utah'", sentence("null alone")),
        entry("SELECT COUNT(*) FROM river", sentence("fine")),
    ]
    tasks, report = load(*asked)
    assert [task.prompt for task in tasks] == ["fine"]
    assert report.left_out == {"gold_fails": 2, "gold_empty": 2}
    assert (report.read, report.kept) == (5, 1)
    tasks, report = load(*asked, skip_empty=False)
    assert [task.prompt for task in tasks] == ["no row", "null alone", "fine"]
    assert report.left_out == {"gold_fails": 2}


def test_a_question_left_out_for_its_gold_does_not_push_out_its_twin(load: Callable[..., Any]) -> None:
    tasks, _ = load(entry("SELECT 1", sentence("how many", "train")), entry("SELECT x", sentence("how many", "test")))
    assert [task.split for task in tasks] == ["source"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.pop("sql"), "[0] has no 'sql'"),
        (lambda e: e.update(sql=[]), "[0].sql must be a list of at least one query"),
        (lambda e: e.update(sql="SELECT 1"), "[0].sql must be a list"),
        (lambda e: e.update(sentences={}), "[0].sentences must be a list"),
        (lambda e: e["sentences"][0].update(text="  "), "[0].sentences[0].text must be text"),
        (lambda e: e["sentences"][0].update({"question-split": "tset"}), "[0].sentences[0].question-split must be one of train, dev, test"),
        (lambda e: e["sentences"][0].update({"question-split": True}), "[0].sentences[0].question-split must be one of"),
        (lambda e: e["sentences"][0].update(variables={"a": 3}), "[0].sentences[0].variables.a must be text"),
        (lambda e: e["sentences"][0].update(text="\ud800"), "[0].sentences[0].text must be text without half surrogate pairs"),
        (lambda e: e.update(variables=[{"name": "a"}]), "[0].variables[0] has no 'example'"),
        (lambda e: e.update(sentences=[]), "no question that can be used among 0"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(load: Callable[..., Any], change: Callable[[Any], Any], message: str) -> None:
    asked = entry("SELECT 1", sentence("how many"))
    change(asked)
    with pytest.raises(InvalidData) as caught:
        load(asked)
    assert "rivers.json: " in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1, column 1: Expecting value"),
        (b"[{]", "line 1, column 3"),
        (b"\xff\xfe", "byte 0 is no UTF-8"),
        (b"[" * 100_000, "cannot be read"),
        (b"[" + b"9" * 5000 + b"]", "cannot be read"),
        (b"{}", "the whole file must be a list"),
        (b"[]", "no question that can be used"),
        (b"[[]]", "[0] must be an object"),
    ],
)
def test_a_file_that_holds_no_questions_is_refused(tmp_path: Path, database: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(InvalidData, match=r"broken\.json: ") as caught:
        load_text2sql(path, database)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path, database: Path, load: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere\.json: No such file"):
        load_text2sql(tmp_path / "nowhere.json", database)
    load(entry("SELECT 1", sentence("how many")))
    with pytest.raises(UsageError, match=r"nowhere\.sqlite"):
        load_text2sql(tmp_path / "rivers.json", tmp_path / "nowhere.sqlite")


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path, database: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_text(json.dumps([entry("SELECT 1", sentence("how many"))]), "utf-8-sig")
    assert len(load_text2sql(path, database)[0]) == 1


def test_every_reason_is_explained_in_the_docs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text("utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(get_args(LeftOut))


@pytest.mark.skipif(not GEOQUERY.is_dir(), reason="GeoQuery is not beside this checkout")
@pytest.mark.parametrize(("split_by", "groups"), [("question", 844), ("query", 235)])
def test_geoquery_loads(split_by: Any, groups: int) -> None:
    tasks, report = load_text2sql(GEOQUERY / "geography.json", GEOQUERY / "geography-db.added-in-2020.sqlite", split_by=split_by)
    check_splits(tasks)
    assert report.read == 877
    assert (report.left_out["gold_fails"], report.left_out["gold_empty"]) == (5, 28)  # as counted with sqlite3 alone
    assert len({task.group for task in tasks}) == groups
    assert {task.split for task in tasks} == {"source", "train", "heldout"}
    assert len({task.prompt for task in tasks}) == len(tasks) == report.kept
