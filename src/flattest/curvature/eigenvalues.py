"""The largest eigenvalues of ∇²L: from the Gram matrix, enclosed, decomposed or by Lanczos."""

from dataclasses import replace

import numpy as np
import scipy.linalg

from flattest.curvature import lanczos
from flattest.curvature.operator import Operator, probe
from flattest.curvature.resolvent import Resolvent, Top, enclose
from flattest.curvature.result import Eigenpairs, Interrupted, Quantity
from flattest.errors import FlattestError
from flattest.problem.checks import check_number
from flattest.problem.randomness import generator

# Lanczos starts from the Gram matrix's top eigenvectors, with this share of a random direction.
_SHARE_OF_OTHERS = 0.1
# ‖Ez‖ for a normal z is below ‖E‖/100 with probability 0.008 at most.
_SURELY = 100.0
ENCLOSED = "enclosed"
# As many steps as cost less than the n × n decomposition that a worse guess would.
_POWERS = 10
# Up to this many parameters ∇²L is decomposed.
_DENSE = 128


class DeadNetwork(FlattestError):
    """∇²L is 0."""


def top_eigenvalue(op: Operator, tol: float = 1e-10) -> Quantity:
    """λ_max(∇²L), the largest eigenvalue (not the largest in absolute value).

    See `top_eigenvalues`; `residual` is ‖Hv − λv‖ / |λ|.
    """
    try:
        found = _found(op, 1, tol)
    except Interrupted as early:
        raise Interrupted(_largest(early.found)) from None
    if isinstance(found, Top):
        return Quantity(found.low, ENCLOSED, residual=found.residual / found.low)
    return _largest(found)


def _largest(top: Eigenpairs) -> Quantity:
    residual = float(top.residuals[0])
    return Quantity(float(top.values[0]), top.route, residual=residual, partial=top.partial)


def top_eigenvalues(
    op: Operator, k: int, tol: float = 1e-10, most_products: int | None = None
) -> Eigenpairs:
    """The k largest eigenvalues of ∇²L with their eigenvectors, to tol · max |λ|.

    At interpolators they are those of the Gram matrix √w_i ∇f_i · ∇f_k √w_k (route "gram", taken
    where the residual part E is below tol). Elsewhere the largest one of two piecewise linear
    layers is enclosed (`resolvent.enclose`), and small ∇²L are decomposed (route "dense"). These
    three are proven to tol, up to rounding, the first where ‖E‖ has a bound of its own; where it
    has none (JAX functions, modules), a product of E with one random vector stands for it, with a
    hundredfold margin. Block Lanczos finds the others: each value is an eigenvalue to its residual
    ≤ tol, and a larger one would be orthogonal to a random vector.
    With `most_products` no more of these are taken, or k + 1 where that is more: nothing is
    decomposed, and Lanczos ends with them. Values that are not at tol by then are lower bounds,
    with the residual that they have (route "estimate").
    A dead network, whose ∇²L is 0, is refused.
    """
    found = _found(op, k, tol, most_products)
    return _with_vector(op, found) if isinstance(found, Top) else found


def _found(op: Operator, k: int, tol: float, most_products: int | None = None) -> Eigenpairs | Top:
    """The eigenpairs, or an enclosure of the largest one, whose vector takes a little more."""
    if not isinstance(k, int | np.integer) or not 1 <= k <= op.size:
        raise FlattestError(f"k must be an integer from 1 to {op.size}, not {k!r}.")
    tol = check_number("tol", tol, positive=True)
    with np.errstate(over="ignore", invalid="ignore"):
        resolvent = op.resolvent()
        gram = op.gauss_newton_gram() if resolvent is None else resolvent.gauss_newton()
        bound = op.residual_bound() if len(gram) else 0.0
        residual_part = _SURELY * op.residual_size() if bound is None else bound
        few = None if most_products is None else max(most_products - (bound is None), 1)
        if not np.isfinite(gram).all() or not np.isfinite(residual_part):
            raise _overflow()
        # λ_max(G) ≤ Tr G: where it cannot be the answer, it is not asked for.
        if k == 1 and resolvent is not None and residual_part > tol * np.trace(gram):
            return enclose(resolvent, _guess(resolvent, gram), tol)
        values, c = _gram_eigenpairs(gram, k, residual_part / tol)
        if not len(values):
            if few is not None:
                return _by_few_products(op, int(k), tol, few, c)
            _refuse_if_zero(op)
    if len(values) >= k and residual_part <= tol * values[0]:
        if bound is None:
            return _checked(op, np.array([_lifted(op, row) for row in c[:k]]), "gram")
        return _lifted_pairs(op, gram, values[:k], c[:k], bound)
    if k == 1 and resolvent is not None:
        return enclose(resolvent, _guess(resolvent, gram), tol)
    if few is not None:
        return _by_few_products(op, int(k), tol, few, c[:k])
    if op.size <= _DENSE:
        return _dense(op, int(k))
    return _by_lanczos(op, int(k), tol, c)


def _guess(resolvent: Resolvent, gram: np.ndarray) -> float:
    """The Rayleigh quotient of Aᵀc with ∇²L, for c near the Gram matrix's top eigenvector: by the
    power method, since any guess will do."""
    c, trace = gram.sum(axis=0), np.trace(gram) or 1.0
    for _ in range(_POWERS):
        c = gram @ c
        c /= trace
    return resolvent.lifted_quotient(c, gram @ c)


def _with_vector(op: Operator, top: Top) -> Eigenpairs:
    v = op.residual_top() if top.q is None else op.resolved(top.s, top.q)
    vector = op.as_params(v / np.linalg.norm(v))
    return Eigenpairs(np.array([top.low]), [vector], np.array([top.residual / top.low]), ENCLOSED)


def _dense(op: Operator, k: int) -> Eigenpairs:
    """From all columns of ∇²L."""
    H = op.matmat(np.eye(op.size))
    if not np.isfinite(H).all():
        raise _overflow()
    last = op.size - 1
    _, vectors = scipy.linalg.eigh(0.5 * (H + H.T), subset_by_index=[last - k + 1, last])
    return _checked(op, np.ascontiguousarray(vectors.T), "dense")


def _by_lanczos(op: Operator, k: int, tol: float, c: np.ndarray) -> Eigenpairs:
    """Starts from the Gram matrix's top eigenvectors c, where there are any, and from random
    directions, which have a part along every eigenvector."""
    rng = generator(0, "sharpness/lanczos")
    starts = np.vstack([_start(op, c), rng.normal(size=op.size)])
    try:
        _, vectors = lanczos.top_eigenpairs(op.matmat, starts, k, tol, rng)
    except Interrupted as early:
        route = "lanczos, interrupted: values are lower bounds"
        raise Interrupted(replace(_checked(op, early.found[1], route), partial=True)) from None
    return _checked(op, vectors, "lanczos")


def _start(op: Operator, c: np.ndarray) -> np.ndarray:
    if not len(c):
        return probe(op.size)
    return _SHARE_OF_OTHERS * probe(op.size) / np.sqrt(op.size) + _lifted(op, c.sum(axis=0))


@np.errstate(over="ignore", invalid="ignore")
def _by_few_products(op: Operator, k: int, tol: float, most: int, c: np.ndarray) -> Eigenpairs:
    """Ritz values from one start, with residuals of Lanczos's own."""
    rng = generator(0, "sharpness/lanczos")
    space = lanczos.Krylov(op.matmat, _start(op, c)[None], min(most, op.size), rng)
    while not space.full:
        space.step()
        _check_product(space.T[: space.size, space.size - 1])
        values, S, residuals = space.ritz()
        scale = np.abs(values).max() or 1.0
        if space.size >= k and residuals[:k].max() <= tol * scale:
            break
    if not values.any():
        raise _dead()
    vectors = [op.as_params(v) for v in S[:, :k].T @ space.Q[: space.size]]
    found = residuals[:k] / scale
    exact = found.max() <= tol
    route = "lanczos" if exact else f"estimate: Lanczos, {space.size} products, a lower bound"
    return Eigenpairs(values[:k].copy(), vectors, found, route)


def _gram_eigenpairs(gram: np.ndarray, k: int, useful: float) -> tuple[np.ndarray, np.ndarray]:
    """The k largest eigenvalues of G and their eigenvectors (rows), as far as they are positive.

    Three more, for Lanczos's start, where even the largest is below `useful`.
    """
    n = len(gram)
    if n == 0:
        return np.empty(0), gram
    # Tr ≥ λ_max for a matrix without negative eigenvalues.
    wanted = k if useful <= np.trace(gram) else k + 3
    values, c = scipy.linalg.eigh(
        gram, subset_by_index=[max(n - wanted, 0), n - 1], check_finite=False
    )
    positive = values > 1e-12 * max(values[-1], np.finfo(float).tiny)
    return values[positive][::-1], c.T[positive][::-1]


def _lifted_pairs(
    op: Operator, gram: np.ndarray, values: np.ndarray, c: np.ndarray, bound: float
) -> Eigenpairs:
    """G's eigenpairs (rows c) as ∇²L's: v = Σ_i c_i √w_i ∇f_i / √(cᵀGc).

    With ρ = Gc − λc the Gauss–Newton part leaves ‖Hv − λv‖ = √(ρᵀGρ / cᵀGc), and
    E = Σ_i u_i ∇²f_i at most `bound` ≥ ‖E‖ more, so that no product with ∇²L is needed.
    """
    rho = c @ gram - values[:, None] * c
    left = np.sqrt(np.vecdot(rho, rho @ gram).clip(0) / values)
    vectors = [op.as_params(_lifted(op, row)) for row in c]
    return Eigenpairs(values, vectors, (left + bound) / values[0], "gram")


def _lifted(op: Operator, c: np.ndarray) -> np.ndarray:
    """The unit vector along Σ_i c_i √w_i ∇f_i."""
    v = op.lifted(c)
    return v / np.linalg.norm(v)


def _overflow() -> FlattestError:
    return FlattestError("The parameters are so large that ∇²L overflows; it has no eigenvalues.")


def _refuse_if_zero(op: Operator) -> None:
    # The product with a random vector is 0 only if ∇²L is.
    product = op.matvec(probe(op.size))
    _check_product(product)
    if not product.any():
        raise _dead()


def _check_product(product: np.ndarray) -> None:
    if not np.isfinite(product).all():
        raise _overflow()


def _dead() -> DeadNetwork:
    return DeadNetwork(
        "∇²L is 0, since the network is dead: no neuron is active at any training point (or "
        "the loss is flat there); initialize it again or lower the learning rate."
    )


def _checked(op: Operator, vectors: np.ndarray, route: str) -> Eigenpairs:
    """Rayleigh quotients and residuals of unit vectors (rows), each by one product with ∇²L."""
    products = op.matmat(vectors)
    values = np.vecdot(vectors, products)
    order = np.argsort(-values)
    residuals = np.linalg.norm(products - values[:, None] * vectors, axis=1)
    scale = np.abs(values).max() or 1.0
    return Eigenpairs(
        values[order],
        [op.as_params(vectors[i]) for i in order],
        residuals[order] / scale,
        route,
    )
