"""Off-policy evaluation: what another selector would have earned, from the log of the one that ran.

In: decision points with what was done, the probability of that, and the utility of the attempt that followed. Out: the mean utility that
the selector would have had at these points by three estimators, with 95 % intervals, and warnings where the log cannot tell.

- ips: mean of w r, where w = 1 / propensity where the selector would do what was done, else 0 (Horvitz and Thompson 1952).
- snips: sum of w r over sum of w (Swaminathan and Joachims 2015).
- doubly robust: mean of m(target) + w (r - m(done)), m a ridge regression, cross-fitted over groups (Dudik, Langford and Li 2011).

Where the log could not have done what the selector would do, its utility may be anything in [0, 1], and the intervals say so. Not promised:
what a choice does to later attempts of the same task, and a fair figure for a selector that was fitted to the same log.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import UsageError
from mulligan.experiment.statistics import cluster_draws
from mulligan.nouns import noun
from mulligan.points import Action, Point, action_of, fold_of
from mulligan.protocols import Selector
from mulligan.records import Candidate

CLIP = 20.0  # the largest weight: that of an attempt whose lesson one recall in twenty withheld
LEAST = 10  # effective points below which no estimate is given
FEW = 30  # effective points, or groups, below which a warning is given
TINY = 1e-12  # a propensity no larger is none
UNLIKELY = 0.001  # chance of a log under which it is taken for impossible
UNKNOWN = 0.1  # share of points of which the log says nothing, above which only an interval is given
FOLDS, RIDGE = 5, 1.0
NAMES = ("ips", "snips", "doubly_robust", "difference")

Floats = NDArray[np.float64]


@noun
class Estimate:
    """A mean utility, or a difference of two, with its 95 % interval. None is what cannot be told."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@noun
class Evaluation:
    """What a selector would have earned at `points` decision points with a choice; `logged` is what was earned there.

    `value`s are of the points where the log can tell; intervals are of all points. `unknown` counts points at which the log could not have
    done what the selector would do, `agree` those at which it did. `effective` is (sum w)^2 / sum w^2.
    """

    selector: str
    points: int
    agree: int
    unknown: int
    effective: float
    clipped: int
    logged: Estimate
    ips: Estimate
    snips: Estimate
    doubly_robust: Estimate
    difference: Estimate  # doubly robust less logged, in pairs
    left_out: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """The usable points as arrays, each of shape (n,)."""

    points: Sequence[Point]
    wanted: Sequence[Action]
    r: Floats
    p: Floats
    w: Floats  # not clipped
    can_tell: NDArray[np.bool_]
    groups: Sequence[str]


def evaluate(points: Sequence[Point], selector: Selector, *, clip: float = CLIP, draws: int = 2_000) -> Evaluation:
    """What `selector` would have earned at `points`. It is asked once at each; no weight is larger than `clip`.

    Raises UsageError for a selector that chooses what is not there.
    """
    reasons = [_unusable(point) for point in points]
    log = _log([point for point, why in zip(points, reasons, strict=True) if not why], selector)
    w = np.minimum(log.w, clip)
    effective = float(w.sum() ** 2 / (w @ w)) if w.any() else 0.0
    found = _estimates(log, w, draws) if effective >= LEAST else dict.fromkeys(NAMES, Estimate())
    return Evaluation(
        selector=selector.name,
        points=len(w),
        agree=int((log.w > 0).sum()),
        unknown=int((~log.can_tell).sum()),
        effective=round(effective, 1),
        clipped=int((log.w > clip).sum()),
        logged=_logged(log, draws) if len(w) else Estimate(),
        **{name: found[name] for name in NAMES},
        left_out=dict(Counter(filter(None, reasons))),
        warnings=tuple(_warnings(log, w, clip, effective)),
    )


def _unusable(point: Point) -> str:
    """Why a point says nothing of selectors, or ""."""
    if not point.candidates:
        return "there was nothing to choose from"
    if not TINY < point.receipt.selection.propensity <= 1:
        return "the logged propensity is no probability"
    if point.chosen and not point.receipt.shown and not point.receipt.withheld:
        return "what was chosen could not be shown"
    return ""


def _log(points: Sequence[Point], selector: Selector) -> _Log:
    drawn = _drawn(points)
    wanted = [_wanted(point, selector) for point in points]
    p = np.array([point.receipt.selection.propensity for point in points], float)
    hit, can_tell = [], []
    for point, want in zip(points, wanted, strict=True):
        by_draw, chance = point.receipt.selection.policy in drawn, point.receipt.selection.propensity
        # a selector that draws can come to show nothing in several ways; only its own way counts, or skipping would count twice
        hit.append(want == point.done and not (by_draw and point.receipt.withheld))
        can_tell.append(want == point.done or (chance < 1 and (by_draw or want in (point.chosen, ()))))
    return _Log(
        points=points,
        wanted=wanted,
        r=np.array([point.utility for point in points], float),
        p=p,
        w=np.where(hit, 1 / p, 0.0) if points else np.empty(0),
        can_tell=np.array(can_tell, bool),
        groups=[f"{point.situation.task.scope}/{point.situation.task.group}" for point in points],
    )


def _wanted(point: Point, selector: Selector) -> Action:
    found = action_of(selector.select(point.situation, point.candidates))
    if not all(0 <= place < len(point.candidates) for place in found):
        raise UsageError(f"the selector {selector.name!r} chose place {found} of {len(point.candidates)} candidates, which count from 0")
    return found


def _drawn(points: Sequence[Point]) -> set[str]:
    """The policies that draw their choice. Others leave chance to the coin that withholds, so their propensities come in pairs."""
    seen: dict[str, dict[str, Counter[float]]] = {}
    for point in points:
        kind = "withheld" if point.receipt.withheld else "shown" if point.done else "none"
        mine = seen.setdefault(point.receipt.selection.policy, {"withheld": Counter(), "shown": Counter(), "none": Counter()})
        mine[kind][round(point.receipt.selection.propensity, 6)] += 1
    return {policy for policy, mine in seen.items() if _draws(mine["shown"], mine["withheld"], mine["none"])}


def _draws(shown: Counter[float], withheld: Counter[float], none: Counter[float]) -> bool:
    """Whether these propensities, with how often each was logged, are not those of a fixed choice and a coin."""
    if any(p < 1 for p in none):
        return True
    if withheld:
        return bool(shown) and any(round(1 - p, 6) not in shown for p in withheld)
    return math.prod(p**times for p, times in shown.items()) < UNLIKELY  # no coin never falls


# Estimates.


def _estimates(log: _Log, w: Floats, draws: int) -> dict[str, Estimate]:
    """Each estimator over the points where the log can tell, its interval over all of them."""
    known = log.can_tell.astype(float)
    target, done = _model(log)
    robust = target + w * (log.r - done)
    columns = np.stack([w * log.r * known, w * known, robust * known, known, np.ones(len(w)), log.r, log.r * known], 1)
    whole, drawn = columns.sum(0), cluster_draws(columns, log.groups, draws)
    share, earned = drawn[:, 3] / drawn[:, 4], drawn[:, 5] / drawn[:, 4]
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw may hold no weight at all
        values, bounds = _estimators(whole), {k: (e * share, e * share + 1 - share) for k, e in _estimators(drawn.T).items()}
    values["difference"] = values["doubly_robust"] - whole[6] / whole[3]
    bounds["difference"] = tuple(end - earned for end in bounds["doubly_robust"])  # type: ignore[assignment]  # two, as they were
    told = 1 - known.mean() <= UNKNOWN
    return {name: _estimate(values[name] if told else math.nan, *bounds[name]) for name in values}


def _estimators(sums: Floats) -> dict[str, Floats]:
    """The estimators from sums of the columns of `_estimates`."""
    weighted, weights, robust, known = sums[:4]
    return {"ips": weighted / known, "snips": weighted / weights, "doubly_robust": robust / known}


def _logged(log: _Log, draws: int) -> Estimate:
    sums = cluster_draws(np.stack([log.r, np.ones(len(log.r))], 1), log.groups, draws)
    return _estimate(log.r.mean(), sums[:, 0] / sums[:, 1], sums[:, 0] / sums[:, 1])


def _estimate(value: Any, low: Floats, high: Floats) -> Estimate:
    ends = value, np.nanquantile(low, 0.025), np.nanquantile(high, 0.975)
    return Estimate(**{n: round(float(v), 6) if math.isfinite(v) else None for n, v in zip(("value", "low", "high"), ends, strict=True)})


# The model of utility.


def _model(log: _Log) -> tuple[Floats, Floats]:
    """Predicted utility of what the selector would do and of what was done, each by a model that has not seen the point's group."""
    fold, did = np.array([fold_of(group, FOLDS) for group in log.groups]), np.array([bool(point.done) for point in log.points])
    x = {done: np.array([_row(p, p.done if done else want) for p, want in zip(log.points, log.wanted, strict=True)]) for done in (0, 1)}
    target, done = np.zeros(len(log.r)), np.zeros(len(log.r))
    for number in range(FOLDS):
        here, rest = fold == number, fold != number
        for arm in (False, True):
            weights = _ridge(x[1][rest & (did == arm)], log.r[rest & (did == arm)], towards=log.r[rest].mean() if rest.any() else 0.5)
            wants = here & np.array([bool(want) is arm for want in log.wanted])
            target[wants], done[here & (did == arm)] = x[0][wants] @ weights, x[1][here & (did == arm)] @ weights
    return target.clip(0, 1), done.clip(0, 1)


def _ridge(x: Floats, y: Floats, *, towards: float) -> Floats:
    """Weights of a ridge regression whose constant, the first column, is held near `towards`."""
    found: NDArray[Any] = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (y - towards))
    found[0] += towards
    return found


def _row(point: Point, action: Action) -> Floats:
    """What the model sees of doing `action`: a constant, the point, and the mean over what is shown; zeros for none."""
    candidates = point.candidates
    here = [1.0, float(point.receipt.attempt > 0), min(1.0, len(candidates) / 10), max(c.similarity for c in candidates)]
    return np.concatenate([here, np.mean([_slot(candidates, place) for place in action], axis=0) if action else np.zeros(6)])


def _slot(candidates: Sequence[Candidate], place: int) -> list[float]:
    candidate, s = candidates[place], candidates[place].statistics
    uses = s.helped + s.hurt + s.neutral + 2  # Laplace
    return [candidate.similarity, float(candidate.record.gain.value), s.ema, (s.helped + 1) / uses, (s.hurt + 1) / uses, float(place == 0)]


# Warnings.


def _warnings(log: _Log, w: Floats, clip: float, effective: float) -> Iterator[str]:
    n, unknown, cut, matched = len(log.points), int((~log.can_tell).sum()), int((log.w > clip).sum()), int((log.w > 0).sum())
    if not n:
        yield "no decision point with a choice has reported its utility: there is nothing to estimate from"
        return
    if unknown and (log.p == 1).all():
        yield "nothing in this log was left to chance, so it cannot tell what other choices would have done"
    if unknown:
        yield f"at {unknown} of {n} points the log could not have done what the selector would do: intervals allow for any outcome there"
    if effective < LEAST:
        yield f"the effective sample size is {effective:.1f} of {n} points: too few for an estimate"
    elif effective < FEW:
        yield f"the effective sample size is {effective:.1f} of {n} points: intervals may be too narrow"
    if len(set(log.groups)) < FEW and effective >= LEAST:
        yield f"the points come from {len(set(log.groups))} groups of tasks: intervals may be too narrow"
    if cut:
        pulled = "which pulls inverse propensity towards 0 and doubly robust towards its model"
        yield f"{cut} of {matched} weights were above {clip:g} and were cut to it, {pulled}: the largest is {log.w.max():g}"
    elif log.can_tell.any() and effective >= LEAST:
        known = log.w[log.can_tell]
        error = float(known.std()) / math.sqrt(len(known))
        if abs(float(known.mean()) - 1) > 3 * error + 1e-9:
            yield f"weights have a mean of {known.mean():.2f} instead of 1: the logged probabilities are not those of what was done"
