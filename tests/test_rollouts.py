"""Alternatives that are followed to an outcome, in the grid: by the agent and by a policy, here and in other processes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest

from mulligan.agents.acting import Onward
from mulligan.agents.react import ReAct
from mulligan.embeddings import HashingEmbedder
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import AgentSettings, Experiment, MemorySettings, TaskSettings
from mulligan.memory import Memory, Settings
from mulligan.models import ScriptedModel
from mulligan.pool import Pool
from mulligan.protocols import State, World
from mulligan.records import Attempt, Message, Usage
from mulligan.store import Store
from mulligan.worlds.grid import GridWorld, corridor_tasks
from mulligan.write import signals
from mulligan.write.checks import Policy, Rollout, check

WORLD = GridWorld()
DOOR = corridor_tasks()[1]
PLAYED = ReAct(max_attempts=1).play(DOOR, WORLD, ScriptedModel(["east"]))  # a door, and its key lies in the west


@dataclass(frozen=True)
class Route:
    """A policy of fixed words."""

    words: tuple[str, ...]
    portable: bool = True

    def go_on(self, world: World, state: State, attempts: Sequence[Attempt], steps: int) -> list[Attempt]:
        made = []
        for word in self.words[:steps]:
            verdict = world.act(state, word)
            made.append(Attempt(index=0, observation="", action=word, verdict=verdict, usage=Usage(evaluator_calls=verdict.calls)))
        return made


def walker(messages: Sequence[Message]) -> str:
    """Takes what lies there, opens what can be opened, and goes east."""
    return next((word for word in ("take", "open") if word in messages[-1].content.partition("You can:")[2]), "east")


ROUTE = Route(("take", "east", "open", "east", "east"))
AGENT = Onward(model=ScriptedModel(walker))
CASES: list[tuple[Policy, int, Fraction, int]] = [  # policy, steps, outcome of going west, calls of the model
    (AGENT, 2, Fraction(3, 6), 4),
    (AGENT, 9, Fraction(1), 9 + 5),
    (ROUTE, 1, Fraction(2, 6), 0),
    (ROUTE, 9, Fraction(1), 0),
]


@pytest.mark.parametrize(("policy", "steps", "utility", "calls"), CASES)
def test_the_failed_action_and_its_alternative_are_followed_alike(policy: Policy, steps: int, utility: Fraction, calls: int) -> None:
    (failure,) = signals.failures(PLAYED, tokens=WORLD.tokens, clean=str)
    with WORLD.start(DOOR) as state:
        proposed = list(WORLD.edits(state, "east", failure.attempt.verdict))
        (found,), usage = check(WORLD, state, failure, proposed, Pool(), Rollout(policy=policy, steps=steps))
    assert found.proposal.action == "west"
    assert found.replayed and found.state_before == found.state_after
    assert (found.original.utility, found.changed.utility, found.changed.solved) == (0, utility, utility == 1)
    assert usage.model_calls == calls
    assert usage.evaluator_calls == 2 + min(steps, 5 if calls == 0 else 9) + min(steps, 5)


def test_a_policy_that_can_be_sent_is_run_in_the_pools_processes() -> None:
    (failure,) = signals.failures(PLAYED, tokens=WORLD.tokens, clean=str)
    with Pool(1) as pool, WORLD.start(DOOR) as state:
        proposed = list(WORLD.edits(state, "east", failure.attempt.verdict))
        found = [check(WORLD, state, failure, proposed, where, Rollout(policy=ROUTE, steps=5)) for where in (pool, Pool())]
    assert found[0] == found[1]
    assert found[0][0][0].changed.solved


def test_the_replay_gate_looks_at_the_first_step_alone() -> None:
    (failure,) = signals.failures(PLAYED, tokens=WORLD.tokens, clean=str)
    lied = replace(failure, attempt=replace(failure.attempt, verdict=replace(failure.attempt.verdict, utility=Fraction(1, 2))))
    with WORLD.start(DOOR) as state:
        proposed = list(WORLD.edits(state, "east", failure.attempt.verdict))
        (found,), _ = check(WORLD, state, lied, proposed, Pool(), Rollout(policy=ROUTE, steps=5))
    assert not found.replayed
    assert found.changed == found.original == failure.attempt.verdict


def test_memory_learns_from_outcomes(tmp_path: Path) -> None:
    lessons = []
    for how in (None, Rollout(policy=ROUTE, steps=5)):
        with Store(tmp_path / f"{how is None}.db") as store:
            memory = Memory(store, WORLD, embedder=HashingEmbedder(64), settings=Settings(rollout=how, alternatives=2))
            admitted = [d for d in memory.learn(PLAYED) if d.admitted]
            lessons.append([(d.proposal.action, d.check and d.check.changed.utility) for d in admitted])
    assert lessons == [[("west", Fraction(1, 6))], [("west", Fraction(1))]]


def test_an_experiment_with_rollouts_by_the_agent(tmp_path: Path) -> None:
    """All stages in a world of many steps; what rollouts ask is on the bill."""

    def reply(messages: Sequence[Message]) -> str:
        if "JSON" in messages[-1].content:
            return '[{"action": "west", "why": "the key is there", "condition": "none"}]'
        lesson = messages[1].content.partition("Right: ")[2].split("\n")[0]
        return lesson if lesson and len(messages) == 2 else walker(messages)

    settings = Experiment(
        name="grid",
        world="grid",
        tasks=TaskSettings(loader="grid"),
        agent=AgentSettings(attempts=8),
        memory=MemorySettings(rollout=4, embedder="hash:64", partial=True),
        arms=("none", "no_persistence", "checked_top1"),
        workers=0,
    )
    parts = Parts(tasks=corridor_tasks(), world=WORLD, model=ScriptedModel(reply), embedder=HashingEmbedder(64))
    results = run(settings, parts, tmp_path / "run", lambda stage, done, total: None)
    (built,) = results.construction
    assert built.source_tasks == 2
    assert sum(built.reasons.values()) >= 2
    costs = {cost.stage: cost.usage for cost in results.costs}
    assert costs["construct checked"].model_calls == 1 + 4 + 4  # the proposer, and what the two walks ask
