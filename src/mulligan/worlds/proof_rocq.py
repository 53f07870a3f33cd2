"""The Rocq checker of the proof world: a statement that stays what it is, a proof that may be any text, what it rests on.

In: a theorem, an action. Out: a Finding. Three files, each compiled by a `coqc` of its own behind the sandbox's walls. `Statement.v` is
ours: the theorem with a hole, and its type under a name. `Candidate.v` holds the proof; whatever commands stand in it, only its `.vo` goes
on. `Verdict.v` is ours: it asks the kernel for the candidate's constant at the statement's type, and what that rests on. So nothing that
the proof declares, redefines, hides or prints can pass for a proof. A failed proof is run once more, with `Show.` after each sentence, for
the goal.

Not promised: safety from faults of Coq's kernel, or from OCaml plugins that are installed and harmful.
"""

import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from mulligan.errors import UsageError
from mulligan.records import Signal
from mulligan.worlds.proof_text import ENDS, GIVEN_UP, OWN, THEOREM, Finding, Sentence, Theorem, cut, sentences
from mulligan.worlds.sandbox import Limits, Wall
from mulligan.worlds.sandbox_command import Command, Finished, run_command, taken

INSTALL = "checking proofs needs Rocq's coqc: apt-get install coq (elsewhere: opam install coq)"
PLUGINS = Path("/etc/ocamlfind.conf")  # says where OCaml's plugins are; where it is not there, the prefix has its own
FLAGS = ("-q", "-w", "none", "-R", ".", "Mulligan")
IMPORT = "Require Import Mulligan.Statement."
CLOSED = "Closed under the global context"
GOAL = 700  # characters of a goal that are told
DECLARES = re.compile(rf"\A{THEOREM.pattern}|\A(?:Program )?(?:Definition|Fixpoint|Axiom|Parameter)\s+([\w']+)")
BROKEN = re.compile(
    r"Anomaly|Stack overflow|[Oo]ut of memory|Fatal error|Native compiler exited"
)  # the checker's end, not the proof's fault
_ERROR = re.compile(r'^File "\./(?:Candidate|Verdict)\.v", line (\d+), characters (\d+)-(\d+):\nError:\s*(.*?)(?=^File "|\Z)', re.M | re.S)
_SYNTAX = re.compile(r"Syntax error|Syntax Error|Lexer")
_HEAD = re.compile(r"^(\d+) (?:focused )?goals?\b.*$", re.M)
_OTHER = re.compile(r"^(?:goal (\d+) is:|\*\*\* |No more goals|This subproof is complete)", re.M)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate's file, the place of the action in it, and the action's sentences."""

    text: str
    start: int
    action: str

    @property
    def sentences(self) -> list[Sentence]:
        return sentences(self.action)


def candidate(theorem: Theorem, action: str) -> Candidate:
    """The file that an action makes: tactics are put after the statement, an action that states the theorem itself stands alone."""
    said = sentences(action)
    head = "\n".join([IMPORT, *_own(theorem.given)])
    if any(theorem.name in (found.groups() if (found := DECLARES.match(one.text)) else ()) for one in said):
        return Candidate(f"{head}\n{action}\n", len(head) + 1, action)
    begin = "" if said and re.match(r"Proof\b", said[0].text) else "Proof.\n"
    end = "" if said and ENDS.match(said[-1].text) else "\nQed."
    head = f"{head}\n{theorem.said}\n{begin}"
    return Candidate(f"{head}{action}{end}\n", len(head), action)


def _own(given: Iterable[str]) -> Iterable[str]:
    """What a file says for itself, with an import in the place of what it hands on: later names hide earlier ones as they did."""
    return (line if OWN.match(line) else IMPORT for line in given)


@dataclass(frozen=True, slots=True)
class Rocq:
    """The checker. Settings only."""

    limits: Limits
    wall: Wall = "bubblewrap"

    def check(self, theorem: Theorem, action: str, axioms: Iterable[str]) -> Finding:
        """Accepted when the kernel takes the candidate for the statement, resting on `axioms` alone. Raises UsageError without coqc."""
        try:
            statement = _statement(theorem, self)
        except Refused as refused:
            return Finding(completed=False, signals=(Signal(kind="error", what=str(refused)),))
        made = candidate(theorem, action)
        ended, compiled = self._compile("Candidate", made.text, {"Statement.vo": statement})
        if compiled is None:
            return _unfinished(ended, self.limits) or self._failed(theorem, made, ended, statement)
        name = f"answer_{secrets.token_hex(8)}"
        verdict = (
            "Require Mulligan.Statement Mulligan.Candidate.\n"
            f"Definition {name} : Mulligan.Statement.Asked.statement := Mulligan.Candidate.{theorem.name}.\n"
            f"Check {name}.\nPrint Assumptions {name}.\n"
        )
        ended, held = self._compile("Verdict", verdict, {"Statement.vo": statement, "Candidate.vo": compiled})
        if held is None:
            return _unfinished(ended, self.limits) or _not_it(theorem, ended.output)
        _, _, said = ended.output.partition(f"{name}\n     : ")
        return _weighed(said.partition("\n")[2], {*axioms})

    def _failed(self, theorem: Theorem, made: Candidate, ended: Finished, statement: bytes) -> Finding:
        """The first error, and the goal there."""
        found = _ERROR.findall(ended.output)
        if not found:
            return Finding(signals=(Signal(kind="error", what=cut(_plain(ended.output)) or "the proof could not be compiled"),))
        line, first, _, message = found[-1]
        said = made.sentences
        offset = _offset(made.text, int(line), int(first)) - made.start
        place = next((n for n, one in enumerate(said) if offset < one.end), len(said))
        dotless = bool(said) and place >= len(said) - 1 and said[-1].text[-1] not in ".}-+*"  # it ran into what follows
        where = "end" if dotless or place == len(said) else _where(made.action, max(offset, 0))
        blame = f"{cut(' '.join(said[place].text.split()), 80)}: " if place < len(said) else ""
        is_syntax = dotless or _SYNTAX.match(message) is not None
        what = "the last sentence has no dot" if dotless else blame + cut(_plain(message))
        signal = Signal(kind="syntax" if is_syntax else "error", what=what, where=where)
        shown = self._shown(theorem, made, place, statement)
        if not shown:
            return Finding(signals=(signal,))
        counts = [_open(part) for part in shown]
        heads = [head.group(1) for one in said[:place] if (head := THEOREM.match(one.text))]
        spent = GIVEN_UP.search(" ".join(one.text for one in said[:place])) or heads[-1:] not in ([], [theorem.name])
        closed = Fraction(0) if is_syntax or spent or not counts[-1] else Fraction(max(counts) - counts[-1], max(counts))
        goal = _goal(shown[-1])
        return Finding(closed=closed, signals=(signal, Signal(kind="goal", what=goal, where=where)) if goal else (signal,))

    def _shown(self, theorem: Theorem, made: Candidate, place: int, statement: bytes) -> list[str]:
        """What `Show.` says after each sentence of the last proof, up to the one at `place`."""
        said, mark = made.sentences[:place], f"mark_{secrets.token_hex(8)}"
        starts = [n for n, one in enumerate(said) if re.match(r"Proof\b", one.text)]
        inside = made.text[: made.start].rstrip().endswith("Proof.")
        first = starts[-1] + 1 if starts else 0 if inside else len(said)
        show = f"\nSet Printing Unfocused.\n{_say(mark)}\nShow.\n"
        head = made.text[: made.start] + (made.action[: said[first - 1].end] if first else "")
        text = head + show + "".join(f"{one.text}{show}" for one in said[first:]) + f"{_say(mark)}\nAbort All.\n"
        ended, _ = self._compile("Candidate", text, {"Statement.vo": statement})
        return [part.partition('\nFile "./Candidate.v"')[0] for part in _parts(mark, ended.output)][: len(said) - first + 1]

    def works(self, theorem: Theorem, drafts: Sequence[str], seconds: float) -> list[bool]:
        """Which drafts one `coqtop` takes within `seconds`, a second for each sentence: for their order, no verdict."""
        libraries = sorted({*re.findall(r"Require Import (Lia|Lra)\b", " ".join(drafts))})  # loaded once, though each draft is taken back
        head = "\n".join([IMPORT, *_own(theorem.given), *(f"Require {name}." for name in libraries), "Set Default Timeout 1."])
        bodies = [(theorem.name, candidate(theorem, draft).text) for draft in drafts]
        return self._each(head, bodies, {"Statement.vo": _statement(theorem, self)}, seconds)

    def states(self, theorems: Sequence[Theorem], seconds: float) -> list[bool]:
        """Which statements are read with what is installed; one `coqtop` reads them all."""
        libraries = (line for theorem in theorems for line in theorem.given if re.match(r"(?:From\s+\S+\s+)?Require\b", line))
        head = "\n".join(dict.fromkeys(re.sub(r"\b(?:Import|Export)\b", "", line) for line in libraries))
        return self._each(head, [(theorem.name, f"{theorem.text}\nAdmitted.") for theorem in theorems], {}, seconds)

    def _each(self, head: str, bodies: Sequence[tuple[str, str]], files: Mapping[str, bytes], seconds: float) -> list[bool]:
        """Whether each of `bodies` makes a constant of its name without an error. One `coqtop`, which goes on after one, is told all."""
        mark = f"mark_{secrets.token_hex(8)}"
        parts = [f"{_say(mark)}\nModule Body.\n{body}\nAbort All.\nEnd Body.\nCheck Body.{name}.\nReset Body.\n" for name, body in bodies]
        text = f"{head}\nSet Silent.\n{''.join(parts)}"
        argv = ["/bin/sh", "-c", 'exec "$0" "$@" < Each.v', _tool("coqtop"), *FLAGS]
        ended, _ = self._run(argv, {**files, "Each.v": text.encode()}, seconds)
        said = [*_parts(mark, ended.output), *[""] * len(bodies)]
        made = (re.search(rf"(?:^|< )Body\.{re.escape(name)}\s+: ", part, re.M) for (name, _), part in zip(bodies, said, strict=False))
        return [one is not None and "Toplevel input, characters" not in one.string for one in made]

    def _compile(self, name: str, text: str, files: Mapping[str, bytes]) -> tuple[Finished, bytes | None]:
        argv = [_tool("coqc"), *FLAGS, "-noglob", f"{name}.v"]
        ended, made = self._run(argv, {**files, f"{name}.v": text.encode()}, self.limits.wall_s, f"{name}.vo")
        return ended, made if ended.status == 0 else None

    def _run(self, argv: Sequence[str], files: Mapping[str, bytes], seconds: float, wanted: str = "") -> tuple[Finished, bytes | None]:
        """Run in a fresh folder that holds `files`; how it ended, and the file that is wanted of it."""
        limits = replace(self.limits, wall_s=seconds)
        with tempfile.TemporaryDirectory(prefix="mulligan-proof-") as folder:
            for name, content in files.items():
                Path(folder, name).write_bytes(content)
            plugins = {"OCAMLFIND_CONF": "plugins.conf"} if PLUGINS.is_file() else {}
            if plugins:
                Path(folder, plugins["OCAMLFIND_CONF"]).write_bytes(PLUGINS.read_bytes())
            command = Command(argv=argv, folder=Path(folder), readable=_readable(), environment=plugins)
            ended = run_command(command, limits, self.wall)
            return ended, taken(Path(folder), wanted) if wanted else None


def _say(mark: str) -> str:
    """A command that prints `mark`."""
    return f"Check (fun {mark} : Set => {mark})."


def _parts(mark: str, output: str) -> list[str]:
    """What was printed after each mark."""
    return re.split(rf"fun {mark} : Set => {mark}\s+: Set -> Set\n", output)[1:]


def installed() -> str:
    """The version of the installed Rocq, "" where there is none."""
    return _version(shutil.which("coqc") or "")


@lru_cache(maxsize=4)
def _version(coqc: str) -> str:
    if not coqc:
        return ""
    said = subprocess.run([coqc, "--print-version"], capture_output=True, text=True, timeout=60, check=False).stdout
    return said.partition(" ")[0].strip()


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UsageError(INSTALL)
    return found


def _readable() -> list[Path]:
    """What it reads beside the system's libraries: the prefix of a Rocq that is not the system's."""
    prefixes = {Path(_tool("coqc")).parents[1], Path(_tool("coqc")).resolve().parents[1]}
    return sorted(place for place in prefixes if not place.is_relative_to("/usr"))


class Refused(Exception):
    """A statement that Rocq does not take."""


@lru_cache(maxsize=256)
def _statement(theorem: Theorem, checker: Rocq) -> bytes:
    """The compiled statement of a theorem. Raises Refused."""
    typed = f"Definition statement := ltac:(let t := type of {theorem.name} in exact t)."
    text = "\n".join([*theorem.given, "Module Asked.", theorem.said, "Admitted.", typed, "End Asked.", ""])
    ended, made = checker._compile("Statement", text, {})
    if made is None:
        raise Refused(f"the statement of this task is not accepted: {cut(_plain(ended.output))}")
    return made


def _unfinished(ended: Finished, limits: Limits) -> Finding | None:
    """What says that there is no verdict."""
    if ended.timed_out:
        return Finding(completed=False, signals=(Signal(kind="timeout", what=f"no verdict within {limits.wall_s:g} s"),))
    if ended.status is None or ended.status < 0 or BROKEN.search(ended.output[-3000:]):
        return Finding(completed=False, signals=(Signal(kind="too_large", what=f"the checker broke down: {cut(_plain(ended.output))}"),))
    return None


def _not_it(theorem: Theorem, output: str) -> Finding:
    """What is wrong with a candidate that compiles but is no proof of the statement."""
    if "was not found" in output:
        return Finding(signals=(Signal(kind="error", what=f"{theorem.name} is not proved: no theorem of that name is left", where="end"),))
    said = _ERROR.search(output)
    plain = _plain(said.group(4) if said else output).replace("Candidate.", "").replace("Statement.Asked.statement", "the statement")
    return Finding(signals=(Signal(kind="refuted", what=f"what is proved is not what was asked: {cut(plain)}"),))


def _weighed(said: str, allowed: set[str]) -> Finding:
    """The finding from what `Print Assumptions` says, and nothing else but that."""
    if said.strip() == CLOSED:
        return Finding(accepted=True)
    head, *lines = said.strip().split("\n")
    names = [line for line in lines if not line.startswith(" ")]
    bad = [line for line in names if line.partition(" : ")[0].strip() not in allowed]
    if head == "Axioms:" and names and not bad:
        return Finding(accepted=True)
    what = cut(" ".join(bad or [said.strip() or "nothing is said of what it rests on"]).replace("Candidate.", ""), 200)
    return Finding(signals=(Signal(kind="refuted", what=f"the proof has a hole; it rests on {what}"),))


def _plain(message: str) -> str:
    lines = (line.rstrip() for line in message.strip().splitlines() if not line.startswith('File "'))
    return "\n".join(lines).removeprefix("Error:").strip()


def _offset(text: str, line: int, column: int) -> int:
    """A place as Coq gives it, line and bytes, in characters of `text`."""
    lines = text.split("\n")
    before = sum(len(one) + 1 for one in lines[: line - 1])
    rest = "\n".join(lines[line - 1 :]).encode()[:column]
    return before + len(rest.decode("utf-8", "ignore"))


def _where(action: str, offset: int) -> str:
    line = action.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - (action.rfind(chr(10), 0, offset) + 1) + 1}"


def _open(shown: str) -> int:
    """How many goals are open, in focus or not."""
    return max([0, *(int(n) for n in _HEAD.findall(shown)), *(int(n) for n in _OTHER.findall(shown) if n)])


def _goal(shown: str) -> str:
    """The first open goal: hypotheses, a line, the conclusion; "" where there is none."""
    head = _HEAD.search(shown)
    if not head:
        return ""
    body = _OTHER.split(shown[head.end() :], maxsplit=1)[0]
    text = "\n".join(line.removeprefix("  ") for line in body.splitlines() if line.strip())
    if not text:  # nothing in focus: the next goal's conclusion
        found = re.search(r"goal 1 is:\n(.*?)(?=\ngoal 2 is:|\n\n|\Z)", shown, re.S)
        return cut(" ".join(found.group(1).split()), GOAL) if found else ""
    above, line, conclusion = f"\n{text}".rpartition("\n" + "=" * 28)
    if not line:
        return cut(text, GOAL)
    conclusion = cut(conclusion.strip(), GOAL // 2)
    room = GOAL - len(conclusion)
    return f"{above if len(above) <= room else '…' + above[-room:]}\n{'=' * 12}\n{conclusion}".strip("\n")
