"""Products with ∇²L of a module by differentiating twice, and whether PyTorch's are right."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from flattest.curvature.inputs import attempt
from flattest.curvature.operator import probe
from flattest.errors import FlattestError

Parameters = Mapping[str, nn.Parameter]


def add_products(
    share: torch.Tensor, parameters: Parameters, v: torch.Tensor, total: torch.Tensor
) -> None:
    """Adds ∇²(share) applied to each row of v to `total`."""
    given = list(parameters.values())
    gradient = torch.autograd.grad(share, given, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradient])
    if not flat.requires_grad:  # L is affine in the parameters.
        return
    for row, into in zip(v, total, strict=True):
        parts = torch.autograd.grad(flat, given, row, retain_graph=True, materialize_grads=True)
        into += torch.cat([part.reshape(-1) for part in parts])


def check_second_derivatives(
    module: nn.Module, parameters: Parameters, share: Callable[[], torch.Tensor]
) -> None:
    """Looks whether PyTorch's are right for `share`, the loss of a few samples: some of its
    operations, and users' own, drop part of them. uᵀHv = vᵀHu, and Hv is the derivative of the
    gradient along v.

    Steps of many sizes, since a gradient jumps at kinks: what counts is the best of them.
    """
    scale = _scale(module, parameters)
    z = probe(len(scale))
    u, v = (scale * torch.tensor(p, device=scale.device) for p in (z, _other(z)))
    products = torch.zeros_like(torch.stack([u, v]))
    attempt(
        "The module cannot be differentiated twice",
        lambda: add_products(share(), parameters, torch.stack([u, v]), products),
    )
    Hu, Hv = products
    size = float((u * Hv).norm() + (v * Hu).norm())
    asymmetry = abs(float(u @ Hv - v @ Hu)) / (size or 1.0)
    steps = 10.0 ** -np.arange(4, 10)
    missed = (_missed(parameters, share, v, Hv, scale, step) for step in steps)
    miss = next((m for m in missed if m < 1e-4), 1.0)
    if not (asymmetry < 1e-8 and miss < 1e-4):
        raise FlattestError(
            "PyTorch's second derivatives of this module are wrong (they are not symmetric, or "
            "not the derivatives of its gradient): an operation of it has a backward pass that "
            "cannot be differentiated (once_differentiable, detach, .data)."
        )


def _other(z: np.ndarray) -> np.ndarray:
    """A second random vector, from a first."""
    return np.roll(z, 1) * np.where(np.arange(len(z)) % 2, 1.0, -1.0)


def _scale(module: nn.Module, parameters: Parameters) -> torch.Tensor:
    """The order of each parameter's entries; of those that are all 0, the smallest order. 0 for
    the rows that stand for padding, which PyTorch never trains."""
    sizes = {p: p.detach().abs().mean() for p in parameters.values()}
    least = min([s for s in sizes.values() if s > 0], default=torch.ones(()))
    each = {p: torch.full_like(p, float(s if s > 0 else least)) for p, s in sizes.items()}
    for layer in module.modules():
        held = isinstance(layer, nn.Embedding) and layer.padding_idx is not None
        if held and layer.weight in each:
            each[layer.weight][layer.padding_idx] = 0
    return torch.cat([scale.detach().reshape(-1) for scale in each.values()])


def _missed(parameters: Parameters, share, v, Hv, scale, step: float) -> float:
    """How far Hv is from a difference of gradients, against the larger of Hv and what of the
    gradient rounding leaves."""
    ahead, behind = (_gradient_at(parameters, share, s * v) for s in (step, -step))
    found = (ahead - behind) / (2 * step)
    allowed = torch.maximum((scale * Hv).norm(), 1e-4 * (scale * ahead).norm())
    missed = (scale * (found - Hv)).norm()
    return float(missed / allowed) if allowed > 0 else float(missed)


def _gradient_at(parameters: Parameters, share, move: torch.Tensor) -> torch.Tensor:
    """The gradient of `share` at θ + `move`."""
    given = list(parameters.values())
    before = [p.detach().clone() for p in given]
    try:
        with torch.no_grad():
            parts = move.split([p.numel() for p in given])
            for p, part in zip(given, parts, strict=True):
                p += part.reshape(p.shape)
        found = torch.autograd.grad(share(), given)
    finally:
        with torch.no_grad():
            for p, value in zip(given, before, strict=True):
                p.copy_(value)
    return torch.cat([g.reshape(-1) for g in found])
