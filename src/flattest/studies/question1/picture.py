"""The pictures of question 1, from the committed results.

    python -m flattest.studies.question1.picture docs/figures/question1

draws what is decided for how many draws, the phase diagram, errors against width, and digits.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flattest.evidence import seeds_in_words
from flattest.lab.summary import Summary, read_summaries
from flattest.palette import BLUE, GREEN, INK, ORANGE, PURPLE, RED, SKY
from flattest.report.figure import named_rows, ranges, save_all
from flattest.studies.question1.diagram import DIMENSIONS, sizes
from flattest.studies.question1.faces import OUTCOMES
from flattest.studies.question1.tables import counts, decided

RESULTS = Path(__file__).parent / "results.json"
COLOURS = dict(zip(OUTCOMES, (GREEN, RED, SKY, "#CCCCCC"), strict=True))
GREY = "#888888"
ALGORITHMS = {
    "gd": "gradient descent",
    "sgd": "SGD",
    "adam": "Adam",
    "sam": "1-SAM",
    "label-noise-sgd": "label-noise SGD",
}
KINDS = (
    ("kinks-d{d}", "dead, n = {n}", "a half-space is free", INK, "--"),
    ("kinks-d{d}", "approached, n = {n}", r"$4\sqrt{d}$ is approached", BLUE, "-"),
    ("phase-d{d}-n{n}", "others", "another face exists", ORANGE, "-"),
    ("phase-d{d}-n{n}", "proven", "proven", GREEN, "-"),
    ("phase-d{d}-n{n}", "refuted", "refuted", RED, ":"),
)


def outcomes(summaries: Sequence[Summary]):
    """For each d and n, in how many draws of xor it is decided that all flattest networks without
    bias generalize."""
    from matplotlib.figure import Figure

    cells = decided(summaries)
    drawn = Figure(figsize=(6.5, 2.4), layout="constrained")
    ax = drawn.subplots()
    left = np.zeros(len(cells))
    for outcome in OUTCOMES:
        found = [cell[outcome] for cell in cells.values()]
        ax.barh(range(len(cells)), found, left=left, color=COLOURS[outcome], label=outcome)
        left += found
    named_rows(ax, {i: f"$d = {d}$, $n = {n}$" for i, (d, n) in enumerate(cells)})
    ax.set(xlabel="draws of the training set")
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    return drawn


def phase(summaries: Sequence[Summary]):
    """Shares of draws against n/d, a panel per d, with 1-SAM's test error and n = d log d."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7.5, 5.6), layout="constrained")
    panels = drawn.subplots(2, 2, sharex=True, sharey=True)
    for ax, d in zip(panels.ravel(), DIMENSIONS, strict=True):
        for name, column, label, colour, style in KINDS:
            found = counts(summaries, name, d, column)
            if found:
                share = [k / m for k, m in found.values()]
                ax.plot(list(found), share, style, color=colour, marker="o", ms=3, label=label)
        sam = next((s for s in summaries if s.experiment == f"question1/sam-d{d}"), None)
        if sam is not None:
            errors = [sam.column(f"n = {n}").median for n in sizes(d)]
            label = f"1-SAM, test error (median of {seeds_in_words(sam.seeds)})"
            at = [n / d for n in sizes(d)]
            ax.plot(at, errors, color=GREY, marker="s", ms=3, label=label)
        ax.axvline(np.log(d), color=INK, lw=0.6, label=r"$n = d\,\log d$")
        ax.set(title=f"$d = {d}$", ylim=(-0.05, 1.05))
    drawn.supxlabel("$n/d$", size=10)
    drawn.supylabel("share of the draws", size=10)
    lines, labels = panels[0, 0].get_legend_handles_labels()
    drawn.legend(lines, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return drawn


def widths(summaries: Sequence[Summary]):
    """How often a flattest network with bias can err on unseen vertices, against its width."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(5.2, 2.8), layout="constrained")
    ax = drawn.subplots()
    shown = [s for s in summaries if s.experiment.startswith("question1/width-")]
    for summary, colour in zip(shown, (BLUE, RED, GREEN, PURPLE), strict=False):
        d, n = summary.experiment.removeprefix("question1/width-d").split("-n")
        found = {
            int(name.removeprefix("width ")): spread
            for name, spread in summary.columns.items()
            if name.startswith("width ") and spread is not None
        }
        label = f"$d = {d}$, $n = {n}$ ({seeds_in_words(summary.seeds)})"
        ax.plot(list(found), [s.median for s in found.values()], "o-", color=colour, label=label)
        low, high = ([getattr(s, end) for s in found.values()] for end in ("low", "high"))
        ax.fill_between(list(found), low, high, color=colour, alpha=0.2, lw=0)
    ax.set_xticks(range(4, 25, 4))
    ax.set(xlabel="width", ylabel="error on unseen vertices", ylim=(-0.03, 1.03))
    ax.legend(frameon=False, fontsize=8, title="median, range shaded", title_fontsize=8)
    return drawn


def digits(summaries: Sequence[Summary]):
    """Where algorithms end on images of two digits: trace over the least, and test error."""
    from matplotlib.figure import Figure

    found = {s.experiment.removeprefix("question1/digits-"): s for s in summaries}
    shown = {n: s for n, s in found.items() if "/" not in n and "error_end" in s.columns}
    drawn = Figure(figsize=(7.5, 2.2), layout="constrained")
    trace, error = drawn.subplots(1, 2, sharey=True)
    ranges(trace, {i: s.column("end") for i, s in enumerate(shown.values())}, BLUE)
    ranges(error, {i: s.column("error_end") for i, s in enumerate(shown.values())}, BLUE)
    seeds = min(s.seeds for s in shown.values())
    trace.axvline(1, color=INK, lw=0.8, ls="--")
    trace.set(xlabel=r"trace at the end, over the least, $4\sqrt{2}$")
    error.set(xlabel="test error at the end", xlim=(-0.005, 0.1))
    named_rows(trace, dict(enumerate(ALGORITHMS.get(name, name) for name in shown)))
    error.grid(axis="x", lw=0.4)
    drawn.suptitle(f"median and range over {seeds_in_words(seeds)}", size=8)
    return drawn


PICTURES = {"outcomes": outcomes, "phase": phase, "widths": widths, "digits": digits}

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/figures/question1")
    print(*save_all(PICTURES, read_summaries(RESULTS), folder), sep="\n")
