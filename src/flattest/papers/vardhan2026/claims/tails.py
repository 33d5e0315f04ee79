"""Proposition 3 and Appendix D.1 (Lemmas 14–17): tails of piecewise polynomials of Gaussians."""

from functools import partial

import numpy as np
from scipy.special import gammaln

from flattest.evidence import Verdict, at_most, equal
from flattest.ledger.claim import Verdicts, cite, claim, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    DEGREES,
    features,
    gaussian,
    power_law,
    unit_weights,
)


def _moment_norm(k: np.ndarray, degree: float) -> np.ndarray:
    """(E |t|^{degree·k})^{1/k} for a standard normal t, from the Gamma function."""
    s = degree * k
    log = s / 2 * np.log(2) + gammaln((s + 1) / 2) - gammaln(0.5)
    return np.exp(log / k)


def _growth(norms, k) -> float:
    return float(np.polyfit(np.log(k), np.log(norms), 1)[0])


@claim(
    "vardhan2026/proposition-3",
    "σ(t) for t ~ N(μ, s²) has mean and standard deviation of order (μ² + s²)^{c/2} and is "
    "Sub-Weibull of index 2/c: its k-th moment norm grows like k^{c/2}.",
    source="Proposition 3, Appendix D.2.1",
    evidence="identity",
    of=worst,
)
def proposition_3(half=0.5) -> Verdicts:
    k = np.array([200.0, 400, 800, 1600])
    yield from [
        equal(_growth(_moment_norm(k, c), k), half * c, 5e-3, "exponent of the moment norm")
        for c in DEGREES.values()
    ]
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    for name, c in DEGREES.items():
        scaled = []
        for mu, s in ((0.0, 1.0), (0.0, 7.0), (3.0, 4.0)):
            value = features(np.ones((1, 1)), (mu + s * nodes)[:, None], name)[:, 0]
            scaled.append(np.sqrt(weights @ value**2) / (mu**2 + s**2) ** (c / 2))
        yield at_most(max(scaled) / min(scaled), 10, 0.0, "spread of the constants")


@claim(
    "vardhan2026/lemma-14",
    "Products of Sub-Weibull variables of indices θ₁, θ₂ are Sub-Weibull with 1/θ = 1/θ₁ + 1/θ₂; "
    "sums keep the heavier index.",
    source="Lemma 14",
    evidence="identity",
)
def lemma_14(one=1.0) -> Verdict:
    """Independent standard normals (index 2): the product has k-th moment norm ‖t‖_k² ~ k."""
    k = np.array([200.0, 400, 800, 1600])
    product = _moment_norm(k, 1) ** 2
    return provided(
        equal(_growth(product, k), one, 5e-3, "exponent for the product of two Gaussians"),
        equal(_growth(np.sqrt(2) * _moment_norm(k, 1), k), 0.5, 5e-3, "exponent for their sum"),
    )


def _deviation(degree: int, n: int, seed: int) -> float:
    """Root mean square over 200 repetitions of the mean of n centred |t|^degree."""
    expected = _moment_norm(np.ones(1), degree)[0]
    means = np.mean(np.abs(gaussian(200, n, seed)) ** degree, axis=1)
    return float(np.sqrt(np.mean((means - expected) ** 2)))


@claim(
    "vardhan2026/lemma-15",
    "The mean of n independent centred Sub-Weibull variables is of order n^{−1/2}.",
    source="Lemma 15",
    evidence="scaling law",
    of=worst,
)
def lemma_15() -> Verdicts:
    for degree in (1, 2, 4):
        note = f"exponent of the deviation of mean |t|^{degree}"
        yield power_law(partial(_deviation, degree), (50, 400, 3200), 3, -0.5, 0.15, note)


@claim(
    "vardhan2026/lemma-16",
    "Quadratic forms zᵀMz of independent centred variables deviate from their mean by order ‖M‖_F; "
    "for Gaussians the variance is 2‖M‖_F².",
    source="Lemma 16 (Hanson–Wright)",
    evidence="sample",
)
def lemma_16(factor=2.0) -> Verdict:
    root = gaussian(20, 20, seed=0)
    M = root + root.T
    z = gaussian(400_000, 20, seed=1)
    forms = np.einsum("ij,ij->i", z @ M, z)
    cubes = (np.abs(z[:40_000]) ** 2 - 1) / np.sqrt(2)  # centred, of index 1
    heavy = np.einsum("ij,ij->i", cubes @ M, cubes).std() / np.linalg.norm(M)
    return provided(
        equal(forms.var(), factor * np.sum(M**2), 8e-3, "variance in 400 000 samples, n = 20"),
        at_most(heavy, 6, 0.0, "standard deviation over ‖M‖_F for index 1"),
    )


def _centred_singular_value(index: int, n: int, seed: int) -> float:
    phi = features(unit_weights(3 * n, n, seed), gaussian(n, n, seed), "relu")
    return float(np.linalg.svd(phi - 1 / np.sqrt(2 * np.pi), compute_uv=False)[index])


@claim(
    "vardhan2026/lemma-17",
    "The singular values of a centred matrix of independent Sub-Weibull columns, m ≍ n, are all of "
    "order √m, the largest and the smallest alike.",
    source="Lemma 17 (Bai–Yin)",
    evidence="scaling law",
    of=worst,
)
def lemma_17() -> Verdicts:
    for index in (0, -1):
        note = f"exponent in n of singular value {index} of centred ReLU features"
        measure = partial(_centred_singular_value, index)
        yield power_law(measure, (64, 128, 256), 3, 0.5, 0.15, note)


cite(
    "vardhan2026/definition-3",
    "Equivalent definitions of a Sub-Weibull variable: tails, moments, Orlicz norm.",
    source="Definition 3 (Vladimirova et al. 2020; Zhang and Wei 2022)",
)
