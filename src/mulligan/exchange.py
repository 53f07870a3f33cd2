"""A store as JSON Lines, out and in, and what can be saved of a damaged one.

In: a store or a stream of lines. Out: lines, or rows in a store. The first line names the format; each other line is one row:
its table and its columns, with the row's noun as readable JSON and vectors as base64. What is imported is checked: nouns
against their types, ids against their content. Import adds to what is there; rows whose key is there stay as they are.

Not promised: the response cache travels only when asked for; the order of rows is kept, their file-internal numbers are not.
"""

import base64
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TextIO

from mulligan.conditions import check_condition
from mulligan.database import attach, connect, storable
from mulligan.errors import EmbeddingMismatch, InvalidData, StoreDamaged, StoreError
from mulligan.ledger import body
from mulligan.migrations import MIGRATIONS, TABLES
from mulligan.nouns import Json, content_id, from_plain, to_json
from mulligan.records import Attempt, Completion, Proposal, Receipt, Record, Statistics, Task, Usage
from mulligan.redaction import redact
from mulligan.store import Store

FORMAT = "mulligan-store"
GAP = 5_000  # rows in succession that cannot be read: more than hang on one lost page, so the table ends there

# The noun that a row of a table holds whole. Those of the other tables lie in several rows and are read back at the end.
NOUNS: dict[str, type] = {
    "tasks": Task,
    "attempts": Attempt,
    "proposals": Proposal,
    "records": Record,
    "receipts": Receipt,
    "usage": Usage,
    "completions": Completion,
}
IDENTITY = {"tasks": ("key", "tsk"), "records": ("id", "rec"), "receipts": ("id", "rcp")}


def export_store(store: Store, stream: TextIO, *, cache: bool = False) -> int:
    """Write every row of `store` as a line of JSON, with the response cache if `cache`; returns the number of rows."""
    stream.write(to_json({"format": FORMAT, "version": len(MIGRATIONS)}) + "\n")
    written = 0
    for table in TABLES if cache else TABLES[:-1]:
        for row in store.dump(table):
            shown = {name: _shown(name, value) for name, value in row.items()}
            stream.write(storable(json.dumps({"table": table, **shown}, ensure_ascii=False)) + "\n")
            written += 1
    return written


def _shown(name: str, value: Any) -> Json:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return json.loads(value) if name == "body" else value


def import_store(store: Store, stream: TextIO) -> dict[str, int]:
    """Add the rows of an export to `store`, all or none; returns how many were new, by table.

    Raises InvalidData that names the first bad line, EmbeddingMismatch when the vectors are of another embedder than the store's.
    """
    added = dict.fromkeys(TABLES, 0)
    episodes: dict[str, int] = {}
    number = 1
    try:
        with store.transaction():
            _check_header(stream.readline())
            for number, line in enumerate(stream, 2):
                table, row = _read(line)
                if store.load(table, **_checked(store, table, row)):
                    added[table] += 1
                    if table == "episodes":
                        episodes[row["id"]] = number
            for key, number in episodes.items():  # noqa: B007  # the handler below says it
                if store.episode(key).id != key:
                    raise InvalidData("the id of the episode is not that of its content")
                store.decisions(key)
    except (InvalidData, StoreDamaged, UnicodeDecodeError) as error:
        raise InvalidData(f"line {number} of the export: {error}; nothing was imported") from error
    return added


def _check_header(line: str) -> None:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidData("it is no header of an export of Mulligan")
    version = header.get("version")
    if type(version) is not int or not 1 <= version <= len(MIGRATIONS):  # an older one lacks tables, and has nothing else
        raise InvalidData(f"the export has version {version!r}, this Mulligan reads versions up to {len(MIGRATIONS)}")


def _read(line: str) -> tuple[str, dict[str, Any]]:
    """The table and the columns of a line, with the body as text and the vector as bytes."""
    try:
        row = json.loads(line)
        table = row.pop("table")
        if "body" in row:
            row["body"] = body(row["body"])
        if "vector" in row:
            row["vector"] = base64.b64decode(row["vector"], validate=True)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise InvalidData(f"it is no row ({type(error).__name__}: {error})") from error
    return str(table), row


def _checked(store: Store, table: str, row: dict[str, Any]) -> dict[str, Any]:
    """`row` as it may be loaded: the right columns, a body that is its noun, an id that is its content's."""
    if table not in TABLES or set(row) != set(store.columns(table)):
        raise InvalidData(f"it has not the columns of a table {table[:40]!r}")
    if not all(value is None or isinstance(value, str | int | float | bytes) for value in row.values()):
        raise InvalidData("a column holds neither text nor number")
    if table == "statistics":
        from_plain(Statistics, {name: value for name, value in row.items() if name != "record"})
    try:
        plain = json.loads(row.get("body", "{}"))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidData(f"its body is no JSON ({error})") from error
    if not isinstance(plain, dict):
        raise InvalidData("its body is no object")
    if redact(plain) is not plain or redact(row) is not row:
        raise InvalidData("it holds a secret (a key, a token or a password): take it out of the store that it comes from")
    if table not in NOUNS:
        return row
    value: Any = from_plain(NOUNS[table], plain, what="its body")
    column, prefix = IDENTITY.get(table, ("", ""))
    if column and row[column] != (value.id if isinstance(value, Record | Receipt) else content_id(prefix, value)):
        raise InvalidData(f"the {column} {row[column]!r} is not that of its content")
    if isinstance(value, Record):
        check_condition(value.condition)
    return {**row, "body": body(value)}


def recover(path: Path | str, target: Path | str) -> dict[str, int]:
    """Build a new store at `target` from every row that can still be read of the damaged one at `path`, which is only read.

    Returns the rows saved, by table, and under "lost" how many were read but make no sense any more. Raises StoreDamaged when
    nothing can be read, StoreError when there is something at `target`.
    """
    source, new = Path(path), Path(target)
    if new.exists():
        raise StoreError(f"there is something at {new} already: recover into a new file")
    if not source.is_file():
        raise StoreError(f"there is no file {source}")
    lost = 0
    try:
        with Store(new) as store, store.transaction():
            for table, row in salvage(source, {table: store.columns(table) for table in TABLES}):
                try:
                    with store.transaction():
                        store.load(table, **_checked(store, table, row))
                except (InvalidData, StoreDamaged, EmbeddingMismatch):
                    lost += 1
            for row in store.dump("records"):
                store.load("statistics", record=row["id"])  # where those were lost
            counts = store.counts()
            if not any(counts.values()):
                raise StoreDamaged(f"nothing in {source} can be read: go back to a copy of it, or to an export with `mulligan import`")
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return {**{table: count for table, count in counts.items() if count}, "lost": lost}


def salvage(path: Path, columns: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row that can still be read from a damaged store, as (table, row) with the given columns. The file is only copied.

    Reads each table forwards up to the damage, backwards down to it, and row by row in between. A lost schema is grafted from a
    new store, whose first pages are the same.
    """
    with tempfile.TemporaryDirectory(prefix="mulligan-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(path, copy)
        log = Path(f"{path}-wal")
        if log.exists():
            shutil.copyfile(log, f"{copy}-wal")
        _pad(copy)
        try:
            connect(copy).close()
        except StoreDamaged:
            _graft(copy, Path(folder) / "new.db")
        with closing(attach(copy, "rw")) as connection:
            for table, names in columns.items():
                yield from ((table, row) for row in _readable(connection, table, names))


def _pad(copy: Path) -> None:
    """Give a cut file back its length: SQLite refuses to read any page of a file that is shorter than its header says."""
    with copy.open("r+b") as stream:
        header = stream.read(100)
        size = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
        length = copy.stat().st_size
        if header.startswith(b"SQLite format 3\0") and length < size < 100 * length:
            stream.truncate(size)


def _graft(copy: Path, fresh: Path) -> None:
    """Overwrite header and schema pages of `copy` with those of a new store: all pages that are no table's or index's root."""
    connect(fresh).close()
    with closing(sqlite3.connect(fresh)) as connection:
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        roots = {row[0] for row in connection.execute("SELECT rootpage FROM sqlite_master")}
    new = fresh.read_bytes()
    old = bytearray(copy.read_bytes())
    for start in range(0, len(new), page):
        if start // page + 1 not in roots:
            old[start : start + page] = new[start : start + page]
    old.extend(bytes(-len(old) % page))
    old[28:32] = (len(old) // page).to_bytes(4, "big")
    copy.write_bytes(old)


def _readable(connection: sqlite3.Connection, table: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    select = f"SELECT rowid, {', '.join(names)} FROM {table} WHERE rowid"
    low, high, whole = 0, 0, False
    with suppress(sqlite3.DatabaseError):
        for rowid, *values in connection.execute(f"{select} > 0 ORDER BY rowid"):
            low = rowid
            yield dict(zip(names, values, strict=True))
        whole = True
    if whole:
        return
    with suppress(sqlite3.DatabaseError):
        for rowid, *values in connection.execute(f"{select} > ? ORDER BY rowid DESC", (low,)):
            high = rowid
            yield dict(zip(names, values, strict=True))
    rowid, misses = low, 0
    while misses < GAP and (not high or rowid + 1 < high):
        rowid, misses = rowid + 1, misses + 1
        with suppress(sqlite3.DatabaseError):
            for _, *values in connection.execute(f"{select} = ?", (rowid,)):
                misses = 0
                yield dict(zip(names, values, strict=True))
