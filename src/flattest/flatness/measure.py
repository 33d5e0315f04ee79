"""How flat a network is, in a way that no rescaling can fake: `measure` for models and JAX
functions; `flattest.torch.measure` does the same for PyTorch modules."""

import time
from typing import Any

import numpy as np

from flattest.curvature.inputs import is_named
from flattest.curvature.operator import Operator
from flattest.curvature.result import known_so_far
from flattest.curvature.sharpness import Function, operator_of
from flattest.flatness.assemble import assemble
from flattest.flatness.bounds import Bound, known_lower_bound, targets
from flattest.flatness.measurement import Measurement
from flattest.problem.data import Dataset
from flattest.problem.losses import interpolates, loss as flattest_loss
from flattest.problem.models import MLP


@known_so_far
def measure(
    function: Function,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    tol: float | None = 1e-8,
    most_products: int = 4096,
    seed: int = 0,
) -> Measurement:
    """How flat a network is on `data`, over all rescalings of its units.

    `function` is one of flattest's models or a JAX function `f(params, x)` of a tree of arrays and
    a batch of inputs, with one or more outputs per sample. `data` are a Dataset, a pair of arrays
    or batches of such pairs. L is the mean over samples of `loss`: a name ("mse", "half_mse",
    "logistic", each summed over outputs, "cross_entropy" with integer labels), or a JAX function of
    one sample's outputs and target. "logistic" has wen2023's label smoothing of 0.2, which moves
    λ_max and the mean loss and not a piecewise linear network's trace; `Logistic(0)` has none.

    The trace is exact for piecewise linear networks and for those of at most 4096 parameters, and
    for every MLP; beyond, it is estimated until its standard error is ≤ rtol · |trace| or
    `most_products` products are spent. `tol` is the top eigenvalue's, which takes most of the time;
    None leaves it out. For an MLP that interpolates a Dataset the certified lower bound stands
    beside it, where one is known (wen2023). Ctrl-C ends it with what is known by then (`partial`).
    """
    start = time.perf_counter()
    op = operator_of(function, params, data, loss)
    bound = _bound(op, function, data, loss)
    return assemble(op, start, tol, bound, rtol=rtol, most_products=most_products, seed=seed)


def _bound(op: Operator, function: Any, data: Any, loss: Any) -> Bound | None:
    """The certified lower bound over interpolators, for an MLP that is one."""
    if not isinstance(function, MLP) or not isinstance(data, Dataset) or not is_named(loss):
        return None
    kind = flattest_loss(loss)
    if not np.isfinite(kind.target(data.y)).all():
        return None
    if not interpolates(op.outputs(), targets(kind, data.y)):
        return None
    return known_lower_bound(function, data, kind)
