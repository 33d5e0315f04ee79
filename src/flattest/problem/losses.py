"""Losses ℓ(f, y) with their first two derivatives in f, and the zero-one error."""

from typing import ClassVar

import msgspec
import numpy as np

from flattest.errors import FlattestError, unknown


class MSE(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="mse"):
    """ℓ = (f − y)², the convention of wen2023: L is the plain mean, no ½."""

    name: ClassVar[str] = "mse"

    def value(self, f, y):
        return (f - y) ** 2

    def slope(self, f, y):
        return 2 * (f - y)

    def curvature(self, f, y):
        return 2 + 0 * f

    def target(self, y):
        """The output that minimizes ℓ."""
        return y

    def floor(self, y):
        """The least value of ℓ."""
        return 0 * y

    def check_labels(self, y) -> None:
        """Every finite label will do."""


class HalfMSE(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="half_mse"):
    """ℓ = ½(f − y)², the convention of mulayoff2021."""

    name: ClassVar[str] = "half_mse"

    def value(self, f, y):
        return 0.5 * (f - y) ** 2

    def slope(self, f, y):
        return f - y

    def curvature(self, f, y):
        return 1 + 0 * f

    def target(self, y):
        """The output that minimizes ℓ."""
        return y

    def floor(self, y):
        """The least value of ℓ."""
        return 0 * y

    def check_labels(self, y) -> None:
        """Every finite label will do."""


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

    def slope(self, f, y):
        s = _signs(y)
        return s * (_sigmoid(s * f) - (1 - self.smoothing))

    def curvature(self, f, y):
        q = _sigmoid(f)
        return q * (1 - q)

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


INTERPOLATION = 1e-10
"""An interpolator misses no target by more than this share of the largest."""


def interpolates(f, target) -> bool:
    """max |f − t| ≤ INTERPOLATION · max |t|, t being the outputs that minimize the loss.

    Targets that are all 0 have no scale: only outputs of exactly 0 will do.
    """
    return bool(np.abs(f - target).max() <= INTERPOLATION * np.abs(target).max())


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


def _sigmoid(t):
    # tanh, because exp(−t) overflows for t ≪ 0.
    return 0.5 * (1 + t.__array_namespace__().tanh(0.5 * t))
