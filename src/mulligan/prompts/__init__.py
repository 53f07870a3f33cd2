"""Prompt files. The hash of each is stored with what it produced."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template with $name places."""

    name: str
    text: str

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    def fill(self, **values: str) -> str:
        """The text with every place filled. Raises KeyError for a place without a value."""
        return Template(self.text).substitute(values)


@cache
def prompt(name: str) -> Prompt:
    """The prompt in NAME.txt of this package."""
    return Prompt(name, files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8").strip())
