"""Loads programming problems: HumanEval, MBPP, EvalPlus and BigCodeBench, each from its own JSON Lines file, also gzipped.

In: a file. Out: tasks of the code world and a LoadReport. The payload says how an action is judged: "entry" (the function), "before"
(what the problem gives ahead of it: imports, helpers), "stub" (what a bare body continues), "setup" of the tests, and the tests that the
agent may see ("visible") and those that it never sees ("hidden"). On source and train tasks the problem's own examples and a share of its
tests are visible, on held-out tasks the examples alone. Every test was passed by the problem's own solution, in the sandbox; problems
whose solution fails are left out. Not promised: that a problem's tests cover what its text asks for.
"""

import ast
import doctest
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mulligan.errors import UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt, read_lines
from mulligan.tasks.loading import LeftOut, LoadReport, Node
from mulligan.worlds.sandbox import Limits, Program, Sandbox, Wall

VISIBLE = 0.5  # share of the tests that source and train tasks show
LONGEST = 4_000  # characters of a test that may be visible
BATCH = 50  # further inputs of EvalPlus that make one hidden test


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of a file. `examples` stand in its text, `tests` do not, `extra` tests are always hidden; all are Python statements."""

    name: str
    text: str
    entry: str
    gold: str
    before: str = ""
    stub: str = ""
    setup: str = ""
    examples: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


def load_humaneval(
    file: str | Path,
    *,
    shares: tuple[float, float, float] = SHARES,
    seed: int = 0,
    visible: float = VISIBLE,
    verify: bool = True,
    sandbox: Wall = "bubblewrap",
) -> tuple[list[Task], LoadReport]:
    """Problems with a `prompt` to complete and a `test` that defines `check(candidate)`; examples are read from the docstring.

    `shares` and `seed` deal the problems out to source, train and heldout; `visible` is the share of tests that source and train tasks
    show. `verify=False` does not run the solutions: then the docstrings' examples, of which some are wrong, are left out. The other
    loaders take the same. Raises InvalidData that names file and line, UsageError where code cannot be run.
    """
    return _load(file, _humaneval, shares, seed, visible, verify, sandbox)


def load_mbpp(
    file: str | Path,
    *,
    shares: tuple[float, float, float] = SHARES,
    seed: int = 0,
    visible: float = VISIBLE,
    verify: bool = True,
    sandbox: Wall = "bubblewrap",
    shown: int = 1,
) -> tuple[list[Task], LoadReport]:
    """Problems with `text` (or `prompt`), `code` and a `test_list`, of which the first `shown` are part of what is asked, as is usual.
    The `challenge_test_list` is always hidden.
    """

    def read(entry: Node) -> Problem:
        return _mbpp(entry, shown)

    return _load(file, read, shares, seed, visible, verify, sandbox)


def load_evalplus(
    file: str | Path,
    *,
    shares: tuple[float, float, float] = SHARES,
    seed: int = 0,
    visible: float = VISIBLE,
    verify: bool = True,
    sandbox: Wall = "bubblewrap",
) -> tuple[list[Task], LoadReport]:
    """HumanEval+ and MBPP+: `base_input` and `plus_input`; wanted is what `canonical_solution` returns. All plus inputs are hidden."""
    return _load(file, _evalplus, shares, seed, visible, verify, sandbox)


def load_bigcodebench(
    file: str | Path,
    *,
    shares: tuple[float, float, float] = SHARES,
    seed: int = 0,
    visible: float = VISIBLE,
    verify: bool = True,
    sandbox: Wall = "bubblewrap",
) -> tuple[list[Task], LoadReport]:
    """Problems with a `complete_prompt` and a `test` of unittest classes; every test method is one test.

    The libraries that a problem needs must be installed. Tests run in another process than the program: those that look into its
    objects or patch what it imports are failed by its own solution, and such problems are left out as gold_fails.
    """
    return _load(file, _bigcodebench, shares, seed, visible, verify, sandbox)


def _load(
    file: str | Path, read: Callable[[Node], Problem], shares: Sequence[float], seed: int, visible: float, verify: bool, wall: Wall
) -> tuple[list[Task], LoadReport]:
    if not 0 < visible <= 1:
        raise UsageError(f"visible must be a share above 0 and at most 1, not {visible}")
    entries = list(read_lines(file))
    left_out: Counter[LeftOut] = Counter()
    problems: dict[str, Problem] = {}
    for entry in entries:
        problem = read(entry)
        if problem.name in problems:
            left_out["duplicate"] += 1
        else:
            problems[problem.name] = problem
    chosen = _verified(problems.values(), left_out, wall) if verify else _unverified(problems.values(), left_out)
    kept = {problem.name: problem for problem in chosen}  # without the examples that their solutions contradict
    benchmark = Path(file).name.partition(".")[0]
    made = [_task(problem, benchmark) for problem in kept.values()]
    tasks, report = dealt(made, left_out, file=file, read=len(entries), what="problem", shares=shares, seed=seed)
    return [_shown(task, kept[task.group], visible) for task in tasks], report


# ---- formats ----


def _humaneval(entry: Node) -> Problem:
    """HumanEval's own keys, and those of the programming files of Reflexion, which have a `name` instead of a `task_id`."""
    name, prompt, function = _name(entry.get("task_id") or entry.at("name")), entry.at("prompt").text(), _entry(entry)
    setup, tests = _checks(entry.at("test"), function)
    gold = entry.get("canonical_solution")
    return Problem(
        name=name,
        text=prompt.strip("\n"),
        entry=function,
        gold=prompt + gold.text(blank=True) if gold else "",
        before=_before(prompt, function),
        stub=prompt,
        setup=f"{prompt}    pass\n{setup}" if _parses(f"{prompt}    pass\n") else setup,
        examples=tuple(_examples(prompt, function)),
        tests=tests,
    )


def _mbpp(entry: Node, shown: int) -> Problem:
    tests = [test.text() for test in entry.at("test_list").items()]
    code = entry.at("code").text()
    called = Counter(_calls("\n".join(tests)))
    defined = [name for name in _defined(code) if called[name]]
    if not tests or not defined:
        raise entry.at("test_list").wrong("tests that call a function of `code`")
    text = (entry.get("text") or entry.at("prompt")).text().strip()
    imports = entry.get("test_imports")
    setup = [line.text() for line in imports.items()] if imports else []
    if own := entry.get("test_setup_code"):
        setup.append(own.text(blank=True))
    extra = entry.get("challenge_test_list")
    example = "\n".join(tests[:shown])
    return Problem(
        name=f"mbpp/{_name(entry.at('task_id'))}",
        text=f"{text}\nThe function is named `{defined[-1]}`." + (f" It passes:\n{example}" if shown > 0 else ""),
        entry=defined[-1],
        gold=code,
        setup="\n".join(setup),
        examples=tuple(tests[:shown]),
        tests=tuple(tests[shown:]),
        extra=tuple(test.text() for test in extra.items()) if extra else (),
    )


SAME = '''
import math as _math
inf, nan = float("inf"), float("nan")
class _Wanted:
    """Equal to a value within a tolerance."""
    def __init__(self, value, within):
        self.value, self.within = value, within
    def __repr__(self):
        return repr(self.value)
    def __eq__(self, other):
        return _same(self.value, other, self.within)
def _same(a, b, within):
    if isinstance(a, float) or isinstance(b, float):
        try:
            return a == b or bool(_math.isclose(a, b, rel_tol=1e-7 if within == 0 else 1e-9, abs_tol=within or 0.0))
        except (TypeError, OverflowError):
            return False
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(_same(x, y, within) for x, y in zip(a, b))
    return a == b
def _reference():
    names = {"__name__": "reference"}
    exec(_SOLUTION, names)
    return names[_ENTRY]
def _wanted(given, within):
    import copy
    return _Wanted(_reference()(*copy.deepcopy(given)), within)
'''


def _evalplus(entry: Node) -> Problem:
    """EvalPlus' own keys. JSON has no tuples: the solution is asked with what the file holds, as the program is."""
    function, prompt = _entry(entry), entry.at("prompt").text()
    solution = entry.at("canonical_solution").text()
    gold = solution if f"def {function}" in solution else prompt + solution
    within = entry.get("atol")
    tolerance = within.value if within and isinstance(within.value, int | float) else 0
    plus = entry.get("plus_input")
    calls = [_call(function, given, tolerance) for given in entry.at("base_input").items()]
    more = [given.value for given in plus.items()] if plus else []
    batches = [repr(more[at : at + BATCH]) for at in range(0, len(more), BATCH)]
    return Problem(
        name=_name(entry.at("task_id")),
        text=prompt.strip("\n"),
        entry=function,
        gold=gold,
        before=_before(prompt, function),
        stub=prompt,
        setup=f"_SOLUTION, _ENTRY = {gold!r}, {function!r}{SAME}",
        examples=tuple(_examples(prompt, function, f"_Wanted({{}}, {tolerance!r})")),
        tests=tuple(calls),
        extra=tuple(f"for given in {batch}:\n    assert {function}(*given) == _wanted(given, {tolerance!r})" for batch in batches),
    )


def _call(function: str, given: Node, tolerance: float) -> str:
    listed = [value.value for value in given.items()]
    return f"assert {function}({', '.join(map(repr, listed))}) == _wanted({listed!r}, {tolerance!r})"


def _bigcodebench(entry: Node) -> Problem:
    function, prompt, test = _entry(entry), entry.at("complete_prompt").text(), entry.at("test").text()
    cases = [
        f"{node.name}({method.name!r}).debug()"
        for node in _tree(entry.at("test")).body
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name.startswith("test")
    ]
    return Problem(
        name=_name(entry.at("task_id")),
        text=prompt.strip("\n"),
        entry=function,
        gold=prompt + entry.at("canonical_solution").text(),
        before=_before(prompt, function),
        stub=prompt,
        setup=test,
        tests=tuple(cases),
    )


# ---- what formats share ----


def _name(node: Node) -> str:
    return str(node.value) if type(node.value) is int else node.text()


def _entry(entry: Node) -> str:
    name = entry.at("entry_point")
    if not name.text().isidentifier():
        raise name.wrong("the name of a function")
    return name.text()


def _tree(source: Node) -> ast.Module:
    """The parsed code of a field."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(source.text())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise source.wrong(f"Python that parses ({error})") from error


def _parses(source: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _checks(test: Node, function: str) -> tuple[str, tuple[str, ...]]:
    """The definitions of a `test`, and its assertions one by one, each with the statements that it may rest on.

    Assertions inside loops stay together. Those that nothing can fail are left out.
    """
    body = _tree(test).body
    check = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args), None)
    if check is None:
        raise test.wrong("Python that defines check(candidate)")
    setup = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign)]
    renamed = _Renamed(check.args.args[0].arg, function)
    ground: list[str] = []
    tests: list[str] = []
    for node in check.body:
        holds = [inner for inner in ast.walk(node) if isinstance(inner, ast.Assert)]
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant):
            continue
        text = ast.unparse(renamed.visit(node))
        if holds:
            tests.append("\n".join([*ground, text]))
        elif not isinstance(node, ast.Pass):
            ground.append(text)
    return ast.unparse(ast.Module([node for node in setup if node is not check], [])), tuple(dict.fromkeys(tests))


class _Renamed(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self._new, node.ctx), node) if node.id == self._old else node


_YIELDS = re.compile(r"\s*(?:==>|==|=>|->|→|➞|=|returns|should return)\s*(.+)")
_QUOTES = re.compile(r"\"{3}|'{3}")
_SPELT = {"true": "True", "false": "False", "null": "None", "none": "None"}


def _examples(prompt: str, function: str, wanted: str = "{}") -> Iterator[str]:
    """Calls with their values in a docstring: interactive sessions, and lines such as `f(2) ➞ 4`. `wanted` is what a value is put into."""
    found: list[tuple[str, str]] = []
    with suppress(ValueError):  # prompts and results that are not indented as a session would be
        session = doctest.DocTestParser().get_examples(_QUOTES.sub("\n", prompt))
        found = [(example.source.strip(), example.want.strip()) for example in session]
    for line in prompt.splitlines() if not any(_literal(want) for _, want in found) else ():
        start = line.find(f"{function}(")
        if start >= 0 and not line.lstrip().startswith("def "):
            found += _stated(line[start:])
    for call, want in dict.fromkeys(found):
        if _literal(want) and call.startswith(f"{function}(") and _parses(call):
            yield f"assert {call} == {wanted.format(want)}"


def _stated(line: str) -> Iterator[tuple[str, str]]:
    """`f(…) → value` at the start of a line; the call ends where it first parses."""
    for end in (place + 1 for place, character in enumerate(line) if character == ")"):
        if _parses(line[:end]):
            said = _YIELDS.match(line[end:])
            want = said.group(1).strip() if said else ""
            want = _SPELT.get(want, want)
            yield from ((line[:end], text) for text in (want, want.rstrip(".")) if _literal(text))
            return


def _literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _before(prompt: str, function: str) -> str:
    """What a prompt gives ahead of the function: imports and helpers."""
    start = re.search(rf"^(?:async\s+)?def\s+{re.escape(function)}\b", prompt, re.MULTILINE)
    before = prompt[: start.start()] if start else ""
    return before.strip("\n") if _parses(before) else ""


def _defined(code: str) -> list[str]:
    return [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)] if _parses(code) else []


def _calls(code: str) -> list[str]:
    if not _parses(code):
        return []
    return [node.func.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]


def _verified(problems: Iterable[Problem], left_out: Counter[LeftOut], wall: Wall) -> Iterator[Problem]:
    """Problems with the examples, the tests and the further tests that their own solutions pass; without those that fail one of the
    file's own.
    """
    with Sandbox(wall=wall, limits=Limits()) as box:
        for problem in problems:
            tests = [*problem.examples, *problem.tests, *problem.extra]
            if not problem.gold:
                left_out["no_gold"] += 1
                continue
            report = box.check(Program(source=problem.gold, tests=tests, names=[problem.entry], setup=problem.setup))
            passed = [outcome.kind == "passed" for outcome in report.outcomes] or [False] * len(tests)
            examples = tuple(test for test, right in zip(problem.examples, passed, strict=False) if right)
            if not all(passed[len(problem.examples) :]):
                left_out["gold_fails"] += 1
            elif not problem.tests and not problem.extra:
                left_out["no_tests"] += 1
            else:
                yield replace(problem, examples=examples)


def _unverified(problems: Iterable[Problem], left_out: Counter[LeftOut]) -> Iterator[Problem]:
    for problem in problems:
        if problem.tests or problem.extra:
            yield replace(problem, examples=() if problem.stub else problem.examples)
        else:
            left_out["no_tests"] += 1


def _task(problem: Problem, benchmark: str) -> Task:
    payload: dict[str, Json] = {"entry": problem.entry, "before": problem.before, "stub": problem.stub, "setup": problem.setup}
    return Task(
        id=f"{benchmark}/{problem.name.rpartition('/')[2]}-{content_id('', [problem.text, list(problem.tests)])[1:9]}",
        domain="code",
        benchmark=benchmark,
        group=problem.name,
        split="source",
        prompt=problem.text,
        payload=payload,
    )


def _shown(task: Task, problem: Problem, share: float) -> Task:
    """The task with its tests dealt out to visible and hidden ones."""
    tests = list(problem.tests)
    visible = [test for place, test in enumerate(tests) if int((place + 1) * share) > int(place * share)] if task.split != "heldout" else []
    if task.split != "heldout" and not visible and not problem.examples:
        visible = tests[:1]
    visible = [test for test in visible if len(test) <= LONGEST]
    hidden = [test for test in tests if test not in visible] + list(problem.extra)
    return replace(task, payload={**task.payload, "visible": [*problem.examples, *visible], "hidden": hidden})
