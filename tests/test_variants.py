"""Changed tasks for transfer and probes: rules on small examples, the assertions, and pairs from records."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from builders import record, task
from islands import ask, build, make
from mulligan.errors import UsageError
from mulligan.nouns import from_plain, to_plain
from mulligan.records import Condition, Record, Task
from mulligan.tasks import variants_text as texts
from mulligan.tasks.drafts import Kind, Reason, lesson
from mulligan.tasks.sample import load_sample
from mulligan.tasks.text2sql import load_text2sql
from mulligan.tasks.variants import FURTHEST, Pairs, pairs
from mulligan.tasks.variants_text import Case
from mulligan.worlds import sql_environments as environments
from mulligan.worlds.code import CodeWorld
from mulligan.worlds.sql import SqlWorld
from mulligan.worlds.sql_engine import Limits, Result, hold, run
from mulligan.worlds.sql_lookalikes import RULES
from mulligan.worlds.sql_schema import catalogue
from mulligan.worlds.sql_variants import Asked, mined, read, reworded

SHARED = Path(__file__).parents[2] / "shared" / "data"
KINDS: Sequence[Kind] = get_args(Kind)


def learnt(source: Task, corrected: str, predicate: str = "", **changes: Any) -> tuple[Record, Task]:
    """A record with a correction of `source`."""
    condition = Condition(kind="predicate", text=predicate, predicate=predicate) if predicate else Condition()
    given = record(source.prompt, domain=source.domain, corrected=corrected, condition=condition, **changes)
    return replace(given, provenance=replace(given.provenance, task=source.id, group=source.group)), source


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


@pytest.mark.parametrize("text", ["", "\x00", "名前は何ですか" * 500, "SELECT " * 3000, "'" * 999, "\ud800"])
def test_strange_text_gives_no_pair_and_no_crash(ferries: list[Task], tmp_path: Path, text: str) -> None:
    source = next(task for task in ferries if "Halcyon have" in task.prompt)
    for kind in KINDS:
        assert not pairs([learnt(source, text)], SqlWorld(), kind, tmp_path).variants
        odd = replace(source, prompt=text or " ")
        assert pairs([learnt(odd, SEATS)], SqlWorld(), kind, tmp_path, others=[odd, *ferries[:3]]).kind == kind


# ---- the text of programming problems ----

STUB = '''def second(numbers):
    """Return the second smallest number.
    Return None if there is none.

    >>> second([3, 1])
    3
    >>> second([1])

    second([4, 5, 6]) == 5
    Output: 7
    """
'''


def test_examples_in_every_form_are_changed() -> None:
    def more(case: Case) -> Case:
        return Case(case.arguments, "none" if case.wanted is None else case.wanted + 1)

    assert texts.with_examples(STUB, "second", more, "other") == STUB.replace("    3\n", "    4\n").replace(
        ">>> second([1])\n", ">>> second([1])\n    'none'\n"
    ).replace("== 5", "== 6").replace("Output: 7", "Output: 8").replace(">>> second", ">>> other").replace("    second(", "    other(")
    assert texts.with_examples(STUB, "second", lambda case: case) == STUB


@pytest.mark.parametrize("line", ["f(3) is what it is", ">>> f(", "f(n) == f(n-1) + 1", "=> 9", "Output: six"])
def test_a_text_with_an_unclear_example_is_left_alone(line: str) -> None:
    assert texts.with_examples(f"Do it.\n{line}", "f", lambda case: case) is None


def test_a_sentence_ends_the_prose() -> None:
    found = texts.with_sentence(STUB, "second", "Be quick.")
    assert found == STUB.replace("if there is none.\n", "if there is none.\n    Be quick.\n")
    assert texts.with_sentence('def f():\n    """Do it"""\n', "f", "Be quick.") == 'def f():\n    """Do it.\n    Be quick.\n    """\n'
    assert texts.with_sentence("def f():\n", "f", "Be quick.") is None


CASES = [
    ("assert f(1, [2]) == -3", Case(("1", "[2]"), -3)),
    ("assert f(1)", Case(("1",), True)),
    ("assert not f(1)", Case(("1",), False)),
    ("assert f('a') is None, 'why'", Case(("'a'",), None)),
    ("import random\nassert f() == {'a': (1, 2)}", Case((), {"a": (1, 2)})),
    ("assert abs(f(1) - 2) < 1", None),
    ("assert f(1) == g(2)", None),
    ("assert f(x=1) == 2", None),
    ("assert f(*a) == 2", None),
    ("for x in y:\n    assert f(x) == 2", None),
    ("assert f(1) ==", None),
]


@pytest.mark.parametrize(("test", "case"), CASES)
def test_what_is_a_case(test: str, case: Case | None) -> None:
    assert texts.case_of(test, "f") == case
    if case:
        assert texts.case_of(texts.test_of(case, "f"), "f") == case


# ---- programs ----

SOLUTION = "def second(numbers):\n    found = sorted(numbers)\n    return found[1] if len(found) > 1 else None\n"
CHECKS = ["assert second([3, 1]) == 3", "assert second([1]) == None", "assert second([4, 5, 6]) == 5", "assert second([9, 7, 8]) == 8"]


def problem(stub: str, entry: str, visible: Sequence[str], hidden: Sequence[str]) -> Task:
    payload = {"entry": entry, "before": "", "stub": stub, "setup": f"{stub}    pass\n", "visible": [*visible], "hidden": [*hidden]}
    return task(id=entry, domain="code", group=entry, prompt=stub.strip("\n"), payload=payload)


PROBLEMS = [
    ("another sentinel", STUB.replace("    Output: 7\n", ""), "second", CHECKS, SOLUTION, "Return -1 if there is none."),
    (
        "negated",
        'def even(n: int) -> bool:\n    """Return True if n is even."""\n',
        "even",
        ["assert even(2)", "assert not even(3)"],
        "def even(n):\n    return n % 2 == 0",
        "Return False if n is even.",
    ),
    (
        "another spelling",
        'def even(n):\n    """Return "YES" if n is even, "NO" otherwise."""\n',
        "even",
        ["assert even(2) == 'YES'", "assert even(3) == 'NO'", "assert even(4) == 'YES'", "assert even(5) == 'NO'"],
        "def even(n):\n    return 'NO' if n % 2 else 'YES'",
        'Return "yes" if n is even, "no" otherwise.',
    ),
    (
        "another form of int",
        'def double(n: int) -> int:\n    """Twice n."""\n',
        "double",
        ["assert double(2) == 4", "assert double(3) == 6"],
        "def double(n):\n    return n if n == 0 else 2 + double(n - 1)",
        "def double(n: int) -> str:",
    ),
    (
        "other order",
        'def less(a: int, b: float) -> float:\n    """Take b from a."""\n',
        "less",
        ["assert less(2, 1.5) == 0.5", "assert less(3, 1.0) == 2.0"],
        "def less(a, b):\n    return a - b",
        "def less(b: float, a: int) -> float:",
    ),
]


@pytest.mark.parametrize(("rule", "stub", "entry", "tests", "solution", "says"), PROBLEMS, ids=[case[0] for case in PROBLEMS])
def test_a_program_changes_in_one_fact(
    tmp_path: Path, rule: str, stub: str, entry: str, tests: list[str], solution: str, says: str
) -> None:
    source, world = problem(stub, entry, tests[:1], tests[1:]), CodeWorld()
    (variant,) = pairs([learnt(source, solution)], world, "lookalike", tmp_path).variants
    assert variant.rule == rule
    assert says in variant.task.prompt
    assert says in variant.task.payload["stub"]
    assert (variant.asserted.condition, variant.asserted.stored_solved, variant.asserted.carried_solved) == (None, False, False)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lookalike"])
def test_the_other_kinds_of_programs(tmp_path: Path, kind: Kind) -> None:
    source = problem(STUB.replace("    Output: 7\n", ""), "second", CHECKS[:2], CHECKS[2:])
    (variant,) = pairs([learnt(source, SOLUTION)], CodeWorld(), kind, tmp_path).variants
    assert variant.asserted.carried_solved
    assert variant.asserted.stored_solved is (kind in ("paraphrase", "placebo"))
    assert variant.task.prompt != source.prompt
    if kind == "environment":
        assert variant.task.payload["hidden"][0] == "assert second_each([([4, 5, 6],)]) == [5]"
    if kind == "schema":
        assert variant.task.payload["entry"] == "second_result"
        assert "def second_result(" in variant.task.prompt


@pytest.mark.parametrize("text", ["", "def", "\x00", "def second(numbers):\n  return (" + "(" * 300, "名" * 20_000])
def test_strange_programs_give_no_pair(tmp_path: Path, text: str) -> None:
    source = problem(STUB, "second", CHECKS[:2], CHECKS[2:])
    for kind in KINDS:
        assert not pairs([learnt(source, text)], CodeWorld(), kind, tmp_path).variants


# ---- games ----

MAIL = "take letter from desk"


@pytest.mark.parametrize("kind", ["lookalike", "paraphrase", "placebo"])
def test_a_game_changes_its_goal_or_what_does_not_matter(tmp_path: Path, kind: Kind) -> None:
    from mulligan.tasks.sample import load_games
    from mulligan.worlds.textgame import TextGameWorld

    source = next(game for game in load_games() if game.group == "cottage" and "letter" in game.prompt)
    (variant,) = pairs([learnt(source, MAIL, 'object == "letter"')], TextGameWorld(), kind, tmp_path).variants
    told = variant.asserted
    assert (told.condition, told.stored_solved) == ((False, False) if kind == "lookalike" else (True, True))
    assert (variant.task.prompt == source.prompt) is (kind == "placebo")
    assert variant.task.payload["pddl_problem"] == source.payload["pddl_problem"] or kind != "paraphrase"
    assert variant.gold == MAIL or kind == "lookalike"


def test_a_command_that_leads_nowhere_gives_no_pair(tmp_path: Path) -> None:
    from mulligan.tasks.sample import load_games
    from mulligan.worlds.textgame import TextGameWorld

    source = load_games()[0]
    for command in ("dance", "", "\x00" * 300):
        assert pairs([learnt(source, command)], TextGameWorld(), "placebo", tmp_path).left_out == {"source_unsolved": 1}


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
