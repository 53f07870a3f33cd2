"""Features: what a learned selector sees of a decision point, as numbers, in training as in serving (SPEC A3.6).

In: a Situation and its candidates. Out: `g`, what is true of the decision point, and `x`, one row a candidate: counts and shares, no
identifiers, and only what receipts and records in a store tell again. Nothing here depends on a gold answer: SPEC A3.6 names the last
utility, which on held-out tasks would give the gold away, so what is visible of it stands in its place. `DEFINITION` names all of it:
weights made for another definition are refused.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mulligan.records import Candidate, Situation

ATTEMPTS = 10  # attempts of an episode at which the feature is 1
CALLS = 20  # evaluator calls of an episode at which the feature is 1
TOKENS = 16_384  # tokens of an episode at which the feature is 1
USES = 200
SLOTS = 3

GLOBAL = ("attempt", "failed", "calls", "tokens", "unrefuted", "eligible", "need")
SLOT = ("similarity", "gain", "corrected", "ema", "selected", "helped", "hurt", "always", "predicate", "judged", "tokens")
DEFINITION = hashlib.sha256(repr(("v1", GLOBAL, SLOT, ATTEMPTS, CALLS, TOKENS, USES, SLOTS)).encode()).hexdigest()[:16]

Floats = NDArray[np.float32]


def features(situation: Situation, candidates: Sequence[Candidate], domains: Sequence[str] = ()) -> tuple[Floats, Floats]:
    """`g` of shape (7 + D,) and `x` of shape (n, 11), not standardised. `domains` are those of the one-hot part, D of them."""
    history, spent = situation.history, situation.spent
    g = [
        min(1.0, len(history) / ATTEMPTS),
        min(1.0, sum(bool(a.verdict.signals) for a in history) / ATTEMPTS),
        min(1.0, spent.evaluator_calls / CALLS),
        min(1.0, math.log1p(spent.tokens) / math.log1p(TOKENS)),
        0.5 if not history else 0.0 if situation.failed else 1.0,
        min(1.0, len(candidates) / SLOTS),
        situation.need,
        *(float(situation.task.domain == domain) for domain in domains),
    ]
    return np.array(g, np.float32), np.array([_slot(c) for c in candidates], np.float32).reshape(len(candidates), len(SLOT))


def _slot(candidate: Candidate) -> tuple[float, ...]:
    record, s = candidate.record, candidate.statistics
    uses, kind = s.helped + s.hurt + s.neutral, record.condition.kind
    return (
        candidate.similarity,
        float(record.gain.value),
        float(record.gain.changed),
        s.ema,
        math.log1p(s.selected) / math.log1p(USES),
        (s.helped + 1) / (uses + 2),  # Laplace
        (s.hurt + 1) / (uses + 2),
        float(kind == "none"),
        float(kind == "predicate"),
        float(kind == "judged"),
        candidate.tokens / 1_000,
    )


def others(x: Floats) -> Floats:
    """For each row of `x`, shape (..., n, F), the mean of the other rows; zeros for a single one."""
    n = x.shape[-2]
    if n < 2:
        return np.zeros_like(x)
    rest: Floats = (x.sum(axis=-2, keepdims=True) - x) / np.float32(n - 1)
    return rest
