"""Outputs of a two-layer network with a piecewise linear σ on many points of the cube {±1}^d.

The sums ±w_k ± … over a group of seven inputs take 128 values, which are made once for a vector of
neurons; a point adds one of each group's (as `signs` does for products). Points are sorted by the
inputs before the last three groups, whose sum is then shared by neighbours: four additions a neuron
in the place of d multiplications.
"""

from typing import NamedTuple

import numpy as np

from flattest.training.kernels.common import inlined, kernel
from flattest.training.kernels.simd import VECTOR_BYTES, fma, load, positive, spread, store

GROUPS, BITS = 3, 7
LANES = VECTOR_BYTES // np.dtype(np.float64).itemsize


class Cube(NamedTuple):
    """Points of {±1}^d in the order of their first inputs.

    `order` are their places in the array they came in. Points `starts[r]` to `starts[r + 1]` have
    the first inputs `heads[r]`; `places` (n, GROUPS) are those of their groups' sums in the table.
    """

    order: np.ndarray
    starts: np.ndarray
    heads: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> "Cube | None":
        """None where x are not signs, or too few of them to be worth the tables."""
        head = x.shape[1] - GROUPS * BITS
        if head < 1 or len(x) < 2**BITS or not (np.abs(x) == 1).all():
            return None
        order = np.lexsort(x[:, :head].T)
        signs = x[order]
        changed = (np.diff(signs[:, :head], axis=0) != 0).any(axis=1)
        starts = np.concatenate([[0], 1 + np.flatnonzero(changed), [len(x)]])
        bits = (signs[:, head:] > 0).reshape(len(x), GROUPS, BITS) @ (1 << np.arange(BITS))
        places = (bits + np.arange(GROUPS) * 2**BITS) * LANES
        heads = np.ascontiguousarray(signs[starts[:-1], :head])
        return cls(order, starts, heads, places)

    def outputs(self, params, low: float) -> np.ndarray:
        """W2 · σ(W1 x + b1) + b_out at the points as they came in; σ′ is `low` below 0."""
        missing = -len(params["W2"]) % LANES
        W = np.ascontiguousarray(np.pad(params["W1"], ((0, missing), (0, 0))).T)
        b, a = (np.pad(params.get(name, 0 * params["W2"]), (0, missing)) for name in ("b1", "W2"))
        sums, table = _aligned(len(self.order)), _aligned(GROUPS << BITS)
        sums[:] = 0
        _add_by_lane(self.starts, self.heads, self.places, W, b, a, low, table, sums)
        f = np.empty(len(self.order))
        f[self.order] = sums.sum(axis=1)
        return f + params.get("b_out", 0.0)


def _aligned(rows: int) -> np.ndarray:
    """(rows, LANES), each row within one line of the cache."""
    raw = np.empty((rows + 1) * LANES)
    first = -(raw.ctypes.data // raw.itemsize) % LANES
    return raw[first : first + rows * LANES].reshape(rows, LANES)


@kernel
def _add_by_lane(starts, heads, places, W, b, a, low, table, sums):
    """Adds to sums (n, LANES) those over the neurons of each lane. W is (d, neurons), as many as a
    multiple of LANES."""
    neurons, head = len(a), heads.shape[1]
    below = spread(low)
    for first in range(0, neurons, LANES):
        for group in range(GROUPS):
            row = (head + group * BITS) * neurons
            _tabulate(W, row + first, neurons, table, (group << BITS) * LANES)
        out = load(a, first)
        for run in range(len(starts) - 1):
            shared = load(b, first)
            for k in range(head):
                shared = fma(spread(heads[run, k]), load(W, k * neurons + first), shared)
            for i in range(starts[run], starts[run + 1]):
                h = shared + load(table, places[i, 0])
                h = h + (load(table, places[i, 1]) + load(table, places[i, 2]))
                at = i * LANES
                store(sums, at, fma(out, positive(h, h, below * h), load(sums, at)))


@inlined
def _tabulate(W, first, stride, table, at):
    """The sums ±w_0 ± … ± w_6 of one vector of neurons, in the order of the signs as bits."""
    minus, two = spread(-1.0), spread(2.0)
    lowest = minus * load(W, first)
    for k in range(1, BITS):
        lowest = fma(minus, load(W, first + k * stride), lowest)
    store(table, at, lowest)
    for k in range(BITS):
        twice = two * load(W, first + k * stride)
        for code in range(1 << k):
            place = at + ((1 << k) + code) * LANES
            store(table, place, load(table, at + code * LANES) + twice)
