"""Full-batch gradient descent of f = Σ_i w2_i σ(w1_i x + b1_i) + b2 with L = (1/2n) Σ r_j².

A neuron's three gradients need only S0 = Σ r_j and S1 = Σ r_j x_j over the samples it is active on:
∂w1 = w2 S1, ∂b1 = w2 S0, ∂w2 = w1 S1 + b1 S0. Float64, neurons side by side in vectors.

Descent at a large step is chaotic: a last bit that differs becomes another minimum. So every sum is
written out, and nothing here may be reordered or fused by the compiler: the bits are the same on
every processor.
"""

from functools import partial

import numpy as np

from flattest.compiled import njit
from flattest.training.kernels.common import copy
from flattest.training.kernels.simd import fma, load, own_copies, positive, spread, store, total
from flattest.training.kernels.sources import SOURCES

LANES = 8
_exact = partial(njit, nogil=True, error_model="numpy")
forced = _exact(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
kernel = _exact(cache=True)


@forced
def _side_by_side(theta):
    """w1, b1, w2 in rows of whole vectors; neurons of zeros, which stay so, fill the last."""
    k = theta.size // 3
    W = np.zeros((3, (k + LANES - 1) // LANES * LANES))
    for row in range(3):
        copy(W[row], theta[row * k : (row + 1) * k])
    return W


@forced
def _in_a_row(W, b2, theta):
    """θ = (w1, b1, w2, b2), in place."""
    k = theta.size // 3
    for row in range(3):
        copy(theta[row * k : (row + 1) * k], W[row, :k])
    theta[3 * k] = b2


@forced
def _update(W, b2, x, residual, scale):
    """θ ← θ − scale · n ∇L, in place; returns b2."""
    w1, b1, w2 = W[0], W[1], W[2]
    none, down = spread(0.0), spread(-scale)
    for i in range(0, w1.size, LANES):
        p, q, r = load(w1, i), load(b1, i), load(w2, i)
        S0, S1 = none, none
        for j in range(x.size):
            h = fma(p, spread(x[j]), q)
            S0 = S0 + positive(h, spread(residual[j]), none)
            S1 = S1 + positive(h, spread(residual[j] * x[j]), none)
        store(w1, i, fma(down * r, S1, p))
        store(b1, i, fma(down * r, S0, q))
        store(w2, i, fma(down, fma(p, S1, q * S0), r))
    slope = 0.0
    for j in range(x.size):
        slope += residual[j]
    return b2 - scale * slope


@forced
def _residuals(x, y, W, b2, residual):
    """r_j = f(x_j) − y_j, in place; returns L.

    A pre-activation that is not a number is kept: 0 · NaN is NaN.
    """
    w1, b1, w2 = W[0], W[1], W[2]
    none, one, squares = spread(0.0), spread(1.0), 0.0
    for j in range(x.size):
        at, f = spread(x[j]), none
        for i in range(0, w1.size, LANES):
            h = fma(load(w1, i), at, load(b1, i))
            f = fma(load(w2, i), h * positive(h, one, none), f)
        residual[j] = total(f) + b2 - y[j]
        squares += residual[j] * residual[j]
    return squares / (2 * x.size)


@kernel
def descend(
    theta,
    x,
    y,
    lr,
    warmup,
    change_below,
    change_factor,
    stop_loss,
    settle,
    max_steps,
    marks,
    trace_loss,
    trace_theta,
    sources=SOURCES,
):
    """Runs in place on θ = (w1, b1, w2, b2); returns (steps, loss, status code)."""
    own_copies()
    n, W, b2 = x.size, _side_by_side(theta), theta[theta.size - 1]
    residual = np.empty(n)
    changed = False
    mark = below = 0
    for step in range(max_steps + 1):
        loss = _residuals(x, y, W, b2, residual)
        while mark < marks.size and marks[mark] == step:
            trace_loss[mark] = loss
            _in_a_row(W, b2, trace_theta[mark])
            mark += 1
        below = below + 1 if step > 0 and loss <= stop_loss else 0
        if not np.isfinite(loss) or below > settle or step == max_steps:
            break
        if step > 0 and loss < change_below and not changed:
            lr *= change_factor
            changed = True
        ramp = (step + 1) / warmup if step + 1 < warmup else 1.0
        b2 = _update(W, b2, x, residual, lr * ramp / n)
    _in_a_row(W, b2, theta)
    return step, loss, 2 if not np.isfinite(loss) else 0 if below > settle else 1


@kernel
def watch(theta, x, y, scale, steps, seen, sources=SOURCES):
    """Marks seen[0, j, i] where neuron i was off on sample j at any step, seen[1, j, i] if on.

    Returns the largest L.
    """
    own_copies()
    k, W, b2 = theta.size // 3, _side_by_side(theta), theta[theta.size - 1]
    residual, h, largest = np.empty(x.size), np.empty(W.shape[1]), 0.0
    for _ in range(steps):
        loss = _residuals(x, y, W, b2, residual)
        if not loss <= largest:
            largest = loss
        for j in range(x.size):
            for i in range(0, h.size, LANES):
                store(h, i, fma(load(W[0], i), spread(x[j]), load(W[1], i)))
            for i in range(k):
                seen[0, j, i] |= not h[i] > 0
                seen[1, j, i] |= h[i] > 0
        b2 = _update(W, b2, x, residual, scale)
    return largest
