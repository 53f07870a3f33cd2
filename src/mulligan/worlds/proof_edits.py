"""Operator proposals for the proof world: small changes of a failed proof at its first error, tried before offered.

In: a proof that failed, the evidence against it (place and goal), its theorem and the checker. Out: proposals that the checker takes, the
likeliest first. All drafts go to one `coqtop` within `SECONDS`; as in the code world these runs are no evaluator calls. Not promised:
changes in two places, beyond closing what is left.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mulligan.edits import edit_text
from mulligan.records import Proposal, Signal
from mulligan.worlds.proof_rocq import Refused, Rocq
from mulligan.worlds.proof_text import GIVEN_UP, Sentence, Theorem, sentences, tokens

MOST = 60  # drafts that are tried for one failure
SECONDS = 8.0
OFFERED = 8
CLOSERS = (  # tactics that end a goal, most used first
    "reflexivity", "lia", "auto", "easy", "congruence", "simpl; auto", "simpl; lia", "eauto", "intuition", "firstorder", "ring", "tauto",
    "nia", "intros; subst; simpl in *; auto", "lra", "nra", "field", "discriminate", "intuition (subst; eauto; try lia)",
    "vm_compute; reflexivity", "simpl; congruence",
)  # fmt: skip
FIRST = ("intros", "simpl", "simpl in *", "subst", "symmetry", "split", "left", "right", "f_equal")  # what may be missing before a tactic
OTHERWISE: Mapping[str, Sequence[str]] = {  # what stands for a tactic's first word
    "apply": ("eapply", "rewrite", "rewrite <-", "exact"), "auto": ("eauto", "eauto with arith"), "destruct": ("induction",),
    "eapply": ("apply",), "exact": ("apply", "rewrite"), "induction": ("destruct",), "intro": ("intros",), "left": ("right",),
    "right": ("left",), "lia": ("nia",), "lra": ("nra",), "simpl": ("cbn", "unfold not"), "unfold": ("simpl",),
    "rewrite": ("apply", "rewrite <-", "erewrite"), "reflexivity": ("symmetry; auto", "f_equal; auto"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draft:
    """A changed proof. `prior` says how often such a change mends one."""

    action: str
    operator: str
    why: str
    prior: float


def proposals(action: str, signals: Sequence[Signal], theorem: Theorem, rocq: Rocq) -> Iterator[Proposal]:
    """Changes of `action` that make it a proof, the likeliest first."""
    best: dict[str, Draft] = {}
    for draft in drafts(action, signals, theorem):
        known = best.get(draft.action)
        if tokens(draft.action) != tokens(action) and (known is None or known.prior < draft.prior):
            best[draft.action] = draft
    ranked = sorted(best.values(), key=lambda draft: -draft.prior)[:MOST]
    try:
        works = rocq.works(theorem, [draft.action for draft in ranked], SECONDS)
    except Refused:
        return
    for draft in [draft for draft, work in zip(ranked, works, strict=True) if work][:OFFERED]:
        yield Proposal(action=draft.action, edit=edit_text(action, draft.action, tokens), why=draft.why, proposer=draft.operator)


def drafts(action: str, signals: Sequence[Signal], theorem: Theorem) -> Iterator[Draft]:
    """All drafts, in no order; one proof may come twice."""
    if GIVEN_UP.search(action):
        action = re.sub(r"\s*\b(?:Admitted|Qed)\s*\.\s*\Z", "", action)
    said = sentences(action)
    if said and said[-1].text[-1] not in ".}-+*":
        action = f"{action.rstrip()}."
        said = sentences(action)
        yield Draft(action, "op:dot", "the last sentence ends with a dot", 1.1)
    at = _place(action, said, signals)
    goal = next((signal.what for signal in signals if signal.kind == "goal"), "")
    yield from _closed(action, said, at, goal, theorem)
    if at < len(said):
        yield from _changed(action, said, at, theorem)
    yield from _whole(action, said)


def _place(action: str, said: Sequence[Sentence], signals: Sequence[Signal]) -> int:
    """The sentence that the first evidence names, or a hole; their number where none is."""
    for signal in signals:
        if found := re.fullmatch(r"line (\d+), column (\d+)", signal.where):
            lines = action.split("\n")[: int(found.group(1)) - 1]
            offset = sum(len(line) + 1 for line in lines) + int(found.group(2)) - 1
            return next((n for n, one in enumerate(said) if offset < one.end), len(said))
    return next((n for n, one in enumerate(said) if GIVEN_UP.search(one.text)), len(said))


def _closed(action: str, said: Sequence[Sentence], at: int, goal: str, theorem: Theorem) -> Iterator[Draft]:
    """The goal ended by another tactic, with the rest of the proof kept, its own branch dropped, or all of it dropped."""
    before = action[: said[at].start] if at < len(said) else f"{action.rstrip()}\n" if action.strip() else ""
    after = action[said[at].end :] if at < len(said) else ""
    branch = next((one.start for one in said[at + 1 :] if _leaves(one, said[:at])), None)
    tails = dict.fromkeys([after, action[branch - 1 :] if branch is not None else ""])
    present = " ".join([*theorem.given, action])
    for rank, tactic in enumerate(CLOSERS):
        library = "Lia" if re.search(r"[ln]ia\b", tactic) else "Lra" if re.search(r"[ln]ra\b", tactic) else ""
        if library == "Lra" and not re.search(r"\bReals\b|\bLra\b", present):
            continue
        needs = f"Require Import {library}. " if library and not re.search(rf"\b{library}\b", present) else ""
        prior = 0.8 - 0.02 * rank + 0.2 * _suits(tactic, goal)
        for cost, tail in enumerate(tails):
            yield Draft(f"{before}{needs}{tactic}.{tail}", "op:tactic", f"{tactic} ends the goal there", prior - 0.05 * cost)
        if not re.search(r"^\s*(?:[-+*]|\{)", before, re.M):  # a bullet hides what is left
            yield Draft(f"{before}{needs}all: try ({tactic}).", "op:finish", f"what is left is ended by {tactic}", prior - 0.15)

    for name in _variables(goal):
        for rank, means in enumerate(("induction", "destruct")):
            tactic = f"{means} {name}; intros; simpl; try congruence; {'try lia; ' if 'Lia' in present else ''}auto"
            for cost, tail in enumerate(tails):
                yield Draft(f"{before}{tactic}.{tail}", f"op:{means}", f"{means} on {name}", 0.85 - 0.1 * rank - 0.05 * cost)


def _variables(goal: str) -> list[str]:
    """Names in a goal that an induction may be on: its hypotheses that are no propositions, and what it says of all."""
    above, _, conclusion = goal.rpartition("====")
    named = re.findall(r"^([\w', ]+) : [a-z]\w*(?: [\w ]+)?$", above, re.M)
    bound = re.findall(r"\bforall ([\w' ]+)[:,]|\(([\w' ]+) :", conclusion.partition(",")[0])
    listed = " ".join([*(part.replace(",", " ") for part in named), *(part for pair in bound for part in pair)])
    return list(dict.fromkeys(listed.split()))[:4]


def _leaves(one: Sentence, before: Sequence[Sentence]) -> bool:
    """Whether a sentence begins another branch than the one that `before` ends in."""
    return one.text == "}" or (re.fullmatch(r"[-+*]+", one.text) is not None and any(other.text == one.text for other in before))


def _suits(tactic: str, goal: str) -> bool:
    """Whether a goal looks like one for the tactic."""
    conclusion = goal.rpartition("====")[2]
    if "lia" in tactic or "lra" in tactic:
        return re.search(r"<|>|\d|\+|\bmod\b", conclusion) is not None
    if tactic == "ring":
        return "*" in conclusion and "=" in conclusion
    if tactic in ("intuition", "firstorder", "tauto"):
        return re.search(r"/\\|\\/|~|<->|False|exists", goal) is not None
    return False


def _changed(action: str, said: Sequence[Sentence], at: int, theorem: Theorem) -> Iterator[Draft]:
    """The failing tactic changed, left out, or prepared."""
    here = said[at]
    before, after, tactic = action[: here.start], action[here.end :], here.text
    if found := re.search(r"\brewrite\s+(<-\s*|->\s*)?", tactic):
        other = "rewrite " if (found.group(1) or "").startswith("<-") else "rewrite <- "
        flipped = tactic[: found.start()] + other + tactic[found.end() :]
        yield Draft(f"{before}{flipped}{after}", "op:direction", "the equation is used the other way round", 1.0)
    word = re.match(r"[a-z]\w*", tactic)
    for other in OTHERWISE.get(word.group() if word else "", ()):
        yield Draft(f"{before}{other}{tactic[len(word.group()) if word else 0 :]}{after}", "op:word", f"{other} in its place", 0.7)
    for first in FIRST:
        yield Draft(f"{before}{first}. {tactic}{after}", "op:first", f"{first} comes before it", 0.6)
    defined = re.findall(r"^(?:Definition|Fixpoint)\s+([\w']+)", "\n".join(theorem.given), re.M)
    for name in [name for name in defined if name in theorem.said]:
        yield Draft(f"{before}unfold {name} in *. {tactic}{after}", "op:unfold", f"{name} is unfolded before it", 0.65)
    if ";" in tactic:
        yield Draft(f"{before}{tactic.partition(';')[0]}.{after}", "op:less", "the first part alone", 0.5)
    yield Draft(f"{before}{after.lstrip()}", "op:less", "it is left out", 0.55)


def _whole(action: str, said: Sequence[Sentence]) -> Iterator[Draft]:
    """What does not depend on the place: bullets, dots, an induction that comes before what it needs is general."""
    plain = [one for one in said if not re.fullmatch(r"[-+*]+|\{|\}", one.text)]
    if len(plain) < len(said):
        yield Draft("\n".join(one.text for one in plain), "op:bullets", "without bullets and braces", 0.45)
    if dotted := re.sub(r"(?<=[\w)\]])[ \t]*(?=\n|\Z)", ".", action):
        yield Draft(dotted, "op:dot", "each line ends with a dot", 0.9 if said and not said[-1].text.endswith(".") else 0.3)
    if found := re.search(r"\bintros((?:\s+[\w']+)+)\s*\.\s*induction\s+([\w']+)", action):
        names, on = found.group(1).split(), found.group(2)
        if on in names and names.index(on) < len(names) - 1:
            later = " ".join(names[names.index(on) + 1 :])
            general = f"intros {' '.join(names)}. revert {later}. induction {on}"
            tail = action[found.end() :]
            yield Draft(f"{action[: found.start()]}{general}{tail}", "op:general", f"{later} stays general", 0.75)
            yield Draft(f"{action[: found.start()]}{general}; intros {later}{tail}", "op:general", f"{later} stays general", 0.9)
