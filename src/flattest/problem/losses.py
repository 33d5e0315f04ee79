"""Losses ℓ(f, y) with their first two derivatives in f, and what outputs f are to targets."""

from typing import ClassVar

import msgspec
import numpy as np

from flattest.errors import FlattestError, unknown
from flattest.problem.activations import sigmoid

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

    def check_labels(self, y) -> None:
        """Labels are all ±1, or all 0 and 1."""
        labels = np.unique(np.asarray(y))
        if not (np.isin(labels, [-1.0, 1.0]).all() or np.isin(labels, [0.0, 1.0]).all()):
            raise FlattestError("The logistic loss takes labels ±1, or 0 and 1; these are others.")


Loss = MSE | HalfMSE | Logistic
LOSSES: dict[str, type] = {kind.name: kind for kind in (MSE, HalfMSE, Logistic)}


def loss(name: "str | Loss") -> Loss:
    """The loss called `name` (mse, half_mse, logistic), or the loss itself where one is given."""
    if isinstance(name, Loss):
        return name
    if not isinstance(name, str) or name not in LOSSES:
        raise unknown("loss", name, LOSSES)
    return LOSSES[name]()


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


def zero_one_error(f, y) -> float:
    """Pr(y f ≤ 0): an output of 0 counts as wrong (wen2023, section 2, which prints the accuracy).

    Labels 0 and 1 are read as −1 and 1.
    """
    f, y = np.asarray(f), np.asarray(y)
    signs = 2 * y - 1 if np.isin(y, [0.0, 1.0]).all() else y
    return float(np.mean(signs * f <= 0))


def _signs(y):
    """±1 from labels ±1 or 0/1."""
    return 2 * (y > 0) - 1
