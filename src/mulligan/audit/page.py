"""An audit as one HTML page that stands alone: the timeline of each environment's reflections.

In: an `Audit`, perhaps a `Recheck`. Out: the text of the page. Everything in it comes from a log and is untrusted: it is escaped in `_text`
and nowhere else, and a content security policy lets nothing run or load but this page's own style.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from html import escape
from importlib.resources import files

from mulligan.audit.measures import Audit, Environment, Reflection
from mulligan.audit.recheck import Label, Recheck
from mulligan.experiment.report_content import visible

LONGEST = 4_000  # characters of one text
STYLE = """
.trials { font-family: var(--mono); letter-spacing: .15em; white-space: nowrap; }
.env { border-top: 1px solid var(--line); padding: 1rem 0; }
.env h3 { display: flex; flex-wrap: wrap; gap: .35rem 1rem; align-items: baseline; }
.env ol { margin: .6rem 0 0 1.4rem; max-width: 60em; font-size: .9375rem; }
.env li { margin-bottom: .5rem; overflow-wrap: anywhere; }
.env li.again { color: var(--muted); }
.frozen h3::after { content: "frozen"; color: var(--accent); font-size: .8125rem; }
"""


def page(audit: Audit, recheck: Recheck | None = None) -> str:
    """The page: figures, then environments, those that repeat themselves most first."""
    style = files("mulligan.experiment").joinpath("report.css").read_text(encoding="utf-8") + STYLE
    allowed = f"'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
    policy = f"default-src 'none'; style-src {allowed}; base-uri 'none'; form-action 'none'"
    rows = sorted((row for row in audit.rows if row.reflections), key=lambda row: (-row.rrr, -len(row.reflections), row.name))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">',
            f"<title>{_text(f'Audit of {audit.path}')}</title>\n<style>{style}</style>\n</head>\n<body>",
            *_header(audit),
            "<main>",
            *(_labels(recheck) if recheck else ()),
            "<section id=environments>\n<h2>Reflections, environment by environment</h2>",
            "<p>A reflection in grey repeats an earlier one. Trials: ● solved, ○ failed, · not told.</p>",
            *(_environment(row) for row in rows),
            "</section>\n</main>\n</body>\n</html>\n",
        ]
    )


def _text(text: str) -> str:
    cut = f" … {len(text) - LONGEST:,} more characters" if len(text) > LONGEST else ""
    return escape(visible(text[:LONGEST])) + cut


def _header(audit: Audit) -> Iterator[str]:
    yield "<header>\n<p class=over>Mulligan audit</p>"
    yield f"<h1>{_text(audit.path)}</h1>"
    yield f"<p class=finding>{_text(finding(audit))}</p>\n<dl class=figures>"
    for value, label in figures(audit):
        yield f"<div><dt>{_text(label)}</dt><dd><span>{_text(value)}</span></dd></div>"
    yield "</dl>\n</header>"


def finding(audit: Audit) -> str:
    """The audit in a sentence or two."""
    told = audit.grounded + audit.ungrounded
    repeats = (
        f"Of {audit.with_reflections} memories {audit.frozen} are frozen: at least half of what was added to them repeats what they said."
    )
    if not audit.with_reflections:
        return f"None of the {audit.environments} environments has a reflection."
    if not told:
        return f"{repeats} Whether reflections name their task cannot be told: the log holds no task lines."
    return f"{repeats} {audit.grounded} of {told} reflections name what their task was about."


def figures(audit: Audit) -> list[tuple[str, str]]:
    """Value and label of the figures in front."""
    told = audit.grounded + audit.ungrounded
    return [
        (f"{audit.frozen}/{audit.with_reflections}", "memories frozen"),
        (f"{audit.frozen_reflections}/{audit.reflections}", "reflections in frozen memories"),
        (f"{audit.grounded}/{told}" if told else "cannot tell", "reflections that name their target"),
        (f"{audit.corrected}/{audit.transitions}", "failed trials followed by a success"),
        (f"{audit.solved}/{audit.environments}", "environments solved"),
    ]


def _labels(recheck: Recheck) -> Iterator[str]:
    yield f"<section id=labels>\n<h2>Stored labels, run again</h2>\n<p>{recheck.agree} of {recheck.checked} hold.</p>"
    kinds: tuple[tuple[str, tuple[Label, ...]], ...] = (
        ("stored as solved, and not", recheck.false_successes),
        ("stored as unsolved, and solved", recheck.missed_successes),
        ("cannot be told", recheck.cannot_tell),
    )
    for title, labels in kinds:
        if labels:
            items = "".join(f"<li>{_text(f'{label.name} {label.why}')}</li>" for label in labels)
            yield f"<h3>{title}</h3>\n<ul>{items}</ul>"
    yield "</section>"


def _environment(row: Environment) -> str:
    trials = "".join({True: "●", False: "○", None: "·"}[trial] for trial in row.trials)
    kind = "env frozen" if row.frozen else "env"
    head = f"<h3>{_text(row.name)} <span class=trials>{trials}</span> <small>{row.rrr:.2f} repeated</small></h3>"
    task = f"<p><small>{_text(row.task[:300])}</small></p>" if row.task and row.task != row.name else ""
    return f'<div class="{kind}">{head}{task}<ol>{"".join(map(_reflection, row.reflections))}</ol></div>'


def _reflection(reflection: Reflection) -> str:
    marks = [name for name, shown in (("names its target", reflection.grounded), ("says no plan", not reflection.plan)) if shown]
    marks += ["does not name its target"] if reflection.grounded is False else []
    return f"<li{' class=again' if reflection.repeats else ''}>{_text(reflection.text.strip())} <small>{', '.join(marks)}</small></li>"
