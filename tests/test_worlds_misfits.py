"""What each world says of lessons in words: names, values and code that a situation lacks."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import attempt, situation, task, verdict
from islands import ask, build
from mulligan.naming import LONGEST
from mulligan.records import Situation
from mulligan.worlds import code_naming, sql_naming, textgame_naming
from mulligan.worlds.grid import GridWorld, corridor_tasks
from mulligan.worlds.sql import SqlWorld
from mulligan.worlds.workspace import WorkspaceWorld


def said(found: Any) -> list[str]:
    return [misfit.what if misfit.kind == "unknown_name" else f"!{misfit.what}" for misfit in found]


# SQL

SQL = [
    ("Filter `name` with `'isk'`.", []),
    ("Filter on Isk, as the question says.", []),
    ("Use `SELECT area FROM island WHERE name = 'isk'`.", []),
    ("Use SELECT area FROM island WHERE name = 'isk'.", []),
    ("```sql\nSELECT i.name FROM island AS i ORDER BY i.area DESC LIMIT 1;\n```", []),
    ("`WITH big AS (SELECT name FROM island WHERE area > 100) SELECT name FROM big`", []),
    ("`SELECT b FROM (SELECT area AS b FROM island)`", []),
    ("`SELECT name, people / area AS density FROM island ORDER BY density DESC LIMIT 1`", []),
    ("`COUNT(*)`, then `GROUP BY name HAVING COUNT(*) > 1` and `CAST(area AS REAL)`", []),
    ("Values are in lower case, as in 'great skerry'.", []),
    ("The right table is `island`; the name column has it, each column counts.", []),
    ("Join `bridge.island` to `island.name`.", []),
    ("`area > 410`, or `area > 100`", []),
    ("`i.area` where `island i` is meant", []),
    ("Use `SELECT area FROM mountain WHERE height > 1`", ["mountain", "height"]),
    ("Use SELECT name FROM mountains.", ["mountains"]),
    ("`SELECT heigth FROM island`", ["heigth"]),
    ("`SELECT p.area FROM port AS p`", ["p.area"]),
    ("`SELECT MEDIAN(area) FROM island`", ["MEDIAN"]),
    ("`MEDIAN(area)`", ["MEDIAN"]),
    ("Select `island.heigth`, not `sea.name`.", ["island.heigth", "sea.name"]),
    ("Use state_name.", ["state_name"]),
    ("Look in the mountain table, in a column called height.", ["mountain", "height"]),
    ("Compare `name` with 'texas'.", ["texas"]),
    ("`SELECT area FROM island WHERE name = 'Isk'`", ["Isk"]),  # SQLite would not find it
    ("`SELECT area FROM island WHERE name IN ('isk', 'malta')`", ["malta"]),
    ("`area > 12345`", ["12345"]),
    ("`SELECT name FROM island WHERE area > 54321`", ["54321"]),
    ("`SELECT MAX(area) FROM`", ["!SELECT MAX(area) FROM"]),
    ("`SELECT ... FROM island`", ["!SELECT ... FROM island"]),
    ("`DELETE FROM island`", ["!DELETE FROM island"]),
    ("`DROP TABLE island`", ["!DROP TABLE island"]),
    ("```sql\nSELECT 1; DROP TABLE island\n```", ["!SELECT 1; DROP TABLE island"]),
    ("Nimm `berg` statt `island`.", ["berg"]),
]


@pytest.fixture(scope="module")
def isles(tmp_path_factory: pytest.TempPathFactory) -> Situation:
    database = build(tmp_path_factory.mktemp("isles"))
    return situation(task=ask(database, "SELECT area FROM island WHERE name = 'isk'", "How large is Isk?"))


@pytest.mark.parametrize(("text", "unknown"), SQL)
def test_a_database_lacks_what_it_does_not_hold(isles: Situation, text: str, unknown: list[str]) -> None:
    assert said(SqlWorld().misfits(isles, text)) == unknown


def test_what_a_wrong_query_named_is_not_there_for_being_said_again(isles: Situation) -> None:
    told = verdict(feedback="unknown_column: no such column: heigth; nearest: area")
    assert said(SqlWorld().misfits(replace(isles, history=(attempt("SELECT heigth", verdict=told),)), "Take `heigth`, or `area`.")) == [
        "heigth"
    ]


def test_what_the_question_names_is_there_for_prose(isles: Situation) -> None:
    asked = situation(task=ask(Path(isles.task.payload["database"]), "SELECT 1", "Is there a lighthouse called 'Old Tom'?"))
    assert said(SqlWorld().misfits(asked, "Look for `lighthouse` and 'Old Tom'.")) == []


@settings(max_examples=60)
@given(
    text=st.lists(
        st.sampled_from(["`", "```", "SELECT ", "FROM ", "island", ".", "'", '"', "(", " AS ", "1234", "\n", "x_1 ", "WITH ", "\x00", "東"])
    ).map("".join)
)
def test_any_text_about_a_database_is_read(isles: Situation, text: str) -> None:
    assert all(misfit.what for misfit in SqlWorld().misfits(isles, text))


DATA = Path(__file__).parents[2] / "shared" / "data" / "text2sql"


@pytest.mark.skipif(not DATA.is_dir(), reason="the public data sets are not beside the checkout")
def test_on_public_questions_gold_fits_and_a_renamed_name_does_not() -> None:
    from mulligan.tasks.text2sql import load_text2sql

    tasks, _ = load_text2sql(DATA / "geography.json", DATA / "geography-db.added-in-2020.sqlite", split_by="query")
    world, drawn = SqlWorld(), tasks[::8]
    columns = {name for column in world.facts(drawn[0])["columns"] for name in column.lower().split(".")}
    constants = renamed = 0
    for one in drawn:
        gold, where = one.payload["gold"], situation(task=one)
        constants += bool(unknown := said(world.misfits(where, f"Use `{gold}`.")))
        assert all(what.isdigit() for what in unknown), unknown  # 150000 makes a city major, and stands nowhere
        if names := [name for name in re.findall(r"\w+", re.sub(r"\"[^\"]*\"", "", gold)) if name.lower() in columns]:
            assert world.misfits(where, f"Use `{gold.replace(names[0], names[0] + 'x')}`."), gold
            renamed += 1
    assert constants <= len(drawn) / 10 and renamed > len(drawn) / 2


# Code

PROBLEM = situation(
    task=task(prompt="def has_close(numbers: List[float], threshold: float) -> bool:\n    Are two numbers closer than threshold?")
)
CODE = [
    ("Sort `numbers` and compare neighbours with `abs(a - b) < threshold`: `for a, b in zip(numbers, numbers[1:]):`", []),
    (
        "```python\ndef has_close(numbers, threshold):\n    found = sorted(numbers)\n    return any(map(abs, found))\n```",
        [],
    ),
    ("`elif threshold:`, `else`, `==`, `not in`, `except ValueError:`, `@lru_cache`, `O(n log n)`", []),
    ("`math.gcd`, `collections.Counter(numbers).most_common()` and `import heapq`", []),
    ("`numbers.sort()` returns nothing", []),
    ("`def has_close(numbers, threshold)`", []),
    ("`lambda x: x + 1`, `[n for n in numbers if n]`", []),
    ("Call `helper(numbers)`.", ["helper"]),
    ("Call helper(numbers).", ["helper"]),
    ("Keep a word_list.", ["word_list"]),
    ("`words`", ["words"]),
    ("`numbers.sort_all()`", ["sort_all"]),
    ("`import numpy as np`", ["numpy"]),
    ("`from sklearn.tree import Tree`", ["sklearn.tree"]),
    ("`for n in numbers if`", ["!for n in numbers if"]),
    ("```\nreturn [\n```", ["!return ["]),
    ("Keep a count of what was seen.", []),
]


@pytest.mark.parametrize(("text", "unknown"), CODE)
def test_a_problem_lacks_what_is_neither_pythons_nor_its_own(text: str, unknown: list[str]) -> None:
    assert said(code_naming.misfits(PROBLEM, text)) == unknown


def test_what_a_program_missed_is_not_there_for_being_said_again() -> None:
    told = verdict(feedback="exception: has_close([1.0], 0.5) raises NameError: name 'helper' is not defined; check_it(3) was called")
    tried = replace(PROBLEM, history=(attempt("x", verdict=told),))
    assert said(code_naming.misfits(tried, "Call `helper(numbers)` before `check_it(numbers)`.")) == ["helper"]


# Text games

ROOM = situation(
    task=task(prompt="put a clean mug in desk."),
    observation="You are in a room. You see a cabinet 1, a desk 1, a shelf 2, a sinkbasin 1. You can: go to desk 1, go to cabinet 1.",
    history=(attempt("go to bed 7", verdict=verdict(feedback="On the shelf 2, you see a soap bottle 1.")),),
)
GAMES = [
    ("Find the mug, clean it with the sinkbasin, then put it in the desk.", []),
    ("`go to desk 1`, then `take mug from shelf 2`", []),
    ("In the first 3 steps open the cabinets; step 2 was wrong.", []),
    ("The soapbottle is on shelf 2.", []),
    ("`take mug 1 from shelf 2`", ["mug 1"]),
    ("Take the apple to the fridge.", ["apple", "fridge"]),
    ("Look into drawer 3.", ["drawer 3", "drawer"]),
    ("Go to bed 7.", ["bed 7", "bed"]),  # only the agent itself has named it
    ("`open portal`", ["portal"]),
    ("Say 'abracadabra'.", ["abracadabra"]),
]


@pytest.mark.parametrize(("text", "unknown"), GAMES)
def test_a_play_lacks_what_it_has_not_seen(text: str, unknown: list[str]) -> None:
    assert said(textgame_naming.misfits(ROOM, text)) == unknown


# The others


def test_a_map_without_a_door_has_none() -> None:
    corridor, door, _ = corridor_tasks()
    assert said(GridWorld().misfits(situation(task=corridor), "Take the key, then `open` the door.")) == ["key", "door"]
    assert said(GridWorld().misfits(situation(task=door), "Take the key, then `open` the door.")) == []


def test_a_shop_lacks_other_products_options() -> None:
    pytest.importorskip("bm25s")
    from mulligan.worlds.shop import ShopWorld

    page = situation(
        task=task(prompt="I want a red lamp, size small, priced lower than 30 dollars."), observation="[Buy Now] red blue B0ABCDEFGH"
    )
    shop = ShopWorld()
    assert said(shop.misfits(page, "Choose red and small, then `click[Buy Now]`; `search[red lamp]` first.")) == []
    assert said(shop.misfits(page, "Choose the green one, xx-large, from `B0ZZZZZZZZ`.")) == ["B0ZZZZZZZZ", "xx-large", "green"]


def test_a_repository_has_the_names_that_were_shown() -> None:
    shown = situation(task=task(prompt="src/app.py: total() raises KeyError", context="def total(items):\n    return sum(items)"))
    world = WorkspaceWorld()
    assert said(world.misfits(shown, "In `total(items)` use `sum(items, 0)`.")) == []
    assert said(world.misfits(shown, "Call `audit(items)` from old_helpers.")) == ["audit", "old_helpers"]


@pytest.mark.parametrize(
    "piece", ["`", "```\n", "'", "SELECT ", "SELECT x FROM ", "(", "a.b ", "`a` ", "the x table ", '"', "mug 1 ", "x_y "]
)
def test_a_row_of_anything_takes_little_time(isles: Situation, piece: str) -> None:
    text, began = piece * (LONGEST // len(piece)), time.process_time()
    for misfits in (sql_naming.misfits, code_naming.misfits, textgame_naming.misfits):
        extra = [Path(isles.task.payload["database"])] if misfits is sql_naming.misfits else []
        misfits(isles, text, *extra)  # type: ignore[operator]
    assert time.process_time() - began < 3
