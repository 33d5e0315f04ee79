"""Measuring a PyTorch module: `ft.torch.measure(module, data, loss)`. Needs `flattest[torch]`.

L is the mean over all samples of `loss`: a name ("mse" sums squares over outputs, "half_mse",
"logistic", "cross_entropy"), PyTorch's MSELoss or CrossEntropyLoss, or any function of outputs and
targets that is the mean over a batch. `data` are a pair of tensors or arrays, a Dataset, or a
loader of pairs, whose batches may be of unequal size. Everything is computed in float64 on a copy.
"""

import time
from typing import Any

from flattest.errors import FlattestError

try:
    from torch import nn
except ImportError:
    raise FlattestError(
        "Measuring PyTorch modules needs PyTorch; install it with: pip install 'flattest[torch]'."
    ) from None

from flattest.curvature import diagonal, eigenvalues, estimators, spectrum as quadrature
from flattest.curvature.modules import module_operator
from flattest.curvature.result import Eigenpairs, Quantity
from flattest.curvature.spectrum import SpectralDensity
from flattest.flatness.assemble import assemble
from flattest.flatness.measurement import Measurement

__all__ = [
    "hutchinson",
    "measure",
    "spectrum",
    "top_eigenvalue",
    "top_eigenvalues",
    "trace",
    "xtrace",
]


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
    """How flat the module is on `data`, over all rescalings of its units; `rescaled` is a copy of
    it, the module's flattest equivalent.

    The trace is exact for piecewise linear networks and for those of at most 4096 parameters;
    beyond, it is estimated until its standard error is ≤ rtol · |trace| or `most_products`
    products are spent. `tol` is the top eigenvalue's.
    """
    start = time.perf_counter()
    op = module_operator(module, data, loss)
    return assemble(op, start, tol, rtol=rtol, most_products=most_products, seed=seed)


def trace(
    module: nn.Module,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """Tr ∇²L alone, as `measure` finds it."""
    op = module_operator(module, data, loss)
    return diagonal.trace(op, rtol=rtol, most_products=most_products, seed=seed)


def hutchinson(
    module: nn.Module,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """Tr ∇²L estimated by random signs, as `flattest.hutchinson` does."""
    return estimators.hutchinson(module_operator(module, data, loss), rtol, most_products, seed)


def xtrace(
    module: nn.Module,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """Tr ∇²L estimated by XTrace, as `flattest.xtrace` does."""
    return estimators.xtrace(module_operator(module, data, loss), rtol, most_products, seed)


def top_eigenvalue(
    module: nn.Module, data: Any, loss: Any = "mse", *, tol: float = 1e-8
) -> Quantity:
    """λ_max(∇²L) alone, as `measure` finds it."""
    return eigenvalues.top_eigenvalue(module_operator(module, data, loss), tol)


def top_eigenvalues(
    module: nn.Module, data: Any, k: int, loss: Any = "mse", *, tol: float = 1e-8
) -> Eigenpairs:
    """The k largest eigenvalues of ∇²L; eigenvectors by the module's names of parameters."""
    return eigenvalues.top_eigenvalues(module_operator(module, data, loss), k, tol)


def spectrum(
    module: nn.Module,
    data: Any,
    loss: Any = "mse",
    *,
    probes: int = 8,
    steps: int = 64,
    seed: int = 0,
) -> SpectralDensity:
    """The density of ∇²L's eigenvalues, as `flattest.spectrum` finds it."""
    return quadrature.spectrum(module_operator(module, data, loss), probes, steps, seed)
