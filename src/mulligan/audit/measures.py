"""What an audit measures: repetition, grounding, what trials came to; each figure with what it is a share of.

In: a `Log`, perhaps the log of the same environments without a memory, an embedder. Out: an `Audit`. Sources: Honest Lying (SPEC D1); what
could be recomputed from the public logs and what could not is in docs/results/audit.md.
"""

import re
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from mulligan.audit import grounding, repetition
from mulligan.audit.logs import Case, Log
from mulligan.nouns import noun
from mulligan.protocols import Embedder

HARD = 10  # trials within which a task is not solved either way
PLAN = re.compile(  # a reflection without any of these says what went wrong, and not what to do
    r"\b(?:next (?:time|trial|attempt)|in (?:the )?future|i(?:'ll| will| should| need to| must| would)|should(?: have)?|instead|try"
    r"|to (?:fix|address|solve|correct|improve|avoid|mitigate)|needs? to|must|make sure|update|change|replace|use)\b",
    re.IGNORECASE,
)


@noun
class Reflection:
    """One reflection: whether it repeats an earlier one, names its task's target (None: cannot tell), and says what to do."""

    text: str
    repeats: bool
    grounded: bool | None
    plan: bool


@noun
class Environment:
    """One case with its measures. `embedded` is the rate by vectors, None where no embedder was given."""

    name: str
    task: str
    trials: tuple[bool | None, ...]
    reflections: tuple[Reflection, ...]
    rrr: float
    embedded: float | None
    frozen: bool
    failed_trials: int


@noun
class Correlation:
    """RRR against failed trials, over so many environments; None where one of them does not vary."""

    environments: int
    spearman: float | None
    pearson: float | None


@noun
class Without:
    """Frozen environments beside a run without memory (SPEC D1): solved sooner there, or in neither within HARD trials."""

    compared: int
    memory_harmful: tuple[str, ...]
    task_hard: tuple[str, ...]


@noun
class Audit:
    """All figures. Shares are of what stands beside them; `failed_trials_fresh` is over environments whose RRR is 0."""

    path: str
    format: str
    environments: int
    solved: int
    unsolved: int  # that failed in the last trial
    untold: int  # neither: the last trial does not show them
    with_reflections: int
    reflections: int
    frozen: int
    frozen_share: float | None  # of those with reflections
    frozen_reflections: int
    frozen_embedded: int | None
    mean_rrr: float | None
    mean_rrr_frozen: float | None
    failed_trials_frozen: float | None
    failed_trials_fresh: float | None
    spearman_rrr_trials: float | None
    pearson_rrr_trials: float | None
    several: Correlation  # with at least two reflections
    transitions: int  # from a failed trial to one whose outcome is told
    corrected: int
    correction_rate: float | None
    grounded: int
    ungrounded: int
    cannot_tell: int
    symptom_only: int
    without: Without | None
    damaged: tuple[str, ...]
    rows: tuple[Environment, ...]


def audit(log: Log, *, without: Log | None = None, embedder: Embedder | None = None) -> Audit:
    """The audit of one log."""
    rows = tuple(_environment(case, embedder) for case in log.cases)
    noted = [row for row in rows if row.reflections]
    frozen = [row for row in noted if row.frozen]
    fresh = [row for row in noted if row.rrr == 0]
    texts = [reflection for row in noted for reflection in row.reflections]
    told = [
        (one, other) for row in rows for one, other in zip(row.trials, row.trials[1:], strict=False) if one is False and other is not None
    ]
    corrected = sum(bool(other) for _, other in told)
    every = _correlation(noted)
    return Audit(
        path=log.path,
        format=log.format,
        environments=len(rows),
        solved=sum(case.solved for case in log.cases),
        unsolved=sum(not case.solved and case.trials[-1:] == (False,) for case in log.cases),
        untold=sum(not case.solved and case.trials[-1:] != (False,) for case in log.cases),
        with_reflections=len(noted),
        reflections=len(texts),
        frozen=len(frozen),
        frozen_share=_share(len(frozen), len(noted)),
        frozen_reflections=sum(len(row.reflections) for row in frozen),
        frozen_embedded=sum((row.embedded or 0) >= repetition.FROZEN for row in noted) if embedder else None,
        mean_rrr=_mean([row.rrr for row in noted], 3),
        mean_rrr_frozen=_mean([row.rrr for row in frozen], 3),
        failed_trials_frozen=_mean([row.failed_trials for row in frozen], 2),
        failed_trials_fresh=_mean([row.failed_trials for row in fresh], 2),
        spearman_rrr_trials=every.spearman,
        pearson_rrr_trials=every.pearson,
        several=_correlation([row for row in noted if len(row.reflections) > 1]),
        transitions=len(told),
        corrected=corrected,
        correction_rate=_share(corrected, len(told)),
        grounded=sum(text.grounded is True for text in texts),
        ungrounded=sum(text.grounded is False for text in texts),
        cannot_tell=sum(text.grounded is None for text in texts),
        symptom_only=sum(not text.plan for text in texts),
        without=_without(frozen, without) if without else None,
        damaged=log.damaged,
        rows=rows,
    )


def _environment(case: Case, embedder: Embedder | None) -> Environment:
    texts, again = case.reflections, repetition.repeated(case.reflections)
    return Environment(
        name=case.name,
        task=case.task,
        trials=case.trials,
        reflections=tuple(
            Reflection(
                text=text,
                repeats=repeats,
                grounded=grounding.grounded(text, case.task),
                plan=bool(PLAN.search(text)),
            )
            for text, repeats in zip(texts, again, strict=True)
        ),
        rrr=repetition.rate(again),
        embedded=repetition.embedded_rate(texts, embedder) if embedder else None,
        frozen=repetition.rate(again) >= repetition.FROZEN,
        failed_trials=case.failed_trials,
    )


def _without(frozen: Sequence[Environment], log: Log) -> Without:
    """Environments are the same where their names are: the two logs must be of the same runs of tasks."""
    others = {case.name: case for case in log.cases}
    pairs = [(row, others[row.name]) for row in frozen if row.name in others]
    harmful = [row.name for row, other in pairs if other.solved and (True not in row.trials or other.failed_trials < row.failed_trials)]
    hard = [row.name for row, other in pairs if min(_needed(row.trials), _needed(other.trials)) >= HARD]
    return Without(compared=len(pairs), memory_harmful=tuple(harmful), task_hard=tuple(hard))


def _needed(trials: Sequence[bool | None]) -> int:
    """Failed trials before the first success; at least HARD where there was none."""
    return trials.index(True) if True in trials else max(HARD, len(trials))


def _correlation(rows: Sequence[Environment]) -> Correlation:
    rates, trials = np.array([row.rrr for row in rows]), np.array([float(row.failed_trials) for row in rows])
    return Correlation(environments=len(rows), spearman=_pearson(_ranks(rates), _ranks(trials)), pearson=_pearson(rates, trials))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share their mean rank."""
    return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])


def _pearson(one: np.ndarray, other: np.ndarray) -> float | None:
    varies = len(one) > 1 and one.std() > 0 and other.std() > 0
    return round(float(np.corrcoef(one, other)[0, 1]), 3) if varies else None


def _mean(values: Sequence[float], digits: int) -> float | None:
    return round(fmean(values), digits) if values else None


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None
