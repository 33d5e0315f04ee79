"""Whether the second derivatives of a user's own loss in the outputs are those of its first, sample
by sample.

Every output is moved by a part of its own size: many losses are defined for positive outputs alone,
or have outputs of several sizes (a price, and the logarithm of its variance), where one distance
for all would leave the domain, or overflow."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flattest.problem.randomness import generator

# How far off its outputs a loss is looked at, as a part of their size: they may be at a kink.
_NEAR = 1e-3
# Kinks ask for small steps.
_STEPS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
# Of a sample's second derivative, or of what may be lost of it to rounding: a part of the largest
# among samples, of its slope, and of the slopes at others' outputs, of which its own may be what is
# left (p − 1 of a label with a probability of nearly 1).
_ALLOWED, _OF_LARGEST, _OF_SLOPE, _OF_OTHERS = 1e-4, 1e-6, 1e-4, 1e-9


class Beside(NamedTuple):
    """Outputs a little off a network's, (n, …), the size of each, and a direction to move them."""

    f: np.ndarray
    sizes: np.ndarray
    direction: np.ndarray

    def moved(self, step: float) -> np.ndarray:
        return self.f + step * self.direction


def beside(f: np.ndarray) -> Beside:
    """An output of 0 is as large as others in its place."""
    means = np.abs(f).mean(axis=0, keepdims=True)
    sizes = np.where(f != 0, np.abs(f), np.where(means > 0, means, 1.0))
    away, direction = sizes * generator(0, "derivatives").uniform(-1, 1, size=(2, *f.shape))
    return Beside(f + _NEAR * away, sizes, direction)


def wrong_by(
    products: np.ndarray, slopes: Callable[[np.ndarray], np.ndarray], near: Beside
) -> float:
    """How far (∇²_f ℓ_i) z_i, z being the direction, is from differences of ∇_f ℓ_i along it:
    relative to the sample's largest, the largest of all that tell; 0 where all agree.

    What tells are differences that agree for two steps: next to a kink, and where rounding is all
    there is, they do not, nor where a slope is not finite. Each output counts by its size.
    """

    def weighed(rows: np.ndarray) -> np.ndarray:
        return (rows * near.sizes).reshape(len(rows), -1)

    with np.errstate(all="ignore"):
        ahead, behind = (
            np.array([weighed(slopes(near.moved(sign * s))) for s in _STEPS]) for sign in (1, -1)
        )
        differences = (ahead - behind) / (2 * np.reshape(_STEPS, (-1, 1, 1)))
        # What is not a number is as wrong as none.
        found = np.nan_to_num(weighed(products), posinf=0, neginf=0)
        missed, size = np.abs(differences - found), _largest(found)
        others = _largest(weighed(slopes(np.roll(near.f, 1, axis=0))))
        least = max(
            _OF_LARGEST * size.max(), _OF_OTHERS * others[np.isfinite(others)].max(initial=0)
        )
        allowed = np.maximum(np.maximum(size, least), _OF_SLOPE * _largest(ahead[-1]))
        right = (missed <= _ALLOWED * allowed).any(axis=0)
        large = _largest(differences)
        relative = missed / np.maximum(size, large)
        agree = np.abs(np.diff(differences, axis=0)) < missed[1:] / 10
        tells = agree & _moves(differences)[1:] & np.isfinite(large[1:])
    wrong = tells.any(axis=0) & ~right
    return float(np.fmin.reduce(relative)[wrong].max(initial=0))


def _moves(differences: np.ndarray) -> np.ndarray:
    """By step, sample and output: whether a slope moves at all. One of few digits (p − 1) does
    not with small steps, beside others of its sample; where none moves, that is what they do."""
    moves = differences != 0
    return moves | ~moves.any(axis=(0, 2), keepdims=True)


def _largest(rows: np.ndarray) -> np.ndarray:
    """Of each sample's outputs, in a column: squares might overflow."""
    return np.abs(rows).max(axis=-1, keepdims=True)
