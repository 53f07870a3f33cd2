"""The maths world: answers found, cleaned and compared; what a text calculates; operators; loaders on the real files."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import InvalidData
from mulligan.records import Task, Verdict
from mulligan.tasks.maths import load_gsm8k, load_math
from mulligan.tasks.sample import load_sums
from mulligan.tasks.splits import check_splits
from mulligan.worlds.beside import Beside
from mulligan.worlds.conformance import check_world
from mulligan.worlds.maths import INSTALL, WORKER, MathsWorld
from mulligan.worlds.maths_edits import proposals, written
from mulligan.worlds.maths_values import cleaned, equations, final_answer, number
from test_tasks_hostile import damaged, outcome, rearranged

pytestmark = pytest.mark.timeout(60)  # algebra loads slowly where the machine is busy
WORLD = MathsWorld(time_limit_s=20.0)

ANSWERS = [  # gold, answer, question, right
    ("50", "50\\%", "", None),
    ("50", "50\\%", "What percent of them?", True),
    ("0.5", "50\\%", "", True),
    ("50\\%", "0.5", "", True),
    ("5", "5\\text{ cm}", "", True),
    ("5\\text{ m}", "5\\text{ cm}", "", None),
    ("1,000", "1000", "", True),
    ("1{,}000", "1000", "", True),
    ("\\frac12", "0.5", "", True),
    ("", "", "", None),
    ("", "5", "", None),
    ("5", "", "", False),
    ("12", "１２", "", True),
    ("12", "١٢", "", True),
    ("73", "Final Answer: **73**", "", True),
    ("18", "$18.00", "", True),
    ("18", "18 dollars", "", True),
    ("18", "17", "", False),
    ("-3", "−3", "", True),
    ("10", "x = 10", "", True),
    ("90", "90^\\circ", "", True),
    ("\\frac{1}{2004!}", "\\frac{1}{2006!}", "", False),
    ("1/2^{99}", "1/2^{98}", "", False),
    ("1/2^{99}", "2^{-99}", "", True),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3, \\pi/2)", "", True),
    ("(1,2)", "(2,1)", "", False),
    ("\\{1,2\\}", "\\{2,1\\}", "", True),
    ("1,2,3", "3, 2, 1", "", True),
    ("1,2,3", "1,2", "", False),
    ("[-2,7]", "[-2,7)", "", False),
    ("3\\sqrt{13}", "\\sqrt{117}", "", True),
    ("11\\sqrt2", "11\\sqrt{2}", "", True),
    ("\\sqrt{2}", "1.41421356", "", False),
    ("2k+2", "2(k+1)", "", True),
    ("2k+2", "2k+3", "", False),
    ("6 - 5i", "-5i+6", "", True),
    ("1 \\pm \\sqrt{19}", "1+\\sqrt{19}, 1-\\sqrt{19}", "", True),
    ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 3 \\end{pmatrix}", "", False),
    ("\\text{Evelyn}", "Evelyn", "", True),
    ("\\text{Evelyn}", "Bob", "", False),
    ("5", "5 apples and 3", "", None),
    ("12", "12_3", "", None),
    ("7", "3 4", "", None),
    ("5", "0.5.3", "", None),
    ("3", "3^{3^{3^{3}}}", "", None),
    ("3", "9999999!", "", None),
    ("3", "__import__('os').system('x')", "", None),
    ("\\infty", "\\infty", "", True),
]


@pytest.mark.parametrize(("gold", "answer", "question", "right"), ANSWERS)
def test_answers_are_compared_exactly(gold: str, answer: str, question: str, right: bool | None) -> None:
    assert WORLD.judge(gold, final_answer(answer), question) is right


FOUND = [
    ("so \\boxed{\\frac{1}{2}} it is", "\\frac{1}{2}"),
    ("first \\boxed{1}, no: \\boxed{2}", "2"),
    ("The answer is: 5\nor so", "5"),
    ("16 - 3 = 13\n#### 13", " 13".strip()),
    ("The answer is 3.\nThe final answer is 4.", "4."),
    ("42", "42"),
    ("I think\nit is 7", "it is 7"),
    ("", ""),
    ("\\boxed{never closed", ""),
]


@pytest.mark.parametrize(("text", "answer"), FOUND)
def test_the_final_answer_is_found(text: str, answer: str) -> None:
    assert final_answer(text) == answer


@given(st.text(max_size=80))
def test_cleaning_any_text_ends_and_is_stable(text: str) -> None:
    number(cleaned(text).text)
    equations(text)
    list(proposals(text))


@given(st.fractions(max_denominator=10**6))
def test_plain_numbers_are_exact(value: Fraction) -> None:
    assert number(f"{value.numerator}/{value.denominator}") == value
    assert number(f"\\frac{{{value.numerator}}}{{{value.denominator}}}") == value
    assert WORLD.judge(str(value), f"{2 * value.numerator}/{2 * value.denominator}") is True


def test_a_worker_that_hangs_is_replaced() -> None:
    algebra = Beside(WORKER, INSTALL)
    try:
        assert algebra.ask(["x+1", "1+x"], 20.0) is True
        assert algebra.ask(["(x+1)^{4000}", "(1+x)^{4000}+x^{4001}"], 0.001) is None
        assert algebra.ask(["x+1", "1+x"], 20.0) is True
    finally:
        algebra.close()


STEPS = [  # text, (left, right, holds)
    ("3 * 4 = 13", [("3 * 4", "13", False)]),
    ("16 - 3 - 4 = 9", [("16 - 3 - 4", "9", True)]),
    ("9 * 2 = $18.", [("9 * 2", "$18", True)]),
    ("5 + 2*3 = 11 and 7 × 2 = 15", [("5 + 2*3", "11", True), ("7 × 2", "15", False)]),
    ("1/3 = 0.33", [("1/3", "0.33", True)]),
    ("1/3 = 0.34", [("1/3", "0.34", False)]),
    ("10% * 50 = 5", [("10% * 50", "5", True)]),
    ("100,000 / 4 = 25,000", [("100,000 / 4", "25,000", True)]),
    ("12 / 0 = 3", []),
    ("x = 5, 2^3 = 8, a1 + 2 = 3", []),
]


@pytest.mark.parametrize(("text", "found"), STEPS)
def test_calculations_are_read(text: str, found: list[tuple[str, str, bool]]) -> None:
    assert [(step.left, step.right, step.holds) for step in equations(text)] == found


def task(gold: str = "29", split: str = "source") -> Task:
    payload = {"gold": gold}
    return Task(id="t", domain="maths", benchmark="own", group="t", split=split, prompt="3 boxes of 12, 7 gone?", payload=payload)  # type: ignore[arg-type]


def judged(action: str, gold: str = "29", split: str = "source") -> Verdict:
    with WORLD.start(task(gold, split)) as state:
        return WORLD.act(state, action)


WRONG_STEP = "3 * 12 = 38 pencils.\n38 - 7 = 31 are left.\nThe answer is: 31"
WRONG_SIGN = "3 * 12 = 36 pencils.\n36 + 7 = 43 are left.\nThe answer is: 43"
RIGHT = "3 * 12 = 36 pencils.\n36 - 7 = 29 are left.\nThe answer is: 29"


def test_verdicts() -> None:
    right = judged(RIGHT)
    assert (right.solved, right.utility, right.done, right.signals) == (True, 1, True, ())
    wrong = judged(WRONG_STEP)
    assert (wrong.solved, wrong.utility, wrong.completed, wrong.done) == (False, Fraction(1, 4), True, False)
    assert [signal.kind for signal in wrong.signals] == ["assertion", "refuted"]
    assert "3 * 12 = 38 does not hold: it is 36" in wrong.feedback and "29" not in wrong.feedback
    assert judged(WRONG_SIGN).utility == Fraction(1, 2)
    unknown = judged("The answer is: 5 apples and 3")
    assert (unknown.completed, unknown.solved) == (False, False)
    assert judged("").signals[0].kind == "syntax" and judged("").completed


def test_held_out_tasks_tell_of_calculations_alone() -> None:
    one, other = judged(WRONG_SIGN, "29", "heldout"), judged(WRONG_SIGN, "43", "heldout")
    assert (one.solved, other.solved) == (False, True)
    assert (one.feedback, one.signals, one.done) == (other.feedback, other.signals, other.done)
    assert not judged(WRONG_STEP, split="heldout").done
    assert check_world(WORLD, [task(), task("12", "heldout")], actions=[WRONG_STEP, RIGHT, "5 apples and 3"]) == []


@pytest.mark.parametrize(("action", "operator"), [(WRONG_STEP, "op:calculation"), (WRONG_SIGN, "op:operation")])
def test_a_wrong_calculation_is_mended_and_carried_through(action: str, operator: str) -> None:
    with WORLD.start(task()) as state:
        found = list(WORLD.edits(state, action, WORLD.act(state, action)))
        solving = [proposal for proposal in found if WORLD.act(state, proposal.action).solved]
    assert solving and solving[0].proposer == operator
    assert solving[0].action == RIGHT
    assert found.index(solving[0]) < 4


def test_numbers_are_written_as_solutions_have_them() -> None:
    assert [written(Fraction(x)) for x in ("7", "1/2", "1/3", "-9/4", "1/1024")] == ["7", "0.5", "1/3", "-2.25", "1/1024"]


# ---- loaders ----


def test_the_sample() -> None:
    tasks = load_sums()
    assert len(tasks) == 12
    for at in tasks:
        assert judged(f"The answer is: {at.payload['gold']}", str(at.payload["gold"])).solved


def test_layouts_of_math(tmp_path: Path) -> None:
    entries = [
        {"problem": "One?", "solution": "It is $\\boxed{\\frac{1}{2}}$.", "level": "Level 1"},
        {"question": "Two?", "answer": "Thus \\boxed{3}.The answer is: 3"},
        {"problem": "Three?", "answer": "(1,2)", "solution": "long"},
        {"problem": "Three ?", "answer": "(1,2)"},
        {"problem": "Three?", "answer": "(2,1)"},
        {"problem": "Four?", "answer": ""},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, entries)))
    tasks, report = load_math(tmp_path / "m.jsonl")
    assert [at.payload["gold"] for at in tasks] == ["\\frac{1}{2}", "3", "(1,2)"]
    assert report.left_out == {"duplicate": 1, "ambiguous": 1, "no_gold": 1}
    (tmp_path / "bad.jsonl").write_text('{"problem": "x"}')
    with pytest.raises(InvalidData, match="line 1 must be an object with an 'answer' or a 'solution'"):
        load_math(tmp_path / "bad.jsonl")


@pytest.mark.parametrize("kind", ["gsm8k", "math"])
def test_ten_thousand_mutations_end_in_tasks_or_one_clear_error(tmp_path: Path, kind: str) -> None:
    draw, path, seen = random.Random(kind), tmp_path / "m.jsonl", Counter[str]()
    load = load_gsm8k if kind == "gsm8k" else load_math
    entry = {"question": "How many?", "answer": "2 + 3 = 5\n#### 5"}
    for number_ in range(10_000):
        raw = rearranged([entry], draw)[1:-1] if number_ % 2 else damaged(json.dumps(entry).encode(), draw)
        path.write_bytes(raw)
        try:
            seen[outcome(lambda: load(path), path.name)] += 1
        except Exception as error:
            raise AssertionError(f"mutation {number_}: {raw!r}") from error
    assert min(seen["tasks"], seen["InvalidData"]) > 500, seen


@pytest.fixture(scope="module")
def solutions(shared_data: Path) -> Iterator[list[dict[str, object]]]:
    yield [json.loads(line) for line in (shared_data / "gsm8k" / "example_model_solutions.jsonl").read_text().splitlines()]


def test_the_real_files(shared_data: Path) -> None:
    for load, file, kept in ((load_gsm8k, "gsm8k/test.jsonl", 1319), (load_math, "math500/test.jsonl", 490)):
        tasks, report = load(shared_data / file)
        assert report.kept >= kept and len(tasks) == report.kept
        check_splits(tasks)
        for at in tasks[::25]:
            gold = str(at.payload["gold"])
            assert WORLD.judge(gold, final_answer(f"So \\boxed{{{gold}}}."), at.prompt) is True, gold
