"""Sharpness: the trace, the largest eigenvalues and the spectrum of ∇²L, exact where possible."""

from flattest.data import Dataset
from flattest.losses import Loss
from flattest.losses import loss as resolve_loss
from flattest.models import Model, Params
from flattest.sharpness.network import NetworkHessian
from flattest.sharpness.normalized import SimBNHessian, SimLNHessian
from flattest.sharpness.plain import PlainHessian
from flattest.sharpness.result import Measure

_ARCHITECTURES: dict[str | None, type[NetworkHessian]] = {
    None: PlainHessian,
    "sim_bn": SimBNHessian,
    "sim_ln": SimLNHessian,
}


def hessian(model: Model, params: Params, data: Dataset, loss: str | Loss = "mse"):
    """∇²L at θ on the training set `data`, ready for products and closed forms."""
    kind = resolve_loss(loss)
    kind.check_labels(data.y)
    model.check(params, data.d)
    return _ARCHITECTURES[model.norm](model, params, data, kind)


def trace(model: Model, params: Params, data: Dataset, loss: str | Loss = "mse") -> Measure:
    """Tr ∇²L at θ, also away from interpolation, split by parameter.

    Tr ∇²L = (1/n) Σ_i [ℓ″(f_i) ‖∇f_i‖² + ℓ′(f_i) Tr ∇²f_i]; the second term vanishes at
    interpolators (wen2023, Lemma 4.1) and for plain ReLU networks.
    """
    per_layer = hessian(model, params, data, loss).trace()
    return Measure(sum(per_layer.values()), "closed form", per_layer=per_layer)
