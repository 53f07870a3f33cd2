"""Ask every generator of reasoning-gym for two questions, and its verifier about the gold answer and about a wrong one.

    python scripts/try_generators.py

Needs `pip install reasoning-gym`. Prints what is not as it should be, how many are, and what a verdict costs.
"""

import statistics
import time
from collections import Counter

from reasoning_gym.factory import DATASETS  # type: ignore[import-not-found]  # no dependency of the package

from mulligan.errors import UsageError
from mulligan.records import Verdict
from mulligan.tasks.maths import load_reasoning_gym
from mulligan.worlds.maths import MathsWorld

WRONG = "123456789.5"


def word(verdict: Verdict) -> str:
    """A verdict in a word."""
    return "right" if verdict.solved else "wrong" if verdict.completed else "unknown"


def main() -> None:
    """Try them all."""
    world, counts, seconds = MathsWorld(), Counter[str](), list[float]()
    for name in sorted(DATASETS):
        try:
            tasks, _ = load_reasoning_gym([name], size=2, seed=1)
        except UsageError as error:
            print(error)
            continue
        for task in tasks:
            gold = str(task.payload["gold"])
            with world.start(task) as state:
                began = time.perf_counter()
                given = word(world.act(state, f"The answer is: {gold}"))
                seconds.append(time.perf_counter() - began)
                other = word(world.act(state, f"The answer is: {WRONG}"))
            counts.update([f"gold {'that is none' if gold == 'None' else 'answer'} {given}", f"other answer {other}"])
            if (given, other) != ("right", "wrong"):
                print(f"{task.payload['gym']['name']}: {gold[:40]!r} is {given}, {WRONG} is {other}")
    print(dict(sorted(counts.items())))
    print(f"a verdict: median {1000 * statistics.median(seconds):.0f} ms of {len(seconds)}")


if __name__ == "__main__":
    main()
