"""Loads questions in the format of the text2sql-data collection (GeoQuery, ATIS, Restaurants, Scholar and others).

In: its JSON file of query templates with sentences, and the SQLite database that belongs to it. Out: tasks and a LoadReport. An
entry's first query is the canonical one; the values of a sentence's variables are put into sentence and query as they stand in the
file. Not promised: to judge whether the alternatives among the queries are better.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from mulligan.nouns import content_id
from mulligan.records import Split, Task
from mulligan.tasks.loading import LoadReport, Node, Question, make_tasks, normalised, read_json

EXCLUDED = "exclude"  # what the collection calls the split of entries that nobody should use
FOLDS: Mapping[str, Split] = {str(fold): "source" if fold < 5 else "train" if fold < 7 else "heldout" for fold in range(10)}
NAMES: Mapping[str, Split] = {"train": "source", "dev": "train", "test": "heldout", EXCLUDED: "heldout", **FOLDS}


def load_text2sql(
    questions: str | Path,
    database: str | Path,
    *,
    split_by: Literal["question", "query"] = "question",
    skip_empty: bool = True,
) -> tuple[list[Task], LoadReport]:
    """Tasks of one data set, and how many questions were left out and why.

    `split_by="question"` takes the file's question split, where the same query may be asked for in all splits with other words or
    values; a task's group is its question. `split_by="query"` takes the query split, where held-out queries have shapes never seen
    before; a task's group is its query template. The collection's train, dev and test become source, train and heldout; of
    the ten folds that its small sets have instead, 0 to 4, 5 to 6, and 7 to 9. `skip_empty` leaves out questions whose gold
    query returns nothing.
    """
    path = Path(questions)
    listed = (question for entry in read_json(path).items() for question in _questions(entry, Path(database), split_by))
    return make_tasks(listed, file=path, benchmark=path.stem, skip_empty=skip_empty)


def _questions(entry: Node, database: Path, split_by: str) -> Iterator[Question]:
    queries = [query.text() for query in entry.at("sql").items()]
    if not queries:
        raise entry.at("sql").wrong("a list of at least one query")
    examples = {v.at("name").text(): v.at("example").text(blank=True) for v in entry.at("variables").items()}
    for sentence in entry.at("sentences").items():
        given = {name: value.text(blank=True) for name, value in sentence.at("variables").pairs().items()}
        values = examples | {name: value for name, value in given.items() if value}  # a variable of the query alone has only its example
        text = _fill(sentence.at("text").text(), values)
        mark = sentence.at("question-split") if split_by == "question" else entry.at("query-split")
        yield Question(
            text=text,
            gold=_fill_query(queries[0], values),
            database=database,
            split=mark.split(NAMES),
            group=content_id("question", normalised(text)) if split_by == "question" else content_id("query", queries[0]),
            excluded=mark.value == EXCLUDED,
        )


def _fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with each variable's name replaced by its value, all at once: no value is searched for names again."""
    return re.sub(r"\w+", lambda found: values.get(found[0], found[0]), text)


def _fill_query(query: str, values: Mapping[str, str]) -> str:
    """A query with its variables replaced; inside quotes, the quote in a value is doubled."""
    parts = re.findall(r"\"[^\"]*\"|'[^']*'|[^\"']+|[\"']", query)
    return "".join(
        _fill(part, {name: value.replace(part[0], 2 * part[0]) for name, value in values.items()} if part[0] in "\"'" else values)
        for part in parts
    )
