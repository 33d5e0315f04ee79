"""Minima stability in function space (mulayoff2021): g, ∫|f″|g, thresholds, modes, flattest θ."""

from flattest.stability.functions import Network, SecondDerivative, second_derivative
from flattest.stability.implementation import FlattestImplementation, flattest_implementation
from flattest.stability.modes import (
    Upper,
    interpolator_top_eigenvalue,
    stable_variation,
    strongly_stable_sharpness,
    tangent_features,
    theorem2_threshold,
    toggles,
    upper_top_eigenvalue,
)
from flattest.stability.weights import (
    g,
    g_minus,
    g_plus,
    lemma4_bound,
    sharpness_threshold,
    theorem1_threshold,
    weighted_total_variation,
)

__all__ = [
    "FlattestImplementation",
    "Network",
    "SecondDerivative",
    "Upper",
    "flattest_implementation",
    "g",
    "g_minus",
    "g_plus",
    "interpolator_top_eigenvalue",
    "lemma4_bound",
    "second_derivative",
    "sharpness_threshold",
    "stable_variation",
    "strongly_stable_sharpness",
    "tangent_features",
    "theorem1_threshold",
    "theorem2_threshold",
    "toggles",
    "upper_top_eigenvalue",
    "weighted_total_variation",
]
