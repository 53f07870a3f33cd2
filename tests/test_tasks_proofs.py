"""Theorem files: sentences as Coq cuts them, theorems with what is given, loaders on written and on real files."""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import InvalidData, UsageError
from mulligan.tasks.proofs import REALS, load_rocq
from mulligan.tasks.sample import DATA, load_theorems
from mulligan.tasks.splits import check_splits
from mulligan.worlds.proof_text import clean, sentences, theorems, tokens
from test_tasks_hostile import damaged

CUT = [
    ("intros. auto.", ["intros.", "auto."]),
    ("- simpl.\n  + lia. }", ["-", "simpl.", "+", "lia.", "}"]),
    ("{ auto. } 2: { lia. } [one]: { a. }", ["{", "auto.", "}", "2: {", "lia.", "}", "[one]: {", "a.", "}"]),
    ("-- a. *** b.", ["--", "a.", "***", "b."]),
    ("rewrite Nat.add_comm. exact (f 1.5).", ["rewrite Nat.add_comm.", "exact (f 1.5)."]),
    ('idtac "a. b". (* c. (* d. *) "*)" e. *) f.', ['idtac "a. b".', "f."]),
    ('a (* "in. " *) b. c', ['a (* "in. " *) b.', "c"]),
    ("repeat (a; b)... c.", ["repeat (a; b)...", "c."]),
    ('Notation "x .. y" := z. a.', ['Notation "x .. y" := z.', "a."]),
    ("apply é. (* never closed", ["apply é."]),
    ("", []),
]


@pytest.mark.parametrize(("text", "wanted"), CUT)
def test_sentences(text: str, wanted: list[str]) -> None:
    found = sentences(text)
    assert [one.text for one in found] == wanted
    assert all(text[one.start : one.end].rstrip() == one.text for one in found)


FILE = """(* A file. *)
Require Import Arith. Open Scope nat_scope.
Definition one := 1.
(* source ones *) (* an easy one *)
Theorem first : one = 1.
Proof. reflexivity. Qed.
Example two := 2.
Lemma second (n : nat) : n + one = S n. Proof. Admitted.
(* heldout twos *)
#[local] Theorem third' : two = 2. Proof using. unfold two.
  reflexivity. Defined.
Fact fourth : True.
Proof.
"""


def test_theorems_of_a_file() -> None:
    first, second, third, fourth = theorems(FILE)
    assert (first.name, first.said, first.proof, first.mark) == ("first", "Theorem first : one = 1.", "reflexivity.", ("source", "ones"))
    assert first.given == ("Require Import Arith.", "Open Scope nat_scope.", "Definition one := 1.")
    assert (second.name, second.proof, second.mark) == ("second", "", None)
    assert second.given == (*first.given, "Example two := 2.")
    assert (third.name, third.mark, third.proof) == ("third'", ("heldout", "twos"), "unfold two.\n  reflexivity.")
    assert (fourth.name, fourth.proof, fourth.text.splitlines()[-1]) == ("fourth", "", "Fact fourth : True.")


def test_tokens_and_fences() -> None:
    assert tokens("intros n'. (* x *) rewrite <- H; [ - ]") == ["intros", "n'", ".", "rewrite", "<", "-", "H", ";", "[", "-", "]"]
    assert tokens("x" * 1_000_000) == ["x" * 20_000]
    assert clean("Here:\n```coq\nauto.\n```\nThat is it.") == clean("auto.\n") == clean("```\nauto.") == "auto."


@given(st.lists(st.sampled_from([*'.(*)"{}-+ \n', "(*", "*)", "Theorem a : b", "Proof", "Qed", ". ", ":="]), max_size=60).map("".join))
def test_any_text_is_cut_into_sentences_in_their_order(text: str) -> None:
    found = sentences(text)
    places = [place for one in found for place in (one.start, one.end)]
    assert places == sorted(places) and all(one.text for one in found)
    tokens(text)


def test_long_texts_are_read_in_time() -> None:
    for part in ("(*", "*)", '"', ". ", "{", "(", "a ", "..."):
        assert sentences(part * 20_000) is not None
        assert tokens(part * 20_000) is not None


def test_mutations_end_in_tasks_or_one_clear_error(tmp_path: Path) -> None:
    draw, seen, file = random.Random(6), Counter[bool](), tmp_path / "x.v"
    for _ in range(800):
        file.write_bytes(damaged(FILE.encode(), draw))
        try:
            load_rocq(file, verify=False)
            seen[True] += 1
        except InvalidData as error:
            assert "x.v" in str(error)
            seen[False] += 1
    assert min(seen.values()) > 30, seen


# ---- loaders ----


def test_the_sample_has_three_splits_and_no_group_crosses() -> None:
    tasks = load_theorems()
    check_splits(tasks)
    counts = Counter(task.split for task in tasks)
    assert len(tasks) >= 60 and counts["source"] >= 25 and counts["heldout"] >= 25 and counts["train"] >= 8
    assert all(task.payload["gold"] and task.payload["gold"] not in task.prompt + task.context for task in tasks)
    double = next(task for task in tasks if "double_is_a_sum" in task.id)
    assert double.prompt == "Prove the theorem double_is_a_sum in Coq (Rocq):\nTheorem double_is_a_sum : forall n : nat, double n = n + n."
    assert double.context.splitlines()[0] == "Require Import Arith Lia." and "Theorem" not in double.context
    assert (double.group, double.payload["axioms"]) == ("double", [])


def test_folders_say_the_split_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    for folder, name, text in [
        ("valid", "a", "Theorem a : 1 = 1.\nProof.\nAdmitted."),
        ("valid", "b", "Require Import Reals.\nTheorem b : 2 = 2."),
        ("valid", "again", "Theorem a : 1 = 1."),
        ("test", "c", "Theorem c : 3 = 3."),
        ("test", "nothing", "Definition x := 1."),
    ]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.v").write_text(text)
    tasks, report = load_rocq(tmp_path, shares=(1, 0, 1), verify=False)
    assert {task.id.partition("/")[2].partition("-")[0]: task.split for task in tasks} == {"a": "source", "b": "source", "c": "heldout"}
    assert (report.read, report.kept, report.left_out) == (5, 3, {"duplicate": 1, "excluded": 1})
    assert [task.payload["axioms"] for task in tasks] == [[], list(REALS), []]
    assert all("gold" not in task.payload for task in tasks)
    own, _ = load_rocq(tmp_path / "valid" / "a.v", axioms=["classic"], verify=False)
    assert own[0].payload["axioms"] == ["classic"]
    with pytest.raises(InvalidData, match="there is no theorem"):
        load_rocq(tmp_path / "test" / "nothing.v", verify=False)
    with pytest.raises(InvalidData, match="the statement of a has no end"):
        (tmp_path / "cut.v").write_text("Theorem a : 1 =")
        load_rocq(tmp_path / "cut.v", verify=False)
    with pytest.raises(UsageError, match="cannot read"):
        load_rocq(tmp_path / "missing.v", verify=False)


@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("coqc") is None, reason="no coqc here: apt-get install coq")
@pytest.mark.usefixtures("walled")
def test_statements_that_rocq_does_not_read_are_left_out(tmp_path: Path) -> None:
    said = ["a : 1 = 1", "b : nonsense = 1", "plus_comm : nonsense", "c : forall n : nat, n = n", "d : 1 = = 2", "e : True"]
    (tmp_path / "all.v").write_text("".join(f"Theorem {one}.\n" for one in said))
    (tmp_path / "strange.v").write_text("From Nowhere Require Import Things.\nTheorem f : thing.")
    tasks, report = load_rocq(tmp_path)
    assert sorted(task.id.partition("/")[2][:1] for task in tasks) == ["a", "c", "e"]
    assert report.left_out == {"not_stated": 4}
    for task in load_rocq(DATA / "theorems.v")[0]:
        assert task.payload["gold"]


def test_real_statements(shared_data: Path) -> None:
    tasks, report = load_rocq(shared_data / "minif2f_rocq", verify=False)
    assert (report.read, len(tasks)) == (72, 72)
    assert sum(bool(task.payload["axioms"]) for task in tasks) == 7


@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("coqc") is None, reason="no coqc here: apt-get install coq")
@pytest.mark.usefixtures("walled")
def test_real_statements_are_read_by_rocq(shared_data: Path) -> None:
    tasks, report = load_rocq(shared_data / "minif2f_rocq")
    assert len(tasks) in (70, 72), report  # two need Coquelicot
