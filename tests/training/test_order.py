"""The order of samples: a pure function of (seed, epoch), unbiased, the same for every chunking."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from flattest.errors import FlattestError
from flattest.training.order import label_noise_signs, sample_order

seeds = st.integers(-5, 2**70)


@settings(deadline=None, max_examples=30)
@given(seeds, st.integers(0, 10**6), st.integers(1, 40))
def test_a_shuffled_epoch_visits_every_sample_once(seed, epoch, n):
    order = sample_order(seed, epoch, 3, n, replacement=False)
    assert order.dtype == np.int32
    assert (np.sort(order, axis=1) == np.arange(n)).all()


@settings(deadline=None, max_examples=30)
@given(seeds, st.integers(0, 10**6), st.integers(0, 8), st.booleans())
def test_the_order_does_not_depend_on_chunking(seed, first, cut, replacement):
    whole = sample_order(seed, first, 8, 17, replacement)
    head = sample_order(seed, first, cut, 17, replacement)
    tail = sample_order(seed, first + cut, 8 - cut, 17, replacement)
    assert (whole == np.concatenate([head, tail])).all()
    signs = label_noise_signs(seed, first, 8, 17)
    assert (signs[cut:] == label_noise_signs(seed, first + cut, 8 - cut, 17)).all()


def chi_square(counts):
    return stats.chisquare(np.asarray(counts).ravel()).pvalue


def test_all_permutations_of_four_are_equally_likely():
    order = sample_order(0, 0, 48_000, 4, replacement=False)
    _, counts = np.unique(order @ [64, 16, 4, 1], return_counts=True)
    assert counts.size == 24
    assert chi_square(counts) > 1e-3


def test_an_epoch_is_independent_of_the_one_before():
    first = sample_order(3, 0, 40_000, 5, replacement=False)[:, 0]
    assert chi_square(np.bincount(first[:-1] * 5 + first[1:], minlength=25)) > 1e-3


def test_draws_with_replacement_are_uniform_and_repeat():
    order = sample_order(1, 0, 400, 100, replacement=True)
    assert chi_square(np.bincount(order.ravel(), minlength=100)) > 1e-3
    distinct = np.mean([np.unique(row).size for row in order])
    expected = 100 * (1 - 0.99**100)
    assert abs(distinct - expected) < 1.0


def test_signs_are_fair_and_unrelated_to_the_order():
    signs = label_noise_signs(2, 0, 400, 100)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(signs.mean()) < 4 / np.sqrt(signs.size)
    first = sample_order(2, 0, 400, 100, replacement=True) < 50
    assert abs(np.corrcoef(signs.ravel(), first.ravel())[0, 1]) < 4 / np.sqrt(signs.size)


def test_seeds_and_epochs_give_different_orders():
    a = sample_order(0, 0, 2, 50, replacement=False)
    b = sample_order(1, 0, 2, 50, replacement=False)
    assert (a[0] != a[1]).any()
    assert (a != b).any()
    assert (a[1] != b[0]).any()


def test_the_stream_is_frozen():
    """Stored runs resume with this order: changing the generator must be a conscious act."""
    assert sample_order(7, 3, 1, 8, replacement=False)[0].tolist() == [3, 2, 4, 6, 7, 1, 5, 0]


def test_impossible_shapes_are_refused():
    with pytest.raises(FlattestError, match="n >= 1"):
        sample_order(0, 0, 1, 0, replacement=False)
