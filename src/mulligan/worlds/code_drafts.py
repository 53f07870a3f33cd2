"""Drafts for the code world: small changes of expressions, found in the tree of a program and carried out in its text.

In: the text of a program, its tree, and what the evidence says. Out: changed programs with the operator's name, a reason and a prior. Text
that an operator does not touch stays as it was written. Nothing is run here. Statements are in `code_statements.py`.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

Pair = tuple[Any, Any]  # what came, what was wanted
Definition = ast.FunctionDef | ast.AsyncFunctionDef
Made = Iterator[tuple[str, str, str, float]]  # the changed program, operator, why, prior in [0, 1]: how often such a change mends
Operator = Callable[["Text", Any, "Evidence"], Made]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the signals say: values that came instead of others, messages of exceptions, lines that raised."""

    pairs: tuple[Pair, ...] = ()
    raised: tuple[str, ...] = ()
    lines: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Text:
    """A program: its text, and where the parts of its tree stand in it."""

    source: str
    tree: ast.Module = field(compare=False)

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line starts, in bytes: the tree counts bytes."""
        starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def _bytes(self) -> bytes:
        return self.source.encode("utf-8", "replace")

    def span(self, node: Any) -> tuple[int, int]:
        """Where a node stands, in bytes."""
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.AST) -> str:
        """A node's own text."""
        start, end = self.span(node)
        return self._bytes[start:end].decode("utf-8", "replace")

    def put(self, start: int, end: int, new: str) -> str:
        """The program with other text from `start` to `end`."""
        return (self._bytes[:start] + new.encode() + self._bytes[end:]).decode("utf-8", "replace")

    def replaced(self, node: ast.AST, new: str) -> str:
        """The program with other text for a node."""
        return self.put(*self.span(node), new)

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> str:
        """The program with an operator between two nodes exchanged."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self._bytes[start:end].decode("utf-8", "replace")
        pattern = rf"(?<!\w){re.escape(old)}(?!\w)" if old.isalpha() else re.escape(old)
        return self.put(start, end, re.sub(pattern, lambda _: new, gap, count=1))

    @cached_property
    def functions(self) -> list[Definition]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Definition)]

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}


# ---- operators between two sides ----

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">", ">=")),
    ast.LtE: ("<=", ("<", ">=", ">")),
    ast.Gt: (">", (">=", "<", "<=")),
    ast.GtE: (">=", (">", "<=", "<")),
    ast.Eq: ("==", ("!=", "in", "<=", ">=")),
    ast.NotEq: ("!=", ("==", "not in")),
    ast.In: ("in", ("not in", "==")),
    ast.NotIn: ("not in", ("in",)),
    ast.Is: ("is", ("==", "is not")),
    ast.IsNot: ("is not", ("is", "!=")),
}
ARITHMETIC: Mapping[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-", "*")),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("**", "+", "//")),
    ast.Div: ("/", ("//", "*")),
    ast.FloorDiv: ("//", ("/", "%")),
    ast.Mod: ("%", ("//",)),
    ast.Pow: ("**", ("*",)),
    ast.BitAnd: ("&", ("|", "^")),
    ast.BitOr: ("|", ("&", "^")),
    ast.BitXor: ("^", ("|", "**")),
}


def _comparison(text: Text, node: ast.Compare, evidence: Evidence) -> Made:
    sides = [node.left, *node.comparators]
    for (left, right), operator in zip(pairwise(sides), node.ops, strict=True):
        old, others = COMPARISONS[type(operator)]
        for place, new in enumerate(others):
            yield text.between(left, right, old, new), "op:comparison", f"`{old}` becomes `{new}`", 0.5 - 0.15 * place


def _arithmetic(text: Text, node: ast.BinOp, evidence: Evidence) -> Made:
    if type(node.op) in ARITHMETIC and not isinstance(node.left, ast.Constant | ast.JoinedStr):
        old, others = ARITHMETIC[type(node.op)]
        for new in others:
            yield text.between(node.left, node.right, old, new), "op:arithmetic", f"`{old}` becomes `{new}`", 0.25
    yield text.replaced(node, text.of(node.left)), "op:arithmetic", f"`{text.of(node)}` becomes its left side", 0.1


def _augmented(text: Text, node: ast.AugAssign, evidence: Evidence) -> Made:
    if type(node.op) in ARITHMETIC:
        old, others = ARITHMETIC[type(node.op)]
        for new in (*others, ""):
            why = f"`{old}=` becomes `{new}=`"
            yield text.between(node.target, node.value, f"{old}=", f"{new}="), "op:arithmetic", why, 0.2


def _boolean(text: Text, node: ast.BoolOp, evidence: Evidence) -> Made:
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in pairwise(node.values):
        yield text.between(left, right, old, new), "op:boolean", f"`{old}` becomes `{new}`", 0.35
    for value in node.values:
        rest = f" {old} ".join(text.of(other) for other in node.values if other is not value)
        yield text.replaced(node, rest), "op:boolean", f"`{text.of(value)}` is no condition", 0.25


def _negation(text: Text, node: ast.UnaryOp, evidence: Evidence) -> Made:
    if isinstance(node.op, ast.Not | ast.USub):
        yield text.replaced(node, text.of(node.operand)), "op:boolean", f"`{text.of(node)}` without its sign", 0.25


def _test(text: Text, node: ast.If | ast.While | ast.IfExp, evidence: Evidence) -> Made:
    if not isinstance(node.test, ast.Compare):
        yield text.replaced(node.test, f"not ({text.of(node.test)})"), "op:boolean", "the condition is turned round", 0.25
    if isinstance(node, ast.If) and not node.orelse and text.of(node).startswith("elif"):
        start, _ = text.span(node)
        yield text.put(start, start + 4, "if"), "op:branch", "`elif` becomes `if`", 0.2


# ---- values ----


def _constant(text: Text, node: ast.Constant, evidence: Evidence) -> Made:
    value = node.value
    if isinstance(value, bool):
        yield text.replaced(node, str(not value)), "op:constant", f"`{value}` becomes `{not value}`", 0.4
    elif isinstance(value, int) and value <= 1_000_000:
        for new in (value + 1, value - 1):
            negative = isinstance(text.parents.get(node), ast.UnaryOp)
            if new >= 0:
                yield text.replaced(node, str(new)), "op:constant", f"`{value}` becomes `{new}`", 0.3
            elif not negative:
                yield text.replaced(node, f"-{-new}"), "op:constant", f"`{value}` becomes `{new}`", 0.2
        if isinstance(text.parents.get(node), ast.Assign) and value == 0:
            for bound in ("float('-inf')", "float('inf')"):
                yield text.replaced(node, bound), "op:constant", f"it starts at `{bound}`", 0.15


SWAPS: Mapping[str, tuple[str, ...]] = {
    "min": ("max",),
    "max": ("min", "sum"),
    "any": ("all",),
    "all": ("any",),
    "sum": ("len", "max"),
    "len": ("sum",),
    "append": ("extend",),
    "extend": ("append",),
    "floor": ("ceil",),
    "ceil": ("floor",),
    "lower": ("upper",),
    "upper": ("lower",),
    "isalpha": ("isalnum", "isdigit"),
    "isdigit": ("isnumeric", "isalnum"),
    "isalnum": ("isalpha",),
    "islower": ("isupper",),
    "isupper": ("islower",),
    "int": ("round",),
    "round": ("int",),
    "find": ("rfind", "index"),
    "rfind": ("find",),
    "startswith": ("endswith",),
    "endswith": ("startswith",),
    "strip": ("rstrip", "lstrip"),
    "union": ("intersection",),
    "intersection": ("union",),
    "set": ("list",),
    "combinations": ("permutations", "combinations_with_replacement"),
    "permutations": ("combinations",),
    "gcd": ("lcm",),
}


def _call(text: Text, node: ast.Call, evidence: Evidence) -> Made:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    for new in SWAPS.get(name, ()):
        if isinstance(function, ast.Attribute):
            _, end = text.span(function)
            yield text.put(end - len(name.encode()), end, new), "op:function", f"`{name}` becomes `{new}`", 0.25
        else:
            yield text.replaced(function, new), "op:function", f"`{name}` becomes `{new}`", 0.25
    if name == "range" and node.args:
        yield from _range(text, node)
    if name in ("sorted", "sort"):
        yield from _sort(text, node)
    if name == "set" and len(node.args) == 1:
        yield text.replaced(node, f"dict.fromkeys({text.of(node.args[0])})"), "op:function", "the order stays", 0.15
    if len(node.args) == 1 and name in ("set", "list", "sorted", "abs", "int", "str", "round", "reversed") and not node.keywords:
        yield text.replaced(node, text.of(node.args[0])), "op:function", f"without `{name}`", 0.2
    if isinstance(function, ast.Attribute) and name in ("strip", "lower", "upper", "sort") and not node.args:
        yield text.replaced(node, text.of(function.value)), "op:function", f"without `{name}`", 0.2


def _range(text: Text, node: ast.Call) -> Made:
    stop = node.args[min(1, len(node.args) - 1)]
    written = text.of(stop)
    yield text.replaced(stop, f"{written} + 1"), "op:range", f"it goes on to `{written}`", 0.5
    yield text.replaced(stop, f"{written} - 1"), "op:range", f"it ends before `{written} - 1`", 0.3
    if len(node.args) == 1:
        yield text.replaced(stop, f"1, {written}"), "op:range", "it starts at 1", 0.3
        yield text.replaced(stop, f"1, {written} + 1"), "op:range", f"it goes from 1 to `{written}`", 0.4
        yield text.replaced(stop, f"{written} - 1, -1, -1"), "op:range", "it goes backwards", 0.1


def _sort(text: Text, node: ast.Call) -> Made:
    _, end = text.span(node)
    named = {keyword.arg for keyword in node.keywords}
    if "reverse" not in named:
        comma = ", " if node.args or node.keywords else ""
        yield text.put(end - 1, end - 1, f"{comma}reverse=True"), "op:function", "the largest come first", 0.3
    if "key" not in named:
        comma = ", " if node.args or node.keywords else ""
        for key in ("len", "abs", "str.lower", "str"):
            yield text.put(end - 1, end - 1, f"{comma}key={key}"), "op:function", f"they are sorted by `{key}`", 0.1


def _slice(text: Text, node: ast.Slice, evidence: Evidence) -> Made:
    for part, what in ((node.upper, "ends"), (node.lower, "starts")):
        if part is not None and not isinstance(part, ast.Constant):
            for shift in ("+ 1", "- 1"):
                yield text.replaced(part, f"{text.of(part)} {shift}"), "op:range", f"the slice {what} one place elsewhere", 0.35


def _subscript(text: Text, node: ast.Subscript, evidence: Evidence) -> Made:
    if isinstance(node.slice, ast.Name | ast.BinOp) and isinstance(node.ctx, ast.Load):
        for shift in ("- 1", "+ 1"):
            yield text.replaced(node.slice, f"{text.of(node.slice)} {shift}"), "op:index", "one place elsewhere", 0.2
    if isinstance(node.slice, ast.Slice):
        yield text.replaced(node, text.of(node.value)), "op:range", "all of it, not a slice", 0.15


def _name(text: Text, node: ast.Name, evidence: Evidence) -> Made:
    """Another variable of the same function."""
    function = _function_of(text, node)
    if function and isinstance(node.ctx, ast.Load) and (known := variables(function)) and node.id in known and len(known) <= 8:
        for other in known:
            if other != node.id:
                yield text.replaced(node, other), "op:variable", f"`{other}` instead of `{node.id}`", 0.12


def _function_of(text: Text, node: ast.AST) -> Definition | None:
    while node in text.parents:
        node = text.parents[node]
        if isinstance(node, Definition):
            return node
    return None


def variables(function: Definition) -> list[str]:
    """Arguments and local names of a function, in their order."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    names += [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return list(dict.fromkeys(names))


OPERATORS: Mapping[type[ast.AST], Sequence[Operator]] = {
    ast.Compare: (_comparison,),
    ast.BinOp: (_arithmetic,),
    ast.AugAssign: (_augmented,),
    ast.BoolOp: (_boolean,),
    ast.UnaryOp: (_negation,),
    ast.If: (_test,),
    ast.While: (_test,),
    ast.IfExp: (_test,),
    ast.Constant: (_constant,),
    ast.Call: (_call,),
    ast.Slice: (_slice,),
    ast.Subscript: (_subscript,),
    ast.Name: (_name,),
}


def evidence_of(kinds: Sequence[tuple[str, str, str]]) -> Evidence:
    """What signals, as (kind, what, where), say to the operators."""
    pairs: list[Pair] = []
    raised: list[str] = []
    lines: set[int] = set()
    for kind, what, where in kinds:
        if where.startswith("line ") and where[5:].isdigit():
            lines.add(int(where[5:]))
        if kind == "assertion" and (found := re.search(r": got (.*), wanted (.*)\Z", what, re.DOTALL)):
            with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                pairs.append((ast.literal_eval(found.group(1)), ast.literal_eval(found.group(2))))
        elif kind == "exception":
            raised.append(what)
    return Evidence(pairs=tuple(pairs), raised=tuple(raised), lines=frozenset(lines))
