"""Which entries of what a module computes are used, found from its outputs back: what nothing uses
(outputs beside these, statistics for a log, a part that a slice or a mask of 0 and 1 cuts off) ties
no units."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from flattest.rescaling.units import PERHAPS, UNUSED, USED


class Step(NamedTuple):
    """An operation, what it gave, and the ties and lists it made (from, to). `lets` says of each
    argument which entries of the others it lets through (`Lets`)."""

    func: Any
    args: tuple
    kwargs: dict
    results: list[torch.Tensor]
    made: tuple[tuple[int, int], ...]
    lets: "Lets"


# For each argument None, or where it is not a constant 0 (a mask: where it holds; what is added:
# where it is finite), as it was when the operation ran.
Lets = Sequence[torch.Tensor | None]


def lets(func, constant: Sequence[bool], args: Sequence) -> Lets:
    """What the arguments that are `constant` let through."""
    if (name := name_of(func).removesuffix("_")) not in _CUTS:
        return [None] * len(args)
    through = torch.isfinite if name in ("add", "sub") else torch.ne
    rest = () if name in ("add", "sub") else (0,)
    return [
        through(torch.as_tensor(a).detach(), *rest)
        if c and isinstance(a, torch.Tensor | int | float)
        else None
        for c, a in zip(constant, args, strict=True)
    ]


class Uses:
    """How entries of memory are used, by what follows and by the outputs: not, perhaps (where it
    was not followed) or surely."""

    def __init__(self):
        self.memory: dict[int, torch.Tensor] = {}

    def _held(self, t: torch.Tensor) -> torch.Tensor:
        return self.memory.setdefault(address(t), torch.zeros(entries(t), dtype=torch.uint8))

    def _view(self, t: torch.Tensor) -> np.ndarray | None:
        held = self._held(t)
        if len(held) != entries(t):
            return None
        return held.as_strided(t.size(), t.stride(), t.storage_offset()).numpy()

    def of(self, t: torch.Tensor) -> np.ndarray:
        if (view := self._view(t)) is not None:
            return view
        least, most = (int(level) for level in self._held(t).aminmax())
        return np.full(tuple(t.shape), most if least == most else PERHAPS)

    def clear(self, t: torch.Tensor) -> None:
        """Before it was overwritten nothing used it; where that cannot be said it stays."""
        if t.numel() and (view := self._view(t)) is not None:
            view[...] = UNUSED

    def mark(self, t: torch.Tensor, used: "np.ndarray | int") -> None:
        if t.numel() == 0:
            return
        if (view := self._view(t)) is not None:
            view[...] = np.maximum(view, used)
            return
        # Read as numbers of another type: as one.
        held, all_of_it = self._held(t), t.numel() == entries(t)
        level = USED if all_of_it and np.min(used) == USED else min(np.max(used), PERHAPS)
        held.clamp_(min=int(level))

    def results_of(self, step: Step) -> np.ndarray:
        """How the entries of the first result are used, which stands for those beside it."""
        first, *others = [t for t in step.results if t.numel()]
        used = self.of(first).copy()
        for t in others:
            also = self.of(t)
            if also.any():
                used = np.maximum(used, also if also.shape == used.shape else PERHAPS)
        return used

    def back(self, step: Step) -> np.ndarray:
        """Marks what goes into a step by how its result is used."""
        used = self.results_of(step)
        over = name_of(step.func) in _OVERWRITES
        if step.func._schema.is_mutable:
            self.clear(step.args[0])
        if used.any():
            for t, part in inputs_used(step, used)[over:]:
                self.mark(t, part)
        return used


def inputs_used(step: Step, used: np.ndarray) -> list[tuple[torch.Tensor, Any]]:
    """How entries of each tensor that goes into a step are used, of whose result entries are:
    exactly where it works entry by entry, is linear or goes along axes; else all of them are
    perhaps."""
    name, given = name_of(step.func).removesuffix("_"), tensors_in((step.args, step.kwargs))
    whole = bool((used == USED).all())
    cut = any(through is not None and not through.all() for through in step.lets)
    if whole and not cut and not _drops(name, step.args):
        return [(t, USED) for t in given]
    if name in _BY_ENTRY:
        return _by_entry(name, step, used)
    if name in _LINEAR and not step.func._schema.is_mutable:
        return _linear(step, used)
    if (axes := _axes_taken(name, step.args)) is not None:
        along = np.broadcast_to(used.max(axis=axes, keepdims=True), used.shape)
        return [(given[0], along), *((t, USED) for t in given[1:])]
    return [(t, USED if whole and name not in _LINEAR else PERHAPS) for t in given]


def _by_entry(name: str, step: Step, used: np.ndarray) -> list[tuple[torch.Tensor, Any]]:
    found = []
    for at, t in enumerate((*step.args, *step.kwargs.values())):
        if isinstance(t, torch.Tensor):
            others = _others(name, at, step.lets)
            part = used
            for through in others:
                part = np.where(through.cpu().numpy(), part, UNUSED)
            found.append((t, _reduced_to(part, tuple(t.shape))))
    return found


def _others(name: str, at: int, through: Lets) -> list[torch.Tensor]:
    """What the arguments but that `at` its place let through of it."""
    if name == "where":
        which = through[0]
        return [] if at == 0 or which is None else [which if at == 1 else ~which]
    if name == "masked_fill":
        mask = through[1]
        return [] if at == 1 or mask is None else [mask if at == 2 else ~mask]
    if name in ("mul", "add", "sub"):
        return [t for other, t in enumerate(through[:2]) if other != at and t is not None]
    return []


def _linear(step: Step, used: np.ndarray) -> list[tuple[torch.Tensor, Any]]:
    """Where it is linear in an argument, its transpose takes what is used there: applied to numbers
    that are not negative, in float64, whose zeros are exact."""
    given: list[torch.Tensor] = []
    ones: list[torch.Tensor] = []

    def stand_in(a, through=None):
        if not isinstance(a, torch.Tensor) or not a.is_floating_point():
            return a
        one = torch.ones(a.shape, dtype=torch.float64, device=a.device)
        ones.append((one if through is None else through.to(one)).requires_grad_())
        given.append(a)
        return ones[-1]

    with torch.enable_grad():
        args = [
            stand_in(a, through) if through is not None else tree_map(stand_in, a)
            for a, through in zip(step.args, step.lets, strict=True)
        ]
        result = step.func(*args, **tree_map(stand_in, step.kwargs))
    found = [np.zeros(tuple(t.shape), np.uint8) for t in given]
    for level in (PERHAPS, USED):
        start = torch.from_numpy((used >= level).astype(float)).to(result)
        parts = torch.autograd.grad(result, ones, start, retain_graph=True, materialize_grads=True)
        for into, part in zip(found, parts, strict=True):
            into[part.cpu().numpy() != 0] = level
    return list(zip(given, found, strict=True))


def _drops(name: str, args: tuple) -> bool:
    """Whether it may leave out entries of what it takes, however its result is used."""
    if name == "convolution":
        return any(by > n for by, n in zip(args[3], args[1].shape[2:], strict=True))
    return name in _PICKS


def _axes_taken(name: str, args: tuple) -> tuple[int, ...] | None:
    """The axes along which all entries go into each of a result of the same shape."""
    if name in ("_softmax", "_log_softmax", "_safe_softmax"):
        return (args[1],)
    if name in ("native_layer_norm", "_fused_rms_norm"):
        return tuple(range(-len(args[1]), 0))
    return None


def _reduced_to(used: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """How entries of an array of this shape are used, that is broadcast to `used`."""
    used = np.asarray(used.max(axis=tuple(range(used.ndim - len(shape)))))
    axes = tuple(axis for axis, length in enumerate(shape) if length == 1)
    return np.asarray(used.max(axis=axes, keepdims=True))


# Operations of each entry by itself, or of those in the same place.
_ENTRIES = """
relu leaky_relu abs neg clone _to_copy contiguous positive lift_fresh hardtanh hardsigmoid
hardshrink softshrink threshold clamp clamp_min clamp_max _prelu_kernel gelu silu elu celu softplus
sigmoid tanh mish hardswish exp exp2 expm1 log log1p log2 sin cos tan erf erfc sinh cosh atan asinh
logit sinc sqrt rsqrt pow square reciprocal add sub rsub maximum minimum fmax fmin gt ge lt le eq ne
floor ceil round trunc sign sgn signbit isnan isinf isfinite where masked_fill mul div
logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not copy
"""
_BY_ENTRY = frozenset(_ENTRIES.split())
_POOLED = """
avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
_adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d
upsample_bilinear2d upsample_trilinear3d
"""
_PICKS = frozenset(f"{_POOLED} index_select index gather tril triu constant_pad_nd im2col".split())
_PRODUCTS = "mm bmm mv dot addmm baddbmm addmv convolution"
# Linear in each of their arguments, with factors that are not negative.
_MOVES = """
sum mean cumsum cat stack flip roll repeat pixel_shuffle pixel_unshuffle channel_shuffle
native_channel_shuffle reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
replication_pad2d replication_pad3d
"""
_LINEAR = _PICKS | frozenset(f"{_PRODUCTS} {_MOVES}".split())
# Operations of which an argument may cut off entries of another.
_CUTS = frozenset(f"{_PRODUCTS} mul add sub where masked_fill".split())
_OVERWRITES = frozenset({"copy_", "fill_", "zero_"})


# Memory, and what operations are called.


def address(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def entries(t: torch.Tensor) -> int:
    """How many entries the memory of a tensor has."""
    return t.untyped_storage().nbytes() // t.element_size()


def name_of(func) -> str:
    return func.overloadpacket.__name__


def tensors_in(values) -> list[torch.Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)]
