"""An acquisition event: from what was tried so far, through probes under one budget, to a retrained scorer (SPEC C3).

In: tasks with their candidates, outcomes of sets that were executed, and a way to execute another. Out: weights of the scorer, its
calibration, and the trials. Every task's arms are drawn up with the scorer so far; a normal belief over their outcomes starts at its
calibrated uplift and is conditioned on what was executed; probes go where EVSI says (or at random, the matched control); labels are the
beliefs after them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mulligan.read.features import Floats, features
from mulligan.read.sets import Set, candidate_sets
from mulligan.read.uplift import Network, member_rows, scored
from mulligan.read.weights import Weights
from mulligan.records import Candidate, Situation
from mulligan.train import kernel, uplift
from mulligan.train.kernel import Residuals, Theta
from mulligan.train.probing import Acquired, Belief, Policy, Trial, acquire

Execute = Callable[[int, Set], tuple[float, bool]]  # task and set → outcome in [0, 1], and whether it had to be executed
RIDGE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Posing:
    """A task as the scorer sees it, and the outcomes of the sets that were executed on it, the empty one among them."""

    name: str
    g: Floats
    x: Floats
    vectors: Floats
    asked: Floats
    executed: Mapping[Set, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, situation: Situation, candidates: Sequence[Candidate], *, vectors: Floats, asked: Floats, domains: Sequence[str]
    ) -> "Posing":
        """A decision point, with the vectors of its records (n, D) and of its task (D,); nothing was executed there."""
        g, x = features(situation, candidates, domains)
        return cls(name=situation.task.id, g=g, x=x, vectors=vectors, asked=asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an event led to."""

    weights: Weights
    calibration: uplift.Calibration
    theta: Theta
    trials: tuple[Trial, ...]
    sets: tuple[tuple[Set, ...], ...]  # the arms of every task

    @property
    def paid(self) -> int:
        """Trials that had to be executed."""
        return sum(t.paid for t in self.trials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of an event. `budget` counts new executions; with 0 the scorer is the warm-up's."""

    budget: int = 300
    policy: Policy = "evsi"
    seed: int = 0
    uniform: float = 0.05
    scorer: uplift.Settings = field(default_factory=uplift.Settings)


def run(posings: Sequence[Posing], execute: Execute, settings: Settings, *, embedder: str, domains: Sequence[str] = ()) -> Outcome:
    """Warm up on what was executed, probe, and train again. Raises ValueError where no set was executed anywhere."""
    size, theta = settings.scorer.size, Theta()
    base = baseline(posings)
    arms = [tuple(dict.fromkeys([(), *p.executed])) for p in posings]
    start = [believed(p, sets, np.full(len(sets), b), theta, size) for p, sets, b in zip(posings, arms, base, strict=True)]
    weights, calibration = _fitted(posings, arms, start, settings, theta, embedder, domains)
    if not settings.budget:
        return Outcome(weights=weights, calibration=calibration, theta=theta, trials=(), sets=tuple(arms))
    score = [scorer(weights, p) for p in posings]
    arms = [drawn_up(p, s, size) for p, s in zip(posings, score, strict=True)]
    means = [b + _calibrated(calibration, s(sets)) for b, s, sets in zip(base, score, arms, strict=True)]
    theta = kernel.fit([_residuals(*each) for each in zip(posings, arms, means, strict=True)], size)
    held = [believed(p, sets, m, theta, size) for p, sets, m in zip(posings, arms, means, strict=True)]
    got: Acquired = acquire(
        held,
        lambda task, arm: execute(task, arms[task][arm]),
        noise=theta.noise,
        budget=settings.budget,
        policy=settings.policy,
        uniform=settings.uniform,
        seed=settings.seed,
    )
    told = [dict(p.executed) for p in posings]
    for t in got.trials:
        one = arms[t.task][t.arm]
        told[t.task][one] = [*told[t.task].get(one, ()), t.outcome]
    after = [replace(p, executed=t) for p, t in zip(posings, told, strict=True)]
    weights, calibration = _fitted(after, arms, list(got.beliefs), settings, theta, embedder, domains)
    return Outcome(weights=weights, calibration=calibration, theta=theta, trials=got.trials, sets=tuple(arms))


def told(outcome: Outcome, tasks: int) -> Weights:
    """The weights, with what training says of itself."""
    c = outcome.calibration
    about = {"tasks": tasks, "probes": outcome.paid, "sets": c.points, "slope": c.slope, "error": c.error, "signs": c.signs}
    return replace(outcome.weights, about=about)


def drawn_up(posing: Posing, score: Callable[[Sequence[Set]], Floats], size: int) -> tuple[Set, ...]:
    """The arms of a task: candidate sets, and whatever was executed on it."""
    sets = candidate_sets(posing.vectors, score, size=size, name=posing.name)
    return tuple(dict.fromkeys([*posing.executed, *sets])) if () in posing.executed else tuple(dict.fromkeys([(), *posing.executed, *sets]))


def believed(posing: Posing, sets: Sequence[Set], mean: NDArray[np.float64], theta: Theta, size: int) -> Belief:
    """The belief over the outcomes of `sets`, conditioned on what was executed."""
    belief = Belief(np.asarray(mean, np.float64), kernel.covariance(sets, posing.vectors.astype(np.float64), theta, size))
    for one, outcomes in posing.executed.items():
        for outcome in outcomes:
            belief = belief.after(sets.index(one), outcome, theta.noise)
    return belief


def baseline(posings: Sequence[Posing]) -> NDArray[np.float64]:
    """How often each task is thought to be solved without memory: ridge regression on g of what was executed empty."""
    tried = [(p.g, float(np.mean(p.executed[()]))) for p in posings if p.executed.get(())]
    if not tried:
        return np.full(len(posings), 0.5)
    g, y = np.stack([g for g, _ in tried]).astype(np.float64), np.array([value for _, value in tried])
    centre, spread = g.mean(0), np.where(g.std(0) > 1e-6, g.std(0), 1.0)
    z = (g - centre) / spread
    w = np.linalg.solve(z.T @ z + RIDGE * np.eye(z.shape[1]), z.T @ (y - y.mean()))
    every = (np.stack([p.g for p in posings]) - centre) / spread
    found: NDArray[np.float64] = np.clip(y.mean() + every @ w, 0.02, 0.98)
    return found


def scorer(weights: Weights, posing: Posing) -> Callable[[Sequence[Set]], Floats]:
    """What serving would make of the task: scores of sets, not calibrated."""
    a = weights.arrays
    g, x = (posing.g - a["g_mean"]) / a["g_scale"], (posing.x - a["x_mean"]) / a["x_scale"]
    rows = member_rows(a["projection"], g, x, posing.vectors, posing.asked)
    tables = Network.of(weights, rows.shape[1]).tables(rows)
    return lambda sets: scored(tables, sets)


def _fitted(
    posings: Sequence[Posing],
    arms: Sequence[Sequence[Set]],
    beliefs: Sequence[Belief],
    settings: Settings,
    theta: Theta,
    embedder: str,
    domains: Sequence[str],
) -> tuple[Weights, uplift.Calibration]:
    examples = []
    for p, sets, belief in zip(posings, arms, beliefs, strict=True):
        tried = [n for n, one in enumerate(sets) if one and one in p.executed]
        empty = sets.index(())
        outcome = np.array([np.mean(p.executed[sets[n]]) for n in tried])
        variance = np.array([theta.noise / len(p.executed[sets[n]]) for n in tried]) + belief.sigma[empty, empty]
        examples.append(
            uplift.Example(
                g=p.g,
                x=p.x,
                vectors=p.vectors,
                asked=p.asked,
                sets=tuple(sets[n] for n in tried),
                uplift=(outcome - belief.mu[empty]).astype(np.float32).reshape(len(tried)),
                variance=variance.astype(np.float32).reshape(len(tried)),
                believed=(belief.mu[tried] - belief.mu[empty]).astype(np.float32).reshape(len(tried)),
            )
        )
    return uplift.fit(examples, settings.scorer, embedder=embedder, domains=domains)


def _calibrated(calibration: uplift.Calibration, scores: Floats) -> NDArray[np.float64]:
    found = np.interp(scores, calibration.knots[0], calibration.knots[1])
    return np.where(scores == 0, 0.0, found)  # the empty set's score is 0, and so is its uplift


def _residuals(posing: Posing, sets: Sequence[Set], mean: NDArray[np.float64]) -> Residuals:
    tried = [(one, outcome) for one, outcomes in posing.executed.items() for outcome in outcomes]
    values = np.array([outcome - mean[sets.index(one)] for one, outcome in tried])
    return Residuals(sets=[one for one, _ in tried], vectors=posing.vectors.astype(np.float64), values=values)
