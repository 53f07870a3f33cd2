"""The demo: the recording that comes with the package answers every request that the demo makes, and nothing else is canned."""

from pathlib import Path

import pytest

from mulligan import building
from mulligan.experiment.results import Results
from mulligan.experiment.settings import DEFAULT_ARMS
from mulligan.records import Split


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("demo")
    plan = building.demo_plan("", folder / "run", {})
    tasks, _ = plan.tasks(folder)
    with building.opened_model(plan.model, {}) as model:
        return plan.play(model, tasks, folder / "run", lambda stage, done, total: None)


@pytest.mark.timeout(400)
def test_every_arm_plays_from_the_recording(played: Results) -> None:
    assert tuple(a.arm for a in played.arms) == DEFAULT_ARMS
    assert all(a.solved.whole == 48 for a in played.arms)
    assert played.paid.tokens == 0  # replies of a recording were paid for when it was made
    assert sum(c.usage.tokens for c in played.costs) > 100_000  # but they are on the bill


@pytest.mark.timeout(400)
def test_the_lessons_were_checked_here(played: Results) -> None:
    (checked,) = (c for c in played.construction if c.variant == "checked")
    assert checked.corrected > 0 and checked.records > 0
    assert checked.frozen_before == checked.frozen_after
    for lesson in played.lessons:
        assert lesson.record.gain.verified and lesson.record.gain.value > 0
        assert any(d.admitted and d.check is not None and d.check.replayed for d in lesson.decisions)


def test_the_sample_has_enough_questions_in_disjoint_splits(tmp_path: Path) -> None:
    plan = building.demo_plan("", tmp_path, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_MODEL": "any"})
    tasks, _ = plan.tasks(tmp_path)
    splits: tuple[Split, ...] = ("source", "train", "heldout")
    assert [sum(t.split == s for t in tasks) for s in splits] == [56, 24, 48]
    groups = [{t.group for t in tasks if t.split == s} for s in splits]
    assert not groups[0] & groups[1] and not groups[0] & groups[2] and not groups[1] & groups[2]
