"""Per-sample gradients of layers, of which only squares or squared lengths are wanted.

A layer h = layer(z) with δ = ∂(s · f)/∂h has the gradient ∂(δ · h)/∂W for each sample and each of C
vectors s. Most layers are one of two forms at every position p (a pixel, a token; one where there
are none): `Product`, h_p = W z_p + b, with gradient Σ_p δ_p z_pᵀ, and `Scale`, h_p = γ ⊙ z_p + β,
with Σ_p δ_p ⊙ z_p. Any other is differentiated sample by sample (`Other`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F

Found = Iterator[tuple[nn.Parameter, torch.Tensor]]


class Form(Protocol):
    """What a call of a layer leaves for its gradients. δ comes as a list of C tensors in the shape
    of the layer's output. `norms` are squared lengths (n, C) by parameter, `squares` the sum over
    samples and vectors of sign times squared gradient, in the parameter's shape."""

    def norms(self, deltas: list[torch.Tensor], most: int) -> Found: ...

    def squares(self, deltas: list[torch.Tensor], signs: torch.Tensor, most: int) -> Found: ...


@dataclass(frozen=True)
class Product:
    """h_p = W z_p + b: z (n, P, K), W as (O, K) with its columns in the order of z's."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    z: torch.Tensor
    # δ as (n, P, O), and a gradient (O, K) in the shape of W.
    positions: Callable[[torch.Tensor], torch.Tensor]
    shaped: Callable[[torch.Tensor], torch.Tensor]

    def _stacked(self, deltas):
        """δ (n, P, C, O), so that the products of all vectors with z are one."""
        return torch.stack([self.positions(d) for d in deltas], 2)

    def norms(self, deltas, most):
        delta = self._stacked(deltas)
        if self.weight.requires_grad:
            yield self.weight, self._norms(delta, most)
        if self.bias is not None and self.bias.requires_grad:
            yield self.bias, _length(delta.sum(1))

    def _norms(self, delta, most):
        """‖Σ_p δ_p z_pᵀ‖², by whichever is cheaper: the matrix itself, P·O·K for each vector, or
        (the "ghost" form) Σ_pq (z_p · z_q)(δ_p · δ_q), P²·O for each and P²·K once."""
        n, P, C, O = delta.shape
        K = self.z.shape[2]
        if P == 1:
            return _length(delta[:, 0]) * _length(self.z)
        if P * (C * O + K) < C * O * K:
            parts = [_ghost(*ab) for ab in _rows(n, P * (P + C * O), most, self.z, delta)]
            return torch.cat(parts)
        found = delta.new_empty(n, C, dtype=torch.float64)
        for rows, vectors, gradient in _gradients(self.z, delta, most):
            found[rows, vectors] = _length(gradient.flatten(2))
        return found

    def squares(self, deltas, signs, most):
        delta = self._stacked(deltas)
        if self.weight.requires_grad:
            yield self.weight, self.shaped(self._squares(delta, signs, most))
        if self.bias is not None and self.bias.requires_grad:
            yield self.bias, _summed(delta.sum(1), signs)

    def _squares(self, delta, signs, most):
        n, P, C, O = delta.shape
        if P == 1:
            weighted = torch.einsum("nco,nc->no", delta[:, 0].square(), signs)
            return weighted.T @ self.z[:, 0].square()
        total = delta.new_zeros(O, self.z.shape[2])
        for rows, vectors, gradient in _gradients(self.z, delta, most):
            total += _summed(gradient, signs[rows, vectors])
        return total


def _gradients(z, delta, most):
    """Σ_p δ_p z_pᵀ (rows, vectors, O, K), for some samples and vectors at a time."""
    n, _, C, O = delta.shape
    K = z.shape[2]
    vectors = max(1, min(C, most // (O * K)))
    rows = max(1, most // (vectors * O * K))
    for i in range(0, n, rows):
        for c in range(0, C, vectors):
            part = slice(i, i + rows), slice(c, c + vectors)
            chosen = delta[part[0], :, part[1]].flatten(2)
            yield *part, (chosen.transpose(1, 2) @ z[part[0]]).unflatten(1, (-1, O))


def _ghost(z, delta):
    inner = z @ z.transpose(1, 2)
    weighted = (inner @ delta.flatten(2)).mul_(delta.flatten(2))
    return weighted.unflatten(2, delta.shape[2:]).sum((1, 3)).double()


def _rows(n: int, each: int, most: int, *tensors):
    return zip(*(t.split(max(1, most // each)) for t in tensors), strict=True)


def _length(t: torch.Tensor) -> torch.Tensor:
    """‖·‖² over the last axis, further sums in float64."""
    return torch.linalg.vector_norm(t, dim=-1).double().square()


def _summed(gradient: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Σ sign · gradient² over samples and vectors, the first two axes."""
    return torch.tensordot(signs, gradient.square(), 2)


@dataclass(frozen=True)
class Scale:
    """h_p = γ ⊙ z_p + β: z (n, P, O)."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    z: torch.Tensor
    positions: Callable[[torch.Tensor], torch.Tensor]

    def _gradients(self, deltas):
        """(n, C, O) by parameter."""
        found = [self.positions(d) for d in deltas]
        if self.weight is not None and self.weight.requires_grad:
            yield self.weight, torch.stack([(d * self.z).sum(1) for d in found], 1)
        if self.bias is not None and self.bias.requires_grad:
            yield self.bias, torch.stack([d.sum(1) for d in found], 1)

    def norms(self, deltas, most):
        for parameter, gradient in self._gradients(deltas):
            yield parameter, _length(gradient)

    def squares(self, deltas, signs, most):
        for parameter, gradient in self._gradients(deltas):
            yield parameter, _summed(gradient, signs).reshape(parameter.shape)


@dataclass(frozen=True)
class Other:
    """Any function of one input and of its own parameters."""

    layer: nn.Module
    z: torch.Tensor

    def _gradients(self, deltas, most) -> Iterator[tuple[slice, int, dict[str, torch.Tensor]]]:
        detached = {name: p.detach() for name, p in self.layer.named_parameters()}

        def gradient(z, delta):
            call = lambda p: torch.func.functional_call(self.layer, p, (z[None],))[0]  # noqa: E731
            return torch.func.vjp(call, detached)[1](delta)[0]

        rows = max(1, most // sum(p.numel() for p in detached.values()))
        for c, delta in enumerate(deltas):
            for i in range(0, len(self.z), rows):
                part = slice(i, i + rows)
                yield part, c, torch.func.vmap(gradient)(self.z[part], delta[part])

    def _trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.layer.named_parameters() if p.requires_grad}

    def norms(self, deltas, most):
        shape = len(self.z), len(deltas)
        found = {name: self.z.new_empty(shape, dtype=torch.float64) for name in self._trained()}
        for part, c, gradients in self._gradients(deltas, most):
            for name, norms in found.items():
                norms[part, c] = _length(gradients[name].flatten(1))
        for name, parameter in self._trained().items():
            yield parameter, found[name]

    def squares(self, deltas, signs, most):
        for part, c, gradients in self._gradients(deltas, most):
            for name, parameter in self._trained().items():
                yield parameter, torch.tensordot(signs[part, c], gradients[name].square(), 1)


def form_of(layer: nn.Module, z: torch.Tensor) -> Form:
    """What is needed of a call layer(z) for its gradients."""
    if not {name for name, _ in layer.named_parameters()} <= {"weight", "bias"}:
        return Other(layer, z)  # Its weight is made of others, as by weight norm.
    return _FORMS[type(layer)](layer, z)


def _linear(layer: Any, z: torch.Tensor) -> Form:
    flat = z.reshape(len(z), -1, z.shape[-1])
    return Product(layer.weight, layer.bias, flat, _tokens, lambda g: g)


def _tokens(delta: torch.Tensor) -> torch.Tensor:
    return delta.reshape(len(delta), -1, delta.shape[-1])


def _pixels(delta: torch.Tensor) -> torch.Tensor:
    """(n, channels, …) as (n, positions, channels)."""
    return delta.movedim(1, -1).flatten(1, -2)


def _convolution(layer: Any, z: torch.Tensor) -> Form:
    if layer.groups != 1:
        return Other(layer, z)
    axes = len(layer.kernel_size)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = F.pad(z, layer._reversed_padding_repeated_twice, mode=mode).movedim(1, -1).contiguous()
    strides, steps = padded.stride()[1:-1], zip(layer.stride, layer.dilation, strict=True)
    moves = [(s * by, s * d) for s, (by, d) in zip(strides, steps, strict=True)]
    spans = zip(padded.shape[1:-1], layer.kernel_size, layer.stride, layer.dilation, strict=True)
    counts = [(length - d * (k - 1) - 1) // by + 1 for length, k, by, d in spans]
    windows = padded.as_strided(
        (len(z), *counts, *layer.kernel_size, z.shape[1]),
        (padded.stride(0), *(m[0] for m in moves), *(m[1] for m in moves), 1),
    )
    flat = windows.flatten(1, axes).flatten(2)

    def shaped(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.unflatten(1, (*layer.kernel_size, -1)).movedim(-1, 1)

    return Product(layer.weight, layer.bias, flat, _pixels, shaped)


def _batch_norm(layer: Any, z: torch.Tensor) -> Form:
    if layer.running_mean is None or layer.training:
        return Other(layer, z)
    flat = _pixels(z) if z.dim() > 2 else z[:, None]
    normal = (flat - layer.running_mean) * torch.rsqrt(layer.running_var + layer.eps)
    positions = _pixels if z.dim() > 2 else (lambda d: d[:, None])
    return Scale(layer.weight, layer.bias, normal, positions)


def _layer_norm(layer: Any, z: torch.Tensor) -> Form:
    normal = F.layer_norm(z, layer.normalized_shape, None, None, layer.eps)
    axes = len(layer.normalized_shape)
    positions = lambda d: d.flatten(-axes).reshape(len(d), -1, layer.weight.numel())  # noqa: E731
    return Scale(layer.weight, layer.bias, positions(normal), positions)


# Layers that are a function of one input and of their own parameters, sample by sample.
_FORMS: dict[type, Callable[[Any, torch.Tensor], Form]] = {
    nn.Linear: _linear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
    nn.LayerNorm: _layer_norm,
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), Other),
    **dict.fromkeys((nn.PReLU, nn.Embedding), Other),
}


def is_known(layer: nn.Module) -> bool:
    """Whether it is one of these layers, and computes what it does by its class."""
    return type(layer) in _FORMS and "forward" not in vars(layer)
