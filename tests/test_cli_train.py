"""`mulligan train`, and recall with what it wrote."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

import toy_run
from mulligan.embeddings import HashingEmbedder
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import MemorySettings
from test_cli import Call, call  # noqa: F401  # a fixture
from toy import ToyWorld, toy_tasks

pytest.importorskip("torch", reason="the train extra is not installed")

from mulligan.train import uplift


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment that explored, without a learned arm."""
    where = tmp_path_factory.mktemp("explored")
    settings = MemorySettings(embedder="hash:64", explore=3)
    tasks = [*toy_tasks(6), *toy_tasks(5, "train"), *toy_tasks(2, "heldout")]
    parts = Parts(tasks=tasks, world=ToyWorld(), model=toy_run.LoggedModel(where / "log", 0), embedder=HashingEmbedder(64))
    run(toy_run.experiment(arms=("none", "checked_top1"), memory=settings), parts, where / "run", lambda *told: None)
    return where / "run"


@pytest.fixture
def here(folder: Path, tmp_path: Path) -> Path:
    shutil.copy(folder / "checked.db", tmp_path / "mulligan.db")
    shutil.copy(folder / "run.db", tmp_path / "run.db")
    return tmp_path


def test_train_a_selector_and_recall_with_it(call: Call, here: Path) -> None:  # noqa: F811
    status, out, err = call("train", "selector", "--name", "paired", "--plays", "run.db")
    assert status == 0, err
    assert "weights: paired.safetensors" in out
    assert max(map(len, (out + err).splitlines())) <= 80
    told = json.loads(call("train", "selector", "--name", "logistic", "--plays", "run.db", "--to", "l", "--json")[1])
    assert (told["selector"], told["weights"], told["plays"]) == ("logistic", "l", 15)
    assert told["shown"] > 0 < told["skipped"]
    words = ("recall", "say three words number 9", "--world", "toy:ToyWorld", "--selector", "paired")
    status, out, err = call(*words, "--weights", "paired.safetensors")
    assert status == 0, err
    assert "Nearest records" in out
    assert json.loads(call("offpolicy", "--selector", "logistic", "--weights", "l", "--store", "run.db", "--json")[1])["evaluation"]


def test_train_uplift(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("mulligan.building.WORLDS", {"toy": "toy:ToyWorld"})
    monkeypatch.setattr(uplift, "Settings", partial(uplift.Settings, updates=20))
    told = json.loads(call("train", "uplift", "--plays", "run.db", "--size", "2", "--json")[1])
    assert told["about"]["tasks"] == 5
    assert told["about"]["probes"] == 0
    assert (here / "uplift.safetensors").is_file()


def test_what_is_wrong_is_said(call: Call, here: Path) -> None:  # noqa: F811
    for words, part in (
        (("train", "selector", "--name", "nonsense", "--plays", "run.db"), "choose one of dqn"),
        (("train", "selector"), "--plays"),
        (("train", "selector", "--plays", "missing.db"), "missing.db"),
        (("recall", "x", "--selector", "dqn"), "mulligan train selector"),
        (("recall", "x", "--selector", "uplift"), "mulligan train uplift"),
        (("recall", "x", "--selector", "dqn", "--weights", "run.db"), "no file of weights"),
    ):
        status, out, err = call(*words)
        assert status in (1, 2), words
        assert part in err, (words, err)
        assert not out
