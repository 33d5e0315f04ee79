"""Networks built from proofs: what one is, and the memorizers, which any data may be asked for.

Each function returns a `Construction(model, params, certificate)`. The docstrings are the proof
sketches, with the mistakes in print put right: t_i is the output that minimizes the loss at y_i
(t = y for the squared error, ±γ_p for the logistic loss with label smoothing) and x' = (x, 1).
Whatever constant a proof fixes is an argument whose default is the right one, so that others can be
tried. The other networks of wen2023's proofs are in its folder.
"""

from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.evidence import Verdict
from flattest.flatness.bounds import lower_bound
from flattest.flatness.certification import differentiable, is_interpolator
from flattest.flatness.extreme import Points, distinct_inputs, separate
from flattest.problem.checks import check_count
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import MLP, Params

RESOLUTION = 1e-5
SILENCE = 1e-7


class Construction(NamedTuple):
    """A network, its parameters, and the certificate of what they attain."""

    model: MLP
    params: Params
    certificate: Verdict


def memorizer(
    data: Dataset,
    depth: int = 2,
    width: int | None = None,
    loss: str | Loss = "mse",
    r: np.ndarray | None = None,
    off_diagonal: float = -0.1,
    silence: float = SILENCE,
) -> Construction:
    """wen2023 Theorem 4.1: a flattest MLP-Bias of any depth, 0 away from the training points.

    The distinct inputs must be extreme points; w_i separates x_i from the rest by the margin 2ε_i,
    and on the hypercube from all other vertices, so that f is 0 on every unseen one and the
    zero-one error is 1 − n/2^d (Proposition 4.1).
    W1_i = u_i w_i/ε_i and b1_i = u_i (−w_i·x_i + ε_i)/ε_i make the pre-activation of neuron i equal
    to u_i at x_i and at most −u_i at every other x_j, so the first layer is one-hot. Hidden layers
    carry 1/r_i on the diagonal and the output layer is sign(t_i)/r_i, so f(x_i) = u_i/r_i^{D−1}
    = t_i with u_i = |t_i| r_i^{D−1}. With r_i = (‖x'_i‖/|t_i|)^{1/D} each of the D layers has the
    same squared gradient u_i²/r_i^{2(D−2)} at x_i: equality in AM–GM, hence in the bound.

    Where t_i = 0 the output weight is 0 and the last activation alone costs u_i²; the printed
    u_i = 1 costs 1. `silence` is u_i there: the cost tends to 0, the bound, while neuron i stays
    alive, as Definition 4.2 asks.

    Printed, hidden layers are diagonal, which leaves all other units on the kink of the ReLU and f
    not differentiable; a negative `off_diagonal` moves them off it and changes nothing else.
    Neurons beyond the inputs have W1 = 0, b1 = −1 and W_D = 0: inactive, off the kink, no gradient.
    """
    points, t = distinct_inputs(data, loss)
    model = MLP(enough_width(width, len(t)), depth=depth, bias=True)
    model.shapes(data.d)  # refuses what does not fit in memory
    zero = t == 0
    if r is None:
        target = np.where(zero, 1.0, np.abs(t))
        r = np.where(zero, 1.0, (extended_norms(points.x) / target) ** (1 / depth))
    u = np.where(zero, silence, np.abs(t) * r ** (depth - 1))
    hidden = np.full((model.width, model.width), off_diagonal)
    hidden[np.diag_indices(len(t))] = 1 / r
    params = one_hot_layer(points, u, t)
    params |= {f"W{layer}": hidden for layer in range(2, depth)} | {f"W{depth}": np.sign(t) / r}
    return construction("wen2023 Theorem 4.1, memorizer", model, params, data, loss)


def sim_ln_memorizer(
    data: Dataset,
    epsilon: float = 1e-5,
    width: int | None = None,
    loss: str | Loss = "mse",
    r: np.ndarray | None = None,
    u: np.ndarray | None = None,
) -> Construction:
    """wen2023 Theorem 5.1, Proposition 5.1: a flattest 2-MLP-Sim-LN, 0 away from training points.

    The first layer is one-hot as in `memorizer`, with activation u_i at x_i, and W2_i = r_i t_i.
    With s = ‖x'_i‖ |t_i| (`sim_ln_constants`):
    - s > ε/2: u = 2ε > ε, r = 1. Normalized, the layer is the unit vector e_i, whose derivative in
      W1 is 0, so ‖∇f‖² = ‖e_i‖² = 1;
    - 0 < s ≤ ε/2: r = √(ε/s), u = ε/r < ε. Then f = W2·e_i u/ε = t and
      ‖∇f‖² = (r² t² ‖x'‖² + u²)/ε² = 2s/ε ≤ 1;
    - s = 0: W2_i = 0 and u = ε · 1e-7, which costs u²/ε².
    Each is Lemma A.12's min(1, 2s/ε). Printed: the first case begins at s > ε, where the second
    would cost more than 1, and u = 2ε at s = 0, which costs 1 instead of 0.
    """
    points, t = distinct_inputs(data, loss)
    model = MLP(enough_width(width, len(t)), bias=True, norm="sim_ln", epsilon=epsilon)
    r, u = sim_ln_constants(extended_norms(points.x) * np.abs(t), epsilon, r, u)
    params = one_hot_layer(points, u, t) | {"W2": r * t}
    return construction("wen2023 Theorem 5.1, Sim-LN memorizer", model, params, data, loss)


def sim_ln_constants(s, epsilon: float, r=None, u=None) -> tuple[np.ndarray, np.ndarray]:
    """(r, u) of wen2023 Theorem 5.1 for s = ‖x'‖ |t|, corrected, where they are not given."""
    large, zero = s > epsilon / 2, s == 0
    right_r = np.where(large | zero, 1.0, np.sqrt(epsilon / np.where(large | zero, 1.0, s)))
    right_u = np.where(large, 2 * epsilon, np.where(zero, SILENCE * epsilon, epsilon / right_r))
    return right_r if r is None else r, right_u if u is None else u


def one_hot_layer(points: Points, u: np.ndarray, t: np.ndarray) -> Params:
    """W1 and b1 with the pre-activations u_i at point i and ≤ −u_i at every other point."""
    by = separate(*points)
    check_resolution(by.margin / extended_norms(points.x), t)
    W1 = (2 * u / by.margin)[:, None] * by.w
    return {"W1": W1, "b1": u - (W1 * points.x).sum(axis=1)}


def check_resolution(margin: np.ndarray, t: np.ndarray) -> None:
    """A pre-activation is u (1 ± 1e-16/margin), and so is the part t of the output that it makes:
    refuse what would not interpolate to 1e-10 of the largest target."""
    needed = RESOLUTION * np.abs(t) / (np.abs(t).max() or 1.0)
    short = margin < needed
    if short.any():
        raise FlattestError(
            f"An input stands out from the others by a relative margin of {margin[short].min():.1e}"
            f" only, where float64 needs {needed[short].max():.0e}; remove near-duplicate inputs."
        )


def enough_width(width: int | None, needed: int) -> int:
    """The width asked for, refused if it is not enough; what is needed where None."""
    if width is not None and check_count("The width", width) < needed:
        raise FlattestError(f"This construction needs width ≥ {needed}, not {width}.")
    return width or needed


def extended_norms(x: np.ndarray) -> np.ndarray:
    """‖x'_i‖."""
    return np.sqrt((x**2).sum(axis=1) + 1)


def _padded(model: MLP, params: Params, d: int) -> Params:
    """Arrays of the model's shapes: weights on inputs beyond the params' own are 0, and further
    neurons have b1 = −1 and all else 0, so that they are inactive, off the kink, and without
    gradient (without bias they are 0 altogether)."""
    full = {}
    for name, shape in model.shapes(d).items():
        full[name] = np.full(shape, -1.0 if name == "b1" else 0.0)
        full[name][tuple(slice(size) for size in params[name].shape)] = params[name]
    return full


def construction(
    statement: str, model: MLP, params: Params, data: Dataset, loss, least=None, tolerance=1e-9
) -> Construction:
    """The network, and its trace against `least`, by default the lower bound for the model."""
    from flattest.curvature.sharpness import trace  # brings JAX

    params = _padded(model, params, data.d)
    least = lower_bound(model, data, loss).value if least is None else least
    value = float(trace(model, params, data, loss))
    feasible = is_interpolator(model, params, data, loss) and differentiable(model, params, data.x)
    certificate = Verdict(statement, value, least, tolerance=tolerance, feasible=feasible)
    return Construction(model, params, certificate)
