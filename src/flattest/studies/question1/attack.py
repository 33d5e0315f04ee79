"""An attack on the range of outputs: networks of sampled neurons, by linear programs.

Written from the formulas, on the data as given, and with no cell: directions w are drawn, and the
coefficients c that interpolate, keep the trace within the budget and take f(x̃) farthest are a
linear program, since the trace after the best rescaling is (4/n) Σ |c_j| ρ_j ‖σ(X̃w_j)‖. Around the
directions that it uses others are drawn, nearer and nearer. What it ends at is a network: its trace
and its output at the point are computed anew from its weights.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.experiment import Computed
from flattest.studies.question1.small import TOLERANCES, tiny_problem

ROUNDS = 12
KINK = 1e-9


class RangeAttack(Computed, frozen=True, tag="question1/range-attack"):
    """Both ends of the range at a point of each of so many tiny `problems`, at an `excess` of the
    trace, from so many `starts` of so many `neurons`, as shares of the largest label: `beyond`, how
    far the best network found lies outside a finite end (≤ 0: never), its `distance` inside it;
    `bounded`, 1 where an end that is said to be infinite was reached by no linear program."""

    problems: int = 15
    excess: float = 0.05
    starts: int = 3
    neurons: int = 400

    def compute(self, seed: int) -> Mapping[str, Any]:
        first = seed * self.problems
        ends = [end for i in range(self.problems) for end in self._ends(first + i)]
        finite = np.array([end for end in ends if np.isfinite(end)])
        infinite = [end for end in ends if not np.isfinite(end)]
        return {
            "beyond": finite,
            "distance": np.maximum(-finite, 0),
            "median distance": np.array([np.median(np.maximum(-finite, 0))]),
            "bounded": np.array([float(end < 0) for end in infinite]),
        }

    def _ends(self, number: int) -> list[float]:
        """By how much the attack exceeds the low and the high end; ∞ where an infinite end is
        reached, −∞ where it is not."""
        model, data = tiny_problem(number)
        point = np.random.default_rng(number + 1000).normal(size=(1, data.d))
        at = ft.flattest_range(model, data, point, self.excess)
        scale, found = np.abs(data.y).max(), []
        for side, end in ((-1.0, at.low[0]), (1.0, at.high[0])):
            reached = max(
                farthest(
                    model, data, point, (1 + self.excess) * at.least, side, start, self.neurons
                )
                for start in range(self.starts)
            )
            if np.isfinite(end):
                found.append((reached - side * end) / scale)
            else:
                found.append(np.inf if reached == np.inf else -np.inf)
        return found

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {
            "finite ends": float(len(series["beyond"])),
            "beyond": float(series["beyond"].max()),
            "nearest": float(series["distance"].min()),
            "median distance": float(series["median distance"].item()),
            "infinite ends": float(len(series["bounded"])),
            "not reached": float(series["bounded"].sum()),
        }


def farthest(
    model: ft.MLP,
    data: ft.Dataset,
    point: np.ndarray,
    budget: float,
    side: float,
    seed: int,
    neurons: int,
) -> float:
    """The greatest side · f(point) of a network found with this trace at most; ∞ where a linear
    program is unbounded."""
    rng, known = np.random.default_rng(seed), ft.flattest_network(model, data)
    w = np.column_stack([known.params[name] for name in ("W1", "b1") if name in known.params])
    w, radius, best = np.vstack([w, rng.normal(size=(neurons, w.shape[1]))]), 1.0, -np.inf
    for _ in range(ROUNDS):
        w = w[(np.abs(_extended(model, data.x) @ w.T) > KINK).all(axis=0)]
        c = _coefficients(model, data, point, budget, side, w)
        if c is None:
            return np.inf
        used = np.abs(c) > 1e-12 * np.abs(c).max()
        best = max(best, _checked(model, data, point, budget, side, w[used], c[used]))
        radius *= 0.3
        near = np.repeat(w[used], neurons // used.sum() + 1, axis=0)
        sizes = np.linalg.norm(near, axis=1, keepdims=True)
        w = np.vstack([w[used], near + radius * sizes * rng.normal(size=near.shape)])
    return best


def _extended(model: ft.MLP, x: np.ndarray) -> np.ndarray:
    return np.column_stack([x, np.ones(len(x))]) if model.bias else x


def _neurons(model: ft.MLP, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """σ(x̃·w) (m, n), and ρ²."""
    assert model.sigma.slopes is not None
    X, (below, above) = _extended(model, x), model.sigma.slopes
    slopes = np.where(w @ X.T > 0, above, below)
    return slopes * (w @ X.T), slopes**2 @ (X**2).sum(axis=1)


def _coefficients(model, data, point, budget, side, w) -> np.ndarray | None:
    """c that takes side · f(point) farthest; None where nothing bounds it."""
    from scipy.optimize import linprog

    h, rho2 = _neurons(model, data.x, w)
    phi, _ = _neurons(model, point, w)
    costs = 4 / data.n * np.sqrt(rho2) * np.linalg.norm(h, axis=1)
    worth = side * phi[:, 0]
    found = linprog(
        np.concatenate([-worth, worth]),
        A_eq=np.vstack([h, -h]).T,
        b_eq=data.y,
        A_ub=np.concatenate([costs, costs])[None],
        b_ub=[budget],
        method="highs-ds",
        options=TOLERANCES,
    )
    return None if found.x is None else found.x[: len(w)] - found.x[len(w) :]


def _checked(model, data, point, budget, side, w, c) -> float:
    """side · f(point) of the network itself; −∞ where it misses a label or the budget."""
    h, rho2 = _neurons(model, data.x, w)
    live = np.linalg.norm(h, axis=1) > 0
    b = np.where(
        live,
        np.sqrt(np.abs(c) * np.sqrt(rho2) / np.maximum(np.linalg.norm(h, axis=1), 1e-300)),
        1.0,
    )
    inner = b[:, None] * w
    first = {"W1": inner[:, :-1], "b1": inner[:, -1]} if model.bias else {"W1": inner}
    params, own = (
        first | {"W2": c / b},
        ft.MLP(len(c), bias=model.bias, activation=model.activation),
    )
    misses = np.abs(ft.predict(own, params, data.x, data.x) - data.y).max()
    dear = float(ft.trace(own, params, data)) / budget - 1
    if misses > 1e-8 * np.abs(data.y).max() or dear > 1e-8:
        return -np.inf
    return side * float(ft.predict(own, params, point, data.x)[0])
