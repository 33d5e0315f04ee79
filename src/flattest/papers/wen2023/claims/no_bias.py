"""Section 3 and Appendix A.2: networks without bias."""

import itertools
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from scipy.stats import binom, chi2, linregress, t

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.flatness.bounds import two_layer_rademacher_bound
from flattest.flatness.certification import population_error
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, every, provided
from flattest.papers.wen2023.claims.bias import fits
from flattest.papers.wen2023.claims.concentration import three_point, three_point_mass
from flattest.papers.wen2023.claims.rademacher import cube_relu_rademacher
from flattest.papers.wen2023.claims.uniform import (
    DRAWS,
    extreme_direction,
    least_active_direction,
    point_sets,
    sample_size,
)
from flattest.problem.distributions import hypercube
from flattest.problem.models import Params
from flattest.problem.randomness import generator

GRID_D, GRID_RATIO, GRID_SEEDS = (8, 12, 16), (2.0, 2.5, 3.0, 4.0, 6.0), 2


@claim(
    "wen2023/condition-2",
    "Xor data meet Condition 2: x is symmetric, 1-subgaussian with covariance I, and the width-4 "
    "network of A.2.4 computes y with Σ‖W1_j‖|W2_j| = 4√(2+2ε²)/(2−2ε), whatever d.",
    source="Condition 2, Appendix A.2.4",
    evidence="certificate",
    of=every,
)
def condition_2(factor=1.0) -> Verdicts:
    """E e^{λ·x} = ∏ cosh λ_k ≤ e^{‖λ‖²/2}, term by term of the series: x is 1-subgaussian."""
    epsilon = 0.1
    for d in (3, 6, 10):
        x = hypercube(d)
        model, params, _ = ft.no_bias_xor(ft.Xor(d).draw(40, 0), epsilon=epsilon)
        C = factor * 4 * np.sqrt(2 + 2 * epsilon**2) / (2 - 2 * epsilon)
        yield equal(ft.path_norm(params), C, 1e-9, "Σ‖W1_j‖|W2_j|, d = 3, 6, 10")
        error = np.abs(ft.predict(model, params, x, x) - x[:, 0] * x[:, 1]).max()
        yield equal(error, 0.0, 1e-10, "|f − y| over the cube")
        yield equal(np.abs(x.T @ x / len(x) - np.eye(d)).max(), 0.0, 1e-12, "covariance")
        lam = generator(0, "claims/condition-2", d).normal(size=(200, d)) * 2
        log_mgf = np.log(np.exp(lam @ x.T).mean(axis=1)) / ((lam**2).sum(axis=1) / 2)
        yield at_most(log_mgf.max(), 1.0, 0.0, "log E e^{λ·x} over ‖λ‖²/2")


@claim(
    "wen2023/appendix-a.2.4",
    "Rescaled, the width-4 network without bias has trace 4√d·√2 up to O(ε) on balanced xor data.",
    source="Appendix A.2.4",
    evidence="certificate",
)
def appendix_a24(factor=1.0) -> Verdict:
    d = 8
    x = hypercube(d)
    data = ft.Dataset(x, x[:, 0] * x[:, 1])
    model, params, certificate = ft.no_bias_xor(data, epsilon=1e-6)
    flat = equal(
        float(ft.trace(model, params, data)), factor * 4 * np.sqrt(2 * d), 1e-5, "ε = 1e-6"
    )
    orbit = equal(certificate.value, certificate.bound, 1e-9, "least in its rescaling orbit")
    return provided(flat, orbit, fits(model, params, data))


def independent_xor(d: int) -> ft.Dataset:
    """d linearly independent points of xor data: the first draw that has them."""
    draws = (ft.Xor(d).draw(d, seed) for seed in range(9))
    return next(data for data in draws if np.linalg.matrix_rank(data.x) == d)


def memorizer_without_bias(data: ft.Dataset, depth: int) -> tuple[ft.MLP, Params]:
    """Theorem 4.1's memorizer with ‖x_i‖ for ‖x'_i‖, for linearly independent inputs.

    The first layer has w_i·x_i = 1 and w_i·x_j = −1, times u_i; a negative off-diagonal keeps the
    inactive units of the hidden layers off their kinks.
    """
    norms, y = np.linalg.norm(data.x, axis=1), np.abs(data.y)
    r = (norms / y) ** (1 / depth)
    w = np.linalg.lstsq(data.x, 2 * np.eye(data.n) - 1, rcond=None)[0].T
    hidden = np.diag(1 / r) - 0.1 * (1 - np.eye(data.n))
    layers = {"W1": (y * r ** (depth - 1))[:, None] * w}
    layers |= {f"W{k}": hidden for k in range(2, depth)}
    return ft.MLP(data.n, depth=depth), layers | {f"W{depth}": np.sign(data.y) / r}


@claim(
    "wen2023/theorem-3.1/few-samples",
    "The hypothesis n = Ω(d log d) is needed: at n = d a memorizer without bias attains the least "
    "trace (4/n) Σ‖x_i‖|y_i| and generalizes badly.",
    source="Theorem 3.1",
    evidence="certificate",
)
def few_samples(factor=1.0) -> Verdict:
    data = independent_xor(d := 12)
    model, params = memorizer_without_bias(data, depth=2)
    error = population_error(model, params, data).value
    note = f"d = n = {d}; its zero-one error is {error:.3f}"
    flat = equal(float(ft.trace(model, params, data)), factor * 4 * np.sqrt(d), 1e-9, note)
    return provided(flat, fits(model, params, data), at_least(error, 0.3, 0.0, "zero-one error"))


@cache
def xor_complexities() -> list[tuple[np.ndarray, float]]:
    """Inputs of xor data with the R_S of path norm ≤ 1 on them."""
    sizes = ((2, 6), (2, 8), (3, 6), (3, 8), (4, 6))
    sets = [ft.Xor(d).draw(n, 0).x for d, n in sizes] + [hypercube(2), hypercube(3)]
    return [(x, cube_relu_rademacher(x)) for x in sets]


@universal(
    "wen2023/lemma-3.1/rademacher",
    "R_S(Θ_C) ≤ 2C√(d/n) on xor data, which is what Lemma A.24 says of them.",
    source="Lemma 3.1, second part",
    refuted_by="points of {−1, 1}^d whose R_S, over all signs and cells, is larger",
    largest=1.0,
    evidence="proof",
    evaluations=120,
)
def lemma_3_1_rademacher(two=2.0) -> Plan:
    """R_S itself, over all signs and all cells of the cube's arrangement, against the bound.

    Proof: that of Lemma A.24, with ‖x_i‖ = √d.
    """
    for n, d in ((3, 2), (4, 2), (3, 3)):
        yield Family(f"{n} points of the cube, d = {d}", n * d, partial(_cube_share, d))
    sets = xor_complexities()
    largest = max(R_S / two_layer_rademacher_bound(x, 1.0) for x, R_S in sets)
    note = f"largest R_S over 2C√(d/n), {len(sets)} sets of xor data, d = 2, 3, 4, all signs"
    yield at_most(largest, 1.0, 0.0, note)
    for x, _ in sets:
        n, d = x.shape
        bound = two_layer_rademacher_bound(x, 2.83)
        yield equal(bound, two * 2.83 * np.sqrt(d / n), 1e-12, "the bound of Lemma A.24")


def _cube_share(d: int, z: np.ndarray) -> float:
    """R_S over 2√(d/n), C = 1, for the points of the cube that z has the signs of."""
    x = np.where(z.reshape(-1, d) > 0, 1.0, -1.0)
    return cube_relu_rademacher(x) / two_layer_rademacher_bound(x, 1.0)


def norm_exponent() -> float:
    """The exponent of max ‖x_i‖² in d, over n = 4d points of the cube, where ‖x‖² = d."""
    d = np.array([4, 16, 64, 256])
    largest = [(ft.Xor(int(k)).draw(4 * int(k), 0).x ** 2).sum(axis=1).max() for k in d]
    return float(np.polyfit(np.log(d), np.log(largest), 1)[0])


@claim(
    "wen2023/lemma-a.4/norm-as-printed",
    "max ‖x_i‖² = Õ(√d) with high probability.",
    source="Lemma A.4, proof, last paragraph",
    evidence="identity",
    reading="as printed",
)
def norm_as_printed() -> Verdict:
    return at_most(norm_exponent(), 0.5, 0.2, "exponent of d on the cube, where ‖x‖² = d")


@universal(
    "wen2023/lemma-a.4/norm-corrected",
    "max ‖x_i‖² = Õ(d) with high probability.",
    source="Lemma A.4, proof, last paragraph",
    refuted_by="a law, d, n and δ with Pr(max ‖x_i‖² > 32σ²d + 8σ² log(n/δ)) above δ",
    least=1.0,
    evidence="proof",
    reading="as corrected",
    evaluations=300,
)
def norm_corrected(exponent=1.0) -> Plan:
    """log(n Pr(‖x‖² ≥ 32σ²d + 8σ² log(n/δ))) over log δ, for normal and three-point coordinates.

    Proof: by (20) with t = log(n/δ) and a union bound over the n points, max ‖x_i‖² ≤
    32σ²d + 8σ² log(n/δ) with probability 1 − δ; on the cube it is d.
    """
    yield equal(norm_exponent(), exponent, 1e-6, "exponent of d on the cube")

    def decoded(z: np.ndarray) -> tuple[int, int, float]:
        d, n = (round(float(np.exp(np.clip(v, 0, 9)))) for v in z[1:])
        return d, n, float(min(z[0], 0)) - 1e-3

    def normal(z: np.ndarray) -> float:
        d, n, log_delta = decoded(z)
        level = 32 * d + 8 * (np.log(n) - log_delta)
        return float((np.log(n) + chi2.logsf(level, d)) / log_delta)

    def three_points(z: np.ndarray) -> float:
        q, (d, n, log_delta) = three_point_mass(z[0]), decoded(z[1:])
        if np.isnan(q):
            return q
        level = (32 * d + 8 * (np.log(n) - log_delta)) * three_point(q).proxy
        return float((np.log(n) + binom.logsf(np.ceil(level * q) - 1, d, q)) / log_delta)

    yield Family("normal x, any δ, d and n", 3, normal)
    yield Family("three-point laws, any δ, d and n", 4, three_points)


def truncated(t, c: float, four: float = 4.0, two: float = 2.0) -> list[tuple]:
    """The pieces of l_c of (15) as functions of |f − y| = t: from where, value and slope."""
    return [
        (0.0, t**2, 2 * t),
        (c, -(t**2) + four * c * t - two * c**2, -2 * t + four * c),
        (2 * c, two * c**2 + 0 * t, 0 * t),
    ]


@universal(
    "wen2023/equation-15",
    "l_c of (15) is continuously differentiable with slopes that are 2-Lipschitz, at most 2c², and "
    "differs from (f − y)² by no more than (f − y)² 1(|f − y| ≥ c).",
    source="Equation (15)",
    refuted_by="c and two values of |f − y| with a steeper slope or a larger difference",
    largest=1.0,
    attained=True,
    evidence="proof",
    evaluations=600,
)
def equation_15(four=4.0, two=2.0) -> Plan:
    """Proof: its pieces are quadratic with second derivatives 2, −2 and 0, so nothing is left to
    check but where they meet: they have one value and one slope at c and at 2c, and the slope is
    not negative between them, so that l_c rises to its last value. So t² − l_c is 0 up to c, and
    beyond it between 0 and t²."""
    c = 1.7
    for k in (1, 2):
        (_, below, rise), (start, above, go_on) = truncated(k * c, c, four, two)[k - 1 : k + 1]
        yield equal(above, below, 1e-12, f"value at {k}c")
        yield equal(start + go_on, start + rise, 1e-12, f"slope at {k}c")
    t = np.linspace(0, 4 * c, 4001)
    l_c = _truncated_at(t, c, 1, four, two)
    yield equal(l_c.max(), 2 * c**2, 1e-12, "largest value")
    yield equal((t**2 - l_c)[t < c].max(), 0.0, 1e-12, "t² − l_c for t < c")
    yield Family("c and two values of |f − y|", 3, lambda z: _truncated_shares(*np.abs(z)))


def _truncated_at(t, c: float, part: int, *constants: float):
    """l_c (part 1) or its slope (part 2) at t."""
    pieces = truncated(np.asarray(t), c, *constants)
    return np.select([t >= piece[0] for piece in pieces[::-1]], [p[part] for p in pieces[::-1]])


def _truncated_shares(c: float, s: float, t: float) -> float:
    """The largest of (l_c′(t) − l_c′(s))/2|t − s|, l_c/2c² and (t² − l_c)/t² or its negative."""
    if c < 1e-6 or t < 1e-6 * c or abs(t - s) < 1e-6 * c:
        return float("nan")
    slopes = _truncated_at(np.array([s, t]), c, 2)
    lost = 1 - float(_truncated_at(t, c, 1)) / t**2
    inside = abs(lost) * 1e9 if t < c else max(lost, -lost * 1e9)
    return max(
        abs(slopes[1] - slopes[0]) / (2 * abs(t - s)),
        float(_truncated_at(t, c, 1)) / (2 * c**2),
        inside,
    )


@claim(
    "wen2023/equation-15/tail-as-printed",
    "(f − y)² 1(|f − y| ≥ c) ≤ 2f² 1(|f| ≥ c) + 2y² 1(|y| ≥ c).",
    source="Theorem A.1, proof, the display after (15)",
    evidence="certificate",
    reading="as printed",
)
def truncated_tail_as_printed() -> Verdict:
    """With f = 0.6c, y = −0.6c the right side is 0."""
    note = "c = 1, f = 0.6, y = −0.6: the left side against the right"
    return at_most(*_tail_sides(0.6, -0.6, 1.0, 2.0), 0.0, note)


@universal(
    "wen2023/equation-15/tail-corrected",
    "(f − y)² 1(|f − y| ≥ c) ≤ 4f² 1(|f| ≥ c/2) + 4y² 1(|y| ≥ c/2).",
    source="Theorem A.1, proof, the display after (15)",
    refuted_by="two reals f/c and y/c with a larger left side",
    largest=1.0,
    attained=True,
    tolerance=1e-6,
    evidence="proof",
    reading="as corrected",
)
def truncated_tail_corrected(four=4.0) -> Plan:
    """Proof: if |f − y| ≥ c, the larger of |f| and |y|, say |f|, is at least c/2, and
    (f − y)² ≤ 4f².

    The factor 4 is approached by f = c/2 + 2a, y = a − c/2 as a → 0, where only f counts. The
    theorem's Õ(d/n) stays, at c/2.
    """

    def ratio(z: np.ndarray) -> float:
        left, right = _tail_sides(z[0], z[1], 0.5, four)
        return float(left / right) if left > 0 else np.nan

    yield Family("f/c, y/c", 2, ratio, (np.array([0.5 + 2e-8, 1e-8 - 0.5]),))


def _tail_sides(f, y, share: float, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """(f − y)² 1(|f − y| ≥ 1), and factor (f² 1(|f| ≥ share) + y² 1(|y| ≥ share))."""
    counted = [factor * t**2 * (np.abs(t) >= share) for t in (f, y)]
    return (f - y) ** 2 * (np.abs(f - y) >= 1), counted[0] + counted[1]


@claim(
    "wen2023/slides/theorem-1.1",
    "Flattest networks without bias have E(f − y)² = O((d/n) log(d/n)) for n = Ω(d log(d/δ)).",
    source="Slides (Park 2024), Theorem 1.1",
    evidence="identity",
    expected="fails",
)
def slides_theorem_1_1() -> Verdict:
    d, n = 30, 120
    note = "no square is below a negative number: log(d/n) < 0 for n > d. Theorem 3.1 has Õ(d/n)"
    return at_most(0.0, d / n * np.log(d / n), 0.0, note)


@claim(
    "wen2023/section-6/deep-without-bias",
    "Flattest memorizing models exist for deep networks without bias too, where the inputs are "
    "linearly independent, hence n ≤ d: they attain (2D/n) Σ|y_i|^{2(D−1)/D}‖x_i‖^{2/D} and "
    "generalize badly.",
    source="Section 6, a question left open; ours",
    evidence="certificate",
    of=every,
)
def deep_without_bias(factor=1.0) -> Verdicts:
    """The lower bound is Theorem 4.1's, whose proof needs no bias. For n far above d it is open."""
    data = independent_xor(12)
    for depth in (3, 4):
        model, params = memorizer_without_bias(data, depth)
        bound = factor * 2 * depth * data.d ** (1 / depth)
        error = population_error(model, params, data).value
        yield equal(float(ft.trace(model, params, data)), bound, 1e-9, f"trace, D = {depth}")
        yield equal(ft.lower_bound(model, data).value, bound, 1e-12, "`lower_bound`")
        yield fits(model, params, data)
        yield equal(ft.memorizes(model, params, data), True, 0.0, "memorizing (Definition 4.2)")
        yield at_least(error, 0.3, 0.0, "zero-one error")


def flattest(
    distribution: ft.Distribution, n: int, width: int, seed: int, steps: int
) -> ft.SearchResult:
    return ft.search_flattest(ft.MLP(width), distribution.draw(n, seed), seed, steps=steps)


@cache
def xor_grid() -> tuple[tuple[int, int, ft.SearchResult], ...]:
    """(d, n, flattest network found) over the grid, from random interpolators."""
    cells = itertools.product(GRID_D, GRID_RATIO, range(GRID_SEEDS))
    return tuple(
        (d, n, flattest(ft.Xor(d, distinct=True), n, 32, seed, steps=400))
        for d, ratio, seed in cells
        for n in [int(ratio * d)]
    )


def _slope(cells) -> tuple[float, tuple[float, float]]:
    """The exponent of d/n in the error, with its 95 % interval."""
    x = np.log([d / n for d, n, _ in cells])
    fit = linregress(x, np.log([max(result.end.test_mse, 1e-12) for _, _, result in cells]))
    half = float(t.ppf(0.975, len(x) - 2) * fit.stderr)
    return float(fit.slope), (float(fit.slope) - half, float(fit.slope) + half)


@claim(
    "wen2023/theorem-3.1",
    "Flattest networks without bias have E(f − y)² ≤ Õ(d/n) on xor data for n = Ω(d log d).",
    source="Theorem 3.1",
    evidence="scaling law",
    cost="full",
)
def theorem_3_1() -> Verdict:
    cells = xor_grid()
    _, interval = _slope(cells)
    large = max(result.end.test_mse * n / d for d, n, result in cells if n >= 4 * d)
    note = (
        "lower end of the exponent of d/n in the test error of the flattest networks found, "
        "d = 8, 12, 16, n/d = 2 … 6: the error falls faster than d/n; largest MSE·n/d for "
        f"n ≥ 4d: {large:.1e}"
    )
    fit = at_least(interval[0], 1.0, 0.0, note, seeds=GRID_SEEDS, interval=interval)
    return provided(fit, at_most(large, 1.0, 0.0, "largest MSE·n/d for n ≥ 4d"))


def orbit_cost(w: np.ndarray, x: np.ndarray) -> float:
    """c(w) = (4/n) ‖relu(Xw)‖ √(Σ_{w·x_i > 0} ‖x_i‖²) for w scaled to length 1.

    At its flattest rescaling a neuron with ‖W1_j‖|W2_j| = 1 adds this to Tr ∇²L: it adds
    (2/n)(W2_j² Σ_active ‖x_i‖² + ‖relu(XW1_j)‖²), at least twice the root of the product.
    """
    h = x @ w
    squares = (np.maximum(h, 0) ** 2).sum() / (w @ w) * (x[h > 0] ** 2).sum()
    return float(4 * np.sqrt(squares) / len(x))


def most_path_norm(x: np.ndarray, trace: float) -> Callable[[np.ndarray], float]:
    """trace/c(w): the largest over w bounds Σ‖W1_j‖|W2_j| of all interpolators without bias that
    are as flat as one of this trace, since Tr ∇²L ≥ Σ_j ‖W1_j‖|W2_j| c(W1_j)."""

    def ratio(w: np.ndarray) -> float:
        cost = orbit_cost(w, x)
        return trace / cost if cost > 0 else np.inf

    return ratio


@universal(
    "wen2023/lemma-3.1",
    "Flattest networks without bias have Σ‖W1_j‖|W2_j| ≤ C with C independent of d; C = 16 for "
    "n = 3 d log(d/δ), from the constants of Lemmas A.5 and A.6.",
    source="Lemma 3.1",
    refuted_by="more than a tenth of draws, here any one of 12, with a w such that a neuron along "
    "it costs less than a sixteenth of the trace of the width-4 network of A.2.4",
    largest=16.0,
    evaluations=600,
    evidence="sample",
)
def lemma_3_1() -> Plan:
    for (d, seed), (name, x, found) in zip(DRAWS, point_sets(), strict=True):
        data = ft.Xor(d).draw(len(x), seed)
        trace = ft.no_bias_xor(data, epsilon=1e-3).certificate.value
        yield Family(name, d, most_path_norm(x, trace), found)


@universal(
    "wen2023/lemma-a.4",
    "The same on any distribution that meets Condition 2, here normal x with y = relu(x[1]).",
    source="Lemma A.4",
    refuted_by="more than a tenth of draws, here any one of 4, with a w such that a neuron along "
    "it costs less than a sixteenth of relu(x[1])",
    largest=16.0,
    evaluations=600,
    evidence="sample",
)
def lemma_a4() -> Plan:
    for d, seed in itertools.product((6, 12), range(2)):
        x = ft.SingleIndex(d).draw(sample_size(d, 3.0), seed).x
        starts = (least_active_direction(x), extreme_direction(x, 1))
        teacher = orbit_cost(np.eye(d)[0], x)
        yield Family(f"d = {d}, draw {seed}", d, most_path_norm(x, teacher), starts)


@cache
def single_index_grid() -> tuple[tuple[int, int, ft.SearchResult], ...]:
    return tuple(
        (d, ratio * d, flattest(ft.SingleIndex(d), ratio * d, 32, seed, steps=400))
        for d, ratio, seed in itertools.product((6, 12), (3, 6), range(GRID_SEEDS))
    )


@claim(
    "wen2023/theorem-a.1",
    "Flattest networks without bias have E(f − y)² ≤ Õ(d/n) on any distribution that meets "
    "Condition 2, here normal x with y = relu(x[1]).",
    source="Theorem A.1",
    evidence="scaling law",
    cost="full",
)
def theorem_a1() -> Verdict:
    cells = single_index_grid()
    slope, _ = _slope(cells)
    large = max(result.end.test_mse * n / d for d, n, result in cells)
    note = f"largest MSE·n/d, d = 6, 12, n/d = 3, 6; exponent of d/n: {slope:.2f}"
    headline = at_most(large, 1.0, 0.0, note, seeds=GRID_SEEDS)
    return provided(headline, at_least(slope, 1.0, 0.0, "exponent of d/n"))
