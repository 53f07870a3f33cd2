"""Output contracts of notes: what a lesson in words has to look like, by world and by how the play ended.

In: a model's reply and the name of a contract. Out: a `Note`, when it applies and what it says, or what is wrong with it. Literals of the
play that it comes from are taken out, so that a memorised answer does not count: what is left has to say something.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from mulligan.nouns import noun

Contract = Literal["steps", "rule", "procedure", "bug"]

STEPS = (3, 7)
MOST_WORDS = 160
LEAST_WORDS = 8  # that are left when literals are out
STEPWISE = frozenset({"textgame", "grid"})
PLACE = "…"

WHEN = "WHEN: the situations this helps in, without names of this one\n"
ASKED: Mapping[Contract, str] = {
    "steps": f"{WHEN}WHY IT FAILED: one sentence\n1. first step\n2. …\n(three to seven steps, abstract: no names or numbers of this task)",
    "rule": f"{WHEN}WHY IT FAILED: one sentence\nType: kind of rule\nTrigger: what calls for it\nAction: what to do then",
    "procedure": f"{WHEN}SUCCESS_PROCEDURE\nContract: what was asked for\nImplementation: how it was done\nBoundary: where it ends",
    "bug": f"{WHEN}FAILURE_REFLECTION\nBug class: the one kind of mistake that is left\nCheck: what to look at to avoid it",
}
FIELDS: Mapping[Contract, tuple[str, ...]] = {
    "rule": ("Type", "Trigger", "Action"),
    "procedure": ("Contract", "Implementation", "Boundary"),
    "bug": ("Bug class", "Check"),
}
HEADS: Mapping[Contract, str] = {"procedure": "SUCCESS_PROCEDURE", "bug": "FAILURE_REFLECTION"}


@noun
class Note:
    """A lesson in words: when it applies, and what it says."""

    when: str
    says: str


def contract_of(world: str, *, solved: bool) -> Contract:
    """Which contract a note from a play in that world keeps."""
    if world in STEPWISE:
        return "steps"
    return "rule" if world == "shop" else "procedure" if solved else "bug"


def parsed(text: str, contract: Contract, *, solved: bool) -> Note | str:
    """The note in a reply, or what is wrong with it in a sentence for the one who wrote it."""
    text = re.sub(r"```\w*|\*\*", "", text).strip()
    when = _field(text, "WHEN")
    if not when:
        return "Begin with a line WHEN: that says where it applies."
    if any(line.partition(":")[2].strip() in text for line in ASKED[contract].splitlines() if line.partition(":")[2].strip()):
        return "Put your own words where the form says what belongs there."
    if len(text.split()) > MOST_WORDS:
        return f"Write at most {MOST_WORDS} words."
    if (head := HEADS.get(contract)) and not re.search(rf"^{head}\b", text, re.MULTILINE):
        return f"Write the line {head}."
    why = _field(text, "WHY IT FAILED")
    if contract in ("steps", "rule") and not solved and not why:
        return "Write a line WHY IT FAILED: with one sentence."
    if contract == "steps":
        found = re.findall(r"^\s*\d+[.)]\s+(\S.*)$", text, re.MULTILINE)
        if not STEPS[0] <= len(found) <= STEPS[1]:
            return f"Write {STEPS[0]} to {STEPS[1]} numbered steps, not {len(found)}."
        return Note(when=when, says="\n".join(f"{n}. {step.strip()}" for n, step in enumerate(found, 1)))
    values = {name: _field(text, name) for name in FIELDS[contract]}
    if missing := [name for name, value in values.items() if not value]:
        return f"Write a line {missing[0]}: with something in it."
    if contract == "bug" and len(re.findall(r"^\s*Bug class\s*:", text, re.MULTILINE | re.IGNORECASE)) != 1:
        return "Name one bug class."
    return Note(when=when, says="\n".join(f"{name}: {value}" for name, value in values.items()))


def stripped(note: Note, literals: Iterable[str]) -> Note | None:
    """The note without the literals; None when next to nothing is left of what it says."""
    ordered = sorted({literal for literal in literals if literal.strip()}, key=len, reverse=True)
    when, says = note.when, note.says
    for literal in ordered:
        pattern = rf"(?<!\w){re.escape(literal)}(?!\w)"
        when, says = (re.sub(pattern, PLACE, text, flags=re.IGNORECASE) for text in (when, says))
    return Note(when=when, says=says) if len(re.findall(r"[^\W\d_]{2,}", says)) >= LEAST_WORDS else None


def literals(prompt: str, actions: Iterable[str]) -> list[str]:
    """What belongs to one task alone: whole actions and their lines, quoted values, and numbers of at least two digits."""
    found: list[str] = []
    for text in (*actions, prompt):
        found += [value for pair in re.findall(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"", text) for value in pair if value]
        found += re.findall(r"(?<![\w.])\d[\d.,]*\d(?!\w)", text)
    for action in actions:
        found += [line.strip() for line in (action, *action.splitlines()) if len(line.strip()) > 12]
    return list(dict.fromkeys(found))


def _field(text: str, name: str) -> str:
    found = re.search(rf"^\s*{re.escape(name)}\s*:[ \t]*(\S.*)$", text, re.MULTILINE | re.IGNORECASE)
    return found[1].strip() if found else ""
