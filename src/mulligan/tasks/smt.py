"""Loads SMT problems: scripts in SMT-LIB 2, a file or a folder of `*.smt2`.

In: a path. Out: tasks of the SMT world and a LoadReport. The world's solvers decide each script when it is loaded; where a script's own
`:status` says otherwise, or nothing decides it, it is left out. Not promised: that large scripts fit a model's context.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mulligan.errors import InvalidData
from mulligan.nouns import content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt, read_bytes
from mulligan.tasks.loading import LeftOut, LoadReport
from mulligan.worlds.smt_script import read_script

MOST_CHARS = 4_000
PROMPT = "Is there a model in which all assertions hold? Give one, or answer unsat."


def load_smt(
    files: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0, most_chars: int = MOST_CHARS, time_limit_s: float = 5.0
) -> tuple[list[Task], LoadReport]:
    """Tasks of the scripts in a file or folder. `shares` and `seed` deal them out to source, train and heldout.

    Raises InvalidData where there are none that can be used. A script that cannot be read, or asks several questions, is left out.
    """
    from mulligan.worlds.smt import SmtWorld  # an extra

    world, root = SmtWorld(time_limit_s=time_limit_s), Path(files)
    found = sorted(root.rglob("*.smt2")) if root.is_dir() else [root]
    left_out: Counter[LeftOut] = Counter()
    tasks: dict[str, Task] = {}
    for path in found:
        text = read_bytes(path).decode("utf-8", "replace")
        try:
            script = read_script(text, str(path))
        except InvalidData:
            if len(found) == 1:
                raise
            left_out["excluded"] += 1
            continue
        task = _task(path, text, script.text(), root.name if root.is_dir() else root.parent.name)
        said = world.ask("decide", script.text()) if len(text) <= most_chars else None
        if said not in ("sat", "unsat"):
            left_out["too_large"] += 1
        elif script.status in ("sat", "unsat") and script.status != said:
            left_out["gold_fails"] += 1
        elif task.group in tasks:
            left_out["duplicate"] += 1
        else:
            tasks[task.group] = task
    return dealt(list(tasks.values()), left_out, file=files, read=len(found), what="script", shares=shares, seed=seed)


def _task(path: Path, text: str, plain: str, benchmark: str) -> Task:
    group = content_id("smt", plain)
    return Task(
        id=f"{benchmark}/{path.stem}-{group[4:12]}",
        domain="smt",
        benchmark=benchmark,
        group=group,
        split="source",
        prompt=PROMPT,
        context=plain,
        payload={"smt2": text},
    )
