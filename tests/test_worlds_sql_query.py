"""Reading and writing queries: a change is spliced into the text, fences are cleaned off, tokens keep what is one thing together."""

from pathlib import Path

import pytest

from islands import build
from mulligan.worlds.sql_engine import hold
from mulligan.worlds.sql_query import Splicer, clean, parse, tokens
from mulligan.worlds.sql_schema import catalogue

SPLICED = [
    ("select  count( x )\nfrom city c -- why", "SELECT COUNT(DISTINCT x) FROM city AS c", "select  count(DISTINCT x )\nfrom city c -- why"),
    ("select distinct a, b from city", "SELECT a, b FROM city", "select a, b from city"),
    ("select a from city where x in (select y from z)", "SELECT a FROM city WHERE x IN (SELECT y FROM z LIMIT 1)", None),
    ("select a from c where x=1 and y = 2 group by 1", "SELECT a FROM c WHERE y = 2 GROUP BY 1", "select a from c where y = 2 group by 1"),
    ("select a from c where x=1 and y = 2", "SELECT a FROM c WHERE x = 1", "select a from c where x=1"),
    ("select a\nfrom c", "SELECT a FROM c ORDER BY b DESC LIMIT 1", "select a\nfrom c ORDER BY b DESC LIMIT 1"),
    ("select a from c limit 3", "SELECT a FROM c", "select a from c"),
    ("select a from c", "SELECT MAX(a) FROM c", "select MAX(a) from c"),
    ('SELECT "a b" FROM c WHERE x = "it""s"', "SELECT \"a b\" FROM c WHERE x = 'it''s'", "SELECT \"a b\" FROM c WHERE x = 'it''s'"),
]


@pytest.mark.parametrize(("text", "changed", "result"), SPLICED, ids=[case[0] for case in SPLICED])
def test_a_change_leaves_the_rest_as_it_was_written(tmp_path: Path, text: str, changed: str, result: str | None) -> None:
    schema = catalogue(hold(str(build(tmp_path))))
    before, after = parse(text, schema), parse(changed, schema)
    assert before is not None
    assert after is not None
    assert Splicer(text, before.tree)(after.tree) == (result or "select a from city where x in (select y from z LIMIT 1)")


CLEANED = [
    ("SELECT 1;", "SELECT 1"),
    ("  \nSELECT 1 ; ; ", "SELECT 1"),
    ("```sql\nSELECT 1;\n```", "SELECT 1"),
    ("Here it is:\n```\nSELECT 1\n```\nDone.", "SELECT 1"),
    ("```sqlite\nSELECT 1", "SELECT 1"),
    ("", ""),
]


@pytest.mark.parametrize(("action", "sql"), CLEANED)
def test_clean(action: str, sql: str) -> None:
    assert clean(action) == sql


def test_tokens() -> None:
    assert tokens("select a.b, 'it''s' from \"x y\" where n>=1.5") == [
        *("SELECT", "a", ".", "b", ",", "'it''s'", "FROM", '"x y"', "WHERE", "n", ">=", "1.5")
    ]
    assert tokens("select 'unfinished") == ["select", "'", "unfinished"]
    assert tokens("") == []
    assert len(tokens("(" * 100_000)) <= 20_000
