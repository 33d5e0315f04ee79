"""What all flattest networks say at a point: the least and the greatest output, over all of them.

Networks are taken up to limits, as the least trace is: neurons in closed cells, with the slopes of
the open ones. Write B = (1 + excess) · least for what a network may cost. For a point x̃ the cells
are those of the rows and x̃ together, so that φ(v) = σ(v·x̃) is linear on each, too.

*Infinite ranges.* A ray z on which all outputs on the data are 0 costs nothing. Where φ(z) ≠ 0, a
neuron along z, of either sign and any size, takes f(x̃) anywhere: for ReLU exactly where a
half-space free of training points contains x̃ (z·x̃_i ≤ 0 for all i, z·x̃ > 0). A network *without
dead neurons*, every neuron active on some training point, can use z only as part of a neuron whose
closed cell contains it. With excess > 0 a neuron of vanishing cost will do, of any live cell that
touches z. At excess = 0 it must be a neuron of a flattest network, and its sign decides on which
side f is unbounded.

*Excess 0.* By complementary slackness a network is flattest exactly if it interpolates and every
neuron, of cell P and sign s, has σ(R v) = γ q_P with γ ≥ 0 and q_P the projection of sλ on K_P, on
cells with ‖q_P‖ = ρ_P. With m_P and M_P the least and greatest φ(v) over σ(R v) = q_P (linear
programs over the rays of the joint cells), the range of f is that of Σ γ_P · s [m_P, M_P] over
Σ γ_P s q_P = t, γ ≥ 0: two small linear programs.

*Excess > 0.* A cone program. Weak duality proves its outer bound: for any ν let τ(ν) be the least τ
with s φ(v) − s ν·h ≤ τ ρ_P ‖h‖ for all joint cells, signs and v, h = σ(R v). Then
f(x̃) = Σ s φ(v_j) ≤ ν·t + τ Σ ρ ‖h_j‖ ≤ ν·t + τ(ν) B. On one cell with rays z_j, any q with
q·h_j ≥ s φ_j − s ν·h_j for all j proves τ ≤ ‖q‖/ρ_P; the shortest is a problem of least distance
(Lawson and Hanson, chapter 23). The lower end is the upper end of −f.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.convex.cells import Arrangement, arrangement, can_enumerate, most_cells
from flattest.flatness.convex.certificate import SIGNS, Patterns, patterns, project, shortest
from flattest.flatness.convex.network import require_enumerable
from flattest.flatness.convex.program import (
    AT_ONCE,
    ROUNDS,
    Piece,
    Solution,
    cone_program,
    linear_program,
    solve,
)
from flattest.flatness.convex.rows import activated, coordinates, extended, rows_of
from flattest.problem.checks import finite_array
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import MLP

DEAD = 1e-12
USED = 1e-9
PROOF = 1e-7
MOST_JOINT_CELLS = 2000


@dataclass(frozen=True)
class Range:
    """For each point the least and greatest output over all networks whose trace is within
    `excess` of the least: `low`, `high` over all, `live_low`, `live_high` over those whose every
    neuron is active on some training point.

    `proven` are bounds on the finite live ends that hold whatever the solver did, (2, points).
    """

    low: np.ndarray
    high: np.ndarray
    live_low: np.ndarray
    live_high: np.ndarray
    proven: np.ndarray = field(repr=False)
    excess: float
    least: float

    def errors(self, y, live: bool = False) -> tuple[float, float]:
        """Bounds on the zero-one error at the points with labels y: the share of points on which
        every flattest network errs, and of those on which one of them does. f = 0 is an error."""
        low, high = (self.live_low, self.live_high) if live else (self.low, self.high)
        signs = np.sign(finite_array("The array of labels", y))
        worst, best = np.minimum(signs * low, signs * high), np.maximum(signs * low, signs * high)
        small = 1e-9 * self._scale
        return float(np.mean(best <= small)), float(np.mean(worst <= small))

    @property
    def _scale(self) -> float:
        ends = np.abs(np.concatenate([self.live_low, self.live_high]))
        return float(ends[np.isfinite(ends)].max(initial=0.0)) or 1.0


def flattest_range(
    model: MLP, data: Dataset, points, excess: float = 0.0, loss: str | Loss = "mse"
) -> Range:
    """The range of outputs at the rows of `points` over all interpolators of `data`, of any width,
    whose trace is at most (1 + excess) times the least."""
    if not 0 <= excess < np.inf:
        raise FlattestError(f"The excess must be a share ≥ 0, not {excess!r}.")
    x = finite_array("The array of points", points)
    if x.ndim != 2 or x.shape[1] != data.d:
        raise FlattestError(f"Points must be (m, {data.d}) like the inputs, not {x.shape}.")
    rows = rows_of(model, data, loss)
    require_enumerable(rows)
    _require_few(len(rows.t) + 1, rows.R.shape[1])
    of = patterns(rows)
    solution = solve(of)
    ends = [_at_point(of, solution, point, excess) for point in extended(x, model.bias)]
    table = rows.size * np.array([[*e.everything, *e.live, *e.proven] for e in ends]).T
    low, high, live_low, live_high, *proven = table
    least = rows.unit * solution.value
    return Range(low, high, live_low, live_high, np.array(proven), excess, least)


class _Ends(NamedTuple):
    everything: tuple[float, float]
    live: tuple[float, float]
    proven: tuple[float, float]


class Joint(NamedTuple):
    """The cells of the rows and a point together, of which J is an orthonormal form: outputs (m, k)
    on the rays and φ (m,); for each cell the cell of the rows that it lies in."""

    J: np.ndarray
    size: float
    found: Arrangement
    outputs: np.ndarray
    phi: np.ndarray
    parents: np.ndarray

    @property
    def dead(self) -> np.ndarray:
        """Rays that are 0 on the data and not at the point."""
        return ~self.outputs.any(axis=1) & (np.abs(self.phi) > DEAD)


def joint_cells(of: Patterns, point: np.ndarray) -> Joint:
    k = len(of.rows.t)
    size = np.linalg.norm(of.rows.given, axis=1).max() / np.linalg.norm(point)
    J, _ = coordinates(np.vstack([of.rows.given, size * point]))
    _require_few(*J.shape)
    found = arrangement(J)
    h = np.where(found.signs == 0, 0.0, activated(found.rays @ J.T, of.rows.slopes))
    index = {cell.tobytes(): p for p, cell in enumerate(of.found.cells)}
    parents = np.array([index[cell[:k].tobytes()] for cell in found.cells])
    return Joint(J, size, found, h[:, :k], h[:, k] / size, parents)


def _require_few(k: int, D: int) -> None:
    if not can_enumerate(k, D, MOST_JOINT_CELLS):
        raise FlattestError(
            f"The data and a point together have up to {most_cells(k, D):,} activation patterns, "
            f"more than the {MOST_JOINT_CELLS:,} that ranges are computed for; take fewer inputs."
        )


def _at_point(of: Patterns, solution: Solution, point: np.ndarray, excess: float) -> _Ends:
    if not point.any():
        return _Ends((0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    joint = joint_cells(of, point)
    live = _flattest_ends if excess == 0 else _near_flattest_ends
    ends, proven = live(of, solution, joint, excess)
    everything = (-np.inf, np.inf) if joint.dead.any() else ends
    return _Ends(everything, ends, proven)


def _flattest_ends(of: Patterns, solution: Solution, joint: Joint, excess: float):
    """The live range at excess 0, and a proof of one a little larger."""
    units, signs = solution.units, np.array([u.sign for u in solution.units])
    q = of.rows.outputs(solution.v)
    t = (solution.c * signs) @ q
    usable = [_most(q, signs, t, e) > USED for e in np.eye(len(units))]
    spans = [
        _span(of, joint, u.cell, q_P) if use else (0.0, 0.0, False, False)
        for u, q_P, use in zip(units, q, usable, strict=True)
    ]
    m, M, down, up = (np.array(column) for column in zip(*spans, strict=True))
    low, high = (
        -_most(q, signs, t, -_worth(signs, m, M, -1)),
        _most(q, signs, t, _worth(signs, m, M, 1)),
    )
    low = -np.inf if np.where(signs > 0, down, up).any() else low
    high = np.inf if np.where(signs > 0, up, down).any() else high
    _, proven = _near_flattest_ends(of, solution, joint, PROOF)
    return (low, high), proven


def _worth(signs: np.ndarray, m: np.ndarray, M: np.ndarray, side: int) -> np.ndarray:
    """What γ_P = 1 adds to f at most (side 1) or at least (side −1)."""
    return np.where(signs * side > 0, signs * M, signs * m)


def _near_flattest_ends(of: Patterns, solution: Solution, joint: Joint, excess: float):
    """The live range at an excess > 0: what networks reach, and what is proven."""
    touching = joint.found.incident[
        np.repeat(of.rho[joint.parents] > 0, np.diff(joint.found.start))
    ]
    if joint.dead[touching].any():
        return (-np.inf, np.inf), (-np.inf, np.inf)
    budget = (1 + excess) * solution.value
    ends = [_upper_end(of, solution, joint, budget, side) for side in SIGNS]
    (high, proven_high), (low, proven_low) = ends
    return (-low, high), (-proven_low, proven_high)


def _upper_end(of, solution, joint, budget: float, side: float) -> tuple[float, float]:
    """max side · f(x̃) at this budget: by the cone program over some joint cells, to which those
    that its dual ν does not prove are added until there are none; and the proven ν·t + τ(ν) B."""
    active = {(u.cell, u.sign) for u in solution.units}
    children = np.flatnonzero(of.rho[joint.parents] > 0).tolist()
    everything = [(p, s) for p in children for s in SIGNS]
    chosen = [(p, s) for p, s in everything if (joint.parents[p], s) in active]
    best = np.inf
    for _ in range(ROUNDS):
        pieces = [_piece(of, joint, p, s, side) for p, s in chosen]
        found = cone_program(pieces, of.rows.t, budget)
        steep = np.array([_multiplier(of, joint, p, s, side, found.dual) for p, s in everything])
        best = min(best, float(found.dual @ of.rows.t + steep.max() * budget))
        if best <= found.value + 1e-8 * max(1.0, abs(found.value)):
            break
        worst = np.argsort(-steep)[:AT_ONCE]
        new = {everything[i] for i in worst if steep[i] > found.multiplier * (1 + 1e-9)} - {*chosen}
        if not new:
            break
        chosen += sorted(new)
    return found.value, best


def _piece(of: Patterns, joint: Joint, p: int, sign: float, side: float) -> Piece:
    cell, k = joint.found.cells[p], len(of.rows.t)
    below, above = of.rows.slopes
    slopes = np.where(cell, above, below)
    walls = np.where(cell, 1.0, -1.0)[:, None] * joint.J
    outputs = sign * slopes[:k, None] * joint.J[:k]
    worth = side * sign * slopes[k] * joint.J[k] / joint.size
    return Piece(outputs, walls, of.rho[joint.parents[p]], worth)


def _multiplier(of, joint: Joint, p: int, sign: float, side: float, dual: np.ndarray) -> float:
    """τ proven on one joint cell: (‖q‖ + √k θ)/ρ with q·h_j ≥ g_j up to θ ‖h_j‖₁."""
    rays = joint.found.rays_of(p)
    h = joint.outputs[rays]
    live = h.any(axis=1)
    h, g = h[live], sign * (side * joint.phi[rays][live] - h[live] @ dual)
    q = shortest(h, g)
    missing = np.maximum(g - h @ q, 0) / np.abs(h).sum(axis=1)
    size = np.linalg.norm(q) + np.sqrt(len(dual)) * missing.max(initial=0)
    return float(size / of.rho[joint.parents[p]])


def _most(q: np.ndarray, signs: np.ndarray, t: np.ndarray, worth: np.ndarray) -> float:
    """max worth·γ over Σ γ s q = t, γ ≥ 0."""
    gamma = linear_program(-worth, (q * signs[:, None]).T, t)
    return float(worth @ gamma)


def _span(of: Patterns, joint: Joint, p: int, q: np.ndarray) -> tuple[float, float, bool, bool]:
    """(m_P, M_P), and whether φ is unbounded below and above for want of a cost."""
    ends, down, up = [], False, False
    for child in np.flatnonzero(joint.parents == p).tolist():
        rays = joint.found.rays_of(child)
        h, phi, dead = joint.outputs[rays], joint.phi[rays], joint.dead[rays]
        down, up = down or bool((phi[dead] < 0).any()), up or bool((phi[dead] > 0).any())
        live = h.any(axis=1)
        for sign in SIGNS:
            c = _combination(h[live], q, sign * phi[live])
            if c is not None:
                ends.append(float(c @ phi[live]))
    return min(ends), max(ends), down, up


def _combination(h: np.ndarray, q: np.ndarray, worth: np.ndarray) -> np.ndarray | None:
    """c ≥ 0 with Σ c_j h_j = q that maximizes worth·c; None where q is not in the cone."""
    if np.abs(project(h, q) @ h - q).max() > 1e-9 * np.abs(q).max():
        return None
    return linear_program(-worth, h.T, q)
