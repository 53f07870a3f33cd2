"""Deals tasks out to source, train and heldout so that no group crosses, checks that none does, and draws fair subsets.

Everything depends on ids, groups and the seed alone: the order in which tasks come, and the machine, change nothing. Groups stay
whole, so shares are met only as closely as the groups' sizes allow.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import get_args

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Split, Task

SPLITS: tuple[Split, ...] = get_args(Split)


def assign_splits(tasks: Sequence[Task], *, shares: Sequence[float] = (0.5, 0.2, 0.3), seed: int = 0) -> list[Task]:
    """The tasks, in their order, with new splits. `shares` are three weights (or counts) for source, train and heldout.

    Groups are taken in an order drawn from the seed, and each goes to the split that lacks most of its share. Raises UsageError for
    weights that are negative or all zero.
    """
    if len(shares) != len(SPLITS) or not all(share >= 0 for share in shares) or not 0 < sum(shares) < float("inf"):
        raise UsageError(f"shares must be three weights for {', '.join(SPLITS)}, none negative and not all zero; got {tuple(shares)}")
    sizes = Counter(task.group for task in tasks)
    lacking = {split: len(tasks) * share / sum(shares) for split, share in zip(SPLITS, shares, strict=True) if share}
    chosen: dict[str, Split] = {}
    for group in sorted(sizes, key=lambda name: _draw(seed, name)):
        split = max(lacking, key=lambda name: lacking[name])
        chosen[group] = split
        lacking[split] -= sizes[group]
    return [replace(task, split=chosen[task.group]) for task in tasks]


def check_splits(tasks: Iterable[Task]) -> None:
    """Raises InvalidData when a group is in two splits, or two tasks have one id; names the first one."""
    splits: dict[str, Split] = {}
    seen: set[str] = set()
    for task in tasks:
        if splits.setdefault(task.group, task.split) != task.split:
            raise InvalidData(f"group {task.group!r} is in {splits[task.group]} and in {task.split} (task {task.id}): no group may cross")
        if task.id in seen:
            raise InvalidData(f"two tasks have the id {task.id!r}")
        seen.add(task.id)


def sample_tasks(tasks: Sequence[Task], n: int, *, seed: int = 0) -> list[Task]:
    """`n` of the tasks (all, when there are fewer), in their order. Groups take turns, so that as many as possible are drawn from."""
    if n < 0:
        raise UsageError(f"cannot draw {n} tasks")
    groups = defaultdict(list)
    for task in sorted(tasks, key=lambda t: _draw(seed, t.id)):
        groups[task.group].append(task.id)
    turns = sorted((turn, _draw(seed, group), task) for group, members in groups.items() for turn, task in enumerate(members))
    drawn = {task for _, _, task in turns[:n]}
    return [task for task in tasks if task.id in drawn]


def _draw(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest()
