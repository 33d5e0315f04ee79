"""The diagonal of ∇²L and its sum, by the cheapest exact route, or estimated."""

import numpy as np

from flattest.curvature.estimators import random_signs
from flattest.curvature.operator import ROWS_AT_ONCE, Operator
from flattest.curvature.result import Diagonal, Quantity
from flattest.problem.randomness import generator

MOST_COLUMNS = 4096
"""Operators of more parameters, without a closed form or an exact Gauss–Newton diagonal, get an
estimated trace."""
_EXACT = "exact: Gauss–Newton, piecewise linear network"


def trace(
    op: Operator,
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
    most_columns: int = MOST_COLUMNS,
) -> Quantity:
    """Tr ∇²L by parameter: in closed form where there is one, else the sum of the diagonal."""
    if (per_layer := op.closed_form()) is not None:
        return Quantity(sum(per_layer.values()), "closed form", per_layer=per_layer)
    if (per_layer := op.gauss_newton_trace()) is not None:
        return Quantity(sum(per_layer.values()), _EXACT, per_layer=per_layer)
    return diagonal(op, rtol, most_products, seed, most_columns).trace


def diagonal(
    op: Operator,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
    most_columns: int = MOST_COLUMNS,
) -> Diagonal:
    """The Gauss–Newton part's diagonal where that is ∇²L's; else all columns of ∇²L; beyond
    `most_columns` of them that of the residual part is estimated (Hutchinson)."""
    if op.structure.exact:
        return Diagonal(op.by_name(op.gauss_newton_diagonal()), _EXACT)
    because = f"because {op.structure.reason}"
    if op.size <= most_columns:
        return Diagonal(op.by_name(_by_columns(op)), f"exact: all columns of ∇²L, {because}")
    known, rng = op.gauss_newton_diagonal(), generator(seed, "sharpness/trace")
    rest = random_signs(op.residual_matmat, op.size, rtol, most_products, rng, float(known.sum()))
    route = f"estimate: Hutchinson, {len(rest.samples)} products, {because}"
    return Diagonal(op.by_name(known + rest.diagonal), route, rest.stderr)


def _by_columns(op: Operator) -> np.ndarray:
    """The diagonal of ∇²L from its products with all unit vectors, a few at once."""
    diagonal = np.empty(op.size)
    at_once = min(8 * ROWS_AT_ONCE, op.size)
    for first in range(0, op.size, at_once):
        # The last block overlaps the one before, so that one compiled shape serves all.
        start = min(first, op.size - at_once)
        basis = np.eye(at_once, op.size, k=start)
        diagonal[start : start + at_once] = np.diagonal(op.matmat(basis), offset=start)
    return diagonal
