"""Question 2's own quantities: points per neuron, the flow of λ_max, distances and their orders."""

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.problem.losses import interpolates
from flattest.studies.question2 import convergence
from flattest.studies.question2.decides import Decided, served
from flattest.studies.question2.limits import distances
from flattest.studies.question2.ways import onwards
from flattest.training.manifold import manifold


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
