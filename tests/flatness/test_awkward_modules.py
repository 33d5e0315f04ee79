"""Awkward modules: right, or refused in a sentence; and left as they were by every public call,
also where it fails."""

import copy
from contextlib import suppress

import numpy as np
import pytest

from support.modules import MARKS, F, assert_unharmed, nn, one_thread, state, torch  # noqa: F401

pytest.importorskip("einops")

import flattest as ft  # noqa: E402
from flattest.flatness.words import compared  # noqa: E402
from support.awkward_modules import (  # noqa: E402
    MEASURED,
    REFUSED,
    differences,
    two,
    vectors,
    words,
)

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore")]
FEW = ft.LeagueSettings(steps=2, draws=2, probes=2, k=2, most_products=8)


def made(make):
    torch.manual_seed(0)
    return make()


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_the_trace_and_the_top_eigenvalue_are_those_of_differences_of_gradients(name):
    module, x, y = made(MEASURED[name])
    before = state(module)
    found = ft.torch.measure(module, (x, y), "mse")
    assert_unharmed(module, before)
    if name == "channels last":  # Its own view of float64 images fails without channels last.
        x = x.contiguous()
    H = differences(copy.deepcopy(module), x, y)
    scale = np.abs(H).sum(1).max()
    assert abs(found.trace - np.trace(H)) < 1e-6 * scale
    assert abs(found.top_eigenvalue - np.linalg.eigvalsh(H)[-1]) < 1e-6 * scale
    if found.rescaled is not None:
        rounding = 2e-2 if name == "autocast" else 1e-4
        assert torch.allclose(found.rescaled(x), module(x), rtol=rounding, atol=rounding)


@pytest.mark.parametrize("call", ["measure", "trace"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_is_refused_in_a_sentence(name, call):
    make, words = REFUSED[name]
    module, x, y = made(make)
    before = state(module)
    with pytest.raises(ft.FlattestError, match=words):
        getattr(ft.torch, call)(module, (x, y), "mse")
    assert_unharmed(module, before)


class Focal(nn.Module):
    """(1 − p)² times the cross-entropy, with class weights in float32; the factor is taken for a
    constant where it is `detached`."""

    def __init__(self, detached=False):
        super().__init__()
        self.register_buffer("weights", torch.tensor([0.2, 0.3, 0.5]))
        self.detached = detached

    def forward(self, f, y):
        factor = (1 - f.softmax(1).gather(1, y[:, None])[:, 0]) ** 2
        factor = factor.detach() if self.detached else factor
        return (factor * F.cross_entropy(f, y, weight=self.weights, reduction="none")).mean()


WEIGHTS = torch.tensor([0.2, 0.3, 0.5])


def of_few(f, y):
    """A user's own weights are in float32, whatever is computed in."""
    each = F.cross_entropy(f, y, weight=WEIGHTS.to(f.dtype), reduction="none")
    return each.mean()


LOSSES = {
    "focal": (Focal(), Focal().double()),
    "float32 weights of a function": (
        lambda f, y: F.cross_entropy(f, y, weight=WEIGHTS, reduction="none").mean(),
        of_few,
    ),
    "Kullback–Leibler, over the batch": (
        lambda f, y: nn.KLDivLoss(reduction="batchmean")(f.log_softmax(1), F.one_hot(y, 3) + 0.0),
        lambda f, y: F.nll_loss(f.log_softmax(1), y),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_ones_own_have_the_derivatives_of_their_values(name):
    loss, twin = LOSSES[name]
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(10, 4)
    y = torch.randint(0, 3, (10,))
    found = ft.torch.measure(module, (x, y), loss)
    H = differences(copy.deepcopy(module), x, y, twin)
    assert found.trace == pytest.approx(np.trace(H), rel=1e-6)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-6)


def test_pytorchs_mean_over_the_batch_is_that_of_samples():
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(10, 4)
    module.append(nn.LogSoftmax(1))
    y = torch.rand(10, 3).softmax(1)
    found = ft.torch.measure(module, (x, y), nn.KLDivLoss(reduction="batchmean"))
    H = differences(copy.deepcopy(module), x, y, lambda f, y: (y * (y.log() - f)).sum(1).mean())
    assert found.trace == pytest.approx(np.trace(H), rel=1e-6)


@pytest.mark.parametrize("call", ["measure", "trace"])
def test_a_loss_that_takes_a_part_of_itself_for_a_constant_is_refused(call):
    module, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(10, 4)
    with pytest.raises(ft.FlattestError, match="derivatives of this loss are wrong"):
        getattr(ft.torch, call)(module, (x, torch.randint(0, 3, (10,))), Focal(detached=True))


class Prices(nn.Module):
    """Expected prices and the logarithms of their variances."""

    def forward(self, h):
        return torch.stack([3e5 + 1e5 * h[:, 0], 20 + 2 * h[:, 1]], 1)


class Exponential(nn.Module):
    def forward(self, h):
        return h.exp()


SCALED = {
    "mean squared error of logarithms": (
        Exponential(),
        lambda: torch.randn(40, 3).exp(),
        lambda f, y: ((f.log() - y.log()) ** 2).mean(),
    ),
    "Kullback–Leibler of probabilities": (
        nn.Softmax(1),
        lambda: torch.randn(40, 3).softmax(1),
        lambda f, y: (f * (f.log() - y.log())).sum(1).mean(),
    ),
    "Gaussian likelihood of prices": (
        Prices(),
        lambda: 3e5 + 1e5 * torch.randn(40),
        lambda f, y: (f[:, 1] + (y - f[:, 0]) ** 2 * (-f[:, 1]).exp()).mean() / 2,
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_losses_of_positive_outputs_or_of_outputs_of_several_sizes_are_measured(name):
    last, targets, loss = SCALED[name]
    torch.manual_seed(3)
    module, x = nn.Sequential(nn.Linear(4, 3, bias=False), last).double(), torch.randn(40, 4)
    module[0].weight.data.normal_(0, 2)
    y, x = targets().double(), x.double()
    found = ft.torch.trace(module, (x, y), loss)
    of = lambda w: loss(last(x @ w.reshape(3, 4).T), y)  # noqa: E731
    H = torch.autograd.functional.hessian(of, module[0].weight.detach().ravel())
    assert found.value == pytest.approx(float(H.trace()), rel=1e-9)


def test_a_loss_whose_second_derivative_alone_is_wrong_is_refused():
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0].detach()

    module, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)), torch.randn(10, 4)
    with pytest.raises(ft.FlattestError, match="second derivatives of this loss are wrong"):
        ft.torch.trace(module, (x, torch.randn(10, 1)), lambda f, y: Squared.apply(f - y).mean())


def hooked(change):
    def run(m, x):
        h = m.a(x).relu()
        if h.requires_grad:
            h.register_hook(change)
        return m.b(h)

    return run


def test_hooks_on_tensors_and_gradients_by_frequency_change_nothing_that_is_measured():
    """Both change gradients, not the outputs, of which these are the derivatives."""
    halved, seen = hooked(lambda g: g / 2), hooked(lambda g: None)
    pairs = [
        (lambda: vectors(two(halved)), lambda: vectors(two())),
        (lambda: vectors(two(seen)), lambda: vectors(two())),
        (lambda: words(scale_grad_by_freq=True), words),
    ]
    for make, plain in pairs:
        found, expected = (ft.torch.measure(m, (x, y)) for m, x, y in map(made, (make, plain)))
        assert (found.trace, found.least) == (expected.trace, expected.least)
        assert found.top_eigenvalue == expected.top_eigenvalue


def test_pytorchs_older_weight_norm_is_measured_after_a_run_too():
    torch.manual_seed(0)
    older = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 1))
    newer = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 1)
    )
    names = {
        "0.weight_g": "0.parametrizations.weight.original0",
        "0.weight_v": "0.parametrizations.weight.original1",
    }
    state = {names.get(name, name): p for name, p in older.state_dict().items()}
    newer.load_state_dict(state)
    data = torch.randn(8, 4), torch.randn(8, 1)
    older(data[0])
    found, expected = (ft.torch.measure(module, data) for module in (older, newer))
    assert found.trace == pytest.approx(expected.trace, rel=1e-12)
    assert torch.allclose(found.rescaled(data[0]), older(data[0]), atol=1e-6)


class Crossed(nn.Module):
    """Attention to other tokens: its least is approached by ever larger weights."""

    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(4, 2, kdim=3, vdim=3, batch_first=True)
        self.o = nn.Linear(4, 1)

    def forward(self, x, z):
        return self.o(self.a(x, z, z)[0].mean(1))


def test_where_rounding_moves_the_rescaled_modules_outputs_a_note_says_so():
    torch.manual_seed(4)
    single = Crossed()
    data = torch.randn(3, 3, 4), torch.randn(3, 2, 3), torch.randn(3, 1)
    for module, noted in ((single, True), (copy.deepcopy(single).double(), False)):
        found = ft.torch.measure(module, data, tol=None)
        x, z = (t.to(module.o.weight.dtype) for t in data[:2])
        f, rescaled = module(x, z), found.rescaled(x, z)
        kept = torch.allclose(f, rescaled, rtol=0, atol=1e-4 * float(f.detach().abs().max()))
        assert kept != noted
        assert any("give it in float64" in note for note in found.notes) == noted


class Watched:
    """A watch as a call."""

    def __call__(self, module, data, loss):
        watch = ft.torch.Watch(module, data, loss, samples=2, measures=["trace"], lr=0.1)
        watch.step()
        return watch.close(final=True)


def compare(module, data, loss):
    found = ft.torch.measure(module, data, loss)
    return compared(found, found)


CALLS = {
    "measure": ft.torch.measure,
    "trace": ft.torch.trace,
    "trace in float32": lambda *given: ft.torch.trace(*given, dtype="float32"),
    "gauss_newton_trace": lambda *given: ft.torch.gauss_newton_trace(*given, most_draws=4),
    "hutchinson": lambda *given: ft.torch.hutchinson(*given, most_products=4),
    "xtrace": lambda *given: ft.torch.xtrace(*given, most_products=8),
    "top_eigenvalue": ft.torch.top_eigenvalue,
    "top_eigenvalues": lambda module, data, loss: ft.torch.top_eigenvalues(module, data, 2, loss),
    "spectrum": lambda *given: ft.torch.spectrum(*given, probes=2, steps=3),
    "league": lambda *given: ft.torch.league(*given, settings=FEW),
    "explain": ft.torch.explain,
    "compare": compare,
    "watch": Watched(),
}
STATES = ["a buffer that counts", "spectral norm", "sparse gradients", "channels last", "in place"]


class Breaks(nn.Module):
    """Fails when it is run for the `left`-th time."""

    left = [0]

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        self.left[0] -= 1
        if self.left[0] == 0:
            raise RuntimeError("broken")
        return self.module(x)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", STATES)
def test_every_call_leaves_a_module_as_it_was(name, call):
    module, x, y = made(MEASURED[name])
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    module.train(mode=name not in ("spectral norm",))
    before = state(module)
    with suppress(ft.FlattestError):  # float32 where second derivatives are needed
        CALLS[call](module, (x, y), "mse")
    assert_unharmed(module, before)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_in_the_middle_leaves_the_module_as_it_was(call):
    torch.manual_seed(0)
    module = Breaks(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.5), nn.Linear(5, 1)))
    module.module[2].eval()
    data = torch.randn(6, 4), torch.randn(6, 1)
    for n in (1, 2, 4, 7, 12, 20):
        before = state(module)
        module.left[0] = n
        with suppress(RuntimeError, ft.FlattestError):
            CALLS[call](module, data, "mse")
        module.left[0] = 0
        assert_unharmed(module, before)
