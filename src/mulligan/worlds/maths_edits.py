"""Operator proposals for the maths world: calculations done again, or with another operation, and what follows from them.

In: a solution as text. Out: proposals, best first: each calculation that does not hold is mended, then single operations are exchanged;
the new number is carried through the later lines up to the answer. Nothing is known of the right answer here.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from mulligan.edits import edit_text
from mulligan.nouns import Json
from mulligan.records import Proposal
from mulligan.worlds.maths_values import Equation, equations

MOST = 24
SIGNS = ("+", "-", "*", "/")
_TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?|[^\W\d_]+|[^\w\s]")
_OPERATION = re.compile(r"(?<=[\d%)])\s*([-+*/×x÷])\s*(?=[\d$(])")


def tokens(text: str) -> list[str]:
    """Numbers, words and signs."""
    return _TOKEN.findall(text)


def written(value: Fraction) -> str:
    """A number as a solution would have it: whole, a short decimal, or a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    places = next((n for n in range(1, 7) if (value * 10**n).denominator == 1), 0)
    return f"{float(value):.{places}f}" if places else f"{value.numerator}/{value.denominator}"


def proposals(text: str) -> Iterator[Proposal]:
    """Changed solutions, mended calculations first."""
    steps = equations(text)
    seen = {text}
    made = 0
    for step, left, why in (*_mended(steps), *_exchanged(steps)):
        changed = _carried(text, step, left)
        if changed and changed not in seen and made < MOST:
            seen.add(changed)
            made += 1
            operator = "op:calculation" if left == step.left else "op:operation"
            yield Proposal(action=changed, edit=edit_text(text, changed, tokens), why=why, proposer=operator)


def _mended(steps: list[Equation]) -> Iterator[tuple[Equation, str, str]]:
    for step in steps:
        if not step.holds:
            yield step, step.left, f"{step.left} is {written(step.value)}"


def _exchanged(steps: list[Equation]) -> Iterator[tuple[Equation, str, str]]:
    for step in reversed(steps):  # the last calculations decide the answer
        for sign in _OPERATION.finditer(step.left):
            for new in SIGNS:
                if new != sign.group(1).replace("×", "*").replace("x", "*").replace("÷", "/"):
                    left = f"{step.left[: sign.start()]} {new} {step.left[sign.end() :]}"
                    yield step, left, f"`{sign.group(1)}` becomes `{new}`"


def _carried(text: str, step: Equation, left: str) -> str:
    """The text with a calculation changed, and its result wherever it is used after; "" where there is none."""
    found = equations(f"{left} = 0")
    if not found:
        return ""
    head, tail = text[: step.start], text[step.end :]
    result = written(found[0].value)
    old, new = step.right, f"${result}" if step.right.startswith("$") else result
    head += f"{left} = {new}"
    for _ in range(8):  # each later calculation that uses the old number gives a new one, which is carried on
        tail = _replaced(tail, old, new)
        wrong = next((later for later in equations(tail) if not later.holds and later.right != "0"), None)
        if wrong is None:
            break
        value = written(wrong.value)
        old, new = wrong.right, f"${value}" if wrong.right.startswith("$") else value
        head += f"{tail[: wrong.start]}{wrong.left} = {new}"
        tail = tail[wrong.end :]
    return head + tail


def _replaced(text: str, old: str, new: str) -> str:
    plain = old.removeprefix("$")
    return re.sub(rf"(?<![\w.,]){re.escape(plain)}(?![\w%]|[.,]\d)", new.removeprefix("$"), text)


_WORD = re.compile(r"[a-z]{3,}")
_TOPICS = frozenset(
    {
        "percent",
        "half",
        "twice",
        "double",
        "triple",
        "times",
        "each",
        "every",
        "total",
        "altogether",
        "left",
        "remaining",
        "remainder",
        "more",
    }
    | {
        "less",
        "fewer",
        "difference",
        "average",
        "mean",
        "ratio",
        "rate",
        "speed",
        "hour",
        "hours",
        "minutes",
        "day",
        "days",
        "week",
        "weeks",
    }
    | {
        "month",
        "year",
        "years",
        "cost",
        "price",
        "profit",
        "discount",
        "tax",
        "interest",
        "share",
        "equally",
        "per",
        "dozen",
        "area",
        "perimeter",
    }
    | {
        "volume",
        "angle",
        "triangle",
        "circle",
        "square",
        "probability",
        "prime",
        "divisible",
        "factor",
        "sum",
        "product",
        "polynomial",
        "root",
    }
    | {
        "function",
        "equation",
        "sequence",
        "digit",
        "integer",
        "fraction",
        "older",
        "younger",
        "age",
        "twice",
        "third",
        "quarter",
        "increase",
        "decrease",
    }
)


def facts(question: str) -> dict[str, Json]:
    """What conditions may test of a question. Word lists are English."""
    words = _WORD.findall(question.lower())
    return {
        "asks": list(dict.fromkeys(word for word in words if word in _TOPICS)),
        "numbers": len(re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?", question)),
        "percent": "%" in question or "percent" in words,
        "gist": re.sub(r"\$?\d[\d,]*(?:\.\d+)?", "a number", question)[:600],
    }
