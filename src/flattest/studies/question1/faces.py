"""Which networks are flattest on a draw of xor without bias, and an attack on what is decided."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.experiment import Computed

OUTCOMES = ("proven", "refuted", "not approached", "open")
STRICTLY = 1e-6


class Faces(Computed, frozen=True, tag="question1/faces"):
    """The decision for one draw of n points of xor in d dimensions.

    A 1 for its outcome, `dead` where a half-space is free of training points, the number of
    `others` found and the share of the labels that they can carry, the test error of the network
    that refutes (NaN where there is none), the least trace `from_below` and `from_above` as shares
    of 4√d, and 1 for `contradicted` where faces that an attack of so many `tries` per label finds
    by linear programs alone contradict the outcome.
    """

    d: int
    n: int
    nodes: int = 20_000
    faces: int = 3
    tries: int = 20

    def compute(self, seed: int) -> Mapping[str, Any]:
        data = ft.Xor(self.d).draw(self.n, seed)
        decided = ft.decide_faces(
            ft.MLP(4), data, four_neurons(self.d), nodes=self.nodes, faces=self.faces
        )
        found = {outcome: float(decided.outcome == outcome) for outcome in OUTCOMES} | {
            "decided": float(decided.outcome != "open"),
            "dead": float(decided.dead is not None),
            "others": decided.others,
            "weight": decided.weight,
            "test_error": _test_error(decided, data),
            "from_below": decided.bound / (4 * np.sqrt(self.d)),
            "from_above": decided.above / (4 * np.sqrt(self.d)),
            "contradicted": float(contradicted(decided, data, self.tries, seed)),
        }
        return {name: np.array([value]) for name, value in found.items()}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        shown = (*OUTCOMES, "dead", "others", "weight", "test_error", "from_above")
        return {name: float(series[name].item()) for name in shown}


def four_neurons(d: int) -> np.ndarray:
    """±x[1] ± x[2]: the neurons of the generalizer."""
    return ft.Xor(d).neurons()


def _test_error(decided: "ft.Decision", data: ft.Dataset) -> float:
    """The share of points where the network that refutes is strictly wrong, so that the flattest
    networks near it are; where neurons along a dead direction are free, the share of points on
    which one of them, large and of the worse sign, makes a flattest network err."""
    assert data.distribution is not None
    population = data.distribution.population(10_000)
    x, y = population.x, population.y
    if decided.dead is not None:
        reached = x @ decided.dead > STRICTLY
        return float(max((reached & (y > 0)).mean(), (reached & (y < 0)).mean()))
    if decided.params is None:
        return float("nan")
    model = ft.MLP(len(decided.params["W2"]))
    return float(np.mean(y * ft.predict(model, decided.params, x, x) < -STRICTLY))


def contradicted(decided: "ft.Decision", data: ft.Dataset, tries: int, seed: int) -> bool:
    """Whether faces found by linear programs contradict the decision: "proven", and they carry
    weight in a cover; "not approached", and they cover the labels."""
    from flattest.flatness.convex.certificate import SIGNS
    from flattest.flatness.convex.faces import greatest_weight

    if decided.outcome not in ("proven", "not approached"):
        return False
    rng = np.random.default_rng(seed)
    Z, signs = data.x / np.linalg.norm(data.x, axis=1, keepdims=True), np.sign(data.y)
    weights = []
    for sign in SIGNS:
        found = [f for f in (_greedy_face(Z, signs == sign, rng) for _ in range(tries)) if f]
        weights.append(greatest_weight(Z, signs == sign, four_neurons(data.d), found))
    if decided.outcome == "proven":
        return any(weight is None or weight > 1e-6 for weight in weights)
    return all(weight is not None for weight in weights)


def _greedy_face(Z: np.ndarray, own: np.ndarray, rng: np.random.Generator):
    """A label-pure face from a random set S of the label's rows: the linear program max Σ_S v·z
    over v·z ≤ 1 on S, ≤ 0 elsewhere, and S cut to the rows that come out largest, until all are
    1."""
    from scipy.optimize import linprog

    from flattest.flatness.convex.faces import TIGHT, Face

    S = own & (rng.random(len(Z)) < rng.uniform(0.1, 1.0))
    while S.any():
        worth = rng.uniform(0.5, 1.5, len(Z)) * S
        v = linprog(-(worth @ Z), A_ub=Z, b_ub=S.astype(float), bounds=(None, None)).x
        h = Z @ v
        if (h[S] >= 1 - TIGHT).all():
            return Face(v, S)
        S = S & (h > min(0.999, np.median(h[S])))
    return None
