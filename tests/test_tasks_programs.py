"""Programming problems: the four formats, what is shown and what is hidden, and what is left out."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Task
from mulligan.tasks.loading import LoadReport
from mulligan.tasks.programs import load_bigcodebench, load_evalplus, load_humaneval, load_mbpp
from mulligan.tasks.splits import check_splits
from mulligan.worlds.code import CodeWorld
from mulligan.worlds.sandbox import Limits
from test_tasks_hostile import damaged, outcome, rearranged

WORLD = CodeWorld(limits=Limits(wall_s=10.0, total_s=30.0))
MUTATIONS = 10_000
HUMANEVAL = {
    "task_id": "Own/0",
    "prompt": (
        "import math\n\ndef twice(x: int) -> int:\n    return 2 * x\n\ndef halves(x: int, up: bool = False) -> int:\n"
        '    """ Half of x, rounded down, or up.\n    >>> halves(5)\n    2\n    >>> halves(4)\n    7\n'
        '    >>> halves(7, True)\n    4\n    """\n'
    ),
    "entry_point": "halves",
    "canonical_solution": "    return math.ceil(x / 2) if up else x // 2\n",
    "test": (
        "METADATA = {'author': 'me'}\n\ndef check(candidate):\n    assert True, 'this one says nothing'\n"
        "    assert candidate(9) == 4, 'nine'\n    given = [1, 2]\n    for x in given:\n        assert candidate(twice(x)) == x\n"
        "    assert candidate(3, up=True) == 2\n    assert candidate(0) == 0\n"
    ),
}
MBPP = {
    "task_id": 11,
    "text": "Write a function to join the words of a list.",
    "code": "def helper(xs):\n    return ' '.join(xs)\ndef join_words(xs):\n    return helper(xs)",
    "test_list": ["assert join_words(['a', 'b']) == 'a b'", "assert join_words([]) == ''", "assert join_words(['c']) == 'c'"],
    "test_setup_code": "",
    "challenge_test_list": ["assert join_words(['', '']) == ' '"],
}
EVALPLUS = {
    "task_id": "Own/1",
    "prompt": 'def mean(xs: list) -> float:\n    """ The mean of some numbers, 0 for none.\n    mean([1, 2]) => 1.5\n    """\n',
    "entry_point": "mean",
    "canonical_solution": "    return sum(xs) / len(xs) if xs else 0\n",
    "base_input": [[[1, 2, 4]], [[]], [[5]]],
    "plus_input": [[[0.1, 0.2, 0.3]], [[-1e9, 1e9]]] * 40,
    "atol": 1e-6,
}
BIGCODEBENCH = {
    "task_id": "Own/2",
    "complete_prompt": 'import json\n\ndef task_func(text):\n    """\n    Keys of a JSON object, sorted.\n\n    Example:\n    >>> task_func(\'{}\')\n    []\n    """\n',  # noqa: E501
    "instruct_prompt": "Write it.",
    "canonical_solution": "    return sorted(json.loads(text))\n",
    "entry_point": "task_func",
    "libs": "['json']",
    "test": (
        'import unittest\nclass TestCases(unittest.TestCase):\n    def setUp(self):\n        self.text = \'{"b": 1, "a": 2}\'\n'
        "    def test_sorted(self):\n        self.assertEqual(task_func(self.text), ['a', 'b'])\n"
        "    def test_empty(self):\n        self.assertEqual(task_func('{}'), [])\n"
        "    def test_wrong(self):\n        with self.assertRaises(ValueError):\n            task_func('{')\n"
    ),
}
Loader = Callable[..., tuple[list[Task], LoadReport]]
FORMATS: dict[str, tuple[Loader, dict[str, Any]]] = {
    "humaneval": (load_humaneval, HUMANEVAL),
    "mbpp": (load_mbpp, MBPP),
    "evalplus": (load_evalplus, EVALPLUS),
    "bigcodebench": (load_bigcodebench, BIGCODEBENCH),
}
walled = pytest.mark.usefixtures("walled")


def lines(path: Path, *entries: Any) -> Path:
    path.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n")
    return path


def loaded(tmp_path: Path, kind: str, *, shares: Sequence[float] = (1, 0, 0), **options: Any) -> tuple[Task, LoadReport]:
    load, entry = FORMATS[kind]
    tasks, report = load(lines(tmp_path / f"{kind}.jsonl", entry), shares=shares, **options)
    return tasks[0], report


@walled
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("shares", [(1, 0, 0), (0, 0, 1)])
def test_a_solution_solves_and_another_does_not(tmp_path: Path, kind: str, shares: Sequence[float]) -> None:
    task, report = loaded(tmp_path, kind, shares=shares)
    assert (report.read, report.kept, report.left_out) == (1, 1, {})
    entry = FORMATS[kind][1]
    gold = entry.get("code") or entry["canonical_solution"]
    with WORLD.start(task) as state:
        right, wrong = WORLD.act(state, gold), WORLD.act(state, f"def {task.payload['entry']}(*given):\n    return None")
    assert (right.solved, right.utility, right.hidden) == (True, 1, 1)
    assert (wrong.solved, wrong.completed) == (False, True)


@walled
def test_humaneval_is_cut_into_its_assertions(tmp_path: Path) -> None:
    task, _ = loaded(tmp_path, "humaneval", visible=0.5)
    payload = task.payload
    assert task.id.startswith("humaneval/0-") and task.group == "Own/0"
    assert payload["before"] == "import math\n\ndef twice(x: int) -> int:\n    return 2 * x"
    # the docstring's second example is wrong, and was found out
    shown = ["assert halves(5) == 2", "assert halves(7, True) == 4"]
    assert payload["visible"] == [
        *shown,
        "given = [1, 2]\nfor x in given:\n    assert halves(twice(x)) == x",
        "given = [1, 2]\nassert halves(0) == 0",
    ]
    assert payload["hidden"] == ["assert halves(9) == 4, 'nine'", "given = [1, 2]\nassert halves(3, up=True) == 2"]
    heldout, _ = loaded(tmp_path, "humaneval", shares=(0, 0, 1))
    assert heldout.payload["visible"] == shown and len(heldout.payload["hidden"]) == 4


@walled
def test_mbpp_shows_a_test_and_hides_the_challenges(tmp_path: Path) -> None:
    task, _ = loaded(tmp_path, "mbpp", shares=(0, 0, 1))
    says, named, example = task.prompt.split("\n")
    assert says == MBPP["text"] and named == "The function is named `join_words`. It passes:"
    assert example == "assert join_words(['a', 'b']) == 'a b'"
    assert task.payload["visible"] == MBPP["test_list"][:1]
    assert task.payload["hidden"] == [*MBPP["test_list"][1:], *MBPP["challenge_test_list"]]
    source, _ = loaded(tmp_path, "mbpp", shown=0, visible=1.0)
    assert source.payload["visible"] == MBPP["test_list"] and "passes" not in source.prompt


@walled
def test_evalplus_wants_what_the_solution_returns_within_a_tolerance(tmp_path: Path) -> None:
    task, _ = loaded(tmp_path, "evalplus", visible=1.0)
    assert task.payload["visible"][0] == "assert mean([1, 2]) == _Wanted(1.5, 1e-06)"
    assert len(task.payload["visible"]) == 4 and len(task.payload["hidden"]) == 2
    with WORLD.start(task) as state:
        near, far = (WORLD.act(state, f"def mean(xs):\n    return sum(xs) / len(xs) + {by} if xs else 0") for by in (1e-8, 0.01))
    assert near.solved
    assert far.utility < 1 and "mean([1, 2]): got 1.51, wanted 1.5" in far.feedback


@walled
def test_solutions_that_fail_and_problems_without_any_are_left_out(tmp_path: Path) -> None:
    wrong, none, blind = ({**HUMANEVAL, "task_id": name} for name in ("a", "b", "c"))
    wrong["canonical_solution"] = "    return 1\n"
    del none["canonical_solution"]
    blind["test"] = "def check(candidate):\n    assert True"
    path = lines(tmp_path / "h.jsonl", HUMANEVAL, HUMANEVAL, wrong, none, blind)
    tasks, report = load_humaneval(path)
    assert len(tasks) == 1
    assert report.left_out == {"duplicate": 1, "gold_fails": 1, "no_gold": 1, "no_tests": 1}
    tasks, report = load_humaneval(path, verify=False)  # then examples of docstrings are not trusted
    assert report.left_out == {"duplicate": 1, "no_tests": 1}
    assert all("halves(5)" not in str(task.payload) or "halves(5)" in task.prompt for task in tasks)
    with pytest.raises(InvalidData, match=r"no problem that can be used among 1 \(1 gold_fails\)"):
        load_humaneval(lines(tmp_path / "w.jsonl", wrong))


def test_gzip_and_marks_at_the_start_are_read(tmp_path: Path) -> None:
    packed = tmp_path / "own.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(HUMANEVAL).encode() + b"\r\n\r\n"))
    tasks, _ = load_humaneval(packed, verify=False)
    assert tasks[0].benchmark == "own"


BROKEN = [
    (b"", "no problem that can be used among 0"),
    (b"{}\n{", "line 2: Expecting"),
    (b"[1]", "line 1 must be an object"),
    (b'{"task_id": "x"}', "line 1 has no 'prompt'"),
    (json.dumps({**HUMANEVAL, "entry_point": "a b"}).encode(), "line 1.entry_point must be the name of a function"),
    (json.dumps({**HUMANEVAL, "test": "def check("}).encode(), "line 1.test must be Python that parses"),
    (json.dumps({**HUMANEVAL, "test": "x = 1"}).encode(), r"line 1.test must be Python that defines check\(candidate\)"),
    (b"\x1f\x8b\x08\x00broken", "damaged gzip file"),
]


@pytest.mark.parametrize(("raw", "says"), BROKEN)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_bytes(raw)
    with pytest.raises(InvalidData, match=says) as caught:
        load_humaneval(path, verify=False)
    assert str(path) in str(caught.value)


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "own.jsonl", HUMANEVAL)
    for visible in (0, 1.5, float("nan")):
        with pytest.raises(UsageError, match="visible must be a share"):
            load_humaneval(path, visible=visible, verify=False)
    with pytest.raises(UsageError, match="cannot read"):
        load_humaneval(tmp_path / "missing.jsonl")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", FORMATS)
def test_ten_thousand_mutations_end_in_tasks_or_one_clear_error(tmp_path: Path, kind: str) -> None:
    draw = random.Random(kind)
    load, entry = FORMATS[kind]
    entry = {**entry, "plus_input": entry["plus_input"][:2]} if "plus_input" in entry else entry
    path = tmp_path / f"{kind}.jsonl"
    seen: Counter[str] = Counter()
    for number in range(MUTATIONS):
        raw = rearranged([entry], draw)[1:-1] if number % 2 else damaged(json.dumps(entry, ensure_ascii=False).encode(), draw)
        path.write_bytes(raw)
        try:
            seen[outcome(lambda: load(path, verify=False), path.name)] += 1
        except Exception as error:
            raise AssertionError(f"mutation {number}: {raw!r}") from error
    assert min(seen["tasks"], seen["InvalidData"]) > MUTATIONS / 20, seen


@walled
def test_the_real_file(shared_data: Path) -> None:
    tasks, report = load_humaneval(shared_data / "humaneval" / "HumanEval.jsonl.gz")
    assert (report.read, report.left_out) == (164, {})
    check_splits(tasks)
    assert Counter(task.split for task in tasks) == {"source": 82, "train": 16, "heldout": 66}
    assert sum(not task.payload["visible"] for task in tasks) == 5  # held out, with a text that has no example
    assert all(task.payload["hidden"] for task in tasks if task.split == "heldout")
