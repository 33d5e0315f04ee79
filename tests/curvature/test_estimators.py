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
                samples = estimators.random_signs(lambda v: v @ A, 30, 0, 32, rng).samples
            else:
                samples = estimators.exchangeable(lambda v: v @ A, 30, 8, rng)
            error = samples.mean() - np.trace(A)
            scores.append((error, estimators.standard_error(samples)))
        errors, stderrs = np.transpose(scores)
        assert abs(errors.mean()) <= 4 * errors.std() / np.sqrt(300)
        # XTrace's estimates share probes, which hides part of their common error.
        least = {"hutchinson": 0.85, "xtrace": 0.6}[method]
        assert least < np.sqrt(np.mean(stderrs**2)) / errors.std() < 1.15


def test_xtrace_beats_hutchinson_where_eigenvalues_decay():
    A = symmetric(40, 1, decay=1.0)
    error = {"hutchinson": [], "xtrace": []}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        plain = estimators.random_signs(lambda v: v @ A, 40, 0, 20, rng).mean
        error["hutchinson"].append(plain - np.trace(A))
        error["xtrace"].append(
            estimators.exchangeable(lambda v: v @ A, 40, 10, rng).mean() - np.trace(A)
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
    assert estimate.route == "xtrace (16 products)"
