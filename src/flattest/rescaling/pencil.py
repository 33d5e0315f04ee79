"""min over s ∈ R^k of λ_max(F + Σ_i e^{c s_i} U_i + e^{−s_i} D_i), with its dual certificate.

The objective is convex: each matrix is positive semidefinite and its factor convex in s. By the
minimax theorem its minimum is the maximum over density matrices Z (Z ⪰ 0, tr Z = 1) of

    D(Z) = ⟨F, Z⟩ + (c + 1) c^{−c/(c+1)} Σ_i ⟨U_i, Z⟩^{1/(c+1)} ⟨D_i, Z⟩^{c/(c+1)},

which for c = 1 and Z = uuᵀ is (S88) of mulayoff2021. One vector u suffices only where the top
eigenvalue is simple at the optimum; the minimum of a largest eigenvalue is typically multiple, and
then Z is a convex combination of the eigenvectors' projections.

Where the optimum is simple, alternating between u and the s that balances every neuron for uuᵀ
finds it in a few steps. Otherwise the solver follows the central path of the log-barrier,
min τ − μ log det(τI − A(s)). There Z = μ(τI − A)^{-1} is a density matrix and τ − D(Z) = nμ. Every
iterate of either phase brings its own certificate, valid however far from the optimum it is.
"""

from dataclasses import dataclass

import numpy as np

from flattest.machine import later

linalg = later("scipy.linalg")

TARGET_GAP = 1e-8
ALTERNATIONS = 12
SHRINK = 0.01
CENTERED = 1e-2
MAX_NEWTON = 40


@dataclass(frozen=True)
class Pencil:
    """The pencil F (n, n), U (k, n, n), D (k, n, n) and the degree c of the growing part."""

    fixed: np.ndarray
    up: np.ndarray
    down: np.ndarray
    power: float = 1.0

    def matrix(self, s: np.ndarray) -> np.ndarray:
        """A(s) = F + Σ_i e^{c s_i} U_i + e^{−s_i} D_i."""
        # Flat matrices: tensordot takes twice as long at these sizes.
        k, n, _ = self.up.shape
        grown = np.exp(self.power * s) @ self.up.reshape(k, n * n)
        shrunk = np.exp(-s) @ self.down.reshape(k, n * n)
        return self.fixed + (grown + shrunk).reshape(n, n)

    def value(self, s: np.ndarray) -> float:
        """λ_max(A(s))."""
        return float(np.linalg.eigvalsh(self.matrix(s))[-1])

    def inner(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(⟨U_i, Z⟩, ⟨D_i, Z⟩), clipped at 0 against rounding."""
        flat, shape = Z.reshape(-1), (len(self.up), Z.size)
        up, down = self.up.reshape(shape) @ flat, self.down.reshape(shape) @ flat
        return np.maximum(up, 0), np.maximum(down, 0)

    def dual_value(self, Z: np.ndarray) -> float:
        """D(Z), a lower bound on the minimum for every density matrix Z."""
        c = self.power
        up, down = self.inner(Z)
        factor = (c + 1) * c ** (-c / (c + 1))
        product = up ** (1 / (c + 1)) * down ** (c / (c + 1))
        return float((self.fixed * Z).sum() + factor * product.sum())

    def balance(self, Z: np.ndarray) -> np.ndarray:
        """argmin over s of ⟨A(s), Z⟩: e^{(c+1) s_i} = ⟨D_i, Z⟩ / (c ⟨U_i, Z⟩)."""
        up, down = self.inner(Z)
        return np.log(down / (self.power * up)) / (self.power + 1)


@dataclass(frozen=True)
class Solution:
    """The minimizer s with its value λ_max(A(s)), and a density matrix Z with its dual value."""

    s: np.ndarray
    value: float
    density: np.ndarray
    dual: float
    steps: int

    @property
    def gap(self) -> float:
        """value / dual − 1 ≥ 0: how far, relatively, the value can be from the minimum."""
        return self.value / self.dual - 1 if self.dual else self.value

    def improved(self, problem: Pencil, s, Z, steps: int) -> "Solution":
        """The better of the old and new s, and of the old and new Z."""
        value, dual = problem.value(s), problem.dual_value(Z)
        s, value = (s, value) if value < self.value else (self.s, self.value)
        Z, dual = (Z, dual) if dual > self.dual else (self.density, self.dual)
        return Solution(s, value, Z, dual, self.steps + steps)


def minimize_top_eigenvalue(problem: Pencil, target_gap: float = TARGET_GAP) -> Solution:
    """The minimizer, to a relative duality gap of at most `target_gap`.

    Every U_i and D_i must be nonzero, or the minimum may not be attained.
    """
    n = len(problem.fixed)
    Z = np.eye(n) / n
    s = problem.balance(Z)
    start = Solution(s, problem.value(s), Z, problem.dual_value(Z), 0)
    simple = _alternate(problem, start, target_gap)
    return simple if simple.gap <= target_gap else _follow_path(problem, start, simple, target_gap)


def _alternate(problem: Pencil, best: Solution, target_gap: float) -> Solution:
    """u ← top eigenvector of A(s), s ← what balances every neuron for uuᵀ."""
    s, n = best.s, len(problem.fixed)
    for _ in range(ALTERNATIONS):
        u = np.linalg.eigh(problem.matrix(s))[1][:, -1]
        Z = np.outer(u, u)
        # The trace of identity keeps a neuron that u does not see from an undefined balance.
        s = problem.balance(Z + 1e-14 * np.eye(n))
        best = best.improved(problem, s, Z, 1)
        if best.gap <= target_gap:
            break
    return best


def _follow_path(problem: Pencil, start: Solution, best: Solution, target_gap: float) -> Solution:
    """From `start`: the alternation's s swings far where the optimum is multiple."""
    n, s, top = len(problem.fixed), start.s, start.value
    tau, mu = 1.5 * top, 0.5 * top / n
    while best.gap > target_gap and mu * n > 1e-3 * target_gap * top:
        s, tau, Z, steps = _center(problem, s, tau, mu)
        best = best.improved(problem, s, Z, steps)
        mu *= SHRINK
    return best


def _center(problem: Pencil, s, tau: float, mu: float):
    """Newton's method with backtracking on Ψ(s, τ) = τ/μ − log det(τI − A(s))."""
    psi, M = _barrier(problem, s, tau, mu)
    steps, decrement = 0, np.inf
    while decrement >= CENTERED and steps < MAX_NEWTON:
        gradient, hessian = _derivatives(problem, s, M, mu)
        step = -linalg.cho_solve(
            linalg.cho_factor(hessian, check_finite=False), gradient, check_finite=False
        )
        decrement = -gradient @ step
        s, tau, psi, M = _backtrack(problem, s, tau, mu, psi, step, decrement, M)
        steps += 1
    return s, tau, M / np.trace(M), steps


def _barrier(problem: Pencil, s, tau: float, mu: float):
    """Ψ and M = (τI − A)^{-1}; Ψ = ∞ where τI − A is not positive definite."""
    slack = tau * np.eye(len(problem.fixed)) - problem.matrix(s)
    values, vectors = np.linalg.eigh(slack)
    if values[0] <= 0:
        return np.inf, None
    return tau / mu - np.log(values).sum(), (vectors / values) @ vectors.T


def _derivatives(problem: Pencil, s, M, mu: float):
    """Gradient and Hessian of Ψ in (s, τ), from A_i = ∂A/∂s_i and ∂²A/∂s_i² = P_i.

    ∂_i = ⟨M, A_i⟩, ∂_i∂_j = ⟨M A_i, A_j M⟩ + δ_ij ⟨M, P_i⟩, ∂_τ = 1/μ − tr M,
    ∂_i∂_τ = −⟨M², A_i⟩, ∂_τ² = tr M².
    """
    c = problem.power
    grown = c * np.exp(c * s)[:, None, None] * problem.up
    shrunk = np.exp(-s)[:, None, None] * problem.down
    k, n, _ = problem.up.shape
    A_i, P_i = (part.reshape(k, n * n) for part in (grown - shrunk, c * grown + shrunk))
    MA_i = M @ (grown - shrunk)
    back = np.swapaxes(MA_i, 1, 2).reshape(k, n * n)
    gradient = np.append(A_i @ M.reshape(-1), 1 / mu - np.trace(M))
    hessian = np.empty((k + 1, k + 1))
    hessian[:k, :k] = MA_i.reshape(k, n * n) @ back.T + np.diag(P_i @ M.reshape(-1))
    hessian[:k, k] = hessian[k, :k] = -A_i @ (M @ M).reshape(-1)
    hessian[k, k] = (M * M).sum()
    return gradient, hessian


def _backtrack(problem: Pencil, s, tau, mu, psi, step, decrement, M):
    for length in 0.5 ** np.arange(34):
        s_new, tau_new = s + length * step[:-1], tau + length * step[-1]
        psi_new, M_new = _barrier(problem, s_new, tau_new, mu)
        if psi_new <= psi - 1e-4 * length * decrement:
            return s_new, tau_new, psi_new, M_new
    return s, tau, psi, M
