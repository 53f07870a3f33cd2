"""Clients against a server on this machine that misbehaves as real ones do; no test waits for longer than its time-out."""

import json
import os
import pickle
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from fake_endpoint import Act, Server, drop, fail, half, ok, refusing, slow
from mulligan.errors import MissingExtra, ModelError, ModelUnreachable, UsageError
from mulligan.models import EndpointModel, LocalModel, ReplayModel, ScriptedModel, open_model
from mulligan.records import Completion, Message, Usage

KEY = "sk-very-secret"
HELLO = (Message(role="user", content="Say hello."),)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
HOW: dict[str, Any] = {"max_tokens": 9, "temperature": 0.0, "seed": 7}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Client(EndpointModel):
    """A client that does not sleep, but notes for how long it would have."""

    def __init__(self, server: Server, **options: Any):
        self.slept: list[float] = []
        super().__init__("m", **{"base_url": server.url, "api_key": KEY, "sleep": self.slept.append, **options})


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()


def test_a_reply_comes_with_what_it_cost(server: Server, client: Client) -> None:
    server.acts = [ok("hello")]
    completion = client.complete(HELLO, **HOW)
    assert completion.usage.seconds > 0
    usage = Usage(prompt_tokens=11, completion_tokens=3, model_calls=1, seconds=completion.usage.seconds)
    assert completion == Completion(text="hello", model="m", usage=usage, finish="stop", paid=True)
    assert server.bodies == [{"model": "m", "messages": [{"role": "user", "content": "Say hello."}], **HOW}]
    assert server.keys == [f"Bearer {KEY}"]
    assert client.estimated == 0


PASSING = [fail(408), fail(409), fail(429), fail(500), fail(503, "loading model"), fail(529), drop, half]


@pytest.mark.parametrize("trouble", PASSING, ids=range(len(PASSING)))
def test_passing_trouble_is_tried_again(server: Server, client: Client, trouble: Act) -> None:
    server.acts = [trouble, trouble, ok()]
    assert client.complete(HELLO, **HOW).text == "hello"
    first, second = client.slept
    assert 0.5 <= first <= 1.0 <= second <= 2.0


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ({"Retry_After": "7"}, 7, 7),
        ({"Retry_After": "0"}, 0, 0),
        ({"Retry_After": "-3"}, 0, 0),
        ({"Retry_After": "nan"}, 0.5, 1),
        ({"Retry_After": "soon"}, 0.5, 1),
        (60, 40, 60),
        (-60, 0, 0),
    ],
)
def test_retry_after_is_honoured(server: Server, client: Client, header: dict[str, str] | int, least: float, most: float) -> None:
    """A number stands for a date so many seconds from the time of the test."""
    if isinstance(header, int):
        header = {"Retry_After": formatdate(time.time() + header, usegmt=True)}
    server.acts = [fail(429, **header), ok()]
    client.complete(HELLO, **HOW)
    assert len(client.slept) == 1
    assert least <= client.slept[0] <= most


def test_a_server_that_asks_to_wait_for_long_is_given_up(server: Server, client: Client) -> None:
    server.acts = [fail(429, Retry_After="3600")]
    with pytest.raises(ModelUnreachable, match="asks to wait 3600 s"):
        client.complete(HELLO, **HOW)
    assert client.slept == []


def test_after_the_retries_the_host_is_named_and_the_key_is_not(server: Server) -> None:
    client = Client(server, retries=2)
    server.acts = [fail(500, f"crashed with {KEY}")]
    with pytest.raises(
        ModelUnreachable, match=r"127\.0\.0\.1:\d+ gave no answer in 3 tries \(last: status 500: .*OPENAI_BASE_URL"
    ) as caught:
        client.complete(HELLO, **HOW)
    assert len(client.slept) == 2
    assert len(server.bodies) == 3
    assert KEY not in f"{client!r}{''.join(traceback.format_exception(caught.value))}"
    client.close()


def test_silence_is_a_time_out(server: Server) -> None:
    client = Client(server, timeout_s=0.1, retries=1)
    server.acts = [slow]
    with pytest.raises(ModelUnreachable, match=r"silent for 0\.1 s"):
        client.complete(HELLO, **HOW)
    client.close()


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = EndpointModel("m", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1", retries=1, sleep=lambda _: None)
        with pytest.raises(ModelUnreachable, match=r"gave no answer in 2 tries \(last: Connection error"):
            client.complete(HELLO, **HOW)
        client.close()


@pytest.mark.parametrize(
    ("act", "advice"),
    [
        (fail(401, f"bad key {KEY}"), r"does not accept the key: check OPENAI_API_KEY \(status 401: .*bad key \*\*\*"),
        (fail(403), "does not accept the key"),
        (fail(404, "no such model"), "has no model 'm'"),
        (fail(400, "request (9030 tokens) exceeds the available context size (1024 tokens)"), "shorten the prompt"),
        (fail(413), "shorten the prompt"),
        (fail(400, "unbelievable"), r"refuses the request \(status 400: .*unbelievable"),
        (fail(422, "x" * 10_000), r"x…\)$"),
        (lambda h: h.reply(429, {"error": {"code": "insufficient_quota"}}), "the quota is spent"),
        (lambda h: h.reply(200, b"<html>hello</html>", {"Content-Type": "text/html"}), "sent no choice .*/v1"),
        (lambda h: h.reply(200, b"{not json"), "sent what is no chat completion"),
        (lambda h: h.reply(200, {"error": {"message": "overloaded"}}), "sent no choice .*overloaded"),
        (ok(choices=[]), "sent no choice"),
        (ok(choices=None), "sent no choice"),
        (ok(choices=[{}]), "sent no choice"),
        (ok(choices="none"), "sent no choice"),
        (ok([{"type": "text", "text": "hello"}]), "sent no choice"),
    ],
)
def test_a_lasting_refusal_says_what_to_do_and_is_not_repeated(server: Server, client: Client, act: Act, advice: str) -> None:
    server.acts = [act]
    with pytest.raises(ModelError, match=advice) as caught:
        client.complete(HELLO, **HOW)
    assert type(caught.value) is ModelError
    assert str(caught.value).startswith("127.0.0.1:")
    assert len(str(caught.value)) < 500
    assert KEY not in str(caught.value)
    assert len(server.bodies) == 1


def test_no_content_is_empty_text_with_the_server_s_reason(server: Server, client: Client) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "length"}
    server.acts = [ok(choices=[choice])]
    completion = client.complete(HELLO, **HOW)
    assert (completion.text, completion.finish) == ("", "length")


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": 3}])
def test_missing_usage_is_estimated_and_counted(server: Server, client: Client, usage: Any) -> None:
    server.acts = [ok("one two three", usage=usage)]
    found = client.complete(HELLO, **HOW).usage
    assert (found.prompt_tokens, found.completion_tokens) == (3 + 4, 4)
    assert client.estimated == 1


def test_half_surrogates_are_replaced_both_ways(server: Server, client: Client) -> None:
    server.acts = [ok("a\ud800b")]
    assert client.complete([Message(role="user", content="c\udfffd\0长江")], **HOW).text == "a\ufffdb"
    assert server.bodies[0]["messages"][0]["content"] == "c\ufffdd\0长江"


@pytest.mark.parametrize(
    ("unknown", "formats"),
    [
        ((), ["json_schema", "json_schema"]),
        (("json_schema",), ["json_schema", "json_object", "json_object"]),
        (("json_schema", "json_object"), ["json_schema", "json_object", None, None]),
    ],
)
def test_a_refused_schema_is_asked_for_more_simply_from_then_on(
    server: Server, client: Client, unknown: tuple[str, ...], formats: list[str | None]
) -> None:
    server.acts = [refusing(*unknown)]
    system = Message(role="system", content="Be brief.")
    for _ in range(2):
        assert client.complete([system, *HELLO], **HOW, schema=SCHEMA).text == "hello"
    assert [body.get("response_format", {}).get("type") for body in server.bodies] == formats
    sent = server.bodies[-1]
    if unknown:
        assert sent["messages"][0]["content"].startswith("Be brief.\n\nReply with JSON that fits this JSON Schema")
        assert json.dumps(SCHEMA, sort_keys=True, separators=(",", ":")) in sent["messages"][0]["content"]
    else:
        assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
        assert sent["messages"][0]["content"] == "Be brief."
    client.complete(HELLO, **HOW)
    assert "response_format" not in server.bodies[-1]  # nobody asked


def test_a_chosen_structure_is_kept(server: Server) -> None:
    client = Client(server, structured="text")
    server.acts = [refusing("json_schema", "json_object")]
    client.complete(HELLO, **HOW, schema=SCHEMA)
    assert [m["role"] for m in server.bodies[0]["messages"]] == ["system", "user"]
    client.close()
    client = Client(server, structured="schema")
    with pytest.raises(ModelError, match="response_format"):
        client.complete(HELLO, **HOW, schema=SCHEMA)
    client.close()


def test_unknown_parameters_are_left_out_with_a_warning(server: Server, client: Client) -> None:
    server.acts = [refusing("max_tokens", "seed", "temperature")]
    with pytest.warns(UserWarning) as caught:
        client.complete(HELLO, **HOW)
        client.complete(HELLO, **HOW)
    assert [str(w.message).split(" for ")[0].split()[-1] for w in caught] == ["seed", "temperature"]
    assert set(server.bodies[-1]) == {"model", "messages", "max_completion_tokens"}
    assert len(server.bodies) == 5


@pytest.mark.parametrize(
    ("complaint", "taken"),
    [
        ({"error": {"message": "Unsupported value: 'temperature' does not support 0.0", "param": "temperature"}}, False),
        ({"error": {"message": "unsupported", "param": "temperature"}}, False),
        ({"message": "property `temperature` is unsupported"}, False),
        ({"detail": [{"loc": ["body", "messages"], "input": {"temperature": 0.0, "seed": 7}}]}, True),
        ({"message": "bad messages in {'temperature': 0.0, 'seed': 7}"}, True),
    ],
)
@pytest.mark.filterwarnings("ignore:.*left out from now on")
def test_only_a_complaint_about_a_parameter_drops_it(server: Server, client: Client, complaint: Any, taken: bool) -> None:
    server.acts = [lambda handler: handler.reply(400, complaint), ok()]
    if taken:
        with pytest.raises(ModelError, match="refuses the request"):
            client.complete(HELLO, **HOW)
    else:
        client.complete(HELLO, **HOW)
        assert "temperature" not in server.bodies[1]
        assert "seed" in server.bodies[1]


def test_threads_share_a_client(server: Server, client: Client) -> None:
    server.acts = [refusing("json_schema", "json_object")]
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(client.complete(HELLO, **HOW, schema=SCHEMA).text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["hello"] * 8
    client.complete(HELLO, **HOW, schema=SCHEMA)
    assert "response_format" not in server.bodies[-1]


def test_a_client_can_be_pickled(server: Server) -> None:
    server.acts = [ok()]
    first = EndpointModel("m", base_url=server.url, api_key=KEY)
    first.complete(HELLO, **HOW)
    second = pickle.loads(pickle.dumps(first))
    assert second.complete(HELLO, **HOW).text == "hello"
    assert server.keys[1] == f"Bearer {KEY}"
    first.close()
    second.close()


def test_a_proxy_is_not_asked_for_this_machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    server.acts = [ok()]
    client = EndpointModel("m", base_url=server.url)
    assert client.complete(HELLO, **HOW).text == "hello"
    client.close()


@pytest.mark.parametrize("url", ["localhost:8092/v1", "ftp://host/v1", "http://", "http://[::1/v1", "http://host:port/v1", "/v1"])
def test_a_wrong_base_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="http://host:port/v1"):
        EndpointModel("m", base_url=url, api_key=KEY)


def test_a_key_is_needed_for_other_machines_only() -> None:
    with pytest.raises(UsageError, match=r"api\.openai\.com needs a key: set OPENAI_API_KEY"):
        EndpointModel("m")
    for url in ("http://localhost:1/v1", "http://127.0.0.1/v1", "http://[::1]:8092/v1"):
        EndpointModel("m", base_url=url)
    assert repr(EndpointModel("m", base_url="https://user:word@host/v1?key=k", api_key=KEY)) == "EndpointModel('m' at host)"


# ---- a file, a script ------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(server: Server, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A stand-in for xllamacpp whose server is the one of these tests."""

    class Running:
        def __init__(self, params: Any):
            if "broken" in params.model.path:
                raise RuntimeError("Failed to init server")
            self.listening_address = server.url.removesuffix("/v1")
            module.started.append(params)

    module = types.ModuleType("xllamacpp")
    module.started = []
    module.CommonParams = lambda: types.SimpleNamespace(model=types.SimpleNamespace(path=""))
    module.Server = Running
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    return module


def test_a_file_is_served_on_this_machine_alone(server: Server, engine: types.ModuleType, tmp_path: Path) -> None:
    server.acts = [ok()]
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF and the rest")
    with LocalModel(path) as model:
        assert model.id == "tiny.gguf:166f1a315a7c"
        assert not engine.started  # the first call loads
        assert model.complete(HELLO, **HOW).model == model.id
        model.complete(HELLO, **HOW)
    (params,) = engine.started
    assert (params.model.path, params.hostnames, params.port) == (str(path), ["127.0.0.1"], 0)
    assert server.keys == [f"Bearer {params.api_keys[0]}"] * 2
    assert len(params.api_keys[0]) == 32
    model.complete(HELLO, **HOW)  # loads again
    assert len(engine.started) == 2
    model.close()


def test_files_that_are_no_model_are_refused(engine: types.ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        LocalModel(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(UsageError, match="is no GGUF file"):
        LocalModel(tmp_path / "text.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="cannot be loaded"):
        LocalModel(tmp_path / "broken.gguf").complete(HELLO, **HOW)


def test_a_changed_file_is_another_model(engine: types.ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF one")
    first = LocalModel(path).id
    path.write_bytes(b"GGUF other")
    assert LocalModel(path).id != first


def test_a_missing_extra_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(MissingExtra, match=r"pip install 'mulligan\[local\]'"):
        LocalModel(tmp_path / "m.gguf")


def test_a_script_plays_in_order_and_ends() -> None:
    model = ScriptedModel(["one", "two words"])
    assert [model.complete(HELLO, **HOW).text for _ in range(2)] == ["one", "two words"]
    with pytest.raises(ModelError, match="2 replies, and one more"):
        model.complete(HELLO, **HOW)
    assert model.calls == 3


def test_a_script_may_be_a_function() -> None:
    model = ScriptedModel(lambda messages: messages[-1].content.upper(), id="loud")
    completion = model.complete(HELLO, **HOW, schema=SCHEMA)
    assert completion == Completion(
        text="SAY HELLO.", model="loud", usage=Usage(prompt_tokens=7, completion_tokens=3, model_calls=1), finish="stop"
    )


# ---- by name ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "environ", "expected"),
    [
        ("m", {"OPENAI_BASE_URL": "http://localhost:8092/v1"}, "EndpointModel('m' at localhost:8092)"),
        ("m", {"OPENAI_API_KEY": KEY}, "EndpointModel('m' at api.openai.com)"),
        ("qwen2.5:1.5b", {"OPENAI_BASE_URL": "http://h/v1", "OPENAI_API_KEY": KEY}, "EndpointModel('qwen2.5:1.5b' at h)"),
        ("m@https://h:1/v1", {"OPENAI_BASE_URL": "http://other/v1", "OPENAI_API_KEY": KEY}, "EndpointModel('m' at h:1)"),
        ("org/m@v2@http://localhost/v1", {}, "EndpointModel('org/m@v2' at localhost)"),
    ],
)
def test_endpoints_are_opened_by_name(spec: str, environ: dict[str, str], expected: str) -> None:
    assert repr(open_model(spec, environ)) == expected


def test_files_are_opened_by_name(engine: types.ModuleType, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert isinstance(open_model(f"gguf:{tmp_path}/m.gguf", {}), LocalModel)
    (tmp_path / "r.jsonl").write_text('{"format":"mulligan-recording/1","model":"m","made_with":"a test"}\n')
    replay = open_model(f"replay:{tmp_path}/r.jsonl", {})
    assert isinstance(replay, ReplayModel)
    assert replay.id == "m"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("m", "set OPENAI_BASE_URL to .* or OPENAI_API_KEY"),
        ("", "a model is gguf:PATH, replay:PATH, NAME@BASE_URL or NAME"),
        ("@http://localhost/v1", "a model is gguf:PATH"),
        ("gguf:", "wants a path, as in gguf:PATH"),
        ("replay:", "wants a path, as in replay:PATH"),
        ("models/m.gguf", "write gguf:models/m.gguf"),
        ("r.jsonl", "write replay:r.jsonl"),
        ("replay:/nowhere/r.jsonl", "cannot read the recording /nowhere/r.jsonl: No such file"),
        ("m@https://h/v1", "h needs a key: set OPENAI_API_KEY"),
    ],
)
def test_what_cannot_be_opened_says_what_to_write(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_model(spec, {})


@pytest.mark.model
@pytest.mark.timeout(300)
def test_a_real_model_answers() -> None:
    """MULLIGAN_GGUF names a file of a chat model; without it, OPENAI_BASE_URL and MULLIGAN_MODEL an endpoint."""
    path, name = os.environ.get("MULLIGAN_GGUF"), os.environ.get("MULLIGAN_MODEL")
    if not path and not name:
        pytest.skip("neither MULLIGAN_GGUF nor MULLIGAN_MODEL is set")
    model = open_model(f"gguf:{path}" if path else str(name), os.environ)
    ask = [Message(role="user", content="What is the capital of France?")]
    how: dict[str, Any] = {"max_tokens": 40, "temperature": 0.0, "seed": 1}
    completion = model.complete(ask, **how)
    assert "Paris" in completion.text
    assert completion.usage.prompt_tokens > 5
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
    assert "Paris" in json.loads(model.complete(ask, **how, schema=schema).text)["city"]
    if isinstance(model, LocalModel):
        with pytest.raises(ModelError, match="shorten the prompt"):
            model.complete([Message(role="user", content="word " * 20_000)], **how)
        model.close()
