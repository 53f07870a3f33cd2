"""The page of a report: stored text cannot become anything but text, nothing is loaded, and plots and records are there."""

import hashlib
import re
from base64 import b64encode
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.experiment import report_plots
from mulligan.experiment.report import html, markdown, read_results, write_report
from mulligan.experiment.results import Cost, ProposerResult, Results
from mulligan.experiment.settings import TaskSettings
from mulligan.records import Condition, Signal, Usage
from test_report import LESSONS, Outline, construction, lesson, verdict, whole_run, without_plots


@pytest.fixture(scope="module")
def page() -> str:
    return html(whole_run())


# Stored text stays text.

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "<!-- ",
    "--> ]]> &lt;b&gt; &#60;i&#62;",
    "</pre></details></section>",
    "a | b \n\n# heading\n```\n<b>",
    "\x00\x01\x1b[31m\r",
    "\u202etxet desrever",
    "half a pair: \udc80",
    "[link](javascript:alert(1)) ![](http://example.org/x.png)",
    "$\\frac{1}{0}$ 漢字 🏌",
    "long " * 5000,
)


def saying(text: str) -> Results:
    """The run with `text` wherever text can come from outside."""
    one = lesson(1, text, text, text, text, proposer=text)
    decisions = tuple(replace(d, rule=text, check=replace(d.check, changed=verdict("1/3", text))) for d in one.decisions if d.check)
    record = replace(
        one.record,
        principle=text,
        scope=text,
        signals=(Signal(kind="error", what=text, where=text),),
        condition=Condition(kind="judged", text=text, predicate=text),
        provenance=replace(one.record.provenance, task=text, group=text, model=text, evaluator=text),
    )
    results = whole_run()
    return replace(
        results,
        experiment=replace(results.experiment, name=text, tasks=TaskSettings(loader=text, options={"path": text})),
        model=text,
        world=text,
        lessons=(replace(one, id=text, record=record, decisions=decisions),),
        construction=(replace(construction(), proposers=(ProposerResult(proposer=text, proposed=1, checked=1, gained=1, admitted=1),)),),
        costs=(Cost(stage=text, tasks=1, usage=Usage(prompt_tokens=10)),),
    )


@pytest.fixture(scope="module")
def harmless() -> Outline:
    return Outline(html(saying("harmless")))


def words(page: Outline) -> list[tuple[str, ...]]:
    """The tags of a page outside drawings, whose number of ticks depends on the length of the labels."""
    return [tag for tag in page.tags if tag[0].lstrip("/") not in DRAWING]


DRAWING = frozenset(["svg", "g", "path", "text", "use", "defs", "clippath", "rect"])


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_changes_no_tag(text: str, tmp_path: Path, harmless: Outline) -> None:
    paths = write_report(saying(text), tmp_path)
    page = Outline(paths.html.read_text("utf-8"))
    assert words(page) == words(harmless)
    assert page.raw == harmless.raw
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page.text)
    assert read_results(paths.json) == replace(saying(text), timing={})


@settings(max_examples=40)
@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        without_plots(patch)
        assert Outline(html(saying(text or "x"))).tags == Outline(html(saying("harmless"))).tags
    bars = [len(re.findall(r"(?<!\\)\|", line)) for line in markdown(saying(text or "x")).splitlines() if line.startswith("|")]
    assert bars == [len(re.findall(r"\|", line)) for line in markdown(saying("harmless")).splitlines() if line.startswith("|")]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_no_markup_in_markdown(text: str) -> None:
    written = markdown(saying(text))
    outside = re.sub(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)", "", written)  # what stands in code is text
    assert not re.search(r"(?<!\\)[<\[`]", outside)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", written)
    assert written.count("\n#") == markdown(saying("harmless")).count("\n#")


def test_long_text_is_cut_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    without_plots(monkeypatch)
    assert "… 21,000 more characters in report.json" in html(saying("long " * 5000))


def test_the_policy_allows_the_page_itself_and_nothing_else(page: str) -> None:
    outline = Outline(page)
    policy = next(value for name, value in outline.attributes if name == "content" and "default-src" in value)
    hashes = {tag: f"'sha256-{b64encode(hashlib.sha256(raw.encode()).digest()).decode()}'" for tag, (raw,) in outline.raw.items()}
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src {hashes['script']};" in policy
    assert f"style-src {hashes['style']};" in policy
    assert "unsafe" not in policy
    loading = {"src", "srcset", "action", "data", "poster", "background", "style", "formaction"}
    for name, value in outline.attributes:
        assert name not in loading
        assert not name.startswith("on")
        assert name != "href" or value.startswith("#")
    assert not re.search(r"https?:|url\((?!#)|@import", page)


def test_every_link_and_label_leads_to_one_place(page: str) -> None:
    outline = Outline(page)
    ids = [value for name, value in outline.attributes if name == "id"]
    wanted = [value.lstrip("#") for name, value in outline.attributes if name in ("href", "for", "aria-labelledby")]
    clips = re.findall(r"url\(#(\w+)\)", page)
    assert len(ids) == len(set(ids))
    assert {*wanted, *clips} <= set(ids)


def test_records_come_with_their_evidence(page: str) -> None:
    assert page.count("<details class=record") == len(LESSONS)
    for one in LESSONS:
        for text in (one.id, one.record.situation, one.record.original, one.record.corrected, one.record.diff, "stopped at the time limit"):
            assert escape(text) in page
    assert "<b class=admitted>admitted</b>" in page
    assert "not completed, so neither passed nor failed" in page


def test_what_was_not_checked_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without_plots(monkeypatch)
    one = LESSONS[0]
    record = replace(one.record, gain=replace(one.record.gain, verified=False))
    unfaithful = replace(one.decisions[0], check=replace(one.decisions[0].check, replayed=False))
    page = html(replace(whole_run(), lessons=(replace(one, record=record, decisions=(unfaithful,)),)))
    for said in ("solved, not verified", "The replay of the failed action differs"):
        assert said in page
        assert said not in html(whole_run())


# Plots.


def test_plots_take_their_colours_from_the_page(page: str) -> None:
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 4
    for svg in drawn:
        assert not re.search(r'style=|="#\w{6}"|<style|DejaVu', svg)
        assert re.search(r'class="fill-accent', svg)
    classes = {name for svg in drawn for names in re.findall(r'class="([^"]+)"', svg) for name in names.split()}
    (style,) = Outline(page).raw["style"]
    assert all(f".{name} {{" in style for name in classes)
    assert all(f">{a.arm}</text>" in drawn[0] for a in whole_run().arms)


def test_plots_leave_the_settings_of_others_alone() -> None:
    import matplotlib

    matplotlib.rcParams["xtick.labelsize"] = 31.0
    try:
        before = dict(matplotlib.rcParams)
        own = html(whole_run())
        assert dict(matplotlib.rcParams) == before
    finally:
        matplotlib.rcdefaults()
    assert own == html(whole_run())


def test_without_matplotlib_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    without_plots(monkeypatch)
    bare = html(whole_run())
    assert "<svg" not in bare
    assert "pip install &#x27;mulligan[report]&#x27;" in bare
    assert re.sub(r"<div class=plots>.*?\n</div>", "", page, flags=re.DOTALL) == re.sub(r"<p class=note>plots need .*?</p>", "", bare)


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (950, "950"), (1234, "1.2k"), (34_567, "35k"), (1_240_000, "1.2M"), (25e6, "25M")])
def test_large_numbers_are_short(value: float, shown: str) -> None:
    assert report_plots.short(value) == shown
