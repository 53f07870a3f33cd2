"""The loader of WebShop: its formats, what is left out, the sample, the public goals, and ten thousand broken files."""

import json
import random
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import InvalidData, UsageError
from mulligan.tasks.sample import DATA, load_shop
from mulligan.tasks.shop import load_webshop
from mulligan.tasks.splits import check_splits
from mulligan.worlds.shop import ShopWorld
from mulligan.worlds.shop_words import content, facts, limit, searches
from test_tasks_hostile import MUTATIONS, damaged, outcome, rearranged

PRODUCTS: list[dict[str, Any]] = [
    {
        "asin": "B01LAMP001",
        "name": "Nordlys Desk Lamp with Clamp",
        "pricing": "$30.00 to $34.90",
        "category": "garden",
        "query": "Desk Lamps ",
        "product_category": "Home › Lighting › Desk Lamps",
        "full_description": "A lamp.",
        "small_description": ["Clamps to a table.", "Dimmable."],
        "customization_options": {"Color": [{"value": "Sage/Green", "image": None}, {"value": "Black"}], "Size": None},
        "images": ["x.jpg"],
    },
    {
        "asin": "B02SOCK002",
        "name": "Wool Socks",
        "pricing": "",
        "query": "socks",
        "customization_options": "",
        "small_description": "Warm.",
    },
    {"asin": "nan", "name": ""},
]
ATTRIBUTES = {"B01LAMP001": {"attributes": ["dimmable"], "instruction": "unused"}, "B02SOCK002": {}}
GOALS: dict[str, list[dict[str, Any]]] = {
    "B01LAMP001": [
        {"instruction": "i want a dimmable lamp in green.", "instruction_attributes": ["dimmable"], "instruction_options": ["sage/green"]},
        {"instruction": "I want a dimmable lamp in green!", "instruction_attributes": ["dimmable"], "instruction_options": ["sage/green"]},
        {"instruction": "no attributes", "instruction_attributes": [], "instruction_options": []},
        {"instruction": "a waterproof lamp", "instruction_attributes": ["waterproof"], "instruction_options": []},
        {"instruction": "a dimmable red lamp", "instruction_attributes": ["dimmable"], "instruction_options": {"color": "red"}},
    ],
    "B02SOCK002": [{"instruction": "warm socks", "instruction_attributes": ["warm"], "instruction_options": []}],
    "B09MISSING": [{"instruction": "something", "instruction_attributes": ["warm"], "instruction_options": []}],
}


def written(folder: Path, products: Any = PRODUCTS, attributes: Any = ATTRIBUTES, goals: Any = GOALS) -> dict[str, Path]:
    paths = {name: folder / f"{name}.json" for name in ("products", "attributes", "goals")}
    for path, value in zip(paths.values(), (products, attributes, goals), strict=True):
        path.write_text(json.dumps(value))
    return paths


def test_goals_become_tasks(tmp_path: Path) -> None:
    tasks, report = load_webshop(**written(tmp_path), steps=9)
    lamp, socks = tasks
    assert report.left_out == {"duplicate": 1, "excluded": 1, "gold_fails": 2, "no_gold": 1} and (report.read, report.kept) == (7, 2)
    assert lamp.prompt.startswith("i want a dimmable lamp in green, and price lower than ")
    most = limit(lamp.prompt)
    assert most in (50, 60, 70) and Fraction(lamp.payload["gold"]["limit"]) == most
    assert (lamp.group, socks.group) == ("desk lamps", "socks") and lamp.payload["steps"] == 9
    assert lamp.payload["gold"]["options"] == ["sage | green"] and lamp.payload["gold"]["attributes"] == ["dimmable"]
    assert limit(socks.prompt) in (120, 130, 140)  # without a price it costs 100
    assert load_webshop(**written(tmp_path), steps=9)[0] == tasks
    with ShopWorld().start(lamp) as state:
        for action in ("search[lamp]", "click[b01lamp001]", "click[sage | green]", "click[buy now]"):
            verdict = ShopWorld().act(state, action)
    assert verdict.solved
    everything, _ = load_webshop(**written(tmp_path), reachable=False)
    assert len(everything) == 4


def test_limits_are_among_the_next_four_tens() -> None:
    drawn: Counter[int] = Counter()
    for task in load_shop():
        price = Fraction(task.payload["gold"]["limit"])
        drawn[int(price)] += 1
        assert price % 10 == 0
    assert len(drawn) > 4


def test_dear_products_have_no_limit(tmp_path: Path) -> None:
    dear = [{**PRODUCTS[0], "pricing": "$995.00"}]
    tasks, _ = load_webshop(**written(tmp_path, dear, goals={"B01LAMP001": GOALS["B01LAMP001"][:1]}))
    assert tasks[0].prompt == "i want a dimmable lamp in green" and tasks[0].payload["gold"]["limit"] is None


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"products": {}}, "products.json: the whole file must be a list"),
    ({"products": []}, "products.json: no product"),
    ({"attributes": []}, "attributes.json: the whole file must be an object"),
    ({"goals": []}, "goals.json: the whole file must be an object"),
    ({"goals": {"B01LAMP001": {}}}, "B01LAMP001 must be a list"),
    ({"goals": {"B01LAMP001": [{}]}}, "has no 'instruction'"),
    ({"goals": {"B01LAMP001": [{"instruction": "x", "instruction_attributes": "warm"}]}}, "must be a list"),
    ({"goals": {"B09MISSING": GOALS["B09MISSING"]}}, "no goal that can be used among 1 .1 no_gold"),
    ({"goals": {}}, "no goal that can be used among 0"),
]


@pytest.mark.parametrize(("change", "says"), BROKEN)
def test_broken_files_are_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidData, match=says):
        load_webshop(**written(tmp_path, **change))


def test_missing_files_and_wrong_options(tmp_path: Path) -> None:
    paths = written(tmp_path)
    for name in paths:
        with pytest.raises(UsageError, match="cannot read"):
            load_webshop(**{**paths, name: tmp_path / "none.json"})
    with pytest.raises(InvalidData, match="steps"):
        load_webshop(**paths, steps=0)


def test_the_sample() -> None:
    tasks = load_shop()
    check_splits(tasks)
    assert Counter(task.split for task in tasks) == {"source": 20, "train": 4, "heldout": 16}
    assert len({task.group for task in tasks}) == 10 and len({task.prompt for task in tasks}) == 40
    products = json.loads((DATA / "shop" / "products.json").read_text("utf-8"))
    assert len({product["asin"] for product in products}) == len(products) == 80
    for task in tasks:
        gold = task.payload["gold"]
        told = " ".join([task.prompt, task.context, json.dumps(ShopWorld().facts(task))])
        assert gold["title"] not in told and "products.json" not in told


def test_the_public_goals_are_read(shared_data: Path) -> None:
    """A hundred goals of WebShop, without their catalogue: their instructions are cut as ours are."""
    listed = json.loads((shared_data / "expel" / "webshop.fixed100.json").read_text("utf-8"))
    said = [item["task"].removesuffix("\n[Search]\n").strip() for item in listed]
    assert sum(limit(text) is not None for text in said) == sum("price lower than" in text for text in said) == 99
    assert all(content(text) and all(searches(text)) for text in said)
    assert not any({"dollar", "price", "lower", "lowerthan"} & set(content(text)) for text in said)
    coloured = [facts(text)["colours"] for text in said]
    assert sum(map(bool, coloured)) > 25


@pytest.mark.timeout(120)  # about 4 s of work, on a busy machine much more of waiting
def test_ten_thousand_mutations_end_in_tasks_or_one_clear_error(tmp_path: Path) -> None:
    draw, seen = random.Random("shop"), Counter[tuple[str, str]]()
    good: dict[str, Any] = {"products": PRODUCTS, "attributes": ATTRIBUTES, "goals": GOALS}
    paths = written(tmp_path)
    for number in range(MUTATIONS):
        name = draw.choice(("products", "products", "goals", "goals", "attributes"))
        raw = rearranged(good[name], draw) if number % 2 else damaged(json.dumps(good[name], ensure_ascii=False).encode(), draw)
        broken = tmp_path / f"broken_{name}.json"
        broken.unlink(missing_ok=True)  # a new file is written faster than an old one is cut
        broken.write_bytes(raw)
        given = {**paths, name: broken}
        try:
            seen[name, outcome(partial(load_webshop, **given), *(path.name for path in given.values()))] += 1
        except Exception as error:
            raise AssertionError(f"mutation {number} of {name}: {raw!r}") from error
    for name in good:
        assert min(seen[name, "tasks"], seen[name, "InvalidData"]) > MUTATIONS / 50, seen


def test_damaged_catalogues_do_not_stop_a_visit(tmp_path: Path) -> None:
    draw, paths, played = random.Random(3), written(tmp_path), 0
    task = load_webshop(**paths)[0][0]
    for _ in range(150):
        paths["products"].write_bytes(rearranged(PRODUCTS, draw))
        try:
            state = ShopWorld().start(task)
        except UsageError:
            continue
        for action in ("search[lamp socks]", "click[b01lamp001]", "click[black]", "click[features]", "click[< prev]", "click[buy now]"):
            verdict = ShopWorld().act(state, action)
            assert verdict.feedback and 0 <= verdict.utility <= 1
        played += 1
    assert played > 75
