"""Column generation agrees with all cells, and its bound needs none of them."""

import numpy as np
import pytest

import flattest as ft
from flattest.flatness.convex import nodes, pricing
from flattest.flatness.convex.certificate import patterns, steepness
from flattest.flatness.convex.columns import solve_by_columns
from flattest.flatness.convex.program import solve
from flattest.flatness.convex.rows import rows_of
from flattest.studies.question1.small import problem


def normal(d, n, seed=0, bias=False, activation="relu"):
    rng = np.random.default_rng(seed)
    data = ft.Dataset(rng.normal(size=(n, d)), rng.normal(size=n))
    return rows_of(ft.MLP(1, bias=bias, activation=activation), data)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu:0.1"])
def test_it_agrees_with_all_cells(activation):
    rows = normal(3, 8, activation=activation)
    found, all_cells = solve_by_columns(rows), solve(patterns(rows))
    assert found.complete
    assert found.gap <= 1e-8
    assert found.value == pytest.approx(all_cells.value, rel=1e-8)
    assert found.bound <= all_cells.value * (1 + 1e-12)


def test_opposite_inputs_are_never_both_switched_off():
    """At w·x = 0 they are, but in no open cell, and the trace there is not that of a network."""
    x = [[1.0, 1, 1, 1], [-1, -1, -1, -1], [1, -1, 1, -1], [-1, -1, -1, 1]]
    for activation in ("relu", "leaky_relu:0.1"):
        rows = rows_of(ft.MLP(1, activation=activation), ft.Dataset(x, [1.0, 1, -1, -1]))
        found, all_cells = solve_by_columns(rows), solve(patterns(rows))
        assert found.value == pytest.approx(all_cells.value, rel=1e-6)
        assert found.gap <= 1e-6


@pytest.mark.slow
def test_it_agrees_with_all_cells_on_small_problems():
    for seed in range(24):
        model, data = problem(seed)
        rows = rows_of(model, data)
        found, all_cells = solve_by_columns(rows), solve(patterns(rows))
        assert found.bound <= all_cells.value * (1 + 1e-10)
        assert found.value >= all_cells.bound * (1 - 1e-10)
        assert found.value == pytest.approx(all_cells.value, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bias", [False, True])
def test_the_proven_steepness_is_that_of_all_cells_or_larger(seed, bias):
    """Of a dual that is no optimum: nothing below the largest over the cells, and near it."""
    rows = normal(2, 7, seed, bias)
    dual = np.random.default_rng(seed).normal(size=len(rows.t))
    exact = steepness(patterns(rows), dual, enough=0.0).largest
    proven = pricing.prove(rows, dual, 0.0, 100_000, pricing.reach(rows), finds=10**6).largest
    assert exact * (1 - 1e-9) <= proven <= exact * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n", "seed"), [(4, 10, 0), (8, 24, 1), (10, 40, 1)])
def test_branch_and_bound_ends_where_nothing_is_too_steep(d, n, seed):
    """Draws on which a node without a row to divide on was taken for the last word, and (the first)
    one whose linear program no presolved solver ends."""
    found = solve_by_columns(normal(d, n, seed))
    assert found.complete
    assert found.gap <= 1e-8


@pytest.mark.slow
def test_few_nodes_prove_less_but_nothing_wrong():
    rows = normal(3, 10)
    exact = solve(patterns(rows)).value
    bounds = [solve_by_columns(rows, nodes=nodes).bound for nodes in (1, 30, 100_000)]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= exact * (1 + 1e-10)
    assert bounds[0] < 0.99 * exact


@pytest.mark.slow
def test_no_neuron_is_steeper_than_proven():
    rows = normal(4, 9)
    dual = solve_by_columns(rows).dual
    largest = pricing.prove(rows, dual, 1 + 1e-9, 100_000, pricing.reach(rows)).largest
    v = np.random.default_rng(1).normal(size=(200, 4))
    for found in pricing.local_search(rows, dual, v, 40, 0.0):
        assert found.steepness <= largest * (1 + 1e-9)


def test_a_bound_too_small_is_noticed(monkeypatch):
    """The bound rests on what is proven of every node: one too small proves too much."""
    rows = normal(3, 8)
    exact = solve(patterns(rows)).value
    real = pricing._look

    def smaller(*nodes):
        bound, row, inner = real(*nodes)
        return 0.9 * bound, row, inner

    monkeypatch.setattr(pricing, "_look", smaller)
    dual = 1.05 * solve(patterns(rows)).dual
    wrong = pricing.prove(rows, dual, 1.0, 10_000, pricing.reach(rows))
    assert float(dual @ rows.t) / max(1.0, wrong.largest) > exact * (1 + 1e-3)


def test_rows_of_another_layout_need_no_other_kernel():
    rows = normal(3, 8)
    root, dual = np.zeros((1, 8), np.int8), np.ones(8)
    (bound, *_) = pricing._look(rows, dual, root, 1e3, 0.0)
    compiled = len(nodes.look.overloads), len(nodes.has_interior.overloads)
    strided = rows._replace(R=np.asfortranarray(rows.R))
    assert pricing._look(strided, dual, root, 1e3, 0.0)[0] == bound
    assert pricing.is_open(strided, root[0])
    assert compiled == (len(nodes.look.overloads), len(nodes.has_interior.overloads))


def test_patterns_too_many_to_enumerate_are_generated(monkeypatch):
    from flattest.flatness.convex import network

    rng = np.random.default_rng(3)
    data = ft.Dataset(rng.normal(size=(8, 3)), rng.normal(size=8))
    least = ft.flattest_network(ft.MLP(1), data).least
    monkeypatch.setattr(network, "can_enumerate", lambda k, D: False)
    found = ft.flattest_network(ft.MLP(1), data)
    assert "branch and bound" in found.proof
    assert found.least == pytest.approx(least, rel=1e-8)
    assert found.certificate.holds
    assert float(ft.trace(found.model, found.params, data)) == pytest.approx(found.trace, rel=1e-9)
