"""What lies above the first layer of f = a · σ(W2 σ(h)), at batch size 1.

The gradient in W2 is an outer product too, so the perturbed products need W2 alone:
(W2 + ε u2 zᵀ) z' = W2 z' + ε (z·z') u2, and likewise transposed. W2ᵀ is stored inputs × outputs;
only the rows of inputs that are on (σ(h) ≠ 0 or σ′(h) ≠ 0) are read or written, four at a time,
and each is updated while it is at hand for the last product.
"""

import numpy as np

from flattest.train.kernels.common import (
    activate,
    ascent,
    descend,
    dot,
    features,
    inlined,
    rescale,
    shift,
    slope,
)
from flattest.train.kernels.simd import out_of_line


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
    whole = count - count % 4
    for i in range(0, whole, 4):
        p, q, r, t = W[on[i]], W[on[i + 1]], W[on[i + 2]], W[on[i + 3]]
        a, b, c, d = z[on[i]], z[on[i + 1]], z[on[i + 2]], z[on[i + 3]]
        for j in range(h.size):
            h[j] += (a * p[j] + b * q[j]) + (c * r[j] + d * t[j])
    for i in range(whole, count):
        p, a = W[on[i]], z[on[i]]
        for j in range(h.size):
            h[j] += a * p[j]
    for j in range(h.size):
        h[j] *= h.dtype.type(scale)


@inlined
def _dots(p, q, r, t, u):
    """The products of four rows with u."""
    zero = u.dtype.type(0)
    a, b, c, d = zero, zero, zero, zero
    for j in range(u.size):
        a += p[j] * u[j]
        b += q[j] * u[j]
        c += r[j] * u[j]
        d += t[j] * u[j]
    return a, b, c, d


@inlined
def _add_to(row, factor, u):
    for j in range(u.size):
        row[j] += factor * u[j]


@inlined
def _pull(W, u, on, count, scale, z, factor, back):
    """back_k = scale · W[k]·u for k on, else 0; then W[k] += factor · z_k u, unless factor = 0."""
    out_of_line()
    back[:] = 0
    scale, factor = u.dtype.type(scale), u.dtype.type(factor)
    whole = count - count % 4
    for i in range(0, whole, 4):
        k, l, m, n = on[i], on[i + 1], on[i + 2], on[i + 3]
        a, b, c, d = _dots(W[k], W[l], W[m], W[n], u)
        back[k], back[l], back[m], back[n] = scale * a, scale * b, scale * c, scale * d
        if factor != 0:
            _add_to(W[k], factor * z[k], u)
            _add_to(W[l], factor * z[l], u)
            _add_to(W[m], factor * z[m], u)
            _add_to(W[n], factor * z[n], u)
    for i in range(whole, count):
        k = on[i]
        back[k] = scale * dot(W[k], u)
        _add_to(W[k], factor * z[k], u)


@inlined
def deep_output(net, h, upper, work, on):
    """f without the output bias."""
    out_of_line()
    W2, scale, a, _ = upper
    activate(net, h, work[0], work[1])
    count = _select(work[0], work[1], on)
    _combine(W2, work[0], on, count, scale[0], work[2])
    return features(net, work[2], a[: h.size], work[3], work[4])[0]


@inlined
def deep_step(net, target, rule, lr, below, h, upper, square_x, y, work, on, update):
    """One step of W2, a and b; update = −g u/below, where W1 loses g u x'ᵀ; whether f is finite.

    upper = (W2ᵀ, its scale, a, b): the true W2 is scale · W2, so that decay costs nothing.
    """
    out_of_line()
    W2, scale, padded_a, b = upper
    a = padded_a[: h.size]
    z, v, h2, z2, u2, u = work[0], work[1], work[2], work[3], work[4], work[5]
    activate(net, h, z, v)
    count = _select(z, v, on)
    _combine(W2, z, on, count, scale[0], h2)
    f, zz, uu2 = features(net, h2, a, z2, u2)
    f += b[0]
    finite = np.isfinite(f)
    s, e, low_z, low_u2 = slope(target, np.float64(f), y), 0.0, z, u2
    if rule.rho != 0.0:
        _pull(W2, u2, on, count, scale[0], z, 0.0, u)
        for k in range(h.size):
            u[k] *= v[k]
        square = zz + np.float64(uu2) * dot(z, z) + square_x * np.float64(dot(u, u))
        e = ascent(rule, s, square + net.output_bias)
        z, v, h2, a_up, z2_up, u2 = work[6], work[7], work[8], work[9], work[10], work[11]
        h_up = work[12]
        shift(h_up, h, e * square_x, u)
        activate(net, h_up, z, v)
        count = _select(z, v, on)
        _combine(W2, z, on, count, scale[0], h2)
        _add_to(h2, h.dtype.type(e * dot(low_z, z)), low_u2)
        shift(a_up, a, e, z2)
        above, _, _ = features(net, h2, a_up, z2_up, u2)
        s = slope(target, np.float64(above + b[0]) + e * net.output_bias, y)
        z2 = z2_up
    keep, g = 1.0 - lr * rule.decay, lr * s
    _pull(W2, u2, on, count, scale[0], z, -g / (scale[0] * keep), u)
    scale[0] *= keep
    along = h.dtype.type(e * dot(low_u2, u2))
    for k in range(h.size):
        u[k] = (u[k] + along * low_z[k]) * v[k]
    descend(a, keep, g, z2)
    b[0] = h.dtype.type(keep * b[0] - g * net.output_bias)
    rescale(update, -g / below, u)
    return finite
