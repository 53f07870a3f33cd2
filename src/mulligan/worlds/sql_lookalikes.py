"""Rules that change one fact of a question and of its query: a value, a noun, an attribute, a superlative.

In: a Reading. Out: Changes in which everything else stays: wording, schema, the rest of the query. A rule that does not fit yields nothing.
Whether a stored correction is wrong on what comes out is for the world to say; whether the new question reads well, for nobody. English.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from zlib import crc32

from sqlglot import exp

from mulligan.worlds.sql_query import Query, parse, render
from mulligan.worlds.sql_schema import Column
from mulligan.worlds.sql_variants import NAMING, Change, Reading, parts, plural, put, says

CHOICES = 3  # other values tried for a named one
WIDER = 4  # states that a country holds, at least

SIZE = re.compile(r"\b(?:large|larger|largest|big|bigger|biggest|small|smaller|smallest|great|greatest)\b", re.IGNORECASE)  # of anything

Rule = Callable[[Reading], Iterator[Change]]


def another_kind(reading: Reading) -> Iterator[Change]:
    """The named value replaced by one of another kind that has the same attribute: the population of a state, of a city."""
    query, tables = reading.query, _tables(reading)
    if len(tables) != 1 or len(reading.named) != 1 or query.tree.find(exp.Subquery, exp.Count):
        return
    ((value, compared),) = reading.named.items()
    for table in reading.catalogue.tables if compared == reading.naming(tables[0]) and not _is_said(reading, compared) else ():
        named = reading.naming(table.name)
        columns = _mapped(reading, tables[0], table.name) if named and table.name != tables[0] else None
        if named is None or columns is None:
            continue
        gold = parse(_retabled(reading, tables[0], table.name, columns), reading.catalogue)
        for new in _choices(reading, named, compared) if gold else ():
            asked = reading.revalued({value: new}, gold)
            told = f"{value} ({reading.sort(compared)}) → {new} ({reading.sort(named)})"
            yield Change(rule="another kind", change=told, asked=asked)


def another_place(reading: Reading) -> Iterator[Change]:
    """Where something is replaced by a wider place: the cities of a state, of a country."""
    query = reading.query
    for value, compared in reading.named.items():
        uses = [c for c in query.comparisons() if c.value == value]
        owners = [column for c in uses for column in query.resolve(c.column)]
        for column in reading.catalogue.columns([compared.table]):
            there = all(reading.catalogue.column(owner.table, column.name) for owner in owners)
            if (
                not there
                or compared == reading.naming(compared.table)
                or not _is_wider(reading, column, compared)
                or _is_said(reading, compared)
            ):
                continue
            new = {_at(query, c.column): exp.column(column.name, table=c.column.table or None) for c in uses}
            gold = parse(put(query, new), reading.catalogue)
            for other in _choices(reading, column, compared) if gold else ():
                asked = reading.revalued({value: other}, gold)
                told = f"{value} ({reading.sort(compared)}) → {other} ({column.name})"
                yield Change(rule="another place", change=told, asked=asked)


def another_noun(reading: Reading) -> Iterator[Change]:
    """What is asked for replaced by another kind of thing: the largest city, the largest lake."""
    question, kinds = reading.asked.question, {reading.sort(column) for column in reading.named.values()}
    for name in _tables(reading):
        noun = " ".join(parts(name))
        form = says(question, noun)
        once = len(re.findall(rf"(?<!\w)(?:{re.escape(noun)}|{re.escape(plural(noun))})(?!\w)", question, re.IGNORECASE)) == 1
        for table in reading.catalogue.tables if once and not _tied(reading, name) else ():
            other = " ".join(parts(table.name))
            if table.name == name or says(question, other) or other in kinds or reading.naming(table.name) is None:
                continue
            columns = _mapped(reading, name, table.name, measures=bool(SIZE.search(question)))
            if columns is None:
                continue
            new = plural(other) if form.casefold() != noun else other
            changed = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", new, question)
            gold = _retabled(reading, name, table.name, columns)
            yield Change(rule="another noun", change=f"{form} → {new}", asked=replace(reading.asked, question=changed, gold=gold))


def _at(query: Query, node: exp.Expr) -> int:
    """The place of a node among the query's nodes: nodes are equal when they say the same."""
    return next(at for at, other in enumerate(query.nodes) if other is node)


def _tables(reading: Reading) -> list[str]:
    """The tables of the database that the gold query reads, each once."""
    found = [reading.catalogue.table(node.name) for node in reading.query.nodes if isinstance(node, exp.Table)]
    return list(dict.fromkeys(table.name for table in found if table))


def _is_wider(reading: Reading, column: Column, compared: Column) -> bool:
    """Whether a column's texts hold several of those of another: countries, not states; and are not what a table is about."""
    names = [c for table in reading.catalogue.tables if (c := reading.naming(table.name))]
    few, many = (len(reading.values.stored.get(c.full, ())) for c in (column, compared))
    return 0 < WIDER * few <= many and not any(reading.values.shared(column, name) > 1 / 2 for name in names)


def _tied(reading: Reading, table: str) -> bool:
    """Whether a table's names are compared with something: then another kind of thing would not be related in that way."""
    name = reading.naming(table)
    nodes = [node for node in reading.query.columns() if reading.query.resolve(node)[:1] == [name]]
    return name is None or any(node.find_ancestor(exp.Where, exp.Join, exp.Select).__class__ is not exp.Select for node in nodes)


def _is_said(reading: Reading, column: Column) -> bool:
    """Whether the question says what a column is."""
    return any(says(reading.asked.question, part) for part in parts(column.name) if part not in NAMING)


def _choices(reading: Reading, column: Column, instead_of: Column) -> list[str]:
    """A few values of a column that the other column's kind does not have, spread over all of them."""
    kind = reading.sort(instead_of)
    stored = [
        value
        for value in reading.values.stored.get(column.full, [])
        if all(reading.sort(holder) != kind for holder, _ in reading.values.holders(value)) and not value[:1].isdigit()
    ]
    step = max(1, len(stored) // CHOICES)
    return stored[crc32(reading.asked.question.encode("utf-8", "replace")) % step :: step][:CHOICES]


def _mapped(reading: Reading, table: str, other: str, *, measures: bool = False) -> dict[str, str] | None:
    """For each column of `table` that the query uses, the one of `other` that says the same; None where one has none.

    The naming column maps to the naming column, a name to the same name, what is compared to a text of the same sort; with `measures`
    a number that is not shown to the first number, unless the question says what is measured.
    """
    query, found, shown = reading.query, dict[str, str](), _selected(reading)
    used = {held[0] for node in query.columns() if (held := query.resolve(node)) and held[0].table == table}
    texts = [c for c in reading.catalogue.columns([other]) if not reading.values.numeric(c)]
    numbers = [c for c in reading.catalogue.columns([other]) if reading.values.numeric(c)]
    for column in sorted(used, key=lambda c: c.name):
        same = reading.catalogue.column(other, column.name)
        if column == reading.naming(table):
            same = reading.naming(other)
        elif same is None and column not in shown and reading.values.numeric(column):
            same = numbers[0] if measures and numbers and not _is_said(reading, column) else None
        elif same is None and column in reading.named.values():
            same = next((c for c in texts if reading.sort(c) == reading.sort(column)), None)
        if same is None:
            return None
        found[column.name.casefold()] = same.name
    return found


def _retabled(reading: Reading, table: str, other: str, columns: Mapping[str, str]) -> str:
    """The gold query over another table: `columns` are the new names of the columns, by their old ones."""
    query, places = reading.query, dict[int, exp.Expr]()
    for at, node in enumerate(query.nodes):
        if isinstance(node, exp.Table) and (known := reading.catalogue.table(node.name)) and known.name == table:
            changed = node.copy()
            changed.set("this", exp.to_identifier(other))
            places[at] = changed
        elif isinstance(node, exp.Column) and not query.is_text(node) and (held := query.resolve(node)) and held[0].table == table:
            qualifier = other if node.table.casefold() == table.casefold() else node.table
            places[at] = exp.column(columns.get(node.name.casefold(), node.name), table=qualifier or None)
    return put(query, places)


# ---- rules: what is asked about it ----

OPPOSITES = {
    one: other
    for pair in (
        "biggest smallest", "largest smallest", "highest lowest", "tallest shortest", "longest shortest", "most least", "maximum minimum",
        "latest earliest", "newest oldest", "last first", "more less", "above below", "after before", "over under",
    )
    for one, other in (pair.split(), reversed(pair.split()))
}  # fmt: skip
DIRECT = re.compile(r"(?:(?:what|which) are|name|list|tell me|give me|show me)\s*", re.IGNORECASE)
COMPARING = frozenset(re.findall(r"\w+", "more less above below over under after before"))
_SUPERLATIVE = re.compile(r"\b(?:the )?((?!west|rest|test)\w{3,}est)\b", re.IGNORECASE)
_TURNED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.Max: exp.Min,
    exp.Min: exp.Max,
    exp.GT: exp.LT,
    exp.LT: exp.GT,
    exp.GTE: exp.LTE,
    exp.LTE: exp.GTE,
}


def another_attribute(reading: Reading) -> Iterator[Change]:
    """The attribute that is asked for replaced by another of the same thing: the population of a state, its area."""
    question, query = reading.asked.question, reading.query
    where = re.match(r"where (?:is|are|was)\b", question, re.IGNORECASE)
    if query.tree.find(exp.Count):
        return
    for column, places in _selected(reading).items():
        shown = _shown(reading, column)
        added = any(node.find_ancestor(exp.Sum, exp.Avg) for node in places.values())
        for other in reading.catalogue.columns([column.table]):
            words = [part for part in parts(other.name) if part not in parts(other.table)]
            taken = other == column or other in reading.named.values() or bool(NAMING & {*words})
            taken = taken or (added and not reading.values.numeric(other))
            new = " ".join([*words[:-1], plural(words[-1])] if words and shown.endswith("s") else words)
            if taken or not words or says(question, " ".join(words)):
                continue
            if shown:
                changed, told = re.sub(rf"(?<!\w){re.escape(shown)}(?!\w)", new, question), f"{shown} → {new}"
            elif where:
                changed, told = f"what is the {new} of{question[where.end() :]}", f"where → {new}"
            else:
                continue
            gold = put(query, {at: exp.column(other.name, table=node.table or None) for at, node in places.items()})
            yield Change(rule="another attribute", change=told, asked=replace(reading.asked, question=changed, gold=gold))


def _shown(reading: Reading, column: Column) -> str:
    """How the question says a column, with what it says of others right before it: "population density" for `density`; "" if not.

    "Capital cities" are cities: what stands before the name of a table says something of that.
    """
    words = [part for part in parts(column.name) if part not in (*parts(column.table), *NAMING)]
    form = next((form for text in (" ".join(words), *words[-1:]) if text and (form := says(reading.asked.question, text))), "")
    before = "|".join(re.escape(part) for c in reading.catalogue.columns([column.table]) for part in parts(c.name))
    found = re.search(rf"\b(?:(?:{before}) )*{re.escape(form)}(?!\w)\W*(\w*)", reading.asked.question, re.IGNORECASE) if form else None
    if not found or any(says(found[1], " ".join(parts(table.name))) for table in reading.catalogue.tables):
        return ""
    return found[0][: found.start(1) - found.start()].rstrip(" ?.,!") if found[1] else found[0].rstrip(" ?.,!")


def opposite(reading: Reading) -> Iterator[Change]:
    """A superlative or comparison turned round: the highest point, the lowest point."""
    question, query = reading.asked.question, reading.query
    found = [word for word in re.findall(r"\w+", question) if word.casefold() in OPPOSITES]
    if len(found) != 1 or (found[0].casefold() not in COMPARING and query.tree.find(exp.GT, exp.LT)):
        return
    old, new = found[0], OPPOSITES[found[0].casefold()]
    tree = query.tree.copy()
    pairs = list(zip(query.nodes, list(tree.walk()), strict=True))
    for original, node in pairs:
        if isinstance(original, exp.Column) and not query.is_text(original):
            name = re.sub(re.escape(old), new, node.name, flags=re.IGNORECASE)
            held = query.resolve(original)
            if name != node.name and held and reading.catalogue.column(held[0].table, name):
                node.set("this", exp.to_identifier(name.casefold()))
        elif isinstance(node, exp.Ordered):
            falling = bool(node.args.get("desc"))
            node.set("desc", not falling)
            node.set("nulls_first", falling)  # as SQLite has it
    for _, node in pairs:
        if type(node) in _TURNED:
            node.replace(_TURNED[type(node)](**node.args))
    gold = render(tree)
    if gold != render(query.tree):
        changed = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, question)
        yield Change(rule="opposite", change=f"{old} → {new}", asked=replace(reading.asked, question=changed, gold=gold))


def no_superlative(reading: Reading) -> Iterator[Change]:
    """A superlative dropped: the largest city in a state, all the cities in it."""
    question, tree = reading.asked.question, reading.query.tree.copy()
    found = list(_SUPERLATIVE.finditer(question))
    if len(found) != 1 or not _unranked(tree):
        return
    word, rest = found[0], question[found[0].end() :].lstrip()
    noun = re.match(r"\w+", rest)
    if not noun or not any(says(noun[0], " ".join(parts(table))) for table in _tables(reading)):
        return
    head = re.sub(r"^(what|which) is\b", r"\1 are", question[: word.start()], flags=re.IGNORECASE)
    if not DIRECT.fullmatch(head):
        return
    many = noun[0] if noun[0].endswith("s") else plural(noun[0])
    changed = f"{head}all the {many}{rest[noun.end() :]}"
    yield Change(rule="no superlative", change=f"{word[1]} → all", asked=replace(reading.asked, question=changed, gold=render(tree)))


def not_counted(reading: Reading) -> Iterator[Change]:
    """A count turned into what is counted: how many rivers are in a state, which rivers."""
    question, query = reading.asked.question, reading.query
    counts = [node for node in query.tree.selects if isinstance(node.unalias(), exp.Count)]
    if not re.match(r"how many\b", question, re.IGNORECASE) or len(counts) != 1 or len(query.tree.selects) != 1:
        return
    counted = counts[0].unalias().this
    listed = counted.expressions if isinstance(counted, exp.Distinct) else [counted]
    named = [c for table in _tables(reading)[:1] if (c := reading.naming(table))]
    if len(listed) == 1 and isinstance(listed[0], exp.Star) and named:
        listed = [exp.column(named[0].name)]
    if len(listed) == 1 and isinstance(listed[0], exp.Column):
        gold = put(query, {_at(query, counts[0]): listed[0].copy()})
        changed = re.sub(r"^how many\b", "which", question, flags=re.IGNORECASE)
        yield Change(rule="not counted", change="how many → which", asked=replace(reading.asked, question=changed, gold=gold))


def _selected(reading: Reading) -> dict[Column, dict[int, exp.Column]]:
    """The columns that the outer SELECT shows, each with its places among the nodes."""
    query = reading.query
    shown = {id(node) for item in query.tree.selects for node in item.find_all(exp.Column)}
    found: dict[Column, dict[int, exp.Column]] = {}
    for at, node in enumerate(query.nodes):
        if isinstance(node, exp.Column) and id(node) in shown and not query.is_text(node) and (held := query.resolve(node)):
            found.setdefault(held[0], {})[at] = node
    return found


def _unranked(tree: exp.Query) -> bool:
    """Drop what makes a query ask for the most or least: ORDER BY with LIMIT, `c = (SELECT MAX(c) …)`, MAX(c). Whether there was one."""
    if tree.args.get("order") and tree.args.get("limit"):
        tree.set("order", None)
        tree.set("limit", None)
        return True
    for node in list(tree.find_all(exp.EQ)):
        side = node.expression if isinstance(node.expression, exp.Subquery) else node.this
        if (
            isinstance(side, exp.Subquery)
            and isinstance(inside := side.this, exp.Query)
            and isinstance(inside.selects[0].unalias(), exp.Max | exp.Min)
        ):
            return _dropped(node)
    for item in tree.selects:
        if isinstance(inner := item.unalias(), exp.Max | exp.Min):
            bare = inner.this.expressions[0] if isinstance(inner.this, exp.Distinct) else inner.this
            inner.replace(bare.copy())
            return True
    return False


def _dropped(test: exp.Expr) -> bool:
    """Take one condition out of the WHERE that it stands in; False where it is not one of several that must all hold."""
    above = test.parent
    if isinstance(above, exp.And):
        above.replace((above.expression if above.this is test else above.this).copy())
    elif isinstance(above, exp.Where):
        above.pop()
    return isinstance(above, exp.And | exp.Where)


RULES: tuple[Rule, ...] = (
    another_kind,
    another_place,
    another_noun,
    another_attribute,
    opposite,
    no_superlative,
    not_counted,
)
