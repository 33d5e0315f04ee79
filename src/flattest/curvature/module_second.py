"""Products with ∇²L of a module by differentiating twice, and whether PyTorch's derivatives are
right: users' code can drop part of them (`detach`, `.data`, hooks), and some operations do.

They are held to differences, at weights a little off the module's own: where a unit is exactly at a
kink (a bias of 0 on an input of 0) differences see both sides, and derivatives one. On both sides
of its own: a unit close to a kink is on for one of them."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from flattest.curvature.inputs import attempt
from flattest.errors import FlattestError

Parameters = Mapping[str, nn.Parameter]


def add_products(
    share: torch.Tensor, parameters: Parameters, v: torch.Tensor, total: torch.Tensor
) -> None:
    """Adds ∇²(share) applied to each row of v to `total`."""
    given = list(parameters.values())
    gradient = torch.autograd.grad(share, given, create_graph=True, materialize_grads=True)
    curved = [g.requires_grad for g in gradient]
    if not any(curved):  # L is affine in the parameters.
        return
    ends = list(itertools.compress(gradient, curved))
    for row, into in zip(v, total, strict=True):
        # Each part in memory of its own: some operations cannot read one that begins anywhere.
        parts = [part.clone() for part in row.split([g.numel() for g in gradient])]
        along = [
            part.reshape(g.shape)
            for part, g in itertools.compress(zip(parts, gradient, strict=True), curved)
        ]
        found = torch.autograd.grad(ends, given, along, retain_graph=True, materialize_grads=True)
        into += torch.cat([part.reshape(-1) for part in found])


def check_first_derivatives(
    module: nn.Module,
    parameters: Parameters,
    outputs: Callable[[], torch.Tensor],
    as_they_are: torch.Tensor,
) -> None:
    """Raises a sentence where gradients of `outputs`, those of a few samples, are not their
    derivatives: uᵀJv against differences of u · f along v."""
    directions = _directions(_scale(module, parameters))
    v, away = next(directions), next(directions)
    _check_continuous(parameters, outputs, as_they_are.detach(), v)
    for side in (_NEAR, -_NEAR):
        _check_slope(parameters, outputs, side * away, v)


def _check_slope(
    parameters: Parameters, outputs: Callable[[], torch.Tensor], away: torch.Tensor, v: torch.Tensor
) -> None:
    """At weights so far from the module's."""
    with _moved(parameters, away):
        f = outputs()
        u = next(_directions(torch.ones_like(f.detach()).reshape(-1))).reshape(f.shape)
        gradient = partial(torch.autograd.grad, materialize_grads=True)
        failure = "The module cannot be differentiated"
        found = attempt(failure, gradient, f, [*parameters.values()], u)
        slopes = torch.cat([g.reshape(-1) for g in found]) * v
        size = float(slopes.norm()) + 1e-3 * float((u * f.detach()).norm())
        expected = float(slopes.sum(dtype=torch.float64))

        def missed(step: float) -> float:
            ends = []
            for s in (step, -step):
                with torch.no_grad(), _moved(parameters, s * v):
                    ends.append(float((u * outputs()).sum(dtype=torch.float64)))
            slope = (ends[0] - ends[1]) / (2 * step)
            return abs(slope - expected) / (size or 1.0)

        # Steps between the square root of the precision and its fourth: kinks ask for small ones.
        digits = torch.finfo(f.dtype).eps
        if not any(missed(digits**power) < digits**0.25 for power in _POWERS):
            raise FlattestError(
                "PyTorch's derivatives of this module are wrong (its gradients are not the "
                "derivatives of its outputs): it hides a dependence on its weights, or changes "
                "gradients as they pass (detach, .data, .item(), no_grad, hooks), or it never "
                "trains some entries (F.embedding with a padding_idx; use nn.Embedding)."
            )


@torch.no_grad()
def _check_continuous(parameters: Parameters, outputs: Callable[[], torch.Tensor], f, v) -> None:
    """At the weights themselves, which may be where it jumps (whole numbers that are rounded)."""

    def changed(step: float) -> float:
        with _moved(parameters, step * v):
            return float((outputs() - f).norm())

    jump = changed(4 * torch.finfo(f.dtype).eps)
    # Outputs that are 0 are measured by what they become at other weights.
    if jump > 1e-2 * float(f.norm()) and jump > 1e-2 * changed(1.0):
        raise FlattestError(
            "The module's outputs jump where its weights are changed by next to nothing, so that "
            "L has no derivatives there."
        )


def second_derivatives_are_right(
    module: nn.Module, parameters: Parameters, share: Callable[[], torch.Tensor]
) -> bool:
    """Whether PyTorch's are for `share`, the loss of some samples: uᵀHv = vᵀHu, Hv is the
    derivative of the gradient along v, and that along v the derivative of the loss.

    Steps of many sizes, since a gradient jumps at kinks: what counts is the best of them.
    """
    scale = _scale(module, parameters)
    u, v, away = itertools.islice(_directions(scale), 3)
    return all(
        _second_are_right(parameters, share, side * away, (u, v), scale) for side in (_NEAR, -_NEAR)
    )


def _second_are_right(
    parameters: Parameters,
    share: Callable[[], torch.Tensor],
    away: torch.Tensor,
    along: tuple[torch.Tensor, torch.Tensor],
    scale: torch.Tensor,
) -> bool:
    """At weights so far from the module's."""
    u, v = along
    with _moved(parameters, away):
        products = torch.zeros_like(torch.stack([u, v]))
        attempt(
            "The module cannot be differentiated twice",
            lambda: add_products(share(), parameters, torch.stack([u, v]), products),
        )
        Hu, Hv = products
        size = float((u * Hv).norm() + (v * Hu).norm())
        asymmetry = abs(float(u @ Hv - v @ Hu)) / (size or 1.0)
        right = (_missed(parameters, share, v, Hv, scale, step) < 1e-4 for step in _STEPS)
        slopes = (_missed_slope(parameters, share, v, step) < 1e-4 for step in _STEPS)
        return asymmetry < 1e-8 and any(slopes) and any(right)


SECOND_ARE_WRONG = (
    "PyTorch's second derivatives of this module are wrong (they are not symmetric, or not the "
    "derivatives of its gradient): an operation of it has a backward pass that cannot be "
    "differentiated (once_differentiable, detach, .data), or that leaves entries out (F.embedding "
    "with a padding_idx; nn.Embedding is measured)."
)
# How far off the module's own weights, as a part of their size, derivatives are looked at.
_NEAR = 1e-3
# Steps for differences of gradients; the first do for most modules.
_STEPS = (1e-6, 1e-7, 1e-5, 1e-8, 1e-4, 1e-9)
_POWERS = (0.45, 0.35, 0.55, 0.25)


def _directions(scale: torch.Tensor) -> Iterator[torch.Tensor]:
    """Random directions, in each parameter's order, the same at every call."""
    rng = torch.Generator().manual_seed(0)
    while True:
        drawn = torch.randn(len(scale), generator=rng, dtype=scale.dtype, device="cpu")
        yield scale * drawn.to(scale.device)


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


@torch.no_grad()
def _missed_slope(parameters: Parameters, share, v: torch.Tensor, step: float) -> float:
    """How far the gradient along v is from a difference of losses, against its parts and what of
    the loss rounding leaves."""
    ends = []
    for s in (step, -step):
        with _moved(parameters, s * v):
            ends.append(float(share()))
    with torch.enable_grad():
        parts = _gradient_at(parameters, share, 0 * v) * v
    largest = float(parts.abs().max()) or 1.0  # squares of 1e-170 are 0
    allowed = largest * float((parts / largest).norm()) + 1e-3 * abs(ends[0])
    return abs((ends[0] - ends[1]) / (2 * step) - float(parts.sum())) / (allowed or 1.0)


def _gradient_at(parameters: Parameters, share, move: torch.Tensor) -> torch.Tensor:
    """The gradient of `share` at θ + `move`."""
    with _moved(parameters, move):
        found = torch.autograd.grad(share(), [*parameters.values()], materialize_grads=True)
    return torch.cat([g.reshape(-1) for g in found])


@contextmanager
def _moved(parameters: Parameters, move: torch.Tensor) -> Iterator[None]:
    """Inside, the parameters are θ + `move`."""
    given = list(parameters.values())
    before = [p.detach().clone() for p in given]
    try:
        with torch.no_grad():
            parts = move.split([p.numel() for p in given])
            for p, part in zip(given, parts, strict=True):
                p += part.reshape(p.shape)
        yield
    finally:
        with torch.no_grad():
            for p, value in zip(given, before, strict=True):
                p.copy_(value)
