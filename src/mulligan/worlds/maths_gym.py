"""What runs behind the walls for reasoning-gym: its generators, and their verifiers, each asked in a process of its own.

In: lines of JSON {"name", "size", "seed"}, for a verdict also "index", "question", "answer", "seconds". Out: a line each: {"entries"},
pairs of question and answer; {"score"}; or {"why"} where there is neither. For a verdict the entry is made anew, and must ask the same.

Some verifiers evaluate the answer as Python, in the process that scores it: those are asked only about answers that call nothing but the
functions of `KNOWN`, since others could forge their own score. Not promised: that a verifier is right.
"""

import ast
import importlib
import inspect
import json
import keyword
import os
import re
import select
import signal
import sys
import textwrap
import time
from contextlib import suppress
from typing import Any, NoReturn

from mulligan.worlds.sandbox_wall import Prepared, limit

DUMPABLE = 4
LIMITS = {"RLIMIT_AS": 2 << 30, "RLIMIT_CPU": 60, "RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 64, "RLIMIT_CORE": 0}
EVALUATE = {"eval", "exec", "parse_expr", "sympify"}
KNOWN = {"sqrt", "sin", "cos", "tan", "exp", "log", "ln", "asin", "acos", "atan", "sinh", "cosh", "tanh", "Abs"}
KEYWORDS = set(keyword.kwlist) - {"and", "or", "not", "in", "is", "if", "else", "None", "True", "False"}
QUOTED = re.compile(r"(?<![A-Za-z])(?:'[^'\\{}\n]*'|\"[^\"\\{}\n]*\")")
MOST = 1 << 10  # bytes of a score


def is_tame(answer: str) -> bool:
    """Whether an answer that is evaluated as Python can do no more than calculate: it calls and looks into nothing that could do more."""
    bare = QUOTED.sub("0", answer)
    if re.search(r"\w_|_\w|['\"`\\@{}]|:=|\.\s*[A-Za-z]|[)\]]\s*\(", bare):
        return False
    called = re.findall(r"([^\W\d]\w*)\s*\(", bare)
    return all(len(name) == 1 or name in KNOWN for name in called) and not KEYWORDS & set(re.findall(r"\w+", bare))


def evaluates(dataset: Any) -> bool:
    """Whether the source of a generator calls what evaluates text."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(type(dataset))))
    return any(getattr(node, "id", getattr(node, "attr", "")) in EVALUATE for node in ast.walk(tree))


def answered(told: dict[str, Any], made: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    """The answer to one line. `made` keeps a generator from one question to the next."""
    key = (told["name"], told["size"], told["seed"])
    if key not in made:
        made.clear()
        made[key] = importlib.import_module("reasoning_gym").create_dataset(told["name"], size=told["size"], seed=told["seed"])
    dataset = made[key]
    if "answer" not in told:
        return {"entries": [[str(entry["question"]), str(entry["answer"])] for entry in dataset]}
    entry = dataset[told["index"]]
    if str(entry["question"]).strip() != told["question"].strip():
        return {"why": "the reasoning-gym that is installed asks another question here"}
    if evaluates(dataset) and not is_tame(told["answer"]):
        return {"why": "the verifier would run this answer as a program"}
    return apart(lambda: float(dataset.score_answer(answer=told["answer"], entry=entry)), told["seconds"])


def apart(score: Any, seconds: float) -> dict[str, Any]:
    """What `score` returns, called in a child that is killed after so many seconds."""
    into, out = os.pipe()
    child = os.fork()
    if child == 0:
        _child(score, out)
    os.close(out)
    found, until = b"", time.monotonic() + seconds
    while len(found) < MOST and select.select([into], [], [], max(0.0, until - time.monotonic()))[0] and (part := os.read(into, MOST)):
        found += part
    os.close(into)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        value = float(found)
    except ValueError:
        return {"why": f"the verifier says nothing that is a score within {seconds:g} s: {found[:200].decode('utf-8', 'replace')}"}
    return {"score": value} if 0 <= value <= 1 else {"why": f"the verifier gives {value}, which is no score"}


def _child(score: Any, out: int) -> NoReturn:
    try:
        os.setsid()
        quiet = os.open("/dev/null", os.O_RDWR)
        for place in (0, 1, 2):
            os.dup2(quiet, place)
        kept = os.dup2(out, 3)
        os.closerange(4, 1 << 16)
        limit(LIMITS)
        try:
            said = repr(score())
        except BaseException as error:
            said = f"{type(error).__name__}"
        os.write(kept, said.encode("utf-8", "replace")[: MOST - 1])
    finally:
        os._exit(0)


def main() -> None:
    """Answer lines until the input ends."""
    prepared = Prepared(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if prepared.stands:
        prepared.drop_rights()
    prepared.refuse_calls()
    prepared.libc.prctl(DUMPABLE, 0, 0, 0, 0)
    sys.path.insert(0, sys.argv[2])  # where the package lies
    importlib.import_module("reasoning_gym")  # the long part, before the first question
    print("ready", file=answers, flush=True)
    made: dict[tuple[Any, ...], Any] = {}
    for line in sys.stdin:
        try:
            told = answered(json.loads(line), made)
        except Exception as error:  # of a generator: a library in its first versions
            told = {"why": f"reasoning-gym ends with {type(error).__name__}: {error}"[:300]}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    main()
