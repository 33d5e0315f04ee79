"""What measures of ∇²L return."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what was `found` by then, which says of itself that it is partial. Who does not
    look at it is interrupted as by any other."""

    def __init__(self, found: Any):
        super().__init__("interrupted")
        self.found = found


class OfSome(NamedTuple):
    """What is known of the first so many samples."""

    value: Any
    samples: int


def known_so_far(measured: Callable[P, R]) -> Callable[P, R]:
    """A measure that Ctrl-C ends with what is known by then, where anything is."""

    @functools.wraps(measured)
    def call(*args: P.args, **settings: P.kwargs) -> R:
        try:
            return measured(*args, **settings)
        except Interrupted as early:
            return early.found

    return call


def whole(found: R) -> R:
    """What a measure found, for those who need all of it: Ctrl-C once more where it is partial."""
    if getattr(found, "partial", False):
        raise KeyboardInterrupt
    return found


@dataclass(frozen=True)
class Quantity:
    """A number with the way it was found.

    `partial`: Ctrl-C ended it early; `route` says after what. `stderr` is 0 for exact routes.
    `per_layer` splits the value by parameter name (it sums to the value; empty where there is no
    such split). `residual` is ‖Hv − λv‖ / |λ| for eigenvalues and 0 for the rest.
    """

    value: float
    route: str
    stderr: float = 0.0
    per_layer: dict[str, float] = field(default_factory=dict)
    residual: float = 0.0
    partial: bool = False

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        error = f" ± {self.stderr:.2g}" if self.stderr else ""
        split = ", ".join(f"{name} {part:.6g}" for name, part in self.per_layer.items())
        return f"{self.value:.10g}{error} ({self.route})" + (f": {split}" if split else "")


@dataclass(frozen=True)
class Diagonal:
    """The diagonal of ∇²L by parameter, how it was found, and the standard error of its sum."""

    entries: Mapping[str, np.ndarray]
    route: str
    stderr: float = 0.0
    partial: bool = False

    @property
    def trace(self) -> Quantity:
        per_layer = {name: float(np.sum(entries)) for name, entries in self.entries.items()}
        value = sum(per_layer.values())
        return Quantity(value, self.route, self.stderr, per_layer, partial=self.partial)


@dataclass(frozen=True)
class Eigenpairs:
    """The largest eigenvalues, in descending order, with unit eigenvectors shaped like θ.

    `residuals` are ‖Hv − λv‖ / max |λ|, each from one product after convergence, or for two
    piecewise linear layers in closed form (route "enclosed") or bounded from above (route "gram").
    """

    values: np.ndarray
    vectors: list[Any]
    residuals: np.ndarray
    route: str
    partial: bool = False
