"""Awkward modules: right, or refused in a sentence; and left as they were by every public call,
also where it fails."""

import copy
from contextlib import suppress

import numpy as np
import pytest

from support.modules import MARKS, assert_unharmed, nn, one_thread, state, torch  # noqa: F401

pytest.importorskip("einops")

import flattest as ft  # noqa: E402
from flattest.flatness.words import compared  # noqa: E402
from support.awkward_modules import MEASURED, REFUSED, differences  # noqa: E402

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
