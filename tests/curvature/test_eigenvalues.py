"""The largest eigenvalues, by the Gram matrix and by Lanczos, against dense Hessians."""

import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.curvature.eigenvalues import top_eigenvalues
from flattest.curvature.sharpness import operator_of
from support import cases, jets, reference
from support.points import close, flatten, point, table


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


def test_interpolators_take_the_gram_route_and_others_are_enclosed():
    model, data = ft.MLP(width=40, bias=True), ft.xor(n=12, d=6, seed=0)
    away = model.init(6, 0)
    at = reference.interpolate(model, away, data)
    top = ft.top_eigenvalue(model, at, data)
    assert top.route == "gram"
    assert top.residual < 1e-12
    J = reference.dense_jacobian(model, at, data)
    assert top.value == pytest.approx(np.linalg.eigvalsh(2 / 12 * J @ J.T)[-1], rel=1e-11)
    assert ft.top_eigenvalue(model, away, data).route == "enclosed"


def test_many_points_do_without_the_gram_matrix():
    model, data = ft.MLP(width=40, bias=True), ft.ball(n=30, d=3, seed=0)
    params = model.init(3, 0)
    with_gram = ft.top_eigenvalues(model, params, data, 2)
    H = operator_of(model, params, data)
    H.largest_gram = 10
    without = top_eigenvalues(H, 2)
    assert without.route == "lanczos"
    assert without.values == pytest.approx(with_gram.values, rel=1e-9)


def counted(op):
    """A list that each product with ∇²L, or with its residual part, makes longer."""
    taken, products, residual = [], op.matmat, op.residual_matmat
    op.matmat = lambda rows: (taken.extend(rows), products(rows))[1]
    op.residual_matmat = lambda rows: (taken.extend(rows), residual(rows))[1]
    op.matvec = lambda v: op.matmat(v[None])[0]
    return taken


@pytest.mark.parametrize("activation", ["relu", "softplus"])
@pytest.mark.parametrize(("k", "most"), [(1, 1), (1, 4), (1, 16), (2, 6)])
def test_no_more_products_are_taken_than_are_allowed(activation, k, most):
    """Whether there is a Gram matrix or not, and where all of ∇²L's columns would be few enough."""
    model, data, params, _, dense = point("bias", activation, "random", "mse")
    function = ft.FunctionModel(model.apply, None)
    spectrum = np.linalg.eigvalsh(dense)
    for made in (model, function):
        op = operator_of(made, params, data)
        taken = counted(op)
        found = top_eigenvalues(op, k, 1e-9, most_products=most)
        assert len(taken) <= max(most, k + 1)
        assert (found.values <= spectrum[::-1][: len(found.values)] * (1 + 1e-9)).all()
        if found.route != "enclosed":  # That one is proven, whatever its vector's residual.
            assert found.route.startswith("estimate") == (found.residuals.max() > 1e-9)


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
