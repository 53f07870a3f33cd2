"""Operator proposals for the code world: small changes of a program, ordered by what the visible tests say of them.

In: an action that failed, the evidence against it, and what counts the visible tests that a program passes. Out: proposals, best first,
with a reason each. The drafts are run on the visible tests, as the agent could run them, within tight limits, and ordered by how many
pass; a draft that passes no more than the action is not proposed. Hidden tests are not run. These runs are not evaluator calls, and cost
up to `SECONDS`. Not promised: changes in two places.
"""

import ast
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mulligan.edits import edit_text
from mulligan.records import Proposal, Signal
from mulligan.worlds import code_drafts, code_statements
from mulligan.worlds.code_drafts import Evidence, Text, evidence_of
from mulligan.worlds.code_text import parses, tokens, tree
from mulligan.worlds.sandbox import Limits

MOST = 250  # drafts that are run for one failure
SECONDS = 2.0
ENOUGH = 3  # drafts that pass everything, after which the others are not run
AT_THE_LINE = 0.3  # added to the prior of a change where the evidence points
MOST_CHARS = 8_000  # of a program that is looked at
LIMITS = Limits(wall_s=0.5, total_s=1.0, cpu_s=2)


@dataclass(frozen=True, slots=True)
class Draft:
    """A changed program. `prior` says how often such a change mends, and whether it is where the evidence points."""

    action: str
    operator: str
    why: str
    prior: float


def proposals(action: str, signals: Sequence[Signal], passed: Callable[[str], int], tests: int) -> Iterator[Proposal]:
    """Changes of `action` that pass more of the `tests` visible tests than it does, best first."""
    parsed = tree(action) if len(action) <= MOST_CHARS else None
    if parsed is None or not tests:
        return
    evidence = evidence_of([(signal.kind, signal.what, signal.where) for signal in signals])
    least, until = passed(action), time.monotonic() + SECONDS
    ranked: list[tuple[int, Draft]] = []
    for draft in _ordered(Text(action, parsed), evidence):
        if time.monotonic() > until or sum(count == tests for count, _ in ranked) >= ENOUGH:
            break
        if (count := passed(draft.action)) > least:
            ranked.append((count, draft))
    ranked.sort(key=lambda found: (-found[0], -found[1].prior))
    for _, draft in ranked:
        edit = edit_text(action, draft.action, tokens)
        yield Proposal(action=draft.action, edit=edit, why=draft.why, proposer=draft.operator)


def _ordered(text: Text, evidence: Evidence) -> list[Draft]:
    """The drafts that parse, each program once, the likeliest first."""
    found: dict[str, Draft] = {}
    for draft in drafts(text, evidence):
        known = found.get(draft.action)
        if draft.action != text.source and (known is None or known.prior < draft.prior):
            found[draft.action] = draft
    ordered = sorted(found.values(), key=lambda draft: -draft.prior)
    return [draft for draft in ordered[: 2 * MOST] if parses(draft.action)][:MOST]


def drafts(text: Text, evidence: Evidence) -> Iterator[Draft]:
    """All drafts, in no order; one program may come twice."""
    for node in ast.walk(text.tree):
        near = AT_THE_LINE if getattr(node, "lineno", 0) in evidence.lines else 0.0
        for table in (code_drafts.OPERATORS, code_statements.OPERATORS):
            for make in table.get(type(node), ()):
                for new, operator, why, prior in make(text, node, evidence):
                    yield Draft(new, operator, why, prior + near)
    for whole in code_statements.WHOLE:
        for new, operator, why, prior in whole(text, evidence):
            yield Draft(new, operator, why, prior)
