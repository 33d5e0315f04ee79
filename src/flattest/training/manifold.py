"""The interpolators M = {θ : f_θ(x_i) = t_i} near a point: J = ∂f/∂θ, its Gram matrix, and S.

S(θ) = Σ_i w_i ‖∇f_i‖², w_i = ℓ″(t_i)/n, is Tr ∇²L on M. With K = J Jᵀ (n × n), the projection onto
the tangent space is P v = v − Jᵀ K⁻¹ J v, and a Newton step back to M is Jᵀ K⁻¹ (t − f).

Three makers: closed forms for two layers (`TwoLayers`), what is known of J without holding it for
other MLPs (`Factored`), the dense J of any JAX model (`Dense`). θ is one vector, in float64.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from flattest.curvature.mlp import NetworkHessian, blocks_of
from flattest.curvature.normalized import OPERATORS
from flattest.errors import FlattestError
from flattest.problem.activations import Activation
from flattest.problem.losses import INTERPOLATION
from flattest.problem.models import MLP, Model, Params
from flattest.training.flows import Flow
from flattest.training.squares import squares
from flattest.training.state import Problem

# Pivots of K below this share of its largest are rounding: J has lost rank.
_RANK = 1e-13
NEWTON_STEPS = 20
_ENTRIES_AT_ONCE = 2**22


class RankDeficient(Exception):
    """The gradients ∇f_i are linearly dependent: M has no tangent space here."""


class Point(ABC):
    """f, J and S at θ; nothing is computed before it is asked for."""

    theta: np.ndarray

    @property
    @abstractmethod
    def f(self) -> np.ndarray:
        """f_θ(x_i)."""

    @property
    @abstractmethod
    def gram(self) -> np.ndarray:
        """K."""

    @property
    @abstractmethod
    def sharpness(self) -> float:
        """S."""

    @property
    @abstractmethod
    def gradient(self) -> np.ndarray:
        """∇S."""

    @property
    @abstractmethod
    def pattern(self) -> np.ndarray | None:
        """Which neurons are on at which points; None where that is not known, or has no kinks."""

    @abstractmethod
    def push(self, v: np.ndarray) -> np.ndarray:
        """J v."""

    @abstractmethod
    def pull(self, c: np.ndarray) -> np.ndarray:
        """Jᵀ c."""

    def solve(self, c: np.ndarray) -> np.ndarray:
        """K⁻¹ c."""
        return cho_solve(self._factor, c, check_finite=False)

    @cached_property
    def _factor(self):
        try:
            factor = cho_factor(self.gram)
        except (LinAlgError, ValueError) as error:
            raise RankDeficient from error
        pivots = np.diag(factor[0]) ** 2
        if not pivots.min() > _RANK * pivots.max():
            raise RankDeficient
        return factor

    @cached_property
    def velocity(self) -> np.ndarray:
        """−P ∇S."""
        return self.pull(self.solve(self.push(self.gradient))) - self.gradient

    @property
    def stationarity(self) -> float:
        """‖P∇S‖ ‖θ‖ / S: 0 exactly where ∇S = Jᵀλ for some λ, the condition of Lagrange."""
        return float(norm(self.velocity) * norm(self.theta) / self.sharpness)


class Manifold(NamedTuple):
    """M, with the point of the flow at θ, and θ as one vector and by name."""

    at: Callable[[np.ndarray], Point]
    target: np.ndarray
    flat: Callable[[Params], np.ndarray]
    named: Callable[[np.ndarray], Params]

    def onto(self, point: Point) -> Point | None:
        """The interpolator that Newton's method leads to; None where it leads to none."""
        scale = np.abs(self.target).max()
        for _ in range(NEWTON_STEPS):
            missed = self.target - point.f
            if np.abs(missed).max() <= 0.1 * INTERPOLATION * scale:
                return point
            if not np.isfinite(missed).all():
                return None
            point = self.at(point.theta + point.pull(point.solve(missed)))
        return None


class Attempt(NamedTuple):
    """A step that was tried: where it ended (None where it cannot be made, or is not accurate), how
    long it took, its estimated error, and that of the whole as a share of what is allowed."""

    end: Point | None
    h: float
    error: float
    share: float


NOWHERE = Attempt(None, 0.0, np.inf, np.inf)


def manifold(problem: Problem, phase: Flow) -> Manifold:
    """The interpolators of a problem, with S as the phase sees kinks."""
    model, data = problem.model, problem.data
    target = np.asarray(problem.loss.target(data.y), np.float64)
    weight = np.asarray(problem.loss.curvature(target, data.y), np.float64) / data.n
    seen = smoothed(model, phase)
    if isinstance(model, MLP) and model.depth == 2 and model.norm is None:
        return _two_layers(model, data.x, target, weight, seen)
    if isinstance(model, MLP):
        return _factored(model, problem, target, weight, seen)
    return _dense(model, data.x, target, weight, seen)


def smoothed(model: Model, phase: Flow) -> Model:
    """The network whose trace is descended: with σ smoothed over δ where kinks are seen."""
    if phase.kinks == "unseen":
        return model
    if not isinstance(model, MLP) or not model.sigma.is_relu:
        raise FlattestError(
            "A flow sees the kinks of MLPs with σ = relu only; use kinks='unseen' for this network."
        )
    if phase.kinks == "seen":
        return msgspec.structs.replace(model, activation=f"softplus:{phase.width!r}")
    if model.depth != 2 or model.norm is not None:
        raise FlattestError(
            "Walls are for two layers without a norm; use kinks='seen' for this network."
        )
    return model


@dataclass(eq=False)
class TwoLayers(Point):
    """f = σ(X̃Wᵀ) a + b: with δ = a ⊙ σ′(h), K = r rᵀ + (δ δᵀ) ⊙ (X̃X̃ᵀ) + [b], and

    S = Σ_i w_i (Σ_j s(h_ij)² + a_j² s′(h_ij)² ‖x̃_i‖²), s = σ, or smoothed where kinks are seen,
    whose derivative in h_ij is 2 w_i s′ (s + a_j² s″ ‖x̃_i‖²); s″ = 0 for a ReLU as it is.
    """

    theta: np.ndarray
    x: np.ndarray
    gram_x: np.ndarray
    weight: np.ndarray
    sigma: Activation
    seen: Activation
    offset: bool

    def __post_init__(self):
        inputs = self.x.shape[1]
        m = (len(self.theta) - self.offset) // (inputs + 1)
        self.W, self.a = self.theta[: m * inputs].reshape(m, inputs), self.theta[m * inputs :][:m]

    @cached_property
    def h(self) -> np.ndarray:
        return self.x @ self.W.T

    @cached_property
    def r(self) -> np.ndarray:
        return np.asarray(self.sigma.value(self.h))

    @cached_property
    def delta(self) -> np.ndarray:
        return self.a * np.asarray(self.sigma.slope(self.h))

    @cached_property
    def f(self) -> np.ndarray:
        return self.r @ self.a + (self.theta[-1] if self.offset else 0.0)

    @cached_property
    def gram(self) -> np.ndarray:
        return self.r @ self.r.T + (self.delta @ self.delta.T) * self.gram_x + float(self.offset)

    @cached_property
    def pattern(self):
        return self.h > 0 if self.sigma.piecewise_linear else None

    @cached_property
    def _slope(self) -> np.ndarray:
        return np.asarray(self.seen.slope(self.h))

    @cached_property
    def _value(self) -> np.ndarray:
        return self.r if self.seen is self.sigma else np.asarray(self.seen.value(self.h))

    @cached_property
    def _stretch(self) -> np.ndarray:
        """w_i ‖x̃_i‖²."""
        return self.weight * np.diag(self.gram_x)

    @cached_property
    def _of_a(self) -> np.ndarray:
        """Σ_i w_i ‖x̃_i‖² s′(h_ij)²."""
        return self._stretch @ self._slope**2

    @cached_property
    def sharpness(self) -> float:
        inner = self.weight @ np.vecdot(self._value, self._value)
        return float(inner + self.a**2 @ self._of_a + self.offset * self.weight.sum())

    @cached_property
    def gradient(self) -> np.ndarray:
        by_h = self.weight[:, None] * self._value
        if not self.seen.piecewise_linear:
            curvature = np.asarray(self.seen.curvature(self.h))
            by_h = by_h + self._stretch[:, None] * curvature * self.a**2
        by_h = 2 * by_h * self._slope
        return self._flat(by_h.T @ self.x, 2 * self.a * self._of_a, 0.0)

    def push(self, v):
        m, inputs = self.W.shape
        V, u = v[: m * inputs].reshape(m, inputs), v[m * inputs :][:m]
        moved = np.vecdot(self.delta, self.x @ V.T) + self.r @ u
        return moved + (v[-1] if self.offset else 0.0)

    def pull(self, c):
        return self._flat((c[:, None] * self.delta).T @ self.x, c @ self.r, c.sum())

    def _flat(self, by_W, by_a, by_offset) -> np.ndarray:
        parts = [by_W.ravel(), by_a, [by_offset]]
        return np.concatenate(parts if self.offset else parts[:2])


def _two_layers(model: MLP, x, target, weight, seen: Any) -> Manifold:
    inputs = np.column_stack([x, np.ones(len(x))]) if model.bias else np.asarray(x, np.float64)
    sigma, d = model.sigma, x.shape[1]
    smooth = sigma if seen is model else seen.sigma
    settings = inputs, inputs @ inputs.T, weight, sigma, smooth, model.output_bias

    def flat(params: Params) -> np.ndarray:
        first = np.column_stack([params["W1"], params["b1"]]) if model.bias else params["W1"]
        pieces = [first, params["W2"]] + ([params["b_out"]] if model.output_bias else [])
        return np.concatenate([np.ravel(np.asarray(piece, np.float64)) for piece in pieces])

    def named(theta: np.ndarray) -> Params:
        point = TwoLayers(theta, *settings)
        found = {"W1": point.W[:, :d], "b1": point.W[:, -1], "W2": point.a, "b_out": theta[-1]}
        return {name: np.array(found[name], order="C") for name in model.shapes(d)}

    return Manifold(lambda theta: TwoLayers(theta, *settings), target, flat, named)


@dataclass(eq=False)
class Factored(Point):
    """f, K and Jᵀc in the closed forms of `curvature`, J v and ∇S by passes of JAX through f and
    through ‖∇f_i‖² (`squares`): n × m numbers a layer, in place of J's n × p."""

    theta: np.ndarray
    operator: NetworkHessian
    compiled: "_Passes"
    weight: np.ndarray

    @cached_property
    def _params(self) -> Params:
        return self.operator.by_name(self.theta)

    @cached_property
    def _x(self) -> np.ndarray:
        return self.operator.data.x

    @property
    def f(self):
        return self.operator.f

    @cached_property
    def gram(self):
        return self.operator.gram()

    @cached_property
    def _descent(self) -> tuple[float, np.ndarray]:
        value, gradient = self.compiled.sharpness(self._params, self._x, self.weight)
        return float(value), _in_blocks(self.operator.model, gradient)

    @property
    def sharpness(self):
        return self._descent[0]

    @property
    def gradient(self):
        return self._descent[1]

    @cached_property
    def pattern(self):
        found = self.compiled.pattern
        return None if found is None else np.asarray(found(self._params, self._x))

    def push(self, v):
        return np.asarray(self.compiled.push(self._params, self.operator.by_name(v), self._x))

    def pull(self, c):
        return self.operator.vjp(c)


class _Passes(NamedTuple):
    """Functions of the parameters and the training inputs."""

    push: Any
    sharpness: Any
    pattern: Any


def _in_blocks(model: MLP, params: Params) -> np.ndarray:
    return np.concatenate([block.ravel() for block in blocks_of(model, params).values()])


def _factored(model: MLP, problem: Problem, target, weight, seen: Any) -> Manifold:
    data, passes = problem.data, _passes(model, seen)
    blocks = blocks_of(model, model.init(data.d, 0))
    template = OPERATORS[model.norm](model, blocks, data, problem.loss)

    def at(theta: np.ndarray) -> Factored:
        return Factored(theta, template.at(theta), passes, weight)

    def named(theta: np.ndarray) -> Params:
        return {name: np.array(value) for name, value in template.by_name(theta).items()}

    return Manifold(at, target, lambda params: _in_blocks(model, params), named)


@lru_cache(maxsize=8)
def _passes(model: MLP, seen: MLP) -> _Passes:
    def push(params, direction, x):
        return jax.jvp(lambda p: model.apply(p, x, x), (params,), (direction,))[1]

    def sharpness(params, x, weight):
        return weight @ squares(seen, params, x)

    def pattern(params, x):
        # With statistics the training set's pattern is that of the points themselves.
        found = model.slopes(params, x, x)
        slopes = [jnp.ravel(slope) for place, slope in found.items() if place != "training set"]
        return jnp.concatenate(slopes) == above

    descent = jax.jit(jax.value_and_grad(sharpness))
    if model.sigma.slopes is None:
        return _Passes(jax.jit(push), descent, None)
    above = model.sigma.slopes[1]
    return _Passes(jax.jit(push), descent, jax.jit(pattern))


@dataclass(eq=False)
class Dense(Point):
    """f, J and ∇S by automatic differentiation; J is held whole, n × p."""

    theta: np.ndarray
    compiled: "_Compiled"
    x: np.ndarray
    weight: np.ndarray

    @cached_property
    def _outputs(self) -> tuple[np.ndarray, np.ndarray]:
        f, J = self.compiled.outputs(self.theta, self.x)
        return np.asarray(f), np.asarray(J)

    @property
    def f(self):
        return self._outputs[0]

    @property
    def J(self) -> np.ndarray:
        return self._outputs[1]

    @cached_property
    def gram(self):
        return self.J @ self.J.T

    @cached_property
    def _descent(self) -> tuple[float, np.ndarray]:
        value, gradient = self.compiled.sharpness(self.theta, self.x, self.weight)
        return float(value), np.asarray(gradient)

    @property
    def sharpness(self):
        return self._descent[0]

    @property
    def gradient(self):
        return self._descent[1]

    pattern = None

    def push(self, v):
        return self.J @ v

    def pull(self, c):
        return c @ self.J


class _Compiled(NamedTuple):
    """Functions of θ and the training inputs."""

    outputs: Any
    sharpness: Any


def _dense(model: Any, x, target, weight, seen: Any) -> Manifold:
    template = {name: np.asarray(v) for name, v in model.init(x.shape[1], 0).items()}
    theta, unravel = ravel_pytree(template)
    at_once = max(1, min(len(x), _ENTRIES_AT_ONCE // theta.size))
    shapes = tuple((name, value.shape) for name, value in template.items())
    compiled, x = _compile(model, seen, shapes, at_once), np.asarray(x, np.float64)

    def named(theta: np.ndarray) -> Params:
        return {name: np.array(value) for name, value in unravel(jnp.asarray(theta)).items()}

    def flat(params: Params) -> np.ndarray:
        ordered = {name: jnp.asarray(params[name], jnp.float64) for name in template}
        return np.array(ravel_pytree(ordered)[0])

    return Manifold(lambda theta: Dense(theta, compiled, x, weight), target, flat, named)


@lru_cache(maxsize=8)
def _compile(model: Any, seen: Any, shapes: tuple, at_once: int) -> _Compiled:
    _, unravel = ravel_pytree({name: jnp.zeros(shape) for name, shape in shapes})

    def output(network: Model, x, sample):
        return lambda theta: network.apply(unravel(theta), sample[None], x)[0]

    def outputs(theta, x):
        one = lambda sample: jax.value_and_grad(output(model, x, sample))(theta)  # noqa: E731
        return jax.lax.map(one, x, batch_size=at_once)

    def sharpness(theta, x, weight):
        def square(theta, sample, share):
            g = jax.grad(output(seen, x, sample))(theta)
            return share * g @ g

        def add(total, sample):
            value, gradient = jax.value_and_grad(square)(theta, *sample)
            return (total[0] + value, total[1] + gradient), None

        return jax.lax.scan(add, (0.0, jnp.zeros_like(theta)), (x, weight))[0]

    return _Compiled(jax.jit(outputs), jax.jit(sharpness))


def norm(v: np.ndarray) -> float:
    return float(np.linalg.norm(v))
