"""The plot of transfer: tasks solved by kind of change, a line for every arm.

In: `Results`. Out: one plot in the style of `report_plots`; none without changed tasks.
"""

from typing import Any

from mulligan.experiment.report_content import headline
from mulligan.experiment.report_plots import ACCENT, INK, LINE, MUTED, SOFT, Plot, drawing
from mulligan.experiment.report_transfer import WITHOUT
from mulligan.experiment.results import Results

HEIGHT = 210  # in points of the drawing


def profile(results: Results) -> tuple[Plot, ...]:
    """Solved tasks by kind of change, in the order of the settings."""
    kinds, best = [one for one in results.transfer if one.arms], headline(results)
    if not kinds:
        return ()
    inks = {"none": MUTED, WITHOUT: INK} | ({best.arm: ACCENT} if best else {})

    def draw(axes: Any) -> None:
        by_kind = [{a.metrics.arm: 100 * (a.metrics.solved.value or 0) for a in one.arms} for one in kinds]
        for arm in by_kind[0]:
            solved = [found.get(arm, 0) for found in by_kind]
            ink, dashes = inks.get(arm, SOFT), (0, (3, 3)) if arm == "none" else "-"
            wide = 2.2 if best and arm == best.arm else 1.4
            axes.plot(range(len(kinds)), solved, "o", ls=dashes, color=ink, lw=wide, ms=5, mec=ink, mfc=ink, zorder=2 + (arm in inks))
        axes.set_xlim(-0.3, len(kinds) - 0.7)
        axes.set_xticks(range(len(kinds)), [one.kind for one in kinds])
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=LINE, lw=1)
        axes.tick_params(axis="y", length=0, pad=6, labelcolor=MUTED)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:.0f}%")

    named = [(name, arm) for name, arm in (("accent", best.arm if best else ""), ("ink", WITHOUT)) if arm in {a.arm for a in results.arms}]
    counts = ", ".join(f"{one.kind} {len(one.pairs)}" for one in kinds)
    return (
        Plot(
            name="transfer",
            title="Solved tasks by kind of change",
            caption=f"Pairs: {counts}. The dashed line is none.",
            key=(*named, ("soft", "other arms")),
            svg=drawing("transfer", HEIGHT, draw),
        ),
    )
