"""A recording plays back what was recorded, stays small and readable, survives a kill, and never guesses."""

import json
import os
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mulligan.errors import InvalidData, MulliganError, UnseenRequest, UsageError
from mulligan.models import ScriptedModel
from mulligan.recordings import CachedModel, Recording, RecordingModel, ReplayModel, canonical
from mulligan.records import Completion, Message, Usage

HOW: dict[str, Any] = {"max_tokens": 9, "temperature": 0.0, "seed": 7}
CONTEXT = "You write one SQLite query.\n" + "".join(f"CREATE TABLE river_{i} (name TEXT, length INT);\n" for i in range(8))
SCHEMA = {"type": "object", "properties": {f"field_{i}": {"type": "string"} for i in range(12)}}


def ask(text: str, system: str = CONTEXT) -> list[Message]:
    return [Message(role="system", content=system), Message(role="user", content=text)]


def echo() -> ScriptedModel:
    return ScriptedModel(lambda messages: f"echo of {messages[-1].content}", id="echo")


class Shelf:
    """A cache in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Completion, str]] = {}

    def cached(self, key: str) -> Completion | None:
        return self.kept[key][0] if key in self.kept else None

    def cache(self, key: str, completion: Completion, request_json: str) -> None:
        self.kept[key] = (completion, request_json)


# ---- keys and the cache ----------------------------------------------------------------------------------------------


def test_equal_requests_have_equal_keys_and_others_do_not() -> None:
    base = ("m", ask("a"), 9, 0.0, 7, {"x": 1, "y": 2})
    assert canonical(*base).key == canonical("m", tuple(ask("a")), 9, 0, 7, {"y": 2, "x": 1}).key
    others = [
        ("n", *base[1:]),
        ("m", ask("b"), *base[2:]),
        ("m", ask("a")[::-1], *base[2:]),
        ("m", [*ask("a"), Message(role="assistant", content="")], *base[2:]),
        (*base[:2], 10, *base[3:]),
        (*base[:3], 0.5, *base[4:]),
        (*base[:4], 8, base[5]),
        (*base[:5], None),
        (*base[:5], {"x": 1, "y": 3}),
    ]
    assert len({canonical(*request).key for request in [base, *others]}) == 10


def test_the_cache_pays_once_and_keeps_the_usage() -> None:
    shelf, script = Shelf(), echo()
    model = CachedModel(script, shelf)
    first = model.complete(ask("a"), **HOW)
    second = model.complete(ask("a"), **HOW)
    assert (first.paid, second.paid, script.calls, model.id) == (True, False, 1, "echo")
    assert (second.text, second.usage) == (first.text, first.usage)
    ((key, (_, request)),) = shelf.kept.items()
    assert key == canonical("echo", ask("a"), 9, 0.0, 7).key
    assert json.loads(request)["messages"][1] == {"role": "user", "content": "a"}
    model.complete(ask("a"), **{**HOW, "seed": 8})
    assert script.calls == 2


def test_threads_that_ask_the_same_pay_once() -> None:
    def slowly(messages: Any) -> str:
        time.sleep(0.01)
        return "done"

    script = ScriptedModel(slowly)
    model = CachedModel(script, Shelf())
    paid: list[bool] = []
    start = threading.Barrier(8)

    def work() -> None:
        for question in ("a", "b", "c"):
            start.wait()
            paid.append(model.complete(ask(question), **HOW).paid)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert script.calls == 3
    assert paid.count(True) == 3
    assert len(paid) == 24


def test_different_requests_do_not_wait_for_one_another() -> None:
    together = threading.Barrier(2, timeout=5)

    def meet(messages: Any) -> str:
        together.wait()  # broken if the second request waits for the first
        return "met"

    model = CachedModel(ScriptedModel(meet), Shelf())
    threads = [threading.Thread(target=model.complete, args=(ask(q),), kwargs=HOW) for q in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not together.broken


def test_a_failed_request_is_not_cached() -> None:
    model = CachedModel(ScriptedModel([]), Shelf())
    for _ in range(2):
        with pytest.raises(MulliganError):
            model.complete(ask("a"), **HOW)


# ---- recording and replay --------------------------------------------------------------------------------------------


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LONG = st.builds(lambda line, tail: (line + "\n") * 9 + tail, st.text("ab長 \r\x85 \0", min_size=26, max_size=30), TEXT)
MESSAGES = st.lists(st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), content=TEXT | LONG), max_size=3)
REQUESTS = st.lists(st.tuples(MESSAGES, st.integers(0, 3), st.none() | st.just(SCHEMA)), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS, st.integers(0, 8))
def test_what_was_recorded_is_replayed(tmp_path: Path, requests: list[Any], stop: int) -> None:
    path = tmp_path / "recording.jsonl"
    path.unlink(missing_ok=True)
    script = ScriptedModel(lambda messages: f"{len(messages)} é\n{messages[-1].content if messages else ''}", id="m")
    made: list[Completion] = []
    for part in (requests[:stop], requests[stop:]):  # the second process goes on where the first one stopped
        model = RecordingModel(script, path)
        made += [model.complete(m, max_tokens=9, temperature=0.0, seed=seed, schema=schema) for m, seed, schema in part]
    assert script.calls == len({canonical("m", m, 9, 0.0, seed, schema).key for m, seed, schema in requests})
    replay = ReplayModel(path)
    for (messages, seed, schema), completion in zip(requests, made, strict=True):
        found = replay.complete(messages, max_tokens=9, temperature=0.0, seed=seed, schema=schema)
        assert (found.text, found.finish, found.model, found.usage) == (completion.text, "stop", "m", completion.usage)
        assert not found.paid


def test_the_file_is_readable_and_says_long_texts_once(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    model = RecordingModel(ScriptedModel(lambda _: "SELECT 1", id="m"), path)
    questions = [[Message(role="user", content=f"{CONTEXT}\nQuestion {i}: 长江?")] for i in range(50)]
    for messages in questions:
        model.complete(messages, **HOW, schema=SCHEMA)
    text = path.read_text("utf-8")
    assert text.count("river_7") == 2  # once in the first request, once under its name
    assert text.count("field_11") == 2
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[0] == {"format": "mulligan-recording/1", "model": "m", "made_with": f"mulligan {version('mulligan')}"}
    assert [line["text"] for line in lines if "text" in line] == ["t1", "t2"]
    reply = {"text": "SELECT 1", "finish": "stop", "prompt_tokens": 109, "completion_tokens": 3, "seconds": 0.0}
    assert lines[-1] == {
        "key": canonical("m", questions[-1], 9, 0.0, 7, SCHEMA).key,
        "messages": [{"role": "user", "content": [{"text": "t1"}, "Question 49: 长江?"]}],
        **HOW,
        "schema": [{"text": "t2"}],
        "reply": reply,
    }


def test_named_texts_build_on_one_another(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    model = RecordingModel(echo(), path)
    longer = CONTEXT + "x" * 300 + "\n"
    for text in (CONTEXT, CONTEXT, longer, longer):
        for i in range(2):
            model.complete([Message(role="user", content=f"{text}{i}")], **HOW)
    texts = [json.loads(line) for line in path.read_text().splitlines() if line.startswith('{"text"')]
    assert texts == [{"text": "t1", "content": CONTEXT}, {"text": "t2", "content": [{"text": "t1"}, "x" * 300 + "\n"]}]


def test_threads_record_each_request_once(tmp_path: Path) -> None:
    path, script = tmp_path / "recording.jsonl", echo()
    model = RecordingModel(script, path)
    threads = [threading.Thread(target=lambda: [model.complete(ask(f"question {i}"), **HOW) for i in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert script.calls == 20
    replay = ReplayModel(path)
    assert all(replay.complete(ask(f"question {i}"), **HOW).text == f"echo of question {i}" for i in range(20))


@pytest.mark.parametrize("lost", [1, 2, 40, 400, "all but the header", "all but half of the header", "all"])
def test_a_recording_goes_on_after_a_kill(tmp_path: Path, lost: int | str) -> None:
    path = tmp_path / "recording.jsonl"
    for i in range(3):
        RecordingModel(echo(), path).complete(ask(f"question {i}"), **HOW)
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    kept = {"all": 0, "all but the header": header, "all but half of the header": header // 2}
    path.write_bytes(whole[: kept[lost]] if isinstance(lost, str) else whole[:-lost])
    for i in range(3):
        RecordingModel(echo(), path).complete(ask(f"question {i}"), **HOW)
    assert path.read_bytes() == whole


def test_only_a_recording_of_the_same_model_is_written_to(tmp_path: Path) -> None:
    RecordingModel(echo(), tmp_path / "recording.jsonl")
    with pytest.raises(UsageError, match="is a recording of echo, not of scripted"):
        RecordingModel(ScriptedModel([]), tmp_path / "recording.jsonl")
    for text in ("my notes", "my notes\nwithout a last line end"):
        (tmp_path / "notes.txt").write_text(text)
        with pytest.raises(InvalidData, match=r"notes\.txt, line 1, is no valid HeaderLine"):
            RecordingModel(echo(), tmp_path / "notes.txt")
        assert (tmp_path / "notes.txt").read_text() == text


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recording.jsonl"
    model = RecordingModel(echo(), path)
    for i in range(2):
        model.complete(ask(f"question {i}", system=str(i)), **HOW)
    before = path.read_bytes()
    fsync = os.fsync

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for i in range(2):
        with pytest.raises(UsageError, match=r"cannot write the recording .*No space left"):
            model.complete([*ask("x" * 300, system="0"), *ask("x" * 300)], **{**HOW, "seed": i})
    assert path.read_bytes() == before
    monkeypatch.setattr(os, "fsync", fsync)
    for i in range(2):
        model.complete(ask("x" * 300), **{**HOW, "seed": i})
    assert ReplayModel(path).complete(ask("x" * 300), **{**HOW, "seed": 1}).text == "echo of " + "x" * 300


@pytest.mark.parametrize("text", ["\ud800", "ok"])
def test_half_a_surrogate_pair_is_refused(tmp_path: Path, text: str) -> None:
    model = RecordingModel(ScriptedModel(["\udfff"]), tmp_path / "recording.jsonl")
    with pytest.raises(InvalidData, match="half a surrogate pair"):
        model.complete(ask(text), **HOW)


def test_one_request_has_one_reply(tmp_path: Path) -> None:
    recording = Recording.open(tmp_path / "recording.jsonl", "m")
    request = '{"model":"m","messages":[],"max_tokens":1,"temperature":0.0,"seed":0}'
    key = canonical("m", [], 1, 0.0, 0).key
    first = Completion(text="a", model="m", usage=Usage())
    recording.cache(key, first, request)
    recording.cache(key, first, request)
    assert len((tmp_path / "recording.jsonl").read_text().splitlines()) == 2
    with pytest.raises(InvalidData, match=f"a second, different reply to {key}"):
        recording.cache(key, Completion(text="b", model="m", usage=Usage()), request)


# ---- what is wrong is said -------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    model = RecordingModel(echo(), tmp_path / "recording.jsonl")
    for question in ("How long is the Rio Grande?", "Which states border Texas?", "长江有多长？"):
        model.complete(ask(question), **HOW)
    model.complete([*ask("Which states border Ohio?"), Message(role="assistant", content="x")], **HOW, schema=SCHEMA)
    return tmp_path / "recording.jsonl"


@pytest.mark.parametrize(
    ("messages", "changes", "difference"),
    [
        (ask("How long is the Rio Bravo?"), {}, r"message 2 differs from character 20 on: …'How long .*Bravo\?', recorded …'.*Grande\?'"),
        (ask("Which states border Utah?"), {}, r"message 2 differs .*'.*Utah\?', recorded …'.*Texas\?'"),
        (ask("长江有多深？"), {}, r"message 2 differs from character 4 on"),
        (
            ask("Which states border Texas?", system="Be brief."),
            {},
            "message 1 differs from character 0 on: …'Be brief.', recorded …'You wr",
        ),
        (ask("Which states border Texas?"), {"seed": 8}, "seed is 8, recorded 7"),
        (ask("Which states border Texas?"), {"temperature": 0.5}, r"temperature is 0\.5, recorded 0\.0"),
        (ask("Which states border Texas?"), {"schema": {}}, r"schema is \{\}, recorded None"),
        ([*ask("x"), *ask("Which states border Texas?")], {}, "message 2 differs|message 2 comes"),
        ([Message(role="user", content=CONTEXT), *ask("长江有多长？")[1:]], {}, "message 1 comes from user, recorded from system"),
        ([], {}, "0 messages, recorded 2|0 messages, recorded 3"),
    ],
)
def test_an_unseen_request_names_the_nearest_and_the_difference(
    recorded: Path, messages: list[Message], changes: dict[str, Any], difference: str
) -> None:
    with pytest.raises(UnseenRequest, match=difference) as caught:
        ReplayModel(recorded).complete(messages, **{**HOW, **changes})
    assert "\n" not in str(caught.value)
    assert str(recorded) in str(caught.value)


def test_an_empty_recording_says_so(tmp_path: Path) -> None:
    RecordingModel(echo(), tmp_path / "recording.jsonl")
    with pytest.raises(UnseenRequest, match="nor any other: record it first"):
        ReplayModel(tmp_path / "recording.jsonl").complete(ask("a"), **HOW)


def edited(line: str, **changes: Any) -> str:
    return json.dumps({**json.loads(line), **changes})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], r"line 1, is no valid HeaderLine"),
        (lambda lines: lines[1:], r"line 1, is no valid HeaderLine"),
        (lambda lines: [edited(lines[0], format="mulligan-recording/9"), *lines[1:]], r"line 1, is no valid HeaderLine: format"),
        (lambda lines: [edited(lines[0], model="other"), *lines[1:]], r"line 2, is damaged \(its key should be req_"),
        (lambda lines: [*lines, lines[-1][:100]], r"line 7, is damaged \(Unterminated string .*record again"),
        (lambda lines: [*lines, ""], r"line 7, is damaged"),
        (lambda lines: [*lines, "[1]"], r"line 7, is no valid TextLine"),
        (lambda lines: [*lines, "\ud800"], r"line 7, is damaged"),
        (lambda lines: [*lines, "[" * 100_000], r"line 7, is damaged"),
        (lambda lines: [*lines, edited(lines[-1], temperature=float("nan"))], r"line 7, is damaged"),
        (lambda lines: [*lines, edited(lines[-1], seed=8)], r"line 7, is damaged \(its key should be"),
        (lambda lines: [*lines, edited(lines[-1], note="x")], r"line 7, is no valid RequestLine: note"),
        (lambda lines: [*lines, edited(lines[-1], reply={**json.loads(lines[-1])["reply"], "text": "y"})], r"line 7, has a second, diff"),
        (lambda lines: [*lines, '{"text":"t1","content":"other"}'], r"line 7, is damaged \(the name t1 stands for another text"),
        (lambda lines: [line for line in lines if '"text":"t1","con' not in line], r"line 3, is damaged \(no text before it is named t1"),
    ],
)
def test_damage_names_the_line(recorded: Path, damage: Any, message: str) -> None:
    lines = recorded.read_text("utf-8").splitlines()
    assert [line[:7] for line in lines] == ['{"forma', '{"key":', '{"text"', '{"key":', '{"key":', '{"key":']
    recorded.write_bytes("\n".join(damage(lines)).encode("utf-8", "surrogatepass") + b"\n")
    with pytest.raises(InvalidData, match=message):
        ReplayModel(recorded)


def test_line_ends_of_other_systems_are_read(recorded: Path) -> None:
    recorded.write_bytes(recorded.read_bytes().replace(b"\n", b"\r\n"))
    assert ReplayModel(recorded).complete(ask("Which states border Texas?"), **HOW).text == "echo of Which states border Texas?"


def test_a_mutated_file_is_read_or_refused(recorded: Path) -> None:
    whole = recorded.read_bytes()

    @settings(max_examples=300)
    @given(st.integers(0, len(whole) - 1), st.integers(0, 3), st.binary(max_size=3) | st.sampled_from([b"\n", b'"', b"}", b"1e999"]))
    def check(at: int, size: int, new: bytes) -> None:
        recorded.write_bytes(whole[:at] + new + whole[at + size :])
        try:
            ReplayModel(recorded)
        except InvalidData as error:
            assert ", line " in str(error)

    check()
