"""∇²L of a PyTorch module on its data, on a float64 copy; the user's module stays untouched."""

import copy
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from flattest.curvature.inputs import attempt, batches_of, check_outputs, check_used
from flattest.curvature.module_losses import MeanLoss, mean_loss
from flattest.curvature.module_squares import add_squares
from flattest.curvature.operator import Operator
from flattest.errors import FlattestError
from flattest.rescaling.modules import structure_of

_TABLES = (dict, OrderedDict, set)
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(eq=False)
class ModuleOperator(Operator):
    """∇²L of `module`, a copy of the one `given`, on the samples in `batches`, batch by batch."""

    given: nn.Module
    module: nn.Module
    batches: list[Batch]
    loss: MeanLoss
    # Values of all layers that one chunk of samples may hold: 256 MB in float64. Derivatives take a
    # small multiple of it.
    most_values: int = 2**25
    # Per-sample gradients of a layer held at once: 128 MB in float64, or one sample's where that is
    # more.
    most_gradient_entries: int = 2**24

    def __post_init__(self):
        named = self.module.named_parameters()
        self.parameters = {name: p for name, p in named if p.requires_grad}
        self.shapes = {name: p.shape for name, p in self.parameters.items()}
        self.samples = sum(len(x) for x, _ in self.batches)

    @cached_property
    def structure(self):
        found = structure_of(self.module, self.batches[0][0][:1])
        if len(self.parameters) < len(list(self.module.parameters())):
            sentence = "some parameters are frozen (requires_grad is False)"
            found = replace(found, units=sentence)
        return found

    def chunks(self) -> Iterator[Batch]:
        rows = max(1, self.most_values // self.structure.entries)
        for x, y in self.batches:
            yield from zip(x.split(rows), y.split(rows), strict=True)

    def shares(self) -> Iterator[torch.Tensor]:
        """L chunk by chunk: the parts add up to the mean over all samples."""
        for x, y in self.chunks():
            yield self.loss.of_batch(self.module(x), y) * (len(x) / self.samples)

    @torch.no_grad()
    def mean_loss(self):
        return float(sum(self.shares()))

    def matmat(self, rows):
        """By differentiating twice."""
        parameters = list(self.parameters.values())
        v = torch.tensor(rows, dtype=torch.float64, device=parameters[0].device)
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

    @torch.no_grad()
    def gauss_newton_diagonal(self):
        if not self.structure.exact:
            return np.zeros(self.size)
        total: dict[nn.Parameter, torch.Tensor] = {}
        for x, y in self.chunks():
            add_squares(self.module, x, y, self.loss.factor, total, self.most_gradient_entries)
        parts = [total[p].reshape(-1).cpu().numpy() for p in self.parameters.values()]
        return np.concatenate(parts) / self.samples

    @torch.no_grad()
    def outputs(self, factors=None):
        module = self.module if factors is None else _scaled(self.module, factors)
        return np.concatenate([module(x).cpu().numpy() for x, _ in self.chunks()])

    def rescaled(self, factors):
        return _scaled(self.given, factors)


@torch.no_grad()
def _scaled(module: nn.Module, factors: Any) -> nn.Module:
    """A copy of the module with every weight multiplied by its factor."""
    scaled = copy.deepcopy(module)
    for name, parameter in scaled.named_parameters():
        factor = torch.as_tensor(factors[name], device=parameter.device)
        parameter.copy_(parameter.double() * factor)
        parameter.grad = None
    return scaled


def module_operator(module: nn.Module, data: Any, loss: Any) -> ModuleOperator:
    """Checks all that is given; raises a sentence where it cannot be measured."""
    _check_module(module)
    work = attempt("The module cannot be copied", _copy, module)
    for layer in work.modules():
        if getattr(layer, "inplace", False):
            setattr(layer, "inplace", False)  # noqa: B010
    batches = [_batch(x, y, work) for x, y in batches_of(data)]
    found = ModuleOperator(module, work, batches, mean_loss(loss))
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
    work = copy.deepcopy(module, memo)
    return work if _in_float64(work) else work.double()


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


def _batch(x, y, module: nn.Module) -> Batch:
    x, y = (t if isinstance(t, torch.Tensor) else torch.tensor(t) for t in (x, y))
    if not x.is_floating_point():
        if not any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in module.modules()):
            raise FlattestError(f"The inputs are of type {x.dtype}; give them as floating point.")
    elif not _finite(x):
        raise FlattestError("The inputs contain NaN or infinite values; remove those samples.")
    if not _finite(y):
        raise FlattestError("The loss is not a finite number: the targets contain NaN or infinity.")
    device = next(module.parameters()).device
    x, y = (t.double() if t.is_floating_point() else t for t in (x, y))
    return x.detach().to(device), y.detach().to(device)


def _check_forward(found: ModuleOperator) -> None:
    """One pass over the first batch: deterministic, sample by sample, finite, all weights used."""
    x, y = (part[:8] for part in found.batches[0])
    given = x.clone()
    failure = "The module fails on these inputs"
    f = attempt(failure, found.module, given)
    with torch.no_grad():
        again, alone = (attempt(failure, found.module, a) for a in (x.clone(), x[:1].clone()))
    if not isinstance(f, torch.Tensor) or f.dim() == 0 or len(f) != len(x):
        raise FlattestError("The module must return one tensor with a row for each sample.")
    if not torch.equal(given, x):
        raise FlattestError("The module changes its inputs in place; let it work on a copy.")
    if _finite(f) and not torch.equal(f, again):
        raise FlattestError(
            "The module gives other outputs each time for the same inputs; make it deterministic."
        )
    check_outputs("module", _finite(f), torch.allclose(f[:1], alone, rtol=1e-8, atol=1e-10))
    _check_used(_check_loss(found.loss, f, y), found.parameters)


def _check_loss(loss: MeanLoss, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """L of the batch, which is to be the mean over its samples."""
    shapes = f"outputs {tuple(f.shape)} and targets {tuple(y.shape)}"
    value = attempt(f"The loss fails on {shapes}", loss.of_batch, f, y)
    alone = f.detach()
    each = [
        attempt(f"The loss fails on {shapes}", lambda i: loss.of_batch(*i).item(), i)
        for i in zip(alone.split(1), y.split(1), strict=True)
    ]
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
    gradient = partial(torch.autograd.grad, allow_unused=True)
    found = attempt("The module cannot be differentiated", gradient, value, [*parameters.values()])
    unused = [name for name, g in zip(parameters, found, strict=True) if g is None]
    check_used(unused, "delete unused parameters or freeze them with requires_grad_(False)")


def _finite(values: torch.Tensor) -> bool:
    """No entry is NaN or infinite. A finite sum proves it; an infinite one may have overflowed."""
    return math.isfinite(values.detach().sum().item()) or bool(torch.isfinite(values).all())
