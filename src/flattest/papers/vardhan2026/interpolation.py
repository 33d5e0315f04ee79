"""The flattest interpolators for given inner weights, and what is measured of them."""

import numpy as np

from flattest.flatness.interpolators import Interpolator, flattest_interpolator
from flattest.problem.activations import activation
from flattest.problem.data import Dataset, MultiIndex, SumOfSingleIndex
from flattest.problem.multi_index import bad_inner_weights, inner_weights, population_loss
from flattest.rescaling.two_layer import norm_exponent, orbit_weights

_MEASURED = (
    "norm",
    "flatness",
    "population_loss",
    "test_loss",
    "weighted_flatness",
    "weighted_population_loss",
)


def flattest_outer_weights(W, data: Dataset, name: str, weights=None) -> Interpolator:
    """Eq. (3) for inner weights W: min Σ ω_j |a_j|^p over interpolators of the data."""
    phi = np.asarray(activation(name).value(data.x @ W.T))
    return flattest_interpolator(phi, data.y, norm_exponent(name), weights)


def of_correlation(
    rho: float, m: int, data: Dataset, fresh, distribution: MultiIndex, name: str, seed: int
) -> dict[str, float]:
    """The flattest interpolators with m unit inner weights of correlation exactly ρ."""
    W = inner_weights(distribution.directions, m, rho, seed)
    omega = orbit_weights(W, data.x, name)
    plain = flattest_outer_weights(W, data, name)
    exact = flattest_outer_weights(W, data, name, omega)
    if not plain.status == exact.status == "optimal":
        return {**dict.fromkeys(_MEASURED, np.nan), "certified": 0.0}
    f = np.asarray(activation(name).value(fresh.x @ W.T)) @ plain.a
    return {
        "norm": plain.value,
        "flatness": float(omega @ np.abs(plain.a) ** norm_exponent(name)),
        "population_loss": population_loss(W, plain.a, distribution, name),
        "test_loss": float(np.mean((f - fresh.y) ** 2)),
        "weighted_flatness": exact.value,
        "weighted_population_loss": population_loss(W, exact.a, distribution, name),
        "certified": 1.0,
    }


def good_and_bad(n: int, r: int, tau: float, name: str, seed: int) -> dict[str, float]:
    """The flattest interpolators of n points with good and with bad inner weights, d = 2n."""
    d = 2 * n
    distribution = SumOfSingleIndex(d, r, name, tau / np.sqrt(n))
    data = distribution.draw(n, seed)
    U = distribution.directions
    teacher = np.resize(U, (n, d))
    spare = inner_weights(U, 2 * n, np.sqrt(r / d), seed)
    pools = {
        "good": np.concatenate([teacher, spare]),
        "bad": bad_inner_weights(U, 3 * n, 0.0, seed),
    }
    found = {pool: _scaled(W, data, distribution, name) for pool, W in pools.items()}
    return {f"{pool}{series}": v for pool, row in found.items() for series, v in row.items()}


def _scaled(W, data: Dataset, distribution: MultiIndex, name: str) -> dict[str, float]:
    p = norm_exponent(name)
    found = flattest_outer_weights(W, data, name)
    if found.status != "optimal":
        return {"": np.nan, "_flatness": np.nan, "_excess_loss": np.nan, "_certified": 0.0}
    omega = orbit_weights(W, data.x, name) / data.d ** (p / 2)
    loss = population_loss(W, found.a, distribution, name)
    return {
        "": found.value,
        "_flatness": float(omega @ np.abs(found.a) ** p),
        "_excess_loss": loss - distribution.noise**2,
        "_certified": 1.0,
    }
