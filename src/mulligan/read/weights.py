"""Weights: what training hands to serving, as plain arrays in one safetensors file.

In: named arrays, the kind of model they are for, and the domains of the one-hot part. Out: the same, checked. The file carries the hash
of the feature definition, and weights that were made for other features are refused. A file is data: reading one runs nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import from_json
from mulligan.read.features import DEFINITION

FORMAT = "mulligan-weights/1"
LARGEST = 64 * 2**20  # bytes of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Arrays by name, for a model of that kind. `domains` is the order of the one-hot part of the features.

    `embedder` is the id of the embedder whose vectors the model was trained with, if any.
    """

    kind: str
    arrays: Mapping[str, NDArray[np.float32]]
    domains: tuple[str, ...] = ()
    embedder: str = ""
    about: Mapping[str, float] = field(default_factory=dict)  # what training says of itself: sizes, losses, calibration

    def array(self, name: str, *shape: int) -> NDArray[np.float32]:
        """The array of that name; -1 is a length that may be any. Raises InvalidData if it is missing, of another shape or not finite."""
        found = self.arrays.get(name)
        fits = found is not None and found.ndim == len(shape) and all(w in (-1, n) for w, n in zip(shape, found.shape, strict=True))
        if found is None or not fits:
            raise InvalidData(f"weights for {self.kind} lack an array {name!r} of shape {shape}: train again")
        if not np.isfinite(found).all():
            raise InvalidData(f"weights for {self.kind} have no numbers in {name!r}: train again")
        return found

    def layer(self, name: str, size: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weight and bias of a linear layer of `size` inputs, stacked over seeds: (seeds, size, out) and (seeds, 1, out)."""
        weight = self.array(f"{name}.weight", -1, size, -1)
        return weight, self.array(f"{name}.bias", weight.shape[0], 1, weight.shape[2])


def save(weights: Weights, path: Path) -> None:
    """Write `weights` to `path`, whole or not at all."""
    from safetensors.numpy import save as packed

    metadata = {"format": FORMAT, "kind": weights.kind, "features": DEFINITION, "embedder": weights.embedder}
    metadata |= {"domains": "\n".join(weights.domains), "about": json.dumps(dict(weights.about), sort_keys=True)}
    arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.arrays.items()}
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(packed(arrays, metadata=metadata))
    part.replace(path)


def load(path: Path, kinds: Sequence[str]) -> Weights:
    """The weights in `path`, for one of `kinds`. Raises UsageError for a file that is missing, InvalidData for one that is no such file
    or was made for other features.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UsageError(f"no weights at {path}: make them with `mulligan train selector`")
    if path.stat().st_size > LARGEST:
        raise InvalidData(f"{path} has more than {LARGEST >> 20} MiB: no weights of a selector")
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: np.asarray(file.get_tensor(name), np.float32) for name in file.keys()}  # noqa: SIM118  # no mapping
    except (SafetensorError, ValueError, TypeError, OSError) as error:
        raise InvalidData(f"{path} is no file of weights: {error}") from error
    if metadata.get("format") != FORMAT or metadata.get("kind") not in kinds:
        raise InvalidData(f"{path} holds {metadata.get('kind', 'something else')}, wanted is {' or '.join(kinds)}")
    if metadata.get("features") != DEFINITION:
        raise InvalidData(f"{path} was made for other features (not {DEFINITION}): train again with `mulligan train selector`")
    domains = tuple(filter(None, metadata.get("domains", "").split("\n")))
    about = from_json(dict[str, float], metadata.get("about", "{}"), what=f"what {path} says of itself")
    return Weights(kind=metadata["kind"], arrays=arrays, domains=domains, embedder=metadata.get("embedder", ""), about=about)
