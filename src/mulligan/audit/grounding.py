"""Grounding: whether a reflection names what its task was about (Honest Lying; SPEC D1, D2).

In: a text and the task line of *the same* entry. Out: True, False, or None where there is no task line: "cannot tell". There is no way to
hand over targets by position: logs whose entries name no task can be laid beside a list of tasks in any order, and then say anything
(SPEC D4). Words are compared whole, in any case, singular or plural, with or without numbers, and however they are joined: SoapBar,
"soapbar 1", "soap bars" and "bar of soap" are one thing.

Not promised: that a text which names its target is right about it. Naming and solving are separate outcomes.
"""

import re
import unicodedata
from collections.abc import Iterator

LONGEST = 20_000  # characters of a text that are read
MOST_WORDS = 3  # that make one name
HOUSEHOLD = re.compile(  # the task lines of ALFWorld: what is done, to what, where
    r"\b(?:put|place|find|move|bring|take|examine|look at|clean|cool|heat|pick up|get|set)\b", re.IGNORECASE
)
PLAIN = """a an the some two three one it them this that these those to in on into onto under with at of from and then your task is by for
be back piece put place find move bring take examine look heat pick up get set wash rinse clean hot cool cold warm heated cooled cleaned
washed rinsed sliced"""
ASKING = "what which who whom whose where when why how is are was were do does did in on at the a an of"
QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”")
NAMED = re.compile(r"[A-ZÀ-ÖØ-Þ][\w'’.-]*(?:\s+(?:(?:of|de|von|van)\s)?[A-ZÀ-ÖØ-Þ][\w'’.-]*)*")
DEFINED = re.compile(r"\b(?:def|fn)\s+(\w+)\s*[(<]([^)]*)")


def targets(task_line: str) -> tuple[str, ...]:
    """The names that a text about this task has to name, the main one first.

    For a household task its object and its places; for a program its function and parameters; for a question what it quotes and what is
    written like a name. Empty where none is found.
    """
    if defined := list(DEFINED.finditer(task_line[:LONGEST])):
        parts = [re.fullmatch(r"\s*(?:mut\s+)?\**(\w+)\s*(?:[:=].*)?", part) for part in defined[-1][2].split(",")]
        given = [found[1] for found in parts if found and len(found[1]) > 1 and found[1] != "self"]
        return tuple(dict.fromkeys([defined[-1][1], *given]))
    line = _line(task_line)
    if is_household(line):
        plain = PLAIN.split()
        return tuple(dict.fromkeys(word for word in re.findall(r"[A-Za-z]+", line) if word.lower() not in plain))
    quoted = [one or other for one, other in QUOTED.findall(line)]
    asking = rf"(?i)^(?:(?:{'|'.join(ASKING.split())})\b\s*)+"
    named = [re.sub(asking, "", found) for found in NAMED.findall(QUOTED.sub(" ", line))]
    return tuple(dict.fromkeys(name for name in [*quoted, *named] if name))


def is_household(task_line: str) -> bool:
    """Whether a task line asks for something to be put, found or treated, as ALFWorld's do."""
    return bool(HOUSEHOLD.match(_line(task_line))) and not DEFINED.search(task_line)


def _line(task_line: str) -> str:
    return re.sub(r"(?is)^.*?your task is to:?", "", task_line[:LONGEST].strip()).strip()


def names(text: str, target: str) -> bool:
    """Whether a text names a target."""
    wanted = "".join(_words(target))
    return bool(wanted) and any(name == wanted for name in _joined(_words(text[:LONGEST]), len(wanted)))


def grounded(text: str, task_line: str) -> bool | None:
    """Whether a text names the target of its own task line: a household's object, else any of the targets. None: cannot tell."""
    wanted = targets(task_line)
    return any(names(text, target) for target in (wanted[:1] if is_household(task_line) else wanted)) if wanted else None


def _words(text: str) -> list[str]:
    """Lower-case words in the singular; CamelCase and snake_case are several, numbers are none."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFKC", text))
    return [_singular(word) for word in re.findall(r"[^\W\d_]+", plain.lower())]


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        for ending, other in (
            ("ies", "y"),
            ("shelves", "shelf"),
            ("knives", "knife"),
            ("loaves", "loaf"),
            ("ches", "ch"),
            ("shes", "sh"),
            ("xes", "x"),
        ):
            if word.endswith(ending):
                return word.removesuffix(ending) + other
        return word[:-1]
    return word


def _joined(words: list[str], size: int) -> Iterator[str]:
    """Every name that up to MOST_WORDS neighbours make, also as "bar of soap"."""
    for start, word in enumerate(words):
        name = ""
        for part in words[start : start + max(MOST_WORDS, size)]:
            name += part
            if len(name) > size:
                break
            yield name
        if words[start + 1 : start + 2] == ["of"] and start + 2 < len(words):
            yield words[start + 2] + word
