"""Instances the checks share, and measures by finite differences, which share no code with the
closed forms and no autodiff."""

from collections.abc import Sequence
from functools import cache

import numpy as np

import flattest as ft
from flattest.problem.losses import Loss
from flattest.problem.models import Params
from flattest.problem.randomness import generator

D, N, WIDTH = 4, 6, 9
SMALL_MODELS = (
    ft.MLP(WIDTH),
    ft.MLP(WIDTH, bias=True),
    ft.MLP(WIDTH, bias=True, depth=3),
    ft.MLP(WIDTH, bias=True, norm="sim_ln", epsilon=0.1),
    ft.MLP(WIDTH, bias=True, norm="sim_bn"),
    ft.MLP(WIDTH, bias=True, activation="softplus"),
)
_STEP = 2e-4
# Fourth-order central differences at −2h … 2h.
_FIRST = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / 12
_SECOND = np.array([-1.0, 16.0, -30.0, 16.0, -1.0]) / 12


def _derivatives(function, params: Params, stencil: np.ndarray, order: int) -> np.ndarray:
    """The derivative of this order along each single parameter: one row for each."""
    rows = []
    for name, value in params.items():
        for index in np.ndindex(np.shape(value)):
            step = _STEP * max(1.0, abs(float(np.asarray(value)[index])))
            shifted = []
            for k in range(-2, 3):
                moved = {**params, name: np.array(value, float)}
                moved[name][index] += k * step
                shifted.append(np.asarray(function(moved), float))
            rows.append(np.tensordot(stencil, np.array(shifted), axes=1) / step**order)
    return np.array(rows)


def dense_trace(model: ft.MLP, params: Params, data: ft.Dataset, by: "str | Loss" = "mse") -> float:
    """Tr ∇²L, the sum of L's second differences along all parameters."""
    rule = ft.loss(by)

    def L(params):
        f = np.asarray(model.apply(params, data.x, data.x), float)
        return rule.value(f, data.y).mean()

    return float(_derivatives(L, params, _SECOND, 2).sum())


def squared_gradients(model: ft.MLP, params: Params, data: ft.Dataset) -> np.ndarray:
    """‖∇f(x_i)‖² for each training point."""
    J = _derivatives(lambda params: model.apply(params, data.x, data.x), params, _FIRST, 1)
    return (J**2).sum(axis=0)


def output_traces(model: ft.MLP, params: Params, data: ft.Dataset) -> np.ndarray:
    """Tr ∇²f(x_i) for each training point."""
    return _derivatives(lambda params: model.apply(params, data.x, data.x), params, _SECOND, 2).sum(
        axis=0
    )


def own_trace(layers: Sequence[np.ndarray], x: np.ndarray) -> tuple[float, np.ndarray]:
    """(2/n) Σ‖∇f(x_i)‖², which is Tr ∇²L where the labels are the network's own outputs f(x_i)
    (Lemma 4.1), and these.

    f = W_D σ(… W_2 σ(W_1 x)), by forward and backward pass: ‖∂f/∂W_l‖² = ‖δ_l‖²‖a_{l−1}‖².
    """
    activations = [x]
    for W in layers[:-1]:
        activations.append(np.maximum(activations[-1] @ W.T, 0))
    delta = np.ones((len(x), 1))
    total = 0.0
    for W, a in zip(
        reversed([np.atleast_2d(W) for W in layers]), reversed(activations), strict=True
    ):
        total += float(((delta**2).sum(axis=1) * (a**2).sum(axis=1)).sum())
        delta = (delta @ np.atleast_2d(W)) * (a > 0)
    return 2 * total / len(x), activations[-1] @ layers[-1]


def with_ones(x: np.ndarray) -> np.ndarray:
    """x' = (x, 1)."""
    return np.column_stack([x, np.ones(len(x))])


@cache
def small_data() -> ft.Dataset:
    """Six points in general position with ±1 labels."""
    rng = generator(0, "claims/small data")
    return ft.Dataset(rng.normal(size=(N, D)), 1.0 - 2.0 * rng.integers(0, 2, N))


def random_interpolator(
    model: ft.MLP, data: ft.Dataset, seed: int, by: "str | Loss" = "mse", spread: float = 0.3
) -> Params:
    """Random parameters whose last layer, in which f is linear, is solved for the targets.

    `spread` adds that much of a random vector of the features' kernel.
    """
    params = model.init(data.d, seed)
    last = f"W{model.depth}"
    # With the identity for its last layer a network gives out its features.
    features = ft.predict(model, {**params, last: np.eye(model.width)}, data.x, data.x)
    target = np.asarray(ft.loss(by).target(data.y), float)
    solution = np.linalg.pinv(features) @ target
    free = generator(seed, "claims/kernel").normal(size=model.width) * spread
    return {**params, last: solution + free - np.linalg.pinv(features) @ (features @ free)}


@cache
def small_interpolators(by: "str | Loss" = "mse") -> tuple[tuple[ft.MLP, Params, ft.Dataset], ...]:
    """One random interpolator for each small architecture."""
    data = small_data()
    return tuple((m, random_interpolator(m, data, 1, by), data) for m in SMALL_MODELS)


def max_error(model: ft.MLP, params: Params, data: ft.Dataset, by: "str | Loss" = "mse") -> float:
    """max |f(x_i) − target_i|."""
    target = np.asarray(ft.loss(by).target(data.y), float)
    return float(np.abs(ft.predict(model, params, data.x, data.x) - target).max())
