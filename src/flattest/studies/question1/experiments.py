"""Question 1 without bias, by integer programs: which draws of xor have only the four neurons?

    flattest run 'question1/*' --full          one cell of n × d after the other, ten draws each
    flattest summary 'question1/*' --full

For each draw `ft.decide_faces` says whether the bound 4√d is approached, and by networks of the
four neurons ±x[1] ± x[2] only (proven: all flattest networks generalize), by others too (refuted),
or not at all; or a half-space is free of training points, so that dead neurons are free. What was
expected before the runs: Wendel's theorem for the free half-spaces, one half of the draws at
n = 2d, and for the kinks of the four neurons, one half at about n = 4d.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.expectations import AtLeast
from flattest.experiments.experiment import Computed

OUTCOMES = ("proven", "refuted", "not approached", "open")
SIZES = {
    10: (18, 24, 30, 36, 42, 48),
    20: (36, 48, 60, 72, 84),
    30: (54, 75, 100, 120),
    40: (72, 96, 120, 144, 168),
}


class Faces(Computed, frozen=True, tag="question1/faces"):
    """The decision for `draws` draws of n points of xor in d dimensions, seeds 0, 1, …

    One entry per draw: a 1 for its outcome, `dead` where a half-space is free of training points,
    the number of `others` found and the share of the labels that they can carry, and the test error
    of the network that refutes (NaN where there is none).
    """

    d: int
    n: int
    draws: int = 10
    nodes: int = 5000
    faces: int = 6

    def compute(self, seed: int) -> Mapping[str, Any]:
        first = seed * self.draws
        found = [self._draw(first + draw) for draw in range(self.draws)]
        series = {name: np.array([row[name] for row in found], float) for name in found[0]}
        return series | {"decided": np.array([1 - series["open"].mean()])}

    def _draw(self, seed: int) -> dict[str, float]:
        data = ft.Xor(self.d).draw(self.n, seed)
        decided = ft.decide_faces(
            ft.MLP(4), data, four_neurons(self.d), nodes=self.nodes, faces=self.faces
        )
        return {
            **{outcome: decided.outcome == outcome for outcome in OUTCOMES},
            "dead": decided.dead is not None,
            "others": decided.others,
            "weight": decided.weight,
            "test_error": _test_error(decided, data),
        }

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        counts = {name: float(series[name].sum()) for name in (*OUTCOMES, "dead")}
        errors = series["test_error"]
        worst = float(np.nanmax(errors)) if np.isfinite(errors).any() else float("nan")
        return {"d": self.d, "n": self.n, "draws": self.draws, **counts, "worst test error": worst}


def four_neurons(d: int) -> np.ndarray:
    """±x[1] ± x[2]: the neurons of the generalizer (wen2023, A.2.4)."""
    heads = [[a, b] for a in (1.0, -1.0) for b in (1.0, -1.0)]
    return np.pad(heads, ((0, 0), (0, d - 2)))


def _test_error(decided: "ft.Decision", data: ft.Dataset) -> float:
    """Of the network that refutes; where neurons along a dead direction are free, the share of
    points on which one of them, large and of the worse sign, makes a flattest network err."""
    assert data.distribution is not None
    population = data.distribution.population(10_000)
    x, y = population.x, population.y
    if decided.dead is not None:
        reached = x @ decided.dead > 0
        return float(max((reached & (y > 0)).mean(), (reached & (y < 0)).mean()))
    if decided.params is None:
        return float("nan")
    model = ft.MLP(len(decided.params["W2"]))
    return float(np.mean(y * ft.predict(model, decided.params, x, x) <= 0))


def _experiment(d: int, n: int) -> ft.Experiment:
    return ft.Experiment(
        name=f"question1/d{d}-n{n}",
        figure=f"Theorem 3.1 on draws, d = {d}, n = {n}",
        statement="For each draw it is decided which networks are flattest.",
        quick=ft.Variant(Faces(d=4, n=10, draws=2), 1, (AtLeast("decided", 0.5),)),
        full=ft.Variant(Faces(d=d, n=n), 1),
    )


EXPERIMENTS = tuple(_experiment(d, n) for d, sizes in SIZES.items() for n in sizes)
