"""The phase diagrams of question 2, from the committed results.

    python -m flattest.studies.question2.picture docs/figures/question2

draws test errors over n × d for each way that was run, and over η × the scale of the first layer
for 1-SAM with bias.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flattest.lab.summary import Summary, read_summaries

RESULTS = Path(__file__).parent / "results.json"
CELL = re.compile(r"(?P<row>\S+) = (?P<y>[\d.e-]+), (?P<column>\S+) = (?P<x>[\d.e-]+)")
NAMES = {
    "diagram-bias-sam": "1-SAM, bias",
    "diagram-bias-sam-kept": "1-SAM with its pattern kept, bias",
    "diagram-bias-flow-unseen": "flow, bias",
    "diagram-no-bias-sam": "1-SAM, no bias",
    "diagram-no-bias-sam-kept": "1-SAM with its pattern kept, no bias",
    "diagram-no-bias-flow-unseen": "flow, no bias",
    "scales": "1-SAM, bias, over η × scale of the first layer",
}


def cells(summary: Summary) -> Mapping[tuple[float, float], float]:
    """Median test errors by (row, column) of a diagram; NaN where a seed has none (it diverged)."""
    found = {}
    for name, spread in summary.columns.items():
        cell = CELL.fullmatch(name)
        assert cell is not None, name
        found[float(cell["y"]), float(cell["x"])] = np.nan if spread is None else spread.median
    return found


def axes(summary: Summary) -> tuple[str, str]:
    """What the rows are, and what the columns are."""
    cell = CELL.fullmatch(next(iter(summary.columns)))
    assert cell is not None
    return cell["row"], cell["column"]


def draw(summaries: Sequence[Summary]):
    """A panel for each diagram; the number in a cell is its test error, × where it diverged."""
    from matplotlib.figure import Figure

    by_panel = {summary.experiment.partition("/")[2]: summary for summary in summaries}
    shown = {panel: by_panel[panel] for panel in NAMES if panel in by_panel}
    drawn = Figure(figsize=(3.1 * len(shown), 2.9), layout="constrained")
    for ax, (panel, summary) in zip(
        np.atleast_1d(drawn.subplots(1, len(shown))), shown.items(), strict=True
    ):
        _panel(ax, NAMES[panel], summary)
    return drawn


def _panel(ax, title: str, summary: Summary) -> None:
    found, (row, column) = cells(summary), axes(summary)
    ys, xs = (sorted({key[axis] for key in found}) for axis in (0, 1))
    errors = np.array([[found[y, x] for x in xs] for y in ys])
    ax.imshow(errors, origin="lower", vmin=0, vmax=0.5, cmap="viridis_r", aspect="auto")
    for (i, j), error in np.ndenumerate(errors):
        text = "×" if np.isnan(error) else f"{error:.2f}"
        ax.text(j, i, text, ha="center", va="center", color="w" if error > 0.25 else "k", size=8)
    ax.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    ax.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    ax.set(title=f"{title} ({summary.seeds} seeds)", xlabel=column, ylabel=row)
    ax.title.set_size(8)


if __name__ == "__main__":
    from flattest.report.figure import save

    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/figures/question2")
    print(*save(draw(read_summaries(RESULTS)), folder, "diagrams"), sep="\n")
