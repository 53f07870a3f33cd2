"""Sets of records: which are candidates, how they covary, what the scorer makes of them, and an event from start to end."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import candidate, situation, task
from mulligan.embeddings import HashingEmbedder
from mulligan.errors import InvalidData
from mulligan.read import weights as files
from mulligan.read.features import GLOBAL, SLOT
from mulligan.read.sets import MOST, candidate_sets
from mulligan.read.uplift import Network, Uplift, scored
from mulligan.read.weights import Weights

pytest.importorskip("torch", reason="the train extra is not installed")
pytest.importorskip("sklearn", reason="the train extra is not installed")

import torch

from mulligan.train import event, kernel, uplift
from mulligan.train.event import Posing
from mulligan.train.kernel import Residuals, Theta, covariance

G, F, DIM, WIDTH, HIDDEN, RANK = len(GLOBAL), len(SLOT), 32, 4, 6, 4
EMBEDDER = HashingEmbedder(DIM)


def unit(rng, *shape):
    drawn = rng.normal(size=shape).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def made(seed=0, size=3, **changes):
    """Random weights of a scorer of two seeds, with the identity for calibration."""
    rng = np.random.default_rng(seed)

    def drawn(*shape):
        return rng.normal(size=shape).astype(np.float32)

    arrays = {"g_mean": drawn(G), "x_mean": drawn(F), "g_scale": np.ones(G, np.float32), "x_scale": np.ones(F, np.float32)}
    arrays |= {"projection": drawn(DIM, WIDTH), "sign": drawn(2, 1, RANK), "size": np.array([size], np.float32)}
    for name, into, out in (("member", F + G + 2 * WIDTH, HIDDEN), ("alone", HIDDEN, 1), ("pair", HIDDEN, RANK)):
        arrays |= {f"{name}.weight": drawn(2, into, out), f"{name}.bias": drawn(2, 1, out)}
    arrays["knots"] = np.array([[-9_999, 9_999], [-9_999, 9_999]], np.float32)
    return Weights(kind="uplift", arrays={**arrays, **changes}, embedder=EMBEDDER.id)


def vectors_of(keys):
    return np.stack([unit(np.random.default_rng(int(key[-6:], 16)), DIM) for key in keys])


def some(many):
    return [candidate(0.9 - n / 100, situation=f"question {n}") for n in range(many)]


class TestCandidateSets:
    @settings(max_examples=60, deadline=None)
    @given(n=st.integers(1, 50), size=st.integers(1, 10), seed=st.integers(0, 99))
    def test_what_every_list_of_candidate_sets_is(self, n, size, seed):
        rng = np.random.default_rng(seed)
        value, vectors = rng.normal(size=n).astype(np.float32), unit(rng, n, 8)
        executed = tuple(sorted(rng.choice(n, min(n, size), replace=False).tolist()))
        found = candidate_sets(
            vectors, lambda sets: np.array([value[list(s)].sum() for s in sets], np.float32), size=size, executed=executed
        )
        assert found[0] == ()
        assert executed in found
        assert len(found) == len(set(found)) <= MOST
        assert all(one == tuple(sorted(set(one))) and len(one) <= size and set(one) <= set(range(n)) for one in found)
        assert (int(value.argmax()),) in found

    def test_greedy_additions_find_the_best_sum(self):
        value = np.array([0.1, -1, 0.5, 0.2, -0.3], np.float32)
        found = candidate_sets(np.eye(5, dtype=np.float32), lambda sets: np.array([value[list(s)].sum() for s in sets], np.float32), size=5)
        assert (0, 2, 3) in found

    def test_without_records_there_is_the_empty_set(self):
        assert candidate_sets(np.zeros((0, 4), np.float32), lambda sets: np.zeros(len(sets), np.float32), size=3) == [()]

    def test_the_same_name_draws_the_same_sets(self):
        vectors = unit(np.random.default_rng(0), 30, 8)
        one, same, other = (
            candidate_sets(vectors, lambda sets: np.zeros(len(sets), np.float32), size=5, name=name) for name in ("a", "a", "b")
        )
        assert one == same != other


class TestServing:
    @given(order=st.permutations(range(6)), seed=st.integers(0, 30))
    @settings(max_examples=40, deadline=None)
    def test_the_order_of_candidates_makes_no_difference_to_scores(self, order, seed):
        served, found = Uplift(made(seed), EMBEDDER, vectors_of), some(6)
        sets = [(0,), (1, 4), (0, 2, 5)]
        _, straight = served.scorer(situation(), found)
        _, turned = served.scorer(situation(), [found[n] for n in order])
        where = {place: at for at, place in enumerate(order)}
        assert turned([tuple(where[p] for p in one) for one in sets]) == pytest.approx(straight(sets), abs=1e-3)

    def test_the_empty_set_is_worth_nothing(self):
        _, score = Uplift(made(), EMBEDDER, vectors_of).scorer(situation(), some(4))
        assert score([()])[0] == 0

    def test_a_set_is_its_members_and_their_pairs(self):
        alone, both = np.array([0.1, 0.2, 0.4], np.float32), np.array([[0, 1, 2], [1, 0, 4], [2, 4, 0]], np.float32)
        assert scored((alone, both), [(), (1,), (0, 2), (0, 1, 2)]) == pytest.approx([0, 0.2, 2.5, 7.7])

    def test_the_best_set_is_shown_in_the_order_of_ids(self):
        served, found = Uplift(made(3), EMBEDDER, vectors_of), some(8)
        selection = served.select(situation(), found)
        keys = [found[place].record.id for place in selection.places]
        assert keys == sorted(keys)
        _, score = served.scorer(situation(), found)
        chosen = tuple(sorted(selection.places))
        assert len(chosen) <= 3
        assert score([chosen])[0] == max(score(candidate_sets(vectors_of([c.record.id for c in found]), score, size=3, name="t1"))) > 0

    def test_two_that_only_help_together_are_found(self):
        """Alone each of them harms a little, and another helps a little: no path from a single record leads to the pair."""
        both = np.zeros((8, 8), np.float32)
        both[3, 6] = both[6, 3] = 0.5
        tables = (np.array([0.1, 0, 0, -0.05, 0, 0, -0.05, 0], np.float32), both)
        found = candidate_sets(np.eye(8, dtype=np.float32), lambda sets: scored(tables, sets), size=3)
        assert max(found, key=lambda one: scored(tables, [one])[0]) == (0, 3, 6)

    def test_nothing_is_shown_where_every_set_is_expected_to_harm(self):
        down = np.array([[-9_999, 9_999], [-19_999, -1]], np.float32)  # calibration takes 10,000 from every score
        selection = Uplift(made(knots=down), EMBEDDER, vectors_of).select(situation(), some(8))
        assert selection.places == ()

    def test_weights_of_another_embedder_are_refused(self):
        with pytest.raises(InvalidData, match="embedder"):
            Uplift(made(), HashingEmbedder(64), vectors_of)

    def test_round_trip(self, tmp_path):
        files.save(made(), tmp_path / "w")
        served = Uplift(files.load(tmp_path / "w", ["uplift"]), EMBEDDER, vectors_of)
        assert served.select(situation(), some(5)) == Uplift(made(), EMBEDDER, vectors_of).select(situation(), some(5))

    def test_vectors_are_asked_for_once(self):
        asked = []
        served = Uplift(made(), EMBEDDER, lambda keys: asked.extend(keys) or vectors_of(keys))
        for n in range(3):
            served.select(situation(task=task(id=str(n))), some(5))
        assert len(asked) == 5


class TestCovariance:
    @settings(max_examples=60, deadline=None)
    @given(n=st.integers(1, 12), many=st.integers(1, 20), size=st.integers(1, 5), seed=st.integers(0, 999))
    def test_positive_definite_whatever_the_sets(self, n, many, size, seed):
        rng = np.random.default_rng(seed)
        sets = [(), *{tuple(sorted(rng.choice(n, int(rng.integers(1, min(n, size) + 1)), replace=False).tolist())) for _ in range(many)}]
        found = covariance(sets, unit(rng, n, 5).astype(float), Theta(task=0.0, own=0.0), size)
        assert (np.linalg.eigvalsh(found) > 0).all()
        assert found == pytest.approx(found.T)
        assert found[0] == pytest.approx(np.eye(len(sets))[0] * kernel.JITTER)  # the empty set is known to be worth nothing

    def test_by_hand(self):
        vectors = np.array([[1.0, 0], [0.6, 0.8], [0, 1]])
        theta = Theta(task=0.1, content=0.4, overlap=0.2, own=0.05)
        found = covariance([(), (0,), (0, 1)], vectors, theta, 2)
        shared = (1 + 0.6) / np.sqrt(2)
        assert found[1, 2] == pytest.approx(0.1 + 0.2 * shared + 0.2 / 2)
        assert found[1, 1] == pytest.approx(0.1 + 0.2 + 0.2 + 0.05)
        assert found[0, 2] == pytest.approx(0.1)

    def test_few_residuals_leave_the_defaults(self):
        few = [Residuals(sets=[(0,)], vectors=np.eye(2), values=np.array([0.5]))] * 49
        assert kernel.fit(few, 3) == Theta()

    def test_the_noise_is_found_again(self):
        rng, theta = np.random.default_rng(0), Theta(task=0.2, content=0.02, overlap=0.02, own=0.02, noise=0.05)
        drawn = []
        for _ in range(150):
            vectors = unit(rng, 4, 8).astype(float)
            sets = [(), (0,), (1,), (2, 3)]
            spread = covariance(sets, vectors, theta, 3) + theta.noise * np.eye(4)
            drawn.append(Residuals(sets=sets, vectors=vectors, values=rng.multivariate_normal(np.zeros(4), spread)))
        found = kernel.fit(drawn, 3)
        assert found.task == pytest.approx(0.2, rel=0.35)
        assert 0.02 < found.noise < 0.1

    def test_noise_of_repeats(self):
        assert kernel.noise_of([[1, 1, 1, 1], [0, 0]]) == kernel.LEAST_NOISE
        assert kernel.noise_of([[0, 1], [0, 0]]) == pytest.approx(0.25)
        assert kernel.noise_of([[1.0]]) == Theta().noise


def posings(many, seed=0):
    """Tasks on which record 0 helps, record 1 harms, and the pair (2, 3) helps; told by their vectors."""
    rng = np.random.default_rng(seed)
    vectors = np.eye(6, DIM, dtype=np.float32)
    return [
        Posing(
            name=f"{seed}/{n}",
            g=np.full(G, 0.5, np.float32),
            x=rng.random((6, F)).astype(np.float32),
            vectors=vectors,
            asked=unit(rng, DIM),
        )
        for n in range(many)
    ]


def truth(one):
    return 0.4 + 0.3 * (0 in one) - 0.4 * (1 in one) + 0.4 * ({2, 3} <= set(one))


def examples(many):
    sets = [s for k in (1, 2, 3) for s in combinations(range(6), k)]
    rng = np.random.default_rng(0)
    found = []
    for p in posings(many):
        mine = tuple(sets[n] for n in rng.choice(len(sets), 8, replace=False))
        gained = np.array([truth(s) - truth(()) for s in mine], np.float32)
        flat = np.full(8, 0.1, np.float32)
        found.append(
            uplift.Example(g=p.g, x=p.x, vectors=p.vectors, asked=p.asked, sets=mine, uplift=gained, variance=flat, believed=gained)
        )
    return found


QUICK = uplift.Settings(size=3, updates=250, decay=0.0, rate=5e-3)


class TestScorer:
    def test_serving_equals_torch(self):
        weights, _ = uplift.fit(examples(20), replace(QUICK, updates=20), embedder="e")
        p = posings(1, 5)[0]
        sets = [(), (0,), (2, 3), (1, 2, 4)]
        numpy_ = event.scorer(weights, p)(sets)
        scorer = uplift.Scorer(weights.arrays["member.weight"].shape[1], replace(QUICK))
        with torch.no_grad():
            for name in ("member", "alone", "pair"):
                getattr(scorer, name).weight.copy_(torch.as_tensor(weights.arrays[f"{name}.weight"]))
                getattr(scorer, name).bias.copy_(torch.as_tensor(weights.arrays[f"{name}.bias"]))
            scorer.sign.copy_(torch.as_tensor(weights.arrays["sign"]))
            a = weights.arrays
            g, x = (p.g - a["g_mean"]) / a["g_scale"], (p.x - a["x_mean"]) / a["x_scale"]
            from mulligan.read.uplift import member_rows

            rows = member_rows(a["projection"], g, x, p.vectors, p.asked)
            rows = np.concatenate([rows, np.ones((1, rows.shape[1]), np.float32)])
            places = torch.tensor([[*s, *[6] * (3 - len(s))] for s in sets])
            got = scorer(torch.as_tensor(rows).expand(3, 1, -1, -1), places.expand(3, 1, -1, -1)).mean(0)[0]
        assert numpy_ == pytest.approx(got.numpy(), abs=1e-5)
        assert isinstance(Network.of(weights, rows.shape[1]), Network)

    def test_it_learns_what_helps_what_harms_and_what_only_helps_together(self):
        weights, calibration = uplift.fit(examples(120), QUICK, embedder="e")
        score = event.scorer(weights, posings(1, 9)[0])
        got = np.interp(score([(0,), (1,), (2,), (2, 3), (0, 2, 3)]), *weights.arrays["knots"])
        assert got == pytest.approx([0.3, -0.4, 0.0, 0.4, 0.7], abs=0.2)
        assert calibration.signs > 0.8
        assert 0.7 < calibration.slope < 1.5

    @pytest.mark.parametrize(("value", "policy"), [(True, False), (False, True)])
    def test_each_loss_can_be_left_out(self, value, policy):
        """What is left out has no gradient: changing only its labels changes nothing."""
        how = replace(QUICK, updates=15, value=value, policy=policy)
        given_ = examples(12)
        other = [replace(e, believed=-e.believed) if value else replace(e, uplift=-e.uplift) for e in given_]
        one, two = (uplift.fit(e, how, embedder="e")[0].arrays for e in (given_, other))
        assert (one["member.weight"] == two["member.weight"]).all()

    def test_networks_are_calibrated_on_tasks_that_they_did_not_see(self):
        """Labels without a pattern: a network fits its own tasks, and the calibration sees through it."""
        rng = np.random.default_rng(0)
        noise = [replace(e, uplift=rng.normal(size=8).astype(np.float32), believed=np.zeros(8, np.float32)) for e in examples(30)]
        _, calibration = uplift.fit(noise, QUICK, embedder="e")
        assert calibration.slope < 0.4

    def test_one_network_alone_is_calibrated_on_a_third(self):
        _, calibration = uplift.fit(examples(30), replace(QUICK, seeds=(0,), updates=30), embedder="e")
        assert calibration.points == 10 * 8

    def test_few_tasks_are_seen_by_all(self):
        assert uplift.fit(examples(3), replace(QUICK, updates=5), embedder="e")[1].points == 3 * 8

    def test_nothing_to_learn_from(self):
        with pytest.raises(ValueError, match="no task"):
            uplift.fit([], QUICK, embedder="e")


class TestEvent:
    def run(self, budget, policy="evsi"):
        rng = np.random.default_rng(0)
        start = [
            replace(p, executed={(): [float(rng.random() < truth(()))], (n % 6,): [float(rng.random() < truth((n % 6,)))]})
            for n, p in enumerate(posings(40))
        ]
        seen = []

        def execute(at, one):
            seen.append((at, one))
            return float(rng.random() < truth(one)), True

        how = event.Settings(budget=budget, policy=policy, scorer=replace(QUICK, updates=60))
        return event.run(start, execute, how, embedder="e"), seen

    def test_the_budget_is_spent_on_arms_of_the_tasks(self):
        outcome, seen = self.run(25)
        assert outcome.paid == len(seen) == 25
        assert [(t.task, outcome.sets[t.task][t.arm]) for t in outcome.trials] == seen
        assert all(() in sets and len(sets) > 5 for sets in outcome.sets)

    def test_without_a_budget_it_is_the_warm_up(self):
        outcome, seen = self.run(0)
        assert not seen and not outcome.trials
        assert outcome.weights.kind == "uplift"

    def test_the_control_draws_from_the_same_arms(self):
        by_value, at_random = self.run(10)[0], self.run(10, "random")[0]
        assert by_value.sets == at_random.sets
        assert {t.how for t in at_random.trials} == {"uniform"}

    def test_the_baseline_follows_what_was_executed_empty(self):
        hard, easy = (replace(posings(1)[0], g=np.full(G, value, np.float32), executed={(): [value]}) for value in (0.0, 1.0))
        found = event.baseline([hard, easy] * 40)
        assert found[0] < 0.35 < 0.65 < found[1]
        assert event.baseline(posings(2)).tolist() == [0.5, 0.5]
