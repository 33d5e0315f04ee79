"""The experiments of mulayoff2021: step sizes and the functions gradient descent finds.

    flattest run mulayoff2021/…          one sweep of 200 step sizes takes about a minute on 2 cores

The data and the scale of the initialization are unknown. Chosen here: x one to each of n = 10 even
cells of [−1, 1], y ~ N(0, 0.3²), and PyTorch's standard initialization times a factor; 40 for
Section 5, so that λ_max(θ_0) ≈ 2·10⁴ and the run with the smallest step already starts at the edge.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

import flattest as ft
from flattest.experiments.expectations import (
    AtLeast,
    AtMost,
    Everywhere,
    RankCorrelation,
    rank_correlation,
)
from flattest.experiments.experiment import Computed

SLACK = 1e-3
"""λ_max ≤ 2/η is asked for to this relative accuracy."""


class Descending(Computed, frozen=True):
    """What the experiments share: n points, a network of k neurons and its scaled initialization.

    Data and initial point follow from the seed. GD has converged where L has stayed ≤ stop_loss
    for `settle` further steps, within `steps`. The paper stops at once (settle = 0), which counts
    runs that pass below stop_loss while they still follow 2/η down during the warm-up. A run that
    has converged goes on to L ≤ rest_loss and is then watched for `watched` steps, to tell knots on
    data points, which it keeps crossing, from knots near them; over the first `averaged` of these
    steps the mean of λ_max is taken. `arithmetic` is part of the key: before it was portable, sums
    were in an order of the processor's, and descent at a large step magnifies the last bit.
    """

    n: int = 10
    width: int = 80
    distribution: ft.Univariate = ft.Univariate(noise=0.3)
    init_factor: float = 40.0
    warmup: int = 500_000
    steps: int = 2_000_000
    stop_loss: float = 1e-8
    settle: int = 10_000
    rest_loss: float = 1e-16
    watched: int = 10_000
    averaged: int = 200
    arithmetic: Literal["portable"] = "portable"

    @property
    def runs(self) -> int:
        """How many times gradient descent is run."""
        raise NotImplementedError

    @property
    def cost(self) -> float:
        """Multiplications in the products with weight matrices, an order of magnitude."""
        return float(self.runs) * self.steps * self.n * 3 * self.width

    @property
    def model(self) -> ft.MLP:
        return scaled_network(self.width, self.init_factor)

    def data(self, seed: int) -> ft.Dataset:
        return self.distribution.draw(self.n, seed)

    def phase(self, lr: float, **settings: Any) -> ft.Phase:
        return ft.gd(lr, steps=self.steps, warmup=self.warmup, stop_loss=self.stop_loss, **settings)

    def rest(self, lr: float) -> ft.Phase:
        return ft.gd(lr, steps=self.steps, stop_loss=self.rest_loss)

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """What became of the runs, and the largest excess of every λ_max over 2/η in per cent."""
        from flattest.papers.mulayoff2021.descents import EDGE

        counted, converged = np.isfinite(series["sharpness"]), series["converged"] == 1
        knots = series["knots_on_data"]
        per_cent = {
            name: 100 * (series[name] / series["threshold"] - 1)
            for name in ("sharpness", "mean_sharpness", "last_sharpness", "upper_sharpness")
        }
        return {
            "counted": counted.sum(),
            "converged in the warm-up": (converged & ~counted).sum(),
            "not converged": (~converged).sum(),
            "at the edge": (np.abs(per_cent["sharpness"]) <= 100 * EDGE).sum(),
            "with knots on data": (knots > 0).sum(),
            "most such knots": largest(knots),
            "sharpness over 2/η, %": largest(per_cent["sharpness"]),
            "mean of the steps, %": largest(per_cent["mean_sharpness"]),
            "last step, %": largest(per_cent["last_sharpness"]),
            "last step above by 0.1 %": (per_cent["last_sharpness"] > 100 * SLACK).sum(),
            "upper, %": largest(per_cent["upper_sharpness"]),
            "upper above by 0.1 %": (per_cent["upper_sharpness"] > 100 * SLACK).sum(),
            "upper / (S75), with knots": largest(
                (series["upper_sharpness"] / series["strong_threshold"])[knots > 0]
            ),
            "∫abs(f″)g / (1/η − 1/2)": largest(series["variation"] / series["variation_threshold"]),
            "bound / flattest": largest(series["bound"] / series["flattest"]),
            "flattest / sharpness": largest(series["flattest"] / series["sharpness"]),
            "duality gap": largest(series["flattest"] / series["dual"] - 1),
            "gap of the top vector": largest(np.abs(series["top_vector_gap"])),
        }


def largest(values: np.ndarray) -> float:
    """Of those that are numbers; NaN where none is."""
    numbers = values[~np.isnan(values)]
    return float(numbers.max()) if numbers.size else np.nan


def scaled_network(width: int, factor: float) -> ft.MLP:
    """The univariate network with every initial parameter multiplied by `factor`."""
    scales = tuple((name, factor) for name in ("W1", "b1", "W2", "b_out"))
    return ft.MLP(width, bias=True, output_bias=True, initialization=ft.Init(scales=scales))


class TwoStepSizes(Descending, frozen=True, tag="mulayoff2021/two-step-sizes"):
    """η constant, and the same run with the step times `factor` once L < `below` (Figure 1)."""

    lr: float = 1e-4
    factor: float = 3.0
    below: float = 0.1
    warmup: int = 0
    init_factor: float = 27.0
    distribution: ft.Univariate = ft.Univariate(noise=1.0)
    logs: int = 200

    @property
    def runs(self) -> int:
        return 2

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.papers.mulayoff2021.descents import measured, sharpness_at
        from flattest.training.univariate import descend

        data = self.data(seed)
        change = ft.StepChange(below=self.below, factor=self.factor)
        phases = [self.phase(self.lr), self.phase(self.lr, step_change=change)]
        marks = np.unique(np.geomspace(1, self.steps, self.logs).astype(int))
        found = descend(self.model.init(1, seed), data, phases, marks, settle=self.settle)
        trace = [[sharpness_at(theta, data) for theta in run] for run in found.trace_theta]
        lr = np.array([self.lr, self.lr * self.factor])
        result = measured(self, self.model, found, data, lr)
        return {
            **result,
            "flattest_ratio": result["flattest"][1:] / result["flattest"][:1],
            "variation_ratio": result["variation"][1:] / result["variation"][:1],
            "epoch": found.marks,
            "train_loss": found.trace_loss.T,
            "sharpness_trace": np.array(trace).T,
        }


class StepSizeSweep(Descending, frozen=True, tag="mulayoff2021/step-size-sweep"):
    """One initial point, many step sizes, log-spaced, with a linear warm-up (Section 5)."""

    lowest: float = 1e-4
    highest: float = 0.5
    count: int = 200

    @property
    def runs(self) -> int:
        return self.count

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.papers.mulayoff2021.descents import swept

        lr = np.geomspace(self.lowest, self.highest, self.count)
        return swept(self, self.model, seed, lr)

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        sharpness, variation = series["counted_sharpness"], series["counted_variation"]
        threshold = series["counted_threshold"]
        centre, whole = central_variation(series)
        return {
            **super().columns(series),
            "sharpness ↔ 2/η": rank_correlation(threshold, sharpness),
            "∫abs(f″)g ↔ 2/η": rank_correlation(threshold, variation),
            "∫abs(f″) ↔ 2/η": rank_correlation(threshold, whole),
            "∫abs(f″) at the centre ↔ 2/η": rank_correlation(threshold, centre),
            "its share at the centre ↔ 2/η": rank_correlation(threshold, centre / whole),
        }


def central_variation(series: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """∫|f″| over the central half of the inputs, between their quartiles, and over all of their
    range, for each minimum that counts."""
    from flattest.stability.functions import UnivariateNetwork
    from flattest.stability.weights import variation_within

    low, left, right, high = np.quantile(series["x"], [0, 0.25, 0.75, 1])
    thetas = series["theta"][np.isfinite(series["sharpness"])]
    found = [UnivariateNetwork.from_theta(theta) for theta in thetas]
    return (
        np.array([variation_within(f, left, right) for f in found]),
        np.array([variation_within(f, low, high) for f in found]),
    )


class InitMagnitudes(Descending, frozen=True, tag="mulayoff2021/init-magnitudes"):
    """Sharpness against the step size for several scales of the initialization (supplement 3)."""

    lowest: float = 1e-3
    highest: float = 1.5
    count: int = 100
    factors: tuple[float, ...] = (3.0, 6.0, 12.0, 24.0, 48.0)
    warmup: int = 100_000
    settle: int = 2_000

    @property
    def runs(self) -> int:
        return self.count * len(self.factors)

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.papers.mulayoff2021.descents import swept

        lr = np.geomspace(self.lowest, self.highest, self.count)
        models = {factor: scaled_network(self.width, factor) for factor in self.factors}
        sweeps = {factor: swept(self, model, seed, lr) for factor, model in models.items()}
        curves = {name: np.array([s[name] for s in sweeps.values()]) for name in _CURVES}
        largest = sweeps[max(self.factors)]
        return curves | {
            "factor": np.array(self.factors),
            "spread_below_threshold": spread_below_threshold(sweeps[min(self.factors)]),
            "counted_threshold": largest["counted_threshold"],
            "counted_sharpness": largest["counted_sharpness"],
        }


_CURVES = (
    "lr",
    "sharpness",
    "mean_sharpness",
    "last_sharpness",
    "upper_sharpness",
    "strong_threshold",
    "knots_on_data",
    "flattest",
    "dual",
    "bound",
    "threshold",
    "variation",
    "variation_threshold",
    "top_vector_gap",
    "steps",
    "converged",
)


def spread_below_threshold(sweep: Mapping[str, np.ndarray]) -> np.ndarray:
    """max/min − 1 of λ_max over the steps with λ_max < 1/η, half of what would be stable."""
    below = sweep["sharpness"][sweep["sharpness"] < 0.5 * sweep["threshold"]]
    return np.array([below.max() / below.min() - 1 if below.size > 2 else np.nan])


QUICK_TWO = TwoStepSizes(steps=1_500_000, logs=50)
QUICK_SWEEP = StepSizeSweep(
    init_factor=20.0, warmup=100_000, steps=400_000, settle=2_000, lowest=1e-3, count=16
)
QUICK_INITS = InitMagnitudes(
    lowest=2e-3, highest=0.1, count=8, factors=(3.0, 24.0), steps=1_000_000
)

# At every minimum: Lemma 1 where L is twice differentiable, on [−1, 1] the least mode elsewhere.
STABLE = Everywhere(series="sharpness", at_most="threshold", slack=SLACK)
# Where knots lie on data points, on average over the modes that descent goes through.
STABLE_ON_AVERAGE = Everywhere(series="mean_sharpness", at_most="threshold", slack=SLACK)
UNDER_S75 = Everywhere(series="upper_sharpness", at_most="strong_threshold", slack=SLACK)
EVERY_MINIMUM = (STABLE, STABLE_ON_AVERAGE, UNDER_S75)
FLATTER = AtMost(series="flattest_ratio", value=0.7)
UNDER_THEOREM_1 = Everywhere(series="variation", at_most="variation_threshold")
FALLS = RankCorrelation(x="counted_threshold", y="counted_sharpness", at_least=0.95)
SMOOTHER = RankCorrelation(x="counted_threshold", y="counted_variation", at_least=0.8)
ONE_MINIMUM = AtMost(series="spread_below_threshold", value=1e-5)
SWEEP = (
    *EVERY_MINIMUM,
    FALLS,
    SMOOTHER,
    UNDER_THEOREM_1,
    Everywhere(series="bound", at_most="flattest"),
    Everywhere(series="flattest", at_most="sharpness"),
    Everywhere(series="flattest", at_most="dual", slack=1e-6),
)


def enough(counted: float, smooth: float) -> tuple[AtLeast, ...]:
    """How many runs count, lie at the edge, and have no knot on a data point."""
    return (
        AtLeast(series="counted", value=counted),
        AtLeast(series="at_edge", value=counted),
        AtLeast(series="smooth", value=smooth),
    )


SWEEP_NOTES = (
    "Paper: 2 of 200 runs converged during the warm-up and 15 not at all; both kinds are excluded "
    "and counted here too. Data and scale of the initialization are unknown and chosen here."
)

EXPERIMENTS = (
    ft.Experiment(
        name="mulayoff2021/figure1",
        figure="Figure 1 (main text)",
        statement="The same run with the step trebled once L < 0.1 ends in a flatter function.",
        quick=ft.Variant(QUICK_TWO, seeds=2, expectations=(*EVERY_MINIMUM, FLATTER)),
        full=ft.Variant(TwoStepSizes(), seeds=5, expectations=(*EVERY_MINIMUM, FLATTER)),
        notes="Initialization times 27, so that the minimum at η = 1e-4 is unstable at 3e-4.",
    ),
    ft.Experiment(
        name="mulayoff2021/sweep",
        figure="Figure 3 (Section 5), Figures 1 and 2 of the supplement",
        statement="λ_max stays under 2/η and follows it at the edge; functions get smoother with "
        "η.",
        quick=ft.Variant(QUICK_SWEEP, seeds=2, expectations=(*SWEEP, *enough(10, smooth=5))),
        full=ft.Variant(StepSizeSweep(), seeds=3, expectations=(*SWEEP, *enough(150, smooth=75))),
        notes=SWEEP_NOTES,
    ),
    ft.Experiment(
        name="mulayoff2021/init-magnitudes",
        figure="Figure 3 (supplement)",
        statement="For a moderate initialization the step matters only above a threshold; for a "
        "large one λ_max falls with every increase.",
        quick=ft.Variant(QUICK_INITS, seeds=1, expectations=(*EVERY_MINIMUM, ONE_MINIMUM, FALLS)),
        full=ft.Variant(
            InitMagnitudes(), seeds=2, expectations=(*EVERY_MINIMUM, ONE_MINIMUM, FALLS)
        ),
        notes="Warm-up of 1e5 steps instead of 5e5: with the longer one moderate initializations "
        "converge while the step still grows, and would all be excluded near the threshold.",
    ),
)
