"""Losses: derivatives, minimizers, conventions and labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flattest as ft
from flattest.problem.losses import interpolates, require_near_minimum
from support import cases

ALL = [*cases.LOSSES, ft.Logistic(smoothing=0.0), ft.Logistic(smoothing=0.4)]
F = np.array([-30.0, -2.0, -0.1, 0.0, 0.7, 25.0])


@pytest.mark.parametrize("name", ALL, ids=str)
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_slope_and_curvature_are_derivatives_of_the_value(name, label):
    kind, y = ft.loss(name), np.full(len(F), label)
    first = jax.grad(lambda f: kind.value(f, jnp.asarray(y)).sum())
    second = jax.grad(lambda f: kind.slope(f, jnp.asarray(y)).sum())
    at = jnp.asarray(F)
    assert kind.slope(F, y) == pytest.approx(np.asarray(first(at)), rel=1e-9, abs=1e-15)
    assert kind.curvature(F, y) == pytest.approx(np.asarray(second(at)), rel=1e-9, abs=1e-15)


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from([ft.MSE(), ft.HalfMSE(), ft.Logistic(), ft.Logistic(0.05)]),
    st.sampled_from([-1.0, 1.0]),
    st.floats(-20, 20),
)
def test_the_target_minimizes_and_the_floor_is_its_value(kind, label, f):
    y = np.array([label])
    target = np.asarray(kind.target(y), float)
    assert kind.slope(target, y) == pytest.approx([0], abs=1e-15)
    assert kind.value(target, y) == pytest.approx(kind.floor(y), abs=1e-15)
    assert kind.value(np.array([f]), y) >= kind.floor(y) - 1e-15


def test_conventions():
    f, y = np.array([3.0]), np.array([1.0])
    assert ft.loss("mse").value(f, y) == pytest.approx([4])
    assert ft.loss("half_mse").value(f, y) == pytest.approx([2])


def test_label_smoothing_aims_at_probability_one_minus_p_for_the_given_label():
    """wen2023, Definition A.2 with p and 1 − p put right: the minimizer has the label's sign."""
    kind = ft.Logistic(smoothing=0.2)
    target = kind.target(np.array([1.0, -1.0]))
    assert target == pytest.approx([np.log(4), -np.log(4)])
    assert 1 / (1 + np.exp(-target[0])) == pytest.approx(0.8)
    # There ℓ″ = p(1 − p) (FACTS on Lemma A.13).
    assert kind.curvature(target, np.array([1.0, -1.0])) == pytest.approx([0.16, 0.16])
    assert np.isinf(ft.Logistic(smoothing=0.0).target(np.array([1.0]))).all()


def test_labels_zero_and_one_mean_minus_and_plus_one():
    kind = ft.loss("logistic")
    signs, bits = np.array([-1.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0])
    f = np.array([0.3, -0.2, 4.0])
    assert kind.value(f, signs) == pytest.approx(kind.value(f, bits))
    assert ft.zero_one_error(f, signs) == ft.zero_one_error(f, bits)
    kind.check_labels(bits)
    kind.check_labels(signs)


@pytest.mark.parametrize("labels", [[0.5, 1.0], [-1.0, 0.0, 1.0], [2.0], [-1.0, 1.0, 0.3]])
def test_other_labels_are_refused_by_the_logistic_loss_only(labels):
    ft.MSE().check_labels(np.array(labels))
    ft.HalfMSE().check_labels(np.array(labels))
    with pytest.raises(ft.FlattestError, match="takes labels ±1, or 0 and 1"):
        ft.Logistic().check_labels(np.array(labels))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_interpolation_is_to_1e_minus_10_of_the_largest_target(scale):
    target = scale * np.array([1.0, -0.5, 0.0])
    assert interpolates(target + scale * np.array([0, 0, 9e-11]), target)
    assert not interpolates(target + scale * np.array([0, 0, 1.1e-10]), target)


def test_targets_without_a_scale_are_met_exactly_or_not_at_all():
    assert interpolates(np.zeros(3), np.zeros(3))
    assert not interpolates(np.array([0, 0, 1e-300]), np.zeros(3))
    assert not interpolates(np.ones(2), np.full(2, np.inf))
    assert not interpolates(np.array([np.nan, 1.0]), np.ones(2))


def test_a_network_is_near_a_minimum_up_to_1e_minus_3():
    require_near_minimum(np.array([9.995, 0]), np.array([10.0, 0]))
    require_near_minimum(np.array([9e-4, 0]), np.array([0.0, 0]))
    with pytest.raises(ft.FlattestError, match="too far from a minimum"):
        require_near_minimum(np.array([9.98, 0]), np.array([10.0, 0]))
    with pytest.raises(ft.FlattestError, match="too far from a minimum"):
        require_near_minimum(np.array([np.nan, 0]), np.array([10.0, 0]))


def test_an_output_of_zero_is_wrong():
    assert ft.zero_one_error(np.array([0.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    assert ft.zero_one_error(np.zeros(4), np.array([1.0, -1, 1, -1])) == 1.0
    assert ft.zero_one_error(np.array([2.0, -3.0]), np.array([1.0, -1.0])) == 0.0


@pytest.mark.parametrize("name", ["hinge", None, ["mse"], 3])
def test_unknown_losses_are_refused_with_the_valid_ones(name):
    with pytest.raises(ft.FlattestError, match="valid are: cross_entropy, half_mse, logistic, mse"):
        ft.loss(name)


@pytest.mark.parametrize("p", [-0.1, 0.5, np.nan])
def test_smoothing_must_leave_the_label_the_likelier_one(p):
    with pytest.raises(ft.FlattestError, match=r"must lie in \[0, 0.5\)"):
        ft.Logistic(smoothing=p)


def test_a_loss_resolves_to_itself():
    kind = ft.Logistic(smoothing=0.1)
    assert ft.loss(kind) is kind
    assert ft.loss("logistic") == ft.Logistic(smoothing=0.2)
