"""Measuring JAX functions and networks of our own: exact, each by its route."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.curvature.diagonal import trace
from flattest.curvature.functions import function_operator
from flattest.curvature.sharpness import operator_of
from flattest.errors import FlattestError
from flattest.flatness.assemble import assemble
from support import cases, reference
from support.functions import NETWORKS, case, dense_hessian, measured, smooth, weights


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] if name in ("convolutional", "residual") else []
        )
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    "strings": (LINEAR, (X.astype(str), Y), "mse", "give them as floating point"),
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
    "real": ([0.5, 1.0, 2.0], "one integer label per sample; these are of type float64"),
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


def statistics(variables, x):
    h = (x @ variables["params"]["W"] - variables["batch_stats"]["mean"]) @ variables["params"]["A"]
    return jax.nn.relu(h) @ variables["params"]["a"]


@pytest.mark.slow
def test_statistics_beside_the_parameters_are_constants():
    rng = np.random.default_rng(0)
    params = {"W": rng.normal(size=(4, 3)), "A": rng.normal(size=(3, 5)), "a": rng.normal(size=5)}
    mean, x, y = rng.normal(size=3), rng.normal(size=(9, 4)), rng.normal(size=9)
    found = ft.measure(statistics, {"params": params, "batch_stats": {"mean": mean}}, (x, y))
    alone = ft.measure(
        lambda p, x: jax.nn.relu((x @ p["W"] - mean) @ p["A"]) @ p["a"], params, (x, y)
    )
    assert found.trace == pytest.approx(alone.trace, rel=1e-12)
    assert found.least == pytest.approx(alone.least, rel=1e-12)
    assert set(found.layers) == {"params.W", "params.A", "params.a"}
    assert np.array_equal(found.rescaled["batch_stats"]["mean"], mean)
    assert statistics(found.rescaled, x) == pytest.approx(
        statistics({"params": params, "batch_stats": {"mean": mean}}, x)
    )


@pytest.mark.parametrize("of_weight", [lambda W: W**2, jnp.exp])
def test_a_function_of_a_weight_alone_has_no_least_trace(of_weight):
    """W → √β W, or W + log β, makes an equivalent network that multiplying W by β does not."""
    rng = np.random.default_rng(0)
    params = {"W": rng.normal(size=(4, 5)), "a": rng.normal(size=5)}
    data = rng.normal(size=(9, 4)), rng.normal(size=9)
    found = ft.measure(lambda p, x: jax.nn.relu(x @ of_weight(p["W"])) @ p["a"], params, data)
    assert found.least is None
    assert "of a weight alone" in found.notes[0]


@pytest.mark.slow
def test_words_are_looked_up_by_integers():
    rng = np.random.default_rng(0)
    params = {"table": rng.normal(size=(7, 3)), "a": 5 * rng.normal(size=(3, 2))}
    x, y = rng.integers(0, 7, (6, 3)), np.arange(6) % 2
    found = ft.measure(lambda p, x: p["table"][x].mean(1) @ p["a"], params, (x, y), "cross_entropy")
    hot = np.eye(7)[x].mean(1)
    same = ft.measure(lambda p, x: x @ p["table"] @ p["a"], params, (hot, y), "cross_entropy")
    assert found.trace == pytest.approx(same.trace, rel=1e-12)
    assert found.least == pytest.approx(same.least, rel=1e-12)
    assert found.least < found.trace


def test_without_parameters_only_a_module_is_measured():
    with pytest.raises(FlattestError, match="module of Equinox or of flax.nnx"):
        ft.measure(lambda x: x, None, (np.ones((2, 3)), np.ones(2)))
