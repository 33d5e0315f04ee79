"""The open cells of a central arrangement of hyperplanes, all of them, with their rays.

Rows r_1, …, r_k that span R^D cut the space of w into open cells: the sets on which the signs of
r_h·w are constant and none is 0. The closure of a cell is a polyhedral cone that contains no line
(a line would be orthogonal to all rows), so that it is the hull of its *rays*, and a ray is a
half-line on which D − 1 independent rows vanish. Hence:

- all rays are ± the null vectors of the independent (D − 1)-subsets of the rows;
- every cell touches a ray z, and near z its signs are those of r_h·z where that is not 0; on the
  rows T that vanish on z they are a cell of the arrangement of T in the D − 1 dimensions across z
  (rows of T only, which span them). All such combinations occur.

So cells are enumerated by recursion on the dimension, without sampling and in any position: in
general position T has D − 1 rows and all 2^{D−1} signs occur; on the cube T is often larger.
In general position there are 2 Σ_{i<D} C(k−1, i) cells (Schläfli), otherwise fewer.
"""

from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError

MOST_CELLS = 50_000
MOST_SUBSETS = 500_000
ROUNDING = 1e-14
DEPENDENT = 1e-10
# A product this many times its rounding error is not 0.
CLEAR = 1000.0


class Arrangement(NamedTuple):
    """Unit rays (m, D), the signs −1, 0, 1 of r_h·z on them (m, k), and cells (c, k): True where
    r_h·w > 0. Cell p has the rays `incident[start[p] : start[p + 1]]`."""

    rays: np.ndarray
    signs: np.ndarray
    cells: np.ndarray
    incident: np.ndarray
    start: np.ndarray

    def rays_of(self, p: int) -> np.ndarray:
        """Indices of the rays of cell p."""
        return self.incident[self.start[p] : self.start[p + 1]]

    def interior(self) -> np.ndarray:
        """A point of each open cell: the sum of its rays, at unit length."""
        w = np.add.reduceat(self.rays[self.incident], self.start[:-1], axis=0)
        return w / np.linalg.norm(w, axis=1, keepdims=True)


def most_cells(k: int, D: int) -> int:
    """2 Σ_{i<D} C(k − 1, i): the number of cells of k rows in general position."""
    return 2 * sum(comb(k - 1, i) for i in range(D))


def can_enumerate(k: int, D: int, limit: int = MOST_CELLS) -> bool:
    return most_cells(k, D) <= limit and comb(k, D - 1) <= MOST_SUBSETS


def arrangement(R: np.ndarray) -> Arrangement:
    """All open cells of the rows of R (k, D), which span R^D, and all rays."""
    Z = R / np.linalg.norm(R, axis=1, keepdims=True)
    half, signs = _rays(Z)
    rays, signs = np.vstack([half, -half]), np.vstack([signs, -signs])
    # Cells near z and near −z look alike across it.
    across = [_signs_across(Z, z, sign == 0) for z, sign in zip(half, signs, strict=False)]
    across += across
    counts = np.array([len(near) for near in across])
    owner = np.repeat(np.arange(len(rays)), counts)
    touching = signs[owner] > 0
    tight = signs == 0
    for i, (near, last) in enumerate(zip(across, np.cumsum(counts), strict=True)):
        touching[last - len(near) : last, tight[i]] = near
    cells, inverse = _unique(touching)
    found = Arrangement(
        rays,
        signs,
        cells,
        owner[np.argsort(inverse, kind="stable")],
        np.concatenate([[0], np.cumsum(np.bincount(inverse))]),
    )
    _check(found, Z, generic=bool((tight.sum(axis=1) == R.shape[1] - 1).all()))
    return found


def _rays(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One of each pair ±z of rays, and the signs of the rows on it: −1, 0, 1."""
    k, D = Z.shape
    if D == 1:
        return np.ones((1, 1)), np.sign(Z).T
    subsets = np.array(list(combinations(range(k), D - 1)))
    _, sizes, vectors = np.linalg.svd(Z[subsets], full_matrices=True)
    independent = sizes[:, -1] > DEPENDENT
    z, error = vectors[independent, -1], ROUNDING / sizes[independent, -1:]
    products = z @ Z.T
    zero = np.abs(products) <= error
    if (~zero & (np.abs(products) <= CLEAR * error)).any():
        raise FlattestError(
            "Some inputs are so nearly dependent that float64 cannot tell on which side of a "
            "hyperplane they lie; move or remove near-duplicate inputs."
        )
    signs = np.where(zero, 0, np.sign(products)).astype(np.int8)
    # Subsets that vanish on the same line found it several times.
    _, first = np.unique(np.packbits(zero, axis=1), axis=0, return_index=True)
    return z[first], signs[first]


def _signs_across(Z: np.ndarray, z: np.ndarray, tight: np.ndarray) -> np.ndarray:
    """The cells of the rows that vanish on z, in the D − 1 dimensions across it."""
    count, D = int(tight.sum()), len(z)
    if count == D - 1:
        bits = np.arange(2**count)[:, None] >> np.arange(count)
        return (bits & 1).astype(bool)
    across = np.linalg.svd(z[None])[2][1:].T
    return arrangement(Z[tight] @ across).cells


def _unique(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rows of a Boolean matrix and where each is among them."""
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    keys = packed.view(f"V{packed.shape[1]}").ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], inverse.ravel()


def _check(found: Arrangement, Z: np.ndarray, generic: bool) -> None:
    """Every cell has a point with its signs, and in general position their number is known."""
    k, D = Z.shape
    right = ((found.interior() @ Z.T > 0) == found.cells).all()
    if not right or (generic and len(found.cells) != most_cells(k, D)):
        raise FlattestError(
            "The cells of the inputs' arrangement could not be enumerated in float64; move or "
            "remove near-duplicate inputs."
        )
