"""The text-game world: games of TextWorld and ALFWorld, command by command, as their own engine plays them.

In: tasks whose payload names or holds a game (`textgame_files`). Out: a verdict after every command; utility is the share of the engine's
plan that is behind the player: 1 - moves left / moves at the start, 1 when won. Feedback is the game's own text, the same on all splits. A
state is the moves that led to it with the hash of what is true there: a copy plays them again in an engine beside this process, and where
that ends in other facts the verdict is not completed. An engine that hangs or crashes is killed; that too is no verdict.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Attempt, Condition, Misfit, Proposal, Signal, SignalKind, Situation, Task, Usage, Verdict
from mulligan.worlds.beside import beside
from mulligan.worlds.textgame_files import Game, read_game, told
from mulligan.worlds.textgame_naming import misfits

if find_spec("textworld") is None:  # only the worker imports it, and could not say so
    raise ModuleNotFoundError("no module named 'textworld'", name="textworld")

MANUAL = (
    "You play a text game. An action is one command of the game, such as: go to shelf 1, open drawer 2, take mug 1 from shelf 1. "
    "Reply with the command alone."
)
RULES = "1"
WORKER = Path(__file__).with_name("textgame_worker.py")
INSTALL = "the engine of the text-game world does not start: pip install 'mulligan[text]'"
LONGEST = 200  # characters of a command
UNKNOWN = "The game did not answer."
DIFFERS = "The game's engine came to other facts when it played the moves again."


@dataclass(frozen=True, slots=True)
class View:
    """What the engine says of a place in a game. `plan` are moves that win from here; None where it finds none."""

    text: str
    commands: Sequence[str]
    won: bool
    lost: bool
    plan: Sequence[str] | None
    next: str  # the first move of the plan as a command
    facts: str  # hash of what is true
    mark: str  # the same, with all that a replay must come to again
    step: str | None  # what to add to the path; None where the engine was not moved
    taken: bool  # the command was one
    closed: bool  # no other commands than these do anything


@dataclass
class Playing:
    """A game in progress. A copy of it is a snapshot; `view` is None when the engine did not even start."""

    task: Task
    game: Game
    view: View | None
    path: tuple[str, ...] = ()
    seen: frozenset[str] = frozenset()
    whole: int = 0  # moves that the engine needs from the start

    @property
    def digest(self) -> str:
        view = self.view and [self.view.mark, self.view.plan, self.view.text]
        return content_id("textgame", [self.task.id, self.task.split, self.task.prompt, self.game.key, view, sorted(self.seen)])

    @property
    def over(self) -> bool:
        return self.view is not None and (self.view.won or self.view.lost)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...


@dataclass(frozen=True)
class TextGameWorld:
    """Settings only, so that it can be sent to other processes."""

    time_limit_s: float = 60.0  # for one answer of the engine, which may have to plan
    name: str = "textgame"
    manual: str = MANUAL

    @cached_property
    def version(self) -> str:
        return f"{RULES}-{content_id('v', [RULES, self.time_limit_s, version('textworld')])[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        """From the task line alone: which game it is, and how its room is numbered, is nothing that a lesson may hang on."""
        return {**task.facts, **told(task.prompt)}

    def start(self, task: Task) -> Playing:
        """Raises UsageError where the task holds no game, InvalidData for a damaged one."""
        game = read_game(task.payload)
        answer = self._open(game)
        if answer is not None and "wrong" in answer:
            raise InvalidData(f"task {task.id}: the game cannot be played: {answer['wrong']}")
        view = None if answer is None else View(**answer["said"])
        seen = frozenset() if view is None else frozenset({view.facts})
        return Playing(task, game, view, seen=seen, whole=len(view.plan or ()) if view else 0)

    def observe(self, state: Playing) -> str:
        """The game's opening text before the first move; always what can be typed."""
        if state.view is None:
            return UNKNOWN
        opening = "" if state.path or len(state.seen) > 1 else f"{state.view.text}\n\n"
        return f"{opening}You can: {', '.join(state.view.commands)}." if not state.over else "The game is over."

    def act(self, state: Playing, action: str) -> Verdict:
        began = time.perf_counter()
        view, command = state.view, _command(action)
        if view is None:
            return self._unknown(UNKNOWN, began)
        known = next((one for one in view.commands if one.lower() == command), None)
        if state.over or not command or (known is None and view.closed):
            after = replace(view, text="The game is over." if state.over else "Nothing happens.", step=None, taken=False)
        else:
            answer = self._ask("act", state.game, [list(state.path), view.mark, known or command, view.plan])
            if answer is None or "wrong" in answer:
                return self._unknown(UNKNOWN, began)
            if answer["said"] is None:
                return self._unknown(DIFFERS, began)
            after = View(**answer["said"])
        signals = tuple(_signals(state, after, command))
        state.seen = state.seen | {after.facts, f"{after.facts} {command}"} if after.taken else state.seen
        state.path += (after.step,) if after.step is not None else ()
        state.view = after
        return Verdict(
            completed=True,
            utility=_utility(state),
            solved=after.won,
            feedback=after.text,
            signals=signals,
            done=state.over,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def _unknown(self, why: str, began: float) -> Verdict:
        took, evaluator = time.perf_counter() - began, f"{self.name}/{self.version}"
        signal = Signal(kind="timeout" if why == UNKNOWN else "error", what=why)
        return Verdict(
            completed=False, utility=Fraction(0), solved=False, feedback=why, signals=(signal,), evaluator=evaluator, seconds=took
        )

    def _open(self, game: Game) -> Any:
        return beside(WORKER, INSTALL).ask(["open", game.key, dict(game.spec)], self.time_limit_s)

    def _ask(self, question: str, game: Game, rest: list[Any]) -> Any:
        """The engine's answer; None for none in time. Opens the game again where the engine does not hold it any more."""
        for _ in range(3):  # other players' games may push it out in between
            answer = beside(WORKER, INSTALL).ask([question, game.key, *rest], self.time_limit_s)
            if answer is None or "missing" not in answer:
                return answer
            if "said" not in (self._open(game) or {}):
                return None
        return None

    def save(self, state: Playing) -> Playing:
        return replace(state)

    def restore(self, snapshot: Playing) -> Playing:
        """Nothing is played again before the first command; then the engine compares what it comes to."""
        return replace(snapshot)

    def edits(self, state: Playing, action: str, verdict: Verdict) -> Iterable[Proposal]:
        """The other commands that the game takes here, those first that speak of the task. Neither plan nor hidden facts are read."""
        if state.view is None or state.over:
            return
        command, asked = _command(action), told(state.task.prompt)
        commands = [one for one in state.view.commands if _command(one) != command]
        held = any(re.match(rf"(?:put|move|insert|drop) {re.escape(str(asked.get('object') or '?'))}\b", one) for one in commands)
        why = "; ".join(signal.what for signal in verdict.signals)
        condition = _condition(asked, held)
        for one in sorted(commands, key=lambda one: (-_promise(one, asked, held, state), one)):
            yield Proposal(action=one, edit=f"{command or '(nothing)'} → {one}", why=why, condition=condition, proposer="op:command")

    def tokens(self, action: str) -> Sequence[str]:
        """The whole command: one decision, and what is exchanged for another."""
        command = _command(action)
        return [command] if command else []

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        """Things and places that this play has not seen, whether or not the game has them somewhere."""
        return misfits(situation, text)


@dataclass(frozen=True)
class Expert:
    """A policy for checks on source tasks: the engine's own plan goes on from what was tried. On held-out tasks it does nothing."""

    portable: bool = True

    def go_on(self, world: TextGameWorld, state: Playing, attempts: Sequence[Attempt], steps: int) -> list[Attempt]:
        """At most `steps` attempts along the plan. Raises UsageError in another world."""
        if not isinstance(state, Playing):
            raise UsageError("the policy expert goes on by the plan of a text game: choose another one for this world")
        made: list[Attempt] = []
        while state.task.split != "heldout" and len(made) < steps and state.view and state.view.next and not state.over:
            command, before, seen = state.view.next, state.digest, world.observe(state)
            verdict = world.act(state, command)
            spent = Usage(evaluator_calls=verdict.calls)
            number = len(attempts) + len(made)
            made.append(Attempt(index=number, observation=seen, action=command, verdict=verdict, usage=spent, state=before))
            if not verdict.completed:
                break
        return made


def _command(action: str) -> str:
    """An action as the game is told it: the first line that says something, in lower case."""
    lines = [line.strip(" \t>`'\".") for line in action[:10_000].splitlines()]
    text = " ".join(next(filter(None, lines), "").lower().split())
    return text if len(text) <= LONGEST and text.isprintable() else ""


def _signals(state: Playing, after: View, command: str) -> Iterable[Signal]:
    """The evidence against a command. On held-out tasks only what the game itself shows."""
    assert state.view is not None
    kind: SignalKind | None = None
    if after.lost:
        kind, what = "subgoal", "the game is lost"
    elif after.won and after.taken:
        return
    elif not after.taken:
        kind, what = "blocked", f"nothing happens: {command or 'no command'}"
    elif f"{after.facts} {command}" in state.seen or (after.facts in state.seen and after.facts != state.view.facts):
        kind, what = "repeated", f"{command}: leads back to where the game has been"
    elif state.task.split != "heldout" and _left(after) >= _left(state.view):
        kind, what = "subgoal", f"{command}: the goal is {'farther away' if _left(after) > _left(state.view) else 'no nearer'}"
    if kind:
        yield Signal(kind=kind, what=what)


def _left(view: View) -> float:
    return float("inf") if view.plan is None else len(view.plan)


def _utility(state: Playing) -> Fraction:
    assert state.view is not None
    if state.view.won:
        return Fraction(1)
    if state.view.lost or state.view.plan is None or not state.whole:
        return Fraction(0)
    return max(Fraction(0), 1 - Fraction(len(state.view.plan), state.whole))


TOOLS: Mapping[str, str] = {"heat": "microwave", "cool": "fridge", "clean": "sink", "look": "lamp"}


def _promise(command: str, asked: Mapping[str, Json], held: bool, state: Playing) -> float:
    """How much a command seems to be about the task, from the task line and what was done so far."""
    thing, place, kind = str(asked.get("object", "")), str(asked.get("place", "")), str(asked["kind"])
    words = set(re.findall(r"[^\W\d_]{2,}", command))
    score = float(len(words & set(asked["words"])))
    if thing and thing in command and not command.startswith("examine"):
        score += 3 if held or command.startswith("take") else 0
        score += 2 * command.startswith(kind)
        score += held and place in command
    if held:
        score += TOOLS.get(kind, place) in command
    else:
        score += 2 * command.startswith(("open", "unlock"))
        score += command.startswith("go ")
    if command.startswith(("examine", "look", "inventory", "help", "close")):
        score -= 2
    visited = command.startswith("go to ") and any(one.endswith(f" {command}") for one in state.seen)
    return score - 2 * visited


def _condition(asked: Mapping[str, Json], held: bool) -> Condition:
    """Looking for a thing, its place matters; holding it, what is to be done with it."""
    fact = "kind" if held else "object"
    value = asked.get(fact, "")
    if not value or asked["kind"] == "quest":
        return Condition()
    predicate = f'{fact} == "{value}"'
    return Condition(kind="predicate", text=predicate, predicate=predicate)
