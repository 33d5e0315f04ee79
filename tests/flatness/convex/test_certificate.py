"""The steepness of a dual is never exceeded by a neuron, and nearly reached by the best."""

import numpy as np
import pytest
from scipy.optimize import minimize

from flattest.flatness.convex.certificate import patterns, simple_steepness, steepness
from flattest.flatness.convex.rows import rows_of
from flattest.studies.question1.small import problem


def ratio(rows, dual, v):
    """|λ·σ(R v)|/(ρ ‖σ(R v)‖) for each row of v."""
    h = rows.outputs(v)
    size = rows.weights(v) * np.linalg.norm(h, axis=1)
    return np.abs(h @ dual) / np.where(size > 0, size, np.inf)


@pytest.mark.parametrize("seed", [0, 1, 5, 10, 11])
def test_no_neuron_is_steeper_than_proven_and_one_comes_close(seed):
    rows = rows_of(*problem(seed))
    of, rng = patterns(rows), np.random.default_rng(seed)
    dual = rng.normal(size=len(rows.t))
    proven = steepness(of, dual, enough=0.0).largest
    v = rng.normal(size=(20_000, rows.R.shape[1]))
    sampled = ratio(rows, dual, v)
    assert sampled.max() <= proven <= simple_steepness(of, dual).largest
    # From the steepest sample uphill: the ratio is smooth within a cell, so stay in it.
    start = v[sampled.argmax()]
    found = minimize(lambda w: -ratio(rows, dual, w[None])[0], start, method="Nelder-Mead")
    assert proven * 0.9 <= -found.fun <= proven * (1 + 1e-12)


def test_on_every_cell_the_bound_holds_for_its_own_points_and_is_reached():
    rows = rows_of(*problem(16))
    of, rng = patterns(rows), np.random.default_rng(0)
    dual = rng.normal(size=len(rows.t))
    by_cell = steepness(of, dual, enough=0.0).bound.max(axis=0)
    for p, bound in zip(of.live, by_cell, strict=True):
        rays = of.found.rays[of.found.rays_of(p)]
        v = rng.dirichlet(np.full(len(rays), 0.3), size=2000) @ rays
        assert ratio(rows, dual, v).max() <= bound * (1 + 1e-12)


def test_what_is_known_of_one_dual_bounds_its_neighbours():
    rows = rows_of(*problem(16))
    of, rng = patterns(rows), np.random.default_rng(0)
    dual = rng.normal(size=len(rows.t))
    near = dual + 1e-3 * rng.normal(size=len(dual))
    known = steepness(of, dual, enough=0.0)
    lazy, anew = steepness(of, near, np.inf, known), steepness(of, near, 0.0)
    assert (anew.bound <= lazy.bound + 1e-12).all()


def test_a_cell_without_one_of_its_rays_would_prove_too_much():
    rows = rows_of(*problem(16))
    of, rng = patterns(rows), np.random.default_rng(0)
    dual = rng.normal(size=len(rows.t))
    blind = of._replace(outputs=of.outputs * (np.arange(len(of.outputs)) % 2)[:, None])
    assert steepness(blind, dual, 0.0).largest < steepness(of, dual, 0.0).largest * (1 - 1e-6)
