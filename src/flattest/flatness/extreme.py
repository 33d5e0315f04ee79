"""Extreme points: which inputs are vertices of their convex hull, and what separates them."""

from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.bounds import targets
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.losses import Loss, loss as resolve_loss

EASY_MARGIN = 1e-3
LEAST_MARGIN = 1e-12
PROGRAM_TOLERANCE = 1e-6


class Separation(NamedTuple):
    """Unit vectors w_i (rows of `w`) and margin_i = min_{j≠i} w_i·(x_i − x_j) > 0."""

    w: np.ndarray
    margin: np.ndarray


def separate(x: np.ndarray, names: np.ndarray | None = None) -> Separation:
    """w_i with w_i·x_i > w_i·x_j for all j ≠ i, which exist exactly for a set of extreme points
    (wen2023, Definition 4.1). Raises for the first row that is not extreme, by its name.

    Distinct points of {−1, 1}^d have w_i = x_i/√d, with its margin 2/√d to all other points of the
    hypercube, given or not. Otherwise directions that often do are tried first: x_i itself (inputs
    on a sphere), x_i minus the mean, and the same for whitened inputs (inputs on an ellipsoid). A
    linear program decides the rest.
    """
    x = np.asarray(x, float)
    n, d = x.shape
    if np.isin(x, [-1.0, 1.0]).all() and len(np.unique(x, axis=0)) == n:
        return Separation(x / np.sqrt(d), np.full(n, 2 / np.sqrt(d)))
    if n == 1:
        return Separation(np.eye(1, d), np.ones(1))
    w, margin = _likely_separation(x)
    scale = np.linalg.norm(x - x.mean(axis=0), axis=1).max()
    for i in np.flatnonzero(margin <= EASY_MARGIN * scale):
        direction, found = widest_separation(x, int(i))
        if found > margin[i]:
            w[i], margin[i] = direction, found
        if margin[i] <= LEAST_MARGIN * scale:
            name = i if names is None else names[i]
            raise FlattestError(
                f"Input x[{name}] lies in the convex hull of the others, so the inputs are not a "
                "set of extreme points and no memorizer is known."
            )
    return Separation(w, margin)


def is_extreme(x: np.ndarray) -> np.ndarray:
    """For each row, whether it is a vertex of the convex hull of all rows (copies are not)."""
    x = np.asarray(x, float)
    if len(x) == 1:
        return np.ones(1, bool)
    scale = np.linalg.norm(x - x.mean(axis=0), axis=1).max()
    return np.array(
        [widest_separation(x, i)[1] > LEAST_MARGIN * scale for i in range(len(x))], bool
    )


def widest_separation(x: np.ndarray, i: int) -> tuple[np.ndarray, float]:
    """A unit vector w and its margin min_{j≠i} w·(x_i − x_j); 0 means that x_i is not extreme.

    The linear program decides to its own tolerance. A margin below that is asked for again of
    whitened inputs, whose convex hull has the same vertices and is not thin in any direction.
    """
    differences = x[i] - np.delete(x, i, axis=0)
    scale = np.abs(differences).max()
    if scale == 0:
        return np.zeros(x.shape[1]), 0.0
    w, margin = _widest(differences, _program(differences / scale, i))
    if margin > PROGRAM_TOLERANCE * scale:
        return w, margin
    stretch = _whitening(x)
    thin, thin_margin = _widest(differences, stretch @ _program(differences @ stretch, i))
    return (thin, thin_margin) if thin_margin > margin else (w, margin)


def _program(differences: np.ndarray, i: int) -> np.ndarray:
    """w of the linear program max ε s.t. w·(x_i − x_j) ≥ ε for j ≠ i, |w[k]| ≤ 1."""
    from scipy.optimize import linprog  # slow to import, and rarely needed

    others, d = differences.shape
    solution = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([-differences, np.ones(others)]),
        b_ub=np.zeros(others),
        bounds=[(-1, 1)] * d + [(0, None)],
        method="highs",
    )
    if not solution.success:
        raise FlattestError(f"The linear program for input x[{i}] failed: {solution.message}")
    return solution.x[:d]


def _widest(differences: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, float]:
    """w made a unit vector, and its margin measured anew."""
    norm = np.linalg.norm(w)
    if norm == 0:
        return w, 0.0
    return w / norm, float((differences @ (w / norm)).min())


def _whitening(x: np.ndarray) -> np.ndarray:
    """A such that the rows of x A have the identity as their covariance, (d, rank)."""
    _, sizes, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    kept = sizes > np.finfo(float).eps * max(x.shape) * sizes[0]
    return directions[kept].T * (np.sqrt(len(x)) / sizes[kept])


def _likely_separation(x: np.ndarray) -> Separation:
    """For each point the direction of the three that has the widest margin, which may be < 0."""
    points, centred = np.arange(len(x)), x - x.mean(axis=0)
    covariance = centred.T @ centred / len(x)
    w = np.stack([x, centred, centred @ np.linalg.pinv(covariance, hermitian=True)])
    norms = np.linalg.norm(w, axis=2, keepdims=True)
    w /= np.where(norms > 0, norms, 1)
    products = w @ x.T
    own = products[:, points, points]
    products[:, points, points] = -np.inf
    margins = own - products.max(axis=2)
    best = margins.argmax(axis=0), points
    return Separation(w[best], margins[best])


class Points(NamedTuple):
    """Distinct inputs and the index of each in the data."""

    x: np.ndarray
    names: np.ndarray


def distinct(x: np.ndarray, t: np.ndarray, what: str) -> tuple[Points, np.ndarray]:
    _, first, group = np.unique(x, axis=0, return_index=True, return_inverse=True)
    differs = np.flatnonzero((t != t[first[group.ravel()]]).reshape(len(t), -1).any(1))
    if len(differs):
        i, j = first[group.ravel()[differs[0]]], differs[0]
        raise FlattestError(
            f"Equal {what} have different labels (points {min(i, j)} and {max(i, j)}), so no "
            "network of this kind interpolates the data."
        )
    first = np.sort(first)
    return Points(x[first], first), t[first]


def distinct_inputs(data: Dataset, loss: str | Loss = "mse") -> tuple[Points, np.ndarray]:
    """The inputs without repetition, in order, with their targets t."""
    require_dataset(data)
    return distinct(data.x, targets(resolve_loss(loss), data.y), "inputs")
