"""Unbiased estimates of Tr ∇²L from products, with standard errors and a stopping rule."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flattest.curvature.operator import ROWS_AT_ONCE, Operator
from flattest.curvature.progress import progress
from flattest.curvature.result import Interrupted, Quantity
from flattest.machine import later
from flattest.problem.checks import check_count, check_number
from flattest.problem.data import standard_error
from flattest.problem.randomness import generator

special = later("scipy.special")
# Maps rows v to rows Av.
Matmat = Callable[[np.ndarray], np.ndarray]

_FEWEST_PROBES = 16
# Entries of one of XTrace's arrays of all its probes, of which it holds about six: 1 GB.
_MOST_BASIS = 2**27
# Entries of all probes that are held at once, or those of one: 64 MB, and as many products.
_MOST_ENTRIES = 2**23


@dataclass(frozen=True)
class Probes:
    """Samples of zᵀAz and the mean of z ⊙ Az, whose entries estimate A's diagonal."""

    samples: np.ndarray
    diagonal: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.samples.mean())

    @property
    def stderr(self) -> float:
        return standard_error(self.samples)

    def with_terms(self, terms: np.ndarray) -> "Probes":
        """With further rows z ⊙ Az."""
        count = len(self.samples) + len(terms)
        diagonal = self.diagonal + (terms.sum(axis=0) - len(terms) * self.diagonal) / count
        return Probes(np.append(self.samples, terms.sum(axis=1)), diagonal)

    def enough(self, rtol: float, offset: float) -> bool:
        few = len(self.samples) < _FEWEST_PROBES
        return not few and self.stderr <= rtol * abs(offset + self.mean)


def hutchinson(
    op: Operator, rtol: float = 1e-2, most_products: int = 4096, seed: int = 0
) -> Quantity:
    """An unbiased estimate of Tr ∇²L from zᵀ∇²L z with random signs z (Hutchinson 1990).

    Stops at a standard error ≤ rtol · |trace| or after `most_products` products with ∇²L.
    """
    rng = generator(seed, "sharpness/hutchinson")
    try:
        return _of_probes(op, random_signs(op.matmat, op.size, rtol, most_products, rng))
    except Interrupted as early:
        raise Interrupted(_of_probes(op, early.found, True)) from None


def _of_probes(op: Operator, found: Probes, partial: bool = False) -> Quantity:
    per_layer = {name: float(np.sum(part)) for name, part in op.by_name(found.diagonal).items()}
    route = f"hutchinson ({len(found.samples)} products{', interrupted' if partial else ''})"
    return Quantity(found.mean, route, found.stderr, per_layer, partial=partial)


def random_signs(
    products: Matmat,
    size: int,
    rtol: float,
    most_products: int,
    rng: np.random.Generator,
    offset: float = 0.0,
) -> Probes:
    """zᵀAz with random signs z, until its standard error is ≤ rtol · |offset + mean|.

    `offset` is what the caller knows of the trace already. Held at once: a block of z and of Az, of
    `_MOST_ENTRIES` entries each or of one vector's.
    """
    _check_budget(rtol, most_products)
    found = Probes(np.empty(0), np.zeros(size))
    at_once = min(ROWS_AT_ONCE, max(1, _MOST_ENTRIES // size))
    try:
        with progress("products with ∇²L, at most", most_products) as done:
            while len(found.samples) < most_products:
                rows = min(at_once, most_products - len(found.samples))
                found = found.with_terms(_terms(products, rng, rows, size))
                done(rows)
                if found.enough(rtol, offset):
                    break
    except KeyboardInterrupt:
        if len(found.samples) < 2:
            raise
        raise Interrupted(found) from None
    return found


def _terms(products: Matmat, rng: np.random.Generator, rows: int, size: int) -> np.ndarray:
    """z ⊙ Az for random signs z, in the place of Az."""
    z = rng.choice([-1.0, 1.0], (rows, size))
    terms = products(z)
    if not terms.flags.writeable:  # JAX's arrays.
        return terms * z
    terms *= z
    return terms


def _check_budget(rtol: float, most_products: int) -> None:
    check_number("rtol", rtol)
    check_count("most_products", most_products, 2)


def xtrace(op: Operator, rtol: float = 1e-2, most_products: int = 4096, seed: int = 0) -> Quantity:
    """An unbiased estimate of Tr ∇²L by XTrace (Epperly, Tropp, Webber 2024), which is far more
    accurate than Hutchinson's where a few eigenvalues dominate.

    Doubles the number of probes, drawn afresh, until the standard error is ≤ rtol · |trace| or
    the next round would exceed `most_products` products, or 1 GB for one of its arrays; where the
    probes find all of ∇²L's range the result is exact. The standard error is the root of an
    unbiased estimate of the variance (`Exchangeable`) times Student's quantile over the normal one
    for as many probes, so that ± 1.96 of it hold the trace 95 times in 100.
    """
    _check_budget(rtol, most_products)
    rng = generator(seed, "sharpness/xtrace")
    probes = min(_FEWEST_PROBES, op.size, most_products // 2, max(2, _MOST_BASIS // op.size))
    spent = 0
    while True:
        found = exchangeable(op.matmat, op.size, probes, rng)
        spent += 2 * probes
        following = min(2 * probes, op.size)
        enough = found.stderr <= rtol * abs(found.mean) or probes == op.size
        dear = spent + 2 * following > most_products or following * op.size > _MOST_BASIS
        if enough or dear:
            return Quantity(found.mean, f"xtrace ({spent} products)", found.stderr)
        probes = following


@dataclass(frozen=True)
class Exchangeable:
    """The estimates t_i of XTrace, one for each probe, and what they share: δ_ij, the change of t_i
    by what probe j found.

    Given the other probes t_i is unbiased, with j's range and without it. So the t_i are correlated
    through the δ only, Cov(t_i, t_j) = E δ_ij δ_ji, and with s² the sample variance of the t_i,
    s²/m + mean_{i≠j} δ_ij δ_ji is an unbiased estimate of their mean's variance.
    """

    estimates: np.ndarray
    shared: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.estimates.mean())

    @property
    def stderr(self) -> float:
        m = len(self.estimates)
        if m < 2:
            return float("inf")
        covariance = np.sum(self.shared * self.shared.T) / (m * (m - 1))
        alone = standard_error(self.estimates)
        student = special.stdtrit(m - 1, 0.975) / special.ndtri(0.975)
        return float(student * np.sqrt(max(alone**2 + covariance, alone**2)))


def exchangeable(
    products: Matmat, size: int, probes: int, rng: np.random.Generator
) -> Exchangeable:
    """XTrace (Epperly, Tropp, Webber 2024): estimate i takes the trace on the range found by the
    other probes exactly, and that of the rest from probe i alone; 2 · probes products in all."""
    omega = rng.normal(size=(probes, size))
    omega *= np.sqrt(size) / np.linalg.norm(omega, axis=1, keepdims=True)
    image = products(omega)
    Q, R = np.linalg.qr(image.T)
    Z = products(np.ascontiguousarray(Q.T)).T
    H = Q.T @ Z
    found = np.abs(np.diagonal(R))
    if probes >= size or found.min() <= 1e-12 * found.max():
        # Fewer independent images than probes: Q holds the whole range of A.
        return Exchangeable(np.full(probes, np.trace(H)), np.zeros((probes, probes)))
    # s_i ⊥ all columns of R but the i-th, so Q(I − s_i s_iᵀ)Qᵀ projects on the others' range.
    S = np.linalg.inv(R).T
    S /= np.linalg.norm(S, axis=0)
    W = Q.T @ omega.T
    inside = W - S * _column_dots(S, W)
    rest, rest_image = omega.T - Q @ inside, image.T - Z @ inside
    # The direction of the rest is uniform on the sphere of a space of this dimension.
    dimension = size - probes + 1
    outside = dimension * _column_dots(rest, rest_image) / _column_dots(rest, rest)
    estimates = np.trace(H) - _column_dots(S, H @ S) + outside
    forms = _column_dots(omega.T, image.T)
    without = _without_pairs(H, R, S, W, forms, size)
    shared = estimates - without
    np.fill_diagonal(shared, 0.0)
    return Exchangeable(estimates, shared.T)


def _without_pairs(H, R, S, W, forms, size) -> np.ndarray:
    """(i, j): estimate j without the range of probe i, in the coordinates of Q; i ≠ j.

    The others' range is across s_i and s_j. With W_j = Qᵀω_j, the rest of ω_j is ω_j − Q v,
    v = W_j − α s_i − β s_j, and QᵀAω_j = R_j, which s_i is orthogonal to.
    """
    c = S.T @ S
    np.fill_diagonal(c, 0.0)
    HS = H @ S
    h, u, g = S.T @ HS, S.T @ W, HS.T @ W
    own = np.diagonal(h)
    alpha, beta = (u - c * np.diagonal(u)) / (1 - c**2), (np.diagonal(u) - c * u) / (1 - c**2)
    traces = np.trace(H) - (own[:, None] - 2 * c * h + own) / (1 - c**2)
    lengths = _column_dots(W, W) - alpha * u - beta * np.diagonal(u)
    inner = _column_dots(W, H @ W) - 2 * (alpha * g + beta * np.diagonal(g))
    inner += alpha**2 * own[:, None] + 2 * alpha * beta * h + beta**2 * own
    mixed = _column_dots(W, R) - beta * _column_dots(S, R)
    dimension = size - len(R) + 2
    return traces + dimension * (forms - 2 * mixed + inner) / (size - lengths)


def _column_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->j", a, b)
