"""The bank of MemHarness: which plays are distilled, what is a duplicate, what is worth keeping (SPEC B2).

In: plays, vectors, counts of uses and successes. Out: the plays to keep, in balance; whether a vector is too like others; utilities. The
paper's code counts a use at every retrieval and a success at most once an episode, for whatever was retrieved; here both count once an
episode, and only for what was shown. Its own way of counting is kept beside for comparison.
"""

import random
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mulligan.nouns import noun
from mulligan.records import Episode

SHARE = Fraction(1, 2)  # of plays that are kept
ALIKE = 0.85  # a cosine above it is a duplicate (strictly)
POOL, SHOWN = 10, 3  # retrieved before duplicates are left out, and after
LEAST = Fraction(3, 10)  # utility below which an entry goes
USES = 3  # after so many


@noun
class Counts:
    """How often an entry was used and how often that succeeded; uses that were retrieved and not shown are kept apart."""

    uses: int = 0
    successes: int = 0
    rejected: int = 0

    @property
    def utility(self) -> Fraction:
        """Laplace: (c_succ + 1) / (c_use + 2)."""
        return Fraction(self.successes + 1, self.uses + 2)

    @property
    def prunable(self) -> bool:
        return self.uses >= USES and self.utility < LEAST


def kept(episodes: Sequence[Episode], *, seed: int = 0) -> list[Episode]:
    """Half of the plays, as many that solved their task as did not where there are enough, the rest at random; in their order."""
    draw = random.Random(seed)
    wanted = -(-len(episodes) * SHARE.numerator // SHARE.denominator)
    kinds = [[e for e in episodes if e.solved is solved] for solved in (True, False)]
    for kind in kinds:
        draw.shuffle(kind)
    chosen = [e for kind in kinds for e in kind[: wanted // 2]]
    rest = [e for kind in kinds for e in kind[wanted // 2 :]]
    draw.shuffle(rest)
    chosen += rest[: wanted - len(chosen)]
    ids = {id(e) for e in chosen}
    return [e for e in episodes if id(e) in ids]


def is_duplicate(vector: NDArray[np.float32], stored: NDArray[np.float32]) -> bool:
    """Whether a unit vector, shape (dim,), has a cosine above ALIKE with any of `stored`, shape (n, dim)."""
    return bool(len(stored)) and bool((stored @ vector).max() > ALIKE)


def distinct(vectors: NDArray[np.float32], limit: int = SHOWN) -> list[int]:
    """Greedily the places of at most `limit` rows, best first, none above ALIKE with one that was taken."""
    taken: list[int] = []
    for place in range(len(vectors)):
        if len(taken) == limit:
            break
        if not is_duplicate(vectors[place], vectors[taken]):
            taken.append(place)
    return taken


def counts(episodes: Iterable[Episode], *, published: bool = False) -> dict[str, Counts]:
    """Uses and successes of every entry, from plays with their receipts.

    Once an episode and only for what was shown; `published` counts as the paper's code does: a use at every retrieval for all that was
    found, a success at most once an episode for all of it.
    """
    found: dict[str, Counts] = {}

    def add(key: str, uses: int, successes: int, rejected: int) -> None:
        old = found.get(key, Counts())
        found[key] = Counts(uses=old.uses + uses, successes=old.successes + successes, rejected=old.rejected + rejected)

    for episode in episodes:
        shown = {key for receipt in episode.receipts for key in receipt.shown}
        retrieved = [key for receipt in episode.receipts for key in receipt.candidates]
        for key in dict.fromkeys(retrieved):
            if published:
                add(key, retrieved.count(key), int(episode.solved), 0)
            elif key in shown:
                add(key, 1, int(episode.solved), 0)
            else:
                add(key, 0, 0, 1)
    return found
