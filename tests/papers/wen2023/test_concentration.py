"""Variance proxies against brute force, and the law that refutes Lemma A.19's constant."""

import numpy as np
import pytest

from flattest.papers.wen2023.claims.concentration import FOUR_POINT, Law, symmetric_law, three_point


def slow_proxy(law):
    lam = np.geomspace(1e-2, 300, 200_001)
    x = lam[:, None] * law.atoms
    largest = x.max(axis=1, keepdims=True)
    mgf = (law.masses * (np.exp(x - largest) + np.exp(-x - largest)) / 2).sum(axis=1)
    return max(1.0, (2 * (np.log(mgf) + largest[:, 0]) / lam**2).max())


@pytest.mark.parametrize(
    "law",
    [three_point(q) for q in (0.5, 1 / 3, 0.3, 0.05, 0.002)]
    + [symmetric_law(np.random.default_rng(seed).normal(size=9)) for seed in range(4)],
)
def test_the_variance_proxy_is_the_supremum_over_all_exponents(law):
    assert law.moment(2) == pytest.approx(1)
    assert law.proxy == pytest.approx(slow_proxy(law), rel=1e-6)


def test_three_points_are_strictly_subgaussian_from_a_mass_of_one_third():
    assert three_point(1 / 3).proxy == pytest.approx(1, abs=1e-9)
    assert three_point(0.33).proxy > 1 + 1e-6


def test_the_four_point_law_has_proxy_1_and_a_third_of_the_printed_probability():
    assert FOUR_POINT.moment(2) == pytest.approx(1)
    assert FOUR_POINT.moment(4) == pytest.approx(3)
    assert slow_proxy(FOUR_POINT) == pytest.approx(1, abs=1e-9)
    assert 20 * (np.exp(0.5) - 1.5) / 9 == pytest.approx(0.3305, abs=1e-4)
    # With less mass farther out, at the same variance, σ is no longer 1.
    wider = Law(np.sqrt([0.5, 5.5]), np.array([9.0, 1.0]) / 10)
    assert wider.moment(2) == pytest.approx(1)
    assert wider.proxy > 1 + 1e-3
