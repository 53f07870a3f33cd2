"""Questions of reasoning-gym and its verifiers behind the walls: with a stand-in for the package, and itself where it is installed."""

import importlib
import time
from collections.abc import Iterator
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import MissingExtra, UsageError
from mulligan.records import Task, Verdict
from mulligan.tasks.maths import load_reasoning_gym
from mulligan.worlds.beside import beside
from mulligan.worlds.maths import MathsWorld
from mulligan.worlds.maths_generated import WORKER, generated, verifier
from mulligan.worlds.maths_gym import is_tame
from mulligan.worlds.maths_values import final_text

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("walled", "package")]
STAND_IN = '''
import os, sys, time

class Grid:
    """Any grid whose rows are equal; half a point for one of the right number of rows. It prints, as libraries do."""
    def __init__(self, size, seed): self.size, self.seed = size, seed
    def __len__(self): return self.size
    def __getitem__(self, index):
        if index >= self.size: raise IndexError
        return {"question": f"Rows, {self.seed} {index}?", "answer": "1 2\\n1 2", "metadata": {"rows": 2}}
    def score_answer(self, answer, entry):
        print("a banner"); os.write(1, b"and another")
        rows = answer.splitlines()
        return 1.0 if len(set(rows)) == 1 and len(rows) == 2 else 0.5 if len(rows) == entry["metadata"]["rows"] else 0.01

class Sum(Grid):
    def __getitem__(self, index):
        if index >= self.size: raise IndexError
        return {"question": f"Make {index + 7}.", "answer": f"{index}+7"}
    def score_answer(self, answer, entry):
        return float(eval(answer) == eval(entry["answer"]))

class Odd(Sum):
    def score_answer(self, answer, entry):
        if answer == "wait": time.sleep(60)
        if answer == "leave": os._exit(0)
        if answer == "kill": os.kill(os.getppid(), 9)
        if answer == "look": return float(os.path.exists(%r))
        return {"more": 1.5, "less": -1.0, "nan": float("nan"), "word": "right", "raise": None}[answer]

class Shy(Sum):
    """Asks something else each time."""
    def __getitem__(self, index):
        return {"question": f"{time.time_ns()}?", "answer": "1"} if index < self.size else [][0]

KINDS = {"grid": Grid, "sum": Sum, "odd": Odd, "shy": Shy}

def create_dataset(name, size, seed):
    if name not in KINDS: raise ValueError(f"no dataset {name}")
    return KINDS[name](size, seed)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "packages"
    (folder / "reasoning_gym").mkdir(parents=True)
    (folder / "reasoning_gym" / "__init__.py").write_text(STAND_IN % str(tmp_path / "home"))
    (folder / "reasoning_gym-9.dist-info").mkdir()
    (folder / "reasoning_gym-9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: reasoning_gym\nVersion: 9\n")
    (tmp_path / "home").mkdir()
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    yield
    beside(WORKER, "", "bubblewrap", folder).close()


def judged(name: str, answer: str, world: MathsWorld | None = None) -> tuple[Verdict, Task]:
    task = load_reasoning_gym([name], size=2)[0][0]
    world = world or MathsWorld()
    with world.start(task) as state:
        return world.act(state, f"Think.\nThe answer is: {answer}"), task


def test_its_own_verifier_gives_the_utility() -> None:
    right, task = judged("grid", "\n```\n5\n5\n```")  # not the gold answer, and right
    assert (right.solved, right.utility) == (True, 1)
    assert task.payload == {"gold": "1 2\n1 2", "gym": {"name": "grid", "size": 2, "seed": 0, "index": task.payload["gym"]["index"]}}
    assert right.evaluator.endswith(" reasoning-gym 9") and verifier() == "reasoning-gym 9"
    half, _ = judged("grid", "\n5\n6")
    assert (half.completed, half.solved, half.utility) == (True, False, Fraction(1, 2))
    assert judged("grid", "5")[0].utility == Fraction(1, 100)
    empty, _ = judged("grid", "")
    assert (empty.completed, empty.utility) == (True, 0)


@pytest.mark.parametrize("answer", ["leave", "kill", "more", "less", "nan", "word", "raise", "what"])
def test_what_is_no_score_is_no_verdict(answer: str) -> None:
    verdict, _ = judged("odd", answer)
    assert (verdict.completed, verdict.solved) == (False, False)
    assert judged("grid", "\n5\n5")[0].solved  # and the next one is judged


def test_a_verifier_that_does_not_end_is_killed() -> None:
    began = time.monotonic()
    assert not judged("odd", "wait", MathsWorld(time_limit_s=0.5))[0].completed
    assert time.monotonic() - began < 20
    assert judged("grid", "\n5\n5")[0].solved


def test_a_verifier_sees_nothing_of_the_users() -> None:
    assert judged("odd", "look")[0].utility == 0
    assert judged("odd", "look", MathsWorld(wall="process"))[0].utility == 1  # as the choice says


ARITHMETIC = ["3+4", "(3 + 4) * 1", "sqrt(49)", "2*x**2 + sin(x)*C", "[[1, 2], [3, 4]]", "['a', 'b']", "_ Q _", "EACA", "1 == True", "7."]
PROGRAMS = [
    "__import__('os').getpid()",
    "().__class__",
    "open('x')",
    "exit()",
    "[c for c in [1]]",
    "lambda: 1",
    "f'{open}'",
    "x.real",
    "x . real",
    "(eval)('1')",
    "[max][0](1, 2)",
    "getattr(1, 'real')",
    "chr(0x41)",
    '"a" "\\x41"',
    "(y := 3)",
    "@x",
    "{1}",
    "`1`",
]


@pytest.mark.parametrize(("answer", "tame"), [*((a, True) for a in ARITHMETIC), *((a, False) for a in PROGRAMS)])
def test_an_answer_that_is_evaluated_may_only_calculate(answer: str, tame: bool) -> None:
    assert is_tame(answer) is tame


@given(st.text(st.characters(exclude_characters="'\""), max_size=40))
def test_whatever_calls_a_name_is_no_sum(text: str) -> None:
    assert not is_tame(f"{text} opened({text})")


def test_evaluated_answers() -> None:
    assert judged("sum", "7 if 1 else 0")[0].completed
    right = [judged("sum", answer)[0].solved for answer in ("3+4", "4+4")]
    assert sum(right) == 1  # the first task asks for 7 or for 8
    forged, _ = judged("sum", "type('E', (), {'__eq__': lambda *a: True})()")
    assert (forged.completed, forged.solved) == (False, False)


def test_a_question_that_is_not_asked_again_has_no_verdict() -> None:
    assert not judged("shy", "1")[0].completed


def test_a_generator_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"makes no 'none': .*no dataset none"):
        generated("none", 3, 0)


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    task = judged("grid", "1")[1]
    monkeypatch.setattr("mulligan.worlds.maths_generated.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install reasoning-gym"):
        load_reasoning_gym(["grid"])
    world = MathsWorld()
    with world.start(task) as state, pytest.raises(MissingExtra, match="pip install reasoning-gym"):
        world.act(state, "The answer is: 1")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is: 5", "5"),
        ("The answer is:\n1 2\n3 4", "1 2\n3 4"),
        ("So the answer is 3. No: the answer is: **4**", "4"),
        ("<answer>a\nb</answer> I think", "a\nb"),
        ("The answer is: <answer>7</answer>", "7"),
        ("#### 8", "8"),
        ("The answer is:\n```text\n_ Q\nQ _\n```\nas asked", "_ Q\nQ _"),
        ("just this", "just this"),
        ("", ""),
    ],
)
def test_the_text_of_an_answer(text: str, answer: str) -> None:
    assert final_text(text) == answer


def test_the_package_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys, "path", [place for place in sys.path if Path(place).name != "packages"])
    importlib.invalidate_caches()
    if find_spec("reasoning_gym") is None:
        pytest.skip("no reasoning-gym here: pip install reasoning-gym")
    world = MathsWorld()
    for task in load_reasoning_gym(["basic_arithmetic", "n_queens", "countdown", "isomorphic_strings"], size=2)[0]:
        with world.start(task) as state:
            assert world.act(state, f"The answer is: {task.payload['gold']}").solved
            assert not world.act(state, "The answer is: 123456789").solved
