"""Appendix B, Definition 2, Example 1, Proposition 4, Lemmas 10–12, Theorems 3 and 5."""

from itertools import product

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.claim import Verdicts, claim, every, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    exponents,
    features,
    gaussian,
    unit_weights,
)
from flattest.papers.vardhan2026.interpolation import flattest_outer_weights
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


@claim(
    "vardhan2026/appendix-b.1",
    "The population loss is E y² − 2 a·k + aᵀKa, k_j = E y σ(w_j·x), K_ij = E σ(w_i·x) σ(w_j·x).",
    source="Appendix B.1, Eq. (2)",
    evidence="sample",
    of=worst,
)
def appendix_b1() -> Verdicts:
    for name in ACTIVATIONS:
        for distribution in (
            ft.SingleIndex(10, link=name, noise=0.2),
            ft.SumOfSingleIndex(10, 3, "relu", 0.2),
            ft.QuadraticForm(10, 0.2),
        ):
            W = ft.inner_weights(distribution.directions, 15, 0.6, seed=0)
            a = generator(0, "claims/outer weights").standard_normal(15) / 8
            fresh = distribution.population(100_000, seed=1)
            errors = (features(W, fresh.x, name) @ a - fresh.y) ** 2
            distance = errors.mean() - ft.population_loss(W, a, distribution, name)
            stderr = errors.std() / np.sqrt(len(errors))
            yield at_most(abs(distance) / stderr, 4, 0.0, "standard errors, 9 cases")


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


@claim(
    "vardhan2026/proposition-4",
    "A small enough ρ makes the population loss large whatever the outer weights: it is at least "
    "half the variance of the labels for ρ ≤ 0.3, and falls with ρ.",
    source="Proposition 4",
    evidence="inequality",
)
def proposition_4() -> Verdict:
    distribution = ft.SumOfSingleIndex(30, 3, "relu")
    U = distribution.directions
    variance = label_variance(distribution)
    least = [
        ft.least_population_loss(ft.bad_inner_weights(U, 90, rho, seed=1), distribution, "relu")[0]
        for rho in (0.0, 0.1, 0.3, 0.6, 0.9)
    ]
    return provided(
        at_least(least[2] / variance, 0.5, 0.0, "least loss over Var y at ρ = 0.3"),
        at_most(max(np.diff(least)), 0, 1e-12, "falls with ρ"),
        at_least(least[0] / variance, 1, 0.0, "ρ = 0"),
    )


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


@claim(
    "vardhan2026/lemma-11",
    "For positive semi-definite M and diagonal D ≥ 0: Tr(MD) ≥ λ_min(M) Tr D and "
    "‖D^{1/2} M D^{1/2}‖_F ≤ λ_max(M) ‖D‖_F.",
    source="Lemma 11 (its formulas are lost; these are the inequalities of its proof)",
    evidence="inequality",
    of=worst,
)
def lemma_11() -> Verdicts:
    for seed in range(50):
        root = gaussian(12, 15, seed)
        M = root @ root.T
        D = gaussian(1, 12, seed + 1000)[0] ** 2
        low, *_, high = np.linalg.eigvalsh(M)
        scaled = np.sqrt(D)[:, None] * M * np.sqrt(D)
        yield from [
            at_most(low * D.sum(), np.sum(np.diag(M) * D), 1e-12),
            at_most(np.linalg.norm(scaled), high * np.linalg.norm(D), 1e-12, "50 draws"),
        ]


@claim(
    "vardhan2026/lemma-12",
    "Sums of powers of Gaussian polynomials concentrate: (1/n) Σ |h_i|^{2k} is within o(1) of its "
    "mean, 1, 3, 15 for k = 1, 2, 3.",
    source="Lemma 12",
    evidence="sample",
)
def lemma_12(factor=1.0) -> Verdict:
    h = gaussian(4_000_000, 1, seed=0)[:, 0]
    return worst(
        equal(np.mean(h ** (2 * k)), factor * mean, 8e-3, f"k = {k}, n = 4 000 000")
        for k, mean in ((1, 1), (2, 3), (3, 15))
    )


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


@claim(
    "vardhan2026/theorem-5",
    "The excess loss of every interpolator with ‖a‖₁ ≤ C is at most of order C² times the largest "
    "|mean over the sample − expectation| of y σ(w_j·x) and σ(w_i·x) σ(w_j·x): no alignment of w_j "
    "is assumed.",
    source="Theorem 5",
    evidence="inequality",
    of=every,
)
def theorem_5(cross=2.0, square=1.0) -> Verdicts:
    """L(a) ≤ 2‖a‖₁ max_j |k̂_j − k_j| + ‖a‖₁² max_ij |K̂_ij − K_ij| + |E y² − mean y²|.

    The exact form of its proof: at an interpolator mean(y²) − 2 a·k̂ + aᵀK̂a = 0. One neuron w ⊥ u
    on one sample x = u/2 + 0.4 w of y = u·x attains it: all three deviations go one way.
    """
    u, w = np.eye(3)[:2]
    sample = ft.Dataset((0.5 * u + 0.4 * w)[None], np.array([0.5]))
    linear, neuron = ft.SingleIndex(3, link="linear"), w[None]
    yield equal(
        ft.population_loss(neuron, [0.5 / 0.4], linear, "relu"),
        _deviation_bound(neuron, np.array([0.5 / 0.4]), sample, linear, "relu", cross, square),
        1e-12,
        "attained by one neuron on one sample; 36 interpolators below it",
    )
    # The flattest, the least-norm and a large interpolator on aligned and unaligned neurons.
    for name, seed in product(ACTIVATIONS, range(2)):
        distribution = ft.SumOfSingleIndex(30, 3, name, 0.05)
        data = distribution.draw(60, seed)
        spare = unit_weights(90, 30, seed)
        for W in (spare, np.concatenate([np.tile(distribution.directions, (20, 1)), spare])):
            phi = features(W, data.x, name)
            some = generator(seed, "claims/interpolator").standard_normal(len(W))
            least, seen = ft.flattest_interpolators(phi, np.stack([data.y, phi @ some]), 2)
            for a in (flattest_outer_weights(W, data, name).a, least.a, least.a + some - seen.a):
                limit = _deviation_bound(W, a, data, distribution, name, cross, square)
                yield at_most(ft.population_loss(W, a, distribution, name), limit)


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
