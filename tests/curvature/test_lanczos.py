"""Lanczos on its own: eigenpairs of given matrices."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flattest as ft
from flattest.curvature import lanczos
from support.points import close

seeds = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 90), st.integers(1, 6), st.integers(1, 3), seeds)
def test_lanczos_finds_the_largest_eigenpairs_through_restarts(size, k, block, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size))
    A, k, starts = A + A.T, min(k, size), rng.normal(size=(block, size))
    values, vectors = lanczos.top_eigenpairs(lambda v: v @ A, starts, k, 1e-12, rng)
    assert close(values, np.linalg.eigvalsh(A)[::-1][:k], np.abs(A).max() * size, 1e-11)
    assert close(vectors @ vectors.T, np.eye(k), 1.0, 1e-9)


def test_lanczos_finds_repeated_eigenvalues_and_says_when_it_has_not_converged():
    rng = np.random.default_rng(0)
    A = np.diag([3.0, 3.0, 3.0, 1.0, 1.0, 0.0])
    values, _ = lanczos.top_eigenpairs(lambda v: v @ A, rng.normal(size=(1, 6)), 4, 1e-12, rng)
    assert values == pytest.approx([3, 3, 3, 1], rel=1e-12)
    B = np.diag(np.linspace(0, 1, 2000))
    with pytest.raises(ft.FlattestError, match="did not reach tol = 1e-14 in 20 products"):
        lanczos.top_eigenpairs(
            lambda v: v @ B, rng.normal(size=(2, 2000)), 1, 1e-14, rng, most_products=20
        )


def test_three_vectors_give_the_means_of_a_whole_basis():
    """Also beyond convergence, where nodes repeat: two clusters, 40 steps."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 0.1, 150), rng.normal(9, 0.01, 50)])
    Q, _ = np.linalg.qr(rng.normal(size=(200, 200)))
    H = (Q * values) @ Q.T
    start = rng.choice([-1.0, 1.0], 200)
    weights = (Q.T @ start) ** 2 / 200
    nodes, found = lanczos.short_recurrence(lambda rows: rows @ H, start, 40)
    assert found.sum() == pytest.approx(1)
    for function in (np.square, np.cos, lambda x: np.exp(-(x**2))):
        assert found @ function(nodes) == pytest.approx(weights @ function(values), rel=1e-9)


def test_a_basis_that_is_short_of_room_finds_the_same_eigenvalues(monkeypatch):
    rng = np.random.default_rng(1)
    Q, _ = np.linalg.qr(rng.normal(size=(300, 300)))
    values = np.sort(rng.normal(size=300) ** 3)
    H = (Q * values) @ Q.T
    monkeypatch.setattr(lanczos, "_MOST_BASIS", 300)
    assert lanczos.basis_room(300, 3) == 11
    starts = rng.normal(size=(2, 300))
    found, _ = lanczos.top_eigenpairs(lambda rows: rows @ H, starts, 3, 1e-10, rng)
    assert found == pytest.approx(values[:-4:-1], rel=1e-8)
