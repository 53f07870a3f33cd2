"""The proof world: a theorem to prove, judged by Rocq's kernel, or by Lean's.

In: tasks with payload {"statement": the theorem's file without a proof, "language": "rocq" or "lean", "axioms": those it may rest on}. Out:
verdicts with utility as in SPEC A3.1: 1 when the proof is accepted, else nine tenths of the share of its goals that it closed before its
first error: the most that were open at once, less those that are open at the error, over the most; 0 when it does not parse, or rests on a
hole. What an agent sees is what the checker says of its proof, on held-out tasks as well: nothing else is known of a theorem.
A checker that runs out of time or memory leaves the verdict incomplete.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from mulligan.errors import InvalidData, UsageError
from mulligan.naming import vocabulary
from mulligan.nouns import Json, content_id
from mulligan.records import Proposal, Signal, Task, Verdict
from mulligan.worlds import proof_lean, proof_rocq
from mulligan.worlds.answering import Answering, Asked, told
from mulligan.worlds.proof_lean import Lean, lean_theorem
from mulligan.worlds.proof_rocq import Rocq
from mulligan.worlds.proof_text import LONGEST, Finding, Theorem, clean, describe, theorems, tokens
from mulligan.worlds.sandbox import RULES as SANDBOX_RULES
from mulligan.worlds.sandbox import Limits, Wall

MANUAL = (
    "An action is a proof of the theorem in the task's own language. In Coq (Rocq) it is the tactics that stand between Proof. and Qed., "
    "each ending in a dot, or the whole text, helper lemmas first, with the theorem as it was stated. "
    "In Lean 4 it is what stands after `:= by`. Libraries may be required. Admitted, axioms and a changed statement are no proof. Reply "
    "with the proof alone, in a code block."
)  # no tactic as an example: small models copy it
TACTICS = vocabulary(
    "abel apply as assert assumption auto by by_contra cases case clear congruence constructor contradiction decide destruct "
    "discriminate eapply eauto easy erewrite exact exists exfalso ext f_equal field field_simp firstorder funext generalize have "
    "induction injection intro intros intuition inversion left lemma lia linarith lra nlinarith norm_num nia nra obtain omega "
    "pose proof qed rcases refine reflexivity repeat revert rewrite rfl right ring rintro rw show simp simp_all simpl specialize "
    "split subst symmetry tauto theorem transitivity trivial try unfold use vm_compute with in at set end match"
)
RULES = "1"  # changes whenever a verdict could change for reasons that are not in the limits, the sandbox or the checkers
LIMITS = Limits(wall_s=20.0, total_s=60.0, cpu_s=60, memory=2 << 30, output=400_000)
ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]")


@dataclass(frozen=True)
class ProofWorld(Answering):
    """Settings only, so that it can be sent to other processes. `axioms` are allowed in every task, beside the task's own."""

    limits: Limits = field(default_factory=lambda: LIMITS)
    wall: Wall = "bubblewrap"
    axioms: tuple[str, ...] = ()
    name: str = "proof"
    manual: str = MANUAL
    vocabulary = TACTICS  # lemmas of libraries are not in it: a lesson may name those that were shown

    @cached_property
    def version(self) -> str:
        checkers = proof_rocq.installed(), proof_lean.installed()
        return f"{RULES}-{content_id('v', [RULES, SANDBOX_RULES, repr(self.limits), self.wall, list(self.axioms), *checkers])[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        theorem = theorem_of(task)
        return {**task.facts, "language": _language(task), **describe(theorem.given, theorem.said)}

    def start(self, task: Task) -> Asked:
        """Raises UsageError when the payload holds no theorem."""
        theorem_of(task)
        return Asked(self.name, task)

    def tokens(self, action: str) -> Sequence[str]:
        return tokens(clean(action))

    def act(self, state: Asked, action: str) -> Verdict:
        """Raises UsageError where the checker is not installed."""
        began = time.perf_counter()
        found = self._found(state.task, clean(action))
        lines = [
            "The proof is accepted." if found.accepted else "The proof is not accepted." if found.completed else "There is no verdict."
        ]
        lines += map(told, found.signals)
        return Verdict(
            completed=found.completed,
            utility=Fraction(1) if found.accepted else Fraction(9, 10) * found.closed,
            solved=found.accepted,
            feedback="\n".join(lines),
            signals=found.signals,
            done=found.accepted,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def _found(self, task: Task, action: str) -> Finding:
        if not tokens(action) or ODD.search(action):
            return Finding(signals=(Signal(kind="syntax", what="there is no proof, or one with signs that no file may hold"),))
        if len(action) > LONGEST:
            return Finding(signals=(Signal(kind="too_large", what=f"a proof has at most {LONGEST:,} characters"),))
        checker = Lean(self.limits, self.wall) if _language(task) == "lean" else self.rocq
        return checker.check(theorem_of(task), action, [*self.axioms, *task.payload.get("axioms", ())])

    @property
    def rocq(self) -> Rocq:
        """The checker for Rocq, with this world's limits."""
        return Rocq(self.limits, self.wall)

    def edits(self, state: Asked, action: str, verdict: Verdict) -> Iterable[Proposal]:
        from mulligan.worlds import proof_edits  # the operators are needed only after a failure

        text = clean(action)
        if _language(state.task) == "lean" or verdict.solved or len(text) > LONGEST or ODD.search(text):
            return ()
        theorem = theorem_of(state.task)
        return proof_edits.proposals(text, verdict.signals, theorem, self.rocq)


def theorem_of(task: Task) -> Theorem:
    """The theorem that a task asks to prove. Raises UsageError when the payload holds none."""
    said = task.payload.get("statement")
    if not isinstance(said, str) or _language(task) not in ("rocq", "lean"):
        raise UsageError(f"task {task.id} holds no theorem; put its file under payload['statement'], 'rocq' or 'lean' under 'language'")
    try:
        return _theorem(said, _language(task))
    except InvalidData as error:
        raise UsageError(f"task {task.id} holds no theorem: {error}") from error


def _language(task: Task) -> str:
    return str(task.payload.get("language", "rocq"))


@lru_cache(maxsize=256)
def _theorem(said: str, language: str) -> Theorem:
    found = lean_theorem(said) if language == "lean" else theorems(said)[-1]
    return replace(found, mark=None, proof="")
