"""Measuring JAX functions: exact, invariant under rescaling, each by the route its jaxpr allows."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flattest as ft
from flattest.curvature.diagonal import trace
from flattest.curvature.functions import function_operator
from flattest.curvature.sharpness import operator_of
from flattest.errors import FlattestError
from flattest.flatness.assemble import assemble
from flattest.rescaling import jaxpr
from support import cases, reference

RNG = np.random.default_rng(0)


def weights(*shapes):
    rng = np.random.default_rng(1)
    return [rng.normal(size=shape) * 0.7 for shape in shapes]


def residual(p, x):
    """A residual sum, a bias in every layer, two outputs, parameters in nested trees."""
    h = jax.nn.relu(x @ p["first"]["w"] + p["first"]["b"])
    out = jax.nn.leaky_relu(h @ p["up"], 0.1) @ p["down"] + p["shift"]
    return jax.nn.relu(h + out) @ p["last"]


def residual_params():
    w, b, up, down, shift, last = weights((4, 5), (5,), (5, 3), (3, 5), (5,), (5, 2))
    return {"first": {"w": w, "b": b}, "up": up, "down": down, "shift": shift, "last": last}


def convolutional(p, x):
    """Convolution in groups, a per-channel gain, both poolings, a flatten; channels come last."""
    h = jax.lax.conv_general_dilated(
        x, p["c1"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = jnp.maximum(h * p["gain"] + p["b1"], 0)
    h = jax.lax.reduce_window(h, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    h = jax.lax.conv_general_dilated(
        h,
        p["c2"],
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2,
    )
    h = jnp.where(h > 0, h, 0.1 * h)
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 1), (1, 1, 1, 1), "VALID")
    return h.reshape(len(h), -1) @ p["out"]


def convolutional_params():
    c1, gain, b1, c2, out = weights((2, 2, 1, 2), (2,), (2,), (1, 2, 1, 4), (8, 3))
    return {"c1": c1, "gain": gain, "b1": b1, "c2": c2, "out": out}


NETWORKS = {
    "residual": (residual, residual_params, (7, 4), RNG.normal(size=(7, 2)), "mse"),
    "convolutional": (
        convolutional,
        convolutional_params,
        (6, 4, 6, 1),
        RNG.integers(0, 3, 6),
        "cross_entropy",
    ),
}


def case(name):
    function, params, shape, y, loss = NETWORKS[name]
    return function, params(), (np.random.default_rng(2).normal(size=shape), y), loss


@cache
def measured(name):
    return ft.measure(*case(name))


def dense_hessian(function, params, data, loss):
    """∇²L by forward over reverse differentiation."""
    theta, unravel = ravel_pytree(params)
    x, y = map(jnp.asarray, data)

    def value(v):
        f = function(unravel(v), x)
        if loss == "cross_entropy":
            return -jnp.mean(jax.nn.log_softmax(f)[jnp.arange(len(y)), y])
        return jnp.mean(((f - y.reshape(f.shape)) ** 2).reshape(len(y), -1).sum(1))

    return np.asarray(jax.jit(jax.hessian(value))(theta))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "convolutional" else [])
        for name in NETWORKS
    ],
)
def test_trace_and_top_eigenvalue_are_those_of_the_dense_hessian(name):
    function, params, data, loss = case(name)
    found, H = measured(name), dense_hessian(function, params, data, loss)
    assert found.method.startswith("exact: Gauss–Newton")
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)
    again = dense_hessian(function, found.rescaled, data, loss)
    assert np.trace(again) == pytest.approx(found.least, rel=1e-9)
    assert found.least < found.trace
    assert found.least / found.least_lower_bound - 1 < 1e-9
    before, after = (function(p, data[0]) for p in (params, found.rescaled))
    assert np.abs(before - after).max() < 1e-10


@pytest.mark.parametrize("name", NETWORKS)
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


@pytest.mark.parametrize(
    ("depth", "output_bias"), [(2, True), pytest.param(3, False, marks=pytest.mark.slow)]
)
def test_no_large_rescaling_drowns_the_least_trace_in_rounding_errors(depth, output_bias):
    model, data = ft.MLP(8, bias=True, depth=depth, output_bias=output_bias), cases.data()
    p, last = cases.params(model, data), f"W{depth}"
    one = ft.measure(model, p, data)
    for factor in (1e-10, 1e10):
        other = p | {"W1": p["W1"] * factor, "b1": p["b1"] * factor, last: p[last] / factor}
        two = ft.measure(model, other, data)
        assert two.trace > 1e15 * one.trace
        assert two.least == pytest.approx(one.least, rel=1e-9)
        assert two.least_lower_bound == pytest.approx(one.least, rel=1e-9)


PLAIN = [
    ("bias", "relu", "mse"),
    ("output_bias", "leaky_relu:0.1", "logistic"),
    ("depth4", "relu", "mse"),
]


@pytest.mark.parametrize(("architecture", "activation", "loss"), PLAIN)
def test_flattests_own_networks_are_measured_directly(architecture, activation, loss):
    model, data = cases.model(architecture, activation), cases.data()
    params = cases.params(model, data)
    found = ft.measure(model, params, data, loss)
    assert found.trace == pytest.approx(float(ft.trace(model, params, data, loss)), rel=1e-9)
    top = ft.top_eigenvalue(model, params, data, loss).value
    assert found.top_eigenvalue == pytest.approx(top, rel=1e-7)
    if model.depth == 2:
        closed = ft.flattest_rescaling(model, params, data, loss)
        assert found.least == pytest.approx(closed.value, rel=1e-9)


@pytest.mark.parametrize("architecture", ["sim_bn", "sim_ln"])
def test_units_behind_a_normalization_have_no_least_trace(architecture):
    model, data = cases.model(architecture), cases.data()
    params = cases.params(model, data)
    found = ft.measure(model, params, data)
    assert found.trace == pytest.approx(float(ft.trace(model, params, data)), rel=1e-9)
    assert found.least is None
    assert found.rescaled is None
    assert any("scale-invariant" in note for note in found.notes)


def test_a_large_network_with_a_closed_form_is_not_estimated():
    model, data = cases.model("bias", "softplus"), cases.data()
    params = cases.params(model, data)
    found = assemble(operator_of(model, params, data), 0, 1e-8, most_columns=0)
    assert found.method == "exact: closed form"
    assert found.notes == ("no least trace: ∇²L is known by layer, not by entry",)
    assert found.trace == pytest.approx(np.trace(reference.dense_hessian(model, params, data)))
    assert found.stderr == 0


def test_the_certified_bound_stands_beside_an_interpolator():
    network = ft.memorizer(ft.xor(n=6, d=5, distinct=True))
    data = ft.xor(n=6, d=5, distinct=True)
    found = ft.measure(network.model, network.params, data)
    assert found.bound == pytest.approx(ft.lower_bound(network.model, data).value)
    assert found.bound_ratio == pytest.approx(1, abs=1e-9)
    moved = network.params | {"W2": network.params["W2"] * 1.1}
    assert ft.measure(network.model, moved, data).bound is None


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_whether_a_network_interpolates_does_not_depend_on_the_scale_of_the_labels(scale):
    plain = ft.xor(n=6, d=5, distinct=True)
    network, data = ft.memorizer(plain), ft.Dataset(plain.x, plain.y * scale)
    fitted = network.params | {"W2": network.params["W2"] * scale * (1 + 1e-11)}
    found = ft.measure(network.model, fitted, data)
    assert found.bound == pytest.approx(ft.lower_bound(network.model, data).value)
    missed = network.params | {"W2": network.params["W2"] * scale * (1 + 1e-6)}
    assert ft.measure(network.model, missed, data).bound is None


def test_targets_of_0_are_interpolated_by_outputs_of_exactly_0():
    model, plain = ft.MLP(3, output_bias=True), ft.ball(n=4, d=2)
    data = ft.Dataset(plain.x, 0 * plain.y)
    dead = {name: np.zeros(shape) for name, shape in model.shapes(2).items()}
    assert ft.measure(model, dead, data).bound == pytest.approx(2)
    assert ft.measure(model, dead | {"b_out": np.array(1e-12)}, data).bound is None


def tied(p, x):
    return jax.nn.relu(jax.nn.relu(x @ p["W"]) @ p["W"]) @ p["a"]


def smooth(p, x):
    return jnp.tanh(x @ p["W"]) @ p["a"]


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


@pytest.mark.parametrize("name", GENERAL)
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


def skipping(p, x):
    return (jax.nn.relu(x @ p["W"]) + x) @ p["a"]


def skipping_case():
    W, a = weights((4, 4), (4,))
    x, y = np.random.default_rng(4).normal(size=(5, 4)), np.ones(5)
    x[0] = 0
    return {"W": W, "a": a}, x, y


def test_a_first_sample_of_zeros_invents_no_rescaling():
    params, x, y = skipping_case()
    first = ft.measure(skipping, params, (x, y))
    last = ft.measure(skipping, params, (x[::-1], y))
    assert first.least == pytest.approx(last.least, rel=1e-12)
    assert first.least == pytest.approx(first.trace, rel=1e-12)
    assert first.notes == last.notes == ("no unit can be rescaled without changing the function",)


def test_rescalings_that_change_the_outputs_are_not_reported(monkeypatch):
    monkeypatch.setattr(jaxpr, "_is_zero", lambda constant: True)
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


def test_gates_without_common_weights_are_still_exact():
    def gated(p, x):
        return (x @ p["V"]) * jax.nn.relu(x @ p["W"]) @ p["a"]

    V, W, a = weights((4, 3), (4, 3), (3,))
    data = np.random.default_rng(4).normal(size=(5, 4)), np.ones(5)
    found = ft.measure(gated, {"V": V, "W": W, "a": a}, data)
    assert found.method.startswith("exact: Gauss–Newton")
    H = dense_hessian(gated, {"V": V, "W": W, "a": a}, data, "mse")
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)


def test_a_large_function_off_the_exact_route_is_estimated_with_its_error():
    W, a = weights((4, 4), (4,))
    data = np.random.default_rng(4).normal(size=(5, 4)), np.zeros(5)
    op = function_operator(smooth, {"W": W, "a": a}, data, "mse")
    found = assemble(op, 0, 1e-8, most_columns=0, rtol=0.02)
    truth = np.trace(dense_hessian(smooth, {"W": W, "a": a}, data, "mse"))
    assert 0 < found.stderr <= 0.02 * abs(found.trace)
    assert abs(found.trace - truth) < 4 * found.stderr
    assert any("only estimated" in note for note in found.notes)


def test_batches_count_by_their_samples_and_chunks_change_nothing():
    function, params, (x, y), loss = case("residual")
    whole = measured("residual")
    split = function_operator(function, params, [(x[:5], y[:5]), (x[5:], y[5:])], loss)
    split.most_gradient_entries = 200
    assert trace(split).value == pytest.approx(whole.trace, rel=1e-12)


def test_a_loss_of_ones_own_is_taken_sample_by_sample():
    function, params, (x, y), _ = case("residual")
    own = ft.measure(function, params, (x, y), lambda f, t: jnp.sum((f - t) ** 2))
    assert own.trace == pytest.approx(measured("residual").trace, rel=1e-12)


def test_the_result_prints_as_a_table_and_is_json():
    found = measured("residual")
    read = json.loads(found.json())
    assert read["trace"] == found.trace
    assert set(read["layers"]) == {"first.w", "first.b", "up", "down", "shift", "last"}
    assert "least over rescalings" in str(found)
    assert "first.w" in str(found)


X, Y = np.arange(12.0).reshape(3, 4), np.zeros(3)
LINEAR = {"w": np.ones(4)}
BAD = {
    "integers": (LINEAR, (X.astype(int), Y), "mse", "give them as floating point"),
    "empty": (LINEAR, [], "mse", "data are empty"),
    "no data": (LINEAR, 3, "mse", "pair of arrays"),
    "not pairs": (LINEAR, [X, X, X], "mse", "Every batch must be a pair"),
    "words": (LINEAR, (X, np.array(["a", "b", "c"])), "mse", "type <U1; give them as numbers"),
    "rows": (LINEAR, (X, Y[:2]), "mse", "as many rows"),
    "nan": (LINEAR, (X * np.nan, Y), "mse", "NaN or infinite"),
    "nan loss": (LINEAR, (X, Y * np.nan), "mse", "not a finite number"),
    "nan weight": ({"w": np.full(4, np.nan)}, (X, Y), "mse", "w has entries"),
    "text": ({"w": "weights"}, (X, Y), "mse", "w must be a real array"),
    "no weights": ({}, (X, Y), "mse", "at least one leaf"),
    "shape": ({"w": np.ones(3)}, (X, Y), "mse", "fails on these inputs"),
    "unused": (LINEAR | {"v": np.ones(2)}, (X, Y), "mse", "do not depend on v"),
    "loss name": (LINEAR, (X, Y), "hinge", "cross_entropy"),
    "no loss": (LINEAR, (X, Y), 3, "function of outputs and target"),
    "labels": (LINEAR, (X, Y + 7), "logistic", "labels"),
    "targets": (LINEAR, (X, np.zeros((3, 2))), "mse", "loss fails"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_sentence(name):
    params, data, loss, sentence = BAD[name]
    with pytest.raises(FlattestError, match=sentence) as raised:
        ft.measure(lambda p, x: x @ p["w"], params, data, loss)
    assert "\n" not in str(raised.value).strip()


@pytest.mark.parametrize(
    "function",
    [
        lambda p, x: np.maximum(x @ p["w"], 0),
        lambda p, x: x @ p["w"] if x.sum() > 0 else -x @ p["w"],
    ],
    ids=["numpy", "branch"],
)
def test_a_function_that_jax_cannot_trace_is_refused_in_one_sentence(function):
    with pytest.raises(FlattestError, match="must be written in JAX") as raised:
        ft.measure(function, LINEAR, (X, Y))
    assert "\n" not in str(raised.value).strip()


CLASSES = {
    "too large": ([1, 2, 3], "The label 3 is not one of the 3 classes"),
    "negative": ([1, -100, 2], "The label -100 is not one of the 3 classes"),
    "real": ([0.0, 1.0, 2.0], "one integer label per sample; these are of type float64"),
    "text": (["a", "b", "c"], "one integer label per sample"),
    "one-hot": (np.eye(3, dtype=int), r"one integer label per sample.*shape \(3, 3\)"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_labels_of_no_class_are_refused_in_one_sentence(name):
    labels, sentence = CLASSES[name]
    data = X, np.array(labels)
    with pytest.raises(FlattestError, match=sentence) as raised:
        ft.measure(lambda p, x: x @ p["w"], {"w": np.eye(4, 3)}, data, "cross_entropy")
    assert "\n" not in str(raised.value).strip()


def test_what_is_no_function_or_mixes_samples_is_refused():
    with pytest.raises(FlattestError, match="model or a function"):
        ft.measure(3, LINEAR, (X, Y))
    with pytest.raises(FlattestError, match="rest of its batch"):
        ft.measure(lambda p, x: (x - x.mean(0)) @ p["w"], LINEAR, (X, Y))
