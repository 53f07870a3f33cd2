"""The seams, on one page. What a reader can swap is here; what is not here is concrete."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from mulligan.nouns import Json
from mulligan.records import Candidate, Completion, Episode, Message, Misfit, Proposal, Selection, Situation, Task, Verdict

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from mulligan.memory import Memory


class State(Protocol):
    """A live state of a world: a context manager that owns its resources."""

    @property
    def task(self) -> Task: ...
    @property
    def digest(self) -> str:
        """Hash of all that a later verdict could depend on."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> bool | None: ...


class Snapshot(Protocol):
    """A saved state; can be pickled, so that checks run in other processes."""

    @property
    def digest(self) -> str: ...


class World(Protocol):
    """An executable world. Picklable; all resources belong to states. `conformance.check_world` tests the contract.

    Parameters are Any so that a world may name its own kind of state and snapshot; they are a State and a Snapshot.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str:
        """Changes whenever a verdict could change."""

    @property
    def manual(self) -> str:
        """One paragraph for agents: what an action is here and how to write it."""

    def facts(self, task: Task) -> Mapping[str, Json]:
        """What conditions may test: numbers, strings, booleans, or lists of strings; computed from what the agent sees."""

    def start(self, task: Task) -> State: ...
    def observe(self, state: Any) -> str: ...
    def act(self, state: Any, action: str) -> Verdict: ...
    def save(self, state: Any) -> Snapshot: ...
    def restore(self, snapshot: Any) -> State:
        """An independent copy: acting in it leaves every other state alone."""

    def edits(self, state: Any, action: str, verdict: Verdict) -> Iterable[Proposal]:
        """Operator proposals, best first; may be empty. Reads `verdict.signals`, never the gold answer."""

    def tokens(self, action: str) -> Sequence[str]:
        """`action` cut into its smallest meaningful parts, for locality, diffs and overlap."""

    def misfits(self, situation: Situation, text: str) -> Sequence[Misfit]:
        """What a lesson in words names or quotes that does not fit; `naming.lacking` serves worlds without a language of their own."""


class Model(Protocol):
    """A language model behind any endpoint."""

    @property
    def id(self) -> str: ...
    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        schema: Mapping[str, Json] | None = None,
    ) -> Completion:
        """One reply. Raises ModelUnreachable after the retries, UnseenRequest from a recording."""


class Embedder(Protocol):
    """Text to vectors."""

    @property
    def id(self) -> str: ...
    @property
    def dim(self) -> int: ...
    def embed(self, texts: Sequence[str]) -> "NDArray[float32]":
        """Shape (n, dim), rows of unit length (a zero row for text without content)."""


class Agent(Protocol):
    """Plays tasks. With `memory=None` it is the baseline."""

    @property
    def name(self) -> str: ...
    def play(self, task: Task, world: World, model: Model, memory: "Memory | None" = None) -> Episode: ...


class Selector(Protocol):
    """Chooses one candidate, or none."""

    @property
    def name(self) -> str: ...
    def select(self, situation: Situation, candidates: Sequence[Candidate]) -> Selection: ...
