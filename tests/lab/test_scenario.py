"""Which scenario a setup is in, from the evidence."""

import runpy

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.errors import FlattestError
from flattest.lab.challenge import known_bad_flattest
from flattest.lab.scenario import (
    SCENARIOS,
    Reach,
    interval,
    judge,
    judge_challenges,
    judge_runs,
    placed,
    reach,
    scenario,
)
from flattest.lab.setup import Setup
from flattest.runs.store import Store
from flattest.training.run import Run
from support.places import ROOT


def trained(error, status="finished", train_error=0.0, sharpness=23.0):
    names = {"test_error": error, "train_error": train_error, "sharpness": sharpness, "bound": 22.3}
    return Run(
        seed=0, status=status, series={name: np.full(30, value) for name, value in names.items()}
    )


LAB = ROOT / "examples" / "table1_lab.py"
PHASES = (ft.sam(0.1, 0.1, epochs=1),)
# An algorithm that goes down to the certified lower bound, on data and a network of its own.
LEAST = Reach(1.0, np.nan)


def challenged(error, certified, start=0.5, sharpness=22.3, bound=22.3):
    names = {"test_error": error, "certified": certified, "start_test_error": start}
    numbers = names | {"sharpness": sharpness, "bound": bound, "start_sharpness": 100.0}
    return Run(
        seed=0, status="finished", series={name: np.array(value) for name, value in numbers.items()}
    )


def test_a_run_below_the_certified_least_is_said_not_to_interpolate():
    run = trained(0.01, sharpness=20.0)
    low = msgspec.structs.replace(run, series=run.series | {"train_loss": np.full(30, 0.04)})
    sentence = judge_runs([low, low], 0.1).sentence
    assert (
        "certified lower bound 22.3 of interpolators, which these are not (training loss 0.04)"
        in (sentence)
    )
    assert "interpolators" not in judge_runs([trained(0.01)] * 2, 0.1).sentence


def test_a_search_that_was_still_descending_supports_nothing():
    def searched(converged):
        run = challenged(0.01, 0, sharpness=20.0, bound=np.nan)
        series = run.series | {"converged": np.array(converged)}
        return msgspec.structs.replace(run, series=series)

    reached = Reach(np.nan, 21.0)
    assert judge_challenges([searched(1.0)], 0.1, reached).grade == "supported"
    found = judge_challenges([searched(0.0)], 0.1, reached)
    assert found.grade == "open"
    assert "still descending; more `steps` would settle it" in found.sentence


def test_training_generalizes_where_the_interval_lies_below_the_threshold():
    assert judge_runs([trained(e) for e in (0.01, 0.02, 0.015)], 0.1).holds is True
    assert judge_runs([trained(e) for e in (0.3, 0.33, 0.31)], 0.1).holds is False
    assert judge_runs([trained(e) for e in (0.02, 0.2, 0.1)], 0.1).holds is None
    assert judge_runs([trained(0.01)], 0.1).holds is None
    assert judge_runs([], 0.1).holds is None


def test_what_need_not_be_attained_is_called_a_lower_bound():
    assert "certified lower bound 22.3" in judge_runs([trained(0.01)] * 2, 0.1).sentence


@pytest.mark.parametrize(
    "lost",
    [trained(0.0, status="diverged"), trained(0.0, train_error=0.5)],
    ids=["diverged", "collapsed"],
)
def test_a_run_without_a_minimum_does_not_count_as_generalizing(lost):
    finding = judge_runs([trained(0.0), lost, lost], 0.1)
    assert finding.holds is not True
    assert "2 of them found no minimum" in finding.sentence


def test_an_algorithm_that_never_finds_a_minimum_decides_nothing():
    finding = judge_runs([trained(0.6, status="diverged")] * 3, 0.1)
    assert finding.holds is None
    assert "None of 3 seeds found a minimum" in finding.sentence


def test_one_certified_flattest_network_that_fails_refutes_the_statement():
    assert judge_challenges([challenged(1.0, 1.0), challenged(0.0, 0.0)], 0.1, LEAST).holds is False


def test_a_bad_network_that_is_not_certified_leaves_it_open():
    assert judge_challenges([challenged(0.4, 0.0)], 0.1, LEAST).holds is None


def test_searches_that_end_well_support_the_statement_only_from_bad_starts():
    assert judge_challenges([challenged(0.0, 0.0)] * 2, 0.1, LEAST).holds is True
    assert judge_challenges([challenged(0.0, 0.0, start=0.01)] * 2, 0.1, LEAST).holds is None


def test_a_search_that_stopped_high_leaves_it_open_and_says_what_would_settle_it():
    stuck = [challenged(0.0, 0.0), challenged(0.0, 0.0, sharpness=30.0)]
    finding = judge_challenges(stuck, 0.1, LEAST)
    assert finding.holds is None
    assert "1 of them stopped too high" in finding.sentence
    assert "more `steps`" in finding.sentence
    # Where the algorithm gets no further down either, the bound is what is loose.
    assert judge_challenges(stuck, 0.1, Reach(1.3, np.nan)).holds is True


def test_without_a_bound_a_search_compares_with_the_algorithm_on_the_same_network():
    searches = [challenged(0.0, 0.0, sharpness=30.0, bound=np.nan)] * 2
    assert judge_challenges(searches, 0.1, Reach(np.nan, 28.0)).holds is True
    assert judge_challenges(searches, 0.1, Reach(np.nan, 25.0)).holds is None
    unknown = judge_challenges(searches, 0.1, Reach(np.nan, np.nan))
    assert unknown.holds is None
    assert "setup's own data and network" in unknown.sentence


def test_a_search_must_come_down_to_the_algorithms_flattest_minimum():
    runs = [trained(0.0, sharpness=s) for s in (27.0, 25.0)]
    lost = trained(0.0, train_error=0.5, sharpness=1.0)
    own = Setup(name="a", distribution=ft.Xor(10), n=20, model=ft.MLP(30), algorithm=PHASES)
    found = reach([*runs, lost], own)
    assert found == Reach(25.0 / 22.3, 25.0)
    smaller = ft.Challenge(distribution=ft.Xor(8), n=20, model=ft.MLP(30))
    assert np.isnan(reach(runs, msgspec.structs.replace(own, challenge=smaller)).sharpness)
    assert np.isnan(reach([lost], own).ratio)


def test_the_scenarios_are_those_of_the_paper():
    good, bad = trained(0.01), trained(0.3)
    refuted = judge_challenges([challenged(1.0, 1.0)], 0.1, LEAST)
    supported = judge_challenges([challenged(0.0, 0.0)] * 2, 0.1, LEAST)
    assert scenario(supported, judge_runs([good, good], 0.1)) == "Scenario I"
    assert scenario(refuted, judge_runs([bad, bad], 0.1)) == "Scenario II"
    assert scenario(refuted, judge_runs([good, good], 0.1)) == "Scenario III"
    assert scenario(refuted, judge_runs([good], 0.1)) == "undetermined"
    assert len(SCENARIOS) == 4


def test_a_challenge_says_what_it_is_on_where_that_is_not_what_the_algorithm_ran_on():
    own = Setup(name="a", distribution=ft.Xor(10), n=20, model=ft.MLP(30), algorithm=PHASES)
    finding = judge_challenges([challenged(1.0, 1.0)], 0.1, LEAST)
    assert placed(finding, own) == finding
    other = ft.Challenge(distribution=ft.CompleteXor(8), n=28, model=ft.MLP(30))
    sentence = placed(finding, msgspec.structs.replace(own, challenge=other)).sentence
    assert "on CompleteXor data with d = 8, n = 28, width 30: not on the algorithm's" in sentence


def test_the_interval_is_students_and_within_zero_and_one():
    assert interval([0.2, 0.4]) == (0.0, 1.0)
    low, high = interval([0.29, 0.30, 0.31])
    assert (low, high) == pytest.approx(
        (0.30 - 4.30265 * 0.01 / 3**0.5, 0.30 + 4.30265 * 0.01 / 3**0.5), abs=1e-6
    )


def test_a_memorizer_is_known_with_bias_and_not_without():
    data = ft.xor(n=12, d=6, seed=0, distinct=True)
    assert known_bad_flattest(ft.MLP(20, bias=True), data, ft.MSE()) is not None
    assert known_bad_flattest(ft.MLP(20, bias=True, norm="sim_ln"), data, ft.MSE()) is not None
    relu = ft.MLP(20, bias=True, activation="leaky_relu:0")
    assert known_bad_flattest(relu, data, ft.MSE()) is not None
    assert known_bad_flattest(ft.MLP(20), data, ft.MSE()) is None
    assert known_bad_flattest(ft.MLP(20, bias=True, output_bias=True), data, ft.MSE()) is None
    assert known_bad_flattest(ft.MLP(4, bias=True), data, ft.MSE()) is None


def test_a_spike_network_is_known_with_sim_bn_where_the_data_are_complete():
    model, complete = ft.MLP(20, bias=True, norm="sim_bn"), ft.CompleteXor(5).draw(20, 0)
    for loss in (ft.MSE(), ft.Logistic(0.2)):
        params = known_bad_flattest(model, complete, loss)
        assert params is not None
        assert ft.certify(model, params, complete, loss).flattest
    drawn = ft.xor(n=12, d=6, seed=0, distinct=True)
    assert known_bad_flattest(model, drawn, ft.MSE()) is None
    assert known_bad_flattest(ft.MLP(5, bias=True, norm="sim_bn"), complete, ft.MSE()) is None


@pytest.mark.slow
def test_asking_a_small_setup_runs_it_and_finds_scenario_three(tmp_path):
    setup = Setup(
        name="small",
        distribution=ft.Xor(10, distinct=True),
        n=40,
        model=ft.MLP(200, bias=True),
        algorithm=(ft.sam(0.02, 0.1, epochs=500),),
        seeds=3,
        challenges=1,
    )
    found = judge(setup, Store.create(tmp_path / "store"), workers=1)
    assert found.flattest_generalize.verdict.value == 1 - 40 / 2**10
    assert found.scenario == "Scenario III"


def searched(distribution, **model):
    """A search that takes seconds."""
    return ft.Challenge(
        distribution=distribution, n=40, model=ft.MLP(40, **model), wrong=30, steps=300
    )


# The setups of the lab file, made small enough for a test: what is changed, and the answer.
SMALLER = {"seeds": 3, "challenges": 1, "baseline": ()}
TABLE_1 = {
    "no_bias": (
        {
            "seeds": 2,
            "model": ft.MLP(100),
            "algorithm": (ft.sam(0.02, 0.1, epochs=4_000),),
            "challenge": searched(ft.Xor(10)),
        },
        "Scenario I",
    ),
    "bias": (
        {
            "distribution": ft.Xor(40),
            "model": ft.MLP(100, bias=True),
            "algorithm": (ft.sam(0.01, 0.1, epochs=4_000),),
        },
        "Scenario II",
    ),
    "sim_bn": (
        {
            "seeds": 2,
            "distribution": ft.Xor(10),
            "n": 60,
            "model": ft.MLP(30, bias=True, norm="sim_bn"),
            "algorithm": (ft.sam(0.005, 0.1, epochs=2_000),),
            "challenge": searched(ft.CompleteXor(10), bias=True, norm="sim_bn"),
        },
        "Scenario III",
    ),
    "sim_ln": ({"model": ft.MLP(100, bias=True, norm="sim_ln")}, "Scenario III"),
}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", TABLE_1)
def test_the_four_architectures_are_in_the_scenarios_of_table_1(architecture, tmp_path):
    change, expected = TABLE_1[architecture]
    setup = runpy.run_path(str(LAB))[architecture]()
    small = msgspec.structs.replace(setup, **(SMALLER | change))
    assert judge(small, Store.create(tmp_path / "store"), workers=1).scenario == expected


def test_a_lone_phase_is_an_algorithm_of_one():
    setup = Setup(
        name="a",
        distribution=ft.Xor(10),
        n=20,
        model=ft.MLP(30),
        algorithm=ft.sam(0.1, 0.1, epochs=1),
    )
    assert setup.algorithm == PHASES


def test_a_setup_without_a_name_an_algorithm_or_a_threshold_is_refused():
    good = {
        "name": "a",
        "distribution": ft.Xor(10),
        "n": 20,
        "model": ft.MLP(30),
        "algorithm": PHASES,
    }
    for change, match in [
        ({"name": "a/b"}, "slash"),
        ({"algorithm": ()}, "no algorithm"),
        ({"generalizes": 0.7}, "0.5"),
    ]:
        with pytest.raises(FlattestError, match=match):
            Setup(**(good | change))


def test_what_is_not_a_distribution_is_refused_with_what_would_be():
    class Mine:
        d = 10

    with pytest.raises(FlattestError, match="cannot be this Mine: .* subclass of ft.Distribution"):
        Setup(name="a", distribution=Mine(), n=20, model=ft.MLP(30), algorithm=PHASES)


def test_a_proof_on_a_training_set_settles_it_and_names_the_seed():
    proven = msgspec.structs.replace(
        challenged(0.0, 1.0), series={**challenged(0.0, 1.0).series, "proven": np.ones(1)}, seed=7
    )
    finding = judge_challenges([challenged(0.0, 0.0), proven], 0.1, LEAST)
    assert finding.grade == "proven"
    assert "seed 7" in finding.sentence
    assert "1 of 2 training sets" in finding.sentence
    assert judge_challenges([challenged(1.0, 1.0), proven], 0.1, LEAST).grade == "refuted"
