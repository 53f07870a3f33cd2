"""What tests of the command line name by path: `cli_parts:tasks`, `python:cli_parts:model` and others, all on the toy world."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from mulligan.models import ScriptedModel
from mulligan.protocols import Model
from mulligan.records import Message, Proposal, Task, Verdict
from toy import ToyState, ToyWorld, toy_tasks
from toy_run import LoggedModel, reply

EXPERIMENT = """
name = "toy"
world = "toy:ToyWorld"
arms = ["none", "checked_top1", "checked_utility"]
parallel = 2
workers = 0
[tasks]
loader = "cli_parts:tasks"
[memory]
embedder = "hash:64"
"""

CODE = """
name = "code"
world = "code"
arms = ["none", "checked_top1"]
parallel = 1
workers = 0
[tasks]
loader = "problems"
[memory]
from_model = 0
embedder = "hash:64"
"""


def tasks() -> list[Task]:
    return [*toy_tasks(6), *toy_tasks(6, "heldout")]


def questions(file: str | Path, split_by: bool = False) -> list[Task]:
    """A loader with options, to name wrongly."""
    return tasks()


def model() -> Model:
    return ScriptedModel(reply)


def coding_model() -> Model:
    """Writes every function so that it returns its first argument."""

    def written(messages: Sequence[Message]) -> str:
        name, first = re.findall(r"def (\w+)\((\w+)", messages[1].content)[-1]
        return f"```python\ndef {name}({first}, *more):\n    return {first}\n```"

    return ScriptedModel(written)


def agreeing_model() -> Model:
    return ScriptedModel(lambda messages: "Yes.")


def rewriting_model() -> Model:
    """Rewrites for tasks with an even number, and rejects for the others."""

    def written(messages: Sequence[Message]) -> str:
        number = int(re.findall(r"number (\d+)", messages[1].content)[-1])
        return "Say the three words." if number % 2 == 0 else "<EMPTY>" if number < 5 else "Say `zq_never`."

    return ScriptedModel(written)


def logged_model() -> Model:
    """Slow enough to be stopped; writes down what it was paid for."""
    return LoggedModel(Path(os.environ["TOY_LOG"]), float(os.environ["TOY_DELAY"]))


class ForgetfulWorld(ToyWorld):
    """Breaks the contract: the same action does not give the same verdict."""

    calls = 0

    def act(self, state: ToyState, action: str) -> Verdict:
        ForgetfulWorld.calls += 1
        return replace(super().act(state, action), utility=Fraction(1, 1 + self.calls))


class FaultyWorld(ToyWorld):
    """Has a fault of its own."""

    def edits(self, state: ToyState, action: str, verdict: Verdict) -> Iterable[Proposal]:
        raise ZeroDivisionError("a fault in a world")
