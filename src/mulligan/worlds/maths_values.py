"""Answers to mathematical questions: found in a text, cleaned, and compared exactly where they are plain numbers.

In: what was said, and the gold answer. Out: True, False, or None where it cannot be told; `Unclear` where only algebra could tell, which
`maths_worker.py` does. Digits of any script and width are digits; bold, dollars, thousands and units are taken off. A percentage equals
the number that it is; whether 50 % is the 50 that was asked for only the question can say.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 2_000  # characters of an answer that are looked at
MOST_DIGITS = 400

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_MARK = re.compile(r"####\s*(.+)|(?:final\s+)?answer\s*(?:is|:|=)\s*:?\s*(.+)", re.IGNORECASE)
_UNITS = re.compile(
    r"(?:\\text|\\mathrm|\\textrm|\\mbox)\s*\{\s*([^{}]*)\}(?:\^\{?\d\}?)?\s*$|(?<=[\d})])\s*(?:\\\s)?\s*([^\W\d_]{1,24}(?:\s+[^\W\d_]{2,24}){0,2})(?:\^\{?\d\}?)?\s*$"
)
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)")
_NAMES = frozenset({"pi", "e", "i", "x", "y", "z", "n", "k", "a", "b", "c", "t", "m", "p", "q", "r", "s"})


@dataclass(frozen=True, slots=True)
class Value:
    """A cleaned answer: its text, and what was taken off it."""

    text: str
    percent: bool = False
    unit: str = ""


class Unclear(Exception):
    """Neither answer is a plain number: algebra has to tell."""


def final_answer(text: str) -> str:
    """The answer in a text: the last box, else what follows the last "####" or "answer is", else its last line."""
    text = text[-20_000:]
    if boxes := list(_BOXED.finditer(text)):
        return _braced(text, boxes[-1].end())
    if marks := list(_MARK.finditer(text)):
        return (marks[-1].group(1) or marks[-1].group(2)).splitlines()[0]
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def final_text(text: str) -> str:
    """An answer of any form in a text, such as a grid of several lines: all that follows the last mark, without what stands around it."""
    marks = list(re.finditer(r"<answer>|####|answer\s*(?:is|:|=)\s*:?", text := text[-20_000:], re.IGNORECASE))
    found = text[marks[-1].end() :].partition("</answer>")[0].strip() if marks else final_answer(text)
    fence = re.match(r"```\w*\n(.*?)\n?```", found, re.DOTALL)
    return fence.group(1) if fence else found.strip("`* ")


def _braced(text: str, start: int) -> str:
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return ""  # a reply that was cut short: what is there of a number may be half of it


def cleaned(text: str) -> Value:
    """An answer without what does not count."""
    text = _ascii_digits(unicodedata.normalize("NFKC", text[:LONGEST]))
    for old in ("\\$", "**", "__", "\\left", "\\right", "\\!", "\\,", "\\;", "\\:", "\\displaystyle", "$", "\\(", "\\)", "\\[", "\\]", "`"):
        text = text.replace(old, "")
    text = text.replace("\\%", "%").replace("dfrac", "frac").replace("tfrac", "frac").replace("−", "-").replace("{,}", ",")
    text = text.replace("^\\circ", "").replace("^{\\circ}", "").replace("°", "").strip().rstrip(".").strip()
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\\frac\s*(\d)", r"\\frac{\1}", text)
    text = re.sub(r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}", text)
    text = re.sub(r"\\sqrt\s*(\d)", r"\\sqrt{\1}", text)
    text = re.sub(r"^[A-Za-z]\s*=\s*(?=\S)", "", text)
    percent = bool(re.search(r"%\s*$|\bper\s?cent\s*$", text))
    text = re.sub(r"\s*(?:%|\bper\s?cent)\s*$", "", text)
    found = _UNITS.search(text)
    unit = ((found.group(1) or found.group(2) or "") if found else "").strip().lower()
    if found and unit not in _NAMES and text[: found.start()].strip():
        text = text[: found.start()].strip()
    else:
        unit = ""
    words = re.fullmatch(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}", text)
    return Value(text=words.group(1).strip() if words else text.strip(), percent=percent, unit=unit)


def _ascii_digits(text: str) -> str:
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() and not c.isascii() else c for c in text)


def number(text: str) -> Fraction | None:
    """A plain number, exact: an integer, a decimal, or a fraction of two; None for anything else."""
    if sum(c.isdigit() for c in text) > MOST_DIGITS or re.search(r"\d\s+\d", text):
        return None
    text = text.replace(" ", "")
    fraction = re.fullmatch(r"([-+]?)\\frac\{([-+]?\d+)\}\{([-+]?\d+)\}", text) or re.fullmatch(
        r"([-+]?)\(?([-+]?\d+)\)?/\(?(\d+)\)?", text
    )
    if fraction:
        sign, over, under = fraction.groups()
        return Fraction(int(over), int(under)) * (-1 if sign == "-" else 1) if int(under) else None
    return Fraction(text) if _NUMBER.fullmatch(text) and text[-1:] != "." else Fraction(text[:-1]) if _NUMBER.fullmatch(text) else None


def compare(gold: str, answer: str, question: str = "") -> bool | None:
    """Whether `answer` is `gold`; None where it cannot be told. Raises Unclear where neither text nor plain numbers tell."""
    wanted, got = cleaned(gold), cleaned(answer)
    if not wanted.text:
        return None  # the task is broken, not the answer
    if not got.text:
        return False
    if wanted.unit and got.unit and wanted.unit.rstrip("s") != got.unit.rstrip("s"):
        return None
    one, other = number(wanted.text), number(got.text)
    if one is None or other is None:
        if _plain(wanted) == _plain(got):
            return True
        if all(re.fullmatch(r"[^\W\d_]{2,}[^\W\d_ ,.'-]*(?: [^\W\d_ ,.'-]+)*", value.text) for value in (wanted, got)):
            return False  # words
        raise Unclear
    if wanted.percent == got.percent:
        return one == other
    if got.percent:
        return _percentage(one, other, question)
    return True if other == one / 100 else None if other == one else False


def _percentage(wanted: Fraction, percent: Fraction, question: str) -> bool | None:
    """A gold number against an answer in percent."""
    if percent / 100 == wanted:
        return True
    if percent == wanted:
        return True if re.search(r"%|\bper\s?cent", question, re.IGNORECASE) else None
    return False


def _plain(value: Value) -> str:
    text = re.sub(r"^\((\w)\)$", r"\1", value.text.strip("\"' "))  # the letter of a choice
    return re.sub(r"\s+", "" if re.search(r"[\\^(]", text) else " ", text.lower()) + ("%" if value.percent else "")


# ---- equations in a text ----

_TERM = r"[-+]?\$?\d[\d,]*(?:\.\d+)?%?"
_EQUATION = re.compile(rf"(?<![\w.)])({_TERM}(?:\s*[-+*/×x÷]\s*\(?{_TERM}\)?){{1,6}})\s*=\s*({_TERM})(?![\w(*/×÷+])")


@dataclass(frozen=True, slots=True)
class Equation:
    """A calculation in a text: where it stands, what it says, and what its left side is."""

    start: int
    end: int
    left: str
    right: str
    value: Fraction
    holds: bool


def equations(text: str) -> list[Equation]:
    """The calculations with numbers alone, such as `3 * 4 = 12`, in order. A right side that is rounded holds."""
    found = []
    for match in _EQUATION.finditer(text[:20_000]):
        value, right = _calculated(match.group(1)), _amount(match.group(2))
        if value is not None and right is not None:
            digits = len(match.group(2).partition(".")[2].rstrip("%"))
            holds = value == right or (value.denominator > 1 and abs(value - right) <= Fraction(1, 2 * 10**digits) and digits > 0)
            found.append(Equation(match.start(), match.end(), match.group(1).strip(), match.group(2).strip(), value, holds))
    return found


def _amount(text: str) -> Fraction | None:
    plain = text.replace("$", "").replace(",", "").replace("%", "")
    amount = number(plain) if len(plain) <= 40 else None
    return amount / 100 if amount is not None and text.endswith("%") else amount


def _calculated(text: str) -> Fraction | None:
    """The value of a chain of terms, products before sums; None for a division by zero or what is no chain."""
    parts = re.findall(rf"{_TERM}|[-+*/×x÷]", text.replace("(", "").replace(")", ""))
    terms: list[Fraction] = []
    sign, pending = "+", ""
    for part in _alternating(parts):
        if part in "+-*/×x÷":
            sign, pending = (part, pending) if part in "+-" else (sign, part)
            continue
        amount = _amount(part)
        if amount is None:
            return None
        if pending:
            if pending in "/÷" and amount == 0:
                return None
            terms[-1] = terms[-1] / amount if pending in "/÷" else terms[-1] * amount
            pending = ""
        else:
            terms.append(-amount if sign == "-" else amount)
    return sum(terms, Fraction(0))


def _alternating(parts: list[str]) -> list[str]:
    """Terms and signs in turn: in `5 -3` the sign belongs between."""
    found: list[str] = []
    for part in parts:
        if found and found[-1] not in "+-*/×x÷" and part[0] in "+-" and len(part) > 1:
            found += [part[0], part[1:]]
        else:
            found.append(part)
    return found
