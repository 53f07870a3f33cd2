"""The maths world: a question with one answer, which is compared exactly.

In: tasks with payload {"gold": answer}. Out: verdicts with utility as in SPEC A3.1: 1 when the answer is right, else half the share of the
text's own calculations that hold. Plain numbers are compared here, everything else by algebra in a process that is killed when it takes
too long. What cannot be parsed whole, or told, is unknown: neither right nor wrong. Feedback and signals come from the text's calculations
alone; on source tasks also that the answer is wrong, never what it should be.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path
from typing import Self

from mulligan.errors import UsageError
from mulligan.records import Json, Proposal, Signal, Task, Verdict, content_id
from mulligan.worlds import maths_edits
from mulligan.worlds.maths_values import Unclear, cleaned, compare, equations, final_answer

if find_spec("latex2sympy2_extended") is None:  # only the worker imports it, and could not say so
    raise ModuleNotFoundError("no module named 'latex2sympy2_extended'", name="latex2sympy2_extended")

MANUAL = (
    "An action is a solution: short steps, each calculation written as an equation such as 3 * 4 = 12, and on the last line "
    "`The answer is: ` with the answer alone. Reply with the solution, without a code block."
)
RULES = "1"
WORKER = Path(__file__).with_name("maths_worker.py")
LONGEST = 20_000  # characters of an action
STARTING = 30.0  # seconds for the worker to load


@dataclass(frozen=True)
class MathsState:
    """A task; answers change nothing, so it is its own snapshot."""

    task: Task

    @property
    def digest(self) -> str:
        return content_id("maths", [self.task.id, self.task.split, self.task.prompt, dict(self.task.payload)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to release: the worker belongs to the process."""


@dataclass(frozen=True)
class MathsWorld:
    """Settings only, so that it can be sent to other processes."""

    time_limit_s: float = 3.0
    name: str = "maths"
    manual: str = MANUAL

    @cached_property
    def version(self) -> str:
        parts = [RULES, self.time_limit_s, version("sympy"), version("latex2sympy2_extended")]
        return f"{RULES}-{content_id('v', parts)[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **maths_edits.facts(task.prompt)}

    def start(self, task: Task) -> MathsState:
        """Raises UsageError when the payload holds no gold answer."""
        if not isinstance(task.payload.get("gold"), str):
            raise UsageError(f"task {task.id} has no gold answer; put it as text under payload['gold']")
        return MathsState(task)

    def observe(self, state: MathsState) -> str:
        """Nothing: answers change nothing."""
        return ""

    def save(self, state: MathsState) -> MathsState:
        return state

    def restore(self, snapshot: MathsState) -> MathsState:
        return snapshot

    def tokens(self, action: str) -> Sequence[str]:
        return maths_edits.tokens(action[:LONGEST])

    def act(self, state: MathsState, action: str) -> Verdict:
        began = time.perf_counter()
        action, heldout = action[:LONGEST], state.task.split == "heldout"
        answer = final_answer(action)
        right = self.judge(str(state.task.payload["gold"]), answer, state.task.prompt) if answer.strip() else False
        steps = equations(action)
        signals = [
            Signal(kind="assertion", what=f"{step.left} = {step.right} does not hold: it is {maths_edits.written(step.value)}")
            for step in steps
            if not step.holds
        ]
        if not answer.strip():
            signals.append(Signal(kind="syntax", what="there is no answer"))
        seen = tuple(signals)
        if not heldout and right is not True:
            why = (
                f"the answer {cleaned(answer).text[:80]!r} is wrong" if right is False else "the answer cannot be read as a whole, or told"
            )
            signals.append(Signal(kind="refuted" if right is False else "error", what=why))
        told = ["The answer is right." if right and not heldout else f"You answered {answer.strip()[:200]}."]
        return Verdict(
            completed=right is not None,
            utility=Fraction(1) if right else Fraction(sum(step.holds for step in steps), 2 * len(steps)) if steps else Fraction(0),
            solved=right is True,
            feedback="\n".join([*told, *(f"{signal.kind}: {signal.what}" for signal in signals)]),
            signals=tuple(signals),
            done=not seen if heldout else right is True,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def judge(self, gold: str, answer: str, question: str = "") -> bool | None:
        """Whether `answer` is `gold`; None where it cannot be told."""
        try:
            return compare(gold, answer, question)
        except Unclear:
            return _algebra(os.getpid()).ask(cleaned(gold).text, cleaned(answer).text, self.time_limit_s)

    def edits(self, state: MathsState, action: str, verdict: Verdict) -> Iterable[Proposal]:
        return maths_edits.proposals(action[:LONGEST])


class Algebra:
    """One worker process, started on first use and again after it was killed. Threads take turns."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, one: str, other: str, time_limit_s: float) -> bool | None:
        """What the worker says of two texts; None when it does not answer in time."""
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            with suppress(OSError, ValueError):
                process.stdin.write(json.dumps([one, other]).encode() + b"\n")
                process.stdin.flush()
                line = self._line(process, time_limit_s)
                if line:
                    told = json.loads(line)
                    return told if isinstance(told, bool) else None
            self.close()
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        environ = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
        command = [sys.executable, "-P", str(WORKER)]
        pipe = subprocess.PIPE
        process = self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environ)
        if self._line(process, STARTING).strip() != b"ready":
            self.close()
            raise UsageError("the algebra of the maths world does not start: pip install 'mulligan[maths]'")
        return process

    @staticmethod
    def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert process.stdout is not None
        return process.stdout.readline() if wait([process.stdout.fileno()], seconds) else b""

    def close(self) -> None:
        """End the worker. Safe to call twice."""
        if self._process:
            self._process.kill()
            with suppress(OSError, ValueError):
                self._process.communicate()
        self._process = None


@lru_cache(maxsize=1)
def _algebra(pid: int) -> Algebra:
    """The worker of this process; a forked child has its own."""
    made = Algebra()
    atexit.register(lambda: made.close() if os.getpid() == pid else None)
    return made
