"""What measures of ∇²L return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Quantity:
    """A number with the way it was found.

    `stderr` is 0 for exact routes. `per_layer` splits the value by parameter name (it sums to the
    value; empty where there is no such split). `residual` is ‖Hv − λv‖ / |λ| for eigenvalues and 0
    for the rest.
    """

    value: float
    route: str
    stderr: float = 0.0
    per_layer: dict[str, float] = field(default_factory=dict)
    residual: float = 0.0

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

    @property
    def trace(self) -> Quantity:
        per_layer = {name: float(np.sum(entries)) for name, entries in self.entries.items()}
        return Quantity(sum(per_layer.values()), self.route, self.stderr, per_layer)


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
