"""Loads SAT problems: files in DIMACS, such as those of SATLIB, and families that cnfgen makes.

In: a file or a folder of `*.cnf` (also gzipped), or the name of a family. Out: tasks of the SAT world and a LoadReport. Which problems
are satisfiable is left to the world's solver; a name that says so (`uf…`, `uuf…`) is compared with it, and problems where they disagree
are left out. Not promised: that large formulas fit a model's context; `most_clauses` leaves them out.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mulligan.errors import MissingExtra, UsageError
from mulligan.nouns import content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt, read_bytes
from mulligan.tasks.loading import LeftOut, LoadReport
from mulligan.worlds.sat_formula import Formula, read_dimacs

MOST_CLAUSES = 400
MAX_BYTES = 32 << 20
SECONDS = 10.0  # for the solver, a problem
FAMILIES = ("php", "op", "parity", "count", "tseitin", "randkcnf")
PROMPT = "Find an assignment of the variables 1 to {variables} that satisfies all {clauses} clauses, or answer UNSAT."


def load_dimacs(
    files: str | Path,
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    most_clauses: int = MOST_CLAUSES,
) -> tuple[list[Task], LoadReport]:
    """Tasks of the formulas in a file or folder. `shares` and `seed` deal them out to source, train and heldout.

    Raises InvalidData where there are none, and with file and line for one that cannot be read.
    """
    root = Path(files)
    found = sorted(path for path in root.rglob("*") if path.name.endswith((".cnf", ".cnf.gz", ".dimacs"))) if root.is_dir() else [root]
    listed = ((path.name.partition(".")[0], read_bytes(path, MAX_BYTES).decode("utf-8", "replace"), str(path)) for path in found)
    return _load(listed, str(files), root.name if root.is_dir() else root.parent.name, shares, seed, most_clauses)


def load_cnfgen(
    family: str,
    sizes: Sequence[Sequence[int]],
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    most_clauses: int = MOST_CLAUSES,
) -> tuple[list[Task], LoadReport]:
    """Tasks of a family that the package cnfgen makes: php, op, parity, count, tseitin or randkcnf. `sizes` has one list of
    arguments for each formula (parity: points; tseitin: points, and edges at each; the others as cnfgen takes them); random families
    draw from the seed and the place in the list.
    """
    if family not in FAMILIES:
        raise UsageError(f"no family {family!r}: choose {', '.join(FAMILIES)}")
    try:
        made = import_module("cnfgen")
    except ModuleNotFoundError:
        raise MissingExtra("families of formulas need cnfgen: pip install cnfgen") from None

    def listed() -> Iterator[tuple[str, str, str]]:
        for place, size in enumerate(sizes):
            name = f"{family}-{'-'.join(map(str, size))}-{place}"
            yield name, _generated(made, family, size, seed + place), name

    return _load(listed(), f"cnfgen {family}", family, shares, seed, most_clauses)


def _generated(made: Any, family: str, size: Sequence[int], seed: int) -> str:
    import random

    names = {"php": "PigeonholePrinciple", "op": "OrderingPrinciple", "count": "CountingPrinciple", "randkcnf": "RandomKCNF"}
    random.seed(seed)
    graphs = import_module("networkx")  # comes with cnfgen
    try:
        if family == "parity":
            (points,) = size
            formula = made.CountingPrinciple(points, 2)
        elif family == "tseitin":
            points, edges = size
            formula = made.TseitinFormula(graphs.random_regular_graph(edges, points, seed=seed))
        else:
            formula = getattr(made, names[family])(*size)
    except (TypeError, ValueError, graphs.NetworkXException) as error:
        raise UsageError(f"cnfgen makes no {family} of size {list(size)}: {error}") from error
    return str(formula.to_dimacs())


def _load(
    listed: Iterator[tuple[str, str, str]], file: str, benchmark: str, shares: Sequence[float], seed: int, most_clauses: int
) -> tuple[list[Task], LoadReport]:
    from mulligan.worlds.sat_solver import satisfiable  # an extra: what comes with the package is loaded without it

    left_out: Counter[LeftOut] = Counter()
    tasks: dict[str, Task] = {}
    read = 0
    for name, text, place in listed:
        read += 1
        formula = read_dimacs(text, place)
        task = _task(name, text, formula, benchmark)
        known = satisfiable(formula, SECONDS) if len(formula.clauses) <= most_clauses else None
        says = re.match(r"(uu?f)\d", name)
        if known is None:
            left_out["too_large"] += 1
        elif says and known != (says.group(1) == "uf"):
            left_out["gold_fails"] += 1
        elif task.group in tasks:
            left_out["duplicate"] += 1
        else:
            tasks[task.group] = task
    return dealt(list(tasks.values()), left_out, file=file, read=read, what="formula", shares=shares, seed=seed)


def _task(name: str, text: str, formula: Formula, benchmark: str) -> Task:
    group = content_id("cnf", [formula.variables, [list(clause) for clause in formula.clauses]])
    shown = "\n".join(" ".join(map(str, (*clause, 0))) for clause in formula.clauses)
    return Task(
        id=f"{benchmark}/{name}-{group[4:12]}",
        domain="sat",
        benchmark=benchmark,
        group=group,
        split="source",
        prompt=PROMPT.format(variables=formula.variables, clauses=len(formula.clauses)),
        context=f"p cnf {formula.variables} {len(formula.clauses)}\n{shown}",
        payload={"cnf": text},
    )
