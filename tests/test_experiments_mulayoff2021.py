"""What the sweeps of mulayoff2021 count, measure and judge; test_quick_specs runs them all."""

import msgspec
import numpy as np
import pytest

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
from flattest.train.univariate import switches


@pytest.fixture(scope="module")
def sweep():
    return QUICK_SWEEP.compute(1)


def test_every_run_of_a_sweep_is_counted_or_excluded_for_one_reason(sweep):
    parts = ("counted", "excluded_in_warmup", "excluded_unconverged")
    assert sum(int(sweep[name][0]) for name in parts) == QUICK_SWEEP.count
    assert sweep["counted"][0] == sweep["smooth"][0] + sweep["excluded_on_knots"][0]
    assert np.isfinite(sweep["sharpness"]).sum() == sweep["counted"][0]
    assert np.isfinite(sweep["smooth_sharpness"]).sum() == sweep["smooth"][0]
    assert (sweep["final_loss"][sweep["converged"] == 1] <= QUICK_SWEEP.stop_loss).all()
    assert (sweep["final_loss"][np.isfinite(sweep["sharpness"])] <= QUICK_SWEEP.rest_loss).all()


def test_a_minimum_without_knots_on_data_has_one_mode_and_the_threshold_of_lemma_1(sweep):
    smooth = sweep["knots_on_data"] == 0
    for name in ("least_mode", "greatest_mode"):
        np.testing.assert_allclose(sweep[name][smooth], sweep["sharpness"][smooth], rtol=1e-12)
    mean = sweep["mean_sharpness"]
    np.testing.assert_allclose(mean[smooth], sweep["sharpness"][smooth], rtol=1e-6)
    np.testing.assert_allclose(
        sweep["strong_threshold"][smooth], sweep["threshold"][smooth], rtol=1e-12
    )
    knotted = sweep["knots_on_data"] > 0
    assert knotted.any()
    assert smooth.any()
    assert (sweep["least_mode"][knotted] < sweep["greatest_mode"][knotted]).all()
    assert (sweep["least_mode"][knotted] <= sweep["mean_sharpness"][knotted]).all()
    assert (sweep["mean_sharpness"][knotted] <= sweep["greatest_mode"][knotted]).all()
    assert (sweep["strong_threshold"][knotted] > 1.01 * sweep["threshold"][knotted]).all()


@pytest.mark.parametrize("stable", [STABLE, STABLE_ON_AVERAGE], ids=["smooth", "on average"])
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


def test_a_minimum_that_descent_leaves_has_no_finite_mean(sweep):
    run = int(np.flatnonzero(sweep["knots_on_data"] == 0)[0])
    network, data = Network.from_theta(sweep["theta"][run]), QUICK_SWEEP.data(1)
    lr = float(sweep["lr"][run])
    assert minimum(QUICK_SWEEP, QUICK_SWEEP.model, network, data, lr).mean_sharpness < np.inf
    assert minimum(QUICK_SWEEP, QUICK_SWEEP.model, network, data, 1.5 * lr).mean_sharpness == np.inf


def knotted_line():
    """σ(x) on inputs of which the middle one is 0: its knot is on that input."""
    network = Network(np.array([1.0]), np.array([0.0]), np.array([1.0]), 0.0)
    data = QUICK_SWEEP.data(0)
    x = data.x - data.x[4]
    return network, type(data)(x, np.maximum(x[:, 0], 0))


def test_a_knot_that_descent_keeps_crossing_is_found_and_has_two_modes():
    network, data = knotted_line()
    assert len(switches(network, data, lr=1.0, steps=50)) == 0
    # η λ_max ≈ 1.8: the offset changes sign at every step.
    top = gram_top_eigenvalue(tangent_features(network, data.x))
    pushed = Network.from_theta(network.theta + np.array([0.0, 1e-6, 0.0, 0.0]))
    pairs = switches(pushed, data, lr=1.8 / top, steps=50)
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
    assert len(switches(near, data, lr=0.01, steps=50)) == 0


def test_the_spread_needs_three_steps_below_the_threshold():
    threshold = np.array([100.0, 50.0, 25.0, 12.0])
    sharpness = np.array([10.0, 10.2, 10.1, 11.0])
    spread = spread_below_threshold({"sharpness": sharpness, "threshold": threshold})
    assert spread[0] == pytest.approx(0.02)
    assert np.isnan(
        spread_below_threshold({"sharpness": sharpness[2:], "threshold": threshold[2:]})
    )
