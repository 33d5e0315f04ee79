"""Sharpness against tools nobody here wrote, on the PyTorch twin of each plain network."""

import numpy as np
import pytest

import flattest as ft
from flattest.curvature.sharpness import operator_of
from support import cases

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]
torch = pytest.importorskip("torch", exc_type=ImportError)
from support.twins import ACTIVATIONS, PLAIN, twin  # noqa: E402


def case(architecture, activation):
    model, data = ft.MLP(width=6, activation=activation, **PLAIN[architecture]), cases.data()
    params = cases.params(model, data)
    x, y = torch.tensor(data.x), torch.tensor(data.y)[:, None]
    return model, data, params, twin(model, params), x, y


def flat(tensors) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(t)) for t in tensors])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("architecture", PLAIN)
def test_torch_func_agrees_on_trace_and_top_eigenvalue(architecture, activation):
    model, data, params, network, x, y = case(architecture, activation)
    theta = dict(network.named_parameters())
    sizes = [p.numel() for p in theta.values()]
    shapes = [p.shape for p in theta.values()]

    def value(v):
        tree = {
            k: part.reshape(s)
            for k, part, s in zip(theta, torch.split(v, sizes), shapes, strict=True)
        }
        return torch.mean((torch.func.functional_call(network, tree, (x,)) - y) ** 2)

    start = torch.cat([p.detach().reshape(-1) for p in theta.values()])
    dense = torch.func.hessian(value)(start).numpy()
    trace, top = ft.trace(model, params, data), ft.top_eigenvalue(model, params, data)
    assert trace.value == pytest.approx(np.trace(dense), rel=1e-10)
    assert top.value == pytest.approx(np.linalg.eigvalsh(dense)[-1], rel=1e-9)


@pytest.mark.parametrize("architecture", PLAIN)
def test_backpacks_diagonal_agrees_layer_by_layer(architecture):
    backpack = pytest.importorskip("backpack", exc_type=ImportError)
    from backpack.extensions import DiagHessian

    model, data, params, network, x, y = case(architecture, "relu")
    network, mse = backpack.extend(network), backpack.extend(torch.nn.MSELoss())
    with backpack.backpack(DiagHessian()):
        mse(network(x), y).backward()
    diagonals = [p.diag_h.sum().item() for p in network.parameters()]
    names = list(model.shapes(data.d))
    found = ft.trace(model, params, data).per_layer
    assert [found[name] for name in names] == pytest.approx(diagonals, rel=1e-10)


@pytest.mark.parametrize("activation", ["relu", "softplus"])
@pytest.mark.parametrize("architecture", PLAIN)
def test_curvlinops_agrees_on_products(architecture, activation):
    curvlinops = pytest.importorskip("curvlinops", exc_type=ImportError)
    model, data, params, network, x, y = case(architecture, activation)
    operator = curvlinops.HessianLinearOperator(
        network, torch.nn.MSELoss(), list(network.parameters()), [(x, y)]
    )
    H = operator_of(model, params, data)
    v = np.random.default_rng(0).normal(size=H.size)
    names = list(model.shapes(data.d))
    ours, direction = (H.as_params(a) for a in (H.matvec(v), v))
    theirs = operator @ torch.tensor(flat([direction[k] for k in names]))
    assert flat([ours[k] for k in names]) == pytest.approx(theirs.detach().numpy(), rel=1e-9)
