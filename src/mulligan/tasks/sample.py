"""The samples of the package: ferries, functions, sums, formulas, scripts, theorems, games, a shop, a repository.

In: a folder to build the database in. Out: tasks. Database and questions lie in `sample/` as text: a SQL script, and JSON in the layout
that `tasks/spider.py` reads, with a group for each question template and the pitfalls that a question holds. The database is
built anew at each call, which takes about 20 ms and mends a damaged copy.
"""

import json
import os
import sqlite3
import tempfile
from contextlib import closing
from difflib import unified_diff
from pathlib import Path

from mulligan.errors import UsageError
from mulligan.records import Task
from mulligan.tasks.files import read_lines
from mulligan.tasks.maths import load_gsm8k
from mulligan.tasks.programs import load_humaneval
from mulligan.tasks.spider import load_spider
from mulligan.worlds.sandbox import Wall

NAME = "ferries"
DATA = Path(__file__).parents[1] / "sample"


def build_sample(folder: str | Path) -> Path:
    """Build the sample database below `folder`; its file. Many processes may do so at once. Raises UsageError when it cannot be written."""
    target = Path(folder).resolve() / NAME / f"{NAME}.sqlite"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="part-", dir=target.parent)
        os.close(handle)
        try:
            with closing(sqlite3.connect(name)) as connection:
                connection.executescript((DATA / f"{NAME}.sql").read_text("utf-8"))
            Path(name).replace(target)
        finally:
            Path(name).unlink(missing_ok=True)
    except (OSError, sqlite3.OperationalError) as error:  # the latter when the disk is full
        raise UsageError(f"cannot write the sample database below {folder}: {error}") from error
    return target


def load_sample(folder: str | Path) -> list[Task]:
    """The sample's tasks, with its database built below `folder`."""
    build_sample(folder)
    tasks, _ = load_spider(DATA / "questions.json", folder, benchmark=NAME)
    return tasks


def load_problems(sandbox: Wall = "bubblewrap") -> list[Task]:
    """A dozen small functions to write, for a look at the code world. Raises UsageError where code cannot be run."""
    tasks, _ = load_humaneval(DATA / "problems.jsonl", shares=(1, 0, 1), sandbox=sandbox)
    return tasks


def load_formulas() -> list[Task]:
    """Eight small formulas, two of them without an assignment, for a look at the SAT world."""
    from mulligan.tasks.dimacs import load_dimacs

    tasks, _ = load_dimacs(DATA / "formulas", shares=(1, 0, 1))
    return tasks


def load_sums() -> list[Task]:
    """A dozen questions in words with one number as the answer, for a look at the maths world."""
    tasks, _ = load_gsm8k(DATA / "sums.jsonl", shares=(1, 0, 1))
    return tasks


def load_shelves(folder: str | Path, sandbox: Wall = "bubblewrap") -> list[Task]:
    """Fourteen mistakes in a small repository, which is made below `folder`. Raises UsageError where it cannot be, or code not be run."""
    from mulligan.tasks.workspaces import load_workspaces
    from mulligan.worlds.workspace_files import new_repository

    made = Path(folder).resolve() / "shelves"
    commit, lines = new_repository(made / "repository", (DATA / "shelves.patch").read_text("utf-8")), []
    for node in read_lines(DATA / "shelves.jsonl"):
        path, right, wrong = (node.at(name).text() for name in ("path", "right", "wrong"))
        before = (made / "repository" / path).read_text("utf-8")
        after = before.replace(right, wrong)
        changes = unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}")
        line = {name: node.at(name).text() for name in ("prompt", "split")}
        line |= {"repository": "repository", "commit": commit, "check": "pytest -q", "changes": "".join(changes), "group": path}
        lines.append(json.dumps({**line, "files": [path, path.replace("shelves/", "tests/test_")]}))
    file = made / f"shelves-{os.getpid()}.jsonl"
    file.write_text("\n".join(lines), "utf-8")
    file = file.replace(made / "shelves.jsonl")
    return load_workspaces(file, sandbox=sandbox)[0]


def load_scripts() -> list[Task]:
    """Eight small scripts of SMT-LIB, three of them without a model, for a look at the SMT world."""
    from mulligan.tasks.smt import load_smt

    tasks, _ = load_smt(DATA / "scripts", shares=(1, 0, 1))
    return tasks


def load_shop() -> list[Task]:
    """Forty things to buy in a shop of eighty invented products of ten kinds, for a look at the shop world."""
    from mulligan.tasks.shop import load_webshop

    shop = DATA / "shop"
    tasks, _ = load_webshop(shop / "products.json", shop / "goals.json", attributes=shop / "attributes.json")
    return tasks


def load_theorems() -> list[Task]:
    """68 theorems from easy to hard, in three splits, for a look at the proof world."""
    from mulligan.tasks.proofs import load_rocq

    tasks, _ = load_rocq(DATA / "theorems.v", verify=False)
    return tasks


def load_games() -> list[Task]:
    """A dozen tasks in three houses, two to learn from and one held out, for a look at the text-game world."""
    from mulligan.tasks.games import pddl_task

    folder = DATA / "games"
    domain, grammar = ((folder / name).read_text("utf-8") for name in ("domain.pddl", "grammar.twl2"))
    tasks = []
    for number, game in enumerate(json.loads((folder / "games.json").read_text("utf-8")), start=1):
        problem = (folder / f"{game['house']}.pddl").read_text("utf-8").replace("GOAL", game["goal"])
        parts = {"pddl_domain": domain, "grammar": grammar.replace("UNKNOWN GOAL", game["task"]), "pddl_problem": problem}
        name = f"houses/{number:02d}-{game['house']}"
        tasks.append(pddl_task(parts, name, payload=parts, group=game["house"], split=game["split"]))
    return tasks
