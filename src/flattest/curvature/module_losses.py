"""Losses of outputs f and targets y: per sample, with a factor of their Hessian in f.

L = Σ_i ℓ(f_i, y_i) / Σ_i m(f_i, y_i) over all samples: m = 1 for a mean over samples, the weight of
the label for class weights, 0 where a label is ignored; a loss that is a sum has no denominator.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from flattest.curvature.inputs import attempt, is_named, takes_classes
from flattest.curvature.loss_checks import Beside, beside, wrong_by
from flattest.errors import FlattestError
from flattest.problem.losses import CrossEntropy, Logistic, loss as flattest_loss

# Beyond this many outputs a loss without a closed form would need too large a Hessian.
MOST_OUTPUTS = 1024

_NOT_CONVEX = (
    "Random combinations of outputs need a loss that is convex in them; this one curves down "
    "somewhere."
)

_WRONG = (
    "PyTorch's {} derivatives of this loss are wrong (they are off the differences {} by {:.2g} of "
    "their size): a part of it is taken for a constant (detach, .item(), no_grad), or has a "
    "derivative of its own; write it without these."
)

OfBatch = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Factor(NamedTuple):
    """∇²_f ℓ_i = Σ_c σ_ic s_ic s_icᵀ: columns (n, outputs, c) and signs (n, c)."""

    columns: torch.Tensor
    signs: torch.Tensor


def count(f: torch.Tensor, y: torch.Tensor) -> float:
    return len(f)


@dataclass(frozen=True)
class SampleLoss:
    """`total` is Σ ℓ(f_i, y_i) over a batch, `factor` that of each ∇²_f ℓ_i, `mass` Σ m over the
    batch (None for a sum).

    A sample's outputs may have any shape; factors take them as one vector. `known`: by its form a
    sum over samples, which a user's own function is to be checked for. `closed`: whether its factor
    at these outputs has a closed form, for any number of them.
    """

    total: OfBatch
    factor: Callable[[torch.Tensor, torch.Tensor], Factor]
    mass: Callable[[torch.Tensor, torch.Tensor], float] | None = count
    known: bool = True
    closed: Callable[[torch.Tensor], bool] = lambda f: True
    # v = S ε for each sample, from random signs ε shaped like f, where S need not be formed.
    combined: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] | None = None

    def combination(self, f: torch.Tensor, y: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        """v = S ε for each sample, like f, with random signs ε: E v vᵀ = ∇²_f ℓ."""
        if self.combined is not None:
            return self.combined(f, y, _signs(f, rng))
        columns, signs = self.factor(f, y)
        if (signs < 0).any():
            raise FlattestError(_NOT_CONVEX)
        v = columns * signs[:, None]
        return (v @ _signs(v[:, 0], rng)[:, :, None])[:, :, 0].reshape(f.shape)


def _signs(like: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    drawn = torch.randint(0, 2, like.shape, generator=rng)
    return drawn.to(like.device, like.dtype).mul_(2).sub_(1)


# PyTorch's that are means, or sums, over entries.
_BY_ENTRY = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.BCELoss)
_FUNCTIONS: dict[Any, type] = {
    F.cross_entropy: nn.CrossEntropyLoss,
    F.nll_loss: nn.NLLLoss,
    F.mse_loss: nn.MSELoss,
    F.l1_loss: nn.L1Loss,
    F.smooth_l1_loss: nn.SmoothL1Loss,
    F.huber_loss: nn.HuberLoss,
    F.binary_cross_entropy_with_logits: nn.BCEWithLogitsLoss,
    F.multi_margin_loss: nn.MultiMarginLoss,
}


def sample_loss(loss: Any, dtype: torch.dtype = torch.float64) -> SampleLoss:
    """The loss by name (those of flattest and "cross_entropy"), one of PyTorch's, or any function
    of a batch's outputs and targets that is the mean of per-sample losses."""
    if is_named(loss):
        return _of_flattest(flattest_loss(loss))
    if takes_classes(loss):
        entropy = flattest_loss(loss)
        assert isinstance(entropy, CrossEntropy)
        loss = nn.CrossEntropyLoss(label_smoothing=entropy.smoothing)
    loss = _as_module(loss)
    if not callable(loss):
        raise FlattestError(f"A loss is a name or a function of outputs and targets, not {loss!r}.")
    if not isinstance(loss, nn.modules.loss._Loss):
        own = isinstance(loss, nn.Module)
        return _of_function(copy.deepcopy(loss).to(dtype) if own else loss)
    if loss.reduction not in ("mean", "sum", "batchmean"):
        raise FlattestError(
            f"{type(loss).__name__}(reduction={loss.reduction!r}) is not a number; use "
            "reduction='mean' or 'sum'."
        )
    loss = copy.deepcopy(loss).to(dtype)
    if _is(loss, nn.CrossEntropyLoss, nn.NLLLoss):
        return _by_label(loss)
    return _by_entry(loss) if _is_by_entry(loss) else _of_function(loss)


def _as_module(loss: Any) -> Any:
    """PyTorch's function of a loss, with settings or without, as its module."""
    function = loss.func if isinstance(loss, partial) and not loss.args else loss
    try:
        kind = _FUNCTIONS.get(function)
    except TypeError:  # Not hashable, so not one of PyTorch's.
        return loss
    return loss if kind is None else kind(**getattr(loss, "keywords", {}))


def _of_flattest(loss) -> SampleLoss:
    """ℓ(f, y) summed over the outputs of a sample."""

    def total(f, y):
        return loss.value(f.reshape(len(f), -1), _like_outputs(f, y)).sum()

    def factor(f, y):
        return _diagonal_factor(loss.curvature(f.reshape(len(f), -1), _like_outputs(f, y)))

    if isinstance(loss, Logistic):
        return _logistic(loss)
    return SampleLoss(total, factor)


def _logistic(loss: Logistic) -> SampleLoss:
    """log(1 + e^{−|f|}) and what is linear in f on either side of 0.

    The second derivative of PyTorch's logaddexp is NaN where |f| > 709, that of its softplus 0
    beyond 20 and without digits before.
    """

    def total(f, y):
        f, positive, p = f.reshape(len(f), -1), _like_outputs(f, y) > 0, loss.smoothing
        size = torch.where(f >= 0, f, -f)
        share = p + (1 - 2 * p) * (positive != (f >= 0)).to(f.dtype)
        return (F.softplus(-size) + share * size).sum()

    def factor(f, y):
        f = f.reshape(len(f), -1)
        return _diagonal_factor(torch.sigmoid(f) * torch.sigmoid(-f))

    return SampleLoss(total, factor)


def _like_outputs(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _shaped(f, y).reshape(len(f), -1).to(f.dtype)


def _shaped(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The targets in the outputs' shape: (n, 1) beside (n,) would be broadcast to (n, n)."""
    if y.numel() != f.numel():
        raise FlattestError(
            f"Outputs of shape {tuple(f.shape)} do not match targets of shape {tuple(y.shape)}; "
            "class labels go with the loss 'cross_entropy'."
        )
    return y.reshape(f.shape)


def _is_by_entry(loss: nn.Module) -> bool:
    return _is(loss, *_BY_ENTRY) and getattr(loss, "weight", None) is None


def _is(loss: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether it computes what one of these does: a subclass may compute anything."""
    forward = vars(loss).get("forward", type(loss).forward)
    return any(isinstance(loss, kind) and forward is kind.forward for kind in kinds)


def _by_entry(loss: nn.Module) -> SampleLoss:
    """The mean (or sum) over all entries of a function of each."""
    mean = loss.reduction == "mean"

    def total(f, y):
        return loss(f, _shaped(f, y)) * (len(f) if mean else 1)

    def square(f, y):
        return _constant_factor(f, 2 / (f[0].numel() if mean else 1))

    squares = isinstance(loss, nn.MSELoss)
    factor = square if squares else _autograd_factor(total)
    return SampleLoss(total, factor, count if mean else None, closed=lambda f: squares)


def _constant_factor(f: torch.Tensor, curvature: float) -> Factor:
    return _diagonal_factor(torch.full_like(f.reshape(len(f), -1), curvature))


def _diagonal_factor(curvature: torch.Tensor) -> Factor:
    return Factor(torch.diag_embed(curvature.abs().sqrt()), curvature.sign())


def _by_label(loss: nn.CrossEntropyLoss | nn.NLLLoss) -> SampleLoss:
    """Cross-entropy and its kin, with class weights and labels that are ignored: PyTorch's mean is
    over labels, each counting by its weight, or, for soft labels, over samples."""
    summed = copy.copy(loss)
    summed.reduction = "sum"

    def total(f, y):
        return summed(*_classes_second(f, y))

    def factor(f, y):
        if not closed(f):
            return by_autograd(f, y)
        return _softmax_factor(f, _label_mass(loss, *_classes_second(f, y)))

    def mass(f, y):
        f, y = _classes_second(f, y)
        if y.is_floating_point():
            return y.numel() / f.shape[1]
        return float(_weight_of(loss, f, y).sum())

    def combined(f, y, signs):
        """√m (√p ⊙ ε − p (√p · ε)) for each label."""
        moved, labels = _classes_second(f, y)
        axis = 1 if moved is f else f.dim() - 1
        mass = _label_mass(loss, moved, labels).unsqueeze(axis)
        if (mass < 0).any():
            raise FlattestError(_NOT_CONVEX)
        p = torch.softmax(f, axis)
        v = p.sqrt() * signs
        return mass.sqrt() * (v - p * v.sum(axis, keepdim=True))

    by_autograd = _autograd_factor(total)
    # Beyond one label per sample the factor is dense.
    closed = lambda f: f.dim() == 2 and isinstance(loss, nn.CrossEntropyLoss)  # noqa: E731
    entropy = isinstance(loss, nn.CrossEntropyLoss)
    return SampleLoss(
        total,
        factor,
        mass if loss.reduction == "mean" else None,
        closed=closed,
        combined=combined if entropy else None,
    )


def _classes_second(f: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As PyTorch has them: outputs (n, classes, …), labels (n, …) or, if soft, (n, classes, …).
    Labels (n, 1) are read as (n,); classes that come last, as in language models, are moved."""
    if y.is_floating_point():
        return f, y
    if f.dim() == 2 and y.shape == (len(f), 1):
        return f, y[:, 0]
    first, last = f.shape[:1] + f.shape[2:] == y.shape, f.shape[:-1] == y.shape
    return (f.movedim(-1, 1), y) if last and not first else (f, y)


def _weight_of(loss, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """w of each label, 0 where it is ignored."""
    counted = y != loss.ignore_index
    if loss.weight is None:
        return counted.to(f.dtype)
    return loss.weight.to(f.device)[y.where(counted, 0)] * counted


def _label_mass(loss: nn.CrossEntropyLoss, f, y) -> torch.Tensor:
    """ℓ_i = −Σ_c q_c log p_c has the Hessian m (diag p − p pᵀ) with m = Σ_c q_c: for a label y
    smoothed by s, (1 − s) w_y + s · mean w; for soft labels Σ_c w_c ((1 − s) y_c + s / C)."""
    s, classes = loss.label_smoothing, f.shape[1]
    w = f.new_ones(classes) if loss.weight is None else loss.weight.to(f.device)
    if y.is_floating_point():
        return torch.tensordot((1 - s) * y + s / classes, w, ([1], [0]))
    return ((1 - s) * _weight_of(loss, f, y) + s * w.mean()) * (y != loss.ignore_index)


def _softmax_factor(f: torch.Tensor, mass: torch.Tensor) -> Factor:
    """m (diag p − p pᵀ), m being a label's mass, of rank C − 1: its Cholesky factor is known.

    With q_c = Σ_{j>c} p_j, column c < C is √(m p_c / (q_c q_{c−1})) (q_c e_c − Σ_{j>c} p_j e_j)
    (Tanabe and Sagae 1992). Classes in ascending order of p keep every q_c ≥ p_C ≥ 1/C.
    """
    p, order = torch.softmax(f, dim=1).sort(dim=1)
    tail = p.flip(1).cumsum(1).flip(1)  # q_{c−1}
    q = tail[:, 1:]
    roots = (mass.abs()[:, None] * p[:, :-1] / (q * tail[:, :-1])).sqrt()
    columns = torch.tril(p[:, :, None].expand(-1, -1, f.shape[1] - 1), -1).neg_()
    columns.diagonal(dim1=1, dim2=2).copy_(q)
    columns *= roots[:, None]
    back = order.argsort(1)[:, :, None].expand_as(columns)
    return Factor(columns.gather(1, back), mass.sign()[:, None].expand_as(q))


def _of_function(loss: Callable) -> SampleLoss:
    """A user's own, taken for the mean over a batch; one of PyTorch's that is a sum says so."""
    mean = getattr(loss, "reduction", "mean") != "sum"

    def total(f, y):
        return loss(f, y) * (len(f) if mean else 1)

    factor = _autograd_factor(total)
    return SampleLoss(total, factor, count if mean else None, known=False, closed=lambda f: False)


def check_derivatives(total: OfBatch, f: torch.Tensor, y: torch.Tensor) -> None:
    """Raises a sentence where PyTorch's first and second derivatives of a loss in the outputs are
    not those of its values, a little off the outputs: along a direction, by differences."""
    near = beside(f.detach().cpu().numpy())
    v = torch.as_tensor(near.direction).to(f)

    def of(at: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        moved = torch.as_tensor(at).to(f).requires_grad_()
        gradient = partial(torch.autograd.grad, create_graph=True, materialize_grads=True)
        (g,) = gradient(total(moved, y), moved)
        return moved, g

    with torch.enable_grad():
        at, g = attempt("The loss cannot be differentiated", of, near.f)
        _check_slope(total, y, near, (g * v).detach())
        Hv = torch.zeros_like(f)
        if g.requires_grad:
            gradient = partial(torch.autograd.grad, materialize_grads=True)
            twice = "The loss cannot be differentiated twice"
            (Hv,) = attempt(twice, gradient, (g * v).sum(), at)
        slopes = lambda at: of(at)[1].detach().cpu().numpy()  # noqa: E731
        if wrong := wrong_by(Hv.cpu().numpy(), slopes, near):
            raise FlattestError(_WRONG.format("second", "of its first", wrong))


@torch.no_grad()
def _check_slope(total: OfBatch, y: torch.Tensor, near: Beside, parts: torch.Tensor) -> None:
    """The sum of `parts`, ∇_f ℓ_i ⊙ z_i, against differences of values, over the samples that have
    slopes: others may have no value either."""
    rows = parts.reshape(len(parts), -1).isfinite().all(1)
    parts = parts[rows]

    def value(step: float) -> float:
        return float(total(torch.as_tensor(near.moved(step)).to(parts)[rows], y[rows]))

    allowed = float(parts.norm()) + 1e-3 * abs(value(0))

    def missed(step: float) -> float:
        slope = (value(step) - value(-step)) / (2 * step)
        return abs(slope - float(parts.sum())) / (allowed or 1.0)

    found = [missed(10.0**-power) for power in (6, 7, 5, 8, 4)] if rows.any() else []
    least = min(filter(math.isfinite, found), default=0.0)
    if least > 1e-4:
        raise FlattestError(_WRONG.format("first", "of its values", least))


def _autograd_factor(total: OfBatch) -> Callable[[torch.Tensor, torch.Tensor], Factor]:
    def factor(f, y):
        if (outputs := f[0].numel()) > MOST_OUTPUTS:
            raise FlattestError(
                f"A loss of one's own may have at most {MOST_OUTPUTS} outputs, not {outputs}."
            )
        with torch.enable_grad():
            hessians = torch.stack([_hessian(total, a, b) for a, b in zip(f, y, strict=True)])
        values, vectors = torch.linalg.eigh(hessians)
        return Factor(vectors * values.abs().sqrt()[:, None], values.sign())

    return factor


def _hessian(total: OfBatch, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    value = torch.autograd.functional.hessian(lambda a: total(a[None], y[None]), f)
    value = value.reshape(f.numel(), f.numel())
    return 0.5 * (value + value.T)
