"""What runs one command inside the sandbox: it gives up its rights, starts it, waits, and tells the host how it ended.

Its argument is JSON, see `sandbox_command`. The command's own end is the end: whatever it left running is counted and killed. It can
kill this process, which then tells nothing, but neither read nor write its memory or its files.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mulligan.worlds.sandbox_wall import CHANNEL, Prepared, keep_only, limit

DUMPABLE, SUBREAPER = 4, 36
NOT_FOUND = 127
PATIENCE = 2.0  # seconds to kill what is left


def launch(told: Mapping[str, Any]) -> None:
    """Run the command `told` and write the report."""
    prepared = Prepared(told["wall"])
    prepared.libc.prctl(SUBREAPER, 1, 0, 0, 0)  # what the command leaves behind becomes a child of this process
    keep_only(told["report"], os.open("/dev/null", os.O_RDONLY), told["output"], told["output"])
    if prepared.stands:
        prepared.drop_rights()
    prepared.refuse_calls()
    prepared.libc.prctl(DUMPABLE, 0, 0, 0, 0)  # last: a change of user sets it again
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    os.write(CHANNEL, b"started\n")
    began = time.monotonic()
    command = os.fork()
    if command == 0:
        _become(told)
    status = _wait(command, began + told["wall_s"])
    left = _end_all()
    report = {"status": status, "left": left - (status is None), "seconds": time.monotonic() - began}
    os.write(CHANNEL, json.dumps(report).encode())


def _become(told: Mapping[str, Any]) -> NoReturn:
    """The command, from here on."""
    try:
        os.close(CHANNEL)
        os.setsid()
        os.chdir(told["folder"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for name in (signal.SIGPIPE, signal.SIGXFSZ):  # an interpreter ignores them, and a command would inherit that
            signal.signal(name, signal.SIG_DFL)
        limit(told["limits"])
        os.execvpe(told["argv"][0], told["argv"], told["environment"])
    except OSError as error:
        os.write(2, f"{told['argv'][0]}: {error.strerror}\n".encode())
    os._exit(NOT_FOUND)


def _wait(command: int, until: float) -> int | None:
    """How the command ended, minus the number of the signal that ended it; None when it did not in time. Reaps what else ends."""
    while True:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == command:
                    return os.waitstatus_to_exitcode(found[1])
        if time.monotonic() >= until:
            return None
        signal.sigtimedwait([signal.SIGCHLD], max(0.0, until - time.monotonic()))


def _end_all() -> int:
    """Kill all below this process, whatever session they are in; how many there were at first."""
    first = below = _below()
    until = time.monotonic() + PATIENCE
    while below and time.monotonic() < until:
        for process in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        below = _below()
    return len(first)


def _below() -> list[int]:
    """Processes below this one that have not ended."""
    parents = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                state, parent = (place / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(place.name)] = int(parent)
    found = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


if __name__ == "__main__":
    launch(json.loads(sys.argv[1]))
