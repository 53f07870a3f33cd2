"""The write path, stage by stage: what failed, what is local, what is admitted, what a record says."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, check, episode, proposal, record, task, verdict
from mulligan.conditions import holds
from mulligan.edits import edit_text
from mulligan.errors import UnknownName
from mulligan.meter import estimate_tokens
from mulligan.models import ScriptedModel
from mulligan.read import reconstruction
from mulligan.records import Check, Condition, Decision, Record, Signal, Statistics
from mulligan.write import admission, distillation, proposals, retention, signals
from mulligan.write.distillation import Facts


def words(text: str) -> list[str]:
    return text.split()


def no_guidance(text: str) -> str:
    return reconstruction.strip(text)


# Signals


def test_failures_are_failed_completed_attempts_with_evidence_once_each() -> None:
    played = episode(
        attempt("a b"),
        attempt("a  b"),  # the same action again
        attempt("c", verdict=verdict(0, completed=False)),
        attempt("d", verdict=verdict(0, signals=())),
        attempt("e", Fraction(1, 2)),
        attempt("f", 1),
    )
    found = signals.failures(played, tokens=words, clean=no_guidance)
    assert [f.attempt.action for f in found] == ["a b", "e"]
    assert [a.action for a in found[1].later] == ["f"]
    assert [a.action for a in found[1].before] == ["a b", "a  b", "c", "d"]


def test_nothing_is_learnt_from_our_own_injected_block() -> None:
    block, _ = reconstruction.render([record()], count=estimate_tokens)
    played = episode(attempt(block), attempt(f"{block}\n"), attempt(block[: len(block) // 2]))
    assert signals.failures(played, tokens=words, clean=no_guidance) == []


def test_a_prefix_stays_within_its_trial() -> None:
    played = episode(attempt("a"), attempt("b", trial=1), attempt("c", trial=1))
    assert [[a.action for a in f.before] for f in signals.failures(played, tokens=words, clean=no_guidance)] == [[], [], ["b"]]


# Proposals


@pytest.mark.parametrize(
    ("original", "changed", "local"),
    [
        ("a b c d e", "a b x d e", True),
        ("a b c d e", "v w x y z", False),
        ("north", "east", True),  # one argument of a short action
        ("go north", "take key", False),
        ("a b c d e", f"a b c d e{' +' * 16}", True),  # kept, and little added
        ("a b c d e", f"a b c d e{' +' * 17}", False),
        ("a b c d e", "+ + + + b c d e + + + +", True),  # four of five tokens kept
        ("a b c d e", "+ + + + + c d e + + + +", False),
        ("a\nb\nc\nd\ne", "a\nx\nc\nd\ne", True),
        ("a\nb\nc\nd\ne\nf\ng\nh\ni\nj", "x\nb\nc\nd\ne\nf\ng\nh\ni\ny", False),  # two hunks
        ("\n".join("abcdefghijklmnop"), "\n".join("123456ghijklmnop"), False),  # six lines
    ],
)
def test_locality(original: str, changed: str, local: bool) -> None:
    assert proposals.is_local(original, changed, words) is local


def test_choose_takes_turns_and_keeps_what_it_refuses() -> None:
    original = "a b c d e"
    kept, refused = proposals.choose(
        original,
        [proposal("a b c d R", proposer="agent")],
        [proposal("a b c d M", proposer="model"), proposal("a b c d e"), proposal("v w x y z"), proposal("")],
        [proposal("a b c d O"), proposal("a b c d M"), proposal("a b c d P"), proposal("a b c d Q")],
        tokens=words,
        clean=reconstruction.strip,
        limit=4,
    )
    assert [p.action[-1] for p in kept] == ["R", "O", "M", "P"]
    assert {d.reason for d in refused} == {"duplicate", "same_as_original", "not_local", "unparseable", "over_limit"}


@pytest.mark.parametrize("reply", ["", "no idea", '[{"action": "a"}, {"action": 3}]', '{"action": "a"} {"action": "b"}', "[" * 100_000])
def test_an_unusable_reply_is_no_proposal(reply: str) -> None:
    failure = signals.failure_at([attempt("a")], 0)
    found, completion = proposals.from_model(task(), failure, ScriptedModel([reply]), manual="m", limit=2, seed=0)
    assert found == []
    assert completion.usage.model_calls == 1


def test_the_proposer_sees_no_gold() -> None:
    seen: list[str] = []

    def reply(messages: object) -> str:
        seen.append(str(messages))
        return '[{"action": "b", "why": "w", "condition": "None."}]'

    failure = signals.failure_at([attempt("a")], 0)
    secret = task(payload={"gold": "SELECT secret"})
    found, _ = proposals.from_model(secret, failure, ScriptedModel(reply), manual="m", limit=2, seed=0)
    assert "secret" not in seen[0]
    assert [(p.action, p.condition.kind) for p in found] == [("b", "none")]


# Admission

gains = st.fractions(min_value=0, max_value=1, max_denominator=40)
checks_drawn = st.lists(
    st.builds(
        lambda gain, completed, replayed, n: check(
            gain, f"act{n}", changed=verdict(gain, completed=completed, solved=False), replayed=replayed
        ),
        gains,
        st.booleans(),
        st.booleans(),
        st.integers(0, 10**6),
    ),
    max_size=6,
)


def size(one: object) -> float:
    return 0.0


@pytest.mark.parametrize(("passed", "admitted"), [(0, False), (1, False), (2, True)])
def test_the_threshold_is_strict_on_exact_fractions(passed: int, admitted: bool) -> None:
    (decision,) = admission.decide([check(Fraction(passed, 20), changed=verdict(Fraction(passed, 20)))], size=size)
    assert decision.admitted is admitted


@given(checks_drawn)
def test_at_most_one_is_admitted_and_never_an_incomplete_or_unfaithful_one(drawn: list[Check]) -> None:
    decisions = admission.decide(drawn, size=size)
    assert len(decisions) == len(drawn)
    admitted = [d for d in decisions if d.admitted]
    assert len(admitted) <= 1
    fit = [c for c in drawn if c.replayed and c.changed.completed and c.gain > admission.THRESHOLD]
    assert bool(admitted) == bool(fit)
    for d in admitted:
        assert d.check is not None
        assert d.check.replayed and d.check.changed.completed
        assert d.check.gain == max(c.gain for c in fit)


@given(checks_drawn, st.randoms())
def test_the_admitted_gain_does_not_depend_on_the_order(drawn: list[Check], random: object) -> None:
    mixed = list(drawn)
    random.shuffle(mixed)  # type: ignore[attr-defined]

    def best(decisions: list[Decision]) -> list[Fraction]:
        return [d.check.gain for d in decisions if d.admitted and d.check]

    assert best(admission.decide(drawn, size=size)) == best(admission.decide(mixed, size=size))


def test_ties_go_to_the_smaller_edit_then_to_the_earlier() -> None:
    sizes = {"long": 0.5, "short": 0.1, "late": 0.1}
    three = [check(1, action) for action in ("long", "short", "late")]
    decisions = admission.decide(three, size=lambda p: sizes[p.action])
    assert [d.reason for d in decisions] == ["beaten", "admitted", "beaten"]


def test_a_check_that_touched_the_live_state_is_not_admitted() -> None:
    (decision,) = admission.decide([check(1, state_after="other")], size=size)
    assert decision.reason == "replay_differs"


def test_unverified_takes_the_first_unchecked() -> None:
    decisions = admission.decide_unverified([proposal("a"), proposal("b")])
    assert [d.reason for d in decisions] == ["admitted_unverified", "over_limit"]


# Distillation


def distilled(wrong: str, right: str, *, facts: Facts, others: list[tuple[str, Facts]], condition: Condition | None = None) -> Record:
    decision = admission.decide([check(1, right, proposal=proposal(right, condition=condition or Condition()))], size=size)[0]
    panel = distillation.Panel(texts=tuple(t for t, _ in others), facts=tuple(f for _, f in others))
    source = episode(attempt(wrong), task=task(prompt="population of springfield in ohio"))
    return distillation.distil(source, source.attempts[0], decision, facts=facts, panel=panel, tokens=words, tried=1)


OHIO = ("area of ohio", {"mentions": ["state"], "values": ["state.name"]})


def test_literals_that_only_the_source_has_are_stripped_and_shared_ones_stay() -> None:
    made = distilled("x = 'springfield' y = 'Ohio'", "x = 'springfield' y = 'ohio'", facts={}, others=[OHIO])
    assert "springfield" not in made.situation + made.original + made.corrected + made.diff
    assert made.situation == "population of <value1> in ohio"
    assert made.corrected == "x = '<value1>' y = 'ohio'"
    assert "'Ohio'" in made.diff and "'ohio'" in made.diff


def test_a_literal_that_the_correction_is_about_stays() -> None:
    made = distilled("x = 'Springfield'", "x = 'springfield'", facts={}, others=[OHIO])
    assert (made.original, made.corrected) == ("x = 'Springfield'", "x = 'springfield'")
    assert "springfield" in made.situation


def test_a_convention_that_the_question_does_not_say_is_kept() -> None:
    made = distilled("pop > 0", "pop > 150000", facts={}, others=[OHIO])
    assert "150000" in made.corrected


def test_a_condition_is_true_at_the_source_and_false_somewhere() -> None:
    facts = {"mentions": ["city"], "values": ["state.name", "city.name"]}
    wanted = Condition(kind="predicate", text="t", predicate='"city.name" in values')
    assert distilled("a", "b", facts=facts, others=[OHIO], condition=wanted).condition == wanted
    everywhere = Condition(kind="predicate", text="t", predicate='"state.name" in values')
    assert distilled("a", "b", facts=facts, others=[OHIO], condition=everywhere).condition.kind == "none"
    false_here = Condition(kind="predicate", text="t", predicate='"lake" in mentions')
    assert distilled("a", "b", facts=facts, others=[OHIO], condition=false_here).condition.kind == "none"


def test_a_condition_is_derived_from_what_the_correction_changed() -> None:
    facts = {"mentions": ["city", "lake"], "values": ["state.name"]}
    made = distilled("SELECT x FROM city", "SELECT x FROM lake", facts=facts, others=[OHIO])
    assert made.condition.kind == "predicate"
    assert holds(made.condition.predicate, facts)
    assert not holds(made.condition.predicate, OHIO[1])


def test_a_judged_condition_is_the_last_resort_before_none() -> None:
    wanted = Condition(kind="judged", text="the question asks for a name")
    assert distilled("a", "b", facts={}, others=[OHIO], condition=wanted).condition == wanted


@given(st.text(max_size=300), st.text(max_size=300))
def test_edit_text_never_fails_and_is_empty_only_for_equal_tokens(a: str, b: str) -> None:
    assert (edit_text(a, b, words) == "") == (words(a) == words(b))


# Retention


def standings(*gains_: Fraction | int, selected: tuple[int, ...] = ()) -> list[retention.Standing]:
    made = []
    for n, gain in enumerate(gains_):
        lesson = record(f"situation {n}")
        lesson = replace(lesson, gain=replace(lesson.gain, changed=Fraction(gain)))
        uses = selected[n] if selected else 0
        made.append(retention.Standing(record=lesson, statistics=Statistics(selected=uses), sequence=n))
    return made


APART = np.eye(4, dtype=np.float32)


def test_utility_evicts_the_least_gain_and_may_evict_the_newcomer() -> None:
    four = standings(1, 1, 1, Fraction(1, 10))
    assert retention.utility(four, APART) == four[3].record.id


def test_utility_prefers_used_and_distinct_records() -> None:
    four = standings(1, 1, 1, 1, selected=(3, 0, 3, 3))
    assert retention.utility(four, APART) == four[1].record.id
    close = APART.copy()
    close[3] = close[2]
    assert retention.utility(standings(1, 1, 1, 1), close) == four[3].record.id  # of two alike the newer goes


def test_the_rivals() -> None:
    four = standings(1, 1, 1, 1)
    assert retention.recency(four, APART) == four[0].record.id
    assert retention.chance(four, APART) == retention.chance(list(reversed(four)), APART)
    close = APART.copy()
    close[2] = close[1]
    assert retention.similarity(four, close) == four[2].record.id


def test_an_unknown_strategy_lists_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="utility, recency, random, similarity"):
        retention.strategy("lru")


def test_signals_of_the_failure_are_kept_in_the_record() -> None:
    made = distilled("a", "b", facts={}, others=[OHIO])
    assert made.signals == (Signal(kind="missing_rows", what="1 row missing"),)
