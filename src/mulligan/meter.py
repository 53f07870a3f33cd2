"""What language models cost: token estimates where no server counts, and the meter that sums replies.

In: completions. Out: `Usage` sums, and ModelError once a token budget is spent. Not promised: that estimates agree with a tokenizer;
they serve texts in any language and are for models that do not say what they used.
"""

import math
import threading
from collections.abc import Mapping, Sequence

from mulligan.errors import ModelError
from mulligan.nouns import Json
from mulligan.protocols import Model
from mulligan.records import Completion, Message, Usage


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` has, in any language: the larger of 1.3 a word and one for 4 bytes of UTF-8, rounded up."""
    return math.ceil(max(len(text.split()) * 1.3, len(text.encode("utf-8", "surrogatepass")) / 4))


def estimate_prompt(messages: Sequence[Message]) -> int:
    """About how many tokens a conversation has, with what a chat template puts around each message."""
    return sum(estimate_tokens(message.content) + 4 for message in messages)


class Meter:
    """What models cost, summed over all that report to it. Thread-safe.

    `total` is what the replies cost when they were first made, `paid` the part that was paid now, `calls` the number of requests.
    With a `budget` in tokens, a request is refused once that many are paid; those under way may exceed it.
    """

    def __init__(self, budget: int | None = None):
        self.budget = budget
        self.total = Usage()
        self.paid = Usage()
        self.calls = 0
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise ModelError when the budget is spent."""
        with self._lock:
            if self.budget is not None and self.paid.tokens >= self.budget:
                raise ModelError(f"the budget of {self.budget} tokens is spent ({self.paid.tokens} paid): raise it and run again")

    def add(self, completion: Completion) -> None:
        """Count one reply."""
        with self._lock:
            self.calls += 1
            self.total += completion.usage
            if completion.paid:
                self.paid += completion.usage


class MeteredModel:
    """A model whose replies are counted by a meter."""

    def __init__(self, model: Model, meter: Meter):
        self.id = model.id
        self._model = model
        self._meter = meter

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Mapping[str, Json] | None = None,
    ) -> Completion:
        self._meter.check()
        completion = self._model.complete(messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema)
        self._meter.add(completion)
        return completion
