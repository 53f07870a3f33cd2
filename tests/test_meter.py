"""Tokens are estimated in any language, and the meter loses nothing."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import ModelError
from mulligan.meter import Meter, MeteredModel, estimate_tokens
from mulligan.models import ScriptedModel
from mulligan.records import Completion, Message, Usage

HELLO = (Message(role="user", content="Say hello."),)
HOW: dict[str, Any] = {"max_tokens": 9, "temperature": 0.0, "seed": 7}


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("word", 2), ("one two three", 4), ("长江长江", 3), ("x" * 400, 100), ("\ud800", 2)])
def test_tokens_are_estimated_in_any_language(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    assert estimate_tokens(text) <= estimate_tokens(text + more) <= estimate_tokens(text) + estimate_tokens(more) + 1


def test_the_meter_tells_paid_from_replayed() -> None:
    meter = Meter()
    usage = Usage(prompt_tokens=10, completion_tokens=2, model_calls=1, seconds=0.5)
    meter.add(Completion(text="", model="m", usage=usage))
    meter.add(Completion(text="", model="m", usage=usage, paid=False))
    assert (meter.calls, meter.total, meter.paid) == (2, usage + usage, usage)


def test_threads_lose_no_count() -> None:
    meter = Meter()
    model = MeteredModel(ScriptedModel(lambda _: "hello there"), meter)
    threads = [threading.Thread(target=lambda: [model.complete(HELLO, **HOW) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (meter.calls, meter.total.model_calls, meter.paid.completion_tokens) == (1600, 1600, 4800)


def test_a_spent_budget_stops_the_next_request() -> None:
    script = ScriptedModel(lambda _: "hello")
    model = MeteredModel(script, Meter(budget=10))
    model.complete(HELLO, **HOW)  # 9 tokens
    model.complete(HELLO, **HOW)
    with pytest.raises(ModelError, match=r"budget of 10 tokens is spent \(18 paid\)"):
        model.complete(HELLO, **HOW)
    assert (script.calls, model.id) == (2, "scripted")
