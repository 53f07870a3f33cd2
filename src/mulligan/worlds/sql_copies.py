"""Changed copies of a database, on which a result that was right by luck is seen to be wrong.

In: a held copy of a database. Out: further databases beside it, the same each time for the same content: some with fewer rows, some
with values exchanged between rows, some with more rows, some where each text that comes again does so in many rows; all with the rows in
another physical order. Rules that are seen to hold in the source hold in the copies: a column without repetitions has none, a column that
decides another still does, a reference finds its row, a relation that holds both ways does, NULL and repeated rows appear only where
there were some. So an answer that is right because of such a rule is not refused, and one that is right because of the particular values
or counts is. Not promised: triggers, virtual tables, rows of a table beyond the first `ROWS`, and rules that span several columns.
"""

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, cycle, product
from math import isfinite
from pathlib import Path
from zlib import crc32

from mulligan.worlds.sql_engine import Cell, place
from mulligan.worlds.sql_schema import Catalogue, Column, connect, quoted, read_catalogue

RULES = "3"  # changes whenever a copy of the same source would come out differently
KINDS = ("fewer", "exchanged", "more", "crowded")
ROUNDS = 2  # copies of each kind: what one draw leaves as it was, another changes
ROWS = 5_000
DROPPED = 0.3  # share of rows that "fewer" leaves out
DROPPED_KEYS = 0.15  # the same for rows that others refer to, which go with them
CLONED = 0.7  # share of rows that "more" repeats with changes
CROWD = 12  # rows in which "crowded" has every text that comes again: the least and the first name of two rows are often the same one
CROWDED_ROWS = 2_000  # rows that "crowded" adds to a table for one column, at most
RENEWED = 0.5  # share of names that occur several times, and of references, that get a new one there
EMPTIED = 0.15  # share of new values that are NULL, in columns that had NULL
MEASURE = 0.5  # numeric columns with this share of distinct values are measures: their values may be new ones
SPREAD = 1.0  # powers of ten by which a new number differs at most: a sum must not follow the count of its rows
LARGEST = 2**58  # numbers from here on only shrink: SQLite's integers have 64 bits
REPEATING = 0.8  # a column with at most this share of distinct values can be seen to decide another
REPEATED = 0.1  # share of rows that stand there already from which copies have such rows too
MOST_PAIRED = 12  # columns of a table that are looked at for two that tell rows apart together
REFERENCE = 3  # distinct texts from which containment in a key is taken for a reference

Rows = list[list[Cell]]
Place = tuple[str, int]  # table, column


@dataclass(slots=True)
class Sheet:
    """One table in memory, with the rules that are seen to hold in it. Columns are positions."""

    columns: tuple[Column, ...]
    rows: Rows
    sql: str
    unique: set[int] = field(default_factory=set)
    nullable: set[int] = field(default_factory=set)
    measures: set[int] = field(default_factory=set)
    decided: dict[int, int] = field(default_factory=dict)  # column → the repeating column that decides it
    paired: set[int] = field(default_factory=set)  # decided columns that decide the other as well
    repeats: int = 0  # rows that stand there already
    pairs: list[tuple[int, int]] = field(default_factory=list)  # columns that tell rows apart together, and neither of them alone
    mutual: tuple[int, int] | None = None  # two columns that say the same with their values swapped: a borders b, b borders a
    key: int | None = None  # the unique column whose value says whether a row is dropped or repeated, in all tables alike


@dataclass(slots=True)
class Source:
    """A database in memory: its tables by name, and which column refers to which unique one."""

    tables: dict[str, Sheet]
    refers: dict[Place, Place]
    seed: str

    def share(self, kind: str, value: object) -> float:
        """A number in [0, 1) that is drawn once for a value, wherever it stands."""
        return crc32(f"{self.seed} {kind} {value!r}".encode()) / 2**32


def changed_copies(held: Path) -> list[Path]:
    """The changed copies of `held`, `ROUNDS` times one of each kind; made on first use."""
    targets = [held.with_name(f"{held.stem}-{kind}{turn}-{RULES}.sqlite") for turn in range(ROUNDS) for kind in KINDS]
    if all(target.exists() for target in targets):
        return targets
    with closing(connect(held)) as connection:
        source = _read(connection, held.stem)
        rest = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type IN ('index', 'view') AND sql IS NOT NULL")]
    for target, (turn, change) in zip(targets, product(range(ROUNDS), (_fewer, _exchanged, _more, _crowded)), strict=True):
        draw, source = random.Random(target.stem), replace(source, seed=f"{held.stem} {turn}")
        rows = {name: change(source, name, sheet, draw) for name, sheet in source.tables.items()}
        _drop_orphans(source, rows)
        for table in rows.values():
            draw.shuffle(table)
        place(target, _writer(source, rows, rest))
    return targets


def _read(connection: sqlite3.Connection, seed: str) -> Source:
    catalogue = read_catalogue(connection)
    made = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"))
    tables: dict[str, Sheet] = {}
    for table in (table for table in catalogue.tables if table.name in made):
        stored = {n for (n,) in connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table.name,))}
        columns = tuple(column for column in table.columns if column.name in stored)  # generated columns make themselves
        listed = ", ".join(quoted(column.name) for column in columns)
        rows = connection.execute(f"SELECT {listed} FROM {quoted(table.name)} LIMIT {ROWS}").fetchall()
        tables[table.name] = Sheet(columns, [list(row) for row in rows], made[table.name])
        _learn(tables[table.name])
    refers = _references(tables, catalogue)
    for name, sheet in tables.items():
        linked = {position for position in sheet.unique if (name, position) in refers or (name, position) in refers.values()}
        sheet.key = min(linked or sheet.unique, default=None)
    return Source(tables, refers, seed)


def _learn(sheet: Sheet) -> None:
    """Fill in the rules of one table."""
    values = [[row[p] for row in sheet.rows] for p in range(len(sheet.columns))]
    distinct = [len(set(column)) for column in values]
    total = len(sheet.rows)
    sheet.repeats = total - len(set(map(tuple, sheet.rows)))
    for p, column in enumerate(values):
        if None in column:
            sheet.nullable.add(p)
        elif distinct[p] == total:
            sheet.unique.add(p)
    if sheet.repeats < REPEATED * total:
        free = [p for p in range(len(values)) if p not in sheet.unique and distinct[p] > 1][:MOST_PAIRED]
        apart = total - sheet.repeats
        sheet.pairs = [(p, q) for p, q in combinations(free, 2) if len(set(zip(values[p], values[q], strict=True))) == apart]
    sheet.mutual = next((pair for pair in combinations(range(len(values)), 2) if _is_mutual(values[pair[0]], values[pair[1]])), None)
    for p in range(len(values)):
        for by in range(len(values)):
            repeats = 1 < distinct[by] <= REPEATING * total and by not in sheet.decided
            if p != by and distinct[p] > 1 and repeats and _decides(values[by], values[p]):
                sheet.decided[p] = by
                if _decides(values[p], values[by]):
                    sheet.paired.add(p)
                break
    for p, column in enumerate(values):
        owner = sheet.decided.get(p)
        each = column if owner is None else dict(zip(values[owner], column, strict=True)).values()
        numbers = [cell for cell in each if cell is not None]
        if numbers and all(isinstance(cell, int | float) for cell in numbers) and len(set(numbers)) >= MEASURE * len(numbers):
            sheet.measures.add(p)


def _decides(by: Iterable[Cell], column: Iterable[Cell]) -> bool:
    seen: dict[Cell, Cell] = {}
    return all(seen.setdefault(key, value) == value for key, value in zip(by, column, strict=True))


def _is_mutual(one: Sequence[Cell], other: Sequence[Cell]) -> bool:
    pairs = set(zip(one, other, strict=True))
    return len(pairs) >= REFERENCE and set(one) == set(other) and all((b, a) in pairs for a, b in pairs)


def _references(tables: Mapping[str, Sheet], catalogue: Catalogue) -> dict[Place, Place]:
    """Declared references of one column; and columns whose values all stand in a unique column of another table.

    Text is enough for the second kind; numbers, which are contained in one another by chance, must have the same column name too.
    """
    held = {(name, p): {row[p] for row in sheet.rows} - {None} for name, sheet in tables.items() for p in range(len(sheet.columns))}
    keys = [(name, p) for name, sheet in tables.items() for p in sorted(sheet.unique)]
    declared = {(name, own[0], theirs[0]) for name in tables for own, _, theirs in _foreign(catalogue, name) if len(own) == 1}
    found: dict[Place, Place] = {}
    for mine, values in held.items():
        column = tables[mine[0]].columns[mine[1]]
        for key in keys:
            target = tables[key[0]].columns[key[1]]
            texts = len(values) >= REFERENCE and all(isinstance(value, str) for value in values)
            told = (mine[0], column.name, target.name) in declared
            alike = texts or told or column.name.lower() == target.name.lower()
            if values and alike and (mine[0] != key[0] or told) and mine != key and values <= held[key]:
                found[mine] = key
                break
    return found


def _foreign(catalogue: Catalogue, table: str) -> tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...]:
    found = catalogue.table(table)
    return found.foreign if found else ()


def _fewer(source: Source, name: str, sheet: Sheet, draw: random.Random) -> Rows:
    key = sheet.key
    if sheet.mutual:
        one, other = sheet.mutual
        return [row for row in sheet.rows if source.share("drop", sorted([str(row[one]), str(row[other])])) >= DROPPED] or sheet.rows[:2]
    if key is None:
        return [row for row in sheet.rows if draw.random() >= DROPPED] or sheet.rows[:1]
    share = DROPPED_KEYS if (name, key) in source.refers.values() or (name, key) in source.refers else DROPPED
    return [row for row in sheet.rows if source.share("drop", row[key]) >= share] or sheet.rows[:1]


def _exchanged(source: Source, name: str, sheet: Sheet, draw: random.Random) -> Rows:
    """Every column's values in other rows, measures with new values."""
    rows = [list(row) for row in sheet.rows]
    if sheet.mutual:  # both ends get the same new names
        one, other = sheet.mutual
        ends = list(dict.fromkeys(row[one] for row in rows))
        renamed = dict(zip(ends, draw.sample(ends, len(ends)), strict=True))
        for row in rows:
            row[one], row[other] = renamed[row[one]], renamed[row[other]]
    free = [p for p in range(len(sheet.columns)) if p != sheet.key and p not in (sheet.mutual or ())]
    for p in sorted(free, key=lambda p: p in sheet.decided):  # what decides comes before what it decides
        by = sheet.decided.get(p)
        first = {row[by] if by is not None else index: row[p] for index, row in enumerate(sheet.rows)}
        measure = p in sheet.measures and p not in sheet.decided.values()
        column = _shuffled(source, (name, p), list(first.values()), measure, draw)
        given = dict(zip(first, column, strict=True))
        for index, row in enumerate(rows):
            row[p] = given[row[by] if by is not None else index]
    return _few_repeats(sheet, rows)


def _few_repeats(sheet: Sheet, rows: Rows) -> Rows:
    """`rows` with no larger share of repetitions than the source has, and none where it has few.

    A maximum that stands there twice is two rows for `c = (SELECT MAX(c) …)` and one for `ORDER BY c DESC LIMIT 1`.
    """
    share = sheet.repeats / max(1, len(sheet.rows))
    allowed = share * len(rows) if share >= REPEATED else 0
    seen: set[tuple[Cell, ...]] = set()
    kept: Rows = []
    for row in rows:
        if tuple(row) not in seen or len(kept) - len(seen) < allowed:
            kept.append(row)
            seen.add(tuple(row))
    return kept


def _shuffled(source: Source, place: Place, column: list[Cell], measure: bool, draw: random.Random) -> list[Cell]:
    linked = place in source.refers or place in source.refers.values()
    moved = _jittered(column, draw) if measure and not linked else list(column)
    draw.shuffle(moved)
    return moved


def _jittered(column: Iterable[Cell], draw: random.Random) -> list[Cell]:
    """New numbers, all different: the first of two equal ones would be right by the order of the rows."""
    used: set[Cell] = set()
    fresh: list[Cell] = []
    for cell in column:
        if isinstance(cell, int | float) and isfinite(cell):
            power = draw.uniform(-SPREAD, SPREAD)
            value = cell * 10 ** (power if abs(cell) < LARGEST else -abs(power))
            cell = round(value) if isinstance(cell, int) else value
            while cell in used:
                cell += 1 + abs(cell) // 2**40  # what a large float sees as another number
            used.add(cell)
        fresh.append(cell)
    return fresh


def _more(source: Source, name: str, sheet: Sheet, draw: random.Random) -> Rows:
    """The rows, and changed repetitions of some: new names, and in columns that are free to vary each value in turn."""
    rows = [list(row) for row in sheet.rows]
    if sheet.mutual:
        return _more_pairs(rows, *sheet.mutual, draw)
    repeatable = _repeatable(sheet)
    turns = [_endless({row[p] for row in repeatable}, draw) for p in range(len(sheet.columns))]
    for row in repeatable:
        chosen = draw.random() if sheet.key is None else source.share("clone", row[sheet.key])
        if chosen < CLONED:
            renew = draw.random() < 1 / 2
            rows.append([_varied(source, (name, p), row, turns[p], draw, renew=renew) for p in range(len(row))])
    return _kept(sheet, rows)


def _crowded(source: Source, name: str, sheet: Sheet, draw: random.Random) -> Rows:
    """Exchanged rows, and changed repetitions that bring every text of a repeating column to `CROWD` rows."""
    rows = _exchanged(source, name, sheet, draw)
    if sheet.mutual:
        return _more_pairs(rows, *sheet.mutual, draw)
    sheet = replace(sheet, rows=list(rows))
    repeatable = _repeatable(sheet)
    turns, present = [_endless({row[p] for row in repeatable}, draw) for p in range(len(sheet.columns))], set(map(tuple, rows))
    for p in (p for p in range(len(sheet.columns)) if p not in sheet.unique and p not in sheet.decided and p not in sheet.decided.values()):
        counts = Counter(row[p] for row in sheet.rows if isinstance(row[p], str))
        if not 1 < len(counts) <= REPEATING * len(sheet.rows):
            continue
        wanted = min(CROWD, CROWDED_ROWS // len(counts))
        for text, count in sorted(counts.items()):
            for row in draw.sample(repeatable, len(repeatable)):
                if count >= wanted:
                    break
                clone = [_varied(source, (name, q), row, turns[q], draw, renew=True, number=2 + len(rows)) for q in range(len(row))]
                clone[p] = text
                if tuple(clone) not in present:
                    present.add(tuple(clone))
                    rows.append(clone)
                    count += 1
    return _kept(sheet, rows)


def _repeatable(sheet: Sheet) -> Rows:
    ends = _lone_ends(sheet)
    return [row for row in sheet.rows if not ends.intersection(enumerate(row))] or sheet.rows


def _kept(sheet: Sheet, rows: Rows) -> Rows:
    """`rows` without those that repeat a value of a unique column, or of two that tell rows apart together."""
    keys = [*((p, p) for p in sheet.unique), *sheet.pairs]
    held: list[set[tuple[Cell, Cell]]] = [set() for _ in keys]
    kept: Rows = []
    for row in rows:
        mine = [(row[p], row[q]) for p, q in keys]
        if not any(pair in seen for pair, seen in zip(mine, held, strict=True)):
            kept.append(row)
            for pair, seen in zip(mine, held, strict=True):
                seen.add(pair)
    return _few_repeats(sheet, kept)


def _varied(
    source: Source, place: Place, row: list[Cell], turn: Iterator[Cell], draw: random.Random, *, renew: bool, number: int = 2
) -> Cell:
    """The value of one column of a repeated row."""
    sheet, p = source.tables[place[0]], place[1]
    cell, by = row[p], sheet.decided.get(p)
    if p in sheet.unique:
        return _fresh(cell, number)
    if by is not None or p in sheet.decided.values():  # names that come again, and what they decide, are renewed together
        owner = row[p if by is None else by]
        if not renew or place in source.refers or owner is None or source.share("renew", owner) >= RENEWED:
            return cell
        if by is None or (p in sheet.paired and isinstance(cell, str)):
            return _fresh(cell)
        return _jittered([cell], random.Random(f"{source.seed} {owner!r}"))[0]
    if p in sheet.nullable and draw.random() < EMPTIED:
        return None
    if place in source.refers:
        value = next(turn)
        new = draw.random() < RENEWED and source.share("clone", value) < CLONED
        return _fresh(value) if new else value
    return _jittered([cell], draw)[0] if p in sheet.measures else next(turn)


def _lone_ends(sheet: Sheet) -> set[tuple[int, Cell]]:
    """Columns and their greatest or least value, where one row alone holds it and a repetition could only hold it too; of columns of
    numbers, also of those that are stored as text, which sort as text.
    """
    found: set[tuple[int, Cell]] = set()
    for p in set(range(len(sheet.columns))) - sheet.measures - sheet.unique:
        numbers = [cell for row in sheet.rows if isinstance(cell := row[p], int | float)]
        texts = [cell for row in sheet.rows if isinstance(cell := row[p], str)]
        if texts and all(map(_NUMBER.fullmatch, texts)):
            found |= {(p, end) for end in (min(texts), max(texts)) if texts.count(end) == 1}
        found |= {(p, end) for end in (min(numbers), max(numbers)) if numbers.count(end) == 1} if numbers else set()
    return found


_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?")


def _endless(values: Iterable[Cell], draw: random.Random) -> Iterator[Cell]:
    """The values again and again, in one random order."""
    order = sorted(values, key=repr)
    draw.shuffle(order)
    return cycle(order)


def _more_pairs(rows: Rows, one: int, other: int, draw: random.Random) -> Rows:
    """New pairs of the ends that are there, each of them both ways."""
    present = {(row[one], row[other]) for row in rows}
    for row in list(rows):
        clone = list(row)
        clone[other] = draw.choice(rows)[other]
        pair = clone[one], clone[other]
        if draw.random() < CLONED / 2 and pair[0] != pair[1] and pair not in present:
            present |= {pair, pair[::-1]}
            back = list(clone)
            back[one], back[other] = clone[other], clone[one]
            rows += [clone, back]
    return rows


def _fresh(cell: Cell, number: int = 2) -> Cell:
    """A value that no row holds yet, the same one in every table."""
    if isinstance(cell, str):
        return f"{cell} {number}"
    if isinstance(cell, bytes):
        return cell + str(number).encode()
    return cell + 1_000_003 * (number - 1) if isinstance(cell, int | float) else cell


def _drop_orphans(source: Source, rows: dict[str, Rows]) -> None:
    """Remove rows whose reference finds nothing, until none is left; a tree keeps its branches, whose rows then refer to none."""
    changed = True
    while changed:
        changed = False
        for (name, p), (target, key) in source.refers.items():
            there = {row[key] for row in rows[target]} | {None}
            if name == target and p in source.tables[name].nullable:
                rows[name] = [row if row[p] in there else [*row[:p], None, *row[p + 1 :]] for row in rows[name]]
            kept = [row for row in rows[name] if row[p] in there]
            changed = changed or len(kept) < len(rows[name])
            rows[name] = kept


def _writer(source: Source, rows: Mapping[str, Rows], rest: Iterable[str]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            for name, sheet in source.tables.items():
                listed = ", ".join(quoted(column.name) for column in sheet.columns)
                marks = ", ".join("?" * len(sheet.columns))
                with suppress(sqlite3.Error):  # a table that cannot be made here: queries on it are judged without this copy
                    connection.execute(sheet.sql)
                    connection.executemany(f"INSERT OR IGNORE INTO {quoted(name)} ({listed}) VALUES ({marks})", rows[name])
            for sql in rest:
                with suppress(sqlite3.Error):
                    connection.execute(sql)

    return write
