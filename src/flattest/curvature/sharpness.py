"""Sharpness: the trace, the largest eigenvalues and the spectrum of ∇²L, exact where possible.

Closed forms (`plain`, `normalized`) serve the networks of `models.MLP`, automatic differentiation
(`function`) a user's own model. Every measure says by its `route` how it was found.
"""

import numpy as np
import scipy.linalg

from flattest.curvature import estimators, lanczos
from flattest.curvature.function import FunctionHessian
from flattest.curvature.mlp import NetworkHessian, blocks_of
from flattest.curvature.normalized import SimBNHessian, SimLNHessian
from flattest.curvature.operator import Hessian, probe
from flattest.curvature.plain import PlainHessian
from flattest.curvature.result import Eigenpairs, Measure
from flattest.curvature.spectrum import SpectralDensity
from flattest.errors import FlattestError
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.losses import Loss
from flattest.problem.losses import loss as resolve_loss
from flattest.problem.models import MLP, Model, Params
from flattest.problem.randomness import generator

__all__ = [
    "Eigenpairs",
    "Measure",
    "SpectralDensity",
    "hessian",
    "hutchinson",
    "spectrum",
    "top_eigenvalue",
    "top_eigenvalues",
    "trace",
    "xtrace",
]

_ARCHITECTURES: dict[str | None, type[NetworkHessian]] = {
    None: PlainHessian,
    "sim_bn": SimBNHessian,
    "sim_ln": SimLNHessian,
}
# Models without a closed form and with more parameters than this get an estimated trace.
MOST_COLUMNS = 4096
# Points × neurons of a block of the trace: larger arrays leave the cache and are paid for in page
# faults, so that the cost would no longer be linear in width and n.
_ENTRIES_AT_ONCE = 32_768
# Lanczos starts from the Gram matrix's top eigenvectors, with this share of the next three and of
# a random direction, so that it does not take a smaller eigenvalue for the largest.
_SHARE_OF_OTHERS = 0.1


def hessian(
    model: Model, params: Params, data: Dataset, loss: str | Loss = "mse"
) -> NetworkHessian | FunctionHessian:
    """∇²L at θ on the training set `data`, as an operator in float64."""
    kind = _checked_loss(loss, data)
    if not isinstance(model, MLP):
        return FunctionHessian(model, params, data, kind)
    model.check(params, data.d)
    return _ARCHITECTURES[model.norm](model, blocks_of(model, params), data, kind)


def trace(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Measure:
    """Tr ∇²L at θ, also away from interpolation, split by parameter.

    Tr ∇²L = (1/n) Σ_i [ℓ″(f_i) ‖∇f_i‖² + ℓ′(f_i) Tr ∇²f_i]; the second term vanishes at
    interpolators (wen2023, Lemma 4.1) and for plain ReLU networks. Exact for every MLP, and for a
    user's model of at most 4096 parameters. For a larger one the first term is exact and the
    second estimated (Hutchinson) until the standard error is ≤ rtol · |trace| or `most_products`
    products are spent; only then do `rtol`, `most_products` and `seed` matter.

    A dead network (no neuron active at any training point) has trace 0: flat, and useless. Where
    θ is so large that floating-point numbers overflow, an MLP's trace is infinite.
    """
    if isinstance(model, MLP):
        per_layer = _closed_form(model, params, data, loss)
        return Measure(sum(per_layer.values()), "closed form", per_layer=per_layer)
    H = FunctionHessian(model, params, data, _checked_loss(loss, data))
    if H.size <= MOST_COLUMNS:
        return _trace_by_columns(H)
    _check_budget(rtol, most_products)
    return _trace_with_estimate(H, rtol, most_products, generator(seed, "sharpness/trace"))


def _closed_form(model: MLP, params: Params, data: Dataset, loss: str | Loss) -> dict[str, float]:
    """Tr ∇²L by parameter, summed over blocks of points."""
    kind = _checked_loss(loss, data)
    model.check(params, data.d)
    theta = blocks_of(model, params)
    # Sim-BN's statistics tie all points together.
    rows = data.n if model.norm == "sim_bn" else max(1, _ENTRIES_AT_ONCE // model.width)
    architecture = _ARCHITECTURES[model.norm]
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [
            architecture(model, theta, data, kind, slice(start, start + rows)).trace()
            for start in range(0, data.n, rows)
        ]
    sums = {name: sum(part[name] for part in parts) for name in parts[0]}
    return {name: value if np.isfinite(value) else np.inf for name, value in sums.items()}


def _checked_loss(loss: str | Loss, data: Dataset) -> Loss:
    require_dataset(data)
    kind = resolve_loss(loss)
    kind.check_labels(data.y)
    return kind


def _check_budget(rtol: float, most_products: int) -> None:
    if not rtol >= 0 or not most_products >= 2:
        raise FlattestError(
            f"An estimate needs rtol ≥ 0 and most_products ≥ 2, not {rtol!r} and {most_products!r}."
        )


def _trace_by_columns(H: FunctionHessian) -> Measure:
    """The diagonal of the residual part from its products with all unit vectors."""
    diagonal = H.gauss_newton_diagonal()
    if H.u.any():
        diagonal = diagonal + np.diagonal(H.residual_matmat(np.eye(H.size)))
    return Measure(float(diagonal.sum()), "hessian columns", per_layer=H.by_name(diagonal))


def _trace_with_estimate(
    H: FunctionHessian, rtol: float, most_products: int, rng: np.random.Generator
) -> Measure:
    exact = H.gauss_newton_diagonal()
    if not H.u.any():
        return Measure(float(exact.sum()), "gauss-newton", per_layer=H.by_name(exact))
    rest = estimators.hutchinson(
        H.residual_matmat, H.size, rtol, most_products, rng, offset=float(exact.sum())
    )
    diagonal = exact + rest.diagonal
    route = f"gauss-newton + hutchinson ({len(rest.samples)} products)"
    return Measure(float(diagonal.sum()), route, rest.stderr, H.by_name(diagonal))


def hutchinson(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Measure:
    """An unbiased estimate of Tr ∇²L from zᵀ∇²L z with random signs z (Hutchinson 1990).

    Stops at a standard error ≤ rtol · |trace| or after `most_products` products with ∇²L.
    """
    _check_budget(rtol, most_products)
    H, rng = hessian(model, params, data, loss), generator(seed, "sharpness/hutchinson")
    estimate = estimators.hutchinson(H.matmat, H.size, rtol, most_products, rng)
    per_layer = {k: float(np.sum(v)) for k, v in H.as_params(estimate.diagonal).items()}
    route = f"hutchinson ({len(estimate.samples)} products)"
    return Measure(estimate.mean, route, estimate.stderr, per_layer)


def xtrace(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Measure:
    """An unbiased estimate of Tr ∇²L by XTrace (Epperly, Tropp, Webber 2024), which is far more
    accurate than Hutchinson's where a few eigenvalues dominate.

    Doubles the number of probes, drawn afresh, until the standard error is ≤ rtol · |trace| or
    the next round would exceed `most_products` products; where the probes find all of ∇²L's
    range the result is exact.
    """
    _check_budget(rtol, most_products)
    H, rng = hessian(model, params, data, loss), generator(seed, "sharpness/xtrace")
    value, stderr, products = estimators.xtrace_until(H.matmat, H.size, rtol, most_products, rng)
    return Measure(value, f"xtrace ({products} products)", stderr)


def top_eigenvalue(
    model: Model, params: Params, data: Dataset, loss: str | Loss = "mse", *, tol: float = 1e-10
) -> Measure:
    """λ_max(∇²L), the largest eigenvalue (not the largest in absolute value).

    See `top_eigenvalues`; `residual` is ‖Hv − λv‖ / |λ|.
    """
    top = top_eigenvalues(model, params, data, 1, loss, tol=tol)
    return Measure(float(top.values[0]), top.route, residual=float(top.residuals[0]))


def top_eigenvalues(
    model: Model,
    params: Params,
    data: Dataset,
    k: int,
    loss: str | Loss = "mse",
    *,
    tol: float = 1e-10,
) -> Eigenpairs:
    """The k largest eigenvalues of ∇²L with their eigenvectors, to tol · max |λ|.

    At interpolators they are those of the n × n Gram matrix √w_i ∇f_i · ∇f_k √w_k (route "gram",
    taken where the residual part E is below tol); elsewhere Lanczos starts from the Gram matrix's
    top eigenvectors. A dead network, whose ∇²L is 0, is refused.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        H = hessian(model, params, data, loss)
    if not isinstance(k, int | np.integer) or not 1 <= k <= H.size:
        raise FlattestError(f"k must be an integer from 1 to {H.size}, not {k!r}.")
    if not tol > 0:
        raise FlattestError(f"tol must be positive, not {tol!r}.")
    with np.errstate(over="ignore", invalid="ignore"):
        bound = H.residual_bound()
        residual_part = H.residual_size() if bound is None else bound
        gram = _weighted_gram(H)
        values, c = _gram_eigenpairs(gram, k, residual_part / tol)
    if not np.isfinite(residual_part):
        raise _overflow()
    if residual_part == 0 and not len(values):
        _refuse_if_dead(H)
    if len(values) >= k and residual_part <= tol * values[0]:
        if bound is None:
            return _checked(H, np.array([_lifted(H, row) for row in c[:k]]), "gram")
        return _lifted_pairs(H, gram, values[:k], c[:k], bound)
    start = _SHARE_OF_OTHERS * probe(H.size) / np.sqrt(H.size)
    if len(values):
        shares = np.where(np.arange(len(values)) < k, 1.0, _SHARE_OF_OTHERS)
        start += _lifted(H, shares @ c)
    rng = generator(0, "sharpness/lanczos")
    _, vectors = lanczos.top_eigenpairs(H.matvec, start, int(k), tol, rng)
    return _checked(H, vectors, "lanczos")


def _weighted_gram(H: Hessian) -> np.ndarray:
    """G = √w_i ∇f_i · ∇f_k √w_k; empty where that matrix is not worth its cost."""
    if not H.affords_gram:
        return np.empty((0, 0))
    root = np.sqrt(H.w)
    gram = H.gram()
    gram *= root
    gram *= root[:, None]
    if not np.isfinite(gram).all():
        raise _overflow()
    return gram


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
    H: Hessian, gram: np.ndarray, values: np.ndarray, c: np.ndarray, bound: float
) -> Eigenpairs:
    """G's eigenpairs (rows c) as ∇²L's: v = Σ_i c_i √w_i ∇f_i / √(cᵀGc).

    With ρ = Gc − λc the Gauss–Newton part leaves ‖Hv − λv‖ = √(ρᵀGρ / cᵀGc), and
    E = Σ_i u_i ∇²f_i at most `bound` ≥ ‖E‖ more, so that no product with ∇²L is needed.
    """
    rho = c @ gram - values[:, None] * c
    left = np.sqrt(np.vecdot(rho, rho @ gram).clip(0) / values)
    vectors = [H.as_params(_lifted(H, row)) for row in c]
    return Eigenpairs(values, vectors, (left + bound) / values[0], "gram")


def _lifted(H: Hessian, c: np.ndarray) -> np.ndarray:
    """The unit vector along Σ_i c_i √w_i ∇f_i."""
    v = H.vjp(np.sqrt(H.w) * c)
    return v / np.linalg.norm(v)


def _overflow() -> FlattestError:
    return FlattestError("The parameters are so large that ∇²L overflows; it has no eigenvalues.")


def _refuse_if_dead(H: Hessian) -> None:
    # A random combination of the gradients ∇f_i is 0 only if they all are.
    if not H.vjp(generator(0, "sharpness/dead").normal(size=H.data.n)).any():
        raise FlattestError(
            "The network is dead: no neuron is active at any training point, so ∇²L is 0; "
            "initialize it again or lower the learning rate."
        )


def _checked(H: Hessian, vectors: np.ndarray, route: str) -> Eigenpairs:
    """Rayleigh quotients and residuals of unit vectors (rows), each by one product with ∇²L."""
    products = H.matmat(vectors)
    values = np.vecdot(vectors, products)
    order = np.argsort(-values)
    residuals = np.linalg.norm(products - values[:, None] * vectors, axis=1)
    scale = np.abs(values).max() or 1.0
    return Eigenpairs(
        values[order],
        [H.as_params(vectors[i]) for i in order],
        residuals[order] / scale,
        route,
    )


def spectrum(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    *,
    probes: int = 8,
    steps: int = 64,
    seed: int = 0,
) -> SpectralDensity:
    """The density of ∇²L's eigenvalues by stochastic Lanczos quadrature (Ubaru et al. 2017):
    `probes` random signs, `steps` products with each."""
    if probes < 1 or steps < 1:
        raise FlattestError(f"probes and steps must be ≥ 1, not {probes} and {steps}.")
    H, rng = hessian(model, params, data, loss), generator(seed, "sharpness/spectrum")
    rows = [
        lanczos.quadrature(H.matvec, rng.choice([-1.0, 1.0], H.size), steps, rng)
        for _ in range(probes)
    ]
    longest = max(len(nodes) for nodes, _ in rows)
    # Rows that ended early are padded with their last node, with weight 0.
    nodes = np.array([np.pad(row, (0, longest - len(row)), mode="edge") for row, _ in rows])
    weights = np.array([np.pad(row, (0, longest - len(row))) for _, row in rows])
    return SpectralDensity(nodes, weights, H.size)
