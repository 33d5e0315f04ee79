"""What the sweeps of mulayoff2021 count, measure and judge; test_quick_specs runs them all."""

import jax
import msgspec
import numpy as np
import pytest

from flattest.papers.mulayoff2021.descents import Minimum, measured, minimum
from flattest.papers.mulayoff2021.experiments import (
    QUICK_SWEEP,
    SLACK,
    STABLE,
    STABLE_ON_AVERAGE,
    InitMagnitudes,
    central_variation,
    scaled_network,
    spread_below_threshold,
)
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import (
    gram_top_eigenvalue,
    modes,
    tangent_features,
    toggles,
    with_knots_at,
)
from flattest.training.algorithms import gd
from flattest.training.run import Run
from flattest.training.univariate import descend, watch


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
    columns = QUICK_SWEEP.columns(sweep)
    assert columns["counted"] == sweep["counted"][0]
    assert columns["converged in the warm-up"] == sweep["excluded_in_warmup"][0]
    assert columns["not converged"] == sweep["excluded_unconverged"][0]
    assert columns["at the edge"] == sweep["at_edge"][0]
    assert columns["with knots on data"] == sweep["counted"][0] - sweep["smooth"][0]


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


@pytest.mark.slow
def test_the_sharpness_is_that_of_the_hessian_as_jax_differentiates_it(sweep):
    """With σ′(0) = 0, knots on data points or not. Not compiled: fused multiply-adds, which do not
    round between, find w1 x + b1 ≠ 0 on a knot."""
    data = QUICK_SWEEP.data(1)

    def loss(theta):
        w1, b1, w2 = theta[:-1].reshape(3, QUICK_SWEEP.width)
        f = jax.nn.relu(data.x * w1 + b1) @ w2 + theta[-1]
        return ((f - data.y) ** 2).mean() / 2

    knots = sweep["knots_on_data"]
    for run in [*np.flatnonzero(knots > 0)[-2:], np.flatnonzero(knots == 0)[0]]:
        theta = sweep["theta"][run]
        assert len(toggles(UnivariateNetwork.from_theta(theta), data.x)) == knots[run]
        top = np.linalg.eigvalsh(jax.hessian(loss)(theta))[-1]
        assert top == pytest.approx(sweep["sharpness"][run], rel=1e-6)


@pytest.fixture(scope="module")
def steep():
    """A minimum with knots on data points, and its last step far beyond 2/η: init × 3, η ≈ 0.13."""
    task = InitMagnitudes(factors=(3.0,))
    model, data = scaled_network(task.width, 3.0), task.data(0)
    lr = np.geomspace(task.lowest, task.highest, task.count)[66:67]
    phase = task.phase(float(lr[0]))
    return measured(task, model, descend(model.init(1, 0), data, [phase], settle=2_000), data, lr)


def test_a_step_can_lie_beyond_the_edge_of_a_minimum_that_is_stable(steep):
    share = {name: steep[name][0] / steep["threshold"][0] for name in Minimum._fields[1:5]}
    assert steep["knots_on_data"][0] > 0
    assert share["sharpness"] <= share["mean_sharpness"] <= 1 + SLACK
    assert 1.005 < share["last_sharpness"] <= share["upper_sharpness"]
    assert steep["upper_sharpness"][0] <= steep["strong_threshold"][0]


def test_the_flattest_implementation_has_the_activation_pattern_of_the_minimum(sweep):
    """A knot on a data point stays there in the certificate of the paper, (S88) at one vector."""
    assert np.nanmax(np.abs(sweep["top_vector_gap"])) < 1e-6
    assert (sweep["knots_on_data"] > 0).any()


def test_the_knots_that_descent_crosses_come_to_lie_on_the_data(sweep):
    """A pre-activation that changes its sign in a step is no larger than what the step adds to it:
    |Δh_ij| ≤ (η/n) |w2_i| Σ_k |r_k| (|x_k x_j| + 1) ≤ η |w2_i| (max x² + 1) √(2L). So every knot
    that is crossed lies that near to the data point, at L = 1e-16 and a thousandth of it at 1e-22.

    That h falls in proportion to √L is more than holds: it does so on one kind of processor and
    not on the other, where descent stops crossing some of them (h/√L then grows)."""
    data, knotted = QUICK_SWEEP.data(1), np.flatnonzero(sweep["knots_on_data"] > 0)
    lr = sweep["lr"][knotted].tolist()
    phases = [QUICK_SWEEP.phase(step) for step in lr]
    found = descend(QUICK_SWEEP.model.init(1, 1), data, phases, settle=QUICK_SWEEP.settle)
    still_crossed = 0
    for run, star in enumerate(sweep["theta"][knotted]):
        j, i = toggles(UnivariateNetwork.from_theta(star), data.x).T
        network = found.network(run)
        for loss in (QUICK_SWEEP.rest_loss, 1e-6 * QUICK_SWEEP.rest_loss):
            there = descend(network, data, [gd(lr[run], steps=200_000, stop_loss=loss)])
            assert there.converged.all()
            network = there.network(0)
            on = descend(network, data, [gd(lr[run], steps=1_000)], range(1_000))
            passed = [UnivariateNetwork.from_theta(theta) for theta in on.trace_theta[0]]
            h = np.array([net.preactivations(data.x)[j, i] for net in passed])
            w2 = np.array([np.abs(net.w2[i]) for net in passed])
            step = (
                lr[run]
                * w2
                * (np.abs(data.x).max() ** 2 + 1)
                * np.sqrt(2 * on.trace_loss[0])[:, None]
            )
            crossed = (h[:-1] > 0) != (h[1:] > 0)
            nearer = np.minimum(np.abs(h[:-1]), np.abs(h[1:]))
            assert (nearer[crossed] <= step[:-1][crossed] + 1e-15).all()
        assert (np.abs(h) < np.sqrt(QUICK_SWEEP.rest_loss)).all()
        still_crossed += int(crossed.any(axis=0).sum())
    assert still_crossed > 0


@pytest.mark.parametrize("stable", [STABLE, STABLE_ON_AVERAGE], ids=["minimum", "on average"])
def test_a_sweep_judged_by_a_step_size_it_did_not_take_fails(sweep, stable):
    """The minima found with η, held against 2/(1.005 η): no longer under the threshold."""
    shifted = {**sweep, "threshold": sweep["threshold"] / 1.005}
    assert stable.verdict([Run(seed=0, status="finished", series=sweep)]).holds
    assert not stable.verdict([Run(seed=0, status="finished", series=shifted)]).holds


def test_a_run_that_never_comes_to_rest_is_not_counted():
    hasty = msgspec.structs.replace(
        QUICK_SWEEP, count=2, highest=2e-3, rest_loss=0.0, steps=200_000
    )
    found = hasty.compute(1)
    assert found["counted"][0] == 0
    assert found["excluded_unconverged"][0] + found["excluded_in_warmup"][0] == 2
    assert np.isnan(found["sharpness"]).all()
    columns = hasty.columns(found)
    assert columns["counted"] == 0
    assert np.isnan(columns["sharpness over 2/η, %"])
    assert np.isnan(columns["sharpness ↔ 2/η"])


def test_a_point_that_descent_leaves_is_no_stable_minimum(sweep):
    """With 1.5 of 2/λ_max it leaves at once, with 1.005 only after the steps averaged over."""
    run = int(np.flatnonzero(sweep["knots_on_data"] == 0)[0])
    network, data = UnivariateNetwork.from_theta(sweep["theta"][run]), QUICK_SWEEP.data(1)
    for factor, stays in ((0.995, True), (1.005, False), (1.5, False)):
        lr = factor * 2 / sweep["sharpness"][run]
        found = minimum(QUICK_SWEEP, QUICK_SWEEP.model, network, data, lr)
        assert np.isfinite(found.mean_sharpness) == stays
        assert found.sharpness == pytest.approx(sweep["sharpness"][run], rel=1e-9)


def knotted_line():
    """σ(x) on inputs of which the middle one is 0: its knot is on that input."""
    network = UnivariateNetwork(np.array([1.0]), np.array([0.0]), np.array([1.0]), 0.0)
    data = QUICK_SWEEP.data(0)
    x = data.x - data.x[4]
    return network, type(data)(x, np.maximum(x[:, 0], 0))


def test_a_knot_that_descent_keeps_crossing_is_found_and_has_two_modes():
    network, data = knotted_line()
    assert len(watch(network, data, lr=1.0, steps=50).crossed) == 0
    # η λ_max ≈ 1.8: the offset changes sign at every step.
    top = gram_top_eigenvalue(tangent_features(network, data.x))
    pushed = UnivariateNetwork.from_theta(network.theta + np.array([0.0, 1e-6, 0.0, 0.0]))
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
    near = UnivariateNetwork.from_theta(network.theta + np.array([0.0, 1e-3, 0.0, 0.0]))
    assert len(watch(near, data, lr=0.01, steps=50).crossed) == 0


def test_the_spread_needs_three_steps_below_the_threshold():
    threshold = np.array([100.0, 50.0, 25.0, 12.0])
    sharpness = np.array([10.0, 10.2, 10.1, 11.0])
    spread = spread_below_threshold({"sharpness": sharpness, "threshold": threshold})
    assert spread[0] == pytest.approx(0.02)
    assert np.isnan(
        spread_below_threshold({"sharpness": sharpness[2:], "threshold": threshold[2:]})
    )


def test_the_variation_at_the_centre_is_that_of_the_kinks_between_the_quartiles():
    """f″ is 3 at x = 0 and −5 at x = 0.9; a third kink lies outside of the inputs."""
    theta = np.concatenate([[1, 1, 1], [0, -0.9, -2], [3, -5, 7], [0.0]])
    series = {
        "x": np.linspace(-1, 1, 9),
        "theta": np.array([theta, np.full(10, np.nan)]),
        "sharpness": np.array([1.0, np.nan]),
    }
    centre, whole = central_variation(series)
    assert (centre.tolist(), whole.tolist()) == ([3.0], [8.0])
