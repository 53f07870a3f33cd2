"""The proof world: proofs judged by Rocq's kernel, no hostile one accepted, goals and changes at the first error."""

import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mulligan.embeddings import HashingEmbedder
from mulligan.errors import UsageError
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import load_experiment
from mulligan.models import ScriptedModel
from mulligan.records import Signal, Task, Verdict
from mulligan.tasks.proofs import REALS
from mulligan.tasks.sample import DATA, load_theorems
from mulligan.worlds.conformance import check_world
from mulligan.worlds.proof import LIMITS, ProofWorld, theorem_of
from mulligan.worlds.proof_edits import drafts

pytestmark = [
    pytest.mark.timeout(180),  # coqc takes its time where the machine is busy
    pytest.mark.skipif(shutil.which("coqc") is None, reason="no coqc here: apt-get install coq"),
    pytest.mark.usefixtures("walled"),
]
WORLD = ProofWorld(limits=replace(LIMITS, wall_s=60.0))
DOUBLE = (
    "Require Import Arith Lia.\nFixpoint double (n : nat) : nat := match n with 0 => 0 | S m => S (S (double m)) end.\n"
    "Theorem target (n : nat) : double n = n + n."
)
RIGHT = "induction n.\n- reflexivity.\n- simpl. lia."


def task(statement: str = DOUBLE, split: str = "source", **more: Any) -> Task:
    payload: Any = {"language": "rocq", "statement": statement, **more}
    return Task(id="p", domain="proof", benchmark="own", group="p", split=split, prompt="Prove it.", payload=payload)  # type: ignore[arg-type]


def judged(action: str, statement: str = DOUBLE, world: ProofWorld = WORLD, **more: Any) -> Verdict:
    with world.start(task(statement, **more)) as state:
        return world.act(state, action)


def test_a_proof_in_any_writing() -> None:
    statement = DOUBLE.partition("Theorem")[2]
    whole = f"Lemma step n : double (S n) = S (S (double n)).\nProof. reflexivity. Qed.\nTheorem{statement}\nProof. {RIGHT} Qed."
    for action in (RIGHT, f"Proof.\n{RIGHT}\nQed.", f"So:\n```coq\n{RIGHT}\n```\nDone.", whole):
        verdict = judged(action)
        assert (verdict.completed, verdict.solved, verdict.utility, verdict.done, verdict.signals) == (True, True, 1, True, ()), verdict


FAILED = [
    (
        "induction n.\n- reflexivity.\n- simpl. foo.",
        "9/20",
        "error",
        "line 3, column 10",
        "foo was not found",
        "IHn : double n = n + n\n==",
    ),
    ("induction n. reflexivity.", "9/20", "error", "end", "incomplete proof", "double (S n) = S n + S n"),
    ("induction n.\n- (* é *) foo.", "0", "error", "line 2, column 11", "foo was not found", "double 0 = 0 + 0"),
    ("reflexivity", "0", "syntax", "end", "has no dot", "n : nat"),
    ("induction n; [ idtac | .", "0", "syntax", "line 1, column 24", "Syntax error", "n : nat"),
    ("- reflexivity.\n+ auto.", "0", "error", "line 1, column 3", "Unable to unify", "n : nat"),
    (
        "Lemma a : 1 = 1. Proof. foo. Qed.\nTheorem target (n : nat) : double n = n + n. Proof. lia. Qed.",
        "0",
        "error",
        "line 1, column 25",
        "foo",
        "1 = 1",
    ),
    ("induction n; [ admit | idtac ]. foo.", "0", "error", "line 1, column 33", "foo was not found", "double (S n) ="),
    ("", "0", "syntax", "", "no proof", ""),
    ("(* nothing *)", "0", "syntax", "", "no proof", ""),
    ("x" * 30_000, "0", "too_large", "", "at most", ""),
]


@pytest.mark.parametrize(("action", "utility", "kind", "where", "says", "goal"), FAILED)
def test_a_failed_proof_shows_where_and_the_goal_there(action: str, utility: str, kind: str, where: str, says: str, goal: str) -> None:
    verdict = judged(action)
    assert (verdict.completed, verdict.solved, verdict.utility) == (True, False, Fraction(utility)), verdict.feedback
    first, *rest = verdict.signals
    assert (first.kind, first.where) == (kind, where), verdict.feedback
    assert says in first.what
    assert [signal.kind for signal in rest] == (["goal"] if goal else [])
    assert goal in "".join(signal.what for signal in rest)
    assert not re.search(r"Mulligan|mark_|Candidate|answer_", verdict.feedback)


def test_a_long_goal_is_cut_and_its_conclusion_stays() -> None:
    many = "".join(f"(h{n} : {n} < {n} + n) " for n in range(80))
    verdict = judged("foo.", f"Theorem target (n : nat) {many} : n = 0.")
    goal = verdict.signals[-1].what
    assert goal.startswith("…") and goal.endswith("====\nn = 0") and len(goal) < 800


TARGET = "Theorem target : 1 = 2."
CHEAT = "destruct cheat. Qed."
LOOPS = f"Fixpoint cheat (n : nat) : False := cheat n.\n{TARGET} Proof. destruct (cheat 0). Qed."
HOSTILE = {  # each wants `1 = 2` accepted
    "axiom": "Axiom cheat : False. destruct cheat.",
    "axiom ahead": f"Axiom cheat : False.\nTheorem target : 1 = 2.\nProof. {CHEAT}",
    "admitted": "Admitted.",
    "admit": "admit. Admitted.",
    "admitted helper": f"Lemma cheat : False. Proof. Admitted.\n{TARGET} Proof. {CHEAT}",
    "parameter": f"Parameter cheat : False.\n{TARGET} Proof. {CHEAT}",
    "variable": f"Variable cheat : False.\n{TARGET} Proof. {CHEAT}",
    "section variable": f"Section S. Variable cheat : False.\n{TARGET} Proof. {CHEAT} End S.",
    "hypothesis": f"Section S. Hypothesis cheat : False.\n{TARGET} Proof. {CHEAT}",
    "context": f"Context (cheat : False).\n{TARGET} Proof. {CHEAT}",
    "declared module": f"Module Type T. Parameter cheat : False. End T.\nDeclare Module M : T.\n{TARGET} Proof. destruct M.cheat. Qed.",
    "included": f"Module Type T. Parameter cheat : False. End T.\nModule M. Include T. End M.\n{TARGET} Proof. destruct M.cheat. Qed.",
    "functor": f"Module Type T. Axiom cheat : False. End T.\nModule F (X : T). {TARGET} Proof. destruct X.cheat. Qed. End F.",
    "functor of itself": "Module Type T. Axiom cheat : False. End T.\nModule F (X : T). Definition no := X.cheat. End F.\n"
    f"Declare Module A : T.\nModule M := F A.\n{TARGET} Proof. destruct M.no. Qed.",
    "abort and another": "Abort. Theorem target : 1 = 1. Proof. reflexivity.",
    "ended early": "Abort All. Theorem other : True. Proof. exact I.",
    "the statement itself": "exact Asked.target.",
    "the statement by its name": "exact Mulligan.Statement.Asked.target.",
    "changed": "Theorem target : 1 = 1. Proof. reflexivity. Qed.",
    "assuming more": "Theorem target : False -> 1 = 2. Proof. intros []. Qed.",
    "notation": 'Notation "1 = 2" := True.\nTheorem target : 1 = 2. Proof. exact I. Qed.',
    "equality shadowed": 'Notation "x = y" := (x <= y) (at level 70).\nTheorem target : 1 = 2. Proof. auto. Qed.',
    "numbers shadowed": f'Definition nat := unit.\nNotation "1" := tt. Notation "2" := tt.\n{TARGET} Proof. reflexivity. Qed.',
    "module shadowed": "Module Mulligan. Module Statement. Module Asked. Definition statement := True.\n"
    "End Asked. End Statement. End Mulligan.\n"
    "Theorem target : Mulligan.Statement.Asked.statement. Proof. exact I. Qed.",
    "inside a module": "Module Candidate. Theorem target : True. Proof. exact I. Qed. End Candidate.",
    "look-alike name": "Theorem tаrget : 1 = 1. Proof. reflexivity. Qed.",  # a Cyrillic а
    "no guard": f"Unset Guard Checking.\n{LOOPS}",
    "no guard, set again": "Unset Guard Checking.\n" + LOOPS.replace(TARGET, f"Set Guard Checking.\n{TARGET}"),
    "bypassed guard": f"#[bypass_check(guard)] {LOOPS}",
    "bypassed positivity": "#[bypass_check(positivity)] Inductive D := mk : (D -> False) -> D.\n"
    f"Definition no (x : D) : False := (match x with mk f => f end) x.\n{TARGET} Proof. destruct (no (mk no)). Qed.",
    "type in type": "Unset Universe Checking. Definition T : Type := Type : Type. pose (x := T). discriminate.",
    "fix": "fix cheat 1. exact cheat.",
    "loop": "cut (1 = 2); [ exact (fun h => h) | ]. fix f 1.",
    "open evar": "eexists. Unshelve.",
    "shelved": "shelve.",
    "given up": "give_up.",
    "obligations": f'Set Warnings "-all". Require Import Program.\nProgram Definition target : 1 = 2 := _.\nAdmit Obligations.\n{TARGET}',
    "fake output": 'idtac "Closed under the global context". Axiom cheat : False. destruct cheat.',
    "fake name": "Axiom target : 1 = 2.",
    "name of a known axiom": "Module Classical_Prop. Axiom classic : False. End Classical_Prop.\n"
    f"{TARGET} Proof. destruct Classical_Prop.classic. Qed.",
    "type that prints well": "Notation \"'Closed' 'under' 'the' 'global' 'context'\" := False.\nAxiom cheat : False.\n"
    f"{TARGET} Proof. {CHEAT}",
    "wide": f"#[global] Set Printing Width 2.\n#[global] Set Printing Depth 1.\nAxiom cheat : False.\n{TARGET} Proof. {CHEAT}",
    "comment": "(* Qed. *) exact I. (* it holds",
    "string": 'idtac "Qed. Theorem target : True. Proof. exact I. ". ',
    "comment in the statement": "Theorem target : (* 1 = 2 *) True. Proof. exact I. Qed.",
    "let in": "Theorem target : let eq (a b : nat) := True in eq 1 2. Proof. exact I. Qed.",
    "coercion": "Definition lie (u : unit) : Prop := True. Coercion lie : unit >-> Sortclass.\nTheorem target : tt. Proof. exact I. Qed.",
    "canonical": "Definition target := I.",
    "polymorphic": "Set Universe Polymorphism. Polymorphic Axiom cheat : False. destruct cheat.",
    "private": "Module M. Local Axiom cheat : False. Lemma no : False. Proof. exact cheat. Qed. End M.\n"
    f"{TARGET} Proof. destruct M.no. Qed.",
    "opaque in a sealed module": "Module Type T. Axiom no : False. End T. Module M : T. Axiom no : False. End M.\n"
    f"{TARGET} Proof. destruct M.no. Qed.",
    "quit": "Quit.",
    "drop": "Drop.",
    "back": "Back 3.",
    "reset": "Reset Initial. Theorem target : True. Proof. exact I.",
    "load": 'Load "/etc/passwd".',
    "redirect": 'Redirect "Verdict" Print nat. Redirect "/tmp/work/Statement.vo" Print nat. discriminate.',
    "universes to a file": 'Print Universes "Statement.vo". Print Universes "Verdict.v". discriminate.',
    "extraction": 'Require Extraction. Extraction "Verdict.v" nat. discriminate.',
    "plugin": 'Declare ML Module "hostile". discriminate.',
    "another folder": 'Cd "/". Add LoadPath "/tmp" as Mulligan. discriminate.',
    "path of plugins": 'Add ML Path "/tmp". discriminate.',
    "succeeds": "Fail reflexivity. Succeed reflexivity.",
    "timeout": "Timeout 1 reflexivity.",
    "hints": "Axiom cheat : 1 = 2. Hint Resolve cheat : core. auto.",
    "tactic redefined": "Ltac reflexivity := admit. reflexivity.",
    "fixed by reflection": "vm_compute. native_compute. exact (eq_refl 2).",
    "primitive": "Primitive no := #int63_add. discriminate.",
    "unknown to none": 'Set Debug "all". exact_no_check (eq_refl 1).',
    "cast unchecked": "vm_cast_no_check (eq_refl 1).",
    "changed unchecked": "change_no_check True. exact I.",
}


@pytest.mark.parametrize("action", HOSTILE.values(), ids=HOSTILE)
def test_no_hostile_proof_is_accepted(action: str) -> None:
    verdict = judged(action, TARGET)
    assert not verdict.solved
    assert verdict.utility < Fraction(1, 2)
    assert verdict.signals


def test_what_a_proof_does_stays_behind_the_wall(tmp_path: Path) -> None:
    for action in (
        f'Redirect "{tmp_path}/x" Print nat. reflexivity.',
        f'Print Universes "{tmp_path}/x". reflexivity.',
        'Print Universes "Verdict.v". reflexivity.',
    ):
        judged(action, "Theorem target : 1 = 1.")
    assert list(tmp_path.iterdir()) == []
    assert judged("reflexivity.", "Theorem target : 1 = 1.").solved  # and the next one is judged as ever


def test_axioms_are_told_and_may_be_allowed() -> None:
    statement = "Require Import Classical.\nTheorem target : forall P : Prop, P \\/ ~ P."
    refused = judged("apply classic.", statement)
    assert (refused.utility, refused.completed, refused.signals[0].kind) == (0, True, "refuted")
    assert "Classical_Prop.classic" in refused.signals[0].what
    assert judged("apply classic.", statement, axioms=["Classical_Prop.classic"]).solved
    assert judged("apply classic.", statement, world=replace(WORLD, axioms=("Classical_Prop.classic",))).solved
    assert not judged("Axiom no : False. destruct no.", statement, axioms=["Classical_Prop.classic"]).solved
    assert not judged(HOSTILE["name of a known axiom"], TARGET, axioms=["Classical_Prop.classic"]).solved
    reals = "Require Import Reals Lra.\nOpen Scope R_scope.\nTheorem target : forall x : R, x < x + 1."
    assert not judged("intros x. lra.", reals).solved
    assert judged("intros x. lra.", reals, axioms=list(REALS)).solved


def test_what_breaks_the_checker_is_no_verdict() -> None:
    slow = replace(WORLD, limits=replace(LIMITS, wall_s=1.5))
    cases = [("do 100000000 (try (assert True by exact I)). reflexivity.", slow), ("repeat (assert True by exact I; idtac).", slow)]
    for action, world in cases:
        verdict = judged(action, "Theorem target : 1 = 1.", world=world)
        assert (verdict.completed, verdict.solved, verdict.signals[0].kind) == (False, False, "timeout")
    small = replace(WORLD, limits=replace(LIMITS, memory=1 << 30))
    for how in ("vm_compute", "lazy"):  # out of memory, and of stack
        verdict = judged(f"pose (x := Nat.pow 10 9). {how} in x.", "Theorem target : 1 = 1.", world=small)
        assert (verdict.completed, verdict.solved, verdict.signals[0].kind) == (False, False, "too_large")
    broken = judged("reflexivity.", "Theorem target : nonsense.")
    assert (broken.completed, broken.solved) == (False, False)
    assert "statement of this task is not accepted" in broken.feedback


def test_limits_alone_judge_as_well() -> None:
    world = replace(WORLD, wall="process")
    assert judged(RIGHT, world=world).solved
    assert judged("induction n.", world=world).signals[-1].kind == "goal"
    assert judged("Axiom cheat : False. destruct cheat.", world=world).utility == 0


def test_definitions_before_a_theorem_stay_its_own() -> None:
    """An inductive type that a candidate declares again is another one; what it imports is not."""
    statement = (
        'Require Import Arith.\nInductive day := mon | tue.\nOpen Scope nat_scope.\nNotation "a ~~ b" := (a <> b :> day) (at level 70).\n'
    )
    assert judged("discriminate.", f"{statement}Theorem target : mon ~~ tue.").solved
    again = "Inductive day := mon | tue. Theorem target : mon <> tue. Proof. discriminate. Qed."
    assert not judged(again, f"{statement}Theorem target : mon ~~ tue.").solved
    assert judged("Require Import Lia. lia.", "Theorem target : forall n, n + 1 > n.").solved
    assert judged("assert (target : 1 = 1) by reflexivity. exact target.", "Theorem target : 1 = 1.").solved


EDITED = [
    ("induction n.\n- reflexivity.\n- simpl. auto.", "op:tactic"),
    ("induction n. reflexivity. simpl. rewrite <- IHn. reflexivity.", "op:"),
    ("reflexivity.", "op:induction"),
    ("induction n.\n- reflexivity.\n- simpl. lia", "op:dot"),
    ("induction n.\n- reflexivity.\n+ simpl. lia.", "op:bullets"),
    ("destruct n.\n- reflexivity.\n- simpl. lia.", "op:"),
]


@pytest.mark.parametrize(("action", "operator"), EDITED)
def test_a_failed_proof_is_mended(action: str, operator: str) -> None:
    with WORLD.start(task()) as state:
        found = list(WORLD.edits(state, action, WORLD.act(state, action)))
        assert found and any(proposal.proposer.startswith(operator) for proposal in found)
        assert WORLD.act(state, found[0].action).solved


def test_drafts_flip_generalise_and_unfold() -> None:
    theorem = theorem_of(task("Definition one := 1.\nTheorem target : forall n m, n + one = m."))
    signals = [Signal(kind="error", what="x", where="line 1, column 35"), Signal(kind="goal", what="n, m : nat\n====\nn + 1 = m")]
    made = {draft.action for draft in drafts("intros n m. induction n. simpl. rewrite H, plus_n_O. auto.", signals, theorem)}
    for wanted in (
        "intros n m. induction n. simpl. rewrite <- H, plus_n_O. auto.",
        "intros n m. induction n. simpl. unfold one in *. rewrite H, plus_n_O. auto.",
        "intros n m. revert m. induction n; intros m. simpl. rewrite H, plus_n_O. auto.",
        "intros n m. induction n. simpl. Require Import Lia. lia. auto.",
    ):
        assert wanted in made


def test_the_contract_and_facts() -> None:
    light = task(DOUBLE.replace(" Lia", "").replace("Require Import Arith.\n", ""))
    assert check_world(WORLD, [light], actions=["induction n. reflexivity.", "induction n; simpl; auto."]) == []
    found = WORLD.facts(task())
    assert (found["shape"], found["types"], found["imports"], found["operators"]) == (["equality"], ["nat"], ["Arith", "Lia"], ["+"])
    assert "double" in found["names"] and "n" not in found["names"]
    for payload in ({"statement": "Definition x := 1."}, {"gold": 1}, {"statement": "Theorem x : True.", "language": "french"}):
        with pytest.raises(UsageError, match="holds no theorem"):
            WORLD.start(replace(task(), payload=payload))


def test_a_missing_checker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="apt-get install coq"):
        judged("reflexivity.", "Theorem target : 7 = 7.")


def test_all_proofs_of_the_sample_hold(tmp_path: Path) -> None:
    """One coqc reads them all, as they stand."""
    shutil.copy(DATA / "theorems.v", tmp_path)
    done = subprocess.run(["coqc", "-q", "theorems.v"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_experiment_runs(tmp_path: Path) -> None:
    settings = load_experiment(DATA.parents[2] / "experiments" / "proofs.toml")
    settings = replace(
        settings, arms=("none", "checked_threshold"), workers=0, memory=replace(settings.memory, embedder="hash:64", from_model=0)
    )
    wanted = ("flipped_twice", "never_its_own_opposite")
    tasks = [one for one in load_theorems() if any(name in one.id for name in wanted)]
    model = ScriptedModel(lambda messages: "```coq\ndestruct b; reflexivity.\n```" if "Right: " in messages[1].content else "auto.")
    parts = Parts(tasks=tasks, world=WORLD, model=model, embedder=HashingEmbedder(64))
    results = run(settings, parts, tmp_path, lambda stage, done, total: None)
    assert (results.world.partition("/")[0], results.source_tasks, results.heldout_tasks, results.source_solved) == ("proof", 1, 1, 0)
    assert [lesson.record.provenance.proposer for lesson in results.lessons] == ["op:induction"]


@pytest.mark.parametrize("part", range(2))
def test_some_proofs_of_the_sample_in_the_world(part: int) -> None:
    for one in load_theorems()[part::34]:
        with WORLD.start(one) as state:
            assert WORLD.act(state, one.payload["gold"]).solved, one.id


@pytest.mark.slow
def test_every_proof_of_the_sample_in_the_world() -> None:
    for one in load_theorems():
        with WORLD.start(one) as state:
            assert WORLD.act(state, one.payload["gold"]).solved, one.id
            assert not WORLD.act(state, "Admitted.").solved
