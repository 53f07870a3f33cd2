"""Reports: the three files, what they say by rule, and that they come back from their JSON. The page has its own tests."""

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mulligan.errors import InvalidData, UnknownName, UsageError
from mulligan.experiment import report_content
from mulligan.experiment.arms import ARMS
from mulligan.experiment.metrics import ArmMetrics, Rate
from mulligan.experiment.report import arms_table, html, markdown, read_results, write_report
from mulligan.experiment.results import Construction, Cost, Lesson, ProposerResult, Results
from mulligan.experiment.settings import Experiment, TaskSettings
from mulligan.experiment.statistics import mcnemar
from mulligan.records import (
    Check,
    Condition,
    Decision,
    Gain,
    Proposal,
    Provenance,
    Record,
    Signal,
    Statistics,
    Usage,
    Verdict,
)

N, ALONE = 60, 32
# arm → solved, rescued, broken, paired uses, tokens
PLAYED = {
    "none": (32, 0, 0, 0, 47_000),
    "best_of_n": (33, 3, 2, 0, 148_000),
    "best_of_n_guided": (34, 4, 2, 0, 96_000),
    "unverified": (30, 3, 5, 31, 58_500),
    "no_persistence": (33, 1, 0, 4, 71_000),
    "checked_never": (32, 0, 0, 0, 47_000),
    "checked_top1": (34, 8, 6, 52, 56_100),
    "checked_threshold": (41, 10, 1, 24, 51_800),
    "checked_utility": (36, 5, 1, 17, 50_200),
    "random": (27, 2, 7, 55, 57_900),
    "shuffled": (29, 2, 5, 26, 52_400),
    "no_condition": (36, 7, 3, 37, 53_300),
}


def metrics(arm: str, solved: int, rescued: int, broken: int, uses: int, tokens: int) -> ArmMetrics:
    remembers = ARMS[arm].remembers
    return ArmMetrics(
        arm=arm,
        solved=Rate(part=solved, whole=N),
        solved_interval=(solved / N - 0.12, solved / N + 0.11),
        score=100 * (solved + 4) / N,
        rescued=rescued,
        broken=broken,
        p=mcnemar(rescued, broken),
        difference=(solved - ALONE) / N,
        difference_interval=((solved - ALONE) / N - 0.07, (solved - ALONE) / N + 0.08),
        coverage=Rate(part=71, whole=90) if remembers else Rate(part=0, whole=0),
        used=Rate(part=uses, whole=90) if remembers else Rate(part=0, whole=0),
        harmful=Rate(part=min(broken, uses - uses // 6), whole=uses - uses // 6),
        changed=Rate(part=uses // 2, whole=uses - uses // 6),
        unpaired=uses // 6,
        failed_attempts=2 * (N - solved) + 9,
        usage=Usage(prompt_tokens=tokens - 3000, completion_tokens=3000, model_calls=N + 20, evaluator_calls=N + 20),
    )


def verdict(utility: str, feedback: str = "1 row", completed: bool = True) -> Verdict:
    value = Fraction(utility)
    return Verdict(completed=completed, utility=value, solved=value == 1, feedback=feedback, evaluator="sql/3")


def lesson(place: int, text: str, failed: str, better: str, diff: str, *, proposer: str = "nearest_value") -> Lesson:
    proposal = Proposal(action=better, edit=diff, proposer=proposer)
    other = Proposal(action=failed.replace("SELECT", "SELECT DISTINCT"), edit="(nothing) → DISTINCT", proposer="distinct")
    before, timeout = verdict("0", "0 rows"), verdict("0", "stopped at the time limit", completed=False)
    record = Record(
        kind="correction",
        domain="sql",
        situation=text,
        original=failed,
        corrected=better,
        diff=diff,
        signals=(Signal(kind="unknown_value", what=f"no column holds {text[:12]!r}"),),
        condition=Condition(kind="predicate", predicate='"river" in tables and "unknown_value" in signals') if place % 2 else Condition(),
        gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True, tried=2),
        provenance=Provenance(
            task=f"geo-{place}",
            group=f"template-{place}",
            benchmark="geoquery",
            split="source",
            episode=f"epi_{place}",
            attempt=0,
            agent="react",
            model="qwen2.5-coder-1.5b",
            proposer=proposer,
            evaluator="sql/3",
        ),
    )
    tried = [
        Check(proposal=p, original=before, changed=after, replayed=True, state_before="s", state_after="s")
        for p, after in ((proposal, verdict("1", "2 rows: austin, dallas")), (other, timeout))
    ]
    return Lesson(
        id=record.id,
        status="active",
        record=record,
        statistics=Statistics(retrieved=9, selected=4, helped=2, hurt=1, neutral=1, ema=0.61),
        decisions=(
            Decision(proposal=proposal, reason="admitted", rule="gain>1/20;one-per-failure;v1", check=tried[0], record=record.id),
            Decision(proposal=other, reason="not_completed", rule="gain>1/20;one-per-failure;v1", check=tried[1]),
        ),
    )


LESSONS = (
    lesson(
        0,
        "through which states does the mississippi run",
        "SELECT state_name FROM river WHERE river_name = 'Mississippi'",
        "SELECT traverse FROM river WHERE river_name = 'mississippi'",
        "state_name → traverse; 'Mississippi' → 'mississippi'",
    ),
    lesson(
        1,
        "what is the shortest river in <state>",
        "SELECT MIN(length) FROM river",
        "SELECT river_name FROM river ORDER BY length LIMIT 1",
        "MIN ( length ) → river_name; (nothing) → ORDER BY length LIMIT 1",
        proposer="model",
    ),
    lesson(
        2,
        "where is springfield",
        "SELECT city_name FROM city WHERE city_name = 'springfield'",
        "SELECT state_name FROM city WHERE city_name = 'springfield'",
        "city_name → state_name",
        proposer="projection",
    ),
)


def construction(variant: str = "checked") -> Construction:
    checked = variant == "checked"
    return Construction(
        variant=variant,
        source_tasks=80,
        failed_tasks=37,
        failures=52,
        corrected=14 if checked else 0,
        records=14 if checked else 37,
        retired=0,
        conditions={"none": 3, "predicate": 11} if checked else {"judged": 37},
        reasons={"admitted": 14, "beaten": 6, "no_gain": 120, "not_completed": 2}
        if checked
        else {"admitted_unverified": 37, "over_limit": 48},
        proposers=(
            ProposerResult(proposer="model", proposed=88, checked=80 * checked, gained=9 * checked, admitted=6),
            ProposerResult(proposer="nearest_value", proposed=54, checked=54 * checked, gained=11 * checked, admitted=8),
        ),
        frozen_before="9f2c" * 16,
        frozen_after="9f2c" * 16,
    )


def whole_run() -> Results:
    """A run with all arms, two stores and three records."""
    stages = ["source", *(f"{work} {v}{end}" for v in ("checked", "unverified") for work, end in (("construct", ""), ("practice", " 0")))]
    return Results(
        experiment=Experiment(name="GeoQuery, question split", tasks=TaskSettings(loader="text2sql", options={"path": "geo.json"})),
        model="qwen2.5-coder-1.5b-instruct",
        world="sql/3",
        version="0.1.0",
        source_tasks=80,
        heldout_tasks=N,
        heldout_groups=N,
        source_solved=43,
        construction=(construction(), construction("unverified")),
        arms=tuple(metrics(name, *row) for name, row in PLAYED.items()),
        costs=(
            *(
                Cost(stage=s, tasks=80, usage=Usage(prompt_tokens=61_000 - 7_000 * i, completion_tokens=5_000, model_calls=90))
                for i, s in enumerate(stages)
            ),
            *(Cost(stage=name, tasks=N, usage=metrics(name, *row).usage) for name, row in PLAYED.items()),
        ),
        paid=Usage(prompt_tokens=402_000, completion_tokens=31_000, model_calls=913),
        lessons=LESSONS,
        timing={"seconds_of_this_start": 12.5},
    )


def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)


class Outline(HTMLParser):
    """The tags of a page with their attributes' names, and its text, kept apart from scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.attributes: list[tuple[str, str]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(("/" + tag,))

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment",))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in self.raw:
            self.raw[self.tags[-1][0]].append(data)
        else:
            self.text += data


# Three files.


def test_the_results_come_back_from_the_report(tmp_path: Path) -> None:
    paths = write_report(whole_run(), tmp_path / "new" / "folder")
    assert read_results(paths.json) == replace(whole_run(), timing={})
    assert "timing" not in json.loads(paths.json.read_bytes())


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    first = write_report(whole_run(), tmp_path / "first")
    again = write_report(replace(read_results(first.json), timing={"seconds_of_this_start": 99.0}), tmp_path / "again")
    for one, other in ((first.json, again.json), (first.markdown, again.markdown), (first.html, again.html)):
        assert one.read_bytes() == other.read_bytes()


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_plots(monkeypatch)
    paths = write_report(whole_run(), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        write_report(replace(whole_run(), model="another"), tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert set(before) == {paths.json.name, paths.markdown.name, paths.html.name}


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (lambda t: t[: len(t) // 2], InvalidData, "is no JSON"),
        (lambda t: "[" * 100_000, InvalidData, "is no JSON"),
        (lambda t: t.replace('"heldout_tasks":60', '"heldout_tasks":"many"'), InvalidData, "heldout_tasks"),
        (lambda t: t.replace('"heldout_tasks":60', '"heldout_tasks":60,"more":1'), InvalidData, "more"),
        (lambda t: t.replace('"arm":"random"', '"arm":"surprise"'), UnknownName, "surprise"),
        (lambda t: t.replace('"arm":"none"', '"arm":"random"'), InvalidData, "no arm none"),
    ],
)
def test_a_report_that_is_none_is_refused(
    spoil: Callable[[str], str], error: type[Exception], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_plots(monkeypatch)
    path = write_report(whole_run(), tmp_path).json
    path.write_text(spoil(path.read_text("utf-8")), "utf-8")
    with pytest.raises(error, match=says):
        read_results(path)


def test_a_missing_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        read_results(tmp_path / "nowhere.json")


# Nothing to divide by.


def nothing_happened() -> Results:
    """A run in which no task was played: every denominator is 0, and means have no interval."""
    zero = Rate(part=0, whole=0)
    empty = replace(metrics("none", 0, 0, 0, 0, 0), solved=zero, solved_interval=None, difference_interval=None, coverage=zero)
    empty = replace(empty, used=zero, harmful=zero, changed=zero, unpaired=0, failed_attempts=0, usage=Usage(), score=0.0, difference=0.0)
    bare = replace(
        construction(), source_tasks=0, failed_tasks=0, failures=0, corrected=0, records=0, conditions={}, reasons={}, proposers=()
    )
    return replace(
        whole_run(),
        source_tasks=0,
        heldout_tasks=0,
        heldout_groups=0,
        construction=(bare,),
        arms=tuple(replace(empty, arm=name) for name in ARMS),
        costs=(),
        paid=Usage(),
        lessons=(),
    )


def test_empty_denominators_break_nothing(tmp_path: Path) -> None:
    paths = write_report(nothing_happened(), tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    json.loads(paths.json.read_bytes(), parse_constant=refuse)
    back = read_results(paths.json)
    assert back == replace(nothing_happened(), timing={})
    text = Outline(paths.html.read_text("utf-8")).text
    for written in (paths.markdown.read_text("utf-8"), text):
        assert "0/0" in written
        assert "nothing can be said" in written
        assert not re.search(r"\bnan\b|\bNone\b|\binf\b", written)
    assert {row[1] for row in arms_table(back)[1]} == {"0/0"}


def test_a_run_without_stores_or_other_arms_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    without_plots(monkeypatch)
    alone = replace(whole_run(), construction=(), lessons=(), arms=whole_run().arms[:1])
    assert "## Construction" not in markdown(alone)
    assert "#construction" not in html(alone)
    assert "no arm to compare it with" in markdown(alone)


# What is said.


@pytest.mark.parametrize(
    ("rescued", "broken", "interval", "says"),
    [
        (10, 1, (0.08, 0.23), "is distinguishable from zero"),
        (1, 10, (-0.23, -0.08), "is distinguishable from zero"),
        (10, 1, (-0.01, 0.23), "is not distinguishable from zero"),  # p alone is not enough
        (5, 1, (0.01, 0.2), "is not distinguishable from zero"),  # nor the interval alone
        (10, 1, None, "is not distinguishable from zero"),
        (0, 0, (0.0, 0.0), "no task came out differently"),
    ],
)
def test_the_finding_follows_from_the_figures(rescued: int, broken: int, interval: tuple[float, float], says: str) -> None:
    results = whole_run()
    arm = replace(
        results.arm("checked_threshold"), rescued=rescued, broken=broken, p=mcnemar(rescued, broken), difference_interval=interval
    )
    results = replace(results, arms=(results.arm("none"), arm))
    assert says in report_content.finding(results)
    named_unclear = any("Not distinguishable" in sentence and arm.arm in sentence for sentence in report_content.reading(results))
    assert named_unclear == (says != "is distinguishable from zero")


@pytest.mark.parametrize(
    ("arms", "selector", "headline"),
    [
        (ARMS, "threshold", "checked_threshold"),
        (ARMS, "top1", "checked_top1"),
        (("none", "random", "checked_never", "checked_utility"), "threshold", "checked_utility"),
        (("none", "best_of_n"), "threshold", "best_of_n"),
    ],
)
def test_the_headline_is_chosen_by_the_settings_and_not_by_the_result(arms: Iterable[str], selector: str, headline: str) -> None:
    results = whole_run()
    experiment = replace(results.experiment, memory=replace(results.experiment.memory, ablation_selector=selector))
    found = report_content.headline(replace(results, experiment=experiment, arms=tuple(a for a in results.arms if a.arm in arms)))
    assert found is not None
    assert found.arm == headline


def test_hidden_tests_are_reported_apart() -> None:
    results = whole_run()
    assert list(report_content.apart(results)) == []
    arms = tuple(replace(a, visible=Rate(part=a.solved.part + 2, whole=N), hidden=Fraction(3, 4)) for a in results.arms)
    (table,) = report_content.apart(replace(results, arms=arms))
    assert [cell.text for cell in table.rows[0]] == ["none", f"{ALONE + 2}/{N}", f"{ALONE}/{N}", "75.0 %"]  # of the same plays
    outcomes, *_ = report_content.sections(replace(results, arms=arms))
    assert [found.title for found in outcomes.tables][1:] == ["Visible and hidden tests"]


def test_figures_stand_with_their_denominators() -> None:
    text = markdown(whole_run())
    row = next(line for line in text.splitlines() if line.startswith("| `checked_threshold` checked"))
    assert "| 41/60 (68.3%) | 56.3 to 79.3% | 75.0 | 10/28 | 1/32 | +9 | 0.012 | +15.0 | +8.0 to +23.0 |" in row
    assert "| `checked_threshold` | 71/90 (78.9%) | 24/90 (26.7%) | 12/20 (60.0%) | 1/20 (5.0%) | 4/24 (16.7%) |" in text
    construct = 66_000 + 59_000 + 52_000  # source, checked store, practice
    dear = f"{(51_800 + construct) / 41:,.0f} ({51_800 + construct:,}/41)"
    assert f"| `checked_threshold` | 1.15 (47/41) | 1.95 (80/41) | 1,263 (51,800/41) | {dear} |" in text
    assert "| `nearest_value` checked | 54/142 (38.0%) | 54/54 (100.0%) | 11/54 (20.4%) | 8/54 (14.8%) |" in text
    assert "913 distinct requests of 1,410, 433,000 tokens of 1,049,200" in text


def test_a_store_that_changed_is_not_called_unchanged() -> None:
    touched = replace(construction(), frozen_after="0" * 64)
    assert "CHANGED" in markdown(replace(whole_run(), construction=(touched,)))
    assert "CHANGED" not in markdown(whole_run())


def test_every_arm_is_explained() -> None:
    assert list(report_content.ABOUT) == list(ARMS)
    assert report_content.about("no_need+rewrite") == f"{report_content.ABOUT['no_need']}, rewritten for the task"


def test_what_became_of_rewriting_is_counted_with_its_denominators() -> None:
    results = whole_run()
    assert list(report_content.rewriting(results)) == []
    rewriting = replace(
        results.arm("checked_threshold"), arm="checked_threshold+rewrite", rewrites={"accepted": 20, "empty": 3, "copied": 1}
    )
    results = replace(results, arms=(*results.arms, rewriting))
    (table,) = report_content.rewriting(results)
    shown = dict(zip(table.headers, table.rows[0], strict=True))
    assert [shown[name].text for name in ("arm", "asked", "accepted", "empty", "copied", "unknown_name")] == [
        "checked_threshold+rewrite",
        "24/90",
        "20/24",
        "3/24",
        "1/24",
        "0/24",
    ]
    assert "| `checked_threshold+rewrite` | 24/90 (26.7%) |" in markdown(results)
    assert "checked_threshold+rewrite" in html(results)


def test_the_table_of_arms_fits_a_terminal() -> None:
    large = [replace(a, solved=Rate(part=a.solved.part, whole=999), p=0.0001) for a in whole_run().arms]
    headers, rows = arms_table(replace(whole_run(), arms=tuple(large)))
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    assert sum(widths) + 3 * len(widths) + 1 <= 80  # with a border and one space on each side
    assert all(cell.isascii() for row in rows for cell in row)
    assert dict(zip(headers, rows[7], strict=True))["rescued"] == "10/967"
