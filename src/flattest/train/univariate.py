"""Full-batch gradient descent of univariate ReLU networks, many step sizes at once.

The loss is L = (1/2n) Σ (f(x_j) − y_j)² with f = Σ_i w2_i σ(w1_i x + b1_i) + b2 (mulayoff2021). A
neuron's three gradients need only S0 = Σ r_j and S1 = Σ r_j x_j over the samples it is active on:
∂w1 = w2 S1, ∂b1 = w2 S0, ∂w2 = w1 S1 + b1 S0. The kernel works in float64 with neurons contiguous
and releases the GIL, so that runs share the cores as threads.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numba import njit

from flattest.algorithms import Phase
from flattest.errors import FlattestError
from flattest.stability.functions import Network, points

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

    def network(self, run: int) -> Network:
        return Network.from_theta(self.theta[run])


def descend(
    params: "dict | Network",
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
    network = Network.of(params)
    x, y = points(data)
    for phase in phases:
        _require_plain(phase)
    at = np.unique(np.fromiter(marks, np.int64))

    def run(phase: Phase):
        return _run_one(network.theta, x, y, phase, at, settle)

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        runs = list(pool.map(run, phases))
    steps, loss, codes, theta, trace_loss, trace_theta = (
        np.array(column) for column in zip(*runs, strict=True)
    )
    status = tuple(STATUSES[code] for code in codes)
    return Descent(tuple(phases), status, steps, loss, theta, at, trace_loss, trace_theta)


def switches(params: "dict | Network", data, lr: float, steps: int) -> np.ndarray:
    """The pairs (j, i) whose indicator 1{w1_i x_j + b1_i > 0} changes in the next `steps` steps.

    As rows. After convergence these are the knots on data points: descent moves less and less, and
    yet keeps crossing them.
    """
    x, y = points(data)
    theta = Network.of(params).theta
    seen = np.zeros((2, x.size, theta.size // 3), dtype=np.bool_)
    _watch(theta, x, y, float(lr) / x.size, steps, seen)
    return np.argwhere(seen.all(axis=0))


def _run_one(theta: np.ndarray, x, y, phase: Phase, marks: np.ndarray, settle: int):
    theta = theta.copy()
    trace_loss = np.full(marks.size, np.nan)
    trace_theta = np.full((marks.size, theta.size), np.nan)
    change = phase.step_change
    below, factor = (change.below, change.factor) if change else (-1.0, 1.0)
    stop = -1.0 if phase.stop_loss is None else float(phase.stop_loss)
    steps, loss, code = _descend(
        theta,
        x,
        y,
        float(phase.lr),
        phase.warmup,
        float(below),
        float(factor),
        stop,
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


# Reassociation lets LLVM vectorize the sums over neurons. NaN and infinity keep their meaning:
# divergence shows as a loss that is not finite. What a kernel calls is compiled into it: otherwise
# a process that compiles calls the helper's own code, one that loads from the cache the copy beside
# the kernel, and the two may differ in the last bit.
kernel = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
inlined = njit(
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz"},
    forceinline=True,
)


@kernel
def _descend(
    theta,
    x,
    y,
    lr,
    warmup,
    change_below,
    change_factor,
    stop_loss,
    settle,
    max_steps,
    marks,
    trace_loss,
    trace_theta,
):
    """Runs in place on θ = (w1, b1, w2, b2); returns (steps, loss, status code)."""
    n, k = x.size, theta.size // 3
    w1, b1, w2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k]
    residual, S = np.empty(n), np.empty((2, k))
    changed = False
    mark = below = 0
    for step in range(max_steps + 1):
        loss = _residuals(x, y, w1, b1, w2, theta[3 * k], residual)
        while mark < marks.size and marks[mark] == step:
            trace_loss[mark] = loss
            trace_theta[mark] = theta
            mark += 1
        if not np.isfinite(loss):
            return step, loss, 2
        below = below + 1 if step > 0 and loss <= stop_loss else 0
        if below > settle:
            return step, loss, 0
        if step == max_steps:
            break
        if step > 0 and loss < change_below and not changed:
            lr *= change_factor
            changed = True
        ramp = (step + 1) / warmup if step + 1 < warmup else 1.0
        _update(theta, x, residual, lr * ramp / n, S)
    return max_steps, loss, 1


@kernel
def _watch(theta, x, y, scale, steps, seen):
    """Marks seen[0, j, i] where neuron i was off on sample j at any step, seen[1, j, i] if on."""
    k = theta.size // 3
    w1, b1, w2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k]
    residual, S = np.empty(x.size), np.empty((2, k))
    for _ in range(steps):
        _residuals(x, y, w1, b1, w2, theta[3 * k], residual)
        for j in range(x.size):
            for i in range(k):
                active = w1[i] * x[j] + b1[i] > 0
                seen[0, j, i] |= not active
                seen[1, j, i] |= active
        _update(theta, x, residual, scale, S)


@inlined
def _update(theta, x, residual, scale, S):
    """θ ← θ − scale · n ∇L, in place; S (2, k) is room for S0 and S1."""
    k = theta.size // 3
    w1, b1, w2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k]
    S0, S1 = S[0], S[1]
    _active_sums(x, w1, b1, residual, S0, S1)
    for i in range(k):
        grad_w2 = w1[i] * S1[i] + b1[i] * S0[i]
        w1[i] -= scale * w2[i] * S1[i]
        b1[i] -= scale * w2[i] * S0[i]
        w2[i] -= scale * grad_w2
    theta[3 * k] -= scale * residual.sum()


@inlined
def _residuals(x, y, w1, b1, w2, b2, residual):
    """r_j = f(x_j) − y_j, in place; returns L."""
    total = 0.0
    for j in range(x.size):
        f = b2
        for i in range(w1.size):
            f += w2[i] * max(w1[i] * x[j] + b1[i], 0.0)
        residual[j] = f - y[j]
        total += residual[j] ** 2
    return total / (2 * x.size)


@inlined
def _active_sums(x, w1, b1, residual, S0, S1):
    """S0_i = Σ r_j and S1_i = Σ r_j x_j over the samples j on which neuron i is active."""
    S0[:] = 0.0
    S1[:] = 0.0
    for j in range(x.size):
        r, rx = residual[j], residual[j] * x[j]
        for i in range(w1.size):
            active = w1[i] * x[j] + b1[i] > 0
            S0[i] += r if active else 0.0
            S1[i] += rx if active else 0.0
