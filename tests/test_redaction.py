"""Secrets: found by kind, gone from everything that is stored, by every way in; what is none stays as it is."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, check, episode, proposal, record, task, verdict
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData
from mulligan.exchange import export_store, import_store
from mulligan.memory import Memory
from mulligan.models import ScriptedModel
from mulligan.nouns import to_json
from mulligan.recordings import CachedModel, RecordingModel
from mulligan.records import Completion, Decision, Message, Review, Signal, Usage
from mulligan.redaction import kinds, redact
from mulligan.store import Store
from toy import ToyWorld, toy_tasks

# Made up, and put together here so that no scanner takes this file for a leak.
SECRETS = {
    "aws key": "AKIA" + "Z7QPLM3XV2KD9WTR",
    "github token": "ghp_" + "a1B2" * 9,
    "gitlab token": "glpat-" + "x7Yz" * 5,
    "jwt": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "slack token": "xoxb-" + "123456789012-" * 2 + "AbCdEfGhIjKlMnOpQrStUvWx",
    "stripe key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "npm token": "//registry.example/:_authToken=npm_" + "A1b2" * 9,
    "pypi token": "pypi-AgEIcHlwaS5vcmc" + "C" * 80,
    "sendgrid key": "SG." + "a1B2c3D4e5F6g7H8i9J0k1" + "." + "A" * 43,
    "password in an address": "postgres://ada:s3cretPass@db.example/x",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + "IBAAKCAQEA\n" * 3 + "-----END RSA PRIVATE KEY-----",
    "password or key": 'password = "hunter22x"',
    "token": "Authorization: Bearer " + "a1B2c3D4e5F6g7H8i9",
}
CORE = {  # what must not be found afterwards
    "password in an address": "s3cretPass",
    "password or key": "hunter22x",
    "private key": "IBAAKCAQEA",
    "npm token": "npm_A1b2",
    "token": "a1B2c3D4e5F6g7H8i9",
}
HARMLESS = [
    "password = input()",
    "def check_password(password: str) -> bool:\n    return len(password) >= 8",
    "SELECT token FROM tokens WHERE secret = 'blue'",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "https://example.org/a:b@c?token=1",
    "the api key is missing",
    "task-1 desk-lamp risk-free",
    "eyJ is how a token begins",
    "",
    "\0\ud800",
]


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("around", ["{}", "set KEY={} now", "a\n{}\nb", 'log: "{}",'])
def test_a_secret_is_named_and_gone(kind: str, around: str) -> None:
    text = around.format(SECRETS[kind])
    found = redact(text)
    assert CORE.get(kind, SECRETS[kind]) not in found and "[redacted: " in found
    assert redact(found) == found and kinds(text) and kinds(found) == []
    if around == "{}":
        assert kind in kinds(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_the_same_object(text: str) -> None:
    assert redact(text) is text and kinds(text) == []


@given(st.text(max_size=200))
def test_redaction_is_stable_and_keeps_other_text(text: str) -> None:
    found = redact(text)
    assert redact(found) == found
    planted = redact(f"{text} {SECRETS['github token']} {text}")
    assert SECRETS["github token"] not in planted


def test_a_private_key_that_is_cut_off_is_gone_to_the_end() -> None:
    assert redact("x -----BEGIN PRIVATE KEY-----\nMIIEow\nabc") == "x [redacted: private key]"


def test_a_noun_without_secrets_is_the_same_object() -> None:
    whole = episode(attempt("SELECT 1"), reflections=("again",), reviews=(Review(trial=0, kept="nothing"),))
    assert redact(whole) is whole
    assert redact({"a": [1, None, (True, Fraction(1, 2))]}) == {"a": [1, None, (True, Fraction(1, 2))]}


SECRET = SECRETS["github token"]
Way = Callable[[Store], object]


def decided(store: Store) -> None:
    key = store.add_episode(episode(attempt()))
    made = proposal(f"use {SECRET}", why=SECRET, edit=SECRET)
    said = verdict(0, feedback=SECRET, signals=(Signal(kind="error", what=SECRET),))
    store.add_decisions(key, 0, [Decision(proposal=made, reason="no_gain", rule="r/1", check=check(0, proposal=made, changed=said))])


def cached(store: Store) -> None:
    usage = Usage(prompt_tokens=1)
    store.cache("req_1", Completion(text=f"it is {SECRET}", model="m", usage=usage), to_json({"messages": [SECRET]}))


WAYS: dict[str, Way] = {
    "task": lambda s: s.add_task(task(prompt=SECRET, context=SECRET, payload={"env": {SECRET: [SECRET]}}, facts={"key": SECRET})),
    "episode": lambda s: s.add_episode(
        episode(
            attempt(
                f"login {SECRET}",
                observation=SECRET,
                thought=SECRET,
                verdict=verdict(0, feedback=SECRET, signals=(Signal(kind="error", what=SECRET, where=SECRET),)),
            ),
            reflections=(SECRET,),
        )
    ),
    "decision": decided,
    "reply": cached,
    "need": lambda s: s.add_unaided(task(), solved=True, gist=SECRET, vector=HashingEmbedder(8).embed(["a"])[0], embedder="hash:8"),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_secret_reaches_the_file_or_an_export(way: str, tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        WAYS[way](store)
        out = StringIO()
        export_store(store, out)
        files = b"".join(place.read_bytes() for place in tmp_path.iterdir())
    assert SECRET.encode() not in files and SECRET not in out.getvalue()
    assert b"[redacted: github token]" in files
    with Store(tmp_path / "t.db") as other:
        import_store(other, StringIO(out.getvalue()))
        assert other.problems() == []


def test_a_record_with_a_secret_is_refused(tmp_path: Path) -> None:
    vector = HashingEmbedder(8).embed(["a"])[0]
    with Store(tmp_path / "s.db") as store:
        for changes in ({"corrected": f"x {SECRET}"}, {"situation": SECRET}, {"principle": SECRET}):
            with pytest.raises(InvalidData, match="secret: it holds a secret: github token"):
                store.add_record(record(**changes), vector, embedder="hash:8")


def test_an_import_with_a_secret_is_refused_and_names_the_line(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        store.add_task(task(prompt="KEY"))
        out = StringIO()
        export_store(store, out)
    with Store(tmp_path / "t.db") as other, pytest.raises(InvalidData, match="it holds a secret"):
        import_store(other, StringIO(out.getvalue().replace("KEY", SECRET)))


def test_a_correction_with_a_secret_is_a_refused_decision(tmp_path: Path) -> None:
    gold = f"one two {SECRET}"
    source = replace(toy_tasks(1)[0], payload={"gold": gold})
    world = ToyWorld()
    with Store(tmp_path / "s.db") as store, world.start(source) as state:
        memory = Memory(store, world, embedder=HashingEmbedder(8))
        failed = attempt("one two key", verdict=world.act(state, "one two key"), state=state.digest)
        decisions = memory.learn(episode(failed, task=source))
        assert [d.reason for d in decisions if d.check and d.check.changed.solved] == ["secret"]
        assert store.records() == []
    assert SECRET.encode() not in (tmp_path / "s.db").read_bytes()


def test_a_reply_is_found_again_under_the_request_as_it_was_sent(tmp_path: Path) -> None:
    asked = 0

    def reply(messages: object) -> str:
        nonlocal asked
        asked += 1
        return f"use {SECRET}"

    with Store(tmp_path / "s.db") as store:
        model = CachedModel(ScriptedModel(reply), store)
        first, again = (model.complete([Message(role="user", content=SECRET)], max_tokens=9, temperature=0.0, seed=0) for _ in range(2))
    assert asked == 1 and first.text == f"use {SECRET}"
    assert again.text == "use [redacted: github token]" and not again.paid


def test_a_recording_takes_no_secret(tmp_path: Path) -> None:
    model = RecordingModel(ScriptedModel(lambda messages: messages[-1].content), tmp_path / "r.jsonl")
    for text in ("harmless", SECRET):
        ask = lambda text=text: model.complete([Message(role="user", content=text)], max_tokens=9, temperature=0.0, seed=0)  # noqa: E731
        if text == SECRET:
            with pytest.raises(InvalidData, match="holds a secret \\(github token\\)"):
                ask()
        else:
            ask()
    assert SECRET not in (tmp_path / "r.jsonl").read_text() and "harmless" in (tmp_path / "r.jsonl").read_text()


def test_loading_the_package_loads_no_detector() -> None:
    import subprocess
    import sys

    code = "import sys, mulligan, mulligan.store; print([m for m in sys.modules if m.startswith(('detect_secrets', 'requests'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_public_transcripts_hold_few_secrets(shared_data: Path) -> None:
    places = ["humaneval", "swe_agent_traj", "mini_swe_agent_traj", "claude_code_log", "codex_rollout", "text2sql"]
    texts = [place.read_text("utf-8", "replace") for name in places for place in (shared_data / name).rglob("*.json*") if place.is_file()]
    assert sum(map(len, texts)) > 1_000_000
    assert [kinds(line) for text in texts for line in text.split("\n") if kinds(line)] == []
    assert json.loads(redact(json.dumps({"a": 1}))) == {"a": 1}
