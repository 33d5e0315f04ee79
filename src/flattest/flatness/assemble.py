"""From the diagonal of ∇²L and the units that can be rescaled to a measurement."""

from dataclasses import dataclass

import numpy as np

from flattest.curvature import lanczos
from flattest.curvature.diagonal import Diagonal
from flattest.curvature.result import Measure
from flattest.flatness.bounds import Bound
from flattest.flatness.measurement import Layer, Measurement
from flattest.rescaling.units import Flattest, Unbounded, Units, flattest


@dataclass(frozen=True)
class Size:
    parameters: int
    samples: int
    mean_loss: float


def assemble(
    diagonal: Diagonal,
    units: Units | str,
    top: Measure,
    size: Size,
    notes: tuple[str, ...],
    bound: Bound | None = None,
) -> tuple[Measurement, Flattest | None]:
    """The measurement but for its seconds and rescaled network, and the rescaling.

    `units` is a sentence where the rescalings are not known.
    """
    answer = least_trace(diagonal, units)
    least = None if isinstance(answer, str) else answer
    if least is None:
        notes = (*notes, f"no least trace: {answer}")
    elif isinstance(units, Units) and not units.components().any():
        notes = (*notes, "no unit can be rescaled without changing the function")
    elif least.attained > least.value * (1 + 1e-9):
        limit = "the least trace is approached, not attained; the rescaled network has"
        notes = (*notes, f"{limit} {least.attained:.8g}")
    found = Measurement(
        trace=diagonal.trace,
        stderr=diagonal.stderr,
        least=least.value if least else None,
        least_lower_bound=least.lower_bound if least else None,
        top_eigenvalue=top.value,
        residual=top.residual,
        layers={
            name: Layer(value, least.per_layer[name] if least else None)
            for name, value in diagonal.per_layer.items()
        },
        method=diagonal.method,
        parameters=size.parameters,
        samples=size.samples,
        mean_loss=size.mean_loss,
        seconds=0.0,
        bound=bound.value if bound else None,
        bound_reference=bound.reference if bound else "",
        notes=notes,
    )
    return found, least


def least_trace(diagonal: Diagonal, units: Units | str) -> Flattest | str:
    """The least trace over rescalings, or the reason why there is none."""
    if isinstance(units, str):
        return units
    if diagonal.stderr > 0:
        return "the diagonal of ∇²L is only estimated"
    try:
        return flattest(units, diagonal.entries)
    except Unbounded:
        return (
            "weights that rescalings change have negative diagonal entries in ∇²L, so that the "
            "trace need not be bounded below; train further"
        )


def top_eigenvalue(matvec, size: int, tol: float, rng: np.random.Generator) -> Measure:
    """λ_max by Lanczos; `residual` is ‖Hv − λv‖ / |λ|, from one more product."""
    probe = rng.normal(size=size)
    if not matvec(probe).any():
        return Measure(0.0, "∇²L is 0")
    _, vectors = lanczos.top_eigenpairs(matvec, probe, 1, tol, rng)
    v = vectors[0]
    product = matvec(v)
    value = float(v @ product)
    residual = float(np.linalg.norm(product - value * v) / (abs(value) or 1.0))
    return Measure(value, "lanczos", residual=residual)
