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
    sums, sizes = _by_cluster(values, clusters)
    draws = np.random.default_rng(SEED).integers(len(sums), size=(DRAWS, len(sums)))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def difference_interval(one: Drawn, other: Drawn, level: float = 0.95) -> Interval:
    """Percentile interval of the mean of `one` less that of `other`, two samples from the same clusters, which are drawn for both at once.

    None where either is empty. Draws in which one has no value are left out.
    """
    if not one[0] or not other[0]:
        return None
    places = {cluster: place for place, cluster in enumerate(dict.fromkeys([*one[1], *other[1]]))}
    draws = np.random.default_rng(SEED).integers(len(places), size=(DRAWS, len(places)))
    means = []
    for values, clusters in (one, other):
        where = [places[cluster] for cluster in clusters]
        sums, sizes = (np.bincount(where, weights=weights, minlength=len(places)) for weights in (values, None))
        with np.errstate(invalid="ignore"):
            means.append(sums[draws].sum(axis=1) / sizes[draws].sum(axis=1))
    low, high = np.nanquantile(means[0] - means[1], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _by_cluster(values: Sequence[float], clusters: Sequence[Hashable]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    places: dict[Hashable, int] = {}
    where = [places.setdefault(c, len(places)) for c in clusters]
    sums = np.bincount(where, weights=np.asarray(values, dtype=float), minlength=len(places)).astype(float)
    sizes = np.bincount(where, minlength=len(places)).astype(float)
    return sums, sizes
