"""What the loaders of SQL questions share: JSON with places, databases, gold queries, and the count of what is left out.

A loader turns its format into `Question`s; `make_tasks` turns those into tasks of the SQL world (domain "sql"; context: the schema
with sample values; payload: "database", the file's absolute path, and "gold", the query). Gold queries are run once, in the
world's own worker and within its limits, so that a task which could not be judged never comes out. Whatever the input is, the end
is tasks, or one InvalidData or UsageError that names file and place. Not promised: that a gold query answers its question.
"""

import json
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import Json, content_id, noun
from mulligan.records import Split, Task
from mulligan.worlds.sql_engine import Failure, Limits, hold, run
from mulligan.worlds.sql_schema import describe_schema

SAMPLES = 3  # values shown of each column
LeftOut = Literal[
    "excluded",  # the file itself says so
    "gold_fails",  # the gold query does not run within the world's limits
    "gold_empty",  # it returns nothing, or NULL alone: any wrong query that finds nothing would be right
    "duplicate",  # the same question with the same gold query again
    "ambiguous",  # the same question with another gold query; the first one stays
    "crosses_splits",  # the question or its group is in a split that is read later as well
    "no_gold",  # a problem without a solution, so that nobody knows whether its tests can be passed
    "no_tests",
    "passes_already",  # a check that passes before anything is done
    "check_fails",  # a check that cannot be run, or says something else each time
    "too_large",  # a formula longer than wanted, or that no solver decided in time
    "not_stated",  # a theorem that the installed checker does not read, often for want of a library
]
_RANK: Mapping[Split, int] = {"source": 0, "train": 1, "heldout": 2}


@noun
class LoadReport:
    """How many questions a file holds, and how many of them were left out, by reason."""

    file: str
    read: int
    left_out: Mapping[LeftOut, int]

    @property
    def kept(self) -> int:
        return self.read - sum(self.left_out.values())


@dataclass(frozen=True, slots=True)
class Node:
    """One JSON value with its place in its file, so that a wrong value is named where it stands."""

    value: Json
    file: str
    place: str = ""

    def wrong(self, wanted: str) -> InvalidData:
        return InvalidData(f"{self.file}: {self.place or 'the whole file'} must be {wanted}")

    def get(self, key: str) -> "Node | None":
        """The value of `key` in an object; None when it is not there."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return Node(self.value[key], self.file, f"{self.place}.{key}".lstrip(".")) if key in self.value else None

    def at(self, key: str) -> "Node":
        """The value of `key`, which must be there."""
        found = self.get(key)
        if found is None:
            raise InvalidData(f"{self.file}: {self.place or 'the whole file'} has no {key!r}")
        return found

    def items(self) -> "list[Node]":
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Node(value, self.file, f"{self.place}[{index}]") for index, value in enumerate(self.value)]

    def pairs(self) -> "dict[str, Node]":
        """The fields of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return {key: self.at(key) for key in self.value}

    def text(self, *, blank: bool = False) -> str:
        """A string; not a blank one unless allowed, and never half of a surrogate pair, which no file or model could take."""
        if not isinstance(self.value, str) or not (blank or self.value.strip()):
            raise self.wrong("text")
        if any("\ud800" <= c <= "\udfff" for c in self.value):
            raise self.wrong("text without half surrogate pairs")
        return self.value

    def split(self, known: Mapping[str, Split]) -> Split:
        """The split that a name, or a number, stands for."""
        name = str(self.value) if isinstance(self.value, str | int) else ""
        if name not in known:
            raise self.wrong(f"one of {', '.join(known)}")
        return known[name]


SPLITS: Mapping[str, Split] = {name: name for name in get_args(Split)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of a file. `excluded` ones are counted but make no task; `group` is what may not cross splits."""

    text: str
    gold: str
    database: Path
    split: Split
    group: str
    excluded: bool = False


def read_json(path: str | Path) -> Node:
    """A whole JSON file. Raises UsageError when it cannot be read, InvalidData with line and column when it is no JSON."""
    try:
        return Node(json.loads(Path(path).read_text("utf-8-sig")), str(path))
    except json.JSONDecodeError as error:
        raise InvalidData(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise InvalidData(f"{path}: byte {error.start} is no UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a NUL in the path, nesting without end
        raise InvalidData(f"{path}: cannot be read: {error}") from error


def normalised(text: str) -> str:
    """What two writings of one question share: no case, spacing, width or punctuation; signs that mean something, such as `<`, stay."""
    return " ".join(re.findall(r"\w+|[^\w\s?!.,;:'\"]", unicodedata.normalize("NFKC", text).casefold()))


def make_tasks(
    questions: Iterable[Question], *, file: str | Path, benchmark: str, skip_empty: bool = True
) -> tuple[list[Task], LoadReport]:
    """Tasks of the questions that can be used, in their order, and the count of the others.

    A question or group that is in several splits stays in the one that is read last (heldout before train before source), so
    that what is measured was never learnt from. Raises InvalidData when no question is left.
    """
    listed = list(enumerate(questions, start=1))
    left_out: Counter[LeftOut] = Counter()
    usable = []
    for number, question in listed:
        reason = "excluded" if question.excluded else _judge(question, skip_empty)
        if reason:
            left_out[reason] += 1
        else:
            usable.append((number, question))
    kept = _without_repetitions(usable, left_out)
    if not kept:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise InvalidData(f"{file}: no question that can be used among {len(listed)}{f' ({why})' if why else ''}")
    tasks = [_task(number, question, benchmark) for number, question in kept]
    return tasks, LoadReport(file=str(file), read=len(listed), left_out=dict(left_out))


def _judge(question: Question, skip_empty: bool) -> Literal["gold_fails", "gold_empty"] | None:
    held = hold(str(question.database))
    _context(held, str(question.database))  # first, so that a damaged database is not blamed on the query
    outcome = _outcome(held, question.gold)
    return outcome if outcome == "gold_fails" or skip_empty else None


@lru_cache(maxsize=4096)
def _outcome(held: Path, gold: str) -> Literal["gold_fails", "gold_empty"] | None:
    found = run(held, gold, Limits())
    if isinstance(found, Failure):
        return "gold_fails"
    return None if any(cell is not None for row in found.rows for cell in row) else "gold_empty"


def _without_repetitions(questions: Sequence[tuple[int, Question]], left_out: Counter[LeftOut]) -> list[tuple[int, Question]]:
    ranks: dict[tuple[str, ...], int] = {}
    for _, question in questions:
        for key in _identities(question):
            ranks[key] = max(ranks.get(key, 0), _RANK[question.split])
    kept = []
    golds: dict[tuple[str, ...], str] = {}
    for number, question in questions:
        identity = _identities(question)[0]
        if any(ranks[key] > _RANK[question.split] for key in _identities(question)):
            left_out["crosses_splits"] += 1
        elif identity in golds:
            left_out["duplicate" if golds[identity] == question.gold else "ambiguous"] += 1
        else:
            golds[identity] = question.gold
            kept.append((number, question))
    return kept


def _identities(question: Question) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What may not be in two splits: the question as asked of its database, and its group."""
    return (str(question.database), normalised(question.text)), (question.group,)


def _task(number: int, question: Question, benchmark: str) -> Task:
    content = content_id("", [question.database.stem, question.text, question.gold])[1:9]
    return Task(
        id=f"{benchmark}/q{number:04d}-{content}",
        domain="sql",
        benchmark=benchmark,
        group=question.group,
        split=question.split,
        prompt=question.text,
        context=_context(hold(str(question.database)), str(question.database)),
        payload={"database": str(question.database.resolve()), "gold": question.gold},
    )


@lru_cache(maxsize=256)
def _context(held: Path, name: str) -> str:
    try:
        found = describe_schema(held, samples=SAMPLES)
    except sqlite3.Error as error:
        raise InvalidData(f"{name} is a damaged SQLite database: {error}") from error
    if not found:
        raise InvalidData(f"{name} is a SQLite database without tables")
    return found
