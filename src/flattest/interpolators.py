"""The flattest interpolator for fixed features (vardhan2026, Eq. 3): a convex program.

minimize Σ_j ω_j |a_j|^p over Φ a = y, for p in [1, 2]. With b = ω^{1/p} a and Ψ = Φ ω^{−1/p} it is
min ‖b‖_p^p over Ψ b = y. For any λ, Hölder's inequality gives λ·y = (Ψᵀλ)·b ≤ ‖Ψᵀλ‖_q ‖b‖_p,
1/p + 1/q = 1, so that (λ·y / ‖Ψᵀλ‖_q)^p bounds the value from below: every answer is certified by
its dual λ, evaluated on the features as given, whatever solver produced it.

The rows of Ψ are orthonormalized first, Ψ = L Q, z = L⁻¹ y. That confines the conditioning of the
features to one triangular solve.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, qr, solve_triangular

from flattest.certificate import Certificate
from flattest.errors import FlattestError, unknown

GAP = 1e-9
RESIDUAL = 1e-10

# A solver maps (Q, z, p), ‖z‖ = 1, to (b, mu, iterations) for min ‖b‖_p^p over Q b = z.
Solver = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray, int]]


@dataclass(frozen=True)
class Interpolator:
    """The minimizer a of Σ ω_j |a_j|^p over Φ a = y, with its dual certificate.

    `dual` is λ with Φᵀλ = p ω |a|^{p−1} sign(a) at the optimum; `bound` the lower bound it proves;
    `gap` = value / bound − 1; `residual` = ‖Φa − y‖ / ‖y‖. `status` is "optimal" (gap ≤ 1e-9 and
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
    def certificate(self) -> Certificate:
        claim = "the dual bound of the flattest interpolator is attained"
        return Certificate(claim, self.value, self.bound, GAP)


def flattest_interpolator(features, y, p, weights=None, solver="auto") -> Interpolator:
    """min Σ_j ω_j |a_j|^p subject to Φ a = y (vardhan2026, Eq. 3).

    `features` is Φ (n, m), `weights` is ω > 0 (m,), by default 1. `solver` is "auto" (dual Newton
    for p > 1, interior point for p = 1) or "cvxpy" (CVXPY with Clarabel, the cross-check).
    """
    return flattest_interpolators(features, np.asarray(y)[None], p, weights, solver)[0]


def flattest_interpolators(features, y, p, weights=None, solver="auto") -> tuple[Interpolator, ...]:
    """`flattest_interpolator` for each row of y (k, n).

    Features are (n, m), shared (and factored once), or (k, n, m), one matrix per right-hand side
    (per seed); weights are (m,) or (k, m).
    """
    p = _checked_exponent(p)
    solve = _solver(solver)
    y = _finite(y, "labels")
    if y.ndim != 2 or y.shape[1] == 0:
        raise FlattestError(f"Labels must be a non-empty vector per problem, not {y.shape}.")
    stacks, omegas = _checked_features(features, weights, *y.shape)
    if len(stacks) == 1:
        shared = _Problem.of(stacks[0], omegas[0], p)
        return tuple(shared.solve(label, solve) for label in y)
    return tuple(
        _Problem.of(phi, omega, p).solve(label, solve)
        for phi, omega, label in zip(stacks, omegas, y, strict=True)
    )


def dual_bound(features, y, p, dual, weights=None) -> float:
    """The lower bound (λ·y / ‖Ψᵀλ‖_q)^p that the dual λ proves on Σ ω |a|^p over Φ a = y."""
    features = np.asarray(features)
    omega = np.ones(features.shape[1]) if weights is None else np.asarray(weights)
    u = np.abs(dual @ features) * omega ** (-1 / p)
    norm = _norm(u, p)
    inner = float(dual @ y)
    return (inner / norm) ** p if inner > 0 and norm > 0 else 0.0


@dataclass(frozen=True)
class _Problem:
    """The program for one feature matrix: Ψ = L Q on the rows `kept`, the others depending."""

    phi: np.ndarray
    omega: np.ndarray
    p: float
    Q: np.ndarray
    L: np.ndarray
    kept: np.ndarray
    farkas: np.ndarray  # columns v with Ψᵀ v = 0: one for each row that depends on the kept ones

    @classmethod
    def of(cls, phi, omega, p):
        return cls(phi, omega, p, *_orthonormal_rows(phi * omega ** (-1 / p)))

    def solve(self, y, solver: Solver) -> Interpolator:
        if not y.any():
            a = np.zeros_like(self.omega)
            return Interpolator(a, np.zeros_like(y), 0.0, 0.0, 0.0, 0, "optimal", "labels are 0")
        obstacle = self._obstacle(y)
        if obstacle is not None:
            return obstacle
        z = solve_triangular(self.L, y[self.kept], lower=True)
        scale = np.linalg.norm(z)
        b, mu, iterations = solver(self.Q, z / scale, self.p)
        a = self._refined(scale * b * self.omega ** (-1 / self.p), y)
        dual = np.zeros_like(y)
        dual[self.kept] = solve_triangular(self.L, mu, lower=True, trans="T")
        return self._certified(a, dual, y, iterations)

    def _obstacle(self, y) -> Interpolator | None:
        """Infeasibility: v with Ψᵀv = 0 and v·y ≠ 0, both to rounding, so that no b reaches y.

        Any interpolator has ‖b‖ ≥ |v·y| / ‖Ψᵀv‖, which must not exceed ‖y‖/‖Ψ‖ tenbillionfold.
        """
        products = np.abs(y @ self.farkas)
        slacks = np.linalg.norm((self.farkas.T @ self.phi) * self.omega ** (-1 / self.p), axis=1)
        size = np.linalg.norm(self.L) / np.linalg.norm(y)
        inconsistent = (products * size > 1e10 * slacks) & (
            products > 1e-10 * np.linalg.norm(self.farkas, axis=0) * np.linalg.norm(y)
        )
        if not inconsistent.any():
            return None
        v = self.farkas[:, np.argmax(products * inconsistent)]
        message = (
            f"The labels are inconsistent with the features, which have rank {len(self.kept)} "
            f"for {len(y)} samples: no outer weights interpolate them."
        )
        a = np.full_like(self.omega, np.nan)
        nan = float("nan")
        return Interpolator(a, v / (v @ y), nan, nan, nan, 0, "infeasible", message)

    def _refined(self, a, y):
        """a with the residual of Φ a = y removed, twice, by the least change in b."""
        for _ in range(2):
            miss = (y - self.phi @ a)[self.kept]
            correction = solve_triangular(self.L, miss, lower=True) @ self.Q
            a = a + correction * self.omega ** (-1 / self.p)
        return a

    def _certified(self, a, dual, y, iterations) -> Interpolator:
        value = float(self.omega @ np.abs(a) ** self.p)
        bound = dual_bound(self.phi, y, self.p, dual, self.omega)
        residual = float(np.linalg.norm(self.phi @ a - y) / np.linalg.norm(y))
        dual = dual * (self.p * bound / (dual @ y)) if bound > 0 else dual
        found = Interpolator(a, dual, value, bound, residual, iterations, "optimal", "certified")
        if bound > 0 and abs(found.gap) <= GAP and residual <= RESIDUAL:
            return found
        size = np.linalg.cond(self.L)
        message = (
            f"The features have condition number {size:.1e} at p = {self.p:.10g}: the gap "
            f"{found.gap:.1e} and residual {residual:.1e} reached certify no optimum."
        )
        return replace(found, status="ill-conditioned", message=message)


def _orthonormal_rows(psi):
    """Ψ[kept] = L Q by Cholesky QR, done twice where once is not enough, or by pivoted QR."""
    n = len(psi)
    every, none = np.arange(n), np.zeros((n, 0))
    try:
        L1 = cholesky(psi @ psi.T, lower=True)
        Q = solve_triangular(L1, psi, lower=True)
        gram = Q @ Q.T
        error = np.abs(gram - np.eye(n)).max()
        if error <= 1e-11:
            return Q, L1, every, none
        L2 = cholesky(gram, lower=True)
    except LinAlgError:
        return _pivoted_rows(psi)
    # Rounding in the first factor must leave rows that the second can still make orthonormal.
    if error > 0.1:
        return _pivoted_rows(psi)
    return solve_triangular(L2, Q, lower=True), L1 @ L2, every, none


def _pivoted_rows(psi):
    n = len(psi)
    Qt, R, pivots = qr(psi.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(R))
    rank = int(np.sum(sizes > max(psi.shape) * np.finfo(float).eps * sizes[0]))
    kept, dependent = pivots[:rank], pivots[rank:]
    farkas = np.zeros((n, n - rank))
    farkas[kept] = -solve_triangular(R[:rank, :rank], R[:rank, rank:])
    farkas[dependent, np.arange(n - rank)] = 1.0
    return np.ascontiguousarray(Qt[:, :rank].T), R[:rank, :rank].T, kept, farkas


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
            return cho_factor(M, lower=True, check_finite=False)
        except LinAlgError:
            increase = max(1e-15 * M[diagonal].max(), 9 * ridge)
            M[diagonal] += increase
            ridge += increase
    return None


def _dual_newton(Q, z, p):
    """Newton on the dual max_μ μ·z − Σ (p−1)(|u_j|/p)^q, u = Qᵀμ, by homotopy from p = 2.

    Stages of the homotopy may end far from their optimum, which is fast. Should that leave Newton
    outside its region of convergence at p itself, they are followed closely.
    """
    iterations = 0
    for stage_tolerance in (0.1, 1e-6):
        mu, steps = _homotopy(Q, z, p, stage_tolerance)
        b = _primal(mu @ Q, p)
        iterations += steps
        if np.linalg.norm(z - Q @ b) <= 1e-6:
            break
    return b, mu, iterations


def _homotopy(Q, z, p, stage_tolerance):
    """The dual at p from that at p = 2, which is z itself: p − 1 is halved until p is reached.

    The dual is a power q = p/(p−1) of u; a start close to the solution keeps Newton in its fast
    region.
    """
    mu, iterations, excess = z, 0, 1.0
    while excess > p - 1:
        excess = max(excess / 2, p - 1)
        tolerance = 1e-13 if excess == p - 1 else stage_tolerance
        mu, steps = _newton_stage(Q, z, 1 + excess, mu, tolerance)
        iterations += steps
    return mu, iterations


def _newton_stage(Q, z, p, mu, tolerance, limit=60):
    """Newton at one p until ‖z − Q b‖ ≤ tolerance or stagnation at rounding level."""
    u = mu @ Q
    best, stalled = np.inf, 0
    for step in range(limit):
        mu, u = _ray_optimum(mu, u, z, p)
        residual = z - Q @ _primal(u, p)
        size = np.linalg.norm(residual)
        stalled = stalled + 1 if size > 0.5 * best and best < 1e-8 else 0
        if size <= tolerance or stalled == 2:
            return mu, step
        best = min(best, float(size))
        slope = (np.abs(u) / p) ** ((2 - p) / (p - 1)) / (p * (p - 1))
        factor = _factor(Q, slope)
        if factor is None:
            return mu, step
        direction = cho_solve(factor, residual, check_finite=False)
        t = _line_search(mu, u, direction, direction @ Q, z, p)
        if t == 0:
            return mu, step
        mu = mu + t * direction
        u = mu @ Q
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


def _interior_point(Q, z, tolerance=1e-11, limit=80):
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
    ratio = X / S

    def direction(target):
        """X dS + S dX = target, dS = ∓Qᵀ dμ, Q(dX₊ − dX₋) = miss."""
        fixed = target / S
        dmu = cho_solve(factor, miss - Q @ (sign * fixed).sum(axis=0), check_finite=False)
        du = sign * (dmu @ Q)
        return dmu, fixed + ratio * du, -du

    _, dX, dS = direction(-X * S)
    reached = np.mean((X + _longest(X, dX) * dX) * (S + _longest(S, dS) * dS))
    dmu, dX, dS = direction((reached / tau) ** 3 * tau - X * S - dX * dS)
    primal, dual = min(1, 0.995 * _longest(X, dX)), min(1, 0.995 * _longest(S, dS))
    return X + primal * dX, mu + dual * dmu, S + dual * dS


def _longest(V, dV):
    """The longest step t ≤ 1/0.995 that keeps V + t dV ≥ 0."""
    shrinking = dV < 0
    return np.min(-V[shrinking] / dV[shrinking], initial=1 / 0.995)


def _highs(Q, z):
    """The linear program of p = 1 by SciPy's HiGHS."""
    from scipy.optimize import linprog

    m = Q.shape[1]
    found = linprog(np.ones(2 * m), A_eq=np.hstack([Q, -Q]), b_eq=z, method="highs")
    if found.x is None:
        return np.full(m, np.nan), z, 0
    return found.x[:m] - found.x[m:], found.eqlin.marginals, int(found.nit)


def _auto(Q, z, p):
    """Closed form at p = 2, dual Newton for p > 1, the linear program for p = 1.

    Below p − 1 = 1e-6 rounding in the dual's power 1/(p−1) keeps Newton from a certificate; there
    the optimum is the linear program's vertex.
    """
    if p == 2:
        return z @ Q, z, 0
    if p - 1 >= 1e-6:
        return _dual_newton(Q, z, p)
    b, mu, iterations = _linear_program(Q, z)
    return (b, mu, iterations) if p == 1 else (*_at_vertex(Q, z, p, b), iterations)


def _linear_program(Q, z):
    """p = 1: interior point, else HiGHS."""
    b, mu, iterations = _interior_point(Q, z)
    if np.abs(b).sum() * np.abs(mu @ Q).max() <= (mu @ z) * (1 + GAP):
        return b, mu, iterations
    return _highs(Q, z)


def _at_vertex(Q, z, p, b):
    """The pair at p → 1 with the support S of the linear program's vertex b: the n largest |b_j|.

    Q_S b_S = z fixes b, and stationarity on S fixes μ. Off S the optimum at p has the entries
    (|u_j|/p)^{1/(p−1)}, which are 0 to rounding unless |u_j| is about 1; the certificate tells.
    """
    support = np.argsort(-np.abs(b))[: len(z)]
    vertex = np.zeros_like(b)
    vertex[support] = np.linalg.lstsq(Q[:, support], z)[0]
    slope = p * np.sign(vertex) * np.abs(vertex) ** (p - 1)
    return vertex, np.linalg.lstsq(Q[:, support].T, slope[support])[0]


def _cvxpy(Q, z, p):
    """CVXPY with Clarabel, by power cones."""
    try:
        import cvxpy
    except ImportError as error:
        raise FlattestError(
            "solver='cvxpy' needs CVXPY: install the extra 'flattest[cvxpy]'."
        ) from error
    b = cvxpy.Variable(Q.shape[1])
    matched = Q @ b == z
    objective = cvxpy.sum(cvxpy.power(cvxpy.abs(b), p, approx=False)) if p > 1 else cvxpy.norm1(b)
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [matched])
    problem.solve(solver=cvxpy.CLARABEL)
    return b.value, -matched.dual_value, problem.solver_stats.num_iters


_SOLVERS: dict[str, Solver] = {"auto": _auto, "cvxpy": _cvxpy}


def _solver(name) -> Solver:
    if name not in _SOLVERS:
        raise unknown("solver", name, _SOLVERS)
    return _SOLVERS[name]


def _checked_exponent(p) -> float:
    try:
        exponent = float(p)
    except (TypeError, ValueError):
        exponent = float("nan")
    if not 1 <= exponent <= 2:
        raise FlattestError(f"The exponent p must lie in [1, 2], not {p}: p = 2c/(c+1) for c ≥ 1.")
    return exponent


def _finite(array, what):
    try:
        array = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FlattestError(f"The {what} must be an array of numbers.") from error
    if not np.isfinite(array).all():
        raise FlattestError(f"The {what} contain NaN or infinite entries; remove those samples.")
    return array


def _checked_features(features, weights, k, n):
    """Φ as (1 or k, n, m) and ω as (as many, m), checked."""
    features = _finite(features, "features")
    if features.ndim not in (2, 3) or features.shape[-2] != n:
        raise FlattestError(f"Features {features.shape} do not match {n} labels: Φ is (n, m).")
    m = features.shape[-1]
    if n > m:
        raise FlattestError(f"{n} samples exceed {m} neurons: interpolation needs m ≥ n.")
    weights = np.ones(m) if weights is None else _finite(weights, "weights")
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
