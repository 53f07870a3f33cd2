"""Admit or refuse: from the checks of one failed action to one decision each.

A proposal is admitted when its check completed from a faithful copy and its raw gain is above 0.05 on exact fractions; of
several, the one with the largest gain, ties to the smaller edit, then to the earlier one (SPEC A3.1, A3.2). Everything else is
refused with a reason and kept. The rule has a version, stored with each decision, so that old evidence can be judged again.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

from mulligan.records import Check, Decision, Proposal, Reason

Size = Callable[[Proposal], float]

RULE = "gain>1/20;one-per-failure;v1"
UNVERIFIED = "first-proposal;unverified;v1"
THRESHOLD = Fraction(1, 20)


def decide(checks: Sequence[Check], *, size: Size, threshold: Fraction = THRESHOLD) -> list[Decision]:
    """One decision a check, in order; at most one admits. `size` measures an edit: smaller wins a tie."""
    passing = [(-c.gain, size(c.proposal), place) for place, c in enumerate(checks) if _fault(c, threshold) is None]
    best = min(passing)[2] if passing else None
    return [
        Decision(
            proposal=c.proposal,
            check=c,
            rule=RULE,
            reason=_fault(c, threshold) or ("admitted" if place == best else "beaten"),
        )
        for place, c in enumerate(checks)
    ]


def _fault(check: Check, threshold: Fraction) -> Reason | None:
    if not check.replayed or check.state_before != check.state_after:
        return "replay_differs"
    if not check.changed.completed or not check.original.completed:
        return "not_completed"
    if check.gain <= threshold:
        return "no_gain"
    return None


def decide_unverified(proposals: Sequence[Proposal]) -> list[Decision]:
    """The arm without verification: the first proposal becomes advice, unchecked (SPEC A6)."""
    return [
        Decision(proposal=p, rule=UNVERIFIED, reason="admitted_unverified" if place == 0 else "over_limit")
        for place, p in enumerate(proposals)
    ]
