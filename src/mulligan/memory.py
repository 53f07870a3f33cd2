"""Memory: learn from an episode, recall for a situation, settle how it went. Read this first.

learn :  Episode → signals → proposals → checks → admission → distillation → store
recall:  Situation → need → search → retrieval → selection → reconstruction (→ rewriting) → Guidance → the agent acts → settle

This is the only module that knows the order of the stages. `recall` writes nothing; its receipt comes back through `settle`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mulligan.edits import Likeness, distance
from mulligan.embeddings import SAMPLE, Calibration, RememberingEmbedder, StaticEmbedder, calibrate
from mulligan.errors import UsageError
from mulligan.meter import estimate_tokens
from mulligan.nouns import Json
from mulligan.pool import Pool
from mulligan.protocols import Embedder, Model, Selector, State, World
from mulligan.read import credit, need, reconstruction, retrieval, rewriting
from mulligan.read.selection import Top1
from mulligan.records import (
    Attempt,
    Candidate,
    Check,
    Condition,
    Decision,
    Episode,
    Failure,
    Guidance,
    Outcome,
    Proposal,
    Receipt,
    Record,
    Rewritten,
    Selection,
    Situation,
    Task,
    Usage,
)
from mulligan.search import record_text, unfit
from mulligan.store import Store
from mulligan.write import admission, checks, distillation, proposals, retention, signals

LARGEST_PANEL = 1_000  # tasks that a long-lived memory tests conditions against: every lesson is held against all of them
KEPT_FACTS = 4 * LARGEST_PANEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an experiment varies. The defaults are COUNTERMEM's where its paper gives them (SPEC A2, A3)."""

    alternatives: int = 4  # checked for one failed action, from all proposers together
    from_model: int = 2  # of which the model is asked for so many; 0 asks it for none
    threshold: Fraction = admission.THRESHOLD
    rollout: checks.Rollout | None = None  # how what is tried is followed to an outcome; None judges the action alone
    verify: bool = True  # False stores the first proposal as unchecked advice
    capacity: int = retention.CAPACITY
    retention: str = "utility"
    partial: bool = False  # True also recalls corrections that did better without solving their task
    conditions: bool = True  # False leaves conditions out of the filter and of the text
    candidates: int = retrieval.LIMIT
    min_score: float = retrieval.MIN_SCORE
    pool: int = 50  # search hits that are scored
    budget: int = reconstruction.BUDGET  # tokens of guidance
    contrast: bool = False  # True shows the failed action beside the better one
    rewrite: bool = False  # True has the model rewrite what is shown for the present task, or reject it
    withheld: Fraction = Fraction(1, 20)  # of what would be shown is withheld at random, so that what records do can be told; 0 never
    need: float = need.LEAST  # a lesson is shown where the agent by itself fails at least so often; 0 always


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What came of one failed attempt: a decision for every proposal, the record if one was admitted, and the cost."""

    attempt: Attempt
    decisions: tuple[Decision, ...]
    record: Record | None
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The block for an agent and the records that it speaks for. Where they were rewritten: the words alone, what became of them, and what
    was wrong with them, if so.
    """

    text: str = ""
    records: tuple[str, ...] = ()
    words: str = ""
    rewrite: Rewritten = ""
    why: str = ""
    usage: Usage = field(default_factory=Usage)


class Memory:
    """A store of checked lessons about one world.

    `model` proposes alternatives and judges conditions (without it only operators propose, and judged conditions do not hold).
    `panel` are tasks of the same domain against which conditions are tested; tasks that were learnt from are added to it, up to
    `LARGEST_PANEL` in all.
    """

    def __init__(
        self,
        store: Store,
        world: World,
        *,
        embedder: Embedder | None = None,
        model: Model | None = None,
        selector: Selector | None = None,
        settings: Settings | None = None,
        panel: Sequence[Task] = (),
        pool: Pool | None = None,
    ) -> None:
        self.store = store
        self.world = world
        self.embedder = embedder or StaticEmbedder()
        self.model = model
        self.selector = selector or Top1()
        self.settings = settings or Settings()
        if self.settings.rewrite and model is None:
            raise UsageError("lessons are rewritten by a language model: give the memory one, or leave rewrite out of its settings")
        self._pool = pool or Pool()
        self._alike = Likeness(world.tokens)
        self._panel = {task.id: task for task in panel}
        self._facts: dict[str, tuple[Task, Mapping[str, Json]]] = {}
        self._lengths: dict[str, int] = {}
        self._calibrations: dict[tuple[str, str], Calibration] = {}
        self._asked: tuple[str, NDArray[np.float32]] = ("", np.empty(0, np.float32))
        self._sampled = RememberingEmbedder(self.embedder)  # what calibration looks at hardly changes from one record to the next

    def learn(self, episode: Episode) -> list[Decision]:
        """Try local alternatives to the failed actions of `episode`, and store what verifiably did better.

        Episodes without a failure are worth learning too: they tell where no lesson is needed. Only source tasks may write: raises
        UsageError for others. Learning the same episode again changes nothing.
        """
        decisions = [decision for examined in self.examine(episode) for decision in self.admit(episode, examined)]
        self.note(episode)
        return decisions

    def note(self, episode: Episode) -> None:
        """The part of `learn` that notes whether the agent solved the task by itself, at once; nothing if a lesson was shown."""
        found = [a for a in episode.attempts if a.trial == 0]
        if not found or any(receipt.shown for receipt in episode.receipts) or not found[-1].verdict.completed:
            return
        solved = found[-1].verdict.solved and not any(map(signals.is_failure, found))
        gist, vector = self.gist(episode.task), self._vector(episode.task)
        self.store.add_unaided(episode.task, solved=solved, gist=gist, vector=vector, embedder=self.embedder.id)

    def examine(self, episode: Episode) -> list[Examined]:
        """The part of `learn` that writes nothing: propose, check, decide, distil. May run for many episodes at once."""
        if episode.task.split != "source":
            raise UsageError(f"task {episode.task.id} is of the {episode.task.split} split: only source tasks may write")
        task = replace(episode.task, prompt=reconstruction.strip(episode.task.prompt))  # a transcript may carry guidance even there
        episode = replace(episode, task=task) if task != episode.task else episode
        found = signals.failures(episode, tokens=self.world.tokens, clean=reconstruction.strip)
        return [self._examine(episode, failure) for failure in found]

    def admit(self, episode: Episode, examined: Examined) -> list[Decision]:
        """Store the evidence and the record of one examined failure, in one transaction; evict at capacity."""
        with self.store.transaction():
            episode_id = self.store.add_episode(episode)
            for receipt in episode.receipts:
                self.store.add_receipt(receipt)
                for attempt in episode.attempts:
                    if attempt.index == receipt.attempt and attempt.verdict.completed and (receipt.shown or receipt.withheld):
                        self.store.add_utility(receipt.id, float(attempt.verdict.utility))
            if examined.record is not None:
                (vector,) = self.embedder.embed([record_text(examined.record)])
                self.store.add_record(examined.record, vector, embedder=self.embedder.id)
            self.store.add_decisions(episode_id, examined.attempt.index, examined.decisions)
            if examined.record is not None:
                self._evict(examined.record.scope, examined.record.domain)
                self._calibrations.pop((examined.record.scope, examined.record.domain), None)
        if len(self._panel) < LARGEST_PANEL:
            self._panel.setdefault(episode.task.id, episode.task)
        return list(examined.decisions)

    def recall(self, task: Task, history: Sequence[Attempt] = (), *, observation: str = "", max_attempts: int = 1) -> Guidance:
        """The lesson that helps at this point of `task`, after the attempts in `history`; or an empty guidance."""
        situation = Situation(task=task, facts=self.facts(task), observation=observation, history=tuple(history), max_attempts=max_attempts)
        situation = replace(situation, need=self.need(situation))
        if situation.need < self.settings.need:
            found, usage = list[Candidate](), Usage()
            selection = Selection(chosen=None, values=(situation.need,), skip=self.settings.need, policy="need")
        else:
            found, usage = self.retrieve(situation)
            selection = self.selector.select(situation, found)
        told = self.told(situation, [found[place].record for place in selection.places])
        text, shown = told.text, told.records
        aside: tuple[str, ...] = ()
        if shown and (share := self.settings.withheld):
            if credit.is_withheld(task.scope, task.id, len(history), share):
                text, shown, aside = "", (), shown
            done = float(share if aside else 1 - share)
            selection = replace(selection, propensity=selection.propensity * done)
        receipt = receipt_of(situation, found, shown, selection, aside, told.rewrite)
        return Guidance(text=text, records=shown, receipt=receipt, usage=usage + told.usage)

    def told(self, situation: Situation, chosen: Sequence[Record]) -> Told:
        """What the agent is told of the chosen records: their quotation, or what the model made of it for `situation`."""
        how = self.settings
        text, shown = self.quoted(chosen, rewriting.READ if how.rewrite else None)
        if not shown or not how.rewrite or self.model is None:
            return Told(text=text, records=shown)
        read = [record for record in chosen if record.id in shown]

        def fits(text: str) -> bool:
            return estimate_tokens(reconstruction.render_rewritten(text, read)) <= how.budget

        ask = partial(rewriting.rewrite, model=self.model, world=self.world, fits=fits, commands=reconstruction.commands)
        made = ask(situation, text, read)
        says = made.outcome == "accepted" or (made.outcome == "empty" and fits(""))
        block = reconstruction.render_rewritten(made.text, read) if says else ""
        kept = shown if made.text else ()
        return Told(text=block, records=kept, words=made.text, rewrite=made.outcome, why=made.why, usage=made.usage)

    def quoted(self, records: Sequence[Record], budget: int | None = None) -> tuple[str, tuple[str, ...]]:
        """The block that quotes `records` under the settings, or under another `budget` of tokens, and the ids that are in it."""
        how = self.settings
        return reconstruction.render(
            records,
            count=estimate_tokens,
            budget=how.budget if budget is None else budget,
            contrast=how.contrast,
            conditions=how.conditions,
        )

    def settle(self, receipt: Receipt, outcome: Outcome | None = None, *, utility: float | None = None) -> None:
        """Report how an attempt with this guidance went: `outcome` against the same attempt without it, `utility` (in [0, 1]) by itself.

        Either counts once a receipt. Utilities of attempts in which a lesson was withheld are what tells its effect: report them too.
        """
        if utility is not None and not 0 <= utility <= 1:
            raise UsageError(f"a utility is between 0 and 1, not {utility}")
        with self.store.transaction():
            self.store.add_receipt(receipt)
            if outcome is not None:
                self.store.settle(receipt.id, outcome)
            if utility is not None:
                self.store.add_utility(receipt.id, utility)

    def quarantine(self) -> list[credit.Effect]:
        """Take out of recall every active record that harms, by what is known of attempts with and without it; what was taken out."""
        return quarantine(self.store)

    def need(self, situation: Situation) -> float:
        """How often the agent fails by itself on what is nearly this task; 1 after a visible failure, or where no task is near."""
        if situation.failed is not None:
            return 1.0
        task = situation.task
        known = self.store.unaided(task.scope, task.domain)
        others = known.other_than(task.id, task.group)
        if not others.any():
            return 1.0
        cosines = np.vecdot(known.vectors, self._vector(task))[others]  # all of them: choosing rows first would copy them
        similarities = self._calibration(task).scale(cosines)
        found = need.need(similarities, known.solved[others])
        return 1.0 if found is None else found

    def retrieve(self, situation: Situation) -> tuple[list[Candidate], Usage]:
        """The candidates for `situation`, best first, and what judging their conditions cost."""
        spent: list[Usage] = []
        judge = self.judge(spent)

        def holds(record: Record) -> bool:
            return not self.settings.conditions or retrieval.condition_holds(record.condition, situation, judge)

        def may(record: Record) -> bool:  # what a predicate shuts out needs no score; what a model must be asked for waits for it
            return self.recallable(record) and (record.condition.kind == "judged" or holds(record))

        kept = retrieval.candidates(
            situation,
            [found for found in self._search(situation.task) if may(found.record)],
            traits=distillation.traits(situation.facts),
            applies=lambda record: record.condition.kind != "judged" or holds(record),
            alike=self._alike,
            bound=self._alike.at_most,
            limit=self.settings.candidates,
            min_score=self.settings.min_score,
        )
        return [replace(candidate, tokens=self.tokens(candidate.record)) for candidate in kept], sum(spent, Usage())

    def judge(self, spent: list[Usage]) -> Callable[[Condition, Situation], bool]:
        """What judges conditions in words by the model, and notes in `spent` what it cost; without a model none holds."""

        def judged(condition: Condition, situation: Situation) -> bool:
            if self.model is None:
                return False
            truth, completion = retrieval.judge(condition, situation, self.model)
            spent.append(completion.usage)
            return truth

        return judged

    def tokens(self, record: Record) -> int:
        """What showing a record alone costs; counted once a record."""
        if record.id not in self._lengths:
            if len(self._lengths) >= KEPT_FACTS:
                self._lengths.clear()
            self._lengths[record.id] = estimate_tokens(self.quoted([record])[0])
        return self._lengths[record.id]

    def recallable(self, record: Record) -> bool:
        """Whether a record may be shown at all: a checked correction that did not solve its task is no example."""
        return record.kind != "correction" or record.gain.solved or not record.gain.verified or self.settings.partial

    def facts(self, task: Task) -> Mapping[str, Json]:
        """What conditions may test about `task`; computed by the world once a task."""
        known = self._facts.get(task.id)
        if known is None or known[0] != task:
            if len(self._facts) >= KEPT_FACTS:
                self._facts.clear()
            known = self._facts[task.id] = (task, self.world.facts(task))
        return known[1]

    def gist(self, task: Task) -> str:
        """What a task is compared by: its prompt with values replaced by what they are, where the world knows how."""
        return str(self.facts(task).get("gist") or task.prompt)

    def _vector(self, task: Task) -> NDArray[np.float32]:
        """The vector of what a task is about; one recall asks twice."""
        gist = self.gist(task)
        if self._asked[0] != gist:
            self._asked = (gist, self.embedder.embed([gist])[0])
        return self._asked[1]

    def _search(self, task: Task) -> list[retrieval.Found]:
        hits = self.store.search(
            task.prompt,
            self._vector(task),
            scope=task.scope,
            domain=task.domain,
            limit=self.settings.pool,
            exclude_groups=frozenset({task.group}),
            exclude_tasks=frozenset({task.id}),
        )
        if not hits:
            return []
        scaled = self._calibration(task).scale([hit.similarity for hit in hits])
        stored = self.store.several([hit.record_id for hit in hits])
        return [
            retrieval.Found(record=s.record, statistics=s.statistics, similarity=round(float(similarity), 4))
            for s, similarity in zip(stored, scaled, strict=True)
        ]

    def _calibration(self, task: Task) -> Calibration:
        """How cosines to the records of the task's scope and domain read; measured again after this memory has written there."""
        place = (task.scope, task.domain)
        if place not in self._calibrations:
            self.store.check_embedder(self.embedder.id, self.embedder.dim)
            stored = self.store.records(scope=task.scope, domain=task.domain, limit=SAMPLE)
            self._calibrations[place] = calibrate(self._sampled, [record_text(s.record) for s in stored])
        return self._calibrations[place]

    def alternatives(self, task: Task, failure: Failure) -> tuple[list[Check], list[Decision], Usage]:
        """Local alternatives to a failed action, checked from the state it was tried in; refused proposals; the cost."""
        attempt = failure.attempt
        with self.world.start(task) as state:
            if state.digest != attempt.state:  # a world whose actions leave no trace needs no replay of the prefix
                for earlier in failure.before:
                    self.world.act(state, earlier.action)
            kept, refused, usage = self._propose(task, state, failure)
            if not self.settings.verify:
                return [], [*admission.decide_unverified(kept), *refused], usage
            if not kept:
                return [], refused, usage
            checked, spent = checks.check(self.world, state, failure, kept, self._pool, self.settings.rollout)
        return checked, refused, usage + spent

    def _examine(self, episode: Episode, failure: Failure) -> Examined:
        attempt = failure.attempt
        checked, others, usage = self.alternatives(episode.task, failure)
        decisions = [*admission.decide(checked, size=self._size(attempt), threshold=self.settings.threshold), *others]
        record = self._distil(episode, attempt, decisions, tried=len(checked))
        if record is not None and (why := unfit(record)):  # checked, and yet no lesson: the decision says so and nothing is stored
            decisions, record = [replace(d, reason=why[0]) if d.admitted else d for d in decisions], None
        linked = [replace(d, record=record.id) if record and d.admitted else d for d in decisions]
        return Examined(attempt=attempt, decisions=tuple(linked), record=record, usage=usage)

    def _propose(self, task: Task, state: State, failure: Failure) -> tuple[list[Proposal], list[Decision], Usage]:
        wanted, usage, from_model = self.settings.from_model, Usage(), list[Proposal]()
        if self.model is not None and wanted:
            from_model, completion = proposals.from_model(task, failure, self.model, manual=self.world.manual, limit=wanted, seed=0)
            usage = completion.usage
        kept, refused = proposals.choose(
            failure.attempt.action,
            proposals.from_retry(failure, self.world.tokens),
            from_model,
            self.world.edits(state, failure.attempt.action, failure.attempt.verdict),
            tokens=self.world.tokens,
            clean=reconstruction.strip,
            limit=self.settings.alternatives,
        )
        return kept, refused, usage

    def _size(self, attempt: Attempt) -> admission.Size:
        return lambda proposal: distance(attempt.action, proposal.action, self.world.tokens)

    def _distil(self, episode: Episode, attempt: Attempt, decisions: Sequence[Decision], tried: int) -> Record | None:
        others = [t for t in self._panel.values() if t.group != episode.task.group and t.domain == episode.task.domain]
        panel = distillation.Panel(texts=tuple(t.prompt for t in others), facts=tuple(self.facts(t) for t in others))
        for decision in decisions:
            if decision.admitted:
                return distillation.distil(
                    episode,
                    attempt,
                    decision,
                    facts=self.facts(episode.task),
                    panel=panel,
                    tokens=self.world.tokens,
                    tried=tried,
                )
        return None

    def _evict(self, scope: str, domain: str) -> None:
        if self.store.holds_more(self.settings.capacity, scope=scope, domain=domain):
            standing = self.store.records(scope=scope, domain=domain)
            records = [retention.Standing(record=s.record, statistics=s.statistics, sequence=s.sequence) for s in standing]
            vectors = self.store.vectors([s.record.id for s in standing])
            self.store.set_status(retention.strategy(self.settings.retention)(records, vectors), "retired", "evicted")


def receipt_of(
    situation: Situation,
    found: Sequence[Candidate],
    shown: tuple[str, ...],
    selection: Selection,
    withheld: tuple[str, ...] = (),
    rewrite: Rewritten = "",
) -> Receipt:
    """What was found and shown at a decision point."""
    return Receipt(
        scope=situation.task.scope,
        task=situation.task.id,
        attempt=len(situation.history),
        candidates=tuple(c.record.id for c in found),
        similarities=tuple(round(c.similarity, 6) for c in found),
        shown=shown,
        withheld=withheld,
        selection=selection,
        need=round(situation.need, 6),
        rewrite=rewrite,
    )


def harmful(store: Store) -> list[credit.Effect]:
    """The active records of `store` that harm by the rule, by what is known of attempts with and without them."""
    active = {s.record.id for s in store.records(scope=None)}
    return [e for e in credit.effects((r.receipt, r.utility) for r in store.results()) if e.harms and e.record in active]


def quarantine(store: Store) -> list[credit.Effect]:
    """Take them out of recall; what was taken out."""
    found = harmful(store)
    with store.transaction():
        for e in found:
            store.set_status(e.record, "stale", f"quarantined: {credit.told(e)}; rule {credit.RULE}")
    return found
