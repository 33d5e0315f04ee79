"""The diagonal of ∇²L by parameter, by the cheapest exact route, or estimated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flattest.curvature import estimators
from flattest.curvature.result import Measure
from flattest.curvature.sharpness import MOST_COLUMNS
from flattest.problem.randomness import generator
from flattest.rescaling.units import Structure

ROWS_AT_ONCE = 32
"""Vectors that ∇²L is applied to together."""


@dataclass(frozen=True)
class Diagonal:
    """The diagonal of ∇²L by parameter, how it was found, and the standard error of its sum."""

    entries: Mapping[str, np.ndarray]
    method: str
    stderr: float = 0.0

    @property
    def trace(self) -> float:
        return sum(self.per_layer.values())

    @property
    def per_layer(self) -> dict[str, float]:
        return {name: float(np.sum(entries)) for name, entries in self.entries.items()}

    def as_measure(self) -> Measure:
        return Measure(self.trace, self.method, self.stderr, self.per_layer)


class Problem(Protocol):
    """A network with its data and loss, as far as ∇²L is concerned."""

    @property
    def size(self) -> int: ...

    def products(self, rows: np.ndarray) -> np.ndarray:
        """∇²L applied to each row."""

    def by_name(self, flat: np.ndarray) -> dict[str, np.ndarray]: ...


def find_diagonal(
    p: Problem,
    structure: Structure,
    gauss_newton: Callable[[], Mapping[str, np.ndarray]],
    rtol: float,
    most_products: int,
    seed: int,
) -> Diagonal:
    """`gauss_newton()`, the Gauss–Newton matrix's diagonal, where that is ∇²L's; else all columns
    of ∇²L, or beyond MOST_COLUMNS of them Hutchinson's estimate."""
    if structure.exact:
        return Diagonal(gauss_newton(), "exact: Gauss–Newton, piecewise linear network")
    because = f"because {structure.reason}"
    if p.size <= MOST_COLUMNS:
        return Diagonal(p.by_name(_by_columns(p)), f"exact: all columns of ∇²L, {because}")
    found = estimators.hutchinson(
        p.products, p.size, rtol, most_products, generator(seed, "measure/trace")
    )
    method = f"estimate: Hutchinson, {len(found.samples)} products, {because}"
    return Diagonal(p.by_name(found.diagonal), method, found.stderr)


def _by_columns(p: Problem) -> np.ndarray:
    """The diagonal of ∇²L from its products with all unit vectors, a few at once."""
    diagonal = np.empty(p.size)
    for first in range(0, p.size, ROWS_AT_ONCE):
        # The last block overlaps the one before, so that one compiled shape serves all.
        rows = np.arange(ROWS_AT_ONCE) + min(first, max(0, p.size - ROWS_AT_ONCE))
        rows = rows[rows < p.size]
        basis = np.zeros((len(rows), p.size))
        basis[np.arange(len(rows)), rows] = 1
        diagonal[rows] = p.products(basis)[np.arange(len(rows)), rows]
    return diagonal
