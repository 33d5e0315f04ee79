"""The diagonal of the Gauss–Newton matrix, layer by layer, exactly and without probes.

With S_i S_iᵀ = ∇²_f ℓ_i (columns s_ic, signs σ_ic for losses that curve down somewhere) it is
(1/n) Σ_i Σ_c σ_ic (J_iᵀ s_ic)². One backward pass for each c gives δ = ∂(s_ic · f)/∂h at the output
h of every layer; from it and the layer's input z the squared gradients follow, for a linear layer
in one product (δ²)ᵀ z², for any other from its own derivative, sample by sample. What is used
outside of such layers gets its gradients from the whole module, sample by sample. On piecewise
linear networks this is the diagonal of ∇²L itself.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from flattest.curvature.module_losses import Factor

Squares = Iterator[tuple[nn.Parameter, torch.Tensor]]
# Layers that are a function of one input and of their own parameters, sample by sample.
_LAYERS = {
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.PReLU, nn.Embedding),
}


def add_squares(
    module: nn.Module,
    run: Callable[[nn.Module, Any], torch.Tensor],
    x: Any,
    y: torch.Tensor,
    factor: Callable[[torch.Tensor, torch.Tensor], Factor],
    diagonal: dict[nn.Parameter, torch.Tensor],
    most_entries: int,
) -> None:
    """Adds Σ_i Σ_c σ_ic (J_iᵀ s_ic)² over the samples x to `diagonal`, f being run(module, x).

    `factor` gives the columns and signs for outputs and targets. At most `most_entries` numbers of
    a layer's per-sample gradients are held at once.
    """
    layers: list[nn.Module] = []
    inputs: list[torch.Tensor] = []
    outputs: list[GradientEdge] = []

    def keep(layer, args, output):
        if len(args) != 1 or len(args[0]) != len(y):
            return
        layers.append(layer)
        # What follows may work in place: on outputs, whose edge stays what it is now, but not on
        # inputs, which autograd needs for the layer's own gradient (making the operator tried it).
        inputs.append(args[0].detach())
        outputs.append(get_gradient_edge(output))

    with ExitStack() as hooks, torch.enable_grad():
        for layer in module.modules():
            if type(layer) in _LAYERS and any(p.requires_grad for p in layer.parameters()):
                hooks.enter_context(layer.register_forward_hook(keep))
        f = run(module, x)
    columns, signs = factor(f.detach(), y)
    for c in range(columns.shape[2]):
        s = columns[:, :, c].reshape(f.shape)
        deltas = torch.autograd.grad(f, outputs, s, retain_graph=c + 1 < columns.shape[2])
        for layer, z, delta in zip(layers, inputs, deltas, strict=True):
            for parameter, squares in _squares(layer, z, delta, signs[:, c], most_entries):
                _add(diagonal, parameter, squares)
    done = {id(p) for layer in layers for p in layer.parameters()}
    rest = {n: p for n, p in module.named_parameters() if p.requires_grad and id(p) not in done}
    if rest:
        _add_rest(module, run, x, columns, signs, rest, diagonal)


def _add(diagonal: dict[nn.Parameter, torch.Tensor], parameter, squares) -> None:
    before = diagonal.get(parameter)
    diagonal[parameter] = squares if before is None else before + squares


def _add_rest(module, run, x, columns, signs, rest, diagonal) -> None:
    """Of parameters that no known layer holds, from the module itself, one sample after another."""
    for i in range(len(columns)):
        one = tree_map(lambda t, i=i: t[i : i + 1], x)
        with torch.enable_grad():
            f = run(module, one)
        for c in range(columns.shape[2]):
            s = columns[i, :, c].reshape(f.shape)
            found = torch.autograd.grad(f, [*rest.values()], s, retain_graph=True)
            for parameter, g in zip(rest.values(), found, strict=True):
                _add(diagonal, parameter, signs[i, c] * g.square())


def _squares(layer: nn.Module, z, delta, sign, most_entries: int) -> Squares:
    """Σ_i σ_i (∂(δ_i · h_i)/∂W)² for each parameter W of a layer h = layer(z)."""
    if isinstance(layer, nn.Linear) and z.dim() == 2:
        squares = delta.square().mul_(sign[:, None])
        yield layer.weight, squares.T @ z.square()
        if layer.bias is not None:
            yield layer.bias, squares.sum(0)
        return
    parameters = dict(layer.named_parameters())
    at_once = max(1, most_entries // sum(p.numel() for p in parameters.values()))
    chunks = zip(*(t.split(at_once) for t in (z, delta, sign)), strict=True)
    for rows, deltas, signs in chunks:
        for name, found in _gradients(layer, rows, deltas).items():
            yield parameters[name], torch.tensordot(signs, found.square(), 1)


def _gradients(layer: nn.Module, z, delta) -> dict[str, torch.Tensor]:
    """∂(δ_i · h_i)/∂W for each sample, by parameter."""
    zeros = isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros"
    if zeros and layer.groups == 1 and not isinstance(layer.padding, str):
        # A product over positions, which is faster than convolving sample by sample.
        patches = F.unfold(z, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        weight = delta.flatten(2) @ patches.transpose(1, 2)
        bias = {} if layer.bias is None else {"bias": delta.sum((2, 3))}
        return bias | {"weight": weight.unflatten(2, layer.weight.shape[1:])}
    detached = {name: p.detach() for name, p in layer.named_parameters()}

    def gradient(z, delta):
        call = lambda p: torch.func.functional_call(layer, p, (z[None],))[0]  # noqa: E731
        return torch.func.vjp(call, detached)[1](delta)[0]

    return torch.func.vmap(gradient)(z, delta)
