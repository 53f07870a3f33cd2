"""Learned selectors as they are served: features, weights, and what every kind promises whatever it has learnt."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import attempt, candidate, situation, task, verdict
from mulligan.errors import InvalidData, UsageError
from mulligan.read import features as feats
from mulligan.read import weights as files
from mulligan.read.learned import Dqn, Explore, Linear, Thompson
from mulligan.read.selection import selector
from mulligan.read.weights import Weights
from mulligan.records import Attempt, Condition, Episode, Gain, Receipt, Selection, Signal, Statistics, Usage

G, F = len(feats.GLOBAL), len(feats.SLOT)


def made(kind: str, seed: int = 0, domains: tuple[str, ...] = ()) -> Weights:
    """Weights of that kind with random numbers."""
    rng, size = np.random.default_rng(seed), G + len(domains)

    def drawn(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    arrays = {"g_mean": drawn(size), "x_mean": drawn(F), "g_scale": 0.5 + drawn(size) ** 2, "x_scale": 0.5 + drawn(F) ** 2}
    if kind == "dqn":
        for head, wide in (("show", size + 2 * F), ("skip", size + F)):
            for n, (into, out) in enumerate([(wide, 8), (8, 8), (8, 1)]):
                arrays |= {f"{head}.{n}.weight": drawn(2, into, out), f"{head}.{n}.bias": drawn(2, 1, out)}
    else:
        for head, wide in (("show", 1 + size + 2 * F), ("skip", 1 + size)):
            arrays |= {head: drawn(wide), f"{head}_factor": np.tril(drawn(wide, wide)) / 10}
    return Weights(kind=kind, arrays=arrays, domains=domains)


def some(many: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [
        replace(
            candidate(float(rng.random()), situation=f"question {n}", statistics=Statistics(helped=int(rng.integers(9)), selected=9)),
            tokens=int(rng.integers(300)),
        )
        for n in range(many)
    ]


SERVED = {"dqn": Dqn, "logistic": Linear, "paired": Linear, "contextual": Linear, "thompson": Thompson}


class TestFeatures:
    def test_values(self):
        done = replace(
            attempt("a"), verdict=verdict(0, signals=(Signal(kind="error", what="x"),)), usage=Usage(evaluator_calls=2, prompt_tokens=127)
        )
        here = replace(situation(history=(done,), need=0.25), task=task(domain="sql"))
        one = replace(
            candidate(
                0.5,
                gain=Gain(original=Fraction(1, 4), changed=Fraction(3, 4), solved=False),
                condition=Condition(kind="predicate", text="", predicate="a == 1"),
                statistics=Statistics(selected=8, helped=2, hurt=1, neutral=1, ema=0.7),
            ),
            tokens=90,
        )
        g, x = feats.features(here, [one], ("code", "sql"))
        assert g == pytest.approx([0.1, 0.1, 0.1, np.log(128) / np.log(16_385), 0.0, 1 / 3, 0.25, 0, 1], abs=1e-6)
        assert x[0] == pytest.approx([0.5, 0.5, 0.75, 0.7, np.log(9) / np.log(201), 3 / 6, 2 / 6, 0, 1, 0, 0.09], abs=1e-6)

    def test_first_decision_without_candidates(self):
        g, x = feats.features(situation(), [], ())
        assert g[4] == 0.5
        assert x.shape == (0, F)

    def test_what_only_the_gold_answer_tells_makes_no_difference(self):
        """Two attempts that look alike to the agent, one right and one wrong, give the same features."""
        wrong, right = (replace(attempt("a"), verdict=verdict(u, signals=(), feedback="3 rows")) for u in (0, 1))
        seen = [feats.features(situation(history=(a,)), some(2), ())[0] for a in (wrong, right)]
        assert (seen[0] == seen[1]).all()

    @given(st.integers(2, 6))
    def test_the_mean_of_the_others(self, many):
        x = np.random.default_rng(many).normal(size=(many, F)).astype(np.float32)
        expected = [np.delete(x, n, 0).mean(0) for n in range(many)]
        assert feats.others(x) == pytest.approx(np.array(expected), abs=1e-5)

    def test_alone_there_are_no_others(self):
        assert not feats.others(np.ones((1, F), np.float32)).any()


class TestServing:
    @pytest.mark.parametrize("kind", SERVED)
    @given(order=st.permutations(range(5)), seed=st.integers(0, 50))
    def test_the_order_of_candidates_makes_no_difference(self, kind, order, seed):
        served, here, found = SERVED[kind](made(kind, seed)), situation(), some(5, seed)
        straight, turned = served.select(here, found), served.select(here, [found[n] for n in order])
        assert turned.values == pytest.approx([straight.values[n] for n in order], abs=1e-4)
        assert (straight.chosen is None) == (turned.chosen is None)
        assert straight.chosen is None or order[turned.chosen] == straight.chosen

    @pytest.mark.parametrize("kind", SERVED)
    def test_nothing_to_show_is_skipped(self, kind):
        assert SERVED[kind](made(kind)).select(situation(), []).chosen is None

    @pytest.mark.parametrize("kind", ["dqn", "logistic"])
    def test_ties_go_to_skip(self, kind):
        given = made(kind)
        flat = replace(given, arrays={n: a if n.endswith("scale") else np.zeros_like(a) for n, a in given.arrays.items()})
        selection = SERVED[kind](flat).select(situation(), some(3))
        assert (selection.chosen, selection.values, selection.skip) == (None, (0.0, 0.0, 0.0), 0.0)

    @pytest.mark.parametrize("kind", SERVED)
    def test_a_domain_that_was_not_trained_on_is_none_of_the_known(self, kind):
        served = SERVED[kind](made(kind, domains=("code",)))
        assert len(served.select(situation(), some(3)).values) == 3

    def test_thompson_draws_the_same_for_the_same_decision_and_tells_how_likely_it_was(self):
        served, found = Thompson(made("thompson", 3)), some(3)
        first, again = (served.select(situation(), found) for _ in range(2))
        assert first == again
        assert 0 < first.propensity <= 1
        drawn = {served.select(situation(task=task(id=str(n))), found).values for n in range(5)}
        assert len(drawn) == 5


class TestExplore:
    @given(many=st.integers(0, 5), name=st.text(max_size=5))
    def test_over_as_many_rounds_as_there_are_choices_each_is_made_once(self, many, name):
        found, here = some(many), situation(task=task(id=name))
        chosen = [Explore(round=n).select(here, found) for n in range(many + 1)]
        assert sorted(-1 if s.chosen is None else s.chosen for s in chosen) == [*range(-1, many)]
        assert all(s.propensity == pytest.approx(1 / (many + 1)) for s in chosen)

    def test_one_round_makes_every_choice_about_as_often(self):
        chosen = [Explore().select(situation(task=task(id=str(n))), some(3)).chosen for n in range(800)]
        assert all(150 < chosen.count(choice) < 250 for choice in (None, 0, 1, 2))


class TestFiles:
    @pytest.mark.parametrize("kind", SERVED)
    def test_round_trip(self, kind, tmp_path):
        given = made(kind, domains=("code", "sql"))
        files.save(given, tmp_path / "w")
        chosen, found = selector(kind, weights=tmp_path / "w"), some(3)
        assert chosen.select(situation(), found) == SERVED[kind](given).select(situation(), found)

    def test_weights_for_other_features_are_refused(self, tmp_path, monkeypatch):
        with monkeypatch.context() as before:
            before.setattr(files, "DEFINITION", "another")
            files.save(made("dqn"), tmp_path / "w")
        with pytest.raises(InvalidData, match="other features"):
            selector("dqn", weights=tmp_path / "w")

    def test_weights_of_another_kind_are_refused(self, tmp_path):
        files.save(made("logistic"), tmp_path / "w")
        with pytest.raises(InvalidData, match="wanted is dqn"):
            selector("dqn", weights=tmp_path / "w")

    @pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 64, b"\xff" * 4096, "ü".encode() * 100, b"SQLite format 3\x00" * 99])
    def test_what_is_no_file_of_weights_is_refused(self, content, tmp_path):
        (tmp_path / "w").write_bytes(content)
        with pytest.raises(InvalidData):
            selector("dqn", weights=tmp_path / "w")

    def test_a_missing_file_says_how_to_make_one(self, tmp_path):
        with pytest.raises(UsageError, match="mulligan train selector"):
            selector("dqn", weights=tmp_path / "none")
        with pytest.raises(UsageError, match="mulligan train selector"):
            selector("dqn")

    @pytest.mark.parametrize(
        ("name", "array"),
        [
            ("show.0.weight", None),
            ("show.1.weight", np.ones((2, 9, 8), np.float32)),
            ("show.2.weight", np.ones((2, 8, 3), np.float32)),
            ("skip.0.bias", np.full((2, 1, 8), np.nan, np.float32)),
            ("x_scale", np.zeros(F, np.float32)),
            ("g_mean", np.ones(2, np.float32)),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, name, array):
        given = made("dqn")
        arrays = {key: value for key, value in given.arrays.items() if key != name} | ({} if array is None else {name: array})
        with pytest.raises(InvalidData, match="train again"):
            Dqn(replace(given, arrays=arrays))

    def test_a_write_that_is_cut_off_leaves_what_was_there(self, tmp_path, monkeypatch):
        files.save(made("dqn", 1), tmp_path / "w")
        before = (tmp_path / "w").read_bytes()

        def fails(self: Path, target: Path) -> Path:
            raise OSError("no space")

        monkeypatch.setattr(Path, "replace", fails)
        with pytest.raises(OSError, match="no space"):
            files.save(made("dqn", 2), tmp_path / "w")
        assert (tmp_path / "w").read_bytes() == before


def test_receipts_and_episodes_keep_their_ids_where_new_fields_say_nothing():
    """Ids as the first version gave them: they stand in stores and in attempts."""
    shown = Receipt(
        task="t1", attempt=0, candidates=("r",), similarities=(0.5,), shown=("r",), selection=Selection(chosen=0, policy="top1")
    )
    withheld = replace(shown, withheld=("r",), shown=())
    tried = Attempt(
        index=0, observation="", action="a", verdict=verdict(0, signals=(), feedback="w"), usage=Usage(), receipt=shown.id, state="s"
    )
    played = Episode(task=task(), agent="react", model="m", attempts=(tried,), receipts=(shown, withheld))
    assert (shown.id, withheld.id) == ("rcp_0e00231fecf99e69655dd884", "rcp_88d7b03cb0065ee00a20cdad")
    assert (played.id, replace(played, receipts=()).id) == ("epi_39fd3019bcaff97b0c6403b2", "epi_e234bb70632a7cec81f314f2")
    changed = [replace(shown, need=0.5), replace(shown, selection=replace(shown.selection, more=(1,))), replace(shown, rewrite="empty")]
    assert len({shown.id, *(r.id for r in changed)}) == 4
