"""What a watch can afford, from the least on: rows of few samples and few products with ∇²L first,
rows of all samples and as many products as it takes in the end.

A rung is a number of samples and how many products a row may take: none, a few, all. How long the
next row of a rung is expected to take is known in one of three ways:

- A row was measured there: as long as the last one.
- Rows of fewer samples were, with as many products: as long as the first one of the most of these
  took, in proportion to the samples. Where two such numbers of samples are known, the straight line
  through their first rows, times two since times scatter, counts if it says less. First rows, since
  this one will be one too: it may compile, and checks what was not yet checked.
- Neither: a multiple of what one gradient took (the glance). Only the top rung, of all products, is
  a multiple of the first row of a few products on as many samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from flattest.curvature.result import Quantity
from flattest.flatness.league_measures import LeagueSettings

Row = dict[str, float]


class Products(IntEnum):
    """With ∇²L, for a row: none, a few, or as many as it takes."""

    NONE = 0
    FEW = 1
    ALL = 2


class Rung(NamedTuple):
    samples: int
    products: Products


FEW = 16
"""Products for eigenvalues, and for a trace that is estimated, where they are few."""
WITHOUT_PRODUCTS = (
    *("trace", "gauss_newton_trace", "least_trace", "minimum_sharpness"),
    *("adaptive_average", "normalized_sharpness", "gradient_norm"),
)
"""Measures that take no product where ∇²L's diagonal is the Gauss–Newton part's."""
FEWEST = 2  # samples
# Rows in glances, for ResNet-20 and the digits CNN: 1.3 and 1.2 without products (of which a
# backward pass for each of ten outputs 0.7 and 0.3), 11 and 5 with a few.
_WITHOUT, _OUTPUTS_OF_A_GLANCE, _WITH_FEW = 2.0, 8.0, 16.0
# Rows of few products that one of all takes: for eigenvalues, and for a trace by its columns.
_FOR_EIGENVALUES, _FOR_COLUMNS = 16.0, 256.0
_SETTINGS: dict[Products, dict[str, Any]] = {
    Products.NONE: {"most_products": 0},
    Products.FEW: {"most_products": FEW, "most_columns": FEW, "eigen_products": FEW},
    Products.ALL: {},
}


def settings_of(rung: Rung, lr: float | None) -> LeagueSettings:
    of_rung = _SETTINGS[rung.products]
    return LeagueSettings(lr=lr, tol=1e-3, k=1, rtol=0.05, steps=5, draws=8, **of_rung)


def wanted_of(rung: Rung, measures: Sequence[str], lr: float | None) -> tuple[str, ...]:
    """What is measured at a rung; the edge of stability too where there is a step size."""
    if rung.products == Products.NONE:
        return tuple(name for name in measures if name in WITHOUT_PRODUCTS)
    return (*measures, *(["edge"] if lr is not None and "edge" not in measures else []))


def ladder(samples: int, measures: Sequence[str]) -> list[Rung]:
    """The rungs, upwards: 2, 4, 16, 64, … samples."""
    counts, count = [min(FEWEST, samples)], 4
    while counts[-1] < samples:
        counts.append(min(count, samples))
        count *= 4
    lowest = Rung(counts[0], Products.NONE)
    rungs = [Rung(count, Products.FEW) for count in counts] + [Rung(samples, Products.ALL)]
    return [lowest, *rungs] if wanted_of(lowest, measures, None) else rungs


@dataclass
class Costs:
    """How long rows took, in seconds: the first of every rung, and the last."""

    glance: float | None = None
    outputs: int = 1
    first: dict[Rung, float] = field(default_factory=dict)
    last: dict[Rung, float] = field(default_factory=dict)

    def took(self, rung: Rung, seconds: float) -> None:
        self.first.setdefault(rung, seconds)
        self.last[rung] = seconds

    def expected(self, rung: Rung, row: Row | None) -> float:
        """Of the next row of a rung, `row` being the last of the rung below."""
        if rung in self.last:
            return self.last[rung]
        if rung.products == Products.ALL:
            trace = row is None or "trace_estimate" in row
            below = self.first.get(Rung(rung.samples, Products.FEW), np.inf)
            return below * (_FOR_COLUMNS if trace else _FOR_EIGENVALUES)
        known = [(r.samples, s) for r, s in self.first.items() if r.products == rung.products]
        if not known:
            passes = self.outputs / _OUTPUTS_OF_A_GLANCE
            more = _WITH_FEW if rung.products == Products.FEW else 0.0
            return (self.glance or 0.0) * (more + max(_WITHOUT, passes))
        return _line(sorted(known), rung.samples)


def _line(known: list[tuple[int, float]], samples: int) -> float:
    """In proportion to the samples, or by twice the line through two numbers of them, since times
    scatter."""
    most, seconds = known[-1]
    proportional = seconds * samples / most
    if len(known) < 2:
        return proportional
    fewer, before = known[-2]
    each = max(0.0, seconds - before) / (most - fewer)
    return min(proportional, 2 * (seconds + each * (samples - most)))


def named(name: str, found: Quantity) -> Row:
    """A value as it stands in a row: an estimate has another name than an exact value, and beside
    it how good it is."""
    if not found.stderr and not found.route.startswith("estimate"):
        return {name: found.value}
    # A standard error may be 0: at an interpolator all that is estimated is 0 for every draw.
    how, good = ("residual", found.residual) if found.residual else ("stderr", found.stderr)
    return {f"{name}_estimate": found.value, f"{name}_{how}": good}


def estimates(row: Row) -> list[str]:
    return [name.removesuffix("_estimate") for name in row if name.endswith("_estimate")]


def value_of(row: Row, name: str) -> float | None:
    """Exact or estimated."""
    return row.get(name, row.get(f"{name}_estimate"))


def alike(rows: Sequence[Row]) -> list[Row]:
    """Rows that may be compared, of as many samples as there are two or more: of the same samples,
    with a trace, and a least trace, that are both exact or both estimated. In order of steps, each
    of which has one row, the last: the network at the start is measured again with more products.
    """
    names = "trace", "least_trace", "trace_estimate"
    kinds: dict[tuple[Any, ...], dict[float, Row]] = {}
    for row in rows:
        kind = row["samples"], *(name in row for name in names)
        kinds.setdefault(kind, {})[row["step"]] = row
    several = [kind for kind, steps in kinds.items() if len(steps) > 1]
    return [row for _, row in sorted(kinds[max(several)].items())] if several else []
