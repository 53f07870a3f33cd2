"""Canonical requests to a language model, and what rests on them: the response cache, recording and replay.

A request is a model's id, messages, max_tokens, temperature, seed and schema; its key is the hash of these. `CachedModel` asks the
model behind it once for each key; `RecordingModel` does so with a file as its cache, and `ReplayModel` answers from that file alone.
A recording is JSON Lines, made to be read and to be compared line by line:

    {"format":"mulligan-recording/1","model":"qwen2.5-coder","made_with":"mulligan 0.1.0"}
    {"text":"t1","content":"You write one SQLite query.\\nCREATE TABLE …"}
    {"key":"req_5f…","messages":[{"role":"user","content":[{"text":"t1"},"How many rivers?"]}],"max_tokens":64,…,"reply":{…}}

A named text stands for a long beginning that several messages share. Not promised: that two processes can write one file.
"""

import errno
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Literal, Protocol
from weakref import WeakValueDictionary

from mulligan.errors import InvalidData, UnseenRequest, UsageError
from mulligan.nouns import Json, content_id, from_json, from_plain, noun, to_json, to_plain
from mulligan.protocols import Model
from mulligan.records import Completion, Message, Usage
from mulligan.redaction import kinds

Format = Literal["mulligan-recording/1"]
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


def canonical(
    model_id: str, messages: Sequence[Message], max_tokens: int, temperature: float, seed: int, schema: Mapping[str, Json] | None = None
) -> Request:
    """The request in canonical form: equal for calls that ask the same model the same."""
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
        request = canonical(self.id, messages, max_tokens, temperature, seed, schema)
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
        request = canonical(self.id, messages, max_tokens, temperature, seed, schema)
        found = self._recording.cached(request.key)
        if found is None:
            raise UnseenRequest(self._recording.unseen(request))
        return replace(found, paid=False)


# ---- the file ----------------------------------------------------------------------------------------------------------------


@noun
class Named:
    """Stands for a named text."""

    text: str


Content = str | tuple[str | Named, ...]  # verbatim, or parts that follow one another


@noun
class HeaderLine:
    """The first line."""

    format: Format
    model: str
    made_with: str


@noun
class TextLine:
    """A text with a name; comes before the first line that uses it."""

    text: str
    content: Content


@noun
class Turn:
    """A message of a recorded request."""

    role: Literal["system", "user", "assistant"]
    content: Content


@noun
class Answer:
    """What the model replied, and what it cost."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


@noun
class RequestLine:
    """One request with its key and reply. `schema` is canonical JSON."""

    key: str
    messages: tuple[Turn, ...]
    max_tokens: int
    temperature: float
    seed: int
    schema: Content | None = None
    reply: Answer


class Recording:
    """A recording in memory, and its file. Thread-safe; `cache` returns when its lines are on the disk."""

    def __init__(self, path: Path, model: str):
        self.path = path
        self.model = model
        self._entries: dict[str, tuple[Request, Completion]] = {}
        self._texts = _Texts()
        self._lock = threading.Lock()

    @classmethod
    def read(cls, path: Path) -> "Recording":
        """Load a file. Raises UsageError when it cannot be read, and InvalidData, with the line, when it is damaged."""
        try:
            return cls._parse(path, path.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read the recording {path}: {error.strerror}") from None

    @classmethod
    def open(cls, path: Path, model: str) -> "Recording":
        """Load a file to append to, or begin one. A last line that a kill cut short is dropped: it was never acknowledged."""
        from importlib.metadata import version  # 15 ms that only recording needs

        header = _line(HeaderLine(format="mulligan-recording/1", model=model, made_with=f"mulligan {version('mulligan')}"))
        found = path.read_bytes() if path.exists() else b""
        if header.startswith(found):
            path.write_bytes(header)
            return cls(path, model)
        whole = found.rfind(b"\n") + 1
        recording = cls._parse(path, found[:whole] or found)
        if recording.model != model:
            raise UsageError(f"{path} is a recording of {recording.model}, not of {model}: write to another file")
        if whole < len(found):
            os.truncate(path, whole)
        return recording

    def cached(self, key: str) -> Completion | None:
        """The recorded reply to the request with this key."""
        entry = self._entries.get(key)
        return entry[1] if entry else None

    def cache(self, key: str, completion: Completion, request_json: str) -> None:
        """Append a request with its reply, once. Raises InvalidData when the request is there with another reply, or one of the two holds a
        secret: keys are hashes of whole requests, so it could not be taken out, and recordings are made to be given away.
        """
        if found := sorted({*kinds(request_json), *kinds(completion.text)}):
            raise InvalidData(f"a request or its reply holds a secret ({', '.join(found)}), which would stand in {self.path}: take it out")
        request = _encodable(request_json, completion)
        usage = completion.usage
        reply = Answer(
            text=completion.text,
            finish=completion.finish,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=round(usage.seconds, 3),
        )
        with self._lock:
            if self._known(key, reply, str(self.path)):
                return
            line = RequestLine(
                key=key,
                messages=tuple(Turn(role=m.role, content=self._texts.shorten(m.content)) for m in request.messages),
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
                schema=None if request.schema is None else self._texts.shorten(to_json(request.schema)),
                reply=reply,
            )
            self._append([*self._texts.unwritten, line])
            self._texts.unwritten.clear()
            self._keep(key, request, reply)

    def _append(self, lines: Iterable[object]) -> None:
        """All lines or, if the disk refuses, none."""
        data = b"".join(map(_line, lines))
        try:
            with self.path.open("ab", buffering=0) as file:
                before = file.tell()
                try:
                    if file.write(data) != len(data):
                        raise OSError(errno.ENOSPC, "no space left on the disk")
                    os.fsync(file.fileno())
                except OSError:
                    os.truncate(self.path, before)
                    raise
        except OSError as error:
            raise UsageError(f"cannot write the recording {self.path}: {error.strerror}") from None

    def unseen(self, request: Request) -> str:
        """Why there is no answer to a request: the nearest recorded one, and the first difference."""
        missing = f"{self.path} does not hold the request {request.key}"
        if not self._entries:
            return f"{missing}, nor any other: record it first"
        asked = _trigrams(request)
        nearest = max((recorded for recorded, _ in self._entries.values()), key=lambda recorded: _likeness(asked, request, recorded))
        return f"{missing}; the nearest is {nearest.key}: {_difference(request, nearest)}; record again if the change is meant"

    @classmethod
    def _parse(cls, path: Path, data: bytes) -> "Recording":
        lines = data.splitlines() or [b""]
        recording = cls(path, from_json(HeaderLine, lines[0], what=f"{path}, line 1,").model)
        for number, line in enumerate(lines[1:], start=2):
            what = f"{path}, line {number},"
            try:
                recording._load(json.loads(line), what)
            except (ValueError, RecursionError) as error:
                raise InvalidData(f"{what} is damaged ({error}): take the line away and record again") from None
        return recording

    def _load(self, line: Json, what: str) -> None:
        if not isinstance(line, dict) or "key" not in line:
            text = from_plain(TextLine, line, what=what)
            self._texts.add(text.text, self._texts.resolve(text.content))
            return
        read = from_plain(RequestLine, line, what=what)
        request = canonical(
            self.model,
            [Message(role=turn.role, content=self._texts.resolve(turn.content)) for turn in read.messages],
            read.max_tokens,
            read.temperature,
            read.seed,
            None if read.schema is None else json.loads(self._texts.resolve(read.schema)),
        )
        if (key := request.key) != read.key:
            raise ValueError(f"its key should be {key}")
        if not self._known(key, read.reply, what):
            self._keep(key, request, read.reply)

    def _known(self, key: str, reply: Answer, what: str) -> bool:
        known = self.cached(key)
        if known and (known.text, known.finish) != (reply.text, reply.finish):
            raise InvalidData(f"{what} has a second, different reply to {key}: keep one of them")
        return known is not None

    def _keep(self, key: str, request: Request, reply: Answer) -> None:
        usage = Usage(prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens, model_calls=1, seconds=reply.seconds)
        self._entries[key] = (request, Completion(text=reply.text, model=self.model, usage=usage, finish=reply.finish))
        for message in request.messages:
            self._texts.see(message.content)
        if request.schema is not None:
            self._texts.see(to_json(request.schema))


class _Texts:
    """The named texts of one recording, and the beginnings seen so far: one that comes again, and is long, gets a name."""

    def __init__(self) -> None:
        self._text: dict[str, str] = {}  # by name
        self._name: dict[tuple[int, int], str] = {}  # by mark
        self._seen: set[tuple[int, int]] = set()
        self.unwritten: list[TextLine] = []  # named, but not yet in the file

    def add(self, name: str, text: str) -> None:
        if self._text.setdefault(name, text) != text:
            raise ValueError(f"the name {name} stands for another text already")
        self._name[_mark(text)] = name

    def resolve(self, content: Content) -> str:
        parts = (content,) if isinstance(content, str) else content
        try:
            return "".join(part if isinstance(part, str) else self._text[part.text] for part in parts)
        except KeyError as missing:
            raise ValueError(f"no text before it is named {missing.args[0]}") from None

    def see(self, text: str) -> None:
        self._seen.update(_marks(text))

    def shorten(self, text: str) -> Content:
        """`text` by way of the longest named beginning; one that is worth a new name gets it."""
        name, known, again = "", 0, 0
        for mark in _marks(text):
            if mark in self._name and text.startswith(self._text[self._name[mark]]):
                name, known = self._name[mark], mark[0]
            if mark in self._seen:
                again = mark[0]
        if again - known >= SHARED:
            new = next(f"t{n}" for n in count(len(self._text) + 1) if f"t{n}" not in self._text)
            self.unwritten.append(TextLine(text=new, content=_parts(name, text[known:again])))
            self.add(new, text[:again])
            name, known = new, again
        return _parts(name, text[known:])


def _encodable(request_json: str, completion: Completion) -> Request:
    try:
        f"{request_json}{completion.text}".encode()
    except UnicodeEncodeError:
        raise InvalidData("half a surrogate pair is no text: it cannot be recorded") from None
    return from_json(Request, request_json, what="request")


def _parts(name: str, rest: str) -> Content:
    if not name:
        return rest
    return (Named(text=name), rest) if rest else (Named(text=name),)


def _marks(text: str) -> Iterator[tuple[int, int]]:
    """Length and checksum of every beginning of `text` that ends with a line and is long enough to be shared."""
    at = checksum = 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        checksum = zlib.crc32(line.encode(), checksum)
        if at >= SHARED:
            yield at, checksum


def _mark(text: str) -> tuple[int, int]:
    return len(text), zlib.crc32(text.encode())


def _line(value: object) -> bytes:
    """One line of the file; fields in their declared order, since people read it."""
    return json.dumps(to_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _trigrams(request: Request) -> set[str]:
    text = request.messages[-1].content[-COMPARED:] if request.messages else ""
    return {text[i : i + 3] for i in range(max(1, len(text) - 2))}


def _likeness(asked: set[str], request: Request, recorded: Request) -> tuple[float, int]:
    """How much of the last message two requests share, in any language; then in how many other respects they agree."""
    found = _trigrams(recorded)
    same = sum(getattr(request, f.name) == getattr(recorded, f.name) for f in fields(Request))
    return len(asked & found) / len(asked | found), same


def _difference(asked: Request, recorded: Request) -> str:
    for number, (new, old) in enumerate(zip(asked.messages, recorded.messages, strict=False), start=1):
        if new.role != old.role:
            return f"message {number} comes from {new.role}, recorded from {old.role}"
        if new.content != old.content:
            pairs = enumerate(zip(new.content, old.content, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(new.content), len(old.content)))
            here = slice(max(0, at - 20), at + 40)
            return f"message {number} differs from character {at} on: …{new.content[here]!r}, recorded …{old.content[here]!r}"
    if len(asked.messages) != len(recorded.messages):
        return f"{len(asked.messages)} messages, recorded {len(recorded.messages)}"
    name = next(f.name for f in fields(Request) if getattr(asked, f.name) != getattr(recorded, f.name))
    return f"{name} is {getattr(asked, name)!r}, recorded {getattr(recorded, name)!r}"
