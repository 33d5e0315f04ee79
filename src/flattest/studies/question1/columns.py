"""Column generation against all activation patterns: how far its proof reaches.

Up to 50 000 patterns the least trace is found by enumeration, too, and the dual of column
generation is checked on every pattern. `Listed` does the latter alone, where there are more.
Patterns are listed by adding one row after the other (their number is known). On the thousand on
which it is steepest the dual is checked again by SciPy's least squares, which share no code with
branch and bound.
"""

from collections.abc import Mapping
from time import process_time
from typing import Any

import numpy as np

import flattest as ft
from flattest.errors import FlattestError
from flattest.experiments.experiment import Computed

AT_ONCE = 10_000
AGAIN = 1000
RIDGE = 1e-7


class Columns(Computed, frozen=True, tag="question1/columns"):
    """Normal inputs and labels without bias: the number of `patterns`, the `nodes` of branch and
    bound and the `gap` of column generation, `seconds` of processor time; `differs`, its least
    trace over that of enumeration − 1, and `over`, by how much the dual is too steep on any
    pattern, where these can be enumerated."""

    d: int
    n: int
    nodes: int = 100_000

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.flatness.convex.cells import can_enumerate, most_cells
        from flattest.flatness.convex.certificate import patterns
        from flattest.flatness.convex.columns import solve_by_columns
        from flattest.flatness.convex.program import solve

        rows, count = _rows(self.n, self.d, seed), most_cells(self.n, self.d)
        start = process_time()
        found = solve_by_columns(rows, self.nodes)
        spent, differs, over = process_time() - start, np.nan, np.nan
        if can_enumerate(self.n, self.d):
            differs = found.value / solve(patterns(rows)).value - 1
            over = steepest(rows, found.dual, every_cell(rows.R)) - 1
        numbers = {
            "patterns": count,
            "nodes": found.nodes,
            "gap": found.gap,
            "differs": differs,
            "over": over,
            "seconds": spent,
        }
        return {name: np.array([value], float) for name, value in numbers.items()}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values.item()) for name, values in series.items()}


class Listed(Computed, frozen=True, tag="question1/listed"):
    """The number of `patterns`, all listed, and `over`, by how much the dual of column generation
    is too steep on any of them: λ·t/(1 + over) is proven by this list alone; its `gap`."""

    d: int
    n: int

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.flatness.convex.columns import solve_by_columns

        rows = _rows(self.n, self.d, seed)
        found, cells = solve_by_columns(rows), every_cell(rows.R)
        numbers = {
            "patterns": len(cells),
            "over": steepest(rows, found.dual, cells) - 1,
            "gap": found.gap,
        }
        return {name: np.array([value], float) for name, value in numbers.items()}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values.item()) for name, values in series.items()}


def _rows(n: int, d: int, seed: int):
    """Of normal inputs and labels, without bias."""
    from flattest.flatness.convex.rows import rows_of

    rng = np.random.default_rng(seed)
    return rows_of(ft.MLP(1), ft.Dataset(rng.normal(size=(n, d)), rng.normal(size=n)))


def every_cell(R: np.ndarray) -> np.ndarray:
    """The open cells of rows in general position, ±1 per row: those of the first rows, each divided
    by the next one where both sides have points. Their number must be Schläfli's."""
    from flattest.flatness.convex.cells import most_cells
    from flattest.flatness.convex.nodes import has_interior

    cells = np.zeros((1, len(R)), np.int8)
    for h in range(len(R)):
        above, below = cells.copy(), cells.copy()
        above[:, h], below[:, h] = 1, -1
        is_above = np.array([has_interior(R, sides) for sides in above])
        # A cell that has no points above the next hyperplane has some below it.
        is_below = np.array(
            [not up or has_interior(R, sides) for up, sides in zip(is_above, below, strict=True)]
        )
        cells = np.vstack([above[is_above], below[is_below]])
    if len(cells) != most_cells(*R.shape):
        raise FlattestError("The rows are not in general position, or cells were missed.")
    return cells


def steepest(rows, dual: np.ndarray, cells: np.ndarray) -> float:
    """The largest steepness of λ, proven on each of the cells, and at least 1 (ReLU)."""
    from flattest.flatness.convex.certificate import SIGNS
    from flattest.flatness.convex.nodes import look
    from flattest.flatness.convex.pricing import reach

    K, largest = reach(rows), 1.0
    for sign in SIGNS:
        of = rows.R, rows.lengths, rows.slopes, sign * dual
        bound = np.concatenate(
            [
                look(*of, cells[first : first + AT_ONCE], K, 1.0)[0]
                for first in range(0, len(cells), AT_ONCE)
            ]
        )
        again = [_on_cell(rows, sign * dual, cells[i], K) for i in np.argsort(-bound)[:AGAIN]]
        largest = max(largest, bound.max(), *again)
    return float(largest)


def _on_cell(rows, dual: np.ndarray, cell: np.ndarray, K: float) -> float:
    """(‖q‖ + K ‖e‖)/ρ with q near the projection of λ on the cell's outputs, as in `pricing`."""
    from scipy.optimize import nnls

    if not (cell > 0).any():
        return 0.0
    A, W, a = rows.R[cell > 0], cell[:, None] * rows.R, dual[cell > 0]
    T = np.asarray(np.linalg.qr(np.vstack([A, RIDGE * np.eye(A.shape[1])]), mode="r"))
    M, v, steep = np.linalg.solve(T.T, W.T), np.zeros(A.shape[1]), np.inf
    rho = np.linalg.norm(rows.lengths[cell > 0])
    for _ in range(2):
        start = np.linalg.solve(T.T, a @ A + RIDGE**2 * v)
        mu = nnls(M, -start)[0]
        v = np.linalg.solve(T, start + M @ mu)
        e = (A @ v - a) @ A - mu @ W
        proven = (np.linalg.norm(A @ v) + K * np.linalg.norm(e)) / rho
        steep = min(steep, float(proven))
        if steep <= 1:
            break
    return steep
