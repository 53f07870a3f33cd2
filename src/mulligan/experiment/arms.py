"""The arms: what the agent is given on held-out tasks. One entry here is one row of the report.

`none` is the baseline of all pairs. `reflexion_*` retry a task with notes of their own: as published, or on evidence (SPEC D2).
`validated`, `unvalidated` and `bank` store notes in words (SPEC C3, B2). `checked_*` share one store and differ in the selector. The
others each break one part: `unverified` the check, `no_persistence` the store, `random` and `shuffled` the match, `no_condition` the
conditions (SPEC A6), `no_need` the question whether a lesson is needed. Behind the name of any arm with a store `+rewrite` has the model
rewrite what is shown, or reject it (SPEC B1): `checked_threshold`, `no_condition` and both with it are a 2 x 2.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mulligan.errors import UnknownName
from mulligan.memory import Memory, receipt_of
from mulligan.read.selection import LEARNED, SETS
from mulligan.records import Attempt, Candidate, Guidance, Receipt, Selection, Situation, Task, Usage
from mulligan.write import bank, signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """`store` names the memory that was constructed for it, `kind` how it is read, `best_of` a sampling agent instead of
    memory.
    """

    store: Literal["", "checked", "unverified", "validated", "unvalidated", "bank"] = ""
    kind: Literal["plain", "random", "shuffled", "ephemeral", "bank"] = "plain"
    selector: str = ""  # "" is the experiment's ablation selector
    conditions: bool = True
    need: bool = True
    best_of: Literal["", "plain", "guided"] = ""
    reflection: Literal["", "self", "evidence"] = ""  # Reflexion instead of the experiment's agent
    rewrite: bool = False

    @property
    def learned(self) -> bool:
        """Whether its selector is learned from exploring plays."""
        return self.selector in (*LEARNED, *SETS)

    @property
    def sets(self) -> bool:
        """Whether several records are shown together."""
        return self.selector in SETS

    @property
    def remembers(self) -> bool:
        return bool(self.store) or self.kind == "ephemeral"


ARMS: Mapping[str, Arm] = {
    "none": Arm(),
    "best_of_n": Arm(best_of="plain"),
    "best_of_n_guided": Arm(best_of="guided"),
    "reflexion_self": Arm(reflection="self"),
    "reflexion_evidence": Arm(reflection="evidence"),
    "unverified": Arm(store="unverified"),
    "unvalidated": Arm(store="unvalidated"),
    "validated": Arm(store="validated"),
    "bank": Arm(store="bank", kind="bank"),
    "no_persistence": Arm(kind="ephemeral"),
    "checked_never": Arm(store="checked", selector="never"),
    "checked_top1": Arm(store="checked", selector="top1"),
    "checked_threshold": Arm(store="checked", selector="threshold"),
    "checked_utility": Arm(store="checked", selector="utility"),
    **{f"checked_{name}": Arm(store="checked", selector=name, need=False) for name in LEARNED},  # for these need is a feature
    **{f"checked_{name}": Arm(store="checked", selector=name, need=False) for name in SETS},
    "random": Arm(store="checked", kind="random", selector="top1"),
    "shuffled": Arm(store="checked", kind="shuffled"),
    "no_condition": Arm(store="checked", conditions=False),
    "no_need": Arm(store="checked", need=False),
}


REWRITE = "+rewrite"


def arm(name: str) -> Arm:
    """The arm of that name, with `+rewrite` behind it the one that rewrites. Raises UnknownName listing the known ones."""
    found, rewrite = ARMS.get(name.removesuffix(REWRITE)), name.endswith(REWRITE)
    if found is None:
        raise UnknownName(f"no arm {name!r}: choose among {', '.join(ARMS)}")
    if rewrite and not found.store:
        raise UnknownName(f"no arm {name!r}: {REWRITE} goes with {', '.join(known for known, one in ARMS.items() if one.store)}")
    return replace(found, rewrite=rewrite)


class RandomMemory(Memory):
    """Hands out records at random instead of matching ones; the same ones for the same task."""

    def retrieve(self, situation: Situation) -> tuple[list[Candidate], Usage]:
        known = self.store.records(scope=situation.task.scope, domain=situation.task.domain)
        stored = [s for s in known if self.recallable(s.record)]
        drawn = random.Random(situation.task.id).sample(stored, min(self.settings.candidates, len(stored)))
        return [Candidate(record=s.record, statistics=s.statistics, similarity=0.0, overlap=0.0, score=0.0) for s in drawn], Usage()


class ShuffledMemory(Memory):
    """Hands each task the records that were retrieved for another one; `donors` maps a task's id to the other task."""

    donors: Mapping[str, Task] = {}

    def retrieve(self, situation: Situation) -> tuple[list[Candidate], Usage]:
        donor = self.donors[situation.task.id]
        return super().retrieve(replace(situation, task=donor, facts=self.facts(donor)))


class EphemeralMemory(Memory):
    """Checks alternatives within the present task and keeps nothing.

    After a visibly failed action, local alternatives are tried in copies of its state. The first with which the world shows
    nothing wrong is handed to the agent. Only what an agent may see decides: on held-out tasks the utilities would give the
    gold away.
    """

    def recall(self, task: Task, history: Sequence[Attempt] = (), *, observation: str = "", max_attempts: int = 1) -> Guidance:
        selection = Selection(chosen=None, policy="ephemeral")
        receipt = Receipt(scope=task.scope, task=task.id, attempt=len(history), candidates=(), shown=(), selection=selection)
        if not history or not signals.is_failure(history[-1]):
            return Guidance(text="", records=(), receipt=receipt)
        checked, _, usage = self.alternatives(task, signals.failure_at(history, len(history) - 1))
        better = next((c for c in checked if c.replayed and c.changed.completed and c.changed.done and not c.changed.signals), None)
        text = f"Tried from this state: {better.proposal.action}\nThe world answers: {better.changed.feedback}" if better else ""
        return Guidance(text=text, records=(), receipt=receipt, usage=usage)


class BankMemory(Memory):
    """Shows up to three notes, none too like another, out of the ten that are nearest; it never declines (MemHarness, SPEC B2)."""

    def recall(self, task: Task, history: Sequence[Attempt] = (), *, observation: str = "", max_attempts: int = 1) -> Guidance:
        situation = Situation(task=task, facts=self.facts(task), observation=observation, history=tuple(history), max_attempts=max_attempts)
        found, usage = self.retrieve(situation)
        places = bank.distinct(self.store.vectors([c.record.id for c in found])) if found else []
        told = self.told(situation, [found[n].record for n in places])
        choice = Selection(chosen=0 if told.records else None, policy="bank")
        receipt = receipt_of(situation, found, told.records, choice, rewrite=told.rewrite)
        return Guidance(text=told.text, records=told.records, receipt=receipt, usage=usage + told.usage)


def donors(tasks: Sequence[Task]) -> dict[str, Task]:
    """A fixed assignment in which every task gets another task (and where there are several groups, one of another group)."""
    order = sorted(tasks, key=lambda t: (t.group, t.id))
    most = max((sum(t.group == g for t in order) for g in {t.group for t in order}), default=0)
    shift = most if most < len(order) else 1
    return {t.id: order[(place + shift) % len(order)] for place, t in enumerate(order)}
