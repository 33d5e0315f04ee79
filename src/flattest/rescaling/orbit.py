"""The flattest member of a two-layer network's rescaling orbit, by either measure of flatness."""

from collections.abc import Callable

from flattest.errors import FlattestError, require_known
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.models import MLP, Params
from flattest.rescaling.top_eigenvalue import flattest_implementation
from flattest.rescaling.two_layer import Rescaling, least_trace

MINIMIZERS: dict[str, Callable[..., Rescaling]] = {
    "trace": least_trace,
    "top_eigenvalue": flattest_implementation,
}


def flattest_rescaling(
    model: MLP, params: Params, data: Dataset, loss="mse", measure="trace"
) -> Rescaling:
    """The flattest network equivalent to `params` by rescaling its neurons, with its certificate.

    `measure` is what flatness means: "trace" has a closed form (vardhan2026, Lemma 3),
    "top_eigenvalue" is a convex program at minima (mulayoff2021, S82).
    """
    least = MINIMIZERS[require_known("measure of flatness", measure, MINIMIZERS)]
    if not isinstance(model, MLP):
        raise FlattestError(
            f"Rescaled is an MLP, not a {type(model).__name__}; `measure` takes more."
        )
    require_dataset(data)
    return least(model, params, data, loss)
