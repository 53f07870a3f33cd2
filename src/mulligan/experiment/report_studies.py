"""What a report says of a study and of learned selectors: sentences and tables, in their place among the others.

In: `Results`. Out: the sections of `report_content`, and after the outcomes those of the study, of what was learned, of transfer and of
probes, where there are such. Every mean over orderings stands with the least and the largest of them.
"""

from collections.abc import Callable, Iterator, Sequence

from mulligan.experiment import report_content, report_transfer
from mulligan.experiment.report_content import ALPHA, Cell, Section, Table, between, chance, points, share
from mulligan.experiment.results import Results
from mulligan.experiment.studies import Checkpoint, Study

TITLES = {"retention": "Retention at equal capacity", "accumulation": "Growth of the store"}
LEARNT = "Decisions of exploring plays on training tasks; the same for every selector."
CALIBRATED = (
    "On tasks that a network did not see: the slope of the uplift found on the score, the expected calibration error over ten bins, and "
    "the share of sets whose sign is told right."
)
MEASURED = ("lesson tokens a task", "tokens a task", "earlier tasks lose")
NOTE = (
    "Lesson tokens: of lessons in the context, by held-out task; tokens: of all requests, by held-out task. Earlier tasks lose: points of "
    "mean score on the source tasks of former checkpoints, asked again with records of other groups, since they were learnt from."
)


def sections(results: Results) -> tuple[Section, ...]:
    """All that is said in words and tables, in order; plots and records are added by the page."""
    first, *others = report_content.sections(results)
    return (first, *_section(results), *_learned(results), *report_transfer.sections(results), *others)


def told(results: Results) -> str:
    """What the study found, in a sentence or two; "" without a study."""
    study = results.study
    if study is None or not study.checkpoints:
        return ""
    return " ".join(_retained(study) if study.kind == "retention" else _accumulated(study, results.arm("none").score))


def _section(results: Results) -> Iterator[Section]:
    study = results.study
    if study is not None and study.checkpoints:
        tables = _retention(study) if study.kind == "retention" else _accumulation(study)
        yield Section(key="study", title=TITLES.get(study.kind, study.kind), paragraphs=(told(results),), tables=tuple(tables))


def _learned(results: Results) -> Iterator[Section]:
    """What the learned selectors were trained on, and how far their own figures can be trusted."""
    singles = {name: about for name, about in results.learned.items() if "decisions" in about}
    sets = {name: about for name, about in results.learned.items() if "sets" in about}
    tables = []
    if singles:
        headers: tuple[str, ...] = ("selector", "decisions", "with a record")
        rows = [(Cell(name), Cell(f"{about['decisions']:,.0f}"), Cell(f"{about['shown']:,.0f}")) for name, about in singles.items()]
        tables.append(Table(title="Selectors of one record", headers=headers, rows=tuple(rows), note=LEARNT))
    if sets:
        names = ("tasks", "probes", "sets", "slope", "error", "signs")
        rows_ = [(Cell(name), *(Cell(f"{about[key]:.3g}") for key in names)) for name, about in sets.items()]
        headers = ("selector", "tasks", "probes", "sets tried", "slope", "calibration error", "signs right")
        tables.append(Table(title="Selectors of sets", headers=headers, rows=tuple(rows_), note=CALIBRATED))
    if tables:
        yield Section(key="learned", title="What was learned from", tables=tuple(tables))


def final(study: Study) -> list[Checkpoint]:
    """The last checkpoint of every line, in the order of the lines."""
    return list({checkpoint.line: checkpoint for checkpoint in study.checkpoints}.values())


def sizes(study: Study) -> dict[int, list[Checkpoint]]:
    """The checkpoints of all lines by the number of source tasks, ascending."""
    found: dict[int, list[Checkpoint]] = {}
    for checkpoint in sorted(study.checkpoints, key=lambda c: c.processed):
        found.setdefault(checkpoint.processed, []).append(checkpoint)
    return found


# Retention.


def _retained(study: Study) -> Iterator[str]:
    for capacity in dict.fromkeys(c.line.capacity for c in study.checkpoints):
        mine = [c for c in final(study) if c.line.capacity == capacity]
        said = ", ".join(f"{c.line.rule} {c.heldout.score:.1f}" for c in mine)
        apart = [c.line.rule for c in mine if c.against is not None and c.against.p <= ALPHA]
        verdict = f"{', '.join(apart)} (p <= {ALPHA})" if apart else f"no other rule (p > {ALPHA})"
        yield (
            f"Mean score with at most {capacity} records: {said}. By the tasks solved, distinguishable from {mine[0].line.rule} at this "
            f"size: {verdict}."
        )


def _retention(study: Study) -> Iterator[Table]:
    ended = final(study)
    yield Table(
        title=f"Rules of retention after {ended[0].processed} source tasks",
        headers=("rule", "records", "solved", "95% interval", "mean score", "only here / only first", "p", *MEASURED),
        rows=tuple(
            (
                Cell(c.line.rule, f"at most {c.line.capacity}"),
                Cell(str(c.records), f"{c.evicted} evicted"),
                share(c.heldout.solved),
                Cell(between(c.heldout.solved_interval)),
                Cell(f"{c.heldout.score:.1f}"),
                Cell(f"{c.against.gained} / {c.against.lost}" if c.against else "–"),
                Cell(chance(c.against.p) if c.against else "–"),
                *_measured([c]),
            )
            for c in ended
        ),
        note=f"Only here / only first: held-out tasks that this store alone solves, and that of {ended[0].line.rule} alone, at the same "
        f"capacity. {NOTE}",
    )
    if len(sizes(study)) > 1:
        yield _course("Mean score by source tasks", study, lambda c: f"{c.line.rule}, at most {c.line.capacity}")


# Accumulation.


def _accumulated(study: Study, none: float) -> Iterator[str]:
    by_size = sizes(study)
    first, last = (list(by_size.values())[place] for place in (0, -1))
    yield (
        f"After all {last[0].processed} source tasks the mean score on held-out tasks is {spread([c.heldout.score for c in last])} over "
        f"{len(last)} orderings; without memory it is {none:.1f}."
    )
    if len(by_size) > 1:
        moves = [end.heldout.score - start.heldout.score for start, end in zip(first, last, strict=True)]
        rose, fell = sum(m > 0 for m in moves), sum(m < 0 for m in moves)
        yield f"From the first checkpoint to the last it rose in {rose} orderings, fell in {fell} and stayed in {len(moves) - rose - fell}."
    losses = [c.loss for c in last if c.loss is not None]
    if losses:
        yield f"Earlier source tasks lost {spread(losses)} points since they were learnt from (a minus sign is a gain)."


def _accumulation(study: Study) -> Iterator[Table]:
    yield Table(
        title=f"Mean over {len(final(study))} orderings",
        headers=("source tasks", "records", "mean score", "solved", "rescued / broken", *MEASURED),
        rows=tuple(
            (
                Cell(str(size)),
                _spread([c.records for c in mine]),
                _spread([c.heldout.score for c in mine]),
                _spread([c.heldout.solved.part for c in mine]),
                Cell(f"{_mean([c.heldout.rescued for c in mine]):.1f} / {_mean([c.heldout.broken for c in mine]):.1f}"),
                *_measured(mine),
            )
            for size, mine in sizes(study).items()
        ),
        note=f"Beside each mean: the least and the largest. Solved: of {study.checkpoints[0].heldout.solved.whole} held-out tasks; rescued "
        f"and broken: against none. {NOTE}",
    )
    yield _course("Mean score by source tasks, each ordering", study, lambda c: f"ordering {c.line.ordering}")


# What both say.


def _measured(mine: Sequence[Checkpoint]) -> tuple[Cell, ...]:
    losses = [c.loss for c in mine if c.loss is not None]
    alone = f"{between_points(mine[0])} of {mine[0].earlier}" if len(mine) == 1 and losses else ""
    return (
        _spread([c.guidance for c in mine]),
        _spread([c.tokens for c in mine]),
        Cell(points(_mean(losses) / 100), alone or _range(losses)) if losses else Cell("–"),
    )


def between_points(checkpoint: Checkpoint) -> str:
    """The interval of a loss, in points."""
    ends = checkpoint.loss_interval
    return "" if ends is None else " to ".join(points(end / 100) for end in ends)


def _course(title: str, study: Study, name: Callable[[Checkpoint], str]) -> Table:
    rows: dict[str, dict[int, Checkpoint]] = {}
    for checkpoint in study.checkpoints:
        rows.setdefault(name(checkpoint), {})[checkpoint.processed] = checkpoint
    columns = list(sizes(study))
    return Table(
        title=title,
        headers=("store", *map(str, columns)),
        rows=tuple((Cell(row), *(_scored(mine.get(size)) for size in columns)) for row, mine in rows.items()),
        note="Beside each: records in the store.",
    )


def _scored(checkpoint: Checkpoint | None) -> Cell:
    return Cell("–") if checkpoint is None else Cell(f"{checkpoint.heldout.score:.1f}", str(checkpoint.records))


def spread(values: Sequence[float]) -> str:
    """The mean of `values`, and the least and the largest where they differ."""
    cell = _spread(values)
    return f"{cell.text} ({cell.beside})" if cell.beside else cell.text


def _spread(values: Sequence[float]) -> Cell:
    return Cell(_figure(_mean(values)), _range(values))


def _range(values: Sequence[float]) -> str:
    low, high = _figure(min(values)), _figure(max(values))
    return f"{low} to {high}" if low != high else ""


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _figure(value: float) -> str:
    text = f"{value:,.0f}" if abs(value) >= 1_000 or isinstance(value, int) else f"{value:.1f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")
