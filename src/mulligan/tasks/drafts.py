"""What builders of changed tasks are given and yield: a lesson, and drafts that nobody has checked yet.

In: a stored record and its source task. Out: a Lesson with the record's correction as an action again. `variants.py` asserts what a draft
claims; the builders are `variants_sql.py` and `variants_code.py`.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from mulligan.nouns import Json, content_id, number_of
from mulligan.records import Record, Task

Kind = Literal[
    "lookalike",  # one fact changed, so that the record's condition is false and its correction wrong; also the probe s-
    "paraphrase",  # the same question in other words
    "schema",  # the same question, where things have other names
    "environment",  # the same question in another world
    "placebo",  # a fact changed that does not matter: the probe s0
]
Reason = Literal[
    "source_unsolved",  # the stored correction does not solve the task it was learnt on
    "condition_off",  # the record's condition is false of its own source
    "no_rule",  # no rule of this kind fits the task
    "gold_empty",  # what is wanted on the changed task is nothing at all
    "gold_fails",  # the changed task is not solved by its own gold
    "condition_stays",  # of a look-alike: the condition is still true
    "condition_lost",  # of a placebo: the condition is not true any more
    "still_right",  # of a look-alike: the stored correction still solves
    "not_right",  # of the others: the correction, carried over, does not solve
    "undecided",  # a check did not complete
    "repeated",  # the changed task is another pair's, or one that the store may have been written from
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A stored correction, with the values of its source in place of placeholders, and the task that it was learnt on."""

    record: Record
    task: Task
    correction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A changed task. `gold` is an action that should solve it, `carried` the correction with what was renamed carried over."""

    rule: str
    change: str
    task: Task
    gold: str
    carried: str
    fault: Reason | None = None  # where its builder knows already that it is of no use


def lesson(record: Record, task: Task) -> Lesson:
    """The record as a lesson of its source. Placeholders get what stands in their places in the task's prompt."""
    return Lesson(record=record, task=task, correction=_filled(record.corrected, record.situation, task.prompt))


def _filled(text: str, situation: str, prompt: str) -> str:
    """`text` with the values that a situation replaced by placeholders, read from the prompt; as it is where the two do not match."""
    values = _values(situation, prompt)
    return re.sub(r"<value\d+>", lambda mark: values.get(mark[0]) or mark[0], text)


def _values(situation: str, prompt: str) -> dict[str, str]:
    """Placeholder → what stands in its place in the prompt, from left to right; none where the rest differs."""
    first, *rest = re.split(r"(<value\d+>)", situation.removesuffix("…"))
    if not prompt.startswith(first):
        return {}
    values: dict[str, str] = {}
    at = len(first)
    for mark, following in zip(rest[::2], rest[1::2], strict=True):
        if mark in values:
            end = at + len(values[mark]) if prompt.startswith(values[mark], at) else -1
        else:
            end = prompt.find(following, at + 1) if following else len(prompt)
        if end <= at or not prompt.startswith(following, end):
            return {}
        values.setdefault(mark, prompt[at:end])
        at = end + len(following)
    return values if at == len(prompt) or situation.endswith("…") else {}


def changed_task(task: Task, kind: Kind, *, prompt: str = "", context: str = "", **payload: Json) -> Task:
    """A task of the held-out split and the source's group, under an id of its content. What is not given stays as in the source."""
    made = replace(
        task, split="heldout", prompt=prompt or task.prompt, context=context or task.context, payload={**task.payload, **payload}
    )
    said = [made.prompt, made.context, {name: value for name, value in made.payload.items() if name != "database"}]
    return replace(made, id=f"{task.id}~{kind}-{content_id('', said)[1:9]}")


def drawn(seed: int, *names: str) -> int:
    """A number that depends on the seed and the names alone."""
    return number_of("\0".join([str(seed), *names]))
