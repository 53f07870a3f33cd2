"""A shop's catalogue: products read from a file of WebShop's format, and search among them.

In: the bytes of `items_*.json`, and of `items_ins_*.json` for the attributes. Out: products whose texts are one line without control
characters and square brackets, so that none can pass for a button or another line of a page; and ids by rank. Ranking is BM25 as the
original's search engine has it by default (Lucene's form, k1 = 0.9, b = 0.4) over title, description, first bullet and options; equal
scores go by id. Departures: plural s is the only ending that is cut, a product with a price from .. to costs the upper one (the original
draws one at random), reviews are not read, and ids are at most ten letters and digits. Not promised: the 1.18 million products of the
full file, whose 5 GB neither `MAX_BYTES` nor a Python process hold.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import Json
from mulligan.worlds.shop_words import words

MAX_BYTES = 1 << 30
HITS = 50  # products that a search finds at most
REMEMBERED = 10_000  # searches
NO_PRICE = Fraction(100)  # of a product that names none, as in the original
VALUES, GROUPS = 200, 20  # options that are read of one product
TITLE, TEXT = 300, 4_000  # characters that are read
_GAPS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
_BRACKETS = str.maketrans("[]", "()")
_PRICE = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3}){0,3}(?:\.\d{1,4})?(?![\d,])|(?<![\d.])\d{1,9}(?:\.\d{1,4})?(?!\d)")


@dataclass(frozen=True, eq=False)
class Product:
    """One product. `kind` is the query that its page was found by, `path` its categories; prices are in dollars."""

    id: str
    title: str
    price: Fraction
    tag: str
    kind: str
    path: tuple[str, ...]
    attributes: tuple[str, ...]
    bullets: tuple[str, ...]
    description: str
    options: Mapping[str, tuple[str, ...]]

    @cached_property
    def text(self) -> str:
        """Where a wanted word may stand: title, bullets and description in small letters."""
        return "\n".join([self.title, " ".join(self.bullets), self.description]).lower()

    @property
    def indexed(self) -> str:
        """What a search looks at."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.bullets[:1], options])


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Products by id. `version` is the hash of the files they were read from, `left_out` counts entries that are no product."""

    products: Mapping[str, Product]
    version: str
    left_out: int = 0
    _found: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def search(self, query: str) -> tuple[str, ...]:
        """Ids of the products that have a word of `query`, best first, at most `HITS`."""
        found = self._found.get(query)
        if found is None:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            found = self._found[query] = self._rank(words(query))
        return found

    def _rank(self, wanted: list[str]) -> tuple[str, ...]:
        index, ids = self._index
        known = [index.vocab_dict[word] for word in wanted if index is not None and word in index.vocab_dict]
        if not known:
            return ()
        scores = np.round(index.get_scores_from_ids(known), 4)
        least = np.partition(scores, -HITS)[-HITS] if len(scores) > HITS else 0
        places = np.flatnonzero((scores >= least) & (scores > 0))
        return tuple(ids[place] for place in sorted(places, key=lambda place: (-scores[place], ids[place]))[:HITS])

    @cached_property
    def _index(self) -> tuple[Any, list[str]]:
        """The index, None where no product has a word, and the ids in its order."""
        vocabulary: dict[str, int] = {}
        ids = list(self.products)
        texts = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(product.indexed)] for product in self.products.values()]
        if not vocabulary:
            return None, ids
        index = bm25s.BM25(k1=0.9, b=0.4, method="lucene", csc_backend="numpy")
        index.index((texts, vocabulary), show_progress=False)
        return index, ids


def open_catalogue(products: str, attributes: str = "") -> Catalogue:
    """The catalogue in these files, read once a process and again when they change. Raises UsageError, InvalidData."""
    return _opened(_stamp(products), _stamp(attributes) if attributes else None)


def _stamp(path: str) -> tuple[str, int, int, int]:
    try:
        found = Path(path).stat()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    return path, found.st_ino, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=2)
def _opened(products: tuple[str, int, int, int], attributes: tuple[str, int, int, int] | None) -> Catalogue:
    return load_catalogue(products[0], attributes[0] if attributes else "")


def load_catalogue(products: str, attributes: str = "") -> Catalogue:
    """As `open_catalogue`, but read anew."""
    raw, more = _bytes(products), _bytes(attributes) if attributes else b"{}"
    entries, traits = _json(raw, products), _json(more, attributes)
    if not isinstance(entries, list):
        raise InvalidData(f"{products}: the whole file must be a list of products")
    if not isinstance(traits, dict):
        raise InvalidData(f"{attributes}: the whole file must be an object of products' attributes by id")
    found: dict[str, Product] = {}
    for entry in entries:
        product = _product(entry, traits)
        if product is not None:
            found.setdefault(product.id, product)  # the first of several with one id, as in the original
    if not found:
        raise InvalidData(f"{products}: no product that can be used among {len(entries)}: each needs an asin and a name")
    version = hashlib.sha256(b"%d %b %b" % (len(raw), raw, more)).hexdigest()[:24]
    return Catalogue(found, version, len(entries) - len(found))


def _bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > MAX_BYTES:
        raise InvalidData(f"{path}: more than {MAX_BYTES >> 20} MiB")
    return raw


def _json(raw: bytes, path: str) -> Json:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"{path}: {error}") from error


def _product(entry: Json, traits: Mapping[str, Json]) -> Product | None:
    """The product of one entry; None when it has no id or no name."""
    if not isinstance(entry, dict) or not isinstance(entry.get("asin"), str) or not re.fullmatch(r"[A-Za-z0-9]{1,10}", entry["asin"]):
        return None
    title = line(entry.get("name"), TITLE)
    if not title:
        return None
    price, tag = read_price(entry.get("pricing"))
    mine = traits.get(entry["asin"])
    return Product(
        id=entry["asin"].upper(),
        title=title,
        price=price,
        tag=tag,
        kind=line(entry.get("query"), TITLE).lower(),
        path=tuple(filter(None, (part.strip() for part in line(entry.get("product_category"), TEXT).split("›")))),
        attributes=tuple(_lines(mine.get("attributes") if isinstance(mine, dict) else None, 100)),
        bullets=tuple(_lines(entry.get("small_description"), 100)),
        description=line(entry.get("full_description"), TEXT),
        options=_options(entry.get("customization_options")),
    )


def line(value: Json, most: int) -> str:
    """`value` as one line of at most `most` characters; "" for what is no text. Square brackets become round ones."""
    if isinstance(value, list):
        value = " ".join(item for item in value[:100] if isinstance(item, str))
    if not isinstance(value, str):
        return str(value) if type(value) in (int, float) and abs(value) < 1e12 else ""
    return _GAPS.sub(" ", value[: 4 * most]).translate(_BRACKETS).strip()[:most].strip()


def _lines(value: Json, most: int) -> Iterator[str]:
    for item in (value if isinstance(value, list) else [value])[:most]:
        if text := line(item, TEXT):
            yield text


def _options(value: Json) -> dict[str, tuple[str, ...]]:
    """Option names with their values, in small letters, as the original writes them."""
    found: dict[str, tuple[str, ...]] = {}
    for name, contents in list(value.items())[:GROUPS] if isinstance(value, dict) else ():
        values = [option(item.get("value")) for item in contents[:VALUES] if isinstance(item, dict)] if isinstance(contents, list) else []
        if kept := tuple(dict.fromkeys(filter(None, values))):
            found.setdefault(line(name, 100).lower() or "option", kept)
    return found


def option(value: Json) -> str:
    """An option's value as a page shows it."""
    return " ".join(line(value, 200).replace("/", " | ").lower().split())


def read_price(value: Json) -> tuple[Fraction, str]:
    """What a product costs, and its tag: "$10.00 to $20.00" costs 20, what names no price 100."""
    found = [Fraction(number.replace(",", "")) for number in _PRICE.findall(line(value, 200))[:2]]
    if not found:
        return NO_PRICE, dollars(NO_PRICE)
    return max(found), " to ".join(dollars(price) for price in dict.fromkeys(found))


def dollars(price: Fraction) -> str:
    return f"${float(price):.2f}"
