"""Export, import and recovery: what goes out comes back, what is wrong is named, what can be read is saved."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, episode, record, task
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import EmbeddingMismatch, InvalidData, StoreDamaged, StoreError
from mulligan.exchange import export_store, import_store, recover
from mulligan.migrations import TABLES
from mulligan.nouns import from_plain
from mulligan.records import Record, Usage
from mulligan.store import Store
from test_migrations import DAMAGE, PAGE
from test_store import ANYTHING, EMBEDDER, NAMES, add, fill, receipt, refused


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "full.db") as store:
        for scope in ("default", "acme/sql"):
            store.set_status(fill(store, scope), "stale", "because")
        add(store, record("哪条河流最长？ nul \0 lone \ud800"))
        yield store


def exported(store: Store, **options: bool) -> str:
    stream = io.StringIO()
    written = export_store(store, stream, **options)
    assert stream.getvalue().count("\n") == written + 1
    return stream.getvalue()


def imported(text: str) -> Store:
    store = Store(":memory:")
    import_store(store, io.StringIO(text))
    return store


def test_an_export_reads_back_identically(full: Store) -> None:
    text = exported(full)
    text.encode("utf-8")  # is text: lone surrogates are escaped
    assert "哪条河流最长？" in text and '"original":"SELECT 1"' in text.replace('": ', '":').replace(", ", ",")
    with imported(text) as copy:
        assert copy.digest() == full.digest()
        assert copy.counts() == {**full.counts(), "completions": 0}
        assert copy.records(scope=None, status=None) == full.records(scope=None, status=None)
        assert copy.problems() == []
        (vector,) = EMBEDDER.embed(["哪条河流"])
        assert copy.search("哪条河流", vector) == full.search("哪条河流", vector) != []
        assert exported(copy) == text


def test_the_cache_travels_when_asked(full: Store) -> None:
    with imported(exported(full, cache=True)) as copy:
        assert copy.digest(TABLES) == full.digest(TABLES)
        assert copy.cached("default/key") == full.cached("default/key") is not None


def test_importing_twice_adds_nothing_and_keeps_what_is_there(full: Store) -> None:
    text, before = exported(full), full.digest()
    assert set(import_store(full, io.StringIO(text)).values()) == {0}
    assert full.digest() == before
    with Store(":memory:") as other:
        own = add(other, record("own"))
        assert import_store(other, io.StringIO(text))["records"] == 3
        assert other.records(scope=None)[0].record.id == own and len(other.records(scope=None, status=None)) == 4
        key = full.records(scope=None, status="stale")[0].record.id
        other.set_status(key, "retired", "here")
        import_store(other, io.StringIO(text))
        assert other.record(key).status == "retired"


@given(st.data())
def test_any_text_survives_export_and_import(data: st.DataObject) -> None:
    def text() -> str:
        return data.draw(ANYTHING)

    with Store(":memory:") as store:
        given_task = task(id=data.draw(NAMES), prompt=text(), payload={text(): [text()]})
        told = episode(attempt(text(), thought=text()), task=given_task, label=data.draw(NAMES))
        store.add_decisions(store.add_episode(told), 0, [refused(text(), record=text())])
        key = add(store, record(text(), corrected=text(), principle=text()))
        store.set_status(key, "stale", data.draw(NAMES))
        store.add_receipt(receipt(data.draw(NAMES), task=text()))
        store.add_usage(data.draw(NAMES), stage=data.draw(NAMES), usage=Usage(seconds=data.draw(st.floats(0, 1e9))))
        raw = exported(store).encode("utf-8")
        with imported(io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", newline="\n").read()) as copy:
            assert copy.digest() == store.digest()
            assert copy.episodes() == [told]
            assert copy.record(key).record == store.record(key).record


def edited(table: str, change: Callable[[dict[str, Any]], object]) -> Callable[[list[str]], int]:
    """Change the first row of a table; gives its line number."""

    def edit(lines: list[str]) -> int:
        number = next(n for n, line in enumerate(lines) if f'"table": "{table}"' in line)
        row = json.loads(lines[number])
        change(row)
        lines[number] = json.dumps(row)
        return number + 1

    return edit


def broken_check(lines: list[str]) -> int:
    """A check lies in several rows: it is read back with its episode, and that line is named."""
    edited("checks", lambda row: row["body"].pop("replayed"))(lines)
    return edited("episodes", lambda row: row)(lines)


def unreadable(row: dict[str, Any]) -> None:
    row["body"]["condition"] = {"kind": "predicate", "text": "c", "predicate": "open('x')"}
    row["id"] = from_plain(Record, row["body"]).id


def line(number: int, text: str) -> Callable[[list[str]], int]:
    return lambda lines: [lines.__setitem__(number - 1, text), number][1]  # type: ignore[return-value]


BAD: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "no header": (lambda lines: [lines.pop(0), 1][1], "no header"),  # type: ignore[dict-item]
    "another format": (line(1, '{"format": "mem0", "version": 1}'), "no header"),
    "a newer version": (line(1, '{"format": "mulligan-store", "version": 99}'), "has version 99"),
    "no JSON": (line(5, "{oops"), "no row"),
    "a blank line": (line(5, ""), "no row"),
    "a list": (line(5, "[1]"), "no row"),
    "no table": (line(5, "{}"), "no row"),
    "deep nesting": (line(5, '{"a":' * 100_000), "no row"),
    "an unknown table": (line(5, '{"table": "secrets"}'), "columns of a table 'secrets'"),
    "SQL for a table": (line(5, '{"table": "tasks; DROP TABLE tasks", "body": {}}'), "columns of a table"),
    "SQL for a column": (edited("usage", lambda row: row.update({'key") --': row.pop("key")})), "columns of a table"),
    "a missing column": (edited("attempts", lambda row: row.pop("number")), "columns of a table"),
    "a body that is no noun": (edited("tasks", lambda row: row["body"].pop("prompt")), "no valid Task"),
    "an unknown field": (edited("records", lambda row: row["body"].update(extra=1)), "no valid Record"),
    "a body that is no object": (edited("receipts", lambda row: row.update(body=[1])), "no object"),
    "a NaN": (edited("usage", lambda row: row["body"].update(seconds=float("nan"))), "cannot be stored"),
    "a changed record": (edited("records", lambda row: row["body"].update(corrected="DROP TABLE x")), "not that of its content"),
    "a condition that would stop every recall": (edited("records", unreadable), "may not contain"),
    "a changed task": (edited("tasks", lambda row: row["body"].update(prompt="other")), "not that of its content"),
    "a changed receipt": (edited("receipts", lambda row: row["body"].update(shown=[])), "not that of its content"),
    "a changed check": (broken_check, "Decision that cannot be read"),
    "an orphan": (edited("attempts", lambda row: row.update(episode="epi_0")), "FOREIGN KEY"),
    "an unknown status": (edited("records", lambda row: row.update(status="great")), "CHECK"),
    "a list for a column": (edited("records", lambda row: row.update(reason=["x"])), "neither text nor number"),
    "a null": (edited("records", lambda row: row.update(reason=None)), "NOT NULL"),
    "counts that are none": (edited("statistics", lambda row: row.update(helped="many")), "no valid Statistics"),
    "a vector of another length": (edited("vectors", lambda row: row.update(vector="AAAA")), "CHECK"),
    "a vector that is none": (edited("vectors", lambda row: row.update(vector="§")), "no row"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_is_named_and_nothing_is_imported(full: Store, kind: str) -> None:
    lines = exported(full).splitlines()
    change, why = BAD[kind]
    number = change(lines)
    with Store(":memory:") as store:
        kept = add(store, record("kept"))
        before = store.digest()
        with pytest.raises(InvalidData, match=rf"^line {number} of the export: .*{why}.*nothing was imported"):
            import_store(store, io.StringIO("\n".join(lines) + "\n"))
        assert store.digest() == before
        assert [s.record.id for s in store.records()] == [kept]


def test_vectors_of_another_embedder_are_not_imported(full: Store) -> None:
    with Store(":memory:") as store:
        (vector,) = HashingEmbedder(8).embed(["x"])
        store.add_record(record("x"), vector, embedder="hash:8")
        before = store.digest()
        with pytest.raises(EmbeddingMismatch):
            import_store(store, io.StringIO(exported(full)))
        assert store.digest() == before


# Recovery.


def saved_of(tmp_path: Path, data: bytes) -> tuple[dict[str, int], str]:
    """What recovery reports, and the digest of what it built."""
    (tmp_path / "damaged.db").write_bytes(data)
    counts = recover(tmp_path / "damaged.db", tmp_path / "new.db")
    assert (tmp_path / "damaged.db").read_bytes() == data
    with Store(tmp_path / "new.db") as store:
        assert store.counts() == {**dict.fromkeys(TABLES, 0), **{t: n for t, n in counts.items() if t != "lost"}}
        return counts, store.digest()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str, dict[str, int]]:
    """A store of some hundred pages: its bytes, digest and counts."""
    path, origin = tmp_path_factory.mktemp("large") / "s.db", record().provenance
    with Store(path) as store, store.transaction():
        for n in range(150):
            numbers = " ".join(str(i * n) for i in range(n))
            add(store, record(f"situation {n}", original=numbers, provenance=replace(origin, task=f"t{n}")))
            store.add_episode(episode(attempt(f"a{n}"), task=task(id=f"t{n}")))
    with Store(path) as store:
        return path.read_bytes(), store.digest(), {table: n for table, n in store.counts().items() if n}


Large = tuple[bytes, str, dict[str, int]]


def test_a_lost_header_loses_nothing(tmp_path: Path, large: Large) -> None:
    data, digest, counts = large
    assert saved_of(tmp_path, bytes(PAGE) + data[PAGE:]) == ({**counts, "lost": 0}, digest)


def test_a_healthy_store_and_its_log_are_recovered_whole(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        fill(store)  # still in the write-ahead log
        counts = recover(tmp_path / "s.db", tmp_path / "new.db")
        with Store(tmp_path / "new.db") as new:
            assert new.digest() == store.digest() and counts["lost"] == 0


HOLES = [(at, data) for at in (0.1, 0.3, 0.5, 0.7, 0.9) for data in (bytes(2 * PAGE), b"\xff" * 2 * PAGE)]


@pytest.mark.parametrize(("at", "hole"), [*HOLES, (0.5, None), (0.7, None), (0.9, None)])
def test_what_lies_around_a_hole_is_saved(tmp_path: Path, large: Large, at: float, hole: bytes | None) -> None:
    data, _, counts = large
    start = int(at * len(data)) // PAGE * PAGE
    damaged = data[:start] if hole is None else data[:start] + hole + data[start + len(hole) :]
    saved, _ = saved_of(tmp_path, damaged)
    assert sum(saved.get(table, 0) for table in counts) > (at - 0.3 if hole is None else 0.7) * sum(counts.values())
    with Store(tmp_path / "new.db") as store:
        assert [problem for problem in store.problems() if "mulligan reembed" not in problem] == []
        store.reembed(EMBEDDER)
        assert store.problems() == []
        assert len(store.episodes()) == store.counts()["episodes"] and len(store.records()) == store.counts()["records"]


@pytest.mark.parametrize("kind", ["empty", "text", "noise", "all zeros", "header cut", "another program's"])
def test_where_nothing_can_be_read_nothing_is_built(tmp_path: Path, large: Large, kind: str) -> None:
    with pytest.raises(StoreDamaged, match=r"nothing in .* can be read"):
        saved_of(tmp_path, DAMAGE[kind](large[0]))
    assert [p.name for p in tmp_path.iterdir()] == ["damaged.db"]


def test_recovery_overwrites_nothing(tmp_path: Path) -> None:
    Store(tmp_path / "s.db").close()
    with pytest.raises(StoreError, match="something at"):
        recover(tmp_path / "s.db", tmp_path / "s.db")
    with pytest.raises(StoreError, match="no file"):
        recover(tmp_path / "missing.db", tmp_path / "new.db")
