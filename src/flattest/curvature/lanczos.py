"""Lanczos with full orthogonalization: largest eigenpairs, and quadrature for the spectrum."""

from collections.abc import Callable

import numpy as np

from flattest.errors import FlattestError

Matvec = Callable[[np.ndarray], np.ndarray]

# Below this the next direction is rounding error: the basis spans an invariant subspace.
_BREAKDOWN = 1e-13
# Another eigenvalue this near, relatively, may not have shown among few Ritz values yet.
_NEAREST = 0.01


class Krylov:
    """An orthonormal basis Q (rows) of a Krylov space of H, with T = Q H Qᵀ.

    `step` adds one product with H. Every new direction is orthogonalized against all others, so
    that T keeps its accuracy and a restart needs no special case.
    """

    def __init__(self, matvec: Matvec, start: np.ndarray, room: int, rng: np.random.Generator):
        self.matvec, self.rng = matvec, rng
        self.Q = np.empty((room + 1, start.size))
        self.T = np.zeros((room, room))
        self.size = 0
        self.coupling = 0.0
        self.Q[0] = start / np.linalg.norm(start)

    @property
    def full(self) -> bool:
        return self.size == len(self.T)

    @property
    def complete(self) -> bool:
        """Whether Q spans the whole space."""
        return self.size == self.Q.shape[1]

    def step(self) -> None:
        """Extends T by the newest direction and finds the next one."""
        j = self.size
        w = self.matvec(self.Q[j])
        before = np.linalg.norm(w)
        c = self._orthogonalize(w)
        if np.linalg.norm(w) < 0.5 * before:
            c += self._orthogonalize(w)
        self.T[: j + 1, j] = self.T[j, : j + 1] = c
        self.size = j + 1
        self.coupling = float(np.linalg.norm(w))
        if self.coupling <= _BREAKDOWN * max(before, np.abs(self.T).max()):
            self.coupling = 0.0
            w = self._fresh_direction()
        if not self.complete:
            self.Q[j + 1] = w / np.linalg.norm(w)

    def _orthogonalize(self, w: np.ndarray) -> np.ndarray:
        basis = self.Q[: self.size + 1]
        c = basis @ w
        w -= c @ basis
        return c

    def _fresh_direction(self) -> np.ndarray:
        w, basis = self.rng.normal(size=self.Q.shape[1]), self.Q[: self.size]
        for _ in range(2):
            w -= (basis @ w) @ basis
        return w

    def ritz(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ritz values in descending order, their coordinates (columns) and residual norms."""
        values, S = np.linalg.eigh(self.T[: self.size, : self.size])
        return values[::-1], S[:, ::-1], self.coupling * np.abs(S[-1, ::-1])

    def restart(self, keep: int) -> None:
        """Thick restart: the `keep` top Ritz vectors and the newest direction stay."""
        values, S, _ = self.ritz()
        newest = self.Q[self.size].copy()
        self.Q[:keep] = S[:, :keep].T @ self.Q[: self.size]
        self.Q[keep] = newest
        self.T[:] = 0
        self.T[range(keep), range(keep)] = values[:keep]
        self.size = keep


def top_eigenpairs(
    matvec: Matvec,
    start: np.ndarray,
    k: int,
    tol: float,
    rng: np.random.Generator,
    most_products: int = 5000,
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues of a symmetric H and unit eigenvectors (rows).

    A Krylov space holds one eigenvector of a repeated eigenvalue, so for k > 1 the pairs found are
    deflated and the largest eigenvalue of the rest is looked at, until it is not among the top k.
    """
    values, vectors = _from_one_start(matvec, start, k, tol, rng, most_products)
    while 1 < k < start.size:
        floor = values[-1] - np.abs(values).max()
        missed, vector = _from_one_start(
            _deflated(matvec, values - floor, vectors),
            rng.normal(size=start.size),
            1,
            tol,
            rng,
            most_products,
        )
        if missed[0] <= values[-1] + tol * np.abs(values).max():
            break
        order = np.argsort(-np.append(values, missed))[:k]
        values = np.append(values, missed)[order]
        vectors = np.vstack([vectors, vector])[order]
    return values, vectors


def _deflated(matvec: Matvec, shifts: np.ndarray, vectors: np.ndarray) -> Matvec:
    """H − Σ_i shift_i v_i v_iᵀ."""
    return lambda v: matvec(v) - (shifts * (vectors @ v)) @ vectors


def _from_one_start(matvec, start, k, tol, rng, most_products):
    """Thick-restart Lanczos. Stops when each Ritz value θ with residual norm ρ has error
    min(ρ, ρ²/gap) ≤ tol · max |θ|, the gap being that to the nearest other Ritz value but no more
    than 1 % of |θ| (Parlett 1998, theorem 11.7.1)."""
    room = min(start.size, max(48, 3 * k + 16))
    space = Krylov(matvec, start, room, rng)
    for _ in range(most_products):
        space.step()
        # Small eigenproblems are not free: look at every step only while there are few.
        if space.size < k or (space.size > 8 and space.size % 2 and not space.full):
            continue
        values, S, residuals = space.ritz()
        if space.complete or _errors(values, residuals)[:k].max() <= tol * np.abs(values).max():
            return values[:k].copy(), S[:, :k].T @ space.Q[: space.size]
        if space.full:
            space.restart(keep=min(k + 8, room - 1))
    raise FlattestError(
        f"Lanczos did not reach tol = {tol:g} in {most_products} products; take a larger tol."
    )


def _errors(values: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Estimates of |θ − λ| for each Ritz value."""
    steps = -np.diff(values)
    seen = np.minimum(np.append(steps, np.inf), np.append(np.inf, steps))
    gaps = np.minimum(seen, _NEAREST * np.abs(values)) - residuals
    return np.minimum(residuals, residuals**2 / np.maximum(gaps, residuals + 1e-300))


def quadrature(
    matvec: Matvec, start: np.ndarray, steps: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss quadrature of the spectral measure of `start`: nodes and weights that sum to 1."""
    space = Krylov(matvec, start, min(steps, start.size), rng)
    while not space.full:
        space.step()
        if space.coupling == 0:
            break
    values, S, _ = space.ritz()
    return values, S[0] ** 2
