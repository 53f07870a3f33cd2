"""Changed tasks for transfer and probes: rules over questions and queries, the assertions, and pairs from records."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from builders import learnt, record, task
from islands import ask, build, make
from mulligan.errors import UsageError
from mulligan.nouns import from_plain, to_plain
from mulligan.records import Task
from mulligan.tasks.drafts import Kind, Reason, lesson
from mulligan.tasks.sample import load_sample
from mulligan.tasks.text2sql import load_text2sql
from mulligan.tasks.variants import FURTHEST, Pairs, pairs
from mulligan.worlds import sql_environments as environments
from mulligan.worlds.sql import SqlWorld
from mulligan.worlds.sql_engine import Limits, Result, hold, run
from mulligan.worlds.sql_lookalikes import RULES
from mulligan.worlds.sql_schema import catalogue
from mulligan.worlds.sql_variants import Asked, mined, read, reworded

SHARED = Path(__file__).parents[2] / "shared" / "data"
KINDS: Sequence[Kind] = get_args(Kind)


# ---- placeholders ----


def test_placeholders_are_filled_from_the_prompt() -> None:
    given = record("How long is <value1> in <value2>, <value1>?", corrected="x = '<value1>' AND y = '<value2>'")
    found = lesson(given, task(prompt="How long is long burn in Corrin, long burn?"))
    assert found.correction == "x = 'long burn' AND y = 'Corrin'"


def test_a_situation_that_was_cut_fills_what_it_has() -> None:
    given = record("How long is <value1> in the northern…", corrected="'<value1>' '<value2>'")
    assert lesson(given, task(prompt="How long is long burn in the northern sea?")).correction == "'long burn' '<value2>'"


def test_a_situation_of_placeholders_alone_takes_no_time() -> None:
    given = record("<value1>" + " <value2> <value3>" * 40 + "!", corrected="<value1>")
    assert lesson(given, task(prompt="a " * 50_000)).correction == "<value1>"


@pytest.mark.parametrize("prompt", ["Something else", "", "How long is ?"])
def test_placeholders_stay_where_prompt_and_situation_differ(prompt: str) -> None:
    assert lesson(record("How long is <value1>?", corrected="<value1>"), task(prompt=prompt)).correction == "<value1>"


# ---- rules over questions and queries ----

LOOKALIKES = [
    (
        "another kind",
        "How many people live on arn?",
        "SELECT people FROM island WHERE name = 'arn'",
        "How many people live on port {port}?",
        "SELECT people FROM port WHERE port_name = 'port {port}'",
    ),
    (
        "another noun",
        "How many ports are there?",
        "SELECT COUNT(port_name) FROM port",
        "How many streams are there?",
        "SELECT COUNT(stream_name) FROM stream",
    ),
    (
        "another attribute",
        "What is the area of arn?",
        "SELECT area FROM island WHERE name = 'arn'",
        "What is the people of arn?",
        "SELECT people FROM island WHERE name = 'arn'",
    ),
    (
        "opposite",
        "Which island has the largest area?",
        "SELECT name FROM island ORDER BY area DESC LIMIT 1",
        "Which island has the smallest area?",
        "SELECT name FROM island ORDER BY area ASC LIMIT 1",
    ),
    (
        "no superlative",
        "What is the longest stream?",
        "SELECT stream_name FROM stream WHERE length = (SELECT MAX(length) FROM stream)",
        "What are all the streams?",
        "SELECT stream_name FROM stream",
    ),
    (
        "not counted",
        "How many streams cross corrin?",
        "SELECT COUNT(*) FROM stream WHERE crosses = 'corrin'",
        "which streams cross corrin?",
        "SELECT stream_name FROM stream WHERE crosses = 'corrin'",
    ),
]


@pytest.mark.parametrize(("rule", "question", "gold", "new_question", "new_gold"), LOOKALIKES, ids=[case[0] for case in LOOKALIKES])
def test_a_rule_changes_one_fact(tmp_path: Path, rule: str, question: str, gold: str, new_question: str, new_gold: str) -> None:
    reading = read(Asked(question=question, gold=gold, correction=gold), hold(str(build(tmp_path))))
    assert reading
    found = [change for make in RULES for change in make(reading) if change.rule == rule]
    ports = {f"{chr(97 + i)}{i % 7}" for i in range(30)} if "{port}" in new_gold else {""}
    wanted = {(new_question.format(port=port), new_gold.format(port=port)) for port in ports}
    assert [(change.asked.question, change.asked.gold) for change in found if (change.asked.question, change.asked.gold) in wanted], found
    for change in found:
        assert isinstance(run(reading.held, change.asked.gold, Limits()), Result)
        if change.rule == "another kind":  # what follows the correction writes the new value into it
            assert change.asked.correction == gold.replace(
                "arn", change.asked.question.removeprefix("How many people live on ").rstrip("?")
            )


def test_a_place_becomes_a_wider_place(tmp_path: Path) -> None:
    world, path = SqlWorld(), build(tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE port ADD COLUMN sea TEXT")
        connection.execute("UPDATE port SET sea = CASE WHEN rowid % 2 THEN 'north sea' ELSE 'south sea' END")
    source = ask(path, "SELECT port_name FROM port WHERE island = 'arn'", prompt="Name the ports of arn")
    made = pairs(
        [learnt(source, "SELECT port_name FROM port WHERE island = 'arn'", '"port.island" in values')], world, "lookalike", tmp_path
    )
    (variant,) = made.variants
    assert variant.rule == "another place"
    assert variant.gold.replace("'north sea'", "'south sea'") == "SELECT port_name FROM port WHERE sea = 'south sea'"


def test_another_question_lends_its_wording(tmp_path: Path) -> None:
    held = hold(str(build(tmp_path)))
    one = read(
        Asked(question="how long is the red water", gold="SELECT length FROM stream WHERE stream_name = 'red water'", correction="x"), held
    )
    other = read(
        Asked(question="Where is the long burn?", gold="SELECT crosses FROM stream WHERE stream_name = 'long burn'", correction=""), held
    )
    same = read(
        Asked(question="What length has the still?", gold="SELECT length FROM stream WHERE stream_name = 'still'", correction=""), held
    )
    assert one and other and same
    found = mined(one, other)
    assert found and (found.asked.question, found.asked.gold, found.asked.correction) == (
        "Where is the red water?",
        "SELECT crosses FROM stream WHERE stream_name = 'red water'",
        "x",
    )
    again = reworded(one, same)
    assert again and again.question == "What length has the red water?"
    assert reworded(one, other) is None
    assert mined(one, one) is None


# ---- databases under other names ----

QUERIES = [
    "SELECT name FROM island WHERE area > 300",
    "SELECT T1.name FROM island AS T1 JOIN port AS T2 ON T1.name = T2.island WHERE T2.people > (SELECT AVG(people) FROM port)",
    'SELECT T1.name FROM island AS T1 WHERE T1.chain = "south"',
    "SELECT island.name, COUNT(*) FROM island, port WHERE port.island = island.name GROUP BY island.name ORDER BY island.people",
    "SELECT crosses FROM stream GROUP BY crosses HAVING COUNT(DISTINCT stream_name) > 1",
    "WITH big AS (SELECT name FROM island WHERE area > 300) SELECT port_name FROM port WHERE island IN (SELECT name FROM big)",
    "SELECT other FROM bridge WHERE island IN (SELECT b.island FROM bridge AS b WHERE b.other = 'arn')",
]


@pytest.mark.parametrize("turn", range(environments.NAMINGS))
@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_says_the_same_under_other_names(tmp_path: Path, sql: str, turn: int) -> None:
    held = hold(str(build(tmp_path)))
    names = environments.renaming(catalogue(held), turn)
    path = environments.renamed(held, names, tmp_path)
    assert path
    before, after = run(held, sql, Limits()), run(hold(str(path)), environments.carried(sql, names, held), Limits())
    assert isinstance(before, Result)
    assert isinstance(after, Result)
    assert before.rows == after.rows
    old = {column.full for column in catalogue(held).columns()} & {column.full for column in catalogue(hold(str(path))).columns()}
    assert not old


def test_a_new_name_is_never_one_that_is_there(tmp_path: Path) -> None:
    held = hold(str(make(tmp_path, "CREATE TABLE cat (name TEXT, cat_name TEXT, name_cat TEXT); CREATE TABLE cats (name TEXT);")))
    names = environments.renaming(catalogue(held))
    assert sorted(names.tables.items()) == [("cat", "cats_2"), ("cats", "cat_2")]
    assert environments.renamed(held, names, tmp_path)


def test_other_content_keeps_references_and_the_schema(tmp_path: Path) -> None:
    held = hold(str(build(tmp_path)))
    made = environments.refilled(held, tmp_path)
    assert made == environments.refilled(held, tmp_path)
    assert made
    there = hold(str(made[0]))
    assert catalogue(there) == catalogue(held)
    orphans = run(there, "SELECT COUNT(*) FROM port WHERE island NOT IN (SELECT name FROM island)", Limits())
    names = run(there, "SELECT COUNT(*) FROM island WHERE name IN ('arn', 'bessel', 'great skerry', 'jura point')", Limits())
    assert isinstance(orphans, Result) and isinstance(names, Result)
    assert (orphans.rows, names.rows) == (((0,),), ((0,),))
    assert len(set(made[1].values())) == len(made[1])


# ---- pairs ----

SEATS = "SELECT seats FROM vessel WHERE name = 'HALCYON'"


@pytest.fixture
def ferries(tmp_path: Path) -> list[Task]:
    return load_sample(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_of_the_sample(ferries: list[Task], tmp_path: Path, kind: Kind) -> None:
    source = next(task for task in ferries if "Halcyon have" in task.prompt)
    given = [learnt(source, SEATS, '"vessel.seats" in mentions')]
    made = pairs(given, SqlWorld(), kind, tmp_path / "built", others=ferries)
    (variant,) = made.variants
    task, told = variant.task, variant.asserted
    assert (task.split, task.group, task.id != source.id) == ("heldout", source.group, True)
    assert (variant.source, variant.record) == (source.id, given[0][0].id)
    assert told.source_solved and told.gold_solved
    assert (told.condition_false, told.stored_solved, told.carried_solved) == {
        "lookalike": (True, False, False),
        "paraphrase": (told.condition_false, True, True),
        "schema": (told.condition_false, False, True),
        "environment": (False, False, True),
        "placebo": (False, True, True),
    }[kind]
    assert pairs(given, SqlWorld(), kind, tmp_path / "built", others=ferries) == made
    assert from_plain(Pairs, json.loads(json.dumps(to_plain(made)))) == made
    world = SqlWorld()
    with world.start(task) as state:  # what was asserted can be asserted again
        assert world.act(state, variant.gold).solved
        assert world.act(state, variant.carried).solved is told.carried_solved


REFUSED: Sequence[tuple[str, str, Reason]] = [
    ("SELECT 1", '"vessel.seats" in mentions', "source_unsolved"),
    (SEATS, '"port.berths" in mentions', "condition_off"),
    (SEATS, '"sqlite" in dialect', "condition_stays"),
]


@pytest.mark.parametrize(("corrected", "predicate", "reason"), REFUSED, ids=[case[2] for case in REFUSED])
def test_what_gives_no_pair_is_counted_with_its_reason(
    ferries: list[Task], tmp_path: Path, corrected: str, predicate: str, reason: Reason
) -> None:
    source = next(task for task in ferries if "Halcyon have" in task.prompt)
    made = pairs([learnt(source, corrected, predicate)], SqlWorld(), "lookalike", tmp_path)
    assert (made.variants, made.left_out) == ((), {reason: 1})


def test_a_record_without_a_condition_says_so(ferries: list[Task], tmp_path: Path) -> None:
    source = next(task for task in ferries if "Halcyon have" in task.prompt)
    (variant,) = pairs([learnt(source, SEATS)], SqlWorld(), "lookalike", tmp_path).variants
    assert (variant.asserted.condition, variant.asserted.condition_false) == (None, False)


def test_source_tasks_take_turns_and_a_seed_draws(ferries: list[Task], tmp_path: Path) -> None:
    sources = [task for task in ferries if task.prompt.startswith("How many seats does")]
    given = [learnt(task, str(task.payload["gold"]), principle=str(n)) for task in sources[:3] for n in range(2)]
    made = pairs(given, SqlWorld(), "placebo", tmp_path, most=3)
    assert {variant.source for variant in made.variants} == {task.id for task in sources[:3]}
    assert pairs(given[::-1], SqlWorld(), "placebo", tmp_path, most=3) == made
    again = pairs(given, SqlWorld(), "placebo", tmp_path)
    assert len({(variant.task.id, variant.stored) for variant in again.variants}) == len(again.variants)
    assert sum(again.left_out.values()) + len(again.variants) == len(given)


def test_a_record_may_give_several(ferries: list[Task], tmp_path: Path) -> None:
    source = next(task for task in ferries if "Halcyon have" in task.prompt)
    for kind in (kind for kind in KINDS if kind != "paraphrase"):  # of which this question has but one
        given = [learnt(source, SEATS, '"vessel.seats" in mentions')]
        one, several = (pairs(given, SqlWorld(), kind, tmp_path, others=ferries, each=each) for each in (1, 4))
        assert several.variants[:1] == one.variants
        assert 1 < len({variant.task.id for variant in several.variants}) == len(several.variants) <= 4
        assert several.left_out == {}
        assert pairs(given, SqlWorld(), kind, tmp_path, others=ferries, each=4, most=2).variants == several.variants[:2]


def test_a_question_that_the_store_may_have_learnt_from_is_no_lookalike(ferries: list[Task], tmp_path: Path) -> None:
    sources = [task for task in ferries if task.split == "source"]
    given = [learnt(task, str(task.payload["gold"])) for task in sources[:12]]
    made = pairs(given, SqlWorld(), "lookalike", tmp_path, others=sources)
    assert not {variant.task.prompt for variant in made.variants} & {task.prompt for task in sources}


def test_a_domain_without_a_builder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="builders for code, sql and textgame"):
        pairs([learnt(task(domain="sat"), "x")], SqlWorld(), "placebo", tmp_path)


def test_every_reason_has_its_place() -> None:
    assert set(FURTHEST) | {"source_unsolved", "condition_off"} == set(get_args(Reason))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "seats \x005\x00 \ue000 \ue005 \ue000?",
        "名前は何ですか" * 500,
        "SELECT " * 3000,
        "seats " * 100_000,
        "'" * 999,
        "\ud800",
    ],
)
def test_strange_text_gives_no_pair_and_no_crash(ferries: list[Task], tmp_path: Path, text: str) -> None:
    source = next(task for task in ferries if "Halcyon have" in task.prompt)
    for kind in KINDS:
        assert not pairs([learnt(source, text)], SqlWorld(), kind, tmp_path).variants
        odd = replace(source, prompt=text or " ")
        assert pairs([learnt(odd, SEATS)], SqlWorld(), kind, tmp_path, others=[odd, *ferries[:3]]).kind == kind


# ---- real data ----


@pytest.mark.skipif(not (SHARED / "text2sql").is_dir(), reason="the GeoQuery files are not beside this checkout (docs/data.md)")
def test_geoquery_gives_a_pair_of_every_kind(tmp_path: Path) -> None:
    folder = SHARED / "text2sql"
    tasks, _ = load_text2sql(folder / "geography.json", folder / "geography-db.added-in-2020.sqlite")
    wanted = ("what is the area of", "how many people live in", "where is", "what is the capital of")
    sources = [task for task in tasks if task.prompt.startswith(wanted)][:10]
    given = [learnt(task, str(task.payload["gold"]).strip(" ;")) for task in sources]
    for kind in KINDS:
        made = pairs(given, SqlWorld(), kind, tmp_path, others=tasks[:200])
        assert len(made.variants) >= len(sources) - 2, made


def test_the_documentation_names_kinds_and_reasons() -> None:
    page = (Path(__file__).parents[1] / "docs" / "transfer.md").read_text("utf-8")
    assert not [name for name in (*KINDS, *get_args(Reason)) if f"`{name}`" not in page]
