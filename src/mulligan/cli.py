"""The command line: reads what was typed, has the parts built, and shows what came of it.

In: arguments and the environment. Out: text, or with --json one JSON value, on standard output; progress and one-line errors on
standard error; exit status 0, 1 for a failure, 2 for a wrong call, 130 after Ctrl-C. Everything heavy is imported inside
the command that needs it.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.main import get_command

from mulligan import __version__, cli_audit, cli_care, cli_offpolicy, cli_store, cli_train
from mulligan.cli_store import HERE, WORLD_NAMES, AsJson, SandboxName, StoreFile, open_store
from mulligan.errors import MulliganError, UsageError

if TYPE_CHECKING:
    from mulligan.building import Plan

RESUME = "interrupted: what was finished is kept; run the same command again to go on"

app = typer.Typer(
    name="mulligan",
    help="Memory for language agents in which every lesson was tried before it was stored.",
    epilog="Start with `mulligan demo`. MULLIGAN_DEBUG=1 or --debug shows where an error comes from.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelSpec = Annotated[
    str, typer.Option("--model", metavar="SPEC", help="gguf:PATH, replay:PATH, NAME@BASE_URL, or NAME at OPENAI_BASE_URL.")
]
Folder = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Where the run is kept; runs/NAME unless given.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete an earlier run in that folder first, its paid replies too.")]
WorldName = Annotated[str, typer.Option("--world", metavar="NAME", help=WORLD_NAMES)]
Scope = Annotated[str, typer.Option("--scope", metavar="SCOPE", help="Where records live, such as acme/sql-agent.")]
EmbedderName = Annotated[str, typer.Option("--embedder", metavar="NAME", help="static, hash:DIM or openai:MODEL; the store's own first.")]
TAPE = Path("recording.jsonl")

EXPERIMENTS, MEMORY, STORE, CARE = "Experiments", "Memory", "The store", "Care"


def _version(asked: bool) -> None:
    if asked:
        print(f"mulligan {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


# Experiments.


@app.command(rich_help_panel=EXPERIMENTS)
def demo(model: ModelSpec = "", out: Folder = None, fresh: Fresh = False, as_json: AsJson = False) -> None:
    """Run the whole experiment on the bundled sample: no key, no network, about two minutes.

    The model's replies are a recording, unless --model, or OPENAI_BASE_URL and OPENAI_MODEL, name a live one.
    """
    from mulligan import building

    _play(building.demo_plan(model, out, os.environ), fresh, as_json, is_demo=True)


@app.command(rich_help_panel=EXPERIMENTS)
def run(
    experiment: Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="The settings; docs/reference.md lists them.")],
    model: ModelSpec = "",
    out: Folder = None,
    fresh: Fresh = False,
    sandbox: SandboxName = "",
    as_json: AsJson = False,
) -> None:
    """Run an experiment: construct on source tasks, freeze, evaluate every arm on held-out tasks, report.

    A run that was stopped goes on where it was; nothing is paid for twice.
    """
    from mulligan import building

    _play(building.file_plan(experiment, model, out, os.environ, sandbox=sandbox), fresh, as_json)


@app.command(rich_help_panel=EXPERIMENTS)
def record(
    experiment: Annotated[Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="The demo's settings unless given.")] = None,
    model: ModelSpec = "",
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The recording; what it holds is not asked again.")] = TAPE,
    as_json: AsJson = False,
) -> None:
    """Run the demo or an experiment with a live model, and record its replies."""
    from tempfile import TemporaryDirectory

    from mulligan import building, console
    from mulligan.models import RecordingModel

    plan = building.file_plan(experiment, model, None, os.environ) if experiment else building.demo_plan(model, None, os.environ, live=True)
    with building.opened_model(plan.model, os.environ) as live, TemporaryDirectory(prefix="mulligan-") as folder:
        tasks, _ = plan.tasks(Path(folder))
        with console.Stages() as progress:
            played = plan.play(RecordingModel(live, to), tasks, Path(folder), progress)
    with to.open(encoding="utf-8") as lines:
        requests = sum(line.startswith('{"key"') for line in lines)
    if as_json:
        console.show_json({"recording": to, "model": played.model, "requests": requests})
    else:
        console.say(f"{to} holds {requests} replies of {played.model}; play them with --model replay:{to}")


@app.command(rich_help_panel=EXPERIMENTS)
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, or its report.json.")],
    as_json: AsJson = False,
) -> None:
    """Make the report of a run again, and show its table of arms."""
    from mulligan import cli_views
    from mulligan.experiment.report import read_results, write_report

    folder = run.parent if run.name == "report.json" else run
    results = read_results(folder / "report.json")
    cli_views.show_results(results, write_report(results, folder), as_json=as_json)


def _play(plan: "Plan", fresh: bool, as_json: bool, *, is_demo: bool = False) -> None:
    """Run a plan in its folder and show what came of it."""
    from mulligan import building, cli_views, console
    from mulligan.experiment.report import write_report

    tasks, loaded = plan.tasks(plan.folder)
    with building.opened_model(plan.model, os.environ) as model:
        if fresh:
            building.clear_run(plan.folder)
        if not as_json:
            cli_views.opening(plan, tasks, loaded)
        with console.Stages() as progress:
            results = plan.play(model, tasks, plan.folder, progress)
    cli_views.show_results(results, write_report(results, plan.folder), as_json=as_json, example=is_demo)


# Memory.


@app.command(rich_help_panel=MEMORY)
def learn(
    episodes: Annotated[Path, typer.Argument(metavar="EPISODES.jsonl", help="One episode, or account of one, a line.")],
    store: StoreFile = HERE,
    world: WorldName = "sql",
    model: ModelSpec = "",
    embedder: EmbedderName = "",
    sandbox: SandboxName = "",
    repo: Annotated[Path | None, typer.Option("--repo", metavar="FOLDER", help="World workspace: the git repository, at HEAD.")] = None,
    check: Annotated[str, typer.Option("--check", metavar="COMMAND", help="World workspace: what checks it, such as 'pytest -q'.")] = "",
    as_json: AsJson = False,
) -> None:
    """Try alternatives to the failed actions of episodes, and store what verifiably did better.

    Operators of the world and the agent's own retries propose; with --model a language model does as well.
    """
    from contextlib import ExitStack

    from mulligan import building, cli_views, console, trajectories
    from mulligan.memory import Memory
    from mulligan.store import Store

    at = building.world(world, sandbox)
    lines = trajectories.read_lines(episodes, at, building.workspace(world, repo, check))
    with ExitStack() as stack:
        proposer = stack.enter_context(building.opened_model(model, os.environ)) if model else None
        opened = stack.enter_context(Store(store))
        vectors, panel = building.store_embedder(opened, embedder), [line.task for line in lines if line.task]
        memory = Memory(opened, at, embedder=vectors, model=proposer, panel=panel)
        outcomes = trajectories.learn_all(memory, lines, stack.enter_context(console.Stages()))
    cli_views.show_learnt(outcomes, store, as_json=as_json)
    if any(outcome.fault for outcome in outcomes):
        raise typer.Exit(1)


@app.command(rich_help_panel=MEMORY)
def recall(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The task, as an agent would be given it.")],
    store: StoreFile = HERE,
    database: Annotated[Path | None, typer.Option("--database", metavar="FILE", help="The SQLite file that it is about.")] = None,
    world: WorldName = "sql",
    scope: Scope = "default",
    selector: Annotated[str, typer.Option("--selector", metavar="NAME", help="never, top1, threshold, utility, or learned.")] = "top1",
    weights: Annotated[Path | None, typer.Option("--weights", metavar="FILE", help="Of a learned selector.")] = None,
    model: ModelSpec = "",
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Have the --model rewrite the lesson for this task, or reject it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an agent would be handed for a task, and which records are nearest; writes nothing.

    Without --database, facts of the task are unknown, and conditions are shown but not tested. Conditions in words hold only if
    a --model says so.
    """
    from contextlib import ExitStack

    from mulligan import building, cli_views, console

    with ExitStack() as stack:
        judge = stack.enter_context(building.opened_model(model, os.environ)) if model else None
        opened = stack.enter_context(open_store(store))
        at = building.world(world)
        chosen = building.stored_selector(selector, opened, weights)
        asked = building.ask(opened, text, at=at, database=database, scope=scope, chosen=chosen, model=judge, rewrite=rewrite)
        cli_views.show_recall(asked, console.short_ids(opened.find("")), as_json=as_json)


for command, name, panel in (
    (cli_store.list_records, "list", STORE),
    (cli_store.show, "show", STORE),
    (cli_store.export_rows, "export", STORE),
    (cli_store.import_rows, "import", STORE),
    (cli_store.reembed, "reembed", STORE),
    (cli_store.retire, "retire", STORE),
    (cli_store.restore, "restore", STORE),
    (cli_care.supersede, "supersede", STORE),
    (cli_care.correct, "correct", STORE),
    (cli_store.forget, "forget", STORE),
    (cli_care.recheck, "recheck", CARE),
    (cli_care.credit, "credit", CARE),
    (cli_train.train, "train", MEMORY),
    (cli_offpolicy.offpolicy, "offpolicy", CARE),
    (cli_audit.audit, "audit", CARE),
    (cli_store.doctor, "doctor", CARE),
    (cli_store.check_world, "check-world", CARE),
):
    app.command(name, rich_help_panel=panel)(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or bool(os.environ.get("MULLIGAN_DEBUG"))
    words = [word for word in given if word != "--debug"]  # wherever it was typed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # stored text may hold what no encoding can
    warnings.showwarning = _warn
    try:
        status = get_command(app)(args=words, prog_name="mulligan", standalone_mode=False) or 0
    except BrokenPipeError:
        status = 1
    except KeyboardInterrupt:
        status = 130
    except Exception as error:
        if debug:
            raise
        status = _explain(error)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough; Python must not say so when it flushes again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = status or 1
    if status == 130:
        _complain(RESUME)
    sys.exit(status)


def _explain(error: Exception) -> int:
    """Say in one line what is wrong; the exit status for it."""
    match error:
        case MulliganError():
            _complain(f"error: {error}")
            return 2 if isinstance(error, UsageError) else 1
        case typer.Abort():
            _complain("error: stopped, nothing was done")
            return 1
        case typer.TyperException():
            command = getattr(getattr(error, "ctx", None), "command_path", "mulligan")
            _complain(f"error: {error.format_message().rstrip('.')}: see `{command} --help`")
            return int(getattr(error, "exit_code", 1))
        case OSError():
            _complain(f"error: {error.filename or 'the system'}: {error.strerror or error}")
            return 1
        case _:
            _complain(f"error: {type(error).__name__}: {error}; this is a fault of Mulligan: --debug shows where")
            return 1


def _complain(text: str) -> None:
    print("".join(c if c.isprintable() else " " for c in " ".join(text.split())), file=sys.stderr, flush=True)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    _complain(f"note: {message}")


if __name__ == "__main__":
    main()
