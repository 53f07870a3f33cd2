"""The small scorer of sets: what a whole set of records adds over none, from features and vectors (UpliftMem; SPEC C3).

In: examples, one a task, with sets that were tried and what is believed of their uplift. Out: weights for `read.uplift`, calibrated on
tasks that each network did not see. The value loss fits the uplift, the policy loss the choice among the sets that were tried; each can
be left out. As many networks as seeds are trained side by side, each without its own share of the tasks, and serving takes their mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mulligan.read.features import SLOT, Floats
from mulligan.read.sets import Set
from mulligan.read.uplift import member_rows
from mulligan.read.weights import Weights
from mulligan.train.rows import scale_of
from mulligan.train.stacked import Layer

ISOTONIC = 200  # points from which the calibration is isotonic instead of affine
BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What a scorer of sets is fitted to, small or large (SPEC C3). `value` and `policy` switch the two losses."""

    value: bool = True
    policy: bool = True
    policy_share: float = 0.5
    temperature: float = 0.1
    delta: float = 0.5  # of the Huber loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Losses):
    """Of the small scorer."""

    seeds: tuple[int, ...] = (0, 1, 2)
    size: int = 5  # K: records a set
    projection: int = 16
    hidden: int = 32
    rank: int = 8  # of what pairs make together
    rate: float = 2e-3
    decay: float = 3.0
    updates: int = 1_500
    batch: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One task: features g (G,), x (n, 11) not standardised, vectors of the records (n, D) and the task (D,); what was learnt of m sets.

    Shapes (m,): the `uplift` that was seen over the empty set, its variance, and what is `believed` of it. The value loss fits what was
    seen: fitting beliefs, which start at the scorer's own values, would teach it itself. The policy loss compares beliefs.
    """

    g: Floats
    x: Floats
    vectors: Floats
    asked: Floats
    sets: tuple[Set, ...]
    uplift: Floats
    variance: Floats
    believed: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How scores on tasks that a network did not see agree with what was found there, after the map `knots` (2, k) from score to uplift.

    `slope` is that of the uplift on the raw score, `error` the expected calibration error over ten bins, `signs` the share of sets whose
    sign is told right.
    """

    points: int
    slope: float
    error: float
    signs: float
    knots: Floats


class Scorer(nn.Module):
    """The network of `read.uplift`, for several seeds at once."""

    def __init__(self, size: int, settings: Settings) -> None:
        super().__init__()
        generators = [torch.Generator().manual_seed(seed) for seed in settings.seeds]
        self.member = Layer(size, settings.hidden, generators)
        self.alone = Layer(settings.hidden, 1, generators)
        self.pair = Layer(settings.hidden, settings.rank, generators)
        half = settings.rank // 2
        self.sign = nn.Parameter(torch.tensor([1.0] * half + [-1.0] * (settings.rank - half)).expand(len(generators), 1, -1).clone())

    def forward(self, rows: Tensor, places: Tensor) -> Tensor:
        """Rows of records (seeds, B, n + 1, R), the last one a blank; places (seeds, B, m, K), n where a set is smaller.

        Gives the uplift of the sets, (seeds, B, m): what members bring alone, and pairs of them beyond that.
        """
        hidden = torch.relu(self.member(rows))
        parts = torch.cat([self.alone(hidden), self.pair(hidden)], -1)
        parts = torch.cat([parts[..., :-1, :], torch.zeros_like(parts[..., :1, :])], -2)  # the blank adds nothing
        s, b, m, k = places.shape
        inside = parts.gather(2, places.reshape(s, b, m * k, 1).expand(-1, -1, -1, parts.shape[-1])).reshape(s, b, m, k, -1)
        alone, made = inside[..., 0], inside[..., 1:]
        both = made.sum(3) ** 2 - (made**2).sum(3)  # twice the sum over pairs
        return alone.sum(3) + (both * self.sign[:, :, None]).sum(-1) / 2


def fit(examples: Sequence[Example], settings: Settings, *, embedder: str, domains: Sequence[str] = ()) -> tuple[Weights, Calibration]:
    """Train the scorer and calibrate it. Raises ValueError when no example has a set."""
    examples = [e for e in examples if e.sets]
    if not examples:
        raise ValueError("no task with a set that was tried")
    scale = {**scale_of("g", np.stack([e.g for e in examples])), **scale_of("x", np.concatenate([e.x for e in examples]))}
    data, many = _tensors(examples, scale, settings.size, settings.projection), len(settings.seeds)
    spread = max(3, many)  # folds; a network alone goes without a third of the tasks
    fold = np.arange(len(examples)) % spread if len(examples) >= 2 * spread else np.full(len(examples), -1)
    scorer = Scorer(data["rows"].shape[-1], settings)
    optimiser = torch.optim.AdamW(scorer.parameters(), lr=settings.rate, weight_decay=settings.decay)
    generators = [torch.Generator().manual_seed(100 + seed) for seed in settings.seeds]
    seen = [torch.as_tensor(np.flatnonzero(fold != number)) for number in range(many)]
    for _ in range(settings.updates):
        at = torch.stack([own[torch.randint(len(own), (settings.batch,), generator=g)] for own, g in zip(seen, generators, strict=True)])
        optimiser.zero_grad(set_to_none=True)
        loss(scorer(*(data[name][at] for name in ("rows", "places"))), data, at, settings).backward()
        optimiser.step()
    with torch.no_grad():
        every = torch.arange(len(examples)).expand(many, -1)
        scores = scorer(*(data[name][every] for name in ("rows", "places"))).numpy()
    calibration = _calibrated(scores, data, fold)
    arrays = {**scale, "knots": calibration.knots, "size": np.array([settings.size], np.float32)}
    arrays["sign"] = scorer.sign.detach().numpy()
    for name in ("member", "alone", "pair"):
        layer = getattr(scorer, name)
        arrays |= {f"{name}.weight": layer.weight.detach().numpy(), f"{name}.bias": layer.bias.detach().numpy()}
    return Weights(kind="uplift", arrays=arrays, domains=tuple(domains), embedder=embedder), calibration


def loss(scores: Tensor, data: Mapping[str, Tensor], at: Tensor, settings: Losses) -> Tensor:
    """Value: the weighted mean over all sets of the batch. Policy: the mean over its tasks."""
    value, weight, policy = terms(scores, {name: data[name][at] for name in ("uplift", "variance", "believed", "tried")}, settings)
    return settings.value * value.sum() / weight.sum() + settings.policy * settings.policy_share * policy.mean()


def terms(scores: Tensor, known: Mapping[str, Tensor], settings: Losses) -> tuple[Tensor, Tensor, Tensor]:
    """From shapes (..., m), for each task: the sum of value losses, that of their weights, and the policy loss.

    Value: Huber, weighted by certainty. Policy: cross-entropy between the choices among the tried sets and the empty one.
    """
    tried = known["tried"]
    weight = tried * certainty(known["variance"])
    huber = nn.functional.huber_loss(scores, known["uplift"], reduction="none", delta=settings.delta)
    nothing = torch.zeros_like(scores[..., :1])
    wanted, got = (
        torch.cat([nothing, part.masked_fill(tried == 0, -torch.inf)], -1) / settings.temperature for part in (known["believed"], scores)
    )
    crossed = torch.where(torch.isfinite(wanted), wanted.softmax(-1) * got.log_softmax(-1).clamp(min=-1e4), torch.zeros_like(wanted))
    policy = -crossed.sum(-1) * settings.temperature  # on the scale of the values
    return (huber * weight).sum(-1), weight.sum(-1), policy


def certainty(variance: Tensor) -> Tensor:
    """What a label of that variance weighs in the value loss."""
    return 1 / (variance + 0.05)


def _calibrated(scores: Floats, data: Mapping[str, Tensor], fold: NDArray[np.int64]) -> Calibration:
    """From scores (seeds, N, m): of each task, that of the network which did not see it; of all networks where all saw every task."""
    tried = data["tried"].numpy().astype(bool)
    held = scores.mean(0) if (fold < 0).all() else np.stack([scores[min(number, len(scores) - 1), n] for n, number in enumerate(fold)])
    tried &= (fold < len(scores))[:, None]  # a network alone leaves tasks that it saw
    return calibration(held[tried].astype(np.float64), data["uplift"].numpy()[tried].astype(np.float64))


def calibration(x: NDArray[np.float64], y: NDArray[np.float64]) -> Calibration:
    """How scores `x` read as uplifts, from what was found there, `y`, both (n,): isotonic from `ISOTONIC` points, else affine.

    Error and signs are of each half under the map that the other half gives.
    """
    spread = float(x.var())
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / spread) if spread > 1e-12 else 0.0
    knots, half = _knots(x, y), np.arange(len(x)) % 2
    mapped = np.interp(x, *knots)
    if len(x) >= 4:
        for side in (0, 1):
            mapped[half == side] = np.interp(x[half == side], *_knots(x[half != side], y[half != side]))
    bins = np.array_split(np.argsort(mapped), min(BINS, len(mapped)))
    error = sum(len(b) * abs(mapped[b].mean() - y[b].mean()) for b in bins) / len(mapped)
    signs = float((np.sign(mapped) == np.sign(y))[y != 0].mean()) if (y != 0).any() else 1.0
    return Calibration(points=len(x), slope=slope, error=float(error), signs=signs, knots=knots.astype(np.float32))


def _knots(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The map from score to uplift, shape (2, k)."""
    if len(x) >= ISOTONIC:
        from sklearn.isotonic import IsotonicRegression

        iso = IsotonicRegression(out_of_bounds="clip").fit(x, y)
        return np.stack([iso.X_thresholds_, iso.y_thresholds_])
    spread, ends = float(x.var()), np.array([x.min() - 1, x.max() + 1])
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / spread) if spread > 1e-12 else 0.0
    return np.stack([ends, y.mean() + max(0.0, slope) * (ends - x.mean())])


def _tensors(examples: Sequence[Example], scale: dict[str, Floats], size: int, width: int) -> dict[str, Tensor]:
    """All examples padded to the same shapes; adds the projection to `scale`."""
    distinct = np.unique(np.concatenate([e.vectors for e in examples]).round(5), axis=0).astype(np.float64)
    _, _, directions = np.linalg.svd(distinct, full_matrices=False)
    projection = np.zeros((distinct.shape[1], width), np.float32)
    projection[:, : min(width, len(directions))] = directions[:width].T
    scale["projection"] = projection * np.float32(np.sqrt(width))
    n, m = max(len(e.x) for e in examples), max(len(e.sets) for e in examples)
    rows = np.zeros((len(examples), n + 1, len(SLOT) + len(scale["g_mean"]) + 2 * width), np.float32)
    places = np.full((len(examples), m, size), n)
    parts = {name: np.zeros((len(examples), m), np.float32) for name in ("uplift", "variance", "believed", "tried")}
    for row, e in enumerate(examples):
        g, x = (e.g - scale["g_mean"]) / scale["g_scale"], (e.x - scale["x_mean"]) / scale["x_scale"]
        rows[row, : len(e.x)] = member_rows(scale["projection"], g, x, e.vectors, e.asked)
        for at, one in enumerate(e.sets):
            places[row, at, : len(one)] = one
        for name, values in (("uplift", e.uplift), ("variance", e.variance), ("believed", e.believed), ("tried", 1)):
            parts[name][row, : len(e.sets)] = values
    arrays = {"rows": rows, "places": places, **parts}
    return {name: torch.as_tensor(array) for name, array in arrays.items()}
