"""Certificates: a measured value against a proven bound."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """The statement `claim` with the value found, the bound it must meet and the tolerance.

    `gap` is relative, value / bound − 1, and absolute where the bound is 0. `feasible` is whether
    the value is that of a feasible point: without it a met bound proves nothing.
    """

    claim: str
    value: float
    bound: float
    tolerance: float = 1e-9
    feasible: bool = True

    @property
    def gap(self) -> float:
        return self.value / self.bound - 1 if self.bound != 0 else self.value

    @property
    def holds(self) -> bool:
        return self.feasible and abs(self.gap) <= self.tolerance

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS" if self.feasible else "FAILS: infeasible"
        return (
            f"{self.claim}: {self.value:.12g} against {self.bound:.12g} "
            f"(gap {self.gap:.2e}, tolerance {self.tolerance:.0e}) {verdict}"
        )
