"""The flattest interpolators for given inner weights, and what is measured of them."""

import numpy as np

import flattest as ft
from flattest.problem.distributions import MultiIndex

_MEASURED = (
    "norm",
    "flatness",
    "population_loss",
    "test_loss",
    "weighted_flatness",
    "weighted_population_loss",
)


def flattest_outer_weights(W, data: ft.Dataset, name: str, weights=None) -> ft.Interpolator:
    """Eq. (3) for inner weights W: min Σ ω_j |a_j|^p over interpolators of the data."""
    phi = np.asarray(ft.activation(name).value(data.x @ W.T))
    return ft.flattest_interpolator(phi, data.y, ft.norm_exponent(name), weights)


def of_correlation(
    rho: float, m: int, data: ft.Dataset, fresh, distribution: MultiIndex, name: str, seed: int
) -> dict[str, float]:
    """The flattest interpolators with m unit inner weights of correlation exactly ρ."""
    W = ft.inner_weights(distribution.directions, m, rho, seed)
    omega = ft.orbit_weights(W, data.x, name)
    plain = flattest_outer_weights(W, data, name)
    exact = flattest_outer_weights(W, data, name, omega)
    if not plain.status == exact.status == "optimal":
        return {**dict.fromkeys(_MEASURED, np.nan), "certified": 0.0}
    f = np.asarray(ft.activation(name).value(fresh.x @ W.T)) @ plain.a
    return {
        "norm": plain.value,
        "flatness": float(omega @ np.abs(plain.a) ** ft.norm_exponent(name)),
        "population_loss": ft.population_loss(W, plain.a, distribution, name),
        "test_loss": float(np.mean((f - fresh.y) ** 2)),
        "weighted_flatness": exact.value,
        "weighted_population_loss": ft.population_loss(W, exact.a, distribution, name),
        "certified": 1.0,
    }


def good_and_bad(
    n: int, r: int, noise: float, rho: float, name: str, seed: int
) -> dict[str, float]:
    """The flattest interpolators of n points with good and with bad inner weights, d = 2n."""
    d = 2 * n
    distribution = ft.SumOfSingleIndex(d, r, name, noise)
    data = distribution.draw(n, seed)
    U = distribution.directions
    teacher = np.resize(U, (n, d))
    pools = {
        "good": np.concatenate([teacher, ft.inner_weights(U, 2 * n, np.sqrt(r / d), seed)]),
        "bad": ft.bad_inner_weights(U, 3 * n, rho, seed),
    }
    found = {pool: _scaled(W, data, distribution, name) for pool, W in pools.items()}
    return {f"{pool}{series}": v for pool, row in found.items() for series, v in row.items()}


def _scaled(W, data: ft.Dataset, distribution: MultiIndex, name: str) -> dict[str, float]:
    p = ft.norm_exponent(name)
    found = flattest_outer_weights(W, data, name)
    if found.status != "optimal":
        return {"": np.nan, "_flatness": np.nan, "_excess_loss": np.nan, "_certified": 0.0}
    omega = ft.orbit_weights(W, data.x, name) / data.d ** (p / 2)
    loss = ft.population_loss(W, found.a, distribution, name)
    return {
        "": found.value,
        "_flatness": float(omega @ np.abs(found.a) ** p),
        "_excess_loss": loss - distribution.noise**2,
        "_certified": 1.0,
    }
