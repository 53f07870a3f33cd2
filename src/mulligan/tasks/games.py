"""Loads text games: ALFWorld's tree of `game.tw-pddl`, also in an archive, and games of TextWorld, `*.z8` with `*.json`.

In: a path. Out: tasks of the text-game world and a LoadReport. The task line is the game's own ("Your task is to: …"). Not promised, unless
`verify` asks the engine: that a game can be opened and won.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Split, Task
from mulligan.tasks.files import SHARES, dealt, read_bytes
from mulligan.tasks.loading import LeftOut, LoadReport
from mulligan.worlds.textgame_files import MOST, members, parse_pddl

GAME = "game.tw-pddl"
LINE = re.compile(r"Your task is to: (.+?)\.?\s*(?:\\n|\"|$)")
ROOM = re.compile(r"-(\d+)$")  # the last part of ALFWorld's names of tasks: the number of the floor plan
UNSEEN = "valid_unseen"


def load_alfworld(
    files: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0, verify: bool = False
) -> tuple[list[Task], LoadReport]:
    """Tasks of the games in a folder or archive. A task's group is its room, since where things lie there must not be known beforehand.

    Rooms under `valid_unseen` are held out, and all others dealt out to source and train by `shares`; where there are none, all are dealt
    out. `verify` opens each game, which takes seconds. Raises InvalidData where there is no game, or the archive is damaged.
    """
    left_out: Counter[LeftOut] = Counter()
    seen: list[Task] = []
    unseen: list[Task] = []
    read = 0
    for name, payload, raw in _pddl_games(Path(files)):
        read += 1
        place = Path(name).parts
        try:
            parts = parse_pddl(raw, name)
            tree = next((part for part in place if part.startswith(("valid", "train"))), "")
            kind = place[-3] if len(place) > 2 else ""
            room = ROOM.search(kind)
            group = f"room {room[1]}" if room else content_id("game", parts)
            label = "/".join(place[-3:-1]) if len(place) > 2 else str(Path(name).stem)
            task = pddl_task(parts, f"alfworld/{label}", payload=payload, group=group)
        except InvalidData:
            if read == 1 and Path(files).is_file() and not payload.get("member"):
                raise
            left_out["excluded"] += 1
            continue
        if parts.get("solvable") is False or "movable" in kind or "Sliced" in kind:  # as ALFWorld itself leaves them out
            left_out["excluded"] += 1
        elif verify and not _can_be_won(task):
            left_out["gold_fails"] += 1
        else:
            (unseen if tree == UNSEEN else seen).append(task)
    if not unseen or not seen:
        return dealt([*seen, *unseen], left_out, file=files, read=read, what="game", shares=shares, seed=seed)
    rooms = {task.group for task in unseen}
    kept = [task for task in seen if task.group not in rooms]
    left_out["crosses_splits"] += len(seen) - len(kept)
    tasks, _ = dealt(kept, left_out, file=files, read=read, what="game", shares=(*shares[:2], 0), seed=seed)
    counts = {reason: count for reason, count in left_out.items() if count}
    return [*tasks, *(replace(task, split="heldout") for task in unseen)], LoadReport(file=str(files), read=read, left_out=counts)


def load_textworld(
    files: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0, verify: bool = False
) -> tuple[list[Task], LoadReport]:
    """Tasks of the games `*.z8` in a file or folder, each with the `*.json` beside it. A group is a game's map with its things.

    Raises InvalidData where there is no game that can be used. Games in Glulx (`*.ulx`) are left out: the engine plays them no more.
    """
    root = Path(files)
    found = sorted(path for path in root.rglob("*") if re.fullmatch(r"\.(?:z[1-8]|ulx)", path.suffix)) if root.is_dir() else [root]
    left_out: Counter[LeftOut] = Counter()
    tasks: dict[str, Task] = {}
    for path in found:
        try:
            task = _story(path, root.name if root.is_dir() else root.parent.name)
        except UsageError:
            if len(found) == 1:
                raise
            left_out["excluded"] += 1
            continue
        if task.id in tasks:
            left_out["duplicate"] += 1
        elif verify and not _can_be_won(task):
            left_out["gold_fails"] += 1
        else:
            tasks[task.id] = task
    return dealt(list(tasks.values()), left_out, file=files, read=len(found), what="game", shares=shares, seed=seed)


def pddl_task(parts: Mapping[str, Json], name: str, *, payload: Mapping[str, Json], group: str, split: Split = "source") -> Task:
    """The task of a game of PDDL, with the line that its grammar tells the player. Raises InvalidData when there is none."""
    line = LINE.search(str(parts["grammar"]))
    if line is None:
        raise InvalidData(f'{name}: its grammar tells no task: it wants a line "Your task is to: …"')
    prompt, benchmark = line[1].strip(), name.partition("/")[0]
    return Task(id=name, domain="textgame", benchmark=benchmark, group=group, split=split, prompt=prompt, payload=payload)


def _pddl_games(root: Path) -> Iterator[tuple[str, dict[str, Json], bytes]]:
    """Name, payload and content of each game in a folder, an archive or a file."""
    where = str(root.resolve())
    if root.is_dir():
        for path in sorted(root.rglob(f"*{Path(GAME).suffix}")):
            yield str(path), {"pddl": str(path.resolve())}, read_bytes(path, MOST)
    elif root.suffix == Path(GAME).suffix:
        yield str(root), {"pddl": where}, read_bytes(root, MOST)
    else:
        for name, raw in sorted(members(root, Path(GAME).suffix)):
            yield name, {"pddl": where, "member": name}, raw


def _story(path: Path, benchmark: str) -> Task:
    if path.suffix == ".ulx":
        raise InvalidData(f"{path}: games in Glulx are not played any more: make them with --format z8")
    beside = path.with_suffix(".json")
    try:
        made = json.loads(read_bytes(beside, MOST))
        line, world, quests = made["objective"], made["world"], made["quests"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise InvalidData(f"{beside}: is no game of TextWorld: {type(error).__name__}: {error}") from error
    if not isinstance(line, str) or not line.strip() or not quests:
        raise InvalidData(f"{beside}: tells no task: it wants an objective and a quest")
    content = content_id("game", [world, quests])[5:13]
    return Task(
        id=f"{benchmark}/{path.stem}-{content}",
        domain="textgame",
        benchmark=benchmark,
        group=content_id("map", world),
        split="source",
        prompt=line.strip(),
        payload={"story": str(path.resolve())},
    )


def _can_be_won(task: Task) -> bool:
    from mulligan.worlds.textgame import TextGameWorld  # an extra

    try:
        with TextGameWorld().start(task) as state:
            return bool(state.view and state.view.plan)
    except InvalidData:
        return False
