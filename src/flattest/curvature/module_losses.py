"""Losses of outputs f and targets y: per sample, with a factor of their Hessian in f."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from flattest.curvature.inputs import is_named, takes_classes
from flattest.errors import FlattestError
from flattest.problem.losses import CrossEntropy, Logistic, loss as flattest_loss

# Beyond this many outputs a loss without a closed form would need too large a Hessian.
MOST_OUTPUTS = 1024


class Factor(NamedTuple):
    """∇²_f ℓ_i = Σ_c σ_ic s_ic s_icᵀ: columns (n, outputs, c) and signs (n, c)."""

    columns: torch.Tensor
    signs: torch.Tensor


@dataclass(frozen=True)
class MeanLoss:
    """L = (1/n) Σ ℓ(f_i, y_i): `of_batch` is the mean over a batch, `factor` that of ∇²_f ℓ_i.

    A sample's outputs may have any shape; factors take them as one vector.
    """

    of_batch: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    factor: Callable[[torch.Tensor, torch.Tensor], Factor]


def mean_loss(loss) -> MeanLoss:
    """The loss by name (those of flattest and "cross_entropy"), or from any function of a batch's
    outputs and targets that is the mean of per-sample losses, such as PyTorch's."""
    if is_named(loss):
        return _of_flattest(flattest_loss(loss))
    if takes_classes(loss):
        entropy = flattest_loss(loss)
        assert isinstance(entropy, CrossEntropy)
        return _cross_entropy(nn.CrossEntropyLoss(label_smoothing=entropy.smoothing))
    if isinstance(loss, nn.MSELoss | nn.CrossEntropyLoss) and loss.reduction != "mean":
        raise FlattestError(
            f"{type(loss).__name__}(reduction={loss.reduction!r}) is not the mean of its samples' "
            "losses; use reduction='mean'."
        )
    if isinstance(loss, nn.MSELoss):
        return MeanLoss(loss, lambda f, y: _constant_factor(f, 2 / f[0].numel()))
    if isinstance(loss, nn.CrossEntropyLoss):
        if loss.weight is not None:
            raise FlattestError(
                "CrossEntropyLoss with class weights is not the mean of its samples' losses; "
                "leave the weights out."
            )
        return _cross_entropy(loss)
    if not callable(loss):
        raise FlattestError(f"A loss is a name or a function of outputs and targets, not {loss!r}.")
    return MeanLoss(loss, _autograd_factor(loss))


def _of_flattest(loss) -> MeanLoss:
    """ℓ(f, y) summed over the outputs of a sample."""

    def of_batch(f, y):
        values = loss.value(f.reshape(len(f), -1), _like_outputs(f, y))
        return values.sum(1).mean()

    def factor(f, y):
        return _diagonal_factor(loss.curvature(f.reshape(len(f), -1), _like_outputs(f, y)))

    if isinstance(loss, Logistic):
        return _logistic(loss)
    return MeanLoss(of_batch, factor)


def _logistic(loss: Logistic) -> MeanLoss:
    """log(1 + e^{−|f|}) and what is linear in f on either side of 0.

    The second derivative of PyTorch's logaddexp is NaN where |f| > 709, that of its softplus 0
    beyond 20 and without digits before.
    """

    def of_batch(f, y):
        f, positive, p = f.reshape(len(f), -1), _like_outputs(f, y) > 0, loss.smoothing
        size = torch.where(f >= 0, f, -f)
        share = p + (1 - 2 * p) * (positive != (f >= 0)).to(f.dtype)
        return (nn.functional.softplus(-size) + share * size).sum(1).mean()

    def factor(f, y):
        f = f.reshape(len(f), -1)
        return _diagonal_factor(torch.sigmoid(f) * torch.sigmoid(-f))

    return MeanLoss(of_batch, factor)


def _like_outputs(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if y.numel() != f.numel():
        raise FlattestError(
            f"Outputs of shape {tuple(f.shape)} do not match targets of shape {tuple(y.shape)}; "
            "class labels go with the loss 'cross_entropy'."
        )
    return y.reshape(len(f), -1).to(f.dtype)


def _constant_factor(f: torch.Tensor, curvature: float) -> Factor:
    return _diagonal_factor(torch.full_like(f.reshape(len(f), -1), curvature))


def _diagonal_factor(curvature: torch.Tensor) -> Factor:
    return Factor(torch.diag_embed(curvature.abs().sqrt()), curvature.sign())


def _cross_entropy(loss: nn.CrossEntropyLoss) -> MeanLoss:
    """In closed form where a sample has one label, hard or soft; segmentation etc. by autograd."""
    by_autograd = _autograd_factor(loss)

    def check(y):
        if (y == loss.ignore_index).any():
            raise FlattestError(
                f"Targets that CrossEntropyLoss ignores ({loss.ignore_index}) make it no mean over "
                "all samples; remove those samples."
            )

    def of_batch(f, y):
        check(y)
        return loss(f, y)

    def factor(f, y):
        check(y)
        if f.dim() != 2:
            return by_autograd(f, y)
        if not y.is_floating_point():
            return _softmax_factor(f, torch.ones_like(f[:, 0]))
        smoothing = loss.label_smoothing
        return _softmax_factor(f, (1 - smoothing) * y.sum(1) + smoothing)

    return MeanLoss(of_batch, factor)


def _softmax_factor(f: torch.Tensor, mass: torch.Tensor) -> Factor:
    """m (diag p − p pᵀ) = Σ_c s_c s_cᵀ with s_c = √(m p_c) (e_c − p), m being a label's mass."""
    p = torch.softmax(f, dim=1)
    roots = (mass.abs()[:, None] * p).sqrt()
    across = torch.eye(f.shape[1], dtype=f.dtype, device=f.device) - p[:, :, None]
    return Factor(across * roots[:, None], mass.sign()[:, None].expand_as(p))


def _autograd_factor(loss: Callable) -> Callable[[torch.Tensor, torch.Tensor], Factor]:
    def factor(f, y):
        if (outputs := f[0].numel()) > MOST_OUTPUTS:
            raise FlattestError(
                f"A loss of one's own may have at most {MOST_OUTPUTS} outputs, not {outputs}."
            )
        with torch.enable_grad():
            hessians = torch.stack([_hessian(loss, a, b) for a, b in zip(f, y, strict=True)])
        values, vectors = torch.linalg.eigh(hessians)
        return Factor(vectors * values.abs().sqrt()[:, None], values.sign())

    return factor


def _hessian(loss: Callable, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    value = torch.autograd.functional.hessian(lambda a: loss(a[None], y[None]), f)
    value = value.reshape(f.numel(), f.numel())
    return 0.5 * (value + value.T)
