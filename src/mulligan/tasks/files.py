"""What the loaders of files without splits share: bytes within bounds, JSON Lines, and tasks dealt out with their report.

In: paths; tasks and what was left out. Out: bytes and nodes; tasks with splits and a LoadReport. Files may be gzipped; they are unpacked
no further than their bound.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Task
from mulligan.tasks.loading import LeftOut, LoadReport, Node
from mulligan.tasks.splits import assign_splits

SHARES = (0.5, 0.1, 0.4)  # of tasks, for source, train and heldout
MAX_BYTES = 256 << 20  # of a file when unpacked


def read_bytes(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """A file's content, unpacked where it is gzipped. Raises UsageError when it cannot be read, InvalidData when damaged or larger."""
    try:
        with Path(path).open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else Path(path).open("rb") as stream:
            body: bytes = stream.read(most + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidData(f"{path}: damaged gzip file: {error}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(body) > most:
        raise InvalidData(f"{path}: more than {most >> 20} MiB unpacked")
    return body


def read_lines(path: str | Path) -> Iterator[Node]:
    """The objects of a JSON Lines file. Raises as `read_bytes` does, and InvalidData with its line when a line is no JSON."""
    for number, line in enumerate(read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            try:
                yield Node(json.loads(line), str(path), f"line {number}")
            except (ValueError, RecursionError) as error:
                raise InvalidData(f"{path}: line {number}: {error}") from error


def dealt(
    tasks: Sequence[Task], left_out: Mapping[LeftOut, int], *, file: str | Path, read: int, what: str, shares: Sequence[float], seed: int
) -> tuple[list[Task], LoadReport]:
    """The tasks with splits, and the report. Raises InvalidData when none is left; `what` is what the file holds, in the singular."""
    if not tasks:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise InvalidData(f"{file}: no {what} that can be used among {read}{f' ({why})' if why else ''}")
    return assign_splits(tasks, shares=shares, seed=seed), LoadReport(file=str(file), read=read, left_out=dict(left_out))
