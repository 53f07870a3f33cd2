"""Rows: the decision points of episodes as arrays, which every learner of selectors trains on.

In: episodes that were played with a memory, and the records that their receipts name. Out: `Rows`, one row a decision point, in the order
of the episodes. Features come from `read.features`, the function that serves. Rewards are dense in cost and terminal in success (SPEC
A3.6). Not promised: what a record's statistics were at the time; those of now count, so a store should not change while it is explored.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import median

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import UsageError
from mulligan.nouns import content_id
from mulligan.points import seen
from mulligan.read.features import SLOT, Floats, features
from mulligan.records import Attempt, Candidate, Episode, Receipt, Record, Situation
from mulligan.store import StoredRecord

GAMMA = 0.99
MOST_COST = 0.3  # median cost of an episode without memory, so that solving always beats failing cheaply

Lookup = Callable[[Sequence[str]], Sequence[StoredRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Penalties:
    """What a step costs: for an evaluator call, for a failed attempt, for a thousand tokens."""

    call: float = 0.02
    failure: float = 0.05
    tokens: float = 0.01

    def cost(self, attempt: Attempt) -> float:
        """Of one attempt."""
        usage = attempt.usage
        return self.call * usage.evaluator_calls + self.failure * (not attempt.verdict.solved) + self.tokens * usage.tokens / 1_000

    def scaled(self, unaided: Iterable[Episode]) -> "Penalties":
        """The same penalties, made smaller where the median episode without memory would cost `MOST_COST` or more (SPEC A3.6)."""
        costs = [sum(map(self.cost, e.attempts)) for e in unaided]
        share = MOST_COST / most if costs and (most := median(costs)) >= MOST_COST else 1.0
        return Penalties(call=self.call * share, failure=self.failure * share, tokens=self.tokens * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """N decision points with up to S candidates each. Actions are 0 for skip and 1 + place for a candidate."""

    g: Floats  # (N, G)
    x: Floats  # (N, S, 11), zeros where there is no candidate
    mask: NDArray[np.bool_]  # (N, S), true where there is one
    action: NDArray[np.int64]  # (N,)
    reward: Floats  # (N,) of the step
    gain: Floats  # (N,) reward to go, discounted
    solved: NDArray[np.bool_]  # (N,) whether the episode was, in the end
    follows: NDArray[np.int64]  # (N,) the row after this one in its episode, or -1
    propensity: Floats  # (N,) of the action
    point: NDArray[np.str_]  # (N,) equal for the same task after the same actions
    group: NDArray[np.str_]  # (N,)
    domains: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.action)

    def take(self, places: NDArray[np.int64]) -> "Rows":
        """Those rows alone. What followed is kept where it is among them."""
        new = np.full(len(self) + 1, -1)
        new[places] = np.arange(len(places))
        picked = {f.name: getattr(self, f.name)[places] for f in fields(self) if f.name not in ("domains", "follows")}
        return Rows(**picked, follows=new[self.follows[places]], domains=self.domains)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One decision point as selectors saw it, what was done, and the attempt that came of it."""

    situation: Situation
    candidates: tuple[Candidate, ...]
    receipt: Receipt
    attempt: Attempt

    @property
    def action(self) -> int:
        """0 for skip, 1 + place of the first record that was shown."""
        return 1 + self.receipt.candidates.index(self.receipt.shown[0]) if self.receipt.shown else 0

    @property
    def key(self) -> str:
        """The same for the same task after the same actions."""
        return content_id("pt", [self.situation.task.scope, self.situation.task.id, [a.action for a in self.situation.history]])


def points(episode: Episode, lookup: Lookup, tokens: Callable[[Record], int]) -> list[Point]:
    """The decision points of `episode`. `lookup` gives stored records by id, `tokens` what showing a record costs."""
    attempts, found = {a.index: a for a in episode.attempts}, []
    for receipt in episode.receipts:
        if receipt.attempt not in attempts:
            continue
        history = [a for a in episode.attempts if a.index < receipt.attempt]
        situation, candidates = seen(receipt, lookup(receipt.candidates), episode.task, history, tokens)
        found.append(Point(situation=situation, candidates=candidates, receipt=receipt, attempt=attempts[receipt.attempt]))
    return found


def rows(episodes: Iterable[Sequence[Point]], *, domains: Sequence[str], penalties: Penalties) -> Rows:
    """The rows of episodes, each given by its points. Raises UsageError where there is none."""
    listed = [list(points) for points in episodes if points]
    flat = [point for points in listed for point in points]
    if not flat:
        raise UsageError("there is no decision point to learn from: explore with memory on training tasks first")
    slots = max(1, max(len(point.candidates) for point in flat))
    seen = [features(point.situation, point.candidates, domains) for point in flat]
    x, mask = np.zeros((len(flat), slots, len(SLOT)), np.float32), np.zeros((len(flat), slots), np.bool_)
    for n, (_, here) in enumerate(seen):
        x[n, : len(here)], mask[n, : len(here)] = here, True
    reward = np.array([point.attempt.verdict.solved - penalties.cost(point.attempt) for point in flat], np.float32)
    follows = np.concatenate([[*range(start + 1, start + len(p)), -1] for start, p in _starts(listed)]).astype(np.int64)
    gain = reward.copy()
    for n in range(len(flat) - 1, -1, -1):
        gain[n] += GAMMA * gain[follows[n]] if follows[n] >= 0 else 0.0
    return Rows(
        g=np.stack([g for g, _ in seen]),
        x=x,
        mask=mask,
        action=np.array([point.action for point in flat]),
        reward=reward,
        gain=gain,
        solved=np.array([points[-1].attempt.verdict.solved for points in listed for _ in points]),
        follows=follows,
        propensity=np.array([point.receipt.selection.propensity for point in flat], np.float32),
        point=np.array([point.key for point in flat]),
        group=np.array([point.situation.task.group for point in flat]),
        domains=tuple(domains),
    )


def scales(known: Rows) -> Mapping[str, Floats]:
    """Mean and scale of every feature, as weights carry them: g over rows, x over candidates; 1 where nothing varies."""
    x = known.x[known.mask].reshape(-1, len(SLOT)) if known.mask.any() else np.zeros((1, len(SLOT)), np.float32)
    return {**scale_of("g", known.g), **scale_of("x", x)}


def scale_of(name: str, values: Floats) -> dict[str, Floats]:
    """Mean and scale of each column of `values`, under that name."""
    mean, spread = values.mean(0, np.float64), values.std(0, np.float64)  # in float32 a constant would seem to vary
    return {f"{name}_mean": mean.astype(np.float32), f"{name}_scale": np.where(spread > 1e-6, spread, 1.0).astype(np.float32)}


def standardised(known: Rows, scale: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """`g` and `x` of the rows by that scale; places without a candidate stay 0."""
    x = (known.x - scale["x_mean"]) / scale["x_scale"]
    return (known.g - scale["g_mean"]) / scale["g_scale"], np.where(known.mask[..., None], x, np.float32(0))


def _starts(listed: Sequence[Sequence[Point]]) -> Iterable[tuple[int, Sequence[Point]]]:
    start = 0
    for points in listed:
        yield start, points
        start += len(points)
