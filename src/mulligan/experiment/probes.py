"""Counterfactual probes: whether a lesson is taken where it holds, and left or changed where it does not (SPEC B5).

In: a memory, and probes: a record, a task in whose state it holds (s+), and perhaps the same task with one fact changed so that it does not
(s-), and with a fact changed that does not matter (s0). Who makes them is the world's business. Out: how often the record was accepted in
each, with denominators and intervals. A record is accepted when its condition holds, where the memory tests conditions, and its rewriting
is, where the memory rewrites; so a memory without rewriting can be probed as well. s- and s0 are asked only of what was accepted in s+.
Nothing is written. Not promised: that an accepted text is good advice; what a rewrite in s- has to name is judged by rule.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from mulligan.experiment.metrics import Rate
from mulligan.experiment.statistics import Interval, cluster_interval, difference_interval
from mulligan.memory import Memory
from mulligan.naming import fold, stands_in
from mulligan.nouns import noun
from mulligan.read import retrieval
from mulligan.records import Record, Rewritten, Situation, Task, Usage

State = Literal["s+", "s-", "s0"]
Fate = Literal[
    Rewritten,
    "condition",  # it does not hold
    "not_shown",  # it does not fit the budget, or is unchecked and reads like an instruction
]


@noun
class Probe:
    """One record and the states that it is tried in. `renamed`: the facts that s- changes, old name or value → new; "" where it is gone."""

    record: Record
    holds: Task
    changed: Task | None = None
    placebo: Task | None = None
    renamed: Mapping[str, str]


@noun
class Answer:
    """What became of the record in one state, the words that the agent would be handed, and what was wrong with those of the model."""

    fate: Fate
    words: str = ""
    why: str = ""

    @property
    def accepted(self) -> bool:
        return self.fate == "accepted"


@noun
class Probed:
    """One probe's answers by state; `right`: in s- it was rejected, or rewritten correctly; None where it was not asked."""

    record: str
    group: str
    answers: Mapping[State, Answer]
    right: bool | None = None


@noun
class Proportion:
    """A share with its 95 % interval; groups of tasks are drawn as a whole."""

    rate: Rate
    interval: Interval


@noun
class Gap:
    """A difference of two shares, in [-1, 1], with its interval; None where a share has no denominator."""

    value: float | None
    interval: Interval


@noun
class Findings:
    """What all probes say. Denominators: `accepted` all probes; `adapted`, `kept` those accepted in s+ that have an s-, an s0; `passed` all
    with an s-.
    """

    accepted: Proportion  # P(accept | s+)
    adapted: Proportion  # P(reject or correct rewrite | s-)
    kept: Proportion  # P(accept | s0)
    passed: Proportion  # accepted in s+ and right in s-: MemHarness' own measure
    difference: Gap  # accepted - adapted: takes what holds more readily than it leaves what does not
    apart: Gap  # P(accept | s0) - P(accept without a correct rewrite | s-): tells a change that matters from one that does not
    fates: Mapping[State, Mapping[str, int]]
    usage: Usage
    probes: tuple[Probed, ...]


def probe(memory: Memory, probes: Sequence[Probe]) -> Findings:
    """Offer each record in each of its states to `memory`, one after another. Raises what the model and the world raise."""
    return findings(probes, [offered(memory, one) for one in probes])


def offered(memory: Memory, one: Probe) -> tuple[Probed, Usage]:
    """The answers of one probe, and what they cost; many may be asked at once."""
    answers, spent = dict[State, Answer](), Usage()
    states: list[tuple[State, Task | None]] = [("s+", one.holds), ("s-", one.changed), ("s0", one.placebo)]
    for state, task in states:
        if task is not None and (state == "s+" or answers["s+"].accepted):
            answers[state], usage = _answered(memory, task, one.record)
            spent += usage
    changed = answers.get("s-")
    right = None if changed is None else not changed.accepted or is_correct(changed.words, one.renamed)
    return Probed(record=one.record.id, group=one.holds.group, answers=answers, right=right), spent


def is_correct(words: str, renamed: Mapping[str, str]) -> bool:
    """The rule for a rewrite in s-: it names something new, and nothing old. Where all that changed is gone, nothing is correct."""
    said, new = fold(words), [name for name in renamed.values() if name]
    return any(stands_in(name, said) for name in new) and not any(stands_in(name, said) for name in renamed)


def _answered(memory: Memory, task: Task, record: Record) -> tuple[Answer, Usage]:
    with memory.world.start(task) as state:
        situation = Situation(task=task, facts=memory.facts(task), observation=memory.world.observe(state))
    spent: list[Usage] = []
    if memory.settings.conditions and not retrieval.condition_holds(record.condition, situation, memory.judge(spent)):
        return Answer(fate="condition"), sum(spent, Usage())
    told = memory.told(situation, [record])
    fate: Fate = told.rewrite or ("accepted" if told.records else "not_shown")
    words = told.words or (told.text if told.records else "")
    return Answer(fate=fate, words=words, why=told.why), sum(spent, told.usage)


def findings(probes: Sequence[Probe], answered: Sequence[tuple[Probed, Usage]]) -> Findings:
    """What the answers to `probes`, given in their order, say together."""
    done = [one for one, _ in answered]

    def drawn(chosen: Iterable[Probed], yes: Callable[[Probed], bool]) -> Sample:
        return Sample([(float(yes(one)), one.group) for one in chosen])

    asked = [one for one in done if one.right is not None]
    accepted = drawn(done, lambda one: one.answers["s+"].accepted)
    adapted, wrong = drawn(asked, lambda one: one.right is True), drawn(asked, lambda one: one.right is False)
    kept = drawn((one for one in done if "s0" in one.answers), lambda one: one.answers["s0"].accepted)
    tested = [one for one, source in zip(done, probes, strict=True) if source.changed is not None]
    states: tuple[State, ...] = ("s+", "s-", "s0")
    return Findings(
        accepted=accepted.share(),
        adapted=adapted.share(),
        kept=kept.share(),
        passed=drawn(tested, lambda one: one.right is True).share(),
        difference=accepted.less(adapted),
        apart=kept.less(wrong),
        fates={s: dict(sorted(Counter(one.answers[s].fate for one in done if s in one.answers).items())) for s in states},
        usage=sum((usage for _, usage in answered), Usage()),
        probes=tuple(done),
    )


class Sample:
    """Yes or no, as 1 and 0, each with its group."""

    def __init__(self, pairs: Sequence[tuple[float, str]]) -> None:
        self.values, self.groups = [value for value, _ in pairs], [group for _, group in pairs]

    def share(self) -> Proportion:
        """The share of yes."""
        rate = Rate(part=int(sum(self.values)), whole=len(self.values))
        return Proportion(rate=rate, interval=cluster_interval(self.values, self.groups))

    def less(self, other: "Sample") -> Gap:
        """The difference of the shares."""
        one, two = self.share().rate.value, other.share().rate.value
        interval = difference_interval((self.values, self.groups), (other.values, other.groups))
        return Gap(value=None if one is None or two is None else one - two, interval=interval)
