"""Section 6: Figures 2, 3 and 4, by the runs of the experiments."""

from flattest.evidence import Verdict, at_least, at_most, equal, mean_interval
from flattest.experiments.expectations import Expectation
from flattest.lab.summary import Summary
from flattest.ledger.claim import Verdicts, figure, provided, worst
from flattest.papers.vardhan2026.experiments import (
    ACTIVATIONS,
    DETERMINED,
    DIMENSIONS,
    FADES,
    FLAT_IS_ALIGNED,
    FLAT_IS_GOOD,
    GOOD_IS_ALIGNED,
    INVERSE,
    NO_BETTER_THAN_ZERO,
    WEIGHTED_FLAT_IS_ALIGNED,
    connection,
)

SECTION = "section 6.2"


def _mean(found: Summary, expected: Expectation, bound: float, judge=at_least) -> Verdict:
    """The mean over seeds of what is expected, with its 95 % interval."""
    mean, interval = mean_interval(found.verdict(expected).values)
    note = f"mean of {expected.quantity}"
    return judge(mean, bound, 0.0, note, seeds=found.seeds, interval=interval)


@figure(
    "vardhan2026/figure-2",
    "Single-index models, LeakyReLU and quadratic: flat interpolators have small population loss.",
    source=f"Figure 2, {SECTION}",
    experiments=("vardhan2026/fig2-leaky-relu", "vardhan2026/fig2-quadratic"),
)
def figure_2(*found: Summary) -> Verdict:
    return worst(_mean(panel, FLAT_IS_GOOD, 0.7) for panel in found)


@figure(
    "vardhan2026/figure-2-relu",
    "Single-index models with ReLU show a poor connection between flatness and population loss.",
    source=f"Figure 2, {SECTION}",
    experiments=("vardhan2026/fig2-relu",),
    lost="the noise and the law of the links' offset",
)
def figure_2_relu(found: Summary) -> Verdict:
    return _mean(found, FLAT_IS_GOOD, 0.5, at_most)


@figure(
    "vardhan2026/figure-2/settings",
    "What Figure 2 shows for an activation depends on the noise: without noise and offset the rank "
    "correlation is above 0.8, at noise 0.1 below, for ReLU, LeakyReLU and quadratic.",
    source=f"Figure 2, {SECTION}",
    experiments=tuple(f"vardhan2026/fig2-{name}-settings" for name in ACTIVATIONS),
    of=worst,
)
def figure_2_settings(*found: Summary) -> Verdicts:
    for panel in found:
        for noise, judge in ((0.0, at_least), (0.1, at_most)):
            link = panel.column(f"noise {noise:g}, offset 0")
            note = f"median rank correlation at noise {noise:g}, offset 0, {panel.experiment}"
            interval = (link.low, link.high)
            yield judge(link.median, 0.8, 0.0, note, seeds=panel.seeds, interval=interval)


@figure(
    "vardhan2026/figure-3",
    "Sums of single-index models: flatness and population loss both fall as ρ rises, for ReLU, "
    "LeakyReLU and quadratic.",
    source=f"Figure 3, {SECTION}",
    experiments=tuple(f"vardhan2026/fig3-{name}" for name in ACTIVATIONS),
)
def figure_3(*found: Summary) -> Verdict:
    return worst(
        _mean(panel, expected, 0.8)
        for panel in found
        for expected in (FLAT_IS_ALIGNED, GOOD_IS_ALIGNED, WEIGHTED_FLAT_IS_ALIGNED)
    )


@figure(
    "vardhan2026/figure-4a",
    "Linear link with ReLU: flatness and population loss are strongly connected.",
    source=f"Figure 4(a), {SECTION}",
    experiments=("vardhan2026/fig4a",),
)
def figure_4a(found: Summary) -> Verdict:
    return _mean(found, FLAT_IS_GOOD, 0.8)


@figure(
    "vardhan2026/figure-4b",
    "Linear link and activation: most interpolators obtain the same flatness, whatever ρ.",
    source=f"Figure 4(b), {SECTION}",
    experiments=("vardhan2026/fig4b",),
    lost="n/d, the range of ρ, noise and offset",
)
def figure_4b(found: Summary) -> Verdict:
    spread = found.column("flatness, least ρ").low / found.column("least flatness").high
    note = "flatness at ρ = 0.01 over the least one, n = 2d, noiseless"
    return at_most(spread, 2, 0.0, note, seeds=found.seeds)


@figure(
    "vardhan2026/figure-4b/determined",
    "Linear link and activation, n > d: the function is determined, the loss is 0 and the least "
    "‖a‖₁ is at least 1/ρ, since 1 = Σ a_j (w_j·u) ≤ ρ‖a‖₁; here it is 1/ρ.",
    source=f"Figure 4(b), {SECTION}",
    experiments=("vardhan2026/fig4b",),
)
def figure_4b_determined(found: Summary) -> Verdict:
    distance, losses = found.verdict(INVERSE).value, found.verdict(DETERMINED).values
    return provided(
        equal(distance, 0, 1e-9, "largest |ρ‖a‖₁ − 1| over ρ and seeds", seeds=found.seeds),
        at_most(max(losses), 0, 1e-10, "largest population loss"),
    )


@figure(
    "vardhan2026/figure-4c",
    "The quadratic form of Nichani et al. with ReLU: no connection between flatness and population "
    "loss.",
    source=f"Figure 4(c), {SECTION}",
    experiments=("vardhan2026/fig4c-dimensions",),
    lost="d, n, m and the noise",
)
def figure_4c(found: Summary) -> Verdict:
    mean, interval = mean_interval(found.verdict(connection(40)).values)
    note = "mean rank correlation of loss with flatness over ρ, d = 40: within its own error of 0"
    return equal(mean, 0, interval[1] - mean, note, seeds=found.seeds, interval=interval)


@figure(
    "vardhan2026/figure-4c/dimensions",
    "The quadratic form of Nichani et al. with ReLU: in few dimensions flatter interpolators have "
    "a smaller population loss; the connection fades as d grows and is poor at d = 80. The loss of "
    "every interpolator, the flattest included, exceeds that of f = 0.",
    source=f"Figure 4(c), {SECTION}",
    experiments=("vardhan2026/fig4c-dimensions",),
)
def figure_4c_dimensions(found: Summary) -> Verdict:
    links = {d: mean_interval(found.verdict(connection(d)).values) for d in DIMENSIONS}
    mean, interval = mean_interval(found.verdict(FADES).values)
    means = ", ".join(f"{link:.2f}" for link, _ in links.values())
    note = (
        "fall of the mean rank correlation of loss with flatness from d = 20 to d = 80; at "
        f"d = 20, 40, 80 it is {means}"
    )
    return provided(
        at_least(mean, mean - interval[0], 0.0, note, seeds=found.seeds, interval=interval),
        *(
            at_least(low, 0, 0.0, f"lower end of it at d = {d}")
            for d, (_, (low, _)) in links.items()
        ),
        at_most(links[80][1][1], 0.5, 0.0, "upper end of it at d = 80"),
        found.verdict(NO_BETTER_THAN_ZERO),
    )
