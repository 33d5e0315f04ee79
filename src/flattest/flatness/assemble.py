"""From ∇²L and the units that can be rescaled to a measurement, whatever the network is made of."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flattest.curvature.diagonal import MOST_COLUMNS, diagonal
from flattest.curvature.eigenvalues import DeadNetwork, top_eigenvalue
from flattest.curvature.operator import Operator
from flattest.curvature.result import Diagonal, Interrupted, Quantity
from flattest.flatness.bounds import Bound
from flattest.flatness.measurement import Layer, Measurement
from flattest.problem.randomness import generator
from flattest.rescaling.units import Flattest, Unbounded, Units, flattest

# Rescaling may change outputs by what changing every weight by this part of itself would. Against
# the outputs themselves, rounding errors could be large: terms may cancel, in a network of output
# 0 all of them.
_ALIKE = 1e-6
# Backward passes that the least Gauss–Newton trace may take beside the rest.
_MOST_PASSES = 1024


def assemble(
    op: Operator,
    start: float,
    tol: float | None,
    bound: Bound | None = None,
    most_columns: int = MOST_COLUMNS,
    **budget: Any,
) -> Measurement:
    """All that is reported of a network. `start` is when measuring began (`time.perf_counter`);
    `budget`: rtol, most_products and seed of an estimated trace. λ_max is left out without a `tol`.
    """
    given = op, start, bound, op.mean_loss()
    try:
        found = _diagonal(op, most_columns, budget)
    except Interrupted as early:
        raise Interrupted(_measurement(*given, early.found, "interrupted")) from None
    least = least_trace(op, found)
    bases: Any = None
    remarks: list[str] = []
    top: Quantity | None = None
    try:
        bases, remarks = _over_bases(op)
        top = None if tol is None else _top_eigenvalue(op, tol)
    except KeyboardInterrupt as early:
        top = early.found if isinstance(early, Interrupted) else None
        known = "a lower bound" if top else "not known"
        remarks = [*remarks, f"interrupted: the top eigenvalue is {known}"]
        early_found = _measurement(*given, found, least, bases, remarks, top)
        raise Interrupted(replace(early_found, partial=True)) from None
    return _measurement(*given, found, least, bases, remarks, top)


def _measurement(
    op: Operator,
    start: float,
    bound: Bound | None,
    mean_loss: float,
    found: Diagonal,
    least: Flattest | str,
    bases: Any = None,
    remarks: Sequence[str] = (),
    top: Quantity | None = None,
) -> Measurement:
    trace, flat = found.trace, None if isinstance(least, str) else least
    return Measurement(
        trace=trace.value,
        stderr=trace.stderr,
        least=flat.value if flat else None,
        least_lower_bound=flat.lower_bound if flat else None,
        top_eigenvalue=top.value if top else None,
        residual=top.residual if top else 0.0,
        layers={
            name: Layer(value, flat.per_layer[name] if flat else None)
            for name, value in trace.per_layer.items()
        },
        method=found.route,
        parameters=op.size,
        samples=op.samples,
        mean_loss=mean_loss,
        bound=bound.value if bound else None,
        bound_reference=bound.reference if bound else "",
        gauss_newton=bases.trace if bases else None,
        least_gauss_newton=bases.value if bases else None,
        least_gauss_newton_lower_bound=bases.lower_bound if bases else None,
        notes=(*op.structure.notes, *_notes(op.structure.units, least), *remarks),
        partial=found.partial,
        rescaled=op.rescaled(flat.factors) if flat else bases.rescaled if bases else None,
        seconds=time.perf_counter() - start,
    )


def _over_bases(op: Operator) -> tuple[Any, list[str]]:
    """The least Gauss–Newton trace of a module whose units are not known, and what is to be said of
    it."""
    passes = op.backward_passes()
    if passes is None or not isinstance(op.structure.units, str):
        return None, []
    if passes > _MOST_PASSES:
        return None, [f"least_gauss_newton would take {passes} backward passes; it is left out"]
    from flattest.flatness.symmetric import flattest_bases  # brings PyTorch along

    found = flattest_bases(op)
    if isinstance(found, str):
        return None, [f"no least Gauss–Newton trace: {found}"]
    over = found.described()
    if not found.units and not found.vectors:
        over = f"over nothing that could be rescaled: {op.structure.units}"
    return found, [f"least Gauss–Newton trace {over}", *found.notes]


def _top_eigenvalue(op: Operator, tol: float) -> Quantity:
    try:
        return top_eigenvalue(op, tol)
    except DeadNetwork:
        return Quantity(0.0, "∇²L is 0")


def _diagonal(op: Operator, most_columns: int, budget: dict[str, Any]) -> Diagonal:
    """A closed form gives the trace layer by layer, but not entry by entry: it is taken where the
    diagonal would be an estimate."""
    closed = None
    if not op.structure.exact and op.size > most_columns:
        closed = op.closed_form()
    if closed is None:
        return diagonal(op, **budget, most_columns=most_columns)
    return Diagonal({name: np.array(v) for name, v in closed.items()}, "exact: closed form")


def least_trace(op: Operator, diagonal: Diagonal) -> Flattest | str:
    """The least trace over rescalings, or the reason why there is none."""
    units = op.structure.units
    if isinstance(units, str):
        return units
    if diagonal.stderr > 0:
        return "the diagonal of ∇²L is only estimated"
    if sum(map(np.size, diagonal.entries.values())) < op.size:
        return "∇²L is known by layer, not by entry"
    try:
        found = flattest(units, diagonal.entries)
    except Unbounded:
        return (
            "weights that rescalings change have negative diagonal entries in ∇²L, so that the "
            "trace need not be bounded below; train further"
        )
    if not _keeps_outputs(op, found.factors):
        return "the rescalings found in the network change its outputs on these data"
    return found


def _keeps_outputs(op: Operator, factors: dict[str, np.ndarray]) -> bool:
    """Whether f is the same on all the data with every weight multiplied by its factor."""
    rng = generator(0, "measure/alike")
    near = {name: 1 + _ALIKE * rng.normal(size=np.shape(f)) for name, f in factors.items()}
    moved, allowed = op.output_changes([factors, near])
    return bool(moved <= allowed)


def _notes(units: Units | str, least: Flattest | str) -> list[str]:
    if isinstance(least, str):
        return [f"no least trace: {least}"]
    if isinstance(units, Units) and not units.components().any():
        return ["no unit can be rescaled without changing the function"]
    if least.attained > least.value * (1 + 1e-9):
        limit = "the least trace is approached, not attained; the rescaled network has"
        return [f"{limit} {least.attained:.8g}"]
    return []
