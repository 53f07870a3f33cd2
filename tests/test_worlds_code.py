"""The code world: what it says of programs, what it hides, and what its operators mend."""

import ast
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import UsageError
from mulligan.records import Split, Task, Verdict
from mulligan.tasks.programs import load_humaneval
from mulligan.worlds.code import CodeWorld
from mulligan.worlds.code_drafts import Evidence, Text, evidence_of
from mulligan.worlds.code_edits import LIMITS, drafts
from mulligan.worlds.code_text import assemble, clean, tokens
from mulligan.worlds.conformance import check_world
from mulligan.worlds.sandbox import Limits

pytestmark = pytest.mark.usefixtures("walled")
WORLD = CodeWorld(limits=Limits(wall_s=10.0, total_s=30.0))
QUICK = CodeWorld(limits=Limits(wall_s=0.6, total_s=5.0))
STUB = 'def clamp(x: int, low: int, high: int) -> int:\n    """Keep x within low and high.\n    >>> clamp(5, 0, 3)\n    3\n    """\n'
RIGHT = "def clamp(x, low, high):\n    return max(low, min(x, high))"
VISIBLE = ["assert clamp(5, 0, 3) == 3", "assert clamp(1, 0, 3) == 1"]
HIDDEN = ["assert clamp(-1, 0, 3) == 0", "assert clamp(0, 0, 0) == 0"]


def task(visible: Sequence[str] = VISIBLE, hidden: Sequence[str] = HIDDEN, split: Split = "source", **payload: Any) -> Task:
    full = {"entry": "clamp", "before": "", "stub": STUB, "setup": "", "visible": list(visible), "hidden": list(hidden), **payload}
    return Task(id="clamp", domain="code", benchmark="own", group="clamp", split=split, prompt=STUB.strip(), payload=full)


def judged(action: str, at: Task | None = None, world: CodeWorld = WORLD) -> Verdict:
    with world.start(at or task()) as state:
        return world.act(state, action)


def test_a_right_program_solves() -> None:
    verdict = judged(f"Here it is:\n```python\n{RIGHT}\n```")
    assert (verdict.utility, verdict.hidden, verdict.solved, verdict.completed, verdict.done) == (1, 1, True, True, True)
    assert verdict.signals == () and verdict.feedback == "2 of 2 tests that you may see pass."


def test_hidden_tests_decide_and_are_not_told() -> None:
    verdict = judged("def clamp(x, low, high):\n    return min(x, high)")
    assert (verdict.utility, verdict.hidden, verdict.solved, verdict.done) == (1, Fraction(1, 2), False, True)
    assert verdict.signals == () and "-1" not in verdict.feedback


CASES = [  # action, utility, kind of the first signal, what it says, where
    ("def clamp(x, low, high):\n    return x", Fraction(1, 2), "assertion", "clamp(5, 0, 3): got 5, wanted 3", ""),
    ("def clamp(x, low, high):\n    y = [\n    return y", 0, "syntax", "SyntaxError: '[' was never closed", "line 2"),
    ("def clamp(x, low, high):\n    return x // 0", 0, "exception", "raises ZeroDivisionError", "line 2"),
    ("def other(x):\n    return x", 0, "exception", "the program defines no 'clamp'", ""),
    ("", 0, "exception", "the program defines no 'clamp'", ""),
    ("import os\nos._exit(0)", 0, "error", "the process ended while the program was loaded", ""),
    ("def clamp(*given):\n    import os; os._exit(0)", 0, "error", "the program's process ended", ""),
    (
        "class E:\n    def __eq__(self, other): return True\ndef clamp(*given):\n    return E()",
        0,
        "assertion",
        "clamp(5, 0, 3): got <E>, wanted 3",
        "",
    ),
    ("def clamp(x, low, high):\n    return input()", 0, "exception", "EOFError", "line 2"),
    ("raise SystemExit(0)", 0, "exception", "SystemExit", "line 1"),
]


@pytest.mark.parametrize(("action", "utility", "kind", "what", "where"), CASES)
def test_a_wrong_program(action: str, utility: Fraction, kind: str, what: str, where: str) -> None:
    verdict = judged(action)
    assert (verdict.utility, verdict.solved, verdict.completed, verdict.done) == (utility, False, True, False)
    assert verdict.signals[0].kind == kind
    assert what in verdict.signals[0].what
    assert verdict.signals[0].where == where
    assert verdict.signals[0].what in verdict.feedback


@pytest.mark.parametrize("action", ["def clamp(*given):\n    while True: pass", "while True: pass"])
def test_a_program_that_takes_too_long_is_neither_right_nor_wrong(action: str) -> None:
    verdict = judged(action, world=QUICK)
    assert (verdict.completed, verdict.solved, verdict.done) == (False, False, False)
    assert verdict.signals[0].kind == "timeout"


def test_a_hidden_test_that_takes_too_long_leaves_it_open() -> None:
    verdict = judged("def clamp(x, low, high):\n    while x < 0: pass\n    return min(x, high)", world=QUICK)
    assert (verdict.completed, verdict.solved, verdict.utility) == (False, False, 1)
    assert verdict.signals == ()


def test_lines_are_the_actions_own() -> None:
    at = task(before="import math\n\n\ndef helper(x):\n    return x")
    assert judged("def clamp(x, low, high):\n    y = helper(x)\n    return y / 0", at).signals[0].where == "line 3"
    assert judged("    y = x\n    return y / 0", at).signals[0].where == "line 2"  # a body alone
    assert judged("def clamp(x, low, high):\n    return math.floor(max(low, min(helper(x), high)))", at).solved


def test_a_body_continues_the_stub() -> None:
    assert judged("    return max(low, min(x, high))").solved
    assert judged("return max(low, min(x, high))").solved
    assert assemble(task(), RIGHT) == (f"{RIGHT}\n", 0)


def test_many_failures_are_counted_and_few_told() -> None:
    verdict = judged("def clamp(x, low, high):\n    return None", task([f"assert clamp({i}, 0, 9) == {i}" for i in range(9)]))
    assert len(verdict.signals) == 9
    assert verdict.feedback.count("assertion:") == 3 and "6 more fail." in verdict.feedback


def test_what_is_printed_is_told_and_long_values_are_cut() -> None:
    verdict = judged("def clamp(x, low, high):\n    print('so far')\n    return 'y' * 100_000")
    assert "It printed: so far" in verdict.feedback
    assert len(verdict.feedback) < 2_000


def test_held_out_tasks_without_tests_to_see_tell_nothing_of_hidden_ones() -> None:
    at = task(visible=[], split="heldout")
    wrong, right = judged("def clamp(x, low, high):\n    return x", at), judged(RIGHT, at)
    assert (wrong.solved, right.solved) == (False, True)
    assert (wrong.feedback, wrong.signals, wrong.done, wrong.utility) == (right.feedback, right.signals, right.done, right.utility)


def test_a_task_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="needs 'entry', 'visible' and 'hidden'"):
        WORLD.start(replace(task(), payload={"gold": "SELECT 1"}))


def test_the_contract() -> None:
    wrong = "def clamp(x, low, high):\n    return min(low, min(x, high))"
    assert check_world(QUICK, [task(), task(split="heldout")], actions=[wrong, RIGHT, "def clamp(:", "x = 1"]) == []


def test_the_version_follows_limits_and_wall() -> None:
    assert len({CodeWorld().version, QUICK.version, CodeWorld(wall="process").version}) == 3


def test_facts_are_read_from_what_the_agent_sees() -> None:
    prompt = (
        "from typing import List\n\n\ndef rolling(numbers: List[int], k: int = 2) -> List[float]:\n"
        '    """ Rolling maximum of a sequence.\n    >>> rolling([1])\n    [1.0]\n    """'
    )
    at = replace(task(), prompt=prompt, payload={**task().payload, "entry": "rolling"})
    found = WORLD.facts(at)
    assert (found["takes"], found["arguments"], found["returns"]) == (["list", "int"], 2, "list")
    assert found["words"] == ["rolling", "maximum", "sequence"]
    assert found["gist"] == "Rolling maximum of a sequence. [1.0]"


def test_tokens_do_without_comments_and_layout() -> None:
    assert tokens("def f(x):\n    return x  # so\n") == tokens("def f(x):\n\n  return x")
    assert tokens("x = (") == ["x", "=", "("]
    assert clean("```py\nx = 1\n```\nand more") == "x = 1"


# ---- operators ----

BUGS = {  # operator: (function with one bug, tests, the line that mends it)
    "op:comparison": ("def f(xs):\n    return [x for x in xs if x < 3]", ["assert f([1, 3, 5]) == [1, 3]"], "x <= 3"),
    "op:arithmetic": ("def f(a, b):\n    return a - b", ["assert f(2, 3) == 5"], "a + b"),
    "op:boolean": ("def f(a, b):\n    return a and b", ["assert f(True, False)"], "a or b"),
    "op:constant": ("def f(xs):\n    return xs[0]", ["assert f([4, 5, 6]) == 5"], "xs[1]"),
    "op:range": ("def f(n):\n    return sum(range(n))", ["assert f(4) == 10", "assert f(1) == 1"], "range(n + 1)"),
    "op:function": ("def f(xs):\n    return sorted(xs)", ["assert f([1, 3, 2]) == [3, 2, 1]"], "reverse=True"),
    "op:result": ("def f(xs):\n    return {x for x in xs}", ["assert f([2, 1]) == [1, 2]"], "sorted"),
    "op:index": ("def f(xs, i):\n    return xs[i]", ["assert f([4, 5, 6], 1) == 4", "assert f([4, 5, 6], 2) == 5"], "xs[i - 1]"),
    "op:variable": ("def f(a, b):\n    c = a * b\n    return a", ["assert f(4, 2) == 8", "assert f(3, 3) == 9"], "return c"),
    "op:return": ("def f(xs):\n    t = 0\n    for x in xs:\n        t += x\n        return t",
                  ["assert f([1, 2, 3]) == 6"], "\n    return t"),
    "op:import": ("def f(x):\n    return math.floor(x)", ["assert f(2.5) == 2"], "import math"),
    "op:guard": ("def f(xs):\n    return max(xs)", ["assert f([]) is None", "assert f([1, 2]) == 2"], "if not xs:"),
    "op:branch": ("def f(xs):\n    n = 0\n    for x in xs:\n        if x < 0:\n            break\n        n += x\n    return n",
                  ["assert f([1, -1, 2]) == 3"], "continue"),
}  # fmt: skip


@pytest.mark.parametrize("operator", BUGS)
def test_a_small_bug_is_mended(operator: str) -> None:
    source, tests, mended = BUGS[operator]
    at = task(tests, [], entry="f", stub="")
    with WORLD.start(at) as state:
        found = list(WORLD.edits(state, source, WORLD.act(state, source)))
        assert found, "nothing is proposed"
        solving = [proposal for proposal in found if WORLD.act(state, proposal.action).solved]
    assert any(proposal.proposer == operator and mended in proposal.action for proposal in solving)
    assert found[0] in solving


MORE = [  # other forms of the operators above: a program, its tests
    ("def f(xs):\n    return xs.sort()", ["assert f([2, 1]) == [1, 2]"]),
    ("def f(xs):\n    print(len(xs))", ["assert f([2, 1]) == 2"]),
    ("def f(s):\n    s.lower()\n    return s", ["assert f('Ab') == 'ab'"]),
    (
        "def f(xs):\n    for x in xs:\n        if x > 2:\n            return True\n        else:\n            return False",
        ["assert f([1, 3])"],
    ),
    ("def f(n):\n    total = n * 2", ["assert f(4) == 8"]),
    ("def f(xs: List[int]) -> int:\n    return len(xs)", ["assert f([1]) == 1"]),
    ("def f(xs):\n    return Counter(xs).most_common(1)[0][0]", ["assert f([1, 2, 2]) == 2"]),
    ("def f(s):\n    return s.uper()", ["assert f('a') == 'A'"]),
    ("def f(items):\n    return len(itms)", ["assert f([1]) == 1"]),
    ("def f(x):\n    return str(x)", ["assert f(3) == 3", "assert f(4) == 4"]),
    ("def f(xs):\n    return tuple(xs)", ["assert f([1, 2]) == [1, 2]"]),
    ("def f(a, b):\n    return a / b", ["assert f(7, 2) == 3", "assert f(9, 3) == 3"]),
    ("def f(n):\n    return [i for i in range(n)]", ["assert f(3) == [1, 2, 3]"]),
]


@pytest.mark.parametrize(("source", "tests"), MORE)
def test_other_bugs_are_mended_too(source: str, tests: list[str]) -> None:
    with WORLD.start(task(tests, [], entry="f", stub="")) as state:
        found = list(WORLD.edits(state, source, WORLD.act(state, source)))
        assert any(WORLD.act(state, proposal.action).solved for proposal in found[:3])


def test_hidden_tests_do_not_order_what_is_proposed() -> None:
    source = "def clamp(x, low, high):\n    return x"
    seen = []
    for hidden in (HIDDEN, ["assert clamp(1, 2, 3) == 99"]):
        with WORLD.start(task(hidden=hidden)) as state:
            seen.append([proposal.action for proposal in WORLD.edits(state, source, WORLD.act(state, source))])
    assert seen[0] == seen[1]


def test_what_does_not_parse_has_no_operators() -> None:
    with WORLD.start(task()) as state:
        assert list(WORLD.edits(state, "def clamp(", WORLD.act(state, "def clamp("))) == []
        assert list(WORLD.edits(state, "x = 1\n" * 5_000, judged("x = 1"))) == []


def test_a_draft_that_hangs_costs_little() -> None:
    source = "def f(n):\n    while n < 10:\n        n += 1\n    return n"
    with WORLD.start(task(["assert f(3) == 11"], [], entry="f", stub="")) as state:
        found = list(WORLD.edits(state, source, WORLD.act(state, source)))
        assert any(WORLD.act(state, proposal.action).solved for proposal in found)
    assert LIMITS.wall_s <= 0.5


def test_drafts_keep_the_text_that_they_do_not_touch() -> None:
    source = "def f(ä, b):  # größer\n    x = 'ß' ;  y = ä  <  b\n    return y"
    text = Text(source, ast.parse(source))
    found = [draft.action for draft in drafts(text, Evidence()) if draft.operator == "op:comparison"]
    assert found[0] == source.replace("ä  <  b", "ä  <=  b")
    for draft in drafts(text, Evidence()):
        assert draft.action.count("größer") == 1


def test_evidence_is_read_from_signals() -> None:
    told = [
        ("assertion", "f(1): got [1], wanted [2]", ""),
        ("assertion", "f(2) == x: got <E>, wanted 3", ""),
        ("exception", "f(3) raises NameError: name 'math' is not defined", "line 4"),
    ]
    assert evidence_of(told) == Evidence(pairs=(([1], [2]),), raised=(told[2][1],), lines=frozenset({4}))


@pytest.mark.parametrize("seed", range(3))
def test_real_problems(shared_data: Path, seed: int) -> None:
    """Right solutions are right, on every split; a solution that returns nothing is wrong and says why."""
    tasks, report = load_humaneval(shared_data / "humaneval" / "HumanEval.jsonl.gz", seed=seed, verify=False)
    assert report.kept == 164
    for at in tasks[seed::40]:
        verdict = judged("    return None", at)
        assert verdict.completed and not verdict.solved
        assert verdict.hidden == 0 or at.split == "source"
