import numpy as np
import pytest

import flattest as ft
from flattest.flatness import search
from flattest.flatness.search import bad_interpolator, search_flattest

D, N, WIDTH = 6, 24, 20


@pytest.fixture(scope="module")
def xor():
    return ft.xor(n=N, d=D, seed=3, distinct=True)


@pytest.fixture(scope="module")
def no_bias(xor):
    model = ft.MLP(WIDTH)
    bad = bad_interpolator(model, xor, wrong=16, seed=1)
    return model, bad, search_flattest(model, xor, bad, steps=250)


@pytest.mark.slow
def test_a_bad_interpolator_interpolates_and_generalizes_badly(xor, no_bias):
    model, bad, result = no_bias
    np.testing.assert_allclose(ft.predict(model, bad, xor.x, xor.x), xor.y, atol=1e-10)
    assert result.start.test_error >= 0.25


def test_without_bias_the_search_leaves_the_bad_interpolator_and_generalizes(xor, no_bias):
    model, _, result = no_bias
    assert result.end.sharpness < 0.2 * result.start.sharpness
    assert result.end.test_error == 0
    assert result.end.interpolation_error <= 1e-10
    np.testing.assert_allclose(ft.predict(model, result.params, xor.x, xor.x), xor.y, atol=1e-10)


def test_the_reported_sharpness_is_the_trace_in_closed_form(xor, no_bias):
    model, bad, result = no_bias
    assert result.start.sharpness == pytest.approx(float(ft.trace(model, bad, xor)), rel=1e-9)
    end = float(ft.trace(model, result.params, xor))
    assert result.end.sharpness == pytest.approx(end, rel=1e-9)


def test_no_search_ends_below_the_proven_bound(no_bias):
    _, _, result = no_bias
    assert result.end.sharpness >= 4 * np.sqrt(D) * (1 - 1e-9)


@pytest.mark.slow
def test_sim_bn_under_condition_1_ends_at_8_and_generalizes():
    data = ft.complete_xor(n=N, d=D, seed=3)
    model = ft.MLP(WIDTH, bias=True, norm="sim_bn")
    bad = bad_interpolator(model, data, wrong=16, seed=1)
    result = search_flattest(model, data, bad, steps=200)
    assert result.start.test_error >= 0.25
    assert 8 * (1 - 1e-9) <= result.end.sharpness < 8.01
    assert result.end.test_mse < 1e-6
    assert result.end.interpolation_error <= 1e-10


def test_a_sim_bn_neuron_without_statistics_is_switched_off():
    data = ft.complete_xor(n=N, d=D, seed=3)
    model = ft.MLP(WIDTH, bias=True, norm="sim_bn")
    start = ft.interpolate(model, data, 0)
    start = start | {"W1": start["W1"] * 1.0, "b1": start["b1"] * 1.0}
    start["W1"][0], start["b1"][0] = 0.0, -1.0  # Its γ and W2 have no gradient: the search is blind
    found = search_flattest(model, data, start, steps=2).params
    assert found["gamma"][0] * found["W2"][0] == 0
    assert np.all(found["gamma"][1:] * found["W2"][1:] != 0)
    np.testing.assert_allclose(ft.predict(model, found, data.x, data.x), data.y, atol=1e-10)


@pytest.mark.slow
def test_a_memorizer_with_bias_is_already_flattest_and_the_search_stays(xor):
    # Theorem 4.1 for the hypercube: w_i = x_i/√d separates x_i from the other corners.
    r, gap = np.sqrt(np.sqrt(D + 1)), 1 / np.sqrt(D)
    w = xor.x / np.sqrt(D)
    memorizer = {
        "W1": r * w / gap,
        "b1": r * (gap - np.sqrt(D)) / gap * np.ones(N),
        "W2": xor.y / r,
    }
    result = search_flattest(ft.MLP(N, bias=True), xor, memorizer, steps=20, smoothing=(0.01,))
    bound = 4 * np.sqrt(D + 1)
    assert result.start.sharpness == pytest.approx(bound, rel=1e-9)
    assert result.end.sharpness == pytest.approx(bound, rel=1e-6)
    assert result.start.test_error == 1 - N / 2**D
    assert result.end.test_error > 0.5


def test_the_logistic_loss_is_searched_at_its_own_targets(xor):
    result = search_flattest(ft.MLP(WIDTH), xor, 0, loss="logistic", steps=40)
    f = ft.predict(ft.MLP(WIDTH), result.params, xor.x, xor.x)
    np.testing.assert_allclose(f, np.log(4) * xor.y, atol=1e-9)
    assert result.end.sharpness < result.start.sharpness


def test_repeated_inputs_are_one_constraint_and_count_in_the_sharpness(xor):
    twice = ft.Dataset(np.vstack([xor.x, xor.x[:5]]), np.concatenate([xor.y, xor.y[:5]]))
    model = ft.MLP(WIDTH)
    params = ft.interpolate(model, twice, 0)
    np.testing.assert_allclose(ft.predict(model, params, twice.x, twice.x), twice.y, atol=1e-10)
    result = search_flattest(model, twice, params, steps=5)
    assert result.start.sharpness == pytest.approx(float(ft.trace(model, params, twice)), rel=1e-9)
    torn = ft.Dataset(twice.x, np.concatenate([xor.y, -xor.y[:5]]))
    with pytest.raises(ft.FlattestError, match="Equal inputs have different labels"):
        search_flattest(model, torn, 0)


@pytest.mark.slow
def test_a_network_too_narrow_to_interpolate_is_refused(xor):
    with pytest.raises(ft.FlattestError, match="wider network"):
        search_flattest(ft.MLP(1), xor, 0)
    with pytest.raises(ft.FlattestError, match="wider network"):
        bad_interpolator(ft.MLP(2), xor, wrong=10)
    with pytest.raises(ft.FlattestError, match="distribution"):
        bad_interpolator(ft.MLP(WIDTH), ft.Dataset(xor.x, xor.y), wrong=10)


@pytest.mark.slow
def test_a_bad_interpolator_is_sought_from_several_starts(monkeypatch):
    model, data = ft.MLP(30, bias=True), ft.xor(n=10, d=6, seed=0)
    retract, starts = search._retract, []

    def missing_twice(problem, theta, iterations):
        starts.append(theta)
        return theta if len(starts) <= 2 else retract(problem, theta, iterations)

    monkeypatch.setattr(search, "_retract", missing_twice)
    params = bad_interpolator(model, data, wrong=5, seed=0)
    assert np.abs(ft.predict(model, params, data.x, data.x) - data.y).max() <= 1e-10
    assert len(starts) == 3
    assert not np.allclose(starts[0], starts[1])


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["leaky_relu:0.1", "softplus", "quadratic"])
def test_sim_bn_is_searched_over_interpolators_with_other_activations(activation):
    """A larger first layer changes no output only where σ is homogeneous, and a neuron that is
    negative on all data has statistics unless σ is the ReLU."""
    data = ft.complete_xor(n=N, d=D, seed=3)
    model = ft.MLP(2 * WIDTH, bias=True, norm="sim_bn", activation=activation)
    found = search_flattest(model, data, steps=30)
    assert found.start.interpolation_error <= 1e-10
    assert found.end.interpolation_error <= 1e-10
    np.testing.assert_allclose(ft.predict(model, found.params, data.x, data.x), data.y, atol=1e-9)
    assert found.end.sharpness < found.start.sharpness


@pytest.mark.parametrize("size", [pytest.param(1e-3, marks=pytest.mark.slow), 1e6])
def test_interpolation_is_relative_to_the_largest_target(xor, size):
    data = ft.Dataset(xor.x, size * xor.y)
    found = search_flattest(ft.MLP(40, bias=True), data, steps=10)
    f = ft.predict(ft.MLP(40, bias=True), found.params, data.x, data.x)
    assert found.end.interpolation_error <= 1e-10
    np.testing.assert_allclose(f, data.y, rtol=1e-10)


def test_labels_that_drown_in_rounding_are_not_called_interpolated(xor):
    with pytest.raises(ft.FlattestError, match="No interpolator was found"):
        search_flattest(ft.MLP(40, bias=True), ft.Dataset(xor.x, 1e-13 * xor.y), steps=10)
