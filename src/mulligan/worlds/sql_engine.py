"""Runs untrusted queries on read-only copies of databases: the client of the worker process, and the copies on disk.

`hold` turns a database file into a copy named by its content; `run` executes one statement on such a copy and returns a Result or a
Failure, within its limits whatever the statement is: the worker stops itself at the deadline, and is killed shortly after when it cannot.
Idle workers are kept for the next query and end with this process. Not promised: POSIX only; a hostile *database file* is not contained.
"""

import atexit
import hashlib
import marshal
import os
import select
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mulligan.errors import UsageError

Cell = None | int | float | str | bytes
Row = tuple[Cell, ...]

WORKER = Path(__file__).with_name("sql_worker.py")
GRACE = 0.35  # seconds beyond the limit before the worker is killed
HOME_VARIABLE = "MULLIGAN_SQL_HOME"  # child processes find their parent's copies by it
PREFIX = "mulligan-sql-"
DAY = 86_400  # seconds
sqlite_version = sqlite3.sqlite_version
HEADER = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one query may use. `cell_cap` bounds one value or row in bytes; a result may hold four times as much."""

    time_limit_s: float = 2.0
    row_cap: int = 10_000
    cell_cap: int = 1_000_000
    memory_cap: int = 256 << 20
    action_cap: int = 20_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a query returned, and the tables that it read."""

    sql: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no result. Codes: error, not_a_query, and without a verdict on the query: timeout, too_large, crash."""

    code: str
    message: str

    @property
    def completed(self) -> bool:
        return self.code in ("error", "not_a_query")


class Engine:
    """One worker process."""

    def __init__(self, memory_cap: int) -> None:
        command = [sys.executable, "-I", "-S", str(WORKER), str(memory_cap)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._into, self._out = self._process.stdin, self._process.stdout
        self._answered = select.poll()
        self._answered.register(self._out, select.POLLIN)
        self.key = (os.getpid(), memory_cap)

    def ask(self, paths: Sequence[Path], sql: str, limits: Limits) -> Any:
        """The worker's answers; None when they did not come in time. Then, and when the worker died, it is gone."""
        request = marshal.dumps(([str(path) for path in paths], sql, limits.time_limit_s, limits.row_cap, limits.cell_cap))
        with suppress(BrokenPipeError):
            self._into.write(struct.pack("!I", len(request)) + request)
            self._into.flush()
            if self._answered.poll(1000 * (len(paths) * limits.time_limit_s + GRACE)):
                head = self._out.read(4)
                body = self._out.read(struct.unpack("!I", head)[0]) if len(head) == 4 else b""
                if body:
                    return marshal.loads(body)
        died = self._process.poll() is not None
        self.close()
        return [("error", "crash", "the database engine stopped", "")] if died else None

    def close(self) -> None:
        """End the worker. Safe to call twice."""
        self._process.kill()
        self._process.wait()
        self._out.close()
        with suppress(BrokenPipeError):  # what was not written yet
            self._into.close()

    @property
    def alive(self) -> bool:
        return self._process.returncode is None


_IDLE: list[Engine] = []  # workers between two queries: starting one costs 30 ms, asking one 0.05 ms
_LOCK = threading.Lock()


@contextmanager
def _leased(memory_cap: int) -> Iterator[Engine]:
    key = (os.getpid(), memory_cap)  # a forked child must not speak into its parent's pipes
    with _LOCK:
        engine = next((e for e in _IDLE if e.key == key), None)
        if engine:
            _IDLE.remove(engine)
    engine = engine or Engine(memory_cap)
    try:
        yield engine
    except BaseException:
        engine.close()
        raise
    if engine.alive:
        with _LOCK:
            _IDLE.append(engine)


@atexit.register
def close_idle() -> None:
    """End the workers of this process that wait for a query."""
    with _LOCK:
        mine = [engine for engine in _IDLE if engine.key[0] == os.getpid()]
        _IDLE.clear()
    for engine in mine:
        engine.close()


def run(path: Path, sql: str, limits: Limits) -> Result | Failure:
    """Execute one statement on the held copy `path`. Never raises for what the statement is or does."""
    return run_each([path], sql, limits)[0]


def run_each(paths: Sequence[Path], sql: str, limits: Limits) -> list[Result | Failure]:
    """The same on each of `paths`, one after another; a Failure is the last one. Asking once costs less than asking each time."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        return [Failure(code="error", message=f"unrecognized token: half of a surrogate pair at character {error.start}")]
    with _leased(limits.memory_cap) as engine:
        answers = engine.ask(paths, sql, limits)
    if answers is None:
        return [Failure(code="timeout", message=f"stopped after {limits.time_limit_s:g} s")]
    return [_read(sql, answer) for answer in answers]


def _read(sql: str, answer: tuple[Any, ...]) -> Result | Failure:
    if answer[0] == "rows":
        return Result(sql=sql, columns=answer[1], rows=answer[2], tables=answer[3])
    _, code, message, denied = answer
    if denied and not denied.startswith("function"):
        first = "".join(sql.split(None, 1)[:1]).upper()[:20]
        said = denied if first in ("", "WITH", "SELECT") else first
        return Failure(code="not_a_query", message=f"only reading is allowed here, not {said}")
    return Failure(code=code, message=message)


@lru_cache(maxsize=1024)
def _hash(path: str, size: int, changed: int, inode: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_hash(path: Path) -> str:
    """SHA-256 of a file, read again only when its size, time or inode changed."""
    seen = path.stat()
    return _hash(str(path), seen.st_size, seen.st_mtime_ns, seen.st_ino)


@lru_cache(maxsize=1)
def _home(pid: int) -> Path:
    given = os.environ.get(HOME_VARIABLE, "")
    if given and Path(given).is_dir():
        return Path(given)
    made = tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-")
    os.environ[HOME_VARIABLE] = made
    atexit.register(_remove, made, pid)
    _sweep(Path(made).parent)
    return Path(made)


def _sweep(folder: Path) -> None:
    """Remove what processes left that were killed at least a day ago."""
    for left in folder.glob(f"{PREFIX}*-*"):
        with suppress(OSError, ValueError):
            if time.time() - left.stat().st_mtime > DAY and not _alive(int(left.name.removeprefix(PREFIX).split("-")[0])):
                shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _remove(home: str, pid: int) -> None:
    if os.getpid() == pid:
        os.environ.pop(HOME_VARIABLE, None)
        shutil.rmtree(home, ignore_errors=True)


def home() -> Path:
    """The folder of this process tree's copies; made by its first process, removed when that one exits."""
    return _home(os.getpid())


def hold(database: str) -> Path:
    """A read-only copy of `database`, named by its content; cheap when it is there already, safe from many processes.

    Raises UsageError when the file is missing, no SQLite database, or has changes in a write-ahead log that are not in it yet.
    """
    source = Path(database)
    try:
        with source.open("rb") as file:
            if file.read(len(HEADER)) != HEADER:
                raise UsageError(f"{database} is no SQLite database; check the task's payload")
        log = Path(f"{database}-wal")
        if log.exists() and log.stat().st_size:
            raise UsageError(f"{database} has changes in a write-ahead log; run PRAGMA wal_checkpoint(TRUNCATE) on it first")
        copy = home() / f"{content_hash(source)}.sqlite"
        if not copy.exists():
            place(copy, lambda part: shutil.copyfile(source, part))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the database {database!r}: {error}") from error
    return copy


def place(target: Path, write: Any) -> None:
    """Let `write(path)` make a file, then put it at `target` read-only in one step."""
    handle, name = tempfile.mkstemp(prefix="part-", dir=target.parent)
    os.close(handle)
    try:
        write(Path(name))
        Path(name).chmod(0o400)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
