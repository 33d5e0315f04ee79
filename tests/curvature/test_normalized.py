"""Sim-BN and Sim-LN in closed form, where the first layer is huge, tiny or redundant."""

import numpy as np
import pytest

import flattest as ft
from support import cases


def scaled(architecture, scale):
    """The trace by parameter with the first layer multiplied by `scale`."""
    model, data = cases.model(architecture), cases.data()
    params = cases.params(model, data)
    first = {name: params[name] * scale for name in ("W1", "b1")}
    return ft.trace(model, params | first, data).per_layer


@pytest.mark.parametrize(
    ("architecture", "scale"),
    [("sim_bn", s) for s in (1e-150, 1e-3, 1e3, 1e150, 1e200, 1e300)]
    + [("sim_ln", s) for s in (1e-3, 1e3, 1e150, 1e200, 1e300)],
)
def test_the_first_layers_scale_divides_its_own_part_only(architecture, scale):
    """u = r/ν does not change, ∂u/∂W1 is divided by the scale: so is the trace, by its square."""
    before, after = scaled(architecture, 1.0), scaled(architecture, scale)
    for name, value in before.items():
        factor = 1 / scale / scale if name in ("W1", "b1") else 1.0
        # Products with denormal numbers have few digits, and the part is 1e-300 of the rest.
        assert after[name] == pytest.approx(value * factor, rel=1e-12, abs=1e-299)


def test_a_neuron_whose_square_underflows_is_not_a_dead_one():
    tiny, plain = scaled("sim_bn", 1e-170), scaled("sim_bn", 1.0)
    assert [tiny[name] for name in ("gamma", "W2")] == pytest.approx(
        [plain[name] for name in ("gamma", "W2")], rel=1e-12
    )
    assert np.isinf([tiny["W1"], tiny["b1"]]).all()


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1.0])
def test_a_single_point_leaves_nothing_to_the_first_layer(size):
    """With one training point u is 1 where r > 0, whatever W1 is: Tr = 2 Σ_active (γ² + W2²)."""
    rng = np.random.default_rng(0)
    model, data = ft.MLP(width=5, norm="sim_bn"), ft.Dataset(rng.normal(size=(1, 4)), [1.0])
    params = {k: rng.normal(size=s) for k, s in model.shapes(4).items()}
    params["W1"] = params["W1"] * size
    active = (data.x @ params["W1"].T)[0] > 0
    expected = 2 * (params["gamma"] ** 2 + params["W2"] ** 2)[active].sum()
    assert ft.trace(model, params, data).value == pytest.approx(expected, rel=1e-14)


def test_neurons_that_see_one_point_each_cost_nothing_in_the_first_layer():
    """r/s is √n at the one point that a memorizing neuron sees, however small r is."""
    n, d = 6, 8
    x = np.random.default_rng(1).choice([-1.0, 1.0], (n, d))
    model, data = ft.MLP(width=n, bias=True, norm="sim_bn"), ft.Dataset(x, np.ones(n))
    params = {"W1": 1e-7 * x, "b1": np.full(n, 1e-7 * (1.0 - d)), "gamma": np.ones(n)}
    parts = ft.trace(model, params | {"W2": np.arange(1.0, n + 1)}, data).per_layer
    assert [parts["W1"], parts["b1"]] == pytest.approx([0, 0], abs=1e-14)
