"""Transfer and probes end to end on the toy world: what is asked, of what it is a share, what is frozen, and what a stopped run says."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import cli_parts
import toy_run
from mulligan.building import clear_run
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData, StoreError, UsageError
from mulligan.experiment import counterfactuals, stages, transfer
from mulligan.experiment.counterfactuals import readings, renamed
from mulligan.experiment.report import markdown, read_results, write_report
from mulligan.experiment.report_profile import profile
from mulligan.experiment.report_studies import sections
from mulligan.experiment.report_transfer import told, transfer_table
from mulligan.experiment.results import Results
from mulligan.experiment.run import Parts, run
from mulligan.experiment.settings import Experiment, MemorySettings, TransferSettings
from mulligan.memory import Memory
from mulligan.models import ScriptedModel
from mulligan.nouns import to_json
from mulligan.records import Message, Task
from mulligan.store import Store
from mulligan.tasks import variants
from mulligan.tasks.drafts import Draft, Kind, Lesson, changed_task
from test_cli import Call, call  # noqa: F401  # a fixture
from toy import ToyWorld, toy_tasks

ALL = TransferSettings(kinds=("original", "lookalike", "paraphrase", "schema", "environment"), each=2, probes=True)
ARMS = ("none", "checked_top1", "no_condition", "no_condition+rewrite", "checked_top1+rewrite", "shuffled", "checked_never")
GERMAN = {"one": "eins", "two": "zwei", "three": "drei"}


def drafts(kind: Kind, given: Lesson, folder: Path, others: Sequence[Task], seed: int) -> Iterator[Draft]:
    """Changes of a toy task, as a domain's builder makes them."""
    prompt, gold = given.task.prompt, str(given.task.payload["gold"])
    other, german = "four five six", " ".join(GERMAN[word] for word in gold.split())
    carried = " ".join(GERMAN.get(word, word) for word in given.correction.split())
    made = {
        "lookalike": [(f"{word} {prompt.replace('one two three', other)}", other, given.correction) for word in ("rather", "now")],
        "paraphrase": [(f"please {prompt}", gold, given.correction)],
        "schema": [(f"auf Deutsch: {prompt}", german, carried)],
        "environment": [(f"in Bern: {prompt}", german, carried)],
        "placebo": [(f"Anna asks: {prompt}", gold, given.correction)],
    }[kind]
    for text, wanted, said in made:
        change = f"{gold} → {other}" if kind == "lookalike" else text
        yield Draft(rule=kind, change=change, task=changed_task(given.task, kind, prompt=text, gold=wanted), gold=wanted, carried=said)


@pytest.fixture(autouse=True, scope="module")
def toy_builder() -> Iterator[None]:
    whole, answers = variants.builder, variants.builder("sql")[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variants, "builder", lambda domain: (drafts, answers) if domain == "toy" else whole(domain))
        yield


def tasks() -> list[Task]:
    """Half of the source tasks say which words are wanted: their records have a condition."""
    said = [replace(t, prompt=f"say {'one two three' if n % 2 else 'a few words'} number {n}") for n, t in enumerate(toy_tasks(8))]
    return [*said, *toy_tasks(4, "heldout")]


def reply(messages: Sequence[Message]) -> str:
    """As in other runs of the toy; a lesson is rewritten to its words, but not for tasks that ask for other words."""
    if "<EMPTY>" in messages[1].content:
        return "<EMPTY>" if "four five six" in messages[1].content else "Say the words."
    return toy_run.reply(messages)


def settings(wanted: TransferSettings, arms: Sequence[str] = ARMS) -> Experiment:
    memory = MemorySettings(embedder="hash:64", ablation_selector="top1", need=0.0, min_score=-1.0)
    return toy_run.experiment(transfer=wanted, arms=tuple(arms), memory=memory)


def play(folder: Path, wanted: TransferSettings, model: ScriptedModel | None = None, arms: Sequence[str] = ARMS) -> Results:
    parts = Parts(tasks=tasks(), world=ToyWorld(), model=model or ScriptedModel(reply), embedder=HashingEmbedder(64))
    return run(settings(wanted, arms), parts, folder, lambda stage, done, total: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, toy_builder: None) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("transfer")
    return play(folder, ALL), folder


def same(results: Results) -> str:
    return to_json(replace(results, timing={}))


# ---- changed tasks ----


def test_every_arm_is_asked_every_changed_task(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    assert [one.kind for one in results.transfer] == list(ALL.kinds)
    for one in results.transfer:
        assert [a.metrics.arm for a in one.arms] == [a.arm for a in results.arms] and one.pairs
        assert {a.metrics.solved.whole for a in one.arms} == {len(one.pairs)} == {len({p.task for p in one.pairs})}
        with Store(folder / "run.db", frozen=True) as ledger:
            played = ledger.episodes(label=f"transfer {one.kind} no_condition")
        assert {e.task.id for e in played} == {p.task for p in one.pairs}
        assert {(e.task.split, e.task.group) for e in played} == {("heldout", f"changed from {p.source}") for p in one.pairs}


def test_the_record_of_the_source_is_met_on_its_changed_task(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    original, lookalike, *_ = results.transfer
    arms = {a.metrics.arm: a for a in original.arms}
    assert arms["none"].found.whole == 0 == arms["checked_never"].own.part
    assert arms["no_condition"].found.part == arms["no_condition"].found.whole > 0
    assert arms["no_condition"].own.part > arms["shuffled"].own.part
    assert arms["no_condition"].metrics.solved.part > arms["none"].metrics.solved.part
    with Store(folder / "run.db", frozen=True) as ledger, Store(folder / "checked.db", frozen=True) as store:
        by_source = {p.source: p for p in original.pairs}
        for e in ledger.episodes(label="transfer original no_condition"):
            shown = {store.record(key).record.provenance.task for r in e.receipts for key in r.shown}
            assert shown and by_source[e.task.id.removesuffix("~original")].task == e.task.id
    assert len(lookalike.pairs) > len(original.pairs)  # two of each record


def test_conditions_keep_records_from_look_alikes(whole: tuple[Results, Path]) -> None:
    results, _ = whole
    lookalike = next(one for one in results.transfer if one.kind == "lookalike")
    assert {p.condition for p in lookalike.pairs} == {False, None}
    arms = {a.metrics.arm: a for a in lookalike.arms}
    assert arms["checked_top1"].found.part < arms["no_condition"].found.part == arms["no_condition"].found.whole
    assert all(a.metrics.solved.part == 0 for a in lookalike.arms)  # the toy's model knows none of those words
    original = results.transfer[0]
    assert {p.condition for p in original.pairs} == {True, None} and {p.rule for p in original.pairs} == {""}


def test_a_task_of_two_records_is_asked_once(whole: tuple[Results, Path]) -> None:
    results, folder = whole
    paraphrase = next(one for one in results.transfer if one.kind == "paraphrase")
    made = json.loads((folder / "transfer-paraphrase.json").read_text())
    assert len(paraphrase.pairs) == len({v["task"]["id"] for v in made["variants"]})
    assert paraphrase.sources == len({p.source for p in paraphrase.pairs}) <= len(paraphrase.pairs)


def test_at_most_so_many_pairs_in_whatever_arms(tmp_path: Path) -> None:
    arms = ("none", "best_of_n", "reflexion_self", "no_persistence", "unverified")
    results = play(tmp_path, replace(ALL, most=2, probes=False), arms=arms)
    assert [len(one.pairs) for one in results.transfer] == [2] * 5 and results.probes == ()
    with Store(tmp_path / "run.db", frozen=True) as ledger:
        assert all(len(ledger.episodes(label=f"transfer schema {name}")) == 2 for name in arms)
        assert all(len(ledger.episodes(label=name)) == 4 for name in arms)
    unverified = next(a for a in results.transfer[0].arms if a.metrics.arm == "unverified")
    assert unverified.found.part > 0  # own records are those of the arm's store


def test_nothing_is_asked_where_there_are_no_pairs(tmp_path: Path) -> None:
    model = ScriptedModel(lambda messages: "[]" if "JSON" in messages[1].content else "one two three")
    results = play(tmp_path, ALL, model)
    assert all(one.arms == () and one.pairs == () for one in results.transfer)
    assert results.probes[0].findings.accepted.rate.whole == 0
    assert "nothing was asked" in " ".join(told(results)) and transfer_table(results) == (("arm",), []) and profile(results) == ()
    write_report(results, tmp_path)


def test_transfer_and_probes_are_lines_of_the_bill(whole: tuple[Results, Path]) -> None:
    bills = {c.stage: c for c in whole[0].costs}
    assert {"transfer", "probes"} <= set(bills) and not any(stage.startswith(("transfer ", "probes ")) for stage in bills)
    assert bills["transfer"].usage.model_calls > 0 and bills["probes"].usage.model_calls > 0


# ---- probes ----


def test_every_way_of_reading_is_probed_once() -> None:
    assert readings(settings(ALL, ("none", "checked_top1", "checked_never", "no_need", "random", "no_condition", "bank"))) == [
        ("checked_top1", "no_need"),
        ("no_condition",),
    ]


def test_conditions_and_rewriting_leave_what_does_not_fit(whole: tuple[Results, Path]) -> None:
    results, _ = whole
    found = {one.arms[0]: one.findings for one in results.probes}
    assert list(found) == ["checked_top1", "no_condition", "no_condition+rewrite", "checked_top1+rewrite"]
    probes = found["checked_top1"].accepted.rate.whole
    assert probes > 0 and all(f.accepted.rate.whole == probes for f in found.values())
    assert found["no_condition"].accepted.rate.part == probes
    assert found["no_condition"].adapted.rate.part == 0 and found["no_condition"].apart.value == 0.0
    assert 0 < found["checked_top1"].adapted.rate.part < probes  # those with a condition
    fates = found["no_condition+rewrite"].fates["s-"]
    assert fates["accepted"] > 0 < fates["empty"] == found["no_condition+rewrite"].adapted.rate.part  # what was accepted names neither
    assert found["no_condition"].usage.model_calls == 0 < found["no_condition+rewrite"].usage.model_calls
    assert {one.group for one in found["no_condition"].probes} <= {f"changed from source{n}" for n in range(8)}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("texas (state) → boston (city)", {"texas": "boston"}),
        ("state → lake", {"state": "lake"}),
        ("(nothing) → lowest", {"": "lowest"}),
        ("major → (nothing)", {"major": ""}),
        ("'YES' → 'yes', 'NO' → 'no'", {"YES": "yes", "NO": "no"}),
        ("None → -1", {"None": "-1"}),
        ("(x, y) → (y, x)", {}),
        ("True ↔ False", {}),
        ("The number is returned as text, written in decimal digits.", {}),
        ("portland, oregon (city) → salem (city)", {"portland, oregon": "salem"}),
        ("", {}),
        ("→" * 10_000, {}),
    ],
)
def test_names_are_read_from_a_change(change: str, names: dict[str, str]) -> None:
    assert renamed(change) == names


# ---- stopping, freezing, refusing ----


class Stops(ScriptedModel):
    """Fails at one of its calls, as a server does."""

    def __init__(self, at: int) -> None:
        super().__init__(reply)
        self.left = at

    def complete(self, messages, **how):  # type: ignore[no-untyped-def]
        self.left -= 1
        if self.left == 0:
            raise ConnectionError("gone")
        return super().complete(messages, **how)


def test_a_run_that_was_stopped_goes_on_and_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, arms = TransferSettings(kinds=("lookalike", "schema"), probes=True), ("none", "no_condition+rewrite")
    counted = Stops(0)
    ended = play(tmp_path / "count", wanted, counted, arms)
    needed = -counted.left
    with pytest.raises(ConnectionError):
        play(tmp_path / "run", wanted, Stops(needed - 8), arms)
    assert (tmp_path / "run" / "transfer-schema.json").exists()
    monkeypatch.setattr(variants, "builder", lambda domain: None)  # nothing is made again
    after = Stops(0)
    assert same(play(tmp_path / "run", wanted, after, arms)) == same(ended) and 0 < -after.left < 12
    again = Stops(1)
    assert same(play(tmp_path / "run", wanted, again, arms)) == same(ended) and again.left == 1  # nothing is asked
    (tmp_path / "run" / "transfer").mkdir()
    (tmp_path / "run" / "transfer" / "made.sqlite").touch()
    clear_run(tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_changed_tasks_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    small = replace(ALL, kinds=("lookalike",), probes=False)
    play(tmp_path, small, arms=("none", "checked_top1"))
    for damage in (b"{", b"[]", b"\xff\xfe", b'{"kind": "lookalike"}'):
        (tmp_path / "transfer-lookalike.json").write_bytes(damage)
        with pytest.raises(InvalidData, match="delete it"):
            play(tmp_path, small, arms=("none", "checked_top1"))


def test_a_reader_that_writes_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writing(bench: stages.Bench, name: str, label: str = "") -> stages.Episodes:
        with Store(bench.memory_path("checked")) as opened:
            opened.set_status(opened.records(domain="toy")[0].record.id, "retired", "by a fault")
        return stages.evaluate(bench, name, label)

    monkeypatch.setattr(transfer, "evaluate", writing)
    with pytest.raises(StoreError, match="changed a frozen store"):
        play(tmp_path, replace(ALL, kinds=("original",), probes=False), arms=("none", "checked_top1"))


@pytest.mark.parametrize(
    ("wanted", "arms", "words"),
    [
        (replace(ALL, most=0), ARMS, "at least 1"),
        (replace(ALL, each=0), ARMS, "at least 1"),
        (replace(ALL, kinds=("schema", "schema")), ARMS, "twice"),
        (ALL, ("none", "checked_never"), "checked_threshold"),
    ],
)
def test_what_cannot_be_run_is_said_first(tmp_path: Path, wanted: TransferSettings, arms: Sequence[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        play(tmp_path / "run", wanted, arms=arms)
    assert not (tmp_path / "run").exists()


def test_a_domain_that_nobody_can_change_is_said_first() -> None:
    strange = [replace(task, domain="chess") for task in tasks()]
    with pytest.raises(UsageError, match="chess"):
        transfer.check(settings(ALL), strange)
    transfer.check(settings(TransferSettings(kinds=("original",))), strange)  # nothing is changed there
    transfer.check(settings(TransferSettings()), strange)


def test_told_tasks_go_with_no_transfer(tmp_path: Path) -> None:
    given = settings(replace(ALL, kinds=("original",), probes=False), ("none",))
    parts = Parts(tasks=tasks(), world=ToyWorld(), model=ScriptedModel(reply), embedder=HashingEmbedder(64))
    with pytest.raises(UsageError, match="transfer"):
        run(replace(given, tasks=replace(given.tasks, told=True)), parts, tmp_path / "run", lambda stage, done, total: None)


def test_probes_write_nothing(whole: tuple[Results, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(Memory, "settle", lambda self, *given, **more: written.append("settled"))
    wanted = TransferSettings(probes=True)
    results = play(tmp_path, wanted, arms=("none", "checked_top1", "no_condition"))
    checked = next(c for c in results.construction if c.variant == "checked")
    assert checked.frozen_before == checked.frozen_after and results.transfer == () and len(results.probes) == 2
    assert counterfactuals.STAGE not in {path.name for path in tmp_path.iterdir()}


# ---- reports ----


def test_reports_tell_of_both(whole: tuple[Results, Path], tmp_path: Path) -> None:
    results, _ = whole
    said = {s.key: s for s in sections(results)}
    for section in (said["transfer"], said["probes"]):
        for table in section.tables:
            assert table.rows and all(len(row) == len(table.headers) for row in table.rows)
    assert len(said["transfer"].tables) == 1 + len(ALL.kinds)
    sentences = told(results)
    assert len(sentences) == len(ALL.kinds) + len(results.probes) and sentences[1].startswith("lookalike: ")
    assert "harmful in" in sentences[1] and "no_condition" in sentences[1]
    headers, rows = transfer_table(results)
    assert headers == ("arm", *ALL.kinds) and all(len(row) == 6 for row in rows)
    paths = write_report(results, tmp_path)
    assert read_results(paths.json) == replace(results, timing={})
    page = paths.html.read_text()
    assert "plot-transfer" in page and "style=" not in page and ">Transfer to changed tasks<" in page and 'href="#probes"' in page
    assert "## Counterfactual probes" in markdown(results) and "## Transfer to changed tasks" in markdown(results)
    assert [plot.name for plot in profile(results)] == ["transfer"]


def test_a_run_without_transfer_says_nothing_of_it(tmp_path: Path) -> None:
    results = play(tmp_path, TransferSettings(), arms=("none",))
    assert results.transfer == () == results.probes and told(results) == [] and profile(results) == ()
    assert {"transfer", "probes"}.isdisjoint(s.key for s in sections(results)) and not list(tmp_path.glob("transfer*"))


def test_the_command(call: Call, tmp_path: Path) -> None:  # noqa: F811
    text = cli_parts.EXPERIMENT.replace("[memory]", '[transfer]\nkinds = ["original"]\n[memory]')
    (tmp_path / "toy.toml").write_text(text)
    status, out, _ = call("run", "toy.toml", "--model", "python:cli_parts:model")
    assert status == 0 and "Solved by kind of change" in out and max(map(len, out.splitlines())) <= 80
    printed = json.loads(call("run", "toy.toml", "--model", "python:cli_parts:model", "--json")[1])
    assert printed["transfer"][0]["kind"] == "original" and printed["probes"] == []
    (tmp_path / "wrong.toml").write_text(text.replace('"original"', '"placebo"'))
    status, out, error = call("run", "wrong.toml", "--model", "python:cli_parts:model")
    assert status == 2 and "kinds" in error and len(error.splitlines()) == 1
