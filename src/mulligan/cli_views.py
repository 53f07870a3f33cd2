"""What came of a command: how records with their evidence, arms, lessons learnt, recalls and findings are shown.

In: nouns. Out: text on standard output, or one JSON value where that was asked for. Nothing is computed here but counts.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from mulligan.console import clean, fields, heading, note, put, say, short_ids, show_json, table
from mulligan.nouns import Json, to_plain
from mulligan.records import Candidate, Decision, Record, Statistics, Task, Verdict

if TYPE_CHECKING:
    from mulligan.building import Asked, Plan
    from mulligan.doctor import Finding
    from mulligan.experiment.report import ReportPaths
    from mulligan.experiment.results import Lesson, Results
    from mulligan.protocols import World
    from mulligan.store import Store, StoredRecord
    from mulligan.tasks.loading import LoadReport
    from mulligan.trajectories import Outcome
    from mulligan.worlds.conformance import Violation

MOST_FAULTS = 20
LIVE = "queries, checks, admissions, store, recall, statistics, report"

_CLAUSE = re.compile(
    r"('(?:[^']|'')*'|\"[^\"]*\")|(?<!LEFT)(?<!OUTER)(?<!INNER)(?<!CROSS)\s+"
    r"(?=(?:FROM|WHERE|GROUP BY|HAVING|ORDER BY|LIMIT|UNION|INTERSECT|EXCEPT|(?:(?:LEFT(?: OUTER)?|INNER|CROSS) )?JOIN)\b)",
    re.IGNORECASE,
)


def records(stored: "Sequence[StoredRecord]", ids: Mapping[str, str]) -> None:
    """One line a record: how much it gained, how it was used, what it is about."""
    mixed = len({(s.status, s.record.scope) for s in stored}) > 1
    rows = []
    for s in stored:
        about = f"{s.status} in {s.record.scope}: {s.record.situation}" if mixed else s.record.situation
        rows.append((ids[s.record.id], gain(s.record), *uses(s.statistics), about))
    table(("id", "score", "shown", "helped", "hurt", "about"), rows, fluid=5)


def gain(record: Record) -> str:
    """The contrast that a record rests on."""
    return f"{float(record.gain.original):.2f} → {float(record.gain.changed):.2f}" if record.gain.verified else "unchecked"


def uses(s: Statistics) -> tuple[str, str, str]:
    return str(s.selected), str(s.helped), str(s.hurt)


def lesson(shown: "Lesson", *, reason: str = "", created: str = "", history: Sequence[Mapping[str, Json]] = (), whole: bool = True) -> None:
    """A record with all that stands behind it: condition, statistics, provenance, and both verdicts of every check.

    Unless `whole`, of the checks only the admitted one is shown.
    """
    r, s, p = shown.record, shown.statistics, shown.record.provenance
    status = f"{shown.status}{f' ({reason})' if reason else ''}{f', stored {created[:19]}' if created else ''}"
    tried = f"{gain(r)}{', which solves its task' if r.gain.solved else ''}; the best of {r.gain.tried} alternatives tried"
    put(Text(shown.id, style="bold"), Text(f"  {status}"))
    fields(
        [
            ("task", r.situation),
            ("compared as", r.gist),
            ("wrong", readable(r.original)),
            ("right", readable(r.corrected)),
            ("change", r.diff),
            ("why", r.principle),
            ("applies", condition(r)),
            ("score", tried if r.gain.verified else "not checked"),
            ("evidence", "\n".join(f"{x.kind}: {x.what}{f' ({x.where})' if x.where else ''}" for x in r.signals)),
            ("use", f"retrieved {s.retrieved}, shown {s.selected}: helped {s.helped}, hurt {s.hurt}, neutral {s.neutral}"),
            ("from", f"attempt {p.attempt + 1} of {p.agent} with {p.model or 'no model'} at {p.task} ({p.benchmark}, {p.split})"),
            ("proposed by", p.proposer),
            ("place", f"scope {r.scope}, domain {r.domain}, group {p.group}"),
            ("history", "\n".join(f"{h['created_at'][:19]} {h['old']} → {h['new']}: {h['reason']}" for h in history)),
        ]
    )
    checked = [decision for decision in shown.decisions if whole or decision.admitted]
    replays = {decision.check.original for decision in checked if decision.check}
    if checked:
        heading("Tried from the state of the failed action")
        for replay in replays:
            put()
            fields([("as it was", verdict(replay))], indent=3)
        for number, decision in enumerate(checked, 1):
            alternative(number, decision, whole=len(replays) > 1)


def alternative(number: int, decision: Decision, *, whole: bool = True) -> None:
    """One checked alternative: what it is, what became of it and why, and (the first if `whole`) the world's two verdicts."""
    check = decision.check
    put(Text(f"\n{number}. {decision.reason}", style="green" if decision.admitted else ""), Text(f"({decision.proposal.proposer})"))
    fields(
        [
            ("action", readable(decision.proposal.action)),
            ("edit", decision.proposal.edit),
            ("as it was", verdict(check.original) if check and whole else ""),
            ("changed", verdict(check.changed) if check else "not checked"),
            ("rule", decision.rule),
        ],
        indent=3,
    )


def verdict(v: Verdict) -> str:
    """One verdict: how good, and what the world said."""
    judged = ("solved" if v.solved else f"{float(v.utility):.2f}") if v.completed else "no verdict"
    return f"{judged}: {v.feedback}" if v.feedback else judged


def condition(record: Record) -> str:
    """When a record applies, in words."""
    match record.condition.kind:
        case "none":
            return "everywhere"
        case "predicate":
            return f"when {record.condition.predicate}"
        case "judged":
            return f"when a model says that {record.condition.text}"


def readable(action: str, width: int = 60) -> str:
    """`action` as it is, or, when it is long, with a line for each clause of a query; quoted text stays as it is."""
    if len(action) <= width or "\n" in action.strip():
        return action
    return _CLAUSE.sub(lambda found: found[1] or "\n", action)


def candidates(found: Sequence[Candidate], ids: Mapping[str, str], shown: Sequence[str] = ()) -> None:
    """What recall looked at, best first; a star marks what was shown."""
    rows = [
        (
            f"{ids[c.record.id]}{'*' if c.record.id in shown else ''}",
            f"{c.score:.2f}",
            f"{c.similarity:.2f}",
            f"{c.overlap:.2f}",
            c.record.situation,
        )
        for c in found
    ]
    table(("id", "score", "similarity", "overlap", "about"), rows, fluid=4)


def opening(plan: "Plan", tasks: Sequence[Task], loaded: "LoadReport | None") -> None:
    """What is about to run, and which of it is recorded."""
    splits = Counter(task.split for task in tasks)
    practice = f", {splits['train']} to practise on" if splits["train"] else ""
    kind, _, path = plan.model.partition(":")
    left = ", ".join(f"{count} {reason}" for reason, count in loaded.left_out.items()) if loaded else ""
    earlier = " (goes on with what an earlier start left there; --fresh begins anew)"
    put(Text(plan.experiment.name, style="bold"))
    fields(
        [
            ("tasks", f"{splits['source']} to learn from{practice}, {splits['heldout']} held out{f'; left out: {left}' if left else ''}"),
            ("arms", str(len(plan.experiment.arms))),
            ("model", f"recorded replies of {recorded_model(Path(path))} ({path})" if kind == "replay" else f"{plan.model}, live"),
            ("computed", f"now, on this machine: {LIVE}" if kind == "replay" else "all of it now"),
            ("folder", f"{plan.folder}{earlier if (plan.folder / 'experiment.json').exists() else ''}"),
        ]
    )


def recorded_model(path: Path) -> str:
    """The name of the model in a recording's first line; what is wrong with the file is said when it is played."""
    try:
        with path.open(encoding="utf-8") as lines:
            return str(json.loads(lines.readline())["model"])
    except (OSError, ValueError, TypeError, KeyError):
        return "a model"


def show_results(results: "Results", paths: "ReportPaths", *, as_json: bool, example: bool = False) -> None:
    """The table of arms, the finding, if wanted one record with its evidence, and where the report lies."""
    from mulligan.experiment.report import arms_table
    from mulligan.experiment.report_content import finding
    from mulligan.experiment.report_studies import told as study
    from mulligan.experiment.report_transfer import told as changed
    from mulligan.experiment.report_transfer import transfer_table

    if as_json:
        told = {"name": results.experiment.name, "model": results.model, "world": results.world, "finding": finding(results)}
        more = {"study": results.study, "transfer": results.transfer, "probes": results.probes}
        show_json({**told, "arms": results.arms, **more, "paid": results.paid, "report": paths, "timing": results.timing})
        return
    headers, rows = arms_table(results)
    say()
    table(headers, rows, fluid=0)
    say()
    say(finding(results))
    if results.study:
        say()
        say(study(results))
    if results.transfer or results.probes:
        headers, rows = transfer_table(results)
        say()
        if rows:
            heading("Solved by kind of change")
            table(headers, rows, fluid=0)
        for sentence in changed(results):
            say(sentence)
    if example and results.lessons:
        best = max(results.lessons, key=_worth)
        heading("One record with its evidence")
        lesson(best, whole=False)
        store = paths.html.parent / "checked.db"
        short = short_ids(one.id for one in results.lessons)[best.id]
        say(f"\nMore: mulligan list --store {store}; mulligan show {short} --store {store}")
    say(f"\nreport: {paths.html}, {paths.markdown.name}, {paths.json.name}")


def _worth(shown: "Lesson") -> tuple[int, int, float]:
    """What makes a record the one to show: it helped, it was used, it gained."""
    return shown.statistics.helped - shown.statistics.hurt, shown.statistics.selected, float(shown.record.gain.value)


def show_learnt(outcomes: "Sequence[Outcome]", store: Path, *, as_json: bool) -> None:
    """What was tried, what was admitted, and why the rest was not; which lines could not be used."""
    faults = [o for o in outcomes if o.fault]
    decisions = [d for o in outcomes for d in o.decisions]
    records = [key for o in outcomes for key in o.records]
    reasons = Counter(d.reason for d in decisions)
    if as_json:
        lines = [
            {"line": o.number, "task": o.task, "failures": o.failures, "known": o.known, "records": o.records, "fault": o.fault}
            for o in outcomes
        ]
        show_json({"store": store, "lines": lines, "records": records, "reasons": reasons, "faults": len(faults)})
        return
    known, failures = sum(o.known for o in outcomes), sum(o.failures for o in outcomes if not o.known)
    say(
        f"{len(outcomes)} lines: {len(outcomes) - len(faults)} read, of which {known} were known; {failures} failed actions "
        f"examined, {len(decisions)} alternatives proposed, {len(records)} records stored in {store}"
    )
    if decisions:
        proposers = sorted({d.proposal.proposer for d in decisions})
        rows = []
        for name in proposers:
            mine = Counter(d.reason for d in decisions if d.proposal.proposer == name)
            why = ", ".join(f"{count} {reason}" for reason, count in mine.most_common() if not reason.startswith("admitted"))
            rows.append((name, str(mine.total()), str(sum(d.admitted for d in decisions if d.proposal.proposer == name)), why))
        say()
        table(("proposer", "proposed", "admitted", "refused because"), rows, fluid=3)
    for outcome in faults[:MOST_FAULTS]:
        note(f"line {outcome.number}: {outcome.fault}")
    if len(faults) > MOST_FAULTS:
        note(f"and {len(faults) - MOST_FAULTS} more lines")
    if faults:
        note(f"error: {len(faults)} of {len(outcomes)} lines could not be used; the others were. Mend them and run the same command again")


def show_recall(asked: "Asked", ids: Mapping[str, str], *, as_json: bool) -> None:
    """The guidance as an agent gets it, or why there is none; and the nearest records with their scores."""
    guidance = asked.guidance
    if as_json:
        nearest = [
            {"id": c.record.id, "score": c.score, "similarity": c.similarity, "overlap": c.overlap, "situation": c.record.situation}
            for c in asked.nearest
        ]
        told = {
            "guidance": guidance.text,
            "records": guidance.records,
            "why_nothing": asked.why,
            "conditions_tested": asked.tested,
            "rewrite": guidance.receipt.rewrite,
        }
        show_json({**told, "nearest": nearest, "candidates": guidance.receipt.candidates, "selection": guidance.receipt.selection})
        return
    say(guidance.text if guidance else f"Nothing applies: {asked.why}.")
    if asked.nearest:
        heading("Nearest records (* shown)")
        candidates(asked.nearest, ids, guidance.records)
        if not asked.tested:
            say("Conditions were not tested: name the task's database with --database.")


ORDERS = {
    "new": lambda s: s.sequence,
    "gain": lambda s: s.record.gain.value,
    "shown": lambda s: s.statistics.selected,
    "helped": lambda s: s.statistics.helped,
    "hurt": lambda s: s.statistics.hurt,
}


def show_list(found: "Sequence[StoredRecord]", sort: str, limit: int, ids: Mapping[str, str], *, as_json: bool) -> None:
    """The first `limit` records in that order."""
    first = sorted(found, key=ORDERS[sort], reverse=True)[:limit]
    if as_json:
        show_json([{"id": s.record.id, **to_plain(s)} for s in first])
    elif first:
        records(first, ids)
        if len(found) > limit:
            say(f"{limit} of {len(found)}: --limit shows more")
    else:
        say("No such records.")


def show_record(store: "Store", key: str, *, as_json: bool) -> None:
    """The whole chain of evidence: the play that failed, what was tried from there, the record, and what became of it since."""
    from mulligan.experiment.results import Lesson

    stored, before, after = store.record(key), store.predecessors(key), store.successors(key)
    rows = next((found for one in (key, *before) if (found := store.decisions(record=one))), [])  # the first of a line has the evidence
    decisions, history, again = tuple(row.decision for row in rows), store.history(key), store.rechecks(key)
    played = store.episode(rows[0].episode_id) if rows else None
    attempts = [a for a in played.attempts if a.index <= rows[0].attempt_index] if played else []
    if as_json:
        since = {"checked_at": store.checked_at(key), "rechecks": again, "replaces": before, "replaced_by": after}
        source = {"episode": rows[0].episode_id if rows else None, "attempts": attempts}
        show_json({"id": key, **to_plain(stored), "decisions": decisions, "history": history, **since, **source})
        return
    shown = Lesson(id=key, status=stored.status, record=stored.record, statistics=stored.statistics, decisions=decisions)
    if attempts:
        heading(f"The play that failed ({rows[0].episode_id})")
        for attempt in attempts:
            fields([(f"{attempt.index + 1}. action", readable(attempt.action)), ("the world said", verdict(attempt.verdict))], indent=3)
        put()
    lesson(shown, reason=stored.reason, created=stored.created_at, history=history)
    since_rows = [
        ("checked at", store.checked_at(key)[:19] if stored.record.gain.verified else ""),
        ("run again", "\n".join(f"{r.created_at[:19]} {r.outcome}: {r.reason}" for r in again)),
        ("takes the place of", "\n".join(before)),
        ("replaced by", "\n".join(after)),
    ]
    if any(text for _, text in since_rows):
        heading("Since then")
        fields(since_rows)


def show_findings(findings: "Sequence[Finding]", *, as_json: bool) -> None:
    """What was looked at, then what to do."""
    if as_json:
        show_json(findings)
        return
    marks = {"ok": ("ok", "green"), "hint": ("–", "dim"), "bad": ("bad", "bold red")}
    grid = Table.grid(padding=(0, 2, 0, 0))
    for column in ({"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold"}):
        grid.add_column(**column)
    for finding in findings:
        grid.add_row(Text(marks[finding.state][0], style=marks[finding.state][1]), finding.what, Text(clean(finding.says)))
    put(grid)
    for state, title in (("bad", "To do"), ("hint", "If you want")):
        todo = [(f.what, f.todo) for f in findings if f.state == state and f.todo]
        if todo:
            heading(title)
            fields(todo)


def show_violations(world: "World", tasks: int, violations: "Sequence[Violation]", *, as_json: bool) -> None:
    """Every broken rule, or that there is none."""
    if as_json:
        show_json({"world": world.name, "version": world.version, "tasks": tasks, "violations": violations})
        return
    for violation in violations:
        say(str(violation))
    found = f"{len(violations)} violations, so it may not admit records" if violations else "no violation"
    say(f"{world.name}/{world.version} on {tasks} tasks: {found}")
