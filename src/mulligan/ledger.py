"""Ledger: what everything cost, and the paid replies, in the store's file.

In: usages and completions. Out: bookings in order, and a reply that was paid for once. A second booking under a key is none, so
work that is resumed after a kill is never paid for twice in the sums. Bookings and replies belong to no scope.
"""

import json
from typing import Any, TypeVar

from mulligan.database import Database, now, storable
from mulligan.errors import InvalidData, StoreDamaged
from mulligan.nouns import Json, from_plain, noun, to_json
from mulligan.records import Completion, Usage
from mulligan.redaction import redact

T = TypeVar("T")


@noun
class Booking:
    """A line of the ledger. `paid` is False for what came out of a cache or a recording."""

    key: str
    stage: str
    arm: str
    task: str
    usage: Usage
    paid: bool
    created_at: str


def body(value: Any) -> str:
    """Canonical JSON of a noun as it is stored. Raises InvalidData for what JSON cannot say: NaN, bytes, endless nesting."""
    try:
        return storable(to_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidData(f"a {type(value).__name__} cannot be stored: {error}") from error


class Ledger(Database):
    """The part of a store that keeps costs and replies."""

    def _noun(self, kind: type[T], text: str, **elsewhere: Json) -> T:
        """Read a row's JSON and what of the noun lies in other rows."""
        try:
            return from_plain(kind, {**json.loads(text), **elsewhere})
        except (InvalidData, ValueError, TypeError, RecursionError) as error:
            raise StoreDamaged(f"{self.path} holds a {kind.__name__} that cannot be read ({error}): see `mulligan doctor`") from error

    def add_usage(self, key: str, *, stage: str, arm: str = "", task: str = "", usage: Usage, paid: bool = True) -> None:
        """Book a cost once: the second booking under the same key is none. `paid` is False for a reply out of a cache."""
        with self.transaction():
            self._insert("usage", key=key, stage=stage, arm=arm, task=task, paid=int(paid), created_at=now(), body=body(usage))

    def ledger(self) -> list[Booking]:
        """All bookings in order."""
        rows = self._rows("SELECT key, stage, arm, task, paid, created_at, body FROM usage ORDER BY rowid")
        return [
            Booking(key=key, stage=stage, arm=arm, task=task, usage=self._noun(Usage, text), paid=bool(paid), created_at=created)
            for key, stage, arm, task, paid, created, text in rows
        ]

    def cached(self, key: str) -> Completion | None:
        """The reply kept under that key."""
        rows = self._rows("SELECT body FROM completions WHERE key = ?", (key,))
        return self._noun(Completion, rows[0][0]) if rows else None

    def cache_usage(self) -> Usage:
        """What the replies in the cache cost when they were paid for."""
        kept = (self._noun(Completion, text) for (text,) in self._rows("SELECT body FROM completions"))
        return sum((completion.usage for completion in kept if completion.paid), Usage())

    def cache(self, key: str, completion: Completion, request_json: str) -> None:
        """Keep a reply and the request that it answers, without secrets; the first one under a key stays."""
        with self.transaction():
            request = storable(redact(request_json))
            self._insert("completions", key=key, created_at=now(), request=request, body=body(redact(completion)))
