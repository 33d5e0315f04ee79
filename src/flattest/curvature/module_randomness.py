"""Random numbers that a user's loader or module draws, and that are afterwards what they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Randomness:
    """The state of all random numbers: PyTorch's, NumPy's, Python's, and those of generators."""

    generators: tuple[torch.Generator, ...]
    own: tuple[torch.Tensor, ...]
    everyone: tuple[Any, Any, Any]

    @classmethod
    def now(cls, generators: tuple[torch.Generator, ...] = ()) -> "Randomness":
        everyone = torch.get_rng_state(), np.random.get_state(), random.getstate()
        return cls(generators, tuple(g.get_state() for g in generators), everyone)

    def moved(self) -> "Randomness":
        return self.now(self.generators)

    def restore(self) -> None:
        for generator, state in zip(self.generators, self.own, strict=True):
            generator.set_state(state)
        of_torch, of_numpy, of_python = self.everyone
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, random numbers go on from here; after, they are what they were."""
        before = self.moved()
        self.restore()
        try:
            yield
        finally:
            before.restore()

    def drawn(self) -> bool:
        """Whether random numbers have been drawn since, but from the generators."""
        return not all(self.same(self.moved()))

    def same(self, other: "Randomness") -> tuple[bool, bool, bool]:
        """Whether PyTorch's, NumPy's and Python's are where another's are."""
        (torchs, numpys, pythons), others = self.everyone, other.everyone
        pairs = zip(numpys, others[1], strict=True)
        return (
            torch.equal(torchs, others[0]),
            all(np.array_equal(*pair) for pair in pairs),
            pythons == others[2],
        )
