"""The copy of a module that is measured in its place, and modules that cannot be measured."""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils._pytree import tree_leaves

from flattest.curvature.inputs import attempt
from flattest.curvature.module_batches import finite
from flattest.errors import FlattestError

# Of layers: to work in place, and what becomes of gradients.
_SETTINGS = {"inplace", "sparse", "scale_grad_by_freq"}
_TABLES = (dict, OrderedDict, set)
# Hooks that only compute a weight from its parts, as PyTorch's older normalizations of weights do.
_PURE_HOOKS = (WeightNorm, SpectralNorm)


def measurable_copy(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A deep copy in this precision; layers of it do not work in place, and gradients of tables of
    words are neither sparse nor divided by how often a word occurs."""
    work = attempt("The module cannot be copied", _copy, module, dtype)
    for layer in work.modules():
        for setting in _SETTINGS & _settings(type(layer)):
            if getattr(layer, setting, False) is True:
                setattr(layer, setting, False)
    return work


def _settings(layer: type[nn.Module]) -> set[str]:
    """The names of settings of PyTorch's own layer that a class is, or derives from: an attribute
    of that name in a user's class may mean anything."""
    own = (c for c in layer.__mro__ if c.__module__.startswith("torch.nn."))
    return {name for c in own for name in vars(c).get("__constants__", ())}


def twin(module: nn.Module) -> nn.Module:
    """A deep copy; what layers keep of an earlier run is copied as values."""
    memo: dict[int, Any] = {}
    for layer in module.modules():
        memo.update(_values(layer))
    return copy.deepcopy(module, memo)


@torch.no_grad()
def scaled(module: nn.Module, factors: Any) -> nn.Module:
    """A copy of the module with every weight multiplied by its factor; frozen ones have none."""
    found = twin(module)
    for name, parameter in found.named_parameters():
        if name in factors:
            factor = torch.as_tensor(factors[name], device=parameter.device)
            parameter.copy_(parameter.double() * factor)
        parameter.grad = None
    return found


def _copy(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A deep copy in this precision."""
    memo: dict[int, Any] = {}
    for layer in module.modules():
        memo.update(_empty_tables(layer))
        memo.update(_values(layer))
    for p in module.parameters():
        if type(p) is nn.Parameter:
            memo[id(p)] = nn.Parameter(p.detach().to(dtype, copy=True), p.requires_grad)
    # Not `to`, which makes real numbers of complex ones.
    return copy.deepcopy(module, memo)._apply(lambda t: t.to(_like(t, dtype)))


def _empty_tables(layer: nn.Module) -> dict[int, Any]:
    """Copies, by identity, of the tables for hooks and the like that every layer has many of and
    that `deepcopy` would take most of its time for."""
    return {id(t): type(t)() for t in vars(layer).values() if type(t) in _TABLES and not t}


def _values(layer: nn.Module) -> dict[int, Any]:
    """Copies, by identity, of what a layer keeps of an earlier run, such as PyTorch's older
    normalizations of weights do, or lists of activations: values, without the way they were
    computed."""
    held = tree_leaves([v for name, v in vars(layer).items() if name != "_modules"])
    kept = [t for t in held if isinstance(t, torch.Tensor) and not t.is_leaf]
    return {id(t): t.detach().clone() for t in kept}


def _like(t: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    """The type of t's kind with as many digits."""
    if t.is_complex():
        return dtype.to_complex()
    return dtype if t.is_floating_point() else t.dtype


def check_module(module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise FlattestError(f"A torch.nn.Module is measured, not {type(module).__name__}.")
    for name, p in module.named_parameters():
        if nn.parameter.is_lazy(p):
            raise FlattestError(
                f"Parameter {name} has no values yet (a lazy layer); run the module once first."
            )
        if p.is_complex():
            raise FlattestError(
                f"Parameter {name} is complex; give its real and imaginary parts as parameters."
            )
        if not finite(p):
            raise FlattestError(f"Parameter {name} has entries that are not finite.")
    if not any(p.requires_grad for p in module.parameters()):
        raise FlattestError("The module has no parameters that require gradients.")
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise FlattestError(
                f"Layer {name or type(layer).__name__} is compiled by torch.jit, which gets second "
                "derivatives wrong; measure the module that it was made from."
            )
        _check_layer(name or type(layer).__name__, layer)


def _check_layer(name: str, layer: nn.Module) -> None:
    hooks = (*layer._forward_hooks.values(), *layer._forward_pre_hooks.values())
    backward = layer._backward_hooks or layer._backward_pre_hooks
    if not all(isinstance(hook, _PURE_HOOKS) for hook in hooks) or backward:
        raise FlattestError(
            f"Layer {name} has hooks, which may change what it computes; remove them to measure it."
        )
    if not layer.training:
        return
    if isinstance(layer, nn.modules.dropout._DropoutNd | nn.RReLU) and getattr(layer, "p", 1) > 0:
        raise FlattestError(
            f"Layer {name} drops units at random in training mode; call module.eval() first."
        )
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats:
        raise FlattestError(
            f"Layer {name} normalizes by each batch in training mode; call module.eval() first."
        )


def by_batch(module: nn.Module) -> bool:
    """Whether a batch norm without statistics of its own normalizes by each batch in any mode."""
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return any(isinstance(m, norms) and m.running_mean is None for m in module.modules())
