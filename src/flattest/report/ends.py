"""Where the runs of a paper ended, from what is committed of them: no run is needed."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from flattest.evidence import seeds_in_words
from flattest.lab.summary import Spread, Summary
from flattest.palette import BLUE, GREEN, INK
from flattest.report.figure import named_rows, ranges


def ends(summaries: Sequence[Summary]) -> Figure:
    """A row per experiment that trained: the sharpness of the last tenth over its certified bound,
    and the test error; median and range over seeds. The axis of the first is linear up to 5 and
    logarithmic beyond, so that a trace below 0 is drawn as such."""
    names = ("sharpness", "bound", "test_error")
    shown = [s for s in summaries if all(s.columns.get(name) is not None for name in names)]
    drawn = Figure(figsize=(8, 0.24 * len(shown) + 1), layout="constrained")
    sharpness, error = drawn.subplots(1, 2, sharey=True)
    ratios = [_over_bound(s) for s in shown]
    ranges(sharpness, dict(enumerate(ratios)), GREEN)
    ranges(error, {i: s.column("test_error") for i, s in enumerate(shown)}, BLUE)
    for i, summary in enumerate(shown):
        error.text(0.495, i, seeds_in_words(summary.seeds), ha="right", va="center", size=6)
    sharpness.axvline(1, color=INK, lw=0.8, ls="--")
    sharpness.set_xscale("symlog", linthresh=5, linscale=3)
    sharpness.set_xticks((-2, 0, 1, 2, 3, 5, 100, 1e4), ("−2", *"01235", "100", "$10^4$"))
    least, most = min(0, *(r.low for r in ratios)), max(5, *(r.high for r in ratios))
    sharpness.set_xlim(least - 0.3, 2 * most)
    sharpness.xaxis.set_minor_locator(NullLocator())
    sharpness.set(xlabel=r"$\mathrm{Tr}\,\nabla^2 L$ at the end, over its certified bound")
    error.set(xlabel="test error at the end", xlim=(-0.01, 0.5))
    error.grid(axis="x", lw=0.4)
    named_rows(sharpness, {i: s.experiment.partition("/")[2] for i, s in enumerate(shown)})
    drawn.suptitle("last tenth of the runs: median and range over seeds", size=9)
    return drawn


def _over_bound(summary: Summary) -> Spread:
    found, bound = summary.column("sharpness"), summary.column("bound").median
    return Spread(found.median / bound, found.low / bound, found.high / bound)
