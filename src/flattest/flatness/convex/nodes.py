"""The bound of a node of branch and bound, compiled; `pricing` has the mathematics and the tree.

Written in loops over numbers: array expressions take Numba ten times as long to compile.
"""

import math
from functools import partial

import numpy as np

from flattest.compiled import njit

# Where few rows are active the rest of v rests on it: with 1e-7 rounding took v out of its cell.
RIDGE = 1e-5
DEPENDENT = 1e-13
STATIONARY = 1e-14
OPEN = 1e-12
ABOVE = 1e-11
ADDS = 1e-12
ROUNDING = 1e-15
PAID = 1e-12
AT_LOWER, FREE, AT_UPPER = 0, 1, 2
NONE = -1

kernel = njit(nogil=True, error_model="numpy", cache=True)
inlined = partial(
    njit, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)()


@inlined
def _dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@inlined
def _add(a, c, b):
    """a += c b."""
    for i in range(len(a)):
        a[i] += c * b[i]


@kernel
def bounded_least_squares(G, b, upper):
    """x with 0 ≤ x ≤ upper and Σ x_j G_j nearest to b, by active sets (Stark and Parker, 1995).

    Whatever ends it, x is within its bounds: what it proves rests on that alone.
    """
    m = len(G)
    x, state, blocked = np.zeros(m), np.zeros(m, np.int64), np.zeros(m, np.int64)
    for _ in range(5 * m + 10):
        entering = _entering(G, b, x, state, blocked)
        if entering == NONE:
            break
        before = state[entering]
        state[entering] = FREE
        while True:
            z, independent = _of_free(G, b, upper, state)
            if not independent:
                state[entering], blocked[entering] = before, 1
                break
            leaving = _step(x, z, upper, state)
            if leaving == NONE:
                blocked[:] = 0
                break
            if leaving == entering:
                blocked[entering] = 1
    return x


@inlined
def _entering(G, b, x, state, blocked):
    """The variable at a bound that the residual pulls off it most."""
    left = b.copy()
    for j in range(len(G)):
        _add(left, -x[j], G[j])
    best, entering = STATIONARY * math.sqrt(_dot(b, b)), NONE
    for j in range(len(G)):
        if state[j] != FREE and blocked[j] == 0:
            gain = _dot(G[j], left) / math.sqrt(_dot(G[j], G[j]) + 1e-300)
            gain = gain if state[j] == AT_LOWER else -gain
            if gain > best:
                best, entering = gain, j
    return entering


@inlined
def _of_free(G, b, upper, state):
    """The best values of the free variables alone, by modified Gram and Schmidt; whether their G_j
    are independent."""
    m, D = G.shape
    z, left, p = np.zeros(m), b.copy(), 0
    free, Q, triangle = np.empty(m, np.int64), np.empty((D, D)), np.zeros((D, D))
    for j in range(m):
        if state[j] == AT_UPPER:
            _add(left, -upper[j], G[j])
        if state[j] == FREE:
            if p == D:
                return z, False
            free[p] = j
            Q[p] = G[j]
            p += 1
    for j in range(p):
        size = math.sqrt(_dot(Q[j], Q[j]))
        if size <= DEPENDENT * math.sqrt(_dot(G[free[j]], G[free[j]])):
            return z, False
        triangle[j, j] = size
        for i in range(D):
            Q[j, i] /= size
        for i in range(j + 1, p):
            triangle[j, i] = _dot(Q[j], Q[i])
            _add(Q[i], -triangle[j, i], Q[j])
        z[free[j]] = _dot(Q[j], left)
        _add(left, -z[free[j]], Q[j])
    for j in range(p - 1, -1, -1):
        for i in range(j + 1, p):
            z[free[j]] -= triangle[j, i] * z[free[i]]
        z[free[j]] /= triangle[j, j]
    return z, True


@inlined
def _step(x, z, upper, state):
    """The free variables of x go towards z until the first meets a bound; which one, or NONE."""
    step, leaving = 1.0, NONE
    for j in range(len(x)):
        if state[j] == FREE and (z[j] <= 0 or z[j] > upper[j]):
            end = upper[j] if z[j] > 0 else 0.0
            share = max((end - x[j]) / (z[j] - x[j]), 0.0) if z[j] != x[j] else 0.0
            if share < step or leaving == NONE:
                step, leaving = share, j
    for j in range(len(x)):
        if state[j] == FREE:
            x[j] = min(max(x[j] + step * (z[j] - x[j]), 0.0), upper[j])
    if leaving != NONE:
        state[leaving] = AT_UPPER if z[leaving] > 0 else AT_LOWER
        x[leaving] = upper[leaving] if z[leaving] > 0 else 0.0
    return leaving


@inlined
def _triangle(A):
    """T, upper triangular, with TᵀT = AᵀA + RIDGE² 1."""
    k, D = A.shape
    Q, T = np.zeros((D, k + D)), np.zeros((D, D))
    for j in range(D):
        for i in range(k):
            Q[j, i] = A[i, j]
        Q[j, k + j] = RIDGE
    for j in range(D):
        T[j, j] = math.sqrt(_dot(Q[j], Q[j]))
        for i in range(k + D):
            Q[j, i] /= T[j, j]
        for i in range(j + 1, D):
            T[j, i] = _dot(Q[j], Q[i])
            _add(Q[i], -T[j, i], Q[j])
    return T


@inlined
def _divided(T, b):
    """T^{−T} b."""
    y = b.copy()
    for j in range(len(b)):
        for i in range(j):
            y[j] -= T[i, j] * y[i]
        y[j] /= T[j, j]
    return y


@kernel
def nearest(A, a, walls, upper, shift, near):
    """v and x such that q = A v has Aᵀq = Aᵀa − shift + Σ x_j walls_j up to an error e, with
    0 ≤ x ≤ upper and ‖q‖ least; ‖q‖ and ‖e‖. Beside ‖q‖² a little RIDGE² ‖v − near‖² is minimized,
    which makes v unique and is all of e but rounding."""
    D = A.shape[1]
    T, wanted, shifted = _triangle(A), -shift, np.zeros(D)
    for i in range(len(A)):
        _add(wanted, a[i], A[i])
    _add(shifted, 1.0, wanted)
    _add(shifted, RIDGE**2, near)
    start, G = _divided(T, shifted), np.empty_like(walls)
    for j in range(len(walls)):
        G[j] = _divided(T, walls[j])
    x = bounded_least_squares(G, -start, upper)
    v, e = start, -wanted
    for j in range(len(walls)):
        _add(v, x[j], G[j])
        _add(e, -x[j], walls[j])
    for j in range(D - 1, -1, -1):
        for i in range(j + 1, D):
            v[j] -= T[j, i] * v[i]
        v[j] /= T[j, j]
    size2 = 0.0
    for i in range(len(A)):
        q = _dot(A[i], v)
        size2 += q * q
        _add(e, q, A[i])
    return v, x, math.sqrt(size2), math.sqrt(_dot(e, e))


@kernel
def has_interior(R, sides):
    """Whether some v has all decided rows strictly on their sides: there is none exactly where
    y ≥ 0, Σ y = 1, has Σ y_j W_j = 0 (Gordan), to 1e-12."""
    k, D = R.shape
    count = 0
    G, b = np.zeros((k, D + 1)), np.zeros(D + 1)
    for h in range(k):
        if sides[h] != 0:
            _add(G[count, :D], sides[h] / math.sqrt(_dot(R[h], R[h])), R[h])
            G[count, D] = 1.0
            count += 1
    if count < 2:
        return True
    b[D] = 1.0
    y = bounded_least_squares(G[:count], b, np.full(count, np.inf))
    for j in range(count):
        _add(b, -y[j], G[j])
    return math.sqrt(_dot(b, b)) > OPEN


@inlined
def _added(slope, above, dual, beta, length):
    """x² and σ′²ℓ² of a row that is not decided, on one side."""
    x = slope * dual + beta
    x = max(x if above else -x, 0.0)
    return ((x / slope) ** 2 if slope != 0 else 0.0), (slope * length) ** 2


@inlined
def _tau(c, rho2, lengths, slopes, dual, sides, beta):
    """The largest (c² + Σ x²)/(ρ² + Σ w) over the sides of open rows, its root: each step takes
    the sides that are worst for the last (Dinkelbach), until none is worse."""
    tau2 = 0.0
    while True:
        top, below = c * c, rho2
        for h in range(len(sides)):
            if sides[h] == 0:
                x2, w = _added(slopes[1], True, dual[h], beta[h], lengths[h])
                y2, u = _added(slopes[0], False, dual[h], beta[h], lengths[h])
                if y2 - tau2 * u > x2 - tau2 * w:
                    x2, w = y2, u
                top, below = top + x2, below + w
        new = top / below if below > 0 else 0.0
        if new <= tau2 * (1 + ROUNDING):
            return math.sqrt(tau2) + 2 * len(sides) * ROUNDING
        tau2 = new


@inlined
def _to_divide(R, lengths, slopes, dual, sides, beta, goal, v):
    """The row that adds most above the goal; else the one farthest above 0 (for leaky units, from
    0) at the node's best neuron; NONE where there is none."""
    most, adding, farthest, far = 0.0, NONE, 0.0, NONE
    least = ABOVE * math.sqrt(_dot(v, v))
    for h in range(len(sides)):
        if sides[h] == 0:
            x2, w = _added(slopes[1], True, dual[h], beta[h], lengths[h])
            y2, u = _added(slopes[0], False, dual[h], beta[h], lengths[h])
            added = max(x2 - goal**2 * w, y2 - goal**2 * u)
            if added > most + ADDS * lengths[h] ** 2:
                most, adding = added, h
            away = _dot(R[h], v)
            away = abs(away) if slopes[0] != 0 else away
            if away > least and away / lengths[h] > farthest:
                farthest, far = away / lengths[h], h
    return far if adding == NONE else adding


@inlined
def _bound(R, lengths, slopes, dual, sides, K, goal):
    """The bound of a node, and the row to divide it on (NONE: there is none)."""
    k, D = R.shape
    rho2, positive2, live = 0.0, 0.0, 0
    A, a, walls, upper = np.zeros((k, D)), np.zeros(k), np.zeros((k, D)), np.full(k, np.inf)
    beta, shift, v = np.zeros(k), np.zeros(D), np.zeros(D)
    for h in range(k):
        slope = slopes[1] if sides[h] > 0 else slopes[0]
        _add(walls[h], sides[h] if sides[h] != 0 else -1.0, R[h])
        if sides[h] != 0 and slope != 0:
            _add(A[live], slope, R[h])
            a[live] = dual[h]
            rho2 += (slope * lengths[h]) ** 2
            positive2 += max(dual[h] * sides[h] * np.sign(slope), 0.0) ** 2
            live += 1
    bound = _tau(math.sqrt(positive2), rho2, lengths, slopes, dual, sides, beta)
    if bound <= goal or live == 0:
        return bound, _to_divide(R, lengths, slopes, dual, sides, beta, goal, v)
    # Rows that need no decision help with β between these bounds; others have β = 0.
    low = np.zeros(k)
    for h in range(k):
        if sides[h] == 0:
            least = -goal * slopes[0] ** 2 * lengths[h] - slopes[0] * dual[h]
            most = goal * slopes[1] ** 2 * lengths[h] - slopes[1] * dual[h]
            upper[h] = max(most - least, 0.0)
            if most > least:
                low[h] = least
                _add(shift, least, R[h])
    for _ in range(3):
        v, x, c, missing = nearest(A[:live], a[:live], walls, upper, shift, v)
        for h in range(k):
            beta[h] = low[h] + x[h]
        paid = K * missing / math.sqrt(rho2)
        bound = min(bound, _tau(c, rho2, lengths, slopes, dual, sides, beta) + paid)
        if bound <= goal or paid <= PAID:
            break
    return bound, _to_divide(R, lengths, slopes, dual, sides, beta, goal, v)


@kernel
def look(R, lengths, slopes, dual, sides, K, goal):
    """For nodes, a row of `sides` each (1 above 0, −1 below, 0 not decided): the bound, the row to
    divide on, and whether the node has an interior, where the bound is above the goal (else it does
    not matter)."""
    m = len(sides)
    bound, row, inner = np.zeros(m), np.zeros(m, np.int64), np.ones(m, np.bool_)
    for i in range(m):
        bound[i], row[i] = _bound(R, lengths, slopes, dual, sides[i], K, goal)
        if bound[i] > goal:
            inner[i] = has_interior(R, sides[i])
    return bound, row, inner
