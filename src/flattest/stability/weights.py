"""The weight g, the weighted total variation of f′, Lemma 4 and Theorem 1 (mulayoff2021)."""

import numpy as np

from flattest.errors import FlattestError
from flattest.stability.functions import UnivariateNetwork, sample, second_derivative


def g_plus(x: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """g⁺(x) = P(X > x)² E[X − x | X > x] √(1 + E[X | X > x]²), X uniform on the inputs (S38).

    Evaluated as E(X − x)₊ · √(P(X > x)² + (E X 1{X > x})²), which is the same and needs no case
    for P(X > x) = 0.
    """
    beyond = np.asarray(x, float)[..., None] < (inputs := sample(inputs))
    excess = np.where(beyond, inputs - np.asarray(x, float)[..., None], 0.0).mean(-1)
    return excess * np.hypot(beyond.mean(-1), (beyond * inputs).mean(-1))


def g_minus(x: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """g⁻(x) = P(X < x)² E[x − X | X < x] √(1 + E[X | X < x]²) (S39), the mirror image of g⁺."""
    return g_plus(-np.asarray(x, float), -sample(inputs))


def g(x: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """g(x) = min(g⁻(x), g⁺(x)); it vanishes outside [x_min, x_max] and at both ends."""
    return np.minimum(g_minus(x, inputs), g_plus(x, inputs))


def weighted_total_variation(params: "dict | UnivariateNetwork", x: np.ndarray) -> float:
    """∫ |f″| g over the training inputs x: the function-space measure of mulayoff2021."""
    curvature = second_derivative(params)
    return float(np.abs(curvature.masses) @ g(curvature.knots, x))


def variation_within(params: "dict | UnivariateNetwork", low: float, high: float) -> float:
    """∫ |f″| over low ≤ x ≤ high, without the weight g."""
    curvature = second_derivative(params)
    inside = (low <= curvature.knots) & (curvature.knots <= high)
    return float(np.abs(curvature.masses[inside]).sum())


def lemma4_bound(params: "dict | UnivariateNetwork", x: np.ndarray) -> float:
    """1 + 2 ∫ |f″| g ≤ λ_max(∇²L) for every implementation θ of the interpolator f (Lemma 4)."""
    return 1 + 2 * weighted_total_variation(params, x)


def sharpness_threshold(lr: float) -> float:
    """2/η: a linearly stable minimum has λ_max ≤ 2/η (Lemma 1), and for GD that suffices."""
    return 2 / positive_step(lr)


def theorem1_threshold(lr: float) -> float:
    """1/η − 1/2, which bounds ∫ |f″| g of a stable f without knots on the data (Theorem 1)."""
    return 1 / positive_step(lr) - 0.5


def positive_step(lr: float) -> float:
    if not np.isfinite(lr) or lr <= 0:
        raise FlattestError(f"A step size must be positive and finite, not {lr!r}.")
    return float(lr)
