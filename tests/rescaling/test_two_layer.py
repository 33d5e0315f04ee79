"""The flattest rescaling: closed form against brute force and the dense Hessian."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from flattest.curvature.sharpness import trace
from flattest.errors import FlattestError
from flattest.problem.data import Dataset
from flattest.problem.losses import loss as resolve_loss
from flattest.problem.models import MLP
from flattest.rescaling.orbit import flattest_rescaling
from flattest.rescaling.two_layer import masses, rescaled, sharpened

ACTIVATIONS = {"relu": 1, "leaky_relu:0.1": 1, "quadratic": 2, "relu^3": 3}


def network(activation="relu", bias=False, width=4, d=3, n=6, seed=0, output_bias=False):
    """A network with data that it interpolates."""
    model = MLP(width, activation=activation, bias=bias, output_bias=output_bias)
    params = model.init(d, seed)
    x = np.random.default_rng(seed).standard_normal((n, d))
    return model, params, Dataset(x, np.asarray(model.apply(params, x)))


def dense_trace(model, params, data, loss="mse"):
    """Tr ∇²L by dense forward-over-reverse differentiation of the loss."""
    return float(_dense_trace(model, resolve_loss(loss), params, data.x, data.y))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _dense_trace(model, loss, params, x, y):
    flat, unravel = ravel_pytree(params)
    total = lambda theta: loss.value(model.apply(unravel(theta), x, x), y).mean()  # noqa: E731
    return jnp.trace(jax.hessian(total)(flat))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_rescaled_network_is_the_same_function_with_trace_s_min(activation, bias):
    model, params, data = network(activation, bias)
    found = flattest_rescaling(model, params, data)
    same = model.apply(found.params, data.x)
    assert np.asarray(same) == pytest.approx(data.y, rel=1e-10, abs=1e-12)
    assert dense_trace(model, params, data) == pytest.approx(found.original, rel=1e-10)
    assert dense_trace(model, found.params, data) == pytest.approx(found.value, rel=1e-10)
    assert float(trace(model, found.params, data)) == pytest.approx(found.value, rel=1e-10)
    assert found.value <= found.original
    assert found.certificate.holds
    balanced = masses(model, found.params, data)
    assert balanced.c * balanced.A == pytest.approx(balanced.B, abs=1e-12 * found.value)


@pytest.mark.parametrize("activation", ["relu", "quadratic", "relu^3"])
def test_s_min_equals_brute_force_minimization(activation):
    model, params, data = network(activation, seed=1)
    rng = np.random.default_rng(0)
    orbit = masses(model, params, data)
    found = [
        minimize(lambda t: np.log(orbit.trace(np.exp(t))), t0, method="BFGS", tol=1e-13).fun
        for t0 in rng.normal(size=(3, model.width))
    ]
    assert np.exp(min(found)) == pytest.approx(orbit.least(), rel=1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_s_min_has_the_form_of_lemma_3(activation):
    """2 (c+1) c^{−c/(c+1)} Σ A^{1/(c+1)} B^{c/(c+1)} |a|^p with means that carry no weights."""
    c = ACTIVATIONS[activation]
    model, params, data = network(activation, seed=2)
    h = data.x @ params["W1"].T
    A = np.mean(model.sigma.value(h) ** 2, axis=0)
    B = np.mean(model.sigma.slope(h) ** 2 * np.sum(data.x**2, axis=1)[:, None], axis=0)
    p = 2 * c / (c + 1)
    terms = A ** (1 / (c + 1)) * B ** (c / (c + 1)) * np.abs(params["W2"]) ** p
    expected = 2 * (c + 1) * c ** (-c / (c + 1)) * terms.sum()
    assert flattest_rescaling(model, params, data).value == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=25)
@given(
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    bias=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_rescaling_at_random_never_changes_s_min(activation, bias, seed):
    model, params, data = network(activation, bias, width=5, seed=seed)
    scales = np.exp(np.random.default_rng(seed).normal(size=model.width))
    moved = rescaled(model, params, scales)
    before, after = (flattest_rescaling(model, theta, data) for theta in (params, moved))
    assert after.value == pytest.approx(before.value, rel=1e-9)
    assert after.original >= before.value * (1 - 1e-12)
    # A neuron that fires nowhere has no preferred scale.
    alive = masses(model, params, data).A > 0
    for name in params:
        expected = pytest.approx(before.params[name][alive], rel=1e-8, abs=1e-14)
        assert after.params[name][alive] == expected


@pytest.mark.parametrize("loss", ["mse", "half_mse", "logistic"])
def test_the_trace_of_the_full_hessian_is_followed_away_from_interpolation(loss):
    model, params, data = network("quadratic", True, seed=3, output_bias=True)
    labels = np.sign(data.y) if loss == "logistic" else data.y + 0.01
    data = Dataset(data.x, labels)
    orbit = masses(model, params, data, loss)
    scales = np.array([0.5, 2, 1, 3.0])
    assert orbit.trace() == pytest.approx(dense_trace(model, params, data, loss), rel=1e-10)
    moved = rescaled(model, params, scales)
    assert orbit.trace(scales) == pytest.approx(dense_trace(model, moved, data, loss), rel=1e-10)


def test_a_wrong_scale_in_any_neuron_is_sharper():
    model, params, data = network("relu", True)
    found = flattest_rescaling(model, params, data)
    for j in range(model.width):
        scales = np.ones(model.width)
        scales[j] = 1.01
        perturbed = masses(model, found.params, data).trace(scales)
        assert perturbed > found.value * (1 + 1e-7)


def test_an_equivalent_network_can_be_made_as_sharp_as_one_likes():
    model, params, data = network("relu")
    for target in (1e3, 1e6, 1e9):
        sharp = sharpened(model, params, data, target)
        assert np.asarray(model.apply(sharp, data.x)) == pytest.approx(data.y, rel=1e-9)
        assert dense_trace(model, sharp, data) >= target * (1 - 1e-12)


def test_neurons_without_output_are_scaled_away_and_dead_ones_left():
    model, params, data = network("relu", width=4)
    params["W2"][1] = 0
    params["W1"][2] = 0
    data = Dataset(data.x, np.asarray(model.apply(params, data.x)))
    found = flattest_rescaling(model, params, data)
    assert found.scales[1] == 0
    assert found.scales[2] == 1
    assert dense_trace(model, found.params, data) == pytest.approx(found.value, rel=1e-10)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (MLP(4, norm="sim_ln"), "norm sim_ln"),
        (MLP(4, depth=3), "depth 3"),
        (MLP(4, activation="softplus"), "activation softplus"),
    ],
)
def test_networks_without_the_symmetry_are_refused(model, message):
    _, _, data = network()
    with pytest.raises(FlattestError, match=message):
        flattest_rescaling(model, model.init(3, 0), data)


def test_unknown_measures_and_unbounded_traces_are_refused():
    model, params, data = network("quadratic")
    with pytest.raises(FlattestError, match="valid are: top_eigenvalue, trace"):
        flattest_rescaling(model, params, data, measure="volume")
    far = Dataset(data.x, data.y + 100 * np.sign(params["W2"][0]))
    with pytest.raises(FlattestError, match="unbounded below"):
        flattest_rescaling(model, params, far)


@pytest.mark.parametrize(
    ("activation", "w", "a"), [("quadratic", 1.0, 1.0), ("relu", 1e153, 1e-163)]
)
def test_an_orbit_without_a_flattest_member_is_refused(activation, w, a):
    """Away from an interpolator σ″ can cancel the inner mass, and squares can underflow."""
    model, params = MLP(1, activation=activation), {"W1": [[w]], "W2": [a]}
    data = Dataset([[1.0]], [3.0 if activation == "quadratic" else 1e-10])
    with pytest.raises(FlattestError, match="no minimum over the scale of neuron 0"):
        flattest_rescaling(model, params, data)


@pytest.mark.parametrize("scales", [[-1.0, 2.0], [np.nan, 2.0], [0.0, 2.0], [1.0]])
def test_scales_that_would_change_the_function_are_refused(scales):
    model = MLP(2)
    with pytest.raises(FlattestError, match="scale"):
        rescaled(model, {"W1": np.ones((2, 1)), "W2": np.ones(2)}, scales)
