"""What a report says of changed tasks and of probes: sentences and tables, by fixed rules.

In: `Results`. Out: sections of `report_content`, a table for a terminal, and what was found in sentences. Every share stands with its
denominator; the tables of a kind are about the pairs of that kind alone.
"""

from collections.abc import Iterator, Mapping, Sequence

from mulligan.experiment.counterfactuals import Probing
from mulligan.experiment.metrics import ArmMetrics, Rate
from mulligan.experiment.probes import Gap, Proportion, State
from mulligan.experiment.report_content import Cell, Section, Table, between, chance, headline, points, share
from mulligan.experiment.results import Results
from mulligan.experiment.transfer import TransferArm, Transferred

KINDS = {
    "original": "the source task again",
    "lookalike": "look-alikes: one fact changed, the correction wrong",
    "paraphrase": "paraphrases: other words",
    "schema": "other names",
    "environment": "another environment",
}
WITHOUT = "no_condition"
STATES: Mapping[State, str] = {"s+": "where it holds", "s-": "where it does not", "s0": "where something else changed"}


def told(results: Results) -> list[str]:
    """What was found, a sentence or two for each kind of change and each way of reading; nothing without transfer and probes."""
    return [*(_transferred(one, results) for one in results.transfer), *map(_probed, results.probes)]


def transfer_table(results: Results) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows for a terminal of 80 columns, in ASCII: of every kind of change the tasks solved, by arm."""
    kinds = [one for one in results.transfer if one.arms]
    by_kind = [{a.metrics.arm: str(a.metrics.solved) for a in one.arms} for one in kinds]
    rows = [(a.arm, *(solved.get(a.arm, "-") for solved in by_kind)) for a in results.arms] if kinds else []
    return ("arm", *(one.kind for one in kinds)), rows


def sections(results: Results) -> Iterator[Section]:
    """One section of transfer and one of probes, where the run has them."""
    if results.transfer:
        yield Section(
            key="transfer",
            title="Transfer to changed tasks",
            paragraphs=tuple(_transferred(one, results) for one in results.transfer),
            tables=(_pairs(results.transfer), *(_arms(one, results) for one in results.transfer if one.arms)),
        )
    if results.probes:
        said = tuple(map(_probed, results.probes))
        yield Section(
            key="probes", title="Counterfactual probes", paragraphs=said, tables=(_figures(results.probes), _fates(results.probes))
        )


# Transfer.


def _transferred(one: Transferred, results: Results) -> str:
    known = {a.metrics.arm: a.metrics for a in one.arms}
    best, what = headline(results), f"{one.kind}: {len(one.pairs)} pairs from {one.sources} source tasks"
    if not known:
        return f"{what}; nothing was asked."
    none = one.arms[0].metrics
    mine = known.get(best.arm) if best else None
    if mine is None:
        return f"{what}; none solves {none.solved}."
    said = f"{what}; none solves {none.solved}, {_against(mine)}, harmful in {mine.harmful} paired uses"
    if WITHOUT in known and mine.arm != WITHOUT:
        said += f"; {_against(known[WITHOUT])}, harmful in {known[WITHOUT].harmful}"
    return f"{said}."


def _against(arm: ArmMetrics) -> str:
    return f"{arm.arm} {arm.solved} ({arm.rescued} rescued, {arm.broken} broken, p {chance(arm.p, equals=True)})"


def _pairs(kinds: Sequence[Transferred]) -> Table:
    return Table(
        title="Pairs of a source task and a changed one",
        headers=("change", "pairs", "condition holds", "condition false", "no predicate", "records that gave none"),
        rows=tuple(
            (
                Cell(one.kind, KINDS[one.kind]),
                Cell(str(len(one.pairs)), f"from {one.sources} source tasks"),
                *(share(Rate(part=sum(p.condition is truth for p in one.pairs), whole=len(one.pairs))) for truth in (True, False, None)),
                Cell(str(sum(one.left_out.values())), ", ".join(f"{why} {n}" for why, n in sorted(one.left_out.items()))),
            )
            for one in kinds
        ),
        note="The condition is that of the record on the changed task. Every changed task is solved by its own gold; on look-alikes "
        "the record's correction is wrong, elsewhere it is right, with what was renamed carried over.",
    )


def _arms(one: Transferred, results: Results) -> Table:
    base, best = one.arms[0].metrics.solved, headline(results)
    return Table(
        title=f"{one.kind}: {len(one.pairs)} tasks",
        headers=(
            "arm",
            "solved",
            "95% interval",
            "rescued",
            "broken",
            "McNemar p",
            "points",
            "95% interval",
            "coverage",
            "own record found",
            "own record shown",
            "shown",
            "harmful",
        ),
        rows=tuple(_row(a, base) for a in one.arms),
        note=f"Rescued: of the {base.whole - base.part} tasks that none fails; broken: of the {base.part} that it solves. Coverage, "
        "found and shown: of all decision points at which memory was asked; own is a record of the task's own source. Harmful: of "
        f"paired uses, when utility falls by more than 0.05. Intervals draw the {one.sources} source tasks.",
        marked=best.arm if best else "",
    )


def _row(a: TransferArm, base: Rate) -> tuple[Cell, ...]:
    m = a.metrics
    pairs = (
        Cell(f"{m.rescued}/{base.whole - base.part}"),
        Cell(f"{m.broken}/{base.part}"),
        Cell(chance(m.p)),
        Cell(points(m.difference)),
        Cell(between(m.difference_interval, signed=True)),
    )
    return (
        Cell(m.arm),
        share(m.solved),
        Cell(between(m.solved_interval)),
        *([Cell("–")] * len(pairs) if m.arm == "none" else pairs),
        share(m.coverage),
        share(a.found),
        share(a.own),
        share(m.used),
        share(m.harmful),
    )


# Probes.


def _probed(one: Probing) -> str:
    f = one.findings
    return (
        f"{', '.join(one.arms)}: of {f.accepted.rate.whole} records {f.accepted.rate.part} are taken where they hold; of those with a "
        f"look-alike {f.adapted.rate} are left or rightly rewritten there, and of those with a placebo {f.kept.rate} are taken there too."
    )


def _figures(probes: Sequence[Probing]) -> Table:
    return Table(
        title="Is a record taken because it fits?",
        headers=("read by", "taken, s+", "left or rightly rewritten, s−", "taken, s0", "passed", "difference", "apart"),
        rows=tuple(
            (
                _reader(one),
                *(_proportion(p) for p in (one.findings.accepted, one.findings.adapted, one.findings.kept, one.findings.passed)),
                *(_gap(g) for g in (one.findings.difference, one.findings.apart)),
            )
            for one in probes
        ),
        note="s+: the record's source task; s−: its look-alike, of those taken in s+; s0: the source with a change that does not "
        "matter, of those taken in s+. Passed: taken in s+ and right in s−, of all with a look-alike. Difference: taken in s+ less "
        "right in s−. Apart: taken in s0 less taken wrongly in s−: 1 tells a change that matters from one that does not, 0 takes both "
        "alike. Arms that differ in the selector alone are probed once.",
    )


def _fates(probes: Sequence[Probing]) -> Table:
    return Table(
        title="What became of what was offered",
        headers=("read by", *STATES.values()),
        rows=tuple(
            (
                _reader(one),
                *(Cell(", ".join(f"{fate} {n}" for fate, n in one.findings.fates.get(state, {}).items()) or "–") for state in STATES),
            )
            for one in probes
        ),
        note="accepted: handed to the agent; condition: it does not hold; not_shown: does not fit the budget; others: what became of "
        "the rewriting.",
    )


def _reader(one: Probing) -> Cell:
    return Cell(one.arms[0], f"also {', '.join(one.arms[1:])}" if one.arms[1:] else "")


def _proportion(found: Proportion) -> Cell:
    return Cell(str(found.rate), between(found.interval) if found.interval else "")


def _gap(found: Gap) -> Cell:
    return Cell("–") if found.value is None else Cell(points(found.value), between(found.interval, signed=True))
