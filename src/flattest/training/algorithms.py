"""Training algorithms as declarative phases: gd, sgd, sam, label-noise sgd, momentum, adam, …

One step of every phase is the same formula. For a batch B cut into micro-batches B_1, …, B_k,

    g_j = ∇L_{B_j}(θ),   ε_j = ρ g_j/‖g_j‖ (normalized), ρ g_j (unnormalized) or, with T = |θ|
    elementwise, ρ T²g_j/‖T g_j‖ (adaptive: ASAM, Kwon et al. 2021), 0 where that is 0/0,
    u = Σ_j (|B_j|/|B|) (h_j − α g_j^⊥),   h_j = ∇L_{B_j}(θ + ε_j),
    θ ← θ − η_t (u + λθ),

where g_j^⊥ is the part of g_j orthogonal to h_j (α > 0: GSAM, Zhuang et al. 2022). Where the
pattern is kept, h_j is the gradient of the network in which every neuron stays on the linear piece
of σ that it is on at θ: σ(h) is σ′(h at θ) · h there, so that ε crosses no kink. u is cut to the
norm `clip`, a base optimizer may put its own direction in the place of u + λθ (`optimizers`), and
‖(W1, b1)‖ is scaled back to the radius R where there is one. Weight decay λ is L2 and stays outside
of the perturbation: neither ε nor the perturbed gradient contains it. ρ = 0 is plain (stochastic)
gradient descent, one micro-batch per batch is SAM, and B of size 1 is the 1-SAM of wen2023.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from flattest.errors import FlattestError, require_known
from flattest.problem.checks import check_count
from flattest.training.optimizers import (
    Adam,
    AdamW,
    Decay,
    Momentum,
    Optax,
    Optimizer,
    Step,
    TorchOptimizer,
)

Ascent = Literal["normalized", "unnormalized", "adaptive"]
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
    warmup: steps over which η grows linearly, η (t + 1)/warmup at step t of the phase; decay: how
    it falls after that, or beside it. optimizer: what a step makes of u, None for u + λθ itself.
    clip: u is scaled down to this norm. surrogate: GSAM's α.
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
    optimizer: Optimizer | None = None
    decay: Decay | None = None
    clip: float | None = None
    surrogate: float = 0.0
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
        if self.clip is not None:
            _require_number("The norm to clip at", self.clip, ">")
        _require_number("GSAM's surrogate", self.surrogate, "≥")
        self._check_optimizer()
        if self.replacement and self.batch is None:
            raise FlattestError(
                "Drawing with replacement needs a batch size; full batches draw none."
            )
        for name, given in (("Micro-batches", self.micro_batch), ("GSAM's α", self.surrogate)):
            if given and self.rho == 0:
                raise FlattestError(f"{name} change nothing without SAM; set rho > 0.")
        if self.pattern == "kept" and self.rho == 0:
            raise FlattestError("There is no perturbed pass to keep the pattern in; set rho > 0.")
        if self.micro_batch is not None and self.micro_batch > (self.batch or math.inf):
            raise FlattestError(
                f"The micro-batch of {self.micro_batch} is larger than the batch of {self.batch}."
            )

    def _check_optimizer(self) -> None:
        for name, kinds in (("optimizer", Optimizer), ("decay", Decay)):
            given = getattr(self, name)
            if given is not None and not isinstance(given, get_args(kinds)):
                valid = ", ".join(kind.__name__ for kind in get_args(kinds))
                raise FlattestError(f"A phase's {name} is one of {valid}, not {given!r}.")
        if isinstance(self.optimizer, Step):
            for name in ("rho", "weight_decay", "clip", "decay", "warmup"):
                if getattr(self, name):
                    raise FlattestError(f"Your own step takes no {name}: it does all of the step.")
        if isinstance(self.optimizer, TorchOptimizer) and self.weight_decay:
            raise FlattestError("A torch optimizer has a weight decay of its own; give it there.")

    def check(self, n: int) -> None:
        """Raises unless this phase can run on n training points."""
        for name, size in (("batch", self.batch), ("micro-batch", self.micro_batch)):
            if size is not None and size > n:
                raise FlattestError(
                    f"The {name} of {size} is larger than the {n} training points; "
                    f"use None for full batches."
                )
        if isinstance(self.optimizer, Step) and n % (self.batch or n):
            raise FlattestError(
                f"Your own step is given whole batches: {n} points are not a multiple of the "
                f"batch of {self.batch}."
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


def momentum(
    lr: float, beta: float = 0.9, nesterov: bool = False, batch: int | None = 1, **settings: Any
) -> Phase:
    """SGD with momentum β, heavy ball or Nesterov's; with rho > 0, SAM around it."""
    return Phase(lr=lr, batch=batch, optimizer=Momentum(beta, nesterov), **settings)


def adam(
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    batch: int | None = 1,
    **settings: Any,
) -> Phase:
    """Adam, its weight decay L2; with rho > 0, SAM around it."""
    return Phase(lr=lr, batch=batch, optimizer=Adam(beta1, beta2, epsilon), **settings)


def adamw(
    lr: float,
    weight_decay: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    batch: int | None = 1,
    **settings: Any,
) -> Phase:
    """Adam with decoupled weight decay; with rho > 0, SAM around it."""
    optimizer = AdamW(beta1, beta2, epsilon)
    return Phase(lr=lr, weight_decay=weight_decay, batch=batch, optimizer=optimizer, **settings)


def asam(lr: float, rho: float, batch: int | None = 1, **settings: Any) -> Phase:
    """Adaptive SAM: the perturbation of each weight scales with the weight."""
    return Phase(lr=lr, rho=rho, batch=batch, ascent="adaptive", **settings)


def gsam(lr: float, rho: float, alpha: float, batch: int | None = 1, **settings: Any) -> Phase:
    """SAM that also ascends, by α, along the part of ∇L orthogonal to SAM's gradient."""
    return Phase(lr=lr, rho=rho, batch=batch, surrogate=alpha, **settings)


def optax(transformation: Any, batch: int | None = 1, **settings: Any) -> Phase:
    """Steps of an optax transformation, such as optax.adam(1e-3); with rho > 0, SAM around it."""
    return Phase(lr=1.0, batch=batch, optimizer=Optax.of(transformation), **settings)


def torch_optimizer(make: Callable[[Any], Any], batch: int | None = 1, **settings: Any) -> Phase:
    """Steps of a torch.optim.Optimizer, for PyTorch modules; with rho > 0, SAM around it.

    As in `torch_optimizer(lambda params: torch.optim.SGD(params, lr=0.1), rho=0.05, epochs=20)`.
    """
    return Phase(lr=1.0, batch=batch, optimizer=TorchOptimizer.of(make), **settings)


def own_step(function: Callable[..., Any], batch: int | None = 1, **settings: Any) -> Phase:
    """Steps of your own: a JAX function (params, (x, y), key) → params."""
    return Phase(lr=1.0, batch=batch, optimizer=Step.of(function), **settings)


def label_noise_sgd(lr: float, label_noise: float, batch: int | None = 1, **settings: Any) -> Phase:
    """SGD on y_i ± σ, whose drift at a minimum descends Tr ∇²L."""
    return Phase(lr=lr, label_noise=label_noise, batch=batch, **settings)


def _require_number(what: str, value: Any, sign: Literal[">", "≥"]) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and (value > 0 or (value == 0 and sign == "≥"))):
        raise FlattestError(f"{what} must be a finite number {sign} 0, not {value!r}.")
