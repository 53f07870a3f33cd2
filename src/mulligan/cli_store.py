"""The commands that look after the store and what it stands on, as cli.py registers them.

In: what was typed. Out: text, or one JSON value. Commands that only read open the store frozen; but for `import`, none makes one.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mulligan.errors import StoreError, UsageError

if TYPE_CHECKING:
    from mulligan.store import Store

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output, and nothing else there.")]
WORLD_NAMES = "sql, code, maths, sat, smt, proof, textgame, shop, workspace, grid or a path module:Class."
SandboxName = Annotated[
    str, typer.Option("--sandbox", metavar="NAME", help="For worlds that run code: bubblewrap, or process: limits, but no wall.")
]
StoreFile = Annotated[Path, typer.Option("--store", metavar="FILE", envvar="MULLIGAN_STORE", help="The store.")]
RecordId = Annotated[str, typer.Argument(metavar="ID", help="The id of a record, or its beginning.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept in the record's history.")]
HERE = Path("mulligan.db")


def open_store(path: Path, *, write: bool = False) -> "Store":
    """The store at `path`, which must be there."""
    from mulligan.store import Store

    if write and not path.exists():
        raise StoreError(f"there is no store at {path}: name yours with --store")
    return Store(path, frozen=not write)


def find(store: "Store", prefix: str) -> str:
    """The id of the one record that begins with `prefix`."""
    found = store.find(prefix)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no record of {store.path} begins with {prefix}: `mulligan list --status all` shows their ids")
    raise UsageError(f"{len(found)} records begin with {prefix}, such as {' and '.join(found[:2])}: give more of the id")


def _move(prefix: str, path: Path, status: Literal["active", "retired"], reason: str, as_json: bool) -> None:
    from mulligan import console

    with open_store(path, write=True) as store:
        key = find(store, prefix)
        store.set_status(key, status, reason)
    if as_json:
        console.show_json({"id": key, "status": status})
    else:
        console.say(f"{key} is {status}")


def list_records(
    store: StoreFile = HERE,
    status: Annotated[Literal["active", "stale", "retired", "all"], typer.Option("--status", help="Which records.")] = "active",
    sort: Annotated[Literal["new", "gain", "shown", "helped", "hurt"], typer.Option("--sort", help="The first in this order.")] = "new",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 20,
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="Of this scope alone; of all unless given.")] = "",
    as_json: AsJson = False,
) -> None:
    """List records: what they gained, how they were used, what they are about."""
    from mulligan import cli_views, console

    with open_store(store) as opened:
        found = opened.records(scope=scope or None, status=None if status == "all" else status)
        cli_views.show_list(found, sort, limit, console.short_ids(opened.find("")), as_json=as_json)


def show(record: RecordId, store: StoreFile = HERE, as_json: AsJson = False) -> None:
    """Show a record with its evidence: condition, statistics, provenance, and both verdicts of every check."""
    from mulligan import cli_views

    with open_store(store) as opened:
        cli_views.show_record(opened, find(opened, record), as_json=as_json)


def export_rows(
    store: StoreFile = HERE,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Standard output unless given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the store as JSON Lines, which `mulligan import` reads back identically."""
    from mulligan import console
    from mulligan.exchange import export_store

    if to is None and as_json:
        raise UsageError("the export is JSON Lines: with --json, name a file for it with --to")
    with open_store(store) as opened:
        if to is None:
            export_store(opened, sys.stdout)
            return
        part = to.with_name(f".{to.name}.{os.getpid()}")
        try:
            with part.open("w", encoding="utf-8") as stream:
                rows = export_store(opened, stream)
            part.replace(to)
        finally:
            part.unlink(missing_ok=True)
    if as_json:
        console.show_json({"rows": rows, "to": to})
    else:
        console.say(f"wrote {rows} rows to {to}")


def import_rows(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export; - is standard input.")],
    store: StoreFile = HERE,
    as_json: AsJson = False,
) -> None:
    """Add the rows of an export to the store, all or none."""
    from mulligan import console
    from mulligan.exchange import import_store
    from mulligan.store import Store

    if file == Path("-"):
        with Store(store) as opened:
            added = import_store(opened, sys.stdin)
    else:
        with file.open(encoding="utf-8") as stream, Store(store) as opened:
            added = import_store(opened, stream)
    if as_json:
        console.show_json({"added": added, "store": store})
    else:
        new = ", ".join(f"{count} {table}" for table, count in added.items() if count)
        console.say(f"added to {store}: {new}" if new else f"{store} holds all of it already")


def reembed(
    embedder: Annotated[str, typer.Option("--embedder", metavar="NAME", help="static, hash:DIM or openai:MODEL.")],
    store: StoreFile = HERE,
    as_json: AsJson = False,
) -> None:
    """Make all vectors anew with another embedder; one store holds those of one."""
    from mulligan import building, console

    made = building.embedder(embedder)
    with open_store(store, write=True) as opened:
        count = opened.reembed(made)
    if as_json:
        console.show_json({"vectors": count, "embedder": made.id, "dim": made.dim})
    else:
        console.say(f"{count} records now have vectors of {made.id} ({made.dim} dimensions)")


def retire(
    record: RecordId,
    store: StoreFile = HERE,
    reason: Reason = "by hand",
    as_json: AsJson = False,
) -> None:
    """Take a record out of recall. It stays in the store with its evidence."""
    _move(record, store, "retired", reason, as_json)


def restore(
    record: RecordId,
    store: StoreFile = HERE,
    reason: Reason = "by hand",
    as_json: AsJson = False,
) -> None:
    """Let a retired or stale record be recalled again."""
    _move(record, store, "active", reason, as_json)


def forget(
    scope: Annotated[str, typer.Option("--scope", metavar="SCOPE", help="What is deleted, with all scopes below it.")],
    store: StoreFile = HERE,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a scope for good: its tasks, episodes, evidence, records and receipts."""
    from mulligan import console

    with open_store(store, write=True) as opened:
        if not yes:
            if as_json or not sys.stdin.isatty():
                raise UsageError("deleting is for good: give --yes where nobody can be asked")
            typer.confirm(f"Delete scope {scope} and all below it from {store} for good?", abort=True, err=True)
        removed = opened.remove_scope(scope)
    if as_json:
        console.show_json({"scope": scope, "removed": removed})
    else:
        gone = ", ".join(f"{count} {table}" for table, count in removed.items())
        console.say(f"deleted of scope {scope}: {gone}" if gone else f"{store} holds nothing of scope {scope}; nothing was deleted")


def doctor(
    store: Annotated[Path | None, typer.Option("--store", metavar="FILE", envvar="MULLIGAN_STORE", help="The store to look at.")] = None,
    recover: Annotated[Path | None, typer.Option("--recover", metavar="FILE", help="Save what can be read of a damaged store.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look at Python, SQLite, extras, embedder, endpoint and store; say what to do about what is wrong."""
    from mulligan import cli_views, console
    from mulligan.doctor import examine
    from mulligan.exchange import recover as save

    if recover is not None:
        target = recover.with_name(f"{recover.stem}.recovered{recover.suffix}")
        saved = save(recover, target)
        if as_json:
            console.show_json({"saved": saved, "to": target})
        else:
            console.say(f"saved to {target}: {', '.join(f'{count} {table}' for table, count in saved.items())}")
        return
    findings = examine(store or HERE, os.environ, expected=store is not None)
    cli_views.show_findings(findings, as_json=as_json)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def check_world(
    name: Annotated[str, typer.Argument(metavar="NAME", help=WORLD_NAMES)],
    tasks: Annotated[Path | None, typer.Option("--tasks", metavar="EXPERIMENT.toml", help="Tasks of its [tasks] table.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Check on so many tasks.")] = 5,
    sandbox: SandboxName = "",
    as_json: AsJson = False,
) -> None:
    """Check that a world keeps the contract that lets it admit records; lists every violation."""
    from tempfile import TemporaryDirectory

    from mulligan import building, cli_views
    from mulligan.worlds import conformance

    made = building.world(name, sandbox)
    with TemporaryDirectory(prefix="mulligan-") as folder:
        chosen = building.sample_of(name, tasks, Path(folder), limit, sandbox)
        violations = conformance.check_world(made, chosen)
    cli_views.show_violations(made, len(chosen), violations, as_json=as_json)
    if violations:
        raise typer.Exit(1)
