"""Rewrite: from quoted lessons to one guidance for the present task and state, or to none (MemHarness, SPEC B1).

In: a situation, the lessons as `reconstruction` quotes them, and the records that they are. Out: a `Rewrite`: a text that may be shown, or
why nothing is. A model writes it, and nothing is taken on its word: a text is shown only if it fits the budget, does not read like an
instruction, quotes code that parses, names nothing that the world says the situation lacks, and copies no value of a record that the task
does not have. What fails is not mended and not asked for again: the agent acts without it. Not promised: that the advice is right.
"""

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mulligan.naming import LONGEST, fold, literals, parts, stands_in
from mulligan.prompts import prompt
from mulligan.protocols import Model, World
from mulligan.records import Attempt, Completion, Message, Record, Rewritten, Situation, Usage

MOST_TOKENS = 256  # that the model may write (SPEC B1)
READ = 1_200  # tokens of lessons that it is handed
LAST = 3  # attempts that it is shown
MOST_CHARS = 1_200  # of an action, and of an answer to one
MOST_CONTEXT = 8_000  # characters of the surroundings

_EMPTY = re.compile(r"[<＜〈‹]\s*+/?\s*+EMPTY\s*+/?\s*+[>＞〉›]", re.IGNORECASE)
_ALONE = re.compile(r"[\W_]*empty[\W_]*\Z", re.IGNORECASE)  # in any wrapping
_SAYS = re.compile(r"[\W_]*EMPTY\b\s*[.:,;!(\n–—-]|.*\b(?i:reply|answer|output|return|response)(?: is)?\W{0,9}EMPTY\W*\Z", re.DOTALL)
_END, _BEGIN = (re.compile(rf"<{slash}think(?:ing)?>", re.IGNORECASE) for slash in ("/", ""))
_WRAPPED = re.compile(r"\A(`{3,})(?:text|markdown|md|plaintext)?[ \t]*+\n(.*)\1\Z", re.DOTALL)
_LABEL = re.compile(r"\A\W{0,4}(?:adapted |short )?(?:principle|guidance|lesson|advice|answer|reply)\W{0,4}:[\s*]*", re.IGNORECASE)
_OWN = re.compile(r"\bI(?:'m|'ll|'ve|'d|’m|’ll|’ve)?\b|\b[Ll]et me\b|\b[Mm]y\b|\A(?:Okay|Sure|Certainly|Here is)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What became of it. `text` is there when it was accepted; `why` says in words what it was refused for."""

    outcome: Rewritten
    text: str = ""
    why: str = ""
    usage: Usage


def rewrite(
    situation: Situation,
    lessons: str,
    records: Sequence[Record],
    *,
    model: Model,
    world: World,
    fits: Callable[[str], bool],
    commands: Callable[[str], bool],
) -> Rewrite:
    """Ask `model` once for guidance out of `lessons`, the quotation of `records`, and check its reply.

    `fits` says whether a text keeps the budget of what is shown, `commands` whether one reads like an instruction to the agent.
    """
    completion = model.complete(request(situation, lessons), max_tokens=MOST_TOKENS, temperature=0.0, seed=0)
    text = read(completion.text)
    if text is None:
        return Rewrite(outcome="empty", usage=completion.usage)
    outcome, why = _fault(text, completion, situation, records, world, fits, commands)
    return Rewrite(outcome=outcome, text=text if outcome == "accepted" else "", why=why, usage=completion.usage)


def request(situation: Situation, lessons: str) -> list[Message]:
    """The request: surroundings first, since tasks share them, then the lessons, the task, and what was seen and tried."""
    task = situation.task
    said = [
        task.context[:MOST_CONTEXT],
        f"Lessons from other tasks:\n{lessons}",
        f"Task: {task.prompt}",
        situation.observation[-MOST_CHARS:],
        *map(_tried, situation.history[-LAST:]),
        "Adapt the lessons to this task, or reply with <EMPTY>.",
    ]
    user = "\n\n".join(part for part in said if part)
    return [Message(role="system", content=prompt("rewrite").text), Message(role="user", content=user)]


def read(reply: str) -> str | None:
    """The guidance in a reply, without thoughts, wrapping and label; None where it says EMPTY, in whatever dress; "" for no guidance."""
    if len(reply) > LONGEST:
        return ""
    text = _BEGIN.split(_END.split(html.unescape(reply))[-1])[0].strip()
    if wrapped := _WRAPPED.match(text):
        text = wrapped[2].strip()
    text = _LABEL.sub("", text).strip()
    return None if _EMPTY.search(text) or _ALONE.match(text) or _SAYS.match(text) else text


def copied(text: str, records: Iterable[Record], situation: Situation) -> list[str]:
    """The values of `records` (quoted words, numbers) that stand in `text`, and neither in the task nor in what was seen or answered since.

    That the surroundings hold one says nothing: a schema's samples hold the values of other tasks too.
    """
    said, shown = fold(text), fold(replace(situation, task=replace(situation.task, context="")).sight)
    stored = (value for r in records for part in (r.situation, r.original, r.corrected, r.principle) for value in literals(part))
    return [value for value in dict.fromkeys(stored) if stands_in(value, said) and not stands_in(value, shown)]


def _fault(
    text: str,
    completion: Completion,
    situation: Situation,
    records: Sequence[Record],
    world: World,
    fits: Callable[[str], bool],
    commands: Callable[[str], bool],
) -> tuple[Rewritten, str]:
    """The first thing that is wrong with a guidance, the cheapest first; "accepted" for nothing."""
    if not any(map(str.isalpha, text)):
        return "unreadable", "no words"
    if completion.finish == "length" or not fits(text):
        return "over_budget", f"{len(text)} characters"
    if own := _OWN.search(parts(text).prose):
        return "unreadable", f"speaks of itself: {own[0]}"
    if commands(text):
        return "commanding", ""
    for misfit in sorted(world.misfits(situation, text), key=lambda one: one.kind != "unparseable"):
        return misfit.kind, misfit.what
    if values := copied(text, records, situation):
        return "copied", values[0]
    return "accepted", ""


def _tried(attempt: Attempt) -> str:
    return f"Tried:\n{attempt.action[:MOST_CHARS]}\nAnswer:\n{attempt.verdict.feedback[:MOST_CHARS]}"
