"""The text of theorem files and proofs for Rocq: sentences with places, theorems with what is given, tokens.

In: text that may be anything. Out: sentences as Coq's lexer cuts them (comments, strings, bullets and braces), theorems, tokens. Nothing is
run, time is linear in the text. Not promised: that a sentence means anything to Coq, or that notations which end in a dot are seen through;
no verdict rests on what is found here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from mulligan.errors import InvalidData
from mulligan.records import Signal

LONGEST = 20_000  # characters of an action
FENCE = re.compile(r"```[ \t]*(?:coq|rocq|lean4?|v)?[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL | re.IGNORECASE)
MARK = re.compile(r"\(\*+ *(source|train|heldout) +([\w-]+) *\*+\)")  # of a theorem's split and group
THEOREM = re.compile(r"(?:#\[[^\]]*\]\s*)?(?:Theorem|Lemma|Fact|Remark|Corollary|Proposition|Property|Example)\s+([^\W\d][\w']*)")
ENDS = re.compile(r"(?:Qed|Defined|Admitted|Abort|Save\b.*)\s*\.\Z", re.DOTALL)
GIVEN_UP = re.compile(r"\b(?:admit|give_up|Admitted)\b")
# What a file says for itself alone; everything else it hands on to those who import it.
OWN = re.compile(r"(?:#\[\w+\]\s*|Global\s+)?(?:Require|From|Import|Export|Open|Close|Set|Unset|Generalizable|Implicit|Local)\b")
_PART = re.compile(r'\(\*|\*\)|"|\.+(?=\s|\Z)|\.+')
_ALONE = re.compile(r"-+|\++|\*+|(?:(?:\d+|\[\s*[\w']+\s*\])\s*:\s*)?\{|\}")
_TOKEN = re.compile(r"[\w']+|-+|\++|\*+|[<>=/\\|&:~^!?%@#$;,]+|[^\s\w]")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and its place; a bullet or a brace is one of its own."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem:
    """A theorem of a file. `given` are the sentences before it but other theorems; `proof` is "" where it has none, or one with a hole."""

    name: str
    said: str
    given: tuple[str, ...] = ()
    proof: str = ""
    mark: tuple[str, str] | None = None  # split and group, as a comment before it says

    @property
    def text(self) -> str:
        """The file that states it, without a proof."""
        return "\n".join([*self.given, self.said])


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a checker says of a proof. `closed` is the share of its goals that a failed one closed before its first error."""

    completed: bool = True
    accepted: bool = False
    closed: Fraction = Fraction(0)
    signals: tuple[Signal, ...] = ()


def cut(text: str, most: int = 400) -> str:
    """`text`, no longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def clean(action: str) -> str:
    """The proof in an action: what the first fence holds."""
    fenced = FENCE.search(action)
    return (fenced.group(1) if fenced else action).strip("\n").rstrip()


def tokens(action: str) -> list[str]:
    """Words, signs and bullets, without comments."""
    return _TOKEN.findall(_bare(action[:LONGEST]))


def sentences(text: str) -> list[Sentence]:
    """The sentences of `text`; the last one may lack its dot."""
    return list(_sentences(text))


def _sentences(text: str) -> Iterator[Sentence]:
    at = _blank(text, 0)
    while at < len(text):
        alone = _ALONE.match(text, at)
        end = alone.end() if alone else _end(text, at)
        yield Sentence(text[at:end].rstrip(), at, end)
        at = _blank(text, end)


def _end(text: str, at: int) -> int:
    """Where the sentence that begins at `at` ends, with its dot."""
    comment, quoted = 0, False
    for part in _PART.finditer(text, at):
        sign = part.group()
        if sign == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif sign == "(*":
            comment += 1
        elif sign == "*)":
            comment = max(0, comment - 1)
        elif not comment and len(sign) in (1, 3) and (part.end() == len(text) or text[part.end()].isspace()):
            return part.end()
    return len(text)


def _blank(text: str, at: int) -> int:
    """The first place from `at` on that is neither space nor comment."""
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text.startswith("(*", at):
            at = _comment_end(text, at)
        else:
            break
    return at


def _comment_end(text: str, at: int) -> int:
    depth, quoted = 0, False
    for part in _PART.finditer(text, at):
        sign = part.group()
        if sign == '"':
            quoted = not quoted
        elif not quoted and sign in ("(*", "*)"):
            depth += 1 if sign == "(*" else -1
            if depth == 0:
                return part.end()
    return len(text)


def _bare(text: str) -> str:
    """`text` with its comments as spaces."""
    parts, at = [], 0
    while (start := text.find("(*", at)) >= 0:
        parts.append(text[at:start])
        at = _comment_end(text, start)
    return " ".join([*parts, text[at:]])


@dataclass(slots=True)
class _File:
    """What was read of a file so far."""

    given: list[str] = field(default_factory=list)
    found: dict[str, Theorem] = field(default_factory=dict)


def theorems(text: str, name: str = "text") -> list[Theorem]:
    """The theorems of a file. Raises InvalidData where there are none, or two have one name."""
    seen, cut = _File(), sentences(text)
    at, until = 0, 0
    while at < len(cut):
        here = cut[at]
        matched = THEOREM.match(here.text)
        if not matched or _defines(here.text):
            seen.given.append(here.text)
            until, at = here.end, at + 1
            continue
        if not here.text.endswith("."):
            raise InvalidData(f"{name}: the statement of {matched.group(1)} has no end")
        if matched.group(1) in seen.found:
            raise InvalidData(f"{name}: two theorems have the name {matched.group(1)}")
        marks = MARK.findall(text[until : here.start])
        after, proof = _proof(cut, at + 1, text)
        until = cut[after - 1].end
        seen.found[matched.group(1)] = Theorem(
            name=matched.group(1), said=here.text, given=tuple(seen.given), proof=proof, mark=marks[-1] if marks else None
        )
        at = after
    if not seen.found:
        raise InvalidData(f"{name}: there is no theorem")
    return list(seen.found.values())


def _defines(said: str) -> bool:
    """Whether a sentence gives its own value, as `Example three := 3.` does."""
    return ":=" in _bare(re.sub(r'"[^"]*"', "", said)) and said.startswith("Example")


def _proof(cut: Sequence[Sentence], at: int, text: str) -> tuple[int, str]:
    """The place after the proof that begins at `at`, and its text; none where it ends in a hole, or not at all."""
    if at == len(cut) or not re.match(r"Proof\b", cut[at].text):
        return at, ""
    for place in range(at + 1, len(cut)):
        if ENDS.match(cut[place].text):
            whole = re.match(r"Qed|Defined", cut[place].text) is not None
            return place + 1, text[cut[at].end : cut[place].start].strip() if whole else ""
        if THEOREM.match(cut[place].text):
            return place, ""
    return len(cut), ""


# ---- facts ----

_SHAPES: Mapping[str, str] = {
    "forall": r"\bforall\b|∀",
    "exists": r"\bexists\b|∃",
    "implication": r"->|→",
    "equivalence": r"<->|↔",
    "conjunction": r"/\\|∧",
    "disjunction": r"\\/|∨",
    "negation": r"~|<>|¬|≠",
    "equality": r"(?<![<>:=!])=(?![>?=])",
    "order": r"(?<![-<])(?:<=?|>=?|≤|≥)(?![->?])",
}
_TYPES = re.compile(r"\b(?:nat|Z|N|Q|R|bool|list|option|Prop|Type|positive|Nat|Int|Real|ℕ|ℤ|ℝ|List|Bool)\b")
_KEYWORDS = frozenset(
    ["forall", "exists", "fun", "let", "in", "if", "then", "else", "match", "with", "end", "as", "return", "Prop", "Type", "Set"]
)
MOST_NAMES = 30


def describe(given: Sequence[str], said: str) -> dict[str, object]:
    """What conditions may test of a statement: shape, types, names that it does not bind itself, operators, libraries."""
    body = re.sub(r"^(?:#\[[^\]]*\]\s*)?\w+\s+[\w'.]+", "", _bare(said))
    bound = {name for part in re.findall(r"\(([\w' ]+):|\b(?:forall|exists)\s+([\w' ]+)", body) for name in " ".join(part).split()}
    names = [n for n in dict.fromkeys(re.findall(r"(?<![\w'])[^\W\d][\w'.]*[\w']|(?<![\w'])[^\W\d]", body)) if n not in _KEYWORDS | bound]
    libraries = [word for line in given for found in re.findall(r"(?:Import|Require|import)\s+([\w. ]+)", line) for word in found.split()]
    return {
        "shape": [name for name, sign in _SHAPES.items() if re.search(sign, body)],
        "types": sorted(set(_TYPES.findall(body))),
        "names": [name for name in names if not _TYPES.fullmatch(name)][:MOST_NAMES],
        "operators": sorted(set(re.findall(r"(?<=[\s\w)])(?:\+\+|::|\+|-|\*|/|\^|mod|%|&&|\|\||=\?|<=\?|<\?)(?=[\s\w(])", body))),
        "imports": sorted({word.rstrip(".").rpartition(".")[2] or word for word in libraries} - {"Import", "Export"}),
        "gist": " ".join(body.strip(" :.").split())[:600],
    }
