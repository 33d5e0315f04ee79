"""The least Gauss–Newton trace over GL(h) of attention heads."""

import copy

import numpy as np
import pytest
from scipy.optimize import minimize

import flattest as ft
from flattest.rescaling.general_linear import least
from support.modules import MARKS, nn, one_thread, torch  # noqa: F401

pytest.importorskip("torch", exc_type=ImportError)
from flattest.curvature.modules import module_operator  # noqa: E402
from flattest.flatness.attention import Block, Pair, flattest_heads, pairs_of  # noqa: E402

pytestmark = MARKS


class Attending(nn.Module):
    """Blocks of attention with a residual sum, LayerNorm and a ReLU layer."""

    def __init__(self, heads, blocks, norm, width=6, words=9):
        super().__init__()
        self.words = nn.Embedding(words, width)
        made = lambda: nn.MultiheadAttention(width, heads, batch_first=True)  # noqa: E731
        self.attention = nn.ModuleList(made() for _ in range(blocks))
        self.norms = nn.ModuleList(norm(width) for _ in range(blocks))
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.last = nn.Linear(width, words, bias=False)
        self.last.weight = self.words.weight
        for p in self.parameters():
            nn.init.normal_(p, std=0.5)

    def forward(self, x):
        h = self.words(x)
        mask = torch.full((x.shape[1],) * 2, -torch.inf, dtype=h.dtype).triu(1)
        for attention, norm, inner in zip(self.attention, self.norms, self.inner, strict=True):
            z = norm(h)
            h = h + attention(z, z, z, attn_mask=mask, need_weights=False)[0]
            h = h + torch.relu(inner(h))
        return self.last(h)


# Behind a LayerNorm keys differ within a space of one dimension less than the width: with one head
# as wide N is singular, and the infimum not attained.
NETWORKS = {
    "one head": (1, 1, nn.Identity),
    "three heads": (3, 1, nn.LayerNorm),
    "two blocks, two heads each": (2, 2, nn.LayerNorm),
}


def made(name):
    torch.manual_seed(0)
    module = Attending(*NETWORKS[name]).double()
    x, y = torch.randint(0, 9, (2, 3, 5))
    return module, (x, y), nn.CrossEntropyLoss()


@torch.no_grad()
def _changed(module, pair, A):
    """The same function: a pair times a matrix and its inverse."""
    changed = copy.deepcopy(module)
    parameters = dict(changed.named_parameters())
    for blocks, by in ((pair.left, A), (pair.right, np.linalg.inv(A).T)):
        for block in blocks:
            block.multiplied(parameters[block.name].data, by)
    return changed


@pytest.mark.parametrize("name", NETWORKS)
def test_the_least_is_attained_keeps_the_outputs_and_no_change_of_heads_moves_it(name):
    module, data, loss = made(name)
    found = ft.torch.least_over_heads(module, data, loss)
    again = ft.torch.gauss_newton_trace(found.rescaled, data, loss, rtol=0).value
    assert found.trace == pytest.approx(
        ft.torch.gauss_newton_trace(module, data, loss, rtol=0).value, rel=1e-10
    )
    assert found.value < 0.999 * found.trace
    assert found.attained == pytest.approx(found.value, rel=1e-9)
    assert again == pytest.approx(found.value, rel=1e-8)
    assert torch.allclose(found.rescaled(data[0]), module(data[0]), rtol=1e-8, atol=1e-10)
    other, rng = module, np.random.default_rng(0)
    for pair in pairs_of(module):
        h = pair.left[0].size
        other = _changed(other, pair, np.eye(h) + rng.normal(size=(h, h)))
    assert torch.allclose(other(data[0]), module(data[0]), rtol=1e-8, atol=1e-10)
    elsewhere = ft.torch.least_over_heads(other, data, loss)
    assert elsewhere.trace > 1.01 * found.trace
    assert elsewhere.value == pytest.approx(found.value, rel=1e-8)


@pytest.mark.slow
def test_a_general_optimizer_over_all_matrices_finds_no_less_in_the_network_itself():
    """Tr G of the changed module, measured anew, over A of one head's queries and keys."""
    module, data, loss = made("three heads")
    (pair, *_) = pairs_of(module)
    found = flattest_heads(module_operator(module, data, loss), [pair])

    def trace(entries):
        op = module_operator(_changed(module, pair, entries.reshape(2, 2)), data, loss)
        return float(op.gauss_newton_shares().sum())

    best = minimize(
        trace, np.array([1.0, 0.2, -0.1, 0.8]), method="Nelder-Mead", options={"maxfev": 60}
    )
    assert best.fun > found.value - 1e-9
    assert trace(found.pairs[0][1].A.reshape(-1)) == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("h", [1, 2, 3])
def test_the_closed_form_is_what_an_optimizer_over_all_matrices_finds(h):
    rng = np.random.default_rng(h)
    N, M = (F @ F.T for F in rng.normal(size=(2, h, h + 1)))

    def value(entries):
        A = entries.reshape(h, h)
        back = np.linalg.inv(A)
        return np.trace(back @ N @ back.T) + np.trace(A.T @ M @ A)

    starts = [np.eye(h) + 0.3 * rng.normal(size=(h, h)) for _ in range(4)]
    best = min(minimize(value, s.reshape(-1), tol=1e-12).fun for s in starts)
    found = least(N, M)
    assert best == pytest.approx(found.value, rel=1e-6)
    assert value(found.A) == pytest.approx(found.value, rel=1e-12)
    assert found.attained == pytest.approx(found.value, rel=1e-12)


def test_where_a_matrix_is_singular_the_infimum_is_approached_only():
    found = least(np.diag([1.0, 0.0]), np.diag([4.0, 1.0]))
    assert found.value == pytest.approx(4.0, rel=1e-12)
    assert 4.0 < found.attained < 4.001


def test_blocks_that_are_no_symmetry_are_refused():
    module, data, loss = made("one head")
    wrong = Pair((Block("inner.0.weight", 0, 0, 3),), (Block("last.weight", 1, 0, 3),))
    with pytest.raises(ft.FlattestError, match="trains no parameter last.weight"):
        ft.torch.least_over_heads(module, data, loss, pairs=[wrong])
    wrong = Pair((Block("inner.0.weight", 0, 0, 3),), (Block("words.weight", 1, 0, 3),))
    with pytest.raises(ft.FlattestError, match="no symmetry"):
        ft.torch.least_over_heads(module, data, loss, pairs=[wrong])
    twice = pairs_of(module)[:1] * 2
    with pytest.raises(ft.FlattestError, match="in two of the pairs"):
        ft.torch.least_over_heads(module, data, loss, pairs=twice)
    with pytest.raises(ft.FlattestError, match="No attention heads"):
        ft.torch.least_over_heads(nn.Linear(2, 1), (torch.randn(3, 2), torch.randn(3, 1)))
