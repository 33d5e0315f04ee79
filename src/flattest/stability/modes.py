"""Tangent features, λ_max, and minima with knots on data points as a switching system.

At an interpolator ∇²L = ΦΦᵀ/n (half-mse), with the columns of Φ given by (S32). Where a neuron's
pre-activation is exactly 0 on a training point, L has several Hessians H_m, one for each activation
pattern m ∈ I (S54) of the regions that meet at θ*.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from flattest.errors import FlattestError
from flattest.problem.losses import require_near_minimum
from flattest.stability.functions import UnivariateNetwork, points
from flattest.stability.weights import sharpness_threshold, theorem1_threshold

EXACT_TOGGLES = 12


def tangent_features(params: "dict | UnivariateNetwork", x: np.ndarray, pattern=None) -> np.ndarray:
    """Φ = [∇_θ φ(x_1), …, ∇_θ φ(x_n)] of shape (3k+1, n), rows in the order of θ (S32, S53).

    `pattern` (n, k) replaces the network's own activation pattern 1{w1_i x_j + b1_i > 0} by that
    of another mode.
    """
    network = UnivariateNetwork.of(params)
    x = np.asarray(x, float).reshape(-1)
    h = network.preactivations(x)
    active = h > 0 if pattern is None else np.asarray(pattern, bool)
    w2 = active * network.w2
    rows = [x[:, None] * w2, w2, active * h, np.ones((x.size, 1))]
    return np.concatenate(rows, axis=1).T


def gram_top_eigenvalue(features: np.ndarray) -> float:
    """λ_max(ΦΦᵀ)/n = ‖Φ‖²/n, through the smaller n × n Gram matrix."""
    return float(np.linalg.eigvalsh(features.T @ features)[-1] / features.shape[1])


def toggles(params: "dict | UnivariateNetwork", x: np.ndarray) -> np.ndarray:
    """The pairs (j, i) with w1_i x_j + b1_i = 0, as rows: the indicators free in I (S54)."""
    return np.argwhere(UnivariateNetwork.of(params).preactivations(x) == 0)


def with_knots_at(
    params: "dict | UnivariateNetwork", x: np.ndarray, pairs: np.ndarray
) -> UnivariateNetwork:
    """The network with b1_i = −w1_i x_j for every row (j, i) of `pairs`: knots exactly on data."""
    network = UnivariateNetwork.of(params)
    b1 = network.b1.copy()
    for j, i in pairs:
        b1[i] = -(network.w1[i] * x[j])
    return UnivariateNetwork(network.w1, b1, network.w2, network.b2)


def modes(params: "dict | UnivariateNetwork", x: np.ndarray):
    """Every activation pattern (n, k) of I (S54): 2^p of them for p toggles."""
    network = UnivariateNetwork.of(params)
    free = toggles(network, x)
    if len(free) > EXACT_TOGGLES:
        raise FlattestError(
            f"{len(free)} toggles span 2^{len(free)} modes; enumerate at most "
            f"{EXACT_TOGGLES}, or use `upper_top_eigenvalue`, which bounds the rest."
        )
    base = network.preactivations(x) > 0
    for choice in product((False, True), repeat=len(free)):
        pattern = base.copy()
        pattern[free[:, 0], free[:, 1]] = choice
        yield pattern


@dataclass(frozen=True)
class Upper:
    """λ_max^upper = max over m ∈ I of λ_max(H_m), or an upper bound on it where not exact."""

    value: float
    exact: bool
    toggles: int


def upper_top_eigenvalue(params: "dict | UnivariateNetwork", data) -> Upper:
    """λ_max^upper at an interpolator, exact or bounded from above.

    |ΦᵀΦ| of any mode is at most, entry by entry, the Gram matrix with every toggle on and absolute
    values inside, whose spectral radius therefore dominates. Where 1 + x_j x_l ≥ 0 for all j, l, so
    on [−1, 1], that is a mode itself. Elsewhere up to 12 toggles are enumerated; for more the bound
    is the lesser of that radius and ‖Φ_m‖ ≤ ‖Φ_m'‖ + ‖Φ_m − Φ_m'‖ with m' all toggles off, where
    the difference has orthogonal columns if each neuron toggles on one sample.
    """
    network = UnivariateNetwork.of(params)
    x, y = points(data)
    require_near_minimum(network(x), y)
    count = len(toggles(network, x))
    dominated, attained = dominating_value(network, x)
    if attained:
        return Upper(dominated, True, count)
    if count <= EXACT_TOGGLES:
        values = [gram_top_eigenvalue(tangent_features(network, x, m)) for m in modes(network, x)]
        return Upper(max(values), True, count)
    return Upper(min(dominated, perturbation_value(network, x)), False, count)


def dominating_value(network: UnivariateNetwork, x: np.ndarray) -> tuple[float, bool]:
    widest = network.preactivations(x) >= 0
    outer = tangent_features(network, x, widest)[2 * network.width :]
    inner = widest * np.abs(network.w2)
    coupling = 1 + np.multiply.outer(x, x)
    gram = (inner @ inner.T) * np.abs(coupling) + outer.T @ outer
    return float(np.linalg.eigvalsh(gram)[-1] / x.size), bool((coupling >= 0).all())


def perturbation_value(network: UnivariateNetwork, x: np.ndarray) -> float:
    base = tangent_features(network, x)
    change = tangent_features(network, x, network.preactivations(x) >= 0) - base
    return float((np.linalg.norm(base, 2) + np.linalg.norm(np.abs(change), 2)) ** 2 / x.size)


def toggles_per_sample(params: "dict | UnivariateNetwork", x: np.ndarray) -> np.ndarray:
    """p_j, the number of neurons that toggle on x_j, each counted for every sample it toggles on.

    (S64) has a neuron toggle on one sample at most, which w1_i = b1_i = 0 breaks: such a neuron
    toggles on all of them. Let a_ij = 1 where neuron i toggles on x_j and t_i = Σ_j a_ij. By
    Cauchy–Schwarz (Σ_j |u_j| a_ij)² ≤ t_i Σ_j u_j² a_ij, so that (S67) holds with
    p_j = Σ_i t_i a_ij, which is the number of neurons where every t_i is 1.
    """
    toggling = UnivariateNetwork.of(params).preactivations(x) == 0
    return (toggling * toggling.sum(axis=0)).sum(axis=1)


def gradient_bound(params: "dict | UnivariateNetwork", x: np.ndarray) -> float:
    """C = max over samples, modes and entries of |∇_θ φ| (the text of (S66) prints ‖φ‖_∞)."""
    network = UnivariateNetwork.of(params)
    return float(np.abs(tangent_features(network, x, network.preactivations(x) >= 0)).max())


def lemma5_bound(top: float, other: float, C: float, p_max: int, n: int) -> float:
    """√3 C (√λ_max(H) + √λ_max(H̃)) √(p_max/n) ≥ ‖H̃q − λ_max(H) q‖ (Lemma 5, S70), with p_max the
    largest of `toggles_per_sample`."""
    return float(np.sqrt(3 * p_max / n) * C * (np.sqrt(top) + np.sqrt(other)))


def strongly_stable_sharpness(lr: float, C: float, p_over_n: float) -> float:
    """The largest λ_max^upper of a strongly stable minimum, (S75) corrected.

    2/η + 6C²p/n + 2C √(3 (p/n)(3C²p/n + 2/η)), the square of the positive root of
    ζ² − αζ − 2/η with α = 2√3 C √(p/n). In print the last two terms are halved.
    """
    c2p = 3 * C**2 * p_over_n
    stable = sharpness_threshold(lr)
    return float(stable + 2 * c2p + 2 * np.sqrt(c2p * (c2p + stable)))


def theorem2_threshold(params: "dict | UnivariateNetwork", x: np.ndarray, lr: float) -> float:
    """Bounds ∫ |f″| g of a strongly stable f, knots on data points included (Theorem 2, corrected).

    From (S79) and (S75): (λ − 1)/2 with λ = `strongly_stable_sharpness`.
    """
    p_over_n = toggles_per_sample(params, x).max() / np.size(x)
    return (strongly_stable_sharpness(lr, gradient_bound(params, x), p_over_n) - 1) / 2


def stable_variation(params: "dict | UnivariateNetwork", x: np.ndarray, lr: float) -> float:
    """Theorem 1's 1/η − 1/2 for this network; refuses a knot on a data point."""
    count = len(toggles(params, x))
    if count:
        raise FlattestError(
            f"Theorem 1 needs a minimum without knots on data points, but {count} neuron(s) switch "
            "exactly on one; use Theorem 2 (`theorem2_threshold`), which covers that case."
        )
    return theorem1_threshold(lr)
