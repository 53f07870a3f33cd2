"""The solver behind the SAT world: decides a formula within a time, each time started anew.

In: a formula. Out: True, False, or None for a solver that did not finish, which is neither. It is the solver's word: assignments are
evaluated elsewhere, and claims that there is none rest on it.
"""

import threading

from pysat.solvers import Solver

from mulligan.worlds.sat_formula import Formula

SOLVER = "glucose4"  # one that can be interrupted
EASY = 1_000  # conflicts that are tried without a clock, which costs more than small formulas take


def satisfiable(formula: Formula, time_limit_s: float) -> bool | None:
    """What a solver, started anew, says; None when it does not finish in time."""
    if () in formula.clauses:
        return False
    with Solver(name=SOLVER, bootstrap_with=formula.clauses) as solver:
        solver.conf_budget(EASY)
        answer = solver.solve_limited()
        if answer is not None:
            return bool(answer)
        solver.conf_budget(-1)
        timer = threading.Timer(time_limit_s, solver.interrupt)
        timer.start()
        try:
            answer = solver.solve_limited(expect_interrupt=True)
        finally:
            timer.cancel()
        return None if answer is None else bool(answer)
