"""An engine for tests of the text-game world without TextWorld: a corridor of rooms, and commands that make an engine misbehave.

It speaks the worker's protocol. A game's `pddl_problem` is the number of rooms; its `grammar` says what goes wrong: "broken", "hangs",
"lies" or "closed".
"""

import json
import os
import sys
import time
from typing import Any

games: dict[str, dict[str, str]] = {}


def view(text: str, place: int, rooms: int, step: str | None, taken: bool, nonce: str) -> dict[str, Any]:
    plan, steps = ["go east"] * (rooms - place), {"go east": place < rooms, "go west": place > 0}
    lost = place == -1
    return {
        "text": text,
        "commands": [] if lost else sorted([*(c for c, open_ in steps.items() if open_), "look", "jump"]),
        "won": place == rooms,
        "lost": lost,
        "plan": None if lost else plan,
        "next": "" if lost or not plan else plan[0],
        "facts": f"room {place}",
        "mark": f"room {place}{nonce}",
        "step": step,
        "taken": taken,
        "closed": False,
    }


def answered(question: str, key: str, rest: list[Any]) -> dict[str, Any]:
    if question == "open":
        game = games[key] = rest[0]
        if "broken" in game["grammar"]:
            games.pop(key)
            return {"wrong": "it is broken"}
        if "hangs" in game["grammar"]:
            time.sleep(60)
        return {"said": view("You are in room 0. Your task is to: go east.", 0, int(game["pddl_problem"]), None, True, "")}
    if key not in games:
        return {"missing": key}
    path, mark, command, _ = rest
    rooms, place = int(games[key]["pddl_problem"]), path.count("go east") - path.count("go west")
    nonce = str(os.getpid()) if "lies" in games[key]["grammar"] else ""
    if path and mark != f"room {place}{nonce}":
        return {"said": None}
    if command not in ("go east", "go west", "look", "jump"):
        return {"said": view("What?", place, rooms, None, False, nonce)}
    if command == "jump":
        place = -1
    place += {"go east": 1, "go west": -1}.get(command, 0)
    return {"said": view(f"You are in room {place}.", place, rooms, command, True, nonce)}


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        question, key, *rest = json.loads(line)
        if rest[-2:-1] == ["hang"]:
            time.sleep(60)
        if rest[-2:-1] == ["crash"]:
            os._exit(1)
        told = answered(question, key, rest)
        if told.get("said"):
            told["said"]["closed"] = "closed" in games[key]["grammar"]
        print(json.dumps(told), flush=True)
