"""Measuring a PyTorch module: `ft.torch.measure(module, data, loss)`. Needs `flattest[torch]`.

The measures are those of `flattest`, settings and defaults included, with a module in the place of
a function and its parameters.

L is the mean over all samples of `loss`: a name ("mse" sums squares over outputs, "half_mse",
"cross_entropy", "logistic" with wen2023's label smoothing of 0.2, `Logistic(0)` having none), one
of PyTorch's losses, with class weights, ignored labels or reduction="sum" if it has them, or any
function of outputs and targets that is the mean over a batch. `data` are a pair of tensors or
arrays, a Dataset, or a loader, whose batches may be of unequal size: pairs, several inputs and
targets, or dicts with targets under "labels". The module is called with the inputs (those of a dict
by name) and returns a tensor, or an object with `logits`; `forward(module, x)` says otherwise.
Everything is computed in float64 on a copy, with dtype="float32" in float32 with sums in float64:
about twice as fast, for what needs first derivatives only (the trace of a piecewise linear
network), and good to six digits or so; `rescaled` in a Measurement is a copy too, the module's
flattest equivalent, and eigenvectors go by the module's names of parameters. A trace that cannot be
exact is estimated as a whole.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from flattest.errors import FlattestError

try:
    from torch import nn
except ImportError:
    raise FlattestError(
        "Measuring PyTorch modules needs PyTorch; install it with: pip install 'flattest[torch]'."
    ) from None

from flattest.curvature import sharpness
from flattest.curvature.module_batches import Forward
from flattest.curvature.modules import module_operator
from flattest.flatness import league as measures, measure as flatness, symmetric, words
from flattest.flatness.module_watch import (
    ModuleWatch as Watch,
    lightning_callback,
    trainer_callback,
)

__all__ = [
    "Watch",
    "explain",
    "gauss_newton_trace",
    "hutchinson",
    "league",
    "least_gauss_newton",
    "lightning_callback",
    "measure",
    "spectrum",
    "top_eigenvalue",
    "top_eigenvalues",
    "trace",
    "trainer_callback",
    "xtrace",
]

P = ParamSpec("P")
R = TypeVar("R")


def _of_module(
    measured: Callable[Concatenate[Any, Any, P], R],
) -> Callable[Concatenate[nn.Module, P], R]:
    """The measure of a module, from that of a function and its parameters."""

    def of_module(
        module: nn.Module,
        *args: Any,
        forward: Forward | None = None,
        dtype: str = "float64",
        **settings: Any,
    ):
        made = functools.partial(module_operator, module, forward=forward, dtype=dtype)
        return measured(sharpness.Maker(made), None, *args, **settings)

    own = [inspect.signature(of_module).parameters[name] for name in ("forward", "dtype")]
    functools.update_wrapper(of_module, measured, ("__name__", "__qualname__"))
    of_module.__doc__ = (
        f"`flattest.{measured.__name__}` of a module; help(flattest.torch) says what it takes.\n\n"
        f"{inspect.getdoc(measured)}"
    )
    given = inspect.signature(measured)
    function, _, *rest = given.parameters.values()
    module = function.replace(name="module", annotation=nn.Module)
    parameters = [module, *rest, *own]
    setattr(of_module, "__signature__", given.replace(parameters=parameters))  # noqa: B010
    return of_module


measure = _of_module(flatness.measure)
league = _of_module(measures.league)
explain = _of_module(words.explain)
trace = _of_module(sharpness.trace)
least_gauss_newton = _of_module(symmetric.least_gauss_newton)
gauss_newton_trace = _of_module(sharpness.gauss_newton_trace)
hutchinson = _of_module(sharpness.hutchinson)
xtrace = _of_module(sharpness.xtrace)
top_eigenvalue = _of_module(sharpness.top_eigenvalue)
top_eigenvalues = _of_module(sharpness.top_eigenvalues)
spectrum = _of_module(sharpness.spectrum)
