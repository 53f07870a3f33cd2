"""Paired statistics: exact McNemar, and percentile intervals from a bootstrap over clusters.

Tasks of one group (a database, a template) are not independent, so whole groups are drawn. The seed is fixed: the same data
give the same interval.
"""

from collections.abc import Hashable, Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
SEED = 20_260_901
BLOCK = 500_000  # numbers drawn at once

Interval = tuple[float, float] | None
Drawn = tuple[Sequence[float], Sequence[Hashable]]  # values, and the cluster of each


def mcnemar(rescued: int, broken: int) -> float:
    """Two-sided exact p of `rescued` against `broken` discordant pairs (binomial with p = 1/2); 1.0 when there are none."""
    n, few = rescued + broken, min(rescued, broken)
    tail = sum(comb(n, k) for k in range(few + 1))
    return min(1.0, 2 * tail / (1 << n))


def cluster_interval(values: Sequence[float], clusters: Sequence[Hashable], level: float = 0.95) -> Interval:
    """Percentile interval of the mean of `values` when whole clusters are drawn with replacement; None without values."""
    if not values:
        return None
    sums, sizes = cluster_draws(np.stack([np.asarray(values, float), np.ones(len(values))], axis=1), clusters).T
    low, high = np.quantile(sums / sizes, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def difference_interval(one: Drawn, other: Drawn, level: float = 0.95) -> Interval:
    """Percentile interval of the mean of `one` less that of `other`, two samples from the same clusters, which are drawn for both at once.

    None where either is empty. Draws in which one has no value are left out.
    """
    if not one[0] or not other[0]:
        return None
    values = np.array([*one[0], *other[0]], dtype=float)
    first = np.arange(len(values)) < len(one[0])
    sums = cluster_draws(np.stack([values * first, first, values * ~first, ~first], axis=1), [*one[1], *other[1]])
    with np.errstate(invalid="ignore"):
        gaps = sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]
    low, high = np.nanquantile(gaps, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def cluster_draws(columns: NDArray[np.float64], clusters: Sequence[Hashable], draws: int = DRAWS) -> NDArray[np.float64]:
    """Sums of `columns`, shape (n, k), over clusters that are drawn with replacement, as many as there are: shape (draws, k)."""
    places: dict[Hashable, int] = {}
    where = np.array([places.setdefault(c, len(places)) for c in clusters])
    sums = np.stack([np.bincount(where, weights=column, minlength=len(places)) for column in columns.T], axis=1)
    rng, block = np.random.default_rng(SEED), max(1, BLOCK // len(sums))
    parts = [sums[rng.integers(len(sums), size=(min(block, draws - start), len(sums)))].sum(axis=1) for start in range(0, draws, block)]
    return np.concatenate(parts)
