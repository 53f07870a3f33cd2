"""The covariance of candidate sets' outcomes, and how its size and the noise are fitted (SPEC C3).

In: sets of places and the unit vectors of the records. Out: covariance matrices, asserted positive definite, and hyperparameters by
marginal likelihood on residuals of trials. Sets that share members, or whose members are alike, are thought to do alike; `task` is what
all sets of a task share, the empty one included: how hard it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.linalg import cho_solve
from scipy.optimize import minimize

from mulligan.read.sets import Set
from mulligan.train.probing import Array

LEAST_NOISE = 0.01  # at temperature 0 a repeated trial says nothing new
FEWEST = 50  # residuals below which the defaults stay
JITTER = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Theta:
    """Variances: of a task, of the content that sets share, of their overlap, of a set by itself, and of a trial's noise."""

    task: float = 0.10
    content: float = 0.02
    overlap: float = 0.02
    own: float = 0.01
    noise: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """What trials of one task's sets gave, less what was expected of them: shape (m,)."""

    sets: Sequence[Set]
    vectors: Array
    values: Array


def covariance(sets: Sequence[Set], vectors: Array, theta: Theta, size: int) -> Array:
    """Of the outcomes of `sets` of up to `size` records with those unit `vectors`: shape (m, m).

    k(S, T) = task + content / size * sum of cosines / sqrt(|S| |T|) + overlap * Jaccard(S, T) + own * 1[S = T], all but the first 0 for the
    empty set. Cosines are not cut at 0: that would break positive definiteness. Raises LinAlgError where it is broken nevertheless.
    """
    inside = np.zeros((len(sets), len(vectors)))
    for row, one in enumerate(sets):
        inside[row, list(one)] = 1
    counts = inside.sum(1)
    full = counts > 0
    scaled = (inside / np.sqrt(np.maximum(counts, 1))[:, None]) @ vectors
    shared = inside @ inside.T
    union = counts[:, None] + counts[None, :] - shared
    jaccard = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    same = (shared == union) & full[:, None]
    found: Array = theta.task + theta.content / size * (scaled @ scaled.T) + theta.overlap * jaccard + theta.own * same
    found = found + JITTER * np.eye(len(sets))
    np.linalg.cholesky(found)
    return found


def fit(residuals: Sequence[Residuals], size: int, start: Theta | None = None) -> Theta:
    """Hyperparameters by marginal likelihood with log-normal priors around the defaults; the defaults with fewer than `FEWEST` values."""
    start = start or Theta()
    if sum(len(r.values) for r in residuals) < FEWEST:
        return start
    names = [f.name for f in fields(Theta)]
    centre = np.log([getattr(start, name) for name in names])

    def theta(logs: Array) -> Theta:
        return replace(start, **dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def loss(logs: Array) -> float:
        return -sum(log_likelihood(r, theta(logs), size) for r in residuals) + float(((logs - centre) ** 2).sum()) / 2

    found = theta(minimize(loss, centre, method="L-BFGS-B", bounds=[(np.log(1e-4), np.log(2.0))] * len(names)).x)
    return replace(found, noise=max(found.noise, LEAST_NOISE))


def log_likelihood(residuals: Residuals, theta: Theta, size: int) -> float:
    """Of one task's residuals under the covariance and the noise."""
    m = len(residuals.values)
    factor = np.linalg.cholesky(covariance(residuals.sets, residuals.vectors, theta, size) + theta.noise * np.eye(m))
    weighed = residuals.values @ cho_solve((factor, True), residuals.values)
    return float(-0.5 * weighed - np.log(np.diag(factor)).sum() - 0.5 * m * np.log(2 * np.pi))


def noise_of(repeats: Sequence[Sequence[float]]) -> float:
    """The variance of outcomes of the same set on the same task, from trials that were repeated; never below `LEAST_NOISE`."""
    several = [np.var(values, ddof=1) for values in repeats if len(values) > 1]
    return max(LEAST_NOISE, float(np.mean(several))) if several else Theta().noise
