"""What can be certified about parameters from anywhere: do they interpolate, how flat are they
against the flattest possible, do they memorize, do they generalize."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.bounds import Bound, known_lower_bound, lower_bound, targets
from flattest.problem.data import Dataset, Estimate, population_mean, require_dataset
from flattest.problem.losses import Loss, interpolates, loss as resolve_loss, wrong
from flattest.problem.models import MLP, Model, Params, in_float64, predict

ZERO = 1e-14
"""A pre-activation w·x this small against ‖w‖‖x‖ is 0 to rounding."""
FLATTEST = 1e-9
"""A network whose trace is this close to its lower bound, relatively, is called flattest."""


@dataclass(frozen=True)
class Certification:
    """`certify`'s findings; `ratio` is trace / bound, 1 for a flattest interpolator. Where no bound
    is proven, or the bound is 0, there is no ratio, and without a distribution no test error. Of a
    network that is not an MLP nothing is known of kinks and neurons: None."""

    interpolation_error: float
    interpolates: bool
    differentiable: bool | None
    trace: float
    bound: Bound | None
    ratio: float | None
    memorizing: bool | None
    test_error: Estimate | None
    test_mse: Estimate | None

    @property
    def flattest(self) -> bool:
        """Whether the network interpolates, L has a Hessian there, and it meets the bound to
        1e-9."""
        met = self.ratio is not None and abs(self.ratio - 1) <= FLATTEST
        return self.interpolates and bool(self.differentiable) and met


def certify(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    size: int = 10_000,
    seed: int = 0,
) -> Certification:
    """Everything at once; errors over `size` fresh points where the support is not enumerated."""
    require_dataset(data)
    mlp = model if isinstance(model, MLP) else None
    if mlp is not None:
        mlp.check(params, data.d)
    sharpness, bound = _trace(model, params, data, loss), known_lower_bound(model, data, loss)
    test = data.distribution is not None
    return Certification(
        interpolation_error(model, params, data, loss),
        is_interpolator(model, params, data, loss),
        None if mlp is None else differentiable(mlp, params, data.x),
        sharpness,
        bound,
        sharpness / bound.value if bound is not None and bound.value > 0 else None,
        None if mlp is None else memorizes(mlp, params, data, loss),
        population_error(model, params, data, size, seed) if test else None,
        population_mse(model, params, data, loss, size, seed) if test else None,
    )


def flatness_ratio(model: Model, params: Params, data: Dataset, loss: str | Loss = "mse") -> float:
    """Tr ∇²L divided by its lower bound: how far from the flattest possible, 1 at the flattest."""
    bound = lower_bound(model, data, loss)
    if bound.value == 0:
        raise FlattestError("The least sharpness on these data is 0, so there is no ratio to it.")
    return _trace(model, params, data, loss) / bound.value


def _trace(model: Model, params: Params, data: Dataset, loss: str | Loss) -> float:
    from flattest.curvature.sharpness import trace  # brings JAX, which `--help` does not wait for

    return float(trace(model, params, data, loss))


def interpolation_error(
    model: Model, params: Params, data: Dataset, loss: str | Loss = "mse"
) -> float:
    """max |f(x_i) − t_i|, where t_i is the output that minimizes the loss at y_i; where the loss
    sees only differences of outputs, that of these."""
    f, t = _seen(model, params, data, loss)
    return float(np.abs(f - t).max())


def is_interpolator(model: Model, params: Params, data: Dataset, loss: str | Loss = "mse") -> bool:
    """Whether the network `interpolates` the targets t_i of the training set."""
    return interpolates(*_seen(model, params, data, loss))


def _seen(
    model: Model, params: Params, data: Dataset, loss: str | Loss
) -> tuple[np.ndarray, np.ndarray]:
    """What the loss sees of f(x_i) and of t_i."""
    kind = resolve_loss(loss)
    return kind.seen(_outputs(model, params, data)), kind.seen(targets(kind, data.y))


def _outputs(model: Model, params: Params, data: Dataset) -> np.ndarray:
    """f(x_i), from NumPy arrays, so that plain networks need no compilation."""
    return np.asarray(model.apply(in_float64(params), data.x, data.x))


def memorizes(model: MLP, params: Params, data: Dataset, loss: str | Loss = "mse") -> bool:
    """Definition 4.2: θ interpolates, and in every hidden layer each input activates exactly one
    neuron, different inputs different ones."""
    layers = hidden_layers(model, params, np.unique(data.x, axis=0))
    return is_interpolator(model, params, data, loss) and all(map(_is_one_hot, layers))


def hidden_layers(model: MLP, params: Params, x: np.ndarray) -> Iterator[np.ndarray]:
    """The activations of layers 1, …, D − 1 at the rows of x, before any normalization."""
    return (np.asarray(model.sigma.value(layer.h)) for layer in _layers(model, params, x))


def _is_one_hot(a: np.ndarray) -> bool:
    active = a != 0
    return bool((active.sum(axis=1) == 1).all() and (active.sum(axis=0) <= 1).all())


def differentiable(model: MLP, params: Params, x: np.ndarray) -> bool:
    """Whether f_θ(x_i) is differentiable in θ at every row of x: L has no Hessian elsewhere.

    A kink is a unit with pre-activation 0, where σ′ jumps, that is not cut off from the output by
    weights of 0 or inactive units; for Sim-LN also ‖r‖ = ε.
    """
    exact = in_float64(params)
    if model.normalization.floored and _is_at_epsilon(model, exact, x):
        return False
    below, above = np.asarray(model.sigma.slope(np.array([-1e-200, 1e-200])))
    if below == above:
        return True
    layers = list(_layers(model, params, x))
    leads = np.broadcast_to(_counts(model, exact, layers[-1]), layers[-1].h.shape)
    for number, layer in reversed(list(enumerate(layers, 1))):
        if (layer.at_zero & layer.moves & leads).any():
            return False
        if number > 1:
            live = leads & (layer.at_zero | (np.asarray(model.sigma.slope(layer.h)) != 0))
            leads = live @ (exact[f"W{number}"] != 0)
    return True


class _Layer(NamedTuple):
    """Pre-activations (n, m), which of them are 0, and for which inputs weights can move them."""

    h: np.ndarray
    at_zero: np.ndarray
    moves: np.ndarray


def _layers(model: MLP, params: Params, x: np.ndarray) -> Iterator[_Layer]:
    exact = in_float64(params)
    a = np.column_stack([x, np.ones(len(x))]) if model.bias else x
    W = np.column_stack([exact["W1"], exact["b1"]]) if model.bias else exact["W1"]
    for layer in range(1, model.depth):
        W = exact[f"W{layer}"] if layer > 1 else W
        h, size = a @ W.T, np.linalg.norm(a, axis=1, keepdims=True)
        yield _Layer(h, np.abs(h) <= ZERO * size * np.linalg.norm(W, axis=1), size > 0)
        a = np.asarray(model.sigma.value(h))


def _counts(model: MLP, exact: Params, last: _Layer) -> np.ndarray:
    """Which units of the last hidden layer the output depends on, to first order in θ.

    Sim-BN's r_j/s_j is not continuous where r_j is 0 on all inputs: there W2_j or γ_j ≠ 0 is
    enough.
    """
    outer = exact[f"W{model.depth}"]
    if not model.normalization.by_neuron:
        return outer != 0
    gamma = exact["gamma"]
    silent = (last.at_zero | (np.asarray(model.sigma.value(last.h)) == 0)).all(axis=0)
    return np.where(silent, (outer != 0) | (gamma != 0), outer * gamma != 0)


def _is_at_epsilon(model: MLP, exact: Params, x: np.ndarray) -> bool:
    norms = np.linalg.norm(np.asarray(model.first_layer(exact, x)), axis=1)
    return bool((np.abs(norms - model.epsilon) <= ZERO * model.epsilon).any())


def population_error(
    model: Model, params: Params, data: Dataset, size: int = 10_000, seed: int = 0
) -> Estimate:
    """The share of points that are classified wrongly, for one output Pr(y f(x) ≤ 0), over the
    whole support where it can be enumerated."""
    return _population_mean(model, params, data, wrong, size, seed)


def population_mse(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    size: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """E ‖f(x) − t‖², t the outputs that minimize the loss at y, as far as the loss sees them."""
    kind = resolve_loss(loss)

    def squares(f, y):
        squared = (kind.seen(f) - kind.seen(kind.target(y))) ** 2
        return squared.reshape(len(y), -1).sum(1)

    return _population_mean(model, params, data, squares, size, seed)


def _population_mean(model, params, data, metric, size, seed) -> Estimate:
    if data.distribution is None:
        raise FlattestError("The test error needs the distribution that the data came from.")
    return population_mean(
        data.distribution, lambda x: predict(model, params, x, data.x), metric, size, seed
    )
