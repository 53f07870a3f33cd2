"""Uplift: choose a whole set of records by what it is expected to add over showing none (UpliftMem; SPEC C3).

In: a decision point with up to 50 candidates. Out: the candidate set with the largest calibrated uplift, or none where that is not above 0.
The scorer looks at the set as a whole: each member's features and vector become a hidden vector, and what is made of their mean and their
maximum tells pairs that only help together from pairs that say the same twice. Numpy over exported weights; `train/uplift.py` fits them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from mulligan.errors import InvalidData
from mulligan.protocols import Embedder
from mulligan.read.features import SLOT, Floats
from mulligan.read.learned import Learned
from mulligan.read.sets import Score, Set, candidate_sets
from mulligan.read.weights import Weights
from mulligan.records import Candidate, Selection, Situation

Vectors = Callable[[Sequence[str]], Floats]  # ids of records → (n, D), unit rows


class Uplift(Learned):
    """Chooses among candidate sets. `embedder` is the store's, `vectors` gives those of records by id."""

    def __init__(self, weights: Weights, embedder: Embedder, vectors: Vectors) -> None:
        """Raises InvalidData for weights of other shapes or made with another embedder."""
        super().__init__(weights)
        self._embedder, self._vectors = embedder, vectors
        self._known: dict[str, Floats] = {}
        if weights.embedder != embedder.id:
            raise InvalidData(f"weights for {weights.kind} were made with the embedder {weights.embedder}, not {embedder.id}: train again")
        self._projection = weights.array("projection", embedder.dim, -1)
        width = self._projection.shape[1]
        self._member = _layer(weights, "member", len(SLOT) + 2 * width)
        hidden = self._member[0].shape[2]
        self._inner = _layer(weights, "inner", 2 * hidden + len(self._g[0]) + 1)
        self._outer = _layer(weights, "outer", self._inner[0].shape[2])
        self._knots = weights.array("knots", 2, -1)
        self._size = int(weights.array("size", 1)[0])

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        """The best set by calibrated uplift, shown in the order of the records' ids, or none."""
        if not candidates:
            return Selection(chosen=None, policy=self.name)
        vectors, score = self.scorer(situation, candidates)
        return chosen(situation, candidates, vectors, score, self.calibrated, size=self._size, policy=self.name)

    def scorer(self, situation: Situation, candidates: Sequence[Candidate]) -> tuple[Floats, Score]:
        """The records' vectors, and what gives the uplift of sets of them, not calibrated; the empty set's is 0."""
        g, x = self.standardised(situation, candidates)
        vectors = self._of([candidate.record.id for candidate in candidates])
        (asked,) = self._embedder.embed([str(situation.facts.get("gist") or situation.task.prompt)])
        hidden = members(self._member, self._projection, x, vectors, asked)

        def score(sets: Sequence[Set]) -> Floats:
            return pooled(self._inner, self._outer, hidden, g, sets, self._size)

        return vectors, score

    def calibrated(self, values: Floats) -> Floats:
        """Scores as uplifts in success, by the piecewise linear map that held-out trials gave."""
        return np.interp(values, self._knots[0], self._knots[1]).astype(np.float32)

    def _of(self, keys: Sequence[str]) -> Floats:
        """Vectors of records, asked for once each."""
        if missing := [key for key in keys if key not in self._known]:
            self._known |= dict(zip(missing, self._vectors(missing), strict=True))
        return np.stack([self._known[key] for key in keys])


def chosen(
    situation: Situation,
    candidates: Sequence[Candidate],
    vectors: Floats,
    score: Score,
    calibrated: Callable[[Floats], Floats],
    *,
    size: int,
    policy: str,
) -> Selection:
    """The best candidate set of up to `size` by calibrated uplift, or none: the choice of every scorer of sets."""
    sets = candidate_sets(vectors, score, size=size, name=situation.task.id)
    values = calibrated(score(sets[1:]))
    best = int(values.argmax()) if len(values) else 0
    if not len(values) or values[best] <= 0:
        return Selection(chosen=None, values=(0.0,) * len(candidates), policy=policy)
    first, *more = sorted(sets[1 + best], key=lambda place: candidates[place].record.id)
    alone = calibrated(score([(place,) for place in range(len(candidates))]))
    shown = tuple(round(float(value), 6) for value in alone)
    return Selection(chosen=first, more=tuple(more), values=shown, policy=policy)


Layer = tuple[Floats, Floats]  # stacked over seeds: (seeds, in, out) and (seeds, 1, out)


def members(layer: Layer, projection: Floats, x: Floats, vectors: Floats, asked: Floats) -> Floats:
    """Each record's hidden vector beside the task's: (seeds, n, H), from features (n, 11), vectors (n, D) and the task's vector (D,)."""
    near, here = vectors @ projection, asked @ projection
    rows = np.concatenate([x, near, near * here], axis=1)
    return np.maximum(rows @ layer[0] + layer[1], 0)  # type: ignore[no-any-return]


def pooled(inner: Layer, outer: Layer, hidden: Floats, g: Floats, sets: Sequence[Set], size: int) -> Floats:
    """The uplift of each set, the mean over seeds: what the network says of the set less what it says of the empty one; shape (m,)."""
    inside = np.zeros((len(sets) + 1, hidden.shape[1]), np.float32)
    for row, one in enumerate(sets):
        inside[row, list(one)] = 1
    total = inside @ hidden / size  # (seeds, m + 1, H)
    most = np.zeros_like(total)
    for row, one in enumerate(sets):
        if one:
            most[:, row] = hidden[:, list(one)].max(1)
    count = inside.sum(1, keepdims=True) / size
    rest = np.concatenate([np.broadcast_to(g, (len(inside), len(g))), count], axis=1)
    rows = np.concatenate([total, most, np.broadcast_to(rest, (len(hidden), *rest.shape))], axis=2)
    value = (np.maximum(rows @ inner[0] + inner[1], 0) @ outer[0] + outer[1])[..., 0]
    return (value[:, :-1] - value[:, -1:]).mean(0)  # type: ignore[no-any-return]


def _layer(weights: Weights, name: str, size: int) -> Layer:
    weight = weights.array(f"{name}.weight", -1, size, -1)
    return weight, weights.array(f"{name}.bias", weight.shape[0], 1, weight.shape[2])
