"""The command that audits a memory, as cli.py registers it: figures of a log, labels run again, a page.

In: what was typed. Out: a table or one JSON value, and the page where it was asked for. Nothing that is audited is changed.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mulligan.cli_store import AsJson, SandboxName

if TYPE_CHECKING:
    from mulligan.audit.measures import Audit
    from mulligan.audit.recheck import Recheck


def audit(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A log, a folder of trials, or a store: docs/audit.md.")],
    without: Annotated[
        Path | None, typer.Option("--without", metavar="PATH", help="The log of the same environments without memory, by name.")
    ] = None,
    recheck: Annotated[bool, typer.Option("--recheck", help="Run stored programs again and list every label that does not hold.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Run at most so many again.")] = None,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with every environment's timeline.")] = None,
    sandbox: SandboxName = "bubblewrap",
    as_json: AsJson = False,
) -> None:
    """Tell whether a memory repeats itself, names its tasks, and keeps labels that hold."""
    from mulligan import building, console
    from mulligan.audit import logs, measures
    from mulligan.audit import page as pages
    from mulligan.audit import recheck as labels
    from mulligan.embeddings import StaticEmbedder
    from mulligan.nouns import to_plain

    log = logs.read_log(path)
    found = measures.audit(log, without=logs.read_log(without) if without else None, embedder=StaticEmbedder())
    again = None
    if recheck:
        with console.Stages() as progress:
            again = labels.recheck(log, wall=building.wall(sandbox), limit=limit, progress=partial(progress, "recheck"))
    if page:
        page.write_text(pages.page(found, again), encoding="utf-8")
    if as_json:
        console.show_json(to_plain(found) | ({"recheck": to_plain(again)} if again else {}))
        return
    _show(found, again)
    if page:
        console.say(f"page: {page}")


def _show(found: "Audit", again: "Recheck | None") -> None:
    from mulligan import console
    from mulligan.audit import page as pages

    console.say(found.path, style="bold")
    console.say(pages.finding(found))
    console.heading("Repetition")
    console.fields(
        [
            ("memories", f"{found.with_reflections} of {found.environments} environments, {found.reflections} reflections"),
            ("frozen", f"{found.frozen} of {found.with_reflections}, with {found.frozen_reflections} of the reflections"),
            ("frozen by vectors", "" if found.frozen_embedded is None else f"{found.frozen_embedded} of {found.with_reflections}"),
            ("mean RRR", f"{_shown(found.mean_rrr)}, of frozen ones {_shown(found.mean_rrr_frozen)}"),
        ]
    )
    console.heading("Trials")
    every, several = f"{found.with_reflections} environments", f"{found.several.environments} with at least two reflections"
    console.fields(
        [
            ("solved", f"{found.solved} of {found.environments}, unsolved {found.unsolved}, not told {found.untold}"),
            ("failed trials", f"{_shown(found.failed_trials_frozen)} where frozen, {_shown(found.failed_trials_fresh)} where RRR is 0"),
            ("corrected", f"{found.corrected} of {found.transitions} failed trials were followed by a success"),
            ("RRR and trials", f"Spearman {_shown(found.spearman_rrr_trials)}, Pearson {_shown(found.pearson_rrr_trials)} over {every}"),
            ("", f"Spearman {_shown(found.several.spearman)}, Pearson {_shown(found.several.pearson)} over {several}"),
        ]
    )
    told = found.grounded + found.ungrounded
    console.heading("Grounding")
    console.fields(
        [
            ("name the target", f"{found.grounded} of {told} reflections whose task is told" if told else ""),
            ("cannot tell", f"{found.cannot_tell} reflections: their entries hold no task line" if found.cannot_tell else ""),
            ("symptoms only", f"{found.symptom_only} of {found.reflections} reflections say nothing of what to do"),
        ]
    )
    if beside := found.without:
        console.heading("Beside the run without memory")
        console.fields(
            [
                ("solved sooner without", f"{len(beside.memory_harmful)} of {beside.compared} frozen: {', '.join(beside.memory_harmful)}"),
                ("hard either way", f"{len(beside.task_hard)} of {beside.compared} frozen: {', '.join(beside.task_hard)}"),
            ]
        )
    if again:
        console.heading("Labels run again")
        console.fields(
            [
                ("hold", f"{again.agree} of {again.checked}"),
                *(("stored solved, is not", f"{label.name}  {label.why}") for label in again.false_successes),
                *(("stored unsolved, passes", label.name) for label in again.missed_successes),
                ("cannot tell", f"{len(again.cannot_tell)}: {again.cannot_tell[0].why}" if again.cannot_tell else ""),
            ]
        )
    for line in found.damaged[:5]:
        console.note(f"left out: {line}")
    if len(found.damaged) > 5:
        console.note(f"left out: {len(found.damaged) - 5} more")


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
