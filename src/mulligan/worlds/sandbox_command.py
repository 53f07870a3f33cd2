"""One command behind the walls of the sandbox, in a folder that it may change.

In: a command, a folder (a copy: what the command does to it stays), limits. Out: how it ended and what it printed. The walls are those
of `sandbox`: own PID, mount, network, IPC and host names, a read-only root of system libraries and Python, private empty /tmp, stdin
closed, limits on time, memory, processes, files and output; nothing that it started outlives it. The folder lies at `INSIDE`; with
`process`, which walls nothing off, where it is.

Not promised: that the folder stays small (each file is limited, their number is not), or that what lies in it afterwards tells the
truth; read it with `taken`.
"""

import json
import os
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mulligan.errors import UsageError
from mulligan.worlds.sandbox import ELSEWHERE, Limits, Wall, walled

LAUNCH = Path(__file__).with_name("sandbox_launch.py")
INSIDE = "/tmp/work"
RIGHTS = ("CAP_SETUID", "CAP_SETGID")  # of the launcher, until it has become another user
SLACK = 10.0  # seconds that the launcher has beyond the command's
MAX_TAKEN = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`argv` in `folder`. `readable` are further places that it may read; `environment` is all that it gets beside a PATH and a home."""

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: Sequence[Path] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a command ended.

    `status` is its exit status, minus the number of the signal that ended it, or None: it did not end in time, or killed its launcher.
    `output` has standard output and error in one, the middle left out where it is longer than the limit; `left` counts the processes that
    were still running when it ended.
    """

    status: int | None
    output: str
    timed_out: bool = False
    left: int = 0
    seconds: float = 0.0


def run_command(command: Command, limits: Limits, wall: Wall = "bubblewrap") -> Finished:
    """Run it to its end, or for `limits.wall_s` seconds. Raises UsageError where the wall cannot be put up."""
    folder = command.folder.resolve()
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", **command.environment}
    argv, told = walled(wall, LAUNCH, rights=RIGHTS, readable=command.readable, more=["--die-with-parent", "--bind", str(folder), INSIDE])
    mine, theirs = socket.socketpair()
    output = os.memfd_create("output")
    order = {
        "wall": told,
        "argv": list(command.argv),
        "folder": str(folder) if wall == "process" else INSIDE,
        "environment": environment,
        "limits": limits.resources("candidate"),
        "wall_s": limits.wall_s,
        "report": theirs.fileno(),
        "output": output,
    }
    try:
        with mine, _owned(folder, told):
            with theirs:
                process = subprocess.Popen(
                    [*argv, json.dumps(order)],
                    env={"PATH": environment["PATH"], "LANG": "C.UTF-8"},
                    pass_fds=(theirs.fileno(), output),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            said = _ended(process, limits.wall_s + SLACK)
            started, _, report = _read_all(mine).partition(b"\n")
        if not started:
            raise UsageError(f"{wall} cannot wall code off here ({said.strip() or 'it says nothing'}): {ELSEWHERE}")
        return _finished(report, _output(output, limits.output), limits.wall_s)
    finally:
        os.close(output)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for the end, and make it if need be; what was said on standard error, which is never the command's."""
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    return said.decode("utf-8", "replace")[-300:]


def _read_all(end: socket.socket) -> bytes:
    found = b""
    while part := end.recv(1 << 12):
        found += part
    return found


def _finished(report: bytes, output: str, wall_s: float) -> Finished:
    if not report:  # the command killed its launcher, or memory ran out
        return Finished(status=None, output=output, seconds=wall_s)
    told = json.loads(report)
    return Finished(
        status=told["status"], output=output, timed_out=told["status"] is None, left=told["left"], seconds=round(told["seconds"], 6)
    )


def _output(fd: int, most: int) -> str:
    """What was printed, with the middle left out where it is longer than `most` bytes."""
    size = os.fstat(fd).st_size
    if size <= most:
        return os.pread(fd, size, 0).decode("utf-8", "replace")
    head, tail = (os.pread(fd, most // 2, place).decode("utf-8", "replace") for place in (0, size - most // 2))
    return f"{head}\n… {size - most // 2 * 2:,} bytes left out …\n{tail}"


@contextmanager
def _owned(folder: Path, told: str) -> Iterator[None]:
    """The folder belongs to the command's user while it runs."""
    if not told.startswith("uid "):
        yield
        return
    before = folder.stat()
    _give(folder, int(told[4:]), before.st_gid)
    try:
        yield
    finally:
        _give(folder, before.st_uid, before.st_gid)


def _give(folder: Path, user: int, group: int) -> None:
    for above, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            with suppress(OSError):
                os.chown(Path(above, name), user, group, follow_symlinks=False)


def taken(folder: Path, name: str, most: int = MAX_TAKEN) -> bytes | None:
    """The content of a file that a command left in its folder; None unless it is a plain file there of at most `most` bytes.

    No link is followed on the way, whatever the command put in its place.
    """
    *above, last = Path(name).parts
    if ".." in above or Path(name).is_absolute():
        return None
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in above:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        found = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    about = os.fstat(found)
    if not stat.S_ISREG(about.st_mode) or about.st_size > most:
        os.close(found)
        return None
    with os.fdopen(found, "rb") as file:
        return file.read(most)
