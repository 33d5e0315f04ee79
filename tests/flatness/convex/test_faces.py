"""The decision by label-pure faces agrees with the cone program over all cells."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

import flattest as ft
from flattest.flatness.convex.faces import (
    Face,
    dead_direction,
    decide_faces,
    kinks_left,
    pushable,
)
from flattest.lab.challenge import proven_least
from flattest.studies.question1.faces import contradicted, four_neurons
from support import scip


def limit_trace(params, data):
    """Tr ∇²L with units at kinks counted as inactive: that of the networks which approach it."""
    h = data.x @ params["W1"].T
    on = h > 1e-6
    return 2 / data.n * ((h**2 * on).sum() + (data.x**2).sum(axis=1) @ on @ params["W2"] ** 2)


@pytest.mark.parametrize(
    ("d", "n", "seed"), [(3, 6, 0), (3, 8, 1), (4, 9, 0), (4, 12, 3), (4, 14, 5)]
)
def test_it_agrees_with_the_cone_program(d, n, seed):
    data = ft.xor(n=n, d=d, seed=seed)
    decided = decide_faces(ft.MLP(4), data, four_neurons(d))
    assert decided.bound == pytest.approx(ft.lower_bound(ft.MLP(4), data).value)
    if decided.dead is not None:
        assert (data.x @ decided.dead <= 1e-9).all()
        return
    least = ft.flattest_network(ft.MLP(4), data).least
    reached = least <= decided.bound * (1 + 1e-8)
    assert reached == (decided.outcome != "not approached")
    assert decided.outcome != "open"
    assert not decided.above < least * (1 - 1e-8)
    assert not contradicted(decided, data, tries=10, seed=seed)


@pytest.mark.slow
def test_it_agrees_with_the_cone_program_on_many_draws():
    for seed in range(30):
        test_it_agrees_with_the_cone_program(4, 8 + seed % 6, seed + 10)


def test_the_whole_square_has_the_four_neurons_only_and_they_stay_at_their_kinks():
    data = ft.xor(n=4, d=2, seed=0, distinct=True)
    decided = decide_faces(ft.MLP(4), data, four_neurons(2))
    assert decided.outcome == "not approached"
    assert ft.flattest_network(ft.MLP(4), data).least > 4 * np.sqrt(2) * (1 + 1e-3)


def test_a_memorizer_without_bias_is_found_where_points_are_faces_of_their_own():
    """Five points of a regular pentagon: w_i = x_i is positive on two neighbours, but faces of
    single points exist for a triangle."""
    angles = np.arange(3) * 2 * np.pi / 3
    data = ft.Dataset(np.column_stack([np.cos(angles), np.sin(angles)]), [1.0, -1.0, 2.0])
    decided = decide_faces(ft.MLP(3), data, np.zeros((0, 2)))
    assert decided.outcome == "refuted"
    model = ft.MLP(len(decided.params["W2"]))
    f = ft.predict(model, decided.params, data.x, data.x)
    np.testing.assert_allclose(f, data.y, atol=1e-7)
    assert limit_trace(decided.params, data) == pytest.approx(decided.bound, rel=1e-7)
    assert ft.flattest_network(model, data).least == pytest.approx(decided.bound)
    known = decide_faces(ft.MLP(3), data, decided.params["W1"])
    assert known.outcome in ("proven", "refuted")


def test_directions_without_cost_are_found_exactly_where_a_half_space_is_free():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(12, 3))
    assert dead_direction(np.abs(Z)) is not None
    assert dead_direction(np.vstack([Z, -Z])) is None
    assert dead_direction(np.eye(2, 3)) is not None


def test_kinks_are_pushed_exactly_where_they_lie_in_an_open_half_space():
    Z, S = np.array([[1.0, 0], [0, 1], [0, -1]]), np.array([True, False, False])
    assert not pushable(Z, Face(np.array([1.0, 0]), S))
    assert pushable(Z[:2], Face(np.array([1.0, 0]), S[:2]))


def test_kinks_that_cannot_be_pushed_together_are_counted():
    Z = np.array([[1.0, 0], [0, 1], [0, -1]])
    face = Face(np.array([1.0, 0]), np.array([True, False, False]))
    assert len(kinks_left(Z, face)) == 1
    assert len(kinks_left(Z[:2], face._replace(S=face.S[:2]))) == 0


def test_the_attack_contradicts_what_is_not_so():
    """On a triangle every point is a face of its own, and none of them is one of xor's neurons."""
    angles = np.arange(3) * 2 * np.pi / 3
    data = ft.Dataset(np.column_stack([np.cos(angles), np.sin(angles)]), [1.0, -1.0, 1.0])
    decided = decide_faces(ft.MLP(3), data, np.zeros((0, 2)))
    assert not contradicted(decided, data, tries=10, seed=0)
    for wrong in ("proven", "not approached"):
        assert contradicted(replace(decided, outcome=wrong), data, tries=10, seed=0)


def test_labels_0_and_other_activations_are_refused():
    data = ft.Dataset(np.eye(2), [0.0, 1.0])
    with pytest.raises(ft.FlattestError, match="labels other than 0"):
        decide_faces(ft.MLP(2), data, np.eye(2))
    with pytest.raises(ft.FlattestError, match="ReLU"):
        decide_faces(ft.MLP(2, activation="leaky_relu"), ft.Dataset(np.eye(2), [1, 1]), np.eye(2))


def test_a_challenge_is_settled_where_a_draw_is_proven():
    """d = 12, n = 40: seed 3 is proven, on seed 0 the bound is not approached."""
    law, squares = ft.Xor(12), ft.loss("mse")
    found = ft.Challenge(distribution=law, n=40, model=ft.MLP(20)).compute(3)
    assert (found["proven"], found["test_error"]) == (1, 0)
    assert found["sharpness"] == pytest.approx(4 * np.sqrt(12))
    assert proven_least(ft.MLP(20), law.draw(40, 0), squares) is None
    for other in (ft.MLP(20, bias=True), ft.MLP(3), ft.MLP(20, activation="leaky_relu")):
        assert proven_least(other, law.draw(40, 3), squares) is None
    data = law.draw(40, 3)
    assert not contradicted(decide_faces(ft.MLP(4), data, law.neurons()), data, 40, seed=1)


@pytest.mark.peer
@pytest.mark.parametrize("seed", [0, 3])
def test_scip_finds_no_face_either_where_a_draw_of_the_papers_size_is_proven(seed, monkeypatch):
    """What "proven" rests on, that integer programs have no solution, two solvers say."""
    pytest.importorskip("pyscipopt")
    milp, said = scipy.optimize.milp, []

    def both(c, *, constraints, integrality, bounds, options):
        found = milp(
            c, constraints=constraints, integrality=integrality, bounds=bounds, options=options
        )
        if found.status == 2:
            said.append(scip.status(c, constraints, integrality, bounds))
        return found

    monkeypatch.setattr(scipy.optimize, "milp", both)
    decided = decide_faces(ft.MLP(4), ft.xor(n=100, d=30, seed=seed), four_neurons(30))
    assert decided.outcome == "proven"
    assert said == ["infeasible"] * 4  # one for each of the four neurons
