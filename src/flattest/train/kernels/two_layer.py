"""Batch size 1 for f(x) = a · φ(W x'), φ = σ or Sim-LN's σ/max(‖σ‖, ε), x' = x or (x, 1).

At batch size 1 the gradient in W is an outer product u x'ᵀ. So the perturbed pre-activation is
h + ε‖x'‖² u, without touching W; and since the order is known, the pre-activations of a block of
samples come from one pass over W and are corrected inside the block by the Gram matrix,
h_k ← h_k − Σ_{l<k} c_l x'_l·x'_k. The same pass applies the updates of the block before.
Weight decay and projection scale W as a whole; the scale is applied in the pass.
"""

import numpy as np

from flattest.train.kernels.common import (
    activate,
    ascent,
    flush,
    inlined,
    kernel,
    learning_rate,
    slope,
)
from flattest.train.kernels.simd import BLOCK, sweep_tile
from flattest.train.order import fill_order, fill_signs


@inlined
def features(net, h, a, z, u):
    """f = a · φ with z = ∂f/∂a = φ and u = ∂f/∂h; returns f, ‖z‖², ‖u‖² (without output bias)."""
    activate(net, h, z, u)
    f, zz = z.dtype.type(0), z.dtype.type(0)
    for j in range(h.size):
        f += a[j] * z[j]
        zz += z[j] * z[j]
    uu = z.dtype.type(0)
    if not net.layer_norm:
        for j in range(h.size):
            u[j] *= a[j]
            uu += u[j] * u[j]
        return f, zz, uu
    epsilon = z.dtype.type(net.epsilon)
    normal = zz > epsilon * epsilon
    inverse = z.dtype.type(1) / (np.sqrt(zz) if normal else epsilon)
    f *= inverse
    radial = f if normal else z.dtype.type(0)
    for j in range(h.size):
        z[j] *= inverse
        u[j] *= (a[j] - radial * z[j]) * inverse
        uu += u[j] * u[j]
    return f, zz * inverse * inverse, uu


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
def _shift(target_array, source, step, direction):
    for j in range(source.size):
        target_array[j] = source[j] + step * direction[j]


@inlined
def _scale_into(target_array, factor, source):
    factor = source.dtype.type(factor)
    for j in range(source.size):
        target_array[j] = factor * source[j]


@inlined
def _descend(theta, keep, g, gradient):
    keep, g = theta.dtype.type(keep), theta.dtype.type(g)
    for j in range(theta.size):
        theta[j] = keep * theta[j] - g * gradient[j]


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
def _gradient(net, target, rule, h, a, b, square_x, y, work):
    """Slope s and vectors (z, u), rows of `work`, with ∇ℓ(θ + ε) = s · (z, u x'ᵀ); ‖u‖²; finite."""
    z, u, h_up, a_up, z_up, u_up = work[0], work[1], work[2], work[3], work[4], work[5]
    f, zz, uu = features(net, h, a, z, u)
    f += b
    s = slope(target, np.float64(f), y)
    if rule.rho == 0.0:
        return s, z, u, np.float64(uu), np.isfinite(s)
    square = np.float64(zz) + square_x * np.float64(uu) + net.output_bias
    e = ascent(rule, s, square)
    _shift(h_up, h, h.dtype.type(e * square_x), u)
    _shift(a_up, a, h.dtype.type(e), z)
    f, zz, uu = features(net, h_up, a_up, z_up, u_up)
    f += b + h.dtype.type(e * net.output_bias)
    s_up = slope(target, np.float64(f), y)
    return s_up, z_up, u_up, np.float64(uu), np.isfinite(s) and np.isfinite(s_up)


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


@kernel
def run(W, a, b, x, gram, y, net, target, rule, seed, replacement, first_epoch, epochs, first_step):
    """Trains in place for `epochs` epochs, after `first_step` steps of the phase.

    W: (tiles, inputs, lanes), 0 beyond the width. a: (width,). b: (1,), the output bias.
    x: (n, inputs). gram: x xᵀ. Returns the steps done and whether the last was finite.
    """
    n, inputs = x.shape
    width = a.size
    order, upcoming = np.empty(n, np.int32), np.empty(n, np.int32)
    signs = np.zeros(n)
    x_old, x_new = np.zeros((inputs, BLOCK), x.dtype), np.zeros((inputs, BLOCK), x.dtype)
    padded = W.shape[0] * W.shape[2]
    updates, products = np.zeros((BLOCK, padded), x.dtype), np.zeros((BLOCK, padded), x.dtype)
    idle = np.zeros_like(updates)
    work, h = np.empty((6, width), x.dtype), np.empty(width, x.dtype)
    flat = W.reshape(W.size)
    limit = rule.radius * rule.radius
    steps = 0
    fill_order(seed, first_epoch, replacement, upcoming)
    _gather(x, upcoming, min(BLOCK, n), x_new)
    _sweep(W, 1.0, idle, x_old, x_new, products)
    for epoch in range(first_epoch, first_epoch + epochs):
        order, upcoming = upcoming, order
        fill_order(seed, epoch + 1, replacement, upcoming)
        if rule.noise != 0.0:
            fill_signs(seed, epoch, signs)
        square = _square(W) if np.isfinite(limit) else 0.0
        for start in range(0, n, BLOCK):
            block = order[start : start + BLOCK]
            scale, finite = 1.0, True
            updates[:] = 0
            for k in range(block.size):
                i = block[k]
                _correct(products, updates, gram, block, k, scale, h)
                label = y[i] + rule.noise * signs[start + k]
                square_x = np.float64(gram[i, i])
                s, z, u, uu, finite = _gradient(
                    net, target, rule, h, a, b[0], square_x, label, work
                )
                if not finite:
                    break
                lr = learning_rate(rule, first_step + steps)
                keep, g = 1.0 - lr * rule.decay, lr * s
                if np.isfinite(limit):
                    square = _norm_after(square, keep, g, h, u, uu, square_x)
                scale *= keep
                _scale_into(updates[k], -g / scale, u)
                _descend(a, keep, g, z)
                b[0] = x.dtype.type(keep * b[0] - g * net.output_bias)
                if square > limit:
                    scale *= rule.radius / np.sqrt(square)
                    square = limit
                steps += 1
            x_old, x_new = x_new, x_old
            following = order[start + BLOCK :] if start + BLOCK < n else upcoming
            _gather(x, following, min(BLOCK, following.size), x_new)
            _sweep(W, scale, updates, x_old, x_new, products)
            if not finite:
                return steps, False
        flush(a)
        if flush(flat):
            _sweep(W, 1.0, idle, x_old, x_new, products)
    return steps, True
