"""One turn of any agent: show, ask, act, note. The turns are shared; their order is each agent's own.

Every request keeps what tasks share (manual, surroundings) in front and what differs behind it, so that a server can reuse its
prefix; guidance stands just before the task. Agents look at a verdict's `feedback`, `signals` and `done`, at nothing else of
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mulligan.agents.evidence import WANTED, block, evidence, refusal, request
from mulligan.prompts import prompt
from mulligan.protocols import Model, State, World
from mulligan.records import Attempt, Episode, Message, Receipt, Refusal, Review, Task, Usage
from mulligan.replies import read_code

if TYPE_CHECKING:
    from mulligan.memory import Memory

PROMPTS = ("act", "reflect")
DRAFTS = 2  # of a reflection on evidence
REFLECTION_TOKENS = 200
MOST_CHARS = 6_000  # of the world's answers in one conversation: plays of many steps would outgrow a model's context
FIRST_LINE = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How an agent asks its model. Token limits are of the reply."""

    max_tokens: int = 200
    temperature: float = 0.0
    seed: int = 0


GREEDY = Sampling()
VARIED = Sampling(temperature=0.8)


@dataclass
class Play:
    """A play in progress: the task, its live state, and what has happened so far."""

    task: Task
    world: World
    model: Model
    state: State
    sampling: Sampling
    attempts: list[Attempt] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    reflections: list[str] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    trial: int = 0
    _owed: Usage = field(default_factory=Usage)  # spent since the last attempt on recall and reflection

    @property
    def done(self) -> bool:
        """The last action of this trial ended the episode, as far as the agent can see."""
        return bool(self.attempts) and self.attempts[-1].trial == self.trial and self.attempts[-1].verdict.done

    @property
    def history(self) -> list[Attempt]:
        """The attempts of this trial."""
        return [a for a in self.attempts if a.trial == self.trial]

    def recall(self, memory: "Memory | None", max_attempts: int) -> str:
        """Guidance for this decision point, or "". Notes its receipt and its cost."""
        if memory is None:
            return ""
        guidance = memory.recall(self.task, self.attempts, observation=self.world.observe(self.state), max_attempts=max_attempts)
        self.receipts.append(guidance.receipt)
        self._owed += guidance.usage
        return guidance.text

    def messages(self, guidance: str = "", notes: Sequence[str] = ()) -> list[Message]:
        """The conversation so far, with what the agent is to act on now."""
        opening = [
            self.task.context,
            guidance,
            *notes,
            f"Task: {self.task.prompt}",
            self.world.observe(self.state) if not self.history else "",
        ]
        turns = [
            self._manual(),
            Message(role="user", content="\n\n".join(part for part in opening if part)),
        ]
        answers = [f"{attempt.verdict.feedback}{self._sight(attempt)}" for attempt in self.history]
        for attempt, answer in zip(self.history, _fitting(answers), strict=True):
            turns.append(Message(role="assistant", content=attempt.thought or attempt.action))
            turns.append(Message(role="user", content=f"{answer}\n\nAct again."))
        return turns

    def _sight(self, attempt: Attempt) -> str:
        """What can be seen now beyond the answer to the last attempt; earlier sights are left out, or long plays would be full of them."""
        seen = self.world.observe(self.state) if attempt is self.history[-1] else ""
        return "" if seen in attempt.verdict.feedback else f"\n\n{seen}"

    def _manual(self) -> Message:
        return Message(role="system", content=prompt("act").fill(manual=self.world.manual))

    def ask(self, messages: Sequence[Message], **changes: float | int) -> tuple[str, Usage]:
        """One reply of the model, and what it cost."""
        how = replace(self.sampling, **changes)  # type: ignore[arg-type]  # checked by the dataclass
        completion = self.model.complete(messages, max_tokens=how.max_tokens, temperature=how.temperature, seed=how.seed)
        return completion.text, completion.usage

    def act(self, reply: str, usage: Usage) -> Attempt:
        """Do the one action in `reply` in the live state, and note the attempt."""
        code = read_code(reply, ())
        before, observation = self.state.digest, self.world.observe(self.state)
        verdict = self.world.act(self.state, code.code)
        return self.note(
            Attempt(
                index=len(self.attempts),
                trial=self.trial,
                observation=observation,
                thought=reply if code.prose else "",
                action=code.code,
                verdict=verdict,
                usage=usage + self._settle() + Usage(evaluator_calls=verdict.calls, seconds=verdict.seconds),
                receipt=self.receipts[-1].id if self.receipts and self.receipts[-1].shown else "",
                state=before,
            )
        )

    def note(self, attempt: Attempt) -> Attempt:
        """Add an attempt that is already judged."""
        self.attempts.append(attempt)
        return attempt

    def reflect(self) -> None:
        """Ask the model what to do differently after the last attempt, and keep its answer (Reflexion's `self` mode)."""
        last = self.attempts[-1]
        parts = [self.task.context, f"Task: {self.task.prompt}", f"Attempt:\n{last.action}", f"Answer:\n{last.verdict.feedback}"]
        self.reflections.append(self._written("\n\n".join(part for part in (*parts, prompt("reflect").text) if part), 80))

    def reflect_on_evidence(self) -> None:
        """The same from numbered evidence, kept if it passes the gate, at the second draft at the latest; else the evidence itself is."""
        items, refused = evidence(self.history), list[Refusal]()
        if not items:
            self.reviews.append(Review(trial=self.trial, kept="nothing"))
            return
        asked = request(self.task, self.history, items, self.reflections)
        for _ in range(DRAFTS):
            text = self._written(f"{asked} {WANTED[refused[-1]]}" if refused else asked, REFLECTION_TOKENS)
            why = refusal(text, self.task, items, self.reflections, asked)
            if why is None:
                break
            refused.append(why)
        kept = len(refused) < DRAFTS
        self.reflections.append(text if kept else block(items))
        self.reviews.append(Review(trial=self.trial, kept="reflection" if kept else "evidence", refused=tuple(refused)))

    def _written(self, text: str, max_tokens: int) -> str:
        reply, usage = self.ask([self._manual(), Message(role="user", content=text)], max_tokens=max_tokens)
        self._owed += usage
        return reply.strip()

    def episode(self, agent: str) -> Episode:
        """The finished play. What is still owed is added to the last attempt."""
        if self.attempts:
            self.attempts[-1] = replace(self.attempts[-1], usage=self.attempts[-1].usage + self._settle())
        return Episode(
            task=self.task,
            agent=agent,
            model=self.model.id,
            attempts=tuple(self.attempts),
            receipts=tuple(self.receipts),
            reflections=tuple(self.reflections),
            reviews=tuple(self.reviews),
            prompts={name: prompt(name).hash for name in self._prompts()},
        )

    def _prompts(self) -> list[str]:
        rewritten = any(receipt.rewrite for receipt in self.receipts)
        return [*PROMPTS, *(["reflect_evidence"] if self.reviews else []), *(["rewrite"] if rewritten else [])]

    def _settle(self) -> Usage:
        owed, self._owed = self._owed, Usage()
        return owed


def _fitting(answers: Sequence[str]) -> list[str]:
    """What the world answered in a play. Where that is long, the oldest answers are cut to their first line, and the last never is."""
    found, over = list(answers), sum(map(len, answers)) - MOST_CHARS
    for place, answer in enumerate(answers[:-1]):
        if over <= 0:
            break
        found[place] = f"{answer.partition(chr(10))[0][:FIRST_LINE]} …"
        over -= len(answer) - len(found[place])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Onward:
    """A policy for checks: the agent goes on from what is tried as in its own play, with the attempts before it in the context."""

    model: Model
    sampling: Sampling = GREEDY
    portable: bool = False  # a model stays in its process

    def go_on(self, world: World, state: State, attempts: Sequence[Attempt], steps: int) -> list[Attempt]:
        """The agent's next attempts."""
        play = Play(state.task, world, self.model, state, self.sampling, attempts=list(attempts), trial=attempts[-1].trial)
        while not play.done and len(play.attempts) < len(attempts) + steps:
            play.act(*play.ask(play.messages()))
        return play.attempts[len(attempts) :]
