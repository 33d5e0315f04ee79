"""The table of models × data × losses that the measures are tested on."""

from functools import cache

import numpy as np

import flattest as ft
from support import reference

# Few enough points that every architecture's features can interpolate them, even with a linear σ.
N, D, WIDTH = 4, 4, 6

SMOOTH = ("softplus", "tanh", "silu", "gelu")  # none of them is homogeneous
ACTIVATIONS = ("relu", "leaky_relu:0.1", *SMOOTH, "quadratic", "relu^3", "linear")
LOSSES = ("mse", "half_mse", "logistic")
ARCHITECTURES: dict[str, dict] = {
    "no_bias": {},
    "bias": {"bias": True},
    "output_bias": {"bias": True, "output_bias": True},
    "depth3": {"bias": True, "depth": 3},
    "depth4": {"depth": 4, "output_bias": True},
    "sim_bn": {"bias": True, "norm": "sim_bn"},
    "sim_bn_no_bias": {"norm": "sim_bn", "output_bias": True},
    "sim_ln": {"bias": True, "norm": "sim_ln"},
    # Some rows have ‖r‖ below this ε and some above: both branches of max(‖r‖, ε).
    "sim_ln_epsilon": {"norm": "sim_ln", "epsilon": 1.0, "output_bias": True},
}
POINTS = ("random", "near_interpolation", "inactive_neurons")


def model(architecture: str, activation: str = "relu", width: int = WIDTH) -> ft.MLP:
    return ft.MLP(width=width, activation=activation, **ARCHITECTURES[architecture])


@cache
def data(n: int = N, d: int = D, seed: int = 0) -> ft.Dataset:
    """Gaussian inputs with labels ±1, which every loss takes."""
    rng = np.random.default_rng(seed)
    return ft.Dataset(rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n))


def params(model: ft.MLP, data: ft.Dataset, point: str = "random", loss="mse", seed: int = 1):
    """Parameters of one of the kinds in POINTS."""
    return _POINTS[point](model, data, loss, seed)


def _random(model, data, loss, seed):
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=s) * 0.8 for k, s in model.shapes(data.d).items()}


def _near_interpolation(model, data, loss, seed):
    """The first draw whose features can be fitted, moved by 1e-8: |ℓ′| ≤ 1e-3, and not 0."""
    kind = ft.loss(loss)
    for attempt in range(seed, seed + 1000):
        theta = reference.interpolate(model, _random(model, data, loss, attempt), data, loss)
        noise = _random(model, data, loss, attempt + 1)
        moved = {k: theta[k] + 1e-8 * noise[k] for k in theta}
        f = np.asarray(model.apply(moved, data.x, data.x))
        if np.abs(kind.slope(f, data.y)).max() <= 1e-3:
            return moved
    raise AssertionError(f"{model} cannot interpolate")


def _inactive_neurons(model, data, loss, seed):
    """Two neurons with pre-activation −1 at every training point (needs n ≤ d)."""
    theta = _random(model, data, loss, seed)
    shift = theta["b1"][:2] if model.bias else np.zeros(2)
    theta["W1"][:2] = np.linalg.pinv(data.x).dot(-np.ones((data.n, 2)) - shift).T
    return theta


_POINTS = {
    "random": _random,
    "near_interpolation": _near_interpolation,
    "inactive_neurons": _inactive_neurons,
}
