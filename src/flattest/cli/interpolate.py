"""The flattest interpolator for given features: min Σ ω_j |a_j|^p over Φ a = y, with certificate.

Prints the status, the value, the lower bound that the dual proves, their relative gap and the
residual ‖Φa − y‖/‖y‖. The exit code is 0 when the optimum is certified (gap ≤ 1e-9, residual
≤ 1e-10), else 1: the problem is infeasible or too ill-conditioned.

The file holds the arrays features (n, m) and y (n,), and weights (m,) where ω is not 1. For neurons
that are homogeneous of degree c the flattest interpolator has p = 2c/(c+1): 1 for ReLU, 4/3 for
the quadratic activation (vardhan2026, Eq. 3).

Examples:

    python -c "import numpy; r = numpy.random.default_rng(0); \\
        numpy.savez('problem.npz', features=r.normal(size=(20, 50)), y=r.normal(size=20))"
    flattest interpolate problem.npz --p 1
    flattest interpolate problem.npz --p 1.5 --out solution.npz --json
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from flattest.cli._options import Json, grid, output
from flattest.errors import FlattestError
from flattest.files import read_arrays, write_series
from flattest.flatness.interpolators import Interpolator, flattest_interpolator


def command(
    file: Annotated[
        Path,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE.npz", help="Arrays features (n, m), y (n,) and maybe weights."),
    ],
    p: Annotated[float, tyro.conf.arg(help="p in [1, 2].")],
    out: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.npz", help="Write a and its dual to this file.")
    ] = None,
    as_json: Json = False,
) -> int:
    found = flattest_interpolator(**arrays(file), p=p)
    if out is not None:
        named = out if out.suffix == ".npz" else Path(f"{out}.npz")
        write_series(named, {"a": found.a, "dual": found.dual})
    answer = summary(found)
    rows = ((name, v if isinstance(v, str) else f"{v:.12g}") for name, v in answer.items())
    output(as_json, answer, grid(("", ""), rows, show_header=False))
    return 0 if found.status == "optimal" else 1


def arrays(file: Path) -> dict[str, np.ndarray]:
    """The problem's arrays by name."""
    found = read_arrays(file)
    if not {"features", "y"} <= set(found) <= {"features", "y", "weights"}:
        raise FlattestError(
            f"{file.name} must hold features, y and maybe weights; it has {', '.join(found)}."
        )
    return found


def summary(found: Interpolator) -> dict[str, str | float]:
    return {
        "status": found.status,
        "message": found.message,
        "value": found.value,
        "bound": found.bound,
        "gap": found.gap,
        "residual": found.residual,
        "iterations": found.iterations,
    }
