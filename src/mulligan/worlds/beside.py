"""A worker process beside a world: one question a line, and it is killed when it does not answer in time.

In: a script of this package that prints "ready" and then answers each line of JSON with one. Out: answers; None for one that did not come
in time, or when the worker died. The next question goes to a new one. Threads take turns; a forked child has workers of its own. A script
that runs what is not to be trusted stands behind the walls of the sandbox: it is told of the wall, and drops its rights itself.
"""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mulligan.errors import UsageError
from mulligan.worlds.sandbox import Wall, walled

RIGHTS = ("CAP_SETUID", "CAP_SETGID")  # of a script behind a wall, until it has become another user
STARTING = 30.0  # seconds for a worker to load its libraries


class Beside:
    """One worker process, started on first use and again after it was killed."""

    def __init__(self, script: Path, todo: str, wall: Wall | None = None, package: Path | None = None) -> None:
        """`todo` says what to do when the worker does not start; from `package`, a folder, a script behind a wall may import."""
        self._script, self._todo, self._wall, self._package = script, todo, wall, package
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self, question: Any, seconds: float) -> Any:
        """The answer; None when there is none in time. Raises UsageError when the worker does not start."""
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            with suppress(OSError, ValueError):
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
                if line := self._line(process, seconds):
                    return json.loads(line)
            self.close()
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        environ = {"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}  # sets in one order, always
        pipe = subprocess.PIPE
        command = [sys.executable, "-P", str(self._script)]
        if self._wall:
            readable = [self._package] if self._package else []
            walls, told = walled(self._wall, self._script, rights=RIGHTS, readable=readable, more=["--die-with-parent"])
            command = [*walls, told, *map(str, readable)]
        process = self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environ)
        if self._line(process, STARTING).strip() != b"ready":
            self.close()
            raise UsageError(self._todo)
        return process

    @staticmethod
    def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert process.stdout is not None
        answered = select.poll()
        answered.register(process.stdout, select.POLLIN)
        return process.stdout.readline() if answered.poll(1000 * seconds) else b""

    def close(self) -> None:
        """End the worker. Safe to call twice."""
        if self._process:
            self._process.kill()
            with suppress(OSError, ValueError):
                self._process.communicate()
        self._process = None


def beside(script: Path, todo: str, wall: Wall | None = None, package: Path | None = None) -> Beside:
    """The worker of this process for that script."""
    return _beside(os.getpid(), script, todo, wall, package)


@lru_cache(maxsize=8)
def _beside(pid: int, script: Path, todo: str, wall: Wall | None, package: Path | None) -> Beside:
    made = Beside(script, todo, wall, package)
    atexit.register(lambda: made.close() if os.getpid() == pid else None)
    return made
