"""What is shown fits its terminal, keeps ids apart, and leaves stored text as it is."""

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from builders import check, record
from mulligan import cli_views, console
from mulligan.experiment.results import Lesson
from mulligan.records import Condition, Decision, Statistics

TEXT = st.text(st.characters(codec="utf-8"), max_size=120)
NAMES = st.text("abcdefghij_0123456789", min_size=1, max_size=18)


@given(rows=st.lists(st.tuples(NAMES, st.integers(0, 10**6).map(str), TEXT), min_size=1, max_size=5), width=st.integers(50, 200))
def test_a_table_is_never_wider_than_its_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        written: list[str] = []
        patch.setattr("sys.stdout.write", written.append)
        console.table(("name", "count", "about"), rows, fluid=2)
    lines = "".join(written).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) == 2 + len(rows)
    assert [line.split()[0] for line in lines[2:]] == [name for name, _, _ in rows]


@given(st.sets(st.text("0123456789abcdef", min_size=24, max_size=24), max_size=20))
def test_short_ids_are_unique_beginnings_of_one_length(bare: set[str]) -> None:
    found = console.short_ids(f"rec_{text}" for text in bare)
    assert len(set(found.values())) == len(bare)
    assert all(key.startswith(f"rec_{short}") and len(short) >= console.SHORT for key, short in found.items())
    assert len({len(short) for short in found.values()}) <= 1


def test_ids_that_begin_alike_are_shown_longer() -> None:
    found = console.short_ids(["rec_0123456789ab", "rec_0123456789cd"])
    assert list(found.values()) == ["0123456789a", "0123456789c"]


QUERY = "SELECT a.name, 'rows FROM a WHERE b' FROM port a LEFT JOIN route r ON r.a = a.id WHERE a.x > 3 GROUP BY 1 ORDER BY 2 LIMIT 1"


def test_a_long_query_gets_a_line_for_each_clause_and_keeps_its_quotes() -> None:
    assert cli_views.readable(QUERY).splitlines() == [
        "SELECT a.name, 'rows FROM a WHERE b'",
        "FROM port a",
        "LEFT JOIN route r ON r.a = a.id",
        "WHERE a.x > 3",
        "GROUP BY 1",
        "ORDER BY 2",
        "LIMIT 1",
    ]
    assert cli_views.readable("SELECT 1 FROM t") == "SELECT 1 FROM t"


@given(TEXT)
def test_readable_changes_blanks_alone(text: str) -> None:
    assert "".join(cli_views.readable(text).split()) == "".join(text.split())


@given(TEXT)
def test_what_is_shown_steers_no_terminal(text: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", console.clean(text))
    assert "\n" not in console.one_line(text)


def test_numbers_that_are_none_and_paths_become_json(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_json({"a": float("nan"), "b": [Fraction(1, 3)], "c": console.Path("x") / "y"})
    assert capsys.readouterr().out == '{\n  "a": null,\n  "b": [\n    "1/3"\n  ],\n  "c": "x/y"\n}\n'


CONDITIONS = [
    (Condition(), "everywhere"),
    (Condition(kind="predicate", text="about rivers", predicate='"river" in mentions'), 'when "river" in mentions'),
    (Condition(kind="judged", text="it asks where"), "when a model says that it asks where"),
]


@pytest.mark.parametrize(("condition", "says"), CONDITIONS)
def test_a_record_is_shown_with_its_evidence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, condition: Condition, says: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = record(condition=condition, principle="Counting wants count.", original=QUERY)
    decisions = (
        Decision(proposal=check(1).proposal, reason="admitted", rule="r1", check=check(1), record=made.id),
        Decision(proposal=check(0, "c").proposal, reason="no_gain", rule="r1", check=check(0, "c")),
    )
    used = Statistics(retrieved=5, selected=4, helped=3, hurt=1)
    cli_views.lesson(Lesson(id=made.id, status="active", record=made, statistics=used, decisions=decisions))
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    for part in (made.id, says, "Counting wants count.", "0.00 → 1.00", "helped 3, hurt 1", "1. admitted", "2. no_gain", "solved: right"):
        assert part in out
    assert out.count("0.00: wrong") == 2  # the failed action once, and the alternative that was no better
    cli_views.lesson(Lesson(id=made.id, status="active", record=made, statistics=used, decisions=decisions), whole=False)
    assert "no_gain" not in capsys.readouterr().out


def test_unchecked_advice_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    made = record(gain=replace(record().gain, verified=False))
    cli_views.lesson(Lesson(id=made.id, status="active", record=made, statistics=Statistics(), decisions=()))
    assert re.search(r"score +not checked$", capsys.readouterr().out, re.MULTILINE)


def test_progress_is_a_line_a_stage_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with console.Stages() as progress:
        for done in (1, 2, 3):
            progress("source", done, 3)
        progress("source", 3, 3)
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "source: 3 done in 0 s\n")
