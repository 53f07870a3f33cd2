"""Results are compared as multisets of rows, in order where that was asked for, floats within a tolerance."""

import random
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.worlds.sql_compare import Row, close, compare, tie_groups

FRUIT = [("apple",), ("pear",)]
TWICE = [("apple",), ("apple",), ("pear",)]
ALPHABET = tuple("abcdefghijklmnopqrstuvwxyz")
EQUAL: list[tuple[str, list[Row], list[Row], dict[str, Any]]] = [
    ("another order", FRUIT, FRUIT[::-1], {}),
    ("nothing", [], [], {}),
    ("integer and float", [(5, "x")], [(5.0, "x")], {}),
    ("zero and minus zero", [(0,)], [(-0.0,)], {}),
    ("float noise", [(0.1 + 0.2,)], [(0.3,)], {}),
    ("within a millionth", [(1000.0004,)], [(1000.0,)], {}),
    ("what a sum leaves of zero", [(0.1 + 0.2 - 0.3, 1)], [(0, 1)], {}),
    ("an integer near a float", [(3.0000001,), (4,)], [(4,), (3,)], {}),
    ("infinity", [(float("inf"),)], [(float("inf"),)], {}),
    ("NULL and NULL", [(None, 1)], [(None, 1)], {}),
    ("bytes", [(b"\x00\xff",)], [(b"\x00\xff",)], {}),
    ("sets", FRUIT, TWICE, {"distinct": True}),
    ("sets of floats", [(0.3,), (0.3 + 1e-12,)], [(0.3,)], {"distinct": True}),
    ("order does not count for sets", FRUIT, TWICE[::-1], {"distinct": True, "groups": (1, 1)}),
    ("columns in another order", [(1, "a"), (2, "b")], [("b", 2), ("a", 1)], {"columns_any_order": True}),
    ("26 columns reversed", [ALPHABET], [ALPHABET[::-1]], {"columns_any_order": True}),
    ("equal columns", [(1, 1, 2)], [(1, 2, 1)], {"columns_any_order": True}),
    ("in order", [(1,), (2,)], [(1,), (2,)], {"groups": (1, 1)}),
    ("ties turned round", [(1, "a"), (1, "b"), (2, "c")], [(1, "b"), (1, "a"), (2, "c")], {"groups": (2, 1)}),
]
DIFFERENT: list[tuple[str, list[Row], list[Row], dict[str, Any], Fraction]] = [
    ("a repeated row", FRUIT, TWICE, {}, Fraction(4, 5)),
    ("text and number", [("5",)], [(5,)], {}, Fraction(0)),
    ("text and bytes", [("a",)], [(b"a",)], {}, Fraction(0)),
    ("case", [("a",)], [("A",)], {}, Fraction(0)),
    ("NULL and 0", [(None,)], [(0,)], {}, Fraction(0)),
    ("NULL and empty", [(None,)], [("",)], {}, Fraction(0)),
    ("large integers", [(1_700_000_000,)], [(1_700_000_001,)], {}, Fraction(0)),
    ("large integers beside floats", [(1_700_000_000,), (0.5,)], [(1_700_000_001,), (0.5,)], {}, Fraction(1, 2)),
    ("beyond the tolerance", [(1.0,), (7,)], [(1.00001,), (7,)], {}, Fraction(1, 2)),
    ("columns by position", [(1, "a")], [("a", 1)], {}, Fraction(0)),
    ("26 columns reversed", [ALPHABET], [ALPHABET[::-1]], {}, Fraction(0)),
    ("columns that never fit", [(1, 2), (3, 4)], [(2, 3), (4, 1)], {"columns_any_order": True}, Fraction(0)),
    ("a column too many", [(1,)], [(1, 1)], {}, Fraction(0)),
    ("empty of other widths", [], [], {"widths": (1, 2)}, Fraction(0)),
    ("empty and not", [(1,)], [], {}, Fraction(0)),
    ("the other order", [(1,), (2,)], [(2,), (1,)], {"groups": (1, 1)}, Fraction(1)),
    ("beyond the ties", [(1, "a"), (1, "b"), (2, "c")], [(1, "a"), (2, "c"), (1, "b")], {"groups": (2, 1)}, Fraction(1)),
]


@pytest.mark.parametrize(("wanted", "got", "options"), [case[1:] for case in EQUAL], ids=[case[0] for case in EQUAL])
def test_equal(wanted: list[Row], got: list[Row], options: dict[str, Any]) -> None:
    assert compare(wanted, got, **options).equal
    assert compare(got, wanted, **options).equal


@pytest.mark.parametrize(("wanted", "got", "options", "f1"), [case[1:] for case in DIFFERENT], ids=[case[0] for case in DIFFERENT])
def test_different(wanted: list[Row], got: list[Row], options: dict[str, Any], f1: Fraction) -> None:
    found = compare(wanted, got, **options)
    assert (found.equal, found.f1) == (False, f1)
    assert found.ordered == (f1 != 1)


def test_what_is_missing_and_unwanted_is_named() -> None:
    found = compare([(1,), (1,), (2,)], [(1,), (3,)])
    assert sorted(found.missing) == [(1,), (2,)]
    assert found.extra == ((3,),)
    assert found.f1 == Fraction(2, 5)


def _shuffled(rows: list[Row], seed: int) -> list[Row]:
    return random.Random(seed).sample(rows, len(rows))


LARGE = {
    "floats": [(i * 1.37, f"{i % 7}") for i in range(10_000)],
    "places on a map": [(40 + random.Random(i).random() / 2, -74 + random.Random(-i).random() / 2) for i in range(10_000)],
    "one float and one that varies": [(0.5, i / 10_001) for i in range(10_000)],
    "nothing but one value": [(1, 1.5)] * 10_000,
}


@pytest.mark.parametrize("name", LARGE)
def test_ten_thousand_rows_take_a_moment(name: str) -> None:
    rows, began = LARGE[name], time.perf_counter()
    assert compare(rows, _shuffled(rows, 1)).equal
    assert not compare(rows, _shuffled([*rows[1:], (-1, -1)], 2)).equal
    assert compare(rows, rows, groups=[1] * len(rows)).equal
    assert time.perf_counter() - began < 2.5


@pytest.mark.parametrize("rows", [[tuple((i * k) % 26 for i in range(26)) for k in (1, 3, 5, 7)], [tuple(range(26))], [(1,) * 26]])
def test_many_columns_are_answered_at_once(rows: list[Row]) -> None:
    began = time.perf_counter()
    assert compare(rows, [row[::-1] for row in rows], columns_any_order=True).equal
    compare(rows, [tuple(cell + 1 for cell in row) for row in rows], columns_any_order=True)
    assert time.perf_counter() - began < 0.1


cells = st.one_of(
    st.none(), st.integers(-5, 5), st.sampled_from([0.1, 0.1 + 1e-8, 0.2, 1.5, 2.0]), st.sampled_from(["", "a", "5"]), st.just(b"a")
)
results = st.lists(st.tuples(cells, cells), max_size=8)


@given(results, results, st.randoms(use_true_random=False))
def test_comparison_is_symmetric_and_blind_to_order(one: list[Row], other: list[Row], rng: random.Random) -> None:
    found = compare(one, other, widths=(2, 2))
    assert 0 <= found.f1 <= 1
    assert found.equal == (found.f1 == 1)
    assert compare(other, one, widths=(2, 2)).f1 == found.f1
    mixed = rng.sample(one, len(one)), rng.sample(other, len(other))
    assert compare(*mixed, widths=(2, 2)).f1 == found.f1
    assert len(one) - len(found.missing) == len(other) - len(found.extra)


@given(results)
def test_a_result_equals_itself_however_it_is_turned(rows: list[Row]) -> None:
    assert compare(rows, rows[::-1], widths=(2, 2)).equal
    assert compare(rows, [row[::-1] for row in rows], widths=(2, 2), columns_any_order=True).equal
    assert compare(rows, rows, groups=[1] * len(rows), widths=(2, 2)).equal


@given(results, st.tuples(cells, cells))
def test_one_row_more_is_never_equal(rows: list[Row], row: Row) -> None:
    found = compare(rows, [*rows, row], widths=(2, 2))
    assert not found.equal
    assert found.f1 == Fraction(2 * len(rows), 2 * len(rows) + 1)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_are_exact(one: int, other: int) -> None:
    assert close(one, other) == (one == other)


ROWS: list[Row] = [("b", 1), ("a", 1), ("c", 2)]
TIES: list[tuple[str, list[Row], list[Row] | None, tuple[int, ...] | None]] = [
    ("SELECT name, x FROM t", ROWS, None, None),
    ("SELECT name, x FROM t ORDER BY x", ROWS, None, (2, 1)),
    ("SELECT name, x FROM t ORDER BY 2", ROWS, None, (2, 1)),
    ("SELECT name, x AS size FROM t ORDER BY size", ROWS, None, (2, 1)),
    ("SELECT name, t.x FROM t ORDER BY x DESC", ROWS, None, (2, 1)),
    ("SELECT DISTINCT name, x FROM t ORDER BY x", ROWS, None, (2, 1)),
    ("SELECT name, x FROM t UNION SELECT name, x FROM u ORDER BY x", ROWS, None, (2, 1)),
    ("SELECT name FROM t ORDER BY x", [("b",), ("a",), ("c",)], ROWS, (2, 1)),
    ("SELECT name FROM t GROUP BY name ORDER BY COUNT(*)", [("b",), ("a",), ("c",)], ROWS, (2, 1)),
    ("SELECT name FROM t ORDER BY x", [("b",), ("a",), ("c",)], None, (1, 1, 1)),  # the longer query fails
    ("SELECT name FROM t ORDER BY x", [("b",), ("a",), ("c",)], ROWS[::-1], (1, 1, 1)),  # it gives other rows
    ("SELECT DISTINCT name FROM t ORDER BY x", [("b",), ("b",), ("c",)], None, (2, 1)),  # equal rows always tie
    ("SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY x LIMIT 2)", [(1,), (2,)], None, None),
    ("SELECT id FROM t WHERE s <> 'order by'", [(1,)], None, None),
    ("SELECT name FROM t ORDER BY x", [], None, ()),
    ("not sql at all (", ROWS, None, None),
]


@pytest.mark.parametrize(("gold", "rows", "longer", "groups"), TIES)
def test_ties(gold: str, rows: list[Row], longer: list[Row] | None, groups: tuple[int, ...] | None) -> None:
    assert tie_groups(gold, rows, lambda sql: longer) == groups
