"""What captions and text say of the figures beside Table 1's ticks."""

from flattest.evidence import Verdict, at_least, at_most
from flattest.lab.summary import Summary
from flattest.ledger.claim import figure, provided
from flattest.papers.wen2023.experiments import FALLING, degenerates_from

# The panels with a bound that some network attains: bias on xor data, and Sim-LN.
ATTAINED = ("fig4b", "fig6a", "fig6b", "fig9b", "fig10b", "fig11b")


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
    """The epoch of the least test error, and that the error is higher at the end."""
    epochs = found.verdict(degenerates_from(epoch)).values
    rises = next(v for v in found.verdicts if v.statement.startswith("the rise")).values
    by_seed = ", ".join(f"{e:.0f}" for e in sorted(epochs))
    note = f"latest epoch of the least test error, read as {epoch} up to a factor 3; all: {by_seed}"
    return provided(
        at_most(max(epochs), 3 * epoch, 0.0, note, seeds=found.seeds),
        at_least(min(rises), 0.005, 0.0, "least rise of the test error after its minimum"),
    )


@figure(
    "wen2023/figure-4/degenerates",
    "With bias the generalization of 1-SAM's networks begins to degenerate after 4000 epochs.",
    source="Section 4.2 and caption of Figure 4",
    experiments=("wen2023/early-fig4b",),
)
def figure_4_degenerates(found: Summary) -> Verdict:
    return _degenerates(found, 4_000)


@figure(
    "wen2023/figure-9/degenerates",
    "With bias and the logistic loss it begins to degenerate after 2000 epochs.",
    source="Caption of Figure 9",
    experiments=("wen2023/early-fig9b",),
)
def figure_9_degenerates(found: Summary) -> Verdict:
    return _degenerates(found, 2_000)


@figure(
    "wen2023/section-6/reaches-the-bound",
    "Where the least sharpness is known exactly, 1-SAM's converged network reaches it "
    "approximately.",
    source="Section 6",
    experiments=tuple(f"wen2023/{panel}" for panel in ATTAINED),
)
def reaches_the_bound(*found: Summary) -> Verdict:
    """The paper gives no number; a tenth was chosen here with the medians known."""
    ratios = [s.column("sharpness").median / s.column("bound").median for s in found]
    lows, highs = zip(*(_range(s) for s in found), strict=True)
    by_panel = ", ".join(f"{p} {r:.3f}" for p, r in zip(ATTAINED, ratios, strict=True))
    note = (
        f"largest |trace/bound − 1| of a panel's median; {by_panel}; single seeds lie between "
        f"{min(lows):.2f} and {max(highs):.2f}"
    )
    distance = max(abs(ratio - 1) for ratio in ratios)
    return at_most(distance, 0.1, 0.0, note, seeds=min(s.seeds for s in found))


def _range(found: Summary) -> tuple[float, float]:
    trace, bound = found.column("sharpness"), found.column("bound")
    return trace.low / bound.high, trace.high / bound.low


@figure(
    "wen2023/section-2/label-noise",
    "SGD with label noise, which prefers a small trace as SAM does, reaches the least trace with "
    "bias and generalizes there: Scenario III, where Table 1's second row has Scenario II for "
    "1-SAM at the same initialization.",
    source="Section 2, Sharpness; Table 1, row 2; ours",
    experiments=("sensitivity/bias-label-noise",),
)
def label_noise(found: Summary) -> Verdict:
    low, high = _range(found)
    note = f"largest test error, at {low:.3f}–{high:.3f} of the least trace, which a memorizer has"
    return provided(
        at_most(found.column("test_error").high, 0.05, 0.0, note, seeds=found.seeds),
        at_least(low, 0.95, 0.0, "trace over its least value"),
        at_most(high, 1.05, 0.0, "trace over its least value"),
    )
