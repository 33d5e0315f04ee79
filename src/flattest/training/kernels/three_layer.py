"""What lies above the first layer of f = a · σ(W2 σ(h)), at batch size 1.

The gradient in W2 is an outer product too, so the perturbed products need W2 alone:
(W2 + ε u2 zᵀ) z' = W2 z' + ε (z·z') u2, and likewise transposed. W2ᵀ is stored inputs × outputs,
padded by 0 to whole vectors;
only the rows of inputs that are on (σ(h) ≠ 0 or σ′(h) ≠ 0) are read or written, four at a time,
and each is updated while it is at hand for the last product.
"""

import numpy as np

from flattest.training.kernels.common import (
    activate,
    activate_above,
    add_to,
    ascent,
    descend,
    dot,
    features,
    features_above,
    inlined,
    rescale,
    shift,
    slope,
)
from flattest.training.kernels.simd import (
    VECTOR_BYTES,
    fma,
    load,
    out_of_line,
    spread,
    store,
    total,
)

# Under decay W2's scale would leave float32's range within an epoch of some hundred steps.
LEAST_SCALE = 1e-6


@inlined
def apply_scale(W2, scale):
    """W2 ← scale · W2, scale ← 1."""
    flat = W2.reshape(W2.size)
    rescale(flat, scale[0], flat)
    scale[0] = 1.0


@inlined
def _select(z, v, on):
    """Indices of the inputs that are on, in `on`; returns their number."""
    count = 0
    for k in range(z.size):
        on[count] = k
        count += z[k] != 0 or v[k] != 0
    return count


@inlined
def _combine(W, z, on, count, scale, h):
    """h = scale · Σ_{k on} z_k W[k]."""
    out_of_line()
    h[:] = 0
    width, lanes = h.size, VECTOR_BYTES // h.itemsize
    whole = count - count % 4
    for i in range(0, whole, 4):
        p, q, r, s = on[i] * width, on[i + 1] * width, on[i + 2] * width, on[i + 3] * width
        a, b = spread(z[on[i]]), spread(z[on[i + 1]])
        c, d = spread(z[on[i + 2]]), spread(z[on[i + 3]])
        for j in range(0, width, lanes):
            t = fma(a, load(W, p + j), fma(b, load(W, q + j), load(h, j)))
            store(h, j, fma(c, load(W, r + j), fma(d, load(W, s + j), t)))
    for i in range(whole, count):
        add_to(h, z[on[i]], W[on[i]])
    scale = h.dtype.type(scale)
    for j in range(width):
        h[j] *= scale


@inlined
def _dots(W, k, l, m, n, u):
    """The products of four rows of W with u."""
    width, lanes = u.size, VECTOR_BYTES // u.itemsize
    zero = spread(u.dtype.type(0))
    a, b, c, d = zero, zero, zero, zero
    for j in range(0, width, lanes):
        t = load(u, j)
        a, b = fma(t, load(W, k * width + j), a), fma(t, load(W, l * width + j), b)
        c, d = fma(t, load(W, m * width + j), c), fma(t, load(W, n * width + j), d)
    return total(a), total(b), total(c), total(d)


@inlined
def _pull(W, u, on, count, scale, z, factor, back):
    """back_k = scale · W[k]·u for k on, else 0; then W[k] += factor · z_k u, unless factor = 0."""
    out_of_line()
    back[:] = 0
    scale, factor = u.dtype.type(scale), u.dtype.type(factor)
    whole = count - count % 4
    for i in range(0, whole, 4):
        k, l, m, n = on[i], on[i + 1], on[i + 2], on[i + 3]
        a, b, c, d = _dots(W, k, l, m, n, u)
        back[k], back[l], back[m], back[n] = scale * a, scale * b, scale * c, scale * d
        if factor != 0:
            add_to(W[k], factor * z[k], u)
            add_to(W[l], factor * z[l], u)
            add_to(W[m], factor * z[m], u)
            add_to(W[n], factor * z[n], u)
    for i in range(whole, count):
        k = on[i]
        back[k] = scale * dot(W[k], u)
        add_to(W[k], factor * z[k], u)


@inlined
def deep_output(net, h, upper, work, on):
    """f without the output bias."""
    out_of_line()
    W2, scale, a, _ = upper
    m = h.size
    z, v, h2 = work[0, :m], work[1, :m], work[2]
    activate(net, h, z, v)
    count = _select(z, v, on)
    _combine(W2, z, on, count, scale[0], h2)
    return features(net, h2[:m], a[:m], work[3, :m], work[5, :m])[0]


@inlined
def deep_step(net, target, rule, lr, below, h, upper, square_x, y, work, on, update):
    """One step of W2, a and b; update = −g u/below, where W1 loses g u x'ᵀ; whether f is finite.

    upper = (W2ᵀ, its scale, a, b): the true W2 is scale · W2, so that decay costs nothing.
    """
    out_of_line()
    W2, scale, padded_a, b = upper
    m = h.size
    a = padded_a[:m]
    z, v, h2, z2, u2, u = work[0, :m], work[1, :m], work[2], work[3, :m], work[4], work[5, :m]
    activate(net, h, z, v)
    count = _select(z, v, on)
    _combine(W2, z, on, count, scale[0], h2)
    f, zz, uu2 = features(net, h2[:m], a, z2, u2[:m])
    f += b[0]
    finite = np.isfinite(f)
    s, e, low_z, low_h2, low_u2 = slope(target, np.float64(f), y), 0.0, z, h2, u2
    if rule.rho != 0.0:
        _pull(W2, u2, on, count, scale[0], z, 0.0, u)
        for k in range(h.size):
            u[k] *= v[k]
        square = zz + np.float64(uu2) * dot(z, z) + square_x * np.float64(dot(u, u))
        e = ascent(rule, s, square + net.output_bias)
        z, v, h2, a_up = work[6, :m], work[7, :m], work[8], work[9, :m]
        z2_up, u2, h_up = work[10, :m], work[11], work[12, :m]
        shift(h_up, h, e * square_x, u)
        activate_above(net, rule, h, h_up, z, v)
        count = _select(z, v, on)
        _combine(W2, z, on, count, scale[0], h2)
        add_to(h2, h.dtype.type(e * dot(low_z, z)), low_u2)
        shift(a_up, a, e, z2)
        above, _, _ = features_above(net, rule, low_h2[:m], h2[:m], a_up, z2_up, u2[:m])
        s = slope(target, np.float64(above + b[0]) + e * net.output_bias, y)
        z2 = z2_up
    keep, g = 1.0 - lr * rule.decay, lr * s
    _pull(W2, u2, on, count, scale[0], z, -g / (scale[0] * keep), u)
    scale[0] *= keep
    if scale[0] < LEAST_SCALE:
        apply_scale(W2, scale)
    along = h.dtype.type(e * dot(low_u2, u2))
    for k in range(h.size):
        u[k] = (u[k] + along * low_z[k]) * v[k]
    descend(a, keep, g, z2)
    b[0] = h.dtype.type(keep * b[0] - g * net.output_bias)
    rescale(update, -g / below, u)
    return finite
