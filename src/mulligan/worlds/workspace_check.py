"""The check of a workspace: a command run in the sandbox, and what it says of each test.

In: a copy of the files and a command. Out: one outcome a named test, from a JUnit report; where a command writes none, its exit status
alone, which is the weaker evidence. The report is written by the run that the candidate's code takes part in, so a report that is missing
or damaged is a failure, a test must be named in it as passed, and its text is never believed for more.

Not promised: safety from code that takes the test runner itself apart from inside, in files that a patch may change.
"""

import re
import secrets
import shlex
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Literal

from mulligan.errors import UsageError
from mulligan.worlds.sandbox import Limits, Wall
from mulligan.worlds.sandbox_command import INSIDE, Command, run_command, taken

Outcome = Literal["passed", "failed", "error", "skipped"]
MAX_TESTS = 100_000
TOLD = 400  # characters of a message
PLACE = re.compile(r"^(?P<file>[^\s:<>]+\.\w+):(?P<line>\d+): ?(?P<kind>\w*)", re.MULTILINE)
NO_RUNNER = re.compile(r"No module named '?pytest'?\b")
NOT_FOUND = 127
PASSES = "the check passes without the patch, so it tells nothing of one"


@dataclass(frozen=True, slots=True)
class Failing:
    """What the report says of a test that did not pass."""

    message: str
    where: str = ""  # file and line of the innermost frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the check. `unknown` says why it tells nothing (too slow, no runner); `fault` why the report cannot be used."""

    status: int | None
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    failing: Mapping[str, Failing] = field(default_factory=dict)
    by_name: bool = True
    unknown: str = ""
    fault: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Shell:
    """A check as it is run: the command, the report that it writes ("" for none), and what else it may read."""

    argv: tuple[str, ...]
    report: str
    readable: tuple[Path, ...]


def shell(check: str, repository: str, report: str = "") -> Shell:
    """How to run `check`. pytest is told to write a report; of another command `report` names the one that it writes by itself.

    A program below the repository that git does not keep, such as `.venv/bin/pytest`, is run from there. Raises UsageError for a command
    that cannot be read.
    """
    try:
        words = shlex.split(check)
    except ValueError as error:
        raise UsageError(f"the check {check!r} is no command: {error}") from None
    if not words:
        raise UsageError("the check is empty: give a command such as 'pytest -q'")
    if re.search(r"[|&;<>$`\n]", check):
        return Shell(("sh", "-c", check), report, ())
    program = Path(repository, words[0]) if "/" in words[0] and not Path(words[0]).is_absolute() else Path(words[0])
    if program.is_absolute() and program.is_file():
        words[0] = str(program)
    if Path(words[0]).name in ("pytest", "py.test") or ("-m", "pytest") in pairwise(words):
        report = report or f".mulligan-{secrets.token_hex(8)}.xml"
        words += [f"--junitxml={report}", "-o", "junit_family=xunit1", "-p", "no:cacheprovider"]
    return Shell(tuple(words), report, tuple(_environment(program)))


def _environment(program: Path) -> Iterator[Path]:
    """The virtual environment that a program is of, and the interpreter that this one is made from."""
    for above in program.parents[1:2] if program.is_absolute() else ():
        settings = above / "pyvenv.cfg"
        if settings.is_file():
            yield above
            home = re.search(r"^home\s*=\s*(.+)$", settings.read_text("utf-8", "replace"), re.MULTILINE)
            if home and (base := Path(home.group(1).strip()).parent) != Path("/usr"):
                yield base


def run(how: Shell, folder: Path, limits: Limits, wall: Wall) -> Run:
    """Run the check in `folder`, which it may change."""
    inside = str(folder) if wall == "process" else INSIDE
    path = ":".join([str(Path(sys.executable).parent), "/usr/local/bin:/usr/bin:/bin"])
    environment = {"PATH": path, "PYTHONPATH": f"{inside}/src:{inside}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    found = run_command(Command(argv=how.argv, folder=folder, environment=environment, readable=how.readable), limits, wall)
    plain = Run(status=found.status, output=found.output, by_name=bool(how.report))
    if found.timed_out:
        return replace(plain, unknown=f"the check did not end within {limits.wall_s:g} s")
    if found.status is None:
        return replace(plain, unknown="the check's process was killed")
    if found.status == NOT_FOUND or NO_RUNNER.search(found.output):
        return replace(plain, unknown=f"the check cannot be run here: {found.output.strip()[-TOLD:]}")
    if not how.report:
        return plain
    body = taken(folder, how.report)
    if body is None:
        return replace(plain, fault="the check ended without a report of its tests")
    try:
        outcomes, failing = read_report(body)
    except ValueError as error:
        return replace(plain, fault=f"the check's report cannot be read: {error}")
    return replace(plain, outcomes=outcomes, failing=failing)


def read_report(body: bytes) -> tuple[dict[str, Outcome], dict[str, Failing]]:
    """The outcome of each test in a JUnit report, and what is told of those that did not pass. Raises ValueError for a damaged one."""
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise ValueError("it declares entities")
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    outcomes: dict[str, Outcome] = {}
    failing: dict[str, Failing] = {}
    for case in root.iter("testcase"):
        name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
        found = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
        outcome: Outcome = "passed"
        if found is not None:
            outcome = "skipped" if found.tag == "skipped" else "failed" if found.tag == "failure" else "error"
        if outcomes.get(name, "passed") == "passed":  # an error on leaving a test counts against it
            outcomes[name] = outcome
        if found is not None and outcome != "skipped":
            failing[name] = _told(found)
        if len(outcomes) > MAX_TESTS:
            raise ValueError(f"more than {MAX_TESTS} tests")
    return outcomes, failing


def _told(found: ElementTree.Element) -> Failing:
    text = found.text or ""
    places = list(PLACE.finditer(text))
    message = (found.get("message") or text.strip().rpartition("\n")[2]).strip()
    return Failing(message[:TOLD], f"{places[-1]['file']}:{places[-1]['line']}" if places else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A patched workspace against the one without the patch.

    `utility` is the share of what failed before and passes now, times the share of what passed before and still does: so one mended test is
    not lost among a thousand. `failing` are the tests that stand against the patch. `unknown` says why there is no verdict.
    """

    utility: Fraction = Fraction(0)
    solved: bool = False
    failing: Sequence[str] = ()
    passing: int = 0
    total: int = 0
    unknown: str = ""


def compare(before: Sequence[Run], after: Sequence[Run], wanted: Sequence[str] = ()) -> Comparison:
    """The verdict of repeated runs before and after a patch. `wanted` are the tests that must pass; empty for all that are seen."""
    for runs in (before, after):
        if unknown := next((one.unknown for one in runs if one.unknown), ""):
            return Comparison(unknown=unknown)
        if len({(one.status, tuple(sorted(one.outcomes.items())), one.fault) for one in runs}) > 1:
            return Comparison(unknown=f"the check is not the same each time it is run: {', '.join(_unsteady(runs)) or 'its exit status'}")
    was, now = before[0], after[0]
    if not now.by_name:
        if was.status == 0:
            return Comparison(unknown=PASSES)
        return Comparison(utility=Fraction(now.status == 0), solved=now.status == 0, total=1, passing=int(now.status == 0))
    failed, passed = _expected(was, now, wanted)
    if not failed:
        return Comparison(unknown=PASSES)
    mended, kept = ([name for name in names if now.outcomes.get(name) == "passed"] for names in (failed, passed))
    every = {*failed, *passed}
    broken = sorted(every - {*mended, *kept})
    share = Fraction(len(mended), len(failed)) * (Fraction(len(kept), len(passed)) if passed else 1)
    solved = not broken and bool(mended) and (bool(wanted) or (now.status == 0 and not now.failing))
    return Comparison(utility=share, solved=solved, failing=broken, passing=len(mended) + len(kept), total=len(every))


def _expected(was: Run, now: Run, wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tests that failed before and those that passed before. A module that could not be loaded stands for the tests that it has now."""
    if wanted:
        failed = [name for name in wanted if was.outcomes.get(name) != "passed"]
        return failed, [name for name in (*wanted, *was.outcomes) if was.outcomes.get(name) == "passed" and name not in failed]
    unloaded = [name for name, outcome in was.outcomes.items() if outcome == "error" and "::" not in name]
    failed = [name for name, outcome in was.outcomes.items() if outcome in ("failed", "error") and name not in unloaded]
    for module in unloaded:
        tests = [name for name in now.outcomes if name == module or name.startswith((f"{module}::", f"{module}."))]
        failed += tests or [module]
    if was.fault and not was.outcomes:  # nothing was named before: what is named now counts
        failed = list(now.outcomes) or ["the check's report"]
    return failed, [name for name, outcome in was.outcomes.items() if outcome == "passed"]


def _unsteady(runs: Sequence[Run]) -> list[str]:
    names = sorted({name for one in runs for name in one.outcomes})
    return [name for name in names if len({one.outcomes.get(name) for one in runs}) > 1][:3]
