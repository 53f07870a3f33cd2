"""Evidence instead of self-diagnosis: what went wrong in a trial, read by code, and the gate of reflections.

In: the attempts of a trial, of whose verdicts only what an agent may see is read, and the task. Out: a block of numbered evidence with the
steps that it is of, the request for a reflection built on it, and what is wrong with the reply, if anything. The parts and their order are
those of Honest Lying (SPEC D2). Where the world showed nothing wrong there is no evidence, and nothing to reflect on.

Not promised: that a reflection which passes is right. The gate tests what it rests on, not what it concludes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mulligan.audit import grounding, repetition
from mulligan.prompts import prompt
from mulligan.records import Attempt, Refusal, Task

MOST_ITEMS = 8  # of evidence: the last ones
MOST_CHARS = 300  # of one item, of an action in it, and of a plan that is shown again
MOST_HISTORY = 20  # actions
MOST_WORDS = 120  # of a reflection (SPEC D2)
PLAIN = """about after all also and any are been before both but can does each every find for from give given had has have how into its list
many more most much must name not number only other over please return should show some task than that the their them then there these they
this those through under what when where which while who whose will with write your"""

WANTED: dict[Refusal, str] = {
    "unparseable": f"Write plain sentences, at most {MOST_WORDS} words.",
    "cites_no_step": "Name the failing step by its number, as in: step 2.",
    "names_no_target": "Name what the task is about.",
    "not_new": "Say something that the notes so far do not say.",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of evidence: the step that it is of, and what the world said, verbatim."""

    step: int
    what: str


def evidence(attempts: Sequence[Attempt]) -> list[Item]:
    """The evidence in the attempts of one trial, oldest first, cut to the last MOST_ITEMS. Steps are counted from 1."""
    found: list[Item] = []
    first: dict[str, int] = {}
    for step, attempt in enumerate(attempts, 1):
        done = attempt.action.strip()
        found += [Item(step, f"{s.kind}{f' at {s.where}' if s.where else ''}: {s.what}") for s in attempt.verdict.signals]
        if done in first:
            found.append(Item(step, f"the same action as step {first[done]}"))
        first.setdefault(done, step)
    return found[-MOST_ITEMS:]


def block(items: Sequence[Item]) -> str:
    """Numbered lines, one an item."""
    return "\n".join(f"{number}. step {item.step}: {_cut(item.what)}" for number, item in enumerate(items, 1))


def request(task: Task, attempts: Sequence[Attempt], items: Sequence[Item], plans: Sequence[str]) -> str:
    """What the model is asked, in the order of SPEC D2; manual and surroundings stand before it, as in every request of an agent."""
    history = [f"step {step}: {_cut(attempt.action)}" for step, attempt in enumerate(attempts, 1)][-MOST_HISTORY:]
    parts = [
        task.context,
        f"TASK: {task.prompt}",
        f"FAILURE EVIDENCE:\n{block(items)}",
        "ACTIONS:\n" + "\n".join(history),
        "NOTES SO FAR:\n" + "\n".join(f"- {_cut(plan)}" for plan in plans) if plans else "",
        prompt("reflect_evidence").fill(words=str(MOST_WORDS)),
    ]
    return "\n\n".join(part for part in parts if part)


def refusal(text: str, task: Task, items: Sequence[Item], stored: Sequence[str], asked: str = "") -> Refusal | None:
    """The first criterion that a reflection does not meet; None when it may be stored (SPEC D2).

    What repeats a stored one is not new, and neither is what is mostly what was `asked`, handed back. Where the task line has no
    target that could be named, that criterion is waived.
    """
    if not text.strip() or len(text.split()) > MOST_WORDS or text.strip().startswith("```"):
        return "unparseable"
    if not {item.step for item in items} & set(steps(text)):
        return "cites_no_step"
    if names_target(text, task) is False:
        return "names_no_target"
    return "not_new" if repetition.repeats(text, stored) or _copies(text, asked) else None


def _copies(text: str, asked: str) -> bool:
    """Whether most of a text stands line by line in the request that it answers: small models hand back what they are shown."""
    lines = [line.strip() for line in text.splitlines()]
    return 2 * sum(len(line) for line in lines if line and line in asked) > sum(map(len, lines))


def steps(text: str) -> list[int]:
    """The numbers of the steps that a text cites."""
    return [int(number) for number in re.findall(r"(?i)\bsteps?\s*(?:no\.?|number|#)?\s*(\d{1,6})", text)]


def names_target(text: str, task: Task) -> bool | None:
    """Whether a text names what a task is about; None where the task line has nothing that could be named.

    A household task's object and its places, all of them; a program's function or a parameter; what a question quotes, or writes like a
    name; elsewhere any word of the task line that carries meaning. Formulas and scripts have none.
    """
    wanted = grounding.targets(task.prompt)
    if grounding.is_household(task.prompt):
        return all(grounding.names(text, name) for name in wanted) if wanted else None
    wanted = wanted or tuple(word for word in re.findall(r"[^\W\d_]{4,}", task.prompt[:2_000]) if word.lower() not in PLAIN.split())
    return any(grounding.names(text, name) for name in wanted) if wanted and not _formal(task.prompt) else None


def _formal(line: str) -> bool:
    return bool(re.search(r"^p cnf |\(assert |\(set-logic", line, re.MULTILINE))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]} …"
