"""The SAT world: a formula in DIMACS, answered by an assignment or by the claim that there is none.

In: tasks with payload {"cnf": DIMACS text}. Out: verdicts with utility as in SPEC A3.1: 1 when the assignment satisfies all clauses
(variables that it leaves out satisfy none), else the share of satisfied clauses, rescaled so that chance has 0; for UNSAT 1 when a solver
confirms it, 0 when it finds an assignment. A solver that does not finish leaves the verdict incomplete. On held-out tasks an agent sees
the unsatisfied clauses of its assignment, which anybody can see, and never what the solver says of a claim.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.metadata import version

from mulligan.errors import InvalidData, UsageError
from mulligan.naming import vocabulary
from mulligan.nouns import Json, content_id
from mulligan.records import Proposal, Signal, Task, Verdict
from mulligan.worlds.answering import Answering, Asked
from mulligan.worlds.sat_formula import Answer, Clause, Formula, read_answer, read_dimacs
from mulligan.worlds.sat_solver import SOLVER, satisfiable

MANUAL = (
    "An action is an assignment that satisfies every clause: one literal for each variable, such as 1 -2 3, where a minus says false. "
    "If no assignment does, answer UNSAT. Reply with the literals alone, on one line."
)
RULES = "1"
SHOWN = 3
FLIPS = 40  # changes that are offered
WORDS = vocabulary("sat unsat satisfiable unsatisfiable true false and or not cnf")
LONGEST = 200_000  # characters of an action


@dataclass(frozen=True)
class SatWorld(Answering):
    """Settings only, so that it can be sent to other processes."""

    time_limit_s: float = 10.0
    name: str = "sat"
    manual: str = field(default=MANUAL)
    vocabulary = WORDS

    @cached_property
    def version(self) -> str:
        return f"{RULES}-{content_id('v', [RULES, self.time_limit_s, SOLVER, version('python-sat')])[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **_facts(_formula(task))}

    def start(self, task: Task) -> Asked:
        """Raises UsageError when the payload holds no formula."""
        _formula(task)
        return Asked(self.name, task)

    def tokens(self, action: str) -> Sequence[str]:
        return action[:LONGEST].replace(",", " ").split()

    def act(self, state: Asked, action: str) -> Verdict:
        began = time.perf_counter()
        formula, heldout = _formula(state.task), state.task.split == "heldout"
        answer = read_answer(action, formula) if len(action) <= LONGEST else Answer(fault=f"it has more than {LONGEST} characters")
        if answer.unsatisfiable:
            return self._claimed(formula, began, heldout)
        if answer.fault:
            what = f"no assignment: {answer.fault}"
            return self._verdict(began, Fraction(0), (Signal(kind="syntax", what=what),), what)
        failed = formula.unsatisfied(answer.literals)
        satisfied = len(formula.clauses) - len(failed)
        signals = tuple(_signal(clause, answer.literals) for clause in failed)
        told = [f"{satisfied} of {len(formula.clauses)} clauses are satisfied.", *(f"unsatisfied: {s.what}" for s in signals[:SHOWN])]
        return self._verdict(began, formula.utility(satisfied), signals, "\n".join([*told, *formula.notes]))

    def _verdict(self, began: float, utility: Fraction, signals: tuple[Signal, ...], told: str) -> Verdict:
        return Verdict(
            completed=True,
            utility=utility,
            solved=utility == 1 and not signals,
            feedback=told,
            signals=signals,
            done=not signals,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def _claimed(self, formula: Formula, began: float, heldout: bool) -> Verdict:
        """The verdict on UNSAT. Held-out tasks say nothing of it, and the episode is over."""
        known = satisfiable(formula, self.time_limit_s)
        signals: tuple[Signal, ...] = ()
        told = "The answer is UNSAT."
        if not heldout and known is None:
            signals = (Signal(kind="timeout", what=f"no solver decided it within {self.time_limit_s:g} s"),)
        elif not heldout and known:
            signals = (Signal(kind="refuted", what="there is an assignment that satisfies all clauses"),)
        return Verdict(
            completed=known is not None,
            utility=Fraction(known is False),
            solved=known is False,
            feedback=" ".join([told, *(signal.what for signal in signals)]),
            signals=signals,
            done=heldout or known is False,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def edits(self, state: Asked, action: str, verdict: Verdict) -> Iterable[Proposal]:
        """Flips that a local search would try: of the variables in unsatisfied clauses, those first that leave fewest clauses unsatisfied;
        then pairs of them.
        """
        formula = _formula(state.task)
        answer = read_answer(action, formula) if len(action) <= LONGEST else Answer(fault="too long")
        if answer.fault or answer.unsatisfiable:
            return
        failed = formula.unsatisfied(answer.literals)
        wanted = list(dict.fromkeys(literal for clause in failed[:8] for literal in clause))
        single = sorted(
            (_left(formula, flipped), place, flipped) for place, flipped in enumerate(_flip(answer.literals, x) for x in wanted)
        )
        pairs = []
        for _, place, flipped in single[:3]:
            after = formula.unsatisfied(flipped)
            second = dict.fromkeys(literal for clause in after[:4] for literal in clause)
            pairs += [(_left(formula, both), place, both) for both in (_flip(flipped, x) for x in second)]
        least, seen = len(failed), {answer.literals}
        for left, _, literals in sorted([*single, *pairs], key=lambda found: (found[0], _changes(answer.literals, found[2])))[:FLIPS]:
            if left < least and literals not in seen:
                seen.add(literals)
                edit = " ".join(str(literal) for literal in literals if literal not in answer.literals)
                why = f"satisfies {least - left} more of the clauses"
                yield Proposal(action=" ".join(map(str, literals)), edit=f"→ {edit}", why=why, proposer="op:flip")


def _left(formula: Formula, literals: Sequence[int]) -> int:
    return len(formula.unsatisfied(literals))


def _changes(before: Sequence[int], after: Sequence[int]) -> int:
    return len(set(after) - set(before))


def _flip(literals: tuple[int, ...], true: int) -> tuple[int, ...]:
    """The assignment in which `true` is: in place of its negation, or added."""
    return tuple(true if literal == -true else literal for literal in literals) if -true in literals else (*literals, true)


@lru_cache(maxsize=64)
def _read(cnf: str, name: str) -> Formula:
    return read_dimacs(cnf, name)


def _formula(task: Task) -> Formula:
    cnf = task.payload.get("cnf")
    if not isinstance(cnf, str):
        raise UsageError(f"task {task.id} holds no formula; put DIMACS text under payload['cnf']")
    try:
        return _read(cnf, task.id)
    except InvalidData as error:
        raise UsageError(f"task {task.id} holds no formula: {error}") from error


def _signal(clause: Clause, literals: Sequence[int]) -> Signal:
    """One unsatisfied clause."""
    if not clause:
        return Signal(kind="unsatisfied", what="the empty clause: nothing satisfies it")
    given = set(literals)
    left_out = [str(abs(literal)) for literal in clause if -literal not in given]
    more = f" ({', '.join(left_out)} not assigned)" if left_out else ""
    return Signal(kind="unsatisfied", what=f"{' or '.join(map(str, clause[:12]))}{' …' if len(clause) > 12 else ''}{more}")


def _facts(formula: Formula) -> dict[str, Json]:
    lengths = [len(clause) for clause in formula.clauses]
    kinds = {
        "unit clauses": 1 in lengths,
        "an empty clause": 0 in lengths,
        "clauses of two": 2 in lengths,
        "pure literals": any(-literal not in formula.occurrences for literal in formula.occurrences),
        "Horn clauses alone": bool(lengths) and all(sum(literal > 0 for literal in clause) <= 1 for clause in formula.clauses),
    }
    ratio = round(len(lengths) / max(1, formula.variables), 2)
    return {
        "variables": formula.variables,
        "clauses": len(lengths),
        "ratio": ratio,
        "has": [name for name, there in kinds.items() if there],
        "gist": f"{formula.variables} variables, {ratio:g} clauses a variable of up to {max(lengths, default=0)} literals",
    }
