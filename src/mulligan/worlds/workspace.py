"""The workspace world: a git repository and a command that checks it; the action is a patch.

In: tasks with payload {"repository", "commit", "check"} and perhaps "changes" (a patch that was not committed), "tests" (names that must
pass) and "report" (the JUnit file that the check writes). Out: verdicts whose utility is the share of the failing tests that a patch
mends, times the share of the passing ones that it keeps. Each patch is the whole difference to where the task begins, so that attempts
can be compared; it is tried in copies, in the sandbox, as often as `repeats` says, and when these runs differ the verdict is incomplete.
Protected paths (tests, configuration) are restored first. With a check that names no tests its exit status decides, which is weaker: the
verdict's evaluator then ends in "/status".
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from os import getpid
from pathlib import Path

from mulligan.errors import UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Misfit, Proposal, Signal, SignalKind, Situation, Task, Verdict
from mulligan.worlds.answering import Answering, Asked, told
from mulligan.worlds.sandbox import RULES as SANDBOX_RULES
from mulligan.worlds.sandbox import Limits, Wall
from mulligan.worlds.workspace_check import Comparison, Run, compare, run, shell
from mulligan.worlds.workspace_files import PROTECTED, Refused, Source, clean, copied, discard, patched, pristine

MANUAL = (
    "An action is a patch: one unified diff of all changes to the files as they are shown, with paths below the repository's top, as "
    "`git diff` prints it. Tests and configuration cannot be changed. Reply with the diff alone, in a ```diff block."
)
RULES = "1"  # changes whenever a verdict could change for reasons that are not in the settings
LIMITS = Limits(wall_s=120.0, total_s=120.0, cpu_s=240, memory=4 << 30, processes=256, file_size=64 << 20, output=20_000)
SHOWN = 3  # failing tests that are told
PRINTED = 800  # characters of what the check printed, where no test is named


@dataclass(frozen=True, slots=True)
class Checked:
    """What a task's payload names: where it begins, the command, the tests that must pass, and the report that the command writes."""

    source: Source
    check: str
    tests: tuple[str, ...] = ()
    report: str = ""


@dataclass(frozen=True)
class WorkspaceWorld(Answering):
    """Settings only, so that it can be sent to other processes. `protected` are patterns of paths; one without a slash is of names."""

    limits: Limits = field(default_factory=lambda: LIMITS)
    wall: Wall = "bubblewrap"
    repeats: int = 2
    protected: tuple[str, ...] = PROTECTED
    name: str = "workspace"
    manual: str = MANUAL

    @cached_property
    def version(self) -> str:
        parts = [RULES, SANDBOX_RULES, repr(self.limits), self.wall, self.repeats, list(self.protected)]
        return f"{RULES}-{content_id('v', parts)[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **_facts(f"{task.prompt}\n{task.context}"), "gist": task.prompt[:600]}

    def start(self, task: Task) -> Asked:
        """Raises UsageError when the payload names no repository, commit or check, or they are not there."""
        for name in ("repository", "commit", "check"):
            if not isinstance(task.payload.get(name), str) or not str(task.payload[name]).strip():
                raise UsageError(f"task {task.id} is no workspace task: its payload needs 'repository', 'commit' and 'check'")
        asked = asked_of(task)
        shell(asked.check, asked.source.repository)
        pristine(asked.source, self.protected)
        return Asked(self.name, task)

    def tokens(self, action: str) -> Sequence[str]:
        """Words and signs of a patch's lines, each with its own sign in front; where its parts stand is not what it does."""
        lines = [line for line in clean(action)[:100_000].splitlines() if line[:1] in "+- " and not line.startswith(("+++ ", "--- "))]
        return [part for line in lines for part in (line[0], *re.findall(r"\w+|[^\w\s]", line[1:]))]

    def act(self, state: Asked, action: str) -> Verdict:
        began, asked = time.perf_counter(), asked_of(state.task)
        start = pristine(asked.source, self.protected)
        try:
            copy, changed = patched(start, clean(action), self.protected)
        except Refused as error:
            refused = Signal(kind="syntax", what=f"the patch does not apply: {error}")
            return self._verdict(Comparison(), (refused,), f"The patch does not apply: {error}", began)
        after = self.runs(asked, copy)
        compared = compare(self.before(asked), after, asked.tests)
        signals = [Signal(kind="protected", what=f"{path} may not be changed and was restored", where=path) for path in changed]
        signals += _signals(after[0], compared)
        lines = [_summary(after[0], compared), *(told(signal) for signal in signals[:SHOWN])]
        if len(signals) > SHOWN:
            lines.append(f"{len(signals) - SHOWN} more.")
        if not after[0].by_name or after[0].fault or compared.unknown:
            lines.append(f"It printed: {after[0].output.strip()[-PRINTED:]}")
        weaker = "" if after[0].by_name else "/status"
        return self._verdict(compared, () if compared.solved else tuple(signals), "\n".join(lines), began, weaker)

    def _verdict(self, compared: Comparison, signals: tuple[Signal, ...], feedback: str, began: float, weaker: str = "") -> Verdict:
        return Verdict(
            completed=not compared.unknown,
            utility=compared.utility,
            solved=compared.solved,
            feedback=feedback,
            signals=signals,
            done=compared.solved,
            evaluator=f"{self.name}/{self.version}{weaker}",
            seconds=time.perf_counter() - began,
        )

    def runs(self, asked: "Checked", copy: Path, repeats: int = 0) -> list[Run]:
        """Runs of the check in `copy` and in copies of it, which are deleted; as many as the world repeats, unless told otherwise."""
        copies = [copy, *(copied(copy) for _ in range((repeats or self.repeats) - 1))]  # before any of them is run in
        try:
            return [run(shell(asked.check, asked.source.repository, asked.report), one, self.limits, self.wall) for one in copies]
        finally:
            for one in copies:
                discard(one)

    def before(self, asked: "Checked") -> tuple[Run, ...]:
        """The runs without a patch, made once a process."""
        return _before(getpid(), self, asked)

    def edits(self, state: Asked, action: str, verdict: Verdict) -> Iterable[Proposal]:
        from mulligan.worlds import workspace_edits  # the operators are needed only after a failure

        asked = asked_of(state.task)

        def mended(folder: Path) -> Fraction:
            return compare(self.before(asked)[:1], self.runs(asked, folder, repeats=1), asked.tests).utility

        shop = workspace_edits.Workshop(pristine(asked.source, self.protected), self.protected, self.tokens, mended)
        return workspace_edits.proposals(shop, clean(action), verdict.signals)

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        """Read as Python where the files are; what is named must stand in what was shown of them."""
        from mulligan.worlds.code_naming import misfits  # lessons in words are not everybody's

        python = self.facts(situation.task)["language"] == "python"
        return misfits(situation, text) if python else super().misfits(situation, text)


def asked_of(task: Task) -> Checked:
    """What the payload of a task names. Raises KeyError for one that `start` refuses."""
    payload, tests = task.payload, task.payload.get("tests")
    source = Source(str(payload["repository"]), str(payload["commit"]), str(payload.get("changes", "")))
    names = tuple(map(str, tests)) if isinstance(tests, list) else ()
    return Checked(source, str(payload["check"]), names, str(payload.get("report", "")))


@lru_cache(maxsize=256)
def _before(pid: int, world: WorkspaceWorld, asked: Checked) -> tuple[Run, ...]:
    return tuple(world.runs(asked, copied(pristine(asked.source, world.protected).folder)))


# ---- what is told ----


def _summary(after: Run, compared: Comparison) -> str:
    if compared.unknown:
        return f"There is no verdict: {compared.unknown}."
    if after.fault:
        return f"{after.fault[0].upper()}{after.fault[1:]}."
    if not after.by_name:
        return f"The check ended with status {after.status}."
    return f"{compared.passing} of {compared.total} tests pass."


def _signals(after: Run, compared: Comparison) -> list[Signal]:
    """A signal for each test that stands against the patch, or for the run as a whole."""
    if compared.unknown:
        return [Signal(kind="timeout" if after.status is None else "error", what=compared.unknown)]
    found = [_signal(name, after) for name in compared.failing]
    if not found and not compared.solved:
        found = [Signal(kind="error", what=after.fault or f"the check ended with status {after.status}")]
    return found


def _signal(name: str, after: Run) -> Signal:
    failing = after.failing.get(name)
    if failing is None:
        return Signal(kind="error", what=f"{name} was not run" if after.outcomes.get(name) != "skipped" else f"{name} was skipped")
    kind: SignalKind = "assertion" if re.match(r"(?:AssertionError\b|assert\b)", failing.message) else "exception"
    return Signal(kind=kind, what=f"{name}: {failing.message}", where=failing.where)


# ---- facts ----

_FILE = re.compile(r"(?<![\w/.])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]{1,5}\b(?!\()")
_RAISED = re.compile(r"\b[A-Z]\w+(?:Error|Exception|Warning)\b")
_SUFFIXES = {
    ".py": "python",
    ".js": "javascript",
    ".ts": "typescript",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    ".c": "c",
    ".rb": "ruby",
}
MOST_NAMES = 12


def _facts(text: str) -> dict[str, Json]:
    """What conditions may test of a task: files and errors that it names, and the language of those files."""
    files = list(dict.fromkeys(_FILE.findall(text)))[:MOST_NAMES]
    languages = [_SUFFIXES[suffix] for name in files if (suffix := Path(name).suffix) in _SUFFIXES]
    errors = list(dict.fromkeys(_RAISED.findall(text)))[:MOST_NAMES]
    return {"language": languages[0] if languages else "", "files": files, "errors": errors}
