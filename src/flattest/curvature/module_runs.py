"""How a module is run so that its Hessian is right: in float64 throughout, by operations that can
be differentiated twice, without compiled or fused code in their place."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.hooks import RemovableHandle

from flattest.curvature.module_randomness import Randomness

_HALVES = (torch.float16, torch.bfloat16)
# Types that stand for the one that is computed in.
_RAISED = {
    torch.float32: {**dict.fromkeys(_HALVES, torch.float32), torch.complex32: torch.complex64},
    torch.float64: {
        **dict.fromkeys((torch.float32, *_HALVES), torch.float64),
        **dict.fromkeys((torch.complex64, torch.complex32), torch.complex128),
    },
}
# PyTorch's older names of types, `t.type(torch.FloatTensor)`.
_OLD = {"Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16}
_OLD_NAMES: dict[Any, torch.dtype] = {
    **{f"torch.{name}Tensor": dtype for name, dtype in _OLD.items()},
    **{getattr(torch, f"{name}Tensor"): dtype for name, dtype in _OLD.items()},
}
# Operations that take weights of the type of their inputs only.
_OF_ONE_TYPE = (F.cross_entropy, F.nll_loss)
_AS_ANOTHER = (torch.Tensor.to, torch.Tensor.type_as)


@contextmanager
def exactly(dtype: torch.dtype = torch.float64) -> Iterator[None]:
    """Inside, tensors that are made are of this type, casts to fewer digits do nothing, attention
    is computed by products and softmax, and `torch.compile` has no effect."""
    digits, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    torch.set_default_dtype(dtype)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            # Nothing can have been compiled where that module was never imported; it takes long.
            if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(_Exact(dtype))
            stack.enter_context(Randomness.now().lent())
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.set_default_dtype(digits)


class _Exact(TorchFunctionMode):
    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.raised, self.dtype = _RAISED[dtype], dtype
        to = torch.Tensor.double if dtype == torch.float64 else torch.Tensor.float
        casts = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
        self.replaced = {**REPLACED, **dict.fromkeys(casts, to)}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not torch.Tensor.view:  # There a type says how to read the same bits.
            args = tuple(self._raise(a) for a in args)
            kwargs = {name: self._raise(a) for name, a in kwargs.items()}
        if func in _OF_ONE_TYPE:
            args, kwargs = tree_map(self._as_computed, (args, kwargs))
        if func in _AS_ANOTHER and len(args) > 1 and isinstance(args[1], torch.Tensor):
            return self._like(*args[:2])
        return self.replaced.get(func, func)(*args, **kwargs)

    def _as_computed(self, value: Any) -> Any:
        """A user's own weights, in the type that is computed in."""
        return value.to(self.dtype) if _is_real(value) else value

    def _raise(self, value: Any) -> Any:
        value = _OLD_NAMES.get(value, value) if isinstance(value, str | type) else value
        return self.raised.get(value, value) if isinstance(value, torch.dtype) else value

    def _like(self, t: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """t on the device of another tensor and in its type, or in the one that stands for it."""
        return t.to(other.device, self._raise(other.dtype))


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """g v / ‖v‖, whose fused form in PyTorch has a wrong second derivative."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _hardsigmoid(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return torch.clamp(x / 6 + 0.5, 0, 1)


def _multi_margin(
    f, y, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"
):
    """(1/C) Σ_{c ≠ y} w_y max(0, margin − f_y + f_c)^p per sample."""
    rows = f if f.dim() == 2 else f[None]
    y = y.reshape(-1, 1)
    gaps = (margin - rows.gather(1, y) + rows).clamp(min=0) ** p
    gaps = gaps.scatter(1, y, 0.0).sum(1) / rows.shape[1]
    return _reduced(gaps if weight is None else gaps * weight[y[:, 0]], reduction)


def _multilabel_margin(f, y, size_average=None, reduce=None, reduction="mean"):
    """(1/C) Σ_{j a label, c none} max(0, 1 − f_j + f_c) per sample; a row's labels end at a −1."""
    f, y = (t if t.dim() == 2 else t[None] for t in (f, y))
    listed = (y >= 0).long().cumprod(1).bool()
    is_label = torch.zeros_like(f).scatter_add(1, y.clamp(min=0), listed.to(f.dtype)) > 0
    gaps = (1 - f[:, :, None] + f[:, None, :]).clamp(min=0)
    pairs = is_label[:, :, None] & ~is_label[:, None, :]
    return _reduced((gaps * pairs).sum((1, 2)) / f.shape[1], reduction)


def _embedding_bag(
    words, table, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
    mode="mean", sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None,
):  # fmt: skip
    """The sum, mean or largest of each bag's rows, by rows of words as they are in PyTorch."""
    if max_norm is not None or words.dim() != 2:
        return F.embedding_bag(
            words, table, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
            per_sample_weights, include_last_offset, padding_idx,
        )  # fmt: skip
    rows = F.embedding(words, table, padding_idx)
    counted = torch.ones_like(words) if padding_idx is None else words != padding_idx
    if mode == "max":
        return rows.masked_fill(counted[..., None] == 0, -torch.inf).amax(1)
    weights = counted.to(rows.dtype) if per_sample_weights is None else per_sample_weights * counted
    total = (rows * weights[..., None]).sum(1)
    return total / counted.sum(1, keepdim=True).clamp(min=1) if mode == "mean" else total


def _distances(a: torch.Tensor, b: torch.Tensor, p: float = 2.0, compute_mode: str = ""):
    return torch.linalg.vector_norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def _reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    return {"mean": values.mean, "sum": values.sum, "none": lambda: values}[reduction]()


# Operations that PyTorch cannot differentiate twice, or does so wrongly, by others that it can.
REPLACED: dict[Callable, Callable] = {
    torch._weight_norm: _weight_norm,
    F.hardsigmoid: _hardsigmoid,
    F.multi_margin_loss: _multi_margin,
    F.multilabel_margin_loss: _multilabel_margin,
    F.embedding_bag: _embedding_bag,
    torch.cdist: _distances,
    # A hook on a tensor may change gradients as they pass; what is measured are the outputs'.
    torch.Tensor.register_hook: lambda t, hook: RemovableHandle(OrderedDict()),
}
