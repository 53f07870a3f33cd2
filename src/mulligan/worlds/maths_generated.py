"""Questions that reasoning-gym makes, and what its verifiers say of answers, by a worker behind the walls.

In: a generator's name, how many questions, a seed. Out: questions with an answer that is right, and scores. The package is never imported
here, since it is heavy, and its generators give the same questions only under one order of sets. Raises MissingExtra where it is missing.
"""

from collections.abc import Mapping
from fractions import Fraction
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path

from mulligan.errors import MissingExtra, UsageError
from mulligan.nouns import Json
from mulligan.worlds.beside import Beside, beside
from mulligan.worlds.sandbox import Wall

WORKER = Path(__file__).with_name("maths_gym.py")
MISSING = "questions of reasoning-gym, and its verifiers, need the package: pip install reasoning-gym"
MAKING = 60.0  # seconds that a generator may take for all its questions


def generated(name: str, size: int, seed: int) -> list[tuple[str, str]]:
    """Questions with their answers. Raises UsageError for a generator that is not there, or makes none."""
    told = _worker("bubblewrap").ask({"name": name, "size": size, "seed": seed}, MAKING)
    if not isinstance(told, dict) or "entries" not in told:
        raise UsageError(f"reasoning-gym makes no {name!r}: {told['why'] if isinstance(told, dict) else 'it does not end'}")
    return [(str(question), str(answer)) for question, answer in told["entries"]]


def score(made: Mapping[str, Json], question: str, answer: str, seconds: float, wall: Wall) -> Fraction | None:
    """What the verifier gives an answer, in [0, 1]; None for no verdict. `made`: name, size, seed and index of the question."""
    told = _worker(wall).ask({**made, "question": question, "answer": answer, "seconds": seconds}, seconds + MAKING)
    return Fraction(told["score"]).limit_denominator(10_000) if isinstance(told, dict) and "score" in told else None


def verifier() -> str:
    """Name and version of what judges; empty where it is not installed."""
    try:
        return f"reasoning-gym {installed('reasoning_gym')}"
    except PackageNotFoundError:
        return ""


def _worker(wall: Wall) -> Beside:
    place = find_spec("reasoning_gym")
    if place is None or place.origin is None:
        raise MissingExtra(MISSING)
    return beside(WORKER, MISSING, wall, Path(place.origin).parent.parent)
