"""Looks at what Mulligan stands on, from Python to the store, and says what to do about what is wrong.

In: the path of a store, the environment. Out: findings, each with its advice. Nothing is changed; an endpoint that is configured is
asked for one token. Not promised: that a model which answers is any good.
"""

import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from mulligan.building import EXTRAS, default_model, embedder
from mulligan.errors import MulliganError, UsageError
from mulligan.models import EndpointModel
from mulligan.nouns import noun
from mulligan.records import Message
from mulligan.store import Store
from mulligan.tasks.sample import DATA
from mulligan.worlds import proof_lean, proof_rocq
from mulligan.worlds.sandbox import Program, Sandbox

PURPOSE: Mapping[str, str] = {
    "sql": "the SQL world",
    "sat": "the SAT world",
    "smt": "the SMT world",
    "maths": "the maths world",
    "shop": "the shop world",
    "text": "the text-game world, whose engine is built with a C++ compiler and cmake",
    "local": "GGUF files in process",
    "report": "plots in reports",
}
PATIENCE_S = 10.0


@noun
class Finding:
    """One thing that was looked at. `todo` is what to do where it is not ok; what is missing but only optional is a `hint`."""

    what: str
    state: Literal["ok", "hint", "bad"]
    says: str
    todo: str = ""


def examine(store: Path, environ: Mapping[str, str], *, expected: bool) -> list[Finding]:
    """All findings. `expected` says that the store was named, so that it must be there."""
    checks = (
        _python(),
        _sqlite(),
        *_extras(),
        _embedder(),
        _sandbox(),
        *_provers(),
        _recording(),
        _endpoint(environ),
        *_store(store, expected),
    )
    return list(checks)


def _python() -> Finding:
    return Finding(what="Python", state="ok", says=sys.version.partition(" ")[0])


def _sqlite() -> Finding:
    """The store needs word search (FTS5) and generated columns; one made in memory has both or fails."""
    try:
        Store(":memory:").close()
    except (MulliganError, sqlite3.Error) as error:
        return Finding(
            what="SQLite",
            state="bad",
            says=f"{sqlite3.sqlite_version} cannot hold a store: {error}",
            todo="use a Python whose sqlite3 is 3.38 or newer and built with FTS5",
        )
    return Finding(what="SQLite", state="ok", says=f"{sqlite3.sqlite_version} with word search (FTS5)")


def _extras() -> Iterator[Finding]:
    for package, extra in EXTRAS.items():
        if find_spec(package):
            yield Finding(what=f"extra {extra}", state="ok", says=f"{package} is there, for {PURPOSE[extra]}")
        else:
            yield Finding(
                what=f"extra {extra}",
                state="hint",
                says=f"{package} is missing",
                todo=f"for {PURPOSE[extra]}: pip install 'mulligan[{extra}]'",
            )


def _embedder() -> Finding:
    started = time.perf_counter()
    try:
        found = embedder("static")
        found.embed(["a first text"])
    except (MulliganError, ImportError, OSError, ValueError) as error:
        return Finding(what="embedder", state="bad", says=f"does not load: {error}", todo="pip install --force-reinstall wordllama")
    return Finding(what="embedder", state="ok", says=f"{found.id} loads in {time.perf_counter() - started:.1f} s")


def _sandbox() -> Finding:
    try:
        with Sandbox() as box:
            box.check(Program(source="", tests=[], names=[]))
    except UsageError as error:
        return Finding(what="sandbox", state="hint", says="untrusted code cannot be walled off", todo=str(error))
    return Finding(what="sandbox", state="ok", says="untrusted code is walled off by bubblewrap")


def _provers() -> Iterator[Finding]:
    for name, installed, todo in (("Rocq", proof_rocq.installed, proof_rocq.INSTALL), ("Lean", proof_lean.installed, proof_lean.INSTALL)):
        if found := installed():
            yield Finding(what=name, state="ok", says=f"{found} is there, for the proof world")
        else:
            yield Finding(what=name, state="hint", says=f"no {name}, which the proof world can use", todo=todo)


def _recording() -> Finding:
    if (DATA / "recording.jsonl").is_file():
        return Finding(what="demo", state="ok", says="its recording of a model is there")
    todo = "run `mulligan demo --model SPEC` live, or make the recording with `mulligan record`"
    return Finding(what="demo", state="hint", says="its recording of a model is missing", todo=todo)


def _endpoint(environ: Mapping[str, str]) -> Finding:
    url, name = environ.get("OPENAI_BASE_URL"), default_model(environ)
    if not url:
        todo = "to run live: set OPENAI_BASE_URL and OPENAI_MODEL, or give --model"
        return Finding(what="model", state="hint", says="no endpoint is configured (OPENAI_BASE_URL)", todo=todo)
    if not name:
        return Finding(what="model", state="hint", says=f"{url} is configured, but no name", todo="set OPENAI_MODEL to the model's name")
    started = time.perf_counter()
    try:
        model = EndpointModel(name, base_url=url, api_key=environ.get("OPENAI_API_KEY"), timeout_s=PATIENCE_S, retries=0)
        model.complete([Message(role="user", content="Say yes.")], max_tokens=1, temperature=0.0, seed=0)
    except MulliganError as error:
        return Finding(what="model", state="bad", says=f"{name} does not answer", todo=str(error))
    return Finding(what="model", state="ok", says=f"{name} answers in {time.perf_counter() - started:.1f} s")


def _store(path: Path, expected: bool) -> Iterator[Finding]:
    if not path.exists() and not expected:
        yield Finding(what="store", state="hint", says=f"none at {path}", todo="`mulligan learn` makes one, or name yours with --store")
        return
    try:
        with Store(path, frozen=True) as store:
            yield from _health(path, store)
    except MulliganError as error:
        yield Finding(what="store", state="bad", says=f"{path} cannot be used", todo=str(error))


def _health(path: Path, store: Store) -> Iterator[Finding]:
    problems = store.problems()
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        bare = "mulligan reembed" in problems[0]  # nothing is lost, so nothing is to be recovered
        todo = f"mulligan reembed --embedder static --store {path}" if bare else f"save what can be read: mulligan doctor --recover {path}"
        yield Finding(what="store", state="bad", says=f"{path}: {problems[0]}{more}", todo=todo)
    else:
        yield Finding(what="store", state="ok", says=f"{path} is whole")
    counts = {name: number for name, number in store.counts().items() if number}
    yield Finding(what="rows", state="ok", says=", ".join(f"{number} {name}" for name, number in counts.items()) or "none yet")
    if store.embedder:
        yield Finding(what="vectors", state="ok", says="of {} with {} dimensions".format(*store.embedder))
