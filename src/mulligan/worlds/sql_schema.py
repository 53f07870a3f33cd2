"""What a SQLite database holds: tables, columns, keys, and the text that shows them to an agent.

In: the path of a database file. Out: a Catalogue of names and types, or schema text with sample values. Reads only; the order is that of
the database itself, so that equal files give equal text. Tables that SQLite or an extension keeps for itself are left out.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SAMPLED = 1000  # rows of a column that are looked at for samples
SHOWN = 40  # characters of one sample value


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `table` and `name` as the database spells them; `type` as declared."""

    table: str
    name: str
    type: str = ""
    key: bool = False

    @property
    def full(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def numeric(self) -> bool:
        """Whether the declared type has numeric affinity (section 3.1 of SQLite's "Datatypes")."""
        declared = self.type.upper()
        return bool(declared) and not any(word in declared for word in ("CHAR", "CLOB", "TEXT", "BLOB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table or view with its columns and foreign keys (own columns, table referred to, its columns)."""

    name: str
    columns: tuple[Column, ...]
    foreign: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = ()
    view: bool = False


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tables of one database. Lookups ignore case, as SQLite does."""

    tables: tuple[Table, ...]

    def table(self, name: str) -> Table | None:
        return next((table for table in self.tables if table.name.lower() == name.lower()), None)

    def column(self, table: str, name: str) -> Column | None:
        """The column of that name in that table, if there are both."""
        found = self.table(table)
        return next((c for c in found.columns if c.name.lower() == name.lower()), None) if found else None

    def columns(self, tables: Iterable[str] | None = None) -> list[Column]:
        """All columns, or those of the named tables, in order."""
        wanted = None if tables is None else {name.lower() for name in tables}
        return [c for t in self.tables if wanted is None or t.name.lower() in wanted for c in t.columns]

    def holders(self, name: str) -> list[Column]:
        """The columns of that name, whatever table they are in."""
        return [column for column in self.columns() if column.name.lower() == name.lower()]


def connect(path: Path) -> sqlite3.Connection:
    """A read-only connection for this package's own questions; text that is no UTF-8 is shown with escapes."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
    return connection


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def read_catalogue(connection: sqlite3.Connection) -> Catalogue:
    """The catalogue of an open database."""
    tables = []
    listed = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'view', 'virtual')")
    order = {name: index for index, (name,) in enumerate(connection.execute("SELECT name FROM sqlite_master ORDER BY rowid"))}
    for name, kind in sorted(listed.fetchall(), key=lambda row: order.get(row[0], len(order))):
        if name.startswith("sqlite_"):
            continue
        try:
            info = connection.execute("SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1", (name,)).fetchall()
        except sqlite3.Error:  # a view whose tables are gone
            continue
        columns = tuple(Column(table=name, name=str(column), type=str(declared or ""), key=pk > 0) for column, declared, pk in info)
        tables.append(Table(name=name, columns=columns, foreign=_foreign(connection, name), view=kind == "view"))
    return Catalogue(tuple(tables))


def _foreign(connection: sqlite3.Connection, table: str) -> tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...]:
    keys: dict[int, tuple[list[str], str, list[str]]] = {}
    for key, target, own, theirs in connection.execute(
        'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq', (table,)
    ):
        entry = keys.setdefault(key, ([], target, []))
        entry[0].append(own)
        primary = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk = ?", (target, len(entry[0]))).fetchone()
        entry[2].append(theirs or (primary[0] if primary else own))
    return tuple((tuple(own), target, tuple(theirs)) for own, target, theirs in keys.values())


@lru_cache(maxsize=64)
def catalogue(path: Path) -> Catalogue:
    """The catalogue of a held copy. Cached by path, so only for files that never change."""
    with closing(connect(path)) as connection:
        return read_catalogue(connection)


def describe_schema(path: str | Path, *, samples: int = 3, limit: int = 8000) -> str:
    """Compact CREATE TABLE text with types, keys and up to `samples` distinct values a column as comments.

    At most `limit` characters: fewer samples first, then whole tables are left to a last line that names them.
    """
    with closing(connect(Path(path))) as connection:
        found = read_catalogue(connection)
        for shown in range(samples, -1, -1):
            parts = [_describe(connection, table, shown) for table in found.tables]
            if len("\n".join(parts)) <= limit:
                return "\n".join(parts)
    kept: list[str] = []
    for index, part in enumerate(parts):
        rest = ", ".join(table.name for table in found.tables[index:])
        if sum(len(text) + 1 for text in kept) + len(part) + len(rest) + 30 > limit:
            return "\n".join([*kept, f"-- and {len(parts) - index} more tables: {rest}"])[:limit]
        kept.append(part)
    return "\n".join(kept)


def _describe(connection: sqlite3.Connection, table: Table, samples: int) -> str:
    lines = []
    for column in table.columns:
        text = f"  {column.name} {column.type}".rstrip() + (" PRIMARY KEY" if column.key else "")
        values = _samples(connection, column, samples) if samples else []
        lines.append((text, f" -- {', '.join(values)}" if values else ""))
    for own, target, theirs in table.foreign:
        lines.append((f"  FOREIGN KEY ({', '.join(own)}) REFERENCES {target}({', '.join(theirs)})", ""))
    body = "\n".join(text + ("," if index < len(lines) - 1 else "") + note for index, (text, note) in enumerate(lines))
    return f"CREATE {'VIEW' if table.view else 'TABLE'} {table.name} (\n{body}\n);"


def _samples(connection: sqlite3.Connection, column: Column, count: int) -> list[str]:
    name, table = quoted(column.name), quoted(column.table)
    try:
        rows = connection.execute(
            f"SELECT DISTINCT {name} FROM (SELECT {name} FROM {table} WHERE {name} IS NOT NULL LIMIT {SAMPLED}) LIMIT {count}"
        ).fetchall()
    except sqlite3.Error:  # a view or a virtual table that cannot be read here
        return []
    return [literal(value) for (value,) in rows]


def literal(value: object, shown: int = SHOWN) -> str:
    """A value as a SQL literal on one line, for reading: text cut after `shown` characters, floats after six digits."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"X'{value[:shown].hex().upper()}'"
        return text if len(text) <= shown else text[:shown] + "…"
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, str):
        return str(value)
    flat = " ".join(value.split())
    flat = flat if len(flat) <= shown else flat[:shown] + "…"
    return "'" + flat.replace("'", "''") + "'"
