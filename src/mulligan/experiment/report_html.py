"""The report as one HTML page that stands alone: no network, no fonts, no library; light and dark, wide and narrow.

In: `Results`. Out: the text of the page. Everything that comes from a run (stored text above all) is untrusted: it is escaped
here, in `_text` and nowhere else, and a content security policy lets nothing run or load but this module's own script and style.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from fractions import Fraction
from html import escape
from importlib.resources import files

from mulligan.errors import MissingExtra
from mulligan.experiment.report_content import Cell, Section, Table, figures, finding, visible
from mulligan.experiment.report_curves import curves
from mulligan.experiment.report_plots import Plot, plots
from mulligan.experiment.report_profile import profile
from mulligan.experiment.report_studies import sections
from mulligan.experiment.results import Lesson, Results
from mulligan.records import Decision, Verdict

ORDER = ("outcomes", "study", "transfer", "probes", "plots", "reading", "use", "construction", "costs", "records", "settings")
LONGEST = 4000  # characters of one text on the page; report.json holds the whole


def html(results: Results) -> str:
    """The page. Without matplotlib it says what to install instead of showing plots."""
    style, script = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    title = _text(f"Mulligan: {results.experiment.name}")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">',
            f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>",
            *_header(results),
            "<main>",
            *_sections(results),
            f"</main>\n<script>{script}</script>\n</body>\n</html>\n",
        ]
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    """`text` for a page: escaped, with a note where it is cut."""
    cut = f" … {len(text) - LONGEST:,} more characters in report.json" if len(text) > LONGEST else ""
    return escape(visible(text[:LONGEST])) + cut


def _header(results: Results) -> Iterator[str]:
    run, agent = results.experiment, results.experiment.agent
    played = f"{agent.kind}, {agent.attempts} attempts · {results.source_tasks} source and {results.heldout_tasks} held-out tasks"
    links = {s.key: s.title for s in sections(results)} | {"plots": "Plots", "records": "Records"}
    yield "<header>\n<p class=over>Mulligan experiment</p>"
    yield f"<h1>{_text(run.name)}</h1>\n<p class=ran>{_text(f'{results.model} · {results.world} · {played}')}</p>"
    yield f"<p class=finding>{_text(finding(results))}</p>\n<dl class=figures>"
    yield from (f"<div><dt>{_text(label)}</dt><dd>{_cell(cell)}</dd></div>" for label, cell in figures(results))
    yield "</dl>\n<nav aria-label=Sections>"
    yield from (f'<a href="#{key}">{links[key]}</a>' for key in ORDER if key in links)
    yield "</nav>\n</header>"


def _sections(results: Results) -> Iterator[str]:
    said = {section.key: section for section in sections(results)}
    for key in ORDER:
        if key == "plots":
            yield from _plots(results)
        elif key == "records":
            yield from _records(results.lessons)
        elif key in said:
            yield from _section(said[key])


def _section(section: Section) -> Iterator[str]:
    yield f"<section id={section.key}>\n<h2>{section.title}</h2>"
    yield from (f"<p>{_text(paragraph)}</p>" for paragraph in section.paragraphs)
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    yield f'<div class=scroll role=region tabindex=0 aria-label="{_text(table.title)}">\n<table>\n<caption>{_text(table.title)}</caption>'
    yield "<thead><tr>" + "".join(f"<th scope=col>{_text(h)}</th>" for h in table.headers) + "</tr></thead>\n<tbody>"
    for name, *cells in table.rows:
        marked = " class=marked" if name.text == table.marked else ""
        yield f"<tr{marked}><th scope=row>{_cell(name)}</th>" + "".join(f"<td>{_cell(c)}</td>" for c in cells) + "</tr>"
    yield "</tbody>\n</table>\n</div>"
    if table.note:
        yield f"<p class=note>{_text(table.note)}</p>"


def _cell(cell: Cell) -> str:
    beside = f" <small>{_text(cell.beside)}</small>" if cell.beside else ""
    return f"<span>{_text(cell.text)}</span>{beside}"


def _plots(results: Results) -> Iterator[str]:
    yield "<section id=plots>\n<h2>Plots</h2>"
    try:
        drawn = (*plots(results), *curves(results), *profile(results))
    except MissingExtra as error:
        yield f"<p class=note>{_text(str(error))}</p>\n</section>"
        return
    yield "<div class=plots>"
    yield from map(_plot, drawn)
    yield "</div>\n</section>"


def _plot(plot: Plot) -> str:
    key = "".join(f"<li><i class={ink}></i>{_text(meaning)}</li>" for ink, meaning in plot.key)
    return (
        f"<figure>\n<figcaption><h3 id=plot-{plot.name}>{_text(plot.title)}</h3><p>{_text(plot.caption)}</p>"
        f"<ul class=key>{key}</ul></figcaption>\n{plot.svg}\n</figure>"
    )


# Records and their evidence.


def _records(lessons: tuple[Lesson, ...]) -> Iterator[str]:
    yield "<section id=records>\n<h2>Records</h2>"
    yield f"<p>Active records: {len(lessons)}. Each stands with what was checked on its failed action.</p>"
    if lessons:
        yield "<p class=filter hidden><label for=filter>Filter</label>"
        yield "<input id=filter type=search autocomplete=off spellcheck=false> <output id=shown for=filter></output></p>"
    for lesson in lessons:
        yield from _record(lesson)
    yield "</section>"


def _record(lesson: Lesson) -> Iterator[str]:
    record, used = lesson.record, lesson.statistics
    proposer, condition = record.provenance.proposer, record.condition.kind
    about = f"{proposer} · gain {_gain(record.gain.value)} · condition {condition} · helped {used.helped}/{used.selected}"
    yield f'<details class=record id="record-{_text(lesson.id)}">\n<summary><span class=when>{_text(record.situation)}</span>'
    yield f"<span class=what>{_text(record.diff)}</span><span class=about>{_text(about)}</span></summary>\n<dl class=terms>"
    yield from (f"<div><dt>{term}</dt><dd>{markup}</dd></div>" for term, markup in _terms(lesson) if markup)
    yield f"</dl>\n<h3>Checked from the same state: {len(lesson.decisions)}</h3>\n<ol class=tried>"
    yield from map(_tried, lesson.decisions)
    yield "</ol>\n</details>"


def _terms(lesson: Lesson) -> Iterator[tuple[str, str]]:
    """What a record says, each as markup."""
    record, used, source = lesson.record, lesson.statistics, lesson.record.provenance
    applies = _code(record.condition.predicate) + _quote(record.condition.text)
    gain = record.gain
    yield "situation", _quote(record.situation)
    yield "failed action", _code(record.original)
    yield "corrected action", _code(record.corrected)
    yield "difference", _code(record.diff)
    yield "principle", _quote(record.principle)
    yield "condition", applies if record.condition.kind != "none" else "none: it applies everywhere"
    yield (
        "gain",
        f"utility {gain.original} to {gain.changed}, {'' if gain.solved else 'not '}solved{'' if gain.verified else ', not verified'}",
    )
    yield "evidence", "".join(f"<p><b>{s.kind}</b> {_quote(s.what)}</p>" for s in record.signals)
    yield (
        "use in practice",
        f"retrieved {used.retrieved}, shown {used.selected}: helped {used.helped}, hurt {used.hurt}, neutral {used.neutral}; "
        f"moving average {used.ema:.2f}",
    )
    yield "source", _text(f"{source.benchmark}, {source.split}, group {source.group}, task {source.task}, attempt {source.attempt + 1}")
    yield "made by", _text(f"proposer {source.proposer}, agent {source.agent}, model {source.model}, evaluator {source.evaluator}")
    yield "record", _text(f"{lesson.id}, {record.kind}, {lesson.status}, scope {record.scope}, episode {source.episode}")


def _tried(decision: Decision) -> str:
    check = decision.check
    verdicts = [("failed action, replayed", check.original), ("this one", check.changed)] if check else []
    replay = "" if check is None or check.replayed else "<p>The replay of the failed action differs from what was recorded.</p>"
    return (
        f"<li><p><b class={'admitted' if decision.admitted else 'refused'}>{decision.reason}</b> {_text(decision.proposal.proposer)}: "
        f"{_quote(decision.proposal.edit)}</p>{_code(decision.proposal.action)}{replay}"
        + "".join(f"<p>{name}: {_verdict(verdict)}</p>{_code(verdict.feedback)}" for name, verdict in verdicts)
        + f"<p class=note>rule {_text(decision.rule)}</p></li>"
    )


def _verdict(verdict: Verdict) -> str:
    if not verdict.completed:
        return "not completed, so neither passed nor failed"
    return f"utility {verdict.utility}, {'solved' if verdict.solved else 'not solved'}"


def _gain(gain: Fraction) -> str:
    return f"{'+' if gain > 0 else ''}{gain}".replace("-", "−")


def _quote(text: str) -> str:
    return f"<q>{_text(text)}</q>" if text else ""


def _code(text: str) -> str:
    return f"<pre>{_text(text)}</pre>" if text else ""
