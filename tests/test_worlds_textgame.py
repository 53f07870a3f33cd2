"""The text-game world: its own logic with a stand-in for the engine, and the engine itself where it is installed."""

import json
import random
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.agents.acting import Onward
from mulligan.agents.react import ReAct
from mulligan.building import file_plan
from mulligan.conditions import holds
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData, UsageError
from mulligan.memory import Memory, Settings
from mulligan.models import ScriptedModel
from mulligan.records import Task
from mulligan.store import Store
from mulligan.tasks.games import load_alfworld, load_textworld
from mulligan.tasks.sample import load_games
from mulligan.tasks.splits import check_splits
from mulligan.worlds.beside import beside
from mulligan.worlds.conformance import check_world
from mulligan.worlds.textgame_files import read_game, told
from mulligan.write.checks import Rollout

with pytest.MonkeyPatch.context() as patch:
    if find_spec("textworld") is None:  # the world itself does not need it: only its engine does
        patch.setattr("importlib.util.find_spec", lambda name: name)
    from mulligan.worlds import textgame
from mulligan.worlds.textgame import Expert, Playing, TextGameWorld

pytestmark = pytest.mark.timeout(120)  # the engine loads slowly where the machine is busy
needs_engine = pytest.mark.skipif(find_spec("textworld") is None, reason="needs the extra text: pip install 'mulligan[text]'")
ENGINE = textgame.WORKER


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> TextGameWorld:
    """The world with a stand-in for its engine, which plays corridors."""
    monkeypatch.setattr(textgame, "WORKER", Path(__file__).with_name("fake_engine.py"))
    monkeypatch.setattr(textgame, "version", lambda name: "0")
    return TextGameWorld(time_limit_s=20.0)


def corridor(rooms: int = 3, how: str = "", split: str = "source") -> Task:
    payload = {"pddl_domain": "d", "grammar": f"g {how}", "pddl_problem": str(rooms)}
    return Task(id=f"c{rooms}", domain="textgame", benchmark="b", group="c", split=split, prompt="go east", payload=payload)  # type: ignore[arg-type]


# ---- the world's own logic ----

WALK = ["go east", "look", "look", "go west", "swim", "", "go east", "Go  East.", "> go east\nand more"]
SAID = [
    (Fraction(1, 3), []),
    (Fraction(1, 3), ["subgoal"]),
    (Fraction(1, 3), ["repeated"]),
    (Fraction(0), ["repeated"]),
    (Fraction(0), ["blocked"]),
    (Fraction(0), ["blocked"]),
    (Fraction(1, 3), ["repeated"]),
    (Fraction(2, 3), []),
    (Fraction(1), []),
]


@pytest.mark.parametrize("how", ["", "closed"])
def test_verdicts_of_a_walk(fake: TextGameWorld, how: str) -> None:
    with fake.start(corridor(how=how)) as state:
        assert fake.observe(state).startswith("You are in room 0. Your task is to: go east.\n\nYou can: go east, jump, look.")
        verdicts = [fake.act(state, action) for action in WALK]
        assert [(v.utility, [s.kind for s in v.signals]) for v in verdicts] == SAID
        assert [v.done for v in verdicts] == [v.solved for v in verdicts] == [False] * 8 + [True]
        assert all(v.completed and v.feedback for v in verdicts)
        after = fake.act(state, "go east")
        assert (after.solved, after.done, after.feedback) == (True, True, "The game is over.")
        assert state.path == ("go east", "look", "look", "go west", "go east", "go east", "go east")


def test_a_held_out_player_is_told_what_the_game_tells(fake: TextGameWorld) -> None:
    with fake.start(corridor()) as source, fake.start(corridor(split="heldout")) as heldout:
        for action in WALK:
            open_, hidden = fake.act(source, action), fake.act(heldout, action)
            assert (open_.feedback, open_.done, open_.utility) == (hidden.feedback, hidden.done, hidden.utility)
            assert [s for s in open_.signals if s.kind != "subgoal"] == list(hidden.signals)


def test_a_lost_game(fake: TextGameWorld) -> None:
    with fake.start(corridor(split="heldout")) as state:
        verdict = fake.act(state, "jump")
    assert (verdict.completed, verdict.solved, verdict.done, verdict.utility) == (True, False, True, 0)
    assert [(s.kind, s.what) for s in verdict.signals] == [("subgoal", "the game is lost")]
    assert list(fake.edits(state, "jump", verdict)) == []


@pytest.mark.parametrize("action", ["hang", "crash"])
def test_an_engine_that_fails_gives_no_verdict_and_is_started_again(fake: TextGameWorld, action: str) -> None:
    quick = replace(fake, time_limit_s=20.0 if action == "crash" else 1.0)
    with quick.start(corridor()) as state:
        quick.act(state, "go east")
        before = state.digest
        verdict = quick.act(state, action)
        assert (verdict.completed, verdict.solved, verdict.done, verdict.signals[0].kind) == (False, False, False, "timeout")
        assert state.digest == before
        assert fake.act(state, "go east").utility == Fraction(2, 3)


def test_a_game_that_does_not_open(fake: TextGameWorld) -> None:
    with pytest.raises(InvalidData, match="cannot be played: it is broken"):
        fake.start(corridor(how="broken"))
    with replace(fake, time_limit_s=0.5).start(corridor(how="hangs")) as state:
        assert fake.observe(state) == textgame.UNKNOWN
        verdict = fake.act(state, "go east")
        assert (verdict.completed, verdict.feedback, list(fake.edits(state, "x", verdict))) == (False, textgame.UNKNOWN, [])


def test_moves_that_lead_elsewhere_when_played_again_give_no_verdict(fake: TextGameWorld) -> None:
    with fake.start(corridor(how="lies")) as state:
        fake.act(state, "go east")
        beside(textgame.WORKER, textgame.INSTALL).close()  # the next engine comes to other facts
        verdict = fake.act(state, "go east")
    assert (verdict.completed, verdict.feedback) == (False, textgame.DIFFERS)


def test_the_contract_holds_with_the_stand_in(fake: TextGameWorld) -> None:
    assert check_world(fake, [corridor(), corridor(split="heldout")], actions=["go east", "look", "go west", "go east", "jump"]) == []


def test_edits_are_the_other_commands_and_a_command_is_one_token(fake: TextGameWorld) -> None:
    with fake.start(corridor()) as state:
        fake.act(state, "go east")
        verdict = fake.act(state, "go west")
        assert [p.action for p in fake.edits(state, "Go West", verdict)] == ["go east", "jump", "look"]
        assert {(p.proposer, p.why) for p in fake.edits(state, "go west", verdict)} == {("op:command", verdict.signals[0].what)}
    assert fake.tokens(" Go  west.\nthen wait") == ["go west"]
    assert fake.tokens("\n \x00") == fake.tokens("x" * 300) == []


LINES = [
    ("heat some apple and put it in fridge", ("heat", "apple", "fridge")),
    ("put a hot mug in coffeemachine.", ("heat", "mug", "coffeemachine")),
    ("put a clean soapbar in toilet", ("clean", "soapbar", "toilet")),
    ("cool some pan and put it in stoveburner", ("cool", "pan", "stoveburner")),
    ("find two knife and put them in drawer", ("two", "knife", "drawer")),
    ("put two cd in safe", ("two", "cd", "safe")),
    ("look at box under the desklamp", ("look", "box", "desklamp")),
    ("Examine the book with the desklamp.", ("look", "book", "desklamp")),
    ("put some watch on safe", ("put", "watch", "safe")),
    ("put the letter in the mailbox", ("put", "letter", "mailbox")),
    ("Recover the old key", ("quest", None, None)),
]


@pytest.mark.parametrize(("line", "says"), LINES)
def test_what_a_task_line_names(line: str, says: tuple[str, str | None, str | None]) -> None:
    found = told(line)
    assert (found["kind"], found.get("object"), found.get("place")) == says
    assert set(found["words"]) >= {word for word in says[1:] if word}


@given(st.text(max_size=200))
def test_any_task_line_names_something_or_nothing(line: str) -> None:
    assert set(told(line)) <= {"kind", "object", "place", "words"}


# ---- alternatives that are followed to an outcome ----


def test_an_agent_plays_a_long_game_and_its_alternatives_are_followed(fake: TextGameWorld, tmp_path: Path) -> None:
    task = corridor(30)
    agent = ReAct(max_attempts=40)
    asked: list[Any] = []

    def reply(messages: Any) -> str:
        asked.append(messages)
        return "look" if len(messages) == 8 else "go east"  # the fourth command of a play is a mistake

    episode = agent.play(task, fake, ScriptedModel(reply))
    assert (len(episode.attempts), episode.solved) == (31, True)
    assert asked[-1][-1].content.startswith("You are in room 29.\n\nYou can: go east, go west, jump, look.\n\nAct again.")
    assert sum("You can:" in message.content for message in asked[-1]) == 1  # or each turn would repeat what could be done before
    with Store(tmp_path / "x.db") as store:
        for policy, steps in ((Onward(model=ScriptedModel(reply)), 5), (Expert(), 5)):
            settings = Settings(rollout=Rollout(policy=policy, steps=steps), alternatives=2, partial=True)
            memory = Memory(store, fake, embedder=HashingEmbedder(64), settings=settings)
            (examined,) = memory.examine(episode)
            checks = [decision.check for decision in examined.decisions if decision.check]
            assert [c.proposal.action for c in checks] == ["go east", "go west"]
            assert all(c.replayed and c.original.utility == Fraction(8, 30) for c in checks)
            assert [c.changed.utility for c in checks] == [Fraction(9, 30), Fraction(7, 30)]
            assert examined.usage.evaluator_calls == 3 * 6
            assert examined.usage.model_calls == (3 * 5 if isinstance(policy, Onward) else 0)


def test_the_expert_says_nothing_on_held_out_tasks(fake: TextGameWorld) -> None:
    with fake.start(corridor(split="heldout")) as state:
        assert Expert().go_on(fake, state, (), 5) == []
    with fake.start(corridor()) as state:
        assert [a.action for a in Expert().go_on(fake, state, (), 9)] == ["go east"] * 3
    with pytest.raises(UsageError, match="choose another"):
        Expert().go_on(fake, None, (), 1)  # type: ignore[arg-type]


# ---- files and loaders ----


def game(**changes: Any) -> bytes:
    parts = dict(load_games()[0].payload)
    return json.dumps({**parts, "solvable": True, **changes}).encode()


def tree(root: Path) -> None:
    for name, body in {
        "valid_unseen/put-Cup-None-Shelf-10/trial_1": game(),
        "valid_seen/put-Cup-None-Shelf-11/trial_1": game(),
        "train/put-Cup-None-Shelf-10/trial_2": game(),  # a room that is held out
        "train/put-Cup-None-Shelf-12/trial_3": game(),
        "train/put-Cup-None-Shelf-13/trial_4": game(solvable=False),
        "train/put-CupSliced-None-Shelf-13/trial_5": game(),
        "train/put-Cup-None-Shelf-13/trial_6": b"{",
        "train/put-Cup-None-Shelf-13/trial_7": game(grammar="no line"),
    }.items():
        (root / name).mkdir(parents=True)
        (root / name / "game.tw-pddl").write_bytes(body)


def test_a_tree_of_alfworld_and_its_archive(tmp_path: Path) -> None:
    tree(tmp_path / "games")
    with tarfile.open(tmp_path / "games.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "games", "json")
    found = []
    for files in ("games", "games.tar.xz"):
        tasks, report = load_alfworld(tmp_path / files, shares=(1, 0, 1))
        check_splits(tasks)
        assert (report.read, report.left_out) == (8, {"excluded": 4, "crosses_splits": 1})
        found.append(sorted((task.id, task.group, task.split, task.prompt) for task in tasks))
        assert len({read_game(task.payload).key for task in tasks}) == 1
    assert found[0] == found[1]
    assert [(group, split) for _, group, split, _ in found[0]] == [("room 10", "heldout"), ("room 11", "source"), ("room 12", "source")]
    assert {prompt for *_, prompt in found[0]} == {"put the letter in the mailbox"}
    with pytest.raises(UsageError, match="there is no"):
        read_game({"pddl": str(tmp_path / "games.tar.xz"), "member": "json/other"})


BAD: list[tuple[str, bytes, str]] = [
    ("a.tw-pddl", b"{", "damaged"),
    ("a.tw-pddl", b"[" * 200_000, "damaged"),
    ("a.tw-pddl", b"[]", "is no game"),
    ("a.tw-pddl", json.dumps({"pddl_domain": "d", "grammar": "g", "pddl_problem": 3}).encode(), "is no game"),
    ("a.tar.xz", b"\xfd7zXZ\x00damaged", "damaged|cannot read"),
    ("a.tar", b"nothing", "damaged|cannot read"),
]


@pytest.mark.parametrize(("name", "body", "says"), BAD)
def test_damaged_files_are_one_clear_error(tmp_path: Path, name: str, body: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(body)
    with pytest.raises(InvalidData, match=says):
        load_alfworld(tmp_path / name)
    with pytest.raises(InvalidData, match=says):
        read_game({"pddl": str(tmp_path / name), **({"member": "x"} if "tar" in name else {})})


def test_cut_archives_end_in_one_clear_error(tmp_path: Path) -> None:
    tree(tmp_path / "games")
    with tarfile.open(tmp_path / "whole.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "games", "json")
    raw, draw = (tmp_path / "whole.tar.xz").read_bytes(), random.Random(1)
    for _ in range(40):
        place = draw.randrange(len(raw))
        (tmp_path / "cut.tar.xz").write_bytes(raw[:place] if draw.random() < 0.5 else raw[:place] + b"\xff" + raw[place + 1 :])
        try:
            assert load_alfworld(tmp_path / "cut.tar.xz")[1].read <= 8
        except UsageError as error:
            assert "cut.tar.xz" in str(error)


def test_payloads_without_a_game() -> None:
    for payload in ({}, {"grammar": "g"}, {"story": "/nowhere/a.z8"}, {"pddl": "/nowhere/a"}, {"story": "a.ulx"}, {"pddl": "\x00"}):
        with pytest.raises(UsageError, match=r"holds no game|cannot read|only games"):
            read_game(payload)


def test_folders_of_textworld(tmp_path: Path) -> None:
    made = {"objective": "Open the box.", "world": [1], "quests": [2]}
    for name, body in {"a": made, "same": made, "free": {**made, "quests": []}, "bad": [], "old": made}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
        (tmp_path / f"{name}.{'ulx' if name == 'old' else 'z8'}").write_bytes(b"z")
    (tmp_path / "alone.z8").write_bytes(b"z")
    tasks, report = load_textworld(tmp_path)
    assert ([task.prompt for task in tasks], report.read) == (["Open the box."] * 2, 6)
    assert report.left_out == {"excluded": 4}
    assert len({task.group for task in tasks}) == 1
    for name, says in {"bad.z8": "no game of TextWorld", "alone.z8": "cannot read", "old.ulx": "Glulx", "free.z8": "tells no task"}.items():
        with pytest.raises(UsageError, match=says):
            load_textworld(tmp_path / name)


# ---- the engine ----


def won_by_its_plan(world: TextGameWorld, task: Task) -> Playing:
    """Plays the engine's own plan; every move brings the game nearer."""
    with world.start(task) as state:
        assert state.view is not None and state.view.plan
        behind = Fraction(0)
        while not state.over:
            verdict = world.act(state, state.view.next)
            assert verdict.completed and not verdict.signals and verdict.utility > behind
            behind = verdict.utility
        assert verdict.solved
    return state


@needs_engine
def test_the_sample_is_won_by_its_plans_and_keeps_the_contract() -> None:
    world, tasks = TextGameWorld(), load_games()
    check_splits(tasks)
    assert [len(won_by_its_plan(world, task).path) for task in tasks] == [5, 5, 9, 5, 6, 8, 10, 6, 5, 7, 10, 6]
    assert check_world(world, tasks[1:2]) == []
    assert {world.facts(task)["kind"] for task in tasks} == {"put", "heat", "quest"}


@needs_engine
def test_the_agents_view_of_a_sample_game() -> None:
    world, task = TextGameWorld(), load_games()[0]
    with world.start(task) as state:
        assert world.observe(state) == (
            "You are in the hall. You see: hook, and mailbox. From here you can go to: gallery, kitchen, and store.\n\n"
            "Your task is to: put the letter in the mailbox.\n\n"
            "You can: examine hook, examine mailbox, go to gallery, go to kitchen, go to store, inventory, look, open mailbox, "
            "take iron key from hook."
        )
        verdict = world.act(state, "take letter from table")
        assert (verdict.feedback, verdict.signals[0].kind) == ("Nothing happens.", "blocked")
        found = list(world.edits(state, "take letter from table", verdict))
        assert found[0].action == "open mailbox"
        assert holds(found[0].condition.predicate, world.facts(task)) and found[0].condition.predicate == 'object == "letter"'


def wander(world: TextGameWorld, task: Task, draw: random.Random, steps: int) -> None:
    """Random commands; from a copy in the middle, also with another engine, the same future."""
    with world.start(task) as state:
        for _ in range(steps):
            assert state.view is not None
            world.act(state, draw.choice([*state.view.commands, "nonsense"]))
        saved = world.save(state)
        copies = [world.restore(saved) for _ in range(2)]
        future = []
        for _ in range(6):
            command = "wait" if state.over or state.view is None else draw.choice(list(state.view.commands))
            verdict = world.act(state, command)
            future.append((command, verdict.utility, verdict.feedback, verdict.signals, state.digest))
        for copy in copies:
            beside(ENGINE, textgame.INSTALL).close()  # what is played again is played by a new engine
            for command, *seen in future:
                verdict = world.act(copy, command)
                assert verdict.completed
                assert [verdict.utility, verdict.feedback, verdict.signals, copy.digest] == seen


@needs_engine
def test_copies_have_the_future_of_their_state() -> None:
    for seed in range(2):
        wander(TextGameWorld(), load_games()[4 * seed + 1], random.Random(seed), 8)


@needs_engine
@pytest.mark.parametrize("code", ["__import__('os')", "o.__class__", "(lambda: 1)()", "'a' * 9"])
def test_a_grammar_that_computes_is_refused(code: str) -> None:
    task = load_games()[0]
    grammar = task.payload["grammar"].replace("{i.name | inside", f"{{{code} | inside")
    with pytest.raises(InvalidData, match="expression that is not evaluated here"):
        TextGameWorld().start(replace(task, payload={**task.payload, "grammar": grammar}))


@needs_engine
@pytest.mark.parametrize("part", ["pddl_domain", "grammar", "pddl_problem"])
def test_a_damaged_game_is_one_clear_error(part: str) -> None:
    task = load_games()[0]
    text = task.payload[part]
    for body in (text[: len(text) // 2], "nonsense"):
        with pytest.raises(InvalidData, match="cannot be played"):
            TextGameWorld().start(replace(task, payload={**task.payload, part: body}))


RUN = """
name = "houses"
world = "textgame"
arms = ["none", "checked_top1", "no_persistence"]
workers = 0
tasks = {loader = "games", source = 2, heldout = 1}
agent = {attempts = 12, max_tokens = 20}
memory = {from_model = 0, partial = true, embedder = "hash:64", rollout = 3, policy = "expert", need = 0}
"""


@needs_engine
def test_an_experiment_as_a_file_says_it(tmp_path: Path) -> None:
    """Lessons from two houses; the player looks around first, and does what lessons say."""
    (tmp_path / "houses.toml").write_text(RUN)

    def reply(messages: Any) -> str:
        lesson = messages[1].content.partition("Right: ")[2].split("\n")[0]
        can = messages[-1].content.partition("You can: ")[2].partition(".\n")[0].split(", ")
        return lesson if lesson in can else sorted(can)[len(messages) % len(can)]

    plan = file_plan(tmp_path / "houses.toml", "scripted", tmp_path / "run", {})
    tasks, _ = plan.tasks(tmp_path)
    results = plan.play(ScriptedModel(reply), tasks, tmp_path / "run", lambda stage, done, total: None)
    (built,) = results.construction
    assert built.source_tasks == 2 and built.reasons["admitted"] > 0
    assert not {"replay_differs", "not_completed"} & set(built.reasons)
    assert [arm.solved.whole for arm in results.arms] == [1, 1, 1]


@needs_engine
def test_a_story_of_textworld(shared_data: Path) -> None:
    (task,), _ = load_textworld(shared_data / "textworld")
    world = TextGameWorld()
    assert len(won_by_its_plan(world, task).path) == 12
    with world.start(task) as state:
        assert world.observe(state).startswith("Welcome to TextWorld! Here is your task for today.")
        for command in ("save", "restart", "quit", "look then quit", "look. quit", "tw-trace-actions", "xyzzy"):
            assert world.act(state, command).signals[0].kind == "blocked", command
        assert not [path for path in Path().iterdir() if path.suffix in (".qzl", ".sav")]
    wander(world, task, random.Random(1), 10)
    assert check_world(world, [task], actions=["open chest drawer", "go east", "close chest drawer"]) == []


@pytest.fixture(scope="module")
def alfworld(shared_data: Path) -> Iterator[list[Task]]:
    tasks, report = load_alfworld(shared_data / "alfworld_games" / "alfworld_eval_games.tar.xz")
    assert (report.read, report.left_out) == (474, {})
    yield tasks


def test_alfworld_is_dealt_out_by_room(alfworld: list[Task]) -> None:
    check_splits(alfworld)
    counts = Counter(task.split for task in alfworld)
    assert counts["heldout"] == 134 and counts["source"] > 4 * counts["train"] > 0
    assert {task.group for task in alfworld if task.split == "heldout"} == {"room 10", "room 219", "room 308", "room 424"}
    facts = [told(task.prompt) for task in alfworld]
    assert Counter(one["kind"] for one in facts) == {"put": 105, "clean": 95, "two": 86, "cool": 74, "heat": 64, "look": 50}
    for task, one in zip(alfworld, facts, strict=True):  # the name of the folder was not read, and agrees
        _, thing, _, place, _ = task.id.split("/")[1].lower().split("-")
        assert (one["object"], one["place"]) == (thing, "desklamp" if one["kind"] == "look" else place)


@needs_engine
def test_a_game_of_alfworld(alfworld: list[Task]) -> None:
    world = TextGameWorld()
    task = next(task for task in alfworld if task.split == "heldout" and told(task.prompt)["kind"] == "put")
    won_by_its_plan(world, task)
    wander(world, task, random.Random(2), 8)
