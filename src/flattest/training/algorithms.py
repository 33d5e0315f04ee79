"""Training algorithms as declarative phases: gd, sgd, sam, label-noise sgd.

One step of every phase is the same formula. For a batch B cut into micro-batches B_1, …, B_k,

    g_j = ∇L_{B_j}(θ),   ε_j = ρ g_j/‖g_j‖ (normalized) or ρ g_j (unnormalized), 0 where g_j = 0,
    θ ← θ − η_t (Σ_j (|B_j|/|B|) ∇L_{B_j}(θ + ε_j) + λθ),

then ‖(W1, b1)‖ is scaled back to the radius R where there is one. Weight decay λ is L2 and stays
outside of the perturbation: neither ε nor the perturbed gradient contains it. Where the pattern is
kept, ∇L_{B_j}(θ + ε_j) is that of the network in which every neuron stays on the linear piece of σ
that it is on at θ: σ(h) is σ′(h at θ) · h there, so that ε crosses no kink. ρ = 0 is plain
(stochastic) gradient descent, one micro-batch per batch is SAM, and B of size 1 is the 1-SAM of
wen2023.
"""

import math
from typing import Any, Literal, get_args

import msgspec

from flattest.errors import FlattestError, require_known
from flattest.problem.checks import check_count

Ascent = Literal["normalized", "unnormalized"]
ASCENTS: tuple[str, ...] = get_args(Ascent)
Pattern = Literal["free", "kept"]
_LEAST_COUNTS = {"epochs": 1, "steps": 1, "batch": 1, "micro_batch": 1, "warmup": 0}


class StepChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="step_change"):
    """η is multiplied by `factor` once, at the end of the first epoch with training loss < `below`
    (mulayoff2021, Figure 1: ×3 once L < 0.1)."""

    below: float
    factor: float

    def __post_init__(self):
        _require_number("A step change's threshold", self.below, ">")
        _require_number("A step change's factor", self.factor, ">")


class Phase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="phase"):
    """One stretch of training with constant settings.

    lr: η. Its length is `epochs` passes over the data, or `steps` updates (whole epochs).
    batch: samples per step, None for all. With `replacement` they are i.i.d. draws, otherwise a
    shuffled pass whose last batch may be smaller. An epoch is n draws either way.
    rho, ascent, micro_batch: SAM's ρ, how it climbs, and m-SAM's m (None: the whole batch).
    pattern: whether the perturbed pass has its own activation pattern, or keeps that of θ.
    weight_decay: λ. label_noise: σ in y_i ± σ with a fresh fair sign at every draw.
    warmup: steps over which η grows linearly, η (t + 1)/warmup at step t of the phase.
    step_change, stop_loss: checked after every epoch, on the training loss L with clean labels;
    L ≤ stop_loss ends the phase. project: R in ‖(W1, b1)‖ ≤ R (wen2023, Figure 6b).
    """

    lr: float
    epochs: int | None = None
    steps: int | None = None
    batch: int | None = 1
    rho: float = 0.0
    ascent: Ascent = "normalized"
    micro_batch: int | None = None
    weight_decay: float = 0.0
    label_noise: float = 0.0
    replacement: bool = False
    warmup: int = 0
    step_change: StepChange | None = None
    project: float | None = None
    stop_loss: float | None = None
    pattern: Pattern = "free"

    def __post_init__(self):
        _require_number("The learning rate lr", self.lr, ">")
        _require_number("The SAM radius rho", self.rho, "≥")
        _require_number("The weight decay", self.weight_decay, "≥")
        _require_number("The label noise", self.label_noise, "≥")
        require_known("ascent", self.ascent, ASCENTS)
        require_known("pattern", self.pattern, get_args(Pattern))
        if (self.epochs is None) == (self.steps is None):
            raise FlattestError("A phase's length is given by epochs or by steps, by one of them.")
        for name, least in _LEAST_COUNTS.items():
            if (count := getattr(self, name)) is not None:
                # NumPy's integers cannot be written to a spec.
                msgspec.structs.force_setattr(self, name, check_count(name, count, least))
        if self.project is not None:
            _require_number("The projection's radius", self.project, ">")
        if self.stop_loss is not None:
            _require_number("The loss to stop at", self.stop_loss, "≥")
        if self.replacement and self.batch is None:
            raise FlattestError(
                "Drawing with replacement needs a batch size; full batches draw none."
            )
        if self.micro_batch is not None and self.rho == 0:
            raise FlattestError("Micro-batches change nothing without SAM; set rho > 0.")
        if self.pattern == "kept" and self.rho == 0:
            raise FlattestError("There is no perturbed pass to keep the pattern in; set rho > 0.")
        if self.micro_batch is not None and self.micro_batch > (self.batch or math.inf):
            raise FlattestError(
                f"The micro-batch of {self.micro_batch} is larger than the batch of {self.batch}."
            )

    def check(self, n: int) -> None:
        """Raises unless this phase can run on n training points."""
        for name, size in (("batch", self.batch), ("micro-batch", self.micro_batch)):
            if size is not None and size > n:
                raise FlattestError(
                    f"The {name} of {size} is larger than the {n} training points; "
                    f"use None for full batches."
                )
        if self.steps is not None and self.steps % self.steps_per_epoch(n):
            raise FlattestError(
                f"{self.steps} steps are not a whole number of epochs of "
                f"{self.steps_per_epoch(n)} steps."
            )

    def steps_per_epoch(self, n: int) -> int:
        return 1 if self.batch is None else math.ceil(n / self.batch)

    def length(self, n: int) -> int:
        """The number of epochs on n training points."""
        return self.epochs or (self.steps or 0) // self.steps_per_epoch(n)

    @property
    def numbers(self) -> dict[str, float]:
        """The phase in numbers; conditions and a radius that it does not have are infinite."""
        change, infinity = self.step_change, math.inf
        return {
            "lr": float(self.lr),
            "warmup": float(max(1, self.warmup)),
            "rho": float(self.rho),
            "decay": float(self.weight_decay),
            "noise": float(self.label_noise),
            "radius": infinity if self.project is None else float(self.project),
            "change_below": -infinity if change is None else float(change.below),
            "change_factor": 1.0 if change is None else float(change.factor),
            "stop_loss": -infinity if self.stop_loss is None else float(self.stop_loss),
        }


def gd(lr: float, **settings: Any) -> Phase:
    """Full-batch gradient descent."""
    return Phase(lr=lr, **{"batch": None, **settings})


def sgd(lr: float, batch: int | None = 1, **settings: Any) -> Phase:
    """Minibatch stochastic gradient descent."""
    return Phase(lr=lr, batch=batch, **settings)


def sam(lr: float, rho: float, batch: int | None = 1, **settings: Any) -> Phase:
    """SAM; by default with batches of one sample, the 1-SAM of wen2023.

    With pattern="kept" the perturbation crosses no kink of σ (piecewise linear networks).
    """
    return Phase(lr=lr, rho=rho, batch=batch, **settings)


def label_noise_sgd(lr: float, label_noise: float, batch: int | None = 1, **settings: Any) -> Phase:
    """SGD on y_i ± σ, whose drift at a minimum descends Tr ∇²L."""
    return Phase(lr=lr, label_noise=label_noise, batch=batch, **settings)


def _require_number(what: str, value: Any, sign: Literal[">", "≥"]) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and (value > 0 or (value == 0 and sign == "≥"))):
        raise FlattestError(f"{what} must be a finite number {sign} 0, not {value!r}.")
