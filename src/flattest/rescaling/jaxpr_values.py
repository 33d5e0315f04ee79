"""What the walk over a jaxpr knows of a value."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Known:
    """Its value here; one that `varies` was computed from x and is another for other samples."""

    value: Any
    varies: bool = False


@dataclass(frozen=True)
class Steps:
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Weight:
    """Each entry is a constant times the entry `index` of the parameter `name`."""

    name: str
    index: np.ndarray


@dataclass(frozen=True)
class Hidden:
    """Affine in each single weight of the parameters `depends`, on every linear piece."""

    units: np.ndarray
    depends: frozenset[str]
