"""The engines by name, and which of them a run gets."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from flattest.errors import FlattestError, require_known
from flattest.problem.libraries import torch_model
from flattest.problem.losses import Loss
from flattest.problem.models import Model
from flattest.training import flow_engine, fused, loop
from flattest.training.algorithms import Phase
from flattest.training.flows import Flow
from flattest.training.state import Problem, State

Backend = Literal["auto", "jax", "fused"]


def _in_pytorch(problem: Problem, phase: Phase, state: State, epochs: int) -> State:
    from flattest.training import module_engine  # brings PyTorch along

    return module_engine.advance(problem, phase, state, epochs)


ENGINES: dict[str, Callable[[Problem, Phase, State, int], State]] = {
    "jax": loop.advance,
    "fused": fused.advance,
    "torch": _in_pytorch,
}


def advance(engine: str, problem: Problem, phase: Phase | Flow, state: State, epochs: int) -> State:
    """The state after `epochs` more epochs: flows have an engine of their own."""
    if isinstance(phase, Flow):
        return flow_engine.advance(problem, phase, state, epochs)
    return ENGINES[engine](problem, phase, state, epochs)


def choose(
    backend: str, model: Model, loss: Loss, every: Sequence[Phase | Flow]
) -> tuple[str, str]:
    """The name of the engine for steps, and why it is not the fused one ("" where it is)."""
    require_known("backend", backend, get_args(Backend))
    phases = [phase for phase in every if isinstance(phase, Phase)]
    if torch_model(model) is not None:
        if backend != "auto":
            raise FlattestError("A PyTorch module is trained in PyTorch: leave backend at 'auto'.")
        return "torch", "A PyTorch module is trained in PyTorch."
    if not phases:
        return "flow", ""
    if backend == "jax":
        return "jax", "The JAX engine was asked for."
    refusals = (fused.supports(model, loss, phase) for phase in phases)
    reason = next((why for why in refusals if why is not None), None)
    if reason is None:
        return "fused", ""
    if backend == "fused":
        raise FlattestError(f"{reason} Use backend='auto' or 'jax'.")
    return "jax", reason
