"""The flow with one-way walls: a known answer, complementarity, and what smoothing tends to."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import null_space
from scipy.optimize import nnls

import flattest as ft
from flattest.problem.losses import interpolates
from flattest.training import flow_engine, flow_walls
from flattest.training.manifold import RankDeficient, norm
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


class Dense(NamedTuple):
    """A matrix as `complementary` asks for it."""

    H: np.ndarray

    def __matmul__(self, mu):
        return self.H @ mu

    def restricted(self, chosen):
        return Dense(self.H[np.ix_(chosen, chosen)])

    def solve(self, b):
        return np.linalg.solve(self.H, b)


def test_multipliers_are_those_of_nonnegative_least_squares():
    rng = np.random.default_rng(0)
    for size in (1, 4, 12):
        A, c = rng.normal(size=(15, size)), rng.normal(size=15)
        expected, _ = nnls(A, c)
        for start in (np.zeros(size, bool), np.ones(size, bool), rng.random(size) < 0.5):
            found = flow_walls.complementary(Dense(A.T @ A), A.T @ c, start)
            np.testing.assert_allclose(found, expected, atol=1e-10)


def point_with_walls(*numbers):
    """A network of 12 neurons, and walls at these pairs of a point and a neuron."""
    data = ft.xor(8, 8, seed=1)
    problem = Problem(ft.MLP(12, bias=True), data, ft.MSE(), 0)
    where = flow_engine.interpolators(problem, ft.flow(0.1, kinks="walls"))
    theta = np.random.default_rng(5).normal(size=12 * 10)
    walls = flow_walls.Walls(*np.transpose(numbers))
    return where.at(theta), walls


def test_stiffness_is_that_of_the_projected_gradients():
    point, walls = point_with_walls((0, 3), (4, 3), (5, 3), (1, 0), (2, 7), (0, 7))
    J = np.array([point.pull(unit) for unit in np.eye(8)])
    N = np.zeros((6, len(point.theta)))
    for k, (i, j) in enumerate(zip(*walls, strict=True)):
        N[k, 9 * j : 9 * (j + 1)] = point.x[i]
    H = N @ (N - N @ np.linalg.pinv(J) @ J).T
    found, c = point.stiffness(walls), np.arange(1.0, 7.0)
    np.testing.assert_allclose(found @ c, H @ c, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(H @ found.solve(c), c, rtol=1e-10)
    some = np.array([True, False, True, True, False, True])
    np.testing.assert_allclose(
        H[np.ix_(some, some)] @ found.restricted(some).solve(c[some]), c[some], rtol=1e-10
    )


def test_walls_that_depend_on_one_another_are_refused():
    point, walls = point_with_walls((0, 3), (0, 3))
    with pytest.raises(RankDeficient):
        point.stiffness(walls).solve(np.ones(2))


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


def caught_up(theta, data, time, steps):
    """The flow with walls by Moreau's catching-up scheme, of first order: per step the least
    ‖v + ∇S‖ with J v = 0 and h_k + τ ∇h_k · v ≤ 0 wherever h_k is off, then Newton's method. With J
    whole, a null space and the least-distance program; nothing of the package is used."""
    n, x = data.n, np.column_stack([data.x, np.ones(data.n)])
    m, inputs, tau = len(theta) // (x.shape[1] + 1), x.shape[1], time / steps
    first = m * inputs

    def layers(theta):
        return theta[:first].reshape(m, inputs), theta[first:]

    def jacobian(W, a, on):
        h = x @ W.T
        return np.array([np.r_[np.outer(a * on[i], x[i]).ravel(), on[i] * h[i]] for i in range(n)])

    def slope_of_trace(W, a, on):
        by_W, by_a = np.zeros_like(W), np.zeros_like(a)
        for i in range(n):
            for j in np.flatnonzero(on[i]):
                by_W[j] += 4 / n * (W[j] @ x[i]) * x[i]
                by_a[j] += 4 / n * a[j] * (x[i] @ x[i])
        return np.r_[by_W.ravel(), by_a]

    on = x @ layers(theta)[0].T > 0
    for _ in range(steps):
        W, a = layers(theta)
        on &= x @ W.T > 0
        N = null_space(jacobian(W, a, on))
        off = np.argwhere(~on)
        A = np.zeros((len(off), len(theta)))
        for row, (i, j) in enumerate(off):
            A[row, j * inputs : (j + 1) * inputs] = x[i]
        room = -(x @ W.T)[~on] / tau
        free = -N.T @ slope_of_trace(W, a, on)
        G, least = -A @ N, A @ (N @ free) - room
        E, unit = np.vstack([G.T, least]), np.r_[np.zeros(N.shape[1]), 1.0]
        u, _ = nnls(E, unit)
        rest = E @ u - unit
        theta = theta + tau * N @ (free - rest[:-1] / rest[-1])
        for _ in range(5):
            W, a = layers(theta)
            f = (np.where(on, x @ W.T, 0) * a).sum(axis=1)
            theta = theta + np.linalg.lstsq(jacobian(W, a, on), data.y - f)[0]
    return theta


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_flow_is_what_small_steps_that_catch_up_tend_to(seed):
    model, data = ft.MLP(8, bias=True), ft.Xor(4, distinct=True).draw(5, seed)
    log = ft.Log(points=1, measures=("training",))
    descent = ft.gd(0.05, epochs=200_000, stop_loss=1e-16)
    start = ft.train(model, data, descent, seed=seed, dtype="float64", log=log).params
    ends = {}
    for kinks in ("walls", "unseen"):
        phase = ft.flow(0.2, epochs=1, kinks=kinks, tolerance=1e-6 if kinks == "walls" else 1e-4)
        problem = Problem(model, data, ft.MSE(), 0)
        where = flow_engine.interpolators(problem, phase)
        begin = flow_engine.begin(problem, phase, State(start))
        state = State(start, tally=dict(flow_engine.NOTHING_YET))
        ends[kinks] = where.flat(flow_engine.advance(problem, phase, state, 1).params)
    slow = [caught_up(begin.theta, data, 0.2, steps) for steps in (250, 500, 1000)]
    missed = [norm(end - ends["walls"]) / norm(ends["walls"] - begin.theta) for end in slow]
    assert missed[0] > 1.5 * missed[1] > 2.2 * missed[2]
    assert missed[2] < 2e-3
    assert norm(slow[2] - ends["unseen"]) > 20 * norm(slow[2] - ends["walls"])
