"""Documentation that cannot drift: examples run, names are there, generated sections are current, links lead somewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

from mulligan import records

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
USER_TEXT = "\n".join(p.read_text("utf-8") for p in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"(?:<!-- not run: (?P<reason>.+) -->\n)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")


class Block(NamedTuple):
    """A fenced Python example: the code, padded so that its line numbers are the page's, and why it is not run, if so."""

    code: str
    reason: str


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        yield Block("\n" * text.count("\n", 0, found.start("code")) + found["code"], found["reason"] or "")


def run_blocks(page: str, text: str) -> None:
    """Run all examples of a page, one after another in one namespace, as a reader would."""
    names = {"__name__": "__main__"}
    for block in blocks(text):
        if not block.reason:
            exec(compile(block.code, page, "exec"), names)


def headings(text: str) -> set[str]:
    """The anchors of a page's headings."""
    bare = (re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()) for line in text.splitlines() if line.startswith("#"))
    return {b.strip().replace(" ", "-") for b in bare}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(str(page), page.read_text("utf-8"))


def test_few_examples_are_not_run() -> None:
    skipped = [b.reason for p in PAGES for b in blocks(p.read_text("utf-8")) if b.reason]
    assert len(skipped) <= 3, skipped


def test_a_broken_example_is_found_with_its_line() -> None:
    text = (
        "# Page\n\n```python\nx = 1\n```\n\n<!-- not run: needs a key -->\n```python\nraise OSError\n```\n\n```python\nassert x == 2\n```\n"
    )
    assert [b.reason for b in blocks(text)] == ["", "needs a key", ""]
    with pytest.raises(AssertionError) as caught:
        run_blocks("page.md", text)
    assert caught.traceback[-1].lineno + 1 == 13  # lineno counts from 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in headings(place.read_text("utf-8")), f"{page.name} links to {target}#{anchor}"


LISTED = [
    ("reference", "Signals", get_args(records.SignalKind)),
    ("reference", "Reasons", get_args(records.Reason)),
    ("rewriting", "The check", get_args(records.Rewritten)[1:]),
]


@pytest.mark.parametrize(("page", "title", "names"), LISTED)
def test_there_is_a_line_for_every_name(page: str, title: str, names: tuple[str, ...]) -> None:
    section = (ROOT / "docs" / f"{page}.md").read_text("utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(names)


def test_generated_sections_are_current() -> None:
    done = subprocess.run([sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_documented() -> None:
    from typer.main import get_command

    from mulligan.cli import app

    commands = get_command(app).commands
    assert commands
    assert [name for name in commands if not re.search(rf"\bmulligan {re.escape(name)}\b", USER_TEXT)] == []
