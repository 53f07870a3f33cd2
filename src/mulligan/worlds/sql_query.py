"""A query as an agent wrote it: its text, its tree, what its names mean, and changes of the tree carried over to the text.

In: an action, which may carry fences, a prompt's echo or semicolons. Out: the SQL in it, its tokens, a Query whose columns are resolved to
columns of the database, and a Splicer, which carries a change of the tree over to the text so that the rest stays as it was written.
Not promised: names inside derived tables and CTEs resolve to nothing; text that sqlglot cannot parse has no tree.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from mulligan.worlds.sql_schema import Catalogue, Column

FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
WORDS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+|[^\w\s]")
SQLITE = sqlglot.Dialect.get_or_raise("sqlite")
READABLE = 20_000  # characters that are parsed; longer text has no tree
STARTS = (sqlglot.TokenType.SELECT, sqlglot.TokenType.WITH, sqlglot.TokenType.VALUES, sqlglot.TokenType.L_PAREN)
COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.Is)


def clean(action: str) -> str:
    """The SQL of an action: what the first fence holds, without the semicolons and white space around it."""
    fenced = FENCE.search(action)
    return (fenced.group(1) if fenced else action).strip("; \t\r\n")


def tokens(text: str) -> list[str]:
    """The tokens of SQL, keywords in upper case; words and signs where it does not tokenize."""
    return [_shown(token, text) for token in _tokenize(text)] or WORDS.findall(text[:READABLE])


def _tokenize(text: str) -> list[sqlglot.Token]:
    try:
        return SQLITE.tokenize(text) if len(text) <= READABLE else []
    except (SqlglotError, RecursionError, ValueError):
        return []


def _shown(token: sqlglot.Token, text: str) -> str:
    written = text[token.start : token.end + 1]
    return written if written[:1] in "'\"`[" or token.token_type in (sqlglot.TokenType.VAR, sqlglot.TokenType.NUMBER) else written.upper()


@dataclass(frozen=True, slots=True)
class Compared:
    """A column compared with a text: `node` is the comparison or the IN list, `literal` the text's node in it."""

    node: exp.Expr
    column: exp.Column
    literal: exp.Expr

    @property
    def value(self) -> str:
        return self.literal.name


class Query:
    """A parsed query. Nodes belong to `tree`; change copies of it only."""

    def __init__(self, text: str, tree: exp.Query, catalogue: Catalogue) -> None:
        self.text = text
        self.tree = tree
        self.catalogue = catalogue

    @cached_property
    def nodes(self) -> list[exp.Expr]:
        """All nodes in the order of `walk`, which a copy of the tree shares."""
        return list(self.tree.walk())

    @cached_property
    def _defined(self) -> set[str]:
        return {cte.alias.lower() for cte in self.tree.find_all(exp.CTE)}

    def sources(self, select: exp.Expr | None) -> dict[str, str | None]:
        """Alias → table of the database (None: a derived table or CTE) of one SELECT, in order."""
        if not isinstance(select, exp.Select):
            return {}
        found: dict[str, str | None] = {}
        for item in [select.args.get("from_"), *(select.args.get("joins") or [])]:
            source = item.this if item is not None else None
            if isinstance(source, exp.Expr):
                known = isinstance(source, exp.Table) and source.name.lower() not in self._defined
                table = self.catalogue.table(source.name) if known else None
                found[source.alias_or_name] = table.name if table else None
        return found

    def resolve(self, column: exp.Column) -> list[Column]:
        """The columns of the database that this reference can mean: of the nearest SELECT around it that has one."""
        select = column.find_ancestor(exp.Select)
        while select is not None:
            sources = self.sources(select)
            named = [table for alias, table in sources.items() if alias.lower() == column.table.lower()]
            tables = named if column.table else sources.values()
            found = [held for table in tables if table and (held := self.catalogue.column(table, column.name))]
            if found or named:
                return found
            select = select.find_ancestor(exp.Select)
        return []

    def is_text(self, node: exp.Expr | None) -> bool:
        """Whether a node is a text: a string, or a name in double quotes that no table has, which SQLite takes for one."""
        if isinstance(node, exp.Literal):
            return bool(node.is_string)
        return isinstance(node, exp.Column) and not node.table and bool(node.this.args.get("quoted")) and not self.resolve(node)

    def columns(self) -> Iterator[exp.Column]:
        """Column references, without the stars and the texts in double quotes."""
        for node in self.nodes:
            if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) and not self.is_text(node):
                yield node

    def comparisons(self) -> Iterator[Compared]:
        """Columns compared with texts, in the order of the text."""
        for node in self.nodes:
            if isinstance(node, exp.In):
                pairs = [(node.this, item) for item in node.expressions]
            elif isinstance(node, COMPARISONS):
                pairs = [(node.this, node.expression), (node.expression, node.this)]
            else:
                continue
            for one, other in pairs:
                bare = one.this if isinstance(one, exp.Lower | exp.Upper) else one
                if isinstance(bare, exp.Column) and not self.is_text(bare) and self.is_text(other):
                    yield Compared(node, bare, other)


def parse(text: str, catalogue: Catalogue) -> Query | None:
    """The query, or None where sqlglot does not read it as one."""
    found = _tokenize(text)
    kinds = [token.token_type for token in found]
    if not kinds or kinds[0] not in STARTS or sqlglot.TokenType.SEMICOLON in kinds or "\x00" in text:
        return None
    try:
        text.encode()
        trees = SQLITE.parser().parse(found, text)
    except (SqlglotError, RecursionError, ValueError):
        return None
    return Query(text, trees[0], catalogue) if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


def render(tree: exp.Expr) -> str:
    """The tree as SQLite's SQL on one line."""
    return tree.sql(dialect="sqlite", comments=False, unsupported_level=ErrorLevel.IGNORE)


class Splicer:
    """Carries changes of a text's tree over to the text."""

    def __init__(self, text: str, tree: exp.Expr) -> None:
        self._written, self._old = _Tokens(text), _Tokens(render(tree))
        self._place = _alignment(self._written.folded, self._old.folded)

    def __call__(self, changed: exp.Expr) -> str:
        """The text with the change that makes `changed` of its tree; all of `changed` where the two do not line up."""
        written, new = self._written, _Tokens(render(changed))
        parts: list[str] = []
        done = 0
        for op, a0, a1, b0, b1 in difflib.SequenceMatcher(None, self._old.spelled, new.spelled, autojunk=False).get_opcodes():
            if op == "equal":
                continue
            first, last = self._place.get(a0), self._place.get(a1)
            if first is None or last is None or last < first:
                return new.text
            start, end, put = written.start(first), written.end(last), new.text[new.start(b0) : new.end(b1)]
            if op != "replace":  # the white space around the place: as it was written, where it may be, and as rendered otherwise
                start, gap = written.end(first), written.gap(last)
                end = start + len(gap) if op == "insert" else written.start(last)
                after_it = new.gap(b1)
                put = (new.gap(b0) + put if op == "insert" else "") + ((gap or after_it) if after_it else "")
            parts += [written.text[done:start], put]
            done = end
        return ("".join(parts) + written.text[done:]).strip()


class _Tokens:
    """A text and its tokens by number; one past the last stands for the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._all = _tokenize(text)
        self.spelled = [text[t.start : t.end + 1] for t in self._all]
        self.folded = [t.text.lower() for t in self._all]

    def start(self, number: int) -> int:
        return self._all[number].start if number < len(self._all) else len(self.text)

    def end(self, number: int) -> int:
        """Where the token before this one ends."""
        return self._all[number - 1].end + 1 if number else 0

    def gap(self, number: int) -> str:
        """What is between the token before this one and this one."""
        return self.text[self.end(number) : self.start(number)]


def _alignment(written: Sequence[str], rendered: Sequence[str]) -> dict[int, int]:
    """Token boundaries of the rendered text → the same boundaries in the written one, where a token beside them agrees."""
    place = {0: 0, len(rendered): len(written)}
    for a, b, size in difflib.SequenceMatcher(None, rendered, written, autojunk=False).get_matching_blocks():
        for step in range(size):
            place.setdefault(a + step, b + step)
            place[a + step + 1] = b + step + 1
    return place
