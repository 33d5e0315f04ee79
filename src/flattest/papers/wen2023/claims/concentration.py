"""Appendix A.6.1: concentration inequalities, with exact laws where there are any.

The families of σ-subgaussian variables are the normal, the Rademacher and the three-point law
a·ξ with Pr(ξ = ±1) = q/2, Pr(ξ = 0) = 1 − q, which is as heavy as σ allows.
"""

from functools import cache

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import beta, binom, chi, chi2

from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.claim import Verdicts, claim, misprint, provided, worst
from flattest.problem.randomness import generator

THREE_POINT = (0.5, 0.2, 0.05, 0.01, 0.002)


@cache
def three_point_proxy(q: float) -> float:
    """The least σ² for which the three-point law of variance 1 is σ-subgaussian.

    σ² = sup_λ 2 log E e^{λX}/λ² with E e^{λX} = 1 + q (cosh(λa) − 1), a² = 1/q.
    """
    a = q**-0.5

    def negative(log_lambda):
        lam = np.exp(log_lambda)
        return -2 * np.log1p(q * (np.cosh(lam * a) - 1)) / lam**2

    grid = np.linspace(-8, np.log(600 / a), 4000)
    best = grid[np.argmin([negative(t) for t in grid])]
    width = grid[1] - grid[0]
    found = minimize_scalar(negative, bounds=(best - width, best + width), method="bounded")
    return max(1.0, -float(found.fun))


def _log_mgf_of_square(law: str, lam: np.ndarray) -> np.ndarray:
    """log E exp(λ(X² − E X²)) for variance 1."""
    if law == "normal":
        return -lam - 0.5 * np.log1p(-2 * lam)
    q = float(law)
    return np.log1p(q * np.expm1(lam / q)) - lam


@claim(
    "wen2023/lemma-a.14",
    "If X is σ-subgaussian, X² is (4√2σ², 4σ²)-subexponential.",
    source="Lemma A.14 (Honorio & Jaakkola 2014)",
    evidence="inequality",
    of=worst,
)
def lemma_a14() -> Verdicts:
    laws = {"normal": 1.0} | {str(q): three_point_proxy(q) for q in THREE_POINT}
    for law, variance_proxy in laws.items():
        lam = np.linspace(-1, 1, 2001) / (4 * variance_proxy)
        lam = lam[np.abs(lam) > 1e-4 / variance_proxy]
        allowed = 16 * variance_proxy**2 * lam**2
        ratio = (_log_mgf_of_square(law, lam) / allowed).max()
        yield at_most(ratio, 1.0, 0.0, "largest log-mgf of X² over the allowed one, exact laws")


@claim(
    "wen2023/lemma-a.15",
    "Hoeffding: Pr(|mean of n σ-subgaussian variables| ≥ t) ≤ 2 exp(−n t² C), here C = 1/(2σ²).",
    source="Lemma A.15",
    evidence="enumeration",
    of=worst,
)
def lemma_a15() -> Verdicts:
    note = "Rademacher variables, exact binomial tails, n ≤ 1000"
    for n in (1, 2, 5, 10, 50, 200, 1000):
        k = np.arange((n + 1) // 2, n + 1)
        t = 2 * k / n - 1
        tail = np.where(t > 0, 2 * binom.sf(k - 1, n, 0.5), 1.0)
        yield at_most((tail / (2 * np.exp(-n * t**2 / 2))).max(), 1.0, 0.0, note)


@claim(
    "wen2023/lemma-a.16",
    "Bernstein: Pr(|mean − expectation| ≥ t) ≤ 2 exp(−n min(t, t²) C) for (σ, α)-subexponential "
    "variables, here C = min(1/(2σ²), 1/(2α)).",
    source="Lemma A.16 (Rinaldo 2019)",
    evidence="inequality",
    of=worst,
)
def lemma_a16() -> Verdicts:
    sigma_squared, alpha = 32.0, 4.0
    C = min(1 / (2 * sigma_squared), 1 / (2 * alpha))
    t = np.geomspace(1e-3, 30, 400)
    note = "squares of normal variables, (4√2, 4)-subexponential by Lemma A.14, exact tails"
    for n in (1, 2, 5, 20, 100, 1000):
        tail = chi2.sf(n * (1 + t), n) + chi2.cdf(n * (1 - np.minimum(t, 1)), n)
        bound = 2 * np.exp(-n * np.minimum(t, t**2) * C)
        yield at_most((tail / bound).max(), 1.0, 0.0, note)


@claim(
    "wen2023/lemma-a.17",
    "Pr(‖x‖² ≥ 32σ²d + 8σ²t) ≤ e^{−t} and E‖x‖⁴ ≤ 2048σ⁴d² for σ-subgaussian vectors.",
    source="Lemma A.17, Equation (20)",
    evidence="inequality",
)
def lemma_a17() -> Verdict:
    ratios = []
    for d in (1, 2, 5, 30, 200):
        # E exp(λ‖x‖²) ≤ (1 − 2λσ²)^{−d/2} for every σ-subgaussian x: Markov with λ = 1/(8σ²).
        ratios.append(np.exp(-32 * d / 8) * (1 - 2 / 8) ** (-d / 2))
        # The fourth moment by integration of the first bound: (32d)² + ∫ 16 (32d + 8t) e^{−t} dt.
        ratios.append((1024 * d**2 + 512 * d + 128) / (2048 * d**2))
        t = np.linspace(0, 200, 401)
        ratios.append((chi2.sf(32 * d + 8 * t, d) * np.exp(t)).max())
        ratios.append((d**2 + 2 * d) / (2048 * d**2))
        for q in THREE_POINT:
            proxy = three_point_proxy(q)
            tail = binom.sf(np.ceil((32 * d + 8 * t) * proxy * q) - 1, d, q)
            ratios.append((tail * np.exp(t)).max())
            ratios.append((d / q + d * (d - 1)) / (2048 * proxy**2 * d**2))
    note = "largest ratio of the sides: the tail by Markov, the moment by the tail; exact laws"
    return at_most(max(ratios), 1.0, 0.0, note)


@claim(
    "wen2023/lemma-a.18",
    "There is c = O(σ√(d log(dn))) with E‖x‖² 1(‖x‖ > c) ≤ dσ²/n.",
    source="Lemma A.18",
    evidence="inequality",
)
def lemma_a18() -> Verdict:
    sizes = [(d, n) for d in (1, 2, 5, 10, 30, 100, 1000) for n in (2, 3, 5, 10, 100, 1e4, 1e8)]
    squares = {(d, n): _square_of_c(d, n) for d, n in sizes}
    shares = [squares[d, n] / (d * np.log(d * n)) for d, n in sizes]
    # E‖x‖² 1(‖x‖ > c) = d Pr(χ²_{d+2} > c²) for normal x.
    normal = max(n * chi2.sf(squares[d, n], d + 2) for d, n in sizes)
    note = f"largest c²/(σ² d log(dn)), c by (20), over that of d = 1, n = 2 ({shares[0]:.0f})"
    return provided(
        at_most(max(shares) / shares[0], 1.0, 0.0, note),
        at_most(normal, 1.0, 0.0, "normal vectors, largest n E‖x‖² 1(‖x‖ > c)/(dσ²)"),
    )


@misprint(
    "wen2023/lemma-a.18/sigma-",
    printed="Hence there is c = O(σ√(d log(dn))) with E‖x‖² 1(‖x‖ > c) ≤ d/n.",
    corrected="Hence there is c = O(σ√(d log(dn))) with E‖x‖² 1(‖x‖ > c) ≤ σ²d/n.",
    source="Lemma A.18, last line of the proof",
    evidence="certificate",
    of=worst,
)
def lost_sigma(as_printed: bool, factor=1.0) -> Verdicts:
    """Normal x of variance σ², at the c = σk that is least for σ = 1: k² = χ²_{d+2}'s quantile.

    E‖x‖² 1(‖x‖ > σk) = σ²d Pr(χ²_{d+2} > k²), by integration of r² against the density of ‖x‖, so
    no k that depends on d and n alone keeps it below d/n for all σ.
    """
    d, n = 5, 100
    k = chi2.isf(1 / n, d + 2) ** 0.5
    for sigma in (1.0, 3.0):
        tail = sigma**2 * chi.expect(np.square, args=(d,), lb=k)
        allowed = d / n if as_printed else factor * sigma**2 * d / n
        yield equal(tail, allowed, 1e-6, "d = 5, n = 100, σ = 1 and 3")


def _square_of_c(d: int, n: float) -> float:
    """c²/σ² that (20) gives: 32d + 8t with E‖x‖² 1(‖x‖ > c) ≤ (c² + 8)e^{−t} = d/n."""
    t = brentq(lambda t: np.log((32 * d + 8 * t + 8) * n / d) - t, 0, 100)
    return 32 * d + 8 * t


def _norm_probability(q: float, d: int) -> float:
    """Pr(‖x‖² > d/2) for d independent three-point coordinates: Pr(Bin(d, q) > qd/2)."""
    return float(binom.sf(np.floor(q * d / 2 + 1e-12), d, q))


@claim(
    "wen2023/lemma-a.19",
    "Pr(‖x‖² > d/2) ≥ 1/(20(e^{σ²/2} − 3/2)) for σ-subgaussian x with covariance I_d.",
    source="Lemma A.19, last line of the proof",
    evidence="inequality",
)
def lemma_a19() -> Verdict:
    dimensions = (1, 2, 3, 10, 100)
    ratios = [chi2.sf(d / 2, d) * 20 * (np.exp(0.5) - 1.5) for d in dimensions]
    ratios += [
        _norm_probability(q, d) * 20 * (np.exp(three_point_proxy(q) / 2) - 1.5)
        for d in dimensions
        for q in THREE_POINT
    ]
    note = "least probability over the bound; the lemma asks only for some constants"
    return at_least(min(ratios), 1.0, 0.0, note)


def _sphere_fourth_moment(d: int, size: int = 400_000) -> tuple[float, float]:
    v = generator(0, "claims/lemma-a.19", d).normal(size=(size, d))
    fourth = v[:, 0] ** 4 / (v**2).sum(axis=1) ** 2
    return float(fourth.mean()), float(fourth.std() / np.sqrt(size))


@claim(
    "wen2023/lemma-a.19/fourth-moment-as-printed",
    "E v[1]⁴ = 3/((d+2)(d+4)) for v uniform on the unit sphere.",
    source="Lemma A.19, proof",
    evidence="sample",
    reading="as printed",
)
def fourth_moment_as_printed() -> Verdict:
    d = 5
    value, error = _sphere_fourth_moment(d)
    return equal(value, 3 / ((d + 2) * (d + 4)), 5 * error * (d + 2) * (d + 4) / 3, f"d = {d}")


@claim(
    "wen2023/lemma-a.19/fourth-moment-corrected",
    "E v[1]⁴ = 3/(d(d+2)) for v uniform on the unit sphere.",
    source="Lemma A.19, proof",
    evidence="identity",
    reading="as corrected",
)
def fourth_moment_corrected(three=3.0) -> Verdict:
    # Exact: v[1]² is Beta(1/2, (d−1)/2); its second moment by quadrature at d = 5.
    d = 5
    exact = beta(0.5, (d - 1) / 2).moment(2)
    sampled, error = _sphere_fourth_moment(d)
    note = f"the Beta law of v[1]², and a sample, d = {d}"
    return provided(
        equal(exact, three / (d * (d + 2)), 1e-9, note),
        equal(sampled, exact, 5 * error / exact, "the sample disagrees with the Beta law"),
    )


@claim(
    "wen2023/lemma-a.19/norm-moment-as-printed",
    "E‖x‖⁴ ≤ (e^{σ²/2} − 3/2)(d+2)(d+4)/3.",
    source="Lemma A.19, proof",
    evidence="inequality",
    reading="as printed",
)
def norm_moment_as_printed() -> Verdict:
    d = 30
    note = "standard normal x, d = 30: the 1/24 of the exponential series is lost"
    return at_most(d**2 + 2 * d, (np.exp(0.5) - 1.5) * (d + 2) * (d + 4) / 3, 0.0, note)


@claim(
    "wen2023/lemma-a.19/norm-moment-corrected",
    "E‖x‖⁴ ≤ 8 (e^{σ²/2} − 3/2) d(d+2).",
    source="Lemma A.19, proof",
    evidence="inequality",
    reading="as corrected",
)
def norm_moment_corrected() -> Verdict:
    ratios = []
    for d in (1, 2, 5, 30, 200):
        ratios.append((d**2 + 2 * d) / (8 * (np.exp(0.5) - 1.5) * d * (d + 2)))
        for q in THREE_POINT:
            allowed = 8 * (np.exp(three_point_proxy(q) / 2) - 1.5) * d * (d + 2)
            ratios.append((d / q + d * (d - 1)) / allowed)
    return at_most(max(ratios), 1.0, 0.0, "largest ratio over normal and three-point vectors")
