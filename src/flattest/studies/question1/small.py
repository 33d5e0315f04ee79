"""Small problems, on which all that is said of flattest networks is checked.

`Small` holds the answer of `ft.flattest_network` against everything else that is known: its own
dual, wen2023's lower bound, the memorizer, a second solver, searches and trained networks. `Ranges`
holds `ft.flattest_range` against trained networks.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.errors import FlattestError
from flattest.experiments.experiment import Computed

DESCENT = ft.gd(0.02, epochs=20_000, stop_loss=1e-24)
FITTED = 1e-18
STEEP = 2e-7
TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
ROUNDS = 200


def problem(seed: int) -> tuple[ft.MLP, ft.Dataset]:
    """A small problem: d ≤ 4, n ≤ 10, with bias or not, inputs anywhere, on a sphere or on the
    cube, labels real, ±1 or xor, ReLU or leaky. On the line distinct inputs have few labels that
    a network without bias fits, so d ≥ 2 there."""
    rng = np.random.default_rng(seed)
    bias, kind = bool(seed % 2), seed // 2 % 4
    d, n = int(rng.integers(1 if bias and kind != 1 else 2, 5)), int(rng.integers(2, 11))
    x, y = rng.normal(size=(n, d)), rng.normal(size=n)
    if kind == 1:
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    if kind == 2:
        x = np.sign(x)
        y = x[:, 0] * x[:, -1]
    if kind == 3:
        y = np.sign(y)
    model = ft.MLP(5, bias=bias, activation="leaky_relu:0.1" if seed % 3 == 2 else "relu")
    return model, ft.Dataset(x, y)


def tiny_problem(seed: int) -> tuple[ft.MLP, ft.Dataset]:
    """n ≤ 5 inputs in the plane, or on the line with bias: few enough patterns for CVXPY."""
    rng = np.random.default_rng(seed)
    bias, n = bool(seed % 2), int(rng.integers(2, 6))
    x = rng.normal(size=(n, 1 if seed % 4 == 1 else 2))
    model = ft.MLP(3, bias=bias, activation="leaky_relu:0.2" if seed % 3 == 2 else "relu")
    return model, ft.Dataset(x, rng.normal(size=n))


def least_by_linear_programs(model: ft.MLP, data: ft.Dataset) -> float:
    """The least trace by a second solver: the linear program over many neurons, solved by HiGHS, to
    which from every cell the neuron is added on which its dual is steepest.

    Each value is that of a network (up to limits), hence an upper bound; it ends where no neuron is
    steeper than 1 + 2e-7, so that the value is within that of the least.
    """
    from scipy.optimize import linprog

    from flattest.flatness.convex.certificate import SIGNS, patterns, project
    from flattest.flatness.convex.program import spanning
    from flattest.flatness.convex.rows import rows_of

    of = patterns(rows_of(model, data))
    rays, cells = spanning(of)
    first = of.outputs[rays]
    h, costs = np.vstack([first, -first]), np.tile(of.rho[cells] * np.linalg.norm(first, axis=1), 2)
    for _ in range(ROUNDS):
        found = linprog(costs, A_eq=h.T, b_eq=of.rows.t, method="highs-ds", options=TOLERANCES)
        dual = found.eqlin.marginals
        steepest = [
            (sign * (project(of.on_rays(p), sign * dual) @ of.on_rays(p)), of.rho[p])
            for p in of.live
            for sign in SIGNS
        ]
        new = [(q, rho) for q, rho in steepest if np.linalg.norm(q) > rho * (1 + STEEP)]
        if not new:
            return of.rows.unit * float(found.fun)
        h = np.vstack([h, *(q / np.linalg.norm(q) for q, _ in new)])
        costs = np.concatenate([costs, [rho for _, rho in new]])
    raise FlattestError("The second solver did not converge.")


def trained(model: ft.MLP, data: ft.Dataset, seed: int) -> "ft.Run | None":
    """Gradient descent to an interpolator, None where it does not reach one."""
    run = ft.train(model, data, [DESCENT], seed=seed, dtype="float64", log=ft.Log(points=2))
    fits = run.status == "finished" and run["train_loss"][-1] <= FITTED * np.mean(data.y**2)
    return run if fits else None


def searched_trace(model: ft.MLP, data: ft.Dataset) -> list[float]:
    """The trace that a search ends at; empty where it finds no interpolator to start from."""
    try:
        return [ft.search_flattest(model, data, steps=60).end.sharpness]
    except FlattestError:
        return []


def wide(model: ft.MLP) -> ft.MLP:
    return ft.MLP(30, bias=model.bias, activation=model.activation)


class Small(Computed, frozen=True, tag="question1/small"):
    """The flattest networks of `problems` problems, of which some are `searched`, too.

    One entry per problem. `gap`: least/bound − 1. `below_floor`: wen2023's bound over the least,
    − 1 (≤ 0). `second`: |the second solver's least over ours − 1|. `excess`: by how much the trace
    of the network, by `ft.trace`, exceeds the least. For as many as have them: `memorizer_off`,
    |the memorizer's trace over the least − 1| where all inputs are extreme; `found_below`, 1 − the
    least trace of a trained or searched network over the least (≤ 0).
    """

    problems: int = 30
    searched: int = 2

    def compute(self, seed: int) -> Mapping[str, Any]:
        first = seed * self.problems
        rows = [_compared(first + i, i < self.searched) for i in range(self.problems)]
        return _series(rows)

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        worst = {name: float(values.max()) for name, values in series.items()}
        return {"problems": float(len(series["gap"])), **worst}


def _series(rows: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """The numbers of each name that are there."""
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    return {name: values[~np.isnan(values)] for name, values in columns.items()}


def _compared(number: int, searched: bool) -> dict[str, float]:
    model, data = problem(number)
    found = ft.flattest_network(model, data)
    least = found.least
    runs = [trained(wide(model), data, 0)]
    others = [float(run["sharpness"][-1]) for run in runs if run is not None]
    if searched:
        others += searched_trace(wide(model), data)
    return {
        "gap": found.gap,
        "below_floor": ft.lower_bound(model, data).value / least - 1,
        "second": abs(least_by_linear_programs(model, data) / least - 1),
        "memorizer_off": abs(_memorizer_trace(model, data) / least - 1),
        "found_below": 1 - min(others) / least if others else np.nan,
        "excess": float(ft.trace(found.model, found.params, data)) / least - 1,
    }


def _memorizer_trace(model: ft.MLP, data: ft.Dataset) -> float:
    """NaN where the memorizer is not built: without bias, for leaky ReLU, with inner points."""
    if not model.bias or not model.sigma.is_relu:
        return np.nan
    try:
        return ft.memorizer(data).certificate.value
    except FlattestError:
        return np.nan


class Ranges(Computed, frozen=True, tag="question1/ranges"):
    """How far outside the range of its own excess a trained network says something, at most, over
    `problems` tiny problems and `points` points each (≤ 0: never): `outside`, as a share of the
    largest label; and `finite`, the share of points at which the range is finite."""

    problems: int = 15
    points: int = 4

    def compute(self, seed: int) -> Mapping[str, Any]:
        first = seed * self.problems
        return _series([self._checked(first + i) for i in range(self.problems)])

    def _checked(self, number: int) -> dict[str, float]:
        model, data = tiny_problem(number)
        x = np.random.default_rng(number).normal(size=(self.points, data.d))
        run = trained(wide(model), data, number)
        if run is None:
            return {"outside": np.nan, "finite": np.nan}
        least = ft.flattest_network(model, data).least
        excess = max(0.0, float(run["sharpness"][-1]) / least - 1) + 1e-6
        at = ft.flattest_range(model, data, x, excess)
        f = ft.predict(wide(model), dict(run.params or {}), x, data.x)
        outside = np.maximum(at.low - f, f - at.high).max() / np.abs(data.y).max()
        return {"outside": outside, "finite": np.isfinite(at.high - at.low).mean()}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {
            "problems": float(len(series["outside"])),
            "outside": float(series["outside"].max(initial=-np.inf)),
            "finite": float(series["finite"].mean()),
        }
