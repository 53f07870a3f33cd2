"""Games as they lie in files: read within bounds, from folders, archives or a task itself, and what a task line says.

In: a task's payload: {"story": a file `*.z8` with its `*.json` beside it}, {"pddl": a file `*.tw-pddl`, and "member" where it lies in a
tar archive}, or the texts of such a game. Out: what the engine is handed, and the content's hash. Nothing is unpacked to disk.
"""

import hashlib
import json
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import Json, to_json

PARTS = ("pddl_domain", "grammar", "pddl_problem")
MOST = 8 << 20  # bytes of one game; ALFWorld's have 0.1 MB
MEMBERS = 200_000  # of an archive


@dataclass(frozen=True, slots=True)
class Game:
    """What the engine is handed. `key` changes with the game's content."""

    key: str
    spec: Mapping[str, str]


def read_game(payload: Mapping[str, Json]) -> Game:
    """The game of a payload. Raises UsageError where there is none, InvalidData for a damaged one."""
    if isinstance(payload.get("story"), str):
        return _story(payload["story"])
    if isinstance(payload.get("pddl"), str):
        return _pddl(payload["pddl"], str(payload.get("member", "")))
    return _game({name: payload.get(name) for name in PARTS}, "the task")


def parse_pddl(raw: bytes, name: str) -> dict[str, Json]:
    """The parts of a `game.tw-pddl`. Raises InvalidData that names the file."""
    if len(raw) > MOST:
        raise InvalidData(f"{name}: more than {MOST >> 20} MiB")
    try:
        game = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"{name}: damaged: {error}") from error
    if not isinstance(game, dict) or not all(isinstance(game.get(part), str) and game[part].strip() for part in PARTS):
        raise InvalidData(f"{name}: is no game: it wants the texts {', '.join(PARTS)}")
    return game


def members(archive: Path, wanted: str) -> Iterator[tuple[str, bytes]]:
    """The files of a tar archive whose names end in `wanted`. Raises UsageError when it cannot be read, InvalidData when damaged."""
    try:
        with tarfile.open(archive) as opened:
            for number, member in enumerate(opened):
                if number > MEMBERS:
                    raise InvalidData(f"{archive}: more than {MEMBERS} files")
                if member.isreg() and member.name.endswith(wanted):
                    stream = opened.extractfile(member)
                    yield member.name, stream.read(MOST + 1) if stream else b""
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError) as error:
        raise InvalidData(f"{archive}: damaged archive: {error}") from error
    except OSError as error:
        raise (UsageError if error.errno else InvalidData)(f"cannot read {archive}: {error.strerror or error}") from error


@lru_cache(maxsize=64)
def _pddl(path: str, member: str) -> Game:
    where = f"{path}:{member}" if member else path
    if not member:
        return _game(parse_pddl(_bytes(path), where), where)
    for name, raw in members(Path(path), member):
        if name == member:
            return _game(parse_pddl(raw, where), where)
    raise UsageError(f"there is no {member} in {path}")


@lru_cache(maxsize=64)
def _story(path: str) -> Game:
    beside = Path(path).with_suffix(".json")
    if not re.fullmatch(r"\.z[1-8]", Path(path).suffix):
        raise InvalidData(f"{path}: only games *.z1 to *.z8 are played")
    raw, made = _bytes(path), _bytes(str(beside))
    try:
        json.loads(made)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"{beside}: damaged: {error}") from error
    return Game(hashlib.sha256(raw + made).hexdigest()[:24], {"story": str(Path(path).resolve())})


def _game(parts: Mapping[str, Json], name: str) -> Game:
    if not all(isinstance(parts.get(part), str) for part in PARTS):
        raise UsageError(f"{name} holds no game: put a file under payload['story'] or payload['pddl'], or the texts {', '.join(PARTS)}")
    spec = {part: parts[part] for part in PARTS}
    return Game(hashlib.sha256(to_json(spec).encode("utf-8", "surrogatepass")).hexdigest()[:24], spec)


def _bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(MOST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > MOST:
        raise InvalidData(f"{path}: more than {MOST >> 20} MiB")
    return raw


# What a task line says.

WHAT = r"(?:(?:an?|some|the) )?(?P<object>[\w -]+?)"
LINES: tuple[tuple[str, str], ...] = (  # ALFWorld's templates: kind of task, its line
    ("look", rf"(?:look at|examine) {WHAT} (?:under|with) the (?P<place>[\w -]+)"),
    ("two", r"(?:find|put) two (?P<object>[\w -]+?)(?: and put them)? (?:in|on) (?:the )?(?P<place>[\w -]+)"),
    ("clean", rf"(?:clean {WHAT} and put it|put an? clean (?P<other>[\w -]+?)) (?:in|on) (?:the )?(?P<place>[\w -]+)"),
    ("heat", rf"(?:heat {WHAT} and put it|put an? hot (?P<other>[\w -]+?)) (?:in|on) (?:the )?(?P<place>[\w -]+)"),
    ("cool", rf"(?:cool {WHAT} and put it|put an? cool (?P<other>[\w -]+?)) (?:in|on) (?:the )?(?P<place>[\w -]+)"),
    ("put", rf"put {WHAT} (?:in|on) (?:the )?(?P<place>[\w -]+)"),
)
COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can could do first for from get go got has have if in into is it its like make need next of off on or "
        "out please put so some sure take task that the them then there these thing things this to try up with you your will",
    )
)


def told(line: str) -> dict[str, Json]:
    """What a task line names: the kind of task, its object and its place where it is one of ALFWorld's, and its words."""
    text = " ".join(line.lower().split()).rstrip(".! ")
    words = sorted({word for word in re.findall(r"[^\W\d_]{2,}", text) if word not in COMMON})[:40]
    for kind, pattern in LINES:
        if found := re.fullmatch(pattern, text):
            named = found.groupdict()
            return {"kind": kind, "object": named.get("object") or named.get("other") or "", "place": named["place"], "words": words}
    return {"kind": "quest", "words": words}
