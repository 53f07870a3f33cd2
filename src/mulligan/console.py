"""What people see: tables, records and progress, in a terminal of any width, and as plain text elsewhere.

In: nouns, figures and texts. Out: text on standard output; progress and notes on standard error. Stored text is data: no markup in
it is read, and characters that steer a terminal are shown as �. NO_COLOR and COLUMNS are respected. Not promised: to be read by
programs, which use --json.
"""

import json
import math
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic
from types import FrameType, TracebackType
from typing import Any, Self

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mulligan.nouns import Json, to_plain

SHORT = 8  # characters of an id without its prefix, unless more are needed to tell two apart
GAP = 2  # characters between the columns of a table
NARROW = 12  # characters that a column keeps however narrow the terminal
STOPPING = "stopping: work under way is finished first, so that it is kept; Ctrl-C again stops at once"

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """`text` without what would steer a terminal or turn its reading direction."""
    return _STEERING.sub("�", text.replace("\r\n", "\n").expandtabs(4))


def one_line(text: str) -> str:
    return clean(" ".join(text.split()))


def put(*parts: RenderableType) -> None:
    """Print on standard output what rich makes of `parts`, in which nothing is markup, without blanks at the ends of lines."""
    console = Console(markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(*parts)
    sys.stdout.write("\n".join(line.rstrip(" ") for line in capture.get().split("\n")))


def show_json(value: Any) -> None:
    """The one JSON value of a command, its nouns as plain values."""
    sys.stdout.write(json.dumps(_plain(value), ensure_ascii=False, indent=2) + "\n")


def _plain(value: Any) -> Json:
    """JSON has neither paths nor numbers that are none."""
    value = to_plain(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def note(text: str) -> None:
    """One line on standard error."""
    print(one_line(text), file=sys.stderr, flush=True)


def say(text: str = "", *, style: str = "") -> None:
    """A paragraph, wrapped."""
    put(Text(clean(text), style=style))


def heading(text: str) -> None:
    put(Text(f"\n{clean(text)}", style="bold"))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, fluid: int | None = None, words: Sequence[int] = (0,)) -> None:
    """Rows under headers. Columns are as wide as they must be, but the `fluid` one, which is cut to what is left; it and those in
    `words` stand to the left, figures to the right.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]
    if fluid is not None:
        rest = Console().width - sum(width + GAP for place, width in enumerate(widths) if place != fluid)
        widths[fluid] = max(NARROW, min(widths[fluid], rest))
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for place, (header, width) in enumerate(zip(headers, widths, strict=True)):
        left = place in words or place == fluid
        made.add_column(header, justify="left" if left else "right", no_wrap=True, overflow="ellipsis", width=width)
    for row in cells:
        made.add_row(*map(Text, row))
    put(made)


def fields(rows: Iterable[tuple[str, str]], *, indent: int = 2) -> None:
    """Labels and what they stand for, wrapped beside them. Empty ones are left out."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, text in rows:
        if text:
            grid.add_row(label, Text(clean(text)))
    put(Padding(grid, (0, 0, 0, indent)))


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Each id without its prefix, as short as all of them allow."""
    bare = {key: key.partition("_")[2] or key for key in ids}
    size = SHORT
    while len({text[:size] for text in bare.values()}) < len(bare):
        size += 1
    return {key: text[:size] for key, text in bare.items()}


# Long work.


class Stages:
    """Progress of stages on standard error: a bar with an estimate in a terminal, one line a stage elsewhere.

    Called with (stage, done, total). Inside its `with`, the first Ctrl-C says that work under way is waited for, and stops.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._finished: set[str] = set()
        self._since = monotonic()
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars.start()
        self._since = monotonic()
        self._before = signal.signal(signal.SIGINT, self._stop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._end()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._console.is_terminal:
            if stage not in self._tasks:  # what an earlier start did says nothing of the speed of this one
                self._tasks[stage] = self._bars.add_task(f"{stage:<20}", total=total, completed=max(0, done - 1))
            self._bars.update(self._tasks[stage], completed=done, total=total)
            return
        if done == total and stage not in self._finished:
            self._finished.add(stage)
            note(f"{stage}: {total} done in {monotonic() - self._since:.0f} s")
            self._since = monotonic()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever asks again means at once
        self._end()
        note(STOPPING)
        raise KeyboardInterrupt

    def _end(self) -> None:
        if self._console.is_terminal:
            self._bars.stop()
