"""What a report says: its sentences and tables, from the results and by fixed rules.

In: `Results`. Out: sections of plain text and cells, which Markdown and HTML set in their own way. Every figure stands with
what it is a share of. Nothing here is escaped: that is the business of whoever writes it down.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from mulligan.experiment.arms import REWRITE
from mulligan.experiment.metrics import ArmMetrics, Rate
from mulligan.experiment.results import Construction, Results
from mulligan.experiment.statistics import Interval
from mulligan.nouns import to_plain
from mulligan.records import Rewritten, Usage

ALPHA = 0.05

# What an arm is, for those who have not read arms.py.
ABOUT: Mapping[str, str] = {
    "none": "the agent alone",
    "best_of_n": "samples, the most frequent answer taken",
    "best_of_n_guided": "samples until nothing shows wrong",
    "reflexion_self": "starts over with its own diagnosis",
    "reflexion_evidence": "starts over with evidence read by code",
    "unverified": "first proposals, stored unchecked",
    "unvalidated": "notes in words, stored as they come",
    "validated": "notes in words that helped where they were tried",
    "bank": "MemHarness' bank of notes, up to three shown",
    "no_persistence": "alternatives tried, nothing kept",
    "checked_never": "checked records, never shown",
    "checked_top1": "checked records, best match shown",
    "checked_threshold": "checked records, shown when similar enough",
    "checked_utility": "checked records, shown when likely to help",
    "checked_dqn": "checked records, chosen by a learned Q function",
    "checked_logistic": "checked records, by logistic regression",
    "checked_thompson": "checked records, by Thompson sampling",
    "checked_paired": "checked records, by regression on pairs",
    "checked_contextual": "checked records, by contextual uplift",
    "checked_uplift": "sets of checked records, probed by EVSI",
    "checked_uplift_random": "sets of checked records, probed at random",
    "random": "checked records drawn at random",
    "shuffled": "checked records of another task",
    "no_condition": "checked records without their conditions",
    "no_need": "checked records also where the agent needs none",
}


def about(name: str) -> str:
    """What the arm of that name is."""
    told = ABOUT.get(name.removesuffix(REWRITE), "")
    return f"{told}, rewritten for the task" if name.endswith(REWRITE) else told


# Characters that are not seen but change what is: control characters, and those that turn the direction of text.
_UNSEEN = (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: f"[U+{code:04X}]" for code in _UNSEEN} | {0x0D: None}


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure or a name, and beside it what it is a share of or what else belongs to it."""

    text: str
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells. The first cell of a row names it; `marked` is the name of the row that the finding speaks of."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    marked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Paragraphs, then tables. `key` is its anchor."""

    key: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


def sections(results: Results) -> tuple[Section, ...]:
    """All that is said in words and tables, in order; plots and records are added by the page."""
    built = results.construction
    every = (
        Section(key="outcomes", title="Outcomes", tables=(outcomes(results), *apart(results), *notes(results))),
        Section(key="reading", title="How to read it", paragraphs=tuple(reading(results))),
        Section(key="use", title="Use and price", tables=(uses(results), *rewriting(results), price(results))),
        Section(key="construction", title="Construction", tables=(stores(built), proposers(built), reasons(built))),
        Section(key="costs", title="Costs by stage", paragraphs=(paid(results),), tables=(costs(results),)),
        Section(key="settings", title="Settings", tables=(settings(results),)),
    )
    return tuple(s for s in every if s.key != "construction" or built)


# The story in short.


def headline(results: Results) -> ArmMetrics | None:
    """The arm that the finding is about: the one that the settings name beforehand, not the one that came out best."""
    named = f"checked_{results.experiment.memory.ablation_selector}"
    others = [a for a in results.arms if a.arm != "none"]
    reading = [a for a in others if a.arm.startswith("checked_") and a.arm != "checked_never"]
    return next(iter([*(a for a in others if a.arm == named), *reading, *others]), None)


def finding(results: Results) -> str:
    """One sentence or two: what the headline arm solved against none, and whether that is distinguishable from nothing."""
    base, best = results.arm("none"), headline(results)
    if not base.solved.whole:
        return "No held-out task was played, so nothing can be said."
    if best is None:
        return f"The agent alone solved {base.solved.part} of {base.solved.whole} held-out tasks; the run has no arm to compare it with."
    solved = (
        f"With {best.arm} the agent solved {best.solved.part} of {best.solved.whole} held-out tasks, without memory "
        f"{base.solved.part} of {base.solved.whole}"
    )
    if not best.rescued and not best.broken:
        return f"{solved}: no task came out differently."
    verdict = "distinguishable" if distinguishable(best) else "not distinguishable"
    return (
        f"{solved}: {best.rescued} rescued, {best.broken} broken. The difference of {points(best.difference)} points "
        f"(95% interval {between(best.difference_interval, signed=True)}, p {chance(best.p, equals=True)}) "
        f"is {verdict} from zero at this size."
    )


def figures(results: Results) -> list[tuple[str, Cell]]:
    """The few figures that tell the story, each with a label."""
    base, best = results.arm("none"), headline(results)
    found = [("solved without memory", share(base.solved))]
    if best is not None:
        found.append((f"solved with {best.arm}", share(best.solved)))
        found.append(("rescued and broken", Cell(f"{best.rescued} / {best.broken}", f"of {best.solved.whole} pairs")))
    checked = next((c for c in results.construction if c.variant == "checked"), None)
    if checked is not None:
        found.append(("source failures with a checked correction", share(Rate(part=checked.corrected, whole=checked.failed_tasks))))
    return found


def reading(results: Results) -> Iterator[str]:
    """What pairs, what the intervals are, what unpaired means, and what may not be concluded."""
    others = [a for a in results.arms if a.arm != "none"]
    yield (
        f"Every arm plays the same {results.heldout_tasks} held-out tasks of {results.heldout_groups} groups, and each play is "
        f"paired with that of none, the agent without "
        "memory. Rescued: solved in the arm alone; broken: solved by none alone. p is the exact two-sided McNemar test of these pairs; "
        "it is not adjusted for the number of arms."
    )
    yield (
        "Intervals are 95% percentile bootstraps that draw whole groups of related tasks (a database, a template), since tasks of one "
        "group are not independent. With few groups they are too narrow."
    )
    yield (
        "A use of memory is judged against the play without it from the same state. Where the two plays had parted before, there is no "
        "such state: the use is unpaired, and counts neither as harmful nor as harmless."
    )
    unclear = [a.arm for a in others if not distinguishable(a)]
    if unclear:
        yield (
            f"Not distinguishable from none at this size (p > {ALPHA}, or the interval of the difference includes 0): {', '.join(unclear)}."
        )
    best = headline(results)
    if best is not None and best.arm == f"checked_{results.experiment.memory.ablation_selector}":
        yield f"The finding speaks of {best.arm} because the settings name it (memory.ablation_selector), not because it came out best."


def distinguishable(arm: ArmMetrics) -> bool:
    """Whether both the exact test and the interval of the difference speak against chance."""
    ends = limits(arm.difference_interval)
    return arm.p <= ALPHA and bool(ends) and not ends[0] <= 0 <= ends[1]


# Tables.


def outcomes(results: Results) -> Table:
    """One row an arm: solved tasks, and the pairs with `none`."""
    base, best = results.arm("none").solved, headline(results)
    rows = []
    for a in results.arms:
        name = (Cell(a.arm, about(a.arm)), share(a.solved), Cell(between(a.solved_interval)), Cell(f"{a.score:.1f}"))
        pairs = (
            Cell(f"{a.rescued}/{base.whole - base.part}"),
            Cell(f"{a.broken}/{base.part}"),
            Cell(count(a.net)),
            Cell(chance(a.p)),
            Cell(points(a.difference)),
            Cell(between(a.difference_interval, signed=True)),
        )
        rows.append((*name, *([Cell("–")] * len(pairs) if a.arm == "none" else pairs)))
    return Table(
        title=f"Arms on {results.heldout_tasks} held-out tasks",
        headers=("arm", "solved", "95% interval", "mean score", "rescued", "broken", "net", "McNemar p", "points", "95% interval"),
        rows=tuple(rows),
        note=f"Rescued: of the {base.whole - base.part} tasks that none fails; broken: of the {base.part} that it solves; p: of both "
        f"together. Net, points (the difference of the shares solved) and mean score (0 to 100): of all {base.whole} tasks.",
        marked=best.arm if best else "",
    )


def apart(results: Results) -> Iterator[Table]:
    """Visible and hidden tests, where there are hidden ones (SPEC A3.1)."""
    if any(a.visible.whole for a in results.arms):
        yield Table(
            title="Visible and hidden tests",
            headers=("arm", "pass the visible tests", "pass all tests", "hidden tests passed"),
            rows=tuple((Cell(a.arm), share(a.visible), share(a.solved), Cell(f"{100 * float(a.hidden):.1f} %")) for a in results.arms),
            note="Of last actions. The agent sees the visible tests alone; a task is solved when all of both pass. Last column: the "
            "share of a task's hidden tests that pass, as a mean over tasks.",
        )


def notes(results: Results) -> Iterator[Table]:
    """What agents wrote between their attempts, where any did (SPEC D1, D2)."""
    reflecting = [(a.arm, a.notes) for a in results.arms if a.notes.tasks]
    if reflecting:
        yield Table(
            title="Notes between attempts",
            headers=(
                "arm",
                "tasks",
                "notes",
                "evidence alone",
                "refused drafts",
                "name the task",
                "name a step",
                "mean RRR",
                "frozen",
                "set aside",
            ),
            rows=tuple(
                (
                    Cell(name),
                    Cell(str(n.tasks)),
                    Cell(str(n.notes)),
                    Cell(str(n.evidence)),
                    Cell(str(sum(n.refused.values())), ", ".join(f"{k} {v}" for k, v in n.refused.items())),
                    share(n.named),
                    share(n.stepped),
                    Cell(f"{n.rrr:.2f}"),
                    share(n.frozen),
                    Cell(str(n.set_aside)),
                )
                for name, n in reflecting
            ),
            note="Tasks with at least one note. Evidence alone: both drafts were refused, and the evidence was kept. Name the task: of "
            "notes whose task line has something to name; it is not the same as being right. RRR: the share of notes after the first that "
            "repeat an earlier one, a mean over tasks; frozen from 0.5 on, of tasks with two notes and more. Set aside: attempts made "
            "without frozen notes.",
        )


def uses(results: Results) -> Table:
    """How often memory had something, showed it, changed the action, and did harm (SPEC A5)."""
    best = headline(results)
    return Table(
        title="Use of memory",
        headers=("arm", "coverage", "shown", "changed the action", "harmful", "unpaired"),
        rows=tuple(
            (
                Cell(a.arm),
                share(a.coverage),
                share(a.used),
                share(a.changed),
                share(a.harmful),
                share(Rate(part=a.unpaired, whole=a.unpaired + a.changed.whole)),
            )
            for a in results.arms
        ),
        note="Coverage and shown: of all decision points at which memory was asked. Changed and harmful: of paired uses; harmful when "
        "utility falls by more than 0.05. Unpaired: of all uses.",
        marked=best.arm if best else "",
    )


def rewriting(results: Results) -> Iterator[Table]:
    """What became of lessons that were to be rewritten for the present task, where any were (SPEC B1)."""
    rewriting_arms = [a for a in results.arms if a.rewrites]
    outcomes = [name for name in get_args(Rewritten) if name]
    if rewriting_arms:
        yield Table(
            title="Rewriting",
            headers=("arm", "asked", *outcomes),
            rows=tuple(
                (
                    Cell(a.arm),
                    share(Rate(part=sum(a.rewrites.values()), whole=a.used.whole)),
                    *(share(Rate(part=a.rewrites.get(name, 0), whole=sum(a.rewrites.values()))) for name in outcomes),
                )
                for a in rewriting_arms
            ),
            note="Asked: of all decision points at which memory was asked. The others: of those. Only what was accepted is shown; on "
            "empty the agent is told that no lesson fits; what was refused, for the reason in the column's head, leaves it without memory.",
        )


def price(results: Results) -> Table:
    """What a solved task cost: a sum over all tasks by the number of solved ones."""
    best = headline(results)
    return Table(
        title="Price of a solved task",
        headers=("arm", "failed attempts", "evaluator calls", "tokens, task run", "tokens with construction"),
        rows=tuple(
            (
                Cell(a.arm),
                each(a, a.failed_attempts),
                each(a, a.usage.evaluator_calls),
                each(a, a.usage.tokens),
                each(a, a.usage.tokens + results.construction_cost(a.arm).tokens),
            )
            for a in results.arms
        ),
        note="Sums over all tasks, solved or not, by the number of solved tasks. Construction: source plays, checks and practice of the "
        "store that the arm reads.",
        marked=best.arm if best else "",
    )


def stores(built: Sequence[Construction]) -> Table:
    """How each store came about, and that the held-out stage left it alone."""
    return Table(
        title="Stores",
        headers=(
            "store",
            "source tasks failed",
            "failed actions examined",
            "failed tasks corrected",
            "records",
            "conditions",
            "hash before held-out",
            "after",
        ),
        rows=tuple(
            (
                Cell(c.variant),
                share(Rate(part=c.failed_tasks, whole=c.source_tasks)),
                Cell(amount(c.failures)),
                share(Rate(part=c.corrected, whole=c.failed_tasks)) if c.variant == "checked" else Cell("not checked"),
                Cell(amount(c.records), f"{c.retired} retired" if c.retired else ""),
                Cell(", ".join(f"{kind} {n}/{sum(c.conditions.values())}" for kind, n in c.conditions.items()) or "–"),
                Cell(c.frozen_before[:12]),
                Cell(c.frozen_after[:12], "unchanged" if c.frozen_after == c.frozen_before else "CHANGED"),
            )
            for c in built
        ),
        note="A failed task is corrected when a record holds an action that solves it. Hashes: of the records, their status and counts.",
    )


def proposers(built: Sequence[Construction]) -> Table:
    """Which proposer earned what."""
    rows = []
    for c in built:
        total = sum(p.proposed for p in c.proposers)
        rows += [
            (
                Cell(p.proposer, c.variant if len(built) > 1 else ""),
                share(Rate(part=p.proposed, whole=total)),
                share(Rate(part=p.checked, whole=p.proposed)),
                share(Rate(part=p.gained, whole=p.checked)),
                share(Rate(part=p.admitted, whole=p.proposed)),
            )
            for p in c.proposers
        ]
    return Table(
        title="Which proposer earned what",
        headers=("proposer", "proposed", "checked", "with a gain", "admitted"),
        rows=tuple(rows),
        note="Proposed: of all proposals of the store. Checked and admitted: of the proposer's own; with a gain: of those checked. At most "
        "one proposal is admitted for a failed action.",
    )


def reasons(built: Sequence[Construction]) -> Table:
    """Why proposals were admitted or refused."""
    names = sorted({reason for c in built for reason in c.reasons})
    return Table(
        title="Decisions on proposals",
        headers=("reason", *(f"{c.variant} store" for c in built)),
        rows=tuple(
            (Cell(name), *(share(Rate(part=c.reasons.get(name, 0), whole=sum(c.reasons.values()))) for c in built)) for name in names
        ),
    )


def costs(results: Results) -> Table:
    """The ledger by stage, each as if it had run alone, and its sum."""
    total = sum((c.usage for c in results.costs), Usage())

    def row(name: Cell, tasks: str, usage: Usage) -> tuple[Cell, ...]:
        return (
            name,
            Cell(tasks),
            Cell(amount(usage.model_calls)),
            Cell(amount(usage.prompt_tokens)),
            Cell(amount(usage.completion_tokens)),
            Cell(amount(usage.tokens), percent(usage.tokens, total.tokens)),
            Cell(amount(usage.evaluator_calls)),
        )

    return Table(
        title="Ledger",
        headers=("stage", "tasks", "model calls", "prompt tokens", "completion tokens", "tokens, share of all", "evaluator calls"),
        rows=(*(row(Cell(c.stage), amount(c.tasks), c.usage) for c in results.costs), row(Cell("all stages"), "", total)),
    )


def paid(results: Results) -> str:
    """What was really sent, against what the stages would have cost one by one."""
    total, sent = sum((c.usage for c in results.costs), Usage()), results.paid
    return (
        f"Really sent: {amount(sent.model_calls)} distinct requests of {amount(total.model_calls)}, {amount(sent.tokens)} tokens of "
        f"{amount(total.tokens)}. A request that several arms share is sent once; in the ledger each pays for it."
    )


def settings(results: Results) -> Table:
    """Every setting of the experiment by its path in the file, and what it ran with."""
    ran = {"model of the run": results.model, "world of the run": results.world, "mulligan": results.version}
    plain = {**ran, **dict(_flat("", to_plain(results.experiment)))}
    return Table(
        title="What ran", headers=("setting", "value"), rows=tuple((Cell(name), Cell(str(value))) for name, value in plain.items())
    )


def _flat(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else "–" if value in (None, "") else value


def visible(text: str) -> str:
    """`text` with a name in place of every character that would be unseen, but for white space; carriage returns are left out."""
    return text.translate(_SHOWN)


# Figures as text. Minus signs are typographic; a share of nothing is shown as 0/0, without a percentage.


def share(rate: Rate) -> Cell:
    """`k/n` with the percentage beside it."""
    return Cell(str(rate), percent(rate.part, rate.whole))


def each(arm: ArmMetrics, total: float) -> Cell:
    """`total` by solved task, with both counts beside it."""
    value = arm.per_solved(total)
    beside = f"{amount(total)}/{arm.solved.part}"
    return Cell("–", beside) if value is None else Cell(amount(value) if value >= 100 else f"{value:.2f}", beside)


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else ""


def amount(value: float) -> str:
    return f"{value:,.0f}"


def count(value: int) -> str:
    return f"{value:+d}".replace("-", "−") if value else "0"


def points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    text = f"{100 * difference:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def between(interval: Interval, *, signed: bool = False) -> str:
    """An interval of shares in per cent, or of their difference in points; a dash when there is none."""
    ends = limits(interval)
    if not ends:
        return "–"
    return " to ".join(map(points, ends)) if signed else " to ".join(f"{100 * end:.1f}" for end in ends) + "%"


def chance(p: float, *, equals: bool = False) -> str:
    """A p value to three places; with `equals` as it follows the letter p."""
    if p < 0.001:
        return "< 0.001" if equals else "<0.001"
    return f"= {p:.3f}" if equals else f"{p:.3f}"


def limits(interval: Interval) -> tuple[float, ...]:
    """Both ends of an interval; nothing where it is that of a mean without values."""
    return () if interval is None else interval
