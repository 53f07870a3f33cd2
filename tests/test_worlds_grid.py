"""The grid: a stepwise world small enough to check by hand, and a world like any other."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.conditions import holds
from mulligan.nouns import to_json
from mulligan.worlds.conformance import check_world
from mulligan.worlds.grid import ACTIONS, GridWorld, corridor_tasks

WORLD = GridWorld()
WALKS = [
    ("corridor", ["east", "east", "east"], [Fraction(1, 3), Fraction(2, 3), Fraction(1)], []),
    ("corridor", ["north", "east", "west", "jump"], [0, Fraction(1, 3), 0, 0], ["blocked", "repeated", "blocked"]),
    ("door", ["east", "open", "west", "take", "take", "east", "open", "east"], None, ["blocked", "blocked", "blocked"]),
    ("corner", ["west", " TAKE\n", "east", "open", "south", "south", "east"], [Fraction(i, 7) for i in range(1, 8)], []),
]


@pytest.mark.parametrize(("name", "actions", "utilities", "signals"), WALKS)
def test_a_walk(name: str, actions: list[str], utilities: list[Fraction] | None, signals: list[str]) -> None:
    task = next(t for t in corridor_tasks() if t.group == name)
    with WORLD.start(task) as state:
        verdicts = [WORLD.act(state, action) for action in actions]
    assert utilities is None or [v.utility for v in verdicts] == utilities
    assert [s.kind for v in verdicts for s in v.signals] == signals
    assert all(v.solved == v.done == (v.utility == 1) for v in verdicts)
    assert to_json(verdicts)


def test_the_steps_run_out() -> None:
    with WORLD.start(corridor_tasks()[0]) as state:
        assert [WORLD.act(state, "north").done for _ in range(13)] == [False] * 11 + [True] * 2


def test_edits_are_the_other_ways() -> None:
    with WORLD.start(corridor_tasks()[1]) as state:
        verdict = WORLD.act(state, "east")
        assert [p.action for p in WORLD.edits(state, "east", verdict)] == ["west"]
        WORLD.act(state, "west")
        assert [p.edit for p in WORLD.edits(state, " North", verdict)] == ["North → east", "North → take"]
    assert holds("doors > 0", WORLD.facts(corridor_tasks()[1]))


def test_the_grid_keeps_the_contract() -> None:
    assert check_world(WORLD, corridor_tasks(), actions=[*ACTIONS, "west", "take", "east", "open", "south"]) == []
    assert check_world(WORLD, corridor_tasks()) == []


@given(st.sampled_from(corridor_tasks()), st.lists(st.one_of(st.sampled_from(ACTIONS), st.text(max_size=5)), max_size=20))
def test_a_copy_has_a_life_of_its_own(task: object, actions: list[str]) -> None:
    with WORLD.start(task) as state:  # type: ignore[arg-type]  # a Task
        snapshot = WORLD.save(state)
        before = snapshot.digest
        for action in actions:
            assert 0 <= WORLD.act(state, action).utility <= 1
        assert snapshot.digest == before
        with WORLD.restore(snapshot) as copy:
            assert [WORLD.act(copy, a) for a in actions] == [WORLD.act(again, a) for again in [WORLD.restore(snapshot)] for a in actions]
