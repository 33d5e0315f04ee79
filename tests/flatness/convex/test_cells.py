"""The cells of an arrangement are exactly the sign patterns that linear programs find."""

import numpy as np
import pytest

import flattest as ft
from flattest.flatness.convex import cells
from flattest.flatness.convex.cells import arrangement, most_cells
from flattest.problem.distributions import hypercube
from support.patterns import open_patterns


def with_one(x):
    return np.column_stack([x, np.ones(len(x))])


def rows(name):
    rng = np.random.default_rng(0)
    generic = rng.normal(size=(6, 3))
    return {
        "generic": generic,
        "one dimension": rng.normal(size=(4, 1)),
        "opposite rows": np.vstack([generic[:4], -generic[:2]]),
        "three rows in a plane": np.vstack([generic[:4], generic[0] - 2 * generic[1]]),
        "square": hypercube(2),
        "square with bias": with_one(hypercube(2)),
        "cube": hypercube(3),
        "grid with bias": with_one(np.array([[0.0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]])),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "generic",
        "one dimension",
        "opposite rows",
        "three rows in a plane",
        "square",
        "square with bias",
        "cube",
        "grid with bias",
    ],
)
def test_the_cells_are_the_open_patterns(name):
    R = rows(name)
    found = arrangement(R)
    assert {tuple(map(bool, cell)) for cell in found.cells} == open_patterns(R)
    assert len(found.cells) <= most_cells(*R.shape)


@pytest.mark.parametrize(("d", "functions"), [(2, 14), (3, 104), (4, 1882)])
def test_the_cells_of_the_cube_with_bias_are_the_threshold_functions(d, functions):
    """The numbers of Boolean threshold functions of d variables."""
    assert len(arrangement(with_one(hypercube(d))).cells) == functions


def test_a_cell_is_the_hull_of_its_rays():
    R = rows("grid with bias")
    found, rng = arrangement(R), np.random.default_rng(1)
    for p, cell in enumerate(found.cells):
        sides = np.where(cell, 1, -1)
        rays = found.rays[found.rays_of(p)]
        assert (sides * (rays @ R.T) >= -1e-12).all()
        assert ((rng.exponential(size=len(rays)) @ rays @ R.T > 0) == cell).all()


def test_in_general_position_a_missing_cell_is_noticed():
    R = rows("generic")
    Z = R / np.linalg.norm(R, axis=1, keepdims=True)
    found = arrangement(R)
    fewer = found._replace(cells=found.cells[:-1], start=found.start[:-1])
    with pytest.raises(ft.FlattestError, match="could not be enumerated"):
        cells._check(fewer, Z, generic=True)
    torn = found._replace(cells=~found.cells)
    with pytest.raises(ft.FlattestError, match="could not be enumerated"):
        cells._check(torn, Z, generic=False)


def test_inputs_that_float64_cannot_tell_apart_are_refused():
    x = np.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 1e-12], [0, 0, 1]])
    with pytest.raises(ft.FlattestError, match="nearly dependent"):
        arrangement(x)
