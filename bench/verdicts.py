"""A verdict of the worlds of queries, formulas, scripts and sums, beside the library that decides it called by hand.

What is judged are right answers to the samples that come with the package, and to formulas like SATLIB's. By hand means: the same
databases, the same solver, the same parser, with nothing around them: no walls, no time limit, no evidence.
"""

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from bench.figures import Figure, Scale, clocked, figure, in_turns
from mulligan.building import world
from mulligan.errors import MulliganError
from mulligan.protocols import World
from mulligan.records import Task
from mulligan.tasks.sample import load_games, load_sample, load_scripts, load_shelves, load_shop, load_sums, load_theorems

BAR = 1.2  # times the bare call
MOST = 24  # tasks of a world

ByHand = Callable[[Task, str], bool]


def verdicts(scale: Scale, folder: Path) -> Iterator[Figure]:
    """One figure a world, and one more for answers that say that there is none; then those without a library to stand beside."""
    yield _sql(scale, folder)
    yield from _sat(scale)
    yield from _smt(scale)
    yield _maths(scale)
    yield from _others(scale, folder)


def _sql(scale: Scale, folder: Path) -> Figure:
    from mulligan.worlds.sql import SqlWorld
    from mulligan.worlds.sql_copies import changed_copies
    from mulligan.worlds.sql_engine import hold

    tasks = [task for task in load_sample(folder) if task.split == "source"][:MOST]
    held = hold(str(tasks[0].payload["database"]))
    files = [held, *changed_copies(held)]

    def rows(file: Path, sql: str) -> Counter[tuple[object, ...]]:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return Counter(connection.execute(sql).fetchall())

    wanted = {task.id: [rows(file, str(task.payload["gold"])) for file in files] for task in tasks}

    def by_hand(task: Task, sql: str) -> bool:
        return all(rows(file, sql) == there for file, there in zip(files, wanted[task.id], strict=True))

    answers = [(task, str(task.payload["gold"])) for task in tasks]
    return _figure("verdict on a query, nine databases", scale, SqlWorld(), answers, f"sqlite3, {len(files)} connections", by_hand)


def _sat(scale: Scale) -> Iterator[Figure]:
    from pysat.solvers import Solver

    from mulligan.worlds.sat import SatWorld

    chance = random.Random(0)
    models: list[tuple[Task, str]] = []
    refuted: list[tuple[Task, str]] = []
    formulas: dict[str, list[list[int]]] = {}
    while min(len(models), len(refuted)) < MOST:
        clauses = [[chance.choice((-1, 1)) * name for name in chance.sample(range(1, 51), 3)] for _ in range(218)]  # SATLIB's uf50, uuf50
        task = _formula(f"f{len(formulas)}", clauses)
        formulas[task.id] = clauses
        with Solver(name="glucose4", bootstrap_with=clauses) as solver:
            if solver.solve():
                models.append((task, " ".join(map(str, solver.get_model() or ()))))
            else:
                refuted.append((task, "UNSAT"))

    def by_hand(task: Task, answer: str) -> bool:
        given = [] if answer == "UNSAT" else [int(word) for word in answer.split()]
        with Solver(name="glucose4", bootstrap_with=formulas[task.id]) as solver:
            return bool(solver.solve(assumptions=given)) is (answer != "UNSAT")

    yield _figure("verdict on an assignment", scale, SatWorld(), models, "python-sat with it assumed", by_hand)
    yield _figure("verdict on UNSAT", scale, SatWorld(), refuted, "python-sat", by_hand)


def _formula(name: str, clauses: Sequence[Sequence[int]]) -> Task:
    lines = [f"p cnf 50 {len(clauses)}", *(" ".join(map(str, [*clause, 0])) for clause in clauses)]
    payload = {"cnf": "\n".join(lines)}
    return Task(id=name, domain="sat", benchmark="bench", group=name, split="source", prompt="Satisfy it.", payload=payload)


def _smt(scale: Scale) -> Iterator[Figure]:
    import z3

    from mulligan.worlds.smt import SmtWorld
    from mulligan.worlds.smt_script import read_script
    from mulligan.worlds.smt_worker import decide  # z3, and cvc5 where it is installed: who confirms is the world's rule

    texts = {task.id: read_script(str(task.payload["smt2"]), task.id).text() for task in load_scripts()}
    solved = []
    for task in load_scripts():
        solver = z3.Solver()
        solver.add(z3.parse_smt2_string(texts[task.id]))
        found = solver.check()
        solved.append((task, found, solver.model() if found == z3.sat else None))

    def decided(task: Task, _: str) -> bool:
        return decide(texts[task.id], 5_000) == "unsat"

    models = {task.id: model for task, found, model in solved if model is not None}

    def evaluated(task: Task, _: str) -> bool:
        values = models[task.id]
        return all(z3.is_true(values.eval(one, model_completion=True)) for one in z3.parse_smt2_string(texts[task.id]))

    answers = [(task, f"sat {models[task.id].sexpr()}") for task, _, model in solved if model is not None]
    yield _figure("verdict on a model", scale, SmtWorld(), answers, "z3, parse and eval", evaluated)
    refuted = [(task, "unsat") for task, found, _ in solved if found == z3.unsat]
    yield _figure("verdict on unsat", scale, SmtWorld(), refuted, "the same solvers, in process", decided)


def _maths(scale: Scale) -> Figure:
    from latex2sympy2_extended import latex2sympy
    from sympy import simplify

    from mulligan.worlds.maths import MathsWorld

    def by_hand(task: Task, answer: str) -> bool:
        return bool(simplify(latex2sympy(str(task.payload["gold"])) - latex2sympy(answer)) == 0)

    answers = [(task, str(task.payload["gold"])) for task in load_sums()]
    return _figure("verdict on a number", scale, MathsWorld(), answers, "latex2sympy and sympy", by_hand)


def _figure(name: str, scale: Scale, at: World, answers: Sequence[tuple[Task, str]], reference: str, by_hand: ByHand) -> Figure:
    """The median over tasks; each answer is judged in turn by the world and by hand, and both must find it right."""
    answers = random.Random(1).sample(list(answers), min(MOST, len(answers)))
    states = [at.start(task) for task, _ in answers]

    def ours(n: int) -> None:
        assert at.act(states[n % len(answers)], answers[n % len(answers)][1]).solved

    def bare(n: int) -> None:
        assert by_hand(*answers[n % len(answers)])

    for n in range(len(answers)):
        ours(n), bare(n)
    mine, theirs = in_turns(max(len(answers), scale.times // 2), clocked(ours), clocked(bare))
    return figure(name, mine, reference, theirs, bar=BAR, bar_on="ratio")


def _others(scale: Scale, folder: Path) -> Iterator[Figure]:
    """A check in the worlds whose price is that of a checker, an engine or a test run; what is not installed is left out."""
    times = max(2, scale.times // 20)
    with suppress(MulliganError, ModuleNotFoundError):
        yield _checks("verdict on a proof", times, "proof", [(task, str(task.payload["gold"])) for task in load_theorems()[:10]])
    with suppress(MulliganError):
        tasks = load_shelves(folder)[:4]
        yield _checks("verdict on a patch, pytest twice", times, "workspace", [(task, _undone(task)) for task in tasks])
    with suppress(MulliganError, ModuleNotFoundError):
        yield _checks("step in the shop", scale.times, "shop", [(task, "search[lamp]") for task in load_shop()[:10]])
    with suppress(MulliganError, ModuleNotFoundError):
        yield _checks("move in a game", times, "textgame", [(task, "inventory") for task in load_games()[:3]])


def _undone(task: Task) -> str:
    """The patch that takes the sample's mistake back."""
    lines = str(task.payload["changes"]).splitlines(keepends=True)
    turned = {"+": "-", "-": "+"}
    body = [turned.get(line[0], line[0]) + line[1:] if not line.startswith(("---", "+++")) else line for line in lines]
    return "".join(re.sub(r"^@@ -(\S+) \+(\S+) @@", r"@@ -\2 +\1 @@", line) for line in body)


def _checks(name: str, times: int, world_name: str, answers: Sequence[tuple[Task, str]]) -> Figure:
    at, answers = world(world_name), answers[:times]
    states = [at.start(task) for task, _ in answers]
    try:

        def act(n: int) -> None:
            with at.restore(at.save(states[n % len(answers)])) as copy:
                assert at.act(copy, answers[n % len(answers)][1]).completed

        for n in range(len(answers)):
            act(n)
        (taken,) = in_turns(times, clocked(act))
        return figure(name, taken)
    finally:
        for state in states:
            state.__exit__(None, None, None)
