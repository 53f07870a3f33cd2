"""Labels checked: what a log stores as solved or not, run again in the sandbox.

In: a log whose cases store a program and its tests. Out: a `Label` for each: what was stored, what is found. A stored success that fails or
runs out of time is a false success, and nothing may be learnt from it. Not promised: anything about programs that are not Python.
"""

import re
from collections.abc import Callable, Sequence

from mulligan.audit.logs import Case, Log, Program
from mulligan.nouns import noun
from mulligan.worlds.sandbox import Limits, Outcome, Sandbox, Wall
from mulligan.worlds.sandbox import Program as Checked

LIMITS = Limits(wall_s=10.0, total_s=20.0)
HEAD = "from typing import *\n"  # what the harness of these logs put in front
CALLED = re.compile(r"^(?:test_)?check\(.*\)\s*$", re.MULTILINE)


@noun
class Label:
    """What is stored and what is found: solved or not; `found` None cannot be told, and `why` says so, or what went wrong."""

    name: str
    stored: bool
    found: bool | None
    why: str = ""

    @property
    def agrees(self) -> bool | None:
        return None if self.found is None else self.found == self.stored


@noun
class Recheck:
    """All labels in order, and those that do not hold."""

    checked: int
    agree: int
    false_successes: tuple[Label, ...]  # stored as solved, and they are not
    missed_successes: tuple[Label, ...]  # stored as unsolved, and they pass
    cannot_tell: tuple[Label, ...]


def recheck(
    log: Log, *, wall: Wall = "bubblewrap", limit: int | None = None, progress: Callable[[int, int], None] = lambda *_: None
) -> Recheck:
    """Run again what the first `limit` cases store. Raises UsageError where code cannot be run."""
    cases = [case for case in log.cases if case.program][:limit]
    labels: list[Label] = []
    with Sandbox(wall=wall, limits=LIMITS) as box:
        for case in cases:
            labels.append(_label(case, box))
            progress(len(labels), len(cases))
    return summed(labels)


def summed(labels: Sequence[Label]) -> Recheck:
    """The labels sorted into what they say."""
    return Recheck(
        checked=len(labels),
        agree=sum(label.agrees is True for label in labels),
        false_successes=tuple(label for label in labels if label.agrees is False and label.stored),
        missed_successes=tuple(label for label in labels if label.agrees is False and not label.stored),
        cannot_tell=tuple(label for label in labels if label.agrees is None),
    )


def _label(case: Case, box: Sandbox) -> Label:
    program = case.program
    assert program is not None
    if program.language != "py":
        return Label(name=case.name, stored=case.solved, found=None, why=f"{program.language} is not run here")
    report = box.check(_checked(program))
    outcome: Outcome = report.fault or report.outcomes[0]
    found = None if outcome.kind == "broken" else outcome.kind == "passed"
    said = f"{outcome.left} {outcome.how} {outcome.right}" if outcome.left else f"{outcome.type} {outcome.said}".strip()
    return Label(name=case.name, stored=case.solved, found=found, why="" if found else f"{outcome.kind}: {said}"[:200])


def _checked(program: Program) -> Checked:
    """The stored solution and its tests. Some logs keep a whole program, some what continues the prompt."""
    whole = program.solution
    if not (_parses(whole) and re.search(rf"\b(?:def|class)\s+{re.escape(program.entry)}\b|\b{re.escape(program.entry)}\s*=", whole)):
        whole = program.prompt + program.solution
    before = f"{program.prompt}\n    pass\n"
    test = program.test if CALLED.search(program.test) or not program.entry else f"{program.test}\ncheck({program.entry})\n"
    return Checked(source=HEAD + whole, tests=[test], names=[program.entry], setup=HEAD + (before if _parses(before) else ""))


def _parses(text: str) -> bool:
    try:
        compile(text, "<stored>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
