"""Outputs of a two-layer network with a piecewise linear σ on many points of the cube {±1}^d.

The sums ±w_k ± … over a group of six inputs take 64 values, which are made once for two vectors of
neurons; a point adds one of each group's (as `signs` does for products). Points are sorted by the
inputs before the last four groups, whose sum is then shared by neighbours: four additions a neuron
in the place of d multiplications. Two vectors' tables are as large as the nearest cache; a point's
sum is two numbers and its places are small integers, so that what passes through it is little.
"""

from typing import NamedTuple

import numpy as np

from flattest.training.kernels.common import inlined, kernel
from flattest.training.kernels.simd import VECTOR_BYTES, add_pair, fma, greater, load, spread, store

GROUPS, BITS = 4, 6
LEAST_INPUTS, LEAST_POINTS = 22, 128  # fewer are not worth the tables
LANES = VECTOR_BYTES // np.dtype(np.float64).itemsize
TABLE = (GROUPS << BITS) * LANES


class Cube(NamedTuple):
    """Points of {±1}^d in the order of their first inputs.

    `order` are their places in x, the array they came in. Points `starts[r]` to `starts[r + 1]`
    have the first inputs `heads[r]`; `places` (n, GROUPS) are those of their groups' sums in the
    table.
    """

    x: np.ndarray
    order: np.ndarray
    starts: np.ndarray
    heads: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> "Cube | None":
        """None where x are not signs, or too few of them to be worth the tables."""
        if x.shape[1] < LEAST_INPUTS or len(x) < LEAST_POINTS or not (np.abs(x) == 1).all():
            return None
        given, x = x, np.pad(x, ((0, 0), (_missing(x.shape[1]), 0)), constant_values=1.0)
        head = x.shape[1] - GROUPS * BITS
        order = np.lexsort(x[:, :head].T)
        signs = x[order]
        changed = (np.diff(signs[:, :head], axis=0) != 0).any(axis=1)
        starts = np.concatenate([[0], 1 + np.flatnonzero(changed), [len(x)]])
        bits = (signs[:, head:] > 0).reshape(len(x), GROUPS, BITS) @ (1 << np.arange(BITS))
        places = ((bits + np.arange(GROUPS) * 2**BITS) * LANES).astype(np.int16)
        heads = np.ascontiguousarray(signs[starts[:-1], :head])
        return cls(given, order, starts, heads, places)

    def outputs(self, params, low: float) -> np.ndarray:
        """W2 · σ(W1 x + b1) + b_out at the points as they came in; σ′ is `low` below 0.

        σ(t) = low · t + (1 − low) relu(t), and the first sums up to one function W x + b.
        """
        W1, a = params["W1"], params["W2"]
        b = params.get("b1", np.zeros(len(a)))
        W = np.zeros((_missing(W1.shape[1]) + W1.shape[1], _padded(len(a))))
        W[-W1.shape[1] :, : len(a)] = W1.T
        sums, tables = np.zeros((len(self.order), 2)), _aligned(2 * (GROUPS << BITS))
        parts = self.starts, self.heads, self.places
        _add_by_neuron(*parts, W, _filled(b), _filled((1 - low) * a), 0.0, tables, sums)
        f = np.empty(len(self.order))
        f[self.order] = sums[:, 0] + sums[:, 1]
        if low:
            f += self.x @ (low * (a @ W1)) + low * (a @ b)
        return f + params.get("b_out", 0.0)


def _missing(d: int) -> int:
    """How many inputs of weight 0 come before those of few, for every group to have its own."""
    return max(0, GROUPS * BITS + 1 - d)


def _padded(neurons: int) -> int:
    """As many or more, in pairs of vectors."""
    return neurons + -neurons % (2 * LANES)


def _filled(row: np.ndarray) -> np.ndarray:
    filled = np.zeros(_padded(len(row)))
    filled[: len(row)] = row
    return filled


def _aligned(rows: int) -> np.ndarray:
    """(rows, LANES), each row within one line of the cache."""
    raw = np.empty((rows + 1) * LANES)
    first = -(raw.ctypes.data // raw.itemsize) % LANES
    return raw[first : first + rows * LANES].reshape(rows, LANES)


@kernel
def _add_by_neuron(starts, heads, places, W, b, a, least, tables, sums):
    """Adds to sums (n, 2) those over the even neurons and over the odd ones. W is (d, neurons), as
    many as a multiple of 2 LANES; relu(h) = max(least, h), since of a maximum with a 0 that it sees
    LLVM makes two operations."""
    neurons, head, zero = len(a), heads.shape[1], spread(least)
    for first in range(0, neurons, 2 * LANES):
        second = first + LANES
        for group in range(GROUPS):
            row, at = (head + group * BITS) * neurons, (group << BITS) * LANES
            _tabulate(W, row + first, neurons, tables, at)
            _tabulate(W, row + second, neurons, tables, TABLE + at)
        out_1, out_2 = load(a, first), load(a, second)
        for run in range(len(starts) - 1):
            shared_1, shared_2 = load(b, first), load(b, second)
            for k in range(head):
                sign = spread(heads[run, k])
                shared_1 = fma(sign, load(W, k * neurons + first), shared_1)
                shared_2 = fma(sign, load(W, k * neurons + second), shared_2)
            for i in range(starts[run], starts[run + 1]):
                h_1, h_2 = shared_1, shared_2
                for group in range(GROUPS):
                    place = np.intp(places[np.uintp(i), group])
                    h_1 = h_1 + load(tables, place)
                    h_2 = h_2 + load(tables, TABLE + place)
                # relu(h) is not a number where h is not.
                add_pair(sums, 2 * i, fma(out_2, greater(zero, h_2), out_1 * greater(zero, h_1)))


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
