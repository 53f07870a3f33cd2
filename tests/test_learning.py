"""The stages of learned selectors: exploring on training tasks, weights in the run's folder, and the bill."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import toy_run
from builders import task
from mulligan.building import drawn
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import StoreError, UsageError
from mulligan.experiment import stages
from mulligan.experiment.report_studies import sections
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import MemorySettings, TaskSettings
from mulligan.nouns import content_id, to_json
from mulligan.read.selection import LEARNED, SETS
from mulligan.read.weights import load
from mulligan.store import Store
from toy import ToyWorld, toy_tasks

pytest.importorskip("torch", reason="the train extra is not installed")

from mulligan.train import dqn, fitting, uplift

ARMS = ("none", "checked_top1", *(f"checked_{name}" for name in (*LEARNED, *SETS)))


def play(folder: Path, train: int = 5, **memory: object) -> Results:
    settings = MemorySettings(**{"embedder": "hash:64", "explore": 3, "probes": 4, **memory})  # type: ignore[arg-type]
    tasks = [*toy_tasks(6), *toy_tasks(train, "train"), *toy_tasks(6, "heldout")]
    model = toy_run.LoggedModel(folder / "log", 0)
    parts = Parts(tasks=tasks, world=ToyWorld(), model=model, embedder=HashingEmbedder(64))
    quick = {**fitting.FITS, "dqn": lambda known: dqn.train(known, dqn.Settings(updates=20))[0]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "FITS", quick)
        patch.setattr(uplift, "Settings", partial(uplift.Settings, updates=20))
        return run(toy_run.experiment(arms=ARMS, memory=settings), parts, folder / "run", lambda *told: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("learning")
    return play(folder), folder


def test_learned_arms_are_played_with_weights_of_their_own(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    assert {a.arm for a in results.arms} == set(ARMS)
    assert {path.name for path in (folder / "run").glob("*.safetensors")} == {f"selector-{name}.safetensors" for name in (*LEARNED, *SETS)}
    assert results.arm("checked_logistic").net > 0


def test_every_choice_is_explored_and_no_failure_is_told(whole: tuple[Results, Path]) -> None:
    _, folder = whole
    with Store(folder / "run" / "run.db", frozen=True) as ledger:
        rounds = [ledger.episodes(label=f"explore {n}") for n in range(3)]
    first = [{e.task.id: e.receipts[0] for e in episodes} for episodes in rounds]
    for name, receipt in first[0].items():
        choices = {r[name].selection.chosen for r in first}
        assert len(choices) == min(3, 1 + len(receipt.candidates)), name
        assert receipt.selection.propensity == pytest.approx(1 / (1 + len(receipt.candidates)))
    assert {e.task.split for episodes in rounds for e in episodes} == {"heldout"}
    assert {s.kind for episodes in rounds for e in episodes for a in e.attempts for s in a.verdict.signals} <= {"blocked"}


def test_the_report_says_what_was_learned_from(whole: tuple[Results, Path]) -> None:
    results, _ = whole
    (section,) = [s for s in sections(results) if s.key == "learned"]
    singles, sets = section.tables
    assert [row[0].text for row in singles.rows] == list(LEARNED)
    assert {row[1].text for row in singles.rows} == {str(round(results.learned["dqn"]["decisions"]))}
    assert [row[0].text for row in sets.rows] == list(SETS)


def test_only_learned_arms_pay_for_exploring(whole: tuple[Results, Path]) -> None:
    results, _ = whole
    explored = sum(c.usage.tokens for c in results.costs if c.stage.startswith("explore"))
    gap = results.construction_cost("checked_dqn").tokens - results.construction_cost("checked_top1").tokens
    assert gap == explored > 0


def test_each_way_of_probing_pays_for_its_own_probes(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    booked = {c.stage: c for c in results.costs if c.stage.startswith("probe")}
    for name, policy in SETS.items():
        about = load(folder / "run" / f"selector-{name}.safetensors", ["uplift"]).about
        cost = booked.get(f"probe {policy}")  # EVSI makes none here: what exploring showed leaves no choice open
        assert about["probes"] == (cost.tasks if cost else 0) <= 4
        assert about["tasks"] == 5
        gap = results.construction_cost(f"checked_{name}").tokens - results.construction_cost("checked_dqn").tokens
        assert gap == (cost.usage.tokens if cost else 0)
    assert booked["probe random"].usage.tokens > 0


def test_a_probe_is_played_with_its_set_and_nothing_else(whole: tuple[Results, Path]) -> None:
    _, folder = whole
    with Store(folder / "run" / "run.db", frozen=True) as ledger:
        probes = [e for e in ledger.episodes() if e.label.startswith("probe ")]
    assert probes
    for episode in probes:
        (shown,) = {receipt.shown for receipt in episode.receipts}
        assert list(shown) == sorted(shown)
        assert episode.label == f"probe {content_id('set', sorted(shown))}"


def test_practice_keeps_off_the_tasks_that_are_explored(whole: tuple[Results, Path]) -> None:
    """Else a record's counts would tell what came of the very tasks that learners train on."""
    _, folder = whole
    with Store(folder / "run" / "run.db", frozen=True) as ledger:
        assert {e.task.split for e in ledger.episodes(label="practice checked 0")} == {"source"}


def test_going_on_pays_nothing_and_keeps_the_weights(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    files, log = sorted((folder / "run").glob("*.safetensors")), (folder / "log").read_text()
    before = [path.read_bytes() for path in files]
    again = play(folder)
    assert [path.read_bytes() for path in files] == before
    assert (folder / "log").read_text() == log
    assert to_json(replace(again, timing={})) == to_json(replace(results, timing={}))


def test_weights_that_change_while_held_out_tasks_are_played_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = stages.evaluate

    def meddles(bench: stages.Bench, name: str) -> stages.Episodes:
        with stages.weights_path(bench, "dqn").open("ab") as file:
            file.write(b" ")
        return evaluate(bench, "none")

    monkeypatch.setattr(stages, "evaluate", meddles)
    with pytest.raises(StoreError, match="weights"):
        play(tmp_path)


@pytest.mark.parametrize(("train", "rounds"), [(0, 3), (5, 0)])
def test_learning_without_training_tasks_or_rounds_is_refused_before_anything_is_spent(train: int, rounds: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tasks\.train"):
        play(tmp_path, train=train, explore=rounds)
    assert not (tmp_path / "log").exists()


def test_spare_source_tasks_are_trained_on_by_whole_groups() -> None:
    tasks = [task(id=f"s{n}", group=f"g{n // 2}") for n in range(12)] + [task(id="h", group="h", split="heldout")]
    chosen = drawn(tasks, TaskSettings(loader="x", source=3, train=4, spare=True))
    by = {split: {t.group for t in chosen if t.split == split} for split in ("source", "train", "heldout")}
    assert [len([t for t in chosen if t.split == s]) for s in ("source", "train", "heldout")] == [3, 4, 1]
    assert not by["source"] & by["train"]
    assert not [t for t in drawn(tasks, TaskSettings(loader="x", source=3, train=4)) if t.split == "train"]
