"""Inner weights that are learned: the least S_min over those orthogonal to span(U), by descent.

F(W) = min over a of Σ_j ω_j(W) |a_j|^p with Φ(W) a = y is the least S_min of an interpolator with
inner weights W (Eq. 3 with the weights of Lemma 3), a convex program with a dual λ. By the envelope
theorem its gradient is that of the Lagrangian at the solution,

    ∂F/∂w_j = |a_j|^p ∂ω_j/∂w_j − a_j Σ_i λ_i σ′(w_j·x_i) x_i,   ω_j ∝ A_j^{1/(c+1)} B_j^{c/(c+1)},

where the number of points at which a ReLU is active has no gradient. Every step is at an
interpolator with its own certificate, so that the least value seen is an upper bound on the least
there is, whatever the descent may have missed.
"""

from typing import NamedTuple

import numpy as np

import flattest as ft
from flattest.papers.vardhan2026.interpolation import flattest_outer_weights
from flattest.problem.distributions import unit_rows
from flattest.problem.multi_index import label_variance

# Adam's, with a rate that falls to 0 linearly. The second moment is one number for all entries, so
# that the descent does not depend on the basis of R^d.
RATE, FIRST, SECOND = 0.05, 0.9, 0.99


class Flattest(NamedTuple):
    """Unit inner weights, their orbit weights ω and flattest outer weights a with the dual; `value`
    is S_min. `certified` where the program was solved to optimality."""

    W: np.ndarray
    omega: np.ndarray
    a: np.ndarray
    dual: np.ndarray
    value: float
    certified: bool


def flattest_with(W: np.ndarray, data: ft.Dataset, name: str) -> Flattest:
    """The flattest interpolator with inner weights W; neurons active on no point have a_j = 0."""
    omega, a = ft.orbit_weights(W, data.x, name), np.zeros(len(W))
    alive = omega > 0
    found = flattest_outer_weights(W[alive], data, name, omega[alive])
    a[alive] = found.a
    return Flattest(W, omega, a, found.dual, found.value, found.status == "optimal")


def learned(W: np.ndarray, U: np.ndarray, data: ft.Dataset, name: str, steps: int) -> Flattest:
    """The flattest interpolator seen in `steps` steps of Adam from W on the unit sphere of U's
    complement; the descent ends where a program cannot be solved."""
    best = here = flattest_with(W, data, name)
    mean, square = np.zeros_like(W), 0.0
    for step in range(steps):
        gradient = value_gradient(here, data, name)
        gradient -= (gradient @ U.T) @ U
        mean += (1 - FIRST) * (gradient - mean)
        square += (1 - SECOND) * (np.mean(gradient**2) - square)
        size = np.sqrt(square / (1 - SECOND ** (step + 1)))
        rate = RATE * (1 - step / steps) / (1 - FIRST ** (step + 1))
        here = flattest_with(unit_rows(here.W - rate * mean / size), data, name)
        if not here.certified:
            break
        best = min(best, here, key=lambda found: found.value)
    return best


def value_gradient(at: Flattest, data: ft.Dataset, name: str) -> np.ndarray:
    """∂F/∂W, (m, d)."""
    sigma, p = ft.activation(name), ft.norm_exponent(name)
    c = p / (2 - p)
    h, sizes = data.x @ at.W.T, np.sum(data.x**2, axis=1)[:, None]
    value, slope, curve = (np.asarray(s(h)) for s in (sigma.value, sigma.slope, sigma.curvature))
    A, B = np.sum(value**2, axis=0), np.sum(sizes * slope**2, axis=0)
    dA, dB = 2 * value * slope, 2 * sizes * slope * curve
    dead = at.omega == 0  # such a neuron has a_j = 0, and stays where it is
    logarithmic = (dA / np.where(dead, 1, A) + c * dB / np.where(dead, 1, B)) / (c + 1)
    by_omega = at.omega * np.abs(at.a) ** p * logarithmic
    return (by_omega - at.dual[:, None] * slope * at.a).T @ data.x


def drawn_and_learned(d: int, n: int, name: str, steps: int, seed: int) -> dict[str, float]:
    """The flattest bad interpolators of n points with 2n inner weights, drawn and learned.

    S_min over that of the teacher at the same width; the loss of the learned one over Var y.
    """
    distribution = ft.SingleIndex(d, link=name)
    data, U = distribution.draw(n, seed), distribution.directions
    W = ft.bad_inner_weights(U, 2 * n, 0.0, seed)
    drawn, best = flattest_with(W, data, name), learned(W, U, data, name, steps)
    teacher = float(ft.orbit_weights(U, data.x, name)[0] * len(W) ** (1 - ft.norm_exponent(name)))
    loss = ft.population_loss(best.W, best.a, distribution, name)
    return {
        "drawn": drawn.value / teacher,
        "learned": best.value / teacher,
        "loss": loss / label_variance(distribution),
        "certified": float(drawn.certified and best.certified),
    }
