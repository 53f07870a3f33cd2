"""The workspace world: patches to a real repository, judged by its own tests, whatever the patch tries."""

import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.cli import main
from mulligan.errors import InvalidData, UsageError
from mulligan.records import Task, Verdict
from mulligan.store import Store
from mulligan.tasks.sample import load_shelves
from mulligan.tasks.workspaces import load_workspaces
from mulligan.worlds import workspace, workspace_edits
from mulligan.worlds.conformance import check_world
from mulligan.worlds.workspace import WorkspaceWorld
from mulligan.worlds.workspace_check import PASSES, Run, compare, read_report, shell
from mulligan.worlds.workspace_files import PROTECTED, Refused, Source, clean, discard, git, new_repository, patched, pristine
from mulligan.write.proposals import is_local

walled = pytest.mark.usefixtures("walled")
slow_check = pytest.mark.timeout(90)  # a few runs of pytest, on a busy machine

FILES = {
    "prices.py": (
        "def total(prices, discount=0):\n    return sum(prices) * (1 + discount / 100)\n\n\ndef cheap(price):\n    return price < 10\n"
    ),
    "tests/test_prices.py": (
        "from prices import cheap, total\n\n\ndef test_total():\n    assert total([10, 20], 10) == 27\n\n\n"
        "def test_plain():\n    assert total([1, 2]) == 3\n\n\ndef test_cheap():\n    assert cheap(9) and not cheap(10)\n"
    ),
}


def new_files(files: dict[str, str]) -> str:
    """A patch that makes files."""
    parts = []
    for path, text in files.items():
        lines = text.splitlines()
        parts.append(f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n")
        parts += [f"+{line}\n" for line in lines]
    return "".join(parts)


def change(path: str, old: str, new: str, before: str = "", line: int = 1) -> str:
    """A patch that exchanges one line."""
    context = [before] if before else []
    added = [f"+{one}" for one in new.split("\n")]
    body = [*(f" {c}" for c in context), f"-{old}", *added]
    sizes = len(context) + 1, len(context) + len(added)
    return f"--- a/{path}\n+++ b/{path}\n@@ -{line},{sizes[0]} +{line},{sizes[1]} @@\n" + "\n".join(body) + "\n"


SIGN = ("prices.py", "    return sum(prices) * (1 + discount / 100)", "    return sum(prices) * (1 - discount / 100)")
RIGHT = change(*SIGN, before="def total(prices, discount=0):")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("workspace") / "shop"
    new_repository(made, new_files(FILES))
    return made


def task_of(repository: Path, **payload: object) -> Task:
    told = {"repository": str(repository), "commit": "HEAD", "check": "pytest -q", **payload}
    return Task(id="t", domain="workspace", benchmark="b", group="g", split="source", prompt="The discount is added.", payload=told)


def judged(task: Task, patch: str, world: WorkspaceWorld | None = None) -> Verdict:
    world = world or WorkspaceWorld(repeats=1)
    with world.start(task) as state:
        return world.act(state, patch)


# ---- verdicts of real runs ----


@walled
@slow_check
def test_a_right_patch_is_solved_and_the_repository_is_left_alone(repository: Path) -> None:
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    found = judged(task_of(repository), f"Here it is:\n```diff\n{RIGHT}```", WorkspaceWorld())
    assert (found.completed, found.solved, found.utility, found.done) == (True, True, Fraction(1), True)
    assert found.feedback == "3 of 3 tests pass."
    assert found.signals == ()
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


@walled
@slow_check
def test_a_wrong_patch_is_told_with_test_values_and_place(repository: Path) -> None:
    wrong = change(SIGN[0], SIGN[1], "    return sum(prices) * (1 - discount / 10)", before="def total(prices, discount=0):")
    found = judged(task_of(repository), wrong)
    assert (found.completed, found.solved, found.utility) == (True, False, Fraction(0))
    (signal,) = found.signals
    assert (signal.kind, signal.where) == ("assertion", "tests/test_prices.py:5")
    assert signal.what.startswith("tests.test_prices::test_total: assert 0.0 == 27")
    assert found.feedback.startswith("2 of 3 tests pass.\nassertion (tests/test_prices.py:5): ")


@walled
@slow_check
def test_a_patch_that_breaks_another_test_loses_by_it(repository: Path) -> None:
    both = RIGHT + "@@ -6 +6 @@\n-    return price < 10\n+    return price <= 10\n"
    found = judged(task_of(repository), both)
    assert (found.solved, found.utility) == (False, Fraction(1, 2))
    assert "test_cheap" in found.signals[0].what


CHEATS = {
    "a conftest that sets the exit status": new_files(
        {"conftest.py": "import pytest\n\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0"}
    ),
    "a conftest below that passes every test": new_files(
        {"tests/conftest.py": "import pytest\n\n@pytest.hookimpl\ndef pytest_pyfunc_call(pyfuncitem):\n    return True"}
    ),
    "leaves when it is loaded": change(
        "prices.py", "def total(prices, discount=0):", "import sys; sys.exit(0)\ndef total(prices, discount=0):"
    ),
    "leaves hard when it is loaded": change(
        "prices.py", "def total(prices, discount=0):", "import os; os._exit(0)\ndef total(prices, discount=0):"
    ),
    "edits the test": change(
        "tests/test_prices.py", "    assert total([10, 20], 10) == 27", "    assert True", before="def test_total():", line=4
    ),
    "deletes the test": (
        "diff --git a/tests/test_prices.py b/tests/test_prices.py\ndeleted file mode 100644\n--- a/tests/test_prices.py\n+++ /dev/null\n"
        "@@ -1,13 +0,0 @@\n" + "".join(f"-{line}\n" for line in FILES["tests/test_prices.py"].splitlines())
    ),
    "moves the test away": "diff --git a/tests/test_prices.py b/tests/prices.txt\nsimilarity index 100%\nrename from tests/test_prices.py\n"
    "rename to tests/prices.txt\n",
    "a setting that leaves the test out": new_files({"pytest.ini": "[pytest]\naddopts = -k plain"}),
    "a setting in pyproject.toml": new_files({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k plain'"}),
    "a module that is loaded at every start": new_files({"sitecustomize.py": "import builtins, os\nos._exit(0)"}),
    "a report of its own": change(
        "prices.py",
        "def total(prices, discount=0):",
        "import glob, sys\nfor word in sys.argv:\n    if 'junitxml' in word:\n        open(word.split('=')[1], 'w').write('<testsuite/>')\n"
        "def total(prices, discount=0):",
    ),
}


@walled
@slow_check
@pytest.mark.parametrize("name", CHEATS)
def test_no_patch_cheats(repository: Path, name: str) -> None:
    found = judged(task_of(repository), CHEATS[name])
    assert found.completed
    assert not found.solved
    assert found.utility < 1
    assert found.signals
    if any(word in name for word in ("conftest", "setting", "every start", " test")):
        assert found.signals[0].kind == "protected"


@walled
@slow_check
def test_what_takes_too_long_is_unknown(repository: Path) -> None:
    loop = change("prices.py", "def total(prices, discount=0):", "while True: pass\ndef total(prices, discount=0):")
    world = WorkspaceWorld(repeats=1)
    task = task_of(repository)
    world.before(workspace.asked_of(task))
    hasty = WorkspaceWorld(repeats=1, limits=replace(world.limits, wall_s=4.0))
    found = judged(task, loop, hasty)
    assert not found.completed
    assert "did not end within 4 s" in found.feedback


@walled
@slow_check
def test_a_check_of_another_kind_is_judged_by_its_status(repository: Path) -> None:
    check = "python3 -I -S -c \"import sys; sys.exit('1 -' not in open('prices.py').read())\""
    task = task_of(repository, check=check)
    right, wrong = judged(task, RIGHT), judged(task, change("prices.py", "    return price < 10", "    return price <= 10", line=6))
    assert (right.solved, right.utility, wrong.solved, wrong.utility) == (True, 1, False, 0)
    assert right.evaluator.endswith("/status")
    assert "The check ended with status 1." in wrong.feedback


@walled
@slow_check
def test_a_check_that_cannot_be_run_or_passes_already_gives_no_verdict(repository: Path) -> None:
    for check, why in (("no-such-runner --all", "cannot be run here"), ("true", "passes without the patch")):
        found = judged(task_of(repository, check=check), RIGHT)
        assert not found.completed
        assert why in found.feedback


def test_a_patch_that_does_not_apply_is_a_completed_failure_and_nothing_is_run(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "run", None)
    for patch in ("", "no patch", "\0", "--- a/prices.py\n+++ b/prices.py\n@@ -1,1 +1,1 @@\n-nothing like it\n+x\n", "é" * 1_000_000):
        found = judged(task_of(repository), patch)
        assert (found.completed, found.utility, found.signals[0].kind) == (True, 0, "syntax")


def test_runs_that_differ_are_unknown(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter(["failed", "failed", "passed", "failed"])  # twice without the patch, twice with it
    monkeypatch.setattr(workspace, "run", lambda *given: Run(status=1, outcomes={"m::t": next(outcomes)}))  # type: ignore[dict-item]
    found = judged(task_of(repository, report="flaky.xml"), RIGHT, WorkspaceWorld())
    assert not found.completed
    assert "not the same each time it is run: m::t" in found.feedback


# ---- comparisons and reports ----


def ran(status: int = 1, **outcomes: str) -> Run:
    return Run(status=status, outcomes={f"m::{name}": outcome for name, outcome in outcomes.items()})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("before", "after", "utility", "solved"),
    [
        (ran(a="failed", b="passed"), ran(0, a="passed", b="passed"), Fraction(1), True),
        (ran(a="failed", b="failed", c="passed"), ran(a="passed", b="failed", c="passed"), Fraction(1, 2), False),
        (ran(a="failed", b="passed", c="passed"), ran(a="passed", b="failed", c="passed"), Fraction(1, 2), False),
        (ran(a="failed", b="passed"), ran(0, a="passed"), Fraction(0), False),  # a test that is gone is not kept
        (ran(a="failed"), ran(0, a="skipped"), Fraction(0), False),
        (ran(a="failed"), ran(3, a="passed"), Fraction(1), False),  # the runner itself failed
        (ran(a="failed"), ran(a="passed", new="failed"), Fraction(1), False),
        (Run(status=2, outcomes={"m": "error"}), ran(0, a="passed", b="passed"), Fraction(1), True),  # the module loads now
        (Run(status=2, outcomes={"m": "error"}), ran(1, a="passed", b="failed"), Fraction(1, 2), False),
        (Run(status=2, outcomes={"m": "error"}), Run(status=5), Fraction(0), False),
        (ran(a="failed"), Run(status=0, fault="no report"), Fraction(0), False),
        (Run(status=1, by_name=False), Run(status=0, by_name=False), Fraction(1), True),
        (Run(status=1, by_name=False), Run(status=2, by_name=False), Fraction(0), False),
    ],
)
def test_a_patch_is_compared_with_none(before: Run, after: Run, utility: Fraction, solved: bool) -> None:
    found = compare([before, before], [after, after])
    assert (found.unknown, found.utility, found.solved) == ("", utility, solved)


def test_named_tests_decide_alone_and_what_passed_must_stay() -> None:
    before = ran(a="failed", b="failed", c="passed")
    assert compare([before], [ran(a="passed", b="failed", c="passed")], ["m::a"]).solved
    assert not compare([before], [ran(a="passed", b="passed", c="failed")], ["m::a"]).solved
    assert compare([ran(a="passed", b="failed")], [ran(0, a="passed", b="passed")], ["m::a"]).unknown == PASSES


names = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["passed", "failed", "error", "skipped"]), max_size=5)


@given(names, names, st.integers(0, 5))
def test_utility_is_a_share_and_solved_means_one(before: dict[str, str], after: dict[str, str], status: int) -> None:
    found = compare([ran(1, **before)], [ran(status, **after)])
    assert 0 <= found.utility <= 1
    assert not found.solved or (found.utility == 1 and status == 0)
    assert not found.solved or not found.unknown


def test_a_report_is_read() -> None:
    body = (
        b'<testsuites><testsuite><testcase classname="a" name="t1"/><testcase classname="a" name="t2"><failure message="assert 1 == 2">'
        b'x.py:3: in f\ny.py:7: AssertionError</failure></testcase><testcase classname="" name="b"><error message="boom"/></testcase>'
        b'<testcase classname="a" name="t3"><skipped/></testcase><testcase classname="a" name="t1"><error message="on leaving"/></testcase>'
        b"</testsuite></testsuites>"
    )
    outcomes, failing = read_report(body)
    assert outcomes == {"a::t1": "error", "a::t2": "failed", "b": "error", "a::t3": "skipped"}
    assert (failing["a::t2"].message, failing["a::t2"].where) == ("assert 1 == 2", "y.py:7")


@pytest.mark.parametrize("body", [b"", b"<", b"plain", b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', b"<a>" * 200_000, b"\xff\xfe<a/>"])
def test_a_damaged_report_is_no_report(body: bytes) -> None:
    with pytest.raises(ValueError):  # in the parser's own words
        read_report(body)


# ---- commands ----


def test_pytest_is_told_to_write_a_report_and_others_are_left_alone(tmp_path: Path) -> None:
    for check in ("pytest -q", "python -m pytest tests", "/usr/bin/pytest"):
        how = shell(check, str(tmp_path))
        assert how.report.endswith(".xml")
        assert f"--junitxml={how.report}" in how.argv
    assert shell("make test", str(tmp_path)).argv == ("make", "test")
    assert shell("npm test && true", str(tmp_path), "out.xml") == (shell("npm test && true", str(tmp_path), "out.xml"))
    assert shell("npm test && true", str(tmp_path), "out.xml").argv[:2] == ("sh", "-c")
    for wrong in ("", "   ", "pytest 'open"):
        with pytest.raises(UsageError, match="the check"):
            shell(wrong, str(tmp_path))


def test_a_program_of_the_repositorys_own_environment_is_found_with_its_interpreter(tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "pytest"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    how = shell(".venv/bin/pytest -q", str(tmp_path))
    assert how.argv[0] == str(program)
    assert how.readable == (tmp_path / ".venv", Path("/opt/python"))


# ---- files ----


def test_uncommitted_changes_are_where_a_task_begins(repository: Path) -> None:
    start = pristine(Source(str(repository), "HEAD", RIGHT), PROTECTED)
    assert "1 - discount" in (start.folder / "prices.py").read_text()
    assert start.protected == {"tests/test_prices.py"}
    with pytest.raises(UsageError, match="do not apply"):
        pristine(Source(str(repository), "HEAD", "nothing"), PROTECTED)


@pytest.mark.parametrize(
    ("repository_name", "commit", "message"),
    [("shop", "no-such-commit", "rev-parse"), ("shop", "--help", "rev-parse"), ("missing", "HEAD", "no folder"), (".", "HEAD", "git")],
)
def test_what_is_not_there_is_one_clear_error(repository: Path, repository_name: str, commit: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        WorkspaceWorld().start(task_of(repository.parent / repository_name, commit=commit))


OUTSIDE = {
    "above": new_files({"../escaped.py": "x"}),
    "absolute": new_files({"/tmp/escaped-mulligan.py": "x"}),
    "git's own": new_files({".git/hooks/pre-commit": "x"}),
    "a link": new_files({"way": "/etc/passwd"}).replace("100644", "120000"),
    "a submodule": new_files({"sub": "Subproject commit 1"}).replace("100644", "160000"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_patch_writes_inside_its_copy_alone(repository: Path, name: str) -> None:
    start = pristine(Source(str(repository), "HEAD"), PROTECTED)
    with pytest.raises(Refused):
        patched(start, OUTSIDE[name], PROTECTED)
    assert not Path("/tmp/escaped-mulligan.py").exists()


def test_a_patch_with_new_files_or_wrong_counts_is_applied(repository: Path) -> None:
    start = pristine(Source(str(repository), "HEAD"), PROTECTED)
    for patch, path in (
        (RIGHT, "prices.py"),
        (new_files({"more/new.py": "1 - discount"}), "more/new.py"),
        (RIGHT.replace(",2 @@", ",9 @@"), "prices.py"),
    ):
        copy, changed = patched(start, patch, PROTECTED)
        assert changed == []
        assert "1 - discount" in (copy / path).read_text()
        discard(copy)


def test_a_patch_is_found_in_a_reply() -> None:
    assert clean(f"I think:\n\n{RIGHT}") == RIGHT
    assert clean(f"```diff\n{RIGHT}```\nDone.".replace("\n", "\r\n")) == RIGHT
    assert clean("nothing") == ""


# ---- operators ----


def test_a_patch_loses_one_of_its_changes_and_is_otherwise_as_it_was_written(repository: Path) -> None:
    both = RIGHT + "@@ -5,2 +5,2 @@\n def cheap(price):\n-    return price < 10\n+    return price <= 10\n"
    start = pristine(Source(str(repository), "HEAD"), PROTECTED)
    texts = []
    for made, _ in workspace_edits._without_one(both):
        assert is_local(both, made, WorkspaceWorld().tokens)
        copy, _ = patched(start, made, PROTECTED)
        texts.append((copy / "prices.py").read_text())
        discard(copy)
    assert [("1 - discount" in text, "<= 10" in text) for text in texts] == [(False, True), (True, False)]
    assert list(workspace_edits._without_one(RIGHT)) == []


@walled
@slow_check
def test_operators_mend_a_patch_and_put_one_in_its_place(repository: Path) -> None:
    world = WorkspaceWorld(repeats=1)
    near = change("prices.py", "    return price < 10", "    return price > 10", before="def cheap(price):", line=5)
    task = task_of(
        repository, changes=change("prices.py", "    return price < 10", "    return price == 10", before="def cheap(price):", line=5) + ""
    )
    task = task_of(repository, changes=RIGHT + "@@ -5,2 +5,2 @@\n def cheap(price):\n-    return price < 10\n+    return price == 10\n")
    near = near.replace("-    return price < 10", "-    return price == 10")
    with world.start(task) as state:
        verdict = world.act(state, near)
        assert not verdict.solved
        first = next(iter(world.edits(state, near, verdict)))
        assert first.proposer == "op:comparison"
        assert is_local(near, first.action, world.tokens)
        assert world.act(state, first.action).solved
        lost = near.replace("def cheap(price):", "def  cheap (price) :").replace("> 10", "< 10")
        verdict = world.act(state, lost)
        assert verdict.signals[0].kind == "syntax"
        first = next(iter(world.edits(state, lost, verdict)))
        assert first.proposer == "op:place"
        assert is_local(lost, first.action, world.tokens)
        assert world.act(state, first.action).solved


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "no patch",
        "--- a/x\n+++ b/x\n",
        "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n",
        "@@ @@\n" * 50,
        "--- a/\0\n+++ b/\0\n@@ -1 +1 @@\n-a\n+b\n",
    ],
)
def test_operators_have_nothing_to_say_to_nonsense(repository: Path, patch: str) -> None:
    world = WorkspaceWorld()
    with world.start(task_of(repository)) as state:
        assert list(world.edits(state, patch, world.act(state, patch))) == []


# ---- loading, learning, and the contract ----


def test_lines_are_loaded_with_what_the_agent_is_shown(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    line = {"prompt": "Mend it.", "repository": os.path.relpath(repository, tmp_path), "commit": "HEAD", "check": "pytest -q"}
    file.write_text(
        "\n".join(json.dumps({**line, "files": ["prices.py", "../../etc/passwd"], "prompt": text}) for text in ("One.", "Two.", "Two."))
    )
    tasks, report = load_workspaces(file, shares=(1, 0, 1), verify=False)
    assert (report.kept, report.left_out) == (2, {"duplicate": 1})
    assert {task.split for task in tasks} == {"source", "heldout"}
    assert "prices.py\n```\ndef total(" in tasks[0].context
    assert "../../etc/passwd is not there" in tasks[0].context
    assert WorkspaceWorld().facts(tasks[0])["language"] == "python"
    for wrong, message in (
        ({"check": 3}, "line 1.check must be text"),
        ({"prompt": ""}, "line 1.prompt"),
        ({"commit": "none"}, "rev-parse"),
    ):
        file.write_text(json.dumps({**line, **wrong}))
        with pytest.raises((InvalidData, UsageError), match=message):
            load_workspaces(file, verify=False)


@walled
@slow_check
def test_what_cannot_be_learnt_from_is_left_out(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    line = {"prompt": "Mend it.", "repository": str(repository), "commit": "HEAD", "check": "pytest -q", "split": "source"}
    file.write_text("\n".join(json.dumps({**line, **other}) for other in ({}, {"changes": RIGHT}, {"check": "no-such-runner"})))
    tasks, report = load_workspaces(file)
    assert report.left_out == {"passes_already": 1, "check_fails": 1}
    assert "`pytest -q` fails:\ntests.test_prices::test_total: assert 33" in tasks[0].context


@walled
@pytest.mark.timeout(240)
def test_the_sample_keeps_the_contract(tmp_path: Path) -> None:
    tasks = load_shelves(tmp_path)
    assert len(tasks) == 14
    assert load_shelves(tmp_path) == tasks
    assert check_world(WorkspaceWorld(repeats=1), tasks[:2]) == []


@walled
@slow_check
def test_lessons_are_learnt_from_a_file_of_patches(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episodes, store = tmp_path / "patches.jsonl", tmp_path / "store.db"
    wrong = change(SIGN[0], SIGN[1], "    return sum(prices) * (1 / discount / 100)", before="def total(prices, discount=0):")
    episodes.write_text(json.dumps({"task": {"prompt": "The discount is added instead of taken off."}, "actions": [wrong, RIGHT]}))
    words = ["learn", str(episodes), "--store", str(store), "--world", "workspace", "--repo", str(repository), "--check", "pytest -q"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0, capsys.readouterr()
    with Store(store) as opened:
        (stored,) = opened.records()
    assert stored.record.gain.solved
    assert "1 - discount" in stored.record.corrected
    with pytest.raises(SystemExit) as ended:
        main(["learn", str(episodes), "--store", str(store), "--world", "sql", "--repo", str(repository)])
    assert ended.value.code == 2
    assert "--world workspace" in capsys.readouterr().err


def test_git_is_not_asked_for_anything_that_runs(repository: Path, tmp_path: Path) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    git(str(repository), "config", "core.fsmonitor", f"touch {tmp_path}/monitored")
    pristine(Source(str(repository), "HEAD~0"), PROTECTED)
    assert list(tmp_path.iterdir()) == []
