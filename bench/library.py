"""What is measured on: an invented lending library as a real database, questions about it, and lessons as the write path leaves them.

Questions are put together from parts, so that a hundred thousand of them differ as people's questions do: in what they ask for, in
their conditions and in their wording, not only in a number at the end. Everything follows from a seed; nothing is read from disk.
"""

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

from mulligan.edits import edit_text
from mulligan.protocols import Embedder, World
from mulligan.records import Attempt, Check, Condition, Decision, Gain, Proposal, Provenance, Record, Signal, Split, Task, Usage, Verdict
from mulligan.search import NEWEST, record_text
from mulligan.store import Store
from mulligan.write.distillation import traits

NAMES = [
    a + b for a in ("Al", "Be", "Cor", "Dun", "El", "Fen", "Gar", "Hol", "Is", "Jar") for b in ("den", "wick", "mar", "ton", "by", "ra")
]
TEXTS = {  # table → column → the values it holds
    "book": {
        "title": [
            f"The {a} {b}" for a in ("Silent", "Iron", "Last", "Hollow", "Amber", "Seventh") for b in ("Orchard", "Gate", "Tide", "Choir")
        ],
        "genre": ["crime", "poetry", "travel", "biography", "science", "cookery", "horror", "history"],
        "language": ["Welsh", "Danish", "Polish", "Basque", "Tamil", "Finnish"],
    },
    "member": {
        "full_name": [f"{name}, {first}" for name in NAMES[:30] for first in ("Ann", "Olu", "Mei", "Tom")],
        "town": NAMES[30:],
        "tier": ["gold", "silver", "basic"],
    },
    "branch": {"name": [f"{name} Library" for name in NAMES[10:26]], "district": ["Harbour", "Hillside", "Old Town", "Riverbank"]},
    "loan": {"status": ["returned", "overdue", "lost", "renewed"], "channel": ["desk", "kiosk", "post"]},
}
NUMBERS = {
    "book": {"pages": (40, 900), "printed_in": (1890, 2024), "copies": (1, 30)},
    "member": {"born_in": (1930, 2012), "fines_cents": (0, 9000), "visits": (0, 400)},
    "branch": {"seats": (5, 200), "opened_in": (1900, 2020)},
    "loan": {"days": (1, 90), "fee_cents": (0, 2500)},
}
WAYS = ("whose {column} is {value}", "with the {column} {value}", "where the {column} is {value}", "that have {value} as {column}")
SIZES = (("with more than {n} {column}", ">"), ("with fewer than {n} {column}", "<"), ("with at least {n} {column}", ">="))
ENDS = ("", ", sorted by {column}", ", for each {column}", ", without repeating any {column}", ", newest first by {column}")


@dataclass(frozen=True)
class Question:
    """A question, the query that answers it, and the query that a hurried agent writes for it."""

    text: str
    right: str
    wrong: str


def build(path: Path) -> Path:
    """The library's database: four tables, 1,500 rows."""
    chance = random.Random(0)
    with closing(sqlite3.connect(path)) as connection:
        for table, texts in TEXTS.items():
            numbers = NUMBERS[table]
            columns = [f"{table}_id INTEGER PRIMARY KEY", *(f"{c} TEXT" for c in texts), *(f"{c} INTEGER" for c in numbers)]
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            for n in range(20 if table == "branch" else 500):
                row = [n, *(chance.choice(values) for values in texts.values()), *(chance.randint(*ends) for ends in numbers.values())]
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        connection.commit()
    return path


def questions(seed: int) -> Iterator[Question]:
    """Questions without end, no two alike."""
    chance, seen = random.Random(seed), set[str]()
    while True:
        made = _question(chance)
        if made.text not in seen:
            seen.add(made.text)
            yield made


def _question(chance: random.Random) -> Question:
    table = chance.choice(list(TEXTS))
    text, other = chance.choice(list(TEXTS[table])), chance.choice(list(TEXTS[table]))
    number, second = chance.choice(list(NUMBERS[table])), chance.choice(list(NUMBERS[table]))
    asked, selected = chance.choice(
        [
            (f"How many {table}s are there", "COUNT(*)"),
            (f"Which {_said(other)} do the {table}s have", other),
            (f"What is the average {_said(second)} of {table}s", f"AVG({second})"),
            (f"What is the largest {_said(second)} among {table}s", f"MAX({second})"),
            (f"List the {_said(other)} and the {_said(second)} of all {table}s", f"{other}, {second}"),
            (f"Show me the {_said(other)} of {table}s", other),
        ]
    )
    value, least = chance.choice(TEXTS[table][text]), chance.randint(*NUMBERS[table][number])
    way, (size, sign), end = chance.choice(WAYS), chance.choice(SIZES), chance.choice(ENDS)
    told = f"{asked} {way.format(column=_said(text), value=value)}"
    test = f"{text} = '{value}'"
    if chance.random() < 0.6:
        told, test = f"{told} and {size.format(n=least, column=_said(number))}", f"{test} AND {number} {sign} {least}"
    order = f" ORDER BY {other}" if "sorted" in end or "first" in end else f" GROUP BY {other}" if "each" in end else ""
    right = f"SELECT {'DISTINCT ' if 'repeating' in end else ''}{selected} FROM {table} WHERE {test}{order}"
    wrong = (
        right.replace(f"'{value}'", f"'{value.upper()}'") if chance.random() < 0.6 else right.replace(selected, f"{selected}, {text}", 1)
    )
    return Question(f"{told}{end.format(column=_said(other))}?", right, wrong)


def _said(column: str) -> str:
    return column.replace("_", " ")


def task(question: Question, key: str, database: Path, group: str = "", scope: str = "default") -> Task:
    """The task of a question. Its key names it; tasks of an empty group share none with any record."""
    payload = {"database": str(database), "gold": question.right}
    split: Split = "source" if group else "heldout"
    return Task(
        id=key, domain="sql", benchmark="bench", group=group or key, split=split, prompt=question.text, payload=payload, scope=scope
    )


def failed(question: Question) -> Attempt:
    """The hurried query, with evidence against it."""
    evidence = (
        Signal(kind="unknown_value", what=f"no row holds it: {question.wrong}"),
        Signal(kind="row_count", what="7 rows wanted, 0 returned"),
    )
    verdict = Verdict(completed=True, utility=Fraction(0), solved=False, feedback="0 rows", signals=evidence, evaluator="sql/1")
    return Attempt(index=0, observation="", action=question.wrong, verdict=verdict, usage=Usage(prompt_tokens=700, completion_tokens=30))


def lesson(question: Question, asked: Task, world: World) -> Record:
    """The correction of the hurried query, conditioned on what it is about as the write path would."""
    known = world.facts(asked)
    about = traits(known)
    predicate = " and ".join(f'"{item}" in {name}' for name, _, item in (trait.partition(":") for trait in about[:2]))
    origin = Provenance(
        task=asked.id,
        group=asked.group,
        benchmark=asked.benchmark,
        split="source",
        episode="source",
        attempt=0,
        agent="react",
        model="some-model",
        proposer="op:literal",
        evaluator="sql/1",
    )
    return Record(
        kind="correction",
        domain=asked.domain,
        scope=asked.scope,
        situation=asked.prompt,
        gist=str(known["gist"]),
        original=question.wrong,
        corrected=question.right,
        diff=edit_text(question.wrong, question.right, world.tokens, context=1),
        signals=failed(question).verdict.signals,
        traits=about,
        condition=Condition(kind="predicate", text=predicate, predicate=predicate) if predicate else Condition(),
        gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True),
        provenance=origin,
    )


def decision(question: Question, record: str) -> Decision:
    """The admitted decision behind a lesson, with both verdicts."""
    proposal = Proposal(
        action=question.right, edit=f"{question.wrong} → {question.right}", why="as it is spelled there", proposer="op:literal"
    )
    right = Verdict(completed=True, utility=Fraction(1), solved=True, feedback="", evaluator="sql/1")
    original = failed(question).verdict
    check = Check(proposal=proposal, original=original, changed=right, replayed=True, state_before="s", state_after="s")
    return Decision(proposal=proposal, reason="admitted", rule="bench", check=check, record=record)


def fill(store: Store, world: World, embedder: Embedder, made: Sequence[tuple[Question, Task]], retired: bool = False) -> None:
    """Store the lesson of each question, `retired` ones as eviction leaves them; and of the newest how they went without one, two thirds
    badly, so that a recall goes on.
    """
    known = len(made) - NEWEST
    for start in range(0, len(made), 2_000):
        lessons = [lesson(question, asked, world) for question, asked in made[start : start + 2_000]]
        vectors = embedder.embed([record_text(one) for one in lessons])
        with store.transaction():
            for place, (one, vector) in enumerate(zip(lessons, vectors, strict=True), start):
                key = store.add_record(one, vector, embedder=embedder.id)
                if not retired and place >= known:
                    gist, solved = record_text(one), place % 3 == 0
                    store.add_unaided(made[place][1], solved=solved, gist=gist, vector=vector, embedder=embedder.id)
                if retired:
                    store.set_status(key, "retired", "evicted")


def source_tasks(count: int, database: Path, seed: int = 1, scope: str = "default") -> list[tuple[Question, Task]]:
    """Questions with their tasks, in 60 groups, as they are learnt from."""
    drawn = enumerate(islice(questions(seed), count))
    return [(question, task(question, f"s{seed}-{n}", database, group=f"g{n % 60}", scope=scope)) for n, question in drawn]


def heldout_tasks(count: int, database: Path, seed: int) -> list[tuple[Question, Task]]:
    """Questions with their tasks, none of which is asked twice."""
    return [(question, task(question, f"h{seed}-{n}", database)) for n, question in enumerate(islice(questions(seed), count))]
