"""How many changed tasks of each kind can be made from the records of finished runs, and what became of every rule's drafts.

    python scripts/try_variants.py runs/*/checked.db --geoquery FOLDER_OF_GEOGRAPHY --humaneval HumanEval.jsonl.gz

Records are read as they are, whatever run they come from. With --solutions the code tasks' own solutions serve as corrections, without a
condition: what the builders could do with a correction of every problem. `--show N` prints N variants of each kind.
"""

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import get_args

from mulligan.protocols import World
from mulligan.records import Condition, Gain, Provenance, Record, Task
from mulligan.store import Store
from mulligan.tasks.drafts import Kind
from mulligan.tasks.programs import load_humaneval
from mulligan.tasks.text2sql import load_text2sql
from mulligan.tasks.variants import MOST, pairs
from mulligan.worlds.code import CodeWorld
from mulligan.worlds.sql import SqlWorld

Learnt = list[tuple[Record, Task]]


def geoquery(folder: Path) -> dict[str, Task]:
    """Every question that either split has."""
    files = folder / "geography.json", folder / "geography-db.added-in-2020.sqlite"
    return {task.id: task for by in ("query", "question") for task in load_text2sql(*files, split_by=by)[0]}


def records(stores: Sequence[Path], tasks: Mapping[str, Task]) -> Learnt:
    """The corrections in the stores that solved their task, with that task."""
    learnt: dict[str, tuple[Record, Task]] = {}
    for path in stores:
        with Store(path, frozen=True) as store:
            for stored in store.records():
                record = stored.record
                if record.kind == "correction" and record.gain.solved and record.provenance.task in tasks:
                    learnt[record.id] = (record, replace(tasks[record.provenance.task], split="source"))
    return list(learnt.values())


def solutions(file: Path, tasks: Mapping[str, Task]) -> Learnt:
    """A correction of every problem: its own solution."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        found = {str(entry["task_id"]): entry["prompt"] + entry["canonical_solution"] for entry in map(json.loads, lines)}
    return [(_record(task, found[task.group]), task) for task in tasks.values()]


def _record(task: Task, corrected: str) -> Record:
    return Record(
        kind="correction",
        domain=task.domain,
        situation=task.prompt,
        original="",
        corrected=corrected,
        diff="",
        condition=Condition(),
        gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True),
        provenance=Provenance(
            task=task.id, group=task.group, benchmark=task.benchmark, split="source", episode="", attempt=0, agent="", model="",
            proposer="solution", evaluator="",
        ),
    )  # fmt: skip


def report(name: str, learnt: Learnt, others: Sequence[Task], world: World, given: argparse.Namespace) -> None:
    """Print what came of one set of records."""
    predicates = sum(record.condition.kind == "predicate" for record, _ in learnt)
    print(f"\n{name}: {len(learnt)} corrections ({predicates} with a predicate) of {len({task.id for _, task in learnt})} tasks")
    for kind in get_args(Kind):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            made = pairs(learnt, world, kind, folder, others=others, most=MOST, each=given.each)
        told = [v.asserted for v in made.variants]
        print(f"\n{kind}: {len(made.variants)} of {MOST}, from {len({v.source for v in made.variants})} tasks; ", end="")
        print(f"condition false {sum(a.condition is False for a in told)}, true {sum(a.condition is True for a in told)}, none ", end="")
        print(f"{sum(a.condition is None for a in told)}; stored correction right {sum(a.stored_solved for a in told)}; ", end="")
        print(f"{time.perf_counter() - began:.0f} s\n  records left out: {made.left_out}")
        for rule, outcomes in sorted(made.rules.items()):
            print(f"  {rule}: {outcomes}")
        for variant in made.variants[: given.show]:
            print(f"  * {variant.rule}: {variant.change}\n    {variant.task.prompt}\n    {variant.gold}")


def main() -> None:
    """Read what is named, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--geoquery", type=Path)
    parser.add_argument("--humaneval", type=Path)
    parser.add_argument("--solutions", action="store_true")
    parser.add_argument("--each", type=int, default=1, help="variants of one record")
    parser.add_argument("--show", type=int, default=0)
    given = parser.parse_args()
    if given.geoquery:
        tasks = geoquery(given.geoquery)
        report("GeoQuery", records(given.stores, tasks), list(tasks.values()), SqlWorld(), given)
    if given.humaneval:
        problems = {task.id: task for task in load_humaneval(given.humaneval, shares=(1, 0, 0))[0]}
        report("HumanEval", records(given.stores, problems), [], CodeWorld(), given)
        if given.solutions:
            report("HumanEval, its own solutions", solutions(given.humaneval, problems), [], CodeWorld(), given)


if __name__ == "__main__":
    main()
