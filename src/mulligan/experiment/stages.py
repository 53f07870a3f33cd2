"""The stages of an experiment: play the source tasks, construct, practise, freeze, evaluate on the held-out ones.

Each stage writes its rows as it goes and skips what is there, so a run that is killed anywhere goes on where it was. Work of
one stage runs in parallel; what changes a store is applied in the order of the tasks, so that the result does not depend on who
was faster.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from mulligan.agents.acting import Onward, Sampling
from mulligan.agents.best_of_n import BestOfN
from mulligan.agents.react import ReAct
from mulligan.agents.reflexion import Mode, Reflexion
from mulligan.errors import UsageError
from mulligan.experiment.arms import Arm, BankMemory, EphemeralMemory, RandomMemory, ShuffledMemory, arm, donors
from mulligan.experiment.metrics import first_use, outcome
from mulligan.experiment.settings import Experiment
from mulligan.memory import Memory, Settings
from mulligan.nouns import content_id
from mulligan.pool import Pool, WorkerDied
from mulligan.protocols import Agent, Embedder, Model, Selector, World
from mulligan.read.selection import Threshold, Top1, Utility, selector
from mulligan.read.uplift import Uplift
from mulligan.read.weights import load
from mulligan.records import Episode, Task, Usage
from mulligan.store import Store
from mulligan.write.checks import Policy, Rollout

RECALLED = 50  # records among which sets are chosen (SPEC C1)
Variant = Literal["checked", "unverified", "validated", "unvalidated", "bank"]
Episodes = dict[str, Episode]
Result = TypeVar("Result")


class Progress(Protocol):
    """Told of every finished piece of work; `total` is known from the start."""

    def __call__(self, stage: str, done: int, total: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all stages work with: the experiment, its tasks, the parts it is built from, and the folder it lives in."""

    experiment: Experiment
    tasks: Sequence[Task]
    world: World
    model: Model
    embedder: Embedder
    ledger: Store  # run.db: episodes, costs and cached replies of every arm
    folder: Path
    players: Pool
    checkers: Pool
    progress: Progress
    policy: Policy | None = None  # who goes on after what is tried; None is the agent

    def split(self, name: str) -> list[Task]:
        """The tasks of a split. Held-out tasks whose failures may be told are given as training tasks, for which worlds tell."""
        found = [t for t in self.tasks if t.split == name]
        return [replace(t, split="train") for t in found] if name == "heldout" and self.experiment.tasks.told else found

    def memory_path(self, variant: Variant) -> Path:
        return self.folder / f"{variant}.db"

    def agent(self) -> Agent:
        """The agent of all arms but the best-of-n ones."""
        how = self.experiment.agent
        sampling = Sampling(max_tokens=how.max_tokens)
        if how.kind == "reflexion":
            return self.reflexion("self")
        return ReAct(max_attempts=how.attempts, sampling=sampling)

    def reflexion(self, mode: Mode) -> Reflexion:
        """Reflexion as published, or on evidence and with the guard against notes that freeze."""
        how = self.experiment.agent
        sampling = Sampling(max_tokens=how.max_tokens)
        return Reflexion(trials=how.attempts, steps=how.steps, mode=mode, guard=mode == "evidence", sampling=sampling)

    @property
    def wide(self) -> dict[str, Any]:
        """The settings that differ where sets of records are chosen: all that was found, and room for as many lessons."""
        m = self.experiment.memory
        return {"candidates": RECALLED, "budget": m.budget * m.set_size, "need": 0.0}

    def memory(
        self,
        kind: type[Memory],
        store: Store,
        *,
        chosen: Selector | None = None,
        **changes: Any,
    ) -> Memory:
        """A memory of that kind over `store`, with the experiment's settings but for `changes`; its panel are the source tasks."""
        m = self.experiment.memory
        policy = self.policy or Onward(model=self.model, sampling=Sampling(max_tokens=self.experiment.agent.max_tokens))
        settings = Settings(
            alternatives=m.alternatives,
            from_model=m.from_model,
            threshold=m.threshold,
            rollout=Rollout(policy=policy, steps=m.rollout) if m.rollout else None,
            capacity=m.capacity,
            retention=m.retention,
            partial=m.partial,
            min_score=m.min_score,
            budget=m.budget,
            contrast=m.contrast,
            need=m.need,
            withheld=Fraction(0),  # arms are compared in pairs: no coin is needed to tell what a lesson does
        )
        return kind(
            store,
            self.world,
            embedder=self.embedder,
            model=self.model,
            selector=chosen,
            settings=replace(settings, **changes),
            panel=self.split("source"),
            pool=self.checkers,
        )


def play_source(bench: Bench) -> Episodes:
    """Play the source tasks without memory: what failed there is learnt from."""
    return played(bench, "source", bench.split("source"), bench.agent(), None)


def play_train(bench: Bench) -> Episodes:
    """Play the training tasks without memory: what practice on them is compared with."""
    return played(bench, "train", bench.split("train"), bench.agent(), None)


def construct(bench: Bench, variant: Variant, episodes: Episodes) -> None:
    """Learn from the source episodes into the variant's store, in the order of the tasks."""
    stage = f"construct {variant}"
    todo = unsettled(bench, stage, episodes)
    with Store(bench.memory_path(variant)) as store:
        memory = bench.memory(Memory, store, verify=variant == "checked")
        before = len(episodes) - len(todo)
        for place, (episode, examined) in enumerate(zip(todo, bench.players.run(memory.examine, todo), strict=True), 1):
            for one in alive(examined):
                memory.admit(episode, one)
            memory.note(episode)
            settle(bench, stage, episode.task, sum((e.usage for e in alive(examined)), Usage()))
            bench.progress(stage, before + place, len(episodes))


def practise(bench: Bench, variant: Variant, episodes: Episodes) -> None:
    """Play the source and training tasks with memory, and settle every first use against the play without: `episodes`.

    Records of the task's own group are never shown, as on held-out tasks. Round r shows the candidate at place r, so that
    statistics are not only of the favourites. All plays of a round see the store as it was when the round began.
    """
    tasks = bench.split("source")
    if not bench.experiment.memory.explore:  # else learners would meet, as features, what came of the tasks they train on
        tasks += bench.split("train")
    for place in range(bench.experiment.memory.practice):
        stage = f"practice {variant} {place}"
        with Store(bench.memory_path(variant)) as store:
            memory = bench.memory(Memory, store, verify=variant == "checked", chosen=Top1(place=place))
            practised = played(bench, stage, tasks, bench.agent(), memory)
            for episode in unsettled(bench, f"settle {stage}", practised):
                receipt = first_use(episode)
                if receipt is not None:
                    memory.settle(receipt, outcome(episode.utility, episodes[episode.task.id].utility))
                settle(bench, f"settle {stage}", episode.task, Usage())


def evaluate(bench: Bench, name: str, label: str = "") -> Episodes:
    """Play the held-out tasks in one arm, under its name or `label`. Nothing is written but episodes and costs in the run's own ledger."""
    one, tasks, stage = arm(name), bench.split("heldout"), label or name
    if one.best_of:
        how = bench.experiment.agent
        sampling = Sampling(max_tokens=how.max_tokens, temperature=0.8)
        samples = how.samples if one.best_of == "plain" else how.attempts
        return played(bench, stage, tasks, BestOfN(n=samples, choice=one.best_of, sampling=sampling), None)
    if one.reflection:
        return played(bench, stage, tasks, bench.reflexion(one.reflection), None)
    if not one.remembers:
        return played(bench, stage, tasks, bench.agent(), None)
    with Store(bench.memory_path(one.store or "checked"), frozen=True) as store:
        return played(bench, stage, tasks, bench.agent(), reader(bench, one, store))


def fingerprint(path: Path) -> str:
    """SHA-256 of the store's file: equal before and after a stage that may not change it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def contents(path: Path) -> str:
    """Hash of the records with their status and statistics: equal for stores that were built alike, whenever that was."""
    with Store(path, frozen=True) as store:
        return content_id("sto", [(s.record.id, s.status, s.statistics) for s in store.records(scope=None, status=None)])


def reader(bench: Bench, one: Arm, store: Store) -> Memory:
    """The memory of an arm, over a frozen store."""
    kinds = {"plain": Memory, "random": RandomMemory, "shuffled": ShuffledMemory, "ephemeral": EphemeralMemory, "bank": BankMemory}
    chosen = _selector(bench, one, store)
    changes = {} if one.need else bench.wide if one.sets else {"need": 0.0}
    memory = bench.memory(kinds[one.kind], store, chosen=chosen, conditions=one.conditions, rewrite=one.rewrite, **changes)
    if isinstance(memory, ShuffledMemory):
        memory.donors = donors(bench.split("heldout"))
    return memory


def _selector(bench: Bench, one: Arm, store: Store) -> Selector:
    name, settings = one.selector or bench.experiment.memory.ablation_selector, bench.experiment.memory
    if name == "utility":
        return Utility.fit([(receipt, result) for receipt, result in store.receipts() if result is not None])
    if one.sets:
        return Uplift(load(weights_path(bench, name), ["uplift"]), bench.embedder, store.vectors)
    if one.learned:
        return selector(name, weights=weights_path(bench, name))
    return Threshold(least=settings.similarity) if name == "threshold" else selector(name)


def weights_path(bench: Bench, name: str) -> Path:
    """Where the weights of a learned selector lie in the run's folder."""
    return bench.folder / f"selector-{name}.safetensors"


def played(bench: Bench, stage: str, tasks: Sequence[Task], agent: Agent, memory: Memory | None) -> Episodes:
    """The episodes of all `tasks` under the label `stage`: those of an earlier start of the run as they are, the others played
    now.
    """
    known = {e.task.id: e for e in bench.ledger.episodes(label=stage)}

    def play(task: Task) -> Episode:
        episode = replace(agent.play(task, bench.world, bench.model, memory), label=stage)
        with bench.ledger.transaction():
            bench.ledger.add_episode(episode)
            bench.ledger.add_usage(f"{stage}/{task.id}", stage=stage, task=task.id, usage=episode.usage)
        return episode

    todo = [t for t in tasks if t.id not in known]
    for episode in map(alive, bench.players.run(play, todo)):
        known[episode.task.id] = episode
        bench.progress(stage, len(known), len(tasks))
    return {t.id: known[t.id] for t in tasks}


def unsettled(bench: Bench, stage: str, episodes: Episodes) -> list[Episode]:
    """The episodes that the stage has not booked yet."""
    done = {row.key for row in bench.ledger.ledger()}
    return [episode for task, episode in episodes.items() if f"{stage}/{task}" not in done]


def settle(bench: Bench, stage: str, task: Task, usage: Usage) -> None:
    """Book what a stage spent on a task: it is through with it."""
    bench.ledger.add_usage(f"{stage}/{task.id}", stage=stage, task=task.id, usage=usage)


def alive(result: Result | WorkerDied) -> Result:
    """Threads do not die; a process pool given for players by mistake would."""
    if isinstance(result, WorkerDied):
        raise UsageError("a worker died while playing a task: players must be threads")
    return result
