"""Candidate sets: which sets of recalled records are worth scoring at all (UpliftMem; SPEC C3).

In: the vectors of the recalled records, best first, and a scorer of sets. Out: at most 32 sets of places, the empty one first. Among
them: the best singles and pairs, prefixes of the ranking, greedy additions while the score rises, neighbours of the best set, diverse
sets, what was executed and its neighbours, and two drawn at random. A set is a sorted tuple of places: order carries no meaning.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from mulligan.nouns import number_of
from mulligan.read.features import Floats

Set = tuple[int, ...]
Score = Callable[[Sequence[Set]], Floats]  # values of sets against the empty one, shape (len(sets),)

MOST = 32
SINGLES, SWAPS, DRAWN = 8, 5, 2
PAIRED, PAIRS = 12, 3  # the best of all pairs of so many records: two that only help together are found by no path from one of them
TRADE = 0.5  # of maximal marginal relevance


def candidate_sets(vectors: Floats, score: Score, *, size: int, executed: Set | None = None, name: str = "", most: int = MOST) -> list[Set]:
    """The sets to choose among, of up to `size` of the records whose `vectors` (n, D) are given best first.

    `executed` is a set that was shown before and stays in. `name` seeds the random sets. The first is the empty set.
    """
    n = len(vectors)
    if not n or not size:
        return [()]
    singles = [(place,) for place in range(n)]
    alone = score(singles)
    found: list[Set] = [(), *([executed] if executed else [])]
    found += [singles[place] for place in np.argsort(-alone, kind="stable")[:SINGLES]]
    found += [tuple(range(length)) for length in range(2, min(size, n) + 1)]
    starts: list[Set] = [(int(alone.argmax()),)]
    if size > 1 and (together := list(combinations(np.argsort(-alone, kind="stable")[:PAIRED].tolist(), 2))):
        good = np.argsort(-score(together), kind="stable")[:PAIRS]
        starts += [together[place] for place in good]
    grown = [_greedy(start, score, n, size) for start in starts[:2]]
    found += [*starts[1:], *(path[: length + 1] for path in grown for length in range(1, len(path)))]
    best = tuple(sorted(grown[int(score(grown).argmax())]))
    found += _neighbours(best, alone, size)
    found += [_diverse(vectors, alone, size), _diverse(vectors, -np.arange(n, dtype=np.float32) / np.float32(n), size)]
    if executed:
        found += [tuple(p for p in executed if p != left) for left in executed]
    rng = np.random.default_rng(number_of(name))
    found += [tuple(rng.choice(n, size=int(rng.integers(1, min(size, n) + 1)), replace=False).tolist()) for _ in range(DRAWN)]
    return list(dict.fromkeys(tuple(sorted(s)) for s in found))[:most]


def _greedy(chosen: Set, score: Score, n: int, size: int) -> Set:
    """Add the record that raises the score most, until none does or the set is full; in the order of the additions."""
    value = float(score([chosen])[0])
    while len(chosen) < min(size, n):
        grown = [(*chosen, place) for place in range(n) if place not in chosen]
        values = score(grown)
        if values.max() <= value:
            break
        chosen, value = grown[int(values.argmax())], float(values.max())
    return chosen


def _neighbours(best: Set, alone: Floats, size: int) -> list[Set]:
    """The set without each of its members, and with its weakest member exchanged for (or, if there is room, beside) the best others."""
    removed = [tuple(p for p in best if p != left) for left in best]
    weakest = min(best, key=lambda place: float(alone[place]))
    others = [int(p) for p in np.argsort(-alone, kind="stable") if p not in best][:SWAPS]
    swapped = [(*(p for p in best if p != weakest), other) for other in others]
    added = [(*best, other) for other in others[:2]] if len(best) < size else []
    return [*removed, *added, *swapped]


def _diverse(vectors: Floats, relevance: Floats, size: int) -> Set:
    """Maximal marginal relevance: what is relevant and unlike what is there already."""
    chosen = [int(relevance.argmax())]
    alike = vectors @ vectors.T
    while len(chosen) < min(size, len(vectors)):
        gain = TRADE * relevance - (1 - TRADE) * alike[:, chosen].max(1)
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
    return tuple(chosen)
