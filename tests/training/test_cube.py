"""Outputs on the cube by tables are the network's, and only networks they know take them."""

import numpy as np
import pytest

import flattest as ft
from flattest.training.kernels.cube import Cube
from flattest.training.metrics import Metrics, draw_population


def signs(n, d, seed=0):
    return np.random.default_rng(seed).choice([-1.0, 1.0], (n, d))


@pytest.mark.parametrize("d", [22, 24, 30])
@pytest.mark.parametrize("settings", [{}, {"bias": True}, {"bias": True, "output_bias": True}])
def test_tables_give_the_networks_outputs(d, settings):
    x = signs(700, d)
    for activation in ("relu", "leaky_relu:0.1", "linear"):
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
