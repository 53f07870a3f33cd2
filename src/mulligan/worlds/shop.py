"""The shop world: WebShop's pages, on which an agent searches for a product, chooses its options and buys it.

In: tasks with payload {"products": path, "attributes": path or "", "gold": goal, "steps": actions allowed}; files of WebShop's format
(`shop_catalogue`), the goal as `shop_reward` reads it. Out: verdicts after every step. Utility is the reward of what was bought; before
that, the reward of buying at once what is before the visitor: the product of this page with the options chosen so far, or the best
product of a page of results as it is. So a click can be compared with buying, and with another click, from the same page. Who runs out of
steps has bought nothing: 0. Solved is only what was bought at reward 1. On held-out tasks nothing that is said depends on the goal. Not
promised: that a page with a higher utility leads to a better end.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from typing import Self

from mulligan.errors import UsageError
from mulligan.naming import fold, lacking, misfit, stands_in, vocabulary
from mulligan.nouns import Json, content_id
from mulligan.records import Misfit, Proposal, Signal, Situation, Task, Verdict
from mulligan.worlds import shop_words
from mulligan.worlds.shop_catalogue import Catalogue, open_catalogue
from mulligan.worlds.shop_edits import edits
from mulligan.worlds.shop_pages import LONGEST, QUERY, START, Page, buttons, folded, read_action, render, results
from mulligan.worlds.shop_reward import Goal, Score, is_option, score

MANUAL = (
    "You buy one product in a web shop: the one that the task describes, with the options that it names, below its price. An action is "
    "one line: search[words], or click[label] with the label of a button on the page, such as click[B0ABCDEFGH] (a product), click[blue] "
    "(an option), click[Description], click[Features], click[< Prev], click[Next >] or click[Buy Now]. Buying ends the task. Reply with a "
    "short thought if you like, and then the action alone on the last line."
)
RULES = "1"
WORDS = vocabulary("search click buy now description features reviews attributes next prev back to options page price")
STEPS = 15  # where a task does not say


@dataclass
class Visit:
    """A visit in progress: all that a later verdict depends on. A copy of it is a snapshot."""

    task: Task
    catalogue: str  # hash of its files
    page: Page = START
    seen: frozenset[Page] = frozenset({START})
    steps: int = 0

    @property
    def digest(self) -> str:
        task, seen = self.task, sorted(map(repr, self.seen))
        return content_id("shop", [task.id, task.split, task.prompt, task.payload, self.catalogue, self.page, seen, self.steps])

    @property
    def over(self) -> bool:
        return self.page.bought or self.steps >= self.task.payload.get("steps", STEPS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to release: the catalogue belongs to the process."""


@dataclass(frozen=True)
class ShopWorld:
    """No settings: a task names its catalogue."""

    name: str = "shop"
    manual: str = MANUAL

    @cached_property
    def version(self) -> str:
        return f"{RULES}-{content_id('v', [RULES, version('bm25s'), version('rapidfuzz')])[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **shop_words.facts(task.prompt)}

    def start(self, task: Task) -> Visit:
        """Raises UsageError, InvalidData when the payload names no catalogue that can be read, or holds no goal."""
        Goal.read(task.payload.get("gold"))
        steps = task.payload.get("steps", STEPS)
        if type(steps) is not int or steps < 1:
            raise UsageError(f"task {task.id}: payload['steps'] must be a number of actions, not {steps!r}")
        return Visit(task, _shop(task).version)

    def observe(self, state: Visit) -> str:
        return render(state.page, _shop(state.task), _visited(state))

    def act(self, state: Visit, action: str) -> Verdict:
        began = time.perf_counter()
        shop, goal = _shop(state.task), Goal.read(state.task.payload["gold"])
        over, before, said = state.over, state.page, list[Signal]()
        to = before if over else _lead(before, shop, action, said)
        if over:
            said.append(Signal(kind="blocked", what="the visit is over"))
        elif to == before and not said:
            said.append(Signal(kind="blocked", what="this is the page that is shown already"))
        elif to in state.seen and to != before:
            said.append(Signal(kind="repeated", what="this page was shown before"))
        if not over:
            state.page, state.seen, state.steps = to, state.seen | {to}, state.steps + 1
        if state.over and not over and not to.bought:
            said.append(Signal(kind="timeout", what=f"nothing was bought in {state.steps} steps"))
        if not over and not to.product and to.query and not shop.search(to.query):
            said.append(Signal(kind="empty_result", what=f"no product has a word of: {to.query}"))
        if state.task.split != "heldout" and to != before:
            said += _misses(to, shop, goal)
        worth = Fraction(0) if state.over and not to.bought else _worth(to, shop, goal)
        return Verdict(
            completed=True,
            utility=worth,
            solved=to.bought and worth == 1,
            feedback="\n".join([*(f"{signal.kind}: {signal.what}" for signal in said), self.observe(state)]),
            signals=tuple(said),
            done=state.over,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def save(self, state: Visit) -> Visit:
        return replace(state)

    def restore(self, snapshot: Visit) -> Visit:
        return replace(snapshot)

    def edits(self, state: Visit, action: str, verdict: Verdict) -> Iterable[Proposal]:
        """Other steps from this page, by words that it shares with the instruction and with what was missed."""
        if not state.over:
            yield from edits(state.page, _shop(state.task), state.task.prompt, action, verdict.signals, self.tokens)

    def tokens(self, action: str) -> Sequence[str]:
        """An action is one token: any other step from the same page is one exchange away."""
        verb, argument = read_action(action[: LONGEST + 1])
        text = f"{verb}[{argument}]" if verb else " ".join(re.findall(r"\S+", action[:LONGEST])).lower()
        return [text] if text else []

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        """Colours, sizes and packs of other products, and what else is named and was never seen."""
        sight, found = fold(situation.sight), lacking(situation, text, WORDS)
        return [*found, *(misfit(value) for value in shop_words.values(text[:LONGEST]) if not stands_in(value, sight))]


def _shop(task: Task) -> Catalogue:
    paths = [task.payload.get("products"), task.payload.get("attributes", "")]
    if not all(isinstance(path, str) for path in paths):
        raise UsageError(f"task {task.id} names no catalogue; put the path of a product file under payload['products']")
    return open_catalogue(*paths)


def _visited(state: Visit) -> frozenset[str]:
    return frozenset(page.product for page in state.seen if page.product)


def _lead(page: Page, shop: Catalogue, action: str, said: list[Signal]) -> Page:
    """Where an action leads; the page itself, and a word in `said`, when it does nothing."""
    verb, argument = read_action(action)
    if not verb:
        said.append(Signal(kind="too_large" if len(action) > LONGEST else "syntax", what=argument))
        return page
    if verb == "search":
        return Page(query=argument[:QUERY].strip())
    there = {folded(label): to for label, to in buttons(page, shop).items()}
    if argument not in there:
        hint = ": write search[words]" if not page.query else ""
        said.append(Signal(kind="blocked", what=f"no button of this page is {argument[:80]!r}{hint}"))
    return there.get(argument, page)


def _worth(page: Page, shop: Catalogue, goal: Goal) -> Fraction:
    """The reward of buying at once what is on the page."""
    if page.product:
        return score(shop.products[page.product], page.chosen, goal).reward
    return max((score(product, (), goal).reward for product in results(page, shop)), default=Fraction(0)) if page.query else Fraction(0)


def _misses(page: Page, shop: Catalogue, goal: Goal) -> Iterable[Signal]:
    """What a step to `page` misses, as a source task may be told: never which product is wanted."""
    if page.product:
        found = score(shop.products[page.product], page.chosen, goal).missing
        if page.bought:
            return found
        if page.chosen and not page.view:
            wrong = [value for name, value in page.chosen if not any(is_option(name, value, wanted) for wanted in goal.options)]
            return [Signal(kind="unsatisfied", what=f"not wanted: {value}", where="option") for value in wrong]
        return [signal for signal in found if signal.where != "option"] if not page.view else []
    if page.query and (products := results(page, shop)):
        scores: list[Score] = [score(product, (), goal) for product in products]
        if not any(all(signal.where == "option" for signal in one.missing) for one in scores):
            return [
                Signal(
                    kind="unsatisfied", what="no product of this page is of the kind, price and attributes that are wanted", where="page"
                )
            ]
    return []
