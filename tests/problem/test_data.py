"""Distributions: their laws, their populations and the checks on what a user brings."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

import flattest as ft

seeds = st.integers(0, 2**32 - 1)
DISTRIBUTIONS = [
    ft.Xor(5),
    ft.Xor(5, distinct=True),
    ft.CompleteXor(5),
    ft.Ball(3),
    ft.Circle(),
    ft.Circle(4, radius=2.0, label="cos"),
    ft.Univariate(),
    ft.SingleIndex(4, link="quadratic", noise=0.1),
    ft.SumOfSingleIndex(4, r=2),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_draws_depend_on_the_seed_alone(distribution):
    n = 16
    a, b, c = (distribution.draw(n, seed) for seed in (3, 3, 4))
    assert a.x.shape == (n, distribution.d)
    assert a.y.shape == (n,)
    assert np.array_equal(a.x, b.x)
    assert np.array_equal(a.y, b.y)
    assert not np.array_equal(a.x, c.x)
    assert a.distribution == distribution


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_the_population_is_not_the_training_set(distribution):
    train, fresh = distribution.draw(16, 0), distribution.population(16, 0)
    assert not np.array_equal(train.x, fresh.x)


def test_xor_is_uniform_with_the_product_of_two_signs():
    data = ft.xor(n=4000, d=6, seed=0)
    assert set(np.unique(data.x)) == {-1.0, 1.0}
    assert np.array_equal(data.y, data.x[:, 0] * data.x[:, 1])
    assert np.abs(data.x.mean(axis=0)).max() < 4 / np.sqrt(4000)
    assert np.abs(data.x.T @ data.x / 4000 - np.eye(6)).max() < 4 / np.sqrt(4000)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 7), st.data(), seeds)
def test_distinct_draws_have_no_point_twice(d, draw, seed):
    n = draw.draw(st.integers(1, 2**d))
    data = ft.xor(n, d, seed, distinct=True)
    assert len(np.unique(data.x, axis=0)) == n


def test_distinct_draws_beyond_enumeration():
    data = ft.xor(500, 24, seed=0, distinct=True)
    assert len(np.unique(data.x, axis=0)) == 500


def test_more_distinct_points_than_there_are_is_refused():
    assert ft.xor(8, 3, distinct=True).n == 8
    with pytest.raises(ft.FlattestError, match=r"has only 8 points, fewer than 9"):
        ft.xor(9, 3, distinct=True)


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 9), st.integers(0, 5), seeds)
def test_complete_xor_meets_condition_1(d, more, seed):
    n = 4 * min(d - 1 + more, 2 ** (d - 2))
    data = ft.complete_xor(n, d, seed)
    assert ft.meets_condition_1(data)
    tails = data.x[:, 2:]
    assert np.linalg.matrix_rank(tails - tails[0]) == d - 2


def test_condition_1_fails_when_a_pattern_a_tail_or_a_label_is_lost():
    data = ft.complete_xor(20, 5, seed=0)
    assert not ft.meets_condition_1(ft.Dataset(data.x[1:], data.y[1:]))
    assert not ft.meets_condition_1(ft.Dataset(data.x, -data.y))
    # All four patterns of three tails only: the rank is 2 < 3.
    few = np.isin((data.x[:, 2:] @ [4, 2, 1]), np.unique(data.x[:, 2:] @ [4, 2, 1])[:3])
    assert not ft.meets_condition_1(ft.Dataset(data.x[few], data.y[few]))
    assert not ft.meets_condition_1(ft.Dataset(2 * data.x, data.y))


@pytest.mark.parametrize("n", [12, 18, 40])
def test_complete_xor_needs_a_feasible_size(n):
    with pytest.raises(ft.FlattestError, match="multiple of 4 from 16 to 32"):
        ft.complete_xor(n, 5)


def test_ball_is_uniform_in_the_ball_of_radius_root_d():
    data = ft.ball(n=5000, d=4, seed=0)
    radii = np.linalg.norm(data.x, axis=1) / 2
    assert stats.kstest(radii**4, "uniform").pvalue > 1e-3
    assert np.abs((data.x / radii[:, None]).mean(axis=0)).max() < 4 * 2 / np.sqrt(4 * 5000)
    assert data.y == pytest.approx(np.abs(data.x[:, 0]) - np.abs(data.x[:, 1]))


def test_circle_has_fixed_norm_and_labels_by_angle():
    data = ft.circle(n=2000, d=5, seed=0, radius=3.0, label="sin2")
    assert np.linalg.norm(data.x[:, :2], axis=1) == pytest.approx(np.ones(2000))
    assert np.linalg.norm(data.x, axis=1) == pytest.approx(np.full(2000, 3.0))
    angle = np.arctan2(data.x[:, 1], data.x[:, 0])
    assert data.y == pytest.approx(np.sin(2 * angle))
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 40), st.floats(0, 0.9), seeds)
def test_univariate_inputs_keep_apart(n, spread, seed):
    data = ft.univariate(n, seed=seed, low=-2.0, high=3.0, spread=spread, noise=0.0, target="sine")
    x = data.x[:, 0]
    assert np.diff(x).min() >= (1 - spread) * 5 / n - 1e-9
    assert x.min() >= -2
    assert x.max() <= 3
    assert data.y == pytest.approx(np.sin(np.pi * x))


def test_index_models_are_gaussian_with_links_on_orthonormal_directions():
    law = ft.SumOfSingleIndex(6, r=3, link="quadratic", noise=0.5)
    assert law.directions @ law.directions.T == pytest.approx(np.eye(3))
    data = law.draw(20_000, 0)
    assert stats.kstest(data.x.ravel(), "norm").pvalue > 1e-3
    residual = data.y - ((data.x @ law.directions.T) ** 2).mean(axis=1)
    assert stats.kstest(residual / 0.5, "norm").pvalue > 1e-3
    clean = ft.single_index(10, 4, link="relu")
    assert clean.y == pytest.approx(np.maximum(clean.x[:, 0], 0))


def wrong(f, y):
    return (f * y <= 0).astype(float)


def test_small_supports_are_enumerated_exactly():
    """Pr over {−1, 1}^d of a predictor that is right unless x[1] = x[3] = 1: 3/4."""
    law = ft.Xor(10)
    found = ft.population_mean(
        law, lambda x: x[:, 0] * x[:, 1] * np.where(x[:, 0] + x[:, 2] == 2, -1, 1), wrong
    )
    assert found == ft.Estimate(0.25, 0.0, exact=True)
    points = law.population()
    assert points.exact
    assert len(np.unique(points.x, axis=0)) == 2**10
    assert ft.CompleteXor(10).population().exact
    assert ft.Xor(20).population().exact
    assert not ft.Xor(21).population(size=10).exact


def test_large_supports_are_sampled_with_an_honest_standard_error():
    law = ft.Xor(30)
    found = [ft.population_mean(law, lambda x: x[:, 0], wrong, 400, seed) for seed in range(200)]
    errors = np.array([f.value - 0.5 for f in found])
    assert not found[0].exact
    assert found[0].stderr == pytest.approx(np.sqrt(0.25 / 400), rel=0.01)
    assert errors.std() == pytest.approx(found[0].stderr, rel=0.2)
    assert abs(errors.mean()) < 4 * found[0].stderr / np.sqrt(200)


def test_one_point_has_no_standard_error():
    assert ft.population_mean(ft.Ball(2), lambda x: x[:, 0], wrong, size=1).stderr == np.inf


def test_a_metric_must_be_per_point():
    with pytest.raises(ft.FlattestError, match="one number per point"):
        ft.population_mean(ft.Xor(4), lambda x: x[:, 0], ft.zero_one_error)


def test_a_users_npz_is_a_dataset(cwd):
    x, y = np.arange(6.0).reshape(3, 2), np.array([1, 0, 1])
    np.savez(cwd / "own.npz", x=x, y=y)
    data = ft.Dataset.load(cwd / "own.npz")
    assert np.array_equal(data.x, x)
    assert data.y.dtype == np.float64
    assert (data.n, data.d, data.distribution) == (3, 2, None)


def test_datasets_cannot_be_changed_and_do_not_alias():
    x = np.eye(2)
    data = ft.Dataset(x, [1, 2])
    x[0, 0] = 9
    assert data.x[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        data.x[0, 0] = 5


def test_files_that_are_no_dataset_are_refused(cwd):
    np.save(cwd / "bare.npy", np.eye(2))
    np.savez(cwd / "other.npz", a=np.eye(2))
    np.savez(cwd / "pickle.npz", x=np.array([{}, {}], object), y=np.ones(2))
    (cwd / "text.npz").write_text("not a zip")
    (cwd / "empty.npz").touch()
    np.savez(cwd / "whole.npz", x=np.eye(2), y=np.ones(2))
    (cwd / "cut.npz").write_bytes((cwd / "whole.npz").read_bytes()[:-40])
    np.savez(cwd / "nan.npz", x=np.full((2, 2), np.nan), y=np.ones(2))
    for name, message in {
        "bare.npy": "cannot be read as an .npz",
        "other.npz": "must hold arrays named x and y",
        "pickle.npz": "cannot be read as an .npz",
        "text.npz": "cannot be read as an .npz",
        "empty.npz": "cannot be read as an .npz",
        "cut.npz": "cannot be read as an .npz",
        "nan.npz": "x has entries that are not finite",
        "missing.npz": "There is no file",
        ".": "is a folder",
    }.items():
        with pytest.raises(ft.FlattestError, match=message):
            ft.Dataset.load(cwd / name)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.ones(3), np.ones(3), r"x must be \(n, d\) and y \(n,\), not \(3,\) and \(3,\)"),
        (np.ones((3, 2)), np.ones(2), r"not \(3, 2\) and \(2,\)"),
        (np.ones((3, 2)), np.ones((3, 1)), r"not \(3, 2\) and \(3, 1\)"),
        (np.ones((0, 2)), np.ones(0), "dataset is empty"),
        (np.ones((2, 0)), np.ones(2), "dataset is empty"),
        (np.array([[1.0, np.nan]]), np.ones(1), "NaN or infinite"),
        (np.ones((1, 2)), np.array([np.inf]), "NaN or infinite"),
        ([["a"]], [1.0], "x must hold real numbers only"),
        ([[1.0], [1.0, 2.0]], [1.0, 2.0], "x must hold real numbers only"),
        (np.ones((1, 1)), np.array([1j]), "y must hold real numbers only"),
    ],
)
def test_bad_arrays_are_refused(x, y, message):
    with pytest.raises(ft.FlattestError, match=message):
        ft.Dataset(x, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ft.Xor(1), "Xor's d must be an integer ≥ 2, not 1"),
        (lambda: ft.Ball(2.5), "Ball's d must be an integer ≥ 2, not 2.5"),
        (lambda: ft.xor(n=0), "n must be a positive integer, not 0"),
        (lambda: ft.xor(n=2.0), "n must be a positive integer, not 2.0"),
        (lambda: ft.ball(n=-1), "n must be a positive integer"),
        (lambda: ft.xor(seed=-1), "seed must be a non-negative integer"),
        (lambda: ft.Xor(30).population(size=0), "size must be a positive integer"),
        (lambda: ft.circle(5, label="tan"), "Unknown circle label 'tan'; valid are: cos, cos2"),
        (lambda: ft.circle(5, d=2, radius=2.0), "radius must be 1 at d = 2"),
        (lambda: ft.univariate(5, target="cube"), "Unknown univariate target 'cube'; valid"),
        (lambda: ft.univariate(5, low=1.0, high=0.0), "low < high"),
        (lambda: ft.single_index(5, 3, link="glu"), "Unknown activation 'glu'; valid are:"),
        (lambda: ft.single_index(5, 3, noise=-1.0), "label noise must be ≥ 0"),
        (lambda: ft.sum_of_single_index(5, 3, r=4), r"r of indices must lie in \[1, d\], not 4"),
        (lambda: ft.SumOfSingleIndex(5, 2.5), "r must be a positive integer, not 2.5"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ft.FlattestError, match=message):
        make()
