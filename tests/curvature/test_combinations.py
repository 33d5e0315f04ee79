"""Random combinations of outputs: unbiased, with standard errors that hold."""

import itertools

import numpy as np
import pytest

import flattest as ft
from support.modules import MARKS, nn, one_thread, torch  # noqa: F401

pytest.importorskip("torch", exc_type=ImportError)
from flattest.curvature.combinations import Draws, estimate, gauss_newton_trace  # noqa: E402
from flattest.curvature.module_losses import sample_loss  # noqa: E402
from flattest.curvature.modules import module_operator  # noqa: E402
from flattest.curvature.result import Interrupted  # noqa: E402

pytestmark = MARKS


class Language(nn.Module):
    """Its table of words is tied to its last layer; there is a label for each of four places."""

    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.inner, self.norm = nn.Linear(5, 5), nn.LayerNorm(5)
        self.last.weight = self.words.weight

    def forward(self, x):
        return self.last(self.norm(torch.tanh(self.inner(self.words(x)))))


def language():
    torch.manual_seed(0)
    x, y = torch.randint(0, 7, (2, 6, 4))
    y[0, 0] = -100
    return Language(), (x, y), nn.CrossEntropyLoss(label_smoothing=0.1)


class ByHand(nn.Module):
    """A layer's weights used outside of it too, or the layer called twice, by name."""

    def __init__(self, run):
        super().__init__()
        self.run, self.words, self.layer = run, nn.Embedding(7, 5), nn.Linear(5, 5)

    def forward(self, x):
        return self.run(self, self.words(x).mean(1))


def by_hand(run):
    torch.manual_seed(0)
    return ByHand(run), (torch.randint(0, 7, (6, 4)), torch.randn(6, 7)), nn.MSELoss()


def tied_by_hand():
    return by_hand(lambda m, h: nn.functional.linear(torch.tanh(m.layer(h)), m.words.weight))


def called_by_name():
    called = lambda m, h: torch.tanh(m.layer(h)) + torch.tanh(m.layer(input=2 * h))  # noqa: E731
    return by_hand(lambda m, h: nn.functional.pad(called(m, h), (0, 2)))


def weight_norm():
    """PyTorch's older one, whose weight is made of others by a hook."""
    torch.manual_seed(0)
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(nn.Linear(3, 5).double())
    module = nn.Sequential(layer, nn.Tanh(), nn.Linear(5, 2)).double()
    x, y = torch.randn(6, 3).double(), torch.randn(6, 2).double()
    with torch.no_grad():  # Without a graph it can be copied.
        module(x)
    return module, (x, y), nn.MSELoss()


def classifier(loss=None):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5))
    data = torch.randn(12, 3), torch.randint(0, 5, (12,))
    return module, data, loss or nn.CrossEntropyLoss()


def dense_gauss_newton_trace(module, data, loss):
    """Tr Jᵀ (∂²L/∂f²) J, with J that of all outputs."""
    module, (x, y) = module.double(), data
    x = x.double() if x.is_floating_point() else x
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    run = lambda p: torch.func.functional_call(module, p, (x,))  # noqa: E731
    f = run(parameters)
    J = torch.cat(
        [j.reshape(f.numel(), -1) for j in torch.func.jacrev(run)(parameters).values()], 1
    )
    classes_second = (lambda a: a) if f.dim() == 2 else (lambda a: a.movedim(-1, 1))
    of_outputs = lambda a: loss(classes_second(a.reshape(f.shape)), y)  # noqa: E731
    H = torch.autograd.functional.hessian(of_outputs, f.detach().reshape(-1))
    return float(torch.trace(J.T @ H @ J))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("case", [language, classifier, tied_by_hand, called_by_name, weight_norm])
def test_the_exact_gauss_newton_trace_is_the_dense_one_also_with_tied_weights(case):
    module, data, loss = case()
    found = ft.torch.gauss_newton_trace(module, data, loss, rtol=0)
    assert found.value == pytest.approx(dense_gauss_newton_trace(module, data, loss), rel=1e-10)
    assert found.stderr == 0


LOSSES = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "weights": nn.CrossEntropyLoss(weight=torch.arange(1.0, 6)),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.3),
}


@pytest.mark.parametrize("name", LOSSES)
def test_over_all_signs_combinations_have_the_second_moments_of_the_hessian(name):
    _, (_, y), loss = classifier(LOSSES[name])
    torch.manual_seed(1)
    f, per_sample = torch.randn(12, 5, dtype=torch.float64), sample_loss(loss)
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=5)), dtype=torch.float64)
    v = torch.stack([per_sample.combined(f, y, s.expand(12, 5)) for s in signs])
    columns, _ = per_sample.factor(f, y)
    expected = columns @ columns.transpose(1, 2)
    found = torch.einsum("rni,rnj->nij", v, v) / len(v)
    assert float((found - expected).abs().max()) < 1e-14


@pytest.mark.parametrize("samples", [None, 24])
def test_it_stops_at_the_error_that_was_asked_for(samples):
    module, data, loss = classifier()
    found = ft.torch.gauss_newton_trace(module, data, loss, rtol=0.05, samples=samples)
    exact = ft.torch.trace(module, data, loss).value
    assert found.stderr <= 0.05 * found.value
    assert abs(found.value - exact) < 4 * found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("samples", [None, 24])
def test_two_thousand_repetitions_are_unbiased_and_their_errors_hold(samples):
    op = module_operator(*classifier())
    exact = float(op.gauss_newton_shares().sum())
    found = [gauss_newton_trace(op, 0.08, 512, samples, seed) for seed in range(2000)]
    values, errors = np.array([[q.value, q.stderr] for q in found]).T
    covered = np.mean(np.abs(values - exact) <= 1.96 * errors)
    assert 0.93 <= covered <= 0.97
    # The stopping rule looks at the data it stops on: what it moves is far below one error.
    assert abs(values.mean() - exact) < 0.1 * errors.mean()


def test_an_interruption_gives_what_is_known():
    def rounds():
        yield np.array([[1.0, 3.0]])
        yield np.array([[2.0, 2.0]])
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as early:
        estimate(rounds(), 2.0, 1e-9, "")
    found = early.value.found
    assert found.partial
    assert found.value == 4.0
    assert found.stderr > 0
    assert "interrupted" in found.route
    with pytest.raises(KeyboardInterrupt):
        estimate(iter_and_stop(), 1.0, 1e-9, "")


def iter_and_stop():
    raise KeyboardInterrupt
    yield


def test_the_variance_is_the_sum_of_those_of_samples():
    rng = np.random.default_rng(0)
    shares = rng.normal(size=(50, 1000)) * np.arange(1, 51)[:, None]
    expected = np.sqrt(np.sum(np.arange(1, 51.0) ** 2) / 1000)
    assert Draws(shares).stderr == pytest.approx(expected, rel=0.02)


def test_a_loss_that_curves_down_is_refused():
    def loss(f, y):
        return -((f - y[:, None]) ** 2).mean()

    module, (x, y), _ = classifier()
    with pytest.raises(ft.FlattestError, match="convex"):
        ft.torch.gauss_newton_trace(module, (x, y.double()), loss)
