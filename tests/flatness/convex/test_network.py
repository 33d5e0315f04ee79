"""The flattest network over all widths: its trace meets a bound that a dual proves."""

import numpy as np
import pytest

import flattest as ft
from flattest.flatness.certification import differentiable
from flattest.flatness.convex.certificate import patterns, steepness
from flattest.flatness.convex.rows import rows_of
from flattest.flatness.extreme import is_extreme
from flattest.problem.losses import interpolates
from flattest.studies.question1.small import problem
from support.patterns import least_trace
from support.reference import dense_hessian

FEW = range(0, 24, 2)


def check(model, data, loss="mse"):
    """All that is said of the answer, checked on the network itself and on the dual anew."""
    found = ft.flattest_network(model, data, loss)
    assert -1e-12 <= found.gap <= 1e-8
    assert found.least >= ft.lower_bound(model, data, loss).value * (1 - 1e-9)
    assert found.model.width <= data.n
    assert differentiable(found.model, found.params, data.x)
    f = ft.predict(found.model, found.params, data.x, data.x)
    assert interpolates(f, ft.loss(loss).target(data.y))
    assert found.trace <= found.least * (1 + 1e-6)
    assert found.trace >= found.bound * (1 - 1e-12)
    assert float(ft.trace(found.model, found.params, data, loss)) == pytest.approx(found.trace)
    rows = rows_of(model, data, loss)
    steep = steepness(patterns(rows), found.dual).largest
    assert rows.unit * (found.dual @ rows.t) / max(steep, 1) == pytest.approx(found.bound)
    return found


@pytest.mark.parametrize("seed", FEW)
def test_the_flattest_network_is_certified(seed):
    check(*problem(seed))


@pytest.mark.slow
def test_two_hundred_small_problems_are_certified():
    done = [check(*problem(seed)) for seed in range(24, 230)]
    assert any(found.attained for found in done)
    assert not all(found.attained for found in done)


def test_the_trace_is_that_of_the_dense_hessian():
    model, data = problem(3)
    found = ft.flattest_network(model, data)
    dense = np.trace(dense_hessian(found.model, found.params, data))
    assert found.trace == pytest.approx(dense, rel=1e-9)


def trial(bias, seed=1):
    """n = 7 normal inputs in d = 3 with normal labels, and the least trace found by CVXPY."""
    rng = np.random.default_rng(seed)
    return ft.MLP(7, bias=bias), ft.Dataset(rng.normal(size=(7, 3)), rng.normal(size=7))


@pytest.mark.parametrize(
    ("bias", "least", "simple"), [(False, 6.454, 4.064), (True, 8.4886, 6.111)]
)
def test_seven_points_in_three_dimensions(bias, least, simple):
    model, data = trial(bias)
    found = check(model, data)
    assert found.least == pytest.approx(least, abs=5e-4)
    assert ft.lower_bound(model, data).value == pytest.approx(simple, abs=5e-4)
    assert found.cells + 1 >= {False: 44, True: 84}[bias]


@pytest.mark.peer
@pytest.mark.parametrize("seed", [1, 2, 11])
def test_a_second_solver_on_the_data_as_they_are_agrees(seed):
    pytest.importorskip("cvxpy")
    model, data = problem(seed)
    slope = model.sigma.slopes[0]
    second = least_trace(data, model.bias, slope, eps_abs=1e-9, eps_rel=1e-9, max_iters=200_000)
    assert ft.flattest_network(model, data).least == pytest.approx(second, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_no_search_ends_below_the_least(seed):
    model, data = trial(bias=bool(seed))
    wide = ft.MLP(20, bias=model.bias)
    reached = ft.search_flattest(wide, data, steps=150).end.sharpness
    least = ft.flattest_network(model, data).least
    assert least * (1 - 1e-9) <= reached <= 2 * least


def test_where_all_inputs_are_extreme_the_memorizer_is_flattest():
    model, data = problem(3)
    assert is_extreme(data.x).all()
    least = ft.memorizer(data).certificate.value
    assert ft.flattest_network(model, data).least == pytest.approx(least, rel=1e-9)


def test_the_least_is_attained_with_bias_on_the_sphere_and_only_approached_on_the_square():
    """Without bias xor on the square needs neurons ±(1, 1), ±(1, −1), each 0 on two corners."""
    model, data = problem(3)
    assert ft.flattest_network(model, data).attained
    square = ft.xor(n=4, d=2, seed=0, distinct=True)
    found = check(ft.MLP(4), square)
    assert not found.attained


def test_repeated_and_collinear_inputs_are_one_condition():
    model, data = trial(bias=False)
    again = ft.Dataset(
        np.vstack([data.x, data.x[:2], 3 * data.x[2:3]]),
        np.concatenate([data.y, data.y[:2], 3 * data.y[2:3]]),
    )
    assert check(model, again).least > check(model, data).least * 7 / 10


@pytest.mark.parametrize(("loss", "factor"), [("half_mse", 0.5), ("logistic", None)])
def test_other_losses_are_the_same_program_in_other_units(loss, factor):
    model, data = problem(6)
    found, squared = check(model, data, loss), ft.flattest_network(model, data)
    # Logistic, p = 0.2: κ = p(1 − p) for 2, targets ±ln 4.
    factor = factor or 0.16 * np.log(4) / 2
    assert found.least == pytest.approx(factor * squared.least, rel=1e-8)


@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_the_answer_does_not_depend_on_units(size):
    model, data = trial(bias=False)
    least = ft.flattest_network(model, data).least
    scaled = ft.Dataset(size * data.x, size * data.y)
    assert ft.flattest_network(model, scaled).least == pytest.approx(size**2 * least, rel=1e-9)


def test_a_width_is_padded_to():
    model, data = trial(bias=True)
    found = ft.flattest_network(model, data, width=12)
    assert found.model.width == 12
    assert differentiable(found.model, found.params, data.x)
    assert float(ft.trace(found.model, found.params, data)) == pytest.approx(found.trace)


@pytest.mark.slow
def test_the_least_over_fewer_neurons_is_searched_above_the_bound_of_all_widths():
    model, data = trial(bias=True)
    least = ft.flattest_network(model, data)
    found = ft.flattest_network(model, data, width=least.model.width - 1)
    assert found.model.width == least.model.width - 1
    assert found.bound == least.bound <= found.least == found.trace
    assert "search" in found.proof
    assert float(ft.trace(found.model, found.params, data)) == pytest.approx(found.trace)
    with pytest.raises(ft.FlattestError, match="not a convex question"):
        ft.flattest_network(model, data, width=1)
    with pytest.raises(ft.FlattestError, match="width"):
        ft.flattest_network(model, data, width=0)


X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("model", "x", "y", "sentence"),
    [
        (ft.MLP(3), np.vstack([X, [0, 0]]), [1, 2, 3, 1], r"x\[3\] is 0 and its label is not"),
        (ft.MLP(3), np.vstack([X, X[:1]]), [1, 2, 3, 2], r"x\[0\] and x\[3\] are equal"),
        (ft.MLP(3), np.vstack([X, 2 * X[:1]]), [1, 2, 3, 1], "lie on one ray from 0"),
        (ft.MLP(3), np.vstack([X, -X]), [1, 2, 4, 0, 0, 0], r"f\(x\) − f\(−x\) is linear"),
        (ft.MLP(3, bias=True), np.vstack([X, X[:1] + 1e-11]), [1, 2, 3, 1], "too close"),
        (ft.MLP(3), X, [0, 0, 0], "All labels are 0"),
        (ft.MLP(3, depth=3), X, [1, 2, 3], "two layers with ReLU"),
        (ft.MLP(3, norm="sim_ln"), X, [1, 2, 3], "two layers with ReLU"),
        (ft.MLP(3, activation="softplus"), X, [1, 2, 3], "two layers with ReLU"),
        (ft.MLP(3, activation="linear"), X, [1, 2, 3], "two layers with ReLU"),
        (ft.MLP(3, output_bias=True), X, [1, 2, 3], "two layers with ReLU"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(model, x, y, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        ft.flattest_network(model, ft.Dataset(x, y))


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (np.vstack([X, [0, 0]]), [1, 2, 3, 1], r"x\[3\] is 0 and its label is not"),
        (np.vstack([X, X[:1]]), [1, 2, 3, 2], r"x\[0\] and x\[3\] are equal"),
        (X, [0, 0, 0], "All labels are 0"),
        (np.where(X == 0, np.nan, X), [1, 2, 3], "not finite"),
        (X, [1, np.nan, 3], "not finite"),
    ],
)
def test_ranges_and_faces_refuse_the_same_data(x, y, sentence):
    for asked in (
        lambda data: ft.flattest_range(ft.MLP(3), data, X),
        lambda data: ft.decide_faces(ft.MLP(3), data, X),
    ):
        with pytest.raises(ft.FlattestError, match=sentence):
            asked(ft.Dataset(x, y))


def test_too_many_patterns_nan_and_several_outputs_are_refused():
    with pytest.raises(ft.FlattestError, match=r"up to [\d,]+ activation patterns, more than"):
        ft.flattest_network(ft.MLP(5), ft.xor(n=80, d=12))
    with pytest.raises(ft.FlattestError, match="not finite"):
        ft.flattest_network(ft.MLP(3), ft.Dataset(X, [1, np.nan, 0]))
    with pytest.raises(ft.FlattestError, match=r"y \(n,\)"):
        ft.flattest_network(ft.MLP(3), ft.Dataset(X, np.ones((3, 2))))
    with pytest.raises(ft.FlattestError, match="excess"):
        ft.flattest_network(ft.MLP(3), ft.Dataset(X, [1, 2, 3]), excess=0)


def over_six_orders(seed):
    """Inputs whose lengths span six orders of magnitude."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6, 3)) / 10 ** rng.uniform(-3, 3, size=(6, 1))
    return ft.Dataset(x, rng.choice([-1.0, 1.0], size=6))


@pytest.mark.parametrize("seed", [17, 42])
def test_a_first_try_that_has_no_active_unit_or_proves_nothing_is_not_the_last(seed):
    found = ft.flattest_network(ft.MLP(1, bias=True), over_six_orders(seed))
    assert abs(found.gap) <= 1e-8


@pytest.mark.parametrize(("bias", "seed"), [(True, 31), (False, 7), (False, 28)])
def test_what_float64_cannot_solve_is_refused_in_a_sentence(bias, seed):
    with pytest.raises(ft.FlattestError, match="rescale the inputs"):
        ft.flattest_network(ft.MLP(1, bias=bias), over_six_orders(seed))
