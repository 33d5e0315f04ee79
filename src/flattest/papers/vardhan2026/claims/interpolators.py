"""Lemmas 2, 5–9 and 13, Theorems 1, 2 and 4, Proposition 2: how flat interpolators can be."""

from functools import cache, partial
from itertools import product

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_most, equal
from flattest.lab.summary import Summary
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, figure, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    exponents,
    features,
    fitted_exponent,
    gaussian,
    near,
    power_law,
    unit_weights,
)
from flattest.papers.vardhan2026.experiments import ACTIVATIONS
from flattest.papers.vardhan2026.interpolation import flattest_outer_weights
from flattest.problem.distributions import unit_rows
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


@universal(
    "vardhan2026/lemma-5",
    "‖a‖_p^p ≥ (y·λ / ‖Φᵀλ‖_q)^p with λ = (ΦΦᵀ)⁻¹y, from the least-norm interpolator; "
    "an equality at p = 2.",
    source="Lemma 5, Eq. (8)",
    refuted_by="features and labels with a smaller least ‖a‖_p^p",
    least=1.0,
    evaluations=240,
    evidence="proof",
)
def lemma_5(factor=1.0) -> Plan:
    """n = 2 labels, m = 4 features: the least ‖a‖_p^p over the bound.

    Proof: y·λ = (Φa)·λ = a·Φᵀλ ≤ ‖a‖_p ‖Φᵀλ‖_q by Hölder's inequality, for every λ.
    """

    def ratio(p: float, z: np.ndarray) -> float:
        phi, y = z[:8].reshape(2, 4), z[8:]
        found = ft.flattest_interpolator(phi, y, p)
        if found.status != "optimal":
            return np.nan
        return found.value / ft.dual_bound(phi, y, p, np.linalg.solve(phi @ phi.T, y))

    for p in (1, 4 / 3, 1.5):
        yield Family(f"p = {p:.3g}, n = 2, m = 4", 10, partial(ratio, p))
    yield equal(ratio(2, np.cos(np.arange(10.0))), factor, 1e-9, "p = 2")


@universal(
    "vardhan2026/lemma-6",
    "yᵀ(ΦΦᵀ)⁻¹y ≥ ‖y‖²/σ₁(Φ)², attained where y is the top singular vector (all signs alike).",
    source="Lemma 6",
    refuted_by="features and labels for which the left side is smaller",
    least=1.0,
    attained=True,
    evidence="proof",
)
def lemma_6(factor=1.0) -> Plan:
    """Proof: σ₁² is the largest eigenvalue of ΦΦᵀ; for features ≥ 0 its eigenvector has one sign
    (Perron and Frobenius)."""

    def ratio(z: np.ndarray) -> float:
        phi, y = z[:6].reshape(2, 3), z[6:]
        return _least_square_norm(phi, y) ** 2 * np.linalg.norm(phi, 2) ** 2 / (factor * y @ y)

    yield Family("n = 2, m = 3", 8, ratio)
    _, _, phi = _instance("relu")
    top = np.linalg.svd(phi)[0][:, 0]
    yield equal(abs(top.sum()) / np.abs(top).sum(), 1, 1e-9, "its entries have one sign")


def _least_square_norm(phi: np.ndarray, y: np.ndarray) -> float:
    """√(yᵀ(ΦΦᵀ)⁻¹y), the norm of the least-norm interpolator."""
    return float(np.linalg.norm(np.linalg.pinv(phi) @ y))


def _theorem_1_floor(W, data, name: str) -> float:
    """K min_j [B_j^{c/(c+1)} A_j^{(1−c)/(c+1)}] m^{1−p} ‖y‖_n^p, with K = 2(c+1) c^{−c/(c+1)}."""
    p = ft.norm_exponent(name)
    c = p / (2 - p)
    model = ft.MLP(len(W), activation=name)
    ones = np.ones(len(W))
    at = masses(model, {"W1": W, "W2": ones}, ft.Dataset(data.x, features(W, data.x, name) @ ones))
    A, B = at.A / 2, at.B / 2
    K = 2 * (c + 1) * c ** (-c / (c + 1))
    least = np.min(B ** (c / (c + 1)) * A ** ((1 - c) / (c + 1)))
    return K * least * len(W) ** (1 - p) * np.mean(data.y**2) ** (p / 2)


@universal(
    "vardhan2026/theorem-1",
    "Every interpolator has S_min ≥ K min_j (B_j^c A_j^{1−c})^{1/(c+1)} m^{1−p} (mean y²)^{p/2}, "
    "K = 2(c+1) c^{−c/(c+1)}, which is ≳ d^{c/(c+1)} m^{1−p} for inner weights drawn independently "
    "of the data (Lemma 4); attained by the interpolator of Theorem 4.",
    source="Theorem 1",
    refuted_by="a network, with the data it interpolates, of smaller S_min",
    least=1.0,
    attained=True,
    evaluations=600,
    evidence="proof",
)
def theorem_1(factor=1.0) -> Plan:
    """S_min of three neurons on three points of the plane, over the bound for their inner weights;
    whatever the network, its outputs are taken for labels.

    Proof: with v_j = |a_j| √A_j the terms of Lemma 3's sum are K (B_j^c A_j^{1−c})^{1/(c+1)} v_j^p,
    Σ v_j^p ≥ m^{1−p} (Σ v_j)^p by Hölder's inequality, and √(mean y²) ≤ Σ v_j by the triangle
    inequality in L².
    """

    def ratio(name: str, z: np.ndarray) -> float:
        W, x, a = z[:6].reshape(3, 2), z[6:12].reshape(3, 2), z[12:]
        data = ft.Dataset(x, features(W, x, name) @ a)
        with np.errstate(divide="ignore", invalid="ignore"):
            floor = _theorem_1_floor(W, data, name)
            value = ft.orbit_weights(W, x, name) @ np.abs(a) ** ft.norm_exponent(name)
            return value / (factor * floor) if 0 < floor < np.inf else np.nan

    # Theorem 4: equal inner weights, equal outer weights.
    start = np.concatenate([np.tile([1.0, 0.0], 3), [1, 1, 2, 0, 0.5, -1], np.full(3, 1 / 3)])
    for name in ("relu", "leaky_relu:0.1", "quadratic"):
        yield Family(f"{name}, m = n = 3, d = 2", 15, partial(ratio, name), (start,))


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
        near(
            slope,
            expected[key],
            0.12,
            f"exponent in n of {key} ‖a‖_p^p, relu, n = {sizes[0]} … {sizes[-1]}",
            seeds=seeds,
            interval=interval,
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


@universal(
    "vardhan2026/proposition-2/corrected",
    "Order-flattest implies ‖a‖₁ ≤ m^{1−1/p} ‖a‖_p = O(1), for every c; for c = 1 the converse "
    "holds too. ‖a‖_∞ = O(1/m) is sufficient, not necessary: one weight may be m^{−1/4} (c = 2). "
    "Unit inner weights, drawn independently of the data.",
    source="Proposition 2",
    reading="as corrected",
    refuted_by="outer weights with ‖a‖₁ > m^{1−1/p} ‖a‖_p",
    largest=1.0,
    attained=True,
)
def proposition_2_corrected() -> Plan:
    def ratio(p: float, a: np.ndarray) -> float:
        norm = np.sum(np.abs(a) ** p) ** (1 / p)
        return float(np.abs(a).sum() / (len(a) ** (1 - 1 / p) * norm))

    for p in (4 / 3, 1.5):
        yield Family(f"p = {p:.3g}, m = 6", 6, partial(ratio, p))
    for m in (100, 1000, 10_000):
        W, a, data = _outlier_interpolator(m)
        miss = np.abs(features(W, data.x, "quadratic") @ a - data.y).max() / np.abs(data.y).max()
        yield at_most(np.sum(a ** (4 / 3)), 2 * m ** (-1 / 3), 0.0, "order-flattest")
        yield at_most(miss, 0, 1e-9, "interpolates")


@claim(
    "vardhan2026/lemma-7/as-printed",
    "For activations without a zero piece, m > n inner weights need only be different to "
    "interpolate any labels almost surely.",
    source="Lemma 7, first part, and the remark after it",
    evidence="certificate",
    reading="as printed",
)
def lemma_7_printed() -> Verdict:
    """(w·x)² is linear in the d(d+1)/2 entries of xxᵀ: more points than that have dependent rows,
    whatever the weights. The program's Farkas vector λ proves it: Φᵀλ = 0, λ·y = 1."""
    x, W = gaussian(7, 3, seed=0), unit_weights(12, 3, seed=1)
    found = ft.flattest_interpolator(features(W, x, "quadratic"), gaussian(1, 7, seed=2)[0], 2)
    note = "interpolates 7 points in R³ with 12 quadratic neurons; largest cosine "
    note += f"{largest_cosine(W):.2f}; {found.message}"
    return equal(found.status == "optimal", 1, 0.0, note)


@universal(
    "vardhan2026/lemma-7/corrected",
    "Quadratic features of different random weights have rank min(n, m, d(d+1)/2) almost surely: "
    "m ≥ n weights interpolate any labels as long as n ≤ d(d+1)/2.",
    source="Lemma 7, first part",
    refuted_by="points and weights whose features have a rank above d(d+1)/2",
    largest=0.0,
    tolerance=1e-12,
    evidence="proof",
    reading="as corrected",
    evaluations=400,
)
def lemma_7_corrected(half=0.5) -> Plan:
    """Proof: Φ_ij = ⟨x_i x_iᵀ, w_j w_jᵀ⟩, and such matrices span the d(d+1)/2 dimensions of the
    symmetric ones, so the rank is at most their number. Let k = min(n, m, d(d+1)/2) and
    x_1, …, x_k be such that the x_i x_iᵀ are independent. Since the w wᵀ span, the vectors
    (⟨x_i x_iᵀ, w wᵀ⟩)_i span R^k: some w_1, …, w_k make that minor of Φ nonzero. It is a
    polynomial, hence nonzero almost surely."""
    for d, n, m in product((2, 3, 4, 5), (3, 6, 10, 15), (6, 12, 20)):
        phi = features(unit_weights(m, d, seed=1), gaussian(n, d, seed=0), "quadratic")
        rank = np.linalg.matrix_rank(phi, rtol=1e-9)
        least = min(n, m, half * d * (d + 1))
        yield equal(rank, least, 1e-9, "rank, d = 2 … 5, n = 3 … 15, m = 6 … 20")
    yield Family("4 points and 4 weights in the plane, σ_4/σ_1", 16, _fourth_singular_value)


def _fourth_singular_value(z: np.ndarray) -> float:
    x, W = z.reshape(2, 4, 2)
    x, W = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, W))
    values = np.linalg.svd(features(W, x, "quadratic"), compute_uv=False)
    return float(values[3] / values[0])


@universal(
    "vardhan2026/lemma-7-slepian",
    "For ReLU and cosines ≤ ½ no neuron fires on x with probability at most 1/(m+1) (Slepian), "
    "with equality for cosines exactly ½.",
    source="Lemma 7, Appendix D.4.3",
    refuted_by="unit weights with cosines ≤ ½ that are silent more often",
    largest=1.0,
    attained=True,
    evidence="proof",
)
def lemma_7_slepian(factor=1.0) -> Plan:
    """At m = 3 the probability is ⅛ + Σ arcsin(cosines)/4π (Sheppard); at m = 4 a sample.

    Proof: by Slepian's lemma the probability rises with each cosine. Where all are ½,
    w_j·x = (g_j + g_0)/√2 for independent standard normals: all are ≤ 0 where −g_0, which has the
    law of g_0, is the largest of m + 1.
    """

    def silence(z: np.ndarray) -> float:
        W = unit_rows(z.reshape(3, 3))
        cosines = (W @ W.T)[np.triu_indices(3, 1)]
        if cosines.max() > 0.5 + 1e-12:
            return np.nan
        return float((1 / 8 + np.arcsin(cosines).sum() / (4 * np.pi)) * 4 / factor)

    simplex = np.array([[1.0, 1, 0], [1, 0, 1], [0, 1, 1]]).ravel()
    yield Family("m = 3 in R³", 9, silence, (simplex,))
    m, count = 4, 400_000
    rng = np.random.default_rng(0)
    half = (rng.standard_normal((count, m)) + rng.standard_normal((count, 1))) / np.sqrt(2)
    silent = np.mean(half.max(axis=1) <= 0)
    yield equal(silent, 1 / (m + 1), 5e-3, "share of 400 000 inputs without a firing neuron, m = 4")


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

    def law(kind, measure, exponent, within, note):
        slope, interval = fitted_exponent(
            lambda n, seed: measure(_least_square(n, seed, kind)), sizes, seeds=4
        )
        return near(slope, exponent, within, note, seeds=4, interval=interval)

    square = lambda a: float(a @ a)  # noqa: E731
    return worst(
        [
            law("bad", square, 0.0, 0.2, "exponent in n of yᵀ(ΦΦᵀ)⁻¹y, bad"),
            law("bad", lambda a: np.abs(a).max(), -0.5, 0.15, "exponent in n of ‖a‖_∞, bad"),
            law("good", square, -1.0, 0.1, "exponent in n of yᵀ(ΦΦᵀ)⁻¹y, good"),
        ]
    )


@universal(
    "vardhan2026/lemma-9",
    "Noise changes √(yᵀ(ΦΦᵀ)⁻¹y) by at most ‖noise‖/σ_min(Φ), which is of order σ for m ≍ n.",
    source="Lemma 9",
    refuted_by="features, labels and noise with a larger change",
    largest=1.0,
    attained=True,
    evidence="proof",
)
def lemma_9(factor=1.0) -> Plan:
    """Proof: √(yᵀ(ΦΦᵀ)⁻¹y) = ‖Φ⁺y‖, and ‖Φ⁺(y + e)‖ differs from it by at most
    ‖Φ⁺e‖ ≤ ‖e‖/σ_min. The order is that of Lemma 2."""

    def ratio(z: np.ndarray) -> float:
        phi, y, noise = z[:6].reshape(2, 3), z[6:8], z[8:]
        change = abs(_least_square_norm(phi, y + noise) - _least_square_norm(phi, y))
        limit = np.linalg.norm(noise) / np.linalg.svd(phi, compute_uv=False)[-1]
        return float(change / (factor * limit)) if limit > 0 else np.nan

    bottom = np.concatenate([[2.0, 0, 0, 0, 1, 0], [0, 1], [0, 1]])
    yield Family("n = 2, m = 3", 10, ratio, (bottom,))


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
