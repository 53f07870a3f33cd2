"""The text of a programming action: its code, the program that it makes with what the problem gives, its tokens.

In: an action as an agent wrote it, and its task. Out: text, trees and tokens. Whatever the action is, nothing is raised and nothing run.
"""

import ast
import io
import re
import tokenize
import warnings
from contextlib import suppress
from functools import lru_cache

from mulligan.records import Task

LONGEST = 50_000  # characters of an action
FENCE = re.compile(r"```[ \t]*(?:python|py|python3)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)


def clean(action: str) -> str:
    """The code of an action: what the first fence holds, without blank lines around it."""
    fenced = FENCE.search(action)
    return (fenced.group(1) if fenced else action).strip("\n").rstrip()


def assemble(task: Task, action: str) -> tuple[str, int]:
    """The program that an action makes, and how many lines stand before the action's first.

    What the problem gives ahead of the function goes first. A body alone continues the problem's stub.
    """
    code, before, stub = clean(action), str(task.payload.get("before", "")), str(task.payload.get("stub", ""))
    if stub and code and not parses(code):
        body = code if code[:1] in " \t" else "\n".join(f"    {line}" for line in code.splitlines())
        if parses(f"{stub}\n{body}") and not re.search(rf"^\s*def\s+{re.escape(str(task.payload['entry']))}\b", code, re.MULTILINE):
            return f"{stub.rstrip()}\n{body}\n", stub.rstrip().count("\n") + 1
    return (f"{before}\n{code}\n", before.count("\n") + 1) if before else (f"{code}\n", 0)


@lru_cache(maxsize=256)
def parses(source: str) -> bool:
    """Whether it is Python that could be run: `return` outside a function is not."""
    return _read(source, 0) is not None


def tree(source: str) -> ast.Module | None:
    """The parsed source; None where it does not parse."""
    found = _read(source, ast.PyCF_ONLY_AST)
    return found if isinstance(found, ast.Module) else None


def _read(source: str, flags: int) -> object:
    with warnings.catch_warnings(action="ignore"):
        try:
            return compile(source, "<action>", "exec", flags, dont_inherit=True) if len(source) <= 2 * LONGEST else None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


WORDS = re.compile(r"\w+|[^\w\s]")
_BLANK = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
_LAYOUT = {tokenize.INDENT: "<indent>", tokenize.DEDENT: "<dedent>", tokenize.NEWLINE: "<line>"}


def tokens(source: str) -> list[str]:
    """Python's own tokens, without comments; words and signs where it does not tokenize."""
    found: list[str] = []
    with suppress(tokenize.TokenError, SyntaxError, ValueError):
        for token in tokenize.generate_tokens(io.StringIO(source[:LONGEST]).readline):
            if token.type not in _BLANK:
                found.append(_LAYOUT.get(token.type, token.string))
        while found and found[-1] in _LAYOUT.values():
            found.pop()
        return found
    return WORDS.findall(source[:LONGEST])
