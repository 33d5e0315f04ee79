"""What the sweeps of mulayoff2021 count, measure and judge; test_quick_specs runs them all."""

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.algorithms import gd
from flattest.experiments.expectations import Result
from flattest.experiments.mulayoff2021 import (
    QUICK_SWEEP,
    STABLE,
    STABLE_ON_AVERAGE,
    minimum,
    spread_below_threshold,
)
from flattest.stability import Network, tangent_features, toggles
from flattest.stability.modes import gram_top_eigenvalue, modes, with_knots_at
from flattest.train.univariate import descend, watch


@pytest.fixture(scope="module")
def sweep():
    return QUICK_SWEEP.compute(1)


def test_every_run_of_a_sweep_is_counted_or_excluded_for_one_reason(sweep):
    parts = ("counted", "excluded_in_warmup", "excluded_unconverged")
    assert sum(int(sweep[name][0]) for name in parts) == QUICK_SWEEP.count
    counted = np.isfinite(sweep["sharpness"])
    assert counted.sum() == sweep["counted"][0]
    assert (sweep["knots_on_data"] == 0).sum() == sweep["smooth"][0]
    assert (sweep["final_loss"][sweep["converged"] == 1] <= QUICK_SWEEP.stop_loss).all()
    assert (sweep["final_loss"][counted] <= QUICK_SWEEP.rest_loss).all()
    told = QUICK_SWEEP.measures(sweep)
    assert told["counted"] == sweep["counted"][0]
    assert told["converged in the warm-up"] == sweep["excluded_in_warmup"][0]
    assert told["not converged"] == sweep["excluded_unconverged"][0]
    assert told["at the edge"] == sweep["at_edge"][0]
    assert told["with knots on data"] == sweep["counted"][0] - sweep["smooth"][0]


def test_a_minimum_without_knots_on_data_has_one_mode_and_the_threshold_of_lemma_1(sweep):
    smooth = sweep["knots_on_data"] == 0
    assert smooth.any()
    for name in ("last_sharpness", "upper_sharpness"):
        np.testing.assert_allclose(sweep[name][smooth], sweep["sharpness"][smooth], rtol=1e-12)
    mean = sweep["mean_sharpness"]
    np.testing.assert_allclose(mean[smooth], sweep["sharpness"][smooth], rtol=1e-6)
    np.testing.assert_allclose(
        sweep["strong_threshold"][smooth], sweep["threshold"][smooth], rtol=1e-12
    )


def test_the_steps_near_a_minimum_with_knots_on_data_lie_between_its_modes(sweep):
    """On [−1, 1] the mode of (S32), with every toggle off, is the least of all."""
    knotted = sweep["knots_on_data"] > 0
    assert knotted.any()
    least, upper = sweep["sharpness"][knotted], sweep["upper_sharpness"][knotted]
    for name in ("mean_sharpness", "last_sharpness"):
        assert (least * (1 - 1e-7) <= sweep[name][knotted]).all()
        assert (sweep[name][knotted] <= upper * (1 + 1e-7)).all()
    assert (least < upper).all()
    assert (sweep["strong_threshold"][knotted] > 1.01 * sweep["threshold"][knotted]).all()


def test_the_sharpness_is_the_top_eigenvalue_of_the_hessian_at_the_minimum(sweep):
    """As JAX differentiates it, with σ′(0) = 0, knots on data points or not."""
    data = QUICK_SWEEP.data(1)
    for run in np.flatnonzero(np.isfinite(sweep["sharpness"])):
        network = Network.from_theta(sweep["theta"][run])
        assert len(toggles(network, data.x)) == sweep["knots_on_data"][run]
        top = ft.top_eigenvalue(QUICK_SWEEP.model, network.params, data, "half_mse").value
        assert top == pytest.approx(sweep["sharpness"][run], rel=1e-6)


def test_the_flattest_implementation_has_the_activation_pattern_of_the_minimum(sweep):
    """A knot on a data point stays there in the certificate of the paper, (S88) at one vector."""
    assert np.nanmax(np.abs(sweep["top_vector_gap"])) < 1e-6
    assert (sweep["knots_on_data"] > 0).any()


def test_the_knots_that_descent_keeps_crossing_come_to_lie_on_the_data(sweep):
    """From rest on √L falls by 1e3, and the pre-activations at these knots fall with it."""
    data, knotted = QUICK_SWEEP.data(1), np.flatnonzero(sweep["knots_on_data"] > 0)
    lr = sweep["lr"][knotted].tolist()
    found = descend(
        QUICK_SWEEP.model.init(1, 1),
        data,
        [QUICK_SWEEP.phase(step) for step in lr],
        settle=QUICK_SWEEP.settle,
    )
    for run, star in enumerate(sweep["theta"][knotted]):
        at_rest = descend(found.network(run), data, [QUICK_SWEEP.rest(lr[run])]).network(0)
        later = descend(at_rest, data, [gd(lr[run], steps=100_000, stop_loss=1e-22)]).network(0)
        j, i = toggles(Network.from_theta(star), data.x).T
        before, after = (np.abs(n.preactivations(data.x)[j, i]).max() for n in (at_rest, later))
        assert before < np.sqrt(QUICK_SWEEP.rest_loss)
        assert after < 0.02 * before


@pytest.mark.parametrize("stable", [STABLE, STABLE_ON_AVERAGE], ids=["minimum", "on average"])
def test_a_sweep_judged_by_a_step_size_it_did_not_take_fails(sweep, stable):
    """The minima found with η, held against 2/(1.005 η): no longer under the threshold."""
    shifted = {**sweep, "threshold": sweep["threshold"] / 1.005}
    assert stable.judge([Result(0, "finished", sweep)]).met
    assert not stable.judge([Result(0, "finished", shifted)]).met


def test_a_run_that_never_comes_to_rest_is_not_counted():
    hasty = msgspec.structs.replace(
        QUICK_SWEEP, count=2, highest=2e-3, rest_loss=0.0, steps=200_000
    )
    found = hasty.compute(1)
    assert found["counted"][0] == 0
    assert found["excluded_unconverged"][0] + found["excluded_in_warmup"][0] == 2
    assert np.isnan(found["sharpness"]).all()


def test_a_point_that_descent_leaves_is_no_stable_minimum(sweep):
    """With 1.5 of 2/λ_max it leaves at once, with 1.005 only after the steps averaged over."""
    run = int(np.flatnonzero(sweep["knots_on_data"] == 0)[0])
    network, data = Network.from_theta(sweep["theta"][run]), QUICK_SWEEP.data(1)
    for factor, stays in ((0.995, True), (1.005, False), (1.5, False)):
        lr = factor * 2 / sweep["sharpness"][run]
        found = minimum(QUICK_SWEEP, QUICK_SWEEP.model, network, data, lr)
        assert np.isfinite(found.mean_sharpness) == stays
        assert found.sharpness == pytest.approx(sweep["sharpness"][run], rel=1e-9)


def knotted_line():
    """σ(x) on inputs of which the middle one is 0: its knot is on that input."""
    network = Network(np.array([1.0]), np.array([0.0]), np.array([1.0]), 0.0)
    data = QUICK_SWEEP.data(0)
    x = data.x - data.x[4]
    return network, type(data)(x, np.maximum(x[:, 0], 0))


def test_a_knot_that_descent_keeps_crossing_is_found_and_has_two_modes():
    network, data = knotted_line()
    assert len(watch(network, data, lr=1.0, steps=50).crossed) == 0
    # η λ_max ≈ 1.8: the offset changes sign at every step.
    top = gram_top_eigenvalue(tangent_features(network, data.x))
    pushed = Network.from_theta(network.theta + np.array([0.0, 1e-6, 0.0, 0.0]))
    pairs = watch(pushed, data, lr=1.8 / top, steps=50).crossed
    assert pairs.tolist() == [[4, 0]]
    knotted = with_knots_at(pushed, data.x[:, 0], pairs)
    assert toggles(knotted, data.x).tolist() == [[4, 0]]
    tops = [
        gram_top_eigenvalue(tangent_features(knotted, data.x, m)) for m in modes(knotted, data.x)
    ]
    assert tops[0] == pytest.approx(top, rel=1e-4)
    assert tops[1] > 1.001 * top


def test_a_knot_near_the_data_that_descent_does_not_cross_is_not_on_it():
    network, data = knotted_line()
    near = Network.from_theta(network.theta + np.array([0.0, 1e-3, 0.0, 0.0]))
    assert len(watch(near, data, lr=0.01, steps=50).crossed) == 0


def test_the_spread_needs_three_steps_below_the_threshold():
    threshold = np.array([100.0, 50.0, 25.0, 12.0])
    sharpness = np.array([10.0, 10.2, 10.1, 11.0])
    spread = spread_below_threshold({"sharpness": sharpness, "threshold": threshold})
    assert spread[0] == pytest.approx(0.02)
    assert np.isnan(
        spread_below_threshold({"sharpness": sharpness[2:], "threshold": threshold[2:]})
    )
