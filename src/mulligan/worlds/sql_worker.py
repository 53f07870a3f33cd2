"""The process that runs untrusted queries: reads requests on standard input, answers on standard output, holds nothing.

Started by file name with an isolated interpreter, so it imports the standard library alone. Frames are a 4-byte length and a
`marshal` value. A request is (paths, sql, seconds for each, row_cap, byte_cap). Its answers are, a path, ("rows", columns, rows, tables
read) or ("error", code, message, what was denied), which is the last one. The parent kills it when an answer is late; whatever a query
does to memory or time (a CTE that doubles at compile time, one long opcode) ends with this process and reaches nobody else.
"""

import marshal
import signal
import sqlite3
import struct
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

CONNECTIONS = 16  # kept open; a task needs the source and eight copies
STEP = 2000  # virtual machine steps between two looks at the clock
LIMITS = {  # SQLite's own limits, below its defaults where a query for people never goes
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 1000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 500,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 200,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 200_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
}
BROKEN = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR})  # not the query's fault
READS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
CHANGES = ("CREATE", "DROP", "ALTER", "DELETE", "INSERT", "UPDATE", "PRAGMA", "ATTACH", "DETACH")
OTHERS = ("TRANSACTION", "SAVEPOINT", "REINDEX", "ANALYZE")
NAMES = {
    value: name.removeprefix("SQLITE_").replace("_", " ")
    for name, value in vars(sqlite3).items()
    if name.startswith(tuple(f"SQLITE_{word}" for word in CHANGES + OTHERS))
}
REFUSED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "random", "randomblob"})  # the last two: never the same twice


class Connection:
    """One read-only, immutable connection that remembers what the authorizer saw of the last statement."""

    def __init__(self, path: str) -> None:
        uri = f"{Path(path).as_uri()}?mode=ro&immutable=1"
        self.sqlite = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)
        self.sqlite.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
        for limit, value in LIMITS.items():
            self.sqlite.setlimit(limit, value)
        self.denied = ""
        self.tables: set[str] = set()
        self.sqlite.set_authorizer(self._authorize)

    def _authorize(self, code: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
        if code == sqlite3.SQLITE_READ and first:
            self.tables.add(first)
        if code not in READS:
            self.denied = f"{NAMES.get(code, f'operation {code}')} {first or ''}".strip()
            return sqlite3.SQLITE_DENY
        if code == sqlite3.SQLITE_FUNCTION and (second or "").lower() in REFUSED_FUNCTIONS:
            self.denied = f"function {second}"
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def run(self, sql: str, seconds: float, row_cap: int, byte_cap: int) -> tuple[Any, ...]:
        """Columns and rows of one statement; raises sqlite3.Error, sqlite3.Warning, ValueError or OverflowError."""
        self.denied, self.tables = "", set()
        deadline = time.monotonic() + seconds
        self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, byte_cap)
        self.sqlite.set_progress_handler(lambda: time.monotonic() > deadline, STEP)
        try:
            cursor = self.sqlite.execute(sql)
            if cursor.description is None:
                return ("error", "not_a_query", "", "a statement that returns no rows")
            rows: list[tuple[Any, ...]] = []
            size = 0
            for row in cursor:
                size += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
                if len(rows) >= row_cap:
                    return ("error", "too_large", f"more than {row_cap} rows", "")
                if size > 4 * byte_cap:
                    return ("error", "too_large", f"more than {4 * byte_cap} bytes of result", "")
                rows.append(tuple(row))
            if time.monotonic() > deadline:  # one long step, within which the clock was not looked at
                return ("error", "timeout", f"stopped after {seconds:g} s", "")
            return ("rows", tuple(column[0] for column in cursor.description), tuple(rows), tuple(sorted(self.tables)))
        finally:
            self.sqlite.set_progress_handler(None, 0)


def answers(connections: "OrderedDict[str, Connection]", request: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The answers to one request, as far as the first error."""
    paths, *rest = request
    found: list[tuple[Any, ...]] = []
    for path in paths:
        found.append(answer(connections, path, *rest))
        if found[-1][0] == "error":
            break
    return found


def answer(
    connections: "OrderedDict[str, Connection]", path: str, sql: str, seconds: float, row_cap: int, byte_cap: int
) -> tuple[Any, ...]:
    """What one database answers; every way a query can fail is a value."""
    connection = connections.pop(path, None)
    try:
        connection = connection or Connection(path)
        connections[path] = connection
        while len(connections) > CONNECTIONS:
            connections.popitem(last=False)[1].sqlite.close()
        return connection.run(sql, seconds, row_cap, byte_cap)
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as error:
        text, denied = str(error), connection.denied if connection else ""
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_INTERRUPT:
            return ("error", "timeout", f"stopped after {seconds:g} s", "")
        if code in (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM) or isinstance(error, MemoryError):
            return ("error", "too_large", text or "out of memory", "")
        return ("error", "crash" if code & 0xFF in BROKEN else "error", text, denied)


def read(stream: BinaryIO) -> Any:
    """The next frame; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    return marshal.loads(stream.read(struct.unpack("!I", head)[0]))  # both ends are this package


def main(memory: int) -> None:
    """Serve until standard input ends. `memory` is the heap that SQLite may use, in bytes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    sqlite3.connect(":memory:").execute(f"PRAGMA hard_heap_limit={memory}")
    connections: OrderedDict[str, Connection] = OrderedDict()
    while (request := read(sys.stdin.buffer)) is not None:
        frame = marshal.dumps(answers(connections, request))
        sys.stdout.buffer.write(struct.pack("!I", len(frame)) + frame)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
