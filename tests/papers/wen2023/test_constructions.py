"""Every construction interpolates, meets its bound, is differentiable where it must be, and stops
meeting its bound when a constant is off by 1 %."""

from functools import cache
from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax.flatten_util import ravel_pytree
from scipy.optimize import nnls

import flattest as ft
from flattest.flatness.certification import (
    interpolation_error,
    memorizes,
    population_error,
    population_mse,
)
from flattest.flatness.extreme import is_extreme, separate
from flattest.papers.wen2023.constructions import (
    CONSTRUCTIONS,
    circle_generalizer,
    head_generalizer,
    memorizer,
    no_bias_xor,
    sim_bn_optimum,
    sim_bn_spike,
    sim_ln_generalizer,
    sim_ln_memorizer,
    xor_generalizer,
)
from support.reference import empirical_loss

XOR = ft.xor(n=14, d=5, seed=0, distinct=True)
COMPLETE = ft.complete_xor(n=16, d=5, seed=0)
CIRCLE = ft.circle(n=6, d=4, seed=3, radius=2.0)


def _real_labels(n, d, seed, zeros=0):
    """Inputs of different norms in general position, labels in R, the first `zeros` of them 0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x *= rng.uniform(0.9, 1.1, (n, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    y = rng.normal(size=n)
    y[:zeros] = 0
    return ft.Dataset(3 * x, y)


REAL = _real_labels(n=7, d=6, seed=0, zeros=1)
CASES = {
    "memorizer, depth 2": (memorizer, XOR, {}),
    "memorizer, depth 3": (memorizer, XOR, {"depth": 3}),
    "memorizer, depth 5, wide": (memorizer, REAL, {"depth": 5, "width": 9}),
    "memorizer, real labels, wide": (memorizer, REAL, {"width": 10}),
    "memorizer, logistic": (memorizer, XOR, {"loss": "logistic"}),
    "xor generalizer, wide": (xor_generalizer, XOR, {"width": 6}),
    "xor generalizer, logistic": (xor_generalizer, XOR, {"loss": "logistic"}),
    "head generalizer": (head_generalizer, XOR, {"s": 3}),
    "circle generalizer": (circle_generalizer, CIRCLE, {}),
    "sim-ln memorizer": (sim_ln_memorizer, XOR, {"epsilon": 0.1}),
    "sim-ln memorizer, large ε": (sim_ln_memorizer, REAL, {"epsilon": 6.0, "width": 9}),
    "sim-ln generalizer, wide": (sim_ln_generalizer, XOR, {"epsilon": 0.1, "width": 6}),
    "sim-ln generalizer, large ε": (sim_ln_generalizer, XOR, {"epsilon": 9.0}),
    "sim-bn optimum, wide": (sim_bn_optimum, COMPLETE, {"width": 6}),
    "sim-bn optimum, logistic": (sim_bn_optimum, COMPLETE, {"loss": "logistic"}),
    "sim-bn spike": (sim_bn_spike, COMPLETE, {"excess": 7e-9}),
    "sim-bn spike, wide, logistic": (sim_bn_spike, COMPLETE, {"width": 30, "loss": "logistic"}),
    "no-bias xor, wide": (no_bias_xor, COMPLETE, {"width": 6}),
}
DENSE = [
    "memorizer, depth 3",
    "memorizer, logistic",
    "circle generalizer",
    "sim-ln memorizer, large ε",
    "sim-bn optimum, wide",
    "sim-bn spike",
    "no-bias xor, wide",
]
cases = pytest.mark.parametrize(("build", "data", "options"), CASES.values(), ids=CASES)


@cases
def test_a_construction_interpolates_and_meets_its_bound(build, data, options):
    built = build(data, **options)
    loss = options.get("loss", "mse")
    assert interpolation_error(built.model, built.params, data, loss) <= 1e-10
    assert built.certificate.holds, built.certificate
    assert built.model.width == options.get("width", built.model.width)


@cache
def _dense_hessian(model, loss):
    """∇²L as a function of θ and the data, compiled once for each network and shape."""

    def L(theta, unravel, x, y):
        return empirical_loss(model, unravel(theta), _Arrays(x, y), loss)

    return jax.jit(jax.hessian(L), static_argnums=1)


class _Arrays(NamedTuple):
    x: np.ndarray
    y: np.ndarray


@pytest.mark.parametrize("name", DENSE)
def test_a_dense_hessian_confirms_the_certificate(name):
    build, data, options = CASES[name]
    built = build(data, **options)
    theta, unravel = ravel_pytree(built.params)
    hessian = _dense_hessian(built.model, options.get("loss", "mse"))(
        theta, unravel, data.x, data.y
    )
    assert np.trace(hessian) == pytest.approx(built.certificate.bound, rel=1e-9)


def _outputs(model, params, x):
    """f_θ at the rows of x in plain NumPy."""
    a = np.maximum(x @ params["W1"].T + params.get("b1", 0), 0)
    if model.norm == "sim_bn":
        s = np.sqrt((a**2).mean(axis=0))
        a = params["gamma"] * a / np.where(s > 0, s, 1)
    if model.norm == "sim_ln":
        a = a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), model.epsilon)
    for layer in range(2, model.depth):
        a = np.maximum(a @ params[f"W{layer}"].T, 0)
    return a @ params[f"W{model.depth}"]


def _one_sided_derivatives(model, params, data, step=1e-9):
    """(f(θ + h e_k) − f(θ))/h and (f(θ) − f(θ − h e_k))/h at every training point, (p, n) each."""
    f, right, left = _outputs(model, params, data.x), [], []
    for name, value in params.items():
        for k in np.ndindex(value.shape):
            for h, side in ((step, right), (-step, left)):
                moved = value.copy()
                moved[k] += h
                side.append((_outputs(model, params | {name: moved}, data.x) - f) / h)
    return np.array(right), np.array(left)


@pytest.mark.parametrize("name", [name for name in CASES if "logistic" not in name])
def test_one_sided_derivatives_agree_at_the_training_points(name):
    build, data, options = CASES[name]
    built = build(data, **options)
    # The neurons on the circle multiply rounding by up to 1e5, so they need a longer step.
    step, tolerance = (1e-7, 1e-3) if build is circle_generalizer else (1e-9, 1e-5)
    right, left = _one_sided_derivatives(built.model, built.params, data, step)
    np.testing.assert_allclose(right, left, atol=tolerance)
    trace = 2 / data.n * (right**2).sum()
    assert trace == pytest.approx(built.certificate.bound, rel=1e-3)


def test_the_printed_diagonal_hidden_layers_are_not_differentiable():
    built = memorizer(XOR, depth=3, off_diagonal=0.0)
    right, left = _one_sided_derivatives(built.model, built.params, XOR)
    assert np.abs(right - left).max() > 0.1


@given(
    d=st.integers(5, 60),
    n=st.integers(1, 40),
    depth=st.integers(2, 5),
    extra=st.integers(0, 5),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=25, deadline=None)
def test_memorizers_of_real_labels_meet_the_bound_at_any_size(d, n, depth, extra, seed):
    data = _real_labels(n, d, seed)
    if not is_extreme(data.x).all():
        with pytest.raises(ft.FlattestError, match="convex hull"):
            memorizer(data, depth)
        return
    built = memorizer(data, depth, width=n + extra)
    assert interpolation_error(built.model, built.params, data) <= 1e-10
    assert built.certificate.holds, built.certificate


@pytest.mark.parametrize("depth", [2, 3])
def test_a_memorizer_of_two_thousand_points_meets_the_bound(depth):
    n = 2000 if depth == 2 else 600
    x = ft.xor(n=n, d=60, seed=1).x
    data = ft.Dataset(x, np.random.default_rng(0).normal(size=n))
    built = memorizer(data, depth)
    assert interpolation_error(built.model, built.params, data) <= 1e-10
    assert built.certificate.holds, built.certificate


# Which constants matter: those a perturbation of which must break interpolation or the bound.
# Normalization makes the scale of W1 and b1 together free in sim-ln and sim-bn.
PERTURBED = [
    ("memorizer, depth 2", ("W1", "b1", "W2")),
    ("memorizer, depth 3", ("W1", "b1", "W2", "W3")),
    ("xor generalizer, wide", ("W1", "b1", "W2")),
    ("head generalizer", ("W1", "b1", "W2")),
    ("circle generalizer", ("W1", "b1", "W2")),
    ("sim-ln memorizer", ("W2",)),
    ("sim-ln memorizer, large ε", ("W1", "W2")),
    ("sim-ln generalizer, wide", ("W2",)),
    ("sim-bn optimum, wide", ("gamma", "W2")),
    ("no-bias xor, wide", ("W1", "W2")),
]


@pytest.mark.parametrize(
    ("name", "array"), [(name, array) for name, arrays in PERTURBED for array in arrays]
)
def test_an_array_that_is_one_percent_off_no_longer_interpolates(name, array):
    build, data, options = CASES[name]
    built = build(data, **options)
    off = built.params | {array: 1.01 * built.params[array]}
    assert interpolation_error(built.model, off, data) > 1e-4


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_scale_that_is_one_percent_off_interpolates_but_is_sharper(depth):
    norms = np.sqrt((XOR.x**2).sum(axis=1) + 1)
    right = memorizer(XOR, depth, r=norms ** (1 / depth))
    off = memorizer(XOR, depth, r=1.01 * norms ** (1 / depth))
    assert interpolation_error(off.model, off.params, XOR) <= 1e-10
    assert right.certificate.holds
    assert not off.certificate.holds


def test_every_scale_argument_one_percent_off_is_sharper():
    r5, R = (XOR.d + 1) ** 0.25, np.sqrt(XOR.d + 1)
    assert xor_generalizer(XOR, r=r5).certificate.holds
    assert not xor_generalizer(XOR, r=1.01 * r5).certificate.holds
    assert not xor_generalizer(XOR, r=(XOR.d**2 + 1) ** 0.25).certificate.holds
    heads = np.unique(XOR.x[:, :2], axis=0)
    assert not head_generalizer(XOR, 2, r=np.full(len(heads), 1.01 * np.sqrt(R))).certificate.holds
    assert not sim_ln_generalizer(XOR, 9.0, r=1.01, u=9.0 / 1.01).certificate.holds
    # At scale 1e3 the first layer's share of Sim-BN's trace is still of order 1e-6.
    assert not sim_bn_optimum(COMPLETE, scale=1e3).certificate.holds
    assert sim_bn_optimum(COMPLETE, scale=1e3).certificate.gap < 1e-5


def test_theorem_5_1_as_printed_costs_more_in_its_second_and_third_case():
    epsilon = 1.0
    norms = np.sqrt((XOR.x**2).sum(axis=1) + 1)
    between = ft.Dataset(XOR.x, 0.7 * epsilon / norms * XOR.y)
    s = np.full(XOR.n, 0.7)
    printed = sim_ln_memorizer(between, epsilon, r=np.sqrt(epsilon / s), u=np.sqrt(epsilon * s))
    assert interpolation_error(printed.model, printed.params, between) <= 1e-10
    assert printed.certificate.gap == pytest.approx(0.4)
    silent = ft.Dataset(XOR.x, 0 * XOR.y)
    assert sim_ln_memorizer(silent, epsilon).certificate.holds
    loud = sim_ln_memorizer(silent, epsilon, u=np.full(XOR.n, 2 * epsilon))
    assert loud.certificate.value == pytest.approx(2)


@pytest.mark.parametrize(("d", "n"), [(6, 64), (10, 60), (16, 100)])
def test_a_memorizer_errs_on_every_unseen_point_and_a_generalizer_on_none(d, n):
    data = ft.xor(n=n, d=d, seed=0, distinct=True)
    for build in (memorizer, sim_ln_memorizer):
        built = build(data)
        error = population_error(built.model, built.params, data)
        assert error.exact
        assert error.value == 1 - n / 2**d
        assert memorizes(built.model, built.params, data)
    for build in (xor_generalizer, sim_ln_generalizer, no_bias_xor):
        built = build(data)
        assert population_error(built.model, built.params, data).value == 0
        assert not memorizes(built.model, built.params, data)


def test_the_memorizer_outputs_exactly_0_on_unseen_points():
    built = memorizer(XOR, depth=4)
    error = population_mse(built.model, built.params, XOR)
    assert error.value == pytest.approx(1 - XOR.n / 2**XOR.d, rel=1e-12)


def test_deep_memorizers_are_one_hot_in_every_layer_and_copies_of_a_point_share_a_neuron():
    data = ft.Dataset(np.vstack([XOR.x, XOR.x[:3]]), np.append(XOR.y, XOR.y[:3]))
    built = memorizer(data, depth=4)
    assert built.model.width == XOR.n
    assert built.certificate.holds
    assert memorizes(built.model, built.params, data)
    swapped = built.params | {"W1": built.params["W1"] + 0.5, "b1": built.params["b1"] + 3.0}
    assert not memorizes(built.model, swapped, data)


def test_the_sim_bn_optimum_computes_xor_everywhere_and_its_trace_tends_to_8():
    traces = [sim_bn_optimum(COMPLETE, scale=scale).certificate.value for scale in (1, 10, 100)]
    excess = np.array(traces) - 8
    np.testing.assert_allclose(excess[:-1] / excess[1:], 100, rtol=1e-3)
    built = sim_bn_optimum(COMPLETE)
    assert population_mse(built.model, built.params, COMPLETE).value < 1e-20


def test_the_no_bias_network_approaches_root_2_times_the_bound():
    data = ft.complete_xor(n=128, d=30, seed=0)
    built = no_bias_xor(data, epsilon=1e-6)
    assert built.certificate.value / ft.lower_bound(built.model, data).value == pytest.approx(
        np.sqrt(2), rel=1e-5
    )


def test_the_circle_generalizer_s_error_falls_as_the_gaps_squared():
    def error(n):
        angles = 2 * np.pi * np.arange(n) / n + 0.1
        x = np.column_stack([np.cos(angles), np.sin(angles)])
        data = ft.Dataset(x, np.cos(2 * angles), ft.Circle(2))
        built = circle_generalizer(data, half_angle=2e-2 if n == 10 else 5e-3)
        assert built.certificate.holds
        return population_mse(built.model, built.params, data).value

    # L²δ² with L = 2, δ = 2π/n, of which a piecewise constant makes about a twelfth.
    assert error(10) < 4 * (2 * np.pi / 10) ** 2
    assert error(40) < error(10) / 8


def test_close_neighbours_on_the_circle_share_a_neuron():
    angles = np.array([0.1, 0.101, 1.0, 2.0, 4.0])
    x = np.column_stack([np.cos(angles), np.sin(angles)])
    data = ft.Dataset(x, np.cos(2 * angles))
    built = circle_generalizer(data)
    assert interpolation_error(built.model, built.params, data) <= 1e-10
    assert built.certificate.holds, built.certificate


def _in_hull(point, others):
    """Whether the point is a convex combination of the others, by non-negative least squares."""
    A = np.vstack([others.T, np.ones(len(others))])
    return nnls(A, np.append(point, 1.0))[1] < 1e-9


@given(d=st.integers(1, 4), n=st.integers(2, 14), seed=st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_the_linear_program_decides_extremality(d, n, seed):
    x = np.random.default_rng(seed).normal(size=(n, d))
    expected = np.array([not _in_hull(x[i], np.delete(x, i, axis=0)) for i in range(n)])
    np.testing.assert_array_equal(is_extreme(x), expected)
    if expected.all():
        by = separate(x)
        products = by.w @ x.T
        gaps = np.diagonal(products)[:, None] - products
        assert (gaps[~np.eye(n, dtype=bool)] > 0).all()
    else:
        first = int(np.flatnonzero(~expected)[0])
        with pytest.raises(ft.FlattestError, match=rf"x\[{first}\] lies in the convex hull"):
            separate(x)


def _with(data, **changes):
    return ft.Dataset(changes.get("x", data.x), changes.get("y", data.y), data.distribution)


CENTRE = ft.Dataset(np.vstack([XOR.x, -XOR.x, np.zeros(5)]), np.ones(2 * XOR.n + 1))
TWICE = ft.Dataset(np.vstack([XOR.x, XOR.x[3]]), np.append(XOR.y, -XOR.y[3]))
NEAR = ft.Dataset(
    [[np.cos(a), np.sin(a)] for a in (0.0, 1e-4, -1e-4, 2.0)], np.array([1.0, -1.0, -1.0, 1.0])
)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: memorizer(CENTRE), r"x\[28\] lies in the convex hull of the others"),
        (lambda: sim_ln_memorizer(CENTRE), r"x\[28\] lies in the convex hull"),
        (lambda: memorizer(TWICE), r"Equal inputs have different labels \(points 3 and 14\)"),
        (lambda: memorizer(XOR, width=13), "needs width ≥ 14, not 13"),
        (lambda: sim_ln_memorizer(XOR, epsilon=0.0), "epsilon must be positive"),
        (lambda: no_bias_xor(XOR, epsilon=0.0), "0 < ε < 1"),
        (lambda: memorizer(NEAR), "float64 needs"),
        (lambda: circle_generalizer(NEAR), "float64 needs"),
        (lambda: circle_generalizer(XOR), "unit circle"),
        (lambda: sim_bn_optimum(COMPLETE, scale=0.0), "scale of W1 must be positive"),
        (lambda: head_generalizer(XOR, 9), "s must lie between 1 and d = 5"),
        (lambda: head_generalizer(XOR, 1), "Equal first 1 coordinates have different labels"),
        (lambda: head_generalizer(REAL, 2), "same norm"),
        (lambda: xor_generalizer(REAL), "inputs in {−1, 1}"),
        (lambda: xor_generalizer(_with(XOR, y=-XOR.y)), "labels proportional to"),
        (lambda: memorizer(REAL, loss="logistic"), "labels ±1"),
        (lambda: memorizer(XOR, loss=ft.Logistic(0.0)), "label smoothing"),
        (lambda: memorizer(XOR, depth=1), "depth must be an integer ≥ 2"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(build, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        build()


def test_the_registry_holds_every_construction():
    assert {build for build, _, _ in CASES.values()} == set(CONSTRUCTIONS.values())


@pytest.mark.parametrize(
    "built",
    [
        lambda: ft.sim_ln_memorizer(XOR, r=2.0),
        lambda: ft.sim_ln_generalizer(XOR, r=-1.0),
        lambda: ft.memorizer(XOR, depth=3, off_diagonal=0.0),
    ],
    ids=["f = 2y", "f = -y", "at its kink"],
)
def test_a_met_bound_certifies_nothing_that_does_not_interpolate_or_has_no_hessian(built):
    certificate = built().certificate
    assert certificate.gap == pytest.approx(0, abs=1e-9)
    assert not certificate.holds
    assert str(certificate).endswith("FAILS: infeasible")


@pytest.mark.parametrize("thickness", [1.0, 1e-3, 1e-6, 1e-9])
def test_the_points_of_a_thin_parabola_are_extreme_and_those_of_a_line_are_not(thickness):
    u = np.linspace(0, 1, 12)
    assert is_extreme(np.column_stack([u, thickness * u**2])).all()
    assert is_extreme(np.column_stack([u, thickness * u])).sum() == 2
