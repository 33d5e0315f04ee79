"""Lemmas 1–5 and Theorems 1, 2."""

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import claim
from flattest.papers.mulayoff2021.claims.instances import (
    SIZES_WITH_FEW_KNOTS,
    SIZES_WITH_KNOTS,
    absolute_value,
    absolute_value_with_a_knot_on_data,
    decoded,
    encoded,
    families,
    families_with_knots_on_data,
    flattest,
    mode_hessians,
    networks,
    own_data,
    step_lengths,
)
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
    with_knots_at,
)
from flattest.training.univariate import descend

NAN = float("nan")
# Below this ∫|f″|g both sides are those of a constant, and their ratio is rounding.
FLAT = 1e-3


@universal(
    "mulayoff2021/lemma-1-gd",
    "A minimum is stable for gradient descent up to λ_max(∇²L) = 2/η and no further.",
    source="Lemma 1",
    refuted_by="a minimum and a start from which a thousand steps at λ_max = 2/η end farther away",
    largest=1.0,
    attained=True,
    evidence="proof",
    evaluations=600,
)
def lemma_1_gd(threshold=2.0) -> Plan:
    """Proof: linearized, θ_t − θ* = (I − ηH)^t (θ_0 − θ*) with H ⪰ 0, which is bounded for every
    θ_0 exactly if no eigenvalue of H exceeds 2/η. Descent itself, on five networks, agrees."""
    note = "η·λ_max where descent started 1e-6 away begins to leave"
    for network, x in networks("lemma-1", 5):
        yield equal(_critical_step(network, x), threshold, 2e-3, note)
    yield from families(_thousand_steps)


def _thousand_steps(network: UnivariateNetwork, x: np.ndarray) -> float:
    """‖(I − ηH)^1000‖ at η = 2/λ_max: the largest ‖θ_1000 − θ*‖/‖θ_0 − θ*‖."""
    features = tangent_features(network, x)
    H = features @ features.T / x.size
    step = np.eye(len(H)) - 2 / np.linalg.norm(H, 2) * H
    return float(np.linalg.norm(np.linalg.matrix_power(step, 1000), 2))


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


@universal(
    "mulayoff2021/lemma-1-sgd",
    "E[θ_t − θ*] = (I − ηH)^t (θ_0 − θ*) for SGD, so that a stable minimum has λ_max ≤ 2/η.",
    source="Lemma 1, (S3)",
    refuted_by="a minimum and η where the mean of two steps over all batches is another",
    largest=0.0,
    evidence="proof",
    evaluations=400,
)
def lemma_1_sgd(threshold=2.0) -> Plan:
    """Proof: linearized, θ_{t+1} − θ* = (I − ηH_B)(θ_t − θ*) with a batch B that is independent of
    θ_t and E H_B = H. Along the top eigenvector the mean grows by |1 − ηλ_max| a step."""
    network, x = next(networks("lemma-1-sgd", 1, n=4, width=3))
    features = tangent_features(network, x)
    q, top = top_eigenvector(features), gram_top_eigenvalue(features)
    pairs = [np.array([i, j]) for i in range(4) for j in range(i)]
    lr = 2.5 / top
    ends = [linearized_descent(network, x, q, lr, [a, b])[-1] for a in pairs for b in pairs]
    # |1 − ηλ| = 1 at the threshold and grows with slope 1 beyond.
    growth = (1 + 2.5 - threshold) ** 2
    yield equal(np.linalg.norm(np.mean(ends, axis=0)), growth, 1e-9, "all 36 pairs of batches")
    yield Family("n = 3, k = 2, any η", 10, _mean_of_two_steps)


def _mean_of_two_steps(z: np.ndarray) -> float:
    """By how much the mean of θ_2 − θ* over all pairs of samples is off (I − ηH)² (θ_0 − θ*), θ_0
    along the top eigenvector, against the longest of them; η λ_max is the first coordinate."""
    network, x = decoded(z[1:], 3)
    features = tangent_features(network, x)
    q, top = top_eigenvector(features), gram_top_eigenvalue(features)
    lr = float(np.clip(abs(z[0]), 0.01, 10)) / top
    batches = [np.array([i]) for i in range(3)]
    ends = [linearized_descent(network, x, q, lr, [a, b])[-1] for a in batches for b in batches]
    expected = (1 - lr * top) ** 2 * q
    return float(
        np.linalg.norm(np.mean(ends, axis=0) - expected) / np.linalg.norm(ends, axis=1).max()
    )


@universal(
    "mulayoff2021/lemma-2-strongly-stable",
    "Where one q is a δ-approximate eigenvector of every mode and λ^lower > 2/η + δ (γ = 0), a "
    "step from θ* + εq leaves the ball: the minimum is not strongly stable.",
    source="Lemma 2, III.1",
    refuted_by="a minimum with knots on inputs and a q such that at λ^lower = 2/η + δ a step from "
    "θ* + εq or θ* − εq ends within ε",
    least=1.0,
    evidence="proof",
    evaluations=900,
)
def lemma_2_strong() -> Plan:
    """Proof: ‖θ_1 − θ*‖ ≥ |qᵀ(I − ηH_m)q|ε ≥ (ηλ_m − 1 − ηδ)ε ≥ ε, since ‖H_m q − λ_m q‖ ≤ δ and
    ηλ_m ≥ 2 + ηδ, whichever mode m the start is in."""
    yield from families_with_knots_on_data(_growth_at_the_limit)


def _growth_at_the_limit(network: UnivariateNetwork, x: np.ndarray) -> float:
    """The least ‖θ_1 − θ*‖/ε at λ^lower = 2/η + δ, q the top eigenvector of the sharpest mode."""
    features = [tangent_features(network, x, pattern) for pattern in modes(network, x)]
    q = top_eigenvector(max(features, key=gram_top_eigenvalue))
    images = [phi @ (phi.T @ q) / x.size for phi in features]
    lambdas = [float(q @ image) for image in images]
    delta = max(float(np.linalg.norm(v - q * l)) for v, l in zip(images, lambdas, strict=True))
    if min(lambdas) <= delta:
        return NAN
    return min(step_lengths(network, x, q, 2 / (min(lambdas) - delta)))


@universal(
    "mulayoff2021/lemma-2-stable",
    "With δ = 0 and λ^lower > 2/η + γ/ε, E|qᵀ(θ_t − θ*)| exceeds ε for all t: not stable.",
    source="Lemma 2, III.2",
    refuted_by="a switching system with a common eigenvector q and λ^lower = 2/η + γ/ε in which "
    "E|qᵀ(θ_t − θ*)| < ε for a t ≥ 1",
    least=1.0,
    evidence="proof",
    evaluations=900,
)
def lemma_2_stable() -> Plan:
    """Proof: qᵀH_m = λ_m qᵀ, so x_t = E|qᵀ(θ_t − θ*)| has x_{t+1} ≥ (ηλ^lower − 1)x_t − ηγ, which
    is at least (1 + ηγ/ε)x_t − ηγ ≥ x_t as long as x_t ≥ ε, and x_0 = ε."""
    yield Family("two modes in the plane, noise of two values, t ≤ 8", 8, _switching_distance)


def _switching_distance(z: np.ndarray) -> float:
    """min over t ≥ 1 of E|qᵀ(θ_t − θ*)|/ε, over all 2^t paths of the noise, ε = η = 1.

    q = e_1, without loss of generality; H_m = diag(λ_m, μ_m), λ^lower = 2 + γ; the mode is the side
    of a line through θ*, and the noise in q's direction is u with probability v and −uv/(1 − v)
    else, of mean 0 and mean absolute value γ = 2uv.
    """
    u, v = np.abs(z[0]), 0.5 + 0.49 * np.tanh(z[1])
    gamma = 2 * u * v
    top = 2 + gamma + np.array([0.0, np.abs(z[2])])
    side = np.exp(z[3:5])
    points, chances = np.array([[1.0, z[5]]]), np.ones(1)
    reached = []
    for _ in range(8):
        mode = (points @ z[6:8] > 0).astype(int)
        moved = points * (1 - np.column_stack([top[mode], side[mode]]))
        ends = [moved - [noise, 0.0] for noise in (u, -u * v / (1 - v))]
        points, chances = np.concatenate(ends), np.concatenate([v * chances, (1 - v) * chances])
        reached.append(float(chances @ np.abs(points[:, 0])))
    return min(reached) if np.isfinite(reached).all() else NAN


@universal(
    "mulayoff2021/lemma-3",
    "Where λ_max(H_m) ≤ 2/η for every mode, gradient descent near a differentiable minimum never "
    "moves away.",
    source="Lemma 3",
    refuted_by="a minimum with knots on inputs and a start from which descent at η = 2/λ_max^upper "
    "moves away",
    largest=1.0,
    evidence="proof",
    evaluations=900,
)
def lemma_3() -> Plan:
    """Proof: the gradient of every mode is 0 at θ* (S57), so a step is I − ηH_m, whose eigenvalues
    lie in [−1, 1]."""
    for n, width, knots in SIZES_WITH_KNOTS:
        pairs = np.array([(i % n, i) for i in range(knots)])

        def farthest(z: np.ndarray, n: int = n, width: int = width, pairs=pairs) -> float:
            network, x = decoded(z[: n + 3 * width], n)
            network, start = with_knots_at(network, x, pairs), z[n + 3 * width :]
            lr = 2 / ft.upper_top_eigenvalue(network, own_data(network, x)).value
            path = linearized_descent(network, x, start, lr, [np.arange(n)] * 10)
            return float(np.linalg.norm(path, axis=1).max() / np.linalg.norm(start))

        name = f"n = {n}, k = {width}, {knots} of the knots on inputs, 10 steps"
        yield Family(name, n + 6 * width + 1, farthest)


@universal(
    "mulayoff2021/lemma-4",
    "Every implementation of an interpolator f has λ_max ≥ 1 + 2∫|f″|g.",
    source="Lemma 4",
    refuted_by="a network and inputs with λ_max − 1 < 2∫|f″|g",
    least=1.0,
    evidence="proof",
    evaluations=1200,
)
def lemma_4() -> Plan:
    """Proof: λ_max ≥ ‖Φ1‖²/n² = 1 + Σ_i (w2_i²((Σ_active x_j)² + n_i²) + (Σ_active h_ij)²)/n², at
    least 1 + 2 Σ_i |w2_i| √((Σ_active x_j)² + n_i²) |Σ_active h_ij|/n², whose terms are
    2|w1_i w2_i| g⁺ or g⁻ at the knot τ_i, hence at least 2|w1_i w2_i| g(τ_i), where w1_i ≠ 0. And
    ∫|f″|g ≤ Σ_i |w1_i w2_i| g(τ_i), since f″ = Σ_i |w1_i| w2_i δ(x − τ_i)."""

    def ratio(network: UnivariateNetwork, x: np.ndarray) -> float:
        variation = ft.weighted_total_variation(network, x)
        above = gram_top_eigenvalue(tangent_features(network, x)) - 1
        return above / (2 * variation) if variation > FLAT else NAN

    yield from families(ratio)


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


@universal(
    "mulayoff2021/theorem-1",
    "A stable f without knots on data points has ∫|f″|g ≤ 1/η − 1/2.",
    source="Theorem 1",
    refuted_by="a network that is stable up to η = 2/λ_max and has ∫|f″|g > 1/η − 1/2 there",
    largest=1.0,
    evidence="proof",
    evaluations=1200,
)
def theorem_1() -> Plan:
    """Proof: a stable network has λ_max ≤ 2/η (Lemma 1) and λ_max ≥ 1 + 2∫|f″|g (Lemma 4)."""

    def share(network: UnivariateNetwork, x: np.ndarray) -> float:
        lr = 2 / gram_top_eigenvalue(tangent_features(network, x))
        variation = ft.weighted_total_variation(network, x)
        return variation / (1 / lr - 0.5) if variation > FLAT else NAN

    best = UnivariateNetwork.of(flattest(*absolute_value(0.5)).params)
    yield from families(share, starts=[encoded(best, np.array([-1.0, 1.0]))])


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


LEMMA_5 = "‖H̃q − λ_max(H) q‖ ≤ √3 C (√λ_max(H) + √λ_max(H̃)) √(p_max/n) for any two modes, p_max "


@claim(
    "mulayoff2021/lemma-5-as-printed",
    LEMMA_5 + "the largest number of neurons whose threshold is one of the (distinct) inputs.",
    source="Lemma 5, (S64), (S70)",
    evidence="certificate",
    reading="as printed",
)
def lemma_5_as_printed() -> Verdict:
    """One neuron with w1 = b1 = 0, w2 = 1 on n distinct inputs near 1: it toggles on all of them,
    against (S64), and a step away from θ* it is off or on at all of them. Off, λ_max(H) = 1 with q
    along b2; on, H̃q − q = (mean x, 1, 0, 0) has length ≈ √2 and λ_max(H̃) ≈ 3, while the right side
    falls as 1/√n."""
    n = 100
    x = 1 + np.arange(n) / 1e4
    network = UnivariateNetwork(np.zeros(1), np.zeros(1), np.ones(1), 0.0)
    off, on = (tangent_features(network, x, np.full((n, 1), active)) for active in (False, True))
    q, top = top_eigenvector(off), gram_top_eigenvalue(off)
    left = np.linalg.norm(on @ (on.T @ q) / n - top * q)
    right = lemma5_bound(top, gram_top_eigenvalue(on), gradient_bound(network, x), 1, n)
    return at_most(left, right, 0.0, "a neuron with w1 = b1 = 0 toggles on all 100 inputs")


@universal(
    "mulayoff2021/lemma-5-corrected",
    LEMMA_5 + "with each neuron counted for every sample on which it toggles; √2 does for √3.",
    source="Lemma 5, (S64), (S70)",
    refuted_by="two modes with a left side above √(2/3) of the right",
    largest=np.sqrt(2 / 3),
    evaluations=900,
    evidence="proof",
    reading="as corrected",
)
def lemma_5_corrected() -> Plan:
    """Proof: H̃q − λq = (H̃ − H)q = (Φ̃(Φ̃ − Φ)ᵀ + (Φ̃ − Φ)Φᵀ)q/n, of length at most
    ‖Φ̃ − Φ‖(√λ_max(H̃) + √λ_max(H))/√n. An entry of Φ̃ − Φ is not 0 where neuron i toggles on x_j,
    and then in the blocks of w1 and b1 only (the third, w1 x_j + b1, is 0 at a toggle), at most C
    in absolute value. So ‖(Φ̃ − Φ)u‖² ≤ 2C² Σ_i (Σ_j |u_j| a_ij)² ≤ 2C² p_max, as
    `toggles_per_sample` has it."""
    yield from families_with_knots_on_data(_largest_disagreement)
    for n, width in ((3, 1), (4, 2)):

        def measured(z: np.ndarray, n: int = n) -> float:
            network, x = decoded(z, n)
            network.w1[0] = network.b1[0] = 0.0
            return _largest_disagreement(network, x)

        yield Family(f"n = {n}, k = {width}, w1_1 = b1_1 = 0", n + 3 * width, measured)


def _largest_disagreement(network: UnivariateNetwork, x: np.ndarray) -> float:
    """The largest ratio of the two sides of (S70) over all pairs of modes."""
    C, p_max = gradient_bound(network, x), int(toggles_per_sample(network, x).max())
    hessians = mode_hessians(network, x)
    tops = [(values[-1], vectors[:, -1]) for values, vectors in map(np.linalg.eigh, hessians)]
    return max(
        float(np.linalg.norm(H @ q - top * q)) / lemma5_bound(top, other, C, p_max, x.size)
        for top, q in tops
        for H, (other, _) in zip(hessians, tops, strict=True)
    )


@universal(
    "mulayoff2021/theorem-2",
    "A strongly stable minimum has λ_max^upper ≤ the right side of (S75), corrected: beyond it a "
    "step leaves the ball.",
    source="Theorem 2",
    refuted_by="a minimum at the limit of (S75) from which a step from θ* ± εq ends within ε, q "
    "the top eigenvector of the sharpest mode",
    least=1.0,
    evidence="proof",
    evaluations=900,
)
def theorem_2() -> Plan:
    """Proof: Lemma 2 with Lemma 5 as corrected, λ_m = λ_max^upper for every mode and
    δ = 2√3 C √λ_max^upper √(p_max/n)."""

    def growth(network: UnivariateNetwork, x: np.ndarray) -> float:
        features = [tangent_features(network, x, pattern) for pattern in modes(network, x)]
        top = max(features, key=gram_top_eigenvalue)
        limit = _strong_limit(network, x, gram_top_eigenvalue(top))
        return min(step_lengths(network, x, top_eigenvector(top), 2 / limit)) if limit > 0 else NAN

    start = encoded(*absolute_value_with_a_knot_on_data())
    yield from families_with_knots_on_data(growth, SIZES_WITH_FEW_KNOTS, start)


def _strong_limit(network: UnivariateNetwork, x: np.ndarray, upper: float) -> float:
    """The least 2/η for which (S75) lets λ_max^upper be `upper`: λ = 2/η + α√λ, (S71).

    Where it is not positive, (S75) allows every η.
    """
    share = toggles_per_sample(network, x).max() / x.size
    return float(upper - 2 * np.sqrt(3 * share * upper) * gradient_bound(network, x))


@universal(
    "mulayoff2021/theorem-2-variation",
    "A strongly stable f has ∫|f″|g ≤ 1/η − 1/2 + 3C²p/n + C√(3(p/n)(3C²p/n + 2/η)); 5|x| attains "
    "it in the limit.",
    source="Theorem 2, (S75) corrected with (S79)",
    refuted_by="a minimum with knots on inputs and a larger ∫|f″|g at the largest η that (S75) "
    "allows",
    largest=1.0,
    evidence="proof",
    evaluations=900,
)
def theorem_2_variation() -> Plan:
    """Proof: Theorem 2 with (S79)."""

    def share(network: UnivariateNetwork, x: np.ndarray) -> float:
        upper = ft.upper_top_eigenvalue(network, own_data(network, x)).value
        limit = _strong_limit(network, x, upper)
        if limit <= 0:
            return NAN
        return ft.weighted_total_variation(network, x) / theorem2_threshold(network, x, 2 / limit)

    start = encoded(*absolute_value_with_a_knot_on_data())
    yield from families_with_knots_on_data(share, SIZES_WITH_FEW_KNOTS, start)
