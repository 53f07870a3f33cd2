"""What runs beside the SMT world: z3, and cvc5 where it is installed, in a process that may be killed.

In: lines of JSON with a question, a script and a time in milliseconds. Out: for "decide" "sat", "unsat" or "unknown" (also when the solvers
disagree); for "evaluate" what each assertion is under the definitions in the script: true, false, or null; for "rest" whether those that
are left open can hold together. A solver is new for each question; only its own word "sat" is taken for sat.
"""

import json
import resource
import sys
from importlib.util import find_spec
from typing import Any

import z3

MEMORY = 4 << 30


def decide(text: str, limit: int) -> str:
    """What z3 says; where it does not know, and to confirm it, what cvc5 says."""
    said = _z3(z3.parse_smt2_string(text), limit)
    if find_spec("cvc5") is None:
        return said
    other = _cvc5(text, limit)
    return other if said == "unknown" else said if other in ("unknown", said) else "unknown"


def _z3(assertions: Any, limit: int) -> str:
    solver = z3.Solver()
    solver.set("timeout", max(1, limit))
    solver.add(assertions)
    found = solver.check()
    return "sat" if found == z3.sat else "unsat" if found == z3.unsat else "unknown"


def _cvc5(text: str, limit: int) -> str:
    import cvc5

    terms = cvc5.TermManager()
    solver = cvc5.Solver(terms)
    solver.setOption("tlimit-per", str(max(1, limit)))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, f"{text}\n(check-sat)\n", "script")
    said = "unknown"
    try:
        while not (command := parser.nextCommand()).isNull():
            said = str(command.invoke(solver, parser.getSymbolManager())).strip() or said
    except RuntimeError:  # a construct that it does not know
        return "unknown"
    return said if said in ("sat", "unsat") else "unknown"


def evaluate(text: str, limit: int) -> list[bool | None]:
    """What each assertion is under the definitions in the script."""
    return [True if z3.is_true(one) else False if z3.is_false(one) else None for one in map(z3.simplify, z3.parse_smt2_string(text))]


def rest(text: str, limit: int) -> str:
    """Whether all assertions can hold together under the definitions in the script."""
    return _z3(z3.parse_smt2_string(text), limit)


QUESTIONS = {"decide": decide, "evaluate": evaluate, "rest": rest}


def main() -> None:
    """Answer lines until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        question, text, limit = json.loads(line)
        try:
            told: Any = {"said": QUESTIONS[question](text, limit)}
        except (z3.Z3Exception, RecursionError, MemoryError) as error:
            told = {"wrong": str(error)[:300]}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
