"""The interpolators of a training set, as the flattest search works with them: the outputs, their
Jacobian, the trace, and steps that are retracted onto the constraint."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.flatten_util import ravel_pytree

from flattest.flatness.bounds import targets
from flattest.flatness.certification import population_error, population_mse
from flattest.flatness.extreme import distinct_inputs
from flattest.problem.activations import Activation, activation
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss, per_sample
from flattest.problem.models import MLP, Model, Params, is_by_neuron, shapes

_INFLATION = 1e4
GOAL = 1e-13


@dataclass(frozen=True)
class Endpoint:
    """An interpolator as the search sees it.

    `sharpness` is Tr ∇²L, `interpolation_error` is max |f(x_i) − target_i| as a share of the
    largest target (of what the loss sees of both), the test error is the zero-one error over the
    distribution's population (NaN for data that come without one).
    """

    sharpness: float
    interpolation_error: float
    test_error: float
    test_mse: float


class Interpolators:
    """The functions of θ (as one vector) that the search works with, compiled once."""

    def __init__(self, model: Model, data: Dataset, loss: Loss, train_x: np.ndarray | None = None):
        # Repeated inputs are one constraint: twice the same row would make the Jacobian singular.
        points, target = distinct_inputs(data, loss)
        target = np.ravel(loss.seen(target))
        self.model, self.data, self.loss = model, data, loss
        self.constrained_x, self.target = jnp.asarray(points.x), jnp.asarray(target)
        self.scale = float(np.abs(target).max()) or 1.0
        weights, columns = _hessian_factors(loss, data.y)
        self.weights, self.columns = jnp.asarray(weights) / data.n, jnp.asarray(columns)
        self.train_x = jnp.asarray(data.x if train_x is None else train_x)
        self.x = jnp.asarray(data.x)
        # In the order in which JAX flattens a dict.
        self.shapes = dict(sorted(shapes(model, data.d).items()))
        zeros = {name: jnp.zeros(shape) for name, shape in self.shapes.items()}
        self.unflatten = ravel_pytree(zeros)[1]
        # Of a network of one's own no activation is known: it is descended as it is.
        self.inflated_mlp = self.smoothed_mlp = None
        if isinstance(model, MLP) and is_by_neuron(model) and model.sigma.homogeneity is not None:
            self.inflated_mlp = model
        elif isinstance(model, MLP) and model.sigma.is_relu:
            self.smoothed_mlp = model
        self.outputs: Callable[..., Any] = jax.jit(self._outputs)
        self.jacobian: Callable[..., Any] = jax.jit(jax.jacrev(self._outputs))
        self.trace: Callable[..., Any] = jax.jit(partial(self._trace, model, None))
        self.move: Callable[..., Point] = jax.jit(self._move)

    def flatten(self, params: Params) -> jax.Array:
        exact = {name: jnp.asarray(params[name], jnp.float64) for name in self.shapes}
        return ravel_pytree(exact)[0]

    def numpy(self, theta: jax.Array) -> Params:
        return {name: np.asarray(value) for name, value in self.unflatten(theta).items()}

    def _outputs(self, theta):
        """What the loss sees of the outputs, as one vector."""
        f = self.model.apply(self.unflatten(theta), self.constrained_x, self.train_x)
        return self.loss.seen(f).ravel()

    def _trace(self, model: Model, names: tuple[str, ...] | None, theta):
        """(1/n) Σ_i Σ_c λ_ic ‖∇ v_icᵀf(x_i)‖² over the parameters `names` (all where None), with
        ∇²ℓ_i = Σ_c λ_ic v_ic v_icᵀ at the targets: Tr ∇²L at interpolators."""

        def output(params, x, v):
            return (v * model.apply(params, x[None], self.train_x)[0]).sum()

        def squares(v):
            gradients = jax.vmap(jax.grad(output), (None, 0, 0))(self.unflatten(theta), self.x, v)
            return sum(
                (g.reshape(len(g), -1) ** 2).sum(1)
                for name, g in gradients.items()
                if names is None or name in names
            )

        return sum(w @ squares(v) for w, v in zip(self.weights, self.columns, strict=True))

    def _descended(self, theta, tau):
        """What the search descends: see `search_flattest`."""
        if self.inflated_mlp is not None:
            return self._trace(self.model, ("gamma", f"W{self.inflated_mlp.depth}"), theta)
        if self.smoothed_mlp is None:
            return self._trace(self.model, None, theta)
        smoothed = _Smoothed(**msgspec.structs.asdict(self.smoothed_mlp), tau=tau)
        return self._trace(smoothed, None, theta)

    def _move(self, theta, direction, size, tau) -> "Point":
        """The point that a step of this size leads to, once retracted by Gauss–Newton."""

        def correct(state):
            theta, residual, count = state
            theta = theta + least_norm(jax.jacrev(self._outputs)(theta), residual)
            return theta, self.target - self._outputs(theta), count + 1

        def unfinished(state):
            _, residual, count = state
            return (jnp.abs(residual).max() > GOAL * self.scale) & (count < 8)

        start = theta + size * direction
        theta, residual, _ = jax.lax.while_loop(
            unfinished, correct, (start, self.target - self._outputs(start), 0)
        )
        value, gradient = jax.value_and_grad(self._descended)(theta, tau)
        J = jax.jacrev(self._outputs)(theta)
        tangents = tangent(J, gradient), tangent(J, direction)
        return Point(theta, self.target - residual, value, *tangents)

    def error(self, theta) -> float:
        """max |f(x_i) − target_i| / max |target_i|."""
        return float(jnp.abs(self.outputs(theta) - self.target).max()) / self.scale

    def inflated(self, theta) -> Params:
        """The parameters; Sim-BN's first layer at a large scale where that changes no output and
        takes the sharpness from W1 and b1, and without neurons that are 0 on every training input:
        these have no statistics, so that Sim-BN is not defined off the training set."""
        params = self.numpy(theta)
        if self.inflated_mlp is None:
            return params
        defined = (np.asarray(self.inflated_mlp.first_layer(params, self.train_x)) != 0).any(0)
        factors = {"W1": _INFLATION, "b1": _INFLATION, "gamma": defined, "W2": defined}
        return {name: value * factors.get(name, 1.0) for name, value in params.items()}

    def endpoint(self, theta) -> Endpoint:
        params = self.inflated(theta)
        theta = self.flatten(params)
        known = self.data.distribution is not None
        error = population_error(self.model, params, self.data) if known else np.nan
        mse = population_mse(self.model, params, self.data, self.loss) if known else np.nan
        return Endpoint(float(self.trace(theta)), self.error(theta), float(error), float(mse))


def _hessian_factors(loss: Loss, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """λ (c, n) and v (c, n, outputs) with ∇²_f ℓ_i = Σ_c λ_ic v_ic v_icᵀ at the target of y_i; a
    single output has v = 1, and terms that are 0 for all samples are left out."""
    t = np.asarray(targets(loss, y))
    if t.ndim == 1:
        return np.asarray(loss.curvature(t * 1.0, y))[None], np.ones((1, len(y)))
    hessian = jax.vmap(jax.hessian(lambda f, y: per_sample(loss, f[None], y[None])[0]))
    values, vectors = np.linalg.eigh(np.asarray(hessian(jnp.asarray(t), jnp.asarray(y))))
    counted = (values > 1e-12 * values.max()).any(0)
    return values.T[counted], np.moveaxis(vectors, 2, 0)[counted]


class _Smoothed(MLP, frozen=True, kw_only=True):
    """The network with τ·softplus(·/τ) in ReLU's place; τ may be traced."""

    tau: Any

    @property
    def sigma(self) -> Activation:
        return replace(
            activation("softplus"), value=lambda t: self.tau * jax.nn.softplus(t / self.tau)
        )


@jax.jit
def least_norm(J, residual):
    """The least change of θ that J maps to the residual; a touch of damping guards its rank."""
    gram = J @ J.T
    damping = 1e-14 * jnp.trace(gram)
    return J.T @ jax.scipy.linalg.solve(
        gram + damping * jnp.eye(len(gram)), residual, assume_a="pos"
    )


def tangent(J, vector):
    """The part of the vector in the kernel of J."""
    return vector - least_norm(J, J @ vector)


class Point(NamedTuple):
    """A point on the interpolators: its outputs f, the value descended, that value's tangent
    gradient g, and the direction it was reached by, carried into its tangent space."""

    theta: jax.Array
    f: jax.Array
    value: jax.Array
    g: jax.Array
    carried: jax.Array
