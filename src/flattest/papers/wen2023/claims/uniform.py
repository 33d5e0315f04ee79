"""Appendix A.2.1: the bounds behind Lemma A.11, on the hypercube, where σ = 1.

Statements with "there exists C" are checked with a constant that is named in the note; statements
for all w with the worst w that descent from many starts finds.
"""

import itertools

import numpy as np
from scipy.stats import beta as beta_law

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.claim import Verdicts, claim, misprint, provided, worst
from flattest.papers.wen2023.claims.instances import random_interpolator
from flattest.problem.distributions import hypercube
from flattest.problem.randomness import generator

DELTA = 0.1
DIMENSIONS = (2, 4, 8, 16, 32)


def sample_size(d: int, C: float) -> int:
    """n = C d log(d/δ), rounded up."""
    return int(np.ceil(C * d * np.log(d / DELTA)))


def failure_bound(failures: int, trials: int) -> float:
    """The upper end of the one-sided 99 % Clopper–Pearson interval of a failure rate."""
    return 1.0 if failures == trials else float(beta_law.ppf(0.99, failures + 1, trials - failures))


def directions(d: int) -> np.ndarray:
    """Unit vectors from one coordinate to all of them, and a random one."""
    rows = [np.repeat([1.0, 0.0], [k, d - k]) for k in sorted({1, 2, d // 2, d})]
    rows.append(generator(0, "claims/direction", d).normal(size=d))
    return np.array([row / np.linalg.norm(row) for row in rows])


def _pointwise(statistic, low: float, high: float, n: int, trials: int = 2000) -> Verdict:
    """The largest failure rate, with its error, of low ≤ (1/n) Σ statistic(w·x_i) ≤ high."""
    rates = []
    for d in (2, 8, 32):
        rng = generator(0, "claims/pointwise", d * 1000 + n)
        for w in directions(d):
            h = (1.0 - 2.0 * rng.integers(0, 2, (trials, n, d), dtype=np.int8)) @ w
            means = statistic(h).mean(axis=1)
            outside = (means < low - 1e-12) | (means > high + 1e-12)
            rates.append(failure_bound(int(outside.sum()), trials))
    note = (
        f"C = 24, δ = {DELTA}, n = {n}: 99 % upper limit of the worst failure rate, "
        f"{len(rates)} directions"
    )
    return at_most(max(rates), DELTA, 0.0, note, seeds=trials)


@claim(
    "wen2023/lemma-a.7",
    "For fixed unit w and n ≥ C log(2/δ), (1/n) Σ(w·x_i)² lies in [1/2, 3/2] with probability "
    "1 − δ.",
    source="Lemma A.7",
    evidence="sample",
)
def lemma_a7() -> Verdict:
    return _pointwise(np.square, 0.5, 1.5, int(np.ceil(24 * np.log(2 / DELTA))))


@claim(
    "wen2023/lemma-a.8",
    "For fixed unit w and n ≥ C log(4/δ), (1/n) Σ(w·x_i)² 1(w·x_i > 0) lies in [1/8, 3/2] with "
    "probability 1 − δ.",
    source="Lemma A.8",
    evidence="sample",
)
def lemma_a8() -> Verdict:
    n = int(np.ceil(24 * np.log(4 / DELTA)))
    return _pointwise(lambda h: np.maximum(h, 0) ** 2, 0.125, 1.5, n)


@misprint(
    "wen2023/lemma-a.8/c-",
    printed="|w·x|² 1(w·x > 0) has the law of |w·x|² c with c Rademacher, independent of x.",
    corrected="|w·x|² 1(w·x > 0) has the law of |w·x|² c with c uniform on {0, 1}, independent of "
    "x.",
    source="Lemma A.8, proof",
    evidence="enumeration",
)
def masked_law(as_printed: bool) -> Verdict:
    """The law of |w·x|² 1(w·x > 0) against that of |w·x|² c, over the cube, as sorted values."""
    x = hypercube(6)
    h = x @ np.arange(1.0, 7.0)
    left = np.repeat(np.maximum(h, 0) ** 2, 2)
    right = np.concatenate([h**2 * c for c in (-1.0 if as_printed else 0.0, 1.0)])
    distance = np.abs(np.sort(left) - np.sort(right)).max()
    return equal(distance, 0.0, 1e-12, "distance of quantiles over {−1, 1}⁶")


def greedy_cover(points: np.ndarray, epsilon: float) -> np.ndarray:
    """A maximal ε-separated subset, which ε-covers the points."""
    chosen: list[np.ndarray] = []
    for point in points:
        if not chosen or np.linalg.norm(np.array(chosen) - point, axis=1).min() >= epsilon:
            chosen.append(point)
    return np.array(chosen)


@claim(
    "wen2023/lemma-a.9",
    "The unit sphere of R^d has an ε-covering with fewer than (2/ε + 1)^d points.",
    source="Lemma A.9",
    evidence="inequality",
)
def lemma_a9() -> Verdict:
    ratios = []
    for d, epsilon in itertools.product((1, 2, 3), (0.5, 0.25, 0.15)):
        cloud = generator(0, "claims/lemma-a.9", d).normal(size=(1500, d))
        cloud /= np.linalg.norm(cloud, axis=1, keepdims=True)
        cover = greedy_cover(cloud, epsilon)
        reach = np.linalg.norm(cloud[:, None] - cover[None], axis=2).min(axis=1).max()
        ratios.append(len(cover) / (2 / epsilon + 1) ** d)
        if reach > epsilon:
            return at_most(reach, epsilon, 0.0, "the greedy set does not cover")
    return at_most(max(ratios), 1.0, 0.0, "largest size over the bound, greedy covers, d = 1, 2, 3")


@claim(
    "wen2023/lemma-a.10",
    "For n ≥ C d log(d/δ), (1/n) Σ(w·x_i)² lies in [1/4, 2] for all unit w at once, with "
    "probability 1 − δ.",
    source="Lemma A.10",
    evidence="sample",
    of=worst,
)
def lemma_a10() -> Verdicts:
    trials = 300
    note = (
        f"C = 3, δ = {DELTA}, d ≤ 32: exact extremes over w; 99 % upper limit of the failure rate"
    )
    for d in DIMENSIONS:
        n, failures = sample_size(d, 3.0), 0
        for trial in range(trials):
            x = ft.Xor(d).sample(generator(trial, "claims/lemma-a.10", d), n)[0]
            eigenvalues = np.linalg.eigvalsh(x.T @ x / n)
            failures += eigenvalues[0] < 0.25 or eigenvalues[-1] > 2
        yield at_most(failure_bound(failures, trials), DELTA, 0.0, note, seeds=trials)


def extreme_relu_squares(x: np.ndarray, sign: float, starts: int = 40, steps: int = 200) -> float:
    """The least (sign = 1) or largest (−1) (1/n) Σ relu(w·x_i)² over unit w that descent finds."""
    w = generator(0, "claims/extreme squares").normal(size=(starts, x.shape[1]))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    for _ in range(steps):
        gradient = np.maximum(w @ x.T, 0) @ x / len(x)
        w = w - sign * 0.5 * gradient
        w /= np.linalg.norm(w, axis=1, keepdims=True)
    values = (np.maximum(w @ x.T, 0) ** 2).mean(axis=1)
    return float(values.min() if sign > 0 else values.max())


def least_active_share(x: np.ndarray, starts: int = 20, steps: int = 300) -> float:
    """The least share of points with w·x_i > 0 that descent of a sigmoid count finds."""
    w = generator(0, "claims/least share").normal(size=(starts, x.shape[1]))
    best = 1.0
    for step in range(steps):
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        h = w @ x.T
        best = min(best, float((h > 0).mean(axis=1).min()))
        soft = 1 / (1 + np.exp(-h * (2 + 6 * step / steps)))
        w = w - (soft * (1 - soft)) @ x / len(x)
    return best


def _point_sets() -> list[np.ndarray]:
    """Inputs of xor data with n = 3 d log(d/δ)."""
    cases = itertools.product((4, 8, 16), range(4))
    return [ft.Xor(d).draw(sample_size(d, 3.0), seed).x for d, seed in cases]


@claim(
    "wen2023/lemma-a.5",
    "For n = Ω(d log(d/δ)), C1 d ≤ (1/n) Σ‖x_i‖² 1(w·x_i > 0) ≤ C2 d for all w at once.",
    source="Lemma A.5, Equation (6)",
    evidence="sample",
)
def lemma_a5() -> Verdict:
    shares = [least_active_share(x) for x in _point_sets()]
    few = least_active_share(ft.Xor(16).draw(16, 0).x)
    note = f"C = 3, C1 = 1/8, C2 = 1: least share of active points over w; at n = d it is {few:g}"
    return provided(
        at_least(min(shares), 0.125, 0.0, note, seeds=len(shares)),
        equal(few, 0.0, 0.0, "least share at n = d, where some w has no active point"),
    )


@claim(
    "wen2023/lemma-a.6",
    "For n = Ω(d log(d/δ)), C1 ≤ (1/n) Σ(w·x_i)² 1(w·x_i > 0) ≤ C2 for all unit w at once.",
    source="Lemma A.6, Equation (7)",
    evidence="sample",
)
def lemma_a6() -> Verdict:
    low, high = ([extreme_relu_squares(x, sign) for x in _point_sets()] for sign in (1, -1))
    note = f"C = 3, C1 = 1/16, C2 = 2 as in the proof: least over w; the largest is {max(high):.3f}"
    return provided(at_least(min(low), 1 / 16, 0.0, note, seeds=len(low)), at_most(max(high), 2.0))


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


@claim(
    "wen2023/lemma-a.11",
    "For n = Ω(d log(d/δ)), C1(‖W1‖² + d‖W2‖²) ≤ Tr ∇²L ≤ C2(‖W1‖² + d‖W2‖²) at interpolators.",
    source="Lemma A.11",
    evidence="sample",
)
def lemma_a11() -> Verdict:
    ratios = []
    for d, seed in itertools.product((4, 8), range(4)):
        n = sample_size(d, 3.0)
        data = ft.Xor(d, distinct=n <= 2**d).draw(min(n, 2**d), seed)
        params = random_interpolator(ft.MLP(2 * data.n), data, seed)
        squares = (params["W1"] ** 2).sum() + d * (params["W2"] ** 2).sum()
        ratios.append(float(ft.trace(ft.MLP(2 * data.n), params, data)) / squares)
    note = (
        f"C1 = 1/8, C2 = 4 from Lemmas A.5 and A.6; ratios from {min(ratios):.3f} to "
        f"{max(ratios):.3f}, and 1 on average over w"
    )
    return provided(
        at_least(min(ratios), 1 / 8, 0.0, note, seeds=len(ratios)), at_most(max(ratios), 4.0)
    )
