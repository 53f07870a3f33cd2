"""Uplift: choose a whole set of records by what it is expected to add over showing none (UpliftMem; SPEC C3).

In: a decision point with up to 50 candidates. Out: the candidate set with the largest calibrated uplift, or none where that is not above
0. The scorer adds up what each member brings alone and what each two bring together beyond that, so that pairs which only help together
are told from pairs that say the same twice. (A network over the pooled set, which could say more, learnt less from the same trials;
LOG.md.) Numpy over exported weights; `train/uplift.py` fits them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mulligan.errors import InvalidData
from mulligan.protocols import Embedder
from mulligan.read.features import SLOT, Floats
from mulligan.read.learned import Reading
from mulligan.read.sets import Score, Set, candidate_sets
from mulligan.read.weights import Weights
from mulligan.records import Candidate, Selection, Situation

Vectors = Callable[[Sequence[str]], Floats]  # ids of records → (n, D), unit rows


class Uplift(Reading):
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
        self._network = Network.of(weights, len(SLOT) + len(self._g[0]) + 2 * width)
        self._knots = weights.array("knots", 2, -1)
        self.size = int(weights.array("size", 1)[0])

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        """The best set by calibrated uplift, shown in the order of the records' ids, or none."""
        if not candidates:
            return Selection(chosen=None, policy=self.name)
        vectors, score = self.scorer(situation, candidates)
        return chosen(situation, candidates, vectors, score, self.calibrated, size=self.size, policy=self.name)

    def scorer(self, situation: Situation, candidates: Sequence[Candidate]) -> tuple[Floats, Score]:
        """The records' vectors, and what gives the uplift of sets of them, not calibrated; the empty set's is 0."""
        g, x = self.standardised(situation, candidates)
        vectors = self._of([candidate.record.id for candidate in candidates])
        (asked,) = self._embedder.embed([str(situation.facts.get("gist") or situation.task.prompt)])
        tables = self._network.tables(member_rows(self._projection, g, x, vectors, asked))
        return vectors, lambda sets: scored(tables, sets)

    def calibrated(self, values: Floats) -> Floats:
        """Scores as uplifts in success, by the piecewise linear map that held-out trials gave."""
        found: Floats = np.interp(values, self._knots[0], self._knots[1]).astype(np.float32)
        return found

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
    raw = score(sets[1:])
    values = calibrated(raw)
    best = int(np.lexsort((raw, values))[-1]) if len(values) else 0  # calibration has plateaus: there the raw score decides
    if not len(values) or values[best] <= 0:
        return Selection(chosen=None, values=(0.0,) * len(candidates), policy=policy)
    first, *more = sorted(sets[1 + best], key=lambda place: candidates[place].record.id)
    alone = calibrated(score([(place,) for place in range(len(candidates))]))
    shown = tuple(round(float(value), 6) for value in alone)
    return Selection(chosen=first, more=tuple(more), values=shown, policy=policy)


Layer = tuple[Floats, Floats]  # stacked over seeds: (seeds, in, out) and (seeds, 1, out)


@dataclass(frozen=True, slots=True)
class Network:
    """The scorer's layers: from a record beside its task to a hidden vector, and from there to what it adds alone and to what it makes with
    another record, whose sign each component has for itself.
    """

    member: Layer
    alone: Layer
    pair: Layer
    sign: Floats  # (seeds, 1, r)

    @classmethod
    def of(cls, weights: Weights, size: int) -> "Network":
        """From arrays, for rows of `size` features. Raises InvalidData for arrays of other shapes."""
        member = weights.layer("member", size)
        hidden = member[0].shape[2]
        pair = weights.layer("pair", hidden)
        return cls(member, weights.layer("alone", hidden), pair, weights.array("sign", len(pair[0]), 1, pair[0].shape[2]))

    def tables(self, rows: Floats) -> tuple[Floats, Floats]:
        """What each of n records adds alone, (n,), and each two beyond that, (n, n) with zeros on the diagonal; means over seeds."""
        hidden = np.maximum(rows @ self.member[0] + self.member[1], 0)
        alone = (hidden @ self.alone[0] + self.alone[1]).mean(0)[:, 0]
        made = hidden @ self.pair[0] + self.pair[1]
        both = ((made * self.sign) @ made.transpose(0, 2, 1)).mean(0)
        np.fill_diagonal(both, 0)
        return alone, both


def member_rows(projection: Floats, g: Floats, x: Floats, vectors: Floats, asked: Floats) -> Floats:
    """What the scorer sees of each record: its features, the decision point's, its vector, and that times the task's: (n, R)."""
    near, here = vectors @ projection, asked @ projection
    return np.concatenate([x, np.broadcast_to(g, (len(x), len(g))), near, near * here], axis=1)


def scored(tables: tuple[Floats, Floats], sets: Sequence[Set]) -> Floats:
    """The uplift of each set: of its members alone and of their pairs; shape (m,)."""
    alone, both = tables
    inside = np.zeros((len(sets), len(alone)), np.float32)
    for row, one in enumerate(sets):
        inside[row, list(one)] = 1
    found: Floats = inside @ alone + ((inside @ both) * inside).sum(1) / 2
    return found
