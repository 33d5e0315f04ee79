"""The public face: what measures take, refuse and print."""

import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from support import cases


def test_a_measure_prints_its_value_error_route_and_split():
    plain = ft.Quantity(2.5, "closed form", per_layer={"W1": 2.0, "W2": 0.5})
    assert str(plain) == "2.5 (closed form): W1 2, W2 0.5"
    assert (
        str(ft.Quantity(2.5, "xtrace (32 products)", 0.125)) == "2.5 ± 0.12 (xtrace (32 products))"
    )
    assert float(plain) == 2.5


def assert_refused(match, model=None, params=None, data=None, loss="mse", measure=ft.trace):
    model = model or ft.MLP(width=3, bias=True)
    data = data or ft.xor(n=5, d=2)
    params = params if params is not None else model.init(2, 0)
    with pytest.raises(ft.FlattestError, match=match):
        measure(model, params, data, loss=loss)


def test_bad_parameters_are_refused():
    good = ft.MLP(width=3, bias=True).init(2, 0)
    assert_refused(
        r"W1 must have shape \(3, 2\), not \(2, 3\)", params=good | {"W1": np.ones((2, 3))}
    )
    assert_refused(
        "parameters are W1, b1, W2; given: W1, b1", params={k: good[k] for k in ("W1", "b1")}
    )
    assert_refused(
        "b1 has entries that are not finite", params=good | {"b1": np.array([1, np.nan, 2])}
    )
    assert_refused(
        "W2 has entries that are not finite", params=good | {"W2": np.array([1, np.inf, 2])}
    )


@pytest.mark.parametrize(
    "ask",
    [
        lambda pair: ft.lower_bound(ft.MLP(3), pair),
        lambda pair: ft.memorizer(pair),
        lambda pair: ft.train(ft.MLP(3), pair, ft.gd(0.1, epochs=1)),
    ],
    ids=["lower bound", "memorizer", "train"],
)
def test_a_pair_of_arrays_is_no_dataset(ask):
    with pytest.raises(ft.FlattestError, match=r"not as a tuple: flattest.Dataset\(x, y\)"):
        ask((np.ones((4, 2)), np.ones(4)))


def test_bad_losses_and_labels_are_refused():
    assert_refused(
        "Unknown loss 'hinge'; valid are: cross_entropy, half_mse, logistic, mse", loss="hinge"
    )
    third = ft.Dataset(np.eye(2), np.array([1.0, 0.5]))
    assert_refused("takes labels ±1, or 0 and 1", data=third, loss="logistic")
    mixed = ft.Dataset(np.eye(3)[:, :2], np.array([1.0, 0.0, -1.0]))
    assert_refused("takes labels ±1, or 0 and 1", data=mixed, loss="logistic")


def test_bad_settings_are_refused():
    assert_refused(
        "k must be an integer from 1 to 12", measure=lambda *a, loss: ft.top_eigenvalues(*a, 13)
    )
    assert_refused(
        "k must be an integer from 1 to 12", measure=lambda *a, loss: ft.top_eigenvalues(*a, 0)
    )
    for tol in (0, "x", np.zeros(2), {}):
        assert_refused(
            "tol must be a number > 0",
            measure=lambda *a, loss, tol=tol: ft.top_eigenvalue(*a, tol=tol),
        )
    for most in (1, None, np.zeros(2)):
        assert_refused(
            "most_products must be an integer ≥ 2",
            measure=lambda *a, loss, most=most: ft.hutchinson(*a, most_products=most),
        )
    for rtol in (np.nan, "x", range(3)):
        assert_refused(
            "rtol must be a number ≥ 0",
            measure=lambda *a, loss, rtol=rtol: ft.xtrace(*a, rtol=rtol),
        )
    assert_refused(
        "probes must be a positive integer", measure=lambda *a, loss: ft.spectrum(*a, probes=0)
    )


def test_a_dead_network_has_trace_zero_and_no_top_eigenvalue():
    model, data = ft.MLP(width=3, bias=True), ft.xor(n=5, d=2)
    dead = model.init(2, 0) | {"b1": np.full(3, -100.0)}
    assert ft.trace(model, dead, data).value == 0
    assert_refused("network is dead: no neuron is active", params=dead, measure=ft.top_eigenvalue)
    user = ft.FunctionModel(lambda p, x: model.apply(p, x, x), model.init)
    assert_refused("network is dead", model=user, params=dead, data=data, measure=ft.top_eigenvalue)
    # The saddle at W2 = 0 is not dead: ∇f is not 0 in W2.
    saddle = model.init(2, 0) | {"W2": np.zeros(3)}
    assert ft.top_eigenvalue(model, saddle, data).value > 0


@pytest.mark.parametrize("architecture", cases.ARCHITECTURES)
def test_overflow_is_an_infinite_trace_and_no_eigenvalue(architecture):
    model, data = cases.model(architecture, "quadratic"), cases.data()
    huge = {k: v * 1e200 for k, v in cases.params(model, data).items()}
    assert ft.trace(model, huge, data).value == np.inf
    assert_refused("so large that ∇²L overflows", model, huge, data, measure=ft.top_eigenvalue)


def test_a_users_model_is_checked():
    two = ft.FunctionModel(lambda p, x: x * p["a"], lambda d, seed: {"a": np.ones(d)})
    assert_refused(r"loss fails on outputs \(5, 2\) and targets \(5,\)", model=two)
    log = ft.FunctionModel(lambda p, x: jnp.log(-p["a"] + 0 * x[:, 0]), lambda d, s: {"a": 1.0})
    assert_refused("row of finite outputs", model=log)
    assert_refused("entries that are not finite", model=log, params={"a": np.nan})
    assert_refused("fails on these inputs: list indices", model=log, params=[1.0])
    dot = ft.FunctionModel(lambda p, x: x @ p["w"], lambda d, seed: {"w": np.ones(d + 1)})
    assert_refused("fails on these inputs", model=dot)
    assert_refused("fails on these inputs: 'w'", model=dot, params={"v": 1.0})
    assert_refused("a must be a real array", model=log, params={"a": "one"})
    mean = ft.FunctionModel(lambda p, x: (x - x.mean(0)) @ p["w"], lambda d, s: {"w": np.ones(d)})
    assert_refused("rest of its batch", model=mean)
