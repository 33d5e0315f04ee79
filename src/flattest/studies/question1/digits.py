"""Question 1 on real data: two classes of handwritten digits, inputs of length 1.

Points of a sphere are all extreme, so that with bias the least trace is 4√2 for labels ±1, whatever
the data, and a memorizer has it (wen2023, Theorem 4.1). Without bias it is 4 where each input has a
half-space of its own, v·x_i > 0 > v·x_j: one linear program per input decides.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.experiment import Computed

PHASES: dict[str, dict[str, Any]] = {
    "gd": {"lr": 0.1},
    "sgd": {"lr": 0.05},
    "adam": {"lr": 0.001, "batch": None},
    "sam": {"lr": 0.05, "rho": 0.1},
    "label_noise_sgd": {"lr": 0.05, "label_noise": 0.5},
}


class DigitsRuns(Computed, frozen=True, tag="question1/digits"):
    """Where an algorithm ends between its start and the least trace, and its test error there.

    Series along the run; columns: the trace over the least at the start, where the training loss
    first falls below 0.01, and at the end; test errors at the two latter, and the smallest.
    """

    algorithm: str
    n: int = 100
    width: int = 100
    epochs: int = 3000
    points: int = 30

    def compute(self, seed: int) -> Mapping[str, Any]:
        data = digits(self.n, seed)
        phase = getattr(ft, self.algorithm)(epochs=self.epochs, **PHASES[self.algorithm])
        model, log = ft.MLP(self.width, bias=True), ft.Log(points=self.points)
        run = ft.train(model, data, [phase], seed=seed, log=log)
        least = ft.memorizer(data).certificate.value
        return {
            "epoch": run["epoch"],
            "loss": run["train_loss"],
            "excess": run["sharpness"] / least,
            "test_error": run["test_error"],
            "least": np.array([least]),
        }

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        loss, excess, error = series["loss"], series["excess"], series["test_error"]
        fitted = int(np.argmax(loss <= 0.01)) if (loss <= 0.01).any() else -1
        last = slice(-max(1, len(loss) // 10), None)
        return {
            "start": float(excess[0]),
            "fitted": float(excess[fitted]),
            "end": float(np.median(excess[last])),
            "error_fitted": float(error[fitted]),
            "error_least": float(error.min()),
            "error_end": float(np.median(error[last])),
            "loss_end": float(np.median(loss[last])),
        }


class DigitsWithoutBias(Computed, frozen=True, tag="question1/digits-no-bias"):
    """Without bias, for so many images: `own`, the share of inputs with a half-space of their own
    (1: the least is 4, and a memorizer has it), and `free`, the share of held-out images that some
    half-space free of training inputs contains, where flattest networks say anything at all."""

    n: int = 100

    def compute(self, seed: int) -> Mapping[str, Any]:
        data = digits(self.n, seed)
        assert data.distribution is not None
        test = data.distribution.population(10_000)
        own = [depth_alone(data.x, i) > 1e-6 for i in range(self.n)]
        free = [_outside_cone(data.x, x) for x in test.x]
        return {"own": np.array([np.mean(own)]), "free": np.array([np.mean(free)])}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values.item()) for name, values in series.items()}


def digits(n: int, seed: int) -> ft.Dataset:
    return ft.Digits(inputs="unit").draw(n, seed)


def depth_alone(x: np.ndarray, i: int) -> float:
    """The largest δ ≤ 1 for which some v in the cube has v·x_i ≥ δ and v·x_j ≤ −δ elsewhere."""
    from scipy.optimize import linprog

    d, sides = x.shape[1], np.where(np.arange(len(x)) == i, 1.0, -1.0)
    found = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([-sides[:, None] * x, np.ones(len(x))]),
        b_ub=np.zeros(len(x)),
        bounds=[(-1, 1)] * d + [(None, 1)],
    )
    return float(-found.fun)


def _outside_cone(x: np.ndarray, point: np.ndarray) -> bool:
    """Whether a half-space free of the inputs contains the point: it is no nonnegative combination
    of them (Farkas)."""
    from scipy.optimize import nnls

    return bool(nnls(x.T, point)[1] > 1e-8)
