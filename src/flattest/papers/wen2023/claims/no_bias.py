"""Section 3 and Appendix A.2: networks without bias."""

import itertools
from functools import cache

import numpy as np
from scipy.stats import linregress, t

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.flatness.bounds import two_layer_rademacher_bound
from flattest.flatness.certification import population_error
from flattest.ledger.claim import Verdicts, claim, every, misprint, provided, worst
from flattest.papers.wen2023.claims.bias import fits
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


def memorizer_without_bias(data: ft.Dataset) -> tuple[ft.MLP, Params]:
    """For linearly independent inputs: w_i·x_i = 1 and w_i·x_j = −1, scaled to Equation (4)."""
    w = np.linalg.lstsq(data.x, 2 * np.eye(data.n) - 1, rcond=None)[0].T
    r = np.sqrt(np.abs(data.y) * np.linalg.norm(data.x, axis=1))
    return ft.MLP(data.n), {"W1": r[:, None] * w, "W2": data.y / r}


@claim(
    "wen2023/theorem-3.1/few-samples",
    "The hypothesis n = Ω(d log d) is needed: at n = d a memorizer without bias attains the least "
    "trace (4/n) Σ‖x_i‖|y_i| and generalizes badly.",
    source="Theorem 3.1",
    evidence="certificate",
)
def few_samples(factor=1.0) -> Verdict:
    d = 12
    data = next(
        s for s in (ft.Xor(d).draw(d, k) for k in range(9)) if np.linalg.matrix_rank(s.x) == d
    )
    model, params = memorizer_without_bias(data)
    error = population_error(model, params, data).value
    note = f"d = n = {d}; its zero-one error is {error:.3f}"
    flat = equal(float(ft.trace(model, params, data)), factor * 4 * np.sqrt(d), 1e-9, note)
    return provided(flat, fits(model, params, data), at_least(error, 0.3, 0.0, "zero-one error"))


@claim(
    "wen2023/lemma-3.1/rademacher",
    "Lemma A.24 bounds R_S(Θ_C) by 2C√(d/n) on xor data.",
    source="Lemma 3.1, second part",
    evidence="identity",
)
def lemma_3_1_rademacher(two=2.0) -> Verdict:
    C = 2.83
    return worst(
        equal(
            two_layer_rademacher_bound(ft.Xor(d).draw(n, 0).x, C), two * C * np.sqrt(d / n), 1e-12
        )
        for d, n in ((5, 40), (30, 100), (60, 2000))
    )


@misprint(
    "wen2023/lemma-a.4/norm-",
    printed="max ‖x_i‖² = Õ(√d) with high probability.",
    corrected="max ‖x_i‖² = Õ(d) with high probability.",
    source="Lemma A.4, proof, last paragraph",
    evidence="identity",
)
def norm_exponent(as_printed: bool, exponent=1.0) -> Verdict:
    """The exponent of max ‖x_i‖² in d, over n = 4d points."""
    d = np.array([4, 16, 64, 256])
    largest = [(ft.Xor(int(k)).draw(4 * int(k), 0).x ** 2).sum(axis=1).max() for k in d]
    found = np.polyfit(np.log(d), np.log(largest), 1)[0]
    note = "exponent of d on the cube, where ‖x‖² = d"
    return at_most(found, 0.5, 0.2, note) if as_printed else equal(found, exponent, 1e-6, note)


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
    fit = at_least(interval[0], 1.0, 0.0, note, seeds=len(cells), interval=interval)
    return provided(fit, at_most(large, 1.0, 0.0, "largest MSE·n/d for n ≥ 4d"))


@claim(
    "wen2023/lemma-3.1",
    "Flattest networks without bias have Σ‖W1_j‖|W2_j| ≤ C with C independent of d.",
    source="Lemma 3.1",
    evidence="sample",
    cost="full",
)
def lemma_3_1() -> Verdict:
    kept = [(d, ft.path_norm(r.params)) for d, n, r in xor_grid() if n >= 4 * d]
    means = [np.mean([norm for k, norm in kept if k == d]) for d in GRID_D]
    note = (
        "largest Σ‖W1_j‖|W2_j| of the flattest networks found, n ≥ 4d; means for d = 8, 12, 16: "
        + ", ".join(f"{m:.2f}" for m in means)
    )
    return at_most(max(norm for _, norm in kept), 4.0, 0.0, note, seeds=len(kept))


@claim(
    "wen2023/lemma-a.4",
    "The same on any distribution that meets Condition 2, here normal x with y = relu(x[1]).",
    source="Lemma A.4",
    evidence="sample",
    cost="full",
)
def lemma_a4() -> Verdict:
    norms = [ft.path_norm(result.params) for _, _, result in single_index_grid()]
    note = "largest Σ‖W1_j‖|W2_j| of the flattest networks found, d = 6, 12, n/d = 3, 6"
    return at_most(max(norms), 2.0, 0.0, note, seeds=len(norms))


@cache
def single_index_grid() -> tuple[tuple[int, int, ft.SearchResult], ...]:
    return tuple(
        (d, ratio * d, flattest(ft.SingleIndex(d), ratio * d, 32, seed, steps=400))
        for d, ratio, seed in itertools.product((6, 12), (3, 6), range(2))
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
    headline = at_most(large, 1.0, 0.0, note, seeds=len(cells))
    return provided(headline, at_least(slope, 1.0, 0.0, "exponent of d/n"))
