"""Loads mathematical questions: GSM8K, MATH in the layouts in use, and the generators of reasoning-gym by name.

In: a JSON Lines file, or names of generators. Out: tasks of the maths world and a LoadReport. Gold answers are what follows "####", the
last `\\boxed{…}`, or what follows "The answer is:"; questions without one are left out. The files have no splits: `shares` and
`seed` deal the questions out. Not promised: that a gold answer is right.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mulligan.errors import MissingExtra, UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt, read_lines
from mulligan.tasks.loading import LeftOut, LoadReport, Node, normalised
from mulligan.worlds.maths_values import cleaned, final_answer


def load_gsm8k(file: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0) -> tuple[list[Task], LoadReport]:
    """Tasks of a file of `question` and `answer` with "#### gold" at its end. Raises InvalidData that names file and line."""
    listed = ((entry.at("question").text(), entry.at("answer").text().rpartition("####")[2]) for entry in read_lines(file))
    return _load(listed, str(file), shares, seed)


def load_math(file: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0) -> tuple[list[Task], LoadReport]:
    """Tasks of a file of `problem` or `question`, and `answer` or `solution` with the gold answer in a box or at its end."""

    def listed() -> Iterator[tuple[str, str]]:
        for entry in read_lines(file):
            question = entry.get("problem") or entry.at("question")
            yield question.text(), _gold(entry)

    return _load(listed(), str(file), shares, seed)


def _gold(entry: Node) -> str:
    """The answer alone, or the last one in a solution."""
    for name in ("answer", "solution"):
        if found := entry.get(name):
            text = found.text(blank=True)
            return final_answer(text) if "\\boxed" in text or "answer is" in text.lower() or name == "solution" else text
    raise entry.wrong("an object with an 'answer' or a 'solution'")


def load_reasoning_gym(
    names: Sequence[str], *, size: int = 50, shares: Sequence[float] = SHARES, seed: int = 0
) -> tuple[list[Task], LoadReport]:
    """`size` tasks of each generator of reasoning-gym by name, such as "basic_arithmetic"; for answers that are numbers or expressions."""
    try:
        gym = import_module("reasoning_gym")
    except ModuleNotFoundError:
        raise MissingExtra("generated questions need reasoning-gym: pip install reasoning-gym") from None
    listed = [pair for name in names for pair in _generated(gym, name, size, seed)]
    return _load(iter(listed), "reasoning-gym", shares, seed)


def _generated(gym: Any, name: str, size: int, seed: int) -> Iterator[tuple[str, str]]:
    try:
        made = gym.create_dataset(name, size=size, seed=seed)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"reasoning-gym makes no {name!r}: {error}") from error
    for entry in made:
        yield str(entry["question"]), str(entry["answer"])


def _load(listed: Iterator[tuple[str, str]], file: str, shares: Sequence[float], seed: int) -> tuple[list[Task], LoadReport]:
    left_out: Counter[LeftOut] = Counter()
    golds: dict[str, str] = {}
    tasks: list[Task] = []
    read = 0
    benchmark = Path(file).name.partition(".")[0]
    for question, gold in listed:
        read += 1
        key = normalised(question)
        if not cleaned(gold).text:
            left_out["no_gold"] += 1
        elif key in golds:
            left_out["duplicate" if golds[key] == gold.strip() else "ambiguous"] += 1
        else:
            golds[key] = gold.strip()
            tasks.append(_task(read, question, gold.strip(), benchmark))
    return dealt(tasks, left_out, file=file, read=read, what="question", shares=shares, seed=seed)


def _task(number: int, question: str, gold: str, benchmark: str) -> Task:
    payload: dict[str, Json] = {"gold": gold}
    name = content_id("", [question, gold])[1:9]
    return Task(
        id=f"{benchmark}/q{number:04d}-{name}",
        domain="maths",
        benchmark=benchmark,
        group=name,
        split="source",
        prompt=question.strip(),
        payload=payload,
    )
