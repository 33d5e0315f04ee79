"""Counter-based random numbers: everything derives from (seed, purpose, index)."""

import hashlib

import numpy as np

from flattest.errors import FlattestError


def generator(seed: int, purpose: str, index: int = 0) -> np.random.Generator:
    """A Philox generator keyed by (seed, purpose, index).

    Streams of different keys are independent, so that a draw depends neither on what was drawn
    before it nor on chunking, workers or resumption.
    """
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise FlattestError(f"A seed must be a non-negative integer, not {seed!r}.")
    digest = hashlib.blake2b(f"{int(seed)}/{purpose}/{int(index)}".encode(), digest_size=16)
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "little")))
