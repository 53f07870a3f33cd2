"""Drafts of changed programming tasks: another result, other names, another entry, other words, a placebo.

In: a Lesson whose task has the payload of `tasks/programs.py`. Out: drafts. A look-alike changes one fact of what is asked (the value that
stands for "there is none", what a yes is, the form of the result, the order of two arguments) in the text, its examples and all tests; an
action that solves it is made of the correction by a function around it. The environment is the same work asked through another entry, a
list of cases, so that the correction is needed inside of something new. There and in look-alikes every test must compare one call with one
literal. English.
"""

import builtins
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mulligan.nouns import Json
from mulligan.records import Task
from mulligan.tasks import variants_text as texts
from mulligan.tasks.drafts import Draft, Kind, Lesson, changed_task, drawn
from mulligan.tasks.variants_text import Case
from mulligan.worlds.code_text import clean, parses

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
TEAMS = ("billing", "archive", "harbour", "weather", "library", "catering", "railway", "garden")
WORDINGS = (
    (r"\bWrite a (?:python )?function (that|which|to)\b", r"Please implement something \1"),
    (r"\bCreate a function (?:that|which)\b", "What is needed is a function that"),
    (r"\bYou(?: are|'re) given\b", "What you get is"),
    (r"\bGiven\b", "Starting from"),
    (r"\bgiven\b", "provided"),
    (r"\bReturn(s?)\b", r"Give\1 back"),
    (r"\breturn(s?)\b", r"give\1 back"),
    (r"\b([Cc])heck(s?) (?:if|whether)\b", r"\1onfirm\2 whether"),
    (r"\b([Ff])ind(s?)\b", r"\1igure\2 out"),
    (r"\btakes\b", "receives"),
    (r"\bFor example\b", "For instance"),
    (r"\bExamples?:", "To illustrate:"),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A lesson's task, read. `text` is what a bare body continues, or else the prompt; `cases` None where a test is no case."""

    task: Task
    correction: str
    entry: str
    text: str
    visible: Sequence[str]
    hidden: Sequence[str]
    cases: Sequence[Case] | None

    @property
    def wanted(self) -> list[Any]:
        return [case.wanted for case in self.cases or ()]

    @property
    def prose(self) -> str:
        return texts.prose(self.text, self.entry)

    def changed(
        self, kind: Kind, text: str, *, entry: str = "", tests: Callable[[str], str] = str, names: Mapping[str, str] | None = None
    ) -> Task:
        """The task with another text, and its tests and names carried along."""
        payload = self.task.payload
        stub, setup = str(payload.get("stub", "")), str(payload.get("setup", ""))
        new: dict[str, Json] = {name: [tests(test) for test in payload[name]] for name in ("visible", "hidden")}
        new["setup"] = texts.with_words(setup.replace(stub, text) if stub else setup, names or {})
        if stub:
            new["stub"] = text
        return changed_task(self.task, kind, prompt=text.strip("\n") if stub else text, entry=entry or self.entry, **new)


def drafts(kind: Kind, lesson: Lesson, folder: Path, others: Sequence[Task], seed: int) -> Iterator[Draft]:
    """The drafts of a kind for a lesson. Nothing is built, and other tasks do not help."""
    payload, correction = lesson.task.payload, clean(lesson.correction)
    entry = str(payload["entry"])
    if not parses(correction):
        return
    visible, hidden = ([str(test) for test in payload[name]] for name in ("visible", "hidden"))
    problem = Problem(
        task=lesson.task,
        correction=correction,
        entry=entry,
        text=str(payload.get("stub") or lesson.task.prompt),
        visible=visible,
        hidden=hidden,
        cases=texts.cases_of([*visible, *hidden], entry),
    )
    match kind:
        case "lookalike":
            made = [list(rule(problem)) for rule in RULES]
            made.sort(key=lambda found: drawn(seed, lesson.record.id, found[0].rule) if found else 0)
            yield from (draft for found in made for draft in found)
        case "paraphrase":
            yield from _reworded(problem)
        case "schema":
            yield from _renamed(problem)
        case "environment":
            yield from _through_a_list(problem)
        case "placebo":
            notes, names = list(_noted(problem, seed)), list(_other_parameter(problem))
            yield from (names + notes if drawn(seed, lesson.record.id, "placebo") % 2 else notes + names)


# ---- another result ----

Rule = Callable[[Problem], Iterator[Draft]]


def _told(
    problem: Problem,
    rule: str,
    change: str,
    *,
    value: Callable[[Any], Any],
    code: str,
    words: Callable[[str], str] = str,
    sentence: str = "",
) -> Iterator[Draft]:
    """A draft in which results are other ones: `value` of a result, `code` for the same in Python, `words` and `sentence` to say so."""
    entry = problem.entry

    def other(case: Case) -> Case:
        return Case(case.arguments, value(case.wanted))

    def test(text: str) -> str:
        case = texts.case_of(text, entry)
        return texts.test_of(other(case), entry) if case else text

    text: str | None = texts.in_prose(problem.text, entry, words)
    text = texts.with_sentence(text, entry, sentence) if sentence and text else text
    try:
        text = texts.with_examples(text, entry, other) if text else None
    except (TypeError, KeyError):  # an example of another kind of result than the tests': some texts contradict themselves
        return
    if text is None or text == problem.text or problem.cases is None:
        return
    gold = _around(problem, entry, "*given", f"value = BEFORE(*given)\n    return {code}")
    yield Draft(rule=rule, change=change, task=problem.changed("lookalike", text, tests=test), gold=gold, carried=problem.correction)


def _around(problem: Problem, name: str, parameters: str, body: str) -> str:
    """The correction under another name, and a function around it. BEFORE in `body` stands for the correction."""
    before = f"{problem.entry}_before"
    made = texts.with_names(problem.correction, {problem.entry: before})
    return f"{made}\n\n\ndef {name}({parameters}):\n    {body.replace('BEFORE', before)}\n"


def another_sentinel(problem: Problem) -> Iterator[Draft]:
    """What stands for "there is none": None becomes -1, or the other way round."""
    plain: tuple[tuple[Any, Any], ...] = ((None, -1), (-1, None))
    for old, new in plain:
        held = [value for value in problem.wanted if value == old and type(value) is type(old)]
        pattern = re.compile(rf"(?<![\w.-]){re.escape(repr(old))}(?![\w.])")
        if not held or not pattern.search(problem.prose) or any(value == new and type(value) is type(new) for value in problem.wanted):
            continue

        def value(result: Any, old: Any = old, new: Any = new) -> Any:
            return new if result == old and type(result) is type(old) else result

        def words(line: str, pattern: re.Pattern[str] = pattern, new: Any = new) -> str:
            return pattern.sub(repr(new), line)

        code = "-1 if value is None else value" if old is None else "None if value == -1 and type(value) is int else value"
        yield from _told(problem, "another sentinel", f"{old!r} → {new!r}", value=value, code=code, words=words)


def another_spelling(problem: Problem) -> Iterator[Draft]:
    """The few texts that a result can be, written otherwise: "YES" and "NO" become "yes" and "no"."""
    found = sorted(set(problem.wanted)) if problem.wanted and all(isinstance(value, str) for value in problem.wanted) else []
    quoted = all(re.search(rf"['\"`]{re.escape(value)}['\"`]", problem.prose) for value in found)
    if not 0 < len(found) <= len(problem.wanted) / 2 or not quoted:
        return
    new = {value: value.lower() if value != value.lower() else value.upper() for value in found}
    if len(set(new.values())) < len(new) or set(new.values()) & set(found):
        return

    def words(line: str) -> str:
        return re.sub(r"(['\"`])(\w+)(['\"`])", lambda m: f"{m[1]}{new.get(m[2], m[2])}{m[3]}", line)

    told = ", ".join(f"{old!r} → {value!r}" for old, value in new.items())
    yield from _told(problem, "another spelling", told, value=lambda v: new[v], code=f"{new!r}[value]", words=words)


def negated(problem: Problem) -> Iterator[Draft]:
    """Yes and no exchanged."""
    if not problem.wanted or not all(isinstance(value, bool) for value in problem.wanted):
        return
    if re.search(r"(?<!\w)(?:True|False)(?!\w)", problem.prose, re.IGNORECASE):

        def words(line: str) -> str:
            opposite = {"True": "False", "False": "True", "true": "false", "false": "true"}
            return re.sub(r"(?<!\w)(?:True|False|true|false)(?!\w)", lambda found: opposite[found[0]], line)

        yield from _told(problem, "negated", "True ↔ False", value=lambda v: not v, code="not value", words=words)
    else:
        sentence = "The result is False where that is so, and True where it is not."
        yield from _told(problem, "negated", sentence, value=lambda v: not v, code="not value", sentence=sentence)


# kind of result → how the text says it, the same in Python twice, and what the signature says of it where that changes
FORMS: Mapping[type[Any], tuple[str, Callable[[Any], Any], str, str]] = {
    int: ("The number is returned as text, written in decimal digits.", str, "str(value)", "str"),
    list: ("The list is returned in the opposite order, its last element first.", lambda v: v[::-1], "value[::-1]", ""),
    str: ("The text is returned backwards, its last character first.", lambda v: v[::-1], "value[::-1]", ""),
    tuple: ("The result is returned as a list, not as a tuple.", list, "list(value)", "list"),
}


def another_form(problem: Problem) -> Iterator[Draft]:
    """The result in another form: a number as text, a list or a text backwards, a tuple as a list."""
    kinds = {type(value) for value in problem.wanted}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is not None and kind in FORMS:
        sentence, value, code, annotation = FORMS[kind]
        signature = re.compile(rf"(^def {re.escape(problem.entry)}\b[^\n]*->)[^\n]*:[ \t]*$", re.MULTILINE)
        typed = replace(problem, text=signature.sub(rf"\1 {annotation}:", problem.text)) if annotation else problem
        yield from _told(typed, f"another form of {kind.__name__}", sentence, value=value, code=code, sentence=sentence)


def other_order(problem: Problem) -> Iterator[Draft]:
    """The first two arguments exchanged, in the signature and in every call."""
    entry, names = problem.entry, texts.parameters(problem.text, problem.entry)
    if len(names) < 2 or problem.cases is None or any(len(case.arguments) != len(names) for case in problem.cases):
        return

    def other(case: Case) -> Case:
        return Case((*case.arguments[1:2], *case.arguments[:1], *case.arguments[2:]), case.wanted)

    def test(text: str) -> str:
        case = texts.case_of(text, entry)
        return texts.test_of(other(case), entry) if case else text

    signature = re.search(rf"^(def {re.escape(entry)}\s*\()(.*?)(\)\s*(?:->.*?)?:[ \t]*)$", problem.text, re.MULTILINE | re.DOTALL)
    given = _split(signature[2]) if signature else []
    if signature is None or len(given) != len(names):
        return
    given[0], given[1] = given[1], given[0]
    head = f"{signature[1]}{', '.join(given)}{signature[3]}"
    text = texts.with_examples(problem.text[: signature.start()] + head + problem.text[signature.end() :], entry, other)
    if text is None:
        return
    listed = [names[1], names[0], *names[2:]]
    gold = _around(problem, entry, ", ".join(listed), f"return BEFORE({', '.join(names)})")
    change = f"({', '.join(names)}) → ({', '.join(listed)})"
    yield Draft(
        rule="other order", change=change, task=problem.changed("lookalike", text, tests=test), gold=gold, carried=problem.correction
    )


def _split(listed: str) -> list[str]:
    """Parameters with their annotations, split at commas outside brackets."""
    parts, depth = [""], 0
    for character in listed:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


RULES: tuple[Rule, ...] = (another_sentinel, another_spelling, negated, another_form, other_order)


# ---- the same result ----


def _reworded(problem: Problem) -> Iterator[Draft]:
    def words(line: str) -> str:
        for pattern, new in WORDINGS:
            line = re.sub(pattern, new, line)
        return line

    text = texts.in_prose(problem.text, problem.entry, words)
    if text != problem.text:
        yield _same("paraphrase", problem, "rule of wording", " ".join(texts.prose(text, problem.entry).split())[:200], text)


def _noted(problem: Problem, seed: int) -> Iterator[Draft]:
    team = TEAMS[drawn(seed, problem.task.id) % len(TEAMS)]
    sentence = f"The {team} team has asked for this."
    text = texts.with_sentence(problem.text, problem.entry, sentence)
    if text is not None:
        yield _same("placebo", problem, "prose", sentence, text)


def _other_parameter(problem: Problem) -> Iterator[Draft]:
    """One parameter under another name, in the signature and in the text."""
    for old in texts.parameters(problem.text, problem.entry):
        if _is_a_word(old):
            continue
        names = {old: f"{old}_given"}
        text = texts.with_words(problem.text, names)
        yield _same("placebo", problem, "parameter", f"{old} → {names[old]}", text)


def _same(kind: Kind, problem: Problem, rule: str, change: str, text: str) -> Draft:
    return Draft(rule=rule, change=change, task=problem.changed(kind, text), gold=problem.correction, carried=problem.correction)


def _is_a_word(name: str) -> bool:
    """Whether a parameter's name may stand in the text as something else, too: a word of English, or a type."""
    return name in ("a", "I", "string", "text", "numbers", "number", "array", "values", "word", "words") or hasattr(builtins, name)


def _renamed(problem: Problem) -> Iterator[Draft]:
    """Other names for the function and its parameters, wherever they stand."""
    entry = f"{problem.entry}_result"
    given = [name for name in texts.parameters(problem.text, problem.entry) if not _is_a_word(name)]
    names = {problem.entry: entry, **{name: f"{ORDINALS[place]}_given" for place, name in enumerate(given[: len(ORDINALS)])}}
    text, calls = texts.with_words(problem.text, names), {problem.entry: entry}
    task = problem.changed("schema", text, entry=entry, tests=lambda test: texts.with_names(test, calls), names=calls)
    carried = texts.with_names(problem.correction, calls)
    yield Draft(rule="renamed", change=", ".join(f"{old} → {new}" for old, new in names.items()), task=task, gold=carried, carried=carried)


def _through_a_list(problem: Problem) -> Iterator[Draft]:
    """The same work for each of a list of cases: another entry, which takes and returns a list."""
    entry, new, names = problem.entry, f"{problem.entry}_each", texts.parameters(problem.text, problem.entry)
    if problem.cases is None or not names:
        return

    def other(case: Case) -> Case:
        return Case((f"[({', '.join(case.arguments)},)]",), [case.wanted])

    def test(text: str) -> str:
        case = texts.case_of(text, entry)
        return texts.test_of(other(case), new) if case else text

    sentence = f"Do this for each of `cases`, a list of tuples ({', '.join(names)},), and return the list of the results."
    text = texts.with_sentence(problem.text, entry, sentence)
    text = texts.with_examples(text, entry, other, new) if text else None
    if text is None or texts.tells_results(text, entry):
        return
    text = re.sub(
        rf"^def {re.escape(entry)}\b.*?:[ \t]*$", f"def {new}(cases: list) -> list:", text, count=1, flags=re.MULTILINE | re.DOTALL
    )
    task = problem.changed("environment", text, entry=new, tests=test, names={entry: new})
    gold = _around(problem, new, "cases", "return [BEFORE(*case) for case in cases]")
    yield Draft(rule="through a list", change=f"{entry} → {new}, a list of cases", task=task, gold=gold, carried=gold)
