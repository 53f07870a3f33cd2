"""The SAT world: formulas in every writing, answers, verdicts, flips, and the files of SATLIB."""

import gzip
import random
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import InvalidData, MissingExtra, UsageError
from mulligan.records import Task, Verdict
from mulligan.tasks.dimacs import load_cnfgen, load_dimacs
from mulligan.tasks.sample import load_formulas
from mulligan.tasks.splits import check_splits
from mulligan.worlds import sat_solver
from mulligan.worlds.conformance import check_world
from mulligan.worlds.sat import SatWorld
from mulligan.worlds.sat_formula import Formula, read_answer, read_dimacs
from mulligan.worlds.sat_solver import satisfiable
from test_tasks_hostile import damaged, outcome

WORLD = SatWorld()
CNF = "p cnf 3 4\n1 2 0\n-1 3 0\n-2 -3 0\n1 -3 0\n"  # 1, not 2, 3
CONTRADICTION = "p cnf 1 2\n1 0\n-1 0\n"

VARIANTS = [  # text, clauses, notes
    ("c SATLIB\np cnf 2 1\n1 -2 0\n%\n0\n\n", [(1, -2)], 0),
    ("1\n2\n0\n", [(1, 2)], 0),
    ("1 0 -2 0\n", [(1,), (-2,)], 0),
    ("p cnf 1 1\n0\n", [()], 0),
    ("p cnf 1 9\n1 2 0\n-2 0\n", [(1, 2), (-2,)], 2),
    ("p cnf 2 2\r\nc between\r\n1 0\r\nc more\r\n2 0\r\n", [(1,), (2,)], 0),
    ("c no header\n1 2 0\n", [(1, 2)], 0),
    ("p cnf 3 0\n", [], 0),
    ("  p  cnf 2 1\n\n 1   1 -2 0", [(1, -2)], 0),
]


@pytest.mark.parametrize(("text", "clauses", "notes"), VARIANTS)
def test_every_writing_is_read(text: str, clauses: list[tuple[int, ...]], notes: int) -> None:
    found = read_dimacs(text)
    assert (list(found.clauses), len(found.notes)) == (clauses, notes)
    assert found.variables >= max((abs(x) for clause in clauses for x in clause), default=0)


BROKEN = [
    ("p cnf 2 1\n1 2 0\n1 -2\n", "line 3: the last clause has no 0 at its end"),
    ("p cnf 2 1\n1 x 0\n", "line 2: 'x' is no literal"),
    ("p cnf two 1\n1 0\n", "line 1 is no header"),
    ("p cnf 1 1\np cnf 1 1\n1 0\n", "line 2 is no header"),
    ("p cnf 1 1\n99999999 0\n", "no literal"),
    ("", "there is no clause and no header"),
    ("1.5 0", "'1.5' is no literal"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_what_is_no_formula_is_one_clear_error(text: str, says: str) -> None:
    with pytest.raises(InvalidData, match=says):
        read_dimacs(text, "x.cnf")


def task(cnf: str = CNF, split: str = "source") -> Task:
    payload = {"cnf": cnf}
    return Task(id="f", domain="sat", benchmark="own", group="f", split=split, prompt="Satisfy it.", payload=payload)  # type: ignore[arg-type]


def judged(action: str, cnf: str = CNF, split: str = "source", world: SatWorld = WORLD) -> Verdict:
    with world.start(task(cnf, split)) as state:
        return world.act(state, action)


WRITINGS = [
    *("1 -2 3", "1 -2 3 0", "[1, -2, 3]", "v 1 -2\nv 3 0", "s SATISFIABLE\nv 1 -2 3 0"),
    *("x1 = true, x2=0; x3 : 1", "SAT: 3 1 -2", "١ -٢ ٣"),
]


@pytest.mark.parametrize("action", WRITINGS)
def test_an_assignment_in_any_writing(action: str) -> None:
    verdict = judged(action)
    assert (verdict.utility, verdict.solved, verdict.done, verdict.signals) == (1, True, True, ())


def test_unsatisfied_clauses_are_the_evidence() -> None:
    verdict = judged("-1 2 3")
    assert verdict.feedback == "2 of 4 clauses are satisfied.\nunsatisfied: -2 or -3\nunsatisfied: 1 or -3"
    assert {signal.kind for signal in verdict.signals} == {"unsatisfied"}
    assert not verdict.solved and not verdict.done and 0 <= verdict.utility < 1
    assert judged("3").feedback.endswith("unsatisfied: -2 or -3 (2 not assigned)\nunsatisfied: 1 or -3 (1 not assigned)")


def test_utility_is_rescaled() -> None:
    three = Formula(3, ((1, 2, 3),) * 1)
    assert three.utility(1) == 1 and three.utility(0) == 0
    many = Formula(3, tuple((a, b, c) for a in (1, -1) for b in (2, -2) for c in (3, -3)))
    assert many.utility(7) == 0  # 7 of 8 is what chance has
    larger = Formula(3, many.clauses * 2 + ((1, 2, 3),) * 8)
    assert larger.utility(23) == Fraction(23 - 21, 24 - 21)


WRONG = ["", "perhaps", "1 -1 2", "1 2 4", "0", "1 0 2", "1 - 2", "x1 = maybe", "x1 = true and so on", "1 2 3" * 100_000]


@pytest.mark.parametrize("action", WRONG)
def test_what_is_no_assignment(action: str) -> None:
    verdict = judged(action)
    assert (verdict.utility, verdict.completed, verdict.solved, verdict.signals[0].kind) == (0, True, False, "syntax")


def test_a_claim_is_checked_by_a_solver_and_a_held_out_agent_is_not_told() -> None:
    assert judged("UNSAT", CONTRADICTION).solved
    refuted = judged("unsatisfiable.")
    assert (refuted.utility, refuted.solved, refuted.signals[0].kind) == (0, False, "refuted")
    right, wrong = judged("s UNSATISFIABLE", CONTRADICTION, "heldout"), judged("UNSAT", split="heldout")
    assert (right.solved, wrong.solved) == (True, False)
    assert (right.feedback, right.signals, right.done) == (wrong.feedback, wrong.signals, wrong.done)
    assert judged("UNSAT", "p cnf 2 2\n1 2 0\n0\n").solved  # the empty clause


def test_a_solver_that_does_not_finish_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mulligan.worlds.sat.satisfiable", lambda formula, seconds: None)
    verdict = judged("UNSAT")
    assert (verdict.completed, verdict.solved, verdict.signals[0].kind) == (False, False, "timeout")
    pigeons = [[i * 9 + j + 1 for j in range(9)] for i in range(10)]
    hard = [*pigeons, *([-pigeons[i][j], -pigeons[k][j]] for j in range(9) for i in range(10) for k in range(i))]
    assert sat_solver.satisfiable(Formula(90, tuple(map(tuple, hard))), 0.05) is None


literals = st.integers(1, 6).flatmap(lambda v: st.sampled_from([v, -v]))
clauses = st.lists(st.lists(literals, min_size=1, max_size=3).map(tuple), min_size=1, max_size=14)


@given(clauses)
def test_solver_and_evaluation_agree(listed: list[tuple[int, ...]]) -> None:
    formula = Formula(6, tuple(listed))
    assignments = [[v if bits >> v & 1 else -v for v in range(1, 7)] for bits in range(0, 128, 2)]
    some = any(not formula.unsatisfied(literals) for literals in assignments)
    assert satisfiable(formula, 5.0) == some
    text = f"p cnf 6 {len(listed)}\n" + "".join(f"{' '.join(map(str, c))} 0\n" for c in listed)
    assert read_dimacs(text).clauses == tuple(tuple(dict.fromkeys(c)) for c in listed)


def test_flips_mend_near_misses() -> None:
    mended = 0
    for at in (t for t in load_formulas() if "planted" in t.id):
        formula = read_dimacs(str(at.payload["cnf"]))
        right = solution(formula)
        for wrong in range(0, formula.variables, 3):
            action = " ".join(str(-x if place == wrong else x) for place, x in enumerate(right))
            with WORLD.start(at) as state:
                verdict = WORLD.act(state, action)
                if not verdict.solved:
                    first = next(iter(WORLD.edits(state, action, verdict)))
                    assert first.proposer == "op:flip" and "more of the clauses" in first.why
                    mended += WORLD.act(state, first.action).solved
                    gains = [WORLD.act(state, p.action).utility for p in WORLD.edits(state, action, verdict)]
                    assert gains == sorted(gains, reverse=True) and min(gains) > verdict.utility
    assert mended > 10


def solution(formula: Formula) -> list[int]:
    from pysat.solvers import Solver

    with Solver(name="glucose4", bootstrap_with=[list(c) for c in formula.clauses]) as solver:
        assert solver.solve()
        model = set(solver.get_model())
    return [v if v in model else -v for v in range(1, formula.variables + 1)]


def test_no_flips_for_claims_and_for_what_is_no_assignment() -> None:
    with WORLD.start(task()) as state:
        for action in ("UNSAT", "perhaps", "1 -2 3"):
            assert list(WORLD.edits(state, action, WORLD.act(state, action))) == []


def test_the_contract_and_facts() -> None:
    assert check_world(WORLD, [task(), task(split="heldout")], actions=["1 2 3", "UNSAT", "-1 -2 -3", "1 -2 3"]) == []
    assert WORLD.facts(task())["has"] == ["clauses of two"]
    assert WORLD.facts(task("p cnf 2 2\n-1 -2 0\n1 0\n"))["has"] == [
        "unit clauses",
        "clauses of two",
        "pure literals",
        "Horn clauses alone",
    ]
    with pytest.raises(UsageError, match="holds no formula"):
        WORLD.start(replace(task(), payload={"cnf": "1 2"}))
    with pytest.raises(UsageError, match="holds no formula"):
        WORLD.start(replace(task(), payload={"gold": 1}))


@given(st.text(max_size=60))
def test_any_text_is_an_answer_or_has_a_fault(text: str) -> None:
    answer = read_answer(text, read_dimacs(CNF))
    assert bool(answer.fault) + bool(answer.literals) + answer.unsatisfiable == 1


# ---- loaders ----


def test_the_sample_and_files_in_a_folder(tmp_path: Path) -> None:
    tasks = load_formulas()
    assert Counter(t.id.split("/")[1].split("-")[0] for t in tasks) == {"planted": 6, "pigeons": 2}
    (tmp_path / "a.cnf").write_text(CNF)
    (tmp_path / "again.cnf").write_text("c the same\n" + CNF)
    (tmp_path / "uuf9.cnf.gz").write_bytes(gzip.compress(CNF.encode()))
    (tmp_path / "uf3.cnf").write_text("p cnf 2 1\n1 2 0\n")
    (tmp_path / "long.cnf").write_text("1 0\n" * 500)
    loaded, report = load_dimacs(tmp_path)
    assert len(loaded) == 2 and report.left_out == {"duplicate": 1, "gold_fails": 1, "too_large": 1}
    assert loaded[0].context.splitlines()[0] == "p cnf 3 4"
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match=r"no formula that can be used among 0"):
        load_dimacs(empty)
    (tmp_path / "cut.cnf").write_text("1 2")
    with pytest.raises(InvalidData, match=r"cut\.cnf: line 1"):
        load_dimacs(tmp_path)


FAMILY = {  # sizes, and whether the formulas have an assignment
    "php": ([[4, 3], [3, 3]], [False, True]),
    "op": ([[4]], [False]),
    "parity": ([[4], [5]], [True, False]),
    "count": ([[5, 2], [6, 3]], [False, True]),
    "tseitin": ([[6, 3]], [False]),
    "randkcnf": ([[3, 20, 40], [3, 12, 120]], [True, False]),
}


@pytest.mark.parametrize("family", FAMILY)
def test_families_are_made_and_decided(family: str) -> None:
    pytest.importorskip("cnfgen", reason="cnfgen is not installed")
    sizes, wanted = FAMILY[family]
    tasks, _ = load_cnfgen(family, sizes)
    world = SatWorld()
    for task, has_assignment in zip(tasks, wanted, strict=True):
        with world.start(task) as state:
            assert world.act(state, "UNSAT").solved is not has_assignment


@pytest.mark.parametrize(("family", "size"), [("php", []), ("parity", [4, 4]), ("tseitin", [5, 3]), ("tseitin", [3, 9]), ("op", [-1])])
def test_sizes_that_make_no_formula_are_refused(family: str, size: list[int]) -> None:
    pytest.importorskip("cnfgen", reason="cnfgen is not installed")
    with pytest.raises(UsageError, match=f"makes no {family}"):
        load_cnfgen(family, [size])


def test_families_need_cnfgen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no family 'x'"):
        load_cnfgen("x", [[1]])
    monkeypatch.setitem(sys.modules, "cnfgen", None)
    with pytest.raises(MissingExtra, match="pip install cnfgen"):
        load_cnfgen("php", [[3, 2]])


@pytest.mark.timeout(60)
def test_mutations_end_in_tasks_or_one_clear_error(tmp_path: Path) -> None:
    draw, path, seen = random.Random(4), tmp_path / "x.cnf", Counter[str]()
    good = ("c note\n" + CNF + "%\n0\n").encode()
    for number in range(10_000):
        raw = damaged(good, draw)
        path.write_bytes(raw)
        try:
            seen[outcome(lambda: load_dimacs(path), "x.cnf")] += 1
        except Exception as error:
            raise AssertionError(f"mutation {number}: {raw!r}") from error
    assert min(seen["tasks"], seen["InvalidData"] + seen["UsageError"]) > 500, seen


def test_satlib(shared_data: Path) -> None:
    tasks, report = load_dimacs(shared_data / "satlib")
    check_splits(tasks)
    assert (report.kept, report.left_out) == (report.read, {})
    for at in tasks[::7]:
        claimed = judged("UNSAT", str(at.payload["cnf"]))
        assert claimed.solved == ("/uuf" in at.id)
