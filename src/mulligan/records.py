"""The nouns: frozen dataclasses that the stages hand to one another, and the moves of a record through its life.

Every noun is immutable, keyword-only and made of plain values, so it can be hashed, stored, exported and sent to another
process: what makes one a noun is in `nouns.py`.
"""

from collections.abc import Mapping
from dataclasses import field, fields
from fractions import Fraction
from typing import Any, Literal

from mulligan.kinds import ConditionKind as ConditionKind
from mulligan.kinds import Outcome as Outcome
from mulligan.kinds import Reason as Reason
from mulligan.kinds import RecordKind as RecordKind
from mulligan.kinds import Refusal as Refusal
from mulligan.kinds import Rewritten as Rewritten
from mulligan.kinds import SignalKind as SignalKind
from mulligan.kinds import Split as Split
from mulligan.kinds import Status as Status
from mulligan.nouns import Json, content_id, noun, to_plain

LIFECYCLE: Mapping[str, frozenset[str]] = {
    "proposed": frozenset({"checked", "refused"}),
    "checked": frozenset({"admitted", "refused"}),
    "admitted": frozenset({"active"}),
    "active": frozenset({"stale", "retired"}),
    "stale": frozenset({"active", "retired"}),
    "retired": frozenset({"active"}),
    "refused": frozenset(),
}


def _said(one: Any, *later: str) -> dict[str, Json]:
    """The plain values of a noun, without the `later` fields that say nothing: they came after the first stored rows."""
    return {name: value for name, value in to_plain(one).items() if value or name not in later}


@noun
class Usage:
    """What something cost. Tokens as the model's server counts them; seconds of wall time."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_calls: int = 0
    evaluator_calls: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@noun
class Message:
    """One turn of a conversation with a language model."""

    role: Literal["system", "user", "assistant"]
    content: str


@noun
class Completion:
    """A model's reply. `paid` is False when it came from a cache or a recording; `usage` is what it cost when first made."""

    text: str
    model: str
    usage: Usage
    finish: str = "stop"
    paid: bool = True


@noun
class Signal:
    """One piece of evidence about a failure, extracted by code. `what` is verbatim, `where` a place in the action."""

    kind: SignalKind
    what: str
    where: str = ""


@noun
class Task:
    """One thing to do. `prompt` is what is asked, `context` the surroundings that the agent is shown as well (a schema, a room).

    `payload` is read by the world alone (gold answers, tests, files). `group` is what may not cross splits: a database, a
    repository, a question template. `facts` are known by the loader; `World.facts` adds what can be computed.
    """

    id: str
    domain: str
    benchmark: str
    group: str
    split: Split
    prompt: str
    context: str = ""
    payload: Mapping[str, Json]
    facts: Mapping[str, Json] = field(default_factory=dict)
    scope: str = "default"


@noun
class Verdict:
    """What the world says of one action.

    `completed` False is the third value: time-out, crash of the evaluator, a solver's "unknown"; never a pass, never a fail.
    `feedback`, `signals` and `done` are all that an agent may look at: on held-out tasks they hold nothing that depends on the
    gold answer. `done` says that the episode is over as far as the agent can see. `utility` is exact, in [0, 1]; `hidden` is the same for
    tests that no agent and no proposer ever sees, where there are some.
    """

    completed: bool
    utility: Fraction
    solved: bool
    feedback: str
    signals: tuple[Signal, ...] = ()
    done: bool = False
    evaluator: str
    calls: int = 1
    seconds: float = 0.0
    hidden: Fraction | None = None

    def agrees(self, other: "Verdict") -> bool:
        """True when both say the same of an action: the replay gate (SPEC A3.1) compares with this."""
        return (self.completed, self.utility, self.solved, self.evaluator) == (
            other.completed,
            other.utility,
            other.solved,
            other.evaluator,
        )


@noun
class Selection:
    """A selector's choice: one candidate, a set of them, or none.

    `chosen` is the place of the first that is shown, `more` are those of the others. `values` has one entry a candidate,
    `skip` is the value of showing none; selectors of sets give none of their many values but the best set's, in `skip`'s terms.
    `propensity` is the probability with which the policy chose just this.
    """

    chosen: int | None
    more: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    skip: float = 0.0
    propensity: float = 1.0
    policy: str

    @property
    def places(self) -> tuple[int, ...]:
        """The places of all that is shown, in that order."""
        return () if self.chosen is None else (self.chosen, *self.more)


@noun
class Receipt:
    """What was retrieved and shown at one decision point; `settle` takes it back with the outcome."""

    scope: str = "default"
    task: str
    attempt: int
    candidates: tuple[str, ...]  # record ids, best first
    similarities: tuple[float, ...] = ()
    shown: tuple[str, ...]
    withheld: tuple[str, ...] = ()  # what would have been shown, had the coin not said otherwise; the selection has the propensity
    selection: Selection
    need: float = 1.0  # how often the agent fails here by itself
    rewrite: Rewritten = ""
    label: str = ""

    @property
    def id(self) -> str:
        """Hash of its content."""
        return content_id("rcp", self.said)

    @property
    def said(self) -> dict[str, Json]:
        """Its plain values without later fields that say nothing: receipts of before keep their ids, and so do their episodes."""
        said = {**_said(self, "withheld", "rewrite"), "selection": _said(self.selection, "more")}
        return said if self.need != 1.0 else {name: value for name, value in said.items() if name != "need"}


@noun
class Attempt:
    """One action in an episode, and what came of it. `receipt` names the guidance that was in the context, if any."""

    index: int
    trial: int = 0  # Reflexion starts a task over: each start is a trial
    observation: str
    thought: str = ""
    action: str
    verdict: Verdict
    usage: Usage
    receipt: str = ""
    state: str = ""  # hash of the state in which the action was tried


@noun
class Review:
    """What became of the reflection after a trial, and why drafts of it were refused.

    `evidence` stands in for a reflection that was refused twice; without any evidence `nothing` is kept. `set_aside`: the notes had frozen,
    so the next attempt was made without them.
    """

    trial: int
    kept: Literal["reflection", "evidence", "nothing", "set_aside"]
    refused: tuple[Refusal, ...] = ()


@noun
class Episode:
    """One play of one task by one agent, from start to end."""

    task: Task
    agent: str
    model: str
    attempts: tuple[Attempt, ...]
    receipts: tuple[Receipt, ...] = ()  # of the guidance that the attempts had in their context
    prompts: Mapping[str, str] = field(default_factory=dict)  # prompt name → hash
    reflections: tuple[str, ...] = ()
    reviews: tuple[Review, ...] = ()
    label: str = ""  # what tells two plays of one task apart: arm, stage, seed

    @property
    def id(self) -> str:
        """Hash of its content. Reviews and rewrites are left out where there are none: episodes of before keep their ids."""
        return content_id("epi", {**_said(self, "reviews"), "receipts": [{"withheld": [], **r.said} for r in self.receipts]})

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def solved(self) -> bool:
        return bool(self.attempts) and self.attempts[-1].verdict.solved

    @property
    def utility(self) -> Fraction:
        return self.attempts[-1].verdict.utility if self.attempts else Fraction(0)

    @property
    def usage(self) -> Usage:
        return sum((a.usage for a in self.attempts), Usage())


@noun
class Failure:
    """A failed attempt, the attempts that led to its state, and what was tried in that state later in the episode."""

    attempt: Attempt
    before: tuple[Attempt, ...]  # in its trial
    later: tuple[Attempt, ...]


@noun
class Condition:
    """When a record applies: a predicate over facts, a question for a judge, or nothing (applies everywhere)."""

    kind: ConditionKind = "none"
    text: str = ""
    predicate: str = ""


@noun
class Proposal:
    """An alternative to a failed action, not yet checked. `proposer` is "model", "agent" or the name of an operator."""

    action: str
    edit: str
    why: str = ""
    condition: Condition = Condition()
    proposer: str


@noun
class Check:
    """Two verdicts from the same snapshot: the failed action replayed, and the alternative."""

    proposal: Proposal
    original: Verdict
    changed: Verdict
    replayed: bool  # the replayed original agrees with what was recorded
    state_before: str
    state_after: str  # of the live state, after the check: must be equal

    @property
    def gain(self) -> Fraction:
        """Raw utility gain U(changed) - U(original), before any cost (SPEC A3.1)."""
        return self.changed.utility - self.original.utility


@noun
class Decision:
    """Whether a proposal became a record, why, and by which rule. Refused proposals are kept: they are training data."""

    proposal: Proposal
    reason: Reason
    rule: str
    check: Check | None = None
    record: str = ""

    @property
    def admitted(self) -> bool:
        return self.reason in ("admitted", "admitted_unverified")


@noun
class Provenance:
    """Where a record comes from."""

    task: str
    group: str
    benchmark: str
    split: Split
    episode: str
    attempt: int
    agent: str
    model: str
    proposer: str
    prompts: Mapping[str, str] = field(default_factory=dict)
    evaluator: str


@noun
class Gain:
    """The measured contrast that a record rests on. The whole check is in the store's evidence."""

    original: Fraction
    changed: Fraction
    solved: bool
    verified: bool = True
    tried: int = 1  # alternatives checked for the same failed action

    @property
    def value(self) -> Fraction:
        return self.changed - self.original


class _Remembered:
    """A place for an id, so that it is computed once a noun: recall asks for the same ids again and again."""

    __slots__ = ("_id",)
    _id: str


@noun
class Record(_Remembered):
    """A stored lesson. Statistics live beside it in the store, so its id is the hash of what it says."""

    kind: RecordKind
    domain: str
    scope: str = "default"
    situation: str
    gist: str = ""  # the situation with values replaced by what they are: what similarity compares; "" is the situation
    original: str
    corrected: str
    diff: str
    principle: str = ""
    signals: tuple[Signal, ...] = ()
    traits: tuple[str, ...] = ()  # facts of the source as "fact:item", sorted: what structured overlap compares
    condition: Condition = Condition()
    gain: Gain
    provenance: Provenance

    @property
    def id(self) -> str:
        """Hash of what is said: fields that say nothing are left out, so that a later version's new field changes no id."""
        if not hasattr(self, "_id"):
            said = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
            object.__setattr__(self, "_id", content_id("rec", said))
        return self._id


@noun
class Statistics:
    """How a record has been used. `ema` starts at 1/2 and moves by 0.2 towards 1 helped, 0 hurt, 1/2 neutral (SPEC A3.7)."""

    retrieved: int = 0
    selected: int = 0
    helped: int = 0
    hurt: int = 0
    neutral: int = 0
    ema: float = 0.5


@noun
class Situation:
    """What recall looks at: one decision point of an episode, after `history`. `need` is how often the agent fails here by itself."""

    task: Task
    facts: Mapping[str, Json]
    observation: str = ""
    history: tuple[Attempt, ...] = ()
    max_attempts: int = 1
    need: float = 1.0

    @property
    def failed(self) -> Attempt | None:
        """The last attempt, when there is evidence against it."""
        return self.history[-1] if self.history and self.history[-1].verdict.signals else None

    @property
    def spent(self) -> Usage:
        return sum((a.usage for a in self.history), Usage())

    @property
    def sight(self) -> str:
        """All that the agent has been shown: task, surroundings, what it saw, and what the world answered; not what it did itself."""
        seen = (text for a in self.history for text in (a.observation, a.verdict.feedback))
        return "\n".join(filter(None, (self.task.prompt, self.task.context, self.observation, *seen)))


@noun
class Misfit:
    """What of a text does not fit a situation: a name or value that is not there, or code that does not parse. `what` is verbatim."""

    kind: Literal["unparseable", "unknown_name"]
    what: str


@noun
class Candidate:
    """A record that passed the filters for a situation.

    `similarity` is calibrated: 0 like unrelated text, 1 the same text. `tokens` is what showing it costs.
    """

    record: Record
    statistics: Statistics
    similarity: float
    overlap: float
    score: float
    tokens: int = 0


@noun
class Guidance:
    """What the agent is handed: a delimited block of quoted lessons, or nothing (`text` is then empty)."""

    text: str
    records: tuple[str, ...]
    receipt: Receipt
    usage: Usage = Usage()  # what recalling it cost: judged conditions, embedding, search

    def __bool__(self) -> bool:
        return bool(self.text)
