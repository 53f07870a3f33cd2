"""The store's file: how it is created and opened, transactions, SQLite's errors made ours.

In: a path. Out: an open SQLite connection at the newest schema, or an error that says how to recover. A file is created whole
(built beside its place and linked into it), so an empty or headless file is known to be damage and is never filled anew.

Not promised: at opening only files up to CHECKED bytes are read whole; in larger ones damage shows when it is touched, or
in `Database.problems`. A flipped letter inside a text breaks no structure and shows in neither.
"""

import hashlib
import os
import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self

from mulligan import migrations
from mulligan.errors import InvalidData, MulliganError, StoreDamaged, StoreError, StoreFrozen
from mulligan.migrations import APPLICATION, TABLES, migrate

CHECKED = 32 * 2**20  # bytes: larger files are not checked whole at opening, which takes 0.7 ms a MiB
BUSY_SECONDS = 60.0  # how long a writer queues behind other processes before it gives up

Values = Sequence[Any] | Mapping[str, Any]


def now() -> str:
    """Wall time, UTC, ISO 8601. It may go backwards; order is kept by the `seq` columns."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def connect(path: Path | str, *, frozen: bool = False) -> sqlite3.Connection:
    """Open the store at `path`, creating it if nothing is there. `:memory:` gives one that lives in this connection only.

    Raises StoreDamaged for a file that is no healthy store, StoreError for a missing file (frozen) or a newer schema.
    """
    if str(path) == ":memory:":
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection)
        return connection
    file = Path(path)
    try:
        if not file.exists():
            if frozen:
                raise StoreError(f"there is no store at {file}; build one with `mulligan learn` or `mulligan import`")
            _create(file)
        elif file.stat().st_size == 0:
            raise damaged(file, "it is empty")
        # Even a reader of a write-ahead log needs a file beside it; where none can be made, nobody can write either.
        log = Path(f"{file}-wal")
        still = frozen and not os.access(file.parent, os.W_OK) and not (log.exists() and log.stat().st_size)
        connection = attach(file, "ro&immutable=1" if still else "ro" if frozen else "rw")
        try:
            _prepare(connection, file, frozen)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise translate(error, file) from error
    return connection


def attach(file: Path, mode: str) -> sqlite3.Connection:
    """A bare connection to an existing file; `mode` is "ro" or "rw". Nothing is checked."""
    uri = f"{file.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256)


def _create(file: Path) -> None:
    """Build an empty store beside `file` and link it into place; whoever comes second takes the first one's."""
    if not file.parent.is_dir():
        raise StoreError(f"cannot create {file}: there is no folder {file.parent}")
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".mulligan-") as folder:
        built = Path(folder) / "new.db"
        with closing(sqlite3.connect(built, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection)
        try:
            os.link(built, file)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            built.rename(file)
    handle = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new name itself must survive a power cut
    finally:
        os.close(handle)


def _prepare(connection: sqlite3.Connection, file: Path, frozen: bool) -> None:
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
    connection.execute("PRAGMA synchronous = FULL")  # an acknowledged write survives a power cut
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise damaged(file, "it is an SQLite database, but of another program")
    newest = len(migrations.MIGRATIONS)
    if version > newest:
        raise StoreError(f"{file} was written by a newer Mulligan (schema {version}, this one knows {newest}): update Mulligan")
    if version < newest:
        if frozen:
            raise StoreError(f"{file} has the older schema {version}: open it once for writing to bring it up to date")
        migrate(connection)
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if lost := [table for table in TABLES if table not in known]:
        raise damaged(file, f"it lacks {', '.join(lost)}")
    for table in TABLES:  # touches every root
        connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
    if file.stat().st_size <= CHECKED and (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise damaged(file, found)


def damaged(file: Path, why: object) -> StoreDamaged:
    """The error for a file that is no healthy store; says how to recover."""
    return StoreDamaged(
        f"{file} is no healthy store ({' '.join(str(why).split())}): save what can be read with "
        f"`mulligan doctor --recover {file}`, or read back an export with `mulligan import` into a new file"
    )


def translate(error: Exception, path: Path | str) -> MulliganError:
    """The package's exception for one of SQLite or of the operating system."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    file = Path(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(file, error)
    if code == sqlite3.SQLITE_READONLY:
        return StoreFrozen(f"{file} cannot be written to ({error}): open it unfrozen, or check the rights of the file and its folder")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"{file} stayed locked for {BUSY_SECONDS:.0f} s: another process holds a transaction open; end it and try again")
    if isinstance(error, UnicodeError | OverflowError | sqlite3.DataError | sqlite3.IntegrityError) or code == sqlite3.SQLITE_TOOBIG:
        return InvalidData(f"{file} cannot hold this value: {error}")
    return StoreError(f"{file}: {error}")


def storable(text: str) -> str:
    """JSON `text` with lone surrogates, which no UTF-8 can hold, as escapes. Raises InvalidData for a character split in two."""
    if text.isascii() or not re.search("[\ud800-\udfff]", text):
        return text
    if re.search("[\ud800-\udbff][\udc00-\udfff]", text):
        raise InvalidData("a text cannot be stored: it holds a character split into two surrogates")
    return re.sub("[\ud800-\udfff]", lambda m: f"\\u{ord(m[0]):04x}", text)


def check_names(**names: str) -> None:
    """Raise InvalidData for a name that SQLite cannot compare: names become columns of their own."""
    for what, name in names.items():
        if re.search("[\0\ud800-\udfff]", name):
            raise InvalidData(f"the {what} {name!r} cannot be stored: names are Unicode text without NUL")


class Database:
    """An open store file: one connection that threads share by turns, transactions that nest, SQLite's exceptions made ours."""

    def __init__(self, path: Path | str, *, frozen: bool = False) -> None:
        self.path = path
        self.frozen = frozen
        self._rollbacks = 0
        self._open()

    def _open(self) -> None:
        self._connection: sqlite3.Connection | None = connect(self.path, frozen=self.frozen)
        self._pid = os.getpid()
        self._lock = RLock()
        self._depth = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; any later use raises StoreError."""
        with self._held():
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _held(self) -> RLock:
        """The lock under which several statements belong together. In a forked child the file is opened anew."""
        if self._pid != os.getpid() and self._connection is not None:
            self._inherited = self._connection  # kept open: a child that closes it would take the parent's log away
            self._open()
        return self._lock

    def _version(self) -> tuple[int, int, int]:
        """Changes with whatever may have changed what was read, but for own committed writes: process, rollbacks, others' commits."""
        with self._held():
            return self._pid, self._rollbacks, self._execute("PRAGMA data_version").fetchone()[0]

    def _execute(self, sql: str, values: Values = ()) -> sqlite3.Cursor:
        """Run one statement. Raises what `translate` makes of SQLite's errors."""
        with self._held():
            if self._connection is None:
                raise StoreError(f"the store {self.path} is closed")
            try:
                return self._connection.execute(sql, values)
            except (sqlite3.Error, UnicodeError, OverflowError) as error:
                return self._again(self._connection, sql, values, error)

    def _again(self, connection: sqlite3.Connection, sql: str, values: Values, error: Exception) -> sqlite3.Cursor:
        """SQLite gives up at once where waiting might deadlock; nothing is held outside a transaction, so waiting is safe."""
        limit = time.monotonic() + BUSY_SECONDS
        while getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY and not connection.in_transaction:
            if time.monotonic() > limit:
                break
            time.sleep(random.uniform(0.001, 0.01))
            try:
                return connection.execute(sql, values)
            except sqlite3.Error as another:
                error = another
        raise translate(error, self.path) from error

    def _rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._held():
            cursor = self._execute(sql, values)
            try:
                return cursor.fetchall()
            except sqlite3.Error as error:
                raise translate(error, self.path) from error

    def _insert(self, table: str, **row: Any) -> int | None:
        """Insert a row unless its key is there. Returns its rowid, None where it was there."""
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        sql = f'INSERT INTO "{table}" ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING'  # names from our code
        cursor = self._execute(sql, tuple(row.values()))
        return cursor.lastrowid if cursor.rowcount else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside happen together or not at all. May be nested: an inner one that fails undoes only itself."""
        if self.frozen:
            raise StoreFrozen(f"{self.path} is opened frozen: nothing may be written to it")
        with self._held():
            name, self._depth = f"level{self._depth}", self._depth + 1
            undo: tuple[str, ...]
            start, end, undo = f"SAVEPOINT {name}", f"RELEASE {name}", (f"ROLLBACK TO {name}", f"RELEASE {name}")
            if self._depth == 1:
                start, end, undo = "BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",)
            try:
                self._execute(start)
                yield
                self._execute(end)
            except BaseException:
                self._rollbacks += 1
                if self._connection is not None and self._connection.in_transaction:
                    for statement in undo:
                        self._execute(statement)
                raise
            finally:
                self._depth -= 1

    def _flush(self) -> None:
        """Move the write-ahead log into the file and empty it, so that nothing deleted stays readable in it."""
        with self._held():
            if self._depth == 0:
                self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def columns(self, table: str) -> list[str]:
        """The columns of one of TABLES that are written."""
        return [row[1] for row in self._rows(f'PRAGMA table_info("{table}")') if row[1] != "seq"]

    def dump(self, table: str) -> Iterator[dict[str, Any]]:
        """The rows of one of TABLES in the order in which they were added; every column that was written, by name."""
        names = self.columns(table)
        rows = self._rows(f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid")
        return (dict(zip(names, row, strict=True)) for row in rows)

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        return {table: self._rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}

    def digest(self, tables: Sequence[str] = TABLES[:-1]) -> str:
        """Hash of all rows of `tables` in order, not of the file's layout; by default of all but the response cache."""
        whole = hashlib.sha256()
        for table in tables:
            for row in self.dump(table):
                whole.update(repr((table, row)).encode("utf-8", "surrogatepass"))
        return whole.hexdigest()

    def problems(self) -> list[str]:
        """What a full check of the file finds wrong; reads all of it."""
        with self._held():
            try:
                found = [text for (text,) in self._rows("PRAGMA integrity_check") if text != "ok"]
            except StoreDamaged as error:
                return [str(error)]
            found += [
                f"{table}: row {row} refers to a missing row of {parent}"
                for table, row, parent, _ in self._rows("PRAGMA foreign_key_check")
            ]
            words = {row for (row,) in self._rows("SELECT rowid FROM words")}
            active = {row for (row,) in self._rows("SELECT seq FROM records WHERE status = 'active'")}
            bare = self._rows("SELECT count(*) FROM records WHERE id NOT IN (SELECT record FROM vectors)")[0][0]
        found += [f"the word index and the active records differ in {len(words ^ active)} rows"] if words != active else []
        return found + ([f"{bare} records have no vector: run `mulligan reembed`"] if bare else [])
