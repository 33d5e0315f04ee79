"""Distances of algorithms to the flow of Tr ∇²L, at equal times, as their steps shrink."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

import flattest as ft
from flattest.problem.losses import MSE
from flattest.problem.models import Params
from flattest.problem.randomness import generator
from flattest.training import flow_engine, fused
from flattest.training.flows import Flow
from flattest.training.manifold import manifold, norm
from flattest.training.state import Problem, State


class Start(NamedTuple):
    """An interpolator, and the same network moved off by a residual with random signs."""

    problem: Problem
    on: Params
    off: Params


def start(model: ft.MLP, data: ft.Dataset, seed: int, residual: float) -> Start:
    """By gradient descent, then Newton's method; off by the least change of θ that does it."""
    log = ft.Log(points=1, measures=("training",))
    phase = ft.gd(0.05, epochs=200_000, stop_loss=1e-10)
    trained = ft.train(model, data, phase, seed=seed, dtype="float64", log=log)
    problem, any_flow = Problem(model, data, MSE(), seed), ft.flow(1.0)
    where = manifold(problem, any_flow)
    point = flow_engine.begin(problem, any_flow, State(dict(trained.params or {})))
    signs = generator(seed, "question2/residual").choice([-1.0, 1.0], data.n)
    missed = residual * np.abs(data.y).max() * signs
    off = point.theta + point.pull(point.solve(missed))
    return Start(problem, where.named(point.theta), where.named(off))


def along(begin: Start, phase: Flow) -> np.ndarray:
    """θ at the end of the flow."""
    state = State(begin.on, tally=dict(flow_engine.NOTHING_YET))
    return _flat(begin, flow_engine.advance(begin.problem, phase, state, phase.epochs).params)


def distance(begin: Start, phase: ft.Phase, end: np.ndarray) -> float:
    """‖θ_algorithm − θ_flow‖ / ‖θ_flow − θ_start‖ where both have run for the same time."""
    found = fused.advance(
        begin.problem, phase, State(begin.off), phase.length(begin.problem.data.n)
    )
    return norm(_flat(begin, found.params) - end) / norm(end - _flat(begin, begin.on))


def _flat(begin: Start, params: Mapping[str, np.ndarray]) -> np.ndarray:
    return manifold(begin.problem, ft.flow(1.0)).flat(dict(params))
