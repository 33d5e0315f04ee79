"""The phase diagram of question 1, from the committed results.

    python -m flattest.studies.question1.picture docs/figures/question1

writes the picture and prints the table and the thresholds that docs/question1.md has.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flattest.lab.summary import Summary, read_summaries
from flattest.palette import BLUE, INK, RED
from flattest.studies.question1.diagram import DIMENSIONS, sizes
from flattest.studies.question1.faces import OUTCOMES

RESULTS = Path(__file__).parent / "results.json"
LOCATIONS, SLOPES = np.linspace(1.0, 6.0, 251), np.geomspace(1.0, 40.0, 20)
# Half the 95 % quantile of χ² with one degree of freedom.
REJECTED = 1.92


class Threshold(NamedTuple):
    """n/d at which half of the draws have the property, and its 95 % interval."""

    at: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.at:.2f} [{self.low:.2f}, {self.high:.2f}]"


def threshold(counts: Mapping[float, tuple[int, int]]) -> Threshold:
    """Of counts (draws with the property, draws) by n/d: the middle of the falling logistic curve
    of largest likelihood, over a grid, and the interval of those that a likelihood-ratio test at
    95 % does not reject, whatever the slope."""
    x = np.array(list(counts))
    found, draws = np.array(list(counts.values()), float).T
    z = SLOPES[:, None, None] * (x - LOCATIONS[:, None])
    p = np.clip(1 / (1 + np.exp(np.clip(z, -50, 50))), 1e-9, 1 - 1e-9)
    likelihood = (np.log(p) @ found + np.log(1 - p) @ (draws - found)).max(axis=0)
    best = LOCATIONS[likelihood >= likelihood.max() - 1e-9].mean()
    kept = LOCATIONS[likelihood >= likelihood.max() - REJECTED]
    return Threshold(float(best), float(kept.min()), float(kept.max()))


def counts(
    summaries: Sequence[Summary], name: str, d: int, column: str
) -> dict[float, tuple[int, int]]:
    """By n/d: in how many draws the column is 1, and of how many. The `name` and `column` are
    patterns with {n}."""
    found = {summary.experiment: summary for summary in summaries}
    counted = {}
    for n in sizes(d):
        summary = found.get(f"question1/{name.format(d=d, n=n)}")
        if summary is None:
            continue
        mean = summary.column(column.format(n=n)).mean
        assert mean is not None
        counted[n / d] = (round(mean * summary.seeds), summary.seeds)
    return counted


def thresholds(summaries: Sequence[Summary]) -> str:
    """A row per d: below which n/d a half-space is free, other faces exist, 4√d is approached."""
    lines = [
        "| d | a half-space is free | another label-pure face exists | 4√d is approached | log d |",
        "| --- | --- | --- | --- | --- |",
    ]
    for d in DIMENSIONS:
        found = [
            counts(summaries, "kinks-d{d}", d, "dead, n = {n}"),
            counts(summaries, "phase-d{d}-n{n}", d, "others"),
            counts(summaries, "kinks-d{d}", d, "approached, n = {n}"),
        ]
        cells = [str(threshold(c)) if len(c) == len(sizes(d)) else "not run" for c in found]
        lines.append(f"| {d} | {' | '.join(cells)} | {np.log(d):.2f} |")
    return "\n".join(lines)


def table(summaries: Sequence[Summary]) -> str:
    """A row per cell of the diagram: how many draws have which outcome."""
    lines = [
        f"| d | n | draws | {' | '.join(OUTCOMES)} | another face exists |",
        f"| {' | '.join(['---'] * (4 + len(OUTCOMES)))} |",
    ]
    for summary in summaries:
        if summary.experiment.startswith("question1/phase-"):
            d, n = summary.experiment.removeprefix("question1/phase-d").split("-n")
            shares = [summary.column(name).mean or 0.0 for name in (*OUTCOMES, "others")]
            cells = [f"{share * summary.seeds:g}" for share in shares]
            lines.append(f"| {d} | {n} | {summary.seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
    print(*save(draw(found), folder, "phase"), table(found), thresholds(found), sep="\n\n")
