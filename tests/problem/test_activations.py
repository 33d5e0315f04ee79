"""Activations: σ′ and σ″ are derivatives of σ, homogeneity is what it says, names are checked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flattest as ft
from flattest.training.fused import KERNELS
from support import cases

NAMES = [*cases.ACTIVATIONS, "leaky_relu", "relu^1.5", "relu^2"]
# Away from the kink at 0, where a one-sided derivative would be compared with the other.
T = np.array([-7.0, -1.3, -0.2, 0.1, 0.9, 5.0])


@pytest.mark.parametrize("name", NAMES)
def test_slope_and_curvature_are_derivatives_of_the_value(name):
    sigma = ft.activation(name)
    first = jax.vmap(jax.grad(lambda t: sigma.value(t[None])[0]))
    second = jax.vmap(jax.grad(lambda t: sigma.slope(t[None])[0]))
    assert sigma.slope(T) == pytest.approx(np.asarray(first(jnp.asarray(T))), rel=1e-12, abs=1e-15)
    assert sigma.curvature(T) == pytest.approx(
        np.asarray(second(jnp.asarray(T))), rel=1e-12, abs=1e-15
    )
    assert sigma.piecewise_linear == (not np.any(sigma.curvature(T)))


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(NAMES), st.floats(-50, 50), st.floats(1e-3, 1e3))
def test_homogeneous_activations_scale_with_their_power(name, t, b):
    sigma, t = ft.activation(name), np.array([t])
    if sigma.homogeneity is None:
        return
    scaled = b**sigma.homogeneity * sigma.value(t)
    assert sigma.value(b * t) == pytest.approx(scaled, rel=1e-10, abs=1e-280)


def test_the_smooth_ones_are_not_homogeneous():
    assert [n for n in NAMES if ft.activation(n).homogeneity is None] == list(cases.SMOOTH)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("tanh", jnp.tanh), ("silu", jax.nn.silu), ("gelu", lambda t: jax.nn.gelu(t, False))],
)
def test_smooth_activations_are_what_others_call_by_their_names(name, theirs):
    t = np.concatenate([T, [-30.0, -1e-9, 0.0, 30.0]])
    assert ft.activation(name).value(t) == pytest.approx(np.asarray(theirs(t)), rel=1e-13)


@pytest.mark.parametrize("name", cases.SMOOTH)
def test_smooth_activations_neither_overflow_nor_leave_the_finite_numbers(name):
    sigma, t = ft.activation(name), np.array([-1e4, -800.0, 800.0, 1e4])
    for part in (sigma.value, sigma.slope, sigma.curvature):
        assert np.isfinite(part(t)).all()


@pytest.mark.parametrize("name", [*NAMES, "leaky_relu:0", "leaky_relu:-0.5"])
def test_an_activation_is_what_its_properties_say(name):
    sigma = ft.activation(name)
    value = sigma.value(T)
    assert sigma.nonnegative == (value >= 0).all()
    assert sigma.is_relu == np.array_equal(value, np.maximum(T, 0))
    if sigma.slopes is not None:
        below, above = sigma.slopes
        assert value == pytest.approx(np.where(T > 0, above, below) * T, rel=1e-14)
    c = sigma.homogeneity
    outward = np.where(value != 0, np.abs(T) ** (c or 1), 0)
    assert sigma.power == (c is not None and c > 1 and np.allclose(value, outward, rtol=1e-14))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_and_jax_agree_and_keep_the_precision(name, dtype):
    sigma, t = ft.activation(name), T.astype(dtype)
    for part in (sigma.value, sigma.slope, sigma.curvature):
        here, there = part(t), part(jnp.asarray(t))
        assert here.dtype == there.dtype == dtype
        assert here == pytest.approx(np.asarray(there), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_the_fused_engine_knows_the_kernel_of_every_built_in_activation(name):
    kernel, parameter = ft.activation(name).kernel
    assert kernel in KERNELS
    assert isinstance(parameter, float)


def test_softplus_neither_overflows_nor_loses_small_values():
    sigma = ft.activation("softplus")
    t = np.array([-800.0, -40.0, 800.0])
    assert sigma.value(t) == pytest.approx([0, np.exp(-40), 800], rel=1e-12)
    assert np.isfinite(sigma.slope(t)).all()
    assert np.isfinite(sigma.curvature(t)).all()


def test_a_users_activation_gets_its_derivatives():
    own = ft.register_activation("test_swish", lambda t: t * jax.nn.sigmoid(t))
    assert ft.activation("test_swish") is own
    assert own.kernel is None
    assert own.slope(np.zeros(2)) == pytest.approx([0.5, 0.5])
    assert own.curvature(np.zeros(2)) == pytest.approx([0.5, 0.5])
    other = ft.register_activation("test_swish2", lambda t: t * jax.nn.sigmoid(2 * t))
    assert own.fingerprint != other.fingerprint


def bent(slope):
    """σ whose source does not tell its slope."""
    return lambda t: jnp.where(t > 0, t, slope * t)


def test_an_activation_that_reads_another_constant_is_another_one():
    """So that runs with the old one are not taken for runs with the new."""
    first = ft.register_activation("test_bent", bent(0.1), homogeneity=1.0)
    again = ft.register_activation("test_bent", bent(0.1), homogeneity=1.0)
    model = ft.MLP(3, activation="test_bent")
    others = [
        ft.register_activation("test_bent", bent(0.1000001), homogeneity=1.0),
        ft.register_activation("test_bent", bent(0.1)),
    ]
    assert first.fingerprint == again.fingerprint
    assert len({a.fingerprint for a in (first, *others)}) == 3
    assert ft.MLP(3, activation="test_bent") != model


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("glu", "Unknown activation 'glu'; valid are: .*leaky_relu:SLOPE.*relu, relu"),
        (None, "Unknown activation None; valid are:"),
        (["relu"], "Unknown activation"),
        ("relu^1", "must exceed 1; use 'relu'"),
        ("relu^x", "parameter in activation 'relu.x' is not a number"),
        ("leaky_relu:nan", "is not a number"),
    ],
)
def test_bad_names_are_refused(name, message):
    with pytest.raises(ft.FlattestError, match=message):
        ft.activation(name)


def test_built_in_names_cannot_be_taken():
    with pytest.raises(ft.FlattestError, match="'relu' is built in; choose another name"):
        ft.register_activation("relu", jnp.tanh)
