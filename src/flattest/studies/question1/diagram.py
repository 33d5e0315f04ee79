"""The phase diagram of question 1 without bias: xor over n × d, and 1-SAM's own boundary."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.experiment import Computed
from flattest.studies.question1.faces import OUTCOMES, four_neurons

SHARES = (1.8, 2.5, 3.0, 3.5, 4.0, 5.0)
DIMENSIONS = (10, 20, 30, 40)


class Phase(Computed, frozen=True, tag="question1/phase"):
    """One draw of n points of xor in d dimensions: a 1 for its outcome, `dead` where a half-space
    is free of training points, `approached` where the four neurons can be pushed off their kinks,
    so that 4√d is the infimum, and `others` where a label-pure face other than the four exists (a
    half-space free of points among them); ½ where the integer programs ran out of `nodes`.

    Where no other face exists, the outcome follows from the kinks of the four. Else single inputs
    and covers by so many more `faces` may decide (`ft.decide_faces`); with none it stays open.
    """

    d: int
    n: int
    nodes: int = 2000
    faces: int = 2

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.flatness.convex.faces import all_pushable, dead_direction, other_faces

        data, model, four = ft.Xor(self.d).draw(self.n, seed), ft.MLP(4), four_neurons(self.d)
        dead = dead_direction(data.x / np.sqrt(self.d)) is not None
        approached = all_pushable(model, data, four)
        others = "found" if dead else other_faces(model, data, four, self.nodes)
        outcome: str = "proven" if approached else "not approached"
        if dead:
            outcome = "refuted"
        elif others != "none" and not self.faces:
            outcome = "open"
        elif others != "none":
            outcome = ft.decide_faces(model, data, four, nodes=self.nodes, faces=self.faces).outcome
        found = {name: float(outcome == name) for name in OUTCOMES} | {
            "dead": float(dead),
            "approached": float(approached),
            "others": {"found": 1.0, "unknown": 0.5, "none": 0.0}[others],
        }
        return {name: np.array([value]) for name, value in found.items()}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values.item()) for name, values in series.items()}


class Kinks(Computed, frozen=True, tag="question1/kinks"):
    """What linear programs alone say of a draw at each n: `dead`, a half-space is free of training
    points; `approached`, the four neurons can be pushed off their kinks, so that 4√d is the
    infimum."""

    d: int
    shares: tuple[float, ...] = SHARES

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.flatness.convex.faces import all_pushable, dead_direction

        found: dict[str, np.ndarray] = {}
        for n in sizes(self.d, self.shares):
            data = ft.Xor(self.d).draw(n, seed)
            dead = dead_direction(data.x / np.sqrt(self.d)) is not None
            pushable = all_pushable(ft.MLP(4), data, four_neurons(self.d))
            found |= {
                f"dead, n = {n}": np.array([float(dead)]),
                f"approached, n = {n}": np.array([float(pushable)]),
            }
        return found

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values.item()) for name, values in series.items()}


class Sam(Computed, frozen=True, tag="question1/sam"):
    """1-SAM without bias on the same draws, its test error at each n, none where it diverged: the
    paper's setting (width 500, η = 0.01, ρ = 0.05) at a fifth of its epochs."""

    d: int
    shares: tuple[float, ...] = SHARES
    width: int = 500
    epochs: int = 20_000
    lr: float = 0.01

    def compute(self, seed: int) -> Mapping[str, Any]:
        return {f"n = {n}": np.array([self._error(n, seed)]) for n in sizes(self.d, self.shares)}

    def _error(self, n: int, seed: int) -> float:
        data = ft.Xor(self.d).draw(n, seed)
        phase = ft.sam(self.lr, 0.05, epochs=self.epochs)
        run = ft.train(ft.MLP(self.width), data, [phase], seed=seed, log=ft.Log(points=2))
        return np.nan if run.status == "diverged" else float(run["test_error"][-1])

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values.item()) for name, values in series.items()}


def sizes(d: int, shares: tuple[float, ...] = SHARES) -> list[int]:
    return [round(share * d) for share in shares]
