"""Agents: what they ask, when they stop, and that they look at nothing an agent may not see."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import record, task
from mulligan.agents.acting import Sampling
from mulligan.agents.best_of_n import BestOfN
from mulligan.agents.react import ReAct
from mulligan.agents.reflexion import Reflexion
from mulligan.models import ScriptedModel
from mulligan.records import Guidance, Message, Receipt, Selection, Usage
from toy import ToyWorld, toy_tasks

WORLD = ToyWorld()


class Shows:
    """Stands for a memory: hands out the same guidance every time, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def recall(self, task, history=(), *, observation="", max_attempts=1):  # type: ignore[no-untyped-def]
        self.asked.append(len(history))
        choice = Selection(chosen=0, policy="test")
        receipt = Receipt(task=task.id, attempt=len(history), candidates=("r",), shown=(record().id,), selection=choice)
        return Guidance(text="HINT", records=receipt.shown, receipt=receipt, usage=Usage(prompt_tokens=7))


def replies(*texts: str) -> tuple[ScriptedModel, list[Sequence[Message]]]:
    seen: list[Sequence[Message]] = []
    left = iter(texts)

    def reply(messages: Sequence[Message]) -> str:
        seen.append(messages)
        return next(left)

    return ScriptedModel(reply), seen


def test_react_acts_until_nothing_is_wrong_in_one_conversation() -> None:
    model, seen = replies("one", "I see.\n```\none two three\n```", "never asked")
    played = ReAct().play(toy_tasks(1)[0], WORLD, model)
    assert [a.action for a in played.attempts] == ["one", "one two three"]
    assert played.solved and played.attempts[1].thought.startswith("I see.")
    assert [m.role for m in seen[1]] == ["system", "user", "assistant", "user"]
    assert "missing_rows two" in seen[1][-1].content


def test_react_stops_at_its_limit() -> None:
    model, seen = replies(*["wrong"] * 9)
    played = ReAct(max_attempts=2).play(toy_tasks(1)[0], WORLD, model)
    assert len(played.attempts) == len(seen) == 2


def test_a_long_play_stays_within_a_context_and_keeps_its_last_answer_whole() -> None:
    class Wordy(ToyWorld):
        def act(self, state, action):  # type: ignore[no-untyped-def]
            verdict = super().act(state, action)
            return replace(verdict, feedback=f"Page {action}.\n{'words ' * 400}end")

    model, seen = replies(*(f"wrong {n}" for n in range(12)))
    ReAct(max_attempts=12).play(toy_tasks(1)[0], Wordy(), model)
    answers = [m.content for m in seen[-1][1:] if m.role == "user"][1:]
    assert len(answers) == 11
    assert [answer.endswith("end\n\nAct again.") for answer in answers] == [False] * 9 + [True] * 2
    assert answers[0] == "Page wrong 0. …\n\nAct again."
    assert sum(map(len, answers)) < 7_000


@pytest.mark.parametrize("agent", [ReAct(), Reflexion(), BestOfN(n=2), BestOfN(n=2, choice="guided")], ids=lambda a: str(a))
def test_on_held_out_tasks_no_request_depends_on_the_gold_answer(agent: ReAct) -> None:
    (source,) = toy_tasks(1, "heldout")
    requests = []
    for gold in ("one two three", "four"):
        model, seen = replies("", "one two three", "", "four", "", "five")
        agent.play(replace(source, payload={"gold": gold}), WORLD, model)
        requests.append(seen)
    assert requests[0] == requests[1]


def test_memory_is_asked_at_every_decision_point_and_its_cost_is_on_the_bill() -> None:
    model, seen = replies("one", "one two three")
    memory = Shows()
    played = ReAct().play(toy_tasks(1)[0], WORLD, model, memory)  # type: ignore[arg-type]
    assert memory.asked == [0, 1]
    assert all("HINT" in messages[1].content for messages in seen)
    assert len(played.receipts) == 2 and played.attempts[1].receipt == played.receipts[1].id
    without = ReAct().play(toy_tasks(1)[0], WORLD, replies("one", "one two three")[0])
    extra = played.usage.prompt_tokens - without.usage.prompt_tokens
    assert extra >= 2 * 7


def test_reflexion_starts_over_with_its_last_reflections_and_no_history() -> None:
    model, seen = replies("one", "say more", "one two", "say even more", "one two three")
    played = Reflexion().play(toy_tasks(1)[0], WORLD, model)
    assert [a.trial for a in played.attempts] == [0, 1, 2]
    assert played.reflections == ("say more", "say even more")
    assert [m.role for m in seen[4]] == ["system", "user"]
    assert "say more" in seen[4][1].content and "say even more" in seen[4][1].content
    assert played.usage.model_calls == 5
    assert played.solved


def test_best_of_n_plain_takes_the_most_frequent_visible_answer() -> None:
    (held,) = toy_tasks(1, "heldout")
    model, _ = replies("red", "one two three", "", "one  two three")
    played = BestOfN(n=4).play(held, WORLD, model)
    assert played.attempts[-1].action == "one two three"
    assert played.usage.model_calls == 4 and played.usage.evaluator_calls == 4
    assert played.solved


def test_best_of_n_guided_stops_at_the_first_that_shows_nothing_wrong() -> None:
    (held,) = toy_tasks(1, "heldout")
    model, seen = replies("", "red", "one two three")
    played = BestOfN(n=3, choice="guided").play(held, WORLD, model)
    assert len(seen) == 2 and played.attempts[-1].action == "red"


def test_samples_differ_by_seed_alone() -> None:
    asked: list[tuple[float, int]] = []

    class Seeded(ScriptedModel):
        def complete(self, messages, *, max_tokens, temperature, seed, schema=None):  # type: ignore[no-untyped-def]
            asked.append((temperature, seed))
            return super().complete(messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema)

    BestOfN(n=3, sampling=Sampling(temperature=0.8, seed=5)).play(task(payload={"gold": "x"}), WORLD, Seeded(["a", "b", "c"]))
    assert asked == [(0.8, 5), (0.8, 6), (0.8, 7)]
