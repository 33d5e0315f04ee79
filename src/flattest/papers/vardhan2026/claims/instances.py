"""Instances and fits that the checks share."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import gammaln

import flattest as ft
from flattest.evidence import equal, mean_interval
from flattest.papers.vardhan2026.experiments import Scaling
from flattest.problem.models import Params
from flattest.problem.randomness import generator

DEGREES = {"relu": 1, "quadratic": 2, "relu^3": 3}


def small_network(name: str, seed: int, bias: bool = False) -> tuple[ft.MLP, Params, ft.Dataset]:
    """A network of width 5 with 8 points in R^3 that it interpolates."""
    model = ft.MLP(5, activation=name, bias=bias)
    params = model.init(3, seed)
    x = gaussian(8, 3, seed)
    return model, params, ft.Dataset(x, np.asarray(model.apply(params, x)))


def features(W, x, name: str) -> np.ndarray:
    """Φ_ij = σ(w_j·x_i)."""
    return np.asarray(ft.activation(name).value(np.asarray(x) @ np.asarray(W).T))


def gaussian(n: int, d: int, seed: int) -> np.ndarray:
    """n points of N(0, I_d)."""
    return generator(seed, "claims/gaussian").standard_normal((n, d))


def unit_weights(m: int, d: int, seed: int) -> np.ndarray:
    """m independent uniform unit vectors."""
    W = generator(seed, "claims/unit weights").standard_normal((m, d))
    return W / np.linalg.norm(W, axis=1, keepdims=True)


def fitted_exponent(
    measure: Callable[[int, int], float], sizes: Sequence[int], seeds: int
) -> tuple[float, tuple[float, float]]:
    """The slope of log measure(n, seed) on log n: its mean over seeds and 95 % interval."""
    log_n = np.log(sizes)
    slopes = [
        np.polyfit(log_n, np.log([measure(n, seed) for n in sizes]), 1)[0] for seed in range(seeds)
    ]
    return mean_interval(slopes)


def near(slope: float, exponent: float, within: float, note: str, **extra) -> ft.Verdict:
    """That a fitted exponent is within an absolute distance of the one expected."""
    # A verdict's tolerance is relative, absolute where the bound is 0.
    return equal(slope, exponent, within / (abs(exponent) or 1.0), note, **extra)


def power_law(
    measure: Callable[[int, int], float],
    sizes: Sequence[int],
    seeds: int,
    exponent: float,
    tolerance: float,
    note: str,
) -> ft.Verdict:
    """That measure(n, seed) is of order n^exponent."""
    slope, interval = fitted_exponent(measure, sizes, seeds)
    return equal(slope, exponent, tolerance, note, seeds=seeds, interval=interval)


def exponents(
    name: str, sizes: tuple[int, ...], seeds: int, *columns: str
) -> dict[str, tuple[float, tuple[float, float]]]:
    """The exponents in n that the scaling experiment names: mean and interval over seeds."""
    task = Scaling(activation=name, sizes=sizes)
    found = [task.columns(task.compute(seed)) for seed in range(seeds)]
    return {key: mean_interval([row[key] for row in found]) for key in columns}


def moment_norm(k: np.ndarray, degree: float) -> np.ndarray:
    """(E |t|^{degree·k})^{1/k} for a standard normal t, from the Gamma function."""
    s = degree * k
    log = s / 2 * np.log(2) + gammaln((s + 1) / 2) - gammaln(0.5)
    return np.exp(log / k)


def deviation(degree: int, n: int, seed: int) -> float:
    """Root mean square over 200 repetitions of the mean of n centred |t|^degree."""
    expected = moment_norm(np.ones(1), degree)[0]
    means = np.mean(np.abs(gaussian(200, n, seed)) ** degree, axis=1)
    return float(np.sqrt(np.mean((means - expected) ** 2)))
