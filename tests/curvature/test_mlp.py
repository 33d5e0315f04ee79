"""Closed forms against dense float64 Hessians, for every row of the table."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flattest as ft
from flattest.curvature.sharpness import operator_of
from support import cases, jets, reference
from support.points import close, flatten, point, table

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("architecture", cases.ARCHITECTURES)
def test_the_references_agree(architecture):
    """Jets by hand and JAX's autodiff of the network as it is trained: the same Hessian."""
    model, data, params, f, dense = point(architecture, "softplus", "random", "mse")
    names = sorted(params)
    by_autodiff = reference.dense_hessian(model, params, data)
    blocks = np.split(np.arange(len(dense)), np.cumsum([np.size(p) for p in params.values()])[:-1])
    order = np.concatenate([dict(zip(params, blocks, strict=True))[name] for name in names])
    assert close(dense[np.ix_(order, order)], by_autodiff, np.abs(dense).max(), 1e-11)
    assert close(f.value, ft.predict(model, params, data.x, data.x), 1.0, 1e-12)


@table
def test_closed_forms_agree_with_the_dense_hessian(architecture, activation):
    for kind in cases.POINTS:
        for loss in cases.LOSSES:
            model, data, params, f, dense = point(architecture, activation, kind, loss)
            H = operator_of(model, params, data, loss)
            names = list(params)
            # f is a sum over the last hidden layer whose terms may cancel.
            assert close(H.f, f.value, 1 + np.abs(H.last).sum() * np.sqrt(H.gram().max()), 1e-12)
            diagonal = np.split(np.diag(dense), np.cumsum([np.size(p) for p in params.values()]))
            by_layer = {k: part.sum() for k, part in zip(names, diagonal, strict=False)}
            scale = np.abs(np.diag(dense)).sum()
            trace = ft.trace(model, params, data, loss)
            assert trace.route == "closed form"
            assert trace.stderr == 0
            assert set(trace.per_layer) == set(names)
            assert close([trace.per_layer[k] for k in names], list(by_layer.values()), scale)
            assert trace.value == pytest.approx(np.trace(dense), rel=1e-9, abs=1e-11 * scale)


@table
def test_products_gradients_and_gram_matrices_agree_with_the_dense_ones(architecture, activation):
    rng = np.random.default_rng(3)
    for kind in cases.POINTS:
        model, data, params, f, dense = point(architecture, activation, kind, "logistic")
        H, names = operator_of(model, params, data, "logistic"), list(params)
        v, u = rng.normal(size=H.size), rng.normal(size=data.n)
        flat = flatten(H.as_params(v), names)
        product = flatten(H.as_params(H.matvec(v)), names)
        assert close(product, dense @ flat, np.abs(dense).max() * np.linalg.norm(v))
        gram = f.gradient @ f.gradient.T
        assert close(H.gram(), gram, np.abs(gram).max())
        pulled = flatten(H.as_params(H.vjp(u)), names)
        assert close(pulled, u @ f.gradient, np.abs(f.gradient).max() * np.linalg.norm(u))


@pytest.mark.parametrize("activation", ["relu", "leaky_relu:0.1"])
@pytest.mark.parametrize("architecture", ["no_bias", "bias", "output_bias"])
def test_the_residual_parts_norm_is_exact_for_two_piecewise_linear_layers(architecture, activation):
    model, data, params, _, _ = point(architecture, activation, "random", "mse")
    H = operator_of(model, params, data)
    dense = H.residual_matmat(np.eye(H.size))
    assert H.residual_bound() == pytest.approx(np.linalg.norm(dense, 2), rel=1e-12)


def test_both_branches_of_sim_ln_and_inactive_neurons_occur():
    model, data = cases.model("sim_ln_epsilon"), cases.data()
    params = cases.params(model, data, "random")
    norms = np.linalg.norm(model.first_layer(params, data.x), axis=1)
    assert (norms > model.epsilon).any()
    assert (norms < model.epsilon).any()
    inactive = cases.params(cases.model("sim_bn"), data, "inactive_neurons")
    h = data.x @ inactive["W1"].T + inactive["b1"]
    assert (h[:, :2] < 0).all()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(cases.ARCHITECTURES)),
    st.sampled_from(cases.ACTIVATIONS),
    st.sampled_from(cases.LOSSES),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 4),
    seeds,
)
def test_trace_and_top_eigenvalue_are_exact_for_all_shapes(
    architecture, activation, loss, n, d, width, seed
):
    model, data = cases.model(architecture, activation, width), cases.data(n, d, seed % 17)
    params = cases.params(model, data, seed=seed)
    f = jets.outputs(model, params, data.x)
    dense = jets.hessian(f, data, loss)
    # The terms that a trace may cancel down from, and what rounding leaves of them.
    kind = ft.loss(loss)
    terms = (
        np.abs(kind.slope(f.value, data.y))
        @ np.abs(np.diagonal(f.hessian, axis1=1, axis2=2)).sum(axis=1)
        + np.abs(np.diag(dense)).sum()
    )
    assert close(float(ft.trace(model, params, data, loss)), np.trace(dense), terms, 1e-9)
    if np.abs(dense).max() > 1e-8:
        values = np.linalg.eigvalsh(dense)
        top = ft.top_eigenvalue(model, params, data, loss)
        assert close(float(top), values[-1], np.abs(values).max(), 1e-9)


@pytest.mark.parametrize("parameter", ["W1", "b1", "gamma", "W2"])
def test_a_perturbed_parameter_changes_the_trace(parameter):
    """The comparison above can fail: each parameter matters at a millionth of its size."""
    model, data, params, _, dense = point("sim_bn", "softplus", "random", "mse")
    moved = dict(params) | {parameter: params[parameter] * (1 + 1e-6)}
    assert ft.trace(model, moved, data).value != pytest.approx(np.trace(dense), rel=1e-9)


def test_trace_at_an_interpolator_is_the_mean_squared_gradient():
    """wen2023, Lemma 4.1: Tr ∇²L = (2/n) Σ ‖∇f(x_i)‖²."""
    model, data = ft.MLP(width=40, bias=True), ft.xor(n=12, d=6, seed=0)
    params = reference.interpolate(model, model.init(6, 0), data)
    J = reference.dense_jacobian(model, params, data)
    assert ft.trace(model, params, data).value == pytest.approx(2 / 12 * (J**2).sum(), rel=1e-12)


def test_parameters_in_float32_are_measured_in_float64():
    model, data = ft.MLP(width=6, bias=True), ft.xor(n=8, d=4)
    params = {k: v.astype(np.float32) for k, v in model.init(4, 0).items()}
    exact = {k: v.astype(np.float64) for k, v in params.items()}
    assert ft.trace(model, params, data).value == ft.trace(model, exact, data).value


@pytest.mark.parametrize("architecture", ["depth4", "sim_bn"])
def test_the_order_of_the_parameters_names_does_not_matter(architecture):
    model, data, params, *_ = point(architecture, "softplus", "random", "mse")
    backwards = dict(reversed(params.items()))
    assert ft.trace(model, backwards, data) == ft.trace(model, params, data)
    top, same = (ft.top_eigenvalues(model, p, data, 2) for p in (params, backwards))
    assert np.array_equal(top.values, same.values)


@pytest.mark.slow
def test_a_registered_activation_has_a_closed_form_too():
    ft.register_activation("test_gelu", lambda t: t * 0.5 * (1 + jnp.tanh(t)))
    model, data = ft.MLP(width=4, depth=3, activation="test_gelu"), cases.data()
    params = cases.params(model, data)
    dense = reference.dense_hessian(model, params, data)
    assert ft.trace(model, params, data).value == pytest.approx(np.trace(dense), rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["relu", "leaky_relu:0.1", "quadratic", "relu^3", "linear"]), seeds)
def test_rescaling_a_homogeneous_network_moves_sharpness_but_not_outputs(name, seed):
    model, data = cases.model("bias", name), cases.data()
    params = cases.params(model, data, seed=seed)
    b = np.random.default_rng(seed).uniform(0.5, 2, model.width)
    moved = {
        "W1": params["W1"] * b[:, None],
        "b1": params["b1"] * b,
        "W2": params["W2"] * b**-model.homogeneity,
    }
    f, g = (operator_of(model, p, data).f for p in (params, moved))
    assert close(f, g, max(1.0, np.abs(params["W2"]).sum() * np.abs(f).max()), 1e-12)
    assert float(ft.trace(model, moved, data)) != pytest.approx(
        float(ft.trace(model, params, data)), rel=1e-6
    )
