"""Fitting by name: from episodes with a memory to the weights of a selector."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mulligan.errors import UnknownName, UsageError
from mulligan.nouns import Json
from mulligan.points import tokens_of
from mulligan.protocols import Embedder
from mulligan.read.sets import Set
from mulligan.read.weights import Weights
from mulligan.records import Episode, Record, Task
from mulligan.store import Store
from mulligan.train import dqn, event, rivals, uplift
from mulligan.train.event import Posing
from mulligan.train.rows import Lookup, Penalties, Rows, points, rows


def known(episodes: Sequence[Episode], lookup: Lookup, tokens: Callable[[Record], int], *, unaided: Sequence[Episode] = ()) -> Rows:
    """The rows of `episodes`. Penalties are scaled by the cost of `unaided`, episodes without memory."""
    domains = sorted({episode.task.domain for episode in episodes})
    return rows([points(e, lookup, tokens) for e in episodes], domains=domains, penalties=Penalties().scaled(unaided))


def fit(name: str, found: Rows) -> Weights:
    """The weights of the selector of that name. Raises UnknownName listing those that can be learned."""
    if name not in FITS:
        raise UnknownName(f"no selector {name!r} can be learned: choose one of {', '.join(FITS)}")
    made = FITS[name](found)
    return replace(made, about={"decisions": len(found), "shown": float((found.action > 0).sum()), **made.about})


def sets(
    episodes: Sequence[Episode], store: Store, embedder: Embedder, facts: Callable[[Task], Mapping[str, Json]], *, size: int
) -> Weights:
    """The weights of the selector of sets, from plays alone: what was shown at the first decision, and whether the task was solved.

    Raises UsageError where no play showed anything.
    """
    domains, by_task = sorted({e.task.domain for e in episodes}), dict[str, Posing]()
    for e in episodes:
        here, receipt = points(e, store.several, tokens_of)[0], e.receipts[0]
        told = by_task.get(e.task.id)
        if told is None:
            (asked,) = embedder.embed([str(facts(e.task).get("gist") or e.task.prompt)])
            vectors = store.vectors(receipt.candidates)
            told = Posing.of(here.situation, here.candidates, vectors=vectors, asked=asked, domains=domains)
        if len(told.x) == len(receipt.candidates):  # another store of the same task would have other candidates
            one: Set = tuple(sorted(receipt.candidates.index(key) for key in receipt.shown))
            by_task[e.task.id] = replace(told, executed={**told.executed, one: [*told.executed.get(one, ()), float(e.solved)]})
    if not any(one for posing in by_task.values() for one in posing.executed):
        raise UsageError("no play showed a record: nothing tells what showing one does")
    how = event.Settings(budget=0, scorer=uplift.Settings(size=size))

    def never(at: int, one: Set) -> tuple[float, bool]:
        raise AssertionError("no probe without a budget")

    got = event.run(list(by_task.values()), never, how, embedder=embedder.id, domains=domains)
    return event.told(got, len(by_task))


def _dqn(found: Rows) -> Weights:
    weights, losses = dqn.train(found)
    return replace(weights, about={"updates": len(losses), "loss": float(np.mean(losses[-100:]))})


FITS: Mapping[str, Callable[[Rows], Weights]] = {"dqn": _dqn, **rivals.RIVALS}
