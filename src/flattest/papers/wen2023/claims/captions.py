"""What captions and text say of the figures beside Table 1's ticks."""

import numpy as np

from flattest.evidence import Verdict, at_least, at_most
from flattest.experiments.expectations import farthest_feature
from flattest.lab.summary import Summary
from flattest.ledger.claim import figure, provided
from flattest.papers.wen2023.experiments import (
    DOMINATING,
    EXTRACTING,
    FALLING,
    RISING,
    degenerates_from,
)


@figure(
    "wen2023/figure-1/sharpness-falls",
    "Although weight decay does not regularize sharpness, the sharpness falls through training "
    "(printed: the flatness decreases).",
    source="Caption of Figure 1",
    experiments=("wen2023/early-fig1a",),
)
@figure(
    "wen2023/figure-8/sharpness-falls",
    "With the logistic loss too the sharpness falls under weight decay.",
    source="Caption of Figure 8",
    experiments=("wen2023/early-fig8a",),
)
def sharpness_falls(found: Summary) -> Verdict:
    shares = found.verdict(FALLING).values
    note = "largest sharpness in the last tenth over its maximum while training"
    return at_most(max(shares), FALLING.to, 0.0, note, seeds=found.seeds)


def _degenerates(found: Summary, epoch: int) -> Verdict:
    """The epoch of the least test error, and that the error rises from there; medians, since the
    seeds differ more than the captions' numbers tell."""
    least, rises = found.verdict(degenerates_from(epoch)), found.verdict(RISING)
    by_seed = ", ".join(f"{e:.0f}" for e in sorted(least.values))
    note = f"median epoch of the least test error, printed {epoch}; by seed {by_seed}"
    rise = "median rise of the test error after its minimum"
    return provided(
        at_most(least.value, least.bound, 0.0, note, seeds=found.seeds),
        at_least(rises.value, rises.bound, 0.0, rise),
    )


@figure(
    "wen2023/figure-4/degenerates",
    "With bias the generalization of 1-SAM's networks begins to degenerate after 4000 epochs: "
    "here, in the median, by three times as many.",
    source="Section 4.2 and caption of Figure 4",
    experiments=("wen2023/early-fig4b",),
)
def figure_4_degenerates(found: Summary) -> Verdict:
    return _degenerates(found, 4_000)


@figure(
    "wen2023/figure-9/degenerates",
    "With bias and the logistic loss it begins to degenerate after 2000 epochs: here, in the "
    "median, by three times as many.",
    source="Caption of Figure 9",
    experiments=("wen2023/early-fig9b",),
)
def figure_9_degenerates(found: Summary) -> Verdict:
    return _degenerates(found, 2_000)


# The only numbers that the paper prints of a run.
PRINTED_COLUMNS, PRINTED_OTHER = (42.47, 42.48), 5.65


@figure(
    "wen2023/figure-2b/columns",
    "W1's first two columns have norms 42.47 and 42.48, the largest other 5.65: 7.5 times less.",
    source="Section 3.2, of Figure 2b",
    experiments=("wen2023/fig2b",),
    lost="the initialization of W1 and γ, and a second phase that does not collapse at ρ = 1",
)
def figure_2b_columns(found: Summary) -> Verdict:
    """The ratio alone, since Sim-BN divides every row of (W1, b1) by its size.

    Why ours is smaller: the gradient is orthogonal to a row, so that rows in use grow for as long
    as they are trained, and the others keep their initial weights, which fill the other columns.
    The ratio is a clock: at width 100 (seed 0, ρ = 0.1) it is 0.9 at first, 2.2 after 291 epochs,
    3.1 after 1546, 3.6 after 4210 and 4.0 after 8207. The paper trains for 10⁵ more epochs, at
    ρ = 1. Half of its column is not in its table either: the four rows make up
    √(18.581² + 14.363² + 13.768² + 12.601²) = 30.0 of 42.47.
    """
    ratios = found.verdict(DOMINATING).values
    printed = min(PRINTED_COLUMNS) / PRINTED_OTHER
    by_seed = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    note = f"least ratio by seed: {by_seed}; W1 is that of 110 000 epochs with ρ = 0.1, then 0.5"
    return at_least(min(ratios), printed, 0.0, note, seeds=found.seeds)


# (W1[1], W1[2], ‖W1[3:d]‖) of the four neurons of largest norm.
PRINTED_NEURONS = np.array(
    [
        (18.581, -18.582, 0.02),
        (-14.363, -14.363, 0.03),
        (13.768, 13.771, 0.03),
        (-12.601, 12.601, 0.01),
    ]
)


@figure(
    "wen2023/figure-2b/neurons",
    "The four neurons of largest norm are (18.581, −18.582), (−14.363, −14.363), (13.768, 13.771), "
    "(−12.601, 12.601) on x[1], x[2], and at most 0.03 long elsewhere: ±x[1] ± x[2] up to a "
    "distance of 0.0016 in direction.",
    source="Figure 2b, the table",
    experiments=("wen2023/early-fig2b",),
    lost="the initialization of W1 and γ, and a second phase that does not collapse at ρ = 1",
)
def figure_2b_neurons(found: Summary) -> Verdict:
    """Directions alone, since Sim-BN divides every row of (W1, b1) by its size.

    Why ours are farther off: they are trained for a twentieth of the paper's 2 · 10⁵ epochs, half
    of which are at ρ = 1. Tails are learned with the training set, longer than they were at first,
    and go later; as for columns (see `figure_2b_columns`) the distance tells how long was trained.
    """
    printed = farthest_feature(PRINTED_NEURONS)
    distances = found.verdict(EXTRACTING).values
    by_seed = ", ".join(f"{distance:.2f}" for distance in distances)
    note = f"largest distance by seed: {by_seed}, after 10 000 epochs at ρ = 0.1"
    return at_most(max(distances), printed, 0.0, note, seeds=found.seeds)
