"""The minima that gradient descent converges to, and what is measured of them.

A `task` here is a `Descending` of the experiments, which says how a run that has converged comes to
rest, and for how long it is then watched.
"""

from typing import Any, NamedTuple

import numpy as np

import flattest as ft
from flattest.problem.models import Params
from flattest.rescaling.top_eigenvalue import orbit_pencil
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import (
    gradient_bound,
    gram_top_eigenvalue,
    strongly_stable_sharpness,
    tangent_features,
    toggles,
    toggles_per_sample,
    with_knots_at,
)
from flattest.stability.weights import sharpness_threshold, theorem1_threshold
from flattest.training.univariate import Descent, descend, watch

EDGE = 0.02
"""A minimum is at the edge of stability where λ_max is within 2 % of 2/η."""


class Minimum(NamedTuple):
    """What is measured of θ*, the minimum that descent with step η converges to.

    `sharpness` is λ_max = ‖Φ‖²/n at θ* with Φ of (S32), whose indicator is that of
    w1_i x_j + b1_i > 0, and so 0 for a knot on a data point. At such a knot L has one Hessian for
    each mode of I (S54), among which the steps alternate: `last_sharpness` is that of the last
    step, `mean_sharpness` the mean over the steps from there on, `upper_sharpness` λ_max^upper, the
    greatest of all modes, and `strong_threshold` (S75), which is 2/η where there is one mode. On
    [−1, 1] `sharpness` is the least of the modes, and so at most each of the others.
    """

    theta: np.ndarray
    sharpness: float
    mean_sharpness: float
    last_sharpness: float
    upper_sharpness: float
    strong_threshold: float
    knots_on_data: float
    flattest: float
    dual: float
    variation: float
    top_vector_gap: float


def swept(task: Any, model: ft.MLP, seed: int, lr: np.ndarray) -> dict[str, np.ndarray]:
    """What is measured of the minima that descent from one initial point finds, per step size."""
    data, phases = task.data(seed), [task.phase(float(step)) for step in lr]
    found = descend(model.init(1, seed), data, phases, settle=task.settle)
    return measured(task, model, found, data, lr)


def measured(
    task: Any, model: ft.MLP, found: Descent, data: ft.Dataset, lr: np.ndarray
) -> dict[str, np.ndarray]:
    """Every field of `Minimum` per run, Lemma 4's bound, 2/η, 1/η − 1/2, and the exclusions.

    NaN where the run did not converge or come to rest, or converged during the warm-up and so at
    another step size; `excluded_unconverged` and `excluded_in_warmup` count these, and `theta` is
    their last iterate. `smooth` counts the minima without knots on data points.
    """
    converged, loss = found.converged.copy(), found.loss.copy()
    minima = [Minimum(theta, *[np.nan] * (len(Minimum._fields) - 1)) for theta in found.theta]
    for run in map(int, np.flatnonzero(converged & ~found.in_warmup)):
        rested = descend(found.network(run), data, [task.rest(lr[run])], threads=1)
        loss[run], converged[run] = rested.loss[0], rested.converged[0]
        if converged[run]:
            minima[run] = minimum(task, model, rested.network(0), data, lr[run])
    counted = converged & ~found.in_warmup
    columns = {name: np.array([getattr(each, name) for each in minima]) for name in Minimum._fields}
    threshold = np.array([sharpness_threshold(step) for step in lr])
    sharpness, variation = columns["sharpness"], columns["variation"]
    return columns | {
        "lr": lr,
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
        "smooth": np.array([(columns["knots_on_data"] == 0).sum()]),
        "excluded_in_warmup": np.array([(converged & found.in_warmup).sum()]),
        "excluded_unconverged": np.array([(~converged).sum()]),
        "x": data.x[:, 0],
        "y": data.y,
    }


def minimum(
    task: Any, model: ft.MLP, last: UnivariateNetwork, data: ft.Dataset, lr: float
) -> Minimum:
    """θ* is the last iterate with the knots that descent crosses put on their data points.

    Their pre-activations fall to 0 with √L; one that is not below it at rest stays as it is. So
    does a point that descent leaves, whose mean is infinite.
    """
    x, star, mean = data.x[:, 0], last, np.inf
    watched = watch(last, data, lr, task.watched)
    if watched.largest_loss <= task.stop_loss:
        distance = np.abs(last.preactivations(x)[tuple(watched.crossed.T)])
        star = with_knots_at(last, x, watched.crossed[distance <= np.sqrt(task.rest_loss)])
        mean = _mean_sharpness(last, data, lr, task.averaged)
    best = ft.flattest_implementation(model, star.params, data)
    toggled = toggles_per_sample(star, x)
    return Minimum(
        theta=star.theta,
        sharpness=sharpness_at(star.theta, data),
        mean_sharpness=mean,
        last_sharpness=sharpness_at(last.theta, data),
        upper_sharpness=ft.upper_top_eigenvalue(star, data).value,
        strong_threshold=strongly_stable_sharpness(
            lr, gradient_bound(star, x), toggled.max() / x.size
        ),
        knots_on_data=float(len(toggles(star, x))),
        flattest=best.value,
        dual=best.dual,
        variation=ft.weighted_total_variation(star, x),
        top_vector_gap=top_vector_gap(model, star.params, data, best.scales),
    )


def top_vector_gap(model: ft.MLP, params: Params, data: ft.Dataset, scales: np.ndarray) -> float:
    """λ_max / (S88) − 1 at the top eigenvector alone of θ̃(β), the certificate of the paper."""
    pencil = orbit_pencil(model, params, data, ft.HalfMSE())
    values, vectors = np.linalg.eigh(pencil.matrix(2 * np.log(scales)))
    return values[-1] / pencil.dual_value(np.outer(vectors[:, -1], vectors[:, -1])) - 1


def _mean_sharpness(network: UnivariateNetwork, data: ft.Dataset, lr: float, steps: int) -> float:
    """Mean of λ_max over further steps."""
    found = descend(network, data, [ft.gd(lr, steps=steps)], range(steps), threads=1)
    return float(np.mean([sharpness_at(theta, data) for theta in found.trace_theta[0]]))


def sharpness_at(theta: np.ndarray, data: ft.Dataset) -> float:
    """λ_max = ‖Φ‖²/n at θ; NaN where θ is."""
    if np.isnan(theta).any():
        return np.nan
    return gram_top_eigenvalue(tangent_features(UnivariateNetwork.from_theta(theta), data.x))
