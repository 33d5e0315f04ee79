"""Activation patterns and flattest networks, slow and obviously right."""

import itertools
import warnings

import numpy as np
from scipy.optimize import linprog


def open_patterns(R: np.ndarray) -> set[tuple[bool, ...]]:
    """The signs of R w over all w with no zero: row after row, each kept where a linear program
    finds w with s_h r_h·w ≥ ε > 0 on all rows so far."""
    found: list[tuple[bool, ...]] = [()]
    for count in range(1, len(R) + 1):
        longer = [(*s, side) for s in found for side in (True, False)]
        found = [s for s in longer if _margin(R[:count], s) > 1e-9]
    return set(found)


def _margin(R, signs) -> float:
    A = np.where(signs, -1.0, 1.0)[:, None] * R
    cost, bounds = np.append(np.zeros(R.shape[1]), -1.0), [(-1, 1)] * (R.shape[1] + 1)
    A_ub = np.column_stack([A, np.ones(len(A))])
    return -linprog(cost, A_ub=A_ub, b_ub=np.zeros(len(A)), bounds=bounds).fun


def least_trace(data, bias: bool, slope: float = 0.0, solver: str = "SCS", **options) -> float:
    """The cone program over all patterns as one would write it in CVXPY, on the data given."""
    import cvxpy

    X = np.column_stack([data.x, np.ones(data.n)]) if bias else data.x
    squares, cost, fit, inside = (X**2).sum(axis=1), 0.0, 0.0, []
    for pattern, sign in itertools.product(sorted(open_patterns(X)), (1.0, -1.0)):
        slopes, sides = np.where(pattern, 1.0, slope), np.where(pattern, 1.0, -1.0)
        u = cvxpy.Variable(X.shape[1])
        cost += np.sqrt(slopes**2 @ squares) * cvxpy.norm2((slopes[:, None] * X) @ u)
        fit += sign * (slopes[:, None] * X) @ u
        inside.append((sides[:, None] * X) @ u >= 0)
    problem = cvxpy.Problem(cvxpy.Minimize(4 / data.n * cost), [fit == data.y, *inside])
    return float(problem.solve(solver=solver, **options))


def output_range(data, bias: bool, point, budget: float, slope: float = 0.0) -> list[float]:
    """[least, greatest] f(point) over all networks with trace ≤ budget: a cone program over the
    patterns of the inputs and the point together, as one would write it in CVXPY."""
    import cvxpy

    x = np.vstack([data.x, point])
    X = np.column_stack([x, np.ones(len(x))]) if bias else x
    squares, cost, fit, inside = (X[:-1] ** 2).sum(axis=1), 0.0, 0.0, []
    for pattern, sign in itertools.product(sorted(open_patterns(X)), (1.0, -1.0)):
        slopes, sides = np.where(pattern, 1.0, slope), np.where(pattern, 1.0, -1.0)
        u = cvxpy.Variable(X.shape[1])
        h = (slopes[:, None] * X) @ u
        cost += np.sqrt(slopes[:-1] ** 2 @ squares) * cvxpy.norm2(h[:-1])
        fit += sign * h
        inside.append((sides[:, None] * X) @ u >= 0)
    conditions = [fit[:-1] == data.y, 4 / data.n * cost <= budget, *inside]
    ends = (cvxpy.Minimize(fit[-1]), cvxpy.Maximize(fit[-1]))
    problems = [cvxpy.Problem(end, conditions) for end in ends]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inaccuracy, for which NaN stands
        values = [p.solve(solver=cvxpy.CLARABEL) for p in problems]
    solved = [p.status in ("optimal", "unbounded") for p in problems]
    return [v if ok else np.nan for v, ok in zip(values, solved, strict=True)]
