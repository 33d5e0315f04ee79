"""Flows of the sharpness along the interpolators, as phases of training.

On M = {θ : f_θ(x_i) = t_i for every training point}, t_i the output that minimizes ℓ, ∇²L is its
Gauss–Newton part and Tr ∇²L = (1/n) Σ_i ℓ″(t_i) ‖∇f_i‖². The flow is

    dθ/dt = −P(θ) ∇ Tr ∇²L,   P the projection onto the tangent space of M,

the limit on paper of 1-SAM (t = ηρ²/2 a step) and of label-noise SGD (t = η²σ²/2 a step) as their
steps shrink. At a ReLU's kink the trace jumps, which no gradient shows, so that there are two:
kinks *unseen*, where ∇ is the gradient almost everywhere, and kinks *seen*, where it is that of the
trace with σ smoothed over a width δ, δ log(1 + e^{t/δ}); M stays that of the network itself. Its
limit δ → 0 has one-way *walls* at the kinks (`flow_walls`).
"""

import math
from typing import Any, Literal, get_args

import msgspec

from flattest.errors import FlattestError, require_known
from flattest.problem.checks import check_count

Kinks = Literal["unseen", "seen", "walls"]


class Flow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="flow"):
    """One stretch of the flow, from an interpolator (or near enough for Newton's method).

    time: how long it flows, in `epochs` equal pieces, at whose ends it is logged and saved.
    kinks, width: "unseen", "seen" or "walls", and δ where they are seen.
    tolerance: the error of a step, estimated, is at most this share of ‖θ‖.
    stationary: the flow ends where ‖P∇Tr‖ ‖θ‖ ≤ stationary · Tr.
    """

    time: float
    epochs: int = 100
    kinks: Kinks = "unseen"
    width: float = 0.05
    tolerance: float = 1e-4
    stationary: float = 1e-6

    def __post_init__(self):
        for name in ("time", "width", "tolerance", "stationary"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(value) and value > 0):
                raise FlattestError(f"A flow's {name} must be a finite number > 0, not {value!r}.")
        require_known("way to treat kinks", self.kinks, get_args(Kinks))
        # NumPy's integers cannot be written to a spec.
        msgspec.structs.force_setattr(self, "epochs", check_count("epochs", self.epochs))

    def check(self, n: int) -> None:
        """Any number of points will do."""

    def steps_per_epoch(self, n: int) -> int:
        return 1

    def length(self, n: int) -> int:
        """The number of epochs, pieces of its time."""
        return self.epochs

    @property
    def weight_decay(self) -> float:
        """The flow stays at the least loss."""
        return 0.0


def flow(time: float, **settings: Any) -> Flow:
    """The flow of Tr ∇²L along the interpolators: `ft.train(model, data, ft.flow(8.0),
    params=…, dtype="float64")`."""
    return Flow(time=time, **settings)
