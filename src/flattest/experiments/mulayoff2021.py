"""The experiments of mulayoff2021: step sizes and the functions gradient descent finds.

    flattest run mulayoff2021/…          one sweep of 200 step sizes takes about a minute on 2 cores

The data and the scale of the initialization are unknown. Chosen here: x one to each of n = 10 even
cells of [−1, 1], y ~ N(0, 0.3²), and PyTorch's standard initialization times a factor; 40 for
Section 5, so that λ_max(θ_0) ≈ 2·10⁴ and the run with the smallest step already starts at the edge.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from flattest.algorithms import Phase, StepChange, gd
from flattest.data import Dataset, Univariate
from flattest.experiments import Computed, Experiment, Variant
from flattest.experiments.expectations import AtLeast, AtMost, Everywhere, RankCorrelation
from flattest.losses import HalfMSE
from flattest.models import MLP, Init, Params
from flattest.stability.functions import Network
from flattest.stability.implementation import flattest_implementation, orbit_pencil
from flattest.stability.modes import (
    gradient_bound,
    gram_top_eigenvalue,
    mode_range,
    strongly_stable_sharpness,
    tangent_features,
    toggles_per_sample,
    with_knots_at,
)
from flattest.stability.weights import (
    sharpness_threshold,
    theorem1_threshold,
    weighted_total_variation,
)
from flattest.train.univariate import Descent, descend, switches

EDGE = 0.02
"""A minimum is at the edge of stability where λ_max is within 2 % of 2/η."""
WATCH = 10_000
"""Steps over which a run at rest is watched for knots that it keeps crossing."""


class Descending(Computed, frozen=True):
    """What the experiments share: n points, a network of k neurons and its scaled initialization.

    Data and initial point follow from the seed. GD has converged where L has stayed ≤ stop_loss
    for `settle` further steps, within `steps`. The paper stops at once (settle = 0), which counts
    runs that pass below stop_loss while they still follow 2/η down during the warm-up. A run that
    has converged goes on to L ≤ rest_loss, to tell knots on data points from knots near them, and
    then for `averaged` steps more, over which the mean of λ_max is taken.
    """

    n: int = 10
    width: int = 80
    distribution: Univariate = Univariate(noise=0.3)
    init_factor: float = 40.0
    warmup: int = 500_000
    steps: int = 2_000_000
    stop_loss: float = 1e-8
    settle: int = 10_000
    rest_loss: float = 1e-16
    averaged: int = 200

    @property
    def runs(self) -> int:
        """How many times gradient descent is run."""
        raise NotImplementedError

    @property
    def cost(self) -> float:
        """Multiplications in the products with weight matrices, an order of magnitude."""
        return float(self.runs) * self.steps * self.n * 3 * self.width

    @property
    def model(self) -> MLP:
        return scaled_network(self.width, self.init_factor)

    def data(self, seed: int) -> Dataset:
        return self.distribution.draw(self.n, seed)

    def phase(self, lr: float, **settings: Any) -> Phase:
        return gd(lr, steps=self.steps, warmup=self.warmup, stop_loss=self.stop_loss, **settings)

    def rest(self, lr: float) -> Phase:
        return gd(lr, steps=self.steps, stop_loss=self.rest_loss)


def scaled_network(width: int, factor: float) -> MLP:
    """The univariate network with every initial parameter multiplied by `factor`."""
    scales = tuple((name, factor) for name in ("W1", "b1", "W2", "b_out"))
    return MLP(width, bias=True, output_bias=True, initialization=Init(scales=scales))


class TwoStepSizes(Descending, frozen=True, tag="mulayoff2021/two-step-sizes"):
    """η constant, and the same run with the step times `factor` once L < `below` (Figure 1)."""

    lr: float = 1e-4
    factor: float = 3.0
    below: float = 0.1
    warmup: int = 0
    init_factor: float = 27.0
    distribution: Univariate = Univariate(noise=1.0)
    logs: int = 200

    @property
    def runs(self) -> int:
        return 2

    def compute(self, seed: int) -> Mapping[str, Any]:
        data = self.data(seed)
        change = StepChange(below=self.below, factor=self.factor)
        phases = [self.phase(self.lr), self.phase(self.lr, step_change=change)]
        marks = np.unique(np.geomspace(1, self.steps, self.logs).astype(int))
        found = descend(self.model.init(1, seed), data, phases, marks, settle=self.settle)
        trace = [[_sharpness(theta, data) for theta in run] for run in found.trace_theta]
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
        data, lr = self.data(seed), np.geomspace(self.lowest, self.highest, self.count)
        found = descend(
            self.model.init(1, seed),
            data,
            [self.phase(float(step)) for step in lr],
            settle=self.settle,
        )
        return measured(self, self.model, found, data, lr)


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
        data, lr = self.data(seed), np.geomspace(self.lowest, self.highest, self.count)
        phases = [self.phase(float(step)) for step in lr]
        sweeps = {}
        for factor in self.factors:
            model = scaled_network(self.width, factor)
            found = descend(model.init(1, seed), data, phases, settle=self.settle)
            sweeps[factor] = measured(self, model, found, data, lr)
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
    "smooth_sharpness",
    "mean_sharpness",
    "least_mode",
    "greatest_mode",
    "strong_threshold",
    "knots_on_data",
    "flattest",
    "bound",
    "threshold",
    "variation",
    "steps",
    "converged",
)


def spread_below_threshold(sweep: Mapping[str, np.ndarray]) -> np.ndarray:
    """max/min − 1 of λ_max over the steps with λ_max < 1/η, half of what would be stable."""
    below = sweep["sharpness"][sweep["sharpness"] < 0.5 * sweep["threshold"]]
    return np.array([below.max() / below.min() - 1 if below.size > 2 else np.nan])


class Minimum(NamedTuple):
    """What is measured of a minimum that descent with step η has come to rest at.

    `sharpness` is λ_max at the last iterate. Where knots lie on data points L has no Hessian, but
    one for each mode of I (S54), and descent goes from mode to mode. `mean_sharpness` is the mean
    of λ_max over its next steps: a distance along a top eigenvector that the modes share is
    multiplied by Π_t (1 − ηλ_t), which at the edge stays bounded where the mean is ≤ 2/η.
    `least_mode` and `greatest_mode` are the least and the greatest λ_max of all modes, and
    `strong_threshold` is (S75), which is 2/η where there is one mode.
    """

    sharpness: float
    mean_sharpness: float
    flattest: float
    dual: float
    variation: float
    top_vector_gap: float
    knots_on_data: float
    least_mode: float
    greatest_mode: float
    strong_threshold: float


NOT_COUNTED = Minimum(*[np.nan] * len(Minimum._fields))


def measured(
    task: Descending, model: MLP, found: Descent, data: Dataset, lr: np.ndarray
) -> dict[str, np.ndarray]:
    """Every field of `Minimum` per run, Lemma 4's bound, 2/η, 1/η − 1/2, and the exclusions.

    NaN where the run did not converge or come to rest, or converged during the warm-up and so at
    another step size; `excluded_unconverged` and `excluded_in_warmup` count these. Lemma 1 is about
    minima where L is twice differentiable: `smooth_sharpness` is NaN at the `excluded_on_knots`
    others too.
    """
    converged, theta, loss = found.converged.copy(), found.theta.copy(), found.loss.copy()
    minima = [NOT_COUNTED] * lr.size
    for run in map(int, np.flatnonzero(converged & ~found.in_warmup)):
        rested = descend(found.network(run), data, [task.rest(lr[run])], threads=1)
        theta[run], loss[run], converged[run] = rested.theta[0], rested.loss[0], rested.converged[0]
        if converged[run]:
            minima[run] = minimum(task, model, rested.network(0), data, lr[run])
    counted = converged & ~found.in_warmup
    columns = {name: np.array([getattr(each, name) for each in minima]) for name in Minimum._fields}
    threshold = np.array([sharpness_threshold(step) for step in lr])
    sharpness, variation = columns["sharpness"], columns["variation"]
    smooth = columns["knots_on_data"] == 0
    return columns | {
        "lr": lr,
        "smooth_sharpness": np.where(smooth, sharpness, np.nan),
        "bound": 1 + 2 * variation,
        "threshold": threshold,
        "variation_threshold": np.array([theorem1_threshold(step) for step in lr]),
        "counted_threshold": threshold[counted],
        "counted_sharpness": sharpness[counted],
        "counted_variation": variation[counted],
        "steps": found.steps,
        "final_loss": loss,
        "converged": converged.astype(float),
        "counted": np.array([counted.sum()]),
        "at_edge": np.array([(np.abs(sharpness / threshold - 1) <= EDGE).sum()]),
        "smooth": np.array([smooth.sum()]),
        "excluded_in_warmup": np.array([(converged & found.in_warmup).sum()]),
        "excluded_unconverged": np.array([(~converged).sum()]),
        "excluded_on_knots": np.array([(counted & ~smooth).sum()]),
        "theta": theta,
        "x": data.x[:, 0],
        "y": data.y,
    }


def minimum(task: Descending, model: MLP, network: Network, data: Dataset, lr: float) -> Minimum:
    x = data.x[:, 0]
    best = flattest_implementation(model, network.params, data)
    knotted = with_knots_at(network, x, switches(network, data, lr, WATCH))
    least_mode, greatest_mode = mode_range(knotted, x)
    share = toggles_per_sample(knotted, x).max() / x.size
    return Minimum(
        sharpness=gram_top_eigenvalue(tangent_features(network, x)),
        mean_sharpness=_mean_sharpness(task, network, data, lr),
        flattest=best.value,
        dual=best.dual,
        variation=weighted_total_variation(network, x),
        top_vector_gap=top_vector_gap(model, best.params, data),
        knots_on_data=float(toggles_per_sample(knotted, x).sum()),
        least_mode=least_mode,
        greatest_mode=greatest_mode,
        strong_threshold=strongly_stable_sharpness(lr, gradient_bound(knotted, x), share),
    )


def top_vector_gap(model: MLP, params: Params, data: Dataset) -> float:
    """λ_max / (S88) − 1 at the top eigenvector alone, the certificate of the paper."""
    pencil = orbit_pencil(model, params, data, HalfMSE())
    values, vectors = np.linalg.eigh(pencil.matrix(np.zeros(model.width)))
    return values[-1] / pencil.dual_value(np.outer(vectors[:, -1], vectors[:, -1])) - 1


def _mean_sharpness(task: Descending, network: Network, data: Dataset, lr: float) -> float:
    """Mean of λ_max over further steps; infinite where descent leaves the minimum in them."""
    phase = gd(lr, steps=task.averaged)
    found = descend(network, data, [phase], range(task.averaged), threads=1)
    if not found.trace_loss.max() <= task.stop_loss:
        return np.inf
    return float(np.mean([_sharpness(theta, data) for theta in found.trace_theta[0]]))


def _sharpness(theta: np.ndarray, data: Dataset) -> float:
    if np.isnan(theta).any():
        return np.nan
    return gram_top_eigenvalue(tangent_features(Network.from_theta(theta), data.x))


QUICK_TWO = TwoStepSizes(steps=1_500_000, logs=50)
QUICK_SWEEP = StepSizeSweep(
    init_factor=20.0, warmup=100_000, steps=400_000, settle=2_000, lowest=1e-3, count=16
)
QUICK_INITS = InitMagnitudes(
    lowest=2e-3, highest=0.1, count=8, factors=(3.0, 24.0), steps=1_000_000
)

# Lemma 1, at the last iterate, wherever L is twice differentiable.
STABLE = Everywhere(series="smooth_sharpness", at_most="threshold", slack=1e-3)
# The same of every minimum that descent came to, on average over the modes it goes through; and no
# mode is above (S75).
STABLE_ON_AVERAGE = Everywhere(series="mean_sharpness", at_most="threshold", slack=1e-3)
GREATEST_MODE = Everywhere(series="greatest_mode", at_most="strong_threshold", slack=1e-3)
EVERY_MINIMUM = (STABLE_ON_AVERAGE, GREATEST_MODE)
FLATTER = AtMost(series="flattest_ratio", value=0.7)
FALLS = RankCorrelation(x="counted_threshold", y="counted_sharpness", at_least=0.95)
ONE_MINIMUM = AtMost(series="spread_below_threshold", value=0.02)
SWEEP = (
    STABLE,
    *EVERY_MINIMUM,
    FALLS,
    RankCorrelation(x="counted_threshold", y="counted_variation", at_least=0.8),
    Everywhere(series="variation", at_most="variation_threshold"),
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
    Experiment(
        name="mulayoff2021/figure1",
        figure="Figure 1 (main text)",
        claim="The same run with the step trebled once L < 0.1 ends in a flatter function.",
        quick=Variant(QUICK_TWO, seeds=2, expectations=(*EVERY_MINIMUM, FLATTER)),
        full=Variant(TwoStepSizes(), seeds=5, expectations=(*EVERY_MINIMUM, FLATTER)),
        notes="Initialization times 27, so that the minimum at η = 1e-4 is unstable at 3e-4.",
    ),
    Experiment(
        name="mulayoff2021/sweep",
        figure="Figure 3 (Section 5), Figures 1 and 2 of the supplement",
        claim="λ_max stays under 2/η and follows it at the edge; functions get smoother with η.",
        quick=Variant(QUICK_SWEEP, seeds=2, expectations=(*SWEEP, *enough(10, smooth=5))),
        full=Variant(StepSizeSweep(), seeds=3, expectations=(*SWEEP, *enough(150, smooth=75))),
        notes=SWEEP_NOTES,
    ),
    Experiment(
        name="mulayoff2021/init-magnitudes",
        figure="Figure 3 (supplement)",
        claim="For a moderate initialization the step matters only above a threshold; for a large "
        "one λ_max falls with every increase.",
        quick=Variant(
            QUICK_INITS, seeds=1, expectations=(STABLE, *EVERY_MINIMUM, ONE_MINIMUM, FALLS)
        ),
        full=Variant(
            InitMagnitudes(), seeds=2, expectations=(STABLE, *EVERY_MINIMUM, ONE_MINIMUM, FALLS)
        ),
        notes="Warm-up of 1e5 steps instead of 5e5: with the longer one moderate initializations "
        "converge while the step still grows, and would all be excluded near the threshold.",
    ),
)
