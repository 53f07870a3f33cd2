"""Other steps from a page of the shop: what one would try who reads the instruction, the page and the signals.

In: the page, the instruction, the failed action and its signals. Out: proposals, best first. On a product's page options whose words the
instruction or a signal has, buying when these are chosen, the way back; on a page of results the products that share most words with it,
those below the price limit first; everywhere searches made of its words. The goal is not known here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from mulligan.records import Condition, Proposal, Signal
from mulligan.worlds.shop_catalogue import Catalogue, Product
from mulligan.worlds.shop_pages import BACK, BUY, NEXT, PREVIOUS, Page, buttons, options, results
from mulligan.worlds.shop_words import content, limit, searches, words

PRODUCTS, OPTIONS = 5, 6  # offered of a page


def edits(
    page: Page, shop: Catalogue, instruction: str, action: str, signals: Sequence[Signal], tokens: Callable[[str], Sequence[str]]
) -> Iterator[Proposal]:
    """Proposals of steps other than `action`, each once."""
    why = "; ".join(f"{signal.kind}: {signal.what}" for signal in signals)[:240]
    said, seen = tokens(action), set[str]()
    old = said[0][:80] if said else "(nothing)"
    for proposer, step in _steps(page, shop, instruction, signals):
        if step not in seen and list(tokens(step)) != list(said):
            seen.add(step)
            yield Proposal(action=step, edit=f"{old} → {step}", why=why, condition=_CONDITIONS[proposer], proposer=f"op:{proposer}")


_NAMED = Condition(kind="predicate", text="the task names an option", predicate='"colour" in asks or "size" in asks or "pack" in asks')
_CONDITIONS = defaultdict(Condition, option=_NAMED)


def _steps(page: Page, shop: Catalogue, instruction: str, signals: Sequence[Signal]) -> Iterator[tuple[str, str]]:
    there, asked = buttons(page, shop), content(instruction)
    queries = [query for query in dict.fromkeys(searches(instruction)) if query and query != page.query]
    back = [("back", f"click[{label}]") for label in (PREVIOUS, BACK) if label in there]
    if page.product:
        wrong = {signal.where for signal in signals} & {"kind", "price", "attribute"}
        missed = [word for signal in signals if signal.what.startswith("not chosen") for word in words(signal.what[10:])]
        first, other = _options(page, shop.products[page.product], [*asked, *missed]) if BUY in there else ([], [])
        buy = [("buy", f"click[{BUY}]")] if BUY in there else []
        fits = [[("option", f"click[{label}]") for label in labels[:OPTIONS]] for labels in (first, other)]
        forward = [*fits[0], *fits[1], *buy] if missed else [*fits[0], *buy, *fits[1]]
        yield from [*back[:1], *forward, *back[1:]] if wrong else [*forward, *back]
    elif page.query:
        yield from (("product", f"click[{product.id}]") for product in _products(page, shop, instruction, asked))
        if NEXT in there:
            yield "next", f"click[{NEXT}]"
    yield from (("search", f"search[{query}]") for query in queries)
    if not page.product:
        yield from back


def _options(page: Page, product: Product, wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Labels of options that have wanted words, by the share of their words that is wanted, then by how many: those of which nothing is
    chosen yet, and those that would take the place of a choice.
    """
    chosen, ranked = dict(page.chosen), []
    for place, (label, name, value) in enumerate(options(product)):
        mine = words(value)
        shared = sum(word in wanted for word in mine)
        if shared and chosen.get(name) != value:
            ranked.append((-Fraction(shared, len(mine)), -shared, place, name in chosen, label))
    ranked.sort()
    return [label for *_, again, label in ranked if not again], [label for *_, again, label in ranked if again]


def _products(page: Page, shop: Catalogue, instruction: str, asked: Sequence[str]) -> list[Product]:
    """The products of a page of results that share most words with the instruction; what is above its limit comes last."""
    most = limit(instruction)

    def rank(product: Product) -> tuple[bool, int]:
        return most is not None and product.price > most, -len(set(words(product.title)) & set(asked))

    return sorted(results(page, shop), key=rank)[:PRODUCTS]
