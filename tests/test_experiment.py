"""A run end to end: all arms, the frozen stores, and going on after a kill without paying twice."""

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import toy_run
from builders import record
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData, UnknownName, UsageError
from mulligan.experiment.arms import ARMS, BankMemory, arm, donors
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import DEFAULT_ARMS, load_experiment
from mulligan.memory import Settings
from mulligan.models import ScriptedModel
from mulligan.nouns import to_json
from mulligan.records import Message, Task
from mulligan.store import Store
from toy import ToyWorld, toy_tasks


def silent(stage: str, done: int, total: int) -> None:
    pass


def report(results: Results) -> str:
    return to_json(replace(results, timing={}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return toy_run.play(folder / "run", folder / "log"), folder


def test_every_arm_is_there_with_every_held_out_task(whole: tuple[Results, Path]) -> None:
    results, _ = whole
    assert [a.arm for a in results.arms] == list(DEFAULT_ARMS)
    assert all(a.solved.whole == 6 for a in results.arms)


def test_memory_helps_here_and_skipping_changes_nothing(whole: tuple[Results, Path]) -> None:
    results, _ = whole
    none = results.arm("none")
    assert results.arm("checked_top1").net > 0
    assert results.arm("checked_never").solved == none.solved
    assert results.arm("checked_never").used.part == 0
    assert results.arm("checked_top1").coverage.part > 0
    assert results.arm("none").coverage.whole == 0


def test_construction_counts_add_up(whole: tuple[Results, Path]) -> None:
    results, _ = whole
    checked = next(c for c in results.construction if c.variant == "checked")
    assert checked.source_tasks == 6
    assert checked.reasons["admitted"] == checked.records + checked.retired > 0
    assert sum(p.admitted for p in checked.proposers) == checked.reasons["admitted"]
    assert sum(p.proposed for p in checked.proposers) == sum(checked.reasons.values())
    assert checked.frozen_before == checked.frozen_after


def test_the_bill_counts_construction_and_every_arm(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    stages = {c.stage: c for c in results.costs}
    assert {"source", "construct checked", "construct unverified", "practice checked 0", *DEFAULT_ARMS} <= set(stages)
    assert stages["best_of_n"].usage.model_calls == 24
    assert results.construction_cost("checked_top1").tokens > 0 == results.construction_cost("none").tokens
    paid = (folder / "log").read_text().split()
    assert results.paid.model_calls == len(paid)
    assert sum(c.usage.model_calls for c in results.costs) > len(paid)  # equal requests of several arms are paid once


def test_running_again_pays_nothing_and_says_the_same(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    paid = (folder / "log").read_text()
    assert report(toy_run.play(folder / "run", folder / "log")) == report(results)
    assert (folder / "log").read_text() == paid


@pytest.mark.timeout(120)
def test_a_run_killed_at_20_moments_ends_with_the_same_report_and_pays_once(whole: tuple[Results, Path], tmp_path: Path) -> None:
    expected, _ = whole
    draw, log = random.Random(7), tmp_path / "log"
    command = [sys.executable, str(Path(toy_run.__file__)), str(tmp_path / "run"), str(log), "0.4"]
    kills = 0
    while kills < 20:
        process = subprocess.Popen(command)
        try:
            process.wait(draw.uniform(0.5, 1.1))  # the imports take about 0.3 s
            if process.returncode == 0:
                break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    results = toy_run.play(tmp_path / "run", log)
    assert kills == 20
    assert report(results) == report(expected)
    # A request can be paid twice only when its reply was in flight at a kill: at most one a player, and kill.
    again = sum(n - 1 for n in Counter(log.read_text().split()).values())
    assert again <= 2 * kills
    assert results.paid.model_calls == len(set(log.read_text().split()))


def parts(*tasks: Task) -> Parts:
    return Parts(tasks=tasks, world=ToyWorld(), model=ScriptedModel(toy_run.reply), embedder=HashingEmbedder(64))


def test_another_experiment_is_not_mixed_into_a_folder(tmp_path: Path) -> None:
    both = [*toy_tasks(1), *toy_tasks(1, "heldout")]
    few = toy_run.experiment(arms=("none",))
    run(few, parts(*both), tmp_path, silent)
    with pytest.raises(UsageError, match="other settings"):
        run(replace(few, parallel=1), parts(*both), tmp_path, silent)


def test_a_run_that_was_begun_before_a_setting_came_goes_on(tmp_path: Path) -> None:
    both, few = [*toy_tasks(1), *toy_tasks(1, "heldout")], toy_run.experiment(arms=("none",))
    run(few, parts(*both), tmp_path, silent)
    claim = tmp_path / "experiment.json"
    before = json.loads(claim.read_text())
    del before["experiment"]["memory"]["probes"], before["experiment"]["study"]
    claim.write_text(to_json(before))
    run(few, parts(*both), tmp_path, silent)
    claim.write_text(to_json({**before, "unknown": 1}))
    with pytest.raises(UsageError, match="other settings"):
        run(few, parts(*both), tmp_path, silent)


def test_what_is_wrong_is_said_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="checked_top1"):
        run(toy_run.experiment(arms=("nonsense",)), parts(*toy_tasks(1), *toy_tasks(1, "heldout")), tmp_path / "a", silent)
    with pytest.raises(UsageError, match="no heldout"):
        run(toy_run.experiment(), parts(*toy_tasks(1)), tmp_path / "b", silent)
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


REWRITES = ("Say the three words.", "<EMPTY>", "Say `zq_never`.")


def test_any_arm_with_a_store_can_rewrite(tmp_path: Path) -> None:
    def reply(messages: Sequence[Message]) -> str:
        if "Adapt the lessons" in messages[1].content:
            return REWRITES[int(messages[1].content.split("number ")[-1][0]) % 3]
        return toy_run.reply(messages)

    arms = ("none", "checked_top1", "checked_top1+rewrite", "no_condition+rewrite", "shuffled+rewrite")
    memory = replace(toy_run.experiment().memory, ablation_selector="top1", need=0.0)
    tasks = [*toy_tasks(6), *toy_tasks(6, "heldout")]
    results = run(toy_run.experiment(arms=arms, memory=memory), replace(parts(*tasks), model=ScriptedModel(reply)), tmp_path, silent)
    assert results.arm("checked_top1").rewrites == {} and results.arm("none").rewrites == {}
    for name in arms[2:]:
        found = results.arm(name)
        assert sorted(found.rewrites) == ["accepted", "empty", "unknown_name"]
        assert sum(found.rewrites.values()) <= found.used.whole
        assert found.used.part == found.rewrites["accepted"]
    asked = results.arm("checked_top1+rewrite")
    assert asked.usage.model_calls >= sum(asked.rewrites.values()) + 6  # each is paid for by its arm
    assert results.construction_cost("checked_top1+rewrite") == results.construction_cost("checked_top1")


def test_rewriting_goes_with_arms_that_have_a_store() -> None:
    assert [name for name in ARMS if arm(name).rewrite] == []
    assert {name for name, one in ARMS.items() if one.store} >= {"bank", "no_condition", "random", "checked_utility"}
    assert all(arm(f"{name}+rewrite") == replace(one, rewrite=True) for name, one in ARMS.items() if one.store)
    for name in ("none+rewrite", "no_persistence+rewrite", "best_of_n+rewrite", "+rewrite", "checked_top1+rewrite+rewrite"):
        with pytest.raises(UnknownName, match="no arm"):
            arm(name)


def test_the_bank_rewrites_its_three_notes_into_one(tmp_path: Path) -> None:
    asked: list[str] = []

    def reply(messages: Sequence[Message]) -> str:
        asked.append(messages[1].content)
        return "Say the three words."

    with Store(tmp_path / "bank.db") as store:
        for n, text in enumerate(("say three words", "say words three", "name three things quickly now")):
            note = record(f"{text} number 1", kind="principle", domain="toy", principle=f"note {n}: {text}", corrected="")
            store.add_record(note, HashingEmbedder(64).embed([note.situation])[0], embedder="hash:64")
        settings = Settings(rewrite=True, need=0.0, min_score=-1.0)
        bank = BankMemory(store, ToyWorld(), embedder=HashingEmbedder(64), model=ScriptedModel(reply), settings=settings)
        guidance = bank.recall(toy_tasks(1, "heldout")[0])
    assert guidance.receipt.rewrite == "accepted" and len(guidance.records) == len(asked[0].split("<lesson ")) - 1 >= 2


def test_donors_are_other_tasks_of_other_groups() -> None:
    tasks = [replace(t, group=f"g{i // 2}") for i, t in enumerate(toy_tasks(6))]
    given = donors(tasks)
    assert all(given[t.id].group != t.group for t in tasks)
    assert sorted(t.id for t in given.values()) == sorted(given)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("name = ", InvalidData, "no TOML"),
        ('name = "x"\n', InvalidData, "tasks"),
        ('name = "x"\nwrong = 1\n[tasks]\nloader = "sample"\n', InvalidData, "wrong"),
        ('name = "x"\nparallel = "many"\n[tasks]\nloader = "sample"\n', InvalidData, "parallel"),
    ],
)
def test_settings_name_what_is_wrong(tmp_path: Path, text: str, error: type[Exception], words: str) -> None:
    path = tmp_path / "e.toml"
    path.write_text(text)
    with pytest.raises(error, match=words):
        load_experiment(path)
    with pytest.raises(UsageError, match="no experiment file"):
        load_experiment(tmp_path / "missing.toml")
