"""The operators on whole clauses: conditions, signs, order and limit, superlatives, groups, joins, tables, directions.

The same contract as the operators in `sql_operators`: Drafts of one change each, from the query, the question and the database.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sqlglot import exp

from mulligan.worlds.sql_operators import JOINABLE, Case, Draft, about, clause_of, identifier, shown
from mulligan.worlds.sql_query import Compared
from mulligan.worlds.sql_schema import Column
from mulligan.worlds.sql_values import fold, near_names

FLIPS: dict[type[exp.Expr], tuple[type[exp.Binary], ...]] = {
    exp.GT: (exp.GTE, exp.LT),
    exp.GTE: (exp.GT, exp.LTE),
    exp.LT: (exp.LTE, exp.GT),
    exp.LTE: (exp.LT, exp.GTE),
    exp.NEQ: (exp.EQ,),
    exp.And: (exp.Or,),
    exp.Or: (exp.And,),
}

UNITS = (100, 1000, 60)  # cents in a euro, metres in a kilometre, minutes in an hour


def ordered(key: exp.Expr, *, descending: bool) -> exp.Ordered:
    """A sort key with NULL where SQLite puts it, so that nothing has to be said of it."""
    return exp.Ordered(this=key.copy(), desc=descending or None, nulls_first=not descending)


def _set_order(key: exp.Ordered, select: exp.Select) -> None:
    select.set("order", exp.Order(expressions=[key.copy()]))
    select.set("limit", exp.Limit(expression=exp.Literal.number(1)))


def _conjuncts(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    if where is None:
        return []
    return list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]


def _of(case: Case, node: exp.Expr) -> list[Column]:
    """The columns that a condition is about."""
    return [column for one in node.find_all(exp.Column) for column in case.query.resolve(one)[:1]]


def condition(case: Case) -> Iterator[Draft]:
    """A condition left out, put in, or exchanged for one on a value that the question names."""
    for select in case.selects:
        conditions, scope = _conjuncts(select), case.in_scope(select)
        there = shown(select.args.get("where")).casefold()
        fresh = [(column, value) for column, value in case.named if column in scope and value.casefold() not in there]
        for old in conditions:
            literals = [node for node in old.find_all(exp.Literal, exp.Column) if isinstance(node, exp.Literal) or case.query.is_text(node)]
            strange = [node.name for node in literals if fold(node.name.strip("%")) not in case.words]
            wrong = bool(strange) or any(id(node) in case.unknown for node in literals)
            gone = select.args["where"] if len(conditions) == 1 else old
            why = f"the question does not name {strange[0]!r}" if strange else ""
            said, prior = about(*_of(case, old)), 0.5 if wrong else 0.3
            yield Draft("condition", f"WHERE: drop {shown(old)}", case.swap((gone, None)), prior, why, said)
            for column, value in fresh if literals and wrong else ():
                new = exp.EQ(this=case.reference(old.this, column), expression=exp.Literal.string(value))
                yield _named(f"WHERE: {shown(old)} → {shown(new)}", case.swap((old, new)), 0.75, column, value)
        for column, value in fresh:
            new = exp.EQ(this=case.reference(select, column), expression=exp.Literal.string(value))
            yield _named(f"WHERE: add {shown(new)}", case.within(select, partial(_test_too, new)), 0.45, column, value)


def _test_too(new: exp.Expr, select: exp.Select) -> None:
    select.where(new.copy(), copy=False)


def _named(edit: str, change: Callable[[], exp.Expr], prior: float, column: Column, value: str) -> Draft:
    return Draft("condition", edit, change, prior, f"the question names {value!r}, which {column.full} holds", about(column))


def comparison(case: Case) -> Iterator[Draft]:
    """Another sign: a bound in or out, the other direction, IN for = before a subquery, LIKE for =, negation, OR for AND."""
    no = "negation" in case.asks
    for node in case.query.nodes:
        offers: list[tuple[exp.Expr, float, str]] = []
        copy = node.copy()  # a node that gets a new parent would be missed in its tree
        sides = {"this": copy.this, "expression": copy.args.get("expression")}
        for kind in FLIPS.get(type(node), ()):
            offers.append((kind(**sides), 0.1 if isinstance(node, exp.Connector) else 0.35, ""))
        if isinstance(node, exp.EQ):
            offers.append((exp.NEQ(**sides), 0.5 if no else 0.05, ""))
            if isinstance(node.expression, exp.Subquery):
                offers.append((exp.In(this=copy.this, query=copy.expression), 0.6, "the subquery can return several rows"))
            elif case.query.is_text(node.expression):
                like = exp.Like(this=copy.this, expression=exp.Literal.string(f"%{node.expression.name}%"))
                offers.append((like, 0.4, "the stored text may be longer"))
        old = node
        if isinstance(node, exp.In):
            negated = isinstance(node.parent, exp.Not)
            old = node.parent if negated and node.parent is not None else node
            offers.append((copy if negated else exp.Not(this=copy), 0.5 if no != negated else 0.1, ""))
        for new, prior, why in offers:
            edit = f"{clause_of(old)}: {shown(old)} → {shown(new)}"
            said = (*case.asked("negation", "comparison"), *about(*_of(case, old)))
            yield Draft("comparison", edit, case.swap((old, new)), prior, why, said)


def number(case: Case) -> Iterator[Draft]:
    """A number of the question in place of one that it does not name."""
    words = [word.replace(",", "").strip(".?") for word in case.question.split()]
    numbers = list(dict.fromkeys(word for word in words if word.replace(".", "", 1).isdecimal() and word.isascii()))
    for node in case.query.tree.find_all(exp.Literal):
        for said in numbers if not node.is_string and node.name not in numbers else ():
            change = case.swap((node, exp.Literal.number(said)))
            yield Draft("number", f"{clause_of(node)}: {node.name} → {said}", change, 0.6, "the question says so", case.spoken(node))


def unit(case: Case) -> Iterator[Draft]:
    """What is stored in a smaller unit than is asked for: a selected number divided, a compared number multiplied."""
    prior = 0.5 if "unit" in case.asks else 0.05
    for select in case.selects:
        for item in select.expressions:
            value = item.unalias()
            if isinstance(value, exp.Column | exp.AggFunc | exp.Round) and not isinstance(value, exp.Count):
                inner = value.this if isinstance(value, exp.Round) else value
                for factor in UNITS:
                    new = exp.Div(this=inner.copy(), expression=exp.Literal.number(f"{factor}.0"), typed=True, safe=True)
                    edit, said = f"SELECT: {shown(inner)} → {shown(new)}", case.asked("unit") or case.spoken(select)
                    yield Draft("unit", edit, case.swap((inner, new)), prior, "the stored unit is smaller", said)
    for node in case.query.tree.find_all(exp.Literal):
        if node.is_string or not node.name.isdecimal():
            continue
        if isinstance(node.parent, exp.Div) and node is node.parent.expression:
            exact, said = exp.Literal.number(f"{node.name}.0"), case.asked("unit", "average") or case.spoken(node)
            edit = f"{clause_of(node)}: / {node.name} → / {shown(exact)}"
            yield Draft("unit", edit, case.swap((node, exact)), 0.5, "whole numbers are divided without a remainder", said)
        elif isinstance(node.parent, tuple(FLIPS)):
            for factor in UNITS:
                larger, said = exp.Literal.number(int(node.name) * factor), case.asked("unit") or case.spoken(node)
                edit = f"{clause_of(node)}: {node.name} → {shown(larger)}"
                yield Draft("unit", edit, case.swap((node, larger)), prior, "the stored unit is smaller", said)


def null(case: Case) -> Iterator[Draft]:
    """NULLs left out of a list: NOT IN a list with a NULL is never true."""
    for node in case.query.tree.find_all(exp.In):
        inner = node.args.get("query")
        select = inner.this if isinstance(inner, exp.Subquery) else inner
        if isinstance(select, exp.Select) and select.expressions and isinstance(item := select.expressions[0].unalias(), exp.Column):
            change = case.within(select, partial(_test_too, exp.Not(this=exp.Is(this=item.copy(), expression=exp.Null()))))
            edit, why = f"{clause_of(node)}: leave out NULLs of {shown(item)}", "NOT IN a list with a NULL is never true"
            prior = 0.5 if isinstance(node.parent, exp.Not) else 0.05
            yield Draft("null", edit, change, prior, why, (*case.asked("negation"), *case.spoken(node)))


def order_limit(case: Case) -> Iterator[Draft]:
    """ORDER BY and LIMIT left out, turned round, or put in for a superlative."""
    superlative = "superlative" in case.asks
    for select in case.selects:
        order, limit = select.args.get("order"), select.args.get("limit")
        said = (*case.asked("superlative"), *case.spoken(select))
        if limit is not None:
            yield Draft("order_limit", f"drop {shown(limit)}", case.swap((limit, None)), 0.15 if superlative else 0.5, "", said)
        if order is not None:
            gone = [(part, None) for part in (order, limit) if part is not None]
            yield Draft("order_limit", f"drop {shown(order)} {shown(limit)}".rstrip(), case.swap(*gone), 0.25, "", said)
            for key in order.expressions:
                new = ordered(key.this, descending=not key.args.get("desc"))
                yield Draft("order_limit", f"ORDER BY: {shown(key)} → {shown(new)}", case.swap((key, new)), 0.35, "", said)
        for column in case.in_scope(select) if order is None and limit is None else ():
            for descending in (True, False) if case.known.numeric(column) else ():
                key = ordered(case.reference(select, column), descending=descending)
                change = case.within(select, partial(_set_order, key))
                prior = (0.3 if superlative else 0.05) + (0.1 if case.says(column.name) else 0)
                yield Draft("order_limit", f"add ORDER BY {shown(key)} LIMIT 1", change, prior, "", (*said[:1], *about(column)))
                test = _is_best(select, key)
                change = case.within(select, partial(_test_too, test))
                yield Draft("superlative", f"WHERE: add {shown(test)}", change, prior - 0.02, "", (*said[:1], *about(column)))


def superlative(case: Case) -> Iterator[Draft]:
    """The two ways to ask for the row with the greatest value, and the row's name in place of the value itself."""
    for select in case.selects:
        order, limit = select.args.get("order"), select.args.get("limit")
        said = (("asks", "superlative"), *case.spoken(select))
        key = order.expressions[0] if order is not None and limit is not None and len(order.expressions) == 1 else None
        if key is not None and isinstance(key.this, exp.Column):
            test = _is_best(select, key)
            change = case.within(select, partial(_test_for_order, test))
            edit = f"{shown(order)} {shown(limit)} → WHERE {shown(test)}"
            yield Draft("superlative", edit, change, 0.45, "several rows can share the value", said)
        item = select.expressions[0].unalias() if len(select.expressions) == 1 else None
        if isinstance(item, exp.Max | exp.Min) and isinstance(item.this, exp.Column):
            key = ordered(item.this, descending=isinstance(item, exp.Max))
            for column in case.in_scope(select):
                if column not in case.query.resolve(item.this):
                    name = case.reference(item.this, column)
                    change = case.within(select, partial(_name_for_value, name, key))
                    edit = f"SELECT: {shown(item)} → {column.full} … ORDER BY {shown(key)} LIMIT 1"
                    prior = (
                        0.3
                        + (0.2 if "superlative" in case.asks else 0)
                        + (0.1 if not case.known.numeric(column) and case.says(column.name) else 0)
                    )
                    yield Draft("superlative", edit, change, prior, "the question asks which one, not how much", said)


def _is_best(select: exp.Select, key: exp.Ordered) -> exp.Expr:
    """`key = (SELECT MAX(key) FROM the same)`."""
    inner = select.copy()
    for part in ("order", "limit", "distinct", "group", "having"):
        inner.set(part, None)
    inner.set("expressions", [(exp.Max if key.args.get("desc") else exp.Min)(this=key.this.copy())])
    return exp.EQ(this=key.this.copy(), expression=exp.Subquery(this=inner))


def _test_for_order(test: exp.Expr, select: exp.Select) -> None:
    select.set("order", None)
    select.set("limit", None)
    select.where(test.copy(), copy=False)


def _name_for_value(name: exp.Expr, key: exp.Ordered, select: exp.Select) -> None:
    select.set("expressions", [name.copy()])
    _set_order(key, select)


def group_by(case: Case) -> Iterator[Draft]:
    """GROUP BY left out, or put in for the columns beside an aggregate; ordered by the count for "the most"."""
    for select in case.selects:
        group, order = select.args.get("group"), select.args.get("order")
        said = (*case.asked("each", "superlative"), *case.spoken(select))
        plain = [item.unalias() for item in select.expressions if isinstance(item.unalias(), exp.Column)]
        if group is not None:
            yield Draft("group_by", f"drop {shown(group)}", case.swap((group, None)), 0.2, "", said)
        elif plain:
            mixed, names = len(plain) < len(select.expressions), ", ".join(map(shown, plain))
            change = case.within(select, partial(_group, plain))
            yield Draft("group_by", f"add GROUP BY {names}", change, 0.6 if mixed else 0.15, "", said)
            if "superlative" in case.asks and not mixed:
                change = case.within(select, partial(_most, plain))
                edit = f"{shown(order) or 'add'} → GROUP BY {names} ORDER BY COUNT(*) DESC LIMIT 1"
                yield Draft("group_by", edit, change, 0.3, "the most of them, not the greatest of one", said)


def _group(plain: Sequence[exp.Expr], select: exp.Select) -> None:
    select.group_by(*(item.copy() for item in plain), copy=False)


def _most(plain: Sequence[exp.Expr], select: exp.Select) -> None:
    _group(plain, select)
    _set_order(ordered(exp.Count(this=exp.Star()), descending=True), select)


def join(case: Case) -> Iterator[Draft]:
    """Another kind of join, or a join left out whose table nothing else uses."""
    for node in case.query.tree.find_all(exp.Join):
        select = node.parent
        if not isinstance(node.this, exp.Table) or not isinstance(select, exp.Select):
            continue
        alias = node.this.alias_or_name.lower()
        used = [c for c in select.find_all(exp.Column) if c.table.lower() == alias and c.find_ancestor(exp.Join) is not node]
        if not used:
            yield Draft("join", f"drop {shown(node)}", case.swap((node, None)), 0.3, "nothing else uses it", case.spoken(node))
        if node.args.get("on") is not None:
            new, left = node.copy(), node.side.upper() == "LEFT"
            new.set("side", None if left else "LEFT")
            new.set("kind", None)
            edit = f"{'LEFT JOIN → JOIN' if left else 'JOIN → LEFT JOIN'} {node.this.name}"
            yield Draft("join_kind", edit, case.swap((node, new)), 0.2, "", case.spoken(node))


def other_table(case: Case) -> Iterator[Draft]:
    """Another table, where it has every column that is used of this one; for a name that is no table, also the nearest names."""
    catalogue = case.query.catalogue
    for node in case.query.tree.find_all(exp.Table):
        used = _used_of(case, node)
        mine = catalogue.table(node.name)
        near = near_names(node.name, [table.name for table in catalogue.tables]) if mine is None else []
        wrong = mine is not None and any(catalogue.column(mine.name, c.name) is None for c in used)
        for table in catalogue.tables:
            fits = bool(used) and all(catalogue.column(table.name, c.name) for c in used)
            if table is not mine and (fits or table.name in near):
                new = node.copy()
                new.set("this", identifier(table.name))
                qualifiers = [(c.args["table"], identifier(table.name)) for c in used if c.table and not node.alias]
                said = [c for one in used[:1] if (c := catalogue.column(table.name, one.name))]
                prior = 0.9 if table.name in near or wrong else 0.5 if table.name in case.mentions else 0.3
                why = f"{table.name} has {', '.join(dict.fromkeys(c.name for c in used))}" if fits else ""
                change, edit = case.swap((node, new), *qualifiers), f"FROM: {node.name} → {table.name}"
                yield Draft("table", edit, change, prior, why, (("mentions", table.name), *about(*said)))


def _used_of(case: Case, node: exp.Table) -> list[exp.Column]:
    """The references to columns of one table in FROM."""
    select, alias = node.find_ancestor(exp.Select), node.alias_or_name.lower()
    alone = len(case.query.sources(select)) == 1
    mine = [c for c in case.query.columns() if c.find_ancestor(exp.Select) is select]
    return [c for c in mine if c.table.lower() == alias or (alone and not c.table)]


def direction(case: Case) -> Iterator[Draft]:
    """The other direction: the selected column compared, the compared one selected."""
    for select in case.selects:
        for item in [c for one in select.expressions for c in one.find_all(exp.Column) if c.find_ancestor(exp.Select) is select]:
            for test in _conjuncts(select):
                other = test.this if isinstance(test, exp.EQ | exp.In | exp.Like) else None
                if isinstance(other, exp.Column) and other.name.lower() != item.name.lower():
                    edit = f"SELECT {shown(item)} WHERE {shown(other)} → SELECT {shown(other)} WHERE {shown(item)}"
                    said = about(*case.query.resolve(other)[:1], *case.query.resolve(item)[:1])
                    yield Draft("direction", edit, case.swap((item, other), (other, item)), 0.45, "the other direction", said)


def through(case: Case) -> Iterator[Draft]:
    """A value reached through another table: `c = v` becomes `c IN (SELECT x FROM t WHERE y = v)`."""
    for compared in case.query.comparisons():
        own = case.query.resolve(compared.column)
        if isinstance(compared.node, exp.EQ) and own:
            for y, _ in case.known.holders(compared.value):
                for x in case.query.catalogue.columns([y.table]):
                    if x != y and case.known.shared(own[0], x) >= JOINABLE:
                        yield _through(case, compared, x, y)


def _through(case: Case, compared: Compared, x: Column, y: Column) -> Draft:
    test = exp.EQ(this=exp.column(identifier(y.name)), expression=compared.literal.copy())
    inner = exp.select(exp.column(identifier(x.name))).from_(identifier(x.table)).where(test)
    new = exp.In(this=compared.column.copy(), query=exp.Subquery(this=inner))
    prior = 0.5 if x.table in case.mentions or any(part in case.words for part in x.table.lower().split("_")) else 0.25
    edit, why = f"{clause_of(compared.node)}: {shown(compared.node)} → {shown(new)}", f"{x.table} relates {x.name} to {y.name}"
    said = (("mentions", x.table), ("values", y.full), ("columns", x.full))
    return Draft("through", edit, case.swap((compared.node, new)), prior, why, said)


def lookup(case: Case) -> Iterator[Draft]:
    """The same look-up in another table: `SELECT a FROM t WHERE b = v` where `u` holds v and the kind of thing that a is."""
    for compared in case.query.comparisons():
        select = compared.node.find_ancestor(exp.Select)
        if select is None or len(select.expressions) != 1 or len(list(select.find_all(exp.Column))) > 2:
            continue
        item, table = select.expressions[0], select.find(exp.Table)
        if table is None or table.alias or not isinstance(item, exp.Column) or len(case.query.sources(select)) != 1:
            continue
        own = case.query.resolve(item)
        for y, _ in case.known.holders(compared.value):
            for x in case.query.catalogue.columns([y.table]) if y.table != table.name else ():
                if x != y and (not own or case.known.shared(own[0], x) >= JOINABLE):
                    new = [exp.column(identifier(x.name)), exp.Table(this=identifier(x.table)), exp.column(identifier(y.name))]
                    change = case.swap(*zip((item, table, compared.column), new, strict=True))
                    prior = 0.5 if x.table in case.mentions else 0.2
                    edit = f"SELECT {shown(item)} FROM {table.name} WHERE {shown(compared.column)} → {x.name} FROM {x.table} WHERE {y.name}"
                    why = f"{y.full} holds {compared.value!r}"
                    yield Draft("table", edit, change, prior, why, (("mentions", x.table), *about(y, x)))


def owner(case: Case) -> Iterator[Draft]:
    """For a wrong column that another table has: that table is read, for the keys that the query finds."""
    for node in case.query.columns():
        select = node.find_ancestor(exp.Select)
        item = select.expressions[0] if select is not None and len(select.expressions) == 1 else None
        own = case.query.resolve(item) if isinstance(item, exp.Column) else []
        if select is None or not own or case.query.resolve(node):
            continue
        for there in case.query.catalogue.holders(node.name):
            for key in case.query.catalogue.columns([there.table]):
                if key != there and case.known.shared(own[0], key) >= JOINABLE:
                    change = case.within(select, partial(_read_owner, key))
                    edit = f"FROM: {own[0].table} → {key.table} WHERE {key.name} IN (SELECT {shown(item)} FROM {own[0].table} …)"
                    prior = 0.85 if there.table in case.mentions else 0.7
                    said = (("mentions", there.table), ("columns", there.full))
                    yield Draft("table", edit, change, prior, f"{node.name} is a column of {there.table}", said)


def elsewhere(case: Case) -> Iterator[Draft]:
    """For a selected column that only another table has: it is read there, for the keys that the query finds here."""
    for select in case.selects:
        item = select.expressions[0].unalias() if len(select.expressions) == 1 else None
        node = item.this if isinstance(item, exp.AggFunc) else item
        if not isinstance(node, exp.Column) or case.query.resolve(node) or not any(select.args.get(part) for part in ("where", "order")):
            continue
        for there in case.query.catalogue.holders(node.name):
            for mine in case.in_scope(select):
                for key in case.query.catalogue.columns([there.table]):
                    if key != there and case.known.shared(mine, key) >= JOINABLE:
                        change = case.within(select, partial(_read_elsewhere, key, case.reference(select, mine)))
                        edit = f"FROM: {mine.table} → {key.table} WHERE {key.name} IN (SELECT {mine.name} FROM {mine.table} …)"
                        prior = 0.9 if key.name == mine.name else 0.6
                        said = (("mentions", there.table), ("mentions", mine.table), ("columns", there.full))
                        yield Draft("table", edit, change, prior, f"{node.name} is a column of {there.table}", said)


def _read_elsewhere(key: Column, mine: exp.Column, select: exp.Select) -> None:
    for column in list(select.expressions[0].find_all(exp.Column)):
        column.set("table", None)
    _ask_within(key, mine, ("where", "group", "having", "order", "limit"), select)


def _ask_within(key: Column, chosen: exp.Expr, parts: Sequence[str], select: exp.Select) -> None:
    """Read the table of `key`, for the keys that the query finds: what it reads and these parts move into a subquery."""
    inner = exp.select(chosen.copy())
    for part in ("from_", "joins", *parts):
        inner.set(part, select.args.get(part))
        select.set(part, None)
    select.from_(identifier(key.table), copy=False)
    if any(inner.args.get(part) is not None for part in parts):
        select.where(exp.In(this=exp.column(identifier(key.name)), query=exp.Subquery(this=inner)), copy=False)


def absence(case: Case) -> Iterator[Draft]:
    """What has no such row, for what has another row: `c <> v` becomes `x NOT IN (SELECT x FROM the same WHERE c = v)`."""
    for select in case.selects:
        if len(case.query.sources(select)) != 1:
            continue
        item = select.expressions[0].unalias()
        item = item.this if isinstance(item, exp.AggFunc) else item
        named = [column for column in case.in_scope(select) if not case.known.numeric(column)]
        names = [item] if isinstance(item, exp.Column) else [case.reference(select, column) for column in named]
        for test in _conjuncts(select):
            there = _asserted(test)
            for name in names if there is not None and there.this not in names else ():
                inner = exp.select(name.copy()).from_(select.args["from_"].this.copy()).where(there)
                new = exp.Not(this=exp.In(this=name.copy(), query=exp.Subquery(this=inner)))
                edit, prior = f"WHERE: {shown(test)} → {shown(new)}", 0.55 if "negation" in case.asks else 0.1
                said = (*case.asked("negation"), *about(*_of(case, test)))
                yield Draft("absence", edit, case.swap((test, new)), prior, "it may have several rows", said)


def _asserted(test: exp.Expr) -> exp.Expr | None:
    """The condition that `test` denies of one row: `c = v` for `c <> v`, `c IN …` for `c NOT IN …`."""
    if isinstance(test, exp.NEQ) and isinstance(test.this, exp.Column):
        return exp.EQ(this=test.this.copy(), expression=test.expression.copy())
    if isinstance(test, exp.Not) and isinstance(test.this, exp.In) and isinstance(test.this.this, exp.Column):
        return test.this.copy()
    return None


def _read_owner(key: Column, select: exp.Select) -> None:
    chosen = select.expressions[0]
    select.set("expressions", [exp.column(identifier(key.name))])
    _ask_within(key, chosen, ("where",), select)


CLAUSES: tuple[Callable[[Case], Iterator[Draft]], ...] = (
    condition,
    comparison,
    number,
    unit,
    null,
    order_limit,
    superlative,
    group_by,
    join,
    other_table,
    direction,
    through,
    lookup,
    owner,
    elsewhere,
    absence,
)
