"""A small database for the tests of the SQL world, and tasks about it: invented islands, their ports, streams and bridges.

Names are in small letters; `stream.crosses` holds names of islands; a bridge stands in its table both ways round.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from builders import task
from mulligan.records import Task

ISLANDS = [
    ("arn", 410, 5200, "arnhaven", "north"),
    ("bessel", 130, 900, "low pier", "north"),
    ("corrin", 980, 21000, "great corrin", "south"),
    ("dunmore", 75, 310, "dun", "west"),
    ("eddary", 655, 8700, "eddary", "south"),
    ("fell", 45, 120, "fellfoot", "west"),
    ("great skerry", 300, 4100, "skerryvoe", "north"),
    ("harrow", 515, 9900, "harrow bay", "south"),
    ("isk", 220, 1500, "iskwater", "west"),
    ("jura point", 190, 760, "jura", "north"),
]
PORTS = [(f"port {chr(97 + i)}{i % 7}", ISLANDS[i % 10][0], 100 + 37 * i * (i % 5 + 1)) for i in range(30)]
STREAMS = [
    ("long burn", 61, ["corrin", "harrow", "eddary"]),
    ("red water", 34, ["arn", "corrin"]),
    ("mill race", 12, ["isk"]),
    ("black burn", 27, ["harrow", "fell", "isk"]),
    ("corrin", 19, ["corrin", "bessel"]),
    ("still", 8, ["dunmore"]),
]
BRIDGES = [("arn", "bessel"), ("arn", "corrin"), ("corrin", "harrow"), ("eddary", "harrow"), ("fell", "isk"), ("dunmore", "isk")]
SCHEMA = """
CREATE TABLE island (name TEXT PRIMARY KEY, area INTEGER, people INTEGER, chief_port TEXT, chain TEXT);
CREATE TABLE port (port_name TEXT, island TEXT, people INTEGER);
CREATE TABLE stream (stream_name TEXT, length INTEGER, crosses TEXT);
CREATE TABLE bridge (island TEXT, other TEXT);
"""


def build(folder: Path) -> Path:
    """The database's file in `folder`."""
    path = folder / "islands.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCHEMA)
        connection.executemany("INSERT INTO island VALUES (?, ?, ?, ?, ?)", ISLANDS)
        connection.executemany("INSERT INTO port VALUES (?, ?, ?)", PORTS)
        connection.executemany("INSERT INTO stream VALUES (?, ?, ?)", [(name, length, at) for name, length, all_ in STREAMS for at in all_])
        connection.executemany("INSERT INTO bridge VALUES (?, ?)", [pair for a, b in BRIDGES for pair in ((a, b), (b, a))])
    return path


def make(folder: Path, script: str) -> Path:
    """A database made by a script, under a name of its own."""
    path = folder / f"made{len(list(folder.iterdir()))}.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)
    return path


def ask(database: Path, gold: str, prompt: str = "Which islands are there?", split: str = "source", **payload: Any) -> Task:
    """A task about a database."""
    return task(id=f"{split}:{gold}", split=split, prompt=prompt, payload={"database": str(database), "gold": gold, **payload})
