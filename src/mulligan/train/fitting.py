"""Fitting by name: from episodes with a memory to the weights of a selector."""

from collections.abc import Callable, Mapping, Sequence

from mulligan.errors import UnknownName
from mulligan.read.weights import Weights
from mulligan.records import Episode, Record
from mulligan.train import dqn, rivals
from mulligan.train.rows import Lookup, Penalties, Rows, points, rows


def known(episodes: Sequence[Episode], lookup: Lookup, tokens: Callable[[Record], int], *, unaided: Sequence[Episode] = ()) -> Rows:
    """The rows of `episodes`. Penalties are scaled by the cost of `unaided`, episodes without memory."""
    domains = sorted({episode.task.domain for episode in episodes})
    return rows([points(e, lookup, tokens) for e in episodes], domains=domains, penalties=Penalties().scaled(unaided))


def fit(name: str, found: Rows) -> Weights:
    """The weights of the selector of that name. Raises UnknownName listing those that can be learned."""
    if name not in FITS:
        raise UnknownName(f"no selector {name!r} can be learned: choose one of {', '.join(FITS)}")
    return FITS[name](found)


FITS: Mapping[str, Callable[[Rows], Weights]] = {"dqn": lambda found: dqn.train(found)[0], **rivals.RIVALS}
