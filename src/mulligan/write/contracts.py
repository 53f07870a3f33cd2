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
        found = re.findall(r"^\s*(\d+)[.)]\s+(\S.*)$", text, re.MULTILINE)
        if not STEPS[0] <= len(found) <= STEPS[1] or [n for n, _ in found] != [str(n) for n in range(1, len(found) + 1)]:
            return f"Write {STEPS[0]} to {STEPS[1]} steps, numbered from 1."
        return Note(when=when, says="\n".join(f"{n}. {step.strip()}" for n, step in found))
    if twice := [name for name in FIELDS[contract] if len(re.findall(rf"^\s*{name}\s*:", text, re.MULTILINE | re.IGNORECASE)) > 1]:
        return f"Write {twice[0]}: once."  # which of them is meant nobody can say
    values = {name: _field(text, name) for name in FIELDS[contract]}
    if missing := [name for name, value in values.items() if not value]:
        return f"Write a line {missing[0]}: with something in it."
    return Note(when=when, says="\n".join(f"{name}: {value}" for name, value in values.items()))


def stripped(note: Note, literals: Iterable[str]) -> Note | None:
    """The note without the literals; None when next to nothing is left of what it says."""
    ordered = sorted({literal for literal in literals if literal.strip()}, key=len, reverse=True)
    when, says = note.when, note.says
    for literal in ordered:
        pattern = rf"(?<!\w){re.escape(literal)}(?!\w)"
        when, says = (re.sub(pattern, PLACE, text, flags=re.IGNORECASE) for text in (when, says))
    return Note(when=when, says=says) if len(re.findall(r"[^\W\d_]{2,}", says)) >= LEAST_WORDS else None


def literals(prompt: str, actions: Iterable[str], answers: Iterable[str] = ()) -> list[str]:
    """What belongs to one task alone: whole actions, their lines and what they end with; quoted values and numbers of at least two digits,
    also in the world's answers, which may quote what was wanted.
    """
    found: list[str] = []
    for text in (*actions, prompt, *answers):
        found += [one or other for one, other in re.findall(r"(?<!\w)'([^'\n]{1,80})'(?!\w)|(?<!\w)\"([^\"\n]{1,80})\"(?!\w)", text)]
        found += re.findall(r"(?<![\w.])\d[\d.,]*\d(?!\w)", text)
    for action in actions:
        found += [action.strip(), *(line.strip() for line in action.splitlines() if len(line.strip()) > 12)]
        found += [end.strip(" .") for end in re.findall(r"(?:[:=]|\bis)\s*([^\s:=][^:=\n]{0,30})\s*\Z", action)]  # "The answer is: 7"
    return list(dict.fromkeys(literal for literal in found if literal))


def _field(text: str, name: str) -> str:
    found = re.search(rf"^\s*{re.escape(name)}\s*:[ \t]*(\S.*)$", text, re.MULTILINE | re.IGNORECASE)
    return found[1].strip() if found else ""
