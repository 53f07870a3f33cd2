"""Probing: which candidate set to try next, by the expected value of what a trial would tell (UpliftMem; SPEC C2, C3).

In: for every task a normal belief over the outcomes of its candidate sets ("arms", the empty set among them), and a way to try one. Out:
the trials, chosen by EVSI in closed form under one budget over all tasks, and the beliefs after them. Outcomes of all arms are modelled,
not uplifts: labels that share one noisy baseline run would share its noise, and the choice is the same.

After Frazier, Powell and Dayanik (2009), "knowledge gradient for correlated beliefs", and Frazier and Powell (2010) for repeated trials.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, logsumexp

REPEATS = 8  # trials of one arm that KG* looks ahead to
LEAST = 1e-4  # value of a trial below which none is made
UNIFORM = 0.05  # share of trials drawn uniformly: an evaluation stream without bias

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Belief:
    """Outcomes of M arms are thought to be N(mu, sigma): shapes (M,) and (M, M)."""

    mu: Array
    sigma: Array

    def after(self, arm: int, outcome: float, noise: float) -> "Belief":
        """The belief once a trial of `arm` gave `outcome`, with that variance of its noise."""
        column = self.sigma[:, arm]
        total = noise + column[arm]
        return Belief(
            self.mu + column * ((outcome - self.mu[arm]) / total),
            self.sigma - np.outer(column, column) / total,
        )


def evsi(mu: Array, sigma: Array, noise: float, arm: int) -> float:
    """How much the best arm's mean is expected to rise by one trial of `arm` (SPEC C2), never below 0. O(M log M)."""
    return float(np.exp(log_evsi(mu, sigma, noise, arm)))


def log_evsi(mu: Array, sigma: Array, noise: float, arm: int) -> float:
    """The logarithm of `evsi`, so that values too small for a float can be compared; minus infinity where a trial changes nothing."""
    total = noise + sigma[arm, arm]
    if total <= 0:
        return -np.inf
    intercepts, slopes, breaks = envelope(mu, sigma[:, arm] / np.sqrt(total))
    if len(intercepts) < 2:
        return -np.inf
    return float(logsumexp(np.log(np.diff(slopes)) + log_f(np.abs(breaks))))


def kg_star(mu: Array, sigma: Array, noise: float, arm: int, most: int = REPEATS) -> tuple[float, int]:
    """The best value a trial over up to `most` repeats, and with how many. The value of trials is not concave in their number, so one
    alone can look useless where two are not.
    """
    values = [evsi(mu, sigma, noise / n, arm) / n for n in range(1, most + 1)]
    best = int(np.argmax(values))
    return values[best], best + 1


def envelope(intercepts: Array, slopes: Array) -> tuple[Array, Array, Array]:
    """The lines that are highest somewhere, by rising slope, and the places at which one takes over from the next (SPEC C2, step 2)."""
    order = np.lexsort((intercepts, slopes))
    a, b = intercepts[order].tolist(), slopes[order].tolist()
    kept: list[int] = []
    left: list[float] = []  # where each kept line begins to be the highest
    for new in range(len(a)):
        if kept and b[kept[-1]] == b[new]:  # of parallel lines the last is the higher
            kept.pop()
            left.pop()
        while kept:
            top = kept[-1]
            at = (a[top] - a[new]) / (b[new] - b[top])
            if len(kept) == 1 or at > left[-1]:
                break
            kept.pop()
            left.pop()
        left.append(at if kept else -np.inf)
        kept.append(new)
    return np.array([a[n] for n in kept]), np.array([b[n] for n in kept]), np.array(left[1:])


def log_f(c: Array) -> Array:
    """log of f(-c) = phi(c) - c Phi(-c), for c >= 0, without cancellation: by the scaled error function, and by its series far out."""
    density = -0.5 * c**2 - 0.5 * np.log(2 * np.pi)
    near = np.minimum(c, 10.0)
    mills = np.sqrt(np.pi / 2) * erfcx(near / np.sqrt(2))
    far = 1 / np.maximum(c, 10.0) ** 2
    series = np.log(far) + np.log1p(far * (-3 + far * (15 + far * (-105 + far * 945))))
    found: Array = density + np.where(c > 10.0, series, np.log(np.maximum(1 - near * mills, 1e-300)))
    return found


# ---- one event: many tasks, one budget ----

Policy = Literal["evsi", "random"]
Probe = Callable[[int, int], tuple[float, bool]]  # task and arm → outcome, and whether it had to be made (and is paid for)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One trial: where, what came of it, why it was made, and with which probability where that was drawn."""

    task: int
    arm: int
    outcome: float
    paid: bool
    how: Literal["value", "uniform"]
    value: float = 0.0
    propensity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The trials of an event in order, and the beliefs after them."""

    trials: tuple[Trial, ...]
    beliefs: tuple[Belief, ...]

    @property
    def paid(self) -> int:
        """Trials that had to be made."""
        return sum(t.paid for t in self.trials)


def acquire(
    beliefs: Sequence[Belief],
    probe: Probe,
    *,
    noise: float,
    budget: int = 300,
    policy: Policy = "evsi",
    uniform: float = UNIFORM,
    seed: int = 0,
) -> Acquired:
    """Try arms until `budget` new trials were made or none is worth `LEAST` (SPEC C3, event loop).

    Under "evsi" one heap over all tasks holds each one's best KG*; after a trial only its task is computed anew. "random" is the matched
    control: the same arms, drawn uniformly. What is drawn uniformly has its propensity.
    """
    rng = np.random.default_rng(seed)
    held, trials, paid = list(beliefs), list[Trial](), 0
    arms = [(task, arm) for task, belief in enumerate(held) for arm in range(len(belief.mu))]
    heap = [_best(belief, noise, task) for task, belief in enumerate(held)] if policy == "evsi" else []
    heapq.heapify(heap)
    tries = 0
    while arms and paid < budget and tries < 20 * budget:  # cached trials are free, and must end nevertheless
        tries += 1
        if policy == "random" or rng.random() < uniform:
            (task, arm), value, how = arms[int(rng.integers(len(arms)))], 0.0, "uniform"
        else:
            loss, task, arm = heap[0]
            value, how = -loss, "value"
            if value < LEAST:
                break
        outcome, new = probe(task, arm)
        propensity = 1 / len(arms) if how == "uniform" else 1.0
        trials.append(Trial(task=task, arm=arm, outcome=outcome, paid=new, how=how, value=value, propensity=propensity))  # type: ignore[arg-type]
        held[task] = held[task].after(arm, outcome, noise)
        paid += new
        if policy == "evsi":
            at = next(n for n, entry in enumerate(heap) if entry[1] == task)
            heap[at] = _best(held[task], noise, task)
            heapq.heapify(heap)
    return Acquired(trials=tuple(trials), beliefs=tuple(held))


def _best(belief: Belief, noise: float, task: int) -> tuple[float, int, int]:
    """The task's entry of the heap: minus the value of its best trial, itself, and the arm."""
    values = [kg_star(belief.mu, belief.sigma, noise, arm)[0] for arm in range(len(belief.mu))]
    arm = int(np.argmax(values))
    return -values[arm], task, arm
