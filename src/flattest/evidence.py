"""A number against what it must be, and the one scale of what that shows of a statement.

✓   proven      by a certificate, an identity or an enumeration
✗   refuted     by the instance that is named
(✓) supported   it was attacked, or run over seeds, and it held
?   open        what was looked at does not decide it
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

Relation = Literal["=", "≤", "≥"]

# The scale of evidence, wherever a statement is judged: ledger, Table 1, `judge` and the page.
Grade = Literal["proven", "refuted", "supported", "open"]
GLYPHS: dict[Grade, str] = {"proven": "✓", "refuted": "✗", "supported": "(✓)", "open": "?"}
MEANINGS: dict[Grade, str] = {
    "proven": "settled by an identity, a certificate, a full enumeration or a proof",
    "refuted": "an instance breaks it, which is named",
    "supported": "attacked, sampled, fitted or trained, as said beside it, and not broken",
    "open": "nothing here decides it",
}


class Attack(msgspec.Struct, frozen=True):
    """An optimizer's attempt to break a statement about all instances.

    `closest` is the measure of the instance that came closest to breaking it, or broke it.
    """

    method: str
    instances: int
    closest: float

    def __str__(self) -> str:
        return f"attacked by {self.method}, {self.instances} instances, closest {self.closest:.5g}"


class Verdict(msgspec.Struct, frozen=True):
    """`statement` says what `value` is; it must stand in `relation` to `bound` up to `tolerance`.

    The tolerance is relative to |bound|, absolute where the bound is 0. `values` are those of the
    seeds, one each, of which `value` is the median or the worst; `seeds` counts independent
    repetitions, and `interval` is a confidence interval of the value. A value that is not that of
    a `feasible` point proves nothing. Of a statement about all instances, `attack` says how the
    one with this value was looked for. What could not be judged has the value NaN, and
    `statement` says why.
    """

    statement: str
    value: float
    bound: float
    relation: Relation = "="
    tolerance: float = 0.0
    values: tuple[float, ...] = ()
    seeds: int | None = None
    interval: tuple[float, float] | None = None
    feasible: bool = True
    attack: Attack | None = None
    holds: bool = False

    def __post_init__(self) -> None:
        """`holds` is filled in, so that it stands in JSON beside the numbers it follows from."""
        # A NaN meets nothing.
        met = self.feasible and self.violation <= self.tolerance
        msgspec.structs.force_setattr(self, "holds", met)

    @property
    def gap(self) -> float:
        """(value − bound)/|bound|, absolute where the bound is 0."""
        return (self.value - self.bound) / (abs(self.bound) or 1.0)

    @property
    def violation(self) -> float:
        """By how much the relation is missed; negative where there is room to spare."""
        return {"=": abs(self.gap), "≤": self.gap, "≥": -self.gap}[self.relation]

    @property
    def sentence(self) -> str:
        """The verdict of seeds for people: value, range over seeds, and what was expected."""
        if math.isnan(self.value):
            return self.statement
        several = len(self.values) > 1
        spread = f" [{min(self.values):.4g}, {max(self.values):.4g}]" if several else ""
        return (
            f"{self.statement} is {self.value:.4g}{spread} over "
            f"{seeds_in_words(len(self.values))}; expected {self.relation} {self.bound:.4g}."
        )

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS" if self.feasible else "FAILS: infeasible"
        return (
            f"{self.statement}: {self.value:.12g} against {self.bound:.12g} "
            f"(gap {self.gap:.2e}, tolerance {self.tolerance:.0e}) {verdict}"
        )


def graded(grade: Grade, basis: str = "") -> str:
    """The grade for people, after its glyph, with what it rests on."""
    return f"{GLYPHS[grade]} {grade}{basis and f' ({basis})'}"


def seeds_in_words(count: int) -> str:
    """The count with its noun."""
    return f"{count} seed{'' if count == 1 else 's'}"


def mean_interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The mean with Student's 95 % interval."""
    from scipy import stats  # slow to import, and rarely needed

    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return mean, (mean - half, mean + half)


def equal(value, bound, tolerance: float, statement: str = "", **extra) -> Verdict:
    """value = bound up to the tolerance."""
    return Verdict(statement, float(value), float(bound), "=", tolerance, **extra)


def at_most(value, bound, tolerance: float = 0.0, statement: str = "", **extra) -> Verdict:
    """value ≤ bound up to the tolerance."""
    return Verdict(statement, float(value), float(bound), "≤", tolerance, **extra)


def at_least(value, bound, tolerance: float = 0.0, statement: str = "", **extra) -> Verdict:
    """value ≥ bound up to the tolerance."""
    return Verdict(statement, float(value), float(bound), "≥", tolerance, **extra)
