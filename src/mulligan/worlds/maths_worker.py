"""What runs beside the maths world: algebra on two answers, in a process that may be killed.

In: lines of JSON with two texts, cleaned. Out: a line each: true, false, or null for what cannot be parsed whole or told. Exact: rationals
as rationals, other numbers to fifty digits, expressions with letters by simplification and at points. A text is parsed only if all of it
is mathematics: the parser would take `3 4` for a sum and leave out what it does not know.
"""

import json
import re
import resource
import sys
import warnings
from itertools import permutations
from typing import Any

MEMORY = 2 << 30
DIGITS, CLOSE = 50, 40  # of comparison; agreement that is equality
MOST_ELEMENTS = 6
KNOWN = (
    r"\\(?:frac|sqrt|pi|cdot|times|div|infty|cup|cap|pm|mp|le|ge|leq|geq|lt|gt|ln|log|exp|sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|theta|alpha"
    r"|beta|gamma|lambda|mu|phi|in|begin|end|binom|lfloor|rfloor|lceil|rceil|emptyset|overline|circ|mathbb)\b"
)
WORDS = re.compile(rf"{KNOWN}|\\[{{}}|\\]|\b(?:sqrt|pi|oo|inf|sin|cos|tan|log|ln|exp|pmatrix|bmatrix|matrix|array)\b")


def is_whole(text: str) -> bool:
    """Whether all of a text is mathematics that the parser reads as it is meant."""
    rest = WORDS.sub(";", text)
    strange = re.search(r"[A-Za-z]{4,}|\d\s+\d|\d\.\d*\.\d|_|\\[A-Za-z]+|[^\x00-\x7f]", rest)
    return not strange and bool(re.search(r"[\dA-Za-z]", text))


def parsed(text: str) -> Any:
    """A sympy object; None for what is no mathematics as a whole."""
    from latex2sympy2_extended import latex2sympy

    text = re.sub(r"(?<!\\)\bsqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<!\\)\bpi\b", r"\\pi", text).replace("**", "^")
    if not is_whole(text) or _towers(text):
        return None
    if parts := _listed(text):  # a point or an open interval: their equality is that of their parts
        made = [parsed(part) for part in parts]
        return None if any(part is None for part in made) else tuple(made)
    made = latex2sympy(text)
    return made.doit() if hasattr(made, "doit") else made


def _listed(text: str) -> list[str]:
    """The parts of `(a, b, …)` where the parentheses are one pair around it all."""
    inner = text.strip()[1:-1]
    parts, depth = [""], 0
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return []
        parts = [*parts, ""] if character == "," and depth == 0 else [*parts[:-1], parts[-1] + character]
    return parts if text.strip()[:1] == "(" and text.strip()[-1:] == ")" and depth == 0 and len(parts) > 1 else []


def _towers(text: str) -> bool:
    """Powers of powers and large exponents or factorials are not worked out."""
    exponents = re.findall(r"\^\s*\{?\s*\(?\s*-?(\d+)", text)
    nested = re.search(r"\^\s*\{[^{}]*\^|\^\s*-?\w+\s*\^|\d{5,}\s*!|!\s*!", text)
    return text.count("^") > 20 or any(int(e[:9]) > 10_000 for e in exponents) or bool(nested)


def equal(one: Any, other: Any) -> bool | None:
    """Whether two parsed answers are the same; None where it cannot be told."""
    import sympy

    one, other = _right_side(one), _right_side(other)
    if one == other:
        return True
    if isinstance(one, sympy.Equality) and isinstance(other, sympy.Equality):
        same = equal(one.lhs - one.rhs, other.lhs - other.rhs)
        return same or equal(one.lhs - one.rhs, other.rhs - other.lhs)
    listed = [list(x) if isinstance(x, sympy.Tuple | sympy.FiniteSet | list | tuple) else None for x in (one, other)]
    if listed[0] is not None and listed[1] is not None:
        ordered = isinstance(one, sympy.Tuple | list | tuple) and isinstance(other, sympy.Tuple | list | tuple)
        return _all_equal(listed[0], listed[1], ordered=ordered)
    if isinstance(one, sympy.MatrixBase) and isinstance(other, sympy.MatrixBase):
        return one.shape == other.shape and _all_equal(list(one), list(other), ordered=True)
    if isinstance(one, sympy.Set) or isinstance(other, sympy.Set):
        return bool(one == other) if isinstance(one, sympy.Set) and isinstance(other, sympy.Set) else None
    if isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr):
        return _same(one, other)
    return True if one == other else None


def _right_side(value: Any) -> Any:
    import sympy

    return value.rhs if isinstance(value, sympy.Equality) and value.lhs.is_Symbol else value


def _all_equal(one: list[Any], other: list[Any], *, ordered: bool) -> bool | None:
    if len(one) != len(other):
        return False
    if not ordered and len(one) > MOST_ELEMENTS:
        return None
    found: list[bool | None] = []
    for order in [tuple(other)] if ordered else permutations(other):
        each = [equal(a, b) for a, b in zip(one, order, strict=True)]
        found.append(False if False in each else None if None in each else True)
    return True if True in found else None if None in found else False


def _same(one: Any, other: Any) -> bool | None:
    import sympy

    one, other = (sympy.nsimplify(x, rational=True) if x.has(sympy.Float) else x for x in (one, other))
    difference = one - other
    if difference.is_Rational:
        return bool(difference == 0)
    if not difference.free_symbols:
        value = sympy.N(difference, DIGITS)
        size = max(1, abs(sympy.N(one, DIGITS)))
        return bool(abs(value) < size * sympy.Float(10) ** -CLOSE) if value.is_number and value.is_finite else None
    if sympy.simplify(difference) == 0:
        return True
    letters = sorted(difference.free_symbols, key=str)
    for point in (3, 7, 11):
        at = difference.subs({letter: sympy.Rational(point + 2 * place, 5) for place, letter in enumerate(letters)})
        value = sympy.N(at, DIGITS)
        if value.is_number and value.is_finite and abs(value) > sympy.Float(10) ** -CLOSE:
            return False
    return None


def judged(one: str, other: str) -> bool | None:
    """Whether two texts say the same; None where it cannot be told, whatever the reason."""
    try:
        first, second = parsed(one), parsed(other)
        return None if first is None or second is None else equal(first, second)
    except Exception:
        return None


def main() -> None:
    """Answer lines until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    import sympy  # noqa: F401  # the long part, before the first question

    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        told = judged(*json.loads(line))
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
