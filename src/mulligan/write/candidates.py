"""Candidates for notes: a model puts into words what a finished play teaches, and revises it by what the words did.

In: an episode, its contract. Out: a `Note` without literals of the play, or why there is none, and what it cost. The model sees the task,
what was done and what the world answered; never a gold answer, which no stage can reach. A reply that breaks its contract is asked for
once more.
"""

from collections.abc import Sequence
from fractions import Fraction

from mulligan.nouns import noun
from mulligan.prompts import prompt
from mulligan.protocols import Model
from mulligan.records import Attempt, Episode, Message, Reason, Usage
from mulligan.write.contracts import ASKED, Contract, Note, literals, parsed, stripped

TRIES = 2
MAX_TOKENS = 260
MOST_CHARS = 1_200  # of one action or answer
ENDS = 5  # attempts that are shown from the beginning, and from the end


@noun
class Draft:
    """A note, or the reason why there is none."""

    note: Note | None
    text: str
    reason: Reason | None
    usage: Usage


def distil(episode: Episode, model: Model, *, manual: str, contract: Contract) -> Draft:
    """What the play teaches."""
    return _asked(episode, model, manual, contract, transcript(episode.attempts), episode.attempts)


def revise(episode: Episode, model: Model, *, manual: str, contract: Contract, latest: Draft, uplift: Fraction, played: Episode) -> Draft:
    """The same, given the latest candidate, what it changed, and the play with it (SPEC C3)."""
    told = [
        transcript(episode.attempts),
        f"A note was written from this:\n{latest.text}",
        f"With the note the task was played again; its score changed by {float(uplift):+.2f}:\n{transcript(played.attempts)}",
        "Write a better note.",
    ]
    return _asked(episode, model, manual, contract, "\n\n".join(told), (*episode.attempts, *played.attempts))


def transcript(attempts: Sequence[Attempt]) -> str:
    """What was done and answered, the middle left out where it is long."""
    shown = [f"Action:\n{_cut(a.action)}\nAnswer:\n{_cut(a.verdict.feedback)}" for a in attempts]
    if len(shown) > 2 * ENDS:
        shown = [*shown[:ENDS], f"({len(shown) - 2 * ENDS} attempts left out)", *shown[-ENDS:]]
    return "\n\n".join(shown)


def _asked(episode: Episode, model: Model, manual: str, contract: Contract, told: str, seen: Sequence[Attempt]) -> Draft:
    """`seen` are the attempts that the model is shown: what is literal in any of them is taken out."""
    ended = "It solved the task." if episode.solved else "It did not solve the task."
    asked = prompt("note").fill(form=ASKED[contract])
    text = "\n\n".join(part for part in (f"Task: {episode.task.prompt}", told, ended, asked) if part)
    usage, reply, wrong = Usage(), "", ""
    for _ in range(TRIES):
        messages = [
            Message(role="system", content=prompt("act").fill(manual=manual)),
            Message(role="user", content=f"{text}\n\n{wrong}" if wrong else text),
        ]
        completion = model.complete(messages, max_tokens=MAX_TOKENS, temperature=0.0, seed=0)
        usage, reply = usage + completion.usage, completion.text
        found = parsed(reply, contract, solved=episode.solved)
        if isinstance(found, Note):
            note = stripped(found, literals(episode.task.prompt, [a.action for a in seen], [a.verdict.feedback for a in seen]))
            return Draft(note=note, text=reply, reason=None if note else "memorised", usage=usage)
        wrong = found
    return Draft(note=None, text=reply, reason="contract", usage=usage)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]} …"
