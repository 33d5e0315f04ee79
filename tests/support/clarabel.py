"""CVXPY with Clarabel: the cross-check of our own convex solvers."""

import numpy as np


def least_norm(phi: np.ndarray, y: np.ndarray, p: float) -> tuple[float, np.ndarray]:
    """min ‖a‖_p^p over Φ a = y, by power cones: the value and the dual λ."""
    import cvxpy

    a = cvxpy.Variable(phi.shape[1])
    matched = phi @ a == y
    cost = cvxpy.sum(cvxpy.power(cvxpy.abs(a), p, approx=False)) if p > 1 else cvxpy.norm1(a)
    cvxpy.Problem(cvxpy.Minimize(cost), [matched]).solve(solver=cvxpy.CLARABEL)
    return float(np.sum(np.abs(a.value) ** p)), -matched.dual_value
