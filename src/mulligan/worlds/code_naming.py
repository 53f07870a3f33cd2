"""What a lesson in words names that a Python problem does not have, and code in it that does not parse.

In: a situation and a text. Out: misfits. Known are Python's own names, its standard library's, what the text's own code defines, and every
word that the agent has been shown. Nothing is run or imported for it. Not promised: that a method exists on the value it is called on.
"""

import ast
import bisect
import builtins
import collections
import functools
import heapq
import itertools
import keyword
import math
import operator
import re
import string
import sys
import typing
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from mulligan.naming import TOLD, Code, misfit, names, parts, too_long
from mulligan.records import Misfit, Situation
from mulligan.worlds.code_text import tree

MODULES = (bisect, builtins, collections, functools, heapq, itertools, math, operator, re, string, typing)
KINDS = (str, bytes, int, float, complex, bool, list, tuple, dict, set, frozenset, BaseException, re.Match, re.Pattern, collections.Counter)
LANGUAGE = frozenset(keyword.kwlist) | sys.stdlib_module_names | {name for module in MODULES for name in dir(module)}
METHODS = frozenset(name for kind in (*KINDS, collections.deque, collections.OrderedDict) for name in dir(kind))
_ORDER = re.compile(r"O\([^`]*\)")
_MISSING = re.compile(r"(?:NameError: name|no attribute|No module named|cannot import name) '(\w+)")
WRAPPED = (  # what makes a program of a piece: a statement's first line, a clause, a decorator, parameters, arguments
    "{}", "{} pass", "{}: pass", "if 1: pass\n{} pass", "if 1: pass\n{}: pass", "try: pass\n{} pass", "try: pass\n{}: pass",
    "{}\ndef print(): pass", "def print({}): pass", "print({})",
)  # fmt: skip


def misfits(situation: Situation, text: str) -> Sequence[Misfit]:
    """All that `text` names and quotes that does not fit the problem."""
    if long := too_long(text):
        return long
    found = parts(text)
    trees, wrong = list[ast.Module](), list[Misfit]()
    for code in (*found.code, *map(Code, names(found.prose))):
        if not any(map(str.isalnum, code.text)) or all(map(keyword.iskeyword, code.text.split())) or _ORDER.fullmatch(code.text):
            continue  # an operator, a keyword, O(n log n)
        parsed = _parsed(code)
        if parsed is None:
            wrong.append(Misfit(kind="unparseable", what=code.text[:TOLD]))
        else:
            trees.append(parsed)
    nodes = [node for parsed in trees for node in ast.walk(parsed)]
    imported = {alias.asname or alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    own = (_words(situation.sight) - _missed(situation)) | {name for node in nodes for name in _bound(node)}
    known, modules = own | LANGUAGE | imported, imported | (sys.stdlib_module_names - own)
    return list(dict.fromkeys([*wrong, *(misfit(name) for node in nodes for name in _used(node, known, modules))]))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d]\w*", text))


def _missed(situation: Situation) -> set[str]:
    """The names that answers say are not there, and the task does not have either."""
    said = {name for attempt in situation.history for name in _MISSING.findall(attempt.verdict.feedback)}
    return said - _words(replace(situation, history=()).sight)


def _parsed(code: Code) -> ast.Module | None:
    """The tree of a program, or, on one line, of a piece of one: a clause, a signature, arguments."""
    for form in WRAPPED if not code.fenced else WRAPPED[:1]:
        if found := tree(form.format(code.text)):
            return found
    return None


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node defines."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            yield name


def _used(node: ast.AST, known: Collection[str], modules: Collection[str]) -> Iterator[str]:
    """The names that a node needs and that nothing has. What a library's module holds is its own business."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name not in known:
            yield name
        case ast.Attribute(attr=name, value=value, ctx=ast.Load()) if (
            name not in known and name not in METHODS and not _of_library(value, modules)
        ):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else aliases[0].name
            if module.partition(".")[0] not in sys.stdlib_module_names:
                yield module


def _of_library(value: ast.expr, modules: Collection[str]) -> bool:
    while isinstance(value, ast.Attribute | ast.Call | ast.Subscript):
        value = value.func if isinstance(value, ast.Call) else value.value
    return isinstance(value, ast.Name) and value.id in modules
