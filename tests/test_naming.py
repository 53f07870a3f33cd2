"""What a lesson in words names: its parts, and what of them a situation lacks."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, situation, task, verdict
from mulligan.naming import LONGEST, Code, fold, lacking, literals, names, numbers, parts, stands_in

SITUATION = situation(
    task=task(prompt="Count the red boxes of shelf_2.", context="boxes: red, blue"),
    observation="You see box_a.",
    history=(attempt("open lid_9", verdict=verdict(feedback="there is no lid here")),),
)


def test_code_quotations_and_prose_are_taken_apart() -> None:
    found = parts("Use `x_1` and ``y`z``, never 'red box':\n```sql\nSELECT 1\n```\nthen “stop”.")
    assert found.code == (Code("SELECT 1", fenced=True), Code("x_1"), Code("y`z"))
    assert found.said == ("red box", "stop")
    assert [word for word in found.prose.split() if word.isalpha()] == ["Use", "and", "never", "then"]
    assert "'red box'" in found.spoken and "SELECT" not in found.spoken


def test_an_apostrophe_quotes_nothing() -> None:
    assert parts("the state's name isn't the river's").said == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("call foo(x) with state_name, camelCase, a.py and city.name", ["foo", "state_name", "camelCase", "city.name"]),
        ("e.g. the end. Then SQL, i.e. LIMIT 3 and the 2nd row", []),
        ("see src/app/main.py for it", ["src/app/main.py"]),
        ("第3行 の値 straße", []),
    ],
)
def test_names_are_written_like_code(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_numbers_of_everyday_and_of_one_digit_are_no_values() -> None:
    assert numbers("3 of 10, 150000 or 1,234.5 in 2004; v12 1.2.3 100%") == ["150000", "1,234.5", "2004"]
    assert literals("WHERE a = 'texas' AND b > 42 AND c = 'x' OR d = \"new york\"") == ["texas", "new york", "42"]


def test_whole_words_in_any_case_and_script() -> None:
    sight = fold("The  Great SKERRY of 東京都, x+1")
    assert all(stands_in(word, sight) for word in ("great skerry", "SKERRY", "東京", "x+1"))
    assert not any(stands_in(word, sight) for word in ("kerry", "great s", "大阪", "", " "))


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("Count the `red` boxes.", []),
        ("Count the 'green' ones.", ["green"]),
        ("Look at shelf_2, not at shelf_3.", ["shelf_3"]),
        ("Open `box_a` first.", []),
        ("Do not open lid_9 again.", ["lid_9"]),  # only the agent itself has named it
        ("Take `box_b` from `shelf_2`.", ["box_b"]),
        ("Use `red boxes of shelf_2`.", []),
        ("Add `4711` to it, not `100`.", ["4711"]),
        ("```\nfor crate in boxes\n```", ["for", "crate", "in"]),
    ],
)
def test_what_was_never_shown_is_lacking(text: str, unknown: list[str]) -> None:
    assert [misfit.what for misfit in lacking(SITUATION, text)] == unknown


def test_words_of_the_language_are_there_anywhere() -> None:
    assert lacking(SITUATION, "`FOR box IN boxes`", {"for", "in", "box"}) == []


def test_a_text_that_is_too_long_fits_nowhere() -> None:
    (misfit,) = lacking(SITUATION, "x" * (LONGEST + 1))
    assert misfit.kind == "unparseable"


@given(st.text(alphabet="`'\"a_1. \n<(“”「東", max_size=300))
def test_any_text_is_taken_apart(text: str) -> None:
    for misfit in lacking(SITUATION, text):
        assert misfit.what
    found = parts(text)
    assert len(found.prose) <= 3 * max(1, len(text))


@pytest.mark.parametrize("piece", ["`", "```", "```\n", "'", '"', "_", "a.", "<", "“", "`a", "1,", "\x00"])
def test_a_row_of_anything_takes_little_time(piece: str) -> None:
    began = time.process_time()
    lacking(SITUATION, piece * (LONGEST // len(piece)))
    assert time.process_time() - began < 2
