"""Changed tasks for transfer and probes: made from stored corrections, asserted by the world before use.

In: records with the tasks they were learnt on, a world, a kind of change. Out: Pairs: the variants with the outcome of every assertion, and
why no variant came of the other records. Asserted of all: the correction solves its source, the changed task is solved by its own gold,
which is not empty. Of a look-alike: the condition is false, the correction wrong, both as stored and with renamed values carried over. Of a
placebo: the condition is true, the correction right. Of the others: the correction, carried over, is right; whether the condition still
holds there is told. A record without a predicate has no condition that could turn false: that is told as well. Not promised: that a
question made by a rule reads as a person would have asked it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from mulligan.conditions import holds
from mulligan.errors import UsageError
from mulligan.nouns import noun
from mulligan.protocols import World
from mulligan.records import Record, Task
from mulligan.tasks.drafts import Draft, Kind, Lesson, Reason, drawn, lesson

MOST = 60  # pairs of a kind (SPEC A6)
TRIED = 40  # drafts of one record that are checked

Build = Callable[[Kind, Lesson, Path, Sequence[Task], int], Iterator[Draft]]
Judge = Callable[[Task, str], bool | None]  # whether an action is right on a task; None for no verdict


@noun
class Asserted:
    """What the world said of a draft. `condition` is whether the record's predicate holds on the changed task; None without one."""

    source_solved: bool
    gold_solved: bool
    condition: bool | None
    stored_solved: bool  # by the correction as it is stored
    carried_solved: bool  # by the correction with what was renamed carried over

    @property
    def condition_false(self) -> bool:
        return self.condition is False


@noun
class Variant:
    """A changed task that passed its assertions. `change` says what was changed, `gold` is an action that solves it."""

    kind: Kind
    task: Task
    source: str
    record: str
    rule: str
    change: str
    gold: str
    stored: str
    carried: str
    asserted: Asserted


@noun
class Pairs:
    """The variants of one kind; why the other records gave none; and for every rule what became of its drafts, `made` or a reason."""

    kind: Kind
    variants: tuple[Variant, ...]
    left_out: Mapping[Reason, int]
    rules: Mapping[str, Mapping[str, int]]


def pairs(
    learnt: Sequence[tuple[Record, Task]],
    world: World,
    kind: Kind,
    folder: str | Path,
    *,
    others: Sequence[Task] = (),
    most: int = MOST,
    each: int = 1,
    seed: int = 0,
) -> Pairs:
    """At most `most` variants of a kind, at most `each` of a record; source tasks take turns, in an order drawn from the seed.

    A record gives its second variant when all others gave their first, or none. `others` are further tasks about the same data, whose
    wordings may serve; a look-alike or paraphrase that is one of their source tasks is not taken. What is built (databases) goes below
    `folder`. Raises UsageError for a domain without a builder.
    """
    made: list[Variant] = []
    left_out: Counter[Reason] = Counter()
    rules: dict[str, Counter[str]] = {}
    taken: set[str] = set()
    searches: dict[str, _Search] = {}
    for turn, (record, task) in product(range(each), _in_turns(learnt, seed)):
        if len(made) >= most:
            break
        if turn == 0:
            given = lesson(record, task)
            build, judged = builder(task.domain)
            drafts = build(kind, given, Path(folder), others, seed)
            searches[record.id] = _Search(world, kind, given, judged(world, given), drafts, rules, taken)
        if search := searches.get(record.id):
            found = (search.unfit() if turn == 0 else None) or search.next()
            if isinstance(found, Variant):
                made.append(found)
            else:
                del searches[record.id]
                left_out[found] += turn == 0
    counts = {reason: count for reason, count in left_out.items() if count}
    return Pairs(kind=kind, variants=tuple(made), left_out=counts, rules={rule: dict(outcomes) for rule, outcomes in rules.items()})


def builder(domain: str) -> tuple[Build, Callable[[World, Lesson], Judge]]:
    """The builder of a domain, and how actions are judged there. Imported when asked for: what it works with may be an extra."""
    match domain:
        case "code":
            from mulligan.tasks import variants_code

            return variants_code.drafts, _answers
        case "sql":
            from mulligan.tasks import variants_sql

            return variants_sql.drafts, _answers
        case "textgame":
            from mulligan.tasks import variants_games

            return variants_games.drafts, variants_games.judge
    raise UsageError(f"no changed tasks can be made of the domain {domain}: there are builders for code, sql and textgame")


def _answers(world: World, given: Lesson) -> Judge:
    """Right is what solves a task at once. On held-out tasks the verdict says so too, by the same rules; only agents are not told."""

    def solves(task: Task, action: str) -> bool | None:
        with world.start(task) as state:
            verdict = world.act(state, action)
        return verdict.solved if verdict.completed else None

    return solves


def _in_turns(learnt: Sequence[tuple[Record, Task]], seed: int) -> list[tuple[Record, Task]]:
    """All records, each once: first one of every source task, then a second one of those that have it."""
    once = {record.id: (record, task) for record, task in learnt}
    order = sorted(once.values(), key=lambda pair: drawn(seed, pair[0].id))
    turns: Counter[str] = Counter()
    ranked = []
    for record, task in order:
        ranked.append((turns[task.id], drawn(seed, task.id), record, task))
        turns[task.id] += 1
    return [(record, task) for _, _, record, task in sorted(ranked, key=lambda entry: entry[:2])]


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for drafts of one record that pass. `rules` and `taken` are kept over all records."""

    world: World
    kind: Kind
    given: Lesson
    judge: Judge
    drafts: Iterator[Draft]
    rules: dict[str, Counter[str]]
    taken: set[str]

    def unfit(self) -> Reason | None:
        """What is wrong with the record on its own source."""
        condition = self.given.record.condition
        if condition.kind == "predicate" and not holds(condition.predicate, self.world.facts(self.given.task)):
            return "condition_off"
        right = self.judge(self.given.task, self.given.correction)
        return None if right else "undecided" if right is None else "source_unsolved"

    def next(self) -> Variant | Reason:
        """The next variant, or the reason of the draft that came furthest."""
        reasons: list[Reason] = []
        for _, draft in zip(range(TRIED), self.drafts, strict=False):
            found = self._checked(draft)
            outcomes = self.rules.setdefault(draft.rule, Counter())
            if isinstance(found, Variant):
                outcomes["made"] += 1
                self.taken.add(self._content(draft))
                return found
            outcomes[found] += 1
            reasons.append(found)
        return max(reasons, key=FURTHEST.index, default="no_rule")

    def _checked(self, draft: Draft) -> Variant | Reason:
        given, condition = self.given, self.given.record.condition
        if draft.fault is not None:
            return draft.fault
        if self._content(draft) in self.taken:
            return "repeated"
        truth = holds(condition.predicate, self.world.facts(draft.task)) if condition.kind == "predicate" else None
        if self.kind == "lookalike" and truth:
            return "condition_stays"
        if self.kind == "placebo" and truth is False:
            return "condition_lost"
        gold, stored = self.judge(draft.task, draft.gold), self.judge(draft.task, given.correction)
        carried = stored if draft.carried == given.correction else self.judge(draft.task, draft.carried)
        if gold is None or stored is None or carried is None:
            return "undecided"
        if not gold:
            return "gold_fails"
        if self.kind == "lookalike" and (stored or carried):
            return "still_right"
        if self.kind != "lookalike" and not carried:
            return "not_right"
        return Variant(
            kind=self.kind,
            task=draft.task,
            source=given.task.id,
            record=given.record.id,
            rule=draft.rule,
            change=draft.change,
            gold=draft.gold,
            stored=given.correction,
            carried=draft.carried,
            asserted=Asserted(source_solved=True, gold_solved=True, condition=truth, stored_solved=stored, carried_solved=carried),
        )

    def _content(self, draft: Draft) -> str:
        """What makes two variants the same pair: the task, and the correction that it is about."""
        return f"{draft.task.id} {self.given.correction}"


# reasons in the order of how far a draft came
FURTHEST: Sequence[Reason] = (
    "no_rule",
    "repeated",
    "gold_fails",
    "gold_empty",
    "condition_stays",
    "condition_lost",
    "undecided",
    "still_right",
    "not_right",
)
