"""The range of outputs over all flattest networks: none leaves it, and some reach its ends."""

import numpy as np
import pytest

import flattest as ft
from flattest.studies.question1.attack import farthest
from flattest.studies.question1.small import tiny_problem
from support.patterns import output_range

RELU = ft.MLP(3)


def one(x, y):
    return ft.Dataset(np.atleast_2d(np.asarray(x, float)), np.atleast_1d(np.asarray(y, float)))


def test_one_input_on_the_line():
    """f(1) = 1: w > 0 makes f linear there and 0 on the other side, where dead neurons are free."""
    found = ft.flattest_range(RELU, one(1, 1), [[1.0], [2.0], [-1.0], [0.0]])
    np.testing.assert_allclose(found.low, [1, 2, -np.inf, 0], atol=1e-9)
    np.testing.assert_allclose(found.high, [1, 2, np.inf, 0], atol=1e-9)
    np.testing.assert_allclose(found.live_low, [1, 2, 0, 0], atol=1e-9)
    np.testing.assert_allclose(found.live_high, [1, 2, 0, 0], atol=1e-9)


def test_one_input_with_bias():
    """f(x) = σ(1 + s x) for any slope s is flattest for f(0) = 1, and σ(−1 + s x) for −f."""
    found = ft.flattest_range(ft.MLP(3, bias=True), one(0, 1), [[1.0]])
    assert (found.live_low, found.live_high) == (pytest.approx(0, abs=1e-9), np.inf)
    found = ft.flattest_range(ft.MLP(3, bias=True), one(0, -1), [[1.0]])
    assert (found.live_low, found.live_high) == (-np.inf, pytest.approx(0, abs=1e-9))


def test_leaky_networks_have_no_dead_neurons():
    found = ft.flattest_range(ft.MLP(3, activation="leaky_relu:0.5"), one(1, 1), [[-1.0]])
    assert found.low == pytest.approx(found.high)
    # A positive neuron gives −0.5; w < 0 with a < 0 costs as much and gives −2.
    assert found.low in (pytest.approx(-0.5), pytest.approx(-2.0))


@pytest.mark.parametrize("excess", [0.0, 0.1])
def test_at_training_inputs_the_range_is_the_label(excess):
    model, data = tiny_problem(6)
    found = ft.flattest_range(model, data, data.x, excess)
    for end in (found.low, found.high, found.live_low, found.live_high, *found.proven):
        np.testing.assert_allclose(end, data.y, atol=2e-6)


def test_the_range_grows_with_the_excess_and_its_proof_is_outside():
    model, data = tiny_problem(2)
    point = [[0.3, -0.4]]
    found = [ft.flattest_range(model, data, point, excess) for excess in (0.0, 0.01, 0.1)]
    widths = [float(f.live_high[0] - f.live_low[0]) for f in found]
    assert widths == sorted(widths)
    assert widths[-1] > widths[0]
    for f in found:
        assert f.proven[0] <= f.live_low + 1e-9
        assert f.live_high <= f.proven[1] + 1e-9
        assert (f.proven[1] - f.proven[0] - (f.live_high - f.live_low) < 1e-2).all()


def compare(seed, excess):
    """Ours against CVXPY at a random point; infinite ends against infinite ones."""
    model, data = tiny_problem(seed)
    point = np.random.default_rng(seed + 1000).normal(size=(1, data.d))
    found = ft.flattest_range(model, data, point, excess)
    budget, slope = (1 + excess) * found.least, model.sigma.slopes[0]
    slow = output_range(data, model.bias, point, budget, slope)
    if np.isnan(slow).any():
        return None
    np.testing.assert_allclose([found.low[0], found.high[0]], slow, rtol=1e-5, atol=1e-5)
    return bool(np.isfinite(slow).all())


@pytest.mark.peer
@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_the_range_is_that_of_brute_force(seed):
    pytest.importorskip("cvxpy")
    assert compare(seed, 0.1) is not None  # brute force was solved


@pytest.mark.peer
@pytest.mark.slow
def test_fifty_ranges_are_those_of_brute_force():
    pytest.importorskip("cvxpy")
    found = [compare(seed, 0.1) for seed in range(6, 66)]
    assert len([f for f in found if f is not None]) >= 50
    assert found.count(True) >= 15
    assert found.count(False) >= 15


@pytest.mark.slow
def test_no_searched_network_leaves_the_range_of_its_own_excess():
    model, data = tiny_problem(2)
    wide = ft.MLP(30, bias=model.bias, activation=model.activation)
    points = np.random.default_rng(0).normal(size=(5, data.d))
    for start in range(3):
        end = ft.search_flattest(wide, data, start, steps=100)
        least = ft.flattest_network(model, data).least
        found = ft.flattest_range(model, data, points, end.end.sharpness / least - 1 + 1e-9)
        f = ft.predict(wide, end.params, points, data.x)
        assert (found.low <= f + 1e-7).all()
        assert (f <= found.high + 1e-7).all()


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 6, 8))]
)
def test_no_network_of_sampled_neurons_goes_beyond_and_some_come_near(seed):
    """With one per cent more to spend they do go beyond: the attack would notice."""
    model, data = tiny_problem(seed)
    point = np.random.default_rng(seed + 1000).normal(size=(1, data.d))
    at = ft.flattest_range(model, data, point, 0.05)
    for side, end in ((-1.0, at.low[0]), (1.0, at.high[0])):
        reached = farthest(model, data, point, 1.05 * at.least, side, 0, 100)
        if np.isinf(end):
            assert reached == np.inf
            continue
        assert reached <= side * end + 1e-7
        assert reached >= side * end - 1e-2
        assert farthest(model, data, point, 1.06 * at.least, side, 0, 100) > side * end + 1e-7


def test_errors_are_counted_from_the_ranges():
    found = ft.flattest_range(RELU, one(1, 1), [[1.0], [2.0], [-1.0]])
    assert found.errors([1, -1, 1]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert found.errors([1, 1, 1], live=True) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("points", "excess", "sentence"),
    [
        ([[1.0, 2.0]], 0.0, "like the inputs"),
        ([1.0], 0.0, "like the inputs"),
        ([[np.nan]], 0.0, "not finite"),
        ([[1.0]], -0.1, "must be a share"),
        ([[1.0]], np.inf, "must be a share"),
    ],
)
def test_bad_input_is_refused(points, excess, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        ft.flattest_range(RELU, one(1, 1), points, excess)


def test_too_many_patterns_are_refused():
    rng = np.random.default_rng(0)
    data = ft.Dataset(rng.normal(size=(14, 5)), rng.normal(size=14))
    with pytest.raises(ft.FlattestError, match="activation patterns"):
        ft.flattest_range(RELU, data, rng.normal(size=(1, 5)))
