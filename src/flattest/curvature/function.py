"""∇²L of a user's own JAX model, by automatic differentiation."""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from flattest.curvature.operator import LARGEST_GRAM, Hessian
from flattest.errors import FlattestError
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import Model, Params

_ROWS_AT_ONCE = 32
# Entries of the Jacobian, 1 GB: beyond, Lanczos starts without the Gram matrix.
_LARGEST_JACOBIAN = 2**27


class FunctionHessian(Hessian):
    """Products by forward over reverse differentiation, compiled once for a model and shapes."""

    def __init__(self, model: Model, params: Params, data: Dataset, loss: Loss):
        self.data, self.params = data, _exact(params)
        self.x = jnp.asarray(data.x)
        self.theta, self.unravel = ravel_pytree(self.params)
        self.compiled = _compile_once(model)
        self.f = self._outputs()
        self.u = loss.slope(self.f, data.y) / data.n
        self.w = loss.curvature(self.f, data.y) / data.n

    def _outputs(self) -> np.ndarray:
        try:
            f = self.compiled.outputs(self.theta, self.params, self.x)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise FlattestError(
                f"The model cannot be applied to these parameters and inputs: {error}"
            ) from error
        return _checked_outputs(f, self.data)

    @property
    def size(self):
        return self.theta.size

    def as_params(self, v):
        return jax.tree.map(np.asarray, self.unravel(jnp.asarray(v)))

    def by_name(self, entries: np.ndarray) -> dict[str, float]:
        """Sums of a vector's entries over each of the parameters."""
        parts = self.as_params(entries)
        return {
            name: float(sum(leaf.sum() for leaf in jax.tree.leaves(part)))
            for name, part in parts.items()
        }

    @cached_property
    def jacobian(self) -> np.ndarray:
        """∂f_i/∂θ, (n, p)."""
        return np.asarray(self.compiled.jacobian(self.theta, self.params, self.x))

    def gauss_newton_diagonal(self) -> np.ndarray:
        """The diagonal of Σ_i w_i ∇f_i ∇f_iᵀ, without holding the Jacobian."""
        return np.asarray(self.compiled.squares(self.theta, self.params, self.x, self.w))

    @property
    def affords_gram(self):
        return self.data.n <= LARGEST_GRAM and self.data.n * self.size <= _LARGEST_JACOBIAN

    def gram(self):
        return self.jacobian @ self.jacobian.T

    def vjp(self, u):
        return np.asarray(self.compiled.vjp(self.theta, self.params, self.x, u))

    def product(self, v, w):
        return self._products(v[None], w)[0]

    def matmat(self, rows):
        return self._products(rows, self.w)

    def residual_matmat(self, rows):
        """Σ_i u_i ∇²f_i applied to each row."""
        return self._products(rows, np.zeros_like(self.w))

    def _products(self, rows, w):
        products = self.compiled.products(self.theta, self.params, self.x, self.u, w, rows)
        # A copy, because JAX's buffers are read-only.
        return np.array(products)


class _Compiled(NamedTuple):
    outputs: Callable
    vjp: Callable
    jacobian: Callable
    squares: Callable
    products: Callable


def _compile_once(model: Any) -> _Compiled:
    try:
        return _compile(model)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        raise FlattestError(
            f"The model {type(model).__name__} must be hashable; make its class frozen."
        ) from None


@lru_cache(maxsize=64)
def _compile(model: Any) -> _Compiled:
    def network(params, x):
        _, unravel = ravel_pytree(params)
        return lambda theta: model.apply(unravel(theta), x, x)

    @jax.jit
    def outputs(theta, params, x):
        return network(params, x)(theta)

    @jax.jit
    def vjp(theta, params, x, u):
        return jax.vjp(network(params, x), theta)[1](u)[0]

    @jax.jit
    def jacobian(theta, params, x):
        _, pullback = jax.vjp(network(params, x), theta)
        return jax.lax.map(lambda e: pullback(e)[0], jnp.eye(len(x)), batch_size=_ROWS_AT_ONCE)

    @jax.jit
    def squares(theta, params, x, w):
        _, pullback = jax.vjp(network(params, x), theta)

        def add(total, row):
            e, weight = row
            return total + weight * pullback(e)[0] ** 2, None

        return jax.lax.scan(add, jnp.zeros_like(theta), (jnp.eye(len(x)), w))[0]

    @jax.jit
    def products(theta, params, x, u, w, rows):
        f = network(params, x)

        def gradient(theta, weights):
            return jax.vjp(f, theta)[1](weights)[0]

        def product(v):
            _, Rf = jax.jvp(f, (theta,), (v,))
            # The tangent of Σ_i u_i ∇f_i when θ moves along v and u_i by w_i Rf_i.
            return jax.jvp(gradient, (theta, u), (v, w * Rf))[1]

        return jax.lax.map(product, rows, batch_size=_ROWS_AT_ONCE)

    return _Compiled(outputs, vjp, jacobian, squares, products)


def _exact(params: Params) -> Params:
    if not isinstance(params, dict) or not params:
        raise FlattestError("A model's parameters are a dict of arrays with at least one entry.")
    try:
        exact = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
    except (TypeError, ValueError) as error:
        raise FlattestError(f"A model's parameters must be real arrays: {error}") from None
    for name, part in exact.items():
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(part)):
            raise FlattestError(f"Parameter {name} has entries that are not finite.")
    return exact


def _checked_outputs(f, data: Dataset) -> np.ndarray:
    if f.shape != (data.n,):
        raise FlattestError(
            f"The model must give one output a row, shape ({data.n},), not {f.shape}."
        )
    if not np.isfinite(f).all():
        raise FlattestError("The model's outputs on the training set are not finite.")
    return np.array(f)
