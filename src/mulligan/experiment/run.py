"""Run an experiment in a folder: all stages in order, resumable, and one result at the end.

The folder holds `experiment.json` (what is run, so that another experiment is not mixed in), `run.db` (episodes, costs and
cached replies), one store a variant of the memory, and the reports.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mulligan import __version__
from mulligan.errors import InvalidData, StoreError, UsageError
from mulligan.experiment import counterfactuals, learning, note_stages, results, stages, studies, transfer
from mulligan.experiment.arms import arm
from mulligan.experiment.metrics import timeless
from mulligan.experiment.settings import Experiment
from mulligan.nouns import content_id, from_json, noun, to_json
from mulligan.pool import Pool
from mulligan.protocols import Embedder, Model, World
from mulligan.read.weights import load
from mulligan.recordings import CachedModel
from mulligan.records import Task
from mulligan.store import Store
from mulligan.write.checks import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an experiment names and the composition root has built."""

    tasks: Sequence[Task]
    world: World
    model: Model
    embedder: Embedder
    policy: Policy | None = None  # who goes on after what is tried; None is the agent


def run(experiment: Experiment, parts: Parts, folder: Path, progress: stages.Progress) -> results.Results:
    """Run `experiment` in `folder`, or go on where an earlier start stopped.

    Raises UsageError when the folder holds another experiment, StoreError when a held-out stage changed a frozen store.
    """
    _check(experiment, parts)
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder, experiment, parts)
    started = time.monotonic()
    with ExitStack() as stack:
        ledger = stack.enter_context(Store(folder / "run.db"))
        bench = stages.Bench(
            experiment=experiment,
            tasks=parts.tasks,
            world=parts.world,
            model=CachedModel(parts.model, ledger),
            embedder=parts.embedder,
            ledger=ledger,
            folder=folder,
            players=stack.enter_context(Pool(experiment.parallel, "thread")),
            checkers=stack.enter_context(Pool(experiment.workers)),
            progress=progress,
            policy=parts.policy,
        )
        return _run(bench, started)


def _run(bench: stages.Bench, started: float) -> results.Results:
    explores = bench.experiment.memory.explore > 0
    source, train = stages.play_source(bench), {} if explores else stages.play_train(bench)
    arms = ["none", *(name for name in bench.experiment.arms if name != "none")]
    every: tuple[stages.Variant, ...] = ("checked", "unverified", "validated", "unvalidated", "bank")
    read = {_store_of(name) for name in arms}
    studied_too = bench.experiment.study.kind != "none" or transfer.is_wanted(bench.experiment)
    variants = [v for v in every if v in read or (v == "checked" and studied_too)]
    for variant in variants:
        _construct(bench, variant, source, source | train if variant in read else {})
    weights = learning.learn(bench, learning.explore(bench), source) if "checked" in variants else {}
    frozen = {v: bench.memory_path(v) for v in variants}
    before = {v: stages.contents(path) for v, path in frozen.items()}
    files = [*frozen.values(), *weights.values()]
    prints = [stages.fingerprint(path) for path in files]
    played = {name: stages.evaluate(bench, name) for name in arms}
    transferred, probed = transfer.transfer(bench), counterfactuals.counterfactuals(bench)
    if prints != [stages.fingerprint(path) for path in files]:
        raise StoreError("the held-out stage changed a frozen store or weights: the run is not valid; start again in another folder")
    after = {v: stages.contents(path) for v, path in frozen.items()}
    built: list[results.Construction] = []
    shown: tuple[results.Lesson, ...] = ()
    for variant in variants:
        with Store(bench.memory_path(variant), frozen=True) as store:
            built.append(results.construction(variant, store, source, (before[variant], after[variant])))
            if variant == "checked":
                shown = results.lessons(store)
    studied = studies.study(bench, source, played["none"])
    return results.Results(
        experiment=bench.experiment,
        model=bench.model.id,
        world=f"{bench.world.name}/{bench.world.version}",
        version=__version__,
        source_tasks=len(source),
        heldout_tasks=len(bench.split("heldout")),
        heldout_groups=len({t.group for t in bench.split("heldout")}),
        source_solved=sum(e.solved for e in source.values()),
        construction=tuple(built),
        arms=results.metrics(played),
        study=studied,
        learned={name: load(path, sorted({name, "uplift"})).about for name, path in weights.items()},
        transfer=transferred,
        probes=probed,
        costs=results.costs(bench.ledger),
        paid=timeless(bench.ledger.cache_usage()),
        lessons=shown,
        timing={"seconds_of_this_start": round(time.monotonic() - started, 1)},
    )


def _construct(bench: stages.Bench, variant: stages.Variant, source: stages.Episodes, practice: stages.Episodes) -> None:
    """Build one store; what an arm reads is practised on as well: there `practice` are the plays to compare with."""
    if variant in note_stages.NOTES:
        note_stages.construct_notes(bench, variant, source)
        if variant == "bank":
            note_stages.practise_bank(bench, source)
        return
    stages.construct(bench, variant, source)
    if practice and (variant == "checked" or bench.experiment.memory.ablation_selector == "utility"):  # who else reads it?
        stages.practise(bench, variant, practice)


def _store_of(name: str) -> str:
    one = arm(name)
    return "checked" if one.kind == "ephemeral" else one.store


def _check(experiment: Experiment, parts: Parts) -> None:
    remembering = [name for name in experiment.arms if arm(name).remembers]
    if experiment.study.kind != "none":
        remembering.append(f"the study of {experiment.study.kind}")
    if transfer.is_wanted(experiment):
        remembering.append("transfer")
    if experiment.tasks.told and remembering:
        raise UsageError(f"with tasks.told held-out tasks tell their failures, so no arm may keep them: leave out {', '.join(remembering)}")
    learned = [name for name in experiment.arms if arm(name).learned]
    if learned and not (experiment.memory.explore and any(t.split == "train" for t in parts.tasks)):
        raise UsageError(f"{', '.join(learned)} are learned: set tasks.train, and memory.explore to the rounds on those tasks, say 4")
    studies.check(experiment)
    counterfactuals.check(experiment)
    transfer.check(experiment, parts.tasks)
    sizes = {split: sum(t.split == split for t in parts.tasks) for split in ("source", "heldout")}
    empty = [split for split, size in sizes.items() if not size]
    if empty:
        raise UsageError(f"experiment {experiment.name} has no {' and no '.join(empty)} tasks: check its [tasks] table")


@noun
class Claim:
    """What runs in a folder. Settings that a later version added read as their defaults, so that a run begun before goes on."""

    experiment: Experiment
    model: str
    world: str
    embedder: str
    tasks: str


def _claim(folder: Path, experiment: Experiment, parts: Parts) -> None:
    """Write down what runs here; refuse a folder in which something else ran."""
    claim = Claim(
        experiment=experiment,
        model=parts.model.id,
        world=f"{parts.world.name}/{parts.world.version}",
        embedder=parts.embedder.id,
        tasks=content_id("tasks", sorted(t.id for t in parts.tasks)),
    )
    path = folder / "experiment.json"
    if not path.exists():
        path.write_text(to_json(claim) + "\n", encoding="utf-8")
        return
    try:
        same = from_json(Claim, path.read_bytes(), what=str(path)) == claim
    except InvalidData:  # of a version that knew settings which are gone
        same = False
    if not same:
        raise UsageError(f"{folder} holds a run of other settings, tasks or model: give another folder with --out, or delete it")
