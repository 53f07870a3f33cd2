"""EVSI in closed form: the SPEC's vectors, quadrature, and the loop over many tasks."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy", reason="the train extra is not installed")

from mulligan.train.probing import Belief, acquire, envelope, evsi, kg_star, log_evsi, log_f

MU = np.array([0.0, 0.10, -0.05])
SIGMA = np.array([[0.0, 0, 0], [0, 0.04, 0.02], [0, 0.02, 0.09]])
NOISE = 0.25


def problem(seed: int, arms: int = 0) -> tuple[np.ndarray, np.ndarray, float, int]:
    """A random belief, its noise, and an arm."""
    rng = np.random.default_rng(seed)
    m = arms or int(rng.integers(2, 9))
    root = rng.normal(size=(m, m)) * rng.choice([0.05, 0.3, 1.0])
    return rng.normal(size=m) * 0.3, root @ root.T, float(rng.choice([0.01, 0.25, 2.0])), int(rng.integers(m))


def quadrature(mu: np.ndarray, sigma: np.ndarray, noise: float, arm: int) -> float:
    """The same expectation piece by piece: exact between the kinks, Gauss-Legendre on each."""
    s = sigma[:, arm] / np.sqrt(noise + sigma[arm, arm])
    kinks = [(mu[i] - mu[j]) / (s[j] - s[i]) for i in range(len(mu)) for j in range(i) if abs(s[i] - s[j]) > 1e-12]
    edges = np.unique(np.clip([-12.0, 12.0, *np.linspace(-12, 12, 25), *kinks], -12, 12))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    total = 0.0
    for low, high in pairwise(edges):
        z = (high + low) / 2 + (high - low) / 2 * nodes
        top = (mu[:, None] + s[:, None] * z).max(0) - mu.max()
        total += (high - low) / 2 * float(weights @ (top * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)))
    return total


class TestEvsi:
    def test_two_lines(self):
        """Lines (0, 0) and (0, 1): 1 / sqrt(2 pi)."""
        assert evsi(np.zeros(2), np.array([[0.0, 0], [0, 1]]), 0.0, 1) == pytest.approx(0.39894228, abs=1e-8)

    def test_the_specs_vector(self):
        assert [evsi(MU, SIGMA, NOISE, arm) for arm in range(3)] == pytest.approx([0, 0.00306226, 0.00609699], abs=1e-8)

    def test_the_specs_posterior(self):
        then = Belief(MU, SIGMA).after(2, 0.5, NOISE)
        assert then.mu == pytest.approx([0, 0.13235294, 0.09558824], abs=1e-8)
        assert then.sigma[1:, 1:] == pytest.approx(np.array([[0.0388235, 0.0147059], [0.0147059, 0.0661765]]), abs=1e-7)

    def test_the_specs_repeats_are_not_concave(self):
        values = [evsi(MU, SIGMA, NOISE / n, 2) for n in (1, 2, 4, 8)]
        assert values == pytest.approx([0.00609699, 0.01288141, 0.02067754, 0.02749325], abs=1e-8)
        assert [v / n for v, n in zip(values, (1, 2, 4, 8), strict=True)] == pytest.approx([0.00610, 0.00644, 0.00517, 0.00344], abs=1e-5)
        assert kg_star(MU, SIGMA, NOISE, 2) == (pytest.approx(0.00644070, abs=1e-8), 2)

    def test_quadrature_agrees_on_a_thousand_problems(self):
        for seed in range(1_000):
            given_ = problem(seed)
            assert evsi(*given_) == pytest.approx(quadrature(*given_), abs=1e-9, rel=1e-7), seed

    @given(st.integers(0, 10_000))
    def test_never_negative_and_blind_to_the_order_of_arms(self, seed):
        mu, sigma, noise, arm = problem(seed)
        order = np.random.default_rng(seed).permutation(len(mu))
        value = evsi(mu, sigma, noise, arm)
        assert value >= 0
        assert evsi(mu[order], sigma[np.ix_(order, order)], noise, int(np.flatnonzero(order == arm)[0])) == pytest.approx(
            value, rel=1e-9, abs=1e-300
        )

    @given(st.integers(0, 10_000))
    def test_outcomes_and_differences_from_the_empty_arm_are_worth_the_same(self, seed):
        """SPEC C2, shared baseline: a constant added to every arm changes nothing, whatever its own variance is."""
        mu, sigma, noise, arm = problem(seed)
        shift = evsi(mu + 5.0, sigma, noise, arm)
        assert shift == pytest.approx(evsi(mu, sigma, noise, arm), rel=1e-6, abs=1e-12)

    @given(st.integers(0, 10_000))
    def test_less_noise_is_worth_no_less(self, seed):
        mu, sigma, noise, arm = problem(seed)
        assert evsi(mu, sigma, noise / 4, arm) >= evsi(mu, sigma, noise, arm) - 1e-12

    def test_tiny_values_are_told_apart(self):
        """Far beyond what a float holds, the nearer rival is still worth more."""
        sigma = np.diag([0.0, 1e-4])
        logs = [log_evsi(np.array([0.0, -gap]), sigma, 1e-4, 1) for gap in (0.5, 1.0, 5.0)]
        assert logs == sorted(logs, reverse=True)
        assert all(np.isfinite(logs))
        assert evsi(np.array([0.0, -5.0]), sigma, 1e-4, 1) == 0.0

    def test_what_cannot_change_is_worth_nothing(self):
        assert evsi(MU, np.zeros((3, 3)), 0.0, 1) == evsi(MU, np.zeros((3, 3)), 1.0, 1) == 0.0
        assert evsi(np.zeros(1), np.ones((1, 1)), 1.0, 0) == 0.0

    def test_f_without_cancellation(self):
        """Against 50-digit values of phi(c) - c Phi(-c)."""
        c = np.array([0.0, 1.0, 5.0, 9.9, 10.1, 20.0, 40.0])
        expected = [-0.9189385332, -2.4851, -16.74, -54.5, -56.55, -206.92, -808.3]
        assert log_f(c)[0] == pytest.approx(expected[0], abs=1e-9)
        assert np.exp(log_f(c[1:2]))[0] == pytest.approx(0.0833154706, abs=1e-9)
        assert abs(log_f(np.array([10.0]))[0] - log_f(np.array([10.0 + 1e-9]))[0]) < 1e-6
        assert (np.diff(log_f(np.linspace(0, 60, 2_000))) < 0).all()

    @given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-3, 3)), min_size=1, max_size=8))
    def test_the_envelope_is_the_maximum(self, lines):
        """Ties, parallels and lines through one point included."""
        a, b = (np.array(part, float) for part in zip(*lines, strict=True))
        kept_a, kept_b, breaks = envelope(a, b)
        z = np.linspace(-12, 12, 481)
        assert (kept_a[:, None] + kept_b[:, None] * z).max(0) == pytest.approx((a[:, None] + b[:, None] * z).max(0))
        assert (np.diff(kept_b) > 0).all()
        assert (np.diff(breaks) >= 0).all()

    def test_a_task_with_32_arms_is_quick(self):
        """Generous: the figure itself is in docs/results."""
        mu, sigma, noise, _ = problem(0, arms=32)
        started = time.perf_counter()
        for arm in range(32):
            evsi(mu, sigma, noise, arm)
        assert time.perf_counter() - started < 0.5


def beliefs(many: int, arms: int = 5) -> list[Belief]:
    sigma = np.full((arms, arms), 0.01) + 0.05 * np.eye(arms)
    return [Belief(np.zeros(arms), sigma) for _ in range(many)]


class TestAcquire:
    @settings(max_examples=20, deadline=None)
    @given(st.integers(1, 25), st.integers(1, 6), st.sampled_from(["evsi", "random"]))
    def test_the_budget_holds_and_cached_trials_are_free(self, budget, tasks, policy):
        rng, seen = np.random.default_rng(0), dict[tuple[int, int], float]()

        def probe(task, arm):
            new = (task, arm) not in seen
            return seen.setdefault((task, arm), float(rng.random())), new

        got = acquire(beliefs(tasks), probe, noise=0.1, budget=budget, policy=policy)
        assert got.paid <= budget
        assert got.paid == len({(t.task, t.arm) for t in got.trials})

    def test_the_beliefs_are_those_of_the_trials(self):
        start = beliefs(3)
        got = acquire(start, lambda task, arm: (float(arm == task), True), noise=0.1, budget=12)
        held = list(start)
        for t in got.trials:
            held[t.task] = held[t.task].after(t.arm, t.outcome, 0.1)
        assert all((a.mu == b.mu).all() for a, b in zip(held, got.beliefs, strict=True))

    def test_nothing_is_tried_where_all_is_known(self):
        sure = [Belief(np.array([0.0, 0.5]), np.zeros((2, 2)))]
        assert not acquire(sure, lambda task, arm: (0.0, True), noise=0.1, uniform=0.0).trials

    def test_trials_go_where_the_choice_is_open(self):
        """One task with a clear winner, one with two arms that may be the best: the second is tried."""
        sigma = np.diag([0.04, 0.04])
        both = [Belief(np.array([0.0, 3.0]), sigma), Belief(np.array([0.5, 0.5]), sigma)]
        got = acquire(both, lambda task, arm: (0.5, True), noise=0.1, budget=6, uniform=0.0)
        assert {t.task for t in got.trials} == {1}

    def test_better_choices_than_random_trials_for_the_same_budget(self):
        """Means after 40 trials over 20 tasks, averaged over 20 seeds."""
        reached = dict.fromkeys(("evsi", "random"), 0.0)
        for seed in range(20):
            rng = np.random.default_rng(seed)
            start = beliefs(20)
            truth = [rng.multivariate_normal(b.mu, b.sigma) for b in start]
            for policy in reached:
                noise = np.random.default_rng(seed)
                got = acquire(
                    start, lambda t, a, n=noise, f=truth: (f[t][a] + n.normal() * 0.3, True), noise=0.09, budget=40, policy=policy
                )
                reached[policy] += sum(f[int(b.mu.argmax())] for f, b in zip(truth, got.beliefs, strict=True))
        assert reached["evsi"] > 1.15 * reached["random"]

    def test_the_same_seed_makes_the_same_trials(self):
        one, other = (acquire(beliefs(4), lambda t, a: (0.1 * a, True), noise=0.1, budget=9, seed=3).trials for _ in range(2))
        assert one == other
