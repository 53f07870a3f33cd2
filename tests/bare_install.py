"""What an install with no extra must do: import, learn, recall, print help. Run by `make bare` in an environment of its own."""

import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import mulligan
from mulligan import Memory, ReAct, ScriptedModel, Settings, Store
from mulligan.worlds.grid import GridWorld, corridor_tasks

EXTRAS = ("sqlglot", "matplotlib", "xllamacpp", "torch", "pytest")


def learn_and_recall(folder: Path) -> None:
    """A step that failed becomes a checked record, and the record is found again after the file was closed."""
    task = replace(corridor_tasks()[0], split="source")
    episode = ReAct(max_attempts=1).play(task, GridWorld(), ScriptedModel(["north"]))
    with Store(folder / "lessons.db") as store:
        decisions = Memory(store, GridWorld()).learn(episode)
        assert any(decision.admitted for decision in decisions), decisions
    with Store(folder / "lessons.db", frozen=True) as store:
        (stored,) = store.records(domain=task.domain)
        remembering = Memory(store, GridWorld(), settings=Settings(partial=True))  # one step does not solve a walk
        guidance = remembering.recall(replace(task, id="another", group="another"))
        assert guidance.records == (stored.record.id,)


def main() -> None:
    """Raises at the first thing that an install without extras cannot do."""
    assert "site-packages" in mulligan.__file__, "the installed package is tested, not the checkout"
    present = [name for name in EXTRAS if find_spec(name)]
    assert not present, f"not a bare install: {present}"
    with tempfile.TemporaryDirectory() as folder:
        learn_and_recall(Path(folder))
    shown = subprocess.run([Path(sys.executable).with_name("mulligan"), "--help"], capture_output=True, text=True, check=True)
    assert "mulligan" in shown.stdout.lower()
    print("bare install: import, learn, recall and help work without any extra")


if __name__ == "__main__":
    main()
