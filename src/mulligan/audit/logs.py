"""Logs of agents that reflect, read into one form: who was asked what, how each trial went, what was noted in between.

In: a path: a folder or files of the Reflexion repository's runs (households and shops `env_results_trial_N.json`, questions as text,
programs as JSON Lines), plain JSON Lines (docs/audit.md), or a store of this package. Out: a `Log`. The format is known by content.

Environments are matched from trial to trial by name, and a task line is only what stands in the entry itself: nothing is ever matched by
position, since a list of tasks laid beside a log in another order says whatever one likes (SPEC D4). Damaged lines are counted and named.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import Json, noun
from mulligan.store import Store

LARGEST = 256 << 20  # bytes of a file
TRIAL = re.compile(r"env_results_trial_(\d+)\.json")
BLOCK = re.compile(r"^-+ BEGIN (CORRECT|INCORRECT|HALTED) AGENTS -+$", re.MULTILINE)
BEGIN = re.compile(r"^BEGIN TRIAL (\d+)$", re.MULTILINE)
AGENT = re.compile(r"(?<!\S)Question: ")
TOLD = re.compile(r"\s*You have attempted to answer (?:the )?following question before and failed\.")
NOTED = re.compile(
    r"^Reflections?: ?\n?(.*?)(?=^(?:Thought|Action|Question|Correct answer|Relevant Context)\b|\Z)", re.MULTILINE | re.DOTALL
)
FIELDS = {"name", "task", "reflections", "trials", "solution", "test", "entry_point", "prompt"}


@noun
class Program:
    """What a log stores of a program: it can be run again."""

    language: str
    solution: str
    test: str
    entry: str
    prompt: str = ""


@noun
class Case:
    """One environment. `trials` says for each trial whether it was solved; None where the log does not tell."""

    name: str
    task: str = ""  # the task line, verbatim from the entry; "" where it has none
    reflections: tuple[str, ...] = ()  # oldest first
    trials: tuple[bool | None, ...] = ()
    program: Program | None = None

    @property
    def solved(self) -> bool:
        return True in self.trials

    @property
    def failed_trials(self) -> int:
        """Trials before the first that was solved; all of them where none was."""
        return self.trials.index(True) if self.solved else len(self.trials)


@noun
class Log:
    """The cases of one log, where it came from, and what of it could not be read."""

    path: str
    format: str
    cases: tuple[Case, ...]
    damaged: tuple[str, ...] = ()


def read_log(path: Path | str) -> Log:
    """The log at `path`. Raises UsageError for what is none of the formats, InvalidData where nothing of it can be read."""
    place = Path(path)
    if place.is_dir():
        named = [found for found in place.iterdir() if TRIAL.fullmatch(found.name)]
        if named:
            return _made(place, "trials", *_trials(sorted(named, key=_number)))
        lone = [found for found in place.iterdir() if found.suffix in (".jsonl", ".txt", ".db")]
        if len(lone) != 1:
            raise UsageError(f"{place} holds no env_results_trial_N.json and {len(lone)} logs: name the file to audit")
        place = lone[0]
    if not place.is_file():
        raise UsageError(f"there is no log at {place}")
    with place.open("rb") as file:
        head = file.read(1 << 12)
    if place.stat().st_size > LARGEST:
        raise InvalidData(f"{place} is larger than {LARGEST >> 20} MiB")
    if head.startswith(b"SQLite format 3\0"):
        return _made(place, "store", *_store(place))
    if TRIAL.fullmatch(place.name):
        return _made(place, "trials", *_trials([place]))
    if b"BEGIN TRIAL" in head:
        return _made(place, "questions", *_questions(_text(place)))
    if head.lstrip()[:1] == b"{":
        return _made(place, "lines", *_lines(place))
    raise UsageError(f"{place} is no log that can be audited: see docs/audit.md for the formats")


def _made(place: Path, kind: str, cases: list[Case], damaged: list[str]) -> Log:
    if not cases:
        raise InvalidData(f"nothing of {place} can be read: {damaged[0] if damaged else 'it holds no entry'}")
    return Log(path=str(place), format=kind, cases=tuple(cases), damaged=tuple(damaged))


def _text(place: Path) -> str:
    return place.read_text("utf-8", "replace")


def _number(place: Path) -> int:
    found = TRIAL.fullmatch(place.name)
    return int(found[1]) if found else 0


# ---- households and shops: one file a trial ----


def _trials(files: list[Path]) -> tuple[list[Case], list[str]]:
    memories: dict[str, tuple[str, ...]] = {}
    outcomes: dict[str, list[bool | None]] = {}
    tasks: dict[str, str] = {}
    damaged: list[str] = []
    for number, file in enumerate(files):
        seen: set[str] = set()
        for place, entry in enumerate(_entries(file, damaged)):
            try:
                name, memory = _string(entry, "name"), tuple(map(str, _list(entry, "memory")))
                if name in seen:
                    raise InvalidData(f"{name!r} stands there twice")
            except InvalidData as error:
                damaged.append(f"{file.name} entry {place}: {error}")
                continue
            seen.add(name)
            done = entry.get("is_success")
            trials = outcomes.setdefault(name, [])
            trials += [None] * (number - len(trials)) + [done if isinstance(done, bool) else None]
            memories[name] = memory if len(memory) >= len(memories.get(name, ())) else memories[name]
            tasks[name] = str(entry.get("task") or tasks.get(name, ""))
    return _cases(outcomes, memories, tasks), damaged


def _cases(outcomes: Mapping[str, list[bool | None]], notes: Mapping[str, tuple[str, ...]], tasks: Mapping[str, str]) -> list[Case]:
    """All of them with as many trials as the longest."""
    most = max(map(len, outcomes.values()), default=0)
    return [
        Case(name=name, task=tasks[name], reflections=notes[name], trials=(*trials, *[None] * (most - len(trials))))
        for name, trials in outcomes.items()
    ]


def _entries(file: Path, damaged: list[str]) -> Sequence[Mapping[str, Any]]:
    try:
        found = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        damaged.append(f"{file.name}: {error}")
        return []
    listed = found if isinstance(found, list) else []
    if len(listed) != len(wanted := [entry for entry in listed if isinstance(entry, dict)]) or listed is not found:
        damaged.append(f"{file.name}: not a list of objects")
    return wanted


# ---- questions: one text with all trials ----


def _questions(text: str) -> tuple[list[Case], list[str]]:
    outcomes: dict[str, list[bool | None]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    damaged: list[str] = []
    for number, (start, trial) in enumerate(_parts(BEGIN, text)):
        count = 0
        for question, said, solved in _agents(trial):
            trials = outcomes.setdefault(question, [])
            if len(trials) > number:
                continue  # the file repeats itself
            trials += [None] * (number - len(trials)) + [solved]
            count += 1
            found = _notes(said)
            notes[question] = found if len(found) >= len(notes.get(question, ())) else notes[question]
        told = [int(n) for n in re.findall(r": (\d+)", (re.search(r"^Trial summary:.*$", trial, re.MULTILINE) or [""])[0])]
        if sum(told) != count:
            damaged.append(f"trial {start[1]} says {sum(told)} agents and shows {count}")
    return _cases(outcomes, notes, {question: question for question in outcomes}), damaged


def _parts(head: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each head with what follows it up to the next."""
    heads = [*head.finditer(text)]
    for found, after in zip_longest(heads, heads[1:]):
        yield found, text[found.end() : after.start() if after else len(text)]


def _agents(trial: str) -> Iterator[tuple[str, str, bool]]:
    """Question, all that follows it, and whether it was answered rightly, for each agent of a trial."""
    for block, part in _parts(BLOCK, trial):
        for said in AGENT.split(part)[1:]:
            question, _, rest = said.partition("\n")
            yield (
                TOLD.split(question)[0].strip(),
                said[len(TOLD.split(question)[0]) :] if TOLD.search(question) else rest,
                block[1] == "CORRECT",
            )


def _notes(said: str) -> tuple[str, ...]:
    """The reflections in an agent's context, as a list with dashes or a line each."""
    listed = "\n".join(NOTED.findall(said)).strip()
    parts = re.split(r"(?:^|\n)- ", listed) if listed.startswith("- ") else listed.split("\n")
    return tuple(part.strip() for part in parts if part.strip())


# ---- JSON Lines: programs of the Reflexion repository, and the plain form ----


def _lines(place: Path) -> tuple[list[Case], list[str]]:
    cases: list[Case] = []
    damaged: list[str] = []
    for number, line in enumerate(_text(place).split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise InvalidData("not an object")
            cases.append((_program if "is_solved" in entry else _plain)(entry))
        except (InvalidData, ValueError, RecursionError) as error:
            damaged.append(f"line {number}: {str(error)[:200]}")
    return cases, damaged


def _program(entry: Mapping[str, Any]) -> Case:
    reflections = tuple(map(str, _list(entry, "reflections")))
    solved = entry["is_solved"]
    if not isinstance(solved, bool):
        raise InvalidData("'is_solved' must be true or false")
    name = str(entry.get("task_id") or entry.get("name") or "")
    if not name:
        raise InvalidData("wants a 'task_id' or a 'name'")
    program = Program(
        language=str(entry.get("language") or "py"),
        solution=str(entry.get("solution") or ""),
        test=str(entry.get("test") or ""),
        entry=str(entry.get("entry_point") or ""),
        prompt=str(entry.get("prompt") or ""),
    )
    # one reflection a failed trial; the last one led to the solution, or to nothing
    trials = (*(False for _ in reflections), *([True] if solved else [] if reflections else [False]))
    return Case(name=name, task=program.prompt, reflections=reflections, trials=trials, program=program if program.test else None)


def _plain(entry: Mapping[str, Any]) -> Case:
    if unknown := entry.keys() - FIELDS:
        raise InvalidData(f"unknown field {min(unknown)!r}; known are {', '.join(sorted(FIELDS))}")
    trials = _list(entry, "trials")
    if not all(one is None or isinstance(one, bool) for one in trials):
        raise InvalidData("'trials' must be a list of true, false and null")
    program = None
    if entry.get("test"):
        texts = {field: _string(entry, field) for field in ("solution", "test")}
        program = Program(language="py", entry=str(entry.get("entry_point") or ""), prompt=str(entry.get("prompt") or ""), **texts)
    reflections = tuple(map(str, _list(entry, "reflections")))
    return Case(
        name=_string(entry, "name"), task=str(entry.get("task") or ""), reflections=reflections, trials=tuple(trials), program=program
    )


def _string(entry: Mapping[str, Any], field: str) -> str:
    if not isinstance(found := entry.get(field), str) or not found:
        raise InvalidData(f"wants a text under {field!r}")
    return found


def _list(entry: Mapping[str, Any], field: str) -> list[Json]:
    if not isinstance(found := entry.get(field) or [], list):
        raise InvalidData(f"{field!r} must be a list")
    return found


# ---- a store ----


def _store(place: Path) -> tuple[list[Case], list[str]]:
    """The plays in a store that wrote reflections, or tried more than once."""
    cases: list[Case] = []
    with Store(place, frozen=True) as store:
        for episode in store.episodes():
            if episode.reflections or any(attempt.trial for attempt in episode.attempts):
                by_trial: dict[int, bool] = {}
                for attempt in episode.attempts:
                    by_trial[attempt.trial] = by_trial.get(attempt.trial, False) or attempt.verdict.solved
                name = f"{episode.task.id} {episode.label}".strip()
                trials = tuple(by_trial[trial] for trial in sorted(by_trial))
                cases.append(Case(name=name, task=episode.task.prompt, reflections=episode.reflections, trials=trials))
    return cases, [] if cases else ["no play in this store wrote reflections or started over"]
