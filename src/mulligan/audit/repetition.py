"""Repetition: whether a memory says the same again and again (Honest Lying; SPEC D1).

In: the reflections on one task, oldest first. Out: their reflection repetition rate (RRR), the share of all but the first that repeat an
earlier one. Everything that changes the figure is pinned: the later text is SequenceMatcher's first argument, its autojunk stays on, the
threshold is 0.85, one reflection alone gives 0. Earlier first, or autojunk off, gives other figures on the same logs (SPEC D4).

Not promised: that what is repeated is wrong. A lexical rate misses a paraphrase: `embedded_rate` is the same with vectors.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from mulligan.protocols import Embedder

ALIKE = 0.85  # from here on a text repeats another
FROZEN = 0.5  # from this rate on a memory is frozen
LONGEST = 10_000  # characters of a text that are compared: the matcher takes the square


def similarity(later: str, earlier: str) -> float:
    """The ratio of difflib's matcher, in [0, 1]; not symmetric, so the order is part of the measure."""
    return SequenceMatcher(None, later[:LONGEST], earlier[:LONGEST]).ratio()


def repeats(later: str, earlier: Sequence[str]) -> bool:
    """Whether a text repeats one of the earlier ones."""
    bounds = (SequenceMatcher(None, later[:LONGEST], text[:LONGEST]).real_quick_ratio() for text in earlier)
    return any(bound >= ALIKE and similarity(later, text) >= ALIKE for bound, text in zip(bounds, earlier, strict=True))


def repeated(texts: Sequence[str]) -> list[bool]:
    """For each text whether it repeats one before it."""
    return [repeats(text, texts[:place]) for place, text in enumerate(texts)]


def rate(again: Sequence[bool]) -> float:
    """The share of repeated texts among all but the first, in [0, 1]; 0 for fewer than two."""
    return sum(again[1:]) / (len(again) - 1) if len(again) > 1 else 0.0


def repetition_rate(texts: Sequence[str]) -> float:
    """RRR (SPEC D1), in [0, 1]; 0 for fewer than two texts."""
    return rate(repeated(texts))


def is_frozen(texts: Sequence[str]) -> bool:
    """Whether at least half of what was added says what was there."""
    return repetition_rate(texts) >= FROZEN


def embedded_rate(texts: Sequence[str], embedder: Embedder) -> float:
    """The same rate, where a text repeats one whose vector has a cosine of at least ALIKE with its own."""
    vectors = embedder.embed(list(texts))
    return rate([bool((vectors[:place] @ vector >= ALIKE).any()) for place, vector in enumerate(vectors)])
