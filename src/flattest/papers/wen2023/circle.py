"""Neurons on the unit circle: relu(cos(θ − m) − cos φ) is active on the arc of half-angle φ
about m (the geometry of wen2023's Proposition A.2)."""

from typing import NamedTuple

import numpy as np


class Neurons(NamedTuple):
    """W1 (k, 2), b1 (k,), W2 (k,), and each neuron's `rise`: W1 is of order 1/rise."""

    W1: np.ndarray
    b1: np.ndarray
    W2: np.ndarray
    rise: np.ndarray


def spikes(m, inner, outer, t, norm, silence) -> Neurons:
    """One neuron for each centre m: active on the arc of half-angle `outer`, and at the angles
    m ± inner with the value c = √(|t| ‖x'‖) and W2 = t/c, so that it adds t to f and meets
    Equation (4). Where t = 0, c is `silence`."""
    c = np.where(t == 0, silence, np.sqrt(np.abs(t) * norm))
    rise = 2 * np.sin((outer + inner) / 2) * np.sin((outer - inner) / 2)
    return Neurons((c / rise)[:, None] * unit(m), -c * np.cos(outer) / rise, t / c, rise)


def plateaus(m, inner, outer, level) -> Neurons:
    """Two neurons for each centre m whose sum is `level` on the arc of half-angle `inner` and 0
    outside that of half-angle `outer`."""
    rise = 2 * np.sin((outer + inner) / 2) * np.sin((outer - inner) / 2)
    scale = np.sqrt(np.maximum(np.abs(level / rise), 1))
    W1 = np.concatenate([scale[:, None] * unit(m)] * 2)
    b1 = -np.concatenate([scale * np.cos(outer), scale * np.cos(inner)])
    W2 = level / (rise * scale)
    return Neurons(W1, b1, np.concatenate([W2, -W2]), np.concatenate([rise, rise]))


def close_pairs(gaps: np.ndarray, t: np.ndarray, close: float) -> np.ndarray:
    """Indices i of disjoint pairs (i, i + 1) of neighbours, nearest first, closer than `close` and
    with labels of one sign."""
    taken: set[int] = set()
    pairs = []
    for i in np.argsort(gaps, kind="stable"):
        j = (i + 1) % len(t)
        if len(t) > 2 and gaps[i] < close and t[i] * t[j] > 0 and not {i, j} & taken:
            taken |= {i, j}
            pairs.append(i)
    return np.array(pairs, int)


def bumps_and_plateaus(angles, t, norm, half_angle, silence) -> tuple[Neurons, np.ndarray]:
    """All neurons of Proposition A.2 for sorted angles with labels t, those that are active at
    training points first, and the part of a label that each of these carries."""
    gaps = np.diff(angles, append=angles[0] + 2 * np.pi)
    reach = np.minimum(half_angle, 0.45 * gaps)
    left = close_pairs(gaps, t, close=3 * half_angle)
    right = (left + 1) % len(t)
    shared = np.sign(t[left]) * np.minimum(np.abs(t[left]), np.abs(t[right]))
    paired = np.concatenate([left, right])
    rest = t.copy()
    rest[paired] -= np.tile(shared, 2)
    alone = np.delete(np.arange(len(t)), paired[rest[paired] == 0])
    half = gaps[left] / 2
    beyond = np.minimum(reach[left - 1], reach[right])
    open_gaps = np.delete(np.arange(len(t)), left)
    middle, level = angles + gaps / 2, (t + np.roll(t, -1)) / 2
    flank = (gaps / 2 - 0.1 * reach)[open_gaps]
    near = np.minimum(reach, np.roll(reach, 1))[alone]
    groups = [
        spikes(angles[alone], 0.0, near, rest[alone], norm, silence),
        spikes(middle[left], half, half + beyond, shared, norm, silence),
        plateaus(middle[open_gaps], flank - reach[open_gaps], flank, level[open_gaps]),
    ]
    neurons = Neurons(*(np.concatenate(parts) for parts in zip(*groups, strict=True)))
    return neurons, np.concatenate([rest[alone], shared])


def unit(angles) -> np.ndarray:
    return np.column_stack([np.cos(angles), np.sin(angles)])
