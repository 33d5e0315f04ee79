"""A user's own model, by automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.curvature import diagonal
from flattest.curvature.eigenvalues import top_eigenvalue
from flattest.curvature.sharpness import operator_of
from support import cases, reference


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


@pytest.mark.slow
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

    H = operator_of(USER, params, data)
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
