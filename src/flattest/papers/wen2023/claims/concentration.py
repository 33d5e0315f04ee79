"""Appendix A.6.1: concentration inequalities, with exact laws where there are any.

The families of σ-subgaussian variables are the normal, the Rademacher, and symmetric laws of
variance 1 on finitely many atoms; the three-point law ±a with mass q, 0 else, is one of them. σ² is
the least variance proxy, so that nothing heavier is allowed. Vectors have independent coordinates.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, factorial2, logsumexp, softmax
from scipy.stats import beta, binom, chi, chi2

from flattest.evidence import Verdict, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, provided, worst
from flattest.problem.randomness import generator


class Law(NamedTuple):
    """X = ±a_i with mass p_i each, symmetric, of variance 1."""

    atoms: np.ndarray
    masses: np.ndarray

    @property
    def proxy(self) -> float:
        """σ² = sup_λ 2 log E e^{λX}/λ², the least for which X is σ-subgaussian."""
        log_masses = np.log(np.maximum(self.masses, 1e-300))

        def twice_log_mgf(log_lambda):
            x = np.exp(log_lambda)[..., None] * self.atoms
            # log cosh x, without overflow.
            log_cosh = x + np.log1p(np.exp(-2 * x)) - np.log(2)
            return 2 * logsumexp(log_masses + log_cosh, axis=-1) / np.exp(2 * log_lambda)

        # λ from where the largest atom begins to matter to where the smallest has long done so.
        ends = np.log(self.atoms[self.atoms > 0])
        grid = np.linspace(-4 - ends.max(), 4 - ends.min(), 800)
        best, width = grid[np.argmax(twice_log_mgf(grid))], grid[1] - grid[0]
        found = minimize_scalar(
            lambda at: -twice_log_mgf(np.asarray(at)),
            bounds=(best - width, best + width),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return max(1.0, -float(found.fun))

    def moment(self, power: int) -> float:
        return float(self.masses @ self.atoms**power)


def three_point(q: float) -> Law:
    """±1/√q with mass q in all, else 0."""
    return Law(np.array([0.0, q**-0.5]), np.array([1 - q, q]))


def three_point_mass(z: float) -> float:
    """Any real as the mass q ≥ 1e-15 of a three-point law; NaN where it is 1 but for rounding."""
    q = max(float(expit(z)), 1e-15)
    return q if q < 1 - 1e-9 else float("nan")


# ±1/√2 with mass 8/9, ±√5 with mass 1/9: see `lemma_a19_as_printed`.
FOUR_POINT = Law(np.sqrt([0.5, 5.0]), np.array([8.0, 1.0]) / 9)


def symmetric_law(z: np.ndarray) -> Law:
    """Of logarithms of masses and of atoms, the first atom at 0."""
    count = (len(z) + 1) // 2
    masses = softmax(z[:count])
    atoms = np.concatenate([[0.0], np.exp(np.clip(z[count:], -20, 20))])
    size = np.sqrt(masses @ atoms**2)
    return Law(atoms / size, masses)


def laws(measure: Callable[[Law], float]) -> Iterator[Family]:
    """Symmetric laws on three, five and nine points; `FOUR_POINT` is as good as of the second."""
    near = np.log([1e-12, 8 / 9, 1 / 9, 0.5**0.5 - 1e-9, 5**0.5])
    starts: dict[int, tuple[np.ndarray, ...]] = {1: (), 2: (near,), 4: ()}
    for atoms, begin in starts.items():
        yield Family(
            f"symmetric laws on {2 * atoms + 1} points",
            2 * atoms + 1,
            lambda z: measure(symmetric_law(z)),
            begin,
        )


def _log_mgf_of_square(law: Law, lam: np.ndarray) -> np.ndarray:
    """log E exp(λ(X² − 1))."""
    exponents = lam[:, None] * law.atoms**2
    return logsumexp(exponents, axis=1, b=law.masses) - lam


@universal(
    "wen2023/lemma-a.14",
    "If X is σ-subgaussian, X² is (4√2σ², 4σ²)-subexponential.",
    source="Lemma A.14 (Honorio & Jaakkola 2014)",
    refuted_by="a law and λ with log E e^{λ(X² − E X²)} > 16σ⁴λ², |λ| ≤ 1/(4σ²)",
    largest=1.0,
    evaluations=300,
    evidence="proof",
)
def lemma_a14() -> Plan:
    """The largest log-mgf of X² over the allowed one; of the normal law in closed form.

    Proof: let Y = X², μ = E Y. From Pr(|X| > x) ≤ 2e^{−x²/2σ²}, E Y^k ≤ 2 k! (2σ²)^k. For k ≥ 2,
    ±E(Y − μ)^k ≤ E Y^k: for even k since y^k − (y − 1)^k ≥ y − 1 for y ≥ 0, with y = Y/μ; for odd k
    since E(Y − μ)^k ≤ E Y^k as Y ≥ 0, and E(μ − Y)^k ≤ μ^k ≤ E Y^k by Jensen. So
    E e^{λ(Y − μ)} ≤ 1 + Σ_{k ≥ 2} 2 (2σ²|λ|)^k = 1 + 8σ⁴λ²/(1 − 2σ²|λ|) ≤ 1 + 16σ⁴λ² for
    |λ| ≤ 1/(4σ²).
    """

    def share(log_mgf: Callable[[np.ndarray], np.ndarray], proxy: float) -> float:
        lam = np.concatenate([np.linspace(-1, -1e-3, 200), np.linspace(1e-3, 1, 200)]) / (4 * proxy)
        return float((log_mgf(lam) / (16 * proxy**2 * lam**2)).max())

    normal = share(lambda lam: -lam - 0.5 * np.log1p(-2 * lam), 1.0)
    yield at_most(normal, 1.0, 0.0, "largest log-mgf over the allowed one, normal law")
    yield from laws(lambda law: share(lambda lam: _log_mgf_of_square(law, lam), law.proxy))


@universal(
    "wen2023/lemma-a.15",
    "Hoeffding: Pr(|mean of n σ-subgaussian variables| ≥ t) ≤ 2 exp(−n t² C), here C = 1/(2σ²).",
    source="Lemma A.15",
    refuted_by="a law, n and t with a larger probability",
    largest=1.0,
    evaluations=200,
    evidence="proof",
)
def lemma_a15() -> Plan:
    """Proof: each tail is at most E e^{λ(mean − t)} ≤ e^{λ²σ²/2n − λt} = e^{−nt²/2σ²} at λ = nt/σ².

    Exact tails: binomial ones of Rademacher variables, and of three-point laws.
    """
    for n in (1, 2, 5, 10, 50, 200, 1000):
        k = np.arange((n + 1) // 2, n + 1)
        t = 2 * k / n - 1
        tail = np.where(t > 0, 2 * binom.sf(k - 1, n, 0.5), 1.0)
        share = (tail / (2 * np.exp(-n * t**2 / 2))).max()
        yield at_most(share, 1.0, 0.0, "Rademacher variables, n ≤ 1000")

    def three_points(z: np.ndarray) -> float:
        q, n = float(expit(z[0])), round(float(np.clip(np.exp(z[1]), 1, 60)))
        if not 1e-4 < q < 1 - 1e-9:
            return np.nan
        law = three_point_sum(q, n)
        tail = np.minimum(2 * np.cumsum(law[::-1])[:n], 1)
        t = np.arange(n, 0, -1) / (n * np.sqrt(q))
        return float((tail / (2 * np.exp(-n * t**2 / (2 * three_point(q).proxy)))).max())

    yield Family("three-point laws, n ≤ 60", 2, three_points)


def three_point_sum(q: float, n: int) -> np.ndarray:
    """The law of √q times the sum of n variables ±1/√q with mass q in all, on −n … n."""
    law = np.ones(1)
    for _ in range(n):
        law = np.convolve(law, [q / 2, 1 - q, q / 2])
    return law


@universal(
    "wen2023/lemma-a.16",
    "Bernstein: Pr(|mean − expectation| ≥ t) ≤ 2 exp(−n min(t, t²) C) for (σ, α)-subexponential "
    "variables, here C = min(1/(2σ²), 1/(2α)).",
    source="Lemma A.16 (Rinaldo 2019)",
    refuted_by="a law, n and t with a larger probability",
    largest=1.0,
    evaluations=300,
    evidence="proof",
)
def lemma_a16() -> Plan:
    """Squares of σ-subgaussian variables, (4√2σ², 4σ²)-subexponential by Lemma A.14, exact tails:
    of normal variables, and of three-point laws, whose squares are Bernoulli variables over q.

    Proof: by Chernoff's bound each tail is at most e^{n(λ²σ²/2 − λt)} for 0 ≤ λ ≤ 1/α. At
    λ = t/σ², where t ≤ σ²/α, this is e^{−nt²/2σ²}; else at λ = 1/α it is at most e^{−nt/2α}.
    """

    def bound(n, t, proxy):
        C = min(1 / (64 * proxy**2), 1 / (8 * proxy))
        return 2 * np.exp(-n * np.minimum(t, t**2) * C)

    def bernoulli(z: np.ndarray) -> float:
        q, n = float(expit(z[0])), round(float(np.clip(np.exp(z[1]), 1, 1e4)))
        if not 1e-4 < q < 1 - 1e-9:
            return np.nan
        t = np.abs(np.arange(n + 1) / (q * n) - 1)
        slack = q * n * t * (1 - 1e-12)
        tail = binom.sf(np.ceil(q * n + slack) - 1, n, q) + binom.cdf(np.floor(q * n - slack), n, q)
        return float((np.minimum(tail, 1) / bound(n, t, three_point(q).proxy)).max())

    t = np.geomspace(1e-3, 30, 400)
    for n in (1, 2, 5, 20, 100, 1000):
        tail = chi2.sf(n * (1 + t), n) + chi2.cdf(n * (1 - np.minimum(t, 1)), n)
        yield at_most((tail / bound(n, t, 1.0)).max(), 1.0, 0.0, "squares of normal variables")
    yield Family("squares of three-point laws, n ≤ 10⁴", 2, bernoulli)


@universal(
    "wen2023/lemma-a.17",
    "Pr(‖x‖² ≥ 32σ²d + 8σ²t) ≤ e^{−t} and E‖x‖⁴ ≤ 2048σ⁴d² for σ-subgaussian vectors.",
    source="Lemma A.17, Equation (20)",
    refuted_by="a law, d and t with a larger probability or moment",
    largest=1.0,
    evaluations=300,
    evidence="proof",
)
def lemma_a17() -> Plan:
    """The ratio of the sides.

    Proof: E e^{λ‖x‖²} ≤ (1 − 2λσ²)^{−d/2} for every σ-subgaussian x (see `uniform.chebyshev`), so
    that by Markov with λ = 1/(8σ²) the tail is at most e^{−t} (e^{−4} √(4/3))^d. By integration of
    the tail E‖x‖⁴ ≤ σ⁴((32d)² + ∫ 16 (32d + 8t) e^{−t} dt) = σ⁴(1024d² + 512d + 128).
    """
    t = np.linspace(0, 200, 401)
    for d in (1, 2, 5, 30, 200):
        markov = np.exp(-32 * d / 8) * (1 - 2 / 8) ** (-d / 2)
        yield at_most(markov, 1.0, 0.0, "the tail by Markov")
        moment = (1024 * d**2 + 512 * d + 128) / (2048 * d**2)
        yield at_most(moment, 1.0, 0.0, "the moment by the tail")
        normal = (chi2.sf(32 * d + 8 * t, d) * np.exp(t)).max()
        yield at_most(max(normal, (d**2 + 2 * d) / (2048 * d**2)), 1.0, 0.0, "normal vectors")

    def three_points(z: np.ndarray) -> float:
        q, d = float(expit(z[0])), round(float(np.clip(np.exp(z[1]), 1, 1e4)))
        if not 1e-4 < q < 1 - 1e-9:
            return np.nan
        proxy = three_point(q).proxy
        tail = binom.sf(np.ceil((32 * d + 8 * t) * proxy * q) - 1, d, q)
        return max(
            float((tail * np.exp(t)).max()), _fourth(three_point(q), d) / (2048 * proxy**2 * d**2)
        )

    yield Family("three-point laws, d ≤ 10⁴", 2, three_points)


def _fourth(law: Law, d: int) -> float:
    """E‖x‖⁴ of d independent coordinates of variance 1."""
    return d * law.moment(4) + d * (d - 1)


@universal(
    "wen2023/lemma-a.18",
    "There is c = O(σ√(d log(dn))) with E‖x‖² 1(‖x‖ > c) ≤ dσ²/n.",
    source="Lemma A.18",
    refuted_by="d and n at which the c of (20) is a larger multiple of √(d log(dn))",
    largest=1.0,
    tolerance=1e-9,
    evaluations=300,
    evidence="proof",
)
def lemma_a18() -> Plan:
    """c²/(σ² d log(dn)), c by (20), over that of d = 1, n = 2: for all sizes, also real ones.

    Proof: with c² = σ²(32d + 8t), (20) gives E‖x‖² 1(‖x‖ > c) ≤ (c² + 8σ²) e^{−t}, by integration
    of the tail. It is σ²d/n at the t with e^t = (32 + 8(t + 1)/d) n ≤ 40n(1 + t) ≤ 80n e^{t/2}: so
    t ≤ 2 log(80n), and c² = O(σ²(d + log n)).
    """
    largest = _square_of_c(1, 2) / np.log(2)

    def share(z: np.ndarray) -> float:
        d, n = np.exp(np.minimum(np.abs(z), 40)) * [1, 2]
        return float(_square_of_c(d, n) / (d * np.log(d * n)) / largest)

    sizes = [(d, n) for d in (1, 2, 5, 10, 30, 100, 1000) for n in (2, 3, 5, 10, 100, 1e4, 1e8)]
    # E‖x‖² 1(‖x‖ > c) = d Pr(χ²_{d+2} > c²) for normal x.
    normal = max(n * chi2.sf(_square_of_c(d, n), d + 2) for d, n in sizes)
    yield at_most(normal, 1.0, 0.0, "normal vectors, largest n E‖x‖² 1(‖x‖ > c)/(dσ²)")
    yield Family("d ≥ 1, n ≥ 2", 2, share)


def normal_tails(allowed: Callable[[float], float]) -> Iterator[Verdict]:
    """Normal x of variance σ², at the c = σk that is least for σ = 1: k² = χ²_{d+2}'s quantile.

    E‖x‖² 1(‖x‖ > σk) = σ²d Pr(χ²_{d+2} > k²), by integration of r² against the density of ‖x‖, so
    no k that depends on d and n alone keeps it below d/n for all σ.
    """
    d, n = 5, 100
    k = chi2.isf(1 / n, d + 2) ** 0.5
    for sigma in (1.0, 3.0):
        tail = sigma**2 * chi.expect(np.square, args=(d,), lb=k)
        yield equal(tail, allowed(sigma) * d / n, 1e-6, "d = 5, n = 100, σ = 1 and 3")


@claim(
    "wen2023/lemma-a.18/sigma-as-printed",
    "Hence there is c = O(σ√(d log(dn))) with E‖x‖² 1(‖x‖ > c) ≤ d/n.",
    source="Lemma A.18, last line of the proof",
    evidence="certificate",
    reading="as printed",
    of=worst,
)
def sigma_as_printed() -> Verdicts:
    yield from normal_tails(lambda sigma: 1.0)


@universal(
    "wen2023/lemma-a.18/sigma-corrected",
    "Hence there is c = O(σ√(d log(dn))) with E‖x‖² 1(‖x‖ > c) ≤ σ²d/n.",
    source="Lemma A.18, last line of the proof",
    refuted_by="a law of proxy σ², d and n with a larger tail at the c of (20)",
    least=1.0,
    evidence="proof",
    reading="as corrected",
    evaluations=300,
)
def sigma_corrected(factor=1.0) -> Plan:
    """log(E‖x‖² 1(‖x‖ > c)/(σ²d)) over log(1/n), c by (20), for normal and for three-point
    coordinates, exactly. Proof: that of `lemma_a18`."""
    yield from normal_tails(lambda sigma: factor * sigma**2)

    def normal(z: np.ndarray) -> float:
        d, n = np.exp(np.minimum(np.abs(z), 12)) * [1, 2]
        return float(-chi2.logsf(_square_of_c(d, n), d + 2) / np.log(n))

    def three_points(z: np.ndarray) -> float:
        q, sizes = three_point_mass(z[0]), np.exp(np.minimum(np.abs(z[1:]), 9))
        d, n = 1 + round(sizes[0]), 1 + round(sizes[1])
        if np.isnan(q):
            return q
        # ‖x‖² = K/q, K ~ Bin(d, q), and E K 1(K ≥ k) = dq Pr(Bin(d − 1, q) ≥ k − 1).
        proxy = three_point(q).proxy
        k = np.floor(_square_of_c(d, n) * proxy * q) + 1
        return float((np.log(proxy) - binom.logsf(k - 2, d - 1, q)) / np.log(n))

    yield Family("normal x, any d and n", 2, normal)
    yield Family("three-point laws, d, n ≤ 10⁴", 3, three_points)


def _square_of_c(d: float, n: float) -> float:
    """c²/σ² that (20) gives: 32d + 8t with E‖x‖² 1(‖x‖ > c) ≤ (c² + 8)e^{−t} = d/n."""
    t = brentq(lambda t: np.log((32 * d + 8 * t + 8) * n / d) - t, 0, 100)
    return 32 * d + 8 * t


def norm_probability(q: float, d: int) -> float:
    """Pr(‖x‖² > d/2) for d independent three-point coordinates: Pr(Bin(d, q) > qd/2)."""
    return float(binom.sf(np.floor(q * d / 2 + 1e-12), d, q))


def norm_families(constant: Callable[[int], float]) -> Iterator[Family]:
    """Pr(‖x‖² > d/2) (e^{σ²/2} − 3/2)/constant(d): three-point laws in d ≤ 10⁴ dimensions, and
    symmetric laws in one."""

    def share(law: Law, d: int, probability: float) -> float:
        return probability * (np.exp(min(law.proxy, 1e3) / 2) - 1.5) / constant(d)

    def three_points(z: np.ndarray) -> float:
        q, d = float(expit(z[0])), round(float(np.clip(np.exp(z[1]), 1, 1e4)))
        if not 1e-4 < q < 1 - 1e-9:
            return np.nan
        return share(three_point(q), d, norm_probability(q, d))

    yield Family("three-point laws, d ≤ 10⁴", 2, three_points)
    yield from laws(lambda law: share(law, 1, float(law.masses[law.atoms**2 > 0.5].sum())))


@universal(
    "wen2023/lemma-a.19/constant-as-printed",
    "Pr(‖x‖² > d/2) ≥ 1/(20(e^{σ²/2} − 3/2)) for σ-subgaussian x with covariance I_d.",
    source="Lemma A.19, last line of the proof",
    reading="as printed",
    refuted_by="a law with a smaller probability",
    least=1.0,
    evaluations=240,
)
def lemma_a19_as_printed() -> Plan:
    """The probability over the bound.

    In d = 1 let X be ±1/√2 with mass 8/9 and ±√5 with mass 1/9. Its moments
    E X^{2k} = (8/9) 2^{−k} + 5^k/9 are 1, 3, 14, … and at most those of the normal law, (2k − 1)!!:
    from one k ≥ 2 to the next they grow by a factor < 5, the normal law's by 2k + 1 ≥ 5. So
    E e^{λX} ≤ e^{λ²/2}, σ = 1, and Pr(X² > 1/2) = 1/9, a third of the printed bound 0.336.
    """
    moments = [FOUR_POINT.moment(2 * k) / factorial2(2 * k - 1) for k in (1, 2)]
    yield equal(min(moments), 1.0, 1e-12, "second and fourth moments of the four-point law")
    yield equal(max(moments), 1.0, 1e-12, "second and fourth moments of the four-point law")
    yield from norm_families(lambda d: 1 / 20)


@universal(
    "wen2023/lemma-a.19/constant-corrected",
    "Pr(‖x‖² > d/2) ≥ d/(32(d + 2)(e^{σ²/2} − 3/2)), at least 1/(96(e^{σ²/2} − 3/2)), for "
    "σ-subgaussian x with covariance I_d.",
    source="Lemma A.19",
    reading="as corrected",
    refuted_by="a law with a smaller probability",
    evidence="proof",
    least=1.0,
    evaluations=240,
)
def lemma_a19_corrected() -> Plan:
    """The probability over the bound.

    Proof: the printed steps with the two constants put right. For v uniform on the sphere, E v·x
    to an odd power is 0 and e^t ≥ 1 + … + t⁵/120, so with E v[1]² = 1/d, E v[1]⁴ = 3/(d(d + 2)) and
    E‖x‖² = d, (22) gives 3/2 + E‖x‖⁴/(8d(d + 2)) ≤ e^{σ²/2}. And E‖x‖² 1(‖x‖² > d/2) ≥ d/2, so
    that d²/4 ≤ E‖x‖⁴ Pr(‖x‖² > d/2) by Cauchy–Schwarz.
    """
    yield from norm_families(lambda d: d / (32 * (d + 2)))


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


@universal(
    "wen2023/lemma-a.19/norm-moment-corrected",
    "E‖x‖⁴ ≤ 8 (e^{σ²/2} − 3/2) d(d+2).",
    source="Lemma A.19, proof",
    reading="as corrected",
    refuted_by="a law and d with a larger fourth moment",
    evidence="proof",
    largest=1.0,
    evaluations=300,
)
def norm_moment_corrected() -> Plan:
    """The moment over the bound, the largest over d of the values that matter; the proof is in
    `lemma_a19_corrected`."""

    def share(law: Law) -> float:
        allowed = 8 * (np.exp(min(law.proxy, 1e3) / 2) - 1.5)
        return max(_fourth(law, d) / (allowed * d * (d + 2)) for d in (1, 2, 5, 30, 200))

    normal = 1 / (8 * (np.exp(0.5) - 1.5))
    yield at_most(normal, 1.0, 0.0, "normal vectors")
    yield from laws(share)
