"""What a run found: one frozen result, collected from the rows of its ledger and stores, from which every report is made.

Nothing here is computed while the run goes on, so a report can be made again, and a run that was killed and restarted gives the
same one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from mulligan.experiment import counterfactuals, studies, transfer
from mulligan.experiment.arms import arm
from mulligan.experiment.counterfactuals import Probing
from mulligan.experiment.metrics import ArmMetrics, Episodes, arm_metrics, timeless
from mulligan.experiment.settings import Experiment
from mulligan.experiment.studies import Study
from mulligan.experiment.transfer import Transferred
from mulligan.nouns import noun
from mulligan.read.selection import SETS
from mulligan.records import Decision, Record, Statistics, Usage
from mulligan.store import Store

WHOLE = (studies.STAGE, transfer.STAGE, counterfactuals.STAGE)  # stages that are one line of the bill


@noun
class ProposerResult:
    """What one proposer (the model, the agent's retry, an operator) earned: proposals made, checked, with a gain, admitted."""

    proposer: str
    proposed: int
    checked: int
    gained: int
    admitted: int


@noun
class Construction:
    """How one store came about. `corrected` counts failed source tasks for which a record solves the task."""

    variant: str
    source_tasks: int
    failed_tasks: int
    failures: int  # failed actions that were examined
    corrected: int
    records: int
    retired: int
    conditions: Mapping[str, int]  # kind → records
    reasons: Mapping[str, int]  # reason → decisions
    proposers: tuple[ProposerResult, ...]
    frozen_before: str
    frozen_after: str


@noun
class Lesson:
    """A record as the report shows it: with its statistics and the evidence of its failed action."""

    id: str
    status: str
    record: Record
    statistics: Statistics
    decisions: tuple[Decision, ...]


@noun
class Cost:
    """One line of the ledger: what a stage cost as if it had run alone (`usage`)."""

    stage: str
    tasks: int
    usage: Usage


@noun
class Results:
    """A whole run. Everything but `timing` is the same for the same experiment, model and code."""

    experiment: Experiment
    model: str
    world: str
    version: str
    source_tasks: int
    heldout_tasks: int
    heldout_groups: int
    source_solved: int
    construction: tuple[Construction, ...]
    arms: tuple[ArmMetrics, ...]
    costs: tuple[Cost, ...]
    paid: Usage  # tokens of the distinct requests that were sent: equal requests of several arms are paid once
    lessons: tuple[Lesson, ...]
    study: Study | None = None
    learned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what training says of itself, by selector
    transfer: tuple[Transferred, ...] = ()
    probes: tuple[Probing, ...] = ()
    timing: Mapping[str, float] = field(default_factory=dict)

    def arm(self, name: str) -> ArmMetrics:
        return next(a for a in self.arms if a.arm == name)

    def construction_cost(self, name: str) -> Usage:
        """What the store (and the statistics) of an arm cost before its first held-out task."""
        one = arm(name)
        stages = [c for c in self.costs if one.store and (c.stage in ("source", "train") or f" {one.store}" in c.stage)]
        stages += [c for c in self.costs if one.learned and c.stage.startswith("explore")]
        stages += [c for c in self.costs if one.sets and c.stage == f"probe {SETS[one.selector]}"]
        return sum((c.usage for c in stages), Usage())


def construction(variant: str, store: Store, source: Episodes, hashes: tuple[str, str]) -> Construction:
    """Count what happened when `store` was built from the `source` episodes."""
    decisions = [row.decision for row in store.decisions()]
    stored = [s for status in ("active", "stale", "retired") for s in store.records(status=status)]
    solving = {s.record.provenance.task for s in stored if s.record.gain.solved}
    failed = [e for e in source.values() if not e.solved]
    return Construction(
        variant=variant,
        source_tasks=len(source),
        failed_tasks=len(failed),
        failures=len({(row.episode_id, row.attempt_index) for row in store.decisions()}),
        corrected=sum(e.task.id in solving for e in failed),
        records=sum(s.status == "active" for s in stored),
        retired=sum(s.status == "retired" for s in stored),
        conditions=dict(sorted(Counter(s.record.condition.kind for s in stored).items())),
        reasons=dict(sorted(Counter(d.reason for d in decisions).items())),
        proposers=tuple(_proposers(decisions)),
        frozen_before=hashes[0],
        frozen_after=hashes[1],
    )


def lessons(store: Store) -> tuple[Lesson, ...]:
    """The records of `store` with the decisions on the failed action that each came from."""
    by_record: dict[str, tuple[str, int]] = {}
    by_failure: dict[tuple[str, int], list[Decision]] = {}
    for row in store.decisions():
        place = (row.episode_id, row.attempt_index)
        by_failure.setdefault(place, []).append(row.decision)
        if row.decision.record:
            by_record[row.decision.record] = place
    return tuple(
        Lesson(
            id=s.record.id,
            status=s.status,
            record=s.record,
            statistics=s.statistics,
            decisions=tuple(_timeless(d) for d in by_failure.get(by_record.get(s.record.id, ("", 0)), []) if d.check is not None),
        )
        for s in store.records(status="active")
    )


def costs(store: Store) -> tuple[Cost, ...]:
    """The ledger summed by stage, in the order of their first rows; what has many is one: a study, transfer, probes."""
    stages: dict[str, list[Usage]] = {}
    for row in store.ledger():
        first = row.stage.partition(" ")[0]
        stages.setdefault(first if first in WHOLE else row.stage, []).append(row.usage)
    return tuple(Cost(stage=s, tasks=len(u), usage=timeless(sum(u, Usage()))) for s, u in stages.items() if not s.startswith("settle"))


def metrics(played: Mapping[str, Episodes]) -> tuple[ArmMetrics, ...]:
    """Every arm against `none`."""
    return tuple(arm_metrics(name, episodes, played["none"]) for name, episodes in played.items())


def _proposers(decisions: Sequence[Decision]) -> list[ProposerResult]:
    by_proposer: dict[str, list[Decision]] = {}
    for d in decisions:
        by_proposer.setdefault(d.proposal.proposer, []).append(d)
    return [
        ProposerResult(
            proposer=name,
            proposed=len(mine),
            checked=sum(d.check is not None for d in mine),
            gained=sum(d.reason in ("admitted", "beaten") for d in mine),
            admitted=sum(d.admitted for d in mine),
        )
        for name, mine in sorted(by_proposer.items())
    ]


def _timeless(decision: Decision) -> Decision:
    """`decision` without the seconds of its checks, which differ between two runs of the same thing."""
    check = decision.check
    if check is None:
        return decision
    original, changed = (replace(verdict, seconds=0.0) for verdict in (check.original, check.changed))
    return replace(decision, check=replace(check, original=original, changed=changed))
