"""The flow with one-way walls: a known answer, complementarity, and what smoothing tends to."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import nnls

import flattest as ft
from flattest.problem.losses import interpolates
from flattest.training import flow_engine, flow_walls
from flattest.training.manifold import norm
from flattest.training.state import Problem, State

# Neuron 1 serves point 1, its pre-activation at point 2 rises from −0.1; neuron 2 serves point 2.
X = np.array([[1.0, 0.0], [0.6, 0.8]])
PAIR = ft.Dataset(X, np.array([2.0, 1.0]))
TWO = ft.MLP(2)
U, H = 0.5, -0.1
START = {
    "W1": np.array([[U, (H - 0.6 * U) / 0.8], [-4 / 3, 2.25]]),
    "W2": np.array([2 / U, 1.0]),
}


def known(time):
    """u = w_1 · x_1, for which S = u² + a² + …, a = 2/u: first w_1 moves along x_1, and from where
    its pre-activation at x_2 is 0, across x_2: of dθ² only du²/q + da² is left, q = ‖x_1‖² or what
    of x_1 is orthogonal to x_2."""

    def slope(q):
        return lambda t, u: -(2 * u - 2 * 4 / u**3) / (1 / q + 4 / u**4)

    reached = U - H / 0.6

    def at_the_wall(t, u):
        return u[0] - reached

    at_the_wall.terminal = True
    settings = {"rtol": 1e-12, "atol": 1e-13}
    before = solve_ivp(slope(1.0), (0, time), [U], events=at_the_wall, **settings)
    if before.status == 0:
        return before.y[0, -1]
    after = solve_ivp(slope(0.64), (before.t[-1], time), [reached], **settings)
    return after.y[0, -1]


def flowed(kinks, time, **settings):
    phase = ft.flow(time, epochs=2, kinks=kinks, tolerance=1e-9, **settings)
    return ft.train(TWO, PAIR, phase, params=START, dtype="float64", log=ft.Log(points=2))


@pytest.mark.parametrize("time", [0.05, 0.3, 0.6])
def test_a_neuron_that_meets_a_wall_moves_along_it(time):
    run = flowed("walls", time)
    w = run.params["W1"][0]
    assert w @ X[0] == pytest.approx(known(time), abs=1e-6)
    assert w @ X[1] <= 0
    if time > 0.05:
        assert w @ X[1] == pytest.approx(0, abs=1e-9)
        assert abs(flowed("unseen", time).params["W1"][0] @ X[0] - known(time)) > 1e-3


def test_smoothed_kinks_come_to_the_wall_as_their_width_shrinks():
    missed = []
    for width in (0.01, 0.003, 0.001):
        w = flowed("seen", 0.4, width=width).params["W1"][0]
        missed.append(abs(w @ X[0] - known(0.4)))
    assert missed[0] > 2 * missed[1] > 4 * missed[2]
    assert missed[2] < 0.01


def test_multipliers_are_those_of_nonnegative_least_squares():
    rng = np.random.default_rng(0)
    for size in (1, 4, 12):
        A, c = rng.normal(size=(15, size)), rng.normal(size=15)
        expected, _ = nnls(A, c)
        for start in (np.zeros(size, bool), np.ones(size, bool), rng.random(size) < 0.5):
            found = flow_walls.complementary(A.T @ A, A.T @ c, start)
            np.testing.assert_allclose(found, expected, atol=1e-10)


def test_nobody_is_switched_on_and_the_velocity_is_the_nearest_of_the_cone():
    model, data = ft.MLP(20, bias=True), ft.xor(8, 8, seed=1)
    log = ft.Log(points=1, measures=("training",))
    descent = ft.gd(0.05, epochs=200_000, stop_loss=1e-9)
    start = ft.train(model, data, descent, seed=3, dtype="float64", log=log).params
    problem, phase = Problem(model, data, ft.MSE(), 0), ft.flow(0.1, kinks="walls")
    where = flow_engine.interpolators(problem, phase)
    point = flow_engine.begin(problem, phase, State(start))
    most = 0
    for step in flow_engine.steps(where, phase, point, phase.time):
        point = step.end
        assert not (point.on & ~step.start.on).any()
        assert (point.on == (point.h > 0)).all()
        assert step.rise <= 1e-9 * step.start.sharpness
        assert interpolates(point.f, data.y)
        most = max(most, len(point.held.point))
    assert most > 3
    near = flow_walls.Walls.where(~point.on & (point.h >= -2 * point.epsilon))
    assert point.speeds(point.velocity, near).max() <= 1e-8 * norm(point.velocity)
    assert norm(point.push(point.velocity)) <= 1e-8 * norm(point.velocity)
    # v is the nearest to −∇S: −∇S − v is orthogonal to it, and obtuse to any other of the cone.
    rest = -point.gradient - point.velocity
    assert abs(rest @ point.velocity) <= 1e-8 * norm(rest) * norm(point.velocity)
    assert (point.multipliers > 0).all()
    free = point._tangent(-point.gradient)
    assert norm(free + point.gradient) <= norm(point.velocity + point.gradient)
