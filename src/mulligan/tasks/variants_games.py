"""Drafts of changed text games: another object, place or treatment in the goal, other words, things moved.

In: a Lesson about a game of PDDL (ALFWorld's, and those that come with the package); its correction is one command. Out: drafts with the
game's texts in the payload, and how a command is judged: it is right where it brings the goal nearer, at the first place on the engine's
plan of the source where it does. The changed game is played by the same moves up to there: the house is the same. Every changed game was
won by the engine's plan. Not promised: games of TextWorld, other names and other houses, for which there are no drafts.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast

from mulligan.conditions import holds
from mulligan.errors import InvalidData
from mulligan.nouns import Json
from mulligan.protocols import World
from mulligan.records import Task
from mulligan.tasks.drafts import Draft, Kind, Lesson, changed_task, drawn
from mulligan.tasks.games import LINE
from mulligan.worlds.textgame import Playing, TextGameWorld
from mulligan.worlds.textgame_files import PARTS, read_game, told

LONGEST = 60  # moves of a plan that are played
OTHERS = 4  # other objects or places that are tried
TREATMENTS = {"clean": ("cleanable", "isClean"), "heat": ("heatable", "isHot"), "cool": ("coolable", "isCool")}
ADJECTIVES = {"clean": "clean", "heat": "hot", "cool": "cool"}
INSIDE = re.compile(r"\((?:inReceptacle|inside) ([\w-]+) ([\w-]+)\)")


@dataclass(frozen=True, slots=True)
class Game:
    """A lesson's game: its texts, the goal among them, and what its task line names."""

    domain: str
    grammar: str
    problem: str
    line: str

    @property
    def goal(self) -> str:
        return self.problem[self.problem.index("(:goal") :]

    def named(self, what: str) -> str:
        """The object or place of the task line; "" where it names none."""
        return str(told(self.line).get(what, ""))

    def changed(self, line: str, goal: str, start: str = "") -> "Game":
        """The game with another task line and goal, and another beginning of its problem, if one is given."""
        before = start or self.problem.removesuffix(self.goal)
        return replace(self, line=line, grammar=self.grammar.replace(self.line, line), problem=before + goal)

    @property
    def payload(self) -> dict[str, Json]:
        return dict(zip(PARTS, (self.domain, self.grammar, self.problem), strict=True))


def drafts(kind: Kind, lesson: Lesson, folder: Path, others: Sequence[Task], seed: int) -> Iterator[Draft]:
    """The drafts of a kind for a lesson. Nothing is built, and other tasks do not help."""
    spec = read_game(lesson.task.payload).spec
    line = LINE.search(spec.get("grammar", ""))
    if line is None or "(:goal" not in spec["pddl_problem"]:
        return
    domain, grammar, problem = (spec[part] for part in PARTS)
    game, command = Game(domain, grammar, problem, line[1].strip()), lesson.correction
    match kind:
        case "lookalike":
            made = [*_others(game, "object"), *_others(game, "place"), *_treated(game)]
        case "paraphrase":
            made = list(_reworded(game))
        case "placebo":
            made = list(_moved(game, command))
        case _:
            made = []
    path = way(TextGameWorld(), lesson.task, command)
    predicate = lesson.record.condition.predicate if lesson.record.condition.kind == "predicate" else ""
    made.sort(key=lambda found: drawn(seed, lesson.record.id, found[0], found[2].line, found[2].problem))
    for rule, change, other in made if path is not None else ():
        task = changed_task(lesson.task, kind, prompt=other.line, **other.payload)
        task = replace(task, payload=other.payload)
        if kind == "lookalike" and predicate and holds(predicate, {**task.facts, **told(other.line)}):  # before anything is played
            yield Draft(rule=rule, change=change, task=task, gold="", carried=command, fault="condition_stays")
            continue
        gold = _next(task, path or ())
        yield Draft(rule=rule, change=change, task=task, gold=gold, carried=command, fault=None if gold else "gold_fails")


# ---- changes ----

Made = tuple[str, str, Game]  # rule, change, the changed game


def _others(game: Game, what: str) -> Iterator[Made]:
    """Another object, or another place, of the same house in goal and task line."""
    old = game.named(what)
    typed = re.search(rf"\b({re.escape(old.replace(' ', ''))})Type\b", game.goal, re.IGNORECASE) if old else None
    if typed:
        kind = "objectType" if what == "object" else "receptacleType"
        there = {name for name in re.findall(rf"\({kind} \S+ (\w+)Type\)", game.problem) if name != typed[1] and _fits(game, name, what)}
        pairs = [(f"{typed[1]}Type", f"{name}Type", name.lower()) for name in sorted(there)]
    else:
        name = old.replace(" ", "_")
        same = next((words for words, _ in re.findall(r"^\s*([\w\s-]+?) - (\w+)", game.problem, re.MULTILINE) if name in words.split()), "")
        pairs = [(name, other, other.replace("_", " ")) for other in same.split() if old and other != name]
    step = max(1, len(pairs) // OTHERS)
    for name, new, spoken in pairs[::step]:
        goal = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", new, game.goal)
        line = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", spoken, game.line)
        if goal != game.goal and line != game.line:
            yield f"another {what}", f"{old} → {spoken}", game.changed(line, goal)


def _fits(game: Game, name: str, what: str) -> bool:
    """Whether ALFWorld's rules let the object lie in the place, where one of them is another one; and let it be taken and treated."""
    kind = str(told(game.line)["kind"])
    wanted = ["pickupable", *TREATMENTS.get(kind, ())[:1]] if what == "object" else []
    few = what == "object" and kind == "two" and len(re.findall(rf"\(objectType \S+ {name}Type\)", game.problem)) < 2
    if few or any(f"({fact} {name}_" not in game.problem for fact in wanted):
        return False
    other = game.named("place" if what == "object" else "object").replace(" ", "")
    pair = rf"{other}Type {name}Type" if what == "object" else rf"{name}Type {other}Type"
    return kind == "look" or re.search(rf"\(canContain {pair}\)", game.problem, re.IGNORECASE) is not None


def _treated(game: Game) -> Iterator[Made]:
    """Cleaning, heating or cooling in place of one another."""
    old = str(told(game.line)["kind"])
    for new in TREATMENTS if old in TREATMENTS else ():
        goal = game.goal
        for one, other in zip(TREATMENTS[old], TREATMENTS[new], strict=True):
            goal = goal.replace(f"({one} ", f"({other} ")
        line = re.sub(rf"\b{old}\b", new, re.sub(rf"\ba {ADJECTIVES[old]}\b", f"a {ADJECTIVES[new]}", game.line))
        if new != old and goal != game.goal and line != game.line:
            yield "another treatment", f"{old} → {new}", game.changed(line, goal)


def _reworded(game: Game) -> Iterator[Made]:
    """Another of the wordings that the games themselves use for the same kind of task."""
    said = told(game.line)
    kind, thing, place = str(said["kind"]), said.get("object"), said.get("place")
    adjective = ADJECTIVES.get(kind, "")
    wordings = {
        "put": (f"put some {thing} on {place}", f"put a {thing} in {place}"),
        "two": (f"find two {thing} and put them in {place}", f"put two {thing} in {place}"),
        "look": (f"look at {thing} under the {place}", f"examine the {thing} with the {place}"),
    }.get(kind, (f"{kind} some {thing} and put it in {place}", f"put a {adjective} {thing} in {place}") if adjective else ())
    for line in wordings:
        if line != game.line:
            yield "another wording", line, game.changed(line, game.goal)


def _moved(game: Game, command: str) -> Iterator[Made]:
    """Two things that neither goal nor command is about change places."""
    start = game.problem.removesuffix(game.goal)
    about = {re.sub(r"[\W_]|type$", "", word.lower()) for word in re.findall(r"[\w-]+", f"{game.goal} {command} {game.line}")}
    tied = {re.split(r"[_\d]", name)[0].lower() for name in re.findall(r"\(fits ([\w-]+)", start)} | {"key"}
    free = [
        found
        for found in INSIDE.finditer(start)
        if re.split(r"_bar_", found[1])[0].replace("_", "").lower() not in about and not tied & {*re.split(r"[_\d]", found[1].lower())}
    ]
    for one, other in pairwise(free):
        if one[2] != other[2]:
            swapped = (
                start.replace(one[0], "\0")
                .replace(other[0], one[0].replace(one[1], other[1]))
                .replace("\0", other[0].replace(other[1], one[1]))
            )
            told_of = f"{one[1].split('_bar_')[0]} and {other[1].split('_bar_')[0]} change places"
            yield "moved", told_of, game.changed(game.line, game.goal, swapped)


# ---- how a command is judged ----


def way(world: World, task: Task, command: str) -> tuple[str, ...] | None:
    """The moves of the engine's plan up to the first place where `command` brings the goal nearer; None where it never does."""
    path: list[str] = []
    with world.start(task) as started:
        state = cast(Playing, started)
        while state.view and state.view.next and not state.over and len(path) < LONGEST:
            if command in state.view.commands and nearer(world, task, command, path):
                return tuple(path)
            path.append(state.view.next)
            world.act(state, state.view.next)
    return None


def nearer(world: World, task: Task, command: str, path: Sequence[str]) -> bool | None:
    """Whether `command` brings the goal of `task` nearer after the moves in `path`; None where the engine gives no verdict."""
    with world.start(task) as state:
        verdicts = [world.act(state, move) for move in (*path, command)]
    before = verdicts[-2].utility if path else 0
    return verdicts[-1].utility > before if all(verdict.completed for verdict in verdicts) else None


def judge(world: World, given: Lesson) -> Callable[[Task, str], bool | None]:
    """How commands are judged for a lesson: at its place in its house."""
    path = way(world, given.task, given.correction)
    return lambda task, command: path is not None and nearer(world, task, command, path)


def _next(task: Task, path: Sequence[str]) -> str:
    """The engine's next move after the moves in `path`; "" where its plan does not win from there, or the game is none any more."""
    world = TextGameWorld()
    try:
        started = world.start(task)
    except InvalidData:  # a goal that nothing in the house can reach
        return ""
    with started as state:
        for move in path:
            world.act(state, move)
        found = state.view.next if state.view and not state.over else ""
        for _ in range(LONGEST):
            if not state.view or not state.view.next or state.over:
                break
            world.act(state, state.view.next)
        return found if state.view and state.view.won else ""
