"""Batch size 1 for Sim-BN: f(x) = Σ_j a_j γ_j r_j(x)/s_j, s_j² = (1/n) Σ_k r_j(x_k)², r = σ(W x').

With v_j = r_j(x_i)/s_j the gradient of f(x_i) in w_j, through the statistics, is

    t_j x'_i − p_j M_j,   t_j = a_j γ_j σ′(h_ij)/s_j,   p_j = a_j γ_j v_j/(n s_j²),
    M_j = Σ_k σ(h_kj) σ′(h_kj) x'_k,

so that s and M at W are all a step needs. They cost two products with the training inputs, done
tile by tile of neurons, where everything stays in the nearest cache.
"""

from typing import NamedTuple

import numpy as np

from flattest.training.kernels.common import (
    DIVERGED,
    LEAKY,
    RUNNING,
    STOPPED,
    activate,
    all_finite,
    ascent,
    conditional,
    flush,
    inlined,
    kernel,
    learning_rate,
    loss_value,
    rescale,
    slope,
    zeros,
)
from flattest.training.kernels.signs import CHUNK, GROUP, sign_product
from flattest.training.kernels.simd import (
    VECTOR_BYTES,
    fma,
    load,
    out_of_line,
    own_copies,
    panel_product,
    positive,
    spread,
    store,
    total,
)
from flattest.training.kernels.sources import SOURCES
from flattest.training.order import fill_order, fill_signs


class Samples(NamedTuple):
    """Training inputs x (n, inputs) and labels, and x prepared for products from either side: in
    blocks of eight samples, (·, inputs, 8), and of eight inputs, (·, n, 8), for `panel_product`;
    where all inputs are ±1 (`signs`) as codes of samples and of inputs for `sign_product`."""

    x: np.ndarray
    y: np.ndarray
    by_sample: np.ndarray
    by_input: np.ndarray
    signs: bool
    sample_codes: np.ndarray
    input_codes: np.ndarray


class Space(NamedTuple):
    """Work for one tile: h, and σ and σ′ of it, Σ σ², and the table of `sign_product`."""

    h: np.ndarray
    value: np.ndarray
    gain: np.ndarray
    squares: np.ndarray
    table: np.ndarray


@inlined
def _space(kind, n, lanes):
    rows = n + CHUNK * GROUP
    return Space(
        zeros(rows * lanes, kind).reshape(rows, lanes),
        zeros(rows * lanes, kind),
        zeros(rows * lanes, kind),
        zeros(lanes, kind),
        zeros(CHUNK * 2**GROUP * lanes, kind),
    )


@inlined
def _preactivations(data, w, space):
    """h_k = w x'_k for all samples, for a tile of neurons."""
    if data.signs:
        sign_product(data.sample_codes, w, space.h, space.table)
    else:
        panel_product(data.by_sample, w, space.h)


@inlined
def _leaky_at(h, at, low, one, square):
    """h ← σσ′(h) for one vector, and Σ σ² so far."""
    t = load(h, at)
    gain = positive(t, one, low)
    r = t * gain
    store(h, at, r * gain)
    return fma(r, r, square)


@inlined
def _leaky_moments(h, n, low, squares):
    """h ← σσ′(h) and squares = Σ_k σ(h_k)² for σ(t) = t, or low · t where t ≤ 0."""
    width, lanes = h.shape[1], VECTOR_BYTES // h.itemsize
    one, low, zero = spread(h.dtype.type(1)), spread(h.dtype.type(low)), spread(h.dtype.type(0))
    p, q, r, s = zero, zero, zero, zero
    for k in range(0, n - 1, 2):
        p = _leaky_at(h, k * width, low, one, p)
        q = _leaky_at(h, k * width + lanes, low, one, q)
        r = _leaky_at(h, (k + 1) * width, low, one, r)
        s = _leaky_at(h, (k + 1) * width + lanes, low, one, s)
    if n % 2:
        p = _leaky_at(h, (n - 1) * width, low, one, p)
        q = _leaky_at(h, (n - 1) * width + lanes, low, one, q)
    store(squares, 0, p + r)
    store(squares, lanes, q + s)


@inlined
def _moments_in_pattern(h, n, pattern, squares):
    """The same for σ(h) = pattern · h."""
    width = h.shape[1]
    squares[:] = 0
    for k in range(n):
        for j in range(width):
            gain = pattern[k * width + j]
            r = h[k, j] * gain
            squares[j] += r * r
            h[k, j] = r * gain


@inlined
def _note_pattern(net, h, n, pattern):
    """pattern = σ′(h) for σ = leaky ReLU."""
    width = h.shape[1]
    one, low = h.dtype.type(1), h.dtype.type(net.parameter)
    for k in range(n):
        for j in range(width):
            pattern[k * width + j] = one if h[k, j] > 0 else low


@inlined
def _moments(net, data, M, space):
    """M and squares = Σ_k σ(h_k)² of a tile from its h, which is overwritten."""
    h, value, n, lanes = space.h, space.value, data.y.size, space.h.shape[1]
    if net.activation == LEAKY:
        _leaky_moments(h, n, net.parameter, space.squares)
    else:
        activate(net, h.reshape(h.size)[: n * lanes], value[: n * lanes], space.gain[: n * lanes])
        space.squares[:] = 0
        for k in range(n):
            for j in range(lanes):
                r = value[k * lanes + j]
                space.squares[j] += r * r
                h[k, j] = r * space.gain[k * lanes + j]
    _sum_inputs(data, M, space)


@inlined
def _sum_inputs(data, M, space):
    """M = Σ_k σσ′(h_k) x'_k for a tile, whose σσ′ is in the place of h."""
    if data.signs:
        sign_product(data.input_codes, space.h, M, space.table)
    else:
        panel_product(data.by_input, space.h, M)


@inlined
def _statistics(net, W, data, i, M, inverse, row, space):
    """M and 1/s (1 where s = 0) at W, and row = W x'_i."""
    out_of_line()
    for tile in range(W.shape[0]):
        _preactivations(data, W[tile], space)
        _take_row(space.h, i, tile, row)
        _moments(net, data, M[tile], space)
        _invert(space.squares, data.y.size, tile, inverse)


@inlined
def _statistics_in_pattern(net, W, W_up, data, i, M, inverse, row, space):
    """The same at W_up, every neuron on the linear piece of σ that it is on at W."""
    out_of_line()
    n = data.y.size
    for tile in range(W.shape[0]):
        _preactivations(data, W[tile], space)
        _note_pattern(net, space.h, n, space.gain)
        _preactivations(data, W_up[tile], space)
        _take_row(space.h, i, tile, row)
        _moments_in_pattern(space.h, n, space.gain, space.squares)
        _sum_inputs(data, M[tile], space)
        _invert(space.squares, n, tile, inverse)


@inlined
def _take_row(h, i, tile, row):
    first = tile * h.shape[1]
    for j in range(h.shape[1]):
        row[first + j] = h[i, j]


@inlined
def _invert(squares, n, tile, inverse):
    """1/s from n s², 1 where s = 0."""
    share, first = squares.dtype.type(1.0 / n), tile * squares.size
    one, zero = squares.dtype.type(1), squares.dtype.type(0)
    for j in range(squares.size):
        square = squares[j]
        inverse[first + j] = one / np.sqrt(share * square if square > zero else one)


@inlined
def _output(net, a, gamma, inverse, row, v, gain):
    """f(x_i) without output bias; v_j = r_j(x_i)/s_j and gain = σ′(h_i)."""
    out_of_line()
    activate(net, row, v, gain)
    return _normalize(a, gamma, inverse, v)


@inlined
def _output_in_pattern(a, gamma, inverse, row, v, gain):
    """The same with `gain` as it is, that of the pattern."""
    out_of_line()
    for j in range(a.size):
        v[j] = row[j] * gain[j]
    return _normalize(a, gamma, inverse, v)


@inlined
def _normalize(a, gamma, inverse, v):
    """v ← v/s; returns Σ_j a_j γ_j v_j."""
    f = v.dtype.type(0)
    for j in range(a.size):
        v[j] *= inverse[j]
        f += a[j] * gamma[j] * v[j]
    return f


@inlined
def _direction(n, a, gamma, inverse, v, gain, x, M, t, p):
    """M ← ∇_W f; returns ‖∇f‖² over W, a and γ. t and p are work."""
    out_of_line()
    tiles, inputs, width = M.shape
    share, square = a.dtype.type(-1.0 / n), a.dtype.type(0)
    for j in range(a.size):
        q = a[j] * gamma[j] * inverse[j]
        t[j] = q * gain[j]
        p[j] = share * (q * inverse[j] * v[j])
        square += (a[j] * a[j] + gamma[j] * gamma[j]) * (v[j] * v[j])
    lanes = VECTOR_BYTES // a.itemsize
    total_square = np.float64(square)
    for j in range(0, a.size, lanes):
        near, far, sum_j = load(t, j), load(p, j), spread(a.dtype.type(0))
        at = (j // width) * inputs * width + j % width
        for k in range(inputs):
            d = fma(far, load(M, at), near * spread(x[k]))
            store(M, at, d)
            sum_j = fma(d, d, sum_j)
            at += width
        total_square += np.float64(total(sum_j))
    return total_square


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
    n = data.y.size
    M, inverse, row, v, gain, W_up, a_up, gamma_up, t, p = at
    f = _output(net, a, gamma, inverse, row, v, gain) + b[0]
    s, e = slope(target, np.float64(f), label), 0.0
    square = _direction(n, a, gamma, inverse, v, gain, data.x[i], M, t, p)
    rescale(a_up, 1.0, a)
    rescale(gamma_up, 1.0, gamma)
    if rule.rho != 0.0:
        e = ascent(rule, s, square + net.output_bias)
        _combination(W_up, 1.0, W, e, M)
        for j in range(a.size):
            a_up[j] += a.dtype.type(e) * (gamma[j] * v[j])
            gamma_up[j] += a.dtype.type(e) * (a[j] * v[j])
        if rule.kept:
            _statistics_in_pattern(net, W, W_up, data, i, M, inverse, row, space)
            up = _output_in_pattern(a_up, gamma_up, inverse, row, v, gain)
        else:
            _statistics(net, W_up, data, i, M, inverse, row, space)
            up = _output(net, a_up, gamma_up, inverse, row, v, gain)
        s = slope(target, np.float64(up + b[0]) + e * net.output_bias, label)
        _direction(n, a_up, gamma_up, inverse, v, gain, data.x[i], M, t, p)
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
def _training_loss(net, target, theta, data, inverse, space):
    """Mean of ℓ over the training set, 1/s being known."""
    out_of_line()
    W, gamma, a, b = theta
    n, lanes = data.y.size, W.shape[2]
    f = np.zeros(n, np.float64)
    for tile in range(W.shape[0]):
        _preactivations(data, W[tile], space)
        activate(net, space.h.reshape(space.h.size), space.value, space.gain)
        for k in range(n):
            for j in range(lanes):
                i = tile * lanes + j
                f[k] += np.float64(a[i] * gamma[i] * inverse[i] * space.value[k * lanes + j])
    value = 0.0
    for k in range(n):
        value += loss_value(target, f[k] + b[0], data.y[k])
    return value / n


@inlined
def _close_epoch(theta):
    """Flushes; whether all is finite."""
    W, gamma, a, b = theta
    flush(W)
    flush(gamma)
    flush(a)
    return all_finite(W) and all_finite(gamma) and all_finite(a) and np.isfinite(b[0])


@kernel
def run(theta, data, net, target, rule, clock, sources=SOURCES):
    """Trains θ = (W, γ, a, b) in place.

    W: (tiles, inputs, lanes); γ, a: (tiles · lanes,); all 0 beyond the width and the last input.
    b: (1,), the output bias.
    """
    own_copies()
    W, gamma, a, b = theta
    y, n = data.y, data.y.size
    space = _space(W.dtype, n, W.shape[2])
    M, W_up = zeros(W.size, W.dtype).reshape(W.shape), zeros(W.size, W.dtype).reshape(W.shape)
    vectors = zeros(8 * a.size, W.dtype).reshape(8, a.size)
    inverse, row, v, gain = vectors[0], vectors[1], vectors[2], vectors[3]
    at = M, inverse, row, v, gain, W_up, vectors[4], vectors[5], vectors[6], vectors[7]
    order, upcoming, signs = np.empty(n, np.int32), np.empty(n, np.int32), np.zeros(n)
    changed = clock.changed
    fill_order(clock.seed, clock.epoch, rule.replacement, upcoming)
    _statistics(net, W, data, upcoming[0], M, inverse, row, space)
    for done in range(clock.epochs):
        order, upcoming = upcoming, order
        fill_order(clock.seed, clock.epoch + done + 1, rule.replacement, upcoming)
        if rule.noise != 0.0:
            fill_signs(clock.seed, clock.epoch + done, signs)
        for t in range(n):
            lr = learning_rate(rule, changed, clock.step + done * n + t)
            label = y[order[t]] + rule.noise * signs[t]
            if not _step(net, target, rule, lr, theta, data, order[t], label, at, space):
                return done, t, changed, DIVERGED
            if t + 1 < n:
                _statistics(net, W, data, order[t + 1], M, inverse, row, space)
        if not _close_epoch(theta):
            return done, n, changed, DIVERGED
        _statistics(net, W, data, upcoming[0], M, inverse, row, space)
        if conditional(rule):
            value = _training_loss(net, target, theta, data, inverse, space)
            changed = changed or value < rule.change_below
            if value <= rule.stop_loss:
                return done + 1, 0, changed, STOPPED
    return clock.epochs, 0, changed, RUNNING
