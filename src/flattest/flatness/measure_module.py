"""The trace, the least trace over rescalings and the top eigenvalue of a PyTorch module."""

import copy
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from flattest.curvature.diagonal import Diagonal, find_diagonal
from flattest.curvature.module_losses import Factor, MeanLoss
from flattest.curvature.module_squares import add_squares
from flattest.curvature.modules import Problem, problem
from flattest.curvature.result import Measure
from flattest.flatness.assemble import Size, assemble
from flattest.flatness.assemble import top_eigenvalue as lanczos_top
from flattest.flatness.measurement import Measurement
from flattest.problem.randomness import generator


def measure(
    module: nn.Module,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    tol: float = 1e-8,
    most_products: int = 4096,
    seed: int = 0,
) -> Measurement:
    """How flat the module is on `data`, over all rescalings of its units.

    L is the mean over all samples of `loss`: a name ("mse" sums squares over outputs, "half_mse",
    "logistic", "cross_entropy"), PyTorch's MSELoss or CrossEntropyLoss, or any function of outputs
    and targets that is the mean over a batch. `data` are a pair of tensors or arrays, a Dataset, or
    a loader of pairs, whose batches may be of unequal size. Everything is computed in float64 on a
    copy; `rescaled` is another copy, the module's flattest equivalent.

    The trace is exact for piecewise linear networks and for those of at most 4096 parameters;
    beyond, it is estimated until its standard error is ≤ rtol · |trace| or `most_products`
    products are spent. `tol` is the top eigenvalue's.
    """
    start = time.perf_counter()
    p = problem(module, data, loss)
    diagonal = _diagonal(p, rtol, most_products, seed)
    top = lanczos_top(p.matvec, p.size, tol, generator(seed, "measure/start"))
    size = Size(p.size, p.samples, p.mean_loss())
    found, least = assemble(diagonal, p.structure.units, top, size, p.structure.notes)
    rescaled = _rescaled(module, least.factors) if least else None
    return replace(found, rescaled=rescaled, seconds=time.perf_counter() - start)


def trace(
    module: nn.Module,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Measure:
    """Tr ∇²L alone, as `measure` finds it."""
    return _diagonal(problem(module, data, loss), rtol, most_products, seed).as_measure()


def top_eigenvalue(
    module: nn.Module, data: Any, loss: Any = "mse", *, tol: float = 1e-8, seed: int = 0
) -> Measure:
    """λ_max(∇²L) alone, as `measure` finds it."""
    p = problem(module, data, loss)
    return lanczos_top(p.matvec, p.size, tol, generator(seed, "measure/start"))


def _diagonal(p: Problem, rtol: float, most_products: int, seed: int) -> Diagonal:
    return find_diagonal(p, p.structure, partial(gauss_newton, p), rtol, most_products, seed)


def gauss_newton(p: Problem) -> dict[str, np.ndarray]:
    """The diagonal of the Gauss–Newton matrix, chunk by chunk."""
    total: dict[nn.Parameter, torch.Tensor] = {}
    with torch.no_grad():
        for x, y in p.chunks():
            add_squares(p.module, x, partial(_factor, p.loss, y), total)
    return {
        name: total[parameter].cpu().numpy() / p.samples for name, parameter in p.parameters.items()
    }


def _factor(loss: MeanLoss, y: torch.Tensor, f: torch.Tensor) -> Factor:
    return loss.factor(f, y)


def _rescaled(module: nn.Module, factors: dict[str, np.ndarray]) -> nn.Module:
    """A copy of the module with every weight multiplied by its factor."""
    rescaled = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in rescaled.named_parameters():
            factor = torch.as_tensor(factors[name], device=parameter.device)
            parameter.copy_(parameter.double() * factor)
            parameter.grad = None
    return rescaled
