"""What is given to be measured, checked: the same sentences for functions and for modules."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from flattest.errors import FlattestError, first_line, unknown
from flattest.problem.data import Dataset
from flattest.problem.losses import LOSSES, CrossEntropy


def attempt(failure: str, call: Callable, *args: Any) -> Any:
    """call(*args), which is a user's and may raise anything: one sentence that starts with
    `failure`."""
    try:
        return call(*args)
    except FlattestError:
        raise
    except Exception as error:
        raise FlattestError(f"{failure}: {first_line(error)}.") from None


def is_named(loss: Any) -> bool:
    """Whether it is one of flattest's losses that are sums over outputs; raises for a name that is
    not valid."""
    if isinstance(loss, str) and loss not in LOSSES:
        raise unknown("loss", loss, LOSSES)
    return isinstance(loss, (str, *LOSSES.values())) and not takes_classes(loss)


def takes_classes(loss: Any) -> bool:
    """Whether it is the cross-entropy, by name or with its smoothing."""
    return isinstance(loss, CrossEntropy) or loss == CrossEntropy.name


def batches_of(data: Any) -> list[tuple[Any, Any]]:
    """Inputs and targets of a Dataset, of a pair, or of batches of pairs; none is empty."""
    if isinstance(data, Dataset):
        return [(data.x, data.y)]
    if not isinstance(data, Iterable):
        raise FlattestError(
            "Data are a pair of arrays (inputs and targets) or a loader of such pairs, "
            f"not {type(data).__name__}."
        )
    try:
        pairs = [data] if _is_pair(data) else list(data)
    except TypeError as error:
        raise FlattestError(f"The data are not batches of pairs: {first_line(error)}.") from error
    if not all(map(_is_pair, pairs)):
        raise FlattestError("Every batch must be a pair of arrays: inputs and targets.")
    for x, y in pairs:
        if len(x) != len(y):
            shapes = f"Inputs {tuple(x.shape)} and targets {tuple(y.shape)}"
            raise FlattestError(f"{shapes} must have as many rows each.")
    if not (filled := [(x, y) for x, y in pairs if len(x)]):
        raise FlattestError("The data are empty: they need at least one sample.")
    return filled


def _is_pair(data: Any) -> bool:
    arrays = isinstance(data, list | tuple) and len(data) == 2
    return arrays and all(hasattr(part, "shape") and np.ndim(part) > 0 for part in data)


def check_outputs(what: str, finite: bool, alone: bool) -> None:
    """`finite`: a finite row for each sample; `alone`: it is the same in a batch of its
    own."""
    if not finite:
        raise FlattestError(f"The {what} must give a row of finite outputs for each sample.")
    if not alone:
        raise FlattestError(
            f"The {what}'s output for a sample depends on the rest of its batch; ∇²L is then not "
            "defined sample by sample."
        )


def check_used(unused: list[str], remedy: str) -> None:
    if unused:
        raise FlattestError(f"The outputs do not depend on {', '.join(unused)}; {remedy}.")
