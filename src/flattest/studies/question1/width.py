"""With bias: from which width on does a flattest network without dead neurons err?

On the cube with bias every label-pure face is an equality case of the bound 4√(d + 1), and a
network of disjoint faces that contain all training points is flattest. For each label a set-cover
program takes at most m/2 faces: b_jh = 1 where neuron j has training point h (v_j·x̃_h = √(d + 1)),
v_j·x̃_h ≤ 0 elsewhere, each point of the label in exactly one face, and as many unseen points of the
label as possible on which all these neurons are ≤ 0: there the network is not of the label's sign,
an error. So every number is a test error that some flattest network of that width has, up to
limits: the greatest is at least that. Weights are bounded by the constant `largest`.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.experiment import Computed


class Width(Computed, frozen=True, tag="question1/width"):
    """The greatest test error found on the unseen points of the cube against the width, for one
    draw of n different points of xor: `error`, an entry per width 2, 4, …, NaN where the programs
    found no network; `begins`, the least width with an error."""

    d: int = 4
    n: int = 10
    widths: tuple[int, ...] = (2, 4, 6, 8, 10)
    nodes: int = 3000
    largest: float = 20.0

    def compute(self, seed: int) -> Mapping[str, Any]:
        data = ft.xor(n=self.n, d=self.d, seed=seed, distinct=True)
        cube = np.array(list(product((-1.0, 1.0), repeat=self.d)))
        seen = (cube[:, None] == data.x[None]).all(axis=2).any(axis=1)
        unseen = cube[~seen]
        labels = unseen[:, 0] * unseen[:, 1]
        most = {
            sign: [self._silenced(data, unseen[labels == sign], sign, m // 2) for m in self.widths]
            for sign in (1.0, -1.0)
        }
        error = (np.array(most[1.0]) + np.array(most[-1.0])) / len(unseen)
        errs = np.flatnonzero(error > 0)
        begins = self.widths[errs[0]] if len(errs) else np.nan
        return {"error": error, "begins": np.array([begins], float)}

    def _silenced(self, data: ft.Dataset, unseen: np.ndarray, sign: float, m: int) -> float:
        """How many unseen points of a label at most m faces leave without an active neuron."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        z = np.sqrt(self.d + 1)
        rows = [np.column_stack([x, np.ones(len(x))]) / z for x in (data.x, unseen)]
        own = data.y == sign
        mine, theirs, other = rows[0][own], rows[0][~own], rows[1]
        M, D = self.largest * z, self.d + 1
        k, u, parts = len(mine), len(other), []
        size = m * D + m * k + u

        def block(j: int, points: np.ndarray, b: float = 0.0, e: float = 0.0) -> np.ndarray:
            """points·v_j + b b_j + e e."""
            A = np.zeros((len(points), size))
            A[:, j * D : (j + 1) * D] = points
            if b:
                A[:, m * D + j * k : m * D + (j + 1) * k] = b * np.eye(k)
            if e:
                A[:, m * D + m * k :] = e * np.eye(u)
            return A

        for j in range(m):
            parts.append(LinearConstraint(block(j, theirs), -np.inf, 0.0))
            parts.append(LinearConstraint(block(j, mine, b=-1.0), -np.inf, 0.0))
            parts.append(LinearConstraint(block(j, mine, b=-(1.0 + M)), -M, np.inf))
            parts.append(LinearConstraint(block(j, other, e=M), -np.inf, M))
        once = np.zeros((k, size))
        for j in range(m):
            once[:, m * D + j * k : m * D + (j + 1) * k] = np.eye(k)
        parts.append(LinearConstraint(once, 1.0, 1.0))
        binary = np.arange(size) >= m * D
        found = milp(
            -(np.arange(size) >= m * D + m * k).astype(float),
            constraints=parts,
            integrality=binary.astype(float),
            bounds=Bounds(
                np.where(binary, 0.0, -self.largest), np.where(binary, 1.0, self.largest)
            ),
            options={"node_limit": self.nodes},
        )
        return float(np.round(-found.fun)) if found.x is not None else np.nan

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        named = zip(self.widths, series["error"], strict=True)
        return {f"width {m}": float(e) for m, e in named} | {
            "begins": float(series["begins"].item())
        }
