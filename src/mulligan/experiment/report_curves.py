"""The plots of a study: scores by rule at equal capacity, or curves over the source tasks, one for every ordering.

In: `Results`. Out: plots in the style of `report_plots`; none without a study.
"""

from collections.abc import Callable, Iterator
from typing import Any

from mulligan.experiment.report_content import limits
from mulligan.experiment.report_plots import ACCENT, INK, LINE, MUTED, SOFT, Plot, drawing, rowed, short
from mulligan.experiment.report_studies import final, sizes
from mulligan.experiment.results import Results
from mulligan.experiment.studies import Checkpoint, Study

HEIGHT = 210  # in points of the drawing


def curves(results: Results) -> tuple[Plot, ...]:
    """The plots of the study, if there is one."""
    study = results.study
    if study is None or not study.checkpoints:
        return ()
    return (_retention(results, study),) if study.kind == "retention" else tuple(_accumulation(results, study))


def _retention(results: Results, study: Study) -> Plot:
    ended, none = final(study), results.arm("none").solved.value

    def draw(axes: Any) -> None:
        ends = [100 * end for c in ended for end in limits(c.heldout.solved_interval)]
        for y, c in enumerate(ended):
            colour = INK if c.against else ACCENT
            axes.plot([100 * end for end in limits(c.heldout.solved_interval)], [y, y], color=colour, lw=1.6)
            axes.plot([100 * (c.heldout.solved.value or 0)], [y], "o", ms=7, mec=colour, mfc=colour)
        if none is not None:
            axes.axvline(100 * none, color=MUTED, lw=1, ls=(0, (3, 3)), zorder=0)
        axes.set_xlim(min(ends, default=0) - 3, max(ends, default=100) + 3)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}%")

    return Plot(
        name="retention",
        title="Solved tasks by rule of retention",
        caption=f"Of {ended[0].heldout.solved.whole} held-out tasks, with 95% intervals. The dashed line is none.",
        key=(("accent", "the rule that the others are compared with"),),
        svg=rowed("retention", [f"{c.line.rule}, {c.line.capacity}" for c in ended], draw),
    )


def _accumulation(results: Results, study: Study) -> Iterator[Plot]:
    score = results.arm("none").score
    yield _curve("growth", "Mean score on held-out tasks", "The dashed line is none.", study, lambda c: c.heldout.score, score)
    yield _curve("guidance", "Lesson tokens per held-out task", "Tokens of lessons in the context.", study, lambda c: c.guidance)
    lost = "Points of mean score since they were learnt from; below 0 they gained."
    yield _curve("loss", "What earlier tasks lost", lost, study, lambda c: c.loss, 0.0)


def _curve(
    name: str, title: str, caption: str, study: Study, value: Callable[[Checkpoint], float | None], level: float | None = None
) -> Plot:
    """`value` over the source tasks: a thin line for every ordering, a thick one for their mean, a dashed one at `level`."""
    known = {size: [v for c in mine if (v := value(c)) is not None] for size, mine in sizes(study).items()}
    means = {size: sum(values) / len(values) for size, values in known.items() if values}

    def draw(axes: Any) -> None:
        for line in dict.fromkeys(c.line for c in study.checkpoints):
            mine = [(c.processed, v) for c in study.checkpoints if c.line == line and (v := value(c)) is not None]
            axes.plot([x for x, _ in mine], [y for _, y in mine], color=SOFT, lw=1.4)
        axes.plot(list(means), list(means.values()), "o-", color=ACCENT, lw=2.2, ms=6, mec=ACCENT, mfc=ACCENT)
        if level is not None:
            axes.axhline(level, color=MUTED, lw=1, ls=(0, (3, 3)), zorder=0)
        axes.set_xlim(0, 1.04 * max(known))
        axes.set_xticks(list(known))
        if name == "guidance":
            axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=LINE, lw=1)
        axes.tick_params(axis="y", length=0, pad=6, labelcolor=MUTED)
        axes.yaxis.set_major_formatter(lambda y, _: short(y) if abs(y) >= 1_000 else f"{y:g}".replace("-", "−"))

    return Plot(
        name=name,
        title=title,
        caption=f"By source tasks learnt from. {caption}",
        key=(("accent", "mean"), ("soft", "each ordering")),
        svg=drawing(name, HEIGHT, draw),
    )
