"""What the figures show, on the quick variants of the experiments."""

from functools import cache

import numpy as np
from scipy.stats import spearmanr

from flattest.evidence import Verdict, at_least, at_most
from flattest.ledger.claim import claim
from flattest.papers.mulayoff2021.experiments import QUICK_INITS, QUICK_SWEEP, QUICK_TWO

SEEDS = 3


@cache
def _sweeps() -> tuple[dict, ...]:
    return tuple(dict(QUICK_SWEEP.compute(seed)) for seed in range(SEEDS))


def _counted(sweep: dict, name: str) -> np.ndarray:
    return sweep[name][~np.isnan(sweep["sharpness"])]


def _shares(name: str, limit: str) -> np.ndarray:
    """A measure of every counted minimum over what it may be."""
    return np.concatenate([_counted(s, name) / _counted(s, limit) for s in _sweeps()])


def _on_knots() -> np.ndarray:
    """Which of the counted minima have knots on data points."""
    return np.concatenate([_counted(s, "knots_on_data") > 0 for s in _sweeps()])


@claim(
    "mulayoff2021/section-5-edge",
    "Gradient descent converges to minima with λ_max ≤ 2/η, λ_max = ‖Φ‖²/n with (S32).",
    source="Section 5, Figure 3",
    evidence="figure",
    cost="full",
)
def section_5_edge() -> Verdict:
    shares = _shares("sharpness", "threshold")
    note = f"largest λ_max·η/2 of {shares.size} minima, {_on_knots().sum()} with knots on data"
    return at_most(shares.max(), 1.0, 1e-3, note, seeds=SEEDS)


@claim(
    "mulayoff2021/section-5-average",
    "Where knots lie on data points, λ_max of the steps near the minimum is at most 2/η on "
    "average.",
    source="Section 5, Figure 3",
    evidence="figure",
    cost="full",
)
def section_5_average() -> Verdict:
    shares = _shares("mean_sharpness", "threshold")[_on_knots()]
    note = f"largest mean of λ_max·η/2 over {QUICK_SWEEP.averaged} steps; {shares.size} minima"
    return at_most(shares.max(), 1.0, 1e-3, note, seeds=SEEDS)


@claim(
    "mulayoff2021/section-5-strong",
    "Where knots lie on data points, λ_max^upper is at most the right side of (S75), corrected.",
    source="Section 5 with Theorem 2",
    evidence="figure",
    cost="full",
)
def section_5_strong() -> Verdict:
    shares = _shares("upper_sharpness", "strong_threshold")[_on_knots()]
    note = f"largest share of the limit; {shares.size} minima with knots on data points"
    return at_most(shares.max(), 1.0, 1e-3, note, seeds=SEEDS)


@claim(
    "mulayoff2021/section-5-variation",
    "The functions found have ∫|f″|g ≤ 1/η − 1/2.",
    source="Section 5, Figure 3",
    evidence="figure",
    cost="full",
)
def section_5_variation() -> Verdict:
    largest = _shares("variation", "variation_threshold").max()
    return at_most(largest, 1.0, 0.0, "largest ∫|f″|g over 1/η − 1/2", seeds=SEEDS)


@claim(
    "mulayoff2021/section-5-monotone",
    "λ_max falls as the step size grows, over all runs: they are at the edge of stability.",
    source="Section 5, Figure 3",
    evidence="figure",
    cost="full",
)
def section_5_monotone() -> Verdict:
    ranks = [spearmanr(s["counted_threshold"], s["counted_sharpness"]).statistic for s in _sweeps()]
    return at_least(min(ranks), 0.95, 0.0, "least rank correlation with 2/η", seeds=SEEDS)


@claim(
    "mulayoff2021/section-5-smoother",
    "The functions get smoother as the step size grows: ∫|f″|g falls.",
    source="Supplement, Figures 1, 2",
    evidence="figure",
    cost="full",
)
def section_5_smoother() -> Verdict:
    ranks = [
        spearmanr(1 / _counted(s, "lr"), _counted(s, "variation")).statistic for s in _sweeps()
    ]
    return at_least(min(ranks), 0.8, 0.0, "least rank correlation of ∫|f″|g with 1/η", seeds=SEEDS)


@claim(
    "mulayoff2021/section-5-one-vector",
    "In the sweep the top eigenvector alone certifies the flattest implementation.",
    source="XI, text before (S87)",
    evidence="figure",
    cost="full",
)
def section_5_one_vector() -> Verdict:
    gaps = [np.abs(_counted(s, "top_vector_gap")).max() for s in _sweeps()]
    return at_most(max(gaps), 1e-6, 0.0, seeds=SEEDS)


@claim(
    "mulayoff2021/figure-1",
    "Trebling the step once L < 0.1 gives a function whose flattest implementation is flatter.",
    source="Figure 1",
    evidence="figure",
    cost="full",
)
def figure_1() -> Verdict:
    found = [QUICK_TWO.compute(seed) for seed in range(SEEDS)]
    ratio = max(float(each["flattest_ratio"][0]) for each in found)
    variations = ", ".join(f"{each['variation_ratio'][0]:.2f}" for each in found)
    note = f"largest ratio of flattest λ_max; the ratios of ∫|f″|g are {variations}"
    return at_most(ratio, 1.0, 0.0, note, seeds=SEEDS)


@claim(
    "mulayoff2021/supplement-3-threshold",
    "For a moderate initialization the step size does not matter below a threshold: λ_max is the "
    "same for all steps well under 2/λ_max.",
    source="Supplement, Figure 3",
    evidence="figure",
    cost="full",
)
def supplement_3_threshold() -> Verdict:
    spreads = [QUICK_INITS.compute(seed)["spread_below_threshold"][0] for seed in range(2)]
    note = "largest relative spread of λ_max over the steps with λ_max < 1/η"
    return at_most(max(spreads), 1e-5, 0.0, note, seeds=2)
