"""Formulas in DIMACS, and answers to them: read, and evaluated.

In: text. Out: a Formula, or InvalidData that names the line; an Answer, or what is wrong with it. All variants that are in use are
read: clauses over several lines and several on one, comments anywhere, no header or a wrong one (which is noted), the `%` at which files of
SATLIB end. A file that stops in the middle of a clause is an error: it may have lost more than that.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from mulligan.errors import InvalidData

MOST_LITERALS = 5_000_000
MOST_VARIABLES = 1_000_000
Clause = tuple[int, ...]


@dataclass(frozen=True)
class Formula:
    """Clauses over the variables 1 to `variables`. `notes` say what its header got wrong."""

    variables: int
    clauses: tuple[Clause, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def occurrences(self) -> Mapping[int, tuple[int, ...]]:
        """Literal → places of the clauses that hold it."""
        found: dict[int, list[int]] = {}
        for place, clause in enumerate(self.clauses):
            for literal in clause:
                found.setdefault(literal, []).append(place)
        return {literal: tuple(places) for literal, places in found.items()}

    def unsatisfied(self, literals: Sequence[int]) -> list[Clause]:
        """The clauses in which none of `literals` stands, in order."""
        true = set(literals)
        return [clause for clause in self.clauses if true.isdisjoint(clause)]

    def utility(self, satisfied: int) -> Fraction:
        """The share of satisfied clauses, rescaled so that a random assignment has about 0 and all clauses have 1 (SPEC A3.1)."""
        total = len(self.clauses)
        if satisfied == total:
            return Fraction(1)
        by_chance = sum((1 - Fraction(1, 2 ** min(len(clause), 64)) for clause in self.clauses), Fraction(0))
        return max(Fraction(0), (satisfied - by_chance) / (total - by_chance)) if total > by_chance else Fraction(0)


def read_dimacs(text: str, name: str = "the formula") -> Formula:
    """Raises InvalidData that names the line for what is no formula."""
    clauses: list[Clause] = []
    clause: list[int] = []
    announced: tuple[int, int] | None = None
    last = 0
    for number, line in enumerate(text.replace("\r", "\n").splitlines() if "\r" in text else text.splitlines(), start=1):
        words = line.split()
        if not words or words[0][0] == "c":
            continue
        if words[0] == "%":
            break
        if words[0] == "p":
            if announced or len(words) != 4 or words[1] != "cnf" or not all(re.fullmatch(r"\d{1,9}", word) for word in words[2:]):
                raise InvalidData(f"{name}: line {number} is no header `p cnf VARIABLES CLAUSES`, or a second one")
            announced = int(words[2]), int(words[3])
            continue
        for word in words:
            if not re.fullmatch(r"[-+]?\d{1,7}", word) or abs(int(word)) > MOST_VARIABLES:
                raise InvalidData(f"{name}: line {number}: {word[:40]!r} is no literal")
            literal, last = int(word), number
            if literal:
                clause.append(literal)
            else:
                clauses.append(tuple(dict.fromkeys(clause)))
                clause = []
    if clause:
        raise InvalidData(f"{name}: line {last}: the last clause has no 0 at its end; the file may have been cut")
    if not clauses and announced is None:
        raise InvalidData(f"{name}: there is no clause and no header in it")
    return _formula(clauses, announced)


def _formula(clauses: Sequence[Clause], announced: tuple[int, int] | None) -> Formula:
    used = max((abs(literal) for clause in clauses for literal in clause), default=0)
    notes = []
    if announced and announced[0] < used:
        notes.append(f"the header says {announced[0]} variables, the clauses have {used}")
    if announced and announced[1] != len(clauses):
        notes.append(f"the header says {announced[1]} clauses, there are {len(clauses)}")
    return Formula(variables=max(used, announced[0] if announced else 0), clauses=tuple(clauses), notes=tuple(notes))


@dataclass(frozen=True, slots=True)
class Answer:
    """An assignment as literals, or the claim that there is none; `fault` says why it is neither."""

    literals: tuple[int, ...] = ()
    unsatisfiable: bool = False
    fault: str = ""


_UNSATISFIABLE = re.compile(r"\b(?:s\s+)?unsat(?:isfiable)?\b", re.IGNORECASE)
_SATISFIABLE = re.compile(r"^(?:s\s+)?sat(?:isfiable)?\b:?", re.IGNORECASE)
_PAIR = re.compile(r"\b[xv]?_?(\d{1,7})\s*[=:]\s*(true|false|[01])\b", re.IGNORECASE)


def read_answer(text: str, formula: Formula) -> Answer:
    """`1 -2 3`, with or without a 0 at its end, commas, brackets, or the lines `s` and `v` of solvers; `x1 = true`; or UNSAT."""
    text = text.strip()
    if _UNSATISFIABLE.fullmatch(text.rstrip(". ")):
        return Answer(unsatisfiable=True)
    body = " ".join(_SATISFIABLE.sub("", re.sub(r"^v\b", "", line.strip())) for line in text.splitlines() if not line.startswith("c "))
    if pairs := _PAIR.findall(body):
        rest = _PAIR.sub(" ", body)
        literals = [int(number) if value.lower() in ("true", "1") else -int(number) for number, value in pairs]
    else:
        words = re.sub(r"[\[\](){},;]", " ", body).split()
        wrong = next((word for word in words if not re.fullmatch(r"[-+]?\d{1,7}", word)), None)
        if wrong is not None:
            return Answer(fault=f"{wrong[:40]!r} is no literal")
        rest, literals = "", [int(word) for word in words]
        literals = literals[:-1] if literals and literals[-1] == 0 else literals
    if rest.strip(" ,;.[](){}"):
        return Answer(fault=f"{rest.split()[0][:40]!r} is no part of an assignment")
    return _checked(tuple(dict.fromkeys(literals)), formula)


def _checked(literals: tuple[int, ...], formula: Formula) -> Answer:
    chosen = set(literals)
    if not literals:
        return Answer(fault="there is no literal in it")
    for literal in literals:
        if literal == 0:
            return Answer(fault="there is a 0 between its literals")
        if abs(literal) > formula.variables:
            return Answer(fault=f"there is no variable {abs(literal)}: the last is {formula.variables}")
        if -literal in chosen:
            return Answer(fault=f"variable {abs(literal)} is both true and false")
    return Answer(literals=literals)
