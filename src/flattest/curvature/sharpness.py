"""Sharpness: the trace, the largest eigenvalues and the spectrum of ∇²L, exact where possible.

Closed forms (`plain`, `normalized`) serve the networks of `models.MLP`, automatic differentiation
(`functions`) a user's own model. Every measure says by its `route` how it was found.
"""

from typing import Any

from flattest.curvature import diagonal, eigenvalues, estimators, spectrum as quadrature
from flattest.curvature.functions import function_operator, model_operator
from flattest.curvature.inputs import is_named
from flattest.curvature.mlp import NetworkHessian, blocks_of
from flattest.curvature.normalized import SimBNHessian, SimLNHessian
from flattest.curvature.operator import Operator
from flattest.curvature.plain import PlainHessian
from flattest.curvature.result import Eigenpairs, Quantity
from flattest.curvature.spectrum import SpectralDensity
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.losses import Loss, loss as resolve_loss
from flattest.problem.models import MLP, Model, Params

_ARCHITECTURES: dict[str | None, type[NetworkHessian]] = {
    None: PlainHessian,
    "sim_bn": SimBNHessian,
    "sim_ln": SimLNHessian,
}


def hessian(model: Model, params: Params, data: Dataset, loss: str | Loss = "mse") -> Operator:
    """∇²L at θ on the training set `data`, as an operator in float64."""
    require_dataset(data)
    kind = resolve_loss(loss)
    kind.check_labels(data.y)
    if not isinstance(model, MLP):
        return model_operator(model, params, data, kind)
    model.check(params, data.d)
    return _ARCHITECTURES[model.norm](model, blocks_of(model, params), data, kind)


def operator_of(function: Any, params: Any, data: Any, loss: Any) -> Operator:
    """∇²L of a model or any JAX function, on data and for a loss of any kind: in closed form for
    an MLP on a Dataset, where it is one of flattest's losses."""
    named = is_named(loss)
    if named and isinstance(function, MLP) and isinstance(data, Dataset):
        return hessian(function, params, data, loss)
    return function_operator(function, params, data, loss)


def trace(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """Tr ∇²L at θ, also away from interpolation, split by parameter.

    Tr ∇²L = (1/n) Σ_i [ℓ″(f_i) ‖∇f_i‖² + ℓ′(f_i) Tr ∇²f_i]; the second term vanishes at
    interpolators (wen2023, Lemma 4.1) and for plain ReLU networks. Exact for every MLP, and for a
    user's model that is piecewise linear or has at most 4096 parameters. For another the first term
    is exact and the second estimated (Hutchinson) until the standard error is ≤ rtol · |trace| or
    `most_products` products are spent; only then do `rtol`, `most_products` and `seed` matter.

    A dead network (no neuron active at any training point) has trace 0: flat, and useless. Where
    θ is so large that floating-point numbers overflow, an MLP's trace is infinite.
    """
    op = hessian(model, params, data, loss)
    return diagonal.trace(op, rtol=rtol, most_products=most_products, seed=seed)


def hutchinson(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """Tr ∇²L estimated as `estimators.hutchinson` does."""
    return estimators.hutchinson(hessian(model, params, data, loss), rtol, most_products, seed)


def xtrace(
    model: Model,
    params: Params,
    data: Dataset,
    loss: str | Loss = "mse",
    *,
    rtol: float = 1e-2,
    most_products: int = 4096,
    seed: int = 0,
) -> Quantity:
    """Tr ∇²L estimated as `estimators.xtrace` does."""
    return estimators.xtrace(hessian(model, params, data, loss), rtol, most_products, seed)


def top_eigenvalue(
    model: Model, params: Params, data: Dataset, loss: str | Loss = "mse", *, tol: float = 1e-10
) -> Quantity:
    """λ_max(∇²L), the largest eigenvalue, with `residual` = ‖Hv − λv‖ / |λ|."""
    return eigenvalues.top_eigenvalue(hessian(model, params, data, loss), tol)


def top_eigenvalues(
    model: Model,
    params: Params,
    data: Dataset,
    k: int,
    loss: str | Loss = "mse",
    *,
    tol: float = 1e-10,
) -> Eigenpairs:
    """The k largest eigenvalues of ∇²L with their eigenvectors, to tol · max |λ|, as
    `eigenvalues.top_eigenvalues` finds them. A dead network, whose ∇²L is 0, is refused."""
    return eigenvalues.top_eigenvalues(hessian(model, params, data, loss), k, tol)


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
    return quadrature.spectrum(hessian(model, params, data, loss), probes, steps, seed)
