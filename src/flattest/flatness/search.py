"""Flattest search: descend the trace of the Hessian over the interpolators of a training set.

A challenge to statements about all flattest minimizers: start from an interpolator that
generalizes badly, walk downhill in sharpness without leaving the interpolators, and see where the
walk ends.
"""

import contextlib
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.constraint import GOAL, Endpoint, Interpolators, Point, least_norm
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.libraries import torch_model
from flattest.problem.losses import (
    CrossEntropy,
    Logistic,
    Loss,
    interpolates,
    loss as resolve_loss,
)
from flattest.problem.models import MLP, Model, Params
from flattest.problem.randomness import generator

_STARTS = 8


@dataclass(frozen=True)
class SearchResult:
    """Where the search began and ended, with the sharpness along the way.

    `status` is "converged" where the last stage could not descend further, else "budget".
    """

    params: Params
    start: Endpoint
    end: Endpoint
    status: str
    steps: int
    history: np.ndarray = field(repr=False)


def search_flattest(
    model: Model,
    data: Dataset,
    start: Params | int = 0,
    loss: "str | Loss" = "mse",
    steps: int = 1500,
    smoothing: tuple[float, ...] = (0.5, 0.2, 0.08, 0.03, 0.01),
) -> SearchResult:
    """Descends Tr ∇²L over the interpolators of `data`, from `start` (parameters, or a seed).

    Riemannian conjugate gradients: the gradient of the sharpness is projected on the kernel of
    the outputs' Jacobian J, and each step is retracted onto f(x_i) = target_i by Gauss–Newton.
    The number of points at which a ReLU is active has no gradient, so the sharpness that is
    descended is that of the network with τ·softplus(·/τ), τ running through `smoothing`; the
    constraint and all that is reported use the network itself. For Sim-BN with a homogeneous σ it
    descends the limit of the trace under W1, b1 → ∞, which changes no output, and scales the result
    up at the end.
    """
    problem = interpolators_of(model, data, resolve_loss(loss))
    theta = _interpolator(problem, start)
    start_point, history, status = problem.endpoint(theta), [], "budget"
    stages = smoothing if problem.smoothed_mlp is not None else (0.0,)
    for tau in stages:
        theta, values, status = _descend(problem, theta, tau, steps // len(stages))
        history += values
    return SearchResult(
        params=problem.inflated(theta),
        start=start_point,
        end=problem.endpoint(theta),
        status=status,
        steps=len(history),
        history=np.array(history),
    )


def interpolate(
    model: Model, data: Dataset, start: Params | int = 0, loss: "str | Loss" = "mse"
) -> Params:
    """An interpolator of `data`, by Gauss–Newton from `start` (parameters, or a seed)."""
    problem = interpolators_of(model, data, resolve_loss(loss))
    return problem.numpy(_interpolator(problem, start))


def bad_interpolator(
    model: Model, data: Dataset, wrong: int, seed: int = 0, loss: "str | Loss" = "mse"
) -> Params:
    """Parameters that interpolate the data and the wrong labels of `wrong` fresh points.

    A memorizer-like start where no memorizer exists: it answers −y, or another class, off the
    training set wherever it was taught to. Gauss–Newton may miss from one initialization, so
    several are tried.
    """
    require_dataset(data)
    if data.distribution is None:
        raise FlattestError(
            "A bad interpolator needs data that know their distribution or held-out examples: "
            "Dataset(x, y, test=0.2)."
        )
    rng, kind = generator(seed, "wrong labels"), resolve_loss(loss)
    x, y = _distinct(*data.distribution.sample(rng, wrong))
    fresh = ~(x[:, None, :] == data.x[None]).all(-1).any(1)
    taught = _other_labels(y[fresh], kind, rng)
    poisoned = Dataset(np.vstack([data.x, x[fresh]]), np.concatenate([data.y, taught]))
    problem = interpolators_of(model, poisoned, kind, train_x=data.x)
    starts = generator(seed, "bad interpolator").integers(2**31, size=_STARTS - 1).tolist()
    for start in [seed, *starts[:-1]]:
        with contextlib.suppress(NoInterpolator):
            return problem.numpy(_interpolator(problem, start))
    return problem.numpy(_interpolator(problem, starts[-1]))


def _distinct(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without repetitions, in order: what is taught about a point is one label."""
    first = np.sort(np.unique(x, axis=0, return_index=True)[1])
    return x[first], y[first]


def _other_labels(y: np.ndarray, loss: Loss, rng: np.random.Generator) -> np.ndarray:
    """Labels that are wrong: another class at random, for several outputs the labels moved round,
    and −y, or 1 − y for labels 0 and 1."""
    if isinstance(loss, CrossEntropy):
        classes = loss.classes or int(y.max()) + 1
        return (y + rng.integers(1, classes, len(y))) % classes
    if y.ndim > 1:
        shifts = rng.integers(1, y.shape[1], len(y)) if y.shape[1] > 1 else np.zeros(len(y), int)
        moved = (np.arange(y.shape[1]) + shifts[:, None]) % y.shape[1]
        return np.take_along_axis(y, moved, 1) if y.shape[1] > 1 else -y
    return 1 - y if isinstance(loss, Logistic) and np.isin(y, [0, 1]).all() else -y


class NoInterpolator(FlattestError):
    """Gauss–Newton ended away from the interpolators."""


def interpolators_of(
    model: Model, data: Dataset, loss: Loss, train_x: np.ndarray | None = None
) -> Interpolators:
    """What the search works with: in PyTorch for a module of it, else in JAX."""
    if (module := torch_model(model)) is None:
        return Interpolators(model, data, loss, train_x)
    from flattest.flatness.module_search import ModuleInterpolators  # brings PyTorch along

    return ModuleInterpolators(module, data, loss, train_x)


def _interpolator(problem: Interpolators, start: Params | int):
    model, d = problem.model, problem.data.d
    params = model.init(d, int(start)) if isinstance(start, int | np.integer) else start
    if isinstance(model, MLP):
        model.check(params, d)
    theta = _retract(problem, problem.flatten(params), iterations=500)
    if not interpolates(problem.outputs(theta), problem.target):
        raise NoInterpolator(
            f"No interpolator was found from this start (error {problem.error(theta):.1e} after "
            f"Gauss–Newton); {problem.data.n} points may need a wider network or another start."
        )
    return theta


def _retract(problem: Interpolators, theta, iterations: int):
    """Gauss–Newton towards f(x_i) = target_i, halving a step that does not reduce the error."""
    residual = problem.target - problem.outputs(theta)
    norm = float(jnp.linalg.norm(residual))
    for _ in range(iterations):
        if norm <= GOAL * (float(jnp.linalg.norm(problem.target)) or 1.0):
            break
        step = least_norm(problem.jacobian(theta), residual)
        for halving in range(12):
            trial = theta + step * 0.5**halving
            left = problem.target - problem.outputs(trial)
            if (new := float(jnp.linalg.norm(left))) < norm:
                break
        else:
            break
        theta, residual, norm = trial, left, new
    return theta


def _descend(problem: Interpolators, theta, tau: float, steps: int):
    """Riemannian conjugate gradients (Polak–Ribière+) with Armijo backtracking."""
    point = problem.move(theta, jnp.zeros_like(theta), 0.0, tau)
    direction, size, stalled = -point.g, 1e-2, 0
    values: list[float] = []
    while len(values) < steps:
        values.append(float(point.value))
        slope = float(point.g @ direction)
        if slope >= 0:
            direction, slope = -point.g, -float(point.g @ point.g)
        step = _line_search(problem, point, direction, slope, 2 * size, tau)
        if step is None:
            return point.theta, values, "converged"
        new, size = step
        stalled = stalled + 1 if point.value - new.value < 1e-7 * abs(point.value) else 0
        beta = max(0.0, float(new.g @ (new.g - point.g) / (point.g @ point.g)))
        point, direction = new, -new.g + beta * new.carried
        if stalled >= 10:
            return point.theta, values, "converged"
    return point.theta, values, "budget"


def _line_search(problem: Interpolators, point: Point, direction, slope: float, size: float, tau):
    """The first point, halving the step size, with a sufficient decrease; None if there is none."""
    for _ in range(40):
        new = problem.move(point.theta, direction, size, tau)
        enough = point.value + 1e-4 * size * slope
        if interpolates(new.f, problem.target) and float(new.value) <= enough:
            return new, size
        size *= 0.5
    return None
