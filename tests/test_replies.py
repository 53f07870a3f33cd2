"""Replies are read strictly: what a model meant once is taken, what it might have meant is refused."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.errors import InvalidData
from mulligan.nouns import noun, to_json
from mulligan.records import Condition
from mulligan.replies import MAX_CHARS, MAX_DEPTH, CodeReply, read_code, read_object, read_reply


@noun
class Lesson:
    """What the tests read."""

    text: str
    weight: float = 1.0


@noun
class Lessons:
    """A list inside an object."""

    lessons: tuple[Lesson, ...]


READ = [
    ('{"a":1}', {"a": 1}),
    ('Sure! Here it is:\n```json\n{"a": [1, 2]}\n```\nI hope it helps.', {"a": [1, 2]}),
    ('```\n["a"]\n```', ["a"]),
    ('{"a": 1,\n "b": [1, 2, ],\n}', {"a": 1, "b": [1, 2]}),
    ('{"a": 1, // the first\n "b": "http://x" // the second\n}', {"a": 1, "b": "http://x"}),
    ('{"a": "two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
    ('{"a": 1} or, again, {"a":1}', {"a": 1}),
    ('{"sql": "SELECT ```x``` FROM [t] WHERE a = \\"}\\""}', {"sql": 'SELECT ```x``` FROM [t] WHERE a = "}"'}),
    ('{"河": "长江", "e": "\\ud83d\\ude00"}', {"河": "长江", "e": "😀"}),
    ("an {aside} and [another], then {}", {}),
    ("[-0.5e2, 0, -1, 1E2, true, false, null]", [-50.0, 0, -1, 100.0, True, False, None]),
    ('<think>Perhaps {"a":2}, or {"a":3}.</think>{"a":1}', {"a": 1}),
]


@pytest.mark.parametrize(("text", "value"), READ)
def test_one_value_is_read(text: str, value: Any) -> None:
    found = read_object(text)
    assert to_json(found.value) == to_json(value)
    assert not found.truncated


CUT = [
    ('{"lessons":[{"text":"first"},{"text":"sec', {"lessons": [{"text": "first"}]}),
    ('{"lessons":[{"text":"first"},', {"lessons": [{"text": "first"}]}),
    ('{"lessons":[{"text":"first"}]', {"lessons": [{"text": "first"}]}),
    ('{"note":"n","lessons":[[1,2],[3,4', {"note": "n", "lessons": [[1, 2]]}),
    ('[{"tags":["x","y"]},{"tags":["x","y', [{"tags": ["x", "y"]}]),
    ("[1, 2, 3", [1, 2]),  # 3 may have been 30
    ("[1, 2, 3 ", [1, 2, 3]),
    ("[true, fal", [True]),
    ('{"a":{"b":["c", "d', {"a": {"b": ["c"]}}),
]


@pytest.mark.parametrize(("text", "value"), CUT)
def test_a_cut_list_keeps_its_complete_items(text: str, value: Any) -> None:
    found = read_object(text)
    assert to_json(found.value) == to_json(value)
    assert found.truncated


REFUSED = [
    ('Sure! {"lesson":"a"} and also {"lesson":"b"}', "ambiguous"),
    ('{"a":1} {"a":1.0}', "ambiguous"),
    ('{"a":1} {"a":true}', "ambiguous"),
    ('{"a":[1]} {"a":[1, 2', "ambiguous"),  # what is complete of the second agrees; what was coming is not known
    ('{"a":1} and then {"a":', "ambiguous"),
    ('{"verdict":"pass","verdict":"fail"}', "'verdict' appears twice"),
    ('{"verdict":"pass","\\u0076erdict":"fail"}', "'verdict' appears twice"),
    ('{"a": NaN}', "'NaN' is no JSON value"),
    ("[Infinity]", "'Infinity' is no JSON value"),
    ("[-Infinity]", "'-' is no number"),
    ('{"a": 1e999}', "too large"),
    ('{"a": ' + "9" * 5000 + "}", "is no number"),
    ('{"a": 01}', "'01' is no number"),
    ('{"a": 1.}', "'1.' is no number"),
    ('{"a": .5}', "expected a value"),
    ('{"a" 1}', "expected ':'"),
    ('{"a": 1 "b": 2}', "expected ',' or '}'"),
    ('{"a": [1 2]}', "expected ',' or ']'"),
    ("[1,,2]", "expected a value"),
    ("{,}", "expected a key"),
    ("{'a': 1}", "expected a key"),
    ("{“a”: 1}", "expected a key"),
    ('{"a": “b”}', "expected a value"),
    ('{"a": "\\x"}', "an escape that JSON does not have"),
    ('{"a": "\\ud800"}', "half a surrogate pair"),
    ('{"a": "\ud800"}', "half a surrogate pair"),
    ('{"lessons": [oops {"text": "inner"}]}', "expected ',' or ']'|'oops' is no JSON value"),  # never an inner part
    ('{"text":"first","why":"bec', "cut short"),
    ('{"text":"first"', "cut short"),
    ('{"lessons":[{"text":"first"}],"note":"n', "cut short"),
    ('{"lessons":[{"te', "cut short"),
    ('{"lessons":[', "cut short"),
    ('["only', "cut short"),
    ("", "no JSON object or list"),
    ('"a string"', "no JSON object or list"),
    ("no JSON here at all", "no JSON object or list"),
    ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "deeper than 64"),
    (" " * MAX_CHARS + "{}", "characters, more than"),
    ('<think>{"a":1}', "no JSON object or list"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_everything_else_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidData, match=reason) as caught:
        read_object(text, what="the reply of m")
    assert str(caught.value).startswith("the reply of m ")
    assert "\n" not in str(caught.value)


def test_the_greatest_depth_is_still_read() -> None:
    assert read_object("[" * MAX_DEPTH + "]" * MAX_DEPTH).value


def test_a_reply_becomes_a_noun() -> None:
    assert read_reply(Lesson, 'So: {"text": "a", "weight": 2}').value == Lesson(text="a", weight=2.0)
    assert read_reply(list[Lesson], '[{"text":"a"},{"text":"b"}]').value == [Lesson(text="a"), Lesson(text="b")]
    cut = read_reply(Lessons, '{"lessons":[{"text":"first"},{"text":"sec')
    assert cut.value == Lessons(lessons=(Lesson(text="first"),))
    assert cut.truncated


@pytest.mark.parametrize("text", ['{"text": "a", "extra": 1}', "{}", '{"text": 1}', '[{"text":"a"}]', '{"text":"a","weight":"much"}'])
def test_a_reply_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(InvalidData, match=r"^answer is no valid Lesson: "):
        read_reply(Lesson, text, what="answer")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = st.lists(VALUES, max_size=4) | st.dictionaries(TEXT, VALUES, max_size=4)
PROSE = st.text(st.characters(exclude_characters="[{", exclude_categories=["Cs"]), max_size=20).filter(lambda t: "<think>" not in t)
STYLES: list[Callable[[Any], str]] = [
    to_json,
    lambda value: json.dumps(value),
    lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    lambda value: f"```json\n{json.dumps(value)}\n```",
]


@given(CONTAINERS, st.sampled_from(STYLES), PROSE, PROSE)
def test_any_value_survives_fences_and_prose(value: Any, style: Callable[[Any], str], before: str, after: str) -> None:
    found = read_object(f"{before}{style(value)}{after}")
    assert to_json(found.value) == to_json(value)
    assert not found.truncated


def is_beginning(part: Any, whole: Any) -> bool:
    """Whether `part` is `whole` with later items of one list, and what comes behind that list, left out."""
    if isinstance(part, list):
        return isinstance(whole, list) and to_json(part) == to_json(whole[: len(part)])
    if not isinstance(part, dict) or not isinstance(whole, dict) or list(part) != list(whole)[: len(part)]:
        return False
    *complete, last = part
    return all(to_json(part[key]) == to_json(whole[key]) for key in complete) and is_beginning(part[last], whole[last])


@given(CONTAINERS, st.sampled_from(STYLES[:3]), st.data())
def test_truncation_never_yields_what_was_not_complete(value: Any, style: Callable[[Any], str], data: st.DataObject) -> None:
    text = style(value)
    at = data.draw(st.integers(0, len(text) - 1))
    try:
        found = read_object(text[:at])
    except InvalidData:
        return
    assert found.truncated
    assert is_beginning(found.value, json.loads(text))  # keys in the text's order


def test_every_truncation_of_a_long_list_keeps_what_it_can() -> None:
    value = {"lessons": [{"text": f"lesson {i}", "tags": ["a", "b"]} for i in range(4)]}
    text = json.dumps(value)
    ends = [i + 1 for i in range(len(text)) if text[i] == "}"][:4]
    for at in range(len(text)):
        complete = sum(end <= at for end in ends)
        if complete:
            assert read_object(text[:at]).value == {"lessons": value["lessons"][:complete]}
        else:
            with pytest.raises(InvalidData):
                read_object(text[:at])


FRAGMENTS = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ",",
    ":",
    "\\",
    "//",
    "\n",
    " ",
    "1",
    "-",
    "e9",
    "true",
    "NaN",
    "```",
    "sql",
    "a",
    "é",
    "\ud800",
    "\0",
]
NOISE = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join) | st.text(max_size=30)


@settings(max_examples=500)
@given(NOISE)
def test_noise_is_read_or_refused_but_never_crashes(text: str) -> None:
    for kind in (Lesson, Lessons, Condition, list[Lesson]):
        with suppress(InvalidData):
            read_reply(kind, text)
    code = read_code(text, ["sql"])
    assert code.code == code.code.rstrip()


HOSTILE = (
    *(
        "[",
        "{",
        '"',
        "[[],",
        '{"a":',
        '["',
        '{"',
        "[//",
        "[//x\n",
        "[1,",
        '["[",',
        "\\",
        '["\\',
        "-",
        "[-1e",
        "[{",
        "[]",
        "{}",
        "[1,{",
        "[9",
    ),
    *("```", "```a", "`", "\n```", "``` ", "```sql\n", "\n  ```", "* ", "\nAction: ", "Observation", " ", "\r", "9"),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_reading_takes_linear_time(piece: str) -> None:
    """Twenty times the text may take a hundred times as long: a quadratic reader would take four hundred, or for ever."""

    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            with suppress(InvalidData):
                read_object(text)
            read_code(text, ["sql"])
            read_code(f"{text}x", ["sql"])
            best = min(best, time.process_time() - started)
        return best

    assert seconds(100_000) < 100 * seconds(5_000) + 0.02


CODE = [
    ("SELECT 1;", CodeReply("SELECT 1;", "")),
    ("```sql\nSELECT 1;\n```", CodeReply("SELECT 1;", "")),
    ("```SQL\r\nSELECT 1\r\n```\r\n", CodeReply("SELECT 1", "")),
    ("Like this:\n```\nSELECT 1\n```\nDone.", CodeReply("SELECT 1", "Like this:\n\nDone.")),
    ("```sql\nSELECT 1\n```\nbetter:\n```sql\nSELECT 2\n```", CodeReply("SELECT 2", "```sql\nSELECT 1\n```\nbetter:")),
    ("```sql\nSELECT 1\n```\n```text\n| 1 |\n```", CodeReply("SELECT 1", "```text\n| 1 |\n```")),
    ("```sql\nSELECT 1\n```\n```\n| 1 |\n```", CodeReply("SELECT 1", "```\n| 1 |\n```")),
    ("```postgresql\nSELECT 1\n```", CodeReply("SELECT 1", "")),
    ("```sql SELECT 1```", CodeReply("SELECT 1", "")),
    ("```SELECT 1``` is it", CodeReply("SELECT 1", "is it")),
    ("```SELECT a\nFROM t\n```", CodeReply("SELECT a\nFROM t", "")),
    ("```sql SELECT a\nFROM t\n```", CodeReply("SELECT a\nFROM t", "")),
    ("```sql\nSELECT 1;```", CodeReply("SELECT 1;", "")),
    ("````sql\nSELECT '```'\n````", CodeReply("SELECT '```'", "")),
    ("Action: ```sql\nSELECT 1\n```", CodeReply("SELECT 1", "Action:")),
    ("```sql\nSELECT 1, (SEL", CodeReply("SELECT 1, (SEL", "", cut=True)),
    ("```sql\nSELECT 1\n```\nor\n```sql\nSELECT 2, (", CodeReply("SELECT 2, (", "```sql\nSELECT 1\n```\nor", cut=True)),
    ("```sql\n```\n```sql\nSELECT 1\n```", CodeReply("SELECT 1", "```sql\n```")),
    ("Thought: the table is t.\nAction: SELECT 1", CodeReply("SELECT 1", "Thought: the table is t.")),
    ("Thought: t.\nSQL: SELECT 1\nObservation: 3 rows\nSQL: SELECT 2", CodeReply("SELECT 1", "Thought: t.")),
    ("**Final Answer:** 42", CodeReply("42", "")),
    ("answer: int = 3", CodeReply("answer: int = 3", "")),
    ("`SELECT 1`", CodeReply("SELECT 1", "")),
    ("`a` = `b`", CodeReply("`a` = `b`", "")),
    ("<think>```sql\nSELECT 0\n```</think>SELECT 1", CodeReply("SELECT 1", "")),
    ("Observation: odd", CodeReply("Observation: odd", "")),
    ("选择：\n```sql\nSELECT '长江'\n```", CodeReply("SELECT '长江'", "选择：")),
    ("", CodeReply("", "")),
    ("```", CodeReply("", "", cut=True)),
]


@pytest.mark.parametrize(("text", "expected"), CODE)
def test_the_code_action_is_found(text: str, expected: CodeReply) -> None:
    assert read_code(text, ["sql", "sqlite"]) == expected


def test_indentation_belongs_to_the_code_unless_it_is_the_fence_s() -> None:
    assert read_code("```python\n    if x:\n        y()\n```", ["python"]).code == "    if x:\n        y()"
    assert read_code("1. so\n   ```python\n   if x:\n       y()\n   ```", ["python"]).code == "if x:\n    y()"


def test_without_languages_any_named_fence_counts() -> None:
    assert read_code("```sql\nSELECT 1\n```\n```\n| 1 |\n```", []).code == "SELECT 1"


LINES = st.text(st.characters(exclude_characters="`\r", exclude_categories=["Cs", "Zl", "Zp"]), min_size=1, max_size=30)


@given(LINES.filter(lambda t: t.strip() == t and "Observation" not in t), st.sampled_from(["sql", "", "SQLite"]))
def test_any_code_in_one_fence_is_found(code: str, language: str) -> None:
    assert read_code(f"I think:\n```{language}\n{code}\n```\nThat is it.", ["sql", "sqlite"]).code == code
