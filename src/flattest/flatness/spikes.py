"""Spike networks: 2-MLP-Sim-BN as flat as one likes that are wrong away from the training set.

They refute Theorem 3.2 and Lemma A.2 of wen2023 as printed. The proof of the lemma passes to a
limit of parameters with ‖(W1, b1)‖ = 1 and calls f continuous there, which it is not where the
statistic s_j of a neuron tends to 0.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.bounds import targets
from flattest.flatness.certification import FLATTEST, ZERO
from flattest.flatness.constructions import Construction, construction, enough_width
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.distributions import hypercube, meets_condition_1
from flattest.problem.losses import Loss, loss as resolve_loss
from flattest.problem.models import MLP, Params
from flattest.problem.randomness import generator

# A facet covers the tails that are beyond it by this much, where a random tail is off by 1.
REACH = 0.1
# Of the excess that is asked for; the rest is for the gradient in W1, of order 1/scale².
SPENT = 0.9
ENUMERATED = 14
SAMPLED = 2000


def sim_bn_spike(
    data: Dataset,
    excess: float = 1e-5,
    width: int | None = None,
    loss: str | Loss = "mse",
    scale: float = 1e6,
) -> Construction:
    """A 2-MLP-Sim-BN whose trace is within `excess` of the infimum, wrong on unseen points.

    The data must meet Condition 1: tails S, heads h ∈ {±1}², n = 4|S|, and some tail unseen.

    *Base.* The four neurons of Lemma A.1, (−1)^{i+j}-signed, |γ_j| = |W2_j| = √(|t|/2): their trace
    tends to the infimum, 8 |t| for the squared error, as W1 → ∞, and f = t on the whole cube.

    *Spikes.* An unseen tail z is a vertex of the cube, so it lies outside conv S, beyond one of its
    facets: there is an affine a with a ≤ 0 on S, a(s_k) = 0 for some s_k ∈ S and a(z) > 0. For a
    head h and 0 < τ let x_k = (h, s_k) and, with Ham the Hamming distance,
        A(x) = a(x[3:d]) + τ (1 − 2 Ham(x[3:d], s_k)) + H (h·x[1:2] − 2),
    which is affine on the cube since 2 Ham(t, s) = d − 2 − s·t. With H large enough A < 0 at all
    other heads; at the head h it is τ at s_k and at most −τ on the rest of S. So neuron A is active
    at x_k alone, as is the memorizing neuron B(x) = x_k·x − d + 1. Normalized, both are
    r/s = τ/√(τ²/n) = √n at x_k and 0 at the other training points, whatever τ. With
    |γ| = |W2| = √η, and W2 of sign −y(h) for A and y(h) for B, the pair
    - cancels on the training set, exactly;
    - has no gradient in W1 and b1, since r/s does not depend on them there, and no kink;
    - adds κ(‖γ‖² + ‖W2‖²) = 4κη to the trace, κ = ℓ″ (2 for the squared error);
    - adds −y(h) η √n A(x)/τ to f at unseen x with head h, and nothing at other heads.
    So for every η > 0 the last grows without limit as τ → 0: with τ = ρ/(2|t|/(η√n) + 2d) it is at
    least 2|t| where a > ρ, so that y f ≤ −|t| there. Spikes of one head have one sign.

    One pair refutes the theorem at width 6, for all complete data but the whole cube. By default
    there are as many as cover all unseen tails (a sample of them for d > 14) with all four heads;
    a `width` that is too small for them gets as many as fit. The smaller the excess, the smaller τ:
    a spike that float64 cannot tell from a kink is left out.
    """
    t, kappa = _checked(data, excess, width, loss)
    most = None if width is None else (width - 4) // 2
    spikes = _spikes(data, most)
    eta = SPENT * excess / (4 * kappa * len(spikes))
    pairs = [_pair(spike, eta, t, data) for spike in spikes]
    pairs = [pair for pair in pairs if _is_off_kinks(pair, data.d)]
    if not pairs:
        raise FlattestError(
            f"float64 cannot resolve spikes for an excess of {excess:g}; ask for a larger one."
        )
    params = _joined([_base(t, data.d), *pairs])
    params |= {name: scale * params[name] for name in ("W1", "b1")}
    model = MLP(enough_width(width, len(params["b1"])), bias=True, norm="sim_bn")
    statement = f"Sim-BN spike network within {excess:g} of the infimum"
    return construction(statement, model, params, data, loss, tolerance=excess / (4 * kappa * t))


def flattest_spike(
    data: Dataset, width: int | None = None, loss: str | Loss = "mse"
) -> Construction:
    """The spike network whose excess is just within what `certify` calls flattest."""
    t, kappa = _checked(data, FLATTEST, width, loss)
    return sim_bn_spike(data, 0.9 * FLATTEST * 4 * kappa * t, width, loss)


class Spike(NamedTuple):
    """A facet of conv S, a(t) = slope·t + offset with mean −1 over S, its vertex s_k, the value of
    a beyond which tails are covered, and the head h."""

    slope: np.ndarray
    offset: float
    vertex: np.ndarray
    reach: float
    head: np.ndarray


def _checked(
    data: Dataset, excess: float, width: int | None, loss: str | Loss
) -> tuple[float, float]:
    """|t| and κ of the loss, where data and excess are such that there is a spike network."""
    require_dataset(data)
    if not meets_condition_1(data):
        raise FlattestError("A spike network needs training data that meet Condition 1.")
    if data.n == 2**data.d:
        raise FlattestError("No point of the cube is unseen, so there is nothing to spike.")
    if not excess > 0:
        raise FlattestError(f"The excess over the infimum must be positive, not {excess!r}.")
    enough_width(width, 6)
    t = targets(resolve_loss(loss), data.y)
    return float(abs(t[0])), float(np.min(resolve_loss(loss).curvature(t, data.y)))


def _spikes(data: Dataset, most: int | None) -> list[Spike]:
    """Facets that cover the unseen tails, with all four heads each; the first ones, if too many."""
    S = np.unique(data.x[:, 2:], axis=0)
    found: list[Spike] = []
    for facet in _covering_facets(S, _unseen_tails(S)):
        found += [Spike(*facet, head) for head in hypercube(2)]
        if most is not None and len(found) >= most:
            break
    return found[:most]


def _unseen_tails(S: np.ndarray) -> np.ndarray:
    """The tails that are not in S, all of them or a sample."""
    d = S.shape[1] + 2
    rng = generator(0, "unseen tails", d)
    tails = hypercube(d - 2) if d <= ENUMERATED else rng.choice([-1.0, 1.0], (SAMPLED, d - 2))
    seen = {s.tobytes() for s in S}
    return np.array([z for z in tails if z.tobytes() not in seen])


def _covering_facets(
    S: np.ndarray, tails: np.ndarray
) -> Iterator[tuple[np.ndarray, float, np.ndarray, float]]:
    """Facets of conv S until every tail is beyond one: slope, offset, a vertex, the reach."""
    while len(tails):
        slope, offset, vertex = _visible_facet(S, tails[0])
        beyond = tails @ slope + offset
        reach = min(REACH * float(np.linalg.norm(slope)), float(beyond[0]) / 2)
        yield slope, offset, vertex, reach
        tails = tails[beyond <= reach]


def _visible_facet(S: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """The facet of conv S that z is farthest beyond, against the depth of the mean of S.

    max a(z) over affine a with a ≤ 0 on S and mean −1 over S: a linear program, bounded since the
    mean is an inner point, whose vertices are the facets. It is solved to its own tolerance, so
    that a is computed anew from the points on the facet.
    """
    from scipy.optimize import linprog  # slow to import, and rarely needed

    extended = np.column_stack([S, np.ones(len(S))])
    mean = extended.mean(axis=0)
    solution = linprog(
        -np.append(z, 1.0),
        A_ub=extended,
        b_ub=np.zeros(len(S)),
        A_eq=mean[None],
        b_eq=[-1.0],
        bounds=(None, None),
        method="highs-ds",
    )
    if not solution.success:
        raise FlattestError(f"The linear program for a facet failed: {solution.message}")
    on = extended @ solution.x > -1e-7
    rows, values = np.vstack([extended[on], mean]), np.append(np.zeros(on.sum()), -1.0)
    a = np.linalg.lstsq(rows, values, rcond=None)[0]
    return a[:-1], float(a[-1]), S[on][0]


def _base(t: float, d: int) -> Params:
    """The four neurons of Lemma A.1 at scale 1."""
    heads, root = hypercube(2), np.full(4, np.sqrt(t / 2))
    W1 = np.hstack([heads, np.zeros((4, d - 2))])
    return {"W1": W1, "b1": -np.ones(4), "gamma": root, "W2": heads.prod(axis=1) * root}


def _pair(spike: Spike, eta: float, t: float, data: Dataset) -> Params:
    """Neurons A and B of one spike."""
    n, d = data.n, data.d
    slope, offset, vertex, reach, head = spike
    tau = reach / (2 * t / (eta * np.sqrt(n)) + 2 * d)
    # The largest value over all tails, so that A < 0 at the other heads, where h·x[1:2] ≤ 0.
    H = (np.abs(slope).sum() + offset) / 2 + tau
    x_k = np.concatenate([head, vertex])
    A = np.concatenate([H * head, slope + tau * vertex])
    b = offset + tau * (3 - d) - 2 * H
    root, sign = np.sqrt(eta), head.prod()
    return {
        "W1": np.array([A, x_k]),
        "b1": np.array([b, 1.0 - d]),
        "gamma": np.array([root, root]),
        "W2": np.array([-sign * root, sign * root]),
    }


def _is_off_kinks(pair: Params, d: int) -> bool:
    """Whether τ = A(x_k) is well above what counts as 0, with x_k the weights of B."""
    A, x_k = pair["W1"]
    weights = np.append(A, pair["b1"][0])
    tau = float(weights @ np.append(x_k, 1.0))
    return tau > 2 * ZERO * np.sqrt(d + 1) * float(np.linalg.norm(weights))


def _joined(parts: list[Params]) -> Params:
    """The neurons of all parts, side by side."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
