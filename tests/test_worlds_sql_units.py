"""Conventions of a database that its questions do not say: smaller units, and names stored surname first."""

from pathlib import Path

import pytest

from islands import ask, make
from mulligan.worlds.sql import SqlWorld

SCHEMA = """
CREATE TABLE toll (road TEXT, clerk TEXT, cents INTEGER, metres INTEGER);
INSERT INTO toll VALUES ('north', 'Vane, Orla', 350, 1200), ('south', 'Birch, Tom', 990, 40500), ('east', 'Vane, Piet', 120, 7300),
    ('west', 'Orr, Orla', 2405, 880), ('ring', 'Birch, Una', 760, 15750), ('quay', 'Lund, Ada', 80, 300);
CREATE TABLE repair (road TEXT);
INSERT INTO repair VALUES ('north'), (NULL), ('ring'), ('west'), (NULL);
"""
MISTAKES = [
    ("What is the highest toll, in euros?", "SELECT MAX(cents) FROM toll", "SELECT MAX(cents) / 100.0 FROM toll", '"unit" in asks'),
    (
        "How long is the road ring, in kilometres?",
        "SELECT metres FROM toll WHERE road = 'ring'",
        "SELECT metres / 1000.0 FROM toll WHERE road = 'ring'",
        '"unit" in asks',
    ),
    (
        "What is the average toll in euros, to one decimal?",
        "SELECT ROUND(AVG(cents), 1) FROM toll",
        "SELECT ROUND(AVG(cents) / 100.0, 1) FROM toll",
        '"unit" in asks',
    ),
    (
        "What is the total toll, in euros?",
        "SELECT SUM(cents) / 100 FROM toll",
        "SELECT SUM(cents) / 100.0 FROM toll",
        '"unit" in asks',
    ),
    (
        "Which roads have not had a repair?",
        "SELECT road FROM toll WHERE road NOT IN (SELECT road FROM repair)",
        "SELECT road FROM toll WHERE road NOT IN (SELECT road FROM repair WHERE NOT road IS NULL)",
        '"negation" in asks',
    ),
    (
        "Which roads cost more than 5 euros?",
        "SELECT road FROM toll WHERE cents > 5",
        "SELECT road FROM toll WHERE cents > 500",
        '"unit" in asks',
    ),
    (
        "Which road does Piet Vane keep?",
        "SELECT road FROM toll WHERE clerk = 'Piet Vane'",
        "SELECT road FROM toll WHERE clerk = 'Vane, Piet'",
        '"toll.clerk" in values',
    ),
]


@pytest.mark.parametrize(("question", "wrong", "right", "predicate"), MISTAKES, ids=[case[0] for case in MISTAKES])
def test_the_first_proposal_follows_the_convention(tmp_path: Path, question: str, wrong: str, right: str, predicate: str) -> None:
    world, task = SqlWorld(), ask(make(tmp_path, SCHEMA), right, prompt=question)
    with world.start(task) as state:
        first = next(iter(world.edits(state, wrong, world.act(state, wrong))))
        assert (first.action, first.condition.predicate) == (right, predicate)
        assert world.act(state, first.action).solved


def test_a_name_said_in_the_other_order_is_a_value_of_its_column(tmp_path: Path) -> None:
    world, task = SqlWorld(), ask(make(tmp_path, SCHEMA), "SELECT 1", prompt="Which road does Orla Vane keep?")
    assert world.facts(task)["values"] == ["toll.clerk"]
    assert world.facts(task)["gist"] == "Which road does clerk keep?"
