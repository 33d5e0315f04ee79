"""Estimates of the trace are unbiased, with honest standard errors."""

import numpy as np
import pytest

import flattest as ft
from flattest.curvature import estimators
from support import reference
from support.points import point


def symmetric(size, seed, decay=1.0):
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (Q * np.exp(-decay * np.arange(size))) @ Q.T


def test_hutchinson_and_xtrace_are_unbiased_with_honest_errors():
    A = symmetric(30, 0, decay=0.2)
    for method in ("hutchinson", "xtrace"):
        scores = []
        for seed in range(300):
            rng = np.random.default_rng(seed)
            if method == "hutchinson":
                found = estimators.random_signs(lambda v: v @ A, 30, 0, 32, rng)
            else:
                found = estimators.exchangeable(lambda v: v @ A, 30, 16, rng)
            scores.append((found.mean - np.trace(A), found.stderr))
        errors, stderrs = np.transpose(scores)
        assert abs(errors.mean()) <= 4 * errors.std() / np.sqrt(300)
        # Student's quantile for 16 probes is 1.09 of the normal one.
        assert 0.85 < np.sqrt(np.mean(stderrs**2)) / errors.std() < 1.25


def test_what_a_probe_found_is_left_out_of_the_others_estimates():
    """The differences δ_ij, by a projection of size p for each pair."""
    A, size, probes = symmetric(20, 3, decay=0.1), 20, 5
    found = estimators.exchangeable(lambda v: v @ A, size, probes, np.random.default_rng(7))
    omega = np.random.default_rng(7).normal(size=(probes, size))
    omega *= np.sqrt(size) / np.linalg.norm(omega, axis=1, keepdims=True)

    def estimate(i, others):
        Q, _ = np.linalg.qr((omega[others] @ A).T)
        rest = omega[i] - Q @ (Q.T @ omega[i])
        dimension = size - len(others)
        return np.trace(Q.T @ A @ Q) + dimension * (rest @ A @ rest) / (rest @ rest)

    for i in range(probes):
        others = [j for j in range(probes) if j != i]
        assert found.estimates[i] == pytest.approx(estimate(i, others), rel=1e-10)
        for j in others:
            without = estimate(i, [k for k in others if k != j])
            assert found.shared[i, j] == pytest.approx(found.estimates[i] - without, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spectrum", [lambda k: 1 + k / 100, lambda k: 1 / (1 + k), lambda k: 0.82**k]
)
@pytest.mark.parametrize("probes", [16, 32])
def test_twice_xtraces_error_holds_the_trace_95_times_in_100(spectrum, probes):
    values = spectrum(np.arange(100.0))
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(100, 100)))
    A = (Q * values) @ Q.T
    held = 0
    for seed in range(2000):
        found = estimators.exchangeable(lambda v: v @ A, 100, probes, np.random.default_rng(seed))
        held += abs(found.mean - values.sum()) <= 1.96 * found.stderr
    assert 0.93 <= held / 2000 <= 0.97


def test_xtrace_beats_hutchinson_where_eigenvalues_decay():
    A = symmetric(40, 1, decay=1.0)
    error = {"hutchinson": [], "xtrace": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        plain = estimators.random_signs(lambda v: v @ A, 40, 0, 20, rng).mean
        error["hutchinson"].append(plain - np.trace(A))
        error["xtrace"].append(
            estimators.exchangeable(lambda v: v @ A, 40, 10, rng).mean - np.trace(A)
        )
    assert np.std(error["xtrace"]) < 1e-3 * np.std(error["hutchinson"])


def test_estimators_of_a_network_agree_with_its_exact_trace():
    model, data, params, _, dense = point("sim_bn", "softplus", "random", "mse")
    exact = ft.trace(model, params, data).value
    plain = ft.hutchinson(model, params, data, rtol=0.02, most_products=10_000)
    assert plain.stderr <= 0.02 * plain.value
    assert abs(plain.value - exact) <= 4 * plain.stderr
    assert sum(plain.per_layer.values()) == pytest.approx(plain.value, rel=1e-10)
    sharper = ft.xtrace(model, params, data, rtol=1e-6)
    assert sharper.value == pytest.approx(exact, rel=1e-6)


def test_xtrace_is_exact_once_the_probes_span_the_range():
    model, data = ft.MLP(width=20, bias=True), ft.xor(n=6, d=5, seed=0)
    params = reference.interpolate(model, model.init(5, 0), data)
    estimate = ft.xtrace(model, params, data, rtol=1e-10)
    assert estimate.value == pytest.approx(ft.trace(model, params, data).value, rel=1e-9)
    assert estimate.route == "xtrace (32 products)"
