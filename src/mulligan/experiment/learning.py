"""Learned selectors in a run: exploring on training tasks, learning from what came of it, weights in the folder.

In: the bench with a constructed and practised store. Out: episodes of `explore` stages, and one file of weights for each learned arm.
While exploring the store is frozen, nothing is filtered by need (learners see it as a feature), and the world answers as on held-out
tasks: a policy that was trained where failures are told would meet other decision points than those it is for. All learners get the same
rows.
"""

import time
from dataclasses import replace
from pathlib import Path

from mulligan.errors import MissingExtra
from mulligan.experiment.acquiring import acquire
from mulligan.experiment.arms import arm
from mulligan.experiment.stages import Bench, Episodes, played, weights_path
from mulligan.memory import Memory
from mulligan.read.learned import Explore
from mulligan.read.selection import LEARNED, SETS
from mulligan.read.weights import save
from mulligan.records import Usage
from mulligan.store import Store


def explore(bench: Bench) -> list[Episodes]:
    """Play the training tasks in as many rounds as the experiment says; over the rounds every choice is made equally often."""
    tasks = [replace(task, split="heldout") for task in bench.split("train")]
    found = []
    for number in range(bench.experiment.memory.explore):
        with Store(bench.memory_path("checked"), frozen=True) as store:
            memory = bench.memory(Memory, store, need=0.0, chosen=Explore(number))
            found.append(played(bench, f"explore {number}", tasks, bench.agent(), memory))
    return found


def learn(bench: Bench, explored: list[Episodes], unaided: Episodes) -> dict[str, Path]:
    """Fit every learned selector that an arm asks for to the same rows; the files of weights, by selector.

    Raises MissingExtra without what training needs.
    """
    wanted = list(dict.fromkeys(one.selector for name in bench.experiment.arms if (one := arm(name)).learned))
    if not wanted:
        return {}
    try:
        from mulligan.train import event, fitting  # noqa: F401  # both: what is missing is said before anything is spent
    except ImportError as error:
        raise MissingExtra(f"learning a selector needs {error.name}: pip install 'mulligan[train]'") from None
    episodes = [episode for round_ in explored for episode in round_.values()]
    made = {}
    with Store(bench.memory_path("checked"), frozen=True) as store:
        memory = bench.memory(Memory, store, need=0.0)
        known = fitting.known(episodes, store.several, memory.tokens, unaided=list(unaided.values()))
        for name in (name for name in wanted if name in LEARNED):
            started = time.monotonic()
            path = weights_path(bench, name)
            if not path.exists():
                save(fitting.fit(name, known), path)
                usage = Usage(seconds=time.monotonic() - started)
                bench.ledger.add_usage(f"train {name}", stage=f"train {name}", task="", usage=usage)
            made[name] = path
            bench.progress("learn", len(made), len(wanted))
    return {**made, **acquire(bench, explored, [name for name in wanted if name in SETS])}
