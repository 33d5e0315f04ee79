"""Full-batch gradient descent of univariate ReLU networks, many step sizes at once.

The loss is L = (1/2n) Σ (f(x_j) − y_j)² with f = Σ_i w2_i σ(w1_i x + b1_i) + b2 (mulayoff2021). The
kernel works in float64 and releases the GIL, so that runs share the cores as threads.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.machine import share_of_cores
from flattest.stability.functions import UnivariateNetwork, points
from flattest.training.algorithms import Phase
from flattest.training.kernels import univariate as kernels

CONVERGED, EXHAUSTED, DIVERGED = "converged", "exhausted", "diverged"
STATUSES = (CONVERGED, EXHAUSTED, DIVERGED)


@dataclass(frozen=True)
class Descent:
    """What gradient descent reached for each of R phases.

    `status`: "converged" (L ≤ stop_loss), "exhausted" (out of steps) or "diverged" (L not finite).
    `steps`: updates made, `loss`: L(θ) at the end, `theta`: (R, 3k+1) in the order of (S31).
    `trace_loss` (R, M) and `trace_theta` (R, M, 3k+1) hold the state after `marks` updates, NaN
    where the run ended before.
    """

    phases: tuple[Phase, ...]
    status: tuple[str, ...]
    steps: np.ndarray
    loss: np.ndarray
    theta: np.ndarray
    marks: np.ndarray
    trace_loss: np.ndarray
    trace_theta: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        """Which runs reached their stop_loss."""
        return np.array([status == CONVERGED for status in self.status])

    @property
    def in_warmup(self) -> np.ndarray:
        """Which runs ended before their step size was constant."""
        return self.steps <= np.array([phase.warmup for phase in self.phases])

    def network(self, run: int) -> UnivariateNetwork:
        return UnivariateNetwork.from_theta(self.theta[run])


def descend(
    params: "dict | UnivariateNetwork",
    data,
    phases: Sequence[Phase],
    marks: Iterable[int] = (),
    threads: int | None = None,
    settle: int = 0,
) -> Descent:
    """Gradient descent from one initial point, once for each phase (`flattest.gd(lr, …)`).

    A run converges when L has been ≤ stop_loss for `settle` further updates. With 0, a run can end
    at a minimum that is slightly unstable for its step size, before the oscillation has grown.
    """
    theta = UnivariateNetwork.of(params).theta
    x, y = points(data)
    for phase in phases:
        _require_plain(phase)
    at = np.unique(np.fromiter(marks, np.int64))
    run = partial(_run_one, theta, x, y, at, settle)
    with ThreadPoolExecutor(threads or share_of_cores()) as pool:
        runs = list(pool.map(run, phases))
    steps, loss, codes, theta, trace_loss, trace_theta = (
        np.array(column) for column in zip(*runs, strict=True)
    )
    status = tuple(STATUSES[code] for code in codes)
    return Descent(tuple(phases), status, steps, loss, theta, at, trace_loss, trace_theta)


class Watched(NamedTuple):
    """`largest_loss`, and the pairs (j, i) `crossed`, as rows: 1{w1_i x_j + b1_i > 0} changed."""

    largest_loss: float
    crossed: np.ndarray


def watch(params: "dict | UnivariateNetwork", data, lr: float, steps: int) -> Watched:
    """What happens in the next `steps` steps.

    After convergence the pairs crossed are the knots on data points: descent moves less and less,
    and yet keeps crossing them.
    """
    x, y = points(data)
    theta = UnivariateNetwork.of(params).theta
    seen = np.zeros((2, x.size, theta.size // 3), dtype=np.bool_)
    largest_loss = kernels.watch(theta, x, y, float(lr) / x.size, steps, seen)
    return Watched(largest_loss, np.argwhere(seen.all(axis=0)))


def _run_one(theta: np.ndarray, x, y, marks: np.ndarray, settle: int, phase: Phase):
    theta = theta.copy()
    trace_loss = np.full(marks.size, np.nan)
    trace_theta = np.full((marks.size, theta.size), np.nan)
    numbers = phase.numbers
    steps, loss, code = kernels.descend(
        theta,
        x,
        y,
        numbers["lr"],
        phase.warmup,
        numbers["change_below"],
        numbers["change_factor"],
        numbers["stop_loss"],
        settle,
        phase.length(x.size),
        marks,
        trace_loss,
        trace_theta,
    )
    return steps, loss, code, theta, trace_loss, trace_theta


def _require_plain(phase: Phase) -> None:
    allowed = Phase(
        lr=phase.lr,
        epochs=phase.epochs,
        steps=phase.steps,
        batch=None,
        warmup=phase.warmup,
        step_change=phase.step_change,
        stop_loss=phase.stop_loss,
    )
    if phase != allowed:
        raise FlattestError(
            "Univariate gradient descent takes full batches with lr, steps, warmup, step_change "
            "and stop_loss; use `train` for any other setting."
        )
