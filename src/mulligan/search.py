"""What of a record is searched, by words and by vectors, and how the two rankings are fused.

In: records and queries as text and vectors. Out: `Hit`s, best first. `Shelf` holds one place's active records in memory: one
matrix for exact cosine search, and for each word asked so far the rows that carry it; `Unaided` how tasks went without a lesson.
The SQL that fills them is in store.py.

Not promised: words that more than `COMMON` records of the store carry tell too little for what they cost, so they are not
ranked by; vectors still are.
"""

import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import EmbeddingMismatch, InvalidData
from mulligan.nouns import Json, noun, to_json, to_plain
from mulligan.records import Reason, Record
from mulligan.redaction import kinds

MAX_FIELD, MAX_RECORD = 20_000, 65_536  # characters of one text; bytes of a record's JSON
MAX_WORDS = 32  # distinct words of a query that are looked up, longest first: long words are rare ones
COMMON = 1_000
KEPT_WORDS = 20_000  # words whose rows are kept in memory
NEWEST = 2_000  # tasks of a place whose outcome without a lesson is held in memory
FUSION = 60  # the constant k of reciprocal rank fusion: score = sum over rankings of 1 / (k + rank)

# Scripts written without spaces, or with particles glued to the word (Hangul): cut into pairs of characters, which finds
# two-character words. A trigram index cannot, and most Chinese words have two characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUNS = re.compile(f"([{_UNSPACED}]+)|[^{_UNSPACED}]+")
_SEPARATORS = re.compile(
    r"[\s\x00-/:-@\[-`{-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\u2000-\u206f\u2e00-\u303f\u060c\u061b\u061f\u0964\u0965\ud800-\udfff]+"
)


@noun
class Hit:
    """One found record. `similarity` is the cosine, `words` the summed rarity of shared words, `rank` the fused score."""

    record_id: str
    similarity: float
    words: float
    rank: float


def record_text(record: Record) -> str:
    """The text of a record that is embedded: the gist of the situation it is for."""
    return record.gist or record.situation


def index_text(record: Record) -> str:
    """The words by which a record is found, separated by spaces: what it is about, what was done, what the world said."""
    parts = (record.situation, record.original, record.principle, record.condition.text, *(s.what for s in record.signals))
    return " ".join(words(" ".join(parts)))


def words(text: str) -> list[str]:
    """`text` as search words in any language: case-folded, compatibility forms unified, unspaced scripts as character pairs."""
    found: list[str] = []
    for chunk in _SEPARATORS.split(unicodedata.normalize("NFKC", text).casefold()):
        for match in _RUNS.finditer(chunk):
            run, unspaced = match[0], match[1]
            found += [run[i : i + 2] for i in range(len(run) - 1)] if unspaced and len(run) > 1 else [run]
    return found


def query_words(text: str) -> list[str]:
    """The distinct words of a query that are worth a look-up, at most MAX_WORDS."""
    return sorted(dict.fromkeys(words(text[:MAX_FIELD])), key=len, reverse=True)[:MAX_WORDS]


def unfit(record: Record) -> tuple[Reason, str] | None:
    """Why a record must not be stored, as a reason and a sentence, or None. Lessons are short; what is not is a pasted log."""
    if len(to_json(record).encode("utf-8", "surrogatepass")) > MAX_RECORD:
        return "too_large", f"more than {MAX_RECORD} bytes"
    for part in _texts(to_plain(record)):
        if len(part) > MAX_FIELD:
            return "too_large", f"a text of {len(part)} characters, at most {MAX_FIELD} are allowed"
        # Prose, code and logs compress to 10-60 % of their length; one word said over and over to about 1 %.
        raw = part.encode("utf-8", "surrogatepass")
        if len(raw) > 1_000 and len(zlib.compress(raw, 1)) < 0.05 * len(raw):
            return "repetitive", f"a text of {len(part)} characters says next to nothing"
    if found := sorted({kind for part in _texts(to_plain(record)) for kind in kinds(part)}):
        return "secret", f"it holds a secret: {', '.join(found)}"
    return None


def _texts(value: Json) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def vector_of(values: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    """`values` as stored: `dim` finite little-endian floats. Raises EmbeddingMismatch for another shape, InvalidData for NaN."""
    vector = np.asarray(values, "<f4")
    if vector.shape != (dim,):
        raise EmbeddingMismatch(f"a vector of shape {vector.shape} where {dim} dimensions are stored: see `mulligan reembed --help`")
    if not np.isfinite(vector).all():
        raise InvalidData("a vector holds infinite or undefined numbers")
    return vector


class Shelf:
    """The active records of one place in memory, in order of their sequence numbers. Grows at its end; rebuilt for other changes."""

    def __init__(self, dim: int) -> None:
        self.ids: list[str] = []
        self._sequences: NDArray[np.int64] = np.empty(0, np.int64)  # this and the matrix have room to grow: see len(ids)
        self._matrix: NDArray[np.float32] = np.empty((0, dim), np.float32)
        self._rows: dict[tuple[str, str], list[int]] = {}  # ("group" | "task", name) → rows
        self._postings: dict[str, tuple[NDArray[np.int64], float]] = {}  # word → rows that carry it, and its rarity

    @property
    def last(self) -> int:
        """Sequence number of the newest record, 0 without any."""
        return int(self._sequences[len(self.ids) - 1]) if self.ids else 0

    def append(self, rows: Sequence[tuple[int, str, str, str, bytes]]) -> None:
        """Add rows (sequence, id, group, task, vector as float32 bytes) with sequences beyond `last`."""
        if not rows:
            return
        start, end = len(self.ids), len(self.ids) + len(rows)
        if end > len(self._matrix):
            room = max(end, 2 * start) - len(self._matrix)
            self._matrix = np.concatenate([self._matrix, np.empty((room, self._matrix.shape[1]), np.float32)])
            self._sequences = np.concatenate([self._sequences, np.empty(room, np.int64)])
        self._matrix[start:end] = np.frombuffer(b"".join(row[4] for row in rows), "<f4").reshape(len(rows), -1)
        self._sequences[start:end] = [row[0] for row in rows]
        for place, (_, record, group, task, _) in enumerate(rows, start):
            self.ids.append(record)
            self._rows.setdefault(("group", group), []).append(place)
            self._rows.setdefault(("task", task), []).append(place)
        self._postings.clear()

    def find(
        self,
        terms: Sequence[str],
        vector: NDArray[np.float32],
        carriers: Callable[[str], Sequence[int]],
        limit: int,
        excluded: Iterable[tuple[str, str]] = (),
    ) -> list[Hit]:
        """The `limit` best rows by reciprocal rank fusion of cosine and words; ties go to the older record.

        `carriers(term)` gives the sequences of at most COMMON + 1 records of the whole store that carry a term. `excluded` names
        groups and tasks as ("group" | "task", name).
        """
        if not self.ids:
            return []
        shut = [row for name in excluded for row in self._rows.get(name, ())]
        # A dot product a row: `@` hands even small matrices to BLAS threads, whose waking costs 1-10 ms on a busy machine.
        similarity = np.vecdot(self._matrix[: len(self.ids)], vector)
        similarity[shut] = -np.inf
        if len(self._postings) > KEPT_WORDS:
            self._postings.clear()
        rarity = np.zeros(len(self.ids), np.float32)
        for term in terms:
            if term not in self._postings:
                self._postings[term] = self._posting(carriers(term))
            rows, weight = self._postings[term]
            rarity[rows] += weight
        rarity[shut] = 0.0
        rankings = [_best(similarity, limit, -np.inf) if vector.any() else [], _best(rarity, limit, 0.0)]
        rank: dict[int, float] = {}
        for ranking in rankings:
            for place, row in enumerate(ranking, 1):
                rank[row] = rank.get(row, 0.0) + 1.0 / (FUSION + place)
        order = sorted(rank, key=lambda row: (-rank[row], row))[:limit]
        return [Hit(record_id=self.ids[row], similarity=float(similarity[row]), words=float(rarity[row]), rank=rank[row]) for row in order]

    def _posting(self, carriers: Sequence[int]) -> tuple[NDArray[np.int64], float]:
        """Rows of this shelf among the carriers of a word, and the word's weight: the inverse document frequency of BM25."""
        found = np.asarray(carriers, np.int64)
        if len(found) > COMMON:
            return found[:0], 0.0
        own = self._sequences[: len(self.ids)]
        rows = np.searchsorted(own, found)
        rows = rows[own[np.minimum(rows, len(own) - 1)] == found]
        return rows, log1p((len(self.ids) - len(rows) + 0.5) / (len(rows) + 0.5))


@dataclass(frozen=True, slots=True)
class Unaided:
    """How the newest tasks of a place went without a lesson: ids and groups, whether solved, unit vectors; shapes (n,), and (n, dim)."""

    last: int
    tasks: NDArray[np.object_]
    groups: NDArray[np.object_]
    solved: NDArray[np.bool_]
    vectors: NDArray[np.float32]

    def grown(self, rows: Sequence[tuple[int, str, str, int, bytes]]) -> "Unaided":
        """With rows (sequence, task, group, solved, vector as float32 bytes) added, and only the newest kept."""
        if not rows:
            return self
        sequences, tasks, groups, solved, vectors = zip(*rows, strict=True)
        matrix = np.frombuffer(b"".join(vectors), "<f4").reshape(len(rows), -1)
        return Unaided(
            last=sequences[-1],
            tasks=np.concatenate([self.tasks, np.array(tasks, np.object_)])[-NEWEST:],
            groups=np.concatenate([self.groups, np.array(groups, np.object_)])[-NEWEST:],
            solved=np.concatenate([self.solved, np.array(solved, np.bool_)])[-NEWEST:],
            vectors=np.concatenate([self.vectors, matrix])[-NEWEST:] if len(self.solved) else matrix[-NEWEST:],
        )

    def other_than(self, task: str, group: str) -> NDArray[np.bool_]:
        """Which of them are of another task and another group."""
        other: NDArray[np.bool_] = (self.tasks != task) & (self.groups != group)
        return other


_NONE = np.empty(0, np.object_)
NOTHING = Unaided(last=0, tasks=_NONE, groups=_NONE, solved=np.empty(0, np.bool_), vectors=np.empty((0, 0), np.float32))


def _best(scores: NDArray[np.float32], limit: int, least: float) -> list[int]:
    """Rows with the `limit` highest scores above `least`, best first, the older of equals first."""
    rows = np.flatnonzero(scores > least)
    if len(rows) > limit:
        rows = rows[np.argpartition(-scores[rows], limit - 1)[:limit]]
    return [int(row) for row in rows[np.lexsort((rows, -scores[rows]))]]
