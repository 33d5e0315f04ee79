"""Classes and several outputs: the losses, the data, the networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.problem.losses import check_outputs, interpolates, per_sample, wrong

RNG = np.random.default_rng(0)
F, Y = RNG.normal(size=(7, 4)), RNG.integers(0, 4, 7).astype(float)
SMOOTHED = ft.CrossEntropy(4, 0.2)


def by_hand(f, y, smoothing):
    q = np.full(4, smoothing / 4) + (1 - smoothing) * np.eye(4)[int(y)]
    return -q @ np.log(np.exp(f) / np.exp(f).sum())


@pytest.mark.parametrize("loss", [ft.CrossEntropy(), SMOOTHED], ids=["plain", "smoothed"])
def test_the_cross_entropy_is_its_formula_in_numpy_and_in_jax(loss):
    expected = [by_hand(f, y, loss.smoothing) for f, y in zip(F, Y, strict=True)]
    assert loss.value(F, Y) == pytest.approx(expected, rel=1e-12)
    assert np.asarray(loss.value(jnp.asarray(F), jnp.asarray(Y))) == pytest.approx(expected)


@pytest.mark.peer
def test_its_smoothing_is_pytorchs():
    torch = pytest.importorskip("torch")
    f, y = torch.tensor(F), torch.tensor(Y).long()
    expected = torch.nn.functional.cross_entropy(f, y, label_smoothing=0.2, reduction="none")
    assert SMOOTHED.value(F, Y) == pytest.approx(expected.numpy(), rel=1e-12)


def test_no_outputs_have_a_smaller_loss_than_the_targets():
    target = SMOOTHED.target(Y)
    assert SMOOTHED.value(target, Y) == pytest.approx(SMOOTHED.floor(Y))
    slope = jax.grad(lambda f: SMOOTHED.value(f, jnp.asarray(Y)).sum())(jnp.asarray(target))
    assert np.abs(slope).max() < 1e-12
    assert (SMOOTHED.value(target + 0.01 * F, Y) > SMOOTHED.floor(Y)).all()


def test_adding_a_number_to_all_outputs_is_not_seen():
    moved = SMOOTHED.target(Y) + RNG.normal(size=(7, 1))
    assert interpolates(SMOOTHED.seen(moved), SMOOTHED.seen(SMOOTHED.target(Y)))
    other = moved + 1e-6 * F
    assert not interpolates(SMOOTHED.seen(other), SMOOTHED.seen(SMOOTHED.target(Y)))


def test_no_constant_has_a_smaller_loss_than_the_best():
    def mean(constant):
        return SMOOTHED.value(np.broadcast_to(constant, F.shape), Y).mean()

    best = SMOOTHED.constant(Y)
    assert all(mean(best) < mean(best + 0.01 * direction) for direction in F)


def test_a_sample_is_right_where_its_class_alone_has_the_largest_output():
    f = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [np.nan, 0.0]])
    assert wrong(f, np.zeros(4)).tolist() == [False, True, True, True]
    one_hot = np.eye(2)[[0, 0, 0, 0]]
    assert wrong(f, one_hot).tolist() == [False, True, True, True]


def test_squares_are_summed_over_outputs():
    y = RNG.normal(size=F.shape)
    assert per_sample(ft.MSE(), F, y) == pytest.approx(((F - y) ** 2).sum(1))


@pytest.mark.parametrize(
    ("loss", "shape", "y", "sentence"),
    [
        (
            ft.CrossEntropy(),
            (7,),
            Y,
            r"a row per point, shape \(7, number of classes\), not \(7,\)",
        ),
        (ft.CrossEntropy(), (7, 3), Y, "3 outputs, one per class, where the labels go to 3"),
        (ft.CrossEntropy(5), (7, 4), Y, "the loss has 5 classes"),
        (ft.MSE(), (7, 1), Y, r"one output per point, shape \(7,\), not \(7, 1\)"),
        (ft.MSE(), (7, 2), F, r"a row per point, shape \(7, 4\), not \(7, 2\)"),
    ],
)
def test_outputs_that_do_not_suit_the_labels_are_refused(loss, shape, y, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        check_outputs(loss, shape, y)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ft.CrossEntropy(smoothing=0.1), "say how many"),
        (lambda: ft.CrossEntropy(1), "The number of classes must be an integer ≥ 2"),
        (lambda: ft.CrossEntropy(3, 1.0), "smoothing must lie in"),
        (lambda: ft.CrossEntropy().check_labels([-1.0, 1.0]), "a whole number from 0 on"),
        (
            lambda: ft.CrossEntropy(3).check_labels([0, 3]),
            "There is a label 3; 3 classes are 0 … 2",
        ),
        (lambda: ft.DeepMLP(()), "at least one hidden layer"),
        (lambda: ft.DeepMLP((4, 0)), "A hidden layer's width must be a positive integer"),
        (
            lambda: ft.Dataset(F, Y, test_x=F, test_y=np.ones((7, 2))),
            "The held-out labels have shape",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        make()


def test_a_deep_network_has_a_bias_in_every_layer():
    model = ft.DeepMLP((5, 3), outputs=2, activation="tanh")
    params = model.init(4, seed=1)
    assert {name: np.shape(p) for name, p in params.items()} == model.shapes(4)
    hidden = np.tanh(np.tanh(F @ params["W1"].T + params["b1"]) @ params["W2"].T + params["b2"])
    expected = hidden @ params["W3"].T + params["b3"]
    assert ft.predict(model, params, F, F) == pytest.approx(expected, rel=1e-12)
    assert all(np.abs(params[f"b{layer}"]).max() > 0 for layer in (1, 2, 3))
    one = ft.DeepMLP((5,))
    assert ft.predict(one, one.init(4, 0), F, F).shape == (7,)
