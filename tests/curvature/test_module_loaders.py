"""Data that are read anew at every pass: the same numbers as from memory, or a sentence."""

import random

import numpy as np
import pytest

from support.modules import MARKS, assert_unharmed, mlp, one_thread, state, torch  # noqa: F401

import flattest as ft  # isort: skip
from flattest.curvature import module_loaders  # isort: skip
from flattest.curvature.module_loaders import batches_of  # isort: skip

pytestmark = MARKS
N = 23
X, Y = torch.randn(N, 4), torch.randint(0, 3, (N,))
Loader, Pairs = torch.utils.data.DataLoader, torch.utils.data.TensorDataset


class Drawn(torch.utils.data.Dataset):
    """Samples with noise that is drawn each time, by `draw`."""

    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return N

    def __getitem__(self, i):
        return (X[i] + torch.ones(4) * self.draw()).float(), Y[i]


class Ever:
    """A loader that no seed makes the same again."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        yield X + self.passes, Y


LOADERS = {
    "in order": lambda: Loader(Pairs(X, Y), 5),
    "shuffled": lambda: Loader(Pairs(X, Y), 5, shuffle=True),
    "shuffled, its own generator": lambda: Loader(
        Pairs(X, Y), 5, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "drawn with replacement": lambda: Loader(
        Pairs(X, Y), 5, sampler=torch.utils.data.RandomSampler(Pairs(X, Y), True, 31)
    ),
    "noise of PyTorch": lambda: Loader(Drawn(lambda: torch.randn(())), 5, shuffle=True),
    "noise of NumPy": lambda: Loader(Drawn(lambda: np.random.normal()), 5),
    "noise of Python": lambda: Loader(Drawn(lambda: random.random()), 5),
}
CALLS = {
    "measure": lambda m, d: (lambda f: [f.trace, f.least, f.top_eigenvalue, f.mean_loss])(
        ft.torch.measure(m, d, "cross_entropy")
    ),
    "gauss_newton_trace": lambda m, d: [ft.torch.gauss_newton_trace(m, d, "cross_entropy").value],
    "some samples": lambda m, d: [
        ft.torch.gauss_newton_trace(m, d, "cross_entropy", samples=7).value
    ],
    "hutchinson": lambda m, d: [ft.torch.hutchinson(m, d, "cross_entropy").value],
    "batches": lambda m, d: [
        ft.torch.league(m, d, "cross_entropy", only=["batch_sharpness"])["batch_sharpness"]
    ],
}


def seeded():
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)


def in_memory(made):
    seeded()
    loader = made()
    return list(loader)


@pytest.fixture
def streamed(monkeypatch):
    """No data are held."""
    monkeypatch.setattr(module_loaders, "MOST_HELD", 0)


@pytest.mark.parametrize("name", LOADERS)
def test_every_pass_sees_the_data_of_the_first(name, streamed):
    expected = in_memory(LOADERS[name])
    seeded()
    batches = batches_of(LOADERS[name]())
    for _ in range(3):
        torch.randn(1), np.random.normal(), random.random()
        for batch, (x, y) in zip(batches, expected, strict=True):
            assert torch.equal(batch.x, x)
            assert torch.equal(batch.y, y)
    assert batches.samples == sum(len(y) for _, y in expected)


@pytest.mark.parametrize("call", CALLS)
def test_what_is_streamed_has_the_numbers_of_what_is_held(call, streamed):
    made = LOADERS["noise of PyTorch"]
    torch.manual_seed(0)
    module = mlp(4, 6, 5, 3)
    expected = CALLS[call](module, in_memory(made))
    seeded()
    loader = made()
    before, numpy_before = state(module), np.random.get_state()[1].copy()
    assert CALLS[call](module, loader) == pytest.approx(expected, rel=1e-12)
    assert_unharmed(module, before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)


def test_the_loaders_own_generator_is_left_as_it_was(streamed):
    generator = torch.Generator().manual_seed(3)
    loader = Loader(Pairs(X, Y), 5, shuffle=True, generator=generator)
    before = generator.get_state()
    ft.torch.trace(mlp(4, 6, 3), loader, "cross_entropy")
    assert torch.equal(generator.get_state(), before)


def test_a_loader_that_changes_from_pass_to_pass_is_refused(streamed):
    with pytest.raises(ft.FlattestError, match="other data each time"):
        ft.torch.trace(mlp(4, 6, 3), Ever(), "cross_entropy")


def test_an_iterator_is_held_or_refused(streamed, monkeypatch):
    with pytest.raises(ft.FlattestError, match="only once"):
        ft.torch.trace(mlp(4, 6, 3), iter([(X, Y)]), "cross_entropy")
    monkeypatch.setattr(module_loaders, "MOST_HELD", 2**20)
    assert ft.torch.trace(mlp(4, 6, 3), iter([(X, Y)]), "cross_entropy").value > 0


def test_small_data_are_read_once():
    loader = Ever()
    assert ft.torch.trace(mlp(4, 6, 3), loader, "cross_entropy").value > 0
    assert loader.passes == 1


def test_an_empty_loader_is_refused(streamed):
    with pytest.raises(ft.FlattestError, match="at least one sample"):
        ft.torch.trace(mlp(4, 6, 3), Loader(Pairs(X[:0], Y[:0])), "cross_entropy")


class Twos(torch.utils.data.Dataset):
    """Samples of two inputs in a tuple: a loader collates them to a list."""

    def __len__(self):
        return N

    def __getitem__(self, i):
        return (X[i, :2], X[i, 2:]), Y[i]


class Beside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = mlp(4, 6, 3)

    def forward(self, one, other):
        return self.inner(torch.cat([one, other], 1))


def test_several_inputs_are_those_of_a_loader_s_list_and_of_a_tuple():
    torch.manual_seed(0)
    module = Beside()
    alike = module.inner, (X, Y)
    for given in (Loader(Twos(), 5), ((X[:, :2], X[:, 2:]), Y), ([X[:, :2], X[:, 2:]], Y)):
        found = ft.torch.trace(module, given, "cross_entropy")
        assert found.value == pytest.approx(
            ft.torch.trace(*alike, "cross_entropy").value, rel=1e-12
        )


def test_arrays_may_lie_in_any_order():
    module, x, y = mlp(4, 6, 3), X.numpy().astype(float), Y.numpy()
    expected = ft.torch.trace(module, (x, y), "cross_entropy").value
    turned = np.ascontiguousarray(x[::-1])[::-1], y[::-1].copy()[::-1]
    by_name = {"input": x, "mask": None, "labels": y}
    for given in (
        turned,
        (x.astype(">f8"), y.astype(">i8")),
        (x.astype(np.longdouble), y),
        by_name,
    ):
        found = ft.torch.trace(module, given, "cross_entropy")
        assert found.value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.array([["a"] * 4] * N), "not numbers"),
        (X.numpy().astype(object), "not numbers"),
        (X.to_sparse(), "sparse or nested"),
        (torch.nested.nested_tensor([torch.ones(3)] * N, layout=torch.jagged), "sparse or nested"),
    ],
)
def test_what_is_no_dense_array_of_numbers_is_refused_in_a_sentence(x, words):
    with pytest.raises(ft.FlattestError, match=words):
        ft.torch.trace(mlp(4, 6, 3), (x, Y), "cross_entropy")
