"""Any batch size, for every family: gradients by matrix products on one flat vector θ.

θ = (W1ᵀ, γ, W2ᵀ, a, b): W1ᵀ (inputs, width) with the bias as last input, γ (width) for Sim-BN,
W2ᵀ (width, width) for three layers, the last layer a (width) and the output bias b, which stays 0
where there is none. Matrices are inputs × neurons.
"""

import numpy as np

from flattest.training.kernels import each_sample
from flattest.training.kernels.common import (
    DIVERGED,
    RUNNING,
    SIM_BN,
    STOPPED,
    THREE_LAYER,
    activate_above,
    all_finite,
    conditional,
    copy,
    features_above,
    flush,
    inlined,
    kernel,
    learning_rate,
    loss_value,
    rescale,
    slope,
)
from flattest.training.kernels.simd import out_of_line, own_copies
from flattest.training.kernels.sources import SOURCES
from flattest.training.order import fill_order, fill_signs


@inlined
def split(net, theta, inputs, width):
    """Views (W1ᵀ, γ, W2ᵀ, a, b) of θ; γ and W2ᵀ are empty where the family has none."""
    first = inputs * width
    gamma = width if net.family == SIM_BN else 0
    hidden = width if net.family == THREE_LAYER else 0
    at = first + gamma + hidden * width
    return (
        theta[:first].reshape(inputs, width),
        theta[first : first + gamma],
        theta[first + gamma : at].reshape(hidden, width),
        theta[at : at + width],
        theta[at + width :],
    )


@inlined
def _activate_rows(net, rule, low, h, value, gain):
    for k in range(len(h)):
        activate_above(net, rule, low[k], h[k], value[k], gain[k])


@inlined
def _plain_outputs(net, rule, W, a, x, f, low, h, z, u):
    """f for the rows of x, with z = ∂f/∂a and u = ∂f/∂h."""
    out_of_line()
    np.dot(x, W, h)
    for k in range(len(x)):
        f[k], _, _ = features_above(net, rule, low[k], h[k], a, z[k], u[k])


@inlined
def _plain_backward(x, s, z, u, dW, da):
    """Gradients of Σ_k s_k f_k; u is overwritten."""
    out_of_line()
    da[:] = 0
    for k in range(len(x)):
        for j in range(da.size):
            da[j] += s[k] * z[k, j]
            u[k, j] *= s[k]
    np.dot(x.T, u, dW)


@inlined
def _normalized_outputs(net, rule, theta, x, rows, f, low, h, r, v, inverse):
    """Sim-BN: r = σ(h), v = σ′(h) on all of x, 1/s per neuron (1 where s = 0), f for `rows`."""
    out_of_line()
    W, gamma, _, a, _ = theta
    n = len(x)
    np.dot(x, W, h)
    _activate_rows(net, rule, low, h, r, v)
    inverse[:] = 0
    for k in range(n):
        for j in range(a.size):
            inverse[j] += r[k, j] * r[k, j]
    for j in range(a.size):
        inverse[j] = 1 / np.sqrt(inverse[j] / n) if inverse[j] > 0 else 1
    for k in range(rows.size):
        f[k] = 0
        for j in range(a.size):
            f[k] += a[j] * gamma[j] * inverse[j] * r[rows[k], j]


@inlined
def _normalized_backward(theta, x, rows, s, r, v, inverse, gradient):
    """Gradients of Σ_k s_k f_k through the statistics; v is overwritten."""
    out_of_line()
    _, gamma, _, a, _ = theta
    dW, dgamma, _, da, _ = gradient
    n = len(x)
    pull = np.zeros_like(a)
    for k in range(rows.size):
        for j in range(a.size):
            pull[j] += s[k] * r[rows[k], j] * inverse[j]
    c = np.empty_like(r)
    for k in range(n):
        for j in range(a.size):
            q = a[j] * gamma[j] * inverse[j]
            c[k, j] = -q * inverse[j] / n * pull[j] * r[k, j] * v[k, j]
    for k in range(rows.size):
        for j in range(a.size):
            c[rows[k], j] += s[k] * a[j] * gamma[j] * inverse[j] * v[rows[k], j]
    for j in range(a.size):
        da[j] = gamma[j] * pull[j]
        dgamma[j] = a[j] * pull[j]
    np.dot(x.T, c, dW)


@inlined
def _deep_backward(net, theta, x, s, z, v, z2, u2, gradient):
    """Three layers: z, v = σ, σ′ of the first; z2, u2 = ∂f/∂a, ∂f/∂h2; u2 and v overwritten."""
    out_of_line()
    W2 = theta[2]
    dW, _, dW2, da, _ = gradient
    _plain_backward(z, s, z2, u2, dW2, da)
    back = np.dot(u2, W2.T)
    for k in range(len(x)):
        for j in range(da.size):
            v[k, j] *= back[k, j]
    np.dot(x.T, v, dW)


@inlined
def _outputs(net, rule, views, x, rows, part, f, below, space):
    """f on `rows` of x (whose copy is `part`), with what the backward pass needs in `space`.

    `below` has the pre-activations whose pattern is kept, where it is.
    """
    out_of_line()
    h, h2, z, u, z2, u2, inverse = space
    low, low2, k = below[0], below[1], rows.size
    if net.family == SIM_BN:
        _normalized_outputs(net, rule, views, x, rows, f, low, h, z, u, inverse)
    elif net.family == THREE_LAYER:
        np.dot(part, views[0], h[:k])
        _activate_rows(net, rule, low, h[:k], z, u)
        _plain_outputs(net, rule, views[2], views[3], z[:k], f, low2, h2[:k], z2[:k], u2[:k])
    else:
        _plain_outputs(net, rule, views[0], views[3], part, f, low, h[:k], z[:k], u[:k])
    for i in range(k):
        f[i] += views[4][0]


@inlined
def _gradient(net, target, rule, theta, x, rows, labels, gradient, f, s, below, space, part):
    """∇ of the mean loss over `rows` into `gradient`; whether all outputs are finite."""
    out_of_line()
    width, size = space[0].shape[1], rows.size
    views = split(net, theta, x.shape[1], width)
    into = split(net, gradient, x.shape[1], width)
    for k in range(size):
        copy(part[k], x[rows[k]])
    _outputs(net, rule, views, x, rows, part[:size], f, below, space)
    total, finite = 0.0, True
    for k in range(size):
        finite = finite and np.isfinite(f[k])
        s[k] = slope(target, np.float64(f[k]), labels[k]) / size
        total += s[k]
    into[4][0] = total * net.output_bias
    _, _, z, u, z2, u2, inverse = space
    if net.family == SIM_BN:
        _normalized_backward(views, x, rows, s, z, u, inverse, into)
    elif net.family == THREE_LAYER:
        _deep_backward(net, views, part[:size], s, z[:size], u[:size], z2[:size], u2[:size], into)
    else:
        _plain_backward(part[:size], s, z[:size], u[:size], into[0], into[3])
    return finite


@inlined
def _norm(vector):
    total = np.float64(0)
    for value in vector:
        total += np.float64(value) * np.float64(value)
    return np.sqrt(total)


@inlined
def _step_gradient(
    net, target, rule, theta, above, x, rows, labels, total, g, f, s, space, space_up, part
):
    """Mean over micro-batches of ∇ℓ(θ + ε) into `total`; whether outputs at θ are finite."""
    total[:] = 0
    finite = True
    for start in range(0, rows.size, rule.micro_batch):
        few, some = rows[start : start + rule.micro_batch], labels[start:]
        # At θ a kept pattern is its own.
        finite &= _gradient(net, target, rule, theta, x, few, some, g, f, s, space, space, part)
        if rule.rho != 0.0:
            size = _norm(g) if rule.normalized else 1.0
            e = theta.dtype.type(rule.rho / size if size > 0 else 0.0)
            for j in range(theta.size):
                above[j] = theta[j] + e * g[j]
            _gradient(net, target, rule, above, x, few, some, g, f, s, space, space_up, part)
        share = theta.dtype.type(few.size / rows.size)
        for j in range(theta.size):
            total[j] += share * g[j]
    return finite


@inlined
def _gradient_by_sample(net, target, rule, theta, x, rows, labels, total, part, room):
    """`_step_gradient` where every sample is a micro-batch of its own."""
    width = room[0].shape[1]
    views, into = split(net, theta, x.shape[1], width), split(net, total, x.shape[1], width)
    if net.family == SIM_BN:
        return each_sample.batch_norm(net, target, rule, views, into, x, rows, labels, room)
    for k in range(rows.size):
        copy(part[k], x[rows[k]])
    some = part[: rows.size]
    if net.family == THREE_LAYER:
        return each_sample.three_layers(net, target, rule, views, into, some, labels, room)
    return each_sample.two_layers(net, target, rule, views, into, some, labels, room)


@inlined
def _descend(rule, lr, theta, total, first):
    """θ ← θ − η(g + λθ), then ‖(W1, b1)‖ ≤ radius."""
    keep, lr = theta.dtype.type(1.0 - lr * rule.decay), theta.dtype.type(lr)
    for j in range(theta.size):
        theta[j] = keep * theta[j] - lr * total[j]
    if rule.radius < np.inf:
        size = _norm(theta[:first])
        if size > rule.radius:
            rescale(theta, rule.radius / size, theta[:first])


@inlined
def _training_loss(net, target, rule, theta, x, y, f, space):
    rows = np.arange(y.size).astype(np.int32)
    views = split(net, theta, x.shape[1], space[0].shape[1])
    _outputs(net, rule, views, x, rows, x, f, space, space)
    total = 0.0
    for k in range(y.size):
        total += loss_value(target, np.float64(f[k]), y[k])
    return total / y.size


@inlined
def _draw(rule, seed, epoch, y, order, signs, labels):
    """One epoch's samples and their labels."""
    if rule.full:
        for t in range(y.size):
            order[t] = t
    else:
        fill_order(seed, epoch, rule.replacement, order)
    if rule.noise != 0.0:
        fill_signs(seed, epoch, signs)
    for t in range(y.size):
        labels[t] = y[order[t]] + rule.noise * signs[t]


@kernel
def run(theta, width, data, net, target, rule, clock, sources=SOURCES):
    """Trains the flat vector θ in place on data = (x, y)."""
    own_copies()
    x, y = data
    n, kind = y.size, theta.dtype
    order, signs, labels = np.empty(n, np.int32), np.zeros(n), np.empty(n)
    total, g, above = np.empty_like(theta), np.empty_like(theta), np.empty_like(theta)
    deep = n if net.family == THREE_LAYER else 0
    space = (
        np.empty((n, width), kind),
        np.empty((deep, width), kind),
        np.empty((n, width), kind),
        np.empty((n, width), kind),
        np.empty((deep, width), kind),
        np.empty((deep, width), kind),
        np.empty(width, kind),
    )
    # What lies above θ has pre-activations of its own.
    space_up = (np.empty_like(space[0]), np.empty_like(space[1])) + space[2:]
    f, s, part = np.empty(n, kind), np.empty(n, kind), np.empty_like(x)
    room = each_sample.room(net, n if rule.micro_batch == 1 else 0, width, kind)
    changed, per_epoch = clock.changed, -(-n // rule.batch)
    for done in range(clock.epochs):
        _draw(rule, clock.seed, clock.epoch + done, y, order, signs, labels)
        for i in range(per_epoch):
            start = i * rule.batch
            rows = order[start : start + rule.batch]
            if each_sample.serves(rule, rows):
                finite = _gradient_by_sample(
                    net, target, rule, theta, x, rows, labels[start:], total, part, room
                )
            else:
                finite = _step_gradient(
                    net,
                    target,
                    rule,
                    theta,
                    above,
                    x,
                    rows,
                    labels[start:],
                    total,
                    g,
                    f,
                    s,
                    space,
                    space_up,
                    part,
                )
            if not finite:
                return done, i, changed, DIVERGED
            lr = learning_rate(rule, changed, clock.step + done * per_epoch + i)
            _descend(rule, lr, theta, total, x.shape[1] * width)
        flush(theta)
        if not all_finite(theta):
            return done, per_epoch, changed, DIVERGED
        if conditional(rule):
            value = _training_loss(net, target, rule, theta, x, y, f, space)
            changed = changed or value < rule.change_below
            if value <= rule.stop_loss:
                return done + 1, 0, changed, STOPPED
    return clock.epochs, 0, changed, RUNNING
