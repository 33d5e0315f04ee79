"""The panels of vardhan2026 at a small scale: what their series mean."""

import numpy as np
import pytest

from flattest.data import SumOfSingleIndex
from flattest.experiments.expectations import Result
from flattest.experiments.vardhan2026 import EXPERIMENTS, Scaling, Scatter

SMALL = Scatter(
    distribution=SumOfSingleIndex(12, 3, "relu", 0.1),
    activation="relu",
    n=20,
    m=40,
    correlations=4,
    test_size=20_000,
)


def test_every_panel_of_section_6_is_there():
    panels = {e.panel for e in EXPERIMENTS}
    assert {f"fig{k}-{a}" for k in (2, 3) for a in ("relu", "leaky-relu", "quadratic")} <= panels
    assert {"fig4a", "fig4b", "fig4c"} <= panels
    assert all(e.full.expectations for e in EXPERIMENTS)


def test_a_scatter_is_a_pure_function_of_its_spec_and_seed():
    first, again, other = (SMALL.compute(seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["flatness"], other["flatness"])


def test_the_series_of_a_scatter_agree_with_each_other():
    series = SMALL.compute(0)
    assert series["certified"].min() == 1
    assert series["correlation"][[0, -1]] == pytest.approx([0.01, 0.99])
    # The exactly weighted norm is the flatness, so no other interpolator is flatter.
    assert (series["weighted_flatness"] <= series["flatness"] * (1 + 1e-9)).all()
    assert series["test_loss"] == pytest.approx(series["population_loss"], rel=0.15)
    # For ReLU p = 1, and the flatness of unit weights is about 2√d ‖a‖₁ (Lemma 1).
    assert series["flatness"] == pytest.approx(2 * np.sqrt(12) * series["norm"], rel=0.5)


def test_bad_inner_weights_are_sharper_and_do_not_generalize():
    series = Scaling(activation="relu", sizes=(32, 64)).compute(0)
    assert (series["gap"] > 1).all()
    assert (series["bad_excess_loss"] > 10 * series["good_excess_loss"]).all()
    assert series["good_certified"].min() == series["bad_certified"].min() == 1


@pytest.mark.parametrize("variant", ["quick", "full"])
def test_the_scaling_laws_are_expected_and_their_absence_is_noticed(variant):
    expectations = next(e for e in EXPERIMENTS if e.panel == "scaling-quadratic")
    expectations = expectations.variant(variant).expectations
    n = np.array([128.0, 256.0, 512.0])
    good, bad, certified = n ** (-1 / 3), n ** (1 / 3), np.ones(3)
    marks = {"n": n, "good_certified": certified, "bad_certified": certified}
    lawful = {**marks, "good": good, "bad": bad, "gap": bad / good}
    alike = {**marks, "good": good, "bad": good, "gap": certified}
    flat = {**marks, "good": certified, "bad": n ** (2 / 3), "gap": bad / good}
    met = [
        all(e.judge([Result(0, "finished", series)]).met for e in expectations)
        for series in (lawful, alike, flat, {**lawful, "bad_certified": np.zeros(3)})
    ]
    assert met == [True, False, False, False]


@pytest.mark.parametrize("panel", ["fig2-quadratic", "fig4b"])
def test_quick_variants_meet_their_expectations(panel):
    variant = next(e for e in EXPERIMENTS if e.panel == panel).quick
    results = [Result(0, "finished", variant.task.compute(0))]
    assert all(expectation.judge(results).met for expectation in variant.expectations)
