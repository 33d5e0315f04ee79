"""The table of invariances in docs/league.md is what rescaling networks gives."""

import copy

import pytest

import flattest as ft
from flattest.errors import FlattestError
from flattest.studies.league import invariances
from support.places import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")


@pytest.fixture(scope="module")
def found():
    return invariances.found()


def test_the_documents_table_is_what_was_found(found):
    assert invariances.markdown(found) in (ROOT / "docs" / "league.md").read_text()


def test_a_symmetry_keeps_the_function(found):
    for twin, data in (invariances.relu_network(), invariances.linear_network()):
        f = ft.predict(twin.model, twin.network, data.x, data.x)
        for by, params in twin.moved.items():
            factor = 2 if by == "logit scale" else 1
            moved = ft.predict(twin.model, params, data.x, data.x)
            assert moved == pytest.approx(factor * f, rel=1e-9, abs=1e-12), by


def test_an_invariance_that_is_not_clear_is_an_error():
    with pytest.raises(FlattestError, match="not clear"):
        invariances._is_same("trace", 1.0, 1.0001)


@pytest.mark.peer
@pytest.mark.slow
def test_a_convolutional_network_agrees(found):
    """What the table says of units and layers holds for channels of a trained CNN on images."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(6, 3)),
    ).double()
    x, y = torch.randn(24, 1, 8, 8).double(), torch.randint(0, 3, (24,))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    rng = torch.Generator().manual_seed(0)
    units = [torch.rand(k, generator=rng).double() * 3 + 0.3 for k in (4, 6)]
    layers = [torch.full((4,), 1.7).double(), torch.full((6,), 0.4).double()]
    moved = {
        "unit": scaled(module, *units),
        "layer": scaled(module, *layers),
        "logit scale": doubled(module),
    }
    for by, network in moved.items():
        factor = 2 if by == "logit scale" else 1
        assert torch.allclose(network(x), factor * module(x), rtol=1e-9)
    twin = invariances.Twin(None, module, moved)
    table = invariances.table(
        twin,
        lambda network: ft.torch.league(
            network, (x, y), "cross_entropy", settings=invariances.SETTINGS
        ),
    )
    for name, by in table.items():
        assert by == {symmetry: found[name][symmetry] for symmetry in by}, name


def scaled(module, first, second):
    import torch

    network = copy.deepcopy(module)
    one, two, last = network[0], network[3], network[6]
    with torch.no_grad():
        one.weight *= first[:, None, None, None]
        one.bias *= first
        two.weight *= second[:, None, None, None] / first[:, None, None]
        two.bias *= second
        last.weight /= second
    return network


def doubled(module):
    import torch

    network = copy.deepcopy(module)
    with torch.no_grad():
        network[6].weight *= 2
        network[6].bias *= 2
    return network
