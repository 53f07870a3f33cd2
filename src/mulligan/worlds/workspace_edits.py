"""Operator proposals for the workspace world: a patch put in its place, without a part, or with a small change of Python.

In: a patch that failed, and the evidence against it. Out: whole patches, best first, with a reason each. A patch that does not apply is
placed by its content. One that applies is changed in a line of Python that it adds, or loses one of its changes; the drafts are checked
once each, as the agent could check them, and ordered by what they mend. These runs are not evaluator calls, and cost up to `SECONDS`. Not
promised: changes of lines that the patch does not add.
"""

import ast
import difflib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from mulligan.edits import Tokens, edit_text
from mulligan.records import Proposal, Signal
from mulligan.worlds import code_edits
from mulligan.worlds.code_drafts import Evidence, Text
from mulligan.worlds.code_text import parses, tree
from mulligan.worlds.workspace_files import Pristine, Refused, copied, discard, patched

SECONDS = 30.0
MOST = 40  # drafts that are checked for one failure
ALIKE = 0.6  # of the lines that a hunk expects and those where it is put
HUNK = re.compile(r"^@@ [^\n]*\n(?:(?!@@ |diff --git |--- )[^\n]*\n)*", re.MULTILINE)
TARGET = re.compile(r"^--- (?:a/)?[^\t\n]+.*\n\+\+\+ (?:b/)?(?P<new>[^\t\n\0]+).*\n", re.MULTILINE)
CHANGE = re.compile(r"^(?:[-+][^\n]*\n)+", re.MULTILINE)
EXPECTED = re.compile(r"\bassert (.+?) == (.+?)(?: *where\b.*)?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Draft:
    """A changed patch."""

    patch: str
    operator: str
    why: str
    prior: float


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the operators work with: the files at the start, what is protected, tokens, and what says how much a folder's files mend.

    `mended` runs the check in the folder and deletes it.
    """

    start: Pristine
    protected: Sequence[str]
    tokens: Tokens
    mended: Callable[[Path], Fraction]


def proposals(shop: Workshop, patch: str, signals: Sequence[Signal]) -> Iterator[Proposal]:
    """Patches that may do better than `patch`, best first."""
    try:
        copy, _ = patched(shop.start, patch, shop.protected)
    except Refused:
        yield from _placed(shop, patch)
        return
    try:
        yield from _better(shop, copy, patch, signals)
    finally:
        discard(copy)


# ---- a patch that does not apply ----


def _placed(shop: Workshop, patch: str) -> Iterator[Proposal]:
    """The patch with each part as the file has it where it is most like what the part expects. What it adds stays."""
    folder, made = shop.start.folder.resolve(), patch
    for path, hunks in _hunks(patch):
        place = folder / path
        if place.is_symlink() or not place.resolve().is_relative_to(folder) or not place.is_file():
            return
        text = place.read_text("utf-8", "surrogateescape")
        for hunk in hunks:
            moved = _put(text, hunk)
            if moved is None:
                return
            made = made.replace(hunk, moved, 1)
    try:
        discard(patched(shop.start, made, shop.protected)[0])
    except Refused:
        return
    if made != patch:
        why = "what it expects stands there as the file has it"
        yield Proposal(action=made, edit=edit_text(patch, made, shop.tokens), why=why, proposer="op:place")


def _hunks(patch: str) -> list[tuple[str, list[str]]]:
    """The parts of a patch by file."""
    targets = list(TARGET.finditer(patch))
    ends = [*(found.start() for found in targets[1:]), len(patch)]
    return [(found["new"], HUNK.findall(patch[found.end() : end])) for found, end in zip(targets, ends, strict=False)]


def _put(text: str, hunk: str) -> str | None:
    """The hunk with its context and what it removes as the text has them where they fit best; None where they fit nowhere."""
    header, *body = hunk.splitlines()
    expected = [line[1:].strip() for line in body if line[:1] not in ("+", "\\")]
    lines = text.splitlines()
    if not expected or len(expected) > len(lines):
        return None
    stripped = [line.strip() for line in lines]
    scores = {at: _alike(expected, stripped[at : at + len(expected)]) for at in range(len(lines) - len(expected) + 1)}
    at, best = max(scores.items(), key=lambda found: (found[1], -found[0]))
    if best < ALIKE:
        return None
    there, made = iter(lines[at:]), [header]
    for line in body:
        made.append(line if line[:1] in ("+", "\\") else f"{line[:1] or ' '}{next(there)}")
    return "\n".join(made) + "\n"


def _alike(wanted: Sequence[str], found: Sequence[str]) -> float:
    """The mean likeness of lines in the same place."""
    ratios = [difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() for one, other in zip(wanted, found, strict=False)]
    return sum(ratios) / len(wanted)


# ---- a patch that applies ----


def _better(shop: Workshop, copy: Path, patch: str, signals: Sequence[Signal]) -> Iterator[Proposal]:
    until, least, ranked = time.monotonic() + SECONDS, shop.mended(copied(copy)), list[tuple[Fraction, Draft]]()
    for draft in _drafts(shop.start, copy, patch, signals)[:MOST]:
        if time.monotonic() > until or any(share == 1 for share, _ in ranked):
            break
        try:
            changed, _ = patched(shop.start, draft.patch, shop.protected)
        except Refused:
            continue
        if (share := shop.mended(changed)) > least:
            ranked.append((share, draft))
    for _, draft in sorted(ranked, key=lambda found: (-found[0], -found[1].prior)):
        edit = edit_text(patch, draft.patch, shop.tokens)
        yield Proposal(action=draft.patch, edit=edit, why=draft.why, proposer=draft.operator)


def _drafts(start: Pristine, copy: Path, patch: str, signals: Sequence[Signal]) -> list[Draft]:
    """The patch as it was written but for one change, the likeliest first: drawn anew, none would be local."""
    found = [Draft(text, "op:part", why, 0.4) for text, why in _without_one(patch)]
    for path, _ in _hunks(patch):
        place = copy / path
        if place.suffix == ".py" and not place.is_symlink() and place.is_file() and path not in start.protected:
            found += _changed(path, patch, place.read_text("utf-8", "replace"), signals)
    return sorted(found, key=lambda draft: -draft.prior)


def _without_one(patch: str) -> Iterator[tuple[str, str]]:
    """The patch with one of its changes taken back: what it removes there stays, what it adds is not added."""
    changes = [found for found in CHANGE.finditer(patch) if not found.group().startswith(("--- ", "+++ "))]
    for found in changes if len(changes) > 1 else ():
        kept = "".join(f" {line[1:]}" for line in found.group().splitlines(keepends=True) if line[0] == "-")
        first = found.group().partition("\n")[0]
        yield patch[: found.start()] + kept + patch[found.end() :], f"without the change at {first[:80]!r}"


def _changed(path: str, patch: str, after: str, signals: Sequence[Signal]) -> Iterator[Draft]:
    """Operators of the code world, where the patch shows the line that they change."""
    parsed = tree(after)
    if parsed is None:
        return
    seen = {patch}
    for draft in code_edits.drafts(Text(after, parsed), _evidence(path, signals)):
        made = _rewritten(patch, after.splitlines(), draft.action.splitlines())
        if made and made not in seen and parses(draft.action):
            seen.add(made)
            yield Draft(made, draft.operator, f"{path}: {draft.why}", draft.prior)


def _rewritten(patch: str, before: Sequence[str], now: Sequence[str]) -> str:
    """The patch with the one line exchanged that a draft changes of what the patch adds; "" where it changes something else."""
    changed = [(one, other) for one, other in zip(before, now, strict=False) if one != other]
    if len(before) != len(now) or len(changed) != 1:
        return ""
    old, new = (f"\n+{line}\n" for line in changed[0])
    return patch.replace(old, new) if patch.count(old) == 1 else ""


def _evidence(path: str, signals: Sequence[Signal]) -> Evidence:
    """What the failing tests say of that file: lines, values that came and were wanted, exceptions."""
    lines = [int(at) for signal in signals for file, _, at in [signal.where.rpartition(":")] if file == path and at.isdigit()]
    pairs = []
    for signal in signals:
        if signal.kind == "assertion" and (sides := EXPECTED.search(signal.what.partition("\n")[0])):
            try:
                pairs.append((ast.literal_eval(sides[1].strip()), ast.literal_eval(sides[2].strip())))
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
    raised = tuple(signal.what for signal in signals if signal.kind == "exception")
    return Evidence(pairs=tuple(pairs), raised=raised, lines=frozenset(lines))
