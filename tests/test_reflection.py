"""Reflection on evidence: the block of every world, the gate, one retry, the guard against notes that freeze, and what a report counts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, episode, task
from mulligan import building
from mulligan.agents.evidence import MOST_CHARS, MOST_ITEMS, Item, block, evidence, names_target, refusal, request, steps
from mulligan.agents.reflexion import FROZEN, Reflexion
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import MulliganError, UsageError
from mulligan.experiment.metrics import Rate, arm_metrics
from mulligan.experiment.report_content import sections
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import AgentSettings, Experiment, TaskSettings
from mulligan.models import ScriptedModel
from mulligan.records import Refusal, Review, Signal, Verdict
from mulligan.store import Store
from test_agents import replies
from test_worlds_workspace import judged, repository, task_of  # noqa: F401  # the second is a fixture
from toy import ToyWorld, toy_tasks
from toy_run import experiment, reply

WORLD = ToyWorld()
WRONG = {  # an action that fails in each world, with something to show for it
    "code": "def wrong(*given):\n    return 'nothing'",
    "grid": "walk into the wall",
    "maths": "3 * 4 = 13\nThe answer is: 123456789",
    "proof": "intros. nonsense.",
    "sat": "1 2",
    "shop": "click[nothing]",
    "smt": "sat",
    "sql": "SELECT nothing FROM nowhere",
    "textgame": "eat the wall",
}


# ---- the block ----


@pytest.mark.parametrize("name", sorted(building.SAMPLES.keys() - {"workspace"}))  # whose sample takes a minute to make
@pytest.mark.timeout(60)
def test_every_world_gives_evidence_for_a_failed_action(name: str, tmp_path: Path) -> None:
    try:
        world = building.world(name)
        tasks = building.sample_of(name, None, tmp_path, 1)
        with world.start(tasks[0]) as state:
            verdicts = [world.act(state, WRONG[name]) for _ in range(2)]
    except MulliganError as error:  # an engine, a checker or a sandbox that is not there says what to install
        pytest.skip(str(error))
    items = evidence([attempt(WRONG[name], verdict=one) for one in verdicts])
    assert items[-1] == Item(2, "the same action as step 1")
    assert len(items) > 1 and ": " in items[0].what  # a world may have more to say of the second than there is room for
    assert block(items).startswith(f"1. step {items[0].step}: {items[0].what[:20]}")


@pytest.mark.usefixtures("walled")
@pytest.mark.timeout(60)
def test_a_repository_gives_evidence_too(repository: Path) -> None:  # noqa: F811
    items = evidence([attempt("no patch", verdict=judged(task_of(repository), "no patch"))])
    assert items and items[0].step == 1 and items[0].what.startswith("syntax")


@given(st.lists(st.tuples(st.text(max_size=5), st.lists(st.text(max_size=400), max_size=4)), max_size=12))
def test_the_block_is_capped_and_its_steps_exist(tried: list[tuple[str, list[str]]]) -> None:
    signals = [tuple(Signal(kind="error", what=what) for what in whats) for _, whats in tried]
    attempts = [
        attempt(action, verdict=Verdict(completed=True, utility=0, solved=False, feedback="", signals=said, evaluator="w/1"))  # type: ignore[arg-type]
        for (action, _), said in zip(tried, signals, strict=True)
    ]
    items = evidence(attempts)
    assert len(items) <= MOST_ITEMS and all(1 <= item.step <= len(tried) for item in items)
    assert [item.step for item in items] == sorted(item.step for item in items)
    assert len(block(items)) <= MOST_ITEMS * (MOST_CHARS + 40)


def test_the_request_has_its_parts_in_order() -> None:
    tried = [attempt("first"), attempt("second"), attempt("first")]
    items = evidence(tried)
    asked = request(task(prompt="Find the mug."), tried, items, ["look " * 100])
    places = [
        asked.index(part)
        for part in ("TASK: Find the mug.", "FAILURE EVIDENCE:\n1. step 1: missing_rows", "ACTIONS:\nstep 1: first", "NOTES")
    ]
    assert places == sorted(places) and "the same action as step 1" in asked and "look " * 70 not in asked


def test_evidence_on_a_heldout_task_holds_nothing_of_the_gold_answer(tmp_path: Path) -> None:
    pytest.importorskip("sqlglot")
    world = building.world("sql")
    heldout = next(t for t in building.sample_of("sql", None, tmp_path, 500) if t.split == "heldout")
    with world.start(heldout) as state:
        verdict = world.act(state, "SELECT 1")
    assert not verdict.solved and evidence([attempt(verdict=verdict)]) == []


# ---- the gate ----


HOUSE = "You are in a room. Your task is to: put a clean soapbar in cabinet."
ITEMS = [Item(2, "blocked: nothing happens")]
GATE: list[tuple[str, str, Refusal | None]] = [
    (HOUSE, "In step 2 I should clean the soapbar 1 before the cabinet.", None),
    (HOUSE, "Step 2 failed: the bar of soap goes to a cabinet 3 later.", None),
    (HOUSE, "At step #2 take SoapBars, then open Cabinets.", None),
    (HOUSE, "In step 2 I should clean the soapbar.", "names_no_target"),  # the place is missing
    (HOUSE, "In step 2 I should clean the soap in the cabinet.", "names_no_target"),
    (HOUSE, "I should clean the soapbar before the cabinet.", "cites_no_step"),
    (HOUSE, "In step 7 I should clean the soapbar before the cabinet.", "cites_no_step"),  # no such evidence
    (HOUSE, "", "unparseable"),
    (HOUSE, " \n", "unparseable"),
    (HOUSE, "```\nclean soapbar\n```", "unparseable"),
    (HOUSE, "step 2 soapbar cabinet " * 60, "unparseable"),
    ("how many people live in utah", "Step 2 asks cities; the people of the state are wanted.", None),
    ("how many people live in utah", "Step 2 asks the wrong table.", "names_no_target"),
    ("def add(a, b):\n    '''Sum.'''", "In step 2 add returned the first number alone.", None),
    ("p cnf 3 2\n1 2 0", "Step 2 leaves a clause open.", None),  # nothing that could be named: waived
    ("", "Step 2 was empty.", None),
]


@pytest.mark.parametrize(("line", "text", "why"), GATE)
def test_the_gate(line: str, text: str, why: Refusal | None) -> None:
    assert refusal(text, task(prompt=line), ITEMS, []) == why


def test_what_is_stored_already_is_not_new() -> None:
    text = "In step 2 I should clean the soapbar before the cabinet."
    assert refusal(text, task(prompt=HOUSE), ITEMS, ["else", text]) == "not_new"
    assert refusal(text, task(prompt=HOUSE), ITEMS, ["Look elsewhere for it."]) is None


def test_a_request_handed_back_is_not_new() -> None:
    items = [Item(1, "missing_rows: 7 of 7 wanted rows missing"), Item(1, "extra_rows: 7 of 7 returned rows unwanted")]
    line = task(prompt="what states surround kentucky")
    asked = request(line, [attempt("SELECT 1")], items, [])
    for part in (asked, asked[:90], block(items), f"{block(items)}\nSo it was."):
        assert refusal(part, line, items, [], asked) is not None
    said = "Step 1 returned kentucky itself although the states around it are wanted, so select the column with the neighbours instead.\n"
    assert refusal(said + items[0].what, line, items, [], asked) is None
    told = f"Step 1: {line.prompt}?\n{block(items)}"
    assert refusal(told, line, items, [], asked) == "not_new" and refusal(told, line, items, []) is None


def test_steps_and_targets() -> None:
    assert steps("Step 2, steps 13, step no. 4, STEP #5, in 6 steps, misstep 7 and step x") == [2, 13, 4, 5]
    assert names_target("anything", task(prompt="(assert (= x 1))")) is None
    assert names_target("the mug", task(prompt="Your task is to: put")) is None


# ---- the agent ----


def test_a_reflection_that_passes_is_kept_and_shown() -> None:
    good = "In step 1 the third word of the task was left out."
    model, seen = replies("one two", good, "one two three")
    played = Reflexion(mode="evidence").play(toy_tasks(1)[0], WORLD, model)
    assert played.solved and played.reflections == (good,)
    assert played.reviews == (Review(trial=0, kept="reflection"),)
    assert "FAILURE EVIDENCE:\n1. step 1: missing_rows at 2: three" in seen[1][-1].content
    assert f"Note on an earlier attempt: {good}" in seen[2][-1].content
    assert "reflect_evidence" in played.prompts
    assert played.usage.model_calls == 3


def test_a_refused_one_has_one_retry_that_says_why_and_then_the_evidence_stands_in() -> None:
    model, seen = replies("one two", "I was wrong.", "I was wrong again.", "one two three")
    played = Reflexion(mode="evidence").play(toy_tasks(1)[0], WORLD, model)
    assert (
        "Name the failing step by its number" in seen[2][-1].content
        and "Name the failing step by its number" not in seen[1][-1].content[-80:]
    )
    assert played.reflections == ("1. step 1: missing_rows at 2: three",)
    assert played.reviews == (Review(trial=0, kept="evidence", refused=("cites_no_step", "cites_no_step")),)
    assert "missing_rows at 2: three" in seen[3][-1].content


def test_without_evidence_nothing_is_written() -> None:
    class Silent(ToyWorld):
        def act(self, state, action):  # type: ignore[no-untyped-def]
            from dataclasses import replace

            return replace(super().act(state, action), signals=(), done=False)

    model, seen = replies("one", "two", "three")
    played = Reflexion(mode="evidence").play(toy_tasks(1)[0], Silent(), model)
    assert played.reflections == () and len(seen) == 3
    assert [review.kept for review in played.reviews] == ["nothing", "nothing"]


def test_notes_that_freeze_are_set_aside_for_one_attempt() -> None:
    class Shows:
        asked = 0

        def recall(self, *given, **named):  # type: ignore[no-untyped-def]
            from mulligan.records import Guidance, Receipt, Selection

            self.asked += 1
            receipt = Receipt(task="t", attempt=0, candidates=(), shown=(), selection=Selection(chosen=None, policy="t"))
            return Guidance(text="HINT", records=(), receipt=receipt)

    note = "In step 1 look at the task again."
    model, seen = replies(*(text for n in range(9) for text in (f"wrong {n}", note)))
    memory = Shows()
    played = Reflexion(trials=5, guard=True).play(toy_tasks(1)[0], WORLD, model, memory)  # type: ignore[arg-type]
    openings = [messages[-1].content for messages in seen[::2]]
    assert [FROZEN in text for text in openings] == [False, False, True, False, True]  # never two in a row
    assert [note in text for text in openings] == [False, True, False, True, False]
    assert ["HINT" in text for text in openings] == [True, True, False, True, False] and memory.asked == 3
    assert [review.kept for review in played.reviews] == ["set_aside", "set_aside"]
    plain, _ = replies(*(text for n in range(9) for text in (f"wrong {n}", note)))
    assert Reflexion(trials=5).play(toy_tasks(1)[0], WORLD, plain).reviews == ()


# ---- what is kept, and counted ----


def test_reviews_are_kept_and_old_episodes_keep_their_ids(tmp_path: Path) -> None:
    old, new = episode(attempt()), episode(attempt(), reviews=(Review(trial=0, kept="nothing", refused=("not_new",)),))
    assert old.id != new.id and old.id == "epi_" + old.id[4:]
    with Store(tmp_path / "s.db") as store:
        keys = [store.add_episode(old), store.add_episode(new)]
        assert [store.episode(key) for key in keys] == [old, new] and keys == [old.id, new.id]


def test_a_report_counts_notes() -> None:
    line = "how many people live in utah"
    played = {
        "a": episode(
            attempt(),
            attempt(),
            task=task(id="a", prompt=line),
            reflections=("Step 1: the people of utah.", "Step 1: the people of utah."),
            reviews=(
                Review(trial=0, kept="reflection", refused=("not_new",)),
                Review(trial=1, kept="evidence", refused=("not_new", "cites_no_step")),
                Review(trial=1, kept="set_aside"),
            ),
        ),
        "b": episode(attempt(), task=task(id="b", prompt=line), reflections=("Nothing.",)),
        "c": episode(attempt(), task=task(id="c")),
    }
    found = arm_metrics("x", played, played).notes
    assert (found.tasks, found.notes, found.evidence, found.set_aside, found.rrr) == (2, 3, 1, 1, 0.5)
    assert found.refused == {"cites_no_step": 1, "not_new": 2}
    assert (found.named, found.stepped, found.frozen) == (Rate(part=2, whole=3), Rate(part=2, whole=3), Rate(part=1, whole=1))


def run_toy(settings: Experiment, folder: Path) -> Results:
    tasks = [*toy_tasks(6), *toy_tasks(6, "heldout")]
    parts = Parts(tasks=tasks, world=WORLD, model=ScriptedModel(reply), embedder=HashingEmbedder(64))
    return run(settings, parts, folder, lambda stage, done, total: None)


def test_arms_of_reflection_run_beside_none(tmp_path: Path) -> None:
    settings = experiment(
        arms=("none", "reflexion_self", "reflexion_evidence"), tasks=TaskSettings(loader="toy", told=True), agent=AgentSettings(attempts=4)
    )
    found = run_toy(settings, tmp_path)
    own, read = found.arm("reflexion_self").notes, found.arm("reflexion_evidence").notes
    assert own.notes > 0 and own.evidence == 0 and own.stepped.part == 0
    assert read.evidence > 0 and read.stepped.part == read.notes  # evidence names its steps
    tables = [table for section in sections(found) for table in section.tables if table.title == "Notes between attempts"]
    assert [row[0].text for row in tables[0].rows] == ["reflexion_self", "reflexion_evidence"]
    with Store(tmp_path / "run.db", frozen=True) as store:
        played = store.episodes(label="none")
        assert {e.task.split for e in played} == {"train"} and any(a.verdict.signals for e in played for a in e.attempts)


def test_told_tasks_may_not_be_remembered(tmp_path: Path) -> None:
    settings = experiment(arms=("none", "checked_top1", "no_persistence"), tasks=TaskSettings(loader="toy", told=True))
    with pytest.raises(UsageError, match="leave out checked_top1, no_persistence"):
        run_toy(settings, tmp_path)
