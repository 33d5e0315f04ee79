"""The least over GL(h) of two blocks, in closed form."""

import numpy as np
import pytest
from scipy.optimize import minimize

from flattest.rescaling.general_linear import least


@pytest.mark.parametrize("h", [1, 2, 3])
def test_the_closed_form_is_what_an_optimizer_over_all_matrices_finds(h):
    rng = np.random.default_rng(h)
    N, M = (F @ F.T for F in rng.normal(size=(2, h, h + 1)))

    def value(entries):
        A = entries.reshape(h, h)
        back = np.linalg.inv(A)
        return np.trace(back @ N @ back.T) + np.trace(A.T @ M @ A)

    starts = [np.eye(h) + 0.3 * rng.normal(size=(h, h)) for _ in range(4)]
    best = min(minimize(value, s.reshape(-1), tol=1e-12).fun for s in starts)
    found = least(N, M)
    assert best == pytest.approx(found.value, rel=1e-6)
    assert value(found.A) == pytest.approx(found.value, rel=1e-12)
    assert found.attained == pytest.approx(found.value, rel=1e-12)


def test_where_a_matrix_is_singular_the_infimum_is_approached_only():
    found = least(np.diag([1.0, 0.0]), np.diag([4.0, 1.0]))
    assert found.value == pytest.approx(4.0, rel=1e-12)
    assert 4.0 < found.attained < 4.001
