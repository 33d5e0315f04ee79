"""The least of F over bases, its bound, and where it is only approached."""

import numpy as np
import pytest
from scipy.optimize import minimize

from flattest.rescaling.alternation import Place, Point, Term, alternated, total
from flattest.rescaling.general_linear import least

HELD = Place()
SIZES, UNITS = (3, 2, 3), 9


def term(rng, left, right, rows, columns, samples=7):
    """Σ G ⊗ G of random gradients between two places."""
    G = rng.normal(size=(samples, rows, columns))
    one = {0: ("a", "a", ""), 1: ("a", "a", "a"), 2: ("a", "b", "ab")}[_axes(left)]
    other = {0: ("c", "c", ""), 1: ("c", "c", "c"), 2: ("c", "d", "cd")}[_axes(right)]
    formula = f"s{one[0]}{other[0]},s{one[1]}{other[1]}->{one[2]}{other[2]}"
    return Term(left, right, np.einsum(formula, G, G))


def _axes(place):
    return 2 if place.vector is not None else 1 if place.units else 0


def network(seed, samples=7):
    """Units that feed dual queries and keys and a chain of two vectors, and a chain of units."""
    rng = np.random.default_rng(seed)
    norm, first, second = (0, 1, 2, 3), (4, 5), (6, 7, 8)
    out = Place(units=norm, exponent=1)
    return [
        term(rng, Place(units=norm, exponent=-1), HELD, 4, 2, samples),
        term(rng, Place(0, exponent=-1), out, 3, 4, samples),
        term(rng, Place(0, exponent=1), out, 3, 4, samples),
        term(rng, Place(1, exponent=-1), out, 2, 4, samples),
        term(rng, Place(2, exponent=-1), Place(1, exponent=1), 3, 2, samples),
        term(rng, HELD, Place(2, exponent=1), 5, 3, samples),
        term(rng, Place(units=first, exponent=-1), HELD, 2, 5, samples),
        term(rng, Place(units=second, exponent=-1), Place(units=first, exponent=1), 3, 2, samples),
        term(rng, HELD, Place(units=second, exponent=1), 1, 3, samples),
        Term(HELD, HELD, np.array(1.5)),
    ]


def point_of(z):
    P, at = [], 0
    for size in SIZES:
        L = np.zeros((size, size))
        count = size * (size + 1) // 2
        L[np.tril_indices(size)] = z[at : at + count]
        L[np.diag_indices(size)] = np.exp(np.diag(L))
        P.append(L @ L.T)
        at += count
    return Point(P, z[at:])


@pytest.mark.parametrize("seed", range(3))
def test_an_optimizer_over_all_bases_finds_the_same_and_nothing_below_the_bound(seed):
    terms = network(seed)
    found = alternated(terms, SIZES, UNITS)
    assert found.value / found.lower_bound - 1 < 1e-10
    assert found.attained == pytest.approx(found.value, rel=1e-12)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        start = rng.normal(size=15 + UNITS)
        best = minimize(lambda z: total(terms, point_of(z)), start, tol=1e-12).fun
        assert best >= found.lower_bound
        assert best == pytest.approx(found.value, rel=1e-6)


def test_every_point_lies_above_the_bound():
    """From far away too, and with a bound that was proven in another point's bases."""
    terms = network(5)
    found = alternated(terms, SIZES, UNITS)
    rng = np.random.default_rng(5)
    values = [total(terms, point_of(s * rng.normal(size=24))) for s in np.geomspace(1e-6, 3, 300)]
    assert min(values) >= found.lower_bound


def test_a_vector_alone_has_the_closed_form():
    rng = np.random.default_rng(0)
    terms = [
        term(rng, Place(0, exponent=-1), HELD, 3, 4),
        term(rng, HELD, Place(0, exponent=1), 2, 3),
    ]
    found = alternated(terms, (3,), 0)
    assert found.value == pytest.approx(least(terms[0].gram, terms[1].gram).value, rel=1e-12)
    assert found.lower_bound == pytest.approx(found.value, rel=1e-12)


@pytest.mark.parametrize("exponent", [-1, 1])
def test_where_one_side_is_singular_the_infimum_is_approached_and_proven(exponent):
    """Fewer gradients than the vector is long, on one side; units on the other."""
    rng = np.random.default_rng(0)
    units = Place(units=(0, 1), exponent=1)
    terms = [
        term(rng, Place(units=(0, 1), exponent=-1), HELD, 2, 3),
        term(rng, Place(0, exponent=exponent), units, 3, 2),
        term(rng, Place(0, exponent=-exponent), HELD, 3, 1, samples=2),
    ]
    found = alternated(terms, (3,), 2)
    assert found.value / found.lower_bound - 1 < 1e-10
    assert found.value < found.attained < found.value * (1 + 1e-5)
    far = found.point.P[0]
    assert np.linalg.cond(far) > 1e5


def test_a_bound_from_another_slope_would_fail():
    """What proves the bound is the slope that is left: stopped after no round it is far lower."""
    terms = network(0)
    stopped = alternated(terms, SIZES, UNITS, tolerance=np.inf)
    found = alternated(terms, SIZES, UNITS)
    assert stopped.rounds == 0
    assert stopped.lower_bound < found.value < stopped.value
