"""Appendix B, Definition 2, Example 1, Proposition 4, Lemmas 10–12, Theorems 3 and 5."""

from functools import partial
from itertools import combinations_with_replacement, product

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, every, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    deviation,
    exponents,
    features,
    gaussian,
    power_law,
)
from flattest.problem.distributions import MultiIndex, unit_rows
from flattest.problem.multi_index import (
    gaussian_moments,
    label_moments,
    label_variance,
    largest_cosine,
    mean_label,
    signal_power,
)
from flattest.problem.randomness import generator

ACTIVATIONS = ("relu", "leaky_relu:0.1", "quadratic")


@universal(
    "vardhan2026/appendix-b.1",
    "The population loss is E y² − 2 a·k + aᵀKa, k_j = E y σ(w_j·x), K_ij = E σ(w_i·x) σ(w_j·x), "
    "with closed forms for the moments.",
    source="Appendix B.1, Eq. (2)",
    refuted_by="two weight vectors whose moment, by quadrature, is another",
    largest=0.0,
    tolerance=1e-10,
    evaluations=600,
)
def appendix_b1() -> Plan:
    """Whatever d, two weight vectors span a plane. Nine losses are sampled too."""

    def distance(first: str, second: str, z: np.ndarray) -> float:
        w, v = z.reshape(2, 2)
        size = np.linalg.norm(w) ** DEGREE[first] * np.linalg.norm(v) ** DEGREE[second]
        closed = gaussian_moments(first, w[None], second, v[None])[0, 0]
        return abs(closed - moment_by_quadrature(first, w, second, v)) / size

    for first, second in combinations_with_replacement(ACTIVATIONS, 2):
        yield Family(f"{first}, {second}", 4, partial(distance, first, second))
    laws: tuple[MultiIndex, ...] = (
        ft.SingleIndex(10, link="leaky_relu:0.1", noise=0.2),
        ft.SumOfSingleIndex(10, 3, "relu", 0.2),
        ft.QuadraticForm(10, 0.2),
    )
    for name, distribution in product(ACTIVATIONS, laws):
        W = ft.inner_weights(distribution.directions, 15, 0.6, seed=0)
        a = generator(0, "claims/outer weights").standard_normal(15) / 8
        fresh = distribution.population(40_000, seed=1)
        errors = (features(W, fresh.x, name) @ a - fresh.y) ** 2
        distance_found = errors.mean() - ft.population_loss(W, a, distribution, name)
        stderr = errors.std() / np.sqrt(len(errors))
        yield at_most(abs(distance_found) / stderr, 4, 0.0, "standard errors, 9 cases")


DEGREE = {"relu": 1, "leaky_relu:0.1": 1, "quadratic": 2}


def moment_by_quadrature(first: str, w: np.ndarray, second: str, v: np.ndarray) -> float:
    """E φ(w·x) ψ(v·x) in the plane: x = R(cos t, sin t), R² ~ χ²(2), cut where signs change."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    phi, psi = (ft.activation(name).value for name in (first, second))
    kinks = [np.arctan2(u[1], u[0]) + side * np.pi / 2 for u in (w, v) for side in (-1, 1)]
    cuts = np.sort(np.concatenate([np.mod(kinks, 2 * np.pi), [0, 2 * np.pi]]))
    middle, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    t = (middle[:, None] + half[:, None] * nodes).ravel()
    unit = np.stack([np.cos(t), np.sin(t)])
    inside = np.asarray(phi(w @ unit)) * np.asarray(psi(v @ unit))
    degree = DEGREE[first] + DEGREE[second]
    # E R^k for k = 2, 3, 4.
    radial = {2: 2.0, 3: 3 * np.sqrt(np.pi / 2), 4: 8.0}[degree]
    return float(radial * ((half[:, None] * weights).ravel() @ inside) / (2 * np.pi))


@claim(
    "vardhan2026/appendix-b-single-index",
    "For a single index and all w_j = u the best Σ a_j is E(link·σ)/E σ², which leaves "
    "E link² − (E link·σ)²/E σ²: ½ for a linear link and ReLU.",
    source="Appendix C.4, optimal outer-layer weights",
    evidence="identity",
)
def single_index_optimum(factor=0.5) -> Verdict:
    distribution = ft.SingleIndex(6, link="linear")
    W = np.repeat(distribution.directions, 3, axis=0)
    least, a = ft.least_population_loss(W, distribution, "relu")
    u = distribution.directions
    best = gaussian_moments("relu", u, "linear", u) / gaussian_moments("relu", u, "relu", u)
    return provided(
        equal(least, factor, 1e-9, "linear link, ReLU"),
        equal(a.sum(), best[0, 0], 1e-6, "Σ a_j"),
    )


@claim(
    "vardhan2026/definition-2",
    "Inner weights with the three properties exist: unit and separated, every unit vector of their "
    "span within ρ of orthogonal to span(U), and no outer weights make the population loss small.",
    source="Definition 2",
    evidence="certificate",
)
def definition_2(rho=0.3) -> Verdict:
    distribution = ft.SumOfSingleIndex(30, 3, "relu")
    U = distribution.directions
    W = ft.bad_inner_weights(U, 90, 0.3, seed=0)
    variance = label_variance(distribution)
    least, _ = ft.least_population_loss(W, distribution, "relu")
    return provided(
        equal(ft.span_correlation(W, U), rho, 1e-9, "correlation of span{w_j} with span(U)"),
        at_most(largest_cosine(W), 0.95),
        at_least(least / variance, 0.5),
    )


@claim(
    "vardhan2026/section-6.1-weights/as-printed",
    "Unit weights whose correlation with span(U) is exactly ρ each are like Definition 2's: "
    "every unit vector of their span is within ρ.",
    source="Section 6.1",
    evidence="identity",
    reading="as printed",
)
def section_6_weights_printed() -> Verdict:
    U = np.eye(5, 50)
    note = "correlation of the span of m = 200 weights with ρ = 0.1 each, d = 50"
    return at_most(ft.span_correlation(ft.inner_weights(U, 200, 0.1), U), 0.1, 1e-6, note)


@claim(
    "vardhan2026/section-6.1-weights/corrected",
    "Each weight has correlation ρ; m > d such weights span R^d, whose correlation is 1.",
    source="Section 6.1",
    evidence="identity",
    reading="as corrected",
)
def section_6_weights_corrected(rho=0.1) -> Verdict:
    U = np.eye(5, 50)
    W = ft.inner_weights(U, 200, 0.1)
    return provided(
        equal(np.linalg.norm(W @ U.T, axis=1).max(), rho, 1e-9, "largest single correlation"),
        equal(ft.span_correlation(W, U), 1, 1e-9, "of the span"),
    )


@claim(
    "vardhan2026/example-1",
    "If all w_j are orthogonal to span(U), the population loss is Var(link) + σ² + E(f − E y)², "
    "hence at least Var(link) + σ², for all outer weights.",
    source="Example 1, Appendix D.4.2",
    evidence="identity",
    of=worst,
)
def example_1(factor=1.0) -> Verdicts:
    for name in ACTIVATIONS:
        distribution = ft.SumOfSingleIndex(20, 4, name, 0.3)
        W = ft.bad_inner_weights(distribution.directions, 30, 0.0, seed=0)
        a = generator(1, "claims/outer weights").standard_normal(30) / 10
        mean = mean_label(distribution)
        spread = label_variance(distribution) + 0.3**2
        K = gaussian_moments(name, W, name, W)
        # E f = m₁ Σ a_j with m₁ = E σ(t), which is E y for a teacher of the same activation.
        square = a @ K @ a - 2 * mean * mean * a.sum() + mean**2
        loss = ft.population_loss(W, a, distribution, name)
        yield equal(loss, factor * (spread + square), 1e-9, "three activations")
        yield at_least(ft.least_population_loss(W, distribution, name)[0], spread, 1e-9)


@universal(
    "vardhan2026/proposition-4",
    "A small enough ρ makes the population loss large whatever the outer weights: for ReLU it is "
    "at least Var y − (κ(ρ²) − κ(0))/r, κ the arc-cosine kernel, for all inner weights whose span "
    "has correlations ρ with span(U): above 0.9 Var y for ρ ≤ 0.3.",
    source="Proposition 4",
    refuted_by="inner weights of that span with a smaller least loss",
    least=1.0,
    evaluations=600,
    evidence="proof",
)
def proposition_4() -> Plan:
    """Proof: f sees the projection P x on the span only, so that its loss is at least
    E Var(y | P x) = Var y − Var E(y | P x). Given P x, u_k·x is Gaussian with mean u_k·P x and
    variance 1 − ρ² (Lemma 10), so two copies of u_k·x that share P x have correlation ρ², and
    Var E(relu(u_k·x) | P x) = κ(ρ²) − κ(0)."""
    for rho in (0.0, 0.3, 0.9):
        yield Family(f"ρ = {rho}, m = 6 in R³, r = 1", 12, partial(_over_proposition_4, rho))
    distribution = ft.SingleIndex(3, link="relu")
    shares = [_proposition_4(distribution, rho) for rho in (0.0, 0.1, 0.3, 0.6, 0.9, 1.0)]
    yield at_least(shares[2] / label_variance(distribution), 0.9, 0.0, "share of Var y at ρ = 0.3")
    yield at_most(max(np.diff(shares)), 0, 0.0, "falls with ρ")
    yield equal(shares[-1], 0, 1e-12, "ρ = 1")


def _proposition_4(distribution: ft.SumOfSingleIndex, rho: float) -> float:
    s, t = np.eye(2)
    pair = rho**2 * s + np.sqrt(1 - rho**4) * t
    kernel = [gaussian_moments("relu", s[None], "relu", v[None])[0, 0] for v in (pair, t)]
    return label_variance(distribution) - (kernel[0] - kernel[1]) / distribution.r


def _over_proposition_4(rho: float, z: np.ndarray) -> float:
    """The least loss of six neurons in a plane of correlation ρ with u, over its bound."""
    distribution = ft.SingleIndex(3, link="relu")
    plane = np.array([[rho, np.sqrt(1 - rho**2), 0], [0, 0, 1]])
    W = unit_rows(z.reshape(6, 2)) @ plane
    least, _ = ft.least_population_loss(W, distribution, "relu")
    return least / _proposition_4(distribution, rho)


@claim(
    "vardhan2026/lemma-10",
    "Given W x, the indices U x are Gaussian with covariance I − U P Uᵀ, P the projection on "
    "span{w_j}: (1 − ρ²) I for bad weights tilted by ρ.",
    source="Lemma 10",
    evidence="identity",
)
def lemma_10(factor=1.0) -> Verdict:
    U = np.eye(3, 20)
    W = ft.bad_inner_weights(U, 60, 0.4, seed=0)
    P = np.linalg.pinv(W) @ W
    x = gaussian(50_000, 20, seed=0)
    left = x @ U.T - x @ P @ U.T  # U x minus its conditional mean U P x
    independent = np.abs(left.T @ (x @ P) / len(x)).max()
    return provided(
        equal(np.trace(U @ P @ U.T) / 3, factor * 0.4**2, 1e-9, "1 − conditional variance"),
        equal(np.mean(left**2), 1 - 0.4**2, 0.02, "in 50 000 samples"),
        at_most(independent, 0.03, 0.0, "largest sample covariance with W x"),
    )


@universal(
    "vardhan2026/lemma-11",
    "For positive semi-definite M and diagonal D ≥ 0: Tr(MD) ≥ λ_min(M) Tr D and "
    "‖D^{1/2} M D^{1/2}‖_F ≤ λ_max(M) ‖D‖_F.",
    source="Lemma 11 (its formulas are lost; these are the inequalities of its proof)",
    refuted_by="matrices for which either fails",
    largest=1.0,
    attained=True,
    evidence="proof",
)
def lemma_11() -> Plan:
    """Proof: M_ii ≥ λ_min; and Σ D_i D_j M_ij² ≤ Σ (D_i² + D_j²) M_ij²/2 = Σ D_i² (M²)_ii, where
    (M²)_ii ≤ λ_max²."""

    def parts(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        root, D = z[:9].reshape(3, 3), z[9:] ** 2
        return root @ root.T, D, np.linalg.eigvalsh(root @ root.T)

    def trace(z: np.ndarray) -> float:
        M, D, values = parts(z)
        return float(values[0] * D.sum() / (np.diag(M) @ D))

    def frobenius(z: np.ndarray) -> float:
        M, D, values = parts(z)
        scaled = np.sqrt(D)[:, None] * M * np.sqrt(D)
        return float(np.linalg.norm(scaled) / (values[-1] * np.linalg.norm(D)))

    identity = np.concatenate([np.eye(3).ravel(), np.ones(3)])
    for name, measure in (("trace", trace), ("Frobenius norm", frobenius)):
        yield Family(f"{name}, 3 × 3", 12, measure, (identity,))


@claim(
    "vardhan2026/lemma-12",
    "Sums of powers of Gaussian polynomials concentrate: (1/n) Σ |h_i|^{2k} is within o(1) of its "
    "mean, 1, 3, 15 for k = 1, 2, 3.",
    source="Lemma 12",
    evidence="scaling law",
    of=every,
)
def lemma_12(factor=1.0) -> Verdicts:
    """The means by Gauss–Hermite quadrature, which is exact for polynomials."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    for k, mean in ((1, 1), (2, 3), (3, 15)):
        note = f"exponent in n of the deviation, k = {k}"
        yield power_law(partial(deviation, 2 * k), (50, 400, 3200), 3, -0.5, 0.15, note)
        exact = weights @ nodes ** (2 * k) / weights.sum()
        yield equal(exact, factor * mean, 1e-9, f"its mean, k = {k}")


@claim(
    "vardhan2026/theorem-3/drawn",
    "With approximation error and noise O(n^{−1/2}) an order-flattest interpolator exists; with "
    "inner weights drawn independently of the data the flattest one's excess population loss falls "
    "at least like n^{−1/2}.",
    source="Theorem 3",
    evidence="scaling law",
    of=worst,
)
def theorem_3() -> Verdicts:
    for name in ("relu", "quadratic"):
        ((slope, interval),) = exponents(name, (64, 128, 256), 5, "excess loss, good").values()
        note = f"exponent of the flattest interpolator's excess loss, {name}, noise 0.1/√n"
        yield at_most(slope, -0.5, 0.0, note, seeds=5, interval=interval)


@universal(
    "vardhan2026/theorem-5",
    "The population loss of every interpolator is at most 2‖a‖₁ and ‖a‖₁² times the largest "
    "|mean over the sample − expectation| of y σ(w_j·x) and of σ(w_i·x) σ(w_j·x), and that of y²: "
    "no alignment of w_j is assumed.",
    source="Theorem 5",
    refuted_by="points and neurons that interpolate them with a larger loss",
    largest=1.0,
    evaluations=450,
    evidence="proof",
)
def theorem_5(cross=2.0, square=1.0) -> Plan:
    """L(a) ≤ 2‖a‖₁ max_j |k̂_j − k_j| + ‖a‖₁² max_ij |K̂_ij − K_ij| + |E y² − mean y²|.

    Proof: at an interpolator mean(y²) − 2 a·k̂ + aᵀK̂a = 0, which is L(a) with the sample's moments
    for those of the population. One neuron w ⟂ u
    on one sample x = u/2 + 0.4 w of y = u·x attains it: all three deviations go one way. These
    deviations are those of the neurons at hand: small for neurons drawn independently of the data,
    not for learned ones.
    """

    def ratio(count: int, link: str, name: str, z: np.ndarray) -> float:
        """Over the bound, for as many neurons as points in R³."""
        x, W = z.reshape(2, count, 3)
        distribution, phi = ft.SingleIndex(3, link=link), features(W, x, name)
        if np.linalg.cond(phi) > 1e6:
            return np.nan
        data = ft.Dataset(x, np.asarray(ft.activation(link).value(x[:, 0])))
        a = np.linalg.solve(phi, data.y)
        limit = _deviation_bound(W, a, data, distribution, name, cross, square)
        return ft.population_loss(W, a, distribution, name) / limit

    one = partial(ratio, 1, "linear", "relu")
    yield equal(one(np.array([0.5, 0.4, 0, 0, 1, 0])), 1, 1e-12, "one neuron on one sample")
    yield Family("one ReLU, linear link", 6, one)
    for name in ("relu", "quadratic"):
        yield Family(f"two neurons, {name}", 12, partial(ratio, 2, name, name))


def _deviation_bound(W, a, data, distribution, name: str, cross: float, square: float) -> float:
    phi = features(W, data.x, name)
    k = label_moments(W, distribution, name)
    K = gaussian_moments(name, W, name, W)
    size = np.abs(a).sum()
    power = signal_power(distribution) + distribution.noise**2
    return float(
        cross * size * np.abs(phi.T @ data.y / data.n - k).max()
        + square * size**2 * np.abs(phi.T @ phi / data.n - K).max()
        + abs(power - np.mean(data.y**2))
    )
