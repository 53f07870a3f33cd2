"""The Lean checker's parts, on written output and with a stand-in for `lean`: no real one has run these."""

import os
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Task, Verdict
from mulligan.worlds.proof import ProofWorld
from mulligan.worlds.proof_lean import AXIOMS, lean_theorem, weigh

STATED = "import Mathlib\nopen Nat\n\ntheorem twice (n : ℕ) (h : (fun x := x) n = n) : n + n = 2 * n := by\n  sorry\n"


def test_a_statement_is_cut_from_its_proof() -> None:
    found = lean_theorem(STATED)
    assert (found.name, found.given) == ("twice", ("import Mathlib\nopen Nat",))
    assert found.said == "theorem twice (n : ℕ) (h : (fun x := x) n = n) : n + n = 2 * n"
    assert lean_theorem("theorem a : 1 = 1").said == "theorem a : 1 = 1"
    assert lean_theorem("lemma a : 1 = 1 := rfl\ntheorem b.c : 2 = 2").name == "b.c"
    with pytest.raises(InvalidData, match=r"x\.lean: there is no theorem"):
        lean_theorem("def a := 1", "x.lean")


PRINTED = [
    ("'twice' does not depend on any axioms\n", 0, True, "", ""),
    ("'twice' depends on axioms: [propext, Classical.choice, Quot.sound]\n", 0, True, "", ""),
    ("'twice' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]\n", 0, True, "", ""),
    ("Proof.lean:5:0: info: 'twice' depends on axioms: [propext]\n", 0, True, "", ""),
    ("Proof.lean:4:8: warning: declaration uses 'sorry'\n'twice' depends on axioms: [sorryAx]\n", 0, False, "refuted", "rests on sorryAx"),
    ("'twice' depends on axioms: [propext, cheat]\n", 0, False, "refuted", "rests on cheat"),
    ("'twice' depends on axioms: [Lean.ofReduceBool]\n", 0, False, "refuted", "Lean.ofReduceBool"),
    ("'twice' does not depend on any axioms\n'twice' depends on axioms: [cheat]\n", 0, False, "error", "does not say"),
    ("'twice' depends on axioms: [cheat]\n'twice' does not depend on any axioms\n", 0, False, "error", "does not say"),
    ("'other' does not depend on any axioms\n", 0, False, "error", "does not say"),
    ("'twice' does not depend on any axioms\nand more\n", 0, False, "error", "does not say"),
    ("'twice' does not depend on any axioms\n", 1, False, "error", "does not say"),
    ("", 0, False, "error", "does not say"),
    (
        "Proof.lean:7:4: error: unknown identifier 'foo'\n'twice' depends on axioms: [sorryAx]\n",
        1,
        False,
        "error",
        "unknown identifier 'foo'",
    ),
    ("Proof.lean:7:4: error(lean.unknownIdentifier): Unknown identifier `foo`\n", 1, False, "error", "Unknown identifier"),
    ("Proof.lean:7:4: error: unexpected token '|'; expected command\n", 1, False, "syntax", "unexpected token"),
]


@pytest.mark.parametrize(("output", "status", "accepted", "kind", "says"), PRINTED)
def test_what_lean_prints_is_weighed(output: str, status: int, accepted: bool, kind: str, says: str) -> None:
    found = weigh(output, status, "twice", 4, AXIOMS)
    assert (found.accepted, found.completed) == (accepted, True)
    assert [signal.kind for signal in found.signals] == ([kind] if kind else [])
    assert says in "".join(signal.what for signal in found.signals)


def test_a_goal_that_is_left_is_shown() -> None:
    output = (
        "Proof.lean:7:4: error: unsolved goals\nn : ℕ\nh : n > 0\n⊢ n + n = 2 * n\n"
        "Proof.lean:9:0: error: unknown identifier\n'twice' depends on axioms: [sorryAx]\n"
    )
    error, goal = weigh(output, 1, "twice", 4, AXIOMS).signals
    assert (error.kind, error.what, error.where) == ("error", "unsolved goals", "line 3, column 3")
    assert (goal.kind, goal.what) == ("goal", "n : ℕ\nh : n > 0\n⊢ n + n = 2 * n")


# ---- with a stand-in ----

FAKE = """#!/bin/sh
[ "$1" = --print-prefix ] && { echo PREFIX; exit 0; }
[ "$1" = --version ] && { echo "Lean (version 4.99.0, x86_64, commit none, Release)"; exit 0; }
grep -q omega Proof.lean && { echo "'twice' depends on axioms: [propext]"; exit 0; }
grep -q loop Proof.lean && sleep 60
grep -q crash Proof.lean && kill -9 $$
echo "Proof.lean:4:2: error: linarith failed"
exit 1
"""


@pytest.fixture
def fake_lean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "lean"
    tool.parent.mkdir()
    tool.write_text(FAKE.replace("PREFIX", str(tmp_path)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def judged(action: str) -> Verdict:
    payload: Any = {"language": "lean", "statement": STATED}
    world = ProofWorld(wall="process")
    with world.start(
        Task(id="l", domain="proof", benchmark="own", group="l", split="source", prompt="Prove it.", payload=payload)
    ) as state:
        verdict = world.act(state, action)
        assert list(world.edits(state, action, verdict)) == []
        return verdict


@pytest.mark.usefixtures("fake_lean")
def test_the_world_asks_lean() -> None:
    assert judged("omega").solved and judged("by\n  omega").solved and judged("```lean\n:= by omega\n```").solved
    failed = judged("linarith")
    assert (failed.completed, failed.utility, failed.signals[0].where) == (True, Fraction(0), "line 1, column 1")
    assert not judged("crash").completed


REFUSED = [
    "sorry",
    "omega\naxiom cheat : False",
    "omega\n  theorem twice : True := trivial",
    "run_tac do pure ()",
    "#eval 1",
    "omega\n#print axioms other",
    "set_option debug.skipKernelTC true in omega",
    "open Lean in omega",
    "@[simp] def x := 1",
    "omega\nend Foo",
    "omega\nnamespace A",
    "by_elab do return x",
    "omega\nmacro_rules | `(tactic| omega) => `(tactic| skip)",
    "unsafe omega",
    "initialize",
    "import Evil",
    'elab "x" : tactic => pure ()',
]


@pytest.mark.usefixtures("fake_lean")
@pytest.mark.parametrize("action", REFUSED)
def test_what_is_no_tactic_is_refused(action: str) -> None:
    verdict = judged(action)
    assert (verdict.completed, verdict.solved, verdict.utility) == (True, False, 0)
    assert "may not stand in a proof" in verdict.feedback


def test_a_missing_lean_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="install elan"):
        judged("omega")
