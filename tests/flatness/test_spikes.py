"""Spike networks: as flat as one asks, interpolating, and wrong on points that were not seen."""

import numpy as np
import pytest

import flattest as ft
from flattest.flatness.certification import interpolation_error, population_error
from flattest.flatness.spikes import sim_bn_spike
from flattest.problem.distributions import hypercube
from support.reference import dense_jacobian

SMALL = ft.CompleteXor(5).draw(20, seed=0)
LARGE = ft.CompleteXor(30).draw(116, seed=0)


def outputs(params, x, train_x):
    """f in plain NumPy; neurons that no training point activates have W2 = 0."""
    r, seen = (np.maximum(z @ params["W1"].T + params["b1"], 0) for z in (x, train_x))
    s = np.sqrt((seen**2).mean(axis=0))
    return (r / np.where(s > 0, s, 1)) @ (params["gamma"] * params["W2"])


def unseen(data):
    seen = {x.tobytes() for x in data.x}
    return np.array([x for x in hypercube(data.d) if x.tobytes() not in seen])


def difference_trace(params, data):
    """Tr ∇²L by second differences of L, with steps that cross no kink."""

    def L(moved):
        return float(((outputs(moved, data.x, data.x) - data.y) ** 2).mean())

    room = np.abs(data.x @ params["W1"].T + params["b1"]).min(axis=0)
    steps = {name: np.full(len(room), 1e-4) for name in ("gamma", "W2")}
    steps |= dict.fromkeys(("W1", "b1"), 0.01 * room)
    total, here = 0.0, L(params)
    for name, value in params.items():
        for k in np.ndindex(value.shape):
            step = steps[name][k[0]]
            sides = [value.copy() for _ in range(2)]
            sides[0][k] += step
            sides[1][k] -= step
            total += (sum(L(params | {name: side}) for side in sides) - 2 * here) / step**2
    return total


@pytest.mark.parametrize("excess", [1e-2, 1e-5, 7e-9])
def test_at_any_excess_it_is_wrong_on_all_unseen_points(excess):
    model, params, certificate = sim_bn_spike(SMALL, excess=excess)
    assert certificate.holds
    assert certificate.bound == 8
    assert 0 < certificate.value - 8 <= excess
    assert interpolation_error(model, params, SMALL) <= 1e-12
    x = unseen(SMALL)
    assert len(x) == 12
    assert (x[:, 0] * x[:, 1] * outputs(params, x, SMALL.x) <= -0.99).all()


@pytest.mark.parametrize("excess", [1e-2, 1e-5])
def test_finite_differences_confirm_the_trace(excess):
    _, params, certificate = sim_bn_spike(SMALL, excess=excess)
    assert difference_trace(params, SMALL) == pytest.approx(certificate.value, rel=1e-7)
    louder = params | {"gamma": 1.01 * params["gamma"]}
    assert difference_trace(louder, SMALL) != pytest.approx(certificate.value, rel=1e-3)


def test_at_the_size_of_table_1_it_is_wrong_on_nine_in_ten_fresh_points_and_jax_confirms_it():
    model, params, certificate = sim_bn_spike(LARGE, excess=1e-5)
    assert certificate.holds
    assert interpolation_error(model, params, LARGE) <= 1e-12
    assert population_error(model, params, LARGE, 20_000).value >= 0.9
    J = dense_jacobian(model, params, LARGE)
    assert 2 / LARGE.n * (J**2).sum() == pytest.approx(certificate.value, rel=1e-9)
    assert certificate.value <= 8 + 1e-5


@pytest.mark.parametrize("tails", [4, 7])
def test_one_pair_is_enough_for_complete_data_of_any_size(tails):
    for seed in range(4):
        data = ft.CompleteXor(5).draw(4 * tails, seed)
        model, params, certificate = sim_bn_spike(data, width=6)
        assert certificate.holds
        assert population_error(model, params, data).value >= 1 / 32
        # Without neuron A, or with B beside it alone, the network does not interpolate.
        for j in (4, 5):
            alone = params | {"W2": np.where(np.arange(6) == j, 0.0, params["W2"])}
            assert interpolation_error(model, alone, data) > 1e-7


@pytest.mark.slow
def test_one_pair_at_the_size_of_table_1_is_wrong_on_a_tenth_of_all_points():
    model, params, certificate = sim_bn_spike(LARGE, width=6)
    assert certificate.holds
    assert 0.1 <= population_error(model, params, LARGE, 20_000).value <= 0.25


def test_the_statistics_of_a_spike_fall_as_the_excess():
    def least_statistic(excess):
        _, params, _ = sim_bn_spike(SMALL, excess=excess)
        W1, b1 = params["W1"], params["b1"]
        s = np.sqrt((np.maximum(SMALL.x @ W1.T + b1, 0) ** 2).mean(axis=0))
        return (s / np.linalg.norm(np.column_stack([W1, b1]), axis=1)).min()

    ratios = [least_statistic(excess) / excess for excess in (1e-3, 1e-5, 1e-7)]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-2)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: sim_bn_spike(ft.xor(n=20, d=5, seed=0)), "meet Condition 1"),
        (lambda: sim_bn_spike(ft.CompleteXor(4).draw(16, 0)), "nothing to spike"),
        (lambda: sim_bn_spike(SMALL, excess=0.0), "excess over the infimum must be positive"),
        (lambda: sim_bn_spike(SMALL, excess=1e-30), "ask for a larger one"),
        (lambda: sim_bn_spike(SMALL, width=5), "needs width ≥ 6, not 5"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(build, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        build()
