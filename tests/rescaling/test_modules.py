"""The units of PyTorch modules: which may be rescaled, and which rule each layer has."""

import copy

import numpy as np
import pytest

import flattest as ft
from flattest.errors import FlattestError
from support.modules import (
    MARKS as pytestmark,  # noqa: F401
    NETWORKS,
    F,
    case,
    dense_hessian,
    mlp,
    nn,
    one_thread,  # noqa: F401
    torch,
    vector_case,
)

from flattest.curvature.modules import module_operator  # isort: skip
from flattest.rescaling import module_rules as rules  # isort: skip


def randomly_rescaled(module, factors_of, seed):
    """An equivalent module: every unit scaled at random, by way of the structure found."""
    rng = np.random.default_rng(seed)
    component = factors_of.components()
    beta = np.exp(rng.normal(size=component.max() + 1))
    beta[0] = 1
    other = copy.deepcopy(module)
    with torch.no_grad():
        for name, p in other.named_parameters():
            ends = factors_of.ends[name]
            p *= torch.tensor(beta[component[ends.target]] / beta[component[ends.source]])
    return other


@pytest.mark.parametrize("name", NETWORKS)
def test_the_rescaled_module_is_the_same_function_at_the_least_trace(name):
    module, x, y, loss = case(name)
    found = ft.torch.measure(module, (x, y), loss)
    assert found.least <= found.trace
    assert found.least / found.least_lower_bound - 1 < 1e-9
    assert torch.allclose(found.rescaled(x), module(x), rtol=0, atol=1e-10)
    reached = np.trace(dense_hessian(found.rescaled, x, y, loss))
    assert reached == pytest.approx(found.least, rel=1e-9)
    assert sum(layer.least for layer in found.layers.values()) == pytest.approx(found.least)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_random_rescaling_changes_the_least_trace(name):
    module, x, y, loss = case(name)
    other = randomly_rescaled(module, module_operator(module, (x, y), loss).structure.units, seed=1)
    assert torch.allclose(other(x), module(x), rtol=0, atol=1e-10)
    one, two = (ft.torch.measure(m, (x, y), loss) for m in (module, other))
    assert two.trace != pytest.approx(one.trace, rel=0.01)
    assert two.least == pytest.approx(one.least, rel=1e-8)


@pytest.mark.parametrize("factor", [1e-10, 1e10])
def test_no_large_rescaling_drowns_the_least_trace_in_rounding_errors(factor):
    module, x, y, loss = case("4-layer")
    other = copy.deepcopy(module)
    with torch.no_grad():
        for p in other[0].parameters():
            p *= factor
        other[2].weight /= factor
    one, two = (ft.torch.measure(m, (x, y), loss) for m in (module, other))
    assert two.trace > 1e15 * one.trace
    assert two.least == pytest.approx(one.least, rel=1e-9)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 1)

    def forward(self, x):
        h = torch.relu(self.shared(torch.relu(self.first(x))))
        return self.last(torch.relu(self.shared(h)))


class Branching(nn.Module):
    """What it computes depends on the sample."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x):
        h = self.layer(x)
        return self.last(torch.relu(h) if x.sum() > 0 else torch.tanh(h))


class Gated(nn.Module):
    """A product of two values that depend on one weight: not affine in it."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 1)

    def forward(self, x):
        h = torch.relu(self.one(x))
        return (self.two(h) * self.three(h)).sum(1, keepdim=True)


class Detached(nn.Module):
    """A dependence on weights that autograd does not see."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x):
        h = torch.relu(self.one(x))
        return self.two(h + h.detach().amax(1, keepdim=True))


class Shared(nn.Module):
    """Two layers that hold one matrix."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.last = (nn.Linear(4, 4, bias=False) for _ in range(3))
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.last(torch.relu(self.two(torch.relu(self.one(x))))).sum(1, keepdim=True)


GENERAL = {
    "tied": (Tied, "shared.weight is used more than once"),
    "shared": (Shared, "one.weight is used more than once"),
    "gated": (Gated, "multiplies two of its values"),
    "smooth": (lambda: mlp(4, 5, 1, activation=nn.Tanh), "tanh is not piecewise linear"),
    "normalized": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 1)),
        "layer_norm is not piecewise linear",
    ),
}


@pytest.mark.parametrize("name", GENERAL)
def test_other_networks_take_the_general_route(name):
    build, reason = GENERAL[name]
    torch.manual_seed(0)
    module, x, y = vector_case(build().double())
    x, y = x.double(), y.double()
    found = ft.torch.measure(module, (x, y), nn.MSELoss())
    H = dense_hessian(module, x, y, nn.MSELoss())
    assert reason in found.method
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)


def test_the_gauss_newton_trace_would_be_wrong_for_a_tied_weight():
    torch.manual_seed(0)
    module, x, y = vector_case(Tied().double())
    H = dense_hessian(module, x.double(), y.double(), nn.MSELoss())
    J = torch.autograd.functional.jacobian(
        lambda *p: torch.func.functional_call(
            module, dict(zip(dict(module.named_parameters()), p, strict=True)), (x.double(),)
        )[:, 0],
        tuple(module.parameters()),
    )
    gauss_newton = 2 * sum(float((j**2).sum()) for j in J) / len(x)
    assert abs(gauss_newton / np.trace(H) - 1) > 1e-3


def test_units_behind_a_normalization_have_no_least_trace():
    torch.manual_seed(0)
    build, _ = GENERAL["normalized"]
    module, x, y = vector_case(build().double())
    found = ft.torch.measure(module, (x.double(), y.double()))
    assert found.least is None
    assert any("scale-invariant" in note and "degenerate" in note for note in found.notes)


def test_behind_a_normalization_the_gauss_newton_trace_has_a_least_at_the_scale_it_has():
    """The units of the LayerNorm's own weights, which ReLU keeps."""
    torch.manual_seed(0)
    build, _ = GENERAL["normalized"]
    module, x, y = vector_case(build().double())
    nn.init.normal_(module[1].weight)
    found = ft.torch.measure(module, (x.double(), y.double()))
    assert found.least_gauss_newton < found.gauss_newton
    assert found.least_gauss_newton / found.least_gauss_newton_lower_bound - 1 < 1e-9
    assert torch.allclose(found.rescaled(x.double()), module(x.double()), rtol=0, atol=1e-10)
    assert torch.equal(found.rescaled[0].weight, module[0].weight)
    assert "over 5 units and 0 bases" in found.notes[-1]


def test_rescalings_that_change_the_outputs_are_not_reported(monkeypatch):
    """An operation whose rule in the table is wrong: tanh is not homogeneous."""
    monkeypatch.setitem(rules.RULES, "tanh", rules.RULES["relu"])
    torch.manual_seed(0)
    module, x, y = vector_case(mlp(4, 5, 1, activation=nn.Tanh).double())
    found = ft.torch.measure(module, (x.double(), y.double()))
    assert found.least is None
    assert found.rescaled is None
    assert any("change its outputs" in note for note in found.notes)


def test_a_module_that_branches_by_its_samples_is_walked_for_all_of_them():
    """The first sample alone would call it piecewise linear."""
    torch.manual_seed(0)
    module, x, y = vector_case(Branching().double())
    x, y = x.double(), y.double()
    x[0], y[0] = x[0].abs(), 1
    data = [(x[:1], y[:1]), (-x[:1], y[:1])]
    found = ft.torch.measure(module, data, nn.MSELoss())
    parts = [np.trace(dense_hessian(module, *pair, nn.MSELoss())) for pair in data]
    assert "another branch" in found.method
    assert found.trace == pytest.approx(np.mean(parts), rel=1e-9)
    alone = ft.torch.measure(module, data[:1], nn.MSELoss())
    assert alone.method.startswith("exact: Gauss–Newton")
    assert alone.trace == pytest.approx(parts[0], rel=1e-9)


def test_what_autograd_does_not_see_is_refused():
    torch.manual_seed(0)
    module, x, y = vector_case(Detached())
    with pytest.raises(FlattestError, match="derivatives of this module are wrong"):
        ft.torch.measure(module, (x, y))


class Direct(nn.Module):
    """Parameters that no layer holds: a gain for each unit, a slice of a weight, work in place."""

    def __init__(self):
        super().__init__()
        self.layer, self.gain = nn.Linear(4, 5), nn.Parameter(torch.randn(5))
        self.both = nn.Parameter(torch.randn(7, 5))

    def forward(self, x):
        h = torch.relu(self.layer(x)) * self.gain
        h[:, :2] += 1
        h = F.linear(h, self.both[:5]).relu_()
        return F.linear(h, self.both[5:]).sum(1, keepdim=True)


def test_parameters_outside_of_layers_are_followed():
    torch.manual_seed(0)
    module, x, y = vector_case(Direct().double())
    x, y = x.double(), y.double()
    found = ft.torch.measure(module, (x, y), nn.MSELoss())
    H = dense_hessian(module, x, y, nn.MSELoss())
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    # Both halves of `both` depend on each other: f is not affine in all of it by name.
    assert "both is used more than once" in found.method


def test_dead_units_make_the_least_trace_an_infimum():
    module = mlp(4, 2, 1)
    with torch.no_grad():
        module[2].weight[0, 0] = 0
        module[0].bias[:] = 5
    found = ft.torch.measure(module, (torch.randn(9, 4) / 4, torch.zeros(9, 1)))
    assert any("approached, not attained" in note for note in found.notes)
