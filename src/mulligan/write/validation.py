"""Validation of notes: whether the plays with a note came out better than those without (UpliftMem; SPEC C3).

In: pairs of plays of the same task, with the note alone and without any. Out: the uplift, and the decision. One pair is of the task that
the note comes from, where a memorised answer would help, so another is of a sibling.
"""

from collections.abc import Sequence
from fractions import Fraction

from mulligan.nouns import noun
from mulligan.records import Reason

RULE = "uplift>0;source+sibling;none<0;v1"


@noun
class Pair:
    """The utilities of two plays of one task; None for a play that reached no verdict."""

    with_note: Fraction | None
    without: Fraction | None

    @property
    def uplift(self) -> Fraction | None:
        """U(with) - U(without); None where one of them is not known."""
        return None if self.with_note is None or self.without is None else self.with_note - self.without


def decide(pairs: Sequence[Pair]) -> Reason:
    """Admitted when every pair reached its verdicts, none came out worse, and their sum is better."""
    found = [pair.uplift for pair in pairs]
    if not found or None in found:
        return "not_completed"
    known = [uplift for uplift in found if uplift is not None]
    if min(known) < 0:
        return "harms"
    return "admitted" if sum(known) > 0 else "no_uplift"


def total(pairs: Sequence[Pair]) -> Fraction:
    """The sum of the uplifts that are known: what versions of a note are compared by."""
    return sum((pair.uplift or Fraction(0) for pair in pairs), Fraction(0))
