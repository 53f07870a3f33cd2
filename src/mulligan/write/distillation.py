"""Distil a record: from an admitted decision to a lesson that says no more than was shown.

The situation is the source's question and the contrast is the failed and the better action; literals that occur only in the
source are replaced by placeholders, so that a memorised answer does not look like a lesson. The condition must be true at the
source and false on at least one other task (SPEC A3.4); otherwise a weaker one is taken, down to none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mulligan.conditions import holds
from mulligan.edits import Tokens, edit_text
from mulligan.errors import InvalidData
from mulligan.nouns import Json
from mulligan.records import Attempt, Condition, Decision, Episode, Gain, Provenance, Record

SITUATION_CHARS, ACTION_CHARS, DIFF_CHARS = 600, 800, 600  # SPEC A3.3
MAX_ATOMS = 3
COMMON = 0.2  # share of the panel above which a condition is narrowed

Facts = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Other tasks of the domain: their texts tell which literals are the source's own, their facts where a condition is false."""

    texts: tuple[str, ...] = ()
    facts: tuple[Facts, ...] = ()


def distil(
    episode: Episode,
    attempt: Attempt,
    decision: Decision,
    *,
    facts: Facts,
    panel: Panel,
    tokens: Tokens,
    tried: int,
) -> Record:
    """The record of an admitted `decision` about `attempt`. `facts` are those of the source task, `tried` counts its checked
    rivals.
    """
    task, proposal, check = episode.task, decision.proposal, decision.check
    strip = _stripper(task.prompt, attempt.action, proposal.action, panel.texts, tokens)
    original, corrected = strip(attempt.action), strip(proposal.action)
    return Record(
        kind="correction",
        domain=task.domain,
        scope=task.scope,
        situation=_cap(strip(task.prompt), SITUATION_CHARS),
        gist=_cap(str(facts.get("gist", "")), SITUATION_CHARS),
        original=_cap(original, ACTION_CHARS),
        corrected=_cap(corrected, ACTION_CHARS),
        diff=_cap(edit_text(original, corrected, tokens, context=1), DIFF_CHARS),
        principle=_cap(strip(proposal.why), SITUATION_CHARS),
        signals=attempt.verdict.signals[:4],
        traits=traits(facts),
        condition=choose_condition(proposal.condition, changed_parts(original, corrected, tokens), facts=facts, panel=panel.facts),
        gain=Gain(
            original=check.original.utility if check else attempt.verdict.utility,
            changed=check.changed.utility if check else attempt.verdict.utility,
            solved=check.changed.solved if check else False,
            verified=check is not None,
            tried=tried,
        ),
        provenance=provenance(episode, attempt, proposer=proposal.proposer, model=episode.model),
    )


def provenance(episode: Episode, attempt: Attempt | None, *, proposer: str, model: str) -> Provenance:
    """Where a record comes from: an attempt of a play, or a play without any."""
    task = episode.task
    return Provenance(
        task=task.id,
        group=task.group,
        benchmark=task.benchmark,
        split=task.split,
        episode=episode.label,
        attempt=attempt.index if attempt else 0,
        agent=episode.agent,
        model=model,
        proposer=proposer,
        prompts=episode.prompts,
        evaluator=attempt.verdict.evaluator if attempt else "",
    )


def traits(facts: Facts) -> tuple[str, ...]:
    """The items of list-valued facts as "fact:item", without what every task of the same surroundings shares."""
    return tuple(
        sorted(f"{name}:{item}" for name, items in facts.items() if name not in SURROUNDINGS and isinstance(items, list) for item in items)
    )


SURROUNDINGS = frozenset({"tables", "columns"})  # the schema: the same for all questions about one database


def choose_condition(wanted: Condition, changed: frozenset[str], *, facts: Facts, panel: Sequence[Facts]) -> Condition:
    """The first of: the proposal's predicate, a derived predicate, the proposal's judged text, none (SPEC A3.4).

    A predicate is taken when it is true of `facts` and, where there is a panel, false on at least one of it. One that is true of
    more than `COMMON` of the panel is narrowed by facts that the correction is about.
    """
    if wanted.kind == "predicate" and _discriminates(wanted.predicate, facts, panel):
        narrower = _narrowed(wanted.predicate, changed, facts, panel)
        return wanted if narrower == wanted.predicate else Condition(kind="predicate", text=narrower, predicate=narrower)
    derived = _narrowed("", changed, facts, panel)
    if derived:
        return Condition(kind="predicate", text=derived, predicate=derived)
    return wanted if wanted.kind == "judged" else Condition()


def _narrowed(predicate: str, changed: frozenset[str], facts: Facts, panel: Sequence[Facts]) -> str:
    """`predicate` and as many derived facts, rarest first, as it takes to be rare on the panel; at most MAX_ATOMS."""
    parts = [f"({predicate})" if " or " in predicate else predicate] if predicate else []
    for atom in _derived(changed, facts, panel):
        if len(parts) == MAX_ATOMS or (parts and _share(" and ".join(parts), panel) <= COMMON):
            break
        if atom not in parts:
            parts.append(atom)
    return " and ".join(parts)


def _share(predicate: str, panel: Sequence[Facts]) -> float:
    return sum(holds(predicate, other) for other in panel) / max(1, len(panel))


def _discriminates(predicate: str, facts: Facts, panel: Sequence[Facts]) -> bool:
    try:
        return holds(predicate, facts) and (not panel or not all(holds(predicate, other) for other in panel))
    except InvalidData:
        return False


def _derived(changed: frozenset[str], facts: Facts, panel: Sequence[Facts]) -> list[str]:
    """Facts of the source whose names occur in what the correction changed, as predicates, the rarest on the panel first."""
    atoms = []
    for trait in traits(facts):
        name, _, item = trait.partition(":")
        words = set(re.findall(r"\w+", item.lower()))
        atom = f'"{item}" in {name}'
        if words & changed and '"' not in item and "\\" not in item and _discriminates(atom, facts, panel):
            atoms.append((_share(atom, panel), atom))
    return [atom for _, atom in sorted(atoms)]


def changed_parts(original: str, corrected: str, tokens: Tokens) -> frozenset[str]:
    """The lower-cased tokens that only one of the two actions has."""
    return frozenset(t.lower() for t in _only_in_one(original, corrected, tokens))


def _only_in_one(original: str, corrected: str, tokens: Tokens) -> set[str]:
    before, after = ({t.strip("'\"`") for t in tokens(text)} for text in (original, corrected))
    return before ^ after


def _stripper(question: str, original: str, corrected: str, others: Sequence[str], tokens: Tokens) -> Callable[[str], str]:
    """Replaces literals of the actions that occur in the source's question and in no other task's text by numbered placeholders.

    Literals that the correction is about stay: a name's spelling can be the lesson.
    """
    literals = {t.strip("'\"") for action in (original, corrected) for t in tokens(action) if t[:1] in "'\"" or t[:1].isdigit()}
    literals -= _only_in_one(original, corrected, tokens)
    asked, elsewhere = question.lower(), [text.lower() for text in others]
    own = sorted(
        (x for x in literals if len(x) > 1 and _within(x.lower(), asked) and not any(_within(x.lower(), text) for text in elsewhere)),
        key=lambda x: (-len(x), x),
    )
    if not own or not others:
        return lambda text: text
    names: dict[str, str] = {}
    for literal in own:
        names.setdefault(literal.lower(), f"<value{len(names) + 1}>")
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(x)}(?!\w)" for x in own), re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: names[match.group().lower()], text)


def _within(literal: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(literal)}(?!\w)", text) is not None


def _cap(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
