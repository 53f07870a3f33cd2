"""The difference between two actions, in the world's own tokens: what locality, edits and diffs are measured with."""

import difflib
from collections.abc import Callable, Sequence

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


def likeness(one: str, other: str, tokens: Tokens) -> float:
    """Similarity of the token sequences with literals masked: 1 for the same action about other values."""
    return difflib.SequenceMatcher(None, _masked(one, tokens), _masked(other, tokens), autojunk=False).ratio()


def _masked(action: str, tokens: Tokens) -> list[str]:
    return ["?" if token[:1] in "'\"0123456789" else token.lower() for token in tokens(action)]
