"""What learned reading takes: a decision of each learned selector, EVSI of a task, and training on 20,000 decisions (the extra `train`).

Weights are drawn at random: what they say does not change what they take. Training is on the simulated domain.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

from bench.choices import drawn_candidates
from bench.figures import Figure, Scale, clocked, figure, in_turns
from mulligan.embeddings import StaticEmbedder
from mulligan.read.features import GLOBAL, SLOT
from mulligan.read.learned import Dqn, Linear, Thompson
from mulligan.read.uplift import Uplift
from mulligan.read.weights import Weights
from mulligan.records import Situation

DECISION, SETS, EVSI, TRAINING = 0.2, 2.0, 5.0, 60_000.0  # milliseconds
RECALLED = 50
G, F = len(GLOBAL) + 1, len(SLOT)


def learning(scale: Scale, folder: Path) -> Iterator[Figure]:
    """Selectors beside the largest of three; EVSI beside sorting its lines; training once."""
    three, situation = drawn_candidates(scale.times, 3, folder)
    for served in (Dqn(_dqn()), Linear(_linear("paired")), Thompson(_linear("thompson"))):
        taken, least = in_turns(
            scale.times,
            clocked(lambda n, s=served: s.select(situation, three[n])),  # type: ignore[misc]
            clocked(lambda n: max(candidate.score for candidate in three[n])),
        )
        yield figure(f"selector {served.name}", taken, "the largest of three", least, bar=DECISION)
    yield _sets(scale, folder, situation)
    yield from _trained(scale)


def _sets(scale: Scale, folder: Path, situation: Situation) -> Figure:
    many, _ = drawn_candidates(scale.times, RECALLED, folder)
    embedder, rng = StaticEmbedder(), np.random.default_rng(0)
    vectors = {c.record.id: rng.normal(size=embedder.dim).astype(np.float32) / 16 for found in many for c in found}
    served = Uplift(_uplift(embedder), embedder, lambda keys: np.stack([vectors[key] for key in keys]))
    for found in many[:3]:
        served.select(situation, found)  # the first decisions ask for vectors and load words
    taken, least = in_turns(
        scale.times,
        clocked(lambda n: served.select(situation, many[n])),
        clocked(lambda n: max(candidate.score for candidate in many[n])),
    )
    return figure("selector of sets, 32 of 50 records", taken, "the largest of fifty", least, bar=SETS)


def _trained(scale: Scale) -> Iterator[Figure]:
    try:
        from mulligan.train import dqn
        from mulligan.train.planted import Domain, play
        from mulligan.train.probing import evsi
        from mulligan.train.rows import Penalties, rows
    except ImportError:
        return
    from mulligan.read.learned import Explore

    rng = np.random.default_rng(0)
    mu, root = rng.normal(size=32) * 0.2, rng.normal(size=(32, 32)) * 0.1
    sigma = root @ root.T
    taken, least = in_turns(
        scale.times,
        clocked(lambda n: [evsi(mu, sigma, 0.1, arm) for arm in range(32)]),
        clocked(lambda n: [np.sort(mu) for _ in range(32)]),
    )
    yield figure("EVSI of a task with 32 arms", taken, "sorting as often", least, bar=EVSI)
    domain = Domain(0)
    played = [play(domain, posed, Explore(round_), rng) for round_ in range(4) for posed in domain.tasks(scale.decisions // 7)]
    known = rows(played, domains=("planted",), penalties=Penalties())
    known = known.take(np.arange(min(len(known), scale.decisions)))
    began = perf_counter()
    dqn.train(known, dqn.Settings(least=1))
    took = 1_000 * (perf_counter() - began)
    whole = scale.decisions == Scale().decisions
    yield figure("training the DQN, three seeds", [took], size=len(known), bar=TRAINING if whole else None)


def _weights(kind: str, arrays: dict[str, np.ndarray], embedder: str = "") -> Weights:
    ends = {"g_mean": np.zeros(G), "g_scale": np.ones(G), "x_mean": np.zeros(F), "x_scale": np.ones(F)}
    return Weights(kind=kind, arrays={n: a.astype(np.float32) for n, a in {**ends, **arrays}.items()}, domains=("sql",), embedder=embedder)


def _dqn() -> Weights:
    rng, arrays = np.random.default_rng(0), {}
    for head, size in (("show", G + 2 * F), ("skip", G + F)):
        for n, (into, out) in enumerate(((size, 64), (64, 64), (64, 1))):
            arrays |= {f"{head}.{n}.weight": rng.normal(size=(3, into, out)) / 8, f"{head}.{n}.bias": rng.normal(size=(3, 1, out))}
    return _weights("dqn", arrays)


def _linear(kind: str) -> Weights:
    rng, sizes = np.random.default_rng(0), {"show": 1 + G + 2 * F, "skip": 1 + G}
    arrays = {head: rng.normal(size=size) for head, size in sizes.items()}
    return _weights(kind, arrays | {f"{head}_factor": np.tril(rng.normal(size=(size, size))) for head, size in sizes.items()})


def _uplift(embedder: StaticEmbedder) -> Weights:
    rng = np.random.default_rng(0)
    arrays = {"projection": rng.normal(size=(embedder.dim, 16)), "sign": rng.normal(size=(3, 1, 8)), "size": np.array([5.0])}
    for name, into, out in (("member", F + G + 32, 32), ("alone", 32, 1), ("pair", 32, 8)):
        arrays |= {f"{name}.weight": rng.normal(size=(3, into, out)) / 8, f"{name}.bias": rng.normal(size=(3, 1, out))}
    return _weights("uplift", arrays | {"knots": np.array([[-9.0, 9.0], [-9.0, 9.0]])}, embedder.id)
