"""What a new process takes until it has imported the package, shown its help, or recalled once."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.figures import Figure, Scale, clocked, figure, in_turns
from bench.library import build, fill, source_tasks
from mulligan.embeddings import StaticEmbedder
from mulligan.store import Store
from mulligan.worlds.sql import SqlWorld

IMPORT_BAR, HELP_BAR = 150.0, 400.0  # milliseconds
SCRIPT = Path(sys.executable).with_name("mulligan")
RECALL = """
import sys
from mulligan import Memory, SqlWorld, Store, Task
task = Task(id="q", domain="sql", benchmark="b", group="q", split="heldout", prompt="How many books?", payload={"database": sys.argv[2]})
with Store(sys.argv[1]) as store:
    Memory(store, SqlWorld()).recall(task)
"""


def starting(scale: Scale, folder: Path) -> Iterator[Figure]:
    """Processes from start to end, in turns with one that does nothing."""
    database, path = build(folder / "library.sqlite"), folder / "starting.db"
    with Store(path) as store:
        fill(store, SqlWorld(), StaticEmbedder(), source_tasks(scale.sizes[0], database))
    python = [sys.executable, "-c"]
    commands: list[Sequence[str]] = [
        [*python, "pass"],
        [*python, "import numpy"],
        [*python, "import mulligan"],
        [str(SCRIPT), "--help"] if SCRIPT.exists() else [sys.executable, "-m", "mulligan.cli", "--help"],
        [*python, RECALL, str(path), str(database)],
    ]
    clocks = [clocked(partial(_run, command)) for command in commands]
    for clock in clocks:
        clock(0)  # compiles, and brings the files into memory
    nothing, numpy, ours, told, recalled = in_turns(scale.starts, *clocks)
    yield figure("import mulligan", ours, "python -c pass", nothing, bar=IMPORT_BAR)
    yield figure("mulligan --help", told, "python -c pass", nothing, bar=HELP_BAR)
    yield figure("import numpy", numpy, "python -c pass", nothing)
    yield figure("a new process recalls once", recalled, "python -c pass", nothing, size=scale.sizes[0])


def _run(command: Sequence[str], _: int) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "100"})
