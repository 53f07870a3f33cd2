"""Loads theorems to prove: files for Rocq, or folders of them, with or without proofs.

In: a path. Out: tasks of the proof world and a LoadReport. Each theorem is a task; what stands before it in its file, but for other
theorems, is given. A comment `(* source GROUP *)` before a theorem says its split (source, train, heldout) and group; else folders `valid`
and `test` do, as in miniF2F; else theorems are dealt out. Proofs in a file become "gold", which only tests read. Not promised: that a
statement holds.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mulligan.errors import InvalidData
from mulligan.nouns import content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt, read_bytes
from mulligan.tasks.loading import SPLITS, LeftOut, LoadReport
from mulligan.tasks.splits import assign_splits
from mulligan.worlds.proof_rocq import Rocq
from mulligan.worlds.proof_text import Theorem, theorems
from mulligan.worlds.sandbox import Limits, Wall

REALS = (  # what the standard library's real numbers rest on, as `Print Assumptions` names it
    "ClassicalDedekindReals.sig_forall_dec",
    "ClassicalDedekindReals.sig_not_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
)
BATCH, PATIENCE_S = 40, 120.0  # statements that one coqtop reads, and its time
LIMITS = Limits(memory=2 << 30, output=4 << 20, cpu_s=120)


def load_rocq(
    files: str | Path,
    *,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    axioms: Sequence[str] | None = None,
    verify: bool = True,
    sandbox: Wall = "bubblewrap",
) -> tuple[list[Task], LoadReport]:
    """Tasks of the theorems in a file or folder. `axioms` may be used in proofs: none, but for REALS where a file is about real numbers.

    With `verify` statements that the installed Rocq does not read are left out, at a few hundredths of a second each. Raises InvalidData
    where there is no theorem that can be used, UsageError where there is no Rocq.
    """
    root = Path(files)
    found = sorted(root.rglob("*.v")) if root.is_dir() else [root]
    left_out: Counter[LeftOut] = Counter()
    kept: dict[str, _Stated] = {}
    read = 0
    for path in found:
        try:
            stated = theorems(read_bytes(path).decode("utf-8", "replace"), str(path))
        except InvalidData:
            if len(found) == 1:
                raise
            read, left_out["excluded"] = read + 1, left_out["excluded"] + 1
            continue
        read += len(stated)
        for theorem in stated:
            task = _task(theorem, root.name if root.is_dir() else root.stem, axioms)
            left_out["duplicate"] += theorem.text in kept
            kept.setdefault(theorem.text, _Stated(task, theorem, path.parent.name))
    usable = _taken([*kept.values()], sandbox) if verify else [*kept.values()]
    left_out["not_stated"] += len(kept) - len(usable)
    tasks = [one.task for one in usable]
    drawn, report = dealt(tasks, +left_out, file=files, read=read, what="theorem", shares=shares, seed=seed)
    if any(one.theorem.mark for one in usable):
        drawn = [one.task if one.theorem.mark else task for one, task in zip(usable, drawn, strict=True)]
    elif {"valid", "test"} <= {one.folder for one in usable}:
        practice = assign_splits([one.task for one in usable if one.folder != "test"], shares=(*shares[:2], 0), seed=seed)
        drawn = [*practice, *(replace(one.task, split="heldout") for one in usable if one.folder == "test")]
    return drawn, report


@dataclass(frozen=True, slots=True)
class _Stated:
    """A theorem that was read, its task, and the folder of its file."""

    task: Task
    theorem: Theorem
    folder: str


def _taken(stated: Sequence[_Stated], sandbox: Wall) -> list[_Stated]:
    """Those whose statement the installed Rocq reads."""
    checker, batches = Rocq(LIMITS, sandbox), range(0, len(stated), BATCH)
    reads = [one for start in batches for one in checker.states([s.theorem for s in stated[start : start + BATCH]], PATIENCE_S)]
    return [one for one, is_read in zip(stated, reads, strict=True) if is_read]


def _task(theorem: Theorem, benchmark: str, axioms: Sequence[str] | None) -> Task:
    about_reals = any(re.search(r"\bReals\b|\bLra\b|Coquelicot", line) for line in theorem.given)
    identity = content_id("prf", theorem.text)
    return Task(
        id=f"{benchmark}/{theorem.name}-{identity[4:12]}",
        domain="proof",
        benchmark=benchmark,
        group=theorem.mark[1] if theorem.mark else identity,
        split=SPLITS[theorem.mark[0]] if theorem.mark else "source",
        prompt=f"Prove the theorem {theorem.name} in Coq (Rocq):\n{theorem.said}",
        context="\n".join(theorem.given),
        payload={
            "language": "rocq",
            "statement": theorem.text,
            "axioms": list(axioms if axioms is not None else REALS if about_reals else ()),
            **({"gold": theorem.proof} if theorem.proof else {}),
        },
    )
