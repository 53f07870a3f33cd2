"""Reports of an experiment: report.json, report.md and report.html from its results, and the results back from the JSON.

In: `Results`. Out: three files, each whole or as it was before. The JSON is canonical and holds everything but the time of the
run, so equal results give equal files; the other two are views of it.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mulligan.errors import InvalidData, UsageError
from mulligan.experiment.arms import arm
from mulligan.experiment.report_content import Cell, Table, chance, count, finding, limits, visible
from mulligan.experiment.report_html import html
from mulligan.experiment.report_studies import sections
from mulligan.experiment.results import Results
from mulligan.nouns import from_plain, to_json, to_plain

__all__ = ["ReportPaths", "arms_table", "html", "markdown", "read_results", "write_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPaths:
    """Where a report was written."""

    json: Path
    markdown: Path
    html: Path


def write_report(results: Results, folder: Path) -> ReportPaths:
    """Write the three files into `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = ReportPaths(json=folder / "report.json", markdown=folder / "report.md", html=folder / "report.html")
    _replace(paths.json, _canonical(results))
    _replace(paths.markdown, markdown(results))
    _replace(paths.html, html(results))
    return paths


def read_results(path: Path) -> Results:
    """The results in a report.json. Raises UsageError for a missing file, InvalidData for one that holds no results."""
    try:
        plain = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"no report at {path}: name the report.json of a run") from None
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"{path} is no JSON: {error}") from None
    results = from_plain(Results, plain, what=str(path))
    names = [a.arm for a in results.arms]
    for name in names:
        arm(name)
    if names.count("none") != 1:
        raise InvalidData(f"{path} has no arm none, with which the others are paired")
    return results


def arms_table(results: Results) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and rows of the arms for a terminal of 80 columns, in ASCII. Rescued are of the tasks that none fails, broken of
    those it solves.
    """
    base = results.arm("none").solved
    rows: list[tuple[str, ...]] = []
    for a in results.arms:
        share = str(a.solved) if a.solved.value is None else f"{a.solved} {a.solved.value:.0%}"
        interval = "-".join(f"{100 * end:.0f}" for end in limits(a.solved_interval)) or "-"
        pairs = (f"{a.rescued}/{base.whole - base.part}", f"{a.broken}/{base.part}", count(a.net).replace("−", "-"), chance(a.p))
        rows.append((a.arm, share, interval, *(("-",) * 4 if a.arm == "none" else pairs)))
    return ("arm", "solved", "95%", "rescued", "broken", "net", "p"), rows


def markdown(results: Results) -> str:
    """The report as Markdown: the finding, how to read it, and every table."""
    lines = [f"# Mulligan: {_escape(results.experiment.name)}", _escape(finding(results))]
    for section in sections(results):
        lines.append(f"## {section.title}")
        lines += map(_escape, section.paragraphs)
        for table in section.tables:
            lines += [f"### {_escape(table.title)}", "\n".join(_rows(table))]
            lines += [_escape(table.note)] if table.note else []
    lines += ["## Records", f"Active records: {len(results.lessons)}. report.html lists them with their evidence, report.json holds them."]
    return "\n\n".join(lines) + "\n"


def _rows(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(table.headers)} |"
    yield f"|---|{'---:|' * (len(table.headers) - 1)}"
    for name, *cells in table.rows:
        first = _code(name.text) + (f" {_escape(name.beside)}" if name.beside else "")
        yield f"| {' | '.join([first, *map(_cell, cells)])} |"


def _cell(cell: Cell) -> str:
    return _escape(f"{cell.text} ({cell.beside})" if cell.beside else cell.text)


def _escape(text: str) -> str:
    """`text` on one line, without meaning in Markdown or HTML. Underscores inside words have none."""
    return re.sub(r"([\\`*\[\]<>|~#&]|(?<!\w)_|_(?!\w))", r"\\\1", _line(text))


def _code(text: str) -> str:
    """`text` as code, in a table too."""
    line = _line(text).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def _line(text: str) -> str:
    return " ".join(visible(text).split())


def _canonical(results: Results) -> str:
    plain = to_plain(results)
    del plain["timing"]
    return to_json(plain) + "\n"


def _replace(path: Path, text: str) -> None:
    """Write `text` beside `path`, then move it there: whoever reads finds the old file or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # half of a surrogate pair, which UTF-8 cannot hold, becomes the escape that JSON reads back
        beside.write_bytes(text.encode("utf-8", "backslashreplace"))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
