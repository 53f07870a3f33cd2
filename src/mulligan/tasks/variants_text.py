"""A programming problem taken apart so that it can be written anew: signature, prose, examples, and its tests as cases.

In: the text of a problem and assertions about its function. Out: Cases (arguments as written, the value that is wanted), and the text with
other examples, other words or another signature, everything else as it was. Only assertions that compare one call with one literal are
cases; a text with an example that is not understood is not rewritten, so that no example contradicts what is asked.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mulligan.worlds.code_text import tree

_YIELDS = re.compile(r"(\s*(?:#\s*)?(?:==>|==|=>|->|→|➞|=|returns|should return)\s*)(.+?)([.,;]?\s*)$")
_RESULT = re.compile(r"(.*\b(?:output|result)s?(?:\s+(?:should be|is|will be))?\s*[:=]*>?\s*)(\S.*?)(\.?\s*)$", re.IGNORECASE)
_TOLD = re.compile(r"\b(?:output|result)s?(?:\s+(?:should be|is|will be)|\s*[:=])\s*\S|^\s*[-=]+>", re.IGNORECASE)
LONGEST = 2_000  # characters of a line
_SPELT = {"true": "True", "false": "False", "null": "None", "none": "None"}
_EXAMPLES = re.compile(r"\s*(?:for )?(?:some )?(?:examples?|instances?|e\.g\.)\b", re.IGNORECASE)
_QUOTES = re.compile(r'"{3}|\'{3}')
_UNREADABLE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)


@dataclass(frozen=True, slots=True)
class Case:
    """One call and what it should return: the arguments as they are written, the value."""

    arguments: tuple[str, ...]
    wanted: Any


Change = Callable[[Case], Case]


def case_of(test: str, entry: str) -> Case | None:
    """The case of an assertion; None where it is not one call compared with one literal. Imports before it do not matter."""
    parsed = tree(test)
    *before, last = parsed.body if parsed and parsed.body else [ast.Pass()]
    if not isinstance(last, ast.Assert) or not all(isinstance(node, ast.Import) or _is_name(node) for node in before):
        return None
    asked: ast.expr = last.test
    wanted: ast.expr = ast.Constant(True)
    match last.test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            asked, wanted = left, right
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            asked, wanted = operand, ast.Constant(False)
    arguments = _arguments(asked, entry)
    with suppress(*_UNREADABLE):
        return Case(arguments, ast.literal_eval(wanted)) if arguments is not None else None
    return None


def _is_name(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Name)


def _arguments(call: ast.expr, entry: str) -> tuple[str, ...] | None:
    named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry
    if not isinstance(call, ast.Call) or not named or call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    return tuple(map(ast.unparse, call.args))


def test_of(case: Case, entry: str) -> str:
    """A case as an assertion."""
    return f"assert {entry}({', '.join(case.arguments)}) == {case.wanted!r}"


# ---- examples in the text ----


def with_examples(text: str, entry: str, change: Change, renamed: str = "") -> str | None:
    """The text with every example changed, and its calls under another name, if one is given; None where one is not understood.

    An example is a session, an assertion, a call with its value, or a line such as "the output should be 6".
    """
    name = renamed or entry
    lines: list[str] = []
    rest = text.split("\n")
    while rest:
        line = rest.pop(0)
        stripped, start = line.lstrip(), line.find(f"{entry}(")
        indent = line[: len(line) - len(stripped)]
        if len(line) > LONGEST:
            return None
        if stripped.startswith(("def ", "async def ")) or (start < 0 and not _TOLD.search(line)):
            lines.append(line)
        elif start < 0 and (told := _result(line)):
            lines.append(f"{told[0]}{change(Case((), told[1])).wanted!r}{told[2]}")
        elif stripped.startswith("assert ") and (case := case_of(stripped, entry)):
            lines.append(indent + test_of(change(case), name))
        elif stripped.startswith(">>>") and (session := _session(line[start:], entry, rest[0] if rest else "")):
            made = change(session[0])
            lines.append(f"{line[:start]}{name}({', '.join(made.arguments)})")
            lines += [f"{indent}{made.wanted!r}"] if made.wanted is not None else []
            del rest[: session[1]]
        elif stated := _stated(line, start, entry):
            case, sign, tail = stated
            made = change(case)
            lines.append(f"{line[:start]}{name}({', '.join(made.arguments)}){sign}{made.wanted!r}{tail}")
        elif f"{entry}()" in line:  # in a sentence about it
            lines.append(line.replace(f"{entry}()", f"{name}()"))
        else:
            return None
    return "\n".join(lines)


def _result(line: str) -> tuple[str, Any, str] | None:
    """A line that gives a result alone: what stands before it, the value, what follows."""
    found = _RESULT.match(line)
    with suppress(*_UNREADABLE):
        return (found[1], ast.literal_eval(_SPELT.get(found[2], found[2])), found[3]) if found else None
    return None


def _session(call: str, entry: str, following: str) -> tuple[Case, int] | None:
    """The case of a line after `>>>`, and how many lines its value takes: nothing is printed for None."""
    arguments = _called(call.strip(), entry)
    if arguments is None:
        return None
    said = following.strip()
    if not said or said.startswith(">>>") or _QUOTES.match(said):
        return Case(arguments, None), 0
    with suppress(*_UNREADABLE):
        return Case(arguments, ast.literal_eval(said)), 1
    return None


def _stated(line: str, start: int, entry: str) -> tuple[Case, str, str] | None:
    """The case of `f(…) → value` in a line, the sign, and what follows the value."""
    for end in (place + 1 for place, character in enumerate(line) if character == ")" and place > start):
        arguments = _called(line[start:end], entry)
        if arguments is None:
            continue
        found = _YIELDS.match(line[end:])
        with suppress(*_UNREADABLE):
            if found:
                return Case(arguments, ast.literal_eval(_SPELT.get(found[2], found[2]))), found[1], found[3]
        return None
    return None


def _called(text: str, entry: str) -> tuple[str, ...] | None:
    parsed = tree(text)
    if parsed is None or len(parsed.body) != 1 or not isinstance(parsed.body[0], ast.Expr):
        return None
    return _arguments(parsed.body[0].value, entry)


# ---- prose ----


def prose_lines(text: str, entry: str) -> list[int]:
    """The numbers of the lines that say in words what is asked: no code, no example and no value of one."""
    found, session = [], False
    for number, line in enumerate(text.split("\n")):
        stripped = line.strip()
        code = stripped.startswith((">>>", "def ", "async def ", "import ", "from ", "assert ", "@", "#", "return "))
        bare = _QUOTES.sub("", stripped).strip()
        if bare and not code and not session and not _calls(stripped, entry):
            found.append(number)
        session = stripped.startswith(">>>")
    return found


def _calls(line: str, entry: str) -> bool:
    """Whether a line calls the function with something: `f()` is how a sentence names it."""
    return re.search(rf"(?<!\w){re.escape(entry)}\((?!\))", line) is not None


def in_prose(text: str, entry: str, put: Callable[[str], str]) -> str:
    """The text with `put` of every line of prose."""
    lines = text.split("\n")
    for number in prose_lines(text, entry):
        lines[number] = put(lines[number])
    return "\n".join(lines)


def prose(text: str, entry: str) -> str:
    """The lines of prose alone."""
    lines = text.split("\n")
    return "\n".join(lines[number] for number in prose_lines(text, entry))


def tells_results(text: str, entry: str) -> bool:
    """Whether the prose gives a result without a call, such as "the output should be 6"."""
    return any(_TOLD.search(line) for line in prose(text, entry).split("\n"))


def with_sentence(text: str, entry: str, sentence: str) -> str | None:
    """The text with a sentence at the end of its prose; None where there is no prose to end."""
    lines = text.split("\n")
    numbers = [n for n in prose_lines(text, entry) if not _EXAMPLES.match(lines[n])]
    calls = (n for n, line in enumerate(lines) if _calls(line, entry) and not line.lstrip().startswith(("def ", "async def ")))
    first = next(calls, len(lines))
    before = [n for n in numbers if n < first]
    if not before:
        return None
    line, top = lines[before[-1]], lines[before[0]]
    closing = re.search(r"\s*(\"{3}|'{3})\s*$", line)
    indent = top[: len(top) - len(top.lstrip())]
    body = line[: closing.start()] if closing else line
    lines[before[-1]] = body.rstrip() + ("" if body.rstrip().endswith((".", "!", "?", ":")) else ".")
    lines.insert(before[-1] + 1, f"{indent}{sentence}")
    if closing:
        lines.insert(before[-1] + 2, f"{indent}{closing[1]}")
    return "\n".join(lines)


# ---- names ----


def parameters(text: str, entry: str) -> list[str]:
    """The names of the plain parameters in the function's first line; empty where it has others, or is not there."""
    found = re.search(rf"^(?:async )?def {re.escape(entry)}\b.*?:[ \t]*$", text, re.MULTILINE | re.DOTALL)
    parsed = tree(f"{found[0]}\n    pass\n") if found else None
    if parsed is None or not isinstance(parsed.body[0], ast.FunctionDef):
        return []
    given = parsed.body[0].args
    plain = not (given.vararg or given.kwarg or given.kwonlyargs or given.defaults or given.posonlyargs)
    return [argument.arg for argument in given.args] if plain else []


def with_names(code: str, names: Mapping[str, str]) -> str:
    """Code with names replaced, token by token: texts and comments stay."""
    lines = code.splitlines(keepends=True)
    with suppress(tokenize.TokenError, SyntaxError, ValueError):
        found = [t for t in tokenize.generate_tokens(io.StringIO(code).readline) if t.type == tokenize.NAME and t.string in names]
        for token in reversed(found):
            row, (start, end) = token.start[0] - 1, (token.start[1], token.end[1])
            lines[row] = lines[row][:start] + names[token.string] + lines[row][end:]
    return "".join(lines)


def with_words(text: str, names: Mapping[str, str]) -> str:
    """Any text with names replaced where they stand as words; one that English may have, such as `maximum`, only where code would go on."""
    if not names:
        return text
    listed = sorted(names, key=len, reverse=True)
    pattern = "|".join(rf"{re.escape(name)}(?=\s*[(`:,\])=])" if len(name) > 4 and name.isalpha() else re.escape(name) for name in listed)
    return re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", lambda found: names[found[0]], text)


def cases_of(tests: Sequence[str], entry: str) -> list[Case] | None:
    """The cases of all tests; None where one is no case."""
    found = [case for test in tests if (case := case_of(test, entry))]
    return found if len(found) == len(tests) else None
