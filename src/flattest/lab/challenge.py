"""A challenge to "all flattest minimizers generalize": look for one that does not.

Where a flattest network that is wrong off the training set is known (the memorizers of wen2023's
proofs, the spike networks of Sim-BN under Condition 1), it is built and certified. Where integer
programs prove that all flattest networks consist of neurons that generalize (xor without bias, on
the training set at hand), that settles it the other way. Elsewhere the search descends the
sharpness from interpolators that were taught wrong labels off the training set, and what counts is
whether the flattest networks it ends at still generalize badly.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.experiments.experiment import Computed
from flattest.problem.data import Dataset, Distribution
from flattest.problem.distributions import AnyDistribution, declared as declared_law
from flattest.problem.libraries import adopted
from flattest.problem.losses import MSE, Loss, loss as resolve_loss
from flattest.problem.models import MLP, AnyModel, Model, Params, declared as declared_model


class Challenge(Computed, frozen=True, tag="challenge"):
    """One seed's attempt: the network found, as `sharpness`, `bound`, `test_error`, whether it is
    `certified` to be a flattest one, the `start_…` of the search and whether it `converged`: no
    step went further down (NaN where it was built); `proven` is 1 where all flattest networks of
    this training set generalize, by proof.

    `wrong` is how many fresh points the search's start is taught wrongly.
    """

    distribution: AnyDistribution
    n: int
    model: AnyModel
    loss: Loss = MSE()
    wrong: int = 100
    steps: int = 1500

    def __post_init__(self) -> None:
        declare(self)

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.flatness.certification import certify

        data = self.distribution.draw(self.n, seed)
        params = known_bad_flattest(self.model, data, self.loss)
        start = {"start_sharpness": np.nan, "start_test_error": np.nan, "converged": np.nan}
        proven = None if params is not None else proven_least(self.model, data, self.loss)
        if proven is not None:
            # The known neurons say y everywhere, and all flattest networks consist of them.
            right = {"certified": 1.0, "proven": 1.0, "interpolation_error": 0.0}
            off = {"test_error": 0.0, "test_mse": 0.0}
            return start | {"sharpness": proven, "bound": proven} | right | off
        if params is None:
            params, start = self._search(data, seed)
        found = certify(self.model, params, data, self.loss)
        if not found.interpolates:
            raise FlattestError(
                f"The challenge ended at a network that misses a target by "
                f"{found.interpolation_error:.1e} and so does not interpolate; a wider one may."
            )
        return start | {
            "sharpness": found.trace,
            "bound": np.nan if found.bound is None else found.bound.value,
            "certified": float(found.flattest),
            "interpolation_error": found.interpolation_error,
            "test_error": float(found.test_error or np.nan),
            "test_mse": float(found.test_mse or np.nan),
        }

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        shown = ("start_test_error", "sharpness", "bound", "test_error")
        return {name: float(series[name]) for name in shown}

    def _search(self, data: Dataset, seed: int) -> tuple[Params, dict[str, float]]:
        from flattest.flatness.search import bad_interpolator, search_flattest

        bad = bad_interpolator(self.model, data, self.wrong, seed, self.loss)
        found = search_flattest(self.model, data, bad, self.loss, self.steps)
        return found.params, {
            "start_sharpness": found.start.sharpness,
            "start_test_error": found.start.test_error,
            "converged": float(found.status == "converged"),
        }


def declare(spec: msgspec.Struct) -> None:
    """What a user gave as `distribution`, `model` and `loss` becomes specs that the store can keep;
    raises where it is none of what can be."""
    law, model = getattr(spec, "distribution"), adopted(getattr(spec, "model"))  # noqa: B009
    if not isinstance(law, Distribution):
        raise FlattestError(
            f"A setup's distribution cannot be this {type(law).__name__}: it is one of flattest's, "
            "your own subclass of ft.Distribution, or a Dataset with held-out examples."
        )
    if not isinstance(model, Model):
        raise FlattestError(
            f"A setup's model cannot be this {type(model).__name__}: it has init(d, seed) and "
            "apply(params, x, train_x), as MLP and FunctionModel have, or is made by ft.equinox, "
            "ft.flax or ft.pytorch."
        )
    force = partial(msgspec.structs.force_setattr, spec)
    force("distribution", declared_law(law))
    force("model", declared_model(model))
    force("loss", resolve_loss(getattr(spec, "loss")))  # noqa: B009


def known_bad_flattest(model: Model, data: Dataset, loss: Loss) -> Params | None:
    """A flattest network that is wrong off the training set, where the data admit one we know of:
    the memorizer of Theorem 4.1 or 5.1, the spike network that refutes Theorem 3.2; else None."""
    from flattest.flatness.constructions import Construction, memorizer, sim_ln_memorizer
    from flattest.flatness.spikes import flattest_spike

    if not isinstance(model, MLP):
        return None
    builders: dict[str | None, Callable[..., Construction]] = {
        None: partial(memorizer, depth=model.depth),
        "sim_ln": partial(sim_ln_memorizer, epsilon=model.epsilon),
        "sim_bn": flattest_spike,
    }
    plain = model.sigma.is_relu and model.bias and not model.output_bias
    if not plain or model.norm not in builders:
        return None
    try:
        return builders[model.norm](data, width=model.width, loss=loss).params
    except FlattestError:
        # Inputs that are not extreme points, or more of them than neurons; for Sim-BN, data that do
        # not meet Condition 1: none is known.
        return None


def proven_least(model: Model, data: Dataset, loss: Loss) -> float | None:
    """The least trace, where it is proven that all flattest networks of this training set, of any
    width, consist of neurons that compute the label (`flatness.convex.faces`); else None."""
    from flattest.flatness.convex.faces import decide_faces

    neurons = getattr(data.distribution, "neurons", None)
    if neurons is None or not isinstance(model, MLP) or model.depth != 2 or model.norm is not None:
        return None
    if model.bias or model.output_bias or not model.sigma.is_relu:
        return None
    known = neurons()
    if model.width < len(known):
        return None
    found = decide_faces(model, data, known, loss, faces=0)
    return float(found.bound) if found.outcome == "proven" else None
