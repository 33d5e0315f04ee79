"""What a run refuses before it begins, each in one sentence."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from flattest.errors import FlattestError, first_line
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.losses import MSE, HalfMSE, Loss, check_outputs
from flattest.problem.models import MLP, Model, Params
from flattest.training.algorithms import Phase
from flattest.training.flows import Flow

DTYPES = ("float32", "float64")


def check_kinds(model: Model, data: Dataset) -> None:
    if not isinstance(model, Model):
        raise FlattestError(f"A model has init and apply, as MLP and FunctionModel; not {model!r}.")
    require_dataset(data)


def flows(phases: Sequence[Phase | Flow], dtype: str) -> bool:
    """Whether a phase is a flow; raises where the precision is not enough for one."""
    found = any(isinstance(phase, Flow) for phase in phases)
    if found and dtype != "float64":
        raise FlattestError(f"A flow is followed in float64, not {dtype}; give dtype='float64'.")
    return found


def checked_phases(
    phases: Phase | Flow | Sequence[Phase | Flow], data: Dataset, loss: Loss
) -> list[Phase | Flow]:
    phases = [phases] if isinstance(phases, Phase | Flow) else list(phases)
    if not phases:
        raise FlattestError("There is nothing to train: give at least one phase.")
    for phase in phases:
        if not isinstance(phase, Phase | Flow):
            raise FlattestError(f"A phase is made by gd, sgd, sam or flow; {phase!r} is not one.")
        phase.check(data.n)
        squared = isinstance(loss, MSE | HalfMSE) and data.y.ndim == 1
        if isinstance(phase, Phase) and phase.label_noise > 0 and not squared:
            raise FlattestError(
                "Label noise y ± σ is defined for the squared losses and one output only."
            )
    return phases


def check_patterns(model: Model, phases: Sequence[Phase | Flow]) -> None:
    """Raises where a pattern is to be kept that the network does not have."""
    linear_pieces = isinstance(model, MLP) and model.sigma.piecewise_linear
    if not linear_pieces and any(
        isinstance(phase, Phase) and phase.pattern == "kept" for phase in phases
    ):
        what = f"σ = {model.activation}" if isinstance(model, MLP) else type(model).__name__
        raise FlattestError(
            f"SAM keeps the activation pattern of an MLP with a piecewise linear activation (relu, "
            f"leaky_relu), not of {what}; leave pattern at 'free'."
        )


def check_params(
    model: Model, params: Params, data: Dataset, loss: Loss, phases: Sequence[Phase | Flow]
) -> None:
    """Raises unless the network can be evaluated on the data from finite parameters."""
    if isinstance(model, MLP):
        model.check(params, data.d)
    for name, value in params.items():
        if not np.isfinite(np.asarray(value)).all():
            raise FlattestError(f"Parameter {name} has entries that are not finite.")
    projects = any(isinstance(phase, Phase) and phase.project is not None for phase in phases)
    if projects and "W1" not in params:
        raise FlattestError("The projection needs a first layer named W1 (and b1).")
    if isinstance(model, MLP):
        check_outputs(loss, (data.n,), data.y)
        return
    try:
        f = model.apply({k: jnp.asarray(v) for k, v in params.items()}, data.x, data.x)
    except (TypeError, ValueError) as error:
        raise FlattestError(
            f"The model cannot be applied to {data.d} inputs with these parameters: "
            f"{first_line(error)}"
        ) from error
    check_outputs(loss, np.shape(f), data.y)
