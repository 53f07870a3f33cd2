"""Transfer on a real database: look-alikes and other names are made, met with their source's record, and answered as held-out tasks are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from builders import learnt
from islands import ask, build
from mulligan.embeddings import HashingEmbedder
from mulligan.experiment.counterfactuals import counterfactuals
from mulligan.experiment.metrics import Rate
from mulligan.experiment.settings import Experiment, MemorySettings, TaskSettings, TransferSettings
from mulligan.experiment.stages import Bench
from mulligan.experiment.transfer import learnt as lessons
from mulligan.experiment.transfer import transfer
from mulligan.models import ScriptedModel
from mulligan.pool import Pool
from mulligan.records import Message
from mulligan.search import record_text
from mulligan.store import Store
from mulligan.worlds.sql import SqlWorld

RIGHT = "SELECT area FROM island WHERE name = 'arn'"


def reply(messages: Sequence[Message]) -> str:
    """Follows any lesson; by itself it takes every question about an island for one about its people."""
    text = messages[1].content
    return text.split("Right: ")[1].splitlines()[0] if "Right: " in text else RIGHT.replace("area", "people")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A store with one record of one source task: select the area, where the question mentions it."""
    source = ask(build(tmp_path), RIGHT, prompt="What is the area of arn?")
    source = replace(source, id="area", split="source", group="area")
    record, _ = learnt(source, RIGHT, '"island.area" in mentions')
    with Store(tmp_path / "checked.db") as store:
        embedder = HashingEmbedder(64)
        store.add_record(record, embedder.embed([record_text(record)])[0], embedder=embedder.id)
    experiment = Experiment(
        name="islands",
        tasks=TaskSettings(loader="none"),
        arms=("none", "checked_threshold", "no_condition"),
        memory=MemorySettings(embedder="hash:64", need=0.0, similarity=-1.0, min_score=-1.0),
        transfer=TransferSettings(kinds=("original", "lookalike", "schema"), probes=True),
    )
    model, none = ScriptedModel(reply), Pool()
    return Bench(
        experiment=experiment,
        tasks=[source],
        world=SqlWorld(),
        model=model,
        embedder=HashingEmbedder(64),
        ledger=Store(tmp_path / "run.db"),
        folder=tmp_path,
        players=none,
        checkers=none,
        progress=lambda stage, done, total: None,
    )


def test_a_lesson_helps_where_it_holds_and_its_condition_keeps_it_from_a_look_alike(bench: Bench) -> None:
    with bench.ledger:
        assert [task.id for _, task in lessons(bench)] == ["area"]
        original, lookalike, schema = transfer(bench)
        assert [len(one.pairs) for one in (original, lookalike, schema)] == [1, 1, 1]
        by_arm = [{a.metrics.arm: a for a in one.arms} for one in (original, lookalike, schema)]
        assert by_arm[0]["checked_threshold"].metrics.rescued == 1 and by_arm[0]["checked_threshold"].own.part == 1
        assert (lookalike.pairs[0].condition, lookalike.pairs[0].change) == (False, "area → people")
        assert by_arm[1]["checked_threshold"].own.part == 0 < by_arm[1]["no_condition"].own.part
        kept, misled = (by_arm[1][name].metrics for name in ("checked_threshold", "no_condition"))
        assert (kept.solved.part, kept.broken, kept.harmful) == (1, 0, Rate(part=0, whole=0))
        assert (misled.solved.part, misled.broken, misled.harmful) == (0, 1, Rate(part=1, whole=1))
        assert by_arm[2]["no_condition"].metrics.solved.part == 0  # the names of the stored query are gone
        assert (bench.folder / "transfer").is_dir() and (bench.folder / "transfer-schema.json").is_file()
        (asked,) = bench.ledger.episodes(label="transfer schema none")
        assert asked.task.split == "heldout" and "CREATE TABLE island " not in asked.task.context


def test_probes_of_a_condition(bench: Bench) -> None:
    with bench.ledger:
        with_, without = counterfactuals(bench)
    assert (with_.arms, without.arms) == (("checked_threshold",), ("no_condition",))
    assert (with_.findings.accepted.rate.part, with_.findings.adapted.rate.part, with_.findings.kept.rate.part) == (1, 1, 1)
    assert (without.findings.accepted.rate.part, without.findings.adapted.rate.part, without.findings.kept.rate.part) == (1, 0, 1)
    assert with_.findings.fates["s-"] == {"condition": 1}
