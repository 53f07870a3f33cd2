"""Learned selectors as they are served: numpy over exported weights, nothing else (SPEC A3.6).

In: a decision point and its candidates. Out: the candidate of the largest value, if that is larger than the value of skipping; ties go to
skip. Values do not depend on the order of the candidates: each is seen beside the mean (or the maximum) of the others. What the kinds are
and how they are fitted: `train/dqn.py`, `train/rivals.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mulligan.errors import InvalidData
from mulligan.nouns import number_of, to_json
from mulligan.read.features import GLOBAL, SLOT, Floats, features, others
from mulligan.read.weights import Weights
from mulligan.records import Candidate, Selection, Situation

DRAWS = 256  # of the weights, from which the propensity of a sampled choice is told


class Reading:
    """What all that is learned shares: features, standardised as they were in training."""

    def __init__(self, weights: Weights) -> None:
        """Raises InvalidData for weights of other shapes."""
        size, slots = len(GLOBAL) + len(weights.domains), len(SLOT)
        self.name, self._domains = weights.kind, weights.domains
        self._g = weights.array("g_mean", size), weights.array("g_scale", size)
        self._x = weights.array("x_mean", slots), weights.array("x_scale", slots)
        if not (self._g[1].all() and self._x[1].all()):
            raise InvalidData(f"weights for {weights.kind} have a scale of 0: train again")

    def standardised(self, situation: Situation, candidates: Sequence[Candidate]) -> tuple[Floats, Floats]:
        """The features, each with the mean and the scale of the training data: shapes (G,) and (n, 11)."""
        g, x = features(situation, candidates, self._domains)
        return (g - self._g[0]) / self._g[1], (x - self._x[0]) / self._x[1]


class Learned(Reading, ABC):
    """Selectors of one record: the largest value, ties to skip."""

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        """The candidate of the largest value, if that exceeds the value of skipping."""
        if not candidates:
            return Selection(chosen=None, policy=self.name)
        values, skip, propensity = self.valued(situation, *self.standardised(situation, candidates))
        place = int(values.argmax())
        chosen = place if values[place] > skip else None
        shown = tuple(round(float(value), 6) for value in values)
        return Selection(chosen=chosen, values=shown, skip=round(skip, 6), propensity=propensity, policy=self.name)

    @abstractmethod
    def valued(self, situation: Situation, g: Floats, x: Floats) -> tuple[Floats, float, float]:
        """The value of each candidate, that of skipping, and the probability of the choice that follows from them."""


class Dqn(Learned):
    """A Q network with shared weights over the slots and a head of its own for skip; the mean over the seeds it was trained with."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        show, skip = len(self._g[0]) + 2 * len(SLOT), len(self._g[0]) + len(SLOT)
        self._show, self._skip = _layers(weights, "show", show), _layers(weights, "skip", skip)

    def valued(self, situation: Situation, g: Floats, x: Floats) -> tuple[Floats, float, float]:
        wide = np.concatenate([np.broadcast_to(g, (len(x), len(g))), x, others(x)], axis=1)
        q = _forward(self._show, wide).mean(0)[:, 0]
        return q, float(_forward(self._skip, np.concatenate([g, x.max(0)])[None]).mean()), 1.0


class Linear(Learned):
    """Values that are linear in the features: of the chance to solve (logistic), or of the uplift over skipping (paired, contextual)."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        self._show = weights.array("show", 1 + len(self._g[0]) + 2 * len(SLOT))
        self._skip = weights.array("skip", 1 + len(self._g[0]))

    def valued(self, situation: Situation, g: Floats, x: Floats) -> tuple[Floats, float, float]:
        return show_rows(g, x) @ self._show, float(skip_row(g) @ self._skip), 1.0


class Thompson(Learned):
    """Linear Thompson sampling: weights drawn anew at every decision from their posterior, by a seed that the decision point gives."""

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        sizes = {"show": 1 + len(self._g[0]) + 2 * len(SLOT), "skip": 1 + len(self._g[0])}
        self._means = {head: weights.array(head, size) for head, size in sizes.items()}
        self._factors = {head: weights.array(f"{head}_factor", size, size) for head, size in sizes.items()}

    def valued(self, situation: Situation, g: Floats, x: Floats) -> tuple[Floats, float, float]:
        rng = np.random.default_rng(number_of(to_json([situation.task.scope, situation.task.id, len(situation.history)])))
        drawn = {
            head: mean + rng.standard_normal((DRAWS, len(mean)), np.float32) @ self._factors[head].T for head, mean in self._means.items()
        }
        values = np.concatenate([drawn["skip"] @ skip_row(g)[:, None], drawn["show"] @ show_rows(g, x).T], axis=1)  # (DRAWS, 1 + n)
        choices = values.argmax(1)
        return values[0, 1:], float(values[0, 0]), round(float((choices == choices[0]).mean()), 6)


def show_rows(g: Floats, x: Floats) -> Floats:
    """What linear kinds see of showing each candidate: a constant, g, the candidate, the mean of the others; shape (n, 1 + G + 22)."""
    n = len(x)
    return np.concatenate([np.ones((n, 1), np.float32), np.broadcast_to(g, (n, len(g))), x, others(x)], axis=1)


def skip_row(g: Floats) -> Floats:
    """What linear kinds see of skipping: a constant and g; shape (1 + G,)."""
    return np.concatenate([np.ones(1, np.float32), g])


@dataclass(frozen=True, slots=True)
class Explore:
    """Shows each candidate and none equally often over `rounds` that count from 0: what learners are trained on.

    A decision point's choice in a round is the round plus a number that only the decision point gives, modulo the number of choices:
    over as many rounds as there are choices each is made once, and in any one round each is made with the same probability.
    """

    round: int = 0
    name: str = "explore"

    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection:
        history = [a.action for a in situation.history]
        start = number_of(to_json(["explore", situation.task.scope, situation.task.id, history]))
        place = (start + self.round) % (len(candidates) + 1)
        return Selection(chosen=place - 1 if place else None, propensity=1 / (len(candidates) + 1), policy=self.name)


def _layers(weights: Weights, head: str, size: int) -> list[tuple[Floats, Floats]]:
    """Three layers of a head, stacked over seeds: (seeds, in, out) and (seeds, 1, out)."""
    layers = []
    for n in range(3):
        layers.append(weights.layer(f"{head}.{n}", size))
        size = layers[-1][0].shape[2]
    if size != 1:
        raise InvalidData(f"weights for {weights.kind} give {size} values a candidate: train again")
    return layers


def _forward(layers: Sequence[tuple[Floats, Floats]], rows: Floats) -> Floats:
    """`rows` of shape (n, in) through every seed's network: (seeds, n, 1)."""
    (w1, b1), (w2, b2), (w3, b3) = layers
    hidden: Floats = np.maximum(rows @ w1 + b1, 0)
    hidden = np.maximum(hidden @ w2 + b2, 0)
    return hidden @ w3 + b3
