"""Select: show one of the candidates, or none.

Selectors are behind one seam and can all skip. `threshold` and `utility` decide from numbers that are measured on source tasks:
how similar a record is, and how its uses (and uses of equally similar records) turned out against the same task without memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from mulligan.errors import UnknownName, UsageError
from mulligan.protocols import Selector
from mulligan.read.weights import load
from mulligan.records import Candidate, Outcome, Receipt, Selection, Situation

VALUES: Mapping[Outcome, float] = {"helped": 1.0, "neutral": 0.0, "hurt": -1.0}


@dataclass(frozen=True, slots=True)
class Never:
    """Shows nothing: memory is retrieved and paid for, but not used."""

    name: str = "never"

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        return Selection(chosen=None, policy=self.name)


@dataclass(frozen=True, slots=True)
class Top1:
    """Shows the best-ranked candidate, whenever there is one; practice rounds show the one at another `place`."""

    place: int = 0
    name: str = "top1"

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        values = tuple(c.score for c in candidates)
        return Selection(chosen=self.place if self.place < len(candidates) else None, values=values, policy=self.name)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Shows the candidate with the highest calibrated similarity, if that is at least `least`."""

    least: float = 0.5
    name: str = "threshold"

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        values = tuple(c.similarity for c in candidates)
        return Selection(chosen=_best(values, self.least), values=values, skip=self.least, policy=self.name)


@dataclass(frozen=True, slots=True)
class Utility:
    """Shows the best-ranked candidate whose expected uplift is above `margin`: statistics veto, they do not rank.

    (Ranking by the expectation was tried: two or three uses are too few, and it preferred worse matches; LOG.md.)

    The expectation joins what happened to the record itself with what happened at similar distance: value = (prior_weight *
    prior(similarity) + helped - hurt) / (prior_weight + uses), where prior is the kernel-weighted mean outcome of all settled
    uses, pulled towards `start` by `start_weight` uses. `uses` are (similarity, outcome value) pairs.
    """

    uses: tuple[tuple[float, float], ...] = ()
    bandwidth: float = 0.1
    prior_weight: float = 2.0
    start: float = 0.0
    start_weight: float = 1.0
    margin: float = 0.0
    name: str = "utility"

    @classmethod
    def fit(cls, settled: Sequence[tuple[Receipt, Outcome]], **settings: Any) -> "Utility":
        """Learn from settled receipts that showed a record."""
        uses = []
        for receipt, outcome in settled:
            if receipt.shown and len(receipt.similarities) == len(receipt.candidates):
                place = receipt.candidates.index(receipt.shown[0])
                uses.append((receipt.similarities[place], VALUES[outcome]))
        return cls(uses=tuple(uses), **settings)

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        values = tuple(self.value(c) for c in candidates)
        scores = [c.score if value > self.margin else -1.0 for c, value in zip(candidates, values, strict=True)]
        return Selection(chosen=_best(scores, 0.0), values=values, skip=self.margin, policy=self.name)

    def value(self, candidate: Candidate) -> float:
        """Expected uplift of showing `candidate`, in [-1, 1]."""
        s = candidate.statistics
        own, uses = s.helped - s.hurt, s.helped + s.hurt + s.neutral
        return (self.prior_weight * self._prior(candidate.similarity) + own) / (self.prior_weight + uses)

    def _prior(self, similarity: float) -> float:
        total, weight = self.start * self.start_weight, self.start_weight
        for at, value in self.uses:
            near = max(0.0, 1.0 - abs(at - similarity) / (2 * self.bandwidth))
            total, weight = total + near * value, weight + near
        return total / weight


def _best(values: Sequence[float], least: float) -> int | None:
    """The place of the largest value, the first of equals, if it is at least `least`."""
    place = max(range(len(values)), key=lambda i: (values[i], -i), default=None)
    return place if place is not None and values[place] >= least else None


SELECTORS: Mapping[str, str] = {
    "never": "mulligan.read.selection:Never",
    "top1": "mulligan.read.selection:Top1",
    "threshold": "mulligan.read.selection:Threshold",
    "utility": "mulligan.read.selection:Utility",
}
LEARNED: Mapping[str, str] = {  # these want weights
    "dqn": "mulligan.read.learned:Dqn",
    "logistic": "mulligan.read.learned:Linear",
    "thompson": "mulligan.read.learned:Thompson",
    "paired": "mulligan.read.learned:Linear",
    "contextual": "mulligan.read.learned:Linear",
}


SETS: Mapping[str, Literal["evsi", "random"]] = {
    "uplift": "evsi",
    "uplift_random": "random",
}  # selectors of sets, and how their probes were chosen


def selector(name: str, weights: Path | None = None, **settings: Any) -> Selector:
    """The selector of that name, or of a dotted path `package.module:Class`, which is given `weights` as they are.

    Raises UnknownName listing the known ones, UsageError for a learned one without weights, InvalidData for weights that do not fit.
    """
    path = {**SELECTORS, **LEARNED}.get(name, name if ":" in name else "")
    if not path:
        known = ", ".join([*SELECTORS, *LEARNED])
        raise UnknownName(f"no selector {name!r}: choose one of {known}, or give a path package.module:Class")
    if name in LEARNED:
        if weights is None:
            raise UsageError(f"the selector {name!r} is learned: give its weights; `mulligan train selector` makes them")
        settings["weights"] = load(weights, [name])
    elif weights is not None:
        settings["weights"] = weights
    module, _, cls = path.partition(":")
    try:
        found: Selector = getattr(import_module(module), cls)(**settings)
    except (ImportError, AttributeError) as error:
        raise UnknownName(f"no selector at {path!r}: {error}") from error
    return found
