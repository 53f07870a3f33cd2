"""The SMT world: scripts and models as text, verdicts by evaluation, values that operators try, and real scripts."""

import random
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.errors import InvalidData, UsageError
from mulligan.records import Task, Verdict
from mulligan.tasks.sample import load_scripts
from mulligan.tasks.smt import load_smt
from mulligan.worlds.conformance import check_world
from mulligan.worlds.smt import SmtWorld
from mulligan.worlds.smt_script import read_answer, read_script
from test_tasks_hostile import damaged

pytestmark = pytest.mark.timeout(60)  # solvers load slowly where the machine is busy
WORLD = SmtWorld(time_limit_s=20.0)
TRAINS = (
    "; two trains\n(set-logic QF_LIA)\n(set-info :status sat)\n(declare-fun slow () Int)\n(declare-const fast Int)\n"
    "(assert (= (+ slow fast) 170)) ; together\n(assert (= fast (+ slow 30)))\n(assert (> slow 0))\n(check-sat)\n(get-model)\n(exit)\n"
)
NONE = "(declare-const n Int)\n(assert (> n 3))\n(assert (< n 4))\n(check-sat)"
FUNCTION = "(declare-fun f (Int Int) Int)\n(assert (= (f 1 2) 3))\n(assert (= (f 2 1) 1))\n(check-sat)"
THINGS = (
    "(declare-sort Thing 0)\n(declare-const a Thing)\n(declare-const b Thing)\n(declare-const n Int)\n"
    "(assert (distinct a b))\n(assert (> n 2))"
)


def task(script: str = TRAINS, split: str = "source") -> Task:
    payload: Any = {"smt2": script}
    return Task(id="s", domain="smt", benchmark="own", group="s", split=split, prompt="A model?", payload=payload)  # type: ignore[arg-type]


def judged(action: str, script: str = TRAINS, split: str = "source", world: SmtWorld = WORLD) -> Verdict:
    with world.start(task(script, split)) as state:
        return world.act(state, action)


def test_a_script_is_read() -> None:
    script = read_script(TRAINS)
    assert (script.status, script.logic) == ("sat", "QF_LIA")
    assert script.declared == {"slow": ("()", "Int"), "fast": ("()", "Int")}
    assert len(script.assertions) == 3
    assert "get-model" not in script.text() and script.text().startswith("(set-logic QF_LIA)")
    assert read_script(FUNCTION).declared == {"f": ("(Int Int)", "Int")}
    arrays = read_script('(declare-fun |a b| () (Array Int (_ BitVec 8)))\n(assert (= "x )" "x )"))')
    assert arrays.declared == {"|a b|": ("()", "(Array Int (_ BitVec 8))")}


BROKEN = [
    ("(assert true", r"1 \( are not closed"),
    ("(assert true))", r"a \) too many"),
    ("hello", "outside of any command"),
    ('(assert (= "x y))', "cannot be read"),
    ("(check-sat)", "no assertion"),
    ("(push 1)(assert true)(check-sat)", "several questions"),
    ("(assert true)(check-sat)(assert false)(check-sat)", "several questions"),
    ("(assert)", "lacks a part"),
    ("(include-file x)(assert true)", "no command that is read here"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_what_is_no_script_is_one_clear_error(text: str, says: str) -> None:
    with pytest.raises(InvalidData, match=says):
        read_script(text, "x.smt2")


RIGHT = [
    "sat\n(define-fun slow () Int 70)\n(define-fun fast () Int 100)",
    "sat\n(\n  (define-fun fast () Int\n    100)\n  (define-fun slow () Int 70)\n)",
    "(model (define-fun fast () Int 100) (define-fun slow () Int 70))",
    "slow = 70\nfast = 100",
    "sat: slow = 70, fast = 100",
    "SAT slow := 70; fast := 100",
    "slow = 70",  # what is left open can be made to hold
]


@pytest.mark.parametrize("action", RIGHT)
def test_a_model_in_any_writing(action: str) -> None:
    verdict = judged(action)
    assert (verdict.solved, verdict.utility, verdict.completed, verdict.done, verdict.signals) == (True, 1, True, True, ())


def test_assertions_that_do_not_hold_are_the_evidence() -> None:
    verdict = judged("slow = 70\nfast = 90")
    assert (verdict.solved, verdict.utility, verdict.completed) == (False, Fraction(1, 3), True)
    assert [signal.what for signal in verdict.signals] == ["(= (+ slow fast) 170)", "(= fast (+ slow 30))"]
    assert "unsatisfied: (= (+ slow fast) 170)" in verdict.feedback
    half = judged("slow = 71")
    assert (half.solved, half.completed, half.signals[0].kind) == (False, True, "unsatisfied")


WRONG = [
    ("", "no model"),
    ("sat", "no model"),
    ("perhaps", "is no part of a model"),
    ("sat (define-fun slow () Real 70)", "declared as"),
    ("sat (define-fun slow (( x Int)) Int 70)", "declared as"),
    ("sat (define-fun other () Int 1)", "other is not declared"),
    ("slow = 70\nslow = 71", "defined twice"),
    ("sat (assert false)", "outside of any command"),
    ("sat (define-sort slow () Int)", r"no \(define-fun"),
    ("sat (define-fun slow () Int 70)) (assert false", "too many"),
    ("slow = 70) (assert false", "is no value"),
    ("slow = 70 (assert false)", "is no value"),
    ("(define-fun slow () Int (+ 1", "not closed"),
    ("f = 3", "f is a function"),
]


@pytest.mark.parametrize(("action", "says"), WRONG)
def test_what_is_no_answer(action: str, says: str) -> None:
    verdict = judged(action, FUNCTION if action.startswith("f ") else TRAINS)
    assert (verdict.completed, verdict.solved, verdict.utility, verdict.signals[0].kind) == (True, False, 0, "syntax")
    assert re.search(says, verdict.signals[0].what), verdict.signals[0].what


def test_terms_that_no_solver_reads_are_wrong_with_its_words() -> None:
    verdict = judged("(define-fun slow () Int nonsense)")
    assert (verdict.completed, verdict.solved, verdict.signals[0].kind) == (True, False, "error")
    assert "nonsense" in verdict.signals[0].what
    assert judged("slow = 70\nfast = 100").solved  # the worker goes on


def test_unsat_is_confirmed_and_a_held_out_agent_is_not_told() -> None:
    assert judged("unsat", NONE).solved
    refuted = judged("UNSAT.")
    assert (refuted.utility, refuted.solved, refuted.completed, refuted.signals[0].kind) == (0, False, True, "refuted")
    right, wrong = judged("unsat", NONE, "heldout"), judged("unsat", split="heldout")
    assert (right.solved, wrong.solved) == (True, False)
    assert (right.feedback, right.signals, right.done) == (wrong.feedback, wrong.signals, wrong.done)


def test_functions_and_sorts_without_values() -> None:
    action = "sat\n(define-fun f ((x Int) (y Int)) Int (ite (= x 1) 3 1))"
    assert judged(action, FUNCTION).solved
    assert judged(action.replace("3 1", "3 2"), FUNCTION).utility == Fraction(1, 2)
    assert judged("n = 3", THINGS).solved
    assert not judged("n = 2", THINGS).solved


def test_a_solver_that_does_not_finish_says_nothing() -> None:
    names = "".join(f"(declare-const {name} Int)" for name in "abc")
    hard = f"{names}(assert (= (+ (* a a a) (* b b b) (* c c c)) 114))(assert (> a 9999))"
    for action in ("unsat", "a = 99999"):
        verdict = judged(action, hard, world=SmtWorld(time_limit_s=0.05))
        assert (verdict.completed, verdict.solved) == (False, False)


def test_other_values_are_tried() -> None:
    cases = [(TRAINS, "slow = 70\nfast = 101"), (THINGS, "n = 0"), ("(declare-const p Bool)(assert (not p))", "p = true")]
    bits = "(declare-const x (_ BitVec 4))(assert (= (bvand x #b1100) #b0100))"
    for script, action in [*cases, (bits, "x = #b1100")]:
        with WORLD.start(task(script)) as state:
            verdict = WORLD.act(state, action)
            found = list(WORLD.edits(state, action, verdict))
            assert found and found[0].proposer == "op:value"
            assert WORLD.act(state, found[0].action).solved or WORLD.act(state, found[0].action).utility > verdict.utility
            assert list(WORLD.edits(state, "unsat", verdict)) == []


def test_the_contract_and_facts() -> None:
    actions = ["slow = 1\nfast = 2", "unsat", "slow = 70\nfast = 100", "(define-fun slow () Int"]
    assert check_world(WORLD, [task(), task(split="heldout")], actions=actions) == []
    found = WORLD.facts(task())
    assert (found["logic"], found["names"], found["uses"], found["sorts"]) == ("QF_LIA", 2, ["integers"], ["Int"])
    for payload in ({"smt2": "(assert"}, {"gold": 1}):
        with pytest.raises(UsageError, match="holds no script"):
            WORLD.start(replace(task(), payload=payload))


PIECES = st.sampled_from([*'()"| \n;=', "slow", "fast", "define-fun", "Int", "sat", "7", "-", " ", "() "])


@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_an_answer_or_has_a_fault(text: str) -> None:
    answer = read_answer(text, read_script(TRAINS))
    assert bool(answer.fault) != bool(answer.status)
    for name, definition in answer.definitions:
        assert definition.startswith(f"(define-fun {name} ") and definition.count("(") == definition.count(")")


def test_mutations_end_in_a_script_or_one_clear_error() -> None:
    draw, seen = random.Random(6), Counter[bool]()
    for _ in range(10_000):
        raw = damaged(TRAINS.encode(), draw).decode("utf-8", "replace")
        try:
            read_script(raw, "x.smt2").text()
            seen[True] += 1
        except InvalidData as error:
            assert "x.smt2" in str(error)
            seen[False] += 1
    assert min(seen.values()) > 500, seen


# ---- loaders ----


def test_the_sample_and_files_in_a_folder(tmp_path: Path) -> None:
    assert len(load_scripts()) == 8
    for name, text in {
        "a": TRAINS,
        "again": "; x\n" + TRAINS,
        "lies": NONE + "(set-info :status sat)",
        "several": "(push 1)" + NONE,
    }.items():
        (tmp_path / f"{name}.smt2").write_text(text)
    (tmp_path / "long.smt2").write_text(NONE + "\n" + "; long\n" * 2_000)
    tasks, report = load_smt(tmp_path, time_limit_s=20.0)
    assert len(tasks) == 1
    assert report.left_out == {"duplicate": 1, "gold_fails": 1, "excluded": 1, "too_large": 1}
    with pytest.raises(InvalidData, match="several questions"):
        load_smt(tmp_path / "several.smt2")
    with pytest.raises(UsageError, match="no script that can be used"):
        load_smt(tmp_path / "lies.smt2")
    with pytest.raises(UsageError, match="cannot read"):
        load_smt(tmp_path / "missing.smt2")


def test_real_scripts(shared_data: Path) -> None:
    read: Counter[str] = Counter()
    for path in sorted((shared_data / "smt").rglob("*.smt2")):
        try:
            script = read_script(path.read_text(), path.name)
        except InvalidData:
            read["refused"] += 1
            continue
        read["read"] += 1
        if read["read"] % 12 == 0:
            said = WORLD.ask("decide", script.text())
            assert said in (script.status, "unknown"), path.name
    assert read == {"read": 161, "refused": 1}
