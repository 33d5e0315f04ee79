"""The experiments of mulayoff2021 in their quick variants, judged by their own expectations."""

import numpy as np
import pytest

from flattest.experiments import experiments
from flattest.experiments.expectations import Result
from flattest.experiments.mulayoff2021 import (
    EXPERIMENTS,
    QUICK_SWEEP,
    spread_below_threshold,
    visited_modes,
)
from flattest.stability import Network


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.panel)
def test_a_quick_run_meets_its_expectations(experiment):
    assert experiments()[experiment.name] is experiment
    result = Result(0, "finished", experiment.quick.task.compute(0))
    for expectation in experiment.quick.expectations:
        verdict = expectation.judge([result])
        assert verdict.met, verdict.sentence


def test_every_run_of_a_sweep_is_counted_or_excluded_for_one_reason():
    found = QUICK_SWEEP.compute(1)
    parts = ("counted", "excluded_in_warmup", "excluded_unconverged")
    assert sum(int(found[name][0]) for name in parts) == QUICK_SWEEP.count
    assert np.isfinite(found["sharpness"]).sum() == found["counted"][0]
    assert (found["final_loss"][found["converged"] == 1] <= QUICK_SWEEP.stop_loss).all()


def test_descent_at_a_knot_on_a_data_point_visits_both_modes():
    """One neuron whose knot is on the middle input, kicked back and forth across it."""
    network = Network(np.array([1.0]), np.array([0.0]), np.array([1.0]), 0.0)
    data = QUICK_SWEEP.data(0)
    shifted = type(data)(data.x - data.x[4], np.maximum(data.x[:, 0] - data.x[4, 0], 0))
    stay = visited_modes(network, shifted, lr=1.1)
    assert len(stay) == 1
    pushed = Network.from_theta(network.theta + np.array([0.0, 1e-6, 0.0, 0.0]))
    # η λ_max ≈ 1.8: the offset changes sign at every step.
    cross = visited_modes(pushed, shifted, lr=1.8 / stay[0])
    assert len(cross) == 2
    assert min(cross) == pytest.approx(stay[0], rel=1e-4)


def test_the_spread_needs_three_steps_below_the_threshold():
    threshold = np.array([100.0, 50.0, 25.0, 12.0])
    sharpness = np.array([10.0, 10.2, 10.1, 11.0])
    spread = spread_below_threshold({"sharpness": sharpness, "threshold": threshold})
    assert spread[0] == pytest.approx(0.02)
    assert np.isnan(
        spread_below_threshold({"sharpness": sharpness[2:], "threshold": threshold[2:]})
    )
