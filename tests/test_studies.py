"""Studies end to end on the toy world: retention at equal capacity, growth in several orders, what is paid once, what stays frozen."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cli_parts
import toy_run
from builders import attempt, episode, task
from mulligan.building import clear_run
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import StoreError, UnknownName, UsageError
from mulligan.experiment import stages, studies
from mulligan.experiment.report import markdown, read_results, write_report
from mulligan.experiment.report_curves import curves
from mulligan.experiment.report_studies import sections, spread, told
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import Experiment, MemorySettings, StudySettings
from mulligan.experiment.studies import ordered
from mulligan.memory import Memory
from mulligan.models import ScriptedModel
from mulligan.nouns import to_json
from mulligan.store import Store
from test_cli import Call, call  # noqa: F401  # a fixture
from toy import ToyWorld, toy_tasks

RETENTION = StudySettings(kind="retention", rules=("utility", "recency"), capacities=(2,), checkpoints=2)
GROWTH = StudySettings(kind="accumulation", orderings=2, checkpoints=2)


def settings(study: StudySettings, **memory: object) -> Experiment:
    given = MemorySettings(embedder="hash:64", ablation_selector="top1", need=0.0, **memory)  # type: ignore[arg-type]
    return toy_run.experiment(study=study, arms=("none",), memory=given)


def play(folder: Path, study: StudySettings, model: ScriptedModel | None = None, **memory: object) -> Results:
    parts = Parts(
        tasks=[*toy_tasks(8), *toy_tasks(5, "heldout")],
        world=ToyWorld(),
        model=model or ScriptedModel(toy_run.reply),
        embedder=HashingEmbedder(64),
    )
    return run(settings(study, **memory), parts, folder, lambda stage, done, total: None)


@pytest.fixture(scope="module")
def retained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("retained")
    return play(folder, RETENTION), folder


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("grown")
    return play(folder, GROWTH), folder


def same(results: Results) -> str:
    return to_json(replace(results, timing={}))


# ---- retention ----


def test_every_rule_holds_no_more_than_the_capacity(retained: tuple[Results, Path]) -> None:
    results, folder = retained
    assert results.study is not None
    assert [(c.line.rule, c.processed) for c in results.study.checkpoints] == [(r, n) for r in ("utility", "recency") for n in (4, 8)]
    assert all(c.records <= 2 for c in results.study.checkpoints) and results.study.checkpoints[-1].evicted > 0
    assert all(c.heldout.solved.whole == 5 for c in results.study.checkpoints)
    admitted = next(c for c in results.construction if c.variant == "checked").reasons["admitted"]
    for c in results.study.checkpoints:
        if c.processed == 8:
            assert c.records + c.evicted == admitted  # all that was checked was offered to every store
    utility, recency = (Store(folder / f"study-{rule}-2-0-8.db", frozen=True) for rule in ("utility", "recency"))
    with utility, recency:
        kept = {s.record.id for s in recency.records(domain="toy")}
        assert kept == {s.record.id for s in recency.records(domain="toy", status=None)[-2:]}  # the newest
        assert len({s.record.id for s in utility.records(domain="toy")}) == 2


def test_uses_between_checkpoints_are_settled(retained: tuple[Results, Path]) -> None:
    _, folder = retained
    with Store(folder / "study-utility-2-0-4.db", frozen=True) as early, Store(folder / "study-utility-2-0-8.db", frozen=True) as late:
        assert early.receipts() == [] and len(late.receipts()) > 0
        assert all(outcome is not None for _, outcome in late.receipts())


def test_rules_are_compared_with_the_first_in_pairs(retained: tuple[Results, Path]) -> None:
    results, _ = retained
    assert results.study is not None
    against = [c.against.rule if c.against else "" for c in results.study.checkpoints]
    assert against == ["", "", "utility", "utility"]
    for c in results.study.checkpoints[2:]:
        first = next(o for o in results.study.checkpoints if o.line.rule == "utility" and o.processed == c.processed)
        assert c.against is not None and c.against.gained - c.against.lost == c.heldout.solved.part - first.heldout.solved.part


def test_what_was_checked_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examined: Counter[str] = Counter()
    whole = Memory.examine

    def counted(self: Memory, played):  # type: ignore[no-untyped-def]
        examined[played.task.id] += 1
        return whole(self, played)

    monkeypatch.setattr(Memory, "examine", counted)
    play(tmp_path, RETENTION)
    assert set(examined.values()) == {1} and len(examined) == 8


# ---- accumulation ----


def test_a_store_grows_in_several_orders_to_the_same_records(grown: tuple[Results, Path]) -> None:
    results, folder = grown
    assert results.study is not None
    assert [(c.line.ordering, c.processed) for c in results.study.checkpoints] == [(1, 4), (1, 8), (2, 4), (2, 8)]
    ends = [c for c in results.study.checkpoints if c.processed == 8]
    assert {c.evicted for c in ends} == {0} and len({c.records for c in ends}) == 1
    kept = []
    for n in (1, 2):
        with Store(folder / f"study-utility-200-{n}-8.db", frozen=True) as store:
            kept.append([s.record.id for s in store.records(domain="toy")])
    assert sorted(kept[0]) == sorted(kept[1]) and kept[0] != kept[1]
    assert all(c.guidance > 0 for c in ends) and all(c.tokens > c.guidance for c in ends)
    assert ends[0].heldout.score > results.arm("none").score  # the toy's lessons are worth copying


def test_loss_is_of_tasks_learnt_from_before(grown: tuple[Results, Path]) -> None:
    results, folder = grown
    assert results.study is not None
    with Store(folder / "run.db", frozen=True) as ledger:
        for first, last in (results.study.checkpoints[:2], results.study.checkpoints[2:]):
            assert (first.earlier, first.loss, last.earlier) == (0, None, 4)
            then, now = (
                {e.task.id: e.utility for e in ledger.episodes(label=f"study {c.line.key} at {c.processed} again")} for c in (first, last)
            )
            assert len(then) == 4 and len(now) == 8
            assert last.loss == pytest.approx(100 * float(sum(then[t] - now[t] for t in then)) / 4)


def test_a_study_is_one_line_of_the_bill(grown: tuple[Results, Path]) -> None:
    results, _ = grown
    [bill] = [c for c in results.costs if c.stage.startswith("study")]
    assert bill.stage == "study" and bill.usage.model_calls > 0
    assert "practice checked 0" not in {c.stage for c in results.costs}  # no arm reads what it would measure


@given(st.integers(0, 9), st.integers(0, 20))
def test_an_order_has_all_episodes_once(ordering: int, size: int) -> None:
    given_ = [episode(attempt(), task=task(id=f"t{n}")) for n in range(size)]
    found = ordered(given_, ordering)
    assert sorted(e.task.id for e in found) == sorted(e.task.id for e in given_) and found == ordered(given_, ordering)
    assert ordering or found == given_


# ---- stopping, freezing, refusing ----


class Stops(ScriptedModel):
    """Fails at one of its calls, as a server does."""

    def __init__(self, at: int) -> None:
        super().__init__(toy_run.reply)
        self.left = at

    def complete(self, messages, **how):  # type: ignore[no-untyped-def]
        self.left -= 1
        if self.left == 0:
            raise ConnectionError("gone")
        return super().complete(messages, **how)


def test_a_study_that_was_stopped_goes_on_and_says_the_same(grown: tuple[Results, Path], tmp_path: Path) -> None:
    whole, _ = grown
    counted = Stops(0)
    play(tmp_path / "count", GROWTH, counted)
    needed = -counted.left
    for at in (needed // 2, needed - 4, needed - 1):
        with pytest.raises(ConnectionError):
            play(tmp_path / "run", GROWTH, Stops(at))
        (tmp_path / "run" / ".study-utility-200-1-8.db.part").write_bytes(b"a leftover")
        after = Stops(0)
        results = play(tmp_path / "run", GROWTH, after)
        assert same(results) == same(whole) and 0 < -after.left < needed
        again = Stops(1)
        assert same(play(tmp_path / "run", GROWTH, again)) == same(whole) and again.left == 1  # nothing is asked
        clear_run(tmp_path / "run")
        assert not list((tmp_path / "run").glob("study-*"))


def test_a_reader_that_writes_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writing(bench: stages.Bench, one: object, store: Store) -> Memory:
        with Store(store.path) as opened:
            opened.set_status(opened.records(domain="toy")[0].record.id, "retired", "by a fault")
        return stages.reader(bench, studies.SELECTING, store)

    monkeypatch.setattr(studies, "reader", writing)
    with pytest.raises(StoreError, match="changed the frozen store"):
        play(tmp_path, GROWTH)


@pytest.mark.parametrize(
    ("study", "error", "words"),
    [
        (replace(RETENTION, capacities=()), UsageError, "capacities"),
        (replace(RETENTION, capacities=(0,)), UsageError, "capacities"),
        (replace(RETENTION, rules=("luck",)), UnknownName, "utility"),
        (replace(GROWTH, orderings=0), UsageError, "at least 1"),
        (replace(GROWTH, checkpoints=0), UsageError, "at least 1"),
    ],
)
def test_what_cannot_be_run_is_said_first(tmp_path: Path, study: StudySettings, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        play(tmp_path / "run", study)
    assert not (tmp_path / "run").exists()


# ---- reports ----


def test_reports_tell_a_study(retained: tuple[Results, Path], grown: tuple[Results, Path], tmp_path: Path) -> None:
    for results, titles in ((retained[0], ["retention"]), (grown[0], ["growth", "guidance", "loss"])):
        section = next(s for s in sections(results) if s.key == "study")
        assert section.paragraphs == (told(results),) and told(results)
        for table in section.tables:
            assert all(len(row) == len(table.headers) for row in table.rows)
        assert [plot.name for plot in curves(results)] == titles
        paths = write_report(results, tmp_path / results.study.kind)  # type: ignore[union-attr]
        assert read_results(paths.json) == replace(results, timing={})
        page = paths.html.read_text()
        assert all(f"plot-{title}" in page for title in titles) and "style=" not in page and f">{section.title}<" in page
        assert section.title in markdown(results)
    assert "at most 2 records: utility" in told(retained[0]) and "2 orderings" in told(grown[0])


def test_a_run_without_a_study_says_nothing_of_one(tmp_path: Path) -> None:
    results = play(tmp_path, StudySettings())
    assert results.study is None and told(results) == "" and curves(results) == () and "study" not in {s.key for s in sections(results)}


def test_a_mean_stands_with_its_ends() -> None:
    assert spread([1.0, 2.0]) == "1.5 (1.0 to 2.0)" and spread([-3.0]) == "−3.0"


def test_the_command(call: Call, tmp_path: Path) -> None:  # noqa: F811
    text = cli_parts.EXPERIMENT.replace("[memory]", '[study]\nkind = "accumulation"\norderings = 2\ncheckpoints = 2\n[memory]')
    (tmp_path / "toy.toml").write_text(text)
    status, out, _ = call("run", "toy.toml", "--model", "python:cli_parts:model")
    assert status == 0 and "2 orderings" in " ".join(out.split()) and max(map(len, out.splitlines())) <= 80
    told_ = json.loads(call("run", "toy.toml", "--model", "python:cli_parts:model", "--json")[1])
    assert len(told_["study"]["checkpoints"]) == 4
