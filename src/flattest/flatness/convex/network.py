"""The flattest two-layer network on a training set, over all widths, with its proof.

Neurons of one open cell and one sign may be merged: with u = Σ |a_j| w_j in the closed cell, their
outputs on the data add up and ‖σ(X̃u)‖ ≤ Σ |a_j| ‖σ(X̃w_j)‖. So the least trace is the value of the
second-order cone program of `certificate`, over open cells only: at a kink (w·x̃_i = 0) L has no
Hessian, and a point of a closed cell is the limit of points of the open one, with that cell's
slopes. The least is
*attained* by a differentiable network where every neuron of some optimum can be taken in the open
cell, and otherwise only approached. Basic solutions have at most as many neurons as there are
rows, hence at most n.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.evidence import Verdict
from flattest.flatness.convex.cells import MOST_CELLS, can_enumerate, most_cells
from flattest.flatness.convex.certificate import Patterns, patterns, project
from flattest.flatness.convex.columns import cost, solve_by_columns
from flattest.flatness.convex.program import (
    FIT,
    Solution,
    Unit,
    linear_program,
    solve,
    spanning_inside,
)
from flattest.flatness.convex.rows import Rows, rows_of
from flattest.problem.checks import check_count
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import MLP, Params

GAP = 1e-8
OPEN = 1e-6
# A minute and a half for 50 inputs in 12 dimensions; docs/question1.md has where the proof stops.
MOST_ROWS = 50
SEARCHES = 3
SEARCHED = 500


@dataclass(frozen=True)
class FlattestNetwork:
    """The flattest network, and what proves it.

    `least` is the infimum of Tr ∇²L over all differentiable interpolators of any width, found; no
    interpolator has less than `bound`, and `gap` = least/bound − 1. `attained` says whether a
    differentiable network has it. `params` are such a network of `model`, its width at most n, with
    `trace` ≤ (1 + excess) · least. `proof` says how the bound was proven; the program had so many
    `cells`.
    `dual` is λ, one number per row of the program (`rows`).
    """

    model: MLP
    params: Params = field(repr=False)
    trace: float
    least: float
    bound: float
    attained: bool
    proof: str
    cells: int
    dual: np.ndarray = field(repr=False)
    rows: Rows = field(repr=False)

    @property
    def gap(self) -> float:
        return self.certificate.gap

    @property
    def excess(self) -> float:
        """trace/least − 1."""
        return self.trace / self.least - 1

    @property
    def certificate(self) -> Verdict:
        return Verdict(
            "the least trace over all widths meets the bound that its dual proves",
            self.least,
            self.bound,
            tolerance=GAP,
        )


def flattest_network(
    model: MLP,
    data: Dataset,
    loss: str | Loss = "mse",
    width: int | None = None,
    excess: float = 1e-6,
    nodes: int = 100_000,
) -> FlattestNetwork:
    """The least Tr ∇²L over all interpolators of `data` with the layers of `model`, whatever their
    width, and a network that has it up to the share `excess`.

    Where the activation patterns are too many to enumerate, some are generated (`columns`), and the
    bound is what branch and bound proves with at most so many `nodes`: see `gap`.

    The width of `model` does not matter. With `width` the network is padded to it. The least over
    fewer neurons than the flattest network found has is not a convex question: then `least` is the
    trace that a search ends at, an upper bound, and `bound` is that of all widths.
    """
    if not excess > 0:
        raise FlattestError(f"The excess must be a positive share, 1e-6 say, not {excess!r}.")
    if width is not None:
        check_count("The width", width)
    rows = rows_of(model, data, loss)
    found = (
        _enumerated(model, rows, excess)
        if can_enumerate(*rows.R.shape)
        else _generated(model, rows, nodes)
    )
    if width is None:
        return found
    if width < found.model.width:
        return _searched(found, data, loss, width)
    wide = msgspec.structs.replace(model, width=width)
    return replace(found, model=wide, params=padded(found.params, width))


def _enumerated(model: MLP, rows: Rows, excess: float) -> FlattestNetwork:
    """By all cells."""
    of = patterns(rows)
    solution = solve(of)
    v, c, attained = differentiable_units(of, solution, excess)
    return FlattestNetwork(
        model=msgspec.structs.replace(model, width=len(c)),
        params=parameters(rows, v, c, model.bias),
        trace=rows.unit * cost(rows, v, c),
        least=rows.unit * solution.value,
        bound=rows.unit * solution.bound,
        attained=attained,
        proof=f"λ on all {len(of.live)} open cells that are active on some input",
        cells=len(of.live),
        dual=solution.dual,
        rows=rows,
    )


def _generated(model: MLP, rows: Rows, nodes: int) -> FlattestNetwork:
    """By some cells, and branch and bound over all."""
    k, D = rows.R.shape
    if k > MOST_ROWS:
        raise FlattestError(
            f"{k} inputs in {D} dimensions have up to {most_cells(k, D):,} activation patterns, "
            f"more than the {MOST_CELLS:,} that are enumerated, and patterns are generated for at "
            f"most {MOST_ROWS} inputs; take fewer inputs, or search_flattest."
        )
    found = solve_by_columns(rows, check_count("The number of nodes", nodes))
    end = "" if found.complete else ", which ran out"
    return FlattestNetwork(
        model=msgspec.structs.replace(model, width=len(found.c)),
        params=parameters(rows, found.v, found.c, model.bias),
        trace=rows.unit * found.value,
        least=rows.unit * found.value,
        bound=rows.unit * found.bound,
        attained=found.attained,
        proof=f"λ by branch and bound over all open cells, {found.nodes} nodes{end}",
        cells=found.columns,
        dual=found.dual,
        rows=rows,
    )


def _searched(
    found: FlattestNetwork, data: Dataset, loss: str | Loss, width: int
) -> FlattestNetwork:
    """The flattest of a few searches at this width, over the bound of all widths."""
    from flattest.flatness.search import search_flattest  # slow to import

    model = msgspec.structs.replace(found.model, width=width)
    ends = []
    for seed in range(SEARCHES):
        with suppress(FlattestError):
            ends.append(search_flattest(model, data, seed, loss, steps=SEARCHED))
    if not ends:
        raise FlattestError(
            f"No interpolator of width {width} was found; the flattest network found has "
            f"{found.model.width} neurons, and the least over fewer is not a convex question: ask "
            "for more."
        )
    best = min(ends, key=lambda result: result.end.sharpness)
    trace = float(best.end.sharpness)
    proof = f"{found.proof}; the network is the flattest of {len(ends)} searches at width {width}"
    return replace(
        found, model=model, params=best.params, trace=trace, least=trace, attained=True, proof=proof
    )


def require_enumerable(rows: Rows) -> None:
    k, D = rows.R.shape
    if not can_enumerate(k, D):
        raise FlattestError(
            f"{k} inputs in {D} dimensions have up to {most_cells(k, D):,} activation patterns, "
            f"more than the {MOST_CELLS:,} that are enumerated; take fewer inputs, or "
            "search_flattest."
        )


def parameters(rows: Rows, v: np.ndarray, c: np.ndarray, bias: bool) -> Params:
    """The network Σ_j c_j σ(v_j·), each neuron rescaled to its least trace: with w = basis v and
    b² = |c| ρ/‖σ(R v)‖ (the unit of lengths included), inner weights b w, outer weight c/b."""
    w, outer = v @ rows.basis.T, c * rows.size
    length = np.linalg.norm(rows.given, axis=1).max()
    b = np.sqrt(np.abs(outer) * length * rows.weights(v) / np.linalg.norm(rows.outputs(v), axis=1))
    inner = b[:, None] * w
    first = {"W1": inner[:, :-1], "b1": inner[:, -1]} if bias else {"W1": inner}
    return first | {"W2": outer / b}


def padded(params: Params, width: int | None) -> Params:
    """With neurons of weights 0, and b1 = −1, up to the width."""
    more = 0 if width is None else width - len(params["W2"])
    fill = {"b1": -1.0}
    return {
        name: np.pad(
            value, [(0, more)] + [(0, 0)] * (value.ndim - 1), constant_values=fill.get(name, 0.0)
        )
        for name, value in params.items()
    }


def differentiable_units(
    of: Patterns, solution: Solution, excess: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Points v of open cells and signed coefficients c with Σ c σ(R v) = t, at most k of them, at a
    cost within `excess` of the least; and whether the least itself is attained so.

    Each active unit is moved within the outputs' fibre as far into its cell as it goes. Where the
    units that are then in their open cells interpolate, the least is attained. Else all are moved a
    further step ε towards a point of the open cell, and neurons of open cells that span all outputs
    make up for what the step changed; ε is reduced until the cost is within the excess.
    """
    deep = [_deepest(of, u, solution.dual) for u in solution.units]
    v = np.array([point for point, _ in deep])
    is_open = np.array([depth > OPEN for _, depth in deep])
    signs = np.array([u.sign for u in solution.units])
    if is_open.any():
        columns = of.rows.outputs(v[is_open]) * signs[is_open, None]
        c = project(columns, of.rows.t)
        if np.abs(c @ columns - of.rows.t).max() <= FIT:
            fitted = _refined(of.rows, v[is_open], c * signs[is_open])
            if cost(of.rows, *fitted) <= (1 + excess) * solution.value:
                return *fitted, True
    return *_pushed(of, solution, v, is_open, excess), False


def _deepest(of: Patterns, unit: Unit, dual: np.ndarray) -> tuple[np.ndarray, float]:
    """v in the closed cell with σ(R v) the projection q of ±λ that is farthest from the cell's
    walls, and its depth min_h |r_h·v|/‖r_h‖ over ‖q‖; 0 on a wall.

    Rays on which all outputs are 0 change no output; others must combine to q.
    """
    from scipy.optimize import linprog  # slow to import

    rays = of.found.rays_of(unit.cell)
    z, h = of.found.rays[rays], of.outputs[rays]
    c = project(h, unit.sign * dual)
    size = np.linalg.norm(c @ h)
    walls = np.where(of.found.cells[unit.cell], 1.0, -1.0)[:, None] * of.rows.R
    walls = walls / np.linalg.norm(walls, axis=1, keepdims=True)
    # v = start + free·y, the outputs fixed: σ′_h r_h·y = 0.
    start = c @ z / size
    fixed = of.slopes[unit.cell][:, None] * of.rows.R
    _, sizes, directions = np.linalg.svd(fixed)
    free = directions[int(np.sum(sizes > 1e-11)) :].T
    if free.size:
        found = linprog(
            np.append(np.zeros(free.shape[1]), -1.0),
            A_ub=np.column_stack([-walls @ free, np.ones(len(walls))]),
            b_ub=walls @ start,
            bounds=[(None, None)] * free.shape[1] + [(None, 1.0)],
            method="highs",
        )
        if found.x is not None:
            start = start + free @ found.x[:-1]
    return start * size, float((walls @ start).min())


def _pushed(of, solution, v, is_open, excess) -> tuple[np.ndarray, np.ndarray]:
    rows, inner = of.rows, of.found.interior()
    towards = inner[[u.cell for u in solution.units]]
    extra = spanning_inside(of)
    sizes = np.linalg.norm(v, axis=1, keepdims=True)
    signs = np.concatenate(
        [[u.sign for u in solution.units], np.ones(len(extra)), -np.ones(len(extra))]
    )
    for step in 10.0 ** -np.arange(2, 12):
        moved = np.where(is_open[:, None], v, v / sizes + step * towards)
        points = np.vstack([moved, extra, extra])
        h = rows.outputs(points)
        costs = rows.weights(points) * np.linalg.norm(h, axis=1)
        c = linear_program(costs, (h * signs[:, None]).T, rows.t)
        used = c > 0
        fitted = _refined(rows, points[used], (c * signs)[used])
        if cost(rows, *fitted) <= (1 + excess) * solution.value:
            return fitted
    raise FlattestError(
        f"No differentiable network within {excess:g} of the least trace was found in float64; "
        "ask for a larger excess."
    )


def _refined(rows: Rows, v: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients once more by least squares: a solver's fit is good to 1e-10 only."""
    kept = np.abs(c) > 1e-14 * np.abs(c).max()
    v, c = v[kept], c[kept]
    h = rows.outputs(v)
    return v, c + np.linalg.lstsq(h.T, rows.t - c @ h)[0]
