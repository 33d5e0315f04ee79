"""Outputs on the cube by tables are the network's, and only networks they know take them."""

import numpy as np
import pytest

import flattest as ft
from flattest.curvature.diagonal import trace
from flattest.curvature.sharpness import operator_of
from flattest.training.kernels.cube import Cube
from flattest.training.metrics import Metrics, Network, draw_population


def signs(n, d, seed=0):
    return np.random.default_rng(seed).choice([-1.0, 1.0], (n, d))


@pytest.mark.parametrize("d", [22, 24, 30])
@pytest.mark.parametrize("settings", [{}, {"bias": True}, {"bias": True, "output_bias": True}])
def test_tables_give_the_networks_outputs(d, settings):
    x = signs(700, d)
    for activation in ("relu", "leaky_relu:0.1", "leaky_relu:1.5", "linear"):
        model = ft.MLP(width=37, activation=activation, **settings)
        rng = np.random.default_rng(d)
        params = {name: rng.normal(size=shape) for name, shape in model.shapes(d).items()}
        f = np.asarray(model.apply(params, x, x))
        by_tables = Cube.of(x).outputs(params, model.sigma.slopes[0])
        assert np.abs(by_tables - f).max() <= 1e-13 * np.abs(f).max()
        x[0, 3] = -x[0, 3]
        assert np.abs(Cube.of(x).outputs(params, model.sigma.slopes[0]) - f).max() > 1e-3


def test_what_is_not_finite_stays_so():
    x, params = signs(200, 22), {"W1": np.ones((3, 22)), "W2": np.array([1.0, np.nan, 1.0])}
    assert np.isnan(Cube.of(x).outputs(params, 0.0)).all()
    assert not np.isfinite(Cube.of(x).outputs(params | {"W1": np.full((3, 22), 1e308)}, 0.0)).any()


@pytest.mark.parametrize("x", [signs(200, 21), signs(100, 30), 2 * signs(200, 30)])
def test_short_few_or_other_points_have_no_tables(x):
    assert Cube.of(x) is None


@pytest.mark.parametrize(
    "model",
    [
        ft.MLP(8, activation="softplus"),
        ft.MLP(8, depth=3),
        ft.MLP(8, norm="sim_ln"),
        ft.MLP(8, bias=True),
    ],
    ids=["softplus", "depth 3", "Sim-LN", "bias"],
)
def test_a_log_point_has_the_test_loss_of_the_networks_own_outputs(model):
    data = ft.xor(n=20, d=22, seed=0)
    params = model.init(22, 0)
    metrics = Metrics(model, data, ft.MSE(), draw_population(data, 500, 0))
    points = metrics.population
    f = np.asarray(model.apply(params, points.x, data.x))
    found = metrics.at(params, ("test",))
    assert found["test_loss"] == pytest.approx(np.mean((f - points.y) ** 2), rel=1e-12)
    assert found["test_error"] == np.mean(points.y * f <= 0)


@pytest.mark.parametrize("settings", [{}, {"bias": True}, {"bias": True, "output_bias": True}])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu:0.1", "leaky_relu:1.5", "linear"])
@pytest.mark.parametrize("loss", [ft.MSE(), ft.Logistic(0.2)], ids=["mse", "logistic"])
def test_the_log_points_own_kernel_has_the_closed_forms_numbers(settings, activation, loss):
    """n and the width are no multiples of a block; a neuron is off on all samples."""
    model = ft.MLP(203, activation=activation, **settings)
    data = ft.xor(n=91, d=22, seed=0)
    rng = np.random.default_rng(3)
    params = {name: rng.normal(size=shape) for name, shape in model.shapes(22).items()}
    params["W1"][5] = params["W1"][6] = 0
    if model.bias:
        params["b1"][5] = -1
    network = Network(Metrics(model, data, loss, None), params)
    closed = operator_of(model, params, data, loss)
    slow = {
        "train_loss": closed.mean_loss(),
        "gradient_norm": np.linalg.norm(closed.vjp(closed.u)),
        "sharpness": float(trace(closed)),
        "active_neurons": (closed.first_slopes != 0).any(axis=0).sum(),
    }
    assert network.sums is not None
    found = network.metrics.at(params, ("sharpness", "neurons"))
    assert {name: found[name] for name in slow} == pytest.approx(slow, rel=1e-13)
    params["W1"][0, 0] *= 1 + 1e-6
    moved = network.metrics.at(params, ("sharpness", "neurons"))
    assert moved["gradient_norm"] != pytest.approx(slow["gradient_norm"], rel=1e-11)


def test_a_log_point_of_a_network_that_overflows_is_infinitely_sharp():
    model, data = ft.MLP(203, bias=True), ft.xor(n=91, d=22, seed=0)
    params = {name: np.full(shape, 1e160) for name, shape in model.shapes(22).items()}
    assert Metrics(model, data, ft.MSE(), None).at(params, ("sharpness",))["sharpness"] == np.inf
