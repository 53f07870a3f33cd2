"""The conformance check finds every planted fault, and passes the worlds that ship."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from islands import ask, build
from mulligan.nouns import Json
from mulligan.records import Misfit, Proposal, Signal, Situation, Task, Verdict
from mulligan.worlds.conformance import Violation, check_world
from mulligan.worlds.sql import SqlWorld
from mulligan.worlds.sql_engine import Limits
from toy import ToyState, ToyWorld, toy_tasks

ACTIONS = ["one two", "two", "one two three"]


class Lying(ToyWorld):
    """A toy world in which one thing is wrong; subclasses say which."""

    def changed(self, state: ToyState, action: str, **changes: Any) -> Verdict:
        return replace(super().act(state, action), **changes)


class Random(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, utility=Fraction(random.randrange(10**9), 2 * 10**9), solved=False)


class Raises(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        if "\x00" in action:
            raise RuntimeError("no zero bytes, please")
        return super().act(state, action)


class Float(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, utility=0.5)


class Above(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, utility=Fraction(3, 2))


class HalfSolved(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, utility=Fraction(1, 2), solved=True)


class Unfinished(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, completed=False, solved=True, utility=Fraction(1))


class Silent(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, feedback="", signals=(), solved=False, utility=Fraction(0))


class Inventive(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, signals=(Signal(kind="odd", what="x"),))  # type: ignore[arg-type]  # the planted fault


class Nameless(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, evaluator="")


class Mute(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return "fine"  # type: ignore[return-value]  # the planted fault


class Counting(ToyState):
    """A state with a counter that all states share."""

    count = [0]

    @property
    def digest(self) -> str:
        return f"{self.task.id} {self.count}"


class Leaking(Lying):
    def start(self, task: Task) -> ToyState:
        return Counting(task)

    def act(self, state: ToyState, action: str) -> Verdict:
        Counting.count[0] += 1
        return super().act(state, action)


class Remembering(Lying):
    """A restored state does not know what was done before it was saved."""

    def start(self, task: Task) -> ToyState:
        return Steps(task)

    def act(self, state: ToyState, action: str) -> Verdict:
        assert isinstance(state, Steps)
        object.__setattr__(state, "steps", state.steps + 1)
        return self.changed(state, action, feedback=f"step {state.steps}")

    def restore(self, snapshot: ToyState) -> ToyState:
        return Steps(snapshot.task)

    def save(self, state: ToyState) -> ToyState:
        return replace(state)


class Steps(ToyState):
    steps = 0

    @property
    def digest(self) -> str:
        return "always the same"


class Unsendable(Lying):
    def save(self, state: ToyState) -> ToyState:
        made = ToyState(state.task)
        object.__setattr__(made, "open", lambda: None)
        return made


class Renamed(Lying):
    def save(self, state: ToyState) -> ToyState:
        return ToyState(replace(state.task, id="another"))


class Telling(Lying):
    def act(self, state: ToyState, action: str) -> Verdict:
        return self.changed(state, action, feedback=f"it should be {state.task.payload['gold']}")


class Moody(Lying):
    def facts(self, task: Task) -> Mapping[str, Json]:
        return {"mood": random.random()}


class Objects(Lying):
    def facts(self, task: Task) -> Mapping[str, Json]:
        return {"words": {1, 2}}


class Partial(Lying):
    def facts(self, task: Task) -> Mapping[str, Json]:
        raise KeyError("nothing known")


class Echo(Lying):
    def edits(self, state: ToyState, action: str, verdict: Verdict) -> Iterable[Proposal]:
        yield Proposal(action=action, edit="nothing", proposer="op:echo")


class Vague(Lying):
    def edits(self, state: ToyState, action: str, verdict: Verdict) -> Iterable[Proposal]:
        yield Proposal(action=action + " x", edit="", proposer="op:vague")


class Wild(Lying):
    def edits(self, state: ToyState, action: str, verdict: Verdict) -> Iterable[Proposal]:
        raise LookupError("no idea")


class Tokenless(Lying):
    def tokens(self, action: str) -> Sequence[str]:
        return [action[0]]


class Deaf(Lying):
    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        return []


class Prudish(Lying):
    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        return [Misfit(kind="unknown_name", what=word) for word in text.split()[:3]]


class Shy(Lying):
    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        return [Misfit(kind="unknown_name", what=str(text.encode()))]


class Fickle(Lying):
    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        return [Misfit(kind="unknown_name", what=str(random.random()))]


class Closed(Lying):
    def start(self, task: Task) -> ToyState:
        raise OSError("out of order")


PLANTED: list[tuple[Callable[[], ToyWorld], str, str]] = [
    (Random, "deterministic", "another verdict"),
    (Random, "restore", "another future"),
    (Raises, "hostile", "raises RuntimeError"),
    (Float, "verdict", "utility is a float"),
    (Above, "verdict", "outside [0, 1]"),
    (HalfSolved, "verdict", "solved with utility 1/2"),
    (Unfinished, "verdict", "solved, but not completed"),
    (Silent, "verdict", "without a word of evidence"),
    (Inventive, "verdict", "unknown kinds"),
    (Nameless, "verdict", "does not name its evaluator"),
    (Mute, "verdict", "is a str"),
    (Leaking, "isolation", "changed the live state"),
    (Remembering, "restore", "another future"),
    (Unsendable, "snapshot", "raises"),
    (Renamed, "snapshot", "another digest"),
    (Telling, "heldout", "depends on the gold answer"),
    (Moody, "facts", "differ from call to call"),
    (Objects, "facts", "raises TypeError"),
    (Partial, "facts", "raises KeyError"),
    (Echo, "edits", "proposes the action itself"),
    (Vague, "edits", "without its edit"),
    (Wild, "edits", "raises LookupError"),
    (Tokenless, "tokens", "raises IndexError"),
    (Deaf, "misfits", "let through"),
    (Prudish, "misfits", "a word of the task is unknown"),
    (Shy, "misfits", "raises UnicodeEncodeError"),
    (Fickle, "misfits", "differ from call to call"),
    (Closed, "start", "raises OSError"),
]


@pytest.mark.parametrize(("world", "rule", "what"), PLANTED, ids=[f"{case[0].__name__}: {case[1]}" for case in PLANTED])
def test_a_planted_fault_is_named(world: Callable[[], ToyWorld], rule: str, what: str) -> None:
    found = check_world(world(), [*toy_tasks(1), *toy_tasks(1, "train", words="one two four")], actions=ACTIONS)
    assert [v for v in found if v.rule == rule and what in v.what], list(map(str, found))


def test_a_world_that_cannot_be_sent_is_named() -> None:
    class Local(ToyWorld):
        pass

    assert [v.rule for v in check_world(Local(), toy_tasks(1), actions=ACTIONS)][:1] == ["world"]


def test_all_violations_are_listed_and_readable() -> None:
    class Bad(Float, Partial, Echo):
        pass

    found = check_world(Bad(), toy_tasks(2), actions=ACTIONS)
    assert {"facts", "verdict", "edits", "world"} <= {v.rule for v in found}
    assert {v.task for v in found if v.rule == "facts"} == {"source0", "source1"}
    assert str(Violation(rule="facts", task="t", what="raise", action="go")) == "facts (t, action 'go'): raise"
    assert len(found) == len(set(found))


def test_the_toy_world_passes() -> None:
    assert check_world(ToyWorld(), [*toy_tasks(2), *toy_tasks(1, "heldout", words="four")], actions=ACTIONS) == []
    assert check_world(ToyWorld(), toy_tasks(1)) == []
    assert [v.rule for v in check_world(ToyWorld(), [])] == ["tasks"]


def test_the_sql_world_passes(tmp_path: Path) -> None:
    database = build(tmp_path)
    tasks = [
        ask(database, "SELECT area FROM island WHERE name = 'isk'", "How large is isk?"),
        ask(database, "SELECT COUNT(*) FROM port", "How many ports are there?", split="heldout"),
    ]
    world = SqlWorld(Limits(time_limit_s=0.05))
    assert check_world(world, tasks, actions=["SELECT area FROM island WHERE name = 'Isk'", "SELECT COUNT(*) FROM port"]) == []
