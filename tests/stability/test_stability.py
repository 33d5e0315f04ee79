"""Knots, g, Lemma 4, modes and thresholds of mulayoff2021 against slow references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flattest.errors import FlattestError
from flattest.problem.data import Dataset
from flattest.problem.models import MLP, predict
from flattest.rescaling.orbit import flattest_rescaling
from flattest.rescaling.pencil import Pencil, minimize_top_eigenvalue
from flattest.rescaling.top_eigenvalue import flattest_implementation
from flattest.stability.functions import UnivariateNetwork, second_derivative
from flattest.stability.modes import (
    dominating_value,
    gradient_bound,
    gram_top_eigenvalue,
    lemma5_bound,
    modes,
    perturbation_value,
    stable_variation,
    strongly_stable_sharpness,
    tangent_features,
    theorem2_threshold,
    toggles,
    toggles_per_sample,
    upper_top_eigenvalue,
)
from flattest.stability.weights import (
    g,
    g_minus,
    g_plus,
    lemma4_bound,
    sharpness_threshold,
    theorem1_threshold,
    weighted_total_variation,
)

seeds = st.integers(0, 2**32 - 1)


def random_network(rng, k, spread=1.0):
    w1, b1, w2 = rng.normal(size=(3, k))
    return UnivariateNetwork(w1, spread * b1, w2, float(rng.normal()))


def random_inputs(rng, n, spread=1.0):
    return spread * (np.arange(n) - (n - 1) / 2 + rng.uniform(-0.4, 0.4, n)) / n * 2


def fitted(network, x):
    """The dataset that the network interpolates."""
    return Dataset(x[:, None], network(x))


def with_knots_on_data(rng, k, x, count):
    """A random network, `count` of whose knots lie exactly on inputs drawn from x."""
    network = random_network(rng, k)
    network.b1[:count] = -network.w1[:count] * rng.choice(x, count)
    return network


def g_by_definition(x, inputs):
    """(S38), (S39) for each row of x (N, P) with the sample in that row of inputs (N, n)."""

    def side(sign):
        distance = sign * (inputs[:, None, :] - x[:, :, None])
        beyond = distance > 0
        count = beyond.sum(-1)
        mean, excess = (
            (beyond * values).sum(-1) / np.maximum(count, 1)
            for values in (inputs[:, None, :], distance)
        )
        return (count / inputs.shape[1]) ** 2 * excess * np.sqrt(1 + mean**2)

    return np.minimum(side(1), side(-1))


@jax.jit
@jax.hessian
def dense_hessian(theta, x, y):
    """∇²L of the half-mse in the order of θ, by autodiff."""
    k = theta.size // 3
    w1, b1, w2, b2 = theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k], theta[-1]
    f = jnp.maximum(x[:, None] * w1 + b1, 0) @ w2 + b2
    return 0.5 * jnp.mean((f - y) ** 2)


def test_the_second_derivative_of_the_absolute_value_is_twice_a_point_mass():
    network = UnivariateNetwork(np.array([1.0, -1.0]), np.zeros(2), np.ones(2), 0.0)
    curvature = second_derivative(network)
    assert curvature.knots.tolist() == [0.0]
    assert curvature.masses.tolist() == [2.0]


def test_opposite_kinks_on_one_knot_cancel():
    network = UnivariateNetwork(
        np.array([2.0, -2.0]), np.array([-2.0, 2.0]), np.array([1.0, -1.0]), 0.0
    )
    assert not second_derivative(network).masses.any()
    assert weighted_total_variation(network, np.array([0.0, 0.5, 2.0])) == 0.0


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_the_point_masses_rebuild_the_function(seed):
    rng = np.random.default_rng(seed)
    network = random_network(rng, 6)
    network.w1[0] = 0.0
    curvature = second_derivative(network)
    left = curvature.knots.min() - 1
    slope = float(network(np.array([left + 0.5]))[0] - network(np.array([left]))[0]) / 0.5
    x = np.linspace(left, curvature.knots.max() + 1, 50)
    kinks = np.maximum(x[:, None] - curvature.knots, 0) @ curvature.masses
    rebuilt = network(np.array([left])) + slope * (x - left) + kinks
    np.testing.assert_allclose(rebuilt, network(x), rtol=0, atol=1e-9 * np.abs(network(x)).max())


def test_parameters_travel_both_ways():
    network = random_network(np.random.default_rng(0), 5)
    again = UnivariateNetwork.from_theta(UnivariateNetwork.of(network.params).theta)
    np.testing.assert_array_equal(again.theta, network.theta)
    x = np.linspace(-2, 2, 7)[:, None]
    model = MLP(5, bias=True, output_bias=True)
    np.testing.assert_allclose(predict(model, network.params, x, x), network(x), atol=1e-14)


@given(seeds, st.integers(2, 12), st.floats(0.01, 100), st.floats(-50, 50))
@settings(max_examples=100, deadline=None)
def test_g_matches_its_definition_and_vanishes_outside_the_data(seed, n, spread, shift):
    """100 examples of 100 datasets each, at 10 points inside, at the inputs and outside."""
    rng = np.random.default_rng(seed)
    inputs = np.array([random_inputs(rng, n, spread) for _ in range(100)]) + shift
    low, high = inputs.min(1, keepdims=True), inputs.max(1, keepdims=True)
    at = np.hstack([low + (high - low) * rng.uniform(size=(100, 10)), inputs])
    expected = g_by_definition(at, inputs)
    outside = np.hstack([low - 1e-9 * (1 + abs(low)), low - spread, low, high, high + spread])
    for row, sample in enumerate(inputs):
        atol = 1e-12 * expected[row].max()
        np.testing.assert_allclose(g(at[row], sample), expected[row], rtol=1e-12, atol=atol)
        assert (g(outside[row], sample) == 0).all()


def test_g_is_the_smaller_of_two_sides_that_both_matter():
    inputs = np.array([-1.0, 0.2, 0.7, 3.0])
    x = np.array([-0.5, 2.0])
    plus, minus = g_plus(x, inputs), g_minus(x, inputs)
    assert minus[0] < plus[0]
    assert plus[1] < minus[1]
    np.testing.assert_array_equal(g(x, inputs), [minus[0], plus[1]])


@pytest.mark.slow
@given(seeds)
@settings(max_examples=100, deadline=None)
def test_lemma4_never_exceeds_the_sharpness_nor_the_flattest_implementation(seed):
    """100 examples of 100 networks each: 10 000 random networks and datasets.

    The dual value at u = 1/√n, which the proof of Lemma 4 goes through, is under the value of every
    implementation: it separates the bound from the flattest one exactly, whatever gap is left.
    """
    rng = np.random.default_rng(seed)
    for _ in range(100):
        n, k = int(rng.integers(2, 7)), int(rng.integers(1, 9))
        spread = 10 ** rng.uniform(-1, 1)
        x = random_inputs(rng, n, spread)
        network = random_network(rng, k, spread)
        top = gram_top_eigenvalue(tangent_features(network, x))
        problem = univariate_orbit(network, x)
        flattest = minimize_top_eigenvalue(problem, target_gap=1e-2)
        between = problem.dual_value(np.full((n, n), 1 / n))
        assert lemma4_bound(network, x) <= between * (1 + 1e-12)
        assert between <= min(flattest.value, top) * (1 + 1e-12)
        assert flattest.value <= top * (1 + 1e-2)


def univariate_orbit(network, x):
    """ΦᵀΦ/n over the rescaling orbit, written out for univariate ReLU networks."""
    h = network.preactivations(x)
    alive = (h > 0).any(0) & (network.w2 != 0)
    a = np.maximum(h, 0)[:, alive].T
    r = ((h > 0) * network.w2)[:, alive].T
    up = a[:, :, None] * a[:, None]
    down = r[:, :, None] * r[:, None] * (1 + np.multiply.outer(x, x))
    n = x.size
    return Pencil(np.ones((n, n)) / n, up / n, down / n)


@pytest.mark.parametrize("height", [0.01, 1.0, 30.0])
def test_lemma4_is_attained_by_the_absolute_value_on_two_points(height):
    """f = h|x| on x = ±1: ΦᵀΦ = 11ᵀ + 2√2 h I at the balanced β, so that u = 1/√2 is on top."""
    network = UnivariateNetwork(np.array([1.0, -1.0]), np.zeros(2), np.full(2, height), 0.0)
    x = np.array([-1.0, 1.0])
    model = MLP(2, bias=True, output_bias=True)
    found = flattest_implementation(model, network.params, fitted(network, x))
    assert lemma4_bound(network, x) == pytest.approx(1 + np.sqrt(2) * height, rel=1e-14)
    assert found.value == pytest.approx(lemma4_bound(network, x), rel=1e-8)


def test_a_function_without_kinks_among_the_data_has_the_least_bound():
    network = UnivariateNetwork(np.array([1.0]), np.array([-5.0]), np.array([2.0]), 0.3)
    x = np.array([-1.0, 0.5, 1.0])
    assert lemma4_bound(network, x) == 1.0
    assert gram_top_eigenvalue(tangent_features(network, x)) == pytest.approx(1.0, abs=1e-14)


def interpolated(model, params, x):
    return Dataset(x, predict(model, params, x, x))


def scaled(params, factor):
    return {name: factor * value for name, value in params.items()}


@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0, 8.0])
def test_the_flattest_implementation_is_certified_and_computes_the_same_function(spread):
    model = MLP(80, bias=True, output_bias=True)
    params = scaled(model.init(1, 3), 3.0)
    x = np.linspace(-spread, spread, 10)[:, None]
    data = interpolated(model, params, x)
    found = flattest_implementation(model, params, data)
    assert 0 <= found.gap <= 1e-6
    assert found.certificate.holds
    assert lemma4_bound(params, x) <= found.value <= upper_top_eigenvalue(params, data).value
    assert upper_top_eigenvalue(found.params, data).value == pytest.approx(found.value, rel=1e-10)
    np.testing.assert_allclose(predict(model, found.params, x, x), data.y, atol=1e-9)
    eigenvalues = np.linalg.eigvalsh(found.density)
    assert eigenvalues[0] >= -1e-12
    assert eigenvalues.sum() == pytest.approx(1, abs=1e-12)


def test_where_the_optimum_is_multiple_no_single_vector_certifies_it():
    """Data on both sides of the origin: two equal top eigenvalues, and a density of rank two."""
    model = MLP(20, bias=True, output_bias=True)
    params = scaled(model.init(1, 2), 3.0)
    params["b1"] *= 5
    x = np.linspace(-5, 5, 10)[:, None]
    found = flattest_implementation(model, params, interpolated(model, params, x))
    features = tangent_features(found.params, x)
    values, vectors = np.linalg.eigh(features.T @ features / 10)
    assert values[-2] == pytest.approx(values[-1], rel=1e-6)
    problem = univariate_orbit(UnivariateNetwork.of(params), x[:, 0])
    single = max(problem.dual_value(np.outer(u, u)) for u in vectors.T)
    assert single < 0.97 * found.value
    assert found.gap <= 1e-6
    assert (np.linalg.eigvalsh(found.density) > 0.1).sum() == 2


def test_the_dual_value_of_one_vector_is_s88():
    rng = np.random.default_rng(5)
    network, x = random_network(rng, 7), random_inputs(rng, 5)
    u = rng.normal(size=5)
    u /= np.linalg.norm(u)
    h = network.preactivations(x)
    inner = np.hypot((u * x) @ (h > 0), u @ (h > 0)) * np.abs(u @ np.maximum(h, 0))
    printed = 2 / 5 * np.abs(network.w2) @ inner + u.sum() ** 2 / 5
    assert univariate_orbit(network, x).dual_value(np.outer(u, u)) == pytest.approx(
        printed, rel=1e-12
    )


def test_any_other_rescaling_is_at_least_as_sharp_as_the_dual_value():
    rng = np.random.default_rng(1)
    network, x = random_network(rng, 9, 4.0), random_inputs(rng, 6, 4.0)
    problem = univariate_orbit(network, x)
    found = minimize_top_eigenvalue(problem)
    k = len(problem.up)
    nearby = [
        problem.value(found.s + scale * rng.normal(size=k)) for scale in [1e-4, 0.01, 1.0] * 20
    ]
    assert min(nearby) >= found.dual
    assert found.value <= min(nearby)


def test_the_flattest_implementation_is_a_fixed_point():
    model = MLP(12, bias=True, output_bias=True)
    params = scaled(model.init(1, 8), 2.0)
    data = interpolated(model, params, np.linspace(-3, 3, 7)[:, None])
    once = flattest_implementation(model, params, data)
    twice = flattest_implementation(model, once.params, data)
    assert twice.value <= once.value * (1 + 1e-14)
    assert twice.value == pytest.approx(once.value, rel=1e-7)


def test_idle_and_dead_neurons_do_not_disturb_the_optimum():
    model = MLP(4, bias=True, output_bias=True)
    x = np.linspace(-1, 1, 5)[:, None]
    core = {"W1": [[1.0], [-2.0]], "b1": [0.1, 0.3], "W2": [1.0, 3.0], "b_out": 0.0}
    core = {name: np.array(value) for name, value in core.items()}
    small = MLP(2, bias=True, output_bias=True)
    extra = {
        "W1": np.vstack([core["W1"], [[5.0], [1.0]]]),
        "b1": np.append(core["b1"], [1.0, -9.0]),
        "W2": np.append(core["W2"], [0.0, 7.0]),
        "b_out": core["b_out"],
    }
    data = interpolated(small, core, x)
    alone = flattest_implementation(small, core, data)
    with_extra = flattest_implementation(model, extra, data)
    assert with_extra.value == pytest.approx(alone.value, rel=1e-8)
    assert with_extra.gap <= 1e-6
    assert np.isfinite(with_extra.scales).all()


def test_a_network_without_live_neurons_has_the_output_bias_alone():
    model = MLP(1, bias=True, output_bias=True)
    params = {
        "W1": np.array([[1.0]]),
        "b1": np.array([-9.0]),
        "W2": np.ones(1),
        "b_out": np.array(2.0),
    }
    data = Dataset(np.array([[0.0], [1.0]]), np.array([2.0, 2.0]))
    assert flattest_implementation(model, params, data).value == pytest.approx(1.0)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu:0.2", "quadratic", "relu^3"])
def test_other_homogeneous_activations_dimensions_and_losses_are_certified_too(activation):
    model = MLP(6, bias=activation == "relu", activation=activation)
    params = scaled(model.init(3, 2), 2.0)
    x = np.random.default_rng(0).normal(size=(7, 3))
    data = interpolated(model, params, x)
    found = flattest_implementation(model, params, data, "mse")
    assert 0 <= found.gap <= 1e-6
    rescaled = flattest_implementation(model, found.params, data, "mse")
    assert rescaled.dual <= found.value * (1 + 1e-9)
    np.testing.assert_allclose(predict(model, found.params, x, x), data.y, atol=1e-9)


@pytest.mark.peer
@pytest.mark.parametrize(("seed", "spread"), [(0, 1.0), (1, 4.0), (2, 8.0), (3, 4.0)])
def test_a_general_convex_solver_finds_the_same_minimum(seed, spread):
    """(S82) as a semidefinite program in t = β²: [[τI − Σ t U − F, C], [Cᵀ, diag t]] ⪰ 0."""
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    n, k = 5, 6
    x, network = random_inputs(rng, n, spread), random_network(rng, k, spread)
    problem = univariate_orbit(network, x)
    h = network.preactivations(x)
    alive = (h > 0).any(0)
    inner = ((h > 0) * network.w2)[:, alive] / np.sqrt(n)
    k = int(alive.sum())
    t, tau = cp.Variable(k), cp.Variable()
    C = np.hstack([inner * x[:, None], inner])
    upper = tau * np.eye(n) - problem.fixed - sum(t[i] * problem.up[i] for i in range(k))
    block = cp.bmat([[upper, C], [C.T, cp.diag(cp.hstack([t, t]))]])
    program = cp.Problem(cp.Minimize(tau), [(block + block.T) / 2 >> 0])
    program.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    assert minimize_top_eigenvalue(problem).value == pytest.approx(program.value, rel=1e-6)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_the_hessian_at_an_interpolator_is_the_gram_matrix_of_tangent_features(seed):
    rng = np.random.default_rng(seed)
    network, x = random_network(rng, 4), random_inputs(rng, 5)
    data = fitted(network, x)
    features = tangent_features(network, x)
    hessian = np.asarray(dense_hessian(network.theta, x, data.y))
    np.testing.assert_allclose(features @ features.T / 5, hessian, atol=1e-12)
    top = upper_top_eigenvalue(network.params, data).value
    assert top == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-12)


def test_the_rescaling_by_top_eigenvalue_is_this_one():
    model = MLP(6, bias=True, output_bias=True)
    params = model.init(1, 0)
    data = interpolated(model, params, np.linspace(-1, 1, 4)[:, None])
    found = flattest_rescaling(model, params, data, loss="half_mse", measure="top_eigenvalue")
    own = flattest_implementation(model, params, data)
    assert found.value == own.value
    assert found.original == pytest.approx(upper_top_eigenvalue(params, data).value, rel=1e-12)
    assert found.certificate.bound <= found.value <= found.original
    np.testing.assert_array_equal(found.scales, own.scales)


def test_deeper_networks_have_no_such_orbit():
    model = MLP(3, depth=3, bias=True)
    data = Dataset(np.zeros((1, 1)), np.zeros(1))
    with pytest.raises(FlattestError, match="two-layer"):
        flattest_implementation(model, model.init(1, 0), data)


@given(seeds, st.integers(0, 4))
@settings(max_examples=20, deadline=None)
def test_the_modes_are_the_hessians_of_the_regions_that_meet(seed, count):
    """Every region around θ* has the Hessian of one of the modes (S54), found by perturbation."""
    rng = np.random.default_rng(seed)
    x = random_inputs(rng, 5)
    network = with_knots_on_data(rng, 6, x, count)
    known = {pattern.tobytes() for pattern in modes(network, x)}
    assert len(known) == 2 ** len(toggles(network, x)) == 2**count
    assert toggles_per_sample(network, x).sum() == count
    seen = set()
    for _ in range(40 * 2**count):
        near = UnivariateNetwork.from_theta(
            network.theta + 1e-9 * rng.normal(size=network.theta.size)
        )
        seen.add((near.preactivations(x) > 0).tobytes())
    assert seen == known


@given(seeds, st.floats(0.2, 5))
@settings(max_examples=30, deadline=None)
def test_the_upper_value_is_that_of_the_enumeration_and_the_bounds_dominate_it(seed, spread):
    """Both where all toggles off and on are the extremes (|x| ≤ 1) and where they need not be."""
    rng = np.random.default_rng(seed)
    x = random_inputs(rng, 5, spread)
    network = with_knots_on_data(rng, 9, x, 6)
    tops = [gram_top_eigenvalue(tangent_features(network, x, m)) for m in modes(network, x)]
    found = upper_top_eigenvalue(network.params, fitted(network, x))
    assert (found.exact, found.toggles) == (True, 6)
    assert found.value == pytest.approx(max(tops), rel=1e-12)
    assert tops[0] < max(tops)
    if (1 + np.multiply.outer(x, x) >= 0).all():
        assert tops[0] == min(tops)
        assert tops[-1] == max(tops)
    assert max(tops) <= dominating_value(network, x)[0] * (1 + 1e-12)
    assert max(tops) <= perturbation_value(network, x) * (1 + 1e-12)


def test_many_toggles_are_bounded_and_say_so():
    rng = np.random.default_rng(3)
    x = random_inputs(rng, 5, 6.0)
    network = with_knots_on_data(rng, 20, x, 16)
    found = upper_top_eigenvalue(network.params, fitted(network, x))
    assert (found.exact, found.toggles) == (False, 16)
    off = gram_top_eigenvalue(tangent_features(network, x))
    on = gram_top_eigenvalue(tangent_features(network, x, network.preactivations(x) >= 0))
    assert max(off, on) <= found.value
    with pytest.raises(FlattestError, match="enumerate at most"):
        list(modes(network, x))


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_lemma5_bounds_how_far_a_top_eigenvector_is_from_that_of_another_mode(seed):
    rng = np.random.default_rng(seed)
    x = random_inputs(rng, 6, 2.0)
    network = with_knots_on_data(rng, 8, x, 4)
    C, p_max = gradient_bound(network, x), toggles_per_sample(network, x).max()
    hessians = [
        phi @ phi.T / 6 for phi in (tangent_features(network, x, m) for m in modes(network, x))
    ]
    tops = [np.linalg.eigh(H) for H in hessians]
    for values, vectors in tops:
        for H, (others, _) in zip(hessians, tops, strict=True):
            left = np.linalg.norm(H @ vectors[:, -1] - values[-1] * vectors[:, -1])
            assert left <= lemma5_bound(values[-1], others[-1], C, p_max, 6) * (1 + 1e-12)


def test_a_neuron_that_is_zero_toggles_on_every_sample_and_counts_for_each():
    """w1 = b1 = 0: counted once, against (S64), Lemma 5 would fail on 100 inputs."""
    n = 100
    x = 1 + np.arange(n) / 1e4
    network = UnivariateNetwork(np.zeros(1), np.zeros(1), np.ones(1), 0.0)
    assert (toggles_per_sample(network, x) == n).all()
    off, on = (tangent_features(network, x, np.full((n, 1), active)) for active in (False, True))
    top, other = (np.linalg.norm(phi, 2) ** 2 / n for phi in (off, on))
    q = np.linalg.svd(off)[0][:, 0]
    left, C = np.linalg.norm(on @ (on.T @ q) / n - top * q), gradient_bound(network, x)
    assert lemma5_bound(top, other, C, 1, n) < left <= lemma5_bound(top, other, C, n, n)


def test_s75_is_the_square_of_the_positive_root():
    C, share, lr = 1.0, 0.1, 0.01
    alpha = 2 * np.sqrt(3 * share) * C
    root = (alpha + np.sqrt(alpha**2 + 4 * 2 / lr)) / 2
    assert strongly_stable_sharpness(lr, C, share) == pytest.approx(root**2, rel=1e-14)
    assert strongly_stable_sharpness(lr, C, share) == pytest.approx(216.10, abs=5e-3)


def test_theorem2_reduces_to_theorem1_without_toggles():
    rng = np.random.default_rng(0)
    network, x = random_network(rng, 5), random_inputs(rng, 4)
    assert theorem2_threshold(network, x, 0.1) == pytest.approx(theorem1_threshold(0.1), rel=1e-14)
    assert stable_variation(network, x, 0.1) == theorem1_threshold(0.1) == 9.5
    assert sharpness_threshold(0.1) == 20.0


def test_repeated_and_all_equal_inputs_are_refused():
    with pytest.raises(FlattestError, match="distinct"):
        g(np.array([0.0]), np.array([0.0, 1.0, 1.0]))
    with pytest.raises(FlattestError, match="two different values"):
        g(np.array([0.0]), np.array([1.0, 1.0]))
    with pytest.raises(FlattestError, match="finite"):
        g(np.array([0.0]), np.array([1.0, np.nan]))


def test_theorem1_points_to_theorem2_where_a_knot_lies_on_a_data_point():
    x = np.array([0.0, 0.5, 1.0])
    network = UnivariateNetwork(np.array([2.0]), np.array([-1.0]), np.array([1.0]), 0.0)
    with pytest.raises(FlattestError, match="Theorem 2"):
        stable_variation(network, x, 0.1)


def test_parameters_far_from_a_minimum_are_refused():
    model = MLP(3, bias=True, output_bias=True)
    params = model.init(1, 0)
    data = Dataset(np.array([[0.0], [1.0]]), np.array([5.0, -5.0]))
    with pytest.raises(FlattestError, match="too far from a minimum"):
        upper_top_eigenvalue(params, data)
    with pytest.raises(FlattestError, match="too far from a minimum"):
        flattest_implementation(model, params, data)


@pytest.mark.parametrize("lr", [0.0, -1.0, np.nan, np.inf])
def test_a_step_size_must_be_positive(lr):
    with pytest.raises(FlattestError, match="step size"):
        theorem1_threshold(lr)


def test_networks_of_several_inputs_or_missing_parameters_are_refused():
    with pytest.raises(FlattestError, match="one-dimensional"):
        UnivariateNetwork.of(
            {"W1": np.ones((3, 2)), "b1": np.ones(3), "W2": np.ones(3), "b_out": 0.0}
        )
    with pytest.raises(FlattestError, match="b_out"):
        UnivariateNetwork.of({"W1": np.ones((3, 1)), "b1": np.ones(3), "W2": np.ones(3)})
    network = random_network(np.random.default_rng(0), 3)
    with pytest.raises(FlattestError, match="one variable"):
        upper_top_eigenvalue(network, Dataset(np.ones((2, 2)), np.ones(2)))
