"""Counterfactual probes: counted by rule, with denominators, on a database and its changed copies."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import record
from islands import SCHEMA, ask, make
from mulligan.embeddings import HashingEmbedder
from mulligan.experiment.metrics import Rate
from mulligan.experiment.probes import Findings, Probe, is_correct, probe
from mulligan.experiment.statistics import cluster_interval, difference_interval
from mulligan.memory import Memory, Settings
from mulligan.models import ScriptedModel
from mulligan.nouns import from_json, to_json
from mulligan.records import Condition, Message
from mulligan.store import Store
from mulligan.worlds.sql import SqlWorld

ROWS = "INSERT INTO island VALUES ('isk', 220, 1500, 'iskwater', 'west'), ('arn', 410, 5200, 'arnhaven', 'north');"
QUESTION = "Which island is largest?"
LESSON = record("Which stream is longest?", original="SELECT 1", corrected="SELECT name FROM island ORDER BY area DESC LIMIT 1")
OLD, NEW = "Order by `area` and take one row.", "Order by `extent` and take one row."


@pytest.fixture
def probes(tmp_path: Path) -> list[Probe]:
    """Four groups; each with the column renamed in s-, and another one in s0; the last has neither."""
    holds = make(tmp_path, SCHEMA + ROWS)
    changed = make(tmp_path, SCHEMA.replace("area INTEGER", "extent INTEGER") + ROWS)
    placebo = make(tmp_path, SCHEMA.replace("length INTEGER", "metres INTEGER") + ROWS)
    gold = "SELECT name FROM island"

    def one(number: int) -> Probe:
        plus, minus, zero = (
            replace(ask(path, gold, f"{QUESTION} ({number})"), id=f"{number}{path.stem}", group=f"g{number % 2}", context=path.stem)
            for path in (holds, changed, placebo)
        )
        return Probe(record=LESSON, holds=plus, changed=minus, placebo=zero, renamed={"area": "extent"})

    return [*(one(number) for number in range(3)), replace(one(3), changed=None, placebo=None)]


def asked(tmp_path: Path, probes: Sequence[Probe], model: ScriptedModel | None, *, conditions: bool = True) -> Findings:
    settings = Settings(rewrite=model is not None, conditions=conditions)
    with Store(tmp_path / "m.db") as store:
        return probe(Memory(store, SqlWorld(), embedder=HashingEmbedder(32), model=model, settings=settings), probes)


def test_a_model_that_adapts_passes_every_probe(tmp_path: Path, probes: list[Probe]) -> None:
    found = asked(tmp_path, probes, ScriptedModel(lambda messages: NEW if "made1" in messages[1].content else OLD))
    assert (found.accepted.rate, found.adapted.rate, found.kept.rate, found.passed.rate) == (
        Rate(part=4, whole=4),
        Rate(part=3, whole=3),
        Rate(part=3, whole=3),
        Rate(part=3, whole=3),
    )
    assert (found.difference.value, found.apart.value) == (0.0, 1.0)
    assert found.apart.interval == (1.0, 1.0)
    assert found.fates == {"s+": {"accepted": 4}, "s-": {"accepted": 3}, "s0": {"accepted": 3}}
    assert found.usage.model_calls == 10
    assert [one.right for one in found.probes] == [True, True, True, None]


def test_what_names_the_old_fact_never_comes_through(tmp_path: Path, probes: list[Probe]) -> None:
    found = asked(tmp_path, probes, ScriptedModel(lambda messages: OLD))
    assert found.fates["s-"] == {"unknown_name": 3}  # the check refuses it: that is a rejection too
    assert found.probes[0].answers["s-"].why == "area"
    assert found.adapted.rate == Rate(part=3, whole=3)


def test_a_rewrite_that_names_neither_is_accepted_and_not_right(tmp_path: Path, probes: list[Probe]) -> None:
    found = asked(tmp_path, probes, ScriptedModel(lambda messages: "Sort and take one row."))
    assert found.adapted.rate == Rate(part=0, whole=3) and found.kept.rate == Rate(part=3, whole=3)
    assert (found.difference.value, found.apart.value) == (1.0, 0.0)


def test_what_is_rejected_in_s_plus_is_not_asked_again(tmp_path: Path, probes: list[Probe]) -> None:
    model = ScriptedModel(lambda messages: "<EMPTY>" if "(0)" in messages[1].content or "(3)" in messages[1].content else OLD)
    found = asked(tmp_path, probes, model)
    assert found.accepted.rate == Rate(part=2, whole=4)
    assert found.adapted.rate == Rate(part=2, whole=2) and found.passed.rate == Rate(part=2, whole=3)
    assert model.calls == 4 + 2 + 2
    low, high = found.accepted.interval or (1, 0)
    assert low <= 0.5 <= high


def test_a_memory_that_quotes_is_probed_by_its_conditions(tmp_path: Path, probes: list[Probe]) -> None:
    told = asked(tmp_path, probes, None)
    assert told.accepted.rate == Rate(part=4, whole=4) and told.adapted.rate == Rate(part=0, whole=3)
    assert told.usage.tokens == 0
    held = Condition(kind="predicate", text="it has an area", predicate='"island.area" in columns')
    bound = [replace(one, record=replace(one.record, condition=held)) for one in probes]
    found = asked(tmp_path, bound, None)
    assert found.adapted.rate == Rate(part=3, whole=3) and found.fates["s-"] == {"condition": 3}
    assert found.kept.rate == Rate(part=3, whole=3) and found.apart.value == 1.0
    assert asked(tmp_path, bound, None, conditions=False).adapted.rate == Rate(part=0, whole=3)


def test_a_condition_in_words_is_judged_and_paid_for(tmp_path: Path, probes: list[Probe]) -> None:
    def reply(messages: Sequence[Message]) -> str:
        return ("yes" if "(1)" in messages[1].content else "no") if "Does the condition hold" in messages[1].content else OLD

    worded = [replace(one, record=replace(one.record, condition=Condition(kind="judged", text="it is the first"))) for one in probes]
    found = asked(tmp_path, worded, ScriptedModel(reply))
    assert found.accepted.rate == Rate(part=1, whole=4) and found.fates["s+"] == {"accepted": 1, "condition": 3}
    assert found.usage.model_calls == 4 + 1 + 2 * 2


def test_findings_are_a_noun_and_nothing_is_written(tmp_path: Path, probes: list[Probe]) -> None:
    found = asked(tmp_path, probes, ScriptedModel(lambda messages: OLD))
    assert from_json(Findings, to_json(found)) == found
    with Store(tmp_path / "m.db") as store:
        assert not any(store.counts().values())


def test_no_probe_gives_no_share(tmp_path: Path) -> None:
    found = asked(tmp_path, [], None)
    assert found.accepted.rate.value is None and found.apart.value is None and found.apart.interval is None


@pytest.mark.parametrize(
    ("words", "renamed", "correct"),
    [
        ("Order by `extent`.", {"area": "extent"}, True),
        ("Order by EXTENT.", {"area": "extent"}, True),
        ("Order by `area`, not `extent`.", {"area": "extent"}, False),
        ("Order by size.", {"area": "extent"}, False),
        ("Order by `extents`.", {"area": "extent"}, False),
        ("Order by `people`.", {"area": ""}, False),
        ("Take the cup to the sink.", {"mug": "cup", "fridge": "sink"}, True),
        ("Take the cup to the fridge.", {"mug": "cup", "fridge": "sink"}, False),
        ("", {}, False),
    ],
)
def test_a_rewrite_is_correct_when_it_names_the_new_and_not_the_old(words: str, renamed: dict[str, str], correct: bool) -> None:
    assert is_correct(words, renamed) == correct


# Intervals of a difference


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 5)), min_size=1, max_size=30))
def test_the_interval_of_a_difference_turns_round_and_agrees_with_pairs(rows: list[tuple[bool, bool, int]]) -> None:
    groups = [group for *_, group in rows]
    one, two = ([float(row[place]) for row in rows] for place in (0, 1))
    found = difference_interval((one, groups), (two, groups))
    assert found is not None
    assert found == pytest.approx(cluster_interval([a - b for a, b in zip(one, two, strict=True)], groups), abs=1e-9)
    back = difference_interval((two, groups), (one, groups))
    assert back is not None and back == pytest.approx((-found[1], -found[0]), abs=1e-9)


def test_a_difference_without_values_has_no_interval() -> None:
    assert difference_interval(([], []), ([1.0], ["a"])) is None
    apart = difference_interval(([1.0, 1.0], ["a", "b"]), ([0.0], ["b"]))
    assert apart == (1.0, 1.0)  # draws without "b" have no second share
