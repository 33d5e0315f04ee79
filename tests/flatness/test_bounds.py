"""The bounds have the values of the papers, hold for every interpolator, and are met where they
say so."""

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.curvature.sharpness import operator_of, trace
from flattest.flatness.bounds import (
    known_lower_bound,
    linear_rademacher_bound,
    lower_bound,
    path_norm,
    two_layer_rademacher_bound,
)
from flattest.flatness.certification import flatness_ratio

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
    model = ft.MLP(10, depth=3, bias=True, activation="softplus")
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


# Validity: interpolators of every kind, polished to 1e-12, from random starts, walking downhill in
# sharpness, and around the flattest ones. None may be below its bound.

SMALL = ft.xor(n=10, d=4, seed=1, distinct=True)
COMPLETE = ft.complete_xor(n=16, d=5, seed=0)
REAL = ft.ball(n=9, d=4, seed=2)
VALID = {
    "bias": (ft.MLP(16, bias=True), SMALL, "mse"),
    "bias, real labels": (ft.MLP(16, bias=True), REAL, "half_mse"),
    "bias, logistic": (ft.MLP(16, bias=True), SMALL, "logistic"),
    "output bias": (ft.MLP(16, bias=True, output_bias=True), REAL, "mse"),
    "no bias": (ft.MLP(20), SMALL, "mse"),
    "depth 3": (ft.MLP(12, depth=3, bias=True), REAL, "mse"),
    "depth 4, no bias, output bias": (ft.MLP(14, depth=4, output_bias=True), SMALL, "mse"),
    "leaky relu": (ft.MLP(16, bias=True, activation="leaky_relu:0.2"), REAL, "mse"),
    "leaky relu, depth 3": (ft.MLP(12, depth=3, activation="leaky_relu:-0.5"), REAL, "mse"),
    "quadratic": (ft.MLP(20, bias=True, activation="quadratic"), SMALL, "mse"),
    "relu^3": (ft.MLP(20, bias=True, activation="relu^3"), REAL, "mse"),
    "softplus": (ft.MLP(12, bias=True, activation="softplus"), REAL, "mse"),
    "sim-ln": (ft.MLP(16, bias=True, norm="sim_ln", epsilon=1e-2), SMALL, "mse"),
    "sim-ln, large ε": (ft.MLP(16, bias=True, norm="sim_ln", epsilon=9.0), REAL, "mse"),
    "sim-bn": (ft.MLP(24, bias=True, norm="sim_bn"), REAL, "mse"),
    "sim-bn, Condition 1": (ft.MLP(40, bias=True, norm="sim_bn"), COMPLETE, "mse"),
    "sim-bn, leaky": (ft.MLP(24, norm="sim_bn", activation="leaky_relu"), REAL, "mse"),
}


def polished(model, params, data, loss, steps=60):
    """An interpolator near `params` by Levenberg–Marquardt, or None where it does not get there."""
    target, damping = ft.loss(loss).target(data.y), 1e-3
    here = operator_of(model, params, data, loss)
    for _ in range(steps):
        residual = here.f - target
        if np.abs(residual).max() <= 1e-13:
            break
        step = np.linalg.solve(here.gram() + damping * np.eye(data.n), residual)
        moved = {k: params[k] - v for k, v in here.as_params(here.vjp(step)).items()}
        there = operator_of(model, moved, data, loss)
        if np.abs(there.f - target).max() < np.abs(residual).max():
            params, here, damping = moved, there, max(damping / 10, 1e-15)
        else:
            damping *= 10
    return params if np.abs(here.f - target).max() <= 1e-12 else None


def nudged(params, size, rng):
    return {k: v + size * rng.normal(size=np.shape(v)) for k, v in params.items()}


def walk_downhill(model, params, data, loss, rng, tries=60):
    """The sharpness of the interpolators met on a random walk that only ever goes down."""
    seen = [float(trace(model, params, data, loss))]
    for k in range(tries):
        new = polished(model, nudged(params, 0.3 * 0.93**k, rng), data, loss, steps=15)
        if new is not None:
            seen.append(float(trace(model, new, data, loss)))
            params = new if seen[-1] == min(seen) else params
    return seen


@pytest.mark.parametrize(("model", "data", "loss"), VALID.values(), ids=VALID)
def test_no_interpolator_is_flatter_than_the_bound(model, data, loss):
    rng = np.random.default_rng(0)
    bound, met = lower_bound(model, data, loss).value, []
    for seed in range(4):
        start = polished(model, nudged(model.init(data.d, seed), 0.5, rng), data, loss)
        if start is not None:
            met += walk_downhill(model, start, data, loss, rng)
    assert len(met) > 20
    assert min(met) >= bound * (1 - 1e-9)
    assert min(met) < max(met)


@pytest.mark.parametrize(
    "built",
    [
        ft.memorizer(SMALL),
        ft.memorizer(SMALL, depth=3),
        ft.xor_generalizer(SMALL, width=8),
        ft.sim_ln_memorizer(SMALL, epsilon=0.1),
        ft.sim_bn_optimum(COMPLETE, width=8, scale=30.0),
    ],
    ids=lambda built: built.certificate.statement,
)
def test_around_the_flattest_networks_the_bound_still_holds(built):
    rng, data = np.random.default_rng(0), SMALL if built.model.norm != "sim_bn" else COMPLETE
    bound, gaps = lower_bound(built.model, data).value, []
    for size in np.repeat([1e-4, 1e-3, 1e-2], 20):
        near = polished(built.model, nudged(built.params, size, rng), data, "mse")
        if near is not None:
            gaps.append(float(trace(built.model, near, data)) / bound)
    assert len(gaps) > 40
    assert min(gaps) >= 1 - 1e-9
    assert min(gaps) < 1.02


@pytest.mark.parametrize("norm", [None, "sim_ln"])
def test_a_network_trained_by_sam_comes_close_to_the_bound_and_stays_above_it(norm):
    model = ft.MLP(24, bias=True, norm=norm, epsilon=1e-2)
    phases = [ft.sam(lr=0.02, rho=0.3, epochs=1500)]
    run = ft.train(model, SMALL, phases, seed=0, backend="jax", dtype="float64")
    exact = polished(model, run.params, SMALL, "mse")
    assert 1 - 1e-9 <= flatness_ratio(model, exact, SMALL) < 1.01


# Tightness where no construction of the paper meets the bound: networks on one or two points.


def one_point(x, y):
    return ft.Dataset(np.array([x]), np.array([y]))


def test_the_bounds_for_other_activations_are_met_on_one_point():
    data = one_point([0.6, 0.8], 2.0)
    x = data.x[0]

    leaky = ft.MLP(1, activation="leaky_relu:0.25")
    # h < 0 with |α W2| ‖x‖ = |α h|: the slope α everywhere.
    params = {"W1": -np.sqrt(8) * x[None], "W2": np.array([-np.sqrt(8)])}
    assert flatness_ratio(leaky, params, data) == pytest.approx(1, rel=1e-12)

    for name, c in (("quadratic", 2), ("relu^3", 3)):
        model = ft.MLP(5, activation=name)
        s = 2.0 / 5
        h = (c * s**2) ** (1 / (2 * c + 2))
        params = {"W1": np.tile(h * x, (5, 1)), "W2": np.full(5, s / h**c)}
        assert flatness_ratio(model, params, data) == pytest.approx(1, rel=1e-12)

    # Spread over many neurons, s = softplus(h) is small and 1 + s is close to s/(1 − e^{−s}).
    m, s = 10_000, 4e-8
    softplus = ft.MLP(m, activation="softplus")
    params = {"W1": np.tile(np.log(np.expm1(s)) * x, (m, 1)), "W2": np.full(m, 2.0 / (m * s))}
    assert flatness_ratio(softplus, params, data) == pytest.approx(1, rel=1e-6)

    nobias = ft.MLP(1)
    params = {"W1": np.sqrt(2) * x[None], "W2": np.array([np.sqrt(2)])}
    assert flatness_ratio(nobias, params, data) == pytest.approx(1, rel=1e-12)


def test_the_bounds_for_other_activations_are_met_on_many_points_with_one_label():
    """Orthogonal inputs of norm r: w = Σ h x_i/r² has w·x_i = h at every point."""
    n, r, t = 4, 1.5, 2.0
    data = ft.Dataset(r * np.eye(n, n + 2), np.full(n, t))
    direction = data.x.sum(axis=0) / r**2

    leaky, alpha = ft.MLP(1, activation="leaky_relu:0.25"), 0.25
    h = -np.sqrt(t * r / alpha)
    params = {"W1": h * direction[None], "W2": np.array([h / r])}
    assert flatness_ratio(leaky, params, data) == pytest.approx(1, rel=1e-12)

    for name, c in (("quadratic", 2), ("relu^3", 3)):
        model, s = ft.MLP(5, activation=name), t / 5
        h = (c * (r * s) ** 2) ** (1 / (2 * c + 2))
        params = {"W1": np.tile(h * direction, (5, 1)), "W2": np.full(5, s / h**c)}
        assert flatness_ratio(model, params, data) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("depth", [2, 3, 4, 6])
def test_the_bound_is_met_at_every_depth_by_the_memorizer(depth):
    data = ft.xor(n=6, d=4, seed=0)
    built = ft.memorizer(data, depth=depth)
    assert flatness_ratio(built.model, built.params, data) == pytest.approx(1, rel=1e-10)


def test_on_one_point_one_softplus_neuron_comes_as_close_as_the_docstring_says():
    for r, expected in ((1e-3, 1.00003), (10.0, 1.3206), (1e3, 1.0323)):
        data, model = one_point([1.0], r), ft.MLP(1, activation="softplus")
        s = np.exp(np.linspace(-12, 8, 4000))
        least = np.min(s**2 + (r * -np.expm1(-s) / s) ** 2)
        assert 2 * least / ft.lower_bound(model, data).value == pytest.approx(expected, abs=1e-4)


def test_the_sim_bn_bound_on_arbitrary_data_is_approached_where_the_signs_can_be_separated():
    data = ft.Dataset([[1.0], [-1.0], [-1.0]], [3.0, -1.0, -1.0])
    shares = np.array([3 / np.sqrt(3), np.sqrt(2 / 3)])
    params = {
        "W1": 1e5 * np.array([[1.0], [-1.0]]),
        "gamma": np.sqrt(shares),
        "W2": np.array([1.0, -1.0]) * np.sqrt(shares),
    }
    model = ft.MLP(2, norm="sim_bn")
    np.testing.assert_allclose(ft.predict(model, params, data.x, data.x), data.y, atol=1e-12)
    assert flatness_ratio(model, params, data) == pytest.approx(1, rel=1e-9)


def test_the_bound_with_an_output_bias_is_met_by_the_memorizer_of_shifted_labels():
    data = ft.Dataset(SMALL.x, SMALL.y + 5 + 0.1 * np.arange(SMALL.n))
    model = ft.MLP(SMALL.n, depth=3, bias=True, output_bias=True)
    gaps = []
    for b in np.linspace(data.y.min(), data.y.max(), 200):
        built = ft.memorizer(ft.Dataset(data.x, data.y - b), depth=3)
        gaps.append(flatness_ratio(model, built.params | {"b_out": np.array(b)}, data))
    assert 1 - 1e-9 <= min(gaps) < 1.001


def test_the_bound_with_an_output_bias_does_not_depend_on_how_far_the_labels_are_from_zero():
    """Between labels 1e8 and 1e8 + 1 the best shift is halfway, to far less than 1e-8 of itself."""
    data = ft.Dataset([[1.0, 1.0], [1.0, -1.0]], [1e8, 1e8 + 1])
    model = ft.MLP(2, depth=3, bias=True, output_bias=True)
    halfway = ft.memorizer(ft.Dataset(data.x, data.y - (1e8 + 0.5)), depth=3)
    params = halfway.params | {"b_out": np.array(1e8 + 0.5)}
    assert flatness_ratio(model, params, data) == pytest.approx(1, rel=1e-12)
    assert lower_bound(model, data).attained


OUTPUT_BIAS = {
    "bias": ft.MLP(9, bias=True, output_bias=True),
    "depth 7": ft.MLP(9, depth=7, output_bias=True),
    "relu^3": ft.MLP(9, activation="relu^3", output_bias=True),
    "sim-ln": ft.MLP(9, norm="sim_ln", epsilon=0.5, output_bias=True),
    "sim-bn": ft.MLP(9, norm="sim_bn", output_bias=True),
    "sim-bn, leaky": ft.MLP(9, norm="sim_bn", activation="leaky_relu", output_bias=True),
}


@pytest.mark.parametrize("model", OUTPUT_BIAS.values(), ids=OUTPUT_BIAS)
@pytest.mark.parametrize("shift", [0.0, 1e9])
@pytest.mark.parametrize(
    "size", [1.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1e-3, 1e3))]
)
def test_no_shift_of_the_labels_goes_below_the_bound_and_some_shift_meets_it(model, shift, size):
    rng, plain = np.random.default_rng(0), msgspec.structs.replace(model, output_bias=False)
    for n in (1, 2, 5):
        x, y = rng.normal(size=(n, 3)), size * rng.normal(size=n) + shift
        bound = lower_bound(model, ft.Dataset(x, y)).value
        shifts = np.unique([*(y - y[0]), *np.linspace(y.min() - y[0], y.max() - y[0], 1001)])
        met = [2 + lower_bound(plain, ft.Dataset(x, y - y[0] - b)).value for b in shifts]
        assert bound <= min(met) * (1 + 1e-12)
        assert bound == pytest.approx(min(met), rel=1e-5)


SIGNS = ft.Dataset([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, -1.0]], [1.0, -1.0])


@pytest.mark.parametrize(
    "model",
    [
        ft.MLP(4),
        ft.MLP(4, output_bias=True),
        ft.MLP(4, activation="quadratic"),
        ft.MLP(4, activation="relu^3"),
        ft.MLP(4, activation="softplus"),
    ],
    ids=["relu", "output bias", "quadratic", "relu^3", "softplus"],
)
def test_inputs_of_1e160_with_labels_of_1e_minus_160_have_the_bound_of_their_products(model):
    data = ft.Dataset(1e160 * SIGNS.x, 1e-160 * SIGNS.y)
    assert lower_bound(model, data).value == pytest.approx(lower_bound(model, SIGNS).value, 1e-12)


def test_numbers_whose_squares_overflow_have_a_bound():
    huge = ft.Dataset(1e160 * SIGNS.x, 1e-160 * SIGNS.y)
    assert lower_bound(ft.MLP(4, bias=True), huge).value == pytest.approx(8, rel=1e-12)
    assert lower_bound(ft.MLP(4, bias=True), huge).attained
    bound = lower_bound(ft.MLP(4, norm="sim_bn"), ft.Dataset(SIGNS.x, 1e160 * SIGNS.y))
    assert bound.value == pytest.approx(4 * np.sqrt(2) * 1e160, rel=1e-12)


@pytest.mark.parametrize("model", [ft.MLP(4, output_bias=True), ft.MLP(4, activation="softplus")])
def test_a_bound_beyond_the_largest_float_is_refused_in_one_sentence(model):
    data = ft.Dataset(1e200 * np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([1e200, -1e200]))
    with pytest.raises(ft.FlattestError, match="exceeds the largest float64; rescale") as refusal:
        lower_bound(model, data)
    assert "\n" not in str(refusal.value)
