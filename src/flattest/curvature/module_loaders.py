"""The data of a module, gone through as often as is needed: held in memory as they were given while
they are few, beyond that read anew from their loader at every pass.

Every pass sees the same data in the same order. A loader that shuffles, or samples that are drawn
or changed at random, start each pass from the same random numbers (PyTorch's, NumPy's, Python's and
those of the loader's own generators), which are afterwards what they were. What still differs from
one pass to the next is noticed by its checksum, and refused.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from flattest.curvature.module_batches import Batch, batch_of, is_batch
from flattest.curvature.module_randomness import Randomness
from flattest.errors import FlattestError
from flattest.problem.data import Dataset

MOST_HELD = 2**28
"""Bytes of data that are held, in the type they were given in; more are read at every pass."""
_END = object()


@dataclass(frozen=True)
class Batches:
    """Batches that can be gone through again; none is empty. `samples`: of all of them; `kinds`:
    the first three samples of each shape that samples have, or fewer; those of `first` first."""

    again: Callable[[], Iterable[Batch]] = field(repr=False)
    first: Batch = field(repr=False)
    samples: int
    kinds: tuple[Batch, ...] = field(repr=False)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.again())

    def picked(self, numbers: np.ndarray) -> "Batches":
        """The samples of these numbers, held; from whichever batch they are in."""
        found, start = [], 0
        for batch in self:
            inside = (numbers >= start) & (numbers < start + len(batch))
            if inside.any():
                found.append(batch.take(numbers[inside] - start))
            start += len(batch)
        return held(found)


def held(batches: list[Batch]) -> Batches:
    """Batches that are all in memory."""
    if not batches:
        raise FlattestError("The data are empty: they need at least one sample.")
    kinds = {batch.shape: batch.rows(0, 3) for batch in reversed(batches)}
    return Batches(lambda: batches, batches[0], sum(map(len, batches)), tuple(kinds.values())[::-1])


def batches_of(data: Any, most_held: int | None = None) -> Batches:
    """Batches of a Dataset, of one batch, or of a loader."""
    if isinstance(data, Dataset):
        return held([batch_of((data.x, data.y))])
    if not isinstance(data, Iterable):
        raise FlattestError(
            "Data are a pair of arrays (inputs and targets) or a loader of such pairs, "
            f"not {type(data).__name__}."
        )
    if is_batch(data):
        return held([batch for batch in [batch_of(data)] if len(batch)])
    if isinstance(data, list | tuple):  # In memory as it is.
        return held([batch for batch in map(batch_of, data) if len(batch)])
    return _Loader(data).batches(MOST_HELD if most_held is None else most_held)


class _Loader:
    """Batches that a user's loader makes."""

    def __init__(self, data: Iterable[Any]):
        self.data = data
        self.start = Randomness.now(_generators(data))
        self.sums: list[int] = []

    def batches(self, most_held: int) -> Batches:
        """One pass: all is kept until it is too much, and summed up by a checksum."""
        kept: list[Batch] = []
        kinds: dict[Any, Batch] = {}
        first, samples, size = None, 0, 0
        for batch in self._pass():
            first = batch if first is None else first
            kinds.setdefault(batch.shape, batch.rows(0, 3).copy())
            samples += len(batch)
            size += batch.bytes
            self.sums.append(_checksum(batch))
            kept.append(batch)
            if size > most_held:
                kept.clear()
        if first is None or size <= most_held:
            return held(kept)
        if isinstance(self.data, Iterator):
            raise FlattestError(
                f"The data take more than {most_held / 2**20:.0f} MB and come from an iterator, "
                "which can be gone through only once; give a DataLoader, or a list of batches."
            )
        return Batches(self._again, first, samples, tuple(kinds.values()))

    def _again(self) -> Iterator[Batch]:
        """The same batches once more, or a sentence."""
        number = 0
        for number, batch in enumerate(self._pass(), 1):
            if number > len(self.sums) or _checksum(batch) != self.sums[number - 1]:
                raise _other_data()
            yield batch
        if number < len(self.sums):
            raise _other_data()

    def _pass(self) -> Iterator[Batch]:
        """Random numbers are the loader's while it makes a batch, and the user's between."""
        state = self.start
        with state.lent():
            made = iter(self.data)
            state = state.moved()
        while True:
            with state.lent():
                given = next(made, _END)
                state = state.moved()
            if given is _END:
                return
            if len(batch := batch_of(given)):
                yield batch


def _other_data() -> FlattestError:
    return FlattestError(
        "The loader gives other data each time that it is gone through; make its order and its "
        "changes to samples the same in every pass, or give a list of batches."
    )


def _checksum(batch: Batch) -> int:
    found = 0
    for part in tree_leaves((batch.x, batch.y)):
        bits = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found = zlib.crc32(bits.numpy(), zlib.crc32(repr(tuple(part.shape)).encode(), found))
    return found


def _generators(data: Any) -> tuple[torch.Generator, ...]:
    """Those that a DataLoader and its samplers draw from."""
    sampler = getattr(data, "sampler", None)
    batched = getattr(data, "batch_sampler", None)
    holders = (data, sampler, batched, getattr(batched, "sampler", None))
    found = {id(g): g for h in holders if isinstance(g := _generator(h), torch.Generator)}
    return tuple(found.values())


def _generator(holder: Any) -> Any:
    return getattr(holder, "generator", None)
