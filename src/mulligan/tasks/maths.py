"""Loads mathematical questions: GSM8K, MATH in the layouts in use, and the generators of reasoning-gym by name.

In: a JSON Lines file, or names of generators. Out: tasks of the maths world and a LoadReport. Gold answers are what follows "####", the
last `\\boxed{…}`, or what follows "The answer is:"; questions without one are left out. The files have no splits: `shares` and
`seed` deal the questions out. Not promised: that a gold answer is right.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mulligan.nouns import Json, content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt, read_lines
from mulligan.tasks.loading import LeftOut, LoadReport, Node, normalised
from mulligan.worlds.maths_generated import generated
from mulligan.worlds.maths_values import cleaned, final_answer

Listed = tuple[str, str, Mapping[str, Json] | None]  # a question, its gold answer, and where reasoning-gym has it from


def load_gsm8k(file: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0) -> tuple[list[Task], LoadReport]:
    """Tasks of a file of `question` and `answer` with "#### gold" at its end. Raises InvalidData that names file and line."""
    listed = ((entry.at("question").text(), entry.at("answer").text().rpartition("####")[2], None) for entry in read_lines(file))
    return _load(listed, str(file), shares, seed)


def load_math(file: str | Path, *, shares: Sequence[float] = SHARES, seed: int = 0) -> tuple[list[Task], LoadReport]:
    """Tasks of a file of `problem` or `question`, and `answer` or `solution` with the gold answer in a box or at its end."""

    def listed() -> Iterator[Listed]:
        for entry in read_lines(file):
            question = entry.get("problem") or entry.at("question")
            yield question.text(), _gold(entry), None

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
    """`size` tasks of each generator of reasoning-gym by name, such as "basic_arithmetic"; its own verifiers judge the answers."""
    listed = [entry for name in names for entry in _generated(name, size, seed)]
    return _load(iter(listed), "reasoning-gym", shares, seed)


def _generated(name: str, size: int, seed: int) -> Iterator[Listed]:
    for index, (question, gold) in enumerate(generated(name, size, seed)):
        yield question, gold, {"name": name, "size": size, "seed": seed, "index": index}


def _load(listed: Iterator[Listed], file: str, shares: Sequence[float], seed: int) -> tuple[list[Task], LoadReport]:
    left_out: Counter[LeftOut] = Counter()
    golds: dict[str, str] = {}
    tasks: list[Task] = []
    read = 0
    benchmark = Path(file).name.partition(".")[0]
    for question, gold, gym in listed:
        read += 1
        key = normalised(question)
        if not (gold.strip() if gym else cleaned(gold).text):
            left_out["no_gold"] += 1
        elif key in golds:
            left_out["duplicate" if golds[key] == gold.strip() else "ambiguous"] += 1
        else:
            golds[key] = gold.strip()
            tasks.append(_task(read, question, {"gold": gold.strip(), **({"gym": gym} if gym else {})}, benchmark))
    return dealt(tasks, left_out, file=file, read=read, what="question", shares=shares, seed=seed)


def _task(number: int, question: str, payload: Mapping[str, Json], benchmark: str) -> Task:
    name = content_id("", [question, payload["gold"]])[1:9]
    return Task(
        id=f"{benchmark}/q{number:04d}-{name}",
        domain="maths",
        benchmark=benchmark,
        group=name,
        split="source",
        prompt=question.strip(),
        payload=payload,
    )
