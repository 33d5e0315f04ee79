"""Ctrl-C: what is known by then, said to be partial, or an interrupt; never a wrong number, and the
module stays as it was."""

import re

import numpy as np
import pytest

from support.modules import MARKS, assert_unharmed, nn, one_thread, state, torch  # noqa: F401

import flattest as ft  # isort: skip
from flattest.curvature.eigenvalues import top_eigenvalues  # isort: skip
from flattest.curvature.modules import module_operator  # isort: skip
from flattest.curvature.result import Interrupted  # isort: skip

pytestmark = MARKS
WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([0.3, 1.0, 2.5]))


class Pressed(nn.Module):
    """Ctrl-C comes when it is run for the `left`-th time; a test sets that, for all copies."""

    left = [-1]

    def __init__(self, activation):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 30), activation, nn.Linear(30, 3))

    def forward(self, x):
        self.left[0] -= 1
        if self.left[0] == 0:
            raise KeyboardInterrupt
        return self.layers(x)


def network(activation):
    torch.manual_seed(0)
    module = Pressed(activation)
    batches = [(torch.randn(3, 4), torch.randint(0, 3, (3,))) for _ in range(6)]
    return module, batches


def first(batches, samples):
    x, y = (torch.cat(part)[:samples] for part in zip(*batches, strict=True))
    return x, y


def pressed(call, module, every=1):
    """What a call gives when Ctrl-C comes at its n-th run of the module, for every so manieth n
    until it is through; None where it is interrupted with nothing known."""
    for n in range(1, 1000, every):
        before = state(module)
        module.left[0] = n
        try:
            found = call()
        except KeyboardInterrupt:
            found = None
        over, module.left[0] = module.left[0] > 0, -1
        assert_unharmed(module, before)
        yield found
        if over:
            return
    raise AssertionError("it never ends")


@pytest.mark.parametrize("loss", ["cross_entropy", WEIGHTED], ids=["mean", "weighted"])
def test_an_exact_trace_is_that_of_the_samples_that_were_seen(loss):
    module, batches = network(nn.ReLU())
    partial = 0
    for found in pressed(lambda: ft.torch.trace(module, batches, loss), module):
        if found is None:
            continue
        samples = 18
        if found.partial:
            partial += 1
            samples = int(re.search(r"interrupted: on the first (\d+) of 18", found.route)[1])
        expected = ft.torch.trace(module, first(batches, samples), loss)
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        assert found.partial == (samples < 18)
    assert partial >= 4


def test_probes_and_combinations_are_estimates_from_fewer():
    module, batches = network(nn.Tanh())
    for call in (
        lambda: ft.torch.hutchinson(module, batches, "cross_entropy", rtol=0, most_products=70),
        lambda: ft.torch.gauss_newton_trace(
            module, batches, "cross_entropy", rtol=1e-9, most_draws=12
        ),
    ):
        *early, whole = pressed(call, module, every=4)
        partial = [found for found in early if found is not None]
        assert partial
        for found in partial:
            assert found.partial
            assert "interrupted" in found.route
            assert abs(found.value - whole.value) < 6 * (found.stderr + whole.stderr)
        assert not whole.partial


def test_an_eigenvalue_is_a_lower_bound():
    module, batches = network(nn.Tanh())
    *early, whole = pressed(
        lambda: ft.torch.top_eigenvalue(module, batches, "cross_entropy"), module
    )
    partial = [found for found in early if found is not None and found.partial]
    assert partial
    assert all(found.value <= whole.value * (1 + 1e-9) for found in partial)
    assert all("lower bound" in found.route for found in partial)
    assert not whole.partial


def test_a_measurement_has_what_was_known():
    module, batches = network(nn.ReLU())
    call = lambda: ft.torch.measure(module, batches, "cross_entropy")  # noqa: E731
    *early, whole = pressed(call, module, every=3)
    partial = [found for found in early if found is not None and found.partial]
    with_trace = [found for found in partial if found.least is not None]
    assert with_trace
    assert len(partial) > len(with_trace)
    for found in partial:
        assert any("interrupted" in note for note in found.notes)
        assert found.mean_loss == pytest.approx(whole.mean_loss)
        assert found.top_eigenvalue is None or found.top_eigenvalue <= whole.top_eigenvalue * (
            1 + 1e-9
        )
    for found in with_trace:
        assert found.trace == pytest.approx(whole.trace, rel=1e-12)
        assert found.least == pytest.approx(whole.least, rel=1e-9)
    assert not whole.partial


def test_a_league_has_the_measures_that_were_done():
    module, batches = network(nn.ReLU())
    only = ["gradient_norm", "trace", "fisher_rao"]
    call = lambda: ft.torch.league(module, batches, "cross_entropy", only=only)  # noqa: E731
    *early, whole = pressed(call, module)
    partial = [found for found in early if found is not None]
    assert any(found.values for found in partial)
    for found in partial:
        assert found.partial
        assert set(found.missing.values()) == {"interrupted"}
        for name, quantity in found.values.items():
            assert quantity.value == pytest.approx(whole[name], rel=1e-12)


def test_a_watch_does_not_keep_ctrl_c_from_the_training():
    module, batches = network(nn.ReLU())
    watch = ft.torch.Watch(module, batches, "cross_entropy", samples=4)
    ended = 0
    for found in pressed(
        lambda: watch._league(module, batches, ["trace"], ft.LeagueSettings()), module
    ):
        ended += found is None
    assert ended > 4


def test_inside_of_the_library_it_is_an_interrupt():
    module, batches = network(nn.Tanh())
    op = module_operator(module, batches, "cross_entropy")
    top_eigenvalues(op, 1, 0.5)  # Once derivatives were checked there is something to know.
    module.left[0] = 40
    with pytest.raises(Interrupted):
        top_eigenvalues(op, 1, 1e-10)
    module.left[0] = -1
    assert np.isfinite(op.mean_loss())
