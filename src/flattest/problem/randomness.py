"""Counter-based random numbers: everything derives from (seed, purpose, index)."""

import hashlib

import numpy as np

from flattest.errors import FlattestError


def checked_seed(seed: int) -> int:
    """The seed, which NumPy may have made, as Python's int."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise FlattestError(f"A seed must be a non-negative integer, not {seed!r}.")
    return int(seed)


def generator(seed: int, purpose: str, index: int = 0) -> np.random.Generator:
    """A Philox generator keyed by (seed, purpose, index).

    Streams of different keys are independent, so that a draw depends neither on what was drawn
    before it nor on chunking, workers or resumption.
    """
    key = f"{checked_seed(seed)}/{purpose}/{int(index)}".encode()
    digest = hashlib.blake2b(key, digest_size=16)
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "little")))
