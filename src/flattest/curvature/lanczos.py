"""Lanczos with full orthogonalization: largest eigenpairs, and quadrature for the spectrum."""

from collections.abc import Callable

import numpy as np

from flattest.curvature.progress import progress
from flattest.curvature.result import Interrupted
from flattest.errors import FlattestError

# Maps rows v to rows Hv.
Matmat = Callable[[np.ndarray], np.ndarray]

# Below this the next direction is rounding error: the basis spans an invariant subspace.
_BREAKDOWN = 1e-13
# A residual smaller than this, relatively, is rounding error.
_LEAST_TOLERANCE = 1e-14


# Entries of a basis: 1 GB. Where that is fewer vectors, more restarts take their place.
_MOST_BASIS = 2**27


class Krylov:
    """An orthonormal basis Q (rows) of a block Krylov space of H, with T = Q H Qᵀ.

    `step` multiplies the newest directions, as many as there were starts, by H. Every new one
    is orthogonalized against all others, so that T keeps its accuracy and a restart needs no
    special case. `size` directions have been multiplied; those after them are next.
    """

    def __init__(self, matmat: Matmat, starts: np.ndarray, room: int, rng: np.random.Generator):
        self.matmat, self.rng = matmat, rng
        self.block = min(starts.shape)
        self.Q = np.empty((room + self.block, starts.shape[1]))
        self.T = np.zeros((len(self.Q), room))
        self.size = self.filled = 0
        for start in starts[: self.block]:
            self._append(start / np.linalg.norm(start))

    @property
    def full(self) -> bool:
        """Whether there is no room for another step."""
        return self.complete or self.filled > self.T.shape[1]

    @property
    def complete(self) -> bool:
        """Whether Q spans the whole space."""
        return self.size == self.Q.shape[1]

    @property
    def exhausted(self) -> bool:
        """Whether the directions that were multiplied span an invariant subspace."""
        return not self.T[self.size : self.filled, : self.size].any()

    def step(self) -> None:
        """Extends T by the newest directions and finds the next ones."""
        first, last = self.size, self.filled
        for j, product in enumerate(self.matmat(self.Q[first:last]), start=first):
            self.size = j + 1
            self.T[: self.filled, j] = self._append(product, np.linalg.norm(product))

    def _append(self, w: np.ndarray, before: np.floating | float = 1.0) -> np.ndarray:
        """Adds the direction of w across Q, and returns w's coordinates in Q."""
        w = np.array(w)
        c = self._orthogonalize(w)
        if np.linalg.norm(w) < 0.5 * before:
            c += self._orthogonalize(w)
        left = float(np.linalg.norm(w))
        if left <= _BREAKDOWN * max(before, np.abs(self.T).max()):
            left, w = 0.0, self._fresh_direction()
        if self.filled < self.Q.shape[1]:
            self.Q[self.filled] = w / np.linalg.norm(w)
            self.filled += 1
            c = np.append(c, left)
        return c

    def _orthogonalize(self, w: np.ndarray) -> np.ndarray:
        basis = self.Q[: self.filled]
        c = basis @ w
        w -= c @ basis
        return c

    def _fresh_direction(self) -> np.ndarray:
        w = self.rng.normal(size=self.Q.shape[1])
        for _ in range(2):
            self._orthogonalize(w)
        return w

    def ritz(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ritz values in descending order, their coordinates (columns) and residual norms."""
        inner = self.T[: self.size, : self.size]
        values, S = np.linalg.eigh(np.triu(inner) + np.triu(inner, 1).T)
        residuals = np.linalg.norm(self.T[self.size : self.filled, : self.size] @ S, axis=0)
        return values[::-1], S[:, ::-1], residuals[::-1]

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k largest Ritz values and their vectors (rows)."""
        values, S, _ = self.ritz()
        return values[:k].copy(), S[:, :k].T @ self.Q[: self.size]

    def restart(self, keep: int) -> None:
        """Thick restart: the `keep` top Ritz vectors and the newest directions stay."""
        values, S, _ = self.ritz()
        newest = self.Q[self.size : self.filled].copy()
        coupling = self.T[self.size : self.filled, : self.size] @ S[:, :keep]
        self.Q[:keep] = S[:, :keep].T @ self.Q[: self.size]
        self.Q[keep : keep + len(newest)] = newest
        self.T[:] = 0
        self.T[range(keep), range(keep)] = values[:keep]
        self.T[keep : keep + len(newest), :keep] = coupling
        self.size, self.filled = keep, keep + len(newest)


def top_eigenpairs(
    matmat: Matmat,
    starts: np.ndarray,
    k: int,
    tol: float,
    rng: np.random.Generator,
    most_products: int = 5000,
) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues of a symmetric H and unit eigenvectors (rows).

    A block Krylov space holds as many eigenvectors of a repeated eigenvalue as there are starts,
    so for k > 1 the pairs found are deflated and the largest eigenvalue of the rest is looked at,
    until it is not among the top k.
    """
    values, vectors = _from_starts(matmat, starts, k, tol, rng, most_products)
    try:
        return _none_missed(matmat, starts, values, vectors, tol, rng, most_products)
    except KeyboardInterrupt:
        raise Interrupted((values, vectors)) from None


def _none_missed(matmat, starts, values, vectors, tol, rng, most_products):
    k = len(values)
    while 1 < k < starts.shape[1]:
        floor = values[-1] - np.abs(values).max()
        deflated = _deflated(matmat, values - floor, vectors)
        fresh = rng.normal(size=starts.shape)
        missed, vector = _from_starts(deflated, fresh, 1, tol, rng, most_products)
        if missed[0] <= values[-1] + tol * np.abs(values).max():
            break
        order = np.argsort(-np.append(values, missed))[:k]
        values = np.append(values, missed)[order]
        vectors = np.vstack([vectors, vector])[order]
    return values, vectors


def _deflated(matmat: Matmat, shifts: np.ndarray, vectors: np.ndarray) -> Matmat:
    """H − Σ_i shift_i v_i v_iᵀ."""
    return lambda rows: matmat(rows) - (shifts * (rows @ vectors.T)) @ vectors


def _from_starts(matmat, starts, k, tol, rng, most_products):
    """Thick-restart Lanczos. Stops when each of the k largest Ritz values has a residual norm
    ≤ tol · max |θ|: then there is an eigenvalue within that (Parlett 1998, theorem 4.5.1). That the
    error is smaller, by the gap to the next eigenvalue, is not proven: it may not have shown."""
    space = Krylov(matmat, starts, basis_room(starts.shape[1], k), rng)
    tol = max(tol, _LEAST_TOLERANCE)
    try:
        with progress("products with ∇²L for its largest eigenvalues") as done:
            for step in range(most_products // space.block):
                space.step()
                done(space.block)
                # Small eigenproblems are not free: look at every step only while there are few.
                if space.size < k or (space.size > 16 and step % 2 and not space.full):
                    continue
                values, S, residuals = space.ritz()
                if space.complete or residuals[:k].max() <= tol * np.abs(values).max():
                    return space.top(k)
                if space.full:
                    room = space.T.shape[1]
                    space.restart(keep=min(k + 12, max(k, room // 2), room - space.block))
    except KeyboardInterrupt:
        if space.size < k:
            raise
        raise Interrupted(space.top(k)) from None
    raise FlattestError(
        f"Lanczos did not reach tol = {tol:g} in {most_products} products; take a larger tol."
    )


def basis_room(size: int, k: int) -> int:
    """Vectors of a basis for k eigenvectors: 48 or more, as long as they fit into 1 GB; at least as
    many as k and a few to go on from."""
    return min(size, max(48, 3 * k + 16), max(k + 8, _MOST_BASIS // size))


def quadrature(
    matmat: Matmat, start: np.ndarray, steps: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss quadrature of the spectral measure of `start`: nodes and weights that sum to 1.

    Where the basis would take more than 1 GB, each direction is orthogonalized against the two
    before only (Lanczos 1950). Nodes may then repeat; their weights together are those of the
    eigenvalue that they stand for (Greenbaum 1989), so that means stay what they are.
    """
    steps = min(steps, start.size)
    if (steps + 1) * start.size > _MOST_BASIS:
        return short_recurrence(matmat, start, steps)
    space = Krylov(matmat, start[None], steps, rng)
    while not space.full:
        space.step()
        if space.exhausted:
            break
    values, S, _ = space.ritz()
    return values, S[0] ** 2


def short_recurrence(
    matmat: Matmat, start: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same quadrature from three vectors: H q_j = β_{j−1} q_{j−1} + α_j q_j + β_j q_{j+1}."""
    q, before = start / np.linalg.norm(start), np.zeros_like(start)
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(steps):
        w = matmat(q[None])[0] - (betas[-1] * before if betas else 0.0)
        alphas.append(float(q @ w))
        w -= alphas[-1] * q
        betas.append(float(np.linalg.norm(w)))
        if betas[-1] <= _BREAKDOWN * max(map(abs, alphas)):
            break
        before, q = q, w / betas[-1]
    T = np.diag(alphas) + np.diag(betas[: len(alphas) - 1], 1)
    values, S = np.linalg.eigh(T + np.triu(T, 1).T)
    return values, S[0] ** 2
