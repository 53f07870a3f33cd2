"""Transfer: what lessons do on changed versions of the task that they were learnt on, where they hold and where not.

SPEC A6. In: the bench with its checked store, constructed and frozen. Out: for every kind of change the pairs of a source task and a
changed one, and every arm of the experiment on the changed tasks, against `none`. The world answers there as on held-out tasks. The
changed tasks of a kind are a file of the run's folder, complete or not there, so that a run that goes on asks the same ones. Not
promised: as many pairs as were asked for; what stood in the way is counted.

A changed task has the group of its source, and memory leaves out records of a task's own group. Here the record of the source is what is
to be met, so the changed task gets a group of its own: one for each source task, which is also what intervals draw, since tasks made from
one source are not independent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mulligan.conditions import holds
from mulligan.errors import InvalidData, UsageError
from mulligan.experiment.arms import arm
from mulligan.experiment.metrics import ArmMetrics, Episodes, Rate, arm_metrics
from mulligan.experiment.settings import Experiment, TransferKind
from mulligan.experiment.stages import Bench, evaluate
from mulligan.nouns import from_json, noun, to_json
from mulligan.protocols import World
from mulligan.records import Receipt, Record, Task
from mulligan.store import Store
from mulligan.tasks import variants
from mulligan.tasks.drafts import Kind, Reason, drawn
from mulligan.tasks.variants import Pairs

STAGE = "transfer"
GROUP = "changed from "  # and the id of the source task

Learnt = Sequence[tuple[Record, Task]]


@noun
class Pair:
    """A source task with a record, and what is asked in its place. `condition`: whether the record's predicate, if any, holds there."""

    record: str
    source: str
    task: str
    prompt: str
    rule: str
    change: str
    condition: bool | None


@noun
class TransferArm:
    """One arm on the changed tasks of a kind. `found`: decision points at which a record of the task's own source was among the candidates,
    of those at which memory was asked; `own`: at which one was shown.
    """

    metrics: ArmMetrics
    found: Rate
    own: Rate


@noun
class Transferred:
    """One kind of change: its pairs, why other records gave none, and the arms, `none` first; no arms where there are no pairs."""

    kind: TransferKind
    pairs: tuple[Pair, ...]
    left_out: Mapping[Reason, int]
    arms: tuple[TransferArm, ...]

    @property
    def sources(self) -> int:
        """How many source tasks the pairs are from."""
        return len({pair.source for pair in self.pairs})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The pairs of a kind with their tasks, in the same order."""

    pairs: list[Pair]
    tasks: list[Task]
    left_out: Mapping[Reason, int]


def is_wanted(experiment: Experiment) -> bool:
    """Whether the experiment works with changed tasks."""
    return bool(experiment.transfer.kinds) or experiment.transfer.probes


def check(experiment: Experiment, tasks: Sequence[Task]) -> None:
    """Raises UsageError for a transfer that could not be run, or for tasks that nobody can change."""
    wanted = experiment.transfer
    if wanted.most < 1 or wanted.each < 1:
        raise UsageError("transfer.most and transfer.each are at least 1: pairs of a kind, and of a record")
    if len(set(wanted.kinds)) < len(wanted.kinds):
        raise UsageError(f"transfer.kinds names one kind twice: {', '.join(wanted.kinds)}")
    if wanted.probes or set(wanted.kinds) - {"original"}:
        for domain in sorted({task.domain for task in tasks if task.split == "source"}):
            variants.builder(domain)


def transfer(bench: Bench) -> tuple[Transferred, ...]:
    """Ask the changed tasks of every kind in every arm."""
    kinds = bench.experiment.transfer.kinds
    if not kinds:
        return ()
    known, made = learnt(bench), {}
    for kind in kinds:
        made[kind] = _originals(bench, known) if kind == "original" else _changed(changed(bench, kind, known))
        bench.progress("changed tasks", len(made), len(kinds))
    owner = _owners(bench)
    return tuple(_asked(bench, kind, one, owner) for kind, one in made.items())


def learnt(bench: Bench) -> Learnt:
    """The active corrections of the checked store that solve their task, each with that task."""
    sources = {task.id: task for task in bench.split("source")}
    with Store(bench.memory_path("checked"), frozen=True) as store:
        records = [stored.record for stored in store.records(scope=None)]
    solving = [r for r in records if r.kind == "correction" and r.gain.solved and r.provenance.task in sources]
    return [(record, sources[record.provenance.task]) for record in solving]


def changed(bench: Bench, kind: Kind, known: Learnt) -> Pairs:
    """The changed tasks of a kind: those of an earlier start, or made now. Raises InvalidData where their file cannot be read."""
    path = bench.folder / f"{STAGE}-{kind}.json"
    if path.exists():
        try:
            return from_json(Pairs, path.read_text(encoding="utf-8"))
        except (InvalidData, UnicodeDecodeError) as error:
            raise InvalidData(f"{path} holds no changed tasks: delete it and start again ({error})") from None
    how = bench.experiment.transfer
    made = variants.pairs(known, bench.world, kind, bench.folder / STAGE, others=bench.tasks, most=how.most, each=how.each, seed=how.seed)
    _write(path, to_json(made))
    return made


def asked_again(task: Task) -> Task:
    """A source task as a held-out one that memory may know."""
    return aside(replace(task, id=f"{task.id}~original", split="heldout"), task.id)


def aside(task: Task, source: str) -> Task:
    """A changed task in a group of its own, so that the records of its source can be met."""
    return replace(task, group=GROUP + source)


def _originals(bench: Bench, known: Learnt) -> _Made:
    """Every source task once, as it is, with its first record."""
    how = bench.experiment.transfer
    once: dict[str, tuple[Record, Task]] = {}
    for record, task in known:
        once.setdefault(task.id, (record, task))
    chosen = sorted(once.values(), key=lambda pair: drawn(how.seed, pair[1].id))[: how.most]
    tasks = [asked_again(task) for _, task in chosen]
    pairs = [_pair(record, source, task, bench.world) for (record, source), task in zip(chosen, tasks, strict=True)]
    return _Made(pairs=pairs, tasks=tasks, left_out={})


def _pair(record: Record, source: Task, task: Task, world: World) -> Pair:
    condition = record.condition
    truth = holds(condition.predicate, world.facts(task)) if condition.kind == "predicate" else None
    return Pair(record=record.id, source=source.id, task=task.id, prompt=task.prompt, rule="", change="", condition=truth)


def _changed(made: Pairs) -> _Made:
    """A task that two records of one source give is asked once, as the pair of the first."""
    once: dict[str, variants.Variant] = {}
    for variant in made.variants:
        once.setdefault(variant.task.id, variant)
    pairs = [
        Pair(
            record=v.record,
            source=v.source,
            task=v.task.id,
            prompt=v.task.prompt,
            rule=v.rule,
            change=v.change,
            condition=v.asserted.condition,
        )
        for v in once.values()
    ]
    return _Made(pairs=pairs, tasks=[aside(v.task, v.source) for v in once.values()], left_out=made.left_out)


def _owners(bench: Bench) -> dict[str, str]:
    """The group of what is changed from the task that a record came from, by record, for every store that an arm reads."""
    found: dict[str, str] = {}
    for name in bench.experiment.arms:
        if variant := arm(name).store:
            with Store(bench.memory_path(variant), frozen=True) as store:
                found |= {s.record.id: GROUP + s.record.provenance.task for s in store.records(scope=None)}
    return found


def _asked(bench: Bench, kind: TransferKind, made: _Made, owner: Mapping[str, str]) -> Transferred:
    names = ["none", *(name for name in bench.experiment.arms if name != "none")] if made.pairs else []
    there = replace(bench, tasks=[*bench.split("source"), *made.tasks])
    played = {name: evaluate(there, name, f"{STAGE} {kind} {name}") for name in names}
    arms = tuple(_arm(name, episodes, played["none"], owner) for name, episodes in played.items())
    return Transferred(kind=kind, pairs=tuple(made.pairs), left_out=made.left_out, arms=arms)


def _arm(name: str, episodes: Episodes, none: Episodes, owner: Mapping[str, str]) -> TransferArm:
    points = [(episode.task.group, receipt) for episode in episodes.values() for receipt in episode.receipts]

    def share(met: Callable[[Receipt], Sequence[str]]) -> Rate:
        """The decision points at which a record of the group's own source was met."""
        return Rate(part=sum(group in {owner.get(key) for key in met(receipt)} for group, receipt in points), whole=len(points))

    return TransferArm(
        metrics=arm_metrics(name, episodes, none),
        found=share(lambda receipt: receipt.candidates),
        own=share(lambda receipt: receipt.shown),
    )


def _write(path: Path, text: str) -> None:
    """The whole file or none."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(text.encode("utf-8", "backslashreplace"))
    part.replace(path)
