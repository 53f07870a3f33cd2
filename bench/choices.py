"""What a selector takes to decide between three candidates, with the utility selector fitted on two hundred settled uses."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.figures import Figure, Scale, clocked, figure, in_turns
from bench.library import build, lesson, source_tasks
from mulligan.protocols import Selector
from mulligan.read.selection import Never, Threshold, Top1, Utility
from mulligan.records import Candidate, Outcome, Receipt, Selection, Situation, Statistics
from mulligan.worlds.sql import SqlWorld

BAR = 0.2  # milliseconds
USES = 200
OUTCOMES: tuple[Outcome, ...] = ("helped", "hurt", "neutral")


def choices(scale: Scale, folder: Path) -> Iterator[Figure]:
    """Each selector in turn; the reference is the largest of three scores."""
    drawn, situation = drawn_candidates(scale.times, 3, folder)

    def select(selector: Selector, n: int) -> None:
        selector.select(situation, drawn[n])

    for selector in (Never(), Top1(), Threshold(), _fitted(random.Random(0))):
        taken, least = in_turns(
            scale.times, clocked(partial(select, selector)), clocked(lambda n: max(candidate.score for candidate in drawn[n]))
        )
        yield figure(f"selector {selector.name}", taken, "the largest of three", least, bar=BAR)


def drawn_candidates(times: int, many: int, folder: Path) -> tuple[list[list[Candidate]], Situation]:
    """So many candidates, drawn anew so many times, and the situation that they are for."""
    chance, world = random.Random(0), SqlWorld()
    made = source_tasks(60, build(folder / f"library{many}.sqlite"))
    known = [Candidate(record=lesson(*one, world), statistics=Statistics(helped=2), similarity=0, overlap=0, score=0) for one in made]
    drawn = [[replace(one, similarity=chance.random(), score=chance.random()) for one in chance.sample(known, many)] for _ in range(times)]
    return drawn, Situation(task=made[0][1], facts={})


def _fitted(chance: random.Random) -> Utility:
    used = Receipt(task="t", attempt=0, candidates=("r",), similarities=(0.0,), shown=("r",), selection=Selection(chosen=0, policy="top1"))
    return Utility.fit([(replace(used, similarities=(chance.random(),)), chance.choice(OUTCOMES)) for _ in range(USES)])
