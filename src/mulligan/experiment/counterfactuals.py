"""Counterfactual probes in a run: each record is offered where it holds, where it does not, and where nothing matters.

SPEC B5. In: the bench with its checked store, frozen. Out: for each way of reading (with or without conditions, with or without rewriting)
the findings of `probes`. s+ is the record's source task, s- its look-alike, s0 its placebo, all made and asserted by `tasks.variants`.
Replies lie in the run's cache, so a run that goes on asks what it has not asked yet. Not promised: that what a look-alike changed can be
told by a name. Where it cannot (yes and no exchanged, another order of arguments), nothing but a rejection is right in s-.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from mulligan.errors import UsageError
from mulligan.experiment.arms import Arm, arm
from mulligan.experiment.metrics import timeless
from mulligan.experiment.probes import Findings, Probe, findings, offered
from mulligan.experiment.settings import Experiment
from mulligan.experiment.stages import Bench, alive, reader
from mulligan.experiment.transfer import aside, asked_again, changed, learnt
from mulligan.nouns import noun
from mulligan.store import Store
from mulligan.tasks.variants import Variant

STAGE = "probes"


@noun
class Probing:
    """What one way of reading made of all probes, and the arms that read so."""

    arms: tuple[str, ...]
    findings: Findings


def check(experiment: Experiment) -> None:
    """Raises UsageError for probes that no arm could answer."""
    if experiment.transfer.probes and not readings(experiment):
        raise UsageError("transfer.probes asks how arms read the checked store: name one, such as checked_threshold")


def counterfactuals(bench: Bench) -> tuple[Probing, ...]:
    """Probe every way in which an arm of the experiment reads the checked store; nothing where the experiment wants no probes."""
    if not bench.experiment.transfer.probes:
        return ()
    asked = probes(bench)
    return tuple(_probed(bench, asked, names) for names in readings(bench.experiment))


def readings(experiment: Experiment) -> list[tuple[str, ...]]:
    """The arms with the checked store that show what they find, those together that differ in the selector alone: a probe needs none."""
    ways: dict[tuple[bool, bool], list[str]] = {}
    for name in experiment.arms:
        if _is_probed(one := arm(name)):
            ways.setdefault((one.conditions, one.rewrite), []).append(name)
    return [tuple(names) for names in ways.values()]


def _is_probed(one: Arm) -> bool:
    return one.store == "checked" and one.kind == "plain" and one.selector != "never"


def probes(bench: Bench) -> list[Probe]:
    """A probe of every record of which there is a look-alike or a placebo."""
    known = learnt(bench)
    false, placebo = (_first(changed(bench, kind, known).variants) for kind in ("lookalike", "placebo"))
    return [
        Probe(
            record=record,
            holds=asked_again(task),
            changed=aside(false[record.id].task, task.id) if record.id in false else None,
            placebo=aside(placebo[record.id].task, task.id) if record.id in placebo else None,
            renamed=renamed(false[record.id].change) if record.id in false else {},
        )
        for record, task in known
        if record.id in false or record.id in placebo
    ]


def renamed(change: str) -> dict[str, str]:
    """The names of a change such as `texas (state) → boston (city)`: old → new. Brackets are explanations, (nothing) is no name."""
    parts = [part.partition(" → ") for part in change.split(", ")]
    if not all(arrow for _, arrow, _ in parts):
        parts = [change.partition(" → ")]
    return {_bare(old): _bare(new) for old, arrow, new in parts if arrow and (_bare(old) or _bare(new))}


def _bare(name: str) -> str:
    return re.sub(r"\([^()]*\)$", "", name.strip()).strip("'\" ")


def _first(made: tuple[Variant, ...]) -> Mapping[str, Variant]:
    """The first variant of every record."""
    return {variant.record: variant for variant in reversed(made)}


def _probed(bench: Bench, asked: Sequence[Probe], names: tuple[str, ...]) -> Probing:
    done = []
    with Store(bench.memory_path("checked"), frozen=True) as store:
        memory = reader(bench, arm(names[0]), store)
        for answer in map(alive, bench.players.run(partial(offered, memory), asked)):
            done.append(answer)
            bench.progress(f"{STAGE} {names[0]}", len(done), len(asked))
    found = findings(asked, done)
    found = replace(found, usage=timeless(found.usage))
    bench.ledger.add_usage(f"{STAGE} {names[0]}", stage=f"{STAGE} {names[0]}", task="", usage=found.usage)
    return Probing(arms=names, findings=found)
