"""Multi-index models: inner weights of given alignment, and the population loss (vardhan2026).

Labels are y = Σ_k α_k link(v_k·x) + offset + noise with x ~ N(0, I_d), which depend on x through
span(U) only; networks are f(x) = Σ_j a_j σ(w_j·x).
"""

from collections.abc import Callable

import numpy as np

from flattest.errors import FlattestError, unknown
from flattest.machine import later
from flattest.problem.activations import activation as resolve_activation
from flattest.problem.checks import check_count, finite_array
from flattest.problem.distributions import MultiIndex, unit_rows
from flattest.problem.randomness import generator

linalg = later("scipy.linalg")


def inner_weights(U, m: int, rho: float, seed: int = 0) -> np.ndarray:
    """m unit vectors w_j with ‖U w_j‖ = ρ exactly (vardhan2026, section 6.1).

    w = ρ s + √(1−ρ²) v with s uniform on the unit sphere of span(U) and v on that of its
    complement. For a single index s = ±u: both signs occur.
    """
    U, r, d = _checked_choice(U, m, rho)
    if r == d and rho < 1:
        raise FlattestError(
            f"U spans all of R^{d}: every unit vector has correlation 1, not {rho}."
        )
    rng = generator(seed, "inner weights")
    inside = unit_rows(rng.standard_normal((m, r))) @ U
    outside = rng.standard_normal((m, d))
    for _ in range(2):  # once leaves a part in span(U) of the size of the rounding of all of it
        outside -= (outside @ U.T) @ U
    outside = unit_rows(outside) if rho < 1 else outside
    return rho * inside + np.sqrt(1 - rho**2) * outside


def bad_inner_weights(U, m: int, rho: float, seed: int = 0) -> np.ndarray:
    """m unit vectors such that no unit vector of their *span* exceeds correlation ρ with span(U).

    The inner weights of Definition 2 (its third condition); ρ = 0 is Example 1. The span is the
    complement of span(U), tilted towards it by r principal angles of cosine ρ, so that ρ is
    attained; its dimension is d − r.
    """
    U, r, d = _checked_choice(U, m, rho)
    if d - r < max(r, 1):
        raise FlattestError(
            f"Bad inner weights need d ≥ 2r, at least d = 2; here d = {d}, r = {r}."
        )
    complement = np.linalg.svd(U)[2][r:]
    tilted = complement.copy()
    tilted[:r] = np.sqrt(1 - rho**2) * complement[:r] + rho * U
    rng = generator(seed, "bad inner weights")
    return unit_rows(rng.standard_normal((m, d - r))) @ tilted


def span_correlation(W, U) -> float:
    """The largest correlation of a unit vector of span{w_j} with span(U): Definition 2, third."""
    U = _checked_directions(U)
    _, sizes, basis = np.linalg.svd(_checked_weights(W, U.shape[1]), full_matrices=False)
    basis = basis[sizes > 1e-10 * sizes[0]]
    return float(np.linalg.norm(U @ basis.T, 2))


def largest_cosine(W) -> float:
    """max_{i≠j} w_i·w_j / ‖w_i‖‖w_j‖: separated weights (Definition 2, first) keep it below 1."""
    W = unit_rows(_checked_weights(W))
    cosines = W @ W.T
    np.fill_diagonal(cosines, -np.inf)
    return float(cosines.max())


# E φ(s) ψ(t) for standard normals s, t of correlation k, φ and ψ among the three basic functions.
# relu·relu is the arc-cosine kernel; the others follow from Hermite expansions.
_BASIC: dict[tuple[str, str], Callable[[np.ndarray], np.ndarray]] = {
    ("linear", "linear"): lambda k: k,
    ("linear", "quadratic"): np.zeros_like,
    ("linear", "relu"): lambda k: k / 2,
    ("quadratic", "quadratic"): lambda k: 1 + 2 * k**2,
    ("quadratic", "relu"): lambda k: (1 + k**2) / np.sqrt(2 * np.pi),
    # 1 − k² would round other than arccos does, and near k = 1 only the same angle in both cancels.
    ("relu", "relu"): lambda k: (
        (np.sqrt((1 - k) * (1 + k)) + k * (np.pi - np.arccos(k))) / (2 * np.pi)
    ),
}
_DEGREES = {"linear": 1, "relu": 1, "quadratic": 2}


def _expansion(name: str) -> tuple[tuple[str, float], ...]:
    """The activation as a combination of t, relu(t) and t²."""
    if not (parts := resolve_activation(name).expansion):
        known = [*_DEGREES, "leaky_relu:SLOPE"]
        raise unknown("activation with known Gaussian moments", name, known)
    return parts


def gaussian_moments(first: str, W, second: str, V) -> np.ndarray:
    """E φ(w_j·x) ψ(v_k·x) over x ~ N(0, I), as a matrix (j, k), in closed form (App. B)."""
    W = _checked_weights(W)
    V = _checked_weights(V, W.shape[1])
    sizes = np.linalg.norm(W, axis=1)[:, None], np.linalg.norm(V, axis=1)[None]
    product = sizes[0] * sizes[1]
    k = np.divide(W @ V.T, product, out=np.zeros_like(product), where=product > 0).clip(-1, 1)
    moments = np.zeros_like(k)
    for phi, left in _expansion(first):
        for psi, right in _expansion(second):
            scale = sizes[0] ** _DEGREES[phi] * sizes[1] ** _DEGREES[psi]
            moments += left * right * scale * _BASIC[min(phi, psi), max(phi, psi)](k)
    return moments


def population_loss(W, a, distribution: MultiIndex, activation: str) -> float:
    """E (f(x) − y)² = E y² − 2 a·k + aᵀ K a in closed form (App. B), noise included.

    Near the teacher the terms cancel, which leaves an error of some 1e-15 of the largest.
    """
    power, k, K = _quadratic_form(W, distribution, activation)
    a = finite_array("The array of outer weights", a)
    if a.shape != k.shape:
        raise FlattestError(
            f"Outer weights must be {len(k)} numbers, one per neuron, not {a.shape}."
        )
    return _loss(power, k, K, a)


def least_population_loss(W, distribution: MultiIndex, activation: str) -> tuple[float, np.ndarray]:
    """The least population loss over outer weights, and those weights K⁻¹k (App. B, Prop. 4).

    A ridge of 1e-12 of K's trace keeps K invertible; the loss is that of the weights returned.
    """
    power, k, K = _quadratic_form(W, distribution, activation)
    a = linalg.cho_solve(linalg.cho_factor(K + 1e-12 * np.trace(K) * np.eye(len(k))), k)
    return _loss(power, k, K, a), a


def signal_power(distribution: MultiIndex) -> float:
    """E y² without the noise: the loss of f = 0 on clean labels."""
    V, alpha = distribution.teacher
    square = alpha @ gaussian_moments(distribution.link, V, distribution.link, V) @ alpha
    return float(
        square + distribution.offset * (2 * mean_label(distribution) - distribution.offset)
    )


def label_moments(W, distribution: MultiIndex, activation: str) -> np.ndarray:
    """k_j = E y σ(w_j·x), in closed form (App. B)."""
    V, alpha = distribution.teacher
    k = gaussian_moments(activation, W, distribution.link, V) @ alpha
    return k + distribution.offset * mean_activation(activation, W)


def mean_activation(name: str, W) -> np.ndarray:
    """E φ(w_j·x) over x ~ N(0, I), in closed form: E t = 0, E relu(t) = 1/√(2π), E t² = 1."""
    means = {"linear": 0.0, "relu": 1 / np.sqrt(2 * np.pi), "quadratic": 1.0}
    sizes = np.linalg.norm(_checked_weights(W), axis=1)
    parts = [factor * means[phi] * sizes ** _DEGREES[phi] for phi, factor in _expansion(name)]
    return np.sum(parts, axis=0)


def mean_label(distribution: MultiIndex) -> float:
    """E y."""
    V, alpha = distribution.teacher
    return float(alpha @ mean_activation(distribution.link, V) + distribution.offset)


def label_variance(distribution: MultiIndex) -> float:
    """Var y without the noise: the least loss of networks that do not see span(U), Example 1."""
    return signal_power(distribution) - mean_label(distribution) ** 2


def _loss(power, k, K, a) -> float:
    loss = float(power - 2 * a @ k + a @ K @ a)
    if not np.isfinite(loss):
        raise FlattestError("The population loss exceeds the largest float64; rescale the weights.")
    # Rounding may leave a loss of 0 at −1e-16.
    return max(0.0, loss)


def _quadratic_form(W, distribution: MultiIndex, activation: str):
    W = _checked_weights(W, distribution.d)
    k = label_moments(W, distribution, activation)
    K = gaussian_moments(activation, W, activation, W)
    return signal_power(distribution) + distribution.noise**2, k, K


def _checked_weights(W, d: int | None = None) -> np.ndarray:
    """W as (m, d), one weight vector per row."""
    W = np.atleast_2d(finite_array("The array of inner weights", W))
    if W.ndim != 2 or W.size == 0 or W.shape[1] != (d or W.shape[1]):
        raise FlattestError(f"Inner weights must be (m, {d or 'd'}), not {W.shape}.")
    return W


def _checked_directions(U) -> np.ndarray:
    U = np.atleast_2d(finite_array("The array of directions U", U))
    if U.ndim != 2 or not np.allclose(U @ U.T, np.eye(len(U)), atol=1e-10):
        raise FlattestError("U must have orthonormal rows, one per direction.")
    return U


def _checked_choice(U, m: int, rho: float) -> tuple[np.ndarray, int, int]:
    """U with its shape (r, d), for m weights of correlation ρ."""
    U = _checked_directions(U)
    if not 0 <= rho <= 1:
        raise FlattestError(f"The correlation ρ must lie in [0, 1], not {rho}.")
    check_count("The number m of inner weights", m)
    return U, *U.shape
