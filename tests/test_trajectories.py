"""Files of episodes: what is read, what is refused and why, and that learning from them is whole, idempotent and resumable."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import attempt, episode, task
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import ModelUnreachable, UsageError
from mulligan.memory import Memory
from mulligan.models import ScriptedModel
from mulligan.nouns import to_json
from mulligan.records import Message
from mulligan.store import Store
from mulligan.trajectories import Line, Outcome, learn, learn_all, read_lines
from toy import ToyWorld, toy_tasks

WORLD = ToyWorld()
TASK = {"prompt": "say three words", "payload": {"gold": "one two three"}}


def account(*actions: str, **task: Any) -> str:
    return json.dumps({"task": {**TASK, **task}, "actions": actions})


def read(path: Path, *lines: str | bytes) -> list[Line]:
    file = path / "episodes.jsonl"
    file.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return read_lines(file, WORLD)


def memory(store: Store, **parts: Any) -> Memory:
    return Memory(store, WORLD, embedder=HashingEmbedder(64), **parts)


def learnt(store: Store, lines: list[Line]) -> list[Outcome]:
    return learn_all(memory(store), lines, lambda stage, done, total: None)


def test_an_account_is_a_task_and_what_was_tried(tmp_path: Path) -> None:
    (line,) = read(tmp_path, account("one two red", group="g", scope="acme/a"))
    assert line.task is not None
    assert (line.task.id, line.task.group, line.task.scope) == ("episodes/1", "g", "acme/a")
    assert (line.task.domain, line.task.benchmark, line.task.split) == ("toy", "episodes", "source")
    assert line.account is not None
    assert line.account.actions == ("one two red",)


def test_an_episode_is_read_as_it_was_written(tmp_path: Path) -> None:
    played = episode(attempt("one two red"), task=toy_tasks(1)[0])
    (line,) = read(tmp_path, to_json(played))
    assert line.episode == played


def test_a_whole_task_may_stand_in_an_account(tmp_path: Path) -> None:
    whole = toy_tasks(1)[0]
    (line,) = read(tmp_path, json.dumps({"task": json.loads(to_json(whole)), "actions": ["red"]}))
    assert line.task == whole


DEEP = '{"task": ' + "[" * 100_000 + "]" * 100_000 + "}"
REFUSED = [
    ("not json", "no JSON"),
    (b"\xff\xfe\x00", "no JSON"),
    (b"\x00\x01\x02", "no JSON"),
    ('{"task": {"prompt": "a"', "no JSON"),
    ("[1]", "neither an episode nor an account"),
    ("null", "neither an episode nor an account"),
    ('{"actions": ["a"]}', "neither an episode nor an account"),
    ('{"task": 3, "actions": ["a"]}', "task"),
    ('{"task": {}, "actions": ["a"]}', "prompt"),
    ('{"task": {"prompt": "a"}, "actions": "SELECT 1"}', "actions"),
    ('{"task": {"prompt": "a"}, "actions": [1]}', "actions.0"),
    ('{"task": {"prompt": "a"}, "actions": []}', "no actions"),
    ('{"task": {"prompt": "a", "promt": "b"}, "actions": ["a"]}', "promt"),
    ('{"task": {"prompt": "a", "payload": {"x": NaN}}, "actions": ["a"]}', "no JSON"),
    ('{"task": {"prompt": "a", "payload": {"x": 1e999}}, "actions": ["a"]}', "no JSON"),
    ('{"task": {"prompt": "a", "database": "a.sqlite"}, "actions": ["a"]}', "no gold query"),
    ('{"task": {"prompt": "a", "database": "a.sqlite", "gold": "SELECT 1"}, "actions": ["a"]}', "a.sqlite"),
    (DEEP, "no JSON"),
    (b" " + b"x" * (10 << 20), "longer than 8 MiB"),
    (to_json(episode(attempt(), task=toy_tasks(1, "heldout")[0])), "heldout split"),
    (to_json(episode(attempt())).replace('"agent"', '"agnet"'), "agent"),
]


@pytest.mark.parametrize(("line", "reason"), REFUSED, ids=[reason + str(n) for n, (_, reason) in enumerate(REFUSED)])
def test_a_line_that_cannot_be_used_is_named_and_the_others_are_kept(tmp_path: Path, line: str | bytes, reason: str) -> None:
    lines = read(tmp_path, account("red"), "", line, account("one"))
    assert [one.number for one in lines] == [1, 3, 4]
    assert [bool(one.fault) for one in lines] == [False, True, False]
    assert reason in lines[1].fault


def test_a_byte_order_mark_and_blank_lines_are_no_fault(tmp_path: Path) -> None:
    assert [line.fault for line in read(tmp_path, b"\xef\xbb\xbf" + account("red").encode(), "  ", "\r")] == [""]


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_a_file_without_lines_is_an_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError, match="holds no episodes"):
        read(tmp_path, content)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="cannot read"):
            read_lines(path, WORLD)


def test_actions_are_judged_by_the_world_and_learnt_from(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        (outcome,) = learnt(store, read(tmp_path, account("one two red")))
        assert (outcome.failures, outcome.known, outcome.fault) == (1, False, "")
        (key,) = outcome.records
        assert store.record(key).record.corrected == "one two three"


def test_a_success_is_noted_as_one_that_needed_no_lesson(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        learnt(store, read(tmp_path, account("one two three"), account("one two red", "one two three")))
        assert store.unaided("default", "toy").solved.tolist() == [True, False]


def test_later_actions_of_an_account_are_tried_after_the_earlier_ones(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        learnt(store, read(tmp_path, account("red", "one two three")))
        (played,) = store.episodes()
        assert [(a.index, a.action, a.verdict.solved) for a in played.attempts] == [(0, "red", False), (1, "one two three", True)]


def test_learning_again_changes_nothing_and_asks_no_model(tmp_path: Path) -> None:
    lines = read(tmp_path, account("one two red"), account("one blue three", id="other"))
    model = ScriptedModel(lambda messages: "[]")
    with Store(":memory:") as store:
        first = learn_all(memory(store, model=model), lines, lambda stage, done, total: None)
        before, asked = store.digest(), model.calls
        again = learn_all(memory(store, model=model), lines, lambda stage, done, total: None)
        assert (store.digest(), model.calls) == (before, asked)
    assert asked > 0
    assert [o.known for o in first] == [False, False]
    assert [o.known for o in again] == [True, True]


def test_a_stop_in_the_middle_leaves_whole_lines_and_the_rest_is_learnt_later(tmp_path: Path) -> None:
    lines = read(tmp_path, *(account("one two red", id=f"t{n}") for n in range(4)))

    def fails_at_third(messages: list[Message]) -> str:
        if model.calls > 2:
            raise ModelUnreachable("gone")
        return "[]"

    model = ScriptedModel(fails_at_third)  # type: ignore[arg-type]  # a list is a sequence
    panel = [line.task for line in lines if line.task]
    with Store(":memory:") as whole, Store(":memory:") as broken:
        learn_all(memory(whole, panel=panel), lines, lambda stage, done, total: None)
        with pytest.raises(ModelUnreachable):
            learn_all(memory(broken, model=model, panel=panel), lines, lambda stage, done, total: None)
        assert len(broken.episodes()) == 2
        outcomes = learn_all(memory(broken, panel=panel), lines, lambda stage, done, total: None)
        assert [o.known for o in outcomes] == [True, True, False, False]
        assert broken.counts() == whole.counts()


def test_a_line_that_the_store_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    bad = account("one two red", "one blue three", scope="a\0b")
    with Store(":memory:") as store:
        outcomes = learnt(store, read(tmp_path, bad, account("one two red")))
        assert "NUL" in outcomes[0].fault
        assert len(store.episodes()) == 1
        assert store.counts()["records"] == 1


def test_half_of_an_episode_is_never_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = read(tmp_path, account("one two red", "one blue three"))
    with Store(":memory:") as store:
        lessons, admit, admitted = memory(store), Memory.admit, []

        def second_fails(self: Memory, *args: Any) -> Any:
            admitted.append(args)
            if len(admitted) == 2:
                raise UsageError("refused")
            return admit(self, *args)

        monkeypatch.setattr(Memory, "admit", second_fails)
        assert learn(lessons, line).fault == "refused"
        assert len(admitted) == 2
        assert not any(store.counts().values())


def test_a_world_that_fails_on_one_line_does_not_cost_the_others(tmp_path: Path) -> None:
    with Store(":memory:") as store:
        outcomes = learnt(store, read(tmp_path, account("red", payload={}), account("one two red")))
        assert "KeyError" in outcomes[0].fault
        assert len(outcomes[1].records) == 1


def test_a_brief_task_on_a_database_shows_its_schema(tmp_path: Path) -> None:
    from mulligan.worlds.sql import SqlWorld

    with closing(sqlite3.connect(tmp_path / "geo.sqlite")) as connection:
        connection.executescript("CREATE TABLE river (name TEXT); INSERT INTO river VALUES ('Red'), ('Ohio')")
    brief = {"prompt": "How many rivers?", "database": "geo.sqlite", "gold": "SELECT count(*) FROM river"}
    file = tmp_path / "episodes.jsonl"
    file.write_text(json.dumps({"task": brief, "actions": ["SELECT count(*) FROM rivers"]}))
    (line,) = read_lines(file, SqlWorld())
    assert line.task is not None
    assert "CREATE TABLE river" in line.task.context
    assert Path(line.task.payload["database"]).is_absolute()
    with Store(":memory:") as store:
        outcome = learn(Memory(store, SqlWorld(), embedder=HashingEmbedder(64)), line)
        (played,) = store.episodes()
    assert outcome.failures == 1
    assert [s.kind for s in played.attempts[0].verdict.signals][:1] == ["unknown_table"]
    assert played.attempts[0].verdict.seconds == 0.0  # else another reading would be another episode


VALID = (account("one two red") + "\n" + to_json(episode(attempt("red"), task=task(domain="toy", payload={"gold": "red"}))) + "\n").encode()


@settings(max_examples=300)
@given(st.data())
def test_mutated_files_end_in_lines_or_one_clear_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        end = data.draw(st.integers(place, min(len(raw), place + 20)))
        raw[place:end] = data.draw(st.sampled_from([b"", b"\x00", b"\xff", b'"', b"{", b"]", b"\n", b"1e999", b"null", b"[[", b"\\ud800"]))
        if not raw:
            break
    file = tmp_path_factory.getbasetemp() / "mutated.jsonl"
    file.write_bytes(raw)
    try:
        lines = read_lines(file, WORLD)
    except UsageError:
        return
    with Store(":memory:") as store:
        for outcome in learnt(store, [line if line.fault else replace(line, number=1) for line in lines]):
            assert "\n" not in outcome.fault


def test_the_documented_account_is_read_and_learnt_from(tmp_path: Path) -> None:
    from mulligan.worlds.sql import SqlWorld

    page = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
    example = page.split("```json\n")[1].split("```")[0]
    with closing(sqlite3.connect(tmp_path / "geo.sqlite")) as connection:
        connection.executescript("CREATE TABLE river (name TEXT); INSERT INTO river VALUES ('Red'), ('Ohio')")
    (tmp_path / "episodes.jsonl").write_text(example)
    (line,) = read_lines(tmp_path / "episodes.jsonl", SqlWorld())
    with Store(":memory:") as store:
        outcome = learn(Memory(store, SqlWorld(), embedder=HashingEmbedder(64)), line)
        (key,) = outcome.records
        assert store.record(key).record.corrected == "SELECT count(*) FROM river"
