"""Care of records: checks that were run again, records that took the place of others, what came of attempts; in the file.

In: what `audit.freshness` and `read.credit` found, and what was decided by hand. Out: the same rows, in order. A record's age is the time
since its check was last run, and nothing but a check makes it younger: reading and recalling write nothing here.
"""

from collections.abc import Sequence
from typing import Literal

from mulligan.database import now
from mulligan.errors import InvalidData
from mulligan.evidence import Evidence
from mulligan.nouns import noun
from mulligan.records import Receipt

Freshness = Literal["holds", "stale", "unknown"]


@noun
class StoredRecheck:
    """One check that was run again."""

    record: str
    outcome: Freshness
    reason: str
    evaluator: str
    created_at: str


@noun
class Result:
    """What came of an attempt: its receipt, and the attempt's utility in [0, 1]."""

    receipt: Receipt
    utility: float


class Care(Evidence):
    """The part of a store that keeps what became of records."""

    def add_recheck(self, record: str, outcome: Freshness, reason: str, evaluator: str) -> None:
        """Note that the check of a record was run again, and what came of it."""
        with self.transaction():
            self._insert("rechecks", record=record, outcome=outcome, reason=reason, evaluator=evaluator, created_at=now())

    def rechecks(self, record: str) -> list[StoredRecheck]:
        """What came of the checks of a record that were run again, in order."""
        rows = self._rows("SELECT record, outcome, reason, evaluator, created_at FROM rechecks WHERE record = ? ORDER BY seq", (record,))
        names = ("record", "outcome", "reason", "evaluator", "created_at")
        return [StoredRecheck(**dict(zip(names, row, strict=True))) for row in rows]

    def checked_at(self, record: str) -> str:
        """When the check of a record last reached a verdict: at its last check that did, else when it was stored. "" if there is none."""
        sql = """SELECT max(at) FROM (SELECT created_at AS at FROM records WHERE id = :key
            UNION ALL SELECT created_at FROM rechecks WHERE record = :key AND outcome <> 'unknown')"""
        return str(self._rows(sql, {"key": record})[0][0] or "")

    def add_successor(self, record: str, successor: str) -> None:
        """Say that `successor` took the place of `record`. Raises InvalidData where it already has another, or for a circle."""
        if record == successor or record in self.successors(successor):
            raise InvalidData(f"record {successor} cannot take the place of {record}: it came before it")
        with self.transaction():
            if (known := self.successors(record)[:1]) and known != [successor]:
                raise InvalidData(f"record {record} was replaced by {known[0]} already")
            self._insert("lineage", record=record, successor=successor, created_at=now())

    def successors(self, record: str) -> list[str]:
        """What took the place of a record, and what took the place of that, and so on."""
        return self._line("SELECT successor FROM lineage WHERE record = ?", record)

    def predecessors(self, record: str) -> list[str]:
        """What a record took the place of, the latest first."""
        return self._line("SELECT record FROM lineage WHERE successor = ? ORDER BY rowid DESC", record)

    def _line(self, sql: str, record: str) -> list[str]:
        found: list[str] = []
        rest = [record]
        while rest:
            for (key,) in self._rows(sql, (rest.pop(0),)):
                if key not in found and key != record:
                    found.append(key)
                    rest.append(key)
        return found

    def history(self, record: str) -> list[dict[str, str]]:
        """The moves of a record through its life, in order."""
        rows = self._rows("SELECT old, new, reason, created_at FROM history WHERE record = ? ORDER BY number", (record,))
        return [dict(zip(("old", "new", "reason", "created_at"), row, strict=True)) for row in rows]

    def add_utility(self, receipt_id: str, utility: float) -> None:
        """Say how the attempt with (or without) that guidance went, in [0, 1]; the first word stays."""
        with self.transaction():
            self._execute("UPDATE receipts SET utility = ? WHERE id = ? AND utility IS NULL", (utility, receipt_id))

    def results(self) -> Sequence[Result]:
        """All receipts whose attempt's utility is known, in order."""
        rows = self._rows("SELECT body, utility FROM receipts WHERE utility IS NOT NULL ORDER BY seq")
        return [Result(receipt=self._noun(Receipt, text), utility=utility) for text, utility in rows]
