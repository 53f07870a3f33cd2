"""The pages of a shop: where a visitor can be, the buttons there, and the page as text.

In: a catalogue and a page. Out: its buttons with where they lead, and text in which a button reads `[button] Buy Now [button_]`, as in
WebShop's rich text mode. Labels go without regard to case. The shop's own buttons come first: an option that is written like one, or like
an option before it, is shown as "name: value". Texts of a catalogue hold no square brackets, so what is between them is a button.
Departures: no ratings, reviews and pictures, and the instruction is not repeated on every page.
"""

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from mulligan.worlds.shop_catalogue import Catalogue, Product

PER_PAGE = 10
LONGEST = 2_000  # characters of an action with the thoughts around it
QUERY = 200
SHOWN = 200  # characters of a title among results
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
VIEWS = ("Description", "Features")
_ACTION = re.compile(r"(search|click)\s*\[([^\[\]]*)\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: the search page, results of `query`, one `product` with what is `chosen`, one of its `views`, or the end."""

    query: str = ""
    number: int = 1
    product: str = ""
    chosen: tuple[tuple[str, str], ...] = ()
    view: str = ""
    bought: bool = False


START = Page()


def read_action(action: str) -> tuple[str, str]:
    """The verb and the argument of the one line that is an action; ("", what is wrong) otherwise."""
    if len(action) > LONGEST:
        return "", f"{len(action)} characters, more than {LONGEST}"
    found = [match for text in action.splitlines() if (match := _ACTION.fullmatch(text.strip()))]
    if len(found) > 1:
        return "", f"{len(found)} actions where one is wanted"
    if not found or not (argument := folded(found[0].group(2))):
        return "", "no line is search[words] or click[button]"
    return found[0].group(1).lower(), argument


def folded(label: str) -> str:
    """A label or a query without regard to case and spacing, and without half surrogate pairs."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", " ", label).casefold().split())


def results(page: Page, shop: Catalogue) -> list[Product]:
    """The products on a page of results."""
    start = PER_PAGE * (page.number - 1)
    return [shop.products[found] for found in shop.search(page.query)[start : start + PER_PAGE]]


def buttons(page: Page, shop: Catalogue) -> dict[str, Page]:
    """The buttons of a page in their order, each with the page that it leads to."""
    if page.bought or not page.query:
        return {}
    up = {BACK: Page()}
    if not page.product:
        if page.number > 1:
            up[PREVIOUS] = replace(page, number=page.number - 1)
        if PER_PAGE * page.number < len(shop.search(page.query)):
            up[NEXT] = replace(page, number=page.number + 1)
        return up | {product.id: replace(page, product=product.id) for product in results(page, shop)}
    if page.view:
        return up | {PREVIOUS: replace(page, view="")}
    up[PREVIOUS] = replace(page, product="", chosen=())
    up |= {view: replace(page, view=view) for view in VIEWS} | {BUY: replace(page, bought=True)}
    for label, name, value in options(shop.products[page.product]):
        up[label] = replace(page, chosen=tuple(sorted({**dict(page.chosen), name: value}.items())))
    return up


def options(product: Product) -> Iterator[tuple[str, str, str]]:
    """The labels of a product's options, each with its name and value; what two labels could be meant by is left out."""
    taken = {folded(label) for label in (BACK, PREVIOUS, BUY, *VIEWS)}
    for name, values in product.options.items():
        for value in values:
            label = value if folded(value) not in taken else f"{name}: {value}"
            if folded(label) not in taken:
                taken.add(folded(label))
                yield label, name, value


def render(page: Page, shop: Catalogue, visited: Set[str]) -> str:
    """A page as text. `visited` are ids of products that were looked at."""
    if page.bought:
        return f"Thank you for shopping with us!\nYou have bought {shop.products[page.product].title}."
    if not page.query:
        return "Search for a product.\n[button] Search [button_]"
    lines = [_button(label) for label in buttons(page, shop) if label in (BACK, PREVIOUS)]
    if not page.product:
        total = len(shop.search(page.query))
        lines.append(f"Page {page.number} (Total results: {total})")
        lines += [_button(label) for label in buttons(page, shop) if label == NEXT]
        for item in results(page, shop):
            lines += [_button(item.id, item.id in visited), _short(item.title), item.tag]
        return "\n".join(lines)
    item = shop.products[page.product]
    if page.view:
        return "\n".join([*lines, *(item.bullets if page.view == "Features" else [item.description])])
    name = ""
    for label, group, value in options(item):
        lines += [group] * (group != name)
        name = group
        lines.append("  " + _button(label, (group, value) in page.chosen))
    return "\n".join([*lines, item.title, f"Price: {item.tag}", *map(_button, VIEWS), _button(BUY)])


def _button(label: str, clicked: bool = False) -> str:
    return f"[clicked button] {label} [clicked button_]" if clicked else f"[button] {label} [button_]"


def _short(title: str) -> str:
    return title if len(title) <= SHOWN else f"{title[: SHOWN - 1]}…"
