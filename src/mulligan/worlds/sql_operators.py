"""What an operator looks at and what it makes, and the operators on names, values and what is selected.

In: a Case (the parsed query, the question, the database's values). Out: Drafts with the words that explain them and a prior in [0, 1]; a
draft's tree is built only when it is asked for. Nothing here runs a query or knows the evidence of a judgement. The operators are general:
they know SQL, names and values, not a data set. Those on whole clauses are in `sql_clauses`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from sqlglot import exp

from mulligan.worlds.sql_evidence import unknown
from mulligan.worlds.sql_query import Compared, Query, render
from mulligan.worlds.sql_schema import Column
from mulligan.worlds.sql_values import Values, fold, near_names

AGGREGATES: tuple[tuple[type[exp.AggFunc], str], ...] = (
    (exp.Count, "count"),
    (exp.Sum, "sum"),
    (exp.Avg, "average"),
    (exp.Max, "superlative"),
    (exp.Min, "superlative"),
)
JOINABLE = 0.5  # share of values in common from which two columns can be joined

Node = TypeVar("Node", bound=exp.Expr)
Clause = tuple[str, str]  # a fact and what it should hold: ("values", "river.traverse")
Change = Callable[[], exp.Expr]  # makes the changed tree


@dataclass(frozen=True, slots=True)
class Draft:
    """One change. `about` says what it depends on, as clauses over facts, the most telling first."""

    operator: str
    edit: str
    change: Change
    prior: float
    why: str = ""
    about: tuple[Clause, ...] = ()


@dataclass(frozen=True)
class Case:
    """What the operators look at."""

    query: Query
    question: str
    known: Values
    asks: frozenset[str]
    mentions: frozenset[str]

    @cached_property
    def named(self) -> list[tuple[Column, str]]:
        """Columns and the value of theirs that the question names."""
        return self.known.named(self.question)

    @cached_property
    def words(self) -> str:
        return fold(self.question)

    @cached_property
    def unknown(self) -> set[int]:
        """Ids of the texts that no row of their column holds."""
        return {id(compared.literal) for compared, _ in unknown(self.query, self.known)}

    @cached_property
    def selects(self) -> list[exp.Select]:
        return [select for select in self.query.tree.find_all(exp.Select) if select.expressions]

    def in_scope(self, node: exp.Expr) -> list[Column]:
        """The columns of the tables that the SELECT around `node` reads."""
        return self.query.catalogue.columns(self.tables(node))

    def tables(self, node: exp.Expr) -> list[str]:
        """Those tables."""
        select = node if isinstance(node, exp.Select) else node.find_ancestor(exp.Select)
        return [table for table in self.query.sources(select).values() if table]

    def says(self, name: str) -> bool:
        """Whether the question has one of the words of a name."""
        return any(part in self.words.split() for part in name.lower().split("_"))

    def asked(self, *facets: str) -> tuple[Clause, ...]:
        return tuple(("asks", facet) for facet in facets if facet in self.asks)

    def spoken(self, node: exp.Expr) -> tuple[Clause, ...]:
        return tuple(("mentions", table) for table in self.tables(node))

    def reference(self, near: exp.Expr, column: Column) -> exp.Column:
        """A reference to `column` from beside `near`: qualified as that is, and where the SELECT reads several tables."""
        select = near if isinstance(near, exp.Select) else near.find_ancestor(exp.Select)
        sources = self.query.sources(select)
        alias = next((alias for alias, table in sources.items() if table == column.table), None)
        qualified = len(sources) > 1 or (isinstance(near, exp.Column) and bool(near.table))
        return exp.column(identifier(column.name), table=alias if qualified else None)

    def swap(self, *pairs: tuple[exp.Expr, exp.Expr | None]) -> Change:
        """Each first node replaced by the second; for None it is left out, and an AND or OR with it."""

        def change() -> exp.Expr:
            tree = self.query.tree.copy()
            for node, new in [(twin(tree, node), new) for node, new in pairs]:
                outer = node.parent
                if new is not None:
                    node.replace(new.copy())
                elif isinstance(outer, exp.And | exp.Or):
                    outer.replace(outer.right if outer.left is node else outer.left)
                else:
                    node.pop()
            return tree

        return change

    def within(self, select: exp.Select, edit: Callable[[exp.Select], object]) -> Change:
        """The SELECT changed in place by `edit`."""

        def change() -> exp.Expr:
            tree = self.query.tree.copy()
            edit(twin(tree, select))
            return tree

        return change


def twin(tree: exp.Expr, node: Node) -> Node:
    """The node of a copy of the tree that stands where `node` does in the original."""
    path: list[tuple[str, int | None]] = []
    here: exp.Expr = node
    while here.parent is not None:
        path.append((str(here.arg_key), here.index))
        here = here.parent
    for key, index in reversed(path):
        child = tree.args[key]
        tree = child if index is None else child[index]
    assert isinstance(tree, type(node))
    return tree


def identifier(name: str) -> exp.Identifier:
    """A name, quoted where it has to be."""
    return exp.to_identifier(name, quoted=not (name.isidentifier() and name.isascii()))


def shown(node: exp.Expr | None) -> str:
    """A node as SQL on one line, for the text of an edit."""
    text = render(node) if node is not None else ""
    return text if len(text) <= 120 else text[:119] + "…"


def about(*columns: Column) -> tuple[Clause, ...]:
    """What a change to these columns depends on: a value of theirs is named, their table is spoken of, they exist."""
    return (*(("values", c.full) for c in columns), *(("mentions", c.table) for c in columns), *(("columns", c.full) for c in columns))


def clause_of(node: exp.Expr) -> str:
    """The clause that a node stands in."""
    while node.parent is not None and not isinstance(node.parent, exp.Select):
        node = node.parent
    names = {"where": "WHERE", "order": "ORDER BY", "group": "GROUP BY", "having": "HAVING", "joins": "ON"}
    return names.get(str(node.arg_key), "SELECT")


def nearest_value(case: Case) -> Iterator[Draft]:
    """Another text in a comparison: the nearest stored one, or one of the column's that the question names."""
    for compared in case.query.comparisons():
        columns = case.query.resolve(compared.column)
        strange = id(compared.literal) in case.unknown
        offers = [(column, value, 1.0, "") for column in columns if strange for value in case.known.nearest(column, compared.value)]
        prior = 0.3 if fold(compared.value.strip("%")) in case.words else 0.85
        offers += [(column, value, prior, ", and the question names it") for column, value in case.named if column in columns]
        for column, value, prior, named in offers:
            old, new = exp.Literal.string(compared.value), exp.Literal.string(value)
            edit = f"{clause_of(compared.node)} {column.full}: {shown(old)} → {shown(new)}"
            change = case.swap((compared.literal, new))
            yield Draft("nearest_value", edit, change, prior, f"{column.full} holds {shown(new)}{named}", about(column))


def other_column(case: Case) -> Iterator[Draft]:
    """Another column of the same tables, wherever one is used; also everywhere at once, and only so for a wrong name."""
    texts = {id(compared.column): compared for compared in case.query.comparisons()}
    done: set[tuple[str, int]] = set()
    yield from _everywhere(case)
    for node in case.query.columns():
        mine, compared, clause = case.query.resolve(node), texts.get(id(node)), clause_of(node)
        select = node.find_ancestor(exp.Select)
        same = [n for n in case.query.columns() if n == node and n.find_ancestor(exp.Select) is select] if not mine else [node]
        if not mine and (node.sql(), id(select)) in done:
            continue
        done.add((node.sql(), id(select)))
        superlative = clause == "ORDER BY" or node.find_ancestor(exp.Max, exp.Min) is not None
        asked = case.asked("superlative") if superlative else case.asked("where", "count") if clause == "SELECT" else ()
        for column in case.in_scope(node):
            if column not in mine:
                prior, why = _likely(case, node, mine, column, compared)
                edit = f"{clause}: {shown(node)} → {column.full}" + (f" (compared with {compared.value!r})" if compared else "")
                change = case.swap(*((one, case.reference(node, column)) for one in same))
                operator = "projection" if clause == "SELECT" else "column"
                yield Draft(operator, edit, change, prior, why, (*asked, *about(column)))


def _everywhere(case: Case) -> Iterator[Draft]:
    """A column that is used several times, another of its table in all these places."""
    used: dict[Column, list[exp.Column]] = {}
    for node in case.query.columns():
        if len(mine := case.query.resolve(node)) == 1:
            used.setdefault(mine[0], []).append(node)
    for old, nodes in used.items():
        for new in case.query.catalogue.columns([old.table]) if len(nodes) > 1 else ():
            if new != old:
                prior, why = _likely(case, nodes[0], [old], new, None)
                pairs = [(node, exp.column(identifier(new.name), table=node.args.get("table"))) for node in nodes]
                said = (*case.asked("superlative"), *about(new))
                yield Draft("column", f"everywhere: {old.full} → {new.full}", case.swap(*pairs), prior, why, said)


def _likely(case: Case, node: exp.Column, mine: list[Column], column: Column, compared: Compared | None) -> tuple[float, str]:
    """How likely `column` is meant where `node` stands, and what speaks for it."""
    if compared is not None and any(holder == column for holder, _ in case.known.holders(compared.value)):
        wrong = not mine or id(compared.literal) in case.unknown
        return (1.0 if wrong else 0.5), f"{column.full} holds {compared.value!r}"
    if not mine:
        shared = max((case.known.shared(held, column) for held in case.query.catalogue.holders(node.name)), default=0.0)
        if shared >= JOINABLE:
            return 0.95, f"{column.full} holds the values that other tables call {node.name}"
        near = near_names(node.name, [c.name for c in case.in_scope(node)])
        return (0.8 if column.name in near else 0.5), f"there is no column {node.name} here"
    alike = case.known.numeric(column) == case.known.numeric(mine[0])
    if case.says(column.name) and not case.says(mine[0].name):
        return (0.6 if alike else 0.4), f"the question speaks of {column.full}"
    return (0.35 if alike else 0.15), ""


def projection(case: Case) -> Iterator[Draft]:
    """Other things selected: a column more or less, single columns for a star."""
    for select in case.selects:
        items = select.expressions
        for column in case.in_scope(select):
            new = case.reference(items[0], column)
            said = (*case.asked("where"), ("mentions", column.full), *about(column)[1:])
            prior = 0.2 if case.says(column.name) else 0.0
            if len(items) == 1 and isinstance(items[0], exp.Star):
                yield Draft("projection", f"SELECT: * → {column.full}", case.swap((items[0], new)), 0.4 + prior, "", said)
            elif select is case.query.tree and new not in items:
                change = case.within(select, partial(_select_too, new))
                yield Draft("projection", f"SELECT: add {column.full}", change, 0.2 + prior, "", said)
        for item in items if len(items) > 1 else ():
            yield Draft("projection", f"SELECT: drop {shown(item)}", case.swap((item, None)), 0.35, "", case.spoken(select))


def _select_too(new: exp.Expr, select: exp.Select) -> None:
    select.append("expressions", new.copy())


def aggregate(case: Case) -> Iterator[Draft]:
    """An aggregate put around a selected column, exchanged, given another argument, or taken away."""
    for select in case.selects:
        item = select.expressions[0].unalias() if len(select.expressions) == 1 else None
        if isinstance(item, exp.Column | exp.AggFunc):
            for new, facet, fits in _aggregates(case, select, item):
                if new != item:
                    prior = 0.02 if not fits else 0.6 if facet in case.asks else 0.15 if facet else 0.3
                    why = f"the question asks for a {facet}" if facet in case.asks else ""
                    edit = f"SELECT: {shown(item)} → {shown(new)}"
                    yield Draft("aggregate", edit, case.swap((item, new)), prior, why, (*case.asked(facet), *case.spoken(select)))


def _aggregates(case: Case, select: exp.Select, item: exp.Expr) -> Iterator[tuple[exp.Expr, str, bool]]:
    """What could be selected for `item`, the facet of the question that asks for it, and whether it suits the column."""
    inner = item.this if isinstance(item, exp.AggFunc) else item
    argument = inner.expressions[0] if isinstance(inner, exp.Distinct) else inner
    if isinstance(argument, exp.Star):
        for column in case.in_scope(select):
            bare = case.reference(select, column)
            yield exp.Count(this=exp.Distinct(expressions=[bare.copy()])), "count", True
            yield bare, "", True
            for kind, facet in AGGREGATES[1:] if case.known.numeric(column) else ():
                yield kind(this=bare.copy()), facet, True
    elif isinstance(argument, exp.Column):
        numeric = all(map(case.known.numeric, case.query.resolve(argument)))
        for kind, facet in AGGREGATES:
            yield kind(this=argument.copy()), facet, numeric or kind is exp.Count
        yield exp.Count(this=exp.Distinct(expressions=[argument.copy()])), "count", True
        yield exp.Count(this=exp.Star()), "count", True
        yield argument.copy(), "", True


def distinct(case: Case) -> Iterator[Draft]:
    """DISTINCT put in or taken out, in a SELECT or in a COUNT."""
    for select in case.selects:
        had = select.args.get("distinct")
        change = case.within(select, partial(_set_distinct, not had))
        edit, prior = f"SELECT: {'drop' if had else 'add'} DISTINCT", 0.4 if select is case.query.tree else 0.1
        yield Draft("distinct", edit, change, prior, "", (*case.asked("distinct"), *case.spoken(select)))
    for count in case.query.tree.find_all(exp.Count):
        if isinstance(count.this, exp.Distinct):
            new = exp.Count(this=count.this.expressions[0].copy())
            yield Draft("distinct", f"{shown(count)} → {shown(new)}", case.swap((count, new)), 0.4, "", case.spoken(count))


def _set_distinct(on: bool, select: exp.Select) -> None:
    select.set("distinct", exp.Distinct() if on else None)


OPERATORS: tuple[Callable[[Case], Iterator[Draft]], ...] = (nearest_value, other_column, projection, aggregate, distinct)
