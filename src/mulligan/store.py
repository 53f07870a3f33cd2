"""Store: everything that happened, in one SQLite file, and the records found in it by words and by vectors.

In: nouns. Out: the same nouns, and `Hit`s. What happened is in `evidence.py`, costs are in `ledger.py`. Every row holds its noun as
canonical JSON; ids are hashes of content, so writing twice is writing once. A write that returned has reached the disk. One `Store`
serves many threads (they take turns), one file many processes; after a fork the child opens the file anew.

Not promised: the ledger and the response cache belong to no scope, so `remove_scope` leaves them alone.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from mulligan.care import Care
from mulligan.conditions import check_condition
from mulligan.database import check_names, now
from mulligan.errors import EmbeddingMismatch, InvalidData, StoreError
from mulligan.evidence import check_move
from mulligan.ledger import body
from mulligan.nouns import noun
from mulligan.protocols import Embedder
from mulligan.records import Outcome, Receipt, Record, Statistics, Status, Task
from mulligan.redaction import redact
from mulligan.search import (
    COMMON,
    NEWEST,
    NOTHING,
    Hit,
    Shelf,
    Unaided,
    index_text,
    query_words,
    record_text,
    unfit,
    vector_of,
)

MEMORY = (
    "records",
    "statistics",
    "history",
    "rechecks",
    "lineage",
    "vectors",
    "unaided",
)  # what recall reads: compare `digest(MEMORY)` before and after an evaluation
KEPT = 10_000  # records held decoded in memory
REWARD: Mapping[str, float] = {"helped": 1.0, "hurt": 0.0, "neutral": 0.5}

T = TypeVar("T")
Row = tuple[Any, ...]

_COUNTS = tuple(field.name for field in fields(Statistics))
_RECORD = f"""SELECT r.body, r.status, r.reason, r.created_at, r.seq, {", ".join(f"s.{name}" for name in _COUNTS)}
    FROM records r JOIN statistics s ON s.record = r.id WHERE r.id = ?"""
# A scope and all below it: `acme` takes `acme` and `acme/x`, not `acmex`. The character after "/" is "0".
_WITHIN = "(scope = :scope OR (scope >= :scope || '/' AND scope < :scope || '0'))"


@noun
class StoredRecord:
    """A record with what the store knows about it. `sequence` orders records even where the clock, and so `created_at`, went back."""

    record: Record
    status: Status
    reason: str
    statistics: Statistics
    created_at: str
    sequence: int


class Store(Care):
    """The database. A context manager. `frozen` opens it for reading only: every write raises StoreFrozen."""

    def __init__(self, path: Path | str, *, frozen: bool = False) -> None:
        """Raises StoreDamaged or StoreError (see database.connect); never starts empty over an existing file."""
        super().__init__(path, frozen=frozen)
        self._changes = 0  # own changes to records, since opening
        self._stored: dict[str, StoredRecord] = {}
        self._stored_at: Row = ()
        self._shelves: dict[tuple[str, str | None], tuple[Shelf, Row, Row]] = {}
        self._unaided: dict[tuple[str, str], tuple[Unaided, Row, Row]] = {}

    # What is not needed: tasks that went well without a lesson.

    def add_unaided(self, task: Task, *, solved: bool, gist: str, vector: NDArray[np.float32], embedder: str) -> None:
        """Note how a task went at the agent's own first try, without a lesson; the last time counts. `vector` is that of `gist`.

        Raises EmbeddingMismatch for a vector of another embedder.
        """
        dim, values = len(vector), vector_of(vector, len(vector)).tobytes()
        text = re.sub("[\0\ud800-\udfff]", "\ufffd", redact(gist))
        with self.transaction():
            key = self.add_task(task)
            if self._rows("SELECT 1 FROM unaided WHERE task = ? AND solved = ? AND vector = ?", (key, int(solved), values)):
                return
            if self._execute("DELETE FROM unaided WHERE task = ?", (key,)).rowcount:
                self._rearranged("unaided")
            place = {"task_id": task.id, "task_group": task.group, "scope": task.scope, "domain": task.domain}
            self.load("unaided", task=key, **place, solved=int(solved), gist=text, embedder=embedder, dim=dim, vector=values)

    def unaided(self, scope: str, domain: str) -> Unaided:
        """How the newest tasks of exactly that scope and domain went without a lesson."""
        with self._held():
            state = (*(version := self._version()), self._changes)
            known, known_state, known_base = self._unaided.get((scope, domain), (NOTHING, (), ()))
            if known_state != state:
                base = (*version[:2], *self._rows("SELECT value FROM meta WHERE key = 'unaided'"))
                known = known if known_base == base else NOTHING
                sql = """SELECT seq, task_id, task_group, solved, vector FROM unaided
                    WHERE scope = ? AND domain = ? AND seq > ? ORDER BY seq DESC LIMIT ?"""
                known = known.grown(self._rows(sql, (scope, domain, known.last, NEWEST))[::-1])
                self._unaided[scope, domain] = (known, state, base)
            return known

    # What was learned: records.

    @property
    def embedder(self) -> tuple[str, int] | None:
        """Id and dimension of the embedder that all vectors in the store come from; None without vectors."""
        for table in ("vectors", "unaided"):
            if found := self._rows(f"SELECT embedder, dim FROM {table} LIMIT 1"):
                return tuple(found[0])
        return None

    def check_embedder(self, name: str, dim: int) -> None:
        """Raises EmbeddingMismatch unless the vectors in the store, if any, come from that embedder."""
        if self.embedder not in (None, (name, dim)):
            raise EmbeddingMismatch(
                f"{self.path} holds vectors of {self.embedder}, not of {(name, dim)}: use that embedder, or run "
                f"`mulligan reembed --embedder {name}`"
            )

    def add_record(self, record: Record, vector: NDArray[np.float32], *, embedder: str) -> str:
        """Store a record with its vector, active, and return its id. `embedder` is the id of what made the vector.

        Raises InvalidData for a record too large or repetitive to be a lesson or with a condition that cannot be read,
        EmbeddingMismatch for a vector of another embedder.
        """
        origin = record.provenance
        check_names(scope=record.scope, domain=record.domain, task=origin.task, group=origin.group)
        text = body(record)
        if why := unfit(record):
            raise InvalidData(f"record refused: {': '.join(why)}")
        check_condition(record.condition)
        key, dim, values = record.id, len(vector), vector_of(vector, len(vector))
        with self.transaction():
            self.check_embedder(embedder, dim)
            if self.load("records", id=key, status="active", reason="", created_at=now(), body=text):
                self.load("statistics", record=key)
                self.load("vectors", record=key, embedder=embedder, dim=dim, vector=values.tobytes())
        return key

    def record(self, key: str) -> StoredRecord:
        """The record of that id with its statistics. Raises StoreError if there is none."""
        return self.several([key])[0]

    def several(self, keys: Sequence[str]) -> list[StoredRecord]:
        """The records of those ids, in that order. Raises StoreError if one is missing."""
        with self._held():
            if self._stored_at != (version := self._version()) or len(self._stored) >= KEPT:
                self._stored, self._stored_at = {}, version
            self._stored |= {key: self._read(key) for key in keys if key not in self._stored}
            return [self._stored[key] for key in keys]

    def _read(self, key: str) -> StoredRecord:
        for text, status, reason, created, sequence, *numbers in self._rows(_RECORD, (key,)):
            statistics, record = Statistics(**dict(zip(_COUNTS, numbers, strict=True))), self._noun(Record, text)
            return StoredRecord(record=record, status=status, reason=reason, statistics=statistics, created_at=created, sequence=sequence)
        raise StoreError(f"{self.path} holds no record {key}")

    def records(
        self, *, scope: str | None = "default", domain: str | None = None, status: Status | None = "active", limit: int | None = None
    ) -> list[StoredRecord]:
        """Records of exactly that scope in the order in which they were added; None means any.

        `limit` takes those with the least ids: a random sample, as ids are hashes, that changes little while records are added.
        """
        wanted = {"scope": scope, "domain": domain, "status": status}
        where = " AND ".join(f"{name} = :{name}" for name, value in wanted.items() if value is not None) or "1"
        order = "ORDER BY id LIMIT :limit" if limit else "ORDER BY seq"
        keys = [key for (key,) in self._rows(f"SELECT id FROM records WHERE {where} {order}", {**wanted, "limit": limit})]
        return sorted(self.several(keys), key=lambda stored: stored.sequence)

    def holds_more(self, than: int, *, scope: str, domain: str) -> bool:
        """Whether more than so many active records are of exactly that scope and domain. Counts no further than it must."""
        few = self._rows("SELECT max(seq) <= ? FROM records", (than,))[0][0]
        sql = "SELECT 1 FROM records WHERE scope = ? AND status = 'active' AND domain = ? LIMIT 1 OFFSET ?"
        return not few and bool(self._rows(sql, (scope, domain, than)))

    def vectors(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of those records, shape (n, dim), in that order. Raises StoreError if one is missing."""
        found = [row for key in keys for row in self._rows("SELECT vector FROM vectors WHERE record = ?", (key,))]
        if len(found) != len(keys):
            raise StoreError(f"{self.path} lacks {len(keys) - len(found)} of {len(keys)} vectors")
        return np.frombuffer(b"".join(vector for (vector,) in found), "<f4").reshape(len(keys), (self.embedder or ("", 0))[1])

    def find(self, prefix: str) -> list[str]:
        """Ids of records that begin with `prefix`, with or without `rec_`."""
        start = prefix if prefix.startswith("rec_") else f"rec_{prefix}"
        sql = "SELECT id FROM records WHERE id >= ? AND id < ? ORDER BY seq"
        return [key for (key,) in self._rows(sql, (start, f"{start}\U0010ffff"))]

    def set_status(self, key: str, status: Status, reason: str) -> None:
        """Move a record along LIFECYCLE, with the reason in its history. Raises InvalidData for a move that is not in it."""
        with self.transaction():
            if (stored := self.record(key)).status == status:
                return
            check_move(stored.status, status, f"record {key}")
            self._execute("UPDATE records SET status = ?, reason = ? WHERE id = ?", (status, reason, key))
            [(number,)] = self._rows("SELECT count(*) FROM history WHERE record = ?", (key,))
            self._insert("history", record=key, number=number + 1, old=stored.status, new=status, reason=reason, created_at=now())
            self._execute("DELETE FROM words WHERE rowid = ?", (stored.sequence,))
            if status == "active":
                self._index(stored.sequence, stored.record)
            self._rearranged()
            self._stored.pop(key, None)

    def remove_record(self, key: str) -> bool:
        """Delete a record with all that hangs on it. The decision that made it stays, as evidence. False if there is none."""
        with self.transaction():
            self._execute("DELETE FROM words WHERE rowid IN (SELECT seq FROM records WHERE id = ?)", (key,))
            removed = self._execute("DELETE FROM records WHERE id = ?", (key,)).rowcount > 0
            self._rearranged()
            self._stored.pop(key, None)
        return removed

    def remove_scope(self, scope: str) -> dict[str, int]:
        """Delete all tasks, episodes, decisions, records and receipts of a scope and of those below it, also from the file's free space.

        Returns how many rows went, by table; an unknown scope removes nothing and gives an empty dict.
        """
        with self.transaction():
            before, values = self.counts(), {"scope": scope}
            self._execute(f"DELETE FROM words WHERE rowid IN (SELECT seq FROM records WHERE {_WITHIN})", values)
            for table in ("records", "receipts", "tasks"):  # what refers to them goes with them
                self._execute(f"DELETE FROM {table} WHERE {_WITHIN}", values)
            removed = {table: before[table] - left for table, left in self.counts().items() if before[table] > left}
            if removed:
                self._execute("INSERT INTO words (words) VALUES ('optimize')")  # rewrites the index without the deleted words
            self._rearranged()
            self._rearranged("unaided")
            self._stored.clear()
        self._flush()
        return removed

    def reembed(self, embedder: Embedder, batch: int = 256) -> int:
        """Replace every vector by one of `embedder`, all or none; returns how many. Other processes may read and write meanwhile."""
        vectors: dict[str, bytes] = {}  # by text

        def embed_new() -> tuple[list[Row], list[Row]]:
            rows = self._rows("SELECT id, body FROM records ORDER BY seq")
            records = [(key, record_text(self._noun(Record, text))) for key, text in rows]
            alone = self._rows("SELECT seq, gist FROM unaided ORDER BY seq")
            new = [text for text in dict.fromkeys(text for _, text in (*records, *alone)) if text not in vectors]
            for start in range(0, len(new), batch):
                part = new[start : start + batch]
                for text, row in zip(part, embedder.embed(part), strict=True):
                    vectors[text] = vector_of(row, embedder.dim).tobytes()
            return records, alone

        if not self.frozen:
            embed_new()  # the long part, outside the transaction
        with self.transaction():
            records, alone = embed_new()
            self._execute("DELETE FROM vectors")
            for key, text in records:
                self._insert("vectors", record=key, embedder=embedder.id, dim=embedder.dim, vector=vectors[text])
            for sequence, text in alone:
                new = (embedder.id, embedder.dim, vectors[text], sequence)
                self._execute("UPDATE unaided SET embedder = ?, dim = ?, vector = ? WHERE seq = ?", new)
            self._rearranged()
            self._rearranged("unaided")
        return len(records)

    def _index(self, sequence: int, record: Record) -> None:
        self._execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (sequence, index_text(record)))

    def _rearranged(self, what: str = "revision") -> None:
        """Tell all processes that records (or what `unaided` holds) did more than grow at the end."""
        self._execute("INSERT INTO meta VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET value = value + 1", (what,))
        self._changes += 1

    # What helps here: search.

    def search(
        self,
        text: str,
        vector: NDArray[np.float32],
        *,
        scope: str = "default",
        domain: str | None = None,
        limit: int = 50,
        exclude_groups: Set[str] = frozenset(),
        exclude_tasks: Set[str] = frozenset(),
    ) -> list[Hit]:
        """The active records of exactly that scope (and domain, unless None) nearest to a text and its vector, best first.

        Exact cosine and words of any language, fused by reciprocal rank. Blank text finds nothing. `text` has no syntax.
        """
        with self._held():
            if not text.strip() or (embedder := self.embedder) is None:
                return []
            shut = [("group", name) for name in exclude_groups] + [("task", name) for name in exclude_tasks]
            shelf = self._shelf(scope, domain, embedder[1])
            return shelf.find(query_words(text), vector_of(vector, embedder[1]), self._carriers, limit, shut)

    def _carriers(self, term: str) -> list[int]:
        quoted = '"' + term.replace('"', '""') + '"'
        return [sequence for (sequence,) in self._rows("SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (quoted, COMMON + 1))]

    def _shelf(self, scope: str, domain: str | None, dim: int) -> Shelf:
        """The shelf of a place, brought up to date: nothing to do, new records to append, or all to read again."""
        state = (*(version := self._version()), self._changes)
        shelf, shelf_state, shelf_base = self._shelves.get((scope, domain), (None, (), ()))
        if shelf is None or shelf_state != state:
            base = (*version[:2], *self._rows("SELECT value FROM meta WHERE key = 'revision'"))
            if shelf is None or shelf_base != base:
                shelf = Shelf(dim)
            sql = """SELECT r.seq, r.id, r."group", r.task, v.vector FROM records r JOIN vectors v ON v.record = r.id
                WHERE r.scope = ? AND r.status = 'active' AND r.seq > ? AND (? IS NULL OR r.domain = ?) ORDER BY r.seq"""
            shelf.append(self._rows(sql, (scope, shelf.last, domain, domain)))
            self._shelves[scope, domain] = (shelf, state, base)
        return shelf

    # What came of it: receipts. Costs and replies are in the ledger.

    def add_receipt(self, receipt: Receipt) -> str:
        """Store what was retrieved and shown at a decision point, and count it in the records' statistics; return its id."""
        check_names(scope=receipt.scope, label=receipt.label)
        text, key = body(receipt), receipt.id
        with self.transaction():
            if self._insert("receipts", id=key, created_at=now(), body=text):
                self._count("retrieved = retrieved + 1", receipt.candidates)
                self._count("selected = selected + 1", receipt.shown)
        return key

    def receipt(self, key: str) -> Receipt:
        """The receipt of that id. Raises StoreError if there is none."""
        if not (rows := self._rows("SELECT body FROM receipts WHERE id = ?", (key,))):
            raise StoreError(f"{self.path} holds no receipt {key}")
        return self._noun(Receipt, rows[0][0])

    def receipts(self, label: str | None = None) -> list[tuple[Receipt, Outcome | None]]:
        """Receipts in the order in which they were added, with what they were settled with."""
        rows = self._rows("SELECT body, outcome FROM receipts WHERE ? IS NULL OR label = ? ORDER BY seq", (label, label))
        return [(self._noun(Receipt, text), outcome) for text, outcome in rows]

    def settle(self, receipt_id: str, outcome: Outcome) -> bool:
        """Say what came of what was shown. Counts once per receipt; False when it was settled before (SPEC A3.7)."""
        if outcome not in REWARD:
            raise InvalidData(f"an outcome is one of {', '.join(get_args(Outcome))}, not {outcome!r}")
        with self.transaction():
            receipt = self.receipt(receipt_id)
            sql = "UPDATE receipts SET outcome = ?, settled_at = ? WHERE id = ? AND outcome IS NULL"
            if first := self._execute(sql, (outcome, now(), receipt_id)).rowcount > 0:
                self._count(f"{outcome} = {outcome} + 1, ema = 0.8 * ema + 0.2 * {REWARD[outcome]}", receipt.shown)
        return first

    def _count(self, change: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._execute(f"UPDATE statistics SET {change} WHERE record = ?", (key,))
            self._stored.pop(key, None)

    # The whole. dump, counts, digest and problems come with the file.

    def load(self, table: str, **row: Any) -> bool:
        """Insert one row as `dump` gives it unless its key is there, with what follows from it: words, the one-embedder rule."""
        if table in ("vectors", "unaided"):
            self.check_embedder(row["embedder"], row["dim"])
        sequence = self._insert(table, **row)
        if sequence is not None and table in ("records", "unaided"):
            self._changes += 1
            if table == "records" and row["status"] == "active":
                self._index(sequence, self._noun(Record, row["body"]))
        return sequence is not None
