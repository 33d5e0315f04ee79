"""Tr G of a module from random combinations of its outputs: one backward pass instead of one for
each class.

With S_i S_iᵀ = ∇²_f ℓ_i and random signs ε, v = S_i ε has E v vᵀ = ∇²_f ℓ_i, so that ‖J_iᵀ v‖² is
an unbiased estimate of sample i's share Tr J_iᵀ ∇²_f ℓ_i J_i. Either every sample is drawn equally
often, and only the signs vary, or samples are drawn at random too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from flattest.curvature.operator import Operator
from flattest.curvature.progress import progress
from flattest.curvature.result import Interrupted, Quantity
from flattest.errors import FlattestError
from flattest.machine import later
from flattest.problem.randomness import generator

special = later("scipy.special")
# Draws of each sample between two looks at the standard error.
_AT_ONCE = 4


def gauss_newton_trace(
    op: Operator,
    rtol: float = 1e-2,
    most_draws: int = 4096,
    samples: int | None = None,
    seed: int = 0,
) -> Quantity:
    """Tr G, exactly for rtol = 0: a backward pass for each output and sample. Else estimated until
    the standard error is ≤ rtol · Tr G or each sample was drawn `most_draws` times; with `samples`,
    as many at a time, drawn at random with replacement, up to `most_draws` in all."""
    if not rtol >= 0 or not most_draws >= 2 or (samples is not None and not samples >= 2):
        raise FlattestError(
            "The Gauss–Newton trace needs rtol ≥ 0 and at least two draws, two samples at a time."
        )
    if rtol == 0:
        return Quantity(float(op.gauss_newton_shares().sum()), "exact: Gauss–Newton")
    rng = generator(seed, "sharpness/combinations")
    if samples is None:
        rounds = _of_all(op, most_draws, rng)
        return estimate(rounds, 1.0, rtol, f" over all {op.samples} samples")
    rounds = _of_some(op, most_draws, samples, rng)
    return estimate(rounds, float(op.samples), rtol, f" of samples drawn from {op.samples}")


def _of_all(op: Operator, most: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    for start in range(0, most, _AT_ONCE):
        yield op.gauss_newton_shares(min(_AT_ONCE, most - start), rng)


def _of_some(op: Operator, most: int, samples: int, rng) -> Iterator[np.ndarray]:
    """(1, samples): draws of one number, the share of a random sample."""
    for start in range(0, most, samples):
        chosen = rng.integers(op.samples, size=min(samples, most - start))
        yield op.gauss_newton_shares(1, rng, chosen).reshape(1, -1)


@dataclass(frozen=True)
class Draws:
    """Estimates t (n, R) of n shares, R of each; `whole` times their mean over R, summed over the
    n, is the estimate. All draws are independent, so the variance of the sum is that of its parts.
    """

    shares: np.ndarray
    whole: float = 1.0

    @property
    def mean(self) -> float:
        return self.whole * float(self.shares.mean(axis=1).sum())

    @property
    def stderr(self) -> float:
        """The root of the variance's unbiased estimate, times Student's quantile over the normal
        one for as many degrees of freedom (Satterthwaite's), so that ± 1.96 of it hold Tr G 95
        times in 100."""
        draws = self.shares.shape[1]
        if draws < 2:
            return float("inf")
        parts = self.shares.var(axis=1, ddof=1)
        if not (total := float(parts.sum())) > 0:
            return 0.0
        freedom = (draws - 1) * total**2 / float((parts**2).sum())
        student = special.stdtrit(freedom, 0.975) / special.ndtri(0.975)
        return self.whole * float(student * np.sqrt(total / draws))


def estimate(rounds: Iterable[np.ndarray], whole: float, rtol: float, what: str) -> Quantity:
    """Draws on until the standard error is ≤ rtol · Tr G or there are no further rounds. Ctrl-C
    ends it with what is known, from two draws on."""
    found = np.empty((0, 0))
    try:
        with progress("rounds of random combinations") as done:
            for shares in rounds:
                found = np.concatenate([found, shares], axis=1) if found.size else shares
                done()
                if Draws(found, whole).stderr <= rtol * abs(Draws(found, whole).mean):
                    break
    except KeyboardInterrupt:
        if found.shape[1] < 2:
            raise
        raise Interrupted(_quantity(found, whole, f"{what}, interrupted", True)) from None
    return _quantity(found, whole, what)


def _quantity(found: np.ndarray, whole: float, what: str, partial: bool = False) -> Quantity:
    draws = Draws(found, whole)
    route = f"estimate: Gauss–Newton, {found.size} random combinations of outputs{what}"
    return Quantity(draws.mean, route, draws.stderr, partial=partial)
