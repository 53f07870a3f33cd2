"""What a decision of the cross-encoder costs, and whether it learns where the truth is planted in text.

    python scripts/try_crossencoder.py time                                   # one thread, lessons as an agent is shown them
    python scripts/try_crossencoder.py learn --tasks 200 --rate 1e-3 --epochs 6
    python scripts/try_crossencoder.py learn --shuffle                        # the same labels, dealt out to other sets
    python scripts/try_crossencoder.py learn --small                          # the small scorer, which sees no text

Tasks and records are those of `train.planted`, put into words: a question says what it is about and how hard it is, a record what it is
about and what it does. Every task has up to four candidates; sets of one and two were tried four times each. Labels are what was seen
less the true chance without a record.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median

import numpy as np

from mulligan.read.features import features
from mulligan.read.sets import Set, candidate_sets
from mulligan.records import Record
from mulligan.train import crossencoder, event, planted, uplift
from mulligan.train.crossencoder import Example, Scorer, Settings
from mulligan.train.encoders import open_encoder
from mulligan.train.uplift import Calibration

ABOUT = ("rivers", "mountains", "lakes", "cities", "roads", "islands")
PLACES = ("Kansas", "Ohio", "Texas", "Maine", "Utah", "Iowa", "Idaho", "Nevada")
HARD = {0.05: "Very hard", 0.25: "Hard", 0.5: "Fair", 0.9: "Very easy"}
SAID = {
    "helper": "Count the {0} with COUNT(*) and do not list them.",
    "twin": "For {0}, ask for the number of rows, not for the rows.",
    "left": "First half for {0}: join them to their states by name.",
    "right": "Second half for {0}: after the join, keep one row of each name.",
    "lookalike": "How many {0}: return every row of the table as it is.",
    "popular": "Read the question twice before you answer.",
    "filler": "The table of {0} was made in the spring.",
}
TRIES = 4
Judge = Callable[[planted.Posed, Example], np.ndarray]


def worded(one: planted.Planted) -> Record:
    """The record with words that say what it is."""
    about = ABOUT[one.topic] if one.topic >= 0 else "anything"
    situation = f"a question about {about}"
    return replace(one.record, kind="principle", situation=situation, principle=SAID[one.kind].format(about))


def examples(domain: planted.Domain, many: int, stream: int) -> list[tuple[planted.Posed, Example, np.ndarray]]:
    """Tasks in words, with every set of one and two, what was seen of each, and its true chance; the empty set's comes first."""
    rng = np.random.default_rng([domain.seed, stream])
    found = []
    for posed in domain.tasks(many, stream):
        ids = [c.record.id for c in posed.candidates]
        if not ids:
            continue
        sets: list[Set] = [s for size in (1, 2) for s in combinations(range(len(ids)), size)]
        chance = np.array([domain.chance(posed, [ids[place] for place in one]) for one in [(), *sets]])
        seen = rng.binomial(TRIES, chance) / TRIES
        known = (seen[1:] - chance[0]).astype(np.float32)
        asked = f"{HARD[posed.chance]}: how many {ABOUT[posed.topic]} are there in {PLACES[rng.integers(len(PLACES))]}?"
        lessons = tuple(worded(domain.planted[one]) for one in ids)
        variance = np.full(len(sets), 0.25 / TRIES, np.float32)
        one = Example(asked=asked, records=lessons, sets=tuple(sets), uplift=known, variance=variance, believed=known)
        found.append((posed, one, chance))
    return found


def some(one: Example, many: int, rng: np.random.Generator) -> Example:
    """With so many of its sets."""
    kept = np.sort(rng.permutation(len(one.sets))[:many])
    parts = {name: getattr(one, name)[kept] for name in ("uplift", "variance", "believed")}
    return replace(one, sets=tuple(one.sets[n] for n in kept), **parts)


def numbers(domain: planted.Domain, posed: planted.Posed, one: Example) -> uplift.Example:
    """The same task as the small scorer sees it: features, with the counts of earlier uses among them, and vectors."""
    g, x = features(planted.situation(posed, ()), posed.candidates)
    vectors = np.stack([domain.planted[c.record.id].vector for c in posed.candidates])
    labels = {name: getattr(one, name) for name in ("sets", "uplift", "variance", "believed")}
    return uplift.Example(g=g, x=x, vectors=vectors, asked=posed.vector, **labels)


def fit(given: argparse.Namespace, domain: planted.Domain, known: Sequence[tuple[planted.Posed, Example]]) -> tuple[Judge, Calibration]:
    """What gives calibrated uplifts of all sets of a task, and how it is calibrated."""
    if given.small:
        weights, told = uplift.fit([numbers(domain, *one) for one in known], uplift.Settings(), embedder="planted")

        def small(posed: planted.Posed, one: Example) -> np.ndarray:
            e = numbers(domain, posed, one)
            posing = event.Posing(name="", g=e.g, x=e.x, vectors=e.vectors, asked=e.asked)
            return np.interp(event.scorer(weights, posing)(one.sets), *told.knots)

        return small, told
    settings = Settings(rate=given.rate, head_rate=given.head_rate, epochs=given.epochs, seed=given.seed)
    settings = replace(settings, value=not given.no_value, policy=not given.no_policy)
    scorer, told = crossencoder.fit([e for _, e in known], settings, encoder=given.encoder)
    return lambda posed, one: scorer.calibrated(scorer.of(one.asked, one.records)(one.sets)), told


def learn(given: argparse.Namespace) -> dict[str, object]:
    """Train on some tasks, choose on others: the mean chance of what was chosen, as a share of the way from no record to the best set."""
    domain = planted.Domain(given.seed, slots=4)
    rng = np.random.default_rng(given.seed)
    known = [(posed, some(e, given.sets, rng)) for posed, e, _ in examples(domain, given.tasks, 0)]
    if given.shuffle:
        dealt = rng.permutation(np.concatenate([e.uplift for _, e in known]))
        cuts = np.split(dealt, np.cumsum([len(e.uplift) for _, e in known])[:-1])
        known = [(posed, replace(e, uplift=own, believed=own)) for (posed, e), own in zip(known, cuts, strict=True)]
    started = time.monotonic()
    judge, told = fit(given, domain, known)
    seconds = time.monotonic() - started
    reached = []
    for posed, e, chance in examples(domain, given.held, 1):
        values = np.concatenate([[0], judge(posed, e)])
        reached.append((chance[0], chance[values.argmax()], chance.max(), chance[1], domain.harms(posed), values.argmax() == 0))
    none, got, best, first, harmed, skipped = np.array(reached, np.float64).T
    return {
        "tasks": len(known),
        "readings": given.epochs * sum(1 + len(e.sets) for _, e in known),
        "seconds": round(seconds),
        "none": none.mean(),
        "first": first.mean(),
        "reached": got.mean(),
        "best": best.mean(),
        "share": (got.mean() - none.mean()) / (best.mean() - none.mean()),
        "all harm": int(harmed.sum()),
        "skips there": int(skipped[harmed == 1].sum()),
        "slope": told.slope,
        "error": told.error,
        "signs": told.signs,
    }


def timed(given: argparse.Namespace) -> dict[str, object]:
    """Milliseconds of one core: reading 32 sets of up to five records once, and whole searches for candidate sets."""
    import torch

    scorer = Scorer(open_encoder(given.encoder), Settings())
    domain = planted.Domain(given.seed)
    every = [worded(one) for one in domain.planted.values()]
    rng = np.random.default_rng(given.seed)
    torch.nn.init.normal_(scorer.head.weight, std=0.1)
    scorer.body.merge_adapter()
    found: dict[str, object] = {}
    for count in (8, 38):
        records = every[:count]
        sets = [tuple(rng.choice(count, size=int(rng.integers(1, 6)), replace=False).tolist()) for _ in range(32)]
        page = scorer.encoder.page("How many rivers are there in Kansas?", records)
        texts = [page.canonical(one) for one in sets]
        found[f"{count} records: tokens a text, mean"] = float(scorer.encoder.read(texts)["attention_mask"].sum(1).float().mean())
        found[f"{count} records: 32 sets, ms"] = _median(lambda records=records, sets=sets: scorer.of("How many rivers?", records)(sets), 5)
        vectors = rng.normal(size=(count, 64)).astype(np.float32)
        read: set[Set] = set()
        score = scorer.of("How many rivers are there in Kansas?", records)

        def noting(sets: Sequence[Set], score=score, read=read) -> np.ndarray:
            read.update(tuple(sorted(one)) for one in sets)
            return score(sets)

        started = time.process_time()
        candidate_sets(vectors, noting, size=5, name="t")
        found[f"{count} records: whole search, ms"] = 1000 * (time.process_time() - started)
        found[f"{count} records: sets read"] = len(read)
    return found


def _median(call, times: int) -> float:
    call()
    spent = []
    for _ in range(times):
        started = time.process_time()
        call()
        spent.append(1000 * (time.process_time() - started))
    return median(spent)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "learn"])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--held", type=int, default=100)
    parser.add_argument("--sets", type=int, default=4, help="tried on a training task")
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--head-rate", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    for switch in ("--no-value", "--no-policy", "--shuffle", "--small"):
        parser.add_argument(switch, action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = timed(given) if given.what == "time" else learn(given)
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in found.items()}))


if __name__ == "__main__":
    main()
