"""Reads a file of episodes, one a line, and learns from it.

In: JSON Lines. A line is an `Episode` as `nouns.to_json` writes it, or an account of what was tried:

    {"task": {"prompt": "How many rivers are there?", "database": "geo.sqlite", "gold": "SELECT …"}, "actions": ["SELECT …"]}

whose actions are tried again in the world, one after another, to get their verdicts. `task` may also be a whole `Task`. Out: one
outcome a line, and what was stored. A line that cannot be used is named with its reason, leaves nothing behind, and does not
stop the others. Not promised: order of fields, or that accounts without a gold answer teach anything.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from mulligan.errors import InvalidData, MulliganError, UsageError
from mulligan.memory import Memory
from mulligan.nouns import Json, from_plain, noun, to_json
from mulligan.protocols import World
from mulligan.read import reconstruction
from mulligan.records import Attempt, Decision, Episode, Task, Usage
from mulligan.redaction import redact
from mulligan.write import signals

MAX_LINE = 8 << 20  # bytes


@noun
class Brief:
    """A task in short: a question about a SQLite database. Paths are relative to the episodes' file."""

    prompt: str
    id: str = ""
    database: str = ""
    gold: str = ""
    context: str = ""
    group: str = ""  # what may not cross splits; the task itself, unless it is told
    scope: str = "default"
    payload: Mapping[str, Json] = field(default_factory=dict)


@noun
class Account:
    """What an agent did on a task, without the world's verdicts."""

    task: Mapping[str, Json]
    actions: tuple[str, ...]
    agent: str = "imported"
    model: str = ""


@noun
class Line:
    """One line of the file: an episode, or an account of one with its task; or why it is neither."""

    number: int
    task: Task | None = None
    episode: Episode | None = None
    account: Account | None = None
    fault: str = ""


@noun
class Outcome:
    """What came of one line. `known` says that all its failures had been examined before."""

    number: int
    task: str = ""
    failures: int = 0
    known: bool = False
    decisions: tuple[Decision, ...] = ()
    fault: str = ""

    @property
    def records(self) -> tuple[str, ...]:
        """Ids of the records that it gave."""
        return tuple(d.record for d in self.decisions if d.record)


def read_lines(path: Path, world: World, payload: Mapping[str, Json] | None = None) -> list[Line]:
    """The lines of `path` that hold anything. `payload` is what the payloads of tasks in short hold besides their own.

    Raises UsageError when the file cannot be read or no line holds anything.
    """
    lines: list[Line] = []
    try:
        for number, text in _cut(path):
            try:
                lines.append(_line(number, text, partial(_task, path=path, world=world, payload=payload or {})))
            except UsageError as error:
                lines.append(Line(number=number, fault=str(error)))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if not lines:
        raise UsageError(f"{path} holds no episodes: one JSON object a line is wanted, see docs/cli.md")
    return lines


def learn(memory: Memory, line: Line) -> Outcome:
    """Learn from one line, all of it or nothing. What was examined before is not paid for again. Raises ModelError, StoreError."""
    if line.task is None:
        return Outcome(number=line.number, fault=line.fault)
    try:
        episode = line.episode or _replay(line.task, line.account, memory.world)
        failures = signals.failures(episode, tokens=memory.world.tokens, clean=reconstruction.strip)
        key = redact(episode).id  # as it is stored
        if failures and all(memory.store.examined(key, failure.attempt.index) for failure in failures):
            return Outcome(number=line.number, task=line.task.id, failures=len(failures), known=True)
        examined = memory.examine(episode)
        with memory.store.transaction():
            decisions = [decision for one in examined for decision in memory.admit(episode, one)]
            memory.note(episode)
    except UsageError as error:
        return Outcome(number=line.number, task=line.task.id, fault=str(error))
    except MulliganError:
        raise
    except Exception as error:  # a world that stumbles over what stands in one line must not cost the others
        return Outcome(number=line.number, task=line.task.id, fault=f"the world {memory.world.name} fails on it: {error!r}")
    return Outcome(number=line.number, task=line.task.id, failures=len(failures), decisions=tuple(decisions))


def learn_all(memory: Memory, lines: list[Line], progress: Callable[[str, int, int], None]) -> list[Outcome]:
    """Learn from every line in order."""
    outcomes = []
    for done, line in enumerate(lines, 1):
        outcomes.append(learn(memory, line))
        progress("learn", done, len(lines))
    return outcomes


def _cut(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the lines that are not blank. A line too long is given as far as MAX_LINE and a byte."""
    with path.open("rb") as file:
        number = 0
        while text := file.readline(MAX_LINE + 1):
            number += 1
            rest = text
            while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE + 1)
            if text.strip():
                yield number, text


def _line(number: int, text: bytes, brief: Callable[[Account, int], Task]) -> Line:
    if len(text) > MAX_LINE:
        raise InvalidData(f"longer than {MAX_LINE >> 20} MiB")
    try:
        plain = json.loads(text.removeprefix(b"\xef\xbb\xbf"))
        to_json(plain)  # infinities and endless nesting are refused before anything is made of them
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"no JSON ({str(error).partition(': line')[0]})") from None
    if not isinstance(plain, dict) or "task" not in plain:
        raise InvalidData("neither an episode nor an account: a JSON object with a task is wanted")
    if "actions" not in plain:
        episode = from_plain(Episode, plain, what="it")
        return Line(number=number, task=_of_source(episode.task), episode=episode)
    account = from_plain(Account, plain, what="it")
    if not account.actions:
        raise InvalidData("no actions")
    whole = "domain" in account.task
    task = from_plain(Task, account.task, what="its task") if whole else brief(account, number)
    return Line(number=number, task=_of_source(task), account=account)


def _of_source(task: Task) -> Task:
    if task.split != "source":
        raise UsageError(f"task {task.id} is of the {task.split} split: only source tasks may write")
    return task


def _task(account: Account, number: int, *, path: Path, world: World, payload: Mapping[str, Json]) -> Task:
    """The task that a brief one stands for; of a question, with the schema that agents are shown."""
    brief = from_plain(Brief, account.task, what="its task")
    name = brief.id or f"{path.stem}/{number}"
    task = Task(
        id=name,
        domain=world.name,
        benchmark=path.stem,
        group=brief.group or name,
        split="source",
        prompt=brief.prompt,
        context=brief.context,
        payload={**payload, **brief.payload},
        scope=brief.scope,
    )
    if not brief.database:
        return task
    made = _question(brief, path)
    return replace(task, context=task.context or made.context, payload={**made.payload, **task.payload})


def _question(brief: Brief, path: Path) -> Task:
    """A question about a database, its gold query tried once. Raises UsageError when one of them cannot be used."""
    from mulligan.tasks.loading import Question, make_tasks

    if not brief.gold.strip():
        raise InvalidData("its task has a database but no gold query")
    asked = Question(text=brief.prompt, gold=brief.gold, database=path.parent / brief.database, split="source", group="")
    (task,), _ = make_tasks([asked], file="its task", benchmark=path.stem, skip_empty=False)
    return task


def _replay(task: Task, account: Account | None, world: World) -> Episode:
    """The episode of an account. Seconds are left out: the same account must give the same episode whenever it is read."""
    given = account or Account(task={}, actions=())
    attempts = []
    with world.start(task) as state:
        for index, action in enumerate(given.actions):
            before, observation = state.digest, world.observe(state)
            verdict = replace(world.act(state, action), seconds=0.0)
            spent = Usage(evaluator_calls=verdict.calls)
            attempts.append(Attempt(index=index, observation=observation, action=action, verdict=verdict, usage=spent, state=before))
    return Episode(task=task, agent=given.agent, model=given.model, attempts=tuple(attempts))
