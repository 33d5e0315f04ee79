"""Lemmas 2, 5–9 and 13, Theorems 1, 2 and 4, Proposition 2: how flat interpolators can be."""

from functools import cache, partial
from itertools import product

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.lab.summary import Summary
from flattest.ledger.claim import Verdicts, claim, figure, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    exponents,
    features,
    fitted_exponent,
    gaussian,
    power_law,
    unit_weights,
)
from flattest.papers.vardhan2026.experiments import ACTIVATIONS
from flattest.papers.vardhan2026.interpolation import flattest_outer_weights
from flattest.problem.multi_index import largest_cosine
from flattest.rescaling.two_layer import masses


@cache
def _singular_values(n: int, seed: int, name: str) -> np.ndarray:
    """Of Φ for n Gaussian points in R^n and m = 3n random unit weights."""
    phi = features(unit_weights(3 * n, n, seed), gaussian(n, n, seed), name)
    return np.linalg.svd(phi, compute_uv=False)


def _singular_value(index: int, name: str, n: int, seed: int) -> float:
    return float(_singular_values(n, seed, name)[index])


@claim(
    "vardhan2026/lemma-2",
    "The largest singular value of Φ is of order √(nm), all others are of order √m, m ≍ n.",
    source="Lemma 2",
    evidence="scaling law",
    of=worst,
)
def lemma_2() -> Verdicts:
    for name in ("relu", "quadratic"):
        for index, exponent in ((0, 1.0), (1, 0.5), (-1, 0.5)):
            note = f"exponent in n of singular value {index} of {name} features, d = n, m = 3n"
            measure = partial(_singular_value, index, name)
            yield power_law(measure, (128, 256, 512), 3, exponent, 0.15, note)


def _instance(name: str, n: int = 40, seed: int = 0):
    """Labels of a single-index model with random unit inner weights, d = n, m = 3n."""
    data = ft.SingleIndex(n, link=name, noise=0.1).draw(n, seed)
    W = unit_weights(3 * n, n, seed)
    return W, data, features(W, data.x, name)


@claim(
    "vardhan2026/lemma-5",
    "‖a‖_p^p ≥ (y·λ / ‖Φᵀλ‖_q)^p with λ = (ΦΦᵀ)⁻¹y, from the least-norm interpolator; "
    "an equality at p = 2.",
    source="Lemma 5, Eq. (8)",
    evidence="inequality",
)
def lemma_5(factor=1.0) -> Verdict:
    worst_ratio, tight = np.inf, []
    for seed in range(5):
        _, data, phi = _instance("relu", seed=seed)
        dual = np.linalg.solve(phi @ phi.T, data.y)
        for p in (1, 4 / 3, 1.5):
            least = ft.flattest_interpolator(phi, data.y, p).value
            worst_ratio = min(worst_ratio, least / ft.dual_bound(phi, data.y, p, dual))
        least = ft.flattest_interpolator(phi, data.y, 2).value
        tight.append(equal(least, factor * ft.dual_bound(phi, data.y, 2, dual), 1e-9, "p = 2"))
    return provided(worst(tight), at_least(worst_ratio, 1, 1e-12, "p = 1, 4/3, 1.5, five draws"))


@claim(
    "vardhan2026/lemma-6",
    "yᵀ(ΦΦᵀ)⁻¹y ≥ ‖y‖²/σ₁(Φ)², attained where y is the top singular vector (all signs alike).",
    source="Lemma 6",
    evidence="inequality",
)
def lemma_6(factor=1.0) -> Verdict:
    ratios = []
    for seed in range(20):
        _, data, phi = _instance("relu", seed=seed)
        floor = data.y @ data.y / np.linalg.norm(phi, 2) ** 2
        ratios.append(data.y @ np.linalg.solve(phi @ phi.T, data.y) / floor)
    top = np.linalg.svd(phi)[0][:, 0]
    attained = top @ np.linalg.solve(phi @ phi.T, top) * np.linalg.norm(phi, 2) ** 2
    constant = equal(abs(top.sum()) / np.abs(top).sum(), 1, 1e-9, "its entries have one sign")
    return provided(
        equal(attained, factor, 1e-9, "ratio of both sides at the top singular vector"),
        at_least(min(ratios), 1, 1e-12, "20 draws"),
        constant,
    )


def _theorem_1_floor(W, data, name: str) -> float:
    """K min_j [B_j^{c/(c+1)} A_j^{(1−c)/(c+1)}] m^{1−p} ‖y‖_n^p, with K = 2(c+1) c^{−c/(c+1)}.

    From ‖y‖_n ≤ Σ |a_j| √A_j (the triangle inequality in L²) and Hölder's inequality.
    """
    p = ft.norm_exponent(name)
    c = p / (2 - p)
    model = ft.MLP(len(W), activation=name)
    ones = np.ones(len(W))
    at = masses(model, {"W1": W, "W2": ones}, ft.Dataset(data.x, features(W, data.x, name) @ ones))
    A, B = at.A / 2, at.B / 2
    K = 2 * (c + 1) * c ** (-c / (c + 1))
    least = np.min(B ** (c / (c + 1)) * A ** ((1 - c) / (c + 1)))
    return K * least * len(W) ** (1 - p) * np.mean(data.y**2) ** (p / 2)


def _least_trace(W, data, name: str) -> float:
    """S_min of the flattest interpolator with inner weights W, through the Hessian."""
    model = ft.MLP(len(W), activation=name)
    params = {"W1": W, "W2": flattest_outer_weights(W, data, name).a}
    return float(ft.trace(model, ft.flattest_rescaling(model, params, data).params, data))


@claim(
    "vardhan2026/theorem-1",
    "Every interpolator with unit inner weights has S_min ≳ d^{c/(c+1)} m^{1−p}; with the constant "
    "of its proof by the triangle inequality, attained by the interpolator of Theorem 4.",
    source="Theorem 1",
    evidence="inequality",
)
def theorem_1(factor=1.0) -> Verdict:
    ratios, tight = [], []
    for name in ("relu", "leaky_relu:0.1", "quadratic"):
        for seed in range(3):
            distribution = ft.SingleIndex(30, link=name)
            data = distribution.draw(40, seed)
            U = distribution.directions
            pools = (
                unit_weights(120, 30, seed),
                ft.inner_weights(U, 120, 0.9, seed),
                ft.bad_inner_weights(U, 120, 0.0, seed),
            )
            ratios += [_least_trace(W, data, name) / _theorem_1_floor(W, data, name) for W in pools]
        W = np.repeat(U, 50, axis=0)
        tight.append(
            equal(
                _least_trace(W, data, name),
                factor * _theorem_1_floor(W, data, name),
                1e-9,
                "all w_j = u: the least trace against the bound",
            )
        )
    return provided(worst(tight), at_least(min(ratios), 1, 1e-9, "27 draws"))


@claim(
    "vardhan2026/theorem-2/drawn",
    "Bad interpolators (Definition 2) with inner weights drawn independently of the data have "
    "S_min ≳ d^{c/(c+1)} m^{1−p/2}, the flattest d^{c/(c+1)} m^{1−p}: a gap of n^{c/(c+1)}, √n for "
    "ReLU.",
    source="Theorem 2 with Theorem 1",
    evidence="scaling law",
)
def theorem_2() -> Verdict:
    p, sizes, seeds = ft.norm_exponent("relu"), (64, 128, 256), 4
    expected = {"good": 1 - p, "bad": 1 - p / 2, "gap": p / 2}
    return worst(
        # Absolute tolerances: shifted by 1, so that an exponent of 0 is no special case.
        equal(
            1 + slope,
            1 + expected[key],
            0.12 / (1 + expected[key]),
            f"1 + exponent in n of {key} ‖a‖_p^p, relu, n = {sizes[0]} … {sizes[-1]}",
            seeds=seeds,
            interval=(1 + interval[0], 1 + interval[1]),
        )
        for key, (slope, interval) in exponents("relu", sizes, seeds, *expected).items()
    )


@figure(
    "vardhan2026/theorem-2/drawn-large",
    "As theorem-2/drawn for larger n: ReLU, LeakyReLU (gap n^{1/2}) and quadratic (gap n^{2/3}).",
    source="Theorem 2 with Theorem 1",
    experiments=tuple(f"vardhan2026/scaling-{label}" for label in ACTIVATIONS),
    of=worst,
)
def theorem_2_large(*laws: Summary) -> Verdicts:
    for law, key in product(laws, ("good", "bad", "gap")):
        found, expected = law.column(key), law.column(f"{key}, expected").median
        off = max(expected - found.low, found.high - expected)
        note = (
            f"largest distance of the exponent in n of {key} ‖a‖_p^p from {expected:.2f}, "
            f"{law.experiment}, n to {law.column('largest n').median:g}"
        )
        yield at_most(off, 0.12, 0.0, note, seeds=law.seeds)


@claim(
    "vardhan2026/theorem-4",
    "Noiseless labels of the activation: w_j = u_{j mod r}, a_j = 1/m interpolates, has population "
    "loss 0 and ‖a‖_p^p = m^{1−p}, the least for these inner weights.",
    source="Theorem 4",
    evidence="certificate",
)
def theorem_4(factor=1.0) -> Verdict:
    parts, conditions = [], []
    for name in ("relu", "leaky_relu:0.1", "quadratic"):
        for r in (1, 4):
            distribution = ft.SumOfSingleIndex(12, r, name)
            data = distribution.draw(30, seed=r)
            W = np.tile(distribution.directions, (40 // r, 1))
            a = np.full(40, 1 / 40)
            miss = np.abs(features(W, data.x, name) @ a - data.y).max()
            loss = ft.population_loss(W, a, distribution, name)
            bound = flattest_outer_weights(W, data, name).bound
            parts.append(
                equal(bound, factor * 40 ** (1 - ft.norm_exponent(name)), 1e-9, "dual bound")
            )
            conditions += [at_most(miss, 0, 1e-12), at_most(loss, 0, 1e-12)]
    return provided(worst(parts), *conditions)


def _outlier_interpolator(m: int) -> tuple[np.ndarray, np.ndarray, ft.Dataset]:
    """Quadratic σ, all w_j = u, a_1 = m^{−1/4}, the rest equal, Σ a_j = 1: an interpolator."""
    a = np.full(m, (1 - m**-0.25) / (m - 1))
    a[0] = m**-0.25
    distribution = ft.SingleIndex(4, link="quadratic")
    return np.repeat(distribution.directions, m, axis=0), a, distribution.draw(20, seed=0)


@claim(
    "vardhan2026/proposition-2/as-printed",
    "For c > 1 an interpolator is order-flattest only if ‖a‖_∞ = O(1/m).",
    source="Proposition 2 (necessity)",
    evidence="scaling law",
    reading="as printed",
)
def proposition_2_printed() -> Verdict:
    sizes = (100, 1000, 10_000)
    largest = [m * np.abs(_outlier_interpolator(m)[1]).max() for m in sizes]
    slope = np.polyfit(np.log(sizes), np.log(largest), 1)[0]
    note = "exponent of m‖a‖_∞ for an interpolator with ‖a‖_p^p ≤ 2 m^{1−p}: one weight m^{−1/4}"
    return at_most(slope, 0, 0.1, note)


@claim(
    "vardhan2026/proposition-2/corrected",
    "Order-flattest implies ‖a‖₁ ≤ m^{1−1/p} ‖a‖_p = O(1), for every c; for c = 1 the converse "
    "holds too. ‖a‖_∞ = O(1/m) is sufficient, not necessary: one weight may be m^{−1/4} (c = 2).",
    source="Proposition 2",
    evidence="inequality",
    reading="as corrected",
    of=worst,
)
def proposition_2_corrected() -> Verdicts:
    for m in (100, 1000, 10_000):
        W, a, data = _outlier_interpolator(m)
        miss = np.abs(features(W, data.x, "quadratic") @ a - data.y).max() / np.abs(data.y).max()
        yield from [
            at_most(np.sum(a ** (4 / 3)), 2 * m ** (-1 / 3), 0.0, "order-flattest"),
            at_most(miss, 0, 1e-9, "interpolates"),
        ]
    rng = np.random.default_rng(0)
    for p in (1, 4 / 3, 1.5):
        a = rng.standard_normal((1000, 50)) ** 5
        norms = np.sum(np.abs(a) ** p, axis=1) ** (1 / p)
        ratio = np.abs(a).sum(axis=1) / (50 ** (1 - 1 / p) * norms)
        yield at_most(ratio.max(), 1, 1e-12, "‖a‖₁ against m^{1−1/p} ‖a‖_p")


@claim(
    "vardhan2026/lemma-7",
    "Separated inner weights interpolate any labels: Φ has full row rank (m > n); "
    "equal inner weights do not interpolate noise.",
    source="Lemma 7",
    evidence="sample",
)
def lemma_7() -> Verdict:
    statuses = []
    for name in ("relu", "leaky_relu:0.1", "quadratic"):
        for seed in range(5):
            W, data, phi = _instance(name, seed=seed)
            statuses.append(ft.flattest_interpolator(phi, data.y, 2).status == "optimal")
    same = features(np.repeat(W[:1], 120, axis=0), data.x, "leaky_relu:0.1")
    refused = ft.flattest_interpolator(same, data.y, 2).status == "infeasible"
    note = f"share of 15 draws that interpolate; largest cosine {largest_cosine(W):.2f}"
    return provided(equal(np.mean(statuses), 1, 0.0, note, seeds=5), equal(refused, 1, 0.0))


@claim(
    "vardhan2026/lemma-7-slepian",
    "For ReLU and cosines ≤ ½ no neuron fires on x with probability at most 1/(m+1) (Slepian), "
    "with equality for cosines exactly ½.",
    source="Lemma 7, Appendix D.4.3",
    evidence="sample",
)
def lemma_7_slepian(factor=1.0) -> Verdict:
    m, count = 4, 400_000
    rng = np.random.default_rng(0)
    half = (rng.standard_normal((count, m)) + rng.standard_normal((count, 1))) / np.sqrt(2)
    silent = np.mean(half.max(axis=1) <= 0)
    W = unit_weights(m, 40, seed=1)
    assert largest_cosine(W) <= 0.5
    spread = np.mean((rng.standard_normal((count, 40)) @ W.T).max(axis=1) <= 0)
    note = "share of 400 000 inputs without a firing neuron, m = 4"
    return provided(equal(silent, factor / (m + 1), 5e-3, note), at_most(spread, 1 / (m + 1)))


@cache
def _least_square(n: int, seed: int, kind: str) -> np.ndarray:
    """The least-norm interpolator for good or bad inner weights, noiseless."""
    distribution = ft.SumOfSingleIndex(2 * n, 5, "relu")
    data = distribution.draw(n, seed)
    U = distribution.directions
    good = np.concatenate([np.resize(U, (n, 2 * n)), unit_weights(2 * n, 2 * n, seed)])
    W = good if kind == "good" else ft.bad_inner_weights(U, 3 * n, 0.0, seed)
    return ft.flattest_interpolator(features(W, data.x, "relu"), data.y, 2).a


@claim(
    "vardhan2026/lemma-8",
    "For bad inner weights yᵀ(ΦΦᵀ)⁻¹y is of order 1 and the least-norm interpolator's entries of "
    "order n^{−1/2}; for good ones yᵀ(ΦΦᵀ)⁻¹y falls like 1/m.",
    source="Lemma 8",
    evidence="scaling law",
)
def lemma_8() -> Verdict:
    sizes = (128, 256, 512)

    def shifted(kind, measure, exponent, note):
        slope, (low, high) = fitted_exponent(
            lambda n, seed: measure(_least_square(n, seed, kind)), sizes, seeds=4
        )
        return equal(2 + slope, 2 + exponent, 0.1, note, seeds=4, interval=(2 + low, 2 + high))

    square = lambda a: float(a @ a)  # noqa: E731
    return worst(
        [
            shifted("bad", square, 0.0, "2 + exponent of yᵀ(ΦΦᵀ)⁻¹y, bad"),
            shifted("bad", lambda a: np.abs(a).max(), -0.5, "2 + exponent of ‖a‖_∞, bad"),
            shifted("good", square, -1.0, "2 + exponent of yᵀ(ΦΦᵀ)⁻¹y, good"),
        ]
    )


@claim(
    "vardhan2026/lemma-9",
    "Noise changes √(yᵀ(ΦΦᵀ)⁻¹y) by at most ‖noise‖/σ_min(Φ), which is of order σ for m ≍ n.",
    source="Lemma 9",
    evidence="inequality",
    of=worst,
)
def lemma_9() -> Verdicts:
    for seed in range(10):
        _, data, phi = _instance("relu", seed=seed)
        noise = 0.5 * np.random.default_rng(seed).standard_normal(data.n)
        norm = lambda y, gram=phi @ phi.T: np.sqrt(y @ np.linalg.solve(gram, y))  # noqa: E731
        change = abs(norm(data.y + noise) - norm(data.y))
        limit = np.linalg.norm(noise) / np.linalg.svd(phi, compute_uv=False)[-1]
        yield at_most(change, limit, 0.0, "ten draws")


@claim(
    "vardhan2026/lemma-13",
    "With noise O(n^{−1/2}): teacher weights on part of the neurons and the least-norm correction "
    "on the others interpolate with ‖a‖_p^p = O(m^{1−p}).",
    source="Lemma 13",
    evidence="scaling law",
    of=worst,
)
def lemma_13() -> Verdicts:
    for name in ("relu", "quadratic"):
        note = f"exponent in n of m^{{p−1}} ‖a‖_p^p, {name}"
        yield power_law(partial(_lemma_13_norm, name), (64, 128, 256), 3, 0, 0.1, note)


def _lemma_13_norm(name: str, n: int, seed: int) -> float:
    """m^{p−1} ‖a‖_p^p of the explicit interpolator."""
    p = ft.norm_exponent(name)
    distribution = ft.SumOfSingleIndex(2 * n, 5, name, 0.1 / np.sqrt(n))
    data = distribution.draw(n, seed)
    teacher = np.resize(distribution.directions, (n - n % 5, 2 * n))
    first = np.full(len(teacher), 1 / len(teacher))
    rest = data.y - features(teacher, data.x, name) @ first
    spare = features(unit_weights(2 * n, 2 * n, seed), data.x, name)
    a = np.concatenate([first, ft.flattest_interpolator(spare, rest, 2).a])
    return float(np.sum(np.abs(a) ** p) * n ** (p - 1))
