"""Broken input: whatever happens to a loader's files, it ends in tasks or in one clear line that names the file."""

import copy
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import MulliganError, UsageError
from mulligan.tasks.spider import load_spider
from mulligan.tasks.splits import check_splits
from mulligan.tasks.text2sql import load_text2sql

MUTATIONS = 10_000
TEXT2SQL = [
    {
        "query-split": "train",
        "sentences": [
            {"question-split": "dev", "text": "lakes in state0", "variables": {"state0": "utah"}},
            {"question-split": "test", "text": "any lake in state0 ?", "variables": {"state0": "münster"}},
        ],
        "sql": ['SELECT name FROM lake WHERE state = "state0" ;'],
        "variables": [{"example": "utah", "location": "both", "name": "state0", "type": "state"}],
    },
    {
        "query-split": "test",
        "sentences": [{"question-split": "train", "text": "all", "variables": {}}],
        "sql": ["SELECT * FROM lake"],
        "variables": [],
    },
]
SPIDER = [
    {"db_id": "lakes", "question": "How many lakes?", "query": "SELECT COUNT(*) FROM lake", "split": "source", "group": "count"},
    {"db_id": "lakes", "question": "Which lakes?", "SQL": "SELECT name FROM lake", "evidence": "lakes have names"},
]
VALUES = [None, True, 0, -1.5, 10**400, "", " ", "x", "train", "lakes", "\0", "\ud800", "é" * 300, [], [[]], {}, {"name": "x"}, ["x", 1]]
BYTES = [
    b"",
    b"\0",
    b"\xff",
    b'"',
    b"\\",
    b"{",
    b"]",
    b",",
    b":",
    b"\\ud800",
    b"\xef\xbb\xbf",
    b"-",
    b"e99",
    b"null",
    b"9" * 5000,
    b"[" * 2000,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("hostile")
    (found / "lakes").mkdir()
    with closing(sqlite3.connect(found / "lakes" / "lakes.sqlite")) as connection:
        connection.executescript("CREATE TABLE lake (name TEXT, state TEXT); INSERT INTO lake VALUES ('bear', 'utah'), ('aa', 'münster');")
    return found


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys or indices."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def rearranged(value: Any, draw: random.Random) -> bytes:
    """JSON with a few values dropped, replaced, copied from elsewhere or doubled."""
    root = [copy.deepcopy(value)]
    for _ in range(draw.choice((1, 1, 2, 5))):
        if not (spots := list(places(root))):
            break
        holder, key = draw.choice(spots)
        match draw.randrange(4):
            case 0:
                del holder[key]
            case 1:
                holder[key] = copy.deepcopy(draw.choice(VALUES))
            case 2:
                other, at = draw.choice(spots)
                holder[key] = copy.deepcopy(other[at]) if at in other or (isinstance(other, list) and at < len(other)) else None
            case 3 if isinstance(holder, list):
                holder.insert(draw.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
            case _:
                holder[draw.choice("xyz")] = holder.pop(key)
    return json.dumps(root[0] if root else None).encode()


def damaged(raw: bytes, draw: random.Random) -> bytes:
    """Bytes flipped, cut off, taken out, doubled or put in."""
    for _ in range(draw.choice((1, 1, 2, 5))):
        start = draw.randrange(len(raw) + 1)
        end = min(len(raw), start + draw.choice((0, 1, 1, 5, 40)))
        match draw.randrange(4):
            case 0:
                raw = raw[:start] + bytes(b ^ 1 << draw.randrange(8) for b in raw[start:end]) + raw[end:]
            case 1:
                raw = raw[:start] + (raw[end:] if draw.random() < 0.7 else b"")
            case 2:
                raw = raw[:end] + raw[start:]
            case _:
                raw = raw[:start] + draw.choice(BYTES) + raw[end:]
    return raw


def outcome(load: Callable[[], Any], *names: str) -> str:
    """What came of loading: "tasks", or the kind of the one clear error."""
    try:
        tasks, report = load()
    except UsageError as error:
        message = str(error)
        assert "\n" not in message, message
        assert any(name in message for name in names), message
        return type(error).__name__
    assert tasks
    assert len(tasks) == report.kept
    check_splits(tasks)
    for task in tasks:
        assert task.prompt.strip()
        task.prompt.encode()
    return "tasks"


@pytest.mark.timeout(120)  # about 4 s of work, on a busy machine much more of waiting
@pytest.mark.parametrize("kind", ["text2sql", "spider"])
def test_ten_thousand_mutations_end_in_tasks_or_one_clear_error(folder: Path, kind: str) -> None:
    draw = random.Random(kind)
    path = folder / f"{kind}.json"
    good = TEXT2SQL if kind == "text2sql" else SPIDER
    loads = {
        "text2sql": lambda: load_text2sql(path, folder / "lakes" / "lakes.sqlite", split_by=draw.choice(("question", "query"))),
        "spider": lambda: load_spider(path, folder),
    }
    seen: Counter[str] = Counter()
    for number in range(MUTATIONS):
        raw = rearranged(good, draw) if number % 2 else damaged(json.dumps(good, ensure_ascii=False).encode(), draw)
        path.write_bytes(raw)
        try:
            seen[outcome(loads[kind], path.name)] += 1
        except Exception as error:
            raise AssertionError(f"mutation {number}: {raw!r}") from error
    assert min(seen["tasks"], seen["InvalidData"]) > MUTATIONS / 10, seen  # both ends are reached


def test_damaged_databases_end_in_tasks_or_one_clear_error(folder: Path, tmp_path: Path) -> None:
    draw = random.Random(7)
    (tmp_path / "spider.json").write_text(json.dumps(SPIDER))
    (tmp_path / "lakes").mkdir()
    whole = (folder / "lakes" / "lakes.sqlite").read_bytes()
    seen: Counter[str] = Counter()
    for _ in range(300):
        (tmp_path / "lakes" / "lakes.sqlite").write_bytes(damaged(whole if draw.random() < 0.5 else whole[:4200], draw))
        seen[outcome(lambda: load_spider(tmp_path / "spider.json", tmp_path), "lakes.sqlite", "spider.json")] += 1
    assert min(seen["tasks"], seen["InvalidData"] + seen["UsageError"]) > 20, seen


def test_the_outcome_of_a_crash_is_a_failure() -> None:
    with pytest.raises(MulliganError):
        outcome(lambda: (_ for _ in ()).throw(MulliganError("x: other")), "x")
    with pytest.raises(AssertionError):
        outcome(lambda: (_ for _ in ()).throw(UsageError("names nothing")), "x")
