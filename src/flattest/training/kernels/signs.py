"""Products with a matrix of signs ±1, by tables: the training inputs of xor data are such.

Rows are taken in groups of four. The sixteen sums ±p_0 ± p_1 ± p_2 ± p_3 of a group are made once,
and every row of the result adds one of them: a quarter of the additions of a plain product
(Arlazarov, Dinic, Kronrod, Faradzhev 1970).
"""

import numpy as np

from flattest.training.kernels.common import inlined
from flattest.training.kernels.simd import VECTOR_BYTES, load, spread, store

GROUP = 4
CHUNK = 4
"""Groups whose tables are held at a time: few enough for the nearest cache."""


def sign_codes(signs: np.ndarray) -> np.ndarray:
    """For result rows i and panel rows k: codes (chunks, result rows, CHUNK) of signs[i, k] = ±1.

    A code is the place of the group's sum in its chunk's table; missing panel rows count as −1.
    """
    rows, length = signs.shape
    chunks = -(-length // (GROUP * CHUNK))
    plus = np.zeros((rows, chunks * GROUP * CHUNK), np.int32)
    plus[:, :length] = signs > 0
    bits = plus.reshape(rows, chunks, CHUNK, GROUP) @ (1 << np.arange(GROUP))
    codes = bits + np.arange(CHUNK) * 2**GROUP
    return np.ascontiguousarray(codes.transpose(1, 0, 2).astype(np.int32))


@inlined
def _four_sums(table, at, base, low, width):
    store(table, at, base + low[0])
    store(table, at + width, base + low[1])
    store(table, at + 2 * width, base + low[2])
    store(table, at + 3 * width, base + low[3])


@inlined
def _tabulate(panel, first, minus, table, at, width):
    """The sixteen signed sums of four panel rows from `first` on, for one vector, at table[at:]."""
    p, q = load(panel, first), load(panel, first + width)
    r, s = load(panel, first + 2 * width), load(panel, first + 3 * width)
    low = minus * (p + q), p + minus * q, q + minus * p, p + q
    _four_sums(table, at, minus * (r + s), low, width)
    _four_sums(table, at + 4 * width, r + minus * s, low, width)
    _four_sums(table, at + 8 * width, s + minus * r, low, width)
    _four_sums(table, at + 12 * width, r + s, low, width)


@inlined
def sign_product(codes, panel, result, table):
    """result[i] = Σ_k sign_ik panel[k]; rows are two vectors, and panel rows beyond are 0.

    panel: (≥ 16 chunks, width). table: (64, width).
    """
    width, lanes = panel.shape[1], VECTOR_BYTES // panel.itemsize
    minus, zero = spread(panel.dtype.type(-1)), spread(panel.dtype.type(0))
    for i in range(codes.shape[1]):
        store(result, i * width, zero)
        store(result, i * width + lanes, zero)
    for chunk in range(codes.shape[0]):
        for group in range(CHUNK):
            first = (chunk * CHUNK + group) * GROUP * width
            at = group * 2**GROUP * width
            _tabulate(panel, first, minus, table, at, width)
            _tabulate(panel, first + lanes, minus, table, at + lanes, width)
        for i in range(codes.shape[1]):
            a, b = codes[chunk, i, 0] * width, codes[chunk, i, 1] * width
            c, d = codes[chunk, i, 2] * width, codes[chunk, i, 3] * width
            at = i * width
            even = (load(table, a) + load(table, b)) + (load(table, c) + load(table, d))
            store(result, at, load(result, at) + even)
            a, b, c, d, at = a + lanes, b + lanes, c + lanes, d + lanes, at + lanes
            odd = (load(table, a) + load(table, b)) + (load(table, c) + load(table, d))
            store(result, at, load(result, at) + odd)
