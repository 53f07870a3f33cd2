"""The difference between two actions, in the world's own tokens: what locality, edits and diffs are measured with."""

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache

Tokens = Callable[[str], Sequence[str]]


def edit_text(original: str, changed: str, tokens: Tokens, context: int = 0) -> str:
    """The edit as "old → new" hunks in the world's tokens, with `context` unchanged tokens on each side."""
    before, after = list(tokens(original)), list(tokens(changed))
    hunks = []
    for op, a0, a1, b0, b1 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if op != "equal":
            lead, tail = before[max(0, a0 - context) : a0], before[a1 : a1 + context]
            old, new = " ".join([*lead, *before[a0:a1], *tail]), " ".join([*lead, *after[b0:b1], *tail])
            hunks.append(f"{old or '(nothing)'} → {new or '(nothing)'}")
    return "; ".join(hunks)


def distance(original: str, changed: str, tokens: Tokens) -> float:
    """1 - similarity of the token sequences: 0 for the same action, 1 for nothing in common."""
    return 1.0 - difflib.SequenceMatcher(None, list(tokens(original)), list(tokens(changed)), autojunk=False).ratio()


class Likeness:
    """How alike two actions are: similarity of their token sequences with literals masked, 1 for the same action about other values.

    It remembers what it has read, since after a failure one action is compared with those of many records.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._read = lru_cache(maxsize=10_000)(lambda action: _Read(tokens(action)))

    def __call__(self, one: str, other: str) -> float:
        """The similarity, in [0, 1]."""
        matcher = copy(self._read(other).matcher)  # another thread may be comparing with the same action
        matcher.set_seq1(self._read(one).masked)
        return matcher.ratio()

    def at_most(self, one: str, other: str) -> float:
        """A bound on the similarity, from the tokens without their order: a tenth of the work."""
        mine, theirs = self._read(one), self._read(other)
        total, counts = len(mine.masked) + len(theirs.masked), theirs.counts
        return 2.0 * sum([min(n, counts.get(token, 0)) for token, n in mine.counts.items()]) / total if total else 1.0


class _Read:
    """An action as `Likeness` compares it."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.masked = ["?" if token[:1] in "'\"0123456789" else token.lower() for token in tokens]
        self.counts = dict(Counter(self.masked))
        self.matcher = difflib.SequenceMatcher(None, "", self.masked, autojunk=False)
