"""Learners of selectors: rows from episodes, the DQN's arithmetic, its rivals, and the planted truth that tells what they reach."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from builders import attempt, episode, record, task, verdict
from mulligan.errors import UsageError
from mulligan.read.features import GLOBAL, SLOT, features
from mulligan.read.learned import Dqn, Linear, Thompson
from mulligan.read.selection import Never, Top1
from mulligan.records import Receipt, Selection, Statistics, Usage
from mulligan.store import StoredRecord
from mulligan.train import planted
from mulligan.train.rows import GAMMA, Penalties, points, rows, scales, standardised

torch = pytest.importorskip("torch", reason="the train extra is not installed")
pytest.importorskip("sklearn", reason="the train extra is not installed")

from mulligan.train import dqn, rivals  # noqa: E402

FREE = Penalties(call=0, failure=0, tokens=0)


def explored(domain, many, seed=0):
    rng, chooser = np.random.default_rng(seed), planted.Uniform(seed)
    return [planted.play(domain, posed, chooser, rng) for posed in domain.tasks(many)]


def mean_value(domain, posed, selector, penalties=None):
    return float(np.mean([planted.value(domain, one, selector, penalties or Penalties()) for one in posed]))


@pytest.fixture(scope="module")
def domain():
    return planted.Domain(0)


@pytest.fixture(scope="module")
def known(domain):
    return rows(explored(domain, 600), domains=("planted",), penalties=Penalties())


def stored(key):
    return StoredRecord(
        record=record(situation=key), statistics=Statistics(helped=3), status="active", reason="", created_at="", sequence=0
    )


class TestRows:
    def seen(self, shown=("b",)):
        """Two attempts; the record is shown at the second."""
        first = Receipt(
            task="t1", attempt=0, candidates=("a", "b"), similarities=(0.9, 0.4), shown=(), selection=Selection(chosen=None, policy="x")
        )
        second = replace(first, attempt=1, shown=shown, selection=Selection(chosen=1, propensity=0.25, policy="x"), need=0.5)
        played = episode(attempt("no", usage=Usage(evaluator_calls=1, prompt_tokens=1_000)), attempt("yes", 1), receipts=(first, second))
        return points(played, lambda keys: [stored(key) for key in keys], lambda one: 70)

    def test_rows_of_an_episode(self):
        found = rows([self.seen()], domains=("sql",), penalties=Penalties())
        assert found.action.tolist() == [0, 2]
        assert found.follows.tolist() == [1, -1]
        assert found.propensity.tolist() == [1.0, 0.25]
        assert found.reward == pytest.approx([-0.02 - 0.05 - 0.01, 1.0])
        assert found.gain == pytest.approx([-0.08 + GAMMA, 1.0])
        assert found.solved.tolist() == [True, True]
        assert found.mask.tolist() == [[True, True], [True, True]]
        assert found.g[1, GLOBAL.index("need")] == 0.5
        assert found.x[0, :, SLOT.index("similarity")] == pytest.approx([0.9, 0.4])

    def test_features_are_those_that_serve(self):
        (first, _) = self.seen()
        found = rows([self.seen()], domains=("sql",), penalties=FREE)
        g, x = features(first.situation, first.candidates, ("sql",))
        assert (found.g[0] == g).all()
        assert (found.x[0] == x).all()

    def test_the_same_actions_before_are_the_same_point(self):
        one, other = self.seen(), self.seen(shown=())
        found = rows([one, other], domains=(), penalties=FREE)
        assert found.point[0] == found.point[2] != found.point[1]
        assert found.point[1] == found.point[3]

    def test_taking_rows_keeps_what_follows_among_them(self, known):
        some = known.take(np.arange(50, 150))
        assert len(some) == 100
        inside = some.follows >= 0
        assert (some.follows[inside] == np.flatnonzero(inside) + 1).all()
        assert (some.gain == known.gain[50:150]).all()

    def test_nothing_to_learn_from(self):
        with pytest.raises(UsageError, match="explore"):
            rows([], domains=(), penalties=FREE)

    def test_penalties_are_made_smaller_until_solving_beats_failing_cheaply(self):
        dear = [episode(*[attempt("a", usage=Usage(evaluator_calls=5, prompt_tokens=9_000))] * 3)] * 3
        assert Penalties().scaled(dear).cost(dear[0].attempts[0]) == pytest.approx(0.1)
        cheap = [episode(attempt("a", usage=Usage(evaluator_calls=1)))]
        assert Penalties().scaled(cheap) == Penalties().scaled([]) == Penalties()

    def test_scales_leave_out_places_without_a_candidate(self, known):
        g, x = standardised(known, scales(known))
        assert g.mean(0) == pytest.approx(0, abs=1e-4)
        assert x[known.mask].mean(0) == pytest.approx(0, abs=1e-4)
        assert np.abs(x).max() < 20
        assert not x[~known.mask].any()


def q_of(learner, g, x, mask):
    """Q of skip and of every slot at one decision point, for every seed: (seeds, 1 + S)."""
    many = len(learner.settings.seeds)
    parts = [torch.as_tensor(a)[None, None].expand(many, 1, *a.shape) for a in (g, x, mask)]
    with torch.no_grad():
        return learner.online(*parts)[:, 0].numpy()


class TestDqn:
    def test_serving_equals_torch(self, domain, known):
        settings = dqn.Settings(updates=30)
        scale, learner = scales(known), dqn.Learner(known.g.shape[1], settings)
        replay = dqn.Replay(known, scale, settings)
        for _ in range(30):
            learner.update(replay.draw())
        served = Dqn(learner.exported(scale, known.domains))
        for n, posed in enumerate(domain.tasks(40)):
            here = planted.situation(posed, ())
            g1, x1 = served.standardised(here, posed.candidates)
            values, skip, _ = served.valued(here, g1, x1)
            q = q_of(learner, g1, x1, np.ones(len(x1), np.bool_)).mean(0)
            assert np.concatenate([[skip], values]) == pytest.approx(q, abs=1e-5), n

    def test_a_place_without_a_candidate_changes_nothing(self, known):
        learner = dqn.Learner(known.g.shape[1])
        g, x = known.g[0], known.x[0, :2]
        padded = np.concatenate([x, np.full((1, len(SLOT)), 7, np.float32)])
        short, long = q_of(learner, g, x, np.array([True, True])), q_of(learner, g, padded, np.array([True, True, False]))
        assert long[:, :3] == pytest.approx(short, abs=1e-6)
        assert np.isneginf(long[:, 3]).all()

    def test_without_candidates_only_skip_has_a_value(self, known):
        q = q_of(dqn.Learner(known.g.shape[1]), known.g[0], known.x[0], np.zeros(3, np.bool_))
        assert np.isfinite(q[:, 0]).all()
        assert np.isneginf(q[:, 1:]).all()

    def test_targets_are_double(self, known):
        """The online network chooses, the target network values: by hand from both networks' tables."""
        settings = dqn.Settings(seeds=(0,), gamma=0.5, batch=16)
        learner = dqn.Learner(known.g.shape[1], settings)
        with torch.no_grad():
            for p in learner.target.parameters():
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) / 3)
        batch = dqn.Replay(known, scales(known), settings).draw()
        online, target = (n(batch.next_g, batch.next_x, batch.next_mask)[0].detach() for n in (learner.online, learner.target))
        assert (online.argmax(1) != target.argmax(1)).any()
        expected = [float(batch.reward[0, n]) + (0.0 if batch.end[0, n] else 0.5 * float(target[n, online[n].argmax()])) for n in range(16)]
        assert learner.targets(batch)[0].tolist() == pytest.approx(expected, abs=1e-5)

    def test_seeds_do_not_feel_one_another(self, known):
        alone, _ = dqn.train(known, dqn.Settings(seeds=(1,), updates=15))
        beside, _ = dqn.train(known, dqn.Settings(seeds=(0, 1, 2), updates=15))
        for name, array in alone.arrays.items():
            expected = array if name.endswith(("mean", "scale")) else array[0]
            got = beside.arrays[name] if name.endswith(("mean", "scale")) else beside.arrays[name][1]
            assert got == pytest.approx(expected, abs=1e-4), name

    def test_training_is_deterministic_and_its_losses_are_known(self, known):
        """A change of these losses is a change of the learner: make sure that it is meant, and measure it on the planted truth."""
        _, losses = dqn.train(known, dqn.Settings(updates=50))
        assert losses == dqn.train(known, dqn.Settings(updates=50))[1]
        assert [losses[n] for n in (0, 10, 49)] == pytest.approx([0.1339, 0.0847, 0.0984], abs=2e-3)

    def test_replay_keeps_the_newest(self, known):
        settings = dqn.Settings(replay=10)
        drawn = dqn.Replay(known, scales(known), settings).draw()
        assert set(drawn.reward.flatten().tolist()) <= set(known.reward[-10:].tolist())


class TestRivals:
    SERVED = {"logistic": Linear, "thompson": Thompson, "paired": Linear, "contextual": Linear}

    @pytest.mark.parametrize("kind", rivals.RIVALS)
    def test_better_than_never_and_top1(self, kind, domain, known):
        known = rows([*explored(domain, 300), *explored(domain, 300, 1)], domains=("planted",), penalties=Penalties())
        learnt, held = self.SERVED[kind](rivals.RIVALS[kind](known)), domain.tasks(150, stream=1)
        never, top1, best = (mean_value(domain, held, s) for s in (Never(), Top1(), None))
        reached = mean_value(domain, held, learnt)
        assert reached > never + 0.7 * (best - never)
        assert top1 < never

    def test_pairs_are_differences_from_the_same_point(self):
        seen = TestRows()
        shown, skipped = seen.seen(), seen.seen(shown=())
        skipped = [skipped[0], replace(skipped[1], attempt=replace(skipped[1].attempt, verdict=verdict(Fraction(0))))]
        known = rows([shown, skipped], domains=(), penalties=FREE)
        features_, uplift = rivals.paired_rows(known)
        assert features_.shape == (1, 1 + known.g.shape[1] + 2 * len(SLOT))
        assert uplift.tolist() == [1.0]

    def test_without_pairs_it_says_what_to_do(self):
        known = rows([TestRows().seen()], domains=(), penalties=FREE)
        with pytest.raises(UsageError, match="two rounds"):
            rivals.paired(known)

    def test_thompsons_posterior_narrows(self, domain):
        few, many = (Thompson(rivals.thompson(rows(explored(domain, n), domains=(), penalties=FREE))) for n in (40, 600))
        held = [p for p in domain.tasks(40, stream=1) if p.candidates]
        sure = [np.mean([one.select(planted.situation(p, ()), p.candidates).propensity for p in held]) for one in (few, many)]
        assert sure[1] > sure[0] + 0.1


class TestPlantedTruth:
    def test_values_of_sets(self, domain):
        """Complementary, redundant, harmful and needless: what the domain promises."""
        by = {(p.kind, p.topic): key for key, p in domain.planted.items()}
        posed = next(p for p in domain.tasks(200) if p.topic == 0 and p.chance == 0.25)
        chance = {
            kinds: domain.chance(posed, [by[kind, 0 if kind != "popular" else -1] for kind in kinds])
            for kinds in ((), ("helper",), ("helper", "twin"), ("left",), ("left", "right"), ("lookalike",), ("popular",))
        }
        assert chance["helper",] == pytest.approx(0.65)
        assert chance["helper", "twin"] < chance["helper",]
        assert chance["left",] == chance["popular",] == chance[()] == 0.25
        assert chance["left", "right"] > 0.75
        assert chance["lookalike",] == 0.02
        easy = replace(posed, chance=0.9)
        assert domain.chance(easy, [by["helper", 0]]) == pytest.approx(0.4)

    def test_the_value_of_a_policy_is_what_plays_come_to(self, domain):
        posed, rng = domain.tasks(1)[0], np.random.default_rng(0)
        played = [planted.play(domain, posed, Top1(), rng) for _ in range(3_000)]
        gained = [rows([p], domains=(), penalties=Penalties()).gain[0] for p in played]
        assert np.mean(gained) == pytest.approx(planted.value(domain, posed, Top1(), Penalties()), abs=0.03)

    def test_no_policy_beats_the_best(self, domain):
        for posed in domain.tasks(40, stream=1):
            best = planted.value(domain, posed, None, Penalties())
            assert all(
                planted.value(domain, posed, s, Penalties()) <= best + 1e-9 for s in (Never(), Top1(), Top1(place=1), planted.Uniform(0))
            )

    @pytest.mark.timeout(90)  # a thousand updates, twice
    def test_the_dqn_learns_and_skips_and_finds_nothing_where_outcomes_are_shuffled(self, domain):
        """Small, to be quick; the whole, with ten seeds and its bars, is in docs/results/learning.md."""
        played, held = explored(domain, 1_200), domain.tasks(100, stream=1)
        settings = dqn.Settings(seeds=(0,), updates=1_000, rate=1e-3)
        fitted, lost = (
            Dqn(dqn.train(rows(p, domains=("planted",), penalties=Penalties()), settings)[0]) for p in (played, planted.shuffled(played, 0))
        )
        never, best = mean_value(domain, held, Never()), mean_value(domain, held, None)
        assert mean_value(domain, held, fitted) > 0.9 * best
        assert mean_value(domain, held, lost) < never + 0.2 * (best - never)
        harmful = [p for p in held if domain.harms(p)]
        assert np.mean([fitted.select(planted.situation(p, ()), p.candidates).chosen is None for p in harmful]) > 0.7


def test_an_empty_point_is_still_a_point():
    """A decision point at which nothing was found is a row whose only choice is skip."""
    receipt = Receipt(task="t1", attempt=0, candidates=(), shown=(), selection=Selection(chosen=None, policy="x"))
    found = rows([points(episode(attempt("a"), receipts=(receipt,)), lambda keys: [], lambda one: 0)], domains=(), penalties=FREE)
    assert not found.mask.any()
    assert found.action.tolist() == [0]
    assert task().id == receipt.task
