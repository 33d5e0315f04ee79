"""What the figures show, by the runs of the experiments."""

from math import inf

from flattest.evidence import Verdict, at_least, at_most
from flattest.lab.summary import Summary
from flattest.ledger.claim import figure, provided
from flattest.papers.mulayoff2021.experiments import (
    FALLS,
    FLATTER,
    ONE_MINIMUM,
    SLACK,
    SMOOTHER,
    STABLE,
    STABLE_ON_AVERAGE,
    UNDER_THEOREM_1,
)

SWEEP = ("mulayoff2021/sweep",)


def _share(sweep: Summary, expected, slack: float, note: str) -> Verdict:
    """The largest measure over what it may be, of all minima of all seeds."""
    minima, knotted = sweep.column("counted"), sweep.column("with knots on data")
    note = f"{note}; {minima.median:g} minima per seed, {knotted.median:g} with knots on data"
    return at_most(1 + sweep.verdict(expected).value, 1.0, slack, note, seeds=sweep.seeds)


@figure(
    "mulayoff2021/section-5-edge",
    "Gradient descent converges to minima with λ_max ≤ 2/η, λ_max = ‖Φ‖²/n with (S32).",
    source="Section 5, Figure 3",
    experiments=SWEEP,
)
def section_5_edge(sweep: Summary) -> Verdict:
    return _share(sweep, STABLE, SLACK, "largest λ_max·η/2")


@figure(
    "mulayoff2021/section-5-average",
    "Where knots lie on data points, λ_max of the steps near the minimum is at most 2/η on "
    "average.",
    source="Section 5, Figure 3",
    experiments=SWEEP,
)
def section_5_average(sweep: Summary) -> Verdict:
    return provided(
        _share(sweep, STABLE_ON_AVERAGE, SLACK, "largest mean of λ_max·η/2 over 200 steps"),
        at_least(sweep.column("with knots on data").high, 1, 0.0, "minima with knots on data"),
    )


@figure(
    "mulayoff2021/section-5-strong",
    "Where knots lie on data points, λ_max^upper is at most the right side of (S75), corrected.",
    source="Section 5 with Theorem 2",
    experiments=SWEEP,
)
def section_5_strong(sweep: Summary) -> Verdict:
    share = sweep.column("upper / (S75), with knots").high
    return at_most(share, 1.0, SLACK, "largest share of the limit", seeds=sweep.seeds)


@figure(
    "mulayoff2021/section-5-variation",
    "The functions found have ∫|f″|g ≤ 1/η − 1/2.",
    source="Section 5, Figure 3",
    experiments=SWEEP,
)
def section_5_variation(sweep: Summary) -> Verdict:
    return _share(sweep, UNDER_THEOREM_1, 0.0, "largest ∫|f″|g over 1/η − 1/2")


@figure(
    "mulayoff2021/section-5-monotone",
    "λ_max falls as the step size grows, over all runs: they are at the edge of stability.",
    source="Section 5, Figure 3",
    experiments=SWEEP,
)
def section_5_monotone(sweep: Summary) -> Verdict:
    least = min(sweep.verdict(FALLS).values)
    return at_least(least, 0.95, 0.0, "least rank correlation with 2/η", seeds=sweep.seeds)


@figure(
    "mulayoff2021/section-5-smoother",
    "The functions get smoother as the step size grows: ∫|f″|g falls.",
    source="Supplement, Figures 1, 2",
    experiments=SWEEP,
)
def section_5_smoother(sweep: Summary) -> Verdict:
    least, note = min(sweep.verdict(SMOOTHER).values), "least rank correlation of ∫|f″|g with 2/η"
    return at_least(least, 0.8, 0.0, note, seeds=sweep.seeds)


@figure(
    "mulayoff2021/section-5-centre",
    "The functions get smoother particularly at the centre of the data: ∫|f″| between the "
    "quartiles of the inputs falls as the step size grows, and so does its share of ∫|f″|.",
    source="Supplement, text to Figures 1, 2",
    experiments=SWEEP,
)
def section_5_centre(sweep: Summary) -> Verdict:
    centre = sweep.column("∫abs(f″) at the centre ↔ 2/η").low
    share = sweep.column("its share at the centre ↔ 2/η").low
    note = f"least rank correlation of ∫|f″| at the centre with 2/η; of its share {share:.2f}"
    return provided(
        at_least(centre, 0.8, 0.0, note, seeds=sweep.seeds),
        at_least(share, 0.5, 0.0, "least rank correlation of the centre's share with 2/η"),
    )


@figure(
    "mulayoff2021/section-5-one-vector",
    "In the sweep the top eigenvector alone certifies the flattest implementation.",
    source="XI, text before (S87)",
    experiments=SWEEP,
)
def section_5_one_vector(sweep: Summary) -> Verdict:
    gap = sweep.column("gap of the top vector")
    return at_most(gap.high, 1e-6, 0.0, "largest gap to (S88)", seeds=sweep.seeds)


@figure(
    "mulayoff2021/figure-1",
    "Trebling the step once L < 0.1 gives a function whose flattest implementation is flatter.",
    source="Figure 1",
    experiments=("mulayoff2021/figure1",),
)
def figure_1(found: Summary) -> Verdict:
    ratios = found.verdict(FLATTER).values
    converged = [ratio for ratio in ratios if ratio < inf]
    by_seed = ", ".join(f"{ratio:.2f}" for ratio in converged)
    note = f"largest ratio of flattest λ_max where both runs converged; by seed {by_seed}"
    return provided(
        at_most(max(converged, default=inf), 1.0, 0.0, note, seeds=len(converged)),
        at_least(len(converged) / len(ratios), 0.8, 0.0, "share of seeds where both converged"),
    )


@figure(
    "mulayoff2021/supplement-3-threshold",
    "For a moderate initialization the step size does not matter below a threshold: λ_max is the "
    "same for all steps well under 2/λ_max.",
    source="Supplement, Figure 3",
    experiments=("mulayoff2021/init-magnitudes",),
)
def supplement_3_threshold(found: Summary) -> Verdict:
    note = "largest relative spread of λ_max over the steps with λ_max < 1/η"
    return at_most(max(found.verdict(ONE_MINIMUM).values), 1e-5, 0.0, note, seeds=found.seeds)
