"""The selector of sets in a run: warmed up on exploring plays, then probes under a budget, by EVSI or at random.

In: the bench, its exploring plays and a frozen store. Out: one file of weights for each way of probing that an arm asks for (SPEC C3).
A probe plays a training task with a given set in its context, under the settings of the plays that it is compared with. Each way of
probing pays for its own probes, also where the other made the same one before.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.experiment.stages import Bench, Episodes, weights_path
from mulligan.memory import Memory
from mulligan.nouns import content_id
from mulligan.read.selection import SETS
from mulligan.read.sets import Set
from mulligan.read.weights import save
from mulligan.records import Candidate, Episode, Selection, Situation, Task, Usage
from mulligan.store import Store

if TYPE_CHECKING:
    from mulligan.train.event import Posing


@dataclass(frozen=True, slots=True)
class Fixed:
    """Shows the records of a set, in the order of their ids, wherever they are among the candidates."""

    records: frozenset[str]
    name: str = "fixed"

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        """All of the set that may be shown here."""
        here = {c.record.id: place for place, c in enumerate(candidates) if c.record.id in self.records}
        places = [here[key] for key in sorted(here)]
        return Selection(chosen=places[0] if places else None, more=tuple(places[1:]), policy=self.name)


@dataclass(frozen=True, slots=True)
class Posed:
    """A training task with its candidates, and what the scorer sees of it and of the plays that were executed there."""

    task: Task
    candidates: tuple[Candidate, ...]
    posing: "Posing"


@dataclass
class Prober:
    """Plays training tasks with given sets, and knows what was executed before."""

    bench: Bench
    store: Store
    posed: Sequence[Posed]
    policy: str
    _made: set[tuple[str, str]] = field(default_factory=set)

    def execute(self, at: int, one: Set) -> tuple[float, bool]:
        """Whether the task is solved with that set, and whether this had to be played."""
        posed = self.posed[at]
        records = frozenset(posed.candidates[place].record.id for place in one)
        key, stage = content_id("set", sorted(records)), f"probe {self.policy}"
        new = one not in posed.posing.executed and (posed.task.id, key) not in self._made
        self._made.add((posed.task.id, key))
        episode = self._play(posed.task, records, f"probe {key}")
        if new:
            self.bench.ledger.add_usage(f"{stage}/{posed.task.id}/{key}", stage=stage, task=posed.task.id, usage=episode.usage)
            self.bench.progress(stage, len(self._made), self.bench.experiment.memory.probes)
        return float(episode.solved), new

    def _play(self, task: Task, records: frozenset[str], label: str) -> Episode:
        if (known := self.bench.ledger.episode_for(task.id, label)) is not None:
            return known
        memory = self.bench.memory(Memory, self.store, **self.bench.wide, chosen=Fixed(records))
        episode = replace(self.bench.agent().play(task, self.bench.world, self.bench.model, memory), label=label)
        self.bench.ledger.add_episode(episode)
        return episode


def acquire(bench: Bench, explored: Sequence[Episodes], wanted: Sequence[str]) -> dict[str, Path]:
    """Train the selectors of sets in `wanted`; the files of weights, by selector."""
    from mulligan.train import event, uplift

    made, settings = {}, bench.experiment.memory
    with Store(bench.memory_path("checked"), frozen=True) as store:
        posed = _posed(bench, store, explored)
        for name in wanted:
            path = made[name] = weights_path(bench, name)
            if path.exists():
                continue
            started = time.monotonic()
            how = event.Settings(budget=settings.probes, policy=SETS[name], scorer=uplift.Settings(size=settings.set_size))
            prober = Prober(bench, store, posed, SETS[name])
            domains = sorted({p.task.domain for p in posed})
            got = event.run([p.posing for p in posed], prober.execute, how, embedder=bench.embedder.id, domains=domains)
            save(event.told(got, len(posed)), path)
            bench.ledger.add_usage(f"train {name}", stage=f"train {name}", task="", usage=Usage(seconds=time.monotonic() - started))
    return made


def _posed(bench: Bench, store: Store, explored: Sequence[Episodes]) -> list[Posed]:
    """The training tasks that have a candidate, with what exploring plays found: whether a task was solved with what was shown first."""
    from mulligan.train.event import Posing

    memory = bench.memory(Memory, store, **bench.wide)
    tasks = [replace(task, split="heldout") for task in bench.split("train")]
    domains, found = sorted({task.domain for task in tasks}), []
    for task in tasks:
        facts = memory.facts(task)
        situation = Situation(task=task, facts=facts)
        situation = replace(situation, need=memory.need(situation))
        candidates, _ = memory.retrieve(situation)
        if not candidates:
            continue
        keys = [c.record.id for c in candidates]
        executed: dict[Set, list[float]] = {}
        for episode in (plays[task.id] for plays in explored):
            shown = tuple(sorted(keys.index(key) for key in episode.receipts[0].shown if key in keys)) if episode.receipts else ()
            executed[shown] = [float(episode.solved)]  # agents are greedy: the same set again is the same play
        (asked,) = bench.embedder.embed([memory.gist(task)])
        posing = Posing.of(situation, candidates, vectors=store.vectors(keys), asked=asked, domains=domains)
        found.append(Posed(task=task, candidates=tuple(candidates), posing=replace(posing, executed=executed)))
    return found
