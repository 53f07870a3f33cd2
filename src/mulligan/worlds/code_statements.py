"""Drafts for the code world: small changes of statements and of the whole program; see `code_drafts.py`.

In and out as there: returns put where they belong, results made what was wanted, lines added for what is empty, names imported or
spelt as those that exist. Nothing is run here.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from mulligan.worlds.code_drafts import Evidence, Made, Operator, Text, variables

Wrap = Callable[[Any], Any]
WRAPS: Mapping[str, tuple[Wrap, str]] = {
    "str({})": (str, "as text"),
    "int({})": (int, "as a whole number"),
    "float({})": (float, "as a number"),
    "list({})": (list, "as a list"),
    "tuple({})": (tuple, "as a tuple"),
    "set({})": (set, "as a set"),
    "bool({})": (bool, "as true or false"),
    "sorted({})": (sorted, "sorted"),
    "sorted({}, reverse=True)": (lambda v: sorted(v, reverse=True), "sorted, the largest first"),
    "({})[::-1]": (lambda v: v[::-1], "turned round"),
    "abs({})": (abs, "without its sign"),
    "-({})": (lambda v: -v, "with the other sign"),
    "not ({})": (lambda v: not v, "the opposite"),
    "len({})": (len, "how many"),
    "sum({})": (sum, "added up"),
    "max({})": (max, "the largest"),
    "min({})": (min, "the smallest"),
    "round({}, 2)": (lambda v: round(v, 2), "rounded"),
    "round({})": (round, "rounded"),
    "({}) + 1": (lambda v: v + 1, "one more"),
    "({}) - 1": (lambda v: v - 1, "one less"),
    "({})[0]": (lambda v: v[0], "the first"),
    "({})[1:]": (lambda v: v[1:], "without the first"),
    "({})[:-1]": (lambda v: v[:-1], "without the last"),
    "[{}]": (lambda v: [v], "in a list"),
    "list(dict.fromkeys({}))": (lambda v: list(dict.fromkeys(v)), "each once"),
    "''.join({})": ("".join, "as one text"),
    "' '.join({})": (" ".join, "as one text with spaces"),
    "({}).strip()": (lambda v: v.strip(), "without spaces around it"),
    "({}).lower()": (lambda v: v.lower(), "in small letters"),
    "({}).upper()": (lambda v: v.upper(), "in capital letters"),
    "({}) or None": (lambda v: v or None, "None where there is nothing"),
}


def _return(text: Text, node: ast.Return, evidence: Evidence) -> Made:
    """What is returned, changed so that what came becomes what was wanted; and the return moved behind its loop."""
    if node.value is not None and evidence.pairs:
        for form, (wrap, what) in WRAPS.items():
            mended = sum(_becomes(wrap, got, wanted) for got, wanted in evidence.pairs)
            if mended:
                share = mended / len(evidence.pairs)
                yield text.replaced(node.value, form.format(text.of(node.value))), "op:result", f"the result {what}", 0.4 + 0.5 * share
    yield from _moved(text, node)


def _becomes(wrap: Wrap, got: Any, wanted: Any) -> bool:
    """Whether `wrap` makes the one value the other, and of its type."""
    try:
        made = wrap(got)
        return bool(type(made) is type(wanted) and made == wanted and not (type(got) is type(wanted) and got == wanted))
    except (TypeError, ValueError, IndexError, KeyError, OverflowError, ArithmeticError, AttributeError):
        return False


def _moved(text: Text, node: ast.Return) -> Made:
    """A return at the end of a loop's body, put behind the loop; and one behind the last of it, put inside."""
    loop = text.parents.get(node)
    lines = text.source.splitlines()
    if isinstance(loop, ast.If):
        inner, loop = loop, text.parents.get(loop)
        if not (isinstance(loop, ast.For | ast.While) and inner.orelse == [node]):
            return
        cut = inner.lineno, node.lineno - 1  # from the `else` on
        start = next((number for number in range(node.lineno - 1, cut[0], -1) if lines[number - 1].strip().startswith("else")), 0)
        if not start:
            return
    elif isinstance(loop, ast.For | ast.While) and loop.body[-1] is node and len(loop.body) > 1:
        start = node.lineno
    else:
        return
    end, behind = node.end_lineno or node.lineno, loop.end_lineno or node.lineno
    moved = [" " * loop.col_offset + lines[node.lineno - 1].strip(), *lines[node.lineno : end]]
    new = [*lines[: start - 1], *lines[end:behind], *moved, *lines[behind:]]
    yield "\n".join(new), "op:return", "it returns when the loop is through", 0.6


def _expression(text: Text, node: ast.Expr, evidence: Evidence) -> Made:
    """What is printed, returned; the result of a method that changes nothing, kept."""
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print" and len(value.args) == 1:
        yield text.replaced(node, f"return {text.of(value.args[0])}"), "op:return", "it is returned, not printed", 0.7
    kept = ("replace", "strip", "lower", "upper", "union", "title")
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in kept:
        start, _ = text.span(node)
        yield text.put(start, start, f"{text.of(value.func.value)} = "), "op:result", f"`{value.func.attr}` changes nothing in place", 0.7


def _in_place(text: Text, node: ast.Assign | ast.Return, evidence: Evidence) -> Made:
    """A method that works in place and returns nothing, used as a value."""
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        object_, given = text.of(value.func.value), [text.of(argument) for argument in (*value.args, *value.keywords)]
        forms = {"sort": f"sorted({', '.join([object_, *given])})", "reverse": f"{object_}[::-1]"}
        if len(given) == 1:
            forms |= {"append": f"{object_} + [{given[0]}]", "extend": f"{object_} + {given[0]}"}
        if value.func.attr in forms:
            why = f"`{value.func.attr}` returns nothing"
            yield text.replaced(value, forms[value.func.attr]), "op:result", why, 0.8


def _break(text: Text, node: ast.Break | ast.Continue, evidence: Evidence) -> Made:
    old, new = ("break", "continue") if isinstance(node, ast.Break) else ("continue", "break")
    yield text.replaced(node, new), "op:branch", f"`{old}` becomes `{new}`", 0.2


# ---- the whole program ----

MODULES = frozenset(
    {"math", "re", "itertools", "collections", "functools", "heapq", "bisect", "string", "random"}
    | {"statistics", "copy", "datetime", "hashlib", "operator", "json"}
)
HOMES: Mapping[str, str] = {
    **dict.fromkeys(("List", "Dict", "Tuple", "Set", "Optional", "Any", "Union", "Iterable", "Callable"), "typing"),
    **dict.fromkeys(("Counter", "defaultdict", "deque", "OrderedDict", "namedtuple"), "collections"),
    **dict.fromkeys(("permutations", "combinations", "product", "accumulate", "groupby", "chain", "zip_longest"), "itertools"),
    **dict.fromkeys(("reduce", "lru_cache", "cmp_to_key", "cache"), "functools"),
    **dict.fromkeys(("sqrt", "gcd", "factorial", "floor", "ceil", "pi", "log", "comb", "prod", "isqrt"), "math"),
    **dict.fromkeys(("heappush", "heappop", "heapify", "nlargest", "nsmallest"), "heapq"),
    "Decimal": "decimal",
    "Fraction": "fractions",
    "md5": "hashlib",
    "deepcopy": "copy",
}
_UNKNOWN = re.compile(r"name '(\w+)' is not defined")
_NO_ATTRIBUTE = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
TYPES: Mapping[str, type] = {kind.__name__: kind for kind in (str, list, dict, set, tuple, int, float, bytes)}


def _missing_names(text: Text, evidence: Evidence) -> Made:
    """Names and attributes that an exception says do not exist: imported, or the nearest that do."""
    for message in evidence.raised:
        if found := _UNKNOWN.search(message):
            name = found.group(1)
            line = f"import {name}" if name in MODULES else f"from {HOMES[name]} import {name}" if name in HOMES else ""
            if line:
                yield f"{line}\n{text.source}", "op:import", f"`{name}` is imported", 0.95
            known = {node.id for node in ast.walk(text.tree) if isinstance(node, ast.Name)} | {f.name for f in text.functions}
            known |= {name for function in text.functions for name in variables(function)}
            for other in get_close_matches(name, known - {name}, n=3, cutoff=0.5):
                yield re.sub(rf"\b{name}\b", other, text.source), "op:variable", f"`{name}` is `{other}`", 0.6
        if (found := _NO_ATTRIBUTE.search(message)) and found.group(1) in TYPES:
            kind, name = found.groups()
            for other in get_close_matches(name, [a for a in dir(TYPES[kind]) if a[0] != "_"], n=3, cutoff=0.4):
                yield re.sub(rf"\.{name}\b", f".{other}", text.source), "op:function", f"a {kind} has `{other}`, not `{name}`", 0.5


def _missing_returns(text: Text, evidence: Evidence) -> Made:
    """A function that ends without returning anything: each of its variables, at its end."""
    if evidence.pairs and not any(got is None for got, _ in evidence.pairs):
        return
    lines = text.source.splitlines()
    for function in text.functions:
        last = function.body[-1]
        if isinstance(last, ast.Return) or not evidence.pairs:
            continue
        indent = " " * function.body[0].col_offset
        for name in variables(function):
            end = function.end_lineno or len(lines)
            new = [*lines[:end], f"{indent}return {name}", *lines[end:]]
            yield "\n".join(new), "op:return", f"it returns `{name}`", 0.7
        for value in ("False", "True", "None", "0", "[]", "-1"):
            end = function.end_lineno or len(lines)
            yield "\n".join([*lines[:end], f"{indent}return {value}", *lines[end:]]), "op:return", f"it returns `{value}` at its end", 0.4


def _guards(text: Text, evidence: Evidence) -> Made:
    """A line ahead of everything else for an argument that is empty."""
    lines = text.source.splitlines()
    wanted = {repr(value) for _, value in evidence.pairs}
    for function in text.functions[:1]:
        body = function.body
        first = body[1] if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else body[0]
        indent = " " * first.col_offset
        for argument in function.args.args[:3]:
            for value in ("None", "[]", "0", "''", "False", "True", "-1", "{}", "()"):
                if evidence.raised or value in wanted or (value == "''" and "''" in wanted):
                    line = f"{indent}if not {argument.arg}:\n{indent}    return {value}"
                    new = [*lines[: first.lineno - 1], line, *lines[first.lineno - 1 :]]
                    yield "\n".join(new), "op:guard", f"an empty `{argument.arg}` gives `{value}`", 0.3


OPERATORS: Mapping[type[ast.AST], Sequence[Operator]] = {
    ast.Return: (_return, _in_place),
    ast.Assign: (_in_place,),
    ast.Expr: (_expression,),
    ast.Break: (_break,),
    ast.Continue: (_break,),
}
WHOLE: Sequence[Callable[[Text, Evidence], Made]] = (_missing_names, _missing_returns, _guards)
