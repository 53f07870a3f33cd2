"""Metrics of an arm against the arm without memory, each with its denominator (SPEC A5).

In: the held-out episodes of both arms, by task. Out: counts and rates. A use is paired when the other arm stood at the same
decision point with the same history, so that its action there is the skip branch from the same state; harm and change are
judged on paired uses, and the unpaired are counted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from mulligan.agents.evidence import names_target, steps
from mulligan.audit.repetition import is_frozen, repetition_rate
from mulligan.experiment.statistics import Interval, cluster_interval, mcnemar
from mulligan.nouns import noun
from mulligan.records import Attempt, Episode, Outcome, Receipt, Usage

HARM = Fraction(1, 20)

Episodes = Mapping[str, Episode]  # by task id


@noun
class Rate:
    """`part` of `whole`; the value is None when the denominator is 0."""

    part: int
    whole: int

    @property
    def value(self) -> float | None:
        return self.part / self.whole if self.whole else None

    def __str__(self) -> str:
        return f"{self.part}/{self.whole}"


@noun
class Notes:
    """What was written between attempts: `tasks` with at least one note; `evidence` are notes that are evidence alone, and `refused` counts
    drafts by reason. `rrr` is a mean over tasks, `frozen` of tasks with at least two notes.
    """

    tasks: int = 0
    notes: int = 0
    evidence: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    named: Rate = Rate(part=0, whole=0)
    stepped: Rate = Rate(part=0, whole=0)
    rrr: float = 0.0
    frozen: Rate = Rate(part=0, whole=0)
    set_aside: int = 0


@noun
class ArmMetrics:
    """What one arm did on the held-out tasks. Intervals are 95 % cluster bootstrap, in [0, 1] for shares and [-1, 1] for
    differences.
    """

    arm: str
    solved: Rate
    solved_interval: Interval
    score: float  # mean utility of the last actions, 0 to 100
    rescued: int
    broken: int
    p: float
    difference: float
    difference_interval: Interval
    coverage: Rate  # retrieval attempts with at least one eligible record / retrieval attempts
    used: Rate  # decision points at which a record was shown / retrieval attempts
    harmful: Rate  # harmful paired uses / paired uses
    changed: Rate  # paired uses that changed the action / paired uses
    unpaired: int
    failed_attempts: int
    usage: Usage
    visible: Rate = Rate(part=0, whole=0)  # last actions that pass all visible tests / tasks with hidden tests
    hidden: Fraction = Fraction(0)  # of those tasks, the mean share of hidden tests that the last action passes
    notes: Notes = Notes()
    rewrites: Mapping[str, int] = field(default_factory=dict)  # what became of a rewriting → decision points

    @property
    def net(self) -> int:
        return self.rescued - self.broken

    def per_solved(self, amount: float) -> float | None:
        """`amount`, a sum over all tasks, by solved task: numerator and denominator both move."""
        return amount / self.solved.part if self.solved.part else None


def arm_metrics(arm: str, episodes: Episodes, base: Episodes) -> ArmMetrics:
    """The metrics of `episodes` against `base`, the same tasks without memory."""
    tasks = sorted(episodes)
    groups = [episodes[t].task.group for t in tasks]
    solved = [episodes[t].solved for t in tasks]
    before = [base[t].solved for t in tasks]
    rescued = sum(now and not then for now, then in zip(solved, before, strict=True))
    broken = sum(then and not now for now, then in zip(solved, before, strict=True))
    gaps = [float(now) - float(then) for now, then in zip(solved, before, strict=True)]
    receipts = [r for t in tasks for r in episodes[t].receipts]
    uses = [use for t in tasks for use in _uses(episodes[t], base[t])]
    paired = [use for use in uses if use is not None]
    apart = [last.verdict for t in tasks if (last := episodes[t].last) and last.verdict.hidden is not None]
    return ArmMetrics(
        arm=arm,
        solved=Rate(part=sum(solved), whole=len(tasks)),
        solved_interval=cluster_interval([float(s) for s in solved], groups),
        score=100 * float(sum(episodes[t].utility for t in tasks)) / max(1, len(tasks)),
        rescued=rescued,
        broken=broken,
        p=mcnemar(rescued, broken),
        difference=sum(gaps) / max(1, len(gaps)),
        difference_interval=cluster_interval(gaps, groups),
        coverage=Rate(part=sum(bool(r.candidates) for r in receipts), whole=len(receipts)),
        used=Rate(part=sum(bool(r.shown) for r in receipts), whole=len(receipts)),
        harmful=Rate(part=sum(with_.verdict.utility < without.verdict.utility - HARM for with_, without in paired), whole=len(paired)),
        changed=Rate(part=sum(with_.action != without.action for with_, without in paired), whole=len(paired)),
        unpaired=len(uses) - len(paired),
        failed_attempts=sum(not a.verdict.solved for t in tasks for a in episodes[t].attempts),
        usage=timeless(sum((episodes[t].usage for t in tasks), Usage())),
        visible=Rate(part=sum(verdict.completed and verdict.utility == 1 for verdict in apart), whole=len(apart)),
        hidden=sum((verdict.hidden or Fraction(0) for verdict in apart), Fraction(0)) / max(1, len(apart)),
        notes=_notes([episodes[t] for t in tasks]),
        rewrites=dict(sorted(Counter(r.rewrite for r in receipts if r.rewrite).items())),
    )


def _notes(episodes: Sequence[Episode]) -> Notes:
    noting = [e for e in episodes if e.reflections]
    reviews = [review for e in episodes for review in e.reviews]
    named = [names_target(text, e.task) for e in noting for text in e.reflections]
    several = [e for e in noting if len(e.reflections) > 1]
    return Notes(
        tasks=len(noting),
        notes=len(named),
        evidence=sum(review.kept == "evidence" for review in reviews),
        refused=dict(sorted(Counter(why for review in reviews for why in review.refused).items())),
        named=Rate(part=named.count(True), whole=len(named) - named.count(None)),
        stepped=Rate(part=sum(bool(steps(text)) for e in noting for text in e.reflections), whole=len(named)),
        rrr=sum(repetition_rate(e.reflections) for e in noting) / max(1, len(noting)),
        frozen=Rate(part=sum(is_frozen(e.reflections) for e in several), whole=len(several)),
        set_aside=sum(review.kept == "set_aside" for review in reviews),
    )


def outcome(with_memory: Fraction, without: Fraction) -> Outcome:
    """What showing a record did: the paired utilities differ by more than 0.05, or it was neutral."""
    if with_memory > without + HARM:
        return "helped"
    return "hurt" if with_memory < without - HARM else "neutral"


def _uses(episode: Episode, base: Episode) -> Sequence[tuple[Attempt, Attempt] | None]:
    """For each attempt that had guidance: the pair of it and the other arm's attempt from the same history, or None."""
    shown = {r.id for r in episode.receipts if r.shown}
    found: list[tuple[Attempt, Attempt] | None] = []
    for place, attempt in enumerate(episode.attempts):
        if attempt.receipt not in shown:
            continue
        same = len(base.attempts) > place and all(
            a.action == b.action for a, b in zip(episode.attempts[:place], base.attempts[:place], strict=True)
        )
        found.append((attempt, base.attempts[place]) if same else None)
    return found


def timeless(usage: Usage) -> Usage:
    """`usage` without seconds, which differ between two runs of the same thing."""
    return replace(usage, seconds=0.0)


def first_use(episode: Episode) -> Receipt | None:
    """The receipt of the first guidance that was shown in `episode`, if any."""
    return next((r for r in episode.receipts if r.shown), None)
