"""The command that learns a selector from what a store has seen, as cli.py registers it.

In: a store, and the plays to learn from, its own or those of an experiment. Out: one file of weights, and what was learnt from. Nothing
in the store changes and no model is asked; experiments do the same with plays made for it.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mulligan.cli_store import HERE, AsJson, StoreFile, open_store
from mulligan.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from mulligan.read.weights import Weights
    from mulligan.records import Episode
    from mulligan.store import Store


def train(
    what: Annotated[Literal["selector", "uplift"], typer.Argument(help="selector: one record or none; uplift: a set of records.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="dqn, logistic, thompson, paired or contextual.")] = "dqn",
    store: StoreFile = HERE,
    plays: Annotated[Path | None, typer.Option("--plays", metavar="FILE", help="A run.db whose plays are learnt from.")] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="The weights; NAME.safetensors unless given.")] = None,
    size: Annotated[int, typer.Option("--size", min=1, max=10, help="Records of a set, for uplift.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Learn which records to show, and when none, from plays with memory; writes a file of weights.

    Plays teach most where choices varied: those of an experiment that explores (memory.explore), or of a store that withholds.
    """
    from mulligan import console
    from mulligan.read.weights import save

    with open_store(store) as opened:
        episodes = _episodes(opened, plays)
        weights = _uplift(opened, episodes, size) if what == "uplift" else _selector(opened, episodes, name)
    path = to or Path(f"{weights.kind}.safetensors")
    save(weights, path)
    shown = Counter(bool(receipt.shown) for episode in episodes for receipt in episode.receipts)
    told = {"selector": weights.kind, "weights": str(path), "plays": len(episodes), "shown": shown[True], "skipped": shown[False]}
    if as_json:
        console.show_json({**told, "about": dict(weights.about)})
        return
    console.say(f"{weights.kind}: learnt from {len(episodes)} plays; a lesson was shown at {shown[True]} decisions, none at {shown[False]}")
    for key, value in weights.about.items():
        console.say(f"  {key}: {value:.3g}")
    console.say(f"weights: {path}")
    if not shown[True] or not shown[False]:
        console.note("there is only one kind of choice in these plays: nothing tells what the other would have done")


def _episodes(opened: "Store", plays: Path | None) -> "list[Episode]":
    """The plays with memory, of held-out or training tasks where there are any: source tasks were what records came from."""
    if plays is None:
        found = opened.episodes()
    else:
        with open_store(plays) as other:
            found = [e for e in other.episodes() if e.label.startswith("explore")] or other.episodes()
    remembering = [e for e in found if e.receipts]
    if not remembering:
        where = plays or opened.path
        raise UsageError(f"{where} holds no play with memory: name the run.db of an experiment that explores with --plays")
    return remembering


def _selector(opened: "Store", episodes: "list[Episode]", name: str) -> "Weights":
    from mulligan.points import Known, tokens_of

    try:
        from mulligan.train import fitting
    except ImportError as error:
        raise _missing(error) from None
    known = Known(opened)
    kept = [e for e in episodes if all(known.records(r.candidates) is not None for r in e.receipts)]
    return fitting.fit(name, fitting.known(kept, opened.several, tokens_of))


def _uplift(opened: "Store", episodes: "list[Episode]", size: int) -> "Weights":
    from mulligan import building
    from mulligan.points import Known

    try:
        from mulligan.train import fitting
    except ImportError as error:
        raise _missing(error) from None
    worlds = {domain: building.world(domain) for domain in {e.task.domain for e in episodes}}
    known = Known(opened)
    kept = [e for e in episodes if (keys := e.receipts[0].candidates) and known.records(keys) is not None]
    return fitting.sets(kept, opened, building.store_embedder(opened), lambda task: worlds[task.domain].facts(task), size=size)


def _missing(error: ImportError) -> MissingExtra:
    return MissingExtra(f"learning a selector needs {error.name}: pip install 'mulligan[train]'")
