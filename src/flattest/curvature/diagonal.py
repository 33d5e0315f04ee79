"""The diagonal of ∇²L and its sum, by the cheapest exact route, or estimated."""

from collections.abc import Callable
from typing import Any

import numpy as np

from flattest.curvature.estimators import Probes, random_signs
from flattest.curvature.operator import ROWS_AT_ONCE, Operator
from flattest.curvature.progress import progress
from flattest.curvature.result import Diagonal, Interrupted, Quantity
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
    if (per_layer := _ended(op, op.gauss_newton_trace, _as_quantity)) is not None:
        return _as_quantity(per_layer, _EXACT)
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
        entries = lambda found: op.by_name(found)  # noqa: E731
        known = _ended(op, op.gauss_newton_diagonal, lambda v, *rest: Diagonal(entries(v), *rest))
        return Diagonal(entries(known), _EXACT)
    because = f"because {op.structure.reason}"
    if op.size <= most_columns:
        return Diagonal(op.by_name(_by_columns(op)), f"exact: all columns of ∇²L, {because}")
    known, rng = op.gauss_newton_diagonal(), generator(seed, "sharpness/trace")

    def with_rest(rest: Probes, ended: str = "") -> Diagonal:
        route = f"estimate: Hutchinson, {len(rest.samples)} products{ended}, {because}"
        entries = op.by_name(known + rest.diagonal)
        return Diagonal(entries, route, rest.stderr, partial=bool(ended))

    given = rtol, most_products, rng, float(known.sum())
    try:
        return with_rest(random_signs(op.residual_matmat, op.size, *given))
    except Interrupted as early:
        raise Interrupted(with_rest(early.found, ", interrupted")) from None


def _ended(op: Operator, call: Callable[[], Any], told: Callable[..., Any]) -> Any:
    """call(), or what Ctrl-C left of it, `OfSome` of the samples."""
    try:
        return call()
    except Interrupted as early:
        route = f"{_EXACT}, interrupted: on the first {early.found.samples} of {op.samples} samples"
        raise Interrupted(told(early.found.value, route, 0.0, True)) from None


def _as_quantity(per_layer, route: str, stderr: float = 0.0, partial: bool = False) -> Quantity:
    return Quantity(sum(per_layer.values()), route, stderr, per_layer, partial=partial)


def _by_columns(op: Operator) -> np.ndarray:
    """The diagonal of ∇²L from its products with all unit vectors, a few at once."""
    diagonal = np.empty(op.size)
    at_once = min(8 * ROWS_AT_ONCE, op.size)
    with progress("columns of ∇²L", op.size) as done:
        for first in range(0, op.size, at_once):
            # The last block overlaps the one before, so that one compiled shape serves all.
            start = min(first, op.size - at_once)
            basis = np.eye(at_once, op.size, k=start)
            diagonal[start : start + at_once] = np.diagonal(op.matmat(basis), offset=start)
            done(at_once)
    return diagonal
