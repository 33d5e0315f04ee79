"""Lemmas 1–5 and Theorems 1, 2."""

from itertools import chain

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.claim import Verdicts, claim, worst
from flattest.papers.mulayoff2021.claims.instances import (
    absolute_value,
    absolute_value_with_a_knot_on_data,
    flattest,
    mode_hessians,
    networks,
    networks_with_knots_on_data,
    own_data,
    step_lengths,
)
from flattest.problem.randomness import generator
from flattest.stability.dynamics import linearized_descent, top_eigenvector
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import (
    gradient_bound,
    gram_top_eigenvalue,
    lemma5_bound,
    modes,
    tangent_features,
    theorem2_threshold,
    toggles_per_sample,
)
from flattest.training.univariate import descend


@claim(
    "mulayoff2021/lemma-1-gd",
    "A minimum is stable for gradient descent up to λ_max(∇²L) = 2/η and no further.",
    source="Lemma 1",
    evidence="identity",
)
def lemma_1_gd(threshold=2.0) -> Verdict:
    note = "η·λ_max where descent started 1e-6 away begins to leave"
    steps = (_critical_step(network, x) for network, x in networks("lemma-1", 5))
    return worst(equal(step, threshold, 2e-3, note) for step in steps)


def _critical_step(network: UnivariateNetwork, x: np.ndarray) -> float:
    """The η λ_max at which gradient descent 1e-6 from the minimum turns from staying to leaving."""
    data, features = own_data(network, x), tangent_features(network, x)
    start = UnivariateNetwork.from_theta(network.theta + 1e-6 * top_eigenvector(features))
    top = gram_top_eigenvalue(features)
    low, high = 1.0, 3.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        found = descend(
            start, data, [ft.gd(middle / top, steps=2000)], range(0, 2001, 5), threads=1
        )
        leaves = np.linalg.norm(found.trace_theta[0] - network.theta, axis=1).max() > 1.001e-6
        low, high = (low, middle) if leaves else (middle, high)
    return high


@claim(
    "mulayoff2021/lemma-1-sgd",
    "E[θ_t − θ*] = (I − ηH)^t (θ_0 − θ*) for SGD, so that a stable minimum has λ_max ≤ 2/η.",
    source="Lemma 1, (S3)",
    evidence="enumeration",
)
def lemma_1_sgd(threshold=2.0) -> Verdict:
    network, x = next(networks("lemma-1-sgd", 1, n=4, width=3))
    features = tangent_features(network, x)
    q, top = top_eigenvector(features), gram_top_eigenvalue(features)
    pairs = [np.array([i, j]) for i in range(4) for j in range(i)]
    lr = 2.5 / top
    ends = [linearized_descent(network, x, q, lr, [a, b])[-1] for a in pairs for b in pairs]
    # |1 − ηλ| = 1 at the threshold and grows with slope 1 beyond.
    growth = (1 + 2.5 - threshold) ** 2
    return equal(np.linalg.norm(np.mean(ends, axis=0)), growth, 1e-9, "all 36 pairs of batches")


@claim(
    "mulayoff2021/lemma-2-strongly-stable",
    "Where one q is a δ-approximate eigenvector of every mode and λ^lower > 2/η + δ (γ = 0), a "
    "step from θ* + εq leaves the ball: the minimum is not strongly stable.",
    source="Lemma 2, III.1",
    evidence="inequality",
    of=worst,
)
def lemma_2_strong() -> Verdicts:
    for network, x in networks_with_knots_on_data("lemma-2", 40, width=30):
        features = [tangent_features(network, x, pattern) for pattern in modes(network, x)]
        q = top_eigenvector(max(features, key=gram_top_eigenvalue))
        images = [phi @ (phi.T @ q) / x.size for phi in features]
        lambdas = [float(q @ image) for image in images]
        delta = max(float(np.linalg.norm(v - q * l)) for v, l in zip(images, lambdas, strict=True))
        if min(lambdas) > delta:
            for growth in step_lengths(network, x, q, 2 / (min(lambdas) - delta)):
                yield at_least(growth, 1.0, 1e-9, "least ‖θ_1 − θ*‖/ε at the limit")


@claim(
    "mulayoff2021/lemma-2-stable",
    "With δ = 0 and λ^lower > 2/η + γ/ε, E|qᵀ(θ_t − θ*)| exceeds ε for all t: not stable.",
    source="Lemma 2, III.2",
    evidence="inequality",
)
def lemma_2_stable() -> Verdict:
    reached = [_switching_distance(index) for index in range(20)]
    return at_least(min(reached), 1.0, 0.0, "least E|qᵀ(θ_t − θ*)|/ε, 30 steps, 200 noise paths")


def _switching_distance(index: int) -> float:
    """min over t ≥ 1 of E|qᵀ(θ_t − θ*)|/ε in a random switching system with a common q.

    The mode is the sign of one coordinate; gradient noise is ±γ along q.
    """
    rng = generator(0, "mulayoff2021/switching", index)
    q = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    lr, eps, gamma = rng.uniform(0.1, 1), 1e-3, 1e-4
    lower = (2 / lr + gamma / eps) * 1.001
    H = [(q * np.append(lower * rng.uniform(1, 1.5), rng.uniform(0, 1, 4))) @ q.T for _ in range(2)]
    theta = np.tile(eps * q[:, 0], (200, 1))
    distances = []
    for _ in range(30):
        side = theta[:, 1] > 0
        pull = np.where(side[:, None], theta @ H[0], theta @ H[1])
        noise = gamma * rng.choice([-1.0, 1.0], 200)[:, None] * q[:, 0]
        theta = theta - lr * (noise + pull)
        distances.append(np.abs(theta @ q[:, 0]).mean() / eps)
    return min(distances)


@claim(
    "mulayoff2021/lemma-3",
    "Where λ_max(H_m) ≤ 2/η for every mode, gradient descent near a differentiable minimum never "
    "moves away.",
    source="Lemma 3",
    evidence="inequality",
    of=worst,
)
def lemma_3() -> Verdicts:
    for index, (network, x) in enumerate(networks_with_knots_on_data("lemma-3", 30)):
        lr = 2 / ft.upper_top_eigenvalue(network, own_data(network, x)).value
        start = generator(1, "mulayoff2021/lemma-3", index).normal(size=network.theta.size)
        path = linearized_descent(network, x, start, lr, [np.arange(x.size)] * 200)
        farthest = np.linalg.norm(path, axis=1).max() / np.linalg.norm(start)
        yield at_most(farthest, 1.0, 1e-12, "largest ‖θ_t − θ*‖/‖θ_0 − θ*‖, 200 steps")


@claim(
    "mulayoff2021/lemma-4",
    "Every implementation of an interpolator f has λ_max ≥ 1 + 2∫|f″|g.",
    source="Lemma 4",
    evidence="inequality",
)
def lemma_4() -> Verdict:
    ratios = [
        flattest(net, x).value / ft.lemma4_bound(net, x) for net, x in networks("lemma-4", 150)
    ]
    return at_least(min(ratios), 1.0, 1e-12, "least flattest λ_max over bound, 150 networks")


@claim(
    "mulayoff2021/lemma-4-attained",
    "The bound 1 + 2∫|f″|g is attained, by f = 30|x| on x = ±1.",
    source="Lemma 4, tightness",
    evidence="certificate",
)
def lemma_4_attained(factor=2.0) -> Verdict:
    network, x = absolute_value(30.0)
    return equal(
        flattest(network, x).value, 1 + factor * ft.weighted_total_variation(network, x), 1e-7
    )


@claim(
    "mulayoff2021/theorem-1",
    "A stable f without knots on data points has ∫|f″|g ≤ 1/η − 1/2.",
    source="Theorem 1",
    evidence="inequality",
    of=worst,
)
def theorem_1() -> Verdicts:
    for network, x in networks("theorem-1", 300):
        lr = 2 / gram_top_eigenvalue(tangent_features(network, x))
        share = ft.weighted_total_variation(network, x) / (1 / lr - 0.5)
        yield at_most(share, 1.0, 1e-12, "largest share of 1/η − 1/2 at the edge η = 2/λ_max")


@claim(
    "mulayoff2021/theorem-1-attained",
    "∫|f″|g = 1/η − 1/2 for f = |x|/2 on x = ±1 at the largest stable η.",
    source="Theorem 1, tightness",
    evidence="certificate",
)
def theorem_1_attained(half=0.5) -> Verdict:
    network, x = absolute_value(0.5)
    lr = 2 / flattest(network, x).value
    return equal(ft.weighted_total_variation(network, x), 1 / lr - half, 1e-7)


@claim(
    "mulayoff2021/lemma-5",
    "‖H̃q − λ_max(H) q‖ ≤ √3 C (√λ_max(H) + √λ_max(H̃)) √(p_max/n) for any two modes.",
    source="Lemma 5, (S70)",
    evidence="inequality",
    of=worst,
)
def lemma_5() -> Verdicts:
    note = "the third block of ∇φ is 0 at a toggle, so that √2 would do for √3"
    for network, x in networks_with_knots_on_data("lemma-5", 25):
        C, p_max = gradient_bound(network, x), int(toggles_per_sample(network, x).max())
        hessians = mode_hessians(network, x)
        tops = [np.linalg.eigh(H) for H in hessians]
        for values, vectors in tops:
            for H, (others, _) in zip(hessians, tops, strict=True):
                left = np.linalg.norm(H @ vectors[:, -1] - values[-1] * vectors[:, -1])
                right = lemma5_bound(values[-1], others[-1], C, p_max, x.size)
                yield at_most(left / right, np.sqrt(2 / 3), 1e-12, note)


@claim(
    "mulayoff2021/theorem-2",
    "A strongly stable minimum has λ_max^upper ≤ the right side of (S75), corrected: beyond it a "
    "step leaves the ball.",
    source="Theorem 2",
    evidence="inequality",
)
def theorem_2() -> Verdict:
    growth = []
    for network, x in networks_with_knots_on_data("theorem-2", 25, width=120):
        features = [tangent_features(network, x, pattern) for pattern in modes(network, x)]
        top = max(features, key=gram_top_eigenvalue)
        limit = _strong_limit(network, x, gram_top_eigenvalue(top))
        if limit > 0:
            growth += step_lengths(network, x, top_eigenvector(top), 2 / limit)
    return at_least(min(growth), 1.0, 1e-9, f"least ‖θ_1 − θ*‖/ε, {len(growth)} starts")


def _strong_limit(network: UnivariateNetwork, x: np.ndarray, upper: float) -> float:
    """The least 2/η for which (S75) lets λ_max^upper be `upper`: λ = 2/η + α√λ, (S71).

    Where it is not positive, (S75) allows every η.
    """
    share = toggles_per_sample(network, x).max() / x.size
    return float(upper - 2 * np.sqrt(3 * share * upper) * gradient_bound(network, x))


@claim(
    "mulayoff2021/theorem-2-variation",
    "A strongly stable f has ∫|f″|g ≤ 1/η − 1/2 + 3C²p/n + C√(3(p/n)(3C²p/n + 2/η)).",
    source="Theorem 2, (S75) corrected with (S79)",
    evidence="inequality",
)
def theorem_2_variation() -> Verdict:
    random = networks_with_knots_on_data("theorem-2-variation", 60, width=120)
    shares = []
    for network, x in chain([absolute_value_with_a_knot_on_data()], random):
        upper = ft.upper_top_eigenvalue(network, own_data(network, x)).value
        limit = _strong_limit(network, x, upper)
        if limit > 0:
            allowed = theorem2_threshold(network, x, 2 / limit)
            shares.append(ft.weighted_total_variation(network, x) / allowed)
    note = (
        f"largest share at the largest η that (S75) allows, {len(shares)} minima; 5|x| attains it"
    )
    return at_most(max(shares), 1.0, 1e-12, note)
