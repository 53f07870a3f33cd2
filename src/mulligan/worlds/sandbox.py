"""The sandbox: untrusted Python checked in milliseconds, behind walls of the kernel.

In: a program (untrusted source) and tests of its functions. Out: one outcome a test. Each check runs in a fresh process, forked
from a warm interpreter inside bubblewrap, and its tests in another, likewise walled: own PID, mount, network, IPC and host names,
a read-only root of system libraries and Python, nothing of the user's, private empty /tmp and /dev/shm, no environment, stdin
closed, limits on time, memory, processes, files and output; all processes of a check are dead when it ends. The tests call the
program's functions through the host, which forwards bytes: the program can neither see a test nor write a verdict.

Not promised: safety from faults of the kernel. `process` walls nothing off: it keeps the limits and the separation of program and
verdict, but the program can read and write what you can, use the network, and leave processes behind that call setsid.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from mulligan.errors import UsageError
from mulligan.worlds.sandbox_inside import read_frame, write_frame

Wall = Literal["bubblewrap", "process"]
Kind = Literal["passed", "failed", "raised", "timeout", "gone", "broken"]  # broken: the tests' own process, or the sandbox, ended

INSIDE = Path(__file__).with_name("sandbox_inside.py")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
RULES = "1"  # changes whenever an outcome could change for reasons that are not in the limits
PRIVATE = 256 << 20  # bytes of a private /tmp
JUDGEMENTS = 500  # of one judge before it is replaced
RIGHTS = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_KILL")  # of the warm process; a check has none
INSTALL = "running code needs bubblewrap: apt-get install bubblewrap (dnf, pacman and apk call it so too), or choose --sandbox=process"
ELSEWHERE = "a container needs user namespaces (docker run --security-opt seccomp=unconfined), or choose --sandbox=process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one check may use. Seconds, bytes."""

    wall_s: float = 5.0  # for loading the program, and again for each test
    total_s: float = 30.0
    cpu_s: int = 20
    memory: int = 1 << 30
    processes: int = 32
    file_size: int = 16 << 20
    output: int = 10_000  # bytes of output that are kept

    def resources(self, role: str) -> dict[str, int]:
        """As the kernel takes them. The judge of many checks is watched by the clock alone."""
        return {
            **({"RLIMIT_CPU": self.cpu_s} if role == "candidate" else {}),
            "RLIMIT_AS": self.memory,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.file_size,
            "RLIMIT_NOFILE": 128,
            "RLIMIT_CORE": 0,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Untrusted `source`, and `tests` (snippets of Python) that call its functions by `names`. `setup` is run before the tests."""

    source: str
    tests: Sequence[str]
    names: Sequence[str]
    setup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one test, or of loading the program. `line` is the program's own, 0 where none is to blame."""

    kind: Kind
    left: str = ""  # both sides of a comparison that does not hold
    how: str = ""
    right: str = ""
    type: str = ""  # of an exception
    said: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a check. `fault` is set when the program could not be loaded; then there are no outcomes."""

    outcomes: tuple[Outcome, ...] = ()
    fault: Outcome | None = None
    output: str = ""
    cpu_s: float = 0.0


class _Timeout(Exception):
    """A frame did not come in time."""


class _Channel:
    """Frames to and from one child. Closed or broken reads as None."""

    def __init__(self, end: socket.socket, output: int) -> None:
        self._end, self.output = end, output

    def send(self, body: bytes) -> None:
        with suppress(OSError):  # it is gone, which the next read says
            write_frame(self._end, body)

    def receive(self, deadline: float) -> bytes | None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _Timeout
        self._end.settimeout(left)
        try:
            return read_frame(self._end)
        except TimeoutError:
            raise _Timeout from None
        except OSError:
            return None

    def alive(self) -> bool:
        """Whether the other side is still there; it has nothing to say between checks."""
        self._end.settimeout(0)
        try:
            self._end.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self._end.close()
        os.close(self.output)


@dataclass(slots=True)
class _Warm:
    """A warm interpreter behind its wall, started on first use and again when it died. One child at a time."""

    wall: Wall
    role: str
    _process: subprocess.Popen[bytes] | None = None
    _control: socket.socket | None = None
    _first: int = -1  # handle of the first process behind the wall: with it all others there are killed

    def begin(self, limits: Limits) -> _Channel:
        """A child for one check. An interpreter that died since is replaced; raises UsageError where the wall cannot be put up."""
        for _ in range(2):
            if channel := self._begin(limits):
                return channel
            said = self.close().strip() or "it says nothing"
        raise UsageError(f"{self.wall} cannot wall code off here ({said}): {ELSEWHERE}")

    def _begin(self, limits: Limits) -> _Channel | None:
        if self._control is None and not self._start():
            return None
        mine, theirs = socket.socketpair()
        channel = _Channel(mine, os.memfd_create("output"))
        told = {"order": "begin", "role": self.role, "limits": limits.resources(self.role)}
        with theirs, suppress(OSError):
            assert self._control is not None
            socket.send_fds(self._control, [json.dumps(told).encode()], [theirs.fileno(), channel.output])
            return channel
        channel.close()
        return None

    def end(self) -> float | None:
        """Kill the child and all that it started; the processor time that it took, in seconds. None where the interpreter had died."""
        with suppress(OSError, ValueError):
            if self._control:
                self._control.sendall(b'{"order": "end"}')
                if told := self._control.recv(1 << 12):
                    return float(json.loads(told)["cpu_s"])
        self.close()
        return None

    def _start(self) -> bool:
        """Whether it stands there and answers."""
        into, out = os.pipe()
        command, told = walled(self.wall, INSIDE, rights=RIGHTS, more=["--info-fd", str(out)])
        mine, theirs = socket.socketpair()
        with theirs, os.fdopen(into) as info:
            env = {"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}
            self._process = subprocess.Popen(
                [*command, told, str(theirs.fileno())],
                env=env,
                pass_fds=(theirs.fileno(), out),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            os.close(out)
            with suppress(ValueError, KeyError, OSError):  # nothing is told without a wall, or where it cannot be put up
                self._first = os.pidfd_open(json.loads(info.read())["child-pid"]) if self.wall == "bubblewrap" else -1
        mine.settimeout(30)
        self._control = mine
        with suppress(OSError):
            return bool(mine.recv(1))
        return False

    def close(self) -> str:
        """End the interpreter, and with it everything behind its wall; what it said."""
        if self._control:
            self._control.close()
        said = b""
        if self._process:
            self._process.kill()
            if self._first >= 0:  # killing bubblewrap does not kill what it started
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._first, signal.SIGKILL)
                os.close(self._first)
            _, said = self._process.communicate()
        self._control, self._process, self._first = None, None, -1
        return said.decode("utf-8", "replace")[-300:]


def walled(
    wall: Wall, script: Path, *, rights: Sequence[str], readable: Sequence[Path] = (), more: Sequence[str] = ()
) -> tuple[list[str], str]:
    """The command of an interpreter that runs `script` behind the wall, its last argument, and what the script is to be told of the wall.

    `rights` are what it keeps until it drops them, `readable` places that it may read, `more` further arguments of bubblewrap.
    Raises UsageError where there is no bubblewrap.
    """
    python = [sys.executable, "-s", "-P", "-c", _text(script)]
    if wall == "process":
        return python, "none"
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise UsageError(INSTALL)
    own = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), str(Path(sys.executable).resolve().parent.parent)}
    own |= set(map(str, readable))
    names = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"]
    is_root = os.getuid() == 0
    if not is_root:  # as its root, which is the user outside: as another one it would be put into a namespace below that owns nothing
        names += ["--unshare-user", "--uid", "0", "--gid", "0"]
    above = sorted({str(parent) for place in (*own, *SYSTEM) for parent in Path(place).parents} - {"/", *SYSTEM})
    folders = [part for place in above for part in ("--perms", "0755", "--dir", place)]  # a check is nobody's, and has to get through
    binds = [*folders, *(part for place in (*SYSTEM, *sorted(own)) for part in ("--ro-bind-try", place, place))]
    kept = ["--cap-drop", "ALL", *(part for right in rights for part in ("--cap-add", right))]
    empty = [part for place in ("/tmp", "/dev/shm") for part in ("--perms", "1777", *_bounded(bwrap), "--tmpfs", place)]
    places = ["--proc", "/proc", "--dev", "/dev", *empty, "--chdir", "/tmp", "--new-session"]
    return [bwrap, *names, *places, *binds, *more, *kept, "--", *python], f"uid {_nobody()}" if is_root else "user"


@lru_cache(maxsize=1)
def _bounded(bwrap: str) -> list[str]:
    """What bounds the next tmpfs, which older versions cannot say."""
    known = subprocess.run([bwrap, "--help"], capture_output=True, text=True).stdout
    return ["--size", str(PRIVATE)] if "--size" in known else []


def _text(script: Path) -> str:
    """A script of this package and what it imports of it, for an interpreter that does not find the package."""
    part = "mulligan.worlds.sandbox_wall"
    text = Path(__file__).with_name("sandbox_wall.py").read_text("utf-8")
    made = f"import sys\nm = sys.modules[{part!r}] = type(sys)({part!r})\nexec(compile({text!r}, 'sandbox_wall.py', 'exec'), m.__dict__)\n"
    return made + script.read_text("utf-8")


def _nobody() -> int:
    """A user that nothing belongs to, another one for each sandbox: the kernel counts processes by user."""
    return secrets.randbelow(1 << 29) + (1 << 30)


@dataclass(slots=True)
class Sandbox:
    """Checks programs one after another; threads take turns. Close it, or use it as a context manager."""

    wall: Wall = "bubblewrap"
    limits: Limits = field(default_factory=Limits)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _candidates: _Warm = field(init=False)
    _judges: _Warm = field(init=False)
    _judge: _Channel | None = None  # stays from check to check, since no program is ever in it
    _judgements: int = 0

    def __post_init__(self) -> None:
        self._candidates, self._judges = _Warm(self.wall, "candidate"), _Warm(self.wall, "judge")

    def check(self, program: Program) -> Report:
        """One outcome a test. A test that hangs or ends the process costs itself: the rest is tried in fresh processes."""
        with self._lock:
            until = time.monotonic() + self.limits.total_s
            outcomes: list[Outcome] = []
            output, cpu = "", 0.0
            while len(outcomes) < len(program.tests) or not program.tests:
                report = self._round(program, len(outcomes), until)
                output, cpu = output or report.output, cpu + report.cpu_s
                if not outcomes and (report.fault or not program.tests):
                    return Report(fault=report.fault, output=output, cpu_s=cpu)
                if report.fault:  # it was loaded before: what was found so far stays found
                    outcomes += [report.fault] * (len(program.tests) - len(outcomes))
                outcomes += report.outcomes
            return Report(outcomes=tuple(outcomes), output=output, cpu_s=cpu)

    def _round(self, program: Program, first: int, until: float) -> Report:
        """Tests from the `first` one on, up to one that ends the round."""
        candidate = self._candidates.begin(self.limits)
        outcomes: list[Outcome] = []
        try:
            candidate.send(json.dumps(program.source).encode("utf-8", "surrogatepass"))
            fault = self._loaded(candidate, until)
            if fault is None and program.tests:
                told = {"setup": program.setup, "names": list(program.names), "tests": list(program.tests[first:])}
                outcomes = self._judged(candidate, json.dumps(told).encode("utf-8", "surrogatepass"), until)
        finally:
            cpu = self._candidates.end()
            output = os.pread(candidate.output, self.limits.output, 0).decode("utf-8", "replace")
            candidate.close()
        if cpu is None:  # nobody knows what of it was the program's doing
            return Report(fault=Outcome(kind="broken", said="the sandbox ended"), output=output)
        return Report(outcomes=tuple(outcomes), fault=fault, output=output, cpu_s=cpu)

    def _loaded(self, candidate: _Channel, until: float) -> Outcome | None:
        """What stands in the way of the tests."""
        try:
            return _fault(candidate.receive(self._deadline(until)))
        except _Timeout:
            return Outcome(kind="timeout", said="loading the program took too long")

    def _judged(self, candidate: _Channel, tests: bytes, until: float) -> list[Outcome]:
        """Forward calls and answers; collect what the judge reports. A judge that is not through with its tests is replaced."""
        if self._judge and not self._judge.alive():
            self._drop_judge()
        judge = self._judge = self._judge or self._judges.begin(self.limits)
        outcomes: list[Outcome] = []
        frame: bytes | None = None
        try:
            judge.send(tests)
            deadline = self._deadline(until)
            while (frame := judge.receive(deadline)) is not None and frame != b"E":
                if frame[:1] == b"R":
                    outcomes.append(_outcome(json.loads(frame[1:])))
                    deadline = self._deadline(until)
                else:
                    candidate.send(frame[1:])
                    judge.send(candidate.receive(deadline) or b"")
            if frame is None:
                outcomes.append(Outcome(kind="broken", said="the tests' own process ended"))
        except _Timeout:
            frame = None
            outcomes.append(Outcome(kind="timeout", said=f"no answer within {self.limits.wall_s:g} s"))
        finally:
            self._judgements += 1
            if frame != b"E" or self._judgements % JUDGEMENTS == 0:
                self._drop_judge()
        return outcomes

    def _drop_judge(self) -> None:
        if self._judge:
            self._judges.end()
            self._judge.close()
        self._judge = None

    def _deadline(self, until: float) -> float:
        return min(until, time.monotonic() + self.limits.wall_s)

    def close(self) -> None:
        """End the warm interpreters."""
        self._drop_judge()
        self._candidates.close()
        self._judges.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _fault(loaded: bytes | None) -> Outcome | None:
    """What the program's first answer says against it. It is the program's own, so it can be anything."""
    if loaded is None:
        return Outcome(kind="gone", said="the process ended while the program was loaded")
    try:
        told = json.loads(loaded)
        raised = told.get("raised")
        return None if raised is None else _outcome({**raised, "kind": "raised"})
    except (ValueError, AttributeError, TypeError, RecursionError):
        return Outcome(kind="gone", said="the program wrote to the channel of its answers")


def _outcome(told: dict[str, Any]) -> Outcome:
    text = {name: str(told.get(name, ""))[:300] for name in ("left", "how", "right", "type", "said")}
    line = told.get("line", 0)
    return Outcome(kind=told["kind"], **text, line=line if isinstance(line, int) else 0)
