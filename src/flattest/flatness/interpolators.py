"""The flattest interpolator for fixed features (vardhan2026, Eq. 3): a convex program.

minimize Σ_j ω_j |a_j|^p over Φ a = y, for p in [1, 2]. With b = ω^{1/p} a and Ψ = Φ ω^{−1/p} it is
min ‖b‖_p^p over Ψ b = y. For any λ, Hölder's inequality gives λ·y = (Ψᵀλ)·b ≤ ‖Ψᵀλ‖_q ‖b‖_p,
1/p + 1/q = 1, so that (λ·y / ‖Ψᵀλ‖_q)^p bounds the value from below: every answer is certified by
its dual λ, evaluated on the features as given, whatever produced it.

Multiplying a row of Φ and its label by a number does not change the program, so rows are scaled to
norm 1 first, by powers of 2, which round nothing. Then the rows of Ψ are orthonormalized, Ψ = L Q,
z = L⁻¹ y. That confines the conditioning of the features to one triangular solve.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.linalg import LinAlgError

from flattest.errors import FlattestError
from flattest.evidence import Verdict
from flattest.machine import later
from flattest.problem.checks import finite_array

linalg = later("scipy.linalg")
GAP = 1e-9
RESIDUAL = 1e-10
# Of a sum of products, relative to the norms of its factors.
ROUNDING = 64 * np.finfo(float).eps


@dataclass(frozen=True)
class Interpolator:
    """The minimizer a of Σ ω_j |a_j|^p over Φ a = y, with its dual certificate.

    `dual` is λ with Φᵀλ = p ω |a|^{p−1} sign(a) at the optimum; `bound` the lower bound it proves;
    `gap` = value / bound − 1; `residual` is the larger of ‖Φa − y‖ / ‖y‖ and the worst row's
    |Φa − y|_i / |y_i|, there beyond rounding. `status` is "optimal" (gap ≤ 1e-9 and
    residual ≤ 1e-10), "ill-conditioned" (the best found, not certified), or "infeasible", where a
    is NaN and `dual` is a Farkas vector: Φᵀλ = 0 to rounding while λ·y = 1.
    """

    a: np.ndarray
    dual: np.ndarray
    value: float
    bound: float
    residual: float
    iterations: int
    status: str
    message: str

    @property
    def gap(self) -> float:
        return self.certificate.gap

    @property
    def certificate(self) -> Verdict:
        return Verdict(
            "the dual bound of the flattest interpolator is attained",
            self.value,
            self.bound,
            tolerance=GAP,
            feasible=self.status == "optimal",
        )


def flattest_interpolator(features, y, p, weights=None) -> Interpolator:
    """min Σ_j ω_j |a_j|^p subject to Φ a = y (vardhan2026, Eq. 3).

    `features` is Φ (n, m), `weights` is ω > 0 (m,), by default 1. Solved by Newton's method on the
    dual for p > 1, by an interior point method for p = 1.
    """
    return flattest_interpolators(features, np.asarray(y)[None], p, weights)[0]


def flattest_interpolators(features, y, p, weights=None) -> tuple[Interpolator, ...]:
    """`flattest_interpolator` for each row of y (k, n).

    Features are (n, m), shared (and factored once), or (k, n, m), one matrix per right-hand side
    (per seed); weights are (m,) or (k, m).
    """
    p = _checked_exponent(p)
    y = finite_array("The array of labels", y)
    if y.ndim != 2 or y.shape[1] == 0:
        raise FlattestError(f"Labels must be a non-empty vector per problem, not {y.shape}.")
    stacks, omegas = _checked_features(features, weights, *y.shape)
    if len(stacks) == 1:
        shared = _Program.of(stacks[0], omegas[0], p)
        return tuple(shared.solve(label) for label in y)
    return tuple(
        _Program.of(phi, omega, p).solve(label)
        for phi, omega, label in zip(stacks, omegas, y, strict=True)
    )


def dual_bound(features, y, p, dual, weights=None) -> float:
    """The lower bound (λ·y / ‖Ψᵀλ‖_q)^p that the dual λ proves on Σ ω |a|^p over Φ a = y."""
    p = _checked_exponent(p)
    y = finite_array("The array of labels", y)
    dual = finite_array("The array of dual variables", dual)
    if y.ndim != 1 or len(y) == 0 or dual.shape != y.shape:
        raise FlattestError(f"Labels {y.shape} and dual {dual.shape} must be n numbers each.")
    stacks, omegas = _checked_features(features, weights, 1, len(y))
    rows = _Rows.of(stacks[0], omegas[0], p)
    labels, unit = _in_unit(y, rows.exponents)
    scaled = rows.dual_bound(labels, _in_unit(dual, -rows.exponents)[0])
    return _in_range(scaled * rows.value_unit(unit)) if scaled > 0 else 0.0


@dataclass(frozen=True)
class _Rows:
    """Ψ = Φ ω^{−1/p} as `phi` · `columns` with rows of norm about 1, the `norms`.

    phi_i = 2^{exponents_i} Φ_i and ω^{−1/p} = 2^column · columns, so that nothing is rounded.
    """

    phi: np.ndarray
    columns: np.ndarray
    norms: np.ndarray
    exponents: np.ndarray
    column: int
    p: float

    @classmethod
    def of(cls, phi, omega, p):
        columns, column = _in_unit(omega ** (-1 / p))
        # Once by the largest entry, so that the norm neither overflows nor vanishes.
        exponents = -np.frexp(np.maximum(phi.max(axis=1), -phi.min(axis=1)))[1]
        half = exponents // 2  # 2^exponents itself may be out of range; np.ldexp is slow
        phi = phi * np.exp2(half)[:, None] * np.exp2(exponents - half)[:, None]
        norms = np.sqrt(phi**2 @ columns**2)
        rest = -np.frexp(norms)[1]
        phi *= np.exp2(rest)[:, None]
        return cls(phi, columns, norms * np.exp2(rest), exponents + rest, column, p)

    def value_unit(self, unit: int) -> float:
        """The value of the program for labels 2^unit ỹ over that of phi â = ỹ with `columns`."""
        with np.errstate(over="ignore", under="ignore"):
            return float(np.exp2(self.p * (unit - self.column)))

    def dual_bound(self, y, dual) -> float:
        norm = _norm(np.abs(dual @ self.phi) * self.columns, self.p)
        inner = float(dual @ y)
        return float((inner / norm) ** self.p) if inner > 0 and norm > 0 else 0.0


def _in_range(value: float) -> float:
    """The value, refused where it overflows or vanishes; NaN is a solver's failure."""
    if value < np.finfo(float).tiny or value == np.inf:
        raise FlattestError(
            "The least norm is beyond the range of float64; rescale the labels or the features."
        )
    return value


def _in_unit(x, exponents=0):
    """(x̃, k) with 2^exponents x = 2^k x̃ and the largest |x̃_i| in [½, 1)."""
    mantissa, own = np.frexp(x)
    own = own + exponents
    k = int(own[mantissa != 0].max()) if mantissa.any() else 0
    return np.ldexp(mantissa, own - k), k


@dataclass(frozen=True)
class _Program:
    """The program for one feature matrix: Ψ = L Q on the rows `kept`, the others depending."""

    rows: _Rows
    Q: np.ndarray
    L: np.ndarray
    kept: np.ndarray
    farkas: np.ndarray  # columns v with Ψᵀ v = 0: one for each row that depends on the kept ones

    @classmethod
    def of(cls, phi, omega, p):
        rows = _Rows.of(phi, omega, p)
        return cls(rows, *_orthonormal_rows(rows.phi * rows.columns))

    def solve(self, y) -> Interpolator:
        if not y.any():
            a = np.zeros_like(self.rows.columns)
            return Interpolator(a, np.zeros_like(y), 0.0, 0.0, 0.0, 0, "optimal", "labels are 0")
        labels, unit = _in_unit(y, self.rows.exponents)
        obstacle = self._obstacle(labels, unit)
        if obstacle is not None:
            return obstacle
        z = linalg.solve_triangular(self.L, labels[self.kept], lower=True)
        scale = np.linalg.norm(z)
        if scale == 0:
            # Only a row too close to the kept ones for the factor has a label other than 0.
            return self._concluded(
                np.zeros_like(self.rows.columns), np.zeros_like(y), 0.0, 0.0, 1.0, 0
            )
        b, mu, iterations = _least_norm(self.Q, z / scale, self.rows.p)
        a = scale * b * self.rows.columns
        for _ in range(2):  # the residual of Φ a = y is removed by the least change in b
            miss = (labels - self.rows.phi @ a)[self.kept]
            correction = linalg.solve_triangular(self.L, miss, lower=True) @ self.Q
            a = a + correction * self.rows.columns
        dual = np.zeros_like(labels)
        dual[self.kept] = linalg.solve_triangular(self.L, mu, lower=True, trans="T")
        return self._certified(a, dual, labels, unit, iterations)

    def _obstacle(self, y, unit) -> Interpolator | None:
        """Infeasibility: v with Ψᵀv = 0 and v·y ≠ 0, both to rounding, so that no b reaches y.

        Any interpolator has ‖b‖ ≥ |v·y| / ‖Ψᵀv‖, which must not exceed ‖y‖/‖Ψ‖ tenbillionfold.
        """
        if not self.farkas.size:
            return None
        products, sizes = np.abs(y @ self.farkas), np.abs(y) @ np.abs(self.farkas)
        slacks = np.linalg.norm((self.farkas.T @ self.rows.phi) * self.rows.columns, axis=1)
        size = np.linalg.norm(self.L) / np.linalg.norm(y)
        # Φᵀv = 0 to rounding in every column: other v only had too small a pivot.
        largest = np.abs(self.rows.phi).max(axis=0)
        rounding = ROUNDING * np.abs(self.farkas).sum(axis=0)[:, None] * largest
        dependent = (np.abs(self.farkas.T @ self.rows.phi) <= rounding).all(axis=1)
        inconsistent = (products * size > 1e10 * slacks) & (products > 1e-10 * sizes) & dependent
        if not inconsistent.any():
            return None
        v = self.farkas[:, np.argmax(products * inconsistent)]
        message = (
            f"The labels are inconsistent with the features, which have rank {len(self.kept)} "
            f"for {len(y)} samples: no outer weights interpolate them."
        )
        a = np.full_like(self.rows.columns, np.nan)
        dual = np.ldexp(v / (v @ y), self.rows.exponents - unit)
        return Interpolator(a, dual, np.nan, np.nan, np.nan, 0, "infeasible", message)

    def _certified(self, a, dual, y, unit, iterations) -> Interpolator:
        rows = self.rows
        bound = rows.dual_bound(y, dual) * rows.value_unit(unit)
        value = float(np.sum((np.abs(a) / rows.columns) ** rows.p))
        value = _in_range(value * rows.value_unit(unit))
        residual, rounding = self._residual(a, y), self._rounding(a, y)
        dual = dual * (rows.p * bound / (dual @ y)) if bound > 0 else dual
        dual = np.ldexp(dual, rows.exponents - unit)
        a = np.ldexp(a, unit)
        return self._concluded(a, dual, value, bound, residual, iterations, rounding)

    def _residual(self, a, y) -> float:
        """The larger of ‖Φa − y‖ / ‖y‖ in the units given and the worst row's, rounding left out.

        A row's is relative to its own label, or to 1e-4 of the largest where that is larger.
        """
        miss = np.abs(self.rows.phi @ a - y)
        given, unit = _in_unit(y, -self.rows.exponents)
        with np.errstate(over="ignore"):
            whole = np.linalg.norm(np.ldexp(miss, -self.rows.exponents - unit))
        rounding = ROUNDING * self.rows.norms * np.linalg.norm(a / self.rows.columns)
        by_row = (miss - rounding) / np.maximum(np.abs(y), 1e-4 * np.abs(y).max())
        return float(max(whole / np.linalg.norm(given), by_row.max()))

    def _rounding(self, a, y) -> float:
        """What rounding alone leaves of Φa − y, relative to ‖y‖ in the units given or to the worst
        row's label: ε Σ_j |Φ_ij a_j|."""
        terms = np.finfo(float).eps * (np.abs(self.rows.phi) @ np.abs(a))
        given, unit = _in_unit(y, -self.rows.exponents)
        with np.errstate(over="ignore"):
            whole = np.linalg.norm(np.ldexp(terms, -self.rows.exponents - unit))
        by_row = terms / np.maximum(np.abs(y), 1e-4 * np.abs(y).max())
        return float(max(whole / np.linalg.norm(given), by_row.max()))

    def _concluded(self, a, dual, value, bound, residual, iterations, rounding=0.0) -> Interpolator:
        """Optimal where the dual proves it, else ill-conditioned."""
        found = Interpolator(a, dual, value, bound, residual, iterations, "optimal", "certified")
        if bound > 0 and abs(found.gap) <= GAP and residual <= RESIDUAL:
            return found
        message = (
            f"The features, rows scaled to norm 1, have condition number "
            f"{np.linalg.cond(self.L):.1e} and rank {len(self.kept)} for {len(self.rows.phi)} "
            f"samples at p = {self.rows.p:.10g}: the gap {found.gap:.1e} and residual "
            f"{residual:.1e} reached certify no optimum{self._reason(rounding, residual)}."
        )
        return replace(found, status="ill-conditioned", message=message)

    @staticmethod
    def _reason(rounding: float, residual: float) -> str:
        if not RESIDUAL < residual <= 64 * rounding:
            return ""
        return (
            f", and float64 has no better a: the terms of Φa are so much larger than the labels "
            f"that rounding alone misses them by {rounding:.1e}; scale rows or labels alike"
        )


def _orthonormal_rows(psi):
    """Ψ[kept] = L Q by Cholesky QR, done twice where once is not enough, or by pivoted QR."""
    independent = np.arange(len(psi)), np.zeros((len(psi), 0))
    with suppress(LinAlgError):
        L1 = linalg.cholesky(psi @ psi.T, lower=True)
        Q = linalg.solve_triangular(L1, psi, lower=True)
        gram = Q @ Q.T
        error = np.abs(gram - np.eye(len(psi))).max()
        if error <= 1e-11:
            return Q, L1, *independent
        # Rounding in the first factor must leave rows that the second can still make orthonormal.
        if error <= 0.1:
            L2 = linalg.cholesky(gram, lower=True)
            return linalg.solve_triangular(L2, Q, lower=True), L1 @ L2, *independent
    return _pivoted_rows(psi)


def _pivoted_rows(psi):
    n = len(psi)
    Qt, R, pivots = linalg.qr(psi.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(R))
    rank = int(np.sum(sizes > max(psi.shape) * np.finfo(float).eps * sizes[0]))
    kept, dependent = pivots[:rank], pivots[rank:]
    farkas = np.zeros((n, n - rank))
    farkas[kept] = -linalg.solve_triangular(R[:rank, :rank], R[:rank, rank:])
    # What is rounding in a coefficient would weigh a label that has no part in the dependency.
    farkas[np.abs(farkas) <= ROUNDING * np.abs(farkas).max(axis=0, initial=1)] = 0
    farkas[dependent, np.arange(n - rank)] = 1.0
    return np.ascontiguousarray(Qt[:, :rank].T), R[:rank, :rank].T, kept, _sharpened(psi, farkas)


def _sharpened(psi, farkas):
    """Columns v with whole coefficients where that leaves less of Ψᵀv: for rows that are repeated,
    or sums of others, nothing at all, so that the smallest contradiction in the labels shows."""
    whole = np.round(farkas)
    better = np.linalg.norm(psi.T @ whole, axis=0) <= np.linalg.norm(psi.T @ farkas, axis=0)
    return np.where(better, whole, farkas)


def _norm(u, p):
    """‖u‖_q, 1/p + 1/q = 1, without overflow for p near 1."""
    top = u.max()
    if p == 1 or top == 0:
        return top
    q = p / (p - 1)
    return top * np.sum((u / top) ** q) ** (1 / q)


def _factor(Q, d):
    """Cholesky factor of Q diag(d) Qᵀ with the least ridge that makes it definite, None if none."""
    root = Q * np.sqrt(d)
    M = root @ root.T
    diagonal = np.diag_indices_from(M)
    ridge = 0.0
    for _ in range(16):
        try:
            return linalg.cho_factor(M, lower=True, check_finite=False)
        except LinAlgError:
            increase = max(1e-15 * M[diagonal].max(), 9 * ridge)
            M[diagonal] += increase
            ridge += increase
    return None


def _dual_newton(Q, z, p):
    """Newton on the dual max_μ μ·z − Σ (p−1)(|u_j|/p)^q, u = Qᵀμ, by homotopy from p = 2.

    At p = 2 the dual is z itself; p − 1 is halved until p is reached. The dual is a power
    q = p/(p−1) of u; a start close to the solution keeps Newton in its fast region.
    Stages of the homotopy may end far from their optimum, which is fast. Should that leave Newton
    outside its region of convergence at p itself, they are followed closely.
    """
    iterations = 0
    for stage_tolerance in (0.1, 1e-6):
        mu, excess = z, 1.0
        while excess > p - 1:
            excess = max(excess / 2, p - 1)
            tolerance = 1e-13 if excess == p - 1 else stage_tolerance
            mu, steps = _newton_stage(Q, z, 1 + excess, mu, tolerance)
            iterations += steps
        b = _primal(mu @ Q, p)
        if np.linalg.norm(z - Q @ b) <= 1e-6:
            break
    return b, mu, iterations


def _newton_stage(Q, z, p, mu, tolerance, limit=60):
    """Newton at one p until ‖z − Q b‖ ≤ tolerance or stagnation at rounding level."""
    best, stalled = np.inf, 0
    for step in range(limit):
        mu, u = _ray_optimum(mu, mu @ Q, z, p)
        residual = z - Q @ _primal(u, p)
        size = np.linalg.norm(residual)
        stalled = stalled + 1 if size > 0.5 * best and best < 1e-8 else 0
        if size <= tolerance or stalled == 2:
            return mu, step
        best = min(best, float(size))
        factor = _factor(Q, (np.abs(u) / p) ** ((2 - p) / (p - 1)) / (p * (p - 1)))
        if factor is None:
            return mu, step
        direction = linalg.cho_solve(factor, residual, check_finite=False)
        t = _line_search(mu, u, direction, direction @ Q, z, p)
        if t == 0:
            return mu, step
        mu = mu + t * direction
    return mu, limit


def _primal(u, p):
    """b(u) = sign(u) (|u|/p)^{1/(p−1)}, the maximizer of u b − |b|^p."""
    return np.sign(u) * (np.abs(u) / p) ** (1 / (p - 1))


def _ray_optimum(mu, u, z, p):
    """The dual is homogeneous along the ray t μ: its best t in closed form, in logarithms."""
    q = p / (p - 1)
    log_t = (np.log(mu @ z) - np.log(p) - q * np.log(_norm(np.abs(u), p) / p)) / (q - 1)
    return np.exp(log_t) * mu, np.exp(log_t) * u


def _line_search(mu, u, direction, du, z, p):
    """The first step of 1, ½, ¼, … at which the dual value μ·z / ‖u‖_q does not fall, or 0."""

    def merit(t):
        inner = (mu + t * direction) @ z
        return inner / _norm(np.abs(u + t * du), p) if inner > 0 else 0.0

    floor = merit(0.0) * (1 - 1e-15)
    return next((t for t in 0.5 ** np.arange(30) if merit(t) >= floor), 0.0)


def _interior_point(Q, z, limit, tolerance=1e-11):
    """Mehrotra's predictor–corrector for p = 1, b = X₊ − X₋ with X ≥ 0, slack S = 1 ∓ Qᵀμ ≥ 0."""
    sign = np.array([[1.0], [-1.0]])
    start = z @ Q
    X = np.maximum(sign * start, 0) + np.abs(start).mean()
    mu = 0.5 * z / np.abs(start).max()
    S = 1 - sign * (mu @ Q)
    best, since = (np.inf, start, mu), 0
    for iterations in range(limit):  # noqa: B007
        miss = z - Q @ (X[0] - X[1])
        b, u = X[0] - X[1] + miss @ Q, mu @ Q
        inner = mu @ z
        gap = np.abs(b).sum() * max(1, np.abs(u).max()) / inner - 1 if inner > 0 else np.inf
        since = 0 if gap < 0.5 * best[0] else since + 1
        best = min(best, (gap, b, mu), key=lambda entry: entry[0])
        if gap <= tolerance or since == 10:
            break
        factor = _factor(Q, (X / S).sum(axis=0))
        if factor is None:
            break
        X, mu, S = _mehrotra_step(Q, X, mu, S, sign, miss, factor)
    return best[1], best[2], iterations


def _mehrotra_step(Q, X, mu, S, sign, miss, factor):
    """A predictor and a corrector step, with the factor of Q diag(Σ X/S) Qᵀ."""
    tau = np.mean(X * S)

    def direction(target):
        """X dS + S dX = target, dS = ∓Qᵀ dμ, Q(dX₊ − dX₋) = miss."""
        fixed = target / S
        dmu = linalg.cho_solve(factor, miss - Q @ (sign * fixed).sum(axis=0), check_finite=False)
        du = sign * (dmu @ Q)
        return dmu, fixed + X / S * du, -du

    _, dX, dS = direction(-X * S)
    reached = np.mean((X + _longest(X, dX) * dX) * (S + _longest(S, dS) * dS))
    dmu, dX, dS = direction((reached / tau) ** 3 * tau - X * S - dX * dS)
    primal, dual = min(1, 0.995 * _longest(X, dX)), min(1, 0.995 * _longest(S, dS))
    return X + primal * dX, mu + dual * dmu, S + dual * dS


def _longest(V, dV):
    """The longest step t ≤ 1/0.995 that keeps V + t dV ≥ 0."""
    shrinking = dV < 0
    return np.min(-V[shrinking] / dV[shrinking], initial=1 / 0.995)


def _least_norm(Q, z, p):
    """(b, μ, iterations) of min ‖b‖_p^p over Q b = z, where ‖z‖ = 1.

    Closed form at p = 2, dual Newton for p > 1, the linear program for p = 1.
    Below p − 1 = 1e-6 rounding in the dual's power 1/(p−1) keeps Newton from a certificate; there
    the optimum is the linear program's vertex.
    """
    if p == 2:
        return z @ Q, z, 0
    if p - 1 >= 1e-6:
        return _dual_newton(Q, z, p)
    b, mu, iterations = linear_program(Q, z)
    return (b, mu, iterations) if p == 1 else (*_at_vertex(Q, z, p, b), iterations)


def linear_program(Q, z, limit=80):
    """p = 1 by at most `limit` steps of the interior point method, or by HiGHS where they fail."""
    b, mu, iterations = _interior_point(Q, z, limit)
    if np.abs(b).sum() * np.abs(mu @ Q).max() <= (mu @ z) * (1 + GAP):
        return b, mu, iterations
    from scipy.optimize import linprog  # slow to import, and rarely needed

    m = Q.shape[1]
    found = linprog(np.ones(2 * m), A_eq=np.hstack([Q, -Q]), b_eq=z, method="highs")
    if found.x is None:
        return np.full(m, np.nan), z, 0
    return found.x[:m] - found.x[m:], found.eqlin.marginals, int(found.nit)


def _at_vertex(Q, z, p, b):
    """The pair at p → 1 with the support S of the linear program's vertex b: the n largest |b_j|.

    Q_S b_S = z fixes b, and stationarity on S fixes μ. Off S the optimum at p has the entries
    (|u_j|/p)^{1/(p−1)}, which are 0 to rounding unless |u_j| is about 1: then no certificate holds.
    """
    support = np.argsort(-np.abs(b))[: len(z)]
    vertex = np.zeros_like(b)
    vertex[support] = np.linalg.lstsq(Q[:, support], z)[0]
    slope = p * np.sign(vertex) * np.abs(vertex) ** (p - 1)
    return vertex, np.linalg.lstsq(Q[:, support].T, slope[support])[0]


def _checked_exponent(p) -> float:
    if not isinstance(p, int | float | np.number) or not 1 <= p <= 2:
        raise FlattestError(f"The exponent p must lie in [1, 2], not {p}: p = 2c/(c+1) for c ≥ 1.")
    return float(p)


def _checked_features(features, weights, k, n):
    """Φ as (1 or k, n, m) and ω as (as many, m), checked."""
    features = finite_array("The array of features", features)
    if features.ndim not in (2, 3) or features.shape[-2] != n:
        raise FlattestError(f"Features {features.shape} do not match {n} labels: Φ is (n, m).")
    m = features.shape[-1]
    if n > m:
        raise FlattestError(f"{n} samples exceed {m} neurons: interpolation needs m ≥ n.")
    weights = np.ones(m) if weights is None else finite_array("The array of weights", weights)
    if weights.ndim not in (1, 2) or weights.shape[-1] != m or (weights <= 0).any():
        raise FlattestError(f"Weights must be {m} positive numbers, one per neuron.")
    count = 1 if features.ndim == 2 and weights.ndim == 1 else k
    try:
        features = np.broadcast_to(features, (count, n, m))
        weights = np.broadcast_to(weights, (count, m))
    except ValueError as error:
        raise FlattestError(
            f"Features and weights must be shared or one per row of y ({k})."
        ) from error
    silent = np.argwhere(~features.any(axis=1))
    if len(silent):
        raise FlattestError(
            f"Feature column {silent[0, 1]} is zero: that neuron never fires on the data; drop it."
        )
    return features, weights
