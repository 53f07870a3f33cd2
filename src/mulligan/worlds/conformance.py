"""The contract that every world must pass before its verdicts may admit records, as one call.

In: a world and a few of its tasks. Out: all violations found, not only the first. Tried on every task: the same actions give the same
verdicts; a restored snapshot has the future of the state it was saved from, also in another process; what is done in a copy leaves the
live state alone; hostile actions come back as verdicts; verdicts, facts and edits are what the seams say; on held-out tasks what an agent
sees does not depend on the gold answer. Not promised: that the verdicts are right, or that the check survives a world that never answers.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import TypeVar, get_args

from mulligan.nouns import Json
from mulligan.protocols import Snapshot, State, World
from mulligan.records import Misfit, Proposal, SignalKind, Situation, Task, Verdict

T = TypeVar("T")
HOSTILE = (
    "",
    "   \n",
    "\x00",
    "SELECT 1\x00",
    "\ud800 half a character",
    "𓀀" * 1000,
    "x" * 1_000_000,
    "(" * 20_000,
    "'; DROP TABLE city; --",
    "DROP TABLE city",
    "ATTACH DATABASE '/tmp/other.db' AS other",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    "import os; os._exit(0)",
    "$(touch /tmp/hostile)",
    "../../../etc/passwd",
)
EDITS = 50  # proposals looked at for one action
NEVER_SEEN = "zq_never_seen_7"  # a name that no world has


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule: which, on which task, with which action, and what was seen."""

    rule: str
    task: str
    what: str
    action: str = ""

    def __str__(self) -> str:
        return f"{self.rule} ({self.task}{f', action {self.action!r}' if self.action else ''}): {self.what}"


def check_world(world: World, tasks: Sequence[Task], *, actions: Sequence[str] | None = None) -> list[Violation]:
    """All violations of the contract on `tasks`; an empty list is a pass. `actions` are plausible ones, in an order worth playing.

    Without `actions`, what the world's own edits propose is played. Tasks with a "gold" in their payload are also played as held-out
    tasks, with their own gold and with that of each other task.
    """
    found = [] if tasks else [Violation(rule="tasks", task="", what="there is no task to check the world on")]
    golds = [task.payload["gold"] for task in tasks if "gold" in task.payload]
    for task in tasks:
        check = _Check(world, task)
        check.pickled("world", world)
        check.facts()
        played = list(actions) if actions is not None else check.own_actions()
        check.deterministic(played)
        check.restored(played)
        check.isolated([*played, *HOSTILE])
        check.edits(played)
        check.misfits()
        check.blind(played, golds)
        found += check.found
    return list(dict.fromkeys(found))


class _Check:
    """The checks on one task, each adding to `found`."""

    def __init__(self, world: World, task: Task) -> None:
        self.world, self.task = world, task
        self.found: list[Violation] = []

    def wrong(self, rule: str, what: str, action: str = "") -> None:
        self.found.append(Violation(rule=rule, task=self.task.id, what=what, action=action[:40]))

    def attempt(self, rule: str, call: Callable[[], T], action: str = "") -> T | None:
        """What `call` returns; None, and a violation, when it raises."""
        try:
            return call()
        except Exception as error:  # a world under test may raise anything, and the next rule is checked all the same
            self.wrong(rule, f"raises {type(error).__name__}: {str(error)[:200]}", action)
            return None

    def start(self, task: Task | None = None) -> State | None:
        return self.attempt("start", partial(self.world.start, task or self.task))

    def act(self, state: State, action: str, rule: str = "act") -> Verdict | None:
        """One action; its verdict is looked at, whatever it was played for."""
        verdict = self.attempt(rule, partial(self.world.act, state, action), action)
        for what in _faults(verdict) if verdict is not None else ():
            self.wrong("verdict", what, action)
        return verdict if isinstance(verdict, Verdict) else None

    def play(self, state: State | None, actions: Sequence[str]) -> list[Json]:
        """What is seen after each action, as plain values; closes the state."""
        seen: list[Json] = []
        if state is not None:
            with state:
                for action in actions:
                    verdict = self.act(state, action)
                    seen.append([verdict and _said(verdict), state.digest])
        return seen

    def pickled(self, rule: str, value: T) -> T | None:
        """`value` as another process gets it from a pool."""
        return self.attempt(rule, lambda: ForkingPickler.loads(ForkingPickler.dumps(value)))

    def facts(self) -> None:
        first, again = (self.attempt("facts", partial(self.world.facts, self.task)) for _ in range(2))
        if first is not None and self.attempt("facts", lambda: bool(json.dumps(dict(first), allow_nan=False))) and first != again:
            self.wrong("facts", "differ from call to call")

    def own_actions(self) -> list[str]:
        """Actions for a world of which nothing is known: what its edits make of nothing, and of one another."""
        state, actions = self.start(), [""]
        if state is not None:
            with state:
                for _ in range(3):
                    verdict = self.act(state, actions[-1])
                    actions += [p.action for p in self.proposals(state, actions[-1], verdict)[:2]]
        return actions

    def deterministic(self, actions: Sequence[str]) -> None:
        for action, one, two in zip(actions, self.play(self.start(), actions), self.play(self.start(), actions), strict=False):
            if one != two:
                return self.wrong("deterministic", "another verdict or digest after the same actions", action)
        return None

    def restored(self, actions: Sequence[str]) -> None:
        """From every point of an episode, a restored snapshot has the future of the state itself."""
        for played in range(len(actions) + 1):
            state = self.start()
            if state is None:
                return None
            for action in actions[:played]:
                self.act(state, action)
            snapshot = self.attempt("snapshot", partial(self.world.save, state))
            sent = self.pickled("snapshot", snapshot)
            if snapshot is not None and snapshot.digest != state.digest:
                self.wrong("snapshot", "has another digest than the state")
            rest = actions[played:]
            future = self.play(state, rest)
            for copy in (self.restore(snapshot), self.restore(sent)):
                if copy is not None and self.play(copy, rest) != future:
                    return self.wrong("restore", f"another future than that of the state, after {played} actions")
        return None

    def restore(self, snapshot: Snapshot | None) -> State | None:
        return None if snapshot is None else self.attempt("restore", partial(self.world.restore, snapshot))

    def isolated(self, actions: Sequence[str]) -> None:
        """What is done in copies leaves the live state and later starts alone; hostile actions come back as verdicts."""
        state = self.start()
        snapshot = None if state is None else self.attempt("snapshot", partial(self.world.save, state))
        if state is None or snapshot is None:
            return None
        with state:
            before = state.digest
            for action in actions:
                copy = self.restore(snapshot)
                if copy is not None:
                    with copy:
                        self.act(copy, action, rule="hostile" if action in HOSTILE else "act")
                self.attempt("tokens", partial(self.world.tokens, action), action)
                later = self.start()
                if state.digest != before or (later is not None and later.digest != before):
                    return self.wrong("isolation", "an action in a copy changed the live state or a later start", action)
        return None

    def proposals(self, state: State, action: str, verdict: Verdict | None) -> list[Proposal]:
        if verdict is None:
            return []
        return self.attempt("edits", lambda: list(islice(self.world.edits(state, action, verdict), EDITS)), action) or []

    def edits(self, actions: Sequence[str]) -> None:
        """Edits are proposals of something else, and offering them changes nothing."""
        for action in [*actions, *HOSTILE]:
            state = self.start()
            verdict = None if state is None else self.act(state, action)
            if state is None or verdict is None:
                continue
            with state:
                before = state.digest
                for proposal in self.proposals(state, action, verdict):
                    if not isinstance(proposal, Proposal) or not proposal.edit or not proposal.proposer:
                        self.wrong("edits", f"a proposal without its edit or its proposer: {proposal!r:.80}", action)
                    elif list(self.world.tokens(proposal.action)) == list(self.world.tokens(action)):
                        self.wrong("edits", f"{proposal.proposer} proposes the action itself", action)
                if state.digest != before:
                    self.wrong("edits", "offering proposals changed the state", action)

    def misfits(self) -> None:
        """A lesson in words may name what the task itself names, may not name what nothing has, and may be any text."""
        situation = Situation(task=self.task, facts=self.attempt("facts", partial(self.world.facts, self.task)) or {})

        def said(text: str) -> list[Misfit]:
            found = self.attempt("misfits", lambda: list(self.world.misfits(situation, text)), text) or []
            if not all(isinstance(misfit, Misfit) and misfit.what for misfit in found):
                self.wrong("misfits", f"no list of misfits that say what: {found!r:.80}", text)
            return found

        word = next((w.strip(".,:;?!") for w in self.task.prompt.split() if w.strip(".,:;?!").isalpha()), "")
        if word and (found := said(f"Look at `{word}`.")):
            self.wrong("misfits", f"a word of the task is unknown: {found[0].what}", word)
        if not any(misfit.kind == "unknown_name" for misfit in said(f"Use `{NEVER_SEEN}`.")):
            self.wrong("misfits", "a name that nothing has is let through", NEVER_SEEN)
        for text in HOSTILE:
            if said(f"`{text}`") != said(f"`{text}`"):
                self.wrong("misfits", "differ from call to call", text)

    def blind(self, actions: Sequence[str], golds: Sequence[Json]) -> None:
        """On held-out tasks, feedback, signals and `done` are the same whatever the gold answer is."""
        hidden = replace(self.task, split="heldout")
        shown = [self.seen(replace(hidden, payload={**hidden.payload, "gold": gold}), actions) for gold in golds]
        if any(other != shown[0] for other in shown):
            self.wrong("heldout", "what the agent sees depends on the gold answer")

    def seen(self, task: Task, actions: Sequence[str]) -> list[Json]:
        """All that an agent may look at, action by action."""
        state = self.start(task)
        if state is None:
            return []
        with state:
            verdicts = [self.act(state, action) for action in actions]
        return [verdict and (verdict.feedback, verdict.signals, verdict.done) for verdict in verdicts]


def _said(verdict: Verdict) -> tuple[Json, ...]:
    """All of a verdict but what it cost."""
    return verdict.completed, verdict.utility, verdict.solved, verdict.feedback, verdict.signals, verdict.done, verdict.evaluator


def _faults(verdict: Verdict) -> Iterator[str]:
    """What a verdict may not be."""
    if not isinstance(verdict, Verdict):
        yield f"is a {type(verdict).__name__}"
        return
    if not isinstance(verdict.utility, Fraction):
        yield f"utility is a {type(verdict.utility).__name__}, not a Fraction"
    elif not 0 <= verdict.utility <= 1:
        yield f"utility {verdict.utility} is outside [0, 1]"
    elif verdict.solved and verdict.utility != 1:
        yield f"solved with utility {verdict.utility}"
    if verdict.solved and not verdict.completed:
        yield "solved, but not completed"
    if not verdict.solved and not (verdict.feedback or verdict.signals):
        yield "not solved, without a word of evidence"
    if unknown := [signal.kind for signal in verdict.signals if signal.kind not in get_args(SignalKind)]:
        yield f"signals of unknown kinds: {unknown}"
    if not verdict.evaluator:
        yield "does not name its evaluator"
