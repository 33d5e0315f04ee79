"""Batch size 1 for f(x) = a · φ(W x'), φ = σ or Sim-LN's σ/max(‖σ‖, ε), x' = x or (x, 1), and for
three layers, with `three_layer` above the first.

At batch size 1 the gradient in W is an outer product u x'ᵀ. So the perturbed pre-activation is
h + ε‖x'‖² u, without touching W; and since the order is known, the pre-activations of a block of
samples come from one pass over W and are corrected inside the block by the Gram matrix,
h_k ← h_k − Σ_{l<k} c_l x'_l·x'_k. The same pass applies the updates of the block before.
Weight decay and projection scale W as a whole; the scale is applied in the pass.
"""

import numpy as np

from flattest.training.kernels.common import (
    DIVERGED,
    LEAKY,
    RUNNING,
    STOPPED,
    THREE_LAYER,
    TWO_LAYER,
    all_finite,
    ascent,
    conditional,
    descend,
    features,
    features_above,
    flush,
    inlined,
    kernel,
    learning_rate,
    loss_value,
    rescale,
    shift,
    slope,
    uncounted,
    zeros,
)
from flattest.training.kernels.leaky import (
    free_descend,
    free_outputs,
    kept_descend,
    kept_outputs,
    outputs,
)
from flattest.training.kernels.simd import (
    BLOCK,
    VECTOR_BYTES,
    fma,
    load,
    out_of_line,
    own_copies,
    spread,
    store,
    sweep_tile,
)
from flattest.training.kernels.sources import SOURCES
from flattest.training.kernels.three_layer import apply_scale, deep_output, deep_step
from flattest.training.order import fill_order, fill_signs


@uncounted
def _correct(products, updates, gram, block, k, scale, h):
    """h = scale · (products_k + Σ_{l<k} updates_l x'_l·x'_k)."""
    here, whole = block[k], spread(h.dtype.type(scale))
    lanes = VECTOR_BYTES // h.itemsize
    for j in range(0, h.size, 2 * lanes):
        even, odd = load(products, k * h.size + j), load(products, k * h.size + j + lanes)
        for l in range(k):
            g, at = spread(gram[here, block[l]]), l * h.size + j
            even, odd = fma(g, load(updates, at), even), fma(g, load(updates, at + lanes), odd)
        store(h, j, whole * even)
        store(h, j + lanes, whole * odd)


@uncounted
def _gather(x, block, size, columns):
    """columns[:, k] = x[block[k]]; 0 beyond the block's size."""
    columns[:] = 0
    for k in range(size):
        row = x[block[k]]
        for r in range(row.size):
            columns[r, k] = row[r]


@uncounted
def _sweep(W, scale, updates, x_old, x_new, products):
    for tile in range(W.shape[0]):
        sweep_tile(tile, W, W.dtype.type(scale), updates, x_old, x_new, products)


@uncounted
def _leaky_step(net, target, rule, lr, scale, h, a, b, square_x, y, updates, k):
    """One step of a and b for σ = leaky ReLU; updates_k = −g u/scale, where W loses g u x'ᵀ.

    Returns whether the output was finite.
    """
    low, e = net.parameter, 0.0
    f, zz, uu = outputs(low, h, a)
    f += b[0]
    s = slope(target, np.float64(f), y)
    if rule.rho != 0.0:
        e = ascent(rule, s, np.float64(zz) + square_x * np.float64(uu) + net.output_bias)
        if rule.kept:
            above = kept_outputs(low, h, a, e, e * square_x) + b[0]
        else:
            above = free_outputs(low, h, a, e, e * square_x) + b[0]
        s = slope(target, np.float64(above) + e * net.output_bias, y)
    keep, g = 1.0 - lr * rule.decay, lr * s
    if rule.kept:
        kept_descend(low, h, a, e, e * square_x, keep, g, -g / scale, updates, k * h.size)
    else:
        free_descend(low, h, a, e, e * square_x, keep, g, -g / scale, updates, k * h.size)
    b[0] = h.dtype.type(keep * b[0] - g * net.output_bias)
    return np.isfinite(f)


@inlined
def _shallow_step(net, target, rule, lr, scale, h, a, b, square_x, y, work, update):
    """The same for any σ, and for Sim-LN."""
    out_of_line()
    m = h.size
    z, u, h_up = work[0, :m], work[1, :m], work[2, :m]
    a_up, z_up, u_up = work[3, :m], work[4, :m], work[5, :m]
    f, zz, uu = features(net, h, a, z, u)
    f += b[0]
    s = slope(target, np.float64(f), y)
    if rule.rho != 0.0:
        e = ascent(rule, s, np.float64(zz) + square_x * np.float64(uu) + net.output_bias)
        shift(h_up, h, e * square_x, u)
        shift(a_up, a, e, z)
        above, _, _ = features_above(net, rule, h, h_up, a_up, z_up, u_up)
        s = slope(target, np.float64(above + b[0]) + e * net.output_bias, y)
        z, u = z_up, u_up
    keep, g = 1.0 - lr * rule.decay, lr * s
    descend(a, keep, g, z)
    rescale(update, -g / scale, u)
    b[0] = h.dtype.type(keep * b[0] - g * net.output_bias)
    return np.isfinite(f)


@inlined
def _norm_after(square, keep, scale, h, update, square_x):
    """‖keep · W + scale · update x'ᵀ‖² from ‖W‖² and h = W x'."""
    inner, outer = np.float64(0), np.float64(0)
    for j in range(h.size):
        inner += np.float64(update[j]) * np.float64(h[j])
        outer += np.float64(update[j]) * np.float64(update[j])
    return keep * keep * square + scale * (2.0 * keep * inner + scale * square_x * outer)


@inlined
def _square(W):
    total = np.float64(0)
    for value in W.ravel():
        total += np.float64(value) * np.float64(value)
    return total


@uncounted
def _block(net, target, rule, changed, step, block, labels, upper, gram, space, square):
    """Steps on one block; returns steps done, whether all were finite, the scale of W, ‖W‖²."""
    out_of_line()
    products, updates, work, h, on = space
    a, b, width = upper[2], upper[3], on.size - 1
    scale, finite = 1.0, True
    updates[:] = 0
    for k in range(block.size):
        _correct(products, updates, gram, block, k, scale, h)
        square_x, y = np.float64(gram[block[k], block[k]]), labels[k]
        lr = learning_rate(rule, changed, step + k)
        keep = 1.0 - lr * rule.decay
        scale *= keep
        if net.family == THREE_LAYER:
            finite = deep_step(
                net, target, rule, lr, scale, h[:width], upper, square_x, y, work, on, updates[k]
            )
        elif net.family == TWO_LAYER and net.activation == LEAKY:
            finite = _leaky_step(net, target, rule, lr, scale, h, a, b, square_x, y, updates, k)
        else:
            finite = _shallow_step(
                net, target, rule, lr, scale, h[:width], a[:width], b, square_x, y, work, updates[k]
            )
        if not finite:
            return k, False, scale, square
        if rule.radius < np.inf:
            square = _norm_after(square, keep, scale, h, updates[k], square_x)
            if square > rule.radius * rule.radius:
                scale *= rule.radius / np.sqrt(square)
                square = rule.radius * rule.radius
    return block.size, True, scale, square


@inlined
def _training_loss(net, target, W, upper, data, idle, columns, space):
    """Mean of ℓ over the training set; leaves W as it is."""
    out_of_line()
    products, _, work, _, on = space
    x, _, y = data
    total = 0.0
    every = np.arange(y.size)
    for start in range(0, y.size, BLOCK):
        size = min(BLOCK, y.size - start)
        _gather(x, every[start:], size, columns)
        _sweep(W, 1.0, idle, columns, columns, products)
        for k in range(size):
            h = products[k, : on.size - 1]
            if net.family == THREE_LAYER:
                f = deep_output(net, h, upper, work, on)
            else:
                f, _, _ = features(net, h, upper[2][: h.size], work[0, : h.size], work[1, : h.size])
            total += loss_value(target, np.float64(f + upper[3][0]), y[start + k])
    return total / y.size


@inlined
def _close_epoch(W, upper, decays):
    """Applies W2's scale and flushes; whether W was changed by it, and whether all is finite."""
    out_of_line()
    W2, scale, a, b = upper
    if scale[0] != 1.0:
        apply_scale(W2, scale)
    finite = all_finite(W) and all_finite(W2) and all_finite(a) and np.isfinite(b[0])
    if not decays:
        return False, finite
    flush(a)
    flush(W2)
    return flush(W), finite


@inlined
def _space(kind, padded, width, deep):
    """Products and updates of a block, vectors of a step, the inputs of W2 that are on."""
    return (
        zeros(BLOCK * padded, kind).reshape(BLOCK, padded),
        zeros(BLOCK * padded, kind).reshape(BLOCK, padded),
        zeros((13 if deep else 6) * padded, kind).reshape(13 if deep else 6, padded),
        zeros(padded, kind),
        np.empty(width + 1, np.int64),
    )


@kernel
def run(theta, width, data, net, target, rule, clock, sources=SOURCES):
    """Trains θ = (W, W2ᵀ, a, b) in place on data = (x, x xᵀ, y).

    W: (tiles, inputs, lanes). W2ᵀ: (width, tiles · lanes), or empty. a: (tiles · lanes,). All are
    0 beyond the width. b: (1,), the output bias.
    """
    own_copies()
    W, W2, a, b = theta
    x, gram, y = data
    n, inputs = x.shape
    upper = W2, np.ones(1), a, b
    space = _space(W.dtype, a.size, width, net.family == THREE_LAYER)
    products, updates, _, _, _ = space
    idle = np.zeros_like(updates)
    x_old, x_new = np.zeros((inputs, BLOCK), x.dtype), np.zeros((inputs, BLOCK), x.dtype)
    order, upcoming = np.empty(n, np.int32), np.empty(n, np.int32)
    signs, labels = np.zeros(n), np.empty(n)
    changed, decays = clock.changed, rule.decay != 0.0 or rule.radius < np.inf
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
                return done, start + steps, changed, DIVERGED
            x_old, x_new = x_new, x_old
            following = order[start + BLOCK :] if start + BLOCK < n else upcoming
            _gather(x, following, min(BLOCK, following.size), x_new)
            _sweep(W, scale, updates, x_old, x_new, products)
        flushed, finite = _close_epoch(W, upper, decays)
        if not finite:
            return done, n, changed, DIVERGED
        if conditional(rule):
            value = _training_loss(net, target, W, upper, data, idle, x_old, space)
            changed = changed or value < rule.change_below
            if value <= rule.stop_loss:
                return done + 1, 0, changed, STOPPED
        if flushed or conditional(rule):
            _sweep(W, 1.0, idle, x_old, x_new, products)
    return clock.epochs, 0, changed, RUNNING
