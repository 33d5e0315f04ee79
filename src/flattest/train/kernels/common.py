"""What every kernel shares: activations, loss slopes, the ascent step, the learning rate."""

from typing import NamedTuple

import numpy as np
from numba import njit

from flattest.train.kernels.simd import power_of_two

# No nnan or ninf: divergence shows as a value that is not finite.
FAST = {"reassoc", "contract", "nsz"}
inlined = njit(nogil=True, error_model="numpy", fastmath=FAST)
kernel = njit(nogil=True, error_model="numpy", fastmath=FAST, cache=True)

LEAKY, SOFTPLUS, QUADRATIC, POWER = range(4)
MSE, HALF_MSE, LOGISTIC = range(3)


class Net(NamedTuple):
    """σ by code and parameter (slope for t ≤ 0, or power); Sim-LN's ε where it applies."""

    activation: int
    parameter: float
    layer_norm: bool
    epsilon: float
    output_bias: bool


class Target(NamedTuple):
    """Loss by code, and its label smoothing."""

    loss: int
    smoothing: float


class Rule(NamedTuple):
    """One step: θ ← θ − η(∇ℓ(θ + ε) + λθ), then ‖(W1, b1)‖ ≤ radius.

    ε = ρ g/‖g‖ (normalized) or ρ g; η grows linearly over the first `warmup` steps.
    """

    lr: float
    warmup: float
    rho: float
    normalized: bool
    decay: float
    noise: float
    radius: float


@inlined
def learning_rate(rule, step):
    """η at the step with this index within the phase."""
    if step + 1 < rule.warmup:
        return rule.lr * ((step + 1) / rule.warmup)
    return rule.lr


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


@inlined
def _softplus(h, value, gain):
    """log(1 + e^h) and its slope, without branches, so that the loop vectorizes.

    t = e^{−|h|} by reduction to |r| ≤ ln2/2 and Taylor; log1p(t) = 2 artanh(t/(2 + t)).
    """
    for j in range(h.size):
        x = np.float64(h[j])
        size = min(abs(x), 345.0)
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
        t = (1.0 + t * r) * power_of_two(np.int64(k))
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
def _power(c, h, value, gain):
    """relu(h)^c and its slope; whole powers by multiplication."""
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
    if net.activation == LEAKY:
        one, low = h.dtype.type(1), h.dtype.type(net.parameter)
        for j in range(h.size):
            gain[j] = one if h[j] > 0 else low
            value[j] = h[j] * gain[j]
    elif net.activation == SOFTPLUS:
        _softplus(h, value, gain)
    elif net.activation == QUADRATIC:
        for j in range(h.size):
            gain[j] = h[j] + h[j]
            value[j] = h[j] * h[j]
    else:
        _power(net.parameter, h, value, gain)


@inlined
def flush(array):
    """Sets entries whose square would underflow to 0; says whether there were any.

    Weights decay towards 0 forever where nothing holds them, and denormal numbers are slow.
    """
    tiny = np.sqrt(np.finfo(array.dtype).tiny)
    found = 0
    for j in range(array.size):
        small = abs(array[j]) < tiny and array[j] != 0
        found += small
        array[j] = 0 if small else array[j]
    return found > 0
