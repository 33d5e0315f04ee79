"""The bounds have the values of the papers, hold for every interpolator, and are met where they
say so."""

import numpy as np
import pytest

import flattest as ft
from flattest.bounds import (
    known_lower_bound,
    linear_rademacher_bound,
    lower_bound,
    path_norm,
    two_layer_rademacher_bound,
)

XOR = ft.xor(n=100, d=30, seed=0)
BALL = ft.ball(n=40, d=10, seed=0)


@pytest.mark.parametrize(
    ("model", "loss", "value"),
    [
        (ft.MLP(500, bias=True), "mse", 22.271),
        (ft.MLP(500), "mse", 21.909),
        (ft.MLP(500, depth=3, bias=True), "mse", 18.848),
        (ft.MLP(500, bias=True, norm="sim_ln"), "mse", 2.0),
        (ft.MLP(500, bias=True), "logistic", 2.470),
        (ft.MLP(500), "logistic", 2.430),
        (ft.MLP(500, bias=True, norm="sim_ln"), "logistic", 0.16),
        (ft.MLP(500, bias=True), "half_mse", 22.271 / 2),
    ],
)
def test_the_bound_on_xor_is_the_papers(model, loss, value):
    assert lower_bound(model, XOR, loss).value == pytest.approx(value, abs=6e-4)


def test_the_infimum_for_sim_bn_under_condition_1_is_8():
    data = ft.complete_xor(n=40, d=6, seed=0)
    model = ft.MLP(8, bias=True, norm="sim_bn")
    bound = lower_bound(model, data)
    assert bound.value == pytest.approx(8)
    assert not bound.attained
    assert lower_bound(model, data, "logistic").value == pytest.approx(0.16 * 4 * np.log(4))


def test_the_sim_bn_bound_on_arbitrary_data_is_4_times_the_rms_of_both_signs():
    positive, negative = np.maximum(BALL.y, 0), np.maximum(-BALL.y, 0)
    expected = 4 * (np.sqrt((positive**2).mean()) + np.sqrt((negative**2).mean()))
    assert lower_bound(ft.MLP(8, norm="sim_bn"), BALL).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("model", "attained"),
    [
        (ft.MLP(100, bias=True), True),
        (ft.MLP(99, bias=True), False),
        (ft.MLP(100), False),
        (ft.MLP(100, bias=True, activation="leaky_relu"), False),
        (ft.MLP(100, depth=4, bias=True), True),
        (ft.MLP(100, bias=True, norm="sim_ln"), True),
    ],
)
def test_the_bound_says_whether_a_network_that_meets_it_is_known(model, attained):
    assert lower_bound(model, XOR).attained is attained


def test_an_output_bias_is_worth_the_best_constant_shift_of_the_labels():
    model = ft.MLP(50, depth=3, bias=True, output_bias=True)
    plain = ft.MLP(50, depth=3, bias=True)
    data = ft.Dataset(BALL.x, BALL.y + 3)
    shifts = np.linspace(data.y.min(), data.y.max(), 20_001)
    scanned = min(lower_bound(plain, ft.Dataset(data.x, data.y - b)).value for b in shifts[::100])
    bound = lower_bound(model, data).value
    assert bound <= 2 + scanned
    assert bound == pytest.approx(2 + scanned, rel=1e-3)


def test_a_network_without_a_proven_bound_is_refused_by_name_and_logged_as_none():
    model = ft.MLP(10, bias=True, activation="softplus")
    assert known_lower_bound(model, XOR) is None
    with pytest.raises(ft.FlattestError, match="No certified lower bound.*softplus"):
        lower_bound(model, XOR)


def test_the_logistic_loss_without_smoothing_has_no_interpolator_to_bound():
    with pytest.raises(ft.FlattestError, match="label smoothing"):
        lower_bound(ft.MLP(10), XOR, ft.Logistic(smoothing=0.0))


def _linear_rademacher_complexity(x, draws, rng):
    signs = rng.choice([-1.0, 1.0], (draws, len(x)))
    return np.linalg.norm(signs @ x, axis=1).mean() / len(x)


def test_the_rademacher_bound_of_linear_functions_holds_and_is_nearly_met():
    complexity = _linear_rademacher_complexity(XOR.x, 4000, np.random.default_rng(0))
    assert 0.98 * linear_rademacher_bound(XOR.x) < complexity < linear_rademacher_bound(XOR.x)


def test_the_rademacher_bound_of_two_layers_scales_with_the_norm_of_lemma_3_1():
    params = {"W1": np.array([[3.0, 4.0], [0.0, 1.0]]), "W2": np.array([2.0, -1.0])}
    C = path_norm(params)
    assert pytest.approx(11) == C
    assert two_layer_rademacher_bound(XOR.x, C) == pytest.approx(22 * np.sqrt(30) / 10)
