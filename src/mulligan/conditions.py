"""Predicates: a tiny, pure, total language over facts that says when a record applies.

`"river" in mentions and rows > 10`: comparisons (== != < <= > >= in, not in) of fact names and constants, joined by and, or, not.
A fact that is missing or of another type makes a comparison unknown; unknown is carried through (Kleene) and is not "holds".
No calls, no attributes, no arithmetic: a predicate is data that a model or a stranger may have written.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mulligan.errors import InvalidData
from mulligan.records import Condition

MAX_CHARS = 400
MAX_PARTS = 60

Facts = Mapping[str, Any]
Truth = bool | None
_Test = Callable[[Facts], Truth]
_MISSING = object()

_OPERATORS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, many: item in many,
    ast.NotIn: lambda item, many: item not in many,
}


def holds(predicate: str, facts: Facts) -> bool:
    """True when `predicate` is certainly true of `facts`. Raises InvalidData when it is not in the language."""
    return _compile(predicate)(facts) is True


def check_condition(condition: Condition) -> None:
    """Raises InvalidData that says what is wrong when a condition's predicate is not in the language."""
    if condition.kind == "predicate":
        _compile(condition.predicate)


@lru_cache(maxsize=4096)
def _compile(predicate: str) -> _Test:
    if len(predicate) > MAX_CHARS:
        raise InvalidData(f"predicate of {len(predicate)} characters: at most {MAX_CHARS}")
    try:
        tree = ast.parse(predicate, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidData(f"predicate does not parse: {predicate[:80]!r}") from error
    if sum(1 for _ in ast.walk(tree)) > MAX_PARTS:
        raise InvalidData(f"predicate has more than {MAX_PARTS} parts: {predicate[:80]!r}")
    return _build(tree.body)


def _build(node: ast.expr) -> _Test:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return _all([_build(v) for v in values])
        case ast.BoolOp(op=ast.Or(), values=values):
            return _any([_build(v) for v in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _not(_build(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _compare(_OPERATORS[type(op)], _value(left), _value(right))
    raise InvalidData(f"predicate may not contain {ast.unparse(node)[:60]!r}: compare facts with constants")


def _value(node: ast.expr) -> Callable[[Facts], Any]:
    match node:
        case ast.Constant(value=str() | int() | float() as constant):
            return lambda facts: constant
        case ast.Name(id=name):
            return lambda facts: facts.get(name, _MISSING)
    raise InvalidData(f"predicate may not contain {ast.unparse(node)[:60]!r}: only fact names, text and numbers")


def _compare(test: Callable[[Any, Any], bool], left: Callable[[Facts], Any], right: Callable[[Facts], Any]) -> _Test:
    def compared(facts: Facts) -> Truth:
        a, b = left(facts), right(facts)
        if a is _MISSING or b is _MISSING or a is None or b is None:
            return None
        try:
            return bool(test(a, b))
        except TypeError:
            return None

    return compared


def _not(test: _Test) -> _Test:
    def negated(facts: Facts) -> Truth:
        truth = test(facts)
        return None if truth is None else not truth

    return negated


def _all(tests: list[_Test]) -> _Test:
    def conjunction(facts: Facts) -> Truth:
        truths = [t(facts) for t in tests]
        return False if False in truths else None if None in truths else True

    return conjunction


def _any(tests: list[_Test]) -> _Test:
    def disjunction(facts: Facts) -> Truth:
        truths = [t(facts) for t in tests]
        return True if True in truths else None if None in truths else False

    return disjunction
