"""A planner for games: moves that reach the goal of a task in SAS, the form that Fast Downward translates PDDL to.

In: the translation, and the facts that hold. Out: names of operators that win from there, or None. The search is greedy, after the length
of relaxed plans (Hoffmann and Nebel 2001, FF) and by the moves that these begin with; it ends after a number of states, not of seconds, so
that the same place has the same plan on every machine. Not promised: shortest plans. (Fast Downward's own replanning takes between 0.01
and 76 seconds for games of ALFWorld, and up to 1 GB; this takes a tenth of a second.)
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

MOST_STATES = 1_000

Fact = tuple[int, int]  # variable, value
State = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """A move, or a rule by which facts follow from others (an axiom, which costs nothing)."""

    name: str
    needs: tuple[Fact, ...]
    effects: tuple[tuple[tuple[Fact, ...], Fact], ...]  # each with its own conditions
    axiom: bool = False


@dataclass
class Planner:
    """One problem, and how to get to its goal from anywhere in it."""

    values: list[list[str]]  # of each variable: "Atom at(keeper, hall)"
    start: State
    goal: tuple[Fact, ...]
    operators: list[Operator]
    _supports: list[tuple[int, int, Fact]] = field(default_factory=list)  # operator, number of conditions, fact
    _needed: dict[Fact, list[int]] = field(default_factory=lambda: defaultdict(list))
    _free: list[int] = field(default_factory=list)  # supports without conditions
    _axioms: list[Operator] = field(default_factory=list)
    _named: dict[str, list[Operator]] = field(default_factory=lambda: defaultdict(list))  # moves by the first word of their names

    def __post_init__(self) -> None:
        for number, operator in enumerate(self.operators):
            (self._axioms if operator.axiom else self._named[operator.name.split()[0]]).append(operator)
            for conditions, fact in operator.effects:
                needs = set(operator.needs) | set(conditions)
                for one in needs:
                    self._needed[one].append(len(self._supports))
                if not needs:
                    self._free.append(len(self._supports))
                self._supports.append((number, len(needs), fact))

    def state(self, facts: Collection[str]) -> State:
        """The state in which `facts`, written as "at(keeper, hall)", hold and no others do."""
        found = []
        for names, first in zip(self.values, self.start, strict=True):
            held = [place for place, name in enumerate(names) if name.startswith("Atom ") and name[5:] in facts]
            absent = [place for place, name in enumerate(names) if not name.startswith("Atom ")]
            found.append((held or absent or [first])[0])
        return tuple(found)

    def plan(self, facts: Collection[str], old: Sequence[str] = ()) -> list[str] | None:
        """Names of moves that win; None when none are found. An end of an `old` plan that still wins is kept: a new one might be longer
        and make what was done look like a step back.
        """
        state = self._closed(self.state(facts))
        ends = (self._followed(state, old[start:]) for start in range(len(old), -1, -1))
        kept = next((made for made in ends if made is not None), None)
        if kept is not None and (len(kept) < len(old) or not kept):
            return kept
        plans = (self._search(state, helpful) for helpful in (True, False))
        new = next((made for made in plans if made is not None), None)
        return kept if new is None or (kept is not None and len(kept) <= len(new)) else new

    def _followed(self, state: State, names: Sequence[str]) -> list[str] | None:
        """The moves of a plan as they can be made from here, where they win. One may differ in an argument: where the player comes from."""
        made = []
        for name in names:
            words = name.split()
            able = [o for o in self._named.get(words[0], ()) if o.name == name or sum(map(str.__ne__, o.name.split(), words)) == 1]
            able = sorted((o for o in able if _holds(state, o.needs)), key=lambda o: o.name != name)
            if not able:
                return None
            state = self._closed(_applied(state, able[0]))
            made.append(able[0].name)
        return made if _holds(state, self.goal) else None

    def _search(self, state: State, helpful: bool) -> list[str] | None:
        """Greedy best-first search; with `helpful`, through the first moves of relaxed plans alone."""
        order, seen = count(), {state}
        length, first = self._relaxed(state)
        queue: list[tuple[int, int, State, list[int], list[str]]] = [(length, next(order), state, first, [])] if length >= 0 else []
        while queue and len(seen) < MOST_STATES:
            _, _, state, first, made = heapq.heappop(queue)
            if _holds(state, self.goal):
                return made
            for number in first if helpful else range(len(self.operators)):
                operator = self.operators[number]
                if operator.axiom or not _holds(state, operator.needs):
                    continue
                after = self._closed(_applied(state, operator))
                if after not in seen:
                    seen.add(after)
                    length, following = self._relaxed(after)
                    if length >= 0:
                        heapq.heappush(queue, (length, next(order), after, following, [*made, operator.name]))
        return None

    def _relaxed(self, state: State) -> tuple[int, list[int]]:
        """The length of a plan in which nothing ever stops to hold, -1 where there is none; and those of its moves that can be made now."""
        cost: dict[Fact, int] = dict.fromkeys(enumerate(state), 0)
        left = [needs for _, needs, _ in self._supports]
        total = [0] * len(left)
        by: dict[Fact, int] = {}
        queue = [(0, fact) for fact in cost]
        heapq.heapify(queue)
        done: set[Fact] = set()

        def reach(support: int) -> None:
            number, _, fact = self._supports[support]
            price = total[support] + (not self.operators[number].axiom)
            if price < cost.get(fact, 1 << 30):
                cost[fact], by[fact] = price, support
                heapq.heappush(queue, (price, fact))

        for support in self._free:
            reach(support)
        while queue:
            price, fact = heapq.heappop(queue)
            if fact in done or price > cost[fact]:
                continue
            done.add(fact)
            for support in self._needed.get(fact, ()):
                left[support] -= 1
                total[support] += price
                if not left[support]:
                    reach(support)
        if any(fact not in cost for fact in self.goal):
            return -1, []
        return self._moves_of(state, by)

    def _moves_of(self, state: State, by: dict[Fact, int]) -> tuple[int, list[int]]:
        wanted, seen, moves = list(self.goal), set(self.goal), set[int]()
        while wanted:
            support = by.get(wanted.pop())
            if support is None:
                continue
            number, _, fact = self._supports[support]
            operator = self.operators[number]
            if not operator.axiom:
                moves.add(number)
            own = next(conditions for conditions, effect in operator.effects if effect == fact)
            new = [one for one in (*operator.needs, *own) if one not in seen]
            seen.update(new)
            wanted += new
        return len(moves), sorted(number for number in moves if _holds(state, self.operators[number].needs))

    def _closed(self, state: State) -> State:
        """The state with all that follows by axioms."""
        values = list(state)
        for operator in self._axioms:
            for _, (variable, _) in operator.effects:
                values[variable] = self.start[variable]
        changed = True
        while changed:
            changed = False
            for operator in self._axioms:
                for _, (variable, value) in operator.effects:
                    if values[variable] != value and all(values[v] == x for v, x in operator.needs):
                        values[variable], changed = value, True
        return tuple(values)


def _holds(state: State, facts: Sequence[Fact]) -> bool:
    return all(state[variable] == value for variable, value in facts)


def _applied(state: State, operator: Operator) -> State:
    after = list(state)
    for conditions, (variable, value) in operator.effects:
        if _holds(state, conditions):
            after[variable] = value
    return tuple(after)


def read_sas(text: str) -> Planner:
    """The planner for a translation. Raises ValueError or StopIteration for what is none."""
    lines = iter(text.split("\n"))

    def until(mark: str) -> None:
        while next(lines) != mark:
            pass

    def facts() -> tuple[Fact, ...]:
        return tuple(_fact(next(lines)) for _ in range(int(next(lines))))

    until("end_metric")
    values = []
    for _ in range(int(next(lines))):
        until("begin_variable")
        next(lines), next(lines)
        values.append([next(lines) for _ in range(int(next(lines)))])
    until("begin_state")
    start = tuple(int(next(lines)) for _ in values)
    until("begin_goal")
    goal = facts()
    until("end_goal")
    operators = []
    for _ in range(int(next(lines))):
        until("begin_operator")
        name, needs = next(lines), facts()
        operators.append(Operator(name, *_effects(lines, needs)))
        until("end_operator")
    for number in range(int(next(lines))):
        until("begin_rule")
        needs = facts()
        variable, _, value = map(int, next(lines).split())
        operators.append(Operator(f"axiom {number}", needs, (((), (variable, value)),), axiom=True))
        until("end_rule")
    return Planner(values, start, goal, operators)


def _fact(line: str) -> Fact:
    variable, value = map(int, line.split())
    return variable, value


def _effects(lines: Iterator[str], needs: tuple[Fact, ...]) -> tuple[tuple[Fact, ...], tuple[tuple[tuple[Fact, ...], Fact], ...]]:
    """The conditions of an operator with those that its effects' variables must meet, and its effects."""
    effects = []
    for _ in range(int(next(lines))):
        numbers = [int(number) for number in next(lines).split()]
        conditions = tuple(zip(numbers[1 : 1 + 2 * numbers[0] : 2], numbers[2 : 2 + 2 * numbers[0] : 2], strict=True))
        variable, before, after = numbers[-3:]
        if before >= 0:
            needs += ((variable, before),)
        effects.append((conditions, (variable, after)))
    return needs, tuple(effects)
