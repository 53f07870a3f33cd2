"""What runs inside the sandbox: a warm process that forks one child a check, and the two kinds of child.

A *candidate* runs untrusted code and answers calls of its functions. A *judge* runs tests, in which those functions are remote.
They are children of two different warm processes, so that no candidate was ever forked from a process that had seen a test; they
talk through the host, which forwards bytes. Values travel as JSON of plain types; anything else is a handle that equals nothing.

This file and `sandbox_wall` are handed to an interpreter as text: they may import the standard library and each other.
"""

import ast
import builtins
import ctypes
import gc
import importlib
import json
import operator
import os
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from mulligan.worlds.sandbox_wall import CHANNEL, NEWPID, Prepared, keep_only, limit

WARM = (
    *("bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "hashlib", "heapq", "itertools", "math"),
    *("random", "re", "statistics", "string", "typing"),
)
MAX_FRAME = 8 << 20
MAX_ITEMS = 1_000_000  # of a remote iterator
MAX_DIGITS = 100_000  # of an integer: writing one down takes the square of its digits
SAID = 300  # characters of a value in a report


def read_exactly(channel: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer mean that the other side is gone."""
    parts = bytearray()
    while len(parts) < size and (part := channel.recv(min(size - len(parts), 1 << 16))):
        parts += part
    return bytes(parts)


def read_frame(channel: socket.socket) -> bytes | None:
    """The next message: four bytes of length, then the message. None at the end, or when it is longer than MAX_FRAME."""
    head = read_exactly(channel, 4)
    size = int.from_bytes(head, "big")
    if len(head) < 4 or size > MAX_FRAME:
        return None
    body = read_exactly(channel, size)
    return body if len(body) == size else None


def write_frame(channel: socket.socket, body: bytes) -> None:
    """Send one message."""
    channel.sendall(len(body).to_bytes(4, "big") + body)


# ---- the warm process ----


def serve(wall: str, fd: int) -> None:
    """Hand the host's ends of a check to a child at `begin`, kill it with all that it started at `end`. Ends with the host.

    `wall` says what stands around: bubblewrap, started by root ("uid N": become that one) or by another "user", or "none".
    The child of the next check is forked, and behind its walls, while the present one works.
    """
    control = socket.socket(fileno=fd)
    for name in WARM:
        importlib.import_module(name)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit is an OSError that can be told
    sys.set_int_max_str_digits(MAX_DIGITS)
    prepared = Prepared(wall)
    gc.freeze()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY) if prepared.stands else -1
    child, (spare, way) = 0, _fork(prepared, own)
    control.sendall(b"1")
    while True:
        order, fds, _, _ = socket.recv_fds(control, 1 << 12, 2)
        if not order:
            return
        if json.loads(order)["order"] == "begin":
            with way:
                socket.send_fds(way, [order], fds)
            for given in fds:
                os.close(given)
            child, (spare, way) = spare, _fork(prepared, own)
        else:
            control.sendall(json.dumps(_end(child, prepared)).encode())


def _fork(prepared: Prepared, own: int) -> tuple[int, socket.socket]:
    """A child that waits for its check, and the way to tell it. `own` is this process's PID namespace, -1 where there is no wall."""
    mine, theirs = socket.socketpair()
    if own >= 0 and prepared.libc.unshare(NEWPID):
        raise OSError(ctypes.get_errno(), "unshare")
    child = os.fork()
    if child == 0:
        try:
            _child(theirs.detach(), prepared)
        except BaseException:
            traceback.print_exc()
        os._exit(70)
    if own >= 0 and prepared.libc.setns(own, NEWPID):
        raise OSError(ctypes.get_errno(), "setns")
    theirs.close()
    return child, mine


def _end(child: int, prepared: Prepared) -> dict[str, float]:
    """Kill the child: as the first process of its namespace it takes all others with it."""
    with suppress(ProcessLookupError):
        (os.kill if prepared.stands else os.killpg)(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    return {"cpu_s": used.ru_utime + used.ru_stime}


def _child(way: int, prepared: Prepared) -> NoReturn:
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    keep_only(way, null, null, null)
    if prepared.stands:
        prepared.own_mounts()
        prepared.drop_rights()
    os.chdir("/tmp")
    prepared.refuse_calls()
    order, fds, _, _ = socket.recv_fds(socket.socket(fileno=CHANNEL), 1 << 12, 2)
    if not order:  # the warm process ended
        os._exit(0)
    told = json.loads(order)
    keep_only(fds[0], os.open("/dev/null", os.O_RDONLY), fds[1], fds[1])
    limit(told["limits"])
    channel = socket.socket(fileno=CHANNEL)
    (_candidate if told["role"] == "candidate" else _judge)(channel)
    sys.stdout.flush()
    os._exit(0)


# ---- values ----


SEQUENCES: Mapping[str, Any] = {"l": list, "t": tuple, "s": set, "f": frozenset, "q": deque}


class Handle:
    """In the judge: something of the candidate's that is no plain value. It equals only itself."""

    def __init__(self, remote: "Remote", number: int, kind: str) -> None:
        self._remote, self._number, self._kind = remote, number, kind

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._remote.ask("call", self, given, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._remote.ask("get", self, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._remote.ask("list", self))

    def __len__(self) -> int:
        return int(self._remote.ask("len", self))

    def __getitem__(self, key: Any) -> Any:
        return self._remote.ask("item", self, key)

    def __repr__(self) -> str:
        return f"<{self._kind}>"


def pack(value: Any, keep: Callable[[Any], list[Any]]) -> Any:
    """`value` as JSON. `keep` gives what stands for an object that is no plain value."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    for tag, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return [tag, *(pack(item, keep) for item in kind.__iter__(value))]
    if isinstance(value, dict):
        return ["d", *([pack(k, keep), pack(v, keep)] for k, v in dict.items(value))]
    if isinstance(value, bytes | bytearray):
        return ["b", bytes(value).hex()]
    if isinstance(value, complex):
        return ["c", value.real, value.imag]
    if isinstance(value, range):
        return ["r", value.start, value.stop, value.step]
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return pack(value.tolist(), keep)
    return keep(value)


def unpack(plain: Any, find: Callable[..., Any]) -> Any:
    """The value that `pack` made `plain` of. `find` gives what a handle stands for."""
    if not isinstance(plain, list):
        return plain
    tag, *items = plain
    match tag:
        case "l" | "t" | "s" | "f" | "q":
            return SEQUENCES[tag](unpack(item, find) for item in items)
        case "d":
            return {unpack(k, find): unpack(v, find) for k, v in items}
        case "b":
            return bytes.fromhex(items[0])
        case "c":
            return complex(*items)
        case "r":
            return range(*items)
    return find(*items)


# ---- the candidate ----


def _candidate(channel: socket.socket) -> None:
    """Load the code of the first message, then answer one call after another."""
    source = json.loads(read_frame(channel) or b'""')
    names: dict[str, Any] = {"__name__": "candidate", "__builtins__": builtins}
    sys.modules["candidate"] = type(sys)("candidate")
    kept: list[Any] = []

    def keep(value: Any) -> list[Any]:
        kept.append(value)
        return ["h", len(kept) - 1, type(value).__name__]

    def answer(act: Callable[[], Any]) -> bytes:
        try:
            made = json.dumps({"value": pack(act(), keep)})
        except BaseException as error:
            made = json.dumps({"raised": _told(error)})
        sys.stdout.flush()
        return made.encode("utf-8", "surrogatepass")

    write_frame(channel, answer(lambda: exec(compile(source, "<candidate>", "exec"), names)))

    def respond(what: str, target: Any, *rest: Any) -> Any:
        if isinstance(target, str) and target not in names:
            raise NameError(f"the program defines no {target!r}")
        return _act(what, names[target] if isinstance(target, str) else target, rest)

    while (asked := read_frame(channel)) is not None:
        question = unpack(json.loads(asked), lambda number, _: kept[number])
        write_frame(channel, answer(partial(respond, *question)))


def _act(what: str, target: Any, rest: Sequence[Any]) -> Any:
    match what:
        case "call":
            given, named = rest
            made = target(*given, **named)
            # a test may look at an argument that was changed in place
            return (made, [item if isinstance(item, list | dict | set) else None for item in given])
        case "get":
            return getattr(target, rest[0])
        case "list":
            return [item for item, _ in zip(target, range(MAX_ITEMS))]  # noqa: B905  # the shorter one ends it
        case "len":
            return len(target)
        case "item":
            return target[rest[0]]
    raise ValueError(what)


def _told(error: BaseException) -> dict[str, Any]:
    """An exception as data: its type and the nearest built-in one, its text, the candidate's own line."""
    line = max((frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<candidate>"), default=0)
    if isinstance(error, SyntaxError) and error.filename == "<candidate>":
        line = error.lineno or 0
    known = next((kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"), "Exception")
    try:
        said = str(error)[:SAID]
    except BaseException:
        said = ""
    return {"type": type(error).__name__[:SAID], "builtin": known, "said": said, "line": line}


# ---- the judge ----


class Raised(Exception):
    """What the candidate's code raised; `raised` makes one that is also of the nearest built-in type, for tests that expect it."""

    told: Mapping[str, Any]


class Gone(BaseException):
    """The candidate's process ended, or answers no more."""


class Differs(Exception):
    """An assertion that does not hold, with both sides."""


class Remote:
    """The candidate's side, seen from the judge."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def ask(self, *asked: Any) -> Any:
        """One question, one answer; raises what the candidate raised."""
        write_frame(self._channel, b"C" + json.dumps(pack(list(asked), self._handle)).encode("utf-8", "surrogatepass"))
        answer = read_frame(self._channel)
        if not answer:
            raise Gone("the program's process ended")
        try:
            told = json.loads(answer)
            value = None if "raised" in told else unpack(told["value"], lambda number, kind: Handle(self, number, str(kind)))
            if asked[0] == "call" and "raised" not in told:
                value = _returned(value, asked[2])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise Gone("the program wrote something else where its answers go") from None
        if "raised" in told:
            raise raised(told["raised"])
        return value

    def function(self, name: str) -> Callable[..., Any]:
        """The candidate's function of that name."""
        return lambda *given, **named: self.ask("call", name, given, named)

    @staticmethod
    def _handle(value: Any) -> list[Any]:
        if isinstance(value, Handle):
            return ["h", value._number, value._kind]
        raise TypeError(f"a test hands over a {type(value).__name__}, which is no plain value")


def _returned(value: Any, given: tuple[Any, ...]) -> Any:
    """What a call returned; arguments that it changed are changed here."""
    made, after = value
    for mine, theirs in zip(given, after, strict=True):
        if type(mine) is type(theirs) and isinstance(mine, list | dict | set) and mine != theirs:
            mine.clear()
            (mine.extend if isinstance(mine, list) else mine.update)(theirs)
    return made


def raised(told: Any) -> Raised:
    """An exception as the candidate told it. Nothing of what it told is believed but text, a line, and the name of a built-in type."""
    told = told if isinstance(told, dict) else {}
    known = getattr(builtins, str(told.get("builtin")), None)
    said = str(told.get("said"))[:SAID]
    error = Raised(said)
    if isinstance(known, type) and issubclass(known, Exception) and known is not Exception:
        with suppress(TypeError):  # such as UnicodeDecodeError, which is made of five things
            error = type("Raised", (Raised, known), {})(said)
    line = told.get("line")
    error.told = {"type": str(told.get("type"))[:SAID], "said": said, "line": line if type(line) is int else 0}
    return error


class _Asserts(ast.NodeTransformer):
    """`assert a == b` becomes a call that can tell both sides."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            sides = [test.left, test.comparators[0], ast.Constant(type(test.ops[0]).__name__)]
            call = ast.Call(func=ast.Name("__holds__", ast.Load()), args=sides, keywords=[])
            return ast.copy_location(ast.Expr(call), node)
        return node


PLAIN = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.is_, operator.is_not)
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    **dict(zip(("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "Is", "IsNot"), PLAIN, strict=True)),
    "In": lambda item, many: item in many,
    "NotIn": lambda item, many: item not in many,
}


def _holds(left: Any, right: Any, how: str) -> None:
    if not COMPARE[how](left, right):
        raise Differs(repr(left)[:SAID], how, repr(right)[:SAID])


def _judge(channel: socket.socket) -> None:
    """For each message run its tests one after another and report on each: no program was ever in this process."""
    while (frame := read_frame(channel)) is not None:
        told, remote = json.loads(frame), Remote(channel)
        names: dict[str, Any] = {"__name__": "judge", "__builtins__": builtins, "__holds__": _holds}
        exec(compile(told["setup"], "<setup>", "exec"), names)
        for name in told["names"]:
            names[name] = remote.function(name)
        for test in told["tests"]:
            report = _tried(test, names)
            write_frame(channel, b"R" + json.dumps(report).encode("utf-8", "surrogatepass"))
            if report["kind"] == "gone":
                break
        write_frame(channel, b"E")


def _tried(test: str, names: dict[str, Any]) -> dict[str, Any]:
    try:
        tree = ast.fix_missing_locations(_Asserts().visit(ast.parse(test)))
        exec(compile(tree, "<test>", "exec"), names)
    except Differs as differs:
        left, how, right = differs.args
        return {"kind": "failed", "left": left, "how": how, "right": right}
    except Gone as gone:
        return {"kind": "gone", "said": str(gone)}
    except Raised as error:
        return {**error.told, "kind": "raised"}
    except AssertionError as error:
        return {"kind": "failed", "said": str(error)[:SAID]}
    except BaseException as error:
        return {**_told(error), "line": 0, "kind": "raised"}
    return {"kind": "passed"}


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
