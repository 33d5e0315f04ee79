"""The flattest interpolator: optimality certified by its dual, never by the solver's word."""

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from flattest.errors import FlattestError
from flattest.flatness.interpolators import (
    dual_bound,
    flattest_interpolator,
    flattest_interpolators,
    linear_program,
)
from support import clarabel

EXPONENTS = [1.0, 1.05, 4 / 3, 1.5, 2.0]
ACTIVATIONS = {
    "gaussian": lambda h: h,
    "relu": lambda h: np.maximum(h, 0),
    "quadratic": lambda h: h**2,
}


def features(kind, n, m, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        return rng.standard_normal((n, m))
    x, w = rng.standard_normal((n, n)), rng.standard_normal((m, n))
    return ACTIVATIONS[kind](x @ w.T / np.linalg.norm(w, axis=1))


def labels(n, seed=1):
    return np.random.default_rng(seed).standard_normal(n)


def with_condition(phi, number):
    U, s, V = np.linalg.svd(phi, full_matrices=False)
    return (U * np.geomspace(1, 1 / number, len(s))) @ V


def known_pair(phi, p, rng):
    """(a, λ, ω, y) built backwards from stationarity, p ω |a|^{p−1} sign(a) = Φᵀλ.

    At p = 1, where it reads ω ≥ |Φᵀλ| off the support, only n/2 neurons are in the support.
    """
    n, m = phi.shape
    dual = rng.standard_normal(n)
    u = dual @ phi
    a = np.sign(u) * rng.uniform(0.5, 2, m)
    omega = np.abs(u) / (p * np.abs(a) ** (p - 1))
    if p == 1:
        off = rng.permutation(m)[n // 2 :]
        a[off] = 0
        omega[off] *= rng.uniform(1.2, 3, len(off))
    return a, dual, omega, phi @ a


@pytest.mark.parametrize("kind", ["gaussian", "relu", "quadratic"])
@pytest.mark.parametrize("p", EXPONENTS)
def test_optimality_is_certified(kind, p):
    phi, y = features(kind, 60, 120), labels(60)
    omega = np.random.default_rng(2).uniform(0.1, 5, 120)
    found = flattest_interpolator(phi, y, p, omega)
    assert found.status == "optimal"
    assert found.value == pytest.approx(omega @ np.abs(found.a) ** p, rel=1e-13)
    assert abs(found.value / dual_bound(phi, y, p, found.dual, omega) - 1) <= 1e-9
    assert np.linalg.norm(phi @ found.a - y) <= 1e-10 * np.linalg.norm(y)
    assert found.certificate.holds


@pytest.mark.parametrize("kind", ["gaussian", "relu", "quadratic"])
@pytest.mark.parametrize("p", EXPONENTS)
def test_known_primal_dual_pairs_are_recovered(kind, p):
    phi = features(kind, 40, 90)
    a, dual, omega, y = known_pair(phi, p, np.random.default_rng(3))
    found = flattest_interpolator(phi, y, p, omega)
    scale = np.abs(a).max()
    assert np.abs(found.a - a).max() <= 1e-8 * scale
    assert found.value == pytest.approx(omega @ np.abs(a) ** p, rel=1e-10)
    if p > 1:
        assert np.abs(found.dual - dual).max() <= 1e-8 * np.abs(dual).max()


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(1, 25),
    extra=st.integers(0, 25),
    p=st.floats(1, 2) | st.floats(-16, 0).map(lambda e: 1 + 10**e),
    seed=st.integers(0, 1000),
)
def test_no_shape_or_exponent_is_left_uncertified(n, extra, p, seed):
    rng = np.random.default_rng(seed)
    phi, y = rng.standard_normal((n, n + extra)), rng.standard_normal(n)
    assume(np.linalg.cond(phi) <= 1e6)
    found = flattest_interpolator(phi, y, p)
    assert found.status == "optimal"
    # What the status promises, on the features as given; rounding may put the bound above.
    bound = dual_bound(phi, y, p, found.dual)
    assert -1e-12 <= np.sum(np.abs(found.a) ** p) / bound - 1 <= 1e-9
    assert np.linalg.norm(phi @ found.a - y) <= 1e-10 * np.linalg.norm(y)


@pytest.mark.parametrize("seed", [0, 1, 10])
def test_two_samples_are_certified_although_every_stage_of_the_homotopy_fits_them(seed):
    """z nearly solves each stage from p = 1.5 down, and is far from the optimum at p = 1.05."""
    rng = np.random.default_rng(seed)
    phi, y = rng.standard_normal((2, 2)), rng.standard_normal(2)
    found = flattest_interpolator(phi, y, 1.05)
    assert found.status == "optimal"
    assert found.a == pytest.approx(np.linalg.solve(phi, y), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.05, 4 / 3])
def test_the_bound_is_valid_for_any_dual_and_the_value_for_any_interpolator(p):
    phi, y = features("relu", 30, 60), labels(30)
    found = flattest_interpolator(phi, y, p)
    rng = np.random.default_rng(4)
    for size in (1e-3, 1e-1, 1):
        dual = found.dual + size * rng.standard_normal(30) * np.abs(found.dual).mean()
        assert dual_bound(phi, y, p, dual) < found.value
        kernel = rng.standard_normal(60)
        kernel -= np.linalg.pinv(phi) @ (phi @ kernel)
        a = found.a + size * kernel * np.abs(found.a).mean()
        assert np.sum(np.abs(a) ** p) > found.value


@pytest.mark.parametrize("p", EXPONENTS)
def test_condition_number_1e6_is_solved_and_1e10_is_reported(p):
    phi, y = features("relu", 50, 100), labels(50)
    assert flattest_interpolator(with_condition(phi, 1e6), y, p).status == "optimal"
    reported = flattest_interpolator(with_condition(phi, 1e10), y, p)
    assert reported.status == "ill-conditioned"
    assert "condition number" in reported.message


@pytest.mark.parametrize("excess", [1e-2, 1e-3, 1e-4, 1e-6, 1e-7, 1e-9, 1e-11])
def test_exponents_near_one_are_certified(excess):
    phi, y = features("quadratic", 40, 80), labels(40)
    near = flattest_interpolator(phi, y, 1 + excess)
    assert near.status == "optimal"
    limit = flattest_interpolator(phi, y, 1)
    # |a|^{1+ε} = |a| (1 + ε ln|a|) and the minimizers converge.
    assert abs(near.value / limit.value - 1) <= 10 * excess


def test_p_2_is_the_pseudoinverse():
    phi, y = features("relu", 20, 50), labels(20)
    assert flattest_interpolator(phi, y, 2).a == pytest.approx(np.linalg.pinv(phi) @ y, abs=1e-12)


def test_inconsistent_labels_are_infeasible_with_a_farkas_vector():
    phi, y = features("relu", 30, 60), labels(30)
    phi[7] = phi[3] - 2 * phi[5]
    found = flattest_interpolator(phi, y, 4 / 3)
    assert found.status == "infeasible"
    assert "rank 29 for 30 samples" in found.message
    assert np.abs(found.dual @ phi).max() <= 1e-12
    assert found.dual @ y == pytest.approx(1)


@pytest.mark.parametrize("p", EXPONENTS)
def test_rank_deficient_features_with_consistent_labels_are_solved(p):
    phi, y = features("relu", 30, 60), labels(30)
    phi[7], y[7] = phi[3] - 2 * phi[5], y[3] - 2 * y[5]
    found = flattest_interpolator(phi, y, p)
    assert found.status == "optimal"
    rows = np.delete(np.arange(30), 7)
    assert found.value == pytest.approx(flattest_interpolator(phi[rows], y[rows], p).value)


def test_a_sample_given_twice_with_labels_equal_to_rounding_is_no_contradiction():
    phi, y = features("relu", 30, 60), labels(30)
    phi[7], y[7] = phi[3], y[3] * (1 + 1e-15)
    assert flattest_interpolator(phi, y, 4 / 3).status == "optimal"
    y[7] = y[3] * (1 + 1e-6)
    assert flattest_interpolator(phi, y, 4 / 3).status == "infeasible"


def test_batches_equal_single_problems():
    y = np.random.default_rng(5).standard_normal((3, 20))
    stack = np.stack([features("relu", 20, 45, seed) for seed in range(3)])
    omega = np.random.default_rng(6).uniform(1, 2, (3, 45))
    shared = flattest_interpolators(stack[0], y, 4 / 3)
    own = flattest_interpolators(stack, y, 4 / 3, omega)
    for k in range(3):
        assert np.array_equal(shared[k].a, flattest_interpolator(stack[0], y[k], 4 / 3).a)
        single = flattest_interpolator(stack[k], y[k], 4 / 3, omega[k])
        assert np.array_equal(own[k].a, single.a)


def test_zero_labels_need_no_weights():
    found = flattest_interpolator(features("relu", 5, 9), np.zeros(5), 1)
    assert found.status == "optimal"
    assert not found.a.any()


def test_the_linear_program_has_highs_to_fall_back_on():
    Q = np.linalg.qr(features("relu", 30, 60).T)[0].T
    z = labels(30) / np.linalg.norm(labels(30))
    fast, slow = linear_program(Q, z), linear_program(Q, z, limit=1)
    for b, mu, _ in (fast, slow):
        np.testing.assert_allclose(Q @ b, z, atol=1e-10)
        assert np.abs(mu @ Q).max() <= 1 + 1e-9
    assert slow[2] != fast[2]
    assert np.abs(slow[0]).sum() == pytest.approx(np.abs(fast[0]).sum(), rel=1e-10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.ones((5, 4))}, "5 samples exceed 4 neurons"),
        ({"p": 0.9}, "must lie in"),
        ({"p": float("nan")}, "must lie in"),
        ({"p": "two"}, "must lie in"),
        ({"y": np.array([1, 2, np.nan, 0, 1])}, "labels has entries that are not finite"),
        ({"features": np.full((5, 9), np.inf)}, "features has entries that are not finite"),
        ({"features": np.eye(5, 9)}, "column 5 is zero"),
        ({"features": np.ones((4, 9))}, "do not match 5 labels"),
        ({"weights": np.zeros(9)}, "9 positive numbers"),
        ({"weights": np.ones(8)}, "9 positive numbers"),
        ({"y": "abc"}, "must hold real numbers"),
        ({"y": np.zeros((0,))}, "non-empty"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, message):
    arguments = {"features": features("relu", 5, 9), "y": labels(5), "p": 1.5} | change
    with pytest.raises(FlattestError, match=message) as refusal:
        flattest_interpolator(**arguments)
    assert str(refusal.value).count("\n") == 0


TWO_ROWS = np.random.default_rng(0).standard_normal((2, 8))


def rows_met(phi, found, y):
    """Every row reaches its label, whatever its scale."""
    return np.allclose(phi @ found.a, y, rtol=1e-9, atol=0)


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_scale_of_rows_and_of_the_whole_changes_nothing_but_units(p):
    phi, y = features("relu", 30, 60), labels(30)
    omega = np.random.default_rng(2).uniform(0.1, 5, 60)
    plain = flattest_interpolator(phi, y, p, omega)
    powers = np.exp2(np.random.default_rng(3).integers(-600, 300, 30))
    scaled = flattest_interpolator(powers[:, None] * phi, powers * y, p, omega)
    assert scaled.status == plain.status == "optimal"
    np.testing.assert_allclose(scaled.a, plain.a, rtol=1e-12)
    np.testing.assert_allclose(scaled.dual, plain.dual / powers, rtol=1e-12)
    whole = flattest_interpolator(2.0**100 * phi, y, p, omega)
    np.testing.assert_allclose(whole.a * 2.0**100, plain.a, rtol=1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("scale", [1e160, 1e-170])
def test_features_whose_squares_leave_the_range_are_solved_or_refused(scale, p):
    phi, y = scale * np.random.default_rng(1).standard_normal((3, 6)), np.ones(3)
    if p >= 1.9:
        with pytest.raises(FlattestError, match="beyond the range of float64; rescale"):
            flattest_interpolator(phi, y, p)
        return
    found = flattest_interpolator(phi, y, p)
    assert found.status == "optimal"
    assert found.value == pytest.approx(dual_bound(phi, y, p, found.dual), rel=1e-9)
    assert found.value == pytest.approx(np.sum(np.abs(found.a) ** p), rel=1e-10)
    assert rows_met(phi, found, y)


@pytest.mark.parametrize("p", EXPONENTS)
def test_a_row_of_scale_1e_minus_20_is_not_left_out(p):
    """Its label is reached, or the answer is not certified; never is it called infeasible."""
    phi = np.stack([TWO_ROWS[0], TWO_ROWS[0], 1e-20 * TWO_ROWS[1]])
    natural = np.array([1, 1, 1e-20])
    found = flattest_interpolator(phi, natural, p)
    assert found.status == "optimal"
    assert rows_met(phi, found, natural)
    assert flattest_interpolator(phi, [1, 2, 1e-20], p).status == "infeasible"
    for label in (1e-11, 1e-3):
        # Weights of size 1e9 and 1e17 give 1 to ten digits in float64 by luck of rounding alone.
        found = flattest_interpolator(phi, [1, 1, label], p)
        assert found.status == ("optimal" if found.certificate.holds else "ill-conditioned")
        assert rows_met(phi, found, [1, 1, label]) or not found.certificate.holds
        assert phi[2] @ found.a == pytest.approx(label, rel=1e-9)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("first", [1.0, 1e6, 1e11, 1e12])
def test_contradictory_labels_are_noticed_beside_a_label_far_larger(first, p):
    phi = np.stack([TWO_ROWS[0], TWO_ROWS[1], TWO_ROWS[1]])
    found = flattest_interpolator(phi, [first, 1, 2], p)
    assert found.status == ("infeasible" if first == 1 else found.status) != "optimal"
    assert not found.certificate.holds
    assert flattest_interpolator(phi, [first, 1, 1], p).status == "optimal"


def test_labels_that_are_0_to_rounding_do_not_ask_for_relative_accuracy():
    phi, y = features("relu", 30, 60), labels(30)
    y[:4] = 0, 1e-17, -1e-300, 1e-12
    for p in EXPONENTS:
        assert flattest_interpolator(phi, y, p).status == "optimal"


@pytest.mark.parametrize("y", [[1.0, 1, 1], [0.0, 0, 1], [0.0, 1, 0]])
def test_rows_that_weights_make_almost_dependent_are_not_called_infeasible(y):
    """One neuron is so cheap that in float64 it is all there is: the rank is a threshold's word."""
    phi = np.random.default_rng(1).standard_normal((3, 6))
    found = flattest_interpolator(phi, y, 1.5, [1e-200, 1e200, 1, 1, 1, 1])
    assert found.status == "ill-conditioned"
    assert "rank 1 for 3 samples" in found.message


@pytest.mark.parametrize("p", EXPONENTS)
def test_no_certificate_holds_where_the_status_is_not_optimal(p):
    phi, y = with_condition(features("gaussian", 20, 40), 1e8), labels(20)
    found = flattest_interpolator(phi, y, p)
    assert found.status == "ill-conditioned"
    assert not found.certificate.holds
    found = flattest_interpolator(np.stack([TWO_ROWS[0], 1e-20 * TWO_ROWS[1]]), [1, 1], p)
    assert found.status == "ill-conditioned"
    assert not found.certificate.holds


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": 0.5}, "must lie in"),
        ({"y": [1.0, np.nan, 0.0]}, "labels has entries that are not finite"),
        ({"dual": [1.0, np.inf, 0.0]}, "dual variables has entries that are not finite"),
        ({"dual": [1.0, 1.0]}, r"dual \(2,\) must be n numbers"),
        ({"features": np.full((3, 6), np.nan)}, "features has entries that are not finite"),
        ({"weights": np.zeros(6)}, "6 positive numbers"),
    ],
)
def test_a_dual_bound_needs_what_the_program_needs(change, message):
    arguments = {"features": features("relu", 3, 6), "y": labels(3), "p": 1.5, "dual": labels(3)}
    with pytest.raises(FlattestError, match=message):
        dual_bound(**(arguments | change))


@pytest.mark.peer
@pytest.mark.parametrize("p", EXPONENTS)
def test_cvxpy_finds_the_same_value(p):
    pytest.importorskip("cvxpy")
    phi, y = features("relu", 30, 60), labels(30)
    ours, (value, dual) = flattest_interpolator(phi, y, p), clarabel.least_norm(phi, y, p)
    bound = dual_bound(phi, y, p, dual)
    assert value == pytest.approx(ours.value, rel=1e-6)
    assert bound <= ours.value * (1 + 1e-12)
    assert abs(ours.gap) <= max(abs(value / bound - 1), 1e-11)


@pytest.mark.parametrize("p", [1, 4 / 3, 2])
@pytest.mark.parametrize("off", [1e-3, 1e-6, 1e-9])
def test_a_repeated_row_with_another_label_is_infeasible(p, off):
    rng = np.random.default_rng(0)
    for _ in range(5):
        phi, y = rng.normal(size=(8, 20)), rng.normal(size=8)
        phi[5], y[5] = phi[2], y[2] * (1 + off)
        found = flattest_interpolator(phi, y, p)
        assert found.status == "infeasible"
        assert (found.dual @ phi == 0).all()
        assert found.dual @ y == pytest.approx(1, rel=1e-6)
        assert (
            flattest_interpolator(phi, np.where(np.arange(8) == 5, y[2], y), p).status == "optimal"
        )


def test_what_rounding_alone_prevents_is_said_so():
    """The second row asks for a of 1e8, and the first row's terms are then 1e16 times its label."""
    rng, prevented = np.random.default_rng(0), 0
    for _ in range(20):
        phi, y = rng.normal(size=(2, 6)) * np.array([[1e8], [1e-8]]), np.ones(2)
        found = flattest_interpolator(phi, y, 4 / 3)
        if found.status == "optimal":  # By luck, and not on every kind of processor.
            assert rows_met(phi, found, y)
        else:
            assert found.status == "ill-conditioned"
            assert "rounding alone misses them by" in found.message
            prevented += 1
    assert prevented > 0
