"""The least Gauss–Newton trace of a module over the GL(h) symmetry of its attention heads.

Pairs of blocks are proposed by the kind of layer, or given; that they are a symmetry is seen from
the outputs, which the flattest module must keep on all the data. So heads with a smaller group
(rotary embeddings, grouped queries), given as if they had all of GL(h), are refused.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from flattest.curvature.modules import ModuleOperator
from flattest.curvature.sharpness import Function, operator_of
from flattest.errors import FlattestError
from flattest.rescaling.general_linear import Least, least


@dataclass(frozen=True)
class Block:
    """Entries `start` to `start + size` of a parameter along an axis: h columns, whatever the other
    axes are taken for rows."""

    name: str
    axis: int
    start: int
    size: int

    def of(self, t: torch.Tensor) -> torch.Tensor:
        """As rows × h."""
        part = t.narrow(self.axis, self.start, self.size).movedim(self.axis, -1)
        return part.reshape(-1, self.size)

    def multiplied(self, t: torch.Tensor, A: np.ndarray) -> None:
        """Columns times A, in place."""
        part = t.narrow(self.axis, self.start, self.size).movedim(self.axis, -1)
        part.copy_(part.double() @ torch.as_tensor(A, device=t.device))


@dataclass(frozen=True)
class Pair:
    """Blocks that f depends on through left · rightᵀ only; a bias is a row of its own."""

    left: tuple[Block, ...]
    right: tuple[Block, ...]


@dataclass(frozen=True)
class FlattestHeads:
    """`value` is the least Gauss–Newton trace over GL(h) of every pair, the sum of what each pair
    has for itself (no parameter is in two) and of `constant`, which no pair changes; `trace` is
    that of the module as it is, `attained` that of `rescaled`, which has the same outputs."""

    trace: float
    value: float
    attained: float
    constant: float
    pairs: tuple[tuple[Pair, Least], ...]
    rescaled: nn.Module


def pairs_of(module: nn.Module) -> list[Pair]:
    """Queries with keys and values with outputs, head by head, of PyTorch's attention and of
    GPT-2's. Others are to be given."""
    return [pair for name, m in module.named_modules() for pair in _pairs(f"{name}.", m)]


def _pairs(name: str, m: Any) -> Iterator[Pair]:
    inward: tuple[tuple[str, int], ...]
    if isinstance(m, nn.MultiheadAttention) and m.in_proj_weight is not None and m.bias_k is None:
        bias = () if m.in_proj_bias is None else ((f"{name}in_proj_bias", 0),)
        inward, outward = ((f"{name}in_proj_weight", 0), *bias), (f"{name}out_proj.weight", 1)
    elif type(m).__name__ == "GPT2Attention" and not m.is_cross_attention:
        inward = (f"{name}c_attn.weight", 1), (f"{name}c_attn.bias", 0)
        outward = f"{name}c_proj.weight", 0
    else:
        return
    h = m.embed_dim // m.num_heads
    for start in range(0, m.embed_dim, h):
        starts = (start + which * m.embed_dim for which in range(3))
        queries, keys, values = (tuple(Block(*at, s, h) for at in inward) for s in starts)
        yield Pair(queries, keys)
        yield Pair(values, (Block(*outward, start, h),))


@torch.no_grad()
def flattest_heads(op: ModuleOperator, pairs: list[Pair] | None = None) -> FlattestHeads:
    """Each pair's closed form (`general_linear`). A change of one pair leaves f, as a function of
    all other weights, as it is, and so their gradients: the least over all pairs is their sum."""
    pairs = pairs_of(op.module) if pairs is None else pairs
    if not pairs:
        raise FlattestError(
            "No attention heads are known in this module (nn.MultiheadAttention and GPT-2's are); "
            "give the pairs of blocks."
        )
    grams, trace = _grams(op, pairs)
    found = [(pair, least(grams[pair.left], grams[pair.right])) for pair in pairs]
    moving = sum(float(np.trace(grams[side])) for p in pairs for side in (p.left, p.right))
    constant = trace - moving
    if not _keeps_outputs(op, _applied(op.module, found)):
        raise FlattestError(
            "These pairs of blocks are no symmetry of the module: its outputs change (as with "
            "rotary embeddings or grouped queries, whose groups are smaller than GL(h))."
        )
    value = constant + sum(best.value for _, best in found)
    attained = constant + sum(best.attained for _, best in found)
    rescaled = _applied(op.given, found)
    return FlattestHeads(trace, value, attained, constant, tuple(found), rescaled)


def _grams(op: ModuleOperator, pairs: list[Pair]) -> tuple[dict[Any, np.ndarray], float]:
    """Σ Gᵀ G (h × h) of every side of the pairs, over samples and columns, and Tr G."""
    sides = [side for pair in pairs for side in (pair.left, pair.right)]
    named = [block for side in sides for block in side]
    if unknown := {block.name for block in named} - set(op.parameters):
        raise FlattestError(f"The module trains no parameter {', '.join(sorted(unknown))}.")
    if len({(b.name, i) for b in named for i in range(b.start, b.start + b.size)}) < sum(
        b.size for b in named
    ):
        raise FlattestError("A weight is in two of the pairs; they must have none in common.")
    grams: dict[Any, Any] = dict.fromkeys(sides, 0.0)
    trace = 0.0
    for weight, gradients in op.gauss_newton_gradients():
        trace += weight * sum(float(g.square().sum()) for g in gradients.values())
        for side in sides:
            rows = torch.cat([block.of(gradients[block.name]) for block in side])
            grams[side] = grams[side] + weight * (rows.T @ rows).cpu().numpy()
    return grams, trace


def _applied(module: nn.Module, found: list[tuple[Pair, Least]]) -> nn.Module:
    changed = copy.deepcopy(module)
    parameters = dict(changed.named_parameters())
    for pair, best in found:
        for blocks, A in ((pair.left, best.A), (pair.right, best.inverse_transpose)):
            for block in blocks:
                block.multiplied(parameters[block.name].data, A)
    return changed


def _keeps_outputs(op: ModuleOperator, changed: nn.Module) -> bool:
    f, moved = op.outputs(), op.outputs_of(changed)
    return bool(np.abs(moved - f).max() <= 1e-7 * np.abs(f).max())


def least_over_heads(
    model: Function, params: Any, data: Any, loss: Any = "mse", *, pairs: list[Pair] | None = None
) -> FlattestHeads:
    """The least Gauss–Newton trace over GL(h) of every attention head, in closed form, exact: a
    backward pass for each sample and output. `pairs` of blocks are those of the heads that are
    known (nn.MultiheadAttention, GPT-2's), or given. Units, and the scales that a LayerNorm leaves
    free, stay as they are."""
    op = operator_of(model, params, data, loss)
    if not isinstance(op, ModuleOperator):
        raise FlattestError("Attention heads are those of PyTorch modules.")
    return flattest_heads(op, pairs)
