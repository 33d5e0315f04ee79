"""Appendix A.2.1: the bounds behind Lemma A.11, on the hypercube and for other laws with σ = 1.

Statements with "there exists C" are attacked with a constant that they name.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from scipy import fft
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import binom, chi2

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, assuming, claim, misprint, worst
from flattest.papers.wen2023.claims.concentration import three_point, three_point_mass
from flattest.papers.wen2023.claims.instances import random_interpolator
from flattest.problem.distributions import hypercube
from flattest.problem.randomness import generator

DELTA = 0.1
DIMENSIONS = (2, 4, 8, 16, 32)
LEAST_DELTA = 1e-9
# (d, seed) of the sets of points over which all w are tried.
DRAWS = tuple(itertools.product((4, 8, 16), range(4)))


def sample_size(d: int, C: float) -> int:
    """n = C d log(d/δ), rounded up."""
    return int(np.ceil(C * d * np.log(d / DELTA)))


def probability(t: float) -> float:
    """Any real as a δ ∈ (0, 1)."""
    return float(expit(t))


Outside = Callable[[int, float, float, bool], float]


def chi_square_outside(n: int, low: float, high: float, masked: bool) -> float:
    """P((1/n) Σ h_i² ∉ [low, high]) for normal h_i, those with h_i < 0 left out where `masked`.

    Their number is binomial; the rest of the sum has the χ² law of what is left.
    """
    k = np.arange(1, n + 1) if masked else np.array([n])
    weights = binom.pmf(k, n, 0.5) if masked else np.ones(1)
    nothing = 0.5**n if masked and low > 0 else 0.0
    return float(nothing + weights @ (chi2.cdf(low * n, k) + chi2.sf(high * n, k)))


def cube_outside(d: int, n: int, low: float, high: float, masked: bool) -> float:
    """The same for h_i = (x_i1 + … + x_id)/√d, x_i uniform on the cube: d·Σh² is an integer, whose
    law is the n-th convolution power of that of (2 Bin(d, ½) − d)²."""
    weights = binom.pmf(np.arange(d + 1), d, 0.5)
    law = np.bincount((2 * np.arange(d + 1) - d) ** 2, 0.5 * weights if masked else weights)
    law[0] += 0.5 * masked
    size = fft.next_fast_len(n * (law.size - 1) + 1, real=True)
    total = fft.irfft(fft.rfft(law, size) ** n, size)
    mean = np.arange(size) / (d * n)
    return float(np.maximum(total, 0)[(mean < low - 1e-12) | (mean > high + 1e-12)].sum())


def three_point_outside(q: float, n: int, low: float, high: float, masked: bool) -> float:
    """The same for h_i = ±1/√q with probability q together and else 0, 1-subgaussian of variance 1
    for q ≥ 1/3: q·Σh² is binomial."""
    count = np.arange(n + 1)
    mean = count / (n * q)
    law = binom.pmf(count, n, q / 2 if masked else q)
    return float(law[(mean < low - 1e-12) | (mean > high + 1e-12)].sum())


def pointwise_families(least: float, words: float, masked: bool) -> Iterator[Family]:
    """P((1/n) Σ h_i² ∉ [least, 3/2])/δ, exactly, for n = 24 log(words/δ) and laws of h = w·x."""

    def share(z: np.ndarray, outside: Outside) -> float:
        delta = probability(z[0])
        if delta < LEAST_DELTA:
            return np.nan
        return outside(int(np.ceil(24 * np.log(words / delta))), least, 1.5, masked) / delta

    def three_points(z: np.ndarray) -> float:
        return share(z, functools.partial(three_point_outside, (1 + 2 * expit(z[1])) / 3))

    yield Family("normal x, any δ", 1, functools.partial(share, outside=chi_square_outside))
    for d in (2, 3, 8):
        law = functools.partial(cube_outside, d)
        name = f"the cube, w = (1, …, 1)/√d, d = {d}, any δ"
        yield Family(name, 1, functools.partial(share, outside=law))
    yield Family("x of three values, any δ", 2, three_points)


@universal(
    "wen2023/lemma-a.7",
    "For fixed unit w and n ≥ C log(2/δ), (1/n) Σ(w·x_i)² lies in [1/2, 3/2] with probability "
    "1 − δ; C = 24 does for σ = 1.",
    source="Lemma A.7",
    refuted_by="a 1-subgaussian law, w and δ for which it lies outside with probability above δ",
    largest=1.0,
    evaluations=400,
)
def lemma_a7() -> Plan:
    yield from pointwise_families(0.5, 2, masked=False)


@universal(
    "wen2023/lemma-a.8",
    "For fixed unit w and n ≥ C log(4/δ), (1/n) Σ(w·x_i)² 1(w·x_i > 0) lies in [1/8, 3/2] with "
    "probability 1 − δ; C = 24 does for σ = 1.",
    source="Lemma A.8",
    refuted_by="a 1-subgaussian law, w and δ for which it lies outside with probability above δ",
    largest=1.0,
    evaluations=400,
)
def lemma_a8() -> Plan:
    yield from pointwise_families(0.125, 4, masked=True)


def masked_distance(h: np.ndarray, values_of_c: tuple[float, float]) -> float:
    """The distance of quantiles of h² 1(h > 0) and of h² c, c uniform on its two values, where all
    the h are equally likely."""
    left = np.repeat(np.maximum(h, 0) ** 2, 2)
    right = np.concatenate([h**2 * c for c in values_of_c])
    return float(np.abs(np.sort(left) - np.sort(right)).max())


@claim(
    "wen2023/lemma-a.8/c-as-printed",
    "|w·x|² 1(w·x > 0) has the law of |w·x|² c with c Rademacher, independent of x.",
    source="Lemma A.8, proof",
    evidence="enumeration",
    reading="as printed",
)
def masked_law_as_printed() -> Verdict:
    distance = masked_distance(hypercube(6) @ np.arange(1.0, 7.0), (-1.0, 1.0))
    return equal(distance, 0.0, 1e-12, "distance of quantiles over {−1, 1}⁶")


@universal(
    "wen2023/lemma-a.8/c-corrected",
    "|w·x|² 1(w·x > 0) has the law of |w·x|² c with c uniform on {0, 1}, independent of x.",
    source="Lemma A.8, proof",
    refuted_by="w and points ±x_1, …, ±x_k, all equally likely, where the laws differ",
    largest=0.0,
    tolerance=1e-12,
    evidence="proof",
    reading="as corrected",
    evaluations=300,
)
def masked_law_corrected() -> Plan:
    """Proof: x and −x have one law, so that given |w·x| > 0 both signs of w·x are equally likely:
    1(w·x > 0) is then uniform on {0, 1}, whatever |w·x|."""
    distance = masked_distance(hypercube(6) @ np.arange(1.0, 7.0), (0.0, 1.0))
    yield equal(distance, 0.0, 1e-12, "distance of quantiles over {−1, 1}⁶")

    def relative(z: np.ndarray) -> float:
        h = z[3:].reshape(-1, 3) @ z[:3]
        h = np.concatenate([h, -h]) / max(np.abs(h).max(), 1e-300)
        return masked_distance(h, (0.0, 1.0))

    yield Family("w and ±x_1, …, ±x_4 in R³", 15, relative)


def greedy_cover(points: np.ndarray, epsilon: float) -> np.ndarray:
    """A maximal ε-separated subset, which ε-covers the points."""
    chosen: list[np.ndarray] = []
    for point in points:
        if not chosen or np.linalg.norm(np.array(chosen) - point, axis=1).min() >= epsilon:
            chosen.append(point)
    return np.array(chosen)


def least_cover_of_circle(epsilon: float) -> int:
    """The fewest points that ε-cover the circle: each covers an arc of 4 arcsin(ε/2)."""
    return 1 if epsilon >= 2 else int(np.ceil(np.pi / (2 * np.arcsin(epsilon / 2)) - 1e-12))


@universal(
    "wen2023/lemma-a.9",
    "The unit sphere of R^d has an ε-covering with fewer than (2/ε + 1)^d points.",
    source="Lemma A.9",
    refuted_by="an ε for which the least covering of the two points of R^1 or of the circle, or "
    "the greedy one of 1000 points of the sphere, has as many",
    largest=1.0,
    evaluations=120,
    evidence="proof",
)
def lemma_a9() -> Plan:
    """Proof: for ε ≥ 2 one point does. Else let T be a maximal set of points of the sphere with
    distances of at least ε, which covers it. The balls of radius ε/2 about T are disjoint up to
    their boundaries, lie in the ball of radius 1 + ε/2 and miss the one of radius 1 − ε/2 about 0,
    so that |T|(ε/2)^d < (1 + ε/2)^d."""

    yield Family("d = 1", 1, lambda z: (1 if z[0] >= np.log(2) else 2) / (2 * np.exp(-z[0]) + 1))
    yield Family(
        "d = 2",
        1,
        lambda z: least_cover_of_circle(np.exp(z[0])) / (2 * np.exp(-z[0]) + 1) ** 2,
    )
    cloud = generator(0, "claims/lemma-a.9", 3).normal(size=(1000, 3))
    cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)

    def greedy(z: np.ndarray) -> float:
        epsilon = 0.2 + np.abs(z[0])
        return len(greedy_cover(cloud, epsilon)) / (2 / epsilon + 1) ** 3

    yield Family("d = 3, ε ≥ 0.2", 1, greedy)


@universal(
    "wen2023/lemma-a.10",
    "For n ≥ C d log(d/δ), (1/n) Σ(w·x_i)² lies in [1/4, 2] for all unit w at once, with "
    "probability 1 − δ; C = 3 does on the cube.",
    source="Lemma A.10",
    refuted_by="a d and a δ ≥ 0.02 for which more than δ of 300 draws have a w outside",
    largest=1.0,
    evaluations=60,
    evidence="sample",
)
def lemma_a10() -> Plan:
    """The extremes over w are eigenvalues; the draws are the same for every δ."""
    for d in DIMENSIONS:
        most = int(np.ceil(3 * d * np.log(d / 0.02)))
        draws = 1 - 2 * generator(0, "claims/lemma-a.10", d).integers(0, 2, (300, most, d))

        def share(z: np.ndarray, d: int = d, draws: np.ndarray = draws) -> float:
            delta = probability(z[0])
            if delta < 0.02:
                return np.nan
            x = draws[:, : int(np.ceil(3 * d * np.log(d / delta)))].astype(float)
            eigenvalues = np.linalg.eigvalsh(x.transpose(0, 2, 1) @ x / x.shape[1])
            outside = (eigenvalues[:, 0] < 0.25) | (eigenvalues[:, -1] > 2)
            return float(outside.mean() / delta)

        yield Family(f"d = {d}, any δ", 1, share)


def relu_squares(w: np.ndarray, x: np.ndarray) -> float:
    """(1/n) Σ relu(w·x_i)² for w scaled to length 1."""
    return float((np.maximum(x @ w, 0) ** 2).mean() / (w @ w))


def active_share(w: np.ndarray, x: np.ndarray) -> float:
    """The share of points with w·x_i > 0."""
    return float((x @ w > 0).mean())


def extreme_direction(x: np.ndarray, sign: float, starts: int = 40, steps: int = 200) -> np.ndarray:
    """The unit w with the least (sign = 1) or largest (−1) (1/n) Σ relu(w·x_i)² that descent
    finds."""
    w = generator(0, "claims/extreme squares").normal(size=(starts, x.shape[1]))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    for _ in range(steps):
        gradient = np.maximum(w @ x.T, 0) @ x / len(x)
        w = w - sign * 0.5 * gradient
        w /= np.linalg.norm(w, axis=1, keepdims=True)
    return min(w, key=lambda one: sign * relu_squares(one, x))


def least_active_direction(x: np.ndarray, starts: int = 20, steps: int = 300) -> np.ndarray:
    """The w with the fewest points w·x_i > 0 that descent of a sigmoid count finds."""
    w = generator(0, "claims/least share").normal(size=(starts, x.shape[1]))
    best, least = w[0], 1.0
    for step in range(steps):
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        h = w @ x.T
        shares = (h > 0).mean(axis=1)
        if shares.min() < least:
            best, least = w[shares.argmin()], float(shares.min())
        soft = 1 / (1 + np.exp(-h * (2 + 6 * step / steps)))
        w = w - (soft * (1 - soft)) @ x / len(x)
    return best


@cache
def point_sets() -> tuple[tuple[str, np.ndarray, tuple[np.ndarray, ...]], ...]:
    """Inputs of xor data with n = 3 d log(d/δ), four draws for each d, and the w that descents
    find."""
    sets = []
    for d, seed in DRAWS:
        x = ft.Xor(d).draw(sample_size(d, 3.0), seed).x
        found = (least_active_direction(x), *(extreme_direction(x, sign) for sign in (1, -1)))
        sets.append((f"d = {d}, draw {seed}", x, found))
    return tuple(sets)


def over_directions(measure: Callable[[np.ndarray, np.ndarray], float]) -> Iterator[Family]:
    """z = w, for each of the sets of points, beginning at what descents found."""
    for name, x, found in point_sets():

        def measured(w: np.ndarray, x: np.ndarray = x) -> float:
            return measure(w, x)

        yield Family(name, x.shape[1], measured, found)


@universal(
    "wen2023/lemma-a.5",
    "For n = Ω(d log(d/δ)), C1 d ≤ (1/n) Σ‖x_i‖² 1(w·x_i > 0) ≤ C2 d for all w at once; on the "
    "cube C1 = 1/8 and C2 = 1 for n = 3 d log(d/δ).",
    source="Lemma A.5, Equation (6)",
    refuted_by="more than a tenth of draws with a w for which less than 1/8 of the points are "
    "active; here any one of 12 draws",
    least=0.125,
    evaluations=600,
    evidence="sample",
)
def lemma_a5() -> Plan:
    yield from over_directions(active_share)
    x = ft.Xor(16).draw(16, 0).x
    few = active_share(least_active_direction(x), x)
    yield equal(few, 0.0, 0.0, "least share at n = d, where some w has no active point")


@claim(
    "wen2023/lemma-a.5/chebyshev-as-printed",
    "Where log(2n/δ) > 1024d, 4 Var‖x‖²/(d²n) ≤ 2048d²/n ≤ 2048d² e^{−1024d} δ.",
    source="Lemma A.5, proof, upper bound",
    evidence="identity",
    reading="as printed",
)
def chebyshev_as_printed() -> Verdict:
    """1/n ≤ e^{−1024d} δ is used, but log(2n/δ) > 1024d says 1/n < 2 e^{−1024d}/δ.

    The instance is d = 1, δ = e^{−2000}, n = 10⁵, and no such n = O(log(1/δ)) would do: Chebyshev
    gives a power of n, and asks for 1/δ samples. (Var‖x‖² ≤ 2048σ⁴d² also makes the second term
    8192σ⁴/n.)
    """
    d, log_delta, n = 1, -2000.0, 1e5
    note = "log of 1/n against that of e^{−1024d} δ, at d = 1, δ = e^{−2000}, n = 10⁵"
    hypothesis = at_least(np.log(2 * n) - log_delta, 1024 * d, 0.0, "log(2n/δ)")
    return assuming(at_most(-np.log(n), -1024 * d + log_delta, 0.0, note), hypothesis)


@universal(
    "wen2023/lemma-a.5/chebyshev-corrected",
    "By Chernoff's bound Pr((1/n) Σ‖x_i‖² > 4σ²d) ≤ e^{−nd(1 − log(2)/2)}, at most δ/2 "
    "for n ≥ 2 log(2/δ)/d.",
    source="Lemma A.5, proof, upper bound",
    refuted_by="a law of proxy σ² and nd with a larger probability",
    largest=1.0,
    evidence="proof",
    reading="as corrected",
    evaluations=300,
)
def chernoff(half=0.5) -> Plan:
    """Pr((1/n) Σ‖x_i‖² > 4σ²d) e^{nd(1 − log(2)/2)}, for normal and three-point coordinates.

    Proof: a σ-subgaussian x has E e^{λ‖x‖²} = E e^{√(2λ) x·g} ≤ E e^{λσ²‖g‖²} =
    (1 − 2λσ²)^{−d/2} for 2λσ² < 1 and g standard normal, so with λ = 1/(4σ²) the mean of n exceeds
    4σ²d with probability at most e^{−nd} 2^{nd/2}. The exponent is that of this bound on normal x,
    where E e^{λ‖x‖²} is exact, by numerical integration.
    """
    d = 3
    mgf = quad(lambda r: np.exp(r / 4 + chi2.logpdf(r, d)), 0, np.inf)[0]
    rate = 1 - half * np.log(2)
    yield equal(1 - np.log(mgf) / d, rate, 1e-6, "exponent per nd at λ = 1/(4σ²), C2 = 4σ²")

    def normal(z: np.ndarray) -> float:
        nd = float(np.exp(np.clip(z[0], -7, 7)))
        return float(np.exp(chi2.logsf(4 * nd, nd) + nd * (1 - np.log(2) / 2)))

    def three_points(z: np.ndarray) -> float:
        q, nd = three_point_mass(z[0]), round(float(np.exp(np.clip(z[1], 0, 7))))
        if np.isnan(q):
            return q
        log_tail = binom.logsf(np.floor(4 * nd * q * three_point(q).proxy), nd, q)
        return float(np.exp(log_tail + nd * (1 - np.log(2) / 2)))

    yield Family("normal x, any nd", 1, normal)
    yield Family("three-point laws, nd ≤ 1000", 2, three_points)


@misprint(
    "wen2023/lemma-a.6/covering-",
    printed="A 1/64-covering of the unit sphere has at most 128^d points, by Lemma A.9.",
    corrected="A 1/64-covering of the unit sphere has fewer than 129^d points, by Lemma A.9.",
    source="Lemma A.6, proof",
    evidence="identity",
)
def covering_size(as_printed: bool, base=129.0) -> Verdict:
    """The least b with (2/ε + 1)^d ≤ b^d for all d, ε = 1/64; nothing hangs on it."""
    return equal(2 / (1 / 64) + 1, 128.0 if as_printed else base, 1e-12, "2/ε + 1")


@misprint(
    "wen2023/lemma-a.6/radius-",
    printed="With ‖w − w_k‖ ≤ 1/32 the last line is at least 1/16.",
    corrected="With ‖w − w_k‖ ≤ 1/64, which the covering grants, the last line is at least 1/16.",
    source="Lemma A.6, proof",
    evidence="identity",
)
def covering_radius(as_printed: bool, radius=1 / 64) -> Verdict:
    """1/8 − 2 · √2 · √2 ‖w − w_k‖: by (13) no direction has (1/n) Σ(w·x_i)² above 2."""
    radius = 1 / 32 if as_printed else radius
    return equal(1 / 8 - 2 * np.sqrt(2) * np.sqrt(2) * radius, 1 / 16, 1e-12, "the last line")


@universal(
    "wen2023/lemma-a.6",
    "For n = Ω(d log(d/δ)), C1 ≤ (1/n) Σ(w·x_i)² 1(w·x_i > 0) ≤ C2 for all unit w at once; on the "
    "cube C1 = 1/16 and C2 = 2, as in the proof, for n = 3 d log(d/δ).",
    source="Lemma A.6, Equation (7)",
    refuted_by="more than a tenth of draws with a w outside; here any one of 12 draws",
    least=1.0,
    evaluations=600,
    evidence="sample",
)
def lemma_a6() -> Plan:
    """The measure is the lesser of the mean over C1 and C2 over the mean."""

    def inside(w: np.ndarray, x: np.ndarray) -> float:
        mean = relu_squares(w, x)
        return min(16 * mean, 2 / mean) if mean > 0 else 0.0

    yield from over_directions(inside)


@misprint(
    "wen2023/lemma-a.11/sum-",
    printed="Tr ∇²L = Σ_j (W2_j² (2/n) Σ_i 1[W1_j·x_i > 0]‖x_i‖² + Σ_i relu(W1_j·x_i)²).",
    corrected="Tr ∇²L = Σ_j (W2_j² (2/n) Σ_i 1[W1_j·x_i > 0]‖x_i‖² + (2/n) Σ_i relu(W1_j·x_i)²).",
    source="Lemma A.11, proof",
    evidence="identity",
    of=worst,
)
def lemma_a11_sum(as_printed: bool, two=2.0) -> Verdicts:
    """Tr ∇²L against the terms of its neurons, those of W1 and those of W2."""
    for seed in range(3):
        data, model = ft.Xor(8, distinct=True).draw(20, seed), ft.MLP(30)
        params = random_interpolator(model, data, seed)
        h = data.x @ params["W1"].T
        of_w1 = 2 * data.d * (params["W2"] ** 2 * (h > 0)).sum() / data.n
        of_w2 = (1.0 if as_printed else two / data.n) * (np.maximum(h, 0) ** 2).sum()
        yield equal(float(ft.trace(model, params, data)), of_w1 + of_w2, 1e-9, "3 interpolators")


@universal(
    "wen2023/lemma-a.11",
    "For n = Ω(d log(d/δ)), C1(‖W1‖² + d‖W2‖²) ≤ Tr ∇²L ≤ C2(‖W1‖² + d‖W2‖²) at interpolators; on "
    "the cube C1 = 1/8 and C2 = 4, from Lemmas A.5 and A.6, for n = 3 d log(d/δ).",
    source="Lemma A.11",
    refuted_by="more than a tenth of draws with an interpolator outside; here any one of 12 draws",
    least=1.0,
    evaluations=600,
    evidence="sample",
)
def lemma_a11() -> Plan:
    """Two neurons (tw, s), (tw, −s) cancel and may be added to any interpolator; the larger they
    are, the more the ratio of the two sides is theirs. z = (w, φ), t : s√d = cos φ : sin φ, is the
    limit: 2 (cos²φ (1/n) Σ relu(w·x_i)² + sin²φ (1/n) Σ 1(w·x_i > 0)) for unit w, ‖x_i‖² = d."""
    for name, x, found in point_sets():

        def inside(z: np.ndarray, x: np.ndarray = x) -> float:
            w, c = z[:-1], np.cos(z[-1]) ** 2
            ratio = 2 * (c * relu_squares(w, x) + (1 - c) * active_share(w, x))
            return min(8 * ratio, 4 / ratio) if ratio > 0 else 0.0

        starts = tuple(np.append(w, angle) for w in found for angle in (0.0, np.pi / 2))
        yield Family(name, x.shape[1] + 1, inside, starts)
    yield _cancelling_pair_dominates()


def _cancelling_pair_dominates() -> Verdict:
    """The ratio of an interpolator with a pair of size 10⁴, by its trace, against the limit."""
    data = ft.Xor(4, distinct=True).draw(16, 0)
    params, w, t = random_interpolator(ft.MLP(32), data, 0), np.array([0.8, 0.36, 0.48, 0.0]), 1e4
    W1 = np.vstack([params["W1"], t * w, t * w])
    W2 = np.concatenate([params["W2"], [t / 2, -t / 2]])
    squares = (W1**2).sum() + 4 * (W2**2).sum()
    found = float(ft.trace(ft.MLP(34), {"W1": W1, "W2": W2}, data)) / squares
    limit = relu_squares(w, data.x) + active_share(w, data.x)
    return equal(found, limit, 1e-4, "a cancelling pair, t = 10⁴")
