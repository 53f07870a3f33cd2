"""Loads workspace tasks: what is to be mended in git repositories, one task a line of JSON.

In: a file of lines {"prompt", "repository", "commit", "check"}, and perhaps "changes" (a patch that was not committed), "files" (what
the agent is shown), "tests" (names that must pass), "report", "group", "split". Paths of repositories are relative to the file. Out: tasks
of the workspace world and a LoadReport. The check is run once without a patch: where it passes, or cannot be run, there is nothing to
learn from, and the task is left out. Not promised: that the files shown are all that an agent needs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mulligan.nouns import Json, content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt, read_lines
from mulligan.tasks.loading import SPLITS, LeftOut, LoadReport, Node
from mulligan.worlds.sandbox import Wall
from mulligan.worlds.workspace import WorkspaceWorld, asked_of
from mulligan.worlds.workspace_check import PASSES, compare
from mulligan.worlds.workspace_files import pristine

WANTED = ("repository", "commit", "check")
ALLOWED = ("changes", "report")
LISTS = ("tests", "files")
MOST_CHARS = 6_000  # of a file that is shown
TOLD = 5  # failing tests that are told


def load_workspaces(
    file: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0, verify: bool = True, sandbox: Wall = "bubblewrap"
) -> tuple[list[Task], LoadReport]:
    """The tasks of a file. `shares` and `seed` deal them out to source, train and heldout, unless all lines name their split.

    With `verify` each check is run without a patch, in the sandbox, and what fails is part of what agents are shown. Raises InvalidData
    with the line of what is wrong, UsageError for a repository or commit that is not there, and where code cannot be run.
    """
    lines = list(read_lines(file))
    world = WorkspaceWorld(wall=sandbox)
    left_out: Counter[LeftOut] = Counter()
    found: dict[str, Task] = {}
    for line in lines:
        task = _task(line, Path(file))
        world.start(task)
        if task.id in found:
            left_out["duplicate"] += 1
        elif verify and (why := _useless(world, task)):
            left_out[why] += 1
        else:
            found[task.id] = replace(task, context="\n\n".join([*_files(world, task), *(_failing(world, task) if verify else ())]))
    tasks = list(found.values())
    if tasks and all(line.get("split") for line in lines):
        return tasks, LoadReport(file=str(file), read=len(lines), left_out=dict(left_out))
    return dealt(tasks, left_out, file=file, read=len(lines), what="workspace task", shares=shares, seed=seed)


def _task(line: Node, file: Path) -> Task:
    payload: dict[str, Json] = {name: line.at(name).text() for name in WANTED}
    payload |= {name: found.text() for name in ALLOWED if (found := line.get(name))}
    payload |= {name: [item.text() for item in found.items()] for name in LISTS if (found := line.get(name))}
    prompt, split, group = line.at("prompt").text(), line.get("split"), line.get("group")
    content = content_id("w", [prompt, payload])
    payload["repository"] = str((file.parent / str(payload["repository"])).resolve())
    return Task(
        id=f"{file.stem}/{content[2:10]}",
        domain="workspace",
        benchmark=file.stem,
        group=group.text() if group else content,
        split=split.split(SPLITS) if split else "source",
        prompt=prompt,
        payload=payload,
    )


def _useless(world: WorkspaceWorld, task: Task) -> LeftOut | None:
    """Why the task's check, without a patch, leaves nothing to do."""
    asked = asked_of(task)
    runs = world.before(asked)
    unknown = compare(runs, runs, asked.tests).unknown
    return ("passes_already" if unknown == PASSES else "check_fails") if unknown else None


def _files(world: WorkspaceWorld, task: Task) -> list[str]:
    """The files that the agent is shown, each under its path. What is no file of the repository, or is too long, is named alone."""
    start, shown = pristine(asked_of(task).source, world.protected), []
    names = task.payload.get("files")
    for name in map(str, names if isinstance(names, list) else ()):
        place = (start.folder / name).resolve()
        inside = place.is_relative_to(start.folder.resolve()) and place.is_file()
        text = place.read_text("utf-8", "replace") if inside else ""
        if len(text) > MOST_CHARS:
            text = f"{text[:MOST_CHARS]}\n… {len(text) - MOST_CHARS} characters more"
        shown.append(f"{name}\n```\n{text.rstrip()}\n```" if inside else f"{name} is not there")
    return shown


def _failing(world: WorkspaceWorld, task: Task) -> list[str]:
    """What the check says without a patch."""
    asked = asked_of(task)
    (first, *_) = world.before(asked)
    lines = [f"{name}: {told.message}{f' ({told.where})' if told.where else ''}" for name, told in first.failing.items()]
    told = lines[:TOLD] or [first.output.strip()[-500:]]
    return [f"`{asked.check}` fails:\n" + "\n".join(told)]
