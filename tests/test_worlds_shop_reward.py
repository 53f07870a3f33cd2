"""What the shop world is made of: its reward by hand, words and limits of an instruction, prices, the one action of a reply."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.conditions import holds
from mulligan.worlds.shop_catalogue import Product, read_price
from mulligan.worlds.shop_pages import read_action
from mulligan.worlds.shop_reward import Goal, alike, has_attribute, is_option, kind_share, score
from mulligan.worlds.shop_words import COLOURS, colour, content, facts, limit, searches, words


def product(title: str = "Nordlys Desk Lamp", price: str = "$30.00", **changes: Any) -> Product:
    paid, tag = read_price(price)
    made: dict[str, Any] = {
        "id": "A1",
        "title": title,
        "price": paid,
        "tag": tag,
        "kind": "desk lamps",
        "path": ("Home", "Lighting", "Desk Lamps"),
        "attributes": ("dimmable", "easy assemble"),
        "bullets": ("Clamps to a table.", "Lasts for years."),
        "description": "A lamp for reading.",
        "options": {"color": ("forest green", "black"), "size": ("small", "x-small"), "style": ("clamp base", "round base")},
    }
    return Product(**{**made, **changes})


def goal(**changes: Any) -> Goal:
    made: dict[str, Any] = {
        "title": "Nordlys Desk Lamp",
        "kind": "desk lamps",
        "path": ("Home", "Lighting", "Desk Lamps"),
        "attributes": ("dimmable",),
        "options": ("green", "small"),
        "limit": Fraction(40),
    }
    return Goal(**{**made, **changes})


# ---- reward ----

GREEN, SMALL = ("color", "forest green"), ("size", "small")
REWARDS: list[tuple[Product, tuple[tuple[str, str], ...], Goal, Fraction, list[str]]] = [
    (product(), (GREEN, SMALL), goal(), Fraction(1), []),
    (product(), (GREEN,), goal(), Fraction(3, 4), ["not chosen: small"]),
    (product(), (), goal(), Fraction(1, 2), ["not chosen: green", "not chosen: small"]),
    (product(), (GREEN, ("size", "x-small")), goal(), Fraction(3, 4), ["not chosen: small"]),  # sizes are the same or they are not
    (product(price="$40.00"), (GREEN, SMALL), goal(), Fraction(1), []),
    (product(price="$35.00 to $40.01"), (GREEN, SMALL), goal(), Fraction(3, 4), ["$40.01 is above $40.00"]),
    (product(price=""), (GREEN, SMALL), goal(), Fraction(3, 4), ["$100.00 is above $40.00"]),
    (product(price=""), (GREEN, SMALL), goal(limit=None), Fraction(1), []),
    (product(), (GREEN, SMALL), goal(attributes=("dimmable", "waterproof")), Fraction(4, 5), ["not found: waterproof"]),
    (product(), (), goal(attributes=("Lasts for years", "for reading"), options=()), Fraction(1), []),  # in bullets and description
    (product(), (GREEN, SMALL), goal(options=()), Fraction(1), []),  # the original would give 2 for 1
    (
        product("Blank Wall Sconce", kind="sconces", path=("Home",)),
        (GREEN, SMALL),
        goal(),
        Fraction(0),
        ["another kind of product is wanted"],
    ),
    (product("Tall Lamp", kind="lamps", path=("Home",)), (GREEN, SMALL), goal(), Fraction(1), []),  # a third of the names
    (
        product("Other Lamp", kind="lamps", path=("Home",)),
        (GREEN,),
        goal(title="Nordlys Brim Duo Bright Clip Lamp"),
        Fraction(3, 8),
        ["another kind of product is wanted", "not chosen: small"],
    ),
    (product("Other Lamp", kind="lamps"), (GREEN, SMALL), goal(title="Nordlys Brim Duo Bright Clip Lamp"), Fraction(1), []),  # categories
    (
        product("Lamp"),
        (GREEN, SMALL),
        goal(title=f"Lamp {'Aa Bb Cc Dd Ee Ff Gg Hh Ii Jj Kk'}"),
        Fraction(1, 10),
        ["another kind of product is wanted"],
    ),
    (product("12 34"), (GREEN, SMALL), goal(title="56 78"), Fraction(1), []),  # titles without names: query and categories decide
]


@pytest.mark.parametrize(("bought", "chosen", "wanted", "reward", "missing"), REWARDS)
def test_the_reward_by_hand(
    bought: Product, chosen: tuple[tuple[str, str], ...], wanted: Goal, reward: Fraction, missing: list[str]
) -> None:
    found = score(bought, chosen, wanted)
    assert (found.reward, [signal.what for signal in found.missing]) == (reward, missing)
    assert {signal.kind for signal in found.missing} <= {"unsatisfied"}


def test_what_is_alike() -> None:
    assert alike("essential oil", "essential oils") and alike("Easy-Assemble!", "easy assemble")
    assert not alike("tea bag", "tea tree") and not alike("", "") and not alike("!!", "green")
    assert is_option("color", "black forest", "black") and is_option("color", "sage green", "light green")
    assert not is_option("color", "black", "white") and is_option("scent", "peach", "peach mango")
    assert colour("standard") == "standard" and colour("Dark Red and blue") == "red"
    assert has_attribute(product(), "DIMMABLE") and not has_attribute(product(), "waterproof")
    assert kind_share(product("adidas Unisex-Adult Issue 2 Indoor Court Shoe", kind="a", path=()), goal(title="adidas Issue 2 Shoe")) == 1


@given(
    st.lists(st.sampled_from([GREEN, SMALL, ("style", "clamp base"), ("color", "black")]), max_size=4),
    st.lists(st.sampled_from(["green", "small", "clamp base", "lamp", "round"]), max_size=4).map(tuple),
    st.lists(st.sampled_from(["dimmable", "reading", "heavy"]), max_size=3).map(tuple),
    st.sampled_from([None, Fraction(29), Fraction(30)]),
)
def test_a_reward_is_a_share_and_one_misses_nothing(chosen: Any, options: Any, attributes: Any, most: Fraction | None) -> None:
    found = score(product(), tuple(dict(chosen).items()), goal(options=options, attributes=attributes, limit=most))
    assert 0 <= found.reward <= 1
    assert (found.reward == 1) == (not found.missing)


# ---- words ----


def test_an_instruction_is_read() -> None:
    text = "i need a red running shoe, size 9, pack of 2, and price lower than 1,040.50 dollars"
    assert limit(text) == Fraction("1040.5") and limit("a red lamp under the price of gold") is None
    assert content(text) == ["red", "running", "shoe", "9", "pack", "2"]
    found = facts(text)
    assert (found["asks"], found["colours"], found["limit"]) == (["colour", "pack", "price"], ["red"], 1040.5)
    assert found["gist"] == "i need a colour running shoe, size number , pack"
    assert holds('"colour" in asks and limit > 1000', found)
    assert list(searches("find me a dimmable desk lamp that is green")) == [
        "dimmable desk lamp green",
        "dimmable desk lamp",
        "dimmable desk lamp",
    ]
    assert words("Men's Socks & DRESSES, glass №5") == ["men", "s", "sock", "dresse", "glass", "no5"]
    assert "tan" in COLOURS and facts("") == {"asks": [], "words": [], "colours": [], "length": 0, "gist": ""}


ACTIONS = [
    ("search[ Red  Shoes ]", ("search", "red shoes")),
    ("Click[Buy Now]", ("click", "buy now")),
    ("click [< Prev]", ("click", "< prev")),
    ("I take it.\n\nclick[B01]\n", ("click", "b01")),
    ("search[a\x00b\ud800]", ("search", "a b")),
]
NO_ACTIONS = [
    "",
    "buy",
    "search[]",
    "search[ \x00 ]",
    "click[a] click[b]",
    "click[a]\nclick[b]",
    "click[[button] a [button_]]",
    "search[a",
    "xclick[a]",
]


def test_one_line_is_the_action() -> None:
    assert [read_action(text) for text, _ in ACTIONS] == [wanted for _, wanted in ACTIONS]
    assert [read_action(text)[0] for text in NO_ACTIONS] == [""] * len(NO_ACTIONS)
    assert "characters" in read_action(f"click[{'a' * 3000}]")[1] and "2 actions" in read_action("click[a]\nclick[b]")[1]


PRICES = [
    ("$10.00", 10),
    ("$10.00 to $20.00", 20),
    ("$1,234.50", Fraction("1234.5")),
    ("", 100),
    (None, 100),
    (["$7"], 7),
    (12.5, Fraction("12.5")),
]
PRICES += [
    ("free", 100),
    ("$" + "9" * 5000, 100),
    (True, 100),
    ({}, 100),
    ("$20 to $10 to $30", 20),
    (float("inf"), 100),
    ("$0.00", 0),
    ("-5", 5),
]


def test_prices_in_any_writing() -> None:
    assert [read_price(value)[0] for value, _ in PRICES] == [wanted for _, wanted in PRICES]
    assert read_price("$10 to $20")[1] == "$10.00 to $20.00"
