"""Univariate ReLU networks as piecewise-linear functions: their knots and f″ (mulayoff2021)."""

from dataclasses import dataclass

import numpy as np

from flattest.errors import FlattestError

SHAPES = "W1 (k, 1) or (k,), b1 (k,), W2 (k,) and b_out ()"


@dataclass(frozen=True)
class UnivariateNetwork:
    """f(x) = Σ_i w2_i σ(w1_i x + b1_i) + b2 with σ the ReLU and x ∈ R (mulayoff2021, S43)."""

    w1: np.ndarray
    b1: np.ndarray
    w2: np.ndarray
    b2: float

    @classmethod
    def of(cls, params: "dict | UnivariateNetwork") -> "UnivariateNetwork":
        """The network with parameters W1 (k, 1), b1 (k,), W2 (k,), b_out ()."""
        if isinstance(params, UnivariateNetwork):
            return params
        missing = {"W1", "b1", "W2", "b_out"} - set(params)
        if missing:
            raise FlattestError(
                f"A univariate network needs the parameters {SHAPES}; missing: {sorted(missing)}."
            )
        w1, b1, w2 = (np.asarray(params[name], float) for name in ("W1", "b1", "W2"))
        if w1.shape not in {(w2.size, 1), (w2.size,)} or not w1.size == b1.size == w2.size:
            raise FlattestError(
                f"A univariate network needs {SHAPES}, not W1 {w1.shape}, b1 {b1.shape}, "
                f"W2 {w2.shape}: the input must be one-dimensional."
            )
        return cls(w1.reshape(-1), b1.reshape(-1), w2.reshape(-1), float(params["b_out"]))

    @property
    def width(self) -> int:
        return self.w1.size

    @property
    def theta(self) -> np.ndarray:
        """θ = (w1, b1, w2, b2) ∈ R^{3k+1}, in the order of (S31)."""
        return np.concatenate([self.w1, self.b1, self.w2, [self.b2]])

    @classmethod
    def from_theta(cls, theta: np.ndarray) -> "UnivariateNetwork":
        k = (theta.size - 1) // 3
        return cls(theta[:k], theta[k : 2 * k], theta[2 * k : 3 * k], float(theta[-1]))

    @property
    def params(self) -> dict[str, np.ndarray]:
        """The same parameters under the names of `MLP`."""
        named = {"W1": self.w1[:, None], "b1": self.b1, "W2": self.w2, "b_out": self.b2}
        return {name: np.array(value, float) for name, value in named.items()}

    def preactivations(self, x: np.ndarray) -> np.ndarray:
        """w1_i x_j + b1_i, of shape (n, k)."""
        return np.multiply.outer(np.asarray(x, float).reshape(-1), self.w1) + self.b1

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(self.preactivations(x), 0) @ self.w2 + self.b2


@dataclass(frozen=True)
class SecondDerivative:
    """f″ = Σ_l mass_l δ(x − knot_l), knots ascending and distinct.

    A neuron's kink is w2 |w1| whichever way it opens: the footnote of mulayoff2021 prints w1 w2,
    which has the wrong sign for w1 < 0 and matters where neurons share a knot
    (σ(x) + σ(−x) = |x| has f″ = 2δ, not 0).
    """

    knots: np.ndarray
    masses: np.ndarray


def second_derivative(params: "dict | UnivariateNetwork") -> SecondDerivative:
    """f″ of a univariate ReLU network as signed point masses, merged where neurons share a knot.

    The knots are τ_i = −b1_i / w1_i (S36); a neuron with w1_i = 0 has none.
    """
    network = UnivariateNetwork.of(params)
    kinked = network.w1 != 0
    w1, b1, w2 = (part[kinked] for part in (network.w1, network.b1, network.w2))
    knots, owner = np.unique(-b1 / w1, return_inverse=True)
    return SecondDerivative(knots, np.bincount(owner, w2 * np.abs(w1), knots.size))


def sample(x: np.ndarray) -> np.ndarray:
    """The training inputs as a sorted vector; refuses repeated inputs and fewer than two."""
    x = np.sort(np.asarray(x, float).reshape(-1))
    if not np.isfinite(x).all():
        raise FlattestError("The training inputs must be finite.")
    if x.size < 2 or x[0] == x[-1]:
        raise FlattestError("The training inputs must hold at least two different values.")
    if (np.diff(x) == 0).any():
        raise FlattestError("The training inputs must be distinct; merge repeated inputs first.")
    return x


def points(data) -> tuple[np.ndarray, np.ndarray]:
    """The inputs (n,) and targets (n,) of a dataset with d = 1, in the order given."""
    x = np.asarray(data.x, float)
    if x.ndim == 2 and x.shape[1] != 1:
        raise FlattestError(
            f"Stability in function space is about functions of one variable, not d = {x.shape[1]}."
        )
    sample(x)
    return x.reshape(-1), np.asarray(data.y, float).reshape(-1)
