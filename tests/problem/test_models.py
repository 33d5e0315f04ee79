"""Architectures: what they compute, their initializations, their symmetries and their checks."""

from typing import get_args

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flattest as ft
from flattest.curvature.normalized import OPERATORS
from flattest.flatness.bounds import FLOORS
from flattest.problem import models
from flattest.problem.models import NORMS, Norm, predict_by_jax
from flattest.training import fused
from support import cases

seeds = st.integers(0, 2**32 - 1)


def relu(t):
    return np.maximum(t, 0)


def predict(model, params, x, train_x=None):
    return ft.predict(model, params, x, x if train_x is None else train_x)


def test_the_architectures_are_those_of_the_paper():
    """wen2023, section 2, written out sample by sample."""
    data = cases.data()
    for name in cases.ARCHITECTURES:
        model = cases.model(name)
        theta = cases.params(model, data)
        R = relu(data.x @ theta["W1"].T + theta.get("b1", 0.0))
        for i in range(data.n):
            r = R[i]
            if model.norm == "sim_bn":
                r = theta["gamma"] * r / np.where(R.any(axis=0), np.sqrt((R**2).mean(axis=0)), 1)
            if model.norm == "sim_ln":
                r = r / max(np.linalg.norm(r), model.epsilon)
            for layer in range(2, model.depth):
                r = relu(theta[f"W{layer}"] @ r)
            expected = theta[f"W{model.depth}"] @ r + theta.get("b_out", 0.0)
            found = predict(model, theta, data.x[i : i + 1], data.x)
            assert found == pytest.approx([expected], rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("activation", cases.ACTIVATIONS)
def test_predictions_need_no_jax_and_equal_its(activation, monkeypatch):
    data = cases.data()
    for name in cases.ARCHITECTURES:
        model = msgspec.structs.replace(cases.model(name), activation=activation)
        theta = cases.params(model, data)
        with monkeypatch.context() as without:
            without.setattr(models, "jnp", None)
            found = ft.predict(model, theta, data.x, data.x)
        expected = predict_by_jax(model, theta, data.x, data.x)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_predictions_that_overflow_are_infinite_without_a_warning():
    huge = {"W1": np.array([[1e200]]), "W2": np.array([1e200])}
    assert ft.predict(ft.MLP(1), huge, np.ones((1, 1)), np.ones((1, 1))) == np.inf


def test_sim_bn_uses_the_training_set_whatever_it_is_applied_to():
    model, data = cases.model("sim_bn"), cases.data()
    theta = cases.params(model, data)
    together = predict(model, theta, data.x)
    alone = [predict(model, theta, x[None], data.x)[0] for x in data.x]
    assert together == pytest.approx(alone, rel=1e-13)
    assert predict(model, theta, data.x[:2]) != pytest.approx(together[:2], rel=1e-3)
    with pytest.raises(ft.FlattestError, match="needs the training inputs, train_x"):
        model.apply(theta, data.x)


@pytest.mark.slow
def test_gradients_flow_through_sim_bns_statistics():
    """f does not depend on the scale of a neuron's weights, so ∂f/∂w_j is orthogonal to w_j."""
    model, data = ft.MLP(width=5, bias=True, norm="sim_bn"), cases.data()
    theta = cases.params(model, data)
    x = jnp.asarray(data.x)
    g = jax.grad(lambda p: model.apply(p, x, x)[0])({k: jnp.asarray(v) for k, v in theta.items()})
    along = (g["W1"] * theta["W1"]).sum(axis=1) + g["b1"] * theta["b1"]
    assert np.abs(g["W1"]).max() > 1e-3
    assert np.asarray(along) == pytest.approx(np.zeros(5), abs=1e-13)


@pytest.mark.parametrize("architecture", ["sim_bn", "sim_ln"])
def test_a_network_without_active_neurons_outputs_zero_with_finite_gradients(architecture):
    model, data = cases.model(architecture), cases.data()
    theta = cases.params(model, data) | {"b1": np.full(model.width, -100.0)}
    x = jnp.asarray(data.x)
    value, gradient = jax.value_and_grad(lambda p: model.apply(p, x, x).sum())(theta)
    assert value == 0
    assert all(np.isfinite(g).all() for g in gradient.values())


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["no_bias", "bias", "output_bias"]),
    st.sampled_from([a for a in cases.ACTIVATIONS if a not in cases.SMOOTH]),
    st.floats(-3, 3),
    seeds,
)
def test_rescaling_a_homogeneous_network_leaves_outputs_unchanged(architecture, name, power, seed):
    model, data = cases.model(architecture, name), cases.data()
    theta = cases.params(model, data, seed=seed)
    b = np.random.default_rng(seed).uniform(0.1, 10, model.width) ** (power / 3)
    scaled = {k: v * b[:, None] if k == "W1" else v for k, v in theta.items()}
    scaled["W2"] = theta["W2"] * b**-model.homogeneity
    if model.bias:
        scaled["b1"] = theta["b1"] * b
    f, g = predict(model, theta, data.x), predict(model, scaled, data.x)
    # Relative to the size of the terms that f sums.
    size = predict(model, theta | {"W2": np.abs(theta["W2"])}, np.abs(data.x))
    assert np.abs(f - g).max() <= 1e-12 * max(1.0, np.abs(size).max(), np.abs(f).max())


def test_only_plain_networks_with_homogeneous_activations_have_the_symmetry():
    assert cases.model("bias", "quadratic").homogeneity == 2
    assert cases.model("bias", "softplus").homogeneity is None
    assert cases.model("sim_bn").homogeneity is None


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(cases.ARCHITECTURES)), st.integers(1, 6), seeds)
def test_init_gives_the_declared_shapes_and_the_same_numbers_for_the_same_seed(name, d, seed):
    model = cases.model(name)
    theta = model.init(d, seed)
    model.check(theta, d)
    assert {k: v.dtype for k, v in theta.items()} == dict.fromkeys(theta, np.dtype(np.float64))
    again, other = model.init(d, seed), model.init(d, seed + 1)
    assert all(np.array_equal(theta[k], again[k]) for k in theta)
    assert not any(np.array_equal(theta[k], other[k]) for k in theta)


def test_uniform_init_is_pytorchs_fan_in_rule():
    theta = ft.MLP(width=2000, depth=2, bias=True, output_bias=True).init(16, 0)
    for name, fan_in in {"W1": 16, "b1": 16, "W2": 2000, "b_out": 2000}.items():
        bound = 1 / np.sqrt(fan_in)
        assert np.abs(theta[name]).max() <= bound
    assert np.abs(theta["W1"]).max() > 0.999 / 4
    assert theta["W1"].var() == pytest.approx(1 / 16 / 3, rel=0.02)


def test_he_init_is_normal_with_zero_biases():
    model = ft.MLP(width=1000, bias=True, initialization=ft.Init(weights="he"))
    theta = model.init(10, 0)
    assert theta["W1"].std() == pytest.approx(np.sqrt(2 / 10), rel=0.03)
    assert theta["W2"].std() == pytest.approx(np.sqrt(2 / 1000), rel=0.1)
    assert not theta["b1"].any()


def test_scales_multiply_single_arrays():
    plain = ft.MLP(width=5, bias=True)
    small = msgspec.structs.replace(plain, initialization=ft.Init(scales=(("W1", 0.01),)))
    a, b = plain.init(3, 7), small.init(3, 7)
    assert b["W1"] == pytest.approx(0.01 * a["W1"], rel=1e-14)
    assert np.array_equal(a["b1"], b["b1"])
    wrong = msgspec.structs.replace(plain, initialization=ft.Init(scales=(("W9", 2.0),)))
    with pytest.raises(ft.FlattestError, match="W9.*valid are: W1, W2, b1"):
        wrong.init(3, 0)


def test_gamma_is_uniform_within_its_bound():
    theta = ft.MLP(width=5000, norm="sim_bn", initialization=ft.Init(gamma=0.3)).init(2, 0)
    assert 0.299 < np.abs(theta["gamma"]).max() <= 0.3
    assert theta["gamma"].var() == pytest.approx(0.3**2 / 3, rel=0.05)


def test_models_are_hashable_specs_that_survive_json():
    model = cases.model("sim_ln_epsilon", "relu^3")
    again = msgspec.json.decode(msgspec.json.encode(model), type=ft.MLP)
    assert again == model
    assert hash(again) == hash(model)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"type":"mlp","width":3,"deep":2}', type=ft.MLP)
    with pytest.raises(AttributeError):
        model.width = 3


def test_a_users_function_is_a_model():
    own = ft.FunctionModel(lambda p, x: x @ p["w"], lambda d, seed: {"w": np.full(d, float(seed))})
    assert isinstance(own, ft.Model)
    assert isinstance(ft.MLP(width=2), ft.Model)
    assert predict(own, own.init(3, 2), np.ones((4, 3))) == pytest.approx([6.0] * 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be a positive integer, not 0"),
        ({"width": -3}, "width must be a positive integer, not -3"),
        ({"width": 2.5}, "width must be a positive integer"),
        ({"width": True}, "width must be a positive integer"),
        ({"width": 2, "depth": 1}, "depth must be an integer ≥ 2, not 1"),
        ({"width": 2, "norm": "batch"}, "Unknown norm 'batch'; valid are: None, sim_bn, sim_ln"),
        ({"width": 2, "norm": "sim_ln", "depth": 3}, "defined for depth 2, not 3"),
        ({"width": 2, "epsilon": 0.0}, "epsilon must be positive"),
        ({"width": 2, "activation": "glu"}, "Unknown activation 'glu'; valid are:"),
    ],
)
def test_bad_architectures_are_refused(settings, message):
    with pytest.raises(ft.FlattestError, match=message):
        ft.MLP(**settings)


def test_a_norm_is_in_every_table():
    """A norm is a name, an output, an operator and a floor; the fused engine may do without."""
    names = {None, *get_args(Norm)}
    assert names == set(NORMS) == set(OPERATORS) == set(FLOORS)
    assert names >= set(fused.NORMS)
    assert names == {settings.get("norm") for settings in cases.ARCHITECTURES.values()}


def test_bad_init_is_refused():
    with pytest.raises(ft.FlattestError, match="input dimension must be a positive integer, not 0"):
        ft.MLP(width=2).init(0, 0)
    with pytest.raises(ft.FlattestError, match="seed must be a non-negative integer"):
        ft.MLP(width=2).init(2, -1)
    with pytest.raises(ft.FlattestError, match="Unknown weight initialization 'xavier'; valid"):
        ft.MLP(width=2, initialization=ft.Init(weights="xavier")).init(2, 0)


def test_bad_parameters_are_refused():
    model = ft.MLP(width=3)
    good = model.init(2, 0)
    for params, message in [
        (good | {"W1": np.ones((2, 3))}, r"W1 must have shape \(3, 2\), not \(2, 3\)"),
        (good | {"b1": np.ones(3)}, "parameters are W1, W2; given: W1, W2, b1"),
        (good | {"W2": np.array([1, 2, np.nan])}, "W2 has entries that are not finite"),
        (good | {"W2": np.array(["a", "b", "c"])}, "W2 must hold real numbers"),
        ([1, 2], "dict of arrays, not list"),
    ]:
        with pytest.raises(ft.FlattestError, match=message):
            model.check(params, 2)
