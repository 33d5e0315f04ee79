"""The diagonal of the Gauss–Newton matrix, layer by layer, exactly and without probes.

With S_i S_iᵀ = ∇²_f ℓ_i (columns s_ic, signs σ_ic for losses that curve down somewhere) it is
(1/n) Σ_i Σ_c σ_ic (J_iᵀ s_ic)². One backward pass for each c gives δ = ∂(s_ic · f)/∂h at the output
h of every layer; from it and the layer's input z the squared gradients follow, for a linear layer
in one product (δ²)ᵀ z². On piecewise linear networks this is the diagonal of ∇²L itself.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F

from flattest.curvature.module_losses import Factor

# Layers whose weights meet a sample several times need its gradient in full: at most this many
# numbers (128 MB in float64) are held at once, or one sample's where that is more.
MOST_GRADIENT_ENTRIES = 2**24

Squares = Iterator[tuple[nn.Parameter, torch.Tensor]]


def add_squares(
    module: nn.Module,
    x: torch.Tensor,
    factor: Callable[[torch.Tensor], Factor],
    diagonal: dict[nn.Parameter, torch.Tensor],
) -> None:
    """Adds Σ_i Σ_c σ_ic (J_iᵀ s_ic)² over the rows of x to `diagonal`.

    `factor` gives the columns and signs for the outputs of x.
    """
    layers: list[nn.Module] = []
    inputs: list[torch.Tensor] = []
    outputs: list[GradientEdge] = []
    handles: list[Any] = []

    def keep(layer, args, output):
        layers.append(layer)
        # What follows may work in place: on outputs, whose edge stays what it is now, but not on
        # inputs, which autograd needs for the layer's own gradient (`problem` has tried it).
        inputs.append(args[0].detach())
        outputs.append(get_gradient_edge(output))

    try:
        handles.extend(
            layer.register_forward_hook(keep)
            for layer in module.modules()
            if type(layer) in SQUARES and list(layer.parameters())
        )
        with torch.enable_grad():
            f = module(x.detach().requires_grad_())
        columns, signs = factor(f.detach())
        for c in range(columns.shape[2]):
            s = columns[:, :, c].reshape(f.shape)
            deltas = torch.autograd.grad(f, outputs, s, retain_graph=c + 1 < columns.shape[2])
            for layer, z, delta in zip(layers, inputs, deltas, strict=True):
                for parameter, squares in SQUARES[type(layer)](layer, z, delta, signs[:, c]):
                    before = diagonal.get(parameter)
                    diagonal[parameter] = squares if before is None else before + squares
    finally:
        for handle in handles:
            handle.remove()


def _linear(layer: nn.Linear, z, delta, sign) -> Squares:
    if z.dim() == 2:
        squares = delta.square().mul_(sign[:, None])
        yield layer.weight, squares.T @ z.square()
        if layer.bias is not None:
            yield layer.bias, squares.sum(0)
    else:
        delta, z = delta.flatten(1, -2).transpose(1, 2), z.flatten(1, -2)
        yield layer.weight, _summed_squares(delta[:, None], z[:, None], sign)[0]
        yield from _bias(layer, delta, sign)


def _convolution(layer: nn.Conv1d | nn.Conv2d, z, delta, sign) -> Squares:
    if isinstance(layer, nn.Conv1d):
        z, delta = z[:, :, None], delta[:, :, None]
    patches = _patches(layer, z)
    squares = _summed_squares(_grouped(delta, layer.groups), patches, sign)
    yield layer.weight, squares.reshape(layer.weight.shape)
    yield from _bias(layer, delta.flatten(2), sign)


def _grouped(delta: torch.Tensor, groups: int) -> torch.Tensor:
    """(n, channels, …) → (n, groups, channels of a group, positions)."""
    return delta.flatten(2).unflatten(1, (groups, -1))


def _patches(layer: nn.Conv1d | nn.Conv2d, z: torch.Tensor) -> torch.Tensor:
    """What each entry of a group's kernel meets: (n, groups, positions, kernel entries)."""
    flat = isinstance(layer, nn.Conv1d)

    def pair(setting: tuple[int, ...], first: int) -> tuple[int, ...]:
        return (first, *setting) if flat else setting

    # PyTorch's own list of paddings, last axis first; a string such as "same" is resolved in it.
    padding = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    if flat and mode != "constant":
        z = F.pad(z[:, :, 0], padding, mode)[:, :, None]
    else:
        z = F.pad(z, padding, mode)
    unfolded = F.unfold(
        z, pair(layer.kernel_size, 1), pair(layer.dilation, 1), 0, pair(layer.stride, 1)
    )
    return unfolded.unflatten(1, (layer.groups, -1)).transpose(2, 3)


def _summed_squares(delta: torch.Tensor, z: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    """Σ_i σ_i (Σ_t δ_it z_itᵀ)² for δ (n, g, out, t) and z (n, g, t, in), a few samples at once."""
    entries = delta.shape[1] * delta.shape[2] * z.shape[3]
    at_once = max(1, MOST_GRADIENT_ENTRIES // entries)
    total = torch.zeros(delta.shape[1], delta.shape[2], z.shape[3], dtype=z.dtype, device=z.device)
    for d, a, s in zip(*(t.split(at_once) for t in (delta, z, sign)), strict=True):
        total += torch.einsum("i,igok->gok", s, (d @ a) ** 2)
    return total


def _batch_norm(layer: Any, z, delta, sign) -> Squares:
    shape = (1, -1, *(1,) * (z.dim() - 2))
    deviation = torch.sqrt(layer.running_var + layer.eps).reshape(shape)
    normal = (z - layer.running_mean.reshape(shape)) / deviation
    yield layer.weight, sign @ _over_positions(delta * normal) ** 2
    yield from _bias(layer, delta, sign)


def _bias(layer: Any, delta: torch.Tensor, sign: torch.Tensor) -> Squares:
    """δ is (n, units, …)."""
    if layer.bias is not None:
        yield layer.bias, sign @ _over_positions(delta) ** 2


def _over_positions(values: torch.Tensor) -> torch.Tensor:
    return values.flatten(2).sum(2) if values.dim() > 2 else values


SQUARES: dict[type, Callable[..., Squares]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
}
