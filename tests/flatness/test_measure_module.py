"""Measuring PyTorch modules: exact, and without harm to the module."""

import copy
import json
import sys

import numpy as np
import pytest

import flattest as ft
from flattest.curvature.diagonal import trace
from flattest.errors import FlattestError
from flattest.flatness.assemble import assemble
from support import cases
from support.modules import (
    MARKS as pytestmark,  # noqa: F401
    NETWORKS,
    F,
    Residual,
    assert_unharmed,
    case,
    dense_hessian,
    image_case,
    mlp,
    nn,
    one_thread,  # noqa: F401
    state,
    torch,
    vector_case,
)

from flattest.curvature.modules import module_operator  # isort: skip
from support.twins import PLAIN, twin  # isort: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_trace_and_top_eigenvalue_are_those_of_the_dense_hessian(name):
    module, x, y, loss = case(name)
    found, H = ft.torch.measure(module, (x, y), loss), dense_hessian(module, x, y, loss)
    assert found.method.startswith("exact: Gauss–Newton")
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)
    assert found.residual < 1e-3
    sizes = np.cumsum([p.numel() for p in module.parameters()])[:-1]
    blocks = [part.sum() for part in np.split(np.diagonal(H), sizes)]
    assert [layer.trace for layer in found.layers.values()] == pytest.approx(blocks, rel=1e-9)


@pytest.mark.parametrize("loss", ["mse", "half_mse", "logistic"])
@pytest.mark.parametrize("architecture", PLAIN)
def test_twins_of_plain_networks_measure_alike(architecture, loss):
    model, data = ft.MLP(width=6, **PLAIN[architecture]), cases.data()
    params = cases.params(model, data)
    found = ft.torch.trace(twin(model, params), data, loss)
    expected = ft.trace(model, params, data, loss)
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    if model.depth == 2:
        least = ft.torch.measure(twin(model, params), data, loss).least
        closed = ft.flattest_rescaling(model, params, data, loss)
        assert least == pytest.approx(closed.value, rel=1e-9)


def plain_twin(architecture):
    model = ft.MLP(width=6, **PLAIN[architecture])
    return twin(model, cases.params(model, cases.data()))


A_HUNDRED = {
    **{
        name: lambda name=name: (*vector_case(plain_twin(name), n=100), nn.MSELoss())
        for name in PLAIN
    },
    "4-layer": lambda: (*vector_case(mlp(4, 6, 6, 5, 1), n=100), nn.MSELoss()),
    "residual": lambda: (*vector_case(Residual(), 2, n=100), nn.MSELoss()),
    "convolutional": lambda: (*image_case(100), nn.CrossEntropyLoss()),
}


@pytest.mark.parametrize("name", A_HUNDRED)
def test_batches_of_96_and_4_give_what_one_batch_gives_and_the_dense_hessian(name):
    module, x, y, loss = case(name, A_HUNDRED)
    exact = np.trace(dense_hessian(module, x, y, loss))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=96)
    assert [len(rows) for rows, _ in loader] == [96, 4]
    assert ft.torch.trace(module, (x, y), loss).value == pytest.approx(exact, rel=1e-9)
    assert ft.torch.trace(module, loader, loss).value == pytest.approx(exact, rel=1e-9)
    mean_of_batches = np.mean([ft.torch.trace(module, b, loss).value for b in loader])
    assert mean_of_batches != pytest.approx(exact, rel=1e-6)


def test_chunks_change_nothing():
    module, x, y, loss = case("convolutional")
    whole = ft.torch.trace(module, (x, y), loss)
    op = module_operator(module, (x, y), loss)
    op.most_values = op.most_gradient_entries = 1
    assert trace(op).value == pytest.approx(whole.value, rel=1e-12)


def test_backpack_agrees_layer_by_layer():
    backpack = pytest.importorskip("backpack", exc_type=ImportError)
    from backpack.extensions import DiagGGNExact

    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 3)).double()
    x, y = torch.randn(6, 1, 5, 5).double(), torch.randint(0, 3, (6,))
    found = ft.torch.trace(network, (x, y), "cross_entropy").per_layer
    twin, loss = backpack.extend(copy.deepcopy(network)), backpack.extend(nn.CrossEntropyLoss())
    with backpack.backpack(DiagGGNExact()):
        loss(twin(x), y).backward()
    theirs = [p.diag_ggn_exact.sum().item() for p in twin.parameters()]
    assert list(found.values()) == pytest.approx(theirs, rel=1e-9)


def test_curvlinops_agrees_on_products():
    curvlinops = pytest.importorskip("curvlinops", exc_type=ImportError)
    module, x, y, loss = case("residual")
    operator = curvlinops.HessianLinearOperator(module, loss, list(module.parameters()), [(x, y)])
    p = module_operator(module, (x, y), loss)
    v = np.random.default_rng(0).normal(size=p.size)
    theirs = (operator @ torch.tensor(v)).detach().numpy()
    assert p.matvec(v) == pytest.approx(theirs, rel=1e-9)


def test_a_large_network_off_the_exact_route_is_estimated_with_its_error():
    torch.manual_seed(0)
    module, x, y = vector_case(mlp(4, 5, 1, activation=nn.Tanh).double())
    x, y = x.double(), y.double()
    op = module_operator(module, (x, y), nn.MSELoss())
    found = assemble(op, 0, 1e-8, most_columns=0, rtol=0.02)
    truth = np.trace(dense_hessian(module, x, y, nn.MSELoss()))
    assert 0 < found.stderr <= 0.02 * abs(found.trace)
    assert abs(found.trace - truth) < 4 * found.stderr
    assert any("only estimated" in note for note in found.notes)


def test_a_dead_module_is_measured_and_has_no_eigenvalues():
    module, x, y = vector_case(mlp(4, 3, 1))
    with torch.no_grad():
        module[0].bias[:] = -100
    dead = nn.Sequential(*module[:2], nn.Linear(3, 1, bias=False))
    found = ft.torch.measure(dead, (x, y))
    assert (found.trace, found.top_eigenvalue) == (0, 0)
    with pytest.raises(FlattestError, match="network is dead"):
        ft.torch.top_eigenvalue(dead, (x, y))


@pytest.mark.parametrize("name", ["4-layer", "convolutional"])
def test_a_single_precision_module_is_measured_in_double_precision(name):
    module, x, y, loss = case(name)
    module, x, y = module.float(), x.float(), y.float() if y.is_floating_point() else y
    found = ft.torch.trace(module, (x, y), loss).value
    twin, x = copy.deepcopy(module).double(), x.double()
    y = y.double() if y.is_floating_point() else y
    assert found == pytest.approx(np.trace(dense_hessian(twin, x, y, loss)), rel=1e-9)
    kept = [*module.parameters(), *module.buffers()]
    assert {t.dtype for t in kept if t.is_floating_point()} == {torch.float32}


def test_the_result_prints_as_a_table_and_is_json():
    module, x, y, loss = case("residual")
    found = ft.torch.measure(module, (x, y), loss)
    data = json.loads(found.json())
    assert data["trace"] == found.trace
    assert data["ratio"] == pytest.approx(found.trace / found.least)
    assert data["layers"]["up.weight"]["least"] == found.layers["up.weight"].least
    text = str(found)
    for word in ("trace", "least over rescalings", "top eigenvalue", "up.weight", "Gauss–Newton"):
        assert word in text


def test_the_module_stays_as_it_was():
    module, x, y, loss = case("convolutional")
    loss(module(x), y).backward()
    before = state(module)
    ft.torch.measure(module, (x, y), loss)
    assert_unharmed(module, before)
    assert not x.requires_grad


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x))


class BatchDependent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Overwritten(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = torch.relu(self.one(x))
        f = self.two(h)
        h += 1
        return f


class Shifting(nn.Module):
    """Works on the caller's data."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        x -= 1
        return self.layer(x)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.spare = nn.Linear(4, 1), nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


def with_hook():
    module = mlp(4, 3, 1)
    module[1].register_forward_hook(lambda layer, args, output: output.mul_(2))
    return module


def with_nan():
    module = mlp(4, 3, 1)
    module[0].bias.data[0] = np.nan
    return module


BAD_MODULES = {
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Linear(3, 1)), "drops"),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)),
        r"each batch in training mode; call module.eval\(\)",
    ),
    "unused": (Unused, "do not depend on spare.weight, spare.bias"),
    "hook": (with_hook, "Layer 1 has hooks"),
    "noisy": (Noisy, "other outputs each time"),
    "batch": (BatchDependent, "depends on the rest of its batch"),
    "shifting": (Shifting, "changes its inputs in place"),
    "overwritten": (Overwritten, "cannot be differentiated"),
    "nan": (with_nan, "0.bias has entries that are not finite"),
    "no parameters": (nn.ReLU, "no parameters"),
    "no module": (lambda: F.relu, "torch.nn.Module is measured, not"),
    "wrong inputs": (lambda: mlp(5, 3, 1), "fails on these inputs"),
}


@pytest.mark.parametrize("name", BAD_MODULES)
def test_a_module_that_cannot_be_measured_is_refused_in_one_sentence(name):
    build, sentence = BAD_MODULES[name]
    torch.manual_seed(0)
    module, x, y = vector_case(build())
    before = state(module) if isinstance(module, nn.Module) and name != "nan" else None
    x = x.double()  # float64, which need not be copied: not even the data may be harmed.
    given = x.clone()
    with pytest.raises(FlattestError, match=sentence) as raised:
        ft.torch.measure(module, (x, y), nn.MSELoss())
    assert "\n" not in str(raised.value).strip()
    assert torch.equal(x, given)
    if before:
        assert_unharmed(module, before)


X, Y = np.arange(12.0).reshape(3, 4), np.zeros((3, 1))


BAD_DATA = {
    "integers": ((X.astype(int), Y), "mse", "torch.int64; give them as floating point"),
    "empty loader": ([], "mse", "data are empty"),
    "no rows": ((X[:0], Y[:0]), "mse", "data are empty"),
    "rows": ((X, Y[:2]), "mse", "as many rows"),
    "not a loader": (3, "mse", "pair of arrays.*or a loader"),
    "not pairs": ([X], "mse", "Every batch must be a pair"),
    "nan inputs": ((X * np.nan, Y), "mse", "NaN or infinite"),
    "nan loss": ((X, Y * np.nan), nn.MSELoss(), "not a finite number"),
    "shapes": ((X, X[:, 0]), lambda f, y: ((f - y) ** 2).mean(), "mean of its samples"),
    "none": ((X, Y + 1), nn.MSELoss(reduction="none"), "reduction='mean'"),
    "more targets": ((X, np.zeros((3, 2))), "mse", "do not match"),
    "loss name": ((X, Y), "hinge", "cross_entropy"),
    "no loss": ((X, Y), 3, "function of outputs and targets"),
    "failing loss": ((X, Y), lambda f, y: f @ f, "loss fails"),
    "all ignored": ((X, np.full(3, -100)), "cross_entropy", "counts no sample"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_data_that_cannot_be_used_are_refused_in_one_sentence(name):
    data, loss, sentence = BAD_DATA[name]
    module = mlp(4, 3, 1)
    before = state(module)
    with pytest.raises(FlattestError, match=sentence):
        ft.torch.measure(module, data, loss)
    assert_unharmed(module, before)


def test_without_torch_the_sentence_names_the_extra(monkeypatch):
    for name in [
        n for n in sys.modules if n == "flattest.torch" or n.startswith("flattest.torch.")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(ft, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(FlattestError, match=r"flattest\[torch\]"):
        ft.torch  # noqa: B018


def test_without_a_tolerance_the_top_eigenvalue_is_left_out():
    module, x, y, loss = case("residual")
    whole, least = (ft.torch.measure(module, (x, y), loss, tol=tol) for tol in (1e-8, None))
    assert least.top_eigenvalue is None
    assert (least.trace, least.least) == (whole.trace, whole.least)
    assert "top eigenvalue" in str(whole)
    assert "top eigenvalue" not in str(least)
