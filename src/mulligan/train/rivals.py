"""Rivals of the DQN, fitted to the same rows (SPEC A3.6).

In: `Rows`. Out: weights for `read.learned`. All are linear in the same features, with a head for showing a candidate and one for
skipping:

- logistic: the chance that the task is solved in the end, for what was shown and for what was skipped; no pairs are needed.
- thompson: Bayesian linear regression on the reward to go; serving draws from the posterior.
- paired: ridge regression on the difference between showing and skipping from the same state. Points without such a pair are left out.
- contextual: the same difference from unpaired rows, by doubly robust pseudo-outcomes with the logged propensities (Kennedy 2023).
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import UsageError
from mulligan.points import fold_of
from mulligan.read.features import Floats
from mulligan.read.learned import show_rows, skip_row
from mulligan.read.weights import Weights
from mulligan.train.rows import Rows, scales, standardised

RIDGE = 10.0
MOST_WEIGHT = 10.0  # of an inverse propensity (SPEC C3)
FOLDS = 5


def logistic(known: Rows) -> Weights:
    """Two logistic regressions of whether the task was solved, on what was shown and on what was skipped."""
    from sklearn.linear_model import LogisticRegression

    heads = {}
    for head, (rows, at) in _heads(known).items():
        label = known.solved[at]
        if label.all() or not label.any():  # nothing to tell apart: the chance alone
            heads[head] = _constant(rows.shape[1], (label.sum() + 1) / (len(label) + 2))
        else:
            fitted = LogisticRegression(C=1 / RIDGE, max_iter=1_000).fit(rows[:, 1:], label)
            heads[head] = np.concatenate([fitted.intercept_, fitted.coef_[0]]).astype(np.float32)
    return _weights("logistic", known, heads)


def thompson(known: Rows) -> Weights:
    """The posterior of linear weights of the reward to go, with a unit normal prior and the noise of the residuals."""
    heads = {}
    for head, (rows, at) in _heads(known).items():
        gain = known.gain[at]
        precision = rows.T @ rows + RIDGE * np.eye(rows.shape[1], dtype=np.float32)
        mean = np.linalg.solve(precision, rows.T @ gain) if len(gain) else np.zeros(rows.shape[1])
        noise = float(np.mean((gain - rows @ mean) ** 2)) if len(gain) else 1.0
        heads[head] = mean.astype(np.float32)
        heads[f"{head}_factor"] = np.linalg.cholesky(max(noise, 1e-4) * np.linalg.inv(precision.astype(np.float64))).astype(np.float32)
    return _weights("thompson", known, heads)


def paired(known: Rows) -> Weights:
    """Ridge regression of the uplift on points where both skipping and a slot were tried. Raises UsageError where there is none."""
    rows, uplift = paired_rows(known)
    if not len(uplift):
        raise UsageError("no decision point was tried both with and without a record: explore in at least two rounds")
    return _weights("paired", known, {"show": _ridge(rows, uplift), "skip": np.zeros(1 + known.g.shape[1], np.float32)})


def paired_rows(known: Rows) -> tuple[Floats, Floats]:
    """What was shown, shape (n, 1 + G + 22), and how much better it went than skipping at the same point, shape (n,)."""
    skipped: dict[str, list[float]] = {}
    for point, action, gain in zip(known.point, known.action, known.gain, strict=True):
        if action == 0:
            skipped.setdefault(str(point), []).append(float(gain))
    at = np.flatnonzero((known.action > 0) & np.isin(known.point, list(skipped)))
    uplift = known.gain[at] - np.array([np.mean(skipped[str(p)]) for p in known.point[at]], np.float32).reshape(-1)
    return _shown(known, at), uplift


def contextual(known: Rows) -> Weights:
    """Doubly robust: for every candidate of every point, the outcome models' uplift, corrected by what was seen over its propensity.

    The models are cross-fitted over groups, so that no row corrects the model it was fitted to.
    """
    fold = np.array([fold_of(str(g), FOLDS) for g in known.group])
    listed: list[Floats] = []
    labels: list[NDArray[np.float32]] = []
    scale = scales(known)
    g, x = standardised(known, scale)
    for number in range(FOLDS):
        train, here = known.take(np.flatnonzero(fold != number)), np.flatnonzero(fold == number)
        if not len(here):
            continue
        model = {head: _ridge(rows, train.gain[at]) for head, (rows, at) in _heads(train, scale).items()}
        for n in here:
            valid = np.flatnonzero(known.mask[n])
            if not len(valid):
                continue
            rows = show_rows(g[n], x[n, valid])
            shown, skip = rows @ model["show"], float(skip_row(g[n]) @ model["skip"])
            weight = min(MOST_WEIGHT, 1 / float(known.propensity[n]))
            done, gain = int(known.action[n]), float(known.gain[n])
            uplift = shown - skip
            if done == 0:
                uplift = uplift - weight * (gain - skip)
            else:
                place = int(np.searchsorted(valid, done - 1))
                uplift[place] += weight * (gain - shown[place])
            listed.append(rows)
            labels.append(uplift.astype(np.float32))
    if not listed:
        raise UsageError("no decision point has a candidate: nothing tells what showing one does")
    return _weights(
        "contextual",
        known,
        {"show": _ridge(np.concatenate(listed), np.concatenate(labels)), "skip": np.zeros(1 + known.g.shape[1], np.float32)},
    )


RIVALS: Mapping[str, Callable[[Rows], Weights]] = {
    "logistic": logistic,
    "thompson": thompson,
    "paired": paired,
    "contextual": contextual,
}


def _heads(known: Rows, scale: Mapping[str, Floats] | None = None) -> dict[str, tuple[Floats, NDArray[np.int64]]]:
    """For each head its rows of features, standardised, and the places of the rows that it learns from."""
    shown, skipped = np.flatnonzero(known.action > 0), np.flatnonzero(known.action == 0)
    scale = scale or scales(known)
    g, _ = standardised(known, scale)
    skip = np.concatenate([np.ones((len(skipped), 1), np.float32), g[skipped]], 1)
    return {"show": (_shown(known, shown, scale), shown), "skip": (skip, skipped)}


def _shown(known: Rows, at: NDArray[np.int64], scale: Mapping[str, Floats] | None = None) -> Floats:
    """The features of what was shown in the rows `at`: (n, 1 + G + 22)."""
    g, x = standardised(known, scale or scales(known))
    width = 1 + g.shape[1] + 2 * x.shape[2]
    rows = [show_rows(g[n], x[n, : known.mask[n].sum()])[known.action[n] - 1] for n in at]
    return np.array(rows, np.float32).reshape(len(rows), width)


def _ridge(rows: Floats, label: Floats) -> Floats:
    """Ridge regression whose constant (the first column) is not held back."""
    penalty = RIDGE * np.eye(rows.shape[1])
    penalty[0, 0] = 1e-6
    wide = rows.astype(np.float64)
    return np.linalg.solve(wide.T @ wide + penalty, wide.T @ label).astype(np.float32)


def _constant(size: int, chance: float) -> Floats:
    found = np.zeros(size, np.float32)
    found[0] = np.log(chance / (1 - chance))
    return found


def _weights(kind: str, known: Rows, heads: Mapping[str, Floats]) -> Weights:
    return Weights(kind=kind, arrays={**scales(known), **heads}, domains=known.domains)
