"""What makes a noun: a frozen dataclass of plain values, its canonical JSON, its content id, and the one validator.

`from_json` is the only way in from text (model output, settings, HTTP, database rows); inner code trusts types. Ids are hashes of
canonical content with a prefix per kind: storing the same thing twice is storing it once.
"""

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, cast, dataclass_transform

from mulligan.errors import InvalidData

Json = Any  # JSON values: None, bool, int, float, str, lists and string-keyed dicts of them

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def noun(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, slotted, keyword-only dataclass that refuses unknown fields when read from text."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    made.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]  # read by pydantic at the edges
    return made


def to_plain(value: Any) -> Json:
    """`value` as JSON values: dataclasses become dicts, tuples lists, fractions "n/d" strings."""
    if value is None or isinstance(value, str | int | float):  # most values: asked first
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    return value


def to_json(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, real characters. Equal values give equal text."""
    return json.dumps(to_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def content_id(prefix: str, value: Any) -> str:
    """`prefix` and the first 96 bits of the SHA-256 of the canonical JSON of `value`."""
    text = to_json(value).encode("utf-8", "surrogatepass")
    return f"{prefix}_{hashlib.sha256(text).hexdigest()[:24]}"


def number_of(text: str) -> int:
    """64 bits that depend on `text` alone: for choices that are to look drawn and come out the same everywhere."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


@cache
def _adapter(kind: Hashable) -> Any:
    from pydantic import TypeAdapter  # imported on first use: half of the package's start-up time

    return TypeAdapter(cast(Any, kind))


def _validate(kind: type[T], method: str, value: Any, what: str) -> T:
    from pydantic import ValidationError

    try:
        found: T = getattr(_adapter(cast("Hashable", kind)), method)(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(p) for p in first["loc"]) or "the whole"
        raise InvalidData(f"{what} is no valid {getattr(kind, '__name__', kind)}: {place}: {first['msg']}") from error
    return found


def from_json(kind: type[T], text: str | bytes, *, what: str = "text") -> T:
    """Read one noun from JSON text. Raises InvalidData naming the first wrong field; unknown fields are refused."""
    return _validate(kind, "validate_json", text, what)


def from_plain(kind: type[T], value: Json, *, what: str = "value") -> T:
    """Read one noun from JSON values, as `from_json` does from text."""
    return _validate(kind, "validate_python", value, what)
