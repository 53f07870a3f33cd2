"""Studies: the checked store under rules of retention at equal capacity, or as it grows in several orders.

SPEC A3.7, A6. In: the bench, the source plays, the held-out plays of `none`. Out: a `Study`, one `Checkpoint` for each store at each
size. What was checked is checked once: every store admits the evidence of the checked one, in its own order. Between two checkpoints the
next tasks are played with the store as it is and settled against their plays without, so that retention knows uses; then they are learnt
from. Each checkpoint is a file of its own, complete or not there, and frozen from then on.

Not promised: that orderings differ in more than what was evicted and used; without evictions all end with the same records.
"""

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from mulligan.errors import StoreError, UsageError
from mulligan.experiment.arms import Arm
from mulligan.experiment.metrics import ArmMetrics, arm_metrics, first_use, outcome
from mulligan.experiment.settings import Experiment
from mulligan.experiment.stages import Bench, Episodes, contents, fingerprint, played, reader
from mulligan.experiment.statistics import Interval, cluster_interval
from mulligan.memory import Examined, Memory
from mulligan.meter import estimate_tokens
from mulligan.nouns import noun
from mulligan.records import Decision, Episode, Usage
from mulligan.store import Store
from mulligan.write.retention import strategy

STAGE = "study"
SELECTING = Arm(store="checked")  # what is read at checkpoints: the checked store by the experiment's ablation selector

Evidence = Mapping[str, Sequence[Examined]]  # by task id


@noun
class Line:
    """How one store grows: in which order of the source tasks (0 is as they come), under which rule, to how many records."""

    ordering: int
    rule: str
    capacity: int

    @property
    def key(self) -> str:
        """As it stands in file names and labels."""
        return f"{self.rule}-{self.capacity}-{self.ordering}"


@noun
class Pair:
    """Held-out plays against those of the first rule at the same capacity: solved by this one alone, by that one alone, McNemar's p."""

    rule: str
    gained: int
    lost: int
    p: float


@noun
class Checkpoint:
    """A store after `processed` source tasks. `guidance` is tokens of lessons in the context and `tokens` all tokens, per held-out task.

    `loss` is what `earlier` tasks of former checkpoints lost since: the mean utility, 0 to 100, when asked with the store right after they
    were learnt from, less that with this one. None where there are none.
    """

    line: Line
    processed: int
    records: int
    evicted: int
    heldout: ArmMetrics  # against none
    guidance: float
    tokens: float
    earlier: int
    loss: float | None
    loss_interval: Interval
    frozen: str  # hash of records, status and statistics, the same before and after
    against: Pair | None = None


@noun
class Study:
    """All checkpoints, line by line, each in order of size."""

    kind: str
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reached:
    """A checkpoint with the plays behind it."""

    checkpoint: Checkpoint
    heldout: Episodes


def check(experiment: Experiment) -> None:
    """Raises UsageError for a study that could not be run."""
    study = experiment.study
    for rule in study.rules:
        strategy(rule)
    if study.kind == "retention" and not (study.rules and study.capacities and min(study.capacities) > 0):
        raise UsageError(
            "study.kind retention wants study.capacities, such as [10, 20], and study.rules: how many records a store may hold"
        )
    if study.kind != "none" and (study.checkpoints < 1 or study.orderings < 1):
        raise UsageError("study.checkpoints and study.orderings are at least 1")


def lines(experiment: Experiment) -> list[Line]:
    """The stores of a study: every rule at every capacity, or every ordering."""
    study, memory = experiment.study, experiment.memory
    if study.kind == "retention":
        return [Line(ordering=0, rule=rule, capacity=capacity) for capacity in study.capacities for rule in study.rules]
    if study.kind == "accumulation":
        return [Line(ordering=n, rule=memory.retention, capacity=memory.capacity) for n in range(1, study.orderings + 1)]
    return []


def study(bench: Bench, source: Episodes, none: Episodes) -> Study | None:
    """Run the study that the experiment asks for, on the checked store's evidence; None where it asks for none.

    Raises StoreError when a held-out stage changed a frozen store.
    """
    grown = lines(bench.experiment)
    if not grown:
        return None
    known = _evidence(bench)
    reached = [one for line in grown for one in _grown(bench, line, list(source.values()), known, none)]
    return Study(kind=bench.experiment.study.kind, checkpoints=tuple(_compared(reached)))


def ordered(episodes: Sequence[Episode], ordering: int) -> list[Episode]:
    """The episodes in that order, always the same: 0 is as they come."""
    return list(episodes) if not ordering else random.Random(ordering).sample(list(episodes), len(episodes))


def _evidence(bench: Bench) -> Evidence:
    """What came of every failure of the source plays, as construction stored it."""
    found: dict[str, list[Examined]] = {}
    with Store(bench.memory_path("checked"), frozen=True) as store:
        for episode in store.episodes(split="source"):
            decisions: dict[int, list[Decision]] = {}
            for row in store.decisions(episode.id):
                decisions.setdefault(row.attempt_index, []).append(row.decision)
            for attempt in (a for a in episode.attempts if store.examined(episode.id, a.index)):
                mine = tuple(decisions.get(attempt.index, ()))
                record = next((store.record(d.record).record for d in mine if d.admitted), None)
                found.setdefault(episode.task.id, []).append(Examined(attempt=attempt, decisions=mine, record=record, usage=Usage()))
    return found


def _grown(bench: Bench, line: Line, episodes: Sequence[Episode], known: Evidence, none: Episodes) -> Iterator[_Reached]:
    """Grow the store of `line` checkpoint by checkpoint, and evaluate it at each."""
    memory = replace(bench.experiment.memory, capacity=line.capacity, retention=line.rule)
    bench = replace(bench, experiment=replace(bench.experiment, memory=memory))
    order, parts = ordered(episodes, line.ordering), bench.experiment.study.checkpoints
    after: dict[str, Fraction] = {}  # utility of each task when asked right after it was learnt from
    start, before = 0, None
    for end in sorted({len(order) * n // parts for n in range(1, parts + 1)} - {0}):
        path = bench.folder / f"study-{line.key}-{end}.db"
        if not path.exists():
            _extend(bench, f"{STAGE} {line.key} to {end}", order[start:end], known, before, path)
        yield _evaluated(bench, line, path, order[:end], after, none)
        start, before = end, path


def _extend(bench: Bench, label: str, episodes: Sequence[Episode], known: Evidence, before: Path | None, path: Path) -> None:
    """Make the store at `path` from the one `before`: use it on the next tasks, then learn from them."""
    part = path.with_name(f".{path.name}.part")
    for leftover in ("", "-wal", "-shm"):
        part.with_name(f"{part.name}{leftover}").unlink(missing_ok=True)
    uses: Episodes = {}
    if before is not None:
        shutil.copyfile(before, part)
        with Store(before, frozen=True) as store:
            uses = played(bench, label, [e.task for e in episodes], bench.agent(), reader(bench, SELECTING, store))
    with Store(part) as store:
        memory = bench.memory(Memory, store)
        for episode in episodes:
            use = uses.get(episode.task.id)
            if use is not None and (receipt := first_use(use)):
                memory.settle(receipt, outcome(use.utility, episode.utility))
            for examined in known.get(episode.task.id, ()):
                memory.admit(episode, examined)
            memory.note(episode)
    part.replace(path)


def _evaluated(bench: Bench, line: Line, path: Path, learnt: Sequence[Episode], after: dict[str, Fraction], none: Episodes) -> _Reached:
    """Play the held-out tasks, and those learnt from once more, with the frozen store at `path`."""
    label, frozen = f"{STAGE} {line.key} at {len(learnt)}", (fingerprint(path), contents(path))
    with Store(path, frozen=True) as store:
        memory = reader(bench, SELECTING, store)
        heldout = played(bench, f"{label} heldout", bench.split("heldout"), bench.agent(), memory)
        again = played(bench, f"{label} again", [e.task for e in learnt], bench.agent(), memory)
        guidance = _guidance(memory, list(heldout.values()))
        records, evicted = (len(store.records(scope=None, status=status)) for status in ("active", "retired"))
    if (fingerprint(path), contents(path)) != frozen:
        raise StoreError(f"the evaluation changed the frozen store {path}: the run is not valid; start again in another folder")
    earlier = {task: 100 * float(after[task] - again[task].utility) for task in after}
    after |= {task: episode.utility for task, episode in again.items() if task not in after}
    metrics = arm_metrics(line.key, heldout, none)
    checkpoint = Checkpoint(
        line=line,
        processed=len(learnt),
        records=records,
        evicted=evicted,
        heldout=metrics,
        guidance=guidance / max(1, len(heldout)),
        tokens=metrics.usage.tokens / max(1, len(heldout)),
        earlier=len(earlier),
        loss=sum(earlier.values()) / len(earlier) if earlier else None,
        loss_interval=cluster_interval(list(earlier.values()), [again[task].task.group for task in earlier]),
        frozen=frozen[1],
    )
    return _Reached(checkpoint=checkpoint, heldout=heldout)


def _guidance(memory: Memory, episodes: Sequence[Episode]) -> int:
    """Tokens of all lessons that were in the context."""
    total = 0
    for receipt in (receipt for episode in episodes for receipt in episode.receipts if receipt.shown):
        records = [stored.record for stored in memory.store.several(receipt.shown)]
        total += estimate_tokens(memory.quoted(records)[0])
    return total


def _compared(reached: Sequence[_Reached]) -> Iterator[Checkpoint]:
    """Every checkpoint, with its pairs against the first rule of the same capacity, order and size."""
    first: dict[tuple[int, int, int], _Reached] = {}
    for one in reached:
        line = one.checkpoint.line
        other = first.setdefault((line.capacity, line.ordering, one.checkpoint.processed), one)
        if other is one:
            yield one.checkpoint
        else:
            pairs = arm_metrics(line.key, one.heldout, other.heldout)
            pair = Pair(rule=other.checkpoint.line.rule, gained=pairs.rescued, lost=pairs.broken, p=pairs.p)
            yield replace(one.checkpoint, against=pair)
