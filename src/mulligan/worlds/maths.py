"""The maths world: a question with one answer, which is compared exactly.

In: tasks with payload {"gold": answer}. Out: verdicts with utility as in SPEC A3.1: 1 when the answer is right, else half the share of the
text's own calculations that hold. Plain numbers are compared here, everything else by algebra in a process that is killed when it takes
too long. What cannot be parsed whole, or told, is unknown: neither right nor wrong. A question that reasoning-gym made (payload "gym") is
judged by the verifier of its generator, behind the sandbox's walls, and its score is the utility. Feedback and signals come from the text's
calculations alone; on source tasks also that the answer is wrong, never what it should be.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from mulligan.errors import UsageError
from mulligan.nouns import Json, content_id
from mulligan.records import Proposal, Signal, Task, Verdict
from mulligan.worlds import maths_edits, maths_generated
from mulligan.worlds.answering import Answering, Asked
from mulligan.worlds.beside import beside
from mulligan.worlds.maths_values import Unclear, cleaned, compare, equations, final_answer, final_text
from mulligan.worlds.sandbox import Wall

if find_spec("latex2sympy2_extended") is None:  # only the worker imports it, and could not say so
    raise ModuleNotFoundError("no module named 'latex2sympy2_extended'", name="latex2sympy2_extended")

MANUAL = (
    "An action is a solution: think step by step, one short sentence a step, each with its calculation written out as an equation in "
    "numbers. End with a line that begins with `The answer is:` and holds the final answer alone, without words. No code."
)  # no example: small models copy its numbers
RULES = "2"
WORKER = Path(__file__).with_name("maths_worker.py")
INSTALL = "the algebra of the maths world does not start: pip install 'mulligan[maths]'"
LONGEST = 20_000  # characters of an action


@dataclass(frozen=True)
class MathsWorld(Answering):
    """Settings only, so that it can be sent to other processes."""

    time_limit_s: float = 3.0
    wall: Wall = "bubblewrap"  # around reasoning-gym's verifiers
    name: str = "maths"
    manual: str = MANUAL

    @cached_property
    def version(self) -> str:
        parts = [RULES, self.time_limit_s, version("sympy"), version("latex2sympy2_extended")]
        return f"{RULES}-{content_id('v', parts)[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **maths_edits.facts(task.prompt)}

    def start(self, task: Task) -> Asked:
        """Raises UsageError when the payload holds no gold answer."""
        if not isinstance(task.payload.get("gold"), str):
            raise UsageError(f"task {task.id} has no gold answer; put it as text under payload['gold']")
        return Asked(self.name, task)

    def tokens(self, action: str) -> Sequence[str]:
        return maths_edits.tokens(action[:LONGEST])

    def act(self, state: Asked, action: str) -> Verdict:
        began = time.perf_counter()
        action, heldout, gym = action[:LONGEST], state.task.split == "heldout", state.task.payload.get("gym")
        answer = final_text(action) if gym else final_answer(action)
        score: Fraction | None = Fraction(0)
        if answer.strip() and gym:
            score = maths_generated.score(gym, state.task.prompt, answer, self.time_limit_s, self.wall)
        elif answer.strip():
            same = self.judge(str(state.task.payload["gold"]), answer, state.task.prompt)
            score = None if same is None else Fraction(same)
        right = None if score is None else score == 1
        steps = equations(action)
        signals = [
            Signal(kind="assertion", what=f"{step.left} = {step.right} does not hold: it is {maths_edits.written(step.value)}")
            for step in steps
            if not step.holds
        ]
        if not answer.strip():
            signals.append(Signal(kind="syntax", what="there is no answer"))
        seen = tuple(signals)
        if not heldout and right is not True:
            why = (
                f"the answer {cleaned(answer).text[:80]!r} is wrong" if right is False else "the answer cannot be read as a whole, or told"
            )
            signals.append(Signal(kind="refuted" if right is False else "error", what=why))
        told = ["The answer is right." if right and not heldout else f"You answered {answer.strip()[:200]}."]
        partial = score if gym else Fraction(sum(step.holds for step in steps), 2 * len(steps)) if steps else None
        return Verdict(
            completed=right is not None,
            utility=Fraction(1) if right else partial or Fraction(0),
            solved=right is True,
            feedback="\n".join([*told, *(f"{signal.kind}: {signal.what}" for signal in signals)]),
            signals=tuple(signals),
            done=not seen if heldout else right is True,
            evaluator=f"{self.name}/{self.version}" + (f" {maths_generated.verifier()}" if gym else ""),
            seconds=time.perf_counter() - began,
        )

    def judge(self, gold: str, answer: str, question: str = "") -> bool | None:
        """Whether `answer` is `gold`; None where it cannot be told."""
        try:
            return compare(gold, answer, question)
        except Unclear:
            told = beside(WORKER, INSTALL).ask([cleaned(gold).text, cleaned(answer).text], self.time_limit_s)
            return told if isinstance(told, bool) else None

    def edits(self, state: Asked, action: str, verdict: Verdict) -> Iterable[Proposal]:
        return maths_edits.proposals(action[:LONGEST])
