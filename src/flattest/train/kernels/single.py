"""Batch size 1 for f(x) = a · φ(W x'), φ = σ or Sim-LN's σ/max(‖σ‖, ε), x' = x or (x, 1), and for
three layers, with `three_layer` above the first.

At batch size 1 the gradient in W is an outer product u x'ᵀ. So the perturbed pre-activation is
h + ε‖x'‖² u, without touching W; and since the order is known, the pre-activations of a block of
samples come from one pass over W and are corrected inside the block by the Gram matrix,
h_k ← h_k − Σ_{l<k} c_l x'_l·x'_k. The same pass applies the updates of the block before.
Weight decay and projection scale W as a whole; the scale is applied in the pass.
"""

import numpy as np

from flattest.train.kernels.common import (
    DIVERGED,
    RUNNING,
    STOPPED,
    THREE_LAYER,
    Halt,
    ascent,
    conditional,
    descend,
    features,
    flush,
    inlined,
    kernel,
    learning_rate,
    loss_value,
    shift,
    slope,
)
from flattest.train.kernels.simd import BLOCK, sweep_tile
from flattest.train.kernels.three_layer import deep_output, deep_step
from flattest.train.order import fill_order, fill_signs


@inlined
def _correct(products, updates, gram, block, k, scale, h):
    """h = scale · (products_k + Σ_{l<k} updates_l x'_l·x'_k); unused updates have coefficient 0."""
    g = np.zeros(BLOCK, h.dtype)
    for l in range(k):
        g[l] = gram[block[l], block[k]]
    p, c, q = products[k], updates, h.dtype.type(scale)
    if k <= BLOCK // 2:
        for j in range(h.size):
            h[j] = q * (p[j] + g[0] * c[0, j] + g[1] * c[1, j] + g[2] * c[2, j] + g[3] * c[3, j])
    else:
        for j in range(h.size):
            near = g[0] * c[0, j] + g[1] * c[1, j] + g[2] * c[2, j] + g[3] * c[3, j]
            far = g[4] * c[4, j] + g[5] * c[5, j] + g[6] * c[6, j] + g[7] * c[7, j]
            h[j] = q * (p[j] + (near + far))


@inlined
def _scale_into(target_array, factor, source):
    factor = source.dtype.type(factor)
    for j in range(source.size):
        target_array[j] = factor * source[j]


@inlined
def _gather(x, block, size, columns):
    """columns[:, k] = x[block[k]]; 0 beyond the block's size."""
    columns[:] = 0
    for k in range(size):
        row = x[block[k]]
        for r in range(row.size):
            columns[r, k] = row[r]


@inlined
def _sweep(W, scale, updates, x_old, x_new, products):
    for tile in range(W.shape[0]):
        sweep_tile(tile, W, W.dtype.type(scale), updates, x_old, x_new, products)


@inlined
def _shallow_step(net, target, rule, lr, h, a, b, square_x, y, work):
    """One step of a and b; returns (g, u, ‖u‖², finite): W is to lose g u x'ᵀ."""
    z, u, h_up, a_up, z_up, u_up = work[0], work[1], work[2], work[3], work[4], work[5]
    f, zz, uu = features(net, h, a, z, u)
    f += b[0]
    finite = np.isfinite(f)
    s = slope(target, np.float64(f), y)
    if rule.rho != 0.0:
        e = ascent(rule, s, np.float64(zz) + square_x * np.float64(uu) + net.output_bias)
        shift(h_up, h, e * square_x, u)
        shift(a_up, a, e, z)
        f, zz, uu = features(net, h_up, a_up, z_up, u_up)
        s = slope(target, np.float64(f + b[0]) + e * net.output_bias, y)
        z, u = z_up, u_up
    keep, g = 1.0 - lr * rule.decay, lr * s
    descend(a, keep, g, z)
    b[0] = h.dtype.type(keep * b[0] - g * net.output_bias)
    return g, u, np.float64(uu), finite


@inlined
def _norm_after(square, keep, g, h, u, uu, square_x):
    """‖keep · W − g u x'ᵀ‖² from ‖W‖² and h = W x'."""
    inner = np.float64(0)
    for j in range(h.size):
        inner += np.float64(u[j]) * np.float64(h[j])
    return keep * keep * square - 2.0 * keep * g * inner + square_x * g * g * uu


@inlined
def _square(W):
    total = np.float64(0)
    for value in W.ravel():
        total += np.float64(value) * np.float64(value)
    return total


@inlined
def _block(net, target, rule, changed, step, block, labels, upper, gram, space, square):
    """Steps on one block; returns steps done, whether all were finite, the scale of W, ‖W‖²."""
    products, updates, work, h, on = space
    scale = 1.0
    updates[:] = 0
    for k in range(block.size):
        i = block[k]
        _correct(products, updates, gram, block, k, scale, h)
        square_x = np.float64(gram[i, i])
        lr = learning_rate(rule, changed, step + k)
        if net.family == THREE_LAYER:
            g, u, uu, finite = deep_step(
                net, target, rule, lr, h, upper, square_x, labels[k], work, on
            )
        else:
            g, u, uu, finite = _shallow_step(
                net, target, rule, lr, h, upper[2], upper[3], square_x, labels[k], work
            )
        if not finite:
            return k, False, scale, square
        keep = 1.0 - lr * rule.decay
        if rule.radius < np.inf:
            square = _norm_after(square, keep, g, h, u, uu, square_x)
        scale *= keep
        _scale_into(updates[k], -g / scale, u)
        if square > rule.radius * rule.radius:
            scale *= rule.radius / np.sqrt(square)
            square = rule.radius * rule.radius
    return block.size, True, scale, square


@inlined
def _training_loss(net, target, W, upper, data, idle, columns, space):
    """Mean of ℓ over the training set; leaves W as it is."""
    products, _, work, _, on = space
    x, _, y = data
    total = 0.0
    every = np.arange(y.size)
    for start in range(0, y.size, BLOCK):
        size = min(BLOCK, y.size - start)
        _gather(x, every[start:], size, columns)
        _sweep(W, 1.0, idle, columns, columns, products)
        for k in range(size):
            h = products[k, : work.shape[1]]
            if net.family == THREE_LAYER:
                f = deep_output(net, h, upper, work, on)
            else:
                f, _, _ = features(net, h, upper[2], work[0], work[1])
            total += loss_value(target, np.float64(f + upper[3][0]), y[start + k])
    return total / y.size


@inlined
def _close_epoch(W, upper):
    """Applies W2's scale and flushes; whether W was changed, and whether all is finite."""
    W2, scale, a, b = upper
    if scale[0] != 1.0:
        W2 *= W2.dtype.type(scale[0])
        scale[0] = 1.0
    _, finite_a = flush(a)
    _, finite_2 = flush(W2.reshape(W2.size))
    flushed, finite_1 = flush(W.reshape(W.size))
    return flushed, finite_1 and finite_2 and finite_a and np.isfinite(b[0])


@inlined
def _space(W, upper, deep):
    """Products and updates of a block, vectors of a step, the inputs of W2 that are on."""
    kind, width, padded = W.dtype, upper[2].size, W.shape[0] * W.shape[2]
    return (
        np.zeros((BLOCK, padded), kind),
        np.zeros((BLOCK, padded), kind),
        np.empty((14 if deep else 6, width), kind),
        np.empty(width, kind),
        np.empty(width + 1, np.int64),
    )


@kernel
def run(theta, data, net, target, rule, clock):
    """Trains θ = (W, W2ᵀ, a, b) in place on data = (x, x xᵀ, y).

    W: (tiles, inputs, lanes), 0 beyond the width. W2ᵀ: (width, width), or empty. a: (width,).
    b: (1,), the output bias.
    """
    W, W2, a, b = theta
    x, gram, y = data
    n, inputs = x.shape
    upper = W2, np.ones(1), a, b
    space = _space(W, upper, net.family == THREE_LAYER)
    products, updates, _, _, _ = space
    idle = np.zeros_like(updates)
    x_old, x_new = np.zeros((inputs, BLOCK), x.dtype), np.zeros((inputs, BLOCK), x.dtype)
    order, upcoming = np.empty(n, np.int32), np.empty(n, np.int32)
    signs, labels = np.zeros(n), np.empty(n)
    changed = clock.changed
    fill_order(clock.seed, clock.epoch, rule.replacement, upcoming)
    _gather(x, upcoming, min(BLOCK, n), x_new)
    _sweep(W, 1.0, idle, x_old, x_new, products)
    for done in range(clock.epochs):
        order, upcoming = upcoming, order
        fill_order(clock.seed, clock.epoch + done + 1, rule.replacement, upcoming)
        if rule.noise != 0.0:
            fill_signs(clock.seed, clock.epoch + done, signs)
        for t in range(n):
            labels[t] = y[order[t]] + rule.noise * signs[t]
        square = _square(W) if rule.radius < np.inf else 0.0
        for start in range(0, n, BLOCK):
            block = order[start : start + BLOCK]
            step = clock.step + done * n + start
            steps, finite, scale, square = _block(
                net, target, rule, changed, step, block, labels[start:], upper, gram, space, square
            )
            if not finite:
                return Halt(done, start + steps, changed, DIVERGED)
            x_old, x_new = x_new, x_old
            following = order[start + BLOCK :] if start + BLOCK < n else upcoming
            _gather(x, following, min(BLOCK, following.size), x_new)
            _sweep(W, scale, updates, x_old, x_new, products)
        flushed, finite = _close_epoch(W, upper)
        if not finite:
            return Halt(done, n, changed, DIVERGED)
        if conditional(rule):
            value = _training_loss(net, target, W, upper, data, idle, x_old, space)
            changed = changed or value < rule.change_below
            if value <= rule.stop_loss:
                return Halt(done + 1, 0, changed, STOPPED)
        if flushed or conditional(rule):
            _sweep(W, 1.0, idle, x_old, x_new, products)
    return Halt(clock.epochs, 0, changed, RUNNING)
