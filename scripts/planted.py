"""What learners reach where the truth is planted: `python scripts/planted.py selectors|sets [--seeds N] [--tasks N] [--events N]`.

`selectors`: the DQN and its rivals on one record or none, against the best policy, which knows. `sets`: the selector of sets over events
of 400 tasks with 300 probes each, by EVSI and at random, against the best set. Every line is one seed; figures: docs/results/learning.md.
"""

import argparse
import time
from dataclasses import replace
from itertools import combinations

import numpy as np

from mulligan.protocols import Selector
from mulligan.read.learned import Dqn, Linear, Thompson
from mulligan.read.selection import Never, Threshold, Top1
from mulligan.read.sets import Set
from mulligan.train import dqn, event, planted, rivals, uplift
from mulligan.train.event import Posing
from mulligan.train.planted import Domain, Posed, Uniform
from mulligan.train.rows import Penalties, Rows, rows

HELD = 400
EVENT, PROBES, SIZE = 400, 300, 3


def explored(domain: Domain, many: int, shuffle: bool = False) -> Rows:
    """The decisions of so many tasks, each played twice from the same states, so that regression on pairs has some."""
    tasks, rng, chooser = domain.tasks(many // 2), np.random.default_rng(domain.seed), Uniform(domain.seed)
    played = [planted.play(domain, posed, chooser, rng) for _ in range(2) for posed in tasks]
    return rows(planted.shuffled(played, domain.seed) if shuffle else played, domains=("planted",), penalties=Penalties())


def selectors(seeds: int, many: int) -> None:
    """One line a seed and selector: value, its share of the best policy's, how often it skips where every candidate harms."""
    for seed in range(seeds):
        domain = Domain(seed)
        held, known = domain.tasks(HELD, stream=1), explored(domain, many)
        harmful = [posed for posed in held if domain.harms(posed)]
        started = time.perf_counter()
        chosen: dict[str, Selector] = {"never": Never(), "top1": Top1(), "threshold": Threshold(), "dqn": Dqn(dqn.train(known)[0])}
        seconds = time.perf_counter() - started
        chosen |= {name: (Thompson if name == "thompson" else Linear)(fit(known)) for name, fit in rivals.RIVALS.items()}
        if seed < 3:
            chosen["dqn, outcomes shuffled"] = Dqn(dqn.train(explored(domain, many, shuffle=True))[0])
        best, never = (float(np.mean([planted.value(domain, p, s, Penalties()) for p in held])) for s in (None, Never()))
        print(f"seed {seed}: {len(known)} decisions, dqn {seconds:.0f} s, best {best:.3f}, never {never:.3f}, all harm at {len(harmful)}")
        for name, one in chosen.items():
            value = float(np.mean([planted.value(domain, p, one, Penalties()) for p in held]))
            skips = float(np.mean([one.select(planted.situation(p, ()), p.candidates).chosen is None for p in harmful]))
            gain = (value - never) / (best - never)
            print(
                f"  {name:24} value {value:.3f}  of best {value / best:.3f}  of gain {gain:+.2f}  skips {skips:.2f}",
                flush=True,
            )


def posing(domain: Domain, posed: Posed) -> Posing:
    """A task as the scorer of sets sees it."""
    vectors = np.stack([domain.planted[c.record.id].vector for c in posed.candidates])
    return Posing.of(planted.situation(posed, ()), posed.candidates, vectors=vectors, asked=posed.vector, domains=("planted",))


def chance(domain: Domain, posed: Posed, one: Set) -> float:
    """The true chance with a set of places."""
    return domain.chance(posed, [posed.candidates[place].record.id for place in one])


def best_set(domain: Domain, posed: Posed) -> float:
    """The true chance with the best set."""
    kinds = [domain.planted[c.record.id] for c in posed.candidates]
    useful = [n for n, p in enumerate(kinds) if p.kind in ("helper", "twin", "left", "right") and p.topic == posed.topic]
    return max(chance(domain, posed, one) for size in range(min(SIZE, len(useful)) + 1) for one in combinations(useful, size))


def choice(weights: event.Weights, p: Posing) -> Set:
    """What serving would show."""
    score = event.scorer(weights, p)
    sets = event.drawn_up(replace(p, executed={}), score, SIZE)
    raw = score(sets[1:])
    values = np.interp(raw, *weights.arrays["knots"])
    best = int(np.lexsort((raw, values))[-1])
    return sets[1 + best] if values[best] > 0 else ()


def sets(seeds: int, events: int) -> None:
    """One line a seed, way of probing and event."""
    for seed in range(seeds):
        domain = Domain(seed, slots=50)
        held = domain.tasks(HELD // 2, stream=1)
        seen = [posing(domain, posed) for posed in held]
        best, never = float(np.mean([best_set(domain, p) for p in held])), float(np.mean([p.chance for p in held]))
        single = float(np.mean([max(chance(domain, p, one) for one in [(), *((n,) for n in range(len(p.candidates)))]) for p in held]))
        print(f"seed {seed}: best set {best:.3f}, best single record {single:.3f}, never {never:.3f}")
        for policy in ("evsi", "random", "none"):
            _line(domain, policy, events, held, seen, (best, never))


def _line(domain: Domain, policy: str, events: int, held: list[Posed], seen: list[Posing], ends: tuple[float, float]) -> None:
    (best, never), rng = ends, np.random.default_rng([domain.seed, 7])
    tasks, known, weights, paid = domain.tasks(EVENT * events), list[Posing](), None, 0
    for number in range(events):
        for posed in tasks[number * EVENT : (number + 1) * EVENT]:
            p = posing(domain, posed)
            drawn = tuple(sorted(rng.choice(min(12, len(p.x)), min(SIZE, len(p.x)), replace=False).tolist()))
            shown = {(), choice(weights, p) if weights is not None and rng.random() > 0.1 else drawn}
            known.append(replace(p, executed={one: [float(rng.random() < chance(domain, posed, one))] for one in shown}))

        def execute(at: int, one: Set) -> tuple[float, bool]:
            return float(rng.random() < chance(domain, tasks[at], one)), True

        how = event.Settings(
            budget=0 if policy == "none" else PROBES,
            policy=policy,
            seed=number,
            scorer=uplift.Settings(size=SIZE, updates=1_500 + 500 * number),
        )
        got = event.run(known, execute, how, embedder="planted", domains=("planted",))
        weights, paid = got.weights, paid + got.paid
        for t in got.trials:
            one, p = got.sets[t.task][t.arm], known[t.task]
            known[t.task] = replace(p, executed={**p.executed, one: [*p.executed.get(one, ()), t.outcome]})
        chosen = [choice(weights, p) for p in seen]
        value = float(np.mean([chance(domain, posed, one) for posed, one in zip(held, chosen, strict=True)]))
        harmful = [one for posed, one in zip(held, chosen, strict=True) if domain.harms(posed)]
        skips = sum(not one for one in harmful) / max(1, len(harmful))
        c, gain = got.calibration, (value - never) / (best - never)
        print(
            f"  {policy:6} event {number + 1}: {len(known)} tasks, {paid} probes  value {value:.3f}  of best {value / best:.3f}  "
            f"of gain {gain:+.2f}  skips {skips:.2f}  slope {c.slope:.2f}  ece {c.error:.3f}  signs {c.signs:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("selectors", "sets"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=9_000, help="episodes that selectors learn from")
    parser.add_argument("--events", type=int, default=5)
    given = parser.parse_args()
    selectors(given.seeds, given.tasks) if given.what == "selectors" else sets(given.seeds, given.events)
