"""The rescaling orbit of a two-layer network, and its least trace (vardhan2026, Definition 1,
Lemmas 1 and 3).

For σ homogeneous of degree c, (w_j, b1_j) → b_j (w_j, b1_j), a_j → b_j^{−c} a_j with any b_j > 0
leaves the two-layer network f(x) = Σ a_j σ(w_j·x + b1_j) as it is.
"""

from dataclasses import dataclass

import numpy as np

from flattest.errors import FlattestError
from flattest.evidence import Verdict
from flattest.problem.activations import activation
from flattest.problem.data import Dataset
from flattest.problem.losses import loss as resolve_loss
from flattest.problem.models import MLP, Params, in_float64


@dataclass(frozen=True)
class Rescaling:
    """The orbit's flattest member: scales b_j, the rescaled parameters and their measure.

    `value` is the least measure over the orbit, `original` that of the parameters given;
    `certificate` proves the optimum.
    """

    measure: str
    scales: np.ndarray
    params: Params
    value: float
    original: float
    certificate: Verdict


def check_rescalable(model: MLP, params: Params, data: Dataset) -> float:
    """The degree c of the rescaling symmetry; raises where the network has none."""
    c = model.homogeneity
    if c is None or model.depth != 2:
        raise FlattestError(
            "Neurons can be rescaled in two-layer networks without normalization whose activation "
            f"is homogeneous; this one has depth {model.depth}, norm {model.norm} and activation "
            f"{model.activation}."
        )
    model.check(params, data.d)
    return c


def rescaled(model: MLP, params: Params, scales) -> Params:
    """The parameters after (w_j, b1_j) → b_j (w_j, b1_j), a_j → b_j^{−c} a_j.

    A scale of 0 is the limit for a neuron with a_j = 0, and stays so.
    """
    b, a = np.asarray(scales, np.float64), np.asarray(params["W2"])
    if b.shape != a.shape:
        raise FlattestError(f"There must be a scale for each of {a.size} neurons, not {b.shape}.")
    wrong = ~np.isfinite(b) | (b < 0) | ((b == 0) & (a != 0))
    if wrong.any():
        j = int(np.argmax(wrong))
        raise FlattestError(f"The scale of neuron {j} must be positive and finite, not {b[j]}.")
    inverse = np.divide(1.0, b, out=np.zeros_like(b), where=b > 0)
    factors = {"W1": b[:, None], "b1": b, "W2": inverse**model.homogeneity}
    return {name: factors.get(name, 1.0) * value for name, value in in_float64(params).items()}


@dataclass(frozen=True)
class Masses:
    """The trace over an orbit, S(b) = Σ_j [b_j^{2c} A_j + b_j^{−2} B_j] + constant.

    With ℓ the loss per sample and x' = (x, 1) where the first layer has a bias, x' = x otherwise,
    A_j = mean ℓ″ σ(h_ij)², B_j = a_j² mean ℓ″ σ′(h_ij)² ‖x'_i‖² + a_j mean ℓ′ σ″(h_ij) ‖x'_i‖².
    The second part of B is 0 at an interpolator; for the mean square ℓ″ = 2.
    """

    c: float
    A: np.ndarray
    B: np.ndarray
    constant: float

    def trace(self, b=1.0) -> float:
        b = np.broadcast_to(np.asarray(b, np.float64), self.A.shape)
        outward = np.divide(self.B, b**2, out=np.zeros_like(self.B), where=self.B != 0)
        return float(np.sum(b ** (2 * self.c) * self.A + outward) + self.constant)

    def least(self) -> float:
        """S_min, the sum of the least terms (Lemma 3)."""
        return float(self.terms().sum() + self.constant)

    def terms(self) -> np.ndarray:
        """min over b_j of neuron j's part: (c+1) c^{−c/(c+1)} A_j^{1/(c+1)} B_j^{c/(c+1)}."""
        c = self.c
        products = self.A ** (1 / (c + 1)) * self.B ** (c / (c + 1))
        return (c + 1) * c ** (-c / (c + 1)) * products

    def optimal_scales(self) -> np.ndarray:
        """b_j^{2c+2} = B_j / (c A_j); 1 for a neuron without any mass."""
        ratio = np.divide(self.B, self.c * self.A, out=np.ones_like(self.A), where=self.A > 0)
        return ratio ** (1 / (2 * self.c + 2))


def masses(model: MLP, params: Params, data: Dataset, loss="mse") -> Masses:
    """The masses A_j, B_j that the trace of the Hessian has along the rescaling orbit."""
    c = check_rescalable(model, params, data)
    loss, sigma = resolve_loss(loss), model.sigma
    exact = in_float64(params)
    a = exact["W2"]
    h = data.x @ exact["W1"].T + exact.get("b1", 0.0)
    r, dr, ddr = (np.asarray(s(h)) for s in (sigma.value, sigma.slope, sigma.curvature))
    f = r @ a + exact.get("b_out", 0.0)
    slope, curvature = loss.slope(f, data.y), loss.curvature(f, data.y)
    sizes = np.sum(data.x**2, axis=1) + model.bias
    first = (curvature * sizes) @ dr**2 / data.n
    second = (slope * sizes) @ ddr / data.n
    constant = float(np.mean(curvature)) if model.output_bias else 0.0
    return Masses(c, curvature @ r**2 / data.n, a**2 * first + a * second, constant)


def norm_exponent(name: str) -> float:
    """p = 2c/(c+1), the norm of the outer weights in S_min for a σ of degree c (Lemma 1)."""
    c = activation(name).homogeneity
    if c is None:
        raise FlattestError(
            f"The activation {name} is not homogeneous: its neurons do not rescale."
        )
    return 2 * c / (c + 1)


def orbit_weights(W1, x, name: str) -> np.ndarray:
    """ω such that every interpolator with inner weights W1 has S_min = Σ ω_j |a_j|^p (Lemma 3).

    p = 2c/(c+1), for the mean square. With these weights the flattest interpolator of Eq. 3 is the
    flattest over outer weights *and* scales; with unit weights it is so up to a factor.
    """
    W1, x = np.asarray(W1, np.float64), np.asarray(x, np.float64)
    model = MLP(len(W1), activation=name)
    ones = np.ones(len(W1))
    labels = np.asarray(model.sigma.value(x @ W1.T)) @ ones
    return masses(model, {"W1": W1, "W2": ones}, Dataset(x, labels)).terms()


def least_trace(model: MLP, params: Params, data: Dataset, loss="mse") -> Rescaling:
    """Lemma 3: S(b) is separable and convex in log b, so stationarity is optimality."""
    start = masses(model, params, data, loss)
    _check_attained(start, np.asarray(params["W2"]))
    scales = start.optimal_scales()
    params = rescaled(model, params, scales)
    reached = masses(model, params, data, loss)
    statement = "the trace at the rescaled parameters is the orbit's least (vardhan2026, Lemma 3)"
    certificate = Verdict(statement, reached.trace(), start.least(), "=", 1e-9)
    return Rescaling("trace", scales, params, start.least(), start.trace(), certificate)


def _check_attained(masses: Masses, a: np.ndarray) -> None:
    """Refuses an orbit over which the trace has no minimum; neurons with a_j = 0 go to 0."""
    A, B = masses.A, masses.B
    obstacles = {
        "the trace is unbounded below: away from an interpolator the loss may curve down; train "
        "further": B < 0,
        "the neuron is 0 on all data, its slope is not": (A == 0) & (B > 0),
        "the trace in its inner weights is 0, or too small for float64, its outer weight is not": (
            (B == 0) & (A > 0) & (a != 0)
        ),
    }
    for why, where in obstacles.items():
        if where.any():
            j = int(np.argmax(where))
            raise FlattestError(f"The trace has no minimum over the scale of neuron {j}: {why}.")


def sharpened(model: MLP, params: Params, data: Dataset, target: float, loss="mse") -> Params:
    """An equivalent network whose trace is at least `target`, however large (Proposition 1)."""
    at = masses(model, params, data, loss)
    j = int(np.argmax(at.A))
    if at.A[j] == 0:
        raise FlattestError("No neuron fires on the data: the trace does not depend on scales.")
    scales = np.ones(model.width)
    scales[j] = max(1.0, (target / at.A[j]) ** (1 / (2 * at.c)))
    return rescaled(model, params, scales)
