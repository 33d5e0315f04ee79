"""What a log point needs of a two-layer network with a piecewise linear σ on its training set.

f = a · σ(W x) + b_out, with x and W for x′ and (W1, b1) where there is a bias. Sixteen neurons at a
time, so that their pre-activations at all samples stay in the nearest cache: NumPy's closed forms
(`curvature.plain`) pass a dozen times over arrays of samples × neurons, and their products may wait
for threads of BLAS. The same numbers to rounding.
"""

from typing import NamedTuple

import numpy as np

from flattest.training.kernels.common import inlined, kernel
from flattest.training.kernels.simd import (
    BLOCK,
    PANEL,
    VECTOR_BYTES,
    fma,
    greater,
    load,
    panel_product,
    positive,
    spread,
    store,
    total,
)

LANES = VECTOR_BYTES // np.dtype(np.float64).itemsize
TILE = PANEL * LANES
LEAST_ENTRIES = 16_384  # samples × neurons: fewer are not worth the kernels' compilation


class Sums(NamedTuple):
    """‖Σ_i u_i ∇f_i‖², Σ_i w_i ‖∇f_i‖², and how many neurons have σ′ ≠ 0 at some sample."""

    gradient: float
    trace: float
    active: int


class Samples(NamedTuple):
    """Inputs in the two forms that products with them take, and ‖x_i‖²."""

    by_sample: np.ndarray
    by_input: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> "Samples":
        n, d = x.shape
        padded = np.zeros((n + -n % BLOCK, d + -d % BLOCK))
        padded[:n, :d] = x
        by_sample = padded[:, :d].reshape(-1, BLOCK, d).transpose(0, 2, 1)
        by_input = padded[:n].reshape(n, -1, BLOCK).transpose(1, 0, 2)
        return cls(by_sample.copy(), by_input.copy(), np.vecdot(x, x))

    def forward(self, W: np.ndarray, a: np.ndarray, low: float) -> tuple[np.ndarray, np.ndarray]:
        """a · σ(W x_i), and h = W x_i in tiles of neurons; σ′ is `low` below 0."""
        n, d = len(self.squares), self.by_sample.shape[1]
        tiles = -(-len(a) // TILE)
        weights = np.zeros((tiles * TILE, d))
        weights[: len(a)] = W
        panels = weights.reshape(tiles, TILE, d).transpose(0, 2, 1).copy()
        f, h = np.zeros(n), np.empty((tiles, len(self.by_sample) * BLOCK, TILE))
        _forward(self.by_sample, panels, _filled(a), low, h, f)
        return f, h

    def backward(self, h, a: np.ndarray, low: float, u: np.ndarray, w: np.ndarray) -> Sums:
        given = self.by_input, h, _filled(a), low, u, w, w * self.squares
        gradient, trace, active = _backward(*given)
        return Sums(gradient, trace, len(a) if low else int(active))


def _filled(a: np.ndarray) -> np.ndarray:
    filled = np.zeros(len(a) + -len(a) % TILE)
    filled[: len(a)] = a
    return filled


@kernel
def _forward(by_sample, panels, a, low, h, f):
    one, below = spread(1.0), spread(low)
    for tile in range(len(panels)):
        panel_product(by_sample, panels[tile], h[tile])
        values = h[tile]
        out_1, out_2 = load(a, tile * TILE), load(a, tile * TILE + LANES)
        for i in range(len(f)):
            h_1, h_2 = load(values, i * TILE), load(values, i * TILE + LANES)
            z_1, z_2 = h_1 * positive(h_1, one, below), h_2 * positive(h_2, one, below)
            f[i] += total(fma(out_2, z_2, out_1 * z_1))


@kernel
def _backward(by_input, h, a, low, u, w, wx):
    """wx_i = w_i ‖x_i‖²."""
    delta, G = np.empty((len(u), TILE)), np.empty((len(by_input) * BLOCK, TILE))
    gradient, trace, active = 0.0, 0.0, 0.0
    for tile in range(len(h)):
        for lane in range(0, TILE, LANES):
            out = load(a, tile * TILE + lane)
            found = _pass_back(h[tile], lane, out, low, u, w, wx, delta)
            gradient, trace, active = gradient + found[0], trace + found[1], active + found[2]
        panel_product(by_input, delta, G)
        for lane in range(0, TILE, LANES):
            square = spread(0.0)
            for k in range(len(G)):
                entry = load(G, k * TILE + lane)
                square = fma(entry, entry, square)
            out = load(a, tile * TILE + lane)
            gradient += total(out * out * square)
    return gradient, trace, active


@inlined
def _pass_back(h, lane, out, low, u, w, wx, delta):
    """The gradient in `a` squared, the trace and the active neurons, of one vector of neurons;
    delta_i = u_i σ′(h_i)."""
    zero, one, below = spread(0.0), spread(1.0), spread(low)
    along, z_square, slope_square, active = zero, zero, zero, zero
    for i in range(len(u)):
        value = load(h, i * TILE + lane)
        slope = positive(value, one, below)
        z, u_i = slope * value, spread(u[i])
        store(delta, i * TILE + lane, u_i * slope)
        along = fma(u_i, z, along)
        z_square = fma(spread(w[i]) * z, z, z_square)
        slope_square = fma(spread(wx[i]) * slope, slope, slope_square)
        active = greater(active, positive(value, one, zero))
    trace = fma(out * out, slope_square, z_square)
    return total(along * along), total(trace), total(active)
