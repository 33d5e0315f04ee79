import dataclasses
import importlib
import itertools

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.evidence import Verdict
from flattest.lab.summary import Spread, Summary
from flattest.ledger import verify as verification
from flattest.ledger.claim import get, ledger
from flattest.ledger.figures import Basis
from flattest.ledger.verify import check
from flattest.papers.wen2023.claims.generalizers import missing_coupon
from flattest.papers.wen2023.claims.rademacher import (
    all_signs,
    cube_relu_rademacher,
    planar_relu_rademacher,
)
from flattest.papers.wen2023.experiments import DOMINATING, FALLING, RISING, degenerates_from
from flattest.problem.distributions import hypercube


def patched(monkeypatch, place, change):
    """Replaces what a ledger module imported, or takes from `ft`, by `change` of its result."""
    module, name = place.split(".")
    module = importlib.import_module(f"flattest.papers.wen2023.claims.{module}")
    module = module if hasattr(module, name) else module.ft
    original = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **k: change(original(*a, **k)))


CONSTRUCTIONS = [
    ("bias.memorizer", ("W1", "b1", "W2"), "theorem-4.1"),
    ("bias.xor_generalizer", ("W1", "b1", "W2"), "equation-5/r-corrected"),
    ("generalizers.head_generalizer", ("W1", "b1", "W2"), "proposition-a.1/r-corrected"),
    ("generalizers.circle_generalizer", ("W1", "b1", "W2"), "proposition-a.2/width-n-corrected"),
    ("layer_norm.sim_ln_memorizer", ("W1", "b1", "W2"), "theorem-5.1"),
    # Normalization undoes a change of W1 and b1 in the next two.
    ("layer_norm.sim_ln_generalizer", ("W2",), "proposition-5.2"),
    ("batch_norm.sim_bn_optimum", ("gamma", "W2"), "theorem-3.2/infimum"),
    ("no_bias.no_bias_xor", ("W1", "W2"), "condition-2"),
]


@pytest.mark.parametrize(
    ("place", "array", "id"),
    [(place, array, id) for place, arrays, id in CONSTRUCTIONS for array in arrays],
)
def test_one_per_cent_off_a_construction_makes_its_entry_fail(monkeypatch, place, array, id):
    def change(built):
        return built._replace(params={**built.params, array: built.params[array] * 1.01})

    patched(monkeypatch, place, change)
    assert check(get(f"wen2023/{id}")).status.startswith("fails")


@pytest.mark.parametrize(
    ("place", "id"),
    [
        ("bias.max_error", "theorem-4.1/zero-label-as-printed"),
        ("bias.max_error", "equation-5/r-as-printed"),
        ("bias.max_error", "theorem-5.1/cases-as-printed"),
        ("bias.max_error", "theorem-5.1/zero-label-as-printed"),
        ("bias.max_error", "lemma-a.1/all-neurons-as-printed"),
        ("bias.max_error", "theorem-3.2/all-neurons-as-printed"),
        ("near_flattest.max_error", "theorem-3.2/as-printed"),
        ("near_flattest.max_error", "theorem-3.2/width-5"),
        ("near_flattest.max_error", "lemma-a.2/as-printed"),
        ("generalizers.max_error", "proposition-a.1/r-as-printed"),
    ],
)
def test_a_network_that_does_not_interpolate_refutes_no_misprint(monkeypatch, place, id):
    patched(monkeypatch, place, lambda error: error + 1)
    assert check(get(f"wen2023/{id}")).status == "error"


@pytest.mark.parametrize("id", ["lemma-a.3/equality-as-printed", "theorem-3.2/as-printed"])
def test_a_network_that_is_not_flattest_refutes_no_misprint(monkeypatch, id):
    patched(monkeypatch, "batch_norm.trace", lambda found: float(found) + 1)
    assert check(get(f"wen2023/{id}")).status == "error"


def summary(error, train_loss, ratio, start=0.5):
    numbers = {"test_error": error, "train_loss": train_loss, "sharpness": ratio, "bound": 1.0}
    numbers |= {"start_test_error": start}
    columns = {name: Spread(value, value, value) for name, value in numbers.items()}
    words = dict.fromkeys(("experiment", "figure", "statement", "notes", "machine", "commit"), "")
    numbers = {"seeds": 3, "seconds": 1.0, "engine": 2, "statuses": {}, "verdicts": ()}
    return Summary(**words, **numbers, variant="full", columns=columns)


def found_to_be(monkeypatch, *numbers):
    """Every experiment came to these."""
    monkeypatch.setattr(
        verification, "basis", lambda name, store: Basis(summary(*numbers), "a test")
    )


@pytest.mark.parametrize("id", ["section-4/heading-as-printed", "section-5/heading-as-printed"])
def test_a_collapsed_network_refutes_no_misprint(monkeypatch, id):
    found_to_be(monkeypatch, 0.1, 1.0, 0.0)
    assert check(get(f"wen2023/{id}")).status == "error"


@pytest.mark.parametrize(
    ("error", "train_loss", "ratio", "status"),
    [
        (0.4, 0.001, 1.0, ("holds",)),
        (0.4, 0.5, 1.0, ("fails",)),
        (0.4, 0.001, 0.0, ("fails",)),
        (0.4, 0.001, 1.2, ("fails",)),
        (0.0, 0.001, 1.0, ("fails",)),
    ],
    ids=["as found", "no interpolator", "collapsed", "not flattest", "generalizes"],
)
def test_only_a_flattest_interpolator_that_fails_shows_that_sam_finds_one(
    monkeypatch, error, train_loss, ratio, status
):
    found_to_be(monkeypatch, error, train_loss, ratio)
    assert check(get("wen2023/section-4/heading-corrected")).status.startswith(status)


@pytest.mark.parametrize(
    ("row", "most"), [("no-bias", 0.01), ("sim-bn", 0.01), ("sim-ln", 0.05)], ids=lambda v: str(v)
)
def test_an_algorithm_generalizes_up_to_the_error_of_its_row_only(monkeypatch, row, most):
    entry = get(f"wen2023/table-1/{row}-algorithm")
    found_to_be(monkeypatch, most, 0.001, 1.0)
    assert check(entry).basis == "figure, 3 seeds"
    assert check(entry).status == "holds"
    found_to_be(monkeypatch, most + 1e-4, 0.001, 1.0)
    assert check(entry).status == "fails"


@pytest.mark.parametrize("row", ["no-bias", "sim-ln"])
@pytest.mark.parametrize("ratio", [0.6, 1.4])
def test_an_algorithm_far_from_the_bound_shows_nothing_of_flat_networks(monkeypatch, row, ratio):
    found_to_be(monkeypatch, 0.0, 0.001, ratio)
    assert check(get(f"wen2023/table-1/{row}-algorithm")).status == "fails"


@pytest.mark.parametrize(
    ("error", "ratio", "status"),
    [(0.1, 1.05, "holds"), (0.1, 1.06, "fails"), (0.1, 0.94, "fails"), (0.11, 1.0, "fails")],
)
def test_sam_finds_the_former_of_section_5_only_at_the_least_trace(
    monkeypatch, error, ratio, status
):
    found_to_be(monkeypatch, error, 0.001, ratio)
    assert check(get("wen2023/section-5/heading-corrected")).status.startswith(status)


def found_of(monkeypatch, **expected):
    """Every experiment has these verdicts: the expectation and its value in all seeds."""
    verdicts = tuple(
        Verdict(e.quantity, value, e.threshold, e.side, values=(value, value))
        for e, value in expected.values()
    )
    whole = msgspec.structs.replace(summary(0.0, 0.0, 1.0), verdicts=verdicts)
    monkeypatch.setattr(verification, "basis", lambda name, store: Basis(whole, "a test"))


@pytest.mark.parametrize(("share", "status"), [(0.8, "holds"), (0.81, "fails")])
def test_the_sharpness_falls_where_it_ends_a_fifth_below_its_maximum(monkeypatch, share, status):
    found_of(monkeypatch, falls=(FALLING, share))
    assert check(get("wen2023/figure-1/sharpness-falls")).status == status


@pytest.mark.parametrize(
    ("epoch", "rise", "status"),
    [(12_000, 0.005, "holds"), (12_001, 0.005, "fails"), (100, 0.0049, "fails")],
)
def test_generalization_degenerates_after_a_least_error_that_comes_early(
    monkeypatch, epoch, rise, status
):
    found_of(monkeypatch, least=(degenerates_from(4_000), epoch), rises=(RISING, rise))
    assert check(get("wen2023/figure-4/degenerates")).status == status


@pytest.mark.parametrize(("ratio", "status"), [(7.52, "holds"), (7.51, "not reproduced")])
def test_figure_2b_is_reproduced_from_the_printed_ratio_on(monkeypatch, ratio, status):
    found_of(monkeypatch, ratio=(DOMINATING, ratio))
    assert check(get("wen2023/figure-2b/columns")).status == status


@pytest.mark.parametrize(
    ("id", "error", "ratio", "status"),
    [
        ("section-2/label-noise", 0.05, 1.05, "holds"),
        ("section-2/label-noise", 0.051, 1.0, "fails"),
        ("section-2/label-noise", 0.0, 1.06, "fails"),
        ("section-6/reaches-the-bound", 0.5, 1.09, "holds"),
        ("section-6/reaches-the-bound", 0.0, 1.11, "fails"),
        ("section-6/reaches-the-bound", 0.0, 0.89, "fails"),
    ],
)
def test_flat_networks_are_near_the_least_trace(monkeypatch, id, error, ratio, status):
    found_to_be(monkeypatch, error, 0.01, ratio)
    assert check(get(f"wen2023/{id}")).status == status


def test_searches_count_only_from_bad_starts_and_where_they_end_well(monkeypatch):
    entry = get("wen2023/table-1/no-bias-flattest")
    for error, start, status in ((0.0, 0.5, "holds"), (0.02, 0.5, "fails")):
        found_to_be(monkeypatch, error, 0.0, 8.0, start)
        assert check(entry).status == status
    found_to_be(monkeypatch, 0.0, 0.0, 8.0, 0.1)
    assert check(entry).status == "error"


def test_a_bad_network_refutes_table_1s_third_row_only_at_the_infimum(monkeypatch):
    entry = get("wen2023/table-1/sim-bn-flattest")
    for error, sharpness, status in (
        (0.9, 8.0, "fails"),
        (0.0, 8.0, "holds"),
        (0.9, 8.02, "error"),
    ):
        found_to_be(monkeypatch, error, 0.0, sharpness)
        assert check(entry).status == status


@pytest.mark.parametrize("change", [lambda excess: excess + 1e-3, lambda excess: 0.0])
def test_a_balance_that_is_off_or_met_everywhere_makes_lemma_a3_fail(monkeypatch, change):
    patched(monkeypatch, "batch_norm._excess", change)
    row = check(get("wen2023/lemma-a.3/equality-corrected"))
    assert row.status.startswith("fails")


def scaled(factor):
    def change(bound):
        if isinstance(bound, float):
            return bound * factor
        return dataclasses.replace(bound, value=bound.value * factor)

    return change


@pytest.mark.parametrize("factor", [0.99, 1.01])
@pytest.mark.parametrize(
    ("place", "id"),
    [
        ("bias.lower_bound", "theorem-4.1/bounds-agree"),
        ("layer_norm.lower_bound", "lemma-a.12/bounds-agree"),
        ("batch_norm.lower_bound", "theorem-3.2/infimum"),
        ("generalizers.lower_bound", "proposition-a.2/width-n-corrected"),
        ("rademacher.linear_rademacher_bound", "lemma-a.25"),
        ("no_bias.two_layer_rademacher_bound", "lemma-3.1/rademacher"),
        ("no_bias.path_norm", "condition-2"),
    ],
)
def test_one_per_cent_off_a_bound_makes_its_entry_fail(monkeypatch, place, id, factor):
    patched(monkeypatch, place, scaled(factor))
    assert check(get(f"wen2023/{id}")).status.startswith("fails")


def test_the_rademacher_complexity_of_the_cube_is_that_of_the_plane_and_of_a_fine_net():
    plane = ft.Xor(2).draw(6, 1).x
    assert cube_relu_rademacher(plane) == pytest.approx(planar_relu_rademacher(plane), rel=1e-12)
    x = hypercube(3)[[0, 1, 2, 4, 7, 6]]
    u = np.random.default_rng(0).normal(size=(100_000, 3))
    features = np.maximum(u / np.linalg.norm(u, axis=1, keepdims=True) @ x.T, 0)
    net = np.mean([np.abs(features @ signs).max() for signs in all_signs(6)]) / 6
    exact = cube_relu_rademacher(x)
    assert net <= exact
    assert net == pytest.approx(exact, rel=1e-3)


def test_the_chance_to_miss_an_arc_is_that_of_enumeration():
    missed = [len(set(draws)) < 3 for draws in itertools.product(range(3), repeat=5)]
    assert missing_coupon(3, 5) == pytest.approx(np.mean(missed), rel=1e-12)


def test_every_numbered_statement_has_an_entry():
    ids = {entry.id.removeprefix("wen2023/") for entry in ledger("wen2023/*")}
    numbered = ["theorem-3.1", "theorem-3.2", "theorem-4.1", "theorem-5.1", "lemma-3.1"]
    numbered += ["lemma-4.1", *(f"theorem-a.{k}" for k in (1, 2, 3))]
    numbered += [f"lemma-a.{k}" for k in range(1, 28)]
    numbered += [f"proposition-{k}" for k in ("4.1", "4.2", "5.1", "5.2", "a.1", "a.2")]
    numbered += ["condition-1", "condition-2", "definition-4.1", "definition-4.2", "table-1"]
    missing = [name for name in numbered if not any(i.split("/")[0] == name for i in ids)]
    assert missing == []
