"""The store's file: its schema and old versions, and every kind of damage."""

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from builders import attempt, episode, record
from mulligan import database, migrations
from mulligan.errors import StoreDamaged, StoreError, StoreFrozen
from mulligan.store import MEMORY, Store
from test_store import add, fill


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("healthy") / "s.db"
    with Store(path) as store:
        for scope in "abcdefgh":
            fill(store, scope)
    return path.read_bytes()


def foreign() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE tasks (id)")
        return connection.serialize()


def without_a_table(data: bytes) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])  # not write-ahead: that needs a file
        connection.execute("DROP TABLE history")
        return connection.serialize()


PAGE = 4096
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "text": lambda data: b"not a database\n" * 999,
    "noise": lambda data: os.urandom(len(data)),
    "header cut": lambda data: data[:50],
    "cut in the first page": lambda data: data[:2000],
    "cut in the middle": lambda data: data[: len(data) // 2],
    "last page lost": lambda data: data[:-PAGE],
    "header of zeros": lambda data: bytes(PAGE) + data[PAGE:],
    "all zeros": lambda data: bytes(len(data)),
    "pages of zeros": lambda data: data[: 20 * PAGE] + bytes(4 * PAGE) + data[24 * PAGE :],
    "pages of noise": lambda data: data[: 20 * PAGE] + os.urandom(4 * PAGE) + data[24 * PAGE :],
    "another program's": lambda data: foreign(),
    "a table lost": lambda data: without_a_table(data),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_stops_with_a_recovery_command_and_is_left_alone(tmp_path: Path, healthy: bytes, kind: str, frozen: bool) -> None:
    path = tmp_path / "s.db"
    damaged = DAMAGE[kind](healthy)
    path.write_bytes(damaged)
    with pytest.raises(StoreDamaged, match=r"doctor --recover .*s\.db.*mulligan import") as caught:
        Store(path, frozen=frozen)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == damaged


def test_damage_in_a_large_file_shows_when_it_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        for n in range(200):
            add(store, record(f"situation {n}", original="".join(chr(97 + (n * i * i) % 26) for i in range(900))))
    data = path.read_bytes()
    place = data.index(b'"situation":"situation 150"') // PAGE * PAGE
    path.write_bytes(data[:place] + bytes(PAGE) + data[place + PAGE :])
    monkeypatch.setattr(database, "CHECKED", 0)
    with Store(path) as store:
        with pytest.raises(StoreDamaged, match="doctor --recover"):
            store.records()
        assert any("malformed" in problem or "Page" in problem for problem in store.problems())


def test_a_store_is_created_whole_and_once(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        assert sum(store.counts().values()) == 0
        with Store(tmp_path / "s.db") as other:
            key = add(other, record())
        assert store.record(key)
    assert [p.name for p in tmp_path.iterdir()] == ["s.db"]


def test_who_creates_a_store_second_takes_the_first_ones(tmp_path: Path) -> None:
    start = threading.Barrier(6)

    def create(n: int) -> None:
        start.wait()
        with Store(tmp_path / "s.db") as store:
            add(store, record(f"river {n}"))

    threads = [threading.Thread(target=create, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store(tmp_path / "s.db") as store:
        assert store.counts()["records"] == 6
        assert [store._rows(f"PRAGMA {name}") for name in ("journal_mode", "synchronous")] == [[("wal",)], [(2,)]]


@pytest.mark.parametrize(
    ("path", "frozen", "message"),
    [
        ("missing.db", True, "no store at"),
        ("missing/s.db", False, "no folder"),
        (".", False, "unable to open"),
    ],
)
def test_what_cannot_be_opened_is_said(tmp_path: Path, path: str, frozen: bool, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Store(tmp_path / path, frozen=frozen)
    assert list(tmp_path.iterdir()) == []


def version_of(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")


def test_a_newer_schema_asks_for_a_newer_mulligan(tmp_path: Path) -> None:
    Store(tmp_path / "s.db").close()
    version_of(tmp_path / "s.db", 99)
    with pytest.raises(StoreError, match="update Mulligan"):
        Store(tmp_path / "s.db")


def test_a_store_of_version_1_opens(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(migrations.FIRST)
        connection.execute(f"PRAGMA application_id = {migrations.APPLICATION}")
        connection.execute("PRAGMA user_version = 1")
    with Store(path) as store:
        key = fill(store)
        assert store.record(key).statistics.helped == 1
        assert len(store.unaided("default", "sql").solved) == 0
        assert store.problems() == []


def test_a_change_is_applied_once_in_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    with Store(path) as store:
        fill(store)
        before = store.digest()
    second = "CREATE TABLE extra (a);\nALTER TABLE tasks ADD COLUMN domain TEXT AS (json_extract(body, '$.domain'));\n"
    known = migrations.MIGRATIONS
    for broken in (f"{second}SELECT nonsense;\n", second):
        monkeypatch.setattr(migrations, "MIGRATIONS", (*known, broken))
        with pytest.raises(StoreError, match=f"older schema {len(known)}"):
            Store(path, frozen=True)
        if broken != second:
            with pytest.raises(StoreError, match="nonsense"):
                Store(path)
    for _ in range(2):
        with Store(path) as store:
            assert store._rows("SELECT domain FROM tasks") == [("sql",)]
            assert store._rows("PRAGMA user_version") == [(len(known) + 1,)]
            assert store.digest() == before


def test_a_forked_child_opens_the_file_anew(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        ours = add(store, record("ours"))
        store._pid = -1  # as it is seen from a child
        theirs = add(store, record("theirs"))
        assert {s.record.id for s in store.records()} == {ours, theirs}
        assert store._inherited is not store._connection


def test_a_file_without_write_permission_is_a_frozen_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path / "s.db").close()
    attach = database.attach
    monkeypatch.setattr(database, "attach", lambda file, mode: attach(file, "ro"))  # root may write to any file
    with Store(tmp_path / "s.db") as store, pytest.raises(StoreFrozen, match="cannot be written"):
        store.add_episode(episode(attempt()))


def test_a_frozen_store_opens_in_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "s.db") as store:
        key = fill(store)
    monkeypatch.setattr(database.os, "access", lambda *_: False)
    modes: list[str] = []
    attach = database.attach
    monkeypatch.setattr(database, "attach", lambda file, mode: attach(file, modes.append(mode) or mode))
    with Store(tmp_path / "s.db", frozen=True) as store:
        assert store.record(key)
        assert [p.name for p in tmp_path.iterdir()] == ["s.db"]
    assert modes == ["ro&immutable=1"]


def test_a_writer_that_never_ends_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with Store(tmp_path / "s.db") as one, Store(tmp_path / "s.db") as two, one.transaction():
        add(one, record())
        with pytest.raises(StoreError, match="stayed locked"):
            add(two, record())
        assert two.counts()["records"] == 0  # reading goes on


def test_docs_show_the_schema_that_is(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "store.md").read_text("utf-8")
    assert f"```sql\n{migrations.schema()}\n```" in page, "print it again: python -c 'from mulligan.migrations import *; print(schema())'"
    with Store(tmp_path / "s.db") as store:
        made = {name for (name,) in store._rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {n for n in made if not n.startswith(("words", "sqlite_", "meta"))} == set(migrations.TABLES) >= set(MEMORY)
