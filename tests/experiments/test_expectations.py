"""Expectations judge results, and the registry finds experiments and refuses what it lacks."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flattest.errors import FlattestError
from flattest.experiments import registry
from flattest.experiments.expectations import (
    AnyExpectation,
    AtLeast,
    AtLeastInEverySeed,
    AtMost,
    AtMostInEverySeed,
    Ends,
    EqualsPower,
    Everywhere,
    FallsTo,
    FirstColumnsDominate,
    LargestNeuronsExtract,
    LeastBy,
    MeanAtLeast,
    PowerLaw,
    RankCorrelation,
    RatioAtLeast,
    RatioAtMost,
    RisesAfterMinimum,
    WithinOfBound,
)
from flattest.experiments.experiment import Computed, Experiment, Variant
from flattest.experiments.registry import matching, read_experiment
from flattest.training.keys import run_key
from flattest.training.run import Run


def result(status="finished", seed=0, **series):
    return Run(
        seed=seed, status=status, series={k: np.asarray(v, float) for k, v in series.items()}
    )


def seeds(name, *ends):
    return [result(seed=i, **{name: [1.0, end]}) for i, end in enumerate(ends)]


def with_columns(*norms):
    """A network whose W1 has columns of these norms."""
    return Run(series={}, params={"W1": np.diag(norms)})


def with_rows(*rows):
    """A network whose W1 has these rows."""
    return Run(series={}, params={"W1": np.array(rows, float)})


# Each expectation: results that meet it, and results that do not.
CASES = {
    "at most": (
        AtMost(series="test_error", value=0.01),
        result(test_error=[0.5, 0.01]),
        result(test_error=[0.0, 0.0101]),
    ),
    "at least": (
        AtLeast(series="test_error", value=0.2, at="max"),
        result(test_error=[0.3, 0.0]),
        result(test_error=[0.1, 0.1]),
    ),
    "at least in every seed": (
        AtLeastInEverySeed(series="certified", value=1, at="min"),
        result(certified=[1, 1]),
        result(certified=[1, 0]),
    ),
    "mean at least": (
        MeanAtLeast(series="proven", value=1),
        result(proven=[0, 1]),
        result(proven=[1, 0]),
    ),
    "at most in every seed": (
        AtMostInEverySeed(series="test_error", value=0.01, at="tail"),
        result(test_error=[0.5, 0.01]),
        result(test_error=[0.0, 0.0101]),
    ),
    "at an epoch": (
        AtMost(series="loss", value=1.0, at=10.0),
        result(epoch=[0, 9, 20], loss=[2, 1, 5]),
        result(epoch=[0, 9, 20], loss=[0, 2, 0]),
    ),
    "within of bound": (
        WithinOfBound(relative=0.03),
        result(sharpness=[50, 22.8], bound=[22.27, 22.27]),
        result(sharpness=[50, 23.0], bound=[22.27, 22.27]),
    ),
    "not below the bound either": (
        WithinOfBound(relative=0.03),
        result(sharpness=[50, 22.0], bound=[22.27, 22.27]),
        result(sharpness=[50, 2.0], bound=[22.27, 22.27]),
    ),
    "rises after minimum": (
        RisesAfterMinimum(series="test_error", by=0.02),
        result(test_error=[0.5, 0.23, 0.26]),
        result(test_error=[0.5, 0.3, 0.23]),
    ),
    "least by": (
        LeastBy(series="test_error", epoch=10),
        result(epoch=[0, 10, 20], test_error=[0.5, 0.2, 0.3]),
        result(epoch=[0, 10, 20], test_error=[0.5, 0.2, 0.1]),
    ),
    "falls to": (
        FallsTo(series="sharpness", to=0.5),
        result(sharpness=[10, 100, 50]),
        result(sharpness=[100, 10, 51]),
    ),
    "ends": (Ends(status="diverged"), result("diverged"), result("finished")),
    "everywhere": (
        Everywhere(series="bound", at_most="sharpness", slack=0.1),
        result(bound=[1.0, np.nan, 2.1], sharpness=[1.0, 0.0, 2.0]),
        result(bound=[1.0, 2.3], sharpness=[5.0, 2.0]),
    ),
    "rank correlation": (
        RankCorrelation(x="flatness", y="loss", at_least=0.9),
        result(flatness=[1, 2, 3, 4], loss=[1, 8, 27, 64]),
        result(flatness=[1, 2, 3, 4], loss=[4, 3, 2, 1]),
    ),
    "first columns dominate": (
        FirstColumnsDominate(ratio=7.0),
        with_columns(42.47, 42.48, 5.65, 1.0),
        with_columns(42.47, 5.0, 5.65, 1.0),
    ),
    "largest neurons extract": (
        LargestNeuronsExtract(distance=0.0016),
        with_rows((1, -1, 0.001), (-1, -1, 0), (1, 1, 0), (-2, 2, 0), (0, 0, 0.1)),
        with_rows((1, -1, 0.01), (-1, -1, 0), (1, 1, 0), (-2, 2, 0), (0, 0, 0.1)),
    ),
    "power law": (
        PowerLaw(x="d", y="trace", exponent=0.5, tolerance=0.01),
        result(d=[10, 100, 1000], trace=3 * np.sqrt([10, 100, 1000])),
        result(d=[10, 100, 1000], trace=[10, 100, 1000]),
    ),
    "equals a power": (
        EqualsPower(x="rho", y="norm", exponent=-1, tolerance=1e-9),
        result(rho=[0.1, 0.5, 1.0], norm=[10.0, 2.0, 1.0]),
        result(rho=[0.1, 0.5, 1.0], norm=[10.0, 2.0, 0.999]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_expectation_can_be_met_and_can_fail(case):
    expectation, good, bad = CASES[case]
    assert expectation.verdict([good]).holds
    assert not expectation.verdict([bad]).holds
    assert f"expected {expectation.side}" in expectation.verdict([bad]).sentence


@pytest.mark.parametrize("case", CASES)
def test_an_expectation_survives_json(case):
    expectation = CASES[case][0]
    data = msgspec.json.encode(expectation)
    assert msgspec.json.decode(data, type=AnyExpectation) == expectation


@pytest.mark.parametrize("case", [c for c in CASES if c != "ends"])
def test_a_diverged_run_meets_no_expectation_but_that_it_diverges(case):
    expectation, good, _ = CASES[case]
    diverged = msgspec.structs.replace(good, status="diverged")
    assert not expectation.verdict([diverged]).holds


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=7), st.floats(0, 1))
def test_the_median_over_seeds_is_what_is_judged(ends, value):
    verdict = AtMost(series="e", value=value).verdict(seeds("e", *ends))
    assert verdict.value == np.median(ends)
    assert verdict.holds == (np.median(ends) <= value)
    assert verdict.values == tuple(ends)


def test_nan_counts_as_the_worst_value_and_a_median_outlives_one_of_three():
    assert not AtMost(series="e", value=1e9).verdict(seeds("e", np.nan)).holds
    assert not AtLeast(series="e", value=-1e9).verdict(seeds("e", np.nan)).holds
    assert AtMost(series="e", value=0.5).verdict(seeds("e", 0.1, 0.2, np.nan)).holds


def test_what_must_hold_everywhere_must_hold_in_every_seed():
    below = [result(seed=i, low=[0.5, 0.9], high=[1.0, 1.0]) for i in range(4)]
    expectation = Everywhere(series="low", at_most="high", slack=1e-3)
    assert expectation.verdict(below).holds
    verdict = expectation.verdict([*below, result(seed=4, low=[0.5, 1.002], high=[1.0, 1.0])])
    assert not verdict.holds
    assert verdict.value == pytest.approx(0.002)


def test_one_seed_of_ten_breaks_what_must_hold_in_every_seed():
    expectation = AtLeastInEverySeed(series="certified", value=1)
    assert expectation.verdict(seeds("certified", *[1] * 10)).holds
    assert not expectation.verdict(seeds("certified", *[1] * 9, 0)).holds
    assert not expectation.verdict(seeds("certified", *[1] * 9, np.nan)).holds
    assert AtLeast(series="certified", value=1).verdict(seeds("certified", *[1] * 9, 0)).holds
    assert MeanAtLeast(series="certified", value=0.9).verdict(seeds("certified", *[1] * 9, 0)).holds
    error = AtMostInEverySeed(series="error", value=0.01)
    assert error.verdict(seeds("error", *[0.01] * 10)).holds
    assert not error.verdict(seeds("error", *[0.01] * 9, 0.011)).holds
    assert not error.verdict(seeds("error", *[0.01] * 9, np.nan)).holds


def test_a_ratio_compares_with_another_experiment():
    expectation = RatioAtLeast(other="fig7a", series="test_loss", ratio=3)
    others = {"fig7a": seeds("test_loss", 0.03, 0.04, 0.05)}
    assert expectation.verdict(seeds("test_loss", 0.37, 0.38), others.__getitem__).holds
    assert not expectation.verdict(seeds("test_loss", 0.1, 0.1), others.__getitem__).holds
    with pytest.raises(FlattestError, match="fig7a"):
        expectation.verdict(seeds("test_loss", 0.37))


@pytest.mark.parametrize("kind", [RatioAtLeast, RatioAtMost])
def test_a_ratio_to_what_diverged_is_not_met(kind):
    expectation = kind(other="fig7a", series="test_loss", ratio=3)
    there = [result("diverged", test_loss=[1.0, 1 if kind is RatioAtLeast else 1e9])]
    assert not expectation.verdict(seeds("test_loss", 5.0), lambda name: there).holds


def test_a_ratio_can_be_bounded_from_above():
    expectation = RatioAtMost(other="fig7a", series="test_loss", ratio=3)
    others = {"fig7a": seeds("test_loss", 0.03, 0.04, 0.05)}
    assert expectation.verdict(seeds("test_loss", 0.1, 0.1), others.__getitem__).holds
    assert not expectation.verdict(seeds("test_loss", 0.37, 0.38), others.__getitem__).holds


def test_every_kind_of_expectation_is_tested():
    tested = {type(case[0]) for case in CASES.values()} | {RatioAtLeast, RatioAtMost}
    assert tested == set(AnyExpectation.__args__)


@pytest.mark.parametrize("d", [[10, 10, 10], [0, 1, 2], [10, np.nan, 1000]])
def test_a_power_law_without_a_slope_is_not_met(d):
    law = PowerLaw(x="d", y="trace", exponent=0.5, tolerance=1e9)
    assert not law.verdict([result(d=d, trace=[1, 2, 3])]).holds


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(FlattestError, match="shapes are"):
        RankCorrelation(x="x", y="y", at_least=0).verdict([result(x=[1, 2], y=[1, 2, 3])])
    with pytest.raises(FlattestError, match="W1 has 2 columns"):
        FirstColumnsDominate(ratio=1).verdict([with_columns(1.0, 1.0)])
    for expectation in (Ends(), AtMost(series="e", value=1)):
        with pytest.raises(FlattestError, match="no runs"):
            expectation.verdict([])


def test_a_missing_series_and_an_unknown_place_are_refused_with_the_valid_ones():
    with pytest.raises(
        FlattestError, match=r"Unknown series 'eror' \(did you mean 'error'\?\); valid are: error"
    ):
        AtMost(series="eror", value=1).verdict(seeds("error", 0))
    with pytest.raises(FlattestError, match="'last'.*end"):
        AtMost(series="error", value=1, at="last")


# The registry


class Doubling(Computed, frozen=True, tag="test/doubling"):
    n: int = 4

    def compute(self, seed):
        return {"value": np.arange(self.n) * 2.0 + seed}


def panel(name, n=4, value=10.0):
    variant = Variant(Doubling(n=n), 2, (AtMost(series="value", value=value),))
    return Experiment(
        name=name, figure="Figure", statement="It doubles.", quick=variant, full=variant
    )


@pytest.fixture
def three(monkeypatch):
    found = {e.name: e for e in (panel("p/fig1a"), panel("p/fig1b"), panel("q/fig1a"))}
    monkeypatch.setattr(registry, "experiments", lambda: found)
    return found


def test_patterns_match_full_and_short_names_each_once(three):
    assert [e.name for e in matching("fig1?")] == list(three)
    assert [e.name for e in matching("p/*", "fig1b")] == ["p/fig1a", "p/fig1b"]


def test_a_short_name_must_be_unique(three):
    assert registry.experiment("fig1b").name == "p/fig1b"
    with pytest.raises(FlattestError, match="p/fig1a or q/fig1a"):
        registry.experiment("fig1a")


def test_a_name_without_a_paper_means_wen2023_where_it_has_it(three):
    three["wen2023/fig1a"] = panel("wen2023/fig1a")
    assert registry.experiment("fig1a").name == "wen2023/fig1a"
    assert [e.name for e in matching("fig*")] == ["wen2023/fig1a"]
    assert [e.name for e in matching("*/fig1a")] == ["p/fig1a", "q/fig1a", "wen2023/fig1a"]
    assert registry.experiment("fig1b").name == "p/fig1b"


def test_an_unknown_panel_is_refused_with_the_nearest_names(three):
    with pytest.raises(FlattestError, match="'fig1c'; the nearest are .*fig1b"):
        matching("fig1c")


def test_an_expectation_changes_the_experiments_key_but_not_its_runs():
    one, other = panel("p/fig1", value=10.0), panel("p/fig1", value=5.0)
    assert one.key != other.key
    assert one.quick.keys() == other.quick.keys()
    assert panel("p/fig1", n=5).quick.keys() != one.quick.keys()


def test_an_experiment_survives_a_spec_file(tmp_path):
    spec = panel("p/fig1")
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(spec))
    (tmp_path / "spec.toml").write_text(
        "name = 'p/fig1'\nfigure = 'Figure'\nstatement = 'It doubles.'\n"
        + "".join(
            f"[{v}]\nseeds = 2\ntask = {{type = 'test/doubling', n = 4}}\n"
            "expectations = [{expect = 'at_most', series = 'value', value = 10.0}]\n"
            for v in ("quick", "full")
        )
    )
    for file in ("spec.json", "spec.toml"):
        assert read_experiment(tmp_path / file) == spec
        assert read_experiment(tmp_path / file).key == spec.key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "malformed"),
        ('{"name": "x/y"}', "missing required field"),
        ('{"nam": "x/y"}', "unknown field `nam`"),
        ('{"quick": {"task": {"type": "test/doublin"}}}', "test/doublin"),
        ('{"quick": {"task": {"type": "test/doubling", "m": 1}}}', "unknown field `m`"),
        ('{"quick": {"task": {"type": "test/doubling", "n": "four"}}}', "Expected `int`"),
    ],
)
def test_a_malformed_spec_file_is_refused_with_its_fault(tmp_path, text, reason):
    path = tmp_path / "spec.json"
    path.write_text(text)
    with pytest.raises(FlattestError, match=reason):
        read_experiment(path)


def test_a_spec_file_must_exist_and_be_json_or_toml(tmp_path):
    with pytest.raises(FlattestError, match="No such file"):
        read_experiment(tmp_path / "absent.json")
    with pytest.raises(FlattestError, match="ends in .json or .toml"):
        read_experiment(tmp_path / "spec.yaml")


def test_every_registered_experiment_claims_and_expects_something():
    for experiment in registry.experiments().values():
        assert experiment.statement.endswith(".")
        measured = experiment.notes.startswith("Nothing is predicted")
        assert bool(experiment.full.expectations) != measured, experiment.name
        for other in experiment.quick.needs | experiment.full.needs:
            registry.experiment(other)


def test_a_run_key_names_the_task_and_the_seed():
    keys = panel("p/fig1").quick.keys()
    assert [first for first, *_ in keys] == [run_key(Doubling(n=4), seed) for seed in (0, 1)]
