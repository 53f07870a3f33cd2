"""Loads WebShop: a product file, the attributes of its products, and goals.

In: paths of `items_shuffle*.json`, `items_ins_v2*.json` and `items_human_ins.json`. Out: tasks of the shop world and a LoadReport that
counts goals. The agent is shown the instruction with its price limit; attributes, options and limit are in the payload. The original
draws each limit anew at every start, the larger of two among the next four multiples of ten dollars above the product's price; here the
draw depends on product and instruction alone. A task's group is its product's kind (the query that its page was found by). Goals that not
even their own product meets are left out unless asked for. Not promised: that a search finds the product.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from mulligan.errors import InvalidData
from mulligan.nouns import content_id
from mulligan.records import Task
from mulligan.tasks.files import SHARES, dealt
from mulligan.tasks.loading import LeftOut, LoadReport, Node, normalised, read_json
from mulligan.worlds.shop_catalogue import Catalogue, Product, line, load_catalogue, option
from mulligan.worlds.shop_reward import Goal, as_goal, best_options, score

STEPS = 15  # of an episode, as agents of the literature are given
HIGHEST = 990  # dollars, of a limit
INSTRUCTION = 2_000


def load_webshop(
    products: str | Path,
    goals: str | Path,
    *,
    attributes: str | Path | None = None,
    steps: int = STEPS,
    reachable: bool = True,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
) -> tuple[list[Task], LoadReport]:
    """Tasks of the goals whose product is in the catalogue. `steps` are the actions of an episode; `reachable=False` keeps goals that their
    own product does not meet; `shares` and `seed` deal the kinds of products out to source, train and heldout.

    Raises UsageError for a file that cannot be read, InvalidData that names file and place for one that is no such file.
    """
    if steps < 1:
        raise InvalidData(f"steps must be at least 1, not {steps}")
    files = {"products": str(Path(products).resolve()), "attributes": str(Path(attributes).resolve()) if attributes else ""}
    shop = load_catalogue(files["products"], files["attributes"])
    left_out: Counter[LeftOut] = Counter()
    tasks: dict[tuple[str, str], Task] = {}
    nodes = [(asin, node) for asin, listed in read_json(goals).pairs().items() for node in listed.items()]
    for asin, node in nodes:
        made = _made(asin, node, shop, files, steps)
        if made is None:
            left_out["excluded" if asin.upper() in shop.products else "no_gold"] += 1
        elif reachable and not _met(shop.products[asin.upper()], made):
            left_out["gold_fails"] += 1
        elif (key := (asin, normalised(made.prompt))) in tasks:
            left_out["duplicate"] += 1
        else:
            tasks[key] = made
    return dealt(list(tasks.values()), left_out, file=goals, read=len(nodes), what="goal", shares=shares, seed=seed)


def _made(asin: str, node: Node, shop: Catalogue, files: dict[str, str], steps: int) -> Task | None:
    """The task of one goal; None when it has no product here or, as some of the original's, no attributes."""
    said = line(node.at("instruction").text(), INSTRUCTION).strip(" .")
    attributes = [line(item.text(), 200) for item in node.at("instruction_attributes").items()]
    options = [option(item.text()) for item in _values(node.get("instruction_options"))]
    product = shop.products.get(asin.upper())
    if product is None or not attributes or not said:
        return None
    limit = _limit(product.price, content_id("", [product.id, normalised(said)]))
    bound = "" if limit is None else f", and price lower than {limit}.00 dollars"
    kind = product.kind or (product.path[-1] if product.path else product.id)
    gold = as_goal(product, attributes, options, None if limit is None else Fraction(limit))
    return Task(
        id=f"webshop/{product.id}-{content_id('', [said, attributes, options])[1:9]}",
        domain="shop",
        benchmark="webshop",
        group=kind,
        split="source",
        prompt=said + bound,
        payload={**files, "gold": gold, "steps": steps},
    )


def _values(node: Node | None) -> list[Node]:
    """The wanted options: a list, or an object by name; nothing where a goal has none."""
    if node is None or node.value is None:
        return []
    return list(node.pairs().values()) if isinstance(node.value, dict) else node.items()


def _limit(price: Fraction, name: str) -> int | None:
    """The larger of two of the next four multiples of ten above `price`, drawn by `name`; None where there are not two."""
    above = range(10 * (int(price) // 10 + 1), HIGHEST + 1, 10)[:4]
    pairs = [above[high] for high in range(1, len(above)) for _ in range(high)]
    return pairs[int(name[1:9], 16) % len(pairs)] if pairs else None


def _met(product: Product, task: Task) -> bool:
    goal = Goal.read(task.payload["gold"])
    return score(product, best_options(product, goal), goal).reward == 1
