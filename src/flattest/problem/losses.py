"""Losses ℓ(f, y) with their first two derivatives in f, and what outputs f are to targets.

A network has one output per sample, f (n,), or several, f (n, k), over which the squared losses and
the logistic loss are sums; y has the shape of f. The cross-entropy takes one class y per sample.
"""

from typing import ClassVar

import msgspec
import numpy as np

from flattest.errors import FlattestError, unknown
from flattest.machine import later
from flattest.problem.activations import sigmoid
from flattest.problem.checks import check_count

nn, special = later("jax.nn"), later("scipy.special")
INTERPOLATION = 1e-10
"""An interpolator misses no target by more than this share of the largest."""
NEAR = 1e-3
"""Near a minimum no target is missed by more than this, or this share of the largest."""


class _SquaredError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ℓ = factor · (f − y)²."""

    factor: ClassVar[float]

    def value(self, f, y):
        return self.factor * (f - y) ** 2

    def slope(self, f, y):
        return 2 * self.factor * (f - y)

    def curvature(self, f, y):
        return 2 * self.factor + 0 * f

    def target(self, y):
        """The output that minimizes ℓ."""
        return y

    def floor(self, y):
        """The least value of ℓ."""
        return 0 * y

    def constant(self, y):
        """The constant output that has the least mean of ℓ."""
        return np.mean(y, axis=0)

    def seen(self, f):
        """What of the outputs decides ℓ: all of them."""
        return f

    def check_labels(self, y) -> None:
        """Every finite label will do."""


class MSE(_SquaredError, frozen=True, tag="mse"):
    """ℓ = (f − y)², the convention of wen2023: L is the plain mean, no ½."""

    name: ClassVar[str] = "mse"
    factor: ClassVar[float] = 1.0


class HalfMSE(_SquaredError, frozen=True, tag="half_mse"):
    """ℓ = ½(f − y)², the convention of mulayoff2021."""

    name: ClassVar[str] = "half_mse"
    factor: ClassVar[float] = 0.5


class Logistic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="logistic"):
    """Logistic loss with label smoothing p (wen2023, Definition A.2 with p and 1 − p put right).

    ℓ = (1 − p) log(1 + e^{−yf}) + p log(1 + e^{yf}) for y = ±1 (labels 0 are read as −1): the
    given label has target probability 1 − p, so that yf = γ_p = log((1 − p)/p) is the minimizer.
    """

    smoothing: float = 0.2
    name: ClassVar[str] = "logistic"

    def __post_init__(self):
        if not 0 <= self.smoothing < 0.5:
            raise FlattestError(f"Label smoothing must lie in [0, 0.5), not {self.smoothing!r}.")

    def value(self, f, y):
        xp, s = f.__array_namespace__(), _signs(y)
        wrong, right = xp.logaddexp(0 * f, -s * f), xp.logaddexp(0 * f, s * f)
        return (1 - self.smoothing) * wrong + self.smoothing * right

    # 1 − 1/(1 + e^{−t}) is 1/(1 + e^t), which keeps the digits that the difference loses.
    def slope(self, f, y):
        s, p = _signs(y), self.smoothing
        return s * (p * sigmoid(s * f) - (1 - p) * sigmoid(-s * f))

    def curvature(self, f, y):
        return sigmoid(f) * sigmoid(-f)

    def target(self, y):
        """±γ_p, the output that minimizes ℓ; infinite without smoothing."""
        p = self.smoothing
        return _signs(y) * (np.log((1 - p) / p) if p > 0 else np.inf)

    def floor(self, y):
        """The least value of ℓ, the entropy of p."""
        p = self.smoothing
        entropy = -p * np.log(p) - (1 - p) * np.log(1 - p) if p > 0 else 0.0
        return 0 * y + entropy

    def constant(self, y):
        """The mean target, not too large: about the best constant output."""
        return np.mean(np.clip(self.target(y), -1e3, 1e3), axis=0)

    def seen(self, f):
        """What of the outputs decides ℓ: all of them."""
        return f

    def check_labels(self, y) -> None:
        """Labels are all ±1, or all 0 and 1."""
        labels = np.unique(np.asarray(y))
        if not (np.isin(labels, [-1.0, 1.0]).all() or np.isin(labels, [0.0, 1.0]).all()):
            raise FlattestError("The logistic loss takes labels ±1, or 0 and 1; these are others.")


class CrossEntropy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cross_entropy"):
    """ℓ = −Σ_c q_c log softmax(f)_c, q = 1 − s + s/k at the class y and s/k elsewhere, for
    smoothing s over k `classes` (PyTorch's convention); y is one of 0 … k − 1.

    Without smoothing ℓ has no minimizer: it falls to 0 as the outputs grow. With it, f_y exceeds
    the other outputs by γ = log(1 + k(1 − s)/s); adding a number to all outputs changes nothing.
    """

    classes: int | None = None
    smoothing: float = 0.0
    name: ClassVar[str] = "cross_entropy"

    def __post_init__(self):
        if self.classes is not None:
            count = check_count("The number of classes", self.classes, 2)
            msgspec.structs.force_setattr(self, "classes", count)
        if not 0 <= self.smoothing < 1:
            raise FlattestError(f"Label smoothing must lie in [0, 1), not {self.smoothing!r}.")
        if self.smoothing and self.classes is None:
            raise FlattestError(
                "Smoothing is over all classes: say how many, as CrossEntropy(10, smoothing=0.1)."
            )

    def value(self, f, y):
        logs = special.log_softmax(f, -1) if isinstance(f, np.ndarray) else nn.log_softmax(f, -1)
        right = f.__array_namespace__().take_along_axis(logs, y.astype(int)[:, None], -1)[:, 0]
        if not self.smoothing:
            return -right
        return -(1 - self.smoothing) * right - self.smoothing * logs.mean(-1)

    def slope(self, f, y):
        """For one output only, as the curvature; this loss has several."""
        raise self._one_output_only

    def curvature(self, f, y):
        raise self._one_output_only

    def target(self, y):
        """Outputs (n, k) that minimize ℓ, γ at the class; without smoothing infinite."""
        if not self.smoothing:
            return np.full(np.shape(y), np.inf)
        height = np.log1p(self._k * (1 - self.smoothing) / self.smoothing)
        return height * np.eye(self._k)[np.asarray(y).astype(int)]

    def floor(self, y):
        """The least value of ℓ, the entropy of q."""
        return 0.0 * y if not self.smoothing else self.value(self.target(y), np.asarray(y))

    def constant(self, y):
        """log of the mean of q; of a class that never occurs, 1e-9."""
        y, k = np.asarray(y).astype(int), self.classes or int(np.max(y)) + 1
        share = (1 - self.smoothing) * np.bincount(y, minlength=k) / len(y) + self.smoothing / k
        return np.log(np.maximum(share, 1e-9))

    def seen(self, f):
        """What of the outputs decides ℓ: their differences to the last one."""
        return f[..., :-1] - f[..., -1:]

    def check_labels(self, y) -> None:
        """Labels are whole numbers from 0 on, below the number of classes where that is known."""
        y = np.asarray(y)
        if y.ndim != 1 or not (y == np.round(y)).all() or y.min() < 0:
            raise FlattestError(
                "The cross-entropy takes one class per sample, a whole number from 0 on; these are "
                "other labels."
            )
        if self.classes is not None and y.max() >= self.classes:
            raise FlattestError(
                f"There is a label {int(y.max())}; {self.classes} classes are 0 … "
                f"{self.classes - 1}."
            )

    @property
    def _one_output_only(self) -> FlattestError:
        return FlattestError(
            "This is for networks with one output; the cross-entropy has one output per class."
        )

    @property
    def _k(self) -> int:
        assert self.classes is not None  # smoothing asks for it
        return self.classes


Loss = MSE | HalfMSE | Logistic | CrossEntropy
LOSSES: dict[str, type] = {kind.name: kind for kind in (MSE, HalfMSE, Logistic, CrossEntropy)}


def loss(name: "str | Loss") -> Loss:
    """The loss called `name` (mse, half_mse, logistic, cross_entropy), or the loss itself where one
    is given."""
    if isinstance(name, Loss):
        return name
    if not isinstance(name, str) or name not in LOSSES:
        raise unknown("loss", name, LOSSES)
    return LOSSES[name]()


def per_sample(ell: Loss, f, y):
    """ℓ(f_i, y_i) for each sample, the sum over its outputs."""
    values = ell.value(f, y)
    return values if values.ndim == 1 else values.sum(-1)


def check_outputs(ell: Loss, f_shape: tuple[int, ...], y: np.ndarray) -> None:
    """Raises unless outputs of this shape are what the loss takes with these labels."""
    n, *outputs = f_shape if f_shape else (0,)
    classes = isinstance(ell, CrossEntropy)
    if isinstance(ell, CrossEntropy) and n == len(y) and len(outputs) == 1 and outputs[0] > 1:
        count = ell.classes or outputs[0]
        if outputs[0] == count and y.max() < count:
            return
        raise FlattestError(
            f"The model has {outputs[0]} outputs, one per class, where the labels go to "
            f"{int(y.max())}{f' and the loss has {count} classes' if ell.classes else ''}."
        )
    if not classes and tuple(f_shape) == y.shape:
        return
    wanted = f"({len(y)}, number of classes)" if classes else f"{y.shape}"
    per_point = "one output per point" if y.ndim == 1 and not classes else "a row per point"
    raise FlattestError(
        f"With these labels and {ell.name} the model must give {per_point}, shape {wanted}, not "
        f"{tuple(f_shape)}."
    )


def interpolates(f, target) -> bool:
    """Whether max |f_i − t_i| ≤ 1e-10 · max |t_i|, with finite targets t.

    Targets that are all 0 have no scale: only outputs of exactly 0 will do.
    """
    f, t = np.asarray(f), np.asarray(target)
    return bool(np.abs(f - t).max() <= INTERPOLATION * np.abs(t).max() < np.inf)


def require_near_minimum(f, target) -> None:
    """Raises unless max |f_i − t_i| ≤ 1e-3 · max(1, max |t_i|).

    That near to a minimum the Gauss–Newton matrix is the Hessian to about three digits, and what is
    said of minima can be said of parameters that training ended at.
    """
    miss = np.abs(np.asarray(f) - target).max()
    if not miss <= NEAR * max(1.0, np.abs(target).max()):
        raise FlattestError(
            f"The network misses a target by {miss:.3g}, too far from a minimum for ∇²L to be the "
            "Gauss–Newton matrix: train it to a smaller loss first."
        )


def wrong(f, y) -> np.ndarray:
    """For each sample whether it is classified wrongly.

    One output: y f ≤ 0, so that an output of 0 counts as wrong (wen2023, section 2, which prints
    the accuracy); labels 0 and 1 are read as −1 and 1. Several: unless the output of the class, y
    or the place of the largest of several labels, exceeds all others.
    """
    f, y = np.asarray(f), np.asarray(y)
    if f.ndim == 1:
        signs = 2 * y - 1 if ((y == 0) | (y == 1)).all() else y
        return signs * f <= 0
    label = (y.argmax(-1) if y.ndim > 1 else y.astype(int))[:, None]
    others = f.copy()
    np.put_along_axis(others, label, -np.inf, -1)
    return ~(np.take_along_axis(f, label, -1)[:, 0] > others.max(-1))


def zero_one_error(f, y) -> float:
    """The share of samples that are classified wrongly."""
    return float(np.mean(wrong(f, y)))


def _signs(y):
    """±1 from labels ±1 or 0/1."""
    return 2 * (y > 0) - 1
