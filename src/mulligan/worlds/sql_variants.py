"""Changes of a question together with the query that answers it: one fact, and everything else as it was.

In: an Asked (a question, its gold query, a correction of such a query) and the database's held copy. Out: Changes, each an Asked with one
fact changed in all three, and the name of its rule. `RULES` read the question and the query's tree; `mined` takes the changed wording from
another question of the same data. Nothing is judged here: a change may leave the correction right, or make a question that reads badly.
Rules read English; a question in another language has only what `mined` finds.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sqlglot import exp

from mulligan.worlds.sql_query import Query, Splicer, parse
from mulligan.worlds.sql_schema import Catalogue, Column, catalogue
from mulligan.worlds.sql_values import Values, fold, turned, values

SPAN = 2  # words, without the small ones, that may stand in one question where the other has one or none
SMALL = frozenset(
    re.findall(r"\w+", "a an the of in on at to by is are was do does that which what who whose there have has many much all")
)
LONGEST = 100  # words of questions that are compared
NEAR = 0.9  # share of common values from which two columns hold the same sort of thing
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
NAMING = frozenset({"name", "title", "label", "full", "code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, the query that answers it, and a correction that may be shown for it."""

    question: str
    gold: str
    correction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a rule made of an Asked: `change` says it in words. The correction has new values where the question has."""

    rule: str
    change: str
    asked: Asked


@dataclass(frozen=True, slots=True)
class Masked:
    """A question word by word: as compared (a named value is what it is), as written, and the value that stands there."""

    keys: list[str]
    words: list[str]
    held: list[str]


class Reading:
    """An Asked, read: the tree of its gold query, the values that its question names, and its database."""

    def __init__(self, asked: Asked, held: Path) -> None:
        """Raises ValueError when the gold query has no tree."""
        self.asked, self.held = asked, held
        self.catalogue: Catalogue = catalogue(held)
        self.values: Values = values(held)
        query = parse(asked.gold.strip("; \t\r\n"), self.catalogue)
        if query is None:
            raise ValueError(asked.gold)
        self.query: Query = query

    @cached_property
    def named(self) -> dict[str, Column]:
        """Values of the gold query that the question names, as the query writes them, with the column each is compared with."""
        found: dict[str, Column] = {}
        for compared in self.query.comparisons():
            columns = self.query.resolve(compared.column)
            if columns and said(self.asked.question, compared.value, "") is not None:
                found.setdefault(compared.value, columns[0])
        return found

    @cached_property
    def skeleton(self) -> tuple[str, list[str]]:
        """The query with its named values masked, and these in the order in which they stand in it."""
        order = list(self.named)
        return revalued(self.query, {value: f"<{at}>" for at, value in enumerate(order)}).casefold(), order

    @cached_property
    def masked(self) -> Masked:
        """The question word by word."""
        question, marks = self.asked.question, _marks(sorted(self.named, key=len, reverse=True))
        for mark, value in marks.items():
            question = said(question, value, mark) or question
        keys, words, held = [], [], []
        for word in question.split():
            bare = word.strip("?.,!").casefold()
            if value := marks.get(bare, ""):
                keys.append(f"<{self.sort(self.named[value])}>")
                words.append(value)
                held.append(value)
            elif bare:
                keys.append(bare)
                words.append(word.strip("?.,!"))
                held.append("")
        return Masked(keys, words, held)

    def sort(self, column: Column) -> str:
        """What kind of thing a column's texts are: the table named for it (`traverse` holds states), else the column's own name."""
        own = {table.name.casefold() for table in self.catalogue.tables}
        if said_so := [part for part in parts(column.name) if part in own]:
            return said_so[0]
        for other in map(self.naming, (table.name for table in self.catalogue.tables)):
            if other and other != column and self.values.shared(column, other) >= NEAR:
                return other.table.casefold()
        return column.name.casefold()

    def naming(self, table: str) -> Column | None:
        """The column that names what a table holds: `city_name` of `city`, `name` of `port`."""
        own = {*parts(table), singular(table.casefold())}
        texts = [column for column in self.catalogue.columns([table]) if not self.values.numeric(column)]
        return next((c for c in texts if NAMING & {*parts(c.name)} and {*parts(c.name)} <= own | NAMING), None)

    def revalued(self, new: Mapping[str, str], query: Query | None = None) -> Asked:
        """Other values in place of named ones: in the question, in the gold query (or another one instead of it) and in the correction."""
        question, correction = self.asked.question, revalued_text(self.asked.correction, new, self.catalogue)
        for old, value in new.items():
            question = said(question, old, value) or question
        return Asked(question=question, gold=revalued(query or self.query, new), correction=correction)


def read(asked: Asked, held: Path) -> Reading | None:
    """The reading, or None where the gold query has no tree."""
    try:
        return Reading(asked, held)
    except ValueError:
        return None


# ---- words and values ----


def said(question: str, old: str, new: str) -> str | None:
    """The question with `new` where it says `old`, in whatever case or order of names; None where it does not."""
    pattern = _spelling(question, old)
    return None if pattern is None else pattern.sub(lambda _: new, question)


def _spelling(question: str, value: str) -> re.Pattern[str] | None:
    """What finds a value in a question that names it."""
    for spelling in dict.fromkeys((fold(value), turned(value))):
        words = r"\s+".join(map(re.escape, spelling.split()))
        pattern = re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
        if words and pattern.search(question):
            return pattern
    return None


def revalued(query: Query, new: Mapping[str, str]) -> str:
    """The query's text with other texts in place of those in `new`, whatever their case, also inside a pattern of LIKE."""
    known = {fold(old): value for old, value in new.items()}

    def other(text: str) -> str | None:
        bare = text.strip("%")
        value = known.get(fold(bare))
        return text.replace(bare, value) if value is not None else None

    found = {at: value for at, node in enumerate(query.nodes) if query.is_text(node) and (value := other(node.name)) is not None}
    return put(query, {at: exp.Literal.string(value) for at, value in found.items()}) if found else query.text


def revalued_text(sql: str, new: Mapping[str, str], known: Catalogue) -> str:
    """The same for text that may have no tree: then it stays as it is."""
    query = parse(sql.strip("; \t\r\n"), known)
    return sql if query is None else revalued(query, new)


def put(query: Query, new: Mapping[int, exp.Expr]) -> str:
    """The query's text with other nodes at these places of `query.nodes`."""
    tree = query.tree.copy()
    nodes = list(tree.walk())
    for at, node in new.items():
        nodes[at].replace(node)
    return Splicer(query.text, query.tree)(tree)


def parts(name: str) -> list[str]:
    return [part.casefold() for part in _PART.findall(name)]


def singular(word: str) -> str:
    """An English noun in the singular, by its ending."""
    return word[:-3] + "y" if word.endswith("ies") else word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def plural(word: str) -> str:
    """An English noun in the plural."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(?:s|x|ch|sh)$", word) else "s")


def says(question: str, noun: str) -> str:
    """The form, singular or plural, in which a question says a noun; "" when it does not."""
    found = re.search(rf"(?<!\w)(?:{re.escape(plural(noun))}|{re.escape(noun)})(?!\w)", question, re.IGNORECASE)
    return found[0] if found else ""


# ---- another question of the same data ----


def mined(one: Reading, other: Reading) -> Change | None:
    """The other question with the values of this one, where the two differ in one place and mean different queries."""
    mine, theirs = one.masked, other.masked
    if max(len(mine.keys), len(theirs.keys)) > LONGEST:
        return None
    steps = difflib.SequenceMatcher(None, mine.keys, theirs.keys, autojunk=False).get_opcodes()
    hunks = [step for step in steps if step[0] != "equal"]
    if len(hunks) != 1 or len(mine.keys) < 3:
        return None
    _, a0, a1, b0, b1 = hunks[0]
    sizes = sorted(sum(key not in SMALL for key in keys) for keys in (mine.keys[a0:a1], theirs.keys[b0:b1]))
    values_on_each = [sum(map(bool, held)) for held in (mine.held[a0:a1], theirs.held[b0:b1])]
    if sizes[0] > 1 or not 0 < sizes[1] <= SPAN or len(set(values_on_each)) != 1:
        return None
    kept = {
        theirs.held[b]: mine.held[a]
        for op, i0, i1, j0, _ in steps
        if op == "equal"
        for a, b in zip(range(i0, i1), range(j0, j0 + i1 - i0), strict=True)
        if theirs.held[b]
    }
    made = other.revalued(kept)
    old, new = (" ".join(words) for words in (mine.words[a0:a1], theirs.words[b0:b1]))
    swapped = {x: y for x, y in zip(mine.held[a0:a1], theirs.held[b0:b1], strict=False) if x and y}
    correction = revalued_text(one.asked.correction, swapped, one.catalogue)
    asked = Asked(question=made.question, gold=made.gold, correction=correction)
    return Change(rule="mined", change=f"{old or '(nothing)'} → {new or '(nothing)'}", asked=asked)


def reworded(one: Reading, other: Reading) -> Asked | None:
    """The other question with the values of this one, where both mean the same query."""
    mine, theirs = one.skeleton, other.skeleton
    if mine[0] != theirs[0] or len(mine[1]) != len(theirs[1]):
        return None
    question, marks = other.asked.question, _marks(theirs[1])
    for mark, old in marks.items():
        question = said(question, old, mark) or question
    for mark, value in zip(marks, mine[1], strict=True):
        question = question.replace(mark, _written(one.asked.question, value))
    return Asked(question=question, gold=one.asked.gold, correction=one.asked.correction)


def _marks(names: Sequence[str]) -> dict[str, str]:
    """A character of its own for each name, that stands for it while others are looked for: no text holds it as part of a word."""
    return {chr(0xE000 + number): name for number, name in enumerate(names)}


def _written(question: str, value: str) -> str:
    """A value as the question writes it."""
    pattern = _spelling(question, value)
    found = pattern.search(question) if pattern else None
    return found[0] if found else value
