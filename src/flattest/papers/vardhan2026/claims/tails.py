"""Proposition 3 and Appendix D.1 (Lemmas 14–17): tails of piecewise polynomials of Gaussians."""

from functools import partial

import numpy as np
from scipy.special import expit, logsumexp, softmax

from flattest.evidence import equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, cite, claim, worst
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


def _log_moment(mu: float, power: float) -> float:
    """log E relu(t)^power for t ~ N(μ, 1): the integral about its peak, by a sum."""
    peak = (mu + np.sqrt(mu**2 + 4 * power)) / 2
    t = np.linspace(max(peak - 14, 1e-9), peak + 14, 2001)
    log = power * np.log(t) - (t - mu) ** 2 / 2 - np.log(2 * np.pi) / 2
    return float(logsumexp(log) + np.log(t[1] - t[0]))


def _moment_share(name: str, z: np.ndarray) -> float:
    """‖σ(t)‖_k over (|μ| + s√(ck))^c, t ~ N(μ, s²), s = 1, which homogeneity makes all s."""
    c, mu, k = DEGREES[name], float(np.clip(z[0], -20, 50)), 1 + min(abs(float(z[1])), 500)
    log = _log_moment(mu, c * k)
    if name == "quadratic":
        log = float(np.logaddexp(log, _log_moment(-mu, c * k)))
    return float(np.exp(log / k) / (abs(mu) + np.sqrt(c * k)) ** c)


@universal(
    "vardhan2026/proposition-3",
    "σ(t) for t ~ N(μ, s²) has k-th moment norms of at most (|μ| + s√(ck))^c: it is Sub-Weibull of "
    "index 2/c, of mean and standard deviation at most of order (μ² + s²)^{c/2}. At μ = 0 they are "
    "of order s^c and k^{c/2}; far below 0 those of ReLU are 0, nearly.",
    source="Proposition 3, Appendix D.2.1",
    refuted_by="an activation, μ/s and k with a larger moment norm",
    largest=1.0,
    evaluations=600,
    evidence="proof",
)
def proposition_3(half=0.5) -> Plan:
    """Proof: |σ(t)| ≤ |t|^c, so that ‖σ(t)‖_k ≤ ‖t‖_{ck}^c, and ‖μ + s g‖_p ≤ |μ| + s ‖g‖_p with
    ‖g‖_p ≤ √p for a standard normal g. (Two-sided for every μ, as its use in Appendix D reads, it
    is false: for μ < 0 and s = 1 relu(t) has a mean below e^{−μ²/2}.)"""
    k = np.array([200.0, 400, 800, 1600])
    for name, c in DEGREES.items():
        growth = _growth(moment_norm(k, c), k)
        yield equal(growth, half * c, 5e-3, "exponent of the moment norm at μ = 0")
        yield Family(f"{name}, any μ/s and k", 2, partial(_moment_share, name))
    exact = np.log(moment_norm(np.array([3.0]), 1)[0] ** 3 / 2)
    yield equal(_log_moment(0.0, 3.0), exact, 1e-9, "the moment by quadrature")


@universal(
    "vardhan2026/lemma-14",
    "Products of Sub-Weibull variables of indices θ₁, θ₂ are Sub-Weibull with 1/θ = 1/θ₁ + 1/θ₂; "
    "sums keep the heavier index, whether or not they are independent.",
    source="Lemma 14",
    refuted_by="two variables on one finite space with ‖XY‖_k > ‖X‖_{2k} ‖Y‖_{2k} or "
    "‖X + Y‖_k > ‖X‖_k + ‖Y‖_k",
    largest=1.0,
    attained=True,
    evaluations=900,
    evidence="proof",
)
def lemma_14(one=1.0) -> Plan:
    """Proof: X is Sub-Weibull of index θ where ‖X‖_k ≤ K k^{1/θ} for all k ≥ 1 (Definition 3).
    ‖XY‖_k ≤ ‖X‖_{2k} ‖Y‖_{2k} ≤ K₁K₂ (2k)^{1/θ₁ + 1/θ₂} by Cauchy–Schwarz, and
    ‖X + Y‖_k ≤ ‖X‖_k + ‖Y‖_k ≤ (K₁ + K₂) k^{max(1/θ₁, 1/θ₂)} by Minkowski.

    Independent standard normals (index 2) show that nothing less will do for products.
    """
    k = np.array([200.0, 400, 800, 1600])
    product, total = moment_norm(k, 1) ** 2, np.sqrt(2) * moment_norm(k, 1)
    yield equal(_growth(product, k), one, 5e-3, "exponent for the product of two Gaussians")
    yield equal(_growth(total, k), 0.5, 5e-3, "exponent for their sum")

    def share(z: np.ndarray) -> float:
        """Four atoms of (X, Y), and k; sizes by their logarithms."""
        k, log_masses = 1 + min(abs(float(z[0])), 50), np.log(softmax(z[1:5]))
        logs, signs = np.clip(z[5:].reshape(2, 4), -30, 30), np.array([[1, 1, 1, 1], [1, -1, 1, 1]])

        def log_norm(log_sizes: np.ndarray, power: float) -> float:
            return float(logsumexp(log_masses + power * log_sizes) / power)

        x, y = signs * np.exp(logs)
        doubled = log_norm(logs[0], 2 * k) + log_norm(logs[1], 2 * k)
        separate = np.logaddexp(log_norm(logs[0], k), log_norm(logs[1], k))
        together = log_norm(np.log(np.abs(x + y) + 1e-300), k)
        return float(np.exp(max(log_norm(logs.sum(axis=0), k) - doubled, together - separate)))

    equal_sizes = np.concatenate([[2.0], np.zeros(12)])
    yield Family("four atoms, any k", 13, share, (equal_sizes,))


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
    "by order ‖M‖_F: their variance is at most max(2, E z⁴ − 1) ‖M‖_F², 14 ‖M‖_F² for squares of "
    "Gaussians; for Gaussians it is 2 ‖M‖_F².",
    source="Lemma 16 (Hanson–Wright)",
    refuted_by="a law and a symmetric matrix with a larger variance",
    largest=1.0,
    attained=True,
    evidence="proof",
)
def lemma_16(kurtosis=15.0, gaussian_factor=2.0) -> Plan:
    """Proof: zᵀMz is Σ_i M_ii z_i² + 2 Σ_{i<j} M_ij z_i z_j, whose terms are uncorrelated, so that
    Var zᵀMz = (E z⁴ − 1) Σ M_ii² + 2 Σ_{i≠j} M_ij². The expectations are exact, by Gauss–Hermite
    quadrature over R³, and by enumeration for three-point laws, for which E z⁴ may be below 3."""
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
    signs = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 3), axis=-1).reshape(-1, 3)

    def three_points(z: np.ndarray) -> float:
        """z_i = ±1/√q with mass q in all: E z_i⁴ = 1/q."""
        q = 0.01 + 0.99 * float(expit(z[0]))
        mass = np.prod(np.where(signs == 0, 1 - q, q / 2), axis=1)
        M = z[1:].reshape(3, 3) + z[1:].reshape(3, 3).T
        forms = np.einsum("ij,jk,ik->i", signs, M, signs) / q
        variance = mass @ (forms - mass @ forms) ** 2
        return float(variance / (max(2.0, 1 / q - 1) * np.sum(M**2)))

    yield Family("three-point laws, 3 × 3", 10, three_points)
    diagonal, any_form = np.eye(3).ravel(), np.arange(9.0) ** 2
    yield equal(spread(squares, kurtosis - 1, diagonal), 1, 1e-9, "squares of Gaussians, M = I")
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
