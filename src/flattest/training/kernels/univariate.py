"""Full-batch gradient descent of f = Σ_i w2_i σ(w1_i x + b1_i) + b2 with L = (1/2n) Σ r_j².

A neuron's three gradients need only S0 = Σ r_j and S1 = Σ r_j x_j over the samples it is active on:
∂w1 = w2 S1, ∂b1 = w2 S0, ∂w2 = w1 S1 + b1 S0. Float64, neurons contiguous.
"""

import numpy as np

from flattest.training.kernels.common import copy, forced, kernel
from flattest.training.kernels.simd import own_copies
from flattest.training.kernels.sources import SOURCES


@forced
def _update(theta, x, residual, scale, S):
    """θ ← θ − scale · n ∇L, in place; S (2, k) is room for S0 and S1."""
    k = theta.size // 3
    w1, b1, w2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k]
    S0, S1 = S[0], S[1]
    _active_sums(x, w1, b1, residual, S0, S1)
    for i in range(k):
        grad_w2 = w1[i] * S1[i] + b1[i] * S0[i]
        w1[i] -= scale * w2[i] * S1[i]
        b1[i] -= scale * w2[i] * S0[i]
        w2[i] -= scale * grad_w2
    theta[3 * k] -= scale * residual.sum()


@forced
def _residuals(x, y, w1, b1, w2, b2, residual):
    """r_j = f(x_j) − y_j, in place; returns L."""
    total = 0.0
    for j in range(x.size):
        f = b2
        for i in range(w1.size):
            f += w2[i] * max(w1[i] * x[j] + b1[i], 0.0)
        residual[j] = f - y[j]
        total += residual[j] ** 2
    return total / (2 * x.size)


@forced
def _active_sums(x, w1, b1, residual, S0, S1):
    """S0_i = Σ r_j and S1_i = Σ r_j x_j over the samples j on which neuron i is active."""
    S0[:] = 0.0
    S1[:] = 0.0
    for j in range(x.size):
        r, rx = residual[j], residual[j] * x[j]
        for i in range(w1.size):
            active = w1[i] * x[j] + b1[i] > 0
            S0[i] += r if active else 0.0
            S1[i] += rx if active else 0.0


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
    n, k = x.size, theta.size // 3
    w1, b1, w2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k]
    residual, S = np.empty(n), np.empty((2, k))
    changed = False
    mark = below = 0
    for step in range(max_steps + 1):
        loss = _residuals(x, y, w1, b1, w2, theta[3 * k], residual)
        while mark < marks.size and marks[mark] == step:
            trace_loss[mark] = loss
            copy(trace_theta[mark], theta)
            mark += 1
        if not np.isfinite(loss):
            return step, loss, 2
        below = below + 1 if step > 0 and loss <= stop_loss else 0
        if below > settle:
            return step, loss, 0
        if step == max_steps:
            break
        if step > 0 and loss < change_below and not changed:
            lr *= change_factor
            changed = True
        ramp = (step + 1) / warmup if step + 1 < warmup else 1.0
        _update(theta, x, residual, lr * ramp / n, S)
    return max_steps, loss, 1


@kernel
def watch(theta, x, y, scale, steps, seen, sources=SOURCES):
    """Marks seen[0, j, i] where neuron i was off on sample j at any step, seen[1, j, i] if on.

    Returns the largest L.
    """
    own_copies()
    k = theta.size // 3
    w1, b1, w2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k]
    residual, S, largest = np.empty(x.size), np.empty((2, k)), 0.0
    for _ in range(steps):
        loss = _residuals(x, y, w1, b1, w2, theta[3 * k], residual)
        if not loss <= largest:
            largest = loss
        for j in range(x.size):
            for i in range(k):
                active = w1[i] * x[j] + b1[i] > 0
                seen[0, j, i] |= not active
                seen[1, j, i] |= active
        _update(theta, x, residual, scale, S)
    return largest
