"""What a run refuses before it begins, each in one sentence."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from flattest.curvature.inputs import attempt
from flattest.errors import FlattestError
from flattest.problem.checks import check_number, finite_array
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.libraries import torch_model
from flattest.problem.losses import MSE, HalfMSE, Loss, check_outputs
from flattest.problem.models import MLP, Model, Params
from flattest.training.algorithms import Phase
from flattest.training.flows import Flow
from flattest.training.optimizers import Optax, Step, TorchOptimizer

DTYPES = ("float32", "float64")


def checked(
    model: Model,
    data: Dataset,
    phases: Phase | Flow | Sequence[Phase | Flow],
    loss: Loss,
    seed: int = 0,
    params: Params | None = None,
) -> tuple[list[Phase | Flow], Params]:
    """The phases and the parameters to begin with; raises unless network, data, loss and algorithm
    fit together."""
    check_kinds(model, data)
    loss.check_labels(data.y)
    found = checked_phases(phases, data, loss)
    check_patterns(model, found)
    check_libraries(model, found)
    params = drawn_params(model, data.d, seed) if params is None else params
    check_params(model, params, data, loss, found)
    return found, params


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
    phases = list(phases) if isinstance(phases, Iterable) else [phases]
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


_JAX_ONLY: dict[str, Callable[[Phase], bool]] = {
    "an optax transformation": lambda phase: isinstance(phase.optimizer, Optax),
    "a JAX step of your own": lambda phase: isinstance(phase.optimizer, Step),
    "a projection": lambda phase: phase.project is not None,
}


def check_libraries(model: Model, phases: Sequence[Phase | Flow]) -> None:
    """Raises where an algorithm is written in another library than the network."""
    in_torch = torch_model(model) is not None
    for phase in phases:
        if isinstance(phase, Flow):
            unfit = "a flow" if in_torch else None
        elif in_torch:
            unfit = next((what for what, is_so in _JAX_ONLY.items() if is_so(phase)), None)
        else:
            unfit = "a torch optimizer" if isinstance(phase.optimizer, TorchOptimizer) else None
        if unfit is not None:
            where = "a PyTorch module" if in_torch else "a JAX network"
            raise FlattestError(f"{where} cannot be trained by {unfit}.".capitalize())


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
    failure = f"The model cannot be applied to {data.d} inputs with these parameters"
    exact = {name: jnp.asarray(value) for name, value in params.items()}
    f = attempt(failure, model.apply, exact, data.x, data.x)
    check_outputs(loss, np.shape(f), data.y)


def drawn_params(model: Model, d: int, seed: int) -> Params:
    """What the model draws for the seed; raises unless it is a dict of arrays of real numbers."""
    params = attempt(f"{type(model).__name__}.init({d}, {seed}) failed", model.init, d, seed)
    if not isinstance(params, Mapping) or not params:
        raise FlattestError(
            f"A model's init gives a dict of arrays by name, not a {type(params).__name__}."
        )
    return {name: finite_array(f"Parameter {name}", value) for name, value in params.items()}


def require_places_and_progress(checkpoint: Any, snapshots: Any, progress: Any) -> None:
    """Refuse folders that are not paths, and a `progress` that cannot be called."""
    for name, folder in (("checkpoint", checkpoint), ("snapshots", snapshots)):
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise FlattestError(f"{name} is the path of a folder, not {folder!r}.")
    if progress is not None and not callable(progress):
        raise FlattestError(f"progress is a function of what is done so far, not {progress!r}.")


def require_paces(**seconds: Any) -> None:
    """Refuse times between two reports or two checkpoints that are not numbers ≥ 0; they may be
    infinite."""
    for name, value in seconds.items():
        if not (isinstance(value, float | np.floating) and value == np.inf):
            check_number(name, value)
