"""The least trace by column generation: few cells, priced by local search, proven by bounds.

The cone program over some cells gives a dual λ. Neurons on which it is too steep are looked for by
local search, then by branch and bound, and their cells are added until none is found. Whatever was
found, branch and bound gives a bound η on the steepness of λ over *all* cells (`pricing`), so that
λ·t/η is proven; where it ends before its nodes run out, η is 1 up to the solver's accuracy, and
else the better of this and of the simple bound is kept.

From above: the neurons of the program are moved a little into their open cells, which a linear
program over them and over neurons that span all outputs makes fit: a differentiable network.
"""

from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.convex.pricing import (
    Neuron,
    Proof,
    face_of,
    local_search,
    prove,
    reach,
    steepest_in,
)
from flattest.flatness.convex.program import (
    FIT,
    Piece,
    active_units,
    cone_program,
    linear_program,
    newton,
)
from flattest.flatness.convex.rows import Rows
from flattest.machine import later

optimize = later("scipy.optimize")
STARTS = 400
TOPS = 40
AT_ONCE = 60
KEPT = 0.9
ROUNDS = 60
STEEP = 1e-9
USED = 1e-11
NEAR = 0.99
ACTIVE = 1e-6
OPEN = 1e-6
KINK = 1e-14


class Found(NamedTuple):
    """λ, the bound that it proves, and the units of the program: points v of closed cells (True
    where rows are above 0), signs and depths; a differentiable network Σ c σ(v·) of this `value`.

    `complete`: branch and bound came to its end. `nodes`: as many as it took.
    """

    dual: np.ndarray
    bound: float
    value: float
    v: np.ndarray
    c: np.ndarray
    attained: bool
    complete: bool
    nodes: int
    columns: int

    @property
    def gap(self) -> float:
        """Infinite where nothing is proven."""
        return self.value / self.bound - 1 if self.bound > 0 else np.inf


class Column(NamedTuple):
    cell: np.ndarray
    sign: float

    @property
    def key(self) -> tuple[bytes, float]:
        return self.cell.tobytes(), self.sign


def solve_by_columns(rows: Rows, nodes: int = 100_000, seed: int = 0) -> Found:
    """The least trace of these rows: a network, and a proven bound."""
    rng, K = np.random.default_rng(seed), reach(rows)
    chosen = _first(rows, rng)
    spent, turn, least = 0, 0, np.inf
    while True:
        solution = cone_program([_piece(rows, column) for column in chosen.values()], rows.t)
        dual, last = solution.dual, turn == ROUNDS
        starts = np.vstack([rng.normal(size=(STARTS, rows.R.shape[1])), solution.v])
        fresh = _unseen(local_search(rows, dual, starts, TOPS, 1 + STEEP), chosen)
        if not fresh or last:
            dual, proof = _proven(rows, chosen, dual, nodes, K)
            spent += proof.nodes
            fresh = _unseen(proof.found, chosen)
        if not fresh or last:
            return _finished(rows, list(chosen.values()), solution.v, dual, proof, spent, rng)
        # Where the value stands still, columns that are dropped would come back for ever.
        fell, least = dual @ rows.t < least * (1 - STEEP), min(least, dual @ rows.t)
        kept = _kept(rows, dual, chosen) if fell else chosen
        chosen = kept | {c.key: c for c in fresh[:AT_ONCE]}
        turn += 1


def _proven(rows: Rows, chosen, dual: np.ndarray, nodes: int, K: float) -> tuple[np.ndarray, Proof]:
    """λ and what is proven of its steepness: as the solver found it or, where it is too steep and
    no column is missing, sharpened, whichever has the better bound."""
    proof = prove(rows, dual, 1 + STEEP, nodes, K)
    if proof.largest <= 1 + 2 * STEEP or _unseen(proof.found, chosen):
        return dual, proof
    best = _sharpened(rows, list(chosen.values()), dual)
    better = prove(rows, best, 1 + STEEP, nodes, K)
    spent = proof.nodes + better.nodes
    if best @ rows.t / better.largest > dual @ rows.t / proof.largest or better.found:
        return best, better._replace(nodes=spent)
    return dual, proof._replace(nodes=spent)


def _sharpened(rows: Rows, columns: list[Column], dual: np.ndarray) -> np.ndarray:
    """The best λ on these columns: as it is, of the program over those near the steepest alone,
    which the solver solves more accurately, and after Newton's steps from either."""
    steep = np.array([steepest_in(rows, c.sign * dual, c.cell)[1] for c in columns])
    near = [c for c, s in zip(columns, steep, strict=True) if s >= NEAR]
    again = cone_program([_piece(rows, c) for c in near], rows.t).dual
    tried = [dual, again]
    for start in (dual, again):
        tried += [_polished(rows, near, start, below) for below in (1e-6, 1e-4, 1e-2)]

    def proven(dual: np.ndarray) -> float:
        steepest = max(steepest_in(rows, c.sign * dual, c.cell)[1] for c in columns)
        return float(dual @ rows.t) / max(1.0, steepest)

    return max(tried, key=proven)


def _polished(rows: Rows, columns: list[Column], dual: np.ndarray, below: float) -> np.ndarray:
    """λ after Newton's steps on the columns on which it is nearly steepest."""
    found = [steepest_in(rows, c.sign * dual, c.cell) for c in columns]
    least = max(steep for _, steep in found) - below
    near = [(c, v) for c, (v, steep) in zip(columns, found, strict=True) if steep >= least]
    slopes = np.array([np.where(c.cell, rows.slopes[1], rows.slopes[0]) for c, _ in near])
    h = slopes * (np.array([v for _, v in near]) @ rows.R.T)
    rho, signs = np.sqrt(slopes**2 @ rows.lengths**2), np.array([[c.sign] for c, _ in near])
    c, active = active_units(rho * np.linalg.norm(h, axis=1), signs * h, rows.t, dual)
    if not len(active):
        return dual

    def faces_at(dual: np.ndarray) -> list[np.ndarray]:
        return [face_of(rows, near[p][0].sign * dual, near[p][0].cell) for p in active]

    return newton(dual, c, rows.t, rho[active], faces_at)


def _first(rows: Rows, rng: np.random.Generator) -> dict[tuple[bytes, float], Column]:
    """Cells whose neurons span all outputs, of both signs, and those on which the dual of the
    simple bound is steep."""
    v = rng.normal(size=(4 * len(rows.t), rows.R.shape[1]))
    simple = np.sign(rows.t) * rows.lengths
    steep = local_search(rows, simple, np.vstack([v, rows.R, -rows.R]), AT_ONCE, 0.5)
    spanning = [Column(w @ rows.R.T > 0, s) for w in v for s in (1.0, -1.0)]
    columns = [*spanning, *(Column(n.cell, n.sign) for n in steep)]
    return {c.key: c for c in columns if rows.slopes[0] or c.cell.any()}


def _unseen(neurons: list[Neuron], chosen) -> list[Column]:
    steepest = sorted(neurons, key=lambda n: -n.steepness)
    columns = {c.key: c for c in (Column(n.cell, n.sign) for n in steepest)}
    return [c for key, c in columns.items() if key not in chosen]


def _kept(rows: Rows, dual: np.ndarray, chosen) -> dict[tuple[bytes, float], Column]:
    """Columns that are steep enough to matter; others may come back."""
    return {
        key: c for key, c in chosen.items() if steepest_in(rows, c.sign * dual, c.cell)[1] >= KEPT
    }


def _piece(rows: Rows, column: Column) -> Piece:
    slopes = np.where(column.cell, rows.slopes[1], rows.slopes[0])
    walls = np.where(column.cell, 1.0, -1.0)[:, None] * rows.R
    rho = float(np.sqrt(slopes**2 @ rows.lengths**2))
    nothing = np.zeros(rows.R.shape[1])
    return Piece(column.sign * slopes[:, None] * rows.R, walls, rho, nothing)


def _finished(rows: Rows, columns, v, dual, proof: Proof, nodes: int, rng) -> Found:
    """The network is of the program's own units and of those on which λ is steepest."""
    simple = float(rows.lengths @ np.abs(rows.t)) if rows.slopes == (0.0, 1.0) else 0.0
    bound = max(float(dual @ rows.t) / max(1.0, proof.largest), simple)
    found = [steepest_in(rows, c.sign * dual, c.cell) for c in columns]
    largest = max(steepness for _, steepness in found)
    units = [(c, at) for c, at in zip(columns, v, strict=True) if np.linalg.norm(at) > USED]
    attained = all(_depth(rows, c, at) > OPEN for c, at in units)
    units += [
        (c, at)
        for c, (at, steepness) in zip(columns, found, strict=True)
        if steepness >= largest - ACTIVE
    ]
    points = np.array([at / np.linalg.norm(at) for _, at in units])
    inner = np.array([inside(rows, c.cell) for c, _ in units])
    network = pushed(rows, points, np.array([c.sign for c, _ in units]), inner, rng)
    value = cost(rows, *network)
    complete = proof.largest <= 1 + 2 * STEEP
    return Found(dual, bound, value, *network, attained, complete, nodes, len(columns))


def _depth(rows: Rows, column: Column, v: np.ndarray) -> float:
    """How far inside its cell v is, over its length."""
    return float(np.min(np.where(column.cell, 1, -1) * (rows.R @ v)) / np.linalg.norm(v))


def cost(rows: Rows, v: np.ndarray, c: np.ndarray) -> float:
    """Σ |c| ρ ‖σ(R v)‖."""
    return float(np.abs(c) @ (rows.weights(v) * np.linalg.norm(rows.outputs(v), axis=1)))


def inside(rows: Rows, cell: np.ndarray) -> np.ndarray:
    """A point of the open cell, farthest from its walls."""
    Z = np.where(cell, 1.0, -1.0)[:, None] * rows.R
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    D = Z.shape[1]
    found = optimize.linprog(
        np.append(np.zeros(D), -1.0),
        A_ub=np.column_stack([-Z, np.ones(len(Z))]),
        b_ub=np.zeros(len(Z)),
        bounds=[(-1, 1)] * D + [(None, None)],
    )
    return found.x[:-1]


def pushed(rows: Rows, v, signs, inner, rng) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest differentiable network among those with every unit a step inside its cell."""
    extra = rng.normal(size=(3 * len(rows.t), rows.R.shape[1]))
    best, least = None, np.inf
    for step in 10.0 ** -np.arange(3, 12):
        points = np.vstack([v + step * inner, extra, extra])
        both = np.concatenate([signs, np.ones(len(extra)), -np.ones(len(extra))])
        h = rows.outputs(points)
        costs = rows.weights(points) * np.linalg.norm(h, axis=1)
        # Rounding would decide the pattern of a unit at a kink.
        apart = (np.abs(points @ rows.R.T) > KINK * np.linalg.norm(points, axis=1)[:, None]).all(1)
        live = (costs > 0) & apart
        weight = linear_program(costs[live], (h * both[:, None])[live].T, rows.t)
        used = weight > 1e-14 * weight.max()
        c, w = (weight * both[live])[used], points[live][used]
        c = c + np.linalg.lstsq(rows.outputs(w).T, rows.t - c @ rows.outputs(w))[0]
        if np.abs(c @ rows.outputs(w) - rows.t).max() <= FIT and cost(rows, w, c) < least:
            best, least = (w, c), cost(rows, w, c)
    if best is None:
        raise FlattestError("No network that fits was found in float64; rescale the inputs.")
    return best
