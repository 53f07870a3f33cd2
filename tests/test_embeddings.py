"""Embedders: unit rows for any text, the same text the same row; the endpoint's client; calibration."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fake_endpoint import Handler, Server, fail
from mulligan.embeddings import (
    MAX_CHARS,
    RELATED,
    EndpointEmbedder,
    HashingEmbedder,
    RememberingEmbedder,
    StaticEmbedder,
    calibrate,
    open_embedder,
)
from mulligan.errors import ModelError, ModelUnreachable, UnknownName
from mulligan.protocols import Embedder
from test_store import ANYTHING

EMBEDDERS: list[Embedder] = [StaticEmbedder(), HashingEmbedder(8), HashingEmbedder(64)]
each = pytest.mark.parametrize("embedder", EMBEDDERS, ids=lambda e: e.id)
QUESTIONS = [
    "How many rivers run through Texas?",
    "What is the capital of the state with the most people?",
    "Which states border Colorado?",
    "How long is the Mississippi river?",
    "What are the major cities in Ohio?",
    "How high is the highest point of Alaska?",
    "Give me the population of Boston.",
    "Which river flows through the fewest states?",
]


@each
@settings(max_examples=40)
@given(texts=st.lists(ANYTHING, max_size=4))
def test_rows_are_of_unit_length_or_zero_for_blank_text(embedder: Embedder, texts: list[str]) -> None:
    rows = embedder.embed(texts)
    assert rows.shape == (len(texts), embedder.dim) and rows.dtype == np.float32
    for text, row in zip(texts, rows, strict=True):
        assert np.linalg.norm(row) == pytest.approx(1.0 if text.strip() else 0.0, abs=1e-5)
        assert (embedder.embed([text])[0] == row).all()  # whatever else is in the batch


@each
def test_only_the_first_characters_of_a_long_text_count(embedder: Embedder) -> None:
    text = "river 河 𠮷 " * (MAX_CHARS // 20) + "lake 湖 " * MAX_CHARS
    rows = embedder.embed([text, text[:MAX_CHARS], text[: MAX_CHARS // 2], "\ud83d" * (MAX_CHARS + 1)])
    assert (rows[0] == rows[1]).all() and not (rows[0] == rows[2]).all()
    assert np.isfinite(rows).all()


@each
def test_alike_texts_are_nearer(embedder: Embedder) -> None:
    one, near, far = embedder.embed(["the longest river in Texas", "longest rivers of Texas", "boil the pasta"])
    assert one @ near > one @ far


def test_what_an_embedder_gives_does_not_depend_on_the_process() -> None:
    code = "from mulligan.embeddings import *; print(HashingEmbedder(8).embed(['Straße 河'])[0].tolist())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert json.loads(told.stdout) == HashingEmbedder(8).embed(["Straße 河"])[0].tolist()


def test_the_default_is_offline_and_leaves_logging_alone() -> None:
    code = """
import logging, socket
def refuse(*args): raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = refuse
from mulligan.embeddings import StaticEmbedder
row = StaticEmbedder().embed(["rivers"])[0]
print(len(row), logging.getLogger().handlers, logging.getLogger().level)
"""
    told = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == (f"256 [] {logging.WARNING}\n", "")


@pytest.mark.parametrize("spec", ["static", "wordllama-256", "hash:64", "openai:text-embedding-3-small"])
def test_embedders_open_by_name_and_by_id(spec: str) -> None:
    assert open_embedder(open_embedder(spec).id).id == open_embedder(spec).id


@pytest.mark.parametrize("spec", ["", "hash", "hash:", "hash:0", "hash:-1", "hash:x", "hash:1e9", "openai:", "sbert", "static:1"])
def test_an_unknown_name_lists_the_known(spec: str) -> None:
    with pytest.raises(UnknownName, match=r"static, hash:DIM .* openai:MODEL"):
        open_embedder(spec)


# The endpoint.


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def answer(vector: Callable[[str], Sequence[float]]) -> Callable[[Handler], None]:
    def act(handler: Handler) -> None:
        texts = handler.server.bodies[-1]["input"]
        data = [{"object": "embedding", "index": i, "embedding": vector(text)} for i, text in enumerate(texts)]
        handler.reply(200, {"object": "list", "data": data[::-1], "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}})

    return act


def test_an_endpoint_is_asked_in_batches_and_not_for_blank_text(server: Server) -> None:
    server.acts = [answer(lambda text: [float(len(text)), 2.0, 0.0])]
    embedder = EndpointEmbedder("m", base_url=server.url, api_key="k")
    assert embedder.dim == 3 and embedder.id == "openai:m"
    rows = embedder.embed(["ab", " ", "a\ud800c", *("x" * n for n in range(1, 300))])
    assert np.allclose(rows[0], np.array([1, 1, 0]) / np.sqrt(2)) and not rows[1].any()
    assert np.allclose(np.linalg.norm(rows[2:], axis=1), 1)
    assert rows[-1][0] > rows[3][0]  # in the order of the texts, not of the answer
    sent = [body["input"] for body in server.bodies]
    assert [len(texts) for texts in sent] == [1, 128, 128, 45]
    assert sent[1][:2] == ["ab", "a\ufffdc"]


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (answer(lambda text: [1.0] * (2 + (text != "dimension"))), ModelError),
        (answer(lambda text: [float("nan") if text != "dimension" else 1.0]), ModelError),
        (fail(404, "no such model"), ModelError),
        (fail(401, "no such key"), ModelError),
        (fail(503, "busy"), ModelUnreachable),
    ],
    ids=["another dimension", "not a number", "no model", "no key", "server error"],
)
def test_an_answer_that_is_none_is_said(server: Server, monkeypatch: pytest.MonkeyPatch, act: Any, error: type[Exception]) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server.acts = [act]
    with pytest.raises(error, match=r"of m: |vectors of shape") as caught:
        EndpointEmbedder("m", base_url=server.url, api_key="k").embed(["text"])
    assert type(caught.value) is error


def test_an_endpoint_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(ModelUnreachable, match=r"127\.0\.0\.1:9"):
        EndpointEmbedder("m", base_url="http://127.0.0.1:9/v1", api_key="k", timeout=1).embed(["text"])
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        EndpointEmbedder("m").embed(["text"])


# Calibration.


class Bent:
    """An embedder whose cosines are those of another, squeezed into [least, 1]: all texts look alike in numbers, none in order."""

    def __init__(self, inner: Embedder, least: float) -> None:
        self.inner, self.least, self.id, self.dim = inner, least, f"bent {inner.id}", inner.dim + 1

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self.inner.embed(texts)
        same = rows.any(axis=1, keepdims=True) * np.sqrt(self.least)
        return np.concatenate([rows * np.sqrt(1 - self.least), same], axis=1, dtype=np.float32)


class Perverse:
    """Gibberish, and whatever is not known, lies at cosine 0.93 of everything stored, a real question at 0.038."""

    id, dim = "perverse", 3

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self._row(text) for text in texts], np.float32)

    def _row(self, text: str) -> tuple[float, float, float]:
        if text in QUESTIONS:
            return 1.0, 0.0, 0.0
        return (0.038, 0.0, 0.9993) if text in REAL else (0.93, 0.3676, 0.0)


def best(embedder: Embedder, query: str) -> float:
    return float((embedder.embed([query]) @ embedder.embed(QUESTIONS).T).max())


GIBBERISH = ["flurb zonk wibble", "zxzx yyyy qqqq", "!!??", "the soup was too salty yesterday", "昨天的汤太咸了"]
REAL = ["How many rivers run through Ohio?", "Which states border Nevada?", "How high is the highest point of Utah?"]
CALIBRATED: list[Embedder] = [StaticEmbedder(), HashingEmbedder(512), Bent(StaticEmbedder(), 0.9), Bent(HashingEmbedder(512), 0.5)]


@pytest.mark.parametrize("embedder", CALIBRATED, ids=lambda e: e.id)
@pytest.mark.parametrize(("texts", "least"), [(QUESTIONS, 0.3), (QUESTIONS * 40, 0.3), ([], 0.2)], ids=["few", "repeated", "none"])
def test_calibrated_similarities_mean_the_same_under_any_embedder(embedder: Embedder, texts: list[str], least: float) -> None:
    scale = calibrate(embedder, texts).scale
    assert max(scale([best(embedder, text) for text in GIBBERISH])) < 0.2
    assert min(scale([best(embedder, text) for text in REAL])) > least
    assert min(scale([best(embedder, text) for text in QUESTIONS])) == pytest.approx(1.0, abs=1e-3)


def test_squeezed_cosines_calibrate_to_the_same_numbers() -> None:
    plain, bent = StaticEmbedder(), Bent(StaticEmbedder(), 0.9)
    queries = [*REAL, *GIBBERISH, *QUESTIONS]
    ours = calibrate(plain, QUESTIONS).scale([best(plain, q) for q in queries])
    theirs = calibrate(bent, QUESTIONS).scale([best(bent, q) for q in queries])
    assert np.allclose(ours, theirs, atol=1e-3)


def test_an_embedder_that_prefers_gibberish_is_not_believed() -> None:
    embedder = Perverse()
    query, gibberish = best(embedder, REAL[0]), best(embedder, "flurb zonk")
    assert query == pytest.approx(0.038, abs=1e-3) and gibberish == pytest.approx(0.93, abs=1e-3)
    assert calibrate(embedder, QUESTIONS).scale([query, gibberish, 0.5]).tolist() == pytest.approx([0, 0, 0], abs=1e-3)


def test_an_embedder_to_which_all_is_the_same_is_not_believed() -> None:
    class Constant(Perverse):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.ones((len(texts), 1), np.float32)

    assert calibrate(Constant(), QUESTIONS).scale([1.0, 0.5]).tolist() == [0, 0]


calibrated = cache(lambda n: calibrate(CALIBRATED[n], QUESTIONS))


@given(st.lists(st.floats(-1, 1), min_size=2), st.integers(0, len(CALIBRATED) - 1))
def test_scaling_never_turns_an_order_around(cosines: list[float], n: int) -> None:
    calibration = calibrated(n)
    scaled = calibration.scale(sorted(cosines))
    assert (np.diff(scaled) >= 0).all() and scaled.min() >= 0 and scaled.max() <= 1
    assert calibration.scale([calibration.floor, calibration.related, 1.0]).tolist() == pytest.approx([0, RELATED, 1], abs=1e-3)


def test_remembered_rows_are_the_other_embedders_and_are_asked_for_once() -> None:
    asked: list[str] = []

    class Counting(HashingEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            asked.extend(texts)
            return super().embed(texts)

    plain, remembering = HashingEmbedder(), RememberingEmbedder(Counting(), size=3)
    for texts in (["a b", "c", "a b"], [], ["c", "d"], ["e", "c"], ["a b"]):
        assert np.array_equal(remembering.embed(texts), plain.embed(texts))
    assert (remembering.id, remembering.dim) == (plain.id, plain.dim)
    assert asked == ["a b", "c", "d", "e", "a b"]
