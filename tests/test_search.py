"""Search: words of any language, exact cosine, their fusion, and what must never be found."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from builders import record
from mulligan import search
from mulligan.records import Record, Signal
from mulligan.search import MAX_WORDS, Shelf, index_text, query_words, words
from mulligan.store import Store
from test_store import ANYTHING, EMBEDDER, add

NOTHING = np.zeros(EMBEDDER.dim, np.float32)  # a query without a vector: words alone decide


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("search") / "s.db") as opened:
        for n, situation in enumerate(SITUATIONS):
            add(opened, placed(situation, n))
        yield opened


def placed(situation: str, n: int = 0, **changes: object) -> Record:
    origin = replace(record().provenance, task=f"t{n}", group=f"g{n % 3}")
    return replace(record(situation), **{"provenance": origin, "original": "", **changes})  # type: ignore[arg-type]


SITUATIONS = [
    "Which river traverses the most states?",
    "哪条河流经过的州最多？",
    "最长的河叫什么名字",
    "ما هو أطول نهر في الولايات المتحدة؟",
    "Welche Straße führt über den längsten Fluß?",
    "แม่น้ำสายใดยาวที่สุด",
    "संयुक्त राज्य की सबसे लंबी नदी कौन सी है?",
    "미국에서 가장 긴 강은 무엇입니까?",
    "Quel fleuve traverse l'État du Tennessee ?",
    "no such column: river.length_km",
    "ＦＵＬＬ ｗｉｄｔｈ 𠮷野家 text",
    "Привет, как называется самая длинная река?",
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("states traverses", 0),
        ("RIVER, states?", 0),
        ("河流", 1),
        ("经过哪些州？", 1),
        ("名字", 2),
        ("نهر", 3),
        ("الولايات", 3),
        ("STRASSE", 4),
        ("fluss langsten", 4),
        ("ยาวที่สุด", 5),
        ("लंबी", 6),
        ("긴 강이", 7),
        ("etat", 8),
        ("É\u0301tat Tennessee", 8),
        ("length_km", 9),
        ("river.length_km", 9),
        ("full width", 10),
        ("𠮷野", 10),
        ("РЕКА", 11),
    ],
)
def test_words_find_in_any_language(store: Store, query: str, found: int) -> None:
    hits = store.search(query, NOTHING)
    assert hits and store.record(hits[0].record_id).record.situation == SITUATIONS[found]


SYNTAX = [
    '"',
    '""',
    '"river',
    "river*",
    "NEAR(river, 2)",
    "text:river",
    "river OR",
    "^river",
    "-river",
    "{a b}:c",
    "'; DROP TABLE records; --",
]
ODD = [*"()+%_\0\uffff😀", "AND", "NOT", "\ud800", "\u0301", "\u200b", "river" * 5_000, "a " * 50_000, "河" * 50_000]


@pytest.mark.parametrize("query", [*SYNTAX, *ODD])
def test_no_query_is_syntax(store: Store, query: str) -> None:
    rows = store.counts()
    for hit in store.search(query, NOTHING):
        assert "river" in query and hit.words > 0
    assert store.counts() == rows


@given(ANYTHING)
def test_any_query_is_answered(store: Store, query: str) -> None:
    (vector,) = EMBEDDER.embed([query])
    assert len(store.search(query, vector)) <= len(SITUATIONS)


@pytest.mark.parametrize("blank", ["", "   ", "\n\t\u3000\u00a0"])
def test_a_blank_query_finds_nothing(store: Store, blank: str) -> None:
    assert store.search(blank, np.ones(EMBEDDER.dim, np.float32)) == []


@given(ANYTHING)
def test_words_have_no_blank_and_do_not_depend_on_their_neighbours(text: str) -> None:
    found = words(text)
    assert all(word and not word.isspace() for word in found)
    assert words(f"{text} . {text}") == found * 2
    assert len(query_words(text)) == len(set(query_words(text))) <= MAX_WORDS


def test_a_record_is_found_by_what_it_is_about() -> None:
    given_record = placed("situation", original="SELECT length", principle="Rule", signals=(Signal(kind="error", what="no column lngth"),))
    assert index_text(given_record).split() == ["situation", "select", "length", "rule", "no", "column", "lngth"]


def test_places_groups_and_tasks_are_kept_apart(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        keys = {
            (scope, domain, n): add(store, placed("same river", n, scope=scope, domain=domain))
            for scope in ("default", "a", "a/b")
            for domain in ("sql", "code")
            for n in range(4)
        }
        (vector,) = EMBEDDER.embed(["same river"])

        def found(**options: object) -> set[tuple[str, str, int]]:
            hits = {hit.record_id for hit in store.search("same river", vector, **options)}  # type: ignore[arg-type]
            return {place for place, key in keys.items() if key in hits}

        assert found() == {("default", d, n) for d in ("sql", "code") for n in range(4)}
        assert found(scope="a", domain="sql") == {("a", "sql", n) for n in range(4)}
        assert found(scope="a", domain="sql", exclude_groups={"g0"}) == {("a", "sql", n) for n in (1, 2)}
        assert found(scope="a", domain="sql", exclude_tasks={"t1", "t9"}) == {("a", "sql", n) for n in (0, 2, 3)}
        assert found(scope="a", domain="sql", exclude_groups={"g0", "g1", "g2"}) == set()
        assert found(scope="a", domain="maths") == found(scope="") == set()
        assert len(found(limit=3)) == 3


def test_words_and_vectors_are_fused(tmp_path: Path) -> None:
    texts = ["alpha beta", "gamma delta", "alpha gamma", "epsilon zeta"]
    with Store(tmp_path / "s.db") as store:
        axes = np.eye(4, dtype=np.float32)
        keys = [store.add_record(placed(text, n), axes[n], embedder="axes") for n, text in enumerate(texts)]
        query = np.array([0.1, 0.9, 0.2, 0.0], np.float32)
        hits = store.search("alpha", query)
    by_words, by_vector = [0, 2], [1, 2, 0, 3]
    expected = {k: sum(1 / (60 + ranking.index(k) + 1) for ranking in (by_words, by_vector) if k in ranking) for k in range(4)}
    assert {hit.record_id: pytest.approx(hit.rank) for hit in hits} == {keys[k]: rank for k, rank in expected.items()}
    assert [hit.rank for hit in hits] == sorted((hit.rank for hit in hits), reverse=True)
    assert [hit.similarity for hit in hits] == [pytest.approx(query[keys.index(hit.record_id)]) for hit in hits]
    assert [hit.words > 0 for hit in hits] == [keys.index(hit.record_id) in by_words for hit in hits]


def test_rare_words_weigh_more_and_common_ones_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "COMMON", 5)
    monkeypatch.setattr("mulligan.store.COMMON", 5)
    with Store(tmp_path / "s.db") as store:
        for n in range(8):
            add(store, placed(f"common {'rare' if n == 3 else 'usual' if n < 5 else ''} {n}", n))
        hits = store.search("common usual rare", NOTHING)
        assert [store.record(hit.record_id).record.provenance.task for hit in hits] == ["t3", "t0", "t1", "t2", "t4"]
        assert store.search("common", NOTHING) == []


vectors = st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=30)


@given(vectors, st.lists(st.integers(-3, 3), min_size=3, max_size=3), st.integers(1, 12), st.data())
def test_the_shelf_agrees_with_a_plain_search(rows: list[list[int]], query: list[int], limit: int, data: st.DataObject) -> None:
    shelf, start = Shelf(3), 0
    while start < len(rows):  # in pieces, as records arrive
        end = start + data.draw(st.integers(1, len(rows)))
        shelf.append([(2 * n + 1, f"r{n}", f"g{n % 2}", f"t{n}", packed(row)) for n, row in enumerate(rows) if start <= n < end])
        start = end
    carriers = data.draw(st.sets(st.integers(0, 2 * len(rows) + 2)))
    hits = shelf.find(["w"], np.array(query, np.float32), lambda _: sorted(carriers), limit, [("group", "g1")])
    open_rows = [n for n in range(len(rows)) if n % 2 == 0]
    cosine = {n: sum(a * b for a, b in zip(rows[n], query, strict=True)) for n in open_rows}
    by_vector = sorted(open_rows, key=lambda n: (-cosine[n], n)) if any(query) else []
    by_words = [n for n in open_rows if 2 * n + 1 in carriers]
    assert {h.record_id for h in hits} <= {f"r{n}" for n in open_rows}
    assert len(hits) == min(limit, len({*by_vector[:limit], *by_words[:limit]}))
    assert all(h.similarity == cosine[int(h.record_id[1:])] for h in hits)
    if limit >= len(rows):
        expected = {n: sum(1 / (61 + r.index(n)) for r in (by_vector, by_words) if n in r) for n in {*by_vector, *by_words}}
        assert [h.record_id for h in hits] == [f"r{n}" for n in sorted(expected, key=lambda n: (-expected[n], n))]


def packed(row: list[int]) -> bytes:
    values: NDArray[np.float32] = np.array(row, "<f4")
    return values.tobytes()
