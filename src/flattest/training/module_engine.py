"""The engine of PyTorch modules: the steps of `algorithms` around a torch.optim.Optimizer.

The order of samples, the label noise and the schedules are those of the other engines. A run that
was interrupted goes on with the same bits on the same machine with as many threads: PyTorch's sums
depend on their number.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from flattest.curvature.inputs import attempt
from flattest.curvature.module_losses import sample_loss
from flattest.errors import FlattestError
from flattest.problem.data import Dataset
from flattest.problem.libraries import torch_model
from flattest.problem.losses import MSE, CrossEntropy, HalfMSE, Loss
from flattest.training.algorithms import Phase
from flattest.training.optimizers import Adam, AdamW, Momentum, TorchOptimizer
from flattest.training.order import label_noise_signs, sample_order
from flattest.training.state import Problem, State

Tensors = Sequence[torch.Tensor]


def advance(problem: Problem, phase: Phase, state: State, epochs: int) -> State:
    """The state after `epochs` more epochs of the phase, or at the epoch that halted it."""
    worker, now = _Worker(problem, phase, state), state
    while now.epoch < state.epoch + epochs and now.halt is None:
        now = worker.epoch(now)
    if now.halt == "diverged":
        # A diverged epoch is not applied, and the worker keeps no copy: go again, up to it.
        done = advance(problem, phase, state, now.epoch - state.epoch)
        return replace(done, step=now.step, halt="diverged")
    return replace(now, params=worker.params(), memory=_memory_of(worker.optimizer))


def _optimizer(phase: Phase, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    base: Any = phase.optimizer
    settings = {"lr": phase.lr, "weight_decay": phase.weight_decay}
    makers: dict[type, Callable[[], torch.optim.Optimizer]] = {
        type(None): lambda: torch.optim.SGD(parameters, **settings),
        Momentum: lambda: torch.optim.SGD(
            parameters, **settings, momentum=base.beta, nesterov=base.nesterov
        ),
        Adam: lambda: torch.optim.Adam(
            parameters, **settings, betas=(base.beta1, base.beta2), eps=base.epsilon
        ),
        AdamW: lambda: torch.optim.AdamW(
            parameters, **settings, betas=(base.beta1, base.beta2), eps=base.epsilon
        ),
        TorchOptimizer: lambda: attempt("The optimizer cannot be made", base.make, parameters),
    }
    found = makers[type(base)]()
    if not isinstance(found, torch.optim.Optimizer):
        raise FlattestError(f"A torch.optim.Optimizer is to be made, not a {type(found).__name__}.")
    return found


class _Worker:
    """A module, its optimizer and its data at work on a phase, as they stand at a state."""

    def __init__(self, problem: Problem, phase: Phase, state: State):
        model, data = torch_model(problem.model), problem.data
        assert model is not None
        self.problem, self.phase = problem, phase
        self.module = model.filled(state.params, data.d, state.dtype)
        self.names = [name for name, _ in self.module.named_parameters()]
        self.parameters = list(self.module.parameters())
        self.loss = mean_loss(problem.loss)
        self.x = torch.tensor(data.x.astype(state.dtype))
        self.y = labels(problem.loss, data.y.astype(state.dtype))
        self.optimizer = _optimizer(phase, self.parameters)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.factor = 1.0  # by which the rates are multiplied now
        self._restore(state.memory)

    def epoch(self, state: State) -> State:
        """Where the run stands after one more epoch; parameters and memory stay in the worker."""
        phase, n = self.phase, self.problem.data.n
        steps, factors = phase.steps_per_epoch(n), self._factors(state).tolist()
        for number, (at, y) in enumerate(self._batches(state)):
            self._scale_rates(factors[number])
            if not self._step(self.x[at], y):
                return replace(state, step=state.step + number, halt="diverged")
        if not all(torch.isfinite(p).all() for p in self.parameters):
            return replace(state, step=state.step + steps, halt="diverged")
        return self._closed(
            replace(
                state,
                epoch=state.epoch + 1,
                step=state.step + steps,
                phase_epoch=state.phase_epoch + 1,
            )
        )

    def _scale_rates(self, factor: float) -> None:
        if factor == self.factor:
            return
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.factor = factor

    def _closed(self, state: State) -> State:
        """The state with the phase's conditions looked at."""
        numbers = self.phase.numbers
        if self.phase.step_change is None and self.phase.stop_loss is None:
            return state
        with torch.no_grad():
            value = self.loss(self.module(self.x), self.y).item()
        return replace(
            state,
            changed=state.changed or value < numbers["change_below"],
            halt="stopped" if value <= numbers["stop_loss"] else None,
        )

    def _factors(self, state: State) -> np.ndarray:
        """η_t/η at the steps of the epoch that comes."""
        phase, n, numbers = self.phase, self.problem.data.n, self.phase.numbers
        steps = phase.steps_per_epoch(n)
        t = state.phase_epoch * steps + np.arange(steps)
        factors = np.minimum(1, (t + 1) / numbers["warmup"])
        if phase.decay is not None:
            factors = factors * np.asarray(phase.decay.factor(t, steps, phase.length(n) * steps))
        return factors * (numbers["change_factor"] if state.changed else 1.0)

    def _batches(self, state: State):
        """The indices of each batch and its labels, noise included."""
        phase, n = self.phase, self.problem.data.n
        drawn = self.problem.seed, state.epoch, 1, n
        order = np.arange(n) if phase.batch is None else sample_order(*drawn, phase.replacement)[0]
        y = self.y[order]
        if phase.label_noise > 0:
            signs = torch.tensor(label_noise_signs(*drawn)[0].astype(state.dtype))
            y = y + phase.label_noise * signs
        size = phase.batch or n
        yield from zip(torch.tensor(order).split(size), y.split(size), strict=True)

    def _step(self, x: torch.Tensor, y: torch.Tensor) -> bool:
        """One update; whether the outputs on the batch were finite before it."""
        m = self.phase.micro_batch
        total, finite = self._ascended(x, y) if m is None else self._mean_ascended(x, y, m)
        if not finite:
            return False
        if self.phase.clip is not None and (norm := _norm(total)) > self.phase.clip:
            total = [u * (self.phase.clip / norm) for u in total]
        for p, u in zip(self.parameters, total, strict=True):
            p.grad = u
        attempt("The optimizer's step failed", self.optimizer.step)
        return True

    def _mean_ascended(self, x: torch.Tensor, y: torch.Tensor, m: int) -> tuple[Tensors, bool]:
        """The mean over micro-batches of size m of SAM's gradients."""
        total: Tensors | None = None
        for part_x, part_y in zip(x.split(m), y.split(m), strict=True):
            g, finite = self._ascended(part_x, part_y)
            if not finite:
                return g, False
            g = [u * (len(part_x) / len(x)) for u in g] if m < len(x) else g
            total = g if total is None else [a + b for a, b in zip(total, g, strict=True)]
        assert total is not None
        return total, True

    def _ascended(self, x: torch.Tensor, y: torch.Tensor) -> tuple[Tensors, bool]:
        """SAM's gradient on a micro-batch, or the plain one."""
        g, finite = self._gradient(x, y)
        if self.phase.rho == 0 or not finite:
            return g, finite
        kept = [p.detach().clone() for p in self.parameters]
        with torch.no_grad():
            for p, c, u in zip(self.parameters, self._climb(g), g, strict=True):
                p.add_(c * u)
        h, _ = self._gradient(x, y)
        with torch.no_grad():
            for p, value in zip(self.parameters, kept, strict=True):
                p.copy_(value)
        return (self._surrogate(g, h) if self.phase.surrogate else h), True

    def _gradient(self, x: torch.Tensor, y: torch.Tensor) -> tuple[Tensors, bool]:
        # `backward` into fresh tensors is a tenth faster than `torch.autograd.grad`.
        for p in self.parameters:
            p.grad = None
        f = self.module(x)
        value = self.loss(f, y)
        value.backward()
        g = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        return g, math.isfinite(value.item()) or bool(torch.isfinite(f).all())

    def _climb(self, g: Tensors) -> list[Any]:
        """The factors c in ε = c g, by parameter."""
        rho = self.phase.rho
        if self.phase.ascent == "unnormalized":
            return [rho] * len(g)
        adaptive = self.phase.ascent == "adaptive"
        scaled = [p.abs() * u for p, u in zip(self.parameters, g, strict=True)] if adaptive else g
        norm = _norm(scaled)
        scale = rho / norm if norm > 0 else 0.0
        return [scale * p**2 for p in self.parameters] if adaptive else [scale] * len(g)

    def _surrogate(self, g: Tensors, h: Tensors) -> Tensors:
        """h − αg^⊥, with g^⊥ the part of g that is orthogonal to h."""
        square = sum((v * v).sum().item() for v in h)
        dot = sum((u * v).sum().item() for u, v in zip(g, h, strict=True))
        along, alpha = dot / square if square > 0 else 0.0, self.phase.surrogate
        return [v - alpha * (u - along * v) for u, v in zip(g, h, strict=True)]

    def params(self) -> dict[str, np.ndarray]:
        values = (p.detach().numpy().copy() for p in self.parameters)
        return dict(zip(self.names, values, strict=True))

    def _restore(self, memory: dict[str, np.ndarray]) -> None:
        own: dict[int, dict[str, Any]] = {}
        for name, value in memory.items():
            number, key, kind = name.split("/")
            stored = torch.tensor(value)
            own.setdefault(int(number), {})[key] = stored if kind == "array" else stored.item()
        if own:
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": own, "param_groups": groups})


def _memory_of(optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """What the optimizer keeps of each parameter: NUMBER/NAME/array, or /number."""
    memory = {}
    for number, kept in optimizer.state_dict()["state"].items():
        for key, value in kept.items():
            if isinstance(value, torch.Tensor):
                memory[f"{number}/{key}/array"] = value.detach().numpy().copy()
            elif isinstance(value, int | float):
                memory[f"{number}/{key}/number"] = np.array(value)
            elif value is not None:
                raise FlattestError(
                    f"{type(optimizer).__name__} keeps {key}, a {type(value).__name__}, which a "
                    "checkpoint cannot hold; take an optimizer that keeps arrays."
                )
    return memory


def _norm(tensors: Tensors) -> float:
    return float(torch.stack([(t * t).sum() for t in tensors]).sum().sqrt())


def mean_loss(loss: Loss) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """L of a batch's outputs and labels, by PyTorch's own function where it has one."""
    if isinstance(loss, MSE):
        return _mean_square
    if isinstance(loss, HalfMSE):
        return lambda f, y: _mean_square(f, y) / 2
    if isinstance(loss, CrossEntropy):
        return partial(functional.cross_entropy, label_smoothing=loss.smoothing)
    total = sample_loss(loss).total
    return lambda f, y: total(f, y) / len(f)


def _mean_square(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean over samples of Σ (f − y)² over outputs."""
    mean = functional.mse_loss(f.reshape(y.shape), y)
    return mean if y.dim() == 1 else mean * y.shape[1]


def labels(loss: Loss, y: np.ndarray) -> torch.Tensor:
    """Labels as the loss takes them: classes are whole numbers."""
    found = torch.tensor(y)
    return found.long() if isinstance(loss, CrossEntropy) else found


def loss_and_gradient(model: Any, loss: Loss, params: dict, data: Dataset):
    """(L(θ), f_θ on the training set) and ∇L(θ), in float64."""
    module = model.filled(params, data.d)
    f = module(torch.tensor(data.x))
    value = mean_loss(loss)(f, labels(loss, np.asarray(data.y)))
    g = torch.autograd.grad(value, list(module.parameters()), materialize_grads=True)
    names = [name for name, _ in module.named_parameters()]
    named = dict(zip(names, (u.numpy() for u in g), strict=True))
    outputs = f.detach().numpy()
    return (value.item(), outputs[:, 0] if outputs.shape[1:] == (1,) else outputs), named
