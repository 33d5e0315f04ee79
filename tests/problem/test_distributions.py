"""The laws that come with flattest."""

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


def test_parity_is_the_product_of_the_first_k_signs():
    data = ft.Parity(6, k=4).draw(500, 0)
    assert set(np.unique(data.x)) == {-1.0, 1.0}
    assert np.array_equal(data.y, data.x[:, 0] * data.x[:, 1] * data.x[:, 2] * data.x[:, 3])
    everything = ft.Parity(6, k=4).population()
    assert everything.exact
    assert everything.y.sum() == 0
    assert np.array_equal(ft.Parity(6, k=2).population().y, ft.Xor(6).population().y)


def test_without_noise_two_moons_lie_on_two_half_circles():
    data = ft.TwoMoons(noise=0.0).draw(300, 0)
    upper, lower = data.x[data.y > 0], data.x[data.y < 0]
    assert np.linalg.norm(upper, axis=1) == pytest.approx(np.ones(len(upper)))
    assert np.linalg.norm(lower - [1, 0.5], axis=1) == pytest.approx(np.ones(len(lower)))
    assert upper[:, 1].min() >= 0
    assert lower[:, 1].max() <= 0.5


def test_a_gaussian_mixture_has_its_centres_and_its_spread():
    law = ft.GaussianMixture(3, centres=((4.0, 1.0), (-4.0,)), labels=(2.0, -1.0), spread=0.5)
    data = law.draw(4000, 0)
    for label, centre in ((2.0, [4, 1, 0]), (-1.0, [-4, 0, 0])):
        own = (data.x[data.y == label] - centre) / 0.5
        assert stats.kstest(own.ravel(), "norm").pvalue > 1e-3
    assert 0.4 < np.mean(data.y == 2.0) < 0.6


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ft.Parity(2), "A parity of 3 inputs needs d ≥ 3"),
        (lambda: ft.TwoMoons(noise=-1.0), "The noise must be ≥ 0"),
        (lambda: ft.GaussianMixture(labels=(1.0,)), "a label for each of its centres"),
        (lambda: ft.GaussianMixture(1, ((1.0, 2.0),), (1.0,)), "at most d = 1 coordinates"),
        (lambda: ft.GaussianMixture(spread=0.0), "The spread must be positive"),
        (lambda: ft.Digits(classes=(3, 3)), "two or more different classes"),
        (lambda: ft.Digits(inputs="raw"), "Unknown kind of inputs"),
    ],
)
def test_laws_that_make_no_sense_are_refused(make, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        make()


def test_digits_are_two_classes_with_a_fixed_held_out_part():
    sklearn = pytest.importorskip("sklearn.datasets")
    pixels, digit = sklearn.load_digits(return_X_y=True)
    law = ft.Digits(classes=(3, 8), test=0.25, inputs="unit")
    a, b, held_out = law.draw(100, 0), law.draw(100, 1), law.population()
    total = np.isin(digit, [3, 8]).sum()
    assert len(held_out.y) == round(0.25 * total)
    assert not held_out.exact
    assert not np.array_equal(a.x, b.x)
    assert np.array_equal(held_out.x, law.population(seed=5).x)
    assert np.linalg.norm(a.x, axis=1) == pytest.approx(np.ones(100))
    everything = np.vstack([law.rows.x, law.rows.test_x])
    assert len(np.unique(everything, axis=0)) == total
    threes = pixels[digit == 3] / np.linalg.norm(pixels[digit == 3], axis=1, keepdims=True)
    assert (np.abs(threes[:, None] - a.x[a.y == 1]).max(axis=2).min(axis=0) < 1e-15).all()
