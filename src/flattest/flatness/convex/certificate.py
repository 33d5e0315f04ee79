"""The dual of the cone program, and what proves a lower bound.

Primal: min Σ_{P,±} ρ_P ‖h_P‖ subject to Σ_P (h_{P,+} − h_{P,−}) = t, h_P in the cone
K_P = {σ(R v) : v in the closure of the open cell P}, on which σ is linear. Dual: max λ·t subject to
|λ·h| ≤ ρ_P ‖h‖ for every P and h in K_P. Weak duality: λ·t = Σ ±λ·h_P ≤ Σ ρ_P ‖h_P‖.

*One cell, proven.* A cell is the hull of its rays z_j, so that h in K_P is Σ c_j h_j, c ≥ 0, with
h_j = σ(R z_j). For any vector q,
  λ·h = q·h + Σ c_j (λ − q)·h_j ≤ ‖q‖ ‖h‖ + θ Σ c_j ‖h_j‖₁,  θ = max_j [(λ − q)·h_j]₊ / ‖h_j‖₁.
On one cell each coordinate of h has one sign, so Σ c_j ‖h_j‖₁ = ‖h‖₁ ≤ √k ‖h‖, and
  λ·h ≤ (‖q‖ + √k θ) ‖h‖.
The best q is the projection of λ on K_P (Moreau: then λ − q is in the polar cone and θ = 0), a
problem of nonnegative least squares over the rays. Whatever q the solver returns, the inequality
holds for it; only its tightness depends on the solver. The steepness of λ on the cell is the bound
over ρ_P; where the largest over all cells and both signs is η, λ/η is feasible and λ·t/η is a lower
bound. A cheaper q for most cells: λ where it has the sign of h, 0 elsewhere (θ = 0 again).

The sum is in float64. k products of numbers of order one are rounded by less than k·1e-15, which is
added to every steepness.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from flattest.flatness.convex.cells import Arrangement, arrangement
from flattest.flatness.convex.rows import Rows

SIGNS = (1.0, -1.0)
VIOLATION = 1e-7


class Patterns(NamedTuple):
    """The live open cells of the rows' arrangement: σ′ (c, k) and ρ (c,) on each, and the outputs
    σ(R z) (m, k) on all rays. A cell on which σ′ is 0 at all rows is dead: it is left out."""

    rows: Rows
    found: Arrangement
    slopes: np.ndarray
    rho: np.ndarray
    outputs: np.ndarray
    live: np.ndarray

    def on_rays(self, p: int) -> np.ndarray:
        """σ(R z) on the rays of cell p, a row each."""
        return self.outputs[self.found.rays_of(p)]


def patterns(rows: Rows) -> Patterns:
    """All of them."""
    found = arrangement(rows.R)
    slopes = np.where(found.cells, rows.slopes[1], rows.slopes[0])
    rho = np.sqrt(slopes**2 @ rows.lengths**2)
    # What is 0 on a ray must not be rounding: no multiple of it adds to an output.
    outputs = np.where(found.signs == 0, 0.0, rows.outputs(found.rays))
    return Patterns(rows, found, slopes, rho, outputs, np.flatnonzero(rho > 0))


class Steepness(NamedTuple):
    """For both signs (a row each) and the live cells (a column each): a proven bound on
    max ±λ·h/(ρ ‖h‖) over the cell."""

    dual: np.ndarray
    bound: np.ndarray

    @property
    def largest(self) -> float:
        return float(self.bound.max())


def simple_steepness(of: Patterns, dual: np.ndarray) -> Steepness:
    """With the cheap q: λ where it has the sign of h, 0 elsewhere."""
    signs = np.where(of.found.cells[of.live], 1.0, -1.0) * np.sign(of.slopes[of.live])
    q = [np.maximum(sign * dual * signs, 0) for sign in SIGNS]
    return Steepness(dual, np.linalg.norm(q, axis=2) / of.rho[of.live] + len(dual) * 1e-15)


def steepness(
    of: Patterns,
    dual: np.ndarray,
    enough: float = 1.0,
    known: Steepness | None = None,
    violations: float = np.inf,
) -> Steepness:
    """A proven steepness on every cell, no nearer than needed where it is ≤ `enough`.

    From what is known of another dual λ₀ it follows that the steepness of λ is at most that of λ₀
    plus ‖λ − λ₀‖/ρ. The search ends early once `violations` of 1 are found.
    """
    bound = simple_steepness(of, dual).bound
    if known is not None:
        moved = np.linalg.norm(dual - known.dual) / of.rho[of.live]
        bound = np.minimum(bound, known.bound + moved)
    order = np.argsort(-bound, axis=None)
    found = 0
    for row, column in zip(*np.unravel_index(order, bound.shape), strict=True):
        if bound[row, column] <= enough or found >= violations:
            break
        nearer = _on_cell(of, of.live[column], SIGNS[row] * dual) + len(dual) * 1e-15
        bound[row, column] = min(bound[row, column], nearer)
        found += bound[row, column] > 1 + VIOLATION
    return Steepness(dual, bound)


def _on_cell(of: Patterns, p: int, dual: np.ndarray) -> float:
    """(‖q‖ + √k θ)/ρ with q the projection of λ on K_P."""
    h = of.on_rays(p)
    q = project(h, dual) @ h
    sizes = np.abs(h).sum(axis=1)
    excess = np.maximum(h @ (dual - q), 0)[sizes > 0] / sizes[sizes > 0]
    return float((np.linalg.norm(q) + np.sqrt(len(dual)) * excess.max(initial=0)) / of.rho[p])


def project(generators: np.ndarray, target: np.ndarray) -> np.ndarray:
    """c ≥ 0 with Σ c_j generators_j nearest to the target; of rays that repeat, one is enough."""
    from scipy.optimize import nnls  # slow to import

    c, used = np.zeros(len(generators)), generators.any(axis=1)
    # Too many iterations: any c ≥ 0 is valid, only less tight.
    with suppress(RuntimeError):
        if used.any():
            c[used] = nnls(generators[used].T, target)[0]
    return c


def shortest(h: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The shortest q with h q ≥ g (Lawson and Hanson, chapter 23)."""
    if (g <= 0).all():
        return np.zeros(h.shape[1])
    E, f = np.column_stack([h, g]), np.append(np.zeros(h.shape[1]), 1.0)
    r = project(E, f) @ E - f
    return -r[:-1] / r[-1] if r[-1] else r[:-1]
