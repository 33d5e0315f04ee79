"""Training on classes and on several outputs, in the general engine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.flatness.search import bad_interpolator, search_flattest
from flattest.training.order import sample_order

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
CLASSES = ft.Dataset(X[:12], X[:12].argmax(1), test_x=X[12:], test_y=X[12:].argmax(1))
OUTPUTS = ft.Dataset(X[:12], X[:12, :2], test_x=X[12:], test_y=X[12:, :2])
NET = ft.DeepMLP((6, 5), outputs=3, activation="tanh")
SMOOTHED = ft.CrossEntropy(3, 0.1)
FINE = ft.Log(points=1, measures=("training", "test"))


def mean_loss(params, x, y):
    return -jnp.mean(jax.nn.log_softmax(NET.apply(params, x))[jnp.arange(len(y)), y.astype(int)])


def test_steps_on_classes_are_those_one_would_write():
    phase = ft.sam(0.1, 0.05, batch=4, epochs=3)
    run = ft.train(NET, CLASSES, phase, loss="cross_entropy", dtype="float64", log=FINE)
    params = {name: jnp.asarray(p) for name, p in NET.init(3, 0).items()}
    gradient = jax.jit(jax.grad(mean_loss))
    for epoch in range(3):
        for at in sample_order(0, epoch, 1, 12, False)[0].reshape(3, 4):
            g = gradient(params, CLASSES.x[at], CLASSES.y[at])
            norm = jnp.sqrt(sum((u**2).sum() for u in g.values()))
            above = {name: p + 0.05 * g[name] / norm for name, p in params.items()}
            g = gradient(above, CLASSES.x[at], CLASSES.y[at])
            params = {name: p - 0.1 * g[name] for name, p in params.items()}
    for name, p in params.items():
        assert np.abs(run.params[name] - p).max() <= 1e-10 * np.abs(p).max()
    f = np.asarray(NET.apply(params, CLASSES.distribution.rows.test_x))
    expected = np.mean(np.argmax(f, 1) != CLASSES.distribution.rows.test_y)
    assert run["test_error"][-1] == expected


@pytest.mark.slow
def test_the_logged_sharpness_of_classes_is_that_of_the_dense_hessian():
    run = ft.train(NET, CLASSES, ft.gd(0.1, epochs=1), loss="cross_entropy", dtype="float64")
    params = {name: jnp.asarray(p) for name, p in run.params.items()}
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    dense = jax.hessian(lambda t: mean_loss(unravel(t), CLASSES.x, CLASSES.y))(flat)
    assert run["sharpness"][-1] == pytest.approx(float(jnp.trace(dense)), rel=1e-9)


def test_several_outputs_are_trained_by_the_sum_of_their_squares():
    net = ft.DeepMLP((6,), outputs=2)
    run = ft.train(net, OUTPUTS, ft.gd(0.1, epochs=300), dtype="float64", log=FINE)
    f = ft.predict(net, run.params, OUTPUTS.x, OUTPUTS.x)
    assert run["train_loss"][-1] == pytest.approx(((f - OUTPUTS.y) ** 2).sum(1).mean())
    assert run["train_loss"][-1] < 0.1 * run["train_loss"][0]


@pytest.mark.parametrize(
    ("data", "net", "loss"),
    [(CLASSES, NET, SMOOTHED), (OUTPUTS, ft.DeepMLP((30,), 2, "tanh"), ft.MSE())],
    ids=["classes", "outputs"],
)
@pytest.mark.slow
def test_the_search_descends_the_trace_along_the_interpolators(data, net, loss):
    start = bad_interpolator(net, data, 4, seed=0, loss=loss)
    found = search_flattest(net, data, start, loss, steps=20)
    assert found.end.sharpness < found.start.sharpness
    assert found.end.interpolation_error < 1e-10
    assert found.end.sharpness == pytest.approx(float(ft.trace(net, found.params, data, loss)))


@pytest.mark.parametrize(
    ("data", "net", "loss", "phase", "sentence"),
    [
        (CLASSES, ft.MLP(4), "cross_entropy", ft.gd(0.1, epochs=1), "must give a row per point"),
        (OUTPUTS, ft.MLP(4), "mse", ft.gd(0.1, epochs=1), "must give a row per point"),
        (OUTPUTS, NET, "cross_entropy", ft.gd(0.1, epochs=1), "one class per sample"),
        (
            CLASSES,
            NET,
            "cross_entropy",
            ft.label_noise_sgd(0.1, 0.1, epochs=1),
            "squared losses and one output only",
        ),
    ],
)
def test_labels_that_do_not_suit_are_refused_in_one_sentence(data, net, loss, phase, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        ft.train(net, data, phase, loss=loss)


def test_without_smoothing_there_is_no_flattest_minimizer():
    with pytest.raises(ft.FlattestError, match="has no minimizer, and so no flattest one"):
        search_flattest(NET, CLASSES, 0, "cross_entropy")
