"""The panels of vardhan2026 at a small scale: what their series mean."""

from dataclasses import replace

import numpy as np
import pytest

from flattest.experiments.expectations import rank_correlation
from flattest.experiments.registry import papers
from flattest.flatness.interpolators import flattest_interpolator
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from flattest.papers.vardhan2026 import interpolation
from flattest.papers.vardhan2026.experiments import (
    EXPERIMENTS,
    EXPONENTS,
    Learned,
    Scaling,
    Scatter,
    Settings,
)
from flattest.papers.vardhan2026.interpolation import flattest_outer_weights
from flattest.problem.distributions import SingleIndex, SumOfSingleIndex
from flattest.problem.multi_index import inner_weights
from flattest.rescaling.two_layer import norm_exponent
from flattest.training.run import Run

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


def test_the_series_of_a_scatter_are_those_of_the_flattest_interpolators():
    """Recomputed from their definitions; the sample's losses differ by its error, 2 % at most."""
    series, distribution = SMALL.compute(0), SMALL.distribution
    data, fresh = distribution.draw(SMALL.n, 0), distribution.population(SMALL.test_size, 0)
    assert series["certified"].min() == 1
    assert series["correlation"][[0, -1]] == pytest.approx([0.01, 0.99])
    for k, rho in enumerate(series["correlation"]):
        W = inner_weights(distribution.directions, SMALL.m, rho, 0)
        a = flattest_interpolator(np.maximum(data.x @ W.T, 0), data.y, 1).a
        assert series["norm"][k] == pytest.approx(np.abs(a).sum(), rel=1e-9)
        # Lemma 1: S_min = 4 Σ √(A_j B_j) |a_j|.
        A = np.mean(np.maximum(data.x @ W.T, 0) ** 2, axis=0)
        B = np.mean((data.x @ W.T > 0) * np.sum(data.x**2, axis=1)[:, None], axis=0)
        S_min = 4 * np.sqrt(A * B)
        assert series["flatness"][k] == pytest.approx(S_min @ np.abs(a), rel=1e-9)
        squares = (np.maximum(fresh.x @ W.T, 0) @ a - fresh.y) ** 2
        error = squares.std() / np.sqrt(len(squares))
        assert error <= 0.02 * squares.mean()
        assert series["test_loss"][k] == pytest.approx(squares.mean(), rel=1e-9)
        assert abs(series["population_loss"][k] - squares.mean()) <= 4 * error
    # The exactly weighted norm is the flatness, so no other interpolator is flatter.
    assert (series["weighted_flatness"] <= series["flatness"] * (1 + 1e-9)).all()
    assert (series["weighted_flatness"] < 0.999 * series["flatness"]).any()


def leave_unsolved(monkeypatch, status, weighted):
    """The plain or the exactly weighted program ends with `status`."""

    def unsolved(W, data, name, weights=None):
        found = flattest_outer_weights(W, data, name, weights)
        a = np.full_like(found.a, np.nan) if status == "infeasible" else found.a
        return found if weighted == (weights is None) else replace(found, a=a, status=status)

    monkeypatch.setattr(interpolation, "flattest_outer_weights", unsolved)


@pytest.mark.parametrize("status", ["infeasible", "ill-conditioned"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_point_of_which_either_program_is_unsolved_is_nan(monkeypatch, status, weighted):
    solved = SMALL.compute(0)
    leave_unsolved(monkeypatch, status, weighted)
    series = SMALL.compute(0)
    assert series.keys() == solved.keys()
    assert not series["certified"].any()
    measured = series.keys() - {"correlation", "misalignment", "certified"}
    assert all(np.isnan(series[name]).all() for name in measured)
    figure_4b = next(e for e in EXPERIMENTS if e.panel == "fig4b").full.expectations
    assert not any(
        e.verdict([Run(seed=0, status="finished", series=series)]).holds for e in figure_4b
    )


@pytest.mark.parametrize("status", ["infeasible", "ill-conditioned"])
def test_a_size_at_which_the_program_is_unsolved_is_nan(monkeypatch, status):
    leave_unsolved(monkeypatch, status, weighted=False)
    series = dict(Scaling(activation="relu", sizes=(32,)).compute(0))
    assert series.pop("good_certified") == series.pop("bad_certified") == 0
    assert all(np.isnan(series[name]).all() for name in series.keys() - {"n"})


@pytest.mark.parametrize("variant", ["quick", "full"])
def test_every_seed_must_be_certified(variant):
    for experiment in EXPERIMENTS:
        for expectation in experiment.variant(variant).expectations:
            series = getattr(expectation, "series", "")
            if series.endswith("certified"):
                marks = [
                    Run(seed=k, status="finished", series={series: np.array([1.0, k > 0])})
                    for k in range(10)
                ]
                assert not expectation.verdict(marks).holds
                assert expectation.verdict(marks[1:]).holds


def test_a_summary_of_a_scatter_has_ranks_and_ends():
    rho = np.array([0.1, 0.2, 0.5, 0.9])
    flatness, loss = np.array([9.0, 7.0, 2.0, 3.0]), np.array([4.0, 3.0, 2.0, 1.0])
    columns = SMALL.columns({"correlation": rho, "flatness": flatness, "population_loss": loss})
    assert [columns[pair] for pair in ("−ρ ↔ flatness", "−ρ ↔ loss", "flatness ↔ loss")] == (
        pytest.approx([0.8, 1, 0.8])
    )
    assert list(columns.values())[3:] == [9, 2, 3, 4, 2, 1]
    rounding = {"correlation": rho, "flatness": flatness, "population_loss": -1e-15 * rho}
    assert np.isnan(SMALL.columns(rounding)["flatness ↔ loss"])


def test_a_summary_of_the_scaling_laws_has_the_exponents():
    n = np.array([128.0, 256.0, 512.0])
    series = {"n": n, "good": 3 * n**-0.3, "bad": n**0.4, "gap": n**0.7 / 3}
    series |= {"good_excess_loss": 1 / n, "bad_excess_loss": 0 * n + 2}
    columns = Scaling(activation="quadratic").columns(series)
    expected = [512, -1 / 3, -0.3, 1 / 3, 0.4, 2 / 3, 0.7, -1, 0]
    assert list(columns.values()) == pytest.approx(expected, abs=1e-12)


def test_the_committed_results_are_those_of_the_specs():
    """The file is what `flattest summary 'vardhan2026/*' --full --json` printed."""
    results = read_summaries(papers()["vardhan2026"].folder / RESULTS)
    specs = [(e.name, e.statement, e.notes, e.full.seeds) for e in EXPERIMENTS]
    assert [(s.experiment, s.statement, s.notes, s.seeds) for s in results] == specs
    # From n = d to 2d the gap of learned weights grows by less than the law for n ≫ d.
    missed = {s.experiment for s in results if not s.met}
    assert missed == {"vardhan2026/learned-relu-wide"}
    largest = {
        s.experiment: s.columns["largest n"].median for s in results if "scaling" in s.experiment
    }
    assert largest == {
        e.name: e.full.task.sizes[-1] for e in EXPERIMENTS if isinstance(e.full.task, Scaling)
    }


def test_settings_are_the_scatters_of_their_distributions():
    task = Settings(activation="relu", d=10, correlations=3, noises=(0.0, 0.1), offsets=(0.0, 0.3))
    series = task.compute(1)
    shifted = SingleIndex(10, link="relu", noise=0.1, offset=0.3)
    scatter = Scatter(distribution=shifted, activation="relu", n=20, m=40, correlations=3)
    points = scatter.compute(1)
    link = rank_correlation(points["flatness"], points["population_loss"])
    assert series["connection"].shape == (2, 2)
    assert series["connection"][1, 1] == series["connection_0.1_0.3"] == pytest.approx(link)
    assert task.columns(series)["noise 0.1, offset 0.3"] == series["connection"][1, 1]


def test_the_exponents_of_learned_weights_are_those_of_their_ratios():
    """At a fixed n/d the exponent in d is that in n; in n/d it is fitted where n ≥ d."""
    task = Learned(activation="relu", dimensions=(8, 12), samples=(0.5, 1, 2), steps=2)
    series = task.compute(0)
    slope = np.log(series["learned"][2, 1] / series["learned"][2, 0]) / np.log(12 / 8)
    assert series["learned_exponent"][2] == pytest.approx(slope)
    growth = np.log(series["learned"][2, 1] / series["learned"][1, 1]) / np.log(2)
    assert series["growth"][1] == pytest.approx(growth)
    columns = task.columns(series)
    assert columns["exponent learned, n = 2d"] == pytest.approx(slope)
    assert columns["learned, n = 2d"] == series["learned"][2, 1]


def test_large_noise_makes_good_weights_grow_as_bad_ones():
    columns = [
        Scaling(activation="quadratic", decay=decay).columns(
            {name: np.ones(2) for name in ("good", "bad", "gap", "good_excess_loss")}
            | {"n": np.array([1.0, 2.0]), "bad_excess_loss": np.ones(2)}
        )
        for decay in (0.5, 0.0)
    ]
    expected = [(c["good, expected"], c["gap, expected"]) for c in columns]
    assert expected[0] == pytest.approx((-1 / 3, 2 / 3))
    assert expected[1] == pytest.approx((1 / 3, 0))


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
        all(e.verdict([Run(seed=0, status="finished", series=series)]).holds for e in expectations)
        for series in (lawful, alike, flat, {**lawful, "bad_certified": np.zeros(3)})
    ]
    assert met == [True, False, False, False]


@pytest.mark.parametrize("panel", ["fig2-quadratic", "fig4b"])
def test_quick_variants_meet_their_expectations(panel):
    variant = next(e for e in EXPERIMENTS if e.panel == panel).quick
    results = [Run(seed=0, status="finished", series=variant.task.compute(0))]
    assert all(expectation.verdict(results).holds for expectation in variant.expectations)


def test_the_exponents_of_the_scaling_laws_are_those_of_lemma_1():
    assert all(norm_exponent(name) == pytest.approx(p) for name, p in EXPONENTS.items())
