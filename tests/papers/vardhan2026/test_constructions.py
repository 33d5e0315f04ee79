"""Bad interpolators with learned inner weights: what their certificates say, by another road."""

import numpy as np
import pytest

import flattest as ft
from flattest.problem.multi_index import label_variance, largest_cosine
from support.reference import dense_hessian

DATA = ft.SumOfSingleIndex(9, 2, "relu").draw(5, 0)


def trace_by_autodiff(made, data):
    return np.trace(dense_hessian(made.model, made.params, data))


def smallest_trace_by_hand(data, W, a):
    """Lemma 3 for ReLU, neuron by neuron: 4 √(A_j B_j) |a_j|."""
    total = 0.0
    for w, weight in zip(W, a, strict=True):
        active = [x for x in data.x if w @ x > 0]
        A = sum((w @ x) ** 2 for x in active) / data.n
        B = sum(x @ x for x in active) / data.n
        total += 4 * np.sqrt(A * B) * abs(weight)
    return total


def outputs(made, x):
    return np.asarray(made.model.apply(made.params, x, x))


@pytest.mark.parametrize("link", ["relu", "quadratic"])
def test_a_twin_is_as_flat_as_theorem_4_s_interpolator_and_does_not_see_u(link):
    distribution = ft.SumOfSingleIndex(9, 2, link)
    data = distribution.draw(5, 0)
    made = ft.bad_twin(data, width=6)
    assert made.certificate.holds
    assert outputs(made, data.x) == pytest.approx(data.y, abs=1e-10)
    assert trace_by_autodiff(made, data) == pytest.approx(made.certificate.bound, rel=1e-9)
    assert np.abs(made.params["W1"] @ distribution.directions.T).max() < 1e-12
    moved = data.x + np.eye(9)[0]
    assert outputs(made, moved) == pytest.approx(outputs(made, data.x), abs=1e-10)


def test_a_twin_s_bound_is_the_teacher_s_least_trace():
    U, alpha = DATA.distribution.teacher
    teacher = smallest_trace_by_hand(DATA, U, alpha)
    assert ft.bad_twin(DATA, width=6).certificate.bound == pytest.approx(teacher, rel=1e-12)


def test_twins_are_separated_by_their_spread_which_costs_no_sharpness_but_loss():
    data = ft.SumOfSingleIndex(60, 2, "quadratic").draw(20, 0)
    made = {spread: ft.bad_twin(data, 12, spread) for spread in (0.0, 1.0, 4.0)}
    cosines = [largest_cosine(m.params["W1"]) for m in made.values()]
    assert cosines[0] == pytest.approx(1)
    assert cosines[1] < 0.8
    assert cosines[2] < cosines[1]
    assert len({round(m.certificate.value, 9) for m in made.values()}) == 1
    losses = [
        ft.population_loss(m.params["W1"], m.params["W2"], data.distribution, "quadratic")
        for m in made.values()
    ]
    assert min(losses) > label_variance(data.distribution)
    # E f = Σ a_j ‖w_j‖² is as 1 + spread²: the loss grows by about (17/2)².
    assert losses[2] > 50 * losses[1]


@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_the_bad_memorizer_is_a_flattest_network_without_bias(noise):
    distribution = ft.SumOfSingleIndex(9, 2, "relu", noise)
    data = distribution.draw(7, 1)  # n = d − r
    made = ft.bad_memorizer(data, width=9)
    floor = 4 * np.mean(np.linalg.norm(data.x, axis=1) * np.abs(data.y))
    assert made.certificate.holds
    assert made.certificate.bound == pytest.approx(floor, rel=1e-12)
    assert trace_by_autodiff(made, data) == pytest.approx(floor, rel=1e-9)
    assert np.abs(made.params["W1"] @ distribution.directions.T).max() < 1e-12
    loss = ft.population_loss(made.params["W1"], made.params["W2"], distribution, "relu")
    assert loss > label_variance(distribution) + noise**2


def test_the_memorizer_of_one_relu_is_flatter_than_its_teacher():
    """By √(2/π) = 0.798 as d → ∞: E|y| √d against √(E y² · d/2), ½ of the points being active."""
    data = ft.SingleIndex(400, link="relu").draw(300, 0)
    (teacher,) = ft.orbit_weights(data.distribution.directions, data.x, "relu")
    assert ft.bad_memorizer(data).certificate.value / teacher == pytest.approx(0.798, abs=0.03)


def test_a_wrong_weight_is_noticed():
    made = ft.bad_twin(DATA, width=6)
    off = {**made.params, "W1": made.params["W1"] * 1.01}
    trace = np.trace(dense_hessian(made.model, off, DATA))
    assert trace != pytest.approx(made.certificate.bound, rel=1e-4)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: ft.bad_twin(ft.SingleIndex(9, noise=0.1).draw(5, 0)), "noise 0"),
        (lambda: ft.bad_twin(ft.SingleIndex(9).draw(8, 0)), "spread = 0"),
        (lambda: ft.bad_twin(DATA, width=5), "multiple of r = 2"),
        (lambda: ft.bad_memorizer(ft.SingleIndex(9).draw(9, 0)), "n ≤ d − r"),
        (lambda: ft.bad_memorizer(ft.xor(20, 5)), "single-index"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_way_out(build, complaint):
    with pytest.raises(ft.FlattestError, match=complaint):
        build()


def test_without_spread_a_twin_needs_only_n_at_most_d_minus_r():
    assert ft.bad_twin(ft.SingleIndex(9).draw(8, 0), spread=0).certificate.holds
