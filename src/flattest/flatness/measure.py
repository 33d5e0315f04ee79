"""How flat a network is, in a way that no rescaling can fake: `measure` for JAX functions.

`flattest.flatness.measure_module` is its twin for PyTorch modules.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flattest.curvature.diagonal import Diagonal, find_diagonal
from flattest.curvature.functions import FunctionProblem, function_problem, is_named, named_leaves
from flattest.curvature.sharpness import MOST_COLUMNS, trace
from flattest.errors import FlattestError
from flattest.flatness.assemble import Size, assemble, top_eigenvalue
from flattest.flatness.bounds import Bound, known_lower_bound, targets
from flattest.flatness.measurement import Layer, Measurement
from flattest.problem.data import Dataset
from flattest.problem.losses import loss as flattest_loss
from flattest.problem.models import MLP, Model
from flattest.problem.randomness import generator
from flattest.rescaling.jaxpr import structure_of

__all__ = ["Layer", "Measurement", "measure"]

_DEGENERATE = (
    "the units behind the normalization are scale-invariant: enlarging the weights that feed it "
    "flattens without limit and without changing the function, so the infimum is degenerate"
)
# Outputs this near to their targets t, relative to max |t|, interpolate, so that bounds over
# interpolators apply. Targets that are all 0 have no scale: only outputs of exactly 0 will do.
_INTERPOLATION = 1e-8
_CHANGED = "the rescalings found in the function change its outputs on these data"
# Rescaling may change outputs by what changing every weight by this part of itself would. Against
# the outputs themselves, rounding errors could be large: terms may cancel, in a network of output
# 0 all of them.
_ALIKE = 1e-6


def measure(
    function: Model | Callable[[Any, Any], Any],
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    tol: float = 1e-8,
    most_products: int = 4096,
    seed: int = 0,
) -> Measurement:
    """How flat a network is on `data`, over all rescalings of its units.

    `function` is one of flattest's models or a JAX function `f(params, x)` of a tree of arrays and
    a batch of inputs, with one or more outputs a sample. `data` are a Dataset, a pair of arrays or
    batches of such pairs. L is the mean over samples of `loss`: a name ("mse", "half_mse",
    "logistic", each summed over outputs, "cross_entropy" with integer labels), or a JAX function of
    one sample's outputs and target.

    The trace is exact for piecewise linear networks and for those of at most 4096 parameters, and
    for every MLP; beyond, it is estimated until its standard error is ≤ rtol · |trace| or
    `most_products` products are spent. `tol` is the top eigenvalue's. For an MLP that interpolates
    a Dataset, |f − t| ≤ 1e-8 max |t| for the targets t, the certified lower bound stands beside it,
    where one is known (wen2023).
    """
    start = time.perf_counter()
    p = function_problem(_callable(function, data), params, data, loss)
    structure = structure_of(p.function, p.leaves, p.x[:1])
    if isinstance(function, MLP) and function.norm is not None:
        structure = replace(structure, units=_DEGENERATE)
    large = not structure.exact and p.size > MOST_COLUMNS
    if large and isinstance(function, MLP) and isinstance(data, Dataset):
        # A closed form gives the trace layer by layer, but not entry by entry.
        traces = trace(function, params, data, loss).per_layer
        diagonal = Diagonal(
            {name: np.array(value) for name, value in traces.items()}, "exact: closed form"
        )
        if not isinstance(structure.units, str):
            structure = replace(structure, units="∇²L is known by layer, not by entry")
    else:
        diagonal = find_diagonal(p, structure, p.gauss_newton_diagonal, rtol, most_products, seed)
    top = top_eigenvalue(p.matvec, p.size, tol, generator(seed, "measure/start"))
    size = Size(p.size, p.samples, p.mean_loss())
    bound = _bound(function, p, data, loss)
    found, least = assemble(diagonal, structure.units, top, size, (), bound)
    if least and not _keeps_outputs(p, least.factors, generator(seed, "measure/alike")):
        found, least = assemble(diagonal, _CHANGED, top, size, (), bound)
    rescaled = _rescaled(params, least.factors) if least else None
    return replace(found, rescaled=rescaled, seconds=time.perf_counter() - start)


def _callable(function: Any, data: Any) -> Callable[[Any, Any], Any]:
    if isinstance(function, Model):
        # Sim-BN's statistics are those of the whole training set, whatever part is looked at.
        train_x = jnp.asarray(data.x) if isinstance(data, Dataset) else None
        return lambda params, x: function.apply(params, x, train_x)
    if not callable(function):
        raise FlattestError(
            "A model or a function of parameters and inputs is measured, "
            f"not a {type(function).__name__}."
        )
    return function


def _bound(function: Any, p: FunctionProblem, data: Any, loss: Any) -> Bound | None:
    """The certified lower bound over interpolators, for an MLP that is one."""
    if not isinstance(function, MLP) or not isinstance(data, Dataset) or not is_named(loss):
        return None
    kind = flattest_loss(loss)
    if not np.isfinite(kind.target(data.y)).all():
        return None
    if not _interpolates(np.asarray(p.outputs)[:, 0], targets(kind, data.y)):
        return None
    return known_lower_bound(function, data, kind)


def _interpolates(f: np.ndarray, t: np.ndarray) -> bool:
    return bool(np.abs(f - t).max() <= _INTERPOLATION * np.abs(t).max())


def _keeps_outputs(
    p: FunctionProblem, factors: dict[str, np.ndarray], rng: np.random.Generator
) -> bool:
    """Whether f is the same on all the data with every weight multiplied by its factor."""
    near = {name: 1 + _ALIKE * rng.normal(size=np.shape(leaf)) for name, leaf in p.leaves.items()}
    return _change(p, factors) <= _change(p, near)


def _change(p: FunctionProblem, factors: dict[str, np.ndarray]) -> float:
    """max |f − f'| over the data, where every weight of f' is multiplied by its factor."""
    moved = p.function({name: leaf * factors[name] for name, leaf in p.leaves.items()}, p.x)
    return float(np.abs(np.asarray(moved).reshape(p.outputs.shape) - p.outputs).max())


def _rescaled(params: Any, factors: dict[str, np.ndarray]) -> Any:
    """The parameters, each multiplied by its factor, as float64."""
    leaves, tree = named_leaves(params)
    scaled = [np.asarray(leaf) * factors[name] for name, leaf in leaves.items()]
    return jax.tree.unflatten(tree, scaled)
