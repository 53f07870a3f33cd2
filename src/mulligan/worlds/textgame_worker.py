"""What runs beside the text-game world: TextWorld's engines, in a process that may be killed.

In: lines of JSON with a question, the key of a game and what is asked. Out: what there is to see and to do after some moves. A position is
the list of moves that leads to it; an engine that stands elsewhere plays them again, and says so when that ends in other facts. Games of
PDDL bring expressions that the engine would evaluate as Python: only names, their attributes, text, `+`, `and` and `or` are let through.
"""

import ast
import hashlib
import json
import os
import re
import resource
import sys
from collections import Counter, OrderedDict, defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any

import textworld
from textworld.core import GameState
from textworld.envs.pddl import PddlEnv, textgen

sys.path.insert(0, str(Path(__file__).parents[2]))  # started by file name: this package, not another that is installed
from mulligan.worlds.textgame_plan import read_sas

MEMORY = 4 << 30
GAMES = 8  # engines kept at once; one of ALFWorld takes about 20 MB
HARMLESS = (ast.Expression, ast.BinOp, ast.Add, ast.BoolOp, ast.And, ast.Or, ast.Name, ast.Attribute, ast.Constant, ast.Load)
VARIED = re.compile(r"[^a-z0-9' -]|\bthen\b")  # what would be several commands, or none, to a parser of stories
CODED = {"_bar_": "|", "_minus_": "-", "_plus_": "+", "_dot_": ".", "_comma_": ","}

View = dict[str, Any]
Command = tuple[str, str, Any]  # as it is typed, its operator, its action


class Refused(Exception):
    """The game cannot be played, and why."""


class Pddl:
    """A game of planning: a domain, a problem, and a grammar that words it (ALFWorld's `game.tw-pddl`)."""

    def __init__(self, game: dict[str, str]) -> None:
        self._env = PddlEnv()
        self._env.load(game)
        self._state = self._env._pddl_state
        self._planner = read_sas(self._state.sas_replan)
        self._check()
        for info, name in zip(self._env._entity_infos.values(), _names(list(self._env._entity_infos)), strict=True):
            info.name = name
        self._initial = sorted(self._state.facts, key=str)
        self._path: list[str] | None = None
        self._told: tuple[list[str], list[Command]] | None = None

    @cached_property
    def opened(self) -> View:
        """The view before the first command."""
        self._go([])
        text = self._env._logic.grammar.derive("#intro#", self._context({}))
        return self._view(text, None, True, self._plan(None))

    def acted(self, path: list[str], mark: str, command: str, plan: list[str] | None) -> View | None:
        """The view after `command`; None where the moves of `path` lead to other facts than `mark` says."""
        if self._go(path) and self._mark() != mark:
            return None
        found = [(name, action) for told, name, action in self._commands(path) if told == command]
        if not found:
            return self._view("Nothing happens.", None, False, plan)
        name, action = found[0]
        self._move(name)
        self._path = [*path, name]
        variables = {holder.name: self._env._entity_infos[var.name] for holder, var in action.mapping.items()}
        text = self._env._logic.grammar.derive(action.feedback_rule, self._context(variables, action.mapping))
        return self._view(text, name, True, self._plan(plan))

    def _view(self, text: str, step: str | None, taken: bool, plan: list[str] | None) -> View:
        commands, mark = self._commands(self._path or []), self._mark()
        return {
            "text": text,
            "commands": sorted({told for told, _, _ in commands}),
            "won": bool(self._state.check_goal()),
            "lost": False,
            "plan": plan,
            "next": next((told for told, name, _ in commands if plan and name == plan[0]), ""),
            "facts": mark,
            "mark": mark,
            "step": step,
            "taken": taken,
            "closed": True,
        }

    def _go(self, path: list[str]) -> bool:
        """Stand where `path` leads. True when moves were played again."""
        if self._path == path:
            return False
        if self._path is None or path[: len(self._path)] != self._path:
            state = self._state
            state.downward_lib.load_sas(state.sas.encode())
            state._facts, state._vars_by_name = defaultdict(set), {}
            state._vars_by_type, state._var_counts = defaultdict(set), Counter()
            state.add_facts(self._initial)  # anew and in one order: what is listed in a text follows the order of sets
            self._path = []
        for name in path[len(self._path) :]:
            self._move(name)
        self._path = list(path)
        return True

    def _move(self, name: str) -> None:
        """Apply the operator of that name. Raises StopIteration where it cannot be applied."""
        actions = self._state.all_applicable_actions()
        self._state.apply(next(action for action in actions if self._state._operators[action.id].name == name))

    def _plan(self, old: list[str] | None) -> list[str] | None:
        """Moves that win from here."""
        facts = {f"{fact.name}({', '.join(one.name for one in fact.arguments)})".lower() for fact in self._state.facts}
        return self._planner.plan(facts, old or ())

    def _commands(self, path: list[str]) -> list[Command]:
        """What can be done here, where `path` leads; wording it takes most of the time of a step."""
        if self._told is None or self._told[0] != path:
            self._env.state, self._env._last_action, self._env._moves = GameState(), None, 0
            self._env._gather_infos()
            worded = zip(self._env.state["_valid_commands"], self._env.state["_valid_actions"], strict=True)
            self._told = list(path), [(told, self._state._operators[action.id].name, action) for told, action in worded]
        return self._told[1]

    def _context(self, variables: dict[str, Any], mapping: Any = None) -> dict[str, Any]:
        facts = list(self._state.facts)
        infos = self._env._entity_infos
        return {"state": self._state, "facts": facts, "variables": variables, "mapping": mapping or {}, "entity_infos": infos}

    def _mark(self) -> str:
        return _hash(sorted(map(str, self._state.facts)))

    def _check(self) -> None:
        """Raises Refused when the grammar holds an expression that does more than name things."""
        logic = self._env._logic
        rules = [symbol for many in logic.grammar._rules.values() for rule in many for symbol in rule.rhs]
        texts = [text for action in logic.actions.values() for text in (action.template, action.feedback_rule)]
        rules += [symbol for text in texts for symbol in textgen._parse_and_convert(text, rule_name="symbols")]
        while rules:
            symbol = rules.pop()
            if isinstance(symbol, textgen.EvalSymbol) and not _harmless(symbol.expression):
                raise Refused(f"its grammar holds an expression that is not evaluated here: {symbol.expression[:60]!r}")
            inner = getattr(symbol, "expression", symbol.symbol)
            if isinstance(inner, textgen.Symbol):
                rules.append(inner)


class Story:
    """A compiled game of TextWorld (`*.z8`, with the `*.json` that it was made from)."""

    def __init__(self, game: dict[str, str]) -> None:
        wanted = ("admissible_commands", "policy_commands", "facts", "verbs", "score", "won", "lost")
        self._env = textworld.start(game["story"], textworld.EnvInfos(**dict.fromkeys(wanted, True)))
        self._path: list[str] | None = None
        self._state: Any = None

    @cached_property
    def opened(self) -> View:
        """The view before the first command."""
        self._go([])
        return self._view(None, True)

    def acted(self, path: list[str], mark: str, command: str, plan: list[str] | None) -> View | None:
        """The view after `command`; None where the moves of `path` lead to another state than `mark` says."""
        if self._go(path) and self._mark() != mark:
            return None
        if command.split()[0] not in self._state["verbs"] or VARIED.search(command):
            return {**self._view(None, False), "text": "That's not a verb I recognise."}
        before, known = self._view(None, True), command in self._state["admissible_commands"]
        self._state, _, _ = self._env.step(command)
        self._path = [*path, command]
        after = self._view(command, True)
        return {**after, "taken": known or after["facts"] != before["facts"]}

    def _go(self, path: list[str]) -> bool:
        if self._path == path:
            return False
        if self._path is None or path[: len(self._path)] != self._path:
            self._state, self._path = self._env.reset(), []
        for command in path[len(self._path) :]:
            self._state, _, _ = self._env.step(command)
        self._path = list(path)
        return True

    def _view(self, step: str | None, taken: bool) -> View:
        state, won = self._state, bool(self._state["won"])
        plan = list(state["policy_commands"] or [])
        return {
            "text": _plain(state["feedback"]),
            "commands": state["admissible_commands"],
            "won": won,
            "lost": bool(state["lost"]),
            "plan": plan if plan or won else None,
            "next": plan[0] if plan else "",
            "facts": _hash(sorted(map(str, state["_facts"]))),
            "mark": self._mark(),
            "step": step,
            "taken": taken,
            "closed": False,
        }

    def _mark(self) -> str:
        return _hash([sorted(map(str, self._state["_facts"])), self._state["score"], _plain(self._state["feedback"])])


def _harmless(expression: str) -> bool:
    try:
        nodes = list(ast.walk(ast.parse(expression.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return False
    named = [node.attr if isinstance(node, ast.Attribute) else node.id for node in nodes if isinstance(node, ast.Attribute | ast.Name)]
    return all(isinstance(node, HARMLESS) for node in nodes) and not any(name.startswith("_") for name in named)


def _names(ids: list[str]) -> list[str]:
    """What things are called: as ALFWorld calls its own (`apple_bar__minus_00…` is "apple 2", counted down), else the id in words."""
    kinds = {one: f"{one.partition('_bar_')[0]}{'basin' if 'basin' in one else ''}" for one in ids if "_bar_" in one}
    left = Counter(kinds.values())
    numbered = {}
    for one in sorted(kinds):
        numbered[one] = f"{kinds[one]} {left[kinds[one]]}"
        left[kinds[one]] -= 1
    return [numbered.get(one) or one.replace("_", " ") for one in ids]


def _plain(text: str) -> str:
    """A story's text without its banner, its prompt and its status line."""
    text = re.sub(r"\n>[^\n]*$", "", text.rstrip())
    text = re.sub(r"^(?=.*[_\\$]{2}).*[ _\\/|$]$\n?|^[ _\\/|$]+$\n?", "", text, flags=re.MULTILINE)
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", text.partition("Would you like to RESTART")[0]).strip()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]


def answered(games: "OrderedDict[str, Pddl | Story]", question: str, key: str, rest: list[Any]) -> dict[str, Any]:
    """The answer to one question. A game that is not here has to be opened first."""
    if question == "open":
        if key not in games:
            games[key] = Story(rest[0]) if "story" in rest[0] else Pddl(rest[0])
            while len(games) > GAMES:
                games.popitem(last=False)
        return {"said": games[key].opened}
    if key not in games:
        return {"missing": key}
    games.move_to_end(key)
    return {"said": games[key].acted(*rest)}


def main() -> None:
    """Answer lines until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engines print
    games: OrderedDict[str, Pddl | Story] = OrderedDict()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        question, key, *rest = json.loads(line)
        try:
            told = answered(games, question, key, rest)
        except Exception as error:  # whatever a stranger's game makes the engine raise
            games.pop(key, None)
            told = {"wrong": f"{type(error).__name__}: {error}"[:300] if not isinstance(error, Refused) else str(error)}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
