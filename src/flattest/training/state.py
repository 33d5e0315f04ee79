"""What both engines take and give: the problem, and where a run stands at an epoch's end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import Model

# Part of every run's key. Raise it when a change of the code changes the numbers of a run.
ENGINE_VERSION = 5
# Earlier versions whose numbers are those of this one up to the processor's rounding: their runs
# stand. Kernels are compiled for a kind of processor now, and were for its model, so that last bits
# may differ as between two kinds of processors; that is no reason to do all runs anew.
SAME_NUMBERS = (4, 3, 2)
# Not so of tasks with one of these in their JSON, by the version since which their numbers are
# what they are: m-SAM of single samples rounds otherwise since 4, the flow with walls since 5.
NEW_NUMBERS = {
    4: (b'"micro_batch":1,', b'"m-sam"', b'"question2/limit"'),
    5: (
        *(b'"walls"', b'"flow-walls"', b'"question2/walls"', b'"question2/elsewhere"'),
        b'"question2/off-kinks"',
    ),
}

Halt = Literal["stopped", "diverged", "stalled"]
HALTS: tuple[Halt | None, ...] = (None, "stopped", "diverged")  # by the engines' codes


@dataclass(frozen=True, eq=False)
class Problem:
    """What is trained. `seed` keys the sample order and the label noise together with the epoch."""

    model: Model
    data: Dataset
    loss: Loss
    seed: int


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands, always at the end of an epoch.

    params: arrays in the run's precision, which is theirs. memory: what the phase's optimizer keeps
    beside them, empty where it has not begun. epoch, step: done in the whole run;
    phase_epoch: done in the current phase (warm-up counts from there), the phase's index being
    `phase`. changed: whether the phase's step change has happened. halt: why the engine returned
    early, "stopped" (the loss reached `stop_loss`, or a flow a stationary point), "diverged" or
    "stalled" (a flow whose steps became too small). tally: what an engine counts over the run, by
    name; it is logged beside the metrics. events: what happened on the way, a row each, by name.

    A diverged epoch is not applied: params, memory and the epochs are those at its start, and
    `step` is the number of updates done when the network's output on a batch, or at the end of the
    epoch a parameter, was first not finite.

    Engines have one entry point, `advance(problem, phase, state, epochs) -> State`. What it
    computes depends on the arguments only, so that any way to cut a phase into calls gives the
    same bits.
    """

    params: dict[str, np.ndarray]
    epoch: int = 0
    step: int = 0
    phase: int = 0
    phase_epoch: int = 0
    changed: bool = False
    halt: Halt | None = None
    memory: dict[str, np.ndarray] = field(default_factory=dict)
    tally: Mapping[str, float] = field(default_factory=dict)
    events: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def dtype(self) -> np.dtype:
        """The run's precision."""
        return next(iter(self.params.values())).dtype
