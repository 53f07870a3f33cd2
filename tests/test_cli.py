"""The command line: exit statuses, one-line errors, --json, what is shown, and going on after Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import cli_parts
from builders import record
from islands import build
from mulligan import building
from mulligan.cli import app, main
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import UsageError
from mulligan.records import Condition
from mulligan.store import Store

HERE = Path(__file__).parent
Result = tuple[int, str, str]
Call = Callable[..., Result]
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f]")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `mulligan ARGUMENTS` in an empty folder: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: object) -> Result:
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in arguments])
        written = capsys.readouterr()
        return int(left.value.code or 0), written.out, written.err

    return run


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """An experiment on the toy world."""
    path = tmp_path / "toy.toml"
    path.write_text(cli_parts.EXPERIMENT)
    return path


@pytest.fixture(scope="session")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with records, learnt by a run on the toy world. To be read only."""
    folder = tmp_path_factory.mktemp("lessons")
    (folder / "toy.toml").write_text(cli_parts.EXPERIMENT)
    with pytest.raises(SystemExit):
        main(["run", str(folder / "toy.toml"), "--model", "python:cli_parts:model", "--out", str(folder), "--json"])
    return folder / "checked.db"


def value(result: Result) -> Any:
    """The one JSON value on standard output."""
    status, out, err = result
    assert status == 0, err
    return json.loads(out)


# The command itself.


def test_nothing_heavy_is_imported_for_help() -> None:
    heavy = "numpy pydantic rich openai sqlglot wordllama sqlite3 matplotlib"
    probe = f"import sys, mulligan.cli; print([m for m in {heavy.split()!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_command_the_commands_are_listed(call: Call) -> None:
    status, out, _ = call()
    assert status == 0
    assert call("--help")[1] == out
    for name in ("demo", "run", "learn", "recall", "doctor", "check-world"):
        assert re.search(rf"\b{name} ", out)


def test_the_version_is_told(call: Call) -> None:
    assert call("--version")[:2] == (0, "mulligan 0.1.0\n")


@pytest.mark.parametrize("name", get_command(app).commands)  # type: ignore[attr-defined]  # it is a group
def test_every_command_takes_json_and_explains_itself(call: Call, name: str) -> None:
    status, out, err = call(name, "--help")
    assert (status, err) == (0, "")
    assert "--json" in out
    assert all(len(line) <= 80 for line in out.splitlines())


# What is wrong is said in one line.

BINARY = bytes(range(256)) * 8
FILES = {
    "empty": b"",
    "binary": BINARY,
    "bad.toml": b"name = ",
    "no_tasks.toml": b'name = "x"',
    "key.toml": b'nmae = "x"\nname = "x"\ntasks.loader = "sample"',
    "arm.toml": b'name = "x"\nmodel = "m"\narms = ["chekced"]\ntasks.loader = "cli_parts:tasks"',
    "world.toml": b'name = "x"\nmodel = "python:cli_parts:model"\nworld = "chess"\ntasks.loader = "cli_parts:tasks"',
    "loader.toml": b'name = "x"\nmodel = "python:cli_parts:model"\ntasks.loader = "csv"',
    "selector.toml": b'name = "x"\nmodel = "m"\ntasks.loader = "cli_parts:tasks"\nmemory.ablation_selector = "best"',
    "retention.toml": b'name = "x"\nmodel = "python:cli_parts:model"\ntasks.loader = "cli_parts:tasks"\nmemory.retention = "fifo"',
    "embedder.toml": b'name = "x"\nmodel = "python:cli_parts:model"\nworld = "grid"\ntasks.loader = "grid"\nmemory.embedder = "bert"',
    "option.toml": b'name = "x"\nmodel = "m"\n[tasks]\nloader = "cli_parts:questions"\noptions.fiel = "a"',
    "type.toml": b'name = "x"\nmodel = "m"\n[tasks]\nloader = "cli_parts:questions"\noptions = {file = "empty", split_by = "query"}',
    "data.toml": b'name = "x"\nmodel = "m"\n[tasks]\nloader = "cli_parts:questions"\noptions.file = "~/geo.json"',
    "lacking.toml": b'name = "x"\nmodel = "m"\ntasks.loader = "cli_parts:questions"',
    "name.toml": b'name = "../../etc"\nmodel = "m"\ntasks.loader = "grid"',
    "none.toml": b'name = "x"\ntasks.loader = "grid"',
    "report.json": b"{}",
}
WRONG = [
    ("nope", 2, "No such command 'nope'"),
    ("run", 2, "EXPERIMENT.toml"),
    ("run toy.toml --nope", 2, "--nope"),
    ("run missing.toml", 2, "no experiment file missing.toml"),
    ("run folder", 1, "folder"),
    ("run empty", 2, "name"),
    ("run binary", 2, "no TOML file"),
    ("run bad.toml", 2, "no TOML file"),
    ("run no_tasks.toml", 2, "tasks"),
    ("run key.toml", 2, "nmae"),
    ("run arm.toml", 2, "no arm 'chekced': choose among none, best_of_n"),
    ("run world.toml", 2, "no world 'chess': choose code or grid or maths or proof or sat or shop or smt or sql or textgame"),
    ("run loader.toml", 2, "no loader of tasks 'csv': choose alfworld or bigcodebench or cnfgen"),
    ("run selector.toml", 2, "no selector 'best'"),
    ("run retention.toml", 2, "no retention strategy 'fifo'"),
    ("run embedder.toml", 2, "bert"),
    ("run option.toml", 2, "takes file, split_by, not 'fiel'"),
    ("run type.toml", 2, "tasks.options.split_by"),
    ("run data.toml", 2, "there is nothing at ~/geo.json (~ and $NAMES are taken as they stand); docs/data.md"),
    ("run lacking.toml", 2, "wants file"),
    ("run name.toml", 2, "name of an experiment"),
    ("run none.toml", 2, "no model: give --model"),
    ("run none.toml --model python:cli_parts:nothing", 2, "cli_parts"),
    ("run none.toml --model python:no.such:thing", 2, "no.such"),
    ("run none.toml --model gguf:missing.gguf", 2, "missing.gguf"),
    ("run none.toml --model replay:binary", 2, "binary"),
    ("record missing.toml --model m", 2, "no experiment file"),
    ("record", 2, "no model"),
    ("report missing", 2, "no report at missing/report.json"),
    ("report report.json", 2, "report.json"),
    ("learn missing.jsonl", 2, "missing.jsonl"),
    ("learn folder", 2, "folder"),
    ("learn empty", 2, "holds no episodes"),
    ("learn binary --world chess", 2, "no world 'chess'"),
    ("recall text", 1, "there is no store at mulligan.db"),
    ("recall text --store binary", 1, "no healthy store"),
    ("list", 1, "there is no store at mulligan.db; build one with `mulligan learn`"),
    ("list --store empty", 1, "mulligan doctor --recover empty"),
    ("list --store folder", 1, "folder"),
    ("list --limit 0", 2, "--limit"),
    ("list --status old", 2, "--status"),
    ("show abc", 1, "no store"),
    ("export --store binary --to x", 1, "no healthy store"),
    ("import missing.jsonl", 1, "missing.jsonl"),
    ("import folder", 1, "folder"),
    ("import empty", 2, "line 1 of the export"),
    ("import binary", 2, "line 1 of the export"),
    ("reembed --embedder bert", 2, "bert"),
    ("reembed --embedder hash:64", 1, "there is no store"),
    ("retire abc", 1, "there is no store"),
    ("forget --scope a --yes", 1, "there is no store"),
    ("doctor --recover missing.db", 1, "missing.db"),
    ("doctor --recover binary", 1, "binary"),
    ("check-world chess", 2, "no world 'chess'"),
    ("check-world toy:ToyWorld", 2, "--tasks"),
    ("check-world sql --sandbox process", 2, "the world sql runs no code"),
    ("check-world code --sandbox chroot", 2, "no sandbox 'chroot': choose bubblewrap or process"),
]


@pytest.mark.parametrize(("arguments", "status", "says"), WRONG, ids=[w[0] for w in WRONG])
def test_what_is_wrong_is_said_in_one_line(call: Call, tmp_path: Path, arguments: str, status: int, says: str) -> None:
    (tmp_path / "folder").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    for extra in ([], ["--json"]):
        found, out, err = call(*arguments.split(), *extra)
        assert (found, out) == (status, "")
        assert says in err
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert not STEERING.search(err)
    assert not (tmp_path / "mulligan.db").exists() or arguments.startswith("import")
    assert not (tmp_path / "runs").exists()


def test_debug_shows_where_an_error_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--debug", "run", "missing.toml"], ["run", "missing.toml", "--debug"]):
        with pytest.raises(UsageError):
            main(arguments)
    monkeypatch.setenv("MULLIGAN_DEBUG", "1")
    with pytest.raises(UsageError):
        main(["run", "missing.toml"])


def test_a_fault_of_ours_is_one_line_too(call: Call, toy: Path) -> None:
    toy.write_text(cli_parts.EXPERIMENT.replace("toy:ToyWorld", "cli_parts:FaultyWorld"))
    status, out, err = call("run", toy, "--model", "python:cli_parts:model", "--json")
    assert (status, out) == (1, "")
    assert "error: ZeroDivisionError: a fault in a world; this is a fault of Mulligan: --debug shows where\n" in err
    assert "Traceback" not in err


# Experiments.


def test_a_run_shows_arms_a_finding_and_where_the_report_lies(call: Call, toy: Path) -> None:
    status, out, err = call("run", toy, "--model", "python:cli_parts:model")
    assert status == 0
    assert re.search(r"^checked_top1 +\d+/6", out, re.MULTILINE)
    assert "Without" in out or "without" in out
    assert "report: runs/toy/report.html" in out
    assert "source: 6 done" in err
    assert not STEERING.search(out + err)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert call("report", "runs/toy")[1] in out
    assert call("report", "runs/toy/report.json")[0] == 0


def test_a_run_prints_one_json_value(call: Call, toy: Path) -> None:
    found = value(call("run", toy, "--model", "python:cli_parts:model", "--json"))
    assert [arm["arm"] for arm in found["arms"]] == ["none", "checked_top1", "checked_utility"]
    assert Path(found["report"]["html"]).is_file()
    assert value(call("report", "runs/toy", "--json"))["arms"] == found["arms"]


def test_the_model_comes_from_the_call_then_the_file_then_the_environment(call: Call, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_MODEL", "python:no.such:model")
    assert "no.such" in call("run", toy)[2]
    toy.write_text('model = "python:cli_parts:model"' + cli_parts.EXPERIMENT)
    assert call("run", toy)[0] == 0
    assert "also.none" in call("run", toy, "--model", "python:also.none:model")[2]


def test_a_folder_with_another_run_is_refused_until_it_is_made_fresh(call: Call, toy: Path, tmp_path: Path) -> None:
    call("run", toy, "--model", "python:cli_parts:model", "--out", "here")
    (tmp_path / "here" / "mine.txt").write_text("keep")
    toy.write_text(cli_parts.EXPERIMENT.replace('"checked_utility"', '"random"'))
    status, _, err = call("run", toy, "--model", "python:cli_parts:model", "--out", "here")
    assert (status, "here holds a run of other settings" in err) == (2, True)
    assert call("run", toy, "--model", "python:cli_parts:model", "--out", "here", "--fresh")[0] == 0
    assert (tmp_path / "here" / "mine.txt").read_text() == "keep"


def test_what_is_recorded_can_be_played_as_the_demo(call: Call, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "demo.toml").write_text(cli_parts.EXPERIMENT)
    monkeypatch.setattr(building, "DATA", data)
    monkeypatch.setattr(building, "RECORDING", data / "recording.jsonl")
    status, out, err = call("demo")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "recording" in err
    made = value(call("record", "--model", "python:cli_parts:model", "--to", data / "recording.jsonl", "--json"))
    assert made["requests"] > 0
    assert value(call("record", toy, "--model", "python:cli_parts:model", "--to", data / "recording.jsonl", "--json")) == made
    status, out, err = call("demo")
    assert status == 0, err
    assert "recorded replies of scripted" in out
    assert "now, on this machine: queries, checks, admissions" in out
    assert "One record with its evidence" in out
    assert "admitted" in out
    live = value(call("demo", "--model", "python:cli_parts:model", "--json"))
    assert Path(live["report"]["html"]).parent != Path("runs/demo")


def test_after_ctrl_c_the_same_command_goes_on_and_pays_nothing_twice(call: Call, toy: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    setting = {**os.environ, "PYTHONPATH": str(HERE), "TOY_LOG": str(log), "TOY_DELAY": "0.03"}
    command = [sys.executable, "-m", "mulligan.cli", "run", str(toy), "--model", "python:cli_parts:logged_model", "--out", "stopped"]
    running = subprocess.Popen(command, cwd=tmp_path, env=setting, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while running.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < 6):
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=15)
    assert (running.returncode, out.count("arm ")) == (130, 0)
    assert "Traceback" not in err
    assert err.splitlines()[-2:] == [
        "stopping: work under way is finished first, so that it is kept; Ctrl-C again stops at once",
        "interrupted: what was finished is kept; run the same command again to go on",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=setting, capture_output=True, text=True, timeout=15)
    assert done.returncode == 0, done.stderr
    paid = log.read_text().splitlines()
    assert len(paid) == len(set(paid))
    assert call("run", toy, "--model", "python:cli_parts:model", "--out", "whole")[0] == 0
    assert (tmp_path / "stopped" / "report.json").read_bytes() == (tmp_path / "whole" / "report.json").read_bytes()


# Memory and the store.


def test_learning_says_what_was_tried_and_which_lines_are_bad(call: Call, tmp_path: Path) -> None:
    task = {"prompt": "say three words", "payload": {"gold": "one two three"}}
    lines = [json.dumps({"task": task, "actions": ["one two red"]}), "no json", json.dumps({"task": {}, "actions": ["a"]})]
    (tmp_path / "episodes.jsonl").write_text("\n".join(lines))
    arguments = ("learn", "episodes.jsonl", "--world", "toy:ToyWorld", "--embedder", "hash:64")
    status, out, err = call(*arguments)
    assert status == 1
    assert "3 lines: 1 read, of which 0 were known; 1 failed actions examined" in " ".join(out.split())
    assert re.search(r"^op:word +\d+ +1", out, re.MULTILINE)
    assert "line 2: no JSON" in err
    assert "line 3: its task" in err
    assert "error: 2 of 3 lines could not be used" in err
    status, out, _ = call(*arguments[:-2], "--json")  # the store knows its embedder
    again = json.loads(out)
    assert (status, again["faults"], again["records"], again["lines"][0]["known"]) == (1, 2, [], True)
    (tmp_path / "episodes.jsonl").write_text(lines[0])
    assert call(*arguments)[0] == 0
    assert call(*arguments[:-1], "hash:32")[0] == 1


def test_records_are_listed_shown_and_recalled(call: Call, lessons: Path) -> None:
    listed = value(call("list", "--store", lessons, "--json"))
    assert listed
    status, out, err = call("list", "--store", lessons, "--sort", "gain", "--limit", "1")
    assert (status, err) == (0, "")
    key = re.search(r"^([0-9a-f]{8,}) ", out, re.MULTILINE)
    assert key
    shown = value(call("show", key[1], "--store", lessons, "--json"))
    assert shown["id"].startswith(f"rec_{key[1]}")
    assert any(d["check"]["original"]["utility"] and d["check"]["changed"]["solved"] for d in shown["decisions"] if d["check"])
    told = call("show", shown["id"], "--store", lessons)[1]
    for part in (shown["id"], shown["record"]["corrected"], "admitted", "as it was", "changed", "retrieved"):
        assert part in told
    assert "no record" in call("show", "ffffffffffff", "--store", lessons)[2]
    assert "give more of the id" in call("show", "", "--store", lessons)[2]


RECALLS = [
    (("say three words number 3", "--selector", "top1"), "<checked-lessons>"),
    (("say three words number 3", "--selector", "never"), "Nothing applies: the selector 'never' shows none"),
    (("qqqq zzzz",), "Nothing applies: the nearest scores"),
    (("  ",), "Nothing applies: the text is blank"),
    (("say", "--scope", "acme"), "Nothing applies: the store holds no active record of scope acme and domain toy"),
]


@pytest.mark.parametrize(("arguments", "says"), RECALLS)
def test_recall_shows_guidance_or_says_why_not(call: Call, lessons: Path, arguments: tuple[str, ...], says: str) -> None:
    before = lessons.read_bytes()
    status, out, err = call("recall", *arguments, "--store", lessons, "--world", "toy:ToyWorld")
    assert (status, err) == (0, "")
    assert says in " ".join(out.split())
    found = value(call("recall", *arguments, "--store", lessons, "--world", "toy:ToyWorld", "--json"))
    assert bool(found["guidance"]) != bool(found["why_nothing"])
    assert lessons.read_bytes() == before


def test_recall_asks_a_model_whether_a_condition_in_words_holds(call: Call, tmp_path: Path) -> None:
    lesson = record("Which is largest?", condition=Condition(kind="judged", text="it asks for an area"))
    embedder, database = HashingEmbedder(), build(tmp_path)
    with Store(tmp_path / "mulligan.db") as store:
        (vector,) = embedder.embed([lesson.situation])
        store.add_record(lesson, vector, embedder=embedder.id)
    arguments = ("recall", "Which is largest?", "--database", database, "--json")
    assert value(call(*arguments))["why_nothing"] == "no condition of the nearest holds"
    found = value(call(*arguments, "--model", "python:cli_parts:agreeing_model"))
    assert "Applies when: it asks for an area" in found["guidance"]


def test_an_export_is_read_back_identically(call: Call, lessons: Path, tmp_path: Path) -> None:
    status, out, _ = call("export", "--store", lessons)
    assert status == 0
    assert value(call("export", "--store", lessons, "--to", "out.jsonl", "--json"))["rows"] == len(out.splitlines()) - 1
    assert (tmp_path / "out.jsonl").read_text() == out
    assert "--to" in call("export", "--store", lessons, "--json")[2]
    added = value(call("import", "out.jsonl", "--store", "copy.db", "--json"))["added"]
    assert added["records"] == len(value(call("list", "--store", "copy.db", "--status", "all", "--json")))
    assert "holds all of it already" in call("import", "out.jsonl", "--store", "copy.db")[1]
    with Store(lessons, frozen=True) as one, Store("copy.db", frozen=True) as other:
        assert one.digest() == other.digest()


def test_records_are_retired_restored_reembedded_and_forgotten(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_STORE", "mine.db")
    with Store(tmp_path / "mine.db") as store:
        for scope in ("acme/a", "acmex"):
            made = record(scope=scope)
            store.add_record(made, HashingEmbedder(64).embed([made.situation])[0], embedder="hash:64")
    key = value(call("list", "--scope", "acme/a", "--json"))[0]["id"]
    assert call("retire", key, "--reason", "wrong since May")[:2] == (0, f"{key} is retired\n")
    assert len(value(call("list", "--json"))) == 1
    assert "active → retired: wrong since May" in call("show", key)[1]
    assert value(call("restore", key, "--json")) == {"id": key, "status": "active"}
    assert value(call("reembed", "--embedder", "hash:32", "--json")) == {"vectors": 2, "embedder": "hash:32", "dim": 32}
    assert call("forget", "--scope", "acme")[0] == 2
    assert len(value(call("list", "--json"))) == 2
    assert "nothing was deleted" in call("forget", "--scope", "nobody", "--yes")[1]
    assert value(call("forget", "--scope", "acme", "--yes", "--json"))["removed"]["records"] == 1
    assert [r["record"]["scope"] for r in value(call("list", "--json"))] == ["acmex"]


def test_stored_text_steers_no_terminal_and_is_no_markup(call: Call, tmp_path: Path) -> None:
    hostile = "[red]\x1b[2J\x07 \u202egnp.exe [/] \ud800 \x00 :smile:"
    made = record(situation=hostile, original=hostile, principle=hostile)
    with Store(tmp_path / "s.db") as store:
        store.add_record(made, HashingEmbedder(64).embed(["x"])[0], embedder="hash:64")
    for arguments in (("list",), ("show", made.id), ("recall", "x", "--selector", "never")):
        status, out, _ = call(*arguments, "--store", "s.db")
        assert status == 0
        assert not STEERING.search(out)
        assert "\u202e" not in out
        assert "[red]�[2J� �gnp.exe" in out
    assert value(call("list", "--store", "s.db", "--json"))[0]["record"]["situation"] == hostile


def test_a_reader_that_has_seen_enough_is_no_error(lessons: Path) -> None:
    command = [sys.executable, "-m", "mulligan.cli", "list", "--store", str(lessons), "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.close()
    assert running.communicate()[1] == b""
    assert running.returncode == 1


# Care.


def test_the_doctor_looks_at_everything_and_says_what_to_do(call: Call, lessons: Path, tmp_path: Path) -> None:
    found = {f["what"]: f for f in value(call("doctor", "--store", lessons, "--json"))}
    looked = {"Python", "SQLite", "extra sql", "embedder", "sandbox", "demo", "model", "store", "rows", "vectors"}
    assert looked <= set(found)
    assert found["store"]["state"] == "ok"
    assert found["model"]["todo"].startswith("to run live: set OPENAI_BASE_URL")
    assert call("doctor")[0] == 0
    (tmp_path / "bad.db").write_bytes(lessons.read_bytes()[:8192])
    status, out, _ = call("doctor", "--store", "bad.db")
    assert status == 1
    assert "To do" in out
    assert "mulligan doctor --recover bad.db" in " ".join(out.split())


def test_the_doctor_saves_what_can_be_read(call: Call, lessons: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(lessons.read_bytes()[:-4096])
    saved = value(call("doctor", "--recover", "bad.db", "--json"))
    assert saved["to"] == "bad.recovered.db"
    assert call("list", "--store", "bad.recovered.db")[0] == 0
    assert "already" in call("doctor", "--recover", "bad.db")[2]


def test_a_configured_endpoint_is_asked(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Thread

    from fake_endpoint import Server, fail, ok

    server = Server()
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert "set OPENAI_MODEL" in call("doctor")[1]
        monkeypatch.setenv("OPENAI_MODEL", "m")
        server.acts = [ok(), fail(401)]
        assert "m answers in" in call("doctor")[1]
        status, out, _ = call("doctor")
        assert (status, "OPENAI_API_KEY" in out) == (1, True)
    finally:
        server.shutdown()
        server.server_close()


def test_a_world_is_checked_against_its_contract(call: Call, toy: Path) -> None:
    assert value(call("check-world", "grid", "--json"))["violations"] == []
    assert "no violation" in call("check-world", "grid")[1]
    status, out, _ = call("check-world", "cli_parts:ForgetfulWorld", "--tasks", toy, "--limit", "1")
    assert status == 1
    assert "it may not admit records" in " ".join(out.split())


@pytest.mark.usefixtures("walled")
@pytest.mark.parametrize("sandbox", ["bubblewrap", "process"])
def test_code_is_run_in_the_sandbox_that_is_chosen(call: Call, tmp_path: Path, sandbox: str) -> None:
    assert value(call("check-world", "code", "--limit", "1", "--sandbox", sandbox, "--json"))["violations"] == []
    (tmp_path / "code.toml").write_text(cli_parts.CODE)
    played = value(call("run", "code.toml", "--model", "python:cli_parts:coding_model", "--sandbox", sandbox, "--json"))
    assert [arm["arm"] for arm in played["arms"]] == ["none", "checked_top1"]
    assert played["arms"][1]["solved"]["whole"] == 6


def test_without_bubblewrap_code_is_not_run(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, err = call("check-world", "code")
    assert status == 2
    assert "apt-get install bubblewrap" in err and "--sandbox=process" in err
