"""Sharpness in closed form, by Lanczos and by estimators, against dense float64 Hessians."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flattest as ft
from flattest.curvature import diagonal, estimators, lanczos
from flattest.curvature.eigenvalues import top_eigenvalue, top_eigenvalues
from flattest.curvature.sharpness import hessian
from support import cases, jets, reference

seeds = st.integers(0, 2**32 - 1)


def close(value, expected, scale, rel=1e-9):
    return np.abs(np.asarray(value) - np.asarray(expected)).max() <= rel * scale


def flatten(params, names):
    return np.concatenate([np.ravel(params[name]) for name in names])


def point(architecture, activation, kind, loss):
    """Model, data, parameters, outputs with derivatives and dense Hessian: a row of the table."""
    # Only interpolators depend on the loss, and then on its minimizer alone.
    target = "logistic" if (kind, loss) == ("near_interpolation", "logistic") else "mse"
    model, data, params, f = outputs(architecture, activation, kind, target)
    return model, data, params, f, jets.hessian(f, data, loss)


@cache
def outputs(architecture, activation, kind, loss):
    model, data = cases.model(architecture, activation), cases.data()
    params = cases.params(model, data, kind, loss)
    return model, data, params, jets.outputs(model, params, data.x)


table = pytest.mark.parametrize(
    ("architecture", "activation"),
    [(a, s) for a in cases.ARCHITECTURES for s in cases.ACTIVATIONS],
)


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
            H = hessian(model, params, data, loss)
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
        H, names = hessian(model, params, data, "logistic"), list(params)
        v, u = rng.normal(size=H.size), rng.normal(size=data.n)
        flat = flatten(H.as_params(v), names)
        product = flatten(H.as_params(H.matvec(v)), names)
        assert close(product, dense @ flat, np.abs(dense).max() * np.linalg.norm(v))
        gram = f.gradient @ f.gradient.T
        assert close(H.gram(), gram, np.abs(gram).max())
        pulled = flatten(H.as_params(H.vjp(u)), names)
        assert close(pulled, u @ f.gradient, np.abs(f.gradient).max() * np.linalg.norm(u))


@table
def test_top_eigenvalues_agree_with_the_dense_hessian(architecture, activation):
    for kind in cases.POINTS:
        for loss in cases.LOSSES:
            model, data, params, _, dense = point(architecture, activation, kind, loss)
            expected = np.linalg.eigvalsh(dense)[::-1][:3]
            top = ft.top_eigenvalues(model, params, data, 3, loss, tol=1e-12)
            assert close(top.values, expected, np.abs(expected).max())
            assert ft.top_eigenvalue(model, params, data, loss).value == pytest.approx(
                expected[0], rel=1e-9
            )
            names = list(params)
            for value, vector, residual in zip(top.values, top.vectors, top.residuals, strict=True):
                v = flatten(vector, names)
                assert np.linalg.norm(v) == pytest.approx(1, rel=1e-12)
                gap = np.linalg.norm(dense @ v - value * v) / np.abs(top.values).max()
                assert gap == pytest.approx(residual, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu:0.1"])
@pytest.mark.parametrize("architecture", ["no_bias", "bias", "output_bias"])
def test_the_residual_parts_norm_is_exact_for_two_piecewise_linear_layers(architecture, activation):
    model, data, params, _, _ = point(architecture, activation, "random", "mse")
    H = hessian(model, params, data)
    dense = H.residual_matmat(np.eye(H.size))
    assert H.residual_bound() == pytest.approx(np.linalg.norm(dense, 2), rel=1e-12)


@pytest.mark.parametrize(("activation", "bounded"), [("relu", True), ("softplus", False)])
def test_the_gram_routes_residuals_are_those_of_the_dense_hessian(activation, bounded):
    """Not quite at an interpolator, and with a tolerance so wide that the route is taken."""
    model, data, params, _, _ = point("bias", activation, "near_interpolation", "mse")
    missed = np.random.default_rng(0).normal(scale=1e-3, size=data.n)
    data = ft.Dataset(data.x, data.y + missed)
    dense = reference.dense_hessian(model, params, data)
    top = ft.top_eigenvalues(model, params, data, 2, tol=0.9)
    assert top.route == "gram"
    for value, vector, residual in zip(top.values, top.vectors, top.residuals, strict=True):
        v = flatten(vector, sorted(params))
        gap = np.linalg.norm(dense @ v - value * v) / top.values.max()
        assert gap > 1e-7
        assert gap <= residual * (1 + 1e-9)
        assert bounded or gap == pytest.approx(residual, rel=1e-9)


@pytest.mark.parametrize(
    "c", [np.array([1.0, 1.0]), np.array([1.0, -1.0])], ids=["sum", "difference"]
)
def test_no_fixed_signs_hide_the_rest_of_the_hessian(c):
    """f = (c·v)², where any two signs are along c or across it: ∇²L = 2∇f∇fᵀ + 4(f − y)ccᵀ."""
    model = ft.FunctionModel(lambda p, x: jnp.full(len(x), (p["v"] @ c) ** 2), None)
    v, data = np.array([1.5, 0.4]), ft.Dataset(np.ones((1, 1)), np.array([-50.0]))
    f = (v @ c) ** 2
    top = ft.top_eigenvalue(model, {"v": v}, data)
    assert top.value == pytest.approx(16 * f + 8 * (f + 50), rel=1e-9)


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


def test_interpolators_take_the_gram_route_and_others_lanczos():
    model, data = ft.MLP(width=40, bias=True), ft.xor(n=12, d=6, seed=0)
    away = model.init(6, 0)
    at = reference.interpolate(model, away, data)
    top = ft.top_eigenvalue(model, at, data)
    assert top.route == "gram"
    assert top.residual < 1e-12
    J = reference.dense_jacobian(model, at, data)
    assert top.value == pytest.approx(np.linalg.eigvalsh(2 / 12 * J @ J.T)[-1], rel=1e-11)
    assert ft.top_eigenvalue(model, away, data).route == "lanczos"


def test_trace_at_an_interpolator_is_the_mean_squared_gradient():
    """wen2023, Lemma 4.1: Tr ∇²L = (2/n) Σ ‖∇f(x_i)‖²."""
    model, data = ft.MLP(width=40, bias=True), ft.xor(n=12, d=6, seed=0)
    params = reference.interpolate(model, model.init(6, 0), data)
    J = reference.dense_jacobian(model, params, data)
    assert ft.trace(model, params, data).value == pytest.approx(2 / 12 * (J**2).sum(), rel=1e-12)


def test_many_points_do_without_the_gram_matrix():
    model, data = ft.MLP(width=5, bias=True), ft.ball(n=30, d=3, seed=0)
    params = model.init(3, 0)
    with_gram = ft.top_eigenvalues(model, params, data, 2)
    H = hessian(model, params, data)
    H.largest_gram = 10
    without = top_eigenvalues(H, 2)
    assert without.route == "lanczos"
    assert without.values == pytest.approx(with_gram.values, rel=1e-9)


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


def test_a_larger_eigenvalue_is_not_missed_beside_the_gram_matrixs():
    """One output weight is 0, and its neuron's cross terms with ∂f/∂W2 ≠ 0 have an eigenvector
    orthogonal to every ∇f_i; far from interpolation it is the largest."""
    model = ft.MLP(width=2, activation="linear")
    data = ft.Dataset(np.eye(2), np.array([0.0, -100.0]))
    params = {"W1": np.array([[1.0, 0.0], [0.0, 0.0]]), "W2": np.array([1.0, 0.0])}
    f = jets.outputs(model, params, data.x)
    expected = np.linalg.eigvalsh(jets.hessian(f, data))[-1]
    assert expected > 10 * np.linalg.eigvalsh(f.gradient @ f.gradient.T)[-1]
    assert ft.top_eigenvalue(model, params, data).value == pytest.approx(expected, rel=1e-9)


def test_a_registered_activation_has_a_closed_form_too():
    ft.register_activation("test_gelu", lambda t: t * 0.5 * (1 + jnp.tanh(t)))
    model, data = ft.MLP(width=4, depth=3, activation="test_gelu"), cases.data()
    params = cases.params(model, data)
    dense = reference.dense_hessian(model, params, data)
    assert ft.trace(model, params, data).value == pytest.approx(np.trace(dense), rel=1e-9)


def test_a_measure_prints_its_value_error_route_and_split():
    plain = ft.Quantity(2.5, "closed form", per_layer={"W1": 2.0, "W2": 0.5})
    assert str(plain) == "2.5 (closed form): W1 2, W2 0.5"
    assert (
        str(ft.Quantity(2.5, "xtrace (32 products)", 0.125)) == "2.5 ± 0.12 (xtrace (32 products))"
    )
    assert float(plain) == 2.5


def user_apply(params, x):
    """A model with no closed form here: a tanh layer and a squared output of it."""
    z = jnp.tanh(x @ params["inner"]["A"] + params["inner"]["shift"])
    return z @ params["out"] + 0.1 * (z**2).sum(axis=1)


def user_init(d, seed):
    rng = np.random.default_rng(seed)
    inner = {"A": rng.normal(size=(d, 5)), "shift": rng.normal(size=5)}
    return {"inner": inner, "out": rng.normal(size=5)}


USER = ft.FunctionModel(user_apply, user_init)


def user_case():
    data = cases.data(6, 3)
    params = USER.init(3, 0)
    vector, unravel = reference.ravel_pytree(params)

    def value(v):
        f = user_apply(unravel(v), jnp.asarray(data.x))
        return jnp.mean((f - data.y) ** 2)

    return data, params, np.asarray(reference.jax.jit(reference.jax.hessian(value))(vector))


def test_a_users_model_is_measured_exactly_while_it_is_small():
    data, params, dense = user_case()
    trace = ft.trace(USER, params, data)
    assert trace.route == "exact: all columns of ∇²L, because tanh is not piecewise linear"
    assert trace.value == pytest.approx(np.trace(dense), rel=1e-10)
    assert trace.per_layer["inner.A"] == pytest.approx(np.trace(dense[:15, :15]), rel=1e-10)
    assert trace.per_layer["out"] == pytest.approx(np.trace(dense[20:, 20:]), rel=1e-10)
    top = ft.top_eigenvalues(USER, params, data, 4)
    assert top.values == pytest.approx(np.linalg.eigvalsh(dense)[::-1][:4], rel=1e-9)

    assert jax.tree.map(np.shape, top.vectors[0]) == jax.tree.map(np.shape, params)

    H = hessian(USER, params, data)
    estimate = diagonal.trace(H, rtol=0.02, most_columns=10)
    assert "Hutchinson" in estimate.route
    assert 0 < estimate.stderr <= 0.02 * estimate.value
    assert abs(estimate.value - trace.value) <= 4 * estimate.stderr
    assert sum(estimate.per_layer.values()) == pytest.approx(estimate.value, rel=1e-12)
    fewer = diagonal.trace(H, rtol=1e-9, most_products=64, most_columns=10)
    assert "64 products" in fewer.route
    assert fewer.stderr > 1e-9 * fewer.value
    H.most_gradient_entries = 10
    assert not H.gauss_newton_gram().size
    assert top_eigenvalue(H).value == pytest.approx(top.values[0], rel=1e-9)


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


def test_the_spectrum_has_the_moments_of_the_dense_hessian():
    model, data, params, _, dense = point("bias", "softplus", "random", "mse")
    values = np.linalg.eigvalsh(dense)
    found = ft.spectrum(model, params, data, probes=60, steps=40)
    assert found.weights.sum(axis=1) == pytest.approx(np.ones(60), rel=1e-12)
    assert found.nodes.min() >= values[0] - 1e-9 * abs(values).max()
    assert found.nodes.max() == pytest.approx(values[-1], rel=1e-9)
    for power in (1, 2, 3):
        mean, stderr = found.mean(lambda t, power=power: t**power)
        assert abs(mean - np.mean(values**power)) <= 4 * stderr
    grid = np.linspace(values[0] - 5, values[-1] + 5, 20_001)
    density = found.density(grid, width=0.5)
    assert np.trapezoid(density, grid) == pytest.approx(1, rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 90), st.integers(1, 6), seeds)
def test_lanczos_finds_the_largest_eigenpairs_through_restarts(size, k, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size))
    A, k = A + A.T, min(k, size)
    values, vectors = lanczos.top_eigenpairs(lambda v: A @ v, rng.normal(size=size), k, 1e-12, rng)
    assert close(values, np.linalg.eigvalsh(A)[::-1][:k], np.abs(A).max() * size, 1e-11)
    assert close(vectors @ vectors.T, np.eye(k), 1.0, 1e-9)


def test_lanczos_finds_repeated_eigenvalues_and_says_when_it_has_not_converged():
    rng = np.random.default_rng(0)
    A = np.diag([3.0, 3.0, 3.0, 1.0, 1.0, 0.0])
    values, _ = lanczos.top_eigenpairs(lambda v: A @ v, rng.normal(size=6), 4, 1e-12, rng)
    assert values == pytest.approx([3, 3, 3, 1], rel=1e-12)
    B = np.diag(np.linspace(0, 1, 2000))
    with pytest.raises(ft.FlattestError, match="did not reach tol = 1e-14 in 20 products"):
        lanczos.top_eigenpairs(
            lambda v: B @ v, rng.normal(size=2000), 1, 1e-14, rng, most_products=20
        )


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
    f, g = (hessian(model, p, data).f for p in (params, moved))
    assert close(f, g, max(1.0, np.abs(params["W2"]).sum() * np.abs(f).max()), 1e-12)
    assert float(ft.trace(model, moved, data)) != pytest.approx(
        float(ft.trace(model, params, data)), rel=1e-6
    )


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
        lambda pair: ft.trace(ft.MLP(3), ft.MLP(3).init(2, 0), pair),
        lambda pair: ft.top_eigenvalue(ft.MLP(3), ft.MLP(3).init(2, 0), pair),
        lambda pair: ft.lower_bound(ft.MLP(3), pair),
        lambda pair: ft.memorizer(pair),
        lambda pair: ft.train(ft.MLP(3), pair, ft.gd(0.1, epochs=1)),
    ],
    ids=["trace", "top eigenvalue", "lower bound", "memorizer", "train"],
)
def test_a_pair_of_arrays_is_no_dataset(ask):
    with pytest.raises(ft.FlattestError, match=r"not as a tuple: flattest.Dataset\(x, y\)"):
        ask((np.ones((4, 2)), np.ones(4)))


def test_bad_losses_and_labels_are_refused():
    assert_refused("Unknown loss 'hinge'; valid are: half_mse, logistic, mse", loss="hinge")
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
    assert_refused("tol must be positive", measure=lambda *a, loss: ft.top_eigenvalue(*a, tol=0))
    assert_refused("most_products ≥ 2", measure=lambda *a, loss: ft.hutchinson(*a, most_products=1))
    assert_refused("rtol ≥ 0", measure=lambda *a, loss: ft.xtrace(*a, rtol=np.nan))
    assert_refused(
        "probes and steps must be ≥ 1", measure=lambda *a, loss: ft.spectrum(*a, probes=0)
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
