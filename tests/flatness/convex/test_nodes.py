"""Nodes of branch and bound: nothing in a node is steeper than its bound."""

import numpy as np
import pytest
from scipy.optimize import linprog, lsq_linear

from flattest.flatness.convex import nodes


def slow_steepness(R, lengths, slopes, dual, v):
    """λ·h/(ρ ‖h‖) of one neuron, term by term."""
    slope = np.where(R @ v > 0, slopes[1], slopes[0])
    h = slope * (R @ v)
    size = np.sqrt(np.sum((slope * lengths) ** 2)) * np.linalg.norm(h)
    return dual @ h / size if size > 0 else -np.inf


def problem(seed, slopes=(0.0, 1.0)):
    rng = np.random.default_rng(seed)
    k, D = int(rng.integers(3, 12)), int(rng.integers(1, 5))
    R, _ = np.linalg.qr(rng.normal(size=(k + D, D)))
    return R, rng.uniform(0.3, 1, size=len(R)), slopes, 1.5 * rng.normal(size=len(R)), rng


@pytest.mark.parametrize("seed", range(40))
def test_bounded_least_squares_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    m, D = int(rng.integers(1, 30)), int(rng.integers(1, 9))
    G, b = rng.normal(size=(m, D)), rng.normal(size=D)
    upper = np.where(rng.random(m) < 0.5, np.inf, 0.3 * rng.random(m))
    x = nodes.bounded_least_squares(G, b, upper)
    assert (x >= 0).all()
    assert (x <= upper).all()
    least = np.sqrt(2 * lsq_linear(G.T, b, (0, upper), method="bvls", tol=1e-14).cost)
    assert np.linalg.norm(x @ G - b) <= least + 1e-12


@pytest.mark.parametrize("slopes", [(0.0, 1.0), (0.1, 1.0), (-0.4, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("goal", [0.0, 0.5, 1.0])
def test_no_neuron_of_a_node_is_steeper_than_its_bound(slopes, goal):
    for seed in range(25):
        *of, rng = problem(seed, slopes)
        R = of[0]
        v = rng.normal(size=(60, R.shape[1]))
        for w in v[:5]:
            sides = np.sign(R @ w).astype(np.int8) * (rng.random(len(R)) < 0.5).astype(np.int8)
            bound, _, inner = nodes.look(*of, sides[None], 1e3, goal)
            assert inner[0]
            inside = [u for u in (w, *v) if (sides * (R @ u) >= 0).all()]
            steep = [slow_steepness(*of, u) for u in inside]
            # Below the goal a bound need not be tight, but it holds all the same.
            assert max(steep) <= bound[0] + 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_of_a_cell_is_reached(seed):
    """All rows decided: sampled neurons near the best one come as near as they should."""
    *of, rng = problem(seed)
    R, dual = of[0], of[3]
    w = rng.normal(size=R.shape[1])
    sides = np.sign(R @ w).astype(np.int8)
    bound, row, _ = nodes.look(*of, sides[None], 1e3, 0.0)
    assert row[0] == nodes.NONE
    live, W = sides > 0, sides[:, None] * R
    if not live.any() or not (dual[live] > 0).any():
        return
    free = np.zeros(R.shape[1])
    v = nodes.nearest(R[live], dual[live], W, np.full(len(W), np.inf), free, free)[0]
    h = R[live] @ v
    if np.linalg.norm(h) > 1e-6:
        best = dual[live] @ h / np.linalg.norm(of[1][live]) / np.linalg.norm(h)
        assert bound[0] == pytest.approx(best, rel=1e-9)
        assert (W @ v).min() >= -1e-9


@pytest.mark.parametrize("seed", range(30))
def test_interiors_are_those_of_a_linear_program(seed):
    rng = np.random.default_rng(seed)
    R = rng.normal(size=(9, 3))
    sides = rng.choice([-1, 0, 1], size=9, p=[0.4, 0.2, 0.4]).astype(np.int8)
    W = (sides[:, None] * R)[sides != 0]
    found = linprog(
        [0, 0, 0, -1], A_ub=np.column_stack([-W, np.ones(len(W))]), b_ub=np.zeros(len(W)),
        bounds=[(-1, 1)] * 3 + [(None, 1)],
    )  # fmt: skip
    assert nodes.has_interior(R, sides) == (-found.fun > 1e-9)


def test_opposite_rows_have_no_interior_together():
    R = np.array([[1.0, 2.0], [-1.0, -2.0], [0.0, 1.0]])
    assert not nodes.has_interior(R, np.array([1, 1, 0], np.int8))
    assert not nodes.has_interior(R, np.array([-1, -1, 1], np.int8))
    assert nodes.has_interior(R, np.array([1, -1, 1], np.int8))


def test_undecided_rows_that_cost_more_than_they_bring_lower_the_bound():
    """λ = (2, −3) on rows 1 and 1: alone the first row has steepness 2, the second row, not
    decided, is active with it and takes it below 0."""
    R, lengths = np.full((2, 1), np.sqrt(0.5)), np.ones(2)
    sides = np.array([[1, 0]], np.int8)
    bound, _, _ = nodes.look(R, lengths, (0.0, 1.0), np.array([2.0, -3.0]), sides, 1.0, 0.5)
    assert bound[0] <= 0.5 + 1e-9
    alone, _, _ = nodes.look(
        R[:1], lengths[:1], (0.0, 1.0), np.array([2.0]), sides[:, :1], 1.0, 0.5
    )
    assert alone[0] == pytest.approx(2.0)
