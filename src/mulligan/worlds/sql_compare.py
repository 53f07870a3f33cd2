"""Whether two query results say the same: multisets of rows, in order where that is asked for, floats within a tolerance.

In: the wanted rows and the returned ones; for an ordered result also the sizes of its groups of ties. Out: a Comparison with the exact F1
of rows. The rules: columns go by position (by content only where the task says so); NULL equals NULL alone; text, blobs and numbers are
different kinds, so '5' is not 5; an integer equals a float of the same value; floats agree within 1e-6 of the larger one, integers only
exactly. Not promised: rows with several unequal floats are paired greedily, so a pairing that exists may be missed, never one invented.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from mulligan.worlds.sql_engine import Cell, Row

RELATIVE = 1e-6
ABSOLUTE = 1e-12  # what a sum that should be zero leaves
WINDOW = 100  # partners looked at for one row
TRIED = 300_000  # rows looked at in the search for an order of columns
DEEPEST = 200  # columns that the search takes on

Key = tuple[object, ...]
Entry = tuple[tuple[int | float, ...], int]  # the inexact numbers of a row, and its index


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`f1` is exact and counts rows as a multiset; `equal` also asks for the order. `missing` were wanted, `extra` were not."""

    equal: bool
    f1: Fraction
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()
    ordered: bool = True  # False: the rows are right and their order is not


def compare(
    wanted: Sequence[Row],
    got: Sequence[Row],
    *,
    widths: tuple[int, int] | None = None,
    groups: Sequence[int] | None = None,
    distinct: bool = False,
    columns_any_order: bool = False,
) -> Comparison:
    """Compare `got` with `wanted`. Near-linear in the number of rows.

    `widths` are the two numbers of columns, which empty results cannot show. `groups` are the sizes of the runs of wanted rows that may
    come in any order among themselves (None: any order at all). With `distinct` both are sets and order does not count.
    """
    wide, narrow = widths or (_width(wanted), _width(got))
    if wide != narrow:
        return Comparison(equal=False, f1=Fraction(0), missing=tuple(wanted), extra=tuple(got))
    if columns_any_order:
        got = _aligned(wanted, got)
    if distinct:
        wanted, got, groups = _unique(wanted), _unique(got), None
    matched = _match(wanted, got)
    missing = tuple(row for row, hit in zip(wanted, matched[0], strict=True) if not hit)
    extra = tuple(row for row, hit in zip(got, matched[1], strict=True) if not hit)
    total = len(wanted) + len(got)
    f1 = Fraction(total - len(missing) - len(extra), total) if total else Fraction(1)
    same = not missing and not extra
    ordered = groups is None or not same or _in_order(wanted, got, groups)
    return Comparison(equal=same and ordered, f1=f1, missing=missing, extra=extra, ordered=ordered)


def close(one: int | float, other: int | float) -> bool:
    """Whether two numbers are one: integers exactly, anything else within the tolerance."""
    return one == other or (not (isinstance(one, int) and isinstance(other, int)) and _near(one, other))


def _near(one: int | float, other: int | float) -> bool:
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _width(rows: Sequence[Row]) -> int:
    return len(rows[0]) if rows else 0


def _plain(cell: Cell) -> Cell:
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _inexact(*results: Sequence[Row]) -> list[int]:
    """Positions of columns in which some float is no whole number, the one with most values first."""
    values: dict[int, set[Cell]] = defaultdict(set)
    for rows in results:
        for row in rows:
            for position, cell in enumerate(row):
                if isinstance(cell, float) and not cell.is_integer():
                    values[position].add(cell)
    return sorted(values, key=lambda position: (-len(values[position]), position))


def _buckets(rows: Sequence[Row], inexact: Sequence[int]) -> dict[Key, list[Entry]]:
    """Rows by their exact cells; in a bucket the numbers of inexact columns in sorted order, each with the row's index."""
    found: dict[Key, list[Entry]] = defaultdict(list)
    for index, row in enumerate(rows):
        cells: list[object] = [_plain(cell) for cell in row]
        numbers: list[int | float] = []
        for position in inexact:
            cell = cells[position]
            if isinstance(cell, int | float):
                numbers.append(cell)
                cells[position] = float  # stands for any number
        found[tuple(cells)].append((tuple(numbers), index))
    for bucket in found.values():
        bucket.sort()
    return found


def _match(wanted: Sequence[Row], got: Sequence[Row]) -> tuple[list[bool], list[bool]]:
    """For each row of both results whether it has a partner in the other, each partner used once."""
    inexact = _inexact(wanted, got)
    hits = [False] * len(wanted), [False] * len(got)
    others = _buckets(got, inexact)
    for key, ours in _buckets(wanted, inexact).items():
        theirs = others.get(key, [])
        turned = [numbers for numbers, _ in ours] > [numbers for numbers, _ in theirs]  # greedy, yet the same both ways round
        for one, other in _pairs(theirs, ours) if turned else _pairs(ours, theirs):
            mine, partner = (other, one) if turned else (one, other)
            hits[0][mine] = hits[1][partner] = True
    return hits


def _pairs(ours: list[Entry], theirs: list[Entry]) -> list[tuple[int, int]]:
    """Greedy pairs of two sorted lists, looking only at partners whose first number is near."""
    if not ours or not ours[0][0]:
        return [(mine, partner) for (_, mine), (_, partner) in zip(ours, theirs, strict=False)]
    pairs: list[tuple[int, int]] = []
    free = list(theirs)
    start = 0
    for numbers, mine in ours:
        while start < len(free) and free[start][0][0] < numbers[0] and not _near(free[start][0][0], numbers[0]):
            start += 1
        for here in range(start, min(start + WINDOW, len(free))):
            theirs_here, partner = free[here]
            if not _near(theirs_here[0], numbers[0]):
                break
            if all(map(close, numbers, theirs_here)):
                pairs.append((mine, partner))
                del free[here]
                break
    return pairs


def _unique(rows: Sequence[Row]) -> list[Row]:
    """The rows without repetitions; of neighbours within the tolerance the first in sorted order stays."""
    kept: list[Row] = []
    for bucket in _buckets(rows, _inexact(rows)).values():
        last: tuple[int | float, ...] | None = None
        for numbers, index in bucket:
            if last is None or not all(map(close, last, numbers)):
                kept.append(rows[index])
                last = numbers
    return kept


def _in_order(wanted: Sequence[Row], got: Sequence[Row], groups: Sequence[int]) -> bool:
    """Whether each run of ties in `wanted` is met at the same place by the same rows, in any order."""
    start = 0
    for size in groups:
        mine, theirs = wanted[start : start + size], got[start : start + size]
        if not all(_match(mine, theirs)[0]):
            return False
        start += size
    return start == len(wanted)


def _aligned(wanted: Sequence[Row], got: Sequence[Row]) -> Sequence[Row]:
    """`got` with its columns in the order in which it equals `wanted`, if a short search finds one (floats to six digits)."""

    def columns(rows: Sequence[Row]) -> list[tuple[object, ...]]:
        return [tuple(float(f"{c:.6g}") if isinstance(c, float) else c for c in column) for column in zip(*rows, strict=True)]

    ours, theirs = columns(wanted), columns(got)
    if len(ours) != len(theirs) or len(wanted) != len(got):
        return got
    signature = [Counter(column) for column in theirs]
    choices = [[j for j in range(len(theirs)) if signature[j] == Counter(column)] for column in ours]
    spent = 0

    def search(chosen: list[int]) -> list[int] | None:
        nonlocal spent
        spent += len(got)
        if spent > TRIED or len(chosen) == len(ours):
            return chosen if len(chosen) == len(ours) else None
        for choice in choices[len(chosen)]:
            if choice not in chosen:
                trial = [*chosen, choice]
                if _alike(ours, theirs, trial) and (found := search(trial)):
                    return found
        return None

    order = search([]) if len(ours) < DEEPEST else None
    return [tuple(row[position] for position in order) for row in got] if order else got


def _alike(ours: Sequence[tuple[object, ...]], theirs: Sequence[tuple[object, ...]], chosen: Sequence[int]) -> bool:
    """Whether the rows agree as multisets over the columns chosen so far."""
    first = Counter(zip(*ours[: len(chosen)], strict=True))
    return first == Counter(zip(*(theirs[j] for j in chosen), strict=True))


def tie_groups(gold: str, rows: Sequence[Row], run: Callable[[str], Sequence[Row] | None]) -> tuple[int, ...] | None:
    """Sizes of the runs of `rows` that tie in the top-level ORDER BY of `gold`; None when it has none.

    Keys are read from the columns that show them. Otherwise they are appended to the gold query's columns and that query is `run`; where
    this is not possible or gives other rows, only equal rows tie. A LIMIT cuts where the gold query cuts, whatever ties it cuts through.
    """
    try:
        tree = sqlglot.parse_one(gold, dialect="sqlite")
    except (SqlglotError, RecursionError, ValueError):
        return None
    order = tree.args.get("order")
    if order is None or not isinstance(tree, exp.Query):
        return None
    places = [_place(ordered.this, tree.selects) for ordered in order.expressions]
    keys: Sequence[Row] = rows
    if rows and all(place is not None and place < len(rows[0]) for place in places):
        keys = [tuple(row[place] for place in places if place is not None) for row in rows]
    elif rows and isinstance(tree, exp.Select) and not tree.args.get("distinct"):
        hidden = [ordered.this.copy() for ordered, place in zip(order.expressions, places, strict=True) if place is None]
        longer = run(tree.select(*hidden, append=True, copy=True).sql(dialect="sqlite", unsupported_level=ErrorLevel.IGNORE))
        width = len(rows[0])
        if longer is not None and [row[:width] for row in longer] == list(rows):
            shown = [place for place in places if place is not None]
            keys = [tuple(row[place] for place in shown) + row[width:] for row in longer]
    sizes: list[int] = []
    for index, key in enumerate(keys):
        if index and key == keys[index - 1]:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return tuple(sizes)


def _place(key: exp.Expr, selects: Sequence[exp.Expr]) -> int | None:
    """Which column of the projection shows this sort key: by number, by alias, or as the same expression."""
    if isinstance(key, exp.Literal) and not key.is_string:
        return int(key.this) - 1 if key.this.isdigit() and 0 < int(key.this) <= len(selects) else None
    for position, shown in enumerate(selects):
        bare = shown.unalias()
        if bare == key or (isinstance(key, exp.Column) and not key.table and shown.alias_or_name.lower() == key.name.lower()):
            return position
    return None
