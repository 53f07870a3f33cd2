"""WebShop's reward for a product with chosen options, as an exact fraction, and what of the goal it does not meet.

reward = kind x (attributes + options + price) / (wanted attributes + wanted options + 1) (Yao et al. 2022, section 3). An attribute
counts when one of the product's is alike (token set ratio above 85) or its text holds it; an option when a chosen value is alike after
colours are reduced to their first (sizes: is the same) or the product's text holds it; the price when it is at most the limit. The kind
is 1 where query, two categories, or more than a fifth of the wanted title's names agree, else 1/2; 1/10 below a tenth of the names, 0
without any. Departures: names of a title are its words without function words and numbers (the original takes what spaCy tags as nouns);
a colour is a whole word of our own list (the original finds "tan" in "standard"); and no more options count than are wanted (the original
counts every chosen value, which can make the reward larger than 1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rapidfuzz import fuzz, utils

from mulligan.errors import UsageError
from mulligan.nouns import Json
from mulligan.records import Signal
from mulligan.worlds.shop_catalogue import Product, dollars
from mulligan.worlds.shop_words import colour, names

ALIKE = 85
Chosen = tuple[tuple[str, str], ...]  # option names with the values that were clicked


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted, as the world knows it; `limit` is in dollars, None where there is none."""

    title: str
    kind: str
    path: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    limit: Fraction | None

    @classmethod
    def read(cls, value: Json) -> "Goal":
        """The goal in a task's payload. Raises UsageError when it is none."""
        try:
            path, attributes, options = (tuple(map(_text, value[name])) for name in ("path", "attributes", "options"))
            limit = None if value["limit"] is None else Fraction(value["limit"])
            return cls(_text(value["title"]), _text(value["kind"]), path, attributes, options, limit)
        except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise UsageError(f"a goal has title, kind, path, attributes, options and limit: {error!r}") from error


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of buying, and what is not met: signals whose `where` is kind, price, attribute or option."""

    reward: Fraction
    missing: tuple[Signal, ...]


@lru_cache(maxsize=20_000)
def score(product: Product, chosen: Chosen, goal: Goal) -> Score:
    """What buying `product` with the options `chosen` would earn."""
    kind = kind_share(product, goal)
    attributes = [wanted for wanted in goal.attributes if has_attribute(product, wanted)]
    values = dict(chosen)
    matched = min(sum(has_option(product, name, value, goal.options) for name, value in values.items()), len(goal.options))
    cheap = goal.limit is None or product.price <= goal.limit
    reward = kind * Fraction(len(attributes) + matched + cheap, len(goal.attributes) + len(goal.options) + 1)
    missing = [] if kind == 1 else [_missing("kind", "another kind of product is wanted")]
    if goal.limit is not None and not cheap:
        missing.append(_missing("price", f"{dollars(product.price)} is above {dollars(goal.limit)}"))
    missing += [_missing("attribute", f"not found: {wanted}") for wanted in goal.attributes if wanted not in attributes]
    if matched < len(goal.options):
        left = [wanted for wanted in goal.options if not any(is_option(name, value, wanted) for name, value in values.items())]
        missing += [_missing("option", f"not chosen: {wanted}") for wanted in left or goal.options[matched:]]
    return Score(reward, tuple(missing))


def _missing(where: str, what: str) -> Signal:
    return Signal(kind="unsatisfied", what=what, where=where)


def kind_share(product: Product, goal: Goal) -> Fraction:
    """How far the product is of the wanted kind: 1, 1/2, 1/10 or 0."""
    wanted = names(goal.title)
    share = Fraction(len(set(wanted) & set(names(product.title))), len(wanted)) if wanted else Fraction(1, 5)
    if share < Fraction(1, 10):
        return Fraction(1, 10) if share else Fraction(0)
    same = product.kind == goal.kind or len(set(product.path) & set(goal.path)) >= 2 or share > Fraction(1, 5)
    return Fraction(1) if same else Fraction(1, 2)


def has_attribute(product: Product, wanted: str) -> bool:
    """Whether the product's attributes or texts have it."""
    return any(alike(mine, wanted) for mine in product.attributes) or wanted.lower() in product.text


def has_option(product: Product, name: str, value: str, wanted: Sequence[str]) -> bool:
    """Whether a chosen value counts for one of the wanted ones."""
    return bool(wanted) and (any(is_option(name, value, one) for one in wanted) or colour(value) in product.text)


def is_option(name: str, value: str, wanted: str) -> bool:
    """Whether a chosen value is the wanted one, up to writing and shade; sizes only if they are the same."""
    mine, other = colour(value), colour(wanted.lower())
    return mine == other if name == "size" else alike(other, mine)


def alike(one: str, other: str) -> bool:
    """Token set ratio above 85 of 100, without case and punctuation."""
    return round(fuzz.token_set_ratio(one, other, processor=utils.default_process)) > ALIKE


def best_options(product: Product, goal: Goal) -> Chosen:
    """The values that a buyer who knows the goal would click: of each option the first that is wanted, else one that counts."""
    found: dict[str, str] = {}
    for name, values in product.options.items():
        fits = [value for value in values if any(is_option(name, value, wanted) for wanted in goal.options)]
        exact = [value for value in fits if value in goal.options]
        if counted := [*exact, *fits, *(value for value in values if has_option(product, name, value, goal.options))]:
            found[name] = counted[0]
    return tuple(found.items())


def as_goal(product: Product, attributes: Sequence[str], options: Sequence[str], limit: Fraction | None) -> Mapping[str, Json]:
    """A goal that `product` meets, as a payload holds it."""
    return {
        "title": product.title,
        "kind": product.kind,
        "path": list(product.path),
        "attributes": list(attributes),
        "options": list(options),
        "limit": None if limit is None else str(limit),
    }
