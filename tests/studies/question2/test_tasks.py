"""Question 2's own quantities: points per neuron, the flow of λ_max, distances and their orders."""

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.problem.losses import interpolates
from flattest.studies.question2 import convergence
from flattest.studies.question2.decides import Decided, served
from flattest.studies.question2.limits import distances
from flattest.studies.question2.ways import onwards, tied
from flattest.training.manifold import manifold
from flattest.training.state import Problem


def test_a_neuron_serves_a_quarter_of_the_points_or_one():
    data = ft.xor(16, 4, distinct=True)
    four = ft.xor_generalizer(data)
    assert served(ft.MLP(4, bias=True), four.params, data) == pytest.approx(data.n / 4)
    own = ft.memorizer(data)
    assert served(ft.MLP(data.n, bias=True), own.params, data) == pytest.approx(1)


@pytest.mark.slow
def test_a_constructed_start_is_an_interpolator_next_to_the_construction():
    task = Decided(
        phases=(onwards(0.1, 24)["sam"],),
        model=ft.MLP(30, bias=True),
        d=8,
        n=24,
        start="memorizer",
        jitter=0.01,
    )
    data = ft.Xor(8, distinct=True).draw(24, 0)
    params = task.beginning(data, 0)
    missed = ft.predict(task.model, params, data.x, data.x) - data.y
    assert np.mean(missed**2) <= 1e-6
    assert served(task.model, params, data) == pytest.approx(1, abs=0.2)


@pytest.mark.slow
def test_the_flow_s_end_is_flatter_than_descent_s():
    task = Decided(
        phases=(ft.sam(0.01, 0.05, epochs=1),),
        model=ft.MLP(20, bias=True),
        d=6,
        n=10,
        start="flow",
    )
    data = ft.Xor(task.d, distinct=True).draw(task.n, 0)
    end = task.beginning(data, 0)
    start = msgspec.structs.replace(task, start="descent").beginning(data, 0)
    traces = [float(ft.trace(task.model, params, data)) for params in (end, start)]
    assert traces[0] < traces[1]
    missed = ft.predict(task.model, end, data.x, data.x) - data.y
    assert np.abs(missed).max() <= 1e-10


def begun(residual=1e-3):
    model = ft.MLP(10, bias=True, activation="softplus")
    data = ft.Xor(5, distinct=True).draw(4, 1)
    return convergence.start(model, data, 1, residual)


def test_the_flow_of_the_top_eigenvalue_descends_it_as_fast_as_its_gradient_says():
    begin = begun()
    where = manifold(begin.problem, ft.flow(1.0))
    theta = where.flat(begin.on)
    before = convergence.top_curvature(begin, theta)
    exact = ft.top_eigenvalue(begin.problem.model, begin.on, begin.problem.data)
    assert before == pytest.approx(float(exact), rel=1e-6)
    speed = convergence._down_the_top(begin.problem, where, theta)
    after = convergence.along_top(begin, 1e-4, steps=2)
    fallen = convergence.top_curvature(begin, after) - before
    assert fallen == pytest.approx(-1e-4 * speed @ speed, rel=1e-2)
    assert interpolates(where.at(after).f, begin.problem.data.y)


def test_a_start_is_off_its_targets_by_the_residual():
    begin = begun(1e-6)
    f = ft.predict(begin.problem.model, begin.off, begin.problem.data.x, begin.problem.data.x)
    assert np.abs(f - begin.problem.data.y) == pytest.approx(1e-6, rel=1e-2)


def test_distances_come_with_their_order():
    radius = np.array([0.4, 0.2, 0.1])
    found = distances({"radius": radius, "1-SAM to flow": 3 * radius**2})
    assert found == pytest.approx({"1-SAM to flow": 0.03, "1-SAM to flow, exponent": 2})


@pytest.mark.slow
def test_what_diverged_has_no_test_error():
    task = Decided(phases=(ft.sam(50.0, 0.05, epochs=3),), model=ft.MLP(6, bias=True), d=4, n=6)
    found = task.columns({k: np.asarray(v) for k, v in task.compute(0).items()})
    assert np.isnan(found["test error"])
    assert np.isnan(found["trace over the least"])


def switched(point, ρ):
    """Neurons switched at the sample that the perturbation ±ρ ∇f_i/‖∇f_i‖ is for."""
    found = 0
    for i, sign in itertools.product(range(len(point.f)), (-1, 1)):
        unit = point.pull(np.eye(len(point.f))[i])
        moved = replace(point, theta=point.theta + sign * ρ * unit / np.linalg.norm(unit))
        found += int(((moved.h[i] > 0) != (point.h[i] > 0)).sum())
    return found


@pytest.mark.parametrize("bias", [True, False])
def test_a_perturbation_shorter_than_the_reach_switches_no_neuron(bias):
    """A little longer it switches one, if the neuron that is nearest to its kink is on."""
    data = ft.Xor(5, distinct=True).draw(4, 1)
    model = ft.MLP(10, bias=bias)
    where = manifold(Problem(model, data, ft.MSE(), 0), ft.flow(1.0))
    points = [where.at(where.flat(model.init(5, seed))) for seed in range(8)]
    assert all(switched(point, 0.999 * convergence.reached(point)) == 0 for point in points)
    longer = [switched(point, 1.001 * convergence.reached(point)) for point in points]
    assert set(longer) == {0, 1}


def test_a_start_out_of_reach_is_the_first_such_network():
    model, data = ft.MLP(10, bias=True), ft.Xor(5, distinct=True).draw(4, 1)
    where = manifold(Problem(model, data, ft.MSE(), 1), ft.flow(1.0))

    def reach(**settings):
        begin = convergence.start(model, data, 1, 1e-3, jitter=0.05, **settings)
        return convergence.reached(where.at(where.flat(begin.on)))

    plain = reach()
    assert reach(reach=0.5 * plain) == plain
    assert reach(reach=1.5 * plain) >= 1.5 * plain
    with pytest.raises(ft.FlattestError, match="is out of the reach 100"):
        reach(reach=100.0)


@pytest.mark.parametrize("seed", range(4))
def test_without_a_bias_pairs_of_opposite_points_tie_the_gradients(seed):
    data = ft.Xor(3, distinct=True).draw(5, seed)
    cube = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
    for x in (data.x, cube, cube[:5], np.vstack([cube[:3], -cube[:3]])):
        model = ft.MLP(60)
        where = manifold(
            Problem(model, ft.Dataset(x, x[:, 0] * x[:, 1]), ft.MSE(), 0), ft.flow(1.0)
        )
        gram = where.at(where.flat(model.init(3, seed))).gram
        assert tied(x) == (np.linalg.matrix_rank(gram) < len(x))
