"""Canonical requests to a language model, and what rests on them: the response cache, recording and replay.

A request is a model's id, messages, max_tokens, temperature, seed and schema; its key is the hash of these. `CachedModel` asks the
model behind it once for each key; `RecordingModel` does so with a file as its cache, and `ReplayModel` answers from that file alone.
A recording is JSON Lines, made to be read and to be compared line by line:

    {"format":"mulligan-recording/1","model":"qwen2.5-coder","made_with":"mulligan 0.1.0"}
    {"text":"t1","content":"You write one SQLite query.\\nCREATE TABLE …"}
    {"key":"req_5f…","messages":[{"role":"user","content":[{"text":"t1"},"How many rivers?"]}],"max_tokens":64,…,"reply":{…}}

A named text stands for a long beginning that several messages share. Not promised: that two processes can write one file.
"""

import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Literal, Protocol
from weakref import WeakValueDictionary

from mulligan.errors import InvalidData, UnseenRequest, UsageError
from mulligan.protocols import Model
from mulligan.records import Completion, Json, Message, Usage, content_id, from_json, from_plain, noun, to_json, to_plain

FORMAT = "mulligan-recording/1"
SHARED = 200  # characters: a shorter beginning is repeated, which reads better than a name
COMPARED = 2000  # characters at the end of a message that the search for the nearest request looks at


@noun
class Request:
    """What a model was asked, in canonical form."""

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    seed: int
    schema: Mapping[str, Json] | None = None

    @property
    def key(self) -> str:
        return content_id("req", self)


def request_key(
    model_id: str, messages: Sequence[Message], max_tokens: int, temperature: float, seed: int, schema: Mapping[str, Json] | None = None
) -> str:
    """The key of a request: equal for requests that ask the same model the same, whatever the order of keys in `schema`."""
    return _request(model_id, messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema).key


def _request(
    model_id: str, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int, schema: Mapping[str, Json] | None
) -> Request:
    return Request(
        model=model_id, messages=tuple(messages), max_tokens=max_tokens, temperature=float(temperature), seed=seed, schema=schema
    )


class Cache(Protocol):
    """Where replies are kept: the store, or a recording."""

    def cached(self, key: str) -> Completion | None: ...
    def cache(self, key: str, completion: Completion, request_json: str) -> None: ...


class CachedModel:
    """A model that is asked once for each distinct request. What comes from the cache has `paid=False` and its original usage.

    Threads that ask the same at the same time pay once: the others wait. Processes that share a store may pay twice.
    """

    def __init__(self, model: Model, cache: Cache):
        self.id = model.id
        self._model = model
        self._cache = cache
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # gone when nobody holds or awaits them

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Mapping[str, Json] | None = None,
    ) -> Completion:
        request = _request(self.id, messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema)
        key = request.key
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            found = self._cache.cached(key)
            if found is None:
                made = self._model.complete(messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema)
                self._cache.cache(key, made, to_json(request))
                return made
        return replace(found, paid=False)


class RecordingModel(CachedModel):
    """A model whose replies are kept in a recording. What an existing file holds is answered from it, so a killed run goes on."""

    def __init__(self, model: Model, path: Path | str):
        super().__init__(model, Recording.open(Path(path), model.id))


class ReplayModel:
    """Answers from a recording alone, under the recorded model's id; completions have `paid=False`.

    Raises UnseenRequest, which names the nearest recorded request and the first difference, for what was never recorded.
    """

    def __init__(self, path: Path | str):
        self._recording = Recording.read(Path(path))
        self.id = self._recording.model

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Mapping[str, Json] | None = None,
    ) -> Completion:
        request = _request(self.id, messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema)
        found = self._recording.cached(request.key)
        if found is None:
            raise UnseenRequest(self._recording.unseen(request))
        return replace(found, paid=False)


# ---- the file ----------------------------------------------------------------------------------------------------------------


@noun
class _Header:
    format: Literal["mulligan-recording/1"]
    model: str
    made_with: str


@noun
class _Name:
    text: str


_Content = str | tuple[str | _Name, ...]  # verbatim, or parts of which some are named texts


@noun
class _Text:
    text: str  # its name
    content: _Content


@noun
class _Turn:
    role: Literal["system", "user", "assistant"]
    content: _Content


@noun
class _Counts:
    prompt_tokens: int
    completion_tokens: int
    seconds: float


@noun
class _Answer:
    text: str
    finish: str
    usage: _Counts


@noun
class _Line:
    key: str
    messages: tuple[_Turn, ...]
    max_tokens: int
    temperature: float
    seed: int
    schema: _Content | None  # canonical JSON
    reply: _Answer


class Recording:
    """A recording in memory, and its file. Thread-safe; lines are appended whole and synced before `cache` returns."""

    def __init__(self, path: Path, model: str):
        self.path = path
        self.model = model
        self._entries: dict[str, tuple[Request, Completion]] = {}
        self._texts = _Texts()
        self._lock = threading.Lock()

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Load a file. Raises UsageError when there is none and InvalidData, with the line, when it is damaged."""
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise UsageError(f"cannot read the recording {path}: {error.strerror}") from None
        header = from_json(_Header, lines[0] if lines else b"", what=f"{path}, line 1")
        recording = cls(path, header.model)
        for number, line in enumerate(lines[1:], start=2):
            recording._load(line, f"{path}, line {number}")
        return recording

    @classmethod
    def open(cls, path: Path, model: str) -> "Recording":
        """Load a file for appending, or begin one. A last line that a kill cut short is taken away: it was never acknowledged."""
        if not path.exists() or not path.stat().st_size:
            recording = cls(path, model)
            recording._append([_Header(format=FORMAT, model=model, made_with=f"mulligan {version('mulligan')}")])
            return recording
        whole = path.read_bytes()
        if not whole.endswith(b"\n"):
            os.truncate(path, whole.rfind(b"\n") + 1)
            return cls.open(path, model)
        recording = cls.read(path)
        if recording.model != model:
            raise UsageError(f"{path} is a recording of {recording.model}, not of {model}: write to another file")
        return recording

    def cached(self, key: str) -> Completion | None:
        """The recorded reply to the request with this key."""
        entry = self._entries.get(key)
        return entry[1] if entry else None

    def cache(self, key: str, completion: Completion, request_json: str) -> None:
        """Append a request with its reply. Raises InvalidData when the key is there with another reply."""
        request = from_json(Request, request_json, what="request")
        usage = completion.usage
        counts = _Counts(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens, seconds=round(usage.seconds, 3))
        with self._lock:
            if self._note(request, completion, f"the reply for {self.path}"):
                return
            shared: list[_Text] = []
            turns = [_Turn(role=m.role, content=self._texts.shorten(m.content, shared)) for m in request.messages]
            line = _Line(
                key=key,
                messages=tuple(turns),
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
                schema=None if request.schema is None else self._texts.shorten(to_json(request.schema), shared),
                reply=_Answer(text=completion.text, finish=completion.finish, usage=counts),
            )
            self._append([*shared, line])

    def unseen(self, request: Request) -> str:
        """Why a request has no answer here: the nearest recorded one, and the first difference."""
        head = f"{self.path} does not hold the request {request.key}"
        if not self._entries:
            return f"{head}: it holds none at all; record it first"
        nearest, _ = max(self._entries.values(), key=lambda entry: _similarity(request, entry[0]))
        return f"{head}; nearest is {nearest.key}: {_difference(request, nearest)}; record again what has changed"

    def _load(self, line: bytes, what: str) -> None:
        try:
            plain = json.loads(line)
        except ValueError as error:
            raise InvalidData(f"{what} is no JSON: {error}; take the line away or record again") from None
        if isinstance(plain, dict) and "key" not in plain:
            text = from_plain(_Text, plain, what=what)
            self._texts.add(text.text, self._texts.resolve(text.content, what), what)
            return
        read = from_plain(_Line, plain, what=what)
        schema = None if read.schema is None else json.loads(self._texts.resolve(read.schema, what))
        messages = [Message(role=turn.role, content=self._texts.resolve(turn.content, what)) for turn in read.messages]
        request = _request(
            self.model, messages, max_tokens=read.max_tokens, temperature=read.temperature, seed=read.seed, schema=schema
        )
        if request.key != read.key:
            raise InvalidData(f"{what}: the key is {read.key}, but the request's is {request.key}; record it again")
        counts = read.reply.usage
        usage = Usage(
            prompt_tokens=counts.prompt_tokens, completion_tokens=counts.completion_tokens, seconds=counts.seconds, model_calls=1
        )
        self._note(request, Completion(text=read.reply.text, model=self.model, finish=read.reply.finish, usage=usage), what)

    def _note(self, request: Request, completion: Completion, what: str) -> bool:
        """Keep a reply in memory; True when it is there already."""
        known = self.cached(request.key)
        if known and (known.text, known.finish) != (completion.text, completion.finish):
            raise InvalidData(f"{what}: {request.key} is recorded already with another reply; record into a new file")
        if known is None:
            self._entries[request.key] = (request, completion)
            ...
        return known is not None

    def _append(self, nouns: Sequence[object]) -> None: ...
