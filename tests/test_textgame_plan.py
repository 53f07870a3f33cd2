"""The planner of games: small problems in SAS by hand, and what is kept of an old plan."""

import random
from itertools import product

import pytest

from mulligan.worlds.textgame_plan import MOST_STATES, Planner, read_sas


def sas(
    variables: list[list[str]], start: list[int], goal: list[tuple[int, int]], operators: list[str], axioms: list[str] | None = None
) -> str:
    """A translation as Fast Downward writes it. An operator is its name, prevailing facts and effects, one a line."""
    lines = ["begin_version", "3", "end_version", "begin_metric", "1", "end_metric", str(len(variables))]
    for number, names in enumerate(variables):
        lines += ["begin_variable", f"var{number}", "-1", str(len(names)), *names, "end_variable"]
    lines += ["0", "begin_state", *map(str, start), "end_state"]
    lines += ["begin_goal", str(len(goal)), *(f"{v} {x}" for v, x in goal), "end_goal", str(len(operators))]
    for text in operators:
        lines += ["begin_operator", *text.split("\n"), "1", "end_operator"]
    lines.append(str(len(axioms or [])))
    for text in axioms or []:
        lines += ["begin_rule", *text.split("\n"), "end_rule"]
    return "\n".join([*lines, ""])


def yes(name: str) -> list[str]:
    return [f"Atom {name}", f"NegatedAtom {name}"]


def rooms(n: int, key: bool = True) -> Planner:
    """A row of rooms with a locked door behind the last, whose key lies in the first; the player starts in the second."""
    places = [f"Atom at(r{i})" for i in range(n)]
    going = [f"go r{i} r{j}\n0\n1\n0 0 {i} {j}" for i, j in product(range(n), range(n)) if abs(i - j) == 1]
    take, leave = "take key\n1\n0 0\n1\n0 1 1 0", f"leave key\n2\n0 {n - 1}\n1 0\n1\n0 2 1 0"
    # outside follows from having left: an axiom, as goals with `exists` become
    variables = [places, yes("held(key)"), yes("left()"), yes("new-axiom@0()")]
    return read_sas(sas(variables, [1, 1, 1, 1], [(3, 0)], [*going, take, leave] if key else [*going, leave], ["1\n2 0\n3 1 0"]))


def test_a_plan_fetches_the_key_first() -> None:
    found = rooms(4).plan(["at(r1)"])
    assert found == ["go r1 r0", "take key", "go r0 r1", "go r1 r2", "go r2 r3", "leave key"]
    assert rooms(4).plan(["at(r2)", "held(key)"]) == ["go r2 r3", "leave key"]
    assert rooms(4).plan(["at(r2)", "left()"]) == []
    assert rooms(4, key=False).plan(["at(r1)"]) is None


def test_an_old_plan_is_kept_as_far_as_it_still_wins() -> None:
    planner = rooms(4)
    old = planner.plan(["at(r1)"])
    assert old is not None
    assert planner.plan(["at(r0)"], old) == old[1:]
    assert planner.plan(["at(r1)"], old) == old
    back = planner.plan(["at(r0)", "held(key)"], planner.plan(["at(r1)", "held(key)"]) or [])
    assert back == ["go r0 r1", "go r1 r2", "go r2 r3", "leave key"]


def test_a_move_from_elsewhere_counts_as_the_same_move() -> None:
    """In ALFWorld a player goes from anywhere to anywhere, and the operator names both."""
    places = [f"Atom at(r{i})" for i in range(4)]
    going = [f"go r{i} r{j}\n0\n1\n0 0 {i} {j}" for i, j in product(range(4), range(4)) if i != j]
    planner = read_sas(sas([places, yes("held(cup)")], [0, 1], [(1, 0)], [*going, "take cup\n1\n0 2\n1\n0 1 1 0"]))
    old = planner.plan(["at(r0)"])
    assert old == ["go r0 r2", "take cup"]
    assert planner.plan(["at(r3)"], old) == ["go r3 r2", "take cup"]


@pytest.mark.parametrize("seed", range(4))
def test_plans_win_and_are_the_same_each_time(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randrange(3, 9)
    planner, at = rooms(size), draw.randrange(size)
    found = planner.plan([f"at(r{at})"])
    assert found == rooms(size).plan([f"at(r{at})"])
    state = planner._closed(planner.state([f"at(r{at})"]))
    assert found is not None and planner._followed(state, found) == found


def test_the_search_ends_after_a_number_of_states() -> None:
    """Twelve switches of which the last cannot be thrown: relaxed plans see no way, and nothing is searched in vain."""
    switches = [yes(f"on(s{i})") for i in range(12)]
    throw = [f"throw s{i}\n0\n1\n0 {i} 1 0" for i in range(11)]
    assert read_sas(sas(switches, [1] * 12, [(i, 0) for i in range(12)], throw)).plan([]) is None
    clear = [f"throw s{i}\n0\n2\n0 {i} 1 0\n0 {(i + 1) % 12} -1 1" for i in range(12)]  # each puts out the next: they cannot all be on
    assert read_sas(sas(switches, [1] * 12, [(i, 0) for i in range(12)], clear)).plan([]) is None
    assert MOST_STATES < 2**12


@pytest.mark.parametrize("text", ["", "begin_version", "end_metric\nx", "end_metric\n1\nbegin_variable"])
def test_what_is_no_translation(text: str) -> None:
    with pytest.raises((ValueError, StopIteration, RuntimeError)):
        read_sas(text)
