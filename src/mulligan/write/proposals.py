"""Propose alternatives: a few local edits of a failed action, from the agent's retry, from operators and a model.

In: a failure with its evidence. Out: at most `limit` proposals to check, and refused ones with reasons. A proposal is local
when it is one hunk of at most five lines and similar to the action, or exchanges one token, or keeps the action and adds a
little to it (SPEC A3.2). The model sees the task, what was observed, the failed action and the world's
feedback; never gold answers or hidden tests, which no stage can reach.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from mulligan.edits import Tokens, edit_text
from mulligan.errors import InvalidData
from mulligan.prompts import prompt
from mulligan.protocols import Model
from mulligan.records import Completion, Condition, Decision, Failure, Message, Proposal, Reason, Task
from mulligan.replies import read_reply

Clean = Callable[[str], str]

RULE = "local:1-hunk,<=5-lines,similarity>=0.6|1-token|kept>=0.8+16;v2"
MIN_SIMILARITY = 0.6
KEPT, ADDED = 0.8, 16  # share of the action's tokens that stay, and tokens that may be added to them
MAX_CHANGED_LINES = 5
MAX_ACTION_CHARS = 20_000
MAX_TOKENS = 320


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alternative:
    """One item of the model's reply. `condition` "none" means that it applies everywhere."""

    action: str
    why: str = ""
    condition: str = "none"


SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("action", "why", "condition")},
        "required": ["action", "why", "condition"],
        "additionalProperties": False,
    },
}


def from_retry(failure: Failure, tokens: Tokens) -> list[Proposal]:
    """The agent's own later actions in the same state that scored higher, best first: alternatives that cost nothing to find."""
    better = [a for a in failure.later if a.verdict.completed and a.verdict.utility > failure.attempt.verdict.utility]
    better.sort(key=lambda a: (-a.verdict.utility, a.index))
    return [Proposal(action=a.action, edit=edit_text(failure.attempt.action, a.action, tokens), proposer="agent") for a in better[:1]]


def from_model(task: Task, failure: Failure, model: Model, *, manual: str, limit: int, seed: int) -> tuple[list[Proposal], Completion]:
    """Ask `model` once for `limit` alternatives. An unparseable reply is no alternative; its cost is in the completion."""
    attempt = failure.attempt
    parts = [
        task.context,
        f"Task: {task.prompt}",
        attempt.observation,  # what the agent saw before it; nothing in worlds of one answer
        f"Failed action:\n{attempt.action}",
        f"Evidence:\n{attempt.verdict.feedback}",
        prompt("propose").fill(limit=str(limit)),
    ]
    completion = model.complete(
        [  # manual and surroundings come first, as in the agents' requests: a server can reuse that prefix
            Message(role="system", content=prompt("act").fill(manual=manual)),
            Message(role="user", content="\n\n".join(part for part in parts if part)),
        ],
        max_tokens=MAX_TOKENS,
        temperature=0.0,
        seed=seed,
        schema={**SCHEMA, "maxItems": limit},
    )
    try:
        replies = read_reply(list[_Alternative], completion.text, what="the proposer's reply").value
    except InvalidData:
        replies = []
    return [
        Proposal(action=r.action.strip(), edit="", why=r.why.strip()[:240], condition=_condition(r.condition), proposer="model")
        for r in replies
    ], completion


def choose(
    original: str,
    retry: Iterable[Proposal],
    model: Iterable[Proposal],
    operators: Iterable[Proposal],
    *,
    tokens: Tokens,
    clean: Clean,
    limit: int,
) -> tuple[list[Proposal], list[Decision]]:
    """At most `limit` distinct local proposals: the retry first, then operators and model in turn. The rest are refused with
    reasons. `clean` removes injected guidance from text: a proposal that quotes it is refused.
    """
    kept: list[Proposal] = []
    refused: list[Decision] = []
    seen: set[tuple[str, ...]] = set()
    for proposal in [*retry, *_in_turn(operators, model)]:
        parts = tuple(tokens(proposal.action))
        reason: Reason | None = "injected_text" if _quotes(proposal, clean) else _fault(original, proposal, parts, seen, tokens)
        if reason is None and len(kept) == limit:
            reason = "over_limit"
        if reason is None:
            seen.add(parts)
            kept.append(_with_edit(proposal, original, tokens))
        elif len(refused) < 4 * limit:  # an operator can offer hundreds: keep the evidence small
            refused.append(Decision(proposal=proposal, reason=reason, rule=RULE))
    return kept, refused


def is_local(original: str, changed: str, tokens: Tokens) -> bool:
    """One hunk of lines, at most five changed lines; and token similarity of at least 0.6 (SPEC A3.2), or one token exchanged, or at
    least 0.8 of the action's tokens kept and at most 16 added, as when a short query becomes the inner one of another.
    """
    lines = difflib.SequenceMatcher(None, original.splitlines(), changed.splitlines(), autojunk=False).get_opcodes()
    hunks = [(a1 - a0, b1 - b0) for op, a0, a1, b0, b1 in lines if op != "equal"]
    if len(hunks) > 1 or any(max(hunk) > MAX_CHANGED_LINES for hunk in hunks):
        return False
    before, after = list(tokens(original)), list(tokens(changed))
    match = difflib.SequenceMatcher(None, before, after, autojunk=False)
    exchanged = sum(max(a1 - a0, b1 - b0) for op, a0, a1, b0, b1 in match.get_opcodes() if op != "equal")
    kept = sum(block.size for block in match.get_matching_blocks())
    return match.ratio() >= MIN_SIMILARITY or exchanged <= 1 or (kept >= KEPT * len(before) and len(after) - len(before) <= ADDED)


def _fault(original: str, proposal: Proposal, parts: tuple[str, ...], seen: set[tuple[str, ...]], tokens: Tokens) -> Reason | None:
    if not parts:
        return "unparseable"
    if len(proposal.action) > MAX_ACTION_CHARS:
        return "too_large"
    if parts == tuple(tokens(original)):
        return "same_as_original"
    if parts in seen:
        return "duplicate"
    return None if is_local(original, proposal.action, tokens) else "not_local"


def _quotes(proposal: Proposal, clean: Clean) -> bool:
    return any(clean(text) != text for text in (proposal.action, proposal.why, proposal.condition.text))


def _with_edit(proposal: Proposal, original: str, tokens: Tokens) -> Proposal:
    if proposal.edit:
        return proposal
    return Proposal(
        action=proposal.action,
        edit=edit_text(original, proposal.action, tokens),
        why=proposal.why,
        condition=proposal.condition,
        proposer=proposal.proposer,
    )


def _in_turn(operators: Iterable[Proposal], model: Iterable[Proposal]) -> Iterator[Proposal]:
    for pair in zip_longest(operators, model):
        yield from (p for p in pair if p is not None)


def _condition(text: str) -> Condition:
    text = text.strip()[:240]
    return Condition() if text.lower().strip(" .\"'") in ("", "none") else Condition(kind="judged", text=text)
