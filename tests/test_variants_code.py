"""Changed programs and games: texts taken apart and written anew, and pairs from records."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from builders import learnt, task
from mulligan.records import Task
from mulligan.tasks import variants_text as texts
from mulligan.tasks.drafts import Kind
from mulligan.tasks.variants import pairs
from mulligan.tasks.variants_text import Case
from mulligan.worlds.code import CodeWorld

KINDS: Sequence[Kind] = get_args(Kind)

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


@pytest.mark.parametrize("line", ["f(3) is what it is", ">>> f(", "f(n) == f(n-1) + 1", "=> 9", "Output: six", "f(" + ")" * 100_000])
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


needs_engine = pytest.mark.skipif(find_spec("textworld") is None, reason="needs the extra text: pip install 'mulligan[text]'")


@needs_engine
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


@needs_engine
def test_a_command_that_leads_nowhere_gives_no_pair(tmp_path: Path) -> None:
    from mulligan.tasks.sample import load_games
    from mulligan.worlds.textgame import TextGameWorld

    source = load_games()[0]
    for command in ("dance", "", "\x00" * 300):
        assert pairs([learnt(source, command)], TextGameWorld(), "placebo", tmp_path).left_out == {"source_unsolved": 1}
