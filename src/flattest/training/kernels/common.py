"""What every kernel shares: activations, loss slopes, the ascent step, the learning rate."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from flattest.compiled import njit
from flattest.training.kernels.simd import VECTOR_BYTES, out_of_line, power_of_two

# No nnan or ninf: divergence shows as a value that is not finite.
FAST = {"reassoc", "contract", "nsz"}
_inlined = partial(
    njit,
    nogil=True,
    error_model="numpy",
    fastmath=FAST,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)
inlined = _inlined()
# For what runs at every step and makes no array: counting references to the arrays it is given is
# atomic and took a tenth of a step.
uncounted = _inlined(_nrt=False)
# For what is too large for LLVM to inline by itself, where a call costs too much.
forced = _inlined(forceinline=True)
kernel = njit(nogil=True, error_model="numpy", fastmath=FAST, cache=True)

LEAKY, SOFTPLUS, QUADRATIC, POWER, TANH, SILU, GELU = range(7)
MSE, HALF_MSE, LOGISTIC = range(3)
TWO_LAYER, SIM_LN, SIM_BN, THREE_LAYER = range(4)
RUNNING, STOPPED, DIVERGED = range(3)


class Net(NamedTuple):
    """Family and σ by code; σ's parameter (slope for t ≤ 0, or power); Sim-LN's ε."""

    family: int
    activation: int
    parameter: float
    epsilon: float
    output_bias: bool


class Target(NamedTuple):
    """Loss by code, and its label smoothing."""

    loss: int
    smoothing: float


class Rule(NamedTuple):
    """A phase in numbers (see `algorithms`); sizes are counts of samples, conditions ±inf."""

    batch: int
    micro_batch: int
    full: bool
    replacement: bool
    lr: float
    warmup: float
    rho: float
    normalized: bool
    kept: bool
    decay: float
    noise: float
    radius: float
    change_below: float
    change_factor: float
    stop_loss: float


class Clock(NamedTuple):
    """What to run: `epochs` from `epoch` on, after `step` steps of the phase."""

    seed: np.uint64
    epoch: int
    epochs: int
    step: int
    changed: bool


class Halt(NamedTuple):
    """How far a kernel came: whole epochs, and where it diverged the steps of the one after.

    Kernels return it as a plain tuple: Numba makes a named one by calling Python, where an
    interrupt that came meanwhile is raised, and it crashes on that.
    """

    epochs: int
    steps: int
    changed: bool
    why: int


@inlined
def zeros(size, kind):
    """A flat array of zeros that begins on a vector boundary."""
    raw = np.zeros(size + VECTOR_BYTES, kind)
    start = (VECTOR_BYTES - raw.ctypes.data % VECTOR_BYTES) // raw.itemsize
    return raw[start : start + size]


@inlined
def learning_rate(rule, changed, step):
    """η at the step with this index within the phase."""
    lr = rule.lr * (rule.change_factor if changed else 1.0)
    return lr * ((step + 1) / rule.warmup) if step + 1 < rule.warmup else lr


@inlined
def conditional(rule):
    """Whether the phase looks at the training loss."""
    return rule.change_below > 0 or rule.stop_loss >= 0


@inlined
def loss_value(target, f, y):
    """ℓ(f, y)."""
    if target.loss == MSE:
        return (f - y) ** 2
    if target.loss == HALF_MSE:
        return 0.5 * (f - y) ** 2
    margin = f if y > 0 else -f
    return np.log1p(np.exp(-abs(margin))) + max(-margin, 0.0) + target.smoothing * margin


@inlined
def slope(target, f, y):
    """∂ℓ/∂f."""
    if target.loss == MSE:
        return 2.0 * (f - y)
    if target.loss == HALF_MSE:
        return f - y
    sign = 1.0 if y > 0 else -1.0
    return sign * (0.5 * (1.0 + np.tanh(0.5 * sign * f)) - (1.0 - target.smoothing))


@inlined
def ascent(rule, s, square):
    """ε-step per unit of ∇f, where g = s ∇f and square = ‖∇f‖².

    Normalized, this is ±ρ/‖∇f‖: it never sees ‖g‖, which underflows near interpolation.
    """
    if not rule.normalized:
        return rule.rho * s
    if s == 0.0 or square == 0.0:
        return 0.0
    return rule.rho * np.copysign(1.0, s) / np.sqrt(square)


@forced
def _decay(size):
    """e^{−size} for size ≥ 0 without branches, by reduction to |r| ≤ ln2/2 and Taylor."""
    k = np.floor(0.5 - size * 1.4426950408889634)
    r = -size - k * 0.6931471803691238 - k * 1.9082149292705877e-10
    t = 1.0 + r * (1.0 / 13)
    t = 1.0 + t * r * (1.0 / 12)
    t = 1.0 + t * r * (1.0 / 11)
    t = 1.0 + t * r * (1.0 / 10)
    t = 1.0 + t * r * (1.0 / 9)
    t = 1.0 + t * r * (1.0 / 8)
    t = 1.0 + t * r * (1.0 / 7)
    t = 1.0 + t * r * (1.0 / 6)
    t = 1.0 + t * r * (1.0 / 5)
    t = 1.0 + t * r * (1.0 / 4)
    t = 1.0 + t * r * (1.0 / 3)
    t = 1.0 + t * r * (1.0 / 2)
    return (1.0 + t * r) * power_of_two(np.int64(k))


@inlined
def _softplus(h, value, gain):
    """log(1 + e^h) and its slope, without branches, so that the loop vectorizes.

    log1p(t) = 2 artanh(t/(2 + t)) for t = e^{−|h|}. |h| is cut off where t is nothing beside 1 but
    its square is still no denormal number.
    """
    out_of_line()
    limit = 345.0 if h.itemsize == 8 else 41.0
    for j in range(h.size):
        x = np.float64(h[j])
        t = _decay(min(abs(x), limit))
        w = t / (2.0 + t)
        v = w * w
        q = 1.0 / 31
        q = q * v + 1.0 / 29
        q = q * v + 1.0 / 27
        q = q * v + 1.0 / 25
        q = q * v + 1.0 / 23
        q = q * v + 1.0 / 21
        q = q * v + 1.0 / 19
        q = q * v + 1.0 / 17
        q = q * v + 1.0 / 15
        q = q * v + 1.0 / 13
        q = q * v + 1.0 / 11
        q = q * v + 1.0 / 9
        q = q * v + 1.0 / 7
        q = q * v + 1.0 / 5
        q = q * v + 1.0 / 3
        q = q * v + 1.0
        value[j] = (x if x > 0 else x * 0.0) + 2.0 * w * q
        gain[j] = (1.0 if x > 0 else t) / (1.0 + t)


@inlined
def _tanh(h, value, gain):
    """tanh(h) = ±(1 − t)/(1 + t) for t = e^{−2|h|}, and its slope 4t/(1 + t)²."""
    out_of_line()
    for j in range(h.size):
        x = np.float64(h[j])
        t = _decay(min(2.0 * abs(x), 690.0))
        value[j] = np.copysign((1.0 - t) / (1.0 + t), x) if x == x else x
        gain[j] = 4.0 * t / ((1.0 + t) * (1.0 + t))


@inlined
def _silu(h, value, gain):
    """h s(h) for the sigmoid s, and its slope s (1 + h (1 − s))."""
    out_of_line()
    for j in range(h.size):
        x = np.float64(h[j])
        t = _decay(min(abs(x), 690.0))
        s = (1.0 if x > 0 else t) / (1.0 + t)
        value[j] = x * s
        gain[j] = s * (1.0 + x * ((t if x > 0 else 1.0) / (1.0 + t)))


@inlined
def _gelu(h, value, gain):
    """h Φ(h), and its slope Φ(h) + h φ(h)."""
    out_of_line()
    for j in range(h.size):
        x = np.float64(h[j])
        below = 0.5 * math.erfc(-0.7071067811865476 * x)
        value[j] = x * below
        gain[j] = below + x * 0.3989422804014327 * _decay(min(0.5 * x * x, 690.0))


@inlined
def _power(c, h, value, gain):
    """relu(h)^c and its slope; whole powers by multiplication."""
    out_of_line()
    if c == np.floor(c) and c < 8:
        for j in range(h.size):
            t = h[j] if not h[j] <= 0 else h.dtype.type(0)
            gain[j] = 1
            for _ in range(int(c) - 1):
                gain[j] *= t
            value[j] = gain[j] * t
            gain[j] *= h.dtype.type(c)
        return
    for j in range(h.size):
        t = h[j] if not h[j] <= 0 else h.dtype.type(0)
        gain[j] = t ** (c - 1)
        value[j] = gain[j] * t
        gain[j] *= h.dtype.type(c)


@inlined
def activate(net, h, value, gain):
    """value = σ(h), gain = σ′(h), with σ′(0) = σ′(0−) and NaN kept."""
    out_of_line()
    if net.activation == LEAKY:
        one, low = h.dtype.type(1), h.dtype.type(net.parameter)
        for j in range(h.size):
            t = h[j]
            slope_at_t = one if t > 0 else low
            gain[j] = slope_at_t
            value[j] = t * slope_at_t
    elif net.activation == SOFTPLUS:
        _softplus(h, value, gain)
    elif net.activation == QUADRATIC:
        for j in range(h.size):
            gain[j] = h[j] + h[j]
            value[j] = h[j] * h[j]
    elif net.activation == POWER:
        _power(net.parameter, h, value, gain)
    elif net.activation == TANH:
        _tanh(h, value, gain)
    elif net.activation == SILU:
        _silu(h, value, gain)
    else:
        _gelu(h, value, gain)


@inlined
def activate_above(net, rule, h, up, value, gain):
    """value and gain at h + ε, which is `up`: of σ, or where the pattern is kept of the linear
    piece that h is on."""
    out_of_line()
    if not rule.kept:
        activate(net, up, value, gain)
        return
    one, low = h.dtype.type(1), h.dtype.type(net.parameter)
    for j in range(h.size):
        gain[j] = one if h[j] > 0 else low
        value[j] = up[j] * gain[j]


@inlined
def dot(p, q):
    total = p.dtype.type(0)
    for j in range(p.size):
        total += p[j] * q[j]
    return total


@inlined
def shift(result, start, step, direction):
    """result = start + step · direction."""
    step = start.dtype.type(step)
    for j in range(start.size):
        result[j] = start[j] + step * direction[j]


@inlined
def add_to(result, factor, source):
    """result += factor · source."""
    for j in range(source.size):
        result[j] += factor * source[j]


@inlined
def rescale(result, factor, source):
    """result = factor · source, which may be the shorter."""
    factor = source.dtype.type(factor)
    for j in range(source.size):
        result[j] = factor * source[j]


@inlined
def copy(result, source):
    """result = source; an assignment of arrays would bring the text of its errors along, which
    takes seconds to compile."""
    for j in range(source.size):
        result[j] = source[j]


@inlined
def descend(theta, keep, g, gradient):
    """θ ← keep · θ − g · gradient."""
    keep, g = theta.dtype.type(keep), theta.dtype.type(g)
    for j in range(theta.size):
        theta[j] = keep * theta[j] - g * gradient[j]


@inlined
def features(net, h, a, z, u):
    """f = a · φ with z = ∂f/∂a = φ and u = ∂f/∂h; returns f, ‖z‖², ‖u‖² (without output bias)."""
    out_of_line()
    activate(net, h, z, u)
    return weighted(net, a, z, u)


@inlined
def features_above(net, rule, h, up, a, z, u):
    """The same at `up`, in the pattern of h where it is kept."""
    out_of_line()
    activate_above(net, rule, h, up, z, u)
    return weighted(net, a, z, u)


@inlined
def weighted(net, a, z, u):
    """`features` from z = σ(h) and u = σ′(h), in place."""
    f, zz = z.dtype.type(0), z.dtype.type(0)
    for j in range(a.size):
        f += a[j] * z[j]
        zz += z[j] * z[j]
    uu = z.dtype.type(0)
    if net.family != SIM_LN:
        for j in range(a.size):
            u[j] *= a[j]
            uu += u[j] * u[j]
        return f, zz, uu
    epsilon = z.dtype.type(net.epsilon)
    normal = zz > epsilon * epsilon
    inverse = z.dtype.type(1) / (np.sqrt(zz) if normal else epsilon)
    f *= inverse
    radial = f if normal else z.dtype.type(0)
    for j in range(a.size):
        z[j] *= inverse
        u[j] *= (a[j] - radial * z[j]) * inverse
        uu += u[j] * u[j]
    return f, zz * inverse * inverse, uu


@inlined
def all_finite(array):
    """Whether no entry is infinite or not a number."""
    flat, total = array.reshape(array.size), array.dtype.type(0)
    for j in range(flat.size):
        total += flat[j] * 0
    return total == 0


@inlined
def flush(array):
    """Sets entries whose square would underflow to 0; says whether there were any.

    Weights decay towards 0 forever where nothing holds them, and denormal numbers are slow.
    """
    out_of_line()
    flat, tiny = array.reshape(array.size), np.sqrt(np.finfo(array.dtype).tiny)
    found = 0
    for j in range(flat.size):
        small = abs(flat[j]) < tiny and flat[j] != 0
        found += small
        flat[j] = 0 if small else flat[j]
    return found > 0
