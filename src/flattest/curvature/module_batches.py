"""What a module is run on: batches of inputs, as loaders give them, and of targets.

Inputs are a tensor, or several in a tuple or a dict, each with a row per sample. They stay in the
type they were given in; what is run is made float64 piece by piece.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from flattest.errors import FlattestError

Forward = Callable[[nn.Module, Any], Any]
TARGETS = ("labels", "label", "targets", "target", "y")
_FIRST = "forward=lambda module, x: module(x)[0]"


@dataclass(frozen=True)
class Batch:
    """Inputs, a tree of tensors, and targets, with as many rows each."""

    x: Any
    y: torch.Tensor

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, start: int, stop: int) -> "Batch":
        return Batch(tree_map(lambda t: t[start:stop], self.x), self.y[start:stop])

    def take(self, rows: np.ndarray) -> "Batch":
        """The samples of these numbers."""
        at = torch.as_tensor(rows)
        return Batch(*tree_map(lambda t: t[at.to(t.device)], (self.x, self.y)))

    def fullest_first(self) -> "Batch":
        """The samples with the fewest zeros before the others."""
        numbers = [t.reshape(len(self), -1) for t in tree_leaves(self.x) if t.is_floating_point()]
        full = sum(t.count_nonzero(1).cpu().numpy() for t in numbers) + np.zeros(len(self))
        return self.take(np.argsort(-full, kind="stable"))

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in tree_leaves((self.x, self.y)))

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """That of a sample's inputs, one after another."""
        return tuple(tuple(t.shape[1:]) for t in tree_leaves(self.x))

    def split(self, rows: int) -> Iterator["Batch"]:
        for start in range(0, len(self), rows):
            yield self.rows(start, start + rows)

    def on(self, device: torch.device, dtype: torch.dtype = torch.float64) -> "Batch":
        """On a device, what is floating point in one precision."""

        def moved(t: torch.Tensor) -> torch.Tensor:
            return t.to(device, dtype) if t.is_floating_point() else t.to(device)

        return Batch(*tree_map(moved, (self.x, self.y)))

    def copy(self) -> "Batch":
        return Batch(*tree_map(torch.clone, (self.x, self.y)))


def _is_array(part: Any) -> bool:
    if isinstance(part, torch.Tensor):
        return part.dim() > 0
    return hasattr(part, "shape") and np.ndim(part) > 0


def is_batch(data: Any) -> bool:
    """A dict, or inputs and an array of targets."""
    if isinstance(data, Mapping):
        return True
    if not isinstance(data, list | tuple) or len(data) < 2 or not _is_array(data[-1]):
        return False
    several = isinstance(data[0], Mapping | tuple) or _is_arrays(data[0])
    return (several and len(data) == 2) or all(map(_is_array, data))


def _is_arrays(part: Any) -> bool:
    """Several inputs, as PyTorch's loaders collate those of samples that are tuples."""
    return isinstance(part, list) and bool(part) and all(map(_is_array, part))


def batch_of(given: Any) -> Batch:
    """Inputs and targets as they were given, checked."""
    if not is_batch(given):
        raise FlattestError(
            "Every batch must be a pair of arrays: inputs and targets (or a dict with its targets "
            "under 'labels')."
        )
    x, y = _parted(given)
    leaves = tree_leaves(x := tree_map(_tensor, x))
    for part in leaves:
        if len(part) != len(y):
            shapes = f"Inputs {tuple(part.shape)} and targets {tuple(y.shape)}"
            raise FlattestError(f"{shapes} must have as many rows each.")
        if part.is_floating_point() and not finite(part):
            raise FlattestError("The inputs contain NaN or infinite values; remove those samples.")
    y = _tensor(y)
    if not finite(y):
        raise FlattestError("The loss is not a finite number: the targets contain NaN or infinity.")
    return Batch(x, y)


def _parted(given: Any) -> tuple[Any, Any]:
    """Inputs and targets."""
    if not isinstance(given, Mapping):
        *inputs, y = given
        x = inputs[0] if len(inputs) == 1 else tuple(inputs)
        if isinstance(x, Mapping):
            return _without_none(x), y
        return (tuple(x) if isinstance(x, list) else x), y
    found = [name for name in TARGETS if name in given]
    if len(found) != 1:
        raise FlattestError(
            "A batch that is a dict needs its targets under 'labels'; these have "
            f"{', '.join(map(str, given))}."
        )
    x = _without_none(given)
    return x, x.pop(found[0])


def _without_none(x: Mapping) -> dict:
    """Inputs by name; one that is None is not given."""
    return {name: part for name, part in x.items() if part is not None}


def _tensor(t: Any) -> torch.Tensor:
    """A dense tensor of its own, whatever the order of its bytes and rows."""
    if not isinstance(t, torch.Tensor):
        array = np.asarray(t)
        if array.dtype.kind not in "biufc":
            raise FlattestError(
                f"A batch has entries that are not numbers ({array.dtype}); leave them out."
            )
        kind = np.float64 if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
        return torch.tensor(np.ascontiguousarray(array, kind))
    if t.layout != torch.strided or t.is_nested:
        raise FlattestError("A batch has a sparse or nested tensor; give a dense one.")
    return t.detach()


def called(module: nn.Module, x: Any) -> Any:
    """The module on a tensor, on the arguments of a tuple or on those of a dict, by name."""
    if isinstance(x, dict):
        return module(**x)
    return module(*x) if isinstance(x, tuple) else module(x)


def outputs_of(forward: Forward, module: nn.Module, x: Any) -> torch.Tensor:
    """One tensor with a row per sample. Of outputs with `logits` (Hugging Face) these are taken; a
    batch of one whose axis was squeezed away gets it back."""
    f = forward(module, x)
    f = getattr(f, "logits", f)
    rows = len(tree_leaves(x)[0])
    if not isinstance(f, torch.Tensor):
        raise FlattestError(
            f"The module returns {type(f).__name__}, not a tensor; say which of its parts are the "
            f"outputs, for example {_FIRST}."
        )
    if rows == 1 and (f.dim() == 0 or len(f) != 1):
        f = f[None]
    if f.dim() == 0 or len(f) != rows:
        raise FlattestError("The module must return one tensor with a row for each sample.")
    return f


def finite(values: torch.Tensor) -> bool:
    """No entry is NaN or infinite. A finite sum proves it; an infinite one may have overflowed."""
    return math.isfinite(values.detach().sum().item()) or bool(torch.isfinite(values).all())
