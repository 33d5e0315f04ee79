"""A module with its data and loss, checked, as a float64 copy; the user's stays untouched."""

import copy
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from flattest.curvature.module_losses import MeanLoss, mean_loss
from flattest.errors import FlattestError, first_line
from flattest.problem.data import Dataset
from flattest.rescaling.modules import structure_of
from flattest.rescaling.units import Structure

# Values of all layers that one chunk of samples may hold: 256 MB in float64. Derivatives take a
# small multiple of it.
MOST_VALUES = 2**25
_TABLES = (dict, OrderedDict, set)
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(eq=False)
class Problem:
    """∇²L of `module` (the copy) on the samples in `batches`, batch by batch."""

    module: nn.Module
    batches: list[Batch]
    loss: MeanLoss
    parameters: dict[str, nn.Parameter] = field(init=False)

    def __post_init__(self):
        named = self.module.named_parameters()
        self.parameters = {name: p for name, p in named if p.requires_grad}

    @property
    def samples(self) -> int:
        return sum(len(x) for x, _ in self.batches)

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.parameters.values())

    @cached_property
    def structure(self) -> Structure:
        found = structure_of(self.module, self.batches[0][0][:1])
        if len(self.parameters) < len(list(self.module.parameters())):
            sentence = "some parameters are frozen (requires_grad is False)"
            found = replace(found, units=sentence)
        return found

    def chunks(self) -> Iterator[Batch]:
        rows = max(1, MOST_VALUES // self.structure.entries)
        for x, y in self.batches:
            yield from zip(x.split(rows), y.split(rows), strict=True)

    def shares(self) -> Iterator[torch.Tensor]:
        """L chunk by chunk: the parts add up to the mean over all samples."""
        for x, y in self.chunks():
            yield self.loss.of_batch(self.module(x), y) * (len(x) / self.samples)

    def mean_loss(self) -> float:
        with torch.no_grad():
            return float(sum(self.shares()))

    def products(self, rows: np.ndarray) -> np.ndarray:
        """∇²L applied to each row, by differentiating twice."""
        parameters = list(self.parameters.values())
        v = torch.as_tensor(rows, dtype=torch.float64, device=parameters[0].device)
        total = torch.zeros_like(v)
        for share in self.shares():
            gradient = torch.autograd.grad(share, parameters, create_graph=True)
            flat = torch.cat([g.reshape(-1) for g in gradient])
            for row, into in zip(v, total, strict=True):
                parts = torch.autograd.grad(
                    flat, parameters, row, retain_graph=True, materialize_grads=True
                )
                into += torch.cat([part.reshape(-1) for part in parts])
        return total.cpu().numpy()

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return self.products(v[None])[0]

    def by_name(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum([p.numel() for p in self.parameters.values()])
        parts = np.split(flat, ends[:-1])
        return {
            name: part.reshape(p.shape)
            for (name, p), part in zip(self.parameters.items(), parts, strict=True)
        }


def problem(module: nn.Module, data: Any, loss: Any) -> Problem:
    """Checks all that is given; raises a sentence where it cannot be measured."""
    _check_module(module)
    work = _copy(module)
    for layer in work.modules():
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010
    device = next(work.parameters()).device
    found = Problem(work, _batches(data, work, device), mean_loss(loss))
    with torch.random.fork_rng(devices=[]):
        _check_forward(found)
    return found


def _copy(module: nn.Module) -> nn.Module:
    """A deep copy in float64."""
    memo: dict[int, Any] = {}
    for layer in module.modules():
        memo.update(_empty_tables(layer))
    for p in module.parameters():
        if type(p) is nn.Parameter:
            memo[id(p)] = nn.Parameter(p.detach().to(torch.float64, copy=True), p.requires_grad)
    try:
        work = copy.deepcopy(module, memo)
        return work if _in_float64(work) else work.double()
    except Exception as error:  # A module may raise anything here.
        raise FlattestError(f"The module cannot be copied: {first_line(error)}.") from None


def _empty_tables(layer: nn.Module) -> dict[int, Any]:
    """Copies, by identity, of the tables for hooks and the like that every layer has many of and
    that `deepcopy` would take most of its time for."""
    return {id(t): type(t)() for t in vars(layer).values() if type(t) in _TABLES and not t}


def _in_float64(module: nn.Module) -> bool:
    tensors = itertools.chain(module.parameters(), module.buffers())
    return all(t.dtype == torch.float64 or not t.is_floating_point() for t in tensors)


def _check_module(module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise FlattestError(f"A torch.nn.Module is measured, not {type(module).__name__}.")
    if not any(p.requires_grad for p in module.parameters()):
        raise FlattestError("The module has no parameters that require gradients.")
    for name, p in module.named_parameters():
        if not _finite(p):
            raise FlattestError(f"Parameter {name} has entries that are not finite.")
    for name, layer in module.named_modules():
        _check_layer(name or type(layer).__name__, layer)


def _check_layer(name: str, layer: nn.Module) -> None:
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
        raise FlattestError(
            f"Layer {name} has hooks, which may change what it computes; remove them to measure it."
        )
    if not layer.training:
        return
    if isinstance(layer, nn.modules.dropout._DropoutNd | nn.RReLU) and getattr(layer, "p", 1) > 0:
        raise FlattestError(
            f"Layer {name} drops units at random in training mode; call module.eval() first."
        )
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        raise FlattestError(
            f"Layer {name} normalizes by each batch in training mode; call module.eval() first."
        )


def _batches(data: Any, module: nn.Module, device: torch.device) -> list[Batch]:
    if isinstance(data, Dataset):
        data = (torch.tensor(data.x), torch.tensor(data.y))
    pairs = [data] if _is_pair(data) else _listed(data)
    if not pairs or not sum(len(x) for x, _ in pairs):
        raise FlattestError("The data are empty: they need at least one sample.")
    return [_batch(x, y, module, device) for x, y in pairs if len(x)]


def _is_pair(data: Any) -> bool:
    return (
        isinstance(data, list | tuple)
        and len(data) == 2
        and all(isinstance(part, torch.Tensor | np.ndarray) for part in data)
    )


def _listed(data: Any) -> list:
    try:
        pairs = list(data)
    except TypeError:
        raise FlattestError(
            f"Data are a pair of tensors or a loader of such pairs, not {type(data).__name__}."
        ) from None
    if not all(_is_pair(pair) for pair in pairs):
        raise FlattestError("Every batch must be a pair of tensors: inputs and targets.")
    return pairs


def _batch(x, y, module: nn.Module, device: torch.device) -> Batch:
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    if x.dim() == 0 or y.dim() == 0 or len(x) != len(y):
        raise FlattestError(
            f"Inputs {tuple(x.shape)} and targets {tuple(y.shape)} must have as many rows each."
        )
    if not x.is_floating_point():
        if not any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in module.modules()):
            raise FlattestError(f"The inputs are of type {x.dtype}; give them as floating point.")
    elif not _finite(x):
        raise FlattestError("The inputs contain NaN or infinite values; remove those samples.")
    else:
        x = x.double()
    y = y.double() if y.is_floating_point() else y
    if not _finite(y):
        raise FlattestError("The loss is not a finite number: the targets contain NaN or infinity.")
    return x.detach().to(device), y.detach().to(device)


def _check_forward(found: Problem) -> None:
    """One pass over the first batch: deterministic, sample by sample, finite, all weights used."""
    x, y = (part[:8] for part in found.batches[0])
    given = x.clone()
    try:
        f = found.module(given)
        with torch.no_grad():
            again, alone = found.module(x.clone()), found.module(x[:1].clone())
    except FlattestError:
        raise
    except Exception as error:  # Whatever the user's forward raises on these inputs.
        raise FlattestError(f"The module fails on these inputs: {first_line(error)}.") from None
    _check_outputs(f, x)
    if not torch.equal(given, x):
        raise FlattestError("The module changes its inputs in place; let it work on a copy.")
    if not torch.equal(f, again):
        raise FlattestError(
            "The module gives other outputs each time for the same inputs; make it deterministic."
        )
    if not torch.allclose(f[:1], alone, rtol=1e-8, atol=1e-10):
        raise FlattestError(
            "The module's output for a sample depends on the rest of its batch; ∇²L is then not "
            "defined sample by sample."
        )
    value = _check_loss(found.loss, f, y)
    _check_used(value, found.parameters)


def _check_outputs(f: Any, x: torch.Tensor) -> None:
    if not isinstance(f, torch.Tensor) or f.dim() == 0 or len(f) != len(x):
        raise FlattestError("The module must return one tensor with a row for each sample.")
    if not _finite(f):
        raise FlattestError("The module's outputs are not finite.")


def _check_loss(loss: MeanLoss, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    alone = f.detach()
    try:
        value = loss.of_batch(f, y)
        each = [loss.of_batch(alone[i : i + 1], y[i : i + 1]).item() for i in range(len(f))]
    except FlattestError:
        raise
    except Exception as error:  # Whatever the user's loss raises.
        shapes = f"outputs {tuple(f.shape)} and targets {tuple(y.shape)}"
        raise FlattestError(f"The loss fails on {shapes}: {first_line(error)}.") from None
    scalar = value.dim() == 0
    if scalar and not all(map(math.isfinite, [value.item(), *each])):
        raise FlattestError("The loss is not a finite number on every sample.")
    mean = sum(each) / len(each)
    if not scalar or not math.isclose(value.item(), mean, rel_tol=1e-8, abs_tol=1e-12):
        raise FlattestError(
            "The loss of a batch must be the mean of its samples' losses (reduction='mean', no "
            "class weights, outputs and targets of one shape)."
        )
    return value


def _check_used(value: torch.Tensor, parameters: dict[str, nn.Parameter]) -> None:
    if not value.requires_grad:
        raise FlattestError("The loss does not depend on the module's parameters.")
    try:
        gradients = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    except RuntimeError as error:
        raise FlattestError(f"The module cannot be differentiated: {first_line(error)}.") from None
    unused = [name for name, g in zip(parameters, gradients, strict=True) if g is None]
    if unused:
        raise FlattestError(
            f"The outputs do not depend on {', '.join(unused)}; delete unused parameters or freeze "
            "them with requires_grad_(False)."
        )


def _finite(values: torch.Tensor) -> bool:
    """No entry is NaN or infinite; the sum tells, unless it overflows."""
    return math.isfinite(values.detach().sum().item()) or bool(torch.isfinite(values).all())
