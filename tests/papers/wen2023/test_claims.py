import dataclasses
import importlib

import pytest

from flattest.lab.summary import Spread, Summary
from flattest.ledger import verify as verification
from flattest.ledger.claim import get, ledger
from flattest.ledger.figures import Basis
from flattest.ledger.verify import check


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
        ("generalizers.max_error", "proposition-a.1/r-as-printed"),
    ],
)
def test_a_network_that_does_not_interpolate_refutes_no_misprint(monkeypatch, place, id):
    patched(monkeypatch, place, lambda error: error + 1)
    assert check(get(f"wen2023/{id}")).status == "error"


def test_a_network_that_is_not_flattest_refutes_no_misprint(monkeypatch):
    patched(monkeypatch, "batch_norm.trace", lambda found: float(found) + 1)
    assert check(get("wen2023/lemma-a.3/equality-as-printed")).status == "error"


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


@pytest.mark.parametrize("id", ["table-1/bias-algorithm", "section-4/heading-corrected"])
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
    monkeypatch, id, error, train_loss, ratio, status
):
    found_to_be(monkeypatch, error, train_loss, ratio)
    assert check(get(f"wen2023/{id}")).status.startswith(status)


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


@pytest.mark.parametrize("row", ["no-bias", "sim-bn"])
def test_searches_count_only_from_bad_starts_and_where_they_end_well(monkeypatch, row):
    entry = get(f"wen2023/table-1/{row}-flattest")
    for error, start, status in ((0.0, 0.5, "holds"), (0.02, 0.5, "fails")):
        found_to_be(monkeypatch, error, 0.0, 8.0, start)
        assert check(entry).status == status
    found_to_be(monkeypatch, 0.0, 0.0, 8.0, 0.1)
    assert check(entry).status == "error"


def test_a_search_that_ends_above_the_infimum_says_nothing_of_near_flattest_networks(monkeypatch):
    found_to_be(monkeypatch, 0.0, 0.0, 8.02)
    assert check(get("wen2023/table-1/sim-bn-flattest")).status == "fails"


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


def test_every_numbered_statement_has_an_entry():
    ids = {entry.id.removeprefix("wen2023/") for entry in ledger("wen2023/*")}
    numbered = ["theorem-3.1", "theorem-3.2", "theorem-4.1", "theorem-5.1", "lemma-3.1"]
    numbered += ["lemma-4.1", *(f"theorem-a.{k}" for k in (1, 2, 3))]
    numbered += [f"lemma-a.{k}" for k in range(1, 28)]
    numbered += [f"proposition-{k}" for k in ("4.1", "4.2", "5.1", "5.2", "a.1", "a.2")]
    numbered += ["condition-1", "condition-2", "definition-4.1", "definition-4.2", "table-1"]
    missing = [name for name in numbered if not any(i.split("/")[0] == name for i in ids)]
    assert missing == []
