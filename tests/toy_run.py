"""A whole experiment on the toy world, as a script that a test can kill: `python toy_run.py FOLDER LOG DELAY`.

The model is a function of the request. Every request that it answers is logged with its key after it was answered, so that the log shows
what was paid for.
"""

import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mulligan.embeddings import HashingEmbedder
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import Experiment, MemorySettings, TaskSettings
from mulligan.models import ScriptedModel
from mulligan.nouns import to_json
from mulligan.recordings import canonical
from mulligan.records import Message
from toy import ToyWorld, toy_tasks

WRONG = ("one two red", "one blue three", "", "one two three", "red blue green")


def experiment(**changes: object) -> Experiment:
    given = {
        "name": "toy",
        "tasks": TaskSettings(loader="toy"),
        "memory": MemorySettings(embedder="hash:64"),
        "parallel": 2,
        "workers": 0,
    }
    return Experiment(**{**given, **changes})  # type: ignore[arg-type]


def reply(messages: Sequence[Message]) -> str:
    """Copies a lesson when one is shown; otherwise one of a few answers, by the text of the request."""
    if "JSON" in messages[1].content:
        return '[{"action": "one two three", "why": "they are wanted", "condition": "none"}]'
    if "Right: " in messages[1].content:
        return messages[1].content.split("Right: ")[1].splitlines()[0]
    digest = hashlib.sha256(to_json(list(messages)).encode()).digest()
    return WRONG[digest[0] % len(WRONG)]


class LoggedModel(ScriptedModel):
    """Answers after `delay` seconds, and writes the key of every request that it answered to `log`."""

    def __init__(self, log: Path, delay: float) -> None:
        super().__init__(reply)
        self._log, self._delay = log, delay

    def complete(self, messages, **how):  # type: ignore[no-untyped-def]
        completion = super().complete(messages, **how)
        time.sleep(self._delay)
        with self._log.open("a") as file:
            file.write(canonical(self.id, messages, *(how.get(k) for k in ("max_tokens", "temperature", "seed", "schema"))).key + "\n")
        return completion


def play(folder: Path, log: Path, delay: float = 0.0) -> Results:
    tasks = [*toy_tasks(6), *toy_tasks(6, "heldout")]
    parts = Parts(tasks=tasks, world=ToyWorld(), model=LoggedModel(log, delay), embedder=HashingEmbedder(64))
    return run(experiment(), parts, folder, lambda stage, done, total: None)


if __name__ == "__main__":
    play(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
