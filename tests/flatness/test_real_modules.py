"""Modules, losses and data as practitioners have them: right against a dense Hessian."""

import copy
import functools
import random

import numpy as np
import pytest

import flattest as ft
from flattest.errors import FlattestError
from support.modules import (
    MARKS as pytestmark,  # noqa: F401
    F,
    dense_hessian,
    mlp,
    nn,
    one_thread,  # noqa: F401
    torch,
    vector_case,
)


def measured(module, x, y, loss):
    """A measurement, checked against the dense Hessian; the rescaled module keeps the outputs."""
    found = ft.torch.measure(module, (x, y), loss)
    H = dense_hessian(module, x, y, loss)
    assert found.trace == pytest.approx(np.trace(H), rel=1e-8)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)
    if found.rescaled is not None:
        assert torch.allclose(found.rescaled(x), module(x), rtol=1e-9, atol=1e-9)
        if found.least is None:
            again = ft.torch.measure(found.rescaled, (x, y), loss)
            assert again.gauss_newton == pytest.approx(found.least_gauss_newton)
        else:
            assert np.trace(dense_hessian(found.rescaled, x, y, loss)) == pytest.approx(found.least)
    return found


def double_case(module, outputs=1, n=12):
    module, x, y = vector_case(module.double(), outputs, n)
    return module.eval(), x.double(), y.double()


class OptionalMask(nn.Module):
    """Branches on an argument that is not given."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 1)

    def forward(self, x, mask=None):
        h = self.one(x)
        h = torch.tanh(h) if mask is None else torch.relu(h)
        return self.two(h)


class Flattened(nn.Module):
    """A shape from Python code, as in PyTorch's first tutorial, an assertion and targets=None."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 6), nn.Linear(6, 1)

    def features(self, x):
        return int(np.prod(x.shape[1:]))

    def forward(self, x, targets=None):
        assert isinstance(x, torch.Tensor)
        assert x.shape[1] == 4
        assert torch.isfinite(x).all()
        h = torch.relu(self.one(x)).reshape(len(x), 2, 3)
        h = h.view(-1, self.features(h))
        return self.two(h) if targets is None else (self.two(h), targets)


def test_the_branch_that_runs_is_the_one_that_is_judged():
    torch.manual_seed(0)
    found = measured(*double_case(OptionalMask()), nn.MSELoss())
    assert "tanh is not piecewise linear" in found.method


def test_python_code_in_forward_does_not_hide_the_units():
    torch.manual_seed(0)
    module, x, y = double_case(Flattened())
    found = measured(module, x, y, nn.MSELoss())
    assert found.method.startswith("exact: Gauss–Newton")
    assert found.least < found.trace
    parallel = ft.torch.measure(nn.DataParallel(module), (x, y), nn.MSELoss())
    assert (parallel.trace, parallel.least) == (found.trace, found.least)


class Rearranged(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, x):
        einops = pytest.importorskip("einops")
        h = einops.rearrange(torch.relu(self.one(x)), "n (a b) -> n b a", a=2)
        return self.two(einops.rearrange(h, "n b a -> n (b a)"))


def test_einops_is_followed():
    torch.manual_seed(0)
    found = measured(*double_case(Rearranged()), nn.MSELoss())
    assert found.least < found.trace


W = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64)
SORTED = torch.arange(24) * 3 // 24
LATE = torch.where(torch.arange(24) < 16, SORTED, -100)
LOSSES = {
    "class weights": (nn.CrossEntropyLoss(weight=W), SORTED),
    "weights and smoothing": (nn.CrossEntropyLoss(weight=W, label_smoothing=0.2), SORTED),
    "soft and weighted": (
        nn.CrossEntropyLoss(weight=W, label_smoothing=0.1),
        torch.softmax(torch.arange(72.0).reshape(24, 3).sin(), 1).double(),
    ),
    "ignored later": (nn.CrossEntropyLoss(), LATE),
    "ignored and weighted": (nn.CrossEntropyLoss(weight=W, label_smoothing=0.2), LATE),
    "sum": (nn.CrossEntropyLoss(weight=W, reduction="sum"), LATE),
    "function": (functools.partial(F.cross_entropy, weight=W, ignore_index=-100), LATE),
    "squares": (nn.MSELoss(reduction="sum"), torch.eye(3).double()[SORTED]),
    "margins": (nn.MultiMarginLoss(weight=W), SORTED),
    "squared margins": (nn.MultiMarginLoss(p=2, margin=0.7), SORTED),
    "negative log-likelihood": (nn.NLLLoss(weight=W), LATE),
    "huber": (nn.HuberLoss(), torch.eye(3).double()[SORTED]),
}


def reference_of(loss):
    """PyTorch cannot differentiate its own multi-margin loss twice."""
    if not isinstance(loss, nn.MultiMarginLoss):
        return loss

    def margins(f, y):
        gaps = torch.relu(loss.margin - f.gather(1, y[:, None]) + f) ** loss.p
        gaps = gaps * (torch.arange(f.shape[1]) != y[:, None])
        weight = 1 if loss.weight is None else loss.weight[y]
        return (gaps.sum(1) / f.shape[1] * weight).mean()

    return margins


@pytest.mark.parametrize("batch", [24, 8])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_weigh_or_ignore_samples_are_those_of_all_the_data(name, batch):
    loss, y = LOSSES[name]
    torch.manual_seed(0)
    module, x = mlp(4, 5, 3).double(), torch.randn(24, 4).double()
    loader = list(zip(x.split(batch), y.split(batch), strict=True))
    found = ft.torch.measure(module, loader, loss)
    H = dense_hessian(module, x, y, reference_of(loss))
    with torch.no_grad():
        assert found.mean_loss == pytest.approx(float(loss(module(x), y)), rel=1e-12)
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    if name != "margins":
        assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)


@pytest.mark.parametrize(
    ("outputs", "targets"), [((12,), (12, 1)), ((12, 1), (12,)), ((12, 2), (24,))]
)
def test_targets_in_another_shape_are_not_broadcast(outputs, targets):
    torch.manual_seed(0)
    module, x, y = double_case(mlp(4, 5, len(outputs) == 2 and outputs[1] or 1), 2)
    y = y[:, : np.prod(outputs) // 12]
    exact = np.trace(dense_hessian(module, x, y, nn.MSELoss()))
    if len(outputs) == 1:
        module = nn.Sequential(module, nn.Flatten(0))
    if targets == (24,):
        with pytest.raises(FlattestError, match="as many rows"):
            ft.torch.trace(module, (x, y.reshape(targets)), nn.MSELoss())
        return
    found = ft.torch.trace(module, (x, y.reshape(targets)), nn.MSELoss())
    assert found.value == pytest.approx(exact, rel=1e-9)


def test_labels_in_a_column_are_labels():
    torch.manual_seed(0)
    module, x = mlp(4, 5, 3).double(), torch.randn(24, 4).double()
    plain = ft.torch.trace(module, (x, SORTED), "cross_entropy").value
    assert ft.torch.trace(module, (x, SORTED[:, None]), "cross_entropy").value == plain


def test_a_loss_of_ones_own_that_is_no_mean_is_found_out_on_all_of_the_data():
    """The first samples all have one label: there the weighted mean is the mean."""
    torch.manual_seed(0)
    module, x = mlp(4, 5, 3).double(), torch.randn(24, 4).double()
    own = lambda f, y: F.cross_entropy(f, y, weight=W)  # noqa: E731
    for batch in (24, 8):
        loader = list(zip(x.split(batch), SORTED.split(batch), strict=True))
        with pytest.raises(FlattestError, match="mean of its samples' losses"):
            ft.torch.trace(module, loader, own)


class Focal(nn.CrossEntropyLoss):
    """(1 − p_y)² times the cross-entropy: a subclass, and another loss."""

    def forward(self, f, y):
        p = f.softmax(1).gather(1, y[:, None])[:, 0]
        return (-((1 - p) ** 2) * p.log()).mean()


class Fourth(nn.MSELoss):
    def forward(self, f, y):
        return (f - y).pow(4).mean()


class Named(nn.MSELoss):
    """A subclass that computes the same."""


@pytest.mark.parametrize("loss", [Focal(), Fourth(), Named()], ids=lambda loss: type(loss).__name__)
def test_a_subclass_of_a_loss_is_what_it_computes(loss):
    torch.manual_seed(0)
    module, x = mlp(4, 5, 3).double(), torch.randn(12, 4).double()
    y = torch.randint(0, 3, (12,)) if isinstance(loss, Focal) else torch.randn(12, 3).double()
    found = ft.torch.trace(module, (x, y), loss)
    assert "exact" in found.route
    assert found.value == pytest.approx(np.trace(dense_hessian(module, x, y, loss)), rel=1e-10)


def test_a_penalty_in_the_loss_is_refused():
    """It depends on the module's parameters, not on those of the copy that is measured."""
    torch.manual_seed(0)
    module, x, y = double_case(mlp(4, 5, 1))
    penalty = lambda: sum(p.square().sum() for p in module.parameters())  # noqa: E731
    with pytest.raises(FlattestError, match="also without the outputs"):
        ft.torch.trace(module, (x, y), lambda f, y: F.mse_loss(f, y) + 0.1 * penalty())


def test_samples_in_another_order_inside_keep_the_signs_of_their_own_losses():
    """Cauchy's loss curves down for outliers."""
    torch.manual_seed(0)
    module, x, y = double_case(Reversed())
    y[::2] *= 5
    loss = lambda f, y: torch.log1p(2 * (f - y).square()).mean()  # noqa: E731
    found = ft.torch.trace(module, (x, y), loss)
    assert found.value == pytest.approx(np.trace(dense_hessian(module, x, y, loss)), rel=1e-10)


class Reversed(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.two(self.one(x).relu().flip(0)).flip(0)


class OverTimes(nn.Module):
    """Piecewise linear; over one time its weights are used once, over three times thrice."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.RNNCell(4, 5, nonlinearity="relu"), nn.Linear(5, 1)

    def forward(self, x):
        h = x.new_zeros(len(x), 5)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.last(h)


def test_samples_of_every_shape_are_walked():
    torch.manual_seed(0)
    module = OverTimes().double()
    batches = [(torch.randn(4, t, 4).double(), torch.randn(4, 1).double()) for t in (1, 3)]
    loss = nn.MSELoss()
    dense = sum(np.trace(dense_hessian(module, x, y, loss)) for x, y in batches) / 2
    found = ft.torch.trace(module, batches, loss)
    assert found.value == pytest.approx(dense, rel=1e-10)
    assert "more than once" in found.route
    assert "Gauss–Newton" in ft.torch.trace(module, batches[:1], loss).route


@pytest.mark.parametrize(
    "cast",
    [
        lambda h, one: h.type(torch.FloatTensor),
        lambda h, one: h.type("torch.FloatTensor"),
        lambda h, one: h.type_as(one),
        lambda h, one: h.to(one),
    ],
)
def test_casts_to_the_type_of_another_tensor_lose_no_digits(cast):
    class Cast(nn.Module):
        def __init__(self, cast):
            super().__init__()
            self.cast, self.one, self.two = cast, nn.Linear(4, 5), nn.Linear(5, 1)

        def forward(self, x):
            h = self.one(x)
            return self.two(
                torch.tanh(h if self.cast is None else self.cast(h, torch.ones(1))).to(x)
            )

    torch.manual_seed(0)
    module, x, y = double_case(Cast(None))
    plain = ft.torch.trace(module, (x, y), "mse").value
    module.cast = cast
    assert ft.torch.trace(module, (x, y), "mse").value == pytest.approx(plain, rel=1e-13)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 - torch.tanh(x) ** 2)


class Dropped(torch.autograd.Function):
    """Its backward pass forgets that it depends on x."""

    @staticmethod
    def forward(ctx, x):
        ctx.slope = 1 - torch.tanh(x.detach()) ** 2
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.slope


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.one, self.two = function, nn.Linear(4, 5), nn.Linear(5, 1)

    def forward(self, x):
        return self.two(self.function.apply(self.one(x)))


@pytest.mark.parametrize("function", [Once, Dropped])
def test_second_derivatives_that_are_dropped_are_refused(function):
    torch.manual_seed(0)
    module, x, y = double_case(Applied(function))
    with pytest.raises(FlattestError, match=r"(second derivatives .* wrong|differentiated twice)"):
        ft.torch.measure(module, (x, y), nn.MSELoss())


class Explicit(nn.Module):
    """weight_norm by hand, with the parameters of the parametrized layer."""

    def __init__(self, layer, last):
        super().__init__()
        originals = layer.parametrizations.weight
        self.bias = nn.Parameter(layer.bias.detach().clone())
        self.g, self.v = (
            nn.Parameter(p.detach().clone()) for p in (originals.original0, originals.original1)
        )
        self.last = copy.deepcopy(last)

    def forward(self, x):
        weight = self.g * self.v / (self.v**2).sum(1, keepdim=True).sqrt()
        return self.last(torch.tanh(x @ weight.T + self.bias))


def test_weight_norm_has_the_second_derivatives_of_its_formula():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    module, x, y = double_case(nn.Sequential(layer, nn.Tanh(), nn.Linear(5, 1)))
    H = dense_hessian(Explicit(layer, module[2]), x, y, nn.MSELoss())
    found = ft.torch.measure(module, (x, y), nn.MSELoss())
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)
    assert found.residual < 1e-3


class Rounded(nn.Module):
    """As vision and language models do: a softmax, a norm and a mask in float32."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 1)

    def forward(self, x):
        h = F.softmax(self.one(x), dim=-1, dtype=torch.float32).to(x.dtype)
        h = h * torch.ones(5, dtype=torch.float32, device=x.device) + h.float().to(h.dtype)
        return self.two(h.type(torch.float32).type_as(x))


class Unrounded(Rounded):
    def forward(self, x):
        h = F.softmax(self.one(x), dim=-1)
        return self.two(2 * h)


def test_a_softmax_in_single_precision_is_computed_in_double_precision():
    torch.manual_seed(0)
    module, x, y = double_case(Rounded())
    exact = Unrounded().double()
    exact.load_state_dict(module.state_dict())
    H = dense_hessian(exact, x, y, nn.MSELoss())
    found = ft.torch.measure(module, (x, y), nn.MSELoss())
    assert found.trace == pytest.approx(np.trace(H), rel=1e-12)
    assert torch.get_default_dtype() == torch.float32


class Recurrent(nn.Module):
    """An LSTM that makes its own first state."""

    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 1)

    def forward(self, x):
        x = x.reshape(len(x), 2, 2)
        start = torch.zeros(1, len(x), 3, device=x.device).to(x.dtype)
        return self.last(self.cell(x, (start, torch.zeros(1, len(x), 3).type_as(x)))[0][:, -1])


class OwnState(Recurrent):
    def forward(self, x):
        start = torch.zeros(1, len(x), 3), torch.zeros(1, len(x), 3)
        if x.dtype == torch.float64 and torch.get_default_dtype() == torch.float32:
            start = tuple(s.double() for s in start)
        return self.last(self.cell(x.reshape(len(x), 2, 2), start)[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.last = nn.Linear(2, 4), nn.Linear(4, 1)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        h = self.up(x.reshape(len(x), 2, 2))
        return self.last(self.attention(h, h, h, need_weights=False)[0].mean(axis=1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.last = nn.Linear(2, 4), nn.Linear(4, 1)
        layer = nn.TransformerEncoderLayer(4, 2, 3, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        return self.last(self.encoder(self.up(x.reshape(len(x), 2, 2))).mean(1))


class Pooled(nn.Module):
    """MaxPool1d on rows without channels."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 6), nn.Linear(3, 1)

    def forward(self, x):
        return self.two(F.max_pool1d(torch.relu(self.one(x)), 2))


class Squeezed(nn.Module):
    """Loses its first axis for a batch of one."""

    def __init__(self):
        super().__init__()
        self.net = mlp(4, 5, 1)

    def forward(self, x):
        return self.net(x).squeeze()


class HardSigmoid(nn.Module):
    def forward(self, x):
        return torch.clamp(x / 6 + 0.5, 0, 1)


def hard_pair():
    module = mlp(4, 5, 1, activation=nn.Hardsigmoid)
    twin = copy.deepcopy(module)
    twin[1] = HardSigmoid()
    return module, twin


RUNS = {
    "lstm": Recurrent,
    "lstm with its own state": OwnState,
    "attention": Attention,
    "encoder": Encoder,
    "max pool": Pooled,
}


@pytest.mark.parametrize("name", RUNS)
def test_modules_as_they_come_are_measured(name):
    torch.manual_seed(0)
    module, x, y = double_case(RUNS[name]())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        measured(module, x, y, nn.MSELoss())


def test_outputs_without_a_last_axis_are_measured_also_one_by_one():
    torch.manual_seed(0)
    module, x, y = double_case(Squeezed())
    exact = np.trace(dense_hessian(module.net, x, y, nn.MSELoss()))
    for batch in (12, 1):
        loader = list(zip(x.split(batch), y.split(batch), strict=True))
        assert ft.torch.measure(module, loader, nn.MSELoss()).trace == pytest.approx(exact)


def test_hardsigmoid_is_piecewise_linear():
    torch.manual_seed(0)
    module, twin = hard_pair()
    module, x, y = double_case(module)
    H = dense_hessian(twin.double(), x, y, nn.MSELoss())
    found = ft.torch.measure(module, (x, y), nn.MSELoss())
    assert found.method.startswith("exact: Gauss–Newton")
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)


def test_a_lazy_layer_is_refused_until_it_has_weights():
    module = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(1))
    x, y = torch.randn(6, 4), torch.randn(6, 1)
    with pytest.raises(FlattestError, match=r"0\.weight has no values yet.*run the module once"):
        ft.torch.measure(module, (x, y))
    module(x)
    assert ft.torch.measure(module, (x, y)).least > 0


def test_batch_norm_without_statistics_takes_the_batches_as_they_are():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5, track_running_stats=False)
    module, x, y = double_case(nn.Sequential(nn.Linear(4, 5), norm, nn.ReLU(), nn.Linear(5, 1)))
    found = measured(module, x, y, nn.MSELoss())
    assert "depend on the rest of its batch" in found.method
    halves = [(x[:6], y[:6]), (x[6:], y[6:])]
    parts = [np.trace(dense_hessian(module, *half, nn.MSELoss())) for half in halves]
    in_two = ft.torch.measure(module, halves, nn.MSELoss())
    assert in_two.trace == pytest.approx(np.mean(parts), rel=1e-8)


def test_frozen_layers_are_constants():
    torch.manual_seed(0)
    module, x, y = double_case(mlp(4, 5, 6, 5, 1))
    for p in module[2].parameters():
        p.requires_grad_(False)
    kept = [i for i, (n, p) in enumerate(module.named_parameters()) if p.requires_grad]
    sizes = [p.numel() for p in module.parameters()]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in kept])
    H = dense_hessian(module, x, y, nn.MSELoss())[np.ix_(rows, rows)]
    found = ft.torch.measure(module, (x, y), nn.MSELoss())
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)
    assert found.least < found.trace
    assert torch.equal(found.rescaled[2].weight, module[2].weight)
    assert torch.allclose(found.rescaled(x), module(x), rtol=1e-9, atol=1e-9)


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(4, 5, 1)

    def forward(self, x):
        return self.net(x), x


def test_a_tuple_is_refused_with_a_hint_that_works():
    torch.manual_seed(0)
    module, x, y = double_case(TwoOutputs())
    with pytest.raises(FlattestError, match=r"returns tuple.*forward=lambda module, x: module"):
        ft.torch.measure(module, (x, y))
    found = ft.torch.measure(module, (x, y), nn.MSELoss(), forward=lambda module, x: module(x)[0])
    H = dense_hessian(module.net, x, y, nn.MSELoss())
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.least < found.trace


class Named(nn.Module):
    """Takes its inputs by name and returns an object with logits."""

    def __init__(self):
        super().__init__()
        self.table, self.net = nn.Embedding(7, 4), mlp(4, 5, 3)

    def forward(self, tokens, weights):
        class Output:
            logits = self.net((self.table(tokens) * weights[..., None]).sum(1))

        return Output()


class Positional(Named):
    def forward(self, tokens, weights):
        return super().forward(tokens, weights).logits


def test_batches_may_be_dicts_or_have_several_inputs():
    torch.manual_seed(0)
    module = Named().double()
    tokens, weights, y = torch.randint(0, 7, (9, 4)), torch.rand(9, 4).double(), torch.arange(9) % 3
    positional = Positional().double()
    positional.load_state_dict(module.state_dict())
    batch = {"tokens": tokens, "weights": weights, "labels": y}
    found = ft.torch.measure(module, batch, "cross_entropy")
    same = ft.torch.measure(positional, (tokens, weights, y), "cross_entropy")
    loader = [{k: v[:5] for k, v in batch.items()}, {k: v[5:] for k, v in batch.items()}]
    parted = ft.torch.measure(module, loader, "cross_entropy")
    assert same.trace == pytest.approx(found.trace, rel=1e-12)
    assert parted.trace == pytest.approx(found.trace, rel=1e-12)
    assert found.method.startswith("exact: Gauss–Newton")
    assert found.least < found.trace
    H = _hessian_of(positional, (tokens, weights), y, nn.CrossEntropyLoss())
    assert found.trace == pytest.approx(np.trace(H), rel=1e-9)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-7)


def _hessian_of(module, args, y, loss):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, _):
            return self.inner(*args)

    return dense_hessian(Wrapped(), None, y, loss)


def test_a_dict_without_targets_is_refused():
    with pytest.raises(FlattestError, match="targets under 'labels'"):
        ft.torch.measure(Named(), {"tokens": torch.zeros(3, 4, dtype=int)}, "cross_entropy")


@pytest.mark.parametrize("read", ["tolist", "numpy", "asarray"])
def test_numbers_that_leave_the_tensors_are_noticed(read):
    """What comes back is a constant to autograd: with first derivatives alone the trace would be
    that of another network, and be called exact."""

    class Leaves(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, x):
            h = torch.relu(self.first(x))
            values = {
                "tolist": lambda: h.tolist(),
                "numpy": lambda: h.detach().numpy(),
                "asarray": lambda: np.asarray(h.detach()),
            }[read]()
            return self.last(h * torch.tensor(np.array(values), dtype=h.dtype))

    torch.manual_seed(0)
    data = torch.randn(5, 2), torch.randn(5, 1)
    with pytest.raises(ft.FlattestError, match="derivatives of this module are wrong"):
        ft.torch.trace(Leaves(), data)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_wrong_derivative_of_a_unit_next_to_its_kink_is_seen_from_one_side(sign):
    class NextToItsKink(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.c = nn.Linear(2, 1), nn.Parameter(torch.ones(()))

        def forward(self, x):
            beside = torch.relu(sign * (self.c - 1.0) + 1e-6)
            return self.last(x) + beside / 2 + beside.detach() / 2

    torch.manual_seed(0)
    data = torch.randn(5, 2), torch.randn(5, 1)
    with pytest.raises(ft.FlattestError, match="derivatives of this module are wrong"):
        ft.torch.trace(NextToItsKink(), data)


class Meanwhile(nn.Module):
    """Another thread draws as it runs, as many numbers as it has time for."""

    def __init__(self, drawn, dropped=0.0):
        super().__init__()
        self.drawn, self.last = iter(drawn), nn.Linear(2, 1)
        self.dropped = nn.Dropout(dropped) if dropped else nn.Identity()

    def forward(self, x):
        for _ in range(next(self.drawn, 0)):
            random.random()
        return self.dropped(self.last(x))


@pytest.mark.parametrize("drawn", [[1], range(1, 1000)], ids=["once", "all the time"])
def test_random_numbers_that_another_thread_draws_meanwhile_are_not_the_modules(drawn):
    """A killed runner of PyTorch's was lost so: when it was gone on with, its run failed."""
    torch.manual_seed(0)
    data = torch.randn(5, 2), torch.randn(5, 1)
    assert ft.torch.trace(Meanwhile(drawn), data).value > 0


@pytest.mark.parametrize("drawn", [[], range(1, 1000)], ids=["alone", "beside another thread"])
def test_dropout_that_has_seldom_an_effect_is_refused_in_training_mode(drawn):
    torch.manual_seed(0)
    data = torch.randn(5, 2), torch.randn(5, 1)
    with pytest.raises(ft.FlattestError, match="call module.eval"):
        ft.torch.trace(Meanwhile(drawn, dropped=1e-6), data)
