"""Causal credit: what a record does, from attempts in which it was withheld at random beside those in which it was shown.

In: receipts with what came of their attempts. Out: an `Effect` for each record that was chosen, and whether it harms by the rule. A record
that is used on easy tasks looks good in observation whatever it does; among attempts for which it was *chosen* a coin decided whether it
was shown, so the difference of the two means is what it does. Attempts are weighted by the inverse propensity of what was done.

Not promised: anything about records that are rarely chosen. Few attempts give a wide interval, and no verdict.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

from mulligan.nouns import noun, number_of, to_json
from mulligan.records import Receipt

RULE = "interval<0;5-of-each;v1"
LEAST = 5  # attempts with, and as many without, before a record can be said to harm
Z = 1.959964


@noun
class Effect:
    """What showing a record changed: the difference of mean utilities, with its 95 % interval; None where one side is empty."""

    record: str
    shown: int
    withheld: int
    with_record: float | None
    without: float | None
    effect: float | None
    low: float | None
    high: float | None

    @property
    def harms(self) -> bool:
        """By RULE: the whole interval lies below zero, on enough attempts of both kinds."""
        return self.high is not None and self.high < 0 and min(self.shown, self.withheld) >= LEAST


def is_withheld(scope: str, task: str, attempt: int, share: Fraction) -> bool:
    """The coin: true for `share` of all decision points, always the same for the same one."""
    return number_of(to_json(["withheld", scope, task, attempt])) < share * 2**64


def effects(results: Iterable[tuple[Receipt, float]]) -> list[Effect]:
    """The effect of every record that was shown or withheld, the worst first, those of which nothing can be said last."""
    shown: dict[str, list[tuple[float, float]]] = {}
    withheld: dict[str, list[tuple[float, float]]] = {}
    for receipt, utility in results:
        for kind, keys in ((shown, receipt.shown), (withheld, receipt.withheld)):
            for key in keys:
                kind.setdefault(key, []).append((utility, 1 / receipt.selection.propensity))
    found = [_effect(key, shown.get(key, []), withheld.get(key, [])) for key in dict.fromkeys([*shown, *withheld])]
    return sorted(found, key=lambda e: (e.effect is None, e.effect or 0.0, e.record))


def told(effect: Effect) -> str:
    """An effect in words."""
    if effect.effect is None or effect.low is None or effect.high is None:
        return f"shown {effect.shown}, withheld {effect.withheld}"
    return f"{effect.effect:+.2f} ({effect.low:+.2f} to {effect.high:+.2f}), shown {effect.shown}, withheld {effect.withheld}"


def _effect(record: str, shown: list[tuple[float, float]], withheld: list[tuple[float, float]]) -> Effect:
    one, other = _mean(shown), _mean(withheld)
    effect = low = high = None
    if one is not None and other is not None:
        effect = one - other
        # Agresti and Caffo: a success and a failure more on each side. The variance of values in [0, 1] is at most p (1 - p).
        (p, first), (q, second) = _smoothed(shown), _smoothed(withheld)
        width = Z * math.sqrt(first + second)
        low, high = (p - q) - width, (p - q) + width
    return Effect(
        record=record, shown=len(shown), withheld=len(withheld), with_record=one, without=other, effect=effect, low=low, high=high
    )


def _mean(values: list[tuple[float, float]]) -> float | None:
    """Weighted by inverse propensities (SNIPS)."""
    return sum(u * w for u, w in values) / sum(w for _, w in values) if values else None


def _smoothed(values: list[tuple[float, float]]) -> tuple[float, float]:
    """Mean and its variance with one success and one failure more, for the effective number of attempts."""
    weights = [w for _, w in values]
    size = sum(weights) ** 2 / sum(w * w for w in weights)
    mean = ((_mean(values) or 0.0) * size + 1) / (size + 2)
    return mean, mean * (1 - mean) / (size + 2)
