"""The code world: a function to write, judged by tests that run in the sandbox.

In: tasks with payload {"entry", "before", "stub", "setup", "visible", "hidden"}, as `tasks/programs.py` makes them. Out: verdicts whose
utility is the share of visible tests that pass (SPEC A3.1), 0 when the program cannot be loaded; `hidden` is the same share of the hidden
tests. Solved means all of both; feedback, signals and `done` come from the visible ones alone. A test that takes too long makes the
verdict incomplete. Not promised: anything about tests that look into the program's objects; they see plain values.
"""

import ast
import atexit
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from mulligan.errors import UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Misfit, Proposal, Signal, Situation, Task, Verdict
from mulligan.worlds.answering import Answering, Asked, told
from mulligan.worlds.code_text import LONGEST, assemble, clean, tokens, tree
from mulligan.worlds.sandbox import RULES as SANDBOX_RULES
from mulligan.worlds.sandbox import Limits, Outcome, Program, Report, Sandbox, Wall

MANUAL = (
    "An action is Python code: the whole function that is asked for, under its own name, with the imports and helpers that it needs. "
    "It is loaded and its function is called; it prints nothing and reads no input. Reply with the code alone, in a ```python block."
)
RULES = "1"  # changes whenever a verdict could change for reasons that are not in the limits or the sandbox
SHOWN = 3  # failures that are told
TOLD = 240  # characters of one


@dataclass(frozen=True)
class CodeWorld(Answering):
    """Settings only, so that it can be sent to other processes."""

    limits: Limits = field(default_factory=Limits)
    wall: Wall = "bubblewrap"
    name: str = "code"
    manual: str = MANUAL

    @cached_property
    def version(self) -> str:
        return f"{RULES}-{content_id('v', [RULES, SANDBOX_RULES, repr(self.limits), self.wall])[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **_facts(task.prompt, str(task.payload.get("entry", "")))}

    def start(self, task: Task) -> Asked:
        """Raises UsageError when the payload names no function or no list of tests."""
        payload = task.payload
        if not isinstance(payload.get("entry"), str) or not all(isinstance(payload.get(name), list) for name in ("visible", "hidden")):
            raise UsageError(f"task {task.id} is no programming task: its payload needs 'entry', 'visible' and 'hidden'")
        return Asked(self.name, task)

    def tokens(self, action: str) -> Sequence[str]:
        return tokens(clean(action))

    def act(self, state: Asked, action: str) -> Verdict:
        began = time.perf_counter()
        visible, hidden = ([str(test) for test in state.task.payload[name]] for name in ("visible", "hidden"))
        source, shift = assemble(state.task, action)
        report = self.run(state.task, source, [*visible, *hidden])
        judged = _judge(visible, report, shift)
        passed = [outcome.kind == "passed" for outcome in report.outcomes[len(visible) :]]
        unfinished = judged.incomplete or any(outcome.kind in ("timeout", "broken") for outcome in report.outcomes)
        right = not report.fault and not judged.signals
        return Verdict(
            completed=not unfinished,
            utility=judged.utility,
            solved=not unfinished and right and all(passed),
            feedback=judged.feedback,
            signals=judged.signals,
            done=right and not judged.incomplete,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
            hidden=Fraction(sum(passed), len(hidden)) if hidden else None,
        )

    def run(self, task: Task, source: str, tests: Sequence[str]) -> Report:
        """What comes of `tests` of a whole program. Raises UsageError where code cannot be run."""
        if len(source) > LONGEST:
            return Report(fault=Outcome(kind="raised", type="SyntaxError", said=f"the program has more than {LONGEST} characters"))
        entry, setup = str(task.payload["entry"]), str(task.payload.get("setup", ""))
        return _sandbox(os.getpid(), self.wall, self.limits).check(Program(source=source, tests=tests, names=[entry], setup=setup))

    def edits(self, state: Asked, action: str, verdict: Verdict) -> Iterable[Proposal]:
        from mulligan.worlds import code_edits  # the operators are needed only after a failure

        task, visible = state.task, [str(test) for test in state.task.payload["visible"]]
        quick = replace(self, limits=code_edits.LIMITS)

        def passed(draft: str) -> int:
            report = quick.run(task, assemble(task, draft)[0], visible)
            return sum(outcome.kind == "passed" for outcome in report.outcomes)

        return code_edits.proposals(clean(action), verdict.signals, passed, len(visible))

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        from mulligan.worlds.code_naming import misfits  # lessons in words are not everybody's

        return misfits(situation, text)


@lru_cache(maxsize=8)
def _sandbox(pid: int, wall: Wall, limits: Limits) -> Sandbox:
    """The warm interpreters of this process; a forked child has its own."""
    box = Sandbox(wall=wall, limits=limits)
    atexit.register(lambda: box.close() if os.getpid() == pid else None)
    return box


# ---- the judgement ----


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What the visible tests say. `incomplete` when one of them, or the program itself, took too long."""

    utility: Fraction
    signals: tuple[Signal, ...]
    feedback: str
    incomplete: bool = False


def _judge(visible: Sequence[str], report: Report, shift: int) -> _Judgement:
    if report.fault:
        signal = _signal("", report.fault, shift)
        incomplete = report.fault.kind in ("timeout", "broken")
        return _Judgement(Fraction(0), (signal,), f"The program could not be loaded. {told(signal)}", incomplete)
    outcomes = report.outcomes[: len(visible)]
    failed = [(test, outcome) for test, outcome in zip(visible, outcomes, strict=True) if outcome.kind != "passed"]
    signals = tuple(_signal(test, outcome, shift) for test, outcome in failed)
    passed = len(visible) - len(failed)
    lines = [f"{passed} of {len(visible)} tests that you may see pass." if visible else "The program loads; there is no test to see."]
    lines += [told(signal) for signal in signals[:SHOWN]]
    if len(signals) > SHOWN:
        lines.append(f"{len(signals) - SHOWN} more fail.")
    if output := report.output.strip():
        lines.append(f"It printed: {_cut(output)}")
    incomplete = any(outcome.kind in ("timeout", "broken") for outcome in outcomes)
    return _Judgement(Fraction(passed, len(visible)) if visible else Fraction(1), signals, "\n".join(lines), incomplete)


def _signal(test: str, outcome: Outcome, shift: int) -> Signal:
    """One failure as evidence: what was asked, what came, and the action's own line."""
    at = f"line {outcome.line - shift}" if outcome.line > shift else ""
    asked = test.removeprefix("assert ")
    match outcome.kind:
        case "failed" if outcome.how == "Eq":
            what = f"{_cut(_left(test) or asked)}: got {_cut(outcome.left)}, wanted {_cut(outcome.right)}"
            return Signal(kind="assertion", what=what, where=at)
        case "failed" if outcome.how:
            return Signal(kind="assertion", what=f"{_cut(asked)}: {_cut(outcome.left)} and {_cut(outcome.right)}", where=at)
        case "failed":
            return Signal(kind="assertion", what=f"{_cut(asked)} does not hold{f': {outcome.said}' if outcome.said else ''}", where=at)
        case "raised" if outcome.type in ("SyntaxError", "IndentationError", "TabError"):
            return Signal(kind="syntax", what=f"{outcome.type}: {_cut(outcome.said)}", where=at)
        case "raised":
            what = f"{outcome.type}: {_cut(outcome.said)}" if outcome.said else outcome.type
            return Signal(kind="exception", what=f"{_cut(asked)} raises {what}" if asked else what, where=at)
        case "timeout":
            return Signal(kind="timeout", what=f"{_cut(asked)}: {outcome.said}" if asked else outcome.said, where=at)
    return Signal(kind="error", what=f"{_cut(asked)}: {outcome.said}" if asked else outcome.said, where=at)


def _left(test: str) -> str:
    """What a test that is one equation asks for; "" for others."""
    parsed = tree(test)
    if parsed and len(parsed.body) == 1 and isinstance(assertion := parsed.body[0], ast.Assert):
        equation = assertion.test
        if isinstance(equation, ast.Compare) and len(equation.ops) == 1:
            return ast.get_source_segment(test, equation.left) or ""
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= TOLD else f"{text[: TOLD - 1]}…"


# ---- facts ----

_WORD = re.compile(r"[a-z]{3,}")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "the and for that this with from are not you your function write given return returns which have has can should would "
        "will each all any its they them their then than into only also but one two use using example examples note assume input "
        "output value values true false none def int str list dict set tuple float bool typing import find check whether number "
        "numbers element elements such other where when ",
    )
)
MOST_WORDS = 24


def _facts(prompt: str, entry: str) -> dict[str, Json]:
    """What conditions may test of a problem. Word lists are English; other languages give no `words`."""
    found = re.search(rf"def\s+{re.escape(entry)}\s*\((.*?)\)\s*(?:->\s*(.+?))?\s*:", prompt, re.DOTALL) if entry else None
    takes = [_kind(part.partition(":")[2]) for part in _parts(found.group(1))] if found else []
    prose = _prose(prompt, entry)
    words = list(dict.fromkeys(word for word in _WORD.findall(prose.lower()) if word not in _COMMON))
    return {
        "language": "python",
        "takes": [kind for kind in dict.fromkeys(takes) if kind],
        "arguments": len(takes),
        "returns": _kind(found.group(2) or "") if found else "",
        "words": words[:MOST_WORDS],
        "gist": prose,
    }


def _parts(arguments: str) -> list[str]:
    """Arguments of a signature, split at commas outside brackets."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _kind(annotation: str) -> str:
    """An annotation without what stands in its brackets: List[int] is list."""
    return annotation.partition("=")[0].partition("[")[0].strip().rpartition(".")[2].lower()


def _prose(prompt: str, entry: str) -> str:
    """What a problem says in words: without code, examples and the function's own name."""
    lines = []
    for line in prompt.splitlines():
        text = line.strip().strip('"').strip("'").strip()
        if text.startswith((">>>", "def ", "import ", "from ", "assert ", "@", "#")) or (entry and f"{entry}(" in text):
            continue
        lines.append(text)
    return " ".join(" ".join(lines).replace(f"`{entry}`", "it").split())[:600]
