"""The settings of an experiment: what one TOML file says, checked before anything is spent."""

import tomllib
from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import Literal

from mulligan.errors import InvalidData, UsageError
from mulligan.nouns import Json, from_plain, noun

DEFAULT_ARMS = (
    "none",
    "best_of_n",
    "best_of_n_guided",
    "unverified",
    "no_persistence",
    "checked_never",
    "checked_top1",
    "checked_threshold",
    "checked_utility",
    "random",
    "shuffled",
    "no_condition",
    "no_need",
)


Sandbox = Literal["bubblewrap", "process"]


@noun
class TaskSettings:
    """Where the tasks come from. `options` go to the loader; each split is limited to as many tasks, drawn by `seed`."""

    loader: str
    options: Mapping[str, Json] = field(default_factory=dict)
    source: int | None = None  # what is learnt from
    train: int | None = 0  # more to practise on
    heldout: int | None = None  # what is measured
    seed: int = 0
    spare: bool = False  # where training tasks are too few, source tasks of groups that were not drawn are training tasks as well
    told: bool = False  # held-out tasks answer as source tasks do, as where a task may be tried again; no arm with memory then


@noun
class AgentSettings:
    """The agent that plays in every arm but the best-of-n ones, which draw `samples`."""

    kind: Literal["react", "reflexion"] = "react"
    attempts: int = 3  # under Reflexion: starts
    steps: int = 1  # actions of a start under Reflexion
    max_tokens: int = 200
    samples: int = 4


@noun
class MemorySettings:
    """What the arms with memory share. `ablation_selector` serves the arms that change something other than the selector."""

    alternatives: int = 4
    from_model: int = 2
    threshold: Fraction = Fraction(1, 20)
    rollout: int = 0  # steps that what is tried is followed for, so that outcomes are compared; 0 judges the action alone
    policy: str = "agent"  # who goes on there: the agent itself, or a policy by its name or path
    capacity: int = 200
    retention: str = "utility"
    partial: bool = False
    min_score: float = 0.35
    budget: int = 300
    contrast: bool = False
    similarity: float = 0.5  # of the threshold selector
    practice: int = 1  # rounds in which source tasks are replayed with memory to measure what it does
    explore: int = 0  # rounds over the training tasks, showing every candidate and none equally often, for learned selectors
    probes: int = 60  # new plays of training tasks that a selector of sets may ask for
    set_size: int = 3  # records that it may show together; its budget of guidance is as many times as large
    need: float = 0.5  # a lesson is shown where the agent by itself fails at least so often on similar source tasks; 0 always
    note_tokens: int = 0  # that the notes of an arm may cost, drafts and validating plays together; 0 is no limit
    ablation_selector: str = "threshold"
    embedder: str = "static"


@noun
class StudySettings:
    """A study beside the arms: the checked store under several rules of retention at equal capacity, or as it grows in several orders."""

    kind: Literal["none", "retention", "accumulation"] = "none"
    rules: tuple[str, ...] = (
        "utility",
        "recency",
        "random",
        "similarity",
    )  # of retention: each at every capacity
    capacities: tuple[int, ...] = ()  # of retention: records that a store may hold
    orderings: int = 5  # of accumulation: orders in which the source tasks are learnt from
    checkpoints: int = 4  # a store is evaluated after each of so many equal parts of the source tasks


TransferKind = Literal["original", "lookalike", "paraphrase", "schema", "environment"]


@noun
class TransferSettings:
    """Changed versions of the source tasks that a record was learnt on, asked in every arm; and whether the same changes probe memory."""

    kinds: tuple[TransferKind, ...] = ()  # of change: original, lookalike, paraphrase, schema, environment
    most: int = 60  # pairs of a kind
    each: int = 1  # pairs of a kind that one record may give
    seed: int = 0
    probes: bool = False  # each record is offered on its source, a look-alike and a placebo: is it taken because it fits?


@noun
class Experiment:
    """One comparison of arms on one set of tasks. Paths in `tasks.options` are relative to the file."""

    name: str
    model: str = ""
    world: str = "sql"
    sandbox: Sandbox = "bubblewrap"  # what walls off code that a world runs; "process" has limits alone
    tasks: TaskSettings
    agent: AgentSettings = AgentSettings()
    memory: MemorySettings = MemorySettings()
    study: StudySettings = StudySettings()
    transfer: TransferSettings = TransferSettings()
    arms: tuple[str, ...] = DEFAULT_ARMS
    parallel: int = 4  # tasks played at once
    workers: int = 2  # processes that check


def load_experiment(path: Path) -> Experiment:
    """Read the experiment in `path`. Raises UsageError for a missing file, InvalidData naming the wrong setting."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no experiment file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidData(f"{path} is no TOML file: {error}") from None
    return from_plain(Experiment, table, what=str(path))
