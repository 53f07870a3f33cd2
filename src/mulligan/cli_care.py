"""The commands that look after records, as cli.py registers them: checks run again, what records do, taking one's place.

In: what was typed. Out: a table or one JSON value. Whatever changes is in the record's history, with the reason.
"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from mulligan.cli_store import HERE, AsJson, Reason, RecordId, SandboxName, StoreFile, find, open_store
from mulligan.errors import MulliganError, UsageError

if TYPE_CHECKING:
    from mulligan.audit.freshness import Checked
    from mulligan.protocols import World
    from mulligan.store import Store

MOST_WORKERS = 2


def recheck(
    store: StoreFile = HERE,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, metavar="N", help="So many at most: most used first, then oldest.")
    ] = None,
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="Of this scope alone; of all unless given.")] = "",
    sandbox: SandboxName = "",
    as_json: AsJson = False,
) -> None:
    """Run the checks of records again; those that no longer hold become stale and are not recalled."""
    from mulligan import console
    from mulligan.audit import freshness
    from mulligan.pool import Pool

    found: list[Checked] = []
    with open_store(store, write=True) as opened, Pool(min(MOST_WORKERS, os.cpu_count() or 1)) as pool, console.Stages() as progress:
        todo = freshness.order(opened, scope=scope or None)
        chosen, unchecked = todo[:budget], sum(not s.record.gain.verified for s in opened.records(scope=scope or None))
        worlds = {domain: _world(domain, sandbox) for domain in {s.record.domain for s in chosen}}
        for stored in chosen:
            world = worlds[stored.record.domain]
            if isinstance(world, MulliganError):
                found.append(freshness.Checked(record=stored.record.id, outcome="unknown", reason=str(world)))
            else:
                found.append(freshness.recheck(opened, stored, world, pool))
            progress("recheck", len(found), len(chosen))
        ids = console.short_ids(opened.find(""))
    counts = {outcome: sum(f.outcome == outcome for f in found) for outcome in ("holds", "stale", "unknown")}
    if as_json:
        console.show_json({**counts, "unchecked": unchecked, "left": len(todo) - len(chosen), "records": found})
        return
    console.say(f"{counts['holds']} hold, {counts['stale']} are stale, {counts['unknown']} cannot be told, of {len(found)} checked again")
    rows = [(ids[f.record], f.outcome, f.reason, ids.get(f.successor, "")) for f in found if f.outcome != "holds"]
    if rows:
        console.table(("id", "", "why", "now"), rows, fluid=2, words=(0, 1, 3))
    if unchecked:
        console.note(f"{unchecked} records were stored without a check: there is nothing to run again")


def _world(domain: str, sandbox: str) -> "World | MulliganError":
    from mulligan import building

    try:
        return building.world(domain, sandbox)
    except MulliganError as error:  # its records stay as they are, and others are checked
        return error


def credit(
    store: StoreFile = HERE,
    apply: Annotated[bool, typer.Option("--apply", help="Quarantine those that harm by the rule.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show what records do: attempts with them beside attempts in which they were withheld at random."""
    from mulligan import console
    from mulligan.memory import harmful, quarantine
    from mulligan.read import credit as effects

    with open_store(store, write=apply) as opened:
        found = effects.effects((r.receipt, r.utility) for r in opened.results())
        harming = quarantine(opened) if apply else harmful(opened)
        ids = console.short_ids(opened.find(""))
    if as_json:
        console.show_json({"effects": found, "harmful": [e.record for e in harming], "applied": apply, "rule": effects.RULE})
        return
    if not found:
        console.say("no attempt with a lesson, shown or withheld, has reported how it went: see docs/freshness.md")
        return
    rows = [
        (
            ids.get(e.record, e.record),
            *("–" if value is None else f"{value:.2f}" for value in (e.with_record, e.without)),
            "–" if e.effect is None else f"{e.effect:+.2f}",
            "–" if e.low is None or e.high is None else f"{e.low:+.2f} to {e.high:+.2f}",
            str(e.shown),
            str(e.withheld),
            "harms" if e.harms else "",
        )
        for e in found[:limit]
    ]
    console.table(("id", "with", "without", "effect", "95%", "shown", "withheld", ""), rows, words=(0, 7))
    done = "are stale now" if apply else "would be quarantined: give --apply"
    console.say(f"{len(harming)} of {len(found)} harm by the rule {effects.RULE}{f' and {done}' if harming else ''}")


def supersede(
    record: RecordId,
    by: Annotated[str, typer.Argument(metavar="BY", help="The id of the record that takes its place, or its beginning.")],
    store: StoreFile = HERE,
    as_json: AsJson = False,
) -> None:
    """Let a record take the place of another, which is retired."""
    from mulligan import console

    with open_store(store, write=True) as opened:
        old, new = find(opened, record), find(opened, by)
        replace_record(opened, old, new)
    if as_json:
        console.show_json({"id": old, "status": "retired", "successor": new})
    else:
        console.say(f"{old} is retired: {new} takes its place")


def correct(
    record: RecordId,
    store: StoreFile = HERE,
    situation: Annotated[str, typer.Option("--situation", metavar="TEXT", help="What it is about.")] = "",
    principle: Annotated[str, typer.Option("--principle", metavar="TEXT", help="Why it holds.")] = "",
    predicate: Annotated[str, typer.Option("--predicate", metavar="TEST", help='When it applies, over facts; "none" is everywhere.')] = "",
    action: Annotated[str, typer.Option("--action", metavar="TEXT", help="The right action: the record is unchecked then.")] = "",
    reason: Reason = "corrected by hand",
    as_json: AsJson = False,
) -> None:
    """Store a record anew with other words; the old one is retired and points to it."""
    from mulligan import building, console
    from mulligan.search import record_text

    with open_store(store, write=True) as opened:
        old = opened.record(find(opened, record)).record
        new = building.corrected(old, situation=situation, principle=principle, predicate=predicate, action=action)
        if new == old:
            raise UsageError("nothing would change: give --situation, --principle, --predicate or --action")
        embedder = building.store_embedder(opened)
        with opened.transaction():
            key = opened.add_record(new, embedder.embed([record_text(new)])[0], embedder=embedder.id)
            replace_record(opened, old.id, key, reason)
    if as_json:
        console.show_json({"id": key, "replaces": old.id, "checked": new.gain.verified})
    else:
        console.say(f"{key} takes the place of {old.id}{'' if new.gain.verified else '; it is unchecked'}")


def replace_record(store: "Store", old: str, new: str, reason: str = "by hand") -> None:
    """Retire `old` in favour of `new`, with the lineage kept."""
    with store.transaction():
        store.add_successor(old, new)
        store.set_status(old, "retired", f"superseded by {new}: {reason}")
