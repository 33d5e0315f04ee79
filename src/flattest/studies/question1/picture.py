"""The phase diagram of question 1, from the committed results.

    python -m flattest.studies.question1.picture docs/figures/question1

writes the picture.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flattest.lab.summary import Summary, read_summaries
from flattest.palette import BLUE, INK, RED
from flattest.studies.question1.diagram import DIMENSIONS, sizes
from flattest.studies.question1.tables import counts

RESULTS = Path(__file__).parent / "results.json"


def draw(summaries: Sequence[Summary]):
    """Shares of draws against n/d, a panel per d, with 1-SAM's test error and n = d log d."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 3.2), layout="constrained")
    panels = np.atleast_1d(drawn.subplots(1, len(DIMENSIONS), sharey=True))
    kinds = (
        ("kinks-d{d}", "dead, n = {n}", "a half-space is free", INK, "--"),
        ("kinks-d{d}", "approached, n = {n}", "4√d is approached", BLUE, "-"),
        ("phase-d{d}-n{n}", "others", "another face exists", RED, "-"),
        ("phase-d{d}-n{n}", "proven", "proven ✓", "#2a2", "-"),
        ("phase-d{d}-n{n}", "refuted", "refuted ✗", "#a22", ":"),
    )
    for ax, d in zip(panels, DIMENSIONS, strict=True):
        for name, column, label, color, style in kinds:
            found = counts(summaries, name, d, column)
            if found:
                share = [k / m for k, m in found.values()]
                ax.plot(list(found), share, style, color=color, marker="o", ms=3, label=label)
        sam = next((s for s in summaries if s.experiment == f"question1/sam-d{d}"), None)
        if sam is not None:
            errors = [sam.column(f"n = {n}").median for n in sizes(d)]
            shares = [n / d for n in sizes(d)]
            ax.plot(shares, errors, color="#888", marker="s", ms=3, label="1-SAM, test error")
        ax.axvline(np.log(d), color=INK, lw=0.6, label="n = d log d")
        ax.set(title=f"d = {d}", xlabel="n/d", ylim=(-0.05, 1.05))
    panels[0].set_ylabel("share of the draws")
    panels[0].legend(fontsize=6)
    return drawn


if __name__ == "__main__":
    from flattest.report.figure import save

    found = read_summaries(RESULTS)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/figures/question1")
    print(*save(draw(found), folder, "phase"), sep="\n")
