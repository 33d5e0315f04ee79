"""Distances of algorithms to the flow of Tr ∇²L, at equal times, as their steps shrink."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import flattest as ft
from flattest.errors import FlattestError
from flattest.problem.losses import MSE
from flattest.problem.models import Params
from flattest.problem.randomness import generator
from flattest.training import flow_engine, fused
from flattest.training.flows import Flow
from flattest.training.manifold import Manifold, Point, TwoLayers, manifold, norm
from flattest.training.state import Problem, State


class Start(NamedTuple):
    """An interpolator, and the same network moved off by a residual with random signs."""

    problem: Problem
    on: Params
    off: Params


# Networks that are out of reach are rare: one jitter in three to thirty.
_JITTERS = 3000


def start(
    model: ft.MLP,
    data: ft.Dataset,
    seed: int,
    residual: float,
    jitter: float = 0.0,
    reach: float = 0.0,
) -> Start:
    """By gradient descent, every weight moved by N(0, jitter²), and Newton's method; off by the
    least change of θ that does it. With a `reach`, the first such network of which a perturbation
    of that length switches no neuron."""
    log = ft.Log(points=1, measures=("training",))
    phase = ft.gd(0.05, epochs=200_000, stop_loss=1e-10)
    trained = ft.train(model, data, phase, seed=seed, dtype="float64", log=log)
    problem, any_flow = Problem(model, data, MSE(), seed), ft.flow(1.0)
    where = manifold(problem, any_flow)
    rng = generator(seed, "question2/jitter")
    for _ in range(_JITTERS):
        moved = {
            name: value + jitter * rng.normal(size=np.shape(value))
            for name, value in (trained.params or {}).items()
        }
        point = flow_engine.begin(problem, any_flow, State(moved))
        if reach == 0 or reached(point) >= reach:
            break
    else:
        raise FlattestError(f"None of {_JITTERS} networks is out of the reach {reach:g}.")
    signs = generator(seed, "question2/residual").choice([-1.0, 1.0], data.n)
    missed = residual * np.abs(data.y).max() * signs
    off = point.theta + point.pull(point.solve(missed))
    return Start(problem, where.named(point.theta), where.named(off))


def reached(point: Point) -> float:
    """The least ρ that brings a neuron to its kink: min |h_ij| ‖∇f_i‖ / (|a_j| ‖x̃_i‖²), since
    1-SAM's perturbation ρ ∇f_i/‖∇f_i‖ moves W_j by ρ a_j x̃_i/‖∇f_i‖ where j is on. Two layers."""
    assert isinstance(point, TwoLayers)
    moved = np.outer(np.diag(point.gram_x), np.abs(point.a))
    lengths = np.sqrt(np.diag(point.gram))[:, None]
    return float((np.abs(point.h) * lengths / moved).min())


def along(begin: Start, phase: Flow) -> np.ndarray:
    """θ at the end of the flow; one that stalls on the way has no such end."""
    state = State(begin.on, tally=dict(flow_engine.NOTHING_YET))
    end = flow_engine.advance(begin.problem, phase, state, phase.epochs)
    if end.halt == "stalled":
        raise FlattestError(f"The flow stalled at time {end.tally['time']:.3g}.")
    return _flat(begin, end.params)


def distance(begin: Start, phase: ft.Phase, end: np.ndarray) -> float:
    """‖θ_algorithm − θ_flow‖ / ‖θ_flow − θ_start‖ where both have run for the same time."""
    return apart(begin, trained(begin, phase), end)


def trained(begin: Start, phase: ft.Phase) -> np.ndarray:
    """θ after the phase, from the network that is off the interpolators."""
    epochs = phase.length(begin.problem.data.n)
    return _flat(begin, fused.advance(begin.problem, phase, State(begin.off), epochs).params)


def interpolating(begin: Start, theta: np.ndarray) -> np.ndarray:
    """The interpolator next to θ, by Newton's method."""
    where = manifold(begin.problem, ft.flow(1.0))
    found = where.onto(where.at(theta))
    assert found is not None
    return found.theta


def _flat(begin: Start, params: Mapping[str, np.ndarray]) -> np.ndarray:
    return manifold(begin.problem, ft.flow(1.0)).flat(dict(params))


def along_top(begin: Start, time: float, steps: int = 100) -> np.ndarray:
    """θ at the end of the flow −P∇λ_max(∇²L) along the interpolators, by classical Runge–Kutta
    steps with Newton's correction. With c = W^{1/2}u, u the top eigenvector of W^{1/2}KW^{1/2},
    λ_max = ‖Σ_i c_i ∇f_i‖², and while λ_max is simple ∇λ_max is its gradient with c held."""
    where = manifold(begin.problem, ft.flow(1.0))
    h, theta = time / steps, where.flat(begin.on)
    for _ in range(steps):
        k1 = _down_the_top(begin.problem, where, theta)
        k2 = _down_the_top(begin.problem, where, theta + h / 2 * k1)
        k3 = _down_the_top(begin.problem, where, theta + h / 2 * k2)
        k4 = _down_the_top(begin.problem, where, theta + h * k3)
        end = where.onto(where.at(theta + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)))
        assert end is not None
        theta = end.theta
    return theta


def top_curvature(begin: Start, theta: np.ndarray) -> float:
    """λ_max of ∇²L at an interpolator."""
    point = manifold(begin.problem, ft.flow(1.0)).at(theta)
    return float(np.linalg.eigvalsh(point.gram)[-1]) * 2 / begin.problem.data.n


def _down_the_top(problem: Problem, where: Manifold, theta: np.ndarray) -> np.ndarray:
    point, n = where.at(theta), problem.data.n
    c = np.linalg.eigh(point.gram)[1][:, -1] * np.sqrt(2 / n)
    gradient = where.flat(dict(_square(problem.model, where.named(theta), problem.data.x, c)))
    return point.pull(point.solve(point.push(gradient))) - gradient


@partial(jax.jit, static_argnums=0)
def _square(model: ft.MLP, params: Params, x: np.ndarray, c: np.ndarray):
    """∇ ‖∇ (c · f)‖²."""

    def combined(params):
        return c @ model.apply(params, x, x)

    def square(params):
        return sum(jnp.vdot(g, g) for g in jax.grad(combined)(params).values())

    return jax.grad(square)(params)


def apart(begin: Start, theta: np.ndarray, end: np.ndarray) -> float:
    """‖θ − θ_flow‖ / ‖θ_flow − θ_start‖."""
    return norm(theta - end) / norm(end - _flat(begin, begin.on))
