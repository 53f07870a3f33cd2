"""Builds by name what a command works with: worlds, tasks, models, embedders, and the parts of an experiment.

In: names from a command line or a settings file. Out: objects, checked as far as they can be before anything is spent. Known
names stand in the tables below; `package.module:Name` reaches any other, also in the current folder. Names of models and
embedders have colons of their own: there it is `python:package.module:Name`. Nothing is imported before it is named. Not
promised: that someone else's class keeps the contract of its seam.
"""

import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from mulligan.embeddings import open_embedder
from mulligan.errors import InvalidData, MissingExtra, MulliganError, UnknownName, UsageError
from mulligan.experiment.arms import arm
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import Experiment, Sandbox, TaskSettings, load_experiment
from mulligan.experiment.stages import Progress
from mulligan.memory import Memory, Settings
from mulligan.models import open_model
from mulligan.nouns import Json, from_plain, to_plain
from mulligan.protocols import Embedder, Model, Selector, World
from mulligan.read.selection import SETS, Utility, selector
from mulligan.read.uplift import Uplift
from mulligan.read.weights import load
from mulligan.records import Candidate, Condition, Guidance, Record, Situation, Split, Task
from mulligan.store import Store
from mulligan.tasks.loading import LoadReport
from mulligan.tasks.sample import DATA
from mulligan.tasks.splits import check_splits, sample_tasks
from mulligan.write.checks import Policy
from mulligan.write.retention import strategy

WORLDS: Mapping[str, str] = {
    "code": "mulligan.worlds.code:CodeWorld",
    "grid": "mulligan.worlds.grid:GridWorld",
    "maths": "mulligan.worlds.maths:MathsWorld",
    "proof": "mulligan.worlds.proof:ProofWorld",
    "sat": "mulligan.worlds.sat:SatWorld",
    "shop": "mulligan.worlds.shop:ShopWorld",
    "smt": "mulligan.worlds.smt:SmtWorld",
    "sql": "mulligan.worlds.sql:SqlWorld",
    "textgame": "mulligan.worlds.textgame:TextGameWorld",
    "workspace": "mulligan.worlds.workspace:WorkspaceWorld",
}
LOADERS: Mapping[str, str] = {
    "alfworld": "mulligan.tasks.games:load_alfworld",
    "bigcodebench": "mulligan.tasks.programs:load_bigcodebench",
    "cnfgen": "mulligan.tasks.dimacs:load_cnfgen",
    "dimacs": "mulligan.tasks.dimacs:load_dimacs",
    "evalplus": "mulligan.tasks.programs:load_evalplus",
    "formulas": "mulligan.tasks.sample:load_formulas",
    "games": "mulligan.tasks.sample:load_games",
    "grid": "mulligan.worlds.grid:corridor_tasks",
    "gsm8k": "mulligan.tasks.maths:load_gsm8k",
    "humaneval": "mulligan.tasks.programs:load_humaneval",
    "math": "mulligan.tasks.maths:load_math",
    "mbpp": "mulligan.tasks.programs:load_mbpp",
    "problems": "mulligan.tasks.sample:load_problems",
    "reasoning_gym": "mulligan.tasks.maths:load_reasoning_gym",
    "rocq": "mulligan.tasks.proofs:load_rocq",
    "sample": "mulligan.tasks.sample:load_sample",
    "scripts": "mulligan.tasks.sample:load_scripts",
    "shelves": "mulligan.tasks.sample:load_shelves",
    "shop": "mulligan.tasks.sample:load_shop",
    "smt": "mulligan.tasks.smt:load_smt",
    "sums": "mulligan.tasks.sample:load_sums",
    "spider": "mulligan.tasks.spider:load_spider",
    "text2sql": "mulligan.tasks.text2sql:load_text2sql",
    "textworld": "mulligan.tasks.games:load_textworld",
    "theorems": "mulligan.tasks.sample:load_theorems",
    "webshop": "mulligan.tasks.shop:load_webshop",
    "workspace": "mulligan.tasks.workspaces:load_workspaces",
}
# world → loader of tasks that come with the package
SAMPLES: Mapping[str, str] = {
    "code": "problems",
    "grid": "grid",
    "maths": "sums",
    "proof": "theorems",
    "sat": "formulas",
    "shop": "shop",
    "smt": "scripts",
    "sql": "sample",
    "textgame": "games",
    "workspace": "shelves",
}
EXTRAS: Mapping[str, str] = {
    "sqlglot": "sql",
    "pysat": "sat",
    "z3": "smt",
    "latex2sympy2_extended": "maths",
    "bm25s": "shop",
    "rapidfuzz": "shop",
    "textworld": "text",
    "xllamacpp": "local",
    "matplotlib": "report",
}  # package → the extra that brings it

POLICIES: Mapping[str, str] = {"expert": "mulligan.worlds.textgame:Expert"}  # beside "agent", who needs a model

RECORDING = DATA / "recording.jsonl"  # of the demo's model
RUN_FILES = (
    "experiment.json",
    "report.json",
    "report.md",
    "report.html",
    "run.db",
    *(f"{store}.db" for store in ("checked", "unverified", "validated", "unvalidated", "bank")),
)


def world(name: str, sandbox: str = "") -> World:
    """The world of that name, made without arguments but `sandbox`, if one is chosen. Raises UnknownName, MissingExtra; UsageError where
    a sandbox is chosen for a world that runs no code, or is no known one.
    """
    cls = _named("world", name, WORLDS)
    sandbox = sandbox and wall(sandbox)
    if sandbox and "wall" not in inspect.signature(cls).parameters:
        raise UsageError(f"the world {name} runs no code, so there is no sandbox to choose")
    made: World = cls(wall=sandbox) if sandbox else cls()
    return made


def wall(name: str) -> Sandbox:
    """The sandbox of that name. Raises UsageError for an unknown one."""
    for known in get_args(Sandbox):
        if name == known:
            return cast("Sandbox", name)
    raise UsageError(f"no sandbox {name!r}: choose {' or '.join(get_args(Sandbox))}")


def embedder(name: str) -> Embedder:
    """The embedder of that name (`static`, `hash:DIM`, `openai:MODEL`, or `python:` and a path)."""
    kind, _, path = name.partition(":")
    made: Embedder = _named("embedder", path, {})() if kind == "python" else open_embedder(name)
    return made


@contextmanager
def opened_model(spec: str, environ: Mapping[str, str]) -> Iterator[Model]:
    """The model that `spec` names, which lets go of what it holds (a GGUF file in memory) at the end."""
    kind, _, path = spec.partition(":")
    model: Model = _named("model", path, {})() if kind == "python" else open_model(spec, environ)
    with model if isinstance(model, AbstractContextManager) else nullcontext():
        yield model


def default_model(environ: Mapping[str, str]) -> str:
    """The model that the environment names, or ""."""
    return environ.get("MULLIGAN_MODEL") or environ.get("OPENAI_MODEL") or ""


def choose_model(*specs: str, environ: Mapping[str, str]) -> str:
    """The first of `specs` that names one, or the environment's. Raises UsageError that says how to name one."""
    chosen = next(filter(None, specs), "") or default_model(environ)
    if not chosen:
        raise UsageError("no model: give --model gguf:PATH, replay:PATH or NAME@BASE_URL, or set OPENAI_BASE_URL and OPENAI_MODEL")
    return chosen


def load_tasks(settings: TaskSettings, base: Path, work: Path, sandbox: str = "") -> tuple[list[Task], LoadReport | None]:
    """The tasks that a [tasks] table names, drawn as it says, and what the loader left out.

    Paths among the options are relative to `base`; what a loader builds goes below `work`; one that runs code does so in `sandbox`.
    Raises UsageError for a missing file, InvalidData for a wrong option or a group that crosses splits.
    """
    loader = _named("loader of tasks", settings.loader, LOADERS)
    given = _options(settings, loader, base, work)
    if sandbox and "sandbox" in inspect.signature(loader).parameters:
        given.setdefault("sandbox", sandbox)
    made = loader(**given)
    tasks, report = made if isinstance(made, tuple) else (made, None)
    check_splits(tasks)
    return drawn(tasks, settings), report


def drawn(tasks: Sequence[Task], settings: TaskSettings) -> list[Task]:
    """As many tasks of each split as the settings want, in their order. With `spare`, source tasks fill up the training tasks."""

    def draw(split: Split, size: int | None) -> set[str]:
        mine = [task for task in tasks if task.split == split]
        return {task.id for task in (mine if size is None else sample_tasks(mine, size, seed=settings.seed))}

    source = draw("source", settings.source)
    if settings.spare:
        taken = {task.group for task in tasks if task.id in source}
        tasks = [replace(t, split="train") if t.split == "source" and t.group not in taken else t for t in tasks]
    kept = source | draw("train", settings.train) | draw("heldout", settings.heldout)
    return [task for task in tasks if task.id in kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment with all that a file and a command line say of it. Raises UsageError for a name that nothing has."""

    experiment: Experiment
    base: Path  # what paths in the settings are relative to
    model: str  # as `opened_model` takes it
    folder: Path

    def __post_init__(self) -> None:
        for name in self.experiment.arms:
            arm(name)
        selector(self.experiment.memory.ablation_selector)
        strategy(self.experiment.memory.retention)
        self._built()

    def tasks(self, work: Path) -> tuple[list[Task], LoadReport | None]:
        return load_tasks(self.experiment.tasks, self.base, work, self.experiment.sandbox)

    def play(self, model: Model, tasks: Sequence[Task], folder: Path, progress: Progress) -> Results:
        """Run in `folder`, or go on with what is there."""
        at, vectors, policy = self._built()
        return run(self.experiment, Parts(tasks=tasks, world=at, model=model, embedder=vectors, policy=policy), folder, progress)

    def _built(self) -> tuple[World, Embedder, Policy | None]:
        chosen = "" if self.experiment.sandbox == "bubblewrap" else self.experiment.sandbox
        memory = self.experiment.memory
        policy = None if memory.policy == "agent" else _named("policy", memory.policy, POLICIES)()
        return world(self.experiment.world, chosen), embedder(memory.embedder), policy


def file_plan(path: Path, model: str, out: Path | None, environ: Mapping[str, str], *, sandbox: str = "") -> Plan:
    """The plan of a settings file. `model` comes before the file's, that before the environment's; `sandbox` before the file's."""
    settings = load_experiment(path)
    if sandbox:
        settings = from_plain(Experiment, {**to_plain(settings), "sandbox": sandbox}, what="--sandbox")
    chosen = choose_model(model, settings.model, environ=environ)
    return Plan(experiment=settings, base=path.parent, model=chosen, folder=out or run_folder(settings.name))


def demo_plan(model: str, out: Path | None, environ: Mapping[str, str], *, live: bool = False) -> Plan:
    """The demo's plan: live with the model that is named, else (unless `live`) with the recording that comes with the package."""
    settings = load_experiment(DATA / "demo.toml")
    named = model or (default_model(environ) if environ.get("OPENAI_BASE_URL") else "")
    if live:
        named = choose_model(model, environ=environ)
    if not named and not RECORDING.is_file():
        raise MulliganError("the demo's recording is not in this installation: run live with --model, or make one with `mulligan record`")
    name = re.sub(r"[^\w.-]+", "-", named.partition("@http")[0].rpartition("/")[2])  # each model has a folder of its own
    folder = out or run_folder(f"demo-{name}" if name else "demo")
    return Plan(experiment=settings, base=DATA, model=named or f"replay:{RECORDING}", folder=folder)


# Memory.


def store_embedder(store: Store, name: str = "") -> Embedder:
    """The embedder of that name, or the one whose vectors `store` holds, or the default. Raises EmbeddingMismatch for another."""
    made = embedder(name or (store.embedder or ("static",))[0])
    store.check_embedder(made.id, made.dim)
    return made


class Blind(Memory):
    """A memory that knows no more of a task than was typed, since its world has nothing to look at."""

    def facts(self, task: Task) -> Mapping[str, Json]:
        return task.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a recall gave, the records nearest to it whether or not they apply, and why nothing was shown, if so."""

    guidance: Guidance
    nearest: Sequence[Candidate]
    why: str
    tested: bool  # conditions were


def ask(
    store: Store,
    text: str,
    *,
    at: World,
    database: Path | None,
    scope: str,
    chosen: Selector,
    model: Model | None = None,
    rewrite: bool = False,
) -> Asked:
    """Recall for `text` as an agent would at its first attempt. `chosen` is the selector; `model` judges conditions in words, and
    rewrites what is shown.
    """
    if rewrite and model is None:
        raise UsageError("--rewrite needs a language model: name one with --model")
    if rewrite and not database and at.name == "sql":
        raise UsageError("--rewrite tests what is written against the task's database: name it with --database")
    payload = {"database": str(database.absolute())} if database else {}
    task = Task(id="recall", domain=at.name, benchmark="recall", group="", split="heldout", prompt=text, payload=payload, scope=scope)
    kind, vectors = Memory if database else Blind, store_embedder(store)
    tested = Settings(conditions=bool(database), rewrite=rewrite, withheld=Fraction(0))  # who asks by hand wants to see it
    if isinstance(chosen, Uplift):
        tested = replace(tested, candidates=tested.pool, budget=tested.budget * chosen.size, need=0.0)
    memory = kind(store, at, embedder=vectors, model=model, selector=chosen, settings=tested)
    wide = kind(store, at, embedder=vectors, settings=Settings(conditions=False, min_score=-1.0))
    guidance = memory.recall(task)
    nearest, _ = wide.retrieve(Situation(task=task, facts=memory.facts(task)))
    why = "" if guidance else _why(guidance, nearest, task, memory.settings.min_score)
    return Asked(guidance=guidance, nearest=nearest, why=why, tested=bool(database))


def _why(guidance: Guidance, nearest: Sequence[Candidate], task: Task, least: float) -> str:
    """Why nothing is shown."""
    receipt = guidance.receipt
    if not task.prompt.strip():
        return "the text is blank"
    if not nearest:
        return f"the store holds no active record of scope {task.scope} and domain {task.domain}"
    if receipt.selection.policy == "need":
        share = round(100 * receipt.selection.values[0])
        return f"the agent needs no lesson: by itself it failed at {share} % of what is most like this"
    if not receipt.candidates:
        best = nearest[0].score
        return f"the nearest scores {best:.2f}, at least {least:.2f} is wanted" if best < least else "no condition of the nearest holds"
    if receipt.selection.chosen is None:
        return f"the selector {receipt.selection.policy!r} shows none of {len(receipt.candidates)} candidates"
    if receipt.rewrite:
        return f"what the model made of it is refused: {receipt.rewrite}"
    return "what was chosen may not be shown: it does not fit the budget, or is unchecked and reads like an instruction"


def stored_selector(name: str, store: Store, weights: Path | None = None) -> Selector:
    """The selector of that name: `utility` learns from the receipts of `store`, one that was trained reads `weights`."""
    if name == "utility":
        return Utility.fit([(receipt, outcome) for receipt, outcome in store.receipts() if outcome is not None])
    if name in SETS:
        if weights is None:
            raise UsageError(f"the selector {name!r} is learned: give its weights; `mulligan train uplift` makes them")
        return Uplift(load(weights, ["uplift"]), store_embedder(store), store.vectors)
    return selector(name, weights)


def corrected(record: Record, *, situation: str, principle: str, predicate: str, action: str) -> Record:
    """`record` in other words. Another condition or principle leaves its check as it was; another action was not checked."""
    condition = record.condition
    if predicate:
        condition = Condition() if predicate == "none" else Condition(kind="predicate", text=predicate, predicate=predicate)
    made = replace(record, situation=situation or record.situation, principle=principle or record.principle, condition=condition)
    if situation:
        made = replace(made, gist="")
    if action and action != record.corrected:
        return replace(made, corrected=action, diff="", gain=replace(record.gain, verified=False, solved=False))
    return made


# Folders and names.


def workspace(world_name: str, repository: Path | None, check: str) -> dict[str, Json]:
    """What the payload of a workspace task says of its repository, at HEAD, and its check. Raises UsageError for another world."""
    if repository is None and not check:
        return {}
    if world_name != "workspace":
        raise UsageError("--repo and --check are for --world workspace")
    from mulligan.worlds.workspace_files import commit_of

    at = (repository or Path()).resolve()
    return {"repository": str(at), "commit": commit_of(str(at), "HEAD"), "check": check or "pytest -q"}


def sample_of(world_name: str, file: Path | None, work: Path, limit: int, sandbox: str = "") -> list[Task]:
    """At most `limit` tasks to check a world on: of an experiment's file, or those that come with the package."""
    if file is None and world_name not in SAMPLES:
        raise UsageError(f"no tasks of the world {world_name} come with the package: name an experiment with --tasks")
    settings = load_experiment(file).tasks if file else TaskSettings(loader=SAMPLES[world_name])
    return load_tasks(settings, file.parent if file else work, work, sandbox)[0][:limit]


def run_folder(name: str) -> Path:
    """Where a run of that name lies unless told otherwise. Raises InvalidData for a name that is no plain one."""
    if not re.fullmatch(r"\w[\w .-]{0,99}", name):
        raise InvalidData(f"the name of an experiment is letters, digits, spaces, dots and dashes, not {name!r}")
    return Path("runs") / name


def clear_run(folder: Path) -> None:
    """Delete the files of a run in `folder`, and nothing else there."""
    grown = (path.name for pattern in ("study-*.db", "transfer-*.json") for path in folder.glob(pattern))
    for name in (*RUN_FILES, *grown):
        for beside in ("", "-wal", "-shm"):
            (folder / f"{name}{beside}").unlink(missing_ok=True)
    for path in folder.glob("transfer/*.sqlite"):
        path.unlink()
    with suppress(OSError):  # not there, or with something else in it
        (folder / "transfer").rmdir()


def _named(kind: str, name: str, known: Mapping[str, str]) -> Any:
    """What a name stands for: an attribute of a module."""
    path = known.get(name, name if re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", name) else "")
    if not path:
        choices = f"choose {' or '.join(known)}, or give" if known else "give"
        raise UnknownName(f"no {kind} {name!r}: {choices} a path package.module:Name")
    if name not in known and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # at the end, so that it hides nothing that is installed
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            raise MissingExtra(f"the {kind} {name} needs {package}: pip install 'mulligan[{EXTRAS[package]}]'") from None
        raise UnknownName(f"no {kind} at {path!r}: {error}") from None
    except (ImportError, AttributeError) as error:
        raise UnknownName(f"no {kind} at {path!r}: {error}") from None


def _options(settings: TaskSettings, loader: Any, base: Path, work: Path) -> dict[str, Any]:
    """The arguments of a loader, each checked against what it takes."""
    takes, hints = inspect.signature(loader).parameters, get_type_hints(loader)
    for name in settings.options:
        if name not in takes:
            raise InvalidData(f"tasks.options: the loader {settings.loader} takes {', '.join(takes) or 'nothing'}, not {name!r}")
    given = {name: _option(name, value, hints.get(name, Any), base) for name, value in settings.options.items()}
    if settings.loader in ("sample", "shelves"):  # they build what their tasks are about
        given.setdefault("folder", work)
    missing = [name for name, parameter in takes.items() if parameter.default is parameter.empty and name not in given]
    if missing:
        raise InvalidData(f"tasks.options: the loader {settings.loader} wants {' and '.join(missing)}")
    return given


def _option(name: str, value: Json, wanted: Any, base: Path) -> Any:
    """One option as its annotation wants it; what may be a path is one, and must be there."""
    if wanted is not Path and Path not in get_args(wanted):
        return value if wanted is Any else from_plain(wanted, value, what=f"tasks.options.{name}")
    path = base / from_plain(str, value, what=f"tasks.options.{name}")
    if not path.exists():
        expanded = " (~ and $NAMES are taken as they stand)" if re.search(r"^~|\$", str(value)) else ""
        raise UsageError(
            f"tasks.options.{name}: there is nothing at {os.path.normpath(path)}{expanded}; docs/data.md says where data is from"
        )
    return path
