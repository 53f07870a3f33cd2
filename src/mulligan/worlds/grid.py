"""A tiny world of rooms for documentation and tests: real steps, real states, nothing to install.

In: tasks whose payload is {"map": rows of text inside walls, "steps": actions allowed}. `#` is a wall, `S` the start, `G` the goal, `K` a
key to take, `D` a door that opens only with it. Out: a verdict after every step; utility is the share of the shortest way that is behind
the walk. A step that changes nothing is `blocked`, one that comes back to where the walk has been is `repeated`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from mulligan.errors import UsageError
from mulligan.naming import lacking, misfit
from mulligan.nouns import Json, content_id
from mulligan.records import Misfit, Proposal, Signal, SignalKind, Situation, Split, Task, Verdict

MOVES: Mapping[str, tuple[int, int]] = {"north": (-1, 0), "south": (1, 0), "east": (0, 1), "west": (0, -1)}
ACTIONS = (*MOVES, "take", "open")
Here = tuple[int, int, bool, bool]  # row, column, holds the key, door open


@dataclass
class Walk:
    """A walk in progress: all that a later verdict depends on. A copy of it is a snapshot."""

    task: Task
    here: Here
    seen: frozenset[Here]
    steps: int = 0

    @property
    def digest(self) -> str:
        return content_id("grid", [self.task.id, self.task.payload, self.here, self.steps, sorted(self.seen)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...


@dataclass(frozen=True)
class GridWorld:
    """One word an action."""

    name: str = "grid"
    version: str = "1"
    manual: str = "Answer with one word: north, south, east, west, take (a key that lies here) or open (a door beside you)."

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {"doors": "".join(task.payload["map"]).count("D")}

    def start(self, task: Task) -> Walk:
        return Walk(task, _start(task), frozenset({_start(task)}))

    def observe(self, state: Walk) -> str:
        row, column, key, _ = state.here
        return f"You are in row {row}, column {column}{' with a key' if key else ''}. You can: {', '.join(_ways(state))}."

    def act(self, state: Walk, action: str) -> Verdict:
        rows, word, before = state.task.payload["map"], action.strip().lower()[:20], state.here
        state.here = _next(rows, before, word) or before
        kind: SignalKind | None = "blocked" if state.here == before else "repeated" if state.here in state.seen else None
        state.seen, state.steps = state.seen | {state.here}, state.steps + 1
        whole, left = _distance(rows, _start(state.task)), _distance(rows, state.here)
        signals = (Signal(kind=kind, what=f"{word or 'nothing'} leads nowhere new", where=f"step {state.steps}"),) if kind else ()
        told = " ".join([self.observe(state), *(f"{signal.kind}: {signal.what}." for signal in signals)])
        over, gone, by = left == 0 or state.steps >= state.task.payload["steps"], max(Fraction(0), 1 - Fraction(left, whole)), self.version
        return Verdict(completed=True, utility=gone, solved=left == 0, feedback=told, signals=signals, done=over, evaluator=f"grid/{by}")

    def save(self, state: Walk) -> Walk:
        return replace(state)

    def restore(self, snapshot: Walk) -> Walk:
        return replace(snapshot)

    def edits(self, state: Walk, action: str, verdict: Verdict) -> Iterable[Proposal]:
        why = "; ".join(signal.what for signal in verdict.signals)
        for way in (way for way in _ways(state) if way != action.strip().lower()):
            yield Proposal(action=way, edit=f"{action.strip()} → {way}", why=why, proposer="op:direction")

    def tokens(self, action: str) -> Sequence[str]:
        return action.lower().split()

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        """A key or a door where the map has none, and what else is named and was never seen."""
        rows, words = "".join(situation.task.payload.get("map", ())), set(re.findall(r"\w+", text[:1000].lower()))
        absent = [misfit(thing) for thing in ("key", "door") if thing[0].upper() not in rows and thing in words]
        return [*absent, *lacking(situation, text, {*ACTIONS, "key", "door"})]


def _start(task: Task) -> Here:
    return next((i, row.index("S"), False, False) for i, row in enumerate(task.payload["map"]) if "S" in row)


def _ways(walk: Walk) -> list[str]:
    return [word for word in ACTIONS if _next(walk.task.payload["map"], walk.here, word)]


def _next(rows: Sequence[str], here: Here, word: str) -> Here | None:
    """Where an action leads; None when it does nothing."""
    row, column, key, opened = here
    around = {way: (row + down, column + right) for way, (down, right) in MOVES.items()}
    if word in around:
        i, j = around[word]
        return None if rows[i][j] == "#" or (rows[i][j] == "D" and not opened) else (i, j, key, opened)
    if word == "take":
        return (row, column, True, opened) if rows[row][column] == "K" and not key else None
    beside = word == "open" and any(rows[i][j] == "D" for i, j in around.values())
    return (row, column, key, True) if beside and key and not opened else None


def _distance(rows: Sequence[str], here: Here) -> int:
    """The number of actions to the goal, breadth first: the list grows while it is read."""
    steps, queue = {here: 0}, [here]
    for place in queue:
        if rows[place[0]][place[1]] == "G":
            return steps[place]
        new = {after: steps[place] + 1 for word in ACTIONS if (after := _next(rows, place, word)) and after not in steps}
        steps, queue[len(queue) :] = steps | new, new
    raise UsageError("a map without a way to its goal")


def corridor_tasks() -> list[Task]:
    """Sample tasks: a corridor and one with a door to learn from, a corner with a door held out."""
    corner = _task("corner", "heldout", "##### #KS## ##D.# ##.G# #####")
    return [_task("corridor", "source", "###### #S..G# ######"), _task("door", "source", "###### #KSDG# ######"), corner]


def _task(name: str, split: Split, rows: str) -> Task:
    payload, prompt = {"map": rows.split(), "steps": 12}, "Go to the goal."
    return Task(id=f"grid-{name}", domain="grid", benchmark="rooms", group=name, split=split, prompt=prompt, payload=payload)
