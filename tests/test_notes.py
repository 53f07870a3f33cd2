"""Notes in words: contracts, literals taken out, validation, revision, the bank, and the arms that use them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, episode, task, verdict
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import UsageError
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import Experiment, MemorySettings
from mulligan.memory import Memory
from mulligan.meter import estimate_tokens
from mulligan.models import ScriptedModel
from mulligan.notes import Shown, Writer, add_to_bank, prune_bank
from mulligan.read.reconstruction import render
from mulligan.records import Episode, Message, Reason, Receipt, Selection, Task
from mulligan.store import Store
from mulligan.write.bank import Counts, counts, distinct, is_duplicate, kept
from mulligan.write.contracts import ASKED, Contract, Note, contract_of, literals, parsed, stripped
from mulligan.write.validation import Pair, decide, total
from toy import ToyWorld, toy_tasks
from toy_run import experiment, reply

EMBEDDER = HashingEmbedder(16)
MISTAKE, ADVICE = "the last word is taken from another list of words", "compare every single word"
BUG = f"WHEN: three words are wanted\nFAILURE_REFLECTION\nBug class: {MISTAKE}\nCheck: {ADVICE}"
GOOD = (
    "WHEN: words are wanted\nSUCCESS_PROCEDURE\nContract: words in order\nImplementation: count them, then say each one once\n"
    "Boundary: not for numbers"
)

# ---- contracts ----

STEPS = "WHEN: a room is searched\nWHY IT FAILED: it looked twice\n1. look around\n2. open what is closed\n3. take it"
RULE = "WHEN: shopping\nWHY IT FAILED: no option\nType: option\nTrigger: a size is asked for\nAction: choose it before buying"
CONTRACTS: list[tuple[str, Contract, bool, bool]] = [
    (STEPS, "steps", False, True),
    (STEPS.replace("1. ", "1) ").replace("**", ""), "steps", False, True),
    (f"**{STEPS}", "steps", False, True),
    (STEPS.replace("WHY IT FAILED: it looked twice\n", ""), "steps", False, False),
    (STEPS.replace("WHY IT FAILED: it looked twice\n", ""), "steps", True, True),
    (STEPS.replace("3. take it", ""), "steps", False, False),
    (STEPS + "".join(f"\n{n}. more" for n in range(4, 9)), "steps", False, False),
    (STEPS.removeprefix("WHEN: a room is searched\n"), "steps", False, False),
    (RULE, "rule", False, True),
    (RULE.replace("Trigger: a size is asked for\n", ""), "rule", False, False),
    (RULE.replace("Action: choose it before buying", "Action:"), "rule", False, False),
    (GOOD, "procedure", True, True),
    (f"```\n{GOOD}\n```", "procedure", True, True),
    (GOOD.replace("SUCCESS_PROCEDURE\n", ""), "procedure", True, False),
    (GOOD.replace("Boundary: not for numbers", ""), "procedure", True, False),
    (BUG, "bug", False, True),
    (f"{BUG}\nBug class: another", "bug", False, False),
    (f"{RULE}\nAction: another", "rule", False, False),
    (STEPS.replace("3. take", "2. take"), "steps", False, False),
    (f"{BUG} {'word ' * 200}", "bug", False, False),
    ("", "bug", False, False),
    *((ASKED[contract], contract, False, False) for contract in ("steps", "rule", "procedure", "bug")),  # the form handed back
    (BUG.replace(ADVICE, "what to look at to avoid it"), "bug", False, False),
    ("\0\ud800", "steps", False, False),
]


@pytest.mark.parametrize(("text", "contract", "solved", "fits"), CONTRACTS)
def test_a_contract_is_enforced(text: str, contract: Contract, solved: bool, fits: bool) -> None:
    found = parsed(text, contract, solved=solved)
    assert isinstance(found, Note) is fits
    assert isinstance(found, Note) or found.endswith(".")


@pytest.mark.parametrize(
    ("world", "solved", "contract"),
    [("textgame", True, "steps"), ("grid", False, "steps"), ("shop", False, "rule"), ("code", True, "procedure"), ("sql", False, "bug")],
)
def test_worlds_have_contracts(world: str, solved: bool, contract: Contract) -> None:
    assert contract_of(world, solved=solved) == contract


# ---- literals ----


def test_what_belongs_to_one_task_is_taken_out() -> None:
    found = literals("how many people live in 'Utah' since 1999", ["SELECT pop FROM state\nWHERE name = 'utah'"])
    assert {"Utah", "utah", "1999", "WHERE name = 'utah'", "SELECT pop FROM state"} <= set(found)
    note = Note(
        when="people of utah", says="Bug class: a city is taken for Utah in 1999\nCheck: whether SELECT pop FROM state asks the right table"
    )
    cleaned = stripped(note, found)
    assert cleaned == Note(when="people of …", says="Bug class: a city is taken for … in …\nCheck: whether … asks the right table")


def test_what_the_world_answered_and_short_answers_are_literals_too() -> None:
    found = literals(
        "what's it", ["UNSAT", "3 + 4 = 7\nThe answer is: 7"], ['missing_rows: ["albuquerque"] of 1 345 496', "it's here, isn't it"]
    )
    assert {"UNSAT", "7", "albuquerque", "345", "496"} <= set(found) and "s here, isn" not in found
    note = Note(
        when="x", says="Bug class: unsat was said where Albuquerque was wanted\nCheck: whether 7 is right for every single one of them"
    )
    assert stripped(note, found) == Note(
        when="x", says="Bug class: … was said where … was wanted\nCheck: whether … is right for every single one of them"
    )


def test_a_memorised_answer_is_no_note() -> None:
    action = "SELECT population FROM state WHERE state_name = 'utah'"
    assert stripped(Note(when="x", says=f"Bug class: none\nCheck: {action}"), literals("how many in utah", [action])) is None


@given(st.text(max_size=80), st.lists(st.text(min_size=1, max_size=12), max_size=4))
def test_no_literal_remains_as_a_word(text: str, found: list[str]) -> None:
    cleaned = stripped(Note(when=text, says=f"{text} these are words enough to be kept as they are here"), found)
    if cleaned is not None:
        for literal in found:
            if literal.strip() and re.fullmatch(r"\w+", literal) and literal.isascii():
                assert not re.search(rf"(?<!\w){re.escape(literal)}(?!\w)", cleaned.says, re.IGNORECASE)


# ---- validation ----


HALF, ONE, ZERO = Fraction(1, 2), Fraction(1), Fraction(0)
PAIRS: list[tuple[list[Pair], Reason]] = [
    ([Pair(with_note=ONE, without=ZERO), Pair(with_note=HALF, without=HALF)], "admitted"),
    ([Pair(with_note=ONE, without=ONE), Pair(with_note=ONE, without=ZERO)], "admitted"),
    ([Pair(with_note=ONE, without=ZERO), Pair(with_note=ZERO, without=HALF)], "harms"),
    ([Pair(with_note=ONE, without=ONE), Pair(with_note=HALF, without=HALF)], "no_uplift"),
    ([Pair(with_note=None, without=ZERO)], "not_completed"),
    ([Pair(with_note=ONE, without=None), Pair(with_note=ONE, without=ZERO)], "not_completed"),
    ([], "not_completed"),
]


@pytest.mark.parametrize(("pairs", "reason"), PAIRS)
def test_notes_are_decided_by_uplift(pairs: list[Pair], reason: Reason) -> None:
    assert decide(pairs) == decide(pairs[::-1]) == reason


@given(st.lists(st.tuples(*[st.one_of(st.none(), st.fractions(0, 1, max_denominator=9))] * 2), max_size=4))
def test_nothing_is_admitted_without_a_gain_from_complete_plays(values: list[tuple[Fraction | None, Fraction | None]]) -> None:
    pairs = [Pair(with_note=a, without=b) for a, b in values]
    if decide(pairs) == "admitted":
        assert all(p.uplift is not None and p.uplift >= 0 for p in pairs) and total(pairs) > 0


# ---- writing ----


def scripted(*texts: str) -> tuple[ScriptedModel, list[str]]:
    asked: list[str] = []
    left = iter(texts)

    def answer(messages: Sequence[Message]) -> str:
        asked.append(messages[-1].content)
        return next(left)

    return ScriptedModel(answer), asked


def failed_play(place: int = 0, action: str = "one two red") -> Episode:
    source = toy_tasks(4)[place]
    with ToyWorld().start(source) as state:
        return episode(attempt(action, verdict=ToyWorld().act(state, action), state=state.digest), task=source, label="source")


def player(outcomes: Callable[[Task, str], Fraction]) -> Callable[[Task, Shown], Episode]:
    def play(at: Task, shown: Shown) -> Episode:
        guidance = shown.recall(at)
        assert guidance.text and guidance.records == (shown.record.id,)
        return episode(attempt("played", outcomes(at, guidance.text), verdict=verdict(outcomes(at, guidance.text))), task=at)

    return play


def written(model: ScriptedModel, play: Callable[[Task, Shown], Episode] | None, store: Store, revisions: int = 2) -> Writer:
    memory = Memory(store, ToyWorld(), embedder=EMBEDDER)
    return Writer(memory=memory, model=model, play=play, revisions=revisions)


def test_a_note_that_helps_is_admitted_with_both_plays_as_its_check() -> None:
    source, other = failed_play(0), failed_play(1)
    model, asked = scripted(BUG)
    with Store(":memory:") as store:
        found = written(model, player(lambda at, text: ONE if at.id == source.task.id else other.utility), store).write(
            source, [source, other]
        )
        assert found.record is not None and [d.reason for d in found.decisions] == ["admitted"]
        [stored] = store.records()
        assert stored.record == found.record and found.record.kind == "principle"
        assert (found.record.gain.original, found.record.gain.changed, found.record.gain.verified) == (source.utility, ONE, True)
        assert found.record.situation == "three words are wanted" and found.record.principle.startswith("Bug class: the last word")
        [row] = store.decisions(record=found.record.id)
        assert row.decision.check is not None and row.decision.check.gain == ONE - source.utility
        assert "It did not solve the task." in asked[0] and "one two three" not in asked[0]
        shown, ids = render([found.record], count=estimate_tokens)
        assert "When: three words are wanted" in shown and "Right:" not in shown and ids == (found.record.id,)


def test_a_note_that_does_nothing_is_revised_twice_and_then_refused() -> None:
    source, other = failed_play(0), failed_play(1)
    model, asked = scripted(BUG, BUG.replace("single", "second"), BUG.replace("single", "third"), "never asked")
    with Store(":memory:") as store:
        found = written(model, player(lambda at, text: source.utility if at.id == source.task.id else other.utility), store).write(
            source, [other]
        )
        assert found.record is None and [d.reason for d in found.decisions] == ["no_uplift"] * 3
        assert len(asked) == 3 and "its score changed by +0.00" in asked[1] and "compare every single word" in asked[1]
        assert "Action:\nplayed" in asked[2] and "compare every second word" in asked[2]
        assert store.records() == [] and len(store.decisions()) == 3


def test_a_revision_carries_nothing_of_the_play_that_it_saw() -> None:
    source = failed_play()
    said = BUG.replace(ADVICE, "the word secretword and every single other word in its place")

    def play(at: Task, shown: Shown) -> Episode:
        return episode(attempt("say 'secretword'", source.utility, verdict=verdict(source.utility)), task=at)

    with Store(":memory:") as store:
        found = written(scripted(BUG, said)[0], play, store, 1).write(source)
        assert "secretword" not in found.decisions[1].proposal.action and "every single other word" in found.decisions[1].proposal.action


def test_a_revision_can_be_what_helps() -> None:
    source = failed_play()
    model, _ = scripted(BUG, BUG.replace("single", "wanted"))
    with Store(":memory:") as store:
        found = written(model, player(lambda at, text: ONE if "wanted word" in text else ZERO), store).write(source)
        assert [d.reason for d in found.decisions] == ["harms", "admitted"] and found.record is not None
        assert found.record.gain.tried == 2


def test_a_note_that_harms_a_sibling_is_refused() -> None:
    source, other = failed_play(0), failed_play(1)
    with Store(":memory:") as store:
        found = written(scripted(BUG)[0], player(lambda at, text: ONE if at.id == source.task.id else ZERO), store, 0).write(
            source, [other]
        )
        assert [d.reason for d in found.decisions] == ["harms"] and other.utility > 0


MEMORISED = BUG.replace(MISTAKE, "one two red").replace(ADVICE, "red")


@pytest.mark.parametrize(("texts", "reason"), [((" no form", "again none"), "contract"), ((MEMORISED,), "memorised")])
def test_what_is_no_note_is_refused_with_the_reason(texts: tuple[str, ...], reason: Reason) -> None:
    model, asked = scripted(*texts)
    with Store(":memory:") as store:
        found = written(model, None, store).write(failed_play())
        assert [d.reason for d in found.decisions] == [reason] and found.record is None and len(asked) == len(texts)
        if reason == "contract":
            assert "Begin with a line WHEN:" in asked[1]


def test_without_validation_a_note_is_advice() -> None:
    with Store(":memory:") as store:
        found = written(scripted(BUG)[0], None, store).write(failed_play())
        assert found.record is not None and not found.record.gain.verified
        assert [d.reason for d in found.decisions] == ["admitted_unverified"]
        guidance = Memory(store, ToyWorld(), embedder=EMBEDDER).recall(replace(toy_tasks(1)[0], id="n", group="n", split="heldout"))
        assert "not checked" in guidance.text and "compare every single word" in guidance.text


def test_only_source_tasks_may_write() -> None:
    with Store(":memory:") as store, pytest.raises(UsageError, match="only source tasks"):
        written(scripted()[0], None, store).write(episode(attempt(), task=task(split="heldout")))


# ---- the bank ----


UTILITIES = [(0, 0, "1/2", False), (0, 3, "1/5", True), (0, 2, "1/4", False), (1, 5, "2/7", True), (1, 4, "1/3", False)]  # SPEC B2


@pytest.mark.parametrize(("successes", "uses", "utility", "goes"), UTILITIES)
def test_utilities_of_the_bank(successes: int, uses: int, utility: str, goes: bool) -> None:
    entry = Counts(uses=uses, successes=successes)
    assert (entry.utility, entry.prunable) == (Fraction(utility), goes)


def receipt(place: int, candidates: tuple[str, ...], shown: tuple[str, ...]) -> Receipt:
    return Receipt(task="t", attempt=place, candidates=candidates, shown=shown, selection=Selection(chosen=None, policy="bank"))


def test_uses_are_counted_once_an_episode_and_only_for_what_was_shown() -> None:
    receipts = (receipt(0, ("a", "b"), ("a",)), receipt(1, ("a", "b", "c"), ("a", "c")))
    won, lost = episode(attempt("x", 1), receipts=receipts), episode(attempt("y"), receipts=receipts[:1])
    assert counts([won, lost]) == {"a": Counts(uses=2, successes=1), "b": Counts(rejected=2), "c": Counts(uses=1, successes=1)}
    assert counts([won, lost], published=True) == {
        "a": Counts(uses=3, successes=1),
        "b": Counts(uses=3, successes=1),
        "c": Counts(uses=1, successes=1),
    }


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 5))
def test_half_of_the_plays_are_kept_in_balance(solved: list[bool], seed: int) -> None:
    plays = [episode(attempt("x", 1 if s else 0), task=task(id=f"t{n}")) for n, s in enumerate(solved)]
    chosen = kept(plays, seed=seed)
    assert len(chosen) == -(-len(plays) // 2) and [p for p in plays if p in chosen] == chosen == kept(plays, seed=seed)
    won = sum(p.solved for p in chosen)
    assert won >= min(sum(solved), len(chosen) // 2) and len(chosen) - won >= min(len(solved) - sum(solved), len(chosen) // 2)


def test_duplicates_are_above_the_threshold_strictly() -> None:
    base = np.array([[1.0, 0.0]], np.float32)
    at = np.array([0.85, (1 - 0.85**2) ** 0.5], np.float32)
    assert is_duplicate(np.array([0.9, 0.1], np.float32), base)
    assert not is_duplicate(at * np.float32(0.999), base) and not is_duplicate(at, np.empty((0, 2), np.float32))
    rows = np.array([[1, 0], [0.99, 0.14], [0, 1], [0.1, 0.99], [-1, 0], [0, -1]], np.float32)
    assert distinct(rows) == [0, 2, 4] and distinct(rows, 9) == [0, 2, 4, 5] and distinct(rows[:0]) == []


def test_the_bank_retires_duplicates_and_what_seldom_helps() -> None:
    with Store(":memory:") as store:
        writer = written(scripted(BUG, BUG.replace("three", "four"), GOOD)[0], None, store)
        add_to_bank(writer, failed_play(0))
        again = failed_play(0)
        add_to_bank(writer, replace(again, label="again"))
        active, gone = store.records(), store.records(status="retired")
        assert len(active) == 1 and [s.reason for s in gone] == ["like another: cosine above 0.85"]
        key = active[0].record.id
        used = [episode(attempt(), receipts=(receipt(0, (key,), (key,)),)) for _ in range(3)]
        assert prune_bank(writer.memory, used[:2]) == [] and prune_bank(writer.memory, used) == [key]
        assert store.record(key).reason == "utility below 0.3 after 3 uses"


# ---- arms ----


def noting(messages: Sequence[Message]) -> str:
    """The toy model, which also writes notes, and heeds them."""
    text = messages[-1].content
    if "SUCCESS_PROCEDURE" in text or "FAILURE_REFLECTION" in text:
        return GOOD if "SUCCESS_PROCEDURE" in text else BUG
    opening = messages[1].content
    return "one two three" if "compare every single word" in opening else reply(messages)


def played(folder: Path, **memory: object) -> Results:
    settings: Experiment = experiment(
        arms=("none", "unvalidated", "validated", "bank"),
        memory=MemorySettings(embedder="hash:64", need=0.0, **memory),  # type: ignore[arg-type]
    )
    tasks = [*toy_tasks(6), *toy_tasks(6, "heldout")]
    parts = Parts(tasks=tasks, world=ToyWorld(), model=ScriptedModel(noting), embedder=HashingEmbedder(64))
    return run(settings, parts, folder, lambda stage, done, total: None)


def test_arms_of_notes_run_and_can_be_resumed(tmp_path: Path) -> None:
    found = played(tmp_path)
    built = {c.variant: c for c in found.construction}
    assert set(built) == {"unvalidated", "validated", "bank"} and built["validated"].records > 0
    assert built["validated"].reasons["admitted"] == built["validated"].records
    assert all(c.frozen_before == c.frozen_after for c in built.values())
    assert found.arm("validated").solved.part >= found.arm("none").solved.part and found.arm("bank").used.part > 0
    assert found.construction_cost("validated").tokens > found.construction_cost("unvalidated").tokens > 0
    again = played(tmp_path)
    assert (again.arms, again.construction, again.costs) == (found.arms, found.construction, found.costs)


def test_a_budget_stops_the_writing(tmp_path: Path) -> None:
    found = {c.variant: c.records + c.retired for c in played(tmp_path, note_tokens=1).construction}
    assert found["unvalidated"] == 1 and found["bank"] == 1 and found["validated"] <= 1
    with Store(tmp_path / "run.db", frozen=True) as ledger:
        assert sum(row.stage == "construct unvalidated" for row in ledger.ledger()) == 1
