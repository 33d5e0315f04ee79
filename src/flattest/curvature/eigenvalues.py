"""The largest eigenvalues of ∇²L: from the Gram matrix at interpolators, by Lanczos elsewhere."""

import numpy as np
import scipy.linalg

from flattest.curvature import lanczos
from flattest.curvature.operator import Operator, probe
from flattest.curvature.result import Eigenpairs, Quantity
from flattest.errors import FlattestError
from flattest.problem.randomness import generator

# Lanczos starts from the Gram matrix's top eigenvectors, with this share of the next three and of
# a random direction, so that it does not take a smaller eigenvalue for the largest.
_SHARE_OF_OTHERS = 0.1


class DeadNetwork(FlattestError):
    """∇²L is 0."""


def top_eigenvalue(op: Operator, tol: float = 1e-10) -> Quantity:
    """λ_max(∇²L), the largest eigenvalue (not the largest in absolute value).

    See `top_eigenvalues`; `residual` is ‖Hv − λv‖ / |λ|.
    """
    top = top_eigenvalues(op, 1, tol)
    return Quantity(float(top.values[0]), top.route, residual=float(top.residuals[0]))


def top_eigenvalues(op: Operator, k: int, tol: float = 1e-10) -> Eigenpairs:
    """The k largest eigenvalues of ∇²L with their eigenvectors, to tol · max |λ|.

    At interpolators they are those of the Gram matrix √w_i ∇f_i · ∇f_k √w_k (route "gram", taken
    where the residual part E is below tol); elsewhere Lanczos starts from the Gram matrix's top
    eigenvectors, where there is one. A dead network, whose ∇²L is 0, is refused.
    """
    if not isinstance(k, int | np.integer) or not 1 <= k <= op.size:
        raise FlattestError(f"k must be an integer from 1 to {op.size}, not {k!r}.")
    if not tol > 0:
        raise FlattestError(f"tol must be positive, not {tol!r}.")
    with np.errstate(over="ignore", invalid="ignore"):
        gram = op.gauss_newton_gram()
        bound = op.residual_bound() if len(gram) else 0.0
        residual_part = op.residual_size() if bound is None else bound
        if not np.isfinite(gram).all() or not np.isfinite(residual_part):
            raise _overflow()
        values, c = _gram_eigenpairs(gram, k, residual_part / tol)
        if not len(values):
            _refuse_if_zero(op)
    if len(values) >= k and residual_part <= tol * values[0]:
        if bound is None:
            return _checked(op, np.array([_lifted(op, row) for row in c[:k]]), "gram")
        return _lifted_pairs(op, gram, values[:k], c[:k], bound)
    start = _SHARE_OF_OTHERS * probe(op.size) / np.sqrt(op.size)
    if len(values):
        shares = np.where(np.arange(len(values)) < k, 1.0, _SHARE_OF_OTHERS)
        start += _lifted(op, shares @ c)
    rng = generator(0, "sharpness/lanczos")
    _, vectors = lanczos.top_eigenpairs(op.matvec, start, int(k), tol, rng)
    return _checked(op, vectors, "lanczos")


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
    if not np.isfinite(product).all():
        raise _overflow()
    if not product.any():
        raise DeadNetwork(
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
