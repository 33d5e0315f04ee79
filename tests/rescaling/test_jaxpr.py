"""The units of a jaxpr: which may be rescaled, and which route its operations allow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.curvature.functions import function_operator
from flattest.rescaling import jaxpr
from support.functions import NETWORKS, case, dense_hessian, measured, smooth, weights

LONG = ("convolutional", "normalized", "softmax", "tied")


def with_long_ones_slow(name):
    """Those that take seconds are run by `make test-more`."""
    marks = [pytest.mark.slow] if name in LONG else []
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [with_long_ones_slow(name) for name in NETWORKS])
def test_no_random_rescaling_changes_the_least_trace(name):
    function, params, data, loss = case(name)
    op = function_operator(function, params, data, loss)
    units = op.structure.units
    component = units.components()
    beta = np.exp(np.random.default_rng(3).normal(size=component.max() + 1))
    beta[0] = 1
    leaves, tree = jax.tree.flatten(params)
    ends = [units.ends[name] for name in op.leaves]
    factors = [beta[component[e.target]] / beta[component[e.source]] for e in ends]
    other = jax.tree.unflatten(tree, [a * b for a, b in zip(leaves, factors, strict=True)])
    assert np.allclose(function(other, data[0]), function(params, data[0]), rtol=0, atol=1e-10)
    one, two = measured(name), ft.measure(function, other, data, loss)
    assert two.trace != pytest.approx(one.trace, rel=0.01)
    assert two.least == pytest.approx(one.least, rel=1e-8)


def tied(p, x):
    return jax.nn.relu(jax.nn.relu(x @ p["W"]) @ p["W"]) @ p["a"]


def normalized(p, x):
    h = x @ p["W"]
    h = (h - h.mean(1, keepdims=True)) / jnp.sqrt(h.var(1, keepdims=True) + 1e-5)
    return jax.nn.relu(h) @ p["a"]


def squared(p, x):
    return (x @ p["W"]) ** 2 @ p["a"]


def attention(p, x):
    return jax.nn.softmax(x @ p["W"]) @ p["a"]


GENERAL = {
    "tied": (tied, "W is used more than once"),
    "smooth": (smooth, "tanh is not piecewise linear"),
    "normalized": (normalized, "square is not piecewise linear"),
    "squared": (squared, "is not piecewise linear"),
    "softmax": (attention, "because"),
}


@pytest.mark.parametrize("name", [with_long_ones_slow(name) for name in GENERAL])
def test_other_functions_take_the_general_route(name):
    function, reason = GENERAL[name]
    W, a = weights((4, 4), (4,))
    data = np.random.default_rng(4).normal(size=(5, 4)), np.zeros(5)
    found = ft.measure(function, {"W": W, "a": a}, data)
    H = dense_hessian(function, {"W": W, "a": a}, data, "mse")
    assert found.method.startswith("exact: all columns")
    assert reason in found.method
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)


def test_units_that_cannot_be_rescaled_leave_the_trace_as_it_is():
    W, a = weights((4, 4), (4,))
    found = ft.measure(smooth, {"W": W, "a": a}, (np.eye(4), np.zeros(4)))
    assert found.least == pytest.approx(found.trace, rel=1e-12)
    assert np.array_equal(found.rescaled["W"], W)
    assert found.notes == ("no unit can be rescaled without changing the function",)


@pytest.mark.parametrize("name", ["relu^2", "relu^1.5", "quadratic"])
def test_powers_have_rescalings_that_are_not_followed_and_no_least_trace(name):
    """W1 → β W1, W2 → W2/β^c keeps f: `flattest_rescaling` is flatter than the network."""
    model, data = ft.MLP(1, activation=name), ft.Dataset(np.ones((1, 1)), np.ones(1))
    params = {"W1": np.array([[2.0]]), "W2": 1 / model.sigma.value(np.array([2.0]))}
    found = ft.measure(model, params, data)
    assert ft.flattest_rescaling(model, params, data).value < 0.9 * found.trace
    assert found.least is None
    assert found.notes[0].startswith("no least trace: it")


def skipping(p, x):
    return (jax.nn.relu(x @ p["W"]) + x) @ p["a"]


def skipping_case():
    W, a = weights((4, 4), (4,))
    x, y = np.random.default_rng(4).normal(size=(5, 4)), np.ones(5)
    x[0] = 0
    return {"W": W, "a": a}, x, y


@pytest.mark.slow
def test_a_first_sample_of_zeros_invents_no_rescaling():
    params, x, y = skipping_case()
    first = ft.measure(skipping, params, (x, y))
    last = ft.measure(skipping, params, (x[::-1], y))
    assert first.least == pytest.approx(last.least, rel=1e-12)
    assert first.least == pytest.approx(first.trace, rel=1e-12)
    assert first.notes == last.notes == ("no unit can be rescaled without changing the function",)


def test_rescalings_that_change_the_outputs_are_not_reported(monkeypatch):
    monkeypatch.setattr(jaxpr._Walk, "fix", lambda walk, units, *_: units)
    params, x, y = skipping_case()
    found = ft.measure(skipping, params, (x, y))
    assert found.least is None
    assert found.rescaled is None
    assert any("change its outputs" in note for note in found.notes)


def test_outputs_that_cancel_to_0_have_a_least_trace_all_the_same():
    W, a = weights((4, 3), (3,))
    twice = {"W": np.hstack([W, 3 * W]), "a": np.concatenate([a, -a / 3])}
    data = np.random.default_rng(4).normal(size=(5, 4)), np.ones(5)
    found = ft.measure(lambda p, x: jax.nn.relu(x @ p["W"]) @ p["a"], twice, data)
    assert np.abs(jax.nn.relu(data[0] @ twice["W"]) @ twice["a"]).max() < 1e-15
    assert found.least < found.trace


@pytest.mark.slow
def test_gates_without_common_weights_are_still_exact():
    def gated(p, x):
        return (x @ p["V"]) * jax.nn.relu(x @ p["W"]) @ p["a"]

    V, W, a = weights((4, 3), (4, 3), (3,))
    data = np.random.default_rng(4).normal(size=(5, 4)), np.ones(5)
    found = ft.measure(gated, {"V": V, "W": W, "a": a}, data)
    assert found.method.startswith("exact: Gauss–Newton")
    H = dense_hessian(gated, {"V": V, "W": W, "a": a}, data, "mse")
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
