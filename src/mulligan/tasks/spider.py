"""Loads questions in the layout of Spider and BIRD: a JSON list of questions, and one folder of databases.

In: the questions' file, and the folder that holds `ID/ID.sqlite` for each database. Out: tasks and a LoadReport. Spider calls the gold
query `query`, BIRD calls it `SQL` and may add `evidence`, which is shown as a hint. An entry may also carry `split` and `group`, which
is how one's own questions are written; other keys are ignored. Not promised: Spider's rule that values in a query do not count.
"""

import re
from pathlib import Path

from mulligan.errors import UsageError
from mulligan.records import Split, Task
from mulligan.tasks.loading import SPLITS, LoadReport, Node, Question, make_tasks, read_json

DATABASE_ID = r"\w[\w .-]{0,59}"  # a plain name: no path that leads elsewhere, no longer than file systems take


def load_spider(
    questions: str | Path,
    database_root: str | Path,
    *,
    split: Split = "heldout",
    benchmark: str | None = None,
    skip_empty: bool = True,
) -> tuple[list[Task], LoadReport]:
    """Tasks of one file, and how many questions were left out and why.

    A task's group is its database, unless the entry names one. `split` is for entries that name none: held out, since nothing
    should be learnt from what nobody assigned; `splits.assign_splits` deals them out anew. `benchmark` defaults to the file's name
    without its ending; `skip_empty` leaves out questions whose gold query returns nothing. Raises UsageError when a database is missing.
    """
    path = Path(questions)
    listed = (_question(entry, Path(database_root), split) for entry in read_json(path).items())
    return make_tasks(listed, file=path, benchmark=benchmark or path.stem, skip_empty=skip_empty)


def _question(entry: Node, root: Path, split: Split) -> Question:
    name = entry.at("db_id")
    if not re.fullmatch(DATABASE_ID, name.text()):
        raise name.wrong("the plain name of a database")
    database = root / name.text() / f"{name.text()}.sqlite"
    if not database.is_file():
        raise UsageError(f"{name.file}: {name.place}: there is no database {name.text()!r}: put it at {database}")
    text = entry.at("question").text()
    hint = entry.get("evidence")
    if hint and hint.text(blank=True).strip():
        text = f"{text}\nHint: {hint.text().strip()}"
    own_split, own_group = entry.get("split"), entry.get("group")
    return Question(
        text=text,
        gold=(entry.get("query") or entry.get("SQL") or entry.at("query")).text(),
        database=database,
        split=own_split.split(SPLITS) if own_split else split,
        group=own_group.text() if own_group else name.text(),
    )
