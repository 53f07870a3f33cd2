"""What an install with no extra must do: import, store, recall, print help. Run by `make bare` in an environment of its own."""

import subprocess
import sys
import tempfile
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import mulligan
from mulligan.records import Gain, Provenance, Record
from mulligan.store import Store

EXTRAS = ("sqlglot", "matplotlib", "xllamacpp", "torch", "pytest")
RECORD = Record(
    kind="correction",
    domain="sql",
    situation="which states border the longest river",
    original="SELECT state FROM river",
    corrected="SELECT traverse FROM river",
    diff="state → traverse",
    gain=Gain(original=Fraction(0), changed=Fraction(1), solved=True),
    provenance=Provenance(
        task="t1",
        group="geography",
        benchmark="sample",
        split="source",
        episode="e1",
        attempt=0,
        agent="react",
        model="none",
        proposer="column",
        evaluator="sql/1",
    ),
)


def store_and_recall(folder: Path) -> None:
    """A record that is stored is found again, by words and by its vector, after the file was closed."""
    vector = np.array([0.6, 0.8], np.float32)
    with Store(folder / "lessons.db") as store:
        key = store.add_record(RECORD, vector, embedder="test/2")
    with Store(folder / "lessons.db", frozen=True) as store:
        hits = store.search("the longest river", vector)
        assert [hit.record_id for hit in hits] == [key]
        assert store.record(key).record == RECORD


def main() -> None:
    """Raises at the first thing that an install without extras cannot do."""
    assert "site-packages" in mulligan.__file__, "the installed package is tested, not the checkout"
    present = [name for name in EXTRAS if find_spec(name)]
    assert not present, f"not a bare install: {present}"
    with tempfile.TemporaryDirectory() as folder:
        store_and_recall(Path(folder))
    if find_spec("mulligan.cli"):
        shown = subprocess.run([Path(sys.executable).with_name("mulligan"), "--help"], capture_output=True, text=True, check=True)
        assert "mulligan" in shown.stdout.lower()
    print("bare install: import, store, recall and help work without any extra")


if __name__ == "__main__":
    main()
