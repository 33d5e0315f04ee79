"""The metrics of a network at a point of the log, in float64, and whether a run is stuck."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flattest.curvature.diagonal import trace
from flattest.curvature.mlp import NetworkHessian
from flattest.curvature.operator import Operator
from flattest.curvature.sharpness import operator_of
from flattest.flatness.bounds import known_lower_bound
from flattest.problem.checks import check_count
from flattest.problem.data import Dataset, Population
from flattest.problem.libraries import torch_model
from flattest.problem.losses import Loss, per_sample, zero_one_error
from flattest.problem.models import MLP, Model, Params
from flattest.problem.randomness import generator

if TYPE_CHECKING:
    from flattest.training.kernels.cube import Cube
    from flattest.training.kernels.two_layer import Samples, Sums

Point = dict[str, float]  # what is logged at one epoch
Series = dict[str, np.ndarray]

# Rows of a test set evaluated at once: their pre-activations stay in the processor's cache.
_ROWS_AT_ONCE = 500
# A run has stagnated if it did not move for this many steps and half of its epochs.
_PATIENCE = 1000


@dataclass(frozen=True, eq=False)
class Metrics:
    """What is evaluated of networks with this model on these data.

    The test population is None where no distribution is known.
    """

    model: Model
    data: Dataset
    loss: Loss
    population: Population | None

    def at(self, params: Mapping[str, np.ndarray], measures: Iterable[str]) -> Point:
        """The metrics at θ, in float64 whatever the precision of θ."""
        exact = {name: np.asarray(value, np.float64) for name, value in params.items()}
        network, point = Network(self, exact), Point()
        # Shortly before it diverges, a network's metrics may be too large for float64: inf is true.
        with np.errstate(over="ignore", invalid="ignore"):
            for name in dict.fromkeys(("training", *measures)):
                point |= METRICS[name](network)
        return point

    def outputs(self, params: Params, x: np.ndarray) -> np.ndarray:
        """f_θ on the rows of x."""
        if (model := torch_model(self.model)) is not None:
            return model.apply(params, x)
        return np.asarray(_outputs(self.model, params, x, self.data.x))

    def test_outputs(self, params: Params, points: Population) -> np.ndarray:
        """f_θ on the test points, which are most of what a point of the log costs."""
        low = _slope_below(self.model)
        if low is None or self._cube is None:
            return self.outputs(params, points.x)
        return self._cube.outputs(params, low)

    @cached_property
    def _cube(self) -> "Cube | None":
        """The test points as `kernels.cube` takes them."""
        from flattest.training.kernels.cube import Cube  # brings Numba along

        return None if self.population is None else Cube.of(self.population.x)

    @cached_property
    def samples(self) -> "Samples | None":
        """The training inputs x′ as `kernels.two_layer` takes them, where it knows the network."""
        if _slope_below(self.model) is None:
            return None
        from flattest.training.kernels.two_layer import LEAST_ENTRIES, Samples  # brings Numba along

        model, x = cast(MLP, self.model), self.data.x
        if self.data.n * model.width < LEAST_ENTRIES:
            return None
        return Samples.of(np.column_stack([x, np.ones(len(x))]) if model.bias else x)

    def mean_loss(self, f: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(per_sample(self.loss, f, y)))

    @cached_property
    def least_loss(self) -> float:
        """The mean of the least values of ℓ: the training loss of an interpolator."""
        return float(np.mean(self.loss.floor(self.data.y)))

    @cached_property
    def constant_loss(self) -> float:
        """The training loss of the best constant output."""
        constant = np.asarray(self.loss.constant(self.data.y))
        shape = self.data.n, *constant.shape
        return self.mean_loss(np.broadcast_to(constant, shape), self.data.y)

    @cached_property
    def bound(self) -> float:
        """The certified lower bound on Tr ∇²L; NaN where none is known, or no minimizer exists."""
        if not np.isfinite(self.loss.target(self.data.y)).all():
            return float("nan")
        bound = known_lower_bound(self.model, self.data, self.loss)
        return float("nan") if bound is None else bound.value


def _slope_below(model: Model) -> float | None:
    """σ′ below 0 where f = W2 · σ(W1 x + b1) + b_out, with σ linear below 0 and σ(t) = t above."""
    if not isinstance(model, MLP) or model.depth > 2 or model.norm is not None:
        return None
    slopes = model.sigma.slopes
    return slopes[0] if slopes is not None and slopes[1] == 1 else None


@dataclass(frozen=True, eq=False)
class Network:
    """A network at a point of the log: what its metrics share is computed once."""

    metrics: Metrics
    params: Params

    @cached_property
    def hessian(self) -> Operator:
        """∇²L(θ), whose closed forms have f, ∇L and the trace from the same pre-activations."""
        metrics = self.metrics
        return operator_of(metrics.model, self.params, metrics.data, metrics.loss)

    @cached_property
    def sums(self) -> "tuple[np.ndarray, Sums] | None":
        """f_θ on the training set with ‖∇L‖², Tr ∇²L and the active neurons, by a kernel of their
        own where there is one: Tr ∇²f = 0 on a linear piece."""
        metrics, params, low = self.metrics, self.params, _slope_below(self.metrics.model)
        if low is None or metrics.samples is None:
            return None
        a, data = params["W2"], metrics.data
        W = np.column_stack([params["W1"], params["b1"]]) if "b1" in params else params["W1"]
        f, h = metrics.samples.forward(W, a, low)
        f += params.get("b_out", 0.0)
        u = metrics.loss.slope(f, data.y) / data.n
        w = metrics.loss.curvature(f, data.y) / data.n
        found = metrics.samples.backward(h, a, low, u, w)
        if "b_out" in params:
            gradient, trace_ = found.gradient + u.sum() ** 2, found.trace + w.sum()
            found = found._replace(gradient=gradient, trace=trace_)
        return f, found

    @cached_property
    def training(self) -> tuple[float, np.ndarray, float]:
        """L(θ), f_θ on the training set and ‖∇L(θ)‖."""
        metrics, model = self.metrics, self.metrics.model
        if self.sums is not None:
            f, sums = self.sums
            return metrics.mean_loss(f, metrics.data.y), f, float(np.sqrt(sums.gradient))
        if isinstance(model, MLP):
            found = cast(NetworkHessian, self.hessian)
            return found.mean_loss(), found.f, float(np.sqrt(_square(found.vjp(found.u))))
        data = metrics.data
        if (torch := torch_model(model)) is not None:
            from flattest.training.module_engine import loss_and_gradient  # brings PyTorch along

            (value, f), g = loss_and_gradient(torch, metrics.loss, self.params, data)
        else:
            (value, f), g = _loss_and_gradient(model, metrics.loss, self.params, data.x, data.y)
        return float(value), f, float(np.sqrt(sum(map(_square, g.values()))))

    @cached_property
    def trace(self) -> float:
        """Tr ∇²L(θ), infinite where it overflows."""
        if self.sums is None:
            return float(trace(self.hessian))
        value = self.sums[1].trace
        return value if np.isfinite(value) else np.inf

    @cached_property
    def active(self) -> float:
        """Neurons of the first layer with σ′ ≠ 0 on some training point: the others get no
        gradient."""
        if self.sums is not None:
            return float(self.sums[1].active)
        if not isinstance(self.metrics.model, MLP):
            return float("nan")
        slopes = cast(NetworkHessian, self.hessian).first_slopes
        return float((slopes != 0).any(axis=0).sum())

    @cached_property
    def squares(self) -> dict[str, float]:
        """‖W‖² by parameter."""
        return {name: _square(value) for name, value in self.params.items()}


def _training(network: Network) -> Point:
    value, f, gradient_norm = network.training
    return {
        "train_loss": value,
        "train_error": zero_one_error(f, network.metrics.data.y),
        "gradient_norm": gradient_norm,
        "norm": float(np.sqrt(sum(network.squares.values()))),
    }


def _sharpness(network: Network) -> Point:
    value, bound = network.trace, network.metrics.bound
    return {"sharpness": value, "bound": bound, "gap": value / bound - 1 if bound else value}


def _test(network: Network) -> Point:
    metrics, points = network.metrics, network.metrics.population
    if points is None:
        return {"test_loss": float("nan"), "test_error": float("nan")}
    f = metrics.test_outputs(network.params, points)
    return {
        "test_loss": metrics.mean_loss(f, points.y),
        "test_error": zero_one_error(f, points.y),
    }


def _norms(network: Network) -> Point:
    return {f"norm_{name}": float(np.sqrt(square)) for name, square in network.squares.items()}


def _neurons(network: Network) -> Point:
    return {"active_neurons": network.active}


# One for each name in `log.MEASURES`.
METRICS: dict[str, Callable[[Network], Point]] = {
    "training": _training,
    "sharpness": _sharpness,
    "test": _test,
    "norms": _norms,
    "neurons": _neurons,
}


def draw_population(data: Dataset, size: int, seed: int) -> Population | None:
    """The test points: the whole support where it has at most `size` points, else a sample."""
    size = check_count("test_size", size)
    if data.distribution is None:
        return None
    points = data.distribution.population(size, seed)
    if len(points.y) <= size:
        return points
    return Population(*data.distribution.sample(generator(seed, "population"), size), exact=False)


def stagnated_at(series: Series, metrics: Metrics, weight_decay: bool) -> int | None:
    """The step since which a run has been stuck above its minimum, None if it is not.

    Let e = L − min L and c the same for the best constant output. A point with e > c/1000 is stuck
    - at a critical point of L, if ‖θ‖ ‖∇L(θ)‖ ≤ 10⁻⁶ e (no relative change of θ matters);
    - in collapse, if e ≥ 0.99 c: the network is no better than a constant (the saddle at 0);
    - standing still, if its loss equals the final one to 10⁻⁹ e, except under weight decay, whose
      minimum has L > min L.
    The run has stagnated if its points are stuck from some point to the end, over at least 1000
    steps and half of its epochs.
    """
    least, epoch, step = metrics.least_loss, series["epoch"], series["step"]
    excess, scale = series["train_loss"] - least, metrics.constant_loss - least
    critical = series["norm"] * series["gradient_norm"] <= 1e-6 * excess
    collapsed = (excess >= 0.99 * scale) & (scale > 0)
    # Every point is compared with the last one, and that with the one before it.
    other = np.append(np.full(len(excess) - 1, excess[-1]), excess[-2])
    still = (np.abs(excess - other) <= 1e-9 * excess) & (not weight_decay)
    stuck = (excess > 1e-3 * scale) & (critical | collapsed | still)
    moving = np.flatnonzero(~stuck)
    first = moving[-1] + 1 if len(moving) else 0
    if first >= len(stuck) - 1 or step[-1] - step[first] < _PATIENCE:
        return None
    return int(step[first]) if 2 * epoch[first] <= epoch[-1] else None


def _square(array) -> float:
    return np.sum(np.square(np.asarray(array)))


@partial(jax.jit, static_argnums=(0, 1))
def _loss_and_gradient(model: Model, loss: Loss, params: Params, x, y):
    """(L(θ), f_θ on the training set) and ∇L(θ)."""

    def mean_loss(params):
        f = model.apply(params, x, x)
        return jnp.mean(per_sample(loss, f, y)), f

    return jax.value_and_grad(mean_loss, has_aux=True)(params)


@partial(jax.jit, static_argnums=0)
def _outputs(model: Model, params: Params, x, train_x):
    """f_θ by chunks of rows whose pre-activations stay in the processor's cache, which is several
    times as fast as all rows at once."""

    def output(row):
        return model.apply(params, row[None], train_x)[0]

    return lax.map(output, x, batch_size=_ROWS_AT_ONCE)
