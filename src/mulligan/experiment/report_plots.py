"""The plots of a report, as inline SVG that takes its colours and fonts from the page.

In: `Results`. Out: plots with a caption and a key. matplotlib lays them out and writes the SVG, without pyplot; then styles
become classes, so that one drawing is readable on light and dark paper and needs no inline style. The same results and the same
matplotlib give the same bytes. Figures that the tables hold are not repeated in full.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from mulligan.errors import MissingExtra
from mulligan.experiment.report_content import amount, headline, limits
from mulligan.experiment.results import Results

WIDTH, ROW, AXIS = 430, 23, 40  # in points of the drawing, which are pixels of the page where it is as wide as that
SIZE = 12.5  # of the text, as in report.css
BAR = 0.62  # of a row
LABEL = 24  # characters

# The page's inks, each drawn in a colour that stands for it until the SVG is rewritten. Names are classes of the page's style.
INKS: Mapping[str, str] = {"ink": "#010101", "muted": "#020202", "line": "#030303", "accent": "#040404", "soft": "#050505"}
INK, MUTED, LINE, ACCENT, SOFT = INKS.values()
_NAMES = {colour: name for name, colour in INKS.items()}
_KEPT = frozenset(["stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "text-anchor", "font-weight"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawing. `key` says which ink stands for what: pairs of an ink's name and its meaning."""

    name: str
    title: str
    caption: str
    key: tuple[tuple[str, str], ...] = ()
    svg: str


def plots(results: Results) -> tuple[Plot, ...]:
    """All plots. Raises MissingExtra without matplotlib."""
    try:
        import matplotlib  # noqa: F401  # asked for here, so that the lack of it is one clear error
    except ImportError:
        raise MissingExtra("plots need matplotlib: pip install 'mulligan[report]'") from None
    return success(results), pairs(results), tokens(results), stages(results)


def success(results: Results) -> Plot:
    """Share of solved tasks by arm, with intervals, against that of `none`."""

    def draw(axes: Any) -> None:
        ends = [100 * end for a in results.arms for end in limits(a.solved_interval)]
        for y, a in enumerate(results.arms):
            colour = ACCENT if a.arm == best else INK
            if limits(a.solved_interval):
                axes.plot([100 * end for end in limits(a.solved_interval)], [y, y], color=colour, lw=1.6)
            if a.solved.value is not None:
                axes.plot([100 * a.solved.value], [y], "o", ms=7, mec=colour, mfc=colour)
        if base is not None:
            axes.axvline(100 * base, color=MUTED, lw=1, ls=(0, (3, 3)), zorder=0)
        axes.set_xlim(min(ends, default=0) - 3, max(ends, default=100) + 3)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}%")
        _beside(axes, [str(a.solved) for a in results.arms])

    base, best = results.arm("none").solved.value, _best(results)
    return Plot(
        name="success",
        title="Solved tasks",
        caption=f"Of {results.heldout_tasks} held-out tasks, with 95% intervals. The dashed line is none.",
        svg=rowed("success", [a.arm for a in results.arms], draw, bold=best),
    )


def pairs(results: Results) -> Plot:
    """Tasks rescued to the right, broken to the left."""
    arms = [a for a in results.arms if a.arm != "none"]

    def draw(axes: Any) -> None:
        y = range(len(arms))
        axes.barh(y, [a.rescued for a in arms], BAR, color=ACCENT)
        axes.barh(y, [-a.broken for a in arms], BAR, color=MUTED)
        for place, a in enumerate(arms):
            axes.annotate(f"{a.rescued}", (a.rescued, place), xytext=(5, 0), textcoords="offset points", va="center_baseline", color=INK)
            axes.annotate(
                f"{a.broken}", (-a.broken, place), xytext=(-5, 0), textcoords="offset points", va="center_baseline", ha="right", color=INK
            )
        broken, rescued = max([1, *(a.broken for a in arms)]), max([1, *(a.rescued for a in arms)])
        axes.set_xlim(-1.2 * max(broken, rescued / 4), 1.2 * max(rescued, broken / 4))
        axes.axvline(0, color=INK, lw=1)
        axes.xaxis.set_major_formatter(lambda x, _: f"{abs(x):.0f}")
        _beside(axes, [f"{a.net:+d}".replace("-", "−") if a.net else "0" for a in arms])

    return Plot(
        name="pairs",
        title="Rescued and broken",
        caption=f"Of {results.heldout_tasks} pairs with none; the net is on the right.",
        key=(("muted", "broken: only none solves it"), ("accent", "rescued: only the arm solves it")),
        svg=rowed("pairs", [a.arm for a in arms], draw, bold=_best(results)),
    )


def tokens(results: Results) -> Plot:
    """Tokens by solved task, of the run alone and with construction."""

    def draw(axes: Any) -> None:
        run = [a.per_solved(a.usage.tokens) or 0 for a in results.arms]
        whole = [a.per_solved(a.usage.tokens + results.construction_cost(a.arm).tokens) or 0 for a in results.arms]
        y = range(len(results.arms))
        axes.barh(y, whole, BAR, color=SOFT)
        axes.barh(y, run, BAR, color=ACCENT)
        axes.set_xlim(0, 1.04 * max([1.0, *whole]))
        axes.xaxis.set_major_formatter(lambda x, _: short(x))
        _beside(
            axes, [f"{short(r)} / {short(w)}" if a.solved.part else "none solved" for a, r, w in zip(results.arms, run, whole, strict=True)]
        )

    return Plot(
        name="tokens",
        title="Tokens per solved task",
        caption="Of all tasks, by the number of solved ones.",
        key=(("accent", "task run"), ("soft", "construction of the store")),
        svg=rowed("tokens", [a.arm for a in results.arms], draw, bold=_best(results)),
    )


def stages(results: Results) -> Plot:
    """Prompt and completion tokens of every stage of the ledger."""

    def draw(axes: Any) -> None:
        y = range(len(results.costs))
        prompt = [c.usage.prompt_tokens for c in results.costs]
        axes.barh(y, prompt, BAR, color=SOFT)
        axes.barh(y, [c.usage.completion_tokens for c in results.costs], BAR, left=prompt, color=ACCENT)
        axes.set_xlim(0, 1.04 * max([1, *(c.usage.tokens for c in results.costs)]))
        axes.xaxis.set_major_formatter(lambda x, _: short(x))
        _beside(axes, [short(c.usage.tokens) for c in results.costs])

    total = sum(c.usage.tokens for c in results.costs)
    return Plot(
        name="stages",
        title="Cost by stage",
        caption=f"Tokens of each stage as if it had run alone; {amount(total)} in all.",
        key=(("soft", "prompt"), ("accent", "completion")),
        svg=rowed("stages", [c.stage for c in results.costs], draw),
    )


def short(value: float) -> str:
    """A count in at most four characters or so: 950, 1.2k, 34k, 1.2M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{unit}" if value < 10 * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def _best(results: Results) -> str:
    best = headline(results)
    return best.arm if best else ""


def _label(name: str) -> str:
    """`name` in ASCII, since matplotlib warns of characters that its own font lacks, and short enough to leave room for the plot."""
    text = ascii(name)[1:-1]
    return text if len(text) <= LABEL else text[: LABEL - 1] + "…"


def _beside(axes: Any, texts: Sequence[str]) -> None:
    """A text at the right edge of each row."""
    for y, text in enumerate(texts):
        axes.annotate(
            text, (1, y), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points", va="center_baseline", color=INK
        )


def rowed(name: str, rows: Sequence[str], draw: Callable[[Any], None], *, bold: str = "") -> str:
    """A drawing with one row a name, first on top, into which `draw` puts its marks."""

    def labelled(axes: Any) -> None:
        axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [_label(row) for row in rows])
        for row, label in zip(rows, axes.get_yticklabels(), strict=True):
            label.set_fontweight("bold" if row == bold else "normal")
            label.set_color(ACCENT if row == bold else INK)
        axes.tick_params(axis="y", length=0, pad=8)
        axes.grid(axis="x", color=LINE, lw=1)
        draw(axes)

    return drawing(name, ROW * max(1, len(rows)) + AXIS, labelled)


def drawing(name: str, height: float, draw: Callable[[Any], None]) -> str:
    """A drawing of that height in the page's style, into which `draw` puts its marks."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    out = io.StringIO()
    with _own_settings(name):
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        axes = figure.subplots()
        axes.tick_params(axis="x", length=0, pad=6, labelcolor=MUTED)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        draw(axes)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}, transparent=True)
    return _rewrite(out.getvalue(), name)


@contextmanager
def _own_settings(salt: str) -> Iterator[None]:
    """Settings that do not depend on the user's, for as long as one drawing takes."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": SIZE, "text.parse_math": False, "axes.unicode_minus": True}
        )
        yield


def _rewrite(svg: str, name: str) -> str:
    """`svg` for a page: classes for the inks, attributes for other styles, no fonts, fixed size or unused ids."""
    root = ElementTree.fromstring(svg)
    used = set(re.findall(r"#(\w+)", svg))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}style", "}metadata")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = dict(_attributes(element, used))
        element.text, element.tail = (element.text or "").strip(), ""
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-labelledby": f"plot-{name}"}
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _attributes(element: ElementTree.Element, used: set[str]) -> Iterator[tuple[str, str]]:
    for name, value in element.attrib.items():
        name = name.rpartition("}")[2]
        if name == "d":
            yield name, _rounded(" ".join(value.split()))
        elif name in ("x", "y", "width", "height"):
            yield name, _rounded(value)
        elif name == "transform":
            yield from () if value.startswith("rotate(-0 ") else ((name, _rounded(value)),)
        elif name == "style":
            yield from _styles(value)
        elif name != "id" or value in used:
            yield name, value


def _styles(style: str) -> Iterator[tuple[str, str]]:
    declared = {name.strip(): value.strip() for name, _, value in (one.partition(":") for one in style.split(";"))}
    inks = [f"{what}-{_NAMES[value]}" for what in ("fill", "stroke") if (value := declared.get(what, "")) in _NAMES]
    if inks:
        yield "class", " ".join(inks)
    if declared.get("fill") == "none":
        yield "fill", "none"
    for name, value in declared.items():
        if name in _KEPT:
            yield name, value


def _rounded(text: str) -> str:
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), text)
