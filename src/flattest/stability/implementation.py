"""The flattest implementation of a function within its rescaling orbit (mulayoff2021, XI)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from flattest.certificate import Certificate
from flattest.errors import FlattestError
from flattest.losses import Loss, loss
from flattest.models import MLP, predict
from flattest.stability.rescaling import TARGET_GAP, Rescaling, Solution, minimize_top_eigenvalue

# A neuron with W2_i = 0 is the flatter the smaller β_i is, without an optimum: its share of the
# value is made smaller than this fraction and the rest of the problem solved exactly.
IDLE_SHARE = 1e-12


@dataclass(frozen=True)
class FlattestImplementation:
    """The rescaling β with the least λ_max, and the dual value that proves it.

    `params` are β_i W1_i, β_i b1_i, β_i^{−c} W2_i; `value` is their λ_max(∇²L), `dual` a lower
    bound over all rescalings: (S88) of mulayoff2021, at the density matrix `density` (n, n).
    """

    beta: np.ndarray
    params: dict[str, Any]
    value: float
    dual: float
    density: np.ndarray

    @property
    def gap(self) -> float:
        return self.value / self.dual - 1 if self.dual else self.value

    @property
    def certificate(self) -> Certificate:
        claim = "least top eigenvalue over the rescaling orbit (mulayoff2021, S82 against S88)"
        return Certificate(claim, self.value, self.dual, tolerance=1e-6)


def flattest_implementation(
    model: MLP, params: dict, data, loss_name: str | Loss = "half_mse"
) -> FlattestImplementation:
    """min over β ∈ R_+^k of λ_max(∇²L(θ̃(β))) at an interpolator (S82), solved with certificate.

    For any two-layer network with a homogeneous activation and no normalization, in any dimension.
    """
    ell = loss(loss_name)
    degree(model)
    model.check(params, data.d)
    _require_minimum(model, params, data, ell)
    problem = rescaling_problem(model, params, data, ell)
    solution = _best(problem, _solve(problem))
    beta = np.exp(solution.s / 2)
    rescaled = rescale(model, params, beta)
    return FlattestImplementation(beta, rescaled, solution.value, solution.dual, solution.density)


def rescale(model: MLP, params: dict, beta: np.ndarray) -> dict[str, np.ndarray]:
    """θ̃(β): W1_i, b1_i times β_i and W2_i times β_i^{−c}; the function is unchanged (S81)."""
    exact = {name: np.array(value, float) for name, value in params.items()}
    exact["W1"] *= beta[:, None]
    exact["W2"] *= beta ** -degree(model)
    if model.bias:
        exact["b1"] *= beta
    return exact


def rescaling_problem(model: MLP, params: dict, data, ell: Loss) -> Rescaling:
    """ΦᵀΦ/n of θ̃(β), weighted by ℓ″, as a function of s_i = 2 log β_i.

    Neuron i adds e^{c s_i} a_i a_iᵀ from W2 and e^{−s_i} times the Gram matrix of its gradients
    with respect to (W1, b1), where a_i = σ(W1_i x_j + b1_i) over the samples j.
    """
    x = np.asarray(data.x, float)
    W1, W2 = (np.asarray(params[name], float) for name in ("W1", "W2"))
    h = x @ W1.T + (np.asarray(params["b1"], float) if model.bias else 0.0)
    outputs = np.asarray(predict(model, params, x, x))
    root = np.sqrt(np.asarray(ell.curvature(outputs, data.y), float) / data.n)
    a = (np.asarray(model.sigma.value(h)) * root[:, None]).T
    slope = (np.asarray(model.sigma.slope(h)) * root[:, None] * W2).T
    up = a[:, :, None] * a[:, None, :]
    down = slope[:, :, None] * slope[:, None, :] * (x @ x.T + float(model.bias))
    fixed = np.outer(root, root) * float(model.output_bias)
    return Rescaling(fixed, up, down, degree(model))


def _solve(problem: Rescaling) -> Solution:
    """The minimum over the neurons with both parts; the others tend to 0, ∞ or do not matter."""
    grows, shrinks = problem.up.any((1, 2)), problem.down.any((1, 2))
    both = grows & shrinks
    core = Rescaling(problem.fixed, problem.up[both], problem.down[both], problem.power)
    found = minimize_top_eigenvalue(core, TARGET_GAP)
    s = np.zeros(len(problem.up))
    s[both] = found.s
    share = IDLE_SHARE * (found.value or 1.0) / max(len(problem.up), 1)
    up, down = (part.trace(axis1=1, axis2=2) for part in (problem.up, problem.down))
    s[grows & ~shrinks] = np.log(share / up[grows & ~shrinks]) / problem.power
    s[shrinks & ~grows] = -np.log(share / down[shrinks & ~grows])
    return Solution(s, problem.value(s), found.density, found.dual, found.steps)


def _best(problem: Rescaling, found: Solution) -> Solution:
    """Never worse than β = 1, should the given parameters be optimal to the last digits."""
    unchanged = np.zeros(len(found.s))
    value = problem.value(unchanged)
    if value > found.value:
        return found
    return Solution(unchanged, value, found.density, found.dual, found.steps)


def degree(model: MLP) -> float:
    """c of the orbit; refuses networks whose neurons cannot be rescaled one by one."""
    c = model.homogeneity if isinstance(model, MLP) and model.depth == 2 else None
    if c is None:
        raise FlattestError(
            "The flattest implementation is defined for a two-layer network with a homogeneous "
            "activation and no normalization."
        )
    return float(c)


def _require_minimum(model: MLP, params: dict, data, ell: Loss, tolerance: float = 1e-3) -> None:
    target = np.asarray(ell.target(data.y), float)
    worst = np.abs(predict(model, params, data.x, data.x) - target).max()
    if not worst <= tolerance * max(1.0, np.abs(target).max()):
        raise FlattestError(
            f"The network misses a target by {worst:.3g}, but an interpolator is needed: "
            "train it to a smaller loss first."
        )
