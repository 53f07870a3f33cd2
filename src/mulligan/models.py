"""Language-model clients: any OpenAI-compatible endpoint, a GGUF file in process, or a script.

All take messages and hand back a `Completion` with what it cost (`protocols.Model`). Cache, recording and replay are in
recordings.py, the meter is in meter.py; both are named here too. `open_model` makes one from a text such as `gguf:model.gguf`.
Nothing is read from the environment and no client library is loaded before it is needed. Token counts are the server's; where it
sends none, and for scripts, they are `estimate_tokens`. Not promised: an upper bound on the time of one call, since `timeout_s`
limits each silence of the server, not the whole answer.
"""

import hashlib
import ipaddress
import math
import random
import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from mulligan.errors import MissingExtra, ModelError, ModelUnreachable, UsageError
from mulligan.meter import Meter, MeteredModel, estimate_prompt, estimate_tokens
from mulligan.nouns import Json, to_json
from mulligan.protocols import Model
from mulligan.recordings import CachedModel, RecordingModel, ReplayModel
from mulligan.records import Completion, Message, Usage

__all__ = [
    "CachedModel",
    "EndpointModel",
    "LocalModel",
    "Meter",
    "MeteredModel",
    "RecordingModel",
    "ReplayModel",
    "ScriptedModel",
    "estimate_tokens",
    "open_model",
]

Structured = Literal["schema", "object", "text"]

OPENAI_URL = "https://api.openai.com/v1"
BACKOFF_S, MAX_BACKOFF_S = 1.0, 30.0
MAX_RETRY_AFTER_S = 120.0  # a server that asks for more is given up: better said than slept through
LOCAL_SLOTS, LOCAL_CONTEXT = 4, 16_384  # parallel requests, and tokens for all of them together

_SIMPLER: dict[Structured, Structured] = {"schema": "object", "object": "text"}
_NO_KEY = "no-key-needed"  # the client wants one, a server on this machine mostly does not
_COMPLAINT = r"""['`]{0}['`](?!:)|"(?:param|body)"\s*[:,]\s*"{0}\""""  # not the echo of a request that holds the name
_SURROGATES = re.compile("[\ud800-\udfff]")


# ---- an endpoint -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What a server was found to understand. It starts with everything and only ever gets simpler, so it settles."""

    structured: Structured
    fixed: bool  # the caller chose `structured`
    without: frozenset[str] = frozenset()

    def body(
        self, model: str, messages: Sequence[Message], options: Mapping[str, Json], schema: Mapping[str, Json] | None
    ) -> dict[str, Any]:
        """The request as this dialect says it."""
        turns = [{"role": m.role, "content": _text(m.content)} for m in messages]
        body: dict[str, Any] = {"model": model, "messages": turns}
        body |= {name: value for name, value in options.items() if name not in self.without}
        if "max_tokens" in self.without:
            body["max_completion_tokens"] = options["max_tokens"]
        if schema is None:
            return body
        if self.structured == "schema":
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(schema)}}
            return body
        if self.structured == "object":
            body["response_format"] = {"type": "json_object"}
        asked = f"Reply with JSON that fits this JSON Schema, and with nothing else:\n{to_json(schema)}"
        if turns and turns[0]["role"] == "system":
            turns[0]["content"] += f"\n\n{asked}"
        else:
            turns.insert(0, {"role": "system", "content": asked})
        return body

    def simpler(self, body: Mapping[str, Any], complaint: str) -> "_Dialect | None":
        """The dialect without what the server complained of; None when it is something else."""
        told = complaint.lower()
        if "response_format" in body and not self.fixed and re.search(r"response_format|json[_ ]schema|json_object|grammar", told):
            return replace(self, structured=_SIMPLER[self.structured])
        if "max_tokens" in body and "max_completion_tokens" in told:
            return replace(self, without=self.without | {"max_tokens"})
        for name in ("seed", "temperature"):
            if name in body and re.search(_COMPLAINT.format(name), told):
                return replace(self, without=self.without | {name})
        return None


class EndpointModel:
    """A model behind any OpenAI-compatible server. Its id is its name: give different models different names.

    `retries` are made, with growing and random pauses or as the server's Retry-After says, after connection errors, silence of
    `timeout_s`, and status 408, 409, 429 and 5xx; then ModelUnreachable is raised. Other refusals raise ModelError at once.
    `structured` is how a schema is asked for: "schema" (response_format json_schema), "object" (json_object, and the schema in the
    system message), "text" (the message alone); "auto" starts with the first and, where the server refuses it, remembers the next.
    A server that takes no `max_tokens` gets `max_completion_tokens`; one that takes no `seed` or `temperature` gets none, with a
    warning. `estimated` counts the replies whose tokens had to be estimated because the server sent no usage.
    Thread-safe and picklable; the key is in no message, repr or log of ours.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 120.0,
        retries: int = 4,
        structured: Structured | Literal["auto"] = "auto",
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.id = model
        self.estimated = 0
        self._url = base_url or OPENAI_URL
        self._host, self._loopback = _host(self._url)
        if not api_key and not self._loopback:
            raise UsageError(f"{self._host} needs a key: set OPENAI_API_KEY (to any text if that server asks for none)")
        self._key = api_key or _NO_KEY
        self._timeout_s = timeout_s
        self._retries = retries
        self._sleep = sleep
        self._dialect = _Dialect("schema" if structured == "auto" else structured, fixed=structured != "auto")
        self._lock = threading.Lock()
        self._client: Any = None

    def __repr__(self) -> str:
        return f"EndpointModel({self.id!r} at {self._host})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Mapping[str, Json] | None = None,
    ) -> Completion:
        started = time.perf_counter()
        options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
        reply = None
        while reply is None:
            dialect = self._dialect
            body = dialect.body(self.id, messages, options, schema)
            try:
                reply = self._send(body)
            except _Refused as refused:
                simpler = dialect.simpler(body, refused.complaint) if refused.status in (400, 422) else None
                if simpler is None:
                    raise ModelError(self._advice(refused)) from None
                self._adopt(dialect, simpler)
        return self._completion(reply, messages, time.perf_counter() - started)

    def _adopt(self, old: _Dialect, new: _Dialect) -> None:
        with self._lock:
            if self._dialect != old:
                return  # another thread was first; if it learnt something else, the next refusal says so
            self._dialect = new
        for name in new.without - old.without - {"max_tokens"}:
            warnings.warn(f"{self._host} takes no {name} for {self.id}: it is left out from now on", stacklevel=4)

    def _connect(self) -> Any:
        import openai

        with self._lock:
            if self._client is None:
                # A proxy from the environment must not be asked for this machine itself.
                http = openai.DefaultHttpxClient(trust_env=False) if self._loopback else None
                self._client = openai.OpenAI(
                    base_url=self._url, api_key=self._key, timeout=self._timeout_s, max_retries=0, http_client=http
                )
            return self._client

    def _send(self, body: Mapping[str, Any]) -> Any:
        """The server's reply, after as many tries as it takes. Raises _Refused when trying again is no use."""
        import openai

        trouble = ""
        for attempt in range(self._retries + 1):
            pause = min(BACKOFF_S * 2**attempt, MAX_BACKOFF_S) * random.uniform(0.5, 1.0)
            try:
                return self._connect().chat.completions.create(**body)
            except openai.APIStatusError as error:
                refused = _Refused(error.status_code, error.response.text)
                if not refused.passing:
                    raise refused from None
                trouble = f"status {refused.status}: {self._clean(refused.complaint)}"
                pause = _retry_after(error.response.headers, pause)
            except openai.APITimeoutError:
                trouble = f"silent for {self._timeout_s:g} s"
            except openai.APIConnectionError as error:
                trouble = self._clean(f"{error} {error.__cause__ or ''}")
            except (openai.OpenAIError, ValueError) as error:
                raise ModelError(f"{self._host} sent what is no chat completion ({self._clean(str(error))})") from None
            if pause > MAX_RETRY_AFTER_S:
                raise ModelUnreachable(f"{self._host} asks to wait {pause:.0f} s ({trouble}): try again later")
            if attempt < self._retries:
                self._sleep(pause)
        raise ModelUnreachable(
            f"{self._host} gave no answer in {self._retries + 1} tries (last: {trouble}): check that a server runs there and that the "
            "base URL (OPENAI_BASE_URL) is right; a busy server wants fewer workers or a longer time-out"
        )

    def _completion(self, reply: Any, messages: Sequence[Message], seconds: float) -> Completion:
        try:
            choice = reply.choices[0]
            text = choice.message.content or ""
            finish = choice.finish_reason or "stop"
            text, finish = _text(text), str(finish)
        except (AttributeError, IndexError, TypeError):
            raise ModelError(
                f"{self._host} sent no choice ({self._clean(str(reply))}): check that the base URL leads to chat completions; it mostly "
                "ends in /v1"
            ) from None
        sent, made = (getattr(reply.usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
        if not (isinstance(sent, int) and isinstance(made, int)):
            sent, made = estimate_prompt(messages), estimate_tokens(text)
            with self._lock:
                self.estimated += 1
        usage = Usage(prompt_tokens=sent, completion_tokens=made, model_calls=1, seconds=seconds)
        return Completion(text=text, model=self.id, usage=usage, finish=finish)

    def _advice(self, refused: "_Refused") -> str:
        told = refused.complaint.lower()
        if refused.status in (401, 403):
            advice = "does not accept the key: check OPENAI_API_KEY"
        elif refused.status == 404:
            advice = f"has no model {self.id!r} at this base URL: check the name, and that the base URL ends as it should (mostly in /v1)"
        elif refused.status == 413 or re.search(r"context|too long|too large|exceed", told):
            advice = "finds the request too long: shorten the prompt, lower max_tokens, or serve with a larger context"
        elif refused.status == 429:
            advice = "says that the quota is spent: check the account"
        else:
            advice = "refuses the request"
        return f"{self._host} {advice} (status {refused.status}: {self._clean(refused.complaint)})"

    def _clean(self, text: str) -> str:
        """One short line without the key, which some servers echo."""
        text = " ".join(text.split()).replace(self._key, "***")
        return text if len(text) <= 200 else f"{text[:200]}…"


class _Refused(Exception):
    """The server answered with an error status."""

    def __init__(self, status: int, complaint: str):
        self.status = status
        self.complaint = complaint

    @property
    def passing(self) -> bool:
        """Whether asking again may help. A spent quota has the status of a rate limit, but does not pass."""
        return (self.status in (408, 409, 429) or self.status >= 500) and "insufficient_quota" not in self.complaint


def _text(text: str) -> str:
    """`text` with a replacement character for each half of a surrogate pair, which no encoding can hold."""
    return _SURROGATES.sub("\ufffd", text)


def _host(url: str) -> tuple[str, bool]:
    """Host and port of a base URL, without credentials, and whether it is this machine."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname or "", parts.port
    except ValueError:
        name, port, parts = "", None, urlsplit("")
    if parts.scheme not in ("http", "https") or not name:
        raise UsageError("a base URL looks like http://host:port/v1")
    try:
        loopback = name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        loopback = False
    return (f"{name}:{port}" if port else name), loopback


def _retry_after(headers: Mapping[str, str], otherwise: float) -> float:
    """Seconds to wait as the server's Retry-After says, in seconds or as a date."""
    from email.utils import parsedate_to_datetime  # 10 ms that a start without trouble need not pay

    told = headers.get("retry-after", "")
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(told).timestamp() - time.time()
        except (ValueError, OverflowError):
            return otherwise
    return max(0.0, seconds) if math.isfinite(seconds) else otherwise


# ---- a file, a script --------------------------------------------------------------------------------------------------------


class LocalModel:
    """A GGUF file run in process, by xllamacpp (extra `local`), behind a loopback port that only this object has the key of.

    The id is the file's name and the beginning of its SHA-256. The model is loaded by the first call and let go by `close`, or at
    the end of a `with` block. LOCAL_SLOTS requests run at a time, each with its share of LOCAL_CONTEXT tokens.
    """

    def __init__(self, path: Path | str):
        self._path = Path(path).expanduser()
        try:
            stat = self._path.stat()
            digest = _gguf_digest(self._path, stat.st_size, stat.st_mtime_ns)
        except OSError as error:
            raise UsageError(f"cannot read the model file {self._path}: {error.strerror}") from None
        self.id = f"{self._path.name}:{digest[:12]}"
        self._engine()  # a missing extra is said now, not in the middle of a run
        self._lock = threading.Lock()
        self._server: Any = None
        self._endpoint: EndpointModel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Mapping[str, Json] | None = None,
    ) -> Completion:
        return self._start().complete(messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema)

    def close(self) -> None:
        """Stop the server and free the model. A later call loads it again."""
        with self._lock:
            if self._endpoint:
                self._endpoint.close()
            self._endpoint = self._server = None

    @staticmethod
    def _engine() -> Any:
        try:
            import xllamacpp
        except ImportError:
            raise MissingExtra("running a GGUF file needs xllamacpp: pip install 'mulligan[local]'") from None
        return xllamacpp

    def _start(self) -> EndpointModel:
        with self._lock:
            if self._endpoint is None:
                engine = self._engine()
                params = engine.CommonParams()
                params.model.path = str(self._path)
                params.n_parallel, params.n_ctx = LOCAL_SLOTS, LOCAL_CONTEXT
                params.hostnames, params.port = ["127.0.0.1"], 0
                params.verbosity = -1
                key = secrets.token_hex(16)
                params.api_keys = [key]
                try:
                    self._server = engine.Server(params)
                except RuntimeError as error:
                    raise ModelError(f"{self._path} cannot be loaded ({error}): is the file whole, and memory enough?") from None
                self._endpoint = EndpointModel(self.id, base_url=f"{self._server.listening_address}/v1", api_key=key, timeout_s=600)
            return self._endpoint


@cache
def _gguf_digest(path: Path, size: int, changed_ns: int) -> str:
    """SHA-256 of a GGUF file; 0.5 GB take 0.3 s, so once for each state of the file."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UsageError(f"{path} is no GGUF file")
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


class ScriptedModel:
    """A model that says what it is told to: replies in order, or a function of the messages. Tokens are estimated.

    Raises ModelError when a list of replies is exhausted. `calls` counts the requests.
    """

    def __init__(self, replies: Sequence[str] | Callable[[Sequence[Message]], str], *, id: str = "scripted"):  # noqa: A002
        self.id = id
        self.calls = 0
        self._replies = replies
        self._lock = threading.Lock()

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Mapping[str, Json] | None = None,
    ) -> Completion:
        with self._lock:
            turn, self.calls = self.calls, self.calls + 1
        if callable(self._replies):
            text = self._replies(messages)
        elif turn < len(self._replies):
            text = self._replies[turn]
        else:
            raise ModelError(f"the script has {len(self._replies)} replies, and one more was asked for")
        usage = Usage(prompt_tokens=estimate_prompt(messages), completion_tokens=estimate_tokens(text), model_calls=1)
        return Completion(text=text, model=self.id, usage=usage)


# ---- by name -----------------------------------------------------------------------------------------------------------------


def open_model(spec: str, environ: Mapping[str, str]) -> Model:
    """The model that `spec` names: `gguf:PATH`, `replay:PATH`, `NAME@BASE_URL`, or `NAME` at OPENAI_BASE_URL.

    `environ` gives OPENAI_BASE_URL and OPENAI_API_KEY. Raises UsageError, saying what to write or set, when that is not enough.
    """
    kind, _, path = spec.partition(":")
    if kind in ("gguf", "replay"):
        if not path:
            raise UsageError(f"{kind}: wants a path, as in {kind}:PATH")
        return LocalModel(path) if kind == "gguf" else ReplayModel(Path(path).expanduser())
    for suffix, form in ((".gguf", "gguf"), (".jsonl", "replay")):
        if spec.endswith(suffix):
            raise UsageError(f"to use the file {spec}, write {form}:{spec}")
    name, at, address = spec.rpartition("@http")
    url, key = (f"http{address}" if at else environ.get("OPENAI_BASE_URL")), environ.get("OPENAI_API_KEY")
    name = name if at else spec
    if not name.strip():
        raise UsageError("a model is gguf:PATH, replay:PATH, NAME@BASE_URL or NAME")
    if not url and not key:
        raise UsageError(f"to ask {name}, set OPENAI_BASE_URL to a server's address, or OPENAI_API_KEY to a key for {OPENAI_URL}")
    return EndpointModel(name, base_url=url, api_key=key)
