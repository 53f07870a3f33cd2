"""The command that asks what another selector would have earned, as cli.py registers it.

In: a store and the name of a selector. Out: a table or one JSON value. It reads alone; nothing is run and no model is asked.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mulligan.cli_store import HERE, AsJson, StoreFile, open_store

if TYPE_CHECKING:
    from mulligan.audit.offpolicy import Estimate, Evaluation

TITLES = {
    "logged": "what was earned",
    "ips": "inverse propensity",
    "snips": "self-normalised",
    "doubly_robust": "doubly robust",
    "difference": "doubly robust, less what was earned",
}


def offpolicy(
    selector: Annotated[str, typer.Option("--selector", metavar="NAME", help="never, top1, threshold, utility or a path.")],
    store: StoreFile = HERE,
    weights: Annotated[Path | None, typer.Option("--weights", metavar="FILE", help="Of a selector that was trained.")] = None,
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="Of this scope alone; of all unless given.")] = "",
    clip: Annotated[float, typer.Option("--clip", min=1.0, metavar="W", help="The largest weight of one attempt.")] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Tell what another selector would have earned, from logged propensities, without running it."""
    from mulligan import building, console
    from mulligan.audit.offpolicy import evaluate
    from mulligan.points import rebuild

    with open_store(store) as opened:
        chosen, rebuilt = building.stored_selector(selector, opened, weights), rebuild(opened, scope or None)
    found = evaluate(rebuilt.points, chosen, clip=clip)
    left_out = {**rebuilt.left_out, **found.left_out}
    notes = [*found.warnings, *(["the selector was fitted to this very log: it looks better than it is"] if selector == "utility" else [])]
    if as_json:
        console.show_json({"evaluation": found, "left_out": left_out, "warnings": notes})
        return
    _show(found)
    for note in notes:
        console.note(note)
    if left_out:
        console.say("left out: " + ", ".join(f"{count} {why}" for why, count in left_out.items()))


def _show(found: "Evaluation") -> None:
    from mulligan import console

    console.say(
        f"{found.selector} at {found.points} logged decision points with a choice: it would do what was done at {found.agree}, which are "
        f"worth {found.effective:g} points of its own; at {found.unknown} the log cannot tell"
    )
    if found.points:
        console.say()
        rows = [(title, _value(getattr(found, name)), _ends(getattr(found, name))) for name, title in TITLES.items()]
        console.table(("mean utility", "estimate", "95%"), rows, words=(0,))


def _value(estimate: "Estimate") -> str:
    return "–" if estimate.value is None else f"{estimate.value:.3f}"


def _ends(estimate: "Estimate") -> str:
    return "–" if estimate.low is None or estimate.high is None else f"{estimate.low:.3f} to {estimate.high:.3f}"
