"""The cone program over chosen activation patterns, and its solution polished.

Clarabel solves it to about 1e-9; Newton's method on the optimality conditions does the rest: with
λ·t to be maximized subject to ½(‖Π_P λ‖² − ρ_P²) ≤ 0 on the active cells, Π_P the projection on the
face of K_P that λ projects to, the multipliers c_P ≥ 0 satisfy Σ c_P Π_P λ = t, which is the primal
solution h_P = c_P Π_P λ.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.convex.certificate import (
    SIGNS,
    Patterns,
    Steepness,
    project,
    simple_steepness,
    steepness,
)
from flattest.machine import later

sparse = later("scipy.sparse")
linalg = later("scipy.linalg")
AT_ONCE = 150
ACTIVE = 1e-6
ROUNDS = 60
GOAL = 1e-10
NEARLY = 1e-4
FIT = 1e-9
ROUNDED = 1e-13
INDEPENDENT = 1e-10


class Unit(NamedTuple):
    """A cell of the arrangement and the sign of the neurons in it."""

    cell: int
    sign: float


class Solution(NamedTuple):
    """λ with the lower bound it proves, and the units that are active at the optimum: points v (m,
    D) of their closed cells with coefficients c ≥ 0, Σ sign c σ(R v) = t; `value` is their cost."""

    dual: np.ndarray
    bound: float
    units: list[Unit]
    v: np.ndarray
    c: np.ndarray
    value: float

    @property
    def gap(self) -> float:
        """Infinite where nothing is proven."""
        return self.value / self.bound - 1 if self.bound > 0 else np.inf


def solve(of: Patterns) -> Solution:
    """The optimum over all cells: the program over some of them, to which those on which its λ is
    too steep are added until there are none."""
    chosen, known, best = _first(of), None, None
    for _ in range(ROUNDS):
        dual = cone_program([piece(of, unit) for unit in chosen], of.rows.t).dual
        known = steepness(of, dual, known=known, violations=AT_ONCE)
        if known.largest <= 1 + NEARLY:
            polished = _polished(of, known)
            best = polished if best is None or polished.gap < best.gap else best
            if best.gap <= GOAL:
                return best
        new = set(_steepest(of, known, 1 + 1e-10)) - set(chosen)
        if not new:
            break
        chosen += sorted(new)
    if best is None or not np.isfinite(best.gap):
        raise FlattestError("The cone program was not solved; rescale the inputs or the labels.")
    return best


def spanning(of: Patterns) -> tuple[np.ndarray, np.ndarray]:
    """Rays whose outputs span those of all networks, and for each a live cell that it belongs to;
    refuses targets that no network has."""
    _, triangle, order = linalg.qr(of.outputs.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    rays = order[: int(np.sum(sizes > INDEPENDENT * sizes[0]))]
    G = of.outputs[rays].T
    if np.abs(G @ np.linalg.lstsq(G, of.rows.t)[0] - of.rows.t).max() > FIT:
        raise FlattestError(
            "No network of this kind interpolates these labels: f(x) − f(−x) is linear in x "
            "without bias, and the labels of opposite inputs are not."
        )
    owner = np.repeat(np.arange(len(of.rho)), np.diff(of.found.start))
    alive = of.rho[owner] > 0
    cells = [owner[alive & (of.found.incident == ray)][0] for ray in rays]
    return rays, np.array(cells)


def spanning_inside(of: Patterns) -> np.ndarray:
    """Points of open cells whose outputs span those of all networks: near the rays that do."""
    rays, cells = spanning(of)
    inner = of.found.interior()[cells]
    for step in 10.0 ** -np.arange(1, 8):
        v = of.found.rays[rays] + step * inner
        sizes = np.linalg.svd(of.rows.outputs(v), compute_uv=False)
        if sizes[-1] > INDEPENDENT * sizes[0]:
            return v
    raise FlattestError("The inputs are too nearly dependent for float64; remove near-duplicates.")


def _first(of: Patterns) -> list[Unit]:
    """Enough cells to interpolate, and those on which the dual of the simple bound is steepest."""
    start = simple_steepness(of, np.sign(of.rows.t) * of.rows.lengths)
    steepest = _steepest(of, start, 1.0 - 1e-9)
    return sorted({Unit(int(p), s) for p in spanning(of)[1] for s in SIGNS} | set(steepest))


def _steepest(of: Patterns, steep: Steepness, least: float) -> list[Unit]:
    """The units on which λ is steepest, at most 150, among those where it is at least `least`."""
    found = _units(of, steep, least)
    sizes = [-steep.bound[SIGNS.index(u.sign), np.searchsorted(of.live, u.cell)] for u in found]
    return [found[i] for i in np.argsort(sizes, kind="stable")[:AT_ONCE]]


def _units(of: Patterns, steep: Steepness, least: float) -> list[Unit]:
    """The units on which the steepness of λ is at least `least`."""
    rows, columns = np.nonzero(steep.bound >= least)
    return [Unit(int(of.live[j]), SIGNS[i]) for i, j in zip(rows, columns, strict=True)]


class Piece(NamedTuple):
    """Neurons of one cell and sign in a cone program: their outputs ±h v and ρ, the walls of the
    cell (walls v ≥ 0), and what a neuron is worth beside its cost, worth·v."""

    outputs: np.ndarray
    walls: np.ndarray
    rho: float
    worth: np.ndarray


def piece(of: Patterns, unit: Unit) -> Piece:
    walls = np.where(of.found.cells[unit.cell], 1.0, -1.0)[:, None] * of.rows.R
    outputs = unit.sign * of.slopes[unit.cell][:, None] * of.rows.R
    return Piece(outputs, walls, of.rho[unit.cell], np.zeros(of.rows.R.shape[1]))


class ConeSolution(NamedTuple):
    """The value, the dual of the outputs' condition, the multiplier of the budget, and a neuron per
    piece (m, D)."""

    value: float
    dual: np.ndarray
    multiplier: float
    v: np.ndarray


def cone_program(pieces: list[Piece], t: np.ndarray, budget: float | None = None) -> ConeSolution:
    """min Σ ρ τ, or with a budget max Σ worth·v over Σ ρ τ ≤ budget, subject to Σ outputs v = t,
    ‖outputs v‖ ≤ τ and walls v ≥ 0; by Clarabel."""
    import clarabel  # slow to import

    k, D = pieces[0].outputs.shape
    fit = np.hstack([np.column_stack([p.outputs, np.zeros(k)]) for p in pieces])
    inside = [np.column_stack([-p.walls, np.zeros(len(p.walls))]) for p in pieces]
    costs = np.concatenate([np.append(np.zeros(D), p.rho) for p in pieces])
    norms = [_norm_cone(p.outputs) for p in pieces]
    parts = [sparse.csc_matrix(fit), sparse.block_diag(inside), sparse.block_diag(norms)]
    right = [t, np.zeros(parts[1].shape[0]), np.zeros(parts[2].shape[0])]
    cones = [clarabel.ZeroConeT(k), clarabel.NonnegativeConeT(parts[1].shape[0])]
    cones += [clarabel.SecondOrderConeT(len(block)) for block in norms]
    if budget is not None:
        parts.append(sparse.csc_matrix(costs))
        right.append(np.array([budget]))
        cones.append(clarabel.NonnegativeConeT(1))
        costs = np.concatenate([np.append(-p.worth, 0.0) for p in pieces])
    A = sparse.vstack(parts, format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    nothing = sparse.csc_matrix((A.shape[1], A.shape[1]))
    found = clarabel.DefaultSolver(
        nothing, costs, A, np.concatenate(right), cones, settings
    ).solve()
    z = np.array(found.z)
    sign = -1.0 if budget is None else 1.0
    v = np.array(found.x).reshape(len(pieces), D + 1)[:, :D]
    return ConeSolution(-sign * found.obj_val, sign * z[:k], float(z[-1]), v)


def _norm_cone(outputs: np.ndarray) -> np.ndarray:
    """−(τ, T v) with ‖T v‖ = ‖outputs v‖, as rows over (v, τ)."""
    T = np.asarray(np.linalg.qr(outputs, mode="r"))
    block = np.zeros((len(T) + 1, T.shape[1] + 1))
    block[0, -1], block[1:, :-1] = -1.0, -T
    return block


def _polished(of: Patterns, known: Steepness) -> Solution:
    """The best of λ as it is and after Newton's steps from the units near the active ones."""
    found = [_assembled(of, known)]
    for near in (1e-6, 1e-4, 1e-2):
        if found[-1].gap <= GOAL:
            break
        steep = steepness(of, known.dual, known.largest - near, known)
        newton = _newton(of, known.dual, _units(of, steep, steep.largest - near))
        found.append(_assembled(of, steepness(of, newton, known=steep)))
    return min(found, key=lambda s: s.gap)


def _assembled(of: Patterns, known: Steepness) -> Solution:
    """The active units at their projections. Their costs are ±λ·h there, so that every c ≥ 0 with
    Σ ±c h = t has the same cost λ·t. What they miss of t by rounding is paid for, too."""
    dual = known.dual
    steep = steepness(of, dual, known.largest - 2 * ACTIVE, known)
    units = _units(of, steep, steep.largest - ACTIVE)
    v = np.array([_projection(of, unit, dual) for unit in units])
    h = of.rows.outputs(v)
    signs = np.array([u.sign for u in units])
    c = project(h * signs[:, None], of.rows.t)
    missing = of.rows.t - (c * signs) @ h
    fits = np.abs(missing).max() <= FIT
    value = float(c @ _costs(of, units, h)) + _cost_of_covering(of, missing) if fits else np.inf
    return Solution(dual, float(dual @ of.rows.t) / max(1.0, steep.largest), units, v, c, value)


def _cost_of_covering(of: Patterns, missing: np.ndarray) -> float:
    """What neurons with these outputs cost at most: combinations of rays that span all outputs."""
    if np.abs(missing).max() <= ROUNDED:
        return 0.0
    rays, cells = spanning(of)
    G = of.outputs[rays]
    alpha = np.linalg.lstsq(G.T, missing)[0]
    return float(np.abs(alpha) @ (of.rho[cells] * np.linalg.norm(G, axis=1)))


def _costs(of: Patterns, units: list[Unit], h: np.ndarray) -> np.ndarray:
    return of.rho[[u.cell for u in units]] * np.linalg.norm(h, axis=1)


def _projection(of: Patterns, unit: Unit, dual: np.ndarray) -> np.ndarray:
    """v in the closed cell with σ(R v) the projection of ±λ on K_P."""
    rays = of.found.rays_of(unit.cell)
    return project(of.outputs[rays], unit.sign * dual) @ of.found.rays[rays]


def _newton(of: Patterns, dual: np.ndarray, near: list[Unit]) -> np.ndarray:
    """λ after Newton's steps on the conditions of the units that are active."""
    h = of.rows.outputs(np.array([_projection(of, unit, dual) for unit in near]))
    signed = h * np.array([[u.sign] for u in near])
    c, active = active_units(_costs(of, near, h), signed, of.rows.t, dual)
    units = [near[i] for i in active]
    if not units:
        return dual
    rho = of.rho[[u.cell for u in units]]
    return newton(dual, c, of.rows.t, rho, lambda dual: [_face(of, u, dual) for u in units])


def active_units(
    costs: np.ndarray, outputs: np.ndarray, t: np.ndarray, dual: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """c > 0 and which units have them in the linear program over the units' projections: these miss
    t a little, at a price above any λ."""
    k = len(t)
    penalty = np.full(2 * k, 10 * np.abs(dual).max())
    c = linear_program(
        np.concatenate([costs, penalty]), np.hstack([outputs.T, np.eye(k), -np.eye(k)]), t
    )[: len(costs)]
    return c[c > 0], np.flatnonzero(c > 0)


def newton(
    dual: np.ndarray,
    c: np.ndarray,
    t: np.ndarray,
    rho: np.ndarray,
    faces_at: Callable[[np.ndarray], list[np.ndarray]],
    steps: int = 6,
) -> np.ndarray:
    """λ after Newton's steps on Σ c_P Π_P λ = t, ‖Π_P λ‖ = ρ_P; Π_P by orthonormal columns."""
    for _ in range(steps):
        faces = faces_at(dual)
        q = np.array([face @ (face.T @ dual) for face in faces])
        curvature = sum(size * face @ face.T for size, face in zip(c, faces, strict=True))
        slack = (rho**2 - np.sum(q**2, axis=1)) / 2
        system = np.block([[curvature, q.T], [q, np.zeros((len(c), len(c)))]])
        step = np.linalg.lstsq(system, np.concatenate([t - c @ q, slack]))[0]
        dual, c = dual + step[: len(dual)], c + step[len(dual) :]
    return dual


def linear_program(cost: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A basic solution of min cost·c over A c = b, c ≥ 0."""
    from scipy.optimize import linprog  # slow to import

    accurate = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    # On some degenerate programs the dual simplex method gives up, on some the presolver.
    for method, presolve in (("highs-ds", True), ("highs-ipm", True), ("highs-ds", False)):
        options = accurate | {"presolve": presolve}
        found = linprog(cost, A_eq=A, b_eq=b, method=method, options=options)
        if found.x is not None:
            return found.x
    raise FlattestError(
        f"A linear program failed ({found.message}); rescale the inputs or the labels."
    )


def _face(of: Patterns, unit: Unit, dual: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the face of K_P that ±λ projects to."""
    h = of.on_rays(unit.cell)
    used = h[project(h, unit.sign * dual) > 0]
    Q, triangle = np.linalg.qr(used.T)
    sizes = np.abs(np.diag(triangle))
    return Q[:, sizes > 1e-12 * sizes.max(initial=0)]
