"""Proposition 3 and Appendix D.1 (Lemmas 14–17): tails of piecewise polynomials of Gaussians."""

from functools import partial

import numpy as np

from flattest.evidence import Verdict, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, cite, claim, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    DEGREES,
    deviation,
    features,
    gaussian,
    moment_norm,
    power_law,
    unit_weights,
)


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
        equal(_growth(moment_norm(k, c), k), half * c, 5e-3, "exponent of the moment norm")
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
    product = moment_norm(k, 1) ** 2
    return provided(
        equal(_growth(product, k), one, 5e-3, "exponent for the product of two Gaussians"),
        equal(_growth(np.sqrt(2) * moment_norm(k, 1), k), 0.5, 5e-3, "exponent for their sum"),
    )


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
        yield power_law(partial(deviation, degree), (50, 400, 3200), 3, -0.5, 0.15, note)


@universal(
    "vardhan2026/lemma-16",
    "Quadratic forms zᵀMz of independent centred variables of variance 1 deviate from their mean "
    "by order ‖M‖_F: their variance is at most (E z⁴ − 1) ‖M‖_F², 14 ‖M‖_F² for squares of "
    "Gaussians; for Gaussians it is 2 ‖M‖_F².",
    source="Lemma 16 (Hanson–Wright)",
    refuted_by="a symmetric matrix with a larger variance",
    largest=1.0,
    attained=True,
)
def lemma_16(kurtosis=15.0, gaussian_factor=2.0) -> Plan:
    """Var zᵀMz = 2‖M‖_F² + (E z⁴ − 3) Σ M_ii², most where M is diagonal. The expectations are
    exact, by Gauss–Hermite quadrature over R³."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes), axis=-1).reshape(-1, 3)
    mass = np.einsum("i,j,k->ijk", *[weights / weights.sum()] * 3).ravel()
    squares = (grid**2 - 1) / np.sqrt(2)

    def spread(points: np.ndarray, bound: float, z: np.ndarray) -> float:
        """The variance of the form over `bound` ‖M‖_F²."""
        root = z.reshape(3, 3)
        M = root + root.T
        forms = np.einsum("ij,jk,ik->i", points, M, points)
        return float(mass @ (forms - mass @ forms) ** 2 / (bound * np.sum(M**2)))

    yield Family("squares of Gaussians, 3 × 3", 9, partial(spread, squares, kurtosis - 1))
    any_form = np.arange(9.0) ** 2
    yield equal(spread(grid, gaussian_factor, any_form), 1, 1e-9, "Gaussians, one matrix")


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
