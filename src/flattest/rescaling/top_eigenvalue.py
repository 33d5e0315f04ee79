"""The flattest implementation of a function within its rescaling orbit (mulayoff2021, XI)."""

from dataclasses import dataclass, replace

import numpy as np

from flattest.evidence import Verdict
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss, loss as resolve_loss, require_near_minimum
from flattest.problem.models import MLP, Params, in_float64, predict
from flattest.rescaling.pencil import Pencil, Solution, minimize_top_eigenvalue
from flattest.rescaling.two_layer import Rescaling, check_rescalable, rescaled

STATEMENT = "least top eigenvalue over the rescaling orbit (mulayoff2021, S82 against S88)"

# A neuron with W2_i = 0 is the flatter the smaller β_i is, without an optimum: its share of the
# value is made smaller than this fraction and the rest of the problem solved exactly.
IDLE_SHARE = 1e-12


@dataclass(frozen=True)
class FlattestImplementation(Rescaling):
    """The rescaling β (`scales`) with the least λ_max, and the density matrix that proves it.

    The certificate's bound is (S88) of mulayoff2021 at the density matrix `density` (n, n), which
    no rescaling can go below. A knot exactly on a data point can leave it by rounding in `params`;
    `value` is that of the pattern it has in the parameters given.
    """

    density: np.ndarray

    @property
    def dual(self) -> float:
        return self.certificate.bound

    @property
    def gap(self) -> float:
        """Relative duality gap."""
        return self.certificate.gap


def flattest_implementation(
    model: MLP, params: Params, data: Dataset, loss="half_mse"
) -> FlattestImplementation:
    """min over β ∈ R_+^k of λ_max(∇²L(θ̃(β))) at an interpolator (S82), solved with certificate.

    For any two-layer network with a homogeneous activation and no normalization, in any dimension.
    """
    problem = orbit_pencil(model, params, data, resolve_loss(loss))
    original = problem.value(np.zeros(model.width))
    found = _solve(problem)
    if not found.value < original:  # the given parameters are optimal to the last digits
        found = replace(found, s=np.zeros(model.width), value=original)
    beta = np.exp(found.s / 2)
    return FlattestImplementation(
        measure="top_eigenvalue",
        scales=beta,
        params=rescaled(model, params, beta),
        value=found.value,
        original=original,
        certificate=Verdict(STATEMENT, found.value, found.dual, tolerance=1e-6),
        density=found.density,
    )


def orbit_pencil(model: MLP, params: Params, data: Dataset, ell: Loss) -> Pencil:
    """ΦᵀΦ/n of θ̃(β) near a minimum, weighted by ℓ″, as a function of s_i = 2 log β_i.

    Neuron i adds e^{c s_i} a_i a_iᵀ from W2 and e^{−s_i} times the Gram matrix of its gradients
    with respect to (W1, b1), where a_i = σ(W1_i x_j + b1_i) over the samples j.
    """
    c = check_rescalable(model, params, data)
    outputs = predict(model, params, data.x, data.x)
    require_near_minimum(outputs, ell.target(data.y))
    x, exact = data.x, in_float64(params)
    h = x @ exact["W1"].T + exact.get("b1", 0.0)
    root = np.sqrt(np.asarray(ell.curvature(outputs, data.y), np.float64) / data.n)
    a = (np.asarray(model.sigma.value(h)) * root[:, None]).T
    slope = (np.asarray(model.sigma.slope(h)) * root[:, None] * exact["W2"]).T
    up = a[:, :, None] * a[:, None, :]
    down = slope[:, :, None] * slope[:, None, :] * (x @ x.T + float(model.bias))
    fixed = np.outer(root, root) * float(model.output_bias)
    return Pencil(fixed, up, down, c)


def _solve(problem: Pencil) -> Solution:
    """The minimum over the neurons with both parts; the others tend to 0, ∞ or do not matter."""
    grows, shrinks = problem.up.any((1, 2)), problem.down.any((1, 2))
    both = grows & shrinks
    core = Pencil(problem.fixed, problem.up[both], problem.down[both], problem.power)
    found = minimize_top_eigenvalue(core)
    s = np.zeros(len(problem.up))
    s[both] = found.s
    share = IDLE_SHARE * (found.value or 1.0) / max(len(problem.up), 1)
    up, down = (part.trace(axis1=1, axis2=2) for part in (problem.up, problem.down))
    s[grows & ~shrinks] = np.log(share / up[grows & ~shrinks]) / problem.power
    s[shrinks & ~grows] = -np.log(share / down[shrinks & ~grows])
    return replace(found, s=s, value=problem.value(s))
