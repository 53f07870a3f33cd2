"""Notes: lessons in words from finished plays: the order in which they are written, validated and stored.

write:  Episode → contract → distil → (play with it alone, and a sibling → validation → revise)* → decision → store → Record

In: a memory, an episode of a source task, and someone who plays a task with one note. Out: a `Written`: the record, if one was admitted,
and the decision on every candidate. Candidates, decisions and plays are kept in the store as evidence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from mulligan.errors import UsageError
from mulligan.memory import Memory
from mulligan.meter import estimate_tokens
from mulligan.nouns import noun
from mulligan.protocols import Model
from mulligan.read import reconstruction
from mulligan.records import (
    Attempt,
    Check,
    Decision,
    Episode,
    Gain,
    Guidance,
    Proposal,
    Reason,
    Receipt,
    Record,
    Selection,
    Task,
    Usage,
)
from mulligan.search import record_text, unfit
from mulligan.write import bank, candidates, contracts, distillation, validation

REVISIONS = 2
Play = Callable[[Task, "Shown"], Episode]  # plays a task with what one note says, under the settings of the plays without


@noun
class Written:
    """What came of one episode. `usage` has the drafts and the plays that validated them."""

    record: Record | None
    decisions: tuple[Decision, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Shown:
    """Stands for a memory that holds one record and always shows it."""

    record: Record
    budget: int = reconstruction.BUDGET

    def recall(self, task: Task, history: Sequence[Attempt] = (), *, observation: str = "", max_attempts: int = 1) -> Guidance:
        """The one record, whatever is asked."""
        text, shown = reconstruction.render([self.record], count=estimate_tokens, budget=self.budget)
        choice = Selection(chosen=0, policy="shown")
        receipt = Receipt(scope=task.scope, task=task.id, attempt=len(history), candidates=(self.record.id,), shown=shown, selection=choice)
        return Guidance(text=text, records=shown, receipt=receipt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes notes into `memory`'s store with `model`. With `play` they are validated; without they are stored as they come."""

    memory: Memory
    model: Model
    play: Play | None = None
    revisions: int = REVISIONS

    def write(self, episode: Episode, siblings: Sequence[Episode] = ()) -> Written:
        """What the play teaches, admitted if it helps there and on the nearest of `siblings` (plays of other source tasks).

        Raises UsageError for a task that is no source task.
        """
        if episode.task.split != "source":
            raise UsageError(f"task {episode.task.id} is of the {episode.task.split} split: only source tasks may write")
        contract = contracts.contract_of(self.memory.world.name, solved=episode.solved)
        manual = self.memory.world.manual
        draft = candidates.distil(episode, self.model, manual=manual, contract=contract)
        usage, decisions = draft.usage, list[Decision]()
        for left in range(self.revisions if self.play else 0, -1, -1):
            record = self._record(episode, draft) if draft.note else None
            if record is None or self.play is None:
                break
            pairs, played, spent = self._validated(episode, record, siblings)
            usage += spent
            reason = validation.decide(pairs)
            gained = replace(record, gain=replace(record.gain, changed=played.utility, solved=played.solved, tried=len(decisions) + 1))
            decisions.append(self._decision(draft, reason, episode, played, gained))
            if reason == "admitted":
                return self._stored(episode, gained, decisions, usage)
            if left:
                uplift = pairs[0].uplift or Fraction(0)
                draft = candidates.revise(episode, self.model, manual=manual, contract=contract, latest=draft, uplift=uplift, played=played)
                usage += draft.usage
        if draft.note is None:
            decisions.append(self._decision(draft, draft.reason or "contract", episode, None, None))
        elif self.play is None:
            record = self._record(episode, draft)
            decisions.append(self._decision(draft, "admitted_unverified", episode, None, record))
            return self._stored(episode, record, decisions, usage)
        return self._stored(episode, None, decisions, usage)

    def _validated(self, episode: Episode, record: Record, siblings: Sequence[Episode]) -> tuple[list[validation.Pair], Episode, Usage]:
        """The source task again with this note alone, and, if it did no harm there, the nearest sibling."""
        assert self.play is not None
        played = self.play(episode.task, Shown(record))
        pairs, usage = [_pair(played, episode)], played.usage
        if siblings and (pairs[0].uplift or 0) >= 0:
            near = self._nearest(episode, siblings)
            other = self.play(near.task, Shown(record))
            pairs.append(_pair(other, near))
            usage += other.usage
        return pairs, played, usage

    def _nearest(self, episode: Episode, siblings: Sequence[Episode]) -> Episode:
        """The sibling whose task is most like the episode's; of another task, of whatever group."""
        others = [e for e in siblings if e.task.id != episode.task.id] or [episode]
        vectors = self.memory.embedder.embed([self.memory.gist(e.task) for e in (episode, *others)])
        return others[int((vectors[1:] @ vectors[0]).argmax())]

    def _record(self, episode: Episode, draft: candidates.Draft) -> Record:
        assert draft.note is not None
        task, memory = episode.task, self.memory
        facts = memory.facts(task)
        return Record(
            kind="procedure" if draft.note.says.startswith(("1.", "Contract")) else "principle",
            domain=task.domain,
            scope=task.scope,
            situation=draft.note.when,
            gist=memory.gist(task),
            original="",
            corrected="",
            diff="",
            principle=draft.note.says,
            traits=distillation.traits(facts),
            gain=Gain(original=episode.utility, changed=episode.utility, solved=episode.solved, verified=self.play is not None),
            provenance=distillation.provenance(episode, episode.last, proposer="note", model=self.model.id),
        )

    @staticmethod
    def _decision(draft: candidates.Draft, reason: Reason, episode: Episode, played: Episode | None, record: Record | None) -> Decision:
        """On a candidate; its check are the plays without and with it."""
        proposal = Proposal(action=draft.note.says if draft.note else draft.text[:2_000], edit="note", proposer="note")
        check = None
        if played is not None and played.last is not None and episode.last is not None:
            check = Check(
                proposal=proposal,
                original=episode.last.verdict,
                changed=played.last.verdict,
                replayed=True,
                state_before=episode.last.state,
                state_after=episode.last.state,
            )
        kept = record.id if record and reason in ("admitted", "admitted_unverified") else ""
        return Decision(proposal=proposal, reason=reason, rule=validation.RULE, check=check, record=kept)

    def _stored(self, episode: Episode, record: Record | None, decisions: Sequence[Decision], usage: Usage) -> Written:
        if record is not None and (why := unfit(record)):
            decisions = [replace(d, reason=why[0], record="") if d.admitted else d for d in decisions]
            record = None
        store, embedder = self.memory.store, self.memory.embedder
        with store.transaction():
            key = store.add_episode(episode)
            if record is not None:
                store.add_record(record, embedder.embed([record_text(record)])[0], embedder=embedder.id)
            if episode.last is not None:
                store.add_decisions(key, episode.last.index, decisions)
        return Written(record=record, decisions=tuple(decisions), usage=usage)


def add_to_bank(writer: Writer, episode: Episode, siblings: Sequence[Episode] = ()) -> Written:
    """A note for MemHarness' bank, unvalidated; retired at once where it is too like one that is there (SPEC B2)."""
    store, embedder, task = writer.memory.store, writer.memory.embedder, episode.task
    stored = store.vectors([s.record.id for s in store.records(scope=task.scope, domain=task.domain)])
    written = writer.write(episode)
    if written.record is not None and bank.is_duplicate(embedder.embed([record_text(written.record)])[0], stored):
        store.set_status(written.record.id, "retired", f"like another: cosine above {bank.ALIKE}")
    return written


def prune_bank(memory: Memory, episodes: Sequence[Episode], *, published: bool = False) -> list[str]:
    """Retire what was used and seldom came with a success (SPEC B2); the ids."""
    active = {s.record.id for s in memory.store.records(scope=None)}
    poor = [key for key, c in bank.counts(episodes, published=published).items() if c.prunable and key in active]
    with memory.store.transaction():
        for key in poor:
            memory.store.set_status(key, "retired", f"utility below {float(bank.LEAST):g} after {bank.USES} uses")
    return poor


def _pair(played: Episode, without: Episode) -> validation.Pair:
    known = [e.utility if e.last and e.last.verdict.completed else None for e in (played, without)]
    return validation.Pair(with_note=known[0], without=known[1])
