"""Sharpness: the trace, the largest eigenvalues and the spectrum of ∇²L, exact where possible.

Closed forms (`plain`, `normalized`) serve the networks of `models.MLP`, automatic differentiation
(`functions`) a user's own model or function; model, data and loss are what `flattest.measure`
takes. Every measure says by its `route` how it was found. Ctrl-C ends one with what is known by
then, which is `partial` and says so, or if nothing is known yet as it ends any program.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flattest.curvature import (
    combinations,
    diagonal,
    eigenvalues,
    estimators,
    spectrum as quadrature,
)
from flattest.curvature.functions import function_operator
from flattest.curvature.inputs import is_named, takes_classes
from flattest.curvature.mlp import blocks_of
from flattest.curvature.normalized import OPERATORS
from flattest.curvature.operator import Operator
from flattest.curvature.result import Eigenpairs, Quantity, known_so_far
from flattest.curvature.spectrum import SpectralDensity
from flattest.problem.data import Dataset
from flattest.problem.libraries import torch_model
from flattest.problem.losses import loss as resolve_loss
from flattest.problem.models import MLP, Model

Function = Model | Callable[[Any, Any], Any]


class Maker(NamedTuple):
    """Stands in a function's place for what brings its parameters along: a PyTorch module."""

    operator: Callable[[Any, Any], Operator]


def operator_of(function: Function | Maker, params: Any, data: Any, loss: Any = "mse") -> Operator:
    """∇²L at θ in float64, of a model or any JAX function, on data and for a loss of any kind: in
    closed form for an MLP on a Dataset, where it is one of flattest's losses."""
    if isinstance(function, Maker):
        return function.operator(data, loss)
    if (model := torch_model(function)) is not None:
        from flattest.curvature.modules import module_operator  # brings PyTorch along

        x, y = (data.x, data.y) if isinstance(data, Dataset) else data
        y = np.asarray(y).astype(np.int64) if takes_classes(loss) else y
        return module_operator(model.filled(params, np.shape(x)[1]), (x, y), loss)
    if not is_named(loss) or not isinstance(function, MLP) or not isinstance(data, Dataset):
        return function_operator(function, params, data, loss)
    kind = resolve_loss(loss)
    kind.check_labels(data.y)
    function.check(params, data.d)
    return OPERATORS[function.norm](function, blocks_of(function, params), data, kind)


@known_so_far
def trace(
    model: Function,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """Tr ∇²L at θ, also away from interpolation, split by parameter.

    Tr ∇²L = (1/n) Σ_i [ℓ″(f_i) ‖∇f_i‖² + ℓ′(f_i) Tr ∇²f_i]; the second term vanishes at
    interpolators (wen2023, Lemma 4.1) and for plain ReLU networks. Exact for every MLP, and for a
    user's model that is piecewise linear or has at most 4096 parameters. For another the first term
    is exact and the second estimated (Hutchinson) until the standard error is ≤ rtol · |trace| or
    `most_products` products are spent; only then do `rtol`, `most_products` and `seed` matter.

    A dead network (no neuron active at any training point) has trace 0: flat, and useless. Where
    θ is so large that floating-point numbers overflow, an MLP's trace is infinite.
    """
    op = operator_of(model, params, data, loss)
    return diagonal.trace(op, rtol=rtol, most_products=most_products, seed=seed)


@known_so_far
def gauss_newton_trace(
    model: Function,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_draws: int = 4096,
    samples: int | None = None,
    seed: int = 0,
) -> Quantity:
    """Tr G, the trace of the Gauss–Newton part of ∇²L, of any module: as
    `combinations.gauss_newton_trace` finds it, by random combinations of outputs."""
    op = operator_of(model, params, data, loss)
    return combinations.gauss_newton_trace(op, rtol, most_draws, samples, seed)


@known_so_far
def hutchinson(
    model: Function,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """An unbiased estimate of Tr ∇²L from zᵀ∇²L z with random signs z (Hutchinson 1990), with its
    standard error. Stops at a standard error ≤ rtol · |trace| or after `most_products` products."""
    return estimators.hutchinson(operator_of(model, params, data, loss), rtol, most_products, seed)


def xtrace(
    model: Function,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """An unbiased estimate of Tr ∇²L by XTrace (Epperly, Tropp, Webber 2024), with its standard
    error: far more accurate than Hutchinson's where a few eigenvalues dominate."""
    return estimators.xtrace(operator_of(model, params, data, loss), rtol, most_products, seed)


@known_so_far
def top_eigenvalue(
    model: Function, params: Any, data: Any, loss: Any = "mse", *, tol: float = 1e-10
) -> Quantity:
    """λ_max(∇²L), the largest eigenvalue, with `residual` = ‖Hv − λv‖ / |λ|."""
    return eigenvalues.top_eigenvalue(operator_of(model, params, data, loss), tol)


@known_so_far
def top_eigenvalues(
    model: Function,
    params: Any,
    data: Any,
    k: int,
    loss: Any = "mse",
    *,
    tol: float = 1e-10,
) -> Eigenpairs:
    """The k largest eigenvalues of ∇²L with their eigenvectors, to tol · max |λ|, as
    `eigenvalues.top_eigenvalues` finds them. A dead network, whose ∇²L is 0, is refused."""
    return eigenvalues.top_eigenvalues(operator_of(model, params, data, loss), k, tol)


@known_so_far
def spectrum(
    model: Function,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    probes: int = 8,
    steps: int = 64,
    seed: int = 0,
) -> SpectralDensity:
    """The density of ∇²L's eigenvalues by stochastic Lanczos quadrature (Ubaru et al. 2017):
    `probes` random signs, `steps` products with each."""
    return quadrature.spectrum(operator_of(model, params, data, loss), probes, steps, seed)
