"""m-SAM with one sample per micro-batch: all samples of a batch by a few matrix products.

Each sample climbs from θ along its own ∇f, which has rank one in every layer. For two layers the
gradient in (W1, b1) is u x′ᵀ, u = ∂f/∂h, so that above θ

    h + ε‖x′‖²u  and  a + εz,   z = ∂f/∂a,

and no perturbed matrix is formed; for three layers, with W2 + ε u₂z₁ᵀ, h₂ above θ is
W2 z₁⁺ + ε(z₁·z₁⁺)u₂ and what comes back through it W2ᵀu₂⁺ + ε(u₂·u₂⁺)z₁, where ⁺ is above θ.

With Sim-BN f_i = Σ_j a_j γ_j r_ij / s_j moves with all points through s. With q = a ⊙ γ / s,
t_i = r_i / (n s²), P = Σ_k x′_k (r_k ⊙ σ′_k)ᵀ, column by neuron,

    ∂f_i/∂(W1, b1) = q ⊙ (σ′_i x′_iᵀ − t_i ⊙ Pᵀ),   ∂f_i/∂h_k = q ⊙ (δ_ik σ′_i − t_i ⊙ r_k ⊙ σ′_k),

so that h_k above θ is h_k + ε q ⊙ ((x′_i·x′_k) σ′_i − t_i ⊙ Pᵀx′_k): two passes over n × m numbers
for each sample, and the products with x are made once for all.
"""

import numpy as np

from flattest.training.kernels.common import (
    THREE_LAYER,
    activate,
    activate_above,
    add_to,
    ascent,
    copy,
    dot,
    features,
    features_above,
    inlined,
    shift,
    slope,
)
from flattest.training.kernels.simd import out_of_line


@inlined
def serves(rule, rows):
    """Whether a step is of this kind."""
    return rule.micro_batch == 1 and rows.size > 1 and rule.rho != 0.0


@inlined
def room(net, n, width, kind):
    """Places for what a step computes: six arrays and ten vectors; for three layers five more."""
    deep = n if net.family == THREE_LAYER else 0
    return (
        np.empty((n, width), kind),
        np.empty((n, width), kind),
        np.empty((n, width), kind),
        np.empty((n, width), kind),
        np.empty((n, width), kind),
        np.empty((n, width), kind),
        np.empty((10, width), kind),
        np.empty((deep, width), kind),
        np.empty((deep, width), kind),
        np.empty((deep, width), kind),
        np.empty((deep, width), kind),
        np.empty((deep, width), kind),
    )


@inlined
def _climb(net, target, rule, f, y, square):
    """ε per unit of ∇f for one sample, and whether its output is finite."""
    s = slope(target, np.float64(f), y)
    return ascent(rule, s, square + net.output_bias), np.isfinite(f)


@inlined
def two_layers(net, target, rule, views, into, x, labels, space):
    """Mean over the rows of x of ∇ℓ(θ + ε) into the views `into`; whether outputs are finite."""
    out_of_line()
    W, _, _, a, b = views
    h, z, u, up, above_z, above_u, vectors = space[:7]
    n, finite, above_a = len(x), True, vectors[0]
    np.dot(x, W, h[:n])
    into[3][:] = 0
    into[4][0] = 0
    for k in range(n):
        f, zz, uu = features(net, h[k], a, z[k], u[k])
        xx = dot(x[k], x[k])
        e, fine = _climb(net, target, rule, f + b[0], labels[k], zz + uu * xx)
        finite = finite and fine
        shift(up[k], h[k], e * xx, u[k])
        shift(above_a, a, e, z[k])
        f, _, _ = features_above(net, rule, h[k], up[k], above_a, above_z[k], above_u[k])
        f += b[0] + W.dtype.type(e * net.output_bias)
        s = W.dtype.type(slope(target, np.float64(f), labels[k]) / n)
        add_to(into[3], s, above_z[k])
        for j in range(a.size):
            above_u[k, j] *= s
        into[4][0] += s * net.output_bias
    np.dot(x.T, above_u[:n], into[0])
    return finite


@inlined
def three_layers(net, target, rule, views, into, x, labels, space):
    """The same for three layers. Rows of z, u are those of the upper hidden layer, z1, v1, u1 of
    the lower one; W2 is inputs × neurons."""
    out_of_line()
    W, _, W2, a, b = views
    h, z, u, h2, above_z, above_u, vectors, z1, v1, back, above_z1, above_v1 = space
    n, finite, kind, above_a = len(x), True, W.dtype.type, vectors[0]
    np.dot(x, W, h[:n])
    for k in range(n):
        activate(net, h[k], z1[k], v1[k])
    np.dot(z1[:n], W2, h2[:n])
    into[3][:] = 0
    into[4][0] = 0
    e, fs = np.empty(n), np.empty(n)
    squares = np.empty(n)
    for k in range(n):
        f, zz, uu = features(net, h2[k], a, z[k], u[k])
        fs[k], squares[k] = f + b[0], zz + uu * dot(z1[k], z1[k])
    np.dot(u[:n], W2.T, back[:n])
    for k in range(n):
        for j in range(a.size):
            v1[k, j] *= back[k, j]
        xx = dot(x[k], x[k])
        square = squares[k] + dot(v1[k], v1[k]) * xx
        e[k], fine = _climb(net, target, rule, fs[k], labels[k], square)
        finite = finite and fine
        # From here on `back` is h above θ.
        shift(back[k], h[k], e[k] * xx, v1[k])
        activate_above(net, rule, h[k], back[k], above_z1[k], above_v1[k])
    # h has served, and takes h2 above θ.
    np.dot(above_z1[:n], W2, h[:n])
    for k in range(n):
        add_to(h[k], kind(e[k] * dot(z1[k], above_z1[k])), u[k])
        shift(above_a, a, e[k], z[k])
        f, _, _ = features_above(net, rule, h2[k], h[k], above_a, above_z[k], above_u[k])
        f += b[0] + kind(e[k] * net.output_bias)
        s = kind(slope(target, np.float64(f), labels[k]) / n)
        add_to(into[3], s, above_z[k])
        for j in range(a.size):
            above_u[k, j] *= s
        into[4][0] += s * net.output_bias
    np.dot(above_z1[:n].T, above_u[:n], into[2])
    np.dot(above_u[:n], W2.T, back[:n])
    for k in range(n):
        add_to(back[k], kind(e[k] * dot(u[k], above_u[k])), z1[k])
        for j in range(a.size):
            above_v1[k, j] *= back[k, j]
    np.dot(x.T, above_v1[:n], into[0])
    return finite


@inlined
def _statistics(r, inverse):
    """1/s_j, s_j² = mean of r_kj² over k; 1 where s_j = 0."""
    inverse[:] = 0
    for k in range(len(r)):
        for j in range(inverse.size):
            inverse[j] += r[k, j] * r[k, j]
    for j in range(inverse.size):
        inverse[j] = 1 / np.sqrt(inverse[j] / len(r)) if inverse[j] > 0 else 1


@inlined
def _own_gradient(x, along, long, q, t, slopes, i):
    """The square of ∂f_i/∂(W1, b1), with `along` = x′P and `long` the squares of P's columns."""
    total, xx = q.dtype.type(0), dot(x[i], x[i])
    for j in range(q.size):
        cross = slopes[j] * slopes[j] * xx - 2 * slopes[j] * t[j] * along[i, j]
        total += q[j] * q[j] * (cross + t[j] * t[j] * long[j])
    return total


@inlined
def _above(net, rule, x, i, e, h, along, own, up, gain, own_gain, r, product):
    """r and r ⊙ σ′ above θ at all points, for the climb of sample i, and σ′ there at its own."""
    out_of_line()
    q, t, slopes = own
    e = q.dtype.type(e)
    for k in range(len(x)):
        near = dot(x[i], x[k])
        for j in range(q.size):
            up[j] = h[k, j] + e * q[j] * (near * slopes[j] - t[j] * along[k, j])
        activate_above(net, rule, h[k], up, r[k], gain)
        for j in range(q.size):
            product[k, j] = r[k, j] * gain[j]
        if k == i:
            copy(own_gain, gain)


@inlined
def batch_norm(net, target, rule, views, into, x, rows, labels, space):
    """The same with Sim-BN, on `rows` of x."""
    out_of_line()
    W, gamma, _, a, b = views
    h, r, v, along, above_r, product, vectors = space[:7]
    inverse, q, t, long, up, gain, own_gain, above_a, above_gamma, above_inverse = vectors
    n, m, finite, kind = len(x), a.size, True, W.dtype.type
    np.dot(x, W, h)
    for k in range(n):
        activate(net, h[k], r[k], v[k])
        for j in range(m):
            product[k, j] = r[k, j] * v[k, j]
    _statistics(r, inverse)
    P = np.dot(x.T, product)
    np.dot(x, P, along)
    long[:] = 0
    for k in range(len(P)):
        for j in range(m):
            long[j] += P[k, j] * P[k, j]
    for j in range(m):
        q[j] = a[j] * gamma[j] * inverse[j]
    pull, total = np.zeros((n, m), kind), kind(0)
    into[1][:] = 0
    into[3][:] = 0
    for at in range(rows.size):
        i = rows[at]
        f, square = b[0], kind(0)
        for j in range(m):
            u = r[i, j] * inverse[j]
            f += a[j] * gamma[j] * u
            square += u * u * (a[j] * a[j] + gamma[j] * gamma[j])
            t[j] = u * inverse[j] / n
        square += _own_gradient(x, along, long, q, t, v[i], i)
        e, fine = _climb(net, target, rule, f, labels[at], square)
        finite = finite and fine
        _above(net, rule, x, i, e, h, along, (q, t, v[i]), up, gain, own_gain, above_r, product)
        _statistics(above_r, above_inverse)
        f = b[0] + kind(e * net.output_bias)
        for j in range(m):
            u = r[i, j] * inverse[j]
            above_a[j] = a[j] + kind(e) * gamma[j] * u
            above_gamma[j] = gamma[j] + kind(e) * a[j] * u
            f += above_a[j] * above_gamma[j] * above_r[i, j] * above_inverse[j]
        s = kind(slope(target, np.float64(f), labels[at]) / rows.size)
        total += s
        # t and `up` have served: they take sq above θ, and what it is multiplied by elsewhere.
        for j in range(m):
            u = above_r[i, j] * above_inverse[j]
            into[3][j] += s * above_gamma[j] * u
            into[1][j] += s * above_a[j] * u
            t[j] = s * above_a[j] * above_gamma[j] * above_inverse[j]
            up[j] = -t[j] * u * above_inverse[j] / n
            pull[i, j] += t[j] * own_gain[j]
        for k in range(n):
            for j in range(m):
                pull[k, j] += up[j] * product[k, j]
    into[4][0] = total * net.output_bias
    np.dot(x.T, pull, into[0])
    return finite
