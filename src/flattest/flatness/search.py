"""Flattest search: descend the trace of the Hessian over the interpolators of a training set.

A challenge to statements about all flattest minimizers: start from an interpolator that
generalizes badly, walk downhill in sharpness without leaving the interpolators, and see where the
walk ends.
"""

import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.flatten_util import ravel_pytree

from flattest.errors import FlattestError
from flattest.flatness.bounds import targets
from flattest.flatness.certification import population_error, population_mse
from flattest.flatness.extreme import distinct_inputs
from flattest.problem.activations import Activation, activation
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.losses import (
    CrossEntropy,
    Logistic,
    Loss,
    interpolates,
    loss as resolve_loss,
    per_sample,
)
from flattest.problem.models import MLP, Model, Params, is_by_neuron, shapes
from flattest.problem.randomness import generator

_STARTS = 8
_INFLATION = 1e4
_GOAL = 1e-13


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


@dataclass(frozen=True)
class SearchResult:
    """Where the search began and ended, with the sharpness along the way.

    `status` is "converged" where the last stage could not descend further, else "budget".
    """

    params: Params
    start: Endpoint
    end: Endpoint
    status: str
    steps: int
    history: np.ndarray = field(repr=False)


def search_flattest(
    model: Model,
    data: Dataset,
    start: Params | int = 0,
    loss: "str | Loss" = "mse",
    steps: int = 1500,
    smoothing: tuple[float, ...] = (0.5, 0.2, 0.08, 0.03, 0.01),
) -> SearchResult:
    """Descends Tr ∇²L over the interpolators of `data`, from `start` (parameters, or a seed).

    Riemannian conjugate gradients: the gradient of the sharpness is projected on the kernel of
    the outputs' Jacobian J, and each step is retracted onto f(x_i) = target_i by Gauss–Newton.
    The number of points at which a ReLU is active has no gradient, so the sharpness that is
    descended is that of the network with τ·softplus(·/τ), τ running through `smoothing`; the
    constraint and all that is reported use the network itself. For Sim-BN with a homogeneous σ it
    descends the limit of the trace under W1, b1 → ∞, which changes no output, and scales the result
    up at the end.
    """
    problem = _Interpolators(model, data, resolve_loss(loss))
    theta = _interpolator(problem, start)
    start_point, history, status = problem.endpoint(theta), [], "budget"
    stages = smoothing if problem.smoothed_mlp is not None else (0.0,)
    for tau in stages:
        theta, values, status = _descend(problem, theta, tau, steps // len(stages))
        history += values
    return SearchResult(
        params=problem.inflated(theta),
        start=start_point,
        end=problem.endpoint(theta),
        status=status,
        steps=len(history),
        history=np.array(history),
    )


def interpolate(
    model: Model, data: Dataset, start: Params | int = 0, loss: "str | Loss" = "mse"
) -> Params:
    """An interpolator of `data`, by Gauss–Newton from `start` (parameters, or a seed)."""
    problem = _Interpolators(model, data, resolve_loss(loss))
    return problem.numpy(_interpolator(problem, start))


def bad_interpolator(
    model: Model, data: Dataset, wrong: int, seed: int = 0, loss: "str | Loss" = "mse"
) -> Params:
    """Parameters that interpolate the data and the wrong labels of `wrong` fresh points.

    A memorizer-like start where no memorizer exists: it answers −y, or another class, off the
    training set wherever it was taught to. Gauss–Newton may miss from one initialization, so
    several are tried.
    """
    require_dataset(data)
    if data.distribution is None:
        raise FlattestError(
            "A bad interpolator needs data that know their distribution or held-out examples: "
            "Dataset(x, y, test=0.2)."
        )
    rng, kind = generator(seed, "wrong labels"), resolve_loss(loss)
    x, y = _distinct(*data.distribution.sample(rng, wrong))
    fresh = ~(x[:, None, :] == data.x[None]).all(-1).any(1)
    taught = _other_labels(y[fresh], kind, rng)
    poisoned = Dataset(np.vstack([data.x, x[fresh]]), np.concatenate([data.y, taught]))
    problem = _Interpolators(model, poisoned, kind, train_x=data.x)
    starts = generator(seed, "bad interpolator").integers(2**31, size=_STARTS - 1).tolist()
    for start in [seed, *starts[:-1]]:
        with contextlib.suppress(NoInterpolator):
            return problem.numpy(_interpolator(problem, start))
    return problem.numpy(_interpolator(problem, starts[-1]))


def _distinct(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without repetitions, in order: what is taught about a point is one label."""
    first = np.sort(np.unique(x, axis=0, return_index=True)[1])
    return x[first], y[first]


def _other_labels(y: np.ndarray, loss: Loss, rng: np.random.Generator) -> np.ndarray:
    """Labels that are wrong: another class at random, for several outputs the labels moved round,
    and −y, or 1 − y for labels 0 and 1."""
    if isinstance(loss, CrossEntropy):
        classes = loss.classes or int(y.max()) + 1
        return (y + rng.integers(1, classes, len(y))) % classes
    if y.ndim > 1:
        shifts = rng.integers(1, y.shape[1], len(y)) if y.shape[1] > 1 else np.zeros(len(y), int)
        moved = (np.arange(y.shape[1]) + shifts[:, None]) % y.shape[1]
        return np.take_along_axis(y, moved, 1) if y.shape[1] > 1 else -y
    return 1 - y if isinstance(loss, Logistic) and np.isin(y, [0, 1]).all() else -y


class NoInterpolator(FlattestError):
    """Gauss–Newton ended away from the interpolators."""


class _Interpolators:
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
        self.names = shapes(model, data.d)
        zeros = {name: jnp.zeros(shape) for name, shape in self.names.items()}
        self.unflatten = ravel_pytree(zeros)[1]
        # Of a network of one's own no activation is known: it is descended as it is.
        self.inflated_mlp = self.smoothed_mlp = None
        if isinstance(model, MLP) and is_by_neuron(model) and model.sigma.homogeneity is not None:
            self.inflated_mlp = model
        elif isinstance(model, MLP) and model.sigma.is_relu:
            self.smoothed_mlp = model
        self.outputs = jax.jit(self._outputs)
        self.jacobian = jax.jit(jax.jacrev(self._outputs))
        self.trace = jax.jit(partial(self._trace, model, None))
        self.move = jax.jit(self._move)

    def flatten(self, params: Params) -> jax.Array:
        return ravel_pytree({name: jnp.asarray(params[name], jnp.float64) for name in self.names})[
            0
        ]

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

    def _move(self, theta, direction, size, tau) -> "_Point":
        """The point that a step of this size leads to, once retracted by Gauss–Newton."""

        def correct(state):
            theta, residual, count = state
            theta = theta + _least_norm(jax.jacrev(self._outputs)(theta), residual)
            return theta, self.target - self._outputs(theta), count + 1

        def unfinished(state):
            _, residual, count = state
            return (jnp.abs(residual).max() > _GOAL * self.scale) & (count < 8)

        start = theta + size * direction
        theta, residual, _ = jax.lax.while_loop(
            unfinished, correct, (start, self.target - self._outputs(start), 0)
        )
        value, gradient = jax.value_and_grad(self._descended)(theta, tau)
        J = jax.jacrev(self._outputs)(theta)
        tangents = _tangent(J, gradient), _tangent(J, direction)
        return _Point(theta, self.target - residual, value, *tangents)

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


def _interpolator(problem: _Interpolators, start: Params | int):
    model, d = problem.model, problem.data.d
    params = model.init(d, int(start)) if isinstance(start, int | np.integer) else start
    if isinstance(model, MLP):
        model.check(params, d)
    theta = _retract(problem, problem.flatten(params), iterations=500)
    if not interpolates(problem.outputs(theta), problem.target):
        raise NoInterpolator(
            f"No interpolator was found from this start (error {problem.error(theta):.1e} after "
            f"Gauss–Newton); {problem.data.n} points may need a wider network or another start."
        )
    return theta


def _retract(problem: _Interpolators, theta, iterations: int):
    """Gauss–Newton towards f(x_i) = target_i, halving a step that does not reduce the error."""
    residual = problem.target - problem.outputs(theta)
    norm = float(jnp.linalg.norm(residual))
    for _ in range(iterations):
        if norm <= _GOAL * (float(jnp.linalg.norm(problem.target)) or 1.0):
            break
        step = _least_norm(problem.jacobian(theta), residual)
        for halving in range(12):
            trial = theta + step * 0.5**halving
            left = problem.target - problem.outputs(trial)
            if (new := float(jnp.linalg.norm(left))) < norm:
                break
        else:
            break
        theta, residual, norm = trial, left, new
    return theta


@jax.jit
def _least_norm(J, residual):
    """The least change of θ that J maps to the residual; a touch of damping guards its rank."""
    gram = J @ J.T
    damping = 1e-14 * jnp.trace(gram)
    return J.T @ jax.scipy.linalg.solve(
        gram + damping * jnp.eye(len(gram)), residual, assume_a="pos"
    )


def _tangent(J, vector):
    """The part of the vector in the kernel of J."""
    return vector - _least_norm(J, J @ vector)


class _Point(NamedTuple):
    """A point on the interpolators: its outputs f, the value descended, that value's tangent
    gradient g, and the direction it was reached by, carried into its tangent space."""

    theta: jax.Array
    f: jax.Array
    value: jax.Array
    g: jax.Array
    carried: jax.Array


def _descend(problem: _Interpolators, theta, tau: float, steps: int):
    """Riemannian conjugate gradients (Polak–Ribière+) with Armijo backtracking."""
    point = problem.move(theta, jnp.zeros_like(theta), 0.0, tau)
    direction, size, stalled = -point.g, 1e-2, 0
    values: list[float] = []
    while len(values) < steps:
        values.append(float(point.value))
        slope = float(point.g @ direction)
        if slope >= 0:
            direction, slope = -point.g, -float(point.g @ point.g)
        step = _line_search(problem, point, direction, slope, 2 * size, tau)
        if step is None:
            return point.theta, values, "converged"
        new, size = step
        stalled = stalled + 1 if point.value - new.value < 1e-7 * abs(point.value) else 0
        beta = max(0.0, float(new.g @ (new.g - point.g) / (point.g @ point.g)))
        point, direction = new, -new.g + beta * new.carried
        if stalled >= 10:
            return point.theta, values, "converged"
    return point.theta, values, "budget"


def _line_search(problem: _Interpolators, point: _Point, direction, slope: float, size: float, tau):
    """The first point, halving the step size, with a sufficient decrease; None if there is none."""
    for _ in range(40):
        new = problem.move(point.theta, direction, size, tau)
        enough = point.value + 1e-4 * size * slope
        if interpolates(new.f, problem.target) and float(new.value) <= enough:
            return new, size
        size *= 0.5
    return None
