"""What can be certified about parameters from anywhere: do they interpolate, how flat are they
against the flattest possible, do they memorize, do they generalize."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flattest.bounds import Bound, known_lower_bound
from flattest.data import Dataset, Estimate, population_mean
from flattest.errors import FlattestError
from flattest.losses import Loss
from flattest.losses import loss as resolve_loss
from flattest.models import MLP, Model, Params, predict
from flattest.sharpness import trace

INTERPOLATES = 1e-10


@dataclass(frozen=True)
class Certification:
    """`certify`'s findings; `ratio` is trace / bound, 1 for a flattest interpolator. Where no bound
    is proven, or the bound is 0, there is no ratio, and without a distribution no test error."""

    interpolation_error: float
    trace: float
    bound: Bound | None
    ratio: float | None
    memorizing: bool
    test_error: Estimate | None
    test_mse: Estimate | None

    @property
    def interpolates(self) -> bool:
        return self.interpolation_error <= INTERPOLATES

    @property
    def flattest(self) -> bool:
        """Whether the network interpolates and meets the bound to 1e-9."""
        return self.interpolates and self.ratio is not None and abs(self.ratio - 1) <= 1e-9


def certify(
    model: MLP,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    size: int = 10_000,
    seed: int = 0,
) -> Certification:
    """Everything at once; errors over `size` fresh points where the support is not enumerated."""
    model.check(params, data.d)
    sharpness, bound = float(trace(model, params, data, loss)), known_lower_bound(model, data, loss)
    test = data.distribution is not None
    return Certification(
        interpolation_error(model, params, data, loss),
        sharpness,
        bound,
        sharpness / bound.value if bound is not None and bound.value > 0 else None,
        memorizes(model, params, data, loss),
        population_error(model, params, data, size, seed) if test else None,
        population_mse(model, params, data, loss, size, seed) if test else None,
    )


def interpolation_error(
    model: Model, params: Params, data: Dataset, loss: str | Loss = "mse"
) -> float:
    """max |f(x_i) − t_i|, where t_i is the output that minimizes the loss at y_i."""
    # NumPy arrays, so that plain networks need no compilation.
    exact = {name: np.asarray(value, np.float64) for name, value in params.items()}
    f = np.asarray(model.apply(exact, data.x, data.x))
    return float(np.abs(f - resolve_loss(loss).target(data.y)).max())


def memorizes(
    model: MLP,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    tolerance: float = INTERPOLATES,
) -> bool:
    """Definition 4.2: θ interpolates, and in every hidden layer each input activates exactly one
    neuron, different inputs different ones."""
    if not interpolation_error(model, params, data, loss) <= tolerance:  # nor if it is NaN
        return False
    x = np.unique(data.x, axis=0)
    return all(_is_one_hot(a) for a in hidden_layers(model, params, x))


def hidden_layers(model: MLP, params: Params, x: np.ndarray) -> Iterator[np.ndarray]:
    """The activations of layers 1, …, D − 1 at the rows of x, before any normalization."""
    exact = {name: np.asarray(value, np.float64) for name, value in params.items()}
    a = np.asarray(model.first_layer(exact, x))
    yield a
    for layer in range(2, model.depth):
        a = np.asarray(model.sigma.value(a @ exact[f"W{layer}"].T))
        yield a


def _is_one_hot(a: np.ndarray) -> bool:
    active = a != 0
    return bool((active.sum(axis=1) == 1).all() and (active.sum(axis=0) <= 1).all())


def population_error(
    model: Model, params: Params, data: Dataset, size: int = 10_000, seed: int = 0
) -> Estimate:
    """Pr(y f(x) ≤ 0), over the whole support where it can be enumerated."""
    return _population_mean(model, params, data, lambda f, y: y * f <= 0, size, seed)


def population_mse(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    size: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """E (f(x) − t)², t the output that minimizes the loss at y."""
    target = resolve_loss(loss).target
    return _population_mean(model, params, data, lambda f, y: (f - target(y)) ** 2, size, seed)


def _population_mean(model, params, data, metric, size, seed) -> Estimate:
    if data.distribution is None:
        raise FlattestError("The test error needs the distribution that the data came from.")
    return population_mean(
        data.distribution, lambda x: predict(model, params, x, data.x), metric, size, seed
    )
