"""The SMT world: a script in SMT-LIB 2, answered by a model or by unsat.

In: tasks with payload {"smt2": script}. Out: verdicts with utility as in SPEC A3.1: 1 when the model's definitions make every assertion
true, else the share that they make true; for unsat 1 when a solver confirms it. What the definitions leave open (sorts without values,
what the model does not define) is put to a solver; one that does not finish, or two that disagree, leave the verdict incomplete. Solvers
run beside this process and are killed in time. On held-out tasks nothing is said of an unsat.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mulligan.edits import edit_text
from mulligan.errors import InvalidData, UsageError
from mulligan.naming import vocabulary
from mulligan.nouns import Json, content_id
from mulligan.records import Proposal, Signal, Task, Verdict
from mulligan.worlds.answering import Answering, Asked
from mulligan.worlds.beside import beside
from mulligan.worlds.smt_script import Answer, Script, read_answer, read_script

if find_spec("z3") is None:  # only the worker imports it, and could not say so
    raise ModuleNotFoundError("no module named 'z3'", name="z3")

MANUAL = (
    "An action answers an SMT-LIB script: unsat, or sat and a model, one definition for each declared name, such as "
    "(define-fun x () Int 3), or lines such as x = 3. Reply with the answer alone."
)
RULES = "1"
WORKER = Path(__file__).with_name("smt_worker.py")
INSTALL = "the solver of the SMT world does not start: pip install 'mulligan[smt]'"
SLACK = 5.0  # seconds beyond the solver's own limit before it is killed
SHOWN = 3
DRAFTS = 60
OFFERED = 12
WORDS = vocabulary(
    "and array assert bool bv concat const declare declare-const declare-fun define define-fun distinct div else exists extract "
    "false forall fun if implies int ite let mod model not or real sat select store str string then to_int to_real true unsat xor"
)
SECONDS = 2.0  # for all drafts of a failure


@dataclass(frozen=True)
class _Judgement:
    """What the solver says of an answer. `right` is None where it cannot be told."""

    right: bool | None
    utility: Fraction = Fraction(0)
    signals: tuple[Signal, ...] = ()


@dataclass(frozen=True)
class SmtWorld(Answering):
    """Settings only, so that it can be sent to other processes."""

    time_limit_s: float = 5.0
    name: str = "smt"
    manual: str = MANUAL
    vocabulary = WORDS

    @cached_property
    def version(self) -> str:
        other = version("cvc5") if find_spec("cvc5") else ""
        return f"{RULES}-{content_id('v', [RULES, self.time_limit_s, version('z3-solver'), other])[2:10]}"

    def facts(self, task: Task) -> Mapping[str, Json]:
        return {**task.facts, **_facts(_script(task))}

    def start(self, task: Task) -> Asked:
        """Raises UsageError when the payload holds no script of one question."""
        _script(task)
        return Asked(self.name, task)

    def tokens(self, action: str) -> Sequence[str]:
        return re.findall(r"[()]|[^\s()]+", action[:100_000])

    def act(self, state: Asked, action: str) -> Verdict:
        began = time.perf_counter()
        script = _script(state.task)
        answer = read_answer(action, script)
        hides = state.task.split == "heldout" and answer.status == "unsat"
        judged = self._judge(script, answer)
        signals = () if hides else judged.signals
        told = f"The answer is {answer.status}." if answer.status else "There is no answer."
        lines = [told, *(f"{signal.kind}: {signal.what}" for signal in signals[:SHOWN])]
        if len(signals) > SHOWN:
            lines.append(f"{len(signals) - SHOWN} more assertions do not hold.")
        return Verdict(
            completed=judged.right is not None,
            utility=judged.utility,
            solved=judged.right is True,
            feedback="\n".join(lines),
            signals=signals,
            done=hides or judged.right is True,
            evaluator=f"{self.name}/{self.version}",
            seconds=time.perf_counter() - began,
        )

    def _judge(self, script: Script, answer: Answer) -> _Judgement:
        if answer.fault:
            return _Judgement(False, signals=(Signal(kind="syntax", what=answer.fault),))
        if answer.status == "unsat":
            said = self.ask("decide", script.text())
            if said == "unsat":
                return _Judgement(True, Fraction(1))
            if said == "sat":
                return _Judgement(False, signals=(Signal(kind="refuted", what="there is a model"),))
            return _Judgement(None, signals=(Signal(kind="timeout", what="no solver decided it in time"),))
        text = script.text(dict(answer.definitions))
        found = self.ask("evaluate", text)
        if isinstance(found, str):
            return _Judgement(False, signals=(Signal(kind="error", what=found),))
        if found is None:
            return _Judgement(None, signals=(Signal(kind="timeout", what="the model was not evaluated in time"),))
        return self._evaluated(script, text, found)

    def _evaluated(self, script: Script, text: str, found: Sequence[bool | None]) -> _Judgement:
        """The judgement of a model from what it makes of each assertion."""
        names = script.assertions if len(script.assertions) == len(found) else tuple(f"assertion {n + 1}" for n in range(len(found)))
        share = Fraction(sum(one is True for one in found), len(found)) if found else Fraction(0)
        if all(one is True for one in found):
            return _Judgement(True, Fraction(1))
        if False in found:
            broken = tuple(Signal(kind="unsatisfied", what=_line(name)) for name, one in zip(names, found, strict=True) if one is False)
            return _Judgement(False, share, broken)
        said = self.ask("rest", text)
        if said == "sat":
            return _Judgement(True, Fraction(1))
        left = [name for name, one in zip(names, found, strict=True) if one is None]
        open_ = tuple(Signal(kind="unsatisfied", what=f"not under this model: {_line(name)}") for name in left)
        return _Judgement(False if said == "unsat" else None, share, open_)

    def ask(self, question: str, text: str) -> Any:
        """What the solver beside this process says; None when it does not in time, text that begins with "wrong:" for a script that it
        does not read.
        """
        told = beside(WORKER, INSTALL).ask([question, text, round(1000 * self.time_limit_s)], 2 * self.time_limit_s + SLACK)
        return None if told is None else told.get("said", f"wrong: {' '.join(str(told.get('wrong')).split())}")

    def edits(self, state: Asked, action: str, verdict: Verdict) -> Iterable[Proposal]:
        """Other values of the names in assertions that do not hold, those first that leave fewest of them; the rest of the model stays."""
        script = _script(state.task)
        answer = read_answer(action, script)
        if answer.status != "sat":
            return
        definitions, until = dict(answer.definitions), time.monotonic() + SECONDS
        least = sum(signal.kind == "unsatisfied" for signal in verdict.signals)
        wanted = " ".join(signal.what for signal in verdict.signals)
        ranked: list[tuple[int, int, str, str]] = []
        for place, (name, changed) in enumerate(_changed(definitions, wanted)):
            if place == DRAFTS or time.monotonic() > until:
                break
            found = self.ask("evaluate", script.text({**definitions, name: changed}))
            broken = sum(one is False for one in found) if isinstance(found, list) else least
            if broken < least:
                ranked.append((broken, place, name, changed))
        for broken, _, name, changed in sorted(ranked)[:OFFERED]:
            model = "sat\n" + "\n".join({**definitions, name: changed}.values())
            why = f"{least - broken} more of the assertions hold"
            yield Proposal(action=model, edit=edit_text(definitions[name], changed, self.tokens), why=why, proposer="op:value")


def _changed(definitions: Mapping[str, str], wanted: str) -> Iterable[tuple[str, str]]:
    """Definitions of constants with another value, those of names in `wanted` first."""
    named = sorted(definitions, key=lambda name: not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", wanted))
    numbers = list(dict.fromkeys(re.findall(r"(?<![\w.#])\d+(?![\w.])", wanted)))[:6]
    for name in named:
        found = re.fullmatch(rf"\(define-fun {re.escape(name)} \(\) (\([^()]*\)|[^\s()]+) (.+)\)", definitions[name])
        if not found:
            continue
        sort, value = found.groups()
        for other in _values(sort, value, numbers):
            if other != value:
                yield name, f"(define-fun {name} () {sort} {other})"


def _values(sort: str, value: str, numbers: Sequence[str]) -> list[str]:
    """Values near by, at the ends, and among the numbers of what does not hold."""
    if sort == "Bool":
        return ["true", "false"]
    if sort in ("Int", "Real"):
        match = re.fullmatch(r"(\d+)(?:\.0)?|\(- (\d+)(?:\.0)?\)", value)
        here = [int(match.group(1)) if match.group(1) else -int(match.group(2))] if match else []
        near = [n for at in here for n in (at + 1, at - 1, -at)]
        wanted = [n for text in numbers for n in (int(text), int(text) + 1, int(text) - 1, -int(text))]
        return [str(n) if n >= 0 else f"(- {-n})" for n in dict.fromkeys([*near, *wanted, 0, 1])]
    if found := re.fullmatch(r"#b([01]+)", value):
        bits = found.group(1)
        flips = [bits[:p] + ("1" if bits[p] == "0" else "0") + bits[p + 1 :] for p in range(min(len(bits), 16))]
        return [f"#b{new}" for new in (*flips, "0" * len(bits), "1" * len(bits))]
    return []


def _line(assertion: str) -> str:
    text = " ".join(re.sub(r"^\(assert\s+(.*)\)$", r"\1", assertion.strip(), flags=re.DOTALL).split())
    return text if len(text) <= 240 else f"{text[:239]}…"


@lru_cache(maxsize=64)
def _read(text: str, name: str) -> Script:
    return read_script(text, name)


def _script(task: Task) -> Script:
    text = task.payload.get("smt2")
    if not isinstance(text, str):
        raise UsageError(f"task {task.id} holds no script; put SMT-LIB text under payload['smt2']")
    try:
        return _read(text, task.id)
    except InvalidData as error:
        raise UsageError(f"task {task.id} holds no script: {error}") from error


_THEORIES: Mapping[str, str] = {
    "arrays": r"\b(?:select|store|Array)\b",
    "bit vectors": r"\b(?:bv\w+|BitVec|concat|extract)\b",
    "strings": r"\bstr[._]|\bString\b",
    "quantifiers": r"\b(?:forall|exists)\b",
    "integers": r"\bInt\b",
    "reals": r"\bReal\b",
    "division": r"[( ](?:div|mod|/) ",
    "floating point": r"\bfp\.|\bFloat\w+",
}


def _facts(script: Script) -> dict[str, Json]:
    text = script.text()
    sorts = Counter(result for _, result in script.declared.values())
    return {
        "logic": script.logic,
        "names": len(script.declared),
        "assertions": len(script.assertions),
        "uses": [name for name, pattern in _THEORIES.items() if re.search(pattern, text)],
        "sorts": [sort for sort, _ in sorts.most_common(6)],
        "gist": f"{script.logic or 'any logic'}: {len(script.declared)} names, {len(script.assertions)} assertions",
    }
