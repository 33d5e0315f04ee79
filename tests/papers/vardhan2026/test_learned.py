"""Learned inner weights: the gradient that moves them, and what the descent returns."""

import numpy as np
import pytest

import flattest as ft
from flattest.papers.vardhan2026.learned import (
    drawn_and_learned,
    flattest_with,
    learned,
    value_gradient,
)


def problem(name, d=8, n=10):
    distribution = ft.SingleIndex(d, link=name)
    W = ft.bad_inner_weights(distribution.directions, 2 * n, 0.0, 1)
    return distribution.draw(n, 1), distribution.directions, W


@pytest.mark.parametrize("name", ["relu", "leaky_relu:0.1", "quadratic"])
def test_the_gradient_is_that_of_the_least_trace_over_outer_weights(name):
    data, _, W = problem(name)
    gradient = value_gradient(flattest_with(W, data, name), data, name)
    way = np.random.default_rng(0).standard_normal(W.shape)
    ahead, behind = (flattest_with(W + step * way, data, name).value for step in (1e-6, -1e-6))
    slope = (ahead - behind) / 2e-6
    assert np.sum(gradient * way) == pytest.approx(slope, rel=1e-5)
    assert np.sum(1.01 * gradient * way) != pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("name", ["relu", "quadratic"])
def test_learned_weights_are_flatter_bad_and_interpolate(name):
    data, U, W = problem(name)
    drawn, best = flattest_with(W, data, name), learned(W, U, data, name, 30)
    assert best.certified
    assert best.value < 0.7 * drawn.value
    assert np.abs(best.W @ U.T).max() < 1e-12
    assert np.linalg.norm(best.W, axis=1) == pytest.approx(1)
    model = ft.MLP(len(W), activation=name)
    params = {"W1": best.W, "W2": best.a}
    assert np.asarray(model.apply(params, data.x)) == pytest.approx(data.y, abs=1e-9)
    alive = best.omega > 0
    assert best.value == pytest.approx(
        best.omega[alive] @ np.abs(best.a[alive]) ** ft.norm_exponent(name)
    )


def test_a_neuron_that_is_active_on_no_point_is_left_out():
    data, _, W = problem("relu", d=30, n=10)
    silent = -np.linalg.pinv(data.x) @ np.ones(10)
    found = flattest_with(np.vstack([W, silent / np.linalg.norm(silent)]), data, "relu")
    assert found.certified
    assert found.a[-1] == found.omega[-1] == 0
    assert found.value == pytest.approx(flattest_with(W, data, "relu").value)
    assert np.isfinite(value_gradient(found, data, "relu")).all()


def test_no_learned_network_is_below_the_proven_bounds():
    """S_min ≥ (4/n) Σ ‖x_i‖ |y_i| of wen2023, and a loss of at least Var y (Example 1)."""
    data, U, W = problem("relu", d=12, n=6)
    assert learned(W, U, data, "relu", 60).value >= ft.lower_bound(ft.MLP(12), data).value
    cell = drawn_and_learned(12, 6, "relu", 20, 0)
    assert cell["learned"] <= cell["drawn"]
    assert cell["loss"] >= 1
    assert cell["certified"] == 1
