"""Batch size 1 for Sim-BN: f(x) = Σ_j a_j γ_j r_j(x)/s_j, s_j² = (1/n) Σ_k r_j(x_k)², r = σ(W x').

With v_j = r_j(x_i)/s_j the gradient of f(x_i) in w_j, through the statistics, is

    t_j x'_i − p_j M_j,   t_j = a_j γ_j σ′(h_ij)/s_j,   p_j = a_j γ_j v_j/(n s_j²),
    M_j = Σ_k σ(h_kj) σ′(h_kj) x'_k,

so that s and M at W are all a step needs. They cost two products with the training inputs, done
tile by tile of neurons, where everything stays in the nearest cache.
"""

import numpy as np

from flattest.train.kernels.common import (
    DIVERGED,
    LEAKY,
    RUNNING,
    STOPPED,
    Halt,
    activate,
    all_finite,
    ascent,
    conditional,
    flush,
    inlined,
    kernel,
    learning_rate,
    loss_value,
    slope,
)
from flattest.train.kernels.simd import leaky_moments, out_of_line, panel_product
from flattest.train.order import fill_order, fill_signs


@inlined
def _moments(net, h, n, squares, value, gain):
    """h ← σσ′(h) and squares = Σ_k σ(h_k)² over the first n rows."""
    if net.activation == LEAKY:
        leaky_moments(h, n, h.dtype.type(net.parameter), squares)
        return
    lanes = h.shape[1]
    flat = h.reshape(h.size)[: n * lanes]
    activate(net, flat, value[: flat.size], gain[: flat.size])
    squares[:] = 0
    for k in range(n):
        for j in range(lanes):
            r = value[k * lanes + j]
            squares[j] += r * r
            h[k, j] = r * gain[k * lanes + j]


@inlined
def _statistics(net, W, panels, n, i, M, inverse, row, space):
    """M and 1/s (1 where s = 0) at W, and row = W x'_i."""
    out_of_line()
    by_sample, by_input = panels
    h, squares, value, gain = space
    lanes = W.shape[2]
    for tile in range(W.shape[0]):
        panel_product(by_sample, W[tile], h)
        first = tile * lanes
        for j in range(lanes):
            row[first + j] = h[i, j]
        _moments(net, h, n, squares, value, gain)
        panel_product(by_input, h, M[tile])
        for j in range(lanes):
            inverse[first + j] = 1 / np.sqrt(squares[j] / n) if squares[j] > 0 else 1


@inlined
def _output(net, a, gamma, inverse, row, v, gain):
    """f(x_i) without output bias; v_j = r_j(x_i)/s_j and gain = σ′(h_i)."""
    out_of_line()
    activate(net, row, v, gain)
    f = v.dtype.type(0)
    for j in range(a.size):
        v[j] *= inverse[j]
        f += a[j] * gamma[j] * v[j]
    return f


@inlined
def _direction(n, a, gamma, inverse, v, gain, x, M):
    """M ← ∇_W f; returns ‖∇f‖² over W, a and γ."""
    out_of_line()
    tiles, inputs, lanes = M.shape
    t, p = np.empty_like(a), np.empty_like(a)
    square = np.float64(0)
    for j in range(a.size):
        q = a[j] * gamma[j] * inverse[j]
        t[j] = q * gain[j]
        p[j] = q * inverse[j] * v[j] / a.dtype.type(n)
        square += np.float64((a[j] * a[j] + gamma[j] * gamma[j]) * (v[j] * v[j]))
    for tile in range(tiles):
        near, far = t[tile * lanes : (tile + 1) * lanes], p[tile * lanes : (tile + 1) * lanes]
        for k in range(inputs):
            part = a.dtype.type(0)
            for j in range(lanes):
                d = near[j] * x[k] - far[j] * M[tile, k, j]
                M[tile, k, j] = d
                part += d * d
            square += np.float64(part)
    return square


@inlined
def _combination(result, keep, start, step, direction):
    """result = keep · start + step · direction, for arrays of one shape."""
    out_of_line()
    r, s, d = result.reshape(result.size), start.reshape(start.size), direction.reshape(start.size)
    keep, step = start.dtype.type(keep), start.dtype.type(step)
    for j in range(r.size):
        r[j] = keep * s[j] + step * d[j]


@inlined
def _project(W, radius):
    total = np.float64(0)
    flat = W.reshape(W.size)
    for value in flat:
        total += np.float64(value) * np.float64(value)
    if total > radius * radius:
        flat *= W.dtype.type(radius / np.sqrt(total))


@inlined
def _step(net, target, rule, lr, theta, data, i, label, at, space):
    """One step on sample i, whose statistics at θ are in `at`; whether f(x_i) was finite."""
    W, gamma, a, b = theta
    x, panels, n = data
    M, inverse, row, v, gain, W_up = at
    f = _output(net, a, gamma, inverse, row, v, gain) + b[0]
    s, e = slope(target, np.float64(f), label), 0.0
    square = _direction(n, a, gamma, inverse, v, gain, x[i], M)
    a_up, gamma_up = a.copy(), gamma.copy()
    if rule.rho != 0.0:
        e = ascent(rule, s, square + net.output_bias)
        _combination(W_up, 1.0, W, e, M)
        for j in range(a.size):
            a_up[j] += a.dtype.type(e) * (gamma[j] * v[j])
            gamma_up[j] += a.dtype.type(e) * (a[j] * v[j])
        _statistics(net, W_up, panels, n, i, M, inverse, row, space)
        up = _output(net, a_up, gamma_up, inverse, row, v, gain)
        s = slope(target, np.float64(up + b[0]) + e * net.output_bias, label)
        _direction(n, a_up, gamma_up, inverse, v, gain, x[i], M)
    keep, g = 1.0 - lr * rule.decay, lr * s
    _combination(W, keep, W, -g, M)
    for j in range(a.size):
        pull = a.dtype.type(g) * v[j]
        a[j] = a.dtype.type(keep) * a[j] - pull * gamma_up[j]
        gamma[j] = a.dtype.type(keep) * gamma[j] - pull * a_up[j]
    b[0] = a.dtype.type(keep * b[0] - g * net.output_bias)
    if rule.radius < np.inf:
        _project(W, rule.radius)
    return np.isfinite(f)


@inlined
def _training_loss(net, target, theta, data, y, inverse, space):
    """Mean of ℓ over the training set, 1/s being known."""
    out_of_line()
    W, gamma, a, b = theta
    _, panels, n = data
    h, _, value, gain = space
    lanes = W.shape[2]
    f = np.zeros(n, np.float64)
    for tile in range(W.shape[0]):
        panel_product(panels[0], W[tile], h)
        activate(net, h.reshape(h.size), value, gain)
        for k in range(n):
            for j in range(lanes):
                i = tile * lanes + j
                f[k] += np.float64(a[i] * gamma[i] * inverse[i] * value[k * lanes + j])
    total = 0.0
    for k in range(n):
        total += loss_value(target, f[k] + b[0], y[k])
    return total / n


@inlined
def _close_epoch(theta):
    """Flushes; whether all is finite."""
    W, gamma, a, b = theta
    flush(W)
    flush(gamma)
    flush(a)
    return all_finite(W) and all_finite(gamma) and all_finite(a) and np.isfinite(b[0])


@kernel
def run(theta, x, panels, y, net, target, rule, clock):
    """Trains θ = (W, γ, a, b) in place.

    W: (tiles, inputs, lanes); γ, a: (tiles · lanes,); all 0 beyond the width and the last input.
    x: (n, inputs). panels: x by blocks of eight samples, (·, inputs, 8), and of eight inputs,
    (·, n, 8). b: (1,), the output bias.
    """
    W, gamma, a, b = theta
    n, lanes = y.size, W.shape[2]
    data = x, panels, n
    rows = panels[0].shape[0] * panels[0].shape[2]
    space = (
        np.zeros((rows, lanes), x.dtype),
        np.empty(lanes, x.dtype),
        np.empty(rows * lanes, x.dtype),
        np.empty(rows * lanes, x.dtype),
    )
    vector = np.empty_like(a)
    at = np.empty_like(W), vector, vector.copy(), vector.copy(), vector.copy(), np.empty_like(W)
    order, upcoming, signs = np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n)
    changed = clock.changed
    fill_order(clock.seed, clock.epoch, rule.replacement, upcoming)
    _statistics(net, W, panels, n, upcoming[0], at[0], at[1], at[2], space)
    for done in range(clock.epochs):
        order, upcoming = upcoming, order
        fill_order(clock.seed, clock.epoch + done + 1, rule.replacement, upcoming)
        if rule.noise != 0.0:
            fill_signs(clock.seed, clock.epoch + done, signs)
        for t in range(n):
            lr = learning_rate(rule, changed, clock.step + done * n + t)
            label = y[order[t]] + rule.noise * signs[t]
            if not _step(net, target, rule, lr, theta, data, order[t], label, at, space):
                return Halt(done, t, changed, DIVERGED)
            if t + 1 < n:
                _statistics(net, W, panels, n, order[t + 1], at[0], at[1], at[2], space)
        if not _close_epoch(theta):
            return Halt(done, n, changed, DIVERGED)
        _statistics(net, W, panels, n, upcoming[0], at[0], at[1], at[2], space)
        if conditional(rule):
            value = _training_loss(net, target, theta, data, y, at[1], space)
            changed = changed or value < rule.change_below
            if value <= rule.stop_loss:
                return Halt(done + 1, 0, changed, STOPPED)
    return Halt(clock.epochs, 0, changed, RUNNING)
