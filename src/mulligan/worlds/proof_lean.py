"""The Lean 4 checker of the proof world: a theorem that is ours, tactics that are not, the axioms that Lean prints.

In: a theorem, tactics. Out: a Finding. The file is prelude, theorem, tactics, and `#print axioms`, run by `lean` behind the sandbox's
walls. Lean's tactics can be any program, so words that declare, configure or run something are refused in the text, which is weaker than
what the kernel guarantees for Rocq. Not promised: safety from tactics that write to Lean's own memory, and partial credit: `closed` is
always 0. Tested on written output and a stand-in for `lean`; no real Lean has judged it yet.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Signal
from mulligan.worlds.proof_text import Finding, Theorem, cut
from mulligan.worlds.sandbox import Limits, Wall
from mulligan.worlds.sandbox_command import Command, run_command

INSTALL = "checking Lean proofs needs lean 4: install elan from github.com/leanprover/elan, then `elan default leanprover/lean4:stable`"
AXIOMS = frozenset(["propext", "Classical.choice", "Quot.sound"])  # Lean's own, which nearly every proof rests on
_THEOREM = re.compile(r"^(?:theorem|lemma)\s+([^\W\d][\w.']*)", re.M)
_REFUSED = re.compile(
    r"(?<![\w.'])(?:#\w+|@\[|axiom|theorem|lemma|def|abbrev|opaque|instance|structure|inductive|class|example|namespace|section|end|import|variable|"
    r"universe|attribute|mutual|private|protected|noncomputable|unsafe|macro\w*|syntax|notation|infix[lr]?|prefix|postfix|elab\w*|by_elab|"
    r"run_\w+|initialize|builtin_initialize|declare_\w+|set_option|export|deriving|Lean\b|sorry)(?![\w'])"
)
_ERROR = re.compile(
    r"^Proof\.lean:(\d+):(\d+): error(?:\([\w.]+\))?: (.*?)(?=^Proof\.lean:\d+:\d+: |^'[^'\n]+' (?:depends|does not)|\Z)", re.M | re.S
)
_SYNTAX = re.compile(r"expected|unexpected|unterminated")
_PRINTED = re.compile(r"'(\S+)' (?:(does not depend on any axioms)|depends on axioms:\s*\[([^\]]*)\])")


@dataclass(frozen=True, slots=True)
class Lean:
    """The checker. Settings only."""

    limits: Limits
    wall: Wall = "bubblewrap"

    def check(self, theorem: Theorem, action: str, axioms: Iterable[str]) -> Finding:
        """Accepted when Lean takes the tactics, and the theorem rests on Lean's axioms and `axioms`. Raises UsageError without lean."""
        if found := _REFUSED.search(action):
            line = action.count("\n", 0, found.start()) + 1
            return Finding(signals=(Signal(kind="error", what=f"{found.group()} may not stand in a proof", where=f"line {line}"),))
        tactics = re.sub(r"\A\s*(?::=\s*)?by\b[ \t]*\n?", "", action)
        dropped = action.count("\n") - tactics.count("\n")
        head = f"{theorem.text} := by\n"
        text = head + "".join(f"  {line}\n" for line in tactics.splitlines() or ["skip"]) + f"\n#print axioms {theorem.name}\n"
        prefix = _prefix()
        paths = [part for part in os.environ.get("LEAN_PATH", "").split(os.pathsep) if part]
        environment = {"LEAN_PATH": os.pathsep.join(paths)} if paths else {}
        with tempfile.TemporaryDirectory(prefix="mulligan-proof-") as folder:
            Path(folder, "Proof.lean").write_text(text, "utf-8")
            argv = [str(prefix / "bin" / "lean"), "Proof.lean"]
            readable = [prefix, *map(Path, paths)]
            command = Command(argv=argv, folder=Path(folder), environment=environment, readable=readable)
            ended = run_command(command, self.limits, self.wall)
        if ended.timed_out:
            return Finding(completed=False, signals=(Signal(kind="timeout", what=f"no verdict within {self.limits.wall_s:g} s"),))
        if ended.status not in (0, 1):
            return Finding(completed=False, signals=(Signal(kind="too_large", what=f"the checker broke down: {cut(ended.output)}"),))
        return weigh(ended.output, ended.status, theorem.name, head.count("\n") - dropped, {*AXIOMS, *axioms})


def weigh(output: str, status: int, name: str, above: int, allowed: Iterable[str]) -> Finding:
    """The finding from what Lean printed. `above` is how many lines of its file stand before the action's first."""
    if errors := _ERROR.findall(output):
        line, column, message = errors[0]
        first, _, rest = message.strip().partition("\n")
        where = f"line {int(line) - above}, column {max(int(column) - 1, 1)}"
        signals = [
            Signal(kind="syntax" if _SYNTAX.match(first) else "error", what=cut(first if "⊢" in rest else message.strip()), where=where)
        ]
        if "⊢" in rest:
            signals.append(Signal(kind="goal", what=cut(rest.split("\n\n")[0], 700), where=where))
        return Finding(signals=tuple(signals))
    printed = _PRINTED.findall(output)
    if status != 0 or len(printed) != 1 or printed[0][0] != name or not output.rstrip().endswith((printed[0][1] or "]",)):
        return Finding(signals=(Signal(kind="error", what=f"Lean does not say what {name} rests on: {cut(output.strip())}"),))
    axioms = [one.strip() for one in printed[0][2].split(",") if one.strip()]
    if bad := [one for one in axioms if one not in {*allowed}]:
        return Finding(signals=(Signal(kind="refuted", what=f"the proof has a hole; it rests on {cut(', '.join(bad), 200)}"),))
    return Finding(accepted=True)


def lean_theorem(text: str, name: str = "text") -> Theorem:
    """The last theorem of a Lean file, with what stands before it. Raises InvalidData where there is none."""
    found = list(_THEOREM.finditer(text))
    if not found:
        raise InvalidData(f"{name}: there is no theorem")
    said, depth, end = text[found[-1].start() :], 0, 0
    for part in re.finditer(r"[(\[{⟨]|[)\]}⟩]|:=", said):
        depth += (part.group() in "([{⟨") - (part.group() in ")]}⟩")
        if part.group() == ":=" and depth == 0:
            end = part.start()
            break
    said = (said[:end] if end else said).rstrip()
    before = text[: found[-1].start()].rstrip()
    return Theorem(name=found[-1].group(1), said=said, given=(before,) if before else ())


def installed() -> str:
    """The version of the installed Lean, "" where there is none."""
    return _said(shutil.which("lean") or "", "--version").partition(", commit")[0]


def _prefix() -> Path:
    """Where the toolchain lies: behind the wall elan could not find it."""
    lean = shutil.which("lean")
    if lean is None:
        raise UsageError(INSTALL)
    return Path(_said(lean, "--print-prefix").strip())


@lru_cache(maxsize=8)
def _said(lean: str, question: str) -> str:
    return subprocess.run([lean, question], capture_output=True, text=True, timeout=60, check=False).stdout.strip() if lean else ""
