"""The audit: repetition with its convention, grounding, logs of every format and every damage, figures, labels run again, the page."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import correlation
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, episode, verdict
from mulligan.audit import grounding, measures
from mulligan.audit.logs import Case, Log, read_log
from mulligan.audit.measures import Audit, audit
from mulligan.audit.page import page
from mulligan.audit.recheck import recheck
from mulligan.audit.repetition import ALIKE, embedded_rate, is_frozen, repeats, repetition_rate, similarity
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData, UsageError
from mulligan.store import Store
from test_cli import Call, call  # noqa: F401  # a fixture

REFLEXION = "reflexion"
PLANS = [
    "I will look for the soap in the cabinet first.",
    "I will look for the soap in the drawer first.",
    "The towel is what I should fetch.",
]


# ---- repetition ----


def test_the_convention_is_pinned() -> None:
    later, earlier = "tide", "diet"
    assert (similarity(later, earlier), similarity(earlier, later)) == (0.25, 0.5)  # not symmetric
    long = "abc " * 100
    assert similarity(f"x{long}", long) == 0 and not repeats(f"x{long}", [long])  # autojunk: every letter is a popular one
    assert repetition_rate([]) == repetition_rate(["a"]) == 0
    assert repetition_rate(["a", "a"]) == 1 and is_frozen(["a", "a"])
    assert repetition_rate(["a", "b", "a"]) == 0.5 and is_frozen(["a", "b", "a"])  # any earlier one counts
    assert not is_frozen(["a", "b", "a", "c", "d"])


@given(st.lists(st.text("ab \n✓", max_size=12), max_size=6))
def test_a_rate_is_a_share_of_all_but_the_first(texts: list[str]) -> None:
    rate = repetition_rate(texts)
    assert 0 <= rate <= 1
    assert rate * max(1, len(texts) - 1) == pytest.approx(sum(repeats(text, texts[:n]) for n, text in enumerate(texts)))
    assert repetition_rate([*texts, *texts[-1:]]) >= rate or not texts


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_bound_hides_no_repetition(later: str, earlier: str) -> None:
    assert repeats(later, [earlier]) == (similarity(later, earlier) >= ALIKE)


def test_a_megabyte_is_compared_within_a_bound() -> None:
    assert repeats("no " * 400_000, ["no " * 400_000])


def test_vectors_find_what_letters_do_not() -> None:
    texts = ["look in the cabinet first", "first look in the cabinet"]
    assert repetition_rate(texts) == 0 and embedded_rate(texts, HashingEmbedder()) == 1
    assert embedded_rate(["one"], HashingEmbedder()) == embedded_rate([], HashingEmbedder()) == 0


# ---- grounding ----


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("You are in a room. Your task is to: put a clean soapbar in cabinet.", ("soapbar", "cabinet")),
        ("Your task is to: look at alarmclock under the desklamp.", ("alarmclock", "desklamp")),
        ("find two pencil and put them in drawer.", ("pencil", "drawer")),
        ("Your task is to: put some spraybottle on toilet", ("spraybottle", "toilet")),
        ("def add_two(a: int, values: list = None) -> int:\n    '''Your task is to add.'''", ("add_two", "values")),
        ("fn histogram(test: String) -> HashMap<String, isize> {", ("histogram", "test")),
        ("Which of Jonny Craig and Pete Doherty has been in more bands?", ("Jonny Craig", "Pete Doherty")),
        ('Who wrote "A Room of One\'s Own" in London?', ("A Room of One's Own", "A Room of One's Own", "London")),
        ("how many states border it", ()),
        ("", ()),
    ],
)
def test_targets_come_from_the_task_line(line: str, found: tuple[str, ...]) -> None:
    assert grounding.targets(line) == tuple(dict.fromkeys(found))


NAMED = [
    "SoapBar",
    "soapbar 1",
    "the soap bars",
    "bar of soap",
    "Soapbars,",
    "SOAPBAR",
    "soap-bar",
    "bars of soap",
    "soap_bar",
    "ＳｏａｐＢａｒ",
]


@pytest.mark.parametrize("text", NAMED)
def test_a_name_is_found_however_it_is_written(text: str) -> None:
    assert grounding.names(f"I took {text} to the sink.", "SoapBar") and grounding.names(text, "soapbar")


@pytest.mark.parametrize("text", ["soap", "bar", "soap in a bar", "soapbarrel", "the barsoap", "", "\0", "soap. Then bar"])
def test_a_part_of_a_name_is_none(text: str) -> None:
    assert not grounding.names(text, "soapbar") or text == "soap. Then bar"


def test_grounded_is_told_from_the_entry_alone() -> None:
    line = "Your task is to: put a cool tomato in microwave."
    assert grounding.grounded("I should cool the Tomato.", line) is True
    assert grounding.grounded("I should open the microwave.", line) is False  # the place alone is not the target
    assert grounding.grounded("anything", "") is None
    assert grounding.grounded("He knew Pete Doherty.", "Which of Jonny Craig and Pete Doherty was it?") is True


# ---- logs ----


def trials(folder: Path, *outcomes: dict[str, bool], notes: dict[str, list[str]], tasks: dict[str, str] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    for number, trial in enumerate(outcomes):
        rows: list[dict[str, Any]] = [
            {
                "name": name,
                "memory": notes.get(name, [])[: number + 1],
                "is_success": done,
                **({"task": (tasks or {})[name]} if tasks else {}),
            }
            for name, done in trial.items()
        ]
        (folder / f"env_results_trial_{number}.json").write_text(json.dumps(rows))
    return folder


def test_trials_are_matched_by_name_and_sorted_by_number(tmp_path: Path) -> None:
    folder = trials(
        tmp_path / "log", *[{"b": False, "a": n > 8} if n % 2 else {"a": n > 8, "b": False} for n in range(11)], notes={"a": PLANS}
    )
    log = read_log(folder)
    assert {case.name: case.failed_trials for case in log.cases} == {"a": 9, "b": 11}
    assert log.cases[0].reflections == tuple(PLANS) and log.damaged == ()


def test_damaged_entries_are_counted_and_named(tmp_path: Path) -> None:
    folder = trials(tmp_path / "log", {"a": False}, {"a": True}, notes={"a": PLANS[:1]})
    rows = [{"name": "a", "memory": [], "is_success": True}, {"memory": []}, 3, {"name": "a", "memory": "x"}, {"name": "c", "memory": None}]
    (folder / "env_results_trial_2.json").write_text(json.dumps(rows))
    (folder / "env_results_trial_3.json").write_text("[{")
    log = read_log(folder)
    assert [case.trials for case in log.cases] == [(False, True, True), (None, None, None)]
    assert len(log.damaged) == 4 and "entry 1: wants a text under 'name'" in " ".join(log.damaged)
    for content in ("[]", "[{", "{}"):
        for place in folder.iterdir():
            place.write_text(content)
        with pytest.raises(InvalidData, match="nothing of"):
            read_log(folder)


QUESTIONS = """
########################################
BEGIN TRIAL 1
Trial summary: Correct: 1, Incorrect: 1, Halted: 1
#######################################
------------- BEGIN CORRECT AGENTS -------------

Question: Who is Ada Lovelace?
Thought 1: easy
Action 1: Finish[x]
Correct answer: x

------------- BEGIN INCORRECT AGENTS -----------

Question: Where is Zagreb?
Thought 1: Question of maps
Correct answer: there

----------- BEGIN HALTED AGENTS -----------

Question: When was Rome founded?
Correct answer: long ago

BEGIN TRIAL 2
Trial summary: Correct: 2, Incorrect: 1, Halted: 0
#######################################
------------- BEGIN CORRECT AGENTS -------------

Question: Who is Ada Lovelace?
Correct answer: x

Question: Where is Zagreb?You have attempted to answer following question before and failed. Use them.
Reflections:
- I looked up Rome
instead of Zagreb.
- I should have looked up Zagreb.
Thought 1: ...
Correct answer: there

------------- BEGIN INCORRECT AGENTS -----------

"""


def test_questions_are_read_from_one_text(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(QUESTIONS)
    log = read_log(tmp_path / "log.txt")
    assert {case.name: case.trials for case in log.cases} == {
        "Who is Ada Lovelace?": (True, True),
        "Where is Zagreb?": (False, True),
        "When was Rome founded?": (False, None),
    }
    assert log.cases[1].reflections == ("I looked up Rome\ninstead of Zagreb.", "I should have looked up Zagreb.")
    assert log.damaged == ("trial 2 says 3 agents and shows 2",)
    found = audit(log)
    assert (found.unsolved, found.untold, found.grounded, found.corrected, found.transitions) == (0, 1, 2, 1, 1)


def test_the_plain_form_and_its_faults(tmp_path: Path) -> None:
    good = {"name": "a", "task": "Your task is to: put a mug in sink.", "reflections": PLANS, "trials": [False, None, True]}
    faults = [
        {"name": "b", "target": "mug"},
        {"name": "c", "trials": [1]},
        {"trials": []},
        {"name": "d", "reflections": "x"},
        {"name": "e", "index": 3},
    ]
    lines = [json.dumps(good), "", "{", "[1]", *map(json.dumps, faults), "[" * 100_000]
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    log = read_log(tmp_path)
    assert log.cases == (Case(name="a", task=good["task"], reflections=tuple(PLANS), trials=(False, None, True)),)
    assert len(log.damaged) == 8
    assert "line 5: unknown field 'target'; known are entry_point, name" in log.damaged[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\1\2", "no log that can be audited"),
        (b"", "no log that can be audited"),
        (b'{"x"', "nothing of"),
        (b"BEGIN TRIAL 1", "nothing of"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises((UsageError, InvalidData), match=message):
        read_log(tmp_path / "x")
    with pytest.raises(UsageError, match="there is no log"):
        read_log(tmp_path / "y")
    with pytest.raises(UsageError, match="name the file to audit"):
        read_log(tmp_path)


def test_a_store_is_a_log(tmp_path: Path) -> None:
    tried = [attempt(index=n, trial=n, verdict=verdict(solved=n == 2)) for n in range(3)]
    with Store(tmp_path / "s.db") as store:
        store.add_episode(episode(*tried, reflections=tuple(PLANS[:2]), label="reflexion"))
        store.add_episode(episode(attempt(), label="react"))
    Store(tmp_path / "none.db").close()
    with pytest.raises(InvalidData, match="no play in this store wrote reflections"):
        read_log(tmp_path / "none.db")
    [case] = read_log(tmp_path / "s.db").cases
    assert (case.trials, case.reflections, case.failed_trials) == ((False, False, True), tuple(PLANS[:2]), 2)


# ---- figures ----


def made(*cases: Case) -> Log:
    return Log(path="x", format="lines", cases=cases)


def test_targets_by_position_are_refused(tmp_path: Path) -> None:
    """Tasks laid beside a log in another order make "0 of N name their target" of reflections that all name it (SPEC D4)."""
    things = ["mug", "tomato", "pencil", "apple"]
    lines = {f"env_{n}": f"Your task is to: put a clean {thing} in cabinet." for n, thing in enumerate(things)}
    notes = {f"env_{n}": [f"I will clean the {thing} at the sink."] for n, thing in enumerate(things)}
    permuted = dict(zip(lines, reversed(lines.values()), strict=True))
    assert sum(bool(grounding.grounded(notes[name][0], permuted[name])) for name in lines) == 0  # the false finding
    outcome = dict.fromkeys(lines, False)
    bare = audit(read_log(trials(tmp_path / "bare", outcome, notes=notes)))
    assert (bare.grounded, bare.ungrounded, bare.cannot_tell) == (0, 0, 4)
    told = audit(read_log(trials(tmp_path / "told", outcome, notes=notes, tasks=lines)))
    assert (told.grounded, told.ungrounded, told.cannot_tell) == (4, 0, 0)


def test_without_memory() -> None:
    frozen = ("again and again", "again and again")
    log = made(
        Case(name="sooner", reflections=frozen, trials=(False, False, True)),
        Case(name="hard", reflections=frozen, trials=(False,) * 12),
        Case(name="later", reflections=frozen, trials=(False, True)),
        Case(name="free", reflections=("a", "b"), trials=(False, True)),
        Case(name="alone", reflections=frozen, trials=(False,)),
    )
    other = made(
        Case(name="later", trials=(False, False)),
        Case(name="sooner", trials=(True,)),
        Case(name="hard", trials=(False, False)),
        Case(name="free", trials=(True,)),
    )
    beside = audit(log, without=other).without
    assert beside == measures.Without(compared=3, memory_harmful=("sooner",), task_hard=("hard",))


def test_reflections_that_say_no_plan() -> None:
    found = audit(made(Case(name="a", reflections=("It was wrong because of a loop.", "Next time I look first."), trials=(False, False))))
    assert found.symptom_only == 1


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 9)), min_size=3, max_size=20))
def test_correlations_are_those_of_the_textbook(pairs: list[tuple[float, int]]) -> None:
    one, other = [a for a, _ in pairs], [float(b) for _, b in pairs]
    for values in (one, other):  # a rank is the mean place among the sorted values
        places = sorted(values)
        wanted = [sum(n for n, v in enumerate(places, 1) if v == value) / places.count(value) for value in values]
        assert measures._ranks(np.array(values)).tolist() == pytest.approx(wanted)
    found = measures._pearson(np.array(one), np.array(other))
    if len(set(one)) > 1 and len(set(other)) > 1:
        assert found == pytest.approx(correlation(one, other), abs=6e-4)
    else:
        assert found is None


PUBLIC: list[tuple[str, dict[str, Any]]] = [
    (
        "alfworld_runs/root/reflexion_run_logs",
        {
            "environments": 134,
            "with_reflections": 50,
            "reflections": 200,
            "frozen": 16,
            "frozen_share": 0.32,
            "frozen_reflections": 121,
            "mean_rrr_frozen": 0.637,
            "failed_trials_frozen": 7.56,
            "failed_trials_fresh": 1.52,
            "spearman_rrr_trials": 0.808,
            "pearson_rrr_trials": 0.743,
            "cannot_tell": 200,
            "solved": 134,
        },
    ),
    (
        "webshop_runs/reflexion_run_logs_1",
        {"with_reflections": 67, "frozen": 55, "frozen_reflections": 218, "corrected": 2, "transitions": 200},
    ),
    ("programming_runs/root/reflexion_humaneval_py_pass_at_1", {"environments": 164, "frozen": 4}),
    ("hotpotqa_runs/root/ReAct/reflexion/100_questions_7_trials.txt", {"environments": 100, "unsolved": 46, "untold": 1}),
]


@pytest.mark.parametrize(("place", "wanted"), PUBLIC, ids=[place.split("/")[0] for place, _ in PUBLIC])
def test_the_public_logs(shared_data: Path, place: str, wanted: dict[str, Any]) -> None:
    found = audit(read_log(shared_data / REFLEXION / place))
    assert {name: getattr(found, name) for name in wanted} == wanted


# ---- labels ----


def stored(tmp_path: Path, *entries: dict[str, Any]) -> Log:
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, entries)))
    return read_log(tmp_path / "log.jsonl")


def program(name: str, solution: str, *, solved: bool, **more: str) -> dict[str, Any]:
    test = "def check(candidate):\n    assert candidate(2) == 4\n"
    prompt = "def double(x: int) -> int:\n    '''Twice x.'''\n"
    entry = {"task_id": name, "prompt": prompt, "entry_point": "double", "test": test, "solution": solution, "is_solved": solved}
    return {**entry, "reflections": [], **more}


@pytest.mark.usefixtures("walled")
def test_labels_that_do_not_hold_are_listed(tmp_path: Path) -> None:
    log = stored(
        tmp_path,
        program("right", "    return 2 * x", solved=True),
        program("whole", "def double(x: List[int]):\n    return x + x", solved=True),
        program("wrong", "    return x", solved=False),
        program("false", "    return x", solved=True),
        program("missed", "    return x * 2", solved=False),
        program("forged", "    class E:\n        __eq__ = lambda *a: True\n    return E()", solved=True),
        program("leaves", "    import os\n    os._exit(0)", solved=True),
        program("rust", "fn double() {}", solved=True, language="rs"),
    )
    found = recheck(log)
    assert (found.checked, found.agree) == (8, 3)
    assert [label.name for label in found.false_successes] == ["false", "forged", "leaves"]
    assert [label.name for label in found.missed_successes] == ["missed"]
    assert [(label.name, label.why) for label in found.cannot_tell] == [("rust", "rs is not run here")]
    assert found.false_successes[0].why == "failed: 2 Eq 4"


@pytest.mark.usefixtures("walled")
def test_labels_of_the_public_logs(shared_data: Path) -> None:
    found = recheck(read_log(shared_data / REFLEXION / "programming_runs/root/reflexion_mbpp_py"), limit=60)
    assert (found.checked, found.agree) == (60, 60)
    whole = recheck(read_log(shared_data / REFLEXION / "programming_runs/root/reflexion_humaneval_py_pass_at_1"))
    assert (whole.checked, whole.agree) == (164, 164)


# ---- what people see ----


def test_the_page_escapes_what_is_stored() -> None:
    evil = "<script>alert(1)</script>\u202e\0"
    text = page(audit(made(Case(name=evil, task=evil, reflections=(evil, evil), trials=(False, None, True)))))
    assert "<script" not in text and "\u202e" not in text and "\0" not in text
    assert text.count("&lt;script&gt;alert(1)") == 3 and "○·●" in text and "class=again" in text


def test_the_command(call: Call, tmp_path: Path, shared_data: Path) -> None:  # noqa: F811
    status, out, _ = call("audit", shared_data / REFLEXION / PUBLIC[0][0], "--html", tmp_path / "a.html")
    assert status == 0 and "16 of 50" in out and max(map(len, out.splitlines())) <= 80
    assert "frozen" in (tmp_path / "a.html").read_text()
    status, out, _ = call("audit", shared_data / REFLEXION / PUBLIC[0][0], "--json")
    assert json.loads(out)["spearman_rrr_trials"] == 0.808
    status, _, error = call("audit", tmp_path / "none")
    assert status == 2 and error.count("\n") == 1


@pytest.mark.usefixtures("walled")
def test_the_command_runs_labels_again(call: Call, tmp_path: Path) -> None:  # noqa: F811
    stored(tmp_path, program("false", "    return x", solved=True), program("right", "    return 2 * x", solved=True))
    status, out, _ = call("audit", tmp_path / "log.jsonl", "--recheck")
    assert status == 0 and "1 of 2" in out and "stored solved, is not" in out
    status, out, _ = call("audit", tmp_path / "log.jsonl", "--recheck", "--json", "--limit", 1)
    assert json.loads(out)["recheck"]["checked"] == 1
    assert call("audit", tmp_path / "log.jsonl", "--recheck", "--sandbox", "jail")[0] == 2


def test_the_figures_are_a_noun() -> None:
    found: Callable[[], Audit] = lambda: audit(made(Case(name="a")))  # noqa: E731
    assert found() == found() and found().mean_rrr is None and found().frozen_share is None
