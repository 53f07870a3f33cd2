"""Retention at capacity: which record goes when the store is full (SPEC A3.7), with the three rivals of equal capacity.

In: the records that stand, with statistics and unit vectors. Out: the id of the one to evict, which may be the newcomer.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import UnknownName
from mulligan.records import Record, Statistics

CAPACITY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A record in the store. `sequence` grows with age of writing: higher is newer."""

    record: Record
    statistics: Statistics
    sequence: int


Vectors = NDArray[np.float32]  # (n, dim), unit rows, in the order of the standings


def utility(standings: Sequence[Standing], vectors: Vectors) -> str:
    """Evict the least 0.35 gain + 0.35 ema + 0.15 log1p(selected)/log1p(max selected) + 0.15 (1 - max cosine to another), ties
    to the newer.
    """
    most = max(s.statistics.selected for s in standings)
    nearest = _cosines(vectors).max(axis=1)
    scores = [
        0.35 * float(s.record.gain.value)
        + 0.35 * s.statistics.ema
        + 0.15 * (math.log1p(s.statistics.selected) / math.log1p(most) if most else 0.0)
        + 0.15 * (1.0 - float(near))
        for s, near in zip(standings, nearest, strict=True)
    ]
    return min(zip(scores, standings, strict=True), key=lambda pair: (pair[0], -pair[1].sequence))[1].record.id


def recency(standings: Sequence[Standing], vectors: Vectors) -> str:
    """Evict the oldest."""
    return min(standings, key=lambda s: s.sequence).record.id


def chance(standings: Sequence[Standing], vectors: Vectors) -> str:
    """Evict one at random, the same one for the same records."""
    ids = sorted(s.record.id for s in standings)
    return random.Random("".join(ids)).choice(ids)


def similarity(standings: Sequence[Standing], vectors: Vectors) -> str:
    """Evict the more redundant of the closest pair: the one whose other neighbours are nearer; ties to the newer."""
    cosines = _cosines(vectors)
    a, b = np.unravel_index(int(cosines.argmax()), cosines.shape)
    pair = (int(a), int(b))
    return standings[max(pair, key=lambda i: (float(np.sort(cosines[i])[-2:].sum()), standings[i].sequence))].record.id


STRATEGIES: Mapping[str, Callable[[Sequence[Standing], Vectors], str]] = {
    "utility": utility,
    "recency": recency,
    "random": chance,
    "similarity": similarity,
}


def strategy(name: str) -> Callable[[Sequence[Standing], Vectors], str]:
    """The eviction rule of that name. Raises UnknownName listing the known ones."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise UnknownName(f"no retention strategy {name!r}: choose one of {', '.join(STRATEGIES)}") from None


def _cosines(vectors: Vectors) -> Vectors:
    cosines: Vectors = np.vecdot(vectors[:, None], vectors)  # not @: it wakes BLAS threads, which costs more than the product
    np.fill_diagonal(cosines, -1.0)
    return cosines
