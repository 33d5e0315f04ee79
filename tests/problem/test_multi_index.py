"""Inner weights of exact correlation, Definition 2, and the population loss in closed form."""

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from flattest.errors import FlattestError
from flattest.flatness.interpolators import flattest_interpolator
from flattest.problem.activations import activation
from flattest.problem.data import Dataset
from flattest.problem.distributions import QuadraticForm, SingleIndex, SumOfSingleIndex
from flattest.problem.models import MLP
from flattest.problem.multi_index import (
    bad_inner_weights,
    gaussian_moments,
    inner_weights,
    label_variance,
    largest_cosine,
    least_population_loss,
    mean_label,
    population_loss,
    signal_power,
    span_correlation,
)
from flattest.rescaling.orbit import flattest_rescaling
from flattest.rescaling.two_layer import orbit_weights

NAMES = ["relu", "leaky_relu:0.1", "quadratic", "linear"]


def directions(r, d, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, r)))[0].T


def quadrature_moment(first, w, second, v):
    """E φ(w·x) ψ(v·x): polar coordinates in the plane of w and v, cut where the sign changes."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    basis = np.linalg.qr(np.stack([w, v], axis=1))[0].T
    w, v = basis @ w, basis @ v
    phi, psi = (activation(name).value for name in (first, second))
    kinks = [np.arctan2(u[1], u[0]) + s * np.pi / 2 for u in (w, v) for s in (-1, 1)]
    angles = np.sort(np.concatenate([np.mod(kinks, 2 * np.pi), [0, 2 * np.pi]]))
    # Both are homogeneous: E over the radius is that of R^{c1+c2}, R² ~ χ²(2).
    degree = activation(first).homogeneity + activation(second).homogeneity
    radial = {2: 2.0, 3: 3 * np.sqrt(np.pi / 2), 4: 8.0}[int(degree)]
    total = 0.0
    for low, high in zip(angles[:-1], angles[1:], strict=True):
        t = (high - low) / 2 * nodes + (high + low) / 2
        unit = np.stack([np.cos(t), np.sin(t)])
        total += (high - low) / 2 * weights @ (phi(w @ unit) * psi(v @ unit))
    return radial * total / (2 * np.pi)


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("second", NAMES)
def test_gaussian_moments_equal_quadrature(first, second):
    rng = np.random.default_rng(0)
    W, V = rng.standard_normal((3, 5)), rng.standard_normal((2, 5))
    expected = [[quadrature_moment(first, w, second, v) for v in V] for w in W]
    assert gaussian_moments(first, W, second, V) == pytest.approx(np.array(expected), abs=1e-10)


@pytest.mark.parametrize("name", ["relu", "leaky_relu:0.1", "quadratic"])
@pytest.mark.parametrize(
    "distribution",
    [
        SingleIndex(8, link="relu", noise=0.3),
        SumOfSingleIndex(8, 3, "quadratic", 0.1),
        QuadraticForm(8, 0.2),
    ],
)
def test_the_population_loss_lies_within_the_samples_standard_errors(name, distribution):
    W = inner_weights(distribution.directions, 12, 0.6, seed=1)
    a = np.random.default_rng(2).standard_normal(12) / 6
    sample = distribution.population(200_000, seed=3)
    errors = (activation(name).value(sample.x @ W.T) @ a - sample.y) ** 2
    stderr = errors.std() / np.sqrt(len(errors))
    exact = population_loss(W, a, distribution, name)
    assert abs(errors.mean() - exact) <= 4 * stderr
    clean = population_loss(W, 0 * a, distribution, name) - distribution.noise**2
    assert clean == pytest.approx(signal_power(distribution), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_offset_of_the_labels_enters_every_moment(name):
    """The labels' mean, variance and loss against a sample; without the offset they are far off."""
    distribution = SumOfSingleIndex(6, 2, name, 0.1, offset=0.7)
    W, a = np.random.default_rng(0).standard_normal((4, 6)) / 3, np.array([1, -0.5, 0.3, 0.2])
    fresh = distribution.population(200_000, 0)
    squares = (np.asarray(activation(name).value(fresh.x @ W.T)) @ a - fresh.y) ** 2
    for samples, closed in (
        (squares, population_loss(W, a, distribution, name)),
        (fresh.y, mean_label(distribution)),
        (fresh.y**2, signal_power(distribution) + 0.1**2),
        ((fresh.y - fresh.y.mean()) ** 2, label_variance(distribution) + 0.1**2),
    ):
        assert abs(samples.mean() - closed) < 4 * samples.std() / np.sqrt(len(samples))
    unshifted = SumOfSingleIndex(6, 2, name, 0.1)
    assert abs(population_loss(W, a, unshifted, name) / squares.mean() - 1) > 0.01


def test_the_teacher_itself_has_the_noise_as_its_loss():
    distribution = SumOfSingleIndex(10, 4, "relu", 0.25)
    V, alpha = distribution.teacher
    assert population_loss(V, alpha, distribution, "relu") == pytest.approx(0.0625, rel=1e-12)


@settings(deadline=None, max_examples=30)
@example(r=3, extra=1, rho=0.0, seed=37784)  # a draw that lies almost in span(U)
@given(
    r=st.integers(1, 4),
    extra=st.integers(1, 8),
    rho=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_inner_weights_have_unit_norm_and_correlation_exactly_rho(r, extra, rho, seed):
    U = directions(r, r + extra, seed)
    W = inner_weights(U, 20, rho, seed)
    assert np.linalg.norm(W, axis=1) == pytest.approx(np.ones(20), abs=1e-12)
    assert np.linalg.norm(W @ U.T, axis=1) == pytest.approx(np.full(20, rho), abs=1e-12)


@settings(deadline=None, max_examples=30)
@given(
    r=st.integers(1, 4),
    extra=st.integers(0, 8),
    rho=st.floats(0, 0.99),
    seed=st.integers(0, 10**6),
)
def test_the_span_of_bad_inner_weights_attains_rho_and_no_more(r, extra, rho, seed):
    d = 2 * r + max(extra, 1)
    U = directions(r, d, seed)
    W = bad_inner_weights(U, 3 * d, rho, seed)
    assert np.linalg.norm(W, axis=1) == pytest.approx(np.ones(3 * d), abs=1e-12)
    assert span_correlation(W, U) == pytest.approx(rho, abs=1e-7)
    assert np.linalg.matrix_rank(W) == d - r
    assert largest_cosine(W) < 1


def test_per_weight_correlation_is_not_that_of_the_span():
    """m > d weights of correlation 0.1 each span everything: section 6.1 is not Definition 2."""
    U = directions(2, 10)
    W = inner_weights(U, 20, 0.1)
    assert np.linalg.norm(W @ U.T, axis=1).max() <= 0.1 + 1e-12
    assert span_correlation(W, U) == pytest.approx(1)


def test_no_outer_weights_beat_the_least_population_loss():
    distribution = SumOfSingleIndex(6, 2, "relu", 0.1)
    W = inner_weights(distribution.directions, 8, 0.7)
    least, best = least_population_loss(W, distribution, "relu")
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-1, 1):
        other = best + size * rng.standard_normal(8)
        assert population_loss(W, other, distribution, "relu") > least
    assert population_loss(W, best, distribution, "relu") == pytest.approx(least)


@pytest.mark.parametrize(("name", "p"), [("relu", 1), ("leaky_relu:0.1", 1), ("quadratic", 4 / 3)])
def test_the_exactly_weighted_program_yields_s_min(name, p):
    distribution = SumOfSingleIndex(10, 3, "relu", 0.1)
    data = distribution.draw(15, seed=0)
    W = inner_weights(distribution.directions, 40, 0.5, seed=0)
    omega = orbit_weights(W, data.x, name)
    phi = activation(name).value(data.x @ W.T)
    weighted = flattest_interpolator(phi, data.y, p, omega)
    plain = flattest_interpolator(phi, data.y, p)
    model = MLP(40, activation=name)
    exact, rough = (
        flattest_rescaling(model, {"W1": W, "W2": found.a}, Dataset(data.x, phi @ found.a)).value
        for found in (weighted, plain)
    )
    assert weighted.value == pytest.approx(exact, rel=1e-9)
    assert exact < rough


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inner_weights(np.eye(1, 4), 3, 1.1), "must lie in"),
        (lambda: bad_inner_weights(np.eye(1, 4), 3, -0.1), "must lie in"),
        (lambda: inner_weights(np.eye(4), 3, 0.5), "spans all of"),
        (lambda: inner_weights(2 * np.eye(1, 4), 3, 0.5), "orthonormal rows"),
        (lambda: bad_inner_weights(np.eye(3, 4), 3, 0.5), "d ≥ 2r"),
        (lambda: gaussian_moments("softplus", np.eye(2), "relu", np.eye(2)), "valid are: leaky"),
        (lambda: QuadraticForm(5), "even d"),
        (
            lambda: inner_weights(np.eye(1, 4), -1, 0.5),
            "m of inner weights must be a",
        ),
        (
            lambda: inner_weights(np.eye(1, 4), 2.5, 0.5),
            "m of inner weights must be a",
        ),
        (
            lambda: bad_inner_weights(np.eye(1, 4), 0, 0.5),
            "m of inner weights must be a",
        ),
        (lambda: inner_weights([["u", "v"]], 3, 0.5), "directions U must hold real numbers"),
        (lambda: span_correlation(np.ones((2, 3)), np.eye(1, 4)), r"\(m, 4\), not \(2, 3\)"),
        (lambda: largest_cosine([[1.0, np.inf]]), "inner weights has entries that are not finite"),
        (
            lambda: gaussian_moments("leaky_relu:abc", np.eye(2), "relu", np.eye(2)),
            "'leaky_relu:abc' is not a number",
        ),
        (
            lambda: gaussian_moments("relu", np.eye(2), "relu", np.eye(3)),
            r"\(m, 2\), not \(3, 3\)",
        ),
        (lambda: relu_loss(np.eye(3), np.ones(3)), r"\(m, 4\), not \(3, 3\)"),
        (lambda: relu_loss(np.eye(4), np.ones(3)), r"4 numbers, one per neuron, not \(3,\)"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(FlattestError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def relu_loss(W, a):
    return population_loss(W, a, SingleIndex(4, noise=0.5), "relu")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_network_that_is_not_finite_has_no_population_loss(value):
    """Above all not 0, which is the best there is."""
    broken = np.full((4, 4), value)
    with pytest.raises(FlattestError, match="outer weights has entries that are not finite"):
        relu_loss(np.eye(4), broken[0])
    with pytest.raises(FlattestError, match="inner weights has entries that are not finite"):
        relu_loss(broken, np.ones(4))
    with pytest.raises(FlattestError, match="inner weights has entries that are not finite"):
        least_population_loss(broken, SingleIndex(4), "relu")
    with np.errstate(all="ignore"), pytest.raises(FlattestError, match="largest float64"):
        relu_loss(1e200 * np.eye(4), np.array([1e200, -1e200, 1e200, 0]))


def test_the_population_loss_keeps_its_digits_near_the_teacher():
    """One neuron at an angle θ to the teacher's: E(σ(w·x) − σ(v·x))² is
    1 − cos θ − (sin θ − θ cos θ)/π = 2 sin²(θ/2) − (θ³/3 − θ⁵/30)/π to O(θ⁷)."""
    distribution = SingleIndex(d=3, link="relu", noise=0.0)
    V, alpha = distribution.teacher
    across = np.linalg.svd(V)[2][1]
    for angle in np.geomspace(1e-6, 1e-3, 50):
        w = np.cos(angle) * V[0] + np.sin(angle) * across
        expected = 2 * np.sin(angle / 2) ** 2 - (angle**3 / 3 - angle**5 / 30) / np.pi
        found = population_loss(w[None], alpha, distribution, "relu")
        assert found == pytest.approx(alpha[0] ** 2 * expected, abs=2e-15)
