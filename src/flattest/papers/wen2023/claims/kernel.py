"""Section 3.1: what the neural tangent kernel needs for xor data."""

from functools import cache

import numpy as np
from scipy.stats import linregress, t as student

import flattest as ft
from flattest.evidence import Verdict, at_least, equal
from flattest.ledger.claim import claim, provided
from flattest.problem.randomness import generator

DIMENSIONS, SHARES, SEEDS = (8, 12, 16, 24), (0.35, 0.5, 0.7, 1.0), 3


def tangent_kernel(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The NTK of 2-MLP-No-Bias on points of norm √d, over d: u κ0(u) + κ1(u), u = x·z/d.

    κ0(u) = (π − arccos u)/π is E of two neurons' indicators, times 2, and
    κ1(u) = (u(π − arccos u) + √(1 − u²))/π that of their outputs.
    """
    u = np.clip(x @ z.T / x.shape[1], -1, 1)
    angle = np.pi - np.arccos(u)
    return (2 * u * angle + np.sqrt(1 - u**2)) / np.pi


def tangent_mse(d: int, n: int, seed: int, test: int = 500) -> float:
    """E(f − y)² of the kernel's interpolator of least norm on xor data, over fresh points."""
    data = ft.Xor(d, distinct=True).draw(n, seed)
    fresh, y = ft.Xor(d).sample(generator(seed, "claims/tangent kernel", d), test)
    weights = np.linalg.solve(tangent_kernel(data.x, data.x), data.y)
    return float(np.mean((tangent_kernel(fresh, data.x) @ weights - y) ** 2))


@cache
def samples_needed(d: int, mse: float = 0.25) -> float:
    """The n at which E(f − y)² has come down to `mse`, between the shares of d² that are tried."""
    n = [int(share * d**2) for share in SHARES]
    errors = [np.mean([tangent_mse(d, k, seed) for seed in range(SEEDS)]) for k in n]
    return float(np.exp(np.interp(np.log(mse), np.log(errors[::-1]), np.log(n[::-1]))))


@claim(
    "wen2023/section-3.1/kernel",
    "Learning xor data by the neural tangent kernel takes of the order of d² samples.",
    source="Section 3.1, after Lemma 3.1 (Wei et al. 2019)",
    evidence="scaling law",
)
def kernel() -> Verdict:
    """The exponent of d in the n at which E(f − y)² = 1/4.

    Wei et al. prove Ω(d²) for labels on ±e_1 and ±e_2, which is xor with its first two coordinates
    rotated, and a kernel of x·z does not see rotations. At n = 5d, where Theorem 3.1's networks
    generalize, the kernel is hardly better than f = 0, whose error is 1.
    """
    needed = [samples_needed(d) for d in DIMENSIONS]
    fit = linregress(np.log(DIMENSIONS), np.log(needed))
    half = float(student.ppf(0.975, len(needed) - 2) * fit.stderr)
    few = min(tangent_mse(40, 200, seed) for seed in range(SEEDS))
    note = (
        f"exponent of d in the n of E(f − y)² = 1/4, d = 8 … 24; at n = 5d, d = 40, it is ≥ "
        f"{few:.2f}"
    )
    interval = (float(fit.slope) - half, float(fit.slope) + half)
    return provided(
        equal(fit.slope, 2.0, 0.05, note, seeds=SEEDS, interval=interval),
        at_least(few, 0.8, 0.0, "least E(f − y)² at n = 5d"),
    )
