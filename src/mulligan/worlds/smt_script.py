"""SMT-LIB scripts and the models that answer them, as text: cut into commands, and joined for a check.

In: a script; an answer. Out: its declarations and assertions; the definitions in a model, or what is wrong with it; a script in which the
model's definitions stand in place of the declarations. An answer can only define what the script declares, with its sorts: no other
command of it gets to a solver. Scripts that ask several times are refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mulligan.errors import InvalidData

LONGEST = 2_000_000  # characters of a script
LONGEST_ANSWER = 100_000
_TOKEN = re.compile(r';[^\n]*|"(?:[^"]|"")*"|\|[^|]*\||[()]|[^\s()";|]+')
KEPT = frozenset(
    {"declare-sort", "define-sort", "declare-datatypes", "declare-datatype"}
    | {"define-fun", "define-fun-rec", "define-funs-rec", "define-const"}
)
IGNORED = frozenset(
    {"set-info", "set-option", "set-logic", "get-model", "get-value", "get-unsat-core", "get-proof", "get-info"}
    | {"echo", "exit", "check-sat"}
)
INCREMENTAL = frozenset({"push", "pop", "check-sat-assuming", "reset", "reset-assertions"})


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, the name that it is about, and its text."""

    head: str
    name: str
    text: str


@dataclass(frozen=True)
class Script:
    """The commands of a script up to its `check-sat`."""

    commands: tuple[Command, ...]
    status: str = ""
    logic: str = ""

    @cached_property
    def declared(self) -> Mapping[str, tuple[str, str]]:
        """Name → sorts of the arguments, and of the result, each as one line."""
        found = {}
        for command in self.commands:
            if command.head in ("declare-fun", "declare-const"):
                parts = _parts(command.text)
                found[command.name] = (parts[2], parts[3]) if command.head == "declare-fun" else ("()", parts[2])
        return found

    @property
    def assertions(self) -> tuple[str, ...]:
        return tuple(command.text for command in self.commands if command.head == "assert")

    def text(self, definitions: Mapping[str, str] | None = None) -> str:
        """The script, with `definitions` in place of the declarations of their names."""
        given = definitions or {}
        kept = [given.get(c.name, c.text) if c.head in ("declare-fun", "declare-const") else c.text for c in self.commands]
        return "\n".join([f"(set-logic {self.logic})"] * bool(self.logic) + kept)


def read_script(text: str, name: str = "the script") -> Script:
    """Raises InvalidData for what is no script, or one that asks more than once."""
    if len(text) > LONGEST:
        raise InvalidData(f"{name}: more than {LONGEST} characters")
    kept: list[Command] = []
    status = logic = ""
    asked = False
    for part in _expressions(text, name):
        parts = _parts(part)
        head = parts[0] if parts else ""
        if head in INCREMENTAL or (head == "check-sat" and asked) or (head == "assert" and asked):
            raise InvalidData(f"{name}: `{head}` makes a script of several questions; one is read")
        asked = asked or head == "check-sat"
        if head == "set-info" and len(parts) > 2 and parts[1] == ":status":
            status = parts[2]
        elif head == "set-logic" and len(parts) > 1:
            logic = parts[1]
        elif head in KEPT or head in ("assert", "declare-fun", "declare-const"):
            if len(parts) < {"assert": 2, "declare-const": 3, "declare-fun": 4}.get(head, 2):
                raise InvalidData(f"{name}: `{part[:60]}` lacks a part")
            kept.append(Command(head, parts[1], part))
        elif head not in IGNORED:
            raise InvalidData(f"{name}: `{part[:60]}` is no command that is read here")
    if not any(command.head == "assert" for command in kept):
        raise InvalidData(f"{name}: there is no assertion in it")
    return Script(tuple(kept), status, logic)


def _expressions(text: str, name: str) -> list[str]:
    """The top-level expressions of a text."""
    found: list[str] = []
    depth = start = 0
    end = 0
    for token in _TOKEN.finditer(text):
        if token.group()[0] == ";":
            continue
        gap = text[end : token.start()].strip()
        if gap and not gap.startswith(";"):
            raise InvalidData(f"{name}: {gap[:40]!r} cannot be read")
        end = token.end()
        if token.group() == "(":
            start = token.start() if depth == 0 else start
            depth += 1
        elif token.group() == ")":
            depth -= 1
            if depth < 0:
                raise InvalidData(f"{name}: there is a ) too many")
            if depth == 0:
                found.append(text[start:end])
        elif depth == 0:
            raise InvalidData(f"{name}: {token.group()[:40]!r} stands outside of any command")
    if depth:
        raise InvalidData(f"{name}: {depth} ( are not closed")
    if text[end:].strip() and not text[end:].strip().startswith(";"):
        raise InvalidData(f"{name}: {text[end:].strip()[:40]!r} cannot be read")
    return found


def _parts(expression: str) -> list[str]:
    """The parts of one expression, each as one line without comments."""
    words = [token.group() for token in _TOKEN.finditer(expression) if token.group()[0] != ";"][1:-1]
    parts: list[str] = []
    depth = 0
    for word in words:
        if depth == 0:
            parts.append(word)
        else:
            parts[-1] += word if word == ")" or parts[-1].endswith("(") else f" {word}"
        depth += (word == "(") - (word == ")")
    return parts


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent says: sat with definitions, or unsat; `fault` says why it is neither."""

    status: str = ""
    definitions: tuple[tuple[str, str], ...] = ()
    fault: str = ""


_ASSIGNMENT = re.compile(r"^\s*(\|[^|]+\||[^\s()=:|]+)\s*(?::=|=|:)\s*(.+?)\s*[,;]?\s*$")


def read_answer(text: str, script: Script) -> Answer:
    """`unsat`; or `sat` and a model: `(define-fun x () Int 3)`, also in the parentheses of `(model …)`, or lines such as `x = 3`."""
    text = text.strip()
    if len(text) > LONGEST_ANSWER:
        return Answer(fault=f"it has more than {LONGEST_ANSWER} characters")
    if re.fullmatch(r"unsat(?:isfiable)?\.?", text, re.IGNORECASE):
        return Answer(status="unsat")
    body = re.sub(r"^\s*sat(?:isfiable)?\b[.:]?", "", text, flags=re.IGNORECASE).strip()
    if not body:
        return Answer(fault="it says sat and gives no model")
    try:
        defined = _defined(body) if body.startswith("(") else _assigned(body, script)
        return Answer(status="sat", definitions=tuple(_fitting(defined, script)))
    except InvalidData as error:
        return Answer(fault=str(error))


def _defined(body: str) -> list[list[str]]:
    """The parts of each define-fun."""
    expressions = _expressions(body, "the model")
    if len(expressions) == 1 and not expressions[0].startswith("(define-"):
        inner = expressions[0].strip()[1:-1].strip().removeprefix("model")
        expressions = _expressions(inner, "the model")
    return [_parts(expression) for expression in expressions]


def _assigned(body: str, script: Script) -> list[list[str]]:
    lines = [line for line in re.split(r"[\n,;]" if "(" not in body else r"\n", body) if line.strip()]
    found = []
    for line in lines:
        match = _ASSIGNMENT.match(line)
        if not match:
            raise InvalidData(f"{line.strip()[:60]!r} is no part of a model")
        name, value = match.groups()
        arguments, sort = script.declared.get(name, ("", ""))
        if arguments and arguments != "()":
            raise InvalidData(f"{name} is a function: define it with define-fun")
        value = re.sub(r"^-\s*(\d+(?:\.\d+)?)$", r"(- \1)", value)
        value = re.sub(r"^(\d+)/(\d+)$", r"(/ \1 \2)", value)
        whole = _expressions(f"(x {value})", f"the value of {name}")
        if len(whole) != 1 or len(_parts(whole[0])) != 2:  # nothing but one term may get to a solver
            raise InvalidData(f"{value[:60]!r} is no value")
        found.append(["define-fun", name, "()", sort, value])
    return found


def _fitting(defined: Sequence[Sequence[str]], script: Script) -> list[tuple[str, str]]:
    """Name and definition of each, where the script declares it so."""
    found: dict[str, str] = {}
    for parts in defined:
        if len(parts) != 5 or parts[0] != "define-fun":
            raise InvalidData(f"`({' '.join(parts)[:60]})` is no (define-fun name (arguments) sort value)")
        _, name, arguments, sort, value = parts
        if name not in script.declared:
            raise InvalidData(f"{name} is not declared")
        if name in found:
            raise InvalidData(f"{name} is defined twice")
        sorts = " ".join(_parts(argument)[1] for argument in _inner(arguments) if len(_parts(argument)) == 2)
        if (f"({sorts})", sort) != (re.sub(r"\s+", " ", script.declared[name][0]), script.declared[name][1]):
            raise InvalidData(f"{name} is declared as {script.declared[name][0]} → {script.declared[name][1]}, not as ({sorts}) → {sort}")
        found[name] = f"(define-fun {name} {arguments} {sort} {value})"
    return list(found.items())


def _inner(arguments: str) -> list[str]:
    return _expressions(arguments.strip()[1:-1], "the arguments") if arguments.strip() != "()" else []
