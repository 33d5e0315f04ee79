"""The Gauss–Newton diagonal of modules and its trace, against gradients taken one by one."""

import pytest

import flattest as ft
from support.modules import MARKS, F, nn, one_thread, torch  # noqa: F401

pytest.importorskip("torch", exc_type=ImportError)
from flattest.curvature.module_losses import sample_loss  # noqa: E402
from flattest.curvature.modules import module_operator  # noqa: E402

pytestmark = MARKS


class Turned(nn.Module):
    """Its layers see (positions, samples, …): positions stand where samples usually do."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        h = torch.relu(self.first(x.transpose(0, 1)))
        return self.last(h).transpose(0, 1).flatten(1)


class Alone(nn.Module):
    """A parameter that no layer holds."""

    def __init__(self):
        super().__init__()
        self.first, self.shift = nn.Linear(3, 4), nn.Parameter(torch.randn(4))

    def forward(self, x):
        return self.first(x) + self.shift


def flat(*layers):
    return nn.Sequential(*layers, nn.Flatten())


def normed(width, norm):
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm


CASES = {
    "linear": lambda: (flat(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4)), (4, 3)),
    "few tokens, wide": lambda: (flat(nn.Linear(30, 20)), (4, 2, 30)),
    "many tokens": lambda: (flat(nn.Linear(3, 2, bias=False)), (4, 7, 2, 3)),
    "few pixels": lambda: (flat(nn.Conv2d(5, 8, 3, padding=1)), (3, 5, 2, 2)),
    "many pixels": lambda: (flat(nn.Conv2d(2, 3, 3, stride=(2, 1), dilation=(1, 2))), (3, 2, 8, 9)),
    "reflected": lambda: (
        flat(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")),
        (3, 2, 4, 4),
    ),
    "same": lambda: (flat(nn.Conv2d(2, 3, (3, 5), padding="same")), (3, 2, 4, 5)),
    "one axis": lambda: (flat(nn.Conv1d(2, 3, 3, padding=2)), (3, 2, 6)),
    "three axes": lambda: (flat(nn.Conv3d(1, 2, 2, stride=2)), (3, 1, 4, 4, 4)),
    "groups": lambda: (flat(nn.Conv2d(4, 6, 3, groups=2)), (3, 4, 4, 4)),
    "transposed": lambda: (flat(nn.ConvTranspose2d(2, 3, 3)), (3, 2, 3, 3)),
    "batch norm": lambda: (flat(nn.Conv2d(2, 3, 3), normed(3, nn.BatchNorm2d(3))), (3, 2, 4, 4)),
    "batch norm, flat": lambda: (flat(nn.Linear(3, 4), normed(4, nn.BatchNorm1d(4))), (5, 3)),
    "turned, as many positions as samples": lambda: (Turned(), (4, 4, 3)),
    "turned": lambda: (Turned(), (4, 3, 3)),
    "a parameter of its own": lambda: (Alone(), (4, 3)),
}


def made(name):
    torch.manual_seed(0)
    with torch.no_grad():
        module, shape = CASES[name]()
    x = torch.randn(*shape)
    outputs = module.eval()(x).shape[1]
    return module, x, torch.randint(0, outputs, shape[:1])


def one_by_one(module, x, y):
    """Tr Σ_i J_iᵀ ∇²ℓ_i J_i / n of cross-entropy, from Jacobians."""
    module, total = module.double(), {name: 0.0 for name, _ in module.named_parameters()}
    for row in x.double():
        f = module(row[None])[0]
        p = torch.softmax(f.detach(), 0)
        curvature = torch.diag(p) - torch.outer(p, p)
        for name, parameter in module.named_parameters():
            rows = [torch.autograd.grad(a, parameter, retain_graph=True)[0] for a in f]
            J = torch.stack(rows).flatten(1)
            total[name] += float(torch.trace(J.T @ curvature @ J)) / len(x)
    return total


@pytest.mark.parametrize("name", CASES)
def test_trace_and_diagonal_are_those_of_gradients_taken_one_by_one(name):
    module, x, y = made(name)
    op = module_operator(module, (x, y), nn.CrossEntropyLoss())
    expected = one_by_one(module, x, y)
    diagonal = op.by_name(op.gauss_newton_diagonal())
    assert op.structure.exact
    assert op.gauss_newton_trace() == pytest.approx(expected, rel=1e-10)
    assert {n: d.sum() for n, d in diagonal.items()} == pytest.approx(expected, rel=1e-10)
    op.most_values = op.most_gradient_entries = 1
    assert op.gauss_newton_trace() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", ["few pixels", "many pixels", "batch norm", "turned"])
def test_single_precision_keeps_six_digits(name):
    module, x, y = made(name)
    loss = nn.CrossEntropyLoss()
    exact = ft.torch.trace(module, (x, y), loss).value
    single = ft.torch.trace(module, (x, y), loss, dtype="float32").value
    assert single == pytest.approx(exact, rel=1e-6)
    assert single != exact


def test_images_that_may_not_be_laid_out_anew_are_measured_all_the_same():
    class Viewed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(2, 3, 3), nn.Linear(12, 2)

        def forward(self, x):
            return self.last(self.first(x).view(len(x), -1))

    torch.manual_seed(0)
    module, x, y = Viewed(), torch.randn(3, 2, 4, 4), torch.tensor([0, 1, 1])
    with pytest.raises(RuntimeError):
        module(x.contiguous(memory_format=torch.channels_last))
    exact, single = (
        ft.torch.trace(module, (x, y), nn.CrossEntropyLoss(), dtype=d).value
        for d in ("float64", "float32")
    )
    assert single == pytest.approx(exact, rel=1e-6)


def test_second_derivatives_are_not_taken_in_single_precision():
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    data = torch.randn(4, 2), torch.randn(4, 1)
    with pytest.raises(ft.FlattestError, match="second ones, which are taken in float64"):
        ft.torch.trace(module, data, dtype="float32")
    with pytest.raises(ft.FlattestError, match="float16"):
        ft.torch.trace(module, data, dtype="float16")


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 800.0])
def test_the_softmax_factor_is_a_root_of_the_hessian(spread):
    torch.manual_seed(0)
    f = spread * torch.randn(5, 6, dtype=torch.float64)
    y = torch.arange(5)
    columns, signs = sample_loss(nn.CrossEntropyLoss()).factor(f, y)
    p = torch.softmax(f, 1)
    expected = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    found = columns @ columns.transpose(1, 2)
    assert columns.shape == (5, 6, 5)
    assert (found - expected).abs().max() < 1e-15
    assert (signs == 1).all()
