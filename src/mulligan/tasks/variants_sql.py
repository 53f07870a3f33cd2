"""Drafts of changed SQL tasks: look-alikes, paraphrases, other names, other content, and changes that do not matter.

In: a Lesson, and other tasks about the same data, whose wordings may serve. Out: drafts, the rules in an order drawn from the seed. The
changes of questions and queries are in `worlds/sql_variants.py` and `sql_lookalikes.py`, the copies of databases in `sql_environments.py`.
English, apart from what other tasks' wordings give.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, zip_longest
from pathlib import Path

from mulligan.records import Task
from mulligan.tasks.drafts import Draft, Kind, Lesson, Reason, changed_task, drawn
from mulligan.tasks.loading import SAMPLES, normalised
from mulligan.worlds import sql_environments as environments
from mulligan.worlds.sql_engine import Limits, Result, hold, run
from mulligan.worlds.sql_evidence import is_blank
from mulligan.worlds.sql_lookalikes import RULES
from mulligan.worlds.sql_schema import catalogue, describe_schema
from mulligan.worlds.sql_values import values
from mulligan.worlds.sql_variants import Asked, Change, Reading, mined, read, reworded

EACH = 6  # drafts of one rule
PLACEBOS = 3  # of each sort
ASKERS = ("Anneke", "Bartholo", "Ciaran", "Dorothea", "Emeric", "Fenella", "Gudrun", "Hjalmar", "Isolde", "Jorunn")
WORDINGS = (
    (r"what (?:is|are) the number of\b", "how many"),
    (r"how many (\w+) (?:are there|are) in\b", r"what is the number of \1 in"),
    (r"how many people (?:live|stay|reside) in\b", "what number of people have their home in"),
    (r"(?:what|which) (?:is|are)\b", "tell me"),
    (r"(?:give me|tell me|show me|name|list|list out)\b", "what are"),
    (r"(?:what|which) (\w+)(?: that)?\b", r"name every \1 that"),
    (r"where (?:is|are)\b", "tell me where to find"),
    (r"how (big|large|long|high|tall|old) (?:is|are)\b", r"tell me how \1 one would say is"),
    (r"how many\b", "can you count how many"),
)


def drafts(kind: Kind, lesson: Lesson, folder: Path, others: Sequence[Task], seed: int) -> Iterator[Draft]:
    """The drafts of a kind for a lesson; what is built for them goes below `folder`."""
    held = hold(str(lesson.task.payload["database"]))
    asked = Asked(question=lesson.task.prompt, gold=str(lesson.task.payload["gold"]), correction=lesson.correction)
    reading = read(asked, held)
    if reading is None:
        return
    alike = [t for t in others if t.id != lesson.task.id and t.payload.get("database") == lesson.task.payload["database"]]
    match kind:
        case "lookalike":
            yield from _lookalikes(lesson, reading, alike, seed)
        case "paraphrase":
            yield from _paraphrases(lesson, reading, alike, seed)
        case "schema":
            yield from _renamed(lesson, reading, folder)
        case "environment":
            yield from _refilled(lesson, reading, folder)
        case "placebo":
            yield from _placebos(lesson, reading, folder, seed)


# ---- questions ----


def _lookalikes(lesson: Lesson, reading: Reading, others: Sequence[Task], seed: int) -> Iterator[Draft]:
    asked = {normalised(task.prompt) for task in others if task.split == "source"}
    made = [list(rule(reading))[:EACH] for rule in RULES]
    found = [change for other in others if (change := _mined(reading, other))]
    found.sort(
        key=lambda change: (-_likeness(lesson.task.prompt, change.asked.question), drawn(seed, lesson.record.id, change.asked.question))
    )
    made.append(list({change.asked.question: change for change in found}.values())[: 2 * EACH])
    made.sort(key=lambda changes: drawn(seed, lesson.record.id, changes[0].rule) if changes else 0)
    for change in (change for changes in made for change in changes):
        fault: Reason | None = "repeated" if normalised(change.asked.question) in asked else None
        yield _draft("lookalike", lesson, reading, change, fault)


def _likeness(one: str, other: str) -> float:
    """How much of two wordings is the same, in tenths."""
    return round(difflib.SequenceMatcher(None, one.split(), other.split(), autojunk=False).ratio(), 1)


@lru_cache(maxsize=4096)
def _reading(question: str, gold: str, held: Path) -> Reading | None:
    return read(Asked(question=question, gold=gold, correction=""), held)


def _mined(reading: Reading, other: Task) -> Change | None:
    theirs = _reading(other.prompt, str(other.payload["gold"]), reading.held)
    return mined(reading, theirs) if theirs else None


def _draft(kind: Kind, lesson: Lesson, reading: Reading, change: Change, fault: Reason | None) -> Draft:
    gold = change.asked.gold
    found = run(reading.held, gold.strip("; \t\r\n"), Limits())
    return Draft(
        rule=change.rule,
        change=change.change,
        task=changed_task(lesson.task, kind, prompt=change.asked.question, gold=gold),
        gold=gold,
        carried=change.asked.correction,
        fault=fault or ("gold_fails" if not isinstance(found, Result) else "gold_empty" if is_blank(found.rows) else None),
    )


def _paraphrases(lesson: Lesson, reading: Reading, others: Sequence[Task], seed: int) -> Iterator[Draft]:
    """Wordings of other tasks that mean the same query, then those that rules make."""
    own = normalised(lesson.task.prompt)
    taken = {own, *(normalised(task.prompt) for task in others if task.split == "source")}
    theirs = [t for other in others if (t := _reading(other.prompt, str(other.payload["gold"]), reading.held))]
    found = {asked.question: asked for other in theirs if (asked := reworded(reading, other))}
    for question in sorted(found, key=lambda text: drawn(seed, lesson.record.id, text)):
        if normalised(question) != own:
            change = Change(rule="another wording", change=question, asked=found[question])
            yield _draft("paraphrase", lesson, reading, change, "repeated" if normalised(question) in taken else None)
    for pattern, new in WORDINGS:
        question = re.sub(rf"^{pattern}", new, lesson.task.prompt, count=1, flags=re.IGNORECASE)
        if question != lesson.task.prompt:
            change = Change(rule="rule of wording", change=question, asked=replace(reading.asked, question=question))
            yield _draft("paraphrase", lesson, reading, change, None)


# ---- databases ----


def _renamed(lesson: Lesson, reading: Reading, folder: Path) -> Iterator[Draft]:
    for turn in range(environments.NAMINGS):
        names = environments.renaming(reading.catalogue, turn)
        path = environments.renamed(reading.held, names, folder)
        if path is not None:
            gold, carried = (environments.carried(sql, names, reading.held) for sql in (reading.asked.gold, lesson.correction))
            change = f"{len(names.tables)} tables and {len(names.columns)} columns have other names"
            yield _at("schema", "renamed", change, lesson, path, reading.asked.question, gold, carried)


def _refilled(lesson: Lesson, reading: Reading, folder: Path) -> Iterator[Draft]:
    for made in filter(None, (environments.refilled(reading.held, folder, turn) for turn in range(environments.WORLDS))):
        path, names = made
        question = environments.about_others(reading.asked.question, names, reading.held, reading.named)
        gold, carried = (environments.with_others(sql, names, reading.held) for sql in (reading.asked.gold, lesson.correction))
        change = f"the same tables hold other rows: {reading.asked.question} → {question}"
        yield _at("environment", "refilled", change, lesson, path, question, gold, carried)


def _placebos(lesson: Lesson, reading: Reading, folder: Path, seed: int) -> Iterator[Draft]:
    """A name in the question, or a column that neither query uses and the condition does not name; half of the time either first."""
    turn = drawn(seed, lesson.record.id, "placebo")
    named = [name for name in ASKERS if not values(reading.held).holders(name)]
    about = [f"{name} asks: {lesson.task.prompt}" for name in (named + named)[turn % len(named or ASKERS) :][:PLACEBOS]]
    prose = [
        _draft("placebo", lesson, reading, Change(rule="prose", change=text, asked=replace(reading.asked, question=text)), None)
        for text in about
    ]
    columns = [draft for step in range(PLACEBOS) for draft in _touched(lesson, reading, folder, turn + step)]
    both = zip_longest(prose, columns) if turn % 2 else zip_longest(columns, prose)
    yield from filter(None, chain.from_iterable(both))


def _touched(lesson: Lesson, reading: Reading, folder: Path, turn: int) -> Iterator[Draft]:
    used = environments.used_columns((reading.asked.gold, lesson.correction, lesson.record.original), reading.held)
    told = lesson.record.condition.predicate.casefold()
    if used is not None:
        used |= {column.full.casefold() for column in catalogue(reading.held).columns() if column.full.casefold() in told}
        made = environments.touched(reading.held, folder, used, turn)
        if made is not None:
            path, old, new = made
            asked = reading.asked
            yield _at("placebo", "unused column", f"{old} → {new}", lesson, path, asked.question, asked.gold, lesson.correction)


def _at(kind: Kind, rule: str, change: str, lesson: Lesson, path: Path, question: str, gold: str, carried: str) -> Draft:
    """A draft about another database. What it wants must be of the same shape as what the source wants."""
    found = run(hold(str(path)), gold.strip("; \t\r\n"), Limits())
    return Draft(
        rule=rule,
        change=change,
        task=changed_task(lesson.task, kind, prompt=question, context=_context(path), gold=gold, database=str(path)),
        gold=gold,
        carried=carried,
        fault="gold_fails" if not isinstance(found, Result) else "gold_empty" if is_blank(found.rows) else None,
    )


@lru_cache(maxsize=256)
def _context(path: Path) -> str:
    return describe_schema(hold(str(path)), samples=SAMPLES)
