"""Certified lower bounds on the sharpness Tr ∇²L of interpolators (wen2023), and the norms and
Rademacher bounds of its generalization proofs.

At a minimizer of L = (1/n) Σ ℓ(f(x_i), y_i), where every f(x_i) is the target t_i of its label,
Tr ∇²L = (κ/n) Σ ‖∇f(x_i)‖² with κ = ℓ″(t_i, y_i): 2 for the squared error (Lemma 4.1), 1 for
half of it, p(1 − p) for the logistic loss (Lemma A.13, corrected). So a bound on Tr ∇²L is κ times
a floor, a bound on (1/n) Σ ‖∇f(x_i)‖² over all parameters with f(x_i) = t_i.
Write x' for (x, 1) in a network with a first-layer bias and for x in one without, so that the
gradient with respect to the first layer is an outer product with x'.

An output bias b adds ∂f/∂b = 1, hence 1 to ‖∇f‖², and lets the rest of the network interpolate
t − b: the floor becomes 1 + min over b of the floor for t − b.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flattest.errors import FlattestError
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.distributions import meets_condition_1
from flattest.problem.losses import Loss, loss as resolve_loss
from flattest.problem.models import MLP, Model, Params


@dataclass(frozen=True)
class Bound:
    """No interpolator has a smaller Tr ∇²L than `value`; `reference` names the theorem.

    `attained` is True where a network of the model's width that meets the bound on these data is
    known without further computation: inputs on a sphere about 0 are extreme points, so that the
    memorizer exists. For other inputs `flattest.flatness.extreme` decides by linear programs.
    """

    value: float
    reference: str
    attained: bool

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class _Floor:
    """`of(t)` bounds (1/n) Σ ‖∇f(x_i)‖² from below over all parameters with f(x_i) = t_i.

    As a function of b, of(t − b) is convex, or `concave_between_targets`. Either way it grows as b
    leaves the interval of the targets, and it is 0 where all t_i − b are 0.
    """

    of: Callable[[np.ndarray], float]
    reference: str
    attained: bool
    concave_between_targets: bool = False


def lower_bound(model: Model, data: Dataset, loss: str | Loss = "mse") -> Bound:
    """The least Tr ∇²L that an interpolator of `data` can have, as far as it is proven."""
    bound = known_lower_bound(model, data, loss)
    if bound is None:
        raise FlattestError(f"No certified lower bound on the sharpness is known for {model}.")
    return bound


def known_lower_bound(model: Model, data: Dataset, loss: str | Loss = "mse") -> Bound | None:
    """`lower_bound`, and None for a network for which none is proven."""
    require_dataset(data)
    if not isinstance(model, MLP):
        return None
    floor = FLOORS[model.norm](model, data)
    if floor is None:
        return None
    loss = resolve_loss(loss)
    t = targets(loss, data.y)
    kappa = float(np.min(loss.curvature(t, data.y)))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
        least = 1 + _least_over_shifts(floor, t) if model.output_bias else floor.of(t)
    if not np.isfinite(kappa * least):
        raise FlattestError(
            "The lower bound on the sharpness exceeds the largest float64; rescale the data."
        )
    return Bound(kappa * least, floor.reference, floor.attained)


def targets(loss: Loss, y: np.ndarray) -> np.ndarray:
    """t_i, the outputs that minimize the loss at labels y_i."""
    loss.check_labels(y)
    t = np.asarray(loss.target(y), float)
    if not np.isfinite(t).all():
        raise FlattestError(
            f"Without label smoothing the loss {loss.name} has no minimizer, and so no flattest "
            "one; give it some, as ft.Logistic(0.2) or ft.CrossEntropy(10, 0.1)."
        )
    return t


def _least_over_shifts(floor: _Floor, t: np.ndarray) -> float:
    """min over b of floor(t − b), from below.

    Concave between targets, the minimum is at one of them. Convex, it lies between the neighbours
    of the best target b0, and is sought as b − b0: labels may be far from 0 and close together.
    """
    shifts = np.unique(t)
    values = [floor.of(t - b) for b in shifts]
    best = int(np.argmin(values))
    if floor.concave_between_targets or len(shifts) == 1:
        return values[best]
    steps = np.diff(shifts)
    # Beyond the outermost target the floor grows: any point will do as a neighbour.
    low, high = steps[max(best - 1, 0)], steps[min(best, len(steps) - 1)]
    rest = t - shifts[best]
    return _least_convex(lambda v: floor.of(rest - v), -float(low), float(high))


def _least_convex(g: Callable[[float], float], low: float, high: float) -> float:
    """A bound below the convex g, low < 0 < high, g(0) ≤ g(low), g(high); tight to rounding.

    Golden section keeps such a triple of points. Beyond its middle each side's chord bounds g from
    below on the other side.
    """
    points = [(v, g(v)) for v in (low, 0.0, high)]
    for _ in range(200):
        (a, at_a), (m, at_m), (c, at_c) = points
        fall = max((at_a - at_m) / (m - a) * (c - m), (at_c - at_m) / (c - m) * (m - a), 0.0)
        wider = c - m if c - m > m - a else a - m
        new = m + (3 - np.sqrt(5)) / 2 * wider
        if not fall > 1e-14 * at_m or new == m:
            break
        four = sorted([*points, (new, g(new))])
        # The lower inner one and its neighbours.
        points = four[:3] if four[1][1] <= four[2][1] else four[1:]
    return max(float(at_m - fall), 0.0)


def _input_norms(model: MLP, data: Dataset) -> np.ndarray:
    """‖x'_i‖."""
    return np.hypot(_row_norms(data.x), float(model.bias))


def _row_norms(x: np.ndarray) -> np.ndarray:
    """‖x_i‖ without overflow."""
    size = np.abs(x).max(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    return size[:, 0] * np.linalg.norm(x / size, axis=1)


def _least_slope(model: MLP) -> float | None:
    """min |σ′| over the linear pieces of σ on which it is not 0; None if σ is not t · σ′(t)."""
    slopes = model.sigma.slopes
    return None if slopes is None else min(abs(slope) for slope in slopes if slope)


def _piecewise_linear(model: MLP, data: Dataset) -> _Floor | None:
    """Theorem 4.1's bound D |t|^{2(D−1)/D} ‖x'‖^{2/D}, for σ(t) = σ′(t) t.

    With a_j = A_j W_j a_{j−1} the layers at x_i (a_0 = x', A_j diagonal with the slopes) and
    g_j = v_j A_j, v_j = W_D A_{D−1} … W_{j+1}, the gradient in W_j is g_jᵀ a_{j−1}ᵀ, so
    ‖∇f‖² = Σ_{j<D} ‖g_j‖² ‖a_{j−1}‖² + ‖a_{D−1}‖²
          ≥ D (‖x'‖² Π_{j<D} ‖g_j‖² ‖a_j‖²)^{1/D}                              (AM–GM)
    and ‖g_j‖ ‖a_j‖ ≥ s |v_j a_j| = s |t| by Cauchy–Schwarz, where s is the least nonzero slope
    (neurons of slope 0 drop out of both sides): 1 for ReLU and linear, min(1, |α|) for leaky ReLU.
    At D = 2 this is Equation (3), 2 ‖x'‖ |t|.

    Where it is met: ReLU, at every depth, by the memorizer where each point is extreme. Two layers
    of leaky ReLU with 0 < α < 1 meet it only if t_i/‖x'_i‖ is the same number for all i, by neurons
    with all h < 0: equality asks of every neuron the slope α, W2_j σ(h_ij) of t_i's sign, and
    |h_ij| = |W2_j| ‖x'_i‖ at every point, and no neuron is silent anywhere. The attacks of an
    audit, whose instances are not kept, came to 1.027 of it at depth 3, 1.003 at depth 4 and 1.025
    for leaky ReLU.
    """
    slope = _least_slope(model)
    if slope is None:
        return None
    D, norms = model.depth, _input_norms(model, data)
    reference = "wen2023, Theorem 4.1" if model.bias else "wen2023, Theorem 4.1 without bias"

    def floor(t: np.ndarray) -> float:
        # |t| times a geometric mean of |t| and ‖x'‖, which overflow only where the bound does.
        size = slope * np.abs(t)
        terms = size * (size ** ((D - 2) / D) * norms ** (2 / D))
        return D * float(terms.mean())

    return _Floor(floor, reference, _has_spherical_memorizer(model, data))


def _power(model: MLP, data: Dataset) -> _Floor | None:
    """vardhan2026, Theorem 1 with its constant, for two layers, σ = relu^c or t² (c = 2).

    A neuron with output s = a σ(h) costs σ(h)² + ‖x'‖² a² σ′(h)² = |h|^{2c} + c² ‖x'‖² s² / h²,
    at least (c+1) (c ‖x'‖²)^{c/(c+1)} |s|^p with p = 2c/(c+1) ≥ 1, at h^{2c+2} = c ‖x'‖² s². Over
    m neurons with Σ s_j = t, Jensen gives Σ |s_j|^p ≥ m^{1−p} |t|^p.

    Where it is met: by m equal neurons with h_ij the same at every point, for linearly independent
    x'_i of one norm and one t. Equality asks s_ij = t_i/m of every neuron, so that with labels of
    both signs it is not met (σ ≥ 0). The audit's attacks came to 1.25 of it.
    """
    c, norms = model.sigma.homogeneity, _input_norms(model, data)
    if model.depth != 2 or c is None or not model.sigma.power:
        return None
    p = 2 * c / (c + 1)
    factor = (c + 1) * c ** (c / (c + 1)) * model.width ** (1 - p)
    return _Floor(
        lambda t: factor * float(((norms * np.abs(t)) ** p).mean()),
        "vardhan2026, Theorem 1",
        attained=False,
    )


def _softplus(model: MLP, data: Dataset) -> _Floor | None:
    """Two layers with softplus: min over a ≥ 0 of a² + ‖x'‖² t²/(√m + a)².

    With s_j = σ(h_j) > 0, σ′(h_j) = 1 − e^{−s_j} ≥ s_j/(1 + s_j) (`steep`). A neuron with output
    t_j = W2_j s_j costs s_j² + ‖x'‖² t_j² (σ′/s_j)² ≥ s_j² + ‖x'‖² t_j²/(1 + s_j)². By
    Cauchy–Schwarz the sum of the last terms over Σ t_j = t is at least ‖x'‖² t²/Σ (1 + s_j)², and
    Σ (1 + s_j)² ≤ (√m + a)² for a = ‖s‖. The minimizer solves a (√m + a)³ = ‖x'‖² t². The bound is
    small for wide networks, which can spread f over neurons with small s_j. Convexity in t is not
    proven, so there is none with an output bias.

    It is not met, since σ′ > s/(1 + s): on one point with one neuron the least trace is 1.00003 of
    it at ‖x'‖|t| = 1e-3, 1.32 at 10 and 1.03 at 1e3. The audit's attacks came to 1.26 of it.
    """
    if not model.sigma.steep or model.depth != 2 or model.output_bias:
        return None
    root_m, norms = np.sqrt(model.width), _input_norms(model, data)
    return _Floor(
        lambda t: float(np.mean([_softplus_cost(r, root_m) for r in norms * np.abs(t)])),
        "two-layer softplus, flattest.flatness.bounds",
        attained=False,
    )


def _softplus_cost(r: float, root_m: float) -> float:
    """min over a ≥ 0 of a² + r²/(√m + a)², at a = h² for the root h of h (√m + h²)^{3/2} = r."""
    from scipy.optimize import brentq  # slow to import, and rarely needed

    if r**2 == 0 or not np.isfinite(r):
        return float(r**2)
    # One term of the sum alone gives a larger root, and that one put into the sum a smaller.
    high = min(r / root_m**1.5, r**0.25)
    low = r / (root_m + high**2) ** 1.5
    h = high * brentq(
        lambda z: z * high / r * (root_m + (z * high) ** 2) ** 1.5 - 1,
        low / high / 2,
        2,
        xtol=1e-15,
    )
    return float(h**4 + (r / (root_m + h**2)) ** 2)


def _sim_ln(model: MLP, data: Dataset) -> _Floor | None:
    """Lemma A.12: min(1, (2/ε) ‖x'‖ |t|), times the least slope of σ as in `_piecewise_linear`.

    With r = σ(W1 x + b1): if ‖r‖ > ε, the gradient with respect to W2 is r/‖r‖, of norm 1. If not,
    f = W2·r/ε and ‖∇f‖² = (‖W2 ⊙ σ′‖² ‖x'‖² + ‖r‖²)/ε² ≥ (2/ε²) ‖x'‖ s |W2·r| = (2s/ε) ‖x'‖ |t|.
    """
    slope = _least_slope(model)
    if slope is None:
        return None
    factor, norms = 2 * slope / model.epsilon, _input_norms(model, data)
    return _Floor(
        lambda t: float(np.minimum(1, factor * (norms * np.abs(t))).mean()),
        "wen2023, Lemma A.12",
        _has_spherical_memorizer(model, data),
        concave_between_targets=True,
    )


def _sim_bn(model: MLP, data: Dataset) -> _Floor:
    """Lemma A.3, and what interpolation demands of ‖γ ⊙ W2‖₁ on any data.

    f = Σ_j γ_j W2_j u_j, where u_j = r_j/s_j has mean square 1 over the training set, for every
    neuron that is not 0 on all of it. The gradients with respect to W2 and γ alone give
    (1/n) Σ ‖∇f(x_i)‖² ≥ ‖γ‖² + ‖W2‖² ≥ 2 ‖γ ⊙ W2‖₁ over those neurons (Lemma A.3, where the
    squared error's factor 2 is missing). For every λ ∈ R^n, interpolation and the triangle
    inequality give mean(λt) = Σ_j γ_j W2_j mean(λu_j) ≤ ‖γ ⊙ W2‖₁ max_j |mean(λu_j)|. Then:
    - any σ: λ = t and Cauchy–Schwarz, |mean(t u)| ≤ rms(t), give ‖γ ⊙ W2‖₁ ≥ rms(t);
    - σ ≥ 0: −rms(λ⁻) ≤ mean(λu) ≤ rms(λ⁺), so λ = t⁺/rms(t⁺) − t⁻/rms(t⁻) gives
      ‖γ ⊙ W2‖₁ ≥ rms(t⁺) + rms(t⁻), √2 for balanced ±1 labels;
    - ReLU under Condition 1: λ = y and Lemma A.27 give ‖γ ⊙ W2‖₁ ≥ 2 mean(yt), 2 for t = y
      (Lemma A.1). It exceeds the other two by a factor √2.
    The infimum under Condition 1 is approached as W1 → ∞ and not attained.
    """
    if model.sigma.is_relu and meets_condition_1(data):
        return _Floor(
            lambda t: 4 * abs(float(np.mean(data.y * t))),
            "wen2023, Lemmas A.1 and A.3 under Condition 1",
            attained=False,
        )
    least = _rms_of_both_signs if model.sigma.nonnegative else _rms
    return _Floor(lambda t: 2 * least(t), "wen2023, Lemma A.3", attained=False)


def _rms(t: np.ndarray) -> float:
    """√(mean t²) without overflow."""
    return float(_row_norms(t[None])[0] / np.sqrt(len(t)))


def _rms_of_both_signs(t: np.ndarray) -> float:
    return _rms(np.maximum(t, 0)) + _rms(np.minimum(t, 0))


FLOORS: dict[str | None, Callable[[MLP, Dataset], _Floor | None]] = {
    None: lambda *task: _piecewise_linear(*task) or _power(*task) or _softplus(*task),
    "sim_ln": _sim_ln,
    "sim_bn": _sim_bn,
}


def _has_spherical_memorizer(model: MLP, data: Dataset) -> bool:
    """Whether Theorem 4.1 or 5.1 applies at once: ReLU with bias, consistent labels, inputs on a
    sphere about 0 (where w_i = x_i separates), at least one neuron for each distinct input."""
    radii = _row_norms(data.x)
    spherical = np.allclose(radii, radii[0], rtol=1e-12, atol=0)
    points = len(np.unique(data.x, axis=0))
    labelled = len(np.unique(np.column_stack([data.x, data.y]), axis=0))
    return model.sigma.is_relu and model.bias and spherical and points == labelled <= model.width


def path_norm(params: Params) -> float:
    """Σ_j ‖W1_j‖ |W2_j|, the norm of wen2023's Lemma 3.1 for two-layer networks without bias."""
    W1, W2 = np.asarray(params["W1"], float), np.asarray(params["W2"], float)
    if W2.ndim != 1 or len(W1) != len(W2):
        raise FlattestError("The norm of Lemma 3.1 is defined for two-layer networks.")
    return float(np.linalg.norm(W1, axis=1) @ np.abs(W2))


def linear_rademacher_bound(x: np.ndarray) -> float:
    """Lemma A.25: R_S ≤ max ‖x_i‖ / √n for x ↦ w·x with ‖w‖ ≤ 1."""
    return float(np.linalg.norm(x, axis=1).max() / np.sqrt(len(x)))


def two_layer_rademacher_bound(x: np.ndarray, C: float) -> float:
    """Lemma A.24: R_S ≤ 2 C max ‖x_i‖ / √n for 2-MLP-No-Bias with `path_norm` ≤ C."""
    return 2 * C * linear_rademacher_bound(x)
