"""Predicates are pure, total, three-valued, and nothing but predicates."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.conditions import check_condition, holds
from mulligan.errors import InvalidData
from mulligan.records import Condition

FACTS = {"mentions": ["river", "state"], "rows": 12, "dialect": "sqlite", "empty": None}


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ('"river" in mentions', True),
        ('"lake" in mentions', False),
        ('"lake" not in mentions', True),
        ("rows > 10 and rows <= 12", True),
        ('dialect == "sqlite" and "river" in mentions', True),
        ('"lake" in mentions or rows != 3', True),
        ('not "lake" in mentions', True),
        ('"x" in missing', False),
        ('not "x" in missing', False),  # unknown is not true, and its negation is not either
        ('"x" in missing or rows > 10', True),
        ("rows > dialect", False),  # types that cannot be compared: unknown
        ("empty == 1", False),
        ('"x" in rows', False),
    ],
)
def test_holds(predicate: str, expected: bool) -> None:
    assert holds(predicate, FACTS) is expected


@pytest.mark.parametrize(
    "predicate",
    [
        "",
        "mentions",
        "__import__('os').system('true')",
        "rows + 1 == 13",
        "facts.rows == 1",
        "[x for x in mentions]",
        "1 < rows < 13",
        "lambda: 1",
        "rows == 1; rows == 2",
        "(" * 200 + "rows == 1" + ")" * 200,
        "rows == 1 and " * 30 + "rows == 1",
        "rows == b'x'",
        "a\x00b == 1",
    ],
)
def test_refuses_what_is_no_predicate(predicate: str) -> None:
    with pytest.raises(InvalidData):
        check_condition(Condition(kind="predicate", predicate=predicate))
    check_condition(Condition(kind="judged", text=predicate[:80]))


@given(st.text(max_size=60))
def test_never_raises_anything_else(text: str) -> None:
    with suppress(InvalidData):
        assert holds(text, FACTS) in (True, False)
