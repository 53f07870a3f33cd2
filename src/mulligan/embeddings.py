"""Embedders: text to unit vectors; and the calibration that makes their cosines comparable.

In: texts in any language, of any length. Out: float32 rows of unit length, a zero row for blank text. The default reads
static word vectors out of an installed wheel and needs no network; an endpoint serves any OpenAI-compatible model.

Not promised: only the first MAX_CHARS characters of a text count. Cosines of two embedders mean different things: compare
what `Calibration.scale` makes of them.
"""

import re
import unicodedata
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import ModelError, ModelUnreachable, UnknownName
from mulligan.nouns import noun
from mulligan.protocols import Embedder

if TYPE_CHECKING:
    from openai import OpenAI

MAX_CHARS = 20_000
BATCH = 128  # texts in one request to an endpoint


def _prepared(text: str) -> str:
    """`text` as an embedder reads it: cut to MAX_CHARS between characters, lone surrogates replaced, blank as ""."""
    part = text[:MAX_CHARS]
    if not part.isascii():
        part = part.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return part if part.strip() else ""


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to unit length; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1.0
    return np.asarray(rows / lengths, np.float32)


class StaticEmbedder:
    """WordLlama's 256-dimensional static vectors, averaged over a text's tokens. Offline, 0.05 ms a question, loaded on first use."""

    id = "wordllama-256"
    dim = 256

    @cached_property
    def _parts(self) -> tuple[Any, NDArray[np.float32]]:
        """Tokenizer and table of vectors, out of the package's own folder."""
        import logging

        root, still = logging.getLogger(), logging.NullHandler()
        root.addHandler(still)  # wordllama configures the root logger on import unless that has a handler
        try:
            import wordllama

            model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
        finally:
            root.removeHandler(still)
        model.tokenizer.no_padding()
        return model.tokenizer, model.embedding

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), 256). One text at a time: the package's own batches pad all texts to the longest."""
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            if prepared := _prepared(text):
                tokenizer, table = self._parts
                if tokens := tokenizer.encode(prepared, add_special_tokens=False).ids:
                    row[:] = table[tokens].mean(axis=0)
        return _unit(rows)


class HashingEmbedder:
    """Character trigrams of words hashed to `dim` dimensions: deterministic and without a model, for tests and examples."""

    def __init__(self, dim: int = 64) -> None:
        self.id = f"hash:{dim}"
        self.dim = dim

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), dim)."""
        return _unit(np.stack([self._row(_prepared(text)) for text in texts]) if texts else np.zeros((0, self.dim), np.float32))

    def _row(self, text: str) -> NDArray[np.float32]:
        words = unicodedata.normalize("NFKC", text).casefold().split()
        grams = [word[i : i + 3] for word in (f" {w} " for w in words) for i in range(len(word) - 2)]
        hashes = np.fromiter((zlib.crc32(gram.encode()) for gram in grams), np.int64, len(grams))
        row = np.bincount(hashes // 2 % self.dim, np.where(hashes % 2, 1.0, -1.0), self.dim).astype(np.float32)
        if grams and not row.any():  # all signs cancelled
            row[0] = 1.0
        return row


class EndpointEmbedder:
    """A model behind an OpenAI-compatible `/embeddings` endpoint. Blank texts are not sent."""

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None, timeout: float = 60.0) -> None:
        """`base_url` and `api_key` default to OPENAI_BASE_URL and OPENAI_API_KEY. Nothing is sent before the first use."""
        self.id = f"openai:{model}"
        self._model, self._base_url, self._api_key, self._timeout = model, base_url, api_key, timeout

    @cached_property
    def _client(self) -> "OpenAI":
        import openai

        try:
            return openai.OpenAI(base_url=self._base_url, api_key=self._api_key, timeout=self._timeout, max_retries=4)
        except openai.OpenAIError as error:
            raise ModelError(f"no client for embeddings of {self._model}: {error} (a server without keys takes any)") from error

    @cached_property
    def dim(self) -> int:
        """The model's dimension; asked of the endpoint once."""
        return len(self._request(["dimension"])[0])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), dim). Raises ModelUnreachable after the retries, ModelError for an answer that does not fit."""
        prepared = [_prepared(text) for text in texts]
        rows = np.zeros((len(texts), self.dim), np.float32)
        filled = [i for i, text in enumerate(prepared) if text]
        for start in range(0, len(filled), BATCH):
            part = filled[start : start + BATCH]
            vectors = np.array(self._request([prepared[i] for i in part]), np.float32)
            if vectors.shape != (len(part), self.dim) or not np.isfinite(vectors).all():
                raise ModelError(f"{self.id} gave vectors of shape {vectors.shape} for {len(part)} texts of {self.dim} dimensions")
            rows[part] = vectors
        return _unit(rows)

    def _request(self, texts: Sequence[str]) -> list[list[float]]:
        import openai

        try:
            reply = self._client.embeddings.create(model=self._model, input=list(texts), encoding_format="float")
        except (openai.APIConnectionError, openai.InternalServerError, openai.RateLimitError) as error:
            raise ModelUnreachable(f"{self._client.base_url} gave no embeddings of {self._model}: {error}; is it running?") from error
        except openai.OpenAIError as error:
            raise ModelError(f"{self._client.base_url} gave no embeddings of {self._model}: {error}") from error
        return [item.embedding for item in sorted(reply.data, key=lambda item: item.index)]


class RememberingEmbedder:
    """Another embedder's rows, those of the last texts kept: for a few texts that are asked for again and again."""

    def __init__(self, embedder: Embedder, size: int = 1_000) -> None:
        self.id, self.size = embedder.id, size
        self._embedder = embedder
        self._rows: dict[str, NDArray[np.float32]] = {}

    @property
    def dim(self) -> int:
        """The dimension of the other."""
        return self._embedder.dim

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), dim)."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._rows]
        rows = {text: self._rows[text] for text in texts if text in self._rows} | dict(
            zip(fresh, self._embedder.embed(fresh) if fresh else (), strict=True)
        )
        self._rows = dict([*self._rows.items(), *rows.items()][-self.size :])
        return np.stack([rows[text] for text in texts]) if len(texts) else np.zeros((0, self.dim), np.float32)


def open_embedder(spec: str) -> Embedder:
    """The embedder of that name: `static`, `hash:DIM` or `openai:MODEL`; an embedder's id is a name of it too."""
    kind, _, rest = spec.partition(":")
    if spec in ("static", StaticEmbedder.id):
        return StaticEmbedder()
    if kind == "hash" and re.fullmatch("[1-9][0-9]{0,4}", rest):
        return HashingEmbedder(int(rest))
    if kind == "openai" and rest:
        return EndpointEmbedder(rest)
    raise UnknownName(f"no embedder is called {spec!r}: known are static, hash:DIM (such as hash:64) and openai:MODEL")


# Sentences about nothing that an agent's lessons are about, in several languages, and text without sense: what unrelated looks like.
PANEL = (
    *("The cat slept on the warm windowsill all afternoon.", "He forgot to buy milk on the way home.", "Boil the pasta for nine minutes."),
    *("The violinist tuned her instrument before the concert.", "Her grandmother knitted a blue scarf.", "Penguins huddle in winter."),
    *("The knee connects the thigh to the shin.", "We danced until the lights went out.", "The old bridge smelled of tar and rain."),
    *("She whispered the secret to her sister.", "A goalkeeper may use both hands.", "The candle burned down to the brass."),
    *("Ripe plums fall without being shaken.", "Nobody laughed at the second joke.", "The dentist asked him to open wide."),
    *("Fresh snow muffled the village bells.", "My uncle repairs umbrellas.", "They painted the nursery yellow."),
    *("Der Zug nach Hamburg hat zehn Minuten Verspätung.", "Das Brot ist noch warm.", "El perro corre detrás de la pelota."),
    *(
        "La lune éclaire le jardin.",
        "今天天气很好，我们去公园散步。",
        "猫が窓のそばで眠っている。",
        "القطة نائمة على الأريكة",
        "Бабушка печёт пироги.",
    ),
    *("xkqj zzvw plorf gnnt brqx", "asdf jkl; qwer uiop zxcv", "wub wub fizzle grongle snarp", "qqqqq wwwww eeeee", "Zkä ömpf trülz"),
    *("00110 11010 0101 1110", "!!! ??? ### @@@", "lorem ipsum dolor sit amet consectetur", "blorp", "a e i o u y", "7f3a 99c2 e01d 44b8"),
    *("tututu mamama lololo", "§§ ±± ¶¶ ÷÷", "hjkl hjkl hjkl gg dd yy"),
)
SAMPLE = 64  # texts that calibration looks at
RELATED = 0.6  # where half of a text stands towards the whole: about as far as a paraphrase


@noun
class Calibration:
    """How the cosines of one embedder read. `floor` is what unrelated text reaches at best, `related` half of a text to the whole."""

    floor: float
    related: float

    def scale(self, cosines: Any) -> NDArray[np.float32]:
        """Cosines as similarities in [0, 1]: 0 up to `floor`, RELATED at `related`, 1 for the same text; never falling."""
        values = np.asarray(cosines, np.float32)
        between = np.interp(values, [self.floor, self.related, 1.0], [0.0, RELATED, 1.0])
        return np.where(values > self.floor, between, 0.0).astype(np.float32)


def calibrate(embedder: Embedder, texts: Sequence[str]) -> Calibration:
    """Measure an embedder on stored texts (on a built-in panel, when there are none).

    A query's best hit is what must be judged, so the floor is the 95th percentile, over the panel, of the best cosine to any text.
    An embedder to which half of a text looks no nearer than gibberish gets a straight line from its floor, so it mostly skips.
    """
    known = [text for text in dict.fromkeys(texts) if text.strip()]
    sample = [known[i * len(known) // SAMPLE] for i in range(SAMPLE)] if len(known) > SAMPLE else known or list(PANEL)
    rows = embedder.embed([*PANEL, *sample, *(text[: (len(text) + 1) // 2] for text in sample)]).astype(np.float64)
    panel, whole, half = np.split(rows, [len(PANEL), len(PANEL) + len(sample)])
    background = panel @ whole.T
    if not known:
        np.fill_diagonal(background, -1.0)
    floor = float(np.clip(np.quantile(background.max(axis=1), 0.95), 0.0, 1.0))
    related = float(np.median(np.sum(half * whole, axis=1)))
    if not floor < related < 1.0:
        related = floor + RELATED * (1.0 - floor)
    return Calibration(floor=floor, related=related)
